// SPDX-License-Identifier: GPL-2.0
//! The server: a thread for each connection does what its first bytes ask for.

use crate::crowd::Group;
use crate::lend::Lender;
use crate::measure::{compute, Buffer};
use crate::sock::{self, Mode, Peer};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// What a connection is for.
pub(crate) mod job {
    /// Read until the peer half-closes, then answer with the number of bytes.
    pub(crate) const SINK: u8 = b'S';
    /// The same, with one thread for all connections of the group.
    pub(crate) const GATHER: u8 = b'G';
    /// Send back each message of the given length.
    pub(crate) const ECHO: u8 = b'E';
    /// Answer with one byte, then wait for the end.
    pub(crate) const HOLD: u8 = b'H';
    /// Answer with one byte, then keep the connection, without a thread for it:
    /// what a connection costs shall be told from what a thread costs.
    pub(crate) const KEEP: u8 = b'K';
    /// Answer with one byte, then send back what comes, with one thread for all such connections.
    pub(crate) const MANY: u8 = b'M';
}

/// The first bytes of a connection.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    pub(crate) job: u8,
    /// Bytes of a message.
    pub(crate) size: u32,
    /// Microseconds of computation between receives.
    pub(crate) compute_us: u32,
    /// The way that the server sends and receives.
    pub(crate) mode: Option<Mode>,
    /// The server sends messages with MSG_ZEROCOPY.
    pub(crate) zerocopy: bool,
    /// With more than one member: each is sent a byte when the last has come.
    pub(crate) group: Group,
}

/// Job, size and computation, little-endian, the number of the mode, 255 for none, the group and its
/// members, and 1 for MSG_ZEROCOPY.
const REQUEST_LEN: usize = 17;
const NO_MODE: u8 = 255;

impl Request {
    pub(crate) const fn new(job: u8, size: u32) -> Self {
        Self {
            job,
            size,
            compute_us: 0,
            mode: None,
            zerocopy: false,
            group: Group { id: 0, members: 1 },
        }
    }

    pub(crate) fn encode(self) -> [u8; REQUEST_LEN] {
        let mut raw = [0; REQUEST_LEN];
        raw[0] = self.job;
        raw[1..5].copy_from_slice(&self.size.to_le_bytes());
        raw[5..9].copy_from_slice(&self.compute_us.to_le_bytes());
        raw[9] = self.mode.map_or(NO_MODE, |mode| mode as u8);
        raw[10..14].copy_from_slice(&self.group.id.to_le_bytes());
        raw[14..16].copy_from_slice(&self.group.members.to_le_bytes());
        raw[16] = self.zerocopy.into();
        raw
    }

    fn decode(raw: [u8; REQUEST_LEN]) -> Self {
        let [job, a, b, c, d, e, f, g, h, mode, i, j, k, l, m, n, zerocopy] = raw;
        Self {
            job,
            size: u32::from_le_bytes([a, b, c, d]),
            compute_us: u32::from_le_bytes([e, f, g, h]),
            mode: Mode::from_number(mode),
            zerocopy: zerocopy != 0,
            group: Group {
                id: u32::from_le_bytes([i, j, k, l]),
                members: u16::from_le_bytes([m, n]),
            },
        }
    }
}

/// Receives in a certain way go to these by turns: a program that computes while one is on its way
/// has another.
const BUFFERS: usize = 4;
const STACK_BYTES: usize = 64 << 10;

/// Serves for ever.
pub(crate) fn serve(peer: Peer) -> io::Result<()> {
    let listener = sock::listen(peer)?;
    println!("serving");
    let mut kept = Vec::new();
    let mut groups = Groups::new();
    let mut echo = None;
    loop {
        let mut stream = sock::accept(&listener, peer)?;
        let mut raw = [0; REQUEST_LEN];
        stream.read_exact(&mut raw)?;
        let request = Request::decode(raw);
        if request.job == job::KEEP {
            stream.write_all(b"!")?;
            kept.push(stream);
            continue;
        }
        if request.job == job::MANY {
            stream.write_all(b"!")?;
            let echo: &Arc<Echo> = match &mut echo {
                Some(echo) => echo,
                none => none.insert(Echo::start()?),
            };
            echo.add(stream)?;
            continue;
        }
        if request.group.members <= 1 {
            in_thread(move || answer(stream, request))?;
            continue;
        }
        let group = groups.entry(request.group.id).or_default();
        group.push((stream, request));
        if group.len() == usize::from(request.group.members) {
            begin(groups.remove(&request.group.id).unwrap_or_default())?;
        }
    }
}

/// Connections on which one thread sends back what comes.
struct Echo {
    epoll: Epoll,
    /// By the number that events have.
    streams: Mutex<HashMap<u64, Arc<TcpStream>>>,
}

impl Echo {
    fn start() -> io::Result<Arc<Self>> {
        let echo = Arc::new(Self {
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            streams: Mutex::default(),
        });
        let serving = Arc::clone(&echo);
        in_thread(move || serving.serve())?;
        Ok(echo)
    }

    fn streams(&self) -> MutexGuard<'_, HashMap<u64, Arc<TcpStream>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, stream: TcpStream) -> io::Result<()> {
        // Open descriptors have different numbers.
        let number = stream.as_raw_fd().unsigned_abs().into();
        let stream = Arc::new(stream);
        self.streams().insert(number, Arc::clone(&stream));
        let event = EpollEvent::new(EpollFlags::EPOLLIN, number);
        Ok(self.epoll.add(&*stream, event)?)
    }

    fn serve(&self) -> io::Result<()> {
        let mut events = [EpollEvent::empty(); 64];
        let mut buffer = vec![0; 64 << 10];
        loop {
            let count = self.epoll.wait(&mut events, EpollTimeout::NONE)?;
            for number in events[..count].iter().map(EpollEvent::data) {
                let Some(stream) = self.streams().get(&number).cloned() else {
                    continue;
                };
                let mut stream = &*stream;
                let alive = match stream.read(&mut buffer) {
                    Ok(0) | Err(_) => false,
                    Ok(n) => stream.write_all(&buffer[..n]).is_ok(),
                };
                if !alive {
                    self.streams().remove(&number);
                }
            }
        }
    }
}

/// Connections whose groups are not complete.
type Groups = HashMap<u32, Vec<(TcpStream, Request)>>;

/// Serves the connections of a group.
fn begin(group: Vec<(TcpStream, Request)>) -> io::Result<()> {
    for (stream, _) in &group {
        let mut stream: &TcpStream = stream;
        stream.write_all(b"!")?;
    }
    if group.iter().all(|(_, request)| request.job == job::GATHER) {
        return in_thread(move || gather(group));
    }
    for (stream, request) in group {
        in_thread(move || answer(stream, request))?;
    }
    Ok(())
}

fn in_thread(work: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<()> {
    let work = move || {
        if let Err(e) = work() {
            eprintln!("sdpbench: {e}");
        }
    };
    thread::Builder::new().stack_size(STACK_BYTES).spawn(work)?;
    Ok(())
}

/// Reads from whoever has sent something; tells each at its end how much that was.
fn gather(group: Vec<(TcpStream, Request)>) -> io::Result<()> {
    let size = group.iter().map(|(_, r)| r.size as usize).max();
    let mut buffer = Buffer::new(size.unwrap_or(0).max(64 << 10));
    let mut streams = Vec::with_capacity(group.len());
    for (stream, request) in group {
        if let Some(mode) = request.mode {
            sock::set_mode(&stream, mode)?;
        }
        streams.push(stream);
    }
    let mut totals = vec![0u64; streams.len()];
    while !streams.is_empty() {
        let ready = sock::wait_readable(&streams)?;
        for at in (0..streams.len()).rev().filter(|at| ready[*at]) {
            match streams[at].read(&mut buffer)? {
                0 => {
                    let total = totals.swap_remove(at);
                    streams.swap_remove(at).write_all(&total.to_le_bytes())?;
                }
                n => totals[at] += n as u64,
            }
        }
    }
    Ok(())
}

fn answer(mut stream: TcpStream, request: Request) -> io::Result<()> {
    let size = request.size as usize;
    if let Some(mode) = request.mode {
        sock::set_mode(&stream, mode)?;
    }
    match request.job {
        job::SINK | job::GATHER => {
            let mut buffers = vec![Buffer::new(size.max(64 << 10))];
            if request.mode.is_some() {
                buffers.resize_with(BUFFERS, || Buffer::new(size.max(64 << 10)));
            }
            let mut total = 0u64;
            for turn in (0..buffers.len()).cycle() {
                match stream.read(&mut buffers[turn])? {
                    0 => break,
                    n => total += n as u64,
                }
                compute(Duration::from_micros(request.compute_us.into()));
            }
            stream.write_all(&total.to_le_bytes())
        }
        job::ECHO => {
            if request.zerocopy {
                sock::set_zerocopy(&stream)?;
            }
            let mut buffer = Buffer::new(size);
            let mut lender = Lender::new(&stream, request.zerocopy);
            while (&stream).read_exact(&mut buffer).is_ok() {
                lender.send_all(&buffer)?;
                // The next message overwrites the buffer.
                lender.wait_for_all()?;
            }
            Ok(())
        }
        _ => {
            stream.write_all(b"!")?;
            // The end: a byte that is not there, or a reset.
            let _ = stream.read(&mut [0]);
            Ok(())
        }
    }
}
