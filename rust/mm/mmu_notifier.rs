// SPDX-License-Identifier: GPL-2.0

//! Makes threads that touch memory wait for the bytes that are on their way to it.
//!
//! The core calls an address space's notifiers before it restores a device-exclusive entry. The
//! module's notifier makes the fault wait, in slices. After each slice it changes the entry, so
//! that the fault drops its locks and is repeated. No fault gets the previous content of the page.
//!
//! An address space has one notifier of the module, from its first such receive until the address
//! space ends or the module is unloaded: registering one takes all of the address space's locks,
//! and while a notifier sleeps no other one can be added.
//!
//! # Locks
//!
//! `WATCHES` may be taken with an address space's lock held; no lock is taken under it. The lock of
//! a watch's list is taken with a page table's lock held. The code that ends the waits when the
//! bytes have arrived takes none of these locks. It needs the socket lock, which no waiting thread
//! holds: no thread touches a program's memory under the socket lock.

use core::ops::Range;

use kernel::mm::{
    Mm,
    MmWithUser, //
};
use kernel::prelude::*;
use kernel::sync::atomic::{
    ordering::{
        Acquire,
        Full,
        Relaxed,
        Release, //
    },
    Atomic, //
};
use kernel::sync::{
    new_spinlock,
    Arc,
    SpinLock, //
};
use kernel::task::Task;
use kernel::time::{
    msecs_to_jiffies,
    Instant,
    Monotonic, //
};
use kernel::types::Opaque;

use super::async_dest::Absent;
use super::block_on_write::Sent;
use super::pte;
use super::ranges::{
    Ranged,
    Ranges, //
};
use super::Refused;
use crate::bindings;
use crate::kern::completion::FOR_EVER;
use crate::kern::work::StaticWork;
use crate::params::breaks::Rule;
use crate::proto::choice::Reason;
use crate::trace;

/// How long a writing program waits before it drops its locks.
const SLICE_MS: u32 = 4;
/// How long a fork waits before the connections of the transfers are aborted. While it waits, no
/// thread can register a uprobe, and a thread that waits to register one blocks all other forks of
/// the machine. In this time an adapter that resends every two seconds has resent a packet twice.
const FORK_MS: i64 = 5000;
/// How often a thread that holds mmap_lock while it waits looks whether another thread wants the
/// lock, once it has waited for [`FORK_MS`]; and for how long other threads must have wanted the
/// lock before a fault ends a transfer that is older than [`FORK_MS`].
const CONTENDED_MS: i64 = 500;
/// The maximum time between two consecutive looks of faults at mmap_lock: several steps of the age.
const LOOK_MS: i64 = 200;
/// If a thread has waited for a page of a snapshot, the next snapshot of the page counts as the
/// same snapshot if it begins within this time after the end of the previous one.
const RECENT_MS: i64 = 100;

kernel::sync::global_lock! {
    // SAFETY: Initialised by `init`, before there is a socket.
    unsafe(uninit) static WATCHES: Mutex<KVec<Arc<Watch>>> = KVec::new();
}

/// Removes the notifiers of ended address spaces.
static REAPER: StaticWork = StaticWork::new();

/// Initialises the locks.
///
/// # Safety
///
/// Called once, when the module loads, before any other function of this layer.
pub(super) unsafe fn init() {
    // SAFETY: As the caller promises.
    unsafe {
        WATCHES.init();
        REAPER.init(reap);
    }
}

/// Removes all notifiers. No socket is left.
pub(super) fn stop() {
    remove_where(|_| true);
    // A static is never dropped.
    *WATCHES.lock() = KVec::new();
}

/// # Safety
///
/// Called by the work queue.
unsafe extern "C" fn reap(_work: *mut kernel::bindings::work_struct) {
    remove_where(|watch| watch.ended.load(Relaxed) != 0);
}

fn remove_where(which: impl Fn(&Watch) -> bool) {
    loop {
        let found = {
            let mut watches = WATCHES.lock();
            let at = watches.iter().position(|watch| which(watch));
            at.and_then(|at| watches.remove(at).ok())
        };
        let Some(watch) = found else { return };
        // SAFETY: The notifier was inserted, and is removed only here, by the thread that has taken
        // it from the list. No lock is held.
        unsafe { bindings::mmu_interval_notifier_remove(watch.sub.get()) };
    }
}

/// The module's notifier of an address space, with the transfers in it.
#[pin_data]
pub(super) struct Watch {
    sub: Opaque<bindings::mmu_interval_notifier>,
    mm: *mut bindings::mm_struct,
    pub(super) began: Instant<Monotonic>,
    /// Transfers into the address space.
    #[pin]
    pub(super) transfers: Ranges<Absent>,
    /// Snapshots that make writers wait.
    #[pin]
    pub(super) sent: Ranges<Sent>,
    /// The last snapshot for which a thread has waited, and the time of its end.
    #[pin]
    last_waited: SpinLock<Option<(Arc<Sent>, Instant<Monotonic>)>>,
    /// Set when the registration is complete: before that, nobody may rely on the notifier.
    inserted: Atomic<i32>,
    /// The address space has ended.
    ended: Atomic<i32>,
}

// SAFETY: Only the core accesses the notifier; the rest is guarded or constant.
unsafe impl Send for Watch {}
// SAFETY: As above.
unsafe impl Sync for Watch {}

static OPS: bindings::mmu_interval_notifier_ops = bindings::mmu_interval_notifier_ops {
    invalidate: Some(invalidate),
    invalidate_start: None,
    invalidate_finish: None,
};

fn has_notifiers(mm: &Mm) -> bool {
    // SAFETY: The address space is valid.
    unsafe { bindings::mm_has_notifiers(mm.as_raw()) }
}

/// The module's watch, which may not yet receive all events.
fn ours(mm: &Mm) -> Option<Arc<Watch>> {
    // The usual case: only programs that have received in this way have a notifier.
    if !has_notifiers(mm) {
        return None;
    }
    let is_of = |w: &&Arc<Watch>| w.mm == mm.as_raw();
    WATCHES.lock().iter().find(is_of).cloned()
}

fn find(mm: &Mm) -> Option<Arc<Watch>> {
    ours(mm).filter(|watch| watch.inserted.load(Acquire) != 0)
}

/// The watch of an address space; creates one if there is none.
///
/// # Errors
///
/// [`Reason::NotProtectable`] if somebody else already has a notifier there, or now has one of a
/// range: its owner has mappings that the module cannot protect. `ENOMEM`.
pub(super) fn of(mm: &MmWithUser) -> Result<Arc<Watch>, Refused> {
    if let Some(watch) = find(mm) {
        return if watch.is_alone() {
            Ok(watch)
        } else {
            Err(Reason::NotProtectable.into())
        };
    }
    let raw = mm.as_raw();
    // SAFETY: The address space is the current program's, and no lock of it is held.
    unsafe { bindings::mmap_write_lock(raw) };
    let result = insert(mm);
    // SAFETY: Taken above.
    unsafe { bindings::mmap_write_unlock(raw) };
    let watch = result?;
    // SAFETY: The watch was inserted, by this thread or another. From here on it receives all
    // events.
    unsafe { bindings::mmu_interval_read_begin(watch.sub.get()) };
    watch.inserted.store(1, Release);
    Ok(watch)
}

/// Called with the address space's lock held for writing.
fn insert(mm: &MmWithUser) -> Result<Arc<Watch>, Refused> {
    // Another thread may have inserted the watch, but not finished.
    if let Some(watch) = ours(mm) {
        return Ok(watch);
    }
    let raw = mm.as_raw();
    if has_notifiers(mm) {
        return Err(Reason::NotProtectable.into());
    }
    let watch = Arc::pin_init(
        pin_init!(Watch {
            sub: Opaque::uninit(),
            mm: raw,
            began: Instant::now(),
            transfers <- Ranges::new(),
            sent <- Ranges::new(),
            last_waited <- new_spinlock!(None, "sdp_last_waited"),
            inserted: Atomic::new(0),
            ended: Atomic::new(0),
        }),
        GFP_KERNEL,
    )?;
    WATCHES.lock().push(watch.clone(), GFP_KERNEL)?;
    let whole = usize::MAX & kernel::page::PAGE_MASK;
    // SAFETY: The lock is held for writing; the notifier stays where it is until it is removed.
    let result = kernel::error::to_result(unsafe {
        bindings::mmu_interval_notifier_insert_locked(
            watch.sub.get(),
            raw.cast(),
            0,
            whole,
            &raw const OPS,
        )
    });
    if let Err(e) = result {
        let mut watches = WATCHES.lock();
        let at = watches.iter().position(|other| Arc::ptr_eq(other, &watch));
        let removed = at.and_then(|at| watches.remove(at).ok());
        drop(watches);
        drop(removed);
        return Err(e.into());
    }
    Ok(watch)
}

/// The module's watch of an address space, if there is one.
///
/// # Errors
///
/// [`Reason::NotProtectable`] if somebody else has a notifier there, as far as the module can know:
/// it does not see notifiers of the whole address space that were registered after its own.
pub(super) fn alone(mm: &Mm) -> Result<Option<Arc<Watch>>, Refused> {
    let watch = ours(mm);
    let alone = match &watch {
        Some(watch) => watch.is_alone(),
        None => !has_notifiers(mm),
    };
    if alone {
        Ok(watch)
    } else {
        Err(Reason::NotProtectable.into())
    }
}

/// Waits until no bytes are on their way into a range of the current program's memory: code that
/// later faults the pages in does so with a lock held.
///
/// # Errors
///
/// `EFAULT` if the bytes will not arrive, `EINTR` if the thread is being killed.
pub(super) fn await_bytes(mm: &Mm, start: usize, end: usize) -> Result {
    let Some(watch) = find(mm) else { return Ok(()) };
    while let Some(absent) = watch.find(start, end) {
        if absent.has_failed() {
            return Err(EFAULT);
        }
        if absent.wait(FOR_EVER) < 0 {
            return Err(EINTR);
        }
    }
    Ok(())
}

impl Watch {
    /// Whether nobody else has a notifier of a range: then the module's notifier is the only node
    /// of the tree. The owner of a notifier makes no mappings before the notifier is in the tree,
    /// except in the instant in which the core adds the notifiers that have waited for the end of
    /// an event. While the core rotates the tree, the node may look alone for some instructions.
    /// Only a program that registers memory while it receives into it can meet these moments.
    pub(super) fn is_alone(&self) -> bool {
        // SAFETY: The notifier lives as long as the watch. The core may change each of the links at
        // any time, so each is read with one load.
        unsafe {
            let node = &raw const (*self.sub.get()).interval_tree.rb;
            // The low bit of the parent's address is the colour of the node.
            (&raw const (*node).__rb_parent_color).read_volatile() & !1 == 0
                && (&raw const (*node).rb_left).read_volatile().is_null()
                && (&raw const (*node).rb_right).read_volatile().is_null()
        }
    }

    /// A transfer into the range whose bytes have not arrived, and whose pages nobody may see.
    fn find(&self, start: usize, end: usize) -> Option<Arc<Absent>> {
        let is_such =
            |t: &Arc<Absent>| t.is_absent() && !t.is_closed_by_current() && !t.is_too_old();
        self.transfers.find(start..end, is_such)
    }

    /// Whether bytes are on their way into the range.
    pub(super) fn has_bytes_to_come(&self, start: usize, end: usize) -> bool {
        self.find(start, end).is_some()
    }

    /// Whether bytes other than `absent`'s are on their way to a page of the range.
    pub(super) fn has_other(&self, absent: &Arc<Absent>, range: Range<usize>) -> bool {
        let is_other = |t: &Arc<Absent>| !Arc::ptr_eq(t, absent) && t.is_absent();
        self.transfers.find(range, is_other).is_some()
    }

    /// Holds up a thread that touches a range whose bytes have not arrived, or that changes its
    /// mappings.
    fn hold_up(&self, range: &bindings::mmu_notifier_range) {
        let (start, end, mm) = (range.start, range.end, range.mm.cast());
        // SAFETY: The range is valid.
        if !unsafe { bindings::mmu_notifier_range_blockable((&raw const *range).cast()) } {
            // The thread frees memory.
            return;
        }
        match range.event {
            bindings::mmu_notifier_event_MMU_NOTIFY_CLEAR => {
                // Otherwise the program discards the content.
                if end - start == kernel::page::PAGE_SIZE {
                    self.hold_up_fault(start, end, mm);
                }
            }
            bindings::mmu_notifier_event_MMU_NOTIFY_PROTECTION_PAGE => {
                self.hold_up_fork(start, end, mm);
            }
            _ => self.hold_up_move(start, end, mm),
        }
    }

    /// Holds up a fault that is about to restore a page, or to copy it. The fault will be repeated.
    fn hold_up_fault(&self, start: usize, end: usize, mm: *mut bindings::mm_struct) {
        while let Some(absent) = self.find(start, end) {
            if Rule::Touch.is_broken() {
                return;
            }
            // Reclaim compares no entry, and maps nothing.
            if frees_memory() {
                return;
            }
            let step = absent.age.step();
            if may_wait(mm) {
                absent.hold_up(start, step, mm);
                absent.abort_if_contended(mm);
            }
            if absent.outlast(step) {
                continue;
            }
            // The page may meanwhile belong to another transfer, which has its own marks.
            let mark = || self.find(start, end).map(|absent| absent.age.mark());
            // SAFETY: A thread that is about to restore the page, or to copy it, holds the lock of
            // the area, of the address space or of all mappings of the page, which keep the tables.
            unsafe { pte::mark(mm, start, end, mark) };
            return;
        }
        self.hold_up_writer(start, mm);
    }

    /// Holds up the move or the end of a mapping. These events are not repeated, so the thread
    /// waits until no bytes are on their way any more, even if it is being killed. The pages of a
    /// failed transfer are cleared.
    ///
    /// The thread holds mmap_lock, for which a fork of another thread may wait. So if the transfer
    /// takes longer than [`FORK_MS`] and another thread wants the lock, the connection of the
    /// transfer is aborted.
    fn hold_up_move(&self, start: usize, end: usize, mm: *mut bindings::mm_struct) {
        let began = Instant::<Monotonic>::now();
        while let Some(absent) = self.reading_to_await(start, end, mm) {
            absent.note_wait(start);
            let mut left = 0;
            while left == 0 {
                let ms = (FORK_MS - began.elapsed().as_millis()).max(CONTENDED_MS);
                left = absent.wait(msecs_to_jiffies(ms as u32));
                // SAFETY: The core calls the notifier for an address space that exists.
                let is_contended = unsafe { bindings::mmap_lock_is_contended(mm) };
                if left < 0 || (left == 0 && is_contended) {
                    absent.abort.store(1, Relaxed);
                    absent.wait_unkillable();
                    break;
                }
            }
        }
    }

    /// As [`Watch::hold_up_move`], for a fork. The core raises the event for each area: the first
    /// event for an area with a transfer waits for the transfers of the whole address space,
    /// because no transfer begins before the end of the fork. After [`FORK_MS`] the connections of
    /// the transfers are aborted.
    ///
    /// The core also raises the event for a mapping of a file that is written back. The thread has
    /// locks of the file system then, and does not wait: such a mapping has no transfers.
    fn hold_up_fork(&self, start: usize, end: usize, mm: *mut bindings::mm_struct) {
        if self.reading_to_await(start, end, mm).is_none() {
            return;
        }
        let began = Instant::<Monotonic>::now();
        while let Some(absent) = self.reading_to_await(0, usize::MAX, mm) {
            let left = FORK_MS - began.elapsed().as_millis();
            let jiffies = msecs_to_jiffies(left.max(0) as u32);
            if absent.hold_up_to_the_end(absent.range().start, jiffies) {
                continue;
            }
            self.transfers.find_map(0..usize::MAX, |t| {
                t.abort.store(1, Relaxed);
                None::<()>
            });
            absent.wait_unkillable();
        }
    }

    /// A transfer into the range whose end the current thread must await before it changes the
    /// mappings. Threads that free memory, and kernel threads that do not work for this address
    /// space, do not wait.
    fn reading_to_await(
        &self,
        start: usize,
        end: usize,
        mm: *mut bindings::mm_struct,
    ) -> Option<Arc<Absent>> {
        if !may_wait(mm) || Rule::Move.is_broken() {
            return None;
        }
        self.transfers.find(start..end, |t| t.is_reading())
    }

    /// Holds up a program that is about to get its own copy of a page.
    fn hold_up_writer(&self, addr: usize, mm: *mut bindings::mm_struct) {
        // A thread that writes to another program's memory has not agreed to wait.
        if frees_memory() || !is_own(mm) || is_kernels() {
            return;
        }
        let sent = self.sent.find(addr..addr + 1, |sent| sent.holds(addr));
        // The core may have decided to copy while the snapshot still had its references, and call
        // the notifiers after the end of the snapshot: then the fault is repeated, and the core
        // decides again.
        if sent.is_none() && !self.has_released(addr) {
            return;
        }
        // SAFETY: A thread that is about to copy a page, or to take it out, holds the lock of the
        // area, of the address space or of all mappings of the page, which keep the tables.
        let seen = unsafe { pte::copied_on_write(mm, addr) };
        // Otherwise the event is not a copy.
        let Some(seen) = seen else { return };
        trace::fault(addr, false);
        if sent.is_none_or(|sent| sent.wait(addr, slice())) {
            // SAFETY: As above.
            unsafe { pte::stir(mm, addr, &seen) };
        }
    }

    /// Since when threads may have waited for snapshots of a range.
    pub(super) fn waits_since(&self, base: usize, end: usize) -> Option<Instant<Monotonic>> {
        let oldest = |one: Option<Instant<Monotonic>>, other: Option<Instant<Monotonic>>| {
            let both = Iterator::chain(one.into_iter(), other);
            both.max_by_key(|since| since.elapsed().as_millis())
        };
        let mut current = None;
        self.sent.find_map(base..end, |sent| {
            current = oldest(current, sent.since(base, end));
            None::<()>
        });
        let last = self.last_waited.lock();
        let recent = last
            .as_ref()
            .filter(|(_, ended)| ended.elapsed().as_millis() < RECENT_MS);
        oldest(current, recent.and_then(|(sent, _)| sent.since(base, end)))
    }

    /// Whether a thread has waited for a page of the last snapshot that has ended; `true` once for
    /// each page.
    fn has_released(&self, addr: usize) -> bool {
        let last = self.last_waited.lock();
        last.as_ref()
            .is_some_and(|(sent, _)| sent.has_released(addr))
    }

    /// Removes a snapshot that is no longer needed.
    pub(super) fn sent_ended(&self, sent: &Arc<Sent>) {
        // A waiting thread may not have got its page yet when the next snapshot of the page is
        // taken.
        let former = if sent.waits() > 0 {
            self.last_waited
                .lock()
                .replace((sent.clone(), Instant::now()))
        } else {
            None
        };
        drop(former);
        self.sent.remove(sent);
        sent.end();
    }
}

fn slice() -> usize {
    msecs_to_jiffies(SLICE_MS)
}

/// Whether the current thread frees memory: it must never wait.
fn frees_memory() -> bool {
    // SAFETY: The current thread is valid.
    unsafe { (*Task::current_raw()).flags & bindings::SDP_CONST_PF_MEMALLOC != 0 }
}

/// Whether the current thread works for an address space.
fn is_own(mm: *mut bindings::mm_struct) -> bool {
    // SAFETY: The current thread is valid.
    unsafe { (*Task::current_raw()).mm == mm }
}

/// Whether the current thread may be made to wait: neither a thread that frees memory, nor a kernel
/// thread that does not work for this address space.
fn may_wait(mm: *mut bindings::mm_struct) -> bool {
    !frees_memory() && (!is_kernels() || is_own(mm))
}

/// Whether the current thread is a kernel thread.
fn is_kernels() -> bool {
    // SAFETY: The current thread is valid.
    unsafe { (*Task::current_raw()).flags & bindings::SDP_CONST_PF_KTHREAD != 0 }
}

impl Absent {
    fn note_wait(&self, addr: usize) {
        trace::fault(addr, true);
        self.waits.fetch_add(1, Relaxed);
    }

    /// Makes the current thread, which is about to touch `addr`, wait for the end of the transfer,
    /// at most until the end of the step.
    fn hold_up(&self, addr: usize, step: usize, mm: *mut bindings::mm_struct) {
        if !self.is_reading() {
            return;
        }
        self.note_wait(addr);
        while self.age.step() == step {
            let left = self.wait(self.age.jiffies_to_next());
            if left < 0 && is_own(mm) {
                // The thread is being killed.
                self.abort.store(1, Relaxed);
            }
            if left != 0 {
                return;
            }
        }
    }

    /// Aborts the connection if the transfer takes longer than [`FORK_MS`] and other threads have
    /// wanted mmap_lock for [`CONTENDED_MS`]. The current thread may be in get_user_pages(), which
    /// repeats a fault without releasing the lock, and a fork of another thread may wait for the
    /// lock. An ordinary fault releases its locks between its repetitions, but cannot be told
    /// apart.
    fn abort_if_contended(&self, mm: *mut bindings::mm_struct) {
        // SAFETY: The core calls the notifier for an address space that exists.
        if !unsafe { bindings::mmap_lock_is_contended(mm) } {
            self.contended.store(0, Relaxed);
            return;
        }
        let now = self.age.ms().max(1) as i64;
        let last = self.contended_last.xchg(now, Relaxed);
        match self.contended.load(Relaxed) {
            since if since == 0 || now - last > LOOK_MS => self.contended.store(now, Relaxed),
            since if now >= FORK_MS && now - since >= CONTENDED_MS => self.abort.store(1, Relaxed),
            _ => {}
        }
    }

    /// Keeps the current thread until the step is over; `true` if the page may be seen.
    fn outlast(&self, step: usize) -> bool {
        let may_be_seen = || !self.is_absent() || self.is_too_old();
        while !may_be_seen() && self.age.step() == step {
            // SAFETY: The caller may sleep.
            unsafe { bindings::schedule_timeout_uninterruptible(1) };
        }
        may_be_seen()
    }

    /// Makes the current thread, which is about to change the mappings from `addr` on, wait for the
    /// end of the transfer, `jiffies` at most; `false` if the transfer is not over, or if the
    /// thread is being killed.
    fn hold_up_to_the_end(&self, addr: usize, jiffies: usize) -> bool {
        self.note_wait(addr);
        self.wait(jiffies) > 0
    }
}

/// # Safety
///
/// Called only by the core, with which it was registered, with valid arguments.
unsafe extern "C" fn invalidate(
    sub: *mut bindings::mmu_interval_notifier,
    range: *const bindings::mmu_notifier_range,
    seq: kernel::ffi::c_ulong,
) -> bool {
    // SAFETY: The notifier is part of a watch, which lives until the notifier is removed.
    let (watch, range) = unsafe {
        bindings::mmu_interval_set_seq(sub, seq);
        let offset = core::mem::offset_of!(Watch, sub);
        (&*sub.cast::<u8>().sub(offset).cast::<Watch>(), &*range)
    };
    match range.event {
        bindings::mmu_notifier_event_MMU_NOTIFY_RELEASE => {
            watch.ended.xchg(1, Full);
            REAPER.queue();
        }
        bindings::mmu_notifier_event_MMU_NOTIFY_UNMAP
        | bindings::mmu_notifier_event_MMU_NOTIFY_CLEAR
        | bindings::mmu_notifier_event_MMU_NOTIFY_PROTECTION_PAGE
            if watch.ended.load(Relaxed) == 0 =>
        {
            watch.hold_up(range);
        }
        _ => {}
    }
    // No operation has to be repeated.
    true
}
