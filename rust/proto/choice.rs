// SPDX-License-Identifier: GPL-2.0

//! The choice of the path of a send, and the reasons against the other paths.

use super::{
    hello::Features,
    source::NotYet, //
};

/// The size in bytes of the smallest piece of a send, of the smallest buffer of a reader, and of
/// the smallest Read into a program's memory for which a path without a copy is worth its cost: for
/// fewer bytes, pinning costs more than copying.
pub const MIN_UNCOPIED_BYTES: u32 = 16_384;

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
    /// The peers did not agree on it at set-up.
    NotAgreed,
    /// The adapter cannot use such memory.
    NotPinnable,
    /// The memory cannot be protected after the call has returned, or not at this moment, for
    /// another reason than the kinds of memory below.
    NotProtectable,
    /// There are too few bytes for this path.
    BelowThreshold,
    /// The limit of the user's locked memory is reached.
    PinLimit,
    /// The peer has no posted receive for payload, and the send may not wait, or not any longer.
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
    /// Receives that returned early gave the program less time than they cost
    /// ([`super::pause::Overlap`]).
    NoOverlap,
    /// A mapping that several programs may share cannot be protected.
    SharedMapping,
    /// A private mapping of a file cannot be protected.
    FileMapping,
    /// Pages of hugetlbfs cannot be protected.
    HugeTlb,
    /// Memory whose faults a program handles cannot be protected.
    Userfaultfd,
    /// By measurement, another path is faster for sends of this size, or is being measured.
    Slower,
    /// A Write must wait for this side: bytes wait in the send queue, or the send queue has no
    /// place, or the connection has no region.
    QueueBusy,
}

impl Reason {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 18] = [
        Self::NotAgreed,
        Self::NotPinnable,
        Self::NotProtectable,
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
            Self::NotAgreed => "NotAgreed",
            Self::NotPinnable => "NotPinnable",
            Self::NotProtectable => "NotProtectable",
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

    /// Whether a send or a receive of `bytes` may go without a copy. `threshold_bytes` is the
    /// minimum size with [`Wanted::Automatic`]; 0 if everything goes by copy.
    pub fn admits_uncopied(self, bytes: u64, threshold_bytes: u64) -> bool {
        match self {
            Self::Only(path) => path != Path::Copy,
            Self::Automatic => threshold_bytes > 0 && bytes >= threshold_bytes,
        }
    }

    /// Whether bytes may go this way. Receives advertise their buffers if [`Path::SinkWrite`] is
    /// admitted.
    pub fn admits(self, path: Path) -> bool {
        match self {
            Self::Automatic => true,
            Self::Only(only) => only == path,
        }
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

/// The features that [`Path::SinkWrite`] needs.
pub const SINK_NEEDS: Features = Features::SINK.union(Features::ORDERED);

/// The state of a connection that decides whether bytes can be written to the buffer with which a
/// reader of the peer waits.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct SinkTarget {
    /// The size of the buffer in bytes ([`super::sink_writer::SinkWriter::room`]); 0 if no reader
    /// waits.
    pub reader_bytes: u32,
    /// Whether this side can post a Write now: no bytes wait in the send queue, which come first in
    /// the stream, and there are places and a region for the Write.
    pub may_write: bool,
    /// The reason why payload, including Writes, would have to wait.
    pub payload_blocked_by: Option<NotYet>,
}

impl SinkTarget {
    /// The number of bytes that can be written now, at least [`MIN_UNCOPIED_BYTES`].
    ///
    /// # Errors
    ///
    /// The reason why no bytes can be written.
    pub fn room(self) -> Result<u32, Reason> {
        match self.reader_bytes {
            0 => Err(Reason::PeerDoesNotWait),
            bytes if bytes < MIN_UNCOPIED_BYTES => Err(Reason::BelowThreshold),
            _ if !self.may_write => Err(Reason::QueueBusy),
            _ if self.payload_blocked_by.is_some() => Err(Reason::AdvertsBusy),
            bytes => Ok(bytes),
        }
    }
}

/// The properties of the next piece of a send for which [`Wanted::admits_uncopied`].
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Sending {
    /// Bytes of the piece in whole pages ([`super::split::Split::middle`]).
    pub page_bytes: u64,
    /// The kind of their memory.
    pub memory: MemoryKind,
    /// The user's choice.
    pub wanted: Wanted,
    /// The path that is the fastest by measurement, or that is being measured
    /// ([`super::trial::Trials::path`]); `None` if such sends are not compared. Decides with
    /// [`Wanted::Automatic`] only.
    pub measured: Option<Path>,
    /// The features that both sides agreed on.
    pub features: Features,
    /// Whether the send may wait.
    pub blocking: bool,
    /// [`super::pause::Pause::may_go_async`].
    pub may_go_async: bool,
    /// Whether the piece can be written to the buffer of a reader, as far as the connection decides.
    pub sink: SinkTarget,
}

/// Whether a path is possible.
///
/// # Errors
///
/// The reason why not; `None` if the user has excluded the path.
pub type Possible = Result<(), Option<Reason>>;

/// The bytes that go by copy, if the path is [`Path::Copy`].
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Copied {
    /// The piece: the next one may take another path.
    Piece,
    /// The rest of the send.
    Rest,
}

/// The path, and which paths were possible.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Choice {
    /// The path.
    pub path: Path,
    /// The bytes that go by [`Path::Copy`].
    pub copied: Copied,
    /// [`Path::SinkWrite`].
    pub sink_write: Possible,
    /// Whether this path may become possible while the send waits: when a reader of the peer waits,
    /// or when this side can write.
    pub awaits_sink: bool,
    /// [`Path::Asynchronous`].
    pub asynchronous: Possible,
    /// [`Path::Synchronous`].
    pub synchronous: Possible,
}

/// Chooses the path for the next piece of a send. Two conditions are not checked here: those that
/// may become true while the send waits (credits of the peer and room in its records), and those
/// that only an attempt shows (whether memory can be pinned).
///
/// Writing to a waiting reader is best, because the peer need not do anything first. The next best
/// is to return at once, then to wait, then to copy. Measurements can exclude each of these.
pub fn choose(sending: &Sending) -> Choice {
    let sink_write = sink_write(sending);
    let asynchronous = asynchronous(sending);
    let synchronous = synchronous(sending);
    let path = if sink_write.is_ok() {
        Path::SinkWrite
    } else if asynchronous.is_ok() {
        Path::Asynchronous
    } else if synchronous.is_ok() {
        Path::Synchronous
    } else {
        Path::Copy
    };
    let is_short = sending.memory != MemoryKind::Other && !sending.is_long_enough();
    Choice {
        path,
        copied: if is_short {
            Copied::Piece
        } else {
            Copied::Rest
        },
        sink_write,
        awaits_sink: matches!(
            sink_write,
            Err(Some(Reason::PeerDoesNotWait | Reason::QueueBusy))
        ),
        asynchronous,
        synchronous,
    }
}

/// The properties of the next piece of a send of memory that needs no protection: the program does
/// not change the memory until a notification comes (MSG_ZEROCOPY), or the bytes are in pages of
/// files and pipes (sendfile(), splice()).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct LentPiece {
    /// Bytes of the piece; 0 if its memory cannot be pinned.
    pub piece_bytes: u64,
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

/// Whether the next piece of such a send can go by [`Path::Asynchronous`], or, where a reader of
/// the peer waits for it, by [`Path::SinkWrite`].
///
/// If the program has asked ([`LentPiece::asked`]), neither the user's choice nor the threshold
/// decides, with one exception: the choice of [`Path::Copy`]. The choice of [`Path::Synchronous`]
/// has no effect then, because the call returns at once and waits for nothing.
///
/// # Errors
///
/// As [`Possible`].
pub fn may_lend(piece: &LentPiece) -> Possible {
    let piece_bytes = piece.piece_bytes;
    let least_bytes = u64::from(MIN_UNCOPIED_BYTES);
    let least = match piece.wanted {
        Wanted::Only(Path::Copy) => None,
        Wanted::Only(path) => (piece.asked || path == Path::Asynchronous).then_some(least_bytes),
        Wanted::Automatic if piece.asked => Some(least_bytes),
        Wanted::Automatic => match piece.threshold_bytes {
            0 => None,
            bytes => Some(bytes.max(least_bytes)),
        },
    };
    let least = least.ok_or(None)?;
    let agreed = piece.features.contains(Features::SOURCE);
    require(agreed, Reason::NotAgreed)?;
    require(piece_bytes > 0, Reason::NotPinnable)?;
    require(piece_bytes >= least, Reason::BelowThreshold)
}

impl Sending {
    /// Whether the piece is worth a path without a copy.
    fn is_long_enough(&self) -> bool {
        self.page_bytes >= MIN_UNCOPIED_BYTES.into()
    }
}

/// Whether the next piece of a send can go by [`Path::SinkWrite`]. A send that waits to go another
/// way asks this again: a reader of the peer may have begun to wait.
///
/// # Errors
///
/// As [`Possible`].
pub fn sink_write(sending: &Sending) -> Possible {
    uncopied(sending, Path::SinkWrite, SINK_NEEDS)?;
    sending.sink.room().map_err(Some)?;
    // The send may have to wait for the Write, but not for the peer's program.
    require(sending.blocking, Reason::NonBlocking)
}

/// The number of bytes that a send may write to the buffer of a waiting reader, if it need not wait
/// for the Write; `None` if it may not. A send of memory that needs no protection takes no more
/// than these bytes at a time.
pub fn sink_room(sending: &Sending) -> Option<u32> {
    admitted(sending, Path::SinkWrite).ok()?;
    not_slower(sending, Path::SinkWrite).ok()?;
    sending.sink.room().ok()
}

/// Whether the next `bytes` bytes of a send with `left_bytes` left can be written to the buffer of
/// a waiting reader, if the send need not wait for the Write: the bytes end the send or fill the
/// buffer. Any other Write would leave a part of the buffer unused and end the advert too early.
pub fn fits_sink(sending: &Sending, bytes: u64, left_bytes: u64) -> bool {
    sink_room(sending).is_some_and(|room| bytes == left_bytes.min(room.into()))
}

/// [`fits_sink`] for a send of memory that needs no protection, before the memory was taken: of the
/// next `piece_bytes` bytes, at most [`sink_room`] will be taken.
pub fn lends_to_sink(sending: &Sending, piece_bytes: u64, left_bytes: u64) -> bool {
    let most = sink_room(sending).map_or(0, u64::from);
    fits_sink(sending, piece_bytes.min(most), left_bytes)
}

/// The next piece of a send that goes by [`Path::SinkWrite`].
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Ahead {
    /// Bytes before the first whole page ([`super::split::Split::head`]).
    pub head_bytes: u64,
    /// Bytes of the whole pages for which one region suffices ([`super::split::piece_bytes`]).
    pub region_bytes: u64,
    /// Bytes of the send that are left.
    pub left_bytes: u64,
    /// Whether the send buffer has space: the bytes are charged to it until they are written.
    pub has_space: bool,
}

/// Whether the next piece can be written from a snapshot, so that the send need not wait for the
/// Write: the piece consists of whole pages that can be protected, and [`fits_sink`].
pub fn may_write_ahead(sending: &Sending, ahead: &Ahead) -> bool {
    ahead.head_bytes == 0
        && ahead.has_space
        && sending.memory == MemoryKind::Untried
        && sending.may_go_async
        && fits_sink(sending, ahead.region_bytes, ahead.left_bytes)
}

fn asynchronous(sending: &Sending) -> Possible {
    uncopied(sending, Path::Asynchronous, Features::SOURCE)?;
    if let MemoryKind::Unprotectable(why) = sending.memory {
        return Err(Some(why));
    }
    require(sending.may_go_async, Reason::TooManyFaults)
}

fn synchronous(sending: &Sending) -> Possible {
    uncopied(sending, Path::Synchronous, Features::SOURCE)?;
    require(sending.blocking, Reason::NonBlocking)
}

/// The conditions of all paths except the copy.
fn uncopied(sending: &Sending, path: Path, needs: Features) -> Possible {
    admitted(sending, path)?;
    require(sending.features.contains(needs), Reason::NotAgreed)?;
    require(sending.memory != MemoryKind::Other, Reason::NotPinnable)?;
    require(sending.is_long_enough(), Reason::BelowThreshold)?;
    not_slower(sending, path)
}

/// Whether the user admits the path.
fn admitted(sending: &Sending, path: Path) -> Possible {
    if sending.wanted.admits(path) {
        Ok(())
    } else {
        Err(None)
    }
}

/// Whether no other path is faster by measurement.
fn not_slower(sending: &Sending, path: Path) -> Possible {
    let is_slower = sending.wanted == Wanted::Automatic
        && sending
            .measured
            .is_some_and(|measured| !admits(measured, path));
    require(!is_slower, Reason::Slower)
}

/// Whether a send may take the path if `measured` is the fastest path, or the one being measured.
fn admits(measured: Path, path: Path) -> bool {
    match measured {
        Path::Copy => path == Path::Copy,
        Path::Synchronous => path == Path::Synchronous,
        Path::Asynchronous => path != Path::SinkWrite,
        Path::SinkWrite => true,
    }
}

fn require(condition: bool, otherwise: Reason) -> Possible {
    if condition {
        Ok(())
    } else {
        Err(Some(otherwise))
    }
}
