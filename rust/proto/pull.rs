// SPDX-License-Identifier: GPL-2.0

//! When to *pull* a source advert: to read it into kernel memory although no reader asks for its
//! bytes.
//!
//! - **A1** A receiver may pull whenever its receive buffer has room. Then a sender is blocked only
//!   where it would be blocked over TCP, with a peer that has the same receive buffer. The peer
//!   never has to ask for the bytes by copy, and two sides that both send and do not read are not
//!   blocked by each other.
//!
//! A short wait is useful: a reader that comes in time gets the bytes into its own memory, without
//! a copy.

/// The state when there are adverts of which bytes are not being read.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Waiting {
    /// Bytes of the first such advert for which no Read was posted: a Read is of one advert.
    pub untaken_bytes: u64,
    /// Bytes for which the receive buffer has room.
    pub room_bytes: u64,
    /// The reason not to wait for a reader of the adverts, if there is one.
    pub now: Option<PullReason>,
    /// A send of this side waits for credits, or for its adverts to be consumed.
    pub own_sender_waits: bool,
    /// A reader waits that can take the bytes itself, with room for this many.
    pub reader_bytes: Option<u64>,
    /// The peer's DisConn has arrived: the peer waits for the last answers.
    pub end_of_stream: bool,
    /// The program checks for bytes before it reads, by poll() or by reads that do not wait: it
    /// reads only after the bytes have arrived.
    pub polls: bool,
}

/// Why adverts are pulled.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum PullReason {
    /// The peer may be waiting for this side, while this side waits for the peer.
    OwnSenderWaits,
    /// A reader waits that cannot take the bytes itself.
    Reader,
    /// The reader's buffer is too small to be worth a Read of its own.
    SmallRead,
    /// The peer has shut down its sending direction.
    EndOfStream,
    /// No reader came in time.
    Delay,
    /// The program reads only after the bytes have arrived.
    Polls,
}

impl PullReason {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 6] = [
        Self::OwnSenderWaits,
        Self::Reader,
        Self::SmallRead,
        Self::EndOfStream,
        Self::Delay,
        Self::Polls,
    ];

    /// The name of its counter.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OwnSenderWaits => "OwnSenderWaits",
            Self::Reader => "Reader",
            Self::SmallRead => "SmallRead",
            Self::EndOfStream => "EndOfStream",
            Self::Delay => "Delay",
            Self::Polls => "Polls",
        }
    }
}

/// Whether to pull.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Pull {
    /// There is nothing to pull, or a reader takes the bytes, or there is no room: decide again
    /// after a change.
    No,
    /// Decide again after a reader has had some time to come.
    Later,
    /// Pull at most this many bytes, at least 1.
    Now {
        /// All bytes of the advert for which there is room.
        bytes: u64,
        /// The reason.
        why: PullReason,
    },
}

/// Decides whether to pull adverts (A1).
///
/// A waiting reader with a large enough buffer takes the bytes itself, which blocks nobody; a
/// reader with less than `small_bytes` gets a copy. Without room a sender is blocked where it would
/// also be blocked over TCP.
pub const fn pull(waiting: Waiting, small_bytes: u64) -> Pull {
    let bytes = if waiting.untaken_bytes < waiting.room_bytes {
        waiting.untaken_bytes
    } else {
        waiting.room_bytes
    };
    if bytes == 0 {
        return Pull::No;
    }
    let why = match waiting.reader_bytes {
        Some(wanted) if wanted < small_bytes => PullReason::SmallRead,
        Some(_) => return Pull::No,
        None if waiting.own_sender_waits => PullReason::OwnSenderWaits,
        None if waiting.end_of_stream => PullReason::EndOfStream,
        None if waiting.polls => PullReason::Polls,
        None => match waiting.now {
            Some(why) => why,
            None => return Pull::Later,
        },
    };
    Pull::Now { bytes, why }
}
