// SPDX-License-Identifier: GPL-2.0

//! The order in which messages are sent. [`flush`] is called whenever a message may have become
//! possible: there is a new message, a new credit, or a place in the send queue.

use kernel::prelude::*;

use super::advert::{
    sink,
    source, //
};
use super::conn::guard::SockGuard;
use super::conn::notify::IDLE_BYTES;
use super::conn::sock::Alarm;
use super::conn::watchdog;
use super::output::{
    abort,
    Output,
    CONTROL_PLACES, //
};
use super::parts::adverts::PayloadPermit;
use super::parts::fatal::Fatal;
use super::parts::options::Options;
use super::parts::ring::{
    Ring,
    IDLE_RECEIVES, //
};
use super::parts::send_queue::HeldBack;
use crate::kern::time::{
    ms_since,
    now, //
};
use crate::proto::bsdh::Class;
use crate::proto::half::Halves;
use crate::proto::message::{
    Control,
    InStream, //
};
use crate::proto::pace::Doing;
use crate::proto::policy::{
    full_message_bytes,
    message_bytes,
    push_now,
    Tail, //
};
use crate::rdma::link::{
    With,
    MAX_FRAGS, //
};
use crate::stats::counters::Counter;
use crate::stats::tally::Kept;

/// How long to wait before a peer that has granted smaller receives than requested is asked again.
const ASK_AGAIN_MS: u32 = 1000;

/// How long TCP_CORK and MSG_MORE hold back a partial message (`man 7 tcp`).
const HOLD_MS: u32 = 200;

/// Sends everything that may be sent now: control messages, data, the end of the stream, credits.
pub(crate) fn flush(guard: &mut SockGuard<'_>) {
    if !guard.conn().may_transmit() {
        return;
    }
    let mut flush = Flush::of(guard);
    let result = flush.all();
    // The remaining bytes wait for the peer, or for room.
    flush.note_doing();
    if let Err(why) = result {
        abort::end_for(guard, why);
    }
}

/// The parts of a connection that sending uses: those that a message changes, the size of this
/// side's receives, and the options and halves, which also decide whether data is due.
pub(super) struct Flush<'a> {
    output: Output<'a>,
    ring: &'a mut Ring,
    options: &'a Options,
    halves: &'a Halves,
}

impl<'a> Flush<'a> {
    pub(super) fn of(guard: &'a mut SockGuard<'_>) -> Self {
        let sock = guard.sock();
        let conn = guard.conn();
        Self {
            output: Output {
                sock,
                link: &mut conn.link,
                credits: &mut conn.credits,
                out: &mut conn.out,
                adverts: &mut conn.adverts,
                watch: &mut conn.liveness.watch,
                measured: &mut conn.measured,
            },
            ring: &mut conn.ring,
            options: &conn.options,
            halves: &conn.halves,
        }
    }
}

impl Flush<'_> {
    fn all(&mut self) -> Result<(), Fatal> {
        // First, because all later messages benefit from larger receives.
        self.flush_control()?;
        if self.output.adverts.are_used() {
            // Calls of the peer wait for these reports and answers.
            source::flush(&mut self.output)?;
            sink::flush(&mut self.output)?;
        }
        // Programs wait for their memory until its key is invalid.
        self.output.invalidate_condemned()?;
        // Data may use all places except those reserved for control messages.
        self.flush_data()?;
        // The peer's program must learn of an urgent byte even if the byte itself has to wait.
        self.announce_urgent()?;
        // DisConn follows the last byte.
        self.flush_disconn()?;
        // The messages above may already have used up enough receives.
        self.use_up_receives()?;
        // Last, because usually one of the messages above has carried the credits.
        self.flush_update()
    }

    fn flush_control(&mut self) -> Result<(), Fatal> {
        if let Some(size) = self.ring.receives.answer() {
            if self.output.post(Control::ChRcvBufAck { size })? {
                self.size_told();
            }
        }
        if let Some(size) = self.output.out.peer_receives.question() {
            if self.output.post(Control::ChRcvBuf { size })? {
                self.output.out.peer_receives.asked();
            }
        }
        Ok(())
    }

    /// Called when ChRcvBufAck was sent: the receives posted from now on may be smaller.
    fn size_told(&mut self) {
        let Output { sock, link, .. } = &self.output;
        let posted = link.as_ref().map_or(0, |l| l.receives_posted());
        if !self.ring.receives.answered(posted) {
            return;
        }
        self.ring.target = IDLE_RECEIVES;
        let bytes = self.ring.receives.bytes();
        self.ring.release_reserve(sock.sk(), bytes);
        sock.stats.inc(Counter::ReceivesShrunk);
    }

    fn flush_data(&mut self) -> Result<(), Fatal> {
        while self.data_is_due() && self.output.adverts.may_send_payload() {
            // Before the check of the credits, because the question may take one.
            self.ask_for_larger()?;
            let may = self.output.may_post(Class::Payload, CONTROL_PLACES);
            let permit = if may {
                permit_payload(&mut self.output)?
            } else {
                None
            };
            // The answers take credits, too.
            let may = self.output.may_post(Class::Payload, CONTROL_PLACES);
            let Some(permit) = permit.filter(|_| may) else {
                self.data_stalls();
                return Ok(());
            };
            let output = &mut self.output;
            output.out.stalled = false;
            let mut frags = [const { None }; MAX_FRAGS];
            let full = message_bytes(output.out.queue.bytes(), output.message_limit());
            let full = output.out.urgent.message_bytes(full);
            let bytes = output.cut_message(full, &mut frags);
            let urgent = output.out.urgent.take(bytes);
            let (data, with) = (InStream::Data { urgent }, With::Nothing);
            if !output.post_in_stream(permit, data, &mut frags, bytes, with)? {
                return Ok(());
            }
            output.sock.stats.add(Counter::UrgentSent, urgent.into());
        }
        self.limit_hold();
        Ok(())
    }

    /// Limits the time for which a program can hold back a partial message, as with TCP.
    fn limit_hold(&mut self) {
        let Output { out, sock, .. } = &mut self.output;
        if out.queue.is_empty() {
            out.held_back = HeldBack::Nothing;
        } else if out.held_back == HeldBack::Nothing && (self.options.cork || out.more) {
            out.held_back = HeldBack::Timed;
            sock.start_timer(Alarm::Timeout, HOLD_MS);
        }
    }

    /// Records that a message is due, but that there are too few credits or places.
    fn data_stalls(&mut self) {
        let output = &mut self.output;
        if !core::mem::replace(&mut output.out.stalled, true) {
            let stalled_on = if output.credits.may_send(Class::Payload) {
                Kept::QueueStall
            } else {
                Kept::CreditStall
            };
            let stats = output.sock.stats;
            output.measured.counts.add(stats, stalled_on, 1);
        }
        watchdog::begin(output.watch, output.sock);
    }

    /// Whether the waiting bytes should be sent now.
    fn data_is_due(&self) -> bool {
        let Output {
            sock, out, adverts, ..
        } = &self.output;
        // The first of the rules, checked here because most calls find no bytes: collecting what the
        // other rules need takes longer than all of them.
        if out.queue.is_empty() {
            return false;
        }
        push_now(Tail {
            waiting_bytes: out.queue.bytes(),
            full_bytes: full_message_bytes(self.output.message_limit()),
            small_in_flight: out.small_in_flight.is_some(),
            nodelay: self.options.nodelay,
            cork: self.options.cork,
            more: out.more,
            held_too_long: out.held_back == HeldBack::TooLong,
            urgent: out.urgent.waits(),
            may_grow: sock.sk().stream_memory_free(),
            gets_more: self.sender_gets_room(),
            last: out.disconn_due || adverts.waits,
        })
    }

    /// Whether a send waits for room in the send buffer, and the completion of a message will make
    /// room. If TCP_NOTSENT_LOWAT is reached, only sending the bytes that wait makes room.
    fn sender_gets_room(&self) -> bool {
        let Output { sock, link, .. } = &self.output;
        self.halves.sender_waits_for_room()
            && sock.glance.is_below_lowat(false)
            && link.as_ref().is_some_and(|link| link.sends_payload())
    }

    /// Whether adverts wait for the peer to read them, or a message that is due waits for room.
    pub(super) fn waits_for_peer(&self) -> bool {
        self.output.adverts.awaits_reads() || self.data_is_due()
    }

    /// Whether the transmit watchdog must keep running: a request is in flight, or bytes wait for
    /// the peer.
    pub(super) fn awaits_acknowledgement(&self) -> bool {
        let link = self.output.link.as_ref();
        self.waits_for_peer() || link.is_some_and(|link| link.sends_in_flight() > 0)
    }

    /// Asks the peer for larger receives, if more bytes wait than its present receives take. If the
    /// peer had no memory for them, asks again after some time.
    fn ask_for_larger(&mut self) -> Result<(), Fatal> {
        // Do not ask again while the peer has no room for payload: the request would take a credit,
        // and larger receives are of no use yet.
        let may_again = self.output.may_post(Class::Payload, CONTROL_PLACES);
        let out = &mut *self.output.out;
        let again = may_again && ms_since(out.asked_at) >= ASK_AGAIN_MS;
        let waiting = out.queue.bytes();
        let receives = &mut out.peer_receives;
        if receives.ask(waiting, again) {
            out.asked_at = now();
            self.flush_control()?;
        }
        Ok(())
    }

    fn flush_disconn(&mut self) -> Result<(), Fatal> {
        let output = &mut self.output;
        if !output.out.disconn_due
            || !output.out.queue.is_empty()
            || !output.adverts.may_send_payload()
        {
            return Ok(());
        }
        if let Some(permit) = permit_payload(output)? {
            let (end, with) = (InStream::DisConn, With::Nothing);
            if output.post_in_stream(permit, end, &mut [], 0, with)? {
                output.out.disconn_due = false;
            }
        }
        Ok(())
    }

    /// Sends empty messages, each of which uses up one of the larger receives that the peer no
    /// longer wants (rule R4). The last credit is left to updates.
    fn use_up_receives(&mut self) -> Result<(), Fatal> {
        while self.output.out.peer_receives.has_to_use_up()
            && self.output.may_post(Class::Control, CONTROL_PLACES)
            && self.output.post(Control::Update)?
        {
            self.output.sock.stats.inc(Counter::ReceiveUsedUp);
        }
        Ok(())
    }

    /// An announcement returns no credits, so it leaves the last credit to an update (rule C1).
    fn announce_urgent(&mut self) -> Result<(), Fatal> {
        if self.output.out.urgent.must_announce()
            && self.output.may_post(Class::Control, 1)
            && self.output.post(Control::Update)?
        {
            self.output.out.answer_due = false;
            self.output.sock.stats.inc(Counter::UrgentAnnounced);
        }
        Ok(())
    }

    fn flush_update(&mut self) -> Result<(), Fatal> {
        let due = self.output.out.answer_due || self.output.credits.wants_update();
        if due && self.output.post(Control::Update)? {
            self.output.out.answer_due = false;
            self.output.sock.stats.inc(Counter::CreditUpdateSent);
        }
        Ok(())
    }

    /// Records what the sender waits for, after everything that may be sent was sent.
    fn note_doing(&mut self) {
        let doing = self.doing();
        self.output.measured.pacing.does(doing);
    }

    fn doing(&self) -> Doing {
        let Output {
            sock,
            credits,
            out,
            adverts,
            ..
        } = &self.output;
        let sk = sock.sk();
        let waits = !out.queue.is_empty();
        if out.stalled && waits && !credits.may_send(Class::Payload) {
            Doing::AwaitingPeer
        } else if self.halves.sender_waits_for_room() && !waits && !sk.stream_memory_free() {
            Doing::AwaitingRoom
        // Completions of fewer bytes are not awaited, so it is unknown when the peer gets these
        // bytes.
        } else if waits || adverts.unread_bytes() > 0 || sk.wmem_queued() > IDLE_BYTES {
            Doing::Sending
        } else {
            Doing::Nothing
        }
    }
}

/// Answers all sink adverts of the peer, as far as credits and places allow. Returns the permit for
/// a message of the stream if all are answered (rule S3).
///
/// # Errors
///
/// [`Fatal::Refused`].
pub(in crate::sdp) fn permit_payload(
    output: &mut Output<'_>,
) -> Result<Option<PayloadPermit>, Fatal> {
    let permit = output.adverts.payload_permit();
    if permit.is_some() {
        return Ok(permit);
    }
    if let Some(sinks) = &mut output.adverts.sinks {
        sinks.writer.decline();
    }
    sink::flush(output)?;
    Ok(output.adverts.payload_permit())
}
