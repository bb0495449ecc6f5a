// SPDX-License-Identifier: GPL-2.0

//! Connection management: ids of the RDMA CM.
//!
//! Handlers run on work queues that all RDMA users share, so the module's handlers only record the
//! event and queue work ([`Handler`]). The module's own work items call all functions here that
//! take an id's handler mutex, never under a socket lock.

use core::mem;
use core::ptr::NonNull;

use kernel::error::{
    from_err_ptr,
    to_result, //
};
use kernel::prelude::*;

use crate::bindings;
use crate::inet::addr::{
    Addr,
    Storage, //
};
use crate::inet::netns::Net;

/// The maximum length of the private data of an event: that of a reply.
pub(crate) const PRIVATE_MAX: usize = 196;

/// What happened to a connection id.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    AddrResolved,
    AddrError,
    RouteResolved,
    RouteError,
    Unreachable,
    Rejected,
    ConnectError,
    Established,
    Disconnected,
    DeviceRemoval,
    /// Not relevant to the module.
    Other,
}

/// A record of an event, without pointers.
#[derive(Copy, Clone)]
pub(crate) struct Event {
    pub(crate) kind: Kind,
    /// A negative errno, or for [`Kind::Rejected`] the CM's reason.
    pub(crate) status: i32,
    /// The peer's private data; empty for a rejection, unless the peer's SDP rejected.
    pub(crate) private: [u8; PRIVATE_MAX],
    pub(crate) private_len: usize,
}

impl Event {
    pub(crate) fn private(&self) -> &[u8] {
        self.private.get(..self.private_len).unwrap_or(&[])
    }

    /// # Safety
    ///
    /// `id` and `ev` are the arguments of the running handler.
    unsafe fn note(id: *mut bindings::rdma_cm_id, ev: *const bindings::rdma_cm_event) -> Self {
        use bindings as b;
        // SAFETY: Valid during the handler.
        let (event, status) = unsafe { ((*ev).event, (*ev).status) };
        let kind = match event {
            b::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_RESOLVED => Kind::AddrResolved,
            b::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_ERROR => Kind::AddrError,
            b::rdma_cm_event_type_RDMA_CM_EVENT_ROUTE_RESOLVED => Kind::RouteResolved,
            b::rdma_cm_event_type_RDMA_CM_EVENT_ROUTE_ERROR => Kind::RouteError,
            b::rdma_cm_event_type_RDMA_CM_EVENT_UNREACHABLE => Kind::Unreachable,
            b::rdma_cm_event_type_RDMA_CM_EVENT_REJECTED => Kind::Rejected,
            b::rdma_cm_event_type_RDMA_CM_EVENT_CONNECT_ERROR => Kind::ConnectError,
            b::rdma_cm_event_type_RDMA_CM_EVENT_ESTABLISHED => Kind::Established,
            b::rdma_cm_event_type_RDMA_CM_EVENT_DISCONNECTED => Kind::Disconnected,
            b::rdma_cm_event_type_RDMA_CM_EVENT_DEVICE_REMOVAL => Kind::DeviceRemoval,
            _ => Kind::Other,
        };
        let mut note = Self {
            kind,
            status,
            private: [0; PRIVATE_MAX],
            private_len: 0,
        };
        let (data, len) = match kind {
            Kind::Established => {
                // SAFETY: The `conn` parameters are set for this event.
                let conn = unsafe { &(*ev).param.conn };
                (conn.private_data.cast::<u8>(), conn.private_data_len)
            }
            // With iWARP, the private data come from the peer's module, in the MPA reply, whatever
            // errno the driver reports for the rejection. The RDMA CM would decide by this errno
            // whether there are private data.
            // SAFETY: Valid during the handler.
            Kind::Rejected if unsafe { is_iwarp(id) } => {
                // SAFETY: The `conn` parameters are set for every event of the iWARP CM.
                let conn = unsafe { &(*ev).param.conn };
                (conn.private_data.cast::<u8>(), conn.private_data_len)
            }
            Kind::Rejected => {
                let mut len = 0;
                // SAFETY: Valid for a rejection during the handler.
                let data = unsafe { b::rdma_consumer_reject_data(id, ev.cast_mut(), &raw mut len) };
                (data.cast::<u8>(), len)
            }
            _ => (core::ptr::null(), 0),
        };
        if !data.is_null() {
            let len = usize::from(len).min(PRIVATE_MAX);
            // SAFETY: The CM says that there are `len` bytes, and `private` has room for them.
            unsafe { core::ptr::copy_nonoverlapping(data, note.private.as_mut_ptr(), len) };
            note.private_len = len;
        }
        note
    }
}

/// Receives the events of an id. Called in process context on a shared work queue: may allocate,
/// but must not wait for anything that a user can delay.
pub(crate) trait Handler {
    /// Records an event. The id must not be used.
    fn on_event(&self, event: Event);
}

/// Handles the requests of a listener.
pub(crate) trait Listener {
    /// Receives the events of the new id.
    type Child: Handler;

    /// Decides on a request. On success the id belongs to the returned connection, which keeps it
    /// by [`Request::keep`].
    ///
    /// # Errors
    ///
    /// `ENOMEM` drops the request silently, so that the peer tries again; all other errors reject
    /// it.
    fn on_request(&self, request: Request<'_>) -> Result<NonNull<Self::Child>>;
}

/// A connection request, during the handler.
pub(crate) struct Request<'a> {
    id: NonNull<bindings::rdma_cm_id>,
    pub(crate) private: &'a [u8],
    pub(crate) local: Addr,
    pub(crate) peer: Addr,
    /// The interface at which it arrived.
    pub(crate) dev: i32,
    /// The address to which answers go, if it is an IP address: on RoCE.
    pub(crate) answers_to: Option<Addr>,
    /// The peer does not repeat a request that is dropped: on iWARP.
    pub(crate) asks_once: bool,
}

impl Request<'_> {
    /// The id, for the connection that will own it if [`Listener::on_request`] succeeds.
    pub(crate) fn keep(&self) -> CmId {
        CmId { id: self.id }
    }

    /// Rejects the request, with the reason as private data. [`Listener::on_request`] must then
    /// return an error, after which the CM destroys the id.
    pub(crate) fn refuse(&self, private: &[u8]) {
        // SAFETY: The id is valid during the handler, and no `CmId` exists for it.
        unsafe { reject(self.id, private) };
    }
}

/// Rejects a connection request.
///
/// # Safety
///
/// `id` is valid.
unsafe fn reject(id: NonNull<bindings::rdma_cm_id>, private: &[u8]) {
    // The function fails if the peer is gone; then no rejection is needed.
    // SAFETY: As the caller promises; the CM copies the private data.
    let _ = unsafe {
        bindings::rdma_reject(
            id.as_ptr(),
            private.as_ptr().cast(),
            private.len() as u8,
            bindings::ib_cm_rej_reason_IB_CM_REJ_CONSUMER_DEFINED as u8,
        )
    };
}

/// An id of the RDMA CM.
///
/// # Invariants
///
/// `id` is a valid id that this value owns. Dropping the value waits for the handler, so a `CmId`
/// must not be dropped in a handler or under a lock that a handler takes.
pub(crate) struct CmId {
    id: NonNull<bindings::rdma_cm_id>,
}

// SAFETY: The CM's functions may be called from any thread.
unsafe impl Send for CmId {}

/// The parameters of a connect or accept.
pub(crate) struct ConnParam<'a> {
    pub(crate) private: &'a [u8],
    /// RDMA Reads in flight, each way.
    pub(crate) reads: u8,
}

/// How often an adapter resends a lost packet before it gives the connection up; used by this side,
/// and by the peer if this side connects. It is the maximum, which soft-RoCE interprets as
/// "unlimited": so the module itself ends a connection without answers (`check_sends`).
const RETRY_COUNT: u8 = 7;
/// Credits guarantee that receives are posted, so "receiver not ready" is a bug, and the adapter
/// does not wait for a receive.
const RNR_RETRY_COUNT: u8 = 0;

/// The time for an acknowledgement: 4.096 us times 2 to this power, 2.1 s. The CM's default, a
/// quarter of it, may be too short for a busy peer in software, and resending a whole window makes
/// such a peer busier.
const ACK_TIMEOUT: u8 = 19;
/// The same time in microseconds.
pub(crate) const ACK_TIMEOUT_US: u32 = ((4096 << ACK_TIMEOUT) / 1000_u64) as u32;

impl ConnParam<'_> {
    fn raw(&self, iwarp: bool) -> bindings::rdma_conn_param {
        // With iWARP, a Read may still occupy its place when its completion was seen, and one more
        // Read would wait for the place. In soft-iWARP (Linux 7.3: `orq_fence`) such a wait stops
        // all other sends, even the answers to the peer's Reads: two peers could wait for each
        // other.
        let reads = if iwarp { 2 * self.reads } else { self.reads };
        bindings::rdma_conn_param {
            private_data: self.private.as_ptr().cast(),
            private_data_len: self.private.len() as u8,
            responder_resources: reads,
            initiator_depth: reads,
            flow_control: 1,
            retry_count: RETRY_COUNT,
            rnr_retry_count: RNR_RETRY_COUNT,
            ..Default::default()
        }
    }
}

/// Whether an RDMA device has the address: then an id can be bound to the address. The function
/// binds a temporary id in the port space of datagrams, where the port of the id does not conflict
/// with any socket.
pub(crate) fn has_device(net: Net<'_>, addr: &Storage) -> bool {
    /// No events occur on an id that is only bound.
    struct Nobody;
    impl Handler for Nobody {
        fn on_event(&self, _event: Event) {}
    }
    let nobody = Nobody;
    let context = (&raw const nobody).cast_mut().cast();
    // SAFETY: The id is dropped before `nobody` is.
    let id = unsafe {
        let datagrams = bindings::rdma_ucm_port_space_RDMA_PS_UDP;
        CmId::create(net, datagrams, Some(connection_handler::<Nobody>), context)
    };
    id.is_ok_and(|id| id.bind(addr).is_ok() && id.device().is_ok())
}

/// The port space of streams (RDMA_PS_TCP).
const STREAMS: bindings::rdma_ucm_port_space = bindings::rdma_ucm_port_space_RDMA_PS_TCP;

impl CmId {
    /// Creates an id in `net`, whose events go to `handler`.
    ///
    /// # Safety
    ///
    /// `handler` stays valid until the id is dropped.
    pub(crate) unsafe fn new<H: Handler>(net: Net<'_>, handler: NonNull<H>) -> Result<Self> {
        // SAFETY: The namespace is valid, and the handler stays valid as the caller promises.
        unsafe {
            Self::create(
                net,
                STREAMS,
                Some(connection_handler::<H>),
                handler.as_ptr().cast(),
            )
        }
    }

    /// Creates an id for listening in `net`.
    ///
    /// # Safety
    ///
    /// `listener` stays valid until the id is dropped.
    pub(crate) unsafe fn new_listener<L: Listener>(
        net: Net<'_>,
        listener: NonNull<L>,
    ) -> Result<Self> {
        // SAFETY: As in `new`.
        unsafe {
            Self::create(
                net,
                STREAMS,
                Some(listen_handler::<L>),
                listener.as_ptr().cast(),
            )
        }
    }

    /// # Safety
    ///
    /// `context` is the context that `handler` expects, and stays valid until the id is dropped.
    unsafe fn create(
        net: Net<'_>,
        ports: bindings::rdma_ucm_port_space,
        handler: bindings::rdma_cm_event_handler,
        context: *mut core::ffi::c_void,
    ) -> Result<Self> {
        // SAFETY: The namespace is valid; the caller vouches for the context.
        let id = from_err_ptr(unsafe {
            bindings::__rdma_create_kernel_id(
                net.as_ptr(),
                handler,
                context.cast(),
                ports,
                bindings::ib_qp_type_IB_QPT_RC,
                c"ib_sdp".as_char_ptr(),
            )
        })?;
        // INVARIANT: A new id, which this value owns.
        let id = Self {
            id: NonNull::new(id).ok_or(ENOMEM)?,
        };
        // iWARP's ports are those of TCP. soft-iWARP creates its TCP sockets in the namespace of
        // the calling thread, a kernel worker: a listener of a container would take a port of the
        // first namespace.
        if !net.is_first() {
            let kind = bindings::SDP_CONST_RDMA_NODE_IB_CA;
            // SAFETY: The id is valid.
            to_result(unsafe { bindings::rdma_restrict_node_type(id.as_ptr(), kind) })?;
        }
        Ok(id)
    }

    pub(crate) fn as_ptr(&self) -> *mut bindings::rdma_cm_id {
        self.id.as_ptr()
    }

    /// The device to which the id was bound by its address.
    pub(crate) fn device(&self) -> Result<*mut bindings::ib_device> {
        // SAFETY: The id is valid; the device is set once and stays while the id lives.
        let device = unsafe { (*self.as_ptr()).device };
        if device.is_null() {
            return Err(ENODEV);
        }
        Ok(device)
    }

    /// Sets how long the adapter waits for an acknowledgement before it resends. Call before the
    /// queue pair is connected.
    pub(crate) fn set_ack_timeout(&self) -> Result {
        // SAFETY: The id is valid.
        to_result(unsafe { bindings::rdma_set_ack_timeout(self.as_ptr(), ACK_TIMEOUT) })
    }

    /// Sets the traffic class of the packets (IP_TOS with iWARP). Call before the address is
    /// resolved.
    pub(crate) fn set_service_type(&self, tos: u8) {
        // SAFETY: The id is valid.
        unsafe { bindings::rdma_set_service_type(self.as_ptr(), tos.into()) };
    }

    /// Restricts the route lookup to the interface `dev`. Call before [`CmId::resolve_addr`], and
    /// resolve from a wildcard address.
    pub(crate) fn set_device_of_way(&self, dev: i32) {
        // SAFETY: The id is valid. Before the address is resolved, only its owner uses it.
        unsafe { (*self.as_ptr()).route.addr.dev_addr.bound_dev_if = dev };
    }

    /// The interface of the connection. Call after the address was resolved.
    pub(crate) fn interface(&self) -> i32 {
        // SAFETY: The id is valid; the member does not change after that.
        unsafe { (*self.as_ptr()).route.addr.dev_addr.bound_dev_if }
    }

    /// Binds the id to a local address.
    pub(crate) fn bind(&self, addr: &Storage) -> Result {
        // SAFETY: The id and the address are valid.
        to_result(unsafe { bindings::rdma_bind_addr(self.as_ptr(), addr.as_ptr().cast_mut()) })
    }

    /// Restricts a wildcard address to its own family, so that another id of the other family can
    /// have the same port. Without this call, net.ipv6.bindv6only decides. Call before
    /// [`CmId::bind`].
    pub(crate) fn take_one_family(&self) -> Result {
        // SAFETY: The id is valid.
        to_result(unsafe { bindings::rdma_set_afonly(self.as_ptr(), 1) })
    }

    pub(crate) fn listen(&self, backlog: i32) -> Result {
        // SAFETY: The id is valid and bound.
        to_result(unsafe { bindings::rdma_listen(self.as_ptr(), backlog) })
    }

    /// Starts to resolve `to`; an event reports the result.
    pub(crate) fn resolve_addr(&self, from: &Storage, to: &Storage, ms: u32) -> Result {
        let from = from.as_ptr().cast_mut();
        // SAFETY: The id and the addresses are valid.
        to_result(unsafe {
            bindings::rdma_resolve_addr(self.as_ptr(), from, to.as_ptr(), ms as usize)
        })
    }

    /// Starts to resolve the route; an event reports the result.
    pub(crate) fn resolve_route(&self, ms: u32) -> Result {
        // SAFETY: The id is valid.
        to_result(unsafe { bindings::rdma_resolve_route(self.as_ptr(), ms as usize) })
    }

    /// Sends the connection request.
    pub(crate) fn connect(&self, param: &ConnParam<'_>) -> Result {
        let mut raw = param.raw(self.is_iwarp());
        // SAFETY: The id is valid; the CM copies the private data.
        to_result(unsafe { bindings::rdma_connect(self.as_ptr(), &raw mut raw) })
    }

    /// Answers the connection request.
    pub(crate) fn accept(&self, param: &ConnParam<'_>) -> Result {
        let mut raw = param.raw(self.is_iwarp());
        // SAFETY: The id is valid; its handler mutex is held, as rdma_accept() requires.
        to_result(unsafe {
            bindings::rdma_lock_handler(self.as_ptr());
            let ret = bindings::rdma_accept(self.as_ptr(), &raw mut raw);
            bindings::rdma_unlock_handler(self.as_ptr());
            ret
        })
    }

    /// Refuses the connection request, with the reason as private data.
    pub(crate) fn reject(&self, private: &[u8]) {
        // SAFETY: By the type invariant.
        unsafe { reject(self.id, private) };
    }

    /// Disconnects on iWARP, where dropping the queue pair and the id would not disconnect in
    /// order. The IB CM informs the peer when the id is dropped; a request to disconnect that was
    /// sent earlier might have to wait for other requests, and the drop would discard the request.
    ///
    /// Only for a connection that is up: earlier, the CM would wait here for an answer of the peer,
    /// whereas dropping the queue pair ends the wait.
    pub(crate) fn disconnect(&self) {
        if self.is_iwarp() {
            // The function fails if there is no connection any more; then nothing is left to do.
            // SAFETY: The id is valid.
            let _ = unsafe { bindings::rdma_disconnect(self.as_ptr()) };
        }
    }

    /// Whether the id's device uses iWARP.
    pub(crate) fn is_iwarp(&self) -> bool {
        // SAFETY: By the type invariant.
        unsafe { is_iwarp(self.as_ptr()) }
    }

    /// The local and the peer's address.
    pub(crate) fn addrs(&self) -> (Addr, Addr) {
        // SAFETY: The id is valid.
        unsafe { addrs(self.id) }
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the value owns the id, and nobody uses the id any more.
        unsafe { bindings::rdma_destroy_id(self.as_ptr()) };
    }
}

/// Whether the device of an id, if it has one, uses iWARP.
///
/// # Safety
///
/// `id` is valid.
unsafe fn is_iwarp(id: *mut bindings::rdma_cm_id) -> bool {
    // SAFETY: As the caller promises; the device and the port are set once and stay while the id
    // lives.
    unsafe {
        let id = &*id;
        !id.device.is_null() && bindings::rdma_protocol_iwarp(id.device.cast(), id.port_num)
    }
}

/// # Safety
///
/// `id` is valid.
unsafe fn addrs(id: NonNull<bindings::rdma_cm_id>) -> (Addr, Addr) {
    // SAFETY: A `Storage` has the size of a `sockaddr_storage`; the addresses are plain bytes.
    let (local, peer): (Storage, Storage) = unsafe {
        let addr = &raw const (*id.as_ptr()).route.addr;
        (
            (&raw const (*addr).src_addr).cast::<Storage>().read(),
            (&raw const (*addr).dst_addr).cast::<Storage>().read(),
        )
    };
    (
        Addr::from_storage(&local).unwrap_or(Addr::ANY),
        Addr::from_storage(&peer).unwrap_or(Addr::ANY),
    )
}

/// The GID of the peer of a request as an address, if it is one: on RoCE.
///
/// # Safety
///
/// `id` is valid, and is the id of a request.
unsafe fn peer_gid(id: NonNull<bindings::rdma_cm_id>) -> Option<Addr> {
    // SAFETY: As the caller promises; the device and the path are checked for null.
    unsafe {
        let id = &*id.as_ptr();
        let has_path = !id.device.is_null() && !id.route.path_rec.is_null();
        let is_roce = has_path && bindings::rdma_protocol_roce(id.device.cast(), id.port_num);
        is_roce.then(|| Addr::v6((*id.route.path_rec).dgid.raw, 0, 0))
    }
}

const _: () = assert!(mem::size_of::<Storage>() == 128);

/// The CM's callback for an id of [`CmId::new`].
///
/// # Safety
///
/// Called only by the CM, with which it was registered, with valid arguments.
unsafe extern "C" fn connection_handler<H: Handler>(
    id: *mut bindings::rdma_cm_id,
    ev: *mut bindings::rdma_cm_event,
) -> kernel::ffi::c_int {
    // SAFETY: The context is the handler given to `new`, or the child of a listener, and stays
    // valid while the id lives; the event is valid during the call.
    unsafe {
        let handler = (*id).context.cast::<H>();
        (*handler).on_event(Event::note(id, ev));
    }
    0
}

/// The CM's callback for an id of [`CmId::new_listener`], and for the new id of a request, which
/// has the listener's context.
///
/// # Safety
///
/// Called only by the CM, with which it was registered, with valid arguments.
unsafe extern "C" fn listen_handler<L: Listener>(
    id: *mut bindings::rdma_cm_id,
    ev: *mut bindings::rdma_cm_event,
) -> kernel::ffi::c_int {
    // SAFETY: The event is valid during the call.
    let event = unsafe { &*ev };
    if event.event != bindings::rdma_cm_event_type_RDMA_CM_EVENT_CONNECT_REQUEST {
        // A wildcard listener also gets events about devices, which need no action.
        return 0;
    }
    // SAFETY: The context is the listener given to `new_listener`, which waits for its handlers
    // before it is freed; the private data is valid during the call.
    let (listener, conn) = unsafe { (&*(*id).context.cast::<L>(), &event.param.conn) };
    let private = if conn.private_data.is_null() {
        &[]
    } else {
        // SAFETY: The CM says that there are `private_data_len` bytes.
        unsafe {
            core::slice::from_raw_parts(
                conn.private_data.cast::<u8>(),
                conn.private_data_len.into(),
            )
        }
    };
    let Some(new) = NonNull::new(id) else {
        return EINVAL.to_errno();
    };
    // SAFETY: The new id is valid.
    let ((local, peer), dev) =
        unsafe { (addrs(new), (*new.as_ptr()).route.addr.dev_addr.bound_dev_if) };
    let request = Request {
        id: new,
        private,
        local,
        peer,
        dev,
        // SAFETY: The new id is valid, and has a device.
        answers_to: unsafe { peer_gid(new) },
        // SAFETY: As above.
        asks_once: unsafe { is_iwarp(id) },
    };
    match listener.on_request(request) {
        Ok(child) => {
            // SAFETY: The id's handler mutex is held, so the next event of the id uses both new
            // values.
            unsafe {
                (*id).context = child.as_ptr().cast();
                (*id).event_handler = Some(connection_handler::<L::Child>);
            }
            0
        }
        // A nonzero value makes the CM destroy the new id.
        Err(e) => e.to_errno(),
    }
}
