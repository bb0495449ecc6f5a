// SPDX-License-Identifier: GPL-2.0
//! TCP_INFO: the statistics of a connection. Values that depend on time or on the sizes of messages
//! are only compared with each other or with rough limits.

use crate::support::flow::Span;
use crate::support::harness::{
    eventually, expect, expect_eq, expect_errno, failed, fill, receive, send, tests, Env, Outcome,
};
use crate::support::sys::Sock;
use libc::{EINVAL, ENOENT, ENOPROTOOPT, IPPROTO_TCP};
use std::io;
use std::time::{Duration, Instant};

tests!("info";
    of_a_new_socket,
    of_a_listener,
    of_any_length,
    bytes_that_were_read,
    round_trips,
    of_a_sender_whose_peer_is_full,
    of_the_end,
    congestion_control,
);

const CLOSE: u8 = 7;
const LISTEN: u8 = 10;
const ESTABLISHED: u8 = 1;
const FIN_WAIT2: u8 = 5;
const CLOSE_WAIT: u8 = 8;

/// The number of bytes up to and including `tcpi_bytes_retrans` (include/uapi/linux/tcp.h).
const LEN: usize = 216;

struct Info([u8; LEN]);

impl Info {
    fn of(sock: &Sock) -> io::Result<Info> {
        let mut bytes = [0; LEN];
        match sock.get_bytes(IPPROTO_TCP, libc::TCP_INFO, &mut bytes)? {
            LEN => Ok(Info(bytes)),
            len => Err(io::Error::other(format!("TCP_INFO of {len} bytes"))),
        }
    }

    fn word(&self, offset: usize) -> u32 {
        u32::from_ne_bytes(self.0[offset..offset + 4].try_into().expect("4 bytes"))
    }

    fn long(&self, offset: usize) -> u64 {
        u64::from_ne_bytes(self.0[offset..offset + 8].try_into().expect("8 bytes"))
    }

    fn state(&self) -> u8 {
        self.0[0]
    }

    fn retransmits(&self) -> u8 {
        self.0[2]
    }

    fn rto_us(&self) -> u32 {
        self.word(8)
    }

    fn snd_mss(&self) -> u32 {
        self.word(16)
    }

    fn unacked(&self) -> u32 {
        self.word(24)
    }

    fn sacked(&self) -> u32 {
        self.word(28)
    }

    fn last_data_sent_ms(&self) -> u32 {
        self.word(44)
    }

    fn last_data_received_ms(&self) -> u32 {
        self.word(52)
    }

    fn rtt_us(&self) -> u32 {
        self.word(68)
    }

    fn cwnd(&self) -> u32 {
        self.word(80)
    }

    fn total_retrans(&self) -> u32 {
        self.word(100)
    }

    fn bytes_acked(&self) -> u64 {
        self.long(120)
    }

    fn bytes_received(&self) -> u64 {
        self.long(128)
    }

    fn segments_out(&self) -> u32 {
        self.word(136)
    }

    fn segments_in(&self) -> u32 {
        self.word(140)
    }

    fn notsent_bytes(&self) -> u32 {
        self.word(144)
    }

    fn min_rtt_us(&self) -> u32 {
        self.word(148)
    }

    fn delivery_rate(&self) -> u64 {
        self.long(160)
    }

    fn busy_us(&self) -> u64 {
        self.long(168)
    }

    fn awaiting_peer_us(&self) -> u64 {
        self.long(176)
    }

    fn bytes_sent(&self) -> u64 {
        self.long(200)
    }
}

fn of_a_new_socket(env: &Env) -> Outcome {
    let info = Info::of(&env.socket()?)?;
    expect_eq(info.state(), CLOSE, "the state")?;
    expect_eq(info.bytes_acked() + info.bytes_received(), 0, "bytes")?;
    expect_eq(info.busy_us(), 0, "busy")?;
    expect_eq(info.snd_mss(), 536, "the size of a segment")?;
    expect_time_to_resend(&info)
}

/// Programs compute their own limits from the time after which bytes are sent again: it is that of
/// real networks.
fn expect_time_to_resend(info: &Info) -> Outcome {
    let us = info.rto_us();
    expect((100_000..=10_000_000).contains(&us), format!("{us} us"))
}

/// A listener reports the number of connections that wait, and its backlog.
fn of_a_listener(env: &Env) -> Outcome {
    let (listener, addr) = env.listener(5)?;
    let info = Info::of(&listener)?;
    expect_eq(info.state(), LISTEN, "the state")?;
    expect_eq((info.unacked(), info.sacked()), (0, 5), "the backlog")?;
    expect_eq(info.rto_us(), 0, "the time to resend")?;
    let client = env.socket()?;
    client.connect(&addr)?;
    eventually(
        "connections that wait",
        || Ok(Info::of(&listener)?.unacked()),
        |waiting| *waiting == 1,
    )
}

/// Programs may have been built with a shorter structure, or may ask for more bytes than there are.
fn of_any_length(env: &Env) -> Outcome {
    let (sock, _remote) = env.pair()?;
    let get = |len: usize| -> io::Result<(usize, Vec<u8>)> {
        let mut bytes = vec![0xee; len];
        let got = sock.get_bytes(IPPROTO_TCP, libc::TCP_INFO, &mut bytes)?;
        Ok((got, bytes))
    };
    for len in [0, 1, 7, 104, LEN] {
        expect_eq(get(len)?.0, len, "the length")?;
    }
    let (len, bytes) = get(4096)?;
    expect((LEN..1024).contains(&len), format!("{len} bytes in all"))?;
    expect(bytes[len..].iter().all(|b| *b == 0xee), "written behind it")?;
    expect_eq(bytes[0], ESTABLISHED, "the state")?;
    let set = sock.set_bytes(IPPROTO_TCP, libc::TCP_INFO, &[0; 104]);
    expect_errno(set, ENOPROTOOPT, "setting TCP_INFO")
}

fn bytes_that_were_read(env: &Env) -> Outcome {
    let len = 300_000;
    let (sock, other) = env.own_pair()?;
    let span = Span::new(env.seed, 0, len);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| receive(&other, span));
        send(&sock, span)?;
        reader
            .join()
            .unwrap_or_else(|_| failed("the reader panics"))
    })?;
    // TCP also counts its SYN.
    eventually(
        "bytes that the peer has",
        || Ok(Info::of(&sock)?.bytes_acked()),
        |acked| [len, len + 1].contains(acked),
    )?;
    let info = Info::of(&sock)?;
    expect_eq(info.state(), ESTABLISHED, "the state")?;
    expect(
        info.bytes_sent() >= len,
        format!("{} sent", info.bytes_sent()),
    )?;
    expect_eq(info.notsent_bytes(), 0, "not sent")?;
    expect_eq(info.total_retrans(), 0, "sent again")?;
    expect_eq(info.retransmits(), 0, "being sent again")?;
    expect(
        info.segments_out() > 0 && info.segments_in() > 0,
        "segments",
    )?;
    expect(info.snd_mss() >= 500, format!("{} bytes", info.snd_mss()))?;
    expect(info.cwnd() > 0, "the window")?;
    expect_time_to_resend(&info)?;
    let theirs = Info::of(&other)?;
    expect_eq(theirs.bytes_received(), len, "received")?;
    expect(theirs.last_data_received_ms() < 60_000, "received lately")
}

/// The round-trip time, and the times of the last send and receive.
fn round_trips(env: &Env) -> Outcome {
    let (sock, other) = env.own_pair()?;
    let began = Instant::now();
    for round in 0..20 {
        let span = Span::new(env.seed, round * 100, 100);
        send(&sock, span)?;
        receive(&other, span)?;
        send(&other, span)?;
        receive(&sock, span)?;
    }
    let took_us = began.elapsed().as_micros() as u64;
    let info = Info::of(&sock)?;
    let (rtt, least) = (info.rtt_us(), info.min_rtt_us());
    expect(
        rtt > 0 && least > 0 && least <= rtt,
        format!("{rtt}, at least {least}"),
    )?;
    expect(u64::from(rtt) <= took_us, format!("{rtt} us in {took_us}"))?;
    expect(info.delivery_rate() > 0, "a rate")?;
    std::thread::sleep(Duration::from_millis(300));
    let info = Info::of(&sock)?;
    let (sent, received) = (info.last_data_sent_ms(), info.last_data_received_ms());
    let lately = |ms| (290..60_000).contains(&ms);
    expect(
        lately(sent) && lately(received),
        format!("{sent} and {received} ms ago"),
    )
}

fn of_a_sender_whose_peer_is_full(env: &Env) -> Outcome {
    let (sock, _other) = env.own_pair()?;
    let sent = fill(&sock, env.seed)?;
    std::thread::sleep(Duration::from_millis(200));
    let info = Info::of(&sock)?;
    expect(info.notsent_bytes() > 0, "nothing waits")?;
    expect(
        info.bytes_acked() <= sent + 1,
        format!("{} of {sent}", info.bytes_acked()),
    )?;
    expect(
        info.bytes_sent() + u64::from(info.notsent_bytes()) >= sent,
        format!(
            "{} and {} of {sent}",
            info.bytes_sent(),
            info.notsent_bytes()
        ),
    )?;
    let (busy, peer) = (info.busy_us(), info.awaiting_peer_us());
    expect(
        peer >= 150_000 && busy >= peer,
        format!("busy {busy}, of them {peer}"),
    )?;
    std::thread::sleep(Duration::from_millis(100));
    let later = Info::of(&sock)?.awaiting_peer_us();
    expect(later >= peer + 90_000, format!("{peer}, then {later}"))
}

fn of_the_end(env: &Env) -> Outcome {
    let (sock, other) = env.own_pair()?;
    sock.shutdown(libc::SHUT_WR)?;
    let is = |sock: &Sock, wanted: u8| {
        let state = || Ok(Info::of(sock)?.state());
        eventually("the state", state, |state| *state == wanted)
    };
    is(&sock, FIN_WAIT2)?;
    is(&other, CLOSE_WAIT)
}

/// The name of the congestion control, which `iperf3 -C` reads and sets.
fn congestion_control(env: &Env) -> Outcome {
    let sock = env.socket()?;
    let mut name = [0xee; 32];
    let len = sock.get_bytes(IPPROTO_TCP, libc::TCP_CONGESTION, &mut name)?;
    expect_eq(len, 16, "the length of a name")?;
    let end = name[..len].iter().position(|b| *b == 0);
    expect(end.is_some_and(|end| end > 0), "a name with an end")?;
    let set = |name: &[u8]| sock.set_bytes(IPPROTO_TCP, libc::TCP_CONGESTION, name);
    // Each kernel has reno.
    set(b"reno")?;
    set(b"reno\0")?;
    expect_errno(set(b"nosuch"), ENOENT, "one that does not exist")?;
    expect_errno(set(b""), EINVAL, "none")
}
