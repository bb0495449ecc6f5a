// SPDX-License-Identifier: GPL-2.0

//! The counters of each connection: plain numbers in the connection's state, under the lock of its
//! socket.

use kernel::prelude::*;

use super::counters::{
    Counter,
    Stats, //
};
use crate::proto::bsdh::Mid;
use crate::proto::choice::Reason;

macro_rules! kept {
    ($($name:ident,)*) => {
        /// The namespace's counters that each connection also has.
        #[derive(Copy, Clone)]
        #[repr(usize)]
        pub(crate) enum Kept {
            $($name,)*
        }

        impl Kept {
            const ALL: &'static [Counter] = &[$(Counter::$name,)*];
        }
    };
}

kept! {
    TxCopiedBytes,
    TxBytes,
    TxZcopyBytes,
    TxWrittenBytes,
    RxBytes,
    RxCopiedBytes,
    RxZcopyBytes,
    RxPulledBytes,
    RxWrittenBytes,
    CreditStall,
    QueueStall,
    AdvertPosted,
    AdvertAsync,
    AdvertConsumed,
    AdvertCancelled,
    AdvertReceived,
    SinkSent,
    SinkReceived,
    WriteAsync,
    ReadEarly,
    SnapshotFreed,
    SnapshotCopied,
    SnapshotWaits,
    PagesTouched,
    PagesRestored,
    AbsentFreed,
    AbsentTouched,
    AbsentWaits,
}

const KEPT: usize = Kept::ALL.len();

impl Stats {
    /// Adds to a namespace's counter that a connection also has.
    pub(crate) fn add_kept(self, what: Kept, n: u64) {
        if let Some(counter) = Kept::ALL.get(what as usize) {
            self.add(*counter, n);
        }
    }
}

/// The counters of a connection, from its beginning on. They stay with the socket after the
/// connection has ended.
#[derive(Clone)]
pub(crate) struct Tally {
    kept: [u64; KEPT],
    sent: [u64; Mid::COUNT],
    received: [u64; Mid::COUNT],
    by_copy: [u64; Reason::ALL.len()],
    last_by_copy: Option<Reason>,
}

fn add(place: Option<&mut u64>, n: u64) {
    if let Some(place) = place.filter(|_| super::COUNTS) {
        *place = place.wrapping_add(n);
    }
}

impl Tally {
    /// The number of counters.
    pub(crate) const COUNT: usize = KEPT + 2 * Mid::COUNT + Reason::ALL.len();

    pub(crate) const fn new() -> Self {
        Self {
            kept: [0; KEPT],
            sent: [0; Mid::COUNT],
            received: [0; Mid::COUNT],
            by_copy: [0; Reason::ALL.len()],
            last_by_copy: None,
        }
    }

    /// Adds to a counter of the connection; the caller has added to the namespace's.
    pub(crate) fn add(&mut self, what: Kept, n: u64) {
        add(self.kept.get_mut(what as usize), n);
    }

    /// Counts a message sent.
    pub(crate) fn add_sent(&mut self, mid: Mid) {
        add(self.sent.get_mut(mid.index()), 1);
    }

    /// Counts a message received.
    pub(crate) fn add_received(&mut self, mid: Mid) {
        add(self.received.get_mut(mid.index()), 1);
    }

    /// Counts one occasion on which bytes did not take the preferred path: for example, a send was
    /// copied, or a receive waited in its call.
    pub(crate) fn add_by_copy(&mut self, why: Reason) {
        add(self.by_copy.get_mut(why as usize), 1);
        self.last_by_copy = Some(why);
    }

    /// The value of a counter.
    pub(crate) fn get(&self, what: Kept) -> u64 {
        self.kept.get(what as usize).copied().unwrap_or(0)
    }

    /// The numbers of messages sent and received.
    pub(crate) fn messages(&self) -> (u64, u64) {
        (self.sent.iter().sum(), self.received.iter().sum())
    }

    /// The last reason that was counted.
    pub(crate) fn last_by_copy(&self) -> Option<Reason> {
        self.last_by_copy
    }

    /// Calls `each` for every counter: a group, a name, the value. The names are those of the
    /// namespace's counters.
    pub(crate) fn for_each(&self, mut each: impl FnMut(&'static str, &'static str, u64)) {
        for (counter, n) in Kept::ALL.iter().zip(&self.kept) {
            each("", counter.name(), *n);
        }
        for (mid, n) in Mid::ALL.iter().zip(&self.sent) {
            each(Stats::SENT, mid.name(), *n);
        }
        for (mid, n) in Mid::ALL.iter().zip(&self.received) {
            each(Stats::RECEIVED, mid.name(), *n);
        }
        for (why, n) in Reason::ALL.iter().zip(&self.by_copy) {
            each(Stats::BY_COPY, why.name(), *n);
        }
    }
}

#[kunit_tests(ib_sdp_tally)]
mod tests {
    use super::*;

    #[test]
    fn shows_each_counter_once() {
        let mut tally = Tally::new();
        tally.add(Kept::TxBytes, 5);
        tally.add(Kept::TxBytes, 1 << 40);
        let (mut shown, mut total) = (0, 0);
        tally.for_each(|group, name, n| {
            shown += 1;
            total += n;
            let expected = (group, name) == ("", "tx_bytes");
            assert_eq!((n != 0), expected);
        });
        assert_eq!(shown, Tally::COUNT);
        assert_eq!(total, 5 + (1 << 40));
    }
}
