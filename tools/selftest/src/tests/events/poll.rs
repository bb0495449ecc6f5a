// SPDX-License-Identifier: GPL-2.0
//! poll(), select() and epoll: the events of each stage of a socket's life.

use crate::support::flow::{self, Span};
use crate::support::harness::{
    eventually, expect, expect_eq, expect_errno, fill, fill_from, joined, receive, tests, Env,
    Outcome, QUIET_MS,
};
use crate::support::sys::{select_one, Epoll, Pages, Ready, Sock, PAGE};
use libc::{
    EPOLLERR, EPOLLET, EPOLLHUP, EPOLLIN, EPOLLONESHOT, EPOLLOUT, EPOLLRDHUP, POLLERR, POLLHUP,
    POLLIN, POLLOUT, POLLPRI, POLLRDHUP,
};
use std::io;
use std::os::fd::AsRawFd;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

tests!("poll";
    stages_of_a_connection,
    stages_of_an_orderly_end,
    own_shutdown,
    own_shutdown_of_reading,
    closed_by_peer,
    reset_by_peer,
    full_and_writable_again,
    asks_only_for_what_is_wanted,
    other_names_of_events,
    select,
    wakes_on_data,
    wakes_on_close,
    wakes_on_reset,
    no_reset_without_its_error,
    wakes_on_write_space,
    bad_descriptor,
    epoll_level,
    epoll_edge_once_per_arrival,
    epoll_edge_on_partial_read,
    epoll_edge_on_write_space,
    epoll_edge_on_close,
    epoll_edge_not_on_faults,
    epoll_oneshot,
    epoll_listener,
    epoll_connect,
    epoll_reset,
    epoll_forgets_closed,
    epoll_of_many,
    epoll_blocked_while_added,
);

const ALL: i16 = POLLIN | POLLOUT | POLLPRI | POLLRDHUP;

/// Waits until poll() reports exactly these events.
#[track_caller]
fn settles(sock: &Sock, want: i16, what: &str) -> Outcome {
    eventually(what, || sock.poll(ALL, 0), |&e| e == want)
}

fn stages_of_a_connection(env: &Env) -> Outcome {
    let (listener, addr) = env.remote_listener(1)?;
    let sock = env.socket()?;
    expect_eq(sock.poll(ALL, 0)?, POLLOUT | POLLHUP, "a new socket")?;
    sock.bind(&env.here(0))?;
    expect_eq(sock.poll(ALL, 0)?, POLLOUT | POLLHUP, "bound")?;
    sock.connect(&addr)?;
    expect_eq(sock.poll(ALL, 0)?, POLLOUT, "connected")?;
    let (remote, _) = listener.accept()?;
    remote.send(Span::new(env.seed, 0, 10), 0)?;
    settles(&sock, POLLIN | POLLOUT, "with data")?;
    receive(&sock, Span::new(env.seed, 0, 9))?;
    expect_eq(sock.poll(ALL, 0)?, POLLIN | POLLOUT, "with a byte left")?;
    receive(&sock, Span::new(env.seed, 9, 1))?;
    expect_eq(sock.poll(ALL, 0)?, POLLOUT, "with nothing left")
}

fn stages_of_an_orderly_end(env: &Env) -> Outcome {
    let (sock, remote) = env.accepted_pair()?;
    remote.send(Span::new(env.seed, 0, 10), 0)?;
    remote.shutdown(libc::SHUT_WR)?;
    settles(
        &sock,
        POLLIN | POLLOUT | POLLRDHUP,
        "data and the peer's end",
    )?;
    receive(&sock, Span::new(env.seed, 0, 10))?;
    expect_eq(
        sock.poll(ALL, 0)?,
        POLLIN | POLLOUT | POLLRDHUP,
        "the peer's end",
    )?;
    expect_eq(sock.recv(&mut [0], 0)?, 0, "recv")?;
    expect_eq(
        sock.poll(ALL, 0)?,
        POLLIN | POLLOUT | POLLRDHUP,
        "after recv",
    )?;
    expect_eq(remote.poll(ALL, 0)?, POLLOUT, "the peer")?;
    sock.shutdown(libc::SHUT_WR)?;
    settles(&sock, POLLIN | POLLOUT | POLLRDHUP | POLLHUP, "both ended")?;
    let want = POLLIN | POLLOUT | POLLRDHUP | POLLHUP;
    eventually(
        "the peer at the end",
        || remote.poll(ALL, 0),
        |&e| e == want,
    )
}

fn own_shutdown(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    sock.shutdown(libc::SHUT_WR)?;
    settles(&sock, POLLOUT, "our end")?;
    remote.send(Span::new(env.seed, 0, 3), 0)?;
    settles(&sock, POLLIN | POLLOUT, "our end, with data")?;
    receive(&sock, Span::new(env.seed, 0, 3))
}

fn own_shutdown_of_reading(env: &Env) -> Outcome {
    let (sock, _remote) = env.pair()?;
    sock.shutdown(libc::SHUT_RD)?;
    expect_eq(sock.poll(ALL, 0)?, POLLIN | POLLOUT | POLLRDHUP, "SHUT_RD")?;
    sock.shutdown(libc::SHUT_WR)?;
    let want = POLLIN | POLLOUT | POLLRDHUP | POLLHUP;
    expect_eq(sock.poll(ALL, 0)?, want, "SHUT_WR as well")
}

fn closed_by_peer(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    remote.close()?;
    settles(&sock, POLLIN | POLLOUT | POLLRDHUP, "closed")
}

fn reset_by_peer(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    remote.reset()?;
    let gone = POLLIN | POLLOUT | POLLRDHUP | POLLHUP;
    settles(&sock, gone | POLLERR, "reset")?;
    expect_eq(sock.take_error()?, libc::ECONNRESET, "SO_ERROR")?;
    expect_eq(sock.poll(ALL, 0)?, gone, "when the error is known")?;
    expect_eq(sock.recv(&mut [0], 0)?, 0, "recv")
}

fn full_and_writable_again(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let sent = fill(&sock, env.seed)?;
    expect_eq(sock.poll(ALL, 0)?, 0, "full")?;
    remote.recv_span(Span::new(env.seed, 0, sent), 50_000)?;
    settles(&sock, POLLOUT, "drained")
}

fn asks_only_for_what_is_wanted(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    expect_eq(sock.poll(POLLIN, 0)?, 0, "POLLIN of nothing")?;
    expect_eq(sock.poll(0, QUIET_MS)?, 0, "no events")?;
    remote.send(Span::new(env.seed, 0, 3), 0)?;
    expect_eq(sock.poll(POLLIN, -1)?, POLLIN, "POLLIN of data")?;
    expect_eq(sock.poll(POLLRDHUP, QUIET_MS)?, 0, "POLLRDHUP of data")?;
    remote.reset()?;
    // Errors and hang-ups are reported even if no event was asked for. The error may be reported a
    // moment before the hang-up.
    expect(sock.poll(0, -1)? & POLLERR != 0, "no error of a reset")?;
    eventually("a reset", || sock.poll(0, 0), |&e| e == POLLERR | POLLHUP)
}

/// POLLRDNORM and POLLWRNORM are reported whenever POLLIN and POLLOUT are.
fn other_names_of_events(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let norm = libc::POLLRDNORM | libc::POLLWRNORM;
    expect_eq(sock.poll(norm, 0)?, libc::POLLWRNORM, "idle")?;
    remote.send(Span::new(env.seed, 0, 3), 0)?;
    eventually("with data", || sock.poll(norm, 0), |&e| e == norm)?;
    let (listener, addr) = env.listener(1)?;
    expect_eq(listener.poll(norm, 0)?, 0, "a listener")?;
    let client = env.remote_socket(&env.peer()?)?;
    client.connect(&addr)?;
    let seen = listener.poll(norm, -1)?;
    expect_eq(seen, libc::POLLRDNORM, "a listener with a connection")
}

fn select(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let now = || select_one(sock.as_raw_fd(), 0);
    let ready = |read, write, except| Ready {
        read,
        write,
        except,
    };
    expect_eq(now()?, ready(false, true, false), "idle")?;
    remote.send(Span::new(env.seed, 0, 3), 0)?;
    eventually("with data", now, |&r| r == ready(true, true, false))?;
    receive(&sock, Span::new(env.seed, 0, 3))?;
    expect_eq(now()?, ready(false, true, false), "idle again")?;
    let sent = fill(&sock, env.seed)?;
    expect_eq(now()?, ready(false, false, false), "full")?;
    remote.recv_span(Span::new(env.seed, 0, sent), 50_000)?;
    remote.shutdown(libc::SHUT_WR)?;
    eventually("at the end", now, |&r| r == ready(true, true, false))
}

/// Starts a thread that waits in poll() for `events`, and gives it time to return.
fn waits_for(sock: &Sock, events: i16) -> io::Result<JoinHandle<io::Result<i16>>> {
    let watched = sock.dup()?;
    let waiting = flow::spawn(move || watched.poll(events, -1))?;
    std::thread::sleep(Duration::from_millis(QUIET_MS as u64));
    Ok(waiting)
}

/// Runs `act` while another thread waits in poll() for `events`. Expects that the thread waits
/// until then, and that poll() reports `want`.
#[track_caller]
fn woken(sock: &Sock, events: i16, want: i16, act: impl FnOnce() -> Outcome) -> Outcome {
    let waiting = waits_for(sock, events)?;
    expect(!waiting.is_finished(), "poll did not wait")?;
    act()?;
    expect_eq(joined(waiting)??, want, "poll")
}

fn wakes_on_data(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    for i in 0..3 {
        let span = Span::new(env.seed, i, 1);
        woken(&sock, POLLIN | POLLRDHUP, POLLIN, || {
            remote.send(span, 0)?;
            Ok(())
        })?;
        receive(&sock, span)?;
    }
    Ok(())
}

fn wakes_on_close(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    woken(&sock, POLLIN, POLLIN, || Ok(remote.close()?))?;
    let (sock, remote) = env.pair()?;
    woken(&sock, POLLRDHUP, POLLRDHUP, || {
        Ok(remote.shutdown(libc::SHUT_WR)?)
    })
}

fn wakes_on_reset(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    woken(&sock, 0, POLLERR | POLLHUP, || Ok(remote.reset()?))
}

/// The time limit for a reset to be seen.
const LATE: Duration = Duration::from_secs(30);

/// A thread that polls all the time never sees the end of a reset connection without the error.
fn no_reset_without_its_error(env: &Env) -> Outcome {
    for _ in 0..env.scaled(50) {
        let (sock, remote) = env.pair()?;
        let first = flow::spawn(move || -> io::Result<i16> {
            let begin = Instant::now();
            loop {
                let events = sock.poll(ALL, 0)?;
                if events != POLLOUT || begin.elapsed() > LATE {
                    return Ok(events);
                }
            }
        })?;
        remote.reset()?;
        let seen = joined(first)??;
        expect(seen & POLLERR != 0, format!("events {seen:#x} of a reset"))?;
    }
    Ok(())
}

fn wakes_on_write_space(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let mut sent = 0;
    loop {
        let before = sent;
        sent = fill_from(&sock, env.seed, before)?;
        expect(sent > before, "poll reported room that is not there")?;
        let waiting = waits_for(&sock, POLLOUT)?;
        if !waiting.is_finished() {
            remote.recv_span(Span::new(env.seed, 0, sent), 50_000)?;
            return expect_eq(joined(waiting)??, POLLOUT, "poll");
        }
        // On a slow machine, room may still appear late.
        expect_eq(joined(waiting)??, POLLOUT, "poll when there is room")?;
    }
}

fn bad_descriptor(env: &Env) -> Outcome {
    let sock = env.socket()?;
    let fd = sock.as_raw_fd();
    drop(sock);
    let seen = crate::support::sys::poll_fds(&[(fd, POLLIN)], 0)?;
    expect_eq(seen, vec![libc::POLLNVAL], "poll of a closed descriptor")
}

const EPOLL_ALL: i32 = EPOLLIN | EPOLLOUT | EPOLLRDHUP;

/// The events of an epoll instance with one socket in it.
fn next(epoll: &Epoll, timeout_ms: i32) -> io::Result<i32> {
    let seen = epoll.wait(timeout_ms)?;
    Ok(seen.first().map_or(0, |&(_, events)| events))
}

fn epoll_level(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let epoll = Epoll::new()?;
    epoll.add(sock.as_raw_fd(), EPOLL_ALL, 1)?;
    expect_errno(
        epoll.add(sock.as_raw_fd(), EPOLLIN, 1),
        libc::EEXIST,
        "added twice",
    )?;
    expect_eq(next(&epoll, 0)?, EPOLLOUT, "idle")?;
    epoll.modify(sock.as_raw_fd(), EPOLLIN | EPOLLRDHUP, 1)?;
    expect_eq(next(&epoll, 0)?, 0, "idle, for input")?;
    remote.send(Span::new(env.seed, 0, 10), 0)?;
    expect_eq(next(&epoll, -1)?, EPOLLIN, "with data")?;
    expect_eq(next(&epoll, 0)?, EPOLLIN, "still with data")?;
    receive(&sock, Span::new(env.seed, 0, 10))?;
    expect_eq(next(&epoll, 0)?, 0, "with none")?;
    remote.shutdown(libc::SHUT_WR)?;
    expect_eq(next(&epoll, -1)?, EPOLLIN | EPOLLRDHUP, "the end")?;
    epoll.remove(sock.as_raw_fd())?;
    expect_eq(next(&epoll, 0)?, 0, "removed")
}

fn epoll_edge_once_per_arrival(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let epoll = Epoll::new()?;
    epoll.add(sock.as_raw_fd(), EPOLLIN | EPOLLET, 1)?;
    for i in 0..5 {
        remote.send(Span::new(env.seed, i, 1), 0)?;
        expect_eq(next(&epoll, -1)?, EPOLLIN, format!("arrival {i}"))?;
        expect_eq(next(&epoll, QUIET_MS)?, 0, format!("after arrival {i}"))?;
    }
    receive(&sock, Span::new(env.seed, 0, 5))?;
    expect_eq(next(&epoll, QUIET_MS)?, 0, "after recv")?;
    // EPOLL_CTL_MOD reports events that are there already.
    remote.send(Span::new(env.seed, 0, 1), 0)?;
    expect_eq(next(&epoll, -1)?, EPOLLIN, "another")?;
    epoll.modify(sock.as_raw_fd(), EPOLLIN | EPOLLET, 1)?;
    expect_eq(next(&epoll, 0)?, EPOLLIN, "after EPOLL_CTL_MOD")
}

fn epoll_edge_on_partial_read(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let epoll = Epoll::new()?;
    epoll.add(sock.as_raw_fd(), EPOLLIN | EPOLLET, 1)?;
    remote.send(Span::new(env.seed, 0, 1000), 0)?;
    expect_eq(next(&epoll, -1)?, EPOLLIN, "arrival")?;
    receive(&sock, Span::new(env.seed, 0, 400))?;
    expect_eq(next(&epoll, QUIET_MS)?, 0, "the rest is no arrival")?;
    remote.send(Span::new(env.seed, 1000, 1), 0)?;
    expect_eq(next(&epoll, -1)?, EPOLLIN, "another arrival")?;
    receive(&sock, Span::new(env.seed, 400, 601))
}

fn epoll_edge_on_write_space(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let epoll = Epoll::new()?;
    epoll.add(sock.as_raw_fd(), EPOLLOUT | EPOLLET, 1)?;
    expect_eq(next(&epoll, 0)?, EPOLLOUT, "at first")?;
    expect_eq(next(&epoll, QUIET_MS)?, 0, "nothing has changed")?;
    let mut seed = env.seed;
    for round in 0..2 {
        let mut sent = fill(&sock, seed)?;
        // On a slow machine the peer may make room after the socket seemed to be full.
        let mut edges = 0;
        while next(&epoll, QUIET_MS)? != 0 {
            edges += 1;
            expect(edges <= 20, format!("edges while full, round {round}"))?;
            sent = fill_from(&sock, seed, sent)?;
        }
        remote.recv_span(Span::new(seed, 0, sent), 50_000)?;
        expect_eq(
            next(&epoll, -1)?,
            EPOLLOUT,
            format!("drained, round {round}"),
        )?;
        seed += 1;
    }
    Ok(())
}

fn epoll_edge_on_close(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let epoll = Epoll::new()?;
    epoll.add(sock.as_raw_fd(), EPOLLIN | EPOLLRDHUP | EPOLLET, 1)?;
    expect_eq(next(&epoll, 0)?, 0, "idle")?;
    remote.shutdown(libc::SHUT_WR)?;
    expect_eq(next(&epoll, -1)?, EPOLLIN | EPOLLRDHUP, "the end")?;
    sock.shutdown(libc::SHUT_WR)?;
    let want = EPOLLIN | EPOLLRDHUP | EPOLLHUP;
    eventually("both ended", || next(&epoll, 1000), |&e| e == want)
}

/// A call that faults in the pages of its buffer must not cause an edge, because nothing has
/// changed that a program waits for.
fn epoll_edge_not_on_faults(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let epoll = Epoll::new()?;
    epoll.add(sock.as_raw_fd(), EPOLLIN | EPOLLOUT | EPOLLET, 1)?;
    expect_eq(next(&epoll, -1)?, EPOLLOUT, "at first")?;
    remote.send(Span::new(env.seed, 0, 1000), 0)?;
    expect_eq(next(&epoll, -1)?, EPOLLIN | EPOLLOUT, "arrival")?;
    expect_eq(next(&epoll, QUIET_MS)?, 0, "after the arrival")?;
    // The page is not present, because nobody has touched it.
    let page = Pages::new(PAGE, false)?;
    // SAFETY: nothing else uses the page.
    let got = unsafe { sock.recv_raw(page.at(0), 400, 0) }?;
    expect_eq(got, 400, "received")?;
    expect_eq(next(&epoll, QUIET_MS)?, 0, "after recv")?;
    receive(&sock, Span::new(env.seed, 400, 600))
}

fn epoll_oneshot(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let epoll = Epoll::new()?;
    epoll.add(sock.as_raw_fd(), EPOLLIN | EPOLLONESHOT, 1)?;
    remote.send(Span::new(env.seed, 0, 1), 0)?;
    expect_eq(next(&epoll, -1)?, EPOLLIN, "the first")?;
    remote.send(Span::new(env.seed, 1, 1), 0)?;
    expect_eq(next(&epoll, QUIET_MS)?, 0, "disarmed")?;
    epoll.modify(sock.as_raw_fd(), EPOLLIN | EPOLLONESHOT, 1)?;
    expect_eq(next(&epoll, -1)?, EPOLLIN, "armed again")
}

fn epoll_listener(env: &Env) -> Outcome {
    let (listener, addr) = env.listener(5)?;
    let epoll = Epoll::new()?;
    epoll.add(listener.as_raw_fd(), EPOLLIN | EPOLLET, 1)?;
    expect_eq(next(&epoll, 0)?, 0, "idle")?;
    let peer = env.peer()?;
    let mut remotes = Vec::new();
    for i in 0..3 {
        let remote = env.remote_socket(&peer)?;
        remote.connect(&addr)?;
        expect_eq(next(&epoll, -1)?, EPOLLIN, format!("connection {i}"))?;
        remotes.push(remote);
    }
    expect_eq(next(&epoll, QUIET_MS)?, 0, "nothing new")?;
    listener.set_nonblocking(true)?;
    for _ in &remotes {
        listener.accept()?;
    }
    expect_errno(listener.accept(), libc::EAGAIN, "accept")
}

fn epoll_connect(env: &Env) -> Outcome {
    let (_listener, addr) = env.remote_listener(5)?;
    let sock = env.socket()?;
    sock.set_nonblocking(true)?;
    expect_errno(sock.connect(&addr), libc::EINPROGRESS, "connect")?;
    let epoll = Epoll::new()?;
    epoll.add(sock.as_raw_fd(), EPOLL_ALL | EPOLLET, 1)?;
    expect_eq(next(&epoll, -1)?, EPOLLOUT, "connected")?;
    expect_eq(sock.take_error()?, 0, "SO_ERROR")?;
    let bound = env.remote_socket(&env.peer()?)?;
    bound.bind(&env.there(0))?;
    let sock = env.socket()?;
    sock.set_nonblocking(true)?;
    expect_errno(
        sock.connect(&bound.getsockname()?),
        libc::EINPROGRESS,
        "connect",
    )?;
    epoll.add(sock.as_raw_fd(), EPOLL_ALL | EPOLLET, 2)?;
    let want = EPOLL_ALL | EPOLLERR | EPOLLHUP;
    let seen = epoll.wait(-1)?;
    expect_eq(seen, vec![(2, want)], "refused")?;
    expect_eq(sock.take_error()?, libc::ECONNREFUSED, "SO_ERROR")
}

fn epoll_reset(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let epoll = Epoll::new()?;
    epoll.add(sock.as_raw_fd(), EPOLLIN | EPOLLRDHUP | EPOLLET, 1)?;
    expect_eq(next(&epoll, 0)?, 0, "idle")?;
    remote.reset()?;
    let want = EPOLLIN | EPOLLRDHUP | EPOLLERR | EPOLLHUP;
    expect_eq(next(&epoll, -1)?, want, "reset")
}

fn epoll_forgets_closed(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let epoll = Epoll::new()?;
    epoll.add(sock.as_raw_fd(), EPOLLIN, 1)?;
    remote.send(Span::new(env.seed, 0, 1), 0)?;
    expect_eq(next(&epoll, -1)?, EPOLLIN, "with data")?;
    drop(sock);
    expect_eq(next(&epoll, QUIET_MS)?, 0, "closed")
}

/// With twenty connections in one epoll instance, the right ones are reported.
fn epoll_of_many(env: &Env) -> Outcome {
    const COUNT: u64 = 20;
    let (listener, addr) = env.remote_listener(COUNT as i32)?;
    let epoll = Epoll::new()?;
    let mut pairs = Vec::new();
    for i in 0..COUNT {
        let sock = env.socket()?;
        sock.connect(&addr)?;
        epoll.add(sock.as_raw_fd(), EPOLLIN, i)?;
        pairs.push((sock, listener.accept()?.0));
    }
    expect_eq(epoll.wait(0)?, vec![], "idle")?;
    for (i, (sock, remote)) in pairs.iter().enumerate().filter(|(i, _)| i % 3 == 1) {
        let span = Span::new(env.seed + i as u64, 0, 77);
        remote.send(span, 0)?;
        expect_eq(
            epoll.wait(-1)?,
            vec![(i as u64, EPOLLIN)],
            "the one with data",
        )?;
        receive(sock, span)?;
    }
    for (_, remote) in &pairs {
        remote.shutdown(libc::SHUT_WR)?;
    }
    eventually("all end", || epoll.wait(-1), |e| e.len() == COUNT as usize)
}

/// A socket is added while another thread waits in epoll_wait().
fn epoll_blocked_while_added(env: &Env) -> Outcome {
    let (sock, remote) = env.pair()?;
    let epoll = std::sync::Arc::new(Epoll::new()?);
    let waiting = {
        let epoll = std::sync::Arc::clone(&epoll);
        flow::spawn(move || next(&epoll, -1))?
    };
    epoll.add(sock.as_raw_fd(), EPOLLIN, 1)?;
    std::thread::sleep(Duration::from_millis(QUIET_MS as u64));
    expect(!waiting.is_finished(), "epoll_wait did not wait")?;
    remote.send(Span::new(env.seed, 0, 1), 0)?;
    expect_eq(joined(waiting)??, EPOLLIN, "epoll_wait")
}
