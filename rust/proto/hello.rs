// SPDX-License-Identifier: GPL-2.0

//! Connection set-up: Hello, HelloAck and refusals, in the CM's private data.
//!
//! Version 3 of the Hello is ours. The old ones fill 76 bytes and need a port
//! space of the CM that no longer exists; what is left to us are 56 bytes of
//! the request and 196 of the reply. The CM reports these sizes whatever was
//! sent, so the length that counts is that of the BSDH, and it is checked
//! first. What lies behind it is ignored.
//!
//! Both messages have the sequence number 0: the first message of the stream
//! is number 1, and `bufs` alone is the credit limit to start with.

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
/// Bytes of private data that a connection request has room for.
pub const HELLO_ROOM: usize = 56;
/// Bytes of a [`HelloAck`] on the wire.
pub const HELLO_ACK_LEN: usize = 32;
/// Bytes of private data that a connection reply has room for.
pub const HELLO_ACK_ROOM: usize = 196;
/// Bytes of a [`Refusal`] on the wire.
pub const REFUSAL_LEN: usize = 16;

/// The version of Hello and HelloAck.
pub const VERSION: u8 = 3;

/// The fewest receives that a side posts before it says Hello.
///
/// Payload needs 4 credits (rule C1 of [`super::credits`]). With 4 receives the
/// first payload would take the only one that payload may have; giving that
/// single one back is never a reason for an update (rule C3), and the stream
/// would stall. With 5 there are two to give back.
pub const BUFS_MIN: u16 = 5;
/// The fewest bytes behind the header that one receive takes.
pub const RCV_SIZE_MIN: u32 = 512;
/// The most bytes behind the header that one receive takes: 1 MiB.
pub const RCV_SIZE_MAX: u32 = 1 << 20;

const HELLO_MAGIC: [u8; 4] = *b"iSDP";
const REFUSAL_MAGIC: [u8; 4] = *b"nSDP";

const IPV4: u8 = 0x40;
const IPV6: u8 = 0x60;

/// The offsets that Hello and HelloAck have in common.
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

/// Abilities that both sides must have for one of them to use it.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Features(u32);

impl Features {
    /// No feature.
    pub const NONE: Self = Self(0);
    /// Many source adverts at a time, and Data behind them.
    pub const ORDERED: Self = Self(1);
    /// The answer to a source advert may invalidate its remote key.
    pub const REMOTE_INV: Self = Self(2);
    /// Sink adverts. Of use only together with [`Features::ORDERED`].
    pub const SINK: Self = Self(4);
    /// Source adverts are understood: the side can read from its peer.
    pub const SOURCE: Self = Self(8);
    /// Receives may become smaller: a side that is told so uses the larger ones up. Receives of a side
    /// whose peer does not announce this do not become larger.
    pub const SHRINK: Self = Self(16);
    /// All features that this version knows.
    pub const ALL: Self = Self(31);

    /// Reads the bits of the wire. Those that this version does not know are
    /// dropped: a peer only uses what the intersection has.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits & Self::ALL.0)
    }

    /// The bits of the wire.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// What both have.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// What either has.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether everything in `other` is here, too.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether a message `mid` has a place in the stream of a connection that
    /// agreed on these features.
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
    /// What the side that connects can do.
    pub features: Features,
    /// Adverts of the peer, of each kind, that it can hold at a time, at least 1.
    pub max_adverts: u8,
    /// Receives that it has posted, at least [`BUFS_MIN`]; in `BSDH.bufs`.
    pub bufs: u16,
    /// Bytes behind the header that one of its receives takes, a body included;
    /// from [`RCV_SIZE_MIN`] to [`RCV_SIZE_MAX`].
    pub rcv_size: u32,
    /// Whether the socket is one of IPv6.
    pub ipv6: bool,
    /// The port of the socket, never 0. The CM's own may be another.
    pub src_port: u16,
    /// The number under which a connection to loopback was announced on this
    /// host; 0 for all others.
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
    /// What both sides can do.
    pub features: Features,
    /// Adverts of the peer, of each kind, that the accepting side can hold at a
    /// time, at least 1.
    pub max_adverts: u8,
    /// Receives that it has posted, at least [`BUFS_MIN`]; in `BSDH.bufs`.
    pub bufs: u16,
    /// Bytes behind the header that one of its receives takes, a body included;
    /// from [`RCV_SIZE_MIN`] to [`RCV_SIZE_MAX`].
    pub rcv_size: u32,
}

/// The fields that Hello and HelloAck share, checked.
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

    /// Reads and checks a message `mid` of `LEN` bytes; returns those bytes,
    /// too, for the fields that only one of the messages has.
    ///
    /// The version is looked at before anything that another version may have
    /// changed: its length, and all that follows.
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

    /// Reads a Hello from the private data of a connection request
    /// ([`HELLO_ROOM`] bytes, whatever was sent).
    ///
    /// # Errors
    ///
    /// [`Violation::LengthMismatch`] if `BSDH.len` is more than what is there
    /// or not [`HELLO_LEN`]; [`Violation::BadMagic`], [`Violation::BadVersion`],
    /// [`Violation::UnexpectedMid`], [`Violation::BadFlags`],
    /// [`Violation::BadSequence`], [`Violation::NoAdverts`],
    /// [`Violation::TooFewBuffers`], [`Violation::BadReceiveSize`], and
    /// [`Violation::BadBody`] for any other field out of range; what
    /// [`Bsdh::decode`] returns.
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

    /// Reads a HelloAck from the private data of a connection reply
    /// ([`HELLO_ACK_ROOM`] bytes, whatever was sent).
    ///
    /// # Errors
    ///
    /// As for [`Hello::decode`], with [`HELLO_ACK_LEN`].
    pub fn decode(from: &[u8]) -> Result<Self, Violation> {
        let (common, raw) = Common::decode::<HELLO_ACK_LEN>(Mid::HelloAck, from)?;
        // No address family here: the request has it.
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

    /// Checks this answer against what was offered.
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

/// Why a connection was refused, as told to the side that asked for it.
///
/// | offset | field        | type    |
/// |--------|--------------|---------|
/// | 0      | magic `nSDP` | 4 bytes |
/// | 4      | version, 3   | u8      |
/// | 5      | reason       | u8      |
/// | 6      | reserved, 0  | 10 bytes |
///
/// The layout is the same in all versions, so that a side learns that its
/// version is the reason.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Refusal {
    /// Nobody listens at this address and port.
    NoListener = 1,
    /// The listener's queue is full. A listener that wants the peer to try
    /// again says nothing instead.
    BacklogFull = 2,
    /// The Hello is of a version that this side does not speak.
    BadVersion = 3,
    /// The Hello is broken.
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

    /// The answer to a Hello that could not be read.
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

    /// Reads the private data of a rejection; `None` if it does not come from
    /// an SDP (nobody listens, or somebody else does) or has a reason that
    /// this version does not know.
    pub fn decode(from: &[u8]) -> Option<Self> {
        if wire::bytes(from, 0)? != REFUSAL_MAGIC {
            return None;
        }
        let reason = wire::u8_at(from, 5)?;
        Self::ALL.into_iter().find(|r| *r as u8 == reason)
    }
}
