// SPDX-License-Identifier: GPL-2.0

//! The numbers of sockets: families, the protocol, options. `tools/uapi/ib_sdp.h` defines them for
//! C; a test compares the two files.

/// The family of IPv4 sockets, OFED's number. In mainline headers it is AF_IB, which registers no
/// sockets.
pub const AF_INET_SDP: i32 = 27;
/// The family of IPv6 sockets. In mainline headers it is AF_MPLS, which registers no sockets.
pub const AF_INET6_SDP: i32 = 28;
/// The protocol of sockets of AF_INET and AF_INET6. No packet carries the number, so it is larger
/// than all IP protocol numbers, like those of SMC (256) and MPTCP (262).
pub const IPPROTO_SDP: i32 = 257;

/// The level of the options below: that of TCP, as with OFED.
pub const SOL_SDP: i32 = 6;
/// The size in bytes from which on sends go without a copy; OFED's name and number.
pub const SDP_ZCOPY_THRESH: i32 = 80;
/// The error number of the last bind(), negative; read-only. OFED's name and number.
pub const SDP_LAST_BIND_ERR: i32 = 81;
/// The path of sends: one of the `SDP_MODE` numbers.
pub const SDP_ZCOPY_MODE: i32 = 82;
/// The effect of a write to memory of a send that has returned, while the adapter still needs the
/// memory: one of the `SDP_FAULT` numbers.
pub const SDP_FAULT_POLICY: i32 = 83;
/// The descriptor of a TCP socket that listens: accept() also returns its connections; -1 for none.
/// Reads as 1 if there is such a socket, else as 0.
pub const SDP_LISTEN_TCP: i32 = 84;
/// The descriptor of a TCP socket that the program has connected because SDP could not connect, and
/// the errno of SDP (two `i32`): the module counts and lists the connection. Write-only.
pub const SDP_TCP_INSTEAD: i32 = 85;

/// The module chooses the path of each send.
pub const SDP_MODE_AUTO: i32 = 0;
/// By copy (BSDP).
pub const SDP_MODE_COPY: i32 = 1;
/// Without a copy; the send waits until the peer has the bytes (ZSDP).
pub const SDP_MODE_ZCOPY: i32 = 2;
/// Without a copy; the send returns before the peer has the bytes (AZ-SDP).
pub const SDP_MODE_AZCOPY: i32 = 3;
/// Into the memory of a waiting reader (SinkAvail).
pub const SDP_MODE_SINK: i32 = 4;

/// The program gets a copy of the page, and writes to the copy.
pub const SDP_FAULT_COPY: i32 = 0;
/// The program waits until the adapter is done with the page, for a second at most.
pub const SDP_FAULT_BLOCK: i32 = 1;
