// SPDX-License-Identifier: GPL-2.0

//! The messages of an established connection: a header, a body of fixed size for each kind, and for
//! Data and SrcAvail bytes of the stream behind the body.

use super::{
    advert::check_range,
    bsdh::{
        Bsdh,
        Class,
        Mid,
        BSDH_LEN,
        BSDH_LEN_U32,
        FLAG_OOB_PRES, //
    },
    credits::Stamp,
    hello::{
        RCV_SIZE_MAX,
        RCV_SIZE_MIN, //
    },
    violation::Violation,
    wire, //
};

/// Bytes of the longest body (SinkAvail).
pub const MAX_BODY: usize = 20;

/// IBTA's flow control modes.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum FlowMode {
    /// Data by copy only.
    Buffered = 0,
    /// One source advert at a time.
    Combined = 1,
    /// Many adverts at a time.
    Pipelined = 2,
}

/// The body of ModeChange: the upper four bits of its first byte contain the direction (8 for the
/// sender's sending direction) and the mode; the other bits are zero.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Mode {
    /// The mode from now on.
    pub flow: FlowMode,
    /// Whether it applies to the direction in which the message's sender sends; otherwise to the
    /// direction in which it receives.
    pub sending: bool,
}

impl Mode {
    const SENDING: u8 = 0x80;

    fn encode(self) -> [u8; 4] {
        let whose = if self.sending { Self::SENDING } else { 0 };
        [whose | ((self.flow as u8) << 4), 0, 0, 0]
    }

    fn decode(from: [u8; 4]) -> Option<Self> {
        let [first, 0, 0, 0] = from else { return None };
        let flow = match first & !Self::SENDING {
            0x00 => FlowMode::Buffered,
            0x10 => FlowMode::Combined,
            0x20 => FlowMode::Pipelined,
            _ => return None,
        };
        let sending = first & Self::SENDING != 0;
        Some(Self { flow, sending })
    }
}

/// The bytes of a message without its payload, and their number.
pub fn encode(header: &Bsdh, body: &Body) -> ([u8; BSDH_LEN + MAX_BODY], usize) {
    let mut bytes = [0; BSDH_LEN + MAX_BODY];
    wire::put(&mut bytes, 0, &header.encode());
    let mut tail = [0; MAX_BODY];
    let len = body.encode(&mut tail);
    wire::put(&mut bytes, BSDH_LEN, &tail);
    (bytes, BSDH_LEN.saturating_add(len))
}

/// The content of a message beyond its header, without payload.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Body {
    /// Payload follows; without any, a pure credit update.
    Data,
    /// Half close.
    DisConn,
    /// Reset.
    AbortConn,
    /// Answers SrcAvailCancel.
    SendSm,
    /// Answers SinkAvail.
    RdmaWrCompl {
        /// Bytes written into the sink's buffer.
        bytes: u32,
    },
    /// Answers SrcAvail, in part or finally.
    RdmaRdCompl {
        /// Bytes read from the source's buffer since the last answer.
        bytes: u32,
    },
    /// Changes the flow control mode.
    ModeChange {
        /// The mode and whose it is.
        mode: Mode,
    },
    /// Takes back all unread source adverts.
    SrcAvailCancel,
    /// Takes back all unanswered sink adverts.
    SinkAvailCancel,
    /// Answers SinkAvailCancel.
    SinkCancelAck,
    /// Asks for another receive size.
    ChRcvBuf {
        /// Desired bytes of one receive, as in `Hello::rcv_size`.
        size: u32,
    },
    /// Answers ChRcvBuf.
    ChRcvBufAck {
        /// Bytes of one receive from now on.
        size: u32,
    },
    /// Asks to suspend the connection.
    Suspend {
        /// IBTA's argument, which is not interpreted.
        argument: u64,
    },
    /// Answers Suspend.
    SuspendAck,
    /// Memory that the peer may write to.
    SinkAvail {
        /// Bytes of the buffer, at least 1.
        len: u32,
        /// Its remote key.
        rkey: u32,
        /// Its address under that key.
        addr: u64,
        /// The number of payload events that the sender of the advert had received so far, modulo
        /// 2^32 (IBTA's NonDiscards).
        count: u32,
    },
    /// Memory that the peer may read from. In the stream, payload of the message precedes it.
    SrcAvail {
        /// Bytes of the buffer, at least 1; without the payload of the message.
        len: u32,
        /// Its remote key.
        rkey: u32,
        /// Its address under that key.
        addr: u64,
    },
}

impl Body {
    /// The message that has this body.
    pub const fn mid(&self) -> Mid {
        match self {
            Self::Data => Mid::Data,
            Self::DisConn => Mid::DisConn,
            Self::AbortConn => Mid::AbortConn,
            Self::SendSm => Mid::SendSm,
            Self::RdmaWrCompl { .. } => Mid::RdmaWrCompl,
            Self::RdmaRdCompl { .. } => Mid::RdmaRdCompl,
            Self::ModeChange { .. } => Mid::ModeChange,
            Self::SrcAvailCancel => Mid::SrcAvailCancel,
            Self::SinkAvailCancel => Mid::SinkAvailCancel,
            Self::SinkCancelAck => Mid::SinkCancelAck,
            Self::ChRcvBuf { .. } => Mid::ChRcvBuf,
            Self::ChRcvBufAck { .. } => Mid::ChRcvBufAck,
            Self::Suspend { .. } => Mid::Suspend,
            Self::SuspendAck => Mid::SuspendAck,
            Self::SinkAvail { .. } => Mid::SinkAvail,
            Self::SrcAvail { .. } => Mid::SrcAvail,
        }
    }

    /// The length of the body on the wire, without payload.
    pub const fn len(&self) -> usize {
        body_len(self.mid())
    }

    /// Whether the body has no bytes on the wire.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The class, in the credit rules, of a message with this body and `payload_len` bytes of
    /// payload. The purpose of an empty Data, which decides whether 1 credit is enough (rule C1),
    /// is not known here.
    pub const fn class(&self, payload_len: u32) -> Class {
        match self {
            Self::Data if payload_len == 0 => Class::Update,
            _ => self.mid().class(),
        }
    }

    /// Writes the body to the start of `out` and returns its length in bytes.
    pub fn encode(&self, out: &mut [u8; MAX_BODY]) -> usize {
        match *self {
            Self::RdmaWrCompl { bytes } | Self::RdmaRdCompl { bytes } => {
                wire::put(out, 0, &bytes.to_be_bytes());
            }
            Self::ModeChange { mode } => wire::put(out, 0, &mode.encode()),
            Self::ChRcvBuf { size } | Self::ChRcvBufAck { size } => {
                wire::put(out, 0, &size.to_be_bytes());
            }
            Self::Suspend { argument } => wire::put(out, 0, &argument.to_be_bytes()),
            Self::SinkAvail {
                len,
                rkey,
                addr,
                count,
            } => {
                put_advert(out, len, rkey, addr);
                wire::put(out, 16, &count.to_be_bytes());
            }
            Self::SrcAvail { len, rkey, addr } => put_advert(out, len, rkey, addr),
            Self::Data
            | Self::DisConn
            | Self::AbortConn
            | Self::SendSm
            | Self::SrcAvailCancel
            | Self::SinkAvailCancel
            | Self::SinkCancelAck
            | Self::SuspendAck => {}
        }
        self.len()
    }

    /// Returns the header for a message with this body and `payload_len` bytes of payload; `None`
    /// if the length does not fit into a `u32`.
    pub fn header(&self, flags: u8, payload_len: u32, stamp: Stamp) -> Option<Bsdh> {
        let body = u32::try_from(self.len()).ok()?;
        Some(Bsdh {
            mid: self.mid(),
            flags,
            bufs: stamp.bufs,
            len: BSDH_LEN_U32.checked_add(body)?.checked_add(payload_len)?,
            mseq: stamp.mseq,
            mseq_ack: stamp.mseq_ack,
        })
    }

    /// Reads the body of a message `mid` from `from`, which holds the body and possibly payload
    /// behind it.
    fn decode(mid: Mid, from: &[u8]) -> Result<Self, Violation> {
        const SHORT: Violation = Violation::ShortMessage;
        let u32_at = |at| wire::u32_at(from, at).ok_or(SHORT);
        Ok(match mid {
            // These two are only in the CM's private data.
            Mid::Hello | Mid::HelloAck => return Err(Violation::UnexpectedMid),
            Mid::Data => Self::Data,
            Mid::DisConn => Self::DisConn,
            Mid::AbortConn => Self::AbortConn,
            Mid::SendSm => Self::SendSm,
            Mid::RdmaWrCompl => Self::RdmaWrCompl { bytes: u32_at(0)? },
            Mid::RdmaRdCompl => Self::RdmaRdCompl { bytes: u32_at(0)? },
            Mid::ModeChange => Self::ModeChange {
                mode: wire::bytes(from, 0)
                    .ok_or(SHORT)
                    .and_then(|b| Mode::decode(b).ok_or(Violation::BadBody))?,
            },
            Mid::SrcAvailCancel => Self::SrcAvailCancel,
            Mid::SinkAvailCancel => Self::SinkAvailCancel,
            Mid::SinkCancelAck => Self::SinkCancelAck,
            Mid::ChRcvBuf => Self::ChRcvBuf {
                size: receive_size(u32_at(0)?)?,
            },
            Mid::ChRcvBufAck => Self::ChRcvBufAck {
                size: receive_size(u32_at(0)?)?,
            },
            Mid::Suspend => Self::Suspend {
                argument: wire::u64_at(from, 0).ok_or(SHORT)?,
            },
            Mid::SuspendAck => Self::SuspendAck,
            Mid::SinkAvail => {
                let (len, rkey, addr) = advert(from)?;
                let count = u32_at(16)?;
                Self::SinkAvail {
                    len,
                    rkey,
                    addr,
                    count,
                }
            }
            Mid::SrcAvail => {
                let (len, rkey, addr) = advert(from)?;
                Self::SrcAvail { len, rkey, addr }
            }
        })
    }
}

/// A message that this side may send before any other message: it takes no place in the stream.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Control {
    /// Data without payload: carries credits, an acknowledgement or a flag.
    Update,
    /// [`Body::AbortConn`].
    AbortConn,
    /// [`Body::SendSm`].
    SendSm,
    /// [`Body::RdmaWrCompl`].
    RdmaWrCompl {
        /// Bytes written into the sink's buffer.
        bytes: u32,
    },
    /// [`Body::RdmaRdCompl`].
    RdmaRdCompl {
        /// Bytes read from the source's buffer since the last answer.
        bytes: u32,
    },
    /// [`Body::SrcAvailCancel`].
    SrcAvailCancel,
    /// [`Body::SinkAvailCancel`].
    SinkAvailCancel,
    /// [`Body::ChRcvBuf`].
    ChRcvBuf {
        /// Desired bytes of one receive.
        size: u32,
    },
    /// [`Body::ChRcvBufAck`].
    ChRcvBufAck {
        /// Bytes of one receive from now on.
        size: u32,
    },
    /// [`Body::SinkAvail`].
    SinkAvail {
        /// Bytes of the buffer, at least 1.
        len: u32,
        /// Its remote key.
        rkey: u32,
        /// Its address under that key.
        addr: u64,
        /// The number of payload events received so far, modulo 2^32.
        count: u32,
    },
}

impl Control {
    /// The body of the message.
    pub const fn body(self) -> Body {
        match self {
            Self::Update => Body::Data,
            Self::AbortConn => Body::AbortConn,
            Self::SendSm => Body::SendSm,
            Self::RdmaWrCompl { bytes } => Body::RdmaWrCompl { bytes },
            Self::RdmaRdCompl { bytes } => Body::RdmaRdCompl { bytes },
            Self::SrcAvailCancel => Body::SrcAvailCancel,
            Self::SinkAvailCancel => Body::SinkAvailCancel,
            Self::ChRcvBuf { size } => Body::ChRcvBuf { size },
            Self::ChRcvBufAck { size } => Body::ChRcvBufAck { size },
            Self::SinkAvail {
                len,
                rkey,
                addr,
                count,
            } => Body::SinkAvail {
                len,
                rkey,
                addr,
                count,
            },
        }
    }
}

/// A message that has a place in the stream: it carries bytes of the stream, or ends it. The peer's
/// sink adverts are answered before it (rule S3 in [`super::sink_writer`]).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum InStream {
    /// [`Body::Data`], with at least one byte of payload.
    Data {
        /// Whether its last byte is urgent.
        urgent: bool,
    },
    /// [`Body::DisConn`].
    DisConn,
    /// [`Body::SrcAvail`].
    SrcAvail {
        /// Bytes of the buffer, at least 1; without the payload of the message.
        len: u32,
        /// Its remote key.
        rkey: u32,
        /// Its address under that key.
        addr: u64,
    },
}

impl InStream {
    /// The body of the message.
    pub const fn body(self) -> Body {
        match self {
            Self::Data { .. } => Body::Data,
            Self::DisConn => Body::DisConn,
            Self::SrcAvail { len, rkey, addr } => Body::SrcAvail { len, rkey, addr },
        }
    }

    /// The flags that the message has by its kind.
    pub const fn flags(self) -> u8 {
        match self {
            Self::Data { urgent: true } => FLAG_OOB_PRES,
            _ => 0,
        }
    }

    /// Whether the message is a payload event ([`super::sink_writer`]).
    pub const fn is_event(self) -> bool {
        !matches!(self, Self::DisConn)
    }
}

/// Bytes of the body of a message `mid` of the stream.
const fn body_len(mid: Mid) -> usize {
    match mid {
        Mid::RdmaWrCompl
        | Mid::RdmaRdCompl
        | Mid::ModeChange
        | Mid::ChRcvBuf
        | Mid::ChRcvBufAck => 4,
        Mid::Suspend => 8,
        Mid::SrcAvail => 16,
        Mid::SinkAvail => MAX_BODY,
        _ => 0,
    }
}

fn put_advert(out: &mut [u8; MAX_BODY], len: u32, rkey: u32, addr: u64) {
    wire::put(out, 0, &len.to_be_bytes());
    wire::put(out, 4, &rkey.to_be_bytes());
    wire::put(out, 8, &addr.to_be_bytes());
}

/// Reads the fields that both kinds of adverts share.
fn advert(from: &[u8]) -> Result<(u32, u32, u64), Violation> {
    let short = Violation::ShortMessage;
    let len = wire::u32_at(from, 0).ok_or(short)?;
    let rkey = wire::u32_at(from, 4).ok_or(short)?;
    let addr = wire::u64_at(from, 8).ok_or(short)?;
    check_range(len, addr)?;
    Ok((len, rkey, addr))
}

fn receive_size(size: u32) -> Result<u32, Violation> {
    if (RCV_SIZE_MIN..=RCV_SIZE_MAX).contains(&size) {
        Ok(size)
    } else {
        Err(Violation::BadReceiveSize)
    }
}

/// A received message.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Message {
    /// Its header.
    pub hdr: Bsdh,
    /// Its body.
    pub body: Body,
    /// The offset of its payload behind the header, in bytes.
    pub payload_offset: u32,
    /// Bytes of payload; more than 0 only for Data and SrcAvail.
    pub payload_len: u32,
}

impl Message {
    /// Reads a message that was received into two pieces of memory.
    ///
    /// `hdr` is the first piece, which holds the header; `rest` is the start of the second.
    /// `byte_len` is the number of received bytes in both pieces, as reported by the adapter: bytes
    /// beyond it in `rest` are stale. Only a body is read from `rest` ([`MAX_BODY`] bytes are
    /// always enough), never payload.
    ///
    /// The sequence number and the state are not checked here: see
    /// [`Credits::received`](super::credits::Credits::received) and
    /// [`State::admits`](super::state::State::admits).
    ///
    /// # Errors
    ///
    /// [`Violation::ShortMessage`] if fewer bytes than the header and the body of the message have
    /// arrived (or were passed), [`Violation::LengthMismatch`] if the header's length is not
    /// `byte_len`, [`Violation::BadBody`] for bytes behind a message without payload and for
    /// invalid values, [`Violation::BadReceiveSize`] for a size outside the permitted range,
    /// [`Violation::UnexpectedMid`] for Hello and HelloAck, and the errors of [`Bsdh::decode`].
    pub fn decode(hdr: &[u8], rest: &[u8], byte_len: u32) -> Result<Self, Violation> {
        let room = byte_len
            .checked_sub(BSDH_LEN_U32)
            .ok_or(Violation::ShortMessage)?;
        let hdr = Bsdh::decode(hdr.get(..BSDH_LEN).ok_or(Violation::ShortMessage)?)?;
        if hdr.len != byte_len {
            return Err(Violation::LengthMismatch);
        }
        let need = body_len(hdr.mid);
        let offset = u32::try_from(need).unwrap_or(u32::MAX);
        let payload_len = room.checked_sub(offset).ok_or(Violation::ShortMessage)?;
        let body = Body::decode(hdr.mid, rest.get(..need).ok_or(Violation::ShortMessage)?)?;
        if payload_len > 0 && !hdr.mid.is_payload() {
            return Err(Violation::BadBody);
        }
        Ok(Self {
            hdr,
            body,
            payload_offset: offset,
            payload_len,
        })
    }
}
