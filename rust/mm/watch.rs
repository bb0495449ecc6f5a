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
    Instant,
    Monotonic, //
};
use kernel::types::Opaque;

use super::absent::Absent;
use super::done::FOR_EVER;
use super::pte;
use super::sent::Sent;
use super::{
    Refused,
    Rule, //
};
use crate::bindings;
use crate::net::work::StaticWork;
use crate::observe::trace;
use crate::proto::choice::Reason;

/// How long a fault waits before it lets go of its locks.
const SLICE_MS: u32 = 4;
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
pub(crate) fn stop() {
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

/// What became of a wait.
enum Waited {
    /// The transfer is over, well or not.
    Over,
    TooLong,
    Killed,
}

/// What is under way in an address space.
#[pin_data]
pub(super) struct Ranges<T> {
    #[pin]
    list: SpinLock<KVec<Arc<T>>>,
}

impl<T> Ranges<T> {
    fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            list <- new_spinlock!(KVec::new(), "sdp_ranges"),
        })
    }

    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn add(&self, range: &Arc<T>) -> Result {
        loop {
            let mut more = KVec::new();
            {
                let mut list = self.list.lock();
                let Err(_) = list.push_within_capacity(range.clone()) else {
                    return Ok(());
                };
                let room = 2 * list.len() + 4;
                drop(list);
                more.reserve(room, GFP_KERNEL)?;
            }
            let mut list = self.list.lock();
            if more.capacity() > list.capacity() {
                // Freed after the lock.
                core::mem::swap(&mut *list, &mut more);
                while let Ok(old) = more.remove(0) {
                    // There is room.
                    let _ = list.push_within_capacity(old);
                }
            }
        }
    }

    pub(super) fn remove(&self, range: &Arc<T>) {
        let mut list = self.list.lock();
        let at = list.iter().position(|other| Arc::ptr_eq(other, range));
        let removed = at.and_then(|at| list.remove(at).ok());
        drop(list);
        drop(removed);
    }

    fn find(&self, which: impl Fn(&Arc<T>) -> bool) -> Option<Arc<T>> {
        self.list.lock().iter().find(|range| which(range)).cloned()
    }
}

impl Watch {
    /// A transfer into the range whose bytes are not there.
    fn find(&self, start: usize, end: usize) -> Option<Arc<Absent>> {
        self.transfers
            .find(|t| t.overlaps(start, end) && t.is_absent() && !t.is_closed_by_current())
    }

    /// Whether bytes are on their way into the range.
    pub(super) fn has_bytes_to_come(&self, start: usize, end: usize) -> bool {
        self.find(start, end).is_some()
    }

    /// Whether bytes other than `absent`'s are on their way to a page of the range.
    pub(super) fn has_other(&self, absent: &Arc<Absent>, range: Range<usize>) -> bool {
        let is_other = |t: &Arc<Absent>| {
            !Arc::ptr_eq(t, absent) && t.overlaps(range.start, range.end) && t.is_absent()
        };
        self.transfers.find(is_other).is_some()
    }

    /// Holds up whoever changes the mappings of a range whose bytes are not there.
    fn hold_up(&self, range: &bindings::mmu_notifier_range) {
        let (start, end, mm) = (range.start, range.end, range.mm.cast());
        let is_fault = range.event == bindings::mmu_notifier_event_MMU_NOTIFY_CLEAR;
        // SAFETY: The range is valid.
        let may_sleep =
            unsafe { bindings::mmu_notifier_range_blockable((&raw const *range).cast()) };
        if !may_sleep || (is_fault && end - start != kernel::page::PAGE_SIZE) {
            // Somebody frees memory, or the program throws away what is there.
            return;
        }
        while let Some(absent) = self.find(start, end) {
            if crate::breaks(if is_fault { Rule::Touch } else { Rule::Move }) {
                return;
            }
            if !is_fault {
                // A fork, or a move. It cannot come again: it waits for the end. What has failed is
                // cleared.
                if absent.has_failed()
                    || matches!(absent.hold_up(start, FOR_EVER, mm), Waited::Killed)
                {
                    return;
                }
                continue;
            }
            let waits = !absent.has_failed() && may_wait(mm);
            match waits.then(|| absent.hold_up(start, slice(), mm)) {
                Some(Waited::Over) => continue,
                Some(Waited::TooLong) => {}
                // Not at once again: what it waits for needs the processor, too.
                Some(Waited::Killed) | None => pause(),
            }
            // SAFETY: Whoever is about to give back the page, or to copy it, holds the lock of the
            // area, of the address space or of all mappings of the page, which keep the tables.
            unsafe { pte::flip(mm, start, end) };
            return;
        }
        if is_fault {
            self.hold_up_writer(start, mm);
        }
    }

    /// Holds up a program that is about to have its own copy of a page.
    fn hold_up_writer(&self, addr: usize, mm: *mut bindings::mm_struct) {
        // Who writes to another program's memory has not agreed to wait for it.
        if frees_memory() || !is_own(mm) || is_kernels() {
            return;
        }
        let sent = self.sent.find(|sent| sent.holds(addr));
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
        let current = {
            let sent = self.sent.list.lock();
            sent.iter()
                .map(|sent| sent.since(base, end))
                .fold(None, oldest)
        };
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
    // SAFETY: No precondition.
    unsafe { bindings::msecs_to_jiffies(SLICE_MS) }
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

fn pause() {
    if !frees_memory() {
        // SAFETY: The caller may sleep.
        unsafe { bindings::schedule_timeout_uninterruptible(1) };
    }
}

impl Absent {
    /// Has the current thread wait, who is about to touch `addr`, for the end of the transfer or for so
    /// long.
    fn hold_up(&self, addr: usize, jiffies: usize, mm: *mut bindings::mm_struct) -> Waited {
        trace::fault(addr, true);
        self.waits.fetch_add(1, Relaxed);
        match self.wait(jiffies) {
            0 => Waited::TooLong,
            left if left > 0 => Waited::Over,
            _ => {
                if is_own(mm) {
                    self.abort.store(1, Relaxed);
                }
                Waited::Killed
            }
        }
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
