// SPDX-License-Identifier: GPL-2.0
//! A folder for sockets, which is removed with the test.

use std::path::PathBuf;

/// The folder.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    /// A new folder for the test `name`.
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir(&path).expect("a folder for sockets");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
