// SPDX-License-Identifier: GPL-2.0

//! The side that receives the stream.

use super::{
    Failure,
    Rule,
    ToSink,
    ToSource,
    World,
    BUFFER_LEN, //
};
use proto_host::proto::{
    advert::Id,
    source_reader::{
        Answer,
        Destination, //
    },
};

impl World {
    /// All that the receiver may send of its own accord.
    pub(super) fn receiver_moves(&self, next: &mut Vec<Self>) {
        for partial in [false, true] {
            self.try_move(next, |w| w.answer(partial));
        }
        if self.sink_adverts < self.bounds.sink_adverts {
            self.try_move(next, Self::advertise);
        }
        if self.sink_cancels < self.bounds.sink_cancels {
            self.try_move(next, |w| {
                w.buffers.cancel().ok()?;
                w.sink_cancels += 1;
                Some(())
            });
        }
        // The message may wait for a credit.
        if self.buffers.is_cancel_due() {
            self.try_move(next, |w| {
                w.buffers.cancel_sent();
                w.to_source.push_back(ToSource::SinkAvailCancel);
                Some(())
            });
        }
    }

    fn answer(&mut self, partial: bool) -> Option<()> {
        let message = match self.reader.next_answer(partial)? {
            Answer::ReadCompletion { bytes, invalidate } => {
                ToSource::RdmaRdCompl(bytes, invalidate.is_some())
            }
            Answer::SendSm if self.lacks(Rule::CancelIsAnswered) => return Some(()),
            Answer::SendSm if self.send_sms_early > 0 => {
                self.send_sms_early -= 1;
                return Some(());
            }
            Answer::SendSm => ToSource::SendSm,
        };
        self.to_source.push_back(message);
        Some(())
    }

    /// A reader that waits advertises its buffer.
    fn advertise(&mut self) -> Option<()> {
        let empty = self.has_read_all();
        let told = empty || self.lacks(Rule::AdvertOnlyWhenEmpty);
        let rkey = self.new_key();
        // The first one of another receive.
        self.declined &= self.buffers.is_live();
        let mut count = self.buffers.post(told, BUFFER_LEN, rkey).ok()?;
        if self.lacks(Rule::ShortCounts) {
            count = count.wrapping_sub(self.shorts_received);
        }
        self.sink_adverts += 1;
        self.sink_keys.insert(rkey);
        self.to_source
            .push_back(ToSource::SinkAvail { rkey, count });
        Some(())
    }

    /// All Reads that may be posted.
    pub(super) fn take_moves(&self, next: &mut Vec<Self>) {
        for bytes in 1..=2 {
            self.try_move(next, |w| w.take(bytes));
        }
    }

    fn take(&mut self, bytes: u32) -> Option<()> {
        let untaken = self.reader.untaken();
        let read = self.reader.take(bytes, Destination::Kernel)?;
        if read.len < bytes {
            return None;
        }
        assert_eq!(self.reader.next_untaken(), 0, "a Read is in flight");
        assert!(read.len <= untaken);
        self.reads.push_back(read);
        if self.lacks(Rule::ReportAfterRead) {
            self.reader.on_read_done()?;
        }
        Some(())
    }

    /// The adapter does the oldest Read, and says so.
    pub(super) fn do_read(&mut self) -> Result<Option<()>, Failure> {
        let Some(read) = self.reads.pop_front() else {
            return Ok(None);
        };
        if !self.source_keys.contains(&read.rkey) {
            return Err(Failure::ReadOfReleased);
        }
        if !self.lacks(Rule::ReportAfterRead) {
            assert_eq!(self.reader.on_read_done(), Some(read.len));
        }
        let start = u32::try_from(read.addr).map_err(|_| Failure::OutOfOrder)?;
        self.queue.push_back((start, read.len));
        self.drain_held();
        Ok(Some(()))
    }

    /// Bytes that have arrived are the next of the stream when the advert before them has arrived.
    fn drain_held(&mut self) {
        while let Some(&(after, start)) = self.held.front() {
            if !self.reader.has_arrived(after) {
                break;
            }
            self.held.pop_front();
            self.queue.push_back((start, 1));
        }
    }

    /// A byte has arrived in a message, behind this advert if not all of it was read before.
    fn byte_arrives(&mut self, after: Option<Id>, start: u32) {
        match after {
            None => self.queue.push_back((start, 1)),
            Some(after) => self.held.push_back((after, start)),
        }
    }

    /// Whether all bytes that the peer has sent or advertised have arrived and were delivered.
    pub(super) fn has_read_all(&self) -> bool {
        self.queue.is_empty() && self.held.is_empty() && self.reader.last_unread().is_none()
    }

    /// The application reads what is first in the queue.
    pub(super) fn deliver(&mut self) -> Result<Option<()>, Failure> {
        let Some((start, len)) = self.queue.pop_front() else {
            return Ok(None);
        };
        self.take_bytes(start, len)?;
        Ok(Some(()))
    }

    fn take_bytes(&mut self, start: u32, len: u32) -> Result<(), Failure> {
        if start != self.delivered {
            return Err(Failure::OutOfOrder);
        }
        self.delivered += len;
        Ok(())
    }

    /// The next message arrives at the receiver.
    pub(super) fn arrive_at_sink(&mut self) -> Result<Option<()>, Failure> {
        let Some(message) = self.to_sink.pop_front() else {
            return Ok(None);
        };
        match message {
            ToSink::Data(start) => {
                let after = self.reader.last_unread();
                self.reader.on_data(1).map_err(Failure::Refused)?;
                self.byte_arrives(after, start);
                self.payload_arrives();
            }
            ToSink::SrcAvail {
                inline,
                len,
                rkey,
                addr,
            } => {
                // The byte comes before the advert.
                let after = self.reader.last_unread();
                let inline_bytes = u32::from(inline.is_some());
                let advert = self
                    .reader
                    .on_advert(inline_bytes, len, rkey, u64::from(addr));
                advert.map_err(Failure::Refused)?;
                if let Some(start) = inline {
                    self.byte_arrives(after, start);
                }
                self.payload_arrives();
            }
            ToSink::SrcAvailCancel => self.on_source_cancel()?,
            ToSink::Write(rkey, start, len) => {
                if !self.sink_keys.contains(&rkey) {
                    return Err(Failure::WriteToReturned);
                }
                self.written.push_back((start, len));
            }
            ToSink::RdmaWrCompl(bytes) => self.on_write_completion(bytes)?,
        }
        Ok(Some(()))
    }

    fn payload_arrives(&mut self) {
        let keys = &mut self.sink_keys;
        self.buffers.on_payload(|returned| {
            keys.remove(&returned.owner);
        });
    }

    fn on_source_cancel(&mut self) -> Result<(), Failure> {
        let untaken = self.reader.untaken() > 0;
        let first = self.reader.on_cancel().map_err(Failure::Refused)?;
        assert_eq!(first.is_some(), untaken, "what was not taken is cancelled");
        self.drain_held();
        if self.lacks(Rule::SendSmAfterReads) {
            self.to_source.push_back(ToSource::SendSm);
            self.send_sms_early += 1;
        }
        Ok(())
    }

    fn on_write_completion(&mut self, bytes: u32) -> Result<(), Failure> {
        let keys = &mut self.sink_keys;
        let (mut filled, mut returns) = (0, false);
        self.buffers
            .on_write_completion(bytes, |returned| {
                keys.remove(&returned.owner);
                filled += returned.bytes;
                returns = true;
            })
            .map_err(Failure::Refused)?;
        assert_eq!(filled, bytes, "the reader gets what was written");
        if bytes > 0 && self.declined {
            return Err(Failure::WriteBehindDeclined);
        }
        self.declined |= bytes == 0 && returns;
        if bytes > 0 {
            let done = self.written.pop_front();
            let (start, len) = done.ok_or(Failure::Unfinished)?;
            assert_eq!(len, bytes, "the answer is about the oldest Write");
            if len < BUFFER_LEN {
                self.shorts_received += 1;
            }
            // What was received before is read before.
            if !self.has_read_all() {
                return Err(Failure::OutOfOrder);
            }
            self.take_bytes(start, len)?;
        }
        Ok(())
    }
}
