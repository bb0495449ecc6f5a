// SPDX-License-Identifier: GPL-2.0

//! `/proc/net/sdp`, `/proc/net/sdplimits` and `/proc/net/sdpstats`.

use kernel::bindings::seq_file;
use kernel::prelude::*;
use kernel::seq_file::SeqFile;
use kernel::seq_print;

use crate::bindings;
use crate::inet::limits;
use crate::inet::netns::{
    InEachNet,
    Net,
    PernetOps, //
};
use crate::sdp::info::sock_info;

const SOCKETS: &kernel::str::CStr = c"sdp";
const LIMITS: &kernel::str::CStr = c"sdplimits";
const STATS: &kernel::str::CStr = c"sdpstats";

struct Files;

static OPS: PernetOps = PernetOps::of::<Files>();

/// Creates the files in each existing and each new namespace.
///
/// # Errors
///
/// `ENOMEM`.
pub(crate) fn register() -> Result {
    OPS.register()
}

/// Removes the files from each namespace; waits for their readers.
pub(crate) fn unregister() {
    OPS.unregister();
}

impl InEachNet for Files {
    fn create(net: Net<'_>) -> Result {
        for (done, (name, show)) in FILES.iter().enumerate() {
            create_one(net, name, *show).inspect_err(|_| {
                remove_all(net, FILES.get(..done).unwrap_or_default());
            })?;
        }
        Ok(())
    }

    fn remove(net: Net<'_>) {
        remove_all(net, &FILES);
    }
}

static FILES: [(&kernel::str::CStr, Show); 3] = [
    (SOCKETS, show_sockets),
    (LIMITS, show_limits),
    (STATS, show_stats),
];

type Show = unsafe extern "C" fn(*mut seq_file, *mut core::ffi::c_void) -> kernel::ffi::c_int;

fn create_one(net: Net<'_>, name: &kernel::str::CStr, show: Show) -> Result {
    // SAFETY: The namespace is valid, the name a C string that the core copies.
    let entry = unsafe {
        bindings::proc_create_in_net(name.as_char_ptr(), net.as_ptr().cast(), Some(show))
    };
    if entry.is_null() {
        return Err(ENOMEM);
    }
    Ok(())
}

fn remove_all(net: Net<'_>, files: &[(&kernel::str::CStr, Show)]) {
    for (name, _) in files.iter().rev() {
        // SAFETY: The namespace is valid, and the file was created before.
        unsafe { bindings::proc_remove_net(name.as_char_ptr(), net.as_ptr().cast()) };
    }
}

/// The namespace of the file that is read.
///
/// # Safety
///
/// `m` is the argument of a running show function of this file.
unsafe fn net_of<'a>(m: *mut seq_file) -> Net<'a> {
    // SAFETY: The open file holds the namespace.
    unsafe { Net::from_raw(bindings::seq_file_single_net(m.cast()).cast()) }
}

/// # Safety
///
/// Called only by the core, with which it was registered, with valid arguments.
unsafe extern "C" fn show_stats(m: *mut seq_file, _v: *mut core::ffi::c_void) -> i32 {
    // SAFETY: The core passes a valid file.
    let (out, net) = unsafe { (SeqFile::from_raw(m), net_of(m)) };
    net.stats().for_each(|group, name, n| {
        seq_print!(out, "{group}{name} {n}\n");
    });
    0
}

/// # Safety
///
/// Called only by the core, with which it was registered, with valid arguments.
unsafe extern "C" fn show_limits(m: *mut seq_file, _v: *mut core::ffi::c_void) -> i32 {
    // SAFETY: The core passes a valid file, which the reader has open.
    let (out, net, reader) = unsafe {
        (
            SeqFile::from_raw(m),
            net_of(m),
            bindings::reader_uid(m.cast()),
        )
    };
    seq_print!(out, "name limit in_use\n");
    for limit in limits::shown(net, reader) {
        seq_print!(out, "{} {} {}\n", limit.name, limit.most, limit.in_use);
    }
    0
}

/// # Safety
///
/// Called only by the core, with which it was registered, with valid arguments.
unsafe extern "C" fn show_sockets(m: *mut seq_file, _v: *mut core::ffi::c_void) -> i32 {
    // SAFETY: The core passes a valid file.
    let (out, net) = unsafe { (SeqFile::from_raw(m), net_of(m)) };
    seq_print!(
        out,
        "local peer state tx_queue rx_queue credits posted rcv_size uid inode\n"
    );
    let result = sock_info::for_each(net, |sk, s| {
        seq_print!(
            out,
            "{} {} {} {} {} {} {} {} {} {}\n",
            s.name.local,
            s.name.peer,
            s.state.name(),
            s.tx_queue,
            s.rx_queue,
            s.room.credits,
            s.room.receives_posted,
            s.room.receive_bytes,
            // SAFETY: Both are valid; the reader has the file open.
            unsafe { bindings::sk_uid_in_file(sk.as_ptr().cast(), m.cast()) },
            s.name.inode,
        );
    });
    result.map_or_else(|e| e.to_errno(), |()| 0)
}
