// SPDX-License-Identifier: GPL-2.0

//! The valid values of a setting, and their textual form, as pure functions.

use core::fmt;

/// The valid values of a setting; to the module each value is a number.
#[derive(Copy, Clone, Debug)]
pub enum Kind {
    /// Whole numbers from `least` to `most`.
    Number {
        /// The smallest number.
        least: i32,
        /// The largest number.
        most: i32,
    },
    /// One of these names; the first has the number 0.
    Choice(&'static [&'static str]),
}

impl Kind {
    /// The value that `text` names, by name or number; `None` if there is no such value. White
    /// space around it is ignored, because a shell appends a newline.
    pub fn parse(self, text: &[u8]) -> Option<i32> {
        let text = core::str::from_utf8(text).ok()?.trim_ascii();
        match self {
            Self::Number { least, most } => number(text).filter(|n| (least..=most).contains(n)),
            Self::Choice(names) => {
                let by_name = names.iter().position(|name| *name == text);
                let place = by_name.or_else(|| usize::try_from(number(text)?).ok())?;
                names.get(place)?;
                i32::try_from(place).ok()
            }
        }
    }

    /// Writes the value as text: its name, if it has one.
    pub fn show(self, value: i32, out: &mut impl fmt::Write) -> fmt::Result {
        let name = match self {
            Self::Choice(names) => usize::try_from(value).ok().and_then(|n| names.get(n)),
            Self::Number { .. } => None,
        };
        match name {
            Some(name) => out.write_str(name),
            None => write!(out, "{value}"),
        }
    }
}

/// The valid values, to follow "is not".
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number { least, most } if least == most => write!(f, "{least}"),
            Self::Number { least, most } => write!(f, "a number from {least} to {most}"),
            Self::Choice(names) => {
                f.write_str("one of")?;
                for (number, name) in names.iter().enumerate() {
                    write!(f, " {name} ({number})")?;
                }
                Ok(())
            }
        }
    }
}

/// Parses a number as in C: decimal, hexadecimal with 0x, octal with 0.
fn number(text: &str) -> Option<i32> {
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let (digits, radix) = match (hexadecimal, text.strip_prefix('0')) {
        (Some(digits), _) => (digits, 16),
        (None, Some(digits)) if !digits.is_empty() => (digits, 8),
        _ => (text, 10),
    };
    // The parser would accept a second sign.
    if !digits.starts_with(|c: char| c.is_ascii_hexdigit()) {
        return None;
    }
    let size = i64::from_str_radix(digits, radix).ok()?;
    i32::try_from(if negative { size.checked_neg()? } else { size }).ok()
}
