// SPDX-License-Identifier: GPL-2.0
//! The settings of a network namespace under /proc/sys/net/sdp.

use crate::support::counters::stat;
use crate::support::flow::{spawn, Span};
use crate::support::harness::{
    eventually, expect, expect_eq, expect_errno, expect_errno_of, fill, joined, receive, skip,
    tests, Child, Env, Fail, Family, Outcome,
};
use crate::support::sys::{self, Pages, Sock};
use crate::tests::uncopied::inflight::{
    in_flight, pause, Growth, Stream, LEN, SDP_FAULT_POLICY, SDP_ZCOPY_MODE, SDP_ZCOPY_THRESH,
    SOL_SDP, WAITS,
};
use libc::{
    EACCES, EAGAIN, EINVAL, ENOENT, EPERM, IPPROTO_TCP, MSG_DONTWAIT, MSG_NOSIGNAL, POLLERR,
    POLLOUT, SHUT_WR, SOL_SOCKET, SO_RCVBUF, SO_RCVTIMEO, SO_SNDBUF, TCP_KEEPCNT, TCP_KEEPIDLE,
    TCP_KEEPINTVL,
};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

tests!("sysctl";
    values_are_checked,
    read_in_pieces,
    written_in_pieces,
    new_sockets_begin_with_them,
    accepted_sockets_have_their_listeners,
    some_are_those_of_tcp,
    fin_timeout_is_that_of_tcp,
    sends_go_without_a_copy,
    writers_wait,
    buffers_have_their_sizes,
    first_namespace_is_left_alone,
    roots_of_namespaces_may_not_hold_up,
    roots_of_namespaces_may_not_connect_unchecked,
    nobody_may_write,
    namespace_goes_while_files_are_open,
    memory_is_of_the_first_namespace,
    memory_limits_are_checked,
    memory_limits_hold,
    memory_is_short_and_bytes_get_through,
    short_rest_waits_for_memory,
    adverts_are_bounded,
);

fn path(name: &str) -> String {
    format!("/proc/sys/net/sdp/{name}")
}

/// Writes without creating or truncating, as sysctl does.
pub(in crate::tests) fn set(name: &str, value: &str) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(path(name))?;
    file.write_all_at(value.as_bytes(), 0)
}

fn get(name: &str) -> io::Result<String> {
    Ok(fs::read_to_string(path(name))?.trim_end().to_owned())
}

pub(in crate::tests) fn needs_root(env: &Env) -> Outcome {
    if env.family == Family::Tcp {
        skip("TCP has its own")
    } else if sys::is_root() {
        Ok(())
    } else {
        skip("needs root")
    }
}

/// Runs `work` in a new network namespace.
fn elsewhere(env: &Env, work: impl FnOnce() -> Outcome) -> Outcome {
    needs_root(env)?;
    Child::start(|| {
        sys::new_netns()?;
        work()
    })?
    .join()
}

/// A changed value of the first namespace; dropping it restores the former value.
pub(in crate::tests) struct Changed {
    name: &'static str,
    before: String,
}

impl Changed {
    pub(in crate::tests) fn to(name: &'static str, value: &str) -> io::Result<Changed> {
        let before = get(name)?;
        set(name, value)?;
        Ok(Changed { name, before })
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        let _ = set(self.name, &self.before);
    }
}

/// A file, good values with the text that is then read, and bad values.
type Checks = (
    &'static str,
    &'static [(&'static str, &'static str)],
    &'static [&'static str],
);

const CHECKS: &[Checks] = &[
    (
        "zcopy_thresh",
        &[
            ("0", "0"),
            ("-1", "-1"),
            ("65536\n", "65536"),
            ("0x7fffffff", "2147483647"),
        ],
        &["-2", "2147483648", "many", " ", "1 2"],
    ),
    (
        "zcopy_mode",
        &[
            ("auto", "auto"),
            ("1", "copy"),
            ("sync\n", "sync"),
            ("3", "async"),
            ("sink", "sink"),
        ],
        &["-1", "5", "Sync", "sync,async", "\n"],
    ),
    (
        "fault_policy",
        &[
            ("block", "block"),
            ("0", "copy"),
            ("1", "block"),
            ("copy", "copy"),
        ],
        &["2", "-1", "wait"],
    ),
    (
        "max_adverts",
        &[("1", "1"), ("32", "32"), ("7", "7")],
        &["0", "33", "-1", "x"],
    ),
    (
        "wmem_default",
        &[("4096", "4096"), ("16777216", "16777216")],
        &["4095", "16777217", "-4096", "1m"],
    ),
    (
        "rmem_default",
        &[("4096", "4096"), ("16777216", "16777216")],
        &["4095", "16777217", "-4096", "1m"],
    ),
    (
        "keepalive_time",
        &[("1", "1"), ("32767", "32767")],
        &["0", "-1", "32768", "1s"],
    ),
    (
        "keepalive_intvl",
        &[("1", "1"), ("32767", "32767")],
        &["0", "-1", "32768", "1s"],
    ),
    (
        "keepalive_probes",
        &[("1", "1"), ("127", "127")],
        &["0", "-1", "128", "many"],
    ),
    ("fastopen", &[("1", "1"), ("0", "0")], &["-1", "2", "on"]),
    (
        "tcp_fallback",
        &[("1", "1"), ("0", "0")],
        &["-1", "2", "on"],
    ),
    ("max_connections", AS_MANY.0, AS_MANY.1),
    ("max_user_connections", AS_MANY.0, AS_MANY.1),
    ("max_orphans", AS_MANY.0, AS_MANY.1),
];

const AS_MANY: (&[(&str, &str)], &[&str]) = (
    &[("1", "1"), ("2147483647", "2147483647"), ("0", "0")],
    &["-1", "2147483648", "many", "1K"],
);

fn values_are_checked(env: &Env) -> Outcome {
    elsewhere(env, || {
        let long = "0".repeat(100);
        for (name, good, bad) in CHECKS {
            for (value, shown) in *good {
                set(name, value)?;
                expect_eq(
                    get(name)?,
                    (*shown).to_owned(),
                    format!("{name} = {value:?}"),
                )?;
            }
            let before = get(name)?;
            for value in bad.iter().copied().chain([long.as_str(), "\u{e4}"]) {
                expect_errno(set(name, value), EINVAL, format!("{name} = {value:?}"))?;
                expect_eq(
                    get(name)?,
                    before.clone(),
                    format!("{name} after {value:?}"),
                )?;
            }
        }
        // Each file has checks.
        let files = fs::read_dir("/proc/sys/net/sdp")?.count();
        expect_eq(files, CHECKS.len(), "files of a namespace")
    })
}

fn read_in_pieces(env: &Env) -> Outcome {
    elsewhere(env, || {
        set("zcopy_mode", "async")?;
        let file = File::open(path("zcopy_mode"))?;
        let mut text = Vec::new();
        let mut byte = [0];
        while file.read_at(&mut byte, text.len() as u64)? == 1 {
            text.push(byte[0]);
            expect(text.len() < 100, "it does not end")?;
        }
        expect_eq(text, b"async\n".to_vec(), "the text")
    })
}

/// A value cannot be written in parts: the second part is refused.
fn written_in_pieces(env: &Env) -> Outcome {
    elsewhere(env, || {
        set("max_adverts", "9")?;
        let file = OpenOptions::new().write(true).open(path("max_adverts"))?;
        file.write_all_at(b"1", 0)?;
        expect_errno(file.write_at(b"2", 1), EINVAL, "the rest")?;
        expect_eq(get("max_adverts")?, "1".to_owned(), "max_adverts")
    })
}

/// The settings of a socket: threshold, mode, policy, sizes of the buffers, keepalive.
fn seen(sock: &Sock) -> io::Result<[i32; 8]> {
    Ok([
        sock.get_int(SOL_SDP, SDP_ZCOPY_THRESH)?,
        sock.get_int(SOL_SDP, SDP_ZCOPY_MODE)?,
        sock.get_int(SOL_SDP, SDP_FAULT_POLICY)?,
        sock.get_int(SOL_SOCKET, SO_SNDBUF)?,
        sock.get_int(SOL_SOCKET, SO_RCVBUF)?,
        sock.get_int(IPPROTO_TCP, TCP_KEEPIDLE)?,
        sock.get_int(IPPROTO_TCP, TCP_KEEPINTVL)?,
        sock.get_int(IPPROTO_TCP, TCP_KEEPCNT)?,
    ])
}

const NAMES: [&str; 8] = [
    "zcopy_thresh",
    "zcopy_mode",
    "fault_policy",
    "wmem_default",
    "rmem_default",
    "keepalive_time",
    "keepalive_intvl",
    "keepalive_probes",
];

fn set_all(values: [i32; 8]) -> io::Result<()> {
    for (name, value) in NAMES.iter().zip(values) {
        set(name, &value.to_string())?;
    }
    Ok(())
}

const FIRST: [i32; 8] = [20_000, 2, 1, 100_000, 200_000, 600, 10, 5];
const SECOND: [i32; 8] = [0, 3, 0, 300_000, 8192, 32767, 1, 127];

/// Two namespaces have different values at the same time.
fn new_sockets_begin_with_them(env: &Env) -> Outcome {
    elsewhere(env, || {
        let before = env.socket()?;
        let defaults = seen(&before)?;
        set_all(FIRST)?;
        let first = env.socket()?;
        expect_eq(seen(&first)?, FIRST, "in the first")?;
        expect_eq(seen(&before)?, defaults, "a socket made before")?;
        let other = Child::start(|| {
            sys::new_netns()?;
            expect_eq(seen(&env.socket()?)?, defaults, "in the second")?;
            set_all(SECOND)?;
            expect_eq(seen(&env.socket()?)?, SECOND, "in the second, when set")?;
            // A socket keeps its values, even if its process moves to another namespace.
            expect_eq(seen(&first)?, FIRST, "one of the first, from the second")
        })?;
        other.join()?;
        expect_eq(seen(&env.socket()?)?, FIRST, "in the first, afterwards")
    })
}

/// Accepted sockets have the values of their listener. The test needs the first namespace, which
/// has the RDMA device.
fn accepted_sockets_have_their_listeners(env: &Env) -> Outcome {
    needs_root(env)?;
    let listener = {
        let _mode = Changed::to("zcopy_mode", "sync")?;
        let _bytes = Changed::to("rmem_default", "150000")?;
        env.listener(1)?
    };
    let sock = env.socket()?;
    sock.connect(&listener.1)?;
    let (accepted, _) = listener.0.accept()?;
    let now = seen(&sock)?;
    let [_, mode, _, _, bytes, ..] = seen(&accepted)?;
    expect_eq((mode, bytes), (2, 150_000), "of the accepted socket")?;
    expect(now[1] != 2 && now[4] != 150_000, "of the other socket")
}

/// Options that were not set have the values of TCP's sysctls.
fn some_are_those_of_tcp(env: &Env) -> Outcome {
    if !sys::is_root() {
        return skip("needs root");
    }
    for (name, option, value) in [
        ("tcp_syn_retries", libc::TCP_SYNCNT, 3),
        ("tcp_fin_timeout", libc::TCP_LINGER2, 45),
    ] {
        let path = format!("/proc/sys/net/ipv4/{name}");
        let former = fs::read_to_string(&path)?;
        let sock = env.socket()?;
        fs::write(&path, value.to_string())?;
        let got = sock.get_int(IPPROTO_TCP, option);
        fs::write(&path, &former)?;
        expect_eq(got?, value, name)?;
        sock.set_int(IPPROTO_TCP, option, 7)?;
        expect_eq(sock.get_int(IPPROTO_TCP, option)?, 7, "when set")?;
    }
    Ok(())
}

/// The peer of a closed socket has the time of tcp_fin_timeout to close its end, unless the program
/// has set another one.
fn fin_timeout_is_that_of_tcp(env: &Env) -> Outcome {
    needs_root(env)?;
    let path = "/proc/sys/net/ipv4/tcp_fin_timeout";
    let former = fs::read_to_string(path)?;
    fs::write(path, "2")?;
    let lasted = || -> Result<Duration, Fail> {
        let (sock, remote) = env.own_pair()?;
        drop(sock);
        let begin = Instant::now();
        expect_eq(remote.recv(&mut [0; 9], 0)?, 0, "the end")?;
        eventually("a reset", || remote.poll(0, 0), |&e| e & POLLERR != 0)?;
        Ok(begin.elapsed())
    };
    let time = lasted();
    // The kernel accepts these, too. A shutdown() before close() starts the timer in another context.
    let ends = |value: &str| -> Outcome {
        fs::write(path, value)?;
        for shuts_down in [false, true] {
            let (sock, remote) = env.own_pair()?;
            if shuts_down {
                sock.shutdown(SHUT_WR)?;
                expect_eq(remote.recv(&mut [0; 9], 0)?, 0, "the end")?;
            }
            drop(sock);
            expect_eq(remote.recv(&mut [0; 9], 0)?, 0, "the end")?;
            // The time begins when the peer's adapter has the end.
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    };
    let odd = ["4294968", "8589934", "-1", "-8589934", "0"]
        .into_iter()
        .try_for_each(ends);
    fs::write(path, &former)?;
    odd?;
    let ms = time?.as_millis();
    expect((1500..30_000).contains(&ms), format!("after {ms} ms"))
}

/// Programs that set no options send in the mode of the namespace, from its threshold on.
fn sends_go_without_a_copy(env: &Env) -> Outcome {
    needs_root(env)?;
    let sent_so = |mode: &str, least: &str| -> Result<bool, Fail> {
        let _mode = Changed::to("zcopy_mode", mode)?;
        let _least = Changed::to("zcopy_thresh", least)?;
        let (one, other) = env.own_pair()?;
        let pages = Pages::new(LEN, false)?;
        let span = Span::new(env.seed, 0, LEN as u64);
        pages.write(0, &span.to_vec());
        let before = stat(env, "advert_async")?;
        expect_eq(one.send_raw(pages.at(0), LEN, MSG_NOSIGNAL)?, LEN, "sent")?;
        receive(&other, span)?;
        Ok(stat(env, "advert_async")? > before)
    };
    // The threshold -1 depends on the adapter: Soft-RoCE, which is on the first network card,
    // copies; other adapters do not.
    let adapter = env.network_card()? != "eth0";
    for (mode, least, wanted) in [
        ("async", "0", true),
        ("auto", "0", false),
        ("auto", "-1", adapter),
        ("auto", "16384", true),
        ("auto", "1000000", false),
        ("copy", "16384", false),
    ] {
        let text = format!("without a copy in mode {mode} from {least} bytes on");
        expect_eq(sent_so(mode, least)?, wanted, text)?;
    }
    Ok(())
}

/// The fault policy of the namespace decides whether writers wait, if the program may make others
/// wait.
fn writers_wait(env: &Env) -> Outcome {
    needs_root(env)?;
    for (policy, least) in [("block", 1), ("copy", 0)] {
        let _policy = Changed::to("fault_policy", policy)?;
        let mut waited = 0;
        // On a slow machine the write may begin when the wait is already over.
        for _ in 0..=4 * least {
            let mut stream = Stream::new(env)?;
            let waits = Growth::of(env, "snapshot_waits")?;
            let pages = Pages::new(LEN, false)?;
            stream.send(pages)?;
            pages.write(0, b"later");
            // Waits are counted when the snapshot ends.
            stream.receive()?;
            waited = stat(env, waits.name)? - waits.before;
            if waited > 0 {
                break;
            }
        }
        expect_eq(waited.min(1), least, format!("waits with policy {policy}"))?;
    }
    Ok(())
}

fn buffers_have_their_sizes(env: &Env) -> Outcome {
    needs_root(env)?;
    let room = |send: &str, receive: &str| -> io::Result<u64> {
        let _send = Changed::to("wmem_default", send)?;
        let _receive = Changed::to("rmem_default", receive)?;
        let (one, _other) = env.own_pair()?;
        fill(&one, env.seed)
    };
    let (small, large) = ("8192", "1000000");
    let none = room(small, small)?;
    for (send, receive) in [(small, large), (large, small)] {
        let bytes = room(send, receive)?;
        expect(
            bytes > 4 * none,
            format!("{bytes} bytes with {send} and {receive}, {none} with little"),
        )?;
    }
    Ok(())
}

fn first_namespace_is_left_alone(env: &Env) -> Outcome {
    needs_root(env)?;
    let all = || {
        NAMES
            .iter()
            .map(|name| get(name))
            .collect::<io::Result<Vec<_>>>()
    };
    let before = all()?;
    elsewhere(env, || Ok(set_all(FIRST)?))?;
    expect_eq(all()?, before, "the values here")
}

/// A user who is root only in a user namespace may not make other programs wait.
fn roots_of_namespaces_may_not_hold_up(env: &Env) -> Outcome {
    needs_root(env)?;
    if fs::read_to_string("/sys/module/ib_sdp/parameters/sdp_recv_early")?.trim() != "ptrace" {
        return skip("somebody has changed sdp_recv_early");
    }
    Child::start(|| {
        sys::become_nobody()?;
        if sys::new_user_and_netns().is_err() {
            return skip("no user namespaces");
        }
        set("zcopy_mode", "async")?;
        set("wmem_default", "50000")?;
        for value in ["block", "1"] {
            expect_errno(set("fault_policy", value), EPERM, "fault_policy")?;
        }
        expect_eq(get("fault_policy")?, "copy".to_owned(), "fault_policy")?;
        set("fault_policy", "copy")?;
        let sock = env.socket()?;
        let [_, mode, policy, bytes, ..] = seen(&sock)?;
        expect_eq((mode, policy, bytes), (3, 0, 50_000), "of a socket")?;
        let set = sock.set_int(SOL_SDP, SDP_FAULT_POLICY, 1);
        expect_errno(set, EPERM, "the option")
    })?
    .join()
}

/// A user who is root only in a user namespace may not let programs connect without the checks of
/// the machine's security modules.
fn roots_of_namespaces_may_not_connect_unchecked(env: &Env) -> Outcome {
    needs_root(env)?;
    for name in ["fastopen", "tcp_fallback"] {
        let parameter = format!("/sys/module/ib_sdp/parameters/sdp_{name}");
        if fs::read_to_string(parameter)?.trim() != "0" {
            return skip(format!("somebody has changed sdp_{name}"));
        }
    }
    Child::start(|| {
        sys::become_nobody()?;
        if sys::new_user_and_netns().is_err() {
            return skip("no user namespaces");
        }
        for name in ["fastopen", "tcp_fallback"] {
            expect_errno(set(name, "1"), EPERM, name)?;
            expect_eq(get(name)?, "0".to_owned(), name)?;
            set(name, "0")?;
        }
        Ok(())
    })?
    .join()
}

fn nobody_may_write(env: &Env) -> Outcome {
    elsewhere(env, || {
        sys::become_nobody()?;
        for (name, good, _) in CHECKS {
            get(name)?;
            for (value, _) in *good {
                expect_errno_of(set(name, value), &[EACCES, EPERM], name)?;
            }
        }
        Ok(())
    })
}

/// Open files do not keep a namespace alive. After its end, calls on them fail with ENOENT.
fn namespace_goes_while_files_are_open(env: &Env) -> Outcome {
    elsewhere(env, || {
        let open = |name: &str| OpenOptions::new().read(true).write(true).open(path(name));
        let files = CHECKS
            .iter()
            .map(|(name, ..)| open(name))
            .collect::<io::Result<Vec<_>>>()?;
        let mut text = [0; 16];
        for file in &files {
            expect(file.read_at(&mut text, 0)? > 1, "nothing to read")?;
        }
        // This process was the only one in the namespace.
        sys::new_netns()?;
        for file in &files {
            eventually(
                "the end of the namespace",
                || {
                    Ok(file
                        .read_at(&mut [0; 16], 0)
                        .err()
                        .and_then(|e| e.raw_os_error()))
                },
                |errno| *errno == Some(ENOENT),
            )?;
            expect_errno(file.write_at(b"1", 0), ENOENT, "writing")?;
        }
        Ok(())
    })
}

fn memory_is_of_the_first_namespace(env: &Env) -> Outcome {
    elsewhere(env, || {
        expect_errno(get("mem"), ENOENT, "mem")?;
        get("max_adverts").map(drop).map_err(Fail::from)
    })
}

fn memory_limits_are_checked(env: &Env) -> Outcome {
    needs_root(env)?;
    let before = get("mem")?;
    for value in [
        "3 2 1",
        "1 3 2",
        "0 1 2",
        "x",
        "1 2 x",
        "9223372036854775808",
    ] {
        expect_errno(set("mem", value), EINVAL, value)?;
        expect_eq(get("mem")?, before.clone(), value)?;
    }
    let _mem = Changed::to("mem", "1000000 2000000 3000000")?;
    expect_eq(get("mem")?, "1000000\t2000000\t3000000".to_owned(), "mem")
}

/// Sends without waiting until several sends in a row are refused, regardless of poll(); returns
/// the number of bytes sent.
fn until_refused(sock: &Sock, seed: u64) -> io::Result<u64> {
    let (mut sent, mut refused) = (0, 0);
    while refused < 5 {
        let bytes = Span::new(seed, sent, 10_007).to_vec();
        match sock.send(&bytes, MSG_DONTWAIT | MSG_NOSIGNAL) {
            Ok(n) => {
                sent += n as u64;
                refused = 0;
            }
            Err(e) if e.raw_os_error() != Some(EAGAIN) => return Err(e),
            Err(_) => {
                refused += 1;
                pause();
            }
        }
    }
    Ok(sent)
}

/// If the memory of all sockets is used up, each socket gets little, and goes on when there is
/// more.
///
/// The core counts in portions of 1 MiB for each processor. One socket or several may use this much
/// memory beyond the limit.
fn memory_limits_hold(env: &Env) -> Outcome {
    const PAIRS: u64 = 8;
    needs_root(env)?;
    let (one, other) = env.own_pair()?;
    let much = until_refused(&one, env.seed)?;
    receive(&other, Span::new(env.seed, 0, much))?;
    let pairs = (0..PAIRS)
        .map(|_| env.own_pair())
        .collect::<Result<Vec<_>, _>>()?;
    let mut sent = Vec::new();
    {
        let _mem = Changed::to("mem", "1 1 1")?;
        for (one, _) in &pairs {
            sent.push(until_refused(one, env.seed)?);
        }
    }
    let little: u64 = sent.iter().sum();
    expect(
        little < much * PAIRS / 3,
        format!("{little} bytes of {PAIRS} where memory is short, {much} of one where not"),
    )?;
    for ((_, other), sent) in pairs.iter().zip(sent) {
        receive(other, Span::new(env.seed, 0, sent))?;
    }
    Ok(())
}

/// If the memory of all sockets is used up, a socket with an empty send buffer can still send a few
/// bytes, and poll() reports the truth.
fn memory_is_short_and_bytes_get_through(env: &Env) -> Outcome {
    const PAIRS: u64 = 3;
    const ROUNDS: u64 = 20;
    needs_root(env)?;
    let (one, other) = env.own_pair()?;
    let (bounded, bounded_other) = env.own_pair()?;
    bounded.set_int(SOL_SOCKET, SO_SNDBUF, 200_000)?;
    let pairs = (0..PAIRS)
        .map(|_| env.own_pair())
        .collect::<Result<Vec<_>, _>>()?;
    // Use more memory than the core counts in advance for each processor.
    let mut full = vec![];
    for (from, _) in &pairs {
        full.push(until_refused(from, env.seed)?);
    }
    let _mem = Changed::to("mem", "1 1 1")?;
    for (from, to) in [(&one, &other), (&bounded, &bounded_other)] {
        for round in 0..ROUNDS {
            let span = Span::new(env.seed, round * 100, 100);
            expect_eq(from.poll(POLLOUT, 0)?, POLLOUT, "an empty send buffer")?;
            expect_eq(
                from.send(&span.to_vec(), MSG_DONTWAIT)?,
                100,
                "the first bytes",
            )?;
            receive(to, span)?;
        }
        // Now nobody reads.
        let mut sent = ROUNDS * 100;
        let mut refusals = 0;
        while from.poll(POLLOUT, 200)? == POLLOUT {
            match from.send(&Span::new(env.seed, sent, 3000).to_vec(), MSG_DONTWAIT) {
                Ok(n) => sent += n as u64,
                Err(e) if e.raw_os_error() == Some(EAGAIN) => refusals += 1,
                Err(e) => return Err(e.into()),
            }
            expect(
                refusals < 20,
                "poll() says POLLOUT again and again, send() EAGAIN",
            )?;
            expect(sent < 1 << 20, "no limit holds")?;
        }
        receive(to, Span::new(env.seed, ROUNDS * 100, sent - ROUNDS * 100))?;
        expect_eq(from.poll(POLLOUT, 20_000)?, POLLOUT, "when all is read")?;
        from.send_all(&Span::new(env.seed, sent, 100).to_vec())?;
        receive(to, Span::new(env.seed, sent, 100))?;
    }
    for ((_, to), sent) in pairs.iter().zip(full) {
        receive(to, Span::new(env.seed, 0, sent))?;
    }
    Ok(())
}

/// The rest of an advert that is too short for a Read of its own is read into the kernel's memory. If
/// there is none when a reader asks for the rest, the rest comes when there is memory again.
fn short_rest_waits_for_memory(env: &Env) -> Outcome {
    const LEN: u64 = 72 << 10;
    const FIRST: usize = 64 << 10;
    needs_root(env)?;
    // These use more memory than the core counts in advance for each processor.
    let pairs = (0..3)
        .map(|_| env.own_pair())
        .collect::<Result<Vec<_>, _>>()?;
    let mut full = vec![];
    for (from, _) in &pairs {
        full.push(until_refused(from, env.seed)?);
    }
    let (one, other) = env.own_pair()?;
    one.set_int(SOL_SDP, SDP_ZCOPY_THRESH, 16384)?;
    one.set_int(SOL_SDP, SDP_ZCOPY_MODE, WAITS)?;
    other.set_timeout(SO_RCVTIMEO, 30_000)?;
    let mem = Changed::to("mem", "1 1 1")?;
    let failed = stat(env, "no_receive_memory")?;
    let span = Span::new(env.seed, 0, LEN);
    let sending = spawn(move || one.send_all(&span.to_vec()))?;
    let mut buf = vec![0; FIRST];
    let first = other.recv(&mut buf, 0)?;
    expect_eq(first, FIRST, "the first receive")?;
    expect(
        buf == Span::new(env.seed, 0, FIRST as u64).to_vec(),
        "other bytes",
    )?;
    let (tell, told) = std::sync::mpsc::channel();
    let reading = spawn(move || -> io::Result<(Vec<u8>, Instant)> {
        let _ = tell.send(sys::thread_id());
        let mut buf = vec![0; FIRST];
        let n = other.recv(&mut buf, 0)?;
        buf.truncate(n);
        Ok((buf, Instant::now()))
    })?;
    let reader = told.recv().map_err(io::Error::other)?;
    eventually(
        "the reader waits",
        || io::Result::Ok(sys::is_asleep(reader)),
        |&s| s,
    )?;
    eventually(
        "there is no memory",
        || stat(env, "no_receive_memory"),
        |&now| now > failed,
    )?;
    drop(mem);
    let restored = Instant::now();
    let (rest, at) = joined(reading)??;
    let want = Span::new(env.seed, FIRST as u64, LEN - FIRST as u64);
    expect(rest == want.to_vec(), format!("{} other bytes", rest.len()))?;
    let waited = at.saturating_duration_since(restored);
    let limit = Duration::from_secs(2).mul_f64(env.timeout_scale);
    expect(waited < limit, format!("the rest came after {waited:?}"))?;
    joined(sending)??;
    for ((_, to), sent) in pairs.iter().zip(full) {
        receive(to, Span::new(env.seed, 0, sent))?;
    }
    Ok(())
}

/// If the maximum number of adverts is outstanding, the next bytes go by copy.
fn adverts_are_bounded(env: &Env) -> Outcome {
    needs_root(env)?;
    let most_out = |most: u64| -> Result<(u64, u64), Fail> {
        let _most = Changed::to("max_adverts", &most.to_string())?;
        let mut stream = Stream::new(env)?;
        let full = Growth::of(env, "by_copy_AdvertsFull")?;
        let mut out = 0;
        for sends in 0..5 {
            let pages = Pages::new(LEN, false)?;
            stream.fill(pages);
            // Copied bytes that nobody reads use up the credits.
            if sends <= most {
                stream.await_credits()?;
            }
            let n = stream.one.send_raw(pages.at(0), LEN, MSG_NOSIGNAL)?;
            expect_eq(n, LEN, "sent in one call")?;
            stream.sent += n as u64;
            out = out.max(in_flight(env)?);
        }
        let refused = stat(env, full.name)? - full.before;
        stream.receive()?;
        Ok((out, refused))
    };
    let (out, refused) = most_out(1)?;
    expect_eq(out, 1, "adverts out of one")?;
    expect(refused > 0, "nothing was copied for want of an advert")?;
    let (out, refused) = most_out(3)?;
    expect_eq(out, 3, "adverts out of three")?;
    expect(refused > 0, "nothing was copied for want of an advert")?;
    let (out, _) = most_out(32)?;
    expect(out > 3, format!("{out} adverts out of 32"))
}
