// SPDX-License-Identifier: GPL-2.0

//! Errors that end the program, and their exit statuses.

use std::fmt;
use std::io;
use std::process::ExitCode;

/// Why a command has failed.
#[derive(Debug)]
pub(crate) enum Fail {
    /// The netlink family does not exist, and there is no sign of the module.
    NotLoaded,
    /// The netlink family existed and no longer does.
    Unloaded,
    /// The module is loaded, but lacks its netlink family or a part of it.
    TooOld,
    /// The user lacks permission.
    Permission(String),
    /// The kernel has dropped messages because the buffer was full.
    Lost,
    /// The command line has an error that only the command can detect.
    Usage(String),
    /// Anything else.
    Other(String),
}

impl Fail {
    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Lost | Self::Other(_) => 1,
            Self::Usage(_) => 2,
            Self::NotLoaded | Self::Unloaded => 3,
            Self::Permission(_) => 4,
            Self::TooOld => 5,
        })
    }

    /// An I/O error of `what`.
    pub(crate) fn io(what: impl fmt::Display, e: &io::Error) -> Self {
        let text = format!("{what}: {e}");
        match e.kind() {
            io::ErrorKind::PermissionDenied => Self::Permission(text),
            _ => Self::Other(text),
        }
    }
}

impl fmt::Display for Fail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLoaded => write!(
                f,
                "the module ib_sdp is not loaded: load it with `modprobe ib_sdp`"
            ),
            Self::Unloaded => write!(
                f,
                "the module ib_sdp was unloaded meanwhile: load it with `modprobe ib_sdp`"
            ),
            Self::TooOld => write!(
                f,
                "the module ib_sdp that is loaded is older than this program: install and load the \
                 one of the same version, or read /proc/net/sdp"
            ),
            Self::Permission(text) => write!(f, "{text}: try it as root"),
            Self::Lost => write!(f, "netlink: answers were lost"),
            Self::Usage(text) | Self::Other(text) => write!(f, "{text}"),
        }
    }
}
