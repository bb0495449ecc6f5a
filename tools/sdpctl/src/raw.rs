// SPDX-License-Identifier: GPL-2.0

//! `sdpctl raw`: a netlink request with arbitrary attributes, for tests of the module.

use std::process::ExitCode;

use netlink_packet_core::{
    DefaultNla,
    NLM_F_ACK,
    NLM_F_DUMP, //
};

use crate::cli::{
    Cli,
    RawArgs, //
};
use crate::fail::Fail;
use crate::netlink::Module;
use crate::out;
use uapi::nl;

/// Sends the request and prints the number of replies.
pub(crate) fn run(cli: &Cli, args: &RawArgs) -> Result<ExitCode, Fail> {
    let mut module = Module::open(&cli.messages)?;
    let attrs = args.attrs.iter();
    let attrs = attrs.map(|(number, bytes)| DefaultNla::new(*number, bytes.clone()));
    let flags = match args.cmd {
        nl::CMD_MODULE_GET => NLM_F_ACK,
        _ => NLM_F_DUMP,
    };
    out::line(module.send(args.cmd, attrs.collect(), flags)?.len())?;
    Ok(ExitCode::SUCCESS)
}
