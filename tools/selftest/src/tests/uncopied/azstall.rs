// SPDX-License-Identifier: GPL-2.0
//! What programs may do to memory while they wait for seconds for its bytes. netem delays what this
//! machine sends to the peer's machine, and so also the requests for the bytes. Over the test
//! adapter the script that has started the tests delays Reads instead.

use super::azrecv::{settled, Expected, Incoming};
use super::disk::Disk;
use super::inflight::{in_child, Growth, Signal, LEN, SDP_ZCOPY_MODE, SOL_SDP};
use crate::support::counters::{changed, stat, stats};
use crate::support::flow::spawn;
use crate::support::harness::{
    differences, eventually, expect, expect_eq, expect_errno, failed, joined, note, skip,
    spawn_waiting, tests, Env, Fail, Outcome,
};
use crate::support::sys::{self, Ended, Fork, Pages, HUGE, PAGE};
use libc::{EAGAIN, MSG_DONTWAIT, MSG_NOSIGNAL, SO_RCVTIMEO};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

tests!("azstall";
    read_by_hundreds,
    forked_beside_a_lost_one,
    moved_beside_a_lost_one,
    killed_in_a_fork,
    killed_before_the_bytes,
    forked_for_long,
    forked_beside_an_unmap,
    forked_beside_a_pin,
    two_in_one_huge_page,
    written_back_meanwhile,
    reclaimed_meanwhile,
    beside_one_that_waits,
    send_beside_one_that_waits,
);

/// The network card that sends the packets of soft-RoCE to the other machine. netem can delay only
/// these: the packets of a hardware adapter do not go through the kernel's queues.
const DEVICE: &str = "eth0";

/// How long the module waits for bytes that a call has promised; then it ends the connection.
const LONGEST: Duration = Duration::from_secs(20);

/// Delays what goes to the peer's machine. The delay ends when the value is dropped.
struct Late {
    delay: Duration,
    /// The file that the script creates when it has changed the delay.
    done: Option<PathBuf>,
}

fn tc(words: &str) -> Outcome {
    let status = Command::new("tc").args(words.split(' ')).status()?;
    expect(status.success(), format!("tc {words}"))
}

impl Late {
    fn new(env: &Env, delay: Duration) -> Result<Late, Fail> {
        if env.local == env.remote {
            return skip("the peer is in this machine");
        }
        // The acknowledgements are late, too, and the window of TCP may not hold all bytes.
        if 2 * delay > LONGEST && differences::over_iwarp(env.family) {
            return skip("with iWARP, the bytes may be late twice, longer than the module waits");
        }
        let done = env.delays.clone();
        if done.is_none() {
            if env.network_card()? != DEVICE {
                return skip("netem does not delay what the adapter sends");
            }
            tc(&format!(
                "qdisc replace dev {DEVICE} root netem limit 100000"
            ))?;
        }
        Ok(Late { delay, done })
    }

    fn set(&self, delay: Duration, is_set: &AtomicBool) -> Outcome {
        let ms = delay.as_millis();
        match &self.done {
            Some(file) => {
                if file.exists() {
                    fs::remove_file(file)?;
                }
                note(&format!("delay Reads by {ms}ms"));
                eventually("the delay", || Ok(file.exists()), |done| *done)?;
            }
            None => tc(&format!(
                "qdisc change dev {DEVICE} root netem delay {ms}ms limit 100000"
            ))?,
        }
        is_set.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Sets the delay, and receives until a call has returned whose bytes are late.
    fn receive(&self, incoming: &mut Incoming<'_>, pages: Pages) -> Result<Expected, Fail> {
        let is_set = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let setting = scope.spawn(|| self.set(self.delay, &is_set));
            let got = receive_late(incoming, pages, &is_set);
            done(setting.join())?;
            got
        })
    }

    /// As [`Late::receive`] for two connections at the same time, each with a part of the memory.
    fn receive_two(
        &self,
        one: &mut Incoming<'_>,
        other: &mut Incoming<'_>,
        memory: Pages,
    ) -> Result<(Expected, Expected), Fail> {
        for _ in 0..5 {
            let is_set = AtomicBool::new(false);
            let (first, second) = std::thread::scope(|scope| {
                let first = scope.spawn(|| receive_late(one, memory.part(0, LEN), &is_set));
                let setting = scope.spawn(|| self.set(self.delay, &is_set));
                let second = receive_late(other, memory.part(LEN, LEN), &is_set);
                done(setting.join())?;
                Ok::<_, Fail>((done(first.join())?, second?))
            })?;
            if !first.is_there()? && !second.is_there()? {
                return Ok((first, second));
            }
            // The bytes of one connection came before the bytes of the other one were requested.
            self.over()?;
            first.check()?;
            second.check()?;
        }
        skip("no two calls have returned early: this machine is too slow")
    }

    /// Ends the delay for what is sent from now on.
    fn over(&self) -> Outcome {
        self.set(Duration::ZERO, &AtomicBool::new(false))
    }
}

impl Drop for Late {
    fn drop(&mut self) {
        let _ = match self.done {
            Some(_) => self.over(),
            None => tc(&format!("qdisc del dev {DEVICE} root")),
        };
    }
}

/// Receives until a call has returned whose bytes do not come soon. The calls follow each other at
/// once, because otherwise the module would read the bytes into its own memory.
fn receive_late(
    incoming: &mut Incoming<'_>,
    pages: Pages,
    is_late: &AtomicBool,
) -> Result<Expected, Fail> {
    const SOON: Duration = Duration::from_millis(100);
    let before = stats(incoming.env)?;
    let limit = Instant::now() + Duration::from_secs(40);
    while Instant::now() < limit {
        let expected = incoming.take(pages, 0)?;
        if is_late.load(Ordering::Relaxed) && !expected.is_there()? {
            std::thread::sleep(SOON);
            if !expected.is_there()? {
                return Ok(expected);
            }
        }
        expected.check()?;
    }
    let changed = changed(incoming.env, &before)?;
    skip(format!("no call has returned early; counters: {changed}"))
}

fn done<T>(joined: std::thread::Result<Result<T, Fail>>) -> Result<T, Fail> {
    joined.unwrap_or_else(|_| failed("a thread panics"))
}

/// Hundreds of threads wait for one page, one after the other. None of them sees the previous
/// content.
fn read_by_hundreds(env: &Env) -> Outcome {
    const THREADS: usize = 256;
    let late = Late::new(env, Duration::from_secs(5))?;
    let mut incoming = Incoming::endless(env)?;
    let got = late.receive(&mut incoming, Pages::new(LEN, false)?)?;
    let last = got.part(got.pages.len() - PAGE, PAGE);
    let waits = Growth::of(env, "absent_waits")?;
    let threads: Vec<_> = (0..THREADS)
        .map(|_| spawn(move || last.holds()))
        .collect::<Result<_, _>>()?;
    let mut wrong = 0;
    for thread in threads {
        wrong += u32::from(!joined(thread)?);
    }
    late.over()?;
    expect_eq(wrong, 0, "threads that have seen other bytes")?;
    got.check()?;
    incoming.leave()?;
    waits.at_least(THREADS as u64 / 2)
}

/// Calls `act` while the bytes of two connections are on their way to the same memory. Meanwhile
/// the first connection, whose bytes are for the start of the memory, is lost. `act` gets the
/// memory and the expected bytes of the other connection.
fn beside_a_lost_one(env: &Env, act: impl FnOnce(Pages, Expected) -> Outcome) -> Outcome {
    let late = Late::new(env, Duration::from_secs(2))?;
    let all = Pages::new(2 * LEN, false)?;
    let mut lost = Incoming::endless(env)?;
    let mut other = Incoming::endless(env)?;
    let (_, got) = late.receive_two(&mut lost, &mut other, all)?;
    // The request to end must reach the peer without a delay.
    late.over()?;
    let sender = lost.sender();
    let end = spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        sender.die()
    })?;
    let outcome = act(all, got);
    joined(end)??;
    drop(lost);
    outcome?;
    other.leave()
}

/// A fork waits for all bytes that are on their way, also if the connection for whose bytes it
/// waits is lost meanwhile.
fn forked_beside_a_lost_one(env: &Env) -> Outcome {
    beside_a_lost_one(env, |_, got| {
        let began = Instant::now();
        let child = match sys::fork()? {
            Fork::Child => sys::exit_now(i32::from(!got.holds())),
            Fork::Parent(pid) => pid,
        };
        let took = began.elapsed();
        let held = got.holds();
        let ended = sys::wait_child(child, true)?;
        expect(held, format!("other bytes after a fork of {took:?}"))?;
        expect_eq(ended, Ended::Exit(0), "the child")
    })
}

/// mremap() waits in the same way: the bytes arrive in the pages, wherever these are mapped.
fn moved_beside_a_lost_one(env: &Env) -> Outcome {
    let place = Pages::new(2 * LEN, false)?;
    beside_a_lost_one(env, |all, got| {
        let began = Instant::now();
        all.move_to(place)?;
        let took = began.elapsed();
        let moved = got.at(place.part(LEN, got.pages.len()));
        expect(
            moved.holds(),
            format!("other bytes after mremap() of {took:?}"),
        )
    })
}

/// This process has the thread-local variables of another one. Therefore it makes only a system
/// call before it ends.
extern "C" fn fork_once(_: *mut libc::c_void) -> i32 {
    i32::from(!sys::fork_without_handlers())
}

/// A process that shares the memory is killed while it forks. The connection is aborted for its
/// sake, and the pages are cleared: nobody sees the previous content.
fn killed_in_a_fork(env: &Env) -> Outcome {
    let late = Late::new(env, Duration::from_secs(4))?;
    let mut incoming = Incoming::endless(env)?;
    let pages = Pages::new(LEN, false)?;
    pages.touch(1);
    let child = in_child(|| {
        let got = late
            .receive(&mut incoming, pages)
            .map_err(|_| io::ErrorKind::TimedOut)?;
        let forks = sys::clone_with_memory(fork_once)?;
        std::thread::sleep(Duration::from_millis(200));
        sys::kill(forks, libc::SIGKILL)?;
        std::thread::sleep(Duration::from_millis(100));
        let is_cleared = || got.pages.read(0, got.pages.len()).iter().all(|b| *b == 0);
        Ok(got.holds() || is_cleared())
    })?;
    let ended = sys::wait_child(child, true)?;
    drop(late);
    drop(incoming);
    settled(env)?;
    match ended {
        Ended::Signal(libc::SIGSEGV) | Ended::Exit(0) => Ok(()),
        // in_child() reports an error in this way.
        Ended::Exit(2) => skip("no call has returned early: this machine is too slow"),
        ended => failed(format!("the program ended with {ended:?}")),
    }
}

/// A program that is killed ends at once, and does not wait for the bytes.
fn killed_before_the_bytes(env: &Env) -> Outcome {
    const DELAY: Duration = Duration::from_secs(8);
    let late = Late::new(env, DELAY)?;
    let mut incoming = Incoming::endless(env)?;
    let pages = Pages::new(LEN, false)?;
    pages.touch(1);
    let ready = Signal::new()?;
    let child = in_child(|| {
        let got = late.receive(&mut incoming, pages);
        ready.give()?;
        got.map_err(|_| io::ErrorKind::TimedOut)?;
        std::thread::sleep(2 * DELAY);
        Ok(false)
    })?;
    ready.await_it()?;
    // Only the child has the socket from now on.
    drop(incoming);
    let began = Instant::now();
    sys::kill(child, libc::SIGKILL)?;
    let ended = sys::wait_child(child, true)?;
    let took = began.elapsed();
    drop(late);
    if ended == Ended::Exit(2) {
        return skip("no call has returned early: this machine is too slow");
    }
    expect(
        took < DELAY / 2,
        format!("the program ended after {took:?}"),
    )?;
    settled(env)
}

/// The longest time that a fork may take: the limit of the module, the second between two of its
/// checks, and some time for a slow machine.
const MOST: Duration = Duration::from_secs(9);

/// A fork waits for a thread that unmaps memory whose bytes are late, because the thread holds the
/// lock of the address space. This fork blocks all other forks, too, while a uprobe is registered.
fn forked_beside_an_unmap(env: &Env) -> Outcome {
    forked_beside(env, Pages::unmap)
}

/// As above, for a thread that takes references to the pages: it repeats the fault without releasing
/// the lock.
fn forked_beside_a_pin(env: &Env) -> Outcome {
    let (_from_pipe, to_pipe) = sys::pipe()?;
    sys::set_pipe_size(to_pipe.as_raw_fd(), LEN)?;
    forked_beside(env, move |pages| {
        // Without the connection, the pages have other bytes.
        pages.give_to_pipe(to_pipe.as_raw_fd(), pages.len())?;
        Ok(())
    })
}

/// Forks while `holds` waits for bytes that are late and keeps the lock of the address space.
fn forked_beside(
    env: &Env,
    holds: impl FnOnce(Pages) -> io::Result<()> + Send + 'static,
) -> Outcome {
    let late = Late::new(env, MOST + Duration::from_secs(2))?;
    let mut incoming = Incoming::endless(env)?;
    let got = late.receive(&mut incoming, Pages::new(LEN, false)?)?;
    let pages = got.pages;
    let holding = spawn(move || holds(pages))?;
    std::thread::sleep(Duration::from_millis(300));
    let began = Instant::now();
    let child = in_child(|| Ok(true))?;
    let took = began.elapsed();
    expect_eq(sys::wait_child(child, true)?, Ended::Exit(0), "the child")?;
    joined(holding)??;
    drop(late);
    drop(incoming);
    settled(env)?;
    expect(
        (Duration::from_secs(1)..MOST).contains(&took),
        format!("the fork took {took:?}"),
    )
}

/// A fork that waits for bytes blocks all other forks while a uprobe is registered, but not for
/// long.
fn forked_for_long(env: &Env) -> Outcome {
    const PROBES: &str = "/sys/kernel/tracing/uprobe_events";
    const ENABLE: &str = "/sys/kernel/tracing/events/sdp/fork/enable";
    if !fs::exists(PROBES)? {
        return skip("no uprobes: the kernel has none, or tracefs is not mounted");
    }
    let late = Late::new(env, MOST + Duration::from_secs(2))?;
    let mut incoming = Incoming::endless(env)?;
    // These children are started before any page is taken away: otherwise their own forks would
    // wait.
    let (start_probe, start_other) = (Signal::new()?, Signal::new()?);
    let probe = in_child(|| {
        start_probe.await_it()?;
        std::thread::sleep(Duration::from_millis(300));
        // The file is opened for appending, because it may contain events of others.
        let mut probes = OpenOptions::new().append(true).open(PROBES)?;
        probes.write_all(b"p:sdp/fork /bin/busybox:0x1000")?;
        let began = Instant::now();
        fs::write(ENABLE, "1")?;
        let took = began.elapsed();
        fs::write(ENABLE, "0")?;
        probes.write_all(b"-:sdp/fork")?;
        // If the registration was faster, it did not wait, and blocked no fork.
        Ok((Duration::from_secs(1)..MOST).contains(&took))
    })?;
    let other = in_child(|| {
        start_other.await_it()?;
        std::thread::sleep(Duration::from_secs(1));
        let began = Instant::now();
        let child = in_child(|| Ok(true))?;
        sys::wait_child(child, true)?;
        Ok(began.elapsed() < MOST)
    })?;
    late.receive(&mut incoming, Pages::new(LEN, false)?)?;
    start_probe.give()?;
    start_other.give()?;
    let began = Instant::now();
    let child = in_child(|| Ok(true))?;
    let took = began.elapsed();
    expect(took < MOST, format!("the fork took {took:?}"))?;
    for (child, what) in [
        (child, "the child"),
        (other, "another one's fork"),
        (probe, "the probe"),
    ] {
        expect_eq(sys::wait_child(child, true)?, Ended::Exit(0), what)?;
    }
    drop(late);
    drop(incoming);
    settled(env)?;
    expect(
        took > Duration::from_secs(1),
        format!("the fork did not wait: {took:?}"),
    )
}

/// The module's own pins of pages of one huge page are not taken for foreign ones.
fn two_in_one_huge_page(env: &Env) -> Outcome {
    let late = Late::new(env, Duration::from_secs(2))?;
    let all = Pages::new(HUGE, true)?;
    let mut one = Incoming::endless(env)?;
    let mut other = Incoming::endless(env)?;
    let (early, refused) = (
        stat(env, "read_early")?,
        stat(env, "by_copy_NotProtectable")?,
    );
    let (first, second) = late.receive_two(&mut one, &mut other, all)?;
    let early = stat(env, "read_early")? - early;
    let refused = stat(env, "by_copy_NotProtectable")? - refused;
    first.check()?;
    second.check()?;
    late.over()?;
    one.leave()?;
    other.leave()?;
    // A page may be locked at that moment, so some refusals are possible. If the module's own pins
    // were taken for foreign ones, each early return would come with a refusal.
    expect(
        2 * refused < early,
        format!("{early} receives returned early, {refused} were refused"),
    )
}

/// A file that the program has mapped is written back while bytes are on their way to other memory
/// of the program. The kernel removes write access to the file's pages, as a fork does for private
/// pages, but holds locks of the file system: so this must not wait for the bytes.
fn written_back_meanwhile(env: &Env) -> Outcome {
    let Some(disk) = Disk::new()? else {
        return skip("no zram here");
    };
    let late = Late::new(env, Duration::from_secs(3))?;
    let file = disk.file()?;
    let mapped = Pages::of_file(file, PAGE)?;
    let mut incoming = Incoming::endless(env)?;
    let got = late.receive(&mut incoming, Pages::new(LEN, false)?)?;
    mapped.touch(7);
    let began = Instant::now();
    file.sync_all()?;
    let (took, has_waited) = (began.elapsed(), got.is_there()?);
    mapped.unmap()?;
    late.over()?;
    got.check()?;
    incoming.leave()?;
    expect(
        !has_waited,
        format!("fsync() waited {took:?} for bytes that come elsewhere"),
    )
}

/// The kernel looks for memory that it can free, and moves pages, while bytes are on their way. A
/// thread that does this must not wait for the bytes, and the bytes are not lost.
fn reclaimed_meanwhile(env: &Env) -> Outcome {
    let Some(disk) = Disk::new()? else {
        return skip("no zram here");
    };
    let late = Late::new(env, Duration::from_secs(4))?;
    let _swap = disk.swap()?;
    let other = Pages::new(LEN, false)?;
    other.touch(1);
    let mut incoming = Incoming::endless(env)?;
    let pages = Pages::new(LEN, false)?;
    let got = late.receive(&mut incoming, pages)?;
    let began = Instant::now();
    for _ in 0..3 {
        pages.advise(sys::MADV_COLD)?;
        pages.advise(sys::MADV_PAGEOUT)?;
        other.advise(sys::MADV_PAGEOUT)?;
        // These files need not exist, and a write fails if too little was found.
        let _ = fs::write("/sys/devices/system/node/node0/reclaim", "1M");
        let _ = fs::write("/proc/sys/vm/compact_memory", "1");
        let _ = fs::write("/proc/self/clear_refs", "1");
    }
    let (took, has_waited) = (began.elapsed(), got.is_there()?);
    let status = fs::read_to_string("/proc/self/status")?;
    let swapped = status.lines().find(|line| line.starts_with("VmSwap:"));
    let has_swapped = swapped.is_some_and(|line| !line.contains("\t       0 kB"));
    late.over()?;
    got.check()?;
    incoming.leave()?;
    expect(has_swapped, format!("no page was swapped out: {swapped:?}"))?;
    expect(
        !has_waited,
        format!("freeing memory waited {took:?} for bytes"),
    )
}

/// A receive waits for bytes that are on their way to its buffer. A receive of another thread on
/// the same socket that must not wait, or not for long, does not wait for the first one.
fn beside_one_that_waits(env: &Env) -> Outcome {
    const MOST: Duration = Duration::from_secs(1);
    let late = Late::new(env, Duration::from_secs(4))?;
    let pages = Pages::new(LEN, false)?;
    for _ in 0..2 {
        let mut incoming = Incoming::endless(env)?;
        let first = late.receive(&mut incoming, pages)?;
        let (sock, other) = (incoming.socket()?, incoming.socket()?);
        let again = spawn_waiting(move || {
            // SAFETY: no reference to the pages exists.
            unsafe { other.recv_raw(pages.at(0), pages.len(), 0) }
        })?;
        let mut results = Vec::new();
        for (flags, ms) in [(MSG_DONTWAIT, 0), (0, 200)] {
            sock.set_timeout(SO_RCVTIMEO, ms)?;
            let began = Instant::now();
            results.push((sock.recv(&mut [0; 100], flags), began.elapsed()));
        }
        let is_late = !first.is_there()?;
        late.over()?;
        let n = joined(again)??;
        let took: Vec<_> = results.iter().map(|(_, took)| *took).collect();
        expect(
            is_late && took.iter().all(|took| *took < MOST),
            format!("receives beside one that waits have waited {took:?}"),
        )?;
        for (result, _) in results {
            expect_errno(result, EAGAIN, "a receive beside one that waits")?;
        }
        first.behind(pages.part(0, n)).check()?;
        incoming.leave()?;
    }
    Ok(())
}

/// An asynchronous send waits for bytes that are on their way to its memory, over another
/// connection. A send of another thread on the same socket that must not wait does not wait for the
/// first one.
fn send_beside_one_that_waits(env: &Env) -> Outcome {
    const MOST: Duration = Duration::from_secs(1);
    let (sock, _remote) = env.pair()?;
    sock.set_int(SOL_SDP, SDP_ZCOPY_MODE, 3)?;
    let late = Late::new(env, Duration::from_secs(4))?;
    let pages = Pages::new(LEN, false)?;
    let mut incoming = Incoming::endless(env)?;
    let got = late.receive(&mut incoming, pages)?;
    let first = {
        let sock = sock.dup()?;
        spawn_waiting(move || sock.send_raw(pages.at(0), pages.len(), MSG_NOSIGNAL))?
    };
    let began = Instant::now();
    let result = sock.send(&[0], MSG_DONTWAIT | MSG_NOSIGNAL);
    let (took, is_late) = (began.elapsed(), !got.is_there()?);
    late.over()?;
    let sent = joined(first)??;
    incoming.leave()?;
    expect(
        is_late && took < MOST,
        format!("a send beside one that waits has waited {took:?}"),
    )?;
    expect_errno(result, EAGAIN, "the other send")?;
    expect_eq(sent, pages.len(), "sent when the bytes had come")
}
