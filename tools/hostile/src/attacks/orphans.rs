// SPDX-License-Identifier: GPL-2.0
//! Sockets that were closed by their programs (orphans).

use super::Attack;
use crate::counters::Counters;
use crate::fail::{expect, Result};
use crate::session::{sockets, Ctx, Session, Start};
use proto_host::proto::hello::{Features, BUFS_MIN};
use proto_host::proto::orphan::PERIODS;
use std::thread::sleep;
use std::time::{Duration, Instant};

pub(super) const ATTACKS: &[Attack] = &[Attack {
    name: "orphans.slow_reader",
    run: slow_reader,
}];

/// The time in which the peer of a closed socket must take a part of the remaining bytes.
const ORPHAN: Duration = Duration::from_secs(60);

/// A peer that takes only a few of many messages in a minute cannot keep a closed socket alive.
fn slow_reader(ctx: &Ctx) -> Result<()> {
    let start = Start {
        bufs: BUFS_MIN,
        posted: usize::from(BUFS_MIN),
        features: Features::NONE,
    };
    let Session {
        victim, mut peer, ..
    } = Session::open(ctx, &start)?;
    victim.limit_waits(Duration::from_secs(1))?;
    let mut sent = 0;
    while let Ok(n) = victim.send_some(&[7; 65536]) {
        sent += n;
    }
    let before = Counters::read()?;
    let begin = Instant::now();
    drop(victim);
    sleep(ORPHAN / 2);
    // Taking the messages that have arrived makes room for as many more.
    peer.pump()?;
    let taken = peer.inbox.len();
    expect(taken > 0 && 2 * taken * (PERIODS as usize) < sent, || {
        format!("{taken} of {sent} bytes are not a few")
    })?;
    given_up(ctx, &before, begin)?;
    drop(peer);
    Ok(())
}

/// Waits until the module has given up the only socket, which its program has closed at `begin`.
pub(super) fn given_up(ctx: &Ctx, before: &Counters, begin: Instant) -> Result<()> {
    loop {
        let left = sockets()?;
        if left.is_empty() {
            break;
        }
        expect(begin.elapsed() < ORPHAN + ctx.limit, || {
            format!("the orphan does not go away: {left}")
        })?;
        sleep(Duration::from_millis(50));
    }
    let given_up = before.since("orphan_timeout")?;
    expect(given_up == 1, || {
        format!("{given_up} orphans were given up")
    })
}
