// SPDX-License-Identifier: GPL-2.0

//! When to read a source advert into kernel memory though no reader asks for
//! its bytes.
//!
//! - **A1** A sink may do so whenever its receive buffer has room. A sender is
//!   then blocked only where one over TCP would be that has a peer with the
//!   same receive buffer. The peer never has to say of its own accord that it
//!   wants the bytes by copy, and two sides that both send and do not read come
//!   free.
//!
//! Waiting a little is worth it: a reader that comes in time gets the bytes
//! into its own memory, without a copy.

/// What is known when an advert is the next of the stream.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Waiting {
    /// Bytes of adverts for which no Read was posted.
    pub untaken_bytes: u64,
    /// Bytes for which the receive buffer has room.
    pub room_bytes: u64,
    /// Why nobody is waited for who would read the adverts, if that is so.
    pub now: Option<PullReason>,
    /// A send of our own waits for credits, or for its adverts to be consumed.
    pub own_sender_waits: bool,
    /// A reader waits that can take the bytes itself, with so much room.
    pub reader_bytes: Option<u64>,
    /// The peer's DisConn has come: it waits for the last answers.
    pub end_of_stream: bool,
    /// The program looks whether there are bytes before it reads, by poll() or by reads that do not
    /// wait: the reader comes when the bytes are there.
    pub polls: bool,
}

/// Why adverts are pulled.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum PullReason {
    /// The peer may be waiting for us as we wait for it.
    OwnSenderWaits,
    /// A reader waits that cannot take the bytes itself.
    Reader,
    /// The reader's buffer is too small to be worth a Read of its own.
    SmallRead,
    /// The peer has shut its half.
    EndOfStream,
    /// No reader came in time.
    Delay,
    /// The reader comes when the bytes are there.
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

    /// The name under which it is counted.
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
    /// Nothing is there to pull, or a reader takes it, or there is no room: ask
    /// again when something changes.
    No,
    /// Ask again when a reader has had some time to come.
    Later,
    /// At most so many bytes, at least 1.
    Now {
        /// As much as there is, and as there is room for.
        bytes: u64,
        /// Why.
        why: PullReason,
    },
}

/// Decides whether to read adverts into kernel memory (A1).
///
/// A reader that waits with a buffer large enough takes the bytes itself, and
/// nobody is blocked by that; one with less than `small_bytes` gets a copy.
/// Without room a sender is blocked where one over TCP is, too.
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
