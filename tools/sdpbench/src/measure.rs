// SPDX-License-Identifier: GPL-2.0
//! The client's measurements.

use crate::serve::{job, Request};
use crate::sock::{self, Mode, Peer};
use std::alloc::{self, Layout};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::ops::{Deref, DerefMut};
use std::thread;
use std::time::{Duration, Instant};

fn open(peer: Peer, request: Request) -> io::Result<TcpStream> {
    let mut stream = sock::connect(peer)?;
    stream.write_all(&request.encode())?;
    Ok(stream)
}

/// A length as it goes over the wire.
fn wire(size: usize) -> io::Result<u32> {
    u32::try_from(size).map_err(|_| io::Error::other("the size is too big"))
}

/// What a sender does.
pub(crate) struct Load {
    /// Bytes of each send().
    pub(crate) size: usize,
    pub(crate) seconds: f64,
    /// Time between sends in which the program computes.
    pub(crate) compute: Duration,
    /// The buffer is overwritten after so many sends; 0 for never.
    pub(crate) overwrite: u32,
    /// Microseconds of computation between the peer's receives.
    pub(crate) peer_compute: u32,
    /// The way that the peer receives.
    pub(crate) peer_mode: Option<Mode>,
}

/// A buffer that begins with a page, as one of a program that moves large
/// blocks does.
pub(crate) struct Buffer {
    bytes: *mut u8,
    layout: Layout,
}

impl Buffer {
    pub(crate) fn new(size: usize) -> Self {
        let Ok(layout) = Layout::from_size_align(size.max(1), 4096) else {
            panic!("the size is too big");
        };
        // SAFETY: The layout is not empty.
        let bytes = unsafe { alloc::alloc_zeroed(layout) };
        if bytes.is_null() {
            alloc::handle_alloc_error(layout);
        }
        let mut buffer = Self { bytes, layout };
        // As a program would, that has something to send.
        buffer.fill(b'x');
        buffer
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: The memory is ours, and initialised.
        unsafe { std::slice::from_raw_parts(self.bytes, self.layout.size()) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: As above.
        unsafe { std::slice::from_raw_parts_mut(self.bytes, self.layout.size()) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: Allocated with this layout.
        unsafe { alloc::dealloc(self.bytes, self.layout) };
    }
}

/// Keeps the processor busy.
pub(crate) fn compute(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// MB/s (10^6 bytes): bytes that the receiver counted, from the first send to its answer.
pub(crate) fn bandwidth(peer: Peer, load: &Load) -> io::Result<()> {
    let request = Request {
        job: job::SINK,
        size: wire(load.size)?,
        compute_us: load.peer_compute,
        mode: load.peer_mode,
    };
    let mut stream = open(peer, request)?;
    let mut buffer = Buffer::new(load.size);
    let start = Instant::now();
    let mut sends = 0u32;
    while start.elapsed().as_secs_f64() < load.seconds {
        stream.write_all(&buffer)?;
        sends = sends.wrapping_add(1);
        compute(load.compute);
        if load.overwrite > 0 && sends % load.overwrite == 0 {
            buffer.fill(sends as u8);
        }
    }
    stream.shutdown(Shutdown::Write)?;
    let mut answer = [0; 8];
    stream.read_exact(&mut answer)?;
    let rate = u64::from_le_bytes(answer) as f64 / start.elapsed().as_secs_f64() / 1e6;
    println!("bw {rate:.3} MB/s");
    Ok(())
}

/// Microseconds one way: half of the mean time of a round.
pub(crate) fn latency(peer: Peer, size: usize, seconds: f64) -> io::Result<()> {
    let mut stream = open(peer, Request::new(job::ECHO, wire(size)?))?;
    let mut buffer = Buffer::new(size);
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
pub(crate) fn connects(peer: Peer, count: u32) -> io::Result<()> {
    let (mut connecting, mut whole) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..count {
        let start = Instant::now();
        let mut stream = sock::connect(peer)?;
        connecting += start.elapsed();
        stream.write_all(&Request::new(job::HOLD, 0).encode())?;
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
pub(crate) fn idle(peer: Peer, count: usize) -> io::Result<()> {
    let mut held = Vec::with_capacity(count);
    for _ in 0..count {
        let mut stream = open(peer, Request::new(job::KEEP, 0))?;
        stream.read_exact(&mut [0])?;
        held.push(stream);
    }
    println!("ready {count} connections");
    loop {
        thread::park();
    }
}
