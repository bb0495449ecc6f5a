// SPDX-License-Identifier: GPL-2.0

//! Source adverts of this side: memory of the sender that the peer reads.
//!
//! A SrcAvail marks the position of its bytes in the stream, and the peer reads adverts in the
//! order in which they were sent. The peer reports the bytes that it has read with RdmaRdCompl:
//! once for the whole advert, or in parts that add up.
//!
//! - **A2** Only a send that waits (a synchronous one) takes its adverts back, all unread ones
//!   together, and only if nothing follows them in the stream: the bytes that are taken back are
//!   sent again from there. The answer is one SendSm. Therefore no payload is sent behind a
//!   synchronous advert until it is consumed, not even inside another SrcAvail.
//! - **A3** The adverts of a send that has returned (an asynchronous one) are never taken back:
//!   nobody would send their bytes again. A cancel concerns all adverts, so both kinds are never
//!   outstanding together.
//! - **A4** An ended advert is given back with its sender's data. The caller invalidates its remote
//!   key, unmaps it for DMA and releases its pages, in this order.
//!
//! IBTA Annex A4 calls one advert with nothing behind it Combined mode, and many adverts Pipelined
//! mode. The asynchronous adverts implement AZ-SDP (Balaji et al., CAC 2006), whose GET_COMPLETE is
//! RdmaRdCompl.

use super::{
    advert::{
        limit,
        Id,
        OwnCancel,
        ADVERTS_MAX, //
    },
    hello::Features,
    ring::Ring,
    violation::Violation, //
};

/// Whether the send that posted an advert waits for it.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// The send returns when the bytes were read.
    Synchronous,
    /// The send has returned; its pages are protected instead.
    Asynchronous,
}

/// Why a message may not be sent yet. It is not an error of either side.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum NotYet {
    /// The peer can hold no further advert.
    Full,
    /// An advert of no bytes.
    Empty,
    /// Combined mode: the advert must be consumed first.
    Combined,
    /// A cancel is not yet answered.
    Cancelling,
    /// Payload may not follow a synchronous advert (A2).
    BehindSynchronous,
    /// Adverts of the other kind must be consumed first (A3).
    OtherKind,
    /// There is nothing to cancel.
    NothingOutstanding,
    /// Asynchronous adverts cannot be cancelled (A3).
    NotCancellable,
}

/// The progress of an advert.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum AdvertState {
    /// No bytes of it were reported as read.
    Posted,
    /// A part of its bytes was reported.
    PartlyRead,
    /// It is being taken back; the peer may still report bytes that it has read.
    Cancelling,
}

/// Why an advert ended.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum End {
    /// The peer has read all of it.
    Consumed,
    /// It was taken back.
    Cancelled,
    /// The connection has ended.
    Aborted,
}

/// An outstanding advert.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Advert<T> {
    id: Id,
    kind: Kind,
    len: u32,
    /// Bytes reported as read; less than `len`.
    read: u32,
    owner: T,
}

/// A view of an outstanding advert.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Outstanding<'a, T> {
    /// Its number.
    pub id: Id,
    /// Its kind.
    pub kind: Kind,
    /// Its progress.
    pub state: AdvertState,
    /// Its length in bytes.
    pub len: u32,
    /// Bytes of it that the peer has reported as read.
    pub read: u32,
    /// The sender's data.
    pub owner: &'a T,
}

/// An advert that is no longer outstanding.
#[must_use = "its memory must be released (A4)"]
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Ended<T> {
    /// Its number.
    pub id: Id,
    /// Its kind.
    pub kind: Kind,
    /// Why it ended.
    pub end: End,
    /// Its length in bytes.
    pub len: u32,
    /// The number of its first bytes that the peer has read. The rest is not part of the stream
    /// yet.
    pub read: u32,
    /// The sender's data.
    pub owner: T,
}

/// The effect of an RdmaRdCompl.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Progress<T> {
    /// The oldest advert was read in part.
    Partly {
        /// Its number.
        id: Id,
        /// Bytes of it that are not yet reported as read.
        left: u32,
    },
    /// The oldest advert was consumed.
    Consumed(Ended<T>),
}

/// The outstanding source adverts of a side, oldest first, each with a `T` of its sender.
///
/// # Invariants
///
/// - At most `max` adverts, all of the same kind.
/// - No advert is empty or read completely.
/// - Behind a synchronous advert no payload was sent.
/// - While cancelling all are synchronous, and none is added.
/// - While a cancel is due, at least one is outstanding.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SourceAdverts<T, const N: usize = ADVERTS_MAX> {
    adverts: Ring<Advert<T>, N>,
    next: Id,
    max: u8,
    ordered: bool,
    cancel: OwnCancel,
}

impl<T, const N: usize> SourceAdverts<T, N> {
    /// No adverts, towards a peer that can hold `max_adverts`, on a connection
    /// that agreed on `features`.
    pub const fn new(max_adverts: u8, features: Features) -> Self {
        Self {
            adverts: Ring::new(),
            next: Id::FIRST,
            max: limit(max_adverts, features),
            ordered: features.contains(Features::ORDERED),
            cancel: OwnCancel::None,
        }
    }

    /// Whether a SrcAvail with `inline_bytes` of payload may be sent now.
    ///
    /// # Errors
    ///
    /// What the advert must wait for.
    pub fn may_post(&self, kind: Kind, inline_bytes: u32) -> Result<(), NotYet> {
        let Some(oldest) = self.adverts.first() else {
            return self.not_cancelling();
        };
        self.not_cancelling()?;
        if self.adverts.len() >= usize::from(self.max) || self.adverts.is_full() {
            Err(NotYet::Full)
        } else if oldest.kind != kind {
            Err(NotYet::OtherKind)
        } else if kind == Kind::Synchronous && inline_bytes > 0 {
            Err(NotYet::BehindSynchronous)
        } else {
            Ok(())
        }
    }

    /// Whether payload may be sent now other than in a SrcAvail. The end of the stream also counts
    /// as payload.
    ///
    /// # Errors
    ///
    /// What the payload must wait for.
    pub fn may_send_payload(&self) -> Result<(), NotYet> {
        self.not_cancelling()?;
        match self.adverts.first() {
            None => Ok(()),
            Some(_) if !self.ordered => Err(NotYet::Combined),
            Some(oldest) if oldest.kind == Kind::Synchronous => Err(NotYet::BehindSynchronous),
            Some(_) => Ok(()),
        }
    }

    /// Records a SrcAvail of `len` bytes behind `inline_bytes` of payload, which must be the next
    /// payload to be sent.
    ///
    /// # Errors
    ///
    /// What it must wait for, and `owner`.
    pub fn post(
        &mut self,
        kind: Kind,
        inline_bytes: u32,
        len: u32,
        owner: T,
    ) -> Result<Id, (NotYet, T)> {
        if len == 0 {
            return Err((NotYet::Empty, owner));
        }
        if let Err(hold) = self.may_post(kind, inline_bytes) {
            return Err((hold, owner));
        }
        let id = self.next;
        let advert = Advert {
            id,
            kind,
            len,
            read: 0,
            owner,
        };
        // INVARIANT: `may_post` has checked the number, the kind, the phase and the preceding
        // payload.
        match self.adverts.push(advert) {
            Ok(()) => {
                self.next = id.next();
                Ok(id)
            }
            Err(advert) => Err((NotYet::Full, advert.owner)),
        }
    }

    /// Handles an RdmaRdCompl of `bytes`, which is always about the oldest advert. Reports about
    /// cancelled adverts come before their SendSm.
    ///
    /// # Errors
    ///
    /// [`Violation::EmptyCompletion`] for 0 bytes, [`Violation::NoAnswerDue`] if no advert is
    /// outstanding, [`Violation::AdvertOverrun`] for more bytes than it had left.
    pub fn on_read_completion(&mut self, bytes: u32) -> Result<Progress<T>, Violation> {
        if bytes == 0 {
            return Err(Violation::EmptyCompletion);
        }
        let oldest = self.adverts.first_mut().ok_or(Violation::NoAnswerDue)?;
        let left = oldest
            .len
            .saturating_sub(oldest.read)
            .checked_sub(bytes)
            .ok_or(Violation::AdvertOverrun)?;
        oldest.read = oldest.len.saturating_sub(left);
        if left > 0 {
            return Ok(Progress::Partly {
                id: oldest.id,
                left,
            });
        }
        // INVARIANT: an advert that was read completely leaves the queue.
        let consumed = self.pop(End::Consumed).ok_or(Violation::NoAnswerDue)?;
        if self.adverts.is_empty() && self.cancel.is_due() {
            self.cancel = OwnCancel::None;
        }
        Ok(Progress::Consumed(consumed))
    }

    /// Takes all adverts back: SrcAvailCancel is due (A2). If all adverts are read before it is
    /// sent, it is not due any more.
    ///
    /// They stay outstanding until [`SourceAdverts::on_send_sm`], because the peer may be reading.
    ///
    /// # Errors
    ///
    /// [`NotYet::Cancelling`] if a cancel is pending, [`NotYet::NothingOutstanding`], or
    /// [`NotYet::NotCancellable`] (A3).
    pub fn cancel(&mut self) -> Result<(), NotYet> {
        self.not_cancelling()?;
        let oldest = self.adverts.first().ok_or(NotYet::NothingOutstanding)?;
        if oldest.kind != Kind::Synchronous {
            return Err(NotYet::NotCancellable);
        }
        // INVARIANT: all adverts have the kind of the oldest one.
        self.cancel = OwnCancel::Due;
        Ok(())
    }

    /// Whether SrcAvailCancel must be sent.
    pub fn is_cancel_due(&self) -> bool {
        self.cancel.is_due()
    }

    /// Records that the SrcAvailCancel that was due is sent.
    pub fn cancel_sent(&mut self) {
        self.cancel.sent();
    }

    /// Handles the SendSm that answers the cancel, and gives back the adverts that are still
    /// outstanding, oldest first. There may be none, if the peer had read all of them. Only the
    /// first can be partly read.
    ///
    /// # Errors
    ///
    /// [`Violation::NoAnswerDue`] if no cancel was sent.
    pub fn on_send_sm(&mut self, give_back: impl FnMut(Ended<T>)) -> Result<(), Violation> {
        if self.cancel != OwnCancel::Sent {
            return Err(Violation::NoAnswerDue);
        }
        self.cancel = OwnCancel::None;
        self.end_all(End::Cancelled, give_back);
        Ok(())
    }

    /// Called when the connection has ended and its queues are empty, so nothing reads any more:
    /// gives back the outstanding adverts, oldest first.
    pub fn abort(&mut self, give_back: impl FnMut(Ended<T>)) {
        self.cancel = OwnCancel::None;
        self.end_all(End::Aborted, give_back);
    }

    /// The outstanding adverts, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = Outstanding<'_, T>> {
        self.adverts.iter().map(|advert| Outstanding {
            id: advert.id,
            kind: advert.kind,
            state: match self.cancel {
                OwnCancel::Due | OwnCancel::Sent => AdvertState::Cancelling,
                OwnCancel::None if advert.read > 0 => AdvertState::PartlyRead,
                OwnCancel::None => AdvertState::Posted,
            },
            len: advert.len,
            read: advert.read,
            owner: &advert.owner,
        })
    }

    /// Whether no advert is outstanding and no answer is awaited.
    pub fn is_idle(&self) -> bool {
        self.adverts.is_empty() && self.cancel == OwnCancel::None
    }

    fn not_cancelling(&self) -> Result<(), NotYet> {
        match self.cancel {
            OwnCancel::None => Ok(()),
            OwnCancel::Due | OwnCancel::Sent => Err(NotYet::Cancelling),
        }
    }

    fn pop(&mut self, end: End) -> Option<Ended<T>> {
        self.adverts.pop().map(|advert| Ended {
            id: advert.id,
            kind: advert.kind,
            end,
            len: advert.len,
            read: advert.read,
            owner: advert.owner,
        })
    }

    fn end_all(&mut self, end: End, mut give_back: impl FnMut(Ended<T>)) {
        while let Some(ended) = self.pop(end) {
            give_back(ended);
        }
    }
}
