// SPDX-License-Identifier: GPL-2.0
//! Serves an RDMA adapter to each of a set of QEMU machines.

use std::io::{self, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use adapter::pci;
use adapter::server::{Backend, Running};
use adapter::switch::{Link, Step, Switch};
use clap::Parser;
use parking_lot::{Condvar, Mutex, MutexGuard};
use vfio_user::Server;

/// Serves an RDMA adapter (vmw_pvrdma) to each of a set of QEMU machines, with one switch between them.
#[derive(Parser)]
#[command(name = "adapter")]
struct Options {
    /// Bits per second of each machine's link, such as 100G or 500M [default: as fast as the host copies]
    #[arg(long, value_parser = rate)]
    rate: Option<u64>,
    /// From one adapter to another, such as 2us or 1.5ms [default: none]
    #[arg(long, value_parser = time, default_value = "0us", hide_default_value = true)]
    latency: Duration,
    /// Whoever connects to this socket is told all counters, as JSON
    #[arg(long)]
    counters: Option<PathBuf>,
    /// A socket for each machine; machines with QEMU's option
    /// -device '{"driver":"vfio-user-pci","socket":{"type":"unix","path":"SOCKET"}}'
    #[arg(required = true)]
    sockets: Vec<PathBuf>,
}

/// A number and one of the units.
fn with_unit(text: &str, units: &[(&str, f64)]) -> Result<f64, String> {
    let names = || {
        units
            .iter()
            .map(|(name, _)| *name)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let at = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let factor = units
        .iter()
        .find(|(name, _)| *name == unit)
        .map(|(_, factor)| factor);
    match (number.parse::<f64>(), factor) {
        (Ok(number), Some(factor)) => Ok(number * factor),
        _ => Err(format!("a number and one of {} is needed", names())),
    }
}

/// Bytes per second.
fn rate(text: &str) -> Result<u64, String> {
    let bits = with_unit(text, &[("G", 1e9), ("M", 1e6), ("K", 1e3)])?;
    if (1e6..=1e13).contains(&bits) {
        Ok((bits / 8.0) as u64)
    } else {
        Err("a rate is from 1M to 10000G".into())
    }
}

fn time(text: &str) -> Result<Duration, String> {
    let seconds = with_unit(
        text,
        &[("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)],
    )?;
    if (0.0..=10.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("a latency is 10s at most".into())
    }
}

/// Serves one machine after the other at that socket.
fn serve(server: &Server, mut backend: Backend, path: &Path) {
    loop {
        if let Err(error) = server.run(&mut backend) {
            say(&format!("{}: {error}", path.display()));
        }
        backend.gone();
    }
}

/// Tells the counters to whoever connects.
fn tell(listener: &UnixListener, running: &Running) {
    for mut peer in listener.incoming().flatten() {
        let report = running.switch.lock().report();
        // A peer that goes away does not want to know.
        let _ = serde_json::to_string(&report).map(|text| peer.write_all(text.as_bytes()));
    }
}

/// Runs the switch.
fn run(running: &Running) {
    // SAFETY: Only the calling thread's timer slack is changed: to 1 ns, the shortest, from 50 us, which
    // is more than a link's latency.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
    let mut switch = running.switch.lock();
    loop {
        match switch.step(Instant::now()) {
            // A guest that asks for something has its turn between two steps.
            Step::Done => MutexGuard::bump(&mut switch),
            Step::Until(Some(at)) => {
                running.asked.wait_until(&mut switch, at);
            }
            Step::Until(None) => running.asked.wait(&mut switch),
        }
    }
}

fn say(text: &str) {
    eprintln!("adapter: {text}");
}

fn start(options: &Options) -> Result<(), String> {
    let link = Link {
        rate: options.rate,
        latency: options.latency,
    };
    let switch = Switch::new(options.sockets.len(), link);
    let running = Arc::new(Running {
        switch: Mutex::new(switch),
        asked: Condvar::new(),
    });
    let failed =
        |path: &Path, error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    for (machine, path) in options.sockets.iter().enumerate() {
        let server = Server::new(path, true, pci::interrupts(), pci::regions())
            .map_err(|e| failed(path, &e))?;
        let backend = Backend::new(machine, Arc::clone(&running));
        let path = path.clone();
        thread::spawn(move || serve(&server, backend, &path));
    }
    if let Some(path) = &options.counters {
        let listener = UnixListener::bind(path).map_err(|e| failed(path, &e))?;
        let running = Arc::clone(&running);
        thread::spawn(move || tell(&listener, &running));
    }
    // Whoever started the process waits for this line before the machines connect.
    let mut out = io::stdout();
    writeln!(out, "ready")
        .and_then(|()| out.flush())
        .map_err(|e| e.to_string())?;
    run(&running);
    Ok(())
}

fn main() -> ExitCode {
    match start(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&error);
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_have_units_and_ranges() {
        assert_eq!(rate("100G"), Ok(12_500_000_000));
        assert_eq!(rate("1.5M"), Ok(187_500));
        assert_eq!(time("2us"), Ok(Duration::from_micros(2)));
        assert_eq!(time("1.5ms"), Ok(Duration::from_micros(1500)));
        for wrong in ["", "G", "100", "-1G", "1T", "999K", "99999G", "1.2.3G"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "2", "11s", "-1us", "2 us"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }
}
