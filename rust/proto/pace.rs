// SPDX-License-Identifier: GPL-2.0

//! Measurements of a sender: the round-trip time of a message and its acknowledgement, the delivery
//! rate, and what limits the sender.
//!
//! One message at a time is a sample: from its post to the first message of the peer that
//! acknowledges it. A peer acknowledges with the next message that it sends, so the round-trip time
//! includes the time that the peer's program takes to answer, as with TCP and its delayed
//! acknowledgements.

/// Microseconds of a monotonic clock.
pub type Micros = u64;

/// The smoothed round-trip time (RFC 6298, section 2).
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct RoundTrip {
    /// Microseconds; 0 before the first sample.
    pub smoothed_us: u32,
    /// The mean deviation from `smoothed_us`, in microseconds.
    pub deviation_us: u32,
    /// The smallest sample, in microseconds; 0 before the first sample.
    pub least_us: u32,
}

impl RoundTrip {
    /// Adds a sample of `us` microseconds.
    pub fn sample(&mut self, us: u32) {
        // 0 means that there was no sample.
        let us = us.max(1);
        if self.smoothed_us == 0 {
            *self = Self {
                smoothed_us: us,
                deviation_us: us / 2,
                least_us: us,
            };
            return;
        }
        let off = self.smoothed_us.abs_diff(us);
        self.deviation_us = weighted(self.deviation_us, 3, off);
        self.smoothed_us = weighted(self.smoothed_us, 7, us);
        self.least_us = self.least_us.min(us);
    }
}

/// The mean of `old`, with the weight `weight`, and `new`.
fn weighted(old: u32, weight: u32, new: u32) -> u32 {
    let sum = u64::from(old)
        .saturating_mul(weight.into())
        .saturating_add(new.into());
    let mean = sum.div_euclid(u64::from(weight).saturating_add(1));
    // A mean is not larger than the larger number.
    u32::try_from(mean).unwrap_or(u32::MAX)
}

/// The activity of a sender, or what it waits for.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
#[repr(usize)]
pub enum Doing {
    /// All sent bytes have reached the peer.
    #[default]
    Nothing,
    /// Bytes are on their way.
    Sending,
    /// The peer has no receives for the waiting bytes.
    AwaitingPeer,
    /// The send buffer is full, and all of its bytes are on their way.
    AwaitingRoom,
}

/// The number of activities.
const ALL: usize = Doing::AwaitingRoom as usize + 1;

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Sample {
    /// The number of the message.
    mseq: u32,
    posted_us: Micros,
    /// The number of bytes that had reached the peer at this time.
    delivered: u64,
}

/// The figures of a connection's sender.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Pace {
    sample: Option<Sample>,
    /// The number of bytes that have reached the peer.
    delivered: u64,
    /// The largest number of sent bytes that was reported.
    told_sent: u64,
    round_trip: RoundTrip,
    bytes_per_s: u64,
    doing: Doing,
    since_us: Micros,
    spent_us: [Micros; ALL],
}

impl Pace {
    /// Whether the next message should be the sample.
    pub const fn wants_sample(&self) -> bool {
        self.sample.is_none()
    }

    /// The message with the number `mseq` is posted now, and becomes the sample.
    pub const fn posted(&mut self, mseq: u32, now_us: Micros) {
        self.sample = Some(Sample {
            mseq,
            posted_us: now_us,
            delivered: self.delivered,
        });
    }

    /// Adds `bytes` that have reached the peer.
    pub fn deliver(&mut self, bytes: u32) {
        self.delivered = self.delivered.saturating_add(bytes.into());
    }

    /// The number of sent bytes, with `in_flight` bytes in flight. Bytes in flight may be lost, but
    /// the reported number never decreases.
    pub fn sent(&mut self, in_flight: u32) -> u64 {
        let sent = self.delivered.saturating_add(in_flight.into());
        self.told_sent = self.told_sent.max(sent);
        self.told_sent
    }

    /// The number of bytes that have reached the peer.
    pub const fn delivered(&self) -> u64 {
        self.delivered
    }

    /// The number of the sample's message.
    pub fn awaited(&self) -> Option<u32> {
        self.sample.map(|sample| sample.mseq)
    }

    /// The peer has acknowledged the sample.
    pub fn acknowledged(&mut self, now_us: Micros) {
        let Some(sample) = self.sample.take() else {
            return;
        };
        let took_us = now_us.saturating_sub(sample.posted_us);
        self.round_trip
            .sample(u32::try_from(took_us).unwrap_or(u32::MAX));
        let bytes = self.delivered.saturating_sub(sample.delivered);
        if bytes > 0 {
            self.bytes_per_s = bytes
                .saturating_mul(1_000_000)
                .checked_div(took_us)
                .unwrap_or(bytes);
        }
    }

    /// Whether the sender's activity changes to `doing`.
    pub fn changes(&self, doing: Doing) -> bool {
        self.doing != doing
    }

    /// Changes the sender's activity.
    pub fn does(&mut self, doing: Doing, now_us: Micros) {
        self.spent_us = self.spent(now_us);
        (self.doing, self.since_us) = (doing, now_us);
    }

    fn spent(&self, now_us: Micros) -> [Micros; ALL] {
        let mut spent_us = self.spent_us;
        if let Some(us) = spent_us.get_mut(self.doing as usize) {
            *us = us.saturating_add(now_us.saturating_sub(self.since_us));
        }
        spent_us
    }

    /// The round-trip time.
    pub const fn round_trip(&self) -> RoundTrip {
        self.round_trip
    }

    /// The number of bytes that the peer received per second, by the last sample with any bytes; 0
    /// before the first one.
    pub const fn bytes_per_s(&self) -> u64 {
        self.bytes_per_s
    }

    /// The time that the sender has spent in each activity, in microseconds.
    pub fn times(&self, now_us: Micros) -> Times {
        let [_, sending_us, awaiting_peer_us, awaiting_room_us] = self.spent(now_us);
        Times {
            busy_us: sending_us
                .saturating_add(awaiting_peer_us)
                .saturating_add(awaiting_room_us),
            awaiting_peer_us,
            awaiting_room_us,
        }
    }
}

/// The time that a sender has spent, in microseconds.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Times {
    /// Some bytes had not reached the peer; includes the other times.
    pub busy_us: Micros,
    /// [`Doing::AwaitingPeer`].
    pub awaiting_peer_us: Micros,
    /// [`Doing::AwaitingRoom`].
    pub awaiting_room_us: Micros,
}
