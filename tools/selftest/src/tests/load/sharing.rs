// SPDX-License-Identifier: GPL-2.0
//! One socket that several users share: by threads, dup(), fork(), and over a unix socket.

use crate::support::flow::{self, Span};
use crate::support::harness::{
    eventually, expect, expect_eof, expect_eq, expect_received, failed, joined, receive, send,
    tests, Child, Env, Family, Outcome,
};
use crate::support::pattern::Pattern;
use crate::support::peer::Work;
use crate::support::sys;
use crate::tests::uncopied::inflight::return_at_once;
use std::collections::HashMap;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, PoisonError};

tests!("sharing";
    dup,
    fork_child_writes,
    fork_parent_and_child_alternate,
    fork_close_ends_nothing,
    passed_over_unix_socket,
    threads_send_records,
    threads_send_without_lock,
    threads_send_whole_calls,
    threads_receive,
    sender_and_receiver_threads_per_side,
);

fn dup(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let other = sock.dup()?;
    sock.send_all(b"one")?;
    drop(sock);
    other.send_all(b"two")?;
    expect_eq(
        remote.recv(6, libc::MSG_WAITALL)?,
        b"onetwo".to_vec(),
        "the peer",
    )?;
    expect_eq(remote.poll(libc::POLLIN, 0)?, 0, "closing one is no end")?;
    drop(other);
    expect_eq(remote.recv(6, 0)?, Vec::new(), "the end with the last")
}

fn fork_child_writes(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let child = Child::start(|| send(&sock, Span::new(env.seed, 0, 50_000)))?;
    drop(sock);
    let span = Span::new(env.seed, 0, 50_001);
    let got = remote.recv_span(span, 9000)?;
    child.join()?;
    expect_received(
        got,
        Span {
            len: 50_000,
            ..span
        },
        "the peer",
    )?;
    expect(got.eof, "no end of file after the child's end")
}

fn fork_parent_and_child_alternate(env: &Env) -> Outcome {
    let (sock, remote) = env.accepted_pair()?;
    let mut offset = 0;
    for round in 0..6 {
        let span = Span::new(env.seed, offset, 1000 + round);
        if round % 2 == 0 {
            Child::start(|| send(&sock, span))?.join()?;
        } else {
            send(&sock, span)?;
        }
        expect_received(remote.recv_span(span, 700)?, span, "the peer")?;
        offset += span.len;
    }
    let span = Span::new(env.seed + 1, 0, 3000);
    remote.send_span(span, 3000)?;
    Child::start(|| receive(&sock, Span { len: 1000, ..span }))?.join()?;
    receive(&sock, span.after(1000))
}

fn fork_close_ends_nothing(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    // The end of the child closes its copy of the socket.
    Child::start(|| Ok(()))?.join()?;
    let span = Span::new(env.seed, 0, 100);
    send(&sock, span)?;
    expect_received(remote.recv_span(span, 100)?, span, "the peer")?;
    // shutdown() affects all processes that have the socket.
    Child::start(|| Ok(sock.shutdown(libc::SHUT_WR)?))?.join()?;
    let sent = sock.send(b"x", libc::MSG_NOSIGNAL);
    crate::support::harness::expect_errno(sent, libc::EPIPE, "send after the child's shutdown")
}

fn passed_over_unix_socket(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    let child = Child::start(|| {
        let fd = sys::receive_fd(theirs.as_raw_fd())?;
        let sock = sys::Sock::from(fd);
        send(&sock, Span::new(env.seed, 0, 10_000))?;
        receive(&sock, Span::new(env.seed + 1, 0, 10_000))
    })?;
    sys::pass_fd(ours.as_raw_fd(), sock.as_raw_fd())?;
    drop(sock);
    let span = Span::new(env.seed, 0, 10_000);
    expect_received(remote.recv_span(span, 3000)?, span, "the peer")?;
    remote.send_span(
        Span {
            seed: env.seed + 1,
            ..span
        },
        3000,
    )?;
    child.join()?;
    expect_eq(remote.recv(1, 0)?, Vec::new(), "the end")?;
    // A socket in a message that nobody receives is closed with the pair of unix sockets.
    let (sock, remote) = env.pair()?;
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    sys::pass_fd(ours.as_raw_fd(), sock.as_raw_fd())?;
    drop(sock);
    expect_eq(remote.poll(libc::POLLIN, 0)?, 0, "alive in the message")?;
    drop((ours, theirs));
    eventually("the end", || remote.poll(libc::POLLIN, 0), |&e| e != 0)
}

const RECORD: usize = 64;
const THREADS: u64 = 64;

/// A record: the thread's number, a sequence number, and bytes that depend on both.
fn record(env: &Env, thread: u64, seq: u64) -> [u8; RECORD] {
    let mut out = [0; RECORD];
    out[..8].copy_from_slice(&thread.to_le_bytes());
    out[8..16].copy_from_slice(&seq.to_le_bytes());
    let pattern = Pattern::new(env.seed ^ (thread << 32) ^ seq);
    pattern.fill(0, &mut out[16..]);
    out
}

/// 64 threads send records, each in one call, and the peer echoes them. Every record comes back
/// once, and the records of one thread come back in order. TCP does not promise that calls without
/// a lock stay whole, so the threads take a lock.
fn threads_send_records(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let job = remote.start(Work::Echo)?;
    let sock = Arc::new(sock);
    let lock = Arc::new(Mutex::new(()));
    let each = env.scaled(20);
    let mut threads = Vec::new();
    for thread in 0..THREADS {
        let (sock, lock, env) = (Arc::clone(&sock), Arc::clone(&lock), env.clone());
        threads.push(flow::spawn(move || -> Outcome {
            for seq in 0..each {
                let _held = lock.lock().unwrap_or_else(PoisonError::into_inner);
                sock.send_all(&record(&env, thread, seq))?;
            }
            Ok(())
        })?);
    }
    let mut next: HashMap<u64, u64> = HashMap::new();
    for _ in 0..THREADS * each {
        let mut got = [0; RECORD];
        sock.recv_exact(&mut got)?;
        let thread = got[..8].try_into().map_or(u64::MAX, u64::from_le_bytes);
        let seq = next.entry(thread).or_default();
        expect(
            got == record(env, thread, *seq),
            format!("a bad record {got:?}"),
        )?;
        *seq += 1;
    }
    for thread in threads {
        joined(thread)??;
    }
    sock.shutdown(libc::SHUT_WR)?;
    expect_eof(&sock)?;
    let bytes = THREADS * each * RECORD as u64;
    expect_eq(job.join()?, bytes.to_string(), "echoed")
}

/// The bytes of a call that need not wait for room are not mixed with those of other calls, even if
/// the call gives memory of earlier calls back between its own bytes. TCP holds the socket's lock
/// meanwhile.
fn threads_send_whole_calls(env: &Env) -> Outcome {
    const LEN: usize = 90_000;
    const IN_FLIGHT: i32 = 300_000;
    if env.family == Family::Tcp {
        return Ok(());
    }
    let (sock, other) = env.own_pair()?;
    return_at_once(&sock)?;
    let sock = Arc::new(sock);
    let each = env.scaled(120);
    let span = move |env: &Env, thread: u64, seq: u64| {
        Span::new(env.seed ^ (thread + 1), seq * LEN as u64, LEN as u64)
    };
    let threads: Vec<_> = (0..3)
        .map(|thread| {
            let (sock, env) = (Arc::clone(&sock), env.clone());
            flow::spawn(move || -> Outcome {
                for seq in 0..each {
                    while sock.ioctl_int(libc::TIOCOUTQ)? > IN_FLIGHT {
                        std::thread::yield_now();
                    }
                    let mut bytes = vec![0; 100];
                    bytes.extend(span(&env, thread, seq).to_vec());
                    expect_eq(sock.send(&bytes[100..], 0)?, LEN, "sent")?;
                }
                Ok(())
            })
        })
        .collect::<Result<_, _>>()?;
    let mut next = [0; 3];
    let mut got = vec![0; LEN];
    for call in 0..3 * each {
        other.recv_exact(&mut got)?;
        let of = (0..3).find(|&thread| span(env, thread, next[thread as usize]).to_vec() == got);
        match of {
            Some(thread) => next[thread as usize] += 1,
            None => return failed(format!("call {call} is of several: {next:?}")),
        }
    }
    threads.into_iter().try_for_each(|thread| joined(thread)?)
}

/// Without a lock the bytes of several threads may mix, but no byte is lost or made up: all bytes
/// of each thread arrive.
fn threads_send_without_lock(env: &Env) -> Outcome {
    let (sock, other) = env.own_pair()?;
    let sock = Arc::new(sock);
    let each = env.scaled(50_000) as usize;
    let mut threads = Vec::new();
    for thread in 0..8_u8 {
        let sock = Arc::clone(&sock);
        threads.push(flow::spawn(move || -> Outcome {
            let mut sent = 0;
            while sent < each {
                let len = (sent % 3001 + 1).min(each - sent);
                sock.send_all(&vec![thread; len])?;
                sent += len;
            }
            Ok(())
        })?);
    }
    let mut counts = [0_usize; 256];
    let mut left = 8 * each;
    let mut buf = vec![0; 10_000];
    while left > 0 {
        let n = other.recv(&mut buf, 0)?;
        expect(n > 0 && n <= left, format!("{n} with {left} left"))?;
        buf[..n].iter().for_each(|&b| counts[usize::from(b)] += 1);
        left -= n;
    }
    for thread in threads {
        joined(thread)??;
    }
    expect(
        counts[..8].iter().all(|&c| c == each),
        format!("{:?}", &counts[..8]),
    )
}

/// Eight threads receive from one socket. Together they get every byte once.
fn threads_receive(env: &Env) -> Outcome {
    let (sock, other) = env.own_pair()?;
    let sock = Arc::new(sock);
    let each = env.scaled(20_000) as usize;
    let mut threads = Vec::new();
    for _ in 0..8 {
        let sock = Arc::clone(&sock);
        threads.push(flow::spawn(move || -> std::io::Result<Vec<usize>> {
            let mut counts = vec![0; 256];
            let mut buf = vec![0; 333];
            loop {
                match sock.recv(&mut buf, 0)? {
                    0 => return Ok(counts),
                    n => buf[..n].iter().for_each(|&b| counts[usize::from(b)] += 1),
                }
            }
        })?);
    }
    for value in 0..=9 {
        other.send_all(&vec![value; each])?;
    }
    other.shutdown(libc::SHUT_WR)?;
    let mut counts = vec![0; 256];
    for thread in threads {
        let part = joined(thread)?;
        counts.iter_mut().zip(part?).for_each(|(sum, n)| *sum += n);
    }
    expect(
        counts[..10].iter().all(|&c| c == each) && counts[10..].iter().all(|&c| c == 0),
        format!("{:?}", &counts[..12]),
    )
}

/// Each side sends and receives at the same time, in two threads that use one buffer each for all
/// calls.
fn sender_and_receiver_threads_per_side(env: &Env) -> Outcome {
    let (sock, other) = env.own_pair()?;
    let exchange = flow::Exchange {
        send_seed: env.seed,
        recv_seed: env.seed + 1,
        bytes: env.scaled(1 << 20),
        max: 100_000,
    };
    let theirs = exchange.mirrored();
    let thread = flow::spawn(move || theirs.run(&Arc::new(other)))?;
    let ours = exchange.run(&Arc::new(sock))?;
    let got = joined(thread)?;
    match exchange.complaint(&ours).or(theirs.complaint(&got?)) {
        Some(text) => failed(text),
        None => Ok(()),
    }
}
