// SPDX-License-Identifier: GPL-2.0

//! `sdpctl steer`: programs whose TCP sockets the kernel opens as SDP's.
//!
//! A rule is a BPF program at the kernel's function `update_socket_protocol()`, which says the protocol of
//! every `socket()`; the link to it stays in the BPF file system under a name that says the rule.

mod code;
mod kernel;
mod rule;

use std::collections::BTreeMap;
use std::fs;
use std::io;
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
    match command {
        None => show(cli)?,
        Some(SteerCommand::Add(args)) => add(cli, args)?,
        Some(SteerCommand::Del(args)) => del(args)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// A rule that is in force, for JSON.
#[derive(Serialize)]
struct Numbered {
    number: u32,
    #[serde(flatten)]
    rule: Rule,
}

#[derive(Serialize)]
struct Report {
    format: u32,
    rules: Vec<Numbered>,
}

/// The rules in force and their files, by number.
fn rules() -> Result<BTreeMap<u32, (Rule, PathBuf)>, Fail> {
    let entries = match fs::read_dir(FOLDER) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(e) => return Err(Fail::io(FOLDER, &e)),
    };
    let mut found = BTreeMap::new();
    for entry in entries {
        let path = entry.map_err(|e| Fail::io(FOLDER, &e))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if let Some((number, rule)) = Rule::from_file_name(&name) {
            found.insert(number, (rule, path));
        }
    }
    Ok(found)
}

fn show(cli: &Cli) -> Result<(), Fail> {
    let rules = rules()?;
    if cli.json {
        let rules = rules.into_iter();
        let rules = rules.map(|(number, (rule, _))| Numbered { number, rule });
        return out::json(&Report {
            format: out::FORMAT,
            rules: rules.collect(),
        });
    }
    let mut lines = vec![["Rule", "Program", "Cgroup"].map(String::from).into()];
    for (number, (rule, _)) in rules {
        let shown = |condition: Option<String>| condition.unwrap_or_else(|| "*".into());
        lines.push(vec![
            number.to_string(),
            shown(rule.program),
            shown(rule.cgroup),
        ]);
    }
    for line in out::table(&lines, &[0]) {
        out::line(line)?;
    }
    Ok(())
}

fn add(cli: &Cli, args: &SteerAddArgs) -> Result<(), Fail> {
    let rule = Rule::new(args.program.clone(), args.cgroup.as_deref())?;
    let place = rule.cgroup.as_deref().map(kernel::cgroup).transpose()?;
    sdp::usable(libc::AF_INET, IPPROTO_SDP)?;
    let rules = rules()?;
    if let Some((number, _)) = rules.iter().find(|(_, (other, _))| *other == rule) {
        return Err(Fail::Other(format!("rule {number} says the same")));
    }
    let number = rules.last_key_value().map_or(1, |(last, _)| last + 1);
    let path = Path::new(FOLDER).join(rule.file_name(number)?);
    let hook = kernel::Hook::find()?;
    let program = code::program(rule.program.as_deref(), place, &hook.task);
    match fs::create_dir(FOLDER) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let hint = format!("{BPF_FILES} is not there: mount -t bpf bpf {BPF_FILES}");
            return Err(Fail::Other(hint));
        }
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(Fail::io(FOLDER, &e)),
        _ => {}
    }
    hook.attach(&program, &path)?;
    match cli.json {
        true => out::json(&Numbered { number, rule }),
        false => out::line(format_args!("rule {number}")),
    }
}

fn del(args: &SteerDelArgs) -> Result<(), Fail> {
    let rules = rules()?;
    let remove = |path: &Path| fs::remove_file(path).map_err(|e| Fail::io(path.display(), &e));
    if args.all {
        return rules.values().try_for_each(|(_, path)| remove(path));
    }
    for number in &args.numbers {
        let (_, path) = rules
            .get(number)
            .ok_or_else(|| Fail::Other(format!("there is no rule {number}")))?;
        remove(path)?;
    }
    Ok(())
}
