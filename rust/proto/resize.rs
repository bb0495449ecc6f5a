// SPDX-License-Identifier: GPL-2.0

//! The size of receives, which grows when a sender has much to send.
//!
//! The sender asks with ChRcvBuf. The receiver posts larger receives from then
//! on, and answers with ChRcvBufAck:
//!
//! - **R1** The answer goes when the last receive of the former size is used.
//!   Receives are used in the order in which they were posted, so that every
//!   message sent after the answer has come meets a receive of the new size.
//! - **R2** A sender asks one question at a time. An answer without a question
//!   is a violation, and so is one with a smaller size than before.

use super::violation::Violation;

/// What is left of a change of our receives.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
enum Change {
    /// The peer knows the size.
    Done,
    /// So many receives of the former size are posted.
    UsingUp { old_left: u32 },
    /// The peer is to be told the size.
    Answer,
}

/// The receives that we post.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct OwnReceives {
    bytes: u32,
    change: Change,
}

impl OwnReceives {
    /// Of a new connection. The peer is told the size by Hello or HelloAck.
    pub const fn new(bytes: u32) -> Self {
        Self {
            bytes,
            change: Change::Done,
        }
    }

    /// Payload that a receive which is posted now takes.
    pub const fn bytes(&self) -> u32 {
        self.bytes
    }

    /// The peer asks for larger receives, and may have them: those posted from now on take `bytes`,
    /// and `posted` are posted. A size that is not larger changes nothing.
    pub const fn grow(&mut self, bytes: u32, posted: u32) {
        if bytes > self.bytes {
            self.bytes = bytes;
            self.change = match posted {
                0 => Change::Answer,
                old_left => Change::UsingUp { old_left },
            };
        }
    }

    /// The peer's question is to be answered, whatever [`grow`](Self::grow) made of it.
    pub const fn owe_answer(&mut self) {
        if matches!(self.change, Change::Done) {
            self.change = Change::Answer;
        }
    }

    /// A message came, and with it the oldest receive.
    pub const fn received(&mut self) {
        if let Change::UsingUp { old_left } = self.change {
            self.change = match old_left {
                0 | 1 => Change::Answer,
                _ => Change::UsingUp {
                    old_left: old_left.saturating_sub(1),
                },
            };
        }
    }

    /// The size that ChRcvBufAck tells, if the answer is due (R1).
    pub const fn answer(&self) -> Option<u32> {
        match self.change {
            Change::Answer => Some(self.bytes),
            Change::Done | Change::UsingUp { .. } => None,
        }
    }

    /// ChRcvBufAck was sent.
    pub const fn answered(&mut self) {
        self.change = Change::Done;
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
}

impl PeerReceives {
    /// Of a peer that has told the size by Hello or HelloAck; 0 before that.
    pub const fn new(bytes: u32) -> Self {
        Self {
            bytes,
            question: Question::None,
            asked_bytes: 0,
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
        let may_ask = matches!(self.question, Question::None);
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

    /// ChRcvBufAck has come.
    ///
    /// # Errors
    ///
    /// By R2 [`Violation::NoAnswerDue`] and [`Violation::BadReceiveSize`].
    pub const fn answered(&mut self, bytes: u32) -> Result<(), Violation> {
        if !matches!(self.question, Question::Asked) {
            return Err(Violation::NoAnswerDue);
        }
        if bytes < self.bytes {
            return Err(Violation::BadReceiveSize);
        }
        self.question = Question::None;
        self.bytes = bytes;
        Ok(())
    }
}
