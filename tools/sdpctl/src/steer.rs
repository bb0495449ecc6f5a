// SPDX-License-Identifier: GPL-2.0

//! `sdpctl steer`: the kernel opens TCP sockets of chosen programs as SDP sockets.
//!
//! A rule is a BPF program attached to the kernel's function `update_socket_protocol()`, which
//! decides the protocol of each `socket()`. The link is pinned in the BPF file system; its file
//! name contains the rule.

mod code;
mod kernel;
mod rule;

use std::fs::{
    self,
    DirBuilder,
    File, //
};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{
    DirBuilderExt,
    MetadataExt, //
};
use std::path::{
    Path,
    PathBuf, //
};
use std::process::ExitCode;

use serde::Serialize;
use uapi::socket::IPPROTO_SDP;

use crate::cli::{
    Cli,
    SteerAddArgs,
    SteerCommand,
    SteerDelArgs, //
};
use crate::fail::Fail;
use crate::out;
use crate::sdp;
use rule::Rule;

const BPF_FILES: &str = "/sys/fs/bpf";
const FOLDER: &str = "/sys/fs/bpf/sdpctl";

pub(crate) fn run(cli: &Cli, command: Option<&SteerCommand>) -> Result<ExitCode, Fail> {
    if cli.netns.is_some() {
        let why = "rules are the machine's: there is no --netns with them";
        return Err(Fail::Usage(why.into()));
    }
    match command {
        None => show(cli)?,
        Some(SteerCommand::Add(args)) => add(cli, args)?,
        Some(SteerCommand::Del(args)) => del(args)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// An active rule, for JSON.
#[derive(Serialize)]
struct Numbered {
    number: u32,
    #[serde(flatten)]
    rule: Rule,
    /// The control group no longer exists.
    is_stale: bool,
}

#[derive(Serialize)]
struct Report {
    format: u32,
    rules: Vec<Numbered>,
}

/// An active rule and its file.
struct Kept {
    number: u32,
    rule: Rule,
    path: PathBuf,
}

impl Kept {
    /// Whether the rule's control group no longer exists, so that the rule applies to no process.
    fn is_stale(&self) -> bool {
        let folder = self.rule.cgroup.as_deref();
        folder.is_some_and(|folder| kernel::cgroup_id(folder) != self.rule.cgroup_id)
    }
}

/// The active rules, by number.
fn rules() -> Result<Vec<Kept>, Fail> {
    let entries = match fs::read_dir(FOLDER) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(Fail::io(FOLDER, &e)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(|e| Fail::io(FOLDER, &e))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if let Some((number, rule)) = Rule::from_file_name(&name) {
            found.push(Kept { number, rule, path });
        }
    }
    found.sort_by_key(|kept| kept.number);
    Ok(found)
}

/// The folder of the rules, created if missing, and locked until the file is closed.
fn locked_folder() -> Result<File, Fail> {
    let failed = |e: io::Error| Fail::io(FOLDER, &e);
    match DirBuilder::new().mode(0o700).create(FOLDER) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Err(Fail::Other(format!(
                "{BPF_FILES} is not there: mount -t bpf -o mode=0700 bpf {BPF_FILES}"
            )))
        }
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(failed(e)),
        _ => {}
    }
    // Any user may have created the folder if the file system permits it.
    let found = fs::symlink_metadata(FOLDER).map_err(failed)?;
    if !found.is_dir() || found.uid() != 0 || found.mode() & 0o022 != 0 {
        return Err(Fail::Other(format!(
            "{FOLDER} is not a folder of root's alone: remove it"
        )));
    }
    let folder = File::open(FOLDER).map_err(failed)?;
    // SAFETY: The descriptor is open.
    match unsafe { libc::flock(folder.as_raw_fd(), libc::LOCK_EX) } {
        0 => Ok(folder),
        _ => Err(failed(io::Error::last_os_error())),
    }
}

fn show(cli: &Cli) -> Result<(), Fail> {
    let rules = rules()?;
    if cli.json {
        let rules = rules.into_iter().map(|kept| Numbered {
            is_stale: kept.is_stale(),
            number: kept.number,
            rule: kept.rule,
        });
        return out::json(&Report {
            format: out::FORMAT,
            rules: rules.collect(),
        });
    }
    let mut lines = vec![["Rule", "Program", "Cgroup"].map(String::from).into()];
    for kept in rules {
        let stale = if kept.is_stale() { " (gone)" } else { "" };
        let shown = |condition: Option<String>| {
            condition.map_or_else(|| "*".into(), |text| text.escape_debug().to_string())
        };
        lines.push(vec![
            kept.number.to_string(),
            shown(kept.rule.program),
            shown(kept.rule.cgroup) + stale,
        ]);
    }
    for line in out::table(&lines, &[0]) {
        out::line(line)?;
    }
    Ok(())
}

fn add(cli: &Cli, args: &SteerAddArgs) -> Result<(), Fail> {
    let mut rule = Rule::new(args.program.clone(), args.cgroup.as_deref())?;
    let place = rule.cgroup.as_deref().map(kernel::cgroup).transpose()?;
    rule.cgroup_id = place.map(|place| place.id);
    sdp::usable(libc::AF_INET, IPPROTO_SDP)?;
    let hook = kernel::Hook::find()?;
    let program = hook.load(&code::program(rule.program.as_deref(), place, &hook.task))?;
    let _locked = locked_folder()?;
    let rules = rules()?;
    if let Some(kept) = rules.iter().find(|kept| kept.rule == rule) {
        return Err(Fail::Other(format!("rule {} says the same", kept.number)));
    }
    // Stale rules for a control group that was created again, for example by a restart of its
    // service.
    let is_former = |kept: &&Kept| {
        kept.is_stale() && (&kept.rule.program, &kept.rule.cgroup) == (&rule.program, &rule.cgroup)
    };
    for former in rules.iter().filter(is_former) {
        remove(&former.path)?;
    }
    let number = rules.last().map_or(1, |last| last.number + 1);
    let path = Path::new(FOLDER).join(rule.file_name(number)?);
    kernel::attach(&program, &path)?;
    match cli.json {
        true => out::json(&Numbered {
            number,
            rule,
            is_stale: false,
        }),
        false => out::line(format_args!("rule {number}")),
    }
}

fn remove(path: &Path) -> Result<(), Fail> {
    fs::remove_file(path).map_err(|e| Fail::io(path.display(), &e))
}

fn del(args: &SteerDelArgs) -> Result<(), Fail> {
    let rules = rules()?;
    let missing = |number: &&u32| rules.iter().all(|kept| kept.number != **number);
    if let Some(number) = args.numbers.iter().find(missing) {
        return Err(Fail::Other(format!("there is no rule {number}")));
    }
    let meant = |kept: &&Kept| args.all || args.numbers.contains(&kept.number);
    rules
        .iter()
        .filter(meant)
        .try_for_each(|kept| remove(&kept.path))
}
