// SPDX-License-Identifier: GPL-2.0
/* Inline functions and macros for pages, per-CPU data, work items and I/O vectors. No logic. */

#include <linux/completion.h>
#include <linux/cpumask.h>
#include <linux/gfp.h>
#include <linux/mm.h>
#include <linux/net.h>
#include <linux/percpu.h>
#include <linux/percpu_counter.h>
#include <linux/rcupdate.h>
#include <linux/scatterlist.h>
#include <linux/sched/signal.h>
#include <linux/uaccess.h>
#include <linux/uio.h>
#include <linux/workqueue.h>

struct page *sdp_helper_alloc_pages(gfp_t gfp, unsigned int order);
struct page *sdp_helper_alloc_pages(gfp_t gfp, unsigned int order)
{
	return alloc_pages(gfp, order);
}

void sdp_helper_init_completion(struct completion *done);
void sdp_helper_init_completion(struct completion *done)
{
	init_completion(done);
}

bool sdp_helper_sendpage_ok(struct page *page);
bool sdp_helper_sendpage_ok(struct page *page)
{
	return sendpage_ok(page);
}

void sdp_helper_put_page(struct page *page);
void sdp_helper_put_page(struct page *page)
{
	put_page(page);
}

void sdp_helper_get_page(struct page *page);
void sdp_helper_get_page(struct page *page)
{
	get_page(page);
}

int sdp_helper_page_count(const struct page *page);
int sdp_helper_page_count(const struct page *page)
{
	return page_count(page);
}

unsigned int sdp_helper_compound_order(const struct page *page);
unsigned int sdp_helper_compound_order(const struct page *page)
{
	return compound_order(page);
}

void *sdp_helper_page_address(struct page *page);
void *sdp_helper_page_address(struct page *page)
{
	return page_address(page);
}

void *sdp_helper_alloc_percpu(size_t size, size_t align);
void *sdp_helper_alloc_percpu(size_t size, size_t align)
{
	return (void *)(__force unsigned long)__alloc_percpu(size, align);
}

void sdp_helper_free_percpu(void *p);
void sdp_helper_free_percpu(void *p)
{
	free_percpu((void __percpu *)(__force unsigned long)p);
}

void sdp_helper_percpu_add_u64(void *base, size_t index, u64 n);
void sdp_helper_percpu_add_u64(void *base, size_t index, u64 n)
{
	u64 __percpu *p = (u64 __percpu *)(__force unsigned long)base;

	this_cpu_add(p[index], n);
}

u64 sdp_helper_percpu_read_u64(void *base, size_t index, unsigned int cpu);
u64 sdp_helper_percpu_read_u64(void *base, size_t index, unsigned int cpu)
{
	u64 __percpu *p = (u64 __percpu *)(__force unsigned long)base;

	return READ_ONCE(*per_cpu_ptr(&p[index], cpu));
}

bool sdp_helper_cpu_possible(unsigned int cpu);
bool sdp_helper_cpu_possible(unsigned int cpu)
{
	return cpu_possible(cpu);
}

int sdp_helper_percpu_counter_init(struct percpu_counter *fbc, s64 amount);
int sdp_helper_percpu_counter_init(struct percpu_counter *fbc, s64 amount)
{
	return percpu_counter_init(fbc, amount, GFP_KERNEL);
}

void sdp_helper_percpu_counter_destroy(struct percpu_counter *fbc);
void sdp_helper_percpu_counter_destroy(struct percpu_counter *fbc)
{
	percpu_counter_destroy(fbc);
}

void sdp_helper_init_work(struct work_struct *work, work_func_t func,
			  const char *name, struct lock_class_key *key);
void sdp_helper_init_work(struct work_struct *work, work_func_t func,
			  const char *name, struct lock_class_key *key)
{
	__init_work(work, 0);
	work->data = (atomic_long_t)WORK_DATA_INIT();
	lockdep_init_map(&work->lockdep_map, name, key, 0);
	INIT_LIST_HEAD(&work->entry);
	work->func = func;
}

void sdp_helper_init_delayed_work(struct delayed_work *dwork, work_func_t func,
				  const char *name, struct lock_class_key *key);
void sdp_helper_init_delayed_work(struct delayed_work *dwork, work_func_t func,
				  const char *name, struct lock_class_key *key)
{
	sdp_helper_init_work(&dwork->work, func, name, key);
	timer_setup(&dwork->timer, delayed_work_timer_fn, TIMER_IRQSAFE);
}

bool sdp_helper_queue_work(struct workqueue_struct *wq,
			   struct work_struct *work);
bool sdp_helper_queue_work(struct workqueue_struct *wq,
			   struct work_struct *work)
{
	return queue_work(wq, work);
}

bool sdp_helper_mod_delayed_work(struct workqueue_struct *wq,
				 struct delayed_work *dwork,
				 unsigned long delay);
bool sdp_helper_mod_delayed_work(struct workqueue_struct *wq,
				 struct delayed_work *dwork,
				 unsigned long delay)
{
	return mod_delayed_work(wq, dwork, delay);
}

bool sdp_helper_delayed_work_pending(struct delayed_work *dwork);
bool sdp_helper_delayed_work_pending(struct delayed_work *dwork)
{
	return delayed_work_pending(dwork);
}

bool sdp_helper_cancel_delayed_work(struct delayed_work *dwork);
bool sdp_helper_cancel_delayed_work(struct delayed_work *dwork)
{
	return cancel_delayed_work(dwork);
}

struct workqueue_struct *sdp_helper_alloc_workqueue(const char *name,
						    unsigned int flags,
						    int max_active);
struct workqueue_struct *sdp_helper_alloc_workqueue(const char *name,
						    unsigned int flags,
						    int max_active)
{
	return alloc_workqueue("%s", flags, max_active, name);
}

void sdp_helper_rcu_read_lock(void);
void sdp_helper_rcu_read_lock(void)
{
	rcu_read_lock();
}

void sdp_helper_rcu_read_unlock(void);
void sdp_helper_rcu_read_unlock(void)
{
	rcu_read_unlock();
}

unsigned int sdp_helper_jiffies_to_msecs(unsigned long jiffies);
unsigned int sdp_helper_jiffies_to_msecs(unsigned long jiffies)
{
	return jiffies_to_msecs(jiffies);
}

unsigned long sdp_helper_nr_free_buffer_pages(void);
unsigned long sdp_helper_nr_free_buffer_pages(void)
{
	return nr_free_buffer_pages();
}

size_t sdp_helper_iov_iter_count(const struct iov_iter *i);
size_t sdp_helper_iov_iter_count(const struct iov_iter *i)
{
	return iov_iter_count(i);
}

void sdp_helper_pagefault_disable(void);
void sdp_helper_pagefault_disable(void)
{
	pagefault_disable();
}

void sdp_helper_pagefault_enable(void);
void sdp_helper_pagefault_enable(void)
{
	pagefault_enable();
}

bool sdp_helper_fatal_signal_pending(void);
bool sdp_helper_fatal_signal_pending(void)
{
	return fatal_signal_pending(current);
}

size_t sdp_helper_copy_from_iter(void *addr, size_t bytes, struct iov_iter *i);
size_t sdp_helper_copy_from_iter(void *addr, size_t bytes, struct iov_iter *i)
{
	return copy_from_iter(addr, bytes, i);
}

size_t sdp_helper_copy_to_iter(const void *addr, size_t bytes,
			       struct iov_iter *i);
size_t sdp_helper_copy_to_iter(const void *addr, size_t bytes,
			       struct iov_iter *i)
{
	return copy_to_iter(addr, bytes, i);
}

bool sdp_helper_iov_iter_is_bvec(const struct iov_iter *i);
bool sdp_helper_iov_iter_is_bvec(const struct iov_iter *i)
{
	return iov_iter_is_bvec(i);
}

bool sdp_helper_iov_iter_extract_will_pin(const struct iov_iter *i);
bool sdp_helper_iov_iter_extract_will_pin(const struct iov_iter *i)
{
	return iov_iter_extract_will_pin(i);
}

int sdp_helper_sg_alloc_table_from_pages(struct sg_table *sgt,
					 struct page **pages, unsigned int n,
					 unsigned int offset,
					 unsigned long size, gfp_t gfp);
int sdp_helper_sg_alloc_table_from_pages(struct sg_table *sgt,
					 struct page **pages, unsigned int n,
					 unsigned int offset,
					 unsigned long size, gfp_t gfp)
{
	return sg_alloc_table_from_pages(sgt, pages, n, offset, size, gfp);
}
