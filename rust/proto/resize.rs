// SPDX-License-Identifier: GPL-2.0

//! The size of receives, which grows when a sender has much to send, and shrinks
//! when the connection is idle.
//!
//! The sender asks with ChRcvBuf. The receiver posts larger receives from then
//! on, and answers with ChRcvBufAck:
//!
//! - **R1** The answer goes when the last receive of the former size is used.
//!   Receives are used in the order in which they were posted, so that every
//!   message sent after the answer has come meets a receive of the new size.
//! - **R2** A sender asks one question at a time. An answer without a question
//!   is a violation, unless its size is smaller than before.
//!
//! Where both sides have [`Features::SHRINK`](super::hello::Features::SHRINK), the
//! receiver may send ChRcvBufAck with at most half of the former size at any time,
//! and may answer a question with the former size although it has posted larger
//! receives. Without it, receives neither grow nor shrink.
//!
//! - **R3** The receiver sends ChRcvBufAck before it posts the first of the
//!   smaller receives. The credits for the smaller receives come behind it, so
//!   that every message sent before it has come meets one of the larger.
//! - **R4** When ChRcvBufAck comes with a size that is not larger, the sender
//!   uses up as many receives as it has credits, with messages without payload
//!   where it has nothing to send. It keeps the last credit for updates (rule C1
//!   of [`super::credits`]).

use super::violation::Violation;

/// What is left of a change of our receives.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
enum Change {
    /// The peer knows the size.
    Done,
    /// So many receives of the former, smaller size are posted.
    UsingUp { old_left: u32 },
    /// The peer is to be told the size.
    Answer,
    /// The peer is to be told that this size, smaller than that of the last receives, is the next one.
    Shrink { bytes: u32 },
}

/// The receives that we post.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct OwnReceives {
    bytes: u32,
    /// The size that the peer knows.
    told_bytes: u32,
    change: Change,
    /// Posted receives that the peer has to use up, as larger ones are among them (R4).
    larger_left: u32,
}

impl OwnReceives {
    /// Of a new connection. The peer is told the size by Hello or HelloAck.
    pub const fn new(bytes: u32) -> Self {
        Self {
            bytes,
            told_bytes: bytes,
            change: Change::Done,
            larger_left: 0,
        }
    }

    /// Payload that a receive which is posted now takes.
    pub const fn bytes(&self) -> u32 {
        self.bytes
    }

    /// A growth that has begun is to be taken back.
    const fn is_taken_back(&self) -> bool {
        matches!(self.change, Change::Shrink { .. }) && self.bytes > self.told_bytes
    }

    /// The peer asks for larger receives, and may have them: those posted from now on take `bytes`,
    /// and `posted` are posted. A size that is not larger changes nothing, and neither does the question
    /// of a peer that has larger receives to use up.
    pub const fn grow(&mut self, bytes: u32, posted: u32) {
        if bytes > self.bytes && self.larger_left == 0 && !self.is_taken_back() {
            self.bytes = bytes;
            self.change = match posted {
                0 => Change::Answer,
                old_left => Change::UsingUp { old_left },
            };
        }
    }

    /// The peer's question is to be answered, whatever [`grow`](Self::grow) made of it.
    pub const fn owe_answer(&mut self) {
        if !matches!(self.change, Change::UsingUp { .. }) && !self.is_taken_back() {
            self.change = Change::Answer;
        }
    }

    /// The peer agreed on it, and sends nothing: receives shrink to `bytes` with the next ChRcvBufAck. A
    /// growth that the peer has begun, and does not go on with, is taken back first.
    pub const fn shrink(&mut self, bytes: u32) {
        self.change = match self.change {
            Change::UsingUp { .. } => Change::Shrink {
                bytes: self.told_bytes,
            },
            Change::Done if bytes <= self.told_bytes / 2 && self.larger_left == 0 => {
                Change::Shrink { bytes }
            }
            other => other,
        };
    }

    /// Whether the peer has larger receives to use up (R4).
    pub const fn is_shrinking(&self) -> bool {
        self.larger_left > 0
    }

    /// Of the receives that are posted, those that the peer has to use up.
    pub const fn larger_left(&self) -> u32 {
        self.larger_left
    }

    /// A message came, and with it the oldest receive.
    pub const fn received(&mut self) {
        self.larger_left = self.larger_left.saturating_sub(1);
        if let Change::UsingUp { old_left } = self.change {
            self.change = match old_left {
                0 | 1 => Change::Answer,
                _ => Change::UsingUp {
                    old_left: old_left.saturating_sub(1),
                },
            };
        }
    }

    /// The size that ChRcvBufAck tells, if it is due (R1, R3).
    pub const fn answer(&self) -> Option<u32> {
        match self.change {
            Change::Answer => Some(self.bytes),
            Change::Shrink { bytes } => Some(bytes),
            Change::Done | Change::UsingUp { .. } => None,
        }
    }

    /// ChRcvBufAck was sent, while `posted` receives were posted. Whether receives are smaller from
    /// now on.
    pub const fn answered(&mut self, posted: u32) -> bool {
        let shrinks = match self.change {
            Change::Shrink { bytes } => {
                self.bytes = bytes;
                self.larger_left = posted;
                true
            }
            _ => false,
        };
        self.told_bytes = self.bytes;
        self.change = Change::Done;
        shrinks
    }
}

/// Our question to the peer.
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
    /// Of a peer that has told the size by Hello or HelloAck; 0 before that.
    pub const fn new(bytes: u32) -> Self {
        Self {
            bytes,
            question: Question::None,
            asked_bytes: 0,
            to_use_up: 0,
        }
    }

    /// Payload that each receive of the peer takes.
    pub const fn bytes(&self) -> u32 {
        self.bytes
    }

    /// With so many bytes to send, notes a question if there is reason for one: for receives of
    /// `small_bytes`, or of `large_bytes` if these would be worth it. `again`: enough time has passed
    /// since the last question to ask for the same size once more. Whether the question is due now.
    pub const fn ask(
        &mut self,
        waiting_bytes: u32,
        small_bytes: u32,
        large_bytes: u32,
        again: bool,
    ) -> bool {
        let least = if self.bytes > small_bytes {
            self.bytes
        } else {
            small_bytes
        };
        let wanted = if waiting_bytes >= least.saturating_mul(2) {
            large_bytes
        } else {
            small_bytes
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

    /// The size that ChRcvBuf asks for, if it waits to be sent.
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

    /// ChRcvBufAck has come. `credits` are those of this side with it, if the peer's receives may shrink.
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
                // There may be reason for the question once more.
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

    /// A message was sent, whatever it is.
    pub const fn sent(&mut self) {
        self.to_use_up = self.to_use_up.saturating_sub(1);
    }

    /// Whether a message shall be sent for its receive alone (R4).
    pub const fn has_to_use_up(&self) -> bool {
        self.to_use_up > 0
    }
}
