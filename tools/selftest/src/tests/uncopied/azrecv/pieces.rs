// SPDX-License-Identifier: GPL-2.0
//! Receives into several buffers: a small one for a header, and whole pages for a body, of which
//! the call may return the bytes before they have arrived.

use super::{for_some_time, receive_into, settled, uncopied_pair, Expected, Incoming};
use crate::support::flow::{spawn, Span};
use crate::support::harness::{expect, expect_eq, joined, Env, Family, Outcome};
use crate::support::pattern::Rng;
use crate::support::peer::Remote;
use crate::support::sys::{Pages, Sock, PAGE};
use crate::tests::uncopied::inflight::{LEN, SDP_ZCOPY_MODE, SOL_SDP, WAITS};
use libc::{MSG_PEEK, MSG_WAITALL, SOL_SOCKET, SO_RCVBUF};
use std::collections::VecDeque;
use std::io;

/// The mode in which all bytes go by copy.
const COPIES: i32 = 1;
/// The content of memory before a receive.
const UNTOUCHED: u8 = 0xee;
/// What the program writes over a body.
const OWN: u8 = 0xdb;
/// The number of frames of a connection.
const FRAMES: usize = 12;
/// The number of buffers for bodies, which are used by turns.
const BUFFERS: usize = 3;
/// The number of bytes of a header.
const HEADERS: [usize; 5] = [1, 16, 100, 5000, 20_001];
/// The number of whole pages of a body.
const BODIES: [usize; 5] = [16, 16, 40, 129, 256];
/// The number of bytes of a body behind its last whole page.
const TAILS: [usize; 3] = [0, 0, 77];

/// How frames are sent.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Copied,
    /// The header goes by copy, and the body in an advert.
    Advert,
    /// The header and the body go in one advert.
    OneAdvert,
    /// The first bytes of a frame may go in another way than the others.
    Mixed,
}

/// The parts of a frame that are sent one by one: the mode and the number of bytes of each.
fn parts(way: Way, header: usize, body: usize, rng: &mut Rng) -> Vec<(i32, usize)> {
    match way {
        Way::Copied => vec![(COPIES, header + body)],
        Way::Advert => vec![(WAITS, header), (WAITS, body)],
        Way::OneAdvert => vec![(WAITS, header + body)],
        Way::Mixed => {
            let first = 1 + rng.below(header + body - 1);
            let mode = |rng: &mut Rng| [COPIES, WAITS][rng.below(2)];
            vec![(mode(rng), first), (mode(rng), header + body - first)]
        }
    }
}

fn send_frames(
    env: &Env,
    remote: &Remote,
    way: Way,
    frames: &[(usize, usize)],
    mut rng: Rng,
) -> io::Result<()> {
    let (seed, mut offset, mut now) = (env.seed, 0, None);
    for &(header, body) in frames {
        for (mode, len) in parts(way, header, body, &mut rng) {
            if now.replace(mode) != Some(mode) && env.family == Family::Sdp {
                remote.set_int(SOL_SDP, SDP_ZCOPY_MODE, mode)?;
            }
            let end = offset + len as u64;
            while offset < end {
                offset += remote.send(Span::new(seed, offset, end - offset), 0)? as u64;
            }
        }
    }
    Ok(())
}

/// The pieces without their first `skipped` bytes.
fn behind(pieces: &[Pages], mut skipped: usize) -> Vec<Pages> {
    let mut rest = Vec::new();
    for piece in pieces {
        let skip = skipped.min(piece.len());
        skipped -= skip;
        if skip < piece.len() {
            rest.push(piece.part(skip, piece.len() - skip));
        }
    }
    rest
}

/// What memory must contain when the program looks at it.
#[derive(Clone, Copy)]
enum Content {
    Received(Expected),
    /// The program has written to all bytes.
    Overwritten(Pages),
    /// The program has written to the first word of each page, and the rest was received.
    Marked(Expected),
}

impl Content {
    #[track_caller]
    fn check(self) -> Outcome {
        match self {
            Content::Received(got) => got.check(),
            Content::Overwritten(pages) => {
                let all = pages.read(0, pages.len());
                expect(all.iter().all(|b| *b == OWN), "bytes came later")
            }
            Content::Marked(got) => {
                for at in (0..got.pages.len() / PAGE * PAGE).step_by(PAGE) {
                    expect_eq(got.pages.load(at), at as u64, "what was written")?;
                    got.part(at + 8, PAGE - 8).check()?;
                }
                Ok(())
            }
        }
    }
}

/// The frames of one connection, as the program receives them.
struct Frames {
    sock: Sock,
    seed: u64,
    received: u64,
    rng: Rng,
    /// Memory for headers.
    headers: Pages,
    /// Buffers for bodies.
    bodies: Vec<Pages>,
    /// Bodies at which the program will look later.
    kept: VecDeque<Content>,
}

impl Frames {
    fn expected(&self, pages: Pages, at: usize) -> Expected {
        Expected {
            pages,
            seed: self.seed,
            offset: self.received + at as u64,
        }
    }

    /// Checks the first `n` bytes of the pieces against the next bytes of the stream.
    #[track_caller]
    fn check(&self, pieces: &[Pages], n: usize) -> Outcome {
        let mut done = 0;
        for piece in pieces {
            let len = piece.len().min(n - done);
            self.expected(piece.part(0, len), done).check()?;
            done += len;
        }
        Ok(())
    }

    /// Peeks at some bytes or all bytes of a frame.
    #[track_caller]
    fn peek(&mut self, pieces: &[Pages; 2]) -> Outcome {
        let count = 1 + self.rng.below(2);
        let n = receive_into(&self.sock, &pieces[..count], MSG_PEEK)?;
        expect(n > 0, "nothing to peek at")?;
        self.check(&pieces[..count], n)
    }

    /// Receives a frame, and does something to its body.
    #[track_caller]
    fn take(&mut self, turn: usize, header: usize, body: usize) -> Outcome {
        if self.kept.len() == BUFFERS {
            if let Some(first) = self.kept.pop_front() {
                first.check()?;
            }
        }
        let buffer = self.bodies[turn % BUFFERS];
        let odd = [0, 8, PAGE - 1, PAGE - 16][self.rng.below(4)];
        let pieces = [self.headers.part(odd, header), buffer.part(0, body)];
        if self.rng.below(3) == 0 {
            self.peek(&pieces)?;
        }
        for memory in [self.headers, buffer] {
            memory.write(0, &vec![UNTOUCHED; memory.len()]);
        }
        let flags = [0, MSG_WAITALL][self.rng.below(2)];
        let way = self.rng.below(4);
        let mut done = 0;
        while done < header + body {
            let rest = behind(&pieces, done);
            let n = receive_into(&self.sock, &rest, flags)?;
            expect(n > 0, format!("the end after {done} bytes of a frame"))?;
            if flags == MSG_WAITALL {
                expect_eq(n, header + body, "received with MSG_WAITALL")?;
            }
            if way == 0 {
                self.check(&rest, n)?;
            }
            self.received += n as u64;
            done += n;
        }
        self.received -= done as u64;
        self.check(&pieces[..1], header)?;
        let got = self.expected(pieces[1], header);
        self.received += done as u64;
        let content = match way {
            0 | 1 => Content::Received(got),
            2 => {
                got.pages.write(0, &vec![OWN; body]);
                Content::Overwritten(got.pages)
            }
            _ => {
                for at in (0..body / PAGE * PAGE).step_by(PAGE) {
                    got.pages.store(at, at as u64);
                }
                Content::Marked(got)
            }
        };
        self.kept.push_back(content);
        self.check_beside(odd, header, buffer, body)
    }

    /// The memory beside the pieces is accessible, and nobody has written to it.
    #[track_caller]
    fn check_beside(&self, odd: usize, header: usize, buffer: Pages, body: usize) -> Outcome {
        let all = self.headers.read(0, self.headers.len());
        let mut beside = all[..odd].iter().chain(&all[odd + header..]);
        expect(beside.all(|b| *b == UNTOUCHED), "bytes beside the header")?;
        let behind = buffer.read(body, buffer.len() - body);
        expect(
            behind.iter().all(|b| *b == UNTOUCHED),
            "bytes behind the body",
        )
    }
}

/// Receives the frames of a new connection.
fn receive_frames(env: &Env, way: Way, mut rng: Rng) -> Outcome {
    let (sock, remote) = uncopied_pair(env)?;
    if rng.below(2) == 0 && env.family == Family::Sdp {
        // A long body does not fit into the receive buffer. Over TCP this would be too slow.
        sock.set_int(SOL_SOCKET, SO_RCVBUF, 65536)?;
    }
    let of = |list: &[usize], rng: &mut Rng| list[rng.below(list.len())];
    let frames: Vec<_> = (0..FRAMES)
        .map(|_| {
            let body = of(&BODIES, &mut rng) * PAGE + of(&TAILS, &mut rng);
            (of(&HEADERS, &mut rng), body)
        })
        .collect();
    let sending = {
        let (env, remote, frames) = (env.clone(), remote.clone(), frames.clone());
        let rng = Rng::new(rng.next());
        spawn(move || send_frames(&env, &remote, way, &frames, rng))?
    };
    let mut all = Frames {
        sock,
        seed: env.seed,
        received: 0,
        rng,
        headers: Pages::new(8 * PAGE, false)?,
        bodies: (0..BUFFERS)
            .map(|_| Pages::new(257 * PAGE, false))
            .collect::<Result<_, _>>()?,
        kept: VecDeque::new(),
    };
    for (turn, (header, body)) in frames.into_iter().enumerate() {
        all.take(turn, header, body)?;
    }
    joined(sending)??;
    all.kept.drain(..).try_for_each(Content::check)?;
    drop(all.sock);
    settled(env)?;
    Ok(remote.close()?)
}

/// Receives frames of several connections.
fn header_and_body(env: &Env, way: Way) -> Outcome {
    let mut seeds = Rng::new(env.seed ^ 0xf2a3e);
    for_some_time(env, way != Way::Copied, || {
        receive_frames(env, way, Rng::new(seeds.next()))
    })
}

pub(super) fn header_and_body_by_copy(env: &Env) -> Outcome {
    header_and_body(env, Way::Copied)
}

pub(super) fn header_and_body_by_adverts(env: &Env) -> Outcome {
    header_and_body(env, Way::Advert)
}

/// The header is read into memory of the module, because it is too short for a Read of its own. As
/// many bytes of the body as the receive buffer has room for come with it.
pub(super) fn header_and_body_in_one_advert(env: &Env) -> Outcome {
    header_and_body(env, Way::OneAdvert)
}

pub(super) fn header_and_body_mixed(env: &Env) -> Outcome {
    header_and_body(env, Way::Mixed)
}

/// The memory after bytes were received into the pieces, one after the other. The pieces are parts
/// of the memory.
fn overlaid(memory: Pages, mut bytes: Vec<u8>, got: &[Expected]) -> Vec<u8> {
    for part in got {
        let at = part.pages.at(0) - memory.at(0);
        let span = Span::new(part.seed, part.offset, part.pages.len() as u64);
        bytes[at..at + part.pages.len()].copy_from_slice(&span.to_vec());
    }
    bytes
}

/// Receives by `calls` with MSG_WAITALL into pieces of the same memory. Each byte of the memory
/// must be the one that was received into it last.
fn overlap(env: &Env, memory: Pages, calls: &[&[Pages]]) -> Outcome {
    for_some_time(env, true, || {
        let mut incoming = Incoming::by_any(env, 1 << 40)?;
        for _ in 0..2 {
            memory.write(0, &vec![UNTOUCHED; memory.len()]);
            let mut want = vec![UNTOUCHED; memory.len()];
            for pieces in calls {
                let got = incoming.take_pieces(pieces)?;
                want = overlaid(memory, want, &got);
            }
            let content = memory.read(0, memory.len());
            let wrong = content.iter().zip(&want).position(|(is, want)| is != want);
            expect_eq(wrong, None, "the first wrong byte")?;
        }
        incoming.leave()
    })
}

/// The buffers of one call may overlap: then the bytes of the last one stay.
pub(super) fn overlapping_pieces(env: &Env) -> Outcome {
    let memory = Pages::new(LEN, false)?;
    let (body, part) = (memory.part(0, 40 * PAGE), memory.part(8 * PAGE, 20 * PAGE));
    overlap(env, memory, &[&[body, part, memory.part(100, 16)]])?;
    overlap(env, memory, &[&[body, body]])?;
    overlap(env, memory, &[&[memory.part(16, LEN - 16), body, part]])
}

/// The header of the next receive goes to a page for which bytes of the last one may still be on
/// their way.
pub(super) fn header_into_the_last_body(env: &Env) -> Outcome {
    let memory = Pages::new(2 * LEN, false)?;
    let (last, body) = (memory.part(0, 40 * PAGE), memory.part(LEN, 40 * PAGE));
    for at in [0, 100, 39 * PAGE + 7] {
        overlap(env, memory, &[&[last], &[last.part(at, 16), body]])?;
    }
    Ok(())
}
