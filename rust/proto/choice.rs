// SPDX-License-Identifier: GPL-2.0

//! The choice of the path of a send, and the reasons against the other paths.

use super::{
    hello::Features,
    source::NotYet, //
};

/// The paths from a sender's memory to its peer.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Path {
    /// In Data, through buffers of both sides (the papers' BSDP).
    Copy,
    /// A source advert that the send waits for (ZSDP).
    Synchronous,
    /// A source advert, and the send returns at once (AZ-SDP).
    Asynchronous,
    /// A Write into the buffer of a waiting reader.
    SinkWrite,
}

impl Path {
    /// All paths, in the order of their numbers.
    pub const ALL: [Self; 4] = [
        Self::Copy,
        Self::Synchronous,
        Self::Asynchronous,
        Self::SinkWrite,
    ];

    /// The name of its counter.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Copy => "Copy",
            Self::Synchronous => "Synchronous",
            Self::Asynchronous => "Asynchronous",
            Self::SinkWrite => "SinkWrite",
        }
    }
}

/// Why bytes do not take a path.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Reason {
    /// The user has chosen another path.
    Forced,
    /// The peers did not agree on it at set-up.
    NotAgreed,
    /// The adapter cannot use such memory.
    NotPinnable,
    /// The memory cannot be protected after the call has returned, or not at this moment, for
    /// another reason than the kinds of memory below.
    NotProtectable,
    /// The buffer contains no whole page.
    NoWholePage,
    /// There are too few bytes for this path.
    BelowThreshold,
    /// The limit of the user's locked memory is reached.
    PinLimit,
    /// The peer has had no receive for payload for a long time; bytes accumulate meanwhile.
    NoCredits,
    /// The peer can hold no further advert.
    AdvertsFull,
    /// Other adverts must be consumed first, or a cancel must be answered.
    AdvertsBusy,
    /// The send must not wait.
    NonBlocking,
    /// Programs have touched too many pages while they were being sent.
    TooManyFaults,
    /// No reader of the peer waits with a buffer.
    PeerDoesNotWait,
    /// Receives returned early, but programs asked for more before the bytes had arrived.
    NoOverlap,
    /// A mapping that several programs may share cannot be protected.
    SharedMapping,
    /// A private mapping of a file cannot be protected.
    FileMapping,
    /// Pages of hugetlbfs cannot be protected.
    HugeTlb,
    /// Memory whose faults a program handles cannot be protected.
    Userfaultfd,
    /// By measurement, sends of this size are faster by copy, or copies are being measured.
    Slower,
    /// A Write must wait for this side: bytes wait in the send queue, or the send queue has no
    /// place, or the connection has no region.
    QueueBusy,
}

impl Reason {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 20] = [
        Self::Forced,
        Self::NotAgreed,
        Self::NotPinnable,
        Self::NotProtectable,
        Self::NoWholePage,
        Self::BelowThreshold,
        Self::PinLimit,
        Self::NoCredits,
        Self::AdvertsFull,
        Self::AdvertsBusy,
        Self::NonBlocking,
        Self::TooManyFaults,
        Self::PeerDoesNotWait,
        Self::NoOverlap,
        Self::SharedMapping,
        Self::FileMapping,
        Self::HugeTlb,
        Self::Userfaultfd,
        Self::Slower,
        Self::QueueBusy,
    ];

    /// The name of its counter.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forced => "Forced",
            Self::NotAgreed => "NotAgreed",
            Self::NotPinnable => "NotPinnable",
            Self::NotProtectable => "NotProtectable",
            Self::NoWholePage => "NoWholePage",
            Self::BelowThreshold => "BelowThreshold",
            Self::PinLimit => "PinLimit",
            Self::NoCredits => "NoCredits",
            Self::AdvertsFull => "AdvertsFull",
            Self::AdvertsBusy => "AdvertsBusy",
            Self::NonBlocking => "NonBlocking",
            Self::TooManyFaults => "TooManyFaults",
            Self::PeerDoesNotWait => "PeerDoesNotWait",
            Self::NoOverlap => "NoOverlap",
            Self::SharedMapping => "SharedMapping",
            Self::FileMapping => "FileMapping",
            Self::HugeTlb => "HugeTlb",
            Self::Userfaultfd => "Userfaultfd",
            Self::Slower => "Slower",
            Self::QueueBusy => "QueueBusy",
        }
    }
}

/// The kind of memory that contains the bytes.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum MemoryKind {
    /// Can be pinned; it was not yet tried to protect it against the program's writes.
    Untried,
    /// Can be pinned, but not protected, for this reason.
    Unprotectable(Reason),
    /// Can be neither pinned nor protected: device memory, secret memory, or unknown.
    Other,
}

/// The user's choice.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Wanted {
    /// The best path by the thresholds.
    Automatic,
    /// This path wherever it is possible, for any size; otherwise by copy.
    Only(Path),
}

impl Wanted {
    /// The possible choices, in the order of their numbers (SDP_ZCOPY_MODE).
    const NUMBERED: [Self; 5] = [
        Self::Automatic,
        Self::Only(Path::Copy),
        Self::Only(Path::Synchronous),
        Self::Only(Path::Asynchronous),
        Self::Only(Path::SinkWrite),
    ];

    /// Whether bytes may go by [`Path::SinkWrite`], and whether receives advertise their buffers.
    pub fn sinks(self) -> bool {
        matches!(self, Self::Automatic | Self::Only(Path::SinkWrite))
    }

    /// The choice with this number, if there is one.
    pub fn from_number(number: i32) -> Option<Self> {
        let number = usize::try_from(number).ok()?;
        Self::NUMBERED.get(number).copied()
    }

    /// The number of this choice.
    pub fn number(self) -> i32 {
        let number = Self::NUMBERED.iter().position(|wanted| *wanted == self);
        number.and_then(|n| i32::try_from(n).ok()).unwrap_or(0)
    }
}

/// The properties of a send.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Sending {
    /// Bytes of the whole send.
    pub bytes: u64,
    /// Bytes in whole pages ([`super::split::Split::middle`]).
    pub page_bytes: u64,
    /// The kind of their memory.
    pub memory: MemoryKind,
    /// Bytes of the smallest Write that is worth its cost.
    pub least_bytes: u64,
    /// The user's choice.
    pub wanted: Wanted,
    /// The minimum size of the whole send with [`Wanted::Automatic`], for all paths but the copy.
    pub threshold_bytes: u64,
    /// The features that both sides agreed on.
    pub features: Features,
    /// Whether the send may wait.
    pub blocking: bool,
    /// The reason why other payload, including Writes, would have to wait.
    pub payload_blocked_by: Option<NotYet>,
    /// [`super::fallback::Fallback::may_go_async`].
    pub may_go_async: bool,
    /// The size of the buffer with which a reader of the peer waits, in bytes
    /// ([`super::write::SinkWriter::room`]); 0 if none waits.
    pub sink_room_bytes: u32,
    /// Whether this side can post a Write now: no bytes wait in the send queue, which come first in
    /// the stream, and there are places and a region for the Write.
    pub may_write: bool,
}

/// The path, and the reasons against the others; `None` if a path was possible.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Choice {
    /// The path.
    pub path: Path,
    /// The reason against [`Path::SinkWrite`].
    pub no_sink_write: Option<Reason>,
    /// Whether this reason may end while the send waits: when a reader of the peer waits, or when
    /// this side can write.
    pub awaits_sink: bool,
    /// The reason against [`Path::Asynchronous`].
    pub no_asynchronous: Option<Reason>,
    /// The reason against [`Path::Synchronous`].
    pub no_synchronous: Option<Reason>,
}

/// Chooses the path for a send. Two conditions are not checked here: those that may become true
/// while the send waits (credits of the peer and room in its records), and those that only an
/// attempt shows (whether memory can be pinned).
///
/// Writing to a waiting reader is best, because the peer need not do anything first. The next best
/// is to return at once, then to wait, then to copy.
pub fn choose(sending: &Sending) -> Choice {
    let no_sink_write = no_sink_write(sending);
    let no_asynchronous = no_asynchronous(sending);
    let no_synchronous = no_synchronous(sending);
    let path = if no_sink_write.is_none() {
        Path::SinkWrite
    } else if no_asynchronous.is_none() {
        Path::Asynchronous
    } else if no_synchronous.is_none() {
        Path::Synchronous
    } else {
        Path::Copy
    };
    Choice {
        path,
        no_sink_write,
        awaits_sink: matches!(
            no_sink_write,
            Some(Reason::PeerDoesNotWait | Reason::QueueBusy)
        ),
        no_asynchronous,
        no_synchronous,
    }
}

/// The properties of a send of memory that needs no protection: the program does not change the
/// memory until a notification comes (MSG_ZEROCOPY), or the bytes are in pages of files and pipes
/// (sendfile(), splice()).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Lending {
    /// Bytes of the next piece; 0 if its memory cannot be pinned.
    pub piece_bytes: u64,
    /// Bytes of the smallest piece that is worth an advert.
    pub least_bytes: u64,
    /// Whether the program has asked that nothing is copied, by MSG_ZEROCOPY.
    pub asked: bool,
    /// The user's choice.
    pub wanted: Wanted,
    /// The minimum size with [`Wanted::Automatic`], if the program has not asked; 0 if such sends
    /// always go by copy.
    pub threshold_bytes: u64,
    /// The features that both sides agreed on.
    pub features: Features,
}

/// Why the next piece of such a send goes by copy; `None` if the piece goes by
/// [`Path::Asynchronous`], or, where a reader of the peer waits for it, by [`Path::SinkWrite`].
///
/// If the program has asked ([`Lending::asked`]), neither the user's choice nor the threshold
/// decides, with one exception: the choice of [`Path::Copy`]. The choice of [`Path::Synchronous`]
/// has no effect then, because the call returns at once and waits for nothing.
pub fn no_lending(lending: &Lending) -> Option<Reason> {
    let Lending {
        piece_bytes,
        least_bytes,
        ..
    } = *lending;
    let least = match lending.wanted {
        Wanted::Only(Path::Copy) => None,
        Wanted::Only(path) => (lending.asked || path == Path::Asynchronous).then_some(least_bytes),
        Wanted::Automatic if lending.asked => Some(least_bytes),
        Wanted::Automatic => match lending.threshold_bytes {
            0 => None,
            bytes => Some(bytes.max(least_bytes)),
        },
    };
    let Some(least) = least else {
        return Some(Reason::Forced);
    };
    if !lending.features.contains(Features::SOURCE) {
        Some(Reason::NotAgreed)
    } else if piece_bytes == 0 {
        Some(Reason::NotPinnable)
    } else if piece_bytes < least {
        Some(Reason::BelowThreshold)
    } else {
        None
    }
}

fn no_sink_write(sending: &Sending) -> Option<Reason> {
    let features = Features::SINK.union(Features::ORDERED);
    let room = u64::from(sending.sink_room_bytes);
    no_zero_copy(sending, Path::SinkWrite, features)
        .or((room == 0).then_some(Reason::PeerDoesNotWait))
        .or((room < sending.least_bytes).then_some(Reason::BelowThreshold))
        .or((!sending.may_write).then_some(Reason::QueueBusy))
        // The send may have to wait for the Write, but not for the peer's program.
        .or((!sending.blocking).then_some(Reason::NonBlocking))
        .or(sending.payload_blocked_by.map(|_| Reason::AdvertsBusy))
}

fn no_asynchronous(sending: &Sending) -> Option<Reason> {
    let unprotectable = match sending.memory {
        MemoryKind::Unprotectable(why) => Some(why),
        MemoryKind::Untried | MemoryKind::Other => None,
    };
    no_zero_copy(sending, Path::Asynchronous, Features::SOURCE)
        .or(unprotectable)
        .or((!sending.may_go_async).then_some(Reason::TooManyFaults))
}

fn no_synchronous(sending: &Sending) -> Option<Reason> {
    no_zero_copy(sending, Path::Synchronous, Features::SOURCE)
        .or((!sending.blocking).then_some(Reason::NonBlocking))
}

/// The conditions of all paths except the copy.
fn no_zero_copy(sending: &Sending, path: Path, needs: Features) -> Option<Reason> {
    let forced = matches!(sending.wanted, Wanted::Only(_));
    if forced && sending.wanted != Wanted::Only(path) {
        Some(Reason::Forced)
    } else if !sending.features.contains(needs) {
        Some(Reason::NotAgreed)
    } else if sending.memory == MemoryKind::Other {
        Some(Reason::NotPinnable)
    } else if sending.page_bytes == 0 {
        Some(Reason::NoWholePage)
    } else if !forced && sending.bytes < sending.threshold_bytes {
        Some(Reason::BelowThreshold)
    } else {
        None
    }
}
