// SPDX-License-Identifier: GPL-2.0

//! The limits of the connections of a network namespace and of a user.
//!
//! A connection takes memory that no other limit counts: its queues, and the state that the RDMA CM
//! keeps. A user has one count for all namespaces, so a new namespace does not increase the limit.

use core::ptr::NonNull;

use kernel::pr_warn_once;
use kernel::prelude::*;
use kernel::rbtree::RBTree;
use kernel::sync::atomic::{
    ordering::Relaxed,
    Atomic, //
};
use kernel::sync::global_lock;

use super::netns::Net;
use super::sock::Sk;
use super::sysctl::Setting;
use crate::bindings;
use crate::kern::errno::ENOBUFS;
use crate::stats::counters::Counter;

/// Pages of memory for each possible connection, if the administrator has set no limit. With
/// soft-RoCE's queues, one end of an idle connection takes 64 KiB, and 51 KiB when memory is short
/// (`scripts/bench memory`): 51 of 80 KiB, so more than a third of the memory is left for other
/// uses.
const PAGES_PER_CONNECTION: u64 = 20;
/// One user may have a half of the possible connections, and a quarter of them may be orphans.
const USERS_SHARE: i32 = 2;
const ORPHANS_SHARE: i32 = 4;

/// The connection counts of a namespace.
pub(super) struct Occupancy {
    connections: Atomic<i32>,
    /// The connections that peers have requested and that are not established yet.
    half_open: Atomic<i32>,
    orphans: Atomic<i32>,
}

impl Occupancy {
    pub(super) const fn new() -> Self {
        Self {
            connections: Atomic::new(0),
            half_open: Atomic::new(0),
            orphans: Atomic::new(0),
        }
    }
}

global_lock! {
    // SAFETY: Initialised in `init`, before the first use.
    unsafe(uninit) static USERS: Mutex<Option<RBTree<u32, i32>>> = None;
}

/// Initialises the lock.
///
/// # Safety
///
/// Called once, before every other function of this module.
pub(crate) unsafe fn init() {
    // SAFETY: As the caller promises.
    unsafe { USERS.init() };
}

/// The place of a connection in the counts of its namespace and its user.
///
/// # Invariants
///
/// The namespace stays valid: the value is part of a connection, whose socket holds the namespace.
pub(crate) struct Place {
    net: NonNull<bindings::net>,
    user: u32,
    is_half_open: bool,
    is_orphan: bool,
}

// SAFETY: The counts may be changed on any CPU.
unsafe impl Send for Place {}

impl Place {
    /// Takes a place for a connection of `sk`. The connection drops the place before the socket
    /// releases its namespace.
    ///
    /// # Errors
    ///
    /// `ENOBUFS` if the limit of the namespace, or of the user, is reached; `ENOMEM`.
    pub(crate) fn take(sk: Sk) -> Result<Self> {
        let net = sk.net();
        let most = most_of(net, Setting::MaxConnections);
        if !count_up(&net.occupancy().connections, most) {
            net.stats().inc(Counter::RefusedMaxConnections);
            pr_warn_once!("max_connections: {most} connections, more are refused\n");
            return Err(ENOBUFS);
        }
        // If the place is dropped after an error, the count of the namespace is decreased again.
        let mut place = Self {
            net: NonNull::new(net.as_ptr()).ok_or(ENOBUFS)?,
            user: ROOT,
            is_half_open: false,
            is_orphan: false,
        };
        let most_of_user = most_of(net, Setting::MaxUserConnections);
        let user = sk.uid();
        if user != ROOT && !count_user_up(user, most_of_user)? {
            net.stats().inc(Counter::RefusedMaxUserConnections);
            pr_warn_once!(
                "max_user_connections: user {user} has {most_of_user}, more are refused\n"
            );
            return Err(ENOBUFS);
        }
        place.user = user;
        Ok(place)
    }

    /// As [`Place::take`], for a connection that a peer has requested from the listener `sk`, until
    /// [`Place::complete`].
    ///
    /// # Errors
    ///
    /// As [`Place::take`].
    pub(crate) fn take_half_open(sk: Sk) -> Result<Self> {
        let mut place = Self::take(sk)?;
        place.net().occupancy().half_open.fetch_add(1, Relaxed);
        place.is_half_open = true;
        Ok(place)
    }

    /// The connection is established, or has ended.
    pub(crate) fn complete(&mut self) {
        if core::mem::take(&mut self.is_half_open) {
            self.net().occupancy().half_open.fetch_sub(1, Relaxed);
        }
    }

    /// Counts the connection as one without a program.
    ///
    /// # Errors
    ///
    /// `ENOBUFS` if its namespace has reached the limit of such connections.
    pub(crate) fn become_orphan(&mut self) -> Result {
        if self.is_orphan {
            return Ok(());
        }
        let net = self.net();
        let most = most_of(net, Setting::MaxOrphans);
        if !count_up(&net.occupancy().orphans, most) {
            net.stats().inc(Counter::AbortedMaxOrphans);
            // TCP logs the same text, with the same rate limit.
            // SAFETY: No precondition.
            if unsafe { bindings::net_ratelimit() } != 0 {
                pr_info!("max_orphans: too many orphaned sockets ({most}), more are aborted\n");
            }
            return Err(ENOBUFS);
        }
        self.is_orphan = true;
        Ok(())
    }

    fn net(&self) -> Net<'_> {
        // SAFETY: By the type invariant.
        unsafe { Net::from_raw(self.net.as_ptr()) }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.complete();
        let occupancy = self.net().occupancy();
        occupancy.connections.fetch_sub(1, Relaxed);
        if self.is_orphan {
            occupancy.orphans.fetch_sub(1, Relaxed);
        }
        if self.user != ROOT {
            count_user_down(self.user);
        }
    }
}

/// Whether half-open connections of the namespace keep its last place. Such a connection is either
/// established or ends within seconds.
pub(crate) fn half_open_fill(net: Net<'_>) -> bool {
    let occupancy = net.occupancy();
    let is_full = occupancy.connections.load(Relaxed) >= most_of(net, Setting::MaxConnections);
    is_full && occupancy.half_open.load(Relaxed) > 0
}

/// The machine's administrator, who has no limit as a user.
const ROOT: u32 = 0;

/// Increases the count, unless it is already `most`.
fn count_up(count: &Atomic<i32>, most: i32) -> bool {
    if count.fetch_add(1, Relaxed) < most {
        return true;
    }
    count.fetch_sub(1, Relaxed);
    false
}

fn count_user_up(user: u32, most: i32) -> Result<bool> {
    let mut users = USERS.lock();
    let users = users.get_or_insert_with(RBTree::new);
    if let Some(count) = users.get_mut(&user) {
        if *count >= most {
            return Ok(false);
        }
        *count += 1;
        return Ok(true);
    }
    if most < 1 {
        return Ok(false);
    }
    users.try_create_and_insert(user, 1, GFP_KERNEL)?;
    Ok(true)
}

fn count_user_down(user: u32) {
    let mut users = USERS.lock();
    let Some(users) = users.as_mut() else { return };
    let left = users.get_mut(&user).map_or(1, |count| {
        *count -= 1;
        *count
    });
    if left == 0 {
        users.remove(&user);
    }
}

/// A limit, as shown to users.
pub(crate) struct Shown {
    pub(crate) name: &'static str,
    /// The maximum number of connections that applies.
    pub(crate) most: i32,
    /// The number of connections.
    pub(crate) in_use: i32,
}

/// The limits of the namespace. For root, the number of connections of a user is that of the user
/// with the most connections; other readers get their own number, because the connections of all
/// namespaces count.
pub(crate) fn shown(net: Net<'_>, reader: u32) -> [Shown; 3] {
    let occupancy = net.occupancy();
    let of_users = {
        let users = USERS.lock();
        users.as_ref().map_or(0, |users| match reader {
            ROOT => users.values().copied().max().unwrap_or(0),
            user => users.get(&user).copied().unwrap_or(0),
        })
    };
    [
        (
            "max_connections",
            Setting::MaxConnections,
            occupancy.connections.load(Relaxed),
        ),
        (
            "max_user_connections",
            Setting::MaxUserConnections,
            of_users,
        ),
        (
            "max_orphans",
            Setting::MaxOrphans,
            occupancy.orphans.load(Relaxed),
        ),
    ]
    .map(|(name, limit, in_use)| Shown {
        name,
        most: most_of(net, limit),
        in_use,
    })
}

/// The administrator's value of a limit, or, for 0, a value that depends on the machine's memory.
pub(super) fn most(limit: Setting, said: i32) -> i32 {
    if said != 0 {
        return said;
    }
    // SAFETY: No precondition.
    let pages = unsafe { bindings::nr_free_buffer_pages() } as u64;
    let connections = i32::try_from(pages / PAGES_PER_CONNECTION).unwrap_or(i32::MAX);
    match limit {
        Setting::MaxUserConnections => connections / USERS_SHARE,
        Setting::MaxOrphans => connections / ORPHANS_SHARE,
        _ => connections,
    }
}

/// As [`most`], of the namespace.
fn most_of(net: Net<'_>, limit: Setting) -> i32 {
    most(limit, net.settings().get(limit))
}
