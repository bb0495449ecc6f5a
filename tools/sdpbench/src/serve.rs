// SPDX-License-Identifier: GPL-2.0
//! The server: a thread for each connection does what its first bytes ask for.

use crate::measure::{compute, Buffer};
use crate::sock::{self, Mode, Peer};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

/// What a connection is for.
pub(crate) mod job {
    /// Read until the peer half-closes, then answer with the number of bytes.
    pub(crate) const SINK: u8 = b'S';
    /// Send back each message of the given length.
    pub(crate) const ECHO: u8 = b'E';
    /// Answer with one byte, then wait for the end.
    pub(crate) const HOLD: u8 = b'H';
    /// Answer with one byte, then keep the connection, without a thread for it:
    /// what a connection costs shall be told from what a thread costs.
    pub(crate) const KEEP: u8 = b'K';
}

/// The first bytes of a connection.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    pub(crate) job: u8,
    /// Bytes of a message.
    pub(crate) size: u32,
    /// Microseconds of computation between receives.
    pub(crate) compute_us: u32,
    /// The way that the server receives.
    pub(crate) mode: Option<Mode>,
}

/// Job, size and computation, little-endian, and the number of the mode, 255 for none.
const REQUEST_LEN: usize = 10;
const NO_MODE: u8 = 255;

impl Request {
    pub(crate) const fn new(job: u8, size: u32) -> Self {
        Self {
            job,
            size,
            compute_us: 0,
            mode: None,
        }
    }

    pub(crate) fn encode(self) -> [u8; REQUEST_LEN] {
        let mut raw = [0; REQUEST_LEN];
        raw[0] = self.job;
        raw[1..5].copy_from_slice(&self.size.to_le_bytes());
        raw[5..9].copy_from_slice(&self.compute_us.to_le_bytes());
        raw[9] = self.mode.map_or(NO_MODE, |mode| mode as u8);
        raw
    }

    fn decode(raw: [u8; REQUEST_LEN]) -> Self {
        let [job, a, b, c, d, e, f, g, h, mode] = raw;
        Self {
            job,
            size: u32::from_le_bytes([a, b, c, d]),
            compute_us: u32::from_le_bytes([e, f, g, h]),
            mode: Mode::from_number(mode),
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
        thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn(move || {
                if let Err(e) = answer(stream, request) {
                    eprintln!("sdpbench: {e}");
                }
            })?;
    }
}

fn answer(mut stream: TcpStream, request: Request) -> io::Result<()> {
    let size = request.size as usize;
    match request.job {
        job::SINK => {
            let mut buffers = vec![Buffer::new(size.max(64 << 10))];
            if let Some(mode) = request.mode {
                sock::set_mode(&stream, mode)?;
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
            let mut buffer = Buffer::new(size);
            while stream.read_exact(&mut buffer).is_ok() {
                stream.write_all(&buffer)?;
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
