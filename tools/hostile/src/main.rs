// SPDX-License-Identifier: GPL-2.0
//! A hostile SDP peer: connects to sockets of the module, and has them connect
//! to it, with raw verbs, and breaks every rule of the protocol.
//!
//! The victims are sockets of this very process, on the same machine: so their
//! errors and the machine's counters can be looked at after every attack. After
//! each one two honest sockets must still be able to talk. Prints KTAP.

mod attacks;
mod child;
mod cm;
mod counters;
mod fail;
mod ffi;
mod forge;
mod loan;
mod missing;
mod pages;
mod peer;
mod queue;
mod reader;
mod revive;
mod run;
mod session;
mod sock;

use clap::Parser;
use session::Ctx;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::ExitCode;
use std::time::Duration;

/// How long anything may take before it counts as hanging.
const LIMIT: Duration = Duration::from_secs(10);

#[derive(Parser)]
#[command(about = "Attacks SDP sockets of this machine with raw verbs; prints KTAP")]
struct Args {
    /// IPv4 address of this machine's RDMA device.
    #[arg(long)]
    local: Option<Ipv4Addr>,
    /// The first port to use; each connection uses the next.
    #[arg(long, default_value_t = 20_000)]
    port: u16,
    /// Multiplies every time limit.
    #[arg(long, default_value_t = 1)]
    timeout_scale: u32,
    /// Does every N-th case of a long list, and an N-th of a flood.
    #[arg(long, default_value_t = 1)]
    every: usize,
    /// Only prints the attacks' names.
    #[arg(long)]
    list: bool,
    /// Is the victim of `--revive` at this address.
    #[arg(long, value_name = "ADDR:PORT")]
    victim: Option<SocketAddrV4>,
    /// Has the keys of another machine's victim come to life again.
    #[arg(long, value_name = "ADDR:PORT")]
    revive: Option<SocketAddrV4>,
    /// Sends another machine's victim a request that says it comes from `--claimed`.
    #[arg(long, value_name = "ADDR:PORT", requires_all = ["claimed", "local"])]
    forge: Option<SocketAddrV4>,
    /// The address for `--forge`.
    #[arg(long, value_name = "ADDR")]
    claimed: Option<Ipv4Addr>,
    /// Only attacks with one of these in their name.
    patterns: Vec<String>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let limit = LIMIT * args.timeout_scale;
    let forged = args.forge.zip(args.local).zip(args.claimed);
    let between_two = match (args.victim, args.revive, forged) {
        (Some(addr), _, _) => Some(revive::victim(addr, limit)),
        (None, Some(addr), _) => Some(revive::attack(addr, limit)),
        (None, None, Some(((to, own), claimed))) => Some(forge::forge(to, own, claimed)),
        (None, None, None) => None,
    };
    if let Some(result) = between_two {
        return match result {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                println!("{why}");
                ExitCode::FAILURE
            }
        };
    }
    let wanted = |name: &str| {
        args.patterns.is_empty() || args.patterns.iter().any(|p| name.contains(p.as_str()))
    };
    let mut attacks = attacks::all();
    attacks.retain(|a| wanted(a.name));
    if args.list {
        for attack in &attacks {
            println!("{}", attack.name);
        }
        return ExitCode::SUCCESS;
    }
    let Some(local) = args.local else {
        eprintln!("hostile: --local ADDRESS is missing");
        return ExitCode::from(2);
    };
    if attacks.is_empty() {
        eprintln!("hostile: no attack has such a name");
        return ExitCode::from(2);
    }
    let ctx = Ctx::new(local, LIMIT * args.timeout_scale, args.every, args.port);
    if run::all(&attacks, &ctx) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
