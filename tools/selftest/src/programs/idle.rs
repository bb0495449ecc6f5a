// SPDX-License-Identifier: GPL-2.0
//! Idle connections, whose memory can be measured (`selftest idle`), and the rate at which
//! connections are made (`selftest connect-rate`).

use crate::programs::stream::{connect_patiently, keep_alive, patiently};
use crate::support::harness::Family;
use crate::support::sys::{self, Pages, SockAddr, PAGE};
use clap::Args;
use std::io::{self, BufRead, Write};
use std::net::SocketAddr;
use std::time::Instant;

#[derive(Args)]
pub(crate) struct Ends {
    #[arg(long, value_enum)]
    family: Family,
    /// Accept the connections at this address.
    #[arg(long, value_name = "ADDR:PORT", conflicts_with = "connect")]
    listen: Option<SocketAddr>,
    /// Make the connections to this address.
    #[arg(long, value_name = "ADDR:PORT", required_unless_present = "listen")]
    connect: Option<SocketAddr>,
    #[arg(long, default_value_t = 1000)]
    conns: u64,
    /// For `idle`: send this many bytes, which nobody reads, on each connection that it makes.
    #[arg(long, default_value_t = 0)]
    bytes: usize,
    /// For `idle`: after the send, write to this many of the last pages of these bytes.
    #[arg(long, value_name = "PAGES", default_value_t = 0, requires = "bytes")]
    overwrite: usize,
    /// For `idle`: accept a connection only after it has sent something, for this many seconds
    /// (TCP_DEFER_ACCEPT).
    #[arg(long, value_name = "SECONDS", requires = "listen")]
    defer: Option<i32>,
    /// For `idle`: probe whether the peer is there (SO_KEEPALIVE). The values are the idle time,
    /// the interval, and the number of probes; the default of each is that of the namespace.
    #[arg(long, value_name = "SECONDS", num_args = 0..=3, value_delimiter = ',')]
    keepalive: Option<Vec<i32>>,
    /// For `idle`: wait for bytes on the last connection, and print the result.
    #[arg(long)]
    receive: bool,
    /// For `idle`: the traffic class of the connections that it makes (IP_TOS).
    #[arg(long, value_name = "NUMBER", requires = "connect")]
    tos: Option<i32>,
    /// For `idle`: connect once, with this many retries (TCP_SYNCNT), and print the result.
    #[arg(long, value_name = "COUNT", requires = "connect")]
    retries: Option<i32>,
}

impl Ends {
    /// Opens a socket that will be connected to this address.
    fn open(&self, addr: SocketAddr) -> io::Result<sys::Sock> {
        let sock = self.family.socket(addr.ip())?;
        if let Some(tos) = self.tos {
            sock.set_int(libc::IPPROTO_IP, libc::IP_TOS, tos)?;
        }
        Ok(sock)
    }
}

/// Holds connections until the standard input has a line or ends.
pub(crate) fn idle(ends: &Ends) -> io::Result<bool> {
    check_limit(ends.conns)?;
    let mut socks = Vec::new();
    match (ends.listen, ends.connect) {
        (Some(addr), _) => {
            let listener = listen(ends, addr)?;
            for _ in 0..ends.conns {
                socks.push(listener.accept()?.0);
            }
        }
        (None, Some(addr)) if ends.retries.is_some() => return connect_once(ends, addr),
        (None, Some(addr)) => {
            for _ in 0..ends.conns {
                let sock = patiently(|| ends.open(addr), addr)?;
                keep_alive(ends.keepalive.as_deref(), &sock)?;
                send_unread(&sock, ends.bytes, ends.overwrite)?;
                socks.push(sock);
            }
        }
        (None, None) => return Err(io::Error::other("--listen or --connect")),
    }
    println!("idle: {} connections open", socks.len());
    io::stdout().flush()?;
    if let Some(sock) = socks.last().filter(|_| ends.receive) {
        let began = Instant::now();
        let result = sock.recv(&mut [0], 0);
        println!("idle: {result:?} after {} s", began.elapsed().as_secs());
        return Ok(result.is_ok());
    }
    io::stdin().lock().read_line(&mut String::new())?;
    // A connection is alive if poll() reports neither an error nor a hangup.
    let mut dead = 0;
    for sock in &socks {
        let seen = sock.poll(libc::POLLIN | libc::POLLRDHUP, 0)?;
        dead += u64::from(seen & (libc::POLLERR | libc::POLLHUP) != 0);
    }
    drop(socks);
    println!("idle: closed, {dead} of {} were dead", ends.conns);
    Ok(dead == 0)
}

fn connect_once(ends: &Ends, addr: SocketAddr) -> io::Result<bool> {
    let sock = ends.family.socket(addr.ip())?;
    if let Some(retries) = ends.retries {
        sock.set_int(libc::IPPROTO_TCP, libc::TCP_SYNCNT, retries)?;
    }
    let began = Instant::now();
    let result = sock.connect(&SockAddr::from(addr));
    println!("idle: {result:?} after {} ms", began.elapsed().as_millis());
    Ok(result.is_ok())
}

/// Makes connections one after the other: connects, waits for the end of the stream, and closes.
pub(crate) fn connect_rate(ends: &Ends) -> io::Result<bool> {
    if let Some(addr) = ends.listen {
        let listener = listen(ends, addr)?;
        for _ in 0..ends.conns {
            drop(listener.accept()?);
        }
        return Ok(true);
    }
    let Some(addr) = ends.connect else {
        return Err(io::Error::other("--listen or --connect"));
    };
    let mut micros = Vec::new();
    let start = Instant::now();
    for _ in 0..ends.conns {
        let begun = Instant::now();
        let sock = connect_patiently(ends.family, addr)?;
        micros.push(begun.elapsed().as_micros());
        // The server closes at once. The end of the stream shows that the server has accepted.
        if sock.recv(&mut [0], 0)? != 0 {
            return Err(io::Error::other("data from a server that sends none"));
        }
    }
    let secs = start.elapsed().as_secs_f64();
    micros.sort_unstable();
    let at = |part: usize| micros.get(micros.len() * part / 100).copied().unwrap_or(0);
    println!(
        "connect: {} connections, {:.1} per second, {} us median, {} us at 99 %",
        ends.conns,
        ends.conns as f64 / secs,
        at(50),
        at(99)
    );
    Ok(true)
}

/// Sends `bytes` bytes from whole pages, then writes to the last `overwrite` pages. Nobody reads
/// the bytes, so the buffers of both ends must have room for them.
fn send_unread(sock: &sys::Sock, bytes: usize, overwrite: usize) -> io::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    let pages = Pages::new(bytes.next_multiple_of(PAGE), false)?;
    pages.touch(0x5d);
    let mut sent = 0;
    while sent < bytes {
        sent += sock.send_raw(pages.at(sent), bytes - sent, libc::MSG_NOSIGNAL)?;
    }
    let kept = pages.len().saturating_sub(overwrite * PAGE);
    pages.part(kept, pages.len() - kept).touch(0x5e);
    Ok(())
}

fn listen(ends: &Ends, addr: SocketAddr) -> io::Result<sys::Sock> {
    let listener = ends.family.socket(addr.ip())?;
    listener.set_int(libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    keep_alive(ends.keepalive.as_deref(), &listener)?;
    if let Some(seconds) = ends.defer {
        listener.set_int(libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, seconds)?;
    }
    listener.bind(&addr.into())?;
    listener.listen(128)?;
    Ok(listener)
}

fn check_limit(conns: u64) -> io::Result<()> {
    let limit = sys::raise_file_limit()?;
    if limit < conns + 16 {
        let text = format!("the limit of open files is {limit} (ulimit -Hn)");
        return Err(io::Error::other(text));
    }
    Ok(())
}
