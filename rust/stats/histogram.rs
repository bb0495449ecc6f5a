// SPDX-License-Identifier: GPL-2.0

//! Histograms of a connection, and the ring of its last messages. Neither takes memory before it is used.

use kernel::prelude::*;

use crate::proto::bsdh::{
    Bsdh,
    Mid, //
};

/// Classes of a histogram: the last has all that is larger.
const CLASSES: usize = 32;

/// How many values there were of each size: class 0 has the zeros, class `i` those from `2^(i-1)` to
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

    /// Hands every class that is not empty to `each`: its least value, and how many there were.
    pub(crate) fn for_each(&self, mut each: impl FnMut(u64, u32)) {
        for (class, n) in self.0.iter().enumerate().filter(|(_, n)| **n != 0) {
            each(if class == 0 { 0 } else { 1 << (class - 1) }, *n);
        }
    }
}

/// The histograms of a connection.
#[derive(Copy, Clone)]
pub(crate) struct Histograms {
    /// Bytes that a call of send() has taken.
    pub(crate) send_bytes: Log2,
    /// Microseconds from an advert of ours to its end.
    pub(crate) advert_us: Log2,
}

impl Histograms {
    pub(crate) const NONE: Self = Self {
        send_bytes: Log2::new(),
        advert_us: Log2::new(),
    };
}

/// A message of the protocol, as it was sent or received.
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
    /// Messages that we may send after it.
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

/// Messages that a ring keeps.
const RING: usize = 256;

/// The last messages of a connection.
pub(crate) struct Messages {
    /// With room for [`RING`].
    kept: KVec<Noted>,
    /// The place of the oldest, once there is no more room.
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
            // There is room.
            let _ = self.kept.push_within_capacity(message);
            return;
        }
        if let Some(place) = self.kept.get_mut(self.oldest) {
            *place = message;
            self.oldest = (self.oldest + 1) % RING;
        }
    }

    /// All, the oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Noted> {
        let (new, old) = self.kept.split_at_checked(self.oldest).unwrap_or_default();
        Iterator::chain(old.iter(), new)
    }

    /// Copies all to where there is room for them; the oldest first.
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
