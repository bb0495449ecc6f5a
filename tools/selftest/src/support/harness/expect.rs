// SPDX-License-Identifier: GPL-2.0
//! Expectations of a test, and failures with the place where an expectation was not met.

use crate::support::flow::{Received, Span};
use crate::support::pattern::Verdict;
use std::fmt::{Debug, Display};
use std::io;
use std::panic::Location;

/// Why a test did not pass.
#[derive(Debug)]
pub(crate) enum Fail {
    Failed(String),
    Skipped(String),
}

pub(crate) type Outcome = Result<(), Fail>;

impl Fail {
    #[track_caller]
    fn at(text: impl Display) -> Fail {
        let place = Location::caller();
        let file = place.file().rsplit("src/").next().unwrap_or_default();
        Fail::Failed(format!("{file}:{}: {text}", place.line()))
    }
}

/// An error that a test did not expect. The operator `?` records the line.
impl From<io::Error> for Fail {
    #[track_caller]
    fn from(e: io::Error) -> Fail {
        Fail::at(e)
    }
}

/// Fails a test for a reason in words.
#[track_caller]
pub(crate) fn failed<T>(text: impl Display) -> Result<T, Fail> {
    Err(Fail::at(text))
}

/// Ends a test that makes no sense in this environment.
pub(crate) fn skip<T>(why: impl Display) -> Result<T, Fail> {
    Err(Fail::Skipped(why.to_string()))
}

#[track_caller]
pub(crate) fn expect(holds: bool, what: impl Display) -> Outcome {
    if holds {
        Ok(())
    } else {
        Err(Fail::at(what))
    }
}

#[track_caller]
#[expect(clippy::needless_pass_by_value, reason = "the tests pass temporaries")]
pub(crate) fn expect_eq<T: PartialEq + Debug>(got: T, want: T, what: impl Display) -> Outcome {
    if got == want {
        Ok(())
    } else {
        Err(Fail::at(format!("{what}: {got:?}, not {want:?}")))
    }
}

/// Expects a call to fail with an errno.
#[track_caller]
pub(crate) fn expect_errno<T>(result: io::Result<T>, errno: i32, what: impl Display) -> Outcome {
    expect_errno_of(result, &[errno], what)
}

/// Expects a call to fail with one of several errnos.
#[track_caller]
pub(crate) fn expect_errno_of<T>(
    result: io::Result<T>,
    errnos: &[i32],
    what: impl Display,
) -> Outcome {
    let wanted = || {
        let names = errnos
            .iter()
            .map(|&e| io::Error::from_raw_os_error(e).to_string());
        names.collect::<Vec<_>>().join(" or ")
    };
    match result {
        Ok(_) => Err(Fail::at(format!("{what}: no error, not {}", wanted()))),
        Err(e) if e.raw_os_error().is_some_and(|e| errnos.contains(&e)) => Ok(()),
        Err(e) => Err(Fail::at(format!("{what}: {e}, not {}", wanted()))),
    }
}

/// Expects that a receiver has received a whole span, with every byte right.
#[track_caller]
pub(crate) fn expect_received(got: Received, span: Span, what: impl Display) -> Outcome {
    let complete = got.bytes == span.len && got.verdict == Verdict::default() && got.errno == 0;
    if complete {
        Ok(())
    } else {
        Err(Fail::at(format!("{what}: of {} bytes: {got}", span.len)))
    }
}

/// Returns the result of a thread; a panic is a failure.
#[track_caller]
pub(crate) fn joined<T>(thread: std::thread::JoinHandle<T>) -> Result<T, Fail> {
    match thread.join() {
        Ok(value) => Ok(value),
        Err(_) => failed("a thread panicked"),
    }
}
