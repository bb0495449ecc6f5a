// SPDX-License-Identifier: GPL-2.0

//! The queues of a connection: protection domain, completion queue, queue pair, and the posted
//! requests.
//!
//! One CQ serves both directions. Only the holder of the socket lock polls the CQ, so the CQ is
//! also the backlog. Its handler only schedules work.

use core::mem::MaybeUninit;

use kernel::alloc::Flags;
use kernel::error::to_result;
use kernel::prelude::*;

use super::cm::CmId;
use super::device::{
    Abilities,
    Driver, //
};
use super::dma::{
    Mapped,
    Outgoing, //
};
use super::headers::{
    self,
    Headers, //
};
use super::post::{
    Registration,
    ENTRIES,
    PARTS, //
};
use super::receive::{
    Receive,
    MAX_PARTS,
    PART_BYTES, //
};
use super::receive_queue::Receives;
use super::region::{
    RegionId,
    Regions,
    Released, //
};
pub(crate) use super::verbs::Notify;
use super::verbs::{
    Domain,
    Sizes,
    Verbs, //
};
use crate::bindings;
use crate::kern::errno::{
    ENOBUFS,
    EOPNOTSUPP, //
};
use crate::mm::frag::Frag;

/// Places in the send queue. Providers round the sizes of queues up to 2^n - 1 or 2^n. The CQ has
/// 14 + 15 + 2 = 31 entries (with [`RECV_DEPTH`](super::receive_queue::RECV_DEPTH)), which is
/// 2^5 - 1, so no entry is wasted.
pub(crate) const SEND_DEPTH: u32 = 14;
/// The maximum number of payload fragments in one message.
pub(crate) const MAX_FRAGS: usize = 4;
/// The number of these for which a place of the send queue has room from the beginning.
const FIRST_FRAGS: usize = 2;

/// The number of slots for the requests in a queue. It is a power of two, because the request
/// numbers, which are taken modulo this, may overflow.
pub(super) const SLOTS: u32 = headers::PLACES;
pub(super) const SEND_FLAG: u64 = 1 << 32;

const _: () = assert!(SLOTS.is_power_of_two() && SEND_DEPTH <= SLOTS);

/// The result of a completion.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum Completion {
    /// Requests of the send queue are finished.
    Sent,
    /// A message has arrived in the oldest posted receive.
    Received {
        /// Bytes received.
        len: u32,
        /// The key that the message has invalidated.
        invalidated: Option<u32>,
    },
    /// A work request failed; the queue pair is in its error state.
    Failed(bindings::ib_wc_status),
}

/// A finished request of the send queue, as returned by [`Link::reap`].
pub(crate) struct Sent {
    pub(crate) number: u32,
    pub(crate) payload: u32,
    pub(crate) tag: Tag,
    /// The memory of a Read, with the peer's bytes.
    pub(crate) read: Option<Receive>,
}

/// The kind of a request, which its owner gets back when the request has finished.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum Tag {
    Data,
    Control,
    /// A request that only the peer's adapter handles.
    Probe,
    DisConn,
    AbortConn,
    /// An answer to an advert or a cancel.
    Answer,
    /// A request that makes the key of a region valid.
    Registration,
    /// A request that invalidates the key of a region.
    Invalidation(RegionId),
    /// An RDMA Read into memory of the module.
    Read,
    /// A part of a request of one of the next three kinds, not the last part.
    Part,
    /// An RDMA Read into a program's memory, which is this region.
    DirectRead(RegionId),
    /// As [`Tag::DirectRead`], after the receive has returned.
    EarlyRead(RegionId),
    /// An RDMA Write from this region.
    Write(RegionId),
}

impl Tag {
    /// Whether the request is the last part of an RDMA Read, or the whole Read.
    fn is_read(self) -> bool {
        matches!(self, Self::Read | Self::DirectRead(_) | Self::EarlyRead(_))
    }
}

/// Payload of a message in the send queue.
type Frags<const N: usize> = [Option<Mapped<Outgoing>>; N];

/// A place of the send queue. The payload is stored separately, which keeps both tables small.
#[derive(Copy, Clone)]
pub(super) struct TxSlot {
    pub(super) payload: u32,
    pub(super) tag: Tag,
    /// Its completion was seen.
    pub(super) is_seen: bool,
}

impl TxSlot {
    const fn new() -> Self {
        Self {
            payload: 0,
            tag: Tag::Control,
            is_seen: false,
        }
    }
}

/// The memory of a Read in flight.
pub(super) struct Reading {
    pub(super) number: u32,
    pub(super) memory: Receive,
}

/// An additional effect of a message.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum With {
    Nothing,
    /// The key of a region is made valid before the message.
    Registration(RegionId),
    /// The message invalidates a key of the peer when it arrives.
    Invalidation(u32),
}

/// The queues of one connection.
///
/// The fields are dropped in this order: first the queues, so that the adapter does not use the
/// memory any more, then the memory, whose regions belong to the domain.
pub(crate) struct Link {
    pub(super) verbs: Verbs,
    pub(super) regions: Regions,
    pub(super) domain: Domain,
    pub(super) headers: Headers,
    pub(super) tx: KVec<TxSlot>,
    frags: KVec<Frags<FIRST_FRAGS>>,
    /// Empty as long as messages are short.
    more_frags: KVec<Frags<{ MAX_FRAGS - FIRST_FRAGS }>>,
    /// The memory of the module for Reads in flight. Reads into memory of programs are not here:
    /// their memory is in `regions`.
    pub(super) reading: KVec<Reading>,
    pub(super) receives: Receives,
    pub(super) lkey: u32,
    pub(super) device: *mut bindings::ib_device,
    pub(super) sends: Sends,
    armed: Armed,
    /// The number of messages that came with the last notification, at least 1.
    messages: usize,
    pub(super) limits: Limits,
}

/// The requests in the send queue, by increasing numbers.
#[derive(Default)]
pub(super) struct Sends {
    /// The number of the next request.
    pub(super) next: u32,
    /// The oldest request that is not reaped.
    done: u32,
    /// The number after the last request whose completion was seen.
    seen: u32,
    /// The number of sends posted since the last one that reports its completion.
    pub(super) unsignaled: u32,
    /// The number of completions that posted requests will report; with iWARP, at least so many.
    pub(super) completions: u32,
    /// The number of Reads posted and not reaped. [`Link::reading`] has only those into memory of the
    /// module. The [`SourceReader`](crate::proto::source_reader::SourceReader) of the connection has
    /// the place of each Read in the stream, but it is not known in this layer, which needs the
    /// number for [`Link::awaits_request`].
    pub(super) reads: u32,
}

/// The completions for which the last call of [`Link::arm`] has requested a notification; none if
/// the call found completions in the CQ.
enum Armed {
    No,
    /// Received messages.
    Received,
    Every,
}

/// The limits of the adapter.
pub(super) struct Limits {
    /// The maximum number of fragments of a message.
    frags: usize,
    /// The maximum number of fragments of a receive.
    pub(super) parts: usize,
    /// The maximum number of memory ranges of a Read or a Write.
    pub(super) ranges: usize,
    /// The adapter cannot notify of messages only. soft-iWARP treats a message that the peer
    /// solicits as any other message (Linux 7.3: `siw_rqe_complete()`).
    tells_all_or_nothing: bool,
    /// The driver rings a doorbell when it finds the CQ empty. vmw_pvrdma does this (Linux 7.3:
    /// `pvrdma_poll_one()`).
    rings_if_empty: bool,
}

// SAFETY: All parts may be used from any thread; the socket lock serialises their use.
unsafe impl Send for Link {}

impl Link {
    /// Creates the queues on the device of `id`; `notify` is told of completions.
    ///
    /// # Errors
    ///
    /// The error of the provider; `ENODEV` if the id has no device.
    ///
    /// # Safety
    ///
    /// `id` and `notify` outlive the link.
    pub(crate) unsafe fn new<N: Notify>(id: &CmId, notify: *const N) -> Result<Self> {
        let device = id.device()?;
        // SAFETY: The device is valid while the id is.
        let abilities = unsafe { Abilities::of(device) };
        if !abilities.can_connect() {
            return Err(EOPNOTSUPP);
        }
        let max_frags = MAX_FRAGS.min(abilities.send_sge as usize - 1);
        let max_parts = MAX_PARTS.min(abilities.recv_sge as usize - 1);
        let send_entries = ENTRIES.min(abilities.send_sge as usize);
        let part_ranges = send_entries.min(abilities.read_sge.max(1) as usize);
        // SAFETY: The device is valid.
        let domain = unsafe { Domain::new(device) }?;
        // SAFETY: The device is valid, and so is the id's port.
        let port = unsafe { (*id.as_ptr()).port_num };
        // SAFETY: As above.
        let regions = unsafe { Regions::new(device, port, &abilities, PARTS * part_ranges) };
        let sizes = Sizes {
            send_entries: send_entries as u32,
            recv_entries: max_parts as u32 + 1,
        };
        // SAFETY: As the caller promises; the domain is dropped after the queues.
        let verbs = unsafe { Verbs::new(id, device, &domain, &sizes, notify) }?;
        // SAFETY: The id, which outlives the link, holds the device.
        let headers = unsafe { Headers::new(device) }?;
        let mut tx = KVec::with_capacity(SLOTS as usize, GFP_KERNEL)?;
        let mut frags = KVec::with_capacity(SLOTS as usize, GFP_KERNEL)?;
        for _ in 0..SLOTS {
            tx.push(TxSlot::new(), GFP_KERNEL)?;
            frags.push([const { None }; FIRST_FRAGS], GFP_KERNEL)?;
        }
        // Not within the expression below: an error there would drop the values in the reverse
        // order, the domain before the queues.
        let receives = Receives::new()?;
        // SAFETY: The PD is valid.
        let lkey = unsafe { bindings::ib_pd_local_dma_lkey(domain.0.cast()) };
        Ok(Self {
            verbs,
            regions,
            domain,
            headers,
            tx,
            frags,
            more_frags: KVec::new(),
            reading: KVec::new(),
            receives,
            lkey,
            device,
            sends: Sends::default(),
            armed: Armed::No,
            messages: 1,
            limits: Limits {
                frags: max_frags,
                parts: max_parts,
                ranges: part_ranges,
                tells_all_or_nothing: abilities.driver == Driver::SoftIwarp,
                rings_if_empty: abilities.driver == Driver::VmwPvrdma,
            },
        })
    }

    /// Destroys the queues; returns the memory of programs that they used.
    pub(crate) fn close(self) -> Released {
        let Self {
            verbs,
            regions,
            domain,
            ..
        } = self;
        drop(verbs);
        let released = regions.release();
        drop(domain);
        released
    }

    /// The maximum number of payload fragments of one message.
    pub(crate) fn max_frags(&self) -> usize {
        if self.more_frags.is_empty() {
            self.limits.frags.min(FIRST_FRAGS)
        } else {
            self.limits.frags
        }
    }

    /// Makes room for messages of as many fragments as the adapter supports.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: messages stay short.
    pub(crate) fn lengthen_messages(&mut self, flags: Flags) -> Result {
        if self.limits.frags > FIRST_FRAGS && self.more_frags.is_empty() {
            let mut more = KVec::with_capacity(SLOTS as usize, flags)?;
            for _ in 0..SLOTS {
                more.push([const { None }; MAX_FRAGS - FIRST_FRAGS], flags)?;
            }
            self.more_frags = more;
        }
        Ok(())
    }

    /// The maximum number of payload bytes of one message, in fragments of the largest size.
    pub(crate) fn max_message(&self) -> u32 {
        self.max_frags() as u32 * PART_BYTES
    }

    /// Free places in the send queue.
    pub(crate) fn send_room(&self) -> u32 {
        SEND_DEPTH - self.sends_in_flight()
    }

    /// The number of sends that are posted and not reaped.
    pub(crate) fn sends_in_flight(&self) -> u32 {
        self.sends.next.wrapping_sub(self.sends.done)
    }

    /// Whether a request with a tag for which `is_such` holds is posted and not reaped.
    pub(crate) fn has_in_flight(&self, is_such: impl Fn(Tag) -> bool) -> bool {
        self.any_in_flight(|slot| is_such(slot.tag))
    }

    /// The number of the oldest send that is not reaped.
    pub(crate) fn oldest_send(&self) -> u32 {
        self.sends.done
    }

    /// The number of sends posted since the last one that reports its completion.
    pub(crate) fn unsignaled(&self) -> u32 {
        self.sends.unsignaled
    }

    /// Posts a message with `header` (including the body) and `frags`; returns its number.
    ///
    /// The caller has ensured that there is a place ([`Link::send_room`]), and the places for a
    /// registration ([`Link::registration_places`]).
    ///
    /// # Errors
    ///
    /// `ENOBUFS` without a place or with too many fragments; otherwise the error of the provider or
    /// the mapping. After an error the connection must be aborted, because the message has taken a
    /// number.
    pub(crate) fn send(
        &mut self,
        header: &[u8],
        frags: &mut [Option<Frag>],
        tag: Tag,
        signal: bool,
        with: With,
    ) -> Result<u32> {
        let places = self.places(with);
        let count = frags.iter().flatten().count();
        if self.send_room() < places || header.len() > Headers::TX_BYTES || count > self.max_frags()
        {
            return Err(ENOBUFS);
        }
        let number = self.sends.next.wrapping_add(places - 1);
        let index = number % SLOTS;
        self.headers.write(index, header);
        let mut sge = [bindings::ib_sge::default(); MAX_FRAGS + 1];
        let mut count = 0;
        self.add_sge(
            &mut sge,
            &mut count,
            self.headers.tx_addr(index),
            header.len() as u32,
        )?;

        let (device, lkey) = (self.device, self.lkey);
        let slot = self.tx.get_mut(index as usize).ok_or(ENOBUFS)?;
        let mut payload = 0;
        let first = self.frags.get_mut(index as usize).ok_or(ENOBUFS)?;
        let more = self.more_frags.get_mut(index as usize);
        let free = Iterator::chain(first.iter_mut(), more.into_iter().flatten());
        for (place, frag) in free.zip(frags.iter_mut()) {
            let Some(frag) = frag.take() else { break };
            // SAFETY: The id, which outlives the link, holds the device.
            let mapped = unsafe { Mapped::new(device, frag)? };
            let entry = sge.get_mut(count).ok_or(ENOBUFS)?;
            entry.addr = mapped.addr();
            entry.length = mapped.len();
            entry.lkey = lkey;
            count += 1;
            payload += mapped.len();
            *place = Some(mapped);
        }
        slot.payload = payload;
        slot.tag = tag;
        slot.is_seen = false;

        let mut wr = bindings::ib_send_wr {
            sg_list: sge.as_mut_ptr(),
            num_sge: count as i32,
            opcode: bindings::ib_wr_opcode_IB_WR_SEND,
            send_flags: bindings::ib_send_flags_IB_SEND_SOLICITED,
            ..Default::default()
        };
        wr.__bindgen_anon_1.wr_id = SEND_FLAG | u64::from(number);
        if signal {
            wr.send_flags |= bindings::ib_send_flags_IB_SEND_SIGNALED;
        }
        if let With::Invalidation(key) = with {
            wr.opcode = bindings::ib_wr_opcode_IB_WR_SEND_WITH_INV;
            wr.ex.invalidate_rkey = key;
        }
        let mut requests = Registration::default();
        let first = match with {
            With::Registration(region) => self.registration(region, &mut requests, &raw mut wr)?,
            _ => &raw mut wr,
        };
        // SAFETY: The queue pair is valid; the buffers stay until the message is reaped or the
        // queue pair is gone.
        to_result(unsafe { bindings::ib_post_send(self.verbs.qp.cast(), first.cast()) })?;
        self.sends.next = number.wrapping_add(1);
        if signal {
            self.sends.unsignaled = 0;
            self.sends.completions += 1;
        } else {
            self.sends.unsignaled += 1;
        }
        Ok(number)
    }

    pub(super) fn add_sge(
        &self,
        sge: &mut [bindings::ib_sge],
        count: &mut usize,
        addr: u64,
        length: u32,
    ) -> Result {
        *sge.get_mut(*count).ok_or(ENOBUFS)? = bindings::ib_sge {
            addr,
            length,
            lkey: self.lkey,
        };
        *count += 1;
        Ok(())
    }

    /// The maximum number of bytes of one [`Link::read`].
    pub(crate) fn max_read(&self) -> u32 {
        let bytes = self.regions.max_read_bytes();
        bytes.unwrap_or(MAX_PARTS.min(self.limits.ranges) as u32 * PART_BYTES)
    }

    /// Notes that a request has finished. All earlier requests have finished, too, except for
    /// Reads: a Read finishes when the peer's bytes have arrived, and soft-iWARP may report later
    /// messages first.
    fn note_sent(&mut self, number: u32) {
        self.sends.completions = self.sends.completions.saturating_sub(1);
        if let Some(slot) = self.tx.get_mut((number % SLOTS) as usize) {
            slot.is_seen = true;
        }
        let after = number.wrapping_add(1);
        // The completion of a later request may have been seen before.
        if after.wrapping_sub(self.sends.seen) <= SEND_DEPTH {
            self.sends.seen = after;
        }
    }

    /// Takes the oldest request out of the send queue, if it has finished.
    pub(crate) fn reap(&mut self) -> Option<Sent> {
        let number = self.sends.done;
        if number == self.sends.seen {
            return None;
        }
        let index = (number % SLOTS) as usize;
        let slot = *self.tx.get(index)?;
        // With other adapters requests finish in order, and if an invalidation follows a Read, only
        // the invalidation reports its completion.
        if self.is_iwarp() && slot.tag.is_read() && !slot.is_seen {
            return None;
        }
        *self.frags.get_mut(index)? = [const { None }; FIRST_FRAGS];
        if let Some(more) = self.more_frags.get_mut(index) {
            *more = [const { None }; MAX_FRAGS - FIRST_FRAGS];
        }
        let read = match self.reading.iter().position(|r| r.number == number) {
            Some(at) => self.reading.remove(at).ok().map(|r| r.memory),
            None => None,
        };
        if slot.tag.is_read() {
            self.regions.read_done(number);
            self.sends.reads -= 1;
        }
        self.sends.done = number.wrapping_add(1);
        Some(Sent {
            number,
            payload: slot.payload,
            tag: slot.tag,
            read,
        })
    }

    /// Bytes of payload in the send queue.
    pub(crate) fn in_flight_bytes(&self) -> u32 {
        let mut number = self.sends.done;
        let mut bytes = 0;
        while number != self.sends.next {
            bytes += self
                .tx
                .get((number % SLOTS) as usize)
                .map_or(0, |slot| slot.payload);
            number = number.wrapping_add(1);
        }
        bytes
    }

    /// Whether a message with payload is posted and not reaped.
    pub(crate) fn sends_payload(&self) -> bool {
        self.any_in_flight(|slot| slot.payload > 0)
    }

    fn any_in_flight(&self, is_such: impl Fn(&TxSlot) -> bool) -> bool {
        let numbers = (0..self.sends_in_flight()).map(|n| self.sends.done.wrapping_add(n));
        let mut slots = numbers.filter_map(|number| self.tx.get((number % SLOTS) as usize));
        slots.any(is_such)
    }

    /// Whether polling an empty CQ is expensive.
    pub(crate) fn rings_if_empty(&self) -> bool {
        self.limits.rings_if_empty
    }

    /// The number of completions to poll for when a notification has come: as many as are likely to
    /// be in the CQ if the driver rings a doorbell when it finds no more. [`Link::arm`] finds the
    /// others.
    pub(crate) fn likely_completions(&self) -> usize {
        if self.limits.rings_if_empty {
            POLL_BATCH.min(self.sends.completions as usize + self.messages)
        } else {
            POLL_BATCH
        }
    }

    /// Notes how many messages came with a notification: as many are likely to come with the next
    /// one.
    pub(crate) fn note_messages(&mut self, count: usize) {
        self.messages = count.max(1);
    }

    /// Polls the CQ for at most `most` completions. The caller takes them one after the other, in
    /// order ([`Link::completion`]).
    pub(crate) fn poll<'b>(&mut self, batch: &'b mut Batch, most: usize) -> Polled<'b> {
        let most = most.min(POLL_BATCH);
        for wc in batch.0.iter_mut().take(most) {
            // For a provider that reports a completion that it does not know, as mlx5 may.
            // SAFETY: The member belongs to the array.
            unsafe { (*wc.as_mut_ptr()).status = bindings::ib_wc_status_IB_WC_GENERAL_ERR };
        }
        let wcs = batch.0.as_mut_ptr().cast();
        // SAFETY: The CQ is valid, the array has at least `most` entries.
        let n = unsafe { bindings::ib_poll_cq(self.verbs.cq.cast(), most as i32, wcs) };
        let n = usize::try_from(n).unwrap_or(0).min(most);
        // INVARIANT: The status was written above, and the provider has written these entries.
        Polled(batch.0.get(..n).unwrap_or(&[]))
    }

    /// The completion at this place of those that this link has polled; `None` behind the last.
    pub(crate) fn completion(&mut self, polled: &Polled<'_>, at: usize) -> Option<Completion> {
        let wc = polled.0.get(at)?.as_ptr();
        // SAFETY: By the invariant, the status was written.
        let status = unsafe { (*wc).status };
        if status != bindings::ib_wc_status_IB_WC_SUCCESS {
            return Some(Completion::Failed(status));
        }
        // SAFETY: A provider that reports success has written the number with which the request
        // was posted.
        let id = unsafe { (*wc).__bindgen_anon_1.wr_id };
        if id & SEND_FLAG != 0 {
            self.note_sent(id as u32);
            return Some(Completion::Sent);
        }
        // SAFETY: Every provider writes the length and the flags of a received message.
        let (len, flags) = unsafe { ((*wc).byte_len, (*wc).wc_flags as u32) };
        let with_key = flags & bindings::ib_wc_flags_IB_WC_WITH_INVALIDATE != 0;
        // SAFETY: With this flag, the provider has written the key.
        let invalidated = with_key.then(|| unsafe { (*wc).ex.invalidate_rkey });
        Some(Completion::Received { len, invalidated })
    }

    /// Asks for a notification of the next completion: of any completion if `every`, otherwise only
    /// of received messages (and of failures). Returns whether the CQ must be polled again, because
    /// a completion came earlier.
    pub(crate) fn arm(&mut self, every: bool) -> bool {
        let (which, armed) = if every || self.limits.tells_all_or_nothing {
            (bindings::ib_cq_notify_flags_IB_CQ_NEXT_COMP, Armed::Every)
        } else {
            (
                bindings::ib_cq_notify_flags_IB_CQ_SOLICITED,
                Armed::Received,
            )
        };
        let flags = which | bindings::ib_cq_notify_flags_IB_CQ_REPORT_MISSED_EVENTS;
        // SAFETY: The CQ is valid.
        let ret = unsafe { bindings::ib_req_notify_cq(self.verbs.cq.cast(), flags) };
        self.armed = if ret == 0 { armed } else { Armed::No };
        ret > 0
    }

    /// Whether the last call of [`Link::arm`] found no completion, and every completion since has
    /// caused a notification; `every` is as for [`Link::arm`].
    ///
    /// Always `false` for a software provider, where a poll costs nothing: soft-RoCE does not
    /// notify of failed requests if it is asked for received messages (Linux 7.3: `do_complete()`),
    /// and soft-iWARP reads the request for a notification without a barrier behind the completion
    /// (`siw_sqe_complete()`).
    pub(crate) fn is_armed(&self, every: impl FnOnce() -> bool) -> bool {
        let sent_unnoticed = matches!(self.armed, Armed::Received) && self.sends_payload();
        !sent_unnoticed && self.is_armed_for_messages(every)
    }

    /// As [`Link::is_armed`], but payload may have been sent without a notification.
    pub(crate) fn is_armed_for_messages(&self, every: impl FnOnce() -> bool) -> bool {
        let armed = match self.armed {
            Armed::No => false,
            Armed::Received => self.sends_in_flight() <= SEND_DEPTH / 4 && !every(),
            Armed::Every => true,
        };
        armed && !self.is_software()
    }
}

/// Completions that one poll takes.
pub(crate) const POLL_BATCH: usize = 8;

/// Room for the completions of one poll, which is not initialised: most polls find one or two
/// completions, and to initialise all of the room would take longer than to handle these.
pub(crate) struct Batch([MaybeUninit<bindings::ib_wc>; POLL_BATCH]);

impl Batch {
    pub(crate) const fn new() -> Self {
        Self([const { MaybeUninit::uninit() }; POLL_BATCH])
    }
}

/// The completions that one poll has found.
///
/// # Invariants
///
/// [`Link::poll`] and the provider have written each entry.
pub(crate) struct Polled<'a>(&'a [MaybeUninit<bindings::ib_wc>]);

impl Polled<'_> {
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }
}
