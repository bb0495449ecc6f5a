// SPDX-License-Identifier: GPL-2.0

//! What belongs to the worker of a socket alone.

use kernel::sync::aref::ARef;

use super::sock::SdpSock;
use crate::kern::debugfs::Folder;
use crate::proto::hello::Hello;
use crate::rdma::cm::CmId;

/// What belongs to the worker alone.
pub(crate) struct CmSide {
    pub(in crate::sdp) id: Option<CmId>,
    /// What we sent, or what the peer sent us.
    pub(in crate::sdp) offer: Option<Hello>,
    /// A child's own reference, until its listener has it, in its queue or deferred.
    pub(in crate::sdp) child: Option<ARef<SdpSock>>,
    /// Whether a child has asked for a place in its listener's backlog.
    pub(in crate::sdp) has_asked: bool,
    /// The peer may know that the connection is established.
    pub(in crate::sdp) is_up: bool,
    /// Of a connection that is, or was, established, until all is given back.
    pub(in crate::sdp) folder: Option<Folder>,
}

impl CmSide {
    pub(crate) const fn new() -> Self {
        Self {
            id: None,
            offer: None,
            child: None,
            has_asked: false,
            is_up: false,
            folder: None,
        }
    }
}
