// SPDX-License-Identifier: GPL-2.0
//! Errors of commands and of the device.

use std::fmt::{self, Display, Formatter};

/// An error; the value of the error register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Error {
    /// A value is invalid.
    Invalid = 22,
    /// The limit of objects is reached.
    NoRoom = 12,
    /// There is no such object.
    NoSuch = 2,
    /// The object is in use.
    Busy = 16,
    /// An address is not accessible.
    Fault = 14,
}

impl Error {
    /// The refusal of `what`: a value of the guest with the name of its field, or an object.
    pub fn of(self, what: impl Display) -> Refused {
        Refused {
            error: self,
            what: what.to_string(),
        }
    }
}

/// A value of the guest is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The error.
    pub error: Error,
    what: String,
}

impl Display for Refused {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let why = match self.error {
            Error::Invalid => "is invalid",
            Error::NoRoom => "is too many",
            Error::NoSuch => "does not exist",
            Error::Busy => "is in use",
            Error::Fault => "is not accessible",
        };
        write!(f, "{} {why}", self.what)
    }
}
