// SPDX-License-Identifier: GPL-2.0
//! Good and bad arguments in each state. The same calls are made on a socket of the family under
//! test and on a TCP socket of this machine. They must return the same, fail with the same error,
//! and leave the sockets with the same events for poll(). [`known`] lists the known differences and
//! their reasons.

pub(in crate::tests) mod calls;
pub(in crate::tests) mod known;

use crate::support::harness::{
    eventually, expect_eq, expect_errno, failed, readable_bytes, tests, Env, Fail, Family, Outcome,
};
use crate::support::sys::{Area, Sock, SockAddr, PAGE};
use calls::Call;
use libc::{EINPROGRESS, POLLERR, POLLHUP, POLLIN, POLLOUT, POLLRDHUP};
use std::cell::{Cell, RefCell};
use std::fmt::Write;
use std::io;
use std::time::{Duration, Instant};

tests!("astcp";
    new,
    bound,
    listening,
    listening_with_a_connection,
    shut_listener,
    connecting,
    refused,
    connected,
    connected_with_bytes,
    accepted,
    peer_has_ended,
    shut_for_reading,
    shut_for_writing,
    shut,
    ended_by_both,
    reset,
    disconnected,
    new_of_ipv6,
    listening_of_ipv6,
    connected_of_ipv6,
);

/// The time limit for poll() to report the same for both sockets. Effects of a peer's calls take
/// time, and a slow machine needs seconds for them.
const SETTLED: Duration = Duration::from_secs(15);
/// The maximum number of differences that are printed.
const SHOWN: usize = 60;
const EVERY_EVENT: i16 = i16::MAX;

/// A socket in some state.
struct Subject {
    sock: Sock,
    /// A free address of this machine.
    here: SockAddr,
    /// The address of a listener.
    there: SockAddr,
    /// An address where nobody listens.
    nobody: SockAddr,
    /// The peer has ended its half of the stream, so the connection ends when the socket ends its
    /// own half.
    peer_has_ended: bool,
    /// Whether a connect() has begun that did not complete at once.
    connects: Cell<bool>,
    /// A page for values and addresses, and one without access.
    memory: RefCell<Area>,
    /// Sockets that keep the state.
    _kept: Vec<Sock>,
}

impl Subject {
    fn new(env: &Env, sock: Sock, mut kept: Vec<Sock>) -> Result<Subject, Fail> {
        let (listener, there) = env.listener(8)?;
        let free = env.socket()?;
        free.bind(&env.here(0))?;
        let nobody = free.getsockname()?;
        kept.extend([listener, free]);
        sock.set_nonblocking(true)?;
        let memory = Area::new(2)?;
        memory.forbid_from(1)?;
        Ok(Subject {
            sock,
            here: env.here(0),
            there,
            nobody,
            peer_has_ended: false,
            connects: Cell::new(false),
            memory: RefCell::new(memory),
            _kept: kept,
        })
    }

    /// A subject with the first of two ends of a connection.
    fn of_pair(env: &Env, (sock, other): (Sock, Sock)) -> Result<Subject, Fail> {
        Subject::new(env, sock, vec![other])
    }

    /// Waits until a connection has ended whose two halves have ended. The time that the peer or
    /// the adapter needs for this is not compared.
    fn await_end(&self) {
        let began = Instant::now();
        while self.sock.getpeername().is_ok() && began.elapsed() < SETTLED {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Makes a call, and repeats it while an ended connection may make it fail: SDP keeps the port
    /// until the adapter has released the connection.
    fn retry(&self, call: impl Fn() -> io::Result<()>) -> io::Result<()> {
        let began = Instant::now();
        loop {
            let result = call();
            let ended = self.peer_has_ended && self.sock.getpeername().is_err();
            if result.is_ok() || !ended || began.elapsed() > SETTLED {
                return result;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The address of byte `offset` of the page, or of the page without access behind it.
    fn at(&self, offset: usize) -> usize {
        self.memory.borrow().at(offset)
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        let mut memory = self.memory.borrow_mut();
        memory.bytes(PAGE)[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        self.memory.borrow_mut().bytes(PAGE)[offset..offset + len].to_vec()
    }
}

/// The result of a call.
pub(in crate::tests) type Answer = Result<String, i32>;

fn answer(result: io::Result<String>) -> Answer {
    result.map_err(|e| e.raw_os_error().unwrap_or(0))
}

fn text(answer: &Answer) -> String {
    match answer {
        Ok(value) => value.clone(),
        Err(errno) => io::Error::from_raw_os_error(*errno).to_string(),
    }
}

/// Differences that are not known.
struct Found {
    family: Family,
    count: usize,
    text: String,
    /// poll() did not report the same in time, so later calls do not wait for this.
    unsettled: bool,
}

impl Found {
    fn note(&mut self, what: &str, tcp: &str, ours: &str) {
        self.count += 1;
        if self.count <= SHOWN {
            let _ = writeln!(self.text, "{what}: {ours}, TCP: {tcp}");
        }
    }

    fn call(&mut self, call: &Call, tcp: &Subject, ours: &Subject) {
        let told = [tcp, ours].map(|subject| answer((call.act)(subject)));
        let [by_tcp, by_us] = &told;
        if by_tcp != by_us && !known::covers(self.family, &call.name, by_us) {
            self.note(&call.name, &text(by_tcp), &text(by_us));
        }
    }

    fn poll(&mut self, after: &str, tcp: &Subject, ours: &Subject) -> io::Result<()> {
        let began = Instant::now();
        loop {
            let by_tcp = tcp.sock.poll(EVERY_EVENT, 0)?;
            let by_us = ours.sock.poll(EVERY_EVENT, 0)?;
            if by_tcp == by_us {
                return Ok(());
            }
            if self.unsettled || began.elapsed() > SETTLED {
                let what = format!("poll after {after}");
                self.note(&what, &format!("{by_tcp:#x}"), &format!("{by_us:#x}"));
                self.unsettled = true;
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Makes the same calls on two sockets that are in the same state. Each script of calls gets new
/// sockets, because calls may change the state.
fn compare(env: &Env, make: fn(&Env) -> Result<Subject, Fail>) -> Outcome {
    compare_within(env, Duration::MAX, make)
}

/// As [`compare`], for a state that lasts for a limited time: a script that takes longer gets new
/// sockets.
fn compare_within(env: &Env, time: Duration, make: fn(&Env) -> Result<Subject, Fail>) -> Outcome {
    let _allowed = super::connecting::fastopen::allowed(env)?;
    let mut tcp_env = env.clone();
    tcp_env.family = Family::Tcp;
    let mut found = Found {
        family: env.family,
        count: 0,
        text: String::new(),
        unsettled: false,
    };
    for script in calls::scripts() {
        let mut made = Instant::now();
        let (mut tcp, mut ours) = (make(&tcp_env)?, make(env)?);
        found.unsettled = false;
        found.poll("the start", &tcp, &ours)?;
        for call in script {
            if made.elapsed() > time {
                made = Instant::now();
                (tcp, ours) = (make(&tcp_env)?, make(env)?);
            }
            found.call(&call, &tcp, &ours);
            found.poll(&call.name, &tcp, &ours)?;
        }
    }
    if found.count == 0 {
        return Ok(());
    }
    failed(format!("{} differences: {}", found.count, found.text))
}

fn new(env: &Env) -> Outcome {
    compare(env, |env| Subject::new(env, env.socket()?, Vec::new()))
}

fn bound(env: &Env) -> Outcome {
    compare(env, |env| {
        let sock = env.socket()?;
        sock.bind(&env.here(0))?;
        Subject::new(env, sock, Vec::new())
    })
}

fn listening(env: &Env) -> Outcome {
    compare(env, |env| {
        let (sock, _) = env.listener(2)?;
        Subject::new(env, sock, Vec::new())
    })
}

fn listening_with_a_connection(env: &Env) -> Outcome {
    compare(env, |env| {
        let (sock, addr) = env.listener(2)?;
        let client = env.socket()?;
        client.connect(&addr)?;
        sock.poll(POLLIN, -1)?;
        Subject::new(env, sock, vec![client])
    })
}

fn shut_listener(env: &Env) -> Outcome {
    compare(env, |env| {
        let (sock, _) = env.listener(2)?;
        sock.shutdown(libc::SHUT_RD)?;
        Subject::new(env, sock, Vec::new())
    })
}

/// A connection for which the listener has no room. Soft-iWARP gives it up after 10 s.
fn connecting(env: &Env) -> Outcome {
    compare_within(env, Duration::from_secs(5), |env| {
        let (listener, addr) = env.listener(0)?;
        let first = env.socket()?;
        first.connect(&addr)?;
        listener.poll(POLLIN, -1)?;
        let sock = env.socket()?;
        sock.set_nonblocking(true)?;
        expect_errno(sock.connect(&addr), EINPROGRESS, "connect")?;
        expect_eq(sock.poll(POLLOUT, 20)?, 0, "poll while connecting")?;
        Subject::new(env, sock, vec![listener, first])
    })
}

fn refused(env: &Env) -> Outcome {
    compare(env, |env| {
        let subject = Subject::new(env, env.socket()?, Vec::new())?;
        let result = subject.sock.connect(&subject.nobody);
        expect_errno(result, EINPROGRESS, "connect")?;
        subject.sock.poll(POLLOUT, -1)?;
        Ok(subject)
    })
}

fn connected(env: &Env) -> Outcome {
    compare(env, |env| Subject::of_pair(env, env.own_pair()?))
}

/// Bytes of the peer wait to be read.
fn connected_with_bytes(env: &Env) -> Outcome {
    compare(env, |env| {
        let (sock, other) = env.own_pair()?;
        give_bytes(&sock, &other)?;
        Subject::of_pair(env, (sock, other))
    })
}

fn give_bytes(sock: &Sock, other: &Sock) -> Outcome {
    other.send_all(b"ten bytes.")?;
    eventually("ten bytes", || readable_bytes(sock), |&n| n == 10)
}

fn accepted(env: &Env) -> Outcome {
    compare(env, |env| {
        let (other, sock) = env.own_pair()?;
        Subject::of_pair(env, (sock, other))
    })
}

/// Bytes wait to be read, followed by the end of the stream.
fn peer_has_ended(env: &Env) -> Outcome {
    compare(env, |env| {
        let (sock, other) = env.own_pair()?;
        give_bytes(&sock, &other)?;
        other.shutdown(libc::SHUT_WR)?;
        sock.poll(POLLRDHUP, -1)?;
        let mut subject = Subject::of_pair(env, (sock, other))?;
        subject.peer_has_ended = true;
        Ok(subject)
    })
}

fn shut_for_reading(env: &Env) -> Outcome {
    compare(env, |env| {
        let (sock, other) = env.own_pair()?;
        sock.shutdown(libc::SHUT_RD)?;
        Subject::of_pair(env, (sock, other))
    })
}

/// Waits until the other side has received the end of the stream, and the socket knows this.
fn end_arrives(sock: &Sock, other: &Sock) -> Outcome {
    other.poll(POLLRDHUP, -1)?;
    let unsent = || sock.ioctl_int(libc::TIOCOUTQ);
    eventually("an end that has arrived", unsent, |&n| n == 0)
}

fn shut_for_writing(env: &Env) -> Outcome {
    compare(env, |env| {
        let (sock, other) = env.own_pair()?;
        sock.shutdown(libc::SHUT_WR)?;
        end_arrives(&sock, &other)?;
        Subject::of_pair(env, (sock, other))
    })
}

fn shut(env: &Env) -> Outcome {
    compare(env, |env| {
        let (sock, other) = env.own_pair()?;
        sock.shutdown(libc::SHUT_RDWR)?;
        end_arrives(&sock, &other)?;
        Subject::of_pair(env, (sock, other))
    })
}

/// First the peer has ended its half of the stream, then the socket has ended its own half.
fn ended_by_both(env: &Env) -> Outcome {
    compare(env, |env| {
        let (sock, other) = env.own_pair()?;
        other.shutdown(libc::SHUT_WR)?;
        sock.poll(POLLRDHUP, -1)?;
        sock.shutdown(libc::SHUT_WR)?;
        end_arrives(&sock, &other)?;
        let mut subject = Subject::of_pair(env, (sock, other))?;
        subject.peer_has_ended = true;
        subject.await_end();
        Ok(subject)
    })
}

fn reset(env: &Env) -> Outcome {
    compare(env, |env| {
        let (sock, other) = env.own_pair()?;
        other.reset()?;
        // For a moment poll() may report the error before the end, also with TCP.
        let ended = |events: &i16| *events == POLLERR | POLLHUP;
        eventually("poll of a reset socket", || sock.poll(0, -1), ended)?;
        Subject::new(env, sock, Vec::new())
    })
}

/// A socket whose connection was ended by connect() to AF_UNSPEC.
fn disconnected(env: &Env) -> Outcome {
    compare(env, |env| {
        let (sock, other) = env.own_pair()?;
        sock.connect(&env.here(0).with_family(libc::AF_UNSPEC))?;
        Subject::of_pair(env, (sock, other))
    })
}

fn new_of_ipv6(env: &Env) -> Outcome {
    new(&env.over_ipv6()?)
}

fn listening_of_ipv6(env: &Env) -> Outcome {
    listening(&env.over_ipv6()?)
}

fn connected_of_ipv6(env: &Env) -> Outcome {
    connected(&env.over_ipv6()?)
}
