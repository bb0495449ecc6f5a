// SPDX-License-Identifier: GPL-2.0

//! State that only the worker of a socket uses.

use kernel::sync::aref::ARef;
use kernel::time::{
    Instant,
    Monotonic, //
};

use super::sock::SdpSock;
use crate::inet::limits::Place as Counted;
use crate::kern::debugfs::Folder;
use crate::proto::hello::Hello;
use crate::rdma::cm::CmId;

/// A child's place in its listener's backlog.
#[derive(Copy, Clone)]
pub(crate) enum BacklogPlace {
    /// The child has not asked for a place.
    NotAsked,
    /// As `NotAsked`, but the listener has promised that the child may wait for a place.
    Promised,
    /// The child has waited for a place since then.
    Waiting(Instant<Monotonic>),
    /// The listener has given the child a place, which the child may lose.
    Given,
}

/// State that only the worker of a socket uses.
pub(crate) struct CmSide {
    pub(in crate::sdp) id: Option<CmId>,
    /// The Hello that this side has sent or received.
    pub(in crate::sdp) offer: Option<Hello>,
    /// A child's reference to itself, until its listener has the child in its queue or defers it.
    pub(in crate::sdp) child: Option<ARef<SdpSock>>,
    pub(in crate::sdp) place: BacklogPlace,
    /// A child's place in the limits of connections, until the child has queues.
    pub(in crate::sdp) counted: Option<Counted>,
    /// The peer has not completed the connection of a child in time.
    pub(in crate::sdp) is_given_up: bool,
    /// The peer may know that the connection is established.
    pub(in crate::sdp) is_up: bool,
    /// The debugfs folder of a connection that is or was established, until everything is released.
    pub(in crate::sdp) folder: Option<Folder>,
}

impl CmSide {
    pub(crate) const fn new() -> Self {
        Self {
            id: None,
            offer: None,
            child: None,
            place: BacklogPlace::NotAsked,
            counted: None,
            is_given_up: false,
            is_up: false,
            folder: None,
        }
    }
}
