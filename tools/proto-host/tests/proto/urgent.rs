// SPDX-License-Identifier: GPL-2.0

//! Urgent data: against what Linux's TCP does, written down a second time from `net/ipv4/tcp.c` and
//! `tcp_input.c`, with the names that they use.

use proptest::prelude::*;
use proto_host::proto::{
    bsdh::FLAG_OOB_PEND,
    urgent::{
        Byte,
        Reach,
        UrgentReceive,
        UrgentSend, //
    },
};
use std::collections::VecDeque;

#[test]
fn a_message_ends_with_the_urgent_byte() {
    let mut send = UrgentSend::new();
    assert_eq!(send.message_bytes(100), 100);
    assert!(!send.take(30));
    send.mark(250);
    assert_eq!(send.flags(), FLAG_OOB_PEND);
    assert_eq!(send.message_bytes(100), 100);
    assert!(!send.take(100));
    assert!(!send.take(100));
    assert_eq!(send.message_bytes(100), 50);
    assert!(send.take(50));
    assert_eq!((send.flags(), send.waits()), (0, false));
    assert!(!send.take(50));
}

#[test]
fn the_last_mark_counts() {
    let mut send = UrgentSend::default();
    send.mark(10);
    send.mark(30);
    assert_eq!(send.message_bytes(100), 30);
    // A send that has added nothing.
    send.mark(0);
    assert_eq!(send.message_bytes(100), 30);
}

#[test]
fn what_waits_is_announced_once() {
    let mut send = UrgentSend::new();
    assert!(!send.must_announce());
    send.note_sent();
    send.mark(10);
    assert!(send.must_announce());
    send.note_sent();
    assert!(!send.must_announce());
    // A later one is known of.
    send.mark(20);
    assert!(!send.must_announce());
    assert!(send.take(20));
    send.note_sent();
    send.mark(5);
    assert!(send.must_announce());
}

/// What is announced, and where it is, is not known at the same time.
#[test]
fn an_announcement_has_no_place() {
    let mut urgent = UrgentReceive::default();
    urgent.on_bytes(5);
    let news = urgent.on_announced(false);
    assert!(news.signal && !news.lose);
    assert!(urgent.is_announced() && !urgent.has_mark() && !urgent.is_here());
    assert!(!urgent.is_open());
    assert_eq!(urgent.byte(false), Byte::Comes);
    assert_eq!(urgent.byte(true), Byte::None);
    assert_eq!(urgent.reach(0, 9, true, false), Reach::Bytes(9));
    // Who was told is not told again.
    assert!(!urgent.on_announced(false).signal);
    assert!(!urgent.on_urgent(3, 7, false).signal);
    urgent.on_bytes(3);
    assert_eq!(urgent.byte(false), Byte::Is(7));
    assert_eq!(urgent.readable_bytes(8, false), 7);
    assert_eq!(urgent.readable_bytes(8, true), 8);
    assert_eq!(urgent.readable_bytes(4, false), 4);
}

/// Only when all that has come is read the announced byte may be the next.
#[test]
fn what_has_come_is_before_an_announced_byte() {
    let mut urgent = UrgentReceive::new();
    assert!(!urgent.is_open());
    urgent.on_bytes(5);
    urgent.on_announced(false);
    urgent.on_taken(4);
    assert!(!urgent.is_open());
    urgent.on_taken(1);
    assert!(urgent.is_open());
    // An advert counts.
    urgent.on_bytes(7);
    assert!(!urgent.is_open());
    urgent.on_cancel(7);
    assert!(urgent.is_open());
    urgent.on_urgent(1, 7, false);
    urgent.on_bytes(1);
    assert!(urgent.is_at_mark() && !urgent.is_open());
}

/// Adverts that are taken back are no part of the stream; what a peer claims beyond that changes nothing.
#[test]
fn a_cancel_moves_the_next_mark() {
    let mut urgent = UrgentReceive::new();
    urgent.on_bytes(10);
    urgent.on_bytes(1000);
    urgent.on_cancel(1000);
    urgent.on_urgent(1, 9, false);
    urgent.on_bytes(1);
    assert_eq!(urgent.readable_bytes(11, false), 10);
    urgent.on_cancel(u64::MAX);
    urgent.on_taken(10);
    assert!(urgent.is_at_mark());
    urgent.on_taken(u32::MAX);
    assert!(!urgent.has_mark());
}

/// `urg_data` of `struct tcp_sock`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum UrgData {
    None,
    NotYet,
    Valid(u8),
    Read,
}

/// The receiving half of a TCP socket whose segments come in order.
struct Tcp {
    stream: Vec<u8>,
    copied_seq: usize,
    urg_data: UrgData,
    urg_seq: usize,
    signals: u32,
}

impl Tcp {
    fn rcv_nxt(&self) -> usize {
        self.stream.len()
    }

    /// `tcp_check_urg()`.
    fn check_urg(&mut self, ptr: usize, inline: bool) {
        if self.copied_seq > ptr || ptr < self.rcv_nxt() {
            return;
        }
        if self.urg_data != UrgData::None && ptr <= self.urg_seq {
            return;
        }
        self.signals += 1;
        if self.urg_seq == self.copied_seq
            && self.urg_data != UrgData::None
            && !inline
            && self.copied_seq != self.rcv_nxt()
        {
            self.copied_seq += 1;
        }
        self.urg_data = UrgData::NotYet;
        self.urg_seq = ptr;
    }

    /// A segment; `tcp_urg()`.
    fn segment(&mut self, bytes: &[u8], urgent: bool, inline: bool) {
        let end = self.rcv_nxt() + bytes.len();
        if urgent {
            self.check_urg(end - 1, inline);
        }
        if self.urg_data == UrgData::NotYet && self.urg_seq < end {
            self.urg_data = UrgData::Valid(bytes[self.urg_seq - self.rcv_nxt()]);
        }
        self.stream.extend_from_slice(bytes);
    }

    fn at_mark(&self) -> bool {
        self.urg_data != UrgData::None && self.urg_seq == self.copied_seq
    }

    /// `tcp_inq()`.
    fn inq(&self, inline: bool) -> usize {
        let all = self.rcv_nxt() - self.copied_seq;
        let hidden = inline
            || self.urg_data == UrgData::None
            || self.urg_seq < self.copied_seq
            || self.urg_seq >= self.rcv_nxt();
        if hidden {
            all
        } else {
            self.urg_seq - self.copied_seq
        }
    }

    /// `tcp_recvmsg_locked()` without a wait, from `peek_off` on if it only looks. What it returns at the
    /// end of what is there.
    fn recv(&mut self, len: usize, peek_off: Option<usize>, inline: bool) -> Vec<u8> {
        let mut got = Vec::new();
        let mut seq = self.copied_seq + peek_off.unwrap_or(0);
        let mut len = len;
        while len > 0 {
            if self.urg_data != UrgData::None && self.urg_seq == seq && !got.is_empty() {
                break;
            }
            if seq >= self.rcv_nxt() {
                break;
            }
            let mut used = (self.rcv_nxt() - seq).min(len);
            if self.urg_data != UrgData::None && self.urg_seq >= seq {
                let offset = self.urg_seq - seq;
                if offset < used {
                    if offset > 0 {
                        used = offset;
                    } else if !inline {
                        seq += 1;
                        used -= 1;
                    }
                }
            }
            got.extend_from_slice(&self.stream[seq..seq + used]);
            seq += used;
            len -= used;
            if peek_off.is_none() {
                self.copied_seq = seq;
                if self.copied_seq > self.urg_seq {
                    self.urg_data = UrgData::None;
                }
            }
        }
        got
    }

    /// `tcp_recv_urg()` of a connection that is up.
    fn recv_urg(&mut self, peek: bool, inline: bool) -> Byte {
        if inline {
            return Byte::None;
        }
        match self.urg_data {
            UrgData::None | UrgData::Read => Byte::None,
            UrgData::NotYet => Byte::Comes,
            UrgData::Valid(byte) => {
                if !peek {
                    self.urg_data = UrgData::Read;
                }
                Byte::Is(byte)
            }
        }
    }
}

/// The same with what is under test, as the module uses it.
struct Ours {
    queue: VecDeque<u8>,
    /// Bytes that have come behind those which are on their way to the program's memory, if there are such.
    hold: Option<Vec<u8>>,
    /// Bytes that are lost and not in the queue yet.
    lost: usize,
    urgent: UrgentReceive,
    signals: u32,
}

impl Ours {
    fn lose(&mut self, lose: bool) {
        self.lost += usize::from(lose);
        self.drop_lost();
    }

    fn drop_lost(&mut self) {
        while self.lost > 0 && self.queue.pop_front().is_some() {
            self.lost -= 1;
        }
    }

    /// The program, which has all that has come, gets so many bytes that the peer has advertised.
    fn give(&mut self, len: usize) {
        self.urgent.on_bytes(len as u32);
        self.urgent.on_taken(len as u32);
        self.hold.get_or_insert_default();
    }

    /// They are there.
    fn finish(&mut self) {
        for byte in self.hold.take().into_iter().flatten() {
            self.queue.push_back(byte);
            self.drop_lost();
        }
    }

    fn waiting(&self) -> usize {
        self.queue.len() + self.hold.as_ref().map_or(0, Vec::len) - self.lost
    }

    fn announce(&mut self, inline: bool) {
        let news = self.urgent.on_announced(inline);
        self.signals += u32::from(news.signal);
        self.lose(news.lose);
    }

    fn message(&mut self, bytes: &[u8], urgent: bool, inline: bool) {
        let len = bytes.len() as u32;
        if urgent {
            let news = self.urgent.on_urgent(len, bytes[bytes.len() - 1], inline);
            self.signals += u32::from(news.signal);
            self.lose(news.lose);
        }
        self.urgent.on_bytes(len);
        match &mut self.hold {
            Some(hold) => hold.extend(bytes),
            None => self.queue.extend(bytes),
        }
    }

    fn recv(&mut self, len: usize, peek_off: Option<usize>, inline: bool) -> Vec<u8> {
        let mut got = Vec::new();
        let mut ahead = peek_off.unwrap_or(0);
        while got.len() < len && ahead < self.queue.len() {
            let want = (len - got.len()).min(self.queue.len() - ahead) as u32;
            let reach = self
                .urgent
                .reach(ahead as u64, want, !got.is_empty(), inline);
            let bytes = match reach {
                Reach::End => {
                    assert!(self.urgent.is_mark(ahead as u64));
                    break;
                }
                Reach::Skip => 1,
                Reach::Bytes(bytes) => {
                    let bytes = bytes as usize;
                    assert!(bytes > 0);
                    got.extend(self.queue.iter().skip(ahead).take(bytes));
                    bytes
                }
            };
            if peek_off.is_some() {
                ahead += bytes;
            } else {
                self.queue.drain(..bytes);
                self.urgent.on_taken(bytes as u32);
            }
        }
        got
    }

    fn recv_urg(&mut self, peek: bool, inline: bool) -> Byte {
        let byte = self.urgent.byte(inline);
        if let (Byte::Is(_), false) = (byte, peek) {
            self.urgent.on_read();
        }
        byte
    }
}

#[derive(Copy, Clone, Debug)]
enum Step {
    /// So many ordinary bytes come.
    Bytes(usize),
    /// So many are read into the program's memory, if all before was read.
    Given(usize),
    /// They are there.
    Finish,
    /// So many of which the last is urgent.
    Urgent(usize),
    /// An urgent byte will come behind so many ordinary ones.
    Announce(usize),
    Receive(usize),
    Look {
        from: usize,
        len: usize,
    },
    OutOfLine {
        looks: bool,
    },
    Inline(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1_usize..5).prop_map(Step::Bytes),
        (1_usize..5).prop_map(Step::Urgent),
        (1_usize..5).prop_map(Step::Given),
        Just(Step::Finish),
        (0_usize..5).prop_map(Step::Announce),
        (1_usize..9).prop_map(Step::Receive),
        (0_usize..5, 1_usize..9).prop_map(|(from, len)| Step::Look { from, len }),
        any::<bool>().prop_map(|looks| Step::OutOfLine { looks }),
        any::<bool>().prop_map(Step::Inline),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn it_is_as_with_tcp(steps in prop::collection::vec(step(), 1..40)) {
        let mut tcp = Tcp {
            stream: Vec::new(),
            copied_seq: 0,
            urg_data: UrgData::None,
            urg_seq: 0,
            signals: 0,
        };
        let mut ours = Ours {
            queue: VecDeque::new(),
            hold: None,
            lost: 0,
            urgent: UrgentReceive::new(),
            signals: 0,
        };
        let mut inline = false;
        // Ordinary bytes before the one that was announced.
        let mut before = None;
        let mut next = 0_u8;
        let mut more = |n: usize| -> Vec<u8> {
            (0..n).map(|_| { next = next.wrapping_add(1); next }).collect()
        };
        for step in steps {
            match step {
                Step::Bytes(n) => {
                    let n = before.map_or(n, |left: usize| n.min(left));
                    before = before.map(|left| left - n);
                    let bytes = more(n);
                    tcp.segment(&bytes, false, inline);
                    if n > 0 {
                        ours.message(&bytes, false, inline);
                    }
                }
                Step::Given(n) if tcp.copied_seq == tcp.rcv_nxt() => {
                    let n = before.map_or(n, |left: usize| n.min(left));
                    before = before.map(|left| left - n);
                    let bytes = more(n);
                    tcp.segment(&bytes, false, inline);
                    prop_assert_eq!(tcp.recv(n, None, inline), bytes);
                    if n > 0 {
                        ours.give(n);
                    }
                }
                Step::Given(_) => {}
                Step::Finish => ours.finish(),
                Step::Urgent(n) => {
                    let bytes = more(before.take().map_or(n, |left| left + 1));
                    tcp.segment(&bytes, true, inline);
                    ours.message(&bytes, true, inline);
                }
                Step::Announce(n) if before.is_none() => {
                    before = Some(n);
                    tcp.check_urg(tcp.rcv_nxt() + n, inline);
                    ours.announce(inline);
                }
                Step::Announce(_) => {}
                // These wait for the bytes that are on their way.
                Step::Receive(_) | Step::Look { .. } if ours.hold.is_some() => {}
                Step::Receive(len) => {
                    prop_assert_eq!(ours.recv(len, None, inline), tcp.recv(len, None, inline));
                }
                Step::Look { from, len } => {
                    let from = Some(from);
                    prop_assert_eq!(ours.recv(len, from, inline), tcp.recv(len, from, inline));
                }
                Step::OutOfLine { looks } => {
                    prop_assert_eq!(ours.recv_urg(looks, inline), tcp.recv_urg(looks, inline));
                }
                Step::Inline(on) => inline = on,
            }
            let urgent = ours.urgent;
            let waiting = ours.waiting();
            prop_assert_eq!(waiting, tcp.rcv_nxt() - tcp.copied_seq);
            prop_assert_eq!(urgent.readable_bytes(waiting as u32, inline) as usize, tcp.inq(inline));
            prop_assert_eq!(urgent.is_here(), matches!(tcp.urg_data, UrgData::Valid(_)));
            prop_assert_eq!(ours.signals, tcp.signals);
            let is_open = tcp.urg_data == UrgData::NotYet && tcp.copied_seq == tcp.rcv_nxt();
            prop_assert_eq!(urgent.is_open(), is_open);
            // Of one that was announced and is the next, TCP knows the place.
            if tcp.urg_data != UrgData::NotYet {
                prop_assert_eq!(urgent.is_at_mark(), tcp.at_mark());
                prop_assert_eq!(urgent.hides_next(inline), tcp.at_mark() && !inline);
            }
        }
    }

    /// However a stream with marks is cut, each message that is urgent ends with the last mark before.
    #[test]
    fn each_mark_ends_a_message(
        sends in prop::collection::vec((1_u32..40, any::<bool>(), 1_u32..30), 1..20),
    ) {
        let mut send = UrgentSend::new();
        let (mut waiting, mut sent, mut mark) = (0, 0, None);
        for (bytes, urgent, full) in sends {
            waiting += bytes;
            if urgent {
                send.mark(waiting);
                mark = Some(sent + waiting);
            }
            let len = send.message_bytes(full).min(waiting);
            prop_assert!(len > 0);
            let is_urgent = send.take(len);
            sent += len;
            waiting -= len;
            prop_assert!(mark.is_none_or(|mark| sent <= mark));
            prop_assert_eq!(is_urgent, mark == Some(sent));
            if is_urgent {
                mark = None;
            }
            prop_assert_eq!(send.waits(), mark.is_some());
        }
    }
}
