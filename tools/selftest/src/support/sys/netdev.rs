// SPDX-License-Identifier: GPL-2.0
//! The loopback device of a new network namespace.

use super::{checked, Sock};
use std::io;
use std::os::fd::AsRawFd;

/// Switches the loopback device on, which gives it its addresses.
pub(crate) fn loopback_up() -> io::Result<()> {
    let sock = Sock::new(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    // SAFETY: zeros are a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as i16;
    // SAFETY: SIOCSIFFLAGS reads one ifreq.
    checked(unsafe { libc::ioctl(sock.as_raw_fd(), libc::SIOCSIFFLAGS as _, &request) })?;
    Ok(())
}
