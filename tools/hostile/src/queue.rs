// SPDX-License-Identifier: GPL-2.0
//! A queue pair with its memory.

use crate::cm::{checked, errno_fail, errno_of, Id};
use crate::fail::{Fail, Result};
use crate::ffi;
use crate::loan::{Lent, Loan, Region};
use crate::pages::Pages;
use std::ptr;

/// The number of receives for which there is room.
pub(crate) const RECV_SLOTS: usize = 64;
/// The number of bytes of a receive, including the header.
const RECV_BYTES: usize = 8192;
const SEND_SLOTS: usize = 32;
/// The maximum number of bytes of a message to send.
const SEND_BYTES: usize = 64 << 10;
const AREA: usize = RECV_SLOTS * RECV_BYTES + SEND_SLOTS * SEND_BYTES;
const SEND_FLAG: u64 = 1 << 32;

/// Memory that the adapter reads and writes. It is only used by address.
///
/// # Invariants
///
/// `base` is a mapping of `AREA` bytes, owned by this value.
struct Area {
    base: *mut u8,
}

impl Area {
    fn new() -> Result<Area> {
        // SAFETY: a new anonymous mapping does not affect existing memory.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                AREA,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(errno_fail("mmap"));
        }
        Ok(Area { base: base.cast() })
    }

    fn addr(&self, at: usize) -> u64 {
        self.base as u64 + at as u64
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= AREA);
        // SAFETY: the range is in the mapping, by the assertion, and the slot is free.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.add(at), bytes.len()) };
    }

    fn read(&self, at: usize, len: usize) -> Vec<u8> {
        assert!(at + len <= AREA);
        let mut out = vec![0; len];
        // SAFETY: the range is in the mapping, by the assertion, and the receive is complete.
        unsafe { ptr::copy_nonoverlapping(self.base.add(at), out.as_mut_ptr(), len) };
        out
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: by the type invariant.
        unsafe { libc::munmap(self.base.cast(), AREA) };
    }
}

/// A completion of the completion queue.
pub(crate) enum Completion {
    /// A send or an RDMA operation is finished.
    Sent,
    /// A message has arrived.
    Received(Vec<u8>),
    /// A work request failed with this status.
    Failed(ffi::ibv_wc_status),
}

/// A queue pair with its completion queue and protection domain.
///
/// # Invariants
///
/// All pointers are valid or null, and belong to the device of an id that
/// outlives this value.
pub(crate) struct QueuePair {
    pd: *mut ffi::ibv_pd,
    cq: *mut ffi::ibv_cq,
    qp: *mut ffi::ibv_qp,
}

impl QueuePair {
    /// Creates a queue pair on the id's device. Receives can be posted to it.
    pub(crate) fn new(id: &Id, sends: usize, receives: usize) -> Result<QueuePair> {
        let mut pair = QueuePair {
            pd: ptr::null_mut(),
            cq: ptr::null_mut(),
            qp: ptr::null_mut(),
        };
        // SAFETY: the id is valid and has a device; every result is checked.
        unsafe {
            let context = (*id.as_ptr()).verbs;
            pair.pd = ffi::ibv_alloc_pd(context);
            if pair.pd.is_null() {
                return Err(errno_fail("ibv_alloc_pd"));
            }
            let depth = (sends + receives) as i32;
            pair.cq = ffi::ibv_create_cq(context, depth, ptr::null_mut(), ptr::null_mut(), 0);
            if pair.cq.is_null() {
                return Err(errno_fail("ibv_create_cq"));
            }
            let mut init: ffi::ibv_qp_init_attr = std::mem::zeroed();
            init.send_cq = pair.cq;
            init.recv_cq = pair.cq;
            init.cap.max_send_wr = sends as u32;
            init.cap.max_recv_wr = receives as u32;
            init.cap.max_send_sge = 1;
            init.cap.max_recv_sge = 1;
            init.qp_type = ffi::IBV_QPT_RC;
            init.sq_sig_all = 1;
            pair.qp = ffi::ibv_create_qp(pair.pd, &mut init);
            if pair.qp.is_null() {
                return Err(errno_fail("ibv_create_qp"));
            }
        }
        pair.modify(id, ffi::IBV_QPS_INIT)?;
        Ok(pair)
    }

    /// Moves the queue pair to a state, with the attributes that the CM provides.
    fn modify(&self, id: &Id, state: ffi::ibv_qp_state) -> Result<()> {
        let mut mask = 0;
        // SAFETY: zero is a valid value of this plain structure.
        let mut attr: ffi::ibv_qp_attr = unsafe { std::mem::zeroed() };
        attr.qp_state = state;
        checked(
            // SAFETY: the id and the places for the results are valid.
            unsafe { ffi::rdma_init_qp_attr(id.as_ptr(), &mut attr, &mut mask) },
            "rdma_init_qp_attr",
        )?;
        if state == ffi::IBV_QPS_INIT {
            // The CM does not provide these yet. They are needed because the peer checks with an
            // empty Write whether this side is there.
            attr.qp_access_flags |= ffi::IBV_ACCESS_REMOTE_READ | ffi::IBV_ACCESS_REMOTE_WRITE;
        }
        if state == ffi::IBV_QPS_RTS {
            // Try three times if there is no receive, whatever the victim has asked for.
            attr.rnr_retry = 3;
        }
        checked(
            // SAFETY: the queue pair and the attributes are valid.
            unsafe { ffi::ibv_modify_qp(self.qp, &mut attr, mask) },
            "ibv_modify_qp",
        )
    }

    pub(crate) fn number(&self) -> u32 {
        // SAFETY: the queue pair is valid.
        unsafe { (*self.qp).qp_num }
    }

    /// Destroys the queue pair only, so that nothing uses its memory any more.
    fn stop(&mut self) {
        if !self.qp.is_null() {
            // SAFETY: by the type invariant; the pointer is not used again.
            unsafe { ffi::ibv_destroy_qp(self.qp) };
            self.qp = ptr::null_mut();
        }
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        self.stop();
        // SAFETY: by the type invariant; the queue pair is destroyed first.
        unsafe {
            if !self.cq.is_null() {
                ffi::ibv_destroy_cq(self.cq);
            }
            if !self.pd.is_null() {
                ffi::ibv_dealloc_pd(self.pd);
            }
        }
    }
}

/// The queue pair of one connection, with memory for its messages.
///
/// # Invariants
///
/// The region is valid, and belongs to the domain of `pair`.
pub(crate) struct Queue {
    pair: QueuePair,
    mr: *mut ffi::ibv_mr,
    /// Memory that the peer may read.
    loans: Vec<Loan>,
    /// Pages of other owners, from which messages can be sent.
    regions: Vec<Region>,
    area: Area,
    sends: usize,
    in_flight: usize,
    /// Whether the provider has refused to post because the connection is being closed.
    is_closing: bool,
}

impl Queue {
    /// Creates a queue pair on the id's device. Receives can be posted to it.
    pub(crate) fn new(id: &Id) -> Result<Queue> {
        let pair = QueuePair::new(id, SEND_SLOTS, RECV_SLOTS)?;
        let area = Area::new()?;
        let mut access = ffi::IBV_ACCESS_LOCAL_WRITE;
        if id.is_iwarp() {
            // The answer to a Read is a kind of Write on iWARP.
            access |= ffi::IBV_ACCESS_REMOTE_WRITE;
        }
        // SAFETY: the domain is valid, and the memory outlives the region; the result is checked.
        let mr = unsafe { ffi::ibv_reg_mr(pair.pd, area.base.cast(), AREA, access as i32) };
        if mr.is_null() {
            return Err(errno_fail("ibv_reg_mr"));
        }
        Ok(Queue {
            pair,
            mr,
            loans: Vec::new(),
            regions: Vec::new(),
            area,
            sends: 0,
            in_flight: 0,
            is_closing: false,
        })
    }

    /// Makes the queue pair ready for both directions. The CM must know the peer. On iWARP the CM
    /// does so itself.
    pub(crate) fn ready(&self, id: &Id) -> Result<()> {
        if id.is_iwarp() {
            return Ok(());
        }
        self.pair.modify(id, ffi::IBV_QPS_RTR)?;
        self.pair.modify(id, ffi::IBV_QPS_RTS)
    }

    pub(crate) fn number(&self) -> u32 {
        self.pair.number()
    }

    /// Posts the receive `slot`, below [`RECV_SLOTS`].
    pub(crate) fn post_receive(&self, slot: usize) -> Result<()> {
        let mut sge = ffi::ibv_sge {
            addr: self.area.addr(slot * RECV_BYTES),
            length: RECV_BYTES as u32,
            lkey: self.lkey(),
        };
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair is valid, and the memory is not freed before it.
        unsafe {
            let mut wr: ffi::ibv_recv_wr = std::mem::zeroed();
            wr.wr_id = slot as u64;
            wr.sg_list = &mut sge;
            wr.num_sge = 1;
            let post = (*(*self.pair.qp).context).ops.post_recv;
            let post = post.ok_or_else(|| Fail::new("the provider has no post_recv"))?;
            checked(post(self.pair.qp, &mut wr, &mut bad), "ibv_post_recv")
        }
    }

    fn lkey(&self) -> u32 {
        // SAFETY: the memory region is valid.
        unsafe { (*self.mr).lkey }
    }

    /// Whether another send may be posted before completions are polled.
    pub(crate) fn has_room(&self) -> bool {
        self.in_flight < SEND_SLOTS
    }

    /// Whether all that was posted has completed.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight == 0
    }

    /// Posts `bytes` as one message. There must be room.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<()> {
        let at = self.next_slot();
        self.area.write(at, bytes);
        self.post(at, bytes.len(), ffi::IBV_WR_SEND, 0, 0)
    }

    /// Registers all of the pages, as for [`Region::new`]; returns the key for sending from them.
    ///
    /// # Safety
    ///
    /// The pages outlive the queue.
    pub(crate) unsafe fn register(&mut self, pages: &Pages, on_demand: bool) -> Result<u32> {
        // SAFETY: the domain is valid and is freed after the regions; the rest is the caller's
        // promise.
        let region = unsafe { Region::new(self.pair.pd, pages, on_demand)? };
        let key = region.lkey();
        self.regions.push(region);
        Ok(key)
    }

    /// Posts `len` bytes at `addr`, in pages that are registered with this key, as one message.
    /// There must be room.
    pub(crate) fn send_from(&mut self, addr: usize, len: usize, lkey: u32) -> Result<()> {
        let piece = ffi::ibv_sge {
            addr: addr as u64,
            length: len as u32,
            lkey,
        };
        self.post_piece(piece, ffi::IBV_WR_SEND, 0, 0)
    }

    /// As [`Queue::send`]; the message makes a key of the victim invalid.
    pub(crate) fn send_and_invalidate(&mut self, bytes: &[u8], key: u32) -> Result<()> {
        let at = self.next_slot();
        self.area.write(at, bytes);
        self.post(at, bytes.len(), ffi::IBV_WR_SEND_WITH_INV, 0, key)
    }

    /// Posts an RDMA Read or Write of `len` bytes. There must be room.
    pub(crate) fn rdma(&mut self, read: bool, addr: u64, rkey: u32, len: usize) -> Result<()> {
        self.rdma_at(read, addr, rkey, len).map(drop)
    }

    /// The bytes of a finished Read.
    pub(crate) fn read_back(&self, at: usize, len: usize) -> Vec<u8> {
        self.area.read(at, len)
    }

    /// As [`Queue::rdma`]; returns the place of the bytes on this side.
    pub(crate) fn rdma_at(
        &mut self,
        read: bool,
        addr: u64,
        rkey: u32,
        len: usize,
    ) -> Result<usize> {
        let at = self.next_slot();
        let opcode = if read {
            ffi::IBV_WR_RDMA_READ
        } else {
            ffi::IBV_WR_RDMA_WRITE
        };
        self.post(at, len, opcode, addr, rkey).map(|()| at)
    }

    /// Lets the peer read a copy of `bytes`.
    pub(crate) fn lend(&mut self, bytes: &[u8]) -> Result<Lent> {
        // SAFETY: the domain is valid, and is freed after the loans.
        let loan = unsafe { Loan::new(self.pair.pd, bytes)? };
        let lent = loan.lent();
        self.loans.push(loan);
        Ok(lent)
    }

    /// Takes all lent memory back, so that the peer may read nothing.
    pub(crate) fn take_back(&mut self) {
        self.loans.clear();
    }

    fn next_slot(&mut self) -> usize {
        let slot = self.sends % SEND_SLOTS;
        self.sends += 1;
        RECV_SLOTS * RECV_BYTES + slot * SEND_BYTES
    }

    fn post(
        &mut self,
        at: usize,
        len: usize,
        opcode: ffi::ibv_wr_opcode,
        remote_addr: u64,
        rkey: u32,
    ) -> Result<()> {
        assert!(len <= SEND_BYTES);
        let piece = ffi::ibv_sge {
            addr: self.area.addr(at),
            length: len as u32,
            lkey: self.lkey(),
        };
        self.post_piece(piece, opcode, remote_addr, rkey)
    }

    fn post_piece(
        &mut self,
        mut sge: ffi::ibv_sge,
        opcode: ffi::ibv_wr_opcode,
        remote_addr: u64,
        rkey: u32,
    ) -> Result<()> {
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair is valid, and the memory is not freed before it.
        let ret = unsafe {
            let mut wr: ffi::ibv_send_wr = std::mem::zeroed();
            wr.wr_id = SEND_FLAG;
            wr.sg_list = &mut sge;
            // Some providers treat a piece of no bytes differently from no piece.
            wr.num_sge = i32::from(sge.length > 0);
            wr.opcode = opcode;
            wr.send_flags = ffi::IBV_SEND_SIGNALED | ffi::IBV_SEND_SOLICITED;
            if opcode == ffi::IBV_WR_SEND_WITH_INV {
                wr.__bindgen_anon_1.invalidate_rkey = rkey;
            } else {
                wr.wr.rdma.remote_addr = remote_addr;
                wr.wr.rdma.rkey = rkey;
            }
            let post = (*(*self.pair.qp).context).ops.post_send;
            let post = post.ok_or_else(|| Fail::new("the provider has no post_send"))?;
            post(self.pair.qp, &mut wr, &mut bad)
        };
        self.in_flight += 1;
        // soft-iWARP refuses a work request while the connection is being closed, and keeps it in
        // the queue. Other providers complete it with an error, as `poll()` then does.
        self.is_closing |= ret != 0 && errno_of(ret).raw_os_error() == Some(libc::ENOTCONN);
        if self.is_closing {
            return Ok(());
        }
        checked(ret, "ibv_post_send")
    }

    /// The next completion, with the slot of its receive; `None` if there is none.
    pub(crate) fn poll(&mut self) -> Result<Option<(usize, Completion)>> {
        // SAFETY: zero is a valid value; the queue and the place are valid.
        let (n, wc) = unsafe {
            let mut wc: ffi::ibv_wc = std::mem::zeroed();
            let poll = (*(*self.pair.cq).context).ops.poll_cq;
            let poll = poll.ok_or_else(|| Fail::new("the provider has no poll_cq"))?;
            (poll(self.pair.cq, 1, &mut wc), wc)
        };
        if n < 0 {
            return Err(Fail::new("ibv_poll_cq failed"));
        }
        if n == 0 {
            let ended = std::mem::take(&mut self.is_closing);
            return Ok(ended.then_some((0, Completion::Failed(ffi::IBV_WC_WR_FLUSH_ERR))));
        }
        let is_send = wc.wr_id & SEND_FLAG != 0;
        if is_send {
            self.in_flight -= 1;
        }
        let slot = (wc.wr_id & 0xffff) as usize;
        let completion = if wc.status != ffi::IBV_WC_SUCCESS {
            Completion::Failed(wc.status)
        } else if is_send {
            Completion::Sent
        } else {
            Completion::Received(self.area.read(slot * RECV_BYTES, wc.byte_len as usize))
        };
        Ok(Some((slot, completion)))
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.pair.stop();
        self.loans.clear();
        self.regions.clear();
        // SAFETY: by the type invariant; the queue pair that used the memory is destroyed.
        unsafe { ffi::ibv_dereg_mr(self.mr) };
    }
}
