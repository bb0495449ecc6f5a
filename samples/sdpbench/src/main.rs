// SPDX-License-Identifier: GPL-2.0
//! `sdpbench`: measures stream sockets, the same way for every transport, by
//! the micro-benchmarks of the papers on SDP over InfiniBand (Balaji et al.,
//! ISPASS 2004 and IPDPS 2006). On one machine `sdpbench ... serve`, on another:
//!
//! - ping-pong latency: `lat SIZE`
//! - throughput: `bw SIZE`
//! - computation between sends or receives: `bw SIZE --compute US`,
//!   `--peer-compute US`
//! - the impact of page faults: `bw SIZE --overwrite WINDOW`
//! - sends with MSG_ZEROCOPY: `--zerocopy ... bw SIZE`, `--zerocopy ... lat SIZE`
//! - multi-stream: `bw SIZE --streams N`
//! - fan-out: `bw SIZE --streams N --one-sender`
//! - multi-client: `clients N bw SIZE`
//! - fan-in: `clients N bw SIZE --one-receiver`
//! - hot spot: `clients N lat SIZE`
//!
//! and by `connect`, `idle` and `many` what connections cost.
//!
//! With `--family tcp` under `LD_PRELOAD=librspreload.so` it measures rsockets.
//! Each figure goes to stdout as `NAME VALUE UNIT`.

mod crowd;
mod lend;
mod measure;
mod serve;
mod sock;

use crate::crowd::Group;
use crate::measure::Load;
use crate::sock::Peer;
use clap::{value_parser, Parser, Subcommand};
use sock::{Family, Mode};
use std::io;
use std::net::SocketAddrV4;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Parser)]
#[command(about = "Measures stream sockets", version)]
struct Cli {
    #[arg(long, value_enum)]
    family: Family,
    /// The way that the client's sends and receives go, of SDP (socket option SDP_ZCOPY_MODE).
    #[arg(long, value_enum)]
    mode: Option<Mode>,
    /// Send with MSG_ZEROCOPY: the client, and the server's answers to `lat`.
    #[arg(long)]
    zerocopy: bool,
    /// The way at the server.
    #[arg(long, value_enum, global = true)]
    peer_mode: Option<Mode>,
    /// Begin when so many connections of the group have come ...
    #[arg(long, global = true, hide = true, default_value_t = 1)]
    members: u16,
    /// ... of this one.
    #[arg(long, global = true, hide = true, default_value_t = 0)]
    group: u32,
    /// The server's address.
    address: SocketAddrV4,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Play the other end, until killed.
    Serve,
    /// Send in one direction: payload rate as the receiver saw it.
    Bw {
        /// Bytes of each send().
        size: usize,
        #[arg(long, default_value_t = 2.0)]
        seconds: f64,
        /// Microseconds of computation after each send().
        #[arg(long, default_value_t = 0)]
        compute: u64,
        /// Overwrite the buffer after so many sends; 0 for never.
        #[arg(long, default_value_t = 0)]
        overwrite: u32,
        /// Microseconds of computation after each receive of the server's.
        #[arg(long, default_value_t = 0)]
        peer_compute: u32,
        /// So many connections, with a thread each at both ends.
        #[arg(long, default_value_t = 1)]
        streams: u16,
        /// One thread sends to all of them by turns.
        #[arg(long)]
        one_sender: bool,
        /// One thread receives from all connections of the group.
        #[arg(long)]
        one_receiver: bool,
    },
    /// Ping and pong: half the time of a round.
    Lat {
        /// Bytes each way.
        size: usize,
        #[arg(long, default_value_t = 2.0)]
        seconds: f64,
    },
    /// Run so many clients at a time: the sum of their rates, the mean of their latencies.
    Clients {
        count: u16,
        /// `bw SIZE` or `lat SIZE`, with options.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<String>,
    },
    /// Connect, exchange one byte each way and close, one after the other.
    Connect {
        #[arg(default_value_t = 200)]
        count: u32,
    },
    /// Hold connections open, after saying "ready", until killed.
    Idle { count: usize },
    /// Make connections, send requests on all of them by turns, then hold them as `idle`.
    Many {
        count: usize,
        /// Bytes of a request and of its answer.
        #[arg(long, default_value_t = 64, value_parser = value_parser!(u16).range(1..=4096))]
        size: u16,
        /// Requests on each connection.
        #[arg(long, default_value_t = 2)]
        rounds: usize,
    },
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("sdpbench: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> io::Result<()> {
    sock::raise_file_limit()?;
    let peer = Peer {
        family: cli.family,
        address: cli.address,
        mode: cli.mode,
        zerocopy: cli.zerocopy,
    };
    let group = Group {
        id: cli.group,
        members: cli.members,
    };
    match &cli.command {
        Command::Serve => serve::serve(peer),
        Command::Bw {
            size,
            seconds,
            compute,
            overwrite,
            peer_compute,
            streams,
            one_sender,
            one_receiver,
        } => measure::bandwidth(
            peer,
            group,
            &Load {
                size: *size,
                seconds: *seconds,
                compute: Duration::from_micros(*compute),
                overwrite: *overwrite,
                peer_compute: *peer_compute,
                peer_mode: cli.peer_mode,
                streams: *streams,
                one_sender: *one_sender,
                one_receiver: *one_receiver,
            },
        ),
        Command::Lat { size, seconds } => {
            measure::latency(peer, group, cli.peer_mode, *size, *seconds)
        }
        Command::Clients { count, command } => crowd::run(peer, *count, command),
        Command::Connect { count } => measure::connects(peer, *count),
        Command::Idle { count } => measure::idle(peer, *count),
        Command::Many {
            count,
            size,
            rounds,
        } => measure::many(peer, *count, *size, *rounds),
    }
}
