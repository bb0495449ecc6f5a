// SPDX-License-Identifier: GPL-2.0
//! The memory of the calls. Each thread has its own part for the arguments, and all threads share
//! the part for the bytes that are sent and received. Offsets are the same for all threads.

use crate::support::pattern::Pattern;
use crate::support::sys::{Pages, PAGE};
use std::io;

/// The places of arguments and values: messages, vectors, addresses, lengths, control messages, and
/// values.
pub(super) const MESSAGES: usize = 0;
pub(super) const VECTORS: usize = 1024;
pub(super) const ADDRESS: usize = 2048;
pub(super) const LEN: usize = 2560;
pub(super) const CONTROL: usize = 3072;
pub(super) const VALUE: usize = 3584;
/// A page without access.
pub(super) const HOLE: usize = PAGE;

/// The place for received bytes, followed by a page without access.
pub(super) const RECEIVED: usize = 1 << 20;
pub(super) const RECEIVED_LEN: usize = 8 * PAGE;
/// The place of the bytes to send, followed by a read-only page and a page without access.
pub(super) const SENT: usize = RECEIVED + RECEIVED_LEN + PAGE;
pub(super) const SENT_LEN: usize = 32 * PAGE;
pub(super) const READ_ONLY: usize = SENT + SENT_LEN;
const SHARED_LEN: usize = RECEIVED_LEN + PAGE + SENT_LEN + 2 * PAGE;

/// The content of bytes to which the kernel has not written.
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

    /// The same memory with a new part for arguments.
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

    /// Overwrites all the memory that calls may write to with [`UNTOUCHED`].
    pub(super) fn forget(self) {
        self.own.write(0, &[UNTOUCHED; PAGE]);
        self.shared.write(0, &[UNTOUCHED; RECEIVED_LEN]);
    }

    pub(super) fn write(self, offset: usize, bytes: &[u8]) {
        self.own.write(offset, bytes);
    }

    /// The memory that calls may have written to: the arguments, then the received bytes.
    pub(super) fn seen(self) -> Vec<u8> {
        let mut bytes = self.own.read(0, PAGE);
        bytes.extend(self.shared.read(0, RECEIVED_LEN));
        bytes
    }

    /// The offset of the received bytes in [`Memory::seen`].
    pub(super) const SEEN_RECEIVED: usize = PAGE;
}
