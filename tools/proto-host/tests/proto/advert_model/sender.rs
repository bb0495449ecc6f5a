// SPDX-License-Identifier: GPL-2.0

//! The side that sends the stream.

use super::{
    Failure,
    Memory,
    Rule,
    ToSink,
    ToSource,
    World,
    BUFFER_LEN, //
};
use proto_host::proto::source::{
    Kind,
    NotYet,
    Progress, //
};

impl World {
    /// All that the sender may do of its own accord.
    pub(super) fn sender_moves(&self, next: &mut Vec<Self>) {
        let left = self.bounds.units - self.next;
        self.try_move(next, |w| {
            let bytes = w.writer.next_answer()?;
            w.to_sink.push_back(ToSink::RdmaWrCompl(bytes));
            Some(())
        });
        if left >= 1 {
            self.try_move(next, Self::send_data);
        }
        for len in 1..=left.min(BUFFER_LEN) {
            self.try_move(next, |w| w.write(len));
        }
        if self.bounds.source {
            for kind in [Kind::Synchronous, Kind::Asynchronous] {
                for inline in 0..=1 {
                    for len in 1..=left.saturating_sub(inline).min(2) {
                        self.try_move(next, |w| w.post(kind, inline, len));
                    }
                }
            }
        }
        if self.source_cancels < self.bounds.source_cancels {
            self.try_move(next, |w| {
                w.source.cancel().ok()?;
                w.source_cancels += 1;
                Some(())
            });
        }
        // The message may wait for a credit.
        if self.source.is_cancel_due() {
            self.try_move(next, |w| {
                w.source.cancel_sent();
                w.source_cancels_sent += 1;
                w.to_sink.push_back(ToSink::SrcAvailCancel);
                Some(())
            });
        }
    }

    fn send_data(&mut self) -> Option<()> {
        match self.source.may_send_payload() {
            Err(NotYet::BehindSynchronous) if self.lacks(Rule::NoDataBehindSynchronous) => {}
            may => may.ok()?,
        }
        self.payload(|w| {
            w.to_sink.push_back(ToSink::Data(w.next));
            w.next += 1;
        })
    }

    /// Posts a source advert of `len` bytes. `sender` says whether its sender
    /// waits.
    fn post(&mut self, sender: Kind, inline: u32, len: u32) -> Option<()> {
        let kind = if self.lacks(Rule::AsynchronousStays) {
            Kind::Synchronous
        } else {
            sender
        };
        let told = if self.lacks(Rule::NoInlineBehindSynchronous) {
            0
        } else {
            inline
        };
        self.source.may_post(kind, told).ok()?;
        self.payload(|w| {
            let rkey = w.new_key();
            let start = w.next + inline;
            let memory = Memory {
                rkey,
                start,
                sender_waits: sender == Kind::Synchronous,
            };
            let posted = w.source.post(kind, told, len, memory);
            assert!(posted.is_ok(), "what may be posted is");
            w.source_keys.insert(rkey);
            w.to_sink.push_back(ToSink::SrcAvail {
                inline: (inline > 0).then_some(w.next),
                len,
                rkey,
                addr: start,
            });
            w.next = start + len;
        })
    }

    /// Sends payload by `send`; if adverts must be declined first, only
    /// declines them (S3).
    fn payload(&mut self, send: impl FnOnce(&mut Self)) -> Option<()> {
        let accepted = std::mem::take(&mut self.accepted);
        if self.lacks(Rule::DeclineBeforePayload) {
            if self.writer.has_answer() {
                return None;
            }
            self.writer.decline();
            while self.writer.next_answer().is_some() {}
            assert!(self.writer.note_payload());
            accepted.into_iter().for_each(|rkey| self.accept(rkey));
            send(self);
            return Some(());
        }
        if self.lacks(Rule::DeclineCloses) {
            // Which is all that a cancel does.
            let _ = self.writer.on_cancel();
        } else {
            self.writer.decline();
        }
        if self.writer.note_payload() {
            send(self);
        } else if accepted.is_empty() {
            // Nothing has changed: answers are to be sent first.
            return None;
        }
        Some(())
    }

    /// Accepts an advert whatever the rules say.
    fn accept(&mut self, rkey: u32) {
        let count = self.writer.events().count();
        let accepted = self.writer.on_advert(BUFFER_LEN, rkey, 0, count);
        assert_eq!(accepted, Ok(true));
        self.accepted.push_back(rkey);
    }

    /// Writes `len` bytes to a sink advert.
    fn write(&mut self, len: u32) -> Option<()> {
        self.source.may_send_payload().ok()?;
        let keep = self.lacks(Rule::ShortVoids) && len < BUFFER_LEN;
        if keep && self.writer.has_answer() {
            return None;
        }
        let write = self.writer.write(len)?;
        assert_eq!(Some(write.rkey), self.accepted.pop_front());
        let to_sink = ToSink::Write(write.rkey, self.next, write.len);
        self.to_sink.push_back(to_sink);
        self.next += write.len;
        if len < BUFFER_LEN {
            self.shorts_sent += 1;
            let rest = std::mem::take(&mut self.accepted);
            if keep {
                let bytes = self.writer.next_answer()?;
                self.to_sink.push_back(ToSink::RdmaWrCompl(bytes));
                while self.writer.next_answer().is_some() {}
                rest.into_iter().for_each(|rkey| self.accept(rkey));
            }
        }
        Some(())
    }

    /// The next message arrives at the sender.
    pub(super) fn arrive_at_source(&mut self) -> Result<Option<()>, Failure> {
        let Some(message) = self.to_source.pop_front() else {
            return Ok(None);
        };
        match message {
            ToSource::RdmaRdCompl(bytes, invalidated) => {
                let progress = self.source.on_read_completion(bytes);
                let progress = progress.map_err(Failure::Refused)?;
                let consumed = matches!(progress, Progress::Consumed(_));
                assert_eq!(consumed, invalidated, "a key dies with its advert");
                if let Progress::Consumed(ended) = progress {
                    self.source_keys.remove(&ended.owner.rkey);
                }
            }
            ToSource::SendSm => self.on_send_sm()?,
            ToSource::SinkAvail { rkey, count } => self.on_sink_avail(rkey, count)?,
            ToSource::SinkAvailCancel => {
                self.writer.on_cancel().map_err(Failure::Refused)?;
                self.accepted.clear();
            }
        }
        Ok(Some(()))
    }

    /// What comes back is sent again, if somebody waits to do so.
    fn on_send_sm(&mut self) -> Result<(), Failure> {
        let mut again = None;
        let (source, keys) = (&mut self.source, &mut self.source_keys);
        source
            .on_send_sm(|ended| {
                keys.remove(&ended.owner.rkey);
                if ended.owner.sender_waits {
                    again.get_or_insert(ended.owner.start + ended.read);
                }
            })
            .map_err(Failure::Refused)?;
        self.next = again.unwrap_or(self.next);
        self.send_sms += 1;
        Ok(())
    }

    fn on_sink_avail(&mut self, rkey: u32, count: u32) -> Result<(), Failure> {
        let ours = self.writer.events().count();
        let count = if self.lacks(Rule::AcceptOnlyEqualCount) {
            ours
        } else if self.lacks(Rule::ShortCounts) {
            // The number came without short answers.
            count.wrapping_add(self.shorts_sent)
        } else {
            count
        };
        let accepted = self.writer.on_advert(BUFFER_LEN, rkey, 0, count);
        if accepted.map_err(Failure::Refused)? {
            self.accepted.push_back(rkey);
        }
        Ok(())
    }
}
