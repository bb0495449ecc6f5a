// SPDX-License-Identifier: GPL-2.0

//! Sink adverts of this side: buffers of waiting readers that the peer writes to.
//!
//! The rules S1 to S5 are those of [`super::sink_writer`]. A buffer that was returned to its reader
//! stays in the queue until its answer comes, which can then only be "nothing written".

use super::{
    advert::{
        limit,
        OwnCancel,
        ADVERTS_MAX, //
    },
    hello::Features,
    ring::Ring,
    sink_writer::PayloadEvents,
    violation::Violation, //
};

/// Why a SinkAvail or its cancel may not be sent. It is not an error of either side.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum SinkHold {
    /// The peer can hold no further advert.
    Full,
    /// A buffer of no bytes.
    Empty,
    /// Received bytes wait to be read (S1).
    QueueNotEmpty,
    /// A cancel is not yet answered.
    Cancelling,
    /// There is nothing to cancel.
    NothingOutstanding,
}

/// A buffer that is no longer advertised: its remote key must be invalidated, unless the peer has
/// done so, then its pages are released (A4 of [`super::source`]).
#[must_use = "its memory must be released (A4)"]
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Returned<T> {
    /// Its bytes.
    pub len: u32,
    /// The number of bytes that the peer has written to its start.
    pub bytes: u32,
    /// The reader's data.
    pub owner: T,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Buffer<T> {
    len: u32,
    /// `None` after it was returned: its answer can only be 0.
    owner: Option<T>,
}

/// The outstanding sink adverts of a side, oldest first, each with a `T` of its reader.
///
/// # Invariants
///
/// - At most `max` adverts wait for their answer.
/// - If a buffer is returned, all earlier ones are, too: the buffers that still have an owner are
///   the last ones.
/// - While cancelling, at least one has an owner.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SinkAdverts<T, const N: usize = ADVERTS_MAX> {
    buffers: Ring<Buffer<T>, N>,
    events: PayloadEvents,
    max: u8,
    cancel: OwnCancel,
}

impl<T, const N: usize> SinkAdverts<T, N> {
    /// No adverts, towards a peer that can hold `max_adverts` and from which `events` were received
    /// so far.
    pub const fn new(max_adverts: u8, features: Features, events: PayloadEvents) -> Self {
        Self {
            buffers: Ring::new(),
            events,
            max: limit(max_adverts, features),
            cancel: OwnCancel::None,
        }
    }

    /// Records a SinkAvail for a buffer of `len` bytes, which must be sent next; returns its
    /// `count`. `queue_empty` says that all received bytes were read, source adverts included;
    /// their reports may still be due.
    ///
    /// # Errors
    ///
    /// The reason why not, and `owner`.
    pub fn post(&mut self, queue_empty: bool, len: u32, owner: T) -> Result<u32, (SinkHold, T)> {
        if len == 0 {
            return Err((SinkHold::Empty, owner));
        }
        if !queue_empty {
            return Err((SinkHold::QueueNotEmpty, owner));
        }
        if let Err(hold) = self.may_post() {
            return Err((hold, owner));
        }
        let buffer = Buffer {
            len,
            owner: Some(owner),
        };
        match self.buffers.push(buffer) {
            Err(Buffer {
                owner: Some(owner), ..
            }) => Err((SinkHold::Full, owner)),
            _ => Ok(self.events.count()),
        }
    }

    /// Whether [`SinkAdverts::post`] would accept a SinkAvail with at least one byte when all
    /// received bytes were read.
    ///
    /// # Errors
    ///
    /// The reason why not.
    pub fn may_post(&self) -> Result<(), SinkHold> {
        if self.cancel != OwnCancel::None {
            Err(SinkHold::Cancelling)
        } else if self.buffers.len() >= usize::from(self.max) || self.buffers.is_full() {
            Err(SinkHold::Full)
        } else {
            Ok(())
        }
    }

    /// Records Data with payload, or a SrcAvail: all buffers are returned, oldest first (S5).
    pub fn on_payload(&mut self, give_back: impl FnMut(Returned<T>)) {
        self.events.note();
        self.return_all(give_back);
    }

    /// Handles an RdmaWrCompl of `bytes`, which is about the oldest advert. This buffer is
    /// returned, unless it was returned before; if it is not full, all others are returned, too.
    ///
    /// # Errors
    ///
    /// [`Violation::NoAnswerDue`] if none is outstanding, [`Violation::AdvertOverrun`] for more
    /// bytes than the buffer has, [`Violation::WriteVoided`] for bytes written to a buffer that was
    /// already returned.
    pub fn on_write_completion(
        &mut self,
        bytes: u32,
        mut give_back: impl FnMut(Returned<T>),
    ) -> Result<(), Violation> {
        let oldest = self.buffers.first().ok_or(Violation::NoAnswerDue)?;
        if bytes > oldest.len {
            return Err(Violation::AdvertOverrun);
        }
        if bytes > 0 && oldest.owner.is_none() {
            return Err(Violation::WriteVoided);
        }
        let len = oldest.len;
        let short = bytes > 0 && bytes < len;
        if let Some(owner) = self.buffers.pop().and_then(|buffer| buffer.owner) {
            give_back(Returned { len, bytes, owner });
        }
        if short {
            self.events.note();
            self.return_all(give_back);
        }
        if !self.is_live() {
            self.cancel = OwnCancel::None;
        }
        Ok(())
    }

    /// Takes the buffers back because of a signal or a time-out: SinkAvailCancel is due, until all
    /// buffers are returned. They are returned one by one as before, when their answers come.
    ///
    /// # Errors
    ///
    /// [`SinkHold::Cancelling`] if a cancel is pending, [`SinkHold::NothingOutstanding`] if all
    /// were returned.
    pub fn cancel(&mut self) -> Result<(), SinkHold> {
        if self.cancel != OwnCancel::None {
            return Err(SinkHold::Cancelling);
        }
        if !self.is_live() {
            return Err(SinkHold::NothingOutstanding);
        }
        self.cancel = OwnCancel::Due;
        Ok(())
    }

    /// Whether SinkAvailCancel must be sent.
    pub fn is_cancel_due(&self) -> bool {
        self.cancel.is_due()
    }

    /// Records that the SinkAvailCancel that was due is sent.
    pub fn cancel_sent(&mut self) {
        self.cancel.sent();
    }

    /// Called when the connection has ended and its queues are empty, so nothing writes any more:
    /// returns all buffers, oldest first.
    pub fn abort(&mut self, give_back: impl FnMut(Returned<T>)) {
        self.return_all(give_back);
        while self.buffers.pop().is_some() {}
    }

    /// Whether the peer may be writing.
    pub fn is_live(&self) -> bool {
        self.buffers.iter().any(|buffer| buffer.owner.is_some())
    }

    /// Adverts that wait for their answer, returned or not.
    pub const fn unanswered(&self) -> usize {
        self.buffers.len()
    }

    /// The adverts that the peer may write to, oldest first: their size in bytes, and the reader's
    /// data.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let buffers = self.buffers.iter();
        buffers.filter_map(|buffer| Some((buffer.len, buffer.owner.as_ref()?)))
    }

    /// The events received so far.
    pub const fn events(&self) -> PayloadEvents {
        self.events
    }

    fn return_all(&mut self, mut give_back: impl FnMut(Returned<T>)) {
        for buffer in self.buffers.iter_mut() {
            if let Some(owner) = buffer.owner.take() {
                let len = buffer.len;
                give_back(Returned {
                    len,
                    bytes: 0,
                    owner,
                });
            }
        }
        self.cancel = OwnCancel::None;
    }
}
