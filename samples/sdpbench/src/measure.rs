// SPDX-License-Identifier: GPL-2.0
//! The client's measurements.

use crate::crowd::Group;
use crate::lend::Lender;
use crate::serve::{job, Request};
use crate::sock::{self, Mode, Peer};
use std::alloc::{self, Layout};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::ops::{Deref, DerefMut};
use std::process;
use std::thread;
use std::time::{Duration, Instant};

fn open(peer: Peer, request: Request) -> io::Result<TcpStream> {
    let mut stream = sock::connect(peer)?;
    stream.write_all(&request.encode())?;
    Ok(stream)
}

/// Waits until all of its group have come.
fn await_group(stream: &mut TcpStream, group: Group) -> io::Result<()> {
    if group.members > 1 {
        stream.read_exact(&mut [0])?;
    }
    Ok(())
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
    /// So many connections.
    pub(crate) streams: u16,
    /// One thread sends to all of them by turns.
    pub(crate) one_sender: bool,
    /// One thread of the peer's receives from the whole group.
    pub(crate) one_receiver: bool,
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

/// MB/s (10^6 bytes): bytes that the receivers counted, from the first send to the last answer.
pub(crate) fn bandwidth(peer: Peer, group: Group, load: &Load) -> io::Result<()> {
    let group = if load.streams > 1 {
        Group {
            id: process::id(),
            members: load.streams,
        }
    } else {
        group
    };
    let request = Request {
        job: if load.one_receiver {
            job::GATHER
        } else {
            job::SINK
        },
        size: wire(load.size)?,
        compute_us: load.peer_compute,
        mode: load.peer_mode,
        zerocopy: false,
        group,
    };
    let mut streams = (0..load.streams)
        .map(|_| open(peer, request))
        .collect::<io::Result<Vec<_>>>()?;
    for stream in &mut streams {
        await_group(stream, group)?;
    }
    let start = Instant::now();
    let total = if load.one_sender {
        send_by_turns(&mut streams, load, peer.zerocopy)?
    } else {
        thread::scope(|scope| {
            let threads: Vec<_> = streams
                .chunks_mut(1)
                .map(|stream| scope.spawn(|| send_by_turns(stream, load, peer.zerocopy)))
                .collect();
            let joined = threads.into_iter().map(|thread| {
                let result = thread.join();
                result.unwrap_or_else(|_| Err(io::Error::other("a sender panicked")))
            });
            joined.sum::<io::Result<u64>>()
        })?
    };
    let rate = total as f64 / start.elapsed().as_secs_f64() / 1e6;
    println!("bw {rate:.3} MB/s");
    Ok(())
}

/// Sends to one after the other while there is time; returns how many bytes have arrived.
fn send_by_turns(streams: &mut [TcpStream], load: &Load, zerocopy: bool) -> io::Result<u64> {
    let mut buffer = Buffer::new(load.size);
    let mut lenders: Vec<_> = streams
        .iter()
        .map(|stream| Lender::new(stream, zerocopy))
        .collect();
    let start = Instant::now();
    let mut sends = 0u32;
    while start.elapsed().as_secs_f64() < load.seconds {
        for lender in &mut lenders {
            lender.send_all(&buffer)?;
            sends = sends.wrapping_add(1);
            compute(load.compute);
            if load.overwrite > 0 && sends % load.overwrite == 0 {
                lender.wait_for_all()?;
                buffer.fill(sends as u8);
            }
        }
    }
    for (stream, mut lender) in streams.iter().zip(lenders) {
        lender.wait_for_all()?;
        stream.shutdown(Shutdown::Write)?;
    }
    let mut total = 0;
    for stream in streams {
        let mut answer = [0; 8];
        stream.read_exact(&mut answer)?;
        total += u64::from_le_bytes(answer);
    }
    Ok(total)
}

/// Microseconds one way: half of the mean time of a round.
pub(crate) fn latency(
    peer: Peer,
    group: Group,
    peer_mode: Option<Mode>,
    size: usize,
    seconds: f64,
) -> io::Result<()> {
    let request = Request {
        mode: peer_mode,
        zerocopy: peer.zerocopy,
        group,
        ..Request::new(job::ECHO, wire(size)?)
    };
    let mut stream = open(peer, request)?;
    await_group(&mut stream, group)?;
    let mut buffer = Buffer::new(size);
    let mut lender = Lender::new(&stream, peer.zerocopy);
    let mut round = || {
        lender.send_all(&buffer)?;
        // The answer overwrites the buffer.
        lender.wait_for_all()?;
        (&stream).read_exact(&mut buffer)
    };
    // The first round pays for the peer's thread.
    round()?;
    let start = Instant::now();
    let mut rounds = 0u32;
    while start.elapsed().as_secs_f64() < seconds {
        round()?;
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

/// Requests that are on their way at a time in [`many`]. The buffers of one socket can hold all of
/// them.
const ASKED: usize = 16;

/// Makes `count` connections, sends `rounds` requests of `size` bytes on each and waits for the
/// answers, which have the same size; then holds the connections, until killed.
pub(crate) fn many(peer: Peer, count: usize, size: u16, rounds: usize) -> io::Result<()> {
    let mut held = Vec::with_capacity(count);
    let start = Instant::now();
    for _ in 0..count {
        let mut stream = open(peer, Request::new(job::MANY, 0))?;
        stream.read_exact(&mut [0])?;
        held.push(stream);
    }
    let per_second = |n: usize, start: Instant| n as f64 / start.elapsed().as_secs_f64();
    println!("connects {:.3} /s", per_second(count, start));
    let request = vec![0; size.into()];
    let mut answer = request.clone();
    let all = count * rounds;
    let start = Instant::now();
    for turn in 0..all + ASKED {
        if turn < all {
            held[turn % count].write_all(&request)?;
        }
        if turn >= ASKED && turn - ASKED < all {
            held[(turn - ASKED) % count].read_exact(&mut answer)?;
        }
    }
    println!("requests {:.3} /s", per_second(all, start));
    println!("ready {count} connections");
    loop {
        thread::park();
    }
}
