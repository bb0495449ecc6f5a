// SPDX-License-Identifier: GPL-2.0

//! `sdpctl stat histograms`: sizes and latencies of existing connections.
//!
//! The module has histograms per connection in a file that only root can read. This module adds up
//! those of a namespace.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;

use crate::cli::Cli;
use crate::conn::DEBUGFS;
use crate::fail::Fail;
use crate::netlink::Module;
use crate::out;
use crate::ss;
use crate::units;

/// The histograms, their descriptions, and whether their values are bytes.
const KNOWN: [(&str, &str, bool); 2] = [
    ("send_bytes", "bytes that a call of send() has taken", true),
    (
        "advert_us",
        "microseconds from an advert of ours to its end",
        false,
    ),
];
/// Maximum length of a bar.
const BAR: u64 = 40;

/// The number of values from `least` to less than twice `least`.
#[derive(Debug, Serialize, PartialEq, Eq)]
struct Class {
    least: u64,
    count: u64,
}

#[derive(Serialize)]
struct Report {
    format: u32,
    /// Number of connections with histograms.
    connections: usize,
    histograms: BTreeMap<&'static str, Vec<Class>>,
}

/// Counts by histogram and lower bound.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sums(BTreeMap<(String, u64), u64>);

impl Sums {
    /// Adds the histograms of a connection: the lines `histogram NAME LEAST COUNT` of its file.
    fn add(&mut self, text: &str) {
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let ["histogram", name, least, count] = words[..] else {
                continue;
            };
            if let (Ok(least), Ok(count)) = (least.parse(), count.parse::<u64>()) {
                *self.0.entry((name.to_string(), least)).or_default() += count;
            }
        }
    }

    fn classes(&self, name: &str) -> Vec<Class> {
        let of_it = self.0.iter().filter(|((n, _), _)| n == name);
        of_it
            .map(|((_, least), count)| Class {
                least: *least,
                count: *count,
            })
            .collect()
    }
}

/// The classes from the first to the last non-empty one, each with a bar.
fn bars(classes: &[Class], in_bytes: bool) -> Vec<String> {
    let (Some(first), Some(last)) = (classes.first(), classes.last()) else {
        return vec!["  none".into()];
    };
    let most = classes.iter().map(|c| c.count).max().unwrap_or(1).max(1);
    let show = |n: u64| {
        if in_bytes {
            units::bytes(n)
        } else {
            n.to_string()
        }
    };
    let next = |least: u64| {
        if least == 0 {
            1
        } else {
            least.saturating_mul(2)
        }
    };
    let mut table = Vec::new();
    let mut least = first.least;
    while least <= last.least {
        let count = classes
            .iter()
            .find(|c| c.least == least)
            .map_or(0, |c| c.count);
        let bar = (count * BAR).div_ceil(most) as usize;
        table.push(vec![
            format!("  {}", show(least)),
            format!("to less than {}", show(next(least))),
            count.to_string(),
            "#".repeat(bar),
        ]);
        least = next(least);
    }
    out::table(&table, &[0, 2])
}

pub(crate) fn run(cli: &Cli) -> Result<ExitCode, Fail> {
    let mut module = Module::open(&cli.messages)?;
    let root = Path::new(DEBUGFS);
    match fs::read_dir(root) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            return Err(Fail::Permission(
                "histograms are in debugfs, which only root can read".into(),
            ))
        }
        Err(e) => return Err(Fail::io(root.display(), &e)),
        Ok(_) => {}
    }
    let mut sums = Sums::default();
    let mut connections = 0;
    for cookie in ss::all(&mut module)?.iter().filter_map(|s| s.cookie) {
        // Listeners have no file, and connections may have ended meanwhile.
        if let Ok(text) = fs::read_to_string(root.join(cookie.to_string()).join("state")) {
            connections += 1;
            sums.add(&text);
        }
    }
    if cli.json {
        out::json(&Report {
            format: out::FORMAT,
            connections,
            histograms: KNOWN.map(|(name, _, _)| (name, sums.classes(name))).into(),
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    for (name, what, in_bytes) in KNOWN {
        out::line(format_args!("{name}: {what}"))?;
        for line in bars(&sums.classes(name), in_bytes) {
            out::line(line)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_add_up() {
        let mut sums = Sums::default();
        sums.add("mode auto\nhistogram send_bytes 1024 2\nhistogram advert_us 4 1\n");
        sums.add("histogram send_bytes 1024 3\nhistogram send_bytes 8192 1\nhistogram x\n");
        let class = |least, count| Class { least, count };
        assert_eq!(sums.classes("send_bytes"), [class(1024, 5), class(8192, 1)]);
        assert_eq!(sums.classes("advert_us"), [class(4, 1)]);
        assert_eq!(sums.classes("other"), []);
    }

    #[test]
    fn bars_have_no_gaps() {
        let class = |least, count| Class { least, count };
        let lines = bars(&[class(0, 1), class(1, 80), class(4, 20)], true);
        let counts: Vec<&str> = lines
            .iter()
            .map(|line| line.split_whitespace().nth(5).unwrap())
            .collect();
        assert_eq!(counts, ["1", "80", "0", "20"]);
        let lengths: Vec<usize> = lines.iter().map(|line| line.matches('#').count()).collect();
        assert_eq!(lengths, [1, 40, 0, 10]);
        assert_eq!(bars(&[], false), ["  none"]);
    }
}
