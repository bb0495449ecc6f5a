// SPDX-License-Identifier: GPL-2.0

//! The header that a client of `sdpctl bench` sends to its peer.

use crate::units::MOST_MESSAGE_BYTES;
use uapi::nl;

const MAGIC: u32 = u32::from_le_bytes(*b"SDPB");
pub(super) const HEADER_BYTES: usize = 16;

/// The kind of measurement.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// Messages in both directions, one at a time.
    Latency = 1,
    /// Messages in one direction.
    Throughput = 2,
}

/// A client's request.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) what: What,
    /// Mode of both sides' sends.
    pub(super) mode: u8,
    pub(super) bytes: u32,
    pub(super) count: u32,
}

impl Wish {
    pub(super) fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        header[..4].copy_from_slice(&MAGIC.to_le_bytes());
        header[4] = self.what as u8;
        header[5] = self.mode;
        header[8..12].copy_from_slice(&self.bytes.to_le_bytes());
        header[12..].copy_from_slice(&self.count.to_le_bytes());
        header
    }

    /// `None` if no client of this version sends such a header.
    pub(super) fn from_bytes(header: &[u8; HEADER_BYTES]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_le_bytes(header.get(at..at + 4)?.try_into().ok()?));
        let what = match header[4] {
            1 => What::Latency,
            2 => What::Throughput,
            _ => return None,
        };
        let wish = Self {
            what,
            mode: header[5],
            bytes: word(8)?,
            count: word(12)?,
        };
        let is_known = word(0)? == MAGIC && usize::from(wish.mode) < nl::MODES.len();
        let fits = (1..=MOST_MESSAGE_BYTES).contains(&u64::from(wish.bytes)) && wish.count > 0;
        (is_known && fits && header[6..8] == [0; 2]).then_some(wish)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish() -> Wish {
        Wish {
            what: What::Throughput,
            mode: 3,
            bytes: 65536,
            count: 7,
        }
    }

    #[test]
    fn a_wish_is_read_as_it_was_written() {
        assert_eq!(Wish::from_bytes(&wish().to_bytes()), Some(wish()));
        let most = Wish {
            what: What::Latency,
            bytes: MOST_MESSAGE_BYTES as u32,
            count: u32::MAX,
            ..wish()
        };
        assert_eq!(Wish::from_bytes(&most.to_bytes()), Some(most));
    }

    #[test]
    fn bad_wishes_are_refused() {
        for (at, byte) in [(0, 0), (3, b'A'), (4, 0), (4, 3), (5, 5), (6, 1), (7, 1)] {
            let mut header = wish().to_bytes();
            header[at] = byte;
            assert_eq!(Wish::from_bytes(&header), None, "{at} {byte}");
        }
        for bad in [
            Wish { bytes: 0, ..wish() },
            Wish { count: 0, ..wish() },
            Wish {
                bytes: MOST_MESSAGE_BYTES as u32 + 1,
                ..wish()
            },
        ] {
            assert_eq!(Wish::from_bytes(&bad.to_bytes()), None, "{bad:?}");
        }
    }
}
