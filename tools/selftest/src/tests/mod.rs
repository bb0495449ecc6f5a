// SPDX-License-Identifier: GPL-2.0
//! The suite, by topic. Each test describes the behaviour of TCP.

mod astcp;
mod bytes;
mod connecting;
mod ends;
mod events;
pub(crate) mod fuzz;
mod load;
mod memory_of_programs;
mod settings;
mod uncopied;

use crate::support::harness::Test;

/// All tests, in the order in which they run; or, if `peer_vanishes`, the tests for which the
/// peer's machine is killed.
pub(crate) fn all(peer_vanishes: bool) -> impl Iterator<Item = &'static Test> {
    let all: &[&[Test]] = &[
        connecting::basics::TESTS,
        connecting::addresses::TESTS,
        connecting::connect::TESTS,
        connecting::fastopen::TESTS,
        connecting::listen::TESTS,
        connecting::both::TESTS,
        connecting::fallback::TESTS,
        bytes::lengths::TESTS,
        bytes::data::TESTS,
        bytes::blocking::TESTS,
        settings::options::TESTS,
        settings::info::TESTS,
        load::sharing::TESTS,
        bytes::peek::TESTS,
        bytes::urgent::TESTS,
        events::poll::TESTS,
        events::uring::TESTS,
        ends::close::TESTS,
        ends::reset::TESTS,
        events::signals::TESTS,
        memory_of_programs::memory::TESTS,
        memory_of_programs::missing::TESTS,
        memory_of_programs::badinput::TESTS,
        astcp::TESTS,
        bytes::random::TESTS,
        load::stress::TESTS,
        uncopied::zabuse::TESTS,
        uncopied::zcopy::TESTS,
        uncopied::zerocopy::TESTS,
        uncopied::sink::TESTS,
        uncopied::sinkends::TESTS,
        uncopied::azabuse::TESTS,
        uncopied::azblock::TESTS,
        uncopied::azends::TESTS,
        uncopied::azpins::TESTS,
        uncopied::azrecv::TESTS,
        uncopied::azstall::TESTS,
        uncopied::azwhen::TESTS,
        load::attacks::TESTS,
        fuzz::TESTS,
        connecting::netns::TESTS,
        settings::sysctl::TESTS,
        settings::timestamps::TESTS,
        settings::limits::TESTS,
    ];
    let groups = if peer_vanishes {
        &[uncopied::azlost::TESTS]
    } else {
        all
    };
    groups.iter().copied().flatten()
}
