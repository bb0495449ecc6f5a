/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Trace events of ib_sdp. Documentation/tracing.rst describes each field;
 * rust/trace.rs has the functions that trace. The numbers of states, messages
 * and reasons are those of rust/proto.
 */

#undef TRACE_SYSTEM
#define TRACE_SYSTEM ib_sdp

#if !defined(_SDP_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _SDP_TRACE_H

#include <linux/tracepoint.h>

#ifndef SDP_TRACE_NAMES
#define SDP_TRACE_NAMES

#define sdp_show_state(state)		\
	__print_symbolic(state,		\
		{ 0, "Closed" },	\
		{ 1, "Listen" },	\
		{ 2, "Resolving" },	\
		{ 3, "HelloSent" },	\
		{ 4, "HelloReceived" },	\
		{ 5, "Established" },	\
		{ 6, "FinWait1" },	\
		{ 7, "FinWait2" },	\
		{ 8, "CloseWait" },	\
		{ 9, "LastAck" },	\
		{ 10, "Closing" },	\
		{ 11, "Draining" },	\
		{ 12, "Dead" })

#define sdp_show_mid(mid)			\
	__print_symbolic(mid,			\
		{ 0x00, "Hello" },		\
		{ 0x01, "HelloAck" },		\
		{ 0x02, "DisConn" },		\
		{ 0x03, "AbortConn" },		\
		{ 0x04, "SendSm" },		\
		{ 0x05, "RdmaWrCompl" },	\
		{ 0x06, "RdmaRdCompl" },	\
		{ 0x07, "ModeChange" },		\
		{ 0x08, "SrcAvailCancel" },	\
		{ 0x09, "SinkAvailCancel" },	\
		{ 0x0a, "SinkCancelAck" },	\
		{ 0x0b, "ChRcvBuf" },		\
		{ 0x0c, "ChRcvBufAck" },	\
		{ 0x0d, "Suspend" },		\
		{ 0x0e, "SuspendAck" },		\
		{ 0xfd, "SinkAvail" },		\
		{ 0xfe, "SrcAvail" },		\
		{ 0xff, "Data" })

#define sdp_show_reason(reason)			\
	__print_symbolic(reason,		\
		{ 0, "NotAgreed" },		\
		{ 1, "NotPinnable" },		\
		{ 2, "NotProtectable" },	\
		{ 3, "BelowThreshold" },	\
		{ 4, "PinLimit" },		\
		{ 5, "NoCredits" },		\
		{ 6, "AdvertsFull" },		\
		{ 7, "AdvertsBusy" },		\
		{ 8, "NonBlocking" },		\
		{ 9, "TooManyFaults" },		\
		{ 10, "PeerDoesNotWait" },	\
		{ 11, "NoOverlap" },		\
		{ 12, "SharedMapping" },	\
		{ 13, "FileMapping" },		\
		{ 14, "HugeTlb" },		\
		{ 15, "Userfaultfd" },		\
		{ 16, "Slower" },		\
		{ 17, "QueueBusy" })

#endif /* SDP_TRACE_NAMES */

TRACE_EVENT(sdp_state,
	TP_PROTO(u64 cookie, const u8 *local, u16 local_port, const u8 *peer, u16 peer_port,
		 u8 from, u8 to),
	TP_ARGS(cookie, local, local_port, peer, peer_port, from, to),
	TP_STRUCT__entry(
		__field(u64, cookie)
		__array(u8, local, 16)
		__array(u8, peer, 16)
		__field(u16, local_port)
		__field(u16, peer_port)
		__field(u8, from)
		__field(u8, to)
	),
	TP_fast_assign(
		__entry->cookie = cookie;
		memcpy(__entry->local, local, 16);
		memcpy(__entry->peer, peer, 16);
		__entry->local_port = local_port;
		__entry->peer_port = peer_port;
		__entry->from = from;
		__entry->to = to;
	),
	TP_printk("cookie=%llu local=[%pI6c]:%u peer=[%pI6c]:%u from=%s to=%s",
		  __entry->cookie, __entry->local, __entry->local_port, __entry->peer,
		  __entry->peer_port, sdp_show_state(__entry->from), sdp_show_state(__entry->to))
);

DECLARE_EVENT_CLASS(sdp_message,
	TP_PROTO(u64 cookie, u8 mid, u32 mseq, u32 mseq_ack, u32 bufs, u32 payload, u32 credits),
	TP_ARGS(cookie, mid, mseq, mseq_ack, bufs, payload, credits),
	TP_STRUCT__entry(
		__field(u64, cookie)
		__field(u32, mseq)
		__field(u32, mseq_ack)
		__field(u32, bufs)
		__field(u32, payload)
		__field(u32, credits)
		__field(u8, mid)
	),
	TP_fast_assign(
		__entry->cookie = cookie;
		__entry->mid = mid;
		__entry->mseq = mseq;
		__entry->mseq_ack = mseq_ack;
		__entry->bufs = bufs;
		__entry->payload = payload;
		__entry->credits = credits;
	),
	TP_printk("cookie=%llu mid=%s mseq=%u mseq_ack=%u bufs=%u payload=%u credits=%u",
		  __entry->cookie, sdp_show_mid(__entry->mid), __entry->mseq, __entry->mseq_ack,
		  __entry->bufs, __entry->payload, __entry->credits)
);

DEFINE_EVENT(sdp_message, sdp_send,
	TP_PROTO(u64 cookie, u8 mid, u32 mseq, u32 mseq_ack, u32 bufs, u32 payload, u32 credits),
	TP_ARGS(cookie, mid, mseq, mseq_ack, bufs, payload, credits)
);

DEFINE_EVENT(sdp_message, sdp_receive,
	TP_PROTO(u64 cookie, u8 mid, u32 mseq, u32 mseq_ack, u32 bufs, u32 payload, u32 credits),
	TP_ARGS(cookie, mid, mseq, mseq_ack, bufs, payload, credits)
);

DECLARE_EVENT_CLASS(sdp_advert,
	TP_PROTO(u64 cookie, bool sink, u32 len, u32 bytes),
	TP_ARGS(cookie, sink, len, bytes),
	TP_STRUCT__entry(
		__field(u64, cookie)
		__field(u32, len)
		__field(u32, bytes)
		__field(u8, sink)
	),
	TP_fast_assign(
		__entry->cookie = cookie;
		__entry->sink = sink;
		__entry->len = len;
		__entry->bytes = bytes;
	),
	TP_printk("cookie=%llu kind=%s len=%u bytes=%u", __entry->cookie,
		  __entry->sink ? "sink" : "source", __entry->len, __entry->bytes)
);

DEFINE_EVENT(sdp_advert, sdp_advert_posted,
	TP_PROTO(u64 cookie, bool sink, u32 len, u32 bytes),
	TP_ARGS(cookie, sink, len, bytes)
);

DEFINE_EVENT(sdp_advert, sdp_advert_read,
	TP_PROTO(u64 cookie, bool sink, u32 len, u32 bytes),
	TP_ARGS(cookie, sink, len, bytes)
);

DEFINE_EVENT(sdp_advert, sdp_advert_completed,
	TP_PROTO(u64 cookie, bool sink, u32 len, u32 bytes),
	TP_ARGS(cookie, sink, len, bytes)
);

DEFINE_EVENT(sdp_advert, sdp_advert_cancelled,
	TP_PROTO(u64 cookie, bool sink, u32 len, u32 bytes),
	TP_ARGS(cookie, sink, len, bytes)
);

TRACE_EVENT(sdp_protect,
	TP_PROTO(unsigned long addr, bool receive, u32 pages, u32 protected),
	TP_ARGS(addr, receive, pages, protected),
	TP_STRUCT__entry(
		__field(unsigned long, addr)
		__field(u32, pages)
		__field(u32, protected)
		__field(u8, receive)
	),
	TP_fast_assign(
		__entry->addr = addr;
		__entry->receive = receive;
		__entry->pages = pages;
		__entry->protected = protected;
	),
	TP_printk("addr=0x%lx for=%s pages=%u protected=%u", __entry->addr,
		  __entry->receive ? "receive" : "send", __entry->pages, __entry->protected)
);

TRACE_EVENT(sdp_restore,
	TP_PROTO(unsigned long addr, bool receive, u32 pages, u32 touched, u32 restored),
	TP_ARGS(addr, receive, pages, touched, restored),
	TP_STRUCT__entry(
		__field(unsigned long, addr)
		__field(u32, pages)
		__field(u32, touched)
		__field(u32, restored)
		__field(u8, receive)
	),
	TP_fast_assign(
		__entry->addr = addr;
		__entry->receive = receive;
		__entry->pages = pages;
		__entry->touched = touched;
		__entry->restored = restored;
	),
	TP_printk("addr=0x%lx for=%s pages=%u touched=%u restored=%u", __entry->addr,
		  __entry->receive ? "receive" : "send", __entry->pages, __entry->touched,
		  __entry->restored)
);

TRACE_EVENT(sdp_fault,
	TP_PROTO(unsigned long addr, bool receive),
	TP_ARGS(addr, receive),
	TP_STRUCT__entry(
		__field(unsigned long, addr)
		__field(u8, receive)
	),
	TP_fast_assign(
		__entry->addr = addr;
		__entry->receive = receive;
	),
	TP_printk("addr=0x%lx for=%s", __entry->addr, __entry->receive ? "receive" : "send")
);

TRACE_EVENT(sdp_by_copy,
	TP_PROTO(u64 cookie, u8 reason),
	TP_ARGS(cookie, reason),
	TP_STRUCT__entry(
		__field(u64, cookie)
		__field(u8, reason)
	),
	TP_fast_assign(
		__entry->cookie = cookie;
		__entry->reason = reason;
	),
	TP_printk("cookie=%llu reason=%s", __entry->cookie, sdp_show_reason(__entry->reason))
);

#endif /* _SDP_TRACE_H */

/* This part must be outside the include guard. */
#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE sdp_trace
#include <trace/define_trace.h>
