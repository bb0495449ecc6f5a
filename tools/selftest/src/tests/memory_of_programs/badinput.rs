// SPDX-License-Identifier: GPL-2.0
//! Pointers, lengths and numbers that no program should pass cause an error, never a crash, and
//! leave the stream as it was.

use crate::support::flow::Span;
use crate::support::harness::{
    eventually, expect, expect_eq, expect_errno, expect_errno_of, expect_received, failed,
    readable_bytes, receive, send, tests, Env, Fail, Outcome,
};
use crate::support::pattern::Rng;
use crate::support::peer::Remote;
use crate::support::sys::{Area, RawVec, Sock, PAGE};
use libc::{EFAULT, EINVAL, EMSGSIZE, IPPROTO_TCP, MSG_DONTWAIT, MSG_NOSIGNAL, SOL_SOCKET};
use std::os::fd::AsRawFd;

tests!("badinput";
    huge_lengths,
    iovec_counts,
    message_header_nowhere,
    accept_address_nowhere,
    names_nowhere,
    options_nowhere,
    option_lengths,
    unknown_ioctls,
    ioctl_nowhere,
    unknown_flags,
    closed_descriptor,
    random_calls,
);

/// Addresses that are never mapped.
pub(in crate::tests) const NOWHERE: [usize; 5] = [0, 1, PAGE - 1, usize::MAX - 4095, 1 << 63];

/// Expects the stream from `sock` to the peer to go on at `offset`.
#[track_caller]
pub(in crate::tests) fn stream_goes_on(
    env: &Env,
    sock: &Sock,
    remote: &Remote,
    offset: u64,
) -> Outcome {
    let span = Span::new(env.seed, offset, 5000);
    send(sock, span)?;
    expect_received(remote.recv_span(span, 3000)?, span, "the stream goes on")
}

/// A connection with `len` bytes of the pattern waiting to be received.
pub(in crate::tests) fn waiting(env: &Env, len: u64) -> Result<(Sock, Remote, Span), Fail> {
    let (sock, remote) = env.pair()?;
    let span = Span::new(env.seed, 0, len);
    remote.send_span(span, 10_000)?;
    eventually(
        "readable bytes",
        || readable_bytes(&sock),
        |&n| n as u64 == len,
    )?;
    Ok((sock, remote, span))
}

fn huge_lengths(env: &Env) -> Outcome {
    let (sock, remote, span) = waiting(env, 10_000)?;
    let mut area = Area::new(8)?;
    // The bytes that are there fit, whatever the length says. The kernel may also refuse a range
    // that leaves the user's half of the address space.
    for len in [
        usize::MAX,
        1 << 62,
        i64::MAX as usize,
        1 << 31,
        u32::MAX as usize,
    ] {
        // SAFETY: only 10,000 bytes are there to be written, into the area.
        let result = unsafe { sock.recv_raw(area.at(0), len, MSG_DONTWAIT | libc::MSG_PEEK) };
        match result {
            Ok(n) => {
                expect_eq(n, 10_000, format!("peek of {len:#x}"))?;
                expect(area.bytes(n) == span.to_vec(), "wrong bytes")?;
                area.bytes(n).fill(0);
            }
            Err(e) => expect_errno::<()>(Err(e), EFAULT, format!("{len:#x} bytes"))?,
        }
    }
    receive(&sock, span)?;
    let span = Span::new(env.seed, 0, (8 * PAGE) as u64);
    area.bytes(8 * PAGE).copy_from_slice(&span.to_vec());
    area.forbid_from(7)?;
    for len in [usize::MAX, 1 << 62, 1 << 31] {
        let flags = MSG_NOSIGNAL | MSG_DONTWAIT;
        match sock.send_raw(area.at(0), len, flags) {
            Ok(n) => {
                expect(n <= 7 * PAGE, format!("{n} bytes sent"))?;
                let taken = Span {
                    len: n as u64,
                    ..span
                };
                expect_received(remote.recv_span(taken, 9000)?, taken, "the prefix")?;
            }
            Err(e) => expect_errno::<()>(Err(e), EFAULT, format!("{len:#x} bytes"))?,
        }
    }
    stream_goes_on(env, &sock, &remote, 0)
}

fn iovec_counts(env: &Env) -> Outcome {
    let (sock, remote, span) = waiting(env, 100)?;
    let byte = [0_u8; 1];
    let one = RawVec {
        base: byte.as_ptr() as usize,
        len: 1,
    };
    let vecs = vec![one; 2000];
    let at = vecs.as_ptr() as usize;
    for count in [1025, 2000, 1 << 20, 1 << 32, usize::MAX] {
        let text = format!("{count} vectors");
        expect_errno(sock.sendmsg_raw(at, count, 0), EMSGSIZE, &text)?;
        // SAFETY: the kernel refuses the count before it writes.
        let result = unsafe { sock.recvmsg_raw(at, count, MSG_DONTWAIT) };
        expect_errno(result, EMSGSIZE, &text)?;
    }
    for addr in NOWHERE {
        let text = format!("vectors at {addr:#x}");
        expect_errno(sock.sendmsg_raw(addr, 2, 0), EFAULT, &text)?;
        // SAFETY: the kernel finds no vectors, so nothing to write to.
        let result = unsafe { sock.recvmsg_raw(addr, 2, MSG_DONTWAIT) };
        expect_errno(result, EFAULT, &text)?;
    }
    let negative = [RawVec {
        len: 1 << 63,
        ..one
    }];
    let result = sock.sendmsg_raw(negative.as_ptr() as usize, 1, 0);
    // The kernel truncates the length of a single vector instead of refusing it.
    expect_errno_of(result, &[EINVAL, EFAULT], "a negative length")?;
    receive(&sock, span)?;
    stream_goes_on(env, &sock, &remote, 0)
}

fn message_header_nowhere(env: &Env) -> Outcome {
    let (sock, remote, span) = waiting(env, 100)?;
    for addr in NOWHERE {
        for receiving in [true, false] {
            let result = sock.msghdr_nowhere(receiving, addr);
            expect_errno(result, EFAULT, format!("a header at {addr:#x}"))?;
        }
    }
    receive(&sock, span)?;
    stream_goes_on(env, &sock, &remote, 0)
}

fn accept_address_nowhere(env: &Env) -> Outcome {
    let (listener, addr) = env.listener(5)?;
    for bad in [1, PAGE - 1, usize::MAX - 4095] {
        let sock = env.socket()?;
        sock.connect(&addr)?;
        expect_errno(listener.accept_raw(bad, 16), EFAULT, "accept")?;
    }
    // The connections were accepted and are gone. The listener still works.
    let sock = env.socket()?;
    sock.connect(&addr)?;
    let (other, _) = listener.accept()?;
    other.send_all(b"x")?;
    sock.recv_exact(&mut [0])?;
    let sock = env.socket()?;
    sock.connect(&addr)?;
    let mut area = Area::new(1)?;
    expect_errno(
        listener.accept_raw(area.at(0), -1),
        EINVAL,
        "a negative length",
    )?;
    expect(area.bytes(16) == [0; 16], "something was written")
}

fn names_nowhere(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    for peer in [false, true] {
        for bad in NOWHERE {
            let result = sock.name_raw(peer, bad, 16);
            expect_errno(result, EFAULT, format!("a name at {bad:#x}"))?;
        }
        let mut area = Area::new(1)?;
        let result = sock.name_raw(peer, area.at(0), -1);
        expect_errno(result, EINVAL, "a negative length")?;
        // A short buffer gets the start of the name, and the length says how many bytes were
        // needed.
        let len = sock.name_raw(peer, area.at(0), 4)?;
        expect_eq(len, sock.getsockname()?.len() as i32, "the length")?;
        expect(area.bytes(16)[4..] == [0; 12], "written beyond the end")?;
    }
    stream_goes_on(env, &sock, &remote, 0)
}

const OPTIONS: [(i32, i32); 5] = [
    (SOL_SOCKET, libc::SO_RCVBUF),
    (SOL_SOCKET, libc::SO_LINGER),
    (SOL_SOCKET, libc::SO_RCVTIMEO),
    (IPPROTO_TCP, libc::TCP_NODELAY),
    (IPPROTO_TCP, libc::TCP_CORK),
];

fn options_nowhere(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    for (level, option) in OPTIONS {
        for bad in NOWHERE {
            let text = format!("level {level}, option {option} at {bad:#x}");
            let result = sock.set_raw(level, option, bad, 16);
            expect_errno(result, EFAULT, &text)?;
            expect_errno(sock.get_raw(level, option, bad, 16), EFAULT, &text)?;
        }
    }
    stream_goes_on(env, &sock, &remote, 0)
}

fn option_lengths(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let area = Area::new(1)?;
    for (level, option) in OPTIONS {
        for len in [-1, i32::MIN] {
            let text = format!("level {level}, option {option}, length {len}");
            let result = sock.set_raw(level, option, area.at(0), len);
            expect_errno(result, EINVAL, &text)?;
            let result = sock.get_raw(level, option, area.at(0), len);
            expect_errno(result, EINVAL, &text)?;
        }
    }
    stream_goes_on(env, &sock, &remote, 0)
}

/// Numbers of other subsystems and unknown numbers, with good and bad arguments.
fn unknown_ioctls(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let mut rng = Rng::new(env.seed);
    let mut area = Area::new(4)?;
    let mut requests: Vec<u64> = vec![0, 1, 0x5401, 0x1277, u64::from(u32::MAX)];
    // Not type 0x89: these ioctls belong to the network, and some of them change the system.
    requests.extend((0..200).map(|_| rng.next() & 0xffff_00ff | 0xa500));
    for request in requests {
        area.bytes(PAGE).fill(0x41);
        for addr in [area.at(0), 0, 1] {
            let result = sock.ioctl_raw(request, addr);
            let known = [libc::ENOTTY, EINVAL, EFAULT, libc::EPERM, libc::EOPNOTSUPP];
            expect_errno_of(result, &known, format!("ioctl {request:#x}"))?;
        }
    }
    stream_goes_on(env, &sock, &remote, 0)
}

fn ioctl_nowhere(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    for request in [libc::FIONREAD, libc::TIOCOUTQ, libc::FIONBIO] {
        for bad in NOWHERE {
            let result = sock.ioctl_raw(request, bad);
            expect_errno(result, EFAULT, format!("ioctl {request:#x} at {bad:#x}"))?;
        }
    }
    stream_goes_on(env, &sock, &remote, 0)
}

/// Flags without a meaning for streams do no harm.
fn unknown_flags(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let mut offset = 0;
    for bit in [12, 13, 17, 19, 21, 22, 23] {
        let span = Span::new(env.seed, offset, 10);
        match sock.send(&span.to_vec(), (1 << bit) | MSG_NOSIGNAL) {
            Ok(n) => {
                let taken = Span {
                    len: n as u64,
                    ..span
                };
                expect_received(remote.recv_span(taken, 10)?, taken, format!("bit {bit}"))?;
                offset += n as u64;
            }
            Err(e) => {
                let known = [EINVAL, libc::EOPNOTSUPP];
                expect_errno_of::<()>(Err(e), &known, format!("bit {bit}"))?;
            }
        }
    }
    stream_goes_on(env, &sock, &remote, offset)
}

fn closed_descriptor(env: &Env) -> Outcome {
    let sock = env.socket()?;
    let fd = sock.as_raw_fd();
    drop(sock);
    expect_errno(crate::support::sys::write(fd, b"x"), libc::EBADF, "write")?;
    expect_errno(crate::support::sys::read(fd, &mut [0]), libc::EBADF, "read")
}

/// Options with random numbers and bytes, on sockets in every state. Whatever the calls return, the
/// machine and other connections still work.
fn random_calls(env: &Env) -> Outcome {
    let mut rng = Rng::new(env.seed);
    for round in 0..env.scaled(10) {
        let fresh = env.socket()?;
        let (listener, _) = env.listener(2)?;
        let (sock, other) = env.own_pair()?;
        for sock in [&fresh, &listener, &sock, &other] {
            sock.set_nonblocking(true)?;
            for _ in 0..100 {
                let levels = [SOL_SOCKET, IPPROTO_TCP, 0, 41, 257, rng.next() as i32];
                let level = levels[rng.below(levels.len())];
                let option = rng.below(130) as i32;
                if is_spoiling(level, option) {
                    continue;
                }
                let mut bytes = [0; 64];
                bytes.fill_with(|| rng.next() as u8);
                let len = rng.below(bytes.len());
                match rng.below(2) {
                    0 => drop(sock.set_bytes(level, option, &bytes[..len])),
                    _ => drop(sock.get_bytes(level, option, &mut bytes[..len])),
                }
            }
        }
        let (sock, other) = env.own_pair()?;
        let span = Span::new(env.seed + round, 0, 10_000);
        send(&sock, span)?;
        receive(&other, span)?;
    }
    if env.peer().is_err() {
        return failed("the server is gone");
    }
    Ok(())
}

/// Options that a privileged process should not set to random values.
fn is_spoiling(level: i32, option: i32) -> bool {
    // SO_LINGER would make close() wait for years.
    level == SOL_SOCKET && option == libc::SO_LINGER
}
