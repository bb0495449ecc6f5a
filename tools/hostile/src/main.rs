// SPDX-License-Identifier: GPL-2.0
//! A hostile SDP peer. With raw verbs, it connects to sockets of the module, or lets them connect,
//! and breaks every rule of the protocol.
//!
//! The victims are sockets of this process, on the same machine, so that their errors and the
//! machine's counters can be checked after every attack. After each attack, two honest sockets must
//! still be able to talk. Prints KTAP.

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
mod rings;
mod run;
mod session;
mod sock;

use clap::Parser;
use session::Ctx;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::ExitCode;
use std::time::Duration;

/// The time after which anything counts as hanging.
const LIMIT: Duration = Duration::from_secs(10);

#[derive(Parser)]
#[command(about = "Attacks SDP sockets of this machine with raw verbs; prints KTAP")]
struct Args {
    /// IPv4 address of this machine's RDMA device.
    #[arg(long)]
    local: Option<Ipv4Addr>,
    /// The first port to use; each connection uses the next one.
    #[arg(long, default_value_t = 20_000)]
    port: u16,
    /// A factor for every time limit.
    #[arg(long, default_value_t = 1)]
    timeout_scale: u32,
    /// Run only every N-th case of a long list, and an N-th part of a flood.
    #[arg(long, default_value_t = 1)]
    every: usize,
    /// Print the names of the attacks instead of running them.
    #[arg(long)]
    list: bool,
    /// Be the victim of `--revive` at this address.
    #[arg(long, value_name = "ADDR:PORT")]
    victim: Option<SocketAddrV4>,
    /// Try to make the invalid keys of a victim on another machine valid again.
    #[arg(long, value_name = "ADDR:PORT")]
    revive: Option<SocketAddrV4>,
    /// Send a request that claims to come from `--claimed` to a victim on another machine.
    #[arg(long, value_name = "ADDR:PORT", requires_all = ["claimed", "local"])]
    forge: Option<SocketAddrV4>,
    /// The false address for `--forge`.
    #[arg(long, value_name = "ADDR")]
    claimed: Option<Ipv4Addr>,
    /// Overwrite the rings of own queues, which a device of vmw_pvrdma reads.
    #[arg(long, requires = "local")]
    rings: bool,
    /// Run only the attacks whose names contain one of these patterns.
    patterns: Vec<String>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let limit = LIMIT * args.timeout_scale;
    let forged = args.forge.zip(args.local).zip(args.claimed);
    let rings = args.local.filter(|_| args.rings);
    let alone = match (args.victim, args.revive, forged, rings) {
        (Some(addr), ..) => Some(revive::victim(addr, limit)),
        (None, Some(addr), ..) => Some(revive::attack(addr, limit)),
        (_, _, Some(((to, own), claimed)), _) => Some(forge::forge(to, own, claimed)),
        (.., Some(local)) => Some(rings::attack(local, args.port, limit)),
        (None, None, None, None) => None,
    };
    if let Some(result) = alone {
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
    let ctx = match Ctx::new(local, LIMIT * args.timeout_scale, args.every, args.port) {
        Ok(ctx) => ctx,
        Err(why) => {
            eprintln!("hostile: {why}");
            return ExitCode::from(2);
        }
    };
    if run::all(&attacks, &ctx) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
