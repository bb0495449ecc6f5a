// SPDX-License-Identifier: GPL-2.0

//! `ib_sdp/` in debugfs: the module's folder, and folders of objects in it.
//!
//! When debugfs removes a file, it waits for the readers of the file, and admits no new ones: so a
//! file can refer to an object without a reference if the folder is removed before the object is
//! freed. An open file holds the module.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::ptr;

use kernel::bindings;
use kernel::prelude::*;
use kernel::str::{
    CStr,
    CString, //
};

use super::module::this_module;

/// Only the owner, root, may read.
pub(crate) const READ_ONLY: u16 = 0o400;
/// Only the owner, root, may read and write.
pub(crate) const READ_WRITE: u16 = 0o600;

struct Root(UnsafeCell<*mut bindings::dentry>);

// SAFETY: Written only while the module loads or unloads, when there is no other user.
unsafe impl Sync for Root {}

static ROOT: Root = Root(UnsafeCell::new(ptr::null_mut()));

/// The operations of a file.
pub(crate) struct FileOps(bindings::file_operations);

// SAFETY: Nobody changes them.
unsafe impl Sync for FileOps {}

impl FileOps {
    pub(crate) fn as_ptr(&self) -> *const bindings::file_operations {
        &raw const self.0
    }
}

/// Operations of a file that `open` opens by `single_open()`.
pub(crate) const fn file_ops(open: Open, write: Option<Write>) -> FileOps {
    FileOps(bindings::file_operations {
        owner: this_module(),
        open: Some(open),
        read: Some(bindings::seq_read),
        llseek: Some(bindings::seq_lseek),
        release: Some(bindings::single_release),
        write,
        ..pin_init::zeroed()
    })
}

pub(crate) type Open =
    unsafe extern "C" fn(*mut bindings::inode, *mut bindings::file) -> kernel::ffi::c_int;
pub(crate) type Write = unsafe extern "C" fn(
    *mut bindings::file,
    *const kernel::ffi::c_char,
    usize,
    *mut bindings::loff_t,
) -> isize;

/// Creates the folder of the module. It is no error if debugfs is not available.
///
/// # Safety
///
/// Called once, when the module loads, before the first folder in it.
pub(crate) unsafe fn start() {
    // SAFETY: The name is a C string; nobody else uses `ROOT` yet.
    unsafe {
        *ROOT.0.get() = bindings::debugfs_create_dir(c"ib_sdp".as_char_ptr(), ptr::null_mut());
    }
}

/// Creates a folder in the module's folder.
///
/// # Safety
///
/// [`start`] was called, and [`stop`] was not.
pub(crate) unsafe fn folder(name: &CStr) -> *mut bindings::dentry {
    // SAFETY: The name is a C string, which debugfs copies. An error pointer is accepted as a
    // folder.
    unsafe { bindings::debugfs_create_dir(name.as_char_ptr(), *ROOT.0.get()) }
}

/// Removes the module's folder, after the last folder in it.
pub(crate) fn stop() {
    // SAFETY: Created by `start`, or an error pointer, which the function also accepts.
    unsafe { bindings::debugfs_remove(*ROOT.0.get()) };
}

/// A file of an object's folder.
pub(crate) struct File {
    pub(crate) name: &'static CStr,
    pub(crate) mode: u16,
    pub(crate) ops: &'static FileOps,
}

/// Objects that have a folder. The code that creates the folder does not know the content of the
/// files.
///
/// # Safety
///
/// The operations of the files take a `Self` as the data of the file, and any thread may read it.
pub(crate) unsafe trait HasFolder {
    /// The files of the folder.
    fn files() -> &'static [File];
}

/// The folder of an object. Dropping it waits for the readers of its files.
pub(crate) struct Folder(*mut bindings::dentry);

// SAFETY: Any thread may remove it.
unsafe impl Send for Folder {}

impl Folder {
    /// Creates the folder, with a number as its name; sleeps. If there is no memory for a file, the
    /// file is missing.
    ///
    /// # Safety
    ///
    /// The object outlives the value. [`start`] was called, and [`stop`] is not called before the
    /// value is dropped.
    pub(crate) unsafe fn new<T: HasFolder>(object: &T, number: u64) -> Option<Self> {
        let name = CString::try_from_fmt(fmt!("{number}")).ok()?;
        let data = ptr::from_ref(object).cast_mut().cast::<c_void>();
        // SAFETY: The names are C strings, which debugfs copies. The operations are static and
        // belong to files of such objects. Error pointers are accepted as folders.
        unsafe {
            let folder = folder(&name);
            for file in T::files() {
                bindings::debugfs_create_file_full(
                    file.name.as_char_ptr(),
                    file.mode,
                    folder,
                    data,
                    ptr::null(),
                    file.ops.as_ptr(),
                );
            }
            Some(Self(folder))
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // SAFETY: Created by `new`, and removed once.
        unsafe { bindings::debugfs_remove(self.0) };
    }
}
