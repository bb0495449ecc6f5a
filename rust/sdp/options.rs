// SPDX-License-Identifier: GPL-2.0

//! Socket options at the level of TCP, which programs set without checking what socket they have,
//! and SDP's own options at the same level.

use core::mem::size_of;
use core::ops::RangeInclusive;

use kernel::prelude::*;

use super::conn::sock::SdpSock;
use super::parts::options::Keys;
use super::recv::urgent;
use crate::bindings;
use crate::inet::tcp::TcpListener;
use crate::kern::errno::{
    ENOPROTOOPT,
    EOPNOTSUPP, //
};
use crate::params::{
    self,
    MAX_KEEP_COUNT,
    MAX_KEEP_S, //
};
use crate::proto::choice::Wanted;
use crate::proto::deferral::Timeouts;
use crate::proto::state::State;
use crate::sdp::cq::poll::{
    poll_cq,
    wake_writer_if_due, //
};
use crate::sdp::send::sendmsg::{
    close_message,
    push, //
};
use crate::stats::counters::Counter;
use crate::uapi::socket::{
    SDP_FAULT_POLICY,
    SDP_LAST_BIND_ERR,
    SDP_LISTEN_TCP,
    SDP_TCP_INSTEAD,
    SDP_ZCOPY_MODE,
    SDP_ZCOPY_THRESH, //
};

const TCP_NODELAY: i32 = bindings::TCP_NODELAY as i32;
const TCP_CORK: i32 = bindings::TCP_CORK as i32;
const TCP_KEEPIDLE: i32 = bindings::TCP_KEEPIDLE as i32;
const TCP_KEEPINTVL: i32 = bindings::TCP_KEEPINTVL as i32;
const TCP_KEEPCNT: i32 = bindings::TCP_KEEPCNT as i32;
const TCP_QUICKACK: i32 = bindings::TCP_QUICKACK as i32;
const TCP_USER_TIMEOUT: i32 = bindings::TCP_USER_TIMEOUT as i32;
const TCP_SYNCNT: i32 = bindings::TCP_SYNCNT as i32;
const TCP_LINGER2: i32 = bindings::TCP_LINGER2 as i32;
const TCP_DEFER_ACCEPT: i32 = bindings::TCP_DEFER_ACCEPT as i32;
const TCP_WINDOW_CLAMP: i32 = bindings::TCP_WINDOW_CLAMP as i32;
const TCP_NOTSENT_LOWAT: i32 = bindings::TCP_NOTSENT_LOWAT as i32;
const TCP_INQ: i32 = bindings::TCP_INQ as i32;
const TCP_MAXSEG: i32 = bindings::TCP_MAXSEG as i32;
const TCP_FASTOPEN: i32 = bindings::TCP_FASTOPEN as i32;
const TCP_FASTOPEN_CONNECT: i32 = bindings::TCP_FASTOPEN_CONNECT as i32;
const TCP_FASTOPEN_NO_COOKIE: i32 = bindings::TCP_FASTOPEN_NO_COOKIE as i32;
pub(crate) const TCP_FASTOPEN_KEY: i32 = bindings::TCP_FASTOPEN_KEY as i32;

/// The maximum of TCP_SYNCNT in TCP (`MAX_TCP_SYNCNT`).
const MAX_SYN_RETRIES: i32 = 127;
/// The minimum to which TCP raises a TCP_WINDOW_CLAMP (`SOCK_MIN_RCVBUF / 2`).
const MIN_WINDOW_CLAMP: i32 = bindings::SDP_CONST_SOCK_MIN_RCVBUF / 2;

/// The range of TCP_MAXSEG in TCP.
const MIN_MAXSEG: i32 = 88;
const MAX_MAXSEG: i32 = 32767;

/// Sets an option.
///
/// # Errors
///
/// `ENOPROTOOPT` for an unknown option, `EINVAL` for a bad length or value or in a wrong state,
/// `EPERM` or `EOPNOTSUPP` if the administrator has not allowed the value; the error of `value`,
/// after the error of a bad length.
pub(crate) fn set(sock: &SdpSock, name: i32, value: Result<&[u8]>, len: u32) -> Result {
    if name == TCP_FASTOPEN_KEY {
        return set_keys(sock, value, len);
    }
    if (len as usize) < size_of::<i32>() {
        return Err(EINVAL);
    }
    let bytes = value?;
    if name == SDP_TCP_INSTEAD {
        return set_tcp_instead(sock, bytes);
    }
    let value = bytes.first_chunk().ok_or(EINVAL)?;
    let value = i32::from_ne_bytes(*value);
    if name == SDP_LISTEN_TCP {
        return set_listen_tcp(sock, value);
    }
    let mut guard = sock.lock();
    let net = guard.sk().net();
    let is_closed = guard.sk().state() == bindings::TCP_CLOSE as u8;
    let is_unconnected = is_unconnected(sock);
    let options = &mut guard.conn().options;
    match name {
        TCP_NODELAY => options.nodelay = value != 0,
        TCP_CORK => options.cork = value != 0,
        TCP_KEEPIDLE => options.keepidle_s = within(value, 1..=MAX_KEEP_S)?,
        TCP_KEEPINTVL => options.keepintvl_s = within(value, 1..=MAX_KEEP_S)?,
        TCP_KEEPCNT => options.keepcnt = within(value, 1..=MAX_KEEP_COUNT)?,
        TCP_USER_TIMEOUT if value >= 0 => options.user_timeout_ms = value,
        TCP_USER_TIMEOUT => return Err(EINVAL),
        TCP_SYNCNT => options.syn_retries = within(value, 1..=MAX_SYN_RETRIES)?,
        TCP_LINGER2 => options.set_linger2(value),
        TCP_DEFER_ACCEPT => options.defer_accept = Timeouts::lasting(value),
        TCP_WINDOW_CLAMP if value == 0 && !is_closed => return Err(EINVAL),
        TCP_WINDOW_CLAMP if value == 0 => options.window_clamp = 0,
        TCP_WINDOW_CLAMP => options.window_clamp = value.max(MIN_WINDOW_CLAMP),
        SDP_ZCOPY_THRESH if value >= params::ADAPTERS => options.zcopy_thresh_bytes = value,
        SDP_ZCOPY_THRESH => return Err(EINVAL),
        SDP_ZCOPY_MODE => options.wanted = Wanted::from_number(value).ok_or(EINVAL)?,
        SDP_FAULT_POLICY if value == 1 && !params::may_hold_up() => return Err(EPERM),
        SDP_FAULT_POLICY => options.blocks = flag(value)?,
        TCP_NOTSENT_LOWAT => sock.glance.notsent_lowat.set(value as u32),
        TCP_INQ => sock.glance.tells_unread.set(flag(value)?),
        TCP_FASTOPEN if value < 0 || !is_unconnected => return Err(EINVAL),
        TCP_FASTOPEN => options.fast_open.queue = value.min(net.somaxconn()),
        TCP_FASTOPEN_CONNECT => {
            let value = flag(value)?;
            if !net.may_fast_open() {
                return Err(EOPNOTSUPP);
            }
            if !is_closed {
                return Err(EINVAL);
            }
            options.fast_open.connect = value;
        }
        TCP_FASTOPEN_NO_COOKIE if !is_unconnected => return Err(EINVAL),
        TCP_FASTOPEN_NO_COOKIE => options.fast_open.no_cookie = flag(value)?,
        TCP_QUICKACK => options.quickack = value != 0,
        TCP_MAXSEG if value == 0 => options.maxseg_bytes = 0,
        TCP_MAXSEG => options.maxseg_bytes = within(value, MIN_MAXSEG..=MAX_MAXSEG)?,
        _ => return Err(ENOPROTOOPT),
    }
    // Bytes that were held back may be due now.
    match name {
        TCP_CORK if value == 0 => close_message(&mut guard),
        TCP_NODELAY if value != 0 => push(&mut guard),
        _ => {}
    }
    if name == TCP_NOTSENT_LOWAT {
        wake_writer_if_due(&mut guard);
    }
    if name == TCP_KEEPIDLE {
        guard.keepidle_set();
    }
    // The limit also applies to bytes that already wait.
    if name == TCP_USER_TIMEOUT && guard.conn().link.is_some() {
        guard.watch_sends();
    }
    Ok(())
}

/// SDP_LISTEN_TCP: a listener also accepts the connections of a TCP socket.
///
/// # Errors
///
/// `EOPNOTSUPP` for a socket of families 27 and 28; those of [`TcpListener::of_descriptor`];
/// `EINVAL` if the socket listens; if `fd` is not -1, also if the socket is connected or connects, or
/// has become a TCP socket.
fn set_listen_tcp(sock: &SdpSock, fd: i32) -> Result {
    // Programs would get addresses of another family than that of their listener.
    if sock.sk().opened_as() != Some(sock.sk().family().into()) {
        return Err(EOPNOTSUPP);
    }
    let tcp = match fd {
        -1 => None,
        // SAFETY: setsockopt() does not use the position of a file. The socket lives longer than
        // the value: its program closes it before the last reference is dropped, and close()
        // takes the value out. Every other owner of the value is in a call on the socket.
        fd => Some(unsafe { TcpListener::of_descriptor(fd, sock.sk().family(), sock)? }),
    };
    let mut guard = sock.lock();
    // Another thread may have connected the socket since the call began. Then its file is that of a
    // TCP socket, which may listen, and which the socket must not hold: it would hold itself.
    if tcp.is_some() && guard.conn().lifetime.fell_back.is_some() {
        drop(guard);
        return Err(EINVAL);
    }
    let former = match (guard.conn().state, &tcp) {
        // A socket that connects instead of listening can still release the TCP socket.
        (State::Closed | State::Dead | State::Released, _) => sock.accepts.lock().set_tcp(tcp),
        (State::Listen, _) | (_, Some(_)) => return Err(EINVAL),
        (_, None) => sock.accepts.lock().set_tcp(None),
    };
    drop(guard);
    drop(former);
    Ok(())
}

/// SDP_TCP_INSTEAD: the program has connected a TCP socket instead of this socket.
///
/// # Errors
///
/// `EINVAL` for a bad length or errno, or if this socket listens, connects or is connected; those of
/// [`StandIns::add`].
///
/// [`StandIns::add`]: crate::inet::stand_ins::StandIns::add
fn set_tcp_instead(sock: &SdpSock, value: &[u8]) -> Result {
    let (fd, rest) = value.split_first_chunk().ok_or(EINVAL)?;
    let why = i32::from_ne_bytes(*rest.first_chunk().ok_or(EINVAL)?);
    let why = u32::try_from(why).map_err(|_| EINVAL)?;
    let is_errno = (1..=bindings::SDP_CONST_MAX_ERRNO).contains(&why);
    if !is_errno || u32::from(sock.sk().state()) != bindings::TCP_CLOSE {
        return Err(EINVAL);
    }
    let net = sock.sk().net();
    // SAFETY: setsockopt() does not use the position of a file.
    let is_new = unsafe { net.stand_ins().add(net, i32::from_ne_bytes(*fd), why)? };
    if is_new {
        sock.stats.inc(Counter::ConnectFellBack);
    }
    Ok(())
}

fn set_keys(sock: &SdpSock, value: Result<&[u8]>, len: u32) -> Result {
    let mut keys = Keys::of_len(len as usize).ok_or(EINVAL)?;
    for (to, from) in keys.bytes_mut().iter_mut().zip(value?) {
        *to = *from;
    }
    sock.lock().conn().options.fast_open.keys = keys;
    Ok(())
}

/// The value of TCP_FASTOPEN_KEY.
pub(crate) fn keys(sock: &SdpSock) -> Keys {
    sock.lock().conn().options.fast_open.keys
}

/// Whether the socket is new or closed, or listens.
fn is_unconnected(sock: &SdpSock) -> bool {
    let state = u32::from(sock.sk().state());
    state == bindings::TCP_CLOSE || state == bindings::TCP_LISTEN
}

fn flag(value: i32) -> Result<bool> {
    within(value, 0..=1).map(|value| value == 1)
}

fn within(value: i32, allowed: RangeInclusive<i32>) -> Result<i32> {
    if allowed.contains(&value) {
        Ok(value)
    } else {
        Err(EINVAL)
    }
}

/// The value of an option.
///
/// # Errors
///
/// `ENOPROTOOPT` for an unknown option.
pub(crate) fn get(sock: &SdpSock, name: i32) -> Result<i32> {
    let net = sock.sk().net();
    let mut guard = sock.lock();
    let conn = guard.conn();
    let options = &conn.options;
    Ok(match name {
        TCP_NODELAY => options.nodelay.into(),
        TCP_CORK => options.cork.into(),
        TCP_KEEPIDLE => options.keepidle_s,
        TCP_KEEPINTVL => options.keepintvl_s,
        TCP_KEEPCNT => options.keepcnt,
        TCP_USER_TIMEOUT => options.user_timeout_ms,
        TCP_SYNCNT => options.syn_retries(net),
        TCP_LINGER2 => options.fin_timeout_s(net),
        TCP_DEFER_ACCEPT => options.defer_accept.seconds(),
        TCP_WINDOW_CLAMP => options.window_clamp,
        TCP_NOTSENT_LOWAT => sock.glance.notsent_lowat.get() as i32,
        TCP_INQ => sock.glance.tells_unread.get().into(),
        TCP_FASTOPEN => options.fast_open.queue,
        TCP_FASTOPEN_CONNECT => options.fast_open.connect.into(),
        TCP_FASTOPEN_NO_COOKIE => options.fast_open.no_cookie.into(),
        TCP_QUICKACK => options.quickack.into(),
        TCP_MAXSEG if options.maxseg_bytes > 0 && is_unconnected(sock) => options.maxseg_bytes,
        TCP_MAXSEG => conn.out.segment_bytes() as i32,
        SDP_ZCOPY_THRESH => options.zcopy_thresh_bytes,
        SDP_ZCOPY_MODE => options.wanted.number(),
        SDP_FAULT_POLICY => options.blocks.into(),
        SDP_LAST_BIND_ERR => conn.port.last_bind_err,
        SDP_LISTEN_TCP => sock.accepts.lock().serves_tcp().into(),
        _ => return Err(ENOPROTOOPT),
    })
}

/// Sets SO_RCVLOWAT. A reader that waits for fewer bytes than before may already have them.
pub(crate) fn set_rcvlowat(sock: &SdpSock, bytes: i32) {
    let sk = sock.sk();
    sk.set_rcvlowat(bytes);
    let target = sk.rcvlowat(false, i32::MAX as usize);
    if sock.glance.unread.get() as usize >= target {
        sk.wake_reader();
    }
}

/// SIOCINQ, SIOCOUTQ, SIOCOUTQNSD and SIOCATMARK.
///
/// # Errors
///
/// `EINVAL` for the bytes of a listener, `ENOIOCTLCMD` for anything else.
pub(crate) fn ioctl(sock: &SdpSock, cmd: i32) -> Result<i32> {
    if cmd == bindings::SDP_CONST_SIOCATMARK {
        return Ok(urgent::is_at_mark(sock).into());
    }
    let of_bytes = matches!(
        cmd,
        bindings::SDP_CONST_SIOCINQ
            | bindings::SDP_CONST_SIOCOUTQ
            | bindings::SDP_CONST_SIOCOUTQNSD
    );
    let mut guard = sock.lock();
    if of_bytes && guard.conn().state == State::Listen {
        return Err(EINVAL);
    }
    let inline = sock.sk().is_oob_inline();
    Ok(match cmd {
        bindings::SDP_CONST_SIOCINQ => {
            let inq = &guard.conn().inq;
            inq.urgent.readable_bytes(inq.queue.bytes(), inline) as i32
        }
        bindings::SDP_CONST_SIOCOUTQNSD => sock.glance.notsent.get() as i32,
        bindings::SDP_CONST_SIOCOUTQ => {
            // A few completions may not have been handled yet.
            poll_cq(&mut guard);
            guard.unsent_bytes() as i32
        }
        _ => return Err(ENOIOCTLCMD),
    })
}
