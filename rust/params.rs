// SPDX-License-Identifier: GPL-2.0

//! The module's parameters, set by `modprobe ib_sdp NAME=VALUE` and under
//! /sys/module/ib_sdp/parameters.
//!
//! The integers of the kernel crate's `module!` have any value, and cannot be read back. The values
//! of these parameters are checked, and may have names. Documentation/ABI describes each parameter.

pub(crate) mod breaks;
// Public: the tools compile the same file.
#[allow(unreachable_pub)]
pub(crate) mod kind;

use core::fmt::Write;

use kernel::bindings::{
    kernel_param,
    kernel_param__bindgen_ty_1,
    kernel_param_ops, //
};
use kernel::ffi::{
    c_char,
    c_int, //
};
use kernel::prelude::*;
use kernel::str::{
    BStr,
    Formatter, //
};
use kernel::sync::atomic::{
    ordering::Relaxed,
    Atomic, //
};

use self::kind::Kind;
use crate::bindings;
use crate::uapi::nl;

/// The threshold that suits the adapter of a connection.
pub(crate) const ADAPTERS: i32 = -1;

/// Can be set when the module loads, and at run time.
const ANY_TIME: u16 = 0o644;
/// Can be set only when the module loads.
const AT_LOAD: u16 = 0o444;

/// Default size of a socket's buffer in bytes: at least a page, and small enough that the queue of
/// fragments can be allocated in one piece, even if short messages fill the buffer.
const BUFFER_BYTES: Kind = Kind::Number {
    least: 4096,
    most: 1 << 24,
};

/// A number of connections; 0 selects a number that depends on the machine's memory.
const AS_MANY: Kind = Kind::Number {
    least: 0,
    most: i32::MAX,
};

/// The maximum of [`top_mem_usage`]: a tebibyte.
const MOST_MIB: i32 = 1 << 20;

/// The maximum time to wait for an answer to a keepalive probe in seconds, and the maximum number of
/// such waits, as in TCP.
pub(crate) const MAX_KEEP_S: i32 = 32767;
pub(crate) const MAX_KEEP_COUNT: i32 = 127;

/// The maximum number of the peer's adverts that a connection can hold at a time, and of its own
/// adverts that are outstanding. A namespace may have fewer.
pub(crate) const ADVERTS: usize = 32;

/// Values of [`sdp_recv_early`], which selects the programs that may make other threads wait for
/// the memory of these programs.
const NOBODY: i32 = 0;
const ALL: i32 = 2;

/// All bits of [`Rule`](breaks::Rule), if they can be broken.
const RULES: i32 = if cfg!(CONFIG_DEBUG_VM) { 1023 } else { 0 };

/// The valid values of a parameter, and the present value.
pub(crate) struct Param {
    kind: Kind,
    value: Atomic<i32>,
}

impl Param {
    const fn new(kind: Kind, value: i32) -> Self {
        Self {
            kind,
            value: Atomic::new(value),
        }
    }

    pub(crate) const fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) fn value(&self) -> i32 {
        self.value.load(Relaxed)
    }
}

/// An entry of the section `__param`, which the loader reads.
#[repr(transparent)]
struct KernelParam(kernel_param);

// SAFETY: Nobody writes to it, and the objects that it points to are static and can be shared.
unsafe impl Sync for KernelParam {}

static OPS: kernel_param_ops = kernel_param_ops {
    flags: 0,
    set: Some(set),
    get: Some(get),
    free: None,
};

/// A text for the section `.modinfo`.
const fn bytes<const N: usize>(text: &str) -> [u8; N] {
    let text = text.as_bytes();
    let mut out = [0; N];
    let mut i = 0;
    while i < N {
        out[i] = text[i];
        i += 1;
    }
    out
}

macro_rules! modinfo {
    ($($text:expr),*) => {
        const _: () = {
            const TEXT: &str = concat!($($text,)* "\0");
            #[link_section = ".modinfo"]
            #[used(compiler)]
            static INFO: [u8; TEXT.len()] = bytes(TEXT);
        };
    };
}

/// Defines parameters: mode, name, type, valid values, default, and a line for modinfo.
macro_rules! params {
    ($($mode:ident $name:ident: $type:literal $kind:expr, $default:expr, $text:literal;)*) => {
        $(
            #[doc = $text]
            #[allow(non_upper_case_globals)]
            pub(crate) static $name: Param = Param::new($kind, $default);

            const _: () = {
                #[link_section = "__param"]
                #[used(compiler)]
                static PARAM: KernelParam = KernelParam(kernel_param {
                    name: concat!(stringify!($name), "\0").as_ptr().cast(),
                    // The loader creates the object, which exists as long as the module.
                    mod_: (&raw const kernel::bindings::__this_module).cast_mut(),
                    ops: &raw const OPS,
                    perm: $mode,
                    level: -1,
                    flags: 0,
                    __bindgen_anon_1: kernel_param__bindgen_ty_1 {
                        arg: (&raw const $name).cast_mut().cast(),
                    },
                });
            };
            modinfo!("parmtype=", stringify!($name), ":", $type);
            modinfo!("parm=", stringify!($name), ":", $text);
        )*
    };
}

params! {
    ANY_TIME sdp_zcopy_thresh: "int" Kind::Number { least: ADAPTERS, most: i32::MAX }, ADAPTERS,
        "Minimum size in bytes of a send without a copy; 0 for none, -1 for a value that suits the adapter. Initial value of namespaces";
    ANY_TIME sdp_zcopy_mode: "name" Kind::Choice(&nl::MODES), 0,
        "Path of sends: auto, copy, sync, async, or sink (to waiting readers). Initial value of namespaces";
    ANY_TIME sdp_fault_policy: "name" Kind::Choice(&["copy", "block"]), 0,
        "Effect of a write to memory of a send that has returned and is in flight: copy (the page) or block (the writer). Initial value of namespaces";
    ANY_TIME sdp_recv_early: "name" Kind::Choice(&["nobody", "ptrace", "all"]), 1,
        "Programs whose early receives or fault policy may make other programs wait for memory: nobody, ptrace (with CAP_SYS_PTRACE), or all";
    ANY_TIME sdp_max_adverts: "int" Kind::Number { least: 1, most: ADVERTS as i32 }, ADVERTS as i32,
        "Maximum number of outstanding adverts of a connection, per kind and direction. Initial value of namespaces";
    ANY_TIME sdp_wmem_default: "int" BUFFER_BYTES, 2 << 20,
        "Size in bytes of a new socket's send buffer. Initial value of namespaces";
    ANY_TIME sdp_rmem_default: "int" BUFFER_BYTES, 2 << 20,
        "Size in bytes of a new socket's receive buffer. Initial value of namespaces";
    ANY_TIME sdp_keepalive_time: "int" Kind::Number { least: 1, most: MAX_KEEP_S }, 7200,
        "Seconds without a message of the peer before SO_KEEPALIVE sends a probe. Initial value of namespaces";
    ANY_TIME sdp_keepalive_intvl: "int" Kind::Number { least: 1, most: MAX_KEEP_S }, 75,
        "Seconds to wait for each answer to a probe of SO_KEEPALIVE. Initial value of namespaces";
    ANY_TIME sdp_keepalive_probes: "int" Kind::Number { least: 1, most: MAX_KEEP_COUNT }, 9,
        "Number of waits for an answer after which SO_KEEPALIVE ends a connection. Initial value of namespaces";
    ANY_TIME sdp_fastopen: "int" Kind::Number { least: 0, most: 1 }, 0,
        "Whether MSG_FASTOPEN connects, which bypasses the check of connect() by security modules: 0 or 1. Initial value of namespaces";
    ANY_TIME sdp_tcp_fallback: "int" Kind::Number { least: 0, most: 1 }, 0,
        "Whether sockets of AF_INET and AF_INET6 with protocol 257 become TCP sockets if SDP cannot connect, which bypasses the check of connect() by security modules: 0 or 1. Initial value of namespaces";
    ANY_TIME sdp_max_connections: "int" AS_MANY, 0,
        "Maximum number of connections of a namespace; 0 for a limit by the machine's memory. Initial value of namespaces";
    ANY_TIME sdp_max_user_connections: "int" AS_MANY, 0,
        "Maximum number of connections of a user other than root in all namespaces; 0 for half of the limit by memory. Initial value of namespaces";
    ANY_TIME sdp_max_orphans: "int" AS_MANY, 0,
        "Maximum number of connections of a namespace that no program has open; 0 for a quarter of the limit by memory. Initial value of namespaces";
    AT_LOAD top_mem_usage: "int" Kind::Number { least: 0, most: MOST_MIB }, 0,
        "Maximum memory of all sockets' buffers together in MiB; 0 for a part of the machine's memory";
    AT_LOAD sdp_break: "int" Kind::Number { least: 0, most: RULES }, 0,
        "Kernels with CONFIG_DEBUG_VM only: rules of the module to switch off, for tests";
}

/// The maximum length of a parameter's text that an error message repeats.
const COMPLAINT_BYTES: usize = 40;

/// Sets a parameter; `EINVAL` for an invalid value, with a line in the log that says which values
/// are valid.
///
/// # Safety
///
/// Called by the core as a member of [`OPS`]: `kp` was created by `params!`, and `val` is null or a
/// C string.
unsafe extern "C" fn set(val: *const c_char, kp: *const kernel_param) -> c_int {
    if val.is_null() {
        return EINVAL.to_errno();
    }
    // SAFETY: By the function's conditions; `params!` has stored a name and a `Param` there.
    let (text, name, param) = unsafe {
        (
            CStr::from_char_ptr(val).to_bytes().trim_ascii(),
            CStr::from_char_ptr((*kp).name),
            &*(*kp).__bindgen_anon_1.arg.cast::<Param>(),
        )
    };
    match param.kind.parse(text) {
        Some(value) => {
            param.value.store(value, Relaxed);
            0
        }
        None => {
            let text: &BStr = text.get(..COMPLAINT_BYTES).unwrap_or(text).as_ref();
            let kind = param.kind;
            pr_err!("{}: '{}' is not {}\n", name, text, format_args!("{kind}"));
            EINVAL.to_errno()
        }
    }
}

/// Room for the text of any parameter.
const SHOWN_BYTES: usize = 32;

/// Writes a parameter's value, and a newline; returns the length.
///
/// # Safety
///
/// Called by the core as a member of [`OPS`]: `kp` was created by `params!`, and `buffer` is a
/// page.
unsafe extern "C" fn get(buffer: *mut c_char, kp: *const kernel_param) -> c_int {
    // SAFETY: By the function's conditions, as in `set`.
    let (out, param) = unsafe {
        (
            core::slice::from_raw_parts_mut(buffer.cast::<u8>(), SHOWN_BYTES),
            &*(*kp).__bindgen_anon_1.arg.cast::<Param>(),
        )
    };
    let mut out = Formatter::new(out);
    let shown = param.kind.show(param.value(), &mut out);
    match shown.and_then(|()| out.write_char('\n')) {
        Ok(()) => out.bytes_written() as c_int,
        Err(_) => EIO.to_errno(),
    }
}

// Shown by `modinfo` and in /sys/module/ib_sdp/version.
modinfo!("version=", env!("SDP_VERSION"));

/// Whether the current program may return from a receive before its bytes have arrived, or make
/// writes wait for a send (the fault policy). Threads that touch its memory then wait, possibly the
/// kernel or an administrator's tool: as for faults of userfaultfd, not every program may do this
/// unless the administrator allows it.
pub(crate) fn may_hold_up() -> bool {
    match sdp_recv_early.value() {
        NOBODY => false,
        ALL => true,
        // SAFETY: This is process context; the namespace is the initial one.
        _ => unsafe {
            bindings::ns_capable_noaudit(
                &raw mut bindings::init_user_ns,
                bindings::SDP_CONST_CAP_SYS_PTRACE,
            )
        },
    }
}

/// Whether the current program may administer the machine's network, and not only that of a
/// namespace.
pub(crate) fn is_machines_admin() -> bool {
    // SAFETY: This is process context; the namespace is the initial one.
    unsafe {
        bindings::ns_capable_noaudit(
            &raw mut bindings::init_user_ns,
            bindings::SDP_CONST_CAP_NET_ADMIN,
        )
    }
}
