// SPDX-License-Identifier: GPL-2.0
//! Calls that create, connect, and close sockets, and that ask for their state.

use super::super::call::{Arg, Call, Compared, Put, To, EVENTS};
use super::super::room::{ADDRESS, LEN, VALUE};
use super::super::world::LISTENER;
use super::{Maker, Use};
use libc::{SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_STREAM};

impl Maker {
    /// An address, and sometimes a different family for it.
    pub(super) fn address(&mut self) -> (To, Option<u16>) {
        let to = match self.rng.below(8) {
            0..3 => To::Slot(LISTENER),
            3 => To::Slot(self.slot()),
            4 => To::Nobody,
            5 => To::All,
            _ => To::Here,
        };
        let family = match self.rng.below(8) {
            0 => Some(0),
            1 => Some(self.one_of(&[1, 17, 99, 0xffff])),
            _ => None,
        };
        (to, family)
    }

    pub(super) fn socket_call(&mut self) -> Call {
        let slot = self.slot();
        let at = Arg::Slot(slot);
        match self.rng.below(15) {
            0..2 => {
                let kind = SOCK_STREAM | SOCK_NONBLOCK | self.one_of(&[0, SOCK_CLOEXEC]);
                let args = [Arg::Domain, Arg::Num(kind as usize), Arg::Protocol];
                let mut call = Call::new("socket", libc::SYS_socket, &args);
                call.opens = Some(self.new_slot());
                call
            }
            2..4 => self.with_address("bind", libc::SYS_bind, slot),
            4..7 => self.with_address("connect", libc::SYS_connect, slot),
            7 => {
                // Short queues overflow, and then TCP and SDP may behave differently.
                let backlog = self.one_of(&[64, 16, -1, i32::MAX, 100_000]);
                let args = [at, Arg::Num(backlog as usize)];
                Call::new(format!("listen {backlog}"), libc::SYS_listen, &args)
            }
            8..11 => self.accept(),
            11 => {
                let how = self.one_of(&[0, 1, 2, 0, 1, 2, 3, -1]);
                let args = [at, Arg::Num(how as usize)];
                Call::new(format!("shutdown {how}"), libc::SYS_shutdown, &args)
            }
            12..14 => {
                self.open[slot] = false;
                let mut call = Call::new("close", libc::SYS_close, &[at]);
                call.closes = Some(slot);
                call
            }
            _ => {
                let mut call = Call::new("dup", libc::SYS_dup, &[at]);
                call.opens = Some(self.new_slot());
                call
            }
        }
    }

    fn with_address(&mut self, what: &str, number: libc::c_long, slot: usize) -> Call {
        let (to, family) = self.address();
        let whole = self.one_of(&[16, 28]);
        let len = self.length(whole);
        let args = [
            Arg::Slot(slot),
            self.pointer(ADDRESS),
            Arg::Num(len as usize),
        ];
        let family_name = family.map_or(String::new(), |family| format!(" of family {family}"));
        let name = format!("{what} to {to:?}{family_name}, {len} bytes");
        Call::new(name, number, &args).put(ADDRESS, Put::Address(to, family))
    }

    fn accept(&mut self) -> Call {
        let slot = match self.chance(4) {
            true => self.slot(),
            false => LISTENER,
        };
        let flags = match self.rng.below(12) {
            0 => self.number(),
            1 => 0,
            _ => SOCK_NONBLOCK,
        };
        let (address, len) = match self.chance(3) {
            true => (Arg::Num(0), Arg::Num(0)),
            false => (self.pointer(ADDRESS), self.pointer(LEN)),
        };
        let room = self.length(16);
        let args = [Arg::Slot(slot), address, len, Arg::Num(flags as usize)];
        let mut call =
            Call::new("accept", libc::SYS_accept4, &args).bytes(LEN, &room.to_ne_bytes());
        call.opens = Some(self.new_slot());
        call.address = Some(ADDRESS);
        call
    }

    pub(super) fn name(&mut self) -> Call {
        let (what, number) = self.one_of(&[
            ("getsockname", libc::SYS_getsockname),
            ("getpeername", libc::SYS_getpeername),
        ]);
        let room = self.length(28);
        let args = [
            Arg::Slot(self.slot()),
            self.pointer(ADDRESS),
            self.pointer(LEN),
        ];
        let mut call = Call::new(format!("{what} of {room} bytes"), number, &args)
            .bytes(LEN, &room.to_ne_bytes())
            .compared(Compared::AtLast);
        call.address = Some(ADDRESS);
        call
    }

    pub(super) fn poll(&mut self) -> Call {
        let events = self.rng.next() as u16;
        let wait = match self.purpose {
            Use::Comparison => 0,
            _ => self.rng.below(10),
        };
        let args = [self.pointer(VALUE), Arg::Num(1), Arg::Num(wait)];
        let slot = Arg::Slot(self.slot());
        let mut call = Call::new(format!("poll for {events:#x}"), libc::SYS_poll, &args)
            .put(VALUE, Put::Word(slot))
            .bytes(VALUE + 4, &events.to_ne_bytes())
            .bytes(VALUE + 6, &[0, 0])
            .compared(Compared::AtLast);
        // The descriptor is different in each world.
        call.hidden = Some((VALUE, 4));
        call
    }

    pub(super) fn epoll(&mut self) -> Call {
        if self.chance(2) {
            let wait = match self.purpose {
                Use::Comparison => 0,
                _ => self.rng.below(10),
            };
            let args = [
                Arg::Epoll,
                self.pointer(VALUE),
                Arg::Num(EVENTS),
                Arg::Num(wait),
            ];
            return Call::new("epoll_wait", libc::SYS_epoll_wait, &args).compared(Compared::AtLast);
        }
        let slot = self.slot();
        let mut events = self.rng.next() as i32;
        if self.purpose == Use::Comparison {
            // It is not specified how often these report an event.
            events &= !(libc::EPOLLET | libc::EPOLLONESHOT | libc::EPOLLEXCLUSIVE);
        }
        let operation = self.one_of(&[1, 1, 2, 3, 4]);
        let args = [
            Arg::Epoll,
            Arg::Num(operation),
            Arg::Slot(slot),
            self.pointer(VALUE),
        ];
        Call::new(format!("epoll_ctl {operation}"), libc::SYS_epoll_ctl, &args)
            .bytes(VALUE, &events.to_ne_bytes())
            .put(VALUE + 4, Put::Word(Arg::Num(slot)))
    }
}
