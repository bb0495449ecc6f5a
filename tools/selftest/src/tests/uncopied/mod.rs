// SPDX-License-Identifier: GPL-2.0
//! Sends and receives without a copy, and what programs do to the memory meanwhile.

pub(super) mod azabuse;
pub(super) mod azblock;
pub(super) mod azends;
pub(super) mod azlost;
pub(super) mod azpins;
pub(super) mod azrecv;
pub(super) mod azstall;
pub(super) mod azwhen;
pub(super) mod disk;
pub(super) mod inflight;
pub(super) mod sink;
pub(super) mod sinkends;
pub(super) mod zabuse;
pub(super) mod zcopy;
pub(super) mod zerocopy;
