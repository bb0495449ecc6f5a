// SPDX-License-Identifier: GPL-2.0

//! A TCP socket that takes the place of a socket of the module, when SDP cannot reach the peer.
//!
//! The file of the program then refers to the TCP socket, as the fallback of SMC does it
//! (`smc_switch_to_fallback()` in `net/smc/af_smc.c`): system calls that begin later use TCP, with
//! nothing in between. The inode of the file still belongs to the socket of the module. So the core
//! releases the socket of the module when the file is closed, and the module then releases the TCP
//! socket.

use core::mem::{
    size_of,
    size_of_val, //
};
use core::ptr::{
    self,
    NonNull, //
};

use kernel::error::to_result;
use kernel::prelude::*;
use kernel::sync::rcu;
use kernel::types::Opaque;

use super::addr::{
    Addr,
    Storage, //
};
use super::sock::Sk;
use crate::bindings;
use crate::kern::barrier::smp_wmb;
use crate::kern::errno::EINPROGRESS;

/// A TCP socket, with the settings of a socket of the module, that can take the place of that
/// socket.
///
/// # Invariants
///
/// `tcp` is a valid socket of TCP, which the value owns. If `replaced` is not null, it is the
/// socket whose place the TCP socket has, and lives at least as long as the value; `entry` is then
/// in the wait queue of `tcp`.
pub(crate) struct TcpClient {
    tcp: NonNull<bindings::socket>,
    replaced: *mut bindings::socket,
    entry: Opaque<kernel::bindings::wait_queue_entry>,
}

// SAFETY: Sockets may be used from any thread. The lock of the wait queue protects `entry`, and the
// other fields change only by `&mut self`.
unsafe impl Send for TcpClient {}

/// Flags of a socket, and the socket options that set them.
const FLAGS: [(bindings::sock_flags, u32); 3] = [
    (bindings::sock_flags_SOCK_KEEPOPEN, bindings::SO_KEEPALIVE),
    (bindings::sock_flags_SOCK_URGINLINE, bindings::SO_OOBINLINE),
    (bindings::sock_flags_SOCK_ZEROCOPY, bindings::SO_ZEROCOPY),
];

/// SO_TIMESTAMPING with its flags, if the program has set any.
fn timestamping(sk: Sk) -> Option<(u32, i32)> {
    let name = match sk.has_flag(bindings::sock_flags_SOCK_TSTAMP_NEW) {
        true => bindings::SO_TIMESTAMPING_NEW,
        false => bindings::SO_TIMESTAMPING_OLD,
    };
    // TCP refuses OPT_ID on a socket without a connection, and OPT_ID_TCP without OPT_ID. BIND_PHC
    // needs the number of a clock.
    let refused = bindings::SOF_TIMESTAMPING_OPT_ID
        | bindings::SOF_TIMESTAMPING_OPT_ID_TCP
        | bindings::SOF_TIMESTAMPING_BIND_PHC;
    match sk.timestamping() & !refused {
        0 => None,
        flags => Some((name, flags as i32)),
    }
}

/// The option that has set the time stamps of received bytes, if the program has set one.
fn timestamps(sk: Sk) -> Option<u32> {
    let [on, ns, new] = [
        bindings::sock_flags_SOCK_RCVTSTAMP,
        bindings::sock_flags_SOCK_RCVTSTAMPNS,
        bindings::sock_flags_SOCK_TSTAMP_NEW,
    ]
    .map(|flag| sk.has_flag(flag));
    on.then_some(match (ns, new) {
        (false, false) => bindings::SO_TIMESTAMP_OLD,
        (true, false) => bindings::SO_TIMESTAMPNS_OLD,
        (false, true) => bindings::SO_TIMESTAMP_NEW,
        (true, true) => bindings::SO_TIMESTAMPNS_NEW,
    })
}

impl TcpClient {
    /// A new TCP socket in the namespace of `sk`, created and bound for the current program, as
    /// `sk` is. Security modules and BPF programs check the creation. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of socket() and bind(): for example `EADDRINUSE` if a TCP socket has the port.
    pub(crate) fn new(sk: Sk) -> Result<KBox<Self>> {
        let mut tcp = ptr::null_mut();
        let (family, kind) = (sk.family(), bindings::sock_type_SOCK_STREAM);
        // Allocated first, because a value that is dropped releases its socket.
        let room = KBox::new_uninit(GFP_KERNEL)?;
        // SAFETY: The namespace lives as long as the socket.
        to_result(unsafe {
            bindings::__sock_create(
                sk.net().as_ptr(),
                family.into(),
                kind as i32,
                bindings::IPPROTO_TCP as i32,
                &raw mut tcp,
                0,
            )
        })?;
        let tcp = NonNull::new(tcp).ok_or(EINVAL)?;
        // INVARIANT: The socket was created above.
        let this = KBox::write(
            room,
            Self {
                tcp,
                replaced: ptr::null_mut(),
                entry: Opaque::uninit(),
            },
        );
        this.set(bindings::SO_REUSEADDR, &i32::from(sk.reuse()))?;
        this.set(bindings::SO_REUSEPORT, &i32::from(sk.reuseport()))?;
        this.set(bindings::SO_BINDTOIFINDEX, &sk.bound_dev())?;
        // SAFETY: Both are valid `inet_sock`s; nobody else uses the new one.
        unsafe {
            let (from, to) = (sk.as_ptr(), this.sk());
            let (from, to) = (
                from.cast::<bindings::inet_sock>(),
                to.cast::<bindings::inet_sock>(),
            );
            (*to).local_port_range = ptr::read_volatile(&raw const (*from).local_port_range);
        }
        if sk.is_v6() {
            let v6only = i32::from(sk.v6only());
            this.set_at(bindings::SOL_IPV6, bindings::IPV6_V6ONLY, &v6only)?;
        }
        let by_user = bindings::SOCK_BINDADDR_LOCK | bindings::SOCK_BINDPORT_LOCK;
        if sk.user_locked(by_user) || sk.num() != 0 {
            let own = match sk.bound_addr() {
                any if any.is_any() && !sk.is_v6() => Addr::v4([0; 4], 0),
                other => other,
            };
            let mut own = own.with_port(sk.num()).to_storage(sk.is_v6());
            // SAFETY: The socket is valid, and the address is complete.
            to_result(unsafe {
                match (*this.ops()).bind {
                    Some(bind) => bind(tcp.as_ptr(), own.as_mut_ptr().cast(), len_of(&own)),
                    None => EINVAL.to_errno(),
                }
            })?;
        }
        Ok(this)
    }

    fn ops(&self) -> *const bindings::proto_ops {
        // SAFETY: By the type invariant the socket is valid. An upper-layer protocol may change the
        // operations at any time.
        unsafe { ptr::read_volatile(&raw const (*self.tcp.as_ptr()).ops) }
    }

    fn sk(&self) -> *mut bindings::sock {
        // SAFETY: By the type invariant the socket is valid.
        unsafe { (*self.tcp.as_ptr()).sk }
    }

    /// The TCP socket, for calls that do not hold a lock.
    pub(crate) fn socket(&self) -> NonNull<bindings::socket> {
        self.tcp
    }

    /// Whether the TCP socket has the place of the socket of the module.
    pub(crate) fn is_in_place(&self) -> bool {
        !self.replaced.is_null()
    }

    /// Sets an option of the TCP socket at the level SOL_SOCKET.
    fn set<T: Copy>(&self, name: u32, value: &T) -> Result {
        let from = ptr::from_ref(value).cast_mut().cast();
        // SAFETY: The socket is valid; the core reads `size_of::<T>()` bytes of the value.
        to_result(unsafe {
            bindings::sock_setsockopt(
                self.tcp.as_ptr(),
                bindings::SOL_SOCKET as i32,
                name as i32,
                bindings::kernel_sockptr(from),
                size_of_val(value) as u32,
            )
        })
    }

    /// Sets an option of the TCP socket at another level. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of TCP.
    fn set_at(&self, level: u32, name: u32, value: &i32) -> Result {
        let from = ptr::from_ref(value).cast_mut().cast();
        // SAFETY: As in `set`.
        to_result(unsafe {
            let Some(set) = (*self.ops()).setsockopt else {
                return Err(EINVAL);
            };
            set(
                self.tcp.as_ptr(),
                level as i32,
                name as i32,
                bindings::kernel_sockptr(from),
                size_of_val(value) as u32,
            )
        })
    }

    /// Gives the TCP socket the settings that the program has made for `sk`, except for those of
    /// TCP itself. Sleeps.
    pub(crate) fn copy_settings(&self, sk: Sk) {
        let (from, to) = (sk.as_ptr(), self.sk());
        // SAFETY: Both are valid sockets, which begin with an `inet_sock`. The core also reads
        // these fields without a lock, and no program can use the TCP socket yet.
        unsafe {
            // Without a list of those who want signals, the flag has no effect.
            bindings::sock_set_flag(to.cast(), bindings::sock_flags_SOCK_FASYNC);
            if sk.has_flag(bindings::sock_flags_SOCK_LINGER) {
                bindings::sock_set_flag(to.cast(), bindings::sock_flags_SOCK_LINGER);
            }
            (*to).sk_lingertime = ptr::read_volatile(&raw const (*from).sk_lingertime);
            (*to).sk_priority = ptr::read_volatile(&raw const (*from).sk_priority);
            (*to).sk_rcvtimeo = ptr::read_volatile(&raw const (*from).sk_rcvtimeo);
            (*to).sk_sndtimeo = ptr::read_volatile(&raw const (*from).sk_sndtimeo);
            (*to).sk_rcvlowat = ptr::read_volatile(&raw const (*from).sk_rcvlowat);
            let (from, to) = (
                from.cast::<bindings::inet_sock>(),
                to.cast::<bindings::inet_sock>(),
            );
            (*to).tos = ptr::read_volatile(&raw const (*from).tos);
            (*to).pmtudisc = ptr::read_volatile(&raw const (*from).pmtudisc);
            if sk.is_v6() {
                let (from, to) = ((*from).pinet6, (*to).pinet6);
                (*to).tclass = ptr::read_volatile(&raw const (*from).tclass);
                (*to).pmtudisc = ptr::read_volatile(&raw const (*from).pmtudisc);
                (*to).rxopt = ptr::read_volatile(&raw const (*from).rxopt);
            }
        }
        // The core doubles the sizes that programs give.
        let size =
            |lock, name, bytes: u32| sk.user_locked(lock).then_some((name, bytes as i32 / 2));
        let sizes = [
            size(
                bindings::SOCK_SNDBUF_LOCK,
                bindings::SO_SNDBUFFORCE,
                sk.sndbuf(),
            ),
            size(
                bindings::SOCK_RCVBUF_LOCK,
                bindings::SO_RCVBUFFORCE,
                sk.rcvbuf(),
            ),
        ];
        let flags = FLAGS.map(|(flag, name)| sk.has_flag(flag).then_some((name, 1)));
        let timestamps = [timestamping(sk), timestamps(sk).map(|name| (name, 1))];
        for options in [sizes.as_slice(), flags.as_slice(), timestamps.as_slice()] {
            for (name, value) in options.iter().flatten() {
                // TCP has all of these options.
                let _ = self.set(*name, value);
            }
        }
    }

    /// Starts the connection to `to`, and does not wait for it. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of connect(), except for `EINPROGRESS`.
    pub(crate) fn start(&self, to: Addr, v6: bool) -> Result {
        let mut to = to.to_storage(v6);
        let flags = bindings::O_NONBLOCK as i32;
        // SAFETY: The socket is valid, and the address is complete.
        let ret = unsafe {
            match (*self.ops()).connect {
                Some(connect) => connect(
                    self.tcp.as_ptr(),
                    to.as_mut_ptr().cast(),
                    len_of(&to),
                    flags,
                ),
                None => EINVAL.to_errno(),
            }
        };
        match to_result(ret) {
            Err(e) if e == EINPROGRESS => Ok(()),
            other => other,
        }
    }

    /// Whether the connection is being set up.
    pub(crate) fn is_connecting(&self) -> bool {
        // SAFETY: The socket is valid; the core also reads the field without the lock.
        let state = unsafe { ptr::read_volatile(&raw const (*self.sk()).__sk_common.skc_state) };
        matches!(
            state.into(),
            bindings::TCP_SYN_SENT | bindings::TCP_SYN_RECV
        )
    }

    /// Sets an option of TCP itself if its value is not the initial one of the module. Sleeps.
    pub(crate) fn set_tcp(&self, name: u32, value: i32, initial: i32) {
        if value != initial {
            // TCP accepts all values that the module accepts.
            let _ = self.set_at(bindings::SOL_TCP, name, &value);
        }
    }

    /// The local port of the TCP socket; 0 if it has none.
    pub(crate) fn port(&self) -> u16 {
        // SAFETY: The socket of TCP begins with an `inet_sock`, which is valid.
        unsafe {
            ptr::read_volatile(
                &raw const (*self.sk())
                    .__sk_common
                    .__bindgen_anon_3
                    .__bindgen_anon_1
                    .skc_num,
            )
        }
    }

    /// Gives the TCP socket the place of the socket of `sk`. Returns `false` if `sk` has no file,
    /// or no program any more.
    ///
    /// # Safety
    ///
    /// The lock of `sk` is held. The value lives until `sk` has no program any more, and is then
    /// dropped before the core frees the socket of `sk`.
    pub(crate) unsafe fn take_place_of(&mut self, sk: Sk) -> bool {
        // SAFETY: The socket of `sk` and its file are valid until `sk` becomes an orphan, which
        // needs the lock of `sk`. The pointers of the wait queue and of the file change as in
        // `smc_switch_to_fallback()`; nobody else uses the pointers of the TCP socket yet.
        unsafe {
            let old = (*sk.as_ptr()).sk_socket;
            if old.is_null() || (*old).file.is_null() {
                return false;
            }
            let (new, file) = (self.tcp.as_ptr(), (*old).file);
            // INVARIANT: The entry is put into the queue, and the caller promises the rest.
            self.replaced = old;
            *self.entry.get() = kernel::bindings::wait_queue_entry {
                flags: 0,
                private: (&raw mut (*old).wq.wait).cast(),
                func: Some(forward),
                entry: Default::default(),
            };
            bindings::add_wait_queue(&raw mut (*new).wq.wait, self.entry.get().cast());
            (*new).file = file;
            (*new).wq.fasync_list = (*old).wq.fasync_list;
            (*old).wq.fasync_list = ptr::null_mut();
            (*self.sk()).sk_uid = (*sk.as_ptr()).sk_uid;
            // A thread that finds the new socket in the file also finds the file in the socket.
            smp_wmb();
            ptr::write_volatile(&raw mut (*file).private_data, new.cast());
            if !self.is_connecting() {
                // The signal for the end of the set-up was sent before the TCP socket had the list.
                let _guard = rcu::read_lock();
                let (wq, what) = (&raw mut (*new).wq, bindings::SOCK_WAKE_IO as i32);
                bindings::sock_wake_async(wq, what, bindings::POLL_OUT as i32);
            }
        }
        true
    }
}

fn len_of(_: &Storage) -> i32 {
    size_of::<Storage>() as i32
}

impl Drop for TcpClient {
    fn drop(&mut self) {
        let tcp = self.tcp.as_ptr();
        // SAFETY: By the type invariant the socket is valid and belongs to the value, and the entry
        // is in its queue if it has a place. No program can use it any more.
        unsafe {
            if !self.replaced.is_null() {
                bindings::remove_wait_queue(&raw mut (*tcp).wq.wait, self.entry.get().cast());
                // Threads that have begun fcntl() or close() before the change may have left
                // entries.
                for socket in [self.replaced, tcp] {
                    let list = &raw mut (*socket).wq.fasync_list;
                    bindings::fasync_helper(-1, (*tcp).file, 0, list);
                }
                // With a file, the core would free the socket together with the inode of the file.
                (*tcp).file = ptr::null_mut();
            }
            bindings::sock_release(tcp);
        }
    }
}

/// Wakes those who wait for the socket of the module, for example in an epoll set, because they
/// began before the TCP socket had its place.
///
/// # Safety
///
/// Called by the core, for the entry of a [`TcpClient`] and under the lock of its wait queue, with
/// interrupts off.
unsafe extern "C" fn forward(
    entry: *mut kernel::bindings::wait_queue_entry,
    mode: u32,
    _flags: i32,
    key: *mut kernel::ffi::c_void,
) -> i32 {
    // SAFETY: The entry is in the queue, so its `TcpClient` exists, and by the type invariant so
    // does the queue of the replaced socket. The locks of the two queues are of one class; they are
    // always taken in this order.
    unsafe {
        let queue = (*entry).private.cast();
        bindings::wait_queue_lock_nested(queue);
        if key.is_null() {
            // A change of state: TCP wakes all who wait.
            bindings::__wake_up_locked(queue, mode, 0);
        } else {
            bindings::__wake_up_locked_key(queue, mode, key);
        }
        bindings::wait_queue_unlock(queue);
    }
    0
}
