// SPDX-License-Identifier: GPL-2.0
//! The attacks.

mod ack;
mod adverts;
mod control;
mod early;
mod floods;
mod hello;
mod later;
mod orphans;
mod pending;
mod rdma;
mod resize;
mod sinks;
mod states;
mod stream;
mod urgent;
mod vanish;

use crate::fail::{Result, Step};
use crate::session::Ctx;
use proto_host::proto::violation::Violation;

/// An attack, or several similar ones.
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&Ctx) -> Result<()>,
}

/// All attacks, the honest controls first.
pub(crate) fn all() -> Vec<Attack> {
    [
        control::ATTACKS,
        hello::ATTACKS,
        pending::ATTACKS,
        ack::ATTACKS,
        stream::ATTACKS,
        urgent::ATTACKS,
        states::ATTACKS,
        floods::ATTACKS,
        rdma::ATTACKS,
        adverts::ATTACKS,
        later::ATTACKS,
        early::ATTACKS,
        sinks::ATTACKS,
        orphans::ATTACKS,
        resize::ATTACKS,
        vanish::ATTACKS,
    ]
    .concat()
}

/// Why an attack cannot be made over iWARP.
pub(crate) fn impossible(name: &str) -> Option<&'static str> {
    match name {
        // The victim must get stuck by receives that are announced and not posted.
        "hello_ack.silence" | "abort.fin_wait_1" | "abort.last_ack" | "abort.closing"
        | "abort.orphan" => Some("a message without a receive ends the connection"),
        "early.never_answers" | "vanish.then_victim_closes" => {
            Some("TCP tells the victim of the end of the queue pair")
        }
        "early.into_memory_on_demand" => Some("soft-iWARP pins all registered memory"),
        "pending.limit_held_shut" => Some("the CM does not repeat a request"),
        "sinks.read_instead" => Some("soft-iWARP does not check whether a key allows Reads"),
        _ => None,
    }
}

impl Clone for Attack {
    fn clone(&self) -> Attack {
        Attack { ..*self }
    }
}

/// The counter of a violation.
fn counter(why: Violation) -> String {
    format!("violation_{}", why.name())
}

/// Runs `attack` on some of the cases: all of them, unless the context wants
/// fewer.
fn each<T>(
    ctx: &Ctx,
    cases: Vec<(String, T)>,
    mut attack: impl FnMut(&Ctx, T) -> Result<()>,
) -> Result<()> {
    // All cases of a short list are run.
    let every = if cases.len() > 16 { ctx.every } else { 1 };
    for (name, case) in cases.into_iter().step_by(every) {
        attack(ctx, case).step(&name)?;
    }
    Ok(())
}
