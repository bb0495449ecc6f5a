// SPDX-License-Identifier: GPL-2.0
//! Two threads receive from one socket, while bytes of their former calls are still on their way.

use super::{amount, for_some_time, receive_into, settled, Incoming};
use crate::support::flow::{spawn, Span};
use crate::support::harness::{expect, expect_eq, failed, joined, Env, Outcome};
use crate::support::pattern::Rng;
use crate::support::sys::{Pages, Sock, PAGE};
use crate::tests::uncopied::inflight::LEN;
use libc::{EAGAIN, MSG_DONTWAIT, MSG_PEEK, MSG_WAITALL, SHUT_WR};
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// The content of a buffer before a receive.
const UNTOUCHED: u8 = 0xee;
/// The number of buffers of a thread, which it uses by turns.
const BUFFERS: usize = 4;
/// The number of peeks of which the bytes are checked.
const PEEKS: usize = 10;

/// How a thread receives.
#[derive(Clone, Copy)]
struct Habit {
    flags: i32,
    /// Whether the thread looks at a buffer only when it needs the buffer again.
    late: bool,
    /// The number of bytes in a small buffer before the large one; 0 if there is no small buffer.
    header: usize,
}

const AT_ONCE: Habit = Habit {
    flags: 0,
    late: false,
    header: 0,
};

/// The bytes that a thread has received, in the order of its calls.
#[derive(Default)]
struct Share {
    bytes: Vec<u8>,
    /// For each call, the end of its bytes, and whether the call may be split: bytes of the other
    /// thread may come between its own.
    calls: Vec<(usize, bool)>,
}

impl Share {
    /// Whether bytes of the other thread may come directly before byte `at`.
    fn may_pause(&self, at: usize) -> bool {
        let call = self.calls.partition_point(|(end, _)| *end <= at);
        let start = call.checked_sub(1).map_or(0, |last| self.calls[last].0);
        at == start || self.calls[call].1
    }
}

/// The bytes of one call, at which the thread has not looked.
struct Unseen {
    buffers: [Pages; 2],
    received: usize,
}

impl Unseen {
    /// Looks at the buffers; returns the received bytes. The rest of the buffers must be untouched.
    fn look(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        for buffer in self.buffers {
            bytes.extend(buffer.read(0, buffer.len()));
        }
        let rest = bytes.split_off(self.received);
        match rest.iter().all(|b| *b == UNTOUCHED) {
            true => Ok(bytes),
            false => Err(io::Error::other("bytes behind those received")),
        }
    }
}

/// Receives until the end of the stream, with calls of many lengths.
fn take_share(sock: &Sock, habit: Habit, seed: u64) -> io::Result<Share> {
    let mut rng = Rng::new(seed);
    let buffers: Vec<_> = (0..BUFFERS)
        .map(|_| Pages::new(2 * PAGE + LEN, false))
        .collect::<Result<_, _>>()?;
    let mut share = Share::default();
    let (mut unseen, mut received) = (VecDeque::new(), 0);
    for turn in 0.. {
        let buffer = buffers[turn % BUFFERS];
        buffer.write(0, &vec![UNTOUCHED; buffer.len()]);
        let odd = [0, 0, 0, 1 + rng.below(PAGE - 1)][rng.below(4)];
        let len = match rng.below(4) {
            0 => rng.length(LEN),
            _ => (4 + rng.below(LEN / PAGE - 3)) * PAGE,
        };
        let header = buffer.part(9, habit.header);
        let pieces = [header, buffer.part(PAGE + odd, len)];
        let n = match habit.header {
            // SAFETY: no reference to the pages exists.
            0 => unsafe { sock.recv_raw(pieces[1].at(0), len, habit.flags)? },
            _ => receive_into(sock, &pieces, habit.flags)?,
        };
        if n == 0 {
            break;
        }
        received += n;
        let may_be_split = habit.flags & MSG_WAITALL != 0;
        share.calls.push((received, may_be_split));
        unseen.push_back(Unseen {
            buffers: pieces,
            received: n,
        });
        if !habit.late || unseen.len() == BUFFERS {
            if let Some(first) = unseen.pop_front() {
                share.bytes.extend(first.look()?);
            }
        }
    }
    for rest in unseen {
        share.bytes.extend(rest.look()?);
    }
    Ok(share)
}

/// Whether the stream consists of the bytes of both threads, each in its order. Otherwise returns
/// the position of the first byte that neither thread has.
fn is_shared(stream: &[u8], shares: &[Share; 2]) -> Result<(), usize> {
    // How many bytes of the first share may have been used so far, and the share of the last byte.
    // There is more than one possibility where bytes of both shares are equal by chance.
    let mut states = vec![(0, 0), (0, 1)];
    let mut next = Vec::new();
    for (at, byte) in stream.iter().enumerate() {
        for &(first, last) in &states {
            let used: [usize; 2] = [first, at - first];
            for who in 0..2 {
                let fits = shares[who].bytes.get(used[who]) == Some(byte)
                    && (who == last || shares[last].may_pause(used[last]));
                let state = (first + usize::from(who == 0), who);
                if fits && !next.contains(&state) {
                    next.push(state);
                }
            }
        }
        if next.is_empty() {
            return Err(at);
        }
        std::mem::swap(&mut states, &mut next);
        next.clear();
    }
    Ok(())
}

/// Peeks now and then, until the other threads have ended. Returns some of the peeked bytes.
fn peek_at_times(sock: &Sock, ended: &AtomicBool) -> io::Result<Vec<Vec<u8>>> {
    let mut seen = Vec::new();
    while !ended.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(1));
        let mut bytes = vec![UNTOUCHED; 3 * PAGE];
        match sock.recv(&mut bytes, MSG_PEEK | MSG_DONTWAIT) {
            Ok(n) => bytes.truncate(n),
            Err(e) if e.raw_os_error() == Some(EAGAIN) => continue,
            Err(e) => return Err(e),
        }
        if seen.len() < PEEKS {
            seen.push(bytes);
        }
    }
    Ok(seen)
}

/// Two threads receive a whole stream. Together they get each byte once, in the order of the
/// stream, and the bytes of a call that does not wait for all of its bytes belong together.
fn shared(env: &Env, habits: [Habit; 2], peeks: bool) -> Outcome {
    let bytes = amount(env);
    let mut seeds = Rng::new(env.seed ^ 0x2ead);
    // The peeks do not wait. Then the module reads most bytes before a reader comes.
    for_some_time(env, !peeks, || {
        let Incoming {
            sock, remote, job, ..
        } = Incoming::by_any(env, bytes)?;
        let mut threads = Vec::new();
        for habit in habits {
            let (sock, seed) = (sock.dup()?, seeds.next());
            threads.push(spawn(move || take_share(&sock, habit, seed))?);
        }
        let ended = Arc::new(AtomicBool::new(!peeks));
        let peeking = {
            let (sock, ended) = (sock.dup()?, Arc::clone(&ended));
            spawn(move || peek_at_times(&sock, &ended))?
        };
        let sent: u64 = job.join()?.trim().parse().map_err(io::Error::other)?;
        expect_eq(sent, bytes, "sent by the peer")?;
        remote.shutdown(SHUT_WR)?;
        let mut shares = [Share::default(), Share::default()];
        for (share, thread) in shares.iter_mut().zip(threads) {
            *share = joined(thread)??;
        }
        ended.store(true, Ordering::Relaxed);
        let peeked = joined(peeking)??;
        let received: usize = shares.iter().map(|share| share.bytes.len()).sum();
        expect_eq(received as u64, bytes, "received by both threads")?;
        let stream = Span::new(env.seed, 0, bytes).to_vec();
        if let Err(at) = is_shared(&stream, &shares) {
            let calls = shares.map(|share| share.calls.len());
            return failed(format!(
                "no thread has byte {at} of {bytes} ({calls:?} calls)"
            ));
        }
        for bytes in peeked {
            let is_part = bytes.is_empty() || stream.windows(bytes.len()).any(|part| part == bytes);
            expect(
                is_part,
                format!("{} peeked bytes of elsewhere", bytes.len()),
            )?;
        }
        remote.close()?;
        settled(env)
    })
}

/// One thread looks at its bytes at once, the other one late.
pub(super) fn by_two_threads(env: &Env) -> Outcome {
    let late = Habit {
        late: true,
        ..AT_ONCE
    };
    shared(env, [AT_ONCE, late], false)
}

/// A third thread peeks meanwhile, and takes no bytes.
pub(super) fn by_two_threads_and_peeked(env: &Env) -> Outcome {
    let late = Habit {
        late: true,
        ..AT_ONCE
    };
    shared(env, [AT_ONCE, late], true)
}

/// A call that waits for all of its bytes lets calls of other threads take bytes meanwhile.
pub(super) fn by_two_threads_as_a_whole(env: &Env) -> Outcome {
    let flags = MSG_WAITALL;
    let whole = Habit { flags, ..AT_ONCE };
    let late = Habit {
        late: true,
        ..whole
    };
    shared(env, [whole, late], false)
}

pub(super) fn by_two_threads_one_as_a_whole(env: &Env) -> Outcome {
    let flags = MSG_WAITALL;
    let late = Habit {
        late: true,
        ..AT_ONCE
    };
    shared(env, [Habit { flags, ..AT_ONCE }, late], false)?;
    shared(env, [AT_ONCE, Habit { flags, ..late }], false)
}

/// Each call has a small buffer and a large one.
pub(super) fn by_two_threads_in_pieces(env: &Env) -> Outcome {
    let pieces = Habit {
        header: 16,
        ..AT_ONCE
    };
    let late = Habit {
        late: true,
        flags: MSG_WAITALL,
        ..pieces
    };
    shared(env, [pieces, late], false)
}

/// The content of a buffer into which two receives of the stream from `offset` on were made, one
/// after the other.
fn twice(env: &Env, len: usize, offset: u64, first: usize, second: usize) -> Vec<u8> {
    let mut bytes = vec![UNTOUCHED; len];
    bytes[..first].copy_from_slice(&Span::new(env.seed, offset, first as u64).to_vec());
    let offset = offset + first as u64;
    bytes[..second].copy_from_slice(&Span::new(env.seed, offset, second as u64).to_vec());
    bytes
}

/// Two threads receive into the same buffer at the same time. As with TCP, one call comes after the
/// other, and its bytes replace those of the other call.
pub(super) fn by_two_threads_into_one_buffer(env: &Env) -> Outcome {
    let incoming = Incoming::by_any(env, 1 << 40)?;
    let pages = Pages::new(LEN, false)?;
    let mut rng = Rng::new(env.seed ^ 0x10b);
    let mut received = 0;
    for _ in 0..24 {
        pages.write(0, &[UNTOUCHED; LEN]);
        let lens = [0, 1].map(|_| (4 + rng.below(LEN / PAGE - 3)) * PAGE);
        let take = |len| {
            // SAFETY: no reference to the pages exists.
            unsafe { incoming.sock.recv_raw(pages.at(0), len, 0) }
        };
        let (one, other) = std::thread::scope(|scope| {
            let other = scope.spawn(|| take(lens[1]));
            (take(lens[0]), other.join())
        });
        let (one, other) = (
            one?,
            other.map_err(|_| io::Error::other("a thread panics"))??,
        );
        let content = pages.read(0, LEN);
        expect(
            content == twice(env, LEN, received, one, other)
                || content == twice(env, LEN, received, other, one),
            format!("not the {one} and {other} bytes from {received} on, of calls for {lens:?}"),
        )?;
        received += (one + other) as u64;
    }
    incoming.leave()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(bytes: &[u8], calls: &[(usize, bool)]) -> Share {
        Share {
            bytes: bytes.to_vec(),
            calls: calls.to_vec(),
        }
    }

    #[test]
    fn whole_calls_make_a_stream() {
        let one = || share(&[1, 2, 5], &[(2, false), (3, false)]);
        let other = || share(&[3, 4, 6], &[(1, false), (2, false), (3, false)]);
        assert_eq!(is_shared(&[1, 2, 3, 4, 5, 6], &[one(), other()]), Ok(()));
        assert_eq!(is_shared(&[1, 2, 3, 4, 5, 6], &[other(), one()]), Ok(()));
        // Lost, doubled, and in the wrong order.
        assert_eq!(is_shared(&[1, 2, 7, 3, 4], &[one(), other()]), Err(2));
        assert_eq!(is_shared(&[1, 2, 3, 5, 6], &[one(), other()]), Err(4));
        assert_eq!(is_shared(&[1, 2, 4, 3, 5], &[one(), other()]), Err(2));
    }

    #[test]
    fn only_some_calls_may_be_split() {
        let bytes = [1, 2, 3, 4];
        let other = || share(&[2, 3], &[(2, false)]);
        let split = |may| is_shared(&bytes, &[share(&[1, 4], &[(2, may)]), other()]);
        assert_eq!(split(true), Ok(()));
        assert_eq!(split(false), Err(1));
    }

    #[test]
    fn equal_bytes_of_both_do_not_mislead() {
        let one = share(&[1, 1, 2, 1], &[(2, false), (4, true)]);
        let other = share(&[1, 3, 2, 2], &[(4, true)]);
        let stream = [1, 3, 1, 1, 2, 2, 1, 2];
        assert_eq!(is_shared(&stream, &[one, other]), Ok(()));
    }
}
