// SPDX-License-Identifier: GPL-2.0
//! The suite, by topic. Each test describes what TCP does.

mod addresses;
mod basics;
mod blocking;
mod close;
mod connect;
mod data;
mod lengths;
mod listen;
mod options;
mod poll;
mod sharing;
mod stress;

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
        stress::TESTS,
    ];
    groups.into_iter().flatten()
}
