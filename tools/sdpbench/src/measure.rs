// SPDX-License-Identifier: GPL-2.0
//! The client's measurements.

use crate::serve::{job, REQUEST_LEN};
use crate::sock::{self, Family};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddrV4, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

fn open(family: Family, address: SocketAddrV4, job: u8, size: usize) -> io::Result<TcpStream> {
    let mut stream = sock::connect(family, address)?;
    let [a, b, c, d] = u32::try_from(size)
        .map_err(|_| io::Error::other("the size is too big"))?
        .to_le_bytes();
    let request: [u8; REQUEST_LEN] = [job, a, b, c, d];
    stream.write_all(&request)?;
    Ok(stream)
}

/// MB/s (10^6 bytes): bytes that the receiver counted, from the first send to its answer.
pub(crate) fn bandwidth(
    family: Family,
    address: SocketAddrV4,
    size: usize,
    seconds: f64,
) -> io::Result<()> {
    let mut stream = open(family, address, job::SINK, size)?;
    let buffer = vec![b'x'; size];
    let start = Instant::now();
    while start.elapsed().as_secs_f64() < seconds {
        stream.write_all(&buffer)?;
    }
    stream.shutdown(Shutdown::Write)?;
    let mut answer = [0; 8];
    stream.read_exact(&mut answer)?;
    let rate = u64::from_le_bytes(answer) as f64 / start.elapsed().as_secs_f64() / 1e6;
    println!("bw {rate:.3} MB/s");
    Ok(())
}

/// Microseconds one way: half of the mean time of a round.
pub(crate) fn latency(
    family: Family,
    address: SocketAddrV4,
    size: usize,
    seconds: f64,
) -> io::Result<()> {
    let mut stream = open(family, address, job::ECHO, size)?;
    let mut buffer = vec![b'x'; size];
    // The first round pays for the peer's thread.
    stream.write_all(&buffer)?;
    stream.read_exact(&mut buffer)?;
    let start = Instant::now();
    let mut rounds = 0u32;
    while start.elapsed().as_secs_f64() < seconds {
        stream.write_all(&buffer)?;
        stream.read_exact(&mut buffer)?;
        rounds += 1;
    }
    let one_way = start.elapsed().as_secs_f64() / f64::from(rounds) / 2.0 * 1e6;
    println!("lat {one_way:.3} us");
    Ok(())
}

/// Microseconds of one `connect()`, and of a connection from socket() to the
/// end of close(), with one byte each way; the means over `count`.
pub(crate) fn connects(family: Family, address: SocketAddrV4, count: u32) -> io::Result<()> {
    let (mut connecting, mut whole) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..count {
        let start = Instant::now();
        let mut stream = sock::connect(family, address)?;
        connecting += start.elapsed();
        stream.write_all(&[job::HOLD, 0, 0, 0, 0])?;
        stream.read_exact(&mut [0])?;
        drop(stream);
        whole += start.elapsed();
    }
    let mean = |total: Duration| total.as_secs_f64() / f64::from(count) * 1e6;
    println!("connect {:.3} us", mean(connecting));
    println!("session {:.3} us", mean(whole));
    Ok(())
}

/// Holds `count` connections that have moved one byte each way, until killed.
pub(crate) fn idle(family: Family, address: SocketAddrV4, count: usize) -> io::Result<()> {
    let mut held = Vec::with_capacity(count);
    for _ in 0..count {
        let mut stream = open(family, address, job::KEEP, 0)?;
        stream.read_exact(&mut [0])?;
        held.push(stream);
    }
    println!("ready {count} connections");
    loop {
        thread::park();
    }
}
