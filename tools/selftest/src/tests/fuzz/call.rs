// SPDX-License-Identifier: GPL-2.0
//! A system call with arguments that mean the same whatever sockets it is made on.

use super::room::{Memory, VALUE};

/// Sockets of a world.
pub(super) const SLOTS: usize = 8;

/// What epoll_wait() has room for, and the bytes of an event.
pub(super) const EVENTS: usize = 16;
const EVENT: usize = 12;

/// An argument.
#[derive(Clone, Copy, Debug)]
pub(super) enum Arg {
    Num(usize),
    /// The address of a byte of the memory.
    At(usize),
    /// The descriptor of a socket; -1 if there is none.
    Slot(usize),
    /// The end of the pipe to read from, and the one to write to.
    Source,
    Sink,
    File,
    Epoll,
    /// AF_INET or AF_INET6, or what stands for it in the family under test; and the protocol.
    Domain,
    Protocol,
    Pid,
}

/// An address whose port each world has its own of.
#[derive(Clone, Copy, Debug)]
pub(super) enum To {
    /// Where a socket is bound.
    Slot(usize),
    /// This machine, and any port.
    Here,
    /// All addresses of this machine, and any port.
    All,
    /// Where nobody listens.
    Nobody,
}

/// What is in the memory when the call is made.
#[derive(Clone, Debug)]
pub(super) enum Put {
    Bytes(Vec<u8>),
    Word(Arg),
    Address(To, Option<u16>),
}

/// How results are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compared {
    Exactly,
    /// The call changes nothing: it is made again until both results are the same.
    AtLast,
    /// A part of its buffers is bad: it fails, or takes a part of the rest.
    Roughly,
    /// How much it moves is as much as fits into a pipe, in pieces of whoever's size.
    Amount,
    /// Of what it says of a send without a copy, only the result is the same.
    Notification,
}

/// A call.
#[derive(Clone, Debug)]
pub(super) struct Call {
    /// As in astcp/known.rs.
    pub(super) name: String,
    pub(super) number: libc::c_long,
    pub(super) args: [Arg; 6],
    pub(super) puts: Vec<(usize, Put)>,
    pub(super) compared: Compared,
    /// It returns a descriptor, for this place.
    pub(super) opens: Option<usize>,
    pub(super) closes: Option<usize>,
    /// Where it leaves an address.
    pub(super) address: Option<usize>,
    /// What it writes there is each family's own: from where, and how many bytes.
    pub(super) hidden: Option<(usize, usize)>,
}

impl Call {
    pub(super) fn new(name: impl Into<String>, number: libc::c_long, args: &[Arg]) -> Call {
        let mut all = [Arg::Num(0); 6];
        all[..args.len()].copy_from_slice(args);
        Call {
            name: name.into(),
            number,
            args: all,
            puts: Vec::new(),
            compared: Compared::Exactly,
            opens: None,
            closes: None,
            address: None,
            hidden: None,
        }
    }

    pub(super) fn put(mut self, at: usize, what: Put) -> Call {
        self.puts.push((at, what));
        self
    }

    pub(super) fn bytes(self, at: usize, bytes: &[u8]) -> Call {
        self.put(at, Put::Bytes(bytes.to_vec()))
    }

    pub(super) fn compared(mut self, compared: Compared) -> Call {
        self.compared = compared;
        self
    }

    /// What it left in the memory, for a comparison.
    pub(super) fn left(&self, memory: Memory) -> Vec<u8> {
        let mut bytes = memory.seen();
        let places = self.puts.iter().filter_map(|(at, what)| match what {
            Put::Address(..) => Some(*at),
            _ => None,
        });
        for at in places.chain(self.address) {
            // The port.
            bytes[at + 2..at + 4].fill(0);
        }
        if self.number == libc::SYS_epoll_wait {
            // In any order.
            let room = &mut bytes[VALUE..VALUE + EVENTS * EVENT];
            let mut events: Vec<Vec<u8>> = room.chunks(EVENT).map(<[u8]>::to_vec).collect();
            events.sort_unstable();
            room.copy_from_slice(&events.concat());
        }
        if let Some((at, len)) = self.hidden {
            let end = (at + len).min(bytes.len());
            bytes[at.min(end)..end].fill(0);
        }
        bytes
    }
}

impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.name)?;
        let used = self
            .args
            .iter()
            .rposition(|arg| !matches!(arg, Arg::Num(0)));
        for (i, arg) in self.args.iter().take(used.map_or(0, |i| i + 1)).enumerate() {
            write!(f, "{}{arg}", if i == 0 { " (" } else { ", " })?;
        }
        write!(f, ")")?;
        let shown = self.puts.iter().filter(|(_, what)| match what {
            Put::Bytes(bytes) => bytes.iter().any(|&b| b != 0),
            Put::Word(arg) => !matches!(arg, Arg::Num(0)),
            Put::Address(..) => true,
        });
        for (at, what) in shown {
            write!(f, " {at:#x}=")?;
            match what {
                Put::Bytes(bytes) => {
                    let some = &bytes[..bytes.len().min(24)];
                    some.iter().try_for_each(|b| write!(f, "{b:02x}"))?;
                }
                Put::Word(arg) => write!(f, "{arg}")?,
                Put::Address(to, family) => write!(f, "{to:?}/{family:?}")?,
            }
        }
        self.opens
            .map_or(Ok(()), |slot| write!(f, " -> socket {slot}"))
    }
}

impl std::fmt::Display for Arg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Arg::Num(n) if *n > 0xffff => write!(f, "{n:#x}"),
            Arg::Num(n) => write!(f, "{n}"),
            Arg::At(at) => write!(f, "&{at:#x}"),
            Arg::Slot(slot) => write!(f, "socket {slot}"),
            other => write!(f, "{other:?}"),
        }
    }
}
