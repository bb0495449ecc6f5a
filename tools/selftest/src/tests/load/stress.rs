// SPDX-License-Identifier: GPL-2.0
//! Many connections, much data, and connections that end soon.

use crate::support::flow::{self, Exchange, Span};
use crate::support::harness::{
    expect, expect_eof, expect_eq, expect_errno, failed, joined, receive, send, tests, Child, Env,
    Outcome,
};
use crate::support::pattern::Rng;
use crate::support::peer::Work;
use crate::support::sys::{Epoll, Sock};
use libc::{EAGAIN, MSG_DONTWAIT, POLLOUT};
use std::os::fd::AsRawFd;
use std::sync::Arc;

tests!("stress";
    streams_on_1_connection,
    streams_on_8_connections,
    streams_on_200_connections,
    epoll_echo_on_50_connections,
    churn,
    churn_with_data,
    churn_nonblocking,
    churn_reset_by_us,
    churn_reset_by_peer,
    churn_of_listeners,
    forking_server,
    threads_connect_at_once,
);

/// The number of bytes that a stream test moves in each direction on all connections, at scale 1.
const TOTAL: u64 = 3 << 20;

fn streams_on_1_connection(env: &Env) -> Outcome {
    streams(env, 1)
}

fn streams_on_8_connections(env: &Env) -> Outcome {
    streams(env, 8)
}

fn streams_on_200_connections(env: &Env) -> Outcome {
    streams(env, 200)
}

fn streams(env: &Env, count: u64) -> Outcome {
    let (listener, addr) = env.remote_listener(count as i32)?;
    let bytes = env.scaled(TOTAL / count) | 1;
    let mut jobs = Vec::new();
    let mut threads = Vec::new();
    for i in 0..count {
        let sock = Arc::new(env.socket()?);
        sock.connect(&addr)?;
        let (remote, _) = listener.accept()?;
        let exchange = Exchange {
            send_seed: env.seed + 2 * i,
            recv_seed: env.seed + 2 * i + 1,
            bytes,
            max: 256 << 10,
        };
        jobs.push(remote.start(Work::Exchange(exchange.mirrored()))?);
        threads.push((i, exchange, flow::spawn(move || exchange.run(&sock))?));
    }
    for (i, exchange, thread) in threads {
        let Ok(got) = thread.join() else {
            return failed(format!("connection {i}: panic"));
        };
        if let Some(text) = exchange.complaint(&got?) {
            return failed(format!("connection {i}: {text}"));
        }
    }
    for (i, job) in jobs.into_iter().enumerate() {
        let text = format!("the peer's connection {i}");
        expect_eq(job.join()?, bytes.to_string(), text)?;
    }
    Ok(())
}

/// A connection that an epoll loop serves.
struct Client {
    sock: Sock,
    seed: u64,
    sent: u64,
    got: u64,
}

impl Client {
    /// Sends and receives as much as is possible without waiting. Returns `true` when all bytes
    /// have come back.
    fn step(&mut self, total: u64, rng: &mut Rng) -> Result<bool, crate::support::harness::Fail> {
        while self.sent < total {
            let len = (rng.length(20_000) as u64).min(total - self.sent);
            let buf = Span::new(self.seed, self.sent, len).to_vec();
            match self.sock.send(&buf, MSG_DONTWAIT) {
                Ok(n) => self.sent += n as u64,
                Err(e) if e.raw_os_error() == Some(EAGAIN) => break,
                Err(e) => return Err(e.into()),
            }
        }
        let mut buf = [0; 10_000];
        loop {
            match self.sock.recv(&mut buf, MSG_DONTWAIT) {
                Ok(0) => return failed("an early end of file"),
                Ok(n) => {
                    let want = Span::new(self.seed, self.got, n as u64).to_vec();
                    expect(buf[..n] == want, format!("wrong bytes at {}", self.got))?;
                    self.got += n as u64;
                }
                Err(e) if e.raw_os_error() == Some(EAGAIN) => break,
                Err(e) => return Err(e.into()),
            }
        }
        Ok(self.got == total)
    }
}

/// An edge-triggered event loop, as in servers.
fn epoll_echo_on_50_connections(env: &Env) -> Outcome {
    const COUNT: u64 = 50;
    let total = env.scaled(40_000);
    let (listener, addr) = env.remote_listener(COUNT as i32)?;
    let server = listener.start(Work::EchoServer { count: COUNT })?;
    let epoll = Epoll::new()?;
    let mut clients = Vec::new();
    for i in 0..COUNT {
        let sock = env.socket()?;
        sock.connect(&addr)?;
        let events = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
        epoll.add(sock.as_raw_fd(), events, i)?;
        let seed = env.seed + i;
        clients.push(Client {
            sock,
            seed,
            sent: 0,
            got: 0,
        });
    }
    let mut rng = Rng::new(env.seed);
    let mut left = COUNT;
    while left > 0 {
        for (token, _) in epoll.wait(-1)? {
            let client = &mut clients[token as usize];
            if client.got < total && client.step(total, &mut rng)? {
                left -= 1;
            }
        }
    }
    for client in &clients {
        client.sock.shutdown(libc::SHUT_WR)?;
        expect_eof(&client.sock)?;
    }
    expect_eq(server.join()?, COUNT.to_string(), "served")
}

/// The number of connections that a test of churn makes.
fn rounds(env: &Env) -> u64 {
    env.scaled(100)
}

fn churn(env: &Env) -> Outcome {
    let count = rounds(env);
    let (listener, addr) = env.remote_listener(10)?;
    let server = listener.start(Work::CloseServer { count })?;
    for _ in 0..count {
        let sock = env.socket()?;
        sock.connect(&addr)?;
        expect_eq(sock.recv(&mut [0], 0)?, 0, "recv")?;
        sock.close()?;
    }
    expect_eq(server.join()?, count.to_string(), "accepted")
}

fn churn_with_data(env: &Env) -> Outcome {
    let count = rounds(env);
    let (listener, addr) = env.remote_listener(10)?;
    let server = listener.start(Work::EchoServer { count })?;
    for i in 0..count {
        let sock = env.socket()?;
        sock.connect(&addr)?;
        let span = Span::new(env.seed + i, 0, 1 + i * 37 % 5000);
        send(&sock, span)?;
        sock.shutdown(libc::SHUT_WR)?;
        receive(&sock, span)?;
        expect_eof(&sock)?;
    }
    expect_eq(server.join()?, count.to_string(), "served")
}

fn churn_nonblocking(env: &Env) -> Outcome {
    let count = rounds(env);
    let (listener, addr) = env.remote_listener(10)?;
    let server = listener.start(Work::CloseServer { count })?;
    for _ in 0..count {
        let sock = env.socket()?;
        sock.set_nonblocking(true)?;
        expect_errno(sock.connect(&addr), libc::EINPROGRESS, "connect")?;
        sock.poll(POLLOUT, -1)?;
        expect_eq(sock.take_error()?, 0, "SO_ERROR")?;
        sock.poll(libc::POLLIN, -1)?;
        expect_eq(sock.recv(&mut [0], 0)?, 0, "recv")?;
    }
    expect_eq(server.join()?, count.to_string(), "accepted")
}

fn churn_reset_by_us(env: &Env) -> Outcome {
    let count = rounds(env);
    let (listener, addr) = env.remote_listener(10)?;
    let server = listener.start(Work::EchoServer { count })?;
    for i in 0..count {
        let sock = env.socket()?;
        sock.connect(&addr)?;
        let span = Span::new(env.seed + i, 0, 2000);
        send(&sock, span)?;
        receive(&sock, span)?;
        sock.reset()?;
    }
    expect_eq(server.join()?, "0".to_owned(), "served to the end")
}

fn churn_reset_by_peer(env: &Env) -> Outcome {
    let count = rounds(env);
    let (listener, addr) = env.remote_listener(10)?;
    let server = listener.start(Work::ResetServer { count })?;
    for _ in 0..count {
        let sock = env.socket()?;
        match sock.connect(&addr) {
            // The reset may arrive before connect() returns.
            Err(e) if e.raw_os_error() == Some(libc::ECONNRESET) => continue,
            result => result?,
        }
        expect_errno(sock.recv(&mut [0], 0), libc::ECONNRESET, "recv")?;
    }
    expect_eq(server.join()?, count.to_string(), "accepted")
}

/// Listeners that come and go, with and without connections in their backlog.
fn churn_of_listeners(env: &Env) -> Outcome {
    for round in 0..env.scaled(30) {
        let (listener, addr) = env.listener(4)?;
        let mut clients = Vec::new();
        for _ in 0..round % 4 {
            let sock = env.socket()?;
            sock.connect(&addr)?;
            clients.push(sock);
        }
        let accepted = (round % 2 < clients.len() as u64).then(|| listener.accept());
        let accepted = accepted.transpose()?;
        drop(listener);
        let refused = env.socket()?.connect(&addr);
        expect_errno(refused, libc::ECONNREFUSED, "connect")?;
        if let Some((sock, from)) = accepted {
            let client = clients
                .iter()
                .find(|c| c.getsockname().is_ok_and(|n| n.to_std() == from.to_std()));
            let Some(client) = client else {
                return failed("accepted somebody else");
            };
            let span = Span::new(env.seed, round, 99);
            send(&sock, span)?;
            receive(client, span)?;
        }
    }
    Ok(())
}

/// A server with a process per connection.
fn forking_server(env: &Env) -> Outcome {
    let count = env.scaled(10);
    let (listener, addr) = env.listener(5)?;
    let server = Child::start(|| {
        let mut children = Vec::new();
        for i in 0..count {
            let (sock, _) = listener.accept()?;
            children.push(Child::start(|| {
                let span = Span::new(env.seed + i, 0, 5000);
                send(&sock, span)?;
                receive(&sock, span)
            })?);
        }
        children.into_iter().try_for_each(Child::join)
    })?;
    drop(listener);
    let peer = env.peer()?;
    for i in 0..count {
        let remote = env.remote_socket(&peer)?;
        remote.connect(&addr)?;
        let span = Span::new(env.seed + i, 0, 5000);
        let got = remote.recv_span(span, 3000)?;
        crate::support::harness::expect_received(got, span, format!("child {i}"))?;
        remote.send_span(span, 3000)?;
        let end = remote.recv(1, 0)?;
        expect_eq(end, Vec::new(), "the end with the child's")?;
    }
    server.join()
}

fn threads_connect_at_once(env: &Env) -> Outcome {
    const THREADS: u64 = 16;
    let each = env.scaled(5);
    let (listener, addr) = env.remote_listener(64)?;
    let server = listener.start(Work::EchoServer {
        count: THREADS * each,
    })?;
    let mut threads = Vec::new();
    for thread in 0..THREADS {
        let env = env.clone();
        threads.push(flow::spawn(move || -> Outcome {
            for i in 0..each {
                let sock = env.socket()?;
                sock.connect(&addr)?;
                let span = Span::new(env.seed + thread, i, 3000);
                send(&sock, span)?;
                sock.shutdown(libc::SHUT_WR)?;
                receive(&sock, span)?;
                expect_eof(&sock)?;
            }
            Ok(())
        })?);
    }
    for thread in threads {
        joined(thread)??;
    }
    expect_eq(server.join()?, (THREADS * each).to_string(), "served")
}
