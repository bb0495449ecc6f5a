// SPDX-License-Identifier: GPL-2.0

//! The two sides, the wire between them, and all that can happen next.
//!
//! A byte is known by its place in the stream. An advert is at most 2 bytes
//! long and its address is the place of its first byte. What the adapters do is
//! part of the model: a Read happens some time after it was posted; a Write
//! arrives in order with the messages.

#[path = "receiver.rs"]
mod receiver;
#[path = "sender.rs"]
mod sender;

use proto_host::proto::{
    advert::Id,
    hello::Features,
    sink::SinkAdverts,
    sink_writer::{
        PayloadEvents,
        SinkWriter, //
    },
    source::SourceAdverts,
    source_reader::{
        Read,
        SourceReader, //
    },
    violation::Violation,
};
use std::collections::{
    BTreeSet,
    VecDeque, //
};

/// Messages in flight in each direction, at most.
const CHANNEL: usize = 3;
/// Bytes of a sink buffer; a source advert has 1 or 2.
const BUFFER_LEN: u32 = 2;

#[derive(Copy, Clone, Hash, Debug)]
pub(super) struct Bounds {
    pub(super) units: u32,
    pub(super) max_adverts: u8,
    pub(super) ordered: bool,
    pub(super) source: bool,
    pub(super) source_cancels: u8,
    pub(super) sink_adverts: u8,
    pub(super) sink_cancels: u8,
}

/// A rule to leave out.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Rule {
    /// S1.
    AdvertOnlyWhenEmpty,
    /// S2.
    AcceptOnlyEqualCount,
    /// S3.
    DeclineBeforePayload,
    /// S3: none is accepted before the event.
    DeclineCloses,
    /// S4: later adverts end.
    ShortVoids,
    /// S4: a payload event.
    ShortCounts,
    /// A2, for Data.
    NoDataBehindSynchronous,
    /// A2, for payload inside a SrcAvail.
    NoInlineBehindSynchronous,
    /// A3.
    AsynchronousStays,
    /// RdmaRdCompl goes when the Read has finished.
    ReportAfterRead,
    /// SendSm goes when the Reads have finished.
    SendSmAfterReads,
    /// A cancel is answered at all.
    CancelIsAnswered,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Failure {
    Refused(Violation),
    OutOfOrder,
    ReadOfReleased,
    WriteToReturned,
    WriteBehindDeclined,
    Unfinished,
    Endless,
}

#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
enum ToSink {
    Data(u32),
    SrcAvail {
        inline: Option<u32>,
        len: u32,
        rkey: u32,
        addr: u32,
    },
    SrcAvailCancel,
    /// An RDMA Write: the rkey, the place of its first byte and the length.
    Write(u32, u32, u32),
    RdmaWrCompl(u32),
}

#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
enum ToSource {
    /// The bytes, and whether the rkey is invalidated with it.
    RdmaRdCompl(u32, bool),
    SendSm,
    SinkAvail {
        rkey: u32,
        count: u32,
    },
    SinkAvailCancel,
}

/// A source advert as its sender sees it.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
struct Memory {
    rkey: u32,
    start: u32,
    /// Whether the send has not returned and can send the bytes again.
    sender_waits: bool,
}

#[derive(Clone, Hash)]
pub(super) struct World {
    bounds: Bounds,
    without: Option<Rule>,
    /// The place of the next byte to send.
    next: u32,
    source: SourceAdverts<Memory, 3>,
    writer: SinkWriter<3>,
    /// Sink adverts that the writer has accepted, for leaving rules out.
    accepted: VecDeque<u32>,
    shorts_sent: u32,
    reader: SourceReader<3, 2>,
    buffers: SinkAdverts<u32, 3>,
    shorts_received: u32,
    /// A buffer of the receive that waits was declined.
    declined: bool,
    /// The receive queue: where bytes start, and their number.
    queue: VecDeque<(u32, u32)>,
    /// Bytes that have arrived behind adverts: the advert that each follows.
    held: VecDeque<(Id, u32)>,
    /// Reads that the adapter has still to do.
    reads: VecDeque<Read>,
    /// Writes that were done, to buffers whose answers have not come.
    written: VecDeque<(u32, u32)>,
    delivered: u32,
    to_sink: VecDeque<ToSink>,
    to_source: VecDeque<ToSource>,
    /// Keys of source memory that its sender does not have back.
    source_keys: BTreeSet<u32>,
    /// Keys of sink buffers that their reader does not have back.
    sink_keys: BTreeSet<u32>,
    next_key: u32,
    source_cancels: u8,
    /// Cancels that were sent before all adverts were read.
    source_cancels_sent: u8,
    send_sms: u8,
    /// SendSms that went before they were due.
    send_sms_early: u8,
    sink_adverts: u8,
    sink_cancels: u8,
}

impl World {
    pub(super) fn start(bounds: Bounds, without: Option<Rule>) -> Self {
        let features = if bounds.ordered {
            Features::ALL
        } else {
            Features::SOURCE
        };
        let (max, none) = (bounds.max_adverts, PayloadEvents::new());
        Self {
            bounds,
            without,
            next: 0,
            source: SourceAdverts::new(max, features),
            writer: SinkWriter::new(max, features, none),
            accepted: VecDeque::new(),
            shorts_sent: 0,
            reader: SourceReader::new(max, features),
            buffers: SinkAdverts::new(max, features, none),
            shorts_received: 0,
            declined: false,
            queue: VecDeque::new(),
            held: VecDeque::new(),
            reads: VecDeque::new(),
            written: VecDeque::new(),
            delivered: 0,
            to_sink: VecDeque::new(),
            to_source: VecDeque::new(),
            source_keys: BTreeSet::new(),
            sink_keys: BTreeSet::new(),
            next_key: 0,
            source_cancels: 0,
            source_cancels_sent: 0,
            send_sms: 0,
            send_sms_early: 0,
            sink_adverts: 0,
            sink_cancels: 0,
        }
    }

    fn lacks(&self, rule: Rule) -> bool {
        self.without == Some(rule)
    }

    /// All that can happen next.
    pub(super) fn moves(&self) -> Result<Vec<Self>, Failure> {
        let mut next = Vec::new();
        if self.to_sink.len() < CHANNEL {
            self.sender_moves(&mut next);
        }
        if self.to_source.len() < CHANNEL {
            self.receiver_moves(&mut next);
        }
        self.take_moves(&mut next);
        for step in [
            Self::arrive_at_source,
            Self::arrive_at_sink,
            Self::do_read,
            Self::deliver,
        ] {
            let mut after = self.clone();
            if step(&mut after)?.is_some() {
                next.push(after);
            }
        }
        Ok(next)
    }

    /// Adds the world after `change`, if that can happen.
    fn try_move(&self, next: &mut Vec<Self>, change: impl FnOnce(&mut Self) -> Option<()>) {
        let mut after = self.clone();
        if change(&mut after).is_some() {
            next.push(after);
        }
    }

    fn new_key(&mut self) -> u32 {
        self.next_key += 1;
        self.next_key
    }

    /// Checks a world in which nothing can happen any more. Buffers of readers
    /// that wait for more may still be advertised.
    pub(super) fn check_end(&self) -> Result<(), Failure> {
        let idle = self.source.is_idle() && self.reader.is_idle() && !self.writer.has_answer();
        let released = self.source_keys.is_empty() && self.has_read_all();
        let answered = self.send_sms == self.source_cancels_sent;
        if self.delivered == self.bounds.units && idle && released && answered {
            Ok(())
        } else {
            Err(Failure::Unfinished)
        }
    }
}
