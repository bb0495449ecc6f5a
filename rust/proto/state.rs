// SPDX-License-Identifier: GPL-2.0

//! The states of a socket, the transitions between them, and the messages that may arrive in each
//! state.
//!
//! ```text
//!            ConnectStart      AddressResolved     ConnectAccepted
//!   Closed ---------------> Resolving ------> HelloSent ------+
//!     | Listen                                                v
//!     v       RequestReceived                 CmEstablished,  |
//!   Listen - - - (a new socket) -> HelloReceived -----> Established
//!                                             FirstReceive    |
//!                  ShutdownWrite              DisConnReceived |
//!             +-----------------------------------------------+
//!             v                                               v
//!         FinWait1 -- DisConnReceived --> Closing         CloseWait
//!             | DisConnSent                  | DisConnSent    | ShutdownWrite
//!             v                              |                v
//!         FinWait2                           |            LastAck
//!             | DisConnReceived              v                | DisConnSent
//!             +--------------------------> Draining <---------+
//!                                            | Released
//!                                            v
//!                             Dead ------> Released -- Reuse --> Closed
//!                                 Released
//! ```
//!
//! An abort, a loss, a time-out or a refusal leads from every state of a connection to Dead.

use super::{
    bsdh::{
        Bsdh,
        Mid, //
    },
    violation::Violation,
};

/// The state of a socket.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum State {
    /// Neither connected nor listening, bound or not.
    Closed,
    /// Waits for connections.
    Listen,
    /// A connection of this side: the peer's address and the route are being resolved.
    Resolving,
    /// A connection of this side: the Hello was sent.
    HelloSent,
    /// A connection of the peer: its Hello is being answered.
    HelloReceived,
    /// Both directions are open.
    Established,
    /// This side's direction is shut: its DisConn waits behind the data, or is on its way.
    FinWait1,
    /// This side's direction is shut and the peer's adapter has the DisConn.
    FinWait2,
    /// The peer's direction is shut.
    CloseWait,
    /// The peer's direction was shut, then this side's; its DisConn has not yet arrived.
    LastAck,
    /// This side's direction was shut, then the peer's; this side's DisConn has not yet arrived.
    Closing,
    /// Both directions are shut: waits for the last answers, for the CM's disconnect and for the
    /// queues to empty.
    Draining,
    /// Aborted, lost or refused. The adapter and the CM may still hold resources.
    Dead,
    /// The connection has ended, and the adapter and the CM hold nothing of it. A program may use
    /// the socket again.
    Released,
}

/// The events of a socket.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Event {
    /// listen() on a socket that does not listen.
    Listen,
    /// The listener was shut down and becomes an ordinary socket again.
    StopListening,
    /// connect().
    ConnectStart,
    /// The address and the route are known, and the Hello was sent.
    AddressResolved,
    /// A valid HelloAck.
    ConnectAccepted,
    /// A rejection, an invalid HelloAck, or an unreachable address.
    ConnectRefused,
    /// A valid Hello, for the new socket.
    RequestReceived,
    /// The first message has arrived: the connection is up, whether or not the CM has reported it.
    FirstReceive,
    /// The CM reports that the connection is up.
    CmEstablished,
    /// shutdown() of the sending direction, or close().
    ShutdownWrite,
    /// The send of this side's DisConn has completed.
    DisConnSent,
    /// The peer's DisConn arrived.
    DisConnReceived,
    /// The peer's AbortConn arrived.
    AbortReceived,
    /// This side ends the connection: close() with unread data, a violation, a fatal completion, an
    /// interrupted connect.
    Abort,
    /// A timer has expired: set-up, linger, an orphan's wait, keepalive.
    Timeout,
    /// The CM reports the end of the connection, and everything that had arrived before was
    /// handled.
    CmDisconnected,
    /// The adapter is being removed.
    DeviceRemoved,
    /// The queues and the CM's id were released: nothing more can arrive or complete.
    Released,
    /// The socket of an ended connection is used again: after a failed connect, or AF_UNSPEC.
    Reuse,
}

/// An event that cannot happen in a state: always a bug of this module, never of a peer.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Illegal {
    /// The state.
    pub state: State,
    /// The event.
    pub event: Event,
}

impl Event {
    /// The number of events.
    pub const COUNT: usize = Self::ALL.len();

    /// All events.
    pub const ALL: [Self; 19] = [
        Self::Listen,
        Self::StopListening,
        Self::ConnectStart,
        Self::AddressResolved,
        Self::ConnectAccepted,
        Self::ConnectRefused,
        Self::RequestReceived,
        Self::FirstReceive,
        Self::CmEstablished,
        Self::ShutdownWrite,
        Self::DisConnSent,
        Self::DisConnReceived,
        Self::AbortReceived,
        Self::Abort,
        Self::Timeout,
        Self::CmDisconnected,
        Self::DeviceRemoved,
        Self::Released,
        Self::Reuse,
    ];

    /// The name of the event.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Listen => "Listen",
            Self::StopListening => "StopListening",
            Self::ConnectStart => "ConnectStart",
            Self::AddressResolved => "AddressResolved",
            Self::ConnectAccepted => "ConnectAccepted",
            Self::ConnectRefused => "ConnectRefused",
            Self::RequestReceived => "RequestReceived",
            Self::FirstReceive => "FirstReceive",
            Self::CmEstablished => "CmEstablished",
            Self::ShutdownWrite => "ShutdownWrite",
            Self::DisConnSent => "DisConnSent",
            Self::DisConnReceived => "DisConnReceived",
            Self::AbortReceived => "AbortReceived",
            Self::Abort => "Abort",
            Self::Timeout => "Timeout",
            Self::CmDisconnected => "CmDisconnected",
            Self::DeviceRemoved => "DeviceRemoved",
            Self::Released => "Released",
            Self::Reuse => "Reuse",
        }
    }
}

impl State {
    /// The number of states.
    pub const COUNT: usize = Self::ALL.len();

    /// All states, in the order of [`State::index`].
    pub const ALL: [Self; 14] = [
        Self::Closed,
        Self::Listen,
        Self::Resolving,
        Self::HelloSent,
        Self::HelloReceived,
        Self::Established,
        Self::FinWait1,
        Self::FinWait2,
        Self::CloseWait,
        Self::LastAck,
        Self::Closing,
        Self::Draining,
        Self::Dead,
        Self::Released,
    ];

    /// A dense number from 0 to [`State::COUNT`] - 1.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name of the state.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "Closed",
            Self::Listen => "Listen",
            Self::Resolving => "Resolving",
            Self::HelloSent => "HelloSent",
            Self::HelloReceived => "HelloReceived",
            Self::Established => "Established",
            Self::FinWait1 => "FinWait1",
            Self::FinWait2 => "FinWait2",
            Self::CloseWait => "CloseWait",
            Self::LastAck => "LastAck",
            Self::Closing => "Closing",
            Self::Draining => "Draining",
            Self::Dead => "Dead",
            Self::Released => "Released",
        }
    }

    /// The state after `event`.
    ///
    /// # Errors
    ///
    /// [`Illegal`] if the event cannot happen in this state.
    pub const fn on(self, event: Event) -> Result<Self, Illegal> {
        let next = match event {
            Event::Listen => self.on_listen(),
            Event::StopListening => self.only_from(Self::Listen, Self::Closed),
            Event::ConnectStart => self.only_from(Self::Closed, Self::Resolving),
            Event::AddressResolved => self.only_from(Self::Resolving, Self::HelloSent),
            Event::ConnectAccepted => self.only_from(Self::HelloSent, Self::Established),
            Event::ConnectRefused => self.on_refused(),
            Event::RequestReceived => self.only_from(Self::Closed, Self::HelloReceived),
            Event::FirstReceive | Event::CmEstablished => self.on_established(event),
            Event::ShutdownWrite => self.on_shutdown(),
            Event::DisConnSent => self.on_disconn_sent(),
            Event::DisConnReceived => self.on_disconn_received(),
            Event::AbortReceived => self.on_abort_received(),
            Event::Abort => self.on_abort(),
            Event::Timeout | Event::CmDisconnected | Event::DeviceRemoved => self.on_loss(event),
            Event::Released => self.on_released(),
            Event::Reuse => self.only_from(Self::Released, Self::Closed),
        };
        match next {
            Some(next) => Ok(next),
            None => Err(Illegal { state: self, event }),
        }
    }

    const fn only_from(self, from: Self, to: Self) -> Option<Self> {
        if self.index() == from.index() {
            Some(to)
        } else {
            None
        }
    }

    /// A second listen() only changes the backlog.
    const fn on_listen(self) -> Option<Self> {
        match self {
            Self::Closed | Self::Listen => Some(Self::Listen),
            _ => None,
        }
    }

    const fn on_refused(self) -> Option<Self> {
        match self {
            Self::Resolving | Self::HelloSent => Some(Self::Dead),
            _ => None,
        }
    }

    /// The first message and the CM's event both show that the connection is established. They come
    /// in any order, and the CM's event may come much later, so the second one changes nothing.
    const fn on_established(self, event: Event) -> Option<Self> {
        match self {
            Self::HelloReceived => Some(Self::Established),
            up if up.is_connected() => Some(up),
            Self::Dead if matches!(event, Event::CmEstablished) => Some(Self::Dead),
            _ => None,
        }
    }

    /// A second shutdown of the same direction changes nothing, as with TCP.
    const fn on_shutdown(self) -> Option<Self> {
        match self {
            Self::Established => Some(Self::FinWait1),
            Self::CloseWait => Some(Self::LastAck),
            Self::FinWait1 | Self::FinWait2 | Self::LastAck | Self::Closing | Self::Draining => {
                Some(self)
            }
            _ => None,
        }
    }

    const fn on_disconn_sent(self) -> Option<Self> {
        match self {
            Self::FinWait1 => Some(Self::FinWait2),
            Self::LastAck | Self::Closing => Some(Self::Draining),
            // The socket was aborted while the DisConn was on its way.
            Self::Dead => Some(Self::Dead),
            _ => None,
        }
    }

    /// [`State::admits`] refuses a DisConn in every other state.
    const fn on_disconn_received(self) -> Option<Self> {
        match self {
            Self::Established => Some(Self::CloseWait),
            Self::FinWait1 => Some(Self::Closing),
            Self::FinWait2 => Some(Self::Draining),
            _ => None,
        }
    }

    const fn on_abort_received(self) -> Option<Self> {
        if self.is_connected() {
            Some(Self::Dead)
        } else {
            None
        }
    }

    /// Nothing is left to abort after the release.
    const fn on_abort(self) -> Option<Self> {
        match self {
            Self::Released => None,
            _ => Some(Self::Dead),
        }
    }

    /// External ends of a connection. If the connection is already over, nothing changes: such an
    /// event may come late, but not after the release. A time-out may even end the draining.
    const fn on_loss(self, event: Event) -> Option<Self> {
        match (self, event) {
            (Self::Closed | Self::Listen, Event::DeviceRemoved) => Some(self),
            (Self::Closed | Self::Listen | Self::Released, _) => None,
            (Self::Draining, Event::CmDisconnected | Event::DeviceRemoved) => Some(self),
            _ => Some(Self::Dead),
        }
    }

    const fn on_released(self) -> Option<Self> {
        match self {
            Self::Draining | Self::Dead => Some(Self::Released),
            _ => None,
        }
    }

    /// Whether the connection has ended.
    pub const fn has_ended(self) -> bool {
        matches!(self, Self::Dead | Self::Released)
    }

    /// The state that users see: the release is a matter of the module.
    pub const fn shown(self) -> Self {
        match self {
            Self::Released => Self::Dead,
            state => state,
        }
    }

    /// Whether the connection is up: from Established to Draining.
    pub const fn is_connected(self) -> bool {
        matches!(
            self,
            Self::Established
                | Self::FinWait1
                | Self::FinWait2
                | Self::CloseWait
                | Self::LastAck
                | Self::Closing
                | Self::Draining
        )
    }

    /// Whether the user may send bytes of the stream.
    pub const fn can_send(self) -> bool {
        matches!(self, Self::Established | Self::CloseWait)
    }

    /// Whether bytes of the stream may still arrive.
    pub const fn can_receive(self) -> bool {
        matches!(self, Self::Established | Self::FinWait1 | Self::FinWait2)
    }

    /// Whether this side's DisConn may still be waiting. If this side has cancelled adverts, the
    /// DisConn waits for the answer to the cancel, so the answer may still be due.
    const fn may_await_send_sm(self) -> bool {
        self.is_connected() && !matches!(self, Self::FinWait2 | Self::Draining)
    }

    /// Whether a message `mid` may arrive in this state. For Data see [`State::admits`].
    ///
    /// No message may arrive before the connection is up: the first receive of a new socket is
    /// [`Event::FirstReceive`] first, and messages that arrive before the HelloAck was handled wait
    /// in the completion queue.
    ///
    /// After its DisConn the peer sends no payload and takes none back. It continues to read, so
    /// answers, sink adverts and credits still come. It may not yet have seen this side's DisConn,
    /// so this DisConn only affects SendSm.
    pub const fn accepts(self, mid: Mid) -> bool {
        match mid {
            Mid::Hello | Mid::HelloAck => false,
            Mid::DisConn | Mid::SrcAvail | Mid::SrcAvailCancel => self.can_receive(),
            Mid::SendSm => self.may_await_send_sm(),
            _ => self.is_connected(),
        }
    }

    /// Whether the message with the header `hdr` may arrive in this state:
    /// [`State::accepts`], and Data with payload only while
    /// [`State::can_receive`].
    ///
    /// # Errors
    ///
    /// [`Violation::WrongState`].
    pub const fn admits(self, hdr: &Bsdh) -> Result<(), Violation> {
        let payload_ok = !hdr.is_payload() || self.can_receive();
        if self.accepts(hdr.mid) && payload_ok {
            Ok(())
        } else {
            Err(Violation::WrongState)
        }
    }

    /// The `TCP_*` number (`include/net/tcp_states.h`) that represents this state in `sk_state`.
    ///
    /// Never TCP_TIME_WAIT or TCP_NEW_SYN_RECV: the core treats sockets in these states as its own
    /// smaller objects. A connection that has sent and received everything is TCP_CLOSE for the
    /// user, as with TCP.
    pub const fn tcp_state(self) -> u8 {
        match self {
            Self::Established => 1,
            Self::Resolving | Self::HelloSent => 2,
            Self::HelloReceived => 3,
            Self::FinWait1 => 4,
            Self::FinWait2 => 5,
            Self::Closed | Self::Draining | Self::Dead | Self::Released => 7,
            Self::CloseWait => 8,
            Self::LastAck => 9,
            Self::Listen => 10,
            Self::Closing => 11,
        }
    }
}
