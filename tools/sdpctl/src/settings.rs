// SPDX-License-Identifier: GPL-2.0

//! The module's settings: places, values and meanings. `tests` compares the table with the module's
//! source.

use std::path::PathBuf;

use serde::Serialize;

use uapi::kind::Kind;
use uapi::nl;

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
const MODES: Shape = choice(&nl::MODES);
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
        "path of sends",
    ),
    sysctl(
        "zcopy_thresh",
        (THRESHOLD, Unit::Bytes),
        "-1",
        "minimum size of a send without a copy in mode auto; 0: no such sends; -1: chosen for the adapter",
    ),
    sysctl(
        "fault_policy",
        (POLICIES, Unit::None),
        "copy",
        "effect of a write to memory that a send still uses",
    ),
    sysctl(
        "max_adverts",
        (number(1, 32), Unit::None),
        "32",
        "maximum number of adverts of each kind in flight, per connection",
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
        "time without a message before SO_KEEPALIVE sends a probe",
    ),
    sysctl(
        "keepalive_intvl",
        SECONDS,
        "75",
        "time to wait for the answer to a probe, each time",
    ),
    sysctl(
        "keepalive_probes",
        PROBES,
        "9",
        "number of waits without an answer that end a connection",
    ),
    sysctl(
        "fastopen",
        SWITCH,
        "0",
        "whether MSG_FASTOPEN connects; security modules do not check such a connection",
    ),
    sysctl(
        "tcp_fallback",
        SWITCH,
        "0",
        "whether TCP is used if SDP cannot connect; security modules do not check such a connection",
    ),
    sysctl(
        "max_connections",
        AS_MANY,
        "0",
        "maximum number of connections of the namespace; 0: a limit by memory",
    ),
    sysctl(
        "max_user_connections",
        AS_MANY,
        "0",
        "maximum number of connections of a user in all namespaces; 0: a limit by memory",
    ),
    sysctl(
        "max_orphans",
        AS_MANY,
        "0",
        "maximum number of connections that no program has open; 0: a limit by memory",
    ),
    Setting {
        default: None,
        ..sysctl(
            "mem",
            (Shape::Rising, Unit::Pages),
            "",
            "memory of all sockets' buffers: end of pressure, start of pressure, maximum",
        )
    },
    parameter(
        "sdp_zcopy_mode",
        (MODES, Unit::None),
        "auto",
        "initial zcopy_mode of a namespace",
    ),
    parameter(
        "sdp_zcopy_thresh",
        (THRESHOLD, Unit::Bytes),
        "-1",
        "initial zcopy_thresh of a namespace",
    ),
    parameter(
        "sdp_fault_policy",
        (POLICIES, Unit::None),
        "copy",
        "initial fault_policy of a namespace",
    ),
    parameter(
        "sdp_max_adverts",
        (number(1, 32), Unit::None),
        "32",
        "initial max_adverts of a namespace",
    ),
    parameter(
        "sdp_wmem_default",
        (BUFFER, Unit::Bytes),
        "2097152",
        "initial wmem_default of a namespace",
    ),
    parameter(
        "sdp_rmem_default",
        (BUFFER, Unit::Bytes),
        "2097152",
        "initial rmem_default of a namespace",
    ),
    parameter(
        "sdp_keepalive_time",
        SECONDS,
        "7200",
        "initial keepalive_time of a namespace",
    ),
    parameter(
        "sdp_keepalive_intvl",
        SECONDS,
        "75",
        "initial keepalive_intvl of a namespace",
    ),
    parameter(
        "sdp_keepalive_probes",
        PROBES,
        "9",
        "initial keepalive_probes of a namespace",
    ),
    parameter(
        "sdp_fastopen",
        SWITCH,
        "0",
        "initial fastopen of a namespace",
    ),
    parameter(
        "sdp_tcp_fallback",
        SWITCH,
        "0",
        "initial tcp_fallback of a namespace",
    ),
    parameter(
        "sdp_max_connections",
        AS_MANY,
        "0",
        "initial max_connections of a namespace",
    ),
    parameter(
        "sdp_max_user_connections",
        AS_MANY,
        "0",
        "initial max_user_connections of a namespace",
    ),
    parameter(
        "sdp_max_orphans",
        AS_MANY,
        "0",
        "initial max_orphans of a namespace",
    ),
    parameter(
        "sdp_recv_early",
        (choice(&["nobody", "ptrace", "all"]), Unit::None),
        "ptrace",
        "programs that may use fault_policy block and early receives",
    ),
    Setting {
        at_load: true,
        ..parameter(
            "top_mem_usage",
            (number(0, 1 << 20), Unit::Mebibytes),
            "0",
            "maximum memory of all sockets' buffers; 0: a fifth of the machine's memory",
        )
    },
    Setting {
        at_load: true,
        ..parameter(
            "sdp_break",
            // Other values are valid on kernels with CONFIG_DEBUG_VM.
            (Shape::Any, Unit::None),
            "0",
            "rules to break, for tests of the module itself",
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
