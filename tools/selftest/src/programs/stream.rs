// SPDX-License-Identifier: GPL-2.0
//! `selftest stream`: data both ways on many connections at once, every byte
//! checked. One machine listens, the other connects; both are given the same
//! seed, number of connections and number of bytes.

use crate::programs::idle;
use crate::support::flow::{self, Exchange, Received, Span};
use crate::support::harness::Family;
use crate::support::pattern::Pattern;
use crate::support::sys::{self, Pages, Sock, SockAddr};
use clap::Args;
use std::io::{self, BufRead, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uapi::socket::{SDP_ZCOPY_MODE, SDP_ZCOPY_THRESH, SOL_SDP};

/// A connection's first bytes: its number, little-endian.
const HEADER_LEN: usize = 8;
/// How often a connect is tried again while nobody listens yet.
const RETRIES: u32 = 100;

#[derive(Args)]
pub(crate) struct StreamArgs {
    #[arg(long, value_enum)]
    family: Family,
    /// Accept the connections at this address.
    #[arg(long, value_name = "ADDR:PORT", conflicts_with = "connect")]
    listen: Option<SocketAddr>,
    /// Make the connections to this address.
    #[arg(long, value_name = "ADDR:PORT", required_unless_present = "listen")]
    connect: Option<SocketAddr>,
    #[arg(long, default_value_t = 1)]
    conns: u64,
    /// Bytes each way on each connection.
    #[arg(long, default_value_t = 10 << 20)]
    bytes: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The longest single send() or recv(), in bytes.
    #[arg(long, default_value_t = 4 << 20)]
    max: usize,
    /// Make this the root folder first.
    #[arg(long, value_name = "FOLDER")]
    chroot: Option<PathBuf>,
    /// Bind the sockets to this interface, or VRF.
    #[arg(long, value_name = "INTERFACE")]
    device: Option<String>,
    /// End no connection before the standard input ends.
    #[arg(long)]
    hold: bool,
    /// Only who connects sends, and both use whole pages, of the longest call.
    #[arg(long)]
    one_way: bool,
    /// Milliseconds between two sends one way.
    #[arg(long, requires = "one_way", default_value_t = 0)]
    pause: u64,
    /// As of `idle`.
    #[arg(long, value_name = "SECONDS", num_args = 0..=3, value_delimiter = ',')]
    keepalive: Option<Vec<i32>>,
    /// Move what has 16 KiB or more by this way (SDP_ZCOPY_MODE).
    #[arg(long, value_name = "NUMBER")]
    mode: Option<i32>,
}

/// From how many bytes on a way that is asked for is taken.
const LONG: i32 = 16384;

/// Streams; returns whether every byte was right.
pub(crate) fn run(args: &StreamArgs) -> io::Result<bool> {
    sys::raise_file_limit()?;
    if let Some(root) = &args.chroot {
        std::os::unix::fs::chroot(root)?;
    }
    let conns = match (args.listen, args.connect) {
        (Some(addr), _) => accept_all(args, addr)?,
        (None, Some(addr)) => connect_all(args, addr)?,
        (None, None) => return Err(io::Error::other("--listen or --connect")),
    };
    let start = Instant::now();
    let mut threads = Vec::new();
    let mut held = Vec::new();
    for (number, sock) in conns {
        let (exchange, ends) = (args.exchange(number), !args.hold);
        let pause = Duration::from_millis(args.pause);
        held.extend(args.hold.then(|| Arc::clone(&sock)));
        let carry: Box<dyn FnOnce() -> io::Result<Received> + Send> = match args.one_way {
            true if args.listen.is_some() => Box::new(move || take(exchange, &sock, ends)),
            true => Box::new(move || give(exchange, &sock, pause, ends)),
            false => Box::new(move || exchange.carry(&sock, ends)),
        };
        threads.push((number, flow::spawn(carry)?));
    }
    let (mut bytes, mut wrong, mut good) = (0, 0, true);
    for (number, thread) in threads {
        let got = thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("panic")));
        let complaint = match &got {
            Ok(got) => args.exchange(number).lacks(got, !args.hold),
            Err(e) => Some(e.to_string()),
        };
        if let Some(text) = complaint {
            println!("connection {number}: {text}");
            good = false;
        }
        let got = got.unwrap_or_else(|_| Received::default());
        bytes += got.bytes;
        wrong += got.verdict.wrong;
    }
    let secs = start.elapsed().as_secs_f64();
    let ways = if args.one_way { "one" } else { "each" };
    println!(
        "{} connections, {} bytes {ways} way on each: {:.2} MB/s {ways} way, {secs:.2} s",
        args.conns,
        args.bytes,
        bytes as f64 / secs / 1e6
    );
    println!("byte-check: {bytes} bytes, {wrong} wrong");
    if args.hold {
        io::stdout().flush()?;
        io::stdin().lock().read_line(&mut String::new())?;
    }
    Ok(good)
}

/// What a buffer of whole pages holds while no bytes of the stream are in it.
const UNTOUCHED: u8 = 0xee;

/// Receives what the other side sends, and its end if there is one, in calls of whole pages.
fn take(exchange: Exchange, sock: &Sock, ends: bool) -> io::Result<Received> {
    let pages = Pages::new(exchange.max, false)?;
    let pattern = Pattern::new(exchange.recv_seed);
    let mut got = Received::default();
    while ends || got.bytes < exchange.bytes {
        pages.write(0, &vec![UNTOUCHED; pages.len()]);
        // SAFETY: No reference to the pages exists.
        match unsafe { sock.recv_raw(pages.at(0), pages.len(), 0) } {
            Ok(0) => {
                got.eof = true;
                break;
            }
            Ok(n) => {
                got.verdict.add(pattern.check(got.bytes, &pages.read(0, n)));
                got.bytes += n as u64;
            }
            Err(e) => {
                got.errno = e.raw_os_error().unwrap_or(libc::EIO);
                break;
            }
        }
    }
    Ok(got)
}

/// Sends whole pages with a pause between two calls, and overwrites them when each has returned. Then waits until
/// the other side, which sends nothing, has ended the connection, if it does.
fn give(exchange: Exchange, sock: &Sock, pause: Duration, ends: bool) -> io::Result<Received> {
    let pages = Pages::new(exchange.max, false)?;
    let mut sent = 0;
    while sent < exchange.bytes {
        let len = (pages.len() as u64).min(exchange.bytes - sent) as usize;
        pages.write(0, &Span::new(exchange.send_seed, sent, len as u64).to_vec());
        let mut done = 0;
        while done < len {
            done += sock
                .send_raw(pages.at(done), len - done, libc::MSG_NOSIGNAL)
                .map_err(|e| flow::with_text(&e, &format!("after {sent} bytes sent")))?;
        }
        pages.write(0, &vec![UNTOUCHED; len]);
        sent += len as u64;
        std::thread::sleep(pause);
    }
    if !ends {
        return Ok(Received {
            bytes: sent,
            ..Received::default()
        });
    }
    sock.shutdown(libc::SHUT_WR)?;
    let end = flow::recv_span(sock, Span::new(0, 0, 1), 1);
    match end.errno {
        0 if end.eof => Ok(Received { bytes: sent, ..end }),
        0 => Err(io::Error::other("the other side has sent something")),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

impl StreamArgs {
    /// Prepares a socket of a connection.
    fn prepare(&self, sock: Sock) -> io::Result<Sock> {
        if let Some(mode) = self.mode {
            sock.set_int(SOL_SDP, SDP_ZCOPY_THRESH, LONG)?;
            sock.set_int(SOL_SDP, SDP_ZCOPY_MODE, mode)?;
        }
        idle::keep_alive(self.keepalive.as_deref(), &sock)?;
        Ok(sock)
    }

    fn socket(&self, ip: IpAddr) -> io::Result<Sock> {
        let sock = self.family.socket(ip)?;
        if let Some(device) = &self.device {
            sock.set_bytes(libc::SOL_SOCKET, libc::SO_BINDTODEVICE, device.as_bytes())?;
        }
        Ok(sock)
    }

    /// The traffic of a connection, as this side sees it.
    fn exchange(&self, number: u64) -> Exchange {
        let connector = Exchange {
            send_seed: self.seed.wrapping_add(2 * number),
            recv_seed: self.seed.wrapping_add(2 * number + 1),
            bytes: self.bytes,
            // All buffers together stay small, however many the connections.
            max: self.max.min((32 << 20) / self.conns.max(1) as usize).max(1),
        };
        match self.listen {
            Some(_) => connector.mirrored(),
            None => connector,
        }
    }
}

type Numbered = (u64, Arc<Sock>);

fn accept_all(args: &StreamArgs, addr: SocketAddr) -> io::Result<Vec<Numbered>> {
    let listener = args.socket(addr.ip())?;
    listener.set_int(libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    listener.bind(&SockAddr::from(addr))?;
    listener.listen(args.conns.min(4096) as i32)?;
    let mut conns = Vec::new();
    for _ in 0..args.conns {
        let (sock, _) = listener.accept()?;
        let sock = args.prepare(sock)?;
        let mut header = [0; HEADER_LEN];
        sock.recv_exact(&mut header)?;
        conns.push((u64::from_le_bytes(header), Arc::new(sock)));
    }
    Ok(conns)
}

fn connect_all(args: &StreamArgs, addr: SocketAddr) -> io::Result<Vec<Numbered>> {
    let mut conns = Vec::new();
    for number in 0..args.conns {
        let sock = args.prepare(patiently(|| args.socket(addr.ip()), addr)?)?;
        sock.send_all(&number.to_le_bytes())?;
        conns.push((number, Arc::new(sock)));
    }
    Ok(conns)
}

/// Connects, waiting for the listener to appear.
pub(crate) fn connect_patiently(family: Family, addr: SocketAddr) -> io::Result<Sock> {
    patiently(|| family.socket(addr.ip()), addr)
}

/// Connects a socket of `open`, again for a while if nobody listens yet.
pub(crate) fn patiently(open: impl Fn() -> io::Result<Sock>, addr: SocketAddr) -> io::Result<Sock> {
    let mut tries = 0;
    loop {
        let sock = open()?;
        match sock.connect(&addr.into()) {
            Ok(()) => return Ok(sock),
            Err(e) if e.raw_os_error() == Some(libc::ECONNREFUSED) && tries < RETRIES => {
                tries += 1;
                std::thread::sleep(Duration::from_millis(100));
            }
            Err(e) => return Err(e),
        }
    }
}
