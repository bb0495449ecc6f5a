// SPDX-License-Identifier: GPL-2.0

//! From the adapter to the receive queue: completions, messages, posted receives.
//!
//! Whoever holds the socket lock polls. The adapter's notification schedules BH work; if a system
//! call holds the lock then, its `release_cb` does the work before the lock is free.

use kernel::prelude::*;

use crate::bindings;
use crate::inet::memory;
use crate::kern::errno::{
    ECONNRESET,
    ENOBUFS,
    ENOTCONN,
    EPROTO, //
};
use crate::kern::time::Timeout;
use crate::mm::frag::Frag;
use crate::proto::bsdh::Class;
use crate::proto::message::{
    Body,
    Message,
    MAX_BODY, //
};
use crate::proto::state::{
    Event,
    State, //
};
use crate::proto::violation::Violation;
use crate::rdma::link::{
    Completion,
    POLL_BATCH,
    RECV_DEPTH, //
};
use crate::rdma::receive::{
    Receive,
    MAX_PARTS,
    PART_BYTES, //
};
use crate::sdp::conn::connection::{
    IDLE_RECEIVES,
    LARGE_BYTES,
    SMALL_BYTES, //
};
use crate::sdp::conn::sock::{
    sock_of,
    with_bh_lock,
    Locked,
    Owned,
    Want,
    BH_OFFSET, //
};
use crate::sdp::parts::source::ZeroCopy;
use crate::stats::counters::Counter;

/// How often the CQ is looked at again because something came while it was armed, before the rest
/// is left to another run.
const ROUNDS: usize = 16;

/// Unread bytes, with what they are charged beyond, that even the smallest buffer holds.
const LEAST_BUFFER: u32 = 8 * SMALL_BYTES;

/// Receives that only control messages can use: with so few credits the peer sends no payload.
const CONTROL_RECEIVES: u32 = Class::Payload.min_credits() - 1;

/// The BH work of a socket: its CQ may have completions.
///
/// # Safety
///
/// Called by the work queue, for the item of a socket.
pub(in crate::sdp) unsafe extern "C" fn run_bh(work: *mut kernel::bindings::work_struct) {
    // SAFETY: The item is that of a socket of ours.
    let sock = unsafe { sock_of(work.cast(), BH_OFFSET) };
    with_bh_lock(&sock, |locked| locked.process());
}

impl Locked<'_> {
    /// Handles all completions, posts what may be posted, and asks for the next notification.
    pub(crate) fn process(&mut self) {
        if !self.may_poll() {
            return;
        }
        for _ in 0..ROUNDS {
            self.poll_queue();
            if !self.arm() {
                return;
            }
        }
        self.sock().requeue_bh();
    }

    /// Asks for the next notification, and handles what came before. The rest of a peer who does not
    /// stop is left to BH.
    pub(crate) fn settle(&mut self) {
        for _ in 0..ROUNDS {
            if !self.arm() {
                return;
            }
            self.poll_queue();
        }
        self.sock().requeue_bh();
    }

    /// Handles all completions and posts what may be posted.
    pub(crate) fn poll_queue(&mut self) {
        if self.take_completions() > 0 {
            self.refill();
            self.pull();
            self.flush();
            self.wake_reader_if_due();
            self.wake_writer_if_due();
            if self.stream().advert_waits {
                self.sk().wake_waiters();
            }
        }
    }

    /// After the refill, which decides whether a poller has to wait for more ([`starved`]).
    ///
    /// [`starved`]: crate::sdp::parts::glance::Glance::starved
    fn wake_reader_if_due(&mut self) {
        let stream = self.stream();
        // What a reader that waits can take itself, as soon as there are places for the Read.
        let offered = |z: &KBox<ZeroCopy>| z.hold.next_untaken() > 0;
        let offered = stream.reader_bytes.is_some() && stream.zcopy.as_ref().is_some_and(offered);
        let readable = stream.readable || offered;
        stream.readable = false;
        if readable {
            self.stats.inc(Counter::WakeReader);
            self.sk().wake_reader();
        }
    }

    pub(in crate::sdp) fn wake_writer_if_due(&mut self) {
        let sk = self.sk();
        if self.sock().has_space() && sk.wake_writer() {
            self.stats.inc(Counter::WakeWriter);
        }
    }

    /// What arrives before the HelloAck was handled waits in the queue.
    fn may_poll(&mut self) -> bool {
        !matches!(
            self.stream().state,
            State::Resolving | State::HelloSent | State::Closed
        )
    }

    /// Handles what the CQ has; returns how many completions there were.
    fn take_completions(&mut self) -> usize {
        if !self.may_poll() {
            return 0;
        }
        let (mut total, mut heard) = (0, false);
        loop {
            let mut batch = [None; POLL_BATCH];
            let n = match &mut self.stream().link {
                Some(link) => link.poll(&mut batch),
                None => 0,
            };
            total += n;
            for completion in batch.into_iter().flatten() {
                match completion {
                    Completion::Sent => self.reap_sent(),
                    Completion::Received { len, invalidated } => {
                        heard = true;
                        let readable = self.received(len, invalidated);
                        self.stream().readable |= readable;
                    }
                    Completion::Failed(status) => self.completion_failed(status),
                }
            }
            // The queue had no more. Polling an empty queue is a doorbell for some adapters.
            if n < POLL_BATCH {
                break;
            }
        }
        if heard {
            self.stream().keepalive.on_receive();
            self.stream().watch.wake_ms = 0;
        }
        if total > 0 {
            self.stats.add(Counter::Completions, total as u64);
        }
        total
    }

    fn completion_failed(&mut self, status: bindings::ib_wc_status) {
        if status == bindings::ib_wc_status_IB_WC_WR_FLUSH_ERR {
            // Somebody put the queue pair into its error state: the CM's event or our own
            // teardown says why.
            return;
        }
        self.stats.inc(Counter::CompletionError);
        if self.stream().state == State::Dead {
            return;
        }
        match status {
            bindings::ib_wc_status_IB_WC_RETRY_EXC_ERR => {
                self.stats.inc(Counter::TimedOut);
                self.fail(Event::Timeout, ETIMEDOUT);
            }
            // The memory that the peer has advertised is not there.
            bindings::ib_wc_status_IB_WC_REM_ACCESS_ERR
            | bindings::ib_wc_status_IB_WC_REM_INV_REQ_ERR => {
                self.stats.inc(Counter::ReadRefused);
                self.fail(Event::Abort, EPROTO);
            }
            _ => {
                self.stats.inc(Counter::ResetByPeer);
                self.fail(Event::Abort, ECONNRESET);
            }
        }
    }

    /// Handles one message; returns whether a reader should be woken.
    fn received(&mut self, len: u32, invalidated: Option<u32>) -> bool {
        let Some((header, receive)) = self.stream().link.as_mut().and_then(|l| l.take_receive())
        else {
            return false;
        };
        if self.stream().state == State::Dead {
            self.discard(receive);
            return false;
        }
        if self.stream().state == State::HelloReceived && self.transition(Event::FirstReceive) {
            self.want(Want::FirstReceive);
            let link = self.stream().link.as_ref();
            self.stream().pending.answer = link.is_some_and(|link| link.is_iwarp());
        }
        self.count_down_old_receives();
        match self.check(&header, &receive, len) {
            Ok(message) => {
                let readable = self.handle(&message, receive, invalidated);
                self.acknowledge(&message.body);
                readable
            }
            Err(why) => {
                self.discard(receive);
                self.violated(why);
                true
            }
        }
    }

    /// On iWARP, has the peer know that this message has come, if it may wait for that to end the
    /// connection, and no message of ours must follow that says so; and sees whether the end has come
    /// for us ([`Locked::finish_if_drained`]).
    fn acknowledge(&mut self, body: &Body) {
        let stream = self.stream();
        let ends = !stream.pending.disconn && stream.last_needed.is_some();
        if !ends || !stream.link.as_ref().is_some_and(|link| link.is_iwarp()) {
            return;
        }
        let is_needed = matches!(
            body,
            Body::DisConn | Body::RdmaRdCompl { .. } | Body::RdmaWrCompl { .. } | Body::SendSm
        );
        stream.pending.answer |= is_needed && !stream.state.can_send();
        self.finish_if_drained();
    }

    fn check(&mut self, header: &[u8], receive: &Receive, len: u32) -> Result<Message, Violation> {
        receive.sync_for_cpu(len);
        let rest = receive.front().get(..MAX_BODY).unwrap_or(&[]);
        let message = Message::decode(header, rest, len)?;
        let stream = self.stream();
        // The peer knows at most what it was told, so that one who keeps rule C1 has as much here.
        // Hence the last receives never hold payload, and may be posted whatever the buffers hold.
        if message.payload_len > 0 && stream.credits.peer_has_left() <= CONTROL_RECEIVES {
            return Err(Violation::CreditOverrun);
        }
        stream.credits.received(&message.hdr)?;
        stream.note_acknowledged();
        stream.state.admits(&message.hdr)?;
        stream.features.permit(message.hdr.mid)?;
        Ok(message)
    }

    fn handle(&mut self, message: &Message, receive: Receive, invalidated: Option<u32>) -> bool {
        let payload = message.payload_len;
        self.count_received(&message.hdr, payload);
        let mut result = match message.body {
            // Only the report of an advert may make a key invalid: that of the advert.
            Body::RdmaRdCompl { bytes } => self.read_reported(bytes, invalidated),
            _ if invalidated.is_some() => Err(Violation::WrongKeyInvalidated),
            Body::Data => self.note_payload(payload),
            Body::SrcAvail { len, rkey, addr } => self.advert_received(payload, len, rkey, addr),
            Body::SrcAvailCancel => self.cancel_received(),
            Body::SendSm => self.cancel_answered(),
            Body::SinkAvail {
                len,
                rkey,
                addr,
                count,
            } => self.sink_received(len, rkey, addr, count),
            Body::SinkAvailCancel => self.sink_cancel_received(),
            Body::RdmaWrCompl { bytes } => self.write_reported(bytes),
            Body::DisConn => self.note_end(),
            Body::AbortConn | Body::ChRcvBuf { .. } | Body::ChRcvBufAck { .. } => Ok(()),
            _ => Err(Violation::UnexpectedMid),
        };
        if self.stream().state == State::Dead {
            result = Ok(());
        }
        if let Err(why) = result {
            self.discard(receive);
            self.violated(why);
            return true;
        }
        match message.body {
            Body::Data | Body::SrcAvail { .. } if payload > 0 => {
                self.take_payload(message, receive);
                self.take_advert(message);
                return true;
            }
            Body::SrcAvail { .. } => self.take_advert(message),
            Body::Data => self.stats.inc(Counter::CreditUpdateReceived),
            Body::DisConn => self.disconn_received(),
            Body::AbortConn => {
                self.stats.inc(Counter::ResetByPeer);
                self.fail(Event::AbortReceived, ECONNRESET);
            }
            Body::ChRcvBuf { size } => self.grow_receives(size),
            Body::ChRcvBufAck { size } => self.larger_answered(size),
            _ => {}
        }
        // The receive of a message without payload is posted again at once (rule C2).
        self.recycle(receive);
        message.hdr.mid == crate::proto::bsdh::Mid::DisConn
    }

    /// An advert is the next of the stream.
    fn take_advert(&mut self, message: &Message) {
        let Body::SrcAvail { len, .. } = message.body else {
            return;
        };
        if self.stream().state == State::Dead {
            return;
        }
        if self.sk().is_orphan() {
            return self.abort(ECONNRESET);
        }
        if self.hold_advert(len).is_err() {
            self.lost_bytes();
        }
    }

    fn take_payload(&mut self, message: &Message, receive: Receive) {
        if self.sk().is_orphan() {
            // Nobody will read it: TCP answers with a reset.
            self.discard(receive);
            return self.abort(ECONNRESET);
        }
        let truesize = receive.len();
        self.count_data_received(message.payload_len);
        // A reader that does not come must not make the peer's credits grow.
        if self.stream().credits.peer_has_left() < Class::Payload.min_credits() {
            let target = self.stream().recv_target;
            self.stream().recv_target = (target * 2).min(RECV_DEPTH);
        }
        if self.holds() {
            return self.hold_payload(message, receive);
        }
        // A part of a page would keep all of it.
        let short = if truesize < SMALL_BYTES {
            truesize
        } else {
            (truesize / 8).min(SMALL_BYTES)
        };
        if message.payload_len <= short && self.compact(message, &receive) {
            // Small messages fill the receive buffer, too.
            let in_use = self.sk().rmem() - self.stream().reserve;
            if in_use <= self.sk().rcvbuf() || self.may_post_least(receive.len()) {
                self.recycle(receive);
            } else {
                self.discard(receive);
            }
            return;
        }
        // `refill` has reserved the places.
        self.queue_bytes(receive, message.payload_offset, message.payload_len);
    }

    /// Keeps payload that comes behind bytes which the peer still has.
    fn hold_payload(&mut self, message: &Message, receive: Receive) {
        let (_, flags) = self.gfp();
        let mut unused = receive.len();
        let (skip, len) = (message.payload_offset, message.payload_len);
        let spares = &mut self.stream().spares;
        for frag in receive
            .into_payload(skip, len, spares)
            .into_iter()
            .flatten()
        {
            let charge = unused.min(PART_BYTES);
            unused -= charge;
            let result = match &mut self.stream().zcopy {
                Some(zcopy) => zcopy.hold.push(frag, charge, flags),
                None => Err(ENOBUFS),
            };
            if result.is_err() {
                self.release_receive(charge + unused);
                return self.lost_bytes();
            }
        }
        self.release_receive(unused);
    }

    /// Copies a short payload behind the last one, so that its large buffer is free again.
    fn compact(&mut self, message: &Message, receive: &Receive) -> bool {
        let len = message.payload_len;
        let offset = message.payload_offset as usize;
        let Some(bytes) = receive.front().get(offset..offset + len as usize) else {
            return false;
        };
        // The receives that are posted need their places besides, and so will this one.
        let (_, flags) = self.gfp();
        let places = self.places_due() + MAX_PARTS;
        if self.reserve_unread(places + 1, flags).is_err() {
            return false;
        }
        let room = self.stream().compact.as_ref().map_or(0, Frag::len);
        let mut truesize = 0;
        if room < len {
            if !self.charge_receive(SMALL_BYTES) {
                return false;
            }
            match Frag::alloc(0, bindings::SDP_CONST_GFP_ATOMIC) {
                Ok(page) => self.stream().compact = Some(page),
                Err(_) => {
                    self.release_receive(SMALL_BYTES);
                    return false;
                }
            }
            truesize = SMALL_BYTES;
        }
        let glance = &self.sock().glance;
        let stream = self.stream();
        let Some(piece) = stream.compact.as_mut().map(|free| free.split_front(len)) else {
            return false;
        };
        piece.fill(bytes);
        stream.compact_used = true;
        let pushed = stream.rx.change(&glance.unread, |rx| {
            match truesize == 0 && rx.grow_last(|last| last.join(&piece)) {
                true => Ok(()),
                false => rx.push(piece, truesize),
            }
        });
        if pushed.is_err() {
            self.release_receive(truesize);
            return false;
        }
        self.stats.add(Counter::RxCompactedBytes, len.into());
        // Has the page given back when no more come.
        self.watch_sends();
        true
    }

    /// An idle connection has no page for short messages: gives it back if it was not used since the
    /// last call. Whether there is still one.
    pub(in crate::sdp) fn drop_idle_page(&mut self) -> bool {
        let stream = self.stream();
        if !core::mem::replace(&mut stream.compact_used, false) {
            stream.compact = None;
        }
        stream.compact.is_some()
    }

    /// Posts a receive again that holds nothing of the stream.
    fn recycle(&mut self, receive: Receive) {
        let stream = self.stream();
        if receive.len() != stream.recv_size.bytes {
            self.discard(receive);
            return;
        }
        let Some(link) = stream.link.as_mut() else {
            return self.discard(receive);
        };
        let truesize = receive.len();
        match link.repost(receive) {
            Ok(()) => {
                stream.credits.posted(1);
                self.stats.inc(Counter::RecvPosted);
            }
            Err(_) => {
                self.release_receive(truesize);
                self.stats.inc(Counter::PostFailed);
            }
        }
    }

    fn discard(&mut self, receive: Receive) {
        self.release_receive(receive.len());
    }

    /// Posts receives up to the target, as far as the receive buffer and the memory allow.
    pub(crate) fn refill(&mut self) {
        while self.wants_receive() {
            if self.post_one().is_err() {
                self.stats.inc(Counter::NoReceiveMemory);
                let posted = self.receives_posted();
                if posted < IDLE_RECEIVES {
                    self.want(Want::Refill);
                }
                break;
            }
        }
        let starved = self.receives_posted() < IDLE_RECEIVES;
        self.glance.starved.set(starved);
    }

    pub(crate) fn receives_posted(&mut self) -> u32 {
        self.stream()
            .link
            .as_ref()
            .map_or(0, |l| l.receives_posted())
    }

    fn wants_receive(&mut self) -> bool {
        let sk = self.sk();
        let stream = self.stream();
        let Some(link) = &stream.link else {
            return false;
        };
        let posted = link.receives_posted();
        // Behind its DisConn the peer still sends credits.
        let target = if stream.fin_received {
            IDLE_RECEIVES
        } else {
            stream.recv_target
        };
        if posted >= target || link.recv_room() == 0 || stream.state == State::Dead {
            return false;
        }
        // Control messages must get through although nobody reads (rule C2).
        if posted < CONTROL_RECEIVES {
            return true;
        }
        // The least that a connection needs is posted even into the smallest buffer, and when
        // memory is short.
        let in_use = sk.rmem() - stream.reserve;
        let size = stream.recv_size.bytes;
        if posted < IDLE_RECEIVES {
            self.may_post_least(0)
        } else {
            in_use + size <= sk.rcvbuf() && !memory::is_short()
        }
    }

    /// Whether the least that a connection needs may be posted, beside what waits to be read, with
    /// `held` bytes of receives in neither. What is posted does not count, and the smallest buffer
    /// is one for [`LEAST_BUFFER`]: a program that looks for a few bytes more must get them.
    fn may_post_least(&mut self, held: u32) -> bool {
        let sk = self.sk();
        let stream = self.stream();
        let posted = stream.link.as_ref().map_or(0, |l| l.posted_bytes());
        let unread = (sk.rmem() - stream.reserve).saturating_sub(posted + held);
        let held = stream.zcopy.as_ref().is_some_and(|z| z.hold.has_ready());
        let nothing_unread = stream.rx.is_empty() && !held;
        nothing_unread || unread + stream.recv_size.bytes <= sk.rcvbuf().max(LEAST_BUFFER)
    }

    fn post_one(&mut self) -> Result {
        let (gfp, flags) = self.gfp();
        let size = self.stream().recv_size.bytes;
        let posted = self.receives_posted() as usize;
        // What the connection cannot do without is worth some effort.
        let gfp = if posted < IDLE_RECEIVES as usize {
            gfp
        } else {
            gfp | bindings::SDP_CONST___GFP_NORETRY
        };
        let places = self.places_due() + MAX_PARTS;
        self.reserve_unread(places, flags)?;
        if !self.charge_receive(size) {
            return Err(ENOBUFS);
        }
        let stream = self.stream();
        let result = match &mut stream.link {
            Some(link) => link.post_receive(size, &mut stream.spares, (gfp, flags)),
            None => Err(ENOTCONN),
        };
        if let Err(e) = result {
            self.release_receive(size);
            return Err(e);
        }
        self.stream().credits.posted(1);
        self.stats.inc(Counter::RecvPosted);
        Ok(())
    }

    /// The peer asks for larger receives because it has much to send.
    fn grow_receives(&mut self, wanted: u32) {
        let rcvbuf = self.sk().rcvbuf().max(LEAST_BUFFER);
        let stream = self.stream();
        if wanted > SMALL_BYTES {
            stream.recv_target = RECV_DEPTH;
        }
        let now = stream.recv_size.bytes;
        let most = stream.link.as_ref().map_or(0, |l| l.max_receive());
        let larger = [LARGE_BYTES, LARGE_BYTES / 2, PART_BYTES, SMALL_BYTES]
            .into_iter()
            .find(|&size| {
                // The buffer takes many of them: those that wait to be read, and control messages' too.
                let share = if size < LARGE_BYTES { 8 } else { 16 };
                let fits = size <= wanted.min(rcvbuf / share).min(most);
                fits && (size == SMALL_BYTES || memory::has_room(size * RECV_DEPTH))
            });
        if let Some(size) = larger.filter(|&size| size > now) {
            if !memory::is_short() && self.reserve_receives(size).is_ok() {
                let stream = self.stream();
                stream.recv_size.bytes = size;
                stream.recv_size.old_left = stream.link.as_ref().map_or(0, |l| l.receives_posted());
            }
        }
        let stream = self.stream();
        if stream.recv_size.old_left == 0 {
            stream.pending.ch_rcv_buf_ack = Some(stream.recv_size.bytes);
        }
    }

    /// The peer says what its receives take from now on.
    fn larger_answered(&mut self, size: u32) {
        let stream = self.stream();
        if !core::mem::replace(&mut stream.awaits_larger, false) {
            return self.violated(Violation::NoAnswerDue);
        }
        if size < stream.peer_bytes {
            return self.violated(Violation::BadReceiveSize);
        }
        stream.peer_bytes = size;
        let (_, flags) = self.gfp();
        let link = self.stream().link.as_mut();
        if let Some(link) = link.filter(|_| size > PART_BYTES) {
            if link.lengthen_messages(flags).is_err() {
                self.stats.inc(Counter::NoSendMemory);
            }
        }
    }

    /// One more receive of the former size is used up; after the last the peer may be told.
    fn count_down_old_receives(&mut self) {
        let size = &mut self.stream().recv_size;
        if size.old_left == 0 {
            return;
        }
        size.old_left -= 1;
        if size.old_left == 0 {
            let bytes = size.bytes;
            self.stream().pending.ch_rcv_buf_ack = Some(bytes);
        }
    }
}

impl Owned<'_> {
    /// As [`Owned::wait`], of a reader that handles the completions itself, without the detour over BH.
    pub(crate) fn wait_and_poll(&mut self, timeo: &mut Timeout) {
        if self.wait_for_notification(timeo) {
            self.process();
        }
    }
}
