// SPDX-License-Identifier: GPL-2.0

//! Whoever touches memory that waits for bytes, waits for them.
//!
//! The core tells an address space's notifiers before it gives a page back that a device seems to
//! have. Ours makes the fault wait, in slices: after each the entry is changed, so that the fault
//! lets go of its locks and comes again. Nobody is let through to what was there before.
//!
//! An address space has one notifier of ours, from its first such receive until it ends or the module
//! goes: registering one takes all of its locks, and while one sleeps no other can be added.
//!
//! # Locks
//!
//! `WATCHES` is taken with an address space's lock held; nothing is taken with it. A watch's list
//! is taken with a page table's lock held. The bytes come without either, and without the socket's
//! lock if that is held by whoever waits: nobody touches a program's memory under it.

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

use super::absent::Absent;
use super::pte;
use super::ranges::{
    Ranged,
    Ranges, //
};
use super::sent::Sent;
use super::Refused;
use crate::bindings;
use crate::kern::completion::FOR_EVER;
use crate::kern::work::StaticWork;
use crate::params::breaks::Rule;
use crate::proto::choice::Reason;
use crate::trace;

/// How long a program that writes waits before it lets go of its locks.
const SLICE_MS: u32 = 4;
/// How long a fork waits before it has the connections aborted. Meanwhile nobody can register a uprobe,
/// and whoever tries to blocks all other forks. An adapter that sends again every two seconds has sent
/// twice by then.
const FORK_MS: i64 = 5000;
/// For so long the next snapshot of a page that somebody has waited for counts as one with the last.
const RECENT_MS: i64 = 100;

kernel::sync::global_lock! {
    // SAFETY: Initialised by `init`, before there is a socket.
    unsafe(uninit) static WATCHES: Mutex<KVec<Arc<Watch>>> = KVec::new();
}

/// Takes the notifiers of ended address spaces out.
static REAPER: StaticWork = StaticWork::new();

/// Makes the locks usable.
///
/// # Safety
///
/// Called once, when the module loads, before anything else here.
pub(super) unsafe fn init() {
    // SAFETY: As the caller promises.
    unsafe {
        WATCHES.init();
        REAPER.init(reap);
    }
}

/// Takes all notifiers out. No socket is left.
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
        // SAFETY: It was inserted, and is taken out only here, by whoever has it from the list. No
        // lock is held.
        unsafe { bindings::mmu_interval_notifier_remove(watch.sub.get()) };
    }
}

/// Our notifier of an address space, with what is under way in it.
#[pin_data]
pub(super) struct Watch {
    sub: Opaque<bindings::mmu_interval_notifier>,
    mm: *mut bindings::mm_struct,
    pub(super) began: Instant<Monotonic>,
    /// Transfers into it.
    #[pin]
    pub(super) transfers: Ranges<Absent>,
    /// Snapshots that make who writes wait.
    #[pin]
    pub(super) sent: Ranges<Sent>,
    /// The last of them that somebody has waited for, and its end.
    #[pin]
    last_waited: SpinLock<Option<(Arc<Sent>, Instant<Monotonic>)>>,
    /// It is the core's: until then nobody may rely on it.
    inserted: Atomic<i32>,
    /// The address space has ended.
    ended: Atomic<i32>,
}

// SAFETY: The notifier is the core's to look into; the rest is guarded or constant.
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

/// Ours, which may not yet be told of everything.
fn ours(mm: &Mm) -> Option<Arc<Watch>> {
    // Nearly always: who has received so before has one.
    if !has_notifiers(mm) {
        return None;
    }
    let is_of = |w: &&Arc<Watch>| w.mm == mm.as_raw();
    WATCHES.lock().iter().find(is_of).cloned()
}

fn find(mm: &Mm) -> Option<Arc<Watch>> {
    ours(mm).filter(|watch| watch.inserted.load(Acquire) != 0)
}

/// The watch of an address space; makes one if there is none.
///
/// # Errors
///
/// [`Reason::NotProtectable`] if somebody else has a notifier there already: he has mappings of his
/// own, which we could not protect. `ENOMEM`.
pub(super) fn of(mm: &MmWithUser) -> Result<Arc<Watch>, Refused> {
    if let Some(watch) = find(mm) {
        return Ok(watch);
    }
    let raw = mm.as_raw();
    // SAFETY: The address space is the current program's, and no lock of it is held.
    unsafe { bindings::mmap_write_lock(raw) };
    let result = insert(mm);
    // SAFETY: Taken above.
    unsafe { bindings::mmap_write_unlock(raw) };
    let watch = result?;
    // SAFETY: It was inserted, by this thread or another. From here on it is told of everything.
    unsafe { bindings::mmu_interval_read_begin(watch.sub.get()) };
    watch.inserted.store(1, Release);
    Ok(watch)
}

/// With the address space's lock held for writing.
fn insert(mm: &MmWithUser) -> Result<Arc<Watch>, Refused> {
    // Another thread may have been here, and not be done.
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

/// Whether nobody but us has a notifier in an address space, as far as one can know.
pub(super) fn is_alone(mm: &Mm) -> bool {
    !has_notifiers(mm) || ours(mm).is_some()
}

/// Waits until no bytes are on their way into a range of the current program's memory: who faults
/// the pages in later does so with a lock held.
///
/// # Errors
///
/// `EFAULT` if they will not come, `EINTR` if the thread is being killed.
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
    /// A transfer into the range whose bytes are not there, and whose pages nobody may see.
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

    /// Holds up whoever touches a range whose bytes are not there, or changes its mappings.
    fn hold_up(&self, range: &bindings::mmu_notifier_range) {
        let (start, end, mm) = (range.start, range.end, range.mm.cast());
        // SAFETY: The range is valid.
        if !unsafe { bindings::mmu_notifier_range_blockable((&raw const *range).cast()) } {
            // Somebody frees memory.
            return;
        }
        match range.event {
            bindings::mmu_notifier_event_MMU_NOTIFY_CLEAR => {
                // Else the program throws away what is there.
                if end - start == kernel::page::PAGE_SIZE {
                    self.hold_up_fault(start, end, mm);
                }
            }
            bindings::mmu_notifier_event_MMU_NOTIFY_PROTECTION_PAGE => self.hold_up_fork(mm),
            _ => self.hold_up_move(start, end, mm),
        }
    }

    /// Holds up a fault that is about to give back a page, or to copy it. The fault will come again.
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
            }
            if absent.outlast(step) {
                continue;
            }
            // The page may be another transfer's by now, whose marks are its own.
            let mark = || self.find(start, end).map(|absent| absent.age.mark());
            // SAFETY: Whoever is about to give back the page, or to copy it, holds the lock of the
            // area, of the address space or of all mappings of the page, which keep the tables.
            unsafe { pte::mark(mm, start, end, mark) };
            return;
        }
        self.hold_up_writer(start, mm);
    }

    /// Holds up a fork, a move or the end of a mapping. None of them comes again: so it waits until no
    /// bytes are on their way any more, also if its thread is being killed. What a failed transfer has
    /// left is cleared.
    fn hold_up_move(&self, start: usize, end: usize, mm: *mut bindings::mm_struct) {
        while let Some(absent) = self.reading_to_await(start, end, mm) {
            if absent.hold_up_to_the_end(start, FOR_EVER) {
                continue;
            }
            absent.abort.store(1, Relaxed);
            absent.wait_unkillable();
        }
    }

    /// As [`Watch::hold_up_move`], of a fork, which calls for each area: the first call waits for all of the
    /// address space, as none begins before the end of the fork. After [`FORK_MS`] their connections are
    /// aborted.
    fn hold_up_fork(&self, mm: *mut bindings::mm_struct) {
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

    /// A transfer into the range for whose end the current thread has to wait before it changes the
    /// mappings. A thread that frees memory, or one of the kernel's that works for nobody, changes none.
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

    /// Holds up a program that is about to have its own copy of a page.
    fn hold_up_writer(&self, addr: usize, mm: *mut bindings::mm_struct) {
        // Who writes to another program's memory has not agreed to wait for it.
        if frees_memory() || !is_own(mm) || is_kernels() {
            return;
        }
        let sent = self.sent.find(addr..addr + 1, |sent| sent.holds(addr));
        // The core may have decided on a copy while the snapshot still had its references, and tell of
        // it after the end of the snapshot: the fault comes again, and the core decides anew.
        if sent.is_none() && !self.has_released(addr) {
            return;
        }
        // SAFETY: Whoever is about to copy a page, or to take it out, holds the lock of the area, of
        // the address space or of all mappings of the page, which keep the tables.
        let seen = unsafe { pte::copied_on_write(mm, addr) };
        // Else it is something else that is done to the page.
        let Some(seen) = seen else { return };
        trace::fault(addr, false);
        if sent.is_none_or(|sent| sent.wait(addr, slice())) {
            // SAFETY: As above.
            unsafe { pte::stir(mm, addr, &seen) };
        }
    }

    /// Since when somebody may have waited for snapshots of a range.
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

    /// Whether somebody has waited for a page of the last snapshot that has ended; `true` once for each
    /// page.
    fn has_released(&self, addr: usize) -> bool {
        let last = self.last_waited.lock();
        last.as_ref()
            .is_some_and(|(sent, _)| sent.has_released(addr))
    }

    /// A snapshot is no longer needed.
    pub(super) fn sent_ended(&self, sent: &Arc<Sent>) {
        // Who has waited may not have had his page yet when the next snapshot of it is made.
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

/// Whether the current thread frees memory: nothing may wait for it.
fn frees_memory() -> bool {
    // SAFETY: The current thread is valid.
    unsafe { (*Task::current_raw()).flags & bindings::SDP_CONST_PF_MEMALLOC != 0 }
}

/// Whether the current thread works for an address space.
fn is_own(mm: *mut bindings::mm_struct) -> bool {
    // SAFETY: The current thread is valid.
    unsafe { (*Task::current_raw()).mm == mm }
}

/// Whether the current thread may be made to wait: not one that frees memory, nor one of the kernel's
/// that does not work for this program.
fn may_wait(mm: *mut bindings::mm_struct) -> bool {
    !frees_memory() && (!is_kernels() || is_own(mm))
}

/// Whether the current thread is one of the kernel's.
fn is_kernels() -> bool {
    // SAFETY: The current thread is valid.
    unsafe { (*Task::current_raw()).flags & bindings::SDP_CONST_PF_KTHREAD != 0 }
}

impl Absent {
    fn note_wait(&self, addr: usize) {
        trace::fault(addr, true);
        self.waits.fetch_add(1, Relaxed);
    }

    /// Has the current thread wait, who is about to touch `addr`, for the end of the transfer, but not
    /// longer than the step lasts.
    fn hold_up(&self, addr: usize, step: usize, mm: *mut bindings::mm_struct) {
        if !self.is_reading() {
            return;
        }
        self.note_wait(addr);
        while self.age.step() == step {
            let left = self.wait(self.age.jiffies_to_next());
            if left < 0 && is_own(mm) {
                // It is being killed.
                self.abort.store(1, Relaxed);
            }
            if left != 0 {
                return;
            }
        }
    }

    /// Keeps the current thread until the step is over; `true` if the page may be looked at.
    fn outlast(&self, step: usize) -> bool {
        let may_be_seen = || !self.is_absent() || self.is_too_old();
        while !may_be_seen() && self.age.step() == step {
            // SAFETY: The caller may sleep.
            unsafe { bindings::schedule_timeout_uninterruptible(1) };
        }
        may_be_seen()
    }

    /// Has the current thread, which is about to change the mappings from `addr` on, wait for the end of
    /// the transfer, for so long at most; `false` if it is not over, or if the thread is being killed.
    fn hold_up_to_the_end(&self, addr: usize, jiffies: usize) -> bool {
        self.note_wait(addr);
        self.wait(jiffies) > 0
    }
}

/// # Safety
///
/// Called only by whom it was registered with, with valid arguments.
unsafe extern "C" fn invalidate(
    sub: *mut bindings::mmu_interval_notifier,
    range: *const bindings::mmu_notifier_range,
    seq: kernel::ffi::c_ulong,
) -> bool {
    // SAFETY: The notifier is that of a watch, which lives until it is removed.
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
    // Nothing has to be tried again.
    true
}
