// SPDX-License-Identifier: GPL-2.0

//! Configuration that `sdpctl run` passes to the library in the environment.

use std::ffi::{
    c_char,
    CStr, //
};
use std::sync::OnceLock;

use crate::sock::{
    self,
    File, //
};
use rules::environment::{
    REQUIRE,
    RULES,
    VERBOSE, //
};
use rules::Rules;

/// The configuration of this program.
pub(crate) struct Config {
    pub(crate) rules: Rules,
    /// The name by which it was called, without folders.
    pub(crate) program: String,
    /// Fail instead of using TCP where the rules say SDP.
    pub(crate) require: bool,
    pub(crate) verbose: bool,
}

static CONFIG: OnceLock<Config> = OnceLock::new();

extern "C" {
    /// glibc's variable with the name of the program.
    static program_invocation_short_name: *const c_char;
}

/// The configuration. It does not change when the program changes its environment.
pub(crate) fn get() -> &'static Config {
    CONFIG.get_or_init(read)
}

/// Run by the dynamic linker before the program starts threads.
extern "C" fn at_load() {
    // Resolve the functions now: a later call may come from a signal handler.
    sock::real();
    get();
}

// Test programs do not run it.
#[cfg_attr(not(test), link_section = ".init_array")]
#[used]
static AT_LOAD: extern "C" fn() = at_load;

fn read() -> Config {
    // SAFETY: glibc sets it to a string before any code of the program or of a library runs.
    let program = unsafe {
        match program_invocation_short_name.is_null() {
            true => String::new(),
            false => CStr::from_ptr(program_invocation_short_name)
                .to_string_lossy()
                .into_owned(),
        }
    };
    STDERR.get_or_init(|| File::of(libc::STDERR_FILENO).ok());
    let is_set = |name| std::env::var_os(name).is_some_and(|v| v == "1");
    let require = is_set(REQUIRE);
    let text = std::env::var(RULES).unwrap_or_else(|_| Rules::ALL_SDP.into());
    let rules = Rules::parse(&text).unwrap_or_else(|mistake| {
        // `sdpctl run` has checked the rules, so the variable was set by something else.
        let rules = if require { Rules::ALL_SDP } else { "" };
        let all = if require { "is SDP's" } else { "stays TCP's" };
        say(&format!("{RULES}: {mistake}: all {all}"));
        Rules::parse(rules).unwrap_or_default()
    });
    Config {
        rules,
        program,
        require,
        verbose: is_set(VERBOSE),
    }
}

/// The standard error at the start of the program.
static STDERR: OnceLock<Option<File>> = OnceLock::new();

/// Writes a line to the standard error with one write(), unless the program has replaced that
/// descriptor.
fn say(text: &str) {
    let now = File::of(libc::STDERR_FILENO).ok();
    if now.is_none() || STDERR.get_or_init(|| now) != &now {
        return;
    }
    let line = format!("libsdp: {text}\n");
    // SAFETY: The pointer and the length are those of `line`. A failed write is ignored.
    unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
}

impl Config {
    /// Reports a decision about a socket if the user wants to see it.
    pub(crate) fn tell(&self, what: impl FnOnce() -> String) {
        if self.verbose {
            say(&format!("{}: {}", self.program, what()));
        }
    }
}
