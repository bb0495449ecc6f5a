// SPDX-License-Identifier: GPL-2.0
/* Inline functions, macros and fields for page tables and the pages in them. No logic. */

#include <linux/highmem.h>
#include <linux/mm.h>
#include <linux/mm_inline.h>
#include <linux/mmu_notifier.h>
#include <linux/pagemap.h>
#include <linux/pgtable.h>
#include <linux/rmap.h>
#include <linux/swap.h>
#include <linux/swapops.h>
#include <linux/uio.h>

#include "compat.h"

#ifdef CONFIG_X86
#define MM_TLB_GEN(mm) atomic64_read(&(mm)->context.tlb_gen)
#else
#define MM_TLB_GEN(mm) 0
#endif

pgd_t *sdp_helper_pgd_offset(struct mm_struct *mm, unsigned long addr);
pgd_t *sdp_helper_pgd_offset(struct mm_struct *mm, unsigned long addr)
{
	return pgd_offset(mm, addr);
}

pgd_t sdp_helper_pgdp_get(pgd_t *pgdp);
pgd_t sdp_helper_pgdp_get(pgd_t *pgdp)
{
	return pgdp_get(pgdp);
}

bool sdp_helper_pgd_none(pgd_t pgd);
bool sdp_helper_pgd_none(pgd_t pgd)
{
	return pgd_none(pgd);
}

bool sdp_helper_pgd_bad(pgd_t pgd);
bool sdp_helper_pgd_bad(pgd_t pgd)
{
	return pgd_bad(pgd);
}

p4d_t *sdp_helper_p4d_offset(pgd_t *pgdp, unsigned long addr);
p4d_t *sdp_helper_p4d_offset(pgd_t *pgdp, unsigned long addr)
{
	return p4d_offset(pgdp, addr);
}

p4d_t sdp_helper_p4dp_get(p4d_t *p4dp);
p4d_t sdp_helper_p4dp_get(p4d_t *p4dp)
{
	return p4dp_get(p4dp);
}

bool sdp_helper_p4d_none(p4d_t p4d);
bool sdp_helper_p4d_none(p4d_t p4d)
{
	return p4d_none(p4d);
}

bool sdp_helper_p4d_bad(p4d_t p4d);
bool sdp_helper_p4d_bad(p4d_t p4d)
{
	return p4d_bad(p4d);
}

pud_t *sdp_helper_pud_offset(p4d_t *p4dp, unsigned long addr);
pud_t *sdp_helper_pud_offset(p4d_t *p4dp, unsigned long addr)
{
	return pud_offset(p4dp, addr);
}

pud_t sdp_helper_pudp_get(pud_t *pudp);
pud_t sdp_helper_pudp_get(pud_t *pudp)
{
	return pudp_get(pudp);
}

bool sdp_helper_pud_none(pud_t pud);
bool sdp_helper_pud_none(pud_t pud)
{
	return pud_none(pud);
}

bool sdp_helper_pud_leaf(pud_t pud);
bool sdp_helper_pud_leaf(pud_t pud)
{
	return pud_leaf(pud);
}

bool sdp_helper_pud_bad(pud_t pud);
bool sdp_helper_pud_bad(pud_t pud)
{
	return pud_bad(pud);
}

pmd_t *sdp_helper_pmd_offset(pud_t *pudp, unsigned long addr);
pmd_t *sdp_helper_pmd_offset(pud_t *pudp, unsigned long addr)
{
	return pmd_offset(pudp, addr);
}

pmd_t sdp_helper_pmdp_get_lockless(pmd_t *pmdp);
pmd_t sdp_helper_pmdp_get_lockless(pmd_t *pmdp)
{
	return pmdp_get_lockless(pmdp);
}

bool sdp_helper_pmd_none(pmd_t pmd);
bool sdp_helper_pmd_none(pmd_t pmd)
{
	return pmd_none(pmd);
}

bool sdp_helper_pmd_present(pmd_t pmd);
bool sdp_helper_pmd_present(pmd_t pmd)
{
	return pmd_present(pmd);
}

bool sdp_helper_pmd_leaf(pmd_t pmd);
bool sdp_helper_pmd_leaf(pmd_t pmd)
{
	return pmd_leaf(pmd);
}

bool sdp_helper_pmd_bad(pmd_t pmd);
bool sdp_helper_pmd_bad(pmd_t pmd)
{
	return pmd_bad(pmd);
}

bool sdp_helper_pmd_same(pmd_t a, pmd_t b);
bool sdp_helper_pmd_same(pmd_t a, pmd_t b)
{
	return pmd_same(a, b);
}

unsigned long sdp_helper_pmd_addr_end(unsigned long addr, unsigned long end);
unsigned long sdp_helper_pmd_addr_end(unsigned long addr, unsigned long end)
{
	return pmd_addr_end(addr, end);
}

pte_t *sdp_helper_pte_offset_kernel(pmd_t *pmdp, unsigned long addr);
pte_t *sdp_helper_pte_offset_kernel(pmd_t *pmdp, unsigned long addr)
{
	return pte_offset_kernel(pmdp, addr);
}

spinlock_t *sdp_helper_pte_lockptr(struct mm_struct *mm, pmd_t *pmdp);
spinlock_t *sdp_helper_pte_lockptr(struct mm_struct *mm, pmd_t *pmdp)
{
	return pte_lockptr(mm, pmdp);
}

void sdp_helper_spin_lock(spinlock_t *lock);
void sdp_helper_spin_lock(spinlock_t *lock)
{
	spin_lock(lock);
}

void sdp_helper_spin_unlock(spinlock_t *lock);
void sdp_helper_spin_unlock(spinlock_t *lock)
{
	spin_unlock(lock);
}

pte_t sdp_helper_ptep_get_and_clear(struct mm_struct *mm, unsigned long addr,
				    pte_t *ptep);
pte_t sdp_helper_ptep_get_and_clear(struct mm_struct *mm, unsigned long addr,
				    pte_t *ptep)
{
	return ptep_get_and_clear(mm, addr, ptep);
}

void sdp_helper_ptep_set_wrprotect(struct mm_struct *mm, unsigned long addr,
				   pte_t *ptep);
void sdp_helper_ptep_set_wrprotect(struct mm_struct *mm, unsigned long addr,
				   pte_t *ptep)
{
	ptep_set_wrprotect(mm, addr, ptep);
}

void sdp_helper_set_pte_at(struct mm_struct *mm, unsigned long addr,
			   pte_t *ptep, pte_t pte);
void sdp_helper_set_pte_at(struct mm_struct *mm, unsigned long addr,
			   pte_t *ptep, pte_t pte)
{
	set_pte_at(mm, addr, ptep, pte);
}

bool sdp_helper_pte_present(pte_t pte);
bool sdp_helper_pte_present(pte_t pte)
{
	return pte_present(pte);
}

bool sdp_helper_pte_protnone(pte_t pte);
bool sdp_helper_pte_protnone(pte_t pte)
{
	return pte_protnone(pte);
}

bool sdp_helper_pte_write(pte_t pte);
bool sdp_helper_pte_write(pte_t pte)
{
	return pte_write(pte);
}

bool sdp_helper_pte_uffd(pte_t pte);
bool sdp_helper_pte_uffd(pte_t pte)
{
	return pte_uffd(pte);
}

bool sdp_helper_pte_soft_dirty(pte_t pte);
bool sdp_helper_pte_soft_dirty(pte_t pte)
{
	return pte_soft_dirty(pte);
}

unsigned long sdp_helper_pte_pfn(pte_t pte);
unsigned long sdp_helper_pte_pfn(pte_t pte)
{
	return pte_pfn(pte);
}

pte_t sdp_helper_pte_mkwrite_novma(pte_t pte);
pte_t sdp_helper_pte_mkwrite_novma(pte_t pte)
{
	return pte_mkwrite_novma(pte);
}

bool sdp_helper_pgtable_supports_soft_dirty(void);
bool sdp_helper_pgtable_supports_soft_dirty(void)
{
	return pgtable_supports_soft_dirty();
}

unsigned long sdp_helper_page_to_pfn(struct page *page);
unsigned long sdp_helper_page_to_pfn(struct page *page)
{
	return page_to_pfn(page);
}

struct folio *sdp_helper_page_folio(struct page *page);
struct folio *sdp_helper_page_folio(struct page *page)
{
	return page_folio(page);
}

unsigned long sdp_helper_folio_page_idx(struct folio *folio, struct page *page);
unsigned long sdp_helper_folio_page_idx(struct folio *folio, struct page *page)
{
	return folio_page_idx(folio, page);
}

bool sdp_helper_page_anon(struct page *page);
bool sdp_helper_page_anon(struct page *page)
{
	return PageAnon(page);
}

bool sdp_helper_page_anon_exclusive(struct page *page);
bool sdp_helper_page_anon_exclusive(struct page *page)
{
	return PageAnonExclusive(page);
}

void sdp_helper_set_page_anon_exclusive(struct page *page);
void sdp_helper_set_page_anon_exclusive(struct page *page)
{
	SetPageAnonExclusive(page);
}

int sdp_helper_folio_try_share_anon_rmap_pte(struct folio *folio,
					     struct page *page);
int sdp_helper_folio_try_share_anon_rmap_pte(struct folio *folio,
					     struct page *page)
{
	return folio_try_share_anon_rmap_pte(folio, page);
}

bool sdp_helper_folio_test_swapbacked(struct folio *folio);
bool sdp_helper_folio_test_swapbacked(struct folio *folio)
{
	return folio_test_swapbacked(folio);
}

bool sdp_helper_folio_test_ksm(struct folio *folio);
bool sdp_helper_folio_test_ksm(struct folio *folio)
{
	return folio_test_ksm(folio);
}

bool sdp_helper_folio_test_lru(struct folio *folio);
bool sdp_helper_folio_test_lru(struct folio *folio)
{
	return folio_test_lru(folio);
}

bool sdp_helper_folio_test_hugetlb(const struct folio *folio);
bool sdp_helper_folio_test_hugetlb(const struct folio *folio)
{
	return folio_test_hugetlb(folio);
}

bool sdp_helper_folio_test_swapcache(struct folio *folio);
bool sdp_helper_folio_test_swapcache(struct folio *folio)
{
	return folio_test_swapcache(folio);
}

bool sdp_helper_folio_test_large(struct folio *folio);
bool sdp_helper_folio_test_large(struct folio *folio)
{
	return folio_test_large(folio);
}

bool sdp_helper_folio_trylock(struct folio *folio);
bool sdp_helper_folio_trylock(struct folio *folio)
{
	return folio_trylock(folio);
}

bool sdp_helper_folio_test_locked(struct folio *folio);
bool sdp_helper_folio_test_locked(struct folio *folio)
{
	return folio_test_locked(folio);
}

int sdp_helper_folio_ref_count(struct folio *folio);
int sdp_helper_folio_ref_count(struct folio *folio)
{
	return folio_ref_count(folio);
}

void sdp_helper_folio_put(struct folio *folio);
void sdp_helper_folio_put(struct folio *folio)
{
	folio_put(folio);
}

long sdp_helper_folio_nr_pages(struct folio *folio);
long sdp_helper_folio_nr_pages(struct folio *folio)
{
	return folio_nr_pages(folio);
}

int sdp_helper_folio_large_mapcount(struct folio *folio);
int sdp_helper_folio_large_mapcount(struct folio *folio)
{
	return folio_large_mapcount(folio);
}

void sdp_helper_folio_lock_large_mapcount(struct folio *folio);
void sdp_helper_folio_lock_large_mapcount(struct folio *folio)
{
	folio_lock_large_mapcount(folio);
}

void sdp_helper_folio_unlock_large_mapcount(struct folio *folio);
void sdp_helper_folio_unlock_large_mapcount(struct folio *folio)
{
	folio_unlock_large_mapcount(folio);
}

bool sdp_helper_folio_mm_ids_shared(struct folio *folio);
bool sdp_helper_folio_mm_ids_shared(struct folio *folio)
{
	return test_bit(FOLIO_MM_IDS_SHARED_BITNUM, &folio->_mm_ids);
}

int sdp_helper_copy_mc_highpage(struct page *to, struct page *from);
int sdp_helper_copy_mc_highpage(struct page *to, struct page *from)
{
	return copy_mc_highpage(to, from);
}

bool sdp_helper_vma_is_anonymous(struct vm_area_struct *vma);
bool sdp_helper_vma_is_anonymous(struct vm_area_struct *vma)
{
	return vma_is_anonymous(vma);
}

bool sdp_helper_mm_has_notifiers(struct mm_struct *mm);
bool sdp_helper_mm_has_notifiers(struct mm_struct *mm)
{
	return mm_has_notifiers(mm);
}

void sdp_helper_inc_tlb_flush_pending(struct mm_struct *mm);
void sdp_helper_inc_tlb_flush_pending(struct mm_struct *mm)
{
	inc_tlb_flush_pending(mm);
}

void sdp_helper_dec_tlb_flush_pending(struct mm_struct *mm);
void sdp_helper_dec_tlb_flush_pending(struct mm_struct *mm)
{
	dec_tlb_flush_pending(mm);
}

bool sdp_helper_pte_none(pte_t pte);
bool sdp_helper_pte_none(pte_t pte)
{
	return pte_none(pte);
}

bool sdp_helper_pte_young(pte_t pte);
bool sdp_helper_pte_young(pte_t pte)
{
	return pte_young(pte);
}

pte_t sdp_helper_pte_mkyoung(pte_t pte);
pte_t sdp_helper_pte_mkyoung(pte_t pte)
{
	return pte_mkyoung(pte);
}

pte_t sdp_helper_pte_mkold(pte_t pte);
pte_t sdp_helper_pte_mkold(pte_t pte)
{
	return pte_mkold(pte);
}

pte_t sdp_helper_pte_mkdirty(pte_t pte);
pte_t sdp_helper_pte_mkdirty(pte_t pte)
{
	return pte_mkdirty(pte);
}

bool sdp_helper_pte_device_exclusive(pte_t pte);
bool sdp_helper_pte_device_exclusive(pte_t pte)
{
	return softleaf_is_device_exclusive(softleaf_from_pte(pte));
}

struct page *sdp_helper_pte_device_exclusive_page(pte_t pte);
struct page *sdp_helper_pte_device_exclusive_page(pte_t pte)
{
	return softleaf_to_page(softleaf_from_pte(pte));
}

pte_t sdp_helper_make_device_exclusive_pte(struct page *page);
pte_t sdp_helper_make_device_exclusive_pte(struct page *page)
{
	return swp_entry_to_pte(make_device_exclusive_entry(page_to_pfn(page)));
}

unsigned long sdp_helper_pte_swp_offset(pte_t pte);
unsigned long sdp_helper_pte_swp_offset(pte_t pte)
{
	return swp_offset(softleaf_from_pte(pte));
}

pte_t sdp_helper_make_device_exclusive_offset_pte(unsigned long offset);
pte_t sdp_helper_make_device_exclusive_offset_pte(unsigned long offset)
{
	return swp_entry_to_pte(swp_entry(SWP_DEVICE_EXCLUSIVE, offset));
}

pte_t sdp_helper_pte_swp_mkuffd(pte_t pte);
pte_t sdp_helper_pte_swp_mkuffd(pte_t pte)
{
	return pte_swp_mkuffd(pte);
}

bool sdp_helper_pte_swp_soft_dirty(pte_t pte);
bool sdp_helper_pte_swp_soft_dirty(pte_t pte)
{
	return pte_swp_soft_dirty(pte);
}

pte_t sdp_helper_pte_swp_mksoft_dirty(pte_t pte);
pte_t sdp_helper_pte_swp_mksoft_dirty(pte_t pte)
{
	return pte_swp_mksoft_dirty(pte);
}

bool sdp_helper_pte_swp_uffd(pte_t pte);
bool sdp_helper_pte_swp_uffd(pte_t pte)
{
	return pte_swp_uffd(pte);
}

pte_t sdp_helper_vma_mk_pte(struct vm_area_struct *vma, struct page *page);
pte_t sdp_helper_vma_mk_pte(struct vm_area_struct *vma, struct page *page)
{
	return mk_pte(page, READ_ONCE(vma->vm_page_prot));
}

pte_t sdp_helper_make_guard_pte(void);
pte_t sdp_helper_make_guard_pte(void)
{
	return make_pte_marker(PTE_MARKER_GUARD);
}

bool sdp_helper_mmap_lock_is_contended(struct mm_struct *mm);
bool sdp_helper_mmap_lock_is_contended(struct mm_struct *mm)
{
	return mmap_lock_is_contended(mm);
}

void sdp_helper_mmap_write_lock(struct mm_struct *mm);
void sdp_helper_mmap_write_lock(struct mm_struct *mm)
{
	mmap_write_lock(mm);
}

bool sdp_helper_mmap_lock_down_write_trylock(struct mm_struct *mm);
bool sdp_helper_mmap_lock_down_write_trylock(struct mm_struct *mm)
{
	return down_write_trylock(&mm->mmap_lock);
}

void sdp_helper_mm_lock_seqcount_begin(struct mm_struct *mm);
void sdp_helper_mm_lock_seqcount_begin(struct mm_struct *mm)
{
	mm_lock_seqcount_begin(mm);
}

void sdp_helper_clear_highpage(struct page *page);
void sdp_helper_clear_highpage(struct page *page)
{
	clear_highpage(page);
}

void sdp_helper_mmap_write_unlock(struct mm_struct *mm);
void sdp_helper_mmap_write_unlock(struct mm_struct *mm)
{
	mmap_write_unlock(mm);
}

void sdp_helper_vma_start_write(struct vm_area_struct *vma);
void sdp_helper_vma_start_write(struct vm_area_struct *vma)
{
	vma_start_write(vma);
}

void sdp_helper_mmu_interval_set_seq(struct mmu_interval_notifier *sub, unsigned long seq);
void sdp_helper_mmu_interval_set_seq(struct mmu_interval_notifier *sub, unsigned long seq)
{
	mmu_interval_set_seq(sub, seq);
}

bool sdp_helper_mmu_notifier_range_blockable(const struct mmu_notifier_range *range);
bool sdp_helper_mmu_notifier_range_blockable(const struct mmu_notifier_range *range)
{
	return mmu_notifier_range_blockable(range);
}

u64 sdp_helper_mm_tlb_gen(struct mm_struct *mm);
u64 sdp_helper_mm_tlb_gen(struct mm_struct *mm)
{
	return MM_TLB_GEN(mm);
}

void __user *sdp_helper_iter_iov_addr(const struct iov_iter *iter);
void __user *sdp_helper_iter_iov_addr(const struct iov_iter *iter)
{
	return iter_iov_addr(iter);
}
