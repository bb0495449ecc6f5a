// SPDX-License-Identifier: GPL-2.0

//! The socket families 27 and 28, and the protocol 257 of AF_INET and AF_INET6: registration with
//! the core, and creation of sockets.

use core::mem::{
    align_of,
    size_of, //
};
use core::ptr;

use kernel::error::to_result;
use kernel::prelude::*;

use super::{
    ops,
    sk_ops,
    sockopt, //
};
use crate::bindings;
use crate::inet::addr::{
    AF_INET6_SDP,
    AF_INET_SDP, //
};
use crate::inet::memory;
use crate::inet::sock::charge::MIN_BUFFER_BYTES;
use crate::inet::sock::Sk;
use crate::inet::sysctl::Setting;
use crate::kern::errno::{
    EAFNOSUPPORT,
    EPROTONOSUPPORT,
    ESOCKTNOSUPPORT, //
};
use crate::kern::module::{
    has_started,
    this_module, //
};
use crate::kern::shared::Shared;
use crate::sdp::cm::worker::HANDLERS;
use crate::sdp::conn::sock::{
    SdpSock,
    OBJ_SIZE,
    PINFO6_OFFSET, //
};
use crate::uapi::socket::IPPROTO_SDP;

/// `sk_protocol` of all sockets of the module: with 6 the core would take them for TCP sockets and
/// read beyond the end of the object.
const PROTOCOL: u16 = IPPROTO_SDP as u16;
/// Protocols that socket() accepts: the default one, and TCP for programs that name it.
const ACCEPTED_PROTOCOLS: [i32; 2] = [0, bindings::IPPROTO_TCP as i32];

static MIN_BUFFER: Shared<i32> = Shared::new(MIN_BUFFER_BYTES as i32);
static SOCKETS_ALLOCATED: Shared<bindings::percpu_counter> =
    // SAFETY: Initialised when the module loads; zeros until then.
    Shared::new(unsafe { core::mem::zeroed() });

static PROTO: Shared<bindings::proto> = Shared::new(bindings::proto {
    close: Some(sk_ops::close),
    pre_connect: Some(sk_ops::pre_connect),
    connect: Some(sk_ops::connect),
    disconnect: Some(sk_ops::disconnect),
    accept: Some(sk_ops::accept),
    ioctl: Some(sk_ops::ioctl),
    shutdown: Some(sk_ops::shutdown),
    keepalive: Some(sk_ops::keepalive),
    setsockopt: Some(sockopt::setsockopt),
    getsockopt: Some(sockopt::getsockopt),
    release_cb: Some(sk_ops::release_cb),
    init: Some(init),
    unhash: Some(sk_ops::unhash),
    get_port: Some(sk_ops::get_port),
    put_port: Some(sk_ops::put_port),
    memory_allocated: memory::ALLOCATED.get(),
    stream_memory_free: Some(sk_ops::stream_memory_free),
    memory_pressure: memory::PRESSURE.get(),
    sockets_allocated: SOCKETS_ALLOCATED.get(),
    enter_memory_pressure: Some(memory::enter_pressure),
    leave_memory_pressure: Some(memory::leave_pressure),
    sysctl_mem: (&raw const memory::LIMITS).cast_mut().cast(),
    sysctl_wmem: MIN_BUFFER.get(),
    sysctl_rmem: MIN_BUFFER.get(),
    obj_size: OBJ_SIZE as u32,
    ipv6_pinfo_offset: PINFO6_OFFSET as u32,
    name: name(b"SDP"),
    owner: this_module().cast(),
    // SAFETY: An unused member is a null pointer or zero.
    ..unsafe { core::mem::zeroed() }
});

const fn name(text: &[u8]) -> [kernel::ffi::c_char; 32] {
    let mut out = [0; 32];
    let mut i = 0;
    while i < text.len() {
        out[i] = text[i] as kernel::ffi::c_char;
        i += 1;
    }
    out
}

/// The operations of sockets that programs have opened with `family`.
const fn socket_ops(family: u32) -> bindings::proto_ops {
    bindings::proto_ops {
        family: family as i32,
        owner: this_module().cast(),
        release: Some(ops::release),
        bind: Some(ops::bind),
        connect: Some(ops::connect),
        socketpair: Some(bindings::sock_no_socketpair),
        accept: Some(ops::accept),
        getname: Some(ops::getname),
        poll: Some(ops::poll),
        ioctl: Some(ops::ioctl),
        gettstamp: Some(bindings::sock_gettstamp),
        listen: Some(ops::listen),
        shutdown: Some(ops::shutdown),
        setsockopt: Some(bindings::sock_common_setsockopt),
        getsockopt: Some(bindings::sock_common_getsockopt),
        sendmsg: Some(ops::sendmsg),
        recvmsg: Some(ops::recvmsg),
        splice_eof: Some(ops::splice_eof),
        splice_read: Some(ops::splice_read),
        mmap: Some(bindings::sock_no_mmap),
        set_peek_off: Some(bindings::sk_set_peek_off),
        set_rcvlowat: Some(ops::set_rcvlowat),
        // SAFETY: An unused member is a null pointer or zero.
        ..unsafe { core::mem::zeroed() }
    }
}

/// For both families of the module.
static SOCKET_OPS: Shared<bindings::proto_ops> = Shared::new(socket_ops(AF_INET_SDP as u32));
static INET_OPS: Shared<bindings::proto_ops> = Shared::new(socket_ops(bindings::AF_INET));
static INET6_OPS: Shared<bindings::proto_ops> = Shared::new(socket_ops(bindings::AF_INET6));

/// The protocol as a protocol of AF_INET or AF_INET6, whose sockets have these operations.
const fn protosw(ops: &Shared<bindings::proto_ops>) -> bindings::inet_protosw {
    bindings::inet_protosw {
        type_: bindings::sock_type_SOCK_STREAM as u16,
        protocol: PROTOCOL,
        prot: PROTO.get(),
        ops: ops.get(),
        // SAFETY: Zeros are valid: no flags, and a list head that is not in a list.
        ..unsafe { core::mem::zeroed() }
    }
}

static PROTOSW_4: Shared<bindings::inet_protosw> = Shared::new(protosw(&INET_OPS));
static PROTOSW_6: Shared<bindings::inet_protosw> = Shared::new(protosw(&INET6_OPS));

static FAMILY_4: Shared<bindings::net_proto_family> = Shared::new(bindings::net_proto_family {
    family: AF_INET_SDP as i32,
    create: Some(create_v4),
    owner: this_module().cast(),
});
static FAMILY_6: Shared<bindings::net_proto_family> = Shared::new(bindings::net_proto_family {
    family: AF_INET6_SDP as i32,
    create: Some(create_v6),
    owner: this_module().cast(),
});

/// # Safety
///
/// Called by the core for a socket of ours.
unsafe extern "C" fn create_v4(
    net: *mut bindings::net,
    socket: *mut bindings::socket,
    protocol: i32,
    kern: i32,
) -> i32 {
    // SAFETY: The core passes valid objects.
    unsafe { create(net, socket, protocol, kern, bindings::AF_INET) }
}

/// # Safety
///
/// Called by the core for a socket of ours.
unsafe extern "C" fn create_v6(
    net: *mut bindings::net,
    socket: *mut bindings::socket,
    protocol: i32,
    kern: i32,
) -> i32 {
    // SAFETY: As above.
    unsafe { create(net, socket, protocol, kern, bindings::AF_INET6) }
}

/// socket(): `ESOCKTNOSUPPORT` for a type other than SOCK_STREAM, `EPROTONOSUPPORT` for a protocol
/// other than 0 and TCP's, as in `man 2 socket`.
///
/// # Safety
///
/// Called by the core for a socket of ours.
unsafe fn create(
    net: *mut bindings::net,
    socket: *mut bindings::socket,
    protocol: i32,
    kern: i32,
    family: u32,
) -> i32 {
    // SAFETY: The core passes a new socket.
    if unsafe { (*socket).type_ } != bindings::sock_type_SOCK_STREAM as i16 {
        return ESOCKTNOSUPPORT.to_errno();
    }
    if !ACCEPTED_PROTOCOLS.contains(&protocol) {
        return EPROTONOSUPPORT.to_errno();
    }
    // SAFETY: No precondition.
    if family == bindings::AF_INET6 && !unsafe { bindings::ipv6_mod_enabled() } {
        return EAFNOSUPPORT.to_errno();
    }
    if !has_started() {
        return EAFNOSUPPORT.to_errno();
    }
    // SAFETY: The namespace is valid, the proto registered; the new object is initialised with the
    // handlers of sockets before any other code sees it.
    unsafe {
        let sk = bindings::sk_alloc(
            net,
            family as i32,
            bindings::SDP_CONST_GFP_KERNEL,
            PROTO.get(),
            kern,
        );
        if sk.is_null() {
            return ENOMEM.to_errno();
        }
        (*socket).ops = SOCKET_OPS.get();
        bindings::sock_init_data(socket, sk);
        (*sk).sk_protocol = PROTOCOL;
        begin(sk, family);
        let inet = sk.cast::<bindings::inet_sock>();
        (*inet).uc_ttl = -1;
        (*inet).mc_ttl = 1;
        (*inet).pmtudisc = match Sk::new(sk).net().finds_mtu() {
            true => bindings::IP_PMTUDISC_WANT as u8,
            false => bindings::IP_PMTUDISC_DONT as u8,
        };
        bindings::inet_set_mc_loop(sk.cast());
        bindings::inet6_set_mc_loop(sk.cast());
        bindings::inet6_set_mc_all(sk.cast());
        // As in the core, which sets the flag for sockets of IPv4 only.
        if family == bindings::AF_INET {
            bindings::inet_set_mc_all(sk.cast());
        }
        if kern == 0 {
            let ret = bindings::bpf_inet_sock(sk.cast());
            if ret != 0 {
                bindings::sk_common_release(sk);
                (*socket).sk = ptr::null_mut();
                return ret;
            }
        }
    }
    0
}

/// Turns a new object into a socket of the module: does the steps that the core does not do for a
/// protocol of AF_INET.
///
/// # Safety
///
/// `sk` is a new object of the module's proto, which `sock_init_data` has connected to its
/// `struct socket`, and which no other code can see.
unsafe fn begin(sk: *mut bindings::sock, family: u32) {
    // SAFETY: As the caller promises. The handlers are those of sockets.
    unsafe {
        bindings::set_custom_sockopt((*sk).sk_socket.cast());
        bindings::set_support_zc((*sk).sk_socket.cast());
        SdpSock::init(sk, &HANDLERS);
        let wrapped = Sk::new(sk);
        wrapped.set_state(bindings::TCP_CLOSE as u8);
        wrapped.set_family(family);
        wrapped.hold_net();
        let own = wrapped.net().settings();
        wrapped.set_buffers(own.get(Setting::WmemDefault), own.get(Setting::RmemDefault));
        bindings::sk_sockets_allocated_inc(sk.cast());
    }
}

/// socket() with AF_INET or AF_INET6 and the module's protocol: `EPROTONOSUPPORT` while the module
/// loads, as without the module.
///
/// # Safety
///
/// Called by the core for a new object of the module's proto.
unsafe extern "C" fn init(sk: *mut bindings::sock) -> i32 {
    // SAFETY: The core passes a new object, and has called `sock_init_data`. The object is
    // initialised even if it is then refused, because the core destroys it.
    unsafe {
        let family = Sk::new(sk).family();
        begin(sk, family.into());
    }
    match has_started() {
        true => 0,
        false => EPROTONOSUPPORT.to_errno(),
    }
}

/// Registers the proto, the families and the protocol.
pub(crate) fn register() -> Result {
    // SAFETY: All objects are static, and this runs once.
    unsafe {
        to_result(bindings::percpu_counter_init(
            SOCKETS_ALLOCATED.get().cast(),
            0,
        ))?;
        let fw = bindings::alloc_percpu(size_of::<u64>(), align_of::<u64>());
        if fw.is_null() {
            bindings::percpu_counter_destroy(SOCKETS_ALLOCATED.get().cast());
            return Err(ENOMEM);
        }
        (*PROTO.get()).per_cpu_fw_alloc = fw.cast();
        if let Err(e) = to_result(bindings::proto_register(PROTO.get(), 1)) {
            free_counters();
            return Err(e);
        }
        register_family(&FAMILY_4).inspect_err(|_| unregister_proto())?;
        register_family(&FAMILY_6).inspect_err(|_| {
            bindings::sock_unregister(AF_INET_SDP.into());
            unregister_proto();
        })?;
        to_result(bindings::inet6_register_protosw(PROTOSW_6.get())).inspect_err(|_| {
            unregister_families();
            unregister_proto();
        })?;
        bindings::inet_register_protosw(PROTOSW_4.get());
    }
    Ok(())
}

fn register_family(family: &Shared<bindings::net_proto_family>) -> Result {
    // SAFETY: The object is static.
    to_result(unsafe { bindings::sock_register(family.get()) })
}

fn free_counters() {
    // SAFETY: Allocated by `register`, and not used any more.
    unsafe {
        bindings::free_percpu((*PROTO.get()).per_cpu_fw_alloc.cast());
        bindings::percpu_counter_destroy(SOCKETS_ALLOCATED.get().cast());
    }
}

fn unregister_proto() {
    // SAFETY: Registered before.
    unsafe { bindings::proto_unregister(PROTO.get()) };
    free_counters();
}

fn unregister_families() {
    // SAFETY: Registered before.
    unsafe {
        bindings::sock_unregister(AF_INET6_SDP.into());
        bindings::sock_unregister(AF_INET_SDP.into());
    }
}

/// Undoes [`register`]. No socket is left, because each socket holds the module. There is one
/// exception: `inet_create()` of the core takes the reference to the module late
/// (`Documentation/kernels.rst`, Creation of sockets).
pub(crate) fn unregister() {
    // SAFETY: Registered before.
    unsafe {
        bindings::inet_unregister_protosw(PROTOSW_4.get());
        bindings::inet6_unregister_protosw(PROTOSW_6.get());
    }
    unregister_families();
    unregister_proto();
}

#[kunit_tests(ib_sdp_register)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_of_the_kernel_holds_its_namespace() -> Result {
        for family in [AF_INET_SDP, AF_INET6_SDP] {
            let mut socket = ptr::null_mut();
            // SAFETY: The first namespace always exists; the new socket is only used here, and
            // released once.
            let holds = unsafe {
                to_result(bindings::sock_create_kern(
                    &raw mut bindings::init_net,
                    family.into(),
                    bindings::sock_type_SOCK_STREAM as i32,
                    0,
                    &raw mut socket,
                ))?;
                let holds = Sk::new((*socket).sk).holds_net();
                bindings::sock_release(socket);
                holds
            };
            assert!(holds);
        }
        Ok(())
    }

    /// Counts a call in the number to which `sk_user_data` points.
    ///
    /// # Safety
    ///
    /// Nothing else uses this number.
    unsafe extern "C" fn count(sk: *mut bindings::sock) {
        // SAFETY: As the caller promises.
        unsafe { *(*sk).sk_user_data.cast::<u32>() += 1 };
    }

    #[test]
    fn a_user_in_the_kernel_has_its_callbacks_called() -> Result {
        let mut calls = 0_u32;
        let mut socket = ptr::null_mut();
        // SAFETY: The first namespace always exists; the new socket is only used here, and released
        // once. Its callbacks use `calls`, which outlives the socket.
        unsafe {
            to_result(bindings::sock_create_kern(
                &raw mut bindings::init_net,
                AF_INET_SDP.into(),
                bindings::sock_type_SOCK_STREAM as i32,
                0,
                &raw mut socket,
            ))?;
            let raw = (*socket).sk;
            let sk = Sk::new(raw);
            // Without a waiter the socket's own callbacks do nothing; of a writer they forget that
            // it waits.
            sk.wake_reader();
            sk.wake_all();
            sk.want_space(false);
            assert!(sk.wake_writer());
            assert!(!sk.wake_writer());
            (*raw).sk_user_data = (&raw mut calls).cast();
            (*raw).sk_data_ready = Some(count);
            (*raw).sk_write_space = Some(count);
            (*raw).sk_state_change = Some(count);
            let error_report = (*raw).sk_error_report.replace(count);
            sk.wake_reader();
            sk.wake_all();
            sk.report_error();
            // Nobody waits for space.
            assert!(!sk.wake_writer());
            assert_eq!(calls, 3);
            sk.want_space(false);
            assert!(sk.wake_writer());
            assert_eq!(calls, 4);
            sk.set_callbacks();
            (*raw).sk_user_data = ptr::null_mut();
            (*raw).sk_error_report = error_report;
            bindings::sock_release(socket);
        }
        Ok(())
    }
}
