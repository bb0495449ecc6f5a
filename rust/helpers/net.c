// SPDX-License-Identifier: GPL-2.0
/* Inline functions, macros and fields of the network core, made callable. No logic. */

#include <linux/bpf-cgroup.h>
#include <linux/inetdevice.h>
#include <linux/netdevice.h>
#include <linux/poll.h>
#include <linux/proc_fs.h>
#include <linux/rcupdate.h>
#include <linux/tcp.h>
#include <linux/uaccess.h>
#include <net/addrconf.h>
#include <net/busy_poll.h>
#include <net/genetlink.h>
#include <net/inet_connection_sock.h>
#include <net/inet_sock.h>
#include <net/ip.h>
#include <net/ip6_route.h>
#include <net/ipv6.h>
#include <net/l3mdev.h>
#include <net/net_namespace.h>
#include <net/netns/generic.h>
#include <net/route.h>
#include <net/sock.h>
#include <net/tcp.h>
#include <net/xfrm.h>

void sdp_helper_lock_sock(struct sock *sk);
void sdp_helper_lock_sock(struct sock *sk)
{
	lock_sock(sk);
}

void sdp_helper_lock_sock_nested(struct sock *sk);
void sdp_helper_lock_sock_nested(struct sock *sk)
{
	lock_sock_nested(sk, SINGLE_DEPTH_NESTING);
}

void sdp_helper_xfrm_sk_free_policy(struct sock *sk);
void sdp_helper_xfrm_sk_free_policy(struct sock *sk)
{
	xfrm_sk_free_policy(sk);
}

void sdp_helper_bh_lock_sock(struct sock *sk);
void sdp_helper_bh_lock_sock(struct sock *sk)
{
	bh_lock_sock(sk);
}

void sdp_helper_bh_unlock_sock(struct sock *sk);
void sdp_helper_bh_unlock_sock(struct sock *sk)
{
	bh_unlock_sock(sk);
}

bool sdp_helper_sock_owned_by_user(struct sock *sk);
bool sdp_helper_sock_owned_by_user(struct sock *sk)
{
	return sock_owned_by_user(sk);
}

void sdp_helper_sock_lock_init(struct sock *sk, const char *sname,
			       struct lock_class_key *skey, const char *name,
			       struct lock_class_key *key);
void sdp_helper_sock_lock_init(struct sock *sk, const char *sname,
			       struct lock_class_key *skey, const char *name,
			       struct lock_class_key *key)
{
	sock_lock_init_class_and_name(sk, sname, skey, name, key);
}

void sdp_helper_sock_hold(struct sock *sk);
void sdp_helper_sock_hold(struct sock *sk)
{
	sock_hold(sk);
}

void sdp_helper_sock_put(struct sock *sk);
void sdp_helper_sock_put(struct sock *sk)
{
	sock_put(sk);
}

void sdp_helper_sock_orphan(struct sock *sk);
void sdp_helper_sock_orphan(struct sock *sk)
{
	sock_orphan(sk);
}

bool sdp_helper_sock_flag(const struct sock *sk, enum sock_flags flag);
bool sdp_helper_sock_flag(const struct sock *sk, enum sock_flags flag)
{
	return sock_flag(sk, flag);
}

void sdp_helper_sock_set_flag(struct sock *sk, enum sock_flags flag);
void sdp_helper_sock_set_flag(struct sock *sk, enum sock_flags flag)
{
	sock_set_flag(sk, flag);
}

void sdp_helper_sock_reset_flag(struct sock *sk, enum sock_flags flag);
void sdp_helper_sock_reset_flag(struct sock *sk, enum sock_flags flag)
{
	sock_reset_flag(sk, flag);
}

struct net *sdp_helper_sock_net(const struct sock *sk);
struct net *sdp_helper_sock_net(const struct sock *sk)
{
	return sock_net(sk);
}

void sdp_helper_sk_state_store(struct sock *sk, int state);
void sdp_helper_sk_state_store(struct sock *sk, int state)
{
	/* Pairs with the lockless readers of sk_state, as in the core. */
	smp_store_release(&sk->sk_state, state);
}

int sdp_helper_sock_error(struct sock *sk);
int sdp_helper_sock_error(struct sock *sk)
{
	return sock_error(sk);
}

long sdp_helper_sock_rcvtimeo(const struct sock *sk, bool noblock);
long sdp_helper_sock_rcvtimeo(const struct sock *sk, bool noblock)
{
	return sock_rcvtimeo(sk, noblock);
}

long sdp_helper_sock_sndtimeo(const struct sock *sk, bool noblock);
long sdp_helper_sock_sndtimeo(const struct sock *sk, bool noblock)
{
	return sock_sndtimeo(sk, noblock);
}

int sdp_helper_sock_rcvlowat(const struct sock *sk, int waitall, int len);
int sdp_helper_sock_rcvlowat(const struct sock *sk, int waitall, int len)
{
	return sock_rcvlowat(sk, waitall, len);
}

void sdp_helper_sk_peek_offset_fwd(struct sock *sk, int val);
void sdp_helper_sk_peek_offset_fwd(struct sock *sk, int val)
{
	sk_peek_offset_fwd(sk, val);
}

void sdp_helper_sk_peek_offset_bwd(struct sock *sk, int val);
void sdp_helper_sk_peek_offset_bwd(struct sock *sk, int val)
{
	sk_peek_offset_bwd(sk, val);
}

bool sdp_helper_signal_pending_current(void);
bool sdp_helper_signal_pending_current(void)
{
	return signal_pending(current);
}

void sdp_helper_sk_set_bit(int nr, struct sock *sk);
void sdp_helper_sk_set_bit(int nr, struct sock *sk)
{
	sk_set_bit(nr, sk);
}

void sdp_helper_sk_wake_async(const struct sock *sk, int how, int band);
void sdp_helper_sk_wake_async(const struct sock *sk, int how, int band)
{
	sk_wake_async(sk, how, band);
}

struct socket_wq *sdp_helper_sk_wq_rcu(const struct sock *sk);
struct socket_wq *sdp_helper_sk_wq_rcu(const struct sock *sk)
{
	return rcu_dereference(sk->sk_wq);
}

bool sdp_helper_skwq_has_sleeper(struct socket_wq *wq);
bool sdp_helper_skwq_has_sleeper(struct socket_wq *wq)
{
	return skwq_has_sleeper(wq);
}

wait_queue_head_t *sdp_helper_sk_sleep(struct sock *sk);
wait_queue_head_t *sdp_helper_sk_sleep(struct sock *sk)
{
	return sk_sleep(sk);
}

bool sdp_helper_waitqueue_active(wait_queue_head_t *queue);
bool sdp_helper_waitqueue_active(wait_queue_head_t *queue)
{
	/* The caller needs no barrier, or has its own. */
	return waitqueue_active(queue);
}

void sdp_helper_wait_queue_lock_nested(wait_queue_head_t *queue);
void sdp_helper_wait_queue_lock_nested(wait_queue_head_t *queue)
{
	spin_lock_nested(&queue->lock, SINGLE_DEPTH_NESTING);
}

void sdp_helper_wait_queue_unlock(wait_queue_head_t *queue);
void sdp_helper_wait_queue_unlock(wait_queue_head_t *queue)
{
	spin_unlock(&queue->lock);
}

void sdp_helper_init_wait_woken(struct wait_queue_entry *wait);
void sdp_helper_init_wait_woken(struct wait_queue_entry *wait)
{
	init_waitqueue_func_entry(wait, woken_wake_function);
	wait->private = current;
	INIT_LIST_HEAD(&wait->entry);
}

bool sdp_helper_sk_can_busy_loop(struct sock *sk);
bool sdp_helper_sk_can_busy_loop(struct sock *sk)
{
	return sk_can_busy_loop(sk);
}

unsigned long sdp_helper_busy_loop_current_time(void);
unsigned long sdp_helper_busy_loop_current_time(void)
{
	return busy_loop_current_time();
}

bool sdp_helper_sk_busy_loop_timeout(struct sock *sk, unsigned long start);
bool sdp_helper_sk_busy_loop_timeout(struct sock *sk, unsigned long start)
{
	return sk_busy_loop_timeout(sk, start);
}

bool sdp_helper_need_resched(void);
bool sdp_helper_need_resched(void)
{
	return need_resched();
}

void sdp_helper_sock_poll_wait(struct file *file, struct socket *sock,
			       struct poll_table_struct *p);
void sdp_helper_sock_poll_wait(struct file *file, struct socket *sock,
			       struct poll_table_struct *p)
{
	sock_poll_wait(file, sock, p);
}

__poll_t sdp_helper_poll_requested_events(const struct poll_table_struct *p);
__poll_t sdp_helper_poll_requested_events(const struct poll_table_struct *p)
{
	return poll_requested_events(p);
}

bool sdp_helper___sk_stream_is_writeable(const struct sock *sk, int wake);
bool sdp_helper___sk_stream_is_writeable(const struct sock *sk, int wake)
{
	return __sk_stream_is_writeable(sk, wake);
}

bool sdp_helper_sk_stream_memory_free(const struct sock *sk);
bool sdp_helper_sk_stream_memory_free(const struct sock *sk)
{
	return sk_stream_memory_free(sk);
}

bool sdp_helper_sk_wmem_schedule(struct sock *sk, int size);
bool sdp_helper_sk_wmem_schedule(struct sock *sk, int size)
{
	return sk_wmem_schedule(sk, size);
}

void sdp_helper_sk_wmem_queued_add(struct sock *sk, int val);
void sdp_helper_sk_wmem_queued_add(struct sock *sk, int val)
{
	sk_wmem_queued_add(sk, val);
}

void sdp_helper_sk_mem_charge(struct sock *sk, int size);
void sdp_helper_sk_mem_charge(struct sock *sk, int size)
{
	sk_mem_charge(sk, size);
}

void sdp_helper_sk_mem_uncharge(struct sock *sk, int size);
void sdp_helper_sk_mem_uncharge(struct sock *sk, int size)
{
	sk_mem_uncharge(sk, size);
}

void sdp_helper_sk_acceptq_added(struct sock *sk);
void sdp_helper_sk_acceptq_added(struct sock *sk)
{
	sk_acceptq_added(sk);
}

void sdp_helper_sk_acceptq_removed(struct sock *sk);
void sdp_helper_sk_acceptq_removed(struct sock *sk)
{
	sk_acceptq_removed(sk);
}

bool sdp_helper_sk_acceptq_is_full(const struct sock *sk);
bool sdp_helper_sk_acceptq_is_full(const struct sock *sk)
{
	return sk_acceptq_is_full(sk);
}

bool sdp_helper_sk_is_tcp(const struct sock *sk);
bool sdp_helper_sk_is_tcp(const struct sock *sk)
{
	return sk_is_tcp(sk);
}

__poll_t sdp_helper_inet_csk_listen_poll(const struct sock *sk);
__poll_t sdp_helper_inet_csk_listen_poll(const struct sock *sk)
{
	return inet_csk_listen_poll(sk);
}

void sdp_helper_sk_sockets_allocated_inc(struct sock *sk);
void sdp_helper_sk_sockets_allocated_inc(struct sock *sk)
{
	sk_sockets_allocated_inc(sk);
}

void sdp_helper_sk_sockets_allocated_dec(struct sock *sk);
void sdp_helper_sk_sockets_allocated_dec(struct sock *sk)
{
	sk_sockets_allocated_dec(sk);
}

void sdp_helper_inet_set_mc_loop(struct sock *sk);
void sdp_helper_inet_set_mc_loop(struct sock *sk)
{
	inet_set_bit(MC_LOOP, sk);
}

void sdp_helper_inet6_set_mc_loop(struct sock *sk);
void sdp_helper_inet6_set_mc_loop(struct sock *sk)
{
	inet6_set_bit(MC6_LOOP, sk);
}

void sdp_helper_inet6_set_mc_all(struct sock *sk);
void sdp_helper_inet6_set_mc_all(struct sock *sk)
{
	inet6_set_bit(MC6_ALL, sk);
}

void sdp_helper_inet_set_mc_all(struct sock *sk);
void sdp_helper_inet_set_mc_all(struct sock *sk)
{
	inet_set_bit(MC_ALL, sk);
}

bool sdp_helper_inet_is_local_reserved_port(struct net *net,
					    unsigned short port);
bool sdp_helper_inet_is_local_reserved_port(struct net *net,
					    unsigned short port)
{
	return inet_is_local_reserved_port(net, port);
}

bool sdp_helper_ipv6_only_sock(const struct sock *sk);
bool sdp_helper_ipv6_only_sock(const struct sock *sk)
{
	return ipv6_only_sock(sk);
}

bool sdp_helper_inet_sk_bound_dev_eq(const struct net *net, int bound_dev_if,
				     int dif, int sdif);
bool sdp_helper_inet_sk_bound_dev_eq(const struct net *net, int bound_dev_if,
				     int dif, int sdif)
{
	return inet_sk_bound_dev_eq(net, bound_dev_if, dif, sdif);
}

int sdp_helper_inet_sk_bound_l3mdev(const struct sock *sk);
int sdp_helper_inet_sk_bound_l3mdev(const struct sock *sk)
{
	return inet_sk_bound_l3mdev(sk);
}

int sdp_helper_l3mdev_master_ifindex_by_index(struct net *net, int ifindex);
int sdp_helper_l3mdev_master_ifindex_by_index(struct net *net, int ifindex)
{
	return l3mdev_master_ifindex_by_index(net, ifindex);
}

u8 sdp_helper_net_bindv6only(const struct net *net);
u8 sdp_helper_net_bindv6only(const struct net *net)
{
	return READ_ONCE(net->ipv6.sysctl.bindv6only);
}

bool sdp_helper_ipv6_mod_enabled(void);
bool sdp_helper_ipv6_mod_enabled(void)
{
	return ipv6_mod_enabled();
}

u8 sdp_helper_net_ip_no_pmtu_disc(const struct net *net);
u8 sdp_helper_net_ip_no_pmtu_disc(const struct net *net)
{
	return READ_ONCE(net->ipv4.sysctl_ip_no_pmtu_disc);
}

int sdp_helper_net_tcp_fastopen(const struct net *net);
int sdp_helper_net_tcp_fastopen(const struct net *net)
{
	return READ_ONCE(net->ipv4.sysctl_tcp_fastopen);
}

int sdp_helper_net_tcp_syn_retries(const struct net *net);
int sdp_helper_net_tcp_syn_retries(const struct net *net)
{
	return READ_ONCE(net->ipv4.sysctl_tcp_syn_retries);
}

int sdp_helper_net_tcp_fin_timeout(const struct net *net);
int sdp_helper_net_tcp_fin_timeout(const struct net *net)
{
	return READ_ONCE(net->ipv4.sysctl_tcp_fin_timeout);
}

int sdp_helper_net_somaxconn(const struct net *net);
int sdp_helper_net_somaxconn(const struct net *net)
{
	return READ_ONCE(net->core.sysctl_somaxconn);
}

u32 sdp_helper_sk_uid(const struct sock *sk);
u32 sdp_helper_sk_uid(const struct sock *sk)
{
	return from_kuid_munged(&init_user_ns, sk_uid(sk));
}

u32 sdp_helper_sk_uid_in_file(const struct sock *sk, struct seq_file *seq);
u32 sdp_helper_sk_uid_in_file(const struct sock *sk, struct seq_file *seq)
{
	return from_kuid_munged(seq_user_ns(seq), sk_uid(sk));
}

unsigned long sdp_helper_sock_i_ino(const struct sock *sk);
unsigned long sdp_helper_sock_i_ino(const struct sock *sk)
{
	return sock_i_ino(sk);
}

void sdp_helper_clear_sk_cookie(struct sock *sk);
void sdp_helper_clear_sk_cookie(struct sock *sk)
{
	atomic64_set(&sk->sk_cookie, 0);
}

/* bindgen gets the layout of struct net before this member wrong. */
u64 sdp_helper_net_cookie(const struct net *net);
u64 sdp_helper_net_cookie(const struct net *net)
{
	return net->net_cookie;
}

void *sdp_helper_net_generic(const struct net *net, unsigned int id);
void *sdp_helper_net_generic(const struct net *net, unsigned int id)
{
	return net_generic(net, id);
}

struct net_device *sdp_helper_first_net_device(struct net *net);
struct net_device *sdp_helper_first_net_device(struct net *net)
{
	return first_net_device(net);
}

struct net_device *sdp_helper_next_net_device_rcu(struct net_device *dev);
struct net_device *sdp_helper_next_net_device_rcu(struct net_device *dev)
{
	return next_net_device_rcu(dev);
}

struct in_device *sdp_helper_in_dev_get_rcu(const struct net_device *dev);
struct in_device *sdp_helper_in_dev_get_rcu(const struct net_device *dev)
{
	return __in_dev_get_rcu(dev);
}

struct in_ifaddr *sdp_helper_ifa_list_rcu(const struct in_device *in_dev);
struct in_ifaddr *sdp_helper_ifa_list_rcu(const struct in_device *in_dev)
{
	return rcu_dereference(in_dev->ifa_list);
}

/*
 * The first IPv6 address of the device that is in use and is not a link-local
 * one. The caller is in an RCU section.
 */
bool sdp_helper_first_in6_addr(const struct net_device *dev, u8 ip[16]);
bool sdp_helper_first_in6_addr(const struct net_device *dev, u8 ip[16])
{
	const struct inet6_dev *in6_dev = __in6_dev_get(dev);
	const struct inet6_ifaddr *ifa;

	if (!in6_dev)
		return false;
	list_for_each_entry_rcu(ifa, &in6_dev->addr_list, if_list) {
		if (ifa->flags & (IFA_F_TENTATIVE | IFA_F_DADFAILED) ||
		    ipv6_addr_type(&ifa->addr) & IPV6_ADDR_LINKLOCAL)
			continue;
		memcpy(ip, &ifa->addr, sizeof(ifa->addr));
		return true;
	}
	return false;
}

unsigned int sdp_helper_net_device_flags(const struct net_device *dev);
unsigned int sdp_helper_net_device_flags(const struct net_device *dev)
{
	return dev->flags;
}

int sdp_helper_copy_from_sockptr(void *dst, sockptr_t src, size_t size);
int sdp_helper_copy_from_sockptr(void *dst, sockptr_t src, size_t size)
{
	return copy_from_sockptr(dst, src, size);
}

bool sdp_helper_sockptr_is_null(sockptr_t p);
bool sdp_helper_sockptr_is_null(sockptr_t p)
{
	return sockptr_is_null(p);
}

sockptr_t sdp_helper_user_sockptr(void __user *p);
sockptr_t sdp_helper_user_sockptr(void __user *p)
{
	return USER_SOCKPTR(p);
}

sockptr_t sdp_helper_kernel_sockptr(void *p);
sockptr_t sdp_helper_kernel_sockptr(void *p)
{
	return KERNEL_SOCKPTR(p);
}

void sdp_helper_inet_get_local_port_range(const struct net *net, int *low,
					  int *high);
void sdp_helper_inet_get_local_port_range(const struct net *net, int *low,
					  int *high)
{
	inet_get_local_port_range(net, low, high);
}

void sdp_helper_set_custom_sockopt(struct socket *sock);
void sdp_helper_set_custom_sockopt(struct socket *sock)
{
	set_bit(SOCK_CUSTOM_SOCKOPT, &sock->flags);
}

void sdp_helper_set_support_zc(struct socket *sock);
void sdp_helper_set_support_zc(struct socket *sock)
{
	set_bit(SOCK_SUPPORT_ZC, &sock->flags);
}

void sdp_helper_net_zcopy_get(struct ubuf_info *uarg);
void sdp_helper_net_zcopy_get(struct ubuf_info *uarg)
{
	net_zcopy_get(uarg);
}

void sdp_helper_net_zcopy_put(struct ubuf_info *uarg);
void sdp_helper_net_zcopy_put(struct ubuf_info *uarg)
{
	net_zcopy_put(uarg);
}

struct sk_buff *sdp_helper_alloc_skb(unsigned int size, gfp_t priority);
struct sk_buff *sdp_helper_alloc_skb(unsigned int size, gfp_t priority)
{
	return alloc_skb(size, priority);
}

void sdp_helper_skb_set_delivery_time(struct sk_buff *skb, ktime_t kt,
				      u8 tstamp_type);
void sdp_helper_skb_set_delivery_time(struct sk_buff *skb, ktime_t kt,
				      u8 tstamp_type)
{
	skb_set_delivery_time(skb, kt, tstamp_type);
}

void sdp_helper_sock_recv_timestamp(struct msghdr *msg, struct sock *sk,
				    struct sk_buff *skb);
void sdp_helper_sock_recv_timestamp(struct msghdr *msg, struct sock *sk,
				    struct sk_buff *skb)
{
	sock_recv_timestamp(msg, sk, skb);
}

void sdp_helper_consume_skb(struct sk_buff *skb);
void sdp_helper_consume_skb(struct sk_buff *skb)
{
	consume_skb(skb);
}

bool sdp_helper_skb_queue_empty_lockless(const struct sk_buff_head *list);
bool sdp_helper_skb_queue_empty_lockless(const struct sk_buff_head *list)
{
	return skb_queue_empty_lockless(list);
}

int sdp_helper_put_user_int(int val, int __user *to);
int sdp_helper_put_user_int(int val, int __user *to)
{
	return put_user(val, to);
}

int sdp_helper_get_user_int(int *val, int __user *from);
int sdp_helper_get_user_int(int *val, int __user *from)
{
	return get_user(*val, from);
}

unsigned long sdp_helper_copy_to_user(void __user *to, const void *from,
				      unsigned long n);
unsigned long sdp_helper_copy_to_user(void __user *to, const void *from,
				      unsigned long n)
{
	return copy_to_user(to, from, n);
}

struct proc_dir_entry *
sdp_helper_proc_create_in_net(const char *name, struct net *net,
			      int (*show)(struct seq_file *, void *));
struct proc_dir_entry *
sdp_helper_proc_create_in_net(const char *name, struct net *net,
			      int (*show)(struct seq_file *, void *))
{
	return proc_create_net_single(name, 0444, net->proc_net, show, NULL);
}

void sdp_helper_proc_remove_net(const char *name, struct net *net);
void sdp_helper_proc_remove_net(const char *name, struct net *net)
{
	remove_proc_entry(name, net->proc_net);
}

struct net *sdp_helper_seq_file_single_net(struct seq_file *seq);
struct net *sdp_helper_seq_file_single_net(struct seq_file *seq)
{
	return seq_file_single_net(seq);
}

struct page_frag *sdp_helper_sk_page_frag(struct sock *sk);
struct page_frag *sdp_helper_sk_page_frag(struct sock *sk)
{
	return sk_page_frag(sk);
}

void sdp_helper_sk_rmem_alloc_add(struct sock *sk, int val);
void sdp_helper_sk_rmem_alloc_add(struct sock *sk, int val)
{
	atomic_add(val, &sk->sk_rmem_alloc);
}

int sdp_helper_sk_rmem_alloc_get(const struct sock *sk);
int sdp_helper_sk_rmem_alloc_get(const struct sock *sk)
{
	return atomic_read(&sk->sk_rmem_alloc);
}

bool sdp_helper_sk_rmem_schedule(struct sock *sk, int size, bool pfmemalloc);
bool sdp_helper_sk_rmem_schedule(struct sock *sk, int size, bool pfmemalloc)
{
	return __sk_rmem_schedule(sk, size, pfmemalloc);
}

void sdp_helper_set_nospace(struct sock *sk);
void sdp_helper_set_nospace(struct sock *sk)
{
	set_bit(SOCK_NOSPACE, &sk->sk_socket->flags);
}

bool sdp_helper_test_nospace(const struct sock *sk);
bool sdp_helper_test_nospace(const struct sock *sk)
{
	return test_bit(SOCK_NOSPACE, &sk->sk_socket->flags);
}

bool sdp_helper_test_and_clear_nospace(struct sock *sk);
bool sdp_helper_test_and_clear_nospace(struct sock *sk)
{
	return test_and_clear_bit(SOCK_NOSPACE, &sk->sk_socket->flags);
}

void sdp_helper_smp_mb(void);
void sdp_helper_smp_mb(void)
{
	/* The caller documents the barrier. */
	smp_mb();
}

void sdp_helper_smp_rmb(void);
void sdp_helper_smp_rmb(void)
{
	/* The caller documents the barrier. */
	smp_rmb();
}

void sdp_helper_smp_wmb(void);
void sdp_helper_smp_wmb(void)
{
	/* The caller documents the barrier. */
	smp_wmb();
}

int sdp_helper_bpf_inet_sock(struct sock *sk);
int sdp_helper_bpf_inet_sock(struct sock *sk)
{
	return BPF_CGROUP_RUN_PROG_INET_SOCK(sk);
}

int sdp_helper_bpf_inet4_connect(struct sock *sk, struct sockaddr *uaddr,
				 int *addr_len);
int sdp_helper_bpf_inet4_connect(struct sock *sk, struct sockaddr *uaddr,
				 int *addr_len)
{
	return BPF_CGROUP_RUN_PROG_INET4_CONNECT(sk, uaddr, addr_len);
}

int sdp_helper_bpf_inet6_connect(struct sock *sk, struct sockaddr *uaddr,
				 int *addr_len);
int sdp_helper_bpf_inet6_connect(struct sock *sk, struct sockaddr *uaddr,
				 int *addr_len)
{
	return BPF_CGROUP_RUN_PROG_INET6_CONNECT(sk, uaddr, addr_len);
}

struct rtable *sdp_helper_ip_route_output(struct net *net, __be32 daddr,
					  __be32 saddr, int oif);
struct rtable *sdp_helper_ip_route_output(struct net *net, __be32 daddr,
					  __be32 saddr, int oif)
{
	return ip_route_output(net, daddr, saddr, 0, oif, RT_SCOPE_UNIVERSE);
}

void sdp_helper_ip_rt_put(struct rtable *rt);
void sdp_helper_ip_rt_put(struct rtable *rt)
{
	ip_rt_put(rt);
}

struct dst_entry *sdp_helper_ip6_route_output(struct net *net,
					      const struct sock *sk,
					      struct flowi6 *fl6);
struct dst_entry *sdp_helper_ip6_route_output(struct net *net,
					      const struct sock *sk,
					      struct flowi6 *fl6)
{
	return ip6_route_output(net, sk, fl6);
}

void sdp_helper_dst_release(struct dst_entry *dst);
void sdp_helper_dst_release(struct dst_entry *dst)
{
	dst_release(dst);
}

u32 sdp_helper_reader_uid(const struct seq_file *seq);
u32 sdp_helper_reader_uid(const struct seq_file *seq)
{
	return from_kuid_munged(&init_user_ns, seq->file->f_cred->euid);
}

u32 sdp_helper_sk_uid_seen_by(const struct sock *sk, const struct sk_buff *from);
u32 sdp_helper_sk_uid_seen_by(const struct sock *sk, const struct sk_buff *from)
{
	return from_kuid_munged(sk_user_ns(NETLINK_CB(from).sk), sk_uid(sk));
}

struct net *sdp_helper_genl_info_net(const struct genl_info *info);
struct net *sdp_helper_genl_info_net(const struct genl_info *info)
{
	return genl_info_net(info);
}

const struct genl_info *sdp_helper_genl_info_dump(struct netlink_callback *cb);
const struct genl_info *sdp_helper_genl_info_dump(struct netlink_callback *cb)
{
	return genl_info_dump(cb);
}

struct sk_buff *sdp_helper_genlmsg_new(size_t payload, gfp_t flags);
struct sk_buff *sdp_helper_genlmsg_new(size_t payload, gfp_t flags)
{
	return genlmsg_new(payload, flags);
}

void sdp_helper_genlmsg_end(struct sk_buff *skb, void *hdr);
void sdp_helper_genlmsg_end(struct sk_buff *skb, void *hdr)
{
	genlmsg_end(skb, hdr);
}

void sdp_helper_genlmsg_cancel(struct sk_buff *skb, void *hdr);
void sdp_helper_genlmsg_cancel(struct sk_buff *skb, void *hdr)
{
	genlmsg_cancel(skb, hdr);
}

void sdp_helper_nlmsg_free(struct sk_buff *skb);
void sdp_helper_nlmsg_free(struct sk_buff *skb)
{
	nlmsg_free(skb);
}

struct nlattr *sdp_helper_nla_nest_start(struct sk_buff *skb, int attrtype);
struct nlattr *sdp_helper_nla_nest_start(struct sk_buff *skb, int attrtype)
{
	return nla_nest_start(skb, attrtype);
}

int sdp_helper_nla_nest_end(struct sk_buff *skb, struct nlattr *start);
int sdp_helper_nla_nest_end(struct sk_buff *skb, struct nlattr *start)
{
	return nla_nest_end(skb, start);
}

int sdp_helper_genlmsg_reply(struct sk_buff *skb, struct genl_info *info);
int sdp_helper_genlmsg_reply(struct sk_buff *skb, struct genl_info *info)
{
	return genlmsg_reply(skb, info);
}

int sdp_helper_genl_has_listeners(const struct genl_family *family, struct net *net,
				  unsigned int group);
int sdp_helper_genl_has_listeners(const struct genl_family *family, struct net *net,
				  unsigned int group)
{
	return genl_has_listeners(family, net, group);
}

int sdp_helper_genl_set_err(const struct genl_family *family, struct net *net, u32 portid,
			    u32 group, int code);
int sdp_helper_genl_set_err(const struct genl_family *family, struct net *net, u32 portid,
			    u32 group, int code)
{
	return genl_set_err(family, net, portid, group, code);
}

int sdp_helper_genlmsg_multicast_netns(const struct genl_family *family, struct net *net,
				       struct sk_buff *skb, gfp_t flags);
int sdp_helper_genlmsg_multicast_netns(const struct genl_family *family, struct net *net,
				       struct sk_buff *skb, gfp_t flags)
{
	return genlmsg_multicast_netns(family, net, skb, 0, 0, flags);
}
