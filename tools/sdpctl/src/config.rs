// SPDX-License-Identifier: GPL-2.0

//! `sdpctl get` and `sdpctl set`: the module's parameters, and the sysctls of the namespace.

use std::fs;
use std::io::{
    self,
    ErrorKind, //
};
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;

use crate::cli::{
    Cli,
    GetArgs,
    SetArgs, //
};
use crate::fail::Fail;
use crate::limits;
use crate::out;
use crate::settings::{
    self,
    Place,
    Setting,
    Unit, //
};
use crate::units;

/// The current state of a setting.
#[derive(Debug, Serialize)]
pub(crate) struct Now {
    name: String,
    place: Place,
    /// As shown by the kernel; white space is replaced by one space.
    value: String,
    default: Option<&'static str>,
    unit: Unit,
    allowed: Option<String>,
    /// It can only be set when the module is loaded.
    at_load: bool,
    /// `None` for a setting that this program does not know.
    meaning: Option<&'static str>,
    /// The amount in use, for a limit for which the kernel reports it, in the unit of the setting.
    #[serde(skip_serializing_if = "Option::is_none")]
    in_use: Option<u64>,
    /// The limit that applies, for a number of connections: with the value 0, the kernel chooses.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u64>,
}

#[derive(Serialize)]
struct Report {
    format: u32,
    settings: Vec<Now>,
}

impl Now {
    fn new(place: Place, name: &str, value: String) -> Self {
        let known = settings::find(name).filter(|s| s.place == place);
        Self {
            name: name.into(),
            place,
            value,
            default: known.and_then(|s| s.default),
            unit: known.map_or(Unit::Unknown, |s| s.unit),
            allowed: known.and_then(Setting::allowed),
            at_load: known.is_some_and(|s| s.at_load),
            meaning: known.map(|s| s.meaning),
            in_use: None,
            limit: None,
        }
    }

    /// Adds the amount in use, and the limit that applies.
    fn beside_use(self, root: Option<&Path>) -> Self {
        let limit = match self.place {
            Place::Sysctl => limits::read(root).into_iter().find(|l| l.name == self.name),
            Place::Parameter => None,
        };
        let is_memory = self.place == Place::Sysctl && self.name == "mem";
        let pages = is_memory.then(|| pages_in_use(root)).flatten();
        Self {
            in_use: limit.as_ref().map(|l| l.in_use).or(pages),
            limit: limit.map(|l| l.most),
            ..self
        }
    }

    /// The value as text.
    fn show(&self) -> String {
        shown(&self.value, self.unit)
    }
}

/// The memory of all sockets' buffers according to `/proc/net/protocols`.
fn pages_in_use(root: Option<&Path>) -> Option<u64> {
    let path = root.unwrap_or(Path::new("/")).join("proc/net/protocols");
    let text = fs::read_to_string(path).ok()?;
    let mut lines = text.lines().map(str::split_ascii_whitespace);
    let mut ours = lines.find(|words| words.clone().next() == Some("SDP"))?;
    // The columns before: name, size of a socket, number of sockets. The kernel's per-CPU reserves
    // may make the sum negative for a moment.
    let pages: i64 = ours.nth(3)?.parse().ok()?;
    Some(u64::try_from(pages).unwrap_or(0))
}

fn shown(value: &str, unit: Unit) -> String {
    match (unit, value.parse()) {
        (Unit::Bytes, Ok(n)) => units::bytes(n),
        (Unit::Mebibytes, Ok(n)) if n > 0 => units::bytes(n << 20),
        _ => value.into(),
    }
}

/// Reads a file with one value.
fn read(path: &Path) -> io::Result<String> {
    let text = fs::read_to_string(path)?;
    Ok(text.split_ascii_whitespace().collect::<Vec<_>>().join(" "))
}

/// All settings: those that this program knows in its order, then the others.
pub(crate) fn all(root: Option<&Path>) -> Result<Vec<Now>, Fail> {
    let mut found = Vec::new();
    for place in [Place::Sysctl, Place::Parameter] {
        let folder = settings::path(place, "", root);
        let mut names: Vec<String> = match fs::read_dir(&folder) {
            Ok(entries) => entries
                .flatten()
                .filter_map(|entry| entry.file_name().into_string().ok())
                .collect(),
            Err(e) if e.kind() == ErrorKind::NotFound => continue,
            Err(e) => return Err(Fail::io(folder.display(), &e)),
        };
        let rank = |name: &String| {
            let known = settings::SETTINGS.iter().position(|s| s.name == name);
            (known.unwrap_or(usize::MAX), name.clone())
        };
        names.sort_by_key(rank);
        for name in names {
            let path = settings::path(place, &name, root);
            // The module may be unloaded meanwhile.
            match read(&path) {
                Ok(value) => found.push(Now::new(place, &name, value).beside_use(root)),
                Err(e) => return Err(gone(&path, &e, root)),
            }
        }
    }
    match found.is_empty() {
        true => Err(Fail::NotLoaded),
        false => Ok(found),
    }
}

/// The reason why a file cannot be used: the files do not exist without the module.
fn gone(path: &Path, e: &io::Error, root: Option<&Path>) -> Fail {
    let is_gone = e.kind() == ErrorKind::NotFound || e.raw_os_error() == Some(libc::ENODEV);
    let parameters = settings::path(Place::Parameter, "", root);
    match is_gone && !parameters.exists() {
        true => Fail::NotLoaded,
        false => Fail::io(path.display(), e),
    }
}

/// The place of a setting: a known one, or one for which a file exists.
fn locate(name: &str, root: Option<&Path>) -> Result<(Place, String), Fail> {
    if let Some(setting) = settings::find(name) {
        let path = setting.path(root);
        if path.exists() {
            return Ok((setting.place, setting.name.into()));
        }
        if !settings::path(Place::Parameter, "", root).exists() {
            return Err(Fail::NotLoaded);
        }
        if setting.name == "mem" && settings::path(Place::Sysctl, "", root).exists() {
            return Err(Fail::Other(
                "mem: it is one for the machine, in the first network namespace only".into(),
            ));
        }
        return Err(Fail::TooOld);
    }
    let bare = name.strip_prefix("net.sdp.");
    let places = match bare {
        Some(_) => &[Place::Sysctl][..],
        None => &[Place::Sysctl, Place::Parameter],
    };
    let bare = bare.unwrap_or(name);
    let is_name = !bare.is_empty() && !bare.contains(['/', '\0']) && !bare.starts_with('.');
    let there = |place: &&Place| is_name && settings::path(**place, bare, root).is_file();
    match places.iter().find(there) {
        Some(place) => Ok((*place, bare.into())),
        None if !settings::path(Place::Parameter, "", root).exists() => Err(Fail::NotLoaded),
        None => Err(Fail::Other(format!(
            "there is no setting `{name}`: `sdpctl get` lists them"
        ))),
    }
}

fn one(place: Place, name: &str, root: Option<&Path>) -> Result<Now, Fail> {
    let path = settings::path(place, name, root);
    let value = read(&path).map_err(|e| gone(&path, &e, root))?;
    Ok(Now::new(place, name, value).beside_use(root))
}

pub(crate) fn get(cli: &Cli, args: &GetArgs) -> Result<ExitCode, Fail> {
    let root = cli.files.as_deref();
    let found = if args.names.is_empty() {
        all(root)?
    } else {
        let names = args.names.iter();
        names
            .map(|name| locate(name, root).and_then(|(place, name)| one(place, &name, root)))
            .collect::<Result<_, _>>()?
    };
    if cli.json {
        let format = out::FORMAT;
        let settings = found;
        out::json(&Report { format, settings })?;
    } else if args.values {
        for now in &found {
            out::line(&now.value)?;
        }
    } else {
        print(cli, &found)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print(cli: &Cli, found: &[Now]) -> Result<(), Fail> {
    let mut lines = vec![["Name", "Value", "Default", "Meaning"]
        .map(String::from)
        .into()];
    for now in found {
        let default = now.default.map_or("-".into(), |d| shown(d, now.unit));
        let meaning = now.meaning.unwrap_or("not known to this program");
        let meaning = match (now.at_load, now.limit, now.in_use) {
            (true, ..) => format!("{meaning} (when it is loaded)"),
            (_, Some(limit), Some(n)) => format!("{meaning} (limit: {limit}, in use: {n})"),
            (_, _, Some(pages)) => format!("{meaning} (in use: {pages})"),
            _ => meaning.into(),
        };
        lines.push(vec![now.name.clone(), now.show(), default, meaning]);
    }
    let on = out::is_coloured(cli.color);
    for (i, line) in out::table(&lines, &[]).iter().enumerate() {
        let now = i.checked_sub(1).and_then(|i| found.get(i));
        let is_own = now.is_some_and(|now| now.default.is_some_and(|d| d != now.value));
        out::line(match (i, is_own) {
            (0, _) => out::paint(line, out::Color::Bold, on),
            (_, true) => out::paint(line, out::Color::Warning, on),
            _ => line.clone(),
        })?;
    }
    Ok(())
}

/// A setting and its new value.
struct Change {
    place: Place,
    name: String,
    text: String,
}

fn change(assignment: &str, root: Option<&Path>) -> Result<Change, Fail> {
    let (name, text) = assignment
        .split_once('=')
        .ok_or_else(|| Fail::Usage(format!("`{assignment}`: write NAME=VALUE")))?;
    let (name, text) = (name.trim(), text.trim());
    // A bad value is refused with and without the module.
    let parsed = match settings::find(name) {
        Some(setting) if setting.at_load => {
            return Err(Fail::Other(match setting.parse(text, page_bytes()) {
                Ok(value) => format!(
                    "{name}: it is set when the module is loaded: `modprobe ib_sdp {name}={value}`, or a \
                     line `options ib_sdp {name}={value}` in /etc/modprobe.d"
                ),
                Err(why) => why,
            }))
        }
        Some(setting) => setting.parse(text, page_bytes()),
        None => settings::plain(text, Unit::Unknown, page_bytes())
            .ok_or_else(|| format!("{name}: '{text}' has a unit that there is not")),
    };
    let (place, name) = match (locate(name, root), &parsed) {
        (Err(fail @ Fail::Other(_)), _) => return Err(fail),
        (_, Err(why)) => return Err(Fail::Other(why.clone())),
        (located, Ok(_)) => located?,
    };
    let text = parsed.unwrap_or_default();
    Ok(Change { place, name, text })
}

fn page_bytes() -> u64 {
    // SAFETY: The argument and the result are integers.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

fn write(change: &Change, root: Option<&Path>) -> Result<(), Fail> {
    let path = settings::path(change.place, &change.name, root);
    let (name, text) = (&change.name, &change.text);
    let file = fs::OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(&path);
    let written = file.and_then(|mut file| io::Write::write_all(&mut file, text.as_bytes()));
    written.map_err(|e| match e.raw_os_error() {
        Some(libc::EINVAL) => Fail::Other(format!(
            "{name}: the module refuses '{text}'; of a parameter the kernel's log says what can be"
        )),
        Some(libc::EPERM) if name.contains("fault_policy") => Fail::Permission(format!(
            "{name}: the parameter sdp_recv_early does not allow to make others wait"
        )),
        _ => gone(&path, &e, root),
    })
}

pub(crate) fn set(cli: &Cli, args: &SetArgs) -> Result<ExitCode, Fail> {
    let root = cli.files.as_deref();
    // Write nothing if one of them is invalid.
    let changes: Vec<Change> = args
        .assignments
        .iter()
        .map(|assignment| change(assignment, root))
        .collect::<Result<_, _>>()?;
    let mut settings = Vec::new();
    let mut result = Ok(ExitCode::SUCCESS);
    for change in &changes {
        // Read the value back, as the kernel shows it.
        let written = write(change, root).and_then(|()| one(change.place, &change.name, root));
        match written {
            Ok(now) => settings.push(now),
            Err(fail) => {
                result = Err(fail);
                break;
            }
        }
    }
    // Print also the settings that were written before one that the kernel refused.
    if cli.json {
        let format = out::FORMAT;
        out::json(&Report { format, settings })?;
    } else {
        for now in &settings {
            out::line(format_args!("{} = {}", now.name, now.show()))?;
        }
    }
    result
}
