// SPDX-License-Identifier: GPL-2.0

//! Socket system calls that the library needs, and the next library's versions of the intercepted
//! functions.

use std::ffi::{
    c_int,
    c_void,
    CStr, //
};
use std::io;
use std::mem::{
    size_of,
    transmute,
    zeroed, //
};
use std::net::{
    IpAddr,
    Ipv4Addr,
    Ipv6Addr,
    SocketAddr, //
};
use std::os::fd::{
    FromRawFd,
    OwnedFd,
    RawFd, //
};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::time::{
    Duration,
    Instant, //
};

use libc::{
    epoll_event,
    sockaddr,
    socklen_t, //
};

/// The functions that this library intercepts.
pub(crate) struct Real {
    pub(crate) bind: unsafe extern "C" fn(c_int, *const sockaddr, socklen_t) -> c_int,
    pub(crate) connect: unsafe extern "C" fn(c_int, *const sockaddr, socklen_t) -> c_int,
    pub(crate) listen: unsafe extern "C" fn(c_int, c_int) -> c_int,
    pub(crate) getsockopt:
        unsafe extern "C" fn(c_int, c_int, c_int, *mut c_void, *mut socklen_t) -> c_int,
    pub(crate) setsockopt:
        unsafe extern "C" fn(c_int, c_int, c_int, *const c_void, socklen_t) -> c_int,
    pub(crate) epoll_ctl: unsafe extern "C" fn(c_int, c_int, c_int, *mut epoll_event) -> c_int,
}

static REAL: OnceLock<Real> = OnceLock::new();

fn next(name: &CStr) -> *mut c_void {
    // SAFETY: The name is a string.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if found.is_null() {
        // The program cannot continue without the function. Every C library has it.
        std::process::abort();
    }
    found
}

/// The functions that the program would use without this library.
pub(crate) fn real() -> &'static Real {
    REAL.get_or_init(|| {
        // SAFETY: These are the types of the C library's functions, and `next` gives no null.
        unsafe {
            Real {
                bind: transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(c_int, *const sockaddr, socklen_t) -> c_int,
                >(next(c"bind")),
                connect: transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(c_int, *const sockaddr, socklen_t) -> c_int,
                >(next(c"connect")),
                listen: transmute::<*mut c_void, unsafe extern "C" fn(c_int, c_int) -> c_int>(
                    next(c"listen"),
                ),
                getsockopt: transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(c_int, c_int, c_int, *mut c_void, *mut socklen_t) -> c_int,
                >(next(c"getsockopt")),
                setsockopt: transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(c_int, c_int, c_int, *const c_void, socklen_t) -> c_int,
                >(next(c"setsockopt")),
                epoll_ctl: transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(c_int, c_int, c_int, *mut epoll_event) -> c_int,
                >(next(c"epoll_ctl")),
            }
        }
    })
}

/// Converts the result of a system call.
pub(crate) fn result(ret: c_int) -> io::Result<c_int> {
    match ret {
        -1 => Err(io::Error::last_os_error()),
        ret => Ok(ret),
    }
}

/// Converts a result for the program: -1 and errno, or the value with errno restored.
pub(crate) fn answer(result: io::Result<c_int>, errno_before: c_int) -> c_int {
    let (ret, errno) = match result {
        Ok(ret) => (ret, errno_before),
        Err(e) => (-1, e.raw_os_error().unwrap_or(libc::EIO)),
    };
    // SAFETY: It points to this thread's errno.
    unsafe { *libc::__errno_location() = errno };
    ret
}

pub(crate) fn errno() -> c_int {
    // SAFETY: It points to this thread's errno.
    unsafe { *libc::__errno_location() }
}

/// The identity of a descriptor's file, to detect that the descriptor was reused.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct File {
    device: u64,
    inode: u64,
}

impl File {
    pub(crate) fn of(fd: RawFd) -> io::Result<Self> {
        // SAFETY: All zeros are a valid value, which is overwritten if the call succeeds.
        let stat = unsafe {
            let mut stat: libc::stat = zeroed();
            result(libc::fstat(fd, &raw mut stat))?;
            stat
        };
        let (device, inode) = (stat.st_dev, stat.st_ino);
        Ok(Self { device, inode })
    }
}

/// Opens a stream socket with FD_CLOEXEC.
pub(crate) fn open(family: c_int) -> io::Result<OwnedFd> {
    open_by(family, 0)
}

/// As [`open`], with a protocol.
pub(crate) fn open_by(family: c_int, protocol: c_int) -> io::Result<OwnedFd> {
    open_with(family, 0, protocol)
}

/// As [`open`], with O_NONBLOCK.
pub(crate) fn open_nonblocking(family: c_int) -> io::Result<OwnedFd> {
    open_with(family, libc::SOCK_NONBLOCK, 0)
}

fn open_with(family: c_int, flags: c_int, protocol: c_int) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | flags;
    // SAFETY: No other code owns the new descriptor.
    unsafe {
        let fd = libc::socket(family, kind, protocol);
        result(fd).map(|fd| OwnedFd::from_raw_fd(fd))
    }
}

/// Larger than each option that is copied. SDP refuses extension headers whatever they contain.
const OPTION_BYTES: usize = 64;

/// The value of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Value {
    bytes: [u8; OPTION_BYTES],
    len: usize,
}

impl Value {
    /// For IP_LOCAL_PORT_RANGE: the lowest port in the lower half, the highest in the upper half.
    pub(crate) fn of_ports(low: u16, high: u16) -> Self {
        Self::of(((u32::from(high) << 16) | u32::from(low)) as c_int)
    }

    pub(crate) fn of(number: c_int) -> Self {
        Self::of_two(number, 0).with_len(size_of::<c_int>())
    }

    pub(crate) fn of_two(first: c_int, second: c_int) -> Self {
        let mut bytes = [0; OPTION_BYTES];
        let (to_first, rest) = bytes.split_at_mut(size_of::<c_int>());
        to_first.copy_from_slice(&first.to_ne_bytes());
        rest[..size_of::<c_int>()].copy_from_slice(&second.to_ne_bytes());
        let len = 2 * size_of::<c_int>();
        Self { bytes, len }
    }

    fn with_len(self, len: usize) -> Self {
        Self { len, ..self }
    }

    pub(crate) fn first(&self) -> Option<u8> {
        self.bytes.get(..self.len)?.first().copied()
    }

    pub(crate) fn number(&self) -> Option<c_int> {
        let bytes = self.bytes.get(..self.len)?;
        Some(c_int::from_ne_bytes(bytes.try_into().ok()?))
    }
}

pub(crate) fn get(fd: RawFd, level: c_int, name: c_int) -> io::Result<Value> {
    let mut bytes = [0u8; OPTION_BYTES];
    let mut len = OPTION_BYTES as socklen_t;
    let to = bytes.as_mut_ptr().cast();
    // SAFETY: The buffer has `len` bytes.
    result(unsafe { (real().getsockopt)(fd, level, name, to, &raw mut len) })?;
    let len = (len as usize).min(OPTION_BYTES);
    Ok(Value { bytes, len })
}

/// The cookie of the socket's network namespace.
pub(crate) fn netns_cookie(fd: RawFd) -> io::Result<u64> {
    // asm-generic/socket.h. The kernel refuses any other length than that of the cookie.
    const SO_NETNS_COOKIE: c_int = 71;
    let mut cookie = 0_u64;
    let mut len = size_of::<u64>() as socklen_t;
    let to = (&raw mut cookie).cast();
    // SAFETY: The cookie has `len` bytes.
    result(unsafe {
        (real().getsockopt)(fd, libc::SOL_SOCKET, SO_NETNS_COOKIE, to, &raw mut len)
    })?;
    Ok(cookie)
}

pub(crate) fn set(fd: RawFd, level: c_int, name: c_int, value: &Value) -> io::Result<()> {
    let len = value.len as socklen_t;
    let from = value.bytes.as_ptr().cast();
    // SAFETY: The value has `len` bytes.
    let ret = unsafe { (real().setsockopt)(fd, level, name, from, len) };
    result(ret).map(drop)
}

/// Whether packets to the socket pass a filter (socket(7), SO_ATTACH_FILTER).
pub(crate) fn has_filter(fd: RawFd) -> bool {
    // linux/socket.h: SO_GET_FILTER. The length counts instructions: with 0, the call tells how many
    // there are.
    let name = libc::SO_ATTACH_FILTER;
    let mut len: socklen_t = 0;
    // SAFETY: The buffer has no bytes.
    let ret = unsafe { (real().getsockopt)(fd, libc::SOL_SOCKET, name, null_mut(), &raw mut len) };
    // A filter in eBPF cannot be read.
    let is_ebpf = || errno() == libc::EACCES;
    (ret == 0 && len > 0) || (ret == -1 && is_ebpf())
}

/// Whether the socket has a flag of open(2).
pub(crate) fn has_flag(fd: RawFd, flag: c_int) -> bool {
    // SAFETY: The command returns an integer.
    let flags = result(unsafe { libc::fcntl(fd, libc::F_GETFL) });
    flags.is_ok_and(|flags| flags & flag != 0)
}

/// The process or thread that gets the signals of a socket, as fcntl(2) has it (F_SETOWN_EX).
#[repr(C)]
pub(crate) struct Owner {
    kind: c_int,
    pub(crate) pid: libc::pid_t,
}

impl Owner {
    const F_SETOWN_EX: c_int = 15;
    const F_GETOWN_EX: c_int = 16;

    pub(crate) fn of(fd: RawFd) -> io::Result<Self> {
        let mut owner = Self { kind: 0, pid: 0 };
        // SAFETY: The command writes such a value.
        result(unsafe { libc::fcntl(fd, Self::F_GETOWN_EX, &raw mut owner) })?;
        Ok(owner)
    }

    pub(crate) fn set(&self, fd: RawFd) -> io::Result<()> {
        // SAFETY: The command reads such a value.
        result(unsafe { libc::fcntl(fd, Self::F_SETOWN_EX, &raw const *self) }).map(drop)
    }
}

/// The bind() of the C library.
pub(crate) fn bind(fd: RawFd, addr: &RawAddr) -> io::Result<()> {
    // SAFETY: The address has that length.
    result(unsafe { (real().bind)(fd, addr.as_ptr(), addr.len()) }).map(drop)
}

/// The connect() of the C library.
pub(crate) fn connect(fd: RawFd, addr: &RawAddr) -> io::Result<c_int> {
    // SAFETY: The address has that length.
    result(unsafe { (real().connect)(fd, addr.as_ptr(), addr.len()) })
}

/// Waits, at most for this time, until a connection is established or has failed.
///
/// # Errors
///
/// That of the connection; `EINPROGRESS` after the time.
pub(crate) fn decided(fd: RawFd, wait_ms: u64) -> io::Result<c_int> {
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLOUT,
        revents: 0,
    };
    let end = Instant::now() + Duration::from_millis(wait_ms);
    loop {
        let left = end.saturating_duration_since(Instant::now()).as_millis();
        // SAFETY: `poll` is one entry.
        match unsafe { libc::poll(&raw mut poll, 1, left as c_int) } {
            1 => break,
            -1 if errno() == libc::EINTR => {}
            _ => return Err(io::Error::from_raw_os_error(libc::EINPROGRESS)),
        }
    }
    let error = get(fd, libc::SOL_SOCKET, libc::SO_ERROR)?.number();
    match error.unwrap_or(libc::EIO) {
        0 => Ok(0),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// A socket address in the kernel's format.
#[derive(Clone)]
pub(crate) struct RawAddr {
    storage: libc::sockaddr_storage,
    len: socklen_t,
}

impl RawAddr {
    /// The address that a program passes, if it is an IPv4 or IPv6 address.
    ///
    /// # Safety
    ///
    /// `addr` is null or points to `len` bytes.
    pub(crate) unsafe fn read(addr: *const sockaddr, len: socklen_t) -> Option<Self> {
        // SAFETY: All zeros are a valid address of family AF_UNSPEC.
        let mut storage: libc::sockaddr_storage = unsafe { zeroed() };
        if addr.is_null() || len as usize > size_of::<libc::sockaddr_storage>() {
            return None;
        }
        // SAFETY: The caller guarantees the source, and the storage is at least as long.
        unsafe {
            let to = (&raw mut storage).cast::<u8>();
            to.copy_from_nonoverlapping(addr.cast(), len as usize);
        }
        Some(Self { storage, len })
    }

    /// The local address of a socket.
    pub(crate) fn local(fd: RawFd) -> io::Result<Self> {
        // SAFETY: All zeros are a valid address of family AF_UNSPEC.
        let mut storage: libc::sockaddr_storage = unsafe { zeroed() };
        let mut len = size_of::<libc::sockaddr_storage>() as socklen_t;
        // SAFETY: The storage has `len` bytes.
        result(unsafe { libc::getsockname(fd, (&raw mut storage).cast(), &raw mut len) })?;
        Ok(Self { storage, len })
    }

    /// The address with another port; unchanged for other families.
    pub(crate) fn with_port(&self, port: u16) -> Self {
        let mut storage = self.storage;
        let at = &raw mut storage;
        if matches!(self.family(), libc::AF_INET | libc::AF_INET6) {
            // SAFETY: The port has the same offset in both families, and a storage is aligned for
            // both.
            unsafe { (*at.cast::<libc::sockaddr_in>()).sin_port = port.to_be() };
        }
        let len = self.len;
        Self { storage, len }
    }

    pub(crate) fn family(&self) -> c_int {
        self.storage.ss_family.into()
    }

    pub(crate) fn as_ptr(&self) -> *const sockaddr {
        (&raw const self.storage).cast()
    }

    pub(crate) fn len(&self) -> socklen_t {
        self.len
    }

    /// `None` for other families, or if the address is too short.
    pub(crate) fn parse(&self) -> Option<SocketAddr> {
        let at = &raw const self.storage;
        let len = self.len as usize;
        match c_int::from(self.storage.ss_family) {
            libc::AF_INET if len >= size_of::<libc::sockaddr_in>() => {
                // SAFETY: The address is of that family, and a storage is aligned for it.
                let sin = unsafe { &*at.cast::<libc::sockaddr_in>() };
                let ip = Ipv4Addr::from_bits(u32::from_be(sin.sin_addr.s_addr));
                Some((IpAddr::V4(ip), u16::from_be(sin.sin_port)).into())
            }
            libc::AF_INET6 if len >= size_of::<libc::sockaddr_in6>() => {
                // SAFETY: As above.
                let sin6 = unsafe { &*at.cast::<libc::sockaddr_in6>() };
                let ip = Ipv6Addr::from(sin6.sin6_addr.s6_addr);
                Some((ip.to_canonical(), u16::from_be(sin6.sin6_port)).into())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_socket_has_the_cookie_of_its_namespace() {
        let socks = [libc::AF_INET, libc::AF_INET6].map(|family| open(family).unwrap());
        let cookies = socks.map(|sock| netns_cookie(sock.as_raw_fd()).unwrap());
        assert_eq!(cookies[0], cookies[1]);
    }
}
