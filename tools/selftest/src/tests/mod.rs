// SPDX-License-Identifier: GPL-2.0
//! The suite, by topic. Each test describes what TCP does.

mod addresses;
mod astcp;
mod attacks;
mod azabuse;
mod azblock;
mod azends;
mod azlost;
mod azrecv;
mod azstall;
mod azwhen;
mod badinput;
mod basics;
mod blocking;
mod close;
mod connect;
mod data;
mod fastopen;
mod inflight;
mod info;
mod lengths;
mod limits;
mod listen;
mod memory;
mod missing;
mod netns;
mod options;
mod peek;
mod poll;
mod random;
mod reset;
mod sharing;
mod signals;
mod sink;
mod sinkends;
mod stress;
mod sysctl;
mod urgent;
mod zabuse;
mod zcopy;

use crate::harness::Test;

/// All tests, in the order in which they run; or those for which the peer's machine is killed.
pub(crate) fn all(peer_vanishes: bool) -> impl Iterator<Item = &'static Test> {
    let all: &[&[Test]] = &[
        basics::TESTS,
        addresses::TESTS,
        connect::TESTS,
        fastopen::TESTS,
        listen::TESTS,
        lengths::TESTS,
        data::TESTS,
        blocking::TESTS,
        options::TESTS,
        info::TESTS,
        sharing::TESTS,
        peek::TESTS,
        urgent::TESTS,
        poll::TESTS,
        close::TESTS,
        reset::TESTS,
        signals::TESTS,
        memory::TESTS,
        missing::TESTS,
        badinput::TESTS,
        astcp::TESTS,
        random::TESTS,
        stress::TESTS,
        zabuse::TESTS,
        zcopy::TESTS,
        sink::TESTS,
        sinkends::TESTS,
        azabuse::TESTS,
        azblock::TESTS,
        azends::TESTS,
        azrecv::TESTS,
        azstall::TESTS,
        azwhen::TESTS,
        attacks::TESTS,
        netns::TESTS,
        sysctl::TESTS,
        limits::TESTS,
    ];
    let groups = if peer_vanishes { &[azlost::TESTS] } else { all };
    groups.iter().copied().flatten()
}
