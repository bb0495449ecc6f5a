// SPDX-License-Identifier: GPL-2.0

//! The Base Sockets Direct Header, which opens every message (IBTA Annex A4).
//!
//! | offset | field      | type |
//! |--------|------------|------|
//! | 0      | `mid`      | u8   |
//! | 1      | `flags`    | u8   |
//! | 2      | `bufs`     | u16  |
//! | 4      | `len`      | u32  |
//! | 8      | `mseq`     | u32  |
//! | 12     | `mseq_ack` | u32  |
//!
//! All fields are in network byte order.

use super::{
    violation::Violation,
    wire, //
};

/// Bytes of the header on the wire.
pub const BSDH_LEN: usize = 16;

/// [`BSDH_LEN`] as the type of [`Bsdh::len`].
pub const BSDH_LEN_U32: u32 = 16;

/// Flag: the last byte of this Data is urgent.
pub const FLAG_OOB_PRES: u8 = 1;
/// Flag: the sender has an urgent byte that will follow.
pub const FLAG_OOB_PEND: u8 = 2;
/// Flag: the sender asks for pipelined mode.
pub const FLAG_REQ_PIPE: u8 = 4;

/// The message identifier.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Mid {
    /// Opens a connection; in the CM's connection request only.
    Hello = 0x00,
    /// Accepts a connection; in the CM's reply only.
    HelloAck = 0x01,
    /// Half close: no payload follows.
    DisConn = 0x02,
    /// Ends the connection at once.
    AbortConn = 0x03,
    /// Answers SrcAvailCancel: the bytes must be sent by copy instead.
    SendSm = 0x04,
    /// Answers SinkAvail with the number of bytes written.
    RdmaWrCompl = 0x05,
    /// Answers SrcAvail with the number of bytes read.
    RdmaRdCompl = 0x06,
    /// Changes the flow control mode of IBTA's SDP.
    ModeChange = 0x07,
    /// Takes back unread source adverts.
    SrcAvailCancel = 0x08,
    /// Takes back unanswered sink adverts.
    SinkAvailCancel = 0x09,
    /// Answers SinkAvailCancel.
    SinkCancelAck = 0x0a,
    /// Asks for another receive size.
    ChRcvBuf = 0x0b,
    /// Answers ChRcvBuf.
    ChRcvBufAck = 0x0c,
    /// Asks to suspend the connection.
    Suspend = 0x0d,
    /// Answers Suspend.
    SuspendAck = 0x0e,
    /// Sink advert: memory that the peer may write to.
    SinkAvail = 0xfd,
    /// Source advert: memory that the peer may read from.
    SrcAvail = 0xfe,
    /// Bytes of the stream; without any, a pure credit update.
    Data = 0xff,
}

impl Mid {
    /// The number of message identifiers.
    pub const COUNT: usize = Self::ALL.len();

    /// All message identifiers, in the order of [`Mid::index`].
    pub const ALL: [Self; 18] = [
        Self::Hello,
        Self::HelloAck,
        Self::DisConn,
        Self::AbortConn,
        Self::SendSm,
        Self::RdmaWrCompl,
        Self::RdmaRdCompl,
        Self::ModeChange,
        Self::SrcAvailCancel,
        Self::SinkAvailCancel,
        Self::SinkCancelAck,
        Self::ChRcvBuf,
        Self::ChRcvBufAck,
        Self::Suspend,
        Self::SuspendAck,
        Self::SinkAvail,
        Self::SrcAvail,
        Self::Data,
    ];

    /// Reads the identifier from its byte on the wire; `None` for an unknown message.
    pub const fn from_wire(byte: u8) -> Option<Self> {
        Some(match byte {
            0x00 => Self::Hello,
            0x01 => Self::HelloAck,
            0x02 => Self::DisConn,
            0x03 => Self::AbortConn,
            0x04 => Self::SendSm,
            0x05 => Self::RdmaWrCompl,
            0x06 => Self::RdmaRdCompl,
            0x07 => Self::ModeChange,
            0x08 => Self::SrcAvailCancel,
            0x09 => Self::SinkAvailCancel,
            0x0a => Self::SinkCancelAck,
            0x0b => Self::ChRcvBuf,
            0x0c => Self::ChRcvBufAck,
            0x0d => Self::Suspend,
            0x0e => Self::SuspendAck,
            0xfd => Self::SinkAvail,
            0xfe => Self::SrcAvail,
            0xff => Self::Data,
            _ => return None,
        })
    }

    /// The byte on the wire.
    pub const fn wire(self) -> u8 {
        self as u8
    }

    /// A dense number from 0 to [`Mid::COUNT`] - 1, for counters.
    pub const fn index(self) -> usize {
        match self {
            Self::SinkAvail => 15,
            Self::SrcAvail => 16,
            Self::Data => 17,
            low => low as usize,
        }
    }

    /// The name of the message.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hello => "Hello",
            Self::HelloAck => "HelloAck",
            Self::DisConn => "DisConn",
            Self::AbortConn => "AbortConn",
            Self::SendSm => "SendSm",
            Self::RdmaWrCompl => "RdmaWrCompl",
            Self::RdmaRdCompl => "RdmaRdCompl",
            Self::ModeChange => "ModeChange",
            Self::SrcAvailCancel => "SrcAvailCancel",
            Self::SinkAvailCancel => "SinkAvailCancel",
            Self::SinkCancelAck => "SinkCancelAck",
            Self::ChRcvBuf => "ChRcvBuf",
            Self::ChRcvBufAck => "ChRcvBufAck",
            Self::Suspend => "Suspend",
            Self::SuspendAck => "SuspendAck",
            Self::SinkAvail => "SinkAvail",
            Self::SrcAvail => "SrcAvail",
            Self::Data => "Data",
        }
    }

    /// The class of a message of this kind in the credit rules. For Data this is the class of a
    /// message with payload; see [`Bsdh::class`].
    pub const fn class(self) -> Class {
        match self {
            Self::Data | Self::SrcAvail | Self::SinkAvail => Class::Payload,
            Self::AbortConn => Class::Update,
            _ => Class::Control,
        }
    }

    /// Whether a message of this kind may keep the receive in which it arrived until a program
    /// reads it. For Data, see [`Bsdh::is_payload`]: Data may be a pure credit update.
    pub const fn is_payload(self) -> bool {
        matches!(self, Self::Data | Self::SrcAvail)
    }
}

/// The classes of messages in the credit rules (rule C1 of [`super::credits`]).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Class {
    /// Data, SrcAvail and SinkAvail: they can wait.
    Payload,
    /// Messages that the peer waits for, or the end of the stream.
    Control,
    /// A pure credit update, or AbortConn.
    Update,
}

impl Class {
    /// All classes.
    pub const ALL: [Self; 3] = [Self::Payload, Self::Control, Self::Update];

    /// The minimum number of credits for sending a message of this class.
    pub const fn min_credits(self) -> u32 {
        match self {
            Self::Payload => 4,
            Self::Control => 2,
            Self::Update => 1,
        }
    }
}

/// The header of a message.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Bsdh {
    /// The message identifier.
    pub mid: Mid,
    /// `FLAG_*` bits.
    pub flags: u8,
    /// Receives that the sender of this message has posted beyond those that
    /// `mseq_ack` accounts for.
    pub bufs: u16,
    /// Bytes of the message, this header included.
    pub len: u32,
    /// The number of this message in its direction.
    pub mseq: u32,
    /// The number of the last message received in the other direction.
    pub mseq_ack: u32,
}

impl Bsdh {
    /// Returns the header as it is sent on the wire.
    pub fn encode(&self) -> [u8; BSDH_LEN] {
        let mut out = [0; BSDH_LEN];
        wire::put(&mut out, 0, &[self.mid.wire(), self.flags]);
        wire::put(&mut out, 2, &self.bufs.to_be_bytes());
        wire::put(&mut out, 4, &self.len.to_be_bytes());
        wire::put(&mut out, 8, &self.mseq.to_be_bytes());
        wire::put(&mut out, 12, &self.mseq_ack.to_be_bytes());
        out
    }

    /// Reads a header from the first [`BSDH_LEN`] bytes of `from`.
    ///
    /// # Errors
    ///
    /// [`Violation::ShortMessage`] if there are fewer bytes; [`Violation::UnknownMid`];
    /// [`Violation::LengthMismatch`] if `len` is less than the length of the header;
    /// [`Violation::BadFlags`] for reserved bits, and for [`FLAG_OOB_PRES`] on a message without
    /// payload.
    pub fn decode(from: &[u8]) -> Result<Self, Violation> {
        const SHORT: Violation = Violation::ShortMessage;
        let hdr = Self {
            mseq_ack: wire::u32_at(from, 12).ok_or(SHORT)?,
            mseq: wire::u32_at(from, 8).ok_or(SHORT)?,
            len: wire::u32_at(from, 4).ok_or(SHORT)?,
            bufs: wire::u16_at(from, 2).ok_or(SHORT)?,
            flags: wire::u8_at(from, 1).ok_or(SHORT)?,
            mid: wire::u8_at(from, 0)
                .ok_or(SHORT)
                .and_then(|byte| Mid::from_wire(byte).ok_or(Violation::UnknownMid))?,
        };
        if hdr.len < BSDH_LEN_U32 {
            return Err(Violation::LengthMismatch);
        }
        hdr.check_flags()?;
        Ok(hdr)
    }

    fn check_flags(&self) -> Result<(), Violation> {
        let known = FLAG_OOB_PRES | FLAG_OOB_PEND | FLAG_REQ_PIPE;
        let urgent_byte = self.flags & FLAG_OOB_PRES != 0;
        let may_carry_it = matches!(self.mid, Mid::Data) && self.len > BSDH_LEN_U32;
        if self.flags & !known != 0 || (urgent_byte && !may_carry_it) {
            return Err(Violation::BadFlags);
        }
        Ok(())
    }

    /// Bytes that follow the header.
    pub const fn rest_len(&self) -> u32 {
        self.len.saturating_sub(BSDH_LEN_U32)
    }

    /// Whether this is a pure credit update: Data without payload.
    pub const fn is_pure_update(&self) -> bool {
        matches!(self.mid, Mid::Data) && self.rest_len() == 0
    }

    /// Whether the message may keep the receive in which it arrived until a program reads it. The
    /// receives of all others are posted again at once (rule C2).
    pub const fn is_payload(&self) -> bool {
        self.mid.is_payload() && !self.is_pure_update()
    }

    /// The class of this message in the credit rules.
    pub const fn class(&self) -> Class {
        if self.is_pure_update() {
            Class::Update
        } else {
            self.mid.class()
        }
    }

    /// The credit limit L of this message: the number of receives that its sender has ever posted,
    /// modulo 2^32.
    pub const fn limit(&self) -> u32 {
        self.mseq_ack.wrapping_add(self.bufs as u32)
    }
}
