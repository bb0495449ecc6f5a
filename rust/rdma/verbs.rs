// SPDX-License-Identifier: GPL-2.0

//! The objects of the RDMA core that a connection has: protection domain, completion queue, queue
//! pair.

use core::ptr;

use kernel::error::{
    from_err_ptr,
    to_result, //
};
use kernel::prelude::*;

use super::cm::CmId;
use super::device::next_vector;
use super::link::SEND_DEPTH;
use super::receive_queue::RECV_DEPTH;
use crate::bindings;

/// Completions: for all requests in both queues, and two spare ones.
const CQ_DEPTH: u32 = SEND_DEPTH + RECV_DEPTH + 2;

/// The receiver of notifications that there may be completions. Called in any context.
pub(crate) trait Notify {
    fn on_completion(&self);
    /// The adapter reports that a queue is broken.
    fn on_fatal(&self);
}

/// The maximum numbers of memory ranges of a request.
pub(super) struct Sizes {
    pub(super) send_entries: u32,
    pub(super) recv_entries: u32,
}

/// The queues, in the order in which they are destroyed.
///
/// # Invariants
///
/// Each is valid or null; `id` is the id on which `qp` was created, and outlives this value.
pub(super) struct Verbs {
    id: *mut bindings::rdma_cm_id,
    pub(super) qp: *mut bindings::ib_qp,
    pub(super) cq: *mut bindings::ib_cq,
}

/// The protection domain.
///
/// # Invariants
///
/// It is valid, and this value owns it. Objects that belong to it are destroyed earlier.
pub(super) struct Domain(pub(super) *mut bindings::ib_pd);

impl Domain {
    /// Each connection has its own protection domain: keys are bound to a domain, and are easy to
    /// guess.
    ///
    /// # Errors
    ///
    /// The error of the provider.
    ///
    /// # Safety
    ///
    /// `device` is valid, and outlives the value.
    pub(super) unsafe fn new(device: *mut bindings::ib_device) -> Result<Self> {
        // SAFETY: As the caller promises.
        let pd = unsafe { bindings::__ib_alloc_pd(device, 0, c"ib_sdp".as_char_ptr()) };
        // INVARIANT: A new one.
        Ok(Self(from_err_ptr(pd)?))
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        let _ = unsafe { bindings::ib_dealloc_pd_user(self.0, ptr::null_mut()) };
    }
}

impl Verbs {
    /// Creates the queues on the device of `id`; `notify` is told of completions.
    ///
    /// # Errors
    ///
    /// The error of the provider.
    ///
    /// # Safety
    ///
    /// `device` is that of `id`. `id`, `domain` and `notify` outlive the value.
    pub(super) unsafe fn new<N: Notify>(
        id: &CmId,
        device: *mut bindings::ib_device,
        domain: &Domain,
        sizes: &Sizes,
        notify: *const N,
    ) -> Result<Self> {
        // INVARIANT: Nothing is created yet.
        let mut verbs = Self {
            id: id.as_ptr(),
            qp: ptr::null_mut(),
            cq: ptr::null_mut(),
        };
        let attr = bindings::ib_cq_init_attr {
            cqe: CQ_DEPTH,
            // SAFETY: The device is valid.
            comp_vector: unsafe { next_vector(device) },
            ..Default::default()
        };
        // SAFETY: The handlers match the context, which outlives the CQ.
        verbs.cq = from_err_ptr(unsafe {
            bindings::__ib_create_cq(
                device,
                Some(completion_handler::<N>),
                Some(async_handler::<N>),
                notify.cast_mut().cast(),
                &raw const attr,
                c"ib_sdp".as_char_ptr(),
            )
        })?;
        let mut init = bindings::ib_qp_init_attr {
            event_handler: Some(async_handler::<N>),
            qp_context: notify.cast_mut().cast(),
            send_cq: verbs.cq,
            recv_cq: verbs.cq,
            cap: bindings::ib_qp_cap {
                max_send_wr: SEND_DEPTH,
                max_recv_wr: RECV_DEPTH,
                max_send_sge: sizes.send_entries,
                max_recv_sge: sizes.recv_entries,
                ..Default::default()
            },
            sq_sig_type: bindings::ib_sig_type_IB_SIGNAL_REQ_WR,
            qp_type: bindings::ib_qp_type_IB_QPT_RC,
            ..Default::default()
        };
        // SAFETY: The id, the PD and the attributes are valid.
        to_result(unsafe { bindings::rdma_create_qp(id.as_ptr(), domain.0, &raw mut init) })?;
        // SAFETY: The id holds the new queue pair.
        verbs.qp = unsafe { (*id.as_ptr()).qp };
        Ok(verbs)
    }
}

impl Drop for Verbs {
    fn drop(&mut self) {
        // SAFETY: By the type invariant. After the queue pair is gone there are no new completions,
        // and after the CQ is gone its handler does not run any more.
        unsafe {
            if !self.qp.is_null() {
                bindings::rdma_destroy_qp(self.id);
            }
            if !self.cq.is_null() {
                bindings::ib_destroy_cq_user(self.cq, ptr::null_mut());
            }
        }
    }
}

/// # Safety
///
/// Called only by the provider, with which it was registered, with valid arguments.
unsafe extern "C" fn completion_handler<N: Notify>(
    _cq: *mut bindings::ib_cq,
    context: *mut core::ffi::c_void,
) {
    // SAFETY: The context outlives the CQ.
    unsafe { (*context.cast::<N>()).on_completion() };
}

/// # Safety
///
/// Called only by the provider, with which it was registered, with valid arguments.
unsafe extern "C" fn async_handler<N: Notify>(
    event: *mut bindings::ib_event,
    context: *mut core::ffi::c_void,
) {
    // SAFETY: The event is valid during the call, the context outlives the queues.
    unsafe {
        let kind = (*event).event;
        if matches!(
            kind,
            bindings::ib_event_type_IB_EVENT_CQ_ERR
                | bindings::ib_event_type_IB_EVENT_QP_FATAL
                | bindings::ib_event_type_IB_EVENT_QP_REQ_ERR
                | bindings::ib_event_type_IB_EVENT_QP_ACCESS_ERR
        ) {
            (*context.cast::<N>()).on_fatal();
        }
    }
}
