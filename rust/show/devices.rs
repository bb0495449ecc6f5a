// SPDX-License-Identifier: GPL-2.0

//! `ib_sdp/devices/` in debugfs: a file for each adapter, with its capabilities for connections.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::ptr;

use kernel::bindings as kb;
use kernel::error::{
    from_err_ptr,
    to_result, //
};
use kernel::prelude::*;
use kernel::seq_file::SeqFile;
use kernel::seq_print;
use kernel::str::CStrExt;

use crate::bindings;
use crate::inet::tcp_port;
use crate::kern::debugfs::{
    self,
    file_ops,
    FileOps,
    READ_ONLY, //
};
use crate::kern::module::has_started;
use crate::rdma::device::{
    Abilities,
    Driver, //
};

/// The module's client of the RDMA core, which reports devices to its clients.
struct Client(UnsafeCell<bindings::ib_client>);

// SAFETY: Set before the core knows it; afterwards only the core accesses it.
unsafe impl Sync for Client {}

static CLIENT: Client = Client(UnsafeCell::new(
    // SAFETY: Consists of numbers, pointers and optional functions.
    unsafe { core::mem::zeroed() },
));

struct Devices(UnsafeCell<*mut kb::dentry>);

// SAFETY: Written only while the module loads, before the core knows the client.
unsafe impl Sync for Devices {}

static DEVICES: Devices = Devices(UnsafeCell::new(ptr::null_mut()));

static DEVICE: FileOps = file_ops(open_device, None);

/// Begins to show the devices.
///
/// # Errors
///
/// The error of the RDMA core.
///
/// # Safety
///
/// Called once, when the module loads, after [`debugfs::start`].
pub(crate) unsafe fn start() -> Result {
    let client = CLIENT.0.get();
    // SAFETY: Nobody else uses the statics yet; the client is static.
    to_result(unsafe {
        *DEVICES.0.get() = debugfs::folder(c"devices");
        (*client).name = c"ib_sdp".as_char_ptr();
        (*client).add = Some(add);
        (*client).remove = Some(remove);
        (*client).rename = Some(rename);
        bindings::ib_register_client(client)
    })
}

/// Removes the files; waits for their readers.
pub(crate) fn stop() {
    // SAFETY: Registered by `start`.
    unsafe { bindings::ib_unregister_client(CLIENT.0.get()) };
}

/// Creates the file of a device, and stores it in the core's data of the device.
///
/// # Safety
///
/// Called while the core reports the device.
unsafe fn show(device: *mut bindings::ib_device) {
    // SAFETY: The name is a C string, which debugfs copies; the operations are static, and belong
    // to files of devices. The file is removed before the device.
    let file = unsafe {
        kb::debugfs_create_file_full(
            bindings::ib_device_name(device.cast()),
            READ_ONLY,
            *DEVICES.0.get(),
            device.cast(),
            ptr::null(),
            DEVICE.as_ptr(),
        )
    };
    // Without debugfs the result is an error, and no file is stored.
    let file = from_err_ptr(file).unwrap_or(ptr::null_mut());
    // SAFETY: As the caller promises.
    unsafe { bindings::ib_set_client_data(device, CLIENT.0.get(), file.cast()) };
}

/// # Safety
///
/// Called only by the core, with which it was registered, with valid arguments.
unsafe extern "C" fn add(device: *mut bindings::ib_device) -> kernel::ffi::c_int {
    // SAFETY: As the core promises.
    unsafe {
        show(device);
        if !Abilities::of(device).can_connect() {
            let name = CStr::from_char_ptr(bindings::ib_device_name(device.cast()));
            pr_warn!("{name}: fewer than two memory ranges in a send or receive, cannot be used\n");
        }
        if is_iwarp(device) {
            tcp_port::iwarp_added();
        }
    }
    0
}

/// # Safety
///
/// `device` is valid.
unsafe fn is_iwarp(device: *mut bindings::ib_device) -> bool {
    // SAFETY: As the caller promises; each device has a first port.
    unsafe {
        bindings::rdma_protocol_iwarp(device.cast(), bindings::rdma_start_port(device.cast()))
    }
}

/// # Safety
///
/// As [`add`].
unsafe extern "C" fn remove(device: *mut bindings::ib_device, file: *mut c_void) {
    // SAFETY: As the core promises.
    if unsafe { is_iwarp(device) } {
        tcp_port::iwarp_removed();
    }
    // SAFETY: Created by `show`, or null, which the function accepts. It waits for readers.
    unsafe { kb::debugfs_remove(file.cast()) };
}

/// # Safety
///
/// As [`add`].
unsafe extern "C" fn rename(device: *mut bindings::ib_device, file: *mut c_void) {
    // SAFETY: Created by `show`, or null, which the function accepts. The name is a C string. If
    // the function fails, the file keeps its name.
    unsafe {
        kb::debugfs_change_name(
            file.cast(),
            c"%s".as_char_ptr(),
            bindings::ib_device_name(device.cast()),
        );
    }
}

/// # Safety
///
/// As [`add`].
unsafe extern "C" fn open_device(inode: *mut kb::inode, file: *mut kb::file) -> i32 {
    if !has_started() {
        return EAGAIN.to_errno();
    }
    // SAFETY: The core passes a file of ours.
    unsafe { kb::single_open(file, Some(show_device), (*inode).i_private) }
}

fn yes_no(yes: bool) -> &'static str {
    if yes {
        "yes"
    } else {
        "no"
    }
}

/// # Safety
///
/// As [`add`].
unsafe extern "C" fn show_device(m: *mut kb::seq_file, _v: *mut c_void) -> i32 {
    // SAFETY: The core passes a valid file of this folder, whose device exists: debugfs removes the
    // file first.
    let (out, device) = unsafe {
        (
            SeqFile::from_raw(m),
            (*m).private.cast::<bindings::ib_device>(),
        )
    };
    // SAFETY: As above.
    let can = unsafe { Abilities::of(device) };
    seq_print!(
        out,
        "soft_roce {}\n",
        yes_no(can.driver == Driver::SoftRoce)
    );
    seq_print!(out, "send_sge {}\n", can.send_sge);
    seq_print!(out, "recv_sge {}\n", can.recv_sge);
    seq_print!(out, "read_sge {}\n", can.read_sge);
    seq_print!(out, "registers {}\n", yes_no(can.registers));
    seq_print!(out, "region_pages {}\n", can.region_pages);
    seq_print!(out, "reads {}\n", can.reads);
    seq_print!(out, "connections {}\n", yes_no(can.can_connect()));
    // SAFETY: As above.
    let ports = unsafe {
        bindings::rdma_start_port(device.cast())..=bindings::rdma_end_port(device.cast())
    };
    for port in ports {
        // SAFETY: As above; a port of the device.
        unsafe { show_port(out, device, port, &can) };
    }
    0
}

/// # Safety
///
/// `device` is valid and has the port.
unsafe fn show_port(out: &SeqFile, device: *mut bindings::ib_device, port: u32, can: &Abilities) {
    let mut attr = bindings::ib_port_attr::default();
    // SAFETY: As the caller promises.
    let (result, iwarp) = unsafe {
        (
            bindings::ib_query_port(device, port, &raw mut attr),
            bindings::rdma_protocol_iwarp(device.cast(), port),
        )
    };
    if result != 0 {
        return seq_print!(out, "port {port} unknown: error {}\n", -result);
    }
    let state = match attr.state {
        bindings::ib_port_state_IB_PORT_DOWN => "down",
        bindings::ib_port_state_IB_PORT_INIT => "init",
        bindings::ib_port_state_IB_PORT_ARMED => "armed",
        bindings::ib_port_state_IB_PORT_ACTIVE => "active",
        _ => "other",
    };
    // The number 1 stands for 256 bytes.
    let mtu = match attr.active_mtu {
        0 => 0,
        n => 128_u32.checked_shl(n).unwrap_or(0),
    };
    seq_print!(out, "port {port} {state}\n");
    seq_print!(out, "port {port} mtu {mtu}\n");
    seq_print!(out, "port {port} iwarp {}\n", yes_no(iwarp));
    match can.no_adverts() {
        None => seq_print!(out, "port {port} zero_copy {} pages\n", can.advert_pages()),
        Some(why) => seq_print!(out, "port {port} zero_copy no: {why}\n"),
    }
}
