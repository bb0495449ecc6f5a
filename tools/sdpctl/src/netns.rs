// SPDX-License-Identifier: GPL-2.0

//! Enters a network namespace created by `ip netns`.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use crate::fail::Fail;

/// Moves the program to the namespace `name` and mounts its devices under `/sys`.
pub(crate) fn enter(name: &str) -> Result<(), Fail> {
    if name.is_empty() || name.contains('/') {
        return Err(Fail::Other(format!("`{name}` is no name of a namespace")));
    }
    let path = Path::new("/run/netns").join(name);
    let file = File::open(&path).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => Fail::Other(format!(
            "there is no network namespace `{name}`: `ip netns` lists them"
        )),
        _ => Fail::io(path.display(), &e),
    })?;
    let failed = |what: &str| Fail::io(format!("{what} `{name}`"), &io::Error::last_os_error());
    // SAFETY: The descriptor is open; the strings are constants. The mounts are visible to this
    // program only, which has its own mount namespace at that point.
    unsafe {
        if libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) != 0 {
            return Err(failed("cannot enter the network namespace"));
        }
        let none = std::ptr::null();
        if libc::unshare(libc::CLONE_NEWNS) != 0
            || libc::mount(
                none,
                c"/".as_ptr(),
                none,
                libc::MS_REC | libc::MS_SLAVE,
                none.cast(),
            ) != 0
            || libc::mount(
                c"sysfs".as_ptr(),
                c"/sys".as_ptr(),
                c"sysfs".as_ptr(),
                0,
                none.cast(),
            ) != 0
        {
            return Err(failed("cannot see the devices of the network namespace"));
        }
        // The mount of sysfs has hidden debugfs. Without debugfs less is shown.
        let _ = libc::mount(
            c"debugfs".as_ptr(),
            c"/sys/kernel/debug".as_ptr(),
            c"debugfs".as_ptr(),
            0,
            none.cast(),
        );
    }
    Ok(())
}
