// SPDX-License-Identifier: GPL-2.0

//! The numbers in the module and the tool agree with the specification.

use std::collections::BTreeMap;

const SPEC: &str = include_str!("../../../Documentation/netlink/specs/ib-sdp.yaml");
const NUMBERS: &str = include_str!("../../../rust/uapi/nl.rs");

/// The names in a list of the specification, in order: lines `name: X` at this indentation.
fn names(section: &str, indent: usize) -> Vec<String> {
    let start = format!("{}name: ", " ".repeat(indent));
    let lines = section.lines();
    lines
        .filter_map(|line| line.strip_prefix(&start).map(String::from))
        .collect()
}

/// The text between `from` and `to`.
fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let (_, rest) = text.split_once(from).unwrap_or_else(|| panic!("no {from}"));
    rest.split_once(to).map_or(rest, |(section, _)| section)
}

/// The attributes of a set, by name.
fn attributes(set: &str) -> BTreeMap<String, usize> {
    let sets = between(SPEC, "\nattribute-sets:\n", "\noperations:\n");
    let from = format!("    name: {set}\n    attributes:\n");
    let section = between(sets, &from, "\n  -\n");
    let names = names(section, 8).into_iter();
    names.enumerate().map(|(i, name)| (name, i + 1)).collect()
}

/// The constants of a module of the kernel's file, in the spelling of the specification.
fn constants(module: &str) -> BTreeMap<String, usize> {
    let section = between(NUMBERS, &format!("mod {module} {{\n"), "\n}\n");
    let lines = section.lines().map(str::trim);
    let number = |line: &str| {
        let (name, rest) = line.strip_prefix("pub const ")?.split_once(": ")?;
        let (_, value) = rest.strip_suffix(';')?.split_once(" = ")?;
        let value = match value.strip_prefix("1 << ") {
            Some(bit) => bit.parse::<usize>().ok()?,
            None => value.parse().ok()?,
        };
        Some((name.to_ascii_lowercase().replace('_', "-"), value))
    };
    lines.filter_map(number).collect()
}

/// The entries of a definition.
fn entries(name: &str) -> Vec<String> {
    let definitions = between(SPEC, "\ndefinitions:\n", "\nattribute-sets:\n");
    let section = between(definitions, &format!("    name: {name}\n"), "\n  -\n");
    let (_, list) = section.split_once("entries:").unwrap();
    let words = list.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    let words = words.map(|word| word.trim_start_matches('-').to_string());
    words.filter(|word| !word.is_empty()).collect()
}

#[test]
fn attributes_have_their_numbers() {
    for set in ["module", "sock", "stat"] {
        let specified = attributes(set);
        assert!(specified.len() > 1, "{set}");
        assert_eq!(specified, constants(set), "{set}");
    }
}

#[test]
fn flags_have_their_bits() {
    for name in ["feature", "option"] {
        let specified = entries(name).into_iter().enumerate();
        let specified: BTreeMap<_, _> = specified.map(|(bit, name)| (name, bit)).collect();
        assert!(specified.len() > 1, "{name}");
        assert_eq!(specified, constants(name), "{name}");
    }
}

#[test]
fn names_have_their_places() {
    for (name, constant) in [("state", "STATES"), ("mode", "MODES")] {
        let list = between(NUMBERS, &format!("const {constant}: "), "];\n");
        let (_, list) = list
            .split_once('[')
            .and_then(|(_, l)| l.split_once('['))
            .unwrap();
        let ours: Vec<_> = list
            .split('"')
            .skip(1)
            .step_by(2)
            .map(str::to_lowercase)
            .collect();
        let specified = entries(name);
        let specified: Vec<_> = specified
            .iter()
            .map(|entry| entry.replace('-', ""))
            .collect();
        assert!(ours.len() > 1, "{name}");
        assert_eq!(ours, specified, "{name}");
    }
}

#[test]
fn commands_have_their_numbers() {
    let operations = between(SPEC, "\noperations:\n", "\nmcast-groups:\n");
    for (i, name) in names(operations, 6).iter().enumerate() {
        let constant = format!("CMD_{}", name.to_ascii_uppercase().replace('-', "_"));
        let line = format!("pub const {constant}: u8 = {};", i + 1);
        assert!(NUMBERS.contains(&line), "{line}");
    }
    assert_eq!(
        NUMBERS.matches("const CMD_").count(),
        names(operations, 6).len()
    );
}
