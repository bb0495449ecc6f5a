/* SPDX-License-Identifier: GPL-2.0 */
/* The helper files as bindgen reads them: for their functions' types. */

#include "net.c"
#include "rdma.c"
#include "mem.c"
#include "pgtable.c"
