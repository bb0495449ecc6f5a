// SPDX-License-Identifier: GPL-2.0

//! A rule, and the name of its file.

use std::fmt::Write;
use std::path::Path;

use serde::Serialize;

use crate::fail::Fail;

/// `NAME_MAX`.
const MOST_FILE_NAME_BYTES: usize = 255;

/// Processes that open SDP sockets: those that meet all conditions.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Rule {
    /// The name of the program.
    pub(super) program: Option<String>,
    /// The folder of the control group. The rule applies to its descendants as well.
    pub(super) cgroup: Option<String>,
    /// The id of the control group. A control group that is created later in the same folder has
    /// another id.
    #[serde(skip)]
    pub(super) cgroup_id: Option<u64>,
}

impl Rule {
    /// # Errors
    ///
    /// No program can have the name, or the folder does not exist.
    pub(super) fn new(program: Option<String>, cgroup: Option<&Path>) -> Result<Self, Fail> {
        if let Some(name) = &program {
            if name.is_empty() || name.contains(['/', '\0']) {
                return Err(Fail::Usage(format!("{name:?} is not a name of a program")));
            }
        }
        let whole = |path: &Path| {
            let path = path
                .canonicalize()
                .map_err(|e| Fail::io(path.display(), &e))?;
            Ok(path.to_string_lossy().into_owned())
        };
        Ok(Self {
            program,
            cgroup: cgroup.map(whole).transpose()?,
            cgroup_id: None,
        })
    }

    /// The name of its file; names in the BPF file system cannot contain dots.
    ///
    /// # Errors
    ///
    /// The name would be too long.
    pub(super) fn file_name(&self, number: u32) -> Result<String, Fail> {
        let mut name = number.to_string();
        for (key, value) in [("program", &self.program), ("cgroup", &self.cgroup)] {
            if let Some(value) = value {
                let _ = write!(name, ":{key}={}", escaped(value));
            }
        }
        if let Some(id) = self.cgroup_id {
            let _ = write!(name, ":id={id}");
        }
        match name.len() <= MOST_FILE_NAME_BYTES {
            true => Ok(name),
            false => Err(Fail::Other(
                "the name of the program and the path of the control group are too long together"
                    .into(),
            )),
        }
    }

    /// The number and the rule of a file name; `None` for other files.
    pub(super) fn from_file_name(name: &str) -> Option<(u32, Self)> {
        let mut parts = name.split(':');
        let number = parts.next()?.parse().ok()?;
        let mut rule = Self {
            program: None,
            cgroup: None,
            cgroup_id: None,
        };
        for part in parts {
            let (key, value) = part.split_once('=')?;
            let value = Some(unescaped(value)?);
            match key {
                "program" => rule.program = value,
                "cgroup" => rule.cgroup = value,
                "id" => rule.cgroup_id = Some(value?.parse().ok()?),
                _ => return None,
            }
        }
        Some((number, rule))
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_".contains(&byte) {
            out.push(byte.into());
        } else {
            let _ = write!(out, "%{byte:02x}");
        }
    }
    out
}

fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.bytes().next() {
        let (byte, len) = match first {
            b'%' => (u8::from_str_radix(rest.get(1..3)?, 16).ok()?, 3),
            other => (other, 1),
        };
        bytes.push(byte);
        rest = rest.get(len..)?;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(program: Option<&str>, cgroup: Option<&str>) -> Rule {
        Rule {
            program: program.map(String::from),
            cgroup: cgroup.map(String::from),
            cgroup_id: cgroup.map(|_| u64::MAX),
        }
    }

    #[test]
    fn file_names_say_the_rule() {
        for rule in [
            rule(None, None),
            rule(Some("iperf3"), None),
            rule(
                Some("a.b:c=%d é"),
                Some("/sys/fs/cgroup/system.slice/x@1.service"),
            ),
        ] {
            let name = rule.file_name(7).expect("short");
            assert!(!name.contains(['.', '/']), "{name}");
            assert_eq!(Rule::from_file_name(&name), Some((7, rule)));
        }
        for name in [
            "",
            "x",
            "7:",
            "7:program",
            "7:port=1",
            "7:program=%",
            "7:program=%é",
        ] {
            assert_eq!(Rule::from_file_name(name), None, "{name}");
        }
        assert!(rule(None, Some(&"/".repeat(100))).file_name(1).is_err());
    }

    #[test]
    fn names_are_those_of_files() {
        let new = |name: &str| Rule::new(Some(name.into()), None);
        assert!(new("ibv_srq_pingpong").is_ok());
        assert!(new("").is_err() && new("bin/x").is_err());
    }
}
