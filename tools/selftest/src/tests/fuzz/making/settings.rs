// SPDX-License-Identifier: GPL-2.0
//! Options, ioctl() and fcntl().

use super::super::call::{Arg, Call, Compared};
use super::super::room::{HOLE, LEN, VALUE};
use super::{Maker, Use};
use crate::support::sys::PAGE;
use crate::tests::astcp::{calls, known};
use crate::tests::settings::timestamps::{
    SO_TIMESTAMPING_NEW, SO_TIMESTAMPNS_NEW, SO_TIMESTAMP_NEW,
};
use libc::{IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, SOL_SOCKET};

/// Options that are not set to good values in a comparison, in addition to those of astcp. Their
/// effects take time, or change how much fits into the buffers.
const NOT_COMPARED: &[(i32, i32)] = &[
    (SOL_SOCKET, libc::SO_SNDBUF),
    (SOL_SOCKET, libc::SO_RCVBUF),
    (SOL_SOCKET, libc::SO_SNDBUFFORCE),
    (SOL_SOCKET, libc::SO_RCVBUFFORCE),
    (SOL_SOCKET, libc::SO_BUSY_POLL),
    // The times differ between the families.
    (SOL_SOCKET, libc::SO_TIMESTAMP),
    (SOL_SOCKET, libc::SO_TIMESTAMPNS),
    (SOL_SOCKET, libc::SO_TIMESTAMPING),
    (SOL_SOCKET, SO_TIMESTAMP_NEW),
    (SOL_SOCKET, SO_TIMESTAMPNS_NEW),
    (SOL_SOCKET, SO_TIMESTAMPING_NEW),
    // SDP refuses these.
    (SOL_SOCKET, libc::SO_MARK),
    (SOL_SOCKET, libc::SO_DONTROUTE),
    (IPPROTO_IP, libc::IP_MINTTL),
    (IPPROTO_IP, libc::IP_OPTIONS),
    (IPPROTO_IPV6, IPV6_MINHOPCOUNT),
    (IPPROTO_IPV6, IPV6_ADDR_PREFERENCES),
    (IPPROTO_TCP, libc::TCP_WINDOW_CLAMP),
    (IPPROTO_TCP, libc::TCP_DEFER_ACCEPT),
    (IPPROTO_TCP, libc::TCP_MAXSEG),
];
/// Options that no call may change, because calls would wait longer.
const NEVER: &[(i32, i32)] = &[
    (SOL_SOCKET, libc::SO_RCVTIMEO),
    (SOL_SOCKET, libc::SO_SNDTIMEO),
    (SOL_SOCKET, SO_RCVTIMEO_NEW),
    (SOL_SOCKET, SO_SNDTIMEO_NEW),
];
const SO_RCVTIMEO_NEW: i32 = 66;
const SO_SNDTIMEO_NEW: i32 = 67;
const IPV6_ADDR_PREFERENCES: i32 = 72;
const IPV6_MINHOPCOUNT: i32 = 73;
/// The number of bytes for values.
const ROOM: i32 = 256;

/// An option, and its name in the list of known differences.
struct Chosen {
    level: i32,
    option: i32,
    name: String,
}

impl Maker {
    fn option(&mut self) -> Chosen {
        if !self.chance(4) {
            let opt = &calls::OPTIONS[self.rng.below(calls::OPTIONS.len())];
            return Chosen {
                level: opt.level,
                option: opt.option,
                name: opt.name.to_owned(),
            };
        }
        let level = match self.rng.below(6) {
            0 => self.number(),
            _ => self.one_of(&[SOL_SOCKET, IPPROTO_IP, IPPROTO_TCP, IPPROTO_IPV6]),
        };
        let mut option = match self.rng.below(3) {
            0 => self.number(),
            _ => self.rng.below(130) as i32,
        };
        // These numbers are options of SDP that TCP does not have.
        if self.purpose == Use::Comparison && level == IPPROTO_TCP && (80..85).contains(&option) {
            option += 5;
        }
        let known = calls::OPTIONS
            .iter()
            .chain(calls::UNKNOWN)
            .find(|opt| (opt.level, opt.option) == (level, option));
        let level_name = match level {
            SOL_SOCKET => "SOL_SOCKET".to_owned(),
            IPPROTO_IP => "IPPROTO_IP".to_owned(),
            IPPROTO_TCP => "IPPROTO_TCP other".to_owned(),
            IPPROTO_IPV6 => "IPPROTO_IPV6".to_owned(),
            other => format!("level {other}"),
        };
        let name = known.map_or(format!("{level_name} {option}"), |opt| opt.name.to_owned());
        Chosen {
            level,
            option,
            name,
        }
    }

    fn args_of(&mut self, chosen: &Chosen) -> [Arg; 3] {
        let [level, option] = [chosen.level, chosen.option].map(|n| Arg::Num(n as usize));
        [Arg::Slot(self.slot()), level, option]
    }

    pub(super) fn get_option(&mut self) -> Call {
        let chosen = self.option();
        let room = match self.rng.below(3) {
            0 => self.length(4),
            _ => self.one_of(&[0, 1, 2, 3, 4, 8, 9, 16, 64, ROOM]),
        };
        let [slot, level, option] = self.args_of(&chosen);
        let args = [slot, level, option, self.pointer(VALUE), self.pointer(LEN)];
        let name = format!("getsockopt {}, {room} bytes", chosen.name);
        let mut call = Call::new(name, libc::SYS_getsockopt, &args)
            .bytes(VALUE, &[0; ROOM as usize])
            .bytes(LEN, &room.to_ne_bytes());
        if (chosen.level, chosen.option) != (SOL_SOCKET, libc::SO_ERROR) {
            call.compared = Compared::AtLast;
        }
        if known::is_own_value(&chosen.name) {
            call.hidden = Some((VALUE, 512));
        }
        call
    }

    pub(super) fn set_option(&mut self) -> Call {
        let chosen = self.option();
        let which = (chosen.level, chosen.option);
        let not_compared =
            NOT_COMPARED.contains(&which) || calls::NOT_SET.contains(&chosen.name.as_str());
        let harmless = match self.purpose {
            _ if NEVER.contains(&which) => false,
            Use::Comparison => !not_compared,
            Use::Threads => true,
            Use::Watching => !chosen.name.ends_with("TCP_REPAIR"),
        };
        let mut value = self.one_of(&[0, 1, 2, 3, 100, 4096, -1, i32::MAX, i32::MIN]);
        let mut len = match harmless {
            true => self.length(4).min(ROOM),
            false => self.one_of(&[0, -1, i32::MIN]),
        };
        if harmless && self.chance(3) {
            len = self.one_of(&[4, 8, 12, 16, 28, 64, ROOM]);
        }
        if which == (SOL_SOCKET, libc::SO_LINGER) {
            // If the option is on, close() waits for one second.
            value &= 1;
        }
        if which == (SOL_SOCKET, libc::SO_PRIORITY) {
            value &= 7;
        }
        let [slot, level, option] = self.args_of(&chosen);
        let at = match self.rng.below(20) {
            0 if harmless => self.bad_pointer(),
            0 => Arg::At(HOLE),
            1 if harmless => Arg::At(PAGE - 4),
            _ => Arg::At(VALUE),
        };
        let short = matches!(at, Arg::At(at) if at == PAGE - 4 && len > 4);
        let name = match short {
            true => format!(
                "setsockopt {}, 16 bytes of which 4 can be read",
                chosen.name
            ),
            false => format!("setsockopt {}, {value} in {len} bytes", chosen.name),
        };
        let args = [slot, level, option, at, Arg::Num(len as usize)];
        let second = i32::from(which == (SOL_SOCKET, libc::SO_LINGER));
        Call::new(name, libc::SYS_setsockopt, &args)
            .bytes(VALUE, &[0; ROOM as usize])
            .bytes(VALUE, &value.to_ne_bytes())
            .bytes(VALUE + 4, &second.to_ne_bytes())
            .bytes(PAGE - 4, &value.to_ne_bytes())
    }

    pub(super) fn ioctl(&mut self) -> Call {
        const SIOCATMARK: u32 = 0x8905;
        const SIOCOUTQNSD: u32 = 0x894b;
        let some = [
            libc::FIONREAD as u32,
            libc::FIONREAD as u32,
            libc::TIOCOUTQ as u32,
            SIOCATMARK,
            SIOCOUTQNSD,
            // FIOGETOWN and SIOCGPGRP.
            0x8903,
            0x8904,
            // SIOCGIFNAME, SIOCGIFFLAGS, SIOCGIFADDR, SIOCDEVPRIVATE, and TCGETS.
            0x8910,
            0x8913,
            0x8915,
            0x89f0,
            0x5401,
        ];
        let request = match self.rng.below(8) {
            0 => self.rng.next() as u32,
            _ => self.one_of(&some),
        };
        // Other requests of this type change the machine's network or send signals.
        let request = match request >> 8 == 0x89 && !some.contains(&request) {
            true => request ^ 0x2000,
            false => request,
        };
        let value = match self.rng.below(10) {
            0 => self.bad_pointer(),
            _ => Arg::At(VALUE),
        };
        let args = [Arg::Slot(self.slot()), Arg::Num(request as usize), value];
        let mut call = Call::new(format!("ioctl {request:#x}"), libc::SYS_ioctl, &args)
            .bytes(VALUE, &[0; 64])
            .compared(Compared::AtLast);
        if request == libc::TIOCOUTQ as u32 || request == SIOCOUTQNSD {
            // Without a connection, TCP computes this from leftover sequence numbers.
            call.hidden = Some((VALUE, 4));
        }
        call
    }

    pub(super) fn fcntl(&mut self) -> Call {
        let slot = Arg::Slot(self.slot());
        let (command, value) = match self.rng.below(10) {
            0..4 => {
                let flags = [
                    0,
                    libc::O_NONBLOCK,
                    libc::O_NONBLOCK,
                    libc::O_ASYNC | libc::O_NONBLOCK,
                ];
                (libc::F_SETFL, Arg::Num(self.one_of(&flags) as usize))
            }
            4 => (libc::F_GETFL, Arg::Num(0)),
            5 => (libc::F_SETFD, Arg::Num(self.rng.below(2))),
            6 => (libc::F_SETOWN, Arg::Pid),
            7 => (libc::F_GETOWN, Arg::Num(0)),
            8 => (libc::F_GETFD, Arg::At(HOLE)),
            _ => (1000 + self.rng.below(60) as i32, Arg::At(HOLE)),
        };
        let args = [slot, Arg::Num(command as usize), value];
        Call::new(format!("fcntl {command}"), libc::SYS_fcntl, &args)
    }
}
