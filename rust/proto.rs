// SPDX-License-Identifier: GPL-2.0

//! The Sockets Direct Protocol as pure logic: the meaning of the bytes on the wire, and the rules.
//!
//! The code here does not allocate, sleep, panic or depend on the kernel: these files use only
//! `core`, and `tools/proto-host` compiles them on the host, where they are tested, model-checked
//! and fuzzed. Each message of a peer is parsed to a value or to a [`violation::Violation`].
//!
//! - [`bsdh`]: the header in front of every message.
//! - [`message`]: the messages of an established connection.
//! - [`hello`]: connection set-up, in the private data of the CM.
//! - [`credits`]: how many messages each side may have in flight.
//! - [`state`]: the states of a socket, with explicit transitions; [`orphan`]: how long a
//!   connection survives after its program has closed it; [`deferral`]: how long a listener waits
//!   for the first byte of a connection.
//! - [`half`]: which call may send or receive, and for how long.
//! - [`watchdog`], [`keepalive`]: when a peer that does not answer counts as gone.
//! - [`pace`]: round-trip time, delivery rate, and what limits a sender.
//! - [`resize`]: the size of receives, which grows and shrinks.
//! - [`policy`]: when a partial message is sent, and which work requests are signaled.
//! - [`advert`], [`ring`]: code shared by both kinds of adverts.
//! - [`source`], [`source_reader`]: memory of a sender that its peer reads, both sides.
//! - [`pull`]: when to read such memory without a reader.
//! - [`sink`], [`sink_writer`]: memory of a reader that its peer writes to, both sides; [`offer`]:
//!   whether a reader advertises its buffer.
//! - [`early`]: whether a receive returns before its bytes have arrived.
//! - [`urgent`]: the urgent byte, both sides.
//! - [`choice`]: the path of a send, by copy or without; with [`split`] for unaligned buffers and
//!   [`pause`] for programs that touch memory while it is being sent, and [`trial`] to
//!   measure which path is the fastest.
//! - [`violation`]: every way in which a peer may break the protocol.
//!
//! `Documentation/protocol.rst` describes the protocol.

// These are the compiler's default paths. They are explicit for the host: if a file is itself
// included by its path, the compiler would look for its modules beside the file, not below it.
#[path = "proto/advert.rs"]
pub mod advert;
#[path = "proto/bsdh.rs"]
pub mod bsdh;
#[path = "proto/choice.rs"]
pub mod choice;
#[path = "proto/credits.rs"]
pub mod credits;
#[path = "proto/deferral.rs"]
pub mod deferral;
#[path = "proto/early.rs"]
pub mod early;
#[path = "proto/half.rs"]
pub mod half;
#[path = "proto/hello.rs"]
pub mod hello;
#[path = "proto/keepalive.rs"]
pub mod keepalive;
#[path = "proto/message.rs"]
pub mod message;
#[path = "proto/offer.rs"]
pub mod offer;
#[path = "proto/orphan.rs"]
pub mod orphan;
#[path = "proto/pace.rs"]
pub mod pace;
#[path = "proto/pause.rs"]
pub mod pause;
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
#[path = "proto/sink_writer.rs"]
pub mod sink_writer;
#[path = "proto/source.rs"]
pub mod source;
#[path = "proto/source_reader.rs"]
pub mod source_reader;
#[path = "proto/split.rs"]
pub mod split;
#[path = "proto/state.rs"]
pub mod state;
#[path = "proto/trial.rs"]
pub mod trial;
#[path = "proto/urgent.rs"]
pub mod urgent;
#[path = "proto/violation.rs"]
pub mod violation;
#[path = "proto/watchdog.rs"]
pub mod watchdog;
#[path = "proto/wire.rs"]
mod wire;
