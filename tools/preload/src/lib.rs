// SPDX-License-Identifier: GPL-2.0

//! `libsdp.so`: replaces a program's TCP sockets by SDP sockets, for `sdpctl run`.
//!
//! A socket stays a TCP socket until the program calls connect() or listen(): then the rules select
//! TCP or SDP. If the rules select SDP, an SDP socket gets the options, the flags and the
//! address of the program's socket, and replaces it at its descriptor. bind() checks whether a
//! server could have the port with SDP as well. Besides these functions, epoll_ctl(), setsockopt()
//! and getsockopt() are intercepted, the latter for reports to the user. Sockets that are not fresh TCP
//! sockets or match no rule are passed on unchanged.

mod config;
mod failed;
mod noted;
mod sock;
mod twin;
mod watched;

use std::ffi::{
    c_int,
    c_void, //
};
use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::atomic::{
    AtomicBool,
    Ordering, //
};

use libc::{
    epoll_event,
    sockaddr,
    socklen_t, //
};

use crate::config::Config;
use crate::failed::Kind;
use crate::noted::noted;
use crate::sock::{
    File,
    RawAddr, //
};
use crate::twin::Twin;
use rules::{
    Role,
    Transport, //
};

/// Time-out of a connection of a non-blocking socket that a rule permits to fall back to TCP.
const BOTH_WAIT_MS: u64 = 5000;
/// Has a folder for each RDMA device.
const DEVICES: &str = "/sys/class/infiniband";

/// Whether there was a device when the library was loaded. Later the program may be in a chroot
/// without /sys.
static HAD_DEVICES: AtomicBool = AtomicBool::new(false);

/// Called when the library is loaded.
#[cfg(not(test))]
#[used]
#[link_section = ".init_array"]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn prepare() {
        HAD_DEVICES.store(sees_devices(), Ordering::Relaxed);
        noted::lock_during_forks();
    }
    prepare
};

fn has_devices() -> bool {
    HAD_DEVICES.load(Ordering::Relaxed) || sees_devices()
}

fn sees_devices() -> bool {
    std::fs::read_dir(DEVICES).is_ok_and(|mut devices| devices.next().is_some())
}

/// bind(2).
///
/// # Safety
///
/// As for the C library's.
#[cfg_attr(not(test), no_mangle)]
pub unsafe extern "C" fn bind(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
    let before = sock::errno();
    // SAFETY: The caller passes a valid address.
    let at = unsafe { address_of_fresh(fd, addr, len) };
    // SAFETY: The caller's arguments, unchanged.
    let real = || unsafe { (sock::real().bind)(fd, addr, len) };
    let ret = match &at {
        Some((family, raw, at)) if at.port() == 0 => {
            let bound = bind_to_free_port(fd, *family, raw, at, || sock::result(real()).map(drop));
            sock::answer(Ok(0), before);
            if bound {
                0
            } else {
                real()
            }
        }
        Some((family, raw, at)) if is_taken(fd, *family, raw, at) => {
            let e = io::Error::from_raw_os_error(libc::EADDRINUSE);
            return sock::answer(Err(e), before);
        }
        _ => {
            sock::answer(Ok(0), before);
            real()
        }
    };
    if let (0, Some((_, _, at))) = (ret, &at) {
        noted().chosen_ports.note(fd, at.port() == 0);
        sock::answer(Ok(0), before);
    }
    ret
}

/// How many ports that are free for SDP are tried; each may be in use by TCP.
const PORTS_TRIED: u32 = 8;

/// Binds a socket that may become an SDP server to a port that is free for TCP and SDP. Returns
/// whether it was bound.
///
/// If TCP alone chose the port, the port could be in use by SDP, and listen() would fail, although
/// it never fails for programs that let the kernel choose.
fn bind_to_free_port(
    fd: RawFd,
    family: c_int,
    raw: &RawAddr,
    at: &SocketAddr,
    bind: impl Fn() -> io::Result<()>,
) -> bool {
    let config = config::get();
    // Their ports are in use by TCP. They keep them, so that SDP chooses other ports.
    let mut refused = Vec::new();
    for _ in 0..PORTS_TRIED {
        let serves = |port| {
            let rules = &config.rules;
            rules.decide(Role::Server, &config.program, at.ip(), port) != Transport::Tcp
        };
        let port = match has_devices().then(|| Twin::try_address(fd, family, raw)) {
            // With IP_BIND_ADDRESS_NO_PORT the kernel has not chosen a port yet.
            Some(Ok((_, port))) if port != 0 && serves(port) => port,
            _ => return false,
        };
        match twin::with_port_chosen(fd, port, &bind) {
            Ok(()) => return true,
            Err(e) if e.raw_os_error() == Some(libc::EADDRINUSE) => {
                refused.extend(Twin::try_address(fd, family, &raw.with_port(port)));
            }
            // The program's own bind() reports the error.
            Err(_) => return false,
        }
    }
    false
}

/// Whether the port that a server wants is in use by SDP. Programs expect this error from bind(),
/// not from listen().
fn is_taken(fd: RawFd, family: c_int, raw: &RawAddr, at: &SocketAddr) -> bool {
    let config = config::get();
    let serves = config
        .rules
        .decide(Role::Server, &config.program, at.ip(), at.port());
    if serves == Transport::Tcp || !has_devices() {
        return false;
    }
    let tried = Twin::try_address(fd, family, raw);
    let taken = tried.is_err_and(|e| e.raw_os_error() == Some(libc::EADDRINUSE));
    if taken {
        config.tell(|| format!("cannot bind to {at}: a socket of SDP has the port"));
    }
    taken
}

/// The family of a socket that is neither connected nor listening, and the given address if it is
/// of that family.
///
/// # Safety
///
/// `addr` is null or points to `len` bytes.
unsafe fn address_of_fresh(
    fd: RawFd,
    addr: *const sockaddr,
    len: socklen_t,
) -> Option<(c_int, RawAddr, SocketAddr)> {
    // The kernel reports the error for an invalid address.
    if addr.is_null() || (len as usize) < size_of::<libc::sockaddr_in>() {
        return None;
    }
    let family = twin::fresh(fd)?;
    // SAFETY: As above.
    let raw = unsafe { RawAddr::read(addr, len) }?;
    // The kernel reports the error for an address of another family.
    let parsed = raw.parse().filter(|_| raw.family() == family)?;
    Some((family, raw, parsed))
}

/// connect(2).
///
/// # Safety
///
/// As for the C library's.
#[cfg_attr(not(test), no_mangle)]
pub unsafe extern "C" fn connect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
    let before = sock::errno();
    // SAFETY: The caller's arguments, unchanged.
    let real = || unsafe { (sock::real().connect)(fd, addr, len) };
    // SAFETY: The caller passes a valid address.
    let Some(to) = (unsafe { addressee(fd, addr, len) }) else {
        return real();
    };
    let why = match by_sdp(fd, &to) {
        Way::Sdp(result) => return sock::answer(result, before),
        Way::Tcp { why } => why,
    };
    let is_refused = why.is_some_and(failed::is_of_peer);
    sock::answer(Ok(0), before);
    let result = sock::result(real());
    if let (None | Some(libc::EINPROGRESS | libc::EINTR), Some(why)) = (errno_of(&result), why) {
        twin::tell_module(fd, to.family, why);
    }
    match errno_of(&result) {
        None if is_refused => to.config.tell(|| {
            let at = to.at;
            format!(
                "connected to {at} by TCP: its TCP port takes connections, its SDP port does not"
            )
        }),
        Some(libc::EINPROGRESS | libc::EINTR) if !is_refused => {
            failed::expect(to.config, fd, Kind::Tcp, &to.raw);
        }
        Some(errno) if !is_refused => failed::tell(to.config, Kind::Tcp, &to.raw, errno),
        _ => {}
    }
    sock::answer(result, before)
}

/// A connection to make.
struct Addressee {
    config: &'static Config,
    /// The family of the program's socket.
    family: c_int,
    raw: RawAddr,
    at: SocketAddr,
    transport: Transport,
}

/// The connection of a fresh TCP socket; `None` for other sockets.
///
/// # Safety
///
/// `addr` is null or points to `len` bytes.
unsafe fn addressee(fd: RawFd, addr: *const sockaddr, len: socklen_t) -> Option<Addressee> {
    // SAFETY: As above.
    let (family, raw, at) = unsafe { address_of_fresh(fd, addr, len) }?;
    let config = config::get();
    let rules = &config.rules;
    let transport = rules.decide(Role::Client, &config.program, at.ip(), at.port());
    Some(Addressee {
        config,
        family,
        raw,
        at,
        transport,
    })
}

/// The way of a connection.
enum Way {
    /// By SDP, with this result for the program.
    Sdp(io::Result<c_int>),
    /// By TCP. `why`: the error of SDP, if SDP was to connect.
    Tcp { why: Option<c_int> },
}

/// Connects by SDP, unless the connection is to be made by TCP.
fn by_sdp(fd: RawFd, to: &Addressee) -> Way {
    let (config, at) = (to.config, to.at);
    let both = match to.transport {
        Transport::Tcp => {
            config.tell(|| format!("connects to {at} by TCP: a rule says so, or none fits"));
            return Way::Tcp { why: None };
        }
        transport => transport == Transport::Both && !config.require,
    };
    let instead = |e: io::Error| {
        let why = e.raw_os_error();
        match instead(config, e, || format!("connect to {at}")) {
            Some(result) => Way::Sdp(result),
            None => Way::Tcp { why },
        }
    };
    let twin = match Twin::of(fd, to.family) {
        Ok(twin) => twin,
        Err(e) => return instead(e),
    };
    let mut result = sock::connect(twin.as_raw_fd(), &to.raw);
    // A blocking connect() has already waited, as long as SO_SNDTIMEO allows.
    if both && errno_of(&result) == Some(libc::EINPROGRESS) && sock::has_flag(fd, libc::O_NONBLOCK)
    {
        result = sock::decided(twin.as_raw_fd(), BOTH_WAIT_MS);
    }
    match (errno_of(&result), result) {
        // Connected, or the connection continues in the background.
        (None | Some(libc::EINPROGRESS | libc::EINTR), result) => {
            config.tell(|| format!("connects to {at} by SDP"));
            if let Err(e) = twin.replace() {
                return Way::Sdp(Err(e));
            }
            // If the connection was complete before the replacement, the program gets no signal.
            let result = match errno_of(&result) {
                Some(libc::EINPROGRESS) if sock::has_flag(fd, libc::O_ASYNC) => {
                    sock::decided(fd, 0)
                }
                _ => result,
            };
            if matches!(errno_of(&result), Some(libc::EINPROGRESS | libc::EINTR)) {
                failed::expect(config, fd, Kind::Sdp, &to.raw);
            }
            Way::Sdp(result)
        }
        // No RDMA device leads to the peer.
        (Some(libc::ENODEV | libc::EADDRNOTAVAIL), Err(e)) => instead(e),
        (Some(errno), Err(e)) if both => {
            config.tell(|| format!("connects to {at} by TCP: SDP fails: {e}"));
            Way::Tcp { why: Some(errno) }
        }
        (Some(errno), result) => {
            failed::tell(config, Kind::Sdp, &to.raw, errno);
            Way::Sdp(result)
        }
    }
}

fn errno_of(result: &io::Result<c_int>) -> Option<c_int> {
    let e = result.as_ref().err()?;
    Some(e.raw_os_error().unwrap_or(libc::EIO))
}

/// Falls back to TCP where SDP cannot be used, unless the user wants an error in this case.
fn instead(
    config: &Config,
    e: io::Error,
    what: impl FnOnce() -> String,
) -> Option<io::Result<c_int>> {
    if config.require {
        config.tell(|| format!("cannot {} by SDP: {e}", what()));
        return Some(Err(e));
    }
    config.tell(|| format!("has to {} by TCP: {e}", what()));
    None
}

/// listen(2).
///
/// # Safety
///
/// As for the C library's.
#[cfg_attr(not(test), no_mangle)]
pub unsafe extern "C" fn listen(fd: c_int, backlog: c_int) -> c_int {
    let before = sock::errno();
    match serve(fd, backlog) {
        Some(result) => return sock::answer(result, before),
        None => sock::answer(Ok(0), before),
    };
    // SAFETY: The arguments are integers.
    unsafe { (sock::real().listen)(fd, backlog) }
}

/// Listens by SDP; `None`: listen by TCP.
fn serve(fd: RawFd, backlog: c_int) -> Option<io::Result<c_int>> {
    let family = twin::fresh(fd)?;
    let at = RawAddr::local(fd).ok()?.parse()?;
    let config = config::get();
    let rules = &config.rules;
    let transport = rules.decide(Role::Server, &config.program, at.ip(), at.port());
    if transport == Transport::Tcp {
        config.tell(|| format!("listens at {at} by TCP: a rule says so, or none fits"));
        return None;
    }
    if !has_devices() {
        // Without a device the module would listen, but no client could connect.
        let e = io::Error::from_raw_os_error(libc::ENODEV);
        return instead(config, e, || format!("listen at {at}"));
    }
    if transport == Transport::Both && !config.require {
        return serve_both(config, fd, family, &at, backlog);
    }
    let listen = || {
        if at.port() == 0 {
            bind_unbound(fd, family, &at)?;
        }
        let twin = Twin::of(fd, family)?;
        listen_for(twin.as_raw_fd(), backlog)?;
        twin.replace()
    };
    match listen() {
        Ok(()) => {
            config.tell(|| format!("listens at {at} by SDP"));
            Some(Ok(0))
        }
        // Another server has taken the port since bind().
        Err(e) if e.raw_os_error() == Some(libc::EADDRINUSE) => {
            config.tell(|| format!("cannot listen at {at} by SDP: {e}"));
            Some(Err(e))
        }
        Err(e) => instead(config, e, || format!("listen at {at}")),
    }
}

/// The listen() of the C library.
fn listen_for(fd: RawFd, backlog: c_int) -> io::Result<()> {
    // SAFETY: The arguments are integers.
    sock::result(unsafe { (sock::real().listen)(fd, backlog) }).map(drop)
}

/// Gives a socket that listens without bind() a port that is free for SDP and TCP: a later bind() to
/// the port of a closed listener would find a port that only TCP has in use. Returns whether there
/// was one; otherwise the socket stays unbound.
fn bind_unbound(fd: RawFd, family: c_int, at: &SocketAddr) -> io::Result<bool> {
    let any = RawAddr::local(fd)?;
    let is_bound = bind_to_free_port(fd, family, &any, at, || sock::bind(fd, &any));
    if is_bound {
        noted().chosen_ports.note(fd, true);
    }
    Ok(is_bound)
}

/// Listens by SDP and TCP; `None`: listen by TCP only.
fn serve_both(
    config: &Config,
    fd: RawFd,
    family: c_int,
    at: &SocketAddr,
    backlog: c_int,
) -> Option<io::Result<c_int>> {
    let listen = || {
        if at.port() == 0 && !bind_unbound(fd, family, at)? {
            sock::bind(fd, &RawAddr::local(fd)?)?;
            noted().chosen_ports.note(fd, true);
        }
        // If the TCP socket cannot listen, the caller's listen() reports the error.
        listen_for(fd, backlog)?;
        let twin = Twin::of_same_family(fd, family)?;
        twin.serve_tcp()?;
        listen_for(twin.as_raw_fd(), backlog)?;
        twin.replace()
    };
    match listen() {
        Ok(()) => {
            config.tell(|| format!("listens at {at} by SDP and TCP"));
            Some(Ok(0))
        }
        Err(e) => {
            config.tell(|| format!("listens at {at} by TCP only: {e}"));
            None
        }
    }
}

/// getsockopt(2). SO_ERROR tells the program that a connection has failed.
///
/// # Safety
///
/// As for the C library's.
#[cfg_attr(not(test), no_mangle)]
pub unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: The caller's arguments, unchanged.
    let ret = unsafe { (sock::real().getsockopt)(fd, level, name, value, len) };
    if (ret, level, name) == (0, libc::SOL_SOCKET, libc::SO_ERROR) {
        let before = sock::errno();
        // SAFETY: The call succeeded, so the kernel has written `len`, and as many bytes of the
        // value.
        let error = unsafe {
            let has_all = len.read_unaligned() as usize == size_of::<c_int>();
            has_all.then(|| value.cast::<c_int>().read_unaligned())
        };
        if let Some(error) = error {
            failed::learned(config::get(), fd, error);
        }
        sock::answer(Ok(0), before);
    }
    ret
}

/// epoll_ctl(2).
///
/// # Safety
///
/// As for the C library's.
#[cfg_attr(not(test), no_mangle)]
pub unsafe extern "C" fn epoll_ctl(
    epoll: c_int,
    op: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    let before = sock::errno();
    let file = match op {
        libc::EPOLL_CTL_ADD if twin::fresh(fd).is_some() => File::of(fd).ok(),
        libc::EPOLL_CTL_MOD => watched::file_of(epoll, fd),
        _ => None,
    };
    sock::answer(Ok(0), before);
    // SAFETY: The caller's arguments, unchanged.
    let ret = unsafe { (sock::real().epoll_ctl)(epoll, op, fd, event) };
    if ret == 0 {
        match file {
            // SAFETY: The call succeeded, so the kernel has read the event.
            Some(file) => watched::note(epoll, fd, file, unsafe { event.read_unaligned() }),
            None if op == libc::EPOLL_CTL_DEL => watched::forget(epoll, fd),
            None => {}
        }
        sock::answer(Ok(0), before);
    }
    ret
}

/// setsockopt(2). Records options that cannot be read back.
///
/// # Safety
///
/// As for the C library's.
#[cfg_attr(not(test), no_mangle)]
pub unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    // SAFETY: The caller's arguments, unchanged.
    let ret = unsafe { (sock::real().setsockopt)(fd, level, name, value, len) };
    if ret == 0 && twin::is_unreadable(level, name) {
        let before = sock::errno();
        noted().unreadable_options.note(fd, true);
        sock::answer(Ok(0), before);
    }
    ret
}
