// SPDX-License-Identifier: GPL-2.0
//! An io_uring whose requests stay pending, as in programs that do everything by io_uring.

use super::{Pages, Sock, SockAddr, PAGE};
use io_uring::{cqueue, opcode, squeue, types, IoUring};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};

/// The number of bytes of each piece of memory that the ring provides to receives.
pub(crate) const PIECE: usize = 64;
const GROUP: u16 = 7;
/// The `user_data` that belongs to no request.
const NOBODY: u64 = 0;

/// The number of a request.
pub(crate) type Request = u64;

/// A completion of a request.
#[derive(Debug)]
pub(crate) struct Told {
    request: Request,
    /// The result of the system call, or a negative errno.
    pub(crate) result: i32,
    /// Whether more completions of the request follow.
    pub(crate) more: bool,
    /// The bytes that a receive has stored in its piece.
    pub(crate) bytes: Vec<u8>,
}

impl Told {
    /// The result, in the form of the result of a system call.
    pub(crate) fn ok(&self) -> io::Result<i32> {
        match self.result {
            errno @ ..0 => Err(io::Error::from_raw_os_error(-errno)),
            value => Ok(value),
        }
    }

    /// The socket that the request has created.
    pub(crate) fn sock(&self) -> io::Result<Sock> {
        let fd = self.ok()?;
        // SAFETY: the kernel has just created this descriptor for the request, and only the first
        // reader of the completion calls this function.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) }.into())
    }
}

/// An io_uring with memory for the bytes that are received and sent.
pub(crate) struct Ring {
    ring: IoUring,
    received: Pages,
    sent: Pages,
    last: Request,
    /// The completions that have arrived and have not been asked for.
    told: Vec<Told>,
}

impl Ring {
    /// Creates a ring; returns `None` if the kernel has no io_uring, or does not allow it for this
    /// process.
    pub(crate) fn new() -> io::Result<Option<Ring>> {
        // The completion queue has more entries than there are pieces, because a multishot request
        // ends when the queue is full.
        let ring = match IoUring::builder().setup_cqsize(256).build(16) {
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
                return Ok(None)
            }
            ring => ring?,
        };
        let mut ring = Ring {
            ring,
            received: Pages::new(PAGE, false)?,
            sent: Pages::new(PAGE, false)?,
            last: NOBODY,
            told: Vec::new(),
        };
        let pieces = (PAGE / PIECE) as u16;
        let at = ring.received.at(0) as *mut u8;
        let provide = opcode::ProvideBuffers::new(at, PIECE as i32, pieces, GROUP, 0).build();
        // SAFETY: the memory is never unmapped, and there are no references to it.
        let request = unsafe { ring.start(provide)? };
        ring.next(request)?.ok()?;
        Ok(Some(ring))
    }

    /// # Safety
    ///
    /// The memory that the request names must stay, without references to it, until the request has
    /// ended. The memory of addresses and times must stay until the call returns, because the
    /// kernel copies them at once.
    unsafe fn start(&mut self, entry: squeue::Entry) -> io::Result<Request> {
        self.last += 1;
        // SAFETY: by the caller's promise.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(self.last)) };
        pushed.map_err(io::Error::other)?;
        self.ring.submit()?;
        Ok(self.last)
    }

    /// socket().
    pub(crate) fn socket(&mut self, domain: i32, protocol: i32) -> io::Result<Sock> {
        let socket = opcode::Socket::new(domain, libc::SOCK_STREAM, protocol).build();
        // SAFETY: plain numbers.
        let request = unsafe { self.start(socket)? };
        self.next(request)?.sock()
    }

    /// bind().
    pub(crate) fn bind(&mut self, sock: &Sock, addr: &SockAddr) -> io::Result<i32> {
        let bind = opcode::Bind::new(fd(sock), addr.as_ptr(), addr.len() as u32).build();
        // SAFETY: the address lives in `addr`.
        let request = unsafe { self.start(bind)? };
        self.next(request)?.ok()
    }

    /// listen().
    pub(crate) fn listen(&mut self, sock: &Sock, backlog: i32) -> io::Result<i32> {
        let listen = opcode::Listen::new(fd(sock), backlog).build();
        // SAFETY: plain numbers.
        let request = unsafe { self.start(listen)? };
        self.next(request)?.ok()
    }

    /// Begins a connect().
    pub(crate) fn connect(&mut self, sock: &Sock, addr: &SockAddr) -> io::Result<Request> {
        let connect = opcode::Connect::new(fd(sock), addr.as_ptr(), addr.len() as u32).build();
        // SAFETY: the address lives in `addr`.
        unsafe { self.start(connect) }
    }

    /// Begins a multishot accept(), which lasts until it is cancelled.
    pub(crate) fn accept_all(&mut self, listener: &Sock) -> io::Result<Request> {
        // SAFETY: plain numbers.
        unsafe { self.start(opcode::AcceptMulti::new(fd(listener)).build()) }
    }

    /// Sends bytes, at most a page.
    pub(crate) fn send(&mut self, sock: &Sock, bytes: &[u8]) -> io::Result<i32> {
        self.sent.write(0, bytes);
        let at = self.sent.at(0) as *const u8;
        let send = opcode::Send::new(fd(sock), at, bytes.len() as u32)
            .flags(libc::MSG_NOSIGNAL)
            .build();
        // SAFETY: the memory is never unmapped, and it is written to again only after the request
        // has ended.
        let request = unsafe { self.start(send)? };
        self.next(request)?.ok()
    }

    /// Begins one receive into a piece of the ring's memory.
    pub(crate) fn receive(&mut self, sock: &Sock) -> io::Result<Request> {
        // SAFETY: the memory that the ring has provided is never unmapped.
        unsafe { self.start(receive(fd(sock))) }
    }

    /// Begins one receive with a time limit. The second request is that of the timeout.
    pub(crate) fn receive_for(&mut self, sock: &Sock, ms: u32) -> io::Result<(Request, Request)> {
        let time = types::Timespec::new().nsec(ms * 1_000_000);
        let receive =
            receive(fd(sock)).flags(squeue::Flags::IO_LINK | squeue::Flags::BUFFER_SELECT);
        let (first, second) = (self.last + 1, self.last + 2);
        let chain = [
            receive.user_data(first),
            opcode::LinkTimeout::new(&raw const time)
                .build()
                .user_data(second),
        ];
        self.last = second;
        // SAFETY: the memory that the ring has provided is never unmapped, and the kernel copies
        // the time in submit().
        let pushed = unsafe { self.ring.submission().push_multiple(&chain) };
        pushed.map_err(io::Error::other)?;
        self.ring.submit()?;
        Ok((first, second))
    }

    /// Begins a multishot receive, which stores one piece at a time until the stream ends.
    pub(crate) fn receive_all(&mut self, sock: &Sock) -> io::Result<Request> {
        // SAFETY: the memory that the ring has provided is never unmapped.
        unsafe { self.start(opcode::RecvMulti::new(fd(sock), GROUP).build()) }
    }

    /// Begins a multishot poll, which reports events until it is cancelled.
    pub(crate) fn poll_all(&mut self, sock: &Sock, events: i16) -> io::Result<Request> {
        let poll = opcode::PollAdd::new(fd(sock), events as u32).multi(true);
        // SAFETY: plain numbers.
        unsafe { self.start(poll.build()) }
    }

    /// shutdown().
    pub(crate) fn shutdown(&mut self, sock: &Sock, how: i32) -> io::Result<i32> {
        // SAFETY: plain numbers.
        let request = unsafe { self.start(opcode::Shutdown::new(fd(sock), how).build())? };
        self.next(request)?.ok()
    }

    /// close().
    pub(crate) fn close(&mut self, sock: Sock) -> io::Result<i32> {
        let raw = OwnedFd::from(sock).into_raw_fd();
        // SAFETY: plain numbers; the descriptor is ours to close.
        let request = unsafe { self.start(opcode::Close::new(types::Fd(raw)).build())? };
        self.next(request)?.ok()
    }

    /// Cancels a request. The caller still has to ask for the request's last completion.
    pub(crate) fn cancel(&mut self, request: Request) -> io::Result<i32> {
        // SAFETY: plain numbers.
        let cancel = unsafe { self.start(opcode::AsyncCancel::new(request).build())? };
        self.next(cancel)?.ok()
    }

    /// Waits for the next completion of the request.
    pub(crate) fn next(&mut self, request: Request) -> io::Result<Told> {
        loop {
            if let Some(told) = self.already(request) {
                return Ok(told);
            }
            self.ring.submit_and_wait(1)?;
        }
    }

    /// The next completion of the request, if it has arrived already.
    pub(crate) fn already(&mut self, request: Request) -> Option<Told> {
        let room = self.received;
        self.told.extend(self.ring.completion().map(|entry| {
            let bytes = cqueue::buffer_select(entry.flags()).map_or_else(Vec::new, |piece| {
                room.read(usize::from(piece) * PIECE, entry.result().max(0) as usize)
            });
            Told {
                request: entry.user_data(),
                result: entry.result(),
                more: cqueue::more(entry.flags()),
                bytes,
            }
        }));
        let at = self.told.iter().position(|told| told.request == request)?;
        Some(self.told.remove(at))
    }
}

fn fd(sock: &Sock) -> types::Fd {
    types::Fd(sock.as_raw_fd())
}

/// A receive of one piece, which the kernel chooses.
fn receive(fd: types::Fd) -> squeue::Entry {
    opcode::Recv::new(fd, std::ptr::null_mut(), PIECE as u32)
        .buf_group(GROUP)
        .build()
        .flags(squeue::Flags::BUFFER_SELECT)
}
