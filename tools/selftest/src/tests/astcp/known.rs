// SPDX-License-Identifier: GPL-2.0
//! Known differences between the answers of SDP and of TCP. Documentation/tcp.rst describes them
//! for users.

use super::Answer;
use crate::support::harness::Family;
use libc::{EADDRNOTAVAIL, EBADF, EFAULT, EINVAL, ENETUNREACH, ENOPROTOOPT, ENOTCONN, EOPNOTSUPP};

/// Options whose values are not compared, because they differ by socket or by family.
const OWN_VALUES: &[&str] = &[
    "SOL_SOCKET SO_COOKIE",
    "SOL_SOCKET SO_PEERNAME",
    "SOL_SOCKET SO_INCOMING_CPU",
    "SOL_SOCKET SO_INCOMING_NAPI_ID",
    // IP_PROTOCOL: the port, if the socket is not raw.
    "IPPROTO_IP 52",
    // SDP has its own number.
    "SOL_SOCKET SO_PROTOCOL",
    // Their values or defaults differ from TCP's.
    "SOL_SOCKET SO_SNDBUF",
    "SOL_SOCKET SO_RCVBUF",
    "SOL_SOCKET SO_MEMINFO",
    "IPPROTO_TCP TCP_INFO",
    "IPPROTO_TCP TCP_TIMESTAMP",
    "IPPROTO_TCP TCP_CC_INFO",
    // These are "sdp", and values that follow from the size of the peer's receives.
    "IPPROTO_TCP TCP_CONGESTION",
    "IPPROTO_TCP TCP_MAXSEG",
    "IPPROTO_TCP TCP_WINDOW_CLAMP",
    "IPPROTO_TCP TCP_QUICKACK",
    // An accepted TCP socket has the number of hops that its peer's request had left.
    "IPPROTO_IP IP_MULTICAST_TTL",
    "IPPROTO_IPV6 IPV6_MULTICAST_HOPS",
];

pub(in crate::tests) fn is_own_value(option: &str) -> bool {
    OWN_VALUES.contains(&option)
}

/// A known difference.
struct Known {
    /// The beginnings of the calls' names. The words "setsockopt " and "getsockopt " are left out
    /// if both calls differ.
    calls: &'static [&'static str],
    /// The end of the calls' names.
    ends: &'static str,
    /// The errors of SDP in such a case; 0 if there is none.
    errnos: &'static [i32],
}

const KNOWN: &[Known] = &[
    // Options of TCP that SDP does not have.
    Known {
        calls: &[
            "IPPROTO_TCP TCP_MD5SIG",
            "IPPROTO_TCP TCP_THIN_",
            "IPPROTO_TCP TCP_REPAIR",
            "IPPROTO_TCP TCP_QUEUE_SEQ",
            "IPPROTO_TCP TCP_TIMESTAMP",
            "IPPROTO_TCP TCP_CC_INFO",
            "IPPROTO_TCP TCP_SAVE",
            "setsockopt IPPROTO_TCP TCP_ULP",
            "IPPROTO_TCP TCP_TX_DELAY",
            "IPPROTO_TCP other ",
        ],
        ends: "",
        errnos: &[ENOPROTOOPT],
    },
    // In SDP, all options of this level need at least four bytes.
    Known {
        calls: &["setsockopt IPPROTO_TCP TCP_ULP"],
        ends: "",
        errnos: &[EINVAL, EFAULT],
    },
    // SDP has no packets to filter or encrypt, and no headers to set.
    Known {
        calls: &[
            "SOL_SOCKET SO_ATTACH_",
            "IPPROTO_IP IP_MSFILTER",
            "IPPROTO_IP MCAST_MSFILTER",
            "IPPROTO_IPV6 IPV6_HOPOPTS",
            "IPPROTO_IPV6 IPV6_RTHDRDSTOPTS",
            "IPPROTO_IPV6 IPV6_RTHDR",
            "IPPROTO_IPV6 IPV6_DSTOPTS",
            "setsockopt IPPROTO_IP IP_OPTIONS",
            "setsockopt IPPROTO_IP IP_MINTTL",
            "setsockopt IPPROTO_IP IP_IPSEC_POLICY",
            "setsockopt IPPROTO_IP IP_XFRM_POLICY",
            "setsockopt IPPROTO_IPV6 IPV6_IPSEC_POLICY",
            "setsockopt IPPROTO_IPV6 IPV6_XFRM_POLICY",
            "setsockopt IPPROTO_IPV6 IPV6_2292PKTOPTIONS",
        ],
        ends: "",
        errnos: &[EOPNOTSUPP],
    },
    // These options are about routes, hops, source addresses and times of packets.
    Known {
        calls: &[
            "SOL_SOCKET SO_TXREHASH",
            "setsockopt SOL_SOCKET SO_MARK",
            "setsockopt SOL_SOCKET SO_DONTROUTE",
            "setsockopt SOL_SOCKET SO_TIMESTAMPING",
            "setsockopt IPPROTO_IP IP_TTL",
            "setsockopt IPPROTO_IPV6 IPV6_UNICAST_HOPS",
            "setsockopt IPPROTO_IPV6 IPV6_ADDR_PREFERENCES",
        ],
        ends: "",
        errnos: &[EOPNOTSUPP],
    },
    // The memory of devices is only used for packets.
    Known {
        calls: &["SOL_SOCKET SO_DEVMEM_DONTNEED"],
        ends: "",
        errnos: &[EBADF],
    },
    // SDP has no key of the namespace that could be read.
    Known {
        calls: &["getsockopt IPPROTO_TCP TCP_FASTOPEN_KEY, "],
        ends: "",
        errnos: &[0],
    },
    // SDP reads a value before it locks the socket. If only a part of the value can be read, SDP
    // cannot tell what the part would mean.
    Known {
        calls: &["IPPROTO_IP ", "IPPROTO_IPV6 "],
        ends: ", 16 bytes of which 4 can be read",
        errnos: &[EFAULT],
    },
    // An SDP socket keeps its family.
    Known {
        calls: &["IPPROTO_IPV6 IPV6_ADDRFORM"],
        ends: "",
        errnos: &[ENOPROTOOPT],
    },
    // In SDP, the adapter has the route. A TCP socket has a route from its last packet until an
    // option changes, so its answer depends on when it acknowledges received bytes.
    Known {
        calls: &[
            "getsockopt IPPROTO_IP IP_MTU, ",
            "getsockopt IPPROTO_IPV6 IPV6_MTU, ",
        ],
        ends: "",
        errnos: &[ENOTCONN],
    },
    // An IPv6 address turns a new SDP socket into an IPv6 socket.
    Known {
        calls: &["bind to IPv6", "connect to IPv6", "MSG_FASTOPEN to IPv6"],
        ends: "",
        errnos: &[EADDRNOTAVAIL, ENETUNREACH, EINVAL],
    },
];

/// Whether an answer of SDP that differs from TCP's is known.
pub(in crate::tests) fn covers(family: Family, call: &str, ours: &Answer) -> bool {
    let errno = ours.as_ref().err().copied().unwrap_or(0);
    let about = call
        .strip_prefix("setsockopt ")
        .or_else(|| call.strip_prefix("getsockopt "))
        .unwrap_or(call);
    let is_it = |known: &Known| {
        let mut begins = known.calls.iter();
        let begins = begins.any(|begin| about.starts_with(begin) || call.starts_with(begin));
        begins && about.ends_with(known.ends) && known.errnos.contains(&errno)
    };
    family == Family::Sdp && KNOWN.iter().any(is_it)
}
