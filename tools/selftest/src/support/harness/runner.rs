// SPDX-License-Identifier: GPL-2.0
//! Runs each test in its own process and prints KTAP version 1. A test that hangs or dies is one
//! failure and does not end the run.

use super::{Child, Env, Fail, Outcome, Test};
use crate::support::sys::{self, Ended};
use std::fs;
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// The time after which a test counts as hanging, to be multiplied by `--timeout-scale`.
const HANG_SECS: f64 = 60.0;

/// The options of a run of the suite.
pub(crate) struct Options {
    /// Substrings of test names. A test runs if its name contains one of them, or if the list is
    /// empty.
    pub(crate) patterns: Vec<String>,
    /// Whether the patterns are whole names.
    pub(crate) exact: bool,
    /// Whether to print how long each test took.
    pub(crate) times: bool,
}

impl Options {
    pub(crate) fn wants(&self, test: &Test) -> bool {
        let has = |p: &String| match self.exact {
            true => test.name == p,
            false => test.name.contains(p.as_str()),
        };
        self.patterns.is_empty() || self.patterns.iter().any(has)
    }
}

/// Runs the tests; returns whether each test passed or was skipped.
pub(crate) fn run(tests: &[&Test], env: &Env, options: &Options) -> io::Result<bool> {
    let limit = Duration::from_secs_f64(HANG_SECS * env.timeout_scale)
        + env.random_time.unwrap_or_default();
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    print_line("KTAP version 1");
    print_line(&format!("1..{}", tests.len()));
    print_line(&format!(
        "# {:?}, {} to {}, scale {}, seed {}",
        env.family, env.local, env.remote, env.scale, env.seed
    ));
    for (i, test) in tests.iter().enumerate() {
        let start = Instant::now();
        let outcome = run_one(test, env, limit)?;
        let (number, name) = (i + 1, test.name);
        if options.times {
            print_line(&format!("# {name}: {} ms", start.elapsed().as_millis()));
        }
        match outcome {
            Ok(()) => {
                passed += 1;
                print_line(&format!("ok {number} {name}"));
            }
            Err(Fail::Skipped(why)) => {
                skipped += 1;
                print_line(&format!("ok {number} {name} # SKIP {}", one_line(&why)));
            }
            Err(Fail::Failed(why)) => {
                failed += 1;
                print_line(&format!("not ok {number} {name} # {}", one_line(&why)));
            }
        }
    }
    print_line(&format!(
        "# {passed} passed, {failed} failed, {skipped} skipped"
    ));
    Ok(failed == 0)
}

/// Prints a note, such as the progress of a long test.
pub(crate) fn note(text: &str) {
    print_line(&format!("# {text}"));
}

/// Prints a line and flushes it, because the machine may crash next.
fn print_line(line: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}

fn one_line(text: &str) -> String {
    text.replace('\n', "; ")
}

fn run_one(test: &Test, env: &Env, limit: Duration) -> io::Result<Outcome> {
    let child = Child::start(|| {
        let _ = sys::own_group();
        (test.run)(env)
    })?;
    let outcome = match child.outcome_within(limit)? {
        Some(outcome) => outcome,
        None => {
            show_tasks(child.pid);
            let secs = limit.as_secs();
            Err(Fail::Failed(format!("hangs (after {secs} s)")))
        }
    };
    // Kill the group, which includes the processes that the test has started.
    let _ = sys::kill(-child.pid, libc::SIGKILL);
    reap(child.pid);
    Ok(outcome)
}

/// Waits a few seconds for a killed child. If the child does not end, it is left alone.
fn reap(pid: i32) {
    for _ in 0..100 {
        match sys::wait_child(pid, false) {
            Ok(Ended::Running) => std::thread::sleep(Duration::from_millis(50)),
            _ => return,
        }
    }
    print_line(&format!("# process {pid} cannot be killed"));
    show_tasks(pid);
}

/// Prints where the threads of a process sleep, as far as /proc tells.
pub(crate) fn show_tasks(pid: i32) {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return;
    };
    for task in tasks.flatten() {
        let read = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let id = task.file_name();
        let call = read("syscall");
        print_line(&format!(
            "# thread {} in {} (system call {})",
            id.to_string_lossy(),
            read("wchan"),
            call.split_whitespace().next().unwrap_or("?")
        ));
        for line in read("stack").lines() {
            print_line(&format!("#   {line}"));
        }
    }
}
