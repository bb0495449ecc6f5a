// SPDX-License-Identifier: GPL-2.0
//! Runs each test in a process of its own, so that a test that hangs or dies
//! is one failure and not the end, and prints KTAP version 1.

use super::{Env, Fail, Outcome, Test};
use crate::sys::{self, Ended, Fork};
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

/// The time after which a test counts as hanging, times `--timeout-scale`.
const HANG_SECS: f64 = 60.0;

/// How the suite runs.
pub(crate) struct Options {
    /// Substrings of names; a test runs if it has one (or if there are none).
    pub(crate) patterns: Vec<String>,
    pub(crate) timeout_scale: f64,
    /// Print how long each test took.
    pub(crate) times: bool,
}

impl Options {
    pub(crate) fn wants(&self, test: &Test) -> bool {
        self.patterns.is_empty() || self.patterns.iter().any(|p| test.name.contains(p.as_str()))
    }
}

/// Runs the tests; returns whether all passed or were skipped.
pub(crate) fn run(tests: &[&Test], env: &Env, options: &Options) -> io::Result<bool> {
    let limit = Duration::from_secs_f64(HANG_SECS * options.timeout_scale);
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    print_line("KTAP version 1");
    print_line(&format!("1..{}", tests.len()));
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

/// Prints at once: the next thing may be a crash of the machine.
fn print_line(line: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}

fn one_line(text: &str) -> String {
    text.replace('\n', "; ")
}

fn run_one(test: &Test, env: &Env, limit: Duration) -> io::Result<Outcome> {
    let (report, sender) = UnixStream::pair()?;
    match sys::fork()? {
        Fork::Child => {
            drop(report);
            run_child(test, env, sender)
        }
        Fork::Parent(pid) => {
            drop(sender);
            let outcome = watch(pid, &report, limit);
            // The group: also what the test itself has started.
            let _ = sys::kill(-pid, libc::SIGKILL);
            reap(pid);
            outcome
        }
    }
}

/// The test's own process.
fn run_child(test: &Test, env: &Env, mut sender: UnixStream) -> ! {
    let _ = sys::own_group();
    let _ = sys::die_with_parent();
    std::panic::set_hook(Box::new(|_| {}));
    let result = std::panic::catch_unwind(AssertUnwindSafe(|| (test.run)(env)));
    let text = match result {
        Ok(Ok(())) => "p".to_owned(),
        Ok(Err(Fail::Skipped(why))) => format!("s{why}"),
        Ok(Err(Fail::Failed(why))) => format!("f{why}"),
        Err(panic) => format!("fpanic: {}", panic_text(panic.as_ref())),
    };
    let _ = sender.write_all(text.as_bytes());
    sys::exit_now(0);
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("of an unknown kind")
}

/// Reads the child's report, or says how it ended without one.
fn watch(pid: i32, mut report: &UnixStream, limit: Duration) -> io::Result<Outcome> {
    let deadline = Instant::now() + limit;
    let mut text = Vec::new();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            show_tasks(pid);
            let secs = limit.as_secs();
            return Ok(Err(Fail::Failed(format!("hangs (after {secs} s)"))));
        }
        let ms = left.as_millis().min(60_000) as i32 + 1;
        let seen = sys::poll_fds(&[(report.as_raw_fd(), libc::POLLIN)], ms)?;
        if seen.iter().all(|&e| e == 0) {
            continue;
        }
        let mut buf = [0; 4096];
        match report.read(&mut buf)? {
            0 => break,
            n => text.extend_from_slice(&buf[..n]),
        }
    }
    let text = String::from_utf8_lossy(&text).into_owned();
    Ok(match text.split_at_checked(1) {
        Some(("p", _)) => Ok(()),
        Some(("s", why)) => Err(Fail::Skipped(why.to_owned())),
        Some(("f", why)) => Err(Fail::Failed(why.to_owned())),
        _ => Err(Fail::Failed(match sys::wait_child(pid, true)? {
            Ended::Signal(signal) => format!("killed by signal {signal}"),
            ended => format!("ended without a result: {ended:?}"),
        })),
    })
}

/// Waits a while for a killed child; one that cannot be killed is left.
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

/// Prints where the threads of a hanging process are, as far as we may know.
fn show_tasks(pid: i32) {
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
