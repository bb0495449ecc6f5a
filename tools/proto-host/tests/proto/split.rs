// SPDX-License-Identifier: GPL-2.0

//! The cutting of unaligned buffers.

use proptest::prelude::*;
use proto_host::proto::split::{
    piece_bytes,
    split,
    Split, //
};

const PAGE: u64 = 4096;

fn parts(addr: u64, len: u64) -> [u64; 3] {
    let Split { head, middle, tail } = split(addr, len, 12);
    [head, middle, tail]
}

#[test]
fn three_parts_at_most() {
    assert_eq!(parts(0, PAGE), [0, PAGE, 0]);
    assert_eq!(parts(1, PAGE), [PAGE, 0, 0]);
    assert_eq!(parts(PAGE - 1, PAGE + 1), [1, PAGE, 0]);
    assert_eq!(parts(100, 3 * PAGE), [PAGE - 100, 2 * PAGE, 100]);
    assert_eq!(parts(PAGE, 2 * PAGE + 5), [0, 2 * PAGE, 5]);
    assert_eq!(parts(10, 5), [5, 0, 0]);
    assert_eq!(parts(10, 0), [0, 0, 0]);
    assert_eq!(parts(0, PAGE - 1), [PAGE - 1, 0, 0]);
}

#[test]
fn adverts_of_at_most_so_many_pages() {
    assert_eq!(piece_bytes(10 * PAGE, 4, 12), 4 * 4096);
    assert_eq!(piece_bytes(3 * PAGE, 4, 12), 3 * 4096);
    assert_eq!(piece_bytes(0, 4, 12), 0);
    assert_eq!(piece_bytes(PAGE, 0, 12), 0);
    assert_eq!(piece_bytes(1 << 40, u32::MAX, 12), u32::MAX - 4095);
    assert_eq!(piece_bytes(u64::MAX, u32::MAX, 64), 0);
}

proptest! {
    #[test]
    fn parts_add_up_and_the_middle_is_whole_pages(addr: u64, len in 0_u64..1 << 40, shift in 0_u32..21) {
        let Split { head, middle, tail } = split(addr, len, shift);
        let page = 1 << shift;
        prop_assert_eq!(head + middle + tail, len);
        if middle > 0 {
            prop_assert!(head < page && tail < page && middle % page == 0);
            prop_assert_eq!(addr.wrapping_add(head) % page, 0);
        } else {
            prop_assert!(tail == 0 && head < 2 * page);
        }
    }

    #[test]
    fn pieces_cover_the_middle(pages in 0_u64..5000, most in 1_u32..600) {
        let mut left = pages * PAGE;
        let mut pieces = 0;
        while left > 0 {
            let piece = u64::from(piece_bytes(left, most, 12));
            prop_assert!(piece > 0 && piece % PAGE == 0 && piece <= u64::from(most) * PAGE);
            left -= piece;
            pieces += 1;
        }
        prop_assert_eq!(pieces, pages.div_ceil(u64::from(most)));
    }
}
