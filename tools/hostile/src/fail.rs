// SPDX-License-Identifier: GPL-2.0
//! How an attack reports that the module did not react as it must.

use std::fmt::{self, Display};
use std::io;

/// The expectation that was not met, in words.
#[derive(Debug)]
pub(crate) struct Fail(String);

/// The result of everything that an attack does.
pub(crate) type Result<T> = std::result::Result<T, Fail>;

impl Fail {
    pub(crate) fn new(why: impl Into<String>) -> Fail {
        Fail(why.into())
    }
}

impl Display for Fail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<io::Error> for Fail {
    fn from(e: io::Error) -> Fail {
        Fail(e.to_string())
    }
}

/// Fails with `why` unless `condition` holds.
pub(crate) fn expect(condition: bool, why: impl FnOnce() -> String) -> Result<()> {
    if condition {
        Ok(())
    } else {
        Err(Fail(why()))
    }
}

/// Adds the step in which something failed.
pub(crate) trait Step<T> {
    fn step(self, what: &str) -> Result<T>;
}

impl<T, E: Display> Step<T> for std::result::Result<T, E> {
    fn step(self, what: &str) -> Result<T> {
        self.map_err(|e| Fail(format!("{what}: {e}")))
    }
}
