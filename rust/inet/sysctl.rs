// SPDX-License-Identifier: GPL-2.0

//! The settings of a namespace, under /proc/sys/net/sdp.
//!
//! A namespace begins with the present values of the module's parameters; later changes of the
//! parameters do not affect it. Documentation/ABI describes each setting.

use core::mem::size_of;
use core::ptr;

use kernel::ffi::{
    c_int,
    c_void, //
};
use kernel::prelude::*;
use kernel::str::Formatter;
use kernel::sync::atomic::{
    ordering::Relaxed,
    Atomic, //
};

use super::limits;
use super::memory;
use super::netns::Net;
use crate::bindings;
use crate::params::{
    self,
    Param, //
};

const PATH: &kernel::str::CStr = c"net/sdp";

/// A setting of a namespace.
#[derive(Copy, Clone)]
#[repr(usize)]
pub(crate) enum Setting {
    /// The smallest send without a copy in bytes, for new sockets; 0 for none.
    ZcopyThresh,
    /// The path of sends, for new sockets.
    ZcopyMode,
    /// The effect of a write to memory that a send still needs, for new sockets: 1 if the write
    /// waits.
    FaultPolicy,
    /// The maximum number of outstanding adverts of a new connection.
    MaxAdverts,
    /// Bytes of a new socket's send buffer.
    WmemDefault,
    /// Bytes of a new socket's receive buffer.
    RmemDefault,
    /// Seconds without a message of the peer before SO_KEEPALIVE sends a probe, for new sockets.
    KeepaliveTime,
    /// Seconds to wait for each answer to a probe of SO_KEEPALIVE, for new sockets.
    KeepaliveIntvl,
    /// The number of such waits after which SO_KEEPALIVE ends a connection, for new sockets.
    KeepaliveProbes,
    /// Whether a send with MSG_FASTOPEN connects: 0 or 1.
    FastOpen,
    /// Whether a socket of AF_INET or AF_INET6 becomes a TCP socket if SDP cannot connect: 0 or 1.
    TcpFallback,
    /// The maximum number of connections of the namespace; 0 selects a number that depends on the
    /// memory.
    MaxConnections,
    /// The maximum number of connections of a user of the namespace, including those in other
    /// namespaces; 0 likewise.
    MaxUserConnections,
    /// The maximum number of connections without a program; 0 likewise.
    MaxOrphans,
}

/// The file of a setting.
struct Entry {
    name: &'static kernel::str::CStr,
    /// Defines the valid values, and the initial value of a namespace.
    param: &'static Param,
    /// Whether the current program may set this value.
    may: fn(i32) -> bool,
}

fn anybody(_: i32) -> bool {
    true
}

/// An administrator of a namespace need not be allowed to make others wait.
fn who_may_hold_up(policy: i32) -> bool {
    policy == 0 || params::may_hold_up()
}

/// Security modules may also restrict an administrator of a namespace, who must not be able to lift
/// the restriction.
fn who_may_fast_open(said: i32) -> bool {
    said <= params::sdp_fastopen.value() || params::is_machines_admin()
}

fn who_may_fall_back(said: i32) -> bool {
    said <= params::sdp_tcp_fallback.value() || params::is_machines_admin()
}

/// An administrator of a namespace must not raise a limit above the module's parameter.
fn who_may_take(limit: Setting, said: i32, first: &Param) -> bool {
    limits::most(limit, said) <= limits::most(limit, first.value()) || params::is_machines_admin()
}

fn who_may_connect(said: i32) -> bool {
    who_may_take(Setting::MaxConnections, said, &params::sdp_max_connections)
}

fn whose_users_may_connect(said: i32) -> bool {
    let first = &params::sdp_max_user_connections;
    who_may_take(Setting::MaxUserConnections, said, first)
}

fn who_may_leave_orphans(said: i32) -> bool {
    who_may_take(Setting::MaxOrphans, said, &params::sdp_max_orphans)
}

const COUNT: usize = Setting::MaxOrphans as usize + 1;

impl Entry {
    const fn new(name: &'static kernel::str::CStr, param: &'static Param) -> Self {
        Self {
            name,
            param,
            may: anybody,
        }
    }
}

/// In the order of [`Setting`].
static ENTRIES: [Entry; COUNT] = [
    Entry::new(c"zcopy_thresh", &params::sdp_zcopy_thresh),
    Entry::new(c"zcopy_mode", &params::sdp_zcopy_mode),
    Entry {
        may: who_may_hold_up,
        ..Entry::new(c"fault_policy", &params::sdp_fault_policy)
    },
    Entry::new(c"max_adverts", &params::sdp_max_adverts),
    Entry::new(c"wmem_default", &params::sdp_wmem_default),
    Entry::new(c"rmem_default", &params::sdp_rmem_default),
    Entry::new(c"keepalive_time", &params::sdp_keepalive_time),
    Entry::new(c"keepalive_intvl", &params::sdp_keepalive_intvl),
    Entry::new(c"keepalive_probes", &params::sdp_keepalive_probes),
    Entry {
        may: who_may_fast_open,
        ..Entry::new(c"fastopen", &params::sdp_fastopen)
    },
    Entry {
        may: who_may_fall_back,
        ..Entry::new(c"tcp_fallback", &params::sdp_tcp_fallback)
    },
    Entry {
        may: who_may_connect,
        ..Entry::new(c"max_connections", &params::sdp_max_connections)
    },
    Entry {
        may: whose_users_may_connect,
        ..Entry::new(c"max_user_connections", &params::sdp_max_user_connections)
    },
    Entry {
        may: who_may_leave_orphans,
        ..Entry::new(c"max_orphans", &params::sdp_max_orphans)
    },
];

/// The settings of a namespace, and their files.
///
/// # Invariants
///
/// Does not move while `header` is not null: the core then refers to `files`, and these to
/// `values`.
pub(crate) struct Settings {
    values: [Atomic<i32>; COUNT],
    /// One for each setting, and the last one for the memory of all sockets, which only the first
    /// namespace has.
    files: [bindings::ctl_table; COUNT + 1],
    header: *mut bindings::ctl_table_header,
}

impl Settings {
    /// Initialises the settings with the module's parameters, and creates the files.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; then nothing is left.
    ///
    /// # Safety
    ///
    /// `this` is memory for the settings of `net`, and stays in place until the settings are
    /// dropped.
    pub(super) unsafe fn init(this: *mut Self, net: Net<'_>) -> Result {
        // SAFETY: Nobody else uses the memory until the files exist.
        let settings = unsafe {
            this.write(Self {
                values: ENTRIES.each_ref().map(|e| Atomic::new(e.param.value())),
                files: Default::default(),
                header: ptr::null_mut(),
            });
            &mut *this
        };
        let parts = ENTRIES.iter().zip(&settings.values);
        for (file, (entry, value)) in settings.files.iter_mut().zip(parts) {
            *file = bindings::ctl_table {
                procname: entry.name.as_char_ptr(),
                data: value.as_ptr().cast(),
                maxlen: size_of::<i32>() as c_int,
                mode: 0o644,
                proc_handler: Some(access),
                extra1: (&raw const *entry).cast_mut().cast(),
                ..Default::default()
            };
        }
        let files = if net.is_first() { COUNT + 1 } else { COUNT };
        if let Some(file) = settings.files.last_mut() {
            *file = bindings::ctl_table {
                procname: c"mem".as_char_ptr(),
                data: (&raw const memory::LIMITS).cast_mut().cast(),
                maxlen: size_of::<memory::Limits>() as c_int,
                mode: 0o644,
                proc_handler: Some(access_limits),
                ..Default::default()
            };
        }
        // SAFETY: The files are all set, and stay until `drop`; the rest is as the caller promises.
        let header = unsafe {
            bindings::register_net_sysctl_sz(
                net.as_ptr(),
                PATH.as_char_ptr(),
                settings.files.as_mut_ptr(),
                files,
            )
        };
        if header.is_null() {
            return Err(ENOMEM);
        }
        settings.header = header;
        Ok(())
    }

    pub(crate) fn get(&self, setting: Setting) -> i32 {
        let value = self.values.get(setting as usize);
        value.map_or(0, |value| value.load(Relaxed))
    }
}

impl Drop for Settings {
    /// Waits for readers and writers of the files; a file that is still open returns `ENOENT` from
    /// then on.
    fn drop(&mut self) {
        // SAFETY: By the type invariant it is registered.
        unsafe { bindings::unregister_net_sysctl_table(self.header) };
    }
}

/// Room for a setting's text, with a terminating zero.
const TEXT_BYTES: usize = 32;

/// Reads or writes a setting.
///
/// # Safety
///
/// Called by the core as the handler of a file created by [`Settings::init`], with valid arguments.
unsafe extern "C" fn access(
    file: *const bindings::ctl_table,
    write: c_int,
    buffer: *mut c_void,
    len: *mut usize,
    pos: *mut bindings::loff_t,
) -> c_int {
    // SAFETY: The core passes the file, which `init` has made from these parts. They exist while
    // the handler runs.
    let (mut file, entry, value) = unsafe {
        (
            *file,
            &*(*file).extra1.cast::<Entry>(),
            &*(*file).data.cast::<Atomic<i32>>(),
        )
    };
    let mut text = [0u8; TEXT_BYTES];
    let kind = entry.param.kind();
    if write == 0 {
        // The last byte remains zero.
        let mut out = Formatter::new(text.split_at_mut(TEXT_BYTES - 1).0);
        if kind.show(value.load(Relaxed), &mut out).is_err() {
            return EIO.to_errno();
        }
    // SAFETY: The core passes a valid number.
    } else if unsafe { *len } >= TEXT_BYTES {
        // A longer text would be truncated.
        return EINVAL.to_errno();
    }
    file.data = text.as_mut_ptr().cast();
    file.maxlen = TEXT_BYTES as c_int;
    // SAFETY: The copy refers to a text of this size; the rest comes from the core.
    let ret = unsafe { bindings::proc_dostring(&raw const file, write, buffer, len, pos) };
    if ret != 0 || write == 0 {
        return ret;
    }
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    match kind.parse(text) {
        None => EINVAL.to_errno(),
        Some(new) if !(entry.may)(new) => EPERM.to_errno(),
        Some(new) => {
            value.store(new, Relaxed);
            0
        }
    }
}

/// Reads or writes the limits of the memory of all sockets, in pages.
///
/// # Safety
///
/// As for [`access`].
unsafe extern "C" fn access_limits(
    file: *const bindings::ctl_table,
    write: c_int,
    buffer: *mut c_void,
    len: *mut usize,
    pos: *mut bindings::loff_t,
) -> c_int {
    // SAFETY: The core passes the file, which `init` has created.
    let mut file = unsafe { *file };
    let limits = &memory::LIMITS;
    let mut new = limits.each_ref().map(|limit| limit.load(Relaxed));
    file.data = new.as_mut_ptr().cast();
    // SAFETY: The copy refers to numbers of this size; the rest comes from the core.
    let ret = unsafe { bindings::proc_doulongvec_minmax(&raw const file, write, buffer, len, pos) };
    if ret != 0 || write == 0 {
        return ret;
    }
    if !new.is_sorted() || new.iter().any(|&pages| pages < 1) {
        return EINVAL.to_errno();
    }
    for (limit, pages) in limits.iter().zip(new) {
        limit.store(pages, Relaxed);
    }
    0
}
