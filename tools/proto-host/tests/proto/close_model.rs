// SPDX-License-Identifier: GPL-2.0

//! Two honest sides on the module's own `State`, every order of their moves:
//! no message of an honest side is refused, no event is illegal, and when
//! nothing more can happen both have closed with every answer given. A side
//! that then releases its queues takes nothing from the other side, which may
//! hear of the release at any time.
//!
//! This is the other half of the tables in `state.rs`, which show that what
//! must not arrive is refused. Messages cross, completions come late, and the
//! sides shut down whenever they like.

use proto_host::proto::{
    bsdh::{
        Bsdh,
        Mid, //
    },
    state::{
        Event,
        State, //
    },
};
use std::{
    collections::{
        BTreeSet,
        HashSet,
        VecDeque, //
    },
    hash::{
        DefaultHasher,
        Hash,
        Hasher, //
    },
};

/// Messages in flight in each direction, at most, answers not counted.
const CHANNEL: usize = 2;

#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
enum DisConn {
    NotSent,
    Sent,
    Completed,
}

/// One side. The numbers are small, and each is how often it may still happen.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Side {
    state: State,
    data: u8,
    adverts: u8,
    updates: u8,
    sink_adverts: u8,
    /// Source adverts of ours that were neither read nor cancelled.
    unread: u8,
    /// A cancel of ours is not yet answered.
    cancelling: bool,
    /// Sink adverts of ours that were not yet answered.
    unanswered: u8,
    disconn: DisConn,
    /// Source adverts of the peer that we have not yet read.
    to_read: u8,
    /// Messages under way to this side, and whether they carry payload.
    inbox: VecDeque<(Mid, bool)>,
}

type World = [Side; 2];

fn start(data: u8) -> Side {
    Side {
        state: State::Established,
        data,
        adverts: 1,
        updates: 1,
        sink_adverts: 1,
        unread: 0,
        cancelling: false,
        unanswered: 0,
        disconn: DisConn::NotSent,
        to_read: 0,
        inbox: VecDeque::new(),
    }
}

fn on(side: &mut Side, event: Event) {
    side.state = side.state.on(event).expect("an honest peer");
}

/// Nothing receives a message whose receiver was released.
fn post(world: &mut World, from: usize, mid: Mid, payload: bool) {
    let to = &mut world[1 - from];
    if !to.state.has_ended() {
        to.inbox.push_back((mid, payload));
    }
}

/// What side `me` may do of its own accord.
fn own_moves(world: &World, me: usize, next: &mut Vec<World>) {
    let side = &world[me];
    let room = world[1 - me].inbox.len() < CHANNEL;
    let mut push = |change: &dyn Fn(&mut World)| {
        let mut after = world.clone();
        change(&mut after);
        next.push(after);
    };
    if room && side.state.can_send() && !side.cancelling {
        if side.data > 0 {
            push(&|w| {
                w[me].data -= 1;
                post(w, me, Mid::Data, true);
            });
        }
        if side.adverts > 0 {
            push(&|w| {
                w[me].adverts -= 1;
                w[me].unread += 1;
                post(w, me, Mid::SrcAvail, true);
            });
        }
    }
    // A send that is interrupted takes its advert back, perhaps because the
    // socket was shut; its answer comes before our DisConn goes.
    let not_behind = matches!(side.disconn, DisConn::NotSent);
    if room && side.unread > 0 && !side.cancelling && not_behind && side.state.is_connected() {
        push(&|w| {
            w[me].cancelling = true;
            post(w, me, Mid::SrcAvailCancel, false);
        });
    }
    if room && side.updates > 0 && side.state.is_connected() {
        push(&|w| {
            w[me].updates -= 1;
            post(w, me, Mid::Data, false);
        });
    }
    if room && side.sink_adverts > 0 && side.state.can_receive() {
        push(&|w| {
            w[me].sink_adverts -= 1;
            w[me].unanswered += 1;
            post(w, me, Mid::SinkAvail, false);
        });
    }
    if side.to_read > 0 {
        push(&|w| {
            w[me].to_read -= 1;
            post(w, me, Mid::RdmaRdCompl, false);
        });
    }
    if side.state.can_send() {
        push(&|w| on(&mut w[me], Event::ShutdownWrite));
    }
    let shut = !side.state.can_send() && side.state.is_connected();
    if room && shut && not_behind && !side.cancelling {
        push(&|w| {
            w[me].disconn = DisConn::Sent;
            post(w, me, Mid::DisConn, false);
        });
    }
    if matches!(side.disconn, DisConn::Sent) {
        push(&|w| {
            w[me].disconn = DisConn::Completed;
            on(&mut w[me], Event::DisConnSent);
        });
    }
}

/// Side `me` takes the next message, and answers it.
fn deliver(world: &World, me: usize) -> Option<World> {
    let mut next = world.clone();
    let (mid, payload) = next[me].inbox.pop_front()?;
    let hdr = Bsdh {
        mid,
        flags: 0,
        bufs: 0,
        len: if payload { 17 } else { 16 },
        mseq: 0,
        mseq_ack: 0,
    };
    let state = next[me].state;
    assert_eq!(state.admits(&hdr), Ok(()), "{mid:?} in {state:?}");
    match mid {
        Mid::DisConn => on(&mut next[me], Event::DisConnReceived),
        Mid::SrcAvail => next[me].to_read += 1,
        Mid::SrcAvailCancel => {
            next[me].to_read = 0;
            post(&mut next, me, Mid::SendSm, false);
        }
        Mid::SinkAvail => post(&mut next, me, Mid::RdmaWrCompl, false),
        Mid::RdmaRdCompl => next[me].unread -= 1,
        Mid::SendSm => {
            next[me].unread = 0;
            next[me].cancelling = false;
        }
        Mid::RdmaWrCompl => next[me].unanswered -= 1,
        _ => {}
    }
    Some(next)
}

/// Side `me` releases its queues: of its own accord when neither side owes the
/// other anything (`finish_if_drained` in `rust/sdp/conn/owed.rs`), or because
/// the other side has released them (`disconnected` in `rust/sdp/cm/worker.rs`).
/// A side hears of the release after it has handled the messages before.
fn release(world: &World, me: usize) -> Option<World> {
    let side = &world[me];
    let lost = side.to_read > 0 || side.unread > 0;
    let is_due = side.state == State::Draining && !lost;
    let hears = world[1 - me].state == State::Released && side.inbox.is_empty();
    if side.state.has_ended() || !(is_due || hears) {
        return None;
    }
    let mut next = world.clone();
    let side = &mut next[me];
    if matches!(side.state, State::LastAck | State::Closing) {
        assert_ne!(side.disconn, DisConn::NotSent, "{world:?}");
        side.disconn = DisConn::Completed;
        on(side, Event::DisConnSent);
    }
    assert!(
        side.state == State::Draining && !lost,
        "something is lost: {world:?}"
    );
    on(side, Event::Released);
    side.inbox.clear();
    Some(next)
}

fn digest(side: &Side) -> u64 {
    let mut hasher = DefaultHasher::new();
    side.hash(&mut hasher);
    hasher.finish()
}

#[test]
fn honest_sides_close_in_every_order() {
    let first = [start(1), start(0)];
    let mut seen = HashSet::from([first.clone()]);
    let mut todo = vec![first];
    let (mut quiet, mut ends) = (0, 0);
    let mut states = BTreeSet::new();
    while let Some(world) = todo.pop() {
        states.extend(world.iter().map(|side| side.state.index()));
        let mut next = Vec::new();
        for me in 0..2 {
            own_moves(&world, me, &mut next);
            next.extend(deliver(&world, me));
        }
        if next.is_empty() && !world.iter().any(|side| side.state.has_ended()) {
            quiet += 1;
            for side in &world {
                assert_eq!(side.state, State::Draining, "{world:?}");
                let open = (side.unread, side.unanswered, side.cancelling);
                assert_eq!(open, (0, 0, false), "an answer is missing");
            }
        }
        next.extend((0..2).filter_map(|me| release(&world, me)));
        if next.is_empty() {
            ends += 1;
            let released = |side: &Side| side.state == State::Released;
            assert!(world.iter().all(released), "{world:?}");
        }
        // The sides are alike, so a world and its mirror image are the same.
        next.iter_mut().for_each(|world| world.sort_by_key(digest));
        todo.extend(next.into_iter().filter(|n| seen.insert(n.clone())));
    }
    println!("{} states, {quiet} quiet, {ends} ends", seen.len());
    assert!(
        quiet > 0 && ends > 0 && seen.len() > 10_000,
        "the search did search"
    );
    // All states of a connection that nobody aborts were among them.
    let is_such = |s: &&State| s.is_connected() || **s == State::Released;
    let mut expected = State::ALL.iter().filter(is_such);
    assert!(expected.all(|s| states.contains(&s.index())));
}
