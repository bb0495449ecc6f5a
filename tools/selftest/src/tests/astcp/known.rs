// SPDX-License-Identifier: GPL-2.0
//! Where SDP's answers are not TCP's. Documentation/tcp.rst has the same for readers.

use super::Answer;
use crate::support::harness::Family;
use libc::{EADDRNOTAVAIL, EBADF, EFAULT, EINVAL, ENETUNREACH, ENOPROTOOPT, ENOTCONN, EOPNOTSUPP};

/// Options whose values are not compared: each socket has its own, or the family.
const OWN_VALUES: &[&str] = &[
    "SOL_SOCKET SO_COOKIE",
    "SOL_SOCKET SO_PEERNAME",
    "SOL_SOCKET SO_INCOMING_CPU",
    "SOL_SOCKET SO_INCOMING_NAPI_ID",
    // IP_PROTOCOL: of a socket that is not raw, its port.
    "IPPROTO_IP 52",
    // SDP's own number.
    "SOL_SOCKET SO_PROTOCOL",
    // Their defaults are not TCP's.
    "SOL_SOCKET SO_SNDBUF",
    "SOL_SOCKET SO_RCVBUF",
    "SOL_SOCKET SO_MEMINFO",
    "IPPROTO_TCP TCP_INFO",
    "IPPROTO_TCP TCP_TIMESTAMP",
    "IPPROTO_TCP TCP_CC_INFO",
    // "sdp", and what the peer's receives take.
    "IPPROTO_TCP TCP_CONGESTION",
    "IPPROTO_TCP TCP_MAXSEG",
    "IPPROTO_TCP TCP_WINDOW_CLAMP",
    "IPPROTO_TCP TCP_QUICKACK",
    // An accepted TCP socket has the hops that its peer's request had left.
    "IPPROTO_IP IP_MULTICAST_TTL",
];

pub(in crate::tests) fn is_own_value(option: &str) -> bool {
    OWN_VALUES.contains(&option)
}

/// A difference.
struct Known {
    /// How the names of the calls begin, without "setsockopt " or "getsockopt " if they are about options and
    /// both differ.
    calls: &'static [&'static str],
    /// How they end.
    ends: &'static str,
    /// The errors that SDP has instead; 0 for none.
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
            "IPPROTO_TCP TCP_ULP",
            "IPPROTO_TCP TCP_TX_DELAY",
            "IPPROTO_TCP other ",
        ],
        ends: "",
        errnos: &[ENOPROTOOPT],
    },
    // All of them want four bytes at least.
    Known {
        calls: &["IPPROTO_TCP TCP_ULP"],
        ends: "",
        errnos: &[EINVAL, EFAULT],
    },
    // There are no packets to filter, nor headers to set.
    Known {
        calls: &[
            "SOL_SOCKET SO_ATTACH_",
            "IPPROTO_IP IP_MSFILTER",
            "IPPROTO_IP MCAST_MSFILTER",
            "IPPROTO_IPV6 IPV6_HOPOPTS",
            "IPPROTO_IPV6 IPV6_RTHDRDSTOPTS",
            "IPPROTO_IPV6 IPV6_RTHDR",
            "IPPROTO_IPV6 IPV6_DSTOPTS",
        ],
        ends: "",
        errnos: &[EOPNOTSUPP],
    },
    // The paths of packets.
    Known {
        calls: &["SOL_SOCKET SO_TXREHASH"],
        ends: "",
        errnos: &[EOPNOTSUPP],
    },
    // The memory of devices is for packets.
    Known {
        calls: &["SOL_SOCKET SO_DEVMEM_DONTNEED"],
        ends: "",
        errnos: &[EBADF],
    },
    // There is no namespace's key to read.
    Known {
        calls: &["getsockopt IPPROTO_TCP TCP_FASTOPEN_KEY, "],
        ends: "",
        errnos: &[0],
    },
    // Values are read before the socket is locked; of a part, SDP cannot tell what it would mean.
    Known {
        calls: &["IPPROTO_IP ", "IPPROTO_IPV6 "],
        ends: ", 16 bytes of which 4 can be read",
        errnos: &[EFAULT],
    },
    // A socket keeps its family.
    Known {
        calls: &["IPPROTO_IPV6 IPV6_ADDRFORM"],
        ends: "",
        errnos: &[ENOPROTOOPT],
    },
    // The adapter has the route. A TCP socket has one from a packet that it sends until an option changes, so
    // that its answer depends on when it acknowledges what has come.
    Known {
        calls: &[
            "getsockopt IPPROTO_IP IP_MTU, ",
            "getsockopt IPPROTO_IPV6 IPV6_MTU, ",
        ],
        ends: "",
        errnos: &[ENOTCONN],
    },
    // An IPv6 address makes a new socket one of IPv6.
    Known {
        calls: &["bind to IPv6", "connect to IPv6", "MSG_FASTOPEN to IPv6"],
        ends: "",
        errnos: &[EADDRNOTAVAIL, ENETUNREACH, EINVAL],
    },
];

/// Whether an answer of SDP's that is not TCP's is a known one.
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
