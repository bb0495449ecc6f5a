// SPDX-License-Identifier: GPL-2.0

//! The values of parameters and sysctls.

use proptest::prelude::*;
use proto_host::kind::Kind;
use proto_host::proto::choice::{
    Path,
    Wanted, //
};
use uapi::nl;

const SMALL: Kind = Kind::Number {
    least: -3,
    most: 100,
};
const ANY: Kind = Kind::Number {
    least: i32::MIN,
    most: i32::MAX,
};
const NAMES: Kind = Kind::Choice(&["auto", "copy", "wait"]);

fn shown(kind: Kind, value: i32) -> String {
    let mut out = String::new();
    kind.show(value, &mut out).expect("a string has room");
    out
}

#[test]
fn numbers_within_their_bounds() {
    for (text, value) in [
        ("-3", -3),
        ("0", 0),
        ("100", 100),
        ("+7", 7),
        ("0x1f", 31),
        ("0X1F", 31),
        ("017", 15),
        (" 5\n", 5),
    ] {
        assert_eq!(SMALL.parse(text.as_bytes()), Some(value), "{text:?}");
    }
    for text in [
        "-4",
        "101",
        "0x65",
        "99999999999",
        "99999999999999999999999",
    ] {
        assert_eq!(SMALL.parse(text.as_bytes()), None, "{text:?}");
    }
    assert_eq!(ANY.parse(b"2147483647"), Some(i32::MAX));
    assert_eq!(ANY.parse(b"2147483648"), None);
    assert_eq!(ANY.parse(b"-2147483648"), Some(i32::MIN));
    assert_eq!(ANY.parse(b"-2147483649"), None);
}

#[test]
fn what_is_no_number() {
    for text in [
        "", " ", "\n", "-", "+", "0x", "--1", "-+1", "0x-1", "0-1", "08", "1 2", "1,2", "5k",
        "copy", "1.0", "\u{661}",
    ] {
        assert_eq!(ANY.parse(text.as_bytes()), None, "{text:?}");
    }
    assert_eq!(ANY.parse(b"\xff1"), None);
}

#[test]
fn choices_by_name_or_number() {
    for (text, value) in [("auto", 0), ("copy", 1), ("wait\n", 2), ("0", 0), ("2", 2)] {
        assert_eq!(NAMES.parse(text.as_bytes()), Some(value), "{text:?}");
    }
    for text in ["", "Copy", "cop", "copyx", "3", "-1", "auto copy"] {
        assert_eq!(NAMES.parse(text.as_bytes()), None, "{text:?}");
    }
}

#[test]
fn what_is_allowed_is_said() {
    assert_eq!(SMALL.to_string(), "a number from -3 to 100");
    assert_eq!(NAMES.to_string(), "one of auto (0) copy (1) wait (2)");
    let none = Kind::Number { least: 0, most: 0 };
    assert_eq!(none.to_string(), "0");
}

/// The names are in the order of the numbers of SDP_ZCOPY_MODE.
#[test]
fn modes_have_their_names() {
    let modes = Kind::Choice(&nl::MODES);
    for (name, wanted) in [
        ("auto", Wanted::Automatic),
        ("copy", Wanted::Only(Path::Copy)),
        ("sync", Wanted::Only(Path::Synchronous)),
        ("async", Wanted::Only(Path::Asynchronous)),
        ("sink", Wanted::Only(Path::SinkWrite)),
    ] {
        assert_eq!(modes.parse(name.as_bytes()), Some(wanted.number()));
        assert_eq!(shown(modes, wanted.number()), name);
    }
}

proptest! {
    #[test]
    fn what_is_shown_is_read_again(value: i32, place in 0..3) {
        prop_assert_eq!(ANY.parse(shown(ANY, value).as_bytes()), Some(value));
        prop_assert_eq!(NAMES.parse(shown(NAMES, place).as_bytes()), Some(place));
    }

    #[test]
    fn no_text_gives_a_value_that_is_not_allowed(text: Vec<u8>) {
        let number = SMALL.parse(&text);
        prop_assert!(number.is_none_or(|n| (-3..=100).contains(&n)));
        let place = NAMES.parse(&text);
        prop_assert!(place.is_none_or(|n| (0..3).contains(&n)));
    }
}
