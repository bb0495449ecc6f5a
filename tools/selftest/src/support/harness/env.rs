// SPDX-License-Identifier: GPL-2.0
//! The environment of a test: the family, the two machines, and the sizes; and the first steps that
//! most tests share.

use super::{failed, skip, Fail};
use crate::support::peer::{Peer, Remote};
use crate::support::sys::{Sock, SockAddr};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use uapi::socket::{AF_INET6_SDP, AF_INET_SDP, IPPROTO_SDP};

pub(crate) const ANY4: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
pub(crate) const ANY6: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
pub(crate) const LOOPBACK4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
pub(crate) const LOOPBACK6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// The sockets under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Family {
    /// AF_INET and AF_INET6: TCP, for which every test must pass.
    Tcp,
    /// Families 27 and 28: SDP.
    Sdp,
}

static BY_PROTOCOL: AtomicBool = AtomicBool::new(false);

/// From now on, opens SDP sockets as AF_INET and AF_INET6 sockets with SDP's protocol number.
pub(crate) fn open_by_protocol() {
    BY_PROTOCOL.store(true, Ordering::Relaxed);
}

impl Family {
    /// Whether the sockets of this family are opened as AF_INET or AF_INET6 sockets.
    pub(crate) fn is_inet(self) -> bool {
        self == Family::Tcp || BY_PROTOCOL.load(Ordering::Relaxed)
    }

    /// The domain that socket() needs for an IP address.
    pub(crate) fn domain(self, ip: IpAddr) -> i32 {
        match (self.is_inet(), ip.is_ipv4()) {
            (true, true) => libc::AF_INET,
            (true, false) => libc::AF_INET6,
            (false, true) => AF_INET_SDP,
            (false, false) => AF_INET6_SDP,
        }
    }

    /// The protocols that socket() takes for a stream. All of them have the same meaning.
    pub(crate) fn protocols(self) -> &'static [i32] {
        match self {
            Family::Sdp if self.is_inet() => &[IPPROTO_SDP],
            _ => &[0, libc::IPPROTO_TCP],
        }
    }

    /// One of [`Family::protocols`].
    pub(crate) fn protocol(self) -> i32 {
        self.protocols()[0]
    }

    pub(crate) fn socket(self, ip: IpAddr) -> io::Result<Sock> {
        Sock::new(self.domain(ip), libc::SOCK_STREAM, self.protocol())
    }
}

/// The documented differences between SDP and TCP. All differences are listed here, and a test that
/// depends on a difference asks for it here.
pub(crate) mod differences {
    use super::Family;
    use uapi::socket::IPPROTO_SDP;

    /// Whether a client that finds the backlog full may be reset after connect(). In TCP it may
    /// (SYN cookies); in SDP it waits.
    pub(crate) fn full_backlog_may_reset(family: Family) -> bool {
        family == Family::Tcp
    }

    /// The errors of connect() to loopback in a namespace without a listener, or without a device
    /// that is up. SDP has no RDMA device there.
    pub(crate) fn nobody_at_loopback(family: Family) -> &'static [i32] {
        match family {
            Family::Tcp => &[libc::ECONNREFUSED, libc::ENETUNREACH],
            Family::Sdp => &[libc::ECONNREFUSED, libc::ENETUNREACH, libc::ENODEV],
        }
    }

    /// Whether connections go over iWARP. The kernel's iWARP CM loses the pending requests of a
    /// listener that is closed, and a connection becomes available to accept() only when its first
    /// message has arrived.
    pub(crate) fn over_iwarp(family: Family) -> bool {
        let is_rnic = |device: std::fs::DirEntry| {
            let kind = std::fs::read_to_string(device.path().join("node_type"));
            kind.is_ok_and(|kind| kind.contains("RNIC"))
        };
        let devices = std::fs::read_dir("/sys/class/infiniband").into_iter();
        family == Family::Sdp && devices.flatten().flatten().any(is_rnic)
    }

    /// Whether a copy holds the socket's lock during a page fault. TCP does, however long the page
    /// is missing.
    pub(crate) fn holds_lock_in_faults(family: Family) -> bool {
        family == Family::Tcp
    }

    /// Whether a connection request that finds the backlog full waits at the listener, and is
    /// answered as soon as there is room. TCP drops the request, and the client repeats it after 1,
    /// 3, 7... seconds (`TCP_TIMEOUT_INIT`).
    pub(crate) fn requests_wait_at_listener(family: Family) -> bool {
        family == Family::Sdp
    }

    /// Whether the end of a listener resets its deferred connections at once. In SDP a deferred
    /// connection exists, and ends with the listener. In TCP it is only a request, and the peer
    /// learns of the end when it sends something.
    pub(crate) fn resets_deferred_at_once(family: Family) -> bool {
        family == Family::Sdp
    }

    /// Whether options about packets are refused. Headers and filters of packets mean nothing to a
    /// connection over RDMA.
    pub(crate) fn refuses_packet_options(family: Family) -> bool {
        family == Family::Sdp
    }

    /// Whether 27 and 28 are valid families in an address, in addition to AF_INET and AF_INET6.
    pub(crate) fn takes_sdp_addresses(family: Family) -> bool {
        family == Family::Sdp
    }

    /// The value of SO_PROTOCOL: IPPROTO_TCP, or SDP's own number, even if the socket was opened
    /// with protocol 6.
    pub(crate) fn protocol(family: Family) -> i32 {
        match family {
            Family::Tcp => libc::IPPROTO_TCP,
            Family::Sdp => IPPROTO_SDP,
        }
    }
}

/// The environment of a test.
#[derive(Clone, Debug)]
pub(crate) struct Env {
    pub(crate) family: Family,
    /// This machine's address.
    pub(crate) local: IpAddr,
    /// The peer's address; equals `local` if both ends are on this machine.
    pub(crate) remote: IpAddr,
    pub(crate) local6: Option<IpAddr>,
    pub(crate) remote6: Option<IpAddr>,
    /// The control addresses of the peer's server and of this machine's server.
    pub(crate) peer_control: SocketAddr,
    pub(crate) here_control: SocketAddr,
    /// A file that the caller of the program creates after it has delayed Reads as a note asked.
    pub(crate) delays: Option<PathBuf>,
    /// Factor for the amounts of data and the numbers of rounds.
    pub(crate) scale: f64,
    /// Factor for limits of time.
    pub(crate) timeout_scale: f64,
    /// The time that the tests of random calls take together; `None` for a few seconds, as `scale`
    /// says.
    pub(crate) random_time: Option<Duration>,
    pub(crate) seed: u64,
}

impl Env {
    /// `amount` times the scale, but at least one.
    pub(crate) fn scaled(&self, amount: u64) -> u64 {
        ((amount as f64 * self.scale) as u64).max(1)
    }

    /// The network card that has this machine's address.
    pub(crate) fn network_card(&self) -> Result<String, Fail> {
        let local = self.local.to_string();
        let output = Command::new("ip")
            .args(["-o", "addr", "show", "to", &local])
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        // 2: eth0    inet 10.27.0.1/24 ...
        match text.split_whitespace().nth(1) {
            Some(name) => Ok(name.to_owned()),
            None => failed(format!("no network card has {local}")),
        }
    }

    pub(crate) fn has_ipv6(&self) -> Result<(IpAddr, IpAddr), Fail> {
        match (self.local6, self.remote6) {
            (Some(local), Some(remote)) => Ok((local, remote)),
            _ => skip("no IPv6 address was given"),
        }
    }

    /// This environment with both ends on this machine, at its IPv4 loopback address.
    pub(crate) fn on_loopback(&self) -> Env {
        self.with_ips(LOOPBACK4, LOOPBACK4)
    }

    /// This environment with both ends on this machine, at its IPv6 loopback address.
    pub(crate) fn on_loopback6(&self) -> Result<Env, Fail> {
        if self.local6.is_none() {
            return skip("this machine has no IPv6");
        }
        Ok(self.with_ips(LOOPBACK6, LOOPBACK6))
    }

    /// This environment over IPv6.
    pub(crate) fn over_ipv6(&self) -> Result<Env, Fail> {
        let (local, remote) = self.has_ipv6()?;
        Ok(self.with_ips(local, remote))
    }

    fn with_ips(&self, local: IpAddr, remote: IpAddr) -> Env {
        let mut env = self.clone();
        if local == remote {
            env.peer_control = env.here_control;
        }
        env.local = local;
        env.remote = remote;
        env
    }

    /// A new session on the peer.
    pub(crate) fn peer(&self) -> io::Result<Peer> {
        Peer::open(self.peer_control)
    }

    /// A socket on this machine.
    pub(crate) fn socket(&self) -> io::Result<Sock> {
        self.family.socket(self.local)
    }

    /// A socket in a session on the peer.
    pub(crate) fn remote_socket(&self, peer: &Peer) -> io::Result<Remote> {
        let domain = self.family.domain(self.remote);
        peer.socket(domain, libc::SOCK_STREAM, self.family.protocol())
    }

    /// This machine's address with a port.
    pub(crate) fn here(&self, port: u16) -> SockAddr {
        (self.local, port).into()
    }

    /// The peer's address with a port.
    pub(crate) fn there(&self, port: u16) -> SockAddr {
        (self.remote, port).into()
    }

    /// A listener on this machine, at a port that the kernel chooses.
    pub(crate) fn listener(&self, backlog: i32) -> io::Result<(Sock, SockAddr)> {
        let sock = self.socket()?;
        sock.bind(&self.here(0))?;
        sock.listen(backlog)?;
        let addr = sock.getsockname()?;
        Ok((sock, addr))
    }

    /// A listener in a new session on the peer.
    pub(crate) fn remote_listener(&self, backlog: i32) -> io::Result<(Remote, SockAddr)> {
        let sock = self.remote_socket(&self.peer()?)?;
        sock.bind(&self.there(0))?;
        sock.listen(backlog)?;
        let addr = sock.getsockname()?;
        Ok((sock, addr))
    }

    /// A connection whose socket on this side connects and whose peer accepts.
    pub(crate) fn pair(&self) -> io::Result<(Sock, Remote)> {
        self.pair_with(|_| Ok(()), |_| Ok(()))
    }

    /// A connection whose sockets are prepared before it is made: this side's socket before
    /// connect(), the peer's listener before listen().
    pub(crate) fn pair_with(
        &self,
        ours: impl FnOnce(&Sock) -> io::Result<()>,
        theirs: impl FnOnce(&Remote) -> io::Result<()>,
    ) -> io::Result<(Sock, Remote)> {
        let listener = self.remote_socket(&self.peer()?)?;
        theirs(&listener)?;
        listener.bind(&self.there(0))?;
        listener.listen(1)?;
        let sock = self.socket()?;
        ours(&sock)?;
        sock.connect(&listener.getsockname()?)?;
        let (remote, _) = listener.accept()?;
        listener.close()?;
        Ok((sock, remote))
    }

    /// A connection whose peer connects and whose socket on this side is accepted.
    pub(crate) fn accepted_pair(&self) -> io::Result<(Sock, Remote)> {
        let (listener, addr) = self.listener(1)?;
        let remote = self.remote_socket(&self.peer()?)?;
        remote.connect(&addr)?;
        let (sock, _) = listener.accept()?;
        Ok((sock, remote))
    }

    /// A connection with both ends in this process, over this machine's own address.
    pub(crate) fn own_pair(&self) -> io::Result<(Sock, Sock)> {
        let (listener, addr) = self.listener(1)?;
        let sock = self.socket()?;
        sock.connect(&addr)?;
        let (other, _) = listener.accept()?;
        Ok((sock, other))
    }
}
