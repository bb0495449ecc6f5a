// SPDX-License-Identifier: GPL-2.0
//! Test data, of which the byte at any offset follows from a seed, and small random numbers. Two
//! streams with different seeds, or two offsets of one stream, have no long run of bytes in common,
//! so a byte from a wrong place is a wrong byte.

/// One endless stream of bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pattern {
    key: u64,
}

/// The result of a comparison of received bytes with the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) wrong: u64,
    /// The offset in the stream of the first wrong byte.
    pub(crate) first: Option<u64>,
}

impl Verdict {
    pub(crate) fn add(&mut self, other: Verdict) {
        self.wrong += other.wrong;
        self.first = self.first.or(other.first);
    }
}

impl Pattern {
    pub(crate) fn new(seed: u64) -> Pattern {
        Pattern { key: mix(seed) }
    }

    /// The eight bytes of the stream from offset `8 * index` on.
    fn word(self, index: u64) -> [u8; 8] {
        let x = self
            .key
            .wrapping_add(index)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (x ^ (x >> 29)).to_le_bytes()
    }

    /// Writes the stream's bytes from `offset` on into `buf`.
    pub(crate) fn fill(self, offset: u64, buf: &mut [u8]) {
        let skip = (offset % 8) as usize;
        let head = if skip == 0 {
            0
        } else {
            buf.len().min(8 - skip)
        };
        let (front, rest) = buf.split_at_mut(head);
        front.copy_from_slice(&self.word(offset / 8)[skip..skip + head]);
        let start = offset.div_ceil(8);
        let mut words = rest.chunks_exact_mut(8);
        let mut index = start;
        for chunk in words.by_ref() {
            chunk.copy_from_slice(&self.word(index));
            index += 1;
        }
        let back = words.into_remainder();
        back.copy_from_slice(&self.word(index)[..back.len()]);
    }

    /// Compares `buf` with the stream's bytes from `offset` on.
    pub(crate) fn check(self, offset: u64, buf: &[u8]) -> Verdict {
        let mut verdict = Verdict::default();
        let mut expected = [0; 512];
        for (i, got) in buf.chunks(expected.len()).enumerate() {
            let at = offset + (i * expected.len()) as u64;
            let want = &mut expected[..got.len()];
            self.fill(at, want);
            if want == got {
                continue;
            }
            for (j, _) in want
                .iter()
                .zip(got)
                .enumerate()
                .filter(|(_, (w, g))| w != g)
            {
                verdict.add(Verdict {
                    wrong: 1,
                    first: Some(at + j as u64),
                });
            }
        }
        verdict
    }
}

/// Spreads the bits of a seed (the finalizer of splitmix64).
fn mix(seed: u64) -> u64 {
    let mut x = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Random numbers that repeat if the seed is repeated (splitmix64).
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        let out = mix(self.0);
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        out
    }

    /// A number below `limit` (which is not 0).
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// A length from 1 to `max`. All orders of magnitude are equally frequent, and odd lengths are
    /// more frequent than even ones.
    pub(crate) fn length(&mut self, max: usize) -> usize {
        let bits = usize::BITS - max.leading_zeros();
        let top = 1_usize << (1 + self.below(bits as usize));
        ((1 + self.below(top)) | usize::from(self.below(4) != 0)).clamp(1, max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_piece_equals_the_same_piece_of_the_whole() {
        let pattern = Pattern::new(7);
        let mut whole = vec![0; 200];
        pattern.fill(0, &mut whole);
        for from in 0..64 {
            for len in 0..100 {
                let mut piece = vec![0; len];
                pattern.fill(from as u64, &mut piece);
                assert_eq!(piece, whole[from..from + len], "{len} bytes at {from}");
                assert_eq!(pattern.check(from as u64, &piece), Verdict::default());
            }
        }
    }

    #[test]
    fn every_wrong_byte_is_counted_and_the_first_named() {
        let pattern = Pattern::new(1);
        let mut data = vec![0; 3000];
        pattern.fill(5, &mut data);
        data[1234] ^= 1;
        data[2999] ^= 0x80;
        let verdict = pattern.check(5, &data);
        assert_eq!(verdict.wrong, 2);
        assert_eq!(verdict.first, Some(5 + 1234));
    }

    #[test]
    fn shifted_or_foreign_data_is_wrong() {
        let mut data = vec![0; 4096];
        Pattern::new(1).fill(0, &mut data);
        for other in [Pattern::new(2), Pattern::new(1 << 32)] {
            assert!(other.check(0, &data).wrong > 4000);
        }
        for shift in [1, 7, 8, 512, 4096, 65536] {
            assert!(Pattern::new(1).check(shift, &data).wrong > 4000, "{shift}");
        }
    }

    #[test]
    fn offsets_beyond_32_bits_do_not_repeat() {
        let (mut low, mut high) = ([0; 64], [0; 64]);
        Pattern::new(3).fill(0, &mut low);
        Pattern::new(3).fill(1 << 32, &mut high);
        assert_ne!(low, high);
    }

    #[test]
    fn lengths_stay_in_range_and_reach_both_ends() {
        let mut rng = Rng::new(1);
        let lengths: Vec<usize> = (0..10_000).map(|_| rng.length(100_000)).collect();
        assert!(lengths.iter().all(|l| (1..=100_000).contains(l)));
        assert!(lengths.contains(&1));
        assert!(lengths.iter().any(|&l| l > 65_536));
        assert_eq!(Rng::new(9).length(1), 1);
    }
}
