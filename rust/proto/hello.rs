// SPDX-License-Identifier: GPL-2.0

//! Connection set-up: Hello, HelloAck and refusals, in the CM's private data.
//!
//! Version 3 of the Hello belongs to this module. The old ones fill 76 bytes and need a port space
//! of the CM that no longer exists; 56 bytes of the request and 196 of the reply are available. The
//! CM always reports these sizes, even if fewer bytes were sent, so the length in the BSDH decides.
//! It is checked first, and bytes beyond it are ignored.
//!
//! Both messages have the sequence number 0: the first message of the stream is number 1, and
//! `bufs` alone is the initial credit limit.

use super::{
    bsdh::{
        Bsdh,
        Mid,
        BSDH_LEN, //
    },
    violation::Violation,
    wire, //
};

/// Bytes of a [`Hello`] on the wire.
pub const HELLO_LEN: usize = 44;
/// Bytes of private data in a connection request.
pub const HELLO_ROOM: usize = 56;
/// Bytes of a [`HelloAck`] on the wire.
pub const HELLO_ACK_LEN: usize = 32;
/// Bytes of private data in a connection reply.
pub const HELLO_ACK_ROOM: usize = 196;
/// Bytes of a [`Refusal`] on the wire.
pub const REFUSAL_LEN: usize = 16;

/// The version of Hello and HelloAck.
pub const VERSION: u8 = 3;

/// The minimum number of receives that a side posts before its Hello.
///
/// Payload needs 4 credits (rule C1 of [`super::credits`]). With 4 receives the first payload would
/// take the only receive that payload may use; returning this single receive is never a reason for
/// an update (rule C3), and the stream would stall. With 5 there are two receives to return.
pub const BUFS_MIN: u16 = 5;
/// The minimum number of bytes behind the header that one receive takes.
pub const RCV_SIZE_MIN: u32 = 512;
/// The maximum number of bytes behind the header that one receive takes: 1 MiB.
pub const RCV_SIZE_MAX: u32 = 1 << 20;

const HELLO_MAGIC: [u8; 4] = *b"iSDP";
const REFUSAL_MAGIC: [u8; 4] = *b"nSDP";

const IPV4: u8 = 0x40;
const IPV6: u8 = 0x60;

/// The offsets of the fields that Hello and HelloAck share.
mod at {
    pub(super) const MAGIC: usize = 16;
    pub(super) const VERSION: usize = 20;
    pub(super) const IP_CAP: usize = 21;
    pub(super) const MAX_ADVERTS: usize = 22;
    pub(super) const RESERVED: usize = 23;
    pub(super) const FEATURES: usize = 24;
    pub(super) const RCV_SIZE: usize = 28;
    pub(super) const NONCE: usize = 32;
    pub(super) const SRC_PORT: usize = 40;
    pub(super) const RESERVED2: usize = 42;
}

/// Features that a side may use only if both sides have them.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Features(u32);

impl Features {
    /// No feature.
    pub const NONE: Self = Self(0);
    /// Many source adverts at a time, and Data behind them.
    pub const ORDERED: Self = Self(1);
    /// The answer to a source advert may invalidate the advert's remote key.
    pub const REMOTE_INV: Self = Self(2);
    /// Sink adverts. Useful only together with [`Features::ORDERED`].
    pub const SINK: Self = Self(4);
    /// Source adverts: the side can read from its peer.
    pub const SOURCE: Self = Self(8);
    /// Receives may become smaller: a side that is told of this uses up the larger ones. If the
    /// peer does not announce this feature, receives do not become larger.
    pub const SHRINK: Self = Self(16);
    /// All features that this version knows.
    pub const ALL: Self = Self(31);

    /// Reads the bits on the wire. Unknown bits are dropped: a peer uses only the intersection.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits & Self::ALL.0)
    }

    /// The bits on the wire.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The features of both.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The features of either.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all features of `other` are included.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether a message `mid` may be sent on a connection that agreed on these features.
    ///
    /// # Errors
    ///
    /// [`Violation::UnexpectedMid`].
    pub const fn permit(self, mid: Mid) -> Result<(), Violation> {
        let agreed = match mid {
            Mid::Hello | Mid::HelloAck => false,
            Mid::SrcAvail | Mid::RdmaRdCompl | Mid::SrcAvailCancel | Mid::SendSm => {
                self.contains(Self::SOURCE)
            }
            Mid::SinkAvail | Mid::RdmaWrCompl | Mid::SinkAvailCancel | Mid::SinkCancelAck => {
                self.contains(Self::SINK.union(Self::ORDERED))
            }
            _ => true,
        };
        if agreed {
            Ok(())
        } else {
            Err(Violation::UnexpectedMid)
        }
    }
}

/// The request for a connection.
///
/// | offset | field          | type    |
/// |--------|----------------|---------|
/// | 0      | BSDH           | 16 bytes; `mseq`, `mseq_ack` and `flags` 0 |
/// | 16     | magic `iSDP`   | 4 bytes |
/// | 20     | version, 3     | u8      |
/// | 21     | `ipv_cap`: 0x40 IPv4, 0x60 IPv6 | u8 |
/// | 22     | `max_adverts`  | u8      |
/// | 23     | reserved, 0    | u8      |
/// | 24     | `features`     | u32     |
/// | 28     | `rcv_size`     | u32     |
/// | 32     | `nonce`        | u64     |
/// | 40     | `src_port`     | u16     |
/// | 42     | reserved, 0    | u16     |
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Hello {
    /// The features of the connecting side.
    pub features: Features,
    /// Adverts of the peer, of each kind, that the connecting side can hold at a time, at least 1.
    pub max_adverts: u8,
    /// Receives that it has posted, at least [`BUFS_MIN`]; in `BSDH.bufs`.
    pub bufs: u16,
    /// The number of bytes behind the header that one of its receives takes, including a body; from
    /// [`RCV_SIZE_MIN`] to [`RCV_SIZE_MAX`].
    pub rcv_size: u32,
    /// Whether the socket is an IPv6 socket.
    pub ipv6: bool,
    /// The port of the socket, never 0. The CM's own port may be different.
    pub src_port: u16,
    /// The number under which a loopback connection was announced on this host; 0 for all other
    /// connections.
    pub nonce: u64,
}

/// The acceptance of a connection.
///
/// | offset | field          | type    |
/// |--------|----------------|---------|
/// | 0      | BSDH           | 16 bytes; `mseq`, `mseq_ack` and `flags` 0 |
/// | 16     | magic `iSDP`   | 4 bytes |
/// | 20     | version, 3     | u8      |
/// | 21     | reserved, 0    | u8      |
/// | 22     | `max_adverts`  | u8      |
/// | 23     | reserved, 0    | u8      |
/// | 24     | `features`     | u32     |
/// | 28     | `rcv_size`     | u32     |
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct HelloAck {
    /// The features of both sides.
    pub features: Features,
    /// Adverts of the peer, of each kind, that the accepting side can hold at a
    /// time, at least 1.
    pub max_adverts: u8,
    /// Receives that it has posted, at least [`BUFS_MIN`]; in `BSDH.bufs`.
    pub bufs: u16,
    /// The number of bytes behind the header that one of its receives takes, including a body; from
    /// [`RCV_SIZE_MIN`] to [`RCV_SIZE_MAX`].
    pub rcv_size: u32,
}

/// The checked fields that Hello and HelloAck share.
struct Common {
    features: Features,
    max_adverts: u8,
    bufs: u16,
    rcv_size: u32,
}

impl Common {
    fn encode(&self, mid: Mid, out: &mut [u8]) {
        let hdr = Bsdh {
            mid,
            flags: 0,
            bufs: self.bufs,
            len: u32::try_from(out.len()).unwrap_or(u32::MAX),
            mseq: 0,
            mseq_ack: 0,
        };
        wire::put(out, 0, &hdr.encode());
        wire::put(out, at::MAGIC, &HELLO_MAGIC);
        wire::put(out, at::VERSION, &[VERSION]);
        wire::put(out, at::MAX_ADVERTS, &[self.max_adverts]);
        wire::put(out, at::FEATURES, &self.features.bits().to_be_bytes());
        wire::put(out, at::RCV_SIZE, &self.rcv_size.to_be_bytes());
    }

    /// Reads and checks a message `mid` of `LEN` bytes; also returns these bytes, for the fields
    /// that only one of the messages has.
    ///
    /// The version is checked before all fields that another version may have changed: its length,
    /// and all that follows.
    fn decode<const LEN: usize>(mid: Mid, from: &[u8]) -> Result<(Self, [u8; LEN]), Violation> {
        const SHORT: Violation = Violation::ShortMessage;
        let hdr = Bsdh::decode(from.get(..BSDH_LEN).ok_or(SHORT)?)?;
        let len = usize::try_from(hdr.len).map_err(|_| Violation::LengthMismatch)?;
        let from = from.get(..len).ok_or(Violation::LengthMismatch)?;
        if wire::bytes(from, at::MAGIC) != Some(HELLO_MAGIC) {
            return Err(Violation::BadMagic);
        }
        if wire::u8_at(from, at::VERSION).ok_or(SHORT)? != VERSION {
            return Err(Violation::BadVersion);
        }
        if hdr.mid != mid {
            return Err(Violation::UnexpectedMid);
        }
        if len != LEN {
            return Err(Violation::LengthMismatch);
        }
        if hdr.flags != 0 {
            return Err(Violation::BadFlags);
        }
        if hdr.mseq != 0 || hdr.mseq_ack != 0 {
            return Err(Violation::BadSequence);
        }
        let common = Self {
            features: Features::from_bits(wire::u32_at(from, at::FEATURES).ok_or(SHORT)?),
            max_adverts: wire::u8_at(from, at::MAX_ADVERTS).ok_or(SHORT)?,
            bufs: hdr.bufs,
            rcv_size: wire::u32_at(from, at::RCV_SIZE).ok_or(SHORT)?,
        };
        common.check()?;
        if wire::u8_at(from, at::RESERVED).ok_or(SHORT)? != 0 {
            return Err(Violation::BadBody);
        }
        Ok((common, wire::bytes(from, 0).ok_or(SHORT)?))
    }

    fn check(&self) -> Result<(), Violation> {
        if self.max_adverts == 0 {
            Err(Violation::NoAdverts)
        } else if self.bufs < BUFS_MIN {
            Err(Violation::TooFewBuffers)
        } else if !(RCV_SIZE_MIN..=RCV_SIZE_MAX).contains(&self.rcv_size) {
            Err(Violation::BadReceiveSize)
        } else {
            Ok(())
        }
    }
}

impl Hello {
    /// Returns the private data of the connection request.
    pub fn encode(&self) -> [u8; HELLO_LEN] {
        let mut out = [0; HELLO_LEN];
        Common {
            features: self.features,
            max_adverts: self.max_adverts,
            bufs: self.bufs,
            rcv_size: self.rcv_size,
        }
        .encode(Mid::Hello, &mut out);
        let ip = if self.ipv6 { IPV6 } else { IPV4 };
        wire::put(&mut out, at::IP_CAP, &[ip]);
        wire::put(&mut out, at::NONCE, &self.nonce.to_be_bytes());
        wire::put(&mut out, at::SRC_PORT, &self.src_port.to_be_bytes());
        out
    }

    /// Reads a Hello from the private data of a connection request (always [`HELLO_ROOM`] bytes).
    ///
    /// # Errors
    ///
    /// [`Violation::LengthMismatch`] if `BSDH.len` exceeds the available bytes or is not
    /// [`HELLO_LEN`]; [`Violation::BadMagic`], [`Violation::BadVersion`],
    /// [`Violation::UnexpectedMid`], [`Violation::BadFlags`], [`Violation::BadSequence`],
    /// [`Violation::NoAdverts`], [`Violation::TooFewBuffers`], [`Violation::BadReceiveSize`], and
    /// [`Violation::BadBody`] for any other field out of range; the errors of [`Bsdh::decode`].
    pub fn decode(from: &[u8]) -> Result<Self, Violation> {
        let (common, raw) = Common::decode::<HELLO_LEN>(Mid::Hello, from)?;
        const SHORT: Violation = Violation::ShortMessage;
        let ipv6 = match wire::u8_at(&raw, at::IP_CAP) {
            Some(IPV4) => false,
            Some(IPV6) => true,
            _ => return Err(Violation::BadBody),
        };
        let src_port = wire::u16_at(&raw, at::SRC_PORT).ok_or(SHORT)?;
        if src_port == 0 || wire::u16_at(&raw, at::RESERVED2) != Some(0) {
            return Err(Violation::BadBody);
        }
        Ok(Self {
            features: common.features,
            max_adverts: common.max_adverts,
            bufs: common.bufs,
            rcv_size: common.rcv_size,
            ipv6,
            src_port,
            nonce: wire::u64_at(&raw, at::NONCE).ok_or(SHORT)?,
        })
    }
}

impl HelloAck {
    /// Returns the private data of the connection reply.
    pub fn encode(&self) -> [u8; HELLO_ACK_LEN] {
        let mut out = [0; HELLO_ACK_LEN];
        Common {
            features: self.features,
            max_adverts: self.max_adverts,
            bufs: self.bufs,
            rcv_size: self.rcv_size,
        }
        .encode(Mid::HelloAck, &mut out);
        out
    }

    /// Reads a HelloAck from the private data of a connection reply (always [`HELLO_ACK_ROOM`]
    /// bytes).
    ///
    /// # Errors
    ///
    /// As for [`Hello::decode`], with [`HELLO_ACK_LEN`].
    pub fn decode(from: &[u8]) -> Result<Self, Violation> {
        let (common, raw) = Common::decode::<HELLO_ACK_LEN>(Mid::HelloAck, from)?;
        // The address family is only in the request.
        if wire::u8_at(&raw, at::IP_CAP) != Some(0) {
            return Err(Violation::BadBody);
        }
        Ok(Self {
            features: common.features,
            max_adverts: common.max_adverts,
            bufs: common.bufs,
            rcv_size: common.rcv_size,
        })
    }

    /// Checks this answer against the offer.
    ///
    /// # Errors
    ///
    /// [`Violation::BadFeatures`] if it claims a feature that `offer` lacks.
    pub fn check_against(&self, offer: &Hello) -> Result<(), Violation> {
        if offer.features.contains(self.features) {
            Ok(())
        } else {
            Err(Violation::BadFeatures)
        }
    }
}

/// Why a connection was refused, as told to the connecting side.
///
/// | offset | field        | type    |
/// |--------|--------------|---------|
/// | 0      | magic `nSDP` | 4 bytes |
/// | 4      | version, 3   | u8      |
/// | 5      | reason       | u8      |
/// | 6      | reserved, 0  | 10 bytes |
///
/// The layout is the same in all versions, so a side learns if its version is the reason.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Refusal {
    /// Nobody listens at this address and port.
    NoListener = 1,
    /// The listener's queue is full. A listener that wants the peer to try again sends no refusal
    /// and no other answer.
    BacklogFull = 2,
    /// The Hello has a version that this side does not support.
    BadVersion = 3,
    /// The Hello is invalid.
    BadHello = 4,
    /// No memory, or no queue pair, for another connection.
    NoMemory = 5,
    /// Too many connections are being set up in this namespace.
    TooManyPending = 6,
    /// A rule of this host forbids the connection.
    Forbidden = 7,
    /// The listener is going away.
    Closing = 8,
}

impl Refusal {
    /// The number of reasons.
    pub const COUNT: usize = Self::ALL.len();

    /// All reasons, in the order of [`Refusal::index`].
    pub const ALL: [Self; 8] = [
        Self::NoListener,
        Self::BacklogFull,
        Self::BadVersion,
        Self::BadHello,
        Self::NoMemory,
        Self::TooManyPending,
        Self::Forbidden,
        Self::Closing,
    ];

    /// A dense number from 0 to [`Refusal::COUNT`] - 1, for counters.
    pub const fn index(self) -> usize {
        (self as usize).saturating_sub(1)
    }

    /// The name of the reason.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoListener => "NoListener",
            Self::BacklogFull => "BacklogFull",
            Self::BadVersion => "BadVersion",
            Self::BadHello => "BadHello",
            Self::NoMemory => "NoMemory",
            Self::TooManyPending => "TooManyPending",
            Self::Forbidden => "Forbidden",
            Self::Closing => "Closing",
        }
    }

    /// The answer to an invalid Hello.
    pub const fn of(why: Violation) -> Self {
        match why {
            Violation::BadVersion => Self::BadVersion,
            _ => Self::BadHello,
        }
    }

    /// Returns the private data of the rejection.
    pub fn encode(self) -> [u8; REFUSAL_LEN] {
        let mut out = [0; REFUSAL_LEN];
        wire::put(&mut out, 0, &REFUSAL_MAGIC);
        wire::put(&mut out, 4, &[VERSION, self as u8]);
        out
    }

    /// Reads the private data of a rejection; `None` if it does not come from an SDP implementation
    /// (nobody listens, or another protocol does) or has an unknown reason.
    pub fn decode(from: &[u8]) -> Option<Self> {
        if wire::bytes(from, 0)? != REFUSAL_MAGIC {
            return None;
        }
        let reason = wire::u8_at(from, 5)?;
        Self::ALL.into_iter().find(|r| *r as u8 == reason)
    }
}
