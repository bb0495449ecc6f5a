// SPDX-License-Identifier: GPL-2.0
//! The tests' side of a session on the peer.

use super::jobs::Work;
use super::wire::{self, Channel, Words};
use crate::support::flow::{Received, Span};
use crate::support::pattern::Verdict;
use crate::support::sys::{Sock, SockAddr};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

/// A session on the peer. Its calls are carried out one after the other.
#[derive(Clone)]
pub(crate) struct Peer(Arc<Mutex<Channel>>);

/// Connects from a port at which others may listen. Soft-iWARP takes its ports from those of TCP,
/// so a test may be given a port that an earlier session had.
fn connect(control: SocketAddr) -> io::Result<TcpStream> {
    let domain = match control {
        SocketAddr::V4(_) => libc::AF_INET,
        SocketAddr::V6(_) => libc::AF_INET6,
    };
    let sock = Sock::new(domain, libc::SOCK_STREAM, 0)?;
    sock.set_int(libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    sock.connect(&control.into())?;
    Ok(OwnedFd::from(sock).into())
}

impl Peer {
    pub(crate) fn open(control: SocketAddr) -> io::Result<Peer> {
        let stream = connect(control).map_err(|e| {
            io::Error::other(format!("no server (selftest serve) at {control}: {e}"))
        })?;
        Ok(Peer(Arc::new(Mutex::new(Channel::new(stream)?))))
    }

    fn call(&self, line: &str) -> io::Result<String> {
        let mut channel = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        channel.write_line(line)?;
        match channel.read_line()? {
            Some(answer) => wire::result(&answer),
            None => Err(io::Error::other(format!(
                "the peer's session ended at: {line}"
            ))),
        }
    }

    /// socket() on the peer.
    pub(crate) fn socket(&self, domain: i32, ty: i32, protocol: i32) -> io::Result<Remote> {
        let id = self.call(&format!("socket {domain} {ty} {protocol}"))?;
        self.remote(Words::new(&id).get()?)
    }

    /// Kills the session's process with SIGKILL.
    pub(crate) fn die(&self) -> io::Result<()> {
        let mut channel = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        channel.write_line("die")?;
        match channel.read_line() {
            Ok(Some(answer)) => Err(io::Error::other(answer)),
            Ok(None) | Err(_) => Ok(()),
        }
    }

    fn remote(&self, id: u32) -> io::Result<Remote> {
        Ok(Remote {
            peer: self.clone(),
            id,
        })
    }
}

/// A socket on the peer. Dropping the value closes nothing; the end of the session closes the
/// socket.
#[derive(Clone)]
pub(crate) struct Remote {
    peer: Peer,
    id: u32,
}

/// A background thread of the peer.
pub(crate) struct Job {
    peer: Peer,
    id: u32,
}

impl Remote {
    fn call(&self, name: &str, args: &str) -> io::Result<String> {
        self.peer.call(&format!("{name} {} {args}", self.id))
    }

    fn number<T: std::str::FromStr>(&self, name: &str, args: &str) -> io::Result<T> {
        Words::new(&self.call(name, args)?).get()
    }

    fn done(&self, name: &str, args: &str) -> io::Result<()> {
        self.call(name, args).map(drop)
    }

    pub(crate) fn session(&self) -> &Peer {
        &self.peer
    }

    pub(crate) fn bind(&self, addr: &SockAddr) -> io::Result<()> {
        self.done("bind", &format!("{addr} 0"))
    }

    pub(crate) fn listen(&self, backlog: i32) -> io::Result<()> {
        self.done("listen", &backlog.to_string())
    }

    pub(crate) fn connect(&self, addr: &SockAddr) -> io::Result<()> {
        self.done("connect", &format!("{addr} 0"))
    }

    /// accept(); also returns the address of the socket that connected.
    pub(crate) fn accept(&self) -> io::Result<(Remote, SockAddr)> {
        let answer = self.call("accept", "")?;
        let mut words = Words::new(&answer);
        let remote = self.peer.remote(words.get()?)?;
        let addr: SocketAddr = words.get()?;
        Ok((remote, addr.into()))
    }

    pub(crate) fn getsockname(&self) -> io::Result<SockAddr> {
        self.number::<SocketAddr>("sockname", "").map(Into::into)
    }

    pub(crate) fn getpeername(&self) -> io::Result<SockAddr> {
        self.number::<SocketAddr>("peername", "").map(Into::into)
    }

    pub(crate) fn shutdown(&self, how: i32) -> io::Result<()> {
        self.done("shutdown", &how.to_string())
    }

    pub(crate) fn close(self) -> io::Result<()> {
        self.done("close", "")
    }

    /// Closes with a reset.
    pub(crate) fn reset(self) -> io::Result<()> {
        self.set_linger(true, 0)?;
        self.close()
    }

    pub(crate) fn set_linger(&self, on: bool, secs: i32) -> io::Result<()> {
        self.done("linger", &format!("{} {secs}", u8::from(on)))
    }

    pub(crate) fn set_int(&self, level: i32, option: i32, value: i32) -> io::Result<()> {
        self.done("set", &format!("{level} {option} {value}"))
    }

    pub(crate) fn poll(&self, events: i16, timeout_ms: i32) -> io::Result<i16> {
        self.number("poll", &format!("{events} {timeout_ms}"))
    }

    /// One send() call with a span's bytes.
    pub(crate) fn send(&self, span: Span, flags: i32) -> io::Result<usize> {
        self.number("send", &format!("{} {flags}", span_words(span)))
    }

    /// One recv() call; returns the bytes.
    pub(crate) fn recv(&self, len: usize, flags: i32) -> io::Result<Vec<u8>> {
        let answer = self.call("recv", &format!("{len} {flags}"))?;
        let mut words = Words::new(&answer);
        match words.get::<usize>()? {
            0 => Ok(Vec::new()),
            _ => wire::from_hex(words.word()?),
        }
    }

    /// Sends a whole span, in calls of at most `max` bytes.
    pub(crate) fn send_span(&self, span: Span, max: usize) -> io::Result<u64> {
        self.number("send-span", &format!("{} {max}", span_words(span)))
    }

    /// Receives up to a span's length and checks the bytes.
    pub(crate) fn recv_span(&self, span: Span, max: usize) -> io::Result<Received> {
        let answer = self.call("recv-span", &format!("{} {max}", span_words(span)))?;
        received(&answer)
    }

    /// Starts a background thread on this socket.
    pub(crate) fn start(&self, work: Work) -> io::Result<Job> {
        let id = self.number("start", &work.to_words())?;
        Ok(Job {
            peer: self.peer.clone(),
            id,
        })
    }
}

impl Job {
    /// Waits for the end of the job; the answer depends on the work.
    pub(crate) fn join(self) -> io::Result<String> {
        self.peer.call(&format!("join {}", self.id))
    }

    /// Waits for the end of a job that receives.
    pub(crate) fn join_received(self) -> io::Result<Received> {
        received(&self.join()?)
    }
}

fn span_words(span: Span) -> String {
    format!("{} {} {}", span.seed, span.offset, span.len)
}

fn received(answer: &str) -> io::Result<Received> {
    let mut words = Words::new(answer);
    let bytes = words.get()?;
    let wrong = words.get()?;
    let first = words.get()?;
    Ok(Received {
        bytes,
        verdict: Verdict {
            wrong,
            first: (wrong != 0).then_some(first),
        },
        eof: words.get::<u8>()? != 0,
        errno: words.get()?,
    })
}
