// SPDX-License-Identifier: GPL-2.0

//! `sdpctl stat`: the counters.
//!
//! The module's counters are never reset, because a reset would affect all users. A user's reset
//! writes a baseline to a file of the user. It is valid for one namespace, until the module is
//! unloaded.

use std::collections::BTreeMap;
use std::fs::{
    self,
    DirBuilder,
    OpenOptions, //
};
use std::io::{
    self,
    Write, //
};
use std::os::unix::fs::{
    DirBuilderExt,
    OpenOptionsExt, //
};
use std::path::{
    Path,
    PathBuf, //
};
use std::process::ExitCode;
use std::time::{
    Duration,
    Instant,
    SystemTime,
    UNIX_EPOCH, //
};

use serde::{
    Deserialize,
    Serialize, //
};

use crate::cli::{
    Cli,
    StatArgs,
    StatCommand,
    StatShow,
    StatWatch, //
};
use crate::fail::Fail;
use crate::histograms;
use crate::meaning;
use crate::model::{
    self,
    About, //
};
use crate::netlink::Module;
use crate::out;

/// The counters at the user's `reset`.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
struct Baseline {
    boot_id: String,
    netns_cookie: u64,
    counters_since_ns: u64,
    at_unix_s: u64,
    counters: BTreeMap<String, u64>,
}

#[derive(Serialize)]
struct Report {
    format: u32,
    netns_cookie: u64,
    counters_since_ns: u64,
    /// Time of the user's reset; `None` if the counters are the module's.
    reset_at_unix_s: Option<u64>,
    counters: serde_json::Map<String, serde_json::Value>,
    /// Descriptions of the counters, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    meanings: Option<BTreeMap<String, String>>,
}

#[derive(Serialize)]
struct Look {
    format: u32,
    seconds: f64,
    /// Increments in that time.
    counters: serde_json::Map<String, serde_json::Value>,
}

pub(crate) fn run(cli: &Cli, args: &StatArgs) -> Result<ExitCode, Fail> {
    match &args.command {
        None => show(cli, &args.show),
        Some(StatCommand::Show(args)) => show(cli, args),
        Some(StatCommand::Reset) => reset(cli),
        Some(StatCommand::Watch(args)) => watch(cli, args),
        Some(StatCommand::Histograms) => histograms::run(cli),
    }
}

fn is_asked_for(names: &[String], name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    names.is_empty()
        || names
            .iter()
            .any(|n| lower.contains(&n.to_ascii_lowercase()))
}

fn as_map<'a>(
    counters: impl Iterator<Item = (&'a str, u64)>,
) -> serde_json::Map<String, serde_json::Value> {
    counters
        .map(|(name, n)| (name.to_string(), n.into()))
        .collect()
}

fn show(cli: &Cli, args: &StatShow) -> Result<ExitCode, Fail> {
    let mut module = Module::open(&cli.messages)?;
    let about = model::about(&mut module)?;
    let counters = model::counters(&mut module)?;
    let baseline = match args.absolute {
        true => None,
        false => load(&about),
    };
    let zero = BTreeMap::new();
    let before = baseline.as_ref().map_or(&zero, |b| &b.counters);
    let counters: Vec<(&str, u64)> = counters
        .iter()
        .filter(|(name, _)| is_asked_for(&args.names, name))
        .map(|(name, n)| {
            let before = before.get(name).copied().unwrap_or(0);
            (name.as_str(), n.saturating_sub(before))
        })
        .collect();
    let shown = counters.into_iter().filter(|(_, n)| args.zeros || *n != 0);
    if cli.json {
        let meanings = || {
            let names = shown.clone().map(|(name, _)| name);
            names.filter_map(|name| Some((name.to_string(), meaning::of(name)?)))
        };
        out::json(&Report {
            format: out::FORMAT,
            netns_cookie: about.netns_cookie,
            counters_since_ns: about.counters_since_ns,
            reset_at_unix_s: baseline.as_ref().map(|b| b.at_unix_s),
            meanings: args.explain.then(|| meanings().collect()),
            counters: as_map(shown),
        })?;
    } else {
        let line_of = |(name, n): (&str, u64)| {
            let text = if args.explain {
                meaning::of(name)
            } else {
                None
            };
            vec![name.to_string(), n.to_string(), text.unwrap_or_default()]
        };
        let lines: Vec<_> = shown.map(line_of).collect();
        for line in out::table(&lines, &[1]) {
            out::line(line)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn reset(cli: &Cli) -> Result<ExitCode, Fail> {
    let mut module = Module::open(&cli.messages)?;
    let about = model::about(&mut module)?;
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let baseline = Baseline {
        boot_id: boot_id(),
        netns_cookie: about.netns_cookie,
        counters_since_ns: about.counters_since_ns,
        at_unix_s: now.as_secs(),
        counters: model::counters(&mut module)?.into_iter().collect(),
    };
    let path = path(&about).ok_or_else(|| {
        Fail::Other("neither XDG_STATE_HOME nor HOME says where to remember the reset".into())
    })?;
    let text = serde_json::to_string(&baseline).map_err(|e| Fail::Other(e.to_string()))?;
    save(&path, &text).map_err(|e| Fail::io(path.display(), &e))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the file atomically, readable by the user only: another process may be reading it.
fn save(path: &Path, text: &str) -> io::Result<()> {
    let folder = path.parent().unwrap_or(path);
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    let new = path.with_extension(format!("new-{}", std::process::id()));
    let mut file = match create(&new) {
        // The file was left by a killed process with the same number, or created by another user.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(&new)?;
            create(&new)?
        }
        other => other?,
    };
    let written = file.write_all(text.as_bytes());
    let saved = written.and_then(|()| fs::rename(&new, path));
    if saved.is_err() {
        // Try to clean up, but return the first error.
        let _ = fs::remove_file(&new);
    }
    saved
}

/// Creates a new file. Existing files and symbolic links are not touched.
fn create(path: &Path) -> io::Result<fs::File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(path)
}

fn watch(cli: &Cli, args: &StatWatch) -> Result<ExitCode, Fail> {
    let mut module = Module::open(&cli.messages)?;
    let mut before: BTreeMap<String, u64> = model::counters(&mut module)?.into_iter().collect();
    let mut at = Instant::now();
    let mut looks = 0;
    while args.count.is_none_or(|count| looks < count) {
        std::thread::sleep(Duration::from_secs_f64(args.interval));
        let counters = model::counters(&mut module)?;
        let seconds = at.elapsed().as_secs_f64();
        at = Instant::now();
        let changes: Vec<(&str, u64)> = counters
            .iter()
            .filter(|(name, _)| is_asked_for(&args.names, name))
            .map(|(name, n)| {
                let before = before.get(name).copied().unwrap_or(0);
                // A smaller value means that the module was reloaded.
                (name.as_str(), n.checked_sub(before).unwrap_or(*n))
            })
            .filter(|(_, n)| *n != 0)
            .collect();
        if cli.json {
            out::json_line(&Look {
                format: out::FORMAT,
                seconds,
                counters: as_map(changes.into_iter()),
            })?;
        } else {
            print_look(cli, seconds, &changes)?;
        }
        before = counters.into_iter().collect();
        looks += 1;
    }
    Ok(ExitCode::SUCCESS)
}

fn print_look(cli: &Cli, seconds: f64, changes: &[(&str, u64)]) -> Result<(), Fail> {
    let headline = format!("{seconds:.1} s");
    out::line(out::paint(
        &headline,
        out::Color::Bold,
        out::is_coloured(cli.color),
    ))?;
    let line = |&(name, n): &(&str, u64)| {
        let rate = format!("{:.1}/s", n as f64 / seconds);
        vec![name.to_string(), n.to_string(), rate]
    };
    let lines: Vec<_> = changes.iter().map(line).collect();
    for line in out::table(&lines, &[1, 2]) {
        out::line(format_args!("  {line}"))?;
    }
    Ok(())
}

fn boot_id() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id");
    id.unwrap_or_default().trim().to_string()
}

/// The file of the baseline, one per namespace; `None` if the environment names no folder for it.
fn path(about: &About) -> Option<PathBuf> {
    let folder = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    let folder = folder.filter(|f| f.is_absolute()).or_else(home)?;
    let name = format!("reset-{}.json", about.netns_cookie);
    Some(folder.join("sdpctl").join(name))
}

/// The user's baseline, if it was written since the last boot, for this namespace and this load of
/// the module.
fn load(about: &About) -> Option<Baseline> {
    let baseline = match read(about) {
        Ok(baseline) => baseline?,
        Err(fail) => {
            // The figures are correct but may not be the ones that the user expects.
            out::say(format_args!(
                "sdpctl: no reset is taken into account: {fail}"
            ));
            return None;
        }
    };
    let is_ours = baseline.boot_id == boot_id()
        && baseline.netns_cookie == about.netns_cookie
        && baseline.counters_since_ns == about.counters_since_ns;
    is_ours.then_some(baseline)
}

/// The baseline in the file; `None` if there is no file, or if no reset could write one.
fn read(about: &About) -> Result<Option<Baseline>, Fail> {
    let Some(path) = path(about) else {
        return Ok(None);
    };
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Fail::io(path.display(), &e)),
    };
    let baseline = serde_json::from_str(&text);
    baseline
        .map(Some)
        .map_err(|e| Fail::Other(format!("{}: {e}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picks_by_parts_of_names() {
        assert!(is_asked_for(&[], "tx_bytes"));
        assert!(is_asked_for(&["TX".into()], "tx_bytes"));
        assert!(is_asked_for(&["x".into(), "data".into()], "sent_Data"));
        assert!(!is_asked_for(&["rx".into()], "tx_bytes"));
    }
}
