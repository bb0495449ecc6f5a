// SPDX-License-Identifier: GPL-2.0
//! The limits for the connections of a namespace and of a user, and for connections that no program
//! has (orphans).

use super::sysctl::{needs_root, set, Changed};
use crate::support::counters::stat;
use crate::support::flow::Span;
use crate::support::harness::{
    eventually, expect, expect_eq, expect_errno, expect_errno_of, fill, joined, receive, skip,
    spawn_waiting, tests, Child, Env, Fail, Outcome,
};
use crate::support::sys::{self, Linger, Sock};
use crate::tests::uncopied::inflight::{Growth, SDP_ZCOPY_MODE, SOL_SDP};
use libc::{ECONNREFUSED, ECONNRESET, ENOBUFS, EPERM};
use std::io;
use std::thread;
use std::time::Duration;

tests!("limits";
    connections_of_a_namespace,
    connections_of_a_user,
    connections_that_wait_for_accept,
    no_place_is_lost,
    orphans,
    ended_by_close_is_no_orphan,
    receives_of_an_idle_connection,
    roots_of_namespaces_take_no_more,
);

/// Makes connections with both ends in this machine, until one is refused.
fn until_refused(env: &Env, most: usize) -> Result<Vec<(Sock, Sock)>, Fail> {
    let mut pairs = Vec::new();
    loop {
        match env.own_pair() {
            Ok(pair) => pairs.push(pair),
            refused => {
                // This end may refuse it, or the listener's end.
                expect_errno_of(refused, &[ENOBUFS, ECONNREFUSED], "one more")?;
                return Ok(pairs);
            }
        }
        expect(pairs.len() <= most, format!("more than {most} connections"))?;
    }
}

fn eventually_connects(env: &Env) -> Outcome {
    eventually(
        "whether one connects when others have ended",
        || Ok(env.own_pair().is_ok()),
        |connects| *connects,
    )
}

fn connections_of_a_namespace(env: &Env) -> Outcome {
    needs_root(env)?;
    let refused = Growth::of(env, "refused_max_connections")?;
    // Some connections of earlier tests may not have ended yet.
    {
        let _most = Changed::to("max_connections", "2")?;
        eventually_connects(env)?;
    }
    let _most = Changed::to("max_connections", "8")?;
    let pairs = until_refused(env, 4)?;
    expect(pairs.len() >= 3, format!("only {} of 4 pairs", pairs.len()))?;
    refused.at_least(1)?;
    // The existing connections still work.
    for (one, other) in &pairs {
        let span = Span::new(env.seed, 0, 1000);
        one.send_all(&span.to_vec())?;
        receive(other, span)?;
    }
    drop(pairs);
    eventually_connects(env)
}

fn connections_of_a_user(env: &Env) -> Outcome {
    needs_root(env)?;
    let refused = Growth::of(env, "refused_max_user_connections")?;
    let _most = Changed::to("max_user_connections", "6")?;
    let nobodys = Child::start(|| {
        sys::become_nobody()?;
        let pairs = until_refused(env, 3)?;
        expect_eq(pairs.len(), 3, "pairs of a user")?;
        // The places are free again when the connections have ended.
        drop(pairs);
        eventually_connects(env)
    })?;
    nobodys.join()?;
    refused.at_least(1)?;
    let pairs = (0..4)
        .map(|_| env.own_pair())
        .collect::<Result<Vec<_>, _>>()?;
    expect_eq(pairs.len(), 4, "pairs of root")
}

/// A connection that is not accepted yet counts for the user who owns the listener.
fn connections_that_wait_for_accept(env: &Env) -> Outcome {
    needs_root(env)?;
    let refused = Growth::of(env, "refused_max_user_connections")?;
    let _most = Changed::to("max_user_connections", "2")?;
    let (_listener, addr) = sys::as_nobodys(|| env.listener(8))?;
    let mut socks = Vec::new();
    for _ in 0..2 {
        let sock = env.socket()?;
        sock.connect(&addr)?;
        socks.push(sock);
    }
    let one_more = env.socket()?;
    expect_errno(one_more.connect(&addr), ECONNREFUSED, "one more")?;
    refused.at_least(1)
}

/// Many threads connect, are refused, and close, in a namespace that has few places. Afterwards
/// there are as many places as before.
fn no_place_is_lost(env: &Env) -> Outcome {
    const THREADS: usize = 12;
    needs_root(env)?;
    let refused = Growth::of(env, "refused_max_connections")?;
    let _most = Changed::to("max_connections", "10")?;
    let rounds = env.scaled(20);
    thread::scope(|scope| {
        let connect = || -> Outcome {
            for _ in 0..rounds {
                match env.own_pair() {
                    Ok((one, other)) => {
                        let span = Span::new(env.seed, 0, 100);
                        one.send_all(&span.to_vec())?;
                        receive(&other, span)?;
                    }
                    refused => expect_errno_of(refused, &[ENOBUFS, ECONNREFUSED], "one more")?,
                }
            }
            Ok(())
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(connect)).collect();
        for thread in threads {
            thread
                .join()
                .map_err(|_| Fail::from(io::Error::other("a panic")))??;
        }
        Ok::<(), Fail>(())
    })?;
    refused.at_least(1)?;
    eventually(
        "pairs in 10 places",
        || {
            let pairs: Vec<_> = (0..6).map_while(|_| env.own_pair().ok()).collect();
            Ok(pairs.len())
        },
        |pairs| *pairs == 5,
    )
}

fn orphans(env: &Env) -> Outcome {
    needs_root(env)?;
    let aborted = Growth::of(env, "aborted_max_orphans")?;
    let pairs = (0..4)
        .map(|_| env.own_pair())
        .collect::<Result<Vec<_>, _>>()?;
    let _most = Changed::to("max_orphans", "2")?;
    let mut others = Vec::new();
    for (one, other) in pairs {
        // More bytes than the peer's receives take, so that some are unsent when the socket is
        // closed.
        let sent = fill(&one, env.seed)?;
        drop(one);
        others.push((other, sent));
    }
    aborted.at_least(2)?;
    let mut whole = 0;
    for (other, sent) in &others {
        let mut got = vec![0; 1 << 16];
        let mut bytes = 0;
        let end = loop {
            match other.recv(&mut got, 0) {
                Ok(0) => break Ok(()),
                Ok(n) => bytes += n as u64,
                Err(e) => break Err(e),
            }
        };
        match end {
            Ok(()) => {
                expect_eq(bytes, *sent, "bytes of an orphan")?;
                whole += 1;
            }
            Err(e) => expect_eq(e.raw_os_error(), Some(ECONNRESET), "of one that is none")?,
        }
    }
    expect_eq(whole, 2, "orphans that were delivered")
}

/// A connection that ends while close() lingers is not an orphan, and needs no place for one.
fn ended_by_close_is_no_orphan(env: &Env) -> Outcome {
    needs_root(env)?;
    let (one, other) = env.own_pair()?;
    fill(&one, env.seed)?;
    one.set_linger(Linger { on: true, secs: 60 })?;
    let _most = Changed::to("max_orphans", "0")?;
    let aborted = stat(env, "aborted_max_orphans")?;
    let closing = spawn_waiting(move || one.close())?;
    other.send_all(b"x")?;
    joined(closing)??;
    let aborted = stat(env, "aborted_max_orphans")? - aborted;
    expect_eq(aborted, 0, "connections aborted as orphans")
}

/// A user who is root only in a user namespace may lower a limit there, but not raise it.
fn roots_of_namespaces_take_no_more(env: &Env) -> Outcome {
    needs_root(env)?;
    Child::start(|| {
        sys::become_nobody()?;
        if sys::new_user_and_netns().is_err() {
            return skip("no user namespaces");
        }
        for name in ["max_connections", "max_user_connections", "max_orphans"] {
            set(name, "5")?;
            expect_errno(set(name, "2147483647"), EPERM, name)?;
            set(name, "0")?;
        }
        Ok(())
    })?
    .join()
}

/// The number of bytes that the posted receives of a socket take, including received bytes that
/// were not read.
fn receive_memory(sock: &Sock) -> io::Result<u32> {
    let mut bytes = [0; 36];
    // The first value is SK_MEMINFO_RMEM_ALLOC.
    sock.get_bytes(libc::SOL_SOCKET, libc::SO_MEMINFO, &mut bytes)?;
    Ok(u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

/// Sends this many bytes each way at the same time, and checks them.
fn exchange(one: &Sock, other: &Sock, seed: u64, bytes: u64) -> Outcome {
    thread::scope(|scope| -> Outcome {
        for (sock, seed) in [(one, seed), (other, seed + 1)] {
            scope.spawn(move || sock.send_all(&Span::new(seed, 0, bytes).to_vec()));
        }
        receive(other, Span::new(seed, 0, bytes))?;
        receive(one, Span::new(seed + 1, 0, bytes))
    })
}

/// An idle connection that has carried many bytes takes no more memory than a new one, and can
/// carry as many bytes again.
fn receives_of_an_idle_connection(env: &Env) -> Outcome {
    const COPIES: i32 = 1;
    needs_root(env)?;
    let shrunk = Growth::of(env, "receives_shrunk")?;
    let used_up = Growth::of(env, "receive_used_up")?;
    let (one, other) = env.own_pair()?;
    let ends = [&one, &other];
    let mut first = [0; 2];
    for (sock, first) in ends.iter().zip(&mut first) {
        sock.set_int(SOL_SDP, SDP_ZCOPY_MODE, COPIES)?;
        *first = receive_memory(sock)?;
    }
    for (round, bytes) in [(0, 4 << 20), (1, 12 << 10), (2, 4 << 20)] {
        exchange(&one, &other, round, bytes)?;
        for (sock, first) in ends.iter().zip(first) {
            let grown = receive_memory(sock)?;
            expect(
                grown > 8 * first,
                format!("{grown} bytes of receives, {first} at first"),
            )?;
        }
        // The module waits for 10 s before it reduces the receives.
        thread::sleep(Duration::from_secs(9));
        for (sock, first) in ends.iter().zip(first) {
            eventually(
                "bytes of receives",
                || receive_memory(sock),
                |bytes| *bytes <= first,
            )?;
        }
    }
    shrunk.at_least(4)?;
    used_up.at_least(4 * 10)
}
