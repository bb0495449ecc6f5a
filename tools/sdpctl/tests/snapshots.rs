// SPDX-License-Identifier: GPL-2.0

//! Compares the output for recorded replies of a kernel (`--record`) with the expected output. To
//! update a snapshot, print it (`--replay tests/data/ss.hex ss -a` and so on) and review it.

use std::net::{
    IpAddr,
    SocketAddr,
    TcpListener, //
};
use std::path::{
    Path,
    PathBuf, //
};
use std::process::{
    Command,
    Output, //
};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(name)
}

fn sdpctl(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_sdpctl");
    let output = Command::new(program).args(arguments).output();
    output.expect("sdpctl runs")
}

fn replay(record: &str, arguments: &[&str]) -> Output {
    let record = folder("data").join(record);
    let record = record.to_str().expect("a path in UTF-8");
    let mut all = vec!["--replay", record];
    all.extend(arguments);
    sdpctl(&all)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text in UTF-8")
}

#[track_caller]
fn compare(name: &str, record: &str, arguments: &[&str]) {
    let output = replay(record, arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    let path = folder("snapshots").join(name);
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(printed, expected, "{}", path.display());
}

#[test]
fn sockets() {
    compare("ss-all.txt", "ss.hex", &["ss", "-a"]);
    compare("ss-everything.txt", "ss.hex", &["ss", "-aei"]);
    compare("ss-bytes.txt", "ss.hex", &["ss", "-aiH", "--bytes"]);
    compare("ss-all.json", "ss.hex", &["ss", "-a", "--json"]);
}

#[test]
fn a_connection() {
    // By its inode, and by a port that several sockets have.
    let sockets = replay("ss.hex", &["ss", "-H"]);
    let shown = text(&sockets.stdout);
    let local = shown
        .lines()
        .filter_map(|line| line.split_whitespace().nth(3));
    let ports = local.filter(|local| local.ends_with(":7000")).count();
    assert!(ports > 1, "{shown}");
    let output = replay("ss.hex", &["conn", "7000", "--json"]);
    let shown = text(&output.stdout);
    assert_eq!(shown.matches("\"socket\": {").count(), ports, "{shown}");
    let inode = shown.split("\"inode\": ").nth(1).expect("an inode");
    let inode = inode.split(',').next().expect("a number");
    let one = replay("ss.hex", &["conn", inode]);
    assert!(one.status.success(), "{}", text(&one.stderr));
    let one = text(&one.stdout);
    for words in [
        "Established",
        &format!("inode {inode}"),
        "1234 bytes not read",
    ] {
        assert!(one.contains(words), "{words}: {one}");
    }
    assert_eq!(
        replay("ss.hex", &["conn", "4294967296"]).status.code(),
        Some(1)
    );
}

/// A socket that goes on with TCP has no state of SDP, and every command lists it.
#[test]
fn a_socket_that_uses_tcp() {
    let state = Folder::new("tcp");
    let done = datagram(3, &[0; 4]);
    let socket = message(
        7,
        &[
            (1, &2u16.to_ne_bytes()),
            // Dead
            (2, &[12]),
            (3, &[10, 27, 0, 1]),
            (4, &40000u16.to_ne_bytes()),
            (5, &[10, 27, 0, 2]),
            (6, &80u16.to_ne_bytes()),
            (11, &4711u32.to_ne_bytes()),
            // The bit TCP_FALLBACK.
            (21, &(1u32 << 8).to_ne_bytes()),
            (33, &111u32.to_ne_bytes()),
            (35, &77u32.to_ne_bytes()),
        ],
    );
    // No sockets of SDP, then one of TCP.
    let record = record_of(&state, &[done.clone(), socket, done]);
    let said = |arguments: &[&str]| {
        let record = record.to_str().expect("a path in UTF-8");
        let output = sdpctl(&[&["--replay", record], arguments].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    assert!(said(&["ss", "-H"]).starts_with("TCP "));
    assert_eq!(said(&["ss", "-s"]), "Total: 1 (TCP 1)\n");
    assert!(said(&["ss", "-s", "--json"]).contains("\"TCP\": 1"));
    for number in ["77", "4711", "40000"] {
        let shown = said(&["conn", number]);
        let title = "10.27.0.1:40000 -> 10.27.0.2:80  TCP\n";
        assert!(shown.starts_with(title), "{shown}");
        assert!(shown.contains("Connection refused"), "{shown}");
        assert!(!shown.contains("credits"), "{shown}");
    }
}

#[test]
fn what_a_newer_module_says_of_a_socket_is_shown() {
    let state = Folder::new("newer");
    let sockets = std::fs::read_to_string(folder("data").join("ss.hex")).expect("the record");
    let mut lines: Vec<String> = sockets.lines().skip(2).map(String::from).collect();
    let first = lines[0].clone();
    // Append an attribute to the first message and increase its length.
    let bytes: Vec<u8> = (0..first.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&first[at..at + 2], 16).expect("digits"))
        .collect();
    let length = u32::from_ne_bytes(bytes[..4].try_into().expect("a length")) as usize;
    let mut newer = (u32::try_from(length).expect("a length") + 8)
        .to_ne_bytes()
        .to_vec();
    newer.extend(&bytes[4..length]);
    newer.extend([8, 0, 99, 0, 0xde, 0xad, 0xbe, 0xef]);
    newer.extend(&bytes[length..]);
    let digits: Vec<String> = newer.iter().map(|byte| format!("{byte:02x}")).collect();
    lines[0] = digits.concat();
    let record = record_of(&state, &lines);
    let record = record.to_str().expect("a path in UTF-8");
    let all = text(&sdpctl(&["--replay", record, "ss", "-a", "--json"]).stdout);
    let inodes = all.split("\"inode\": ").skip(1);
    let mut seen = 0;
    for inode in inodes.filter_map(|rest| rest.split(',').next()) {
        let output = sdpctl(&["--replay", record, "conn", inode]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let shown = text(&output.stdout);
        seen += shown.matches("attribute 99: deadbeef").count();
    }
    assert_eq!(seen, 1);
}

#[test]
fn counters() {
    compare("stat-nonzero.txt", "stat.hex", &["stat", "--absolute"]);
    compare("stat-bytes.txt", "stat.hex", &["stat", "-a", "-z", "bytes"]);
    compare("stat-nonzero.json", "stat.hex", &["stat", "-a", "--json"]);
    compare(
        "stat-explained.txt",
        "stat.hex",
        &["stat", "-ae", "_data", "wake"],
    );
    let all = replay("stat.hex", &["stat", "-aze"]);
    for line in text(&all.stdout).lines() {
        assert!(line.split_whitespace().count() > 2, "no meaning: {line}");
    }
}

/// A record that is cut or garbled leads to an error or to other figures, never to a panic.
#[test]
fn survives_what_is_garbled() {
    let whole = std::fs::read_to_string(folder("data").join("ss.hex")).expect("the record");
    let path = std::env::temp_dir().join(format!("sdpctl-garbled-{}", std::process::id()));
    for i in (0..whole.len()).step_by(whole.len() / 60) {
        let mut garbled = whole.clone().into_bytes();
        garbled[i] = b'f';
        for content in [&whole.as_bytes()[..i], &garbled] {
            std::fs::write(&path, content).expect("a file to write to");
            let name = path.to_str().expect("a path in UTF-8");
            let output = sdpctl(&["--replay", name, "ss", "-aei"]);
            let code = output.status.code();
            assert!(
                matches!(code, Some(0..=5)),
                "{i}: {code:?} {}",
                text(&output.stderr)
            );
            assert!(!text(&output.stderr).contains("panicked"), "{i}");
        }
    }
    std::fs::remove_file(&path).expect("the file goes");
}

#[test]
fn bad_command_lines_are_refused() {
    for arguments in [
        &["ss", "--state", "open"][..],
        &["ss", "-l", "-a"],
        &["ss", "-4", "-6"],
        &["ss", "--sport", "65536"],
        &["ss", "--src", "10.0.0.0/33"],
        &["stat", "watch", "-i", "0"],
        &["check", "--timeout", "-1"],
        &["conn"],
        &["conn", "x"],
        &["run"],
        &["run", "--config"],
        &["top", "-i", "0"],
        &["top", "--sort", "name"],
        &["bench"],
        &["bench", "x", "--sizes", "0"],
        &["bench", "--count", "1", "x"],
        &["bench", "--listen", "--sizes", "64"],
        &["nothing"],
        &[],
    ] {
        assert_eq!(sdpctl(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

/// A temporary folder, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sdpctl-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs `stat` on the record, with the folder as the user's state folder.
fn stat(state: &Folder, arguments: &[&str]) -> Output {
    let record = folder("data").join("stat.hex");
    let program = env!("CARGO_BIN_EXE_sdpctl");
    let mut command = Command::new(program);
    command.arg("--replay").arg(record).arg("stat");
    let command = command.args(arguments).env("XDG_STATE_HOME", &state.0);
    command.output().expect("sdpctl runs")
}

/// The file of the baseline, for the namespace of the record.
fn baseline(state: &Folder) -> PathBuf {
    state.0.join("sdpctl/reset-7.json")
}

#[test]
fn a_reset_is_one_wherever_the_options_are() {
    for arguments in [
        &["reset"][..],
        &["--json", "reset"],
        &["--color", "never", "reset"],
        &["--color=never", "--json", "reset"],
        &["reset", "--json"],
    ] {
        let state = Folder::new("reset");
        let output = stat(&state, arguments);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(baseline(&state).exists(), "{arguments:?}");
    }
    let state = Folder::new("namespace");
    // The option is accepted; the namespace does not exist.
    for arguments in [&["-N", "no-such", "reset"][..], &["-N", "watch", "reset"]] {
        let output = stat(&state, arguments);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains("no network namespace"));
    }
    let shown = stat(&state, &["--json", "show", "-a", "reset_by"]);
    assert!(text(&shown.stdout).starts_with('{'));
}

/// Runs `stat reset` in a shell after the commands `before`; `$new` is the temporary file before it
/// is renamed.
fn reset_after(state: &Folder, before: &str) -> Output {
    let script = format!(
        "cd \"$XDG_STATE_HOME\"; new=sdpctl/reset-7.new-$$; {before}; exec \"$0\" --replay \"$1\" stat reset"
    );
    let output = Command::new("sh")
        .args(["-c", &script, env!("CARGO_BIN_EXE_sdpctl")])
        .arg(folder("data").join("stat.hex"))
        .env("XDG_STATE_HOME", &state.0)
        .output();
    output.expect("a shell runs")
}

/// The names in the folder of the baseline.
fn left(state: &Folder) -> Vec<String> {
    let entries = std::fs::read_dir(state.0.join("sdpctl")).expect("the folder");
    let names = entries.map(|entry| entry.expect("an entry").file_name().into_string());
    names.map(|name| name.expect("a name in UTF-8")).collect()
}

#[test]
fn a_baseline_is_its_users_alone() {
    let state = Folder::new("modes");
    let output = reset_after(&state, "umask 0");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let mode = |path: &Path| {
        let metadata = std::fs::metadata(path).expect("it is there");
        std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o777
    };
    assert_eq!(mode(&state.0.join("sdpctl")), 0o700);
    assert_eq!(mode(&baseline(&state)), 0o600);
}

#[test]
fn a_reset_follows_no_link() {
    let state = Folder::new("link");
    let output = reset_after(
        &state,
        "mkdir sdpctl; echo precious >victim; ln -s ../victim $new",
    );
    assert!(output.status.success(), "{}", text(&output.stderr));
    let victim = std::fs::read_to_string(state.0.join("victim")).expect("the file");
    assert_eq!(victim, "precious\n");
    let metadata = std::fs::symlink_metadata(baseline(&state)).expect("the baseline");
    assert!(metadata.is_file());
    // A file left by a killed process does not cause a failure.
    let output = reset_after(&state, "echo garbage >$new");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown = stat(&state, &["--json"]);
    assert_eq!(text(&shown.stderr), "");
    assert_eq!(left(&state), ["reset-7.json"]);
}

#[test]
fn a_reset_that_fails_leaves_nothing() {
    let state = Folder::new("rename");
    let output = reset_after(&state, "mkdir -p sdpctl/reset-7.json");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("reset-7.json"));
    assert_eq!(left(&state), ["reset-7.json"]);
    let state = Folder::new("unlink");
    let output = reset_after(&state, "mkdir -p $new");
    assert_eq!(output.status.code(), Some(1));
    assert!(!baseline(&state).exists());
}

#[test]
fn a_baseline_that_cannot_be_read_is_told_of() {
    let state = Folder::new("unreadable");
    let counters = |output: &Output| {
        let shown = text(&output.stdout);
        shown
            .split_once("reset_at_unix_s")
            .expect("a report")
            .1
            .to_string()
    };
    let without = stat(&state, &["--json"]);
    assert_eq!(text(&without.stderr), "");
    std::fs::create_dir(state.0.join("sdpctl")).expect("a folder");
    for garbage in [&b""[..], b"{}", b"\xff", b"[1"] {
        std::fs::write(baseline(&state), garbage).expect("a file to write to");
        let output = stat(&state, &["--json"]);
        assert!(output.status.success());
        let said = text(&output.stderr);
        assert!(said.contains("reset-7.json"), "{garbage:?}: {said}");
        assert_eq!(counters(&output), counters(&without));
        // No message if no baseline is used.
        assert_eq!(text(&stat(&state, &["--absolute"]).stderr), "");
    }
    std::fs::remove_file(baseline(&state)).expect("the file goes");
    std::fs::create_dir(baseline(&state)).expect("a folder");
    assert!(text(&stat(&state, &[]).stderr).contains("reset-7.json"));
}

#[test]
fn without_a_home_there_is_no_reset() {
    let record = folder("data").join("stat.hex");
    let stat = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sdpctl"));
        command.arg("--replay").arg(&record).arg("stat");
        let command = command.args(arguments).env_remove("HOME");
        let output = command.env_remove("XDG_STATE_HOME").output();
        output.expect("sdpctl runs")
    };
    let shown = stat(&[]);
    assert!(shown.status.success());
    assert_eq!(text(&shown.stderr), "");
    assert_eq!(shown.stdout, stat(&["--absolute"]).stdout);
    let reset = stat(&["reset"]);
    assert_eq!(reset.status.code(), Some(1));
    assert!(text(&reset.stderr).contains("neither XDG_STATE_HOME nor HOME"));
}

#[test]
fn a_word_that_would_be_ignored_is_refused() {
    let state = Folder::new("mistakes");
    for arguments in [
        &["-z", "reset"][..],
        &["--absolute", "reset"],
        &["bytes", "reset"],
        &["bytes", "watch"],
        &["bytes", "show"],
        &["bytes", "--json", "reset"],
        &["-z", "watch"],
        &["-a", "show"],
        &["reset", "bytes"],
    ] {
        let output = stat(&state, arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(
            text(&output.stderr).contains("sdpctl stat"),
            "{arguments:?}"
        );
    }
    assert!(!baseline(&state).exists());
}

/// A record of these lines after the reply with the family.
fn record_of(folder: &Folder, lines: &[String]) -> PathBuf {
    let family =
        std::fs::read_to_string(self::folder("data").join("stat.hex")).expect("the record");
    let family: Vec<&str> = family.lines().take(2).collect();
    let path = folder.0.join("record.hex");
    let text = format!("{}\n{}\n", family.join("\n"), lines.join("\n"));
    std::fs::write(&path, text).expect("a file to write to");
    path
}

/// A message of the family: its command and its attributes.
fn message(command: u8, attrs: &[(u16, &[u8])]) -> String {
    let mut body = vec![command, 1, 0, 0];
    for (number, bytes) in attrs {
        body.extend(u16::try_from(bytes.len() + 4).unwrap().to_ne_bytes());
        body.extend(number.to_ne_bytes());
        body.extend(*bytes);
        body.resize(body.len().next_multiple_of(4), 0);
    }
    datagram(37, &body)
}

/// A netlink message as hexadecimal digits.
fn datagram(kind: u16, body: &[u8]) -> String {
    let mut bytes = u32::try_from(body.len() + 16)
        .unwrap()
        .to_ne_bytes()
        .to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.resize(16, 0);
    bytes.extend(body);
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.concat()
}

/// An event for an established connection.
fn established() -> String {
    message(
        4,
        &[
            (3, &[10, 27, 0, 1]),
            (4, &7000u16.to_ne_bytes()),
            (5, &[10, 27, 0, 2]),
            (6, &7001u16.to_ne_bytes()),
        ],
    )
}

/// The reply to a request that fails.
fn error(errno: i32) -> String {
    // The number is followed by the header of the request.
    let body = [(-errno).to_ne_bytes().as_slice(), &[0; 16]].concat();
    datagram(2, &body)
}

#[test]
fn a_module_that_goes_meanwhile_is_not_an_old_one() {
    let state = Folder::new("unloaded");
    // ENOENT, once as a reply and once at the end of a dump.
    for gone in [error(2), datagram(3, &(-2i32).to_ne_bytes())] {
        let record = record_of(&state, &[gone]);
        let record = record.to_str().expect("a path in UTF-8");
        for command in ["ss", "stat", "check"] {
            let output = sdpctl(&["--replay", record, command]);
            assert_eq!(output.status.code(), Some(3), "{command}");
            let said = text(&output.stderr) + &text(&output.stdout);
            assert!(said.contains("unloaded meanwhile"), "{command}: {said}");
        }
    }
    // The module does not know the command: EOPNOTSUPP.
    let record = record_of(&state, &[error(95)]);
    let output = sdpctl(&["--replay", record.to_str().expect("a path in UTF-8"), "ss"]);
    assert_eq!(output.status.code(), Some(5));
}

fn events(lines: &[String], arguments: &[&str]) -> Output {
    let state = Folder::new(&format!("events-{}", arguments.concat()));
    let record = record_of(&state, lines);
    let record = record.to_str().expect("a path in UTF-8");
    sdpctl(&[&["--replay", record, "events"], arguments].concat())
}

#[test]
fn lost_events_are_told_of() {
    // ENOBUFS
    let lines = [established(), "!105".into(), established()];
    let output = events(&lines, &["-c2"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "listening\nevents were lost\n");
    let line = "established  10.27.0.1:7000  10.27.0.2:7001\n";
    assert_eq!(text(&output.stdout), line.repeat(2));
    let output = events(&lines, &["-c2", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let expected = folder("snapshots").join("event-lost.json");
    let expected = std::fs::read_to_string(expected).expect("the snapshot");
    assert_eq!(text(&output.stdout).lines().nth(1), Some(expected.trim()));
    // Another error ends the program.
    let output = events(&["!5".into(), established()], &["-c", "1", "--color=never"]);
    assert_eq!(output.status.code(), Some(1));
}

/// An event for a connection to `peer` that was refused; `options`: the attribute, if there is one.
fn refused(peer: SocketAddr, options: Option<u32>) -> String {
    let IpAddr::V4(ip) = peer.ip() else {
        panic!("an IPv4 address");
    };
    let (ip, port) = (ip.octets(), peer.port().to_ne_bytes());
    let options = options.map(u32::to_ne_bytes);
    let mut attributes: Vec<(u16, &[u8])> = vec![
        (3, &[127, 0, 0, 1]),
        (4, &[1, 0]),
        (5, &ip),
        (6, &port),
        (33, &[111, 0, 0, 0]),
        (34, b"ConnectRefused\0"),
        (37, b"NoListener\0"),
    ];
    attributes.extend(options.iter().map(|options| (21, options.as_slice())));
    message(6, &attributes)
}

#[test]
fn a_refusal_tells_of_tcp() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let peer = listener.local_addr().expect("its address");
    let line = format!(
        "failed       127.0.0.1:1  {peer}  Connection refused (os error 111)  (ConnectRefused: NoListener)"
    );
    let said_of = |peer, options, arguments: &[&str]| {
        let arguments = [&["-c1"], arguments].concat();
        let output = events(&[refused(peer, options)], &arguments);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let said = |options, arguments: &[&str]| said_of(peer, options, arguments);
    assert_eq!(said(None, &[]), format!("{line}\n"));
    // The bit TCP_FALLBACK.
    let fell_back = said(Some(1 << 8), &[]);
    assert_eq!(fell_back, format!("{line}  goes on with TCP\n"));
    let other = said(Some(1), &[]);
    assert_eq!(other, format!("{line}\n"));
    let probed = said(None, &["--probe-tcp"]);
    assert_eq!(probed, format!("{line}  its TCP port takes connections\n"));
    let json = said(Some(1 << 8), &["--probe-tcp", "--json"]);
    assert!(
        json.contains(r#""tcp_fallback":true,"tcp_port":"accepts""#),
        "{json}"
    );
    // Nobody listens at port 1.
    let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
    let probed = said_of(nobody, None, &["--probe-tcp"]);
    assert!(
        probed.ends_with("  its TCP port refuses connections\n"),
        "{probed}"
    );
}

#[test]
fn events_that_say_nothing_are_skipped() {
    let lines = [
        message(99, &[]),
        // A known event without addresses, with only one address, or with an address of an unknown
        // family.
        message(4, &[]),
        message(5, &[(3, &[10, 27, 0, 1]), (4, &[1, 0])]),
        message(
            6,
            &[(3, &[10, 27, 0]), (4, &[1, 0]), (5, &[0; 4]), (6, &[1, 0])],
        ),
        established(),
    ];
    let output = events(&lines, &["--count", "1"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout).lines().count(), 1);
    assert!(text(&output.stdout).starts_with("established"));
}

#[test]
fn a_full_disk_is_an_error() {
    let state = Folder::new("full");
    let events = record_of(&state, &[established()]);
    let looks = state.0.join("looks.hex");
    let counters = std::fs::read_to_string(folder("data").join("stat.hex")).expect("the record");
    let lines: Vec<&str> = counters.lines().collect();
    // `watch` requests the counters twice.
    let twice = [&lines[..2], &lines[4..], &lines[4..]].concat();
    std::fs::write(&looks, twice.join("\n")).expect("a file to write to");
    let (ss, stat) = (
        folder("data").join("ss.hex"),
        folder("data").join("stat.hex"),
    );
    for (record, arguments) in [
        (&ss, &["ss", "-a"][..]),
        (&ss, &["ss", "-aei"]),
        (&ss, &["ss", "-aeiH"]),
        (&ss, &["ss", "-a", "--json"]),
        (&ss, &["raw", "2"]),
        (&stat, &["stat", "-a"]),
        (&stat, &["stat", "-a", "--json"]),
        (&looks, &["stat", "watch", "-i", "0.01", "-c", "1"]),
        (
            &looks,
            &["stat", "watch", "-i", "0.01", "-c", "1", "--json"],
        ),
        (&stat, &["dev"]),
        (&stat, &["dev", "--json"]),
        (&stat, &["check"]),
        (&stat, &["check", "--json"]),
        (&events, &["events", "-c", "1"]),
        (&events, &["events", "-c", "1", "--json"]),
    ] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
        let output = Command::new(env!("CARGO_BIN_EXE_sdpctl"))
            .arg("--replay")
            .arg(record)
            .args(arguments)
            .stdout(full.expect("a full device"))
            .output()
            .expect("sdpctl runs");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains("No space left"), "{arguments:?}: {said}");
        assert!(!said.contains("panicked"), "{arguments:?}: {said}");
    }
    // No panic either if the error cannot be printed.
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
    let status = Command::new(env!("CARGO_BIN_EXE_sdpctl"))
        .args(["--replay", "/no/such/record", "ss"])
        .stderr(full.expect("a full device"))
        .status();
    assert_eq!(status.expect("sdpctl runs").code(), Some(1));
}

#[test]
fn man_pages_and_completions_are_made() {
    let path = std::env::temp_dir().join(format!("sdpctl-pages-{}", std::process::id()));
    let output = sdpctl(&["generate", path.to_str().expect("a path in UTF-8")]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for page in [
        "sdpctl",
        "sdpctl-ss",
        "sdpctl-stat",
        "sdpctl-dev",
        "sdpctl-check",
        "sdpctl-events",
        "sdpctl-get",
        "sdpctl-set",
        "sdpctl-run",
        "sdpctl-conn",
        "sdpctl-top",
        "sdpctl-bench",
        "sdpctl-debug",
    ] {
        let page = std::fs::read_to_string(path.join(format!("man/{page}.1")));
        assert!(page.expect("a man page").contains(".SH SYNOPSIS"));
    }
    for file in ["sdpctl.bash", "_sdpctl", "sdpctl.fish"] {
        let file = std::fs::read_to_string(path.join("completions").join(file));
        assert!(file.expect("completions").contains("check"));
    }
    std::fs::remove_dir_all(&path).expect("the folder goes");
}
