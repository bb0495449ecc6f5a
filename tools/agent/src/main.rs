// SPDX-License-Identifier: GPL-2.0
//! Runs commands in a test machine for the host, over the second serial port.
//!
//! ```text
//! host:   R ID COMMAND     COMMAND as a JSON string, run by sh with stdin from /dev/null
//!         K ID             kill the command and what it started
//! guest:  H STATE          the machine is up: "ready", or "failed" (no soft-RoCE)
//!         O ID LINE        a line of output (stdout and stderr)
//!         E ID STATUS      the command ended, with its exit status
//! ```
//!
//! It is no shell script: on the debug kernel each process that a script needs for a command takes a
//! twentieth of a second, and a shell reads one byte at a time.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const PORT: &str = "/dev/ttyS1";

/// What a shell says of a command that it cannot start.
const CANNOT_START: i32 = 126;

/// The serial port, and the processes of commands that have not ended.
struct Agent {
    port: Mutex<File>,
    running: Mutex<HashMap<String, libc::pid_t>>,
}

impl Agent {
    /// Writes one line at once: commands that run side by side do not mix theirs.
    fn say(&self, verb: u8, ident: &str, text: &[u8]) -> io::Result<()> {
        let line = [&[verb], b" ", ident.as_bytes(), b" ", text, b"\n"].concat();
        self.port().write_all(&line)
    }

    fn port(&self) -> MutexGuard<'_, File> {
        self.port.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn running(&self) -> MutexGuard<'_, HashMap<String, libc::pid_t>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a command; whoever kills it from then on finds it.
    fn start(self: &Arc<Self>, ident: String, command: &str) -> io::Result<()> {
        let (reader, child) = match spawn(command) {
            Ok(started) => started,
            Err(error) => {
                self.say(b'O', &ident, format!("agent: {error}").as_bytes())?;
                return self.say(b'E', &ident, CANNOT_START.to_string().as_bytes());
            }
        };
        // A number of a process is never as large as to be another one here.
        self.running()
            .insert(ident.clone(), child.id() as libc::pid_t);
        let agent = Arc::clone(self);
        std::thread::spawn(move || agent.follow(&ident, reader, child));
        Ok(())
    }

    /// Hands on a command's lines, and its status. Its output belongs to it alone: what it leaves
    /// behind must redirect its own, or the command counts as running.
    fn follow(&self, ident: &str, reader: File, mut child: Child) -> io::Result<()> {
        let mut reader = BufReader::new(reader);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line)? > 0 {
            if line.last() == Some(&b'\n') {
                line.pop();
            }
            self.say(b'O', ident, &line)?;
            line.clear();
        }
        let status = status_of(child.wait()?);
        self.running().remove(ident);
        self.say(b'E', ident, status.to_string().as_bytes())
    }

    /// Kills a command and what it started, but for what has made a group of its own.
    fn kill(&self, ident: &str) {
        let Some(&pid) = self.running().get(ident) else {
            return;
        };
        // SAFETY: No memory is passed. The process leads its group, and has not been waited for, or
        // just now: its number is not another one's yet.
        unsafe { libc::kill(-pid, libc::SIGKILL) };
    }
}

/// A command's exit status as shells say it.
fn status_of(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}

/// Starts a shell with a command, as leader of a group; both its outputs go where the first result
/// reads.
fn spawn(command: &str) -> io::Result<(File, Child)> {
    let mut ends = [0; 2];
    // SAFETY: There is room for two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: Both are open, and nobody else's.
    let [reader, writer] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    let child = Command::new("/bin/sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stderr(writer.try_clone()?)
        .stdout(writer)
        .process_group(0)
        .spawn()?;
    Ok((reader.into(), child))
}

fn serve(state: &str) -> io::Result<()> {
    let port = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NOCTTY)
        .open(PORT)?;
    let lines = BufReader::new(port.try_clone()?).lines();
    let agent = Arc::new(Agent {
        port: Mutex::new(port),
        running: Mutex::default(),
    });
    writeln!(agent.port(), "H {state}")?;
    for line in lines {
        let line = line?;
        let mut words = line.splitn(3, ' ');
        match (words.next(), words.next(), words.next()) {
            (Some("R"), Some(ident), Some(command)) => {
                let command: String = serde_json::from_str(command)?;
                agent.start(ident.to_owned(), &command)?;
            }
            (Some("K"), Some(ident), None) => agent.kill(ident),
            _ => return Err(io::Error::other(format!("the host says {line:?}"))),
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let state = std::env::args().nth(1).unwrap_or_default();
    match serve(&state) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("agent: {error}");
            ExitCode::FAILURE
        }
    }
}
