// SPDX-License-Identifier: GPL-2.0

//! The limits of the numbers of connections, and the present numbers.

use std::fs;
use std::path::Path;

/// The file of the module, which depends on the namespace and on the user.
const FILE: &str = "proc/net/sdplimits";

/// A limit, named as its setting.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) name: String,
    /// The maximum number of connections.
    pub(crate) most: u64,
    pub(crate) in_use: u64,
}

/// All limits; none without the module, or if the module is older than the file.
pub(crate) fn read(root: Option<&Path>) -> Vec<Limit> {
    let path = root.unwrap_or(Path::new("/")).join(FILE);
    parse(&fs::read_to_string(path).unwrap_or_default())
}

fn parse(text: &str) -> Vec<Limit> {
    let limit = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        Some(Limit {
            name: words.next()?.into(),
            most: words.next()?.parse().ok()?,
            in_use: words.next()?.parse().ok()?,
        })
    };
    // The first line names the columns.
    text.lines().skip(1).filter_map(limit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_lines_behind_the_names() {
        let text = "name limit in_use\nmax_connections 12500 3\nmax_orphans 3125 0\n";
        let limit = |name: &str, most, in_use| Limit {
            name: name.into(),
            most,
            in_use,
        };
        let expected = [
            limit("max_connections", 12_500, 3),
            limit("max_orphans", 3125, 0),
        ];
        assert_eq!(parse(text), expected);
        assert_eq!(parse(""), []);
    }
}
