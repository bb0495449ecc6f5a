# SPDX-License-Identifier: GPL-2.0
"""The check of kernel logs: reports of the kernel's checkers must be found."""

import unittest

from vmlib import klog

START = "[    0.1] WARNING: something in the kernel's own start\n[    2.0] Run /init as init process\n"

REPORTS = [
    "[   11.1] WARNING: net/core/stream.c:206 at sk_stream_kill_queues+0x1, CPU#0: selftest/99",
    "[   11.1] WARNING: possible circular locking dependency detected",
    "[   11.1] WARNING: suspicious RCU usage",
    "[   11.1] BUG: KASAN: slab-use-after-free in foo+0x1/0x2",
    "[   11.1] BUG: sleeping function called from invalid context at mm/slab.h:1",
    "[   11.1] BUG: kernel NULL pointer dereference, address: 0000000000000000",
    "[   11.1] Oops: general protection fault, probably for non-canonical address",
    "[   11.1] INFO: task selftest:99 blocked for more than 120 seconds.",
    "[   11.1] kmemleak: 3 new suspected memory leaks (see /sys/kernel/debug/kmemleak)",
    "[   11.1] unregister_netdevice: waiting for eth0 to become free. Usage count = 2",
    "[   11.1] rcu: INFO: rcu_preempt self-detected stall on CPU",
    "[   11.1] refcount_t: underflow; use-after-free.",
    "[   11.1] ODEBUG: free active (active state 0) object: 1 object type: work_struct",
    "[   11.1] rust_kernel: panicked at rust/sdp/rx/ring.rs:1:1:",
    "[   11.1] Kernel panic - not syncing: Fatal exception",
]

IWCM_LEAK = """unreferenced object 0xff11000005dc3300 (size 64):
  comm "kworker/u8:10", pid 262, jiffies 4294992021
  hex dump (first 32 bytes):
    00 00 00 05 00 00 00 2c 00 00 00 00 00 00 00 00  .......,........
  backtrace (crc 3e678efa):
    kmemleak_alloc+0x27/0x30
    __kmalloc_node_track_caller_noprof+0x2bb/0x4d0
    kmemdup_noprof+0x24/0x50
    cm_event_handler+0x367/0x580
    siw_proc_mpareq+0x71a/0xc80
    siw_cm_work_handler+0x284/0x2490
"""

RACE = """[  109.6] WARNING: drivers/infiniband/sw/rxe/rxe_task.c:249 at rxe_sched_task+0x9c/0xb0 [rdma_rxe], CPU#0: kworker/0
[  109.6] Modules linked in: ib_sdp(OE) rdma_rxe ib_core
[  109.6] RIP: 0010:rxe_sched_task+0x9c/0xb0 [rdma_rxe]
[  109.6] Call Trace:
[  109.6]  <TASK>
[  109.6]  rxe_xmit_packet+0x16c/0x330 [rdma_rxe]
[  109.6]  ? rxe_get_something+0x1/0x2 [rdma_rxe]
[  109.6]  rxe_requester+0x885/0x11f0 [rdma_rxe]
[  109.6]  rxe_sender+0x13/0x50 [rdma_rxe]
[  109.6]  do_work+0x6c/0x220 [rdma_rxe]
[  109.6]  process_one_work+0x198/0x370
[  109.6]  </TASK>
[  109.6] ---[ end trace 0000000000000000 ]---
"""  # noqa: E501 # the kernel's lines are as long as they are

# The debug kernel's report of the same race; its functions are not inlined.
RACE_KASAN = """[  609.6] ==================================================================
[  609.6] BUG: KASAN: slab-use-after-free in rxe_sched_task+0x150/0x1a0 [rdma_rxe]
[  609.6] Read of size 4 at addr ffff888012345678 by task kworker/u8:4/77
[  609.6]
[  609.6] Workqueue: rxe_wq do_work [rdma_rxe]
[  609.6] Call Trace:
[  609.6]  <TASK>
[  609.6]  dump_stack_lvl+0x91/0xe0
[  609.6]  print_report+0xd1/0x660
[  609.6]  ? rxe_sched_task+0x150/0x1a0 [rdma_rxe]
[  609.6]  kasan_report+0xe4/0x120
[  609.6]  rxe_sched_task+0x150/0x1a0 [rdma_rxe]
[  609.6]  rxe_resp_queue_pkt+0x3c/0x50 [rdma_rxe]
[  609.6]  rxe_rcv+0x885/0x11f0 [rdma_rxe]
[  609.6]  rxe_xmit_packet+0x16c/0x330 [rdma_rxe]
[  609.6]  rxe_requester+0x885/0x11f0 [rdma_rxe]
[  609.6]  rxe_sender+0x13/0x50 [rdma_rxe]
[  609.6]  do_work+0x6c/0x220 [rdma_rxe]
[  609.6]  process_one_work+0x198/0x370
[  609.6]  </TASK>
[  609.6] Freed by task 1234:
[  609.6]  kfree+0x148/0x4c0
[  609.6]  ib_destroy_qp_user+0x198/0x370 [ib_core]
[  609.6] ==================================================================
[  609.6] Disabling lock debugging due to kernel taint
"""


class Judge(unittest.TestCase):
    def test_each_report_is_found(self) -> None:
        for line in REPORTS:
            with self.subTest(line):
                self.assertEqual(len(klog.complaints(f"{START}{line}\n")), 1)

    def test_kernels_own_start_is_not_ours(self) -> None:
        self.assertEqual(klog.complaints(START), [])

    def test_quiet_log(self) -> None:
        quiet = ("[    9.0] ib_sdp: loading out-of-tree module taints kernel.\n"
                 "[    9.1] qperf[138]: segfault at 0 ip 00007f error 4 in libibverbs.so.1\n"
                 "[    9.2] ref_tracker: memory allocation failure, unreliable refcount tracker.\n")
        self.assertEqual(klog.complaints(START + quiet), [])

    def test_two_reports_far_apart_are_two(self) -> None:
        log = START + REPORTS[0] + "\n" + "x\n" * 100 + REPORTS[3] + "\n"
        self.assertEqual(len(klog.complaints(log)), 2)

    def test_race_of_soft_roce_is_counted_and_no_complaint(self) -> None:
        handed_over = RACE.replace("  rxe_xmit_packet", "  rxe_comp_queue_pkt+0x1/0x2\n[  109.6]  rxe_rcv+0x1/0x2\n"
                                   "[  109.6]  rxe_xmit_packet")
        log = START + RACE_KASAN + RACE + handed_over.replace(":249", ":38")
        self.assertEqual(klog.complaints(log), [])
        self.assertEqual(klog.races_of_soft_roce(log), 3)

    def test_what_only_looks_like_that_race_is_a_complaint(self) -> None:
        for changed in (
            RACE.replace(" rxe_xmit_packet+", " rxe_post_send+"),
            RACE.replace("rxe_task.c", "rxe_pool.c"),
            RACE.replace("at rxe_sched_task+", "at rxe_cleanup_task+"),
            RACE.replace("rxe_sender+0x13/0x50 [rdma_rxe]", "sdp_poll+0x13/0x50 [ib_sdp]"),
            RACE[:RACE.index("[  109.6] ---[ end")],
            RACE[:RACE.index("[  109.6]  rxe_requester")],
            RACE.replace("[  109.6]  </TASK>", REPORTS[3] + "\n[  109.6]  </TASK>"),
            RACE_KASAN.replace("in rxe_sched_task+", "in rxe_cleanup_task+"),
            RACE_KASAN.replace("slab-use-after-free", "slab-out-of-bounds"),
            RACE_KASAN.replace("  rxe_resp_queue_pkt+", "  sdp_poll+"),
            RACE_KASAN.replace("  rxe_sender+", "  sdp_poll+"),
            RACE_KASAN[:RACE_KASAN.rindex("[  609.6] ====")],
        ):
            with self.subTest(changed):
                self.assertEqual(len(klog.complaints(START + changed)), 1)
                self.assertEqual(klog.races_of_soft_roce(START + changed), 0)

    def test_what_follows_that_race_is_judged(self) -> None:
        self.assertEqual(len(klog.complaints(START + RACE + REPORTS[3] + "\n")), 1)



class Leaks(unittest.TestCase):
    def test_the_iwarp_cms_are_counted(self) -> None:
        self.assertEqual(klog.leaks(2 * IWCM_LEAK), ([], 2))

    def test_any_other_is_judged(self) -> None:
        other = IWCM_LEAK.replace("siw_proc_mpareq", "foo")
        self.assertEqual(klog.leaks(IWCM_LEAK + other), ([other], 1))
        self.assertEqual(klog.leaks(""), ([], 0))

    def test_the_count_in_the_log_is_no_complaint_of_its_own(self) -> None:
        log = START + "[   11.1] kmemleak: 2 new suspected memory leaks (see /sys/kernel/debug/kmemleak)\n"
        self.assertEqual(len(klog.complaints(log)), 1)
        self.assertEqual(klog.complaints(log, leaks_are_known=True), [])


if __name__ == "__main__":
    unittest.main()
