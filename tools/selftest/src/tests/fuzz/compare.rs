// SPDX-License-Identifier: GPL-2.0
//! Makes the same calls in a world of TCP and in a world of the family under test, and compares the
//! results.
//!
//! After each call, the comparison waits until poll(), FIONREAD, and getpeername() return the same
//! for all sockets of both worlds, and until no bytes wait to be sent. Effects that take time have
//! happened then.

use super::call::{Call, Compared, SLOTS};
use super::making::{Step, Transfer};
use super::room::Memory;
use super::world::{World, OTHERS_WAIT};
use crate::support::flow::Span;
use crate::support::harness::{readable_bytes, Env, Fail, Family};
use crate::support::sys::{self, Sock};
use crate::tests::astcp::known;
use libc::{EAGAIN, EFAULT, MSG_DONTWAIT, MSG_NOSIGNAL};
use std::io;
use std::time::{Duration, Instant};
use uapi::socket::{SDP_ZCOPY_MODE, SOL_SDP};

/// The time limit for the worlds to become equal. It is generous because a machine with checkers is
/// slow.
const SETTLED: Duration = Duration::from_secs(8);
/// The time for which bytes may wait to be sent: TCP_CORK and MSG_MORE hold them back for 200 ms.
const SENT: Duration = Duration::from_secs(1);
const SIOCOUTQNSD: libc::c_ulong = 0x894b;

/// A difference between the family under test and TCP.
#[derive(Clone, Debug)]
pub(super) struct Difference {
    /// The number of the step.
    pub(super) at: usize,
    pub(super) text: String,
}

impl Difference {
    /// The part of the text that is the same for the same difference in other steps.
    pub(super) fn kind(&self) -> String {
        let words = self.text.chars().filter(|c| !c.is_ascii_digit());
        words.take(70).collect()
    }
}

/// The state of a socket that programs can see.
#[derive(Clone, PartialEq, Eq)]
struct State {
    poll: i16,
    readable: Result<i32, i32>,
    peer: Option<i32>,
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (poll, readable, peer) = (self.poll, self.readable, self.peer);
        write!(
            f,
            "poll {poll:#x}, FIONREAD {readable:?}, getpeername {peer:?}"
        )
    }
}

/// The result of a step.
enum Went {
    /// The worlds differ for a known reason, so they can no longer be compared.
    Apart,
    On,
    Otherwise(String),
}

type Result2 = [(Result<usize, i32>, Vec<u8>); 2];

/// The world of TCP, then the world of the family under test.
struct Worlds {
    both: [World; 2],
    memory: Memory,
}

/// The number of steps that were made in both worlds, and the difference that was found in the last
/// of them.
pub(super) struct Comparison {
    pub(super) made: usize,
    pub(super) difference: Option<Difference>,
}

/// Compares the results of the steps. The seed determines the mode in which SDP sends.
pub(super) fn compare(
    env: &Env,
    memory: Memory,
    seed: u64,
    steps: &[Step],
) -> Result<Comparison, Fail> {
    let mut tcp = env.clone();
    tcp.family = Family::Tcp;
    let mode = (seed % 5) as i32;
    let prepare = |family: Family| {
        move |sock: &Sock| match family {
            Family::Sdp => sock.set_int(SOL_SDP, SDP_ZCOPY_MODE, mode),
            Family::Tcp => Ok(()),
        }
    };
    let worlds = Worlds {
        both: [
            World::new(&tcp, OTHERS_WAIT, prepare(tcp.family))?,
            World::new(env, OTHERS_WAIT, prepare(env.family))?,
        ],
        memory,
    };
    let found = |at, text| {
        Ok(Comparison {
            made: at + 1,
            difference: Some(Difference { at, text }),
        })
    };
    for (at, step) in steps.iter().enumerate() {
        let went = match step {
            Step::Call(call) => worlds.call(call),
            Step::Transfer(transfer) => worlds.transfer(*transfer)?,
        };
        match went {
            Went::Otherwise(text) => return found(at, format!("{}: {text}", step.name())),
            Went::Apart => {
                return Ok(Comparison {
                    made: at + 1,
                    difference: None,
                });
            }
            Went::On => {}
        }
        if let Some(text) = worlds.settle()? {
            return found(at, format!("after {}: {text}", step.name()));
        }
    }
    let at = steps.len().saturating_sub(1);
    Ok(Comparison {
        made: steps.len(),
        difference: worlds.rest().map(|text| Difference { at, text }),
    })
}

fn errno(e: &io::Error) -> i32 {
    e.raw_os_error().unwrap_or(0)
}

fn text(result: Result<usize, i32>) -> String {
    match result {
        Ok(value) => value.to_string(),
        Err(errno) => io::Error::from_raw_os_error(errno).to_string(),
    }
}

impl Worlds {
    fn make(&self, which: usize, call: &Call) -> (Result<usize, i32>, Vec<u8>) {
        self.memory.forget();
        let result = self.both[which].call(call, self.memory);
        (result, call.left(self.memory))
    }

    fn call(&self, call: &Call) -> Went {
        let began = Instant::now();
        let mut results = [0, 1].map(|which| self.make(which, call));
        loop {
            let went = self.judge(call, &results);
            if !matches!(went, Went::Otherwise(_)) {
                return went;
            }
            let again = |which: usize| {
                let waits = results[which].0 == Err(EAGAIN) && results[1 - which].0 != Err(EAGAIN);
                waits || call.compared == Compared::AtLast
            };
            let again = [0, 1].map(again);
            if !again.contains(&true) || began.elapsed() > SETTLED {
                return went;
            }
            std::thread::sleep(Duration::from_millis(1));
            for which in [0, 1] {
                if again[which] {
                    results[which] = self.make(which, call);
                }
            }
        }
    }

    fn judge(&self, call: &Call, results: &Result2) -> Went {
        let [(by_tcp, tcp_left), (by_us, our_left)] = results;
        if by_tcp == by_us {
            let ignored = matches!(call.compared, Compared::Roughly | Compared::Notification);
            return match differs(tcp_left, our_left) {
                Some(text) if !ignored && !self.is_known(call, *by_us) => Went::Otherwise(text),
                _ => Went::On,
            };
        }
        let rough = |result: &Result<usize, i32>| matches!(result, Err(EFAULT) | Ok(_));
        let changes = by_tcp.is_ok() != by_us.is_ok() && call.compared != Compared::AtLast;
        match call.compared {
            Compared::Roughly if rough(by_tcp) && rough(by_us) => Went::Apart,
            Compared::Amount if by_tcp.is_ok() && by_us.is_ok() => Went::Apart,
            _ if self.is_known(call, *by_us) && changes => Went::Apart,
            _ if self.is_known(call, *by_us) => Went::On,
            _ => Went::Otherwise(format!("{}, TCP: {}", text(*by_us), text(*by_tcp))),
        }
    }

    fn is_known(&self, call: &Call, ours: Result<usize, i32>) -> bool {
        known::covers(
            self.both[1].family(),
            &call.name,
            &ours.map(|n| n.to_string()),
        )
    }

    fn state(&self, which: usize) -> io::Result<Vec<State>> {
        let world = &self.both[which];
        let fds: Vec<_> = (0..SLOTS).map(|slot| (world.fd(slot), i16::MAX)).collect();
        let seen = sys::poll_fds(&fds, 0)?;
        let states = seen.into_iter().enumerate().map(|(slot, poll)| {
            let sock = world.sock(slot);
            let readable = sock.as_ref().map_or(Ok(0), |sock| readable_bytes(sock));
            let peer = sock.as_ref().and_then(|sock| sock.getpeername().err());
            State {
                poll,
                readable: readable.map_err(|e| errno(&e)),
                peer: peer.map(|e| errno(&e)),
            }
        });
        Ok(states.collect())
    }

    /// Whether bytes wait to be sent on a connection.
    fn unsent(&self, which: usize) -> bool {
        (0..SLOTS).any(|slot| {
            self.both[which].sock(slot).is_some_and(|sock| {
                sock.getpeername().is_ok() && sock.ioctl_int(SIOCOUTQNSD).is_ok_and(|n| n > 0)
            })
        })
    }

    /// Waits until both worlds look the same; returns in words any difference that remains.
    fn settle(&self) -> io::Result<Option<String>> {
        let began = Instant::now();
        loop {
            let busy = self.unsent(0) || self.unsent(1);
            let (tcp, ours) = (self.state(0)?, self.state(1)?);
            let waited = began.elapsed();
            if tcp == ours && (!busy || waited > SENT) {
                return Ok(None);
            }
            if waited > SETTLED {
                let first = (0..SLOTS).find(|&slot| tcp[slot] != ours[slot]);
                return Ok(first
                    .map(|slot| format!("socket {slot} has {}, TCP: {}", ours[slot], tcp[slot])));
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    fn transfer(&self, transfer: Transfer) -> Result<Went, Fail> {
        // If the connection has ended or is about to end, any send may be the first one to fail.
        const ENDS: i16 = libc::POLLERR | libc::POLLHUP | libc::POLLRDHUP;
        let states = self.state(0)?;
        if (states[transfer.from].poll | states[transfer.to].poll) & ENDS != 0 {
            return Ok(Went::On);
        }
        // An adapter acknowledges bytes before its interrupt tells the machine of them.
        const INTERRUPT: Duration = Duration::from_millis(100);
        let [tcp, mut ours] = [&self.both[0], &self.both[1]].map(|world| moved(world, transfer));
        let began = Instant::now();
        while tcp != ours && began.elapsed() < INTERRUPT {
            std::thread::sleep(Duration::from_millis(1));
            if let Some(to) = self.both[1].sock(transfer.to) {
                ours.receive(&to);
            }
        }
        if tcp == ours {
            return Ok(Went::On);
        }
        let stuck = tcp.stuck && ours.stuck;
        let same_bytes =
            tcp.received.starts_with(&ours.received) || ours.received.starts_with(&tcp.received);
        if stuck && same_bytes {
            return Ok(Went::Apart);
        }
        Ok(Went::Otherwise(format!("{ours}, TCP: {tcp}")))
    }

    /// Receives the rest of the bytes of each socket; returns a difference in words. FIONREAD does
    /// not count beyond an urgent byte, so bytes behind such a byte may not have arrived yet.
    fn rest(&self) -> Option<String> {
        (0..SLOTS).find_map(|slot| {
            let began = Instant::now();
            let [mut tcp, mut ours] = [Moved::default(), Moved::default()];
            loop {
                for (world, moved) in self.both.iter().zip([&mut tcp, &mut ours]) {
                    if let Some(sock) = world.sock(slot) {
                        moved.receive(&sock);
                    }
                }
                if tcp == ours {
                    return None;
                }
                if began.elapsed() > SETTLED {
                    return Some(format!("the rest of socket {slot}: {ours}, TCP: {tcp}"));
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        })
    }
}

/// The first difference between two memories, in words.
fn differs(tcp: &[u8], ours: &[u8]) -> Option<String> {
    let at = (0..tcp.len()).find(|&i| tcp[i] != ours[i])?;
    let end = (at + 16).min(tcp.len());
    let place = match at.checked_sub(Memory::SEEN_RECEIVED) {
        Some(at) => format!("what is received, from {at}"),
        None => format!("memory+{at:#x}"),
    };
    Some(format!(
        "{place}: {:x?}, TCP: {:x?}",
        &ours[at..end],
        &tcp[at..end]
    ))
}

/// The result of a transfer.
#[derive(Debug, Default, PartialEq, Eq)]
struct Moved {
    sent: usize,
    sending: Option<i32>,
    received: Vec<u8>,
    receiving: Option<i32>,
    ended: bool,
    /// Whether neither end made progress any more.
    stuck: bool,
}

impl std::fmt::Display for Moved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sum = self.received.iter().fold(0_u64, |sum, &b| {
            sum.wrapping_mul(31).wrapping_add(u64::from(b))
        });
        write!(
            f,
            "{} sent (error {:?}), {} received (sum {sum:x}, error {:?}, end {}), stuck {}",
            self.sent,
            self.sending,
            self.received.len(),
            self.receiving,
            self.ended,
            self.stuck
        )
    }
}

impl Moved {
    /// Receives all bytes that have arrived.
    fn receive(&mut self, sock: &Sock) {
        let mut buf = [0; 9000];
        loop {
            match sock.recv(&mut buf, MSG_DONTWAIT) {
                Ok(0) => {
                    self.ended = true;
                    return;
                }
                Ok(n) => self.received.extend_from_slice(&buf[..n]),
                Err(e) => {
                    self.receiving = Some(errno(&e));
                    return;
                }
            }
        }
    }
}

fn moved(world: &World, transfer: Transfer) -> Moved {
    const PATIENCE: Duration = Duration::from_secs(8);
    let mut moved = Moved::default();
    let (Some(from), Some(to)) = (world.sock(transfer.from), world.sock(transfer.to)) else {
        return moved;
    };
    let bytes = Span::new(transfer.len as u64, 0, transfer.len as u64).to_vec();
    let mut last = (Instant::now(), 0);
    loop {
        if moved.sent < bytes.len() && matches!(moved.sending, None | Some(EAGAIN)) {
            moved.sending = None;
            match from.send(&bytes[moved.sent..], MSG_DONTWAIT | MSG_NOSIGNAL) {
                Ok(n) => moved.sent += n,
                Err(e) => moved.sending = Some(errno(&e)),
            }
        }
        moved.receive(&to);
        let done = moved.sent + moved.received.len();
        if done > last.1 {
            last = (Instant::now(), done);
        }
        let all_sent = moved.sent == bytes.len() || !matches!(moved.sending, None | Some(EAGAIN));
        // Without a connection, TCP computes this from leftover sequence numbers.
        let arrived =
            from.getpeername().is_err() || from.ioctl_int(libc::TIOCOUTQ).map_or(true, |n| n == 0);
        if all_sent && arrived && readable_bytes(&to).map_or(true, |n| n == 0) {
            return moved;
        }
        if last.0.elapsed() > PATIENCE {
            moved.stuck = true;
            return moved;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Removes steps as long as the others still show a difference of the same kind, and as long as
/// there is time.
pub(super) fn shortest(
    env: &Env,
    memory: Memory,
    seed: u64,
    steps: &[Step],
    difference: &Difference,
) -> Result<Vec<Step>, Fail> {
    let began = Instant::now();
    let mut steps = steps[..=difference.at].to_vec();
    let mut part = steps.len() / 2;
    while part > 0 {
        let mut from = 0;
        while from < steps.len().saturating_sub(1) {
            if began.elapsed() > Duration::from_secs(40) {
                return Ok(steps);
            }
            let end = (from + part).min(steps.len() - 1);
            let mut fewer = steps.clone();
            fewer.drain(from..end);
            match compare(env, memory, seed, &fewer)?.difference {
                Some(again) if again.kind() == difference.kind() => steps = fewer,
                _ => from = end,
            }
        }
        part /= 2;
    }
    Ok(steps)
}
