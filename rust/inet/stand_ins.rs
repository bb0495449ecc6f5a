// SPDX-License-Identifier: GPL-2.0

//! TCP connections that programs have made because SDP could not connect, as they have told by the
//! socket option `SDP_TCP_INSTEAD`.
//!
//! TCP does not tell the module when a connection ends. So an entry has the addresses and the cookie
//! of its connection, and is looked up in TCP's table when it is shown.

use core::ptr::NonNull;

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::prelude::*;
use kernel::sync::{
    new_mutex,
    rcu,
    Mutex, //
};

use super::addr::to_in6;
use super::announced::Ends;
use super::netns::Net;
use super::sock::Sk;
use super::tcp;
use crate::bindings;
use crate::kern::errno::ENOBUFS;

/// The maximum number of entries of a namespace.
const MOST: usize = 1024;

/// The connections of a namespace, oldest first.
#[pin_data]
pub(crate) struct StandIns {
    #[pin]
    list: Mutex<List>,
}

struct List {
    entries: KVec<Entry>,
    /// The number of the next entry.
    next: u64,
}

#[derive(Copy, Clone)]
struct Entry {
    /// Increases with each entry.
    number: u64,
    /// `from` is the local end.
    ends: Ends,
    /// The interface that the socket is bound to, or 0.
    interface: i32,
    /// SO_COOKIE.
    cookie: u64,
    /// The errno of SDP, positive.
    why: u32,
}

/// A TCP socket that is connecting or connected, and belongs to a program.
///
/// # Invariants
///
/// The value has a reference to the socket.
pub(crate) struct Connection(NonNull<bindings::sock>);

impl Connection {
    pub(crate) fn sk(&self) -> Sk {
        // SAFETY: By the type invariant the socket is valid, and the caller has the value.
        unsafe { Sk::new(self.0.as_ptr()) }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the reference belongs to the value.
        unsafe { bindings::sock_gen_put(self.0.as_ptr()) };
    }
}

/// Whether the socket is connecting or connected, and has a file.
fn is_up(sk: Sk) -> bool {
    let is_idle = matches!(
        u32::from(sk.state()),
        bindings::TCP_CLOSE | bindings::TCP_LISTEN
    );
    !is_idle && !sk.is_orphan()
}

impl Entry {
    fn of(sk: Sk, number: u64, why: u32) -> Self {
        Self {
            number,
            ends: Ends {
                from: sk.bound_addr(),
                to: sk.peer_addr(),
            },
            interface: sk.bound_dev(),
            cookie: sk.cookie(),
            why,
        }
    }

    /// The connection, unless it has ended.
    fn find(&self, net: Net<'_>) -> Option<Connection> {
        let Ends { from, to } = &self.ends;
        let (net, interface) = (net.as_ptr().cast(), self.interface);
        let _rcu = rcu::read_lock();
        // SAFETY: The namespace is valid, and the RCU lock is held. The functions return a socket
        // with a reference, or null.
        let found = unsafe {
            match (from.as_v4(), to.as_v4()) {
                (Some(local), Some(peer)) => bindings::__inet_lookup_established(
                    net,
                    u32::from_ne_bytes(peer),
                    to.port.to_be(),
                    u32::from_ne_bytes(local),
                    from.port,
                    interface,
                    0,
                ),
                _ => bindings::__inet6_lookup_established(
                    net,
                    &to_in6(&to.ip),
                    to.port.to_be(),
                    &to_in6(&from.ip),
                    from.port,
                    interface,
                    0,
                ),
            }
        };
        // INVARIANT: As above.
        let found = Connection(NonNull::new(found)?);
        // A request, or the rest of a closed connection, is no `inet_sock`; its state is in the part
        // that all have.
        let is_full = !matches!(
            found.sk().state().into(),
            bindings::TCP_TIME_WAIT | bindings::TCP_NEW_SYN_RECV
        );
        let is_it = is_full && is_up(found.sk()) && found.sk().cookie() == self.cookie;
        is_it.then_some(found)
    }
}

impl StandIns {
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            list <- new_mutex!(List { entries: KVec::new(), next: 0 }, "sdp_stand_ins"),
        })
    }

    /// Adds the TCP connection of a descriptor of the current process, in the namespace `net`, to
    /// which `self` belongs. `why` is the errno of SDP. Returns whether the connection is new. The
    /// oldest connections that have ended make room.
    ///
    /// # Errors
    ///
    /// `EBADF`, `ENOTSOCK`; `EPROTONOSUPPORT` if it is no TCP socket; `EINVAL` if the socket neither
    /// is connected nor connects, or is of another namespace; `ENOBUFS` if the list is full;
    /// `ENOMEM`.
    ///
    /// # Safety
    ///
    /// The caller is in a system call that does not use the position of a file.
    pub(crate) unsafe fn add(&self, net: Net<'_>, fd: i32, why: u32) -> Result<bool> {
        // SAFETY: As the caller promises.
        let (_file, socket) = unsafe { tcp::of_descriptor(fd)? };
        // SAFETY: The socket is valid while there is a reference to its file, and has its `sk`
        // until the file is released.
        let sk = unsafe { Sk::new((*socket.as_ptr()).sk) };
        if sk.net().key() != net.key() || !is_up(sk) {
            return Err(EINVAL);
        }
        let mut list = self.list.lock();
        let entry = Entry::of(sk, list.next, why);
        if let Some(known) = list.entries.iter_mut().find(|e| e.cookie == entry.cookie) {
            known.why = why;
            return Ok(false);
        }
        let entries = &mut list.entries;
        if entries.len() == entries.capacity() || entries.len() == MOST {
            entries.retain(|entry| entry.find(net).is_some());
        }
        if entries.len() == MOST {
            return Err(ENOBUFS);
        }
        entries.push(entry, GFP_KERNEL_ACCOUNT)?;
        list.next += 1;
        Ok(true)
    }

    /// The next connection that has not ended, and the errno of SDP. `from` is a position in the
    /// list, at first 0.
    pub(crate) fn next(&self, net: Net<'_>, from: &mut u64) -> Option<(Connection, u32)> {
        loop {
            let entry = {
                let list = self.list.lock();
                let entries = &list.entries;
                let at = entries.partition_point(|entry| entry.number < *from);
                *entries.get(at)?
            };
            *from = entry.number + 1;
            if let Some(found) = entry.find(net) {
                return Some((found, entry.why));
            }
        }
    }
}
