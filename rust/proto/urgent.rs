// SPDX-License-Identifier: GPL-2.0

//! Urgent data: a byte of the stream that its receiver is told of before it is
//! read. Linux's TCP has one such byte at a time, the *mark*, and so has this.
//!
//! The message that ends with the byte has [`FLAG_OOB_PRES`]. Messages that are
//! sent while the byte waits have [`FLAG_OOB_PEND`]. If no message is sent, an
//! empty Data announces the byte.
//!
//! Out of line, the default, a program reads the byte by itself (MSG_OOB), and
//! receives skip the byte in the stream. Inline (SO_OOBINLINE) the byte is an
//! ordinary byte. In both cases a receive ends before the mark, and a receive that
//! begins at the mark goes past the mark.
//!
//! A new mark replaces the old mark. The old urgent byte becomes an ordinary byte;
//! out of line it is lost if the program has read all bytes before it.
//!
//! [`FLAG_OOB_PRES`]: super::bsdh::FLAG_OOB_PRES

use super::bsdh::FLAG_OOB_PEND;

/// The urgent byte among those that wait to be sent.
///
/// # Invariants
///
/// Nothing is announced but a byte that waits.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct UrgentSend {
    /// Bytes up to the urgent one and with it; 0 for none.
    ahead_bytes: u32,
    /// A message has told of it.
    announced: bool,
}

impl UrgentSend {
    /// None.
    pub const fn new() -> Self {
        Self {
            ahead_bytes: 0,
            announced: false,
        }
    }

    /// The last of the `waiting_bytes` is urgent. A byte that was marked before,
    /// and waits, is not urgent any more.
    pub const fn mark(&mut self, waiting_bytes: u32) {
        if waiting_bytes > 0 {
            self.ahead_bytes = waiting_bytes;
        }
    }

    /// Whether there is one.
    pub const fn waits(&self) -> bool {
        self.ahead_bytes > 0
    }

    /// Bytes of the next message, which could have `full_bytes`: it ends with
    /// the urgent byte.
    pub const fn message_bytes(&self, full_bytes: u32) -> u32 {
        if self.waits() && self.ahead_bytes < full_bytes {
            self.ahead_bytes
        } else {
            full_bytes
        }
    }

    /// So many bytes are in a message now. Returns whether the last of them is
    /// the urgent one.
    pub const fn take(&mut self, bytes: u32) -> bool {
        let waits = self.waits();
        self.ahead_bytes = self.ahead_bytes.saturating_sub(bytes);
        let urgent = waits && self.ahead_bytes == 0;
        if urgent {
            // INVARIANT: It does not wait.
            self.announced = false;
        }
        urgent
    }

    /// What the flags of every message say of the byte that waits.
    pub const fn flags(&self) -> u8 {
        if self.waits() {
            FLAG_OOB_PEND
        } else {
            0
        }
    }

    /// A message was sent with those flags.
    pub const fn note_sent(&mut self) {
        self.announced = self.waits();
    }

    /// Whether a message must be sent to tell of the byte.
    pub const fn must_announce(&self) -> bool {
        self.waits() && !self.announced
    }
}

impl Default for UrgentSend {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
enum Mark {
    None,
    /// It comes, behind all that was received.
    Announced,
    /// The place of the byte in the stream.
    At {
        place: u64,
        /// `None` if it was read out of line.
        byte: Option<u8>,
    },
}

/// The byte that a receive out of line gets.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Byte {
    /// There is none, or it was read, or is read in line.
    None,
    /// It was announced.
    Comes,
    /// This one.
    Is(u8),
}

/// How far a receive in line goes at a place of the stream.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Reach {
    /// At most so many bytes, as many as it wants or up to the mark.
    Bytes(u32),
    /// The next byte is the urgent one, which is skipped.
    Skip,
    /// It ends here, before the mark.
    End,
}

/// What a message about urgent data has to do.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct News {
    /// The program is told (SIGURG).
    pub signal: bool,
    /// The next byte of the stream is lost: it is the old urgent byte.
    pub lose: bool,
}

/// The urgent byte of the stream that is received.
///
/// # Invariants
///
/// `taken <= received`, and `taken <= place < received` for a mark with a place.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct UrgentReceive {
    /// Bytes that have come since the start of the connection, those of source
    /// adverts included.
    received: u64,
    /// Bytes that the program has, or has skipped.
    taken: u64,
    mark: Mark,
}

impl UrgentReceive {
    /// Of a new connection.
    pub const fn new() -> Self {
        Self {
            received: 0,
            taken: 0,
            mark: Mark::None,
        }
    }

    /// Bytes that the program has taken, or that were skipped.
    pub const fn taken(&self) -> u64 {
        self.taken
    }

    /// Bytes have come, or have been advertised.
    pub const fn on_bytes(&mut self, bytes: u32) {
        self.received = self.received.saturating_add(bytes as u64);
    }

    /// The peer has taken the last bytes back.
    pub const fn on_cancel(&mut self, bytes: u64) {
        let received = self.received.saturating_sub(bytes);
        // INVARIANT: Bytes that were taken, and the urgent byte, stay.
        let least = match self.mark {
            Mark::At { place, .. } => place.saturating_add(1),
            Mark::None | Mark::Announced => self.taken,
        };
        self.received = if received < least { least } else { received };
    }

    /// The program has the next bytes, or has skipped them.
    pub const fn on_taken(&mut self, bytes: u32) {
        let taken = self.taken.saturating_add(bytes as u64);
        self.taken = if taken > self.received {
            self.received
        } else {
            taken
        };
        if let Mark::At { place, .. } = self.mark {
            // INVARIANT: A passed mark is dropped.
            if place < self.taken {
                self.mark = Mark::None;
            }
        }
    }

    /// An urgent byte was announced.
    pub const fn on_announced(&mut self, inline: bool) -> News {
        let news = self.news(inline);
        self.mark = Mark::Announced;
        news
    }

    /// A message comes whose last byte is urgent. To be called before
    /// [`UrgentReceive::on_bytes`] for its `payload_len` bytes, at least 1.
    pub const fn on_urgent(&mut self, payload_len: u32, byte: u8, inline: bool) -> News {
        let news = self.news(inline);
        let before = payload_len.saturating_sub(1);
        self.mark = Mark::At {
            place: self.received.saturating_add(before as u64),
            byte: Some(byte),
        };
        news
    }

    const fn news(&mut self, inline: bool) -> News {
        let lose = self.hides_next(inline);
        if lose {
            self.taken = self.taken.saturating_add(1);
        }
        News {
            signal: !matches!(self.mark, Mark::Announced),
            lose,
        }
    }

    /// Whether there is a mark whose place is known.
    pub const fn has_mark(&self) -> bool {
        matches!(self.mark, Mark::At { .. })
    }

    /// Whether the next byte of the stream is the urgent one (SIOCATMARK).
    pub const fn is_at_mark(&self) -> bool {
        matches!(self.mark, Mark::At { place, .. } if place == self.taken)
    }

    /// Whether the next byte of the stream is the urgent one, and no receive in
    /// line gets it.
    pub const fn hides_next(&self, inline: bool) -> bool {
        !inline && self.is_at_mark()
    }

    /// Whether it has come, and was not read out of line (POLLPRI).
    pub const fn is_here(&self) -> bool {
        matches!(self.mark, Mark::At { byte: Some(_), .. })
    }

    /// Whether it was announced and has not come.
    pub const fn is_announced(&self) -> bool {
        matches!(self.mark, Mark::Announced)
    }

    /// Whether the next message says if the next byte of the stream is the urgent
    /// one: a byte was announced, and all bytes that have come are taken.
    pub const fn is_open(&self) -> bool {
        self.is_announced() && self.taken == self.received
    }

    /// The byte that a receive out of line gets.
    pub const fn byte(&self, inline: bool) -> Byte {
        match self.mark {
            Mark::Announced if !inline => Byte::Comes,
            Mark::At {
                byte: Some(byte), ..
            } if !inline => Byte::Is(byte),
            _ => Byte::None,
        }
    }

    /// It was read out of line. The mark stays.
    pub const fn on_read(&mut self) {
        if let Mark::At { byte, .. } = &mut self.mark {
            *byte = None;
        }
    }

    /// How far a receive in line goes that is `ahead_bytes` behind what was
    /// taken, wants `want_bytes` more and has something already or not.
    pub fn reach(&self, ahead_bytes: u64, want_bytes: u32, has_some: bool, inline: bool) -> Reach {
        let here = self.taken.saturating_add(ahead_bytes);
        let Mark::At { place, .. } = self.mark else {
            return Reach::Bytes(want_bytes);
        };
        match place.checked_sub(here) {
            None => Reach::Bytes(want_bytes),
            Some(0) if has_some => Reach::End,
            Some(0) if inline || want_bytes == 0 => Reach::Bytes(want_bytes),
            Some(0) => Reach::Skip,
            Some(before) => Reach::Bytes(at_most(before, want_bytes)),
        }
    }

    /// Whether a receive so far behind what was taken is at the mark.
    pub const fn is_mark(&self, ahead_bytes: u64) -> bool {
        let here = self.taken.saturating_add(ahead_bytes);
        matches!(self.mark, Mark::At { place, .. } if place == here)
    }

    /// Bytes that one receive can get of `waiting_bytes` (SIOCINQ).
    pub fn readable_bytes(&self, waiting_bytes: u32, inline: bool) -> u32 {
        match self.mark {
            Mark::At { place, .. } if !inline => {
                at_most(place.saturating_sub(self.taken), waiting_bytes)
            }
            _ => waiting_bytes,
        }
    }
}

fn at_most(bytes: u64, most: u32) -> u32 {
    u32::try_from(bytes).map_or(most, |bytes| bytes.min(most))
}

impl Default for UrgentReceive {
    fn default() -> Self {
        Self::new()
    }
}
