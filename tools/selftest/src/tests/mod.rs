// SPDX-License-Identifier: GPL-2.0
//! The suite, by topic. Each test describes what TCP does.

mod addresses;
mod attacks;
mod badinput;
mod basics;
mod blocking;
mod close;
mod connect;
mod data;
mod lengths;
mod listen;
mod memory;
mod missing;
mod netns;
mod options;
mod poll;
mod random;
mod reset;
mod sharing;
mod signals;
mod stress;
mod zabuse;
mod zcopy;

use crate::harness::Test;

/// All tests, in the order in which they run.
pub(crate) fn all() -> impl Iterator<Item = &'static Test> {
    let groups = [
        basics::TESTS,
        addresses::TESTS,
        connect::TESTS,
        listen::TESTS,
        lengths::TESTS,
        data::TESTS,
        blocking::TESTS,
        options::TESTS,
        sharing::TESTS,
        poll::TESTS,
        close::TESTS,
        reset::TESTS,
        signals::TESTS,
        memory::TESTS,
        missing::TESTS,
        badinput::TESTS,
        random::TESTS,
        stress::TESTS,
        zabuse::TESTS,
        zcopy::TESTS,
        attacks::TESTS,
        netns::TESTS,
    ];
    groups.into_iter().flatten()
}
