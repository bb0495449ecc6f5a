// SPDX-License-Identifier: GPL-2.0

//! The Sockets Direct Protocol as pure logic: what the bytes on the wire mean
//! and what the rules allow.
//!
//! Nothing here allocates, sleeps, panics or knows the kernel: these files use
//! `core` alone, and `tools/proto-host` compiles them on the host, where they
//! are tested, model-checked and fuzzed. Whatever a peer may send ends in a
//! value or in a [`violation::Violation`].
//!
//! - [`bsdh`]: the header in front of every message.
//! - [`message`]: the messages of an established connection.
//! - [`hello`]: connection set-up, in the private data of the CM.
//! - [`credits`]: how many messages each side may have in flight.
//! - [`state`]: the life of a socket, with explicit transitions.
//! - [`policy`]: when a partial message goes and which work requests are
//!   signaled.
//! - [`violation`]: every way in which a peer may break the protocol.
//!
//! The protocol is described in `Documentation/protocol.rst`.

// The paths are those that the compiler would look at anyway. They are spelled
// out for the host: a file that is itself included by its path would look for
// its modules beside it, not below.
#[path = "proto/bsdh.rs"]
pub mod bsdh;
#[path = "proto/credits.rs"]
pub mod credits;
#[path = "proto/hello.rs"]
pub mod hello;
#[path = "proto/message.rs"]
pub mod message;
#[path = "proto/policy.rs"]
pub mod policy;
#[path = "proto/state.rs"]
pub mod state;
#[path = "proto/violation.rs"]
pub mod violation;
#[path = "proto/wire.rs"]
mod wire;
