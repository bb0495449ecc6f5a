// SPDX-License-Identifier: GPL-2.0
//! `libprofile.so`: a plugin of QEMU's TCG that counts the instructions that a machine executes, by address.
//!
//! QEMU translates a machine's code in blocks, and calls the plugin for each block. The plugin adds an inline
//! operation to the block: each execution adds the number of the block's instructions to the counter of the block's
//! address. So all instructions are counted, also those of interrupt handlers, and the machine does not notice. If an
//! exception ends a block early, the rest of the block is counted too.
//!
//! `-plugin libprofile.so,socket=PATH`: for each connection to the socket, the plugin writes a line for each counter
//! (the block's address in hexadecimal, and the number of instructions so far), and closes the connection. All
//! addresses of user space share the counter of the address 0. Blocks for which no counter is left share the counter
//! of the last address.

mod sys;

use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void, CStr};
use std::io::{BufWriter, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Mutex, PoisonError};

/// The version of the interface that the plugin uses. QEMU reads the variable, and refuses versions that QEMU does
/// not serve.
#[no_mangle]
#[allow(non_upper_case_globals)]
pub static qemu_plugin_version: c_int = sys::VERSION;

/// Counters for each processor: 2 MiB.
const COUNTERS: usize = 1 << 18;
/// The first address of the kernel.
const KERNEL: u64 = 1 << 63;
/// The addresses of user space.
const PROGRAMS: u64 = 0;
/// The addresses for which no counter was left.
const OTHERS: u64 = u64::MAX;

/// The addresses that have a counter, and the index of the counter of each address.
struct Addresses {
    all: Vec<u64>,
    indices: HashMap<u64, usize>,
}

impl Addresses {
    fn new() -> Self {
        let all = vec![PROGRAMS, OTHERS];
        let indices = all
            .iter()
            .enumerate()
            .map(|(index, &address)| (address, index))
            .collect();
        Self { all, indices }
    }

    /// The index of the counter of a block.
    fn index(&mut self, block: u64) -> usize {
        let address = if block < KERNEL { PROGRAMS } else { block };
        let next = self.all.len();
        match self.indices.get(&address) {
            Some(&index) => index,
            None if next < COUNTERS => {
                self.all.push(address);
                self.indices.insert(address, next);
                next
            }
            None => self.indices[&OTHERS],
        }
    }
}

/// The state of the plugin, which lives as long as QEMU.
struct Profile {
    /// Has [`COUNTERS`] counters of u64 for each processor.
    scoreboard: *mut sys::Scoreboard,
    addresses: Mutex<Addresses>,
}

// SAFETY: The scoreboard is only an argument of QEMU's functions, which any thread may call.
unsafe impl Sync for Profile {}

impl Profile {
    fn addresses<T>(&self, f: impl FnOnce(&mut Addresses) -> T) -> T {
        f(&mut self
            .addresses
            .lock()
            .unwrap_or_else(PoisonError::into_inner))
    }

    fn counter(&self, index: usize) -> sys::Counter {
        sys::Counter {
            scoreboard: self.scoreboard,
            offset: index * size_of::<u64>(),
        }
    }

    /// Writes the counters to a connection, while the machine goes on.
    fn write(&self, to: &UnixStream) -> std::io::Result<()> {
        let mut to = BufWriter::new(to);
        for (index, address) in self
            .addresses(|addresses| addresses.all.clone())
            .iter()
            .enumerate()
        {
            // SAFETY: The scoreboard has a counter of this index, and lives as long as QEMU. A processor may add to
            // the counter meanwhile; the result is the value before or after the addition.
            let count = unsafe { sys::qemu_plugin_u64_sum(self.counter(index)) };
            writeln!(to, "{address:x} {count}")?;
        }
        to.flush()
    }

    fn serve(&self, listener: &UnixListener) {
        for connection in listener.incoming() {
            if let Err(error) = connection.and_then(|to| self.write(&to)) {
                eprintln!("profile: a connection did not get all counters: {error}");
            }
        }
    }
}

/// QEMU has translated a block.
///
/// # Safety
///
/// `block` is valid during the call, and `profile` points to the plugin's [`Profile`].
unsafe extern "C" fn translated(block: *mut sys::Block, profile: *mut c_void) {
    // SAFETY: By the contract of this function.
    let (profile, address, instructions) = unsafe {
        (
            &*profile.cast::<Profile>(),
            sys::qemu_plugin_tb_vaddr(block),
            sys::qemu_plugin_tb_n_insns(block),
        )
    };
    let counter = profile.counter(profile.addresses(|addresses| addresses.index(address)));
    // SAFETY: The block is valid. The counter belongs to a scoreboard that lives as long as QEMU.
    unsafe {
        sys::qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(
            block,
            sys::ADD_U64,
            counter,
            instructions as u64,
        );
    }
}

/// The path of the option `socket=PATH`, which must be the only one.
///
/// # Safety
///
/// `options` points to `count` C strings.
unsafe fn socket(count: c_int, options: *mut *mut c_char) -> Option<String> {
    if count != 1 {
        return None;
    }
    // SAFETY: By the contract of this function there is one C string.
    let option = unsafe { CStr::from_ptr(*options) };
    option
        .to_str()
        .ok()?
        .strip_prefix("socket=")
        .map(String::from)
}

/// QEMU has loaded the plugin. If the result is not 0, QEMU ends.
///
/// # Safety
///
/// `options` points to `count` C strings.
#[no_mangle]
pub unsafe extern "C" fn qemu_plugin_install(
    plugin: u64,
    _about: *const c_void,
    count: c_int,
    options: *mut *mut c_char,
) -> c_int {
    // SAFETY: By the contract of this function.
    let Some(path) = (unsafe { socket(count, options) }) else {
        eprintln!("profile: usage: -plugin libprofile.so,socket=PATH");
        return -1;
    };
    let listener = match UnixListener::bind(&path) {
        Ok(listener) => listener,
        Err(error) => {
            eprintln!("profile: {path}: {error}");
            return -1;
        }
    };
    // SAFETY: QEMU calls this function when plugins may call QEMU.
    let scoreboard = unsafe { sys::qemu_plugin_scoreboard_new(COUNTERS * size_of::<u64>()) };
    let profile: &'static Profile = Box::leak(Box::new(Profile {
        scoreboard,
        addresses: Mutex::new(Addresses::new()),
    }));
    std::thread::spawn(move || profile.serve(&listener));
    let data: *const Profile = profile;
    // SAFETY: QEMU passes valid blocks and `data` to `translated`, as its contract demands. The profile is never
    // freed, and is only read through the pointer.
    unsafe {
        sys::qemu_plugin_register_vcpu_tb_trans_cb(plugin, translated, data.cast_mut().cast());
    };
    0
}
