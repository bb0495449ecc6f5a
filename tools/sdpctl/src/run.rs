// SPDX-License-Identifier: GPL-2.0

//! `sdpctl run`: starts a program whose TCP sockets are replaced by SDP sockets, by the library
//! `libsdp.so` (`tools/preload`).

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{
    Path,
    PathBuf, //
};
use std::process::{
    Command,
    ExitCode, //
};
use std::sync::atomic::{
    AtomicBool,
    Ordering, //
};

use crate::cli::RunArgs;
use crate::fail::Fail;
use crate::out;
use crate::program;
use crate::sdp;
use rules::{
    environment,
    Rules, //
};
use uapi::socket::AF_INET_SDP;

const LIBRARY: &str = "libsdp.so";
/// Half of the maximum length of a string in the environment.
const MOST_RULES_BYTES: usize = 64 << 10;
/// Exit statuses of shells: program not found, and program not executable.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;

/// Whether the caller ignores SIGPIPE.
static IGNORED_SIGPIPE: AtomicBool = AtomicBool::new(false);

/// Called before the standard library ignores SIGPIPE.
#[used]
#[link_section = ".init_array"]
static AT_START: extern "C" fn() = {
    extern "C" fn note_sigpipe() {
        // SAFETY: All zeros are a valid value. Without a new action, the call only writes the
        // present one.
        let is_ignored = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            let ret = libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut action);
            ret == 0 && action.sa_sigaction == libc::SIG_IGN
        };
        IGNORED_SIGPIPE.store(is_ignored, Ordering::Relaxed);
    }
    note_sigpipe
};

pub(crate) fn run(args: &RunArgs) -> Result<ExitCode, Fail> {
    let rules = match &args.config {
        Some(path) => read(path)?,
        None => Rules::ALL_SDP.into(),
    };
    let (name, arguments) = args
        .command
        .split_first()
        .ok_or_else(|| Fail::Usage("which program?".into()))?;
    let failed = |e: &io::Error| {
        let name = name.to_string_lossy();
        match e.kind() {
            // The words of a shell.
            io::ErrorKind::NotFound => {
                out::say(format_args!("sdpctl: {name}: command not found"));
                ExitCode::from(NOT_FOUND)
            }
            _ => {
                out::say(format_args!("sdpctl: {name}: {e}"));
                ExitCode::from(NOT_EXECUTABLE)
            }
        }
    };
    let path = match program::find(name, std::env::var_os("PATH")) {
        Ok(path) => path,
        Err(e) => return Ok(failed(&e)),
    };
    match program::obstacle(&path) {
        Ok(None) => {}
        Ok(Some(why)) if args.require => return Err(Fail::Other(why)),
        Ok(Some(why)) => out::say(format_args!("sdpctl: {why}: it will use TCP")),
        Err(e) => return Ok(failed(&e)),
    }
    match sdp::usable(AF_INET_SDP, 0) {
        Ok(()) => {}
        Err(fail) if args.require => return Err(fail),
        Err(fail) => out::say(format_args!("sdpctl: {fail}; it will use TCP")),
    }
    let library = library(args.library.as_deref())?;
    let mut preload = library.into_os_string();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|v| !v.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let flag = |on: bool| if on { "1" } else { "0" };
    let mut command = Command::new(path);
    command
        .arg0(name)
        .args(arguments)
        .env("LD_PRELOAD", preload)
        .env(environment::RULES, rules)
        .env(environment::REQUIRE, flag(args.require))
        .env(environment::VERBOSE, flag(args.verbose));
    // The standard library sets SIGPIPE to its default for programs. A service that ignores it would
    // die of a send to a peer that has closed.
    let restore = || {
        if IGNORED_SIGPIPE.load(Ordering::Relaxed) {
            // SAFETY: Neither this program nor a program before exec() has a handler of SIGPIPE.
            unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        }
        Ok(())
    };
    // SAFETY: The function makes at most one system call.
    unsafe { command.pre_exec(restore) };
    // exec() returns only on error.
    Ok(failed(&command.exec()))
}

/// Reads the rules of a file, without comments and empty lines.
fn read(path: &Path) -> Result<String, Fail> {
    let text = std::fs::read_to_string(path).map_err(|e| Fail::io(path.display(), &e))?;
    Rules::parse(&text).map_err(|e| Fail::Other(format!("{}: {e}", path.display())))?;
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim())
        .filter(|line| !line.is_empty());
    let rules = lines.collect::<Vec<_>>().join("\n");
    match rules.len() <= MOST_RULES_BYTES && !rules.contains('\0') {
        true => Ok(rules),
        false => Err(Fail::Other(format!(
            "{}: rules are text of at most {MOST_RULES_BYTES} bytes",
            path.display()
        ))),
    }
}

/// The library: next to the program in its build folder, or where `make install` puts it.
fn library(named: Option<&Path>) -> Result<PathBuf, Fail> {
    let missing = |path: &Path| {
        Fail::Other(format!(
            "{} is missing: `make tools` builds it, --library says where it is",
            path.display()
        ))
    };
    if let Some(path) = named {
        // The dynamic linker would search its own folders for a name without a slash.
        let path = std::fs::canonicalize(path).map_err(|_| missing(path))?;
        return fit(path);
    }
    let me = std::env::current_exe().map_err(|e| Fail::io("this program", &e))?;
    let folder = me.parent().unwrap_or(Path::new("/"));
    let places = [
        folder.join(LIBRARY),
        folder.join("../lib/sdpctl").join(LIBRARY),
    ];
    let found = places.iter().find_map(|p| std::fs::canonicalize(p).ok());
    found.map_or_else(|| Err(missing(Path::new(LIBRARY))), fit)
}

/// Refuses paths that `LD_PRELOAD` cannot contain: with spaces or colons.
fn fit(path: PathBuf) -> Result<PathBuf, Fail> {
    let text = OsString::from(&path);
    match text.to_string_lossy().contains([' ', ':']) {
        false => Ok(path),
        true => Err(Fail::Other(format!(
            "{}: a library to be loaded has no space and no colon in its path",
            path.display()
        ))),
    }
}
