// SPDX-License-Identifier: GPL-2.0

//! The queue that adverts wait in.

use proptest::prelude::*;
use proto_host::proto::ring::Ring;
use std::collections::VecDeque;

proptest! {
    /// Against a VecDeque.
    #[test]
    fn rings(steps in prop::collection::vec((0_u8..4, any::<u8>()), 0..60)) {
        let mut ring = Ring::<u8, 3>::new();
        let mut list = VecDeque::new();
        for (what, item) in steps {
            match what {
                0 | 1 => {
                    let fits = list.len() < 3;
                    prop_assert_eq!(ring.push(item), if fits { Ok(()) } else { Err(item) });
                    if fits {
                        list.push_back(item);
                    }
                }
                2 => prop_assert_eq!(ring.pop(), list.pop_front()),
                _ => prop_assert_eq!(ring.pop_last(), list.pop_back()),
            }
            prop_assert!(ring.iter().eq(list.iter()));
            prop_assert!(ring.iter_mut().map(|x| &*x).eq(list.iter()));
            prop_assert_eq!((ring.len(), ring.is_full()), (list.len(), list.len() == 3));
            prop_assert_eq!(ring.first(), list.front());
            prop_assert_eq!(ring.first_mut(), list.front_mut());
            prop_assert_eq!(ring.last_mut(), list.back_mut());
            let mut same = Ring::new();
            list.iter().for_each(|&x| assert_eq!(same.push(x), Ok(())));
            prop_assert!(ring == same);
        }
    }
}
