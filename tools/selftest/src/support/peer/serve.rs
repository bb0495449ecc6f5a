// SPDX-License-Identifier: GPL-2.0
//! The server, which has a process for each session.

use super::session::Session;
use super::wire::{self, Channel};
use crate::support::sys::{self, Fork};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;

/// Serves sessions on `addr` until killed.
pub(crate) fn serve(addr: SocketAddr) -> io::Result<()> {
    let listener = TcpListener::bind(addr)?;
    println!("selftest: serving on {}", listener.local_addr()?);
    accept_sessions(&listener)
}

/// Starts a server for this machine in a child process that ends with this process. Returns the
/// address of the server's control channel.
pub(crate) fn start_here(ip: IpAddr) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind((ip, 0))?;
    let addr = listener.local_addr()?;
    if let Fork::Child = sys::fork()? {
        let _ = sys::die_with_parent();
        // The server must not be killed with the process group of a test. It gets no Ctrl-C from
        // the terminal either, but it ends with its parent.
        let _ = sys::own_group();
        let _ = accept_sessions(&listener);
        sys::exit_now(1);
    }
    Ok(addr)
}

fn accept_sessions(listener: &TcpListener) -> io::Result<()> {
    sys::reap_automatically();
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(e) => {
                eprintln!("selftest: accept: {e}");
                continue;
            }
        };
        match sys::fork() {
            Ok(Fork::Child) => {
                let _ = sys::die_with_parent();
                // A session must not keep the server's listener open.
                // SAFETY: this process never uses the listener again and ends by _exit, which drops
                // nothing.
                unsafe { libc::close(listener.as_raw_fd()) };
                let ended = run_session(stream);
                sys::exit_now(i32::from(ended.is_err()));
            }
            Ok(Fork::Parent(_)) => {}
            Err(e) => eprintln!("selftest: fork: {e}"),
        }
    }
}

fn run_session(stream: TcpStream) -> io::Result<()> {
    end_with(&stream)?;
    let mut channel = Channel::new(stream)?;
    let mut session = Session::new();
    while let Some(line) = channel.read_line()? {
        let result = session.call(&line);
        channel.write_line(&wire::answer(&result))?;
    }
    Ok(())
}

/// Ends this process when the control connection ends, even if the main thread is blocked.
fn end_with(stream: &TcpStream) -> io::Result<()> {
    let watched = stream.try_clone()?;
    std::thread::Builder::new()
        .stack_size(64 << 10)
        .spawn(move || loop {
            let events = libc::POLLRDHUP;
            match sys::poll_fds(&[(watched.as_raw_fd(), events)], -1) {
                Ok(seen) if seen.iter().all(|&e| e == 0) => {}
                _ => sys::exit_now(0),
            }
        })?;
    Ok(())
}
