// SPDX-License-Identifier: GPL-2.0
//! The victim: a socket of the module, as any program may open one.

use crate::fail::{expect, Fail, Result, Step};
use std::io;
use std::net::SocketAddrV4;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::thread::sleep;
use std::time::{Duration, Instant};
use uapi::socket::{
    AF_INET_SDP, SDP_FAULT_BLOCK, SDP_FAULT_POLICY, SDP_MODE_AZCOPY, SDP_MODE_ZCOPY,
    SDP_ZCOPY_MODE, SDP_ZCOPY_THRESH,
};

/// A stream socket of the module. A call that waits fails after the limit that was set at the
/// socket's creation.
pub(crate) struct Sock(OwnedFd);

impl Sock {
    fn new(limit: Duration) -> Result<Sock> {
        // SAFETY: plain numbers.
        let fd = unsafe { libc::socket(AF_INET_SDP, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
        ok(fd, "socket")?;
        // SAFETY: the descriptor is new and ours.
        let sock = Sock(unsafe { OwnedFd::from_raw_fd(fd) });
        sock.limit_waits(limit)?;
        Ok(sock)
    }

    /// Sets the time for which send() and recv() wait.
    pub(crate) fn limit_waits(&self, limit: Duration) -> Result<()> {
        let time = libc::timeval {
            tv_sec: limit.as_secs() as i64,
            tv_usec: i64::from(limit.subsec_micros()),
        };
        for name in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
            // SAFETY: the option's value is a timeval.
            let ret = unsafe {
                libc::setsockopt(
                    self.fd(),
                    libc::SOL_SOCKET,
                    name,
                    (&raw const time).cast(),
                    size_of::<libc::timeval>() as u32,
                )
            };
            ok(ret, "setsockopt")?;
        }
        Ok(())
    }

    fn fd(&self) -> i32 {
        self.0.as_raw_fd()
    }

    pub(crate) fn listen(addr: SocketAddrV4, backlog: i32, limit: Duration) -> Result<Sock> {
        let sock = Sock::new(limit)?;
        let raw = sockaddr(addr);
        ok(
            // SAFETY: the address is valid.
            unsafe { libc::bind(sock.fd(), (&raw const raw).cast(), LEN) },
            "bind",
        )?;
        // SAFETY: plain numbers.
        ok(unsafe { libc::listen(sock.fd(), backlog) }, "listen")?;
        Ok(sock)
    }

    pub(crate) fn accept(&self, limit: Duration) -> Result<Sock> {
        // SAFETY: no address is asked for.
        let fd = unsafe { libc::accept(self.fd(), std::ptr::null_mut(), std::ptr::null_mut()) };
        ok(fd, "accept")?;
        // SAFETY: the descriptor is new and ours.
        let sock = Sock(unsafe { OwnedFd::from_raw_fd(fd) });
        sock.limit_waits(limit)?;
        Ok(sock)
    }

    /// Whether accept() would return a connection at once.
    pub(crate) fn has_connection(&self) -> Result<bool> {
        Ok(self.poll(libc::POLLIN, Duration::ZERO)? != 0)
    }

    /// Connects, and waits until the connection is made.
    pub(crate) fn connect(addr: SocketAddrV4, limit: Duration) -> Result<Sock> {
        let sock = Sock::new(limit)?;
        let raw = sockaddr(addr);
        ok(
            // SAFETY: the address is valid.
            unsafe { libc::connect(sock.fd(), (&raw const raw).cast(), LEN) },
            "connect",
        )?;
        Ok(sock)
    }

    /// Starts to connect. From then on, the socket is non-blocking.
    pub(crate) fn start_connect(addr: SocketAddrV4) -> Result<Sock> {
        let sock = Sock::new(Duration::from_secs(1))?;
        sock.set_nonblocking(true)?;
        let raw = sockaddr(addr);
        // SAFETY: the address is valid.
        let ret = unsafe { libc::connect(sock.fd(), (&raw const raw).cast(), LEN) };
        let e = io::Error::last_os_error();
        expect(
            ret != 0 && e.raw_os_error() == Some(libc::EINPROGRESS),
            || format!("connect() without waiting: {ret}, {e}"),
        )?;
        Ok(sock)
    }

    fn set_nonblocking(&self, on: bool) -> Result<()> {
        let flags = if on { libc::O_NONBLOCK } else { 0 };
        ok(
            // SAFETY: plain numbers.
            unsafe { libc::fcntl(self.fd(), libc::F_SETFL, flags) },
            "fcntl",
        )
    }

    /// Waits for the end of [`Sock::start_connect`]; returns its errno or 0, and makes the socket
    /// blocking.
    pub(crate) fn end_connect(&self, limit: Duration) -> Result<i32> {
        let events = self.poll(libc::POLLOUT, limit)?;
        expect(events != 0, || {
            format!("connect() has not ended after {limit:?}")
        })?;
        self.set_nonblocking(false)?;
        self.limit_waits(limit)?;
        self.so_error()
    }

    /// Whether a started connect() has not ended.
    pub(crate) fn is_connecting(&self) -> Result<bool> {
        Ok(self.poll(libc::POLLOUT, Duration::ZERO)? == 0)
    }

    fn poll(&self, events: i16, limit: Duration) -> Result<i16> {
        let mut entry = libc::pollfd {
            fd: self.fd(),
            events,
            revents: 0,
        };
        let ms = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: one valid entry.
        ok(unsafe { libc::poll(&mut entry, 1, ms) }, "poll")?;
        Ok(entry.revents)
    }

    /// The number of bytes that the posted receives take, including received bytes that were not
    /// read.
    pub(crate) fn receive_memory(&self) -> Result<u32> {
        // The values of SK_MEMINFO_*.
        let mut values = [0u32; 9];
        let mut len = size_of_val(&values) as u32;
        // SAFETY: the values have `len` bytes.
        let ret = unsafe {
            libc::getsockopt(
                self.fd(),
                libc::SOL_SOCKET,
                libc::SO_MEMINFO,
                values.as_mut_ptr().cast(),
                &mut len,
            )
        };
        ok(ret, "getsockopt")?;
        Ok(values[0])
    }

    fn so_error(&self) -> Result<i32> {
        let mut value = 0i32;
        let mut len = size_of::<i32>() as u32;
        // SAFETY: the value is an int.
        let ret = unsafe {
            libc::getsockopt(
                self.fd(),
                libc::SOL_SOCKET,
                libc::SO_ERROR,
                (&raw mut value).cast(),
                &mut len,
            )
        };
        ok(ret, "getsockopt")?;
        Ok(value)
    }

    /// Waits until the socket has an error, and takes it.
    pub(crate) fn await_error(&self, limit: Duration) -> Result<i32> {
        let end = Instant::now() + limit;
        loop {
            let errno = self.so_error()?;
            if errno != 0 {
                return Ok(errno);
            }
            expect(Instant::now() < end, || {
                format!("the socket had no error for {limit:?}")
            })?;
            // Wait only briefly here, and sleep as well: poll() also returns when both halves are
            // closed, which is not an error.
            self.poll(0, Duration::from_millis(100))?;
            sleep(Duration::from_millis(1));
        }
    }

    /// For this many seconds, a connection is available to accept() only if its first byte has
    /// arrived.
    pub(crate) fn defer_accept(&self, seconds: i32) -> Result<()> {
        self.set_option(libc::TCP_DEFER_ACCEPT, seconds)
    }

    /// Sends of at least this many bytes go without a copy, and wait for the peer.
    pub(crate) fn set_zcopy_threshold(&self, bytes: i32) -> Result<()> {
        self.set_option(SDP_ZCOPY_THRESH, bytes)?;
        self.set_option(SDP_ZCOPY_MODE, SDP_MODE_ZCOPY)
    }

    /// Sends and receives of at least this many bytes go without a copy, and return before the
    /// bytes are sent or have arrived.
    pub(crate) fn set_early_threshold(&self, bytes: i32) -> Result<()> {
        self.set_option(SDP_ZCOPY_THRESH, bytes)?;
        self.set_option(SDP_ZCOPY_MODE, SDP_MODE_AZCOPY)
    }

    /// Threads that write to memory in flight have to wait.
    pub(crate) fn block_writers(&self) -> Result<()> {
        self.set_option(SDP_FAULT_POLICY, SDP_FAULT_BLOCK)
    }

    /// The module chooses the way of sends and receives of at least this many bytes.
    pub(crate) fn set_automatic_threshold(&self, bytes: i32) -> Result<()> {
        self.set_option(SDP_ZCOPY_THRESH, bytes)
    }

    fn set_option(&self, name: i32, value: i32) -> Result<()> {
        // SAFETY: the option's value is an integer.
        let ret = unsafe {
            libc::setsockopt(
                self.fd(),
                libc::IPPROTO_TCP,
                name,
                (&raw const value).cast(),
                size_of::<i32>() as u32,
            )
        };
        ok(ret, "setsockopt")
    }

    pub(crate) fn send(&self, bytes: &[u8]) -> Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let n = self.send_some(rest).step("send")?;
            rest = rest.get(n..).unwrap_or(&[]);
        }
        Ok(())
    }

    /// One call of send().
    pub(crate) fn send_some(&self, bytes: &[u8]) -> io::Result<usize> {
        // SAFETY: the buffer is valid.
        let n = unsafe {
            libc::send(
                self.fd(),
                bytes.as_ptr().cast(),
                bytes.len(),
                libc::MSG_NOSIGNAL,
            )
        };
        usize::try_from(n).map_err(|_| io::Error::last_os_error())
    }

    /// One call of send() whose last byte is urgent.
    pub(crate) fn urge(&self, bytes: &[u8]) -> Result<()> {
        let flags = libc::MSG_OOB | libc::MSG_NOSIGNAL;
        // SAFETY: the buffer is valid.
        let n = unsafe { libc::send(self.fd(), bytes.as_ptr().cast(), bytes.len(), flags) };
        expect(n == bytes.len() as isize, || {
            format!("send() with MSG_OOB: {n}, {}", io::Error::last_os_error())
        })
    }

    /// The urgent byte; `None` if there will be none.
    pub(crate) fn urgent_byte(&self) -> io::Result<Option<u8>> {
        let mut byte = 0u8;
        // SAFETY: there is room for one byte.
        let n = unsafe { libc::recv(self.fd(), (&raw mut byte).cast(), 1, libc::MSG_OOB) };
        match n {
            0 => Ok(None),
            1 => Ok(Some(byte)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Whether the urgent byte has arrived and was not read.
    pub(crate) fn is_urgent(&self) -> Result<bool> {
        Ok(self.poll(libc::POLLPRI, Duration::ZERO)? & libc::POLLPRI != 0)
    }

    /// Whether the urgent byte is the next byte of the stream.
    pub(crate) fn is_at_mark(&self) -> Result<bool> {
        const SIOCATMARK: u64 = 0x8905;
        let mut value = 0i32;
        // SAFETY: the request writes an int.
        let ret = unsafe { libc::ioctl(self.fd(), SIOCATMARK as _, &raw mut value) };
        ok(ret, "SIOCATMARK")?;
        Ok(value != 0)
    }

    /// One call of send() from an address.
    pub(crate) fn send_at(&self, addr: usize, len: usize) -> io::Result<usize> {
        let from = addr as *const libc::c_void;
        // SAFETY: the kernel checks the address and only reads from it.
        let n = unsafe { libc::send(self.fd(), from, len, libc::MSG_NOSIGNAL) };
        usize::try_from(n).map_err(|_| io::Error::last_os_error())
    }

    /// One call of recv().
    pub(crate) fn recv_some(&self, into: &mut [u8]) -> io::Result<usize> {
        // SAFETY: the buffer is valid.
        let n = unsafe { libc::recv(self.fd(), into.as_mut_ptr().cast(), into.len(), 0) };
        usize::try_from(n).map_err(|_| io::Error::last_os_error())
    }

    /// One call of recv() to an address.
    pub(crate) fn recv_at(&self, addr: usize, len: usize) -> io::Result<usize> {
        // SAFETY: the kernel checks the address; nothing else uses the memory there.
        let n = unsafe { libc::recv(self.fd(), addr as *mut libc::c_void, len, 0) };
        usize::try_from(n).map_err(|_| io::Error::last_os_error())
    }

    /// Receives exactly this many bytes.
    pub(crate) fn recv(&self, len: usize) -> Result<Vec<u8>> {
        let mut out = vec![0; len];
        let mut got = 0;
        while got < len {
            let n = self.recv_some(&mut out[got..]).step("recv")?;
            expect(n > 0, || {
                format!("the stream ended after {got} of {len} bytes")
            })?;
            got += n;
        }
        Ok(out)
    }

    /// Closes the half that sends.
    pub(crate) fn shutdown(&self) -> Result<()> {
        ok(
            // SAFETY: plain numbers.
            unsafe { libc::shutdown(self.fd(), libc::SHUT_WR) },
            "shutdown",
        )
    }

    /// Waits for the end of the stream; fails if a byte arrives first.
    pub(crate) fn expect_end(&self) -> Result<()> {
        let n = self.recv_some(&mut [0]).step("recv")?;
        expect(n == 0, || {
            "a byte came where the stream must end".to_owned()
        })
    }
}

const LEN: u32 = size_of::<libc::sockaddr_in>() as u32;

fn sockaddr(addr: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: AF_INET_SDP as u16,
        sin_port: addr.port().to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from_ne_bytes(addr.ip().octets()),
        },
        sin_zero: [0; 8],
    }
}

fn ok(ret: i32, what: &str) -> Result<()> {
    if ret < 0 {
        Err(Fail::new(format!("{what}: {}", io::Error::last_os_error())))
    } else {
        Ok(())
    }
}
