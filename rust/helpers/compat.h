/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Names that differ in the C headers of an older kernel release, defined under
 * the name of the newest release. rust/Kbuild looks into the kernel tree and
 * defines the SDP_HAS_ names; rust/kern/compat.rs does the same for the kernel
 * crate.
 */
#ifndef SDP_COMPAT_H
#define SDP_COMPAT_H

#include <linux/pgtable.h>

/* Until 7.2 the userfaultfd bit of an entry was named after its first use, write protection. */
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
