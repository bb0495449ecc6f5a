// SPDX-License-Identifier: GPL-2.0

//! Turns: which call has a half of the stream, and for how long it may keep the half.
//!
//! A call that faults pages in, or takes or returns memory of a program, releases the lock of the
//! socket but keeps its place in the stream. So the bytes of two sends do not mix, and a receive
//! does not take bytes out of the middle of another receive. A call that begins meanwhile waits for
//! its turn. If a peer decides how long the other call keeps the half, the call waits only as long
//! as its time-out allows, as it would wait for this peer itself.

/// A half of the stream.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Side {
    /// The bytes that this side sends.
    Sending,
    /// The bytes that this side receives.
    Receiving,
}

/// The use of a half: a call keeps the half while it works or waits without the lock.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Half {
    /// No call has it.
    Free,
    /// A call faults pages in, or takes or returns memory of a program.
    Working,
    /// A call takes memory of its program: it may first wait for bytes of earlier receives into
    /// this memory, also of other connections.
    TakingMemory,
    /// A send has adverts out or Writes in flight; a receive advertises its buffer, or waits for
    /// Reads into it.
    AwaitingPeer,
    /// A send waits for room for an advert.
    AwaitingRoom,
}

impl Half {
    /// Whether a peer decides how long a call keeps the half.
    pub const fn is_up_to_peer(self) -> bool {
        matches!(
            self,
            Self::TakingMemory | Self::AwaitingPeer | Self::AwaitingRoom
        )
    }

    /// The state for the socket's next connection: the call still has the half. It does not wait
    /// for the former peer any more, but a receive may still wait for the bytes of another
    /// connection.
    const fn of_former(self, side: Side) -> Self {
        match (self, side) {
            (Self::Free, _) => Self::Free,
            (Self::TakingMemory | Self::AwaitingPeer, Side::Receiving) => Self::TakingMemory,
            _ => Self::Working,
        }
    }
}

/// Identifies the connection for which a call began, among the successive ones of a socket.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Generation(u32);

/// What a call does that needs a half.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Turn {
    /// The half is free.
    Now,
    /// Another call has the half, and gives it back soon: wait without a limit.
    Wait,
    /// As [`Turn::Wait`], but a peer decides how long: wait as long as the call's time-out allows.
    WaitLimited,
    /// As [`Turn::WaitLimited`], and the time of the call is over.
    Refused,
    /// The call began for a former connection of the socket: its bytes must not go to the present
    /// one.
    Former,
}

/// Who must be told when a call gives its half back.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Freed {
    /// Pollers for room: poll() has not reported the socket as writable meanwhile.
    pub wake_writer: bool,
    /// Pollers for bytes: a receive was refused meanwhile, and bytes may be left.
    pub wake_reader: bool,
}

/// The halves of the stream, and the number of the connection to which they belong.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Halves {
    sending: Half,
    receiving: Half,
    /// A receive that must not wait was refused because another one had the half.
    reader_refused: bool,
    /// As `reader_refused`, for a send.
    writer_refused: bool,
    /// The number of sends that wait for memory. Such a send does not keep the half.
    memory_waiters: u32,
    generation: Generation,
}

impl Default for Halves {
    fn default() -> Self {
        Self::new()
    }
}

impl Halves {
    /// The halves of the first connection of a socket.
    pub const fn new() -> Self {
        Self {
            sending: Half::Free,
            receiving: Half::Free,
            reader_refused: false,
            writer_refused: false,
            memory_waiters: 0,
            generation: Generation(0),
        }
    }

    /// The halves of the socket's next connection. Calls for this connection may still be running.
    #[must_use]
    pub const fn next(self) -> Self {
        Self {
            sending: self.sending.of_former(Side::Sending),
            receiving: self.receiving.of_former(Side::Receiving),
            reader_refused: self.reader_refused,
            writer_refused: self.writer_refused,
            memory_waiters: 0,
            generation: Generation(self.generation.0.wrapping_add(1)),
        }
    }

    /// The generation of the socket's current connection.
    pub const fn generation(&self) -> Generation {
        self.generation
    }

    const fn half(&self, side: Side) -> Half {
        match side {
            Side::Sending => self.sending,
            Side::Receiving => self.receiving,
        }
    }

    const fn set(&mut self, side: Side, half: Half) {
        match side {
            Side::Sending => self.sending = half,
            Side::Receiving => self.receiving = half,
        }
    }

    /// What a call does that needs the half of `side`, and that began in generation `began`;
    /// `is_over` says that the time for which it may wait is over. Pollers learn of a refusal's end
    /// as after [`Halves::refuse`].
    pub fn turn(&mut self, side: Side, began: Generation, is_over: bool) -> Turn {
        let half = self.half(side);
        if began != self.generation {
            Turn::Former
        } else if half == Half::Free {
            Turn::Now
        } else if !half.is_up_to_peer() {
            Turn::Wait
        } else if is_over {
            self.refuse(side);
            Turn::Refused
        } else {
            Turn::WaitLimited
        }
    }

    /// A call that needs the half of `side` ends without it: pollers are woken when the half is free.
    pub const fn refuse(&mut self, side: Side) {
        match side {
            Side::Sending => self.writer_refused = true,
            Side::Receiving => self.reader_refused = true,
        }
    }

    /// A call takes the half of `side`. Returns `false` if another call has it, which must not
    /// happen: [`Halves::turn`] has returned [`Turn::Now`], and the lock was not released since.
    pub fn begin(&mut self, side: Side, half: Half) -> bool {
        let was_free = self.half(side) == Half::Free;
        self.set(side, half);
        was_free
    }

    /// The call that has taken the half of `side` for `half` gives it back.
    pub fn end(&mut self, side: Side, half: Half) -> Freed {
        self.set(side, Half::Free);
        match side {
            Side::Sending => Freed {
                wake_writer: core::mem::replace(&mut self.writer_refused, false)
                    || half.is_up_to_peer(),
                wake_reader: false,
            },
            Side::Receiving => Freed {
                wake_writer: false,
                wake_reader: core::mem::replace(&mut self.reader_refused, false),
            },
        }
    }

    /// A send begins to wait for memory; it does not have the half. Returns the generation of its
    /// connection.
    pub const fn memory_wait_begins(&mut self) -> Generation {
        self.memory_waiters = self.memory_waiters.saturating_add(1);
        self.generation
    }

    /// The wait that began in that generation has ended.
    pub fn memory_wait_ends(&mut self, began: Generation) {
        if began == self.generation {
            self.memory_waiters = self.memory_waiters.saturating_sub(1);
        }
    }

    /// Whether a send waits for memory.
    pub const fn has_memory_waiter(&self) -> bool {
        self.memory_waiters > 0
    }

    /// Whether a send waits for the peer, which may itself wait until its bytes are received.
    pub const fn sender_waits_for_peer(&self) -> bool {
        matches!(self.sending, Half::AwaitingPeer | Half::AwaitingRoom)
    }

    /// Whether sends wait for memory or for room for an advert, and will continue when there is
    /// some.
    pub const fn sender_waits_for_room(&self) -> bool {
        self.has_memory_waiter() || matches!(self.sending, Half::AwaitingRoom)
    }
}
