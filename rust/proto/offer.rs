// SPDX-License-Identifier: GPL-2.0

//! Whether a waiting reader advertises its buffer.
//!
//! An advert that the peer does not write to is wasted: pages were pinned and a key was made for
//! it. This happens if the peer has already sent (the messages cross), sends little at a time, uses
//! another path, or sends nothing while the reader waits. So after a wasted advert the next waiting
//! receive sends no advert, and each further wasted advert about doubles the number of receives
//! that send none. The first useful advert ends the pause.

use super::{
    choice::{
        Path,
        Wanted, //
    },
    sink::SinkHold,
};

/// The properties of a receive that is about to wait.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Waiting {
    /// The user's choice.
    pub wanted: Wanted,
    /// The minimum size of the call with [`Wanted::Automatic`]; 0 if everything is copied.
    pub threshold_bytes: u64,
    /// The size of the whole call's buffer, in bytes.
    pub call_bytes: u64,
    /// Bytes that the call may get without a copy now.
    pub room_bytes: u64,
    /// Whether the call advertises no more: an advert was not possible, was not used for too long,
    /// or is left out by [`Offers`].
    pub excluded: bool,
}

impl Waiting {
    /// Whether the user wants the receive to advertise its buffer, and the receive may.
    pub fn wants_advert(&self) -> bool {
        !self.excluded
            && self.room_bytes > 0
            && self.wanted.admits(Path::SinkWrite)
            && self
                .wanted
                .admits_uncopied(self.call_bytes, self.threshold_bytes)
    }
}

/// The state of a connection that decides whether a piece of a buffer can be advertised now.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Advertising {
    /// Whether the sides agreed on sink adverts ([`super::choice::SINK_NEEDS`]).
    pub agreed: bool,
    /// Whether all received bytes were read, and all bytes of the peer's source adverts (rule S1 of
    /// [`super::sink_writer`]).
    pub read_out: bool,
    /// Whether bytes of the peer may still come.
    pub can_receive: bool,
    /// Whether there is a place for another region of memory.
    pub has_region_room: bool,
    /// Whether the send queue has places for the registration and the message.
    pub has_places: bool,
    /// Whether there are credits for the message.
    pub has_credits: bool,
    /// Whether the peer may write to an advert.
    pub is_live: bool,
    /// The reason why the peer cannot take another advert
    /// ([`super::sink::SinkAdverts::may_post`]).
    pub hold: Option<SinkHold>,
}

impl Advertising {
    /// Whether a piece can be advertised. A piece `behind` another one of the same call continues
    /// it, so the advert before it must still be out; a first piece must be the only one.
    pub fn may_advertise(&self, behind: bool) -> bool {
        self.agreed
            && self.read_out
            && self.can_receive
            && self.has_region_room
            && self.has_places
            && self.has_credits
            && self.is_live == behind
            && self.hold.is_none()
    }
}

/// The maximum number of receives without an advert.
pub const PAUSE_MAX: u32 = 63;

/// The record of a connection's sink adverts.
///
/// # Invariants
///
/// Both numbers are at most [`PAUSE_MAX`].
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Offers {
    /// The number of receives from now on that send no advert.
    left: u32,
    /// The number of receives in the last pause, which the last wasted advert has begun.
    pause: u32,
}

impl Offers {
    /// No adverts.
    pub const fn new() -> Self {
        Self { left: 0, pause: 0 }
    }

    /// Whether a receive that is about to wait should advertise its buffer. Called when it waits
    /// for the first time, and again after `true` was returned.
    pub const fn may_offer(&mut self) -> bool {
        if self.left == 0 {
            return true;
        }
        self.left = self.left.saturating_sub(1);
        false
    }

    /// The peer has written to an advert.
    pub const fn on_used(&mut self) {
        *self = Self::new();
    }

    /// All adverts of a wait have ended without a byte.
    pub const fn on_unused(&mut self) {
        let pause = self.pause.saturating_mul(2).saturating_add(1);
        // INVARIANT: bounded here.
        self.pause = if pause < PAUSE_MAX { pause } else { PAUSE_MAX };
        self.left = self.pause;
    }
}
