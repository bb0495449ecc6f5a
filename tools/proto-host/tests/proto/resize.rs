// SPDX-License-Identifier: GPL-2.0

//! Every order of a sender's and a receiver's moves: no message is longer than the receive that it
//! meets, and in the end no receive is larger than the receiver wants.

use proto_host::proto::{
    resize::{
        OwnReceives,
        PeerReceives,
        Stuck,
        LARGE_BYTES,
        SMALL_BYTES, //
    },
    violation::Violation,
};
use std::collections::{
    HashSet,
    VecDeque, //
};

/// The size of the first receives of a connection if memory is short.
const TINY: u32 = 1024;
/// The size that receives get if there is no memory for larger ones.
const MIDDLE: u32 = 1 << 15;
/// Receives that are posted at a time, messages with payload that are sent, and how often receives shrink.
const DEPTH: usize = 3;
const MESSAGES: u32 = 4;
const SHRINKS: u32 = 2;

#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
enum Message {
    Payload(u32),
    Ask(u32),
    Empty,
}

/// What comes back: a size, perhaps, and credits.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
struct Answer {
    size: Option<u32>,
    credits: u32,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct World {
    sender: PeerReceives,
    receiver: OwnReceives,
    payloads: u32,
    credits: u32,
    /// On their way to the receiver, and its receives.
    messages: VecDeque<Message>,
    posted: VecDeque<u32>,
    /// Receives that the sender was not told of.
    unreturned: u32,
    shrinks: u32,
    /// On their way to the sender, and the last size of them.
    answers: VecDeque<Answer>,
    told: u32,
}

/// What is broken.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Rule {
    /// Nothing.
    Module,
    /// R1: the answer goes as soon as larger receives are posted.
    AtOnce,
    /// R3: smaller receives are posted before the peer is told.
    Untold,
    /// R4: receives are not used up.
    NotUsed,
}

fn start() -> World {
    World {
        sender: PeerReceives::new(TINY),
        receiver: OwnReceives::new(TINY),
        payloads: 0,
        credits: DEPTH as u32,
        messages: VecDeque::new(),
        posted: VecDeque::from([TINY; DEPTH]),
        unreturned: 0,
        shrinks: 0,
        answers: VecDeque::new(),
        told: TINY,
    }
}

type Step<'a> = &'a dyn Fn(&mut World) -> Option<()>;

fn send_one(world: &mut World, message: Message) -> Option<()> {
    world.credits = world.credits.checked_sub(1)?;
    world.messages.push_back(message);
    world.sender.sent();
    Some(())
}

fn ask(world: &mut World, waiting: u32) -> Option<()> {
    world.sender.ask(waiting, true);
    let size = world.sender.question()?;
    send_one(world, Message::Ask(size))?;
    world.sender.asked();
    Some(())
}

fn send(world: &mut World) -> Option<()> {
    world.payloads = Some(world.payloads + 1).filter(|&sent| sent <= MESSAGES)?;
    let bytes = world.sender.bytes();
    send_one(world, Message::Payload(bytes))
}

fn use_up(world: &mut World) -> Option<()> {
    world.sender.has_to_use_up().then_some(())?;
    send_one(world, Message::Empty)
}

/// The receiver handles a message; whether a message was too long.
fn receive(world: &mut World, grows_to: u32) -> Option<bool> {
    let message = world.messages.pop_front()?;
    let size = world.posted.pop_front()?;
    world.receiver.received();
    match message {
        Message::Payload(bytes) => Some(bytes > size),
        Message::Empty => Some(false),
        Message::Ask(bytes) => {
            let posted = u32::try_from(world.posted.len()).ok()?;
            world.receiver.grow(bytes.min(grows_to), posted);
            world.receiver.owe_answer();
            Some(false)
        }
    }
}

fn post(world: &mut World, rule: Rule) -> Option<()> {
    let next = match world.receiver.answer() {
        Some(next) if rule == Rule::Untold => next,
        _ => world.receiver.bytes(),
    };
    (world.posted.len() < DEPTH).then_some(())?;
    world.unreturned += 1;
    world.posted.push_back(next);
    Some(())
}

fn shrink(world: &mut World) -> Option<()> {
    world.shrinks = Some(world.shrinks + 1).filter(|&n| n <= SHRINKS)?;
    let before = world.receiver;
    world.receiver.shrink();
    (world.receiver != before).then_some(())
}

fn tell(world: &mut World, size: Option<u32>) {
    let credits = std::mem::take(&mut world.unreturned);
    world.answers.push_back(Answer { size, credits });
}

fn answer(world: &mut World, rule: Rule) -> Option<()> {
    let due = world.receiver.answer();
    let early = rule == Rule::AtOnce && world.receiver.bytes() > world.told;
    let size = due.or(early.then_some(world.receiver.bytes()))?;
    world.told = size;
    tell(world, Some(size));
    let posted = u32::try_from(world.posted.len()).ok()?;
    world.receiver.answered(posted);
    Some(())
}

/// Credits without a size.
fn update(world: &mut World) -> Option<()> {
    (world.unreturned > 0).then_some(())?;
    tell(world, None);
    Some(())
}

fn take_answer(world: &mut World, rule: Rule) -> Option<()> {
    let answer = world.answers.pop_front()?;
    world.credits += answer.credits;
    if let Some(bytes) = answer.size {
        let result = world.sender.answered(bytes, Some(world.credits));
        assert!(
            rule != Rule::Module || result.is_ok(),
            "an honest peer is never refused"
        );
    }
    Some(())
}

/// What a search has found.
#[derive(Default)]
struct Found {
    too_long: usize,
    /// Worlds in which receives are larger than at the beginning after nothing has come for long.
    not_used_up: usize,
    /// The sizes at which the sender arrives.
    sizes: HashSet<u32>,
    /// Receives have grown again after they had shrunk.
    grew_again: bool,
}

/// Does all that is under way, and no more: whether there was anything.
fn go_on(world: &mut World, rule: Rule) -> bool {
    let steps: [Step<'_>; 6] = [
        &|w| post(w, rule),
        &|w| answer(w, rule),
        &update,
        &|w| take_answer(w, rule),
        &|w| (rule != Rule::NotUsed).then(|| use_up(w)).flatten(),
        &|w| receive(w, LARGE_BYTES).map(|_| ()),
    ];
    let mut has_moved = false;
    for step in steps {
        let mut next = world.clone();
        if step(&mut next).is_some() {
            *world = next;
            has_moved = true;
        }
    }
    has_moved
}

/// The program sends nothing any more, and the timer comes again and again: whether all receives are small
/// in the end.
fn shrinks(mut world: World, rule: Rule) -> bool {
    for _ in 0..4 {
        world.shrinks = 0;
        shrink(&mut world);
        while go_on(&mut world, rule) {}
    }
    let is_small = |&size: &u32| size <= SMALL_BYTES;
    world.posted.iter().all(is_small) && is_small(&world.sender.bytes())
}

/// Looks at all worlds.
fn search(rule: Rule) -> Found {
    let (mut known, mut todo) = (HashSet::from([start()]), vec![start()]);
    let mut found = Found::default();
    while let Some(world) = todo.pop() {
        found.sizes.insert(world.sender.bytes());
        found.grew_again |= world.shrinks > 0 && world.sender.bytes() > SMALL_BYTES;
        if !shrinks(world.clone(), rule) {
            found.not_used_up += 1;
        }
        let mut moved = Vec::new();
        let mut try_step = |step: Step<'_>| {
            let mut next = world.clone();
            if step(&mut next).is_some() {
                moved.push(next);
            }
        };
        try_step(&|w| post(w, rule));
        try_step(&|w| answer(w, rule));
        try_step(&update);
        try_step(&|w| take_answer(w, rule));
        if rule != Rule::NotUsed {
            try_step(&use_up);
        }
        try_step(&|w| ask(w, SMALL_BYTES));
        try_step(&|w| ask(w, 2 * LARGE_BYTES));
        try_step(&send);
        try_step(&shrink);
        for grows_to in [TINY, SMALL_BYTES, MIDDLE, LARGE_BYTES] {
            let mut next = world.clone();
            match receive(&mut next, grows_to) {
                Some(true) => found.too_long += 1,
                Some(false) => moved.push(next),
                None => {}
            }
        }
        todo.extend(moved.into_iter().filter(|next| known.insert(next.clone())));
    }
    assert!(known.len() > 1000, "the search did search: {}", known.len());
    found
}

#[test]
fn no_message_is_too_long_and_none_too_large_a_receive_is_left() {
    let found = search(Rule::Module);
    assert_eq!(found.too_long, 0);
    assert_eq!(found.not_used_up, 0);
    let sizes = HashSet::from([TINY, SMALL_BYTES, MIDDLE, LARGE_BYTES]);
    assert_eq!(found.sizes, sizes);
    assert!(found.grew_again);
}

/// The check can fail: without each of the rules it does.
#[test]
fn without_a_rule_it_is_wrong() {
    assert!(search(Rule::AtOnce).too_long > 0);
    assert!(search(Rule::Untold).too_long > 0);
    assert!(search(Rule::NotUsed).not_used_up > 0);
}

/// R2.
#[test]
fn answers() {
    let mut peer = PeerReceives::new(4096);
    assert_eq!(peer.answered(131_072, None), Err(Violation::NoAnswerDue));
    assert!(peer.ask(10_000, false));
    assert_eq!(peer.question(), Some(131_072));
    assert_eq!(
        peer.answered(131_072, None),
        Err(Violation::NoAnswerDue),
        "not asked yet"
    );
    peer.asked();
    assert_eq!(peer.question(), None);
    assert_eq!(peer.answered(1024, None), Err(Violation::BadReceiveSize));
    assert_eq!(peer.answered(4096, None), Ok(()), "a peer without memory");
    assert_eq!(
        peer.answered(131_072, None),
        Err(Violation::NoAnswerDue),
        "answered"
    );
    assert_eq!(peer.bytes(), 4096);
}

#[test]
fn asks_when_it_is_worth_it() {
    let mut peer = PeerReceives::new(1024);
    assert!(!peer.ask(1024, true), "all fits");
    assert!(peer.ask(8191, false));
    assert_eq!(peer.question(), Some(4096));
    assert!(!peer.ask(1 << 20, true), "one at a time");
    peer.asked();
    assert!(!peer.ask(1 << 20, true), "one at a time");
    assert_eq!(peer.answered(1024, None), Ok(()));
    assert!(!peer.ask(4096, false), "just refused");
    assert!(peer.ask(8192, false), "another size");
    assert_eq!(peer.question(), Some(131_072));
    peer.asked();
    assert_eq!(peer.answered(131_072, None), Ok(()));
    assert!(!peer.ask(1 << 20, true), "there is none larger");
}

/// R2 and R4.
#[test]
fn smaller_receives() {
    let mut peer = PeerReceives::new(8192);
    assert_eq!(peer.answered(4096, None), Err(Violation::NoAnswerDue));
    assert_eq!(peer.answered(8192, Some(3)), Err(Violation::NoAnswerDue));
    assert_eq!(peer.answered(4097, Some(3)), Err(Violation::BadReceiveSize));
    assert_eq!(peer.answered(4096, Some(3)), Ok(()));
    assert_eq!(peer.bytes(), 4096);
    for _ in 0..3 {
        assert!(!peer.ask(1 << 20, true), "it would be refused");
        assert!(peer.has_to_use_up());
        peer.sent();
    }
    assert!(!peer.has_to_use_up());
    assert!(peer.ask(1 << 20, false), "as at the beginning");
    peer.asked();
    assert_eq!(peer.answered(2048, Some(5)), Ok(()), "no answer");
    assert_eq!(peer.answered(8192, Some(3)), Ok(()), "the answer");
    assert!(peer.has_to_use_up(), "those of before are still there");
    assert_eq!(peer.answered(8192, Some(3)), Err(Violation::NoAnswerDue));
}

/// R4: whoever takes a growth back answers with the former size.
#[test]
fn a_growth_taken_back() {
    let mut peer = PeerReceives::new(2048);
    assert!(peer.ask(1 << 20, false));
    peer.asked();
    let mut own = OwnReceives::new(2048);
    own.grow(8192, 3);
    own.owe_answer();
    own.received();
    assert_eq!(own.answer(), None);
    own.shrink();
    own.owe_answer();
    own.grow(16_384, 3);
    let size = own.answer();
    assert_eq!(size, Some(2048), "a second question changes nothing");
    assert!(own.answered(3));
    assert_eq!((own.bytes(), own.larger_left()), (2048, 3));
    assert_eq!(peer.answered(2048, Some(3)), Ok(()));
    assert!(peer.has_to_use_up());
}

/// The checks count as long as the peer keeps the larger receives, or cannot be told; any use of a
/// receive that it has to use up begins the count anew.
#[test]
fn checks_find_a_peer_that_prevents_shrinking() {
    let mut own = OwnReceives::new(LARGE_BYTES);
    assert_eq!(own.check(true), None);
    own.shrink();
    assert_eq!(own.check(false), Some((Stuck::NotTold, 1)));
    assert_eq!(own.check(true), Some((Stuck::NotTold, 2)));
    assert!(own.answered(2));
    assert_eq!(own.check(true), Some((Stuck::NotUsedUp, 1)));
    assert_eq!(own.check(true), Some((Stuck::NotUsedUp, 2)));
    // The peer has no credit for it.
    assert_eq!(own.check(false), None);
    assert_eq!(own.check(true), Some((Stuck::NotUsedUp, 1)));
    own.received();
    assert_eq!(own.check(true), Some((Stuck::NotUsedUp, 1)));
    own.received();
    assert_eq!(own.check(true), None);
}

/// A question takes the place of what the peer was to be told.
#[test]
fn a_question_comes_before_the_peer_is_told() {
    let mut own = OwnReceives::new(SMALL_BYTES);
    own.grow(LARGE_BYTES, 0);
    assert_eq!(own.answer(), Some(LARGE_BYTES));
    assert!(!own.answered(3));
    own.shrink();
    assert_eq!(
        (own.answer(), own.bytes()),
        (Some(SMALL_BYTES), LARGE_BYTES)
    );
    own.grow(LARGE_BYTES, 3);
    own.owe_answer();
    assert_eq!(
        (own.answer(), own.bytes()),
        (Some(LARGE_BYTES), LARGE_BYTES)
    );
    assert!(!own.answered(3));
    own.shrink();
    assert!(own.answered(2));
    assert_eq!((own.answer(), own.bytes()), (None, SMALL_BYTES));
    own.grow(LARGE_BYTES, 2);
    assert_eq!(
        own.bytes(),
        SMALL_BYTES,
        "larger ones are to be used up first"
    );
    own.received();
    assert!(own.is_shrinking());
    own.received();
    assert!(!own.is_shrinking());
}
