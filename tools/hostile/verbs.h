/* SPDX-License-Identifier: GPL-2.0 */
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
