// SPDX-License-Identifier: GPL-2.0
//! The harness that runs the tests, and the steps from which the tests are written.

mod child;
mod env;
mod expect;
mod runner;
mod steps;

pub(crate) use child::Child;
pub(crate) use env::{
    differences, open_by_protocol, Env, Family, ANY4, ANY6, LOOPBACK4, LOOPBACK6,
};
pub(crate) use expect::{
    expect, expect_eq, expect_errno, expect_errno_of, expect_received, failed, joined, skip, Fail,
    Outcome,
};
pub(crate) use runner::{note, run, show_tasks, Options};
pub(crate) use steps::*;

/// A test, whose name has the form `group/what`.
pub(crate) struct Test {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&Env) -> Outcome,
}

/// Lists a group's functions as tests: `tests!("data"; one_byte, ...)` makes
/// `data/one_byte` and so on.
macro_rules! tests {
    ($group:literal; $($test:ident),+ $(,)?) => {
        pub(crate) const TESTS: &[crate::support::harness::Test] = &[$(crate::support::harness::Test {
            name: concat!($group, "/", stringify!($test)),
            run: $test,
        }),+];
    };
}
pub(crate) use tests;
