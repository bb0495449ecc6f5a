// SPDX-License-Identifier: GPL-2.0

//! All combinations of the inputs of a decision.

use proto_host::proto::choice::{Path, Wanted};

/// All choices of a user.
pub(crate) const WANTED: [Wanted; 5] = [
    Wanted::Automatic,
    Wanted::Only(Path::Copy),
    Wanted::Only(Path::Synchronous),
    Wanted::Only(Path::Asynchronous),
    Wanted::Only(Path::SinkWrite),
];
pub(crate) const BOTH: [bool; 2] = [false, true];

/// Takes one value after the other from a number that stands for a combination of values.
/// All combinations have been taken if the number has more digits.
pub(crate) struct Digits(pub(crate) usize);

impl Digits {
    pub(crate) fn next<T: Copy>(&mut self, values: &[T]) -> T {
        let at = self.0 % values.len();
        self.0 /= values.len();
        values[at]
    }
}
