// SPDX-License-Identifier: GPL-2.0

//! Sockets and the ports of their namespace ([`crate::inet::ports`]).

use kernel::prelude::*;
use kernel::sync::aref::ARef;

use crate::bindings;
use crate::inet::addr::Addr;
use crate::inet::netns::Net;
use crate::inet::ports::Bound;
pub(crate) use crate::inet::ports::Cursor;
use crate::inet::sock::Sk;
use crate::kern::errno::{
    EADDRINUSE,
    EADDRNOTAVAIL, //
};
use crate::sdp::conn::guard::SockGuard;
use crate::sdp::conn::sock::SdpSock;
use crate::sdp::parts::port::AtCm;

/// The number of successive ports that are tried at the CM if any port will do. The CM also has
/// users other than SDP.
pub(super) const PORTS_TRIED: u32 = 64;

/// Whether the CM has returned this error because another user has the port. `EADDRNOTAVAIL` is the
/// error if one of the two addresses is a wildcard.
pub(super) fn is_taken(e: Error) -> bool {
    e == EADDRINUSE || e == EADDRNOTAVAIL
}

/// A reference to a socket that was found in the tables.
fn hold(sk: Sk) -> ARef<SdpSock> {
    // SAFETY: Only SDP sockets are in the tables, and they are alive while they are there.
    unsafe { SdpSock::from_raw(sk.as_ptr()) }.into()
}

/// Gives a socket without a port the port `port`, or any free one if `port` is 0.
///
/// # Errors
///
/// `EADDRINUSE`, `ENOMEM`.
pub(crate) fn get_port(guard: &mut SockGuard<'_>, port: u16) -> Result {
    bound_of(guard, port, None).map(|_| ())
}

fn bound_of(guard: &mut SockGuard<'_>, port: u16, behind: Option<u16>) -> Result<Bound> {
    if let Some(place) = guard.conn().port.bound {
        return Ok(place);
    }
    let sk = guard.sk();
    let place = sk.net().ports().bind(sk, port, behind)?;
    guard.conn().port.bound = Some(place);
    Ok(place)
}

/// Gives a socket without a port one for its connection to `to`.
///
/// # Errors
///
/// `EADDRINUSE`, `ENOMEM`.
pub(super) fn get_port_towards(guard: &mut SockGuard<'_>, to: &Addr) -> Result {
    let sk = guard.sk();
    guard.conn().port.bound = Some(sk.net().ports().connect(sk, to)?);
    Ok(())
}

/// Releases the port of TCP that was reserved for the socket, if there is one, because the TCP
/// socket of the fallback gets the port. Sleeps.
pub(super) fn release_tcp_port(guard: &mut SockGuard<'_>) {
    if let Some(place) = guard.conn().port.bound {
        guard.sk().net().ports().release_tcp(place);
    }
}

/// Directs connections to the socket's port to the socket, whose state must already be Listen. A
/// socket without a port gets a free one: the first one after `refused`, which the CM has refused.
///
/// # Errors
///
/// `EADDRINUSE` if another socket listens there, or if there is no free port; `ENOMEM`.
pub(crate) fn listen(guard: &mut SockGuard<'_>, refused: Option<u16>) -> Result {
    let place = bound_of(guard, 0, refused)?;
    let sk = guard.sk();
    sk.net().ports().listen(sk, place)
}

/// Stops directing connections to the socket.
pub(crate) fn stop_listening(guard: &mut SockGuard<'_>) {
    if let Some(place) = guard.conn().port.bound {
        guard.sk().net().ports().stop_listening(place);
    }
}

/// Puts a new connection of a listener into the table, at the listener's port.
///
/// # Errors
///
/// `ENOMEM`.
pub(crate) fn adopt(guard: &mut SockGuard<'_>, port: u16) -> Result {
    let sk = guard.sk();
    guard.conn().port.bound = Some(sk.net().ports().adopt(sk, port)?);
    Ok(())
}

/// Takes the socket out of the table.
pub(crate) fn put_port(guard: &mut SockGuard<'_>) {
    if let Some(place) = guard.conn().port.bound.take() {
        guard.sk().net().ports().put(place);
    }
}

/// Releases a port that the kernel has chosen for a connection or for listening, when that has
/// ended. The socket keeps a port that its program has chosen, as with TCP (`tcp_set_state`).
pub(crate) fn put_chosen_port(guard: &mut SockGuard<'_>) {
    let sk = guard.sk();
    if guard.conn().port.bound.is_some() && !sk.user_locked(bindings::SOCK_BINDPORT_LOCK) {
        put_port(guard);
        sk.forget_num();
    }
}

/// After a fallback to TCP: puts the socket into the table at the port of the TCP socket, so that
/// it is shown.
pub(super) fn show_at_tcp_port(guard: &mut SockGuard<'_>) {
    let Some(fell_back) = guard.conn().lifetime.fell_back else {
        return;
    };
    put_port(guard);
    let sk = guard.sk();
    // Without memory, only `ss` shows the connection.
    guard.conn().port.bound = sk.net().ports().list_tcp(sk, fell_back.port).ok();
}

/// Gives the socket another port for its connection to `to`, if there is one. The CM still has the
/// port for the connection that is being released. Moreover, TCP on iWARP refuses another
/// connection between the same two ports for a minute after the end (`TIME_WAIT`).
pub(super) fn change_port(guard: &mut SockGuard<'_>, to: &Addr) {
    if guard.conn().port.former_bound.is_some() {
        keep_port(guard, to);
        return;
    }
    let former = guard.conn().port.bound.take();
    match get_port_towards(guard, to) {
        // A port that the CM does not have is free at once.
        Ok(()) if !guard.conn().port.is_at_cm() => {
            if let Some(former) = former {
                guard.sk().net().ports().put(former);
            }
        }
        Ok(()) => guard.conn().port.former_bound = former,
        Err(_) => {
            guard.conn().port.bound = former;
            keep_port(guard, to);
        }
    }
}

/// The socket keeps its port, if it has one, for its connection to `to`.
fn keep_port(guard: &mut SockGuard<'_>, to: &Addr) {
    if let Some(place) = guard.conn().port.bound {
        guard.sk().net().ports().retarget(place, to);
    }
}

/// The CM has chosen this port for the connection's id.
///
/// # Errors
///
/// `ENOMEM`.
pub(super) fn chosen_by_cm(guard: &mut SockGuard<'_>, port: u16) -> Result {
    let sk = guard.sk();
    let at_cm = if port == sk.num() {
        AtCm::Own
    } else {
        let peer = guard.conn().names.peer;
        AtCm::Other(sk.net().ports().record_at_cm(sk, port, &peer)?)
    };
    guard.conn().port.at_cm = at_cm;
    Ok(())
}

/// Sets a port aside for the connection's id at the CM, if the id cannot use the port of the
/// socket. If the CM chose the port, it could choose the port of another socket, whose listen()
/// would then fail. Another call gives the next port.
///
/// # Errors
///
/// `EADDRINUSE` if there is no free port, `ENOMEM`.
pub(super) fn set_aside_for_cm(guard: &mut SockGuard<'_>) -> Result<u16> {
    let sk = guard.sk();
    let refused = match guard.conn().port.at_cm {
        AtCm::Other(place) => Some(place.port()),
        AtCm::Unknown | AtCm::Own => None,
    };
    let place = sk.net().ports().set_aside(sk, refused)?;
    left_cm(guard);
    guard.conn().port.at_cm = AtCm::Other(place);
    Ok(place.port())
}

/// The CM has never had the port, or no longer has it: releases the port if it was set aside.
pub(super) fn left_cm(guard: &mut SockGuard<'_>) {
    let former = core::mem::replace(&mut guard.conn().port.at_cm, AtCm::Unknown);
    if let AtCm::Other(place) = former {
        guard.sk().net().ports().put(place);
    }
}

/// Releases the port of the former connection, which the CM no longer has.
pub(crate) fn put_former_port(guard: &mut SockGuard<'_>) {
    if let Some(former) = guard.conn().port.former_bound.take() {
        guard.sk().net().ports().put(former);
    }
}

/// The listener for a connection from `from` to `to` that comes in at `dev`.
pub(crate) fn find_listener(
    net: Net<'_>,
    to: &Addr,
    from: &Addr,
    dev: i32,
) -> Option<ARef<SdpSock>> {
    net.ports().find_listener(net, to, from, dev, hold)
}

/// The next sockets of `net` from the cursor `from` on, with their places; empty at the end. With
/// `port`, only sockets that have this port.
///
/// # Errors
///
/// `ENOMEM`; `EINTR` if the thread is being killed.
pub(crate) fn batch(
    net: Net<'_>,
    from: &Cursor,
    port: Option<u16>,
) -> Result<KVec<(ARef<SdpSock>, Cursor)>> {
    net.ports().batch(from, port, hold)
}
