/* SPDX-License-Identifier: GPL-2.0 */
/* Input of the module's bindgen run; the allowlist selects the output. */

#include <linux/capability.h>
#include <linux/completion.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/inetdevice.h>
#include <linux/ipv6.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/module.h>
#include <linux/net.h>
#include <linux/netdevice.h>
#include <linux/pagemap.h>
#include <linux/percpu.h>
#include <linux/poll.h>
#include <linux/proc_fs.h>
#include <linux/scatterlist.h>
#include <linux/sched.h>
#include <linux/seq_file.h>
#include <linux/skbuff.h>
#include <linux/sock_diag.h>
#include <linux/sysctl.h>
#include <linux/tcp.h>
#include <linux/uio.h>
#include <linux/userfaultfd_k.h>
#include <linux/workqueue.h>
#include <net/addrconf.h>
#include <net/genetlink.h>
#include <net/inet6_hashtables.h>
#include <net/inet_common.h>
#include <net/inet_hashtables.h>
#include <net/inet_sock.h>
#include <net/ip.h>
#include <net/ip6_route.h>
#include <net/ipv6.h>
#include <net/net_namespace.h>
#include <net/netns/generic.h>
#include <net/protocol.h>
#include <net/route.h>
#include <net/sock.h>
#include <net/tcp.h>
#include <net/tcp_states.h>
#include <linux/percpu_counter.h>
#include <linux/sockios.h>
#include <asm/ioctls.h>
#include <rdma/ib_cm.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>
#include "../helpers/sdp_trace.h"

/* Macros that bindgen cannot evaluate by itself. */
const gfp_t SDP_CONST_GFP_ATOMIC = GFP_ATOMIC;
const gfp_t SDP_CONST_GFP_KERNEL = GFP_KERNEL;
const gfp_t SDP_CONST___GFP_COMP = __GFP_COMP;
const gfp_t SDP_CONST___GFP_NOWARN = __GFP_NOWARN;
const gfp_t SDP_CONST___GFP_NORETRY = __GFP_NORETRY;
const unsigned int SDP_CONST_TASK_KILLABLE = TASK_KILLABLE;
const unsigned int SDP_CONST_TASK_NORMAL = TASK_NORMAL;
const unsigned int SDP_CONST_FOLL_SPLIT_PMD = FOLL_SPLIT_PMD;
const unsigned int SDP_CONST_FOLL_LONGTERM = FOLL_LONGTERM;
const unsigned int SDP_CONST_FOLL_WRITE = FOLL_WRITE;
const unsigned int SDP_CONST_GUP_PIN_COUNTING_BIAS = GUP_PIN_COUNTING_BIAS;
const int SDP_CONST_CAP_SYS_PTRACE = CAP_SYS_PTRACE;
const int SDP_CONST_CAP_NET_ADMIN = CAP_NET_ADMIN;
const unsigned int SDP_CONST_PF_KTHREAD = PF_KTHREAD;
const unsigned int SDP_CONST_PF_SIGNALED = PF_SIGNALED;
const unsigned int SDP_CONST_PF_MEMALLOC = PF_MEMALLOC;
const unsigned long SDP_CONST_VM_SOFTDIRTY = VM_SOFTDIRTY;
const unsigned long SDP_CONST_VM_LOCKED = VM_LOCKED;
/*
 * Flags of areas that are not simply private memory of a program. The kernel
 * crate's MAYSHARE is VM_MAYEXEC (Linux 7.2).
 */
const unsigned long SDP_CONST_VM_SHARED = VM_SHARED | VM_MAYSHARE;
const unsigned long SDP_CONST_VM_SPECIAL = VM_PFNMAP | VM_MIXEDMAP | VM_IO |
	VM_SHADOW_STACK | VM_DROPPABLE;
const unsigned long SDP_CONST_VM_UFFD = __VM_UFFD_FLAGS;
const int SDP_CONST_RT_SCOPE_HOST = RT_SCOPE_HOST;
const unsigned int SDP_CONST_RTN_LOCAL = RTN_LOCAL;
const unsigned int SDP_CONST_RTN_BROADCAST = RTN_BROADCAST;
const unsigned int SDP_CONST_RTN_MULTICAST = RTN_MULTICAST;
const unsigned int SDP_CONST_EPOLLIN = (unsigned int)EPOLLIN;
const unsigned int SDP_CONST_EPOLLPRI = (unsigned int)EPOLLPRI;
const unsigned int SDP_CONST_EPOLLOUT = (unsigned int)EPOLLOUT;
const unsigned int SDP_CONST_EPOLLERR = (unsigned int)EPOLLERR;
const unsigned int SDP_CONST_EPOLLHUP = (unsigned int)EPOLLHUP;
const unsigned int SDP_CONST_EPOLLMSG = (unsigned int)EPOLLMSG;
const unsigned int SDP_CONST_EPOLLRDHUP = (unsigned int)EPOLLRDHUP;
const unsigned int SDP_CONST_EPOLLRDNORM = (unsigned int)EPOLLRDNORM;
const unsigned int SDP_CONST_EPOLLWRNORM = (unsigned int)EPOLLWRNORM;
const unsigned int SDP_CONST_EPOLLRDBAND = (unsigned int)EPOLLRDBAND;
const unsigned int SDP_CONST_EPOLLWRBAND = (unsigned int)EPOLLWRBAND;
const unsigned int SDP_CONST_WQ_UNBOUND = WQ_UNBOUND;
const unsigned int SDP_CONST_WQ_BH = WQ_BH | WQ_PERCPU;
const u64 SDP_CONST_IB_DEVICE_MEM_MGT_EXTENSIONS = IB_DEVICE_MEM_MGT_EXTENSIONS;
const u32 SDP_CONST_RDMA_DRIVER_RXE = RDMA_DRIVER_RXE;
const u32 SDP_CONST_RDMA_DRIVER_VMW_PVRDMA = RDMA_DRIVER_VMW_PVRDMA;
const u32 SDP_CONST_RDMA_DRIVER_SIW = RDMA_DRIVER_SIW;
const u8 SDP_CONST_RDMA_NODE_IB_CA = RDMA_NODE_IB_CA;
const u32 SDP_CONST_SOCKCM_FLAG_TS_OPT_ID = SOCKCM_FLAG_TS_OPT_ID;
const u32 SDP_CONST_MAX_ERRNO = MAX_ERRNO;
const int SDP_CONST_SOCK_MIN_RCVBUF = SOCK_MIN_RCVBUF;
const int SDP_CONST_SIOCINQ = SIOCINQ;
const int SDP_CONST_SIOCOUTQ = SIOCOUTQ;
const int SDP_CONST_SIOCOUTQNSD = SIOCOUTQNSD;
const int SDP_CONST_SIOCATMARK = SIOCATMARK;
const size_t SDP_CONST_NETLINK_CTX_SIZE = NETLINK_CTX_SIZE;
const int SDP_CONST_ASYNC_NOSPACE = SOCKWQ_ASYNC_NOSPACE;
const int SDP_CONST_TFO_CLIENT_ENABLE = TFO_CLIENT_ENABLE;
const unsigned int SDP_CONST_IFF_LOOPBACK = IFF_LOOPBACK;

/* The compiler's view of the layouts; rust/bindings.rs compares them. */
const size_t SDP_CONST_SIZEOF_SOCK = sizeof(struct sock);
const size_t SDP_CONST_SIZEOF_INET_SOCK = sizeof(struct inet_sock);
const size_t SDP_CONST_SIZEOF_IPV6_PINFO = sizeof(struct ipv6_pinfo);
const size_t SDP_CONST_SIZEOF_SOCKET = sizeof(struct socket);
const size_t SDP_CONST_SIZEOF_PROTO = sizeof(struct proto);
const size_t SDP_CONST_SIZEOF_PROTO_OPS = sizeof(struct proto_ops);
const size_t SDP_CONST_SIZEOF_CTL_TABLE = sizeof(struct ctl_table);
const size_t SDP_CONST_OFFSET_CTL_TABLE_EXTRA1 = offsetof(struct ctl_table, extra1);
const size_t SDP_CONST_SIZEOF_RDMA_CM_ID = sizeof(struct rdma_cm_id);
const size_t SDP_CONST_SIZEOF_RDMA_CM_EVENT = sizeof(struct rdma_cm_event);
const size_t SDP_CONST_SIZEOF_IB_WC = sizeof(struct ib_wc);
const size_t SDP_CONST_SIZEOF_IB_SEND_WR = sizeof(struct ib_send_wr);
const size_t SDP_CONST_SIZEOF_IB_QP_INIT_ATTR = sizeof(struct ib_qp_init_attr);
const size_t SDP_CONST_SIZEOF_MSGHDR = sizeof(struct msghdr);
const size_t SDP_CONST_SIZEOF_WORK = sizeof(struct work_struct);
const size_t SDP_CONST_SIZEOF_DELAYED_WORK = sizeof(struct delayed_work);
const size_t SDP_CONST_SIZEOF_SOCKET_LOCK = sizeof(socket_lock_t);
const size_t SDP_CONST_SIZEOF_GENL_FAMILY = sizeof(struct genl_family);
const size_t SDP_CONST_SIZEOF_GENL_INFO = sizeof(struct genl_info);
const size_t SDP_CONST_SIZEOF_GENL_SPLIT_OPS = sizeof(struct genl_split_ops);
const size_t SDP_CONST_SIZEOF_NETLINK_CALLBACK = sizeof(struct netlink_callback);
const size_t SDP_CONST_SIZEOF_NLA_POLICY = sizeof(struct nla_policy);
const size_t SDP_CONST_OFFSET_SK_LOCK = offsetof(struct sock, sk_lock);
const size_t SDP_CONST_OFFSET_SK_SHUTDOWN = offsetof(struct sock, sk_shutdown);
const size_t SDP_CONST_OFFSET_SK_PEER_CRED = offsetof(struct sock, sk_peer_cred);
const size_t SDP_CONST_OFFSET_SK_STATE_CHANGE = offsetof(struct sock, sk_state_change);
const size_t SDP_CONST_OFFSET_SK_DATA_READY = offsetof(struct sock, sk_data_ready);
const size_t SDP_CONST_OFFSET_SK_WRITE_SPACE = offsetof(struct sock, sk_write_space);
const size_t SDP_CONST_OFFSET_SK_DESTRUCT = offsetof(struct sock, sk_destruct);
