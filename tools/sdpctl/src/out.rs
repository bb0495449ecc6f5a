// SPDX-License-Identifier: GPL-2.0

//! Tables, colours and JSON.

use std::fmt;
use std::io::{
    self,
    IsTerminal,
    Write, //
};

use clap::ValueEnum;
use serde::Serialize;

use crate::fail::Fail;

/// Version of the JSON format. Incremented when a field changes its meaning or is removed, not when
/// one is added.
pub(crate) const FORMAT: u32 = 1;

#[derive(Copy, Clone)]
pub(crate) enum Color {
    Good,
    Warning,
    Bad,
    Bold,
}

/// When to use colours.
#[derive(Copy, Clone, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    Auto,
    Always,
    Never,
}

/// Whether to use colours: by default only on a terminal, and not if NO_COLOR forbids it.
pub(crate) fn is_coloured(when: When) -> bool {
    match when {
        When::Always => true,
        When::Never => false,
        When::Auto => {
            io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
        }
    }
}

pub(crate) fn paint(text: &str, color: Color, on: bool) -> String {
    if !on {
        return text.into();
    }
    let code = match color {
        Color::Good => 32,
        Color::Warning => 33,
        Color::Bad => 31,
        Color::Bold => 1,
    };
    format!("\x1b[{code}m{text}\x1b[0m")
}

/// Prints a line and flushes. `println!` would panic if the line cannot be written.
pub(crate) fn line(text: impl fmt::Display) -> Result<(), Fail> {
    let mut stdout = io::stdout().lock();
    let written = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
    written.map_err(|e| Fail::io("output", &e))
}

/// Prints a note to the standard error, and ignores errors.
pub(crate) fn say(text: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Prints a value as JSON on several lines.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Fail> {
    let text = serde_json::to_string_pretty(value).map_err(|e| Fail::Other(e.to_string()))?;
    line(text)
}

/// Prints a value as JSON on one line.
pub(crate) fn json_line(value: &impl Serialize) -> Result<(), Fail> {
    let text = serde_json::to_string(value).map_err(|e| Fail::Other(e.to_string()))?;
    line(text)
}

/// Formats lines of cells in columns; columns in `right` are right-aligned.
pub(crate) fn table(lines: &[Vec<String>], right: &[usize]) -> Vec<String> {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line_of = |cells: &Vec<String>| {
        let cells = cells.iter().zip(&widths).enumerate();
        let texts: Vec<String> = cells
            .map(|(column, (cell, &width))| {
                if right.contains(&column) {
                    format!("{cell:>width$}")
                } else {
                    format!("{cell:<width$}")
                }
            })
            .collect();
        texts.join("  ").trim_end().to_string()
    };
    lines.iter().map(line_of).collect()
}
