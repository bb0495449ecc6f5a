// SPDX-License-Identifier: GPL-2.0
//! A minimal correct SDP over verbs, with ways to break the rules.
//!
//! It counts credits as the protocol requires, so the messages that it receives are checked, too: a
//! message that the module must not send is a failure of the test.

use crate::cm::Id;
use crate::fail::{expect, Fail, Result};
use crate::ffi;
use crate::loan::Lent;
use crate::queue::{Completion, Queue};
use proto_host::proto::bsdh::{Bsdh, Mid, BSDH_LEN};
use proto_host::proto::credits::Credits;
use proto_host::proto::message::{Body, Message, MAX_BODY};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The time between two looks at the queue while something is awaited.
const PAUSE: Duration = Duration::from_micros(300);

/// The hostile side of one connection.
///
/// The fields are dropped in this order: the queue uses the id's device.
pub(crate) struct Peer {
    pub(crate) queue: Option<Queue>,
    pub(crate) id: Id,
    pub(crate) credits: Credits,
    limit: Duration,
    /// The bytes of the stream that have arrived.
    pub(crate) inbox: Vec<u8>,
    /// The messages that have arrived and were not looked at.
    pub(crate) heard: Vec<Body>,
    /// The flags of the messages that had any, with the number of payload bytes.
    pub(crate) flags_heard: Vec<(u8, u32)>,
    /// The last header that was sent, correct or not.
    pub(crate) last: Bsdh,
    /// Whether receives are posted again and announced to the victim.
    pub(crate) gives_credits: bool,
    /// The receives that were not posted again.
    kept: Vec<usize>,
    /// Whether the victim's messages are not checked. It is set if this side sends wrong numbers,
    /// because the victim's numbers seem wrong then.
    pub(crate) is_deaf: bool,
    /// The number of sends and RDMA operations that have succeeded.
    pub(crate) succeeded: usize,
    /// The status of the work request that broke the queue pair.
    pub(crate) broken: Option<ffi::ibv_wc_status>,
    /// Whether AbortConn was received, after which the victim answers nothing.
    pub(crate) is_aborted: bool,
    /// Whether the victim's CM has ended the connection.
    is_disconnected: bool,
    /// The victim's DisConn has arrived, and must be acknowledged.
    owes_acknowledgement: bool,
}

impl Peer {
    /// Creates the queue pair of `id` and posts `posted` receives.
    pub(crate) fn new(id: Id, posted: usize, limit: Duration) -> Result<Peer> {
        let queue = Queue::new(&id)?;
        let mut credits = Credits::new();
        for slot in 0..posted {
            queue.post_receive(slot)?;
            credits.posted(1);
        }
        Ok(Peer {
            queue: Some(queue),
            id,
            credits,
            limit,
            inbox: Vec::new(),
            heard: Vec::new(),
            flags_heard: Vec::new(),
            last: Bsdh {
                mid: Mid::Hello,
                flags: 0,
                bufs: 0,
                len: 0,
                mseq: 0,
                mseq_ack: 0,
            },
            gives_credits: true,
            kept: Vec::new(),
            is_deaf: false,
            succeeded: 0,
            broken: None,
            is_aborted: false,
            is_disconnected: false,
            owes_acknowledgement: false,
        })
    }

    pub(crate) fn queue(&mut self) -> Result<&mut Queue> {
        self.queue
            .as_mut()
            .ok_or_else(|| Fail::new("the queue pair is destroyed already"))
    }

    /// Makes the queue pair ready, and returns its number. The CM must know the victim's queue
    /// pair.
    pub(crate) fn ready(&self) -> Result<u32> {
        let queue = self
            .queue
            .as_ref()
            .ok_or_else(|| Fail::new("no queue pair"))?;
        queue.ready(&self.id)?;
        Ok(queue.number())
    }

    /// Completes a connection whose request the victim has accepted.
    pub(crate) fn complete(&mut self) -> Result<()> {
        if self.id.is_iwarp() {
            return self.send_first();
        }
        self.ready()?;
        self.id.establish()
    }

    /// Sends the message without which the side that has accepted must not send on iWARP, waits for
    /// the answer, and announces the receive that the answer has used. Until the answer arrives,
    /// empty Writes follow: soft-iWARP may leave the message in TCP's queue until more bytes arrive.
    fn send_first(&mut self) -> Result<()> {
        self.send(Body::Data, &[])?;
        let end = Instant::now() + self.limit;
        while self.heard.is_empty() && !self.is_over() {
            expect(Instant::now() < end, || {
                "no answer to the first message".to_owned()
            })?;
            sleep(Duration::from_millis(20));
            self.pump()?;
            if self.heard.is_empty() && self.queue()?.is_idle() {
                self.queue()?.rdma(false, 0, 0, 0)?;
            }
        }
        self.heard.clear();
        self.send(Body::Data, &[])
    }

    /// Answers the first message of a victim that has connected over iWARP.
    pub(crate) fn answer_first(&mut self) -> Result<()> {
        if !self.id.is_iwarp() {
            return Ok(());
        }
        self.hear(Mid::Data)?;
        self.send(Body::Data, &[])
    }

    fn has_room(&self) -> bool {
        self.queue.as_ref().is_some_and(Queue::has_room)
    }

    /// Whether the connection has ended for this side.
    pub(crate) fn is_over(&self) -> bool {
        self.broken.is_some() || self.is_aborted || self.is_disconnected
    }

    /// Handles all events and completions that there are.
    pub(crate) fn pump(&mut self) -> Result<()> {
        while let Some(event) = self.id.channel.next(Duration::ZERO)? {
            self.is_disconnected |= event.kind == ffi::RDMA_CM_EVENT_DISCONNECTED;
        }
        while let Some((slot, completion)) = self.poll()? {
            match completion {
                Completion::Sent => self.succeeded += 1,
                Completion::Received(bytes) => {
                    self.received(&bytes)?;
                    if self.gives_credits {
                        self.queue()?.post_receive(slot)?;
                        self.credits.posted(1);
                    } else {
                        self.kept.push(slot);
                    }
                }
                Completion::Failed(status) => {
                    self.broken.get_or_insert(status);
                }
            }
        }
        if self.gives_credits
            && !self.is_over()
            && (self.credits.wants_update() || self.owes_acknowledgement)
            && self.credits.may_send(Body::Data.class(0))
            && self.has_room()
        {
            self.send_now(Body::Data, &[])?;
            self.owes_acknowledgement = false;
        }
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<(usize, Completion)>> {
        self.queue.as_mut().map_or(Ok(None), Queue::poll)
    }

    fn received(&mut self, bytes: &[u8]) -> Result<()> {
        let (hdr, rest) = bytes.split_at(bytes.len().min(BSDH_LEN));
        let mut body = rest.to_vec();
        body.resize(rest.len().max(MAX_BODY), 0);
        let message = Message::decode(hdr, &body, bytes.len() as u32)
            .map_err(|why| Fail::new(format!("the module sent a message with {}", why.name())))?;
        self.is_aborted |= message.body == Body::AbortConn;
        if self.is_deaf {
            return Ok(());
        }
        self.credits
            .received(&message.hdr)
            .map_err(|why| Fail::new(format!("the module broke a rule: {}", why.name())))?;
        self.owes_acknowledgement |= message.body == Body::DisConn && self.id.is_iwarp();
        let at = message.payload_offset as usize;
        self.inbox.extend_from_slice(rest.get(at..).unwrap_or(&[]));
        self.heard.push(message.body);
        if message.hdr.flags != 0 {
            let payload = message.payload_len;
            self.flags_heard.push((message.hdr.flags, payload));
        }
        Ok(())
    }

    /// Gives the credits that were held back, and all later ones.
    pub(crate) fn give_credits(&mut self) -> Result<()> {
        self.gives_credits = true;
        for slot in std::mem::take(&mut self.kept) {
            self.queue()?.post_receive(slot)?;
            self.credits.posted(1);
        }
        self.pump()
    }

    /// Handles events until `done` returns true; fails after the limit.
    pub(crate) fn until(&mut self, what: &str, mut done: impl FnMut(&Peer) -> bool) -> Result<()> {
        let end = Instant::now() + self.limit;
        loop {
            self.pump()?;
            if done(self) {
                return Ok(());
            }
            expect(Instant::now() < end, || {
                format!(
                    "{what}: not in {:?}; heard {:?}, broken {:?}",
                    self.limit, self.heard, self.broken
                )
            })?;
            sleep(PAUSE);
        }
    }

    /// Sends a valid message as soon as the credits allow it.
    pub(crate) fn send(&mut self, body: Body, payload: &[u8]) -> Result<()> {
        let header = self.next(body, payload.len())?;
        self.send_with(&header, body, payload)
    }

    /// As [`Peer::send`], with flags.
    pub(crate) fn send_flagged(&mut self, flags: u8, body: Body, payload: &[u8]) -> Result<()> {
        let mut header = self.next(body, payload.len())?;
        header.flags = flags;
        self.send_with(&header, body, payload)
    }

    /// The header of the next valid message, as soon as the credits allow the message. This
    /// message, or another one in its place, must be sent next.
    pub(crate) fn next(&mut self, body: Body, payload_len: usize) -> Result<Bsdh> {
        let class = body.class(payload_len as u32);
        // Also wait for a place in the send queue. A later wait for a place might send an update
        // before this message, which would then have the wrong number.
        self.until("credits for a message", |p| {
            p.is_over() || p.credits.may_send(class) && p.has_room()
        })?;
        self.stamp(body, payload_len)
    }

    /// Whether the victim gives credits for such a message within a tenth of the limit: a second,
    /// or more on a slow machine.
    pub(crate) fn until_credits(&mut self, body: Body, payload_len: usize) -> Result<bool> {
        let class = body.class(payload_len as u32);
        let end = Instant::now() + self.limit / 10;
        loop {
            self.pump()?;
            if self.credits.may_send(class) {
                return Ok(true);
            }
            if Instant::now() > end {
                return Ok(false);
            }
            sleep(PAUSE);
        }
    }

    fn stamp(&mut self, body: Body, payload_len: usize) -> Result<Bsdh> {
        let payload_len = payload_len as u32;
        self.credits
            .stamp(body.class(payload_len))
            .and_then(|stamp| body.header(0, payload_len, stamp))
            .ok_or_else(|| Fail::new("there is no credit for a message"))
    }

    fn send_now(&mut self, body: Body, payload: &[u8]) -> Result<()> {
        let header = self.stamp(body, payload.len())?;
        self.last = header;
        let bytes = wire(&header, body, payload);
        self.queue()?.send(&bytes)
    }

    /// Sends a message with this header, which may be wrong.
    pub(crate) fn send_with(&mut self, header: &Bsdh, body: Body, payload: &[u8]) -> Result<()> {
        self.last = *header;
        self.send_raw(&wire(header, body, payload))
    }

    /// Sends bytes, unless the connection has ended already.
    pub(crate) fn send_raw(&mut self, bytes: &[u8]) -> Result<()> {
        if !self.has_room() {
            self.until("a place in the send queue", |p| p.is_over() || p.has_room())?;
        }
        if self.is_over() {
            return Ok(());
        }
        self.queue()?.send(bytes)
    }

    /// Waits for the first advert; returns the place of its memory.
    pub(crate) fn hear_advert(&mut self) -> Result<Lent> {
        let lent = |body: &Body| match *body {
            Body::SrcAvail { len, rkey, addr }
            | Body::SinkAvail {
                len, rkey, addr, ..
            } => Some(Lent { len, rkey, addr }),
            _ => None,
        };
        let heard = |p: &Peer| p.heard.iter().find_map(lent);
        self.until("an advert", |p| p.is_over() || heard(p).is_some())?;
        heard(self).ok_or_else(|| Fail::new("no advert came"))
    }

    /// Waits for a message of this kind, and removes all messages that have arrived.
    pub(crate) fn hear(&mut self, mid: Mid) -> Result<()> {
        self.until(mid.name(), |p| p.heard.iter().any(|b| b.mid() == mid))?;
        self.heard.clear();
        Ok(())
    }

    /// Waits until all sends have completed, successfully or not.
    pub(crate) fn finish_sends(&mut self) -> Result<()> {
        self.until("completion of the sends", |p| {
            p.is_over() || p.queue.as_ref().is_some_and(Queue::is_idle)
        })
    }

    /// Whether a completion of this side's operation shows that the victim's adapter has carried
    /// it out. On iWARP, all but Reads are complete when TCP has their bytes.
    pub(crate) fn is_end_to_end(&self, read: bool) -> bool {
        read || !self.id.is_iwarp()
    }

    /// Checks the status with which this side's adapter has reported a refused operation, if it has
    /// reported any. On iWARP the refusal only ends the connection, with any status.
    pub(crate) fn expect_access_error(&self) -> Result<()> {
        let status = self.broken;
        expect(
            self.id.is_iwarp() || status.is_none_or(|s| s == ffi::IBV_WC_REM_ACCESS_ERR),
            || format!("the victim's adapter answered with status {status:?}"),
        )
    }

    /// Waits for this many bytes of the stream, and removes them.
    pub(crate) fn take_bytes(&mut self, len: usize) -> Result<Vec<u8>> {
        self.until("bytes of the stream", |p| p.inbox.len() >= len)?;
        Ok(self.inbox.drain(..len).collect())
    }

    /// Waits until the victim's CM has ended the connection.
    pub(crate) fn await_disconnect(&mut self) -> Result<()> {
        self.until("the CM's word that the connection has ended", |p| {
            p.is_disconnected
        })
    }
}

/// The bytes of a message.
pub(crate) fn wire(header: &Bsdh, body: Body, payload: &[u8]) -> Vec<u8> {
    let mut tail = [0; MAX_BODY];
    let len = body.encode(&mut tail);
    let mut out = header.encode().to_vec();
    out.extend(tail.iter().take(len));
    out.extend_from_slice(payload);
    out
}
