// SPDX-License-Identifier: GPL-2.0
//! Sockets can be created and connected, and carry a byte.

use crate::support::flow::Span;
use crate::support::harness::{
    differences, expect, expect_eq, expect_errno, expect_received, tests, Env, Outcome,
};
use crate::support::sys::Sock;

tests!("basics";
    types_and_protocols,
    connect_and_send_one_byte,
    accept_and_send_one_byte,
    addresses_of_both_ends,
    both_ends_in_one_process,
    loopback,
    ipv6,
    loopback6,
    accept4_flags,
    accept_order,
);

/// The arguments that socket() accepts and refuses.
fn types_and_protocols(env: &Env) -> Outcome {
    let mut ips = vec![env.local];
    ips.extend(env.local6);
    for ip in ips {
        let domain = env.family.domain(ip);
        for &protocol in env.family.protocols() {
            let sock = Sock::new(domain, libc::SOCK_STREAM, protocol)?;
            let ty = sock.get_int(libc::SOL_SOCKET, libc::SO_TYPE)?;
            expect_eq(ty, libc::SOCK_STREAM, "SO_TYPE")?;
        }
        let udp = Sock::new(domain, libc::SOCK_STREAM, libc::IPPROTO_UDP);
        expect_errno(udp, libc::EPROTONOSUPPORT, "a stream of UDP")?;
        let far = Sock::new(domain, libc::SOCK_STREAM, 4711);
        expect_errno(far, libc::EINVAL, "protocol 4711").or_else(|_| {
            let far = Sock::new(domain, libc::SOCK_STREAM, 4711);
            expect_errno(far, libc::EPROTONOSUPPORT, "protocol 4711")
        })?;
        let seqpacket = Sock::new(domain, libc::SOCK_SEQPACKET, 0);
        expect_errno(seqpacket, libc::ESOCKTNOSUPPORT, "SOCK_SEQPACKET")?;
        // IP has these types; SDP does not.
        if !env.family.is_inet() {
            for ty in [libc::SOCK_DGRAM, libc::SOCK_RAW, libc::SOCK_RDM] {
                let sock = Sock::new(domain, ty, 0);
                expect_errno(sock, libc::ESOCKTNOSUPPORT, format!("type {ty}"))?;
            }
        }
        let flags = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        let sock = Sock::new(domain, flags, env.family.protocol())?;
        expect(
            sock.is_nonblocking()? && sock.is_cloexec()?,
            "the flags of socket()",
        )?;
    }
    Ok(())
}

fn connect_and_send_one_byte(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    expect_eq(sock.send(b"x", 0)?, 1, "sent")?;
    expect_eq(remote.recv(10, 0)?, b"x".to_vec(), "received by the peer")?;
    let span = Span {
        seed: env.seed,
        offset: 3,
        len: 1,
    };
    expect_eq(remote.send(span, 0)?, 1, "sent by the peer")?;
    expect_received(
        crate::support::flow::recv_span(&sock, span, 10),
        span,
        "received",
    )
}

fn accept_and_send_one_byte(env: &Env) -> Outcome {
    let (sock, remote) = env.accepted_pair()?;
    let span = Span {
        seed: env.seed,
        offset: 3,
        len: 1,
    };
    expect_eq(remote.send(span, 0)?, 1, "sent by the peer")?;
    expect_received(
        crate::support::flow::recv_span(&sock, span, 10),
        span,
        "received",
    )?;
    expect_eq(sock.send(b"x", 0)?, 1, "sent")?;
    expect_eq(remote.recv(10, 0)?, b"x".to_vec(), "received by the peer")
}

/// The results of getsockname() and getpeername() of both ends match.
fn addresses_of_both_ends(env: &Env) -> Outcome {
    let (listener, addr) = env.remote_listener(5)?;
    expect_eq(addr.ip(), Some(env.remote), "the listener's address")?;
    expect(addr.port() != 0, "the listener has no port")?;
    let sock = env.socket()?;
    expect_errno(sock.getpeername(), libc::ENOTCONN, "getpeername before")?;
    sock.connect(&addr)?;
    let (remote, from) = listener.accept()?;
    let ours = sock.getsockname()?;
    expect_eq(ours.ip(), Some(env.local), "our address")?;
    expect_eq(sock.getpeername()?.to_std(), addr.to_std(), "our peer")?;
    expect_eq(
        remote.getsockname()?.to_std(),
        addr.to_std(),
        "the peer's address",
    )?;
    expect_eq(
        remote.getpeername()?.to_std(),
        ours.to_std(),
        "the peer's peer",
    )?;
    expect_eq(from.to_std(), ours.to_std(), "accept()'s address")
}

fn echo_some(env: &Env, sock: &Sock, other: &Sock) -> Outcome {
    for (from, to) in [(sock, other), (other, sock)] {
        let span = Span {
            seed: env.seed,
            offset: 0,
            len: 1000,
        };
        crate::support::flow::send_span(from, span, 300).map_err(|(_, e)| e)?;
        expect_received(
            crate::support::flow::recv_span(to, span, 300),
            span,
            "received",
        )?;
    }
    Ok(())
}

fn both_ends_in_one_process(env: &Env) -> Outcome {
    let (sock, other) = env.own_pair()?;
    echo_some(env, &sock, &other)
}

fn loopback(env: &Env) -> Outcome {
    let env = env.on_loopback();
    connect_and_send_one_byte(&env)?;
    addresses_of_both_ends(&env)?;
    both_ends_in_one_process(&env)
}

fn ipv6(env: &Env) -> Outcome {
    let env = env.over_ipv6()?;
    connect_and_send_one_byte(&env)?;
    accept_and_send_one_byte(&env)?;
    addresses_of_both_ends(&env)
}

fn loopback6(env: &Env) -> Outcome {
    let env = env.on_loopback6()?;
    connect_and_send_one_byte(&env)?;
    addresses_of_both_ends(&env)?;
    both_ends_in_one_process(&env)
}

fn accept4_flags(env: &Env) -> Outcome {
    let (listener, addr) = env.listener(5)?;
    let clients = [env.socket()?, env.socket()?];
    for client in &clients {
        client.connect(&addr)?;
    }
    let (sock, _) = listener.accept4(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC)?;
    expect(sock.is_nonblocking()?, "SOCK_NONBLOCK")?;
    expect(sock.is_cloexec()?, "SOCK_CLOEXEC")?;
    expect_errno(sock.recv(&mut [0; 1], 0), libc::EAGAIN, "recv")?;
    let (sock, _) = listener.accept4(0)?;
    expect(!sock.is_nonblocking()?, "nonblocking unasked")?;
    expect(!sock.is_cloexec()?, "close-on-exec unasked")?;
    expect_errno(listener.accept4(0x4000), libc::EINVAL, "an unknown flag")
}

/// Connections are accepted in the order in which they arrived, except over iWARP.
fn accept_order(env: &Env) -> Outcome {
    let (listener, addr) = env.remote_listener(10)?;
    let mut ours = Vec::new();
    for _ in 0..5 {
        let sock = env.socket()?;
        sock.connect(&addr)?;
        ours.push(sock);
    }
    let (mut accepted, mut connected) = (Vec::new(), Vec::new());
    for sock in &ours {
        accepted.push(listener.accept()?.1.to_std());
        connected.push(sock.getsockname()?.to_std());
    }
    if differences::over_iwarp(env.family) {
        accepted.sort();
        connected.sort();
    }
    expect_eq(accepted, connected, "accepted")
}
