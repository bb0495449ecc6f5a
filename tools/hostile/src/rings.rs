// SPDX-License-Identifier: GPL-2.0
//! A program that overwrites the rings of its own queues. Rings of programs are memory of the
//! program that the adapter reads, so an adapter must expect any value there.
//!
//! The provider of vmw_pvrdma does not tell where the rings are: they are on the pages that appear
//! while the provider creates the queue.

use crate::cm::{checked, errno_fail, Channel, Id};
use crate::fail::{expect, Fail, Result, Step};
use crate::ffi;
use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
/// A number that no ring has.
const NONSENSE: u32 = 0x00c0_ffee;
/// Number of entries of the queues.
const ENTRIES: u32 = 16;
/// Number of receives that are posted to each queue.
const RECEIVES: u32 = 3;
/// Number of indices in the table of addresses that are searched.
const GIDS: i32 = 16;
/// Bits of the doorbell of queue pairs, next to the queue pair's number.
const DOORBELL_SEND: u32 = 1 << 30;
const DOORBELL_RECEIVE: u32 = 1 << 31;

/// The ring whose number is overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ring {
    Sends,
    Receives,
    Completions,
    SharedReceives,
}

/// Pages of the process, by their addresses.
type Pages = BTreeSet<usize>;

/// The address range, the access rights and the name of each mapping of this process.
fn mappings() -> Result<Vec<(usize, usize, String, String)>> {
    let text = fs::read_to_string("/proc/self/maps")?;
    let parse = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let rights = words.next()?.to_owned();
        let name = words.nth(3).unwrap_or_default().to_owned();
        let address = |text| usize::from_str_radix(text, 16).ok();
        Some((address(start)?, address(end)?, rights, name))
    };
    text.lines()
        .map(|line| parse(line).ok_or_else(|| Fail::new(format!("a mapping: {line}"))))
        .collect()
}

/// The pages without a file that this process can write.
fn anonymous() -> Result<Pages> {
    let all = mappings()?.into_iter();
    let own = all.filter(|(.., rights, name)| rights == "rw-p" && name.is_empty());
    Ok(own
        .flat_map(|(start, end, ..)| (start..end).step_by(PAGE))
        .collect())
}

/// Creates an object; returns it with the pages that were mapped meanwhile.
fn with_pages<T>(create: impl FnOnce() -> Result<T>) -> Result<(T, Pages)> {
    let before = anonymous()?;
    let object = create()?;
    let pages = anonymous()?.difference(&before).copied().collect();
    Ok((object, pages))
}

/// The number at this place of a page of an object that exists.
fn number(page: usize, index: usize) -> &'static AtomicU32 {
    assert!(index < PAGE / size_of::<AtomicU32>());
    // SAFETY: the page is one of the object's pages, which `with_pages()` has found. The provider
    // unmaps them when the object is destroyed, and no caller uses the reference afterwards. The
    // adapter writes there too, so the number is atomic.
    unsafe { &*(page as *const AtomicU32).add(index) }
}

/// The page with the numbers of the rings, by the values of the numbers.
fn page_with(pages: &Pages, numbers: [u32; 4]) -> Result<usize> {
    let fits = |page: usize| (0..4).all(|n| number(page, n).load(Ordering::Acquire) == numbers[n]);
    let mut found = pages.iter().copied().filter(|page| fits(*page));
    found
        .next()
        .ok_or_else(|| Fail::new("no page has the numbers of the rings"))
}

/// The device of an address.
struct Device {
    /// Has the device open.
    _id: Id,
    context: *mut ffi::ibv_context,
    pd: *mut ffi::ibv_pd,
    gid: ffi::ibv_gid,
    gid_index: u8,
    /// The page with the doorbells of this program.
    doorbells: usize,
}

impl Device {
    fn new(local: Ipv4Addr, port: u16) -> Result<Device> {
        let id = Id::new(&Channel::new()?)?;
        id.listen(SocketAddrV4::new(local, port))?;
        // SAFETY: the id is valid and bound to an address of a device.
        let context = unsafe { (*id.as_ptr()).verbs };
        expect(!context.is_null(), || format!("{local} has no RDMA device"))?;
        let mut found = None;
        for index in 0..GIDS {
            // SAFETY: zero is a valid value of this plain union.
            let mut gid: ffi::ibv_gid = unsafe { std::mem::zeroed() };
            // SAFETY: the context and the place for the address are valid.
            let ret = unsafe { ffi::ibv_query_gid(context, 1, index, &mut gid) };
            // SAFETY: any bytes are a valid address.
            if ret == 0 && unsafe { gid.raw } == local.to_ipv6_mapped().octets() {
                found = Some((gid, index as u8));
                break;
            }
        }
        let (gid, gid_index) =
            found.ok_or_else(|| Fail::new(format!("no index has the address {local}")))?;
        let doorbells = mappings()?
            .into_iter()
            .find(|(.., rights, name)| rights == "-w-s" && name.contains("uverbs"))
            .ok_or_else(|| Fail::new("no doorbells are mapped"))?
            .0;
        // SAFETY: the context is valid; the result is checked.
        let pd = unsafe { ffi::ibv_alloc_pd(context) };
        if pd.is_null() {
            return Err(errno_fail("ibv_alloc_pd"));
        }
        Ok(Device {
            _id: id,
            context,
            pd,
            gid,
            gid_index,
            doorbells,
        })
    }

    /// Writes to the doorbell of queue pairs.
    fn ring(&self, value: u32) {
        // SAFETY: the page is the mapping of the doorbells, which lives as long as the context. A
        // write to it reaches the device only.
        unsafe { ptr::write_volatile(self.doorbells as *mut u32, value) };
    }

    /// The next event of the device, and the address of its object; `None` if none comes in time.
    fn event(&self, limit: Duration) -> Result<Option<(ffi::ibv_event_type, usize)>> {
        let mut poll = libc::pollfd {
            // SAFETY: the context is valid.
            fd: unsafe { (*self.context).async_fd },
            events: libc::POLLIN,
            revents: 0,
        };
        let ms = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: one valid entry.
        if unsafe { libc::poll(&mut poll, 1, ms) } <= 0 {
            return Ok(None);
        }
        // SAFETY: zero is a valid value of this plain structure.
        let mut event: ffi::ibv_async_event = unsafe { std::mem::zeroed() };
        checked(
            // SAFETY: the context and the place for the event are valid.
            unsafe { ffi::ibv_get_async_event(self.context, &mut event) },
            "ibv_get_async_event",
        )?;
        // SAFETY: each member of the union is a pointer or an int, and the whole is initialised.
        let object = unsafe { event.element.qp } as usize;
        let kind = event.event_type;
        // SAFETY: the event came from ibv_get_async_event, and its object exists.
        unsafe { ffi::ibv_ack_async_event(&mut event) };
        Ok(Some((kind, object)))
    }

    /// Waits for an event of this object, and ignores others.
    fn expect_event(
        &self,
        kind: ffi::ibv_event_type,
        object: usize,
        limit: Duration,
    ) -> Result<()> {
        while let Some(event) = self.event(limit)? {
            if event == (kind, object) {
                return Ok(());
            }
        }
        Err(Fail::new(format!("no event {kind} in {limit:?}")))
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: the domain is valid, and its objects are destroyed.
        unsafe { ffi::ibv_dealloc_pd(self.pd) };
    }
}

/// A queue pair with its own queues.
struct End {
    cq: *mut ffi::ibv_cq,
    srq: *mut ffi::ibv_srq,
    qp: *mut ffi::ibv_qp,
    cq_pages: Pages,
    srq_pages: Pages,
    qp_pages: Pages,
}

impl End {
    /// A queue pair to which receives are posted, or to its shared receive queue.
    fn new(device: &Device, is_shared: bool) -> Result<End> {
        let mut end = End {
            cq: ptr::null_mut(),
            srq: ptr::null_mut(),
            qp: ptr::null_mut(),
            cq_pages: Pages::new(),
            srq_pages: Pages::new(),
            qp_pages: Pages::new(),
        };
        let entries = 4 * ENTRIES as i32;
        (end.cq, end.cq_pages) = with_pages(|| {
            let none = ptr::null_mut();
            // SAFETY: the context is valid; the result is checked.
            let cq = unsafe { ffi::ibv_create_cq(device.context, entries, none, none.cast(), 0) };
            created(cq, "ibv_create_cq")
        })?;
        if is_shared {
            (end.srq, end.srq_pages) = with_pages(|| {
                // SAFETY: zero is a valid value of this plain structure.
                let mut init: ffi::ibv_srq_init_attr = unsafe { std::mem::zeroed() };
                init.attr.max_wr = ENTRIES;
                init.attr.max_sge = 1;
                // SAFETY: the domain and the attributes are valid; the result is checked.
                let srq = unsafe { ffi::ibv_create_srq(device.pd, &mut init) };
                created(srq, "ibv_create_srq")
            })?;
        }
        let (cq, srq) = (end.cq, end.srq);
        (end.qp, end.qp_pages) = with_pages(|| {
            // SAFETY: zero is a valid value of this plain structure.
            let mut init: ffi::ibv_qp_init_attr = unsafe { std::mem::zeroed() };
            init.send_cq = cq;
            init.recv_cq = cq;
            init.srq = srq;
            init.cap.max_send_wr = ENTRIES;
            init.cap.max_recv_wr = ENTRIES;
            init.cap.max_send_sge = 1;
            init.cap.max_recv_sge = 1;
            init.qp_type = ffi::IBV_QPT_RC;
            init.sq_sig_all = 1;
            // SAFETY: the domain, the queues and the attributes are valid; the result is checked.
            let qp = unsafe { ffi::ibv_create_qp(device.pd, &mut init) };
            created(qp, "ibv_create_qp")
        })?;
        Ok(end)
    }

    fn number(&self) -> u32 {
        // SAFETY: the queue pair is valid.
        unsafe { (*self.qp).qp_num }
    }

    /// Connects the queue pair to one of this device, and posts the receives.
    fn connect(&self, device: &Device, to: u32) -> Result<()> {
        // SAFETY: zero is a valid value of this plain structure.
        let mut attr: ffi::ibv_qp_attr = unsafe { std::mem::zeroed() };
        attr.port_num = 1;
        attr.path_mtu = ffi::IBV_MTU_1024;
        attr.dest_qp_num = to;
        attr.max_dest_rd_atomic = 1;
        attr.max_rd_atomic = 1;
        attr.min_rnr_timer = 1;
        attr.timeout = 10;
        attr.retry_cnt = 3;
        attr.rnr_retry = 3;
        attr.ah_attr.is_global = 1;
        attr.ah_attr.port_num = 1;
        attr.ah_attr.grh.dgid = device.gid;
        attr.ah_attr.grh.sgid_index = device.gid_index;
        attr.ah_attr.grh.hop_limit = 64;
        let init = ffi::IBV_QP_PKEY_INDEX | ffi::IBV_QP_PORT | ffi::IBV_QP_ACCESS_FLAGS;
        let receive = ffi::IBV_QP_AV
            | ffi::IBV_QP_PATH_MTU
            | ffi::IBV_QP_DEST_QPN
            | ffi::IBV_QP_RQ_PSN
            | ffi::IBV_QP_MAX_DEST_RD_ATOMIC
            | ffi::IBV_QP_MIN_RNR_TIMER;
        let send = ffi::IBV_QP_TIMEOUT
            | ffi::IBV_QP_RETRY_CNT
            | ffi::IBV_QP_RNR_RETRY
            | ffi::IBV_QP_SQ_PSN
            | ffi::IBV_QP_MAX_QP_RD_ATOMIC;
        for (state, mask) in [
            (ffi::IBV_QPS_INIT, init),
            (ffi::IBV_QPS_RTR, receive),
            (ffi::IBV_QPS_RTS, send),
        ] {
            attr.qp_state = state;
            let mask = ffi::IBV_QP_STATE | mask;
            checked(
                // SAFETY: the queue pair and the attributes are valid.
                unsafe { ffi::ibv_modify_qp(self.qp, &mut attr, mask as i32) },
                "ibv_modify_qp",
            )
            .step(&format!("state {state}"))?;
        }
        for _ in 0..RECEIVES {
            self.post_receive()?;
        }
        Ok(())
    }

    /// Posts a receive without memory.
    fn post_receive(&self) -> Result<()> {
        let mut bad = ptr::null_mut();
        // SAFETY: zero is a valid value of this plain structure.
        let mut wr: ffi::ibv_recv_wr = unsafe { std::mem::zeroed() };
        // No ring begins with such a number.
        wr.wr_id = u64::MAX;
        // SAFETY: the queues and the request are valid.
        let ret = unsafe {
            let ops = &(*(*self.qp).context).ops;
            match (self.srq.is_null(), ops.post_recv, ops.post_srq_recv) {
                (true, Some(post), _) => post(self.qp, &mut wr, &mut bad),
                (false, _, Some(post)) => post(self.srq, &mut wr, &mut bad),
                _ => return Err(Fail::new("the provider cannot post receives")),
            }
        };
        checked(ret, "ibv_post_recv")
    }

    /// Posts an empty message.
    fn post_send(&self) -> Result<()> {
        let mut bad = ptr::null_mut();
        // SAFETY: zero is a valid value of this plain structure.
        let mut wr: ffi::ibv_send_wr = unsafe { std::mem::zeroed() };
        wr.opcode = ffi::IBV_WR_SEND;
        wr.send_flags = ffi::IBV_SEND_SIGNALED;
        // SAFETY: the queue pair and the request are valid.
        let ret = unsafe {
            let post = (*(*self.qp).context).ops.post_send;
            let post = post.ok_or_else(|| Fail::new("the provider has no post_send"))?;
            post(self.qp, &mut wr, &mut bad)
        };
        checked(ret, "ibv_post_send")
    }

    /// The state of the queue pair at the adapter.
    fn state(&self) -> Result<ffi::ibv_qp_state> {
        // SAFETY: zero is a valid value of these plain structures.
        let (mut attr, mut init): (ffi::ibv_qp_attr, ffi::ibv_qp_init_attr) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        let mask = ffi::IBV_QP_STATE as i32;
        checked(
            // SAFETY: the queue pair and the places for the results are valid.
            unsafe { ffi::ibv_query_qp(self.qp, &mut attr, mask, &mut init) },
            "ibv_query_qp",
        )?;
        Ok(attr.qp_state)
    }

    /// All pages that the adapter reads or writes.
    fn pages(&self) -> Vec<usize> {
        let all = [&self.qp_pages, &self.cq_pages, &self.srq_pages];
        all.into_iter().flatten().copied().collect()
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // SAFETY: each pointer is null or valid, and is not used again. The queue pair, which uses
        // the others, is destroyed first.
        unsafe {
            if !self.qp.is_null() {
                ffi::ibv_destroy_qp(self.qp);
            }
            if !self.srq.is_null() {
                ffi::ibv_destroy_srq(self.srq);
            }
            if !self.cq.is_null() {
                ffi::ibv_destroy_cq(self.cq);
            }
        }
    }
}

/// Checks a pointer to a new object.
fn created<T>(object: *mut T, what: &str) -> Result<*mut T> {
    if object.is_null() {
        Err(errno_fail(what))
    } else {
        Ok(object)
    }
}

/// Two queue pairs that are connected to each other.
fn connected(device: &Device, is_shared: bool) -> Result<[End; 2]> {
    let ends = [End::new(device, is_shared)?, End::new(device, false)?];
    ends[0].connect(device, ends[1].number())?;
    ends[1].connect(device, ends[0].number())?;
    Ok(ends)
}

/// Overwrites the number of a ring; the device must report an error of the ring's queue.
fn overwrite(device: &Device, ring: Ring, limit: Duration) -> Result<()> {
    let [own, peer] = connected(device, ring == Ring::SharedReceives)?;
    let posted = [0, 0, RECEIVES, 0];
    let of_own = (ffi::IBV_EVENT_QP_FATAL, own.qp as usize);
    let (page, index, event) = match ring {
        Ring::Sends => (page_with(&own.qp_pages, posted)?, 0, of_own),
        Ring::Receives => (page_with(&own.qp_pages, posted)?, 2, of_own),
        Ring::SharedReceives => (
            page_with(&own.srq_pages, posted)?,
            2,
            (ffi::IBV_EVENT_SRQ_ERR, own.srq as usize),
        ),
        Ring::Completions => (
            page_with(&own.cq_pages, [0; 4])?,
            3,
            (ffi::IBV_EVENT_CQ_ERR, own.cq as usize),
        ),
    };
    number(page, index).store(NONSENSE, Ordering::Release);
    if ring == Ring::Sends {
        // The provider posts nothing to such a ring.
        device.ring(own.number() | DOORBELL_SEND);
    } else {
        peer.post_send()?;
    }
    device.expect_event(event.0, event.1, limit)?;
    let fails = ring != Ring::Completions;
    let state = own.state()?;
    expect((state == ffi::IBV_QPS_ERR) == fails, || {
        format!("the queue pair is in the state {state}")
    })?;
    println!("{ring:?}: {}", own.number());
    Ok(())
}

/// A sequence of numbers that differs with its seed (Marsaglia's xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as usize % end
    }
}

/// Overwrites any numbers of the rings and of their entries while the adapter reads them. The
/// program must be able to destroy its queues.
fn scribble(device: &Device, random: &mut Random) -> Result<()> {
    const NUMBERS: usize = PAGE / 4;
    let ends = connected(device, random.below(2) == 0)?;
    let pages: Vec<_> = ends.iter().flat_map(End::pages).collect();
    for _ in 0..40 {
        let page = pages[random.below(pages.len())];
        let index = match random.below(3) {
            0 => random.below(4),
            1 => random.below(64),
            _ => random.below(NUMBERS),
        };
        let value = match random.below(3) {
            0 => random.below(8) as u32,
            1 => random.below(64) as u32,
            _ => random.below(1 << 32) as u32,
        };
        number(page, index).store(value, Ordering::Release);
        let end = &ends[random.below(2)];
        let bit = [DOORBELL_SEND, DOORBELL_RECEIVE][random.below(2)];
        device.ring(end.number() | bit);
    }
    while device.event(Duration::ZERO)?.is_some() {}
    Ok(())
}

/// Overwrites each ring once, and then many numbers of many rings. Prints the ring and the queue
/// pair of each step.
pub(crate) fn attack(local: Ipv4Addr, port: u16, limit: Duration) -> Result<()> {
    let device = Device::new(local, port)?;
    for ring in [
        Ring::Sends,
        Ring::Receives,
        Ring::Completions,
        Ring::SharedReceives,
    ] {
        overwrite(&device, ring, limit).step(&format!("{ring:?}"))?;
    }
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for round in 0..100 {
        scribble(&device, &mut random).step(&format!("round {round}"))?;
    }
    // Queues that nobody overwrites still work.
    let [own, peer] = connected(&device, false)?;
    let completions = number(page_with(&own.cq_pages, [0; 4])?, 2);
    peer.post_send()?;
    let end = Instant::now() + limit;
    while completions.load(Ordering::Acquire) == 0 {
        expect(Instant::now() < end, || "no message arrives".into())?;
    }
    Ok(())
}
