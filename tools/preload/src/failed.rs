// SPDX-License-Identifier: GPL-2.0

//! Reports to the user of connections that fail. A server may listen with the other kind of sockets
//! only: a report says whether its other port takes connections. Only a connection shows this, so
//! the server then sees a connection that is closed at once. Without the user's wish for reports,
//! no function of this file does anything.

use std::ffi::c_int;
use std::io;
use std::os::fd::{
    AsRawFd,
    RawFd, //
};
use std::sync::{
    Mutex,
    MutexGuard,
    TryLockError, //
};

use crate::config::Config;
use crate::sock::{
    self,
    File,
    RawAddr, //
};
use crate::twin;

/// How long to wait for the answer of the other port: TCP repeats a lost SYN after one second.
const WAIT_MS: u64 = 2000;
/// The beginning of the node type of an iWARP device in sysfs.
const RNIC: &str = "4:";

/// A kind of sockets.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Sdp,
    Tcp,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Sdp => "SDP",
            Self::Tcp => "TCP",
        }
    }

    fn other(self) -> Self {
        match self {
            Self::Sdp => Self::Tcp,
            Self::Tcp => Self::Sdp,
        }
    }
}

/// A connection of a non-blocking socket, whose failure the program learns later.
struct Expected {
    fd: RawFd,
    file: File,
    kind: Kind,
    to: RawAddr,
}

/// At most one entry per descriptor.
static EXPECTED: Mutex<Vec<Expected>> = Mutex::new(Vec::new());

/// The connections; `None` while another thread uses them, or if a thread of the parent did so when
/// this process was forked. A signal handler may call getsockopt(), so nothing waits here: a report
/// is left out instead.
fn expected() -> Option<MutexGuard<'static, Vec<Expected>>> {
    match EXPECTED.try_lock() {
        Ok(all) => Some(all),
        Err(TryLockError::Poisoned(e)) => Some(e.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Records a connection that continues in the background.
pub(crate) fn expect(config: &Config, fd: RawFd, kind: Kind, to: &RawAddr) {
    if !config.verbose {
        return;
    }
    let Ok(file) = File::of(fd) else { return };
    let Some(mut all) = expected() else { return };
    all.retain(|e| e.fd != fd);
    let to = to.clone();
    all.push(Expected { fd, file, kind, to });
}

/// Called when the program learns the error of a socket, 0 for none.
pub(crate) fn learned(config: &Config, fd: RawFd, error: c_int) {
    if !config.verbose {
        return;
    }
    let Some(mut all) = expected() else { return };
    let Some(at) = all.iter().position(|e| e.fd == fd) else {
        return;
    };
    let connection = all.swap_remove(at);
    drop(all);
    // The descriptor may have been closed, and reused.
    if error != 0 && File::of(fd).is_ok_and(|file| file == connection.file) {
        tell(config, connection.kind, &connection.to, error);
    }
}

/// Whether the error of a connection shows that the peer refuses the connection or does not answer.
pub(crate) fn is_of_peer(errno: c_int) -> bool {
    matches!(
        errno,
        libc::ECONNREFUSED | libc::ETIMEDOUT | libc::EHOSTUNREACH
    )
}

/// Reports a connection of this kind that has failed.
pub(crate) fn tell(config: &Config, kind: Kind, to: &RawAddr, errno: c_int) {
    config.tell(|| {
        let other = match is_of_peer(errno) && !shares_ports() {
            true => probe(kind.other(), to),
            false => None,
        };
        let name = to.parse().map_or_else(String::new, |to| to.to_string());
        report(kind, &name, errno, other)
    });
}

/// The text of a report. `other_takes`: whether the other port takes connections, if this is known.
fn report(kind: Kind, name: &str, errno: c_int, other_takes: Option<bool>) -> String {
    let e = io::Error::from_raw_os_error(errno);
    let text = format!("cannot connect to {name} by {}: {e}", kind.name());
    let other = kind.other().name();
    match other_takes {
        Some(true) => format!("{text}; its {other} port takes connections"),
        Some(false) => format!("{text}; its {other} port refuses connections"),
        None => text,
    }
}

/// Whether SDP may use the ports of TCP, as with iWARP, so that the answer of a port does not show
/// the kind of the server.
fn shares_ports() -> bool {
    let Ok(devices) = std::fs::read_dir(crate::DEVICES) else {
        // In a chroot without /sys.
        return crate::has_devices();
    };
    let node_types = devices
        .flatten()
        .map(|device| std::fs::read_to_string(device.path().join("node_type")));
    node_types.flatten().any(|text| text.starts_with(RNIC))
}

/// Whether a port takes connections of this kind. `None` if it does not answer in time, or if this
/// machine cannot ask.
fn probe(kind: Kind, to: &RawAddr) -> Option<bool> {
    let family = match kind {
        Kind::Sdp => twin::sdp_of(to.family()),
        Kind::Tcp => to.family(),
    };
    let socket = sock::open_nonblocking(family).ok()?;
    let fd = socket.as_raw_fd();
    // A rule of `sdpctl steer` may have made it an SDP socket.
    if kind == Kind::Tcp && twin::fresh(fd).is_none() {
        return None;
    }
    let result = match sock::connect(fd, to) {
        Err(e) if e.raw_os_error() == Some(libc::EINPROGRESS) => sock::decided(fd, WAIT_MS),
        result => result,
    };
    match result {
        Ok(_) => Some(true),
        Err(e) if e.raw_os_error() == Some(libc::ECONNREFUSED) => Some(false),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_tcp_port_with_and_without_a_listener() {
        for at in ["127.0.0.1:0", "[::1]:0"] {
            // The machine may have no IPv6.
            let Ok(listener) = TcpListener::bind(at) else {
                continue;
            };
            let to = RawAddr::local(listener.as_raw_fd()).unwrap();
            assert_eq!(probe(Kind::Tcp, &to), Some(true));
            // Nobody listens at port 1.
            assert_eq!(probe(Kind::Tcp, &to.with_port(1)), Some(false));
        }
    }

    #[test]
    fn reports_name_the_other_port() {
        let text = |kind, other| report(kind, "10.27.0.2:80", libc::ECONNREFUSED, other);
        assert_eq!(
            text(Kind::Sdp, Some(true)),
            "cannot connect to 10.27.0.2:80 by SDP: Connection refused (os error 111); its TCP \
             port takes connections"
        );
        assert_eq!(
            text(Kind::Tcp, Some(true)),
            "cannot connect to 10.27.0.2:80 by TCP: Connection refused (os error 111); its SDP \
             port takes connections"
        );
        assert!(text(Kind::Sdp, Some(false)).ends_with("; its TCP port refuses connections"));
        assert!(text(Kind::Sdp, None).ends_with("by SDP: Connection refused (os error 111)"));
    }
}
