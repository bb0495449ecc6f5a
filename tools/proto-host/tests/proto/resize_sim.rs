// SPDX-License-Identifier: GPL-2.0

//! Two sides with credits, whose receives grow and shrink at random: no message is longer than the
//! receive that it meets, none is refused, all bytes arrive, and when both are idle their receives are
//! small. `resize.rs` has every order, of one direction and with simpler credits.

use super::credits::header;
use proptest::prelude::*;
use proto_host::proto::{
    bsdh::{
        Bsdh,
        Class, //
    },
    credits::Credits,
    resize::{
        OwnReceives,
        PeerReceives,
        LARGE_BYTES,
        SMALL_BYTES, //
    },
};
use std::collections::VecDeque;

/// Receives that are posted at a time, as in the module.
const IDLE: usize = 5;
const DEPTH: usize = 15;

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Message {
    Payload(u32),
    Empty,
    Ask(u32),
    Told(u32),
}

struct Side {
    credits: Credits,
    own: OwnReceives,
    peer: PeerReceives,
    posted: VecDeque<u32>,
    target: usize,
    inbox: VecDeque<(Bsdh, Message)>,
    waiting: u64,
    received: u64,
}

impl Side {
    fn new() -> Self {
        let mut credits = Credits::new();
        credits.posted(IDLE as u32);
        credits.announce();
        credits.set_peer_limit(IDLE as u16);
        Side {
            credits,
            own: OwnReceives::new(SMALL_BYTES),
            peer: PeerReceives::new(SMALL_BYTES),
            posted: VecDeque::from([SMALL_BYTES; IDLE]),
            target: IDLE,
            inbox: VecDeque::new(),
            waiting: 0,
            received: 0,
        }
    }

    /// Posts receives, as memory allows; whether there was one to post.
    fn refill(&mut self, most: usize) -> bool {
        let n = self.target.saturating_sub(self.posted.len()).min(most);
        for _ in 0..n {
            self.posted.push_back(self.own.bytes());
            self.credits.posted(1);
        }
        n > 0
    }

    fn shrink(&mut self) {
        self.own.shrink();
    }

    fn post(&mut self, to: &mut Side, class: Class, message: Message) -> bool {
        let Some(stamp) = self.credits.stamp(class) else {
            return false;
        };
        to.inbox.push_back((header(stamp), message));
        self.peer.sent();
        true
    }

    fn control(&mut self, to: &mut Side) {
        if let Some(size) = self.own.answer() {
            if self.post(to, Class::Control, Message::Told(size))
                && self.own.answered(self.posted.len() as u32)
            {
                self.target = IDLE;
            }
        }
        if let Some(size) = self.peer.question() {
            if self.post(to, Class::Control, Message::Ask(size)) {
                self.peer.asked();
            }
        }
    }

    /// Sends all that may be sent, in the module's order; whether there was anything.
    fn flush(&mut self, to: &mut Side) -> bool {
        let before = to.inbox.len();
        self.control(to);
        while self.waiting > 0 {
            let waiting = u32::try_from(self.waiting).unwrap_or(u32::MAX);
            if self.peer.ask(waiting, true) {
                self.control(to);
            }
            let bytes = self.peer.bytes().min(waiting);
            if !self.post(to, Class::Payload, Message::Payload(bytes)) {
                break;
            }
            self.waiting -= u64::from(bytes);
        }
        while self.peer.has_to_use_up() && self.credits.may_send(Class::Control) {
            self.post(to, Class::Update, Message::Empty);
        }
        if self.credits.wants_update() {
            self.post(to, Class::Update, Message::Empty);
        }
        to.inbox.len() > before
    }

    fn receive(&mut self) -> bool {
        let Some((header, message)) = self.inbox.pop_front() else {
            return false;
        };
        self.credits.received(&header).expect("an honest peer");
        let size = self.posted.pop_front().expect("a receive");
        self.own.received();
        match message {
            Message::Empty => {}
            Message::Payload(bytes) => {
                assert!(bytes <= size, "{bytes} bytes meet a receive of {size}");
                self.received += u64::from(bytes);
            }
            Message::Ask(bytes) => {
                self.own.grow(bytes, self.posted.len() as u32);
                if !self.own.is_shrinking() {
                    self.target = DEPTH;
                }
                self.own.owe_answer();
            }
            Message::Told(bytes) => {
                let credits = self.credits.available();
                let told = self.peer.answered(bytes, Some(credits));
                told.expect("an honest peer");
            }
        }
        true
    }
}

fn settle(one: &mut Side, other: &mut Side) {
    fn turn(here: &mut Side, there: &mut Side) -> bool {
        here.refill(DEPTH) | here.flush(there) | here.receive()
    }
    while turn(one, other) | turn(other, one) {}
}

fn run(moves: &[(bool, u8, u32)]) {
    let (mut one, mut other) = (Side::new(), Side::new());
    let mut sent = [0, 0];
    for &(turn, what, bytes) in moves {
        let (here, there, n) = if turn {
            (&mut one, &mut other, 0)
        } else {
            (&mut other, &mut one, 1)
        };
        match what {
            0 => {
                sent[n] += u64::from(bytes);
                here.waiting += u64::from(bytes);
            }
            1 => here.shrink(),
            2 => {
                here.refill(1 + bytes as usize % 3);
            }
            3..=5 => {
                here.flush(there);
            }
            _ => {
                here.receive();
            }
        }
    }
    settle(&mut one, &mut other);
    for _ in 0..3 {
        one.shrink();
        settle(&mut one, &mut other);
        other.shrink();
        settle(&mut one, &mut other);
    }
    for (side, sent) in [(&one, sent[1]), (&other, sent[0])] {
        assert_eq!(side.received, sent);
        assert!(
            side.posted.iter().all(|&size| size == SMALL_BYTES),
            "{:?}",
            side.posted
        );
        assert!(!side.own.is_shrinking() && !side.peer.has_to_use_up());
        assert!(
            side.credits.may_send(Class::Payload),
            "the stream would stall"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]
    #[test]
    fn two_sides(moves in prop::collection::vec(
        (any::<bool>(), 0u8..10, prop_oneof![1u32..5000, 5000u32..500_000]), 0..150))
    {
        run(&moves);
    }
}

/// Both shrink at the same time.
#[test]
fn both_at_once() {
    let (mut one, mut other) = (Side::new(), Side::new());
    one.waiting = 1 << 20;
    other.waiting = 1 << 20;
    settle(&mut one, &mut other);
    assert!(one.own.bytes() == LARGE_BYTES && other.own.bytes() == LARGE_BYTES);
    one.shrink();
    other.shrink();
    settle(&mut one, &mut other);
    for side in [&one, &other] {
        assert!(
            side.posted.iter().all(|&size| size == SMALL_BYTES),
            "{:?}",
            side.posted
        );
        assert_eq!(side.posted.len(), IDLE);
    }
}
