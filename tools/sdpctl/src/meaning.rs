// SPDX-License-Identifier: GPL-2.0

//! Descriptions of the counters, from the ABI page that lists them.

const PAGE: &str = include_str!("../../../Documentation/ABI/testing/procfs-net-sdp");

/// The description of `counter`; `None` if the counter is from a newer module.
pub(crate) fn of(counter: &str) -> Option<String> {
    // The page lists the kinds of messages once.
    let name = match counter.strip_prefix("received_") {
        Some(kind) => format!("sent_{kind}"),
        None => counter.into(),
    };
    let entries = PAGE.split_once("/proc/net/sdpstats")?.1;
    let mut lines = entries.lines().filter_map(|line| line.strip_prefix("\t\t"));
    // An entry: the name, a star if connections have the counter as well, and the description,
    // which may start on the next line.
    let text = lines.find_map(|line| {
        let rest = line.strip_prefix(&name)?;
        // At least two spaces, or a star: lines of sentences have neither.
        let is_entry = rest.is_empty() || rest.starts_with("  ") || rest.starts_with('*');
        let rest = rest.strip_prefix('*').unwrap_or(rest);
        let is_whole = !name.is_empty() && is_entry;
        is_whole.then(|| rest.trim())
    })?;
    let more = lines.take_while(|line| line.starts_with(' '));
    let words: Vec<&str> = std::iter::once(text).chain(more.map(str::trim)).collect();
    Some(words.join(" ").trim_start().to_string())
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn of_one_line_of_several_and_of_none() {
        assert_eq!(of("completions").as_deref(), Some("completions polled"));
        assert_eq!(
            of("tx_bytes").as_deref(),
            Some("bytes of payload handed to the adapter")
        );
        assert_eq!(
            of("violation_WriteVoided").as_deref(),
            Some("bytes written to a sink advert that had ended")
        );
        assert_eq!(
            of("violation_EmptyCompletion").as_deref(),
            Some("an RdmaRdCompl that reports no bytes")
        );
        assert_eq!(of("received_SinkAvail"), of("sent_SinkAvail"));
        for unknown in [
            "",
            "tx",
            "Messages",
            "violation_",
            "received_",
            "of",
            "stat``.",
        ] {
            assert_eq!(of(unknown), None, "{unknown}");
        }
    }

    /// The page describes each counter of the module's source.
    #[test]
    fn of_all() {
        let source = include_str!("../../../rust/stats/counters.rs");
        let names = source.lines().filter_map(|line| {
            let (_, name) = line.trim().strip_suffix("\",")?.split_once(" => \"")?;
            Some(name)
        });
        let mut count = 0;
        for name in names {
            assert!(of(name).is_some_and(|text| !text.is_empty()), "{name}");
            count += 1;
        }
        assert!(count > 50, "{count}");
    }
}
