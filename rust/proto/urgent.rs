// SPDX-License-Identifier: GPL-2.0

//! Urgent data: the receiver is told of an urgent byte of the stream before it reads the byte.
//! Linux's TCP has one such byte at a time, the *mark*, and so has this implementation.
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
/// Only a waiting byte is announced.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct UrgentSend {
    /// The number of bytes up to and including the urgent one; 0 for none.
    ahead_bytes: u32,
    /// A message has announced it.
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

    /// The last of the `waiting_bytes` is urgent. A byte that was marked before and still waits is
    /// not urgent any more.
    pub const fn mark(&mut self, waiting_bytes: u32) {
        if waiting_bytes > 0 {
            self.ahead_bytes = waiting_bytes;
        }
    }

    /// Whether an urgent byte waits.
    pub const fn waits(&self) -> bool {
        self.ahead_bytes > 0
    }

    /// The size of the next message, which may have up to `full_bytes`: it ends with the urgent
    /// byte.
    pub const fn message_bytes(&self, full_bytes: u32) -> u32 {
        if self.waits() && self.ahead_bytes < full_bytes {
            self.ahead_bytes
        } else {
            full_bytes
        }
    }

    /// The next `bytes` are now in a message. Returns whether the last of them is the urgent one.
    pub const fn take(&mut self, bytes: u32) -> bool {
        let waits = self.waits();
        self.ahead_bytes = self.ahead_bytes.saturating_sub(bytes);
        let urgent = waits && self.ahead_bytes == 0;
        if urgent {
            // INVARIANT: The byte does not wait any more.
            self.announced = false;
        }
        urgent
    }

    /// The flags of every message while an urgent byte waits.
    pub const fn flags(&self) -> u8 {
        if self.waits() {
            FLAG_OOB_PEND
        } else {
            0
        }
    }

    /// A message with [`UrgentSend::flags`] was sent.
    pub const fn note_sent(&mut self) {
        self.announced = self.waits();
    }

    /// Whether a message must be sent to announce the byte.
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
    /// It will come, behind all received bytes.
    Announced,
    /// The position of the byte in the stream.
    At {
        place: u64,
        /// `None` if it was read out of line.
        byte: Option<u8>,
    },
}

/// The result of a receive with MSG_OOB.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Byte {
    /// There is none, it was already read, or it is an ordinary byte (SO_OOBINLINE).
    None,
    /// It was announced, but has not arrived.
    Comes,
    /// The byte.
    Is(u8),
}

/// How far a receive without MSG_OOB may go from a position of the stream.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Reach {
    /// At most this many bytes: as many as it wants, or up to the mark.
    Bytes(u32),
    /// The next byte is the urgent one, which is skipped.
    Skip,
    /// The receive ends here, before the mark.
    End,
}

/// The effects of a message about urgent data.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct News {
    /// The program gets SIGURG.
    pub signal: bool,
    /// The next byte of the stream is lost: it is the old urgent byte.
    pub lose: bool,
}

/// The urgent byte of the received stream.
///
/// # Invariants
///
/// `taken <= received`, and `taken <= place < received` for a mark with a position.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct UrgentReceive {
    /// The number of bytes received since the start of the connection, including those of source
    /// adverts.
    received: u64,
    /// The number of bytes that the program has read, or that were skipped.
    taken: u64,
    mark: Mark,
}

impl UrgentReceive {
    /// The state of a new connection.
    pub const fn new() -> Self {
        Self {
            received: 0,
            taken: 0,
            mark: Mark::None,
        }
    }

    /// The number of bytes that the program has read, or that were skipped.
    pub const fn taken(&self) -> u64 {
        self.taken
    }

    /// Adds bytes that were received, or were advertised.
    pub const fn on_bytes(&mut self, bytes: u32) {
        self.received = self.received.saturating_add(bytes as u64);
    }

    /// Removes the last bytes, which the peer has taken back.
    pub const fn on_cancel(&mut self, bytes: u64) {
        let received = self.received.saturating_sub(bytes);
        // INVARIANT: Bytes that were read, and the urgent byte, stay.
        let least = match self.mark {
            Mark::At { place, .. } => place.saturating_add(1),
            Mark::None | Mark::Announced => self.taken,
        };
        self.received = if received < least { least } else { received };
    }

    /// The program has read the next bytes, or they were skipped.
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

    /// A message arrives whose last byte is urgent. Call before [`UrgentReceive::on_bytes`] for its
    /// `payload_len` bytes, at least 1.
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

    /// Whether there is a mark whose position is known.
    pub const fn has_mark(&self) -> bool {
        matches!(self.mark, Mark::At { .. })
    }

    /// Whether the next byte of the stream is the urgent one (SIOCATMARK).
    pub const fn is_at_mark(&self) -> bool {
        matches!(self.mark, Mark::At { place, .. } if place == self.taken)
    }

    /// Whether the next byte of the stream is the urgent one, and receives without MSG_OOB skip it.
    pub const fn hides_next(&self, inline: bool) -> bool {
        !inline && self.is_at_mark()
    }

    /// Whether the byte has arrived, and was not read out of line (POLLPRI).
    pub const fn is_here(&self) -> bool {
        matches!(self.mark, Mark::At { byte: Some(_), .. })
    }

    /// Whether a byte was announced and has not arrived.
    pub const fn is_announced(&self) -> bool {
        matches!(self.mark, Mark::Announced)
    }

    /// Whether only the next message will show whether the next byte of the stream is the urgent
    /// one: a byte was announced, and all received bytes are taken.
    pub const fn is_open(&self) -> bool {
        self.is_announced() && self.taken == self.received
    }

    /// The result of a receive with MSG_OOB.
    pub const fn byte(&self, inline: bool) -> Byte {
        match self.mark {
            Mark::Announced if !inline => Byte::Comes,
            Mark::At {
                byte: Some(byte), ..
            } if !inline => Byte::Is(byte),
            _ => Byte::None,
        }
    }

    /// The byte was read out of line. The mark stays.
    pub const fn on_read(&mut self) {
        if let Mark::At { byte, .. } = &mut self.mark {
            *byte = None;
        }
    }

    /// How far a receive without MSG_OOB may go, if it is `ahead_bytes` behind the taken bytes and
    /// wants `want_bytes` more. `has_some` says whether it already has bytes.
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

    /// Whether a receive `ahead_bytes` behind the taken bytes is at the mark.
    pub const fn is_mark(&self, ahead_bytes: u64) -> bool {
        let here = self.taken.saturating_add(ahead_bytes);
        matches!(self.mark, Mark::At { place, .. } if place == here)
    }

    /// The number of bytes of `waiting_bytes` that one receive can get (SIOCINQ).
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
