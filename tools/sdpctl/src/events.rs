// SPDX-License-Identifier: GPL-2.0

//! `sdpctl events`: connections as they come and go.

use std::io;
use std::process::ExitCode;

use serde::Serialize;

use crate::cli::{
    Cli,
    EventsArgs, //
};
use crate::fail::Fail;
use crate::model::{
    self,
    End, //
};
use crate::netlink::{
    Message,
    Module, //
};
use crate::out;
use crate::uapi;
use crate::uapi::sock as a;

#[derive(Serialize)]
struct Event {
    format: u32,
    event: &'static str,
    local: End,
    peer: End,
    inode: u64,
    netns_cookie: u64,
    /// The errno of a connection that failed.
    error: Option<u64>,
    cause: Option<String>,
}

pub(crate) fn run(cli: &Cli, args: &EventsArgs) -> Result<ExitCode, Fail> {
    let mut module = Module::open(cli)?;
    module.listen()?;
    // Who waits for the beginning sees it.
    out::say("listening");
    let mut shown = 0;
    while args.count.is_none_or(|count| shown < count) {
        for message in module.events()? {
            show(cli, &message)?;
            shown += 1;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn show(cli: &Cli, message: &Message) -> Result<(), Fail> {
    let name = match message.cmd {
        uapi::CMD_ESTABLISHED_NTF => "established",
        uapi::CMD_CLOSED_NTF => "closed",
        uapi::CMD_FAILED_NTF => "failed",
        _ => "unknown",
    };
    let event = Event {
        format: out::FORMAT,
        event: name,
        local: model::end_of(message, a::LOCAL_ADDR, a::LOCAL_PORT)?,
        peer: model::end_of(message, a::PEER_ADDR, a::PEER_PORT)?,
        inode: message.number(a::INODE).unwrap_or(0),
        netns_cookie: message.number(a::NETNS_COOKIE).unwrap_or(0),
        error: message.number(a::ERROR),
        cause: message.string(a::CAUSE),
    };
    if cli.json {
        return out::json_line(&event);
    }
    let mut line = format!("{name:<11}  {}  {}", event.local.show(), event.peer.show());
    if let Some(error) = event.error.and_then(|error| i32::try_from(error).ok()) {
        line += &format!("  {}", io::Error::from_raw_os_error(error));
    }
    if let Some(cause) = &event.cause {
        line += &format!("  ({cause})");
    }
    out::line(line)
}
