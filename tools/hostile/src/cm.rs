// SPDX-License-Identifier: GPL-2.0
//! Ids and events of the connection manager.

use crate::fail::{Fail, Result, Step};
use crate::ffi;
use std::io;
use std::net::SocketAddrV4;
use std::ptr;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The time limit in milliseconds for finding an address or a route.
const RESOLVE_MS: i32 = 5000;

/// Turns the result of a call that returns 0, or -1 and errno, into a [`Result`].
pub(crate) fn checked(ret: i32, what: &str) -> Result<()> {
    match ret {
        0 => Ok(()),
        _ => Err(errno_of(ret)).step(what),
    }
}

/// The error of a call that returned `ret`, which is not 0. Some verbs return the errno itself.
pub(crate) fn errno_of(ret: i32) -> io::Error {
    if ret > 0 {
        io::Error::from_raw_os_error(ret)
    } else {
        io::Error::last_os_error()
    }
}

/// A failure with the errno of the last call, for calls that return a pointer.
pub(crate) fn errno_fail(what: &str) -> Fail {
    Fail::new(format!("{what}: {}", io::Error::last_os_error()))
}

/// A channel for events.
///
/// # Invariants
///
/// The pointer is a valid channel, owned by this value; every id that reports to it holds a
/// reference on this value.
pub(crate) struct Channel(*mut ffi::rdma_event_channel);

/// An event, copied out and acknowledged.
pub(crate) struct Event {
    pub(crate) kind: ffi::rdma_cm_event_type,
    pub(crate) status: i32,
    pub(crate) private: Vec<u8>,
    id: *mut ffi::rdma_cm_id,
}

impl Channel {
    pub(crate) fn new() -> Result<Rc<Channel>> {
        // SAFETY: no precondition; the result is checked.
        let channel = unsafe { ffi::rdma_create_event_channel() };
        if channel.is_null() {
            return Err(errno_fail("rdma_create_event_channel"));
        }
        Ok(Rc::new(Channel(channel)))
    }

    /// The next event; `None` if none came within `limit`.
    pub(crate) fn next(&self, limit: Duration) -> Result<Option<Event>> {
        // SAFETY: the channel is valid.
        let fd = unsafe { (*self.0).fd };
        let mut poll = libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        let ms = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: one valid entry.
        if unsafe { libc::poll(&mut poll, 1, ms) } <= 0 {
            return Ok(None);
        }
        let mut event = ptr::null_mut();
        checked(
            // SAFETY: the channel is valid, and so is the place for the result.
            unsafe { ffi::rdma_get_cm_event(self.0, &mut event) },
            "rdma_get_cm_event",
        )?;
        // SAFETY: the event is valid until it is acknowledged. The connection's parameters are set
        // for the events that have private data, and the union's other member starts with the same
        // two fields.
        let copy = unsafe {
            let conn = &(*event).param.conn;
            let private = if conn.private_data.is_null() {
                Vec::new()
            } else {
                std::slice::from_raw_parts(
                    conn.private_data.cast::<u8>(),
                    usize::from(conn.private_data_len),
                )
                .to_vec()
            };
            Event {
                kind: (*event).event,
                status: (*event).status,
                private,
                id: (*event).id,
            }
        };
        checked(
            // SAFETY: the event came from rdma_get_cm_event and is not used again.
            unsafe { ffi::rdma_ack_cm_event(event) },
            "rdma_ack_cm_event",
        )?;
        Ok(Some(copy))
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: by the type invariant, no id uses the channel any more.
        unsafe { ffi::rdma_destroy_event_channel(self.0) };
    }
}

/// An id of the connection manager.
///
/// # Invariants
///
/// The pointer is a valid id, owned by this value, that reports to `channel`.
pub(crate) struct Id {
    id: *mut ffi::rdma_cm_id,
    pub(crate) channel: Rc<Channel>,
}

impl Id {
    pub(crate) fn new(channel: &Rc<Channel>) -> Result<Id> {
        let mut id = ptr::null_mut();
        checked(
            // SAFETY: the channel is valid, and lives as long as the id.
            unsafe { ffi::rdma_create_id(channel.0, &mut id, ptr::null_mut(), ffi::RDMA_PS_TCP) },
            "rdma_create_id",
        )?;
        Ok(Id {
            id,
            channel: Rc::clone(channel),
        })
    }

    /// The new id of a request that a listening id has reported, moved to its own channel.
    pub(crate) fn of_request(event: &Event, listener: &Id) -> Result<Id> {
        let mut id = Id {
            id: event.id,
            channel: Rc::clone(&listener.channel),
        };
        let own = Channel::new()?;
        checked(
            // SAFETY: both are valid, and the request's event is acknowledged.
            unsafe { ffi::rdma_migrate_id(id.id, own.0) },
            "rdma_migrate_id",
        )?;
        id.channel = own;
        Ok(id)
    }

    pub(crate) fn as_ptr(&self) -> *mut ffi::rdma_cm_id {
        self.id
    }

    /// Whether the id's device uses iWARP; false as long as the id has no device.
    pub(crate) fn is_iwarp(&self) -> bool {
        // SAFETY: the id is valid; its device, if any, lives as long as the id.
        unsafe {
            let verbs = (*self.id).verbs;
            !verbs.is_null() && (*(*verbs).device).transport_type == ffi::IBV_TRANSPORT_IWARP
        }
    }

    /// Waits until the peer has accepted this side's request; the event has the peer's private
    /// data. On iWARP the connection is complete then. With other transports this side completes
    /// it by [`Id::establish`].
    pub(crate) fn accepted(&self, limit: Duration) -> Result<Event> {
        let kind = if self.is_iwarp() {
            ffi::RDMA_CM_EVENT_ESTABLISHED
        } else {
            ffi::RDMA_CM_EVENT_CONNECT_RESPONSE
        };
        self.expect(kind, limit)
    }

    /// Waits for any event of this id.
    pub(crate) fn event(&self, limit: Duration) -> Result<Event> {
        self.channel
            .next(limit)?
            .ok_or_else(|| Fail::new(format!("no event of the CM in {limit:?}")))
    }

    /// Waits for the event `kind`; fails if there is another event.
    pub(crate) fn expect(&self, kind: ffi::rdma_cm_event_type, limit: Duration) -> Result<Event> {
        let event = self.event(limit)?;
        if event.kind == kind {
            return Ok(event);
        }
        Err(Fail::new(format!(
            "the CM reports {}, status {}, instead of {}",
            name(event.kind),
            event.status,
            name(kind)
        )))
    }

    /// Waits for the event `kind`, and ignores others.
    pub(crate) fn await_kind(&self, kind: ffi::rdma_cm_event_type, limit: Duration) -> Result<()> {
        let end = Instant::now() + limit;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.channel.next(left)? {
                Some(event) if event.kind == kind => return Ok(()),
                Some(_) => {}
                None => {
                    return Err(Fail::new(format!(
                        "the CM did not report {} in {limit:?}",
                        name(kind)
                    )))
                }
            }
        }
    }

    pub(crate) fn listen(&self, addr: SocketAddrV4) -> Result<()> {
        let mut raw = sockaddr(addr);
        checked(
            // SAFETY: the id and the address are valid.
            unsafe { ffi::rdma_bind_addr(self.id, (&raw mut raw).cast()) },
            "rdma_bind_addr",
        )?;
        // SAFETY: the id is valid and bound.
        checked(unsafe { ffi::rdma_listen(self.id, 64) }, "rdma_listen")
    }

    /// Resolves `addr` and the route. Afterwards the id has a device.
    pub(crate) fn resolve(&self, addr: SocketAddrV4, limit: Duration) -> Result<()> {
        self.start_resolve(addr)?;
        self.expect(ffi::RDMA_CM_EVENT_ADDR_RESOLVED, limit)?;
        self.start_route()?;
        self.expect(ffi::RDMA_CM_EVENT_ROUTE_RESOLVED, limit)?;
        Ok(())
    }

    pub(crate) fn start_resolve(&self, addr: SocketAddrV4) -> Result<()> {
        let mut raw = sockaddr(addr);
        checked(
            // SAFETY: the id and the address are valid.
            unsafe {
                ffi::rdma_resolve_addr(self.id, ptr::null_mut(), (&raw mut raw).cast(), RESOLVE_MS)
            },
            "rdma_resolve_addr",
        )
    }

    pub(crate) fn start_route(&self) -> Result<()> {
        checked(
            // SAFETY: the id is valid.
            unsafe { ffi::rdma_resolve_route(self.id, RESOLVE_MS) },
            "rdma_resolve_route",
        )
    }

    /// Sends a request with this private data, for the queue pair `qp_num`.
    pub(crate) fn connect(&self, private: &[u8], qp_num: u32) -> Result<()> {
        let mut param = conn_param(private, qp_num);
        checked(
            // SAFETY: the id is valid; the private data is copied.
            unsafe { ffi::rdma_connect(self.id, &mut param) },
            "rdma_connect",
        )
    }

    pub(crate) fn accept(&self, private: &[u8], qp_num: u32) -> Result<()> {
        let mut param = conn_param(private, qp_num);
        checked(
            // SAFETY: the id is valid; the private data is copied.
            unsafe { ffi::rdma_accept(self.id, &mut param) },
            "rdma_accept",
        )
    }

    pub(crate) fn reject(&self, private: &[u8]) -> Result<()> {
        checked(
            // SAFETY: the id is valid; the private data is copied.
            unsafe { ffi::rdma_reject(self.id, private.as_ptr().cast(), private.len() as u8) },
            "rdma_reject",
        )
    }

    /// Tells the peer's CM that the connection is complete. On iWARP the CM does so itself.
    pub(crate) fn establish(&self) -> Result<()> {
        if self.is_iwarp() {
            return Ok(());
        }
        // SAFETY: the id is valid.
        checked(unsafe { ffi::rdma_establish(self.id) }, "rdma_establish")
    }

    pub(crate) fn disconnect(&self) -> Result<()> {
        // SAFETY: the id is valid.
        checked(unsafe { ffi::rdma_disconnect(self.id) }, "rdma_disconnect")
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        // SAFETY: by the type invariant; all events of the id are acknowledged.
        unsafe { ffi::rdma_destroy_id(self.id) };
    }
}

fn conn_param(private: &[u8], qp_num: u32) -> ffi::rdma_conn_param {
    ffi::rdma_conn_param {
        private_data: private.as_ptr().cast(),
        private_data_len: private.len() as u8,
        responder_resources: 1,
        initiator_depth: 1,
        flow_control: 1,
        // How often the victim's adapter retries when this side is gone. Soft-RoCE takes 7 as no
        // limit.
        retry_count: 6,
        // How often the victim's adapter retries when this side has no receive: without a limit.
        rnr_retry_count: 7,
        srq: 0,
        qp_num,
    }
}

fn sockaddr(addr: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: addr.port().to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from_ne_bytes(addr.ip().octets()),
        },
        sin_zero: [0; 8],
    }
}

/// The name of an event.
pub(crate) fn name(kind: ffi::rdma_cm_event_type) -> String {
    let text = match kind {
        ffi::RDMA_CM_EVENT_ADDR_RESOLVED => "ADDR_RESOLVED",
        ffi::RDMA_CM_EVENT_ROUTE_RESOLVED => "ROUTE_RESOLVED",
        ffi::RDMA_CM_EVENT_CONNECT_REQUEST => "CONNECT_REQUEST",
        ffi::RDMA_CM_EVENT_CONNECT_RESPONSE => "CONNECT_RESPONSE",
        ffi::RDMA_CM_EVENT_CONNECT_ERROR => "CONNECT_ERROR",
        ffi::RDMA_CM_EVENT_UNREACHABLE => "UNREACHABLE",
        ffi::RDMA_CM_EVENT_REJECTED => "REJECTED",
        ffi::RDMA_CM_EVENT_ESTABLISHED => "ESTABLISHED",
        ffi::RDMA_CM_EVENT_DISCONNECTED => "DISCONNECTED",
        _ => return format!("event {kind}"),
    };
    text.to_owned()
}
