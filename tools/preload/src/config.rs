// SPDX-License-Identifier: GPL-2.0

//! What `sdpctl run` tells the library, by the environment.

use std::ffi::{
    c_char,
    CStr, //
};
use std::sync::OnceLock;

use crate::names::{
    REQUIRE,
    RULES,
    VERBOSE, //
};
use crate::rules::Rules;
use crate::sock::{
    self,
    File, //
};

/// What to do with the sockets of this program.
pub(crate) struct Config {
    pub(crate) rules: Rules,
    /// As it was called, without folders.
    pub(crate) program: String,
    /// Never TCP where the rules say SDP.
    pub(crate) require: bool,
    verbose: bool,
}

static CONFIG: OnceLock<Config> = OnceLock::new();

extern "C" {
    /// glibc's name of the program.
    static program_invocation_short_name: *const c_char;
}

/// The same from the first call to the end, whatever the program does to its environment.
pub(crate) fn get() -> &'static Config {
    CONFIG.get_or_init(read)
}

/// Run by the dynamic linker before the program, and so before its threads.
extern "C" fn at_load() {
    // What is looked up later might be so in a signal handler.
    sock::real();
    get();
}

// What tests is no library.
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
        // `sdpctl run` has read them before: somebody else has set them.
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

/// The standard error that the program began with.
static STDERR: OnceLock<Option<File>> = OnceLock::new();

/// Writes a line to the standard error, at once, unless the program has made another file of that
/// descriptor.
fn say(text: &str) {
    let now = File::of(libc::STDERR_FILENO).ok();
    if now.is_none() || STDERR.get_or_init(|| now) != &now {
        return;
    }
    let line = format!("libsdp: {text}\n");
    // SAFETY: The bytes are as many as said. That nobody reads them changes nothing.
    unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
}

impl Config {
    /// Tells what is done with a socket, if the user wants to know.
    pub(crate) fn tell(&self, what: impl FnOnce() -> String) {
        if self.verbose {
            say(&format!("{}: {}", self.program, what()));
        }
    }
}
