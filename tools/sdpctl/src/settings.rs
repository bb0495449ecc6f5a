// SPDX-License-Identifier: GPL-2.0

//! The module's settings: places, values and meanings. `tests` compares the table with the module's
//! source.

use std::path::PathBuf;

use serde::Serialize;

use uapi::kind::Kind;

/// Place of a setting.
#[derive(Copy, Clone, Debug, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Place {
    /// Of a network namespace: under `/proc/sys/net/sdp`.
    Sysctl,
    /// Of the machine: under `/sys/module/ib_sdp/parameters`.
    Parameter,
}

impl Place {
    /// The folder of the files.
    pub(crate) fn folder(self) -> &'static str {
        match self {
            Self::Sysctl => "/proc/sys/net/sdp",
            Self::Parameter => "/sys/module/ib_sdp/parameters",
        }
    }
}

/// Unit of a number.
#[derive(Copy, Clone, Debug, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Unit {
    /// No unit, or names.
    None,
    Bytes,
    Mebibytes,
    /// Pages of the machine's page size.
    Pages,
    Seconds,
    /// A setting of a newer module, whose unit is not known.
    Unknown,
}

/// Valid values.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Shape {
    One(Kind),
    /// Three numbers from 1 on, none smaller than the previous one.
    Rising,
    /// Checked by the kernel.
    Any,
}

/// A setting of this version of the module.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    pub(crate) place: Place,
    pub(crate) shape: Shape,
    pub(crate) unit: Unit,
    /// As shown by the kernel.
    pub(crate) default: Option<&'static str>,
    /// It can only be set when the module is loaded.
    pub(crate) at_load: bool,
    pub(crate) meaning: &'static str,
}

const BUFFER: Shape = number(4096, 1 << 24);
/// The modes of sends, by number, as settings name them.
pub(crate) const MODE_NAMES: [&str; 5] = ["auto", "copy", "sync", "async", "sink"];
const MODES: Shape = choice(&MODE_NAMES);
const POLICIES: Shape = choice(&["copy", "block"]);
const THRESHOLD: Shape = number(-1, i32::MAX);

const SECONDS: (Shape, Unit) = (number(1, 32767), Unit::Seconds);
const PROBES: (Shape, Unit) = (number(1, 127), Unit::None);
const SWITCH: (Shape, Unit) = (number(0, 1), Unit::None);
const AS_MANY: (Shape, Unit) = (number(0, i32::MAX), Unit::None);

const fn number(least: i32, most: i32) -> Shape {
    Shape::One(Kind::Number { least, most })
}

const fn choice(names: &'static [&'static str]) -> Shape {
    Shape::One(Kind::Choice(names))
}

const fn sysctl(
    name: &'static str,
    (shape, unit): (Shape, Unit),
    default: &'static str,
    meaning: &'static str,
) -> Setting {
    Setting {
        name,
        place: Place::Sysctl,
        shape,
        unit,
        default: Some(default),
        at_load: false,
        meaning,
    }
}

const fn parameter(
    name: &'static str,
    what: (Shape, Unit),
    default: &'static str,
    meaning: &'static str,
) -> Setting {
    Setting {
        place: Place::Parameter,
        ..sysctl(name, what, default, meaning)
    }
}

/// All settings, in the order of the output.
pub(crate) const SETTINGS: &[Setting] = &[
    sysctl(
        "zcopy_mode",
        (MODES, Unit::None),
        "auto",
        "the way that sends go",
    ),
    sysctl(
        "zcopy_thresh",
        (THRESHOLD, Unit::Bytes),
        "-1",
        "least bytes of a send without a copy, in auto; 0 for none, -1 for what suits the adapter",
    ),
    sysctl(
        "fault_policy",
        (POLICIES, Unit::None),
        "copy",
        "what a write to memory in flight does",
    ),
    sysctl(
        "max_adverts",
        (number(1, 32), Unit::None),
        "32",
        "pieces of memory in flight, of each kind",
    ),
    sysctl(
        "wmem_default",
        (BUFFER, Unit::Bytes),
        "2097152",
        "send buffer of a new socket",
    ),
    sysctl(
        "rmem_default",
        (BUFFER, Unit::Bytes),
        "2097152",
        "receive buffer of a new socket",
    ),
    sysctl(
        "keepalive_time",
        SECONDS,
        "7200",
        "quiet until SO_KEEPALIVE asks the peer",
    ),
    sysctl(
        "keepalive_intvl",
        SECONDS,
        "75",
        "how long it waits for an answer at a time",
    ),
    sysctl("keepalive_probes", PROBES, "9", "how many times it waits"),
    sysctl(
        "fastopen",
        SWITCH,
        "0",
        "whether MSG_FASTOPEN connects, past what security modules say of connect()",
    ),
    sysctl(
        "tcp_fallback",
        SWITCH,
        "0",
        "whether TCP connects where SDP cannot, past what security modules say of it",
    ),
    sysctl(
        "max_connections",
        AS_MANY,
        "0",
        "connections of the namespace; 0 for what the memory suggests",
    ),
    sysctl(
        "max_user_connections",
        AS_MANY,
        "0",
        "connections of a user, in all namespaces; 0 likewise",
    ),
    sysctl(
        "max_orphans",
        AS_MANY,
        "0",
        "connections without a program; 0 likewise",
    ),
    Setting {
        default: None,
        ..sysctl(
            "mem",
            (Shape::Rising, Unit::Pages),
            "",
            "buffers of all sockets: not short, short, most",
        )
    },
    parameter(
        "sdp_zcopy_mode",
        (MODES, Unit::None),
        "auto",
        "zcopy_mode that namespaces begin with",
    ),
    parameter(
        "sdp_zcopy_thresh",
        (THRESHOLD, Unit::Bytes),
        "-1",
        "zcopy_thresh that namespaces begin with",
    ),
    parameter(
        "sdp_fault_policy",
        (POLICIES, Unit::None),
        "copy",
        "fault_policy that namespaces begin with",
    ),
    parameter(
        "sdp_max_adverts",
        (number(1, 32), Unit::None),
        "32",
        "max_adverts that namespaces begin with",
    ),
    parameter(
        "sdp_wmem_default",
        (BUFFER, Unit::Bytes),
        "2097152",
        "wmem_default that namespaces begin with",
    ),
    parameter(
        "sdp_rmem_default",
        (BUFFER, Unit::Bytes),
        "2097152",
        "rmem_default that namespaces begin with",
    ),
    parameter(
        "sdp_keepalive_time",
        SECONDS,
        "7200",
        "keepalive_time that namespaces begin with",
    ),
    parameter(
        "sdp_keepalive_intvl",
        SECONDS,
        "75",
        "keepalive_intvl that namespaces begin with",
    ),
    parameter(
        "sdp_keepalive_probes",
        PROBES,
        "9",
        "keepalive_probes that namespaces begin with",
    ),
    parameter(
        "sdp_fastopen",
        SWITCH,
        "0",
        "fastopen that namespaces begin with",
    ),
    parameter(
        "sdp_tcp_fallback",
        SWITCH,
        "0",
        "tcp_fallback that namespaces begin with",
    ),
    parameter(
        "sdp_max_connections",
        AS_MANY,
        "0",
        "max_connections that namespaces begin with",
    ),
    parameter(
        "sdp_max_user_connections",
        AS_MANY,
        "0",
        "max_user_connections that namespaces begin with",
    ),
    parameter(
        "sdp_max_orphans",
        AS_MANY,
        "0",
        "max_orphans that namespaces begin with",
    ),
    parameter(
        "sdp_recv_early",
        (choice(&["nobody", "ptrace", "all"]), Unit::None),
        "ptrace",
        "programs that may make others wait for memory",
    ),
    Setting {
        at_load: true,
        ..parameter(
            "top_mem_usage",
            (number(0, 1 << 20), Unit::Mebibytes),
            "0",
            "most memory of all sockets' buffers; 0 for a fifth",
        )
    },
    Setting {
        at_load: true,
        ..parameter(
            "sdp_break",
            // Other values are valid on kernels with CONFIG_DEBUG_VM.
            (Shape::Any, Unit::None),
            "0",
            "for tests of the module itself",
        )
    },
];

/// The setting with this name: `wmem_default`, `net.sdp.wmem_default` or `sdp_wmem_default`.
pub(crate) fn find(name: &str) -> Option<&'static Setting> {
    let bare = name.strip_prefix("net.sdp.");
    SETTINGS.iter().find(|s| match bare {
        Some(bare) => s.place == Place::Sysctl && s.name == bare,
        None => s.name == name,
    })
}

impl Setting {
    /// Its file, below `root` if given.
    pub(crate) fn path(&self, root: Option<&std::path::Path>) -> PathBuf {
        path(self.place, self.name, root)
    }

    /// The valid values, as the continuation of "is not".
    pub(crate) fn allowed(&self) -> Option<String> {
        match self.shape {
            Shape::One(kind) => Some(kind.to_string()),
            Shape::Rising => Some("three numbers, from 1 and none less than the one before".into()),
            Shape::Any => None,
        }
    }

    /// The text to write for `text`, with units replaced by numbers.
    ///
    /// # Errors
    ///
    /// The valid values, if the value is not valid.
    pub(crate) fn parse(&self, text: &str, page_bytes: u64) -> Result<String, String> {
        let refusal = || match self.allowed() {
            Some(allowed) => format!("{}: '{text}' is not {allowed}", self.name),
            None => format!("{}: '{text}' is no value", self.name),
        };
        let words: Vec<String> = text
            .split(|c: char| c == ',' || c.is_ascii_whitespace())
            .filter(|word| !word.is_empty())
            .map(|word| plain(word, self.unit, page_bytes))
            .collect::<Option<_>>()
            .ok_or_else(refusal)?;
        let fits = match self.shape {
            Shape::Any => !words.is_empty(),
            Shape::One(kind) => words.len() == 1 && kind.parse(words[0].as_bytes()).is_some(),
            Shape::Rising => {
                let numbers: Vec<u64> = words.iter().filter_map(|w| w.parse().ok()).collect();
                numbers.len() == 3 && words.len() == 3 && numbers.is_sorted() && numbers[0] >= 1
            }
        };
        match fits {
            true => Ok(words.join(" ")),
            false => Err(refusal()),
        }
    }
}

/// The file of a setting, below `root` if given.
pub(crate) fn path(place: Place, name: &str, root: Option<&std::path::Path>) -> PathBuf {
    let folder = match root {
        Some(root) => root.join(place.folder().trim_start_matches('/')),
        None => PathBuf::from(place.folder()),
    };
    folder.join(name)
}

/// Converts a word for the kernel: a number with a unit becomes a number in the setting's unit.
/// `None` if the unit does not fit or the result is not an integer.
pub(crate) fn plain(word: &str, unit: Unit, page_bytes: u64) -> Option<String> {
    let end = word.trim_start_matches(|c: char| c.is_ascii_digit());
    let digits = &word[..word.len() - end.len()];
    if digits.is_empty() || end.is_empty() || end.starts_with(['x', 'X']) {
        return Some(word.into());
    }
    let number: u64 = digits.parse().ok()?;
    let upper = end.to_ascii_uppercase();
    let is_bytes = !matches!(unit, Unit::None | Unit::Seconds);
    let scale = match upper.strip_suffix("IB").unwrap_or(&upper) {
        "K" if is_bytes => 1 << 10,
        "M" if is_bytes && end != "m" => 1 << 20,
        "G" if is_bytes => 1 << 30,
        "T" if is_bytes => 1 << 40,
        _ => {
            let seconds = match end {
                "s" => 1,
                "min" => 60,
                "h" => 3600,
                _ => return None,
            };
            return match unit {
                Unit::Seconds | Unit::Unknown => Some(number.checked_mul(seconds)?.to_string()),
                _ => None,
            };
        }
    };
    let bytes: u64 = number.checked_mul(scale)?;
    let whole = match unit {
        Unit::Mebibytes => 1 << 20,
        Unit::Pages => page_bytes.max(1),
        _ => 1,
    };
    (bytes % whole == 0).then(|| (bytes / whole).to_string())
}

#[cfg(test)]
mod tests;
