// SPDX-License-Identifier: GPL-2.0

//! Errors of sockets that the kernel crate does not name.

use core::mem::transmute;
use core::num::NonZeroI32;

use kernel::bindings;
use kernel::error::Error;
use kernel::prelude::EINVAL;

// `Error` is a newtype of `NonZeroI32` with a private field and no constant constructor. The
// following check, at compile time, ensures that its layout is that of its field.
const _: () = {
    // SAFETY: Both have the same size, which `transmute` checks, and every `i32` is valid.
    let einval = unsafe { transmute::<Error, i32>(EINVAL) };
    assert!(einval == -(bindings::EINVAL as i32));
};

const fn error(errno: u32) -> Error {
    match NonZeroI32::new(-(errno as i32)) {
        // SAFETY: The value is a negative errno in the range of `Error`, and the layout is that of
        // its field, as asserted above.
        Some(errno) => unsafe { transmute::<NonZeroI32, Error>(errno) },
        None => EINVAL,
    }
}

macro_rules! errors {
    ($($name:ident)*) => {
        $(pub(crate) const $name: Error = error(bindings::$name);)*
    };
}

errors! {
    EADDRINUSE
    EADDRNOTAVAIL
    EAFNOSUPPORT
    EALREADY
    ECONNABORTED
    ECONNREFUSED
    ECONNRESET
    EHOSTUNREACH
    EINPROGRESS
    EISCONN
    EMSGSIZE
    ENETDOWN
    ENETUNREACH
    ENOBUFS
    ENOPROTOOPT
    ENOTCONN
    ENOTSOCK
    EOPNOTSUPP
    EPROTO
    EPROTONOSUPPORT
    ESOCKTNOSUPPORT
}
