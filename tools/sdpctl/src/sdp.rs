// SPDX-License-Identifier: GPL-2.0

//! SDP sockets used by the tool itself.

use std::ffi::CString;
use std::io;
use std::mem::size_of;
use std::net::{
    IpAddr,
    SocketAddr,
    TcpListener, //
};
use std::os::fd::{
    AsRawFd,
    FromRawFd,
    OwnedFd, //
};

use crate::fail::Fail;
use crate::netlink;
use uapi::socket::{
    AF_INET6_SDP,
    AF_INET_SDP,
    SDP_ZCOPY_MODE,
    SOL_SDP, //
};

/// Opens a non-blocking socket. This loads the module, where that is permitted.
///
/// # Errors
///
/// Without the module, `EAFNOSUPPORT` for its families and `EPROTONOSUPPORT` for its protocol.
pub(crate) fn open(family: i32, protocol: i32) -> io::Result<OwnedFd> {
    // SAFETY: No preconditions; no other code owns a valid descriptor.
    unsafe {
        let fd = libc::socket(
            family,
            libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
            protocol,
        );
        match fd {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

/// Whether SDP sockets can be opened. The check loads the module, where that is permitted.
///
/// # Errors
///
/// `NotLoaded`, `TooOld`, and errors of socket().
pub(crate) fn usable(family: i32, protocol: i32) -> Result<(), Fail> {
    let Err(e) = open(family, protocol) else {
        return Ok(());
    };
    match e.raw_os_error() {
        // A module that supports only the families.
        Some(libc::EPROTONOSUPPORT) if open(AF_INET_SDP, 0).is_ok() => Err(Fail::TooOld),
        Some(libc::EAFNOSUPPORT) if family == AF_INET_SDP => Err(no_family()),
        Some(libc::EAFNOSUPPORT | libc::EPROTONOSUPPORT) => Err(Fail::NotLoaded),
        _ => Err(Fail::io("a socket of SDP", &e)),
    }
}

/// Why a socket of the module's families fails with `EAFNOSUPPORT`. A filter of system calls may use
/// the same error.
fn no_family() -> Fail {
    match netlink::is_loaded() {
        false => Fail::NotLoaded,
        true => Fail::Other(format!(
            "the module ib_sdp is loaded, but this process may not open sockets of the family \
             {AF_INET_SDP}: allow the families {AF_INET_SDP} and {AF_INET6_SDP}, which \
             RestrictAddressFamilies= of systemd calls AF_IB and AF_MPLS"
        )),
    }
}

/// Converts an IPv4-mapped address to IPv4.
pub(crate) fn canonical(addr: SocketAddr) -> SocketAddr {
    match addr.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::from((ip, addr.port())),
        // Keeps the scope.
        IpAddr::V6(_) => addr,
    }
}

/// Replaces the name of an interface in the scope of an address by its number: `fe80::1%eth0`. The
/// standard library parses numbers only.
///
/// # Errors
///
/// Those of if_nametoindex().
pub(crate) fn with_numeric_scope(host: &str) -> io::Result<String> {
    let Some((address, rest)) = host.split_once('%') else {
        return Ok(host.into());
    };
    let (scope, rest) = rest.split_at(rest.find(']').unwrap_or(rest.len()));
    if scope.parse::<u32>().is_ok() {
        return Ok(host.into());
    }
    let name = CString::new(scope)?;
    // SAFETY: The name is a string.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        number => Ok(format!("{address}%{number}{rest}")),
    }
}

/// The address in the kernel's format, with the family of the socket.
fn raw(addr: &SocketAddr) -> (libc::sockaddr_storage, libc::socklen_t) {
    // SAFETY: All zeros are a valid address of family AF_UNSPEC.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let at = &raw mut storage;
    // SAFETY: A storage is large enough and aligned for every address.
    let len = unsafe {
        match addr {
            SocketAddr::V4(v4) => {
                let sin = at.cast::<libc::sockaddr_in>();
                (*sin).sin_family = libc::AF_INET as u16;
                (*sin).sin_port = v4.port().to_be();
                (*sin).sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
                size_of::<libc::sockaddr_in>()
            }
            SocketAddr::V6(v6) => {
                let sin6 = at.cast::<libc::sockaddr_in6>();
                (*sin6).sin6_family = libc::AF_INET6 as u16;
                (*sin6).sin6_port = v6.port().to_be();
                (*sin6).sin6_addr.s6_addr = v6.ip().octets();
                (*sin6).sin6_scope_id = v6.scope_id();
                size_of::<libc::sockaddr_in6>()
            }
        }
    };
    (storage, len as libc::socklen_t)
}

fn family_of(addr: &SocketAddr) -> i32 {
    match addr {
        SocketAddr::V4(_) => AF_INET_SDP,
        SocketAddr::V6(_) => AF_INET6_SDP,
    }
}

/// Converts the result of a system call.
fn result(ret: i32) -> io::Result<()> {
    match ret {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Connects with a time-out in seconds; the socket stays non-blocking.
///
/// # Errors
///
/// Those of connect(); `ETIMEDOUT` after the time-out.
pub(crate) fn connect(addr: &SocketAddr, timeout: f64) -> io::Result<OwnedFd> {
    let socket = open(family_of(addr), 0)?;
    connect_socket(&socket, addr, timeout)?;
    Ok(socket)
}

/// Connects a non-blocking socket, of SDP or TCP, with a time-out in seconds.
///
/// # Errors
///
/// Those of connect(); `ETIMEDOUT` after the time-out.
pub(crate) fn connect_socket(
    socket: &impl AsRawFd,
    addr: &SocketAddr,
    timeout: f64,
) -> io::Result<()> {
    let fd = socket.as_raw_fd();
    let (storage, len) = raw(addr);
    // SAFETY: The address has that length.
    match result(unsafe { libc::connect(fd, (&raw const storage).cast(), len) }) {
        Err(e) if e.raw_os_error() == Some(libc::EINPROGRESS) => {}
        done => return done,
    }
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: `poll` is one entry.
    match unsafe { libc::poll(&raw mut poll, 1, (timeout * 1000.0) as i32) } {
        0 => return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT)),
        n => result(n)?,
    }
    match option(fd, libc::SO_ERROR)? {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// The value of an option of SOL_SOCKET.
///
/// # Errors
///
/// Those of getsockopt().
pub(crate) fn option(fd: i32, name: i32) -> io::Result<i32> {
    let mut value: i32 = 0;
    let mut len = size_of::<i32>() as libc::socklen_t;
    let to = (&raw mut value).cast();
    // SAFETY: The buffer has `len` bytes.
    result(unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, name, to, &raw mut len) })?;
    Ok(value)
}

fn set(fd: i32, level: i32, name: i32, value: i32) -> io::Result<()> {
    let len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: The value has that length.
    result(unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), len) })
}

/// Listens; accept() blocks.
///
/// # Errors
///
/// Those of bind() and listen().
pub(crate) fn listen(addr: &SocketAddr) -> io::Result<TcpListener> {
    const BACKLOG: i32 = 16;
    let socket = open(family_of(addr), 0)?;
    let fd = socket.as_raw_fd();
    set(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    let (storage, len) = raw(addr);
    // SAFETY: The address has that length.
    result(unsafe { libc::bind(fd, (&raw const storage).cast(), len) })?;
    // SAFETY: The arguments are integers.
    result(unsafe { libc::listen(fd, BACKLOG) })?;
    let listener = TcpListener::from(socket);
    listener.set_nonblocking(false)?;
    Ok(listener)
}

/// Sets the mode of sends by its number, and TCP_NODELAY.
pub(crate) fn choose_mode(socket: &impl AsRawFd, mode: u8) -> io::Result<()> {
    let fd = socket.as_raw_fd();
    set(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
    set(fd, SOL_SDP, SDP_ZCOPY_MODE, mode.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_by_name_are_numbers() {
        // The number of `lo` is always 1.
        for (host, numeric) in [
            ("fe80::1%lo", "fe80::1%1"),
            ("[fe80::1%lo]", "[fe80::1%1]"),
            ("[fe80::1%lo]:7", "[fe80::1%1]:7"),
            ("[fe80::1%7]:7", "[fe80::1%7]:7"),
            ("[fe80::1]:7", "[fe80::1]:7"),
            ("localhost:7", "localhost:7"),
        ] {
            assert_eq!(with_numeric_scope(host).unwrap(), numeric);
        }
        for bad in ["fe80::1%", "fe80::1%no-such", "[fe80::1%\0]:7"] {
            assert!(with_numeric_scope(bad).is_err(), "{bad}");
        }
    }
}
