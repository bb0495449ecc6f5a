// SPDX-License-Identifier: GPL-2.0
//! `selftest`: exercises stream sockets over TCP and over SDP.
//!
//! SDP promises TCP's semantics, so there is one suite for both. It describes TCP, is checked
//! against TCP, and then runs over SDP.

mod programs;
mod support;
mod tests;

use clap::{Args, Parser, Subcommand};
use programs::{fuzz, idle, stream};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use support::harness::{self, Env, Family, Test};
use support::{peer, sys};

#[derive(Parser)]
#[command(
    about = "Exercises stream sockets over TCP and over SDP alike",
    version
)]
struct Cli {
    /// Open SDP sockets as AF_INET and AF_INET6 sockets with protocol 257.
    #[arg(long)]
    by_protocol: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Play the other end for `run` on another machine, until killed.
    Serve {
        /// The address of the control channel (plain TCP).
        #[arg(long, default_value = "0.0.0.0")]
        bind: IpAddr,
        #[arg(long, default_value_t = peer::CONTROL_PORT)]
        port: u16,
    },
    /// Run the tests and print the results as KTAP.
    Run(RunArgs),
    /// Stream data both ways on many connections and check every byte.
    Stream(stream::StreamArgs),
    /// Hold idle connections open until the standard input has a line.
    Idle(idle::Ends),
    /// Make connections one after the other and print the rate.
    ConnectRate(idle::Ends),
    /// Make random calls, and compare them with TCP, or make them from several threads.
    Fuzz(fuzz::FuzzArgs),
}

#[derive(Args)]
struct RunArgs {
    #[arg(long, value_enum)]
    family: Family,
    /// This machine's address for the sockets under test.
    #[arg(long)]
    local: IpAddr,
    /// The peer's address; without it, both ends are on this machine.
    #[arg(long)]
    peer: Option<IpAddr>,
    /// This machine's IPv6 address (::1 if both ends are on this machine).
    #[arg(long)]
    local6: Option<IpAddr>,
    #[arg(long, requires = "local6")]
    peer6: Option<IpAddr>,
    /// The control address of the peer's server, if it is not the peer's address and the usual
    /// port.
    #[arg(long)]
    control: Option<SocketAddr>,
    /// List the names of the tests instead of running them.
    #[arg(long)]
    list: bool,
    /// Factor for the amounts of data and the numbers of rounds.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Factor for limits of time, such as that of a test (60 s).
    #[arg(long, default_value_t = 1.0)]
    timeout_scale: f64,
    /// The time that the tests of the group fuzz take together, which otherwise depends on the
    /// scale.
    #[arg(long = "for", value_name = "SECONDS")]
    random_seconds: Option<u32>,
    /// The seed for all data and random choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print how long each test took.
    #[arg(long)]
    times: bool,
    /// Run only the tests during which the peer's machine is killed; a note says when.
    #[arg(long, requires = "peer")]
    peer_vanishes: bool,
    /// A file that the caller creates after it has delayed the adapter's Reads; a note asks for the
    /// delay.
    #[arg(long, value_name = "FILE", requires = "peer")]
    delays: Option<PathBuf>,
    /// Compare the patterns with whole names.
    #[arg(long)]
    exact: bool,
    /// Run only the tests whose names contain one of these patterns.
    patterns: Vec<String>,
}

fn main() -> ExitCode {
    let args = Cli::parse();
    if args.by_protocol {
        harness::open_by_protocol();
    }
    let result = match args.command {
        Command::Serve { bind, port } => peer::serve((bind, port).into()).map(|()| true),
        Command::Run(args) => run(args),
        Command::Stream(args) => stream::run(&args),
        Command::Idle(ends) => idle::idle(&ends),
        Command::ConnectRate(ends) => idle::connect_rate(&ends),
        Command::Fuzz(args) => fuzz::run(&args),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("selftest: {e}");
            ExitCode::from(2)
        }
    }
}

fn run(args: RunArgs) -> io::Result<bool> {
    let random_time = args
        .random_seconds
        .map(|seconds| Duration::from_secs(seconds.into()));
    let options = harness::Options {
        patterns: args.patterns,
        exact: args.exact,
        times: args.times,
    };
    let tests: Vec<&Test> = tests::all(args.peer_vanishes)
        .filter(|t| options.wants(t))
        .collect();
    if args.list {
        tests.iter().for_each(|t| println!("{}", t.name));
        return Ok(true);
    }
    if tests.is_empty() {
        return Err(io::Error::other("no test has such a name"));
    }
    sys::raise_file_limit()?;
    let here_control = peer::start_here([127, 0, 0, 1].into())?;
    let (local6, remote6) = match args.peer {
        Some(_) => (args.local6, args.peer6),
        None => {
            let ip = args.local6.or_else(ipv6_loopback);
            (ip, ip)
        }
    };
    let peer_control = match (args.control, args.peer) {
        (Some(control), _) => control,
        (None, Some(peer)) => (peer, peer::CONTROL_PORT).into(),
        (None, None) => here_control,
    };
    let env = Env {
        family: args.family,
        local: args.local,
        remote: args.peer.unwrap_or(args.local),
        local6,
        remote6,
        peer_control,
        here_control,
        delays: args.delays,
        scale: args.scale,
        timeout_scale: args.timeout_scale,
        random_time,
        seed: args.seed,
    };
    support::counters::note_violations(&env);
    harness::run(&tests, &env, &options)
}

/// ::1, if this machine has it.
fn ipv6_loopback() -> Option<IpAddr> {
    let ip = IpAddr::from(Ipv6Addr::LOCALHOST);
    std::net::TcpListener::bind((ip, 0)).is_ok().then_some(ip)
}
