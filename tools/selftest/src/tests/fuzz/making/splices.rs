// SPDX-License-Identifier: GPL-2.0
//! Calls that move bytes between sockets, a pipe and a file.

use super::super::call::{Arg, Call, Compared};
use super::super::room::{LEN, RECEIVED, SENT, VECTORS};
use super::Maker;

impl Maker {
    pub(super) fn splice(&mut self) -> Call {
        let slot = Arg::Slot(self.slot());
        let len = Arg::Num(self.rng.length(6000));
        let none = Arg::Num(0);
        let flags = Arg::Num(self.one_of(&[0, 1, 2, 3, 4, 6, 8, 16]));
        match self.rng.below(8) {
            0..2 => Call::new(
                "splice from a socket",
                libc::SYS_splice,
                &[slot, none, Arg::Sink, none, len, flags],
            )
            .compared(Compared::Amount),
            2..4 => Call::new(
                "splice to a socket",
                libc::SYS_splice,
                &[Arg::Source, none, slot, none, len, flags],
            )
            .compared(Compared::Amount),
            4 => {
                let offset = self.one_of(&[none, none, Arg::At(LEN), Arg::Num(1)]);
                let from = self.rng.below(1 << 17) as u64;
                let len = Arg::Num(self.sent_len());
                self.spend(3000);
                Call::new(
                    "sendfile",
                    libc::SYS_sendfile,
                    &[slot, Arg::File, offset, len],
                )
                .bytes(LEN, &from.to_ne_bytes())
            }
            5 => {
                let call = Call::new("vmsplice", libc::SYS_vmsplice, &[]);
                let (mut call, count) = self.vectors(call, 0, true);
                let args = [Arg::Sink, Arg::At(VECTORS), Arg::Num(count), Arg::Num(2)];
                call.args[..4].copy_from_slice(&args);
                call
            }
            6 => Call::new(
                "read from the pipe",
                libc::SYS_read,
                &[Arg::Source, Arg::At(RECEIVED), len],
            ),
            _ => Call::new(
                "write to the pipe",
                libc::SYS_write,
                &[Arg::Sink, Arg::At(SENT), len],
            ),
        }
    }
}
