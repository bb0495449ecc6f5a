// SPDX-License-Identifier: GPL-2.0

//! Source adverts of the peer: memory that this side reads.
//!
//! The adverts wait in stream order, among payload that was received by copy. The caller keeps such
//! payload with the advert that it follows ([`SourceReader::last_unread`]) until the bytes of this
//! advert have arrived. The adverts are read from start to end, one after the other, with several
//! Reads in flight, which finish in the order in which they were posted. After a Read has finished,
//! and never earlier, its bytes are reported to the peer, which then releases its memory.
//!
//! A cancel of the peer (A2 of [`super::source`]) takes back the bytes for which no Read was
//! posted. The Reads in flight finish and are reported, and then one SendSm answers the cancel. A
//! cancel may cross the last report, so a cancel that finds nothing left to take back is answered
//! like any other.
//!
//! The caller decides when to read without a reader, see [`super::pull`].

use super::{
    advert::{
        check_range,
        limit,
        Id,
        ADVERTS_MAX, //
    },
    hello::Features,
    ring::Ring,
    violation::Violation, //
};

/// The maximum number of Reads in flight.
pub const READS_MAX: usize = 16;

/// An advert of the peer.
///
/// # Invariants
///
/// `reported <= done <= taken <= len` and `reported < len`.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
struct Advert {
    id: Id,
    rkey: u32,
    addr: u64,
    /// Bytes, without the cancelled ones.
    len: u32,
    /// Bytes for which a Read was posted.
    taken: u32,
    /// Bytes whose Read has finished.
    done: u32,
    /// Bytes that were reported to the peer.
    reported: u32,
    /// Whether payload follows before the next advert.
    followed: bool,
    /// Whether a part of it was cancelled.
    cut: bool,
}

impl Advert {
    const fn untaken(&self) -> u32 {
        self.len.saturating_sub(self.taken)
    }

    const fn unreported(&self) -> u32 {
        self.done.saturating_sub(self.reported)
    }

    /// Whether some of its bytes have not arrived.
    const fn is_unread(&self) -> bool {
        self.done < self.len
    }
}

/// The memory into which a Read goes.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Destination {
    /// Of the kernel: a receive finds the bytes in the receive queue.
    Kernel,
    /// Of a program: a receive has returned the bytes already, or waits for them.
    Program,
}

/// An RDMA Read to post.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Read {
    /// The advert that it belongs to.
    pub id: Id,
    /// The remote key.
    pub rkey: u32,
    /// The remote address.
    pub addr: u64,
    /// Bytes, at least 1.
    pub len: u32,
}

/// A message that is due to the peer.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Answer {
    /// RdmaRdCompl.
    ReadCompletion {
        /// Bytes read since the last one, at least 1.
        bytes: u32,
        /// The remote key to invalidate with the message, if both sides support this: the advert
        /// was consumed, and will not be read again.
        invalidate: Option<u32>,
    },
    /// SendSm.
    SendSm,
}

/// What a SrcAvailCancel of the peer would find.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
enum Cancel {
    /// No advert has come since the last cancel: there is nothing to take back.
    Nothing,
    /// An advert has come since the last cancel.
    Possible,
    /// A cancel has come and is not answered yet. No advert may come meanwhile.
    Due,
}

/// The source adverts of the peer, in stream order.
///
/// # Invariants
///
/// - At most `max` adverts. Bytes are taken in the order of the stream: behind an advert that is
///   not taken completely, nothing is taken.
/// - `reads` holds the lengths and destinations of the Reads in flight, oldest first. No Read
///   crosses the end of an advert, and together they are the bytes that are taken and not done.
/// - While cancelling, every advert is taken completely.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SourceReader<const N: usize = ADVERTS_MAX, const R: usize = READS_MAX> {
    adverts: Ring<Advert, N>,
    /// What the stream needs of the Reads in flight. The link, which is not known here, counts the
    /// same Reads among the requests of its send queue.
    reads: Ring<(u32, Destination), R>,
    next: Id,
    max: u8,
    ordered: bool,
    cancel: Cancel,
}

impl<const N: usize, const R: usize> SourceReader<N, R> {
    /// No adverts. `max_adverts` is the number that this side has offered to hold, at most `N`;
    /// `features` are those that both sides agreed on.
    pub const fn new(max_adverts: u8, features: Features) -> Self {
        Self {
            adverts: Ring::new(),
            reads: Ring::new(),
            next: Id::FIRST,
            max: limit(max_adverts, features),
            ordered: features.contains(Features::ORDERED),
            cancel: Cancel::Nothing,
        }
    }

    /// Handles the payload of a Data message, if it has any.
    ///
    /// # Errors
    ///
    /// [`Violation::PayloadDuringCancel`] before the peer's cancel is answered,
    /// [`Violation::PayloadBehindAdvert`] in Combined mode if an advert was not
    /// yet consumed.
    pub fn on_data(&mut self, payload_len: u32) -> Result<(), Violation> {
        if payload_len == 0 {
            return Ok(());
        }
        self.not_cancelling()?;
        if !self.ordered && !self.adverts.is_empty() {
            return Err(Violation::PayloadBehindAdvert);
        }
        self.follow();
        Ok(())
    }

    /// Handles a SrcAvail, behind its `inline_bytes` of payload.
    ///
    /// # Errors
    ///
    /// [`Violation::PayloadDuringCancel`] before the peer's cancel is answered,
    /// [`Violation::BadBody`] for an empty advert or one that exceeds the address space,
    /// [`Violation::TooManyAdverts`].
    pub fn on_advert(
        &mut self,
        inline_bytes: u32,
        len: u32,
        rkey: u32,
        addr: u64,
    ) -> Result<Id, Violation> {
        self.not_cancelling()?;
        check_range(len, addr)?;
        if self.adverts.len() >= usize::from(self.max) {
            return Err(Violation::TooManyAdverts);
        }
        if inline_bytes > 0 {
            self.follow();
        }
        let id = self.next;
        self.adverts
            .push(Advert {
                id,
                rkey,
                addr,
                len,
                taken: 0,
                done: 0,
                reported: 0,
                followed: false,
                cut: false,
            })
            .map_err(|_| Violation::TooManyAdverts)?;
        self.next = id.next();
        self.cancel = Cancel::Possible;
        Ok(id)
    }

    /// Handles a DisConn.
    ///
    /// # Errors
    ///
    /// [`Violation::PayloadDuringCancel`] before the peer's cancel is answered.
    pub const fn on_disconn(&self) -> Result<(), Violation> {
        self.not_cancelling()
    }

    /// Returns a Read of at most `max_bytes`, which must be the next to be posted; `None` if no
    /// advert has bytes left or too many Reads are in flight.
    ///
    /// The Read does not reach beyond the end of its advert.
    pub fn take(&mut self, max_bytes: u32, destination: Destination) -> Option<Read> {
        if max_bytes == 0 {
            return None;
        }
        let advert = self.adverts.iter_mut().find(|a| a.untaken() > 0)?;
        let len = advert.untaken().min(max_bytes);
        self.reads.push((len, destination)).ok()?;
        let addr = advert.addr.wrapping_add(u64::from(advert.taken));
        // INVARIANT: `len` is at most what was untaken, and is in `reads`.
        advert.taken = advert.taken.saturating_add(len);
        Some(Read {
            id: advert.id,
            rkey: advert.rkey,
            addr,
            len,
        })
    }

    /// The oldest Read in flight has finished: its bytes have arrived, and it reads no more.
    /// Returns the number of bytes; `None` if no Read is in flight.
    ///
    /// If the caller posts the report directly behind its Read, with a fence, it may call this when
    /// it posts both: the fence makes the report wait.
    pub fn on_read_done(&mut self) -> Option<u32> {
        let (len, _) = self.reads.pop()?;
        let advert = self.adverts.iter_mut().find(|a| a.done < a.taken)?;
        // INVARIANT: the Read was counted in `taken`.
        advert.done = advert.done.saturating_add(len);
        Some(len)
    }

    /// Handles a SrcAvailCancel. Returns the first advert that is taken back, if any: its rest for
    /// which no Read was posted, and all adverts behind it, are no longer part of the stream.
    ///
    /// # Errors
    ///
    /// [`Violation::NothingToCancel`] if no advert came since the last cancel;
    /// [`Violation::CancelBehindPayload`] if payload follows the bytes that would be taken back.
    pub fn on_cancel(&mut self) -> Result<Option<Id>, Violation> {
        if self.cancel != Cancel::Possible {
            return Err(Violation::NothingToCancel);
        }
        let mut unread = self.adverts.iter().filter(|a| a.untaken() > 0);
        let first = unread.next();
        if first.into_iter().chain(unread).any(|a| a.followed) {
            return Err(Violation::CancelBehindPayload);
        }
        let first = first.map(|a| a.id);
        self.cancel = Cancel::Due;
        self.cut();
        Ok(first)
    }

    /// Drops the bytes that are not taken.
    fn cut(&mut self) {
        while let Some(last) = self.adverts.last_mut() {
            if last.untaken() == 0 {
                break;
            }
            // INVARIANT: all that is left is taken; an advert without unreported bytes is removed,
            // so `reported < len`.
            last.len = last.taken;
            last.cut = true;
            if last.reported < last.len {
                break;
            }
            self.adverts.pop_last();
        }
    }

    /// Whether [`SourceReader::next_answer`] has an answer.
    pub fn has_answer(&self, partial: bool) -> bool {
        self.due(partial).is_some()
    }

    /// Returns the next answer, which must be the next message to be sent: ensure that there are
    /// credits. `None` if none is due.
    ///
    /// The report of an advert is due if it was read completely, or up to where it was cancelled;
    /// with `partial` also the report of a partly read advert. The answer to a cancel is due behind
    /// the last report.
    pub fn next_answer(&mut self, partial: bool) -> Option<Answer> {
        let answer = self.due(partial)?;
        match answer {
            Answer::SendSm => self.cancel = Cancel::Nothing,
            Answer::ReadCompletion { bytes, .. } => {
                let oldest = self.adverts.first_mut()?;
                // INVARIANT: `bytes` is `done - reported`, and an advert that is reported
                // completely leaves the queue.
                oldest.reported = oldest.reported.saturating_add(bytes);
                if oldest.reported >= oldest.len {
                    self.adverts.pop();
                }
            }
        }
        Some(answer)
    }

    fn due(&self, partial: bool) -> Option<Answer> {
        let Some(oldest) = self.adverts.first() else {
            return self.is_cancelling().then_some(Answer::SendSm);
        };
        let whole = oldest.done == oldest.len;
        let bytes = oldest.unreported();
        (bytes > 0 && (whole || partial)).then_some(Answer::ReadCompletion {
            bytes,
            invalidate: (whole && !oldest.cut).then_some(oldest.rkey),
        })
    }

    /// Called when the connection has ended and its queues are empty: forgets the adverts, which
    /// will not be read.
    pub fn abort(&mut self) {
        while self.reads.pop().is_some() {}
        while self.adverts.pop().is_some() {}
        self.cancel = Cancel::Nothing;
    }

    /// The last advert, if some of its bytes have not arrived: payload that arrives now follows it
    /// in the stream. Otherwise the payload is the next of the stream.
    pub fn last_unread(&self) -> Option<Id> {
        self.adverts.last().filter(|a| a.is_unread()).map(|a| a.id)
    }

    /// Whether all bytes of this advert, and of those before it, have arrived.
    pub fn has_arrived(&self, id: Id) -> bool {
        !self.adverts.iter().any(|a| a.id == id && a.is_unread())
    }

    /// The number of bytes for which no Read was posted, in the first advert that has such bytes; 0
    /// if no advert has.
    pub fn untaken(&self) -> u32 {
        let mut untaken = self.adverts.iter().map(Advert::untaken);
        untaken.find(|bytes| *bytes > 0).unwrap_or(0)
    }

    /// As [`SourceReader::untaken`], if nothing but Reads into a program's memory comes before
    /// these bytes and after the bytes that have arrived; otherwise 0.
    pub fn next_untaken(&self) -> u32 {
        if self.reads.iter().any(|read| read.1 == Destination::Kernel) {
            return 0;
        }
        for advert in self.adverts.iter().filter(|a| a.is_unread()) {
            if advert.untaken() > 0 {
                return advert.untaken();
            }
            if advert.followed {
                return 0;
            }
        }
        0
    }

    /// Bytes for which no Read was posted yet.
    pub fn untaken_bytes(&self) -> u64 {
        let bytes = self.adverts.iter().map(|a| u64::from(a.untaken()));
        bytes.fold(0, u64::saturating_add)
    }

    /// Whether no advert is left and no answer is owed.
    pub const fn is_idle(&self) -> bool {
        self.adverts.is_empty() && !self.is_cancelling()
    }

    const fn is_cancelling(&self) -> bool {
        matches!(self.cancel, Cancel::Due)
    }

    const fn not_cancelling(&self) -> Result<(), Violation> {
        if self.is_cancelling() {
            Err(Violation::PayloadDuringCancel)
        } else {
            Ok(())
        }
    }

    fn follow(&mut self) {
        if let Some(last) = self.adverts.last_mut() {
            last.followed = true;
        }
    }
}
