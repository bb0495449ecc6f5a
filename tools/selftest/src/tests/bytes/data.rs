// SPDX-License-Identifier: GPL-2.0
//! The flags of send() and recv(), and other calls that send and receive.

use crate::support::counters::{stat, without_room};
use crate::support::flow::{self, Span};
use crate::support::harness::{
    eventually, expect, expect_eof, expect_eq, expect_errno, expect_received, expect_waited,
    joined, readable_bytes, receive, send, skip, tests, Env, Fail, Family, Outcome, QUIET_MS,
};
use crate::support::peer::Work;
use crate::support::sys::{self, Bundles, Pages, Sock, PAGE};
use libc::{
    EAGAIN, EINVAL, IPPROTO_TCP, MSG_DONTWAIT, MSG_MORE, MSG_OOB, MSG_PEEK, MSG_TRUNC, MSG_WAITALL,
    POLLIN, POLLPRI, SOL_SOCKET, SO_RCVBUFFORCE, SO_RCVTIMEO, SO_SNDBUF, SO_SNDBUFFORCE,
    SO_SNDTIMEO, TCP_CORK, TCP_NODELAY,
};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uapi::socket::{SDP_MODE_AZCOPY, SDP_MODE_COPY, SDP_MODE_ZCOPY, SDP_ZCOPY_MODE, SOL_SDP};

tests!("data";
    dontwait,
    waitall,
    waitall_ends_with_stream,
    one_receive_of_two_sends,
    receives_of_other_lengths_than_the_send,
    peek,
    peek_beyond_what_is_there,
    trunc_discards,
    trunc_peeks,
    nothing_wanted_of_nothing,
    more,
    cork,
    options_push,
    cork_then_close,
    cork_with_a_small_buffer,
    nodelay,
    readv_and_writev,
    read_and_write,
    sendto_ignores_address,
    sendfile,
    splice_to_socket,
    splice_from_socket,
    splice_both_ways,
    tee_beside_splice,
    vmsplice_of_pages,
    urgent,
    errqueue_is_empty,
    mmsg,
    sendfile_beyond_the_end,
    more_goes_after_a_while,
    cork_goes_after_a_while,
    bundles_of_buffers,
);

/// Waits until `count` bytes can be received.
fn until_readable(sock: &Sock, count: i32) -> Outcome {
    eventually("readable bytes", || readable_bytes(sock), |&n| n == count)
}

fn dontwait(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    expect_errno(sock.recv(&mut [0], MSG_DONTWAIT), EAGAIN, "recv")?;
    expect_errno(sock.recv(&mut [0], MSG_DONTWAIT | MSG_PEEK), EAGAIN, "peek")?;
    let waitall = sock.recv(&mut [0; 9], MSG_DONTWAIT | MSG_WAITALL);
    expect_errno(waitall, EAGAIN, "with MSG_WAITALL")?;
    remote.send(Span::new(env.seed, 0, 5), 0)?;
    until_readable(&sock, 5)?;
    let n = sock.recv(&mut [0; 9], MSG_DONTWAIT | MSG_WAITALL)?;
    expect_eq(n, 5, "what was there")?;
    expect_errno(sock.recv(&mut [0], MSG_DONTWAIT), EAGAIN, "recv at the end")
}

fn waitall(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let span = Span::new(env.seed, 0, 100_000);
    let job = remote.start(Work::Source { span, max: 3000 })?;
    let mut buf = vec![0; span.len as usize];
    expect_eq(sock.recv(&mut buf, MSG_WAITALL)?, buf.len(), "recv")?;
    expect(buf == span.to_vec(), "wrong bytes")?;
    job.join()?;
    Ok(())
}

fn waitall_ends_with_stream(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    remote.send(Span::new(env.seed, 0, 700), 0)?;
    remote.shutdown(libc::SHUT_WR)?;
    let mut buf = vec![0; 1000];
    expect_eq(sock.recv(&mut buf, MSG_WAITALL)?, 700, "recv")?;
    expect(
        buf[..700] == Span::new(env.seed, 0, 700).to_vec(),
        "wrong bytes",
    )?;
    expect_eof(&sock)
}

/// The paths of a send: by copy, and without a copy with SDP.
fn paths(env: &Env) -> &'static [Option<i32>] {
    match env.family {
        Family::Tcp => &[None],
        Family::Sdp => &[
            Some(SDP_MODE_COPY),
            Some(SDP_MODE_ZCOPY),
            Some(SDP_MODE_AZCOPY),
        ],
    }
}

/// Sends spans, each in one call, over a new connection, and waits until all bytes have arrived.
/// The program that sends gets its memory back at once.
fn sent_by(env: &Env, path: Option<i32>, spans: &[Span]) -> Result<(Sock, Sock), Fail> {
    let (sock, other) = env.own_pair()?;
    if let Some(mode) = path {
        other.set_int(SOL_SDP, SDP_ZCOPY_MODE, mode)?;
    }
    let before = stat(env, "tx_zcopy_bytes")?;
    let late_before = without_room(env)?;
    for &span in spans {
        let n = other.send(&span.to_vec(), 0)?;
        expect_eq(n as u64, span.len, "sent in one call")?;
    }
    let total = spans.iter().map(|span| span.len).sum::<u64>();
    until_readable(&sock, total as i32)?;
    let long = spans
        .iter()
        .map(|span| span.len)
        .filter(|&len| len >= 40_000);
    let (least, most) = match path {
        None | Some(SDP_MODE_COPY) => (0, 0),
        // The bytes outside of whole pages may go by copy.
        Some(_) => (long.sum::<u64>() / 2, total),
    };
    // Where the peer's receives are late, a send goes by copy after 50 ms.
    let least = if without_room(env)? > late_before {
        0
    } else {
        least
    };
    // The sender learns a moment later what its peer has read.
    eventually(
        &format!("{least} to {most} bytes by adverts, mode {path:?}"),
        || Ok(stat(env, "tx_zcopy_bytes")? - before),
        |bytes| (least..=most).contains(bytes),
    )?;
    Ok((sock, other))
}

/// A stream has no boundaries: one receive gets the bytes of several sends.
fn one_receive_of_two_sends(env: &Env) -> Outcome {
    for &path in paths(env) {
        for lens in [
            [10, 20],
            [10, 5000],
            [5000, 10],
            [9000, 20_000],
            [50_000, 1],
            [50_000, 50_000],
        ] {
            let first = Span::new(env.seed, 0, lens[0]);
            let second = Span::new(env.seed, lens[0], lens[1]);
            let total = (lens[0] + lens[1]) as usize;
            let bytes = Span::new(env.seed, 0, total as u64).to_vec();
            for (flags, room) in [
                (0, 1 << 20),
                (MSG_DONTWAIT, 1 << 20),
                (MSG_WAITALL, total),
                (MSG_DONTWAIT | MSG_WAITALL, 1 << 20),
                (MSG_PEEK, 1 << 20),
            ] {
                let (sock, _other) = sent_by(env, path, &[first, second])?;
                let what = format!("mode {path:?}, {lens:?} bytes, flags {flags:#x}");
                let mut buf = vec![0; room];
                expect_eq(sock.recv(&mut buf, flags)?, total, &what)?;
                expect(buf[..total] == bytes, format!("{what}: wrong bytes"))?;
            }
        }
    }
    Ok(())
}

/// A receive gets as many bytes as it asks for if they have arrived, wherever the messages of the
/// send begin and end.
fn receives_of_other_lengths_than_the_send(env: &Env) -> Outcome {
    const KIB: usize = 1024;
    for &path in paths(env) {
        for len in [40_000, 60_000] {
            for flags in [0, MSG_DONTWAIT, MSG_WAITALL] {
                let span = Span::new(env.seed, 0, len);
                let (sock, _other) = sent_by(env, path, &[span])?;
                let bytes = span.to_vec();
                let mut rest = bytes.as_slice();
                for wanted in [10 * KIB, 16 * KIB].into_iter().cycle() {
                    let what = format!("mode {path:?}, {len} bytes, flags {flags:#x}");
                    let mut buf = vec![0; wanted.min(rest.len())];
                    // The last receive has room for more, except if it would wait.
                    if flags != MSG_WAITALL {
                        buf.resize(wanted, 0);
                    }
                    let n = wanted.min(rest.len());
                    let left = rest.len();
                    expect_eq(
                        sock.recv(&mut buf, flags)?,
                        n,
                        format!("{what}, {left} left"),
                    )?;
                    expect(buf[..n] == rest[..n], format!("{what}: wrong bytes"))?;
                    rest = &rest[n..];
                    if rest.is_empty() {
                        break;
                    }
                }
                expect_errno(sock.recv(&mut [0], MSG_DONTWAIT), EAGAIN, "no more")?;
            }
        }
    }
    Ok(())
}

fn peek(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let span = Span::new(env.seed, 0, 3000);
    remote.send(Span::new(env.seed, 0, 1000), 0)?;
    remote.send(Span::new(env.seed, 1000, 2000), 0)?;
    until_readable(&sock, 3000)?;
    for len in [1, 999, 1000, 1001, 3000, 2, 3000] {
        let mut buf = vec![0; len];
        expect_eq(sock.recv(&mut buf, MSG_PEEK)?, len, "peek")?;
        expect(buf == span.to_vec()[..len], format!("wrong bytes of {len}"))?;
    }
    expect_eq(readable_bytes(&sock)?, 3000, "nothing was taken")?;
    receive(&sock, Span { len: 1500, ..span })?;
    let mut buf = [0; 100];
    expect_eq(sock.recv(&mut buf, MSG_PEEK)?, 100, "peek in the middle")?;
    expect(
        buf[..] == span.to_vec()[1500..1600],
        "wrong bytes in the middle",
    )?;
    receive(&sock, span.after(1500))
}

fn peek_beyond_what_is_there(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    remote.send(Span::new(env.seed, 0, 10), 0)?;
    let mut buf = [0; 100];
    expect_eq(sock.recv(&mut buf, MSG_PEEK)?, 10, "peek")?;
    receive(&sock, Span::new(env.seed, 0, 10))?;
    expect_errno(
        sock.recv(&mut buf, MSG_PEEK | MSG_DONTWAIT),
        EAGAIN,
        "peek at nothing",
    )?;
    remote.shutdown(libc::SHUT_WR)?;
    expect_eq(sock.recv(&mut buf, MSG_PEEK)?, 0, "peek at the end")
}

/// MSG_TRUNC discards bytes without a buffer for them.
fn trunc_discards(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let span = Span::new(env.seed, 0, 10_000);
    remote.send_span(span, 3000)?;
    until_readable(&sock, 10_000)?;
    // SAFETY: the kernel writes nothing with MSG_TRUNC; there is nothing at 0.
    let n = unsafe { sock.recv_raw(0, 4000, MSG_TRUNC) }?;
    expect_eq(n, 4000, "discarded")?;
    expect_eq(readable_bytes(&sock)?, 6000, "left")?;
    let mut buf = [0xee; 500];
    expect_eq(
        sock.recv(&mut buf, MSG_TRUNC)?,
        500,
        "discarded with a buffer",
    )?;
    expect(buf == [0xee; 500], "the buffer was written to")?;
    receive(&sock, span.after(4500))
}

/// MSG_MORE holds bytes back, but never loses or reorders them.
fn more(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let span = Span::new(env.seed, 0, 30_000);
    let bytes = span.to_vec();
    let mut pieces = bytes.chunks(997).peekable();
    let job = remote.start(Work::Sink(span))?;
    while let Some(piece) = pieces.next() {
        let flags = if pieces.peek().is_some() { MSG_MORE } else { 0 };
        expect_eq(sock.send(piece, flags)?, piece.len(), "sent")?;
    }
    expect_received(job.join_received()?, span, "the peer")
}

fn cork(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    sock.set_int(IPPROTO_TCP, TCP_CORK, 1)?;
    expect_eq(sock.get_int(IPPROTO_TCP, TCP_CORK)?, 1, "TCP_CORK")?;
    let span = Span::new(env.seed, 0, 100);
    for byte in span.to_vec() {
        sock.send_all(&[byte])?;
    }
    sock.set_int(IPPROTO_TCP, TCP_CORK, 0)?;
    expect_eq(sock.get_int(IPPROTO_TCP, TCP_CORK)?, 0, "TCP_CORK")?;
    expect_received(remote.recv_span(span, 100)?, span, "after uncork")?;
    // Bytes that fill a message are sent although the cork is set.
    sock.set_int(IPPROTO_TCP, TCP_CORK, 1)?;
    let span = Span::new(env.seed, 0, 1 << 20);
    let job = remote.start(Work::Sink(span))?;
    send(&sock, span)?;
    sock.set_int(IPPROTO_TCP, TCP_CORK, 0)?;
    expect_received(job.join_received()?, span, "a megabyte")
}

/// Setting TCP_NODELAY sends the bytes that wait, also those under a cork, and the removal of a cork
/// sends bytes with MSG_MORE. Without this, the bytes would wait for 200 ms.
fn options_push(env: &Env) -> Outcome {
    let (sock, other) = env.own_pair()?;
    for (corked, flags, option, value) in [
        (true, 0, TCP_NODELAY, 1),
        (false, MSG_MORE, TCP_NODELAY, 1),
        (false, MSG_MORE, TCP_CORK, 0),
        (true, MSG_MORE, TCP_CORK, 0),
    ] {
        // A slow machine may take this long for other reasons.
        let mut quick = (0..10).map(|_| -> Result<bool, Fail> {
            sock.set_int(IPPROTO_TCP, TCP_NODELAY, 0)?;
            sock.set_int(IPPROTO_TCP, TCP_CORK, corked.into())?;
            let start = Instant::now();
            sock.send(&[7; 100], flags)?;
            sock.set_int(IPPROTO_TCP, option, value)?;
            let mut buf = [0; 100];
            expect_eq(other.recv(&mut buf, MSG_WAITALL)?, 100, "received")?;
            let took = start.elapsed();
            // The push is for the bytes that waited: the cork holds back the next ones.
            if corked && option == TCP_NODELAY {
                let start = Instant::now();
                sock.send(&[8; 100], 0)?;
                expect_eq(other.recv(&mut buf, MSG_WAITALL)?, 100, "received")?;
                expect(
                    start.elapsed() > Duration::from_millis(150),
                    "not held back",
                )?;
            }
            Ok(took < Duration::from_millis(150))
        });
        let is_quick = quick.find_map(|quick| match quick {
            Ok(false) => None,
            other => Some(other),
        });
        let what = format!("option {option} with flags {flags}, corked: {corked}");
        expect(
            is_quick.transpose()? == Some(true),
            format!("{what}: the bytes wait"),
        )?;
    }
    Ok(())
}

fn cork_then_close(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    sock.set_int(IPPROTO_TCP, TCP_CORK, 1)?;
    let span = Span::new(env.seed, 0, 100);
    sock.send_all(&span.to_vec())?;
    sock.close()?;
    let got = remote.recv_span(Span { len: 101, ..span }, 100)?;
    expect_received(got, span, "after close")?;
    expect(got.eof, "no end of file")
}

fn nodelay(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    expect_eq(sock.get_int(IPPROTO_TCP, TCP_NODELAY)?, 0, "TCP_NODELAY")?;
    sock.set_int(IPPROTO_TCP, TCP_NODELAY, 1)?;
    expect(sock.get_int(IPPROTO_TCP, TCP_NODELAY)? != 0, "TCP_NODELAY")?;
    for i in 0..20 {
        let span = Span::new(env.seed, i, 1);
        sock.send_all(&span.to_vec())?;
        expect_received(remote.recv_span(span, 1)?, span, "the peer")?;
    }
    Ok(())
}

fn readv_and_writev(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let span = Span::new(env.seed, 0, 5000);
    let bytes = span.to_vec();
    let pieces: Vec<_> = bytes.chunks(333).map(io::IoSlice::new).collect();
    expect_eq(sys::writev(sock.as_raw_fd(), &pieces)?, 5000, "writev")?;
    expect_received(remote.recv_span(span, 5000)?, span, "the peer")?;
    remote.send_span(span, 5000)?;
    until_readable(&sock, 5000)?;
    let mut buf = vec![0; 6000];
    let mut pieces: Vec<_> = buf.chunks_mut(777).map(io::IoSliceMut::new).collect();
    expect_eq(sys::readv(sock.as_raw_fd(), &mut pieces)?, 5000, "readv")?;
    expect(buf[..5000] == bytes, "wrong bytes")
}

fn read_and_write(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let span = Span::new(env.seed, 0, 2000);
    expect_eq(sys::write(sock.as_raw_fd(), &span.to_vec())?, 2000, "write")?;
    expect_received(remote.recv_span(span, 5000)?, span, "the peer")?;
    remote.send_span(span, 5000)?;
    until_readable(&sock, 2000)?;
    let mut buf = vec![0; 3000];
    expect_eq(sys::read(sock.as_raw_fd(), &mut buf)?, 2000, "read")?;
    expect(buf[..2000] == span.to_vec(), "wrong bytes")?;
    let seek = sys::seek(sock.as_raw_fd());
    expect_errno(seek, libc::ESPIPE, "lseek")
}

fn sendto_ignores_address(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let elsewhere = env.there(9);
    expect_eq(sock.sendto(b"hello", &elsewhere, 0)?, 5, "sendto")?;
    expect_eq(remote.recv(9, 0)?, b"hello".to_vec(), "the peer")
}

/// Turns the refusal of an operation that a protocol may lack into a skip.
fn or_skip<T>(result: io::Result<T>, what: &str) -> Result<T, Fail> {
    match result {
        Err(e) if matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | EINVAL)) => {
            skip(format!("{what}: {e}"))
        }
        other => Ok(other?),
    }
}

fn sendfile(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let whole = Span::new(env.seed, 0, 300_001);
    let file = sys::memory_file(&whole.to_vec())?;
    for (offset, len) in [(0, 1), (1, 4095), (4097, 10_000), (0, 300_001)] {
        let span = Span::new(env.seed, offset, len);
        let job = remote.start(Work::Sink(span))?;
        let mut sent = 0;
        while sent < len {
            let from = (offset + sent) as i64;
            let n = sys::sendfile(sock.as_raw_fd(), &file, from, (len - sent) as usize);
            sent += or_skip(n, "sendfile")? as u64;
        }
        expect_eq(sent, len, "sendfile")?;
        expect_received(job.join_received()?, span, format!("{len} at {offset}"))?;
    }
    Ok(())
}

fn splice_to_socket(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let span = Span::new(env.seed, 0, 200_000);
    let job = remote.start(Work::Sink(span))?;
    let (reader, writer) = sys::pipe()?;
    for piece in span.to_vec().chunks(9973) {
        expect_eq(sys::write(writer.as_raw_fd(), piece)?, piece.len(), "write")?;
        let mut rest = piece.len();
        while rest > 0 {
            let n = sys::splice(reader.as_raw_fd(), sock.as_raw_fd(), rest);
            rest -= or_skip(n, "splice")?;
        }
    }
    expect_received(job.join_received()?, span, "the peer")
}

fn splice_from_socket(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let span = Span::new(env.seed, 0, 200_000);
    let job = remote.start(Work::Source { span, max: 7000 })?;
    let (reader, writer) = sys::pipe()?;
    let mut got = 0;
    while got < span.len {
        let n = sys::splice(sock.as_raw_fd(), writer.as_raw_fd(), 9001);
        let n = or_skip(n, "splice")?;
        expect(n > 0, "an early end of file")?;
        let mut buf = vec![0; n];
        expect_eq(sys::read(reader.as_raw_fd(), &mut buf)?, n, "read")?;
        let want = Span::new(env.seed, got, n as u64).to_vec();
        expect(buf == want, format!("wrong bytes in {n} at {got}"))?;
        got += n as u64;
    }
    job.join()?;
    remote.shutdown(libc::SHUT_WR)?;
    let n = sys::splice(sock.as_raw_fd(), writer.as_raw_fd(), 100)?;
    expect_eq(n, 0, "splice at the end")
}

fn splice_both_ways(env: &Env) -> Outcome {
    pass_back(env, false)
}

fn tee_beside_splice(env: &Env) -> Outcome {
    pass_back(env, true)
}

/// A proxy: from the socket through a pipe and back into the socket. If it `keeps` the bytes, tee()
/// refers to them in a second pipe, which is read after the first pipe has gone back.
fn pass_back(env: &Env, keeps: bool) -> Outcome {
    let (sock, remote) = env.pair()?;
    let exchange = flow::Exchange {
        send_seed: env.seed,
        recv_seed: env.seed,
        bytes: env.scaled(300_000),
        max: 50_000,
    };
    let job = remote.start(Work::Exchange(exchange))?;
    let ((reader, writer), (second, kept)) = (sys::pipe()?, sys::pipe()?);
    let mut passed = 0;
    loop {
        let n = sys::splice(sock.as_raw_fd(), writer.as_raw_fd(), 50_000);
        let n = or_skip(n, "splice")?;
        if n == 0 {
            break;
        }
        if keeps {
            let teed = sys::tee(reader.as_raw_fd(), kept.as_raw_fd(), n)?;
            expect_eq(teed, n, "tee")?;
        }
        let mut rest = n;
        while rest > 0 {
            rest -= sys::splice(reader.as_raw_fd(), sock.as_raw_fd(), rest)?;
        }
        if keeps {
            let mut buf = vec![0; n];
            expect_eq(sys::read(second.as_raw_fd(), &mut buf)?, n, "read")?;
            let want = Span::new(env.seed, passed, n as u64).to_vec();
            expect(buf == want, format!("wrong bytes in {n} at {passed}"))?;
        }
        passed += n as u64;
    }
    sock.shutdown(libc::SHUT_WR)?;
    expect_eq(job.join()?, exchange.bytes.to_string(), "came back")
}

/// Pages of the program go through a pipe. The program writes to them when the peer has the bytes.
fn vmsplice_of_pages(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let (reader, writer) = sys::pipe()?;
    let pages = Pages::new(16 * PAGE, false)?;
    for round in 0..4 {
        let span = Span::new(env.seed, round * pages.len() as u64, pages.len() as u64);
        pages.write(0, &span.to_vec());
        let job = remote.start(Work::Sink(span))?;
        let given = pages.give_to_pipe(writer.as_raw_fd(), pages.len())?;
        expect_eq(given, pages.len(), "vmsplice")?;
        let mut rest = given;
        while rest > 0 {
            let n = sys::splice(reader.as_raw_fd(), sock.as_raw_fd(), rest);
            rest -= or_skip(n, "splice")?;
        }
        expect_received(job.join_received()?, span, "the peer")?;
    }
    Ok(())
}

fn urgent(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    remote.send(Span::new(env.seed, 0, 3), 0)?;
    remote.send(Span::new(env.seed, 3, 1), MSG_OOB)?;
    eventually("POLLPRI", || sock.poll(POLLPRI, 0), |&e| e == POLLPRI)?;
    let mut byte = [0];
    expect_eq(sock.recv(&mut byte, MSG_OOB)?, 1, "recv")?;
    expect(
        byte[..] == Span::new(env.seed, 3, 1).to_vec(),
        "the wrong byte",
    )?;
    expect_errno(sock.recv(&mut byte, MSG_OOB), EINVAL, "recv again")?;
    remote.send(Span::new(env.seed, 4, 2), 0)?;
    receive(&sock, Span::new(env.seed, 0, 3))?;
    receive(&sock, Span::new(env.seed, 4, 2))
}

fn errqueue_is_empty(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    remote.send(Span::new(env.seed, 0, 3), 0)?;
    expect_eq(sock.poll(POLLIN, -1)?, POLLIN, "poll")?;
    let result = sock.recv(&mut [0; 10], libc::MSG_ERRQUEUE | MSG_DONTWAIT);
    expect_errno(result, EAGAIN, "MSG_ERRQUEUE")?;
    expect_eq(sock.poll(POLLIN, QUIET_MS)?, POLLIN, "poll after it")?;
    receive(&sock, Span::new(env.seed, 0, 3))
}

/// sendmmsg() and recvmmsg(): several messages, one stream.
fn mmsg(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let span = Span::new(env.seed, 0, 1000);
    let bytes = span.to_vec();
    let pieces: Vec<&[u8]> = bytes.chunks(100).collect();
    expect_eq(sock.sendmmsg(&pieces)?, vec![100; 10], "sendmmsg")?;
    expect_received(remote.recv_span(span, 1000)?, span, "the peer")?;
    remote.send_span(span, 1000)?;
    until_readable(&sock, 1000)?;
    let mut buf = vec![0; 1000];
    let mut pieces: Vec<&mut [u8]> = buf.chunks_mut(300).collect();
    expect_eq(
        sock.recvmmsg(&mut pieces, 0)?,
        vec![300, 300, 300, 100],
        "recvmmsg",
    )?;
    expect(buf == bytes, "wrong bytes")
}

/// Programs that do not know how long a file is ask for more than there is.
fn sendfile_beyond_the_end(env: &Env) -> Outcome {
    let (sock, other) = env.own_pair()?;
    let span = Span::new(env.seed, 0, 1000);
    let file = sys::memory_file(&span.to_vec())?;
    let n = sys::sendfile(sock.as_raw_fd(), &file, 0, 1 << 20)?;
    expect_eq(n, 1000, "sendfile")?;
    other.set_timeout(SO_RCVTIMEO, 20_000)?;
    receive(&other, span)
}

/// MSG_MORE holds bytes back for 200 ms, not for ever.
fn more_goes_after_a_while(env: &Env) -> Outcome {
    let (sock, other) = env.own_pair()?;
    let span = Span::new(env.seed, 0, 100);
    sock.send(&span.to_vec(), MSG_MORE)?;
    other.set_timeout(SO_RCVTIMEO, 20_000)?;
    receive(&other, span)
}

/// TCP_CORK holds bytes back for 200 ms, too.
fn cork_goes_after_a_while(env: &Env) -> Outcome {
    let (sock, other) = env.own_pair()?;
    sock.set_int(IPPROTO_TCP, TCP_CORK, 1)?;
    let span = Span::new(env.seed, 0, 100);
    sock.send_all(&span.to_vec())?;
    other.set_timeout(SO_RCVTIMEO, 20_000)?;
    receive(&other, span)
}

/// If the send buffer is smaller than a message, its bytes are sent when it is full, even with a
/// cork.
fn cork_with_a_small_buffer(env: &Env) -> Outcome {
    let (sock, other) = env.own_pair()?;
    let sock = Arc::new(sock);
    sock.set_int(SOL_SOCKET, SO_SNDBUF, 16384)?;
    sock.set_timeout(SO_SNDTIMEO, 20_000)?;
    other.set_timeout(SO_RCVTIMEO, 20_000)?;
    let span = Span::new(env.seed, 0, 1 << 20);
    let sender = |span| {
        let sock = sock.clone();
        flow::spawn(move || send(&sock, span))
    };
    let first = sender(span)?;
    receive(&other, span)?;
    joined(first)??;
    sock.set_int(IPPROTO_TCP, TCP_CORK, 1)?;
    let second = sender(span)?;
    let got = receive(&other, Span::new(env.seed, 0, 900_000));
    joined(second)??;
    got
}

/// MSG_TRUNC with MSG_PEEK counts the bytes that are there, and does not write to the buffer
/// either.
fn trunc_peeks(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let span = Span::new(env.seed, 0, 1000);
    remote.send(span, 0)?;
    eventually("bytes", || readable_bytes(&sock), |&n| n == 1000)?;
    // SAFETY: the kernel writes nothing with MSG_TRUNC; there is nothing at 0.
    let n = unsafe { sock.recv_raw(0, 4000, MSG_PEEK | MSG_TRUNC) }?;
    expect_eq(n, 1000, "there")?;
    receive(&sock, span)
}

/// A receive of no bytes waits for bytes like any other receive. But if none have come in time,
/// this is no error.
fn nothing_wanted_of_nothing(env: &Env) -> Outcome {
    let (sock, _remote) = env.pair()?;
    expect_errno(sock.recv(&mut [], MSG_DONTWAIT), EAGAIN, "recv")?;
    sock.set_timeout(SO_RCVTIMEO, 150)?;
    let began = Instant::now();
    expect_eq(sock.recv(&mut [], 0)?, 0, "recv that waits")?;
    expect_waited(began)
}

/// One request of io_uring takes all bytes that are there. Each of its completions fills several
/// buffers.
fn bundles_of_buffers(env: &Env) -> Outcome {
    const LEN: usize = 1 << 20;
    const BUFFER: usize = 4096;
    let (one, other) = env.own_pair()?;
    one.set_int(SOL_SOCKET, SO_SNDBUFFORCE, 32 << 20)?;
    other.set_int(SOL_SOCKET, SO_RCVBUFFORCE, 32 << 20)?;
    let Some(mut bundles) = Bundles::new(1024, BUFFER)? else {
        return skip("no io_uring here");
    };
    let span = Span::new(env.seed, 0, LEN as u64);
    send(&one, span)?;
    // Bytes that arrive meanwhile may need a completion of their own. TCP's window may be smaller.
    if env.family == Family::Sdp {
        until_readable(&other, LEN as i32)?;
    }
    let came = bundles.receive(other.as_raw_fd(), LEN)?;
    expect(came.concat() == span.to_vec(), "other bytes")?;
    // TCP has at most eight completions. With one buffer for each completion there would be 256.
    expect(came.len() <= 64, format!("{} completions", came.len()))
}
