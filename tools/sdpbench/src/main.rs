// SPDX-License-Identifier: GPL-2.0
//! `sdpbench`: measures stream sockets, the same way for every transport.
//!
//! With `--family tcp` under `LD_PRELOAD=librspreload.so` it measures rsockets.
//! Each figure goes to stdout as `NAME VALUE UNIT`.

mod measure;
mod serve;
mod sock;

use crate::measure::Load;
use crate::sock::Peer;
use clap::{Parser, Subcommand};
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
        /// The way that the server receives, of SDP.
        #[arg(long, value_enum)]
        peer_mode: Option<Mode>,
    },
    /// Ping and pong: half the time of a round.
    Lat {
        /// Bytes each way.
        size: usize,
        #[arg(long, default_value_t = 2.0)]
        seconds: f64,
    },
    /// Connect, exchange one byte each way and close, one after the other.
    Connect {
        #[arg(default_value_t = 200)]
        count: u32,
    },
    /// Hold connections open, after saying "ready", until killed.
    Idle { count: usize },
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
    };
    match cli.command {
        Command::Serve => serve::serve(peer),
        Command::Bw {
            size,
            seconds,
            compute,
            overwrite,
            peer_compute,
            peer_mode,
        } => measure::bandwidth(
            peer,
            &Load {
                size,
                seconds,
                compute: Duration::from_micros(compute),
                overwrite,
                peer_compute,
                peer_mode,
            },
        ),
        Command::Lat { size, seconds } => measure::latency(peer, size, seconds),
        Command::Connect { count } => measure::connects(peer, count),
        Command::Idle { count } => measure::idle(peer, count),
    }
}
