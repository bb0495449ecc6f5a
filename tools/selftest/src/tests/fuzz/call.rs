// SPDX-License-Identifier: GPL-2.0
//! A system call with arguments that have the same meaning in every world.

use super::room::{Memory, VALUE};

/// The number of slots for sockets in a world.
pub(super) const SLOTS: usize = 8;

/// The number of events for which epoll_wait() has room, and the number of bytes of an event.
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
    /// The end of the pipe to read from, and the end to write to.
    Source,
    Sink,
    File,
    Epoll,
    /// The domain and the protocol with which sockets of the world's family are opened.
    Domain,
    Protocol,
    Pid,
}

/// An address. The port is different in each world.
#[derive(Clone, Copy, Debug)]
pub(super) enum To {
    /// The address to which a socket is bound.
    Slot(usize),
    /// This machine's address, and any port.
    Here,
    /// All addresses of this machine, and any port.
    All,
    /// An address where nobody listens.
    Nobody,
}

/// The content of the memory when the call is made.
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
    /// The call changes nothing, so it is repeated until both results are the same.
    AtLast,
    /// A part of its buffers is bad, so the call may fail, or transfer a part of the bytes.
    Roughly,
    /// The call moves as many bytes as fit into a pipe. This number depends on the sizes of the
    /// pieces, which differ by family.
    Amount,
    /// The call may report the end of a send without a copy. Only its result is compared.
    Notification,
}

/// A call.
#[derive(Clone, Debug)]
pub(super) struct Call {
    /// The name, as in astcp/known.rs.
    pub(super) name: String,
    pub(super) number: libc::c_long,
    pub(super) args: [Arg; 6],
    pub(super) puts: Vec<(usize, Put)>,
    pub(super) compared: Compared,
    /// The slot for the descriptor that the call returns.
    pub(super) opens: Option<usize>,
    pub(super) closes: Option<usize>,
    /// The place to which the call writes an address.
    pub(super) address: Option<usize>,
    /// The offset and the length of output that differs by family.
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

    /// The memory that the call has left, for a comparison.
    pub(super) fn left(&self, memory: Memory) -> Vec<u8> {
        let mut bytes = memory.seen();
        let places = self.puts.iter().filter_map(|(at, what)| match what {
            Put::Address(..) => Some(*at),
            _ => None,
        });
        for at in places.chain(self.address) {
            // The port is different in each world.
            bytes[at + 2..at + 4].fill(0);
        }
        if self.number == libc::SYS_epoll_wait {
            // The events can be in any order.
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
