// SPDX-License-Identifier: GPL-2.0

//! `sdpctl top` on a pseudo-terminal, with recorded replies of a kernel.

use std::fs::{
    self,
    File, //
};
use std::io::{
    Read,
    Write, //
};
use std::mem::zeroed;
use std::os::fd::{
    AsRawFd,
    FromRawFd,
    OwnedFd, //
};
use std::path::{
    Path,
    PathBuf, //
};
use std::process::{
    Command,
    ExitStatus, //
};

/// A pseudo-terminal of 200 columns and 30 lines: our side, and the program's side.
fn terminal() -> (File, OwnedFd) {
    let (mut ours, mut theirs) = (-1, -1);
    let size = libc::winsize {
        ws_row: 30,
        ws_col: 200,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let null = std::ptr::null_mut();
    // SAFETY: The descriptors are written, and no other code owns them; the size is only read.
    unsafe {
        let made = libc::openpty(
            &raw mut ours,
            &raw mut theirs,
            null,
            null.cast(),
            &raw const size,
        );
        assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
        (File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs))
    }
}

/// The flags of a terminal.
fn flags(terminal: &impl AsRawFd) -> [libc::tcflag_t; 4] {
    // SAFETY: The settings are written to.
    unsafe {
        let mut now: libc::termios = zeroed();
        assert_eq!(libc::tcgetattr(terminal.as_raw_fd(), &raw mut now), 0);
        [now.c_iflag, now.c_oflag, now.c_cflag, now.c_lflag]
    }
}

/// A record for this number of refreshes.
fn record(looks: usize) -> PathBuf {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let read = |name| fs::read_to_string(data.join(name)).expect("the record");
    let (ss, stat) = (read("ss.hex"), read("stat.hex"));
    let (ss, stat): (Vec<&str>, Vec<&str>) = (ss.lines().collect(), stat.lines().collect());
    // An acknowledgement ends the dump of the TCP sockets, of which there are none.
    let look = [&ss[2..], &stat[3..4], &stat[4..]].concat();
    let mut lines = ss[..2].to_vec();
    for _ in 0..looks {
        lines.extend(&look);
    }
    let name = format!("sdpctl-top-{}-{looks}", std::process::id());
    let path = std::env::temp_dir().join(name);
    fs::write(&path, lines.join("\n") + "\n").expect("a file to write to");
    path
}

/// Runs `sdpctl top`: its output, its exit status, and the flags of the terminal before and
/// afterwards.
fn top(
    looks: usize,
    arguments: &[&str],
    keys: &[u8],
) -> (String, ExitStatus, [[libc::tcflag_t; 4]; 2]) {
    let record = record(looks);
    let (mut ours, theirs) = terminal();
    let before = flags(&theirs);
    let copy = || theirs.try_clone().expect("a descriptor");
    let mut child = Command::new(env!("CARGO_BIN_EXE_sdpctl"))
        .arg("--replay")
        .arg(&record)
        .arg("top")
        .args(arguments)
        .stdin(copy())
        .stdout(copy())
        .spawn()
        .expect("sdpctl runs");
    ours.write_all(keys).expect("keys are taken");
    let mut reader = ours.try_clone().expect("a descriptor");
    let screen = std::thread::spawn(move || {
        let mut all = Vec::new();
        // The read ends with an error when the other side is closed.
        let _ = reader.read_to_end(&mut all);
        String::from_utf8_lossy(&all).into_owned()
    });
    let status = child.wait().expect("an end");
    let after = flags(&theirs);
    drop(theirs);
    fs::remove_file(&record).expect("the file goes");
    (screen.join().expect("a screen"), status, [before, after])
}

#[test]
fn shows_connections_and_leaves_the_terminal_as_it_was() {
    let (screen, status, [before, after]) =
        top(3, &["-i", "0.05", "-c", "2", "--color", "never"], b"");
    assert!(status.success(), "{screen}");
    assert_eq!(before, after);
    assert!(screen.starts_with("\x1b[?1049h"), "{screen:?}");
    assert!(screen.trim_end().ends_with("\x1b[?1049l"), "{screen:?}");
    let last = screen.rsplit("\x1b[H").next().expect("a screen");
    let lines: Vec<&str> = last.split("\r\n").collect();
    assert!(lines[0].starts_with("6 connections, 1 listener   sent 0/s  received 0/s"));
    let rows = lines.iter().filter(|line| line.contains("Established"));
    assert_eq!(rows.count(), 6, "{last}");
}

#[test]
fn keys_sort_and_end() {
    let (screen, status, _) = top(60, &["-i", "0.5"], b"mxq");
    assert!(status.success(), "{screen}");
    let (screen, status, _) = top(60, &["-i", "0.05", "-c", "3"], b"a");
    assert!(status.success(), "{screen}");
    assert!(screen.contains("sorted by address"), "{screen}");
    // The record ends too early: the error is printed after the screen is restored.
    let (screen, status, [before, after]) = top(2, &["-i", "0.05"], b"");
    assert_eq!(status.code(), Some(1), "{screen}");
    assert_eq!(before, after);
}

#[test]
fn needs_a_terminal() {
    let record = record(7);
    let output = Command::new(env!("CARGO_BIN_EXE_sdpctl"))
        .arg("--replay")
        .arg(&record)
        .arg("top")
        .stdin(std::process::Stdio::null())
        .output()
        .expect("sdpctl runs");
    fs::remove_file(&record).expect("the file goes");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("needs a terminal"));
}
