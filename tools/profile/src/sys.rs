// SPDX-License-Identifier: GPL-2.0
//! The functions of QEMU's plugin interface that the plugin calls (`qemu-plugin.h`), in version 7, which QEMU has
//! since 11.1. QEMU 11.1 serves no older version. The crate qemu-plugin-sys (10.1.0) ends with version 5, which has
//! another type of the callback for translated blocks.

use std::ffi::{c_int, c_void};

/// `QEMU_PLUGIN_VERSION`.
pub(crate) const VERSION: c_int = 7;

/// `QEMU_PLUGIN_INLINE_ADD_U64` of `enum qemu_plugin_op`.
pub(crate) const ADD_U64: c_int = 0;

/// `struct qemu_plugin_tb`: a block of translated code.
#[repr(C)]
pub(crate) struct Block([u8; 0]);

/// `struct qemu_plugin_scoreboard`: an element for each processor.
#[repr(C)]
pub(crate) struct Scoreboard([u8; 0]);

/// `qemu_plugin_u64`: a u64 at an offset in each element of a scoreboard.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Counter {
    pub(crate) scoreboard: *mut Scoreboard,
    pub(crate) offset: usize,
}

/// `qemu_plugin_vcpu_tb_trans_cb_t`.
pub(crate) type Translated = unsafe extern "C" fn(block: *mut Block, data: *mut c_void);

extern "C" {
    pub(crate) fn qemu_plugin_register_vcpu_tb_trans_cb(
        plugin: u64,
        callback: Translated,
        data: *mut c_void,
    );
    pub(crate) fn qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(
        block: *mut Block,
        operation: c_int,
        counter: Counter,
        operand: u64,
    );
    pub(crate) fn qemu_plugin_tb_vaddr(block: *const Block) -> u64;
    pub(crate) fn qemu_plugin_tb_n_insns(block: *const Block) -> usize;
    pub(crate) fn qemu_plugin_scoreboard_new(element_size: usize) -> *mut Scoreboard;
    pub(crate) fn qemu_plugin_u64_sum(counter: Counter) -> u64;
}
