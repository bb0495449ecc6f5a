/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/* Sockets of SDP, the Sockets Direct Protocol: stream sockets over RDMA. */
#ifndef IB_SDP_H
#define IB_SDP_H

/* Families for socket(): IPv4 and IPv6. */
#ifndef AF_INET_SDP
#define AF_INET_SDP 27
#endif
#ifndef AF_INET6_SDP
#define AF_INET6_SDP 28
#endif

/* Or the protocol, with AF_INET or AF_INET6. */
#ifndef IPPROTO_SDP
#define IPPROTO_SDP 257
#endif

/* The level of SDP's options: that of TCP. The value of each option is an int. */
#define SOL_SDP 6

/* The size in bytes from which on sends go without a copy. */
#define SDP_ZCOPY_THRESH 80
/* The error number of the last bind(), negative; read-only. */
#define SDP_LAST_BIND_ERR 81
/* The path of sends: SDP_MODE_*. */
#define SDP_ZCOPY_MODE 82
/* The effect of a write to memory of a send that has returned: SDP_FAULT_*. */
#define SDP_FAULT_POLICY 83
/*
 * The descriptor of a TCP socket that listens: accept() also returns its
 * connections; -1 for none. Reads as 1 if there is such a socket, else as 0.
 */
#define SDP_LISTEN_TCP 84
/*
 * The descriptor of a TCP socket that the program has connected because SDP
 * could not connect, and the errno of SDP (two ints): the module counts and
 * lists the connection. Write-only.
 */
#define SDP_TCP_INSTEAD 85

/* The module chooses the path of each send. */
#define SDP_MODE_AUTO 0
/* By copy. */
#define SDP_MODE_COPY 1
/* Without a copy; the send waits until the peer has the bytes. */
#define SDP_MODE_ZCOPY 2
/* Without a copy; the send returns before the peer has the bytes. */
#define SDP_MODE_AZCOPY 3
/* Into the memory of a waiting reader. */
#define SDP_MODE_SINK 4

/* The program gets a copy of the page, and writes to the copy. */
#define SDP_FAULT_COPY 0
/* The program waits until the adapter is done with the page, for a second at most. */
#define SDP_FAULT_BLOCK 1

#endif
