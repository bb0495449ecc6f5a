// SPDX-License-Identifier: GPL-2.0
//! Tests of keys.

use super::*;

const READ: u32 = access::REMOTE_READ;
const WRITE: u32 = access::REMOTE_WRITE;

fn spans(keys: &Keys, key: u32, rights: u32, addr: u64, len: u64) -> Result<Vec<Span>, Denied> {
    let mut found = Vec::new();
    keys.spans(key, 1, rights, addr, len, &mut found)
        .map(|()| found)
}

#[test]
fn bounds_and_rights_of_pages() {
    let mut keys = Keys::default();
    let pages: Box<[u64]> = Box::new([0x8000, 0x9000, 0x3000]);
    assert_eq!(
        keys.add_pages(1, READ, 0xff00, 0x2100, pages.clone()),
        Some(0x101)
    );
    assert!(keys
        .add_pages(1, READ, 0xff00, 0x2101, pages.clone())
        .is_none());
    assert!(keys.add_pages(1, READ, u64::MAX - 5, 10, pages).is_none());
    let key = 0x101;
    assert_eq!(
        spans(&keys, key, READ, 0xff00, 0x2100),
        Ok(vec![
            Span {
                addr: 0x8f00,
                len: 0x1100
            },
            Span {
                addr: 0x3000,
                len: 0x1000
            }
        ])
    );
    assert_eq!(spans(&keys, key, READ, 0xfeff, 1), Err(Denied));
    assert_eq!(spans(&keys, key, READ, 0xff00, 0x2101), Err(Denied));
    assert_eq!(spans(&keys, key, READ, u64::MAX, 2), Err(Denied));
    assert_eq!(spans(&keys, key, READ | WRITE, 0xff00, 1), Err(Denied));
    assert_eq!(spans(&keys, key + 1, READ, 0xff00, 1), Err(Denied));
    assert_eq!(
        keys.spans(key, 2, READ, 0xff00, 1, &mut Vec::new()),
        Err(Denied)
    );
}

#[test]
fn a_removed_regions_key_stays_dead() {
    let mut keys = Keys::default();
    let key = keys.add_all(1, 0).unwrap();
    keys.remove(Keys::index(key)).unwrap();
    assert_eq!(keys.remove(Keys::index(key)), Err(Denied));
    let mut seen = std::collections::HashSet::from([key]);
    for _ in 0..500 {
        let new = keys.add_all(1, 0).unwrap();
        assert!(seen.insert(new));
        keys.remove(Keys::index(new)).unwrap();
    }
    assert_eq!(spans(&keys, key, 0, 0, 1), Err(Denied));
    assert_eq!(keys.count(), 0);
}

#[test]
fn registrations_by_work_request() {
    let mut keys = Keys::default();
    let old = keys.add_fast(1, 2).unwrap();
    assert_eq!(spans(&keys, old, READ, 0, 0), Err(Denied));
    let key = (old & !0xff) | 0x77;
    assert_eq!(
        keys.register(key, 1, READ, 0x1010, 0x2000, &[0x5000, 0x6000]),
        Err(Denied)
    );
    assert_eq!(
        keys.register(key, 2, READ, 0x1000, 0x2000, &[0x5000, 0x6000]),
        Err(Denied)
    );
    assert_eq!(
        keys.register(key, 1, READ, 0x1000, 0x3000, &[0x5000, 0x6000, 0x7000]),
        Err(Denied)
    );
    keys.register(key, 1, READ, 0x1000, 0x2000, &[0x5000, 0x7000])
        .unwrap();
    assert_eq!(
        keys.register(key, 1, READ, 0x1000, 0x2000, &[0x5000, 0x7000]),
        Err(Denied)
    );
    assert_eq!(
        spans(&keys, key, READ, 0x2fff, 1),
        Ok(vec![Span {
            addr: 0x7fff,
            len: 1
        }])
    );
    assert_eq!(spans(&keys, old, READ, 0x2fff, 1), Err(Denied));
    assert_eq!(keys.invalidate(old, 1), Err(Denied));
    assert_eq!(keys.invalidate(key, 2), Err(Denied));
    keys.invalidate(key, 1).unwrap();
    assert_eq!(spans(&keys, key, READ, 0x2fff, 1), Err(Denied));
    let all = keys.add_all(1, READ).unwrap();
    assert_eq!(keys.invalidate(all, 1), Err(Denied));
}

#[test]
fn there_are_limits() {
    let mut keys = Keys::default();
    let pages = vec![0u64; 1 << 18].into_boxed_slice();
    for _ in 0..limit::MR_PAGES >> 18 {
        assert!(keys.add_pages(1, READ, 0, 1 << 30, pages.clone()).is_some());
    }
    assert!(keys.add_pages(1, READ, 0, 1 << 30, pages).is_none());
    assert!(keys.add_fast(1, limit::FAST_PAGES + 1).is_none());
}

#[test]
fn pages_at_the_end_of_all_addresses() {
    let mut keys = Keys::default();
    let pages: Box<[u64]> = Box::new([!0xfff, 0, 0x1000]);
    let key = keys.add_pages(1, READ, 0, 0x3000, pages).unwrap();
    let found = spans(&keys, key, READ, 0, 0x3000).unwrap();
    assert_eq!(found.len(), 2);
}
