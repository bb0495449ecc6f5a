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

use super::choice::MIN_UNCOPIED_BYTES;

/// The state when there are adverts of which bytes are not being read.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Waiting {
    /// The number of bytes of the first such advert for which no Read was posted. A Read does not
    /// extend over several adverts.
    pub untaken_bytes: u64,
    /// Bytes for which the receive buffer has room.
    pub room_bytes: u64,
    /// [`ReaderWait::over`].
    pub now: Option<PullReason>,
    /// A send of this side waits for credits, or for its adverts to be consumed.
    pub own_sender_waits: bool,
    /// A reader waits, with room for this many bytes that it takes itself; 0 if it cannot take any.
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
    /// A reader already waited when the advert came, but its buffer is too small to be worth a Read
    /// of its own, or it cannot take the bytes itself for another reason.
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
    /// Decide again after a reader has had some time to come ([`ReaderWait::must_start_timer`]).
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
/// A reader that waits with a large enough buffer posts the Read itself, so no sender has to wait for
/// a pull. A reader with less than [`MIN_UNCOPIED_BYTES`] gets a copy. If there is no room, the sender
/// waits, as it would over TCP.
pub const fn pull(waiting: Waiting) -> Pull {
    let bytes = if waiting.untaken_bytes < waiting.room_bytes {
        waiting.untaken_bytes
    } else {
        waiting.room_bytes
    };
    if bytes == 0 {
        return Pull::No;
    }
    let why = match waiting.reader_bytes {
        Some(wanted) if wanted < MIN_UNCOPIED_BYTES as u64 => PullReason::SmallRead,
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

/// The timer that limits the wait for a reader.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
enum Timer {
    #[default]
    Stopped,
    Running,
    /// Running; since it was started, a reader has begun to take an advert itself, or has got the
    /// bytes of one.
    ReaderCame,
}

/// The wait of adverts for a reader that takes the bytes itself. The wait for one advert takes at
/// most two runs of the timer, except while Reads of a reader are in flight.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct ReaderWait {
    timer: Timer,
    /// The wait for the first advert was already extended because a reader came.
    extended: bool,
    over: Option<PullReason>,
}

/// What to do when the timer of a [`ReaderWait`] has expired.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Expired {
    /// Decide again: the wait goes on.
    Decide,
    /// Pull the adverts because of [`PullReason::Delay`].
    Pull,
    /// Nothing: a reader waits.
    Nothing,
}

impl ReaderWait {
    /// No timer runs.
    pub const fn new() -> Self {
        Self {
            timer: Timer::Stopped,
            extended: false,
            over: None,
        }
    }

    /// The reason not to wait for a reader, if there is one.
    pub const fn over(&self) -> Option<PullReason> {
        self.over
    }

    /// Sets or clears the reason not to wait for a reader.
    pub const fn set_over(&mut self, why: Option<PullReason>) {
        self.over = why;
    }

    /// Whether the timer must be started for [`Pull::Later`]: it does not run yet. The caller then
    /// starts it.
    #[must_use]
    pub const fn must_start_timer(&mut self) -> bool {
        let starts = matches!(self.timer, Timer::Stopped);
        if starts {
            self.timer = Timer::Running;
        }
        starts
    }

    /// Records that a reader has begun to take an advert itself, or has got the bytes of one.
    pub const fn reader_came(&mut self) {
        if matches!(self.timer, Timer::Running) {
            self.timer = Timer::ReaderCame;
        }
    }

    /// Records a Read of an advert; `takes_rest` says that no byte of this advert is left, and
    /// `takes_all` that none of any advert is.
    pub const fn read_posted(&mut self, takes_rest: bool, takes_all: bool) {
        if takes_rest {
            self.extended = false;
        }
        if takes_all {
            self.over = None;
        }
    }

    /// The timer has expired. `reads` says that bytes of a reader are still on their way: this
    /// reader is not late for the bytes behind them. If a reader has come since the timer was
    /// started, the advert waits once more, but only once. `reader_waits` says that a reader waits
    /// that can take the bytes.
    pub const fn expired(&mut self, reads: bool, reader_waits: bool) -> Expired {
        let came = matches!(self.timer, Timer::ReaderCame) && !self.extended;
        self.timer = Timer::Stopped;
        if reads {
            Expired::Decide
        } else if came {
            self.extended = true;
            Expired::Decide
        } else if reader_waits {
            Expired::Nothing
        } else {
            Expired::Pull
        }
    }
}
