// SPDX-License-Identifier: GPL-2.0

//! The size of receives, which grows when a sender has much to send, and shrinks when the
//! connection is idle.
//!
//! The sender asks with ChRcvBuf. The receiver then posts larger receives, and answers with
//! ChRcvBufAck:
//!
//! - **R1** The answer is sent when the last receive of the former size is used. Receives are used
//!   in the order in which they were posted, so every message sent after the answer was received
//!   meets a receive of the new size.
//! - **R2** A sender asks one question at a time. An answer without a question
//!   is a violation, unless its size is smaller than before.
//!
//! Where both sides have [`Features::SHRINK`](super::hello::Features::SHRINK), the
//! receiver may send ChRcvBufAck with at most half of the former size at any time,
//! and may answer a question with the former size although it has posted larger
//! receives. Without it, receives neither grow nor shrink.
//!
//! - **R3** The receiver sends ChRcvBufAck before it posts the first of the smaller receives. The
//!   credits for the smaller receives follow ChRcvBufAck. So every message that the sender has sent
//!   before it receives ChRcvBufAck meets one of the larger receives.
//! - **R4** When ChRcvBufAck arrives with a size that is not larger, the sender uses up as many
//!   receives as it has credits, with messages without payload if it has nothing to send. It keeps
//!   the last credit for updates (rule C1 of [`super::credits`]).

use super::violation::Violation;

/// Payload of a receive while a connection is idle, in bytes: a page.
pub const SMALL_BYTES: u32 = 4096;
/// Payload of a receive when data flows, in bytes.
pub const LARGE_BYTES: u32 = 1 << 17;

/// The progress of a change of this side's receives.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
enum Change {
    /// The peer knows the size.
    Done,
    /// This many receives of the former, smaller size are posted.
    UsingUp { old_left: u32 },
    /// The peer must be told the size.
    Answer,
    /// The peer must be told that the next receives have this size, smaller than that of the last
    /// receives.
    Shrink { bytes: u32 },
}

/// How a peer prevents this side from shrinking its receives.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Stuck {
    /// It does not use up the larger ones (R4).
    NotUsedUp,
    /// It leaves no credit for ChRcvBufAck.
    NotTold,
}

/// The receives that this side posts.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct OwnReceives {
    bytes: u32,
    /// The size that the peer knows.
    told_bytes: u32,
    change: Change,
    /// Posted receives that the peer has to use up, because larger ones are among them (R4).
    larger_left: u32,
    /// The number of consecutive [`checks`](Self::check) that have found a [`Stuck`].
    stuck_checks: u32,
}

impl OwnReceives {
    /// The receives of a new connection. Hello or HelloAck tells the peer the size.
    pub const fn new(bytes: u32) -> Self {
        Self {
            bytes,
            told_bytes: bytes,
            change: Change::Done,
            larger_left: 0,
            stuck_checks: 0,
        }
    }

    /// The payload of a receive that is posted now.
    pub const fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Whether a growth that has begun is being taken back.
    const fn is_taken_back(&self) -> bool {
        matches!(self.change, Change::Shrink { .. }) && self.bytes > self.told_bytes
    }

    /// Grows the receives at the peer's request: receives posted from now on take `bytes`; `posted`
    /// are posted. A size that is not larger changes nothing, and neither does the request of a
    /// peer that still has larger receives to use up.
    pub const fn grow(&mut self, bytes: u32, posted: u32) {
        if bytes > self.bytes && self.larger_left == 0 && !self.is_taken_back() {
            self.bytes = bytes;
            self.change = match posted {
                0 => Change::Answer,
                old_left => Change::UsingUp { old_left },
            };
        }
    }

    /// The peer's request must be answered, whatever the result of [`grow`](Self::grow).
    pub const fn owe_answer(&mut self) {
        if !matches!(self.change, Change::UsingUp { .. }) && !self.is_taken_back() {
            self.change = Change::Answer;
        }
    }

    /// Shrinks the receives to [`SMALL_BYTES`] with the next ChRcvBufAck; the peer has agreed to the
    /// feature and sends nothing. A growth that the peer has begun, but does not continue, is taken
    /// back first.
    pub const fn shrink(&mut self) {
        self.change = match self.change {
            Change::UsingUp { .. } => Change::Shrink {
                bytes: self.told_bytes,
            },
            Change::Done if SMALL_BYTES <= self.told_bytes / 2 && self.larger_left == 0 => {
                Change::Shrink { bytes: SMALL_BYTES }
            }
            other => other,
        };
    }

    /// Whether the peer has larger receives to use up (R4).
    pub const fn is_shrinking(&self) -> bool {
        self.larger_left > 0
    }

    /// The number of posted receives that the peer has to use up.
    pub const fn larger_left(&self) -> u32 {
        self.larger_left
    }

    /// A message has arrived, and has used the oldest receive.
    pub const fn received(&mut self) {
        if self.is_shrinking() {
            self.larger_left = self.larger_left.saturating_sub(1);
            self.stuck_checks = 0;
        }
        if let Change::UsingUp { old_left } = self.change {
            self.change = match old_left {
                0 | 1 => Change::Answer,
                _ => Change::UsingUp {
                    old_left: old_left.saturating_sub(1),
                },
            };
        }
    }

    /// The size in the ChRcvBufAck that is due, if any (R1, R3).
    pub const fn answer(&self) -> Option<u32> {
        match self.change {
            Change::Answer => Some(self.bytes),
            Change::Shrink { bytes } => Some(bytes),
            Change::Done | Change::UsingUp { .. } => None,
        }
    }

    /// Called at regular intervals: whether the peer prevents this side from shrinking its
    /// receives, and for how many intervals. `may_use_up`: the peer has credits for messages
    /// without payload.
    pub const fn check(&mut self, may_use_up: bool) -> Option<(Stuck, u32)> {
        let stuck = if self.is_shrinking() && may_use_up {
            Stuck::NotUsedUp
        } else if self.answer().is_some() {
            Stuck::NotTold
        } else {
            self.stuck_checks = 0;
            return None;
        };
        self.stuck_checks = self.stuck_checks.saturating_add(1);
        Some((stuck, self.stuck_checks))
    }

    /// ChRcvBufAck was sent, while `posted` receives were posted. Returns whether receives are
    /// smaller from now on.
    pub const fn answered(&mut self, posted: u32) -> bool {
        let shrinks = match self.change {
            Change::Shrink { bytes } => {
                self.bytes = bytes;
                self.larger_left = posted;
                self.stuck_checks = 0;
                true
            }
            _ => false,
        };
        self.told_bytes = self.bytes;
        self.change = Change::Done;
        shrinks
    }
}

/// The request of this side to the peer.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
enum Question {
    None,
    /// ChRcvBuf waits to be sent, with this size.
    Due(u32),
    /// ChRcvBuf was sent.
    Asked,
}

/// The peer's receives.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct PeerReceives {
    bytes: u32,
    question: Question,
    /// The size of the last question.
    asked_bytes: u32,
    /// Messages to send until the peer has no larger receives left (R4).
    to_use_up: u32,
}

impl PeerReceives {
    /// The receives of a peer that has told the size by Hello or HelloAck; 0 before that.
    pub const fn new(bytes: u32) -> Self {
        Self {
            bytes,
            question: Question::None,
            asked_bytes: 0,
            to_use_up: 0,
        }
    }

    /// The payload of each receive of the peer.
    pub const fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Decides whether to ask for larger receives, with `waiting_bytes` to send: for receives of
    /// [`SMALL_BYTES`], or of [`LARGE_BYTES`] if these would be worth it. `again`: enough time has
    /// passed since the last request to ask for the same size once more. Returns whether the
    /// request is due now.
    pub const fn ask(&mut self, waiting_bytes: u32, again: bool) -> bool {
        let least = if self.bytes > SMALL_BYTES {
            self.bytes
        } else {
            SMALL_BYTES
        };
        let wanted = if waiting_bytes >= least.saturating_mul(2) {
            LARGE_BYTES
        } else {
            SMALL_BYTES
        };
        let is_useful = waiting_bytes > self.bytes && self.bytes < wanted;
        let may_ask = matches!(self.question, Question::None) && self.to_use_up == 0;
        if !is_useful || !may_ask || (self.asked_bytes >= wanted && !again) {
            return false;
        }
        self.asked_bytes = wanted;
        self.question = Question::Due(wanted);
        true
    }

    /// The size in the ChRcvBuf that waits to be sent, if any.
    pub const fn question(&self) -> Option<u32> {
        match self.question {
            Question::Due(bytes) => Some(bytes),
            Question::None | Question::Asked => None,
        }
    }

    /// ChRcvBuf was sent.
    pub const fn asked(&mut self) {
        self.question = Question::Asked;
    }

    /// ChRcvBufAck has arrived. `credits` are those of this side after it, if the peer's receives
    /// may shrink.
    ///
    /// # Errors
    ///
    /// By R2 [`Violation::NoAnswerDue`] and [`Violation::BadReceiveSize`].
    pub const fn answered(&mut self, bytes: u32, credits: Option<u32>) -> Result<(), Violation> {
        let is_asked = matches!(self.question, Question::Asked);
        match credits {
            Some(_) if bytes < self.bytes && bytes > self.bytes / 2 => {
                return Err(Violation::BadReceiveSize);
            }
            Some(_) if bytes < self.bytes => {
                // The same request may become useful again.
                self.asked_bytes = 0;
            }
            _ if !is_asked => return Err(Violation::NoAnswerDue),
            _ if bytes < self.bytes => return Err(Violation::BadReceiveSize),
            _ => self.question = Question::None,
        }
        if let Some(credits) = credits {
            if bytes <= self.bytes {
                self.to_use_up = credits;
            }
        }
        self.bytes = bytes;
        Ok(())
    }

    /// A message of any kind was sent.
    pub const fn sent(&mut self) {
        self.to_use_up = self.to_use_up.saturating_sub(1);
    }

    /// Whether a message must be sent only to use up a receive (R4).
    pub const fn has_to_use_up(&self) -> bool {
        self.to_use_up > 0
    }
}
