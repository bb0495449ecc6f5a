// SPDX-License-Identifier: GPL-2.0

//! `sdpctl`: shows, checks and configures SDP, for users and scripts.

// Both macros panic if they cannot write; use `out` instead.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod bench;
mod check;
mod cli;
mod config;
mod conn;
mod debug;
mod dev;
mod events;
mod expression;
mod fail;
mod filter;
mod generate;
mod histograms;
mod limits;
mod meaning;
mod model;
mod netlink;
mod netns;
mod out;
mod owners;
mod program;
mod raw;
mod run;
mod sdp;
mod settings;
mod ss;
mod stat;
mod steer;
mod tar;
mod tcp;
mod term;
mod top;
mod units;

use std::process::ExitCode;

use crate::cli::{
    Cli,
    Command, //
};
use crate::fail::Fail;

fn main() -> ExitCode {
    // End silently when the reader of a pipe has left. SAFETY: No other thread runs yet.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let cli = Cli::from_args();
    match run(&cli) {
        Ok(code) => code,
        Err(fail) => {
            out::say(format_args!("sdpctl: {fail}"));
            fail.code()
        }
    }
}

fn run(cli: &Cli) -> Result<ExitCode, Fail> {
    if let Some(name) = &cli.netns {
        netns::enter(name)?;
    }
    match &cli.command {
        Command::Ss(args) => ss::run(cli, args),
        Command::Stat(args) => stat::run(cli, args),
        Command::Dev => dev::run(cli),
        Command::Check(args) => check::run(cli, args),
        Command::Events(args) => events::run(cli, args),
        Command::Get(args) => config::get(cli, args),
        Command::Set(args) => config::set(cli, args),
        Command::Run(args) => run::run(args),
        Command::Steer { command } => steer::run(cli, command.as_ref()),
        Command::Bench(args) => bench::run(cli, args),
        Command::Conn(args) => conn::run(cli, args),
        Command::Top(args) => top::run(cli, args),
        Command::Debug(args) => debug::run(cli, args),
        Command::Raw(args) => raw::run(cli, args),
        Command::Generate(args) => generate::run(args),
    }
}
