// SPDX-License-Identifier: GPL-2.0

//! `sdpctl bench`: a quick measurement against a peer that runs `sdpctl bench --listen`.
//!
//! The client sends a header ([`wire`]) and then messages. In a throughput measurement the peer
//! returns one byte at the end. Each figure is the mean of one measurement; `make bench` measures
//! more carefully.

mod serve;
mod wire;

use std::fmt::Write as _;
use std::io::{
    self,
    Read,
    Write, //
};
use std::net::{
    IpAddr,
    Ipv6Addr,
    SocketAddr,
    TcpStream,
    ToSocketAddrs, //
};
use std::process::ExitCode;
use std::time::{
    Duration,
    Instant, //
};

use serde::Serialize;

use self::wire::{
    What,
    Wish, //
};

use crate::cli::{
    BenchArgs,
    Cli, //
};
use crate::fail::Fail;
use crate::out;
use crate::sdp;
use crate::units;
use uapi::nl;
use uapi::socket::AF_INET_SDP;

/// Default port of the other side.
pub(crate) const PORT: u16 = 27027;
/// Time-out for a peer's header and for progress.
const PATIENCE: Duration = Duration::from_secs(60);
const CONNECT_SECONDS: f64 = 10.0;
const PAGE_BYTES: usize = 4096;

/// A figure for one mode and one size.
#[derive(Clone, Debug, Serialize)]
struct Figure {
    mode: &'static str,
    message_bytes: u64,
    /// Half of the round-trip time.
    latency_us: f64,
    round_trips: u32,
    /// In units of 10^6 bytes.
    throughput_mb_s: f64,
    messages: u32,
}

#[derive(Serialize)]
struct Report {
    format: u32,
    peer: String,
    figures: Vec<Figure>,
}

pub(crate) fn run(cli: &Cli, args: &BenchArgs) -> Result<ExitCode, Fail> {
    match (args.listen, &args.peer) {
        (true, at) => serve::serve(args, at.as_deref()),
        (false, Some(peer)) => measure_all(cli, args, peer),
        (false, None) => Err(Fail::Usage(
            "which peer? `sdpctl bench HOST`, where `sdpctl bench --listen` runs".into(),
        )),
    }
}

/// A failure of a socket.
fn failed(what: impl std::fmt::Display, e: &io::Error) -> Fail {
    // IPv6 alone may be missing.
    let no_sdp = match e.raw_os_error() {
        Some(libc::EAFNOSUPPORT) => sdp::usable(AF_INET_SDP, 0).err(),
        _ => None,
    };
    no_sdp.unwrap_or_else(|| Fail::io(what, e))
}

/// The addresses of a host, with an optional port.
fn resolve(host: &str) -> Result<Vec<SocketAddr>, Fail> {
    let failed = |e: io::Error| Fail::Other(format!("`{host}`: {e}"));
    let host = &sdp::with_numeric_scope(host).map_err(failed)?;
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let is_address = match bare.split_once('%') {
        Some((ip, scope)) => ip.parse::<Ipv6Addr>().is_ok() && scope.parse::<u32>().is_ok(),
        None => bare.parse::<IpAddr>().is_ok(),
    };
    // A name or an address without a port: `fd27::1` has none, `a:1` has one.
    let found = match is_address || !host.contains(':') {
        true => (bare, PORT).to_socket_addrs(),
        false => host.to_socket_addrs(),
    };
    let addrs: Vec<SocketAddr> = found.map_err(failed)?.map(sdp::canonical).collect();
    match addrs.is_empty() {
        true => Err(Fail::Other(format!("`{host}` has no address"))),
        false => Ok(addrs),
    }
}

/// A page-aligned buffer, as sends without a copy need it.
struct Buffer {
    bytes: Vec<u8>,
    from: usize,
    len: usize,
}

impl Buffer {
    fn new(len: usize) -> Self {
        // The vector never grows, so the buffer does not move.
        let bytes = vec![0x5a; len + PAGE_BYTES];
        let from = bytes.as_ptr().align_offset(PAGE_BYTES).min(PAGE_BYTES);
        Self { bytes, from, len }
    }

    fn as_mut(&mut self) -> &mut [u8] {
        let end = self.from + self.len;
        self.bytes.get_mut(self.from..end).unwrap_or_default()
    }
}

fn prepare(socket: &TcpStream) -> io::Result<()> {
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))
}

/// Runs one measurement; returns its duration.
fn measure(socket: &mut TcpStream, wish: Wish, buffer: &mut [u8]) -> io::Result<Duration> {
    socket.write_all(&wish.to_bytes())?;
    let begin = Instant::now();
    for _ in 0..wish.count {
        socket.write_all(buffer)?;
        if wish.what == What::Latency {
            socket.read_exact(buffer)?;
        }
    }
    if wish.what == What::Throughput {
        // The peer sends the byte when it has read everything.
        socket.read_exact(&mut [0])?;
    }
    Ok(begin.elapsed())
}

/// The number of messages that fill the wanted time, given the duration of `count` messages.
fn enough(count: u32, took: Duration, wanted: Duration) -> u32 {
    let each = took.as_secs_f64() / f64::from(count);
    (wanted.as_secs_f64() / each.max(1e-9)).clamp(1.0, 1e7) as u32
}

/// The number of messages of the measurement, and its duration.
fn timed(
    socket: &mut TcpStream,
    mut wish: Wish,
    buffer: &mut [u8],
    wanted: Duration,
) -> io::Result<(u32, Duration)> {
    const FIRST: u32 = 4;
    wish.count = FIRST;
    // Warm up, then estimate the speed.
    measure(socket, wish, buffer)?;
    let took = measure(socket, wish, buffer)?;
    wish.count = enough(FIRST, took, wanted);
    let took = measure(socket, wish, buffer)?;
    Ok((wish.count, took))
}

fn figure(socket: &mut TcpStream, mode: u8, bytes: u32, wanted: Duration) -> io::Result<Figure> {
    sdp::choose_mode(socket, mode)?;
    let mut buffer = Buffer::new(bytes as usize);
    let mut wish = Wish {
        what: What::Latency,
        mode,
        bytes,
        count: 1,
    };
    let (round_trips, took) = timed(socket, wish, buffer.as_mut(), wanted)?;
    let latency_us = took.as_secs_f64() * 1e6 / f64::from(round_trips) / 2.0;
    wish.what = What::Throughput;
    let (messages, took) = timed(socket, wish, buffer.as_mut(), wanted)?;
    let sent = f64::from(messages) * f64::from(bytes);
    Ok(Figure {
        mode: nl::MODES
            .get(usize::from(mode))
            .copied()
            .unwrap_or("unknown"),
        message_bytes: bytes.into(),
        latency_us,
        round_trips,
        throughput_mb_s: sent / took.as_secs_f64() / 1e6,
        messages,
    })
}

/// The numbers of the requested modes.
fn modes(names: &[String]) -> Result<Vec<u8>, Fail> {
    let number = |name: &String| {
        let place = nl::MODES.iter().position(|mode| mode == name);
        place
            .and_then(|n| u8::try_from(n).ok())
            .ok_or_else(|| Fail::Usage(format!("`{name}` is none of {}", nl::MODES.join(", "))))
    };
    match names.is_empty() {
        true => Ok((0..nl::MODES.len() as u8).collect()),
        false => names.iter().map(number).collect(),
    }
}

/// The first success, or otherwise the last failure.
fn first_or_last<T>(tried: impl Iterator<Item = io::Result<T>>) -> Option<io::Result<T>> {
    let mut last = None;
    for result in tried {
        let is_ok = result.is_ok();
        last = Some(result);
        if is_ok {
            break;
        }
    }
    last
}

fn measure_all(cli: &Cli, args: &BenchArgs, peer: &str) -> Result<ExitCode, Fail> {
    let modes = modes(&args.modes)?;
    let addrs = resolve(peer)?;
    let connect = |addr: &SocketAddr| sdp::connect(addr, CONNECT_SECONDS).map(|s| (*addr, s));
    let (addr, socket) = first_or_last(addrs.iter().map(connect))
        .ok_or_else(|| Fail::Other(format!("`{peer}` has no address")))?
        .map_err(|e| {
            failed(
                format_args!("{peer}, where `sdpctl bench --listen` should run"),
                &e,
            )
        })?;
    let mut socket = TcpStream::from(socket);
    let broken = |e: &io::Error| Fail::io(addr, e);
    prepare(&socket).map_err(|e| broken(&e))?;
    let wanted = Duration::from_secs_f64(args.seconds);
    let mut figures = Vec::new();
    if !cli.json {
        let line = format!(
            "{:<6}  {:>7}  {:>12}  {:>15}",
            "Mode", "Message", "Latency (us)", "Through. (MB/s)"
        );
        out::line(out::paint(
            &line,
            out::Color::Bold,
            out::is_coloured(cli.color),
        ))?;
    }
    for &mode in &modes {
        for &bytes in &args.sizes {
            let bytes = u32::try_from(bytes).map_err(|e| Fail::Other(e.to_string()))?;
            let figure = figure(&mut socket, mode, bytes, wanted).map_err(|e| broken(&e))?;
            if !cli.json {
                out::line(shown(&figure))?;
            }
            figures.push(figure);
        }
    }
    if cli.json {
        out::json(&Report {
            format: out::FORMAT,
            peer: addr.to_string(),
            figures,
        })?;
    }
    Ok(ExitCode::SUCCESS)
}

fn shown(figure: &Figure) -> String {
    let mut line = format!(
        "{:<6}  {:>7}",
        figure.mode,
        units::bytes(figure.message_bytes)
    );
    // Writing to a string cannot fail.
    let _ = write!(
        line,
        "  {:>12.1}  {:>15.1}",
        figure.latency_us, figure.throughput_mb_s
    );
    line
}

#[cfg(test)]
mod tests {
    use super::wire::HEADER_BYTES;
    use super::*;
    use std::thread;

    fn wish() -> Wish {
        Wish {
            what: What::Throughput,
            mode: 3,
            bytes: 65536,
            count: 7,
        }
    }

    #[test]
    fn measures_what_a_peer_really_does() {
        // Over TCP: the protocol works on any stream.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let mut got = Vec::new();
            for _ in 0..2 {
                let mut header = [0; HEADER_BYTES];
                socket.read_exact(&mut header).unwrap();
                let wish = Wish::from_bytes(&header).unwrap();
                let mut buffer = Buffer::new(wish.bytes as usize);
                for _ in 0..wish.count {
                    socket.read_exact(buffer.as_mut()).unwrap();
                    if wish.what == What::Latency {
                        socket.write_all(buffer.as_mut()).unwrap();
                    }
                }
                if wish.what == What::Throughput {
                    thread::sleep(Duration::from_millis(50));
                    socket.write_all(&[1]).unwrap();
                }
                got.push(wish);
            }
            got
        });
        let mut socket = TcpStream::connect(addr).unwrap();
        let mut buffer = Buffer::new(65536);
        let to_and_fro = Wish {
            what: What::Latency,
            ..wish()
        };
        measure(&mut socket, to_and_fro, buffer.as_mut()).unwrap();
        // The measurement ends when the peer has everything.
        let took = measure(&mut socket, wish(), buffer.as_mut()).unwrap();
        assert!(took >= Duration::from_millis(50));
        assert_eq!(server.join().unwrap(), [to_and_fro, wish()]);
    }

    #[test]
    fn buffers_are_whole_pages() {
        for len in [1, 4096, 65536] {
            let mut buffer = Buffer::new(len);
            assert_eq!(buffer.as_mut().len(), len);
            assert_eq!(buffer.as_mut().as_ptr().align_offset(PAGE_BYTES), 0);
        }
    }

    #[test]
    fn the_time_is_filled() {
        let s = Duration::from_secs;
        assert_eq!(enough(4, s(4), s(10)), 10);
        assert_eq!(enough(4, s(400), s(1)), 1);
        assert_eq!(enough(4, Duration::ZERO, s(1)), 10_000_000);
    }

    #[test]
    fn no_address_is_tried_twice() {
        let of = |results: &[Result<i32, i32>]| {
            let mut tried = 0;
            let each = results.iter().map(|result| {
                tried += 1;
                result.map_err(io::Error::from_raw_os_error)
            });
            let got = first_or_last(each).map(|got| got.map_err(|e| e.raw_os_error()));
            (got, tried)
        };
        assert_eq!(of(&[]), (None, 0));
        assert_eq!(of(&[Err(1), Err(2)]), (Some(Err(Some(2))), 2));
        assert_eq!(of(&[Err(1), Ok(2), Ok(3)]), (Some(Ok(2)), 2));
    }

    #[test]
    fn hosts_need_no_port() {
        for (host, addr) in [
            ("10.0.0.1", "10.0.0.1:27027"),
            ("10.0.0.1:5", "10.0.0.1:5"),
            ("fd27::1", "[fd27::1]:27027"),
            ("[fd27::1]", "[fd27::1]:27027"),
            ("[fd27::1]:5", "[fd27::1]:5"),
            ("fe80::1%lo", "[fe80::1%1]:27027"),
            ("[fe80::1%lo]", "[fe80::1%1]:27027"),
            ("[fe80::1%lo]:5", "[fe80::1%1]:5"),
            ("fe80::1%1", "[fe80::1%1]:27027"),
        ] {
            assert_eq!(resolve(host).unwrap()[0].to_string(), addr, "{host}");
        }
        for bad in ["10.0.0.1:", "10.0.0.1:65536", ":1:2x", "fe80::1%no-such"] {
            assert!(resolve(bad).is_err(), "{bad}");
        }
    }
}
