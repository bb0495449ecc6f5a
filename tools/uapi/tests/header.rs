// SPDX-License-Identifier: GPL-2.0

//! The C header defines exactly the constants of the module's own file.

use std::collections::BTreeMap;

const HEADER: &str = include_str!("../ib_sdp.h");
const MODULE: &str = include_str!("../../../rust/uapi/socket.rs");

/// The constants in a text, by name; `before` is the text before each name.
fn numbers(text: &str, before: &str) -> BTreeMap<String, i32> {
    let number = |line: &str| {
        let mut words = line.strip_prefix(before)?.split([' ', ':', '=', ';']);
        let name = words.next()?.to_owned();
        let value = words.filter_map(|word| word.parse().ok()).next()?;
        Some((name, value))
    };
    text.lines().filter_map(number).collect()
}

#[test]
fn c_has_the_same_numbers() {
    let module = numbers(MODULE, "pub const ");
    assert_eq!(module.get("AF_INET_SDP"), Some(&uapi::socket::AF_INET_SDP));
    assert_eq!(module.len(), MODULE.matches("pub const ").count());
    assert_eq!(numbers(HEADER, "#define "), module);
}
