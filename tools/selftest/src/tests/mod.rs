// SPDX-License-Identifier: GPL-2.0
//! The suite, by topic. Each test describes what TCP does.

mod basics;
mod stress;

use crate::harness::Test;

/// All tests, in the order in which they run.
pub(crate) fn all() -> impl Iterator<Item = &'static Test> {
    [basics::TESTS, stress::TESTS].into_iter().flatten()
}
