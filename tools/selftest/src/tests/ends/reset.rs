// SPDX-License-Identifier: GPL-2.0
//! Ends of connections that are not orderly: resets, broken pipes, killed processes.

use crate::support::flow::{self, recv_span, Span};
use crate::support::harness::{
    eventually, expect, expect_eq, expect_errno, expect_errno_of, expect_received, failed, fill,
    joined, readable_bytes, receive, send, tests, Child, Env, Fail, Outcome, QUIET_MS,
};
use crate::support::peer::Work;
use crate::support::sys::{self, Sock};
use libc::{
    EADDRINUSE, ECONNRESET, EINPROGRESS, EINVAL, EPIPE, MSG_DONTWAIT, MSG_NOSIGNAL, POLLERR,
    POLLHUP, POLLIN, POLLOUT, POLLRDHUP, SHUT_RDWR, SHUT_WR,
};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

tests!("reset";
    unread_data_resets,
    linger_zero_resets,
    data_before_reset_is_readable,
    reset_wakes_recv,
    reset_wakes_send,
    peer_had_enough,
    send_after_peer_closed,
    sigpipe,
    peer_killed,
    killed_while_sending,
    reading_ends_after_fin_and_reset,
    nothing_is_left_after_disconnect,
    bytes_come_after_both_halves_are_shut,
    chosen_port_is_free_after_the_end,
);

fn pause() {
    std::thread::sleep(Duration::from_millis(QUIET_MS as u64));
}

/// A close() with unread bytes resets the connection.
fn unread_data_resets(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    sock.send_all(b"nobody reads this")?;
    eventually("POLLIN", || remote.poll(POLLIN, 0), |&e| e == POLLIN)?;
    remote.close()?;
    expect_errno(sock.recv(&mut [0], 0), ECONNRESET, "recv")?;
    expect_eq(sock.recv(&mut [0], 0)?, 0, "recv again")?;
    let (sock, remote) = env.pair()?;
    remote.send(Span::new(env.seed, 0, 10), 0)?;
    eventually("POLLIN", || sock.poll(POLLIN, 0), |&e| e == POLLIN)?;
    receive(&sock, Span::new(env.seed, 0, 9))?;
    sock.close()?;
    expect_errno(remote.recv(1, 0), ECONNRESET, "the peer's recv")
}

fn linger_zero_resets(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    remote.reset()?;
    expect_errno(sock.recv(&mut [0], 0), ECONNRESET, "recv")?;
    expect_eq(sock.recv(&mut [0], 0)?, 0, "recv again")?;
    expect_errno(sock.send(b"x", MSG_NOSIGNAL), EPIPE, "send")?;
    let (sock, remote) = env.pair()?;
    sock.reset()?;
    expect_errno(remote.recv(1, 0), ECONNRESET, "the peer's recv")
}

fn data_before_reset_is_readable(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let span = Span::new(env.seed, 0, 100);
    remote.send(span, 0)?;
    eventually("readable bytes", || readable_bytes(&sock), |&n| n == 100)?;
    remote.reset()?;
    eventually("POLLERR", || sock.poll(0, 0), |&e| e & POLLERR != 0)?;
    receive(&sock, span)?;
    expect_errno(sock.recv(&mut [0], 0), ECONNRESET, "recv at the end")
}

fn reset_wakes_recv(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let waiting = flow::spawn(move || sock.recv(&mut [0; 9], 0))?;
    pause();
    expect(!waiting.is_finished(), "recv did not wait")?;
    remote.reset()?;
    expect_errno(joined(waiting)?, ECONNRESET, "recv")
}

fn reset_wakes_send(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let full = fill(&sock, env.seed)?;
    let waiting =
        flow::spawn(move || flow::send_span(&sock, Span::new(0, full, 64 << 20), 1 << 20))?;
    pause();
    expect(!waiting.is_finished(), "send did not wait")?;
    remote.reset()?;
    match joined(waiting)? {
        Err((_, e)) => expect_errno_of::<()>(Err(e), &[ECONNRESET, EPIPE], "send"),
        Ok(_) => failed("64 MiB were sent to nobody"),
    }
}

/// Sends until a call fails; returns the errno.
fn error_of_sending(sock: &Sock) -> Result<i32, Fail> {
    for _ in 0..1000 {
        match sock.send(&[0; 1000], MSG_NOSIGNAL) {
            Ok(_) => std::thread::sleep(Duration::from_millis(5)),
            Err(e) => return Ok(e.raw_os_error().unwrap_or(0)),
        }
    }
    failed("sending to a closed socket never fails")
}

/// The first send to a closed peer succeeds. The peer answers it with a reset, so later sends fail.
fn peer_had_enough(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    remote.close()?;
    let end = POLLIN | POLLOUT | POLLRDHUP;
    let all = || sock.poll(end, 0);
    eventually("the end", all, |&e| e == end)?;
    expect_eq(sock.send(b"x", MSG_NOSIGNAL)?, 1, "sent")?;
    let over = end | POLLERR | POLLHUP;
    eventually("the reset", all, |&e| e == over)?;
    expect_errno(sock.send(b"x", MSG_NOSIGNAL), EPIPE, "the next send")?;
    eventually("no error any more", all, |&e| e == over - POLLERR)?;
    expect_eq(sock.recv(&mut [0], 0)?, 0, "recv")?;
    expect_errno(sock.send(b"x", MSG_NOSIGNAL), EPIPE, "one more send")
}

fn send_after_peer_closed(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    remote.close()?;
    eventually("the end", || sock.poll(POLLIN, 0), |&e| e == POLLIN)?;
    let errno = error_of_sending(&sock)?;
    expect(
        errno == EPIPE || errno == ECONNRESET,
        format!("errno {errno}"),
    )?;
    let (sock, remote) = env.pair()?;
    remote.reset()?;
    eventually("the reset", || sock.poll(0, 0), |&e| e != 0)?;
    let errno = error_of_sending(&sock)?;
    expect(
        errno == EPIPE || errno == ECONNRESET,
        format!("errno {errno}"),
    )
}

static SIGPIPES: AtomicU32 = AtomicU32::new(0);

extern "C" fn count_sigpipe(_: libc::c_int) {
    SIGPIPES.fetch_add(1, Ordering::SeqCst);
}

fn sigpipe(env: &Env) -> Outcome {
    sys::install_handler(libc::SIGPIPE, count_sigpipe, true)?;
    let (sock, _remote) = env.pair()?;
    sock.shutdown(SHUT_WR)?;
    let count = || SIGPIPES.load(Ordering::SeqCst);
    expect_errno(sock.send(b"x", MSG_NOSIGNAL), EPIPE, "with MSG_NOSIGNAL")?;
    expect_eq(count(), 0, "signals with MSG_NOSIGNAL")?;
    expect_errno(sock.send(b"x", 0), EPIPE, "without")?;
    expect_eq(count(), 1, "signals without")?;
    expect_errno(sys::write(sock.as_raw_fd(), b"x"), EPIPE, "write")?;
    expect_eq(count(), 2, "signals of write")?;
    // With the default action, the signal kills the process.
    let child = Child::start(|| {
        sys::default_action(libc::SIGPIPE);
        let _ = sock.send(b"x", 0);
        failed("still alive")
    })?;
    match child.join() {
        Err(Fail::Failed(why)) if why == "killed by signal 13" => Ok(()),
        other => failed(format!("the child ended with {other:?}")),
    }
}

/// The peer's process is killed in the middle of a transfer. The bytes that have arrived are right,
/// and then the stream ends.
fn peer_killed(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let span = Span::new(env.seed, 0, 1 << 40);
    remote.start(Work::Source { span, max: 100_000 })?;
    receive(
        &sock,
        Span {
            len: 50_000,
            ..span
        },
    )?;
    let reading = flow::spawn(move || recv_span(&sock, span.after(50_000), 100_000))?;
    remote.session().die()?;
    let got = joined(reading)?;
    expect_eq(got.verdict.wrong, 0, "wrong bytes")?;
    let ended = got.eof || got.errno == ECONNRESET;
    expect(ended, format!("no end: {got}"))
}

fn killed_while_sending(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let span = Span::new(env.seed, 0, 1 << 40);
    let child = Child::start(|| send(&sock, span))?;
    drop(sock);
    let start = Span {
        len: 50_000,
        ..span
    };
    expect_received(remote.recv_span(start, 10_000)?, start, "the peer")?;
    let job = remote.start(Work::Sink(span.after(50_000)))?;
    sys::kill(child.pid, libc::SIGKILL)?;
    let got = job.join_received()?;
    expect_eq(got.verdict.wrong, 0, "wrong bytes")?;
    let ended = got.eof || got.errno == ECONNRESET;
    expect(ended, format!("no end: {got}"))
}

/// After the end of file, a reader gets the end of file again, even if the connection is reset.
fn reading_ends_after_fin_and_reset(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    remote.shutdown(SHUT_WR)?;
    expect_eq(sock.recv(&mut [0; 9], 0)?, 0, "recv")?;
    // An unread byte makes the peer's close a reset.
    sock.send_all(&[1])?;
    std::thread::sleep(Duration::from_millis(QUIET_MS as u64));
    remote.close()?;
    std::thread::sleep(Duration::from_millis(QUIET_MS as u64));
    let n = sock.recv(&mut [0; 9], 0);
    expect_eq(n.map_err(|e| e.raw_os_error()), Ok(0), "recv again")
}

/// How a connection ends while its sockets stay open.
#[derive(Clone, Copy, Debug)]
enum End {
    Reset,
    /// The peer ends first, so that this end does not have to wait for late packets.
    Orderly,
    /// The connection is refused.
    Refused,
}

/// A port that the kernel has chosen is free as soon as the connection has ended, although the
/// socket is still open. A port that the program has chosen is not.
fn chosen_port_is_free_after_the_end(env: &Env) -> Outcome {
    for end in [End::Reset, End::Orderly, End::Refused] {
        for given in [false, true] {
            let what = format!("{end:?}, the program's choice: {given}");
            let sock = env.socket()?;
            if given {
                let other = env.socket()?;
                other.bind(&env.here(0))?;
                let name = other.getsockname()?;
                other.close()?;
                sock.bind(&name)?;
            }
            ended(env, &sock, end)?;
            let name = sock.getsockname()?;
            let port = env.here(name.port());
            if given {
                std::thread::sleep(Duration::from_millis(QUIET_MS as u64));
                expect_errno(env.socket()?.bind(&port), EADDRINUSE, &what)?;
                expect_errno(sock.bind(&env.here(0)), EINVAL, &what)?;
                continue;
            }
            let bound = || Ok(env.socket()?.bind(&port).is_ok());
            eventually(&what, bound, |&is_free| is_free)?;
            expect_eq(sock.getsockname()?.to_std(), name.to_std(), &what)?;
            sock.bind(&env.here(0))?;
        }
    }
    // An accepted socket has the port of its listener. The port was not chosen by a bind() of the
    // accepted socket, so it is free when the connection ends.
    let (listener, addr) = env.listener(1)?;
    let remote = env.remote_socket(&env.peer()?)?;
    remote.connect(&addr)?;
    let (child, _) = listener.accept()?;
    listener.close()?;
    let bind = || env.socket()?.bind(&addr);
    expect_errno(bind(), EADDRINUSE, "beside a child")?;
    remote.reset()?;
    eventually("beside its end", || Ok(bind().is_ok()), |&is_free| is_free)?;
    expect_eq(child.getsockname()?.to_std(), addr.to_std(), "the child's")
}

/// Makes a connection of `sock`, and ends it.
fn ended(env: &Env, sock: &Sock, end: End) -> Outcome {
    let (listener, addr) = env.remote_listener(1)?;
    if let End::Refused = end {
        listener.shutdown(SHUT_RDWR)?;
        sock.set_nonblocking(true)?;
        expect_errno(sock.connect(&addr), EINPROGRESS, "connect")?;
        sock.poll(POLLOUT, -1)?;
        return Ok(());
    }
    sock.connect(&addr)?;
    let (remote, _) = listener.accept()?;
    if let End::Reset = end {
        remote.reset()?;
        return expect_errno(sock.recv(&mut [0], 0), ECONNRESET, "recv");
    }
    remote.shutdown(SHUT_WR)?;
    expect_eq(sock.recv(&mut [0], 0)?, 0, "recv")?;
    sock.shutdown(SHUT_WR)?;
    expect_eq(remote.recv(1, 0)?.len(), 0, "the peer's recv")
}

/// A socket that has shut both halves wants no more bytes. If a byte arrives, the connection is
/// reset.
fn bytes_come_after_both_halves_are_shut(env: &Env) -> Outcome {
    for bytes in [1, 100_000] {
        let (sock, remote) = env.pair()?;
        remote.send(Span::new(env.seed, 0, 10), 0)?;
        eventually("bytes", || readable_bytes(&sock), |&n| n == 10)?;
        sock.shutdown(SHUT_RDWR)?;
        eventually("the end", || remote.poll(POLLRDHUP, 0), |&e| e != 0)?;
        // The reset may arrive before all bytes are sent.
        let _ = remote.send(Span::new(env.seed, 10, bytes), 0);
        let reset = |events: &i16| *events == POLLERR | POLLHUP;
        eventually("a reset", || sock.poll(0, 0), reset)?;
        receive(&sock, Span::new(env.seed, 0, 10))?;
        expect_errno(sock.recv(&mut [0], 0), ECONNRESET, "recv")?;
        expect_eq(sock.recv(&mut [0], 0)?, 0, "recv again")?;
        eventually(
            "the peer's reset",
            || remote.poll(0, 0),
            |&e| e & POLLHUP != 0,
        )?;
    }
    Ok(())
}

/// connect() to AF_UNSPEC discards unread bytes.
fn nothing_is_left_after_disconnect(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    remote.send(Span::new(env.seed, 0, 100), 0)?;
    eventually("bytes", || readable_bytes(&sock), |&n| n == 100)?;
    sock.connect(&env.here(0).with_family(libc::AF_UNSPEC))?;
    sock.take_error()?;
    let result = sock.recv(&mut [0; 200], MSG_DONTWAIT);
    expect_errno(result, libc::ENOTCONN, "recv")
}
