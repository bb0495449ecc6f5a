// SPDX-License-Identifier: GPL-2.0
//! Random calls.
//!
//! `calls` makes the same calls on sockets of the family under test and on TCP sockets, one after
//! the other, and compares the results. `threads` makes calls from several threads at a time, on
//! shared sockets and memory. There the kernel must survive, no call may hang, the bytes of streams
//! must be right, and all resources must be given back.

mod call;
mod compare;
mod making;
mod room;
mod threads;
mod world;

use crate::support::harness::{differences, failed, note, skip, tests, Child, Env, Outcome};
use crate::support::pattern::Rng;
use crate::support::sys;
use making::{Maker, Use};
use room::Memory;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::{Duration, Instant};

tests!("fuzz"; calls, calls_of_ipv6, threads, threads_of_ipv6);

/// How much to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Amount {
    pub(crate) time: Duration,
    /// The number of calls on one set of sockets.
    pub(crate) calls: usize,
    /// Test only one set of sockets, with the given seed. Otherwise there are many sets, whose
    /// seeds follow from the given one.
    pub(crate) once: bool,
    /// Print the calls.
    pub(crate) print: bool,
    /// The number of differences after which the search ends before its time is over.
    pub(crate) most: usize,
}

const CALLS: usize = 60;

/// How long each test takes by default, in seconds.
const COMPARING: [f64; 2] = [6.0, 3.0];
const THREADS: [f64; 2] = [5.0, 2.0];

/// The time of a test that takes `seconds` by default.
fn time(env: &Env, seconds: f64) -> Duration {
    let all: f64 = COMPARING.iter().chain(&THREADS).sum();
    match env.random_time {
        Some(time) => time.mul_f64(seconds / all),
        None => Duration::from_secs_f64((seconds * env.scale).max(2.0)),
    }
}

fn amount(env: &Env, seconds: f64) -> Amount {
    Amount {
        time: time(env, seconds),
        calls: CALLS,
        once: false,
        print: false,
        most: 3,
    }
}

fn calls(env: &Env) -> Outcome {
    compared(env, amount(env, COMPARING[0]))
}

fn calls_of_ipv6(env: &Env) -> Outcome {
    compared(&env.over_ipv6()?, amount(env, COMPARING[1]))
}

fn threads(env: &Env) -> Outcome {
    threads::run(env, time(env, THREADS[0]), 4)
}

fn threads_of_ipv6(env: &Env) -> Outcome {
    threads::run(&env.over_ipv6()?, time(env, THREADS[1]), 4)
}

/// Makes calls from several threads for this time, with the seed of the environment.
pub(crate) fn with_threads(env: &Env, time: Duration, threads: usize) -> Outcome {
    threads::run(env, time, threads)
}

/// Compares the family under test with TCP.
pub(crate) fn compared(env: &Env, amount: Amount) -> Outcome {
    if differences::over_iwarp(env.family) {
        return skip("with iWARP, a connection is there for accept() only when a message has come");
    }
    let _allowed = super::connecting::fastopen::allowed(env)?;
    let env = env.clone();
    // The child has its own descriptors and signal handlers.
    Child::start(move || compare_all(&env, amount))?.join()
}

fn compare_all(env: &Env, amount: Amount) -> Outcome {
    sys::ignore_signal(libc::SIGIO);
    sys::ignore_signal(libc::SIGURG);
    note(&format!("seed {}", env.seed));
    let memory = Memory::new()?;
    let mut seeds = Rng::new(env.seed);
    let began = Instant::now();
    let (mut rounds, mut calls, mut said) = (0, 0, Instant::now());
    let mut found = BTreeSet::new();
    let mut report = String::new();
    while rounds == 0 || !amount.once && began.elapsed() < amount.time && found.len() < amount.most
    {
        let seed = match amount.once {
            true => env.seed,
            false => seeds.next() >> 32,
        };
        let steps = Maker::new(seed, Use::Comparison).steps(amount.calls);
        if amount.print {
            steps.iter().for_each(|step| println!("{step}"));
        }
        rounds += 1;
        let comparison = compare::compare(env, memory, seed, &steps)?;
        calls += comparison.made;
        if said.elapsed() > Duration::from_secs(20) {
            said = Instant::now();
            note(&format!(
                "{calls} calls on {rounds} sets of sockets, the last of seed {seed}"
            ));
        }
        let Some(difference) = comparison.difference else {
            continue;
        };
        // Report only one difference of each kind.
        if !found.insert(difference.kind()) {
            continue;
        }
        let least = compare::shortest(env, memory, seed, &steps, &difference)?;
        let mut text = format!(
            "{} (--seed {seed} --calls {}",
            difference.text,
            difference.at + 1
        );
        let _ = write!(text, ", {} are enough:", least.len());
        least.iter().for_each(|step| {
            let _ = write!(text, "\n    {step}");
        });
        text.push(')');
        // Print the whole report now, because the next calls may crash the machine.
        note(&text.replace('\n', "\n#"));
        let _ = writeln!(
            report,
            "{} (--seed {seed} --calls {})",
            difference.text,
            difference.at + 1
        );
    }
    note(&format!("{calls} calls on {rounds} sets of sockets"));
    if found.is_empty() {
        return Ok(());
    }
    let (family, local) = (format!("{:?}", env.family).to_lowercase(), env.local);
    let again = format!("selftest fuzz --family {family} --local {local} --once");
    failed(format!(
        "{} differences, each again with `{again}` and its seed: {report}",
        found.len()
    ))
}
