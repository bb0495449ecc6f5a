/* SPDX-License-Identifier: GPL-2.0 */
/* The helper files as input of bindgen, for the types of their functions. */

#include "net.c"
#include "rdma.c"
#include "mem.c"
#include "pgtable.c"
