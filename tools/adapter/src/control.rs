// SPDX-License-Identifier: GPL-2.0
//! The control socket: counters, keys and faults on demand. A command is one line; the answer is
//! one line of JSON: the result, an empty object, or an object with an `error`.

use std::time::{Duration, Instant};

use clap::error::ErrorKind;
use clap::{Parser, Subcommand, ValueEnum};
use serde_json::{json, Value};

use crate::abi::queue::Status;
use crate::switch::{Kind, Slow, Switch};
use crate::units::{self, Rate};

/// Maximum length of a line.
pub const LONGEST: u64 = 1000;
/// Minimum time-out of queue pairs.
const LEAST_TIMEOUT: Duration = Duration::from_millis(1);
/// Maximum number of requests that one command makes fail.
const MOST: i64 = 1_000_000;

#[derive(Parser)]
#[command(no_binary_name = true, name = "")]
struct Line {
    #[command(subcommand)]
    command: Command,
}

/// The machine, from 1 on.
#[derive(clap::Args)]
struct Which {
    machine: usize,
}

#[derive(Subcommand)]
enum Command {
    /// All counters
    Counters,
    /// The keys of a machine that are valid
    Keys(Which),
    /// The faults of a machine
    Faults(Which),
    /// Whether anything passes a machine's link
    Link {
        #[command(flatten)]
        which: Which,
        state: LinkState,
    },
    /// Makes a machine's requests of a kind slow, from now on; 0s: no longer
    Delay {
        #[command(flatten)]
        which: Which,
        kind: Kind,
        #[arg(value_parser = units::time)]
        time: Duration,
    },
    /// Holds a machine's requests of a kind until they are released
    Hold {
        #[command(flatten)]
        which: Which,
        kind: Kind,
    },
    /// Releases what is held of a machine's requests
    Release(Which),
    /// Loses one of so many pieces that leave a machine, at random; 0: none
    Lose {
        #[command(flatten)]
        which: Which,
        every: u64,
    },
    /// Ends a machine's next requests of a kind with an error; 0 of them: no longer
    Fail {
        #[command(flatten)]
        which: Which,
        kind: Kind,
        status: Status,
        #[arg(default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=MOST))]
        count: u32,
    },
    /// How long a machine's queue pairs wait for an answer; 0s: as their drivers say
    Timeout {
        #[command(flatten)]
        which: Which,
        #[arg(value_parser = units::time)]
        time: Duration,
    },
    /// Whether a machine's peers find receives
    Receives {
        #[command(flatten)]
        which: Which,
        state: Receives,
    },
    /// Takes a machine's device away, or brings it back
    Device {
        #[command(flatten)]
        which: Which,
        state: DeviceState,
    },
    /// Bits per second that each machine's link carries from now on; 0: as fast as the host copies
    Rate {
        #[arg(value_parser = units::rate_or_none)]
        rate: Rate,
    },
    /// Ends all faults of a machine
    Clear(Which),
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LinkState {
    Up,
    Down,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Receives {
    Given,
    Held,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DeviceState {
    Present,
    Removed,
}

/// Executes a line; returns the answer.
pub fn obey(switch: &mut Switch, line: &str, now: Instant) -> Value {
    let done = match Line::try_parse_from(line.split_whitespace()) {
        Ok(line) => run(switch, &line.command, now),
        Err(help) if help.kind() == ErrorKind::DisplayHelp => {
            return json!({ "help": help.to_string() });
        }
        Err(error) => Err(in_one_line(&error.to_string())),
    };
    done.unwrap_or_else(|error| json!({ "error": error }))
}

/// clap's error message in one line, without the hints for a shell.
fn in_one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim);
    let wanted = lines.take_while(|line| !line.starts_with("For more information"));
    let words: Vec<_> = wanted.filter(|line| !line.is_empty()).collect();
    let text = words.join("; ");
    text.strip_prefix("error: ").unwrap_or(&text).to_owned()
}

fn run(switch: &mut Switch, command: &Command, now: Instant) -> Result<Value, String> {
    let machines = switch.machines();
    let index = |which: &Which| {
        let index = which.machine.checked_sub(1).filter(|n| *n < machines);
        index.ok_or_else(|| {
            format!(
                "there are machines 1 to {machines}, and no {}",
                which.machine
            )
        })
    };
    let to_json = |value: serde_json::Result<Value>| value.map_err(|e| e.to_string());
    match command {
        Command::Counters => return to_json(serde_json::to_value(switch.report())),
        Command::Keys(which) => {
            let machine = index(which)?;
            return to_json(serde_json::to_value(switch.device(machine).keys.live()));
        }
        Command::Faults(which) => {
            return to_json(serde_json::to_value(switch.faults(index(which)?)));
        }
        Command::Link { which, state } => {
            let down = *state == LinkState::Down;
            switch.change_faults(index(which)?, |faults| faults.link_down = down, now);
        }
        Command::Delay { which, kind, time } => {
            let slow = (!time.is_zero()).then_some(Slow::By(*time));
            set_slow(switch, index(which)?, *kind, slow, now)?;
        }
        Command::Hold { which, kind } => {
            set_slow(switch, index(which)?, *kind, Some(Slow::Held), now)?;
        }
        Command::Release(which) => {
            let release = |slow: &mut Vec<(Kind, Slow)>| slow.retain(|(_, s)| *s != Slow::Held);
            switch.change_faults(index(which)?, |faults| release(&mut faults.slow), now);
        }
        Command::Lose { which, every } => {
            let every = (*every > 0).then_some(*every);
            switch.change_faults(index(which)?, |faults| faults.lose_every = every, now);
        }
        Command::Fail {
            which,
            kind,
            status,
            count,
        } => {
            let (next, kind) = ((*kind, *status, *count), *kind);
            switch.change_faults(
                index(which)?,
                |faults| {
                    faults.fail.retain(|(k, ..)| *k != kind);
                    faults.fail.extend((next.2 > 0).then_some(next));
                },
                now,
            );
        }
        Command::Timeout { which, time } => {
            // The clock does not check more often.
            if !time.is_zero() && *time < LEAST_TIMEOUT {
                return Err(format!("a timeout is {LEAST_TIMEOUT:?} at least"));
            }
            let timeout = (!time.is_zero()).then_some(*time);
            switch.change_faults(index(which)?, |faults| faults.timeout = timeout, now);
        }
        Command::Receives { which, state } => {
            let held = *state == Receives::Held;
            switch.change_faults(index(which)?, |faults| faults.no_receives = held, now);
        }
        Command::Device { which, state } => {
            let removed = *state == DeviceState::Removed;
            switch.change_faults(index(which)?, |faults| faults.removed = removed, now);
        }
        Command::Rate { rate } => switch.set_rate(rate.0),
        Command::Clear(which) => {
            switch.change_faults(index(which)?, |faults| *faults = Default::default(), now);
        }
    }
    Ok(json!({}))
}

fn set_slow(
    switch: &mut Switch,
    machine: usize,
    kind: Kind,
    slow: Option<Slow>,
    now: Instant,
) -> Result<(), String> {
    if !kind.travels() {
        return Err("only Sends, Writes and Reads can be slow".into());
    }
    let change = |all: &mut Vec<(Kind, Slow)>| {
        all.retain(|(k, _)| *k != kind);
        all.extend(slow.map(|slow| (kind, slow)));
    };
    switch.change_faults(machine, |faults| change(&mut faults.slow), now);
    Ok(())
}
