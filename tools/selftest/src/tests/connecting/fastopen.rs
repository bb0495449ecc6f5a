// SPDX-License-Identifier: GPL-2.0
//! TCP Fast Open of a client that knows no cookie of the server: one call connects and sends, and
//! the bytes follow the connection request. The options of a server are stored, but have no effect.

use super::connect::{full_listener, nobody};
use crate::support::flow::{spawn, Span};
use crate::support::harness::{
    eventually, expect, expect_eq, expect_errno, expect_errno_of, expect_received, joined, skip,
    spawn_waiting, tests, Child, Env, Fail, Family, Outcome, ANY6,
};
use crate::support::sys::{self, Sock, SockAddr};
use crate::tests::settings::sysctl::{needs_root, set, Changed};
use libc::{
    EAFNOSUPPORT, EALREADY, ECONNREFUSED, ECONNRESET, EFAULT, EINPROGRESS, EINVAL, EISCONN,
    ENOTCONN, EOPNOTSUPP, EPIPE, IPPROTO_TCP, MSG_DONTWAIT, MSG_FASTOPEN, MSG_MORE, MSG_NOSIGNAL,
    POLLERR, POLLHUP, POLLIN, POLLOUT, POLLRDHUP, SOL_SOCKET,
};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

tests!("fastopen";
    connects_and_sends,
    sends_more_than_there_is_room_for,
    sends_nothing,
    does_not_wait,
    is_refused,
    refused_leaves_bytes_held_back,
    without_an_address,
    bad_addresses,
    to_another_family,
    from_nowhere,
    bad_control_messages,
    waits_for_a_connection,
    has_little_time,
    is_disconnected,
    while_another_waits,
    when_connected,
    after_a_connection,
    by_io_uring,
    connect_option,
    server_options,
    keys,
    accepted_sockets_have_their_listeners,
    switched_off,
    allowed_by_the_administrator,
);

const ALL: i16 = POLLIN | POLLOUT | POLLRDHUP;
const TCP_FASTOPEN_KEY: i32 = libc::TCP_FASTOPEN_KEY;

/// Allows MSG_FASTOPEN while the value lives. With SDP, only the administrator can allow it.
pub(in crate::tests) fn allowed(env: &Env) -> Result<Option<Changed>, Fail> {
    match env.family {
        Family::Tcp => Ok(None),
        Family::Sdp if !sys::is_root() => skip("needs root"),
        Family::Sdp => Ok(Some(Changed::to("fastopen", "1")?)),
    }
}

/// One call connects, waits for the connection, and sends.
fn connects_and_sends(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    let (listener, addr) = env.remote_listener(2)?;
    for bound in [false, true] {
        let sock = env.socket()?;
        if bound {
            sock.bind(&env.here(0))?;
        }
        let span = Span::new(env.seed, 0, 3000);
        let sent = sock.sendto(&span.to_vec(), &addr, MSG_FASTOPEN)?;
        expect_eq(sent, 3000, "sent")?;
        expect_eq(sock.getpeername()?.to_std(), addr.to_std(), "getpeername")?;
        expect_eq(sock.take_error()?, 0, "SO_ERROR")?;
        let (remote, from) = listener.accept()?;
        expect_eq(from.to_std(), sock.getsockname()?.to_std(), "accepted")?;
        expect_received(remote.recv_span(span, 700)?, span, "the first bytes")?;
        let more = Span::new(env.seed, 3000, 2000);
        sock.send_all(&more.to_vec())?;
        expect_received(remote.recv_span(more, 700)?, more, "the next")?;
        expect_eq(sock.poll(ALL, 0)?, POLLOUT, "poll")?;
    }
    Ok(())
}

fn sends_more_than_there_is_room_for(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    let (listener, addr) = env.remote_listener(2)?;
    let sock = env.socket()?;
    sock.set_int(SOL_SOCKET, libc::SO_SNDBUF, 20_000)?;
    let span = Span::new(env.seed, 0, 1_000_000);
    let sock = Arc::new(sock);
    let sending = {
        let sock = sock.clone();
        spawn(move || sock.sendto(&span.to_vec(), &addr, MSG_FASTOPEN))?
    };
    let (remote, _) = listener.accept()?;
    expect_received(remote.recv_span(span, 100_000)?, span, "received")?;
    expect_eq(joined(sending)??, 1_000_000, "sent")?;
    let more = Span::new(env.seed, 1_000_000, 1000);
    sock.send_all(&more.to_vec())?;
    expect_received(remote.recv_span(more, 500)?, more, "the next")
}

fn sends_nothing(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    let (listener, addr) = env.remote_listener(2)?;
    let sock = env.socket()?;
    expect_eq(sock.sendto(b"", &addr, MSG_FASTOPEN)?, 0, "sent")?;
    sock.getpeername()?;
    let (remote, _) = listener.accept()?;
    sock.send_all(b"some")?;
    expect_eq(remote.recv(10, 0)?, b"some".to_vec(), "received")
}

/// A call that does not wait begins a connection and sends nothing.
fn does_not_wait(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    let (listener, addr) = env.remote_listener(2)?;
    for by_flag in [false, true] {
        let sock = env.socket()?;
        sock.set_nonblocking(!by_flag)?;
        let flags = if by_flag { MSG_DONTWAIT } else { 0 };
        let result = sock.sendto(b"hello", &addr, MSG_FASTOPEN | flags);
        expect_errno(result, EINPROGRESS, "sendto")?;
        expect_eq(sock.poll(ALL, -1)?, POLLOUT, "poll")?;
        expect_eq(sock.take_error()?, 0, "SO_ERROR")?;
        sock.send_all(b"bytes")?;
        sock.shutdown(libc::SHUT_WR)?;
        let (remote, _) = listener.accept()?;
        let mut got = Vec::new();
        loop {
            match remote.recv(16, 0)?.as_slice() {
                [] => break,
                bytes => got.extend_from_slice(bytes),
            }
        }
        expect_eq(got, b"bytes".to_vec(), "received")?;
    }
    Ok(())
}

/// The call returns the error of connect(), also the second time. Afterwards the socket can connect
/// to another address.
fn is_refused(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    let (_bound, addr) = nobody(env)?;
    let sock = env.socket()?;
    for _ in 0..2 {
        let result = sock.sendto(b"x", &addr, MSG_FASTOPEN);
        expect_errno(result, ECONNREFUSED, "sendto")?;
        expect_eq(sock.take_error()?, 0, "SO_ERROR after it was reported")?;
        expect_errno(sock.getpeername(), ENOTCONN, "getpeername")?;
    }
    let (listener, good) = env.remote_listener(1)?;
    expect_eq(sock.sendto(b"x", &good, MSG_FASTOPEN)?, 1, "sent")?;
    let (remote, _) = listener.accept()?;
    expect_eq(remote.recv(16, 0)?, b"x".to_vec(), "received")?;
    let sock = env.socket()?;
    let result = sock.sendto(b"x", &addr, MSG_FASTOPEN | MSG_DONTWAIT);
    expect_errno(result, EINPROGRESS, "sendto")?;
    let want = POLLIN | POLLOUT | POLLRDHUP | POLLERR | POLLHUP;
    expect_eq(sock.poll(ALL, -1)?, want, "poll")?;
    expect_eq(sock.take_error()?, ECONNREFUSED, "SO_ERROR")
}

/// On a connected socket the call fails before it touches the connection, so bytes that MSG_MORE
/// holds back are still held back.
fn refused_leaves_bytes_held_back(env: &Env) -> Outcome {
    /// A time shorter than the time for which bytes are held back.
    const SOON: Duration = Duration::from_millis(150);
    let _allowed = allowed(env)?;
    eventually(
        "whether a try was so quick that bytes must be held back",
        || {
            let (sock, other) = env.own_pair()?;
            let to = sock.getpeername()?;
            let began = Instant::now();
            sock.send(b"held", MSG_MORE)?;
            let refused = sock.sendto(b"x", &to, MSG_FASTOPEN);
            let came = other.poll(POLLIN, 40)? != 0;
            let is_quick = began.elapsed() < SOON;
            let errno = refused.err().and_then(|e| e.raw_os_error());
            sock.send_all(b" back")?;
            let mut bytes = [0; 9];
            other.recv_exact(&mut bytes)?;
            Ok((is_quick, came, errno, bytes))
        },
        |(is_quick, came, errno, bytes)| {
            let held = !came && *errno == Some(EISCONN) && bytes == b"held back";
            *is_quick && held
        },
    )
}

fn without_an_address(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    let flags = MSG_FASTOPEN | MSG_NOSIGNAL;
    let sock = env.socket()?;
    expect_errno(sock.send(b"x", flags), EINVAL, "a new socket")?;
    expect_errno(sock.send(b"x", MSG_NOSIGNAL), EPIPE, "without the flag")?;
    let (listener, _) = env.listener(1)?;
    expect_errno(listener.send(b"x", flags), EISCONN, "a listener")?;
    let (sock, _remote) = env.pair()?;
    expect_errno(sock.send(b"x", flags), EISCONN, "a connected socket")
}

fn bad_addresses(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    let (listener, addr) = env.remote_listener(1)?;
    let sock = env.socket()?;
    let open = |to: SockAddr| sock.sendto(b"x", &to, MSG_FASTOPEN);
    let unspec = addr.with_family(libc::AF_UNSPEC);
    expect_errno(open(unspec), EOPNOTSUPP, "AF_UNSPEC")?;
    expect_errno(open(unspec.with_len(2)), EOPNOTSUPP, "a short AF_UNSPEC")?;
    for len in [0, 1, 2, 15] {
        expect_errno(open(addr.with_len(len)), EINVAL, format!("{len} bytes"))?;
        let strange = addr.with_family(99).with_len(len);
        expect_errno(open(strange), EINVAL, format!("family 99, {len} bytes"))?;
    }
    let strange = addr.with_family(99).with_len(28);
    expect_errno(open(strange), EAFNOSUPPORT, "family 99")?;
    expect_eq(sock.poll(ALL, 0)?, POLLOUT | POLLHUP, "poll")?;
    expect_errno(sock.getpeername(), ENOTCONN, "getpeername")?;
    // A call that fails does not change the connection.
    expect_eq(open(addr)?, 1, "sent")?;
    listener.accept()?;
    expect_errno(open(unspec), EOPNOTSUPP, "AF_UNSPEC, when connected")?;
    sock.getpeername()?;
    Ok(())
}

/// An IPv6 socket does not take an IPv4 address, but it takes an IPv4 address that is mapped to
/// IPv6.
fn to_another_family(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    env.has_ipv6()?;
    if !env.local.is_ipv4() {
        return skip("the address is not IPv4");
    }
    let (listener, addr) = env.listener(1)?;
    let sock = env.family.socket(ANY6)?;
    let result = sock.sendto(b"x", &addr.with_len(28), MSG_FASTOPEN);
    expect_errno(result, EAFNOSUPPORT, "an IPv4 address")?;
    let mapped = match addr.ip() {
        Some(std::net::IpAddr::V4(ip)) => ip.to_ipv6_mapped(),
        _ => return skip("no IPv4 address"),
    };
    let to = (std::net::IpAddr::V6(mapped), addr.port()).into();
    expect_eq(sock.sendto(b"x", &to, MSG_FASTOPEN)?, 1, "sent")?;
    let (other, _) = listener.accept()?;
    other.recv_exact(&mut [0])?;
    Ok(())
}

/// The call connects before it finds that the bytes cannot be read.
fn from_nowhere(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    let (listener, addr) = env.remote_listener(1)?;
    let sock = env.socket()?;
    let memory = Span::new(env.seed, 0, 10).to_vec();
    let result = sock.sendto_at(1, memory.len(), &addr, MSG_FASTOPEN);
    expect_errno(result, EFAULT, "bytes nowhere")?;
    let (remote, _) = listener.accept()?;
    sock.send_all(&memory)?;
    expect_eq(remote.recv(16, 0)?, memory, "received")
}

/// Control messages are checked only after the connection is made.
fn bad_control_messages(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    let (listener, addr) = env.remote_listener(2)?;
    let unknown = [20, u64::from(SOL_SOCKET as u32) | (9999 << 32), 0];
    let sock = env.socket()?;
    let result = sock.sendmsg_to(b"no", &addr, &unknown, MSG_FASTOPEN | MSG_DONTWAIT);
    expect_errno(result, EINPROGRESS, "an unknown one, without waiting")?;
    sock.poll(POLLOUT, -1)?;
    listener.accept()?;
    let sock = env.socket()?;
    let result = sock.sendmsg_to(b"no", &addr, &unknown, MSG_FASTOPEN);
    expect_errno(result, EINVAL, "an unknown one")?;
    sock.getpeername()?;
    let (remote, _) = listener.accept()?;
    sock.send_all(b"bytes")?;
    expect_eq(remote.recv(16, 0)?, b"bytes".to_vec(), "received")?;
    let (_bound, nobody) = nobody(env)?;
    let sock = env.socket()?;
    let result = sock.sendmsg_to(b"no", &nobody, &unknown, MSG_FASTOPEN);
    expect_errno(result, ECONNREFUSED, "without a connection")
}

/// If the socket is connecting already, a call that may wait waits for that connection.
fn waits_for_a_connection(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    let (listener, addr, inside) = full_listener(env)?;
    let sock = Arc::new(env.socket()?);
    let flags = MSG_FASTOPEN | MSG_DONTWAIT;
    expect_errno(sock.sendto(b"x", &addr, flags), EINPROGRESS, "the first")?;
    expect_errno(sock.sendto(b"x", &addr, flags), EALREADY, "the second")?;
    expect_errno(sock.send(b"x", flags), EALREADY, "without an address")?;
    expect_eq(sock.poll(ALL, 0)?, 0, "poll while connecting")?;
    let port = sock.getsockname()?.port();
    let sending = {
        let sock = sock.clone();
        spawn_waiting(move || sock.sendto(b"waited", &addr, MSG_FASTOPEN))?
    };
    for _ in 0..inside.len() + 10 {
        let (remote, from) = listener.accept()?;
        if from.port() == port {
            expect_eq(joined(sending)??, 6, "sent")?;
            return expect_eq(remote.recv(16, 0)?, b"waited".to_vec(), "received");
        }
    }
    crate::support::harness::failed("the connection does not come out of accept")
}

fn has_little_time(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    let (_listener, addr, _inside) = full_listener(env)?;
    let sock = env.socket()?;
    sock.set_timeout(libc::SO_SNDTIMEO, 300)?;
    let began = Instant::now();
    let result = sock.sendto(b"x", &addr, MSG_FASTOPEN);
    expect_errno(result, EINPROGRESS, "with SO_SNDTIMEO")?;
    let waited = began.elapsed().as_millis();
    expect(waited >= 250, format!("{waited} ms"))?;
    let result = sock.sendto(b"x", &addr, MSG_FASTOPEN);
    expect_errno(result, EALREADY, "again")
}

/// Another thread ends the connection for which the call waits.
fn is_disconnected(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    let unspec = env.here(0).with_family(libc::AF_UNSPEC);
    let (_listener, addr, _inside) = full_listener(env)?;
    for shuts in [false, true] {
        let sock = Arc::new(env.socket()?);
        let sending = {
            let sock = sock.clone();
            spawn_waiting(move || sock.sendto(b"x", &addr, MSG_FASTOPEN))?
        };
        if shuts {
            sock.shutdown(libc::SHUT_RDWR)?;
        } else {
            sock.connect(&unspec)?;
        }
        expect_errno(joined(sending)?, ECONNRESET, format!("shut: {shuts}"))?;
        expect_errno(sock.getpeername(), ENOTCONN, "getpeername")?;
        expect_eq(sock.take_error()?, 0, "SO_ERROR after it was reported")?;
    }
    Ok(())
}

/// Two threads make the call at the same time. One of them connects and sends. The other may be too
/// early or too late, and then sends nothing.
fn while_another_waits(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    for _ in 0..env.scaled(5) {
        let (listener, addr) = env.remote_listener(1)?;
        let sock = Arc::new(env.socket()?);
        let open = |sock: Arc<Sock>| spawn(move || sock.sendto(b"four", &addr, MSG_FASTOPEN));
        let threads = [open(sock.clone())?, open(sock.clone())?];
        let mut sent = 0;
        for thread in threads {
            match joined(thread)? {
                Ok(n) => sent += n,
                // The other thread is still connecting, or has already connected.
                Err(e) => expect_errno_of::<()>(Err(e), &[EALREADY, EISCONN], "the slower one")?,
            }
        }
        sock.shutdown(libc::SHUT_WR)?;
        let (remote, _) = listener.accept()?;
        let mut got = 0;
        while got < sent {
            got += remote.recv(16, 0)?.len();
        }
        expect_eq(remote.recv(16, 0)?, Vec::new(), "the end")?;
        expect(sent == 4 || sent == 8, format!("{sent} bytes sent"))?;
    }
    Ok(())
}

fn when_connected(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    let (sock, remote) = env.pair()?;
    let addr = sock.getpeername()?;
    let open = || sock.sendto(b"x", &addr, MSG_FASTOPEN);
    expect_errno(open(), EISCONN, "a connected socket")?;
    sock.send_all(b"y")?;
    expect_eq(remote.recv(16, 0)?, b"y".to_vec(), "received")?;
    sock.shutdown(libc::SHUT_WR)?;
    expect_errno(open(), EISCONN, "after the end")?;
    remote.close()?;
    eventually("the end", || sock.poll(POLLHUP, 0), |e| e & POLLHUP != 0)?;
    expect_errno(open(), EISCONN, "after both ends")
}

/// A disconnected socket can connect and send in one call again.
fn after_a_connection(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    let unspec = env.here(0).with_family(libc::AF_UNSPEC);
    let (listener, addr) = env.remote_listener(2)?;
    let sock = env.socket()?;
    for round in 0..4_u8 {
        expect_eq(sock.sendto(&[round], &addr, MSG_FASTOPEN)?, 1, "sent")?;
        let (remote, from) = listener.accept()?;
        expect_eq(from.to_std(), sock.getsockname()?.to_std(), "accepted")?;
        expect_eq(remote.recv(16, 0)?, vec![round], "received")?;
        sock.connect(&unspec)?;
        sock.take_error()?;
    }
    Ok(())
}

/// io_uring makes the call without waiting and reports its result.
fn by_io_uring(env: &Env) -> Outcome {
    let _allowed = allowed(env)?;
    let (listener, addr) = env.remote_listener(2)?;
    let sock = env.socket()?;
    match sys::uring_sendmsg_to(sock.as_raw_fd(), b"ring", &addr, MSG_FASTOPEN) {
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
            return skip("there is no io_uring");
        }
        result => expect_errno(result, EINPROGRESS, "the first")?,
    }
    sock.poll(POLLOUT, -1)?;
    // The program has not yet been told of the success, by another connect(), so this call sends.
    let result = sys::uring_sendmsg_to(sock.as_raw_fd(), b"ring", &addr, MSG_FASTOPEN);
    expect_eq(result?, 4, "the second")?;
    let (remote, _) = listener.accept()?;
    expect_eq(remote.recv(16, 0)?, b"ring".to_vec(), "received")?;
    let result = sys::uring_sendmsg_to(sock.as_raw_fd(), b"ring", &addr, MSG_FASTOPEN);
    expect_errno(result, EISCONN, "the third")
}

/// TCP_FASTOPEN_CONNECT: without a cookie, connect() connects.
fn connect_option(env: &Env) -> Outcome {
    const OPTION: i32 = libc::TCP_FASTOPEN_CONNECT;
    let (listener, addr) = env.remote_listener(2)?;
    let sock = env.socket()?;
    let set = |value| sock.set_int(IPPROTO_TCP, OPTION, value);
    expect_eq(sock.get_int(IPPROTO_TCP, OPTION)?, 0, "at first")?;
    for bad in [-1, 2, i32::MAX] {
        expect_errno(set(bad), EINVAL, format!("{bad}"))?;
    }
    set(1)?;
    expect_eq(sock.get_int(IPPROTO_TCP, OPTION)?, 1, "set")?;
    sock.connect(&addr)?;
    expect_errno(set(0), EINVAL, "when connected")?;
    sock.send_all(b"bytes")?;
    let (remote, _) = listener.accept()?;
    expect_eq(remote.recv(16, 0)?, b"bytes".to_vec(), "received")?;
    expect_errno(sock.connect(&addr), EISCONN, "connect again")?;
    // A disconnect does not clear the option.
    sock.connect(&addr.with_family(libc::AF_UNSPEC))?;
    expect_eq(sock.get_int(IPPROTO_TCP, OPTION)?, 1, "when disconnected")?;
    set(0)?;
    let sock = env.socket()?;
    sock.set_int(IPPROTO_TCP, OPTION, 1)?;
    sock.set_nonblocking(true)?;
    expect_errno(sock.connect(&addr), EINPROGRESS, "connect without waiting")?;
    expect_eq(sock.poll(ALL, -1)?, POLLOUT, "poll")?;
    sock.send_all(b"more")?;
    let (remote, _) = listener.accept()?;
    expect_eq(remote.recv(16, 0)?, b"more".to_vec(), "received")?;
    let (listener, _) = env.listener(1)?;
    let set = listener.set_int(IPPROTO_TCP, OPTION, 1);
    expect_errno(set, EINVAL, "of a listener")
}

/// TCP_FASTOPEN and TCP_FASTOPEN_NO_COOKIE: their values, and the states in which they can be set.
fn server_options(env: &Env) -> Outcome {
    const LENGTH: i32 = libc::TCP_FASTOPEN;
    const NO_COOKIE: i32 = libc::TCP_FASTOPEN_NO_COOKIE;
    let most = std::fs::read_to_string("/proc/sys/net/core/somaxconn")?;
    let most: i32 = most.trim().parse().map_err(std::io::Error::other)?;
    let (listener, _) = env.listener(1)?;
    for sock in [env.socket()?, listener] {
        let get = |option| sock.get_int(IPPROTO_TCP, option);
        let set = |option, value| sock.set_int(IPPROTO_TCP, option, value);
        expect_eq(get(LENGTH)?, 0, "the length at first")?;
        for value in [5, 0, most, most + 1, i32::MAX, 7] {
            set(LENGTH, value)?;
            expect_eq(get(LENGTH)?, value.min(most), format!("length {value}"))?;
        }
        for bad in [-1, i32::MIN] {
            expect_errno(set(LENGTH, bad), EINVAL, format!("length {bad}"))?;
        }
        expect_eq(get(LENGTH)?, 7, "the length after bad ones")?;
        expect_eq(get(NO_COOKIE)?, 0, "NO_COOKIE at first")?;
        for value in [1, 0, 1] {
            set(NO_COOKIE, value)?;
            expect_eq(get(NO_COOKIE)?, value, "NO_COOKIE")?;
        }
        for bad in [-1, 2] {
            expect_errno(set(NO_COOKIE, bad), EINVAL, format!("NO_COOKIE {bad}"))?;
        }
        // A listener that is shut down is like a new socket, and keeps its options.
        let _ = sock.shutdown(libc::SHUT_RDWR);
        expect_eq(get(LENGTH)?, 7, "the length at last")?;
        expect_eq(get(NO_COOKIE)?, 1, "NO_COOKIE at last")?;
        set(LENGTH, 8)?;
    }
    let (sock, _remote) = env.pair()?;
    for option in [LENGTH, NO_COOKIE] {
        let set = sock.set_int(IPPROTO_TCP, option, 1);
        expect_errno(set, EINVAL, "when connected")?;
        expect_eq(sock.get_int(IPPROTO_TCP, option)?, 0, "when connected")?;
    }
    Ok(())
}

/// TCP_FASTOPEN_KEY: one key or two, of 16 bytes each.
fn keys(env: &Env) -> Outcome {
    let sock = env.socket()?;
    let set = |sock: &Sock, key: &[u8]| sock.set_bytes(IPPROTO_TCP, TCP_FASTOPEN_KEY, key);
    let keys: Vec<u8> = (1..=48).collect();
    for len in [0, 1, 4, 15, 17, 31, 33, 48] {
        expect_errno(set(&sock, &keys[..len]), EINVAL, format!("{len} bytes"))?;
    }
    for len in [32, 16, 32] {
        set(&sock, &keys[..len])?;
        for room in [0, 1, 16, 20, 32, 60] {
            let mut got = [0xee; 64];
            let given = sock.get_bytes(IPPROTO_TCP, TCP_FASTOPEN_KEY, &mut got[..room])?;
            expect_eq(given, room.min(len), format!("{room} of {len} bytes"))?;
            expect(got[..given] == keys[..given], "another key")?;
            expect(got[given..] == [0xee; 64][given..], "bytes behind it")?;
        }
    }
    let result = sock.set_raw(IPPROTO_TCP, TCP_FASTOPEN_KEY, 1, 16);
    expect_errno(result, EFAULT, "a key nowhere")?;
    let result = sock.set_raw(IPPROTO_TCP, TCP_FASTOPEN_KEY, 1, 15);
    expect_errno(result, EINVAL, "a short key nowhere")?;
    let result = sock.get_raw(IPPROTO_TCP, TCP_FASTOPEN_KEY, 1, 16);
    expect_errno(result, EFAULT, "to nowhere")?;
    // The key can be set in every state.
    let (sock, _remote) = env.pair()?;
    set(&sock, &keys[16..32])?;
    let mut got = [0; 16];
    sock.get_bytes(IPPROTO_TCP, TCP_FASTOPEN_KEY, &mut got)?;
    expect(got == keys[16..32], "another key")
}

/// Accepted sockets inherit the options of their listener, except TCP_FASTOPEN, which only a
/// listener has.
fn accepted_sockets_have_their_listeners(env: &Env) -> Outcome {
    let (listener, addr) = env.listener(2)?;
    listener.set_int(IPPROTO_TCP, libc::TCP_FASTOPEN, 3)?;
    listener.set_int(IPPROTO_TCP, libc::TCP_FASTOPEN_NO_COOKIE, 1)?;
    let (connects, other_addr) = {
        let sock = env.socket()?;
        sock.set_int(IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT, 1)?;
        sock.bind(&env.here(0))?;
        sock.listen(1)?;
        let addr = sock.getsockname()?;
        (sock, addr)
    };
    let client = env.socket()?;
    client.connect(&addr)?;
    let (sock, _) = listener.accept()?;
    let get = |option| sock.get_int(IPPROTO_TCP, option);
    expect_eq(get(libc::TCP_FASTOPEN)?, 0, "TCP_FASTOPEN")?;
    expect_eq(get(libc::TCP_FASTOPEN_CONNECT)?, 0, "TCP_FASTOPEN_CONNECT")?;
    expect_eq(
        get(libc::TCP_FASTOPEN_NO_COOKIE)?,
        1,
        "TCP_FASTOPEN_NO_COOKIE",
    )?;
    let client = env.socket()?;
    client.connect(&other_addr)?;
    let (sock, _) = connects.accept()?;
    let got = sock.get_int(IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT)?;
    expect_eq(got, 1, "TCP_FASTOPEN_CONNECT of another")
}

/// The administrator of a namespace can switch Fast Open off.
fn switched_off(env: &Env) -> Outcome {
    if !sys::is_root() {
        return skip("needs root");
    }
    let env = env.on_loopback();
    Child::start(|| {
        sys::new_netns()?;
        sys::loopback_up()?;
        if env.family == Family::Sdp {
            set("fastopen", "1")?;
        }
        let switch = |value| std::fs::write("/proc/sys/net/ipv4/tcp_fastopen", value);
        let sock = env.socket()?;
        let set = |value| sock.set_int(IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT, value);
        // These values lack the client's bit.
        for off in ["0", "2"] {
            switch(off)?;
            let result = sock.sendto(b"x", &env.here(7), MSG_FASTOPEN);
            expect_errno(result, EOPNOTSUPP, format!("sendto with {off}"))?;
            let result = sock.send(b"x", MSG_FASTOPEN | MSG_NOSIGNAL);
            expect_errno(result, EOPNOTSUPP, format!("send with {off}"))?;
            expect_errno(set(1), EOPNOTSUPP, format!("the option with {off}"))?;
            expect_errno(set(2), EINVAL, format!("a bad value with {off}"))?;
            sock.set_int(IPPROTO_TCP, libc::TCP_FASTOPEN, 1)?;
        }
        switch("1")?;
        set(1)?;
        let result = sock.send(b"x", MSG_FASTOPEN | MSG_NOSIGNAL);
        expect_errno(result, EINVAL, "send without an address")
    })?
    .join()
}

/// With SDP, no program may use MSG_FASTOPEN unless the administrator has allowed it, because
/// security modules do not check such a send.
fn allowed_by_the_administrator(env: &Env) -> Outcome {
    needs_root(env)?;
    let env = env.on_loopback();
    Child::start(|| {
        sys::new_netns()?;
        sys::loopback_up()?;
        let sock = env.socket()?;
        let to = env.here(7);
        let refused = |what: &str| -> Outcome {
            for flags in [0, MSG_DONTWAIT] {
                let result = sock.sendto(b"x", &to, MSG_FASTOPEN | flags);
                expect_errno(result, EOPNOTSUPP, format!("{what}: sendto"))?;
            }
            let result = sock.send(b"x", MSG_FASTOPEN | MSG_NOSIGNAL);
            expect_errno(result, EOPNOTSUPP, format!("{what}: send"))?;
            expect_eq(sock.getsockname()?.port(), 0, format!("{what}: the port"))
        };
        refused("at first")?;
        // TCP_FASTOPEN_CONNECT is allowed, because security modules check connect().
        sock.set_int(IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT, 1)?;
        sock.set_int(IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT, 0)?;
        set("fastopen", "1")?;
        let result = sock.send(b"x", MSG_FASTOPEN | MSG_NOSIGNAL);
        expect_errno(result, EINVAL, "send without an address, when allowed")?;
        set("fastopen", "0")?;
        refused("switched off again")
    })?
    .join()
}
