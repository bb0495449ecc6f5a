// SPDX-License-Identifier: GPL-2.0

//! Histograms of a connection, and the ring of its last messages. Both allocate memory only when
//! they are used.

use kernel::prelude::*;

use crate::proto::bsdh::{
    Bsdh,
    Mid, //
};

/// Classes of a histogram: the last one also contains all larger values.
const CLASSES: usize = 32;

/// The number of values of each size: class 0 counts zeros, class `i` the values from `2^(i-1)` to
/// `2^i - 1`.
#[derive(Copy, Clone)]
pub(crate) struct Log2([u32; CLASSES]);

impl Log2 {
    pub(crate) const fn new() -> Self {
        Self([0; CLASSES])
    }

    pub(crate) fn add(&mut self, value: u64) {
        let class = (u64::BITS - value.leading_zeros()) as usize;
        if let Some(n) = self.0.get_mut(class.min(CLASSES - 1)) {
            *n = n.saturating_add(1);
        }
    }

    /// Calls `each` for every non-empty class: its smallest value, and its count.
    pub(crate) fn for_each(&self, mut each: impl FnMut(u64, u32)) {
        for (class, n) in self.0.iter().enumerate().filter(|(_, n)| **n != 0) {
            each(if class == 0 { 0 } else { 1 << (class - 1) }, *n);
        }
    }
}

/// The histograms of a connection.
#[derive(Copy, Clone)]
pub(crate) struct Histograms {
    /// The number of bytes that a call of send() has taken.
    pub(crate) send_bytes: Log2,
    /// Microseconds from an advert of this side to its end.
    pub(crate) advert_us: Log2,
}

impl Histograms {
    pub(crate) const NONE: Self = Self {
        send_bytes: Log2::new(),
        advert_us: Log2::new(),
    };
}

/// A message of the protocol that was sent or received.
#[derive(Copy, Clone)]
pub(crate) struct Noted {
    /// CLOCK_MONOTONIC.
    pub(crate) time_ns: i64,
    pub(crate) mid: Mid,
    pub(crate) is_sent: bool,
    pub(crate) bufs: u16,
    pub(crate) mseq: u32,
    pub(crate) mseq_ack: u32,
    pub(crate) payload: u32,
    /// The number of messages that this side may send after it.
    pub(crate) credits: u32,
}

impl Noted {
    pub(crate) fn new(header: &Bsdh, is_sent: bool, payload: u32, credits: u32) -> Self {
        use kernel::time::{
            ClockSource,
            Monotonic, //
        };
        Self {
            time_ns: Monotonic::ktime_get(),
            mid: header.mid,
            is_sent,
            bufs: header.bufs,
            mseq: header.mseq,
            mseq_ack: header.mseq_ack,
            payload,
            credits,
        }
    }
}

/// The number of messages that a ring keeps.
const RING: usize = 256;

/// The last messages of a connection.
pub(crate) struct Messages {
    /// Has the capacity [`RING`].
    kept: KVec<Noted>,
    /// The index of the oldest message, once the ring is full.
    oldest: usize,
}

impl Messages {
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            kept: KVec::with_capacity(RING, GFP_KERNEL)?,
            oldest: 0,
        })
    }

    pub(crate) fn add(&mut self, message: Noted) {
        if self.kept.len() < RING {
            // The capacity suffices.
            let _ = self.kept.push_within_capacity(message);
            return;
        }
        if let Some(place) = self.kept.get_mut(self.oldest) {
            *place = message;
            self.oldest = (self.oldest + 1) % RING;
        }
    }

    /// All messages, the oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Noted> {
        let (new, old) = self.kept.split_at_checked(self.oldest).unwrap_or_default();
        Iterator::chain(old.iter(), new)
    }

    /// Copies all messages to a ring with room for them, the oldest first.
    pub(crate) fn copy_to(&self, other: &mut Self) {
        self.iter().for_each(|message| other.add(*message));
    }
}

#[kunit_tests(ib_sdp_histogram)]
mod tests {
    use super::*;

    #[test]
    fn each_value_has_its_class() {
        let mut histogram = Log2::new();
        for value in [0, 1, 2, 3, 4, 4095, 4096, 1 << 40, u64::MAX] {
            histogram.add(value);
        }
        let mut seen = [(0, 0); 7];
        let mut places = seen.iter_mut();
        histogram.for_each(|least, n| {
            if let Some(place) = places.next() {
                *place = (least, n);
            }
        });
        assert_eq!(
            seen,
            [
                (0, 1),
                (1, 1),
                (2, 2),
                (4, 1),
                (2048, 1),
                (4096, 1),
                (1 << 30, 2)
            ]
        );
    }

    #[test]
    fn a_ring_keeps_the_last() -> Result {
        let mut ring = Messages::new()?;
        let header = |mseq| Bsdh {
            mid: Mid::Data,
            flags: 0,
            bufs: 0,
            len: 16,
            mseq,
            mseq_ack: 0,
        };
        for mseq in 0..RING as u32 + 10 {
            ring.add(Noted::new(&header(mseq), true, 0, 0));
        }
        let mut copy = Messages::new()?;
        ring.copy_to(&mut copy);
        for (ring, first) in [(&ring, 10), (&copy, 10)] {
            assert_eq!(ring.iter().count(), RING);
            for (message, mseq) in ring.iter().zip(first..) {
                assert_eq!(message.mseq, mseq);
            }
        }
        Ok(())
    }
}
