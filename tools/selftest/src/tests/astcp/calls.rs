// SPDX-License-Identifier: GPL-2.0
//! The calls that are compared.

use super::Subject;
use crate::support::sys::{SockAddr, PAGE};
use libc::{
    IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, MSG_DONTWAIT, MSG_NOSIGNAL, MSG_PEEK, SOL_SOCKET,
};
use std::io;

type Act = Box<dyn Fn(&Subject) -> io::Result<String>>;

/// A call that can be made on any socket.
pub(super) struct Call {
    pub(super) name: String,
    pub(super) act: Act,
}

impl Call {
    fn new(name: String, act: impl Fn(&Subject) -> io::Result<String> + 'static) -> Call {
        let act = Box::new(act);
        Call { name, act }
    }
}

/// Places in a subject's memory: a length, an address, a value, and the page without access.
const LEN: usize = 0;
const ADDRESS: usize = 512;
const VALUE: usize = 1024;
const NO_ACCESS: usize = PAGE;

fn done<T>(result: io::Result<T>) -> io::Result<String> {
    result.map(|_| "done".to_owned())
}

fn number<T: ToString>(result: io::Result<T>) -> io::Result<String> {
    result.map(|n| n.to_string())
}

/// A pointer that a call gets.
#[derive(Clone, Copy, Debug)]
enum At {
    /// A part of the page.
    Page(usize),
    /// The same number for all sockets.
    Fixed(usize),
}

impl At {
    const BAD: [At; 3] = [
        At::Fixed(1),
        At::Fixed(usize::MAX - 4095),
        At::Page(NO_ACCESS),
    ];

    fn of(self, subject: &Subject) -> usize {
        match self {
            At::Page(offset) => subject.at(offset),
            At::Fixed(address) => address,
        }
    }
}

pub(in crate::tests) struct Opt {
    pub(in crate::tests) level: i32,
    pub(in crate::tests) option: i32,
    pub(in crate::tests) name: &'static str,
}

macro_rules! options {
    ($($level:ident: $($option:ident),+;)+) => {
        &[$($(Opt {
            level: $level,
            option: libc::$option,
            name: concat!(stringify!($level), " ", stringify!($option)),
        }),+),+]
    };
}

pub(in crate::tests) const OPTIONS: &[Opt] = options! {
    SOL_SOCKET: SO_DEBUG, SO_REUSEADDR, SO_TYPE, SO_ERROR, SO_DONTROUTE, SO_BROADCAST, SO_SNDBUF,
        SO_RCVBUF, SO_KEEPALIVE, SO_OOBINLINE, SO_NO_CHECK, SO_PRIORITY, SO_LINGER, SO_BSDCOMPAT,
        SO_REUSEPORT, SO_PASSCRED, SO_PEERCRED, SO_RCVLOWAT, SO_SNDLOWAT, SO_RCVTIMEO, SO_SNDTIMEO,
        SO_BINDTODEVICE, SO_ATTACH_FILTER, SO_DETACH_FILTER, SO_PEERNAME, SO_TIMESTAMP,
        SO_ACCEPTCONN, SO_PEERSEC, SO_SNDBUFFORCE, SO_RCVBUFFORCE, SO_PASSSEC, SO_TIMESTAMPNS,
        SO_MARK, SO_TIMESTAMPING, SO_PROTOCOL, SO_DOMAIN, SO_RXQ_OVFL, SO_WIFI_STATUS, SO_PEEK_OFF,
        SO_NOFCS, SO_LOCK_FILTER, SO_SELECT_ERR_QUEUE, SO_BUSY_POLL, SO_MAX_PACING_RATE,
        SO_BPF_EXTENSIONS, SO_INCOMING_CPU, SO_ATTACH_BPF, SO_ATTACH_REUSEPORT_CBPF,
        SO_ATTACH_REUSEPORT_EBPF, SO_CNX_ADVICE, SO_MEMINFO, SO_INCOMING_NAPI_ID, SO_COOKIE,
        SO_PEERGROUPS, SO_ZEROCOPY, SO_TXTIME, SO_BINDTOIFINDEX, SO_PREFER_BUSY_POLL,
        SO_BUSY_POLL_BUDGET;
    IPPROTO_IP: IP_TOS, IP_TTL, IP_HDRINCL, IP_OPTIONS, IP_ROUTER_ALERT, IP_RECVOPTS, IP_RETOPTS,
        IP_PKTINFO, IP_PKTOPTIONS, IP_MTU_DISCOVER, IP_RECVERR, IP_RECVTTL, IP_RECVTOS, IP_MTU,
        IP_FREEBIND, IP_TRANSPARENT, IP_RECVORIGDSTADDR, IP_MINTTL, IP_NODEFRAG, IP_CHECKSUM,
        IP_BIND_ADDRESS_NO_PORT, IP_MULTICAST_IF, IP_MULTICAST_TTL, IP_MULTICAST_LOOP,
        IP_ADD_MEMBERSHIP, IP_DROP_MEMBERSHIP, IP_MSFILTER, IP_MULTICAST_ALL, IP_UNICAST_IF,
        MCAST_JOIN_GROUP, MCAST_MSFILTER, IP_IPSEC_POLICY, IP_XFRM_POLICY;
    IPPROTO_IPV6: IPV6_ADDRFORM, IPV6_2292PKTINFO, IPV6_UNICAST_HOPS, IPV6_MULTICAST_IF,
        IPV6_MULTICAST_HOPS, IPV6_MULTICAST_LOOP, IPV6_ADD_MEMBERSHIP, IPV6_MTU_DISCOVER, IPV6_MTU,
        IPV6_RECVERR, IPV6_V6ONLY, IPV6_RECVPKTINFO, IPV6_RECVHOPLIMIT, IPV6_HOPOPTS, IPV6_RTHDRDSTOPTS, IPV6_RTHDR,
        IPV6_DSTOPTS, IPV6_RECVTCLASS, IPV6_TCLASS, IPV6_AUTOFLOWLABEL, IPV6_TRANSPARENT,
        IPV6_FREEBIND, IPV6_IPSEC_POLICY, IPV6_XFRM_POLICY, IPV6_2292PKTOPTIONS;
    IPPROTO_TCP: TCP_NODELAY, TCP_MAXSEG, TCP_CORK, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT,
        TCP_SYNCNT, TCP_LINGER2, TCP_DEFER_ACCEPT, TCP_WINDOW_CLAMP, TCP_INFO, TCP_QUICKACK,
        TCP_CONGESTION, TCP_MD5SIG, TCP_THIN_LINEAR_TIMEOUTS, TCP_THIN_DUPACK, TCP_USER_TIMEOUT,
        TCP_REPAIR, TCP_REPAIR_QUEUE, TCP_QUEUE_SEQ, TCP_REPAIR_OPTIONS, TCP_FASTOPEN,
        TCP_TIMESTAMP, TCP_NOTSENT_LOWAT, TCP_CC_INFO, TCP_SAVE_SYN, TCP_SAVED_SYN,
        TCP_REPAIR_WINDOW, TCP_FASTOPEN_CONNECT, TCP_ULP, TCP_MD5SIG_EXT, TCP_FASTOPEN_KEY,
        TCP_FASTOPEN_NO_COOKIE, TCP_INQ;
};

/// Options that have no name in libc, and levels and options that do not exist.
pub(in crate::tests) const UNKNOWN: &[Opt] = &[
    unknown(IPPROTO_TCP, 37, "IPPROTO_TCP TCP_TX_DELAY"),
    unknown(SOL_SOCKET, 74, "SOL_SOCKET SO_TXREHASH"),
    unknown(SOL_SOCKET, 80, "SOL_SOCKET SO_DEVMEM_DONTNEED"),
    unknown(IPPROTO_IPV6, 72, "IPPROTO_IPV6 IPV6_ADDR_PREFERENCES"),
    unknown(SOL_SOCKET, 9999, "SOL_SOCKET 9999"),
    unknown(SOL_SOCKET, -1, "SOL_SOCKET -1"),
    unknown(IPPROTO_TCP, 9999, "IPPROTO_TCP 9999"),
    unknown(IPPROTO_TCP, -1, "IPPROTO_TCP -1"),
    unknown(IPPROTO_TCP, 79, "IPPROTO_TCP 79"),
    unknown(IPPROTO_IP, 9999, "IPPROTO_IP 9999"),
    unknown(IPPROTO_IPV6, 9999, "IPPROTO_IPV6 9999"),
    unknown(9999, 1, "level 9999"),
    unknown(-1, -1, "level -1"),
    unknown(libc::IPPROTO_UDP, 1, "level IPPROTO_UDP"),
    unknown(libc::SOL_TLS, 1, "level SOL_TLS"),
    unknown(257, 2, "level 257"),
];

const fn unknown(level: i32, option: i32, name: &'static str) -> Opt {
    Opt {
        level,
        option,
        name,
    }
}

/// Options that are not set to good values, because these would have effects beyond the option
/// itself.
pub(in crate::tests) const NOT_SET: &[&str] = &[
    // The peer could not be reached any more.
    "SOL_SOCKET SO_BINDTOIFINDEX",
    "IPPROTO_IP IP_TTL",
    "IPPROTO_IPV6 IPV6_UNICAST_HOPS",
    "IPPROTO_TCP TCP_REPAIR",
    // TCP would stop sending.
    "SOL_SOCKET SO_MAX_PACING_RATE",
    // TCP would end a connection whose peer is silent, or not make the connection.
    "IPPROTO_TCP TCP_SYNCNT",
    "IPPROTO_TCP TCP_USER_TIMEOUT",
    "IPPROTO_TCP TCP_KEEPIDLE",
    "IPPROTO_TCP TCP_KEEPINTVL",
    // TCP also counts bytes of an earlier connection.
    "IPPROTO_TCP TCP_NOTSENT_LOWAT",
];

/// The scripts of calls. Each of them needs a new socket, because its calls may change the state.
/// The calls of the first two do not.
pub(super) fn scripts() -> Vec<Vec<Call>> {
    let mut harmless = vec![];
    harmless.extend(names());
    harmless.extend(polls());
    harmless.extend(bad_binds());
    harmless.extend(bad_connects());
    harmless.extend(bad_listens_and_shutdowns());
    harmless.extend(bad_accepts());
    harmless.extend(ioctls());
    harmless.extend(receives());
    harmless.extend(sends());
    let mut options = vec![];
    for opt in OPTIONS.iter().chain(UNKNOWN) {
        options.extend(gets(opt));
        options.extend(sets(opt));
    }
    vec![
        harmless,
        options,
        vec![
            shutdown(libc::SHUT_RD),
            send(0),
            recv(0),
            shutdown(libc::SHUT_WR),
            recv(0),
            send(0),
            shutdown(libc::SHUT_RDWR),
            peer_name(),
        ],
        vec![
            unspec(2),
            send(0),
            recv(0),
            peer_name(),
            bind(),
            listen(1),
            accept(0),
            connect(|s| s.there, "a listener"),
            unspec(16),
            bind(),
        ],
        vec![
            connect(|s| s.there, "a listener"),
            writable(),
            error(),
            connect(|s| s.there, "a listener, again"),
            connect(|s| s.there, "a listener, once more"),
            send(0),
        ],
        vec![
            connect(|s| s.nobody, "nobody"),
            writable(),
            error(),
            error(),
            bind(),
            connect(|s| s.nobody, "nobody, again"),
            writable(),
            send(0),
            send(0),
            recv(0),
        ],
        vec![
            listen(1),
            accept(0),
            listen(0),
            send(0),
            shutdown(libc::SHUT_WR),
            shutdown(libc::SHUT_RD),
            bind(),
        ],
        vec![
            fast_open(|s| s.there, "a listener"),
            writable(),
            fast_open(|s| s.there, "a listener, again"),
            error(),
            peer_name(),
            send(0),
        ],
        vec![
            fast_open(|s| s.nobody, "nobody"),
            writable(),
            error(),
            fast_open(|s| s.nobody, "nobody, again"),
            writable(),
            fast_open(|s| s.nobody, "nobody, once more"),
            recv(0),
        ],
        whole_ipv6_addresses(),
    ]
}

// Calls that change the state.

fn shutdown(how: i32) -> Call {
    Call::new(format!("shutdown {how}"), move |s| {
        let result = done(s.sock.shutdown(how));
        if result.is_ok() && how != libc::SHUT_RD && s.peer_has_ended {
            s.await_end();
        }
        result
    })
}

fn send(flags: i32) -> Call {
    Call::new(format!("send with flags {flags:#010x}"), move |s| {
        number(s.sock.send(b"x", flags | MSG_NOSIGNAL))
    })
}

fn recv(flags: i32) -> Call {
    Call::new(format!("recv with flags {flags:#010x}"), move |s| {
        number(s.sock.recv(&mut [0; 3], flags))
    })
}

fn listen(backlog: i32) -> Call {
    Call::new(format!("listen {backlog}"), move |s| {
        done(s.sock.listen(backlog))
    })
}

fn accept(flags: i32) -> Call {
    Call::new(format!("accept with flags {flags:#010x}"), move |s| {
        done(s.sock.accept4(flags))
    })
}

fn bind() -> Call {
    Call::new("bind".to_owned(), |s| {
        s.retry(|| s.sock.bind(&s.here))?;
        Ok("done".to_owned())
    })
}

fn unspec(len: usize) -> Call {
    Call::new(format!("connect to AF_UNSPEC, {len} bytes"), move |s| {
        let to = s.here.with_family(libc::AF_UNSPEC).with_len(len);
        done(s.sock.connect(&to))
    })
}

fn connect(to: fn(&Subject) -> SockAddr, name: &str) -> Call {
    Call::new(format!("connect to {name}"), move |s| {
        done(begun(s, s.sock.connect(&to(s))))
    })
}

fn fast_open(to: fn(&Subject) -> SockAddr, name: &str) -> Call {
    Call::new(format!("send with MSG_FASTOPEN to {name}"), move |s| {
        number(begun(s, s.sock.sendto(b"x", &to(s), libc::MSG_FASTOPEN)))
    })
}

/// Records whether a connection is being made.
fn begun<T>(s: &Subject, result: io::Result<T>) -> io::Result<T> {
    let errno = result.as_ref().err().and_then(io::Error::raw_os_error);
    s.connects.set(errno == Some(libc::EINPROGRESS));
    result
}

/// Waits for the end of a connect(), if one has begun.
fn writable() -> Call {
    Call::new("poll for output".to_owned(), |s| {
        let ms = if s.connects.get() { 10_000 } else { 0 };
        number(s.sock.poll(libc::POLLOUT, ms))
    })
}

fn error() -> Call {
    Call::new("SO_ERROR".to_owned(), |s| number(s.sock.take_error()))
}

fn peer_name() -> Call {
    Call::new("getpeername".to_owned(), |s| done(s.sock.getpeername()))
}

// Calls that do not change the state.

fn names() -> Vec<Call> {
    let mut calls = vec![];
    for (peer, what) in [(false, "getsockname"), (true, "getpeername")] {
        for len in [0, 1, 2, 4, 16, 28, 128, 4096, -1, i32::MIN] {
            calls.push(Call::new(format!("{what} of {len} bytes"), move |s| {
                s.write(ADDRESS, &[0xee; 128]);
                let given = s.sock.name_raw(peer, s.at(ADDRESS), len)?;
                let bytes = s.read(ADDRESS, 128);
                let family = u16::from_ne_bytes([bytes[0], bytes[1]]);
                let has_port = bytes[2..4] != [0, 0];
                let written = bytes.iter().filter(|&&b| b != 0xee).count();
                let is_whole = written > 7;
                Ok(format!(
                    "{given} bytes, family {family}, port {has_port}, all {is_whole}"
                ))
            }));
        }
        for at in At::BAD {
            for len in [0, 16] {
                let name = format!("{what} of {len} bytes at {at:?}");
                calls.push(Call::new(name, move |s| {
                    number(s.sock.name_raw(peer, at.of(s), len))
                }));
            }
        }
    }
    calls
}

fn polls() -> Vec<Call> {
    let events = [
        0,
        libc::POLLIN,
        libc::POLLOUT,
        libc::POLLPRI,
        libc::POLLRDHUP,
    ];
    let others = [
        libc::POLLRDNORM,
        libc::POLLRDBAND,
        libc::POLLWRNORM,
        libc::POLLWRBAND,
    ];
    let call = |events: i16| {
        Call::new(format!("poll for {events:#x}"), move |s| {
            number(s.sock.poll(events, 0))
        })
    };
    events.into_iter().chain(others).map(call).collect()
}

/// Families and lengths of addresses that are wrong for IPv4, for IPv6, or for both.
const WRONG: &[(i32, &[i32])] = &[
    (libc::AF_INET, &[-1, 0, 1, 2, 8, 15, 129, 4096]),
    (libc::AF_UNIX, &[0, 1, 2, 15, 16, 23, 24, 28, 128, 129]),
    (libc::AF_INET6, &[2, 15, 16, 23]),
    (99, &[2, 15, 16, 24, 28, 128, -1]),
    (0xffff, &[2, 16, 28]),
];

fn family_name(family: i32) -> String {
    match family {
        libc::AF_UNSPEC => "AF_UNSPEC".to_owned(),
        libc::AF_INET => "AF_INET".to_owned(),
        libc::AF_INET6 => "AF_INET6".to_owned(),
        libc::AF_UNIX => "AF_UNIX".to_owned(),
        other => other.to_string(),
    }
}

/// Writes 192.0.2.1, or 2001:db8:: for AF_INET6, to the memory. No machine has these addresses.
fn place_address(s: &Subject, family: i32) {
    let mut bytes = [0; 128];
    bytes[..2].copy_from_slice(&(family as u16).to_ne_bytes());
    bytes[3] = 9;
    match family {
        libc::AF_INET6 => bytes[8..12].copy_from_slice(&[0x20, 1, 0xd, 0xb8]),
        _ => bytes[4..8].copy_from_slice(&[192, 0, 2, 1]),
    }
    s.write(ADDRESS, &bytes);
}

fn bad_binds() -> Vec<Call> {
    let mut calls = vec![];
    let whole = [
        (libc::AF_INET, 16),
        (libc::AF_INET, 128),
        (libc::AF_UNSPEC, 2),
        (libc::AF_UNSPEC, 16),
        (libc::AF_UNSPEC, 28),
    ];
    let wrong = WRONG
        .iter()
        .flat_map(|&(family, lens)| lens.iter().map(move |&len| (family, len)));
    for (family, len) in wrong.chain(whole) {
        let name = format!("bind to {}, {len} bytes", family_name(family));
        calls.push(Call::new(name, move |s| {
            place_address(s, family);
            done(s.sock.bind_raw(s.at(ADDRESS), len as u32))
        }));
    }
    for at in At::BAD {
        for len in [0, 2, 16, 129] {
            calls.push(Call::new(
                format!("bind to {len} bytes at {at:?}"),
                move |s| done(s.sock.bind_raw(at.of(s), len)),
            ));
        }
    }
    calls
}

fn bad_connects() -> Vec<Call> {
    let mut calls = vec![];
    let wrong = WRONG
        .iter()
        .flat_map(|&(family, lens)| lens.iter().map(move |&len| (family, len)));
    for (family, len) in wrong {
        let name = format!("connect to {}, {len} bytes", family_name(family));
        calls.push(Call::new(name, move |s| {
            place_address(s, family);
            done(s.sock.connect_raw(s.at(ADDRESS), len))
        }));
    }
    for at in At::BAD {
        for len in [0, 2, 16, 129] {
            let name = format!("connect to {len} bytes at {at:?}");
            calls.push(Call::new(name, move |s| {
                done(s.sock.connect_raw(at.of(s), len))
            }));
        }
    }
    calls
}

/// IPv6 addresses, which are good or bad depending on the socket. A new SDP socket is for both
/// families, and may become an IPv6 socket.
fn whole_ipv6_addresses() -> Vec<Call> {
    let mut calls = vec![];
    for len in [24, 28, 128] {
        calls.push(Call::new(format!("bind to IPv6, {len} bytes"), move |s| {
            place_address(s, libc::AF_INET6);
            done(s.sock.bind_raw(s.at(ADDRESS), len))
        }));
        calls.push(Call::new(
            format!("connect to IPv6, {len} bytes"),
            move |s| {
                place_address(s, libc::AF_INET6);
                done(s.sock.connect_raw(s.at(ADDRESS), len as i32))
            },
        ));
        let name = format!("MSG_FASTOPEN to IPv6, {len} bytes");
        calls.push(Call::new(name, move |s| {
            place_address(s, libc::AF_INET6);
            let to = (s.at(ADDRESS), len as i32);
            let flags = libc::MSG_FASTOPEN | MSG_NOSIGNAL;
            number(s.sock.sendto_raw((s.at(VALUE), 1), flags, to))
        }));
    }
    calls
}

fn bad_listens_and_shutdowns() -> Vec<Call> {
    let hows = [-1, 3, 4, 0x7fff_ffff, i32::MIN];
    let shutdowns = hows.into_iter().map(shutdown);
    let pair = Call::new("listen of a connected socket".to_owned(), |s| {
        // A socket that can listen would change its state here.
        if s.sock.getpeername().is_err() {
            return Ok("no peer".to_owned());
        }
        done(s.sock.listen(1))
    });
    shutdowns.chain([pair]).collect()
}

fn bad_accepts() -> Vec<Call> {
    let mut calls = vec![];
    for flags in [1, 2, 8, 0x8000_0000_u32 as i32, -1] {
        calls.push(accept(flags));
    }
    // The socket may be a listener without a connection, or no listener. A listener with a
    // connection loses the connection.
    for at in At::BAD {
        for len in [0, 16, -1] {
            let name = format!("accept with an address of {len} bytes at {at:?}");
            calls.push(Call::new(name, move |s| {
                done(s.sock.accept_raw(at.of(s), len))
            }));
        }
    }
    calls
}

fn ioctls() -> Vec<Call> {
    /// The request for the number of unsent bytes.
    const SIOCOUTQNSD: u64 = 0x894b;
    let mut calls = vec![];
    let requests = [
        ("FIONREAD", libc::FIONREAD),
        ("SIOCOUTQ", libc::TIOCOUTQ),
        ("SIOCATMARK", 0x8905),
        ("SIOCOUTQNSD", SIOCOUTQNSD),
        ("FIOGETOWN", 0x8903),
        ("SIOCGPGRP", 0x8904),
        ("SIOCGSTAMP", 0x8906),
        ("SIOCGSTAMPNS", 0x8907),
        ("SIOCRTMSG", 0x890d),
        ("SIOCGIFNAME", 0x8910),
        ("SIOCGIFFLAGS", 0x8913),
        ("SIOCGIFADDR", 0x8915),
        ("SIOCPROTOPRIVATE", 0x89e0),
        ("SIOCDEVPRIVATE", 0x89f0),
        ("TCGETS", 0x5401),
        ("BLKFLSBUF", 0x1261),
        ("0", 0),
        ("0xa541", 0xa541),
        ("0x89af", 0x89af),
        ("0xffffffff", 0xffff_ffff),
    ];
    for (name, request) in requests {
        calls.push(Call::new(format!("ioctl {name}"), move |s| {
            s.write(VALUE, &[0; 64]);
            let result = s.sock.ioctl_raw(request, s.at(VALUE))?;
            // Without a connection, TCP counts from the sequence number with which the next
            // connection begins.
            let nothing = name.starts_with("SIOCOUTQ") && s.sock.getpeername().is_err();
            let shown = if nothing || name.contains("STAMP") {
                0
            } else {
                8
            };
            Ok(format!("{result}, {:?}", s.read(VALUE, shown)))
        }));
        for at in At::BAD {
            calls.push(Call::new(format!("ioctl {name} at {at:?}"), move |s| {
                number(s.sock.ioctl_raw(request, at.of(s)))
            }));
        }
    }
    calls
}

/// Receives that do not consume bytes.
fn receives() -> Vec<Call> {
    let mut calls = vec![];
    for bit in 0..32 {
        let flags = 1_i32.wrapping_shl(bit);
        if flags != MSG_PEEK {
            calls.push(recv(flags | MSG_PEEK | MSG_DONTWAIT));
        }
    }
    calls.push(recv(libc::MSG_OOB));
    calls.push(recv(libc::MSG_ERRQUEUE));
    for at in At::BAD {
        for len in [0, 1, 16] {
            calls.push(Call::new(
                format!("recv of {len} bytes at {at:?}"),
                move |s| {
                    // SAFETY: nothing can be written there.
                    number(unsafe { s.sock.recv_raw(at.of(s), len, MSG_PEEK | MSG_DONTWAIT) })
                },
            ));
        }
    }
    calls.push(Call::new("recv of 0 bytes".to_owned(), |s| {
        number(s.sock.recv(&mut [], MSG_PEEK | MSG_DONTWAIT))
    }));
    for receiving in [false, true] {
        let name = format!("a message header nowhere, received {receiving}");
        calls.push(Call::new(name, move |s| {
            number(s.sock.msghdr_nowhere(receiving, 1))
        }));
    }
    calls
}

fn sends() -> Vec<Call> {
    let mut calls = vec![];
    for bit in 0..32 {
        calls.push(send(1_i32.wrapping_shl(bit)));
    }
    for at in At::BAD {
        for len in [0, 1, 16, 1 << 20, usize::MAX] {
            calls.push(Call::new(
                format!("send of {len} bytes at {at:?}"),
                move |s| number(s.sock.send_raw(at.of(s), len, MSG_NOSIGNAL)),
            ));
        }
    }
    calls.push(Call::new("send of nothing".to_owned(), |s| {
        number(s.sock.send(&[], MSG_NOSIGNAL))
    }));
    for count in [1025, usize::MAX] {
        calls.push(Call::new(format!("sendmsg of {count} vectors"), move |s| {
            number(s.sock.sendmsg_raw(s.at(VALUE), count, MSG_NOSIGNAL))
        }));
    }
    for (flags, kind) in [(0, "sendto"), (libc::MSG_FASTOPEN, "MSG_FASTOPEN")] {
        let whole = [(libc::AF_UNSPEC, 2), (libc::AF_UNSPEC, 16)];
        let wrong = WRONG
            .iter()
            .flat_map(|&(family, lens)| lens.iter().map(move |&len| (family, len)));
        for (family, len) in wrong.chain(whole) {
            let name = format!("{kind} {}, {len} bytes", family_name(family));
            calls.push(Call::new(name, move |s| {
                place_address(s, family);
                s.write(VALUE, b"x");
                let from = (s.at(VALUE), 1);
                let to = (s.at(ADDRESS), len);
                number(s.sock.sendto_raw(from, flags | MSG_NOSIGNAL, to))
            }));
        }
        for at in At::BAD {
            for len in [0, 2, 16, 129] {
                let name = format!("{kind} {len} bytes at {at:?}");
                calls.push(Call::new(name, move |s| {
                    let to = (at.of(s), len);
                    number(
                        s.sock
                            .sendto_raw((s.at(VALUE), 1), flags | MSG_NOSIGNAL, to),
                    )
                }));
            }
        }
    }
    calls
}

fn gets(opt: &Opt) -> Vec<Call> {
    let (level, option, name) = (opt.level, opt.option, opt.name);
    let mut calls = vec![];
    for len in [0, 1, 3, 4, 9, 16, 256] {
        calls.push(Call::new(
            format!("getsockopt {name}, {len} bytes"),
            move |s| {
                s.write(VALUE, &[0; 256]);
                s.write(LEN, &i32::to_ne_bytes(len));
                s.sock.get_raw_at(level, option, s.at(VALUE), s.at(LEN))?;
                let given = s.read(LEN, 4);
                let given = i32::from_ne_bytes([given[0], given[1], given[2], given[3]]);
                let shown = match super::known::is_own_value(name) {
                    true => 0,
                    false => given.clamp(0, 16) as usize,
                };
                Ok(format!("{given} bytes, {:?}", s.read(VALUE, shown)))
            },
        ));
    }
    for len in [-1, i32::MIN] {
        calls.push(Call::new(
            format!("getsockopt {name}, {len} bytes"),
            move |s| done(s.sock.get_raw(level, option, s.at(VALUE), len)),
        ));
    }
    for at in At::BAD {
        calls.push(Call::new(
            format!("getsockopt {name}, 4 bytes at {at:?}"),
            move |s| done(s.sock.get_raw(level, option, at.of(s), 4)),
        ));
        calls.push(Call::new(
            format!("getsockopt {name}, a length at {at:?}"),
            move |s| done(s.sock.get_raw_at(level, option, s.at(VALUE), at.of(s))),
        ));
    }
    calls
}

fn sets(opt: &Opt) -> Vec<Call> {
    let (level, option, name) = (opt.level, opt.option, opt.name);
    let mut calls = vec![];
    let mut values = vec![(0, 0_i32), (1, 1), (3, 1), (-1, 1), (i32::MIN, 1)];
    if !NOT_SET.contains(&name) {
        values.extend([4, 16, 64, 256].map(|len| (len, 1)));
        values.extend([(4, i32::MAX), (4, -1), (4, i32::MIN), (4, 0), (64, 0)]);
    }
    for (len, value) in values {
        calls.push(Call::new(
            format!("setsockopt {name}, {value} in {len} bytes"),
            move |s| {
                s.write(VALUE, &[0; 256]);
                s.write(VALUE, &value.to_ne_bytes());
                done(s.sock.set_raw(level, option, s.at(VALUE), len))
            },
        ));
    }
    for at in At::BAD {
        for len in [0, 3, 4, 16, -1] {
            calls.push(Call::new(
                format!("setsockopt {name}, {len} bytes at {at:?}"),
                move |s| done(s.sock.set_raw(level, option, at.of(s), len)),
            ));
        }
    }
    // Only the first four bytes of the value can be read.
    calls.push(Call::new(
        format!("setsockopt {name}, 16 bytes of which 4 can be read"),
        move |s| {
            s.write(PAGE - 4, &[0; 4]);
            done(s.sock.set_raw(level, option, s.at(PAGE - 4), 16))
        },
    ));
    calls
}
