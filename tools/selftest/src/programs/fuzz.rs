// SPDX-License-Identifier: GPL-2.0
//! `selftest fuzz`: the tests of the group `fuzz` with any seed and for any time.

use crate::support::harness::{Env, Fail, Family};
use crate::support::sys;
use crate::tests::fuzz::{self, Amount};
use clap::Args;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

#[derive(Args)]
pub(crate) struct FuzzArgs {
    #[arg(long, value_enum)]
    family: Family,
    /// This machine's address, for both ends of each connection.
    #[arg(long)]
    local: IpAddr,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// The number of calls on one set of sockets.
    #[arg(long, default_value_t = 60)]
    calls: usize,
    /// Test only one set of sockets, with the seed that was reported with a difference.
    #[arg(long)]
    once: bool,
    /// Make the calls from this many threads, on shared sockets, and compare nothing.
    #[arg(long)]
    threads: Option<usize>,
    /// Print the calls that are compared.
    #[arg(long)]
    print: bool,
    /// Stop after this many differences.
    #[arg(long, default_value_t = 20)]
    most: usize,
}

/// Runs the tests; returns whether they found nothing.
pub(crate) fn run(args: &FuzzArgs) -> io::Result<bool> {
    sys::raise_file_limit()?;
    let nowhere = (Ipv4Addr::LOCALHOST, 0).into();
    let env = Env {
        family: args.family,
        local: args.local,
        remote: args.local,
        local6: None,
        remote6: None,
        peer_control: nowhere,
        here_control: nowhere,
        delays: None,
        scale: 1.0,
        timeout_scale: 1.0,
        random_time: None,
        seed: args.seed,
    };
    let time = Duration::from_secs_f64(args.seconds);
    let amount = Amount {
        time,
        calls: args.calls,
        once: args.once,
        print: args.print,
        most: args.most,
    };
    let outcome = match args.threads {
        Some(threads) => fuzz::with_threads(&env, time, threads),
        None => fuzz::compared(&env, amount),
    };
    match outcome {
        Ok(()) => Ok(true),
        Err(Fail::Skipped(why) | Fail::Failed(why)) => {
            println!("{why}");
            Ok(false)
        }
    }
}
