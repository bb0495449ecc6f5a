// SPDX-License-Identifier: GPL-2.0

//! An SDP socket with the state of a TCP socket, which it replaces.

use std::ffi::c_int;
use std::io;
use std::os::fd::{
    AsRawFd,
    OwnedFd,
    RawFd, //
};

use uapi::socket::{
    AF_INET6_SDP,
    AF_INET_SDP,
    IPPROTO_SDP,
    SDP_LISTEN_TCP,
    SDP_TCP_INSTEAD,
    SOL_SDP, //
};

use crate::noted::noted;
use crate::sock::{
    self,
    File,
    Owner,
    RawAddr,
    Value, //
};
use crate::watched;

/// linux/tcp.h: the first byte of TCP_INFO of a socket that is not connected or listening.
const TCP_CLOSE: u8 = 7;
/// asm-generic/socket.h: whether the program has set the sizes of buffers.
const SO_BUF_LOCK: c_int = 72;
const SNDBUF_LOCK: c_int = 1;
const RCVBUF_LOCK: c_int = 2;
/// linux/in.h
const IP_LOCAL_PORT_RANGE: c_int = 51;
/// asm-generic/socket.h: the forms with 64 bits of SO_TIMESTAMP, SO_TIMESTAMPNS, SO_TIMESTAMPING.
const SO_TIMESTAMP_NEW: c_int = 63;
const SO_TIMESTAMPNS_NEW: c_int = 64;
const SO_TIMESTAMPING_NEW: c_int = 65;
/// asm-generic/fcntl.h: the signal that a socket sends to its owner.
const F_SETSIG: c_int = 10;
const F_GETSIG: c_int = 11;

/// Options that are copied if the program has changed them.
const OPTIONS: &[(c_int, c_int)] = &[
    (libc::SOL_SOCKET, libc::SO_REUSEADDR),
    (libc::SOL_SOCKET, libc::SO_REUSEPORT),
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
    (libc::SOL_SOCKET, libc::SO_LINGER),
    (libc::SOL_SOCKET, libc::SO_OOBINLINE),
    (libc::SOL_SOCKET, libc::SO_PRIORITY),
    (libc::SOL_SOCKET, libc::SO_MARK),
    (libc::SOL_SOCKET, libc::SO_DONTROUTE),
    (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMP),
    (libc::SOL_SOCKET, SO_TIMESTAMP_NEW),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS),
    (libc::SOL_SOCKET, SO_TIMESTAMPNS_NEW),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMPING),
    (libc::SOL_SOCKET, SO_TIMESTAMPING_NEW),
    (libc::SOL_SOCKET, libc::SO_BUSY_POLL),
    (libc::SOL_SOCKET, libc::SO_BINDTODEVICE),
    (libc::SOL_SOCKET, libc::SO_RCVTIMEO),
    (libc::SOL_SOCKET, libc::SO_SNDTIMEO),
    (libc::SOL_SOCKET, libc::SO_RCVLOWAT),
    (libc::SOL_SOCKET, libc::SO_PEEK_OFF),
    (libc::SOL_SOCKET, libc::SO_ZEROCOPY),
    (libc::IPPROTO_IP, libc::IP_OPTIONS),
    (libc::IPPROTO_IP, libc::IP_TOS),
    (libc::IPPROTO_IP, libc::IP_TTL),
    (libc::IPPROTO_IP, libc::IP_MINTTL),
    (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
    (libc::IPPROTO_IP, libc::IP_FREEBIND),
    (libc::IPPROTO_IP, libc::IP_TRANSPARENT),
    (libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT),
    (libc::IPPROTO_IP, IP_LOCAL_PORT_RANGE),
    (libc::IPPROTO_IPV6, libc::IPV6_HOPOPTS),
    (libc::IPPROTO_IPV6, libc::IPV6_RTHDR),
    (libc::IPPROTO_IPV6, libc::IPV6_RTHDRDSTOPTS),
    (libc::IPPROTO_IPV6, libc::IPV6_DSTOPTS),
    (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY),
    (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS),
    (libc::IPPROTO_IPV6, libc::IPV6_MINHOPCOUNT),
    (libc::IPPROTO_IPV6, libc::IPV6_ADDR_PREFERENCES),
    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
    (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS),
    (libc::IPPROTO_TCP, libc::TCP_NODELAY),
    (libc::IPPROTO_TCP, libc::TCP_CORK),
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE),
    (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL),
    (libc::IPPROTO_TCP, libc::TCP_KEEPCNT),
    (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT),
    (libc::IPPROTO_TCP, libc::TCP_SYNCNT),
    (libc::IPPROTO_TCP, libc::TCP_LINGER2),
    (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT),
    (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT),
    (libc::IPPROTO_TCP, libc::TCP_INQ),
    (libc::IPPROTO_TCP, libc::TCP_FASTOPEN),
    (libc::IPPROTO_TCP, libc::TCP_SAVE_SYN),
];

/// linux/in.h, linux/in6.h, linux/tcp.h
const IP_IPSEC_POLICY: c_int = 16;
const IP_XFRM_POLICY: c_int = 17;
const IPV6_IPSEC_POLICY: c_int = 34;
const IPV6_XFRM_POLICY: c_int = 35;
const TCP_MD5SIG_EXT: c_int = 32;
const TCP_AO_ADD_KEY: c_int = 38;

/// Whether the option cannot be read back, and is one on which a program relies and that SDP
/// refuses: the choice of a listener by a program in BPF, encryption and authentication.
pub(crate) fn is_unreadable(level: c_int, name: c_int) -> bool {
    match level {
        libc::SOL_SOCKET => matches!(
            name,
            libc::SO_ATTACH_REUSEPORT_CBPF | libc::SO_ATTACH_REUSEPORT_EBPF
        ),
        libc::IPPROTO_IP => matches!(name, IP_IPSEC_POLICY | IP_XFRM_POLICY),
        libc::IPPROTO_IPV6 => matches!(name, IPV6_IPSEC_POLICY | IPV6_XFRM_POLICY),
        libc::IPPROTO_TCP => matches!(name, libc::TCP_MD5SIG | TCP_MD5SIG_EXT | TCP_AO_ADD_KEY),
        _ => false,
    }
}

/// The family of a TCP socket that is neither listening nor connected nor connecting.
pub(crate) fn fresh(fd: RawFd) -> Option<c_int> {
    let number = |name| sock::get(fd, libc::SOL_SOCKET, name).ok()?.number();
    if number(libc::SO_PROTOCOL)? != libc::IPPROTO_TCP {
        return None;
    }
    let family = number(libc::SO_DOMAIN)?;
    let info = sock::get(fd, libc::IPPROTO_TCP, libc::TCP_INFO).ok()?;
    let is_idle = info.first() == Some(TCP_CLOSE);
    (is_idle && matches!(family, libc::AF_INET | libc::AF_INET6)).then_some(family)
}

/// SDP's family that corresponds to `family`.
pub(crate) fn sdp_of(family: c_int) -> c_int {
    match family {
        libc::AF_INET6 => AF_INET6_SDP,
        _ => AF_INET_SDP,
    }
}

/// Whether two sockets are of the same network namespace. A thread may have changed its namespace
/// since it opened the program's socket, and a new socket is of the thread's present namespace. An
/// old kernel has no cookies.
fn share_namespace(one: RawFd, other: RawFd) -> bool {
    sock::netns_cookie(one).ok() == sock::netns_cookie(other).ok()
}

/// Tells the module of a connection by TCP that replaces one by SDP, so that the module counts and
/// lists the connection. `why` is the errno of SDP. Without the module, nothing happens.
pub(crate) fn tell_module(tcp: RawFd, family: c_int, why: c_int) {
    if why == libc::EAFNOSUPPORT {
        return;
    }
    let sdp = sock::open(sdp_of(family));
    // The module looks for the connection in the namespace of the SDP socket.
    if let Some(sdp) = sdp.ok().filter(|sdp| share_namespace(sdp.as_raw_fd(), tcp)) {
        let connection = Value::of_two(tcp, why);
        // An older module does not have the option.
        let _ = sock::set(sdp.as_raw_fd(), SOL_SDP, SDP_TCP_INSTEAD, &connection);
    }
}

/// An SDP socket that will replace a TCP socket.
pub(crate) struct Twin {
    sdp: OwnedFd,
    /// The descriptor of the TCP socket, and its identity.
    fd: RawFd,
    tcp: File,
    /// SO_REUSEADDR of the TCP socket, which [`Twin::share_port`] has set.
    usual_reuse: Option<Value>,
}

impl Drop for Twin {
    fn drop(&mut self) {
        // After replace(), the descriptor is that of the SDP socket.
        let Some(usual) = self.usual_reuse.take() else {
            return;
        };
        if File::of(self.fd).is_ok_and(|file| file == self.tcp) {
            // Without an effect if the TCP socket was closed meanwhile.
            let _ = sock::set(self.fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, &usual);
        }
    }
}

impl Twin {
    /// Creates a twin with the options, flags and address of the socket `fd`.
    ///
    /// # Errors
    ///
    /// Those of socket() and bind(); `EAFNOSUPPORT` without the module, `EOPNOTSUPP` for a socket of
    /// another network namespace.
    pub(crate) fn of(fd: RawFd, family: c_int) -> io::Result<Self> {
        let mut twin = Self::new(fd, family, sock::open(sdp_of(family))?)?;
        twin.share_port()?;
        twin.take_address()?;
        Ok(twin)
    }

    /// As [`Twin::of`], for a server that also serves TCP clients: a twin of the same family as the
    /// TCP socket, opened by the protocol, because only such a listener accepts TCP connections.
    ///
    /// # Errors
    ///
    /// As for [`Twin::of`]; `EPROTONOSUPPORT` without the module.
    pub(crate) fn of_same_family(fd: RawFd, family: c_int) -> io::Result<Self> {
        let twin = Self::new(fd, family, sock::open_by(family, IPPROTO_SDP)?)?;
        twin.take_address()?;
        Ok(twin)
    }

    /// A twin with the options and flags of the socket `fd`.
    fn new(fd: RawFd, family: c_int, sdp: OwnedFd) -> io::Result<Self> {
        let twin = Self::with_options(fd, family, sdp)?;
        twin.take_flags()?;
        Ok(twin)
    }

    /// A twin with the options of the socket `fd`.
    fn with_options(fd: RawFd, family: c_int, sdp: OwnedFd) -> io::Result<Self> {
        let twin = Self {
            sdp,
            fd,
            tcp: File::of(fd)?,
            usual_reuse: None,
        };
        if !share_namespace(twin.as_raw_fd(), fd) {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        twin.take_options(family)?;
        Ok(twin)
    }

    /// Lets soft-iWARP have the port of the TCP socket, which keeps the port until it is replaced:
    /// soft-iWARP uses the ports of TCP, with SO_REUSEADDR.
    fn share_port(&mut self) -> io::Result<()> {
        let usual = sock::get(self.fd, libc::SOL_SOCKET, libc::SO_REUSEADDR)?;
        sock::set(self.fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, &Value::of(1))?;
        self.usual_reuse = Some(usual);
        Ok(())
    }

    /// Makes the twin accept the connections of the TCP socket, too, which already listens.
    ///
    /// # Errors
    ///
    /// Those of the option.
    pub(crate) fn serve_tcp(&self) -> io::Result<()> {
        let tcp = Value::of(self.fd);
        sock::set(self.as_raw_fd(), SOL_SDP, SDP_LISTEN_TCP, &tcp)
    }

    /// Tries to bind an SDP socket with the options of the socket `fd` to `addr`. Returns it, and the
    /// port that it has until it is dropped.
    ///
    /// # Errors
    ///
    /// Those of socket() and bind().
    pub(crate) fn try_address(fd: RawFd, family: c_int, addr: &RawAddr) -> io::Result<(Self, u16)> {
        let twin = Self::with_options(fd, family, sock::open(sdp_of(family))?)?;
        twin.bind(addr)?;
        let bound = RawAddr::local(twin.as_raw_fd())?.parse();
        Ok((twin, bound.map_or(0, |addr| addr.port())))
    }

    pub(crate) fn as_raw_fd(&self) -> RawFd {
        self.sdp.as_raw_fd()
    }

    fn take_options(&self, family: c_int) -> io::Result<()> {
        let has_unreadable = noted().unreadable_options.contains(self.tcp);
        if has_unreadable || sock::has_filter(self.fd) {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        // Options that differ from a new TCP socket were set by the program.
        let new = sock::open(family)?;
        for &(level, name) in OPTIONS {
            let of = |fd| sock::get(fd, level, name).ok();
            // IPV6_V6ONLY is compared with the value of the SDP socket itself. The default of TCP
            // and SDP is net.ipv6.bindv6only, which the administrator may have changed meanwhile.
            let usual = match name {
                libc::IPV6_V6ONLY if level == libc::IPPROTO_IPV6 => self.as_raw_fd(),
                _ => new.as_raw_fd(),
            };
            let (Some(wanted), Some(usual)) = (of(self.fd), of(usual)) else {
                continue;
            };
            if wanted != usual {
                // SDP refuses an option with EOPNOTSUPP if the program would rely on it, or does not
                // have it. Without SO_ZEROCOPY, the program would wait for notifications that never
                // come. Other errors are ignored, for example if the program has dropped a
                // capability.
                let is_zerocopy = (level, name) == (libc::SOL_SOCKET, libc::SO_ZEROCOPY);
                let is_needed = |e: &io::Error| {
                    let lacks = [libc::EOPNOTSUPP, libc::ENOPROTOOPT].map(Some);
                    is_zerocopy || lacks.contains(&e.raw_os_error())
                };
                let set = sock::set(self.as_raw_fd(), level, name, &wanted);
                if let Some(e) = set.err().filter(is_needed) {
                    return Err(e);
                }
            }
        }
        let number = |name| sock::get(self.fd, libc::SOL_SOCKET, name).ok()?.number();
        let locked = number(SO_BUF_LOCK).unwrap_or(0);
        for (lock, name) in [
            (SNDBUF_LOCK, libc::SO_SNDBUF),
            (RCVBUF_LOCK, libc::SO_RCVBUF),
        ] {
            if let (true, Some(bytes)) = (locked & lock != 0, number(name)) {
                // The kernel reports twice the size that was set.
                let bytes = Value::of(bytes / 2);
                let _ = sock::set(self.as_raw_fd(), libc::SOL_SOCKET, name, &bytes);
            }
        }
        Ok(())
    }

    fn take_flags(&self) -> io::Result<()> {
        // SAFETY: These commands take and return integers.
        unsafe {
            // The kernel remembers the descriptor at which O_ASYNC is set, and tells it with each
            // signal: so replace() sets it.
            let flags = sock::result(libc::fcntl(self.fd, libc::F_GETFL))? & !libc::O_ASYNC;
            sock::result(libc::fcntl(self.as_raw_fd(), libc::F_SETFL, flags))?;
            let signal = sock::result(libc::fcntl(self.fd, F_GETSIG))?;
            sock::result(libc::fcntl(self.as_raw_fd(), F_SETSIG, signal))?;
        }
        let owner = Owner::of(self.fd)?;
        if owner.pid != 0 {
            owner.set(self.as_raw_fd())?;
        }
        Ok(())
    }

    fn take_address(&self) -> io::Result<()> {
        let local = RawAddr::local(self.fd)?;
        let is_bound =
            |addr: &std::net::SocketAddr| addr.port() != 0 || !addr.ip().is_unspecified();
        match local.parse().filter(is_bound) {
            None => Ok(()),
            Some(addr) if addr.port() != 0 && noted().chosen_ports.contains(self.tcp) => {
                self.have_chosen(&local, addr.port())
            }
            Some(_) => self.bind(&local),
        }
    }

    fn bind(&self, addr: &RawAddr) -> io::Result<()> {
        sock::bind(self.as_raw_fd(), addr)
    }

    /// Has the kernel choose the port that it has chosen for the TCP socket: such a port is
    /// released when a listener is shut down, unlike a port that the program has chosen.
    fn have_chosen(&self, local: &RawAddr, port: u16) -> io::Result<()> {
        with_port_chosen(self.as_raw_fd(), port, || self.bind(&local.with_port(0)))?;
        let got = RawAddr::local(self.as_raw_fd())?.parse();
        // The port differs if the range of the namespace has changed meanwhile.
        match got.is_some_and(|got| got.port() == port) {
            true => Ok(()),
            false => Err(io::Error::from_raw_os_error(libc::EADDRINUSE)),
        }
    }

    /// Replaces the TCP socket, whose descriptor is thereby closed.
    ///
    /// # Errors
    ///
    /// `EBADF` if another thread has closed the TCP socket meanwhile.
    pub(crate) fn replace(self) -> io::Result<()> {
        let flags = watched::keep_during(self.fd, self.tcp, || {
            // SAFETY: The commands return integers. Both are descriptors of the program; the old
            // file is closed as by dup2().
            unsafe {
                let flags = sock::result(libc::fcntl(self.fd, libc::F_GETFL))?;
                let of_descriptor = sock::result(libc::fcntl(self.fd, libc::F_GETFD))?;
                let keep = match of_descriptor & libc::FD_CLOEXEC != 0 {
                    true => libc::O_CLOEXEC,
                    false => 0,
                };
                sock::result(libc::dup3(self.as_raw_fd(), self.fd, keep))?;
                Ok(flags)
            }
        })?;
        if flags & libc::O_ASYNC != 0 {
            // SAFETY: The command takes an integer.
            sock::result(unsafe { libc::fcntl(self.fd, libc::F_SETFL, flags) })?;
        }
        Ok(())
    }
}

/// Has the kernel choose this port when `bind` binds the socket to port 0.
///
/// # Errors
///
/// Those of `bind` and of the socket option.
pub(crate) fn with_port_chosen(
    fd: RawFd,
    port: u16,
    bind: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let range = |value: &Value| sock::set(fd, libc::IPPROTO_IP, IP_LOCAL_PORT_RANGE, value);
    let usual = sock::get(fd, libc::IPPROTO_IP, IP_LOCAL_PORT_RANGE)?;
    range(&Value::of_ports(port, port))?;
    let bound = bind();
    range(&usual)?;
    bound
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_file_opened_meanwhile_is_kept() {
        let tcp = sock::open(libc::AF_INET).unwrap();
        let fd = tcp.as_raw_fd();
        let twin = Twin {
            // Any socket will do.
            sdp: sock::open(libc::AF_INET).unwrap(),
            fd,
            tcp: File::of(fd).unwrap(),
            usual_reuse: None,
        };
        let null = fs::File::open("/dev/null").unwrap();
        let lock = noted();
        let replacing = thread::spawn(|| twin.replace());
        // Let the other thread wait for the lock.
        thread::sleep(Duration::from_millis(200));
        // SAFETY: Both are descriptors of this test.
        sock::result(unsafe { libc::dup2(null.as_raw_fd(), fd) }).unwrap();
        drop(lock);
        let replaced = replacing.join().unwrap();
        assert_eq!(replaced.unwrap_err().raw_os_error(), Some(libc::EBADF));
        let kept = File::of(fd).unwrap();
        assert_eq!(kept, File::of(null.as_raw_fd()).unwrap());
    }
}
