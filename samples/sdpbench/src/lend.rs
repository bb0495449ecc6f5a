// SPDX-License-Identifier: GPL-2.0
//! Sends with MSG_ZEROCOPY: the kernel tells when the buffer may be used again
//! (Documentation/networking/msg_zerocopy.rst of the kernel).

use std::io::{self, Write};
use std::mem;
use std::net::TcpStream;
use std::os::fd::AsRawFd;

/// Sends on a connection, with MSG_ZEROCOPY or without.
pub(crate) struct Lender<'a> {
    stream: &'a TcpStream,
    zerocopy: bool,
    /// Sends that were not told of yet.
    open: u32,
}

impl<'a> Lender<'a> {
    /// `zerocopy` requires SO_ZEROCOPY of the socket.
    pub(crate) fn new(stream: &'a TcpStream, zerocopy: bool) -> Self {
        Self {
            stream,
            zerocopy,
            open: 0,
        }
    }

    pub(crate) fn send_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        if !self.zerocopy {
            return self.stream.write_all(bytes);
        }
        while !bytes.is_empty() {
            let flags = libc::MSG_ZEROCOPY | libc::MSG_NOSIGNAL;
            // SAFETY: The kernel only reads the bytes, and keeps their pages as long as it does.
            let sent = unsafe {
                libc::send(
                    self.stream.as_raw_fd(),
                    bytes.as_ptr().cast(),
                    bytes.len(),
                    flags,
                )
            };
            match usize::try_from(sent) {
                Ok(sent) => {
                    self.open += 1;
                    bytes = bytes.get(sent..).unwrap_or_default();
                }
                Err(_) => {
                    let why = io::Error::last_os_error();
                    // So many are not told of that the socket has no memory for another one.
                    if why.raw_os_error() != Some(libc::ENOBUFS) || self.open == 0 {
                        return Err(why);
                    }
                    self.wait()?;
                }
            }
        }
        self.take_told().map(drop)
    }

    /// Waits until all sends were told of.
    pub(crate) fn wait_for_all(&mut self) -> io::Result<()> {
        while self.open > 0 {
            self.wait()?;
        }
        Ok(())
    }

    /// Waits until one more was.
    fn wait(&mut self) -> io::Result<()> {
        let mut fd = libc::pollfd {
            fd: self.stream.as_raw_fd(),
            events: 0,
            revents: 0,
        };
        // SAFETY: The pointer is to one pollfd.
        if unsafe { libc::poll(&raw mut fd, 1, -1) } < 0 {
            return Err(io::Error::last_os_error());
        }
        if self.take_told()? == 0 && fd.revents & libc::POLLHUP != 0 {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        Ok(())
    }

    /// Takes the notifications that have come; of how many sends they tell.
    fn take_told(&mut self) -> io::Result<u32> {
        let mut told = 0;
        while let Some(count) = self.next_told()? {
            told += count;
        }
        self.open = self.open.saturating_sub(told);
        Ok(told)
    }

    fn next_told(&self) -> io::Result<Option<u32>> {
        let mut control = [0u64; 16];
        // SAFETY: All zeroes is a valid msghdr.
        let mut msg: libc::msghdr = unsafe { mem::zeroed() };
        msg.msg_control = control.as_mut_ptr().cast();
        msg.msg_controllen = size_of_val(&control);
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        // SAFETY: The message has room for control messages, and for nothing else.
        if unsafe { libc::recvmsg(self.stream.as_raw_fd(), &raw mut msg, flags) } < 0 {
            let why = io::Error::last_os_error();
            return match why.raw_os_error() {
                Some(libc::EAGAIN) => Ok(None),
                _ => Err(why),
            };
        }
        // SAFETY: The kernel has written the message, and the control messages that it says.
        let error = unsafe {
            let header = libc::CMSG_FIRSTHDR(&raw const msg);
            if header.is_null() {
                return Err(io::ErrorKind::InvalidData.into());
            }
            libc::CMSG_DATA(header)
                .cast::<libc::sock_extended_err>()
                .read_unaligned()
        };
        // From the first to the last.
        Ok(Some(
            error.ee_data.wrapping_sub(error.ee_info).wrapping_add(1),
        ))
    }
}
