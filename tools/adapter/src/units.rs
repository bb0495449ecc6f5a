// SPDX-License-Identifier: GPL-2.0
//! Rates and times with units, for options and the control socket.

use std::time::Duration;

/// Parses a number with one of the units.
fn with_unit(text: &str, units: &[(&str, f64)]) -> Result<f64, String> {
    let names = || {
        units
            .iter()
            .map(|(name, _)| *name)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let at = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let factor = units
        .iter()
        .find(|(name, _)| *name == unit)
        .map(|(_, factor)| factor);
    match (number.parse::<f64>(), factor) {
        (Ok(number), Some(factor)) => Ok(number * factor),
        _ => Err(format!("a number and one of {} is needed", names())),
    }
}

/// Parses a rate in bits per second; returns bytes per second.
///
/// # Errors
///
/// It is not a number with a unit, or out of range.
pub fn rate(text: &str) -> Result<u64, String> {
    let bits = with_unit(text, &[("G", 1e9), ("M", 1e6), ("K", 1e3)])?;
    if (1e6..=1e13).contains(&bits) {
        Ok((bits / 8.0) as u64)
    } else {
        Err("a rate is from 1M to 10000G".into())
    }
}

/// Bytes per second that a link carries, or no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate(pub Option<u64>);

/// Bits per second, as bytes per second; `0` stands for no limit.
///
/// # Errors
///
/// It is not 0, nor a number with a unit, or out of range.
pub fn rate_or_none(text: &str) -> Result<Rate, String> {
    if text == "0" {
        return Ok(Rate(None));
    }
    rate(text).map(|rate| Rate(Some(rate)))
}

fn duration(text: &str, most: f64) -> Result<Duration, String> {
    let seconds = with_unit(
        text,
        &[("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)],
    )?;
    if (0.0..=most).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(format!("a time is {most}s at most"))
    }
}

/// Parses the latency of a link.
///
/// # Errors
///
/// It is not a number with a unit, or out of range.
pub fn latency(text: &str) -> Result<Duration, String> {
    duration(text, 10.0)
}

/// Parses a delay of a fault.
///
/// # Errors
///
/// It is not a number with a unit, or out of range.
pub fn time(text: &str) -> Result<Duration, String> {
    duration(text, 600.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_and_ranges() {
        assert_eq!(rate("100G"), Ok(12_500_000_000));
        assert_eq!(rate("1.5M"), Ok(187_500));
        assert_eq!(rate_or_none("0"), Ok(Rate(None)));
        assert_eq!(rate_or_none("1G"), Ok(Rate(Some(125_000_000))));
        assert_eq!(latency("2us"), Ok(Duration::from_micros(2)));
        assert_eq!(latency("1.5ms"), Ok(Duration::from_micros(1500)));
        assert_eq!(time("11s"), Ok(Duration::from_secs(11)));
        for wrong in ["", "G", "100", "-1G", "1T", "999K", "99999G", "1.2.3G"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "2", "11s", "-1us", "2 us"] {
            assert!(latency(wrong).is_err(), "{wrong}");
        }
        assert!(time("601s").is_err());
    }
}
