// SPDX-License-Identifier: GPL-2.0
//! Shared by the tests of sends without copies: the options, and a connection whose bytes stay in
//! flight.

use crate::support::counters::stat;
use crate::support::flow::Span;
use crate::support::harness::{
    eventually, expect, expect_eq, receive, skip, Env, Fail, Family, Outcome, QUIET_MS,
};
use crate::support::sys::{
    self, Ended, Fork, Pages, Sock, HUGE, PAGE, TCPI_SND_CWND, TCPI_UNACKED,
};
use libc::{MSG_NOSIGNAL, SOL_SOCKET, SO_RCVBUF, SO_SNDBUFFORCE};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

pub(in crate::tests) use uapi::socket::{
    SDP_FAULT_BLOCK as BLOCK, SDP_FAULT_COPY as COPY, SDP_FAULT_POLICY, SDP_MODE_AZCOPY as RETURNS,
    SDP_MODE_ZCOPY as WAITS, SDP_ZCOPY_MODE, SDP_ZCOPY_THRESH, SOL_SDP,
};

/// The number of sends of a connection after which the module does not yet judge whether the
/// program writes to pages in flight too often.
pub(in crate::tests) const SENDS: usize = 7;

/// The number of bytes that most tests send at a time.
pub(in crate::tests) const LEN: usize = 64 * PAGE;

/// A huge page that has been written to. Only root can see whether the page is huge.
pub(in crate::tests) fn huge_page() -> Result<Pages, Fail> {
    let page = Pages::new(HUGE, true)?;
    page.touch(1);
    if !page.is_huge(0)? {
        return skip("the kernel gives no huge page");
    }
    Ok(page)
}

pub(in crate::tests) fn return_at_once(sock: &Sock) -> io::Result<()> {
    sock.set_int(SOL_SDP, SDP_ZCOPY_THRESH, 16384)?;
    sock.set_int(SOL_SDP, SDP_ZCOPY_MODE, RETURNS)
}

pub(in crate::tests) fn pause() {
    std::thread::sleep(Duration::from_millis(QUIET_MS as u64));
}

/// The number of adverts that have not ended.
pub(in crate::tests) fn in_flight(env: &Env) -> io::Result<u64> {
    let ended = stat(env, "advert_consumed")?
        + stat(env, "advert_cancelled")?
        + stat(env, "advert_aborted")?;
    Ok(stat(env, "advert_posted")? - ended)
}

/// Waits until programs have got their write permission back.
#[track_caller]
pub(in crate::tests) fn settled(env: &Env) -> Outcome {
    eventually("adverts", || in_flight(env), |left| *left == 0)?;
    // Next the keys become invalid, and then the worker releases the snapshots.
    eventually(
        "snapshots",
        || Ok(stat(env, "snapshot_pages")?.saturating_sub(stat(env, "snapshot_freed")?)),
        |left| *left == 0,
    )
    .map(drop)
}

/// A connection within this machine. The receive buffer is small, so bytes stay in flight until the
/// reader reads. The send buffer has room for all bytes.
pub(in crate::tests) struct Stream<'a> {
    pub(in crate::tests) env: &'a Env,
    pub(in crate::tests) one: Sock,
    pub(in crate::tests) other: Sock,
    pub(in crate::tests) sent: u64,
    pub(in crate::tests) received: u64,
}

impl<'a> Stream<'a> {
    pub(in crate::tests) fn new(env: &'a Env) -> Result<Stream<'a>, Fail> {
        if env.family == Family::Tcp {
            return skip("TCP copies what it sends");
        }
        let (one, other) = env.own_pair()?;
        return_at_once(&one)?;
        one.set_int(SOL_SOCKET, SO_SNDBUFFORCE, 32 << 20)?;
        other.set_int(SOL_SOCKET, SO_RCVBUF, 8192)?;
        Ok(Stream {
            env,
            one,
            other,
            sent: 0,
            received: 0,
        })
    }

    pub(in crate::tests) fn next(&self, len: usize) -> Span {
        Span::new(self.env.seed, self.sent, len as u64)
    }

    /// Writes the next bytes of the stream to the pages.
    pub(in crate::tests) fn fill(&self, pages: Pages) {
        pages.write(0, &self.next(pages.len()).to_vec());
    }

    /// Waits until the peer has given the credits for an advert, but not for long. A send itself
    /// waits for credits only for 50 ms before it copies, and a slow machine gives them later.
    pub(in crate::tests) fn await_credits(&self) -> io::Result<()> {
        const CREDITS: u32 = 4;
        let limit = Instant::now() + Duration::from_secs(5);
        loop {
            let [window, unacked] = self.one.tcp_info([TCPI_SND_CWND, TCPI_UNACKED])?;
            if window.saturating_sub(unacked) >= CREDITS || Instant::now() > limit {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Sends the bytes that [`Stream::fill`] has written to the pages, in one call that returns
    /// while they are in flight.
    #[track_caller]
    pub(in crate::tests) fn send_filled(&mut self, pages: Pages) -> Outcome {
        self.await_credits()?;
        let before = stat(self.env, "advert_async")?;
        let n = self.one.send_raw(pages.at(0), pages.len(), MSG_NOSIGNAL)?;
        expect_eq(n, pages.len(), "sent in one call")?;
        self.sent += n as u64;
        expect(stat(self.env, "advert_async")? > before, "it was copied")?;
        expect(in_flight(self.env)? > 0, "nothing is in flight")
    }

    #[track_caller]
    pub(in crate::tests) fn send(&mut self, pages: Pages) -> Outcome {
        self.fill(pages);
        self.send_filled(pages)
    }

    /// Receives all sent bytes, and waits until nothing is in flight.
    #[track_caller]
    pub(in crate::tests) fn receive(&mut self) -> Outcome {
        let left = self.sent - self.received;
        receive(&self.other, Span::new(self.env.seed, self.received, left))?;
        self.received = self.sent;
        settled(self.env)
    }
}

/// The growth of a counter.
pub(in crate::tests) struct Growth<'a> {
    pub(in crate::tests) env: &'a Env,
    pub(in crate::tests) name: &'static str,
    pub(in crate::tests) before: u64,
}

impl<'a> Growth<'a> {
    pub(in crate::tests) fn of(env: &'a Env, name: &'static str) -> io::Result<Growth<'a>> {
        let before = stat(env, name)?;
        Ok(Growth { env, name, before })
    }

    #[track_caller]
    pub(in crate::tests) fn at_least(&self, least: u64) -> Outcome {
        let grown = stat(self.env, self.name)? - self.before;
        expect(
            grown >= least,
            format!("{}: {grown}, not {least}", self.name),
        )
    }

    #[track_caller]
    pub(in crate::tests) fn exactly(&self, wanted: u64) -> Outcome {
        expect_eq(stat(self.env, self.name)? - self.before, wanted, self.name)
    }

    /// Waits until the counter has grown by `least`.
    #[track_caller]
    pub(in crate::tests) fn reaches(&self, least: u64) -> Outcome {
        eventually(
            self.name,
            || Ok(stat(self.env, self.name)? - self.before),
            |grown| *grown >= least,
        )
    }
}

/// A signal from one process to another: a byte in a pipe.
pub(in crate::tests) struct Signal(pub(in crate::tests) OwnedFd, OwnedFd);

impl Signal {
    pub(in crate::tests) fn new() -> io::Result<Signal> {
        let (from, to) = sys::pipe()?;
        Ok(Signal(from, to))
    }

    pub(in crate::tests) fn give(&self) -> io::Result<()> {
        sys::write(self.1.as_raw_fd(), &[1]).map(|_| ())
    }

    pub(in crate::tests) fn await_it(&self) -> io::Result<()> {
        sys::read(self.0.as_raw_fd(), &mut [0]).map(|_| ())
    }
}

/// Runs `work` in a child. The exit code is 0 if `work` returns `true`, 1 if it returns `false`,
/// and 2 after an error.
pub(in crate::tests) fn in_child(work: impl FnOnce() -> io::Result<bool>) -> io::Result<i32> {
    match sys::fork()? {
        Fork::Parent(pid) => Ok(pid),
        Fork::Child => {
            let _ = sys::die_with_parent();
            sys::exit_now(match work() {
                Ok(true) => 0,
                Ok(false) => 1,
                Err(_) => 2,
            })
        }
    }
}

#[track_caller]
pub(in crate::tests) fn expect_content(pid: i32, what: &str) -> Outcome {
    expect_eq(sys::wait_child(pid, true)?, Ended::Exit(0), what)
}
