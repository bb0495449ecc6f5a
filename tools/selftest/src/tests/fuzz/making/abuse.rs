// SPDX-License-Identifier: GPL-2.0
//! Calls that change memory from which other threads send, or into which they receive.

use super::super::call::{Arg, Call};
use super::super::room::{RECEIVED, RECEIVED_LEN, SENT, SENT_LEN};
use super::Maker;
use crate::support::sys::{MADV_COLD, MADV_COLLAPSE, MADV_PAGEOUT, PAGE};

impl Maker {
    /// A call on the shared memory. The range always stays mapped, possibly without access, so that
    /// no other mapping can take its place.
    pub(super) fn abuse(&mut self) -> Call {
        let (from, room) =
            self.one_of(&[(RECEIVED, RECEIVED_LEN), (SENT, SENT_LEN), (SENT, SENT_LEN)]);
        let first = self.rng.below(room / PAGE);
        let count = 1 + self.rng.below(room / PAGE - first);
        let (at, len) = (Arg::At(from + first * PAGE), Arg::Num(count * PAGE));
        let access = libc::PROT_READ | libc::PROT_WRITE;
        match self.rng.below(12) {
            0 => Call::new(
                "mprotect",
                libc::SYS_mprotect,
                &[at, len, Arg::Num(self.rng.below(4))],
            ),
            1..4 => Call::new(
                "mprotect",
                libc::SYS_mprotect,
                &[at, len, Arg::Num(access as usize)],
            ),
            4..6 => {
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
                let numbers = [access, flags, -1].map(|n| Arg::Num(n as usize));
                let [access, flags, none] = numbers;
                Call::new("mmap", libc::SYS_mmap, &[at, len, access, flags, none])
            }
            6..8 => {
                // Move pages over other pages of the same memory. New pages take the place of those
                // that were moved.
                let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
                let to = self.rng.below((room - count * PAGE) / PAGE + 1);
                let to = Arg::At(from + to * PAGE);
                Call::new(
                    "mremap",
                    libc::SYS_mremap,
                    &[at, len, len, Arg::Num(flags as usize), to],
                )
            }
            _ => {
                let advice = self.one_of(&[
                    libc::MADV_DONTNEED,
                    libc::MADV_FREE,
                    libc::MADV_HUGEPAGE,
                    libc::MADV_NOHUGEPAGE,
                    libc::MADV_MERGEABLE,
                    libc::MADV_WILLNEED,
                    libc::MADV_DONTFORK,
                    libc::MADV_DOFORK,
                    libc::MADV_WIPEONFORK,
                    libc::MADV_KEEPONFORK,
                    MADV_COLD,
                    MADV_PAGEOUT,
                    MADV_COLLAPSE,
                ]);
                Call::new(
                    "madvise",
                    libc::SYS_madvise,
                    &[at, len, Arg::Num(advice as usize)],
                )
            }
        }
    }
}
