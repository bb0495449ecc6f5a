// SPDX-License-Identifier: GPL-2.0
//! The suite, by topic. Each test describes what TCP does.

mod addresses;
mod basics;
mod connect;
mod data;
mod lengths;
mod listen;
mod stress;

use crate::harness::Test;

/// All tests, in the order in which they run.
pub(crate) fn all() -> impl Iterator<Item = &'static Test> {
    [
        basics::TESTS,
        addresses::TESTS,
        connect::TESTS,
        listen::TESTS,
        lengths::TESTS,
        data::TESTS,
        stress::TESTS,
    ]
    .into_iter()
    .flatten()
}
