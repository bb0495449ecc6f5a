// SPDX-License-Identifier: GPL-2.0
//! `sdpbench`: measures stream sockets, the same way for every transport.
//!
//! With `--family tcp` under `LD_PRELOAD=librspreload.so` it measures rsockets.
//! Each figure goes to stdout as `NAME VALUE UNIT`.

mod measure;
mod serve;
mod sock;

use clap::{Parser, Subcommand};
use sock::Family;
use std::io;
use std::net::SocketAddrV4;
use std::process::ExitCode;

#[derive(Parser)]
#[command(about = "Measures stream sockets", version)]
struct Cli {
    #[arg(long, value_enum)]
    family: Family,
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
    let (family, address) = (cli.family, cli.address);
    match cli.command {
        Command::Serve => serve::serve(family, address),
        Command::Bw { size, seconds } => measure::bandwidth(family, address, size, seconds),
        Command::Lat { size, seconds } => measure::latency(family, address, size, seconds),
        Command::Connect { count } => measure::connects(family, address, count),
        Command::Idle { count } => measure::idle(family, address, count),
    }
}
