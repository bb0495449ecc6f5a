// SPDX-License-Identifier: GPL-2.0
//! The memory of the calls: a thread's own for what they point to first, and one that all threads share for
//! the bytes that are sent and received. Offsets are the same in each.

use crate::support::pattern::Pattern;
use crate::support::sys::{Pages, PAGE};
use std::io;

/// What arguments and values are in: a part each for messages, vectors, addresses, lengths and values.
pub(super) const MESSAGES: usize = 0;
pub(super) const VECTORS: usize = 1024;
pub(super) const ADDRESS: usize = 2048;
pub(super) const LEN: usize = 2560;
pub(super) const CONTROL: usize = 3072;
pub(super) const VALUE: usize = 3584;
/// No access.
pub(super) const HOLE: usize = PAGE;

/// What bytes are received into; then a page without access.
pub(super) const RECEIVED: usize = 1 << 20;
pub(super) const RECEIVED_LEN: usize = 8 * PAGE;
/// What is sent; then a page that can only be read, and one without access.
pub(super) const SENT: usize = RECEIVED + RECEIVED_LEN + PAGE;
pub(super) const SENT_LEN: usize = 32 * PAGE;
pub(super) const READ_ONLY: usize = SENT + SENT_LEN;
const SHARED_LEN: usize = RECEIVED_LEN + PAGE + SENT_LEN + 2 * PAGE;

/// What the kernel has not written to.
pub(super) const UNTOUCHED: u8 = 0xee;

#[derive(Clone, Copy)]
pub(super) struct Memory {
    own: Pages,
    shared: Pages,
}

impl Memory {
    pub(super) fn new() -> io::Result<Memory> {
        let shared = Pages::new(SHARED_LEN, false)?;
        let mut bytes = vec![0; SENT_LEN];
        Pattern::new(1).fill(0, &mut bytes);
        shared.write(SENT - RECEIVED, &bytes);
        for (at, forbidden) in [(RECEIVED_LEN, true), (READ_ONLY - RECEIVED, false)] {
            let page = shared.part(at, PAGE);
            page.touch(0);
            match forbidden {
                true => page.forbid()?,
                false => page.protect(false)?,
            }
        }
        shared.part(SHARED_LEN - PAGE, PAGE).forbid()?;
        Memory {
            own: shared,
            shared,
        }
        .for_a_thread()
    }

    /// The same with other arguments.
    pub(super) fn for_a_thread(self) -> io::Result<Memory> {
        let own = Pages::new(2 * PAGE, false)?;
        own.part(HOLE, PAGE).forbid()?;
        Ok(Memory { own, ..self })
    }

    /// The address of a byte.
    pub(super) fn at(self, offset: usize) -> usize {
        match offset.checked_sub(RECEIVED) {
            Some(offset) => self.shared.at(0) + offset,
            None => self.own.at(offset),
        }
    }

    /// Makes all of it as if nobody had written to it.
    pub(super) fn forget(self) {
        self.own.write(0, &[UNTOUCHED; PAGE]);
        self.shared.write(0, &[UNTOUCHED; RECEIVED_LEN]);
    }

    pub(super) fn write(self, offset: usize, bytes: &[u8]) {
        self.own.write(offset, bytes);
    }

    /// What calls may have written to: arguments, then what is received.
    pub(super) fn seen(self) -> Vec<u8> {
        let mut bytes = self.own.read(0, PAGE);
        bytes.extend(self.shared.read(0, RECEIVED_LEN));
        bytes
    }

    /// The first byte of what is received in [`Memory::seen`].
    pub(super) const SEEN_RECEIVED: usize = PAGE;
}
