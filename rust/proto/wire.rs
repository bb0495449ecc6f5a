// SPDX-License-Identifier: GPL-2.0

//! Reading and writing big-endian fields at fixed offsets, without panics.
//!
//! A reader gets `None` if the bytes are missing. A writer ignores bytes that do not fit: the
//! callers write at constant offsets into arrays of constant size, and the round-trip tests would
//! detect a missing field.

/// Reads `N` bytes at `at`.
pub(super) fn bytes<const N: usize>(from: &[u8], at: usize) -> Option<[u8; N]> {
    from.get(at..)?.first_chunk::<N>().copied()
}

/// Reads the byte at `at`.
pub(super) fn u8_at(from: &[u8], at: usize) -> Option<u8> {
    from.get(at).copied()
}

/// Reads a big-endian `u16` at `at`.
pub(super) fn u16_at(from: &[u8], at: usize) -> Option<u16> {
    bytes(from, at).map(u16::from_be_bytes)
}

/// Reads a big-endian `u32` at `at`.
pub(super) fn u32_at(from: &[u8], at: usize) -> Option<u32> {
    bytes(from, at).map(u32::from_be_bytes)
}

/// Reads a big-endian `u64` at `at`.
pub(super) fn u64_at(from: &[u8], at: usize) -> Option<u64> {
    bytes(from, at).map(u64::from_be_bytes)
}

/// Writes `value` at `at`.
pub(super) fn put<const N: usize>(into: &mut [u8], at: usize, value: &[u8; N]) {
    let place = into.get_mut(at..).and_then(|rest| rest.first_chunk_mut());
    if let Some(place) = place {
        *place = *value;
    }
}
