// SPDX-License-Identifier: GPL-2.0
//! Threads that make any calls on the same few sockets, and change the memory of these calls in any
//! way. Beside them, a stream has one writer and one reader, and other threads make calls on its
//! sockets that must not change a byte.

use super::making::{Maker, Use};
use super::room::Memory;
use super::world::{World, PAIRS};
use crate::support::counters::stat;
use crate::support::flow::{spawn, Span};
use crate::support::harness::{
    eventually, expect, expect_eq, failed, joined, note, show_tasks, Child, Env, Fail, Family,
    Outcome,
};
use crate::support::pattern::{Pattern, Rng};
use crate::support::sys::{self, Fork, Pages, Sock};
use crate::tests::uncopied::{azabuse, inflight};
use libc::{EAGAIN, ECONNRESET, EINTR, EPIPE, ETIMEDOUT, MSG_DONTWAIT, MSG_NOSIGNAL, MSG_WAITALL};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use uapi::socket::{SDP_ZCOPY_MODE, SDP_ZCOPY_THRESH, SOL_SDP};

/// The time in milliseconds after which a call counts as hanging. Each single wait in a call lasts
/// a second at most.
const HANGS: u64 = 40_000;
/// The time limit of connect() and of sends, in milliseconds.
const WAIT: i64 = 100;
/// How long a stream may be without progress before it counts as stuck, and before a TCP stream is
/// given up, because options may have slowed it down.
const STUCK: Duration = Duration::from_secs(40);
const SLOW: Duration = Duration::from_millis(500);
/// The maximum number of bytes of a call of a stream.
const LEN: usize = 1 << 17;

/// The call that a thread makes.
struct Busy {
    since: AtomicU64,
    with: Mutex<String>,
}

/// The data that all threads share.
struct Shared {
    env: Env,
    began: Instant,
    ends: Instant,
    calls: AtomicU64,
    /// The number of bytes that streams have carried.
    carried: AtomicU64,
    busy: Vec<Busy>,
}

impl Shared {
    /// A slow machine may need longer than the time of the test for its first stream.
    fn goes_on(&self) -> bool {
        let late = match self.carried.load(Ordering::Relaxed) {
            0 => STUCK,
            _ => Duration::ZERO,
        };
        Instant::now() < self.ends + late
    }

    fn begin(&self, thread: usize, what: &str) {
        let busy = &self.busy[thread];
        if let Ok(mut with) = busy.with.lock() {
            what.clone_into(&mut with);
        }
        let now = self.began.elapsed().as_millis() as u64;
        busy.since.store(now + 1, Ordering::Relaxed);
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    fn end(&self, thread: usize) {
        self.busy[thread].since.store(0, Ordering::Relaxed);
    }

    /// The name of a call that lasts too long.
    fn hanging(&self) -> Option<String> {
        let now = self.began.elapsed().as_millis() as u64;
        self.busy.iter().find_map(|busy| {
            let since = busy.since.load(Ordering::Relaxed);
            let hangs = since != 0 && now > since + HANGS;
            hangs.then(|| busy.with.lock().map_or(String::new(), |with| with.clone()))
        })
    }
}

pub(super) fn run(env: &Env, time: Duration, threads: usize) -> Outcome {
    let _allowed = crate::tests::connecting::fastopen::allowed(env)?;
    let before = Held::now(env)?;
    let of_child = env.clone();
    Child::start(move || chaos(&of_child, time, threads))?.join()?;
    before.is_given_back(env)
}

/// The number of sockets that the module has, and of illegal transitions that it has counted.
struct Held {
    sockets: u64,
    illegal: u64,
}

impl Held {
    fn now(env: &Env) -> Result<Held, Fail> {
        let sockets = match env.family {
            Family::Sdp => std::fs::read_to_string("/proc/net/sdp")?.lines().count() as u64,
            Family::Tcp => 0,
        };
        let illegal = stat(env, "illegal_transition")?;
        Ok(Held { sockets, illegal })
    }

    fn is_given_back(&self, env: &Env) -> Outcome {
        let sockets = || Ok(Held::now(env).map_or(u64::MAX, |held| held.sockets));
        eventually("sockets", sockets, |&n| n <= self.sockets)?;
        let pinned = || Ok(stat(env, "pinned_bytes")?.saturating_sub(stat(env, "unpinned_bytes")?));
        eventually("pinned bytes", pinned, |&n| n == 0)?;
        inflight::settled(env)?;
        expect_eq(Held::now(env)?.illegal, self.illegal, "illegal transitions")
    }
}

extern "C" fn nothing(_: libc::c_int) {}

fn chaos(env: &Env, time: Duration, threads: usize) -> Outcome {
    sys::ignore_signal(libc::SIGIO);
    sys::ignore_signal(libc::SIGURG);
    sys::install_handler(libc::SIGALRM, nothing, false)?;
    note(&format!("seed {}", env.seed));
    let watchers = 2;
    let busy = (0..threads + watchers + 2).map(|_| Busy {
        since: AtomicU64::new(0),
        with: Mutex::default(),
    });
    let began = Instant::now();
    let shared = Arc::new(Shared {
        env: env.clone(),
        began,
        ends: began + time,
        calls: AtomicU64::new(0),
        carried: AtomicU64::new(0),
        busy: busy.collect(),
    });
    let memory = Memory::new()?;
    let world = Arc::new(World::new(env, WAIT, any_mode(env, env.seed))?);
    let stream = Arc::new(World::new(env, WAIT, any_mode(env, env.seed + 1))?);
    sys::alarm_every(3)?;
    let mut running = Vec::new();
    for thread in 0..threads + watchers {
        let (shared, memory) = (shared.clone(), memory.for_a_thread()?);
        let (world, purpose) = match thread < threads {
            true => (world.clone(), Use::Threads),
            false => (stream.clone(), Use::Watching),
        };
        running.push(spawn(move || {
            call_at_random(&shared, &world, memory, purpose, thread);
            Ok(())
        })?);
    }
    let (of_streams, number) = (shared.clone(), threads + watchers);
    running.push(spawn(move || streams(&of_streams, &stream, number))?);
    let mut said = Instant::now();
    while running.iter().any(|thread| !thread.is_finished()) {
        std::thread::sleep(Duration::from_millis(20));
        if said.elapsed() > Duration::from_secs(20) {
            said = Instant::now();
            note(&format!("{} calls", shared.calls.load(Ordering::Relaxed)));
        }
        if let Some(what) = shared.hanging() {
            show_tasks(sys::pid());
            return failed(format!("a call hangs: {what}"));
        }
    }
    sys::alarm_every(0)?;
    note(&format!("{} calls", shared.calls.load(Ordering::Relaxed)));
    for thread in running {
        joined(thread)??;
    }
    Ok(())
}

/// Prepares a socket to send in one of the modes, with a small threshold.
fn any_mode(env: &Env, seed: u64) -> impl Fn(&Sock) -> io::Result<()> {
    let (family, mode) = (env.family, (seed % 5) as i32);
    move |sock| match family {
        Family::Sdp => {
            sock.set_int(SOL_SDP, SDP_ZCOPY_THRESH, 16384)?;
            sock.set_int(SOL_SDP, SDP_ZCOPY_MODE, mode)
        }
        Family::Tcp => Ok(()),
    }
}

fn call_at_random(shared: &Shared, world: &World, memory: Memory, purpose: Use, thread: usize) {
    let seed = shared.env.seed.wrapping_mul(100) + thread as u64;
    let mut maker = Maker::new(seed, purpose);
    let mut rng = Rng::new(seed ^ 0x5eed);
    while shared.goes_on() {
        let call = maker.call();
        shared.begin(thread, &call.name);
        let _ = world.call(&call, memory);
        match rng.below(200) {
            // Sockets that were closed, shut down, or disconnected would stay so forever.
            0..3 if purpose == Use::Threads => {
                shared.begin(thread, "new sockets");
                let mode = any_mode(&shared.env, rng.next());
                let _ = world.renew(&PAIRS, &mode);
            }
            3 => {
                if let Ok(Fork::Parent(pid)) = fork() {
                    let _ = sys::wait_child(pid, true);
                }
            }
            _ => {}
        }
        shared.end(thread);
    }
}

/// Forks a process that has a copy of all the memory and ends at once.
fn fork() -> io::Result<Fork> {
    match sys::fork()? {
        Fork::Child => sys::exit_now(0),
        parent @ Fork::Parent(_) => Ok(parent),
    }
}

/// Runs one stream after the other, in the slots that other threads watch.
fn streams(shared: &Shared, world: &World, thread: usize) -> Outcome {
    let mut rng = Rng::new(shared.env.seed ^ 0x57ea);
    let pages = || -> Result<[Pages; 3], Fail> {
        Ok([
            Pages::new(LEN, false)?,
            Pages::new(LEN, false)?,
            Pages::new(LEN, false)?,
        ])
    };
    let [from, spare, to] = pages()?;
    let (mut whole, mut count) = (0, 0);
    while shared.goes_on() {
        shared.begin(thread, "a new stream");
        let made = world.stream(PAIRS[0], &any_mode(&shared.env, rng.next()));
        shared.end(thread);
        // This fails, for example, if the kernel has no memory for it.
        let Ok([one, other]) = made else { continue };
        let seed = rng.next();
        let stream = Stream {
            shared,
            seed,
            sent: AtomicU64::new(0),
            written: AtomicBool::new(false),
        };
        let (written, read) = std::thread::scope(|scope| {
            let writer = scope.spawn(|| stream.write(&one, thread, from, spare));
            let read = stream.read(&other, thread + 1, to);
            (writer.join(), read)
        });
        if !matches!(written, Ok(Ok(()))) {
            return failed(format!("writing: {written:?}"));
        }
        let (received, complete) = read?;
        shared.carried.fetch_add(received, Ordering::Relaxed);
        whole += u64::from(complete);
        count += 1;
    }
    let bytes = shared.carried.load(Ordering::Relaxed);
    note(&format!(
        "{count} streams of {bytes} bytes, {whole} of them complete"
    ));
    expect(bytes > 0, "no stream has carried anything")
}

/// Whether an error is the end of the connection. An option that another thread sets may end it.
fn is_end(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(ECONNRESET | ETIMEDOUT | EPIPE))
}

/// A connection with one writer and one reader.
struct Stream<'a> {
    shared: &'a Shared,
    seed: u64,
    /// The number of bytes that the reader may receive.
    sent: AtomicU64,
    written: AtomicBool,
}

impl Stream<'_> {
    fn write(&self, sock: &Sock, thread: usize, pages: Pages, spare: Pages) -> Outcome {
        let mut rng = Rng::new(self.seed ^ 1);
        let calls = rng.below(40);
        let result = (0..calls).try_for_each(|_| {
            let at = self.sent.load(Ordering::Relaxed);
            let len = rng.length(LEN);
            pages.write(0, &Span::new(self.seed, at, len as u64).to_vec());
            let flags = MSG_NOSIGNAL | [0, 0, MSG_DONTWAIT][rng.below(3)];
            self.sent.store(at + len as u64, Ordering::Relaxed);
            self.shared.begin(thread, "a send of the stream");
            let result = sock.send_raw(pages.at(0), len, flags);
            self.shared.end(thread);
            let n = match result {
                Ok(n) => n,
                Err(e) if matches!(e.raw_os_error(), Some(EAGAIN | EINTR)) => 0,
                Err(e) => return Err(e),
            };
            self.sent.store(at + n as u64, Ordering::Relaxed);
            match azabuse::abuse(pages, spare, &mut rng) {
                Err(e) if e.raw_os_error() == Some(EINTR) => Ok(()),
                result => result,
            }
        });
        self.written.store(true, Ordering::Release);
        let _ = sock.shutdown(libc::SHUT_WR);
        // An option may end the connection. The bytes that were received are checked nevertheless.
        match result {
            Err(e) if !is_end(&e) => failed(format!("a send: {e}")),
            _ => Ok(()),
        }
    }

    /// Receives and checks the bytes. Returns their number, and whether the stream was complete.
    fn read(&self, sock: &Sock, thread: usize, pages: Pages) -> Result<(u64, bool), Fail> {
        let pattern = Pattern::new(self.seed);
        let mut rng = Rng::new(self.seed ^ 2);
        let mut received = 0;
        let mut quiet = Instant::now();
        loop {
            let len = rng.length(LEN);
            let flags = [0, 0, MSG_WAITALL, MSG_DONTWAIT][rng.below(4)];
            self.shared.begin(thread, "a receive of the stream");
            // SAFETY: there are no references to the pages.
            let result = unsafe { sock.recv_raw(pages.at(0), len, flags) };
            self.shared.end(thread);
            let written = self.written.load(Ordering::Acquire);
            match result {
                Ok(0) => {
                    let all = self.sent.load(Ordering::Relaxed);
                    let text = format!("the end after {received} of {all} bytes");
                    expect(written && received == all, text)?;
                    return Ok((received, true));
                }
                Ok(n) => {
                    let verdict = pattern.check(received, &pages.read(0, n));
                    let text = format!("wrong bytes in {n} at {received}");
                    expect_eq(verdict.wrong, 0, text)?;
                    received += n as u64;
                    let most = self.sent.load(Ordering::Relaxed);
                    expect(received <= most || !written, "more than was sent")?;
                    quiet = Instant::now();
                }
                Err(e) if matches!(e.raw_os_error(), Some(EAGAIN | EINTR)) => {
                    // Options may make a TCP socket send slowly, or packets that do not reach the
                    // peer.
                    let slow = quiet.elapsed() > SLOW || !self.shared.goes_on();
                    if written && slow && self.shared.env.family == Family::Tcp {
                        return Ok((received, false));
                    }
                    let stuck = quiet.elapsed() > STUCK;
                    expect(
                        !stuck,
                        format!("the stream is stuck after {received} bytes"),
                    )?;
                }
                Err(e) if is_end(&e) => return Ok((received, false)),
                Err(e) => return failed(format!("a receive: {e}")),
            }
        }
    }
}
