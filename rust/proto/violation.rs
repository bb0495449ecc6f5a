// SPDX-License-Identifier: GPL-2.0

//! Every way in which a peer may break the protocol, by name.
//!
//! A violation aborts the connection (or refuses it, while it is being set
//! up) and is counted under its name.

/// A violation of the protocol by a peer.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Violation {
    /// Fewer bytes than the header, or than the fields that must follow it.
    ShortMessage,
    /// `BSDH.len` is not the number of received bytes.
    LengthMismatch,
    /// A message identifier that the protocol does not have.
    UnknownMid,
    /// Flag bits that are reserved, or have no meaning for this message.
    BadFlags,
    /// `BSDH.mseq` is not the next number of the sequence.
    BadSequence,
    /// `BSDH.mseq_ack` acknowledges a message that was never sent, or less than before.
    BadAck,
    /// A message for which this side has announced no receive.
    CreditOverrun,
    /// The credit limit (`mseq_ack + bufs`) went backwards.
    CreditShrunk,
    /// Fewer receives announced at set-up than the credit rules require.
    TooFewBuffers,
    /// The private data of the CM is not from an SDP implementation.
    BadMagic,
    /// An SDP implementation of another version.
    BadVersion,
    /// The peer offers to hold no advert at all.
    NoAdverts,
    /// A receive size outside the permitted range.
    BadReceiveSize,
    /// An answer with features that were not offered.
    BadFeatures,
    /// A message that may not arrive in the connection's state.
    WrongState,
    /// A body whose length or content is invalid for its message.
    BadBody,
    /// A message of a feature that was not agreed on, or one that is not allowed in the stream.
    UnexpectedMid,
    /// An answer to a request that was not made.
    NoAnswerDue,
    /// More adverts at a time than were agreed on.
    TooManyAdverts,
    /// A completion reports more bytes than the advert had left.
    AdvertOverrun,
    /// An invalidation of a remote key that is not the expected one.
    WrongKeyInvalidated,
    /// An RdmaRdCompl that reports no bytes.
    EmptyCompletion,
    /// A cancel without an advert since the previous cancel.
    NothingToCancel,
    /// A cancel of source adverts that payload follows in the stream.
    CancelBehindPayload,
    /// Payload, or the end of the stream, before the answer to a cancel.
    PayloadDuringCancel,
    /// Payload behind an unread source advert, in Combined mode.
    PayloadBehindAdvert,
    /// Bytes written to a sink advert that had ended.
    WriteVoided,
    /// Receives that the peer had to use up and did not.
    ReceivesNotUsedUp,
}

impl Violation {
    /// The number of violations.
    pub const COUNT: usize = Self::ALL.len();

    /// All violations, in the order of [`Violation::index`].
    pub const ALL: [Self; 28] = [
        Self::ShortMessage,
        Self::LengthMismatch,
        Self::UnknownMid,
        Self::BadFlags,
        Self::BadSequence,
        Self::BadAck,
        Self::CreditOverrun,
        Self::CreditShrunk,
        Self::TooFewBuffers,
        Self::BadMagic,
        Self::BadVersion,
        Self::NoAdverts,
        Self::BadReceiveSize,
        Self::BadFeatures,
        Self::WrongState,
        Self::BadBody,
        Self::UnexpectedMid,
        Self::NoAnswerDue,
        Self::TooManyAdverts,
        Self::AdvertOverrun,
        Self::WrongKeyInvalidated,
        Self::EmptyCompletion,
        Self::NothingToCancel,
        Self::CancelBehindPayload,
        Self::PayloadDuringCancel,
        Self::PayloadBehindAdvert,
        Self::WriteVoided,
        Self::ReceivesNotUsedUp,
    ];

    /// The index of this violation in [`Violation::ALL`], for counters.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name in counters and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ShortMessage => "ShortMessage",
            Self::LengthMismatch => "LengthMismatch",
            Self::UnknownMid => "UnknownMid",
            Self::BadFlags => "BadFlags",
            Self::BadSequence => "BadSequence",
            Self::BadAck => "BadAck",
            Self::CreditOverrun => "CreditOverrun",
            Self::CreditShrunk => "CreditShrunk",
            Self::TooFewBuffers => "TooFewBuffers",
            Self::BadMagic => "BadMagic",
            Self::BadVersion => "BadVersion",
            Self::NoAdverts => "NoAdverts",
            Self::BadReceiveSize => "BadReceiveSize",
            Self::BadFeatures => "BadFeatures",
            Self::WrongState => "WrongState",
            Self::BadBody => "BadBody",
            Self::UnexpectedMid => "UnexpectedMid",
            Self::NoAnswerDue => "NoAnswerDue",
            Self::TooManyAdverts => "TooManyAdverts",
            Self::AdvertOverrun => "AdvertOverrun",
            Self::WrongKeyInvalidated => "WrongKeyInvalidated",
            Self::EmptyCompletion => "EmptyCompletion",
            Self::NothingToCancel => "NothingToCancel",
            Self::CancelBehindPayload => "CancelBehindPayload",
            Self::PayloadDuringCancel => "PayloadDuringCancel",
            Self::PayloadBehindAdvert => "PayloadBehindAdvert",
            Self::WriteVoided => "WriteVoided",
            Self::ReceivesNotUsedUp => "ReceivesNotUsedUp",
        }
    }
}
