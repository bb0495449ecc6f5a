// SPDX-License-Identifier: GPL-2.0

//! Work items inside socket objects, and the two queues that run them.
//!
//! A queued item holds a reference to its socket. Both queues belong to the module, so destroying
//! them at unload waits for the last instruction of every item.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ptr;

use kernel::ffi::c_long;
use kernel::prelude::*;
use kernel::time::msecs_to_jiffies;
use kernel::types::Opaque;

use crate::bindings;

/// A work queue of the module.
struct Queue(UnsafeCell<*mut bindings::workqueue_struct>);

// SAFETY: The pointer is written only while the module loads or unloads, when nobody uses it.
unsafe impl Sync for Queue {}

/// Process context: for work that calls the RDMA CM or may sleep.
static SLEEPING: Queue = Queue(UnsafeCell::new(ptr::null_mut()));
/// BH context: for completions.
static BH: Queue = Queue(UnsafeCell::new(ptr::null_mut()));

/// The maximum number of items that run at the same time. Each has a thread, which stays for
/// minutes: without a limit, many connections that end together would leave as many threads. No
/// item waits for the end of another, but an item may wait for a program that holds the lock of its
/// socket, or that reads the connection's folder in debugfs: so the limit must not be low.
const SLEEPERS: i32 = 512;

impl Queue {
    fn get(&self) -> *mut bindings::workqueue_struct {
        // SAFETY: Only read between `start` and `stop`.
        unsafe { *self.0.get() }
    }

    fn set(&self, wq: *mut bindings::workqueue_struct) {
        // SAFETY: Called only by `start` and `stop`, when no other thread uses the queue.
        unsafe { *self.0.get() = wq };
    }
}

/// Creates the queues.
pub(crate) fn start() -> Result {
    // SAFETY: The names are valid C strings, the flags valid for a queue with these names.
    unsafe {
        SLEEPING.set(bindings::alloc_workqueue(
            c"ib_sdp".as_char_ptr(),
            bindings::SDP_CONST_WQ_UNBOUND,
            SLEEPERS,
        ));
        BH.set(bindings::alloc_workqueue(
            c"ib_sdp_bh".as_char_ptr(),
            bindings::SDP_CONST_WQ_BH,
            0,
        ));
    }
    if SLEEPING.get().is_null() || BH.get().is_null() {
        stop();
        return Err(ENOMEM);
    }
    Ok(())
}

/// Waits for all items and destroys the queues.
pub(crate) fn stop() {
    for queue in [&SLEEPING, &BH] {
        let wq = queue.get();
        if !wq.is_null() {
            // SAFETY: No socket is left that could queue an item.
            unsafe { bindings::destroy_workqueue(wq) };
            queue.set(ptr::null_mut());
        }
    }
}

/// The function of a work item.
pub(crate) type Func = unsafe extern "C" fn(*mut kernel::bindings::work_struct);

/// A work item for process context.
#[repr(transparent)]
pub(crate) struct Work(Opaque<kernel::bindings::work_struct>);

/// A work item for BH context.
#[repr(transparent)]
pub(crate) struct BhWork(Opaque<kernel::bindings::work_struct>);

/// A work item that runs in process context after some time.
#[repr(transparent)]
pub(crate) struct Timer(Opaque<bindings::delayed_work>);

impl Work {
    /// # Safety
    ///
    /// `this` is memory that does not move; `func` is correct whenever the item is queued.
    pub(crate) unsafe fn init(this: *mut Self, func: Func) {
        let key = kernel::static_lock_class!();
        // SAFETY: As the caller promises.
        unsafe {
            bindings::init_work(
                this.cast(),
                Some(func),
                c"sdp_work".as_char_ptr(),
                key.as_ptr().cast(),
            )
        }
    }

    /// Queues the item; `false` if it was already queued.
    pub(crate) fn queue(&self) -> bool {
        // SAFETY: The item was initialised, and the queue exists as long as sockets do.
        unsafe { bindings::queue_work(SLEEPING.get().cast(), self.0.get().cast()) }
    }
}

/// A work item that belongs to the module, not to an object.
pub(crate) struct StaticWork(UnsafeCell<MaybeUninit<Work>>);

// SAFETY: After its initialisation only the core changes it.
unsafe impl Sync for StaticWork {}

impl StaticWork {
    pub(crate) const fn new() -> Self {
        Self(UnsafeCell::new(MaybeUninit::uninit()))
    }

    /// # Safety
    ///
    /// Called once, when the module loads, before the item is used.
    pub(crate) unsafe fn init(&'static self, func: Func) {
        // SAFETY: As the caller promises; the item stays where it is.
        unsafe { Work::init(self.0.get().cast(), func) };
    }

    /// Queues the item, which must be initialised.
    pub(crate) fn queue(&'static self) {
        // SAFETY: It was initialised when the module was loaded.
        unsafe { (*self.0.get().cast::<Work>()).queue() };
    }
}

impl BhWork {
    /// # Safety
    ///
    /// As for [`Work::init`].
    pub(crate) unsafe fn init(this: *mut Self, func: Func) {
        let key = kernel::static_lock_class!();
        // SAFETY: As the caller promises.
        unsafe {
            bindings::init_work(
                this.cast(),
                Some(func),
                c"sdp_bh_work".as_char_ptr(),
                key.as_ptr().cast(),
            )
        }
    }

    /// Queues the item; `false` if it was already queued.
    pub(crate) fn queue(&self) -> bool {
        // SAFETY: The item was initialised, and the queue exists as long as sockets do.
        unsafe { bindings::queue_work(BH.get().cast(), self.0.get().cast()) }
    }
}

impl Timer {
    /// # Safety
    ///
    /// As for [`Work::init`].
    pub(crate) unsafe fn init(this: *mut Self, func: Func) {
        let key = kernel::static_lock_class!();
        // SAFETY: As the caller promises.
        unsafe {
            bindings::init_delayed_work(
                this.cast(),
                Some(func),
                c"sdp_timer".as_char_ptr(),
                key.as_ptr().cast(),
            )
        }
    }

    /// Starts or restarts the timer; `true` if it was running.
    pub(crate) fn start(&self, ms: u32) -> bool {
        let delay = msecs_to_jiffies(ms);
        // SAFETY: The item was initialised, and the queue exists as long as sockets do.
        unsafe { bindings::mod_delayed_work(SLEEPING.get().cast(), self.0.get().cast(), delay) }
    }

    /// Whether the timer is running.
    pub(crate) fn is_running(&self) -> bool {
        // SAFETY: The item was initialised.
        unsafe { bindings::delayed_work_pending(self.0.get().cast()) }
    }

    /// Stops the timer; `true` if it was running and now will not expire.
    pub(crate) fn stop(&self) -> bool {
        // SAFETY: The item was initialised.
        unsafe { bindings::cancel_delayed_work(self.0.get().cast()) }
    }
}

/// Runs `f` in a kernel thread, which has the credentials of the kernel, and waits for it.
///
/// # Errors
///
/// `EIO` if `f` did not run, which is not known to happen.
pub(crate) fn run_in_kernel<R: Send>(f: impl FnOnce() -> R + Send) -> Result<R> {
    struct Call<F, R>(Option<F>, Option<R>);

    /// # Safety
    ///
    /// `call` is the variable of the function below, which waits for this function.
    unsafe extern "C" fn run<R, F: FnOnce() -> R>(call: *mut core::ffi::c_void) -> c_long {
        // SAFETY: As the caller promises.
        let call = unsafe { &mut *call.cast::<Call<F, R>>() };
        call.1 = call.0.take().map(|f| f());
        0
    }

    fn runner<R, F: FnOnce() -> R>(
        _: &Call<F, R>,
    ) -> unsafe extern "C" fn(*mut core::ffi::c_void) -> c_long {
        run::<R, F>
    }

    let mut call = Call(Some(f), None);
    let run = runner(&call);
    // SAFETY: The function runs once, with the call, and has returned when this returns.
    unsafe {
        bindings::work_on_cpu_key(
            0,
            Some(run),
            (&raw mut call).cast(),
            kernel::static_lock_class!().as_ptr().cast(),
        )
    };
    call.1.ok_or(EIO)
}
