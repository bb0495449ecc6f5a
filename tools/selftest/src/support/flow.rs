// SPDX-License-Identifier: GPL-2.0
//! Moves a pattern through a socket under hard conditions: lengths are odd and buffers unaligned,
//! the sender's buffer is overwritten as soon as send() returns, and the receiver's buffer is
//! checked as soon as recv() returns.

use crate::support::pattern::{Pattern, Rng, Verdict};
use crate::support::sys::Sock;
use std::io;
use std::sync::Arc;

/// The byte with which a sender's buffer is overwritten.
const SCRIBBLE: u8 = 0xdb;
/// The content of a receiver's buffer before recv().
const UNTOUCHED: u8 = 0xee;
/// Buffers start at a random offset below this number, so that they have any alignment.
const MISALIGN: usize = 64;

/// A range of a pattern's stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) seed: u64,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl Span {
    pub(crate) fn new(seed: u64, offset: u64, len: u64) -> Span {
        Span { seed, offset, len }
    }

    /// The span's bytes, in memory.
    pub(crate) fn to_vec(self) -> Vec<u8> {
        let mut buf = vec![0; self.len as usize];
        Pattern::new(self.seed).fill(self.offset, &mut buf);
        buf
    }

    /// The rest of the span after its first `len` bytes.
    pub(crate) fn after(self, len: u64) -> Span {
        Span::new(self.seed, self.offset + len, self.len.saturating_sub(len))
    }
}

/// The result of a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) bytes: u64,
    pub(crate) verdict: Verdict,
    /// Whether the stream ended before the span did.
    pub(crate) eof: bool,
    /// The errno that ended the receiver, or 0.
    pub(crate) errno: i32,
}

/// Sends a span with blocking calls of at most `max` bytes each. An error comes with the number of
/// bytes that were sent before it.
pub(crate) fn send_span(sock: &Sock, span: Span, max: usize) -> Result<u64, (u64, io::Error)> {
    let pattern = Pattern::new(span.seed);
    let mut rng = Rng::new(span.seed ^ 0x5e4d);
    let mut room = vec![0; max.min(span.len as usize).max(1) + MISALIGN];
    let mut sent = 0;
    while sent < span.len {
        let len = rng.length(max).min((span.len - sent) as usize);
        let start = rng.below(MISALIGN);
        let buf = &mut room[start..start + len];
        pattern.fill(span.offset + sent, buf);
        let mut done = 0;
        while done < len {
            match sock.send(&buf[done..], libc::MSG_NOSIGNAL) {
                Ok(n) if n <= len - done => done += n,
                Ok(n) => return Err((sent, io::Error::other(format!("send returned {n}")))),
                Err(e) => return Err((sent + done as u64, e)),
            }
        }
        buf.fill(SCRIBBLE);
        sent += len as u64;
    }
    Ok(sent)
}

/// Receives up to a span's length with blocking calls of at most `max` bytes each, and checks every
/// byte, until the span or the stream ends or a call fails.
pub(crate) fn recv_span(sock: &Sock, span: Span, max: usize) -> Received {
    let pattern = Pattern::new(span.seed);
    let mut rng = Rng::new(span.seed ^ 0x4ecf);
    let mut room = vec![0; max.min(span.len as usize).max(1) + MISALIGN];
    let mut got = Received::default();
    while got.bytes < span.len {
        let len = rng.length(max).min((span.len - got.bytes) as usize);
        let start = rng.below(MISALIGN);
        let buf = &mut room[start..start + len];
        buf.fill(UNTOUCHED);
        match sock.recv(buf, 0) {
            Ok(0) => {
                got.eof = true;
                break;
            }
            Ok(n) => {
                got.verdict
                    .add(pattern.check(span.offset + got.bytes, &buf[..n]));
                got.bytes += n as u64;
            }
            Err(e) => {
                got.errno = e.raw_os_error().unwrap_or(libc::EIO);
                break;
            }
        }
    }
    got
}

/// Runs `work` in a thread with a small stack, because a test may need hundreds of threads.
pub(crate) fn spawn<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<std::thread::JoinHandle<T>> {
    std::thread::Builder::new()
        .stack_size(128 << 10)
        .spawn(work)
}

/// The traffic of one connection, in both directions at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange {
    /// The seed of the bytes that this side sends.
    pub(crate) send_seed: u64,
    /// The seed of the bytes that the other side sends.
    pub(crate) recv_seed: u64,
    /// The number of bytes in each direction.
    pub(crate) bytes: u64,
    /// The longest single call, in bytes.
    pub(crate) max: usize,
}

impl Exchange {
    /// The traffic, as seen from the other side.
    pub(crate) fn mirrored(self) -> Exchange {
        Exchange {
            send_seed: self.recv_seed,
            recv_seed: self.send_seed,
            ..self
        }
    }

    /// Sends and receives at the same time, then ends its own direction and expects the end of the
    /// other direction.
    pub(crate) fn run(self, sock: &Arc<Sock>) -> io::Result<Received> {
        self.carry(sock, true)
    }

    /// As [`Exchange::run`], but both directions stay open unless `ends` is set.
    pub(crate) fn carry(self, sock: &Arc<Sock>, ends: bool) -> io::Result<Received> {
        let sender = Arc::clone(sock);
        let sending = spawn(move || -> Result<u64, (u64, io::Error)> {
            let span = Span {
                seed: self.send_seed,
                offset: 0,
                len: self.bytes,
            };
            let sent = send_span(&sender, span, self.max)?;
            if ends {
                sender.shutdown(libc::SHUT_WR).map_err(|e| (sent, e))?;
            }
            Ok(sent)
        })?;
        // The span is one byte longer than agreed, so that the end of file is received, too.
        let span = Span {
            seed: self.recv_seed,
            offset: 0,
            len: self.bytes + u64::from(ends),
        };
        let got = recv_span(sock, span, self.max);
        match sending.join() {
            Ok(Ok(_)) => Ok(got),
            Ok(Err((sent, e))) => Err(with_text(&e, &format!("after {sent} bytes sent"))),
            Err(_) => Err(io::Error::other("the sending thread panicked")),
        }
    }

    /// A complaint in words, if a side did not receive all bytes and the end of file.
    pub(crate) fn complaint(self, got: &Received) -> Option<String> {
        self.lacks(got, true)
    }

    /// As [`Exchange::complaint`], but the end of file must be missing unless `ends` is set.
    pub(crate) fn lacks(self, got: &Received, ends: bool) -> Option<String> {
        let whole = Received {
            bytes: self.bytes,
            verdict: Verdict::default(),
            eof: ends,
            errno: 0,
        };
        (*got != whole).then(|| format!("of {} bytes: {got}", self.bytes))
    }
}

/// The error with `text` behind its own text.
pub(crate) fn with_text(e: &io::Error, text: &str) -> io::Error {
    io::Error::new(e.kind(), format!("{e} {text}"))
}

impl std::fmt::Display for Received {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} received, {} wrong", self.bytes, self.verdict.wrong)?;
        if let Some(first) = self.verdict.first {
            write!(f, " (the first at {first})")?;
        }
        if self.eof {
            write!(f, ", then end of file")?;
        }
        if self.errno != 0 {
            write!(f, ", then {}", io::Error::from_raw_os_error(self.errno))?;
        }
        Ok(())
    }
}
