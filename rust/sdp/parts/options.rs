// SPDX-License-Identifier: GPL-2.0

//! The options of a socket.

use crate::inet::netns::Net;
use crate::inet::sysctl::{
    Setting,
    Settings, //
};
use crate::proto::choice::Wanted;
use crate::proto::deferral::Timeouts;
use crate::proto::keepalive::Limits;
use crate::proto::watchdog::LEAST_UNANSWERED_MS;

/// The maximum of TCP_LINGER2 in seconds (`TCP_FIN_TIMEOUT_MAX`).
const MAX_FIN_TIMEOUT_S: i32 = 120;

/// The size of one key of TCP_FASTOPEN_KEY in bytes.
const KEY_BYTES: usize = 16;

/// One or two keys. They have no use, because there are no cookies.
#[derive(Copy, Clone)]
pub(crate) struct Keys {
    bytes: [u8; 2 * KEY_BYTES],
    len: usize,
}

impl Keys {
    const NONE: Self = Self {
        bytes: [0; 2 * KEY_BYTES],
        len: 0,
    };

    /// Keys of `len` bytes in total, all zero; `None` if keys cannot have this length.
    pub(in crate::sdp) fn of_len(len: usize) -> Option<Self> {
        let is_right = len == KEY_BYTES || len == 2 * KEY_BYTES;
        is_right.then_some(Self { len, ..Self::NONE })
    }

    pub(in crate::sdp) fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes.get_mut(..self.len).unwrap_or_default()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// The options of TCP Fast Open, which programs can read back. They have no effect on a connection
/// by SDP, because a request carries no bytes.
#[derive(Copy, Clone)]
pub(crate) struct FastOpen {
    /// How many connections with bytes a listener accepts.
    pub(in crate::sdp) queue: i32,
    /// With TCP, connect() would leave the request to the first write, if it knew the cookie. A
    /// socket with this option does not fall back to TCP.
    pub(in crate::sdp) connect: bool,
    pub(in crate::sdp) no_cookie: bool,
    pub(in crate::sdp) keys: Keys,
}

impl FastOpen {
    const NONE: Self = Self {
        queue: 0,
        connect: false,
        no_cookie: false,
        keys: Keys::NONE,
    };
}

/// The options that the user has set, except those that calls read without the lock: they are in
/// [`Glance`](super::glance::Glance).
#[derive(Copy, Clone)]
pub(crate) struct Options {
    pub(crate) nodelay: bool,
    pub(crate) cork: bool,
    pub(crate) keepidle_s: i32,
    pub(crate) keepintvl_s: i32,
    pub(crate) keepcnt: i32,
    pub(crate) user_timeout_ms: i32,
    /// How often TCP would resend a SYN; 0 for the default.
    pub(crate) syn_retries: i32,
    /// Seconds that a closed socket waits until a peer that has the whole stream closes; 0 for the
    /// default, negative for no time.
    pub(crate) linger2_s: i32,
    /// Of a listener: how long its connections are deferred.
    pub(in crate::sdp) defer_accept: Timeouts,
    /// Read back by programs, without effect.
    pub(crate) window_clamp: i32,
    /// Read back by programs, without effect: the adapter always acknowledges at once.
    pub(in crate::sdp) quickack: bool,
    /// Read back by programs, without effect: the sizes of messages depend on the peer's receives.
    /// 0 if the program has set no size.
    pub(in crate::sdp) maxseg_bytes: i32,
    pub(in crate::sdp) fast_open: FastOpen,
    /// The initial size of the send buffer.
    pub(crate) sndbuf_bytes: i32,
    /// The minimum size of a send without a copy; 0 for none, negative to leave it to the adapter.
    pub(crate) zcopy_thresh_bytes: i32,
    /// The path that the user has chosen for sends.
    pub(crate) wanted: Wanted,
    /// A thread that writes to memory that a send still needs waits, instead of getting a copy.
    pub(crate) blocks: bool,
}

impl Options {
    /// How long connect() waits for an answer, as long as TCP: a second after the first SYN, and
    /// after each further one twice as long as before, but at most 2 minutes. TCP also sends four
    /// more SYNs at intervals of a second (`tcp_syn_linear_timeouts`), but has no time for them if
    /// the option is less than three. TCP_USER_TIMEOUT shortens the time.
    pub(in crate::sdp) fn connect_ms(&self, net: Net<'_>) -> u32 {
        let retries = self.syn_retries(net);
        let linear_ms = if retries < 3 { 0 } else { 4000 };
        let doubled_ms: u32 = (0..=retries)
            .map(|n| 1000 << n.clamp(0, 7))
            .map(|ms: u32| ms.min(120_000))
            .sum();
        let all_ms = linear_ms + doubled_ms;
        // As in tcp_write_timeout(), but a lost request must be repeated once.
        match self.user_timeout_ms.unsigned_abs() {
            0 => all_ms,
            user_ms => all_ms.min(user_ms.max(LEAST_UNANSWERED_MS)),
        }
    }

    /// The value of TCP_SYNCNT.
    pub(in crate::sdp) fn syn_retries(&self, net: Net<'_>) -> i32 {
        match self.syn_retries {
            0 => net.syn_retries(),
            retries => retries,
        }
    }

    /// The options that decide about probes of a silent peer.
    pub(in crate::sdp) fn keepalive_limits(&self) -> Limits {
        // The values are at most 32767 seconds.
        let ms = |seconds: i32| seconds.unsigned_abs().saturating_mul(1000);
        Limits {
            idle_ms: ms(self.keepidle_s),
            interval_ms: ms(self.keepintvl_s),
            probes: self.keepcnt.unsigned_abs(),
            user_timeout_ms: self.user_timeout_ms.unsigned_abs(),
        }
    }

    /// Sets TCP_LINGER2.
    pub(in crate::sdp) fn set_linger2(&mut self, seconds: i32) {
        self.linger2_s = seconds.clamp(-1, MAX_FIN_TIMEOUT_S);
    }

    /// The value of TCP_LINGER2 that programs read; -1 for no time.
    pub(in crate::sdp) fn fin_timeout_s(&self, net: Net<'_>) -> i32 {
        match self.linger2_s {
            0 => net.fin_timeout_s(),
            seconds => seconds,
        }
    }

    /// The options of a connection to a listener with these options.
    pub(in crate::sdp) fn of_child(mut self) -> Self {
        self.defer_accept = Timeouts::NONE;
        self.fast_open.queue = 0;
        self.fast_open.keys = Keys::NONE;
        self
    }

    /// The options of a new socket in a namespace with these settings.
    pub(in crate::sdp) fn new(settings: &Settings) -> Self {
        let wanted = Wanted::from_number(settings.get(Setting::ZcopyMode));
        Self {
            nodelay: false,
            cork: false,
            keepidle_s: settings.get(Setting::KeepaliveTime),
            keepintvl_s: settings.get(Setting::KeepaliveIntvl),
            keepcnt: settings.get(Setting::KeepaliveProbes),
            user_timeout_ms: 0,
            syn_retries: 0,
            linger2_s: 0,
            defer_accept: Timeouts::NONE,
            window_clamp: 0,
            quickack: true,
            maxseg_bytes: 0,
            fast_open: FastOpen::NONE,
            sndbuf_bytes: settings.get(Setting::WmemDefault),
            zcopy_thresh_bytes: settings.get(Setting::ZcopyThresh),
            wanted: wanted.unwrap_or(Wanted::Automatic),
            blocks: settings.get(Setting::FaultPolicy) == 1,
        }
    }
}
