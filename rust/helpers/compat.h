/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the kernel's C headers call otherwise in an older release, under the
 * name of the newest one. rust/Kbuild looks into the tree that the module is
 * built against and defines the SDP_HAS_ names; rust/kern/compat.rs is the same
 * for the kernel crate.
 */
#ifndef SDP_COMPAT_H
#define SDP_COMPAT_H

#include <linux/pgtable.h>

/* Until 7.2 the bit in the page table had the name of its first use. */
#ifndef SDP_HAS_PTE_UFFD
static inline int pte_uffd(pte_t pte)
{
	return pte_uffd_wp(pte);
}

static inline pte_t pte_swp_mkuffd(pte_t pte)
{
	return pte_swp_mkuffd_wp(pte);
}

static inline int pte_swp_uffd(pte_t pte)
{
	return pte_swp_uffd_wp(pte);
}
#endif

#endif
