// SPDX-License-Identifier: GPL-2.0

//! Compares the table with the module's source, and tests units.

use super::*;

const PARAMS: &str = include_str!("../../../../rust/params.rs");
const SYSCTL: &str = include_str!("../../../../rust/inet/sysctl.rs");

/// Evaluates a value of the module's source, with its constants.
fn value(text: &str) -> i64 {
    match text.trim() {
        "i32::MAX" => i32::MAX.into(),
        "ADVERTS as i32" => {
            let (_, rest) = PARAMS.split_once("const ADVERTS: usize = ").unwrap();
            value(rest.split_once(';').unwrap().0)
        }
        name if name.starts_with(char::is_uppercase) => {
            let (_, rest) = PARAMS.split_once(&format!("const {name}: i32 = ")).unwrap();
            value(rest.split_once(';').unwrap().0)
        }
        text => match text.split_once(" << ") {
            Some((a, b)) => value(a) << value(b),
            None => text.parse().unwrap_or_else(|_| panic!("{text}")),
        },
    }
}

fn names(list: &str) -> Vec<String> {
    let words = list.split('"').skip(1).step_by(2);
    words.map(String::from).collect()
}

/// The parameters in the module's source: name, whether only at load, kind and default.
fn parameters() -> Vec<(String, bool, String, i64)> {
    let (_, body) = PARAMS.split_once("\nparams! {\n").unwrap();
    let body = body.split_once("\n}\n").unwrap().0;
    let heads = body
        .lines()
        .filter_map(|line| {
            line.trim()
                .strip_prefix("ANY_TIME ")
                .map(|l| (false, l))
                .or_else(|| line.trim().strip_prefix("AT_LOAD ").map(|l| (true, l)))
        })
        .map(|(at_load, line)| {
            let (name, rest) = line.split_once(": ").unwrap();
            let rest = rest.split_once(' ').unwrap().1.trim_end_matches(',');
            let (kind, default) = rest.rsplit_once(", ").unwrap();
            (name.into(), at_load, kind.into(), value(default))
        });
    heads.collect()
}

/// A kind of the module's source, in the words of the kernel's log.
fn words(kind: &str) -> Option<String> {
    let number = |text: &str| {
        let (least, most) = text.split_once(", most: ").unwrap();
        let least = least.rsplit_once("least: ").unwrap().1;
        (value(least), value(most.split([',', ' ']).next().unwrap()))
    };
    if let Some(list) = kind.strip_prefix("Kind::Choice(&") {
        let names = match list.starts_with("nl::MODES") {
            true => nl::MODES.map(String::from).to_vec(),
            false => names(list),
        };
        let names = names.into_iter().enumerate();
        let names: Vec<_> = names.map(|(n, name)| format!("{name} ({n})")).collect();
        return Some(format!("one of {}", names.join(" ")));
    }
    if matches!(kind, "BUFFER_BYTES" | "AS_MANY") {
        let (_, rest) = PARAMS
            .split_once(&format!("const {kind}: Kind = "))
            .unwrap();
        let body = rest.split_once("};").unwrap().0;
        let field = |name: &str| {
            let (_, rest) = body.split_once(name).unwrap();
            match rest.split_once(',').unwrap().0.trim() {
                "i32::MAX" => i32::MAX.into(),
                number => value(number),
            }
        };
        let (least, most) = (field("least:"), field("most:"));
        return Some(format!("a number from {least} to {most}"));
    }
    if kind.contains("RULES") {
        return None;
    }
    let (least, most) = match kind.contains("most: i32::MAX") {
        true => (value("ADAPTERS"), i32::MAX.into()),
        false if kind.contains("ADVERTS as i32") => (1, value("ADVERTS as i32")),
        false => number(kind),
    };
    Some(format!("a number from {least} to {most}"))
}

#[test]
fn the_table_is_as_the_modules() {
    let parameters = parameters();
    assert!(parameters.len() >= 9);
    for (name, at_load, kind, default) in &parameters {
        let setting = find(name).unwrap_or_else(|| panic!("{name} is not in the table"));
        assert_eq!(setting.place, Place::Parameter, "{name}");
        assert_eq!(setting.at_load, *at_load, "{name}");
        assert_eq!(setting.allowed(), words(kind), "{name}");
        let ours = setting.default.unwrap();
        let ours = match setting.shape {
            Shape::One(kind) => i64::from(kind.parse(ours.as_bytes()).unwrap()),
            _ => ours.parse().unwrap(),
        };
        assert_eq!(ours, *default, "{name}");
    }
    let count = |place| SETTINGS.iter().filter(|s| s.place == place).count();
    assert_eq!(count(Place::Parameter), parameters.len());
}

#[test]
fn the_sysctls_are_as_the_modules() {
    let list = SYSCTL.split_once("static ENTRIES").unwrap().1;
    let list = list.split_once("\n];\n").unwrap().0;
    let entries = list.split("Entry::new(c\"").skip(1);
    let mut count = 0;
    for entry in entries {
        let (name, rest) = entry.split_once("\", &params::").unwrap();
        let parameter = rest.split_once(')').unwrap().0;
        let sysctl = find(&format!("net.sdp.{name}"));
        let sysctl = sysctl.unwrap_or_else(|| panic!("{name} is not in the table"));
        let parameter = find(parameter).unwrap();
        assert_eq!(sysctl.allowed(), parameter.allowed(), "{name}");
        assert_eq!(sysctl.default, parameter.default, "{name}");
        assert_eq!(sysctl.unit, parameter.unit, "{name}");
        count += 1;
    }
    // And the one sysctl without a parameter.
    let ours = SETTINGS.iter().filter(|s| s.place == Place::Sysctl);
    assert_eq!(ours.count(), count + 1);
}

#[test]
fn units_become_what_the_setting_counts() {
    for (name, text, written) in [
        ("wmem_default", "64K", Some("65536")),
        ("wmem_default", "1M", Some("1048576")),
        ("wmem_default", "16MiB", Some("16777216")),
        ("wmem_default", "65536", Some("65536")),
        ("wmem_default", "0x10000", Some("0x10000")),
        ("wmem_default", "4095", None),
        ("wmem_default", "17M", None),
        ("wmem_default", "64Q", None),
        ("wmem_default", "64K 64K", None),
        ("wmem_default", "30s", None),
        ("wmem_default", "1m", None),
        ("wmem_default", "99999999999999999999K", None),
        ("max_adverts", "4", Some("4")),
        ("max_adverts", "4K", None),
        ("max_adverts", "33", None),
        ("keepalive_time", "30s", Some("30")),
        ("keepalive_time", "2h", Some("7200")),
        ("keepalive_time", "64K", None),
        ("keepalive_time", "0", None),
        ("keepalive_probes", "9s", None),
        ("zcopy_mode", "async", Some("async")),
        ("zcopy_mode", "3", Some("3")),
        ("zcopy_mode", "fast", None),
        ("zcopy_mode", "", None),
        ("mem", "4M,8M,16M", Some("1024 2048 4096")),
        ("mem", "1 2 3", Some("1 2 3")),
        ("mem", "3 2 1", None),
        ("mem", "0 1 2", None),
        ("mem", "1 2", None),
        ("mem", "1 2 x", None),
        ("mem", "1K 2K 4K", None),
        ("top_mem_usage", "1G", Some("1024")),
        ("top_mem_usage", "1K", None),
    ] {
        let setting = find(name).unwrap();
        let got = setting.parse(text, 4096);
        assert_eq!(got.as_deref().ok(), written, "{name}={text}: {got:?}");
        if let Err(why) = got {
            assert!(
                why.starts_with(&format!("{name}: '{text}' is not ")),
                "{why}"
            );
        }
    }
}

#[test]
fn of_an_unknown_setting_the_units_are_the_users() {
    for (text, written) in [
        ("30s", Some("30")),
        ("2min", Some("120")),
        ("2h", Some("7200")),
        ("64K", Some("65536")),
        ("7", Some("7")),
        ("fast", Some("fast")),
        ("7x", Some("7x")),
        ("7y", None),
    ] {
        let got = plain(text, Unit::Unknown, 4096);
        assert_eq!(got.as_deref(), written, "{text}");
    }
}

#[test]
fn names_lead_to_one_setting() {
    assert_eq!(find("net.sdp.mem").unwrap().name, "mem");
    assert_eq!(find("sdp_recv_early").unwrap().place, Place::Parameter);
    for bad in ["net.sdp.sdp_recv_early", "nothing", ""] {
        assert!(find(bad).is_none(), "{bad}");
    }
    for setting in SETTINGS {
        assert_eq!(find(setting.name).unwrap().place, setting.place);
    }
}
