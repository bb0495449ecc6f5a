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
//! - [`state`]: the life of a socket, with explicit transitions; [`orphan`]: how
//!   long one lives on that its program has closed; [`deferral`]: how long a
//!   listener waits for the first byte of a connection.
//! - [`pace`]: how long messages take, how fast bytes are delivered, and what
//!   holds a sender up.
//! - [`resize`]: the size of receives, which grows.
//! - [`policy`]: when a partial message goes and which work requests are
//!   signaled.
//! - [`advert`], [`ring`]: what the adverts of both kinds have in common.
//! - [`source`], [`sink`]: memory of a sender that its peer reads, both sides.
//! - [`pull`]: when to read such memory though no reader asks.
//! - [`write`](mod@write), [`buffer`]: memory of a reader that its peer writes
//!   to, both sides; [`offer`]: whether a reader shall advertise it.
//! - [`urgent`]: the urgent byte, of both sides.
//! - [`choice`]: by copy or without, with [`split`] for what is not aligned and
//!   [`fallback`] for programs that touch what is being sent.
//! - [`violation`]: every way in which a peer may break the protocol.
//!
//! The protocol is described in `Documentation/protocol.rst`.

// The paths are those that the compiler would look at anyway. They are spelled
// out for the host: a file that is itself included by its path would look for
// its modules beside it, not below.
#[path = "proto/advert.rs"]
pub mod advert;
#[path = "proto/bsdh.rs"]
pub mod bsdh;
#[path = "proto/buffer.rs"]
pub mod buffer;
#[path = "proto/choice.rs"]
pub mod choice;
#[path = "proto/credits.rs"]
pub mod credits;
#[path = "proto/deferral.rs"]
pub mod deferral;
#[path = "proto/fallback.rs"]
pub mod fallback;
#[path = "proto/hello.rs"]
pub mod hello;
#[path = "proto/message.rs"]
pub mod message;
#[path = "proto/offer.rs"]
pub mod offer;
#[path = "proto/orphan.rs"]
pub mod orphan;
#[path = "proto/pace.rs"]
pub mod pace;
#[path = "proto/policy.rs"]
pub mod policy;
#[path = "proto/pull.rs"]
pub mod pull;
#[path = "proto/resize.rs"]
pub mod resize;
#[path = "proto/ring.rs"]
pub mod ring;
#[path = "proto/sink.rs"]
pub mod sink;
#[path = "proto/source.rs"]
pub mod source;
#[path = "proto/split.rs"]
pub mod split;
#[path = "proto/state.rs"]
pub mod state;
#[path = "proto/urgent.rs"]
pub mod urgent;
#[path = "proto/violation.rs"]
pub mod violation;
#[path = "proto/wire.rs"]
mod wire;
#[path = "proto/write.rs"]
pub mod write;
