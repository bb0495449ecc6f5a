// SPDX-License-Identifier: GPL-2.0

//! Generates man pages and completions from the definition of the command line.

use std::fs;
use std::process::ExitCode;

use clap::{
    CommandFactory,
    ValueEnum, //
};
use clap_complete::Shell;

use crate::cli::{
    Cli,
    GenerateArgs, //
};
use crate::fail::Fail;

pub(crate) fn run(args: &GenerateArgs) -> Result<ExitCode, Fail> {
    let failed = |e: std::io::Error| Fail::io(args.folder.display(), &e);
    let man = args.folder.join("man");
    let completions = args.folder.join("completions");
    fs::create_dir_all(&man).map_err(failed)?;
    fs::create_dir_all(&completions).map_err(failed)?;
    clap_mangen::generate_to(Cli::command(), &man).map_err(failed)?;
    for &shell in Shell::value_variants() {
        clap_complete::generate_to(shell, &mut Cli::command(), "sdpctl", &completions)
            .map_err(failed)?;
    }
    Ok(ExitCode::SUCCESS)
}
