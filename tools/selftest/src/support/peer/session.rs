// SPDX-License-Identifier: GPL-2.0
//! The sockets of a session and the calls on them.

use super::jobs::{received_words, Work};
use super::wire::{self, Words};
use crate::support::flow::{self, Span};
use crate::support::pattern::Pattern;
use crate::support::sys::Sock;
use crate::support::sys::{self, Linger, SockAddr};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

/// The sockets and background threads of one control connection.
pub(crate) struct Session {
    socks: HashMap<u32, Arc<Sock>>,
    jobs: HashMap<u32, JoinHandle<io::Result<String>>>,
    last: u32,
}

impl Session {
    pub(crate) fn new() -> Session {
        Session {
            socks: HashMap::new(),
            jobs: HashMap::new(),
            last: 0,
        }
    }

    /// Carries out one call; the words of the answer depend on the call.
    pub(crate) fn call(&mut self, line: &str) -> io::Result<String> {
        let mut words = Words::new(line);
        match words.word()? {
            "socket" => {
                let sock = Sock::new(words.get()?, words.get()?, words.get()?)?;
                Ok(self.keep(sock).to_string())
            }
            "start" => {
                let sock = self.sock(&mut words)?;
                let work = Work::from_words(&mut words)?;
                self.last += 1;
                let thread = flow::spawn(move || work.run(&sock))?;
                self.jobs.insert(self.last, thread);
                Ok(self.last.to_string())
            }
            "join" => {
                let job = self.jobs.remove(&words.get()?);
                let job = job.ok_or_else(|| io::Error::other("no such job"))?;
                job.join()
                    .unwrap_or_else(|_| Err(io::Error::other("the job panicked")))
            }
            "accept" => {
                let (sock, addr) = self.sock(&mut words)?.accept()?;
                Ok(format!("{} {addr}", self.keep(sock)))
            }
            "close" => {
                let id: u32 = words.get()?;
                let sock = self.socks.remove(&id);
                let sock = sock.ok_or_else(|| io::Error::other("no such socket"))?;
                match Arc::try_unwrap(sock) {
                    Ok(sock) => sock.close().map(|()| String::new()),
                    Err(_) => Err(io::Error::other("a job still uses the socket")),
                }
            }
            "die" => {
                // The kernel closes the descriptors of this process, without a shutdown by the
                // program.
                sys::kill(sys::pid(), libc::SIGKILL)?;
                Err(io::Error::other("still alive"))
            }
            name => {
                let sock = self.sock(&mut words)?;
                call_on(&sock, name, &mut words)
            }
        }
    }

    fn keep(&mut self, sock: Sock) -> u32 {
        self.last += 1;
        self.socks.insert(self.last, Arc::new(sock));
        self.last
    }

    fn sock(&self, words: &mut Words<'_>) -> io::Result<Arc<Sock>> {
        let id: u32 = words.get()?;
        let sock = self.socks.get(&id).map(Arc::clone);
        sock.ok_or_else(|| io::Error::other("no such socket"))
    }
}

/// Carries out a call on one socket that changes nothing else in the session.
fn call_on(sock: &Sock, name: &str, words: &mut Words<'_>) -> io::Result<String> {
    let none = String::new();
    match name {
        "bind" => sock.bind(&addr(words)?).map(|()| none),
        "listen" => sock.listen(words.get()?).map(|()| none),
        "connect" => sock.connect(&addr(words)?).map(|()| none),
        "sockname" => sock.getsockname().map(|a| a.to_string()),
        "peername" => sock.getpeername().map(|a| a.to_string()),
        "shutdown" => sock.shutdown(words.get()?).map(|()| none),
        "set" => sock
            .set_int(words.get()?, words.get()?, words.get()?)
            .map(|()| none),
        "linger" => {
            let linger = Linger {
                on: words.get::<u8>()? != 0,
                secs: words.get()?,
            };
            sock.set_linger(linger).map(|()| none)
        }
        "poll" => sock.poll(words.get()?, words.get()?).map(|e| e.to_string()),
        // One send() call with the bytes of a pattern.
        "send" => {
            let span = span(words)?;
            let mut buf = vec![0; span.len as usize];
            Pattern::new(span.seed).fill(span.offset, &mut buf);
            let n = sock.send(&buf, words.get::<i32>()? | libc::MSG_NOSIGNAL)?;
            Ok(n.to_string())
        }
        // One recv() call; the bytes are returned in hexadecimal.
        "recv" => {
            let mut buf = vec![0; words.get()?];
            let n = sock.recv(&mut buf, words.get()?)?;
            Ok(format!("{n} {}", wire::to_hex(&buf[..n])))
        }
        "send-span" => match flow::send_span(sock, span(words)?, words.get()?) {
            Ok(n) => Ok(n.to_string()),
            Err((_, e)) => Err(e),
        },
        "recv-span" => {
            let got = flow::recv_span(sock, span(words)?, words.get()?);
            Ok(received_words(&got))
        }
        _ => Err(io::Error::other(format!("unknown call: {name}"))),
    }
}

fn addr(words: &mut Words<'_>) -> io::Result<SockAddr> {
    let addr: SocketAddr = words.get()?;
    let family: i32 = words.get()?;
    let addr = SockAddr::from(addr);
    Ok(if family == 0 {
        addr
    } else {
        addr.with_family(family)
    })
}

fn span(words: &mut Words<'_>) -> io::Result<Span> {
    Ok(Span {
        seed: words.get()?,
        offset: words.get()?,
        len: words.get()?,
    })
}
