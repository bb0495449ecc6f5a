// SPDX-License-Identifier: GPL-2.0

//! The options of a socket.

use crate::inet::sysctl::{
    Setting,
    Settings, //
};
use crate::proto::choice::Wanted;
use crate::proto::deferral::Timeouts;

/// TCP's default for TCP_SYNCNT (`net.ipv4.tcp_syn_retries`).
const SYN_RETRIES: i32 = 6;

/// The most of TCP_LINGER2, in seconds (`TCP_FIN_TIMEOUT_MAX`).
const MAX_FIN_TIMEOUT_S: i32 = 120;
/// Its default (`net.ipv4.tcp_fin_timeout`).
const FIN_TIMEOUT_S: i32 = 60;

/// The bytes of a key of TCP_FASTOPEN_KEY.
const KEY_BYTES: usize = 16;

/// One key, or two. There is no cookie that they would be for.
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

    /// Keys of so many bytes, still zeros; `None` if no keys are of that length.
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

/// What of TCP Fast Open programs read back, without effect: no bytes come with a request.
#[derive(Copy, Clone)]
pub(crate) struct FastOpen {
    /// How many connections with bytes a listener takes.
    pub(in crate::sdp) queue: i32,
    /// connect() would leave the request to the first write, if the cookie were known.
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

/// What the user has set, but for what calls look at without the lock: that is in
/// [`Glance`](super::glance::Glance).
#[derive(Copy, Clone)]
pub(crate) struct Options {
    pub(crate) nodelay: bool,
    pub(crate) cork: bool,
    pub(crate) keepidle_s: i32,
    pub(crate) keepintvl_s: i32,
    pub(crate) keepcnt: i32,
    pub(crate) user_timeout_ms: i32,
    /// How often TCP would send a SYN again.
    pub(crate) syn_retries: i32,
    /// Seconds that a closed socket waits for a peer that has all of the stream to close; 0 for the default,
    /// less for none.
    pub(crate) linger2_s: i32,
    /// Of a listener: for how long its connections are deferred.
    pub(in crate::sdp) defer_accept: Timeouts,
    /// Read back by programs, without effect.
    pub(crate) window_clamp: i32,
    pub(in crate::sdp) fast_open: FastOpen,
    /// The size that the send buffer began with.
    pub(crate) sndbuf_bytes: i32,
    /// The least bytes of a send without a copy; 0 for none.
    pub(crate) zcopy_thresh_bytes: i32,
    /// The way that sends go.
    pub(crate) wanted: Wanted,
    /// Who writes to memory that a send still needs waits, instead of having a copy.
    pub(crate) blocks: bool,
}

impl Options {
    /// For how long a connect() waits for an answer: as long as TCP, which waits a second after the first
    /// SYN, and after each other one twice as long as before, but 2 minutes at most; and sends four more at
    /// intervals of a second (`tcp_syn_linear_timeouts`), for which it has no time with fewer than three.
    pub(in crate::sdp) fn connect_ms(&self) -> u32 {
        let linear_ms = if self.syn_retries < 3 { 0 } else { 4000 };
        let doubled_ms: u32 = (0..=self.syn_retries)
            .map(|n| 1000 << n.clamp(0, 7))
            .map(|ms: u32| ms.min(120_000))
            .sum();
        linear_ms + doubled_ms
    }

    /// Sets TCP_LINGER2.
    pub(in crate::sdp) fn set_linger2(&mut self, seconds: i32) {
        self.linger2_s = seconds.clamp(-1, MAX_FIN_TIMEOUT_S);
    }

    /// What TCP_LINGER2 reads as: -1 for no time at all.
    pub(in crate::sdp) fn fin_timeout_s(&self) -> i32 {
        match self.linger2_s {
            0 => FIN_TIMEOUT_S,
            seconds => seconds,
        }
    }

    /// Of a connection to a listener with these options.
    pub(in crate::sdp) fn of_child(mut self) -> Self {
        self.defer_accept = Timeouts::NONE;
        self.fast_open.queue = 0;
        self.fast_open.keys = Keys::NONE;
        self
    }

    /// Of a new socket of a namespace with these settings.
    pub(in crate::sdp) fn new(settings: &Settings) -> Self {
        let wanted = Wanted::from_number(settings.get(Setting::ZcopyMode));
        Self {
            nodelay: false,
            cork: false,
            keepidle_s: settings.get(Setting::KeepaliveTime),
            keepintvl_s: settings.get(Setting::KeepaliveIntvl),
            keepcnt: settings.get(Setting::KeepaliveProbes),
            user_timeout_ms: 0,
            syn_retries: SYN_RETRIES,
            linger2_s: 0,
            defer_accept: Timeouts::NONE,
            window_clamp: 0,
            fast_open: FastOpen::NONE,
            sndbuf_bytes: settings.get(Setting::WmemDefault),
            zcopy_thresh_bytes: settings.get(Setting::ZcopyThresh),
            wanted: wanted.unwrap_or(Wanted::Automatic),
            blocks: settings.get(Setting::FaultPolicy) == 1,
        }
    }
}
