// SPDX-License-Identifier: GPL-2.0

//! The side that receives the stream.

use super::{
    Failure,
    Piece,
    Rule,
    ToSink,
    ToSource,
    World,
    BUFFER_LEN, //
};
use proto_host::proto::sink::Answer;

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
        let empty = self.pieces.is_empty();
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
        let read = self.reader.take(bytes)?;
        if read.len < bytes {
            return None;
        }
        let is_advert = |piece: &Piece| matches!(piece, Piece::Advert(..));
        let at = self.pieces.iter().position(is_advert)?;
        let Piece::Advert(id, start, len) = self.pieces[at] else {
            return None;
        };
        assert_eq!((id, u64::from(start)), (read.id, read.addr));
        self.pieces[at] = Piece::Reading(start, read.len);
        if read.len < len {
            let rest = Piece::Advert(id, start + read.len, len - read.len);
            self.pieces.insert(at + 1, rest);
        }
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
        let oldest = self.pieces.iter_mut().find_map(|piece| match *piece {
            Piece::Reading(start, len) => Some((piece, start, len)),
            _ => None,
        });
        if let Some((piece, start, len)) = oldest {
            *piece = Piece::Bytes(start, len);
        }
        Ok(Some(()))
    }

    /// The application reads what is first in the queue.
    pub(super) fn deliver(&mut self) -> Result<Option<()>, Failure> {
        let Some(&Piece::Bytes(start, len)) = self.pieces.front() else {
            return Ok(None);
        };
        self.pieces.pop_front();
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
                self.reader.on_data(1).map_err(Failure::Refused)?;
                self.pieces.push_back(Piece::Bytes(start, 1));
                self.payload_arrives();
            }
            ToSink::SrcAvail {
                inline,
                len,
                rkey,
                addr,
            } => {
                let inline_bytes = u32::from(inline.is_some());
                let advert = self
                    .reader
                    .on_advert(inline_bytes, len, rkey, u64::from(addr));
                let id = advert.map_err(Failure::Refused)?;
                let inline = inline.map(|start| Piece::Bytes(start, 1));
                self.pieces.extend(inline);
                self.pieces.push_back(Piece::Advert(id, addr, len));
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
        let first = self.reader.on_cancel().map_err(Failure::Refused)?;
        let is_advert = |piece: &Piece| matches!(piece, Piece::Advert(..));
        let in_queue = self.pieces.iter().find_map(|piece| match *piece {
            Piece::Advert(id, ..) => Some(id),
            _ => None,
        });
        assert_eq!(first, in_queue, "what is cancelled is what was not taken");
        self.pieces.retain(|piece| !is_advert(piece));
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
            if !self.pieces.is_empty() {
                return Err(Failure::OutOfOrder);
            }
            self.take_bytes(start, len)?;
        }
        Ok(())
    }
}
