// SPDX-License-Identifier: GPL-2.0

//! TCP_INFO: a connection's figures in the terms of TCP.
//!
//! A message counts as a segment. The congestion window is the number of messages that the peer
//! permits to send: those that the peer has not acknowledged, and the receives that the peer has
//! posted. The adapter resends lost packets without the module, so nothing counts as resent. The
//! time after which the adapter does so is constant. There is no pacing and no slow start.

use crate::bindings::tcp_info;
use crate::inet::sock::Sk;
use crate::kern::time::ms_since;
use crate::proto::pace::{
    RoundTrip,
    Times, //
};
use crate::proto::state::State;
use crate::rdma::cm::ACK_TIMEOUT_US;
use crate::sdp::conn::connection::Connection;
use crate::sdp::conn::sock::SdpSock;
use crate::sdp::cq::poll::poll_cq;
use crate::sdp::parts::pacing::now_us;
use crate::stats::tally::Kept;

/// `tcpi_snd_ssthresh` of a connection that had no loss (`TCP_INFINITE_SSTHRESH`).
const NO_THRESHOLD: u32 = 0x7fff_ffff;

/// The figures of a connection's sender and receiver at one moment.
pub(crate) struct Figures {
    pub(crate) round_trip: RoundTrip,
    /// Bytes per second that have reached the peer, by the last sample.
    pub(crate) bytes_per_s: u64,
    pub(crate) times: Times,
    pub(crate) bytes_sent: u64,
    /// The bytes of these that have reached the peer.
    pub(crate) bytes_acked: u64,
    pub(crate) bytes_received: u64,
    /// Bytes that wait to be sent.
    pub(crate) notsent_bytes: u32,
    /// Messages that the peer has not acknowledged.
    pub(crate) unacked: u32,
    /// The time since a message with payload was last sent.
    pub(crate) last_sent_ms: u32,
    /// The time since bytes of the stream were last received.
    pub(crate) last_received_ms: u32,
    /// The time since anything was received.
    pub(crate) last_heard_ms: u32,
}

impl Figures {
    pub(super) fn of(conn: &mut Connection, sk: Sk) -> Self {
        let waiting = conn.out.queue.bytes();
        let unsent = conn.unsent_bytes(sk);
        let (pacing, tally) = (&mut conn.measured.pacing, &conn.measured.counts.tally);
        Self {
            round_trip: pacing.pace.round_trip(),
            bytes_per_s: pacing.pace.bytes_per_s(),
            times: pacing.pace.times(now_us()),
            bytes_sent: pacing.pace.sent(unsent.saturating_sub(waiting)),
            bytes_acked: pacing.pace.delivered(),
            bytes_received: tally.get(Kept::RxBytes),
            notsent_bytes: waiting,
            unacked: conn.credits.unacked(),
            last_sent_ms: ms_since(pacing.sent_at),
            last_received_ms: ms_since(pacing.received_at),
            last_heard_ms: ms_since(conn.liveness.keepalive.heard()),
        }
    }
}

/// The figures that TCP_INFO shows of a socket.
pub(crate) fn tcp_info(sock: &SdpSock) -> tcp_info {
    let mut guard = sock.lock();
    // A few completions may not have been handled yet.
    poll_cq(&mut guard);
    let sk = guard.sk();
    let tcpi_state = guard.conn().shown_state().tcp_state();
    if guard.conn().state == State::Listen {
        return tcp_info {
            tcpi_state,
            tcpi_unacked: sk.backlog(),
            tcpi_sacked: sk.backlog_max(),
            ..Default::default()
        };
    }
    let conn = guard.conn();
    let figures = Figures::of(conn, sk);
    let credits = &conn.credits;
    let receives = conn.link.as_ref().map_or(0, |l| l.receives_posted());
    let receive_bytes = conn.ring.receives.bytes();
    let (sent, received) = conn.measured.counts.tally.messages();
    tcp_info {
        tcpi_state,
        tcpi_probes: conn.liveness.keepalive.unanswered(),
        tcpi_rto: ACK_TIMEOUT_US,
        tcpi_snd_mss: conn.out.segment_bytes(),
        tcpi_rcv_mss: receive_bytes,
        tcpi_unacked: figures.unacked,
        tcpi_last_data_sent: figures.last_sent_ms,
        tcpi_last_data_recv: figures.last_received_ms,
        tcpi_last_ack_recv: figures.last_heard_ms,
        tcpi_rcv_ssthresh: sk.rcvbuf(),
        tcpi_rtt: figures.round_trip.smoothed_us,
        tcpi_rttvar: figures.round_trip.deviation_us,
        tcpi_snd_ssthresh: NO_THRESHOLD,
        tcpi_snd_cwnd: figures.unacked + credits.available(),
        tcpi_advmss: receive_bytes,
        tcpi_rcv_space: sk.rcvbuf(),
        tcpi_bytes_acked: figures.bytes_acked,
        tcpi_bytes_received: figures.bytes_received,
        // The counters wrap, as with TCP.
        tcpi_segs_out: sent as u32,
        tcpi_segs_in: received as u32,
        tcpi_notsent_bytes: figures.notsent_bytes,
        tcpi_min_rtt: figures.round_trip.least_us,
        tcpi_delivery_rate: figures.bytes_per_s,
        tcpi_busy_time: figures.times.busy_us,
        tcpi_rwnd_limited: figures.times.awaiting_peer_us,
        tcpi_sndbuf_limited: figures.times.awaiting_room_us,
        tcpi_delivered: sent.saturating_sub(figures.unacked.into()) as u32,
        tcpi_bytes_sent: figures.bytes_sent,
        tcpi_snd_wnd: credits
            .available()
            .saturating_mul(conn.out.peer_receives.bytes()),
        tcpi_rcv_wnd: receives.saturating_mul(receive_bytes),
        ..Default::default()
    }
}
