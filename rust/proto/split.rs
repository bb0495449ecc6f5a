// SPDX-License-Identifier: GPL-2.0

//! The division of an unaligned buffer: whole pages go without a copy, the bytes before and behind
//! them by copy.
//!
//! Only whole pages can be protected while they are sent, without affecting data beside the buffer.
//! AZ-SDP (Balaji et al., CAC 2006) uses its own hook in malloc instead, and compares it with
//! copying the ends.

/// The three parts of a buffer, in bytes.
#[derive(Copy, Clone, Default, PartialEq, Eq, Hash, Debug)]
pub struct Split {
    /// By copy, up to the first page boundary; the whole buffer if it has no whole page.
    pub head: u64,
    /// Whole pages.
    pub middle: u64,
    /// By copy, less than a page.
    pub tail: u64,
}

/// Cuts the buffer of `len` bytes at `addr`, where a page of the machine is 2^`page_shift` bytes.
pub const fn split(addr: u64, len: u64, page_shift: u32) -> Split {
    let mask = page_mask(page_shift);
    let head = addr.wrapping_neg() & mask;
    let middle = len.saturating_sub(head) & !mask;
    if middle == 0 {
        return Split {
            head: len,
            middle: 0,
            tail: 0,
        };
    }
    Split {
        head,
        middle,
        tail: len.saturating_sub(head).saturating_sub(middle),
    }
}

const fn page_mask(page_shift: u32) -> u64 {
    match 1_u64.checked_shl(page_shift) {
        Some(page) => page.wrapping_sub(1),
        None => u64::MAX,
    }
}

/// Size of the next piece of `left` bytes of whole pages, where an advert takes at most
/// `max_pages`: all pieces but the last are of full size. 0 if nothing is left, or if an advert
/// cannot take even one page.
pub fn piece_bytes(left: u64, max_pages: u32, page_shift: u32) -> u32 {
    let mask = page_mask(page_shift);
    let most = u64::from(max_pages).saturating_mul(mask.saturating_add(1));
    // The length of an advert is a `u32`.
    let longest = u64::from(u32::MAX) & !mask;
    u32::try_from(left.min(most).min(longest)).unwrap_or(0)
}
