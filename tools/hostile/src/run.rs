// SPDX-License-Identifier: GPL-2.0
//! Runs the attacks one after the other and prints KTAP version 1.

use crate::attacks::{impossible, Attack};
use crate::counters::Counters;
use crate::fail::{expect, Result, Step};
use crate::session::{normal_connection, settle, Ctx};
use std::process::exit;
use std::sync::mpsc::{channel, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// The number of time limits that an attack with many connections may take. An attack that takes
/// longer hangs in a call.
const HANG: u32 = 60;

/// Runs the attacks; returns whether the module withstood all of them.
pub(crate) fn all(attacks: &[Attack], ctx: &Ctx) -> bool {
    println!("KTAP version 1");
    println!("1..{}", attacks.len());
    let mut failed = 0;
    let mut skipped = 0;
    for (i, attack) in attacks.iter().enumerate() {
        let start = Instant::now();
        let number = i + 1;
        if let Some(why) = impossible(attack.name).filter(|_| ctx.is_iwarp) {
            skipped += 1;
            println!("ok {number} {} # SKIP {why}", attack.name);
            continue;
        }
        let result = guarded(number, attack.name, ctx.limit * HANG, || one(attack, ctx));
        println!("# {}: {} ms", attack.name, start.elapsed().as_millis());
        match result {
            Ok(()) => println!("ok {number} {}", attack.name),
            Err(why) => {
                failed += 1;
                let why = why.to_string().replace(['\n', '#'], " ");
                println!("not ok {number} {} # {why}", attack.name);
            }
        }
    }
    let passed = attacks.len() - failed - skipped;
    println!("# {passed} passed, {failed} failed, {skipped} skipped");
    failed == 0
}

fn one(attack: &Attack, ctx: &Ctx) -> Result<()> {
    settle(ctx)?;
    let before = Counters::read()?;
    (attack.run)(ctx)?;
    normal_connection(ctx).step("a normal connection afterwards")?;
    let illegal = before.since("illegal_transition")?;
    expect(illegal == 0, || {
        format!("{illegal} illegal state transitions")
    })
}

/// Runs `body`, and ends the program if it hangs, because nothing else can end a thread in a system
/// call.
fn guarded<T>(number: usize, name: &'static str, limit: Duration, body: impl FnOnce() -> T) -> T {
    let (done, is_done) = channel::<()>();
    let watch = thread::spawn(move || {
        if is_done.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            println!("not ok {number} {name} # hangs: no end after {limit:?}");
            exit(1);
        }
    });
    let result = body();
    drop(done);
    let _ = watch.join();
    result
}
