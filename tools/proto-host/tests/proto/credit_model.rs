// SPDX-License-Identifier: GPL-2.0

//! An exhaustive check of the credit rules: two sides made of the module's own
//! `Credits`, every order of sends, deliveries and reads, every state reached.
//!
//! Written by hand rather than with a model checker's library: the search is a
//! page long, and the question that matters most, whether updates can go back
//! and forth for ever, is one about cycles. It is answered exactly: take the
//! end points out of the graph of moves that are not progress, again and again;
//! what cannot be taken out is or leads to a cycle.
//!
//! Sequence numbers grow without end, so two states count as the same if all
//! differences of numbers are; no rule looks at anything else.

use crate::credits::header;
use proto_host::proto::{
    bsdh::{
        Bsdh,
        Class, //
    },
    credits::{
        Credits,
        Stamp, //
    },
    hello::BUFS_MIN,
    policy::post_later,
};
use std::collections::{
    HashMap,
    VecDeque, //
};

/// Messages in flight in each direction, at most. More of them only repeat
/// what one after the other does.
const CHANNEL: usize = 3;

#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Kind {
    Payload,
    Control,
    Update,
}

const KINDS: [Kind; 3] = [Kind::Payload, Kind::Control, Kind::Update];

/// The rules under test.
#[derive(Copy, Clone)]
struct Rules {
    stamp: fn(&mut Credits, Kind) -> Option<Stamp>,
    /// Whether an update is due. The number is that of messages received since
    /// the last send which were not updates themselves.
    update_due: fn(&Credits, u32) -> bool,
    /// Whether receives that are free again are posted later: of those posted, and the target.
    post_later: fn(u32, u32) -> bool,
    /// Whether that number matters; else it is not part of a state.
    counts_news: bool,
}

/// Those of the module: C1 and C3 as `Credits` has them, and its groups of receives.
const MODULE: Rules = Rules {
    stamp: |credits, kind| {
        credits.stamp(match kind {
            Kind::Payload => Class::Payload,
            Kind::Control => Class::Control,
            Kind::Update => Class::Update,
        })
    },
    update_due: |credits, _| credits.wants_update(),
    post_later,
    counts_news: false,
};

/// OFED's: 3, 2 and 1 credits, and an update for a single receive.
const OFED: Rules = Rules {
    stamp: |credits, kind| {
        let enough = match kind {
            Kind::Payload => 3,
            Kind::Control => 2,
            Kind::Update => 1,
        };
        // The counters are those under test; only the threshold is OFED's.
        let allowed = credits.available() >= enough;
        allowed.then(|| credits.stamp(Class::Update)).flatten()
    },
    update_due: |credits, _| ofed_update_due(credits),
    post_later: |_, _| false,
    counts_news: false,
};

/// OFED's, but a pure update is never answered by another.
const OFED_UNANSWERED: Rules = Rules {
    update_due: |credits, news| news > 0 && ofed_update_due(credits),
    counts_news: true,
    ..OFED
};

fn ofed_update_due(credits: &Credits) -> bool {
    let (unreturned, left) = (credits.unreturned(), credits.peer_has_left());
    unreturned >= 1 && (left <= 2 || unreturned * 2 >= left)
}

/// What the two sides want to do.
#[derive(Copy, Clone, Debug)]
struct Wants {
    posted: [u16; 2],
    payload: [u32; 2],
    control: [u32; 2],
    /// Whether the applications read.
    read: bool,
}

#[derive(Clone)]
struct Side {
    credits: Credits,
    payload_to_send: u32,
    control_to_send: u32,
    /// Receives held by payload that nobody has read.
    unread: u32,
    /// Receives whose payload was read, and that are not posted yet.
    free: u32,
    target: u32,
    news: u32,
    last_mseq: u32,
    inbox: VecDeque<(Kind, Bsdh)>,
}

type World = [Side; 2];

/// A side without its absolute numbers.
type SideKey = ([u32; 9], Vec<(Kind, u32, u16)>);

/// The two sides are alike, so a world and its mirror image are the same.
fn key(world: &World) -> [SideKey; 2] {
    let mut keys = [0, 1].map(|me| {
        let side = &world[me];
        let c = &side.credits;
        let inbox = side.inbox.iter().map(|&(kind, hdr)| {
            let unacked = side.last_mseq.wrapping_sub(hdr.mseq_ack);
            (kind, unacked, hdr.bufs)
        });
        let numbers = [
            c.available(),
            c.unacked(),
            c.outstanding(),
            c.unreturned(),
            side.payload_to_send,
            side.control_to_send,
            side.unread,
            side.free,
            side.news,
        ];
        (numbers, inbox.collect())
    });
    keys.sort();
    keys
}

fn start(wants: &Wants) -> World {
    [0, 1].map(|me| {
        // Just before the wrap, so that the numbers cross it.
        let mut credits = Credits::starting_at(u32::MAX - 2, u32::MAX - 2);
        credits.posted(u32::from(wants.posted[me]));
        credits.announce();
        credits.set_peer_limit(wants.posted[1 - me]);
        Side {
            credits,
            payload_to_send: wants.payload[me],
            control_to_send: wants.control[me],
            unread: 0,
            free: 0,
            target: u32::from(wants.posted[me]),
            news: 0,
            last_mseq: u32::MAX - 2,
            inbox: VecDeque::new(),
        }
    })
}

fn send(world: &World, me: usize, kind: Kind, rules: &Rules) -> Option<World> {
    let mut next = world.clone();
    let side = &mut next[me];
    match kind {
        Kind::Payload => side.payload_to_send = side.payload_to_send.checked_sub(1)?,
        Kind::Control => side.control_to_send = side.control_to_send.checked_sub(1)?,
        Kind::Update if (rules.update_due)(&side.credits, side.news) => {}
        Kind::Update => return None,
    }
    let stamp = (rules.stamp)(&mut side.credits, kind)?;
    side.last_mseq = stamp.mseq;
    side.news = 0;
    let peer = &mut next[1 - me];
    let promised = peer.credits.outstanding() as usize;
    assert!(peer.inbox.len() < promised, "a credit too many: no receive");
    peer.inbox.push_back((kind, header(stamp)));
    Some(next)
}

fn deliver(world: &World, me: usize, rules: &Rules) -> Option<World> {
    let mut next = world.clone();
    let side = &mut next[me];
    let (kind, hdr) = side.inbox.pop_front()?;
    let received = side.credits.received(&hdr);
    assert_eq!(received, Ok(()), "an honest peer is never refused");
    match kind {
        Kind::Payload => side.unread += 1,
        // Rule C2.
        Kind::Control | Kind::Update => side.credits.posted(1),
    }
    if rules.counts_news && kind != Kind::Update {
        side.news = (side.news + 1).min(3);
    }
    Some(next)
}

fn read(world: &World, me: usize, rules: &Rules) -> Option<World> {
    let mut next = world.clone();
    let side = &mut next[me];
    side.unread = side.unread.checked_sub(1)?;
    side.free += 1;
    if !(rules.post_later)(side.credits.outstanding(), side.target) {
        side.credits.posted(side.free);
        side.free = 0;
    }
    Some(next)
}

/// All that can happen next; true where it is progress.
fn moves(world: &World, rules: &Rules, wants: &Wants) -> Vec<(bool, World)> {
    let mut next = Vec::new();
    for me in 0..2 {
        if world[1 - me].inbox.len() < CHANNEL {
            let sends = KINDS.into_iter().filter_map(|kind| {
                let after = send(world, me, kind, rules)?;
                Some((kind != Kind::Update, after))
            });
            next.extend(sends);
        }
        next.extend(deliver(world, me, rules).map(|after| (false, after)));
        if wants.read {
            next.extend(read(world, me, rules).map(|after| (true, after)));
        }
    }
    next
}

#[derive(PartialEq, Eq, Debug)]
struct Outcome {
    states: usize,
    /// States in which nothing can happen though something is to be sent.
    deadlocks: usize,
    /// Whether updates and deliveries alone can go on for ever.
    livelock: bool,
}

fn explore(rules: &Rules, wants: &Wants) -> Outcome {
    let first = start(wants);
    let mut known = HashMap::from([(key(&first), 0)]);
    let mut todo = VecDeque::from([first]);
    let (mut at, mut deadlocks) = (0, 0);
    let mut idle_edges = Vec::new();
    while let Some(world) = todo.pop_front() {
        let after = moves(&world, rules, wants);
        if after.is_empty() && world.iter().any(|side| is_stuck(side, wants)) {
            deadlocks += 1;
        }
        for (progress, next) in after {
            let fresh = known.len();
            let to = *known.entry(key(&next)).or_insert(fresh);
            if to == fresh {
                todo.push_back(next);
            }
            if !progress {
                idle_edges.push((at, to));
            }
        }
        at += 1;
    }
    Outcome {
        states: known.len(),
        deadlocks,
        livelock: has_cycle(known.len(), &idle_edges),
    }
}

/// Control messages must always get through; payload, only if it is read.
fn is_stuck(side: &Side, wants: &Wants) -> bool {
    side.control_to_send > 0 || (wants.read && side.payload_to_send > 0)
}

/// Whether the directed graph has a cycle.
pub(crate) fn has_cycle(nodes: usize, edges: &[(usize, usize)]) -> bool {
    let mut out_degree = vec![0_usize; nodes];
    let mut into = vec![Vec::new(); nodes];
    for &(from, to) in edges {
        out_degree[from] += 1;
        into[to].push(from);
    }
    let mut ends: Vec<usize> = (0..nodes).filter(|&n| out_degree[n] == 0).collect();
    let mut removed = 0;
    while let Some(end) = ends.pop() {
        removed += 1;
        for &from in &into[end] {
            out_degree[from] -= 1;
            if out_degree[from] == 0 {
                ends.push(from);
            }
        }
    }
    removed < nodes
}

/// Each side has payload enough to run out of credits, and control messages on
/// top.
fn greedy(a: u16, b: u16, control: u32) -> Wants {
    Wants {
        posted: [a, b],
        payload: [u32::from(b) - 2, u32::from(a) - 2],
        control: [control; 2],
        read: false,
    }
}

/// A stream in one direction that is read, a message in the other.
fn streaming(a: u16, b: u16) -> Wants {
    Wants {
        posted: [a, b],
        payload: [u32::from(b) - 2, 1],
        control: [1, 1],
        read: true,
    }
}

fn check(wants: &Wants) {
    let got = explore(&MODULE, wants);
    println!("{wants:?}: {got:?}");
    assert!(got.states > 200, "the search did search");
    assert_eq!((got.deadlocks, got.livelock), (0, false), "{wants:?}");
}

#[test]
fn nobody_reads() {
    for a in 4..=8 {
        for b in 4..=a {
            // Fewer where there are more states.
            check(&greedy(a, b, if a + b > 11 { 1 } else { 2 }));
        }
    }
}

#[test]
fn streams_never_stall() {
    for a in BUFS_MIN..=8 {
        for b in BUFS_MIN..=6 {
            check(&streaming(a, b));
        }
    }
    check(&streaming(5, 7));
    // With 7 receives and more, the receives are posted in groups of 2.
    assert!(post_later(6, 7) && !post_later(5, 7) && !post_later(4, 5));
}

/// With 4 receives the first payload takes the only one that payload may have,
/// and to give that single one back is never reason enough for an update.
#[test]
fn fewer_than_the_minimum_stall() {
    for posted in 4..BUFS_MIN {
        assert!(explore(&MODULE, &streaming(posted, posted)).deadlocks > 0);
    }
    assert_eq!(BUFS_MIN, 5);
}

/// The check can fail: OFED's rules do.
#[test]
fn ofeds_rules_fail() {
    for posted in 4..=5 {
        let got = explore(&OFED, &greedy(posted, posted, 2));
        println!("OFED, {posted} posted: {got:?}");
        assert!(got.livelock, "updates answer updates for ever");
    }
    let got = explore(&OFED_UNANSWERED, &greedy(4, 4, 2));
    println!("OFED, updates not answered: {got:?}");
    assert!(got.deadlocks > 0, "a control message is never sent");
}

/// The check can fail in each of its parts: rules weakened one at a time.
#[test]
fn weaker_rules_fail() {
    // C3 without its "at least 2": an update is the reason for the next one.
    let eager = Rules {
        update_due: |credits, _| ofed_update_due(credits),
        ..MODULE
    };
    assert!(explore(&eager, &greedy(4, 4, 2)).livelock);
    // No updates at all: whoever has nothing else to say never gives back.
    let silent = Rules {
        update_due: |_, _| false,
        ..MODULE
    };
    assert!(explore(&silent, &streaming(6, 6)).deadlocks > 0);
    // Groups that are too large: the peer runs out of credits before there is a group.
    let lazy = Rules {
        post_later: |posted, target| posted < target && posted + 4 > target,
        ..MODULE
    };
    assert!(explore(&lazy, &streaming(6, 6)).deadlocks > 0);
    // C1 with one credit for what gives nothing back, as the announcement of an urgent byte.
    let announcing = Rules {
        stamp: |credits, kind| {
            credits.stamp(match kind {
                Kind::Payload => Class::Payload,
                Kind::Control | Kind::Update => Class::Update,
            })
        },
        ..MODULE
    };
    let got = explore(&announcing, &greedy(5, 5, 4));
    println!("announcing: {got:?}");
    assert_eq!(explore(&MODULE, &greedy(5, 5, 4)).deadlocks, 0);
    assert!(got.deadlocks > 0);
    // C1 with one credit for everything: the last ones go to payload.
    let careless = Rules {
        stamp: |credits, _| credits.stamp(Class::Update),
        ..MODULE
    };
    let wants = Wants {
        payload: [5, 5],
        ..greedy(5, 5, 1)
    };
    assert_eq!(explore(&MODULE, &wants).deadlocks, 0);
    assert!(explore(&careless, &wants).deadlocks > 0);
}
