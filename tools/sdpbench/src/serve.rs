// SPDX-License-Identifier: GPL-2.0
//! The server: a thread for each connection does what its first bytes ask for.

use crate::sock::{self, Family};
use std::io::{self, Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::thread;

/// What a connection is for: its first byte.
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

/// The first bytes: the job and, little-endian, the length of a message.
pub(crate) const REQUEST_LEN: usize = 5;
const STACK_BYTES: usize = 64 << 10;

/// Serves for ever.
pub(crate) fn serve(family: Family, address: SocketAddrV4) -> io::Result<()> {
    let listener = sock::listen(family, address)?;
    println!("serving");
    let mut kept = Vec::new();
    loop {
        let mut stream = sock::accept(&listener)?;
        let mut request = [0; REQUEST_LEN];
        stream.read_exact(&mut request)?;
        if request[0] == job::KEEP {
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

fn answer(mut stream: TcpStream, request: [u8; REQUEST_LEN]) -> io::Result<()> {
    let [job, a, b, c, d] = request;
    let size = u32::from_le_bytes([a, b, c, d]) as usize;
    match job {
        job::SINK => {
            let mut buffer = vec![0; size.max(64 << 10)];
            let mut total = 0u64;
            loop {
                match stream.read(&mut buffer)? {
                    0 => break,
                    n => total += n as u64,
                }
            }
            stream.write_all(&total.to_le_bytes())
        }
        job::ECHO => {
            let mut buffer = vec![0; size];
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
