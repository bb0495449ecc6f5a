// SPDX-License-Identifier: GPL-2.0

//! Formatting and parsing of numbers.

use crate::settings;

const UNITS: [&str; 4] = ["K", "M", "G", "T"];

/// Bytes with a unit of 1024, such as `64K`, if that is exact or close.
pub(crate) fn bytes(n: u64) -> String {
    if n < 10_000 && n % 1024 != 0 || n == 0 {
        return n.to_string();
    }
    let (mut whole, mut rest, mut unit) = (n, 0, "");
    for next in UNITS {
        if whole < 1024 {
            break;
        }
        (rest, whole, unit) = (whole % 1024, whole / 1024, next);
    }
    match rest * 10 / 1024 {
        0 => format!("{whole}{unit}"),
        tenth => format!("{whole}.{tenth}{unit}"),
    }
}

/// Parses a number of seconds.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(n) if n.is_finite() && (0.01..=86_400.0).contains(&n) => Ok(n),
        _ => Err("from 0.01 to 86400".into()),
    }
}

/// Maximum size of a message in a measurement.
pub(crate) const MOST_MESSAGE_BYTES: u64 = 16 << 20;

/// Parses the size of a message, with an optional unit of 1024.
pub(crate) fn message_bytes(text: &str) -> Result<u64, String> {
    let most = MOST_MESSAGE_BYTES;
    let plain = settings::plain(text, settings::Unit::Bytes, 1);
    match plain.and_then(|plain| plain.parse().ok()) {
        Some(n) if (1..=most).contains(&n) => Ok(n),
        _ => Err(format!("from 1 to {}", bytes(most))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_units_where_they_help() {
        for (n, text) in [
            (0, "0"),
            (1, "1"),
            (1000, "1000"),
            (1024, "1K"),
            (4096, "4K"),
            (9999, "9999"),
            (65536, "64K"),
            (100_000, "97.6K"),
            (1 << 20, "1M"),
            (3 << 29, "1.5G"),
            (u64::MAX, "16777215.9T"),
        ] {
            assert_eq!(bytes(n), text);
        }
    }

    #[test]
    fn messages_have_a_size() {
        for (text, n) in [("1", 1), ("4K", 4096), ("16M", 16 << 20)] {
            assert_eq!(message_bytes(text), Ok(n));
        }
        for bad in ["", "0", "17M", "-1", "0x10", "4Q", "K"] {
            assert!(message_bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn refuses_seconds_without_sense() {
        assert_eq!(seconds("0.5"), Ok(0.5));
        for bad in ["", "x", "0", "-1", "nan", "inf", "1e9"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}
