// SPDX-License-Identifier: GPL-2.0
//! A victim that receives in its own process, and reads the bytes that it has received.

use crate::child::{Child, Ended};
use crate::fail::{Fail, Result};
use crate::pages::{Pages, PAGE};
use crate::peer::Peer;
use crate::sock::Sock;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicUsize, Ordering::SeqCst};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The content of the buffer before the receive.
pub(crate) const OLD: u8 = 0xee;

const ALL: i32 = 0;
const END: i32 = 1;
const ERROR: i32 = 2;
const WRONG: i32 = 3;

/// The progress of a victim, which its parent reads.
#[repr(C)]
struct Report {
    received: AtomicUsize,
    right: AtomicUsize,
    errno: AtomicI32,
    wrong: AtomicU8,
}

/// How a victim has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The victim has all its bytes.
    All,
    /// The stream has ended before all bytes were received.
    End,
    /// A call has failed, and the rest of the buffer could be read.
    Error(i32),
    /// This byte was in the place of a byte that a call had returned.
    Wrong(u8),
    /// A signal has killed the victim.
    Signal(i32),
}

/// The results of a victim.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// The number of bytes that its calls have returned.
    pub(crate) received: usize,
    /// The number of these bytes that the victim has read and found right.
    pub(crate) right: usize,
    pub(crate) fate: Fate,
}

impl Seen {
    /// Whether bytes that a call had returned did not arrive, and a signal has told this when they
    /// were read.
    pub(crate) fn is_told_by_signal(&self) -> bool {
        self.fate == Fate::Signal(libc::SIGSEGV) && self.right < self.received
    }

    /// Whether a failing call has told that no more bytes arrive, and all bytes before it were
    /// right.
    pub(crate) fn is_told_by_errno(&self, errnos: &[i32]) -> bool {
        let told = |errno: i32| errnos.contains(&errno);
        matches!(self.fate, Fate::Error(errno) if told(errno)) && self.right == self.received
    }
}

/// The victim.
pub(crate) struct Reader {
    child: Child,
    report: Pages,
}

impl Reader {
    /// Starts a child that receives `want` into memory that begins `odd` bytes after the start of a
    /// page. Returns when the child waits.
    pub(crate) fn start(sock: &Sock, want: &[u8], odd: usize, limit: Duration) -> Result<Reader> {
        let report = Pages::shared(PAGE)?;
        let pages = Pages::new((odd + want.len()).next_multiple_of(PAGE))?;
        // SAFETY: the child calls nothing that allocates, takes a lock, or panics.
        let mut child = unsafe { Child::new(|| receive(sock, want, &pages, odd, of(&report)))? };
        child.await_sleep(limit)?;
        Ok(Reader { child, report })
    }

    /// Waits for the end of the victim, while the peer handles its messages.
    pub(crate) fn end(&mut self, peer: &mut Peer, limit: Duration) -> Result<Seen> {
        let end = Instant::now() + limit;
        loop {
            peer.pump()?;
            let ended = self.child.ended()?;
            let report = of(&self.report);
            let seen = Seen {
                received: report.received.load(SeqCst),
                right: report.right.load(SeqCst),
                fate: match ended {
                    None if Instant::now() < end => {
                        sleep(Duration::from_micros(300));
                        continue;
                    }
                    None => return Err(Fail::new("a victim hangs in recv() or at a touch")),
                    Some(Ended::Signal(signal)) => Fate::Signal(signal),
                    Some(Ended::Exit(ALL)) => Fate::All,
                    Some(Ended::Exit(END)) => Fate::End,
                    Some(Ended::Exit(ERROR)) => Fate::Error(report.errno.load(SeqCst)),
                    Some(Ended::Exit(_)) => Fate::Wrong(report.wrong.load(SeqCst)),
                },
            };
            return Ok(seen);
        }
    }
}

fn of(report: &Pages) -> &Report {
    // SAFETY: the pages live as long as the reference, contain zeros at first, and are accessed in
    // no other way.
    unsafe { &*(report.addr() as *const Report) }
}

/// The body of the child. It reads the bytes of each call at once, from the first one on. Returns
/// the exit code.
fn receive(sock: &Sock, want: &[u8], pages: &Pages, odd: usize, report: &Report) -> i32 {
    pages.fill(OLD);
    let mut right = 0;
    while right < want.len() {
        let got = match sock.recv_at(pages.addr() + odd + right, want.len() - right) {
            Ok(0) => return END,
            Ok(n) => right + n,
            Err(e) => {
                report.errno.store(e.raw_os_error().unwrap_or(0), SeqCst);
                // Bytes that no call has returned belong to the program, which can read them.
                for at in odd + right..pages.len() {
                    pages.look(at);
                }
                return ERROR;
            }
        };
        report.received.store(got, SeqCst);
        while right < got {
            let byte = pages.look(odd + right);
            if want.get(right) != Some(&byte) {
                report.wrong.store(byte, SeqCst);
                return WRONG;
            }
            right += 1;
            report.right.store(right, SeqCst);
        }
    }
    ALL
}
