// SPDX-License-Identifier: GPL-2.0
//! Serves an RDMA adapter to each of a set of QEMU machines.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use adapter::control;
use adapter::ethernet;
use adapter::pci;
use adapter::server::{Backend, Running};
use adapter::switch::{Link, Step, Switch};
use adapter::units;
use clap::Parser;
use parking_lot::{Condvar, Mutex, MutexGuard};
use vfio_user::Server;

/// Serves an RDMA adapter (vmw_pvrdma) to each of a set of QEMU machines, with one switch between them.
#[derive(Parser)]
#[command(name = "adapter")]
struct Options {
    /// Bits per second of each machine's link, such as 100G or 500M [default: as fast as the host copies]
    #[arg(long, value_parser = units::rate)]
    rate: Option<u64>,
    /// From one adapter to another, such as 2us or 1.5ms [default: none]
    #[arg(long, value_parser = units::latency, default_value = "0us", hide_default_value = true)]
    latency: Duration,
    /// Takes commands at this socket, a line each, and answers with a line of JSON; "help" names them
    #[arg(long)]
    control: Option<PathBuf>,
    /// Forwards frames between network cards: a socket of the switch, and the socket at which a card receives; once
    /// for each card
    #[arg(long, value_name = "SOCKET=SOCKET")]
    network: Vec<ethernet::Names>,
    /// A socket for each machine; machines with QEMU's option
    /// -device '{"driver":"vfio-user-pci","socket":{"type":"unix","path":"SOCKET"}}'
    #[arg(required = true)]
    sockets: Vec<PathBuf>,
}

/// Serves one QEMU process after the other at this socket.
fn serve(server: &Server, mut backend: Backend, path: &Path) {
    loop {
        if let Err(error) = server.run(&mut backend) {
            say(&format!("{}: {error}", path.display()));
        }
        backend.gone();
    }
}

/// Serves the control socket, with a thread per connection.
fn listen(listener: &UnixListener, running: &Arc<Running>) {
    for peer in listener.incoming().flatten() {
        let running = Arc::clone(running);
        // An error means that the peer has disconnected.
        thread::spawn(move || obey(&peer, &running));
    }
}

/// Answers the lines of one connection.
fn obey(peer: &UnixStream, running: &Running) -> io::Result<()> {
    let (mut lines, mut answers) = (BufReader::new(peer), peer);
    let mut line = Vec::new();
    // A line that is too long is read as two lines, at least one of which is invalid.
    while (&mut lines)
        .take(control::LONGEST)
        .read_until(b'\n', &mut line)?
        > 0
    {
        let text = String::from_utf8_lossy(&line);
        let answer = control::obey(&mut running.switch.lock(), &text, Instant::now());
        running.asked.notify_one();
        answers.write_all(format!("{answer}\n").as_bytes())?;
        line.clear();
    }
    Ok(())
}

/// Runs the switch.
fn run(running: &Running) {
    // SAFETY: This changes only the calling thread's timer slack, to the minimum of 1 ns. The
    // default of 50 us is more than a link's latency.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
    let mut switch = running.switch.lock();
    loop {
        match switch.step(Instant::now()) {
            // Let a guest's request have the lock between two steps.
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

/// The sockets that the program has created. They are removed if the program cannot start.
struct Created(Vec<PathBuf>);

impl Drop for Created {
    fn drop(&mut self) {
        for path in &self.0 {
            // The program ends with the error that prevented the start.
            let _ = fs::remove_file(path);
        }
    }
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
    let mut created = Created(Vec::new());
    // The parent process finds the threads by their names, which each thread sets for itself.
    let named = Arc::new(Barrier::new(options.sockets.len() + 1));
    for (machine, path) in options.sockets.iter().enumerate() {
        let server = Server::new(path, true, pci::interrupts(), pci::regions())
            .map_err(|e| failed(path, &e))?;
        created.0.push(path.clone());
        let backend = Backend::new(machine, Arc::clone(&running));
        let path = path.clone();
        let is_named = Arc::clone(&named);
        thread::Builder::new()
            .name(format!("machine {}", machine + 1))
            .spawn(move || {
                is_named.wait();
                serve(&server, backend, &path);
            })
            .map_err(|e| e.to_string())?;
    }
    if let Some(path) = &options.control {
        let listener = UnixListener::bind(path).map_err(|e| failed(path, &e))?;
        created.0.push(path.clone());
        let running = Arc::clone(&running);
        thread::spawn(move || listen(&listener, &running));
    }
    ethernet::start(&options.network).map_err(|e| format!("--network: {e}"))?;
    named.wait();
    // The parent process waits for this line before the machines connect.
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
