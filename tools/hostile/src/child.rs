// SPDX-License-Identifier: GPL-2.0
//! Victims in their own processes, because an access to memory may kill them.

use crate::cm::errno_fail;
use crate::fail::{expect, Result};
use std::fs;
use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How a child has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Exit(i32),
    Signal(i32),
}

/// A child process. Dropping the value kills the child if it has not ended.
pub(crate) struct Child {
    pid: libc::pid_t,
    ended: Option<Ended>,
}

impl Child {
    /// Runs `body` in a new process, whose exit code is the result of `body`.
    ///
    /// # Safety
    ///
    /// There are other threads, so `body` may do no more than a signal handler may do. It must not
    /// panic.
    pub(crate) unsafe fn new(body: impl FnOnce() -> i32) -> Result<Child> {
        // SAFETY: by the caller's promise for the child.
        match unsafe { libc::fork() } {
            -1 => Err(errno_fail("fork")),
            0 => {
                let none = libc::rlimit {
                    rlim_cur: 0,
                    rlim_max: 0,
                };
                // SAFETY: system calls with valid arguments.
                unsafe {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
                    libc::signal(libc::SIGSEGV, libc::SIG_DFL);
                    libc::_exit(body())
                }
            }
            pid => Ok(Child { pid, ended: None }),
        }
    }

    /// Waits until the child sleeps, or has ended.
    pub(crate) fn await_sleep(&mut self, limit: Duration) -> Result<()> {
        let end = Instant::now() + limit;
        while self.ended()?.is_none() {
            let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid))?;
            // The state follows the name, which is in parentheses.
            let state = stat.rsplit(')').next().unwrap_or_default();
            if state.trim_start().starts_with('S') {
                return Ok(());
            }
            expect(Instant::now() < end, || "a victim does not wait".to_owned())?;
            sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// How the child has ended, if it has ended.
    pub(crate) fn ended(&mut self) -> Result<Option<Ended>> {
        if self.ended.is_some() {
            return Ok(self.ended);
        }
        let mut status = 0;
        // SAFETY: the child belongs to this value and was not waited for, and the place for the
        // status is valid.
        match unsafe { libc::waitpid(self.pid, &mut status, libc::WNOHANG) } {
            0 => return Ok(None),
            -1 => return Err(io::Error::last_os_error().into()),
            _ => {}
        }
        self.ended = Some(if libc::WIFSIGNALED(status) {
            Ended::Signal(libc::WTERMSIG(status))
        } else {
            Ended::Exit(libc::WEXITSTATUS(status))
        });
        Ok(self.ended)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.ended.is_none() {
            // SAFETY: the child belongs to this value and was not waited for.
            unsafe {
                libc::kill(self.pid, libc::SIGKILL);
                libc::waitpid(self.pid, std::ptr::null_mut(), 0);
            }
        }
    }
}
