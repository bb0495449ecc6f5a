// SPDX-License-Identifier: GPL-2.0

//! Code shared by source adverts and sink adverts.

use super::{
    hello::Features,
    violation::Violation, //
};

/// The maximum number of outstanding adverts of one kind and direction, even if the peer can hold
/// more.
pub const ADVERTS_MAX: usize = 64;

/// The number of an advert among those of its direction, modulo 2^32.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Id(u32);

impl Id {
    /// The first advert of a connection.
    pub(super) const FIRST: Self = Self(0);

    /// The advert after this one.
    pub(super) const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// The number.
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// The cancel of a side's own adverts: SrcAvailCancel (A2) or SinkAvailCancel (S5).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum OwnCancel {
    /// The adverts are not cancelled.
    None,
    /// The message has to be sent: it may wait for a credit.
    Due,
    /// The message was sent, and its answer has not come.
    Sent,
}

impl OwnCancel {
    /// Whether the message has to be sent.
    pub(super) const fn is_due(self) -> bool {
        matches!(self, Self::Due)
    }

    /// The message is sent, if it was due.
    pub(super) const fn sent(&mut self) {
        if self.is_due() {
            *self = Self::Sent;
        }
    }
}

/// The maximum number of outstanding adverts of a kind towards a side that can hold `max_adverts`:
/// one in Combined mode.
pub(super) const fn limit(max_adverts: u8, features: Features) -> u8 {
    if features.contains(Features::ORDERED) {
        max_adverts
    } else {
        1
    }
}

/// Checks that an advert has at least one byte, and that its last byte has an
/// address.
pub(super) fn check_range(len: u32, addr: u64) -> Result<(), Violation> {
    let last = len.checked_sub(1).ok_or(Violation::BadBody)?;
    match addr.checked_add(u64::from(last)) {
        Some(_) => Ok(()),
        None => Err(Violation::BadBody),
    }
}
