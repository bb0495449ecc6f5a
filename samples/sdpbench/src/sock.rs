// SPDX-License-Identifier: GPL-2.0
//! Sockets of either family, as files of the standard library.

use clap::ValueEnum;
use std::fmt;
use std::io;
use std::mem;
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use uapi::socket::{AF_INET_SDP, SDP_ZCOPY_MODE, SOL_SDP};

/// The transport that `socket()` is asked for.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Family {
    Tcp,
    Sdp,
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        value_name(self, f)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        value_name(self, f)
    }
}

/// The name by which the command line knows it.
fn value_name<T: ValueEnum>(value: &T, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match value.to_possible_value() {
        Some(name) => f.write_str(name.get_name()),
        None => Err(fmt::Error),
    }
}

impl Family {
    const fn number(self) -> i32 {
        match self {
            Self::Tcp => libc::AF_INET,
            Self::Sdp => AF_INET_SDP,
        }
    }
}

fn check(result: i32) -> io::Result<i32> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

/// The way that SDP sends and receives.
#[derive(Clone, Copy, ValueEnum)]
#[repr(u8)]
pub(crate) enum Mode {
    /// By the thresholds.
    Auto,
    /// BSDP.
    Copy,
    /// ZSDP: without a copy, and the call waits.
    Sync,
    /// AZ-SDP: without a copy and a wait.
    Async,
    /// SinkAvail: written to the memory of a receive that waits.
    Sink,
}

impl Mode {
    pub(crate) const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Auto),
            1 => Some(Self::Copy),
            2 => Some(Self::Sync),
            3 => Some(Self::Async),
            4 => Some(Self::Sink),
            _ => None,
        }
    }
}

/// Whom to talk to, and how.
#[derive(Clone, Copy)]
pub(crate) struct Peer {
    pub(crate) family: Family,
    pub(crate) address: SocketAddrV4,
    pub(crate) mode: Option<Mode>,
    /// Sends have MSG_ZEROCOPY.
    pub(crate) zerocopy: bool,
}

impl Peer {
    fn set_up(self, fd: &OwnedFd) -> io::Result<()> {
        set_option(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
        if self.zerocopy {
            set_zerocopy(fd)?;
        }
        match self.mode {
            Some(mode) => set_mode(fd, mode),
            None => Ok(()),
        }
    }
}

/// Chooses the way of an SDP socket.
pub(crate) fn set_mode(sock: &impl AsRawFd, mode: Mode) -> io::Result<()> {
    set_option(sock, SOL_SDP, SDP_ZCOPY_MODE, mode as i32)
}

/// Allows sends with MSG_ZEROCOPY.
pub(crate) fn set_zerocopy(sock: &impl AsRawFd) -> io::Result<()> {
    set_option(sock, libc::SOL_SOCKET, libc::SO_ZEROCOPY, 1)
}

fn socket(family: Family) -> io::Result<OwnedFd> {
    // SAFETY: The call takes no pointers.
    let fd = check(unsafe { libc::socket(family.number(), libc::SOCK_STREAM, 0) })?;
    // SAFETY: A new descriptor, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// SDP takes addresses of family AF_INET as well as its own.
fn sockaddr(address: SocketAddrV4) -> libc::sockaddr_in {
    // SAFETY: All zeroes is a valid sockaddr_in.
    let mut raw: libc::sockaddr_in = unsafe { mem::zeroed() };
    raw.sin_family = libc::AF_INET as libc::sa_family_t;
    raw.sin_port = address.port().to_be();
    raw.sin_addr.s_addr = u32::from(*address.ip()).to_be();
    raw
}

fn set_option(fd: &impl AsRawFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    let len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: The pointer and the length describe `value`, which outlives the call.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), len) })
        .map(drop)
}

/// A listening socket.
pub(crate) fn listen(peer: Peer) -> io::Result<TcpListener> {
    let fd = socket(peer.family)?;
    set_option(&fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    let raw = sockaddr(peer.address);
    let len = size_of_val(&raw) as libc::socklen_t;
    // SAFETY: The pointer and the length describe `raw`, which outlives the call.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const raw).cast(), len) })?;
    // SAFETY: The call takes no pointers.
    check(unsafe { libc::listen(fd.as_raw_fd(), 1024) })?;
    Ok(fd.into())
}

/// The next connection of a listening socket. Not the library's accept(): that
/// one uses accept4(), which rsockets do not catch, and insists on the peer's
/// address being of a family it knows.
pub(crate) fn accept(listener: &TcpListener, peer: Peer) -> io::Result<TcpStream> {
    // SAFETY: No address is asked for.
    let fd = check(unsafe {
        libc::accept(
            listener.as_raw_fd(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        )
    })?;
    // SAFETY: A new descriptor, owned by nobody else.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    peer.set_up(&fd)?;
    Ok(fd.into())
}

/// Waits until some of the sockets can be read; returns which.
pub(crate) fn wait_readable(socks: &[TcpStream]) -> io::Result<Vec<bool>> {
    let mut fds: Vec<_> = socks
        .iter()
        .map(|sock| libc::pollfd {
            fd: sock.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    // SAFETY: The pointer and the length describe `fds`, which outlives the call.
    check(unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, -1) })?;
    Ok(fds.iter().map(|fd| fd.revents != 0).collect())
}

/// A connected socket that sends at once.
pub(crate) fn connect(peer: Peer) -> io::Result<TcpStream> {
    let fd = socket(peer.family)?;
    peer.set_up(&fd)?;
    let raw = sockaddr(peer.address);
    let len = size_of_val(&raw) as libc::socklen_t;
    // SAFETY: The pointer and the length describe `raw`, which outlives the call.
    check(unsafe { libc::connect(fd.as_raw_fd(), (&raw const raw).cast(), len) })?;
    Ok(fd.into())
}

/// A thousand idle connections need more descriptors than a shell gives.
pub(crate) fn raise_file_limit() -> io::Result<()> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: The pointer is to a valid rlimit.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) })?;
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: As above.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }).map(drop)
}
