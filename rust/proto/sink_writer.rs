// SPDX-License-Identifier: GPL-2.0

//! Sink adverts of the peer: memory that this side writes to.
//!
//! A waiting reader advertises its buffer; a sender that has bytes writes them there instead of
//! sending them. Both may decide at the same time, and a buffer must not be written to after its
//! reader has returned. A count of *payload events* tells the sender whether an advert is still
//! valid: each Data with payload, each SrcAvail and each short RdmaWrCompl of a direction is one
//! event. A SinkAvail carries the number of events that its sender had received (IBTA Annex A4:
//! NonDiscards).
//!
//! - **S1** Only a waiting reader sends a SinkAvail, when all received bytes were read.
//! - **S2** The peer accepts it only if it has sent no other event since; otherwise it answers
//!   RdmaWrCompl(0). Each SinkAvail has one answer, in their order.
//! - **S3** Before Data or SrcAvail the peer answers 0 to all adverts that it holds. It accepts
//!   none from then on until this event is sent.
//! - **S4** It writes, then answers with the number of bytes written. If the buffer is larger, the
//!   answer is *short*: it is an event, and ends all later adverts, which are answered 0.
//! - **S5** A payload event ends all outstanding adverts: their remote keys are invalidated, then
//!   the reader returns. On a signal SinkAvailCancel is sent, and the reader waits for all answers.
//!   SinkCancelAck is not used.
//!
//! This file implements the sender's side, [`super::sink`] the reader's.

use super::{
    advert::{
        check_range,
        limit,
        ADVERTS_MAX, //
    },
    hello::Features,
    ring::Ring,
    violation::Violation, //
};

/// The payload events of a direction, modulo 2^32. Both sides count from the start of the
/// connection, also before they use any advert.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct PayloadEvents(u32);

impl PayloadEvents {
    /// The count at the start of a connection.
    pub const fn new() -> Self {
        Self(0)
    }

    /// Counts another event.
    pub const fn note(&mut self) {
        self.0 = self.0.wrapping_add(1);
    }

    /// The number on the wire.
    pub const fn count(self) -> u32 {
        self.0
    }
}

/// An RDMA Write to post.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Write {
    /// The remote key.
    pub rkey: u32,
    /// The remote address.
    pub addr: u64,
    /// Bytes, at least 1.
    pub len: u32,
}

/// The state of a peer's sink advert.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
enum Target {
    /// Bytes to write.
    Accepted { rkey: u32, addr: u64, len: u32 },
    /// Its answer is due, with this number of bytes.
    Answer(u32),
}

/// The sink adverts of the peer, oldest first.
///
/// # Invariants
///
/// At most `max` targets. All accepted ones have come since the last event: the next bytes of the
/// stream may be written to the first of them.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SinkWriter<const N: usize = ADVERTS_MAX> {
    targets: Ring<Target, N>,
    events: PayloadEvents,
    max: u8,
    /// Whether an advert came after the last cancel.
    cancellable: bool,
    /// Whether accepted adverts were declined before an event (S3) that was not sent yet. Until it
    /// is sent, further adverts are declined, too: they may be of the same receive, and their bytes
    /// would be at the wrong position.
    closed: bool,
}

impl<const N: usize> SinkWriter<N> {
    /// No adverts. `max_adverts` is the number that this side has offered to hold, at most `N`;
    /// `events` are those sent so far.
    pub const fn new(max_adverts: u8, features: Features, events: PayloadEvents) -> Self {
        Self {
            targets: Ring::new(),
            events,
            max: limit(max_adverts, features),
            cancellable: false,
            closed: false,
        }
    }

    /// Handles a SinkAvail; returns whether it is accepted (S2). Otherwise its answer is due.
    ///
    /// # Errors
    ///
    /// [`Violation::BadBody`] for an empty advert or one that exceeds the address space,
    /// [`Violation::TooManyAdverts`].
    pub fn on_advert(
        &mut self,
        len: u32,
        rkey: u32,
        addr: u64,
        count: u32,
    ) -> Result<bool, Violation> {
        check_range(len, addr)?;
        if self.targets.len() >= usize::from(self.max) {
            return Err(Violation::TooManyAdverts);
        }
        let accepted = count == self.events.count() && !self.closed;
        let target = if accepted {
            Target::Accepted { rkey, addr, len }
        } else {
            Target::Answer(0)
        };
        self.targets
            .push(target)
            .map_err(|_| Violation::TooManyAdverts)?;
        self.cancellable = true;
        Ok(accepted)
    }

    /// Handles a SinkAvailCancel: the answers to all adverts are due.
    ///
    /// # Errors
    ///
    /// [`Violation::NothingToCancel`] if no advert came since the last cancel.
    pub fn on_cancel(&mut self) -> Result<(), Violation> {
        if !self.cancellable {
            return Err(Violation::NothingToCancel);
        }
        self.cancellable = false;
        // Adverts of the next receive come behind the answers.
        self.decline_all();
        Ok(())
    }

    /// The number of bytes that may be written: the size of the first accepted advert, or 0.
    pub fn room(&self) -> u32 {
        self.targets
            .iter()
            .find_map(|target| match *target {
                Target::Accepted { len, .. } => Some(len),
                Target::Answer(_) => None,
            })
            .unwrap_or(0)
    }

    /// Returns a Write of at most `max_bytes`, which must be the next bytes of the stream to be
    /// posted; `None` if no advert is accepted. Its answer is due behind it; no fence is needed. If
    /// it does not fill the buffer, all other adverts are declined (S4).
    pub fn write(&mut self, max_bytes: u32) -> Option<Write> {
        if max_bytes == 0 {
            return None;
        }
        let accepted = self.targets.iter_mut().find_map(|target| match *target {
            Target::Accepted { rkey, addr, len } => Some((target, rkey, addr, len)),
            Target::Answer(_) => None,
        });
        let (target, rkey, addr, room) = accepted?;
        let len = room.min(max_bytes);
        *target = Target::Answer(len);
        if len < room {
            // INVARIANT: an event, and no advert is accepted any more.
            self.note_event();
            self.decline_all();
        }
        Some(Write { rkey, addr, len })
    }

    /// Declines all accepted adverts: their answers are due. Call before payload is sent other than
    /// by a Write (S3), but only when there are credits for it.
    pub fn decline(&mut self) {
        self.closed |= self.room() > 0;
        self.decline_all();
    }

    fn decline_all(&mut self) {
        for target in self.targets.iter_mut() {
            if let Target::Accepted { .. } = target {
                *target = Target::Answer(0);
            }
        }
    }

    /// Records Data with payload, or a SrcAvail, which must be the next message to be sent. Returns
    /// `false`, and records nothing, if adverts must be answered first (S3).
    #[must_use]
    pub fn note_payload(&mut self) -> bool {
        let may = self.targets.is_empty();
        if may {
            self.note_event();
        }
        may
    }

    fn note_event(&mut self) {
        self.events.note();
        self.closed = false;
    }

    /// Whether [`SinkWriter::next_answer`] has an answer.
    pub fn has_answer(&self) -> bool {
        matches!(self.targets.first(), Some(Target::Answer(_)))
    }

    /// Returns the number of bytes of the next RdmaWrCompl, which must be the next message to be
    /// sent: ensure that there are credits. `None` if none is due.
    pub fn next_answer(&mut self) -> Option<u32> {
        match *self.targets.first()? {
            Target::Answer(bytes) => {
                self.targets.pop();
                Some(bytes)
            }
            Target::Accepted { .. } => None,
        }
    }

    /// Whether every advert was answered.
    pub const fn is_idle(&self) -> bool {
        self.targets.is_empty()
    }

    /// The events sent so far.
    pub const fn events(&self) -> PayloadEvents {
        self.events
    }
}
