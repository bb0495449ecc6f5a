// SPDX-License-Identifier: GPL-2.0

//! `sdpctl get` and `set` on a copy of a machine's files.

use std::fs;
use std::path::{
    Path,
    PathBuf, //
};
use std::process::{
    Command,
    Output, //
};

const SYSCTLS: &str = "proc/sys/net/sdp";
const PARAMETERS: &str = "sys/module/ib_sdp/parameters";
/// The folder of the limits that apply.
const LIMITS: &str = "proc/net";

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

/// A copy of a machine's files, removed on drop.
struct Machine(PathBuf);

impl Machine {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sdpctl-{name}-{}", std::process::id()));
        for folder in [SYSCTLS, PARAMETERS, LIMITS] {
            fs::create_dir_all(path.join(folder)).expect("a folder");
            let from = tests().join("data/files").join(folder);
            for file in fs::read_dir(from)
                .expect("the files of a machine")
                .flatten()
            {
                let to = path.join(folder).join(file.file_name());
                fs::copy(file.path(), to).expect("a copy");
            }
        }
        Self(path)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sdpctl"));
        command.arg("--files").arg(&self.0).args(arguments);
        command.output().expect("sdpctl runs")
    }

    fn read(&self, folder: &str, name: &str) -> String {
        fs::read_to_string(self.0.join(folder).join(name)).expect("a setting")
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text in UTF-8")
}

#[test]
fn shows_all_settings() {
    let machine = Machine::new("get");
    for (name, arguments) in [
        ("get.txt", &["get"][..]),
        ("settings-all.json", &["get", "--json"]),
        ("get-some.txt", &["get", "net.sdp.mem", "top_mem_usage"]),
    ] {
        let output = machine.run(arguments);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let path = tests().join("snapshots").join(name);
        let expected = fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(text(&output.stdout), expected, "{}", path.display());
    }
    let output = machine.run(&["get", "-n", "wmem_default", "sdp_zcopy_mode"]);
    assert_eq!(text(&output.stdout), "2097152\nauto\n");
}

#[test]
fn what_differs_from_the_default_is_coloured() {
    let machine = Machine::new("colour");
    assert!(machine.run(&["set", "max_adverts=8"]).status.success());
    let output = machine.run(&["get", "--color", "always"]);
    let coloured = text(&output.stdout);
    let coloured: Vec<&str> = coloured
        .lines()
        .filter(|l| l.contains("\x1b[33m"))
        .collect();
    assert_eq!(coloured.len(), 1, "{coloured:?}");
    assert!(coloured[0].contains("max_adverts"));
}

#[test]
fn sets_what_can_be_and_nothing_else() {
    let machine = Machine::new("set");
    let output = machine.run(&[
        "set",
        "wmem_default=64K",
        "mem=4M,8M,16M",
        "sdp_zcopy_mode=async",
    ]);
    assert_eq!(
        text(&output.stdout),
        "wmem_default = 64K\nmem = 1024 2048 4096\nsdp_zcopy_mode = async\n"
    );
    assert_eq!(machine.read(SYSCTLS, "wmem_default"), "65536");
    for (arguments, status, words) in [
        (
            &["set", "max_adverts=1", "wmem_default=1"][..],
            1,
            "from 4096 to",
        ),
        (
            &["set", "max_adverts=1", "other=1"],
            1,
            "no setting `other`",
        ),
        (
            &["set", "max_adverts=1", "top_mem_usage=1"],
            1,
            "modprobe.d",
        ),
        (&["set", "max_adverts=1", "max_adverts"], 2, "NAME=VALUE"),
        (&["set", "max_adverts=1", "../x=1"], 1, "no setting"),
        (&["set"], 2, "NAME=VALUE"),
        (&["get", "other"], 1, "no setting `other`"),
    ] {
        let output = machine.run(arguments);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}");
        let said = text(&output.stderr);
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
    assert_eq!(machine.read(SYSCTLS, "max_adverts"), "32\n");
}

#[test]
fn settings_of_a_newer_module_are_shown_and_set() {
    let machine = Machine::new("newer");
    let path = machine.0.join(SYSCTLS).join("something_s");
    fs::write(&path, "7200\n").expect("a setting");
    let output = machine.run(&["get"]);
    let shown = text(&output.stdout);
    let line = shown.lines().find(|line| line.starts_with("something_s"));
    let line = line.expect("the setting");
    assert!(line.contains("7200") && line.contains("not known to this program"));
    assert!(machine.run(&["set", "something_s=2min"]).status.success());
    assert_eq!(fs::read_to_string(&path).expect("the setting"), "120");
}

#[test]
fn modules_that_are_not_there_or_older() {
    let machine = Machine::new("older");
    fs::remove_file(machine.0.join(SYSCTLS).join("max_adverts")).expect("it goes");
    for arguments in [&["get", "max_adverts"][..], &["set", "max_adverts=3"]] {
        let output = machine.run(arguments);
        assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
    }
    assert!(machine.run(&["get"]).status.success());
    fs::remove_dir_all(machine.0.join(SYSCTLS)).expect("they go");
    assert!(machine.run(&["get"]).status.success());
    fs::remove_dir_all(machine.0.join("sys")).expect("they go");
    for arguments in [&["get"][..], &["get", "x"], &["set", "max_adverts=3"]] {
        let output = machine.run(arguments);
        assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    }
    // A bad value is reported with and without the module.
    let output = machine.run(&["set", "max_adverts=99"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
}
