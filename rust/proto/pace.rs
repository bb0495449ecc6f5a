// SPDX-License-Identifier: GPL-2.0

//! What a sender learns of its connection: how long a message and its
//! acknowledgement take, how fast bytes are delivered, and what holds the
//! sender up.
//!
//! One message at a time is a sample: from its post to the first message of
//! the peer that acknowledges it. A peer acknowledges with whatever it sends
//! next, so a round trip includes what the peer's program takes to
//! answer, as with TCP and its delayed acknowledgements.

/// Microseconds of some clock that never goes back.
pub type Micros = u64;

/// The smoothed round-trip time (RFC 6298, section 2).
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct RoundTrip {
    /// Microseconds; 0 before the first sample.
    pub smoothed_us: u32,
    /// The mean deviation from that, in microseconds.
    pub deviation_us: u32,
    /// The least sample, in microseconds; 0 before the first sample.
    pub least_us: u32,
}

impl RoundTrip {
    /// Takes a sample of so many microseconds.
    pub fn sample(&mut self, us: u32) {
        // 0 means that there was none.
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

/// The mean of `old`, which counts `weight` times, and `new`.
fn weighted(old: u32, weight: u32, new: u32) -> u32 {
    let sum = u64::from(old)
        .saturating_mul(weight.into())
        .saturating_add(new.into());
    let mean = sum.div_euclid(u64::from(weight).saturating_add(1));
    // A mean is not more than the larger one of both.
    u32::try_from(mean).unwrap_or(u32::MAX)
}

/// What a sender does, or waits for.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
#[repr(usize)]
pub enum Doing {
    /// All that was sent is with the peer.
    #[default]
    Nothing,
    /// Bytes are on their way.
    Sending,
    /// The peer has no receives for what is to be sent.
    AwaitingPeer,
    /// The send buffer is full, and all of its bytes are on their way.
    AwaitingRoom,
}

/// How many of them there are.
const ALL: usize = Doing::AwaitingRoom as usize + 1;

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Sample {
    /// The number of the message.
    mseq: u32,
    posted_us: Micros,
    /// Bytes that the peer had then.
    delivered: u64,
}

/// The figures of a connection's sender.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Pace {
    sample: Option<Sample>,
    /// Bytes that the peer has had.
    delivered: u64,
    /// The most bytes sent that anybody was told of.
    told_sent: u64,
    round_trip: RoundTrip,
    bytes_per_s: u64,
    doing: Doing,
    since_us: Micros,
    spent_us: [Micros; ALL],
}

impl Pace {
    /// Whether the next message shall be the sample.
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

    /// So many bytes more are with the peer.
    pub fn deliver(&mut self, bytes: u32) {
        self.delivered = self.delivered.saturating_add(bytes.into());
    }

    /// Bytes that were sent, with so many in flight. What is in flight may come to nothing, but who
    /// looks twice does not find fewer.
    pub fn sent(&mut self, in_flight: u32) -> u64 {
        let sent = self.delivered.saturating_add(in_flight.into());
        self.told_sent = self.told_sent.max(sent);
        self.told_sent
    }

    /// Bytes that the peer has had.
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

    /// Whether the sender does something else from now on.
    pub fn changes(&self, doing: Doing) -> bool {
        self.doing != doing
    }

    /// From now on the sender does that.
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

    /// Bytes that the peer got in a second, by the last sample that had any; 0 before that.
    pub const fn bytes_per_s(&self) -> u64 {
        self.bytes_per_s
    }

    /// For how many microseconds the sender has done, or awaited, each of these.
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

/// What a sender's time went into, in microseconds.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Times {
    /// Not everything was with the peer; includes the others.
    pub busy_us: Micros,
    /// [`Doing::AwaitingPeer`].
    pub awaiting_peer_us: Micros,
    /// [`Doing::AwaitingRoom`].
    pub awaiting_room_us: Micros,
}
