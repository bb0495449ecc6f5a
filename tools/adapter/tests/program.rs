// SPDX-License-Identifier: GPL-2.0
//! The program's start: with options that are wrong and with paths that are in use, it ends with an
//! error and one line that says why.

mod folder;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use folder::Folder;

/// The exit status for wrong options.
const USAGE: i32 = 2;
/// The exit status if the program cannot start.
const FAILURE: i32 = 1;

/// The path of `name` in a folder, as an argument of the program.
fn path_in(folder: &Folder, name: &str) -> String {
    folder.0.join(name).to_str().expect("a name").to_owned()
}

/// A program that serves machines until the end of the test.
struct Serving(Child);

impl Serving {
    fn new(arguments: &[&str]) -> Self {
        let mut child = program(arguments).spawn().expect("the program");
        let mut line = String::new();
        let output = child.stdout.take().expect("a pipe");
        let read = BufReader::new(output).read_line(&mut line);
        let serving = Self(child);
        assert_eq!(read.expect("a line"), line.len());
        assert_eq!(line, "ready\n");
        serving
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_adapter"));
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// The program ends with this status. Of the lines on its standard error, one says why.
#[track_caller]
fn fails(arguments: &[&str], status: i32, line: &str) {
    let Output {
        status: ended,
        stdout,
        stderr,
    } = program(arguments).output().expect("the program");
    let stderr = String::from_utf8(stderr).expect("text");
    assert_eq!(ended.code(), Some(status), "{stderr}");
    assert_eq!(stdout, b"", "{stderr}");
    // Behind the line about an option, clap prints how to get help.
    let errors: Vec<_> = stderr
        .lines()
        .filter(|line| line.starts_with("error: ") || line.starts_with("adapter: "))
        .collect();
    assert_eq!(errors, [line], "{stderr}");
}

/// Asks the program at this control socket for the counters.
fn counters(control: &Path) -> String {
    let stream = UnixStream::connect(control).expect("the control socket");
    (&stream).write_all(b"counters\n").expect("sent");
    let mut answer = String::new();
    BufReader::new(stream)
        .read_line(&mut answer)
        .expect("an answer");
    answer
}

#[test]
fn wrong_options_are_named() {
    let folder = Folder::new("options");
    let socket = path_in(&folder, "machine");
    for (option, value, line) in [
        (
            "--rate",
            "999K",
            "invalid value '999K' for '--rate <RATE>': a rate is from 1M to 10000G",
        ),
        (
            "--rate",
            "10001G",
            "invalid value '10001G' for '--rate <RATE>': a rate is from 1M to 10000G",
        ),
        (
            "--rate",
            "100",
            "invalid value '100' for '--rate <RATE>': a number and one of G, M, K is needed",
        ),
        (
            "--latency",
            "11s",
            "invalid value '11s' for '--latency <LATENCY>': a time is 10s at most",
        ),
        (
            "--latency",
            "2",
            "invalid value '2' for '--latency <LATENCY>': a number and one of ns, us, ms, s is needed",
        ),
        (
            "--network",
            "alone",
            "invalid value 'alone' for '--network <SOCKET=SOCKET>': two paths with = between them are needed",
        ),
        ("--speed", "fast", "unexpected argument '--speed' found"),
    ] {
        fails(&[option, value, &socket], USAGE, &format!("error: {line}"));
    }
    fails(
        &[],
        USAGE,
        "error: the following required arguments were not provided:",
    );
    assert!(!Path::new(&socket).exists());
}

#[test]
fn a_path_in_use_is_named_and_its_user_goes_on() {
    let folder = Folder::new("in-use");
    let [machine, control, network, other] =
        ["machine", "control", "network", "other"].map(|name| path_in(&folder, name));
    let card = format!("{network}={}", path_in(&folder, "card"));
    let _serving = Serving::new(&["--control", &control, "--network", &card, &machine]);

    let exists = |path: &str| format!("adapter: {path}: Socket path already exists");
    fails(&[&machine], FAILURE, &exists(&machine));
    fails(&[&other, &other], FAILURE, &exists(&other));
    fails(
        &["--control", &control, &path_in(&folder, "second")],
        FAILURE,
        &format!("adapter: {control}: Address already in use (os error 98)"),
    );
    fails(
        &["--network", &card, &path_in(&folder, "third")],
        FAILURE,
        &format!("adapter: --network: {network}: Address already in use (os error 98)"),
    );
    let missing = path_in(&folder, "no/folder");
    fails(
        &[&missing],
        FAILURE,
        &format!(
            "adapter: {missing}: Error binding to socket: No such file or directory (os error 2)"
        ),
    );

    for left in [
        &other,
        &path_in(&folder, "second"),
        &path_in(&folder, "third"),
    ] {
        assert!(!Path::new(left).exists(), "{left}");
    }
    let answer = counters(Path::new(&control));
    assert!(answer.contains("\"machines\":[{"), "{answer}");
}
