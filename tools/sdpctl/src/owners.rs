// SPDX-License-Identifier: GPL-2.0

//! Owners of sockets, from `/proc`; only root sees processes of other users.

use std::collections::BTreeMap;
use std::fs;

use serde::Serialize;

/// A process that has a socket open.
#[derive(Clone, Debug, Serialize, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Owner {
    pub(crate) name: String,
    pub(crate) pid: u32,
    pub(crate) fd: u32,
}

/// The processes of each socket, by inode.
pub(crate) fn all() -> BTreeMap<u64, Vec<Owner>> {
    let mut owners: BTreeMap<u64, Vec<Owner>> = BTreeMap::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|n| n.parse().ok()) else {
            continue;
        };
        // The process may belong to another user or have ended.
        let Ok(files) = fs::read_dir(process.path().join("fd")) else {
            continue;
        };
        let mut name = None;
        for file in files.flatten() {
            let target = fs::read_link(file.path()).unwrap_or_default();
            let Some(inode) = target.to_str().and_then(inode_of) else {
                continue;
            };
            let Some(fd) = file.file_name().to_str().and_then(|n| n.parse().ok()) else {
                continue;
            };
            let name = name.get_or_insert_with(|| {
                let comm = fs::read(process.path().join("comm")).unwrap_or_default();
                printable(&comm)
            });
            owners.entry(inode).or_default().push(Owner {
                name: name.clone(),
                pid,
                fd,
            });
        }
    }
    for of_one in owners.values_mut() {
        of_one.sort();
    }
    owners
}

/// A program's name without control characters: programs can choose any name.
fn printable(comm: &[u8]) -> String {
    let name = String::from_utf8_lossy(comm.strip_suffix(b"\n").unwrap_or(comm));
    name.replace(char::is_control, "?")
}

/// The inode in `socket:[123]`.
fn inode_of(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?
        .strip_suffix(']')?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_links() {
        assert_eq!(inode_of("socket:[123]"), Some(123));
        for other in ["pipe:[1]", "socket:[]", "socket:[1", "socket:[-1]", ""] {
            assert_eq!(inode_of(other), None);
        }
    }

    #[test]
    fn names_do_not_command_terminals() {
        assert_eq!(printable(b"nc\n"), "nc");
        assert_eq!(printable(b"\x1b]0;a\x07\xffb\n\n"), "?]0;a?\u{fffd}b?");
    }

    #[test]
    fn finds_a_socket_of_this_process() {
        let before = all();
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let me = std::process::id();
        let count = |owners: &BTreeMap<u64, Vec<Owner>>| {
            let fd = std::os::fd::AsRawFd::as_raw_fd(&socket).unsigned_abs();
            let mine = |o: &&Owner| o.pid == me && o.fd == fd;
            owners.values().flatten().filter(mine).count()
        };
        assert_eq!(count(&all()), 1);
        drop(before);
    }
}
