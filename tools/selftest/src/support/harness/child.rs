// SPDX-License-Identifier: GPL-2.0
//! Runs a test, or a part of a test, in its own process.

use super::{failed, Fail, Outcome};
use crate::support::sys::{self, Ended, Fork};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

/// A process that reports an outcome.
pub(crate) struct Child {
    pub(crate) pid: i32,
    report: UnixStream,
}

impl Child {
    /// Forks and runs `work` in the child. The calling process must have only one thread.
    pub(crate) fn start(work: impl FnOnce() -> Outcome) -> io::Result<Child> {
        let (report, sender) = UnixStream::pair()?;
        match sys::fork()? {
            Fork::Child => {
                drop(report);
                let _ = sys::die_with_parent();
                run(work, sender)
            }
            Fork::Parent(pid) => Ok(Child { pid, report }),
        }
    }

    /// Waits for the outcome, and for the end of the process, after which its descriptors are
    /// closed. The wait has no time limit.
    #[track_caller]
    pub(crate) fn join(self) -> Outcome {
        let outcome = self.outcome_within(Duration::MAX)?;
        // If the process ended without an outcome, outcome_within() has reaped it already.
        let _ = sys::wait_child(self.pid, true);
        match outcome {
            Some(outcome) => outcome,
            None => failed("the child process has no outcome"),
        }
    }

    /// Waits for the outcome; returns `None` if there is none within the limit.
    pub(crate) fn outcome_within(&self, limit: Duration) -> io::Result<Option<Outcome>> {
        let start = Instant::now();
        let mut text = Vec::new();
        loop {
            let left = limit.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Ok(None);
            }
            let ms = left.as_millis().min(60_000) as i32 + 1;
            let seen = sys::poll_fds(&[(self.report.as_raw_fd(), libc::POLLIN)], ms)?;
            if seen.iter().all(|&e| e == 0) {
                continue;
            }
            let mut buf = [0; 4096];
            match (&self.report).read(&mut buf)? {
                0 => break,
                n => text.extend_from_slice(&buf[..n]),
            }
        }
        let text = String::from_utf8_lossy(&text).into_owned();
        let outcome = match text.split_at_checked(1) {
            Some(("p", _)) => Ok(()),
            Some(("s", why)) => Err(Fail::Skipped(why.to_owned())),
            Some(("f", why)) => Err(Fail::Failed(why.to_owned())),
            _ => Err(Fail::Failed(match sys::wait_child(self.pid, true)? {
                Ended::Signal(signal) => format!("killed by signal {signal}"),
                ended => format!("ended without a result: {ended:?}"),
            })),
        };
        Ok(Some(outcome))
    }
}

fn run(work: impl FnOnce() -> Outcome, mut sender: UnixStream) -> ! {
    std::panic::set_hook(Box::new(|_| {}));
    let text = match std::panic::catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => "p".to_owned(),
        Ok(Err(Fail::Skipped(why))) => format!("s{why}"),
        Ok(Err(Fail::Failed(why))) => format!("f{why}"),
        Err(panic) => format!("fpanic: {}", panic_text(panic.as_ref())),
    };
    let _ = sender.write_all(text.as_bytes());
    sys::exit_now(0);
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("of an unknown kind")
}
