// SPDX-License-Identifier: GPL-2.0
//! `selftest stream` sends data both ways on many connections at once and checks every byte. One
//! machine listens, the other connects; both are given the same seed, number of connections, and
//! number of bytes.

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

/// The length of a connection's first bytes, which are its number in little-endian order.
const HEADER_LEN: usize = 8;
/// How often a connect is retried while nobody listens yet.
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
    /// The number of bytes each way on each connection.
    #[arg(long, default_value_t = 10 << 20)]
    bytes: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The longest single send() or recv(), in bytes.
    #[arg(long, default_value_t = 4 << 20)]
    max: usize,
    /// Change the root folder to this one first.
    #[arg(long, value_name = "FOLDER")]
    chroot: Option<PathBuf>,
    /// Bind the sockets to this interface or VRF.
    #[arg(long, value_name = "INTERFACE")]
    device: Option<String>,
    /// Keep all connections open until the standard input has a line or ends.
    #[arg(long)]
    hold: bool,
    /// Send only from the connecting side; both sides use whole pages and the longest calls.
    #[arg(long)]
    one_way: bool,
    /// With --one-way: milliseconds from each send to the next use of its buffer.
    #[arg(long, requires = "one_way", default_value_t = 0)]
    pause: u64,
    /// Probe whether the peer is there, as `idle` does.
    #[arg(long, value_name = "SECONDS", num_args = 0..=3, value_delimiter = ',')]
    keepalive: Option<Vec<i32>>,
    /// The SDP_ZCOPY_MODE for calls of 16 KiB or more.
    #[arg(long, value_name = "NUMBER")]
    mode: Option<i32>,
}

/// The least number of bytes of a call to which `--mode` applies.
const LONG: i32 = 16384;

/// Streams the data; returns whether every byte was right.
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

/// The content of a buffer of whole pages while it holds no bytes of the stream.
const UNTOUCHED: u8 = 0xee;

/// Receives the bytes of the other side in calls of whole pages. If `ends` is set, also receives
/// the end of the stream.
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

/// Sends whole pages, and overwrites them after a pause. The other side sends nothing. If `ends` is
/// set, waits until the other side has ended the connection.
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
        std::thread::sleep(pause);
        pages.write(0, &vec![UNTOUCHED; len]);
        sent += len as u64;
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
    /// Sets the options of the socket of a connection.
    fn prepare(&self, sock: Sock) -> io::Result<Sock> {
        if let Some(mode) = self.mode {
            sock.set_int(SOL_SDP, SDP_ZCOPY_THRESH, LONG)?;
            sock.set_int(SOL_SDP, SDP_ZCOPY_MODE, mode)?;
        }
        keep_alive(self.keepalive.as_deref(), &sock)?;
        Ok(sock)
    }

    fn socket(&self, ip: IpAddr) -> io::Result<Sock> {
        let sock = self.family.socket(ip)?;
        if let Some(device) = &self.device {
            sock.set_bytes(libc::SOL_SOCKET, libc::SO_BINDTODEVICE, device.as_bytes())?;
        }
        Ok(sock)
    }

    /// The traffic of a connection, as seen from this side.
    fn exchange(&self, number: u64) -> Exchange {
        let connector = Exchange {
            send_seed: self.seed.wrapping_add(2 * number),
            recv_seed: self.seed.wrapping_add(2 * number + 1),
            bytes: self.bytes,
            // All buffers together stay small, even if there are many connections.
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

/// Connects a socket, and waits for the listener to appear.
pub(crate) fn connect_patiently(family: Family, addr: SocketAddr) -> io::Result<Sock> {
    patiently(|| family.socket(addr.ip()), addr)
}

/// Connects a socket that `open` returns; retries for a while if nobody listens yet.
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

/// Switches SO_KEEPALIVE on, if there are `values`. These are the values of TCP_KEEPIDLE,
/// TCP_KEEPINTVL, and TCP_KEEPCNT, in this order; an option without a value keeps its default.
pub(crate) fn keep_alive(values: Option<&[i32]>, sock: &Sock) -> io::Result<()> {
    let Some(values) = values else {
        return Ok(());
    };
    sock.set_int(libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
    let options = [libc::TCP_KEEPIDLE, libc::TCP_KEEPINTVL, libc::TCP_KEEPCNT];
    for (option, value) in options.into_iter().zip(values) {
        sock.set_int(libc::IPPROTO_TCP, option, *value)?;
    }
    Ok(())
}
