// SPDX-License-Identifier: GPL-2.0

//! `sdpctl debug`: one archive with the data that a bug report needs.
//!
//! It contains nothing that programs were given: no command lines, no environments, no bytes of
//! connections. Of the kernel's log it contains only lines about RDMA and errors. It does contain
//! addresses, ports and names of processes: a report without them is useless.

use std::fs;
use std::io::{
    self,
    Read,
    Write, //
};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{
    SystemTime,
    UNIX_EPOCH, //
};

use serde::Serialize;

use crate::check;
use crate::cli::{
    Cli,
    DebugArgs, //
};
use crate::config;
use crate::dev;
use crate::fail::Fail;
use crate::model;
use crate::netlink::Module;
use crate::out;
use crate::owners;
use crate::ss;
use crate::tar::Archive;

/// Files that are copied; network files are those of the program's namespace.
const FILES: &[&str] = &[
    "/etc/os-release",
    "/proc/meminfo",
    "/proc/net/dev",
    "/proc/net/if_inet6",
    "/proc/net/ipv6_route",
    "/proc/net/route",
    "/proc/net/sdp",
    "/proc/net/sdplimits",
    "/proc/net/sdpstats",
    "/proc/self/limits",
    "/proc/sys/kernel/tainted",
    "/proc/sys/net/core/rmem_max",
    "/proc/sys/net/core/wmem_max",
    "/proc/version",
    "/sys/module/ib_sdp/coresize",
    "/sys/module/ib_sdp/initstate",
    "/sys/module/ib_sdp/refcnt",
    "/sys/module/ib_sdp/srcversion",
    "/sys/module/ib_sdp/taint",
    "/sys/module/ib_sdp/version",
];

/// Maximum number of bytes of a file.
const MOST_BYTES: u64 = 4 << 20;

/// The start of a kernel warning, and the number of lines that belong to it.
const COMPLAINTS: &[&str] = &[
    "cut here",
    "BUG:",
    "WARNING:",
    "Oops",
    "panic",
    "INFO: task",
    "KASAN",
];
const COMPLAINT_LINES: usize = 80;
/// Words that mark lines about RDMA.
const WORDS: &[&str] = &[
    "ib_",
    "rdma",
    "infiniband",
    "rxe",
    "siw",
    "mlx",
    "bnxt_re",
    "hfi1",
    "efa_",
    "iw_cxgb",
];

/// Contents of the archive.
#[derive(Serialize)]
struct Report {
    format: u32,
    /// `-` for the standard output.
    archive: String,
    files: Vec<String>,
    /// Missing parts, with the reason.
    missing: Vec<String>,
}

/// The files, before they are written.
struct Content {
    folder: String,
    files: Vec<(String, Vec<u8>)>,
    missing: Vec<String>,
}

impl Content {
    fn add(&mut self, name: &str, bytes: Vec<u8>) {
        self.files.push((format!("{}/{name}", self.folder), bytes));
    }

    fn add_json<T: Serialize, E: std::fmt::Display>(&mut self, name: &str, value: Result<T, E>) {
        let text = value
            .map_err(|e| e.to_string())
            .and_then(|v| serde_json::to_string_pretty(&v).map_err(|e| e.to_string()));
        match text {
            Ok(text) => self.add(name, (text + "\n").into_bytes()),
            Err(why) => self.missing.push(format!("{name}: {why}")),
        }
    }

    fn add_file(&mut self, path: &str) {
        let mut bytes = Vec::new();
        let read = fs::File::open(path).and_then(|f| f.take(MOST_BYTES).read_to_end(&mut bytes));
        match read {
            Ok(n) => {
                if n as u64 == MOST_BYTES {
                    self.missing
                        .push(format!("{path}: what is behind the first {n} bytes"));
                }
                self.add(path.trim_start_matches('/'), bytes);
            }
            Err(e) => self.missing.push(format!("{path}: {e}")),
        }
    }
}

#[derive(Serialize)]
struct Versions {
    sdpctl: &'static str,
    made_at_unix_s: u64,
    kernel: String,
    machine: String,
    uid: u32,
    netns: Option<String>,
}

pub(crate) fn run(cli: &Cli, args: &DebugArgs) -> Result<ExitCode, Fail> {
    let now_s = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    let name = format!("sdpctl-debug-{now_s}");
    let content = collect(cli, &name, now_s);
    let path = args
        .output
        .clone()
        .unwrap_or_else(|| PathBuf::from(format!("{name}.tar")));
    let archive = path.display().to_string();
    let written = if archive == "-" {
        write(io::stdout().lock(), &content, now_s)
    } else {
        // The contents are for the owner, who decides who else may read them.
        let mut file = fs::OpenOptions::new();
        let file = file.write(true).create_new(true).mode(0o600).open(&path);
        file.and_then(|file| write(file, &content, now_s))
    };
    written.map_err(|e| {
        if archive != "-" && e.kind() != io::ErrorKind::AlreadyExists {
            // Remove an incomplete archive: it is useless and blocks the next attempt.
            let _ = fs::remove_file(&path);
        }
        Fail::io(&archive, &e)
    })?;
    let files = content.files.into_iter().map(|(name, _)| name).collect();
    let missing = content.missing;
    if archive == "-" {
        for missing in &missing {
            out::say(format_args!("not there: {missing}"));
        }
    } else if cli.json {
        let format = out::FORMAT;
        out::json(&Report {
            format,
            archive,
            files,
            missing,
        })?;
    } else {
        out::line(format_args!("{archive}: {} files", files.len()))?;
        for missing in &missing {
            out::line(format_args!("not there: {missing}"))?;
        }
        out::line(
            "It has addresses, ports and names of processes; look into it before you pass it on.",
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

fn write(to: impl Write, content: &Content, now_s: u64) -> io::Result<()> {
    let mut archive = Archive::new(to, now_s);
    for (name, bytes) in &content.files {
        archive.add(name, bytes)?;
    }
    archive.finish()
}

fn collect(cli: &Cli, folder: &str, now_s: u64) -> Content {
    let mut content = Content {
        folder: folder.into(),
        files: Vec::new(),
        missing: Vec::new(),
    };
    content.add_json("versions.json", versions(cli, now_s));
    content.add_json("check.json", Ok::<_, Fail>(check::here(cli)));
    content.add_json("dev.json", Ok::<_, Fail>(dev::here()));
    content.add_json("settings.json", config::all(cli.files.as_deref()));
    let mut module = Module::open(&cli.messages);
    match &mut module {
        Ok(module) => {
            content.add_json("module.json", model::about(module));
            let counters = model::counters(module).map(|all| {
                let all = all.into_iter();
                all.collect::<std::collections::BTreeMap<_, _>>()
            });
            content.add_json("counters.json", counters);
            let sockets = ss::all(module).map(|mut sockets| {
                let owners = owners::all();
                for socket in &mut sockets {
                    socket.processes = Some(owners.get(&socket.inode).cloned().unwrap_or_default());
                }
                sockets
            });
            content.add_json("sockets.json", sockets);
        }
        Err(why) => content.missing.push(format!("module.json: {why}")),
    }
    for path in FILES {
        content.add_file(path);
    }
    content.add_lines(
        "modules.txt",
        fs::read_to_string("/proc/modules").map(|text| {
            let lines = text.lines().filter(|line| is_of_rdma(line));
            lines.map(String::from).collect()
        }),
    );
    content.add_lines("kernel.log", kernel_log().map(|lines| relevant(&lines)));
    if !content.missing.is_empty() {
        let text = content.missing.join("\n") + "\n";
        content.add("missing.txt", text.into_bytes());
    }
    content
}

impl Content {
    fn add_lines(&mut self, name: &str, lines: io::Result<Vec<String>>) {
        match lines {
            Ok(lines) => {
                let text: String = lines.into_iter().map(|line| line + "\n").collect();
                self.add(name, text.into_bytes());
            }
            Err(e) => self.missing.push(format!("{name}: {e}")),
        }
    }
}

fn versions(cli: &Cli, made_at_unix_s: u64) -> io::Result<Versions> {
    let read = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/kernel/{name}"))?;
        Ok::<_, io::Error>(text.trim().to_string())
    };
    Ok(Versions {
        sdpctl: env!("CARGO_PKG_VERSION"),
        made_at_unix_s,
        kernel: format!("{} {}", read("osrelease")?, read("version")?),
        machine: std::env::consts::ARCH.into(),
        // SAFETY: It has no arguments and cannot fail.
        uid: unsafe { libc::geteuid() },
        netns: cli.netns.clone(),
    })
}

/// The lines of the kernel's log, oldest first.
fn kernel_log() -> io::Result<Vec<String>> {
    let mut file = fs::OpenOptions::new();
    let mut file = file
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/kmsg")?;
    let mut lines = Vec::new();
    // Each read returns one record; EPIPE means that records were overwritten.
    let mut record = [0; 8192];
    loop {
        match file.read(&mut record) {
            Ok(0) => return Ok(lines),
            Ok(len) => lines.extend(line_of(&String::from_utf8_lossy(&record[..len]))),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(lines),
            Err(e) if e.raw_os_error() == Some(libc::EPIPE) => {}
            Err(e) => return Err(e),
        }
    }
}

/// A record of /dev/kmsg, `PRIORITY,NUMBER,MICROSECONDS,FLAGS;TEXT`, formatted like dmesg. `None`
/// for records that were not written by the kernel, and for audit records, which contain arguments
/// of programs.
fn line_of(record: &str) -> Option<String> {
    let (head, text) = record.split_once(';')?;
    let mut fields = head.split(',');
    let facility = fields.next()?.parse::<u32>().ok()? >> 3;
    let us: u64 = fields.nth(1)?.parse().ok()?;
    let text = text.lines().next()?;
    if facility != 0 || text.trim_start().starts_with("audit:") {
        return None;
    }
    Some(format!(
        "[{:5}.{:06}] {text}",
        us / 1_000_000,
        us % 1_000_000
    ))
}

fn is_of_rdma(line: &str) -> bool {
    let lower = line.to_ascii_lowercase();
    WORDS.iter().any(|word| lower.contains(word))
}

/// Lines about RDMA, and complete kernel warnings.
fn relevant(lines: &[String]) -> Vec<String> {
    let mut left = 0;
    let mut kept = Vec::new();
    for line in lines {
        if COMPLAINTS.iter().any(|word| line.contains(word)) {
            left = COMPLAINT_LINES;
        }
        // The kernel logs its command line at boot.
        let is_secret = line.to_ascii_lowercase().contains("command line");
        if (left > 0 || is_of_rdma(line)) && !is_secret {
            kept.push(line.clone());
        }
        left = left.saturating_sub(1);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_as_dmesg_shows_them() {
        assert_eq!(
            line_of("6,339,5140900,-;ib_sdp: loaded\n SUBSYSTEM=x\n").as_deref(),
            Some("[    5.140900] ib_sdp: loaded")
        );
        // Written by a program (facility not 0), and by audit.
        let others = [
            "12,340,1,-;ib_sdp: is mine",
            "5,341,2,-;audit: type=1309 a0=\"rxe\"",
        ];
        for bad in ["", "6,339;x", "6,339,x,-;y"].into_iter().chain(others) {
            assert_eq!(line_of(bad), None, "{bad}");
        }
    }

    #[test]
    fn of_the_log_only_what_matters() {
        let lines = |text: &[&str]| text.iter().map(|l| (*l).to_string()).collect::<Vec<_>>();
        let mut log = lines(&[
            "[0] Command line: root=/dev/vda password=rxe",
            "[1] systemd[1]: user logged in",
            "[2] rdma_rxe: loaded",
            "[3] ib_sdp: sdp_max_adverts: '99' is not a number from 1 to 32",
            "[4] usb 1-1: new device",
            "[5] WARNING: CPU: 0 PID: 1 at x",
            "[6] Call Trace:",
        ]);
        log.extend(std::iter::repeat_n("[7] other".to_string(), 200));
        log.extend(lines(&["[8] infiniband mlx5_0: up"]));
        let kept = relevant(&log);
        let numbers: Vec<&str> = kept.iter().map(|line| &line[..3]).collect();
        assert_eq!(numbers[..4], ["[2]", "[3]", "[5]", "[6]"]);
        assert_eq!(numbers.last(), Some(&"[8]"));
        assert_eq!(numbers.len(), 4 + (COMPLAINT_LINES - 2) + 1);
    }
}
