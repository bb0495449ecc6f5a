// SPDX-License-Identifier: GPL-2.0
//! A world: a few sockets of one family, and the other objects that calls need.

use super::call::{Arg, Call, Put, To, SLOTS};
use super::room::Memory;
use crate::support::flow::Span;
use crate::support::harness::{Env, Fail, Family};
use crate::support::sys::{self, Sock, SockAddr};
use libc::{SO_RCVTIMEO, SO_SNDTIMEO};
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

/// The number of bytes of the file.
pub(super) const FILE_LEN: u64 = 100_000;
/// The time limits in milliseconds of a receive, and of other calls that wait for the peer.
const RECEIVES_WAIT: i64 = 20;
pub(super) const OTHERS_WAIT: i64 = 5000;

/// The slots of the sockets that a world has at first: a listener, two connections, and a new
/// socket.
pub(super) const LISTENER: usize = 0;
pub(super) const PAIRS: [(usize, usize); 2] = [(1, 2), (4, 5)];
const NEW: usize = 3;

pub(super) struct World {
    env: Env,
    slots: [AtomicI32; SLOTS],
    epoll: OwnedFd,
    pipe: (OwnedFd, OwnedFd),
    file: File,
    nobody: SockAddr,
    others_wait: i64,
    _kept: Sock,
}

impl World {
    /// Creates a world; calls `prepare` for each socket of the pairs.
    pub(super) fn new(
        env: &Env,
        others_wait: i64,
        prepare: impl Fn(&Sock) -> io::Result<()>,
    ) -> Result<World, Fail> {
        let kept = env.socket()?;
        kept.bind(&env.here(0))?;
        let pipe = sys::pipe()?;
        for end in [&pipe.0, &pipe.1] {
            set_nonblocking(end.as_raw_fd())?;
        }
        let world = World {
            env: env.clone(),
            slots: [const { AtomicI32::new(-1) }; SLOTS],
            epoll: sys::Epoll::new()?.into(),
            pipe,
            file: sys::memory_file(&Span::new(2, 0, FILE_LEN).to_vec())?,
            nobody: kept.getsockname()?,
            others_wait,
            _kept: kept,
        };
        world.renew(&PAIRS, &prepare)?;
        Ok(world)
    }

    /// Puts a new listener, a new socket, and new connections into their slots.
    pub(super) fn renew(
        &self,
        pairs: &[(usize, usize)],
        prepare: &impl Fn(&Sock) -> io::Result<()>,
    ) -> io::Result<()> {
        let env = &self.env;
        self.keep(LISTENER, env.listener(64)?.0)?;
        self.keep(NEW, env.socket()?)?;
        for &(one, two) in pairs {
            let (first, second) = self.connection()?;
            prepare(&first)?;
            prepare(&second)?;
            self.keep(one, first)?;
            self.keep(two, second)?;
        }
        Ok(())
    }

    pub(super) fn family(&self) -> Family {
        self.env.family
    }

    /// Puts a new connection into two slots, and returns its two ends, whose calls are blocking.
    pub(super) fn stream(
        &self,
        (one, two): (usize, usize),
        prepare: &impl Fn(&Sock) -> io::Result<()>,
    ) -> io::Result<[Sock; 2]> {
        let (first, second) = self.connection()?;
        prepare(&first)?;
        prepare(&second)?;
        let ends = [first.dup()?, second.dup()?];
        self.take(one, OwnedFd::from(first).into_raw_fd());
        self.take(two, OwnedFd::from(second).into_raw_fd());
        Ok(ends)
    }

    /// Makes a connection without SIGALRM. If a signal arrived every few milliseconds, a connect()
    /// on a slow machine would never end.
    fn connection(&self) -> io::Result<(Sock, Sock)> {
        sys::without_signal(libc::SIGALRM, || self.env.own_pair())
    }

    fn keep(&self, slot: usize, sock: Sock) -> io::Result<()> {
        sock.set_nonblocking(true)?;
        self.take(slot, OwnedFd::from(sock).into_raw_fd());
        Ok(())
    }

    /// Puts a new descriptor into a slot, and sets short time limits for its calls.
    fn take(&self, slot: usize, fd: RawFd) {
        if let Some(sock) = Sock::borrowed(fd) {
            // This fails if the descriptor is not a socket.
            let _ = sock.set_timeout(SO_RCVTIMEO, RECEIVES_WAIT);
            let _ = sock.set_timeout(SO_SNDTIMEO, self.others_wait);
        }
        close(self.slots[slot].swap(fd, Ordering::Relaxed));
    }

    /// The descriptor of a socket; -1 if there is none.
    pub(super) fn fd(&self, slot: usize) -> RawFd {
        self.slots[slot].load(Ordering::Relaxed)
    }

    pub(super) fn sock(&self, slot: usize) -> Option<ManuallyDrop<Sock>> {
        Sock::borrowed(self.fd(slot))
    }

    /// Makes a call.
    pub(super) fn call(&self, call: &Call, memory: Memory) -> Result<usize, i32> {
        for (at, what) in &call.puts {
            match what {
                Put::Bytes(bytes) => memory.write(*at, bytes),
                Put::Word(arg) => memory.write(*at, &self.value(*arg, memory).to_ne_bytes()),
                Put::Address(to, family) => memory.write(*at, &self.address(*to, *family)),
            }
        }
        let args = match call.closes {
            Some(slot) => {
                let fd = self.slots[slot].swap(-1, Ordering::Relaxed);
                [fd as usize, 0, 0, 0, 0, 0]
            }
            None => call.args.map(|arg| self.value(arg, memory)),
        };
        // SAFETY: the pointers of a call point to the memory, to which there are no references, or
        // to nothing. A call only closes a descriptor of a slot.
        let result = unsafe { sys::system_call(call.number, args) };
        let result = result.map_err(|e| e.raw_os_error().unwrap_or(0))?;
        let Some(slot) = call.opens else {
            return Ok(result);
        };
        self.take(slot, result as RawFd);
        Ok(0)
    }

    fn value(&self, arg: Arg, memory: Memory) -> usize {
        match arg {
            Arg::Num(n) => n,
            Arg::At(offset) => memory.at(offset),
            Arg::Slot(slot) => self.fd(slot) as usize,
            Arg::Source => self.pipe.0.as_raw_fd() as usize,
            Arg::Sink => self.pipe.1.as_raw_fd() as usize,
            Arg::File => self.file.as_raw_fd() as usize,
            Arg::Epoll => self.epoll.as_raw_fd() as usize,
            Arg::Domain => self.env.family.domain(self.env.local) as usize,
            Arg::Protocol => self.env.family.protocol() as usize,
            Arg::Pid => sys::pid() as usize,
        }
    }

    fn address(&self, to: To, family: Option<u16>) -> Vec<u8> {
        let any = match self.env.local.is_ipv4() {
            true => crate::support::harness::ANY4,
            false => crate::support::harness::ANY6,
        };
        let address = match to {
            To::Slot(slot) => self
                .sock(slot)
                .and_then(|s| s.getsockname().ok())
                .unwrap_or(self.env.here(0)),
            To::Here => self.env.here(0),
            To::All => (any, 0).into(),
            To::Nobody => self.nobody,
        };
        let address = match family {
            Some(family) => address.with_family(family.into()),
            None => address,
        };
        address.bytes().to_vec()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for slot in &self.slots {
            close(slot.swap(-1, Ordering::Relaxed));
        }
    }
}

fn close(fd: RawFd) {
    if fd >= 0 {
        let args = [fd as usize, 0, 0, 0, 0, 0];
        // SAFETY: only a world uses this descriptor.
        let _ = unsafe { sys::system_call(libc::SYS_close, args) };
    }
}

fn set_nonblocking(fd: RawFd) -> io::Result<()> {
    let args = [fd, libc::F_SETFL, libc::O_NONBLOCK, 0, 0, 0].map(|n| n as usize);
    // SAFETY: plain numbers.
    unsafe { sys::system_call(libc::SYS_fcntl, args) }.map(drop)
}
