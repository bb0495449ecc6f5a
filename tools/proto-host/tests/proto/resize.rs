// SPDX-License-Identifier: GPL-2.0

//! Every order of a sender's and a receiver's moves: no message is longer than the receive that it
//! meets.

use proto_host::proto::{
    resize::{
        OwnReceives,
        PeerReceives, //
    },
    violation::Violation,
};
use std::collections::{
    HashSet,
    VecDeque, //
};

const SMALL: u32 = 1;
const LARGE: u32 = 2;
const LARGEST: u32 = 3;
/// Receives that are posted at a time, and messages with payload that are sent.
const DEPTH: usize = 3;
const MESSAGES: u32 = 6;

#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
enum Message {
    Payload(u32),
    Ask(u32),
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct World {
    sender: PeerReceives,
    receiver: OwnReceives,
    sent: u32,
    /// On their way to the receiver, and its receives.
    messages: VecDeque<Message>,
    posted: VecDeque<u32>,
    /// On their way to the sender, and the last of them.
    answers: VecDeque<u32>,
    told: u32,
}

/// When the receiver answers.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Rule {
    /// By R1.
    Module,
    /// As soon as it posts larger receives.
    AtOnce,
}

fn start() -> World {
    World {
        sender: PeerReceives::new(SMALL),
        receiver: OwnReceives::new(SMALL),
        sent: 0,
        messages: VecDeque::new(),
        posted: VecDeque::from([SMALL; DEPTH]),
        answers: VecDeque::new(),
        told: SMALL,
    }
}

type Step<'a> = &'a dyn Fn(&mut World) -> Option<()>;

/// A credit for each message.
fn has_credit(world: &World) -> Option<()> {
    (world.messages.len() < world.posted.len()).then_some(())
}

fn ask(world: &mut World, waiting: u32) -> Option<()> {
    has_credit(world)?;
    world.sender.ask(waiting, LARGE, LARGEST, true);
    let size = world.sender.question()?;
    world.messages.push_back(Message::Ask(size));
    world.sender.asked();
    Some(())
}

fn send(world: &mut World) -> Option<()> {
    has_credit(world)?;
    world.sent = Some(world.sent + 1).filter(|&sent| sent <= MESSAGES)?;
    let bytes = world.sender.bytes();
    world.messages.push_back(Message::Payload(bytes));
    Some(())
}

/// The receiver handles a message; whether a message was too long.
fn receive(world: &mut World, grows_to: u32) -> Option<bool> {
    let message = world.messages.pop_front()?;
    let size = world.posted.pop_front()?;
    world.receiver.received();
    match message {
        Message::Payload(bytes) => Some(bytes > size),
        Message::Ask(bytes) => {
            let posted = u32::try_from(world.posted.len()).ok()?;
            world.receiver.grow(bytes.min(grows_to), posted);
            world.receiver.owe_answer();
            Some(false)
        }
    }
}

fn post(world: &mut World) -> Option<()> {
    (world.posted.len() < DEPTH).then(|| world.posted.push_back(world.receiver.bytes()))
}

fn answer(world: &mut World, rule: Rule) -> Option<()> {
    let due = world.receiver.answer().is_some();
    let early = rule == Rule::AtOnce && world.receiver.bytes() > world.told;
    (due || early).then_some(())?;
    world.told = world.receiver.bytes();
    world.answers.push_back(world.told);
    world.receiver.answered();
    Some(())
}

fn take_answer(world: &mut World, rule: Rule) -> Option<()> {
    let bytes = world.answers.pop_front()?;
    let result = world.sender.answered(bytes);
    assert!(
        rule != Rule::Module || result.is_ok(),
        "an honest peer is never refused"
    );
    Some(())
}

/// Looks at all worlds; the number of messages that were too long, and the sizes at which the sender
/// arrives.
fn search(rule: Rule) -> (usize, HashSet<u32>) {
    let (mut known, mut todo) = (HashSet::from([start()]), vec![start()]);
    let (mut too_long, mut sizes) = (0, HashSet::new());
    while let Some(world) = todo.pop() {
        sizes.insert(world.sender.bytes());
        let mut moved = Vec::new();
        let mut try_step = |step: Step<'_>| {
            let mut next = world.clone();
            if step(&mut next).is_some() {
                moved.push(next);
            }
        };
        try_step(&|w| ask(w, LARGE));
        try_step(&|w| ask(w, 2 * LARGEST));
        try_step(&send);
        try_step(&post);
        try_step(&|w| answer(w, rule));
        try_step(&|w| take_answer(w, rule));
        for grows_to in [SMALL, LARGE, LARGEST] {
            let mut next = world.clone();
            match receive(&mut next, grows_to) {
                Some(true) => too_long += 1,
                Some(false) => moved.push(next),
                None => {}
            }
        }
        todo.extend(moved.into_iter().filter(|next| known.insert(next.clone())));
    }
    assert!(known.len() > 1000, "the search did search: {}", known.len());
    (too_long, sizes)
}

#[test]
fn no_message_is_too_long() {
    let (too_long, sizes) = search(Rule::Module);
    assert_eq!(too_long, 0);
    assert_eq!(sizes, HashSet::from([SMALL, LARGE, LARGEST]));
}

/// The check can fail: without R1 it does.
#[test]
fn an_early_answer_is_wrong() {
    assert!(search(Rule::AtOnce).0 > 0);
}

/// R2.
#[test]
fn answers() {
    let mut peer = PeerReceives::new(LARGE);
    assert_eq!(peer.answered(LARGEST), Err(Violation::NoAnswerDue));
    assert!(peer.ask(10, LARGE, LARGEST, false));
    assert_eq!(peer.question(), Some(LARGEST));
    assert_eq!(
        peer.answered(LARGEST),
        Err(Violation::NoAnswerDue),
        "not asked yet"
    );
    peer.asked();
    assert_eq!(peer.question(), None);
    assert_eq!(peer.answered(SMALL), Err(Violation::BadReceiveSize));
    assert_eq!(peer.answered(LARGE), Ok(()), "a peer without memory");
    assert_eq!(
        peer.answered(LARGEST),
        Err(Violation::NoAnswerDue),
        "answered"
    );
    assert_eq!(peer.bytes(), LARGE);
}

#[test]
fn asks_when_it_is_worth_it() {
    let mut peer = PeerReceives::new(SMALL);
    assert!(!peer.ask(SMALL, LARGE, LARGEST, true), "all fits");
    assert!(peer.ask(2 * LARGE - 1, LARGE, LARGEST, false));
    assert_eq!(peer.question(), Some(LARGE));
    assert!(!peer.ask(100, LARGE, LARGEST, true), "one at a time");
    peer.asked();
    assert!(!peer.ask(100, LARGE, LARGEST, true), "one at a time");
    assert_eq!(peer.answered(SMALL), Ok(()));
    assert!(!peer.ask(LARGE, LARGE, LARGEST, false), "just refused");
    assert!(peer.ask(2 * LARGE, LARGE, LARGEST, false), "another size");
    assert_eq!(peer.question(), Some(LARGEST));
    peer.asked();
    assert_eq!(peer.answered(LARGEST), Ok(()));
    assert!(!peer.ask(100, LARGE, LARGEST, true), "there is none larger");
}
