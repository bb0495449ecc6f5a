// SPDX-License-Identifier: GPL-2.0
//! The work that a session can do in the background, in a thread for each connection.

use super::wire::Words;
use crate::support::flow::{recv_span, send_span, spawn, Exchange, Span};
use crate::support::sys::Sock;
use std::io;
use std::sync::Arc;

/// The work of a background thread on a socket.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    /// Sends back all bytes that it receives, then ends its direction.
    Echo,
    /// Receives and checks bytes until the span or the stream ends.
    Sink(Span),
    /// Sends a span, in calls of at most `max` bytes.
    Source { span: Span, max: usize },
    /// Sends and receives at the same time.
    Exchange(Exchange),
    /// Accepts `count` connections and sends back the bytes of each.
    EchoServer { count: u64 },
    /// Accepts `count` connections and closes each of them at once.
    CloseServer { count: u64 },
    /// Accepts `count` connections and resets each of them at once.
    ResetServer { count: u64 },
}

impl Work {
    /// The words of the call that starts this work.
    pub(crate) fn to_words(self) -> String {
        match self {
            Work::Echo => "echo".to_owned(),
            Work::Sink(s) => format!("sink {} {} {}", s.seed, s.offset, s.len),
            Work::Source { span: s, max } => {
                format!("source {} {} {} {max}", s.seed, s.offset, s.len)
            }
            Work::Exchange(x) => format!(
                "exchange {} {} {} {}",
                x.send_seed, x.recv_seed, x.bytes, x.max
            ),
            Work::EchoServer { count } => format!("echo-server {count}"),
            Work::CloseServer { count } => format!("close-server {count}"),
            Work::ResetServer { count } => format!("reset-server {count}"),
        }
    }

    pub(crate) fn from_words(words: &mut Words<'_>) -> io::Result<Work> {
        Ok(match words.word()? {
            "echo" => Work::Echo,
            "sink" => Work::Sink(span(words)?),
            "source" => Work::Source {
                span: span(words)?,
                max: words.get()?,
            },
            "exchange" => Work::Exchange(Exchange {
                send_seed: words.get()?,
                recv_seed: words.get()?,
                bytes: words.get()?,
                max: words.get()?,
            }),
            "echo-server" => Work::EchoServer {
                count: words.get()?,
            },
            "close-server" => Work::CloseServer {
                count: words.get()?,
            },
            "reset-server" => Work::ResetServer {
                count: words.get()?,
            },
            other => return Err(io::Error::other(format!("unknown work: {other}"))),
        })
    }

    /// Does the work. The words of the answer depend on the work.
    pub(crate) fn run(self, sock: &Arc<Sock>) -> io::Result<String> {
        match self {
            Work::Echo => echo(sock).map(|n| n.to_string()),
            Work::Sink(span) => Ok(received_words(&recv_span(sock, span, 1 << 20))),
            Work::Source { span, max } => send_span(sock, span, max)
                .map(|n| n.to_string())
                .map_err(|(_, e)| e),
            Work::Exchange(exchange) => {
                let got = exchange.run(sock)?;
                match exchange.complaint(&got) {
                    None => Ok(got.bytes.to_string()),
                    Some(text) => Err(io::Error::other(text)),
                }
            }
            Work::EchoServer { count } => {
                let mut threads = Vec::new();
                for _ in 0..count {
                    let (conn, _) = sock.accept()?;
                    // If a client resets its connection, the job does not fail.
                    threads.push(spawn(move || echo(&conn))?);
                }
                let served = threads.into_iter().filter_map(|t| t.join().ok());
                Ok(served.filter(Result::is_ok).count().to_string())
            }
            Work::CloseServer { count } => {
                for _ in 0..count {
                    drop(sock.accept()?);
                }
                Ok(count.to_string())
            }
            Work::ResetServer { count } => {
                for _ in 0..count {
                    sock.accept()?.0.reset()?;
                }
                Ok(count.to_string())
            }
        }
    }
}

fn span(words: &mut Words<'_>) -> io::Result<Span> {
    Ok(Span {
        seed: words.get()?,
        offset: words.get()?,
        len: words.get()?,
    })
}

/// Sends back all bytes until the other side ends; returns the number of bytes.
fn echo(sock: &Sock) -> io::Result<u64> {
    let mut buf = vec![0; 64 << 10];
    let mut total = 0;
    loop {
        match sock.recv(&mut buf, 0)? {
            0 => break,
            n => {
                sock.send_all(&buf[..n])?;
                total += n as u64;
            }
        }
    }
    sock.shutdown(libc::SHUT_WR)?;
    Ok(total)
}

/// The result of a receiver as the words of an answer.
pub(crate) fn received_words(got: &crate::support::flow::Received) -> String {
    format!(
        "{} {} {} {} {}",
        got.bytes,
        got.verdict.wrong,
        got.verdict.first.unwrap_or(0),
        u8::from(got.eof),
        got.errno
    )
}
