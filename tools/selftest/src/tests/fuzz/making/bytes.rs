// SPDX-License-Identifier: GPL-2.0
//! Calls that send and receive.

use super::super::call::{Arg, Call, Compared, Put};
use super::super::room::{
    ADDRESS, CONTROL, LEN, MESSAGES, READ_ONLY, RECEIVED, RECEIVED_LEN, SENT, SENT_LEN, VECTORS,
};
use super::{Maker, Use};
use libc::{
    MSG_CONFIRM, MSG_CTRUNC, MSG_DONTWAIT, MSG_EOR, MSG_ERRQUEUE, MSG_FASTOPEN, MSG_MORE,
    MSG_NOSIGNAL, MSG_OOB, MSG_PEEK, MSG_TRUNC, MSG_WAITALL, MSG_ZEROCOPY,
};

/// A piece of memory for bytes.
struct Piece {
    at: Arg,
    len: usize,
    good: bool,
}

const HEADER: usize = 64;
const VECTOR: usize = 16;
const CONTROL_LEN: usize = 512;

impl Maker {
    fn send_flags(&mut self) -> i32 {
        let some = [
            0,
            MSG_DONTWAIT,
            MSG_MORE,
            MSG_OOB,
            MSG_EOR,
            MSG_CONFIRM,
            MSG_ZEROCOPY,
            MSG_WAITALL,
            MSG_PEEK,
            MSG_FASTOPEN,
            MSG_ZEROCOPY | MSG_MORE,
            MSG_OOB | MSG_MORE,
        ];
        let flags = match self.rng.below(8) {
            0..3 => 0,
            3..7 => self.one_of(&some),
            _ => self.number(),
        };
        flags | MSG_NOSIGNAL
    }

    fn receive_flags(&mut self) -> i32 {
        let some = [
            MSG_DONTWAIT,
            MSG_PEEK,
            MSG_PEEK | MSG_TRUNC,
            MSG_TRUNC,
            MSG_WAITALL,
            MSG_PEEK | MSG_WAITALL,
            MSG_OOB,
            MSG_OOB | MSG_PEEK,
            MSG_ERRQUEUE,
            MSG_CTRUNC,
            MSG_EOR,
        ];
        match self.rng.below(8) {
            0..3 => 0,
            3..7 => self.one_of(&some),
            _ => self.number(),
        }
    }

    /// The length of a piece to send.
    pub(super) fn sent_len(&mut self) -> usize {
        let most = match self.purpose {
            Use::Comparison => 3000.min(self.budget),
            _ => SENT_LEN / 2,
        };
        self.rng.length(most.max(1))
    }

    fn piece(&mut self, sends: bool) -> Piece {
        let len = match sends {
            true => self.sent_len(),
            false => self.rng.length(RECEIVED_LEN),
        };
        let (from, room) = match sends {
            true => (SENT, SENT_LEN),
            false => (RECEIVED, RECEIVED_LEN),
        };
        match self.rng.below(40) {
            0 => Piece {
                at: self.bad_pointer(),
                len: self.one_of(&[0, 1, 2, len, usize::MAX]),
                good: false,
            },
            // The piece reaches beyond the end.
            1 => Piece {
                at: Arg::At(from + room - self.rng.below(len.min(room)).min(200)),
                len,
                good: false,
            },
            2 => Piece {
                at: Arg::At(READ_ONLY),
                len: len.min(4096),
                good: false,
            },
            3 => Piece {
                at: Arg::At(from),
                len: 0,
                good: true,
            },
            _ => Piece {
                at: Arg::At(from + self.rng.below(room - len + 1)),
                len,
                good: true,
            },
        }
    }

    pub(super) fn spend(&mut self, len: usize) {
        self.budget = self.budget.saturating_sub(len);
    }

    /// The result is compared exactly if all memory is good.
    fn how(pieces: &[Piece]) -> Compared {
        match pieces.iter().all(|piece| piece.good) {
            true => Compared::Exactly,
            false => Compared::Roughly,
        }
    }

    pub(super) fn send(&mut self) -> Call {
        let slot = Arg::Slot(self.slot());
        match self.rng.below(8) {
            0..3 => {
                let piece = self.piece(true);
                self.spend(piece.len);
                let flags = self.send_flags();
                let args = [
                    slot,
                    piece.at,
                    Arg::Num(piece.len),
                    Arg::Num(flags as usize),
                ];
                let name = format!("send with flags {flags:#010x}");
                Call::new(name, libc::SYS_sendto, &args).compared(Self::how(&[piece]))
            }
            3 => {
                let piece = self.piece(true);
                let flags = self.send_flags();
                let len = self.length(16);
                let args = [
                    slot,
                    piece.at,
                    Arg::Num(piece.len),
                    Arg::Num(flags as usize),
                ];
                let [a, b, c, d] = args;
                let to = self.pointer(ADDRESS);
                let args = [a, b, c, d, to, Arg::Num(len as usize)];
                let (to, family) = self.address();
                let name = format!("sendto {to:?} with flags {flags:#010x}");
                Call::new(name, libc::SYS_sendto, &args)
                    .put(ADDRESS, Put::Address(to, family))
                    .compared(Self::how(&[piece]))
            }
            4 => {
                let piece = self.piece(true);
                self.spend(piece.len);
                let args = [slot, piece.at, Arg::Num(piece.len)];
                Call::new("write", libc::SYS_write, &args).compared(Self::how(&[piece]))
            }
            5 => {
                let call = Call::new("writev", libc::SYS_writev, &[]);
                let (mut call, count) = self.vectors(call, 0, true);
                call.args[..3].copy_from_slice(&[slot, Arg::At(VECTORS), Arg::Num(count)]);
                call
            }
            6 => {
                let flags = self.send_flags();
                let name = format!("sendmsg with flags {flags:#010x}");
                let args = [slot, self.pointer(MESSAGES), Arg::Num(flags as usize)];
                self.message(Call::new(name, libc::SYS_sendmsg, &args), 0, true)
            }
            _ => {
                let flags = self.send_flags();
                // With several messages, the second may be sent before or after the reset that
                // answers the first.
                let count = match self.purpose {
                    Use::Comparison => self.rng.below(2),
                    _ => self.rng.below(5),
                };
                let args = [
                    slot,
                    self.pointer(MESSAGES),
                    Arg::Num(count),
                    Arg::Num(flags as usize),
                ];
                let name = format!("sendmmsg with flags {flags:#010x}");
                let call = Call::new(name, libc::SYS_sendmmsg, &args);
                (0..count).fold(call, |call, i| self.message(call, i, true))
            }
        }
    }

    pub(super) fn receive(&mut self) -> Call {
        let slot = self.slot();
        let flags = self.receive_flags();
        self.receive_of(slot, flags)
    }

    /// A receive that takes nothing.
    pub(super) fn peek(&mut self) -> Call {
        let slot = self.slot();
        let piece = self.piece(false);
        let flags = MSG_PEEK | MSG_DONTWAIT;
        let args = [
            Arg::Slot(slot),
            piece.at,
            Arg::Num(piece.len),
            Arg::Num(flags as usize),
        ];
        Call::new("peek", libc::SYS_recvfrom, &args)
    }

    fn receive_of(&mut self, slot: usize, flags: i32) -> Call {
        let slot = Arg::Slot(slot);
        let call = match self.rng.below(8) {
            0..3 => {
                let piece = self.piece(false);
                let args = [
                    slot,
                    piece.at,
                    Arg::Num(piece.len),
                    Arg::Num(flags as usize),
                ];
                let name = format!("recv with flags {flags:#010x}");
                Call::new(name, libc::SYS_recvfrom, &args).compared(Self::how(&[piece]))
            }
            3 => {
                let piece = self.piece(false);
                let (address, len) = (self.pointer(ADDRESS), self.pointer(LEN));
                let [a, b, c] = [slot, piece.at, Arg::Num(piece.len)];
                let args = [a, b, c, Arg::Num(flags as usize), address, len];
                let len = self.length(16);
                let name = format!("recvfrom with flags {flags:#010x}");
                Call::new(name, libc::SYS_recvfrom, &args)
                    .bytes(LEN, &len.to_ne_bytes())
                    .compared(Self::how(&[piece]))
            }
            4 => {
                let piece = self.piece(false);
                let args = [slot, piece.at, Arg::Num(piece.len)];
                Call::new("read", libc::SYS_read, &args).compared(Self::how(&[piece]))
            }
            5 => {
                let call = Call::new("readv", libc::SYS_readv, &[]);
                let (mut call, count) = self.vectors(call, 0, false);
                call.args[..3].copy_from_slice(&[slot, Arg::At(VECTORS), Arg::Num(count)]);
                call
            }
            6 => {
                let name = format!("recvmsg with flags {flags:#010x}");
                let args = [slot, self.pointer(MESSAGES), Arg::Num(flags as usize)];
                self.message(Call::new(name, libc::SYS_recvmsg, &args), 0, false)
            }
            _ => {
                let count = self.rng.below(4);
                let args = [
                    slot,
                    self.pointer(MESSAGES),
                    Arg::Num(count),
                    Arg::Num(flags as usize),
                ];
                let name = format!("recvmmsg with flags {flags:#010x}");
                let call = Call::new(name, libc::SYS_recvmmsg, &args);
                (0..count).fold(call, |call, i| self.message(call, i, false))
            }
        };
        let has_flags = ![libc::SYS_read, libc::SYS_readv].contains(&call.number);
        let mut call = call;
        if has_flags && flags & MSG_ERRQUEUE != 0 {
            // In SDP, no address follows a notification, so its length and MSG_CTRUNC differ from
            // TCP's.
            call.hidden = Some((MESSAGES, LEN + 8));
            call.compared = match call.compared {
                Compared::Exactly => Compared::Notification,
                compared => compared,
            };
        }
        call
    }

    /// Adds the vector of message `number`. Also returns the number of pieces that the message
    /// claims to have.
    pub(super) fn vectors(&mut self, mut call: Call, number: usize, sends: bool) -> (Call, usize) {
        let count = self.rng.below(6);
        let from = VECTORS + number * 6 * VECTOR;
        for i in 0..count {
            let mut piece = self.piece(sends);
            if sends {
                piece.len = if piece.good {
                    piece.len.min(self.budget.max(1))
                } else {
                    piece.len
                };
                self.spend(piece.len);
            }
            let at = from + i * VECTOR;
            call = call
                .put(at, Put::Word(piece.at))
                .put(at + 8, Put::Word(Arg::Num(piece.len)));
            if !piece.good {
                call.compared = Compared::Roughly;
            }
        }
        let claimed = match self.rng.below(40) {
            0 => self.one_of(&[1025, usize::MAX]),
            _ => count,
        };
        (call, claimed)
    }

    /// Adds message `number`.
    fn message(&mut self, call: Call, number: usize, sends: bool) -> Call {
        let (mut call, count) = self.vectors(call, number, sends);
        let at = MESSAGES + number * HEADER;
        let mut vector = self.pointer(VECTORS + number * 6 * VECTOR);
        if count == 0 && self.chance(2) {
            vector = Arg::Num(0);
        }
        let (control, len) = match self.rng.below(4) {
            0 => (
                self.pointer(CONTROL),
                self.length(64).unsigned_abs() as usize % CONTROL_LEN,
            ),
            _ => (Arg::Num(0), 0),
        };
        let (name, name_len) = match self.rng.below(8) {
            0 => (self.pointer(ADDRESS), self.length(16)),
            _ => (Arg::Num(0), 0),
        };
        if sends && len > 0 {
            call = call.bytes(CONTROL, &self.control());
        }
        if sends {
            let (to, family) = self.address();
            call = call.put(ADDRESS, Put::Address(to, family));
        }
        let words = [
            name,
            Arg::Num(name_len as u32 as usize),
            vector,
            Arg::Num(count),
            control,
            Arg::Num(len),
            Arg::Num(0),
        ];
        for (i, word) in words.into_iter().enumerate() {
            call = call.put(at + i * 8, Put::Word(word));
        }
        call
    }

    /// Control messages for a send.
    fn control(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; CONTROL_LEN];
        let mut at = 0;
        while at + 32 <= CONTROL_LEN {
            let len = match self.rng.below(6) {
                0 => self.rng.below(64),
                1 => usize::MAX,
                _ => 16 + self.one_of(&[0, 1, 4, 4, 8]),
            };
            let level = self.one_of(&[0, 1, 1, 6, 41, 257, -1]);
            // SO_TIMESTAMPING is missing here, because it asks for something that only packets
            // have.
            let of_packets = [1, 2, 7, 8, 11, 12, 36, 61, 77];
            let kind = self.one_of(&of_packets);
            bytes[at..at + 8].copy_from_slice(&len.to_ne_bytes());
            bytes[at + 8..at + 12].copy_from_slice(&i32::to_ne_bytes(level));
            bytes[at + 12..at + 16].copy_from_slice(&i32::to_ne_bytes(kind));
            at += len.clamp(16, 64).next_multiple_of(8);
        }
        bytes
    }
}
