// SPDX-License-Identifier: GPL-2.0
//! `selftest stream`: data both ways on many connections at once, every byte
//! checked. One machine listens, the other connects; both are given the same
//! seed, number of connections and number of bytes.

use crate::flow::{self, Exchange, Received};
use crate::harness::Family;
use crate::sys::{self, Sock, SockAddr};
use clap::Args;
use std::io::{self, BufRead, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

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
}

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
        held.extend(args.hold.then(|| Arc::clone(&sock)));
        threads.push((number, flow::spawn(move || exchange.carry(&sock, ends))?));
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
    println!(
        "{} connections, {} bytes each way on each: {:.2} MB/s each way, {secs:.2} s",
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

impl StreamArgs {
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
        let mut header = [0; HEADER_LEN];
        sock.recv_exact(&mut header)?;
        conns.push((u64::from_le_bytes(header), Arc::new(sock)));
    }
    Ok(conns)
}

fn connect_all(args: &StreamArgs, addr: SocketAddr) -> io::Result<Vec<Numbered>> {
    let mut conns = Vec::new();
    for number in 0..args.conns {
        let sock = patiently(|| args.socket(addr.ip()), addr)?;
        sock.send_all(&number.to_le_bytes())?;
        conns.push((number, Arc::new(sock)));
    }
    Ok(conns)
}

/// Connects, waiting for the listener to appear.
pub(crate) fn connect_patiently(family: Family, addr: SocketAddr) -> io::Result<Sock> {
    patiently(|| family.socket(addr.ip()), addr)
}

fn patiently(open: impl Fn() -> io::Result<Sock>, addr: SocketAddr) -> io::Result<Sock> {
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
