// SPDX-License-Identifier: GPL-2.0
//! Socket options: what programs set and read on a TCP socket.

use crate::support::flow::{spawn, Span};
use crate::support::harness::{
    differences, eventually, expect, expect_eq, expect_errno, expect_errno_of, fill, joined,
    readable_bytes, receive, skip, tests, Env, Fail, Family, Outcome, ANY6,
};
use crate::support::sys::{self, Area, Epoll, Linger, Sock, PAGE};
use libc::{
    EINVAL, ENODEV, ENOPROTOOPT, IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, IPV6_2292PKTOPTIONS,
    IPV6_IPSEC_POLICY, IPV6_XFRM_POLICY, IP_IPSEC_POLICY, IP_XFRM_POLICY, POLLERR, SOL_SOCKET,
    SO_RCVBUF, SO_SNDBUF,
};
use std::io;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};
use uapi::socket::{SDP_ZCOPY_MODE, SDP_ZCOPY_THRESH, SOL_SDP};

tests!("options";
    what_the_socket_is,
    buffer_sizes,
    on_and_off,
    linger,
    timeouts,
    tcp_level,
    tcp_level_values,
    quick_acknowledgements,
    segment_sizes,
    defers_accept,
    lingers_as_long_as_it_shall,
    lingers_for_bytes_that_are_not_read,
    keepalive,
    ip_level,
    ipv6_level,
    values_of_wrong_length,
    name_of_device_at_the_end_of_memory,
    of_packets,
    what_cannot_be_obeyed,
    no_policies,
    timestamps_with_positions,
    unknown,
    nonblocking_by_ioctl,
    bytes_left,
    control_messages,
    control_messages_for_timestamps,
    least_not_sent,
    least_not_sent_of_a_peer_that_reads,
    least_not_sent_of_the_next_connection,
);

fn what_the_socket_is(env: &Env) -> Outcome {
    let domain = if env.local.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    let protocol = differences::protocol(env.family);
    for &given in env.family.protocols() {
        let sock = Sock::new(env.family.domain(env.local), libc::SOCK_STREAM, given)?;
        let get = |option| sock.get_int(SOL_SOCKET, option);
        expect_eq(get(libc::SO_DOMAIN)?, domain, "SO_DOMAIN")?;
        expect_eq(get(libc::SO_TYPE)?, libc::SOCK_STREAM, "SO_TYPE")?;
        expect_eq(get(libc::SO_PROTOCOL)?, protocol, "SO_PROTOCOL")?;
        expect_eq(get(libc::SO_ERROR)?, 0, "SO_ERROR")?;
        expect_eq(get(libc::SO_ACCEPTCONN)?, 0, "SO_ACCEPTCONN")?;
        expect_eq(sock.getsockname()?.family(), domain, "getsockname's family")?;
        let set = sock.set_int(SOL_SOCKET, libc::SO_TYPE, 1);
        expect_errno(set, ENOPROTOOPT, "setting SO_TYPE")?;
    }
    Ok(())
}

/// The kernel doubles the size that is set, within limits.
fn buffer_sizes(env: &Env) -> Outcome {
    let sock = env.socket()?;
    for option in [SO_SNDBUF, SO_RCVBUF] {
        expect(sock.get_int(SOL_SOCKET, option)? >= 4096, "a tiny default")?;
        for size in [20_000, 50_000, 10_001] {
            sock.set_int(SOL_SOCKET, option, size)?;
            expect_eq(sock.get_int(SOL_SOCKET, option)?, 2 * size, "doubled")?;
        }
        sock.set_int(SOL_SOCKET, option, 0)?;
        expect(
            sock.get_int(SOL_SOCKET, option)? >= 2048,
            "below the minimum",
        )?;
        sock.set_int(SOL_SOCKET, option, i32::MAX)?;
        let most = sock.get_int(SOL_SOCKET, option)?;
        expect(most > 50_000, "the maximum")?;
        sock.set_int(SOL_SOCKET, option, -1)?;
        expect_eq(sock.get_int(SOL_SOCKET, option)?, most, "a negative size")?;
    }
    Ok(())
}

/// Options of the socket level that are on or off.
fn on_and_off(env: &Env) -> Outcome {
    let sock = env.socket()?;
    for option in [
        libc::SO_REUSEADDR,
        libc::SO_REUSEPORT,
        libc::SO_KEEPALIVE,
        libc::SO_OOBINLINE,
        libc::SO_TIMESTAMP,
    ] {
        for value in [1, 0, 77, 0] {
            sock.set_int(SOL_SOCKET, option, value)?;
            let got = sock.get_int(SOL_SOCKET, option)?;
            expect_eq(got != 0, value != 0, format!("option {option}"))?;
        }
    }
    sock.set_int(SOL_SOCKET, libc::SO_PRIORITY, 3)?;
    expect_eq(
        sock.get_int(SOL_SOCKET, libc::SO_PRIORITY)?,
        3,
        "SO_PRIORITY",
    )
}

fn linger(env: &Env) -> Outcome {
    let sock = env.socket()?;
    let get = || -> io::Result<(i32, i32)> {
        let mut bytes = [0; 8];
        sock.get_bytes(SOL_SOCKET, libc::SO_LINGER, &mut bytes)?;
        let [a, b] =
            [&bytes[..4], &bytes[4..]].map(|b| b.try_into().map_or(-1, i32::from_ne_bytes));
        Ok((a, b))
    };
    expect_eq(get()?, (0, 0), "at first")?;
    sock.set_linger(Linger { on: true, secs: 7 })?;
    expect_eq(get()?, (1, 7), "when set")?;
    sock.set_linger(Linger { on: false, secs: 0 })?;
    expect_eq(get()?.0, 0, "when off")
}

fn timeouts(env: &Env) -> Outcome {
    let sock = env.socket()?;
    for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
        sock.set_timeout(option, 1500)?;
        let mut bytes = [0; 16];
        let len = sock.get_bytes(SOL_SOCKET, option, &mut bytes)?;
        expect_eq(len, 16, "the length")?;
        let secs = bytes[..8].try_into().map_or(-1, i64::from_ne_bytes);
        let micros = bytes[8..].try_into().map_or(-1, i64::from_ne_bytes);
        expect_eq(secs, 1, "seconds")?;
        // The kernel counts in ticks of up to 10 ms.
        expect(
            (500_000..=510_000).contains(&micros),
            format!("{micros} us"),
        )?;
        let mut bad = [0; 16];
        bad[8..].copy_from_slice(&2_000_000_i64.to_ne_bytes());
        let result = sock.set_bytes(SOL_SOCKET, option, &bad);
        expect_errno(result, libc::EDOM, "2000000 us")?;
    }
    Ok(())
}

/// Options of level IPPROTO_TCP that TCP programs set without knowing the socket's protocol.
fn tcp_level(env: &Env) -> Outcome {
    let sock = env.socket()?;
    for option in [libc::TCP_NODELAY, libc::TCP_CORK] {
        for value in [1, 0, 5, 0] {
            sock.set_int(IPPROTO_TCP, option, value)?;
            let got = sock.get_int(IPPROTO_TCP, option)?;
            expect_eq(got != 0, value != 0, format!("option {option}"))?;
        }
    }
    sock.set_int(IPPROTO_TCP, libc::TCP_USER_TIMEOUT, 30_000)?;
    let got = sock.get_int(IPPROTO_TCP, libc::TCP_USER_TIMEOUT)?;
    expect_eq(got, 30_000, "TCP_USER_TIMEOUT")?;
    // There is no protocol above TCP.
    let mut name = [0xee; 16];
    let len = sock.get_bytes(IPPROTO_TCP, libc::TCP_ULP, &mut name)?;
    expect_eq((len, name), (0, [0xee; 16]), "TCP_ULP")
}

/// The values that options have after they were set, and the values that are refused.
fn tcp_level_values(env: &Env) -> Outcome {
    let sock = env.socket()?;
    let get = |option| sock.get_int(IPPROTO_TCP, option);
    let set = |option, value| sock.set_int(IPPROTO_TCP, option, value);
    for (option, first, values) in [
        (libc::TCP_SYNCNT, 6, [(1, 1), (127, 127), (3, 3)]),
        (libc::TCP_LINGER2, 60, [(-5, -1), (121, 120), (0, 60)]),
        (
            libc::TCP_WINDOW_CLAMP,
            0,
            [(5000, 5000), (1 << 30, 1 << 30), (0, 0)],
        ),
    ] {
        expect_eq(get(option)?, first, format!("option {option} at first"))?;
        for (value, want) in values {
            set(option, value)?;
            expect_eq(get(option)?, want, format!("option {option} = {value}"))?;
        }
    }
    for bad in [0, -1, 128] {
        expect_errno(
            set(libc::TCP_SYNCNT, bad),
            EINVAL,
            format!("TCP_SYNCNT {bad}"),
        )?;
    }
    set(libc::TCP_WINDOW_CLAMP, -1)?;
    let least = get(libc::TCP_WINDOW_CLAMP)?;
    expect(
        (1000..=2000).contains(&least),
        format!("the least clamp: {least}"),
    )?;
    let (sock, _remote) = env.pair()?;
    let none = sock.set_int(IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, 0);
    expect_errno(none, EINVAL, "no clamp, when connected")
}

/// TCP_QUICKACK is on at first, and after listen() and connect(). TCP itself changes it when bytes are
/// sent and received.
fn quick_acknowledgements(env: &Env) -> Outcome {
    let get = |sock: &Sock| sock.get_int(IPPROTO_TCP, libc::TCP_QUICKACK);
    let set = |sock: &Sock, value| sock.set_int(IPPROTO_TCP, libc::TCP_QUICKACK, value);
    let keeps = |sock: &Sock, what: &str| -> Outcome {
        expect_eq(get(sock)?, 1, format!("{what}, at first"))?;
        for (value, want) in [(0, 0), (1, 1), (0, 0), (2, 1), (0, 0), (-1, 1), (0, 0)] {
            set(sock, value)?;
            expect_eq(get(sock)?, want, format!("{what}, set to {value}"))?;
        }
        Ok(())
    };
    let listener = env.socket()?;
    keeps(&listener, "a new socket")?;
    listener.bind(&env.here(0))?;
    listener.listen(2)?;
    keeps(&listener, "a listener")?;
    listener.listen(3)?;
    expect_eq(get(&listener)?, 0, "after another listen()")?;
    let addr = listener.getsockname()?;
    let sock = env.socket()?;
    set(&sock, 0)?;
    sock.connect(&addr)?;
    keeps(&sock, "a connection")?;
    let (accepted, _) = listener.accept()?;
    expect_eq(get(&accepted)?, 0, "accepted: as the listener")?;
    sock.connect(&env.here(0).with_family(libc::AF_UNSPEC))?;
    keeps(&sock, "a socket that was disconnected")
}

/// TCP_MAXSEG reads as the value that was set while the socket has no connection; then it is the
/// size that both ends have agreed on.
fn segment_sizes(env: &Env) -> Outcome {
    let get = |sock: &Sock| sock.get_int(IPPROTO_TCP, libc::TCP_MAXSEG);
    let set = |sock: &Sock, bytes| sock.set_int(IPPROTO_TCP, libc::TCP_MAXSEG, bytes);
    let sock = env.socket()?;
    let (listener, addr) = env.listener(1)?;
    for sock in [&sock, &listener] {
        expect_eq(get(sock)?, 536, "at first")?;
        for bytes in [88, 1000, 32_767] {
            set(sock, bytes)?;
            expect_eq(get(sock)?, bytes, format!("set to {bytes}"))?;
            for bad in [-1, 1, 87, 32_768, i32::MAX] {
                expect_errno(set(sock, bad), EINVAL, bad)?;
            }
            expect_eq(get(sock)?, bytes, "after a bad value")?;
        }
        set(sock, 0)?;
        expect_eq(get(sock)?, 536, "set to 0")?;
    }
    sock.connect(&addr)?;
    let agreed = get(&sock)?;
    expect(agreed > 536, format!("{agreed} bytes of a connection"))?;
    set(&sock, 777)?;
    expect_eq(get(&sock)?, agreed, "set while connected")?;
    sock.connect(&env.here(0).with_family(libc::AF_UNSPEC))?;
    expect_eq(get(&sock)?, agreed, "after the connection")?;
    set(&sock, 777)?;
    expect_eq(get(&sock)?, 777, "set after the connection")
}

/// TCP_DEFER_ACCEPT returns the total time of the time-outs for which it stands.
fn defers_accept(env: &Env) -> Outcome {
    let values = [
        (-1, 0),
        (0, 0),
        (1, 1),
        (2, 3),
        (3, 3),
        (4, 7),
        (7, 7),
        (8, 15),
        (60, 63),
        (63, 63),
        (64, 127),
        (127, 127),
        (128, 247),
        (247, 247),
        (248, 367),
        (29_887, 29_887),
        (29_888, 29_887),
        (i32::MAX, 29_887),
        (i32::MIN, 0),
    ];
    let sock = env.socket()?;
    let (listener, _) = env.listener(1)?;
    let (ours, _remote) = env.pair()?;
    let (accepted, _other) = env.accepted_pair()?;
    for sock in [&sock, &listener, &ours, &accepted] {
        let get = || sock.get_int(IPPROTO_TCP, libc::TCP_DEFER_ACCEPT);
        expect_eq(get()?, 0, "at first")?;
        for (seconds, want) in values {
            sock.set_int(IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, seconds)?;
            expect_eq(get()?, want, format!("{seconds} s"))?;
        }
        let short = sock.set_bytes(IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, &[1; 3]);
        expect_errno(short, EINVAL, "three bytes")?;
        expect_eq(get()?, 0, "after three bytes")?;
    }
    Ok(())
}

/// With a negative TCP_LINGER2, a closed socket does not wait for its peer to close; otherwise it
/// waits for that many seconds.
fn lingers_as_long_as_it_shall(env: &Env) -> Outcome {
    for (seconds, least_ms, most_ms) in [(-1, 0, 15_000), (2, 1500, 30_000)] {
        let (sock, remote) = env.own_pair()?;
        sock.set_int(IPPROTO_TCP, libc::TCP_LINGER2, seconds)?;
        let begin = Instant::now();
        drop(sock);
        match remote.recv(&mut [0; 9], 0) {
            Err(e) if seconds < 0 && e.raw_os_error() == Some(libc::ECONNRESET) => {}
            end => expect_eq(end?, 0, "the end")?,
        }
        if seconds > 0 && env.family == Family::Tcp {
            // TCP forgets the connection without a reset.
            continue;
        }
        eventually("a reset", || remote.poll(0, 0), |&e| e & POLLERR != 0)?;
        let ms = begin.elapsed().as_millis();
        expect(
            (least_ms..most_ms).contains(&ms),
            format!("{seconds} s: after {ms} ms"),
        )?;
    }
    Ok(())
}

/// The time of TCP_LINGER2 begins when the peer is told of the end, which is after it has read
/// everything. So the peer gets all bytes, however short the time is.
fn lingers_for_bytes_that_are_not_read(env: &Env) -> Outcome {
    for mode in [1, 2, 3] {
        let (sock, remote) = env.own_pair()?;
        sock.set_int(IPPROTO_TCP, libc::TCP_LINGER2, -1)?;
        if env.family == Family::Sdp {
            sock.set_int(SOL_SDP, SDP_ZCOPY_THRESH, 16384)?;
            sock.set_int(SOL_SDP, SDP_ZCOPY_MODE, mode)?;
        }
        let span = Span::new(env.seed, 0, 1 << 20);
        let bytes = span.to_vec();
        let sending = spawn(move || sock.send_all(&bytes))?;
        std::thread::sleep(Duration::from_millis(300));
        receive(&remote, span)?;
        joined(sending)??;
    }
    Ok(())
}

fn keepalive(env: &Env) -> Outcome {
    let sock = env.socket()?;
    sock.set_int(SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
    for (option, value) in [
        (libc::TCP_KEEPIDLE, 100),
        (libc::TCP_KEEPINTVL, 20),
        (libc::TCP_KEEPCNT, 4),
    ] {
        let first = sock.get_int(IPPROTO_TCP, option)?;
        expect(first > 0, format!("option {option} at first"))?;
        sock.set_int(IPPROTO_TCP, option, value)?;
        let got = sock.get_int(IPPROTO_TCP, option)?;
        expect_eq(got, value, format!("option {option}"))?;
        for bad in [0, -1, 1 << 20] {
            let result = sock.set_int(IPPROTO_TCP, option, bad);
            expect_errno(result, EINVAL, format!("option {option} = {bad}"))?;
        }
    }
    Ok(())
}

fn ip_level(env: &Env) -> Outcome {
    if !env.local.is_ipv4() {
        return skip("the address is not IPv4");
    }
    let sock = env.socket()?;
    sock.set_int(IPPROTO_IP, libc::IP_TOS, 0x10)?;
    expect_eq(sock.get_int(IPPROTO_IP, libc::IP_TOS)?, 0x10, "IP_TOS")?;
    for ttl in [256, 0] {
        let bad = sock.set_int(IPPROTO_IP, libc::IP_TTL, ttl);
        expect_errno(bad, EINVAL, format!("IP_TTL {ttl}"))?;
    }
    sock.set_int(IPPROTO_IP, libc::IP_TTL, -1)?;
    Ok(())
}

fn ipv6_level(env: &Env) -> Outcome {
    env.has_ipv6()?;
    let sock = env.family.socket(ANY6)?;
    for value in [1, 0] {
        sock.set_int(IPPROTO_IPV6, libc::IPV6_V6ONLY, value)?;
        let got = sock.get_int(IPPROTO_IPV6, libc::IPV6_V6ONLY)?;
        expect_eq(got, value, "IPV6_V6ONLY")?;
    }
    sock.set_int(IPPROTO_IPV6, libc::IPV6_TCLASS, 0x20)?;
    let got = sock.get_int(IPPROTO_IPV6, libc::IPV6_TCLASS)?;
    expect_eq(got, 0x20, "IPV6_TCLASS")?;
    // At this level, a null pointer is 0.
    sock.set_raw(IPPROTO_IPV6, libc::IPV6_TCLASS, 0, 4)?;
    let got = sock.get_int(IPPROTO_IPV6, libc::IPV6_TCLASS)?;
    expect_eq(got, 0, "IPV6_TCLASS from nowhere")
}

fn values_of_wrong_length(env: &Env) -> Outcome {
    let sock = env.socket()?;
    for (level, option) in [
        (SOL_SOCKET, libc::SO_KEEPALIVE),
        (SOL_SOCKET, SO_SNDBUF),
        (IPPROTO_TCP, libc::TCP_NODELAY),
        (IPPROTO_TCP, libc::TCP_CORK),
    ] {
        let text = |len| format!("level {level}, option {option}, {len} bytes");
        for len in 0..4 {
            let result = sock.set_bytes(level, option, &[1; 4][..len]);
            expect_errno(result, EINVAL, text(len))?;
        }
        sock.set_bytes(level, option, &[0; 64])?;
        // A read returns as many bytes as there is room for.
        for len in [0, 1, 3, 4, 9] {
            let mut bytes = [0xee; 16];
            let got = sock.get_bytes(level, option, &mut bytes[..len])?;
            expect_eq(got, len.min(4), text(len))?;
            expect(bytes[got..] == [0xee; 16][got..], "written beyond the end")?;
        }
    }
    let short = sock.set_bytes(SOL_SOCKET, libc::SO_LINGER, &[0; 7]);
    expect_errno(short, EINVAL, "a short SO_LINGER")?;
    let short = sock.set_bytes(SOL_SOCKET, libc::SO_RCVTIMEO, &[0; 7]);
    expect_errno(short, EINVAL, "a short SO_RCVTIMEO")
}

/// Options about packets are refused, because SDP has no packets.
fn of_packets(env: &Env) -> Outcome {
    if !differences::refuses_packet_options(env.family) {
        return skip("TCP has packets");
    }
    let sock = env.over_ipv6()?.socket()?;
    // A routing header of type 2, which any user may set.
    let mut header = [0; 24];
    header[1..4].copy_from_slice(&[2, 2, 1]);
    let pass_all = [libc::sock_filter {
        code: 6,
        jt: 0,
        jf: 0,
        k: 1,
    }];
    let filter = libc::sock_fprog {
        len: 1,
        filter: pass_all.as_ptr().cast_mut(),
    };
    let at = (&raw const filter) as usize;
    let len = size_of_val(&filter) as i32;
    let set = sock.set_raw(SOL_SOCKET, libc::SO_ATTACH_FILTER, at, len);
    expect_errno(set, libc::EOPNOTSUPP, "a filter")?;
    for option in [
        libc::IPV6_RTHDR,
        libc::IPV6_HOPOPTS,
        libc::IPV6_DSTOPTS,
        libc::IPV6_RTHDRDSTOPTS,
    ] {
        let set = sock.set_bytes(IPPROTO_IPV6, option, &header);
        expect_errno(set, libc::EOPNOTSUPP, "setting a header")?;
        let get = sock.get_bytes(IPPROTO_IPV6, option, &mut header);
        expect_errno(get, libc::EOPNOTSUPP, "reading a header")?;
    }
    let set = sock.set_bytes(IPPROTO_IPV6, IPV6_2292PKTOPTIONS, &header);
    expect_errno(set, libc::EOPNOTSUPP, "setting all headers")?;
    sock.set_bytes(IPPROTO_IPV6, IPV6_2292PKTOPTIONS, &[])?;
    // The size of a struct xfrm_userpolicy_info.
    let policy = [0; 168];
    for (level, option) in [
        (IPPROTO_IP, IP_IPSEC_POLICY),
        (IPPROTO_IP, IP_XFRM_POLICY),
        (IPPROTO_IPV6, IPV6_IPSEC_POLICY),
        (IPPROTO_IPV6, IPV6_XFRM_POLICY),
    ] {
        let set = sock.set_bytes(level, option, &policy);
        expect_errno(set, libc::EOPNOTSUPP, "a policy of IPsec")?;
    }
    Ok(())
}

/// Options that TCP obeys and SDP cannot obey are refused, so that a program does not rely on them.
/// Values that ask for nothing are accepted.
fn what_cannot_be_obeyed(env: &Env) -> Outcome {
    const ALL: i32 = -1;
    const IPV6_ADDR_PREFERENCES: i32 = 72;
    const IPV6_PREFER_SRC_PUBLIC: i32 = 2;
    const IPV6_PREFER_SRC_PUBTMP_DEFAULT: i32 = 0x100;
    const TX_COMPLETION: u32 = 1 << 18;
    const SOFTWARE: i32 = libc::SOF_TIMESTAMPING_SOFTWARE as i32;
    let refuses = differences::refuses_packet_options(env.family);
    let env = env.over_ipv6()?;
    let (sock, _other) = env.own_pair()?;
    let sent = [
        libc::SOF_TIMESTAMPING_TX_HARDWARE,
        libc::SOF_TIMESTAMPING_TX_SOFTWARE,
        libc::SOF_TIMESTAMPING_TX_SCHED,
        libc::SOF_TIMESTAMPING_TX_ACK,
        TX_COMPLETION,
    ];
    let sent = sent.map(|flag| {
        let flags = flag as i32 | SOFTWARE;
        (SOL_SOCKET, libc::SO_TIMESTAMPING, flags, SOFTWARE)
    });
    let v6 = IPPROTO_IPV6;
    let preferred = (IPV6_PREFER_SRC_PUBLIC, IPV6_PREFER_SRC_PUBTMP_DEFAULT);
    let others = [
        (SOL_SOCKET, libc::SO_MARK, 42, 0),
        (SOL_SOCKET, libc::SO_DONTROUTE, 1, 0),
        (SOL_SOCKET, libc::SO_MAX_PACING_RATE, 1 << 30, ALL),
        (IPPROTO_IP, libc::IP_TTL, 33, -1),
        (v6, libc::IPV6_UNICAST_HOPS, 33, -1),
        (v6, IPV6_ADDR_PREFERENCES, preferred.0, preferred.1),
    ];
    for sock in [&env.socket()?, &sock] {
        for (level, option, value, nothing) in others.into_iter().chain(sent) {
            let what = format!("option {option} of level {level}, value {value:#x}");
            sock.set_int(level, option, nothing)?;
            let before = sock.get_int(level, option)?;
            let set = sock.set_int(level, option, value);
            let after = sock.get_int(level, option)?;
            match refuses {
                true => {
                    expect_errno(set, libc::EOPNOTSUPP, &what)?;
                    expect_eq(after, before, &what)?;
                }
                false if option == libc::SO_MARK && !sys::is_root() => {
                    expect_errno(set, libc::EPERM, &what)?;
                }
                false => {
                    set?;
                    expect(
                        after & value == value || after == 1,
                        format!("{what}: {after}"),
                    )?;
                }
            }
            sock.set_int(level, option, nothing)?;
        }
        // The value may have eight bytes.
        let rate =
            |rate: u64| sock.set_bytes(SOL_SOCKET, libc::SO_MAX_PACING_RATE, &rate.to_ne_bytes());
        rate(u64::MAX)?;
        for limit in [1 << 30, u64::MAX << 32, u64::from(u32::MAX)] {
            match refuses {
                true => expect_errno(rate(limit), libc::EOPNOTSUPP, format!("rate {limit:#x}"))?,
                false => rate(limit)?,
            }
        }
        rate(u64::MAX)?;
    }
    Ok(())
}

/// A null pointer without a length ends the policies of IPsec, which needs a capability. Nothing
/// else is a policy with this length.
fn no_policies(env: &Env) -> Outcome {
    let sock = env.socket()?;
    let (level, option) = match env.local.is_ipv4() {
        true => (IPPROTO_IP, IP_XFRM_POLICY),
        false => (IPPROTO_IPV6, IPV6_XFRM_POLICY),
    };
    if !sys::is_root() {
        let set = sock.set_raw(level, option, 0, 0);
        return expect_errno(set, libc::EPERM, "without the capability");
    }
    let ended = sock.set_raw(level, option, 0, 0);
    if ended
        .as_ref()
        .is_err_and(|e| e.raw_os_error() == Some(ENOPROTOOPT))
    {
        return skip("the kernel has no IPsec");
    }
    ended?;
    let set = sock.set_bytes(level, option, &[]);
    expect_errno(set, libc::EMSGSIZE, "an empty policy")
}

/// Timestamps can have the positions of their bytes only on a socket that has a stream.
fn timestamps_with_positions(env: &Env) -> Outcome {
    const OPT_ID: i32 = libc::SOF_TIMESTAMPING_OPT_ID as i32;
    const SOFTWARE: i32 = libc::SOF_TIMESTAMPING_SOFTWARE as i32;
    let set = |sock: &Sock, value| sock.set_int(SOL_SOCKET, libc::SO_TIMESTAMPING, value);
    let get = |sock: &Sock| sock.get_int(SOL_SOCKET, libc::SO_TIMESTAMPING);
    for (sock, what) in [
        (env.socket()?, "a new socket"),
        (env.listener(1)?.0, "a listener"),
    ] {
        set(&sock, SOFTWARE)?;
        expect_errno(set(&sock, OPT_ID), EINVAL, what)?;
        expect_eq(get(&sock)?, SOFTWARE, what)?;
    }
    let (sock, _other) = env.own_pair()?;
    set(&sock, OPT_ID)?;
    expect_eq(get(&sock)?, OPT_ID, "a connected socket")?;
    // This does not begin anew.
    sock.connect(&env.here(0).with_family(libc::AF_UNSPEC))?;
    set(&sock, OPT_ID | SOFTWARE)?;
    set(&sock, 0)?;
    expect_errno(set(&sock, OPT_ID), EINVAL, "after the connection")
}

fn unknown(env: &Env) -> Outcome {
    let sock = env.socket()?;
    for (level, option) in [
        (SOL_SOCKET, 9999),
        (IPPROTO_TCP, 9999),
        (IPPROTO_IP, 9999),
        (9999, 1),
        (-1, -1),
    ] {
        let text = format!("level {level}, option {option}");
        // Some calls report an unknown level as unsupported.
        let unknown = [ENOPROTOOPT, libc::EOPNOTSUPP];
        expect_errno_of(sock.set_int(level, option, 1), &unknown, &text)?;
        expect_errno_of(sock.get_int(level, option), &unknown, &text)?;
    }
    Ok(())
}

fn nonblocking_by_ioctl(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    sock.set_fionbio(true)?;
    expect(sock.is_nonblocking()?, "FIONBIO on")?;
    expect_errno(sock.recv(&mut [0], 0), libc::EAGAIN, "recv")?;
    sock.set_fionbio(false)?;
    expect(!sock.is_nonblocking()?, "FIONBIO off")?;
    remote.close()?;
    eventually("end", || sock.recv(&mut [0], 0), |&n| n == 0)
}

/// The length reaches beyond the mapped memory. Only as many bytes are read as a name may have, and
/// a part of them must not be taken for the whole name.
fn name_of_device_at_the_end_of_memory(env: &Env) -> Outcome {
    let sock = env.socket()?;
    let mut area = Area::new(1)?;
    let name = b"eth0nosuch\0\0\0\0\0\0";
    area.bytes(PAGE)[PAGE - 16..].copy_from_slice(name);
    let at = area.at(PAGE - 16);
    expect_errno(
        sock.set_raw(SOL_SOCKET, libc::SO_BINDTODEVICE, at, 64),
        ENODEV,
        "a name",
    )
}

/// The header of a control message, as it lies in memory.
fn control_head(len: usize, level: i32, kind: i32) -> [u64; 2] {
    [
        len as u64,
        u64::from(level as u32) | (u64::from(kind as u32) << 32),
    ]
}

/// With TCP_INQ, each receive reports the number of bytes that are left.
fn bytes_left(env: &Env) -> Outcome {
    // This is also the number of the control message (include/uapi/linux/tcp.h).
    const TCP_INQ: i32 = 36;
    // A header and an integer.
    const LEN: usize = 20;
    let (sock, other) = env.own_pair()?;
    expect_eq(sock.get_int(IPPROTO_TCP, TCP_INQ)?, 0, "at first")?;
    for value in [-1, 2] {
        let text = format!("TCP_INQ {value}");
        expect_errno(sock.set_int(IPPROTO_TCP, TCP_INQ, value), EINVAL, &text)?;
    }
    sock.set_int(IPPROTO_TCP, TCP_INQ, 1)?;
    expect_eq(sock.get_int(IPPROTO_TCP, TCP_INQ)?, 1, "set")?;
    other.send(&[7; 1000], 0)?;
    eventually("bytes", || readable_bytes(&sock), |n| *n == 1000)?;
    let receive = |len: usize| -> io::Result<(usize, i32)> {
        let mut control = [u64::MAX; 4];
        let (n, length, flags) = sock.recvmsg_with(&mut vec![0; len], &mut control, 0)?;
        let [head @ .., left, _] = control;
        if length != 24 || head != control_head(LEN, IPPROTO_TCP, TCP_INQ) || flags != 0 {
            let text = format!("{length} bytes of control, {control:x?}, flags {flags:#x}");
            return Err(io::Error::other(text));
        }
        Ok((n, left as i32))
    };
    expect_eq(receive(300)?, (300, 700), "300 bytes")?;
    expect_eq(receive(2000)?, (700, 0), "the rest")?;
    // There is no room for the control message.
    other.send(&[7; 10], 0)?;
    let (n, length, flags) = sock.recvmsg_with(&mut [0; 20], &mut [], 0)?;
    expect_eq((n, length), (10, 0), "without room")?;
    expect_eq(flags, libc::MSG_CTRUNC, "without room")?;
    // The end of the stream counts as a byte that can be read.
    other.send(&[7; 10], 0)?;
    other.shutdown(libc::SHUT_WR)?;
    eventually("the end", || sock.poll(libc::POLLRDHUP, 0), |got| *got != 0)?;
    expect_eq(receive(10)?, (10, 1), "before the end")?;
    expect_eq(receive(10)?, (0, 1), "the end")?;
    sock.set_int(IPPROTO_TCP, TCP_INQ, 0)?;
    let (n, length, flags) = sock.recvmsg_with(&mut [0; 20], &mut [0; 4], 0)?;
    expect_eq((n, length, flags), (0, 0, 0), "not asked")
}

/// A send with an invalid control message is refused and sends nothing.
fn control_messages(env: &Env) -> Outcome {
    // include/uapi/asm-generic/socket.h.
    const SCM_DEVMEM_DMABUF: i32 = 79;
    const SCM_TS_OPT_ID: i32 = 81;
    let (sock, other) = env.own_pair()?;
    let send = |head: [u64; 2], value: u64, len: usize| {
        let control = [head[0], head[1], value];
        sock.sendmsg_with(b"no", &control, len)
    };
    let head = |len, kind| control_head(len, SOL_SOCKET, kind);
    expect_errno(send(head(20, 9999), 0, 24), EINVAL, "an unknown kind")?;
    expect_errno(send(head(400, 9999), 0, 24), EINVAL, "beyond its end")?;
    expect_errno(send(head(8, 9999), 0, 24), EINVAL, "shorter than a head")?;
    expect_errno(send(head(17, libc::SO_MARK), 0, 24), EINVAL, "a short mark")?;
    // Control messages of other levels are ignored, and bytes shorter than a header are no control
    // message.
    expect_eq(send(control_head(20, 9999, 1), 0, 24)?, 2, "another level")?;
    expect_eq(send(head(20, 9999), 0, 8)?, 2, "less than a head")?;
    // The number of a timestamp is not for streams, even if the timestamps have numbers.
    let opt_id = libc::SOF_TIMESTAMPING_OPT_ID as i32;
    sock.set_int(SOL_SOCKET, libc::SO_TIMESTAMPING, opt_id)?;
    expect_errno(send(head(20, SCM_TS_OPT_ID), 7, 24), EINVAL, "a number")?;
    // The memory of a device is sent with MSG_ZEROCOPY only, and 0 is no such memory.
    let from_device = head(20, SCM_DEVMEM_DMABUF);
    expect_errno(send(from_device, 1, 24), EINVAL, "memory of a device")?;
    expect_eq(send(from_device, 0, 24)?, 2, "no memory of a device")?;
    sock.shutdown(libc::SHUT_WR)?;
    expect_errno(send(head(20, 9999), 0, 24), libc::EPIPE, "after the end")?;
    expect_errno(send(from_device, 1, 24), EINVAL, "memory after the end")?;
    let unconnected = env.socket()?;
    let send = |head: [u64; 2], value| {
        let control = [head[0], head[1], value];
        unconnected.sendmsg_with(b"no", &control, 24)
    };
    let sent = send(head(20, 9999), 0);
    expect_errno(sent, libc::EPIPE, "without a connection")?;
    let sent = send(from_device, 1);
    expect_errno(sent, EINVAL, "memory without a connection")?;
    let mut got = Vec::new();
    loop {
        let mut buf = [0; 10];
        match other.recv(&mut buf, 0)? {
            0 => break,
            n => got.extend_from_slice(&buf[..n]),
        }
    }
    expect_eq(got.as_slice(), b"nonono".as_slice(), "what was sent")
}

/// A control message that asks for a timestamp of the sent bytes.
fn control_messages_for_timestamps(env: &Env) -> Outcome {
    let refuses = differences::refuses_packet_options(env.family);
    let (sock, other) = env.own_pair()?;
    let send = |flags: u32| {
        let head = control_head(20, SOL_SOCKET, libc::SO_TIMESTAMPING);
        sock.sendmsg_with(b"x", &[head[0], head[1], flags.into()], 24)
    };
    let received = send(libc::SOF_TIMESTAMPING_SOFTWARE);
    expect_errno(received, EINVAL, "of received bytes")?;
    expect_eq(send(0)?, 1, "none")?;
    for flags in [
        libc::SOF_TIMESTAMPING_TX_SOFTWARE,
        libc::SOF_TIMESTAMPING_TX_ACK,
    ] {
        match refuses {
            true => expect_errno(send(flags), libc::EOPNOTSUPP, "of sent bytes")?,
            false => expect_eq(send(flags)?, 1, "of sent bytes")?,
        }
    }
    sock.shutdown(libc::SHUT_WR)?;
    let bytes = if refuses { 1 } else { 3 };
    let got = other.recv(&mut [0; 10], libc::MSG_WAITALL)?;
    expect_eq(got, bytes, "what was sent")
}

/// TCP_NOTSENT_LOWAT: a socket is writable only while few bytes wait to be sent.
fn least_not_sent(env: &Env) -> Outcome {
    const LEAST: i32 = 20_000;
    const PIECE: usize = 4096;
    let (sock, other) = env.own_pair()?;
    let lowat = |value| sock.set_int(IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, value);
    expect_eq(
        sock.get_int(IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT)?,
        0,
        "at first",
    )?;
    lowat(LEAST)?;
    expect_eq(
        sock.get_int(IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT)?,
        LEAST,
        "set",
    )?;
    let writable = || Ok(sock.poll(libc::POLLOUT, 0)? != 0);
    let fill = || -> io::Result<usize> {
        let (mut sent, mut quiet) = (0, 0);
        // The other side still takes bytes for a while.
        while quiet < 5 || writable()? {
            match sock.send(&[1; PIECE], libc::MSG_DONTWAIT) {
                Ok(n) => (sent, quiet) = (sent + n, 0),
                Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => {
                    quiet += 1;
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(e) => return Err(e),
            }
        }
        Ok(sent)
    };
    let first = fill()?;
    // Without the mark there is more room.
    lowat(0)?;
    expect(writable()?, "not writable without a mark")?;
    let more = fill()?;
    expect(more > LEAST as usize, format!("{more} bytes more"))?;
    lowat(LEAST)?;
    let mut got = 0;
    let mut buf = vec![0; 1 << 20];
    while got < first + more {
        got += other.recv(&mut buf, 0)?;
    }
    eventually("room", writable, |room| *room)
}

/// Bytes that are sent at once do not count: no send waits because of them, and epoll reports room.
fn least_not_sent_of_a_peer_that_reads(env: &Env) -> Outcome {
    let without = send_to_a_reader(env, 0)?;
    // The shorter of two times, because a machine may stall.
    let with = send_to_a_reader(env, 16384)?.min(send_to_a_reader(env, 16384)?);
    // A wait of 200 ms or more for each 32 KiB would take 25 s.
    expect(
        with < 2 * without + Duration::from_secs(12),
        format!("{with:?} with the mark, {without:?} without"),
    )
}

/// The time that a reader needs for 4 MiB from a sender with this mark.
fn send_to_a_reader(env: &Env, least_not_sent: i32) -> Result<Duration, Fail> {
    const TOTAL: usize = 2 << 20;
    let (sock, other) = env.own_pair()?;
    sock.set_int(IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, least_not_sent)?;
    let reader = spawn(move || -> io::Result<usize> {
        let mut buf = vec![0; 1 << 20];
        let mut got = 0;
        loop {
            match other.recv(&mut buf, 0)? {
                0 => return Ok(got),
                n => got += n,
            }
        }
    })?;
    let began = Instant::now();
    let piece = vec![7; 60_000];
    let mut sent = 0;
    // First with edge-triggered epoll, as event loops do; then with blocking calls.
    let epoll = Epoll::new()?;
    epoll.add(sock.as_raw_fd(), libc::EPOLLOUT | libc::EPOLLET, 0)?;
    while sent < TOTAL {
        match sock.send(&piece, libc::MSG_DONTWAIT) {
            Ok(n) if n == piece.len() => sent += n,
            Ok(n) => {
                sent += n;
                expect(!epoll.wait(20_000)?.is_empty(), "no edge")?;
            }
            Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => {
                expect(!epoll.wait(20_000)?.is_empty(), "no edge after EAGAIN")?;
            }
            Err(e) => return Err(e.into()),
        }
    }
    while sent < 2 * TOTAL {
        sent += sock.send(&piece, 0)?;
    }
    sock.shutdown(libc::SHUT_WR)?;
    expect_eq(joined(reader)??, sent, "received")?;
    Ok(began.elapsed())
}

/// Unsent bytes of an earlier connection do not count for the next one.
fn least_not_sent_of_the_next_connection(env: &Env) -> Outcome {
    let (listener, addr) = env.listener(2)?;
    let sock = env.socket()?;
    sock.set_int(IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, 16384)?;
    sock.connect(&addr)?;
    let (other, _) = listener.accept()?;
    fill(&sock, env.seed)?;
    drop(other);
    sock.connect(&env.here(0).with_family(libc::AF_UNSPEC))?;
    sock.connect(&addr)?;
    let _other = listener.accept()?;
    expect(sock.poll(libc::POLLOUT, 20_000)? != 0, "not writable")?;
    expect_eq(sock.send(&[1; 100], libc::MSG_DONTWAIT)?, 100, "sent")
}
