// SPDX-License-Identifier: GPL-2.0

//! The terminal of a live view: alternate screen, unbuffered keys, restored afterwards.

use std::io::{
    self,
    IsTerminal,
    Write, //
};
use std::mem::zeroed;
use std::sync::atomic::{
    AtomicBool,
    Ordering, //
};
use std::time::{
    Duration,
    Instant, //
};

/// Enter the alternate screen without a cursor, and leave it.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[2J";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// Ctrl-Z, which the view reads as a key.
const STOP: u8 = 26;

static ENDED: AtomicBool = AtomicBool::new(false);
/// The size of the screen has changed, or another program has used the screen.
static STALE: AtomicBool = AtomicBool::new(false);

extern "C" fn end(_: libc::c_int) {
    ENDED.store(true, Ordering::Relaxed);
}

extern "C" fn stale(_: libc::c_int) {
    STALE.store(true, Ordering::Relaxed);
}

/// Result of [`Terminal::wait`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Key(u8),
    /// Time-out.
    Time,
    /// The screen must be drawn again.
    Stale,
    /// The terminal is gone, or the program must end.
    End,
}

/// The user's terminal in the state of the view; restored on drop.
pub(crate) struct Terminal {
    before: libc::termios,
}

impl Terminal {
    /// Sets up the terminal.
    ///
    /// # Errors
    ///
    /// `Unsupported` if input or output is not a terminal.
    pub(crate) fn enter() -> io::Result<Self> {
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        // SAFETY: The settings are written before they are read; the handler only stores a flag.
        unsafe {
            let mut before: libc::termios = zeroed();
            if libc::tcgetattr(0, &raw mut before) != 0 {
                return Err(io::Error::last_os_error());
            }
            for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT] {
                libc::signal(signal, end as *const () as libc::sighandler_t);
            }
            libc::signal(libc::SIGWINCH, stale as *const () as libc::sighandler_t);
            let terminal = Self { before };
            terminal.take()?;
            Ok(terminal)
        }
    }

    /// Unbuffered keys without echo, on the alternate screen.
    fn take(&self) -> io::Result<()> {
        let mut raw = self.before;
        // SAFETY: Both are given valid settings.
        let set = unsafe {
            libc::cfmakeraw(&raw mut raw);
            libc::tcsetattr(0, libc::TCSANOW, &raw const raw)
        };
        if set != 0 {
            return Err(io::Error::last_os_error());
        }
        self.write(ENTER)
    }

    /// Restores the terminal.
    fn give_back(&self) {
        let _ = self.write(LEAVE);
        // SAFETY: The settings are those that the terminal had.
        unsafe { libc::tcsetattr(0, libc::TCSANOW, &raw const self.before) };
    }

    /// Stops the job, as Ctrl-Z does otherwise, until the shell continues it.
    fn stop(&self) -> io::Result<()> {
        self.give_back();
        // SAFETY: No preconditions. The signal goes to the process group, so that other programs of
        // the job stop as well.
        unsafe { libc::kill(0, libc::SIGTSTP) };
        self.take()
    }

    /// Number of columns and lines.
    pub(crate) fn size() -> (usize, usize) {
        // SAFETY: The result is written to `size`.
        unsafe {
            let mut size: libc::winsize = zeroed();
            let got = libc::ioctl(1, libc::TIOCGWINSZ, &raw mut size);
            match (got, size.ws_col, size.ws_row) {
                (0, 1.., 1..) => (size.ws_col.into(), size.ws_row.into()),
                _ => (80, 24),
            }
        }
    }

    fn write(&self, text: &str) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        stdout.flush()
    }

    /// Draws these lines, which must fit, and clears the rest.
    pub(crate) fn show(&self, lines: &[String]) -> io::Result<()> {
        let mut text = String::from("\x1b[H");
        for (i, line) in lines.iter().enumerate() {
            if i > 0 {
                text += "\r\n";
            }
            text += line;
            text += "\x1b[K";
        }
        text += "\x1b[J";
        self.write(&text)
    }

    /// Waits for a key with a time-out.
    pub(crate) fn wait(&self, until: Instant) -> Event {
        loop {
            if ENDED.load(Ordering::Relaxed) {
                return Event::End;
            }
            if STALE.swap(false, Ordering::Relaxed) {
                return Event::Stale;
            }
            let left = until.saturating_duration_since(Instant::now());
            // A signal that arrives just before poll() is noticed after this time.
            let wait = left.min(Duration::from_millis(200));
            let mut poll = libc::pollfd {
                fd: 0,
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: `poll` is one entry.
            let got = unsafe { libc::poll(&raw mut poll, 1, wait.as_millis() as i32 + 1) };
            if got > 0 {
                let mut key = 0u8;
                // SAFETY: `key` has room for the byte.
                return match unsafe { libc::read(0, (&raw mut key).cast(), 1) } {
                    1 if key == STOP => match self.stop() {
                        Ok(()) => Event::Stale,
                        Err(_) => Event::End,
                    },
                    1 => Event::Key(key),
                    _ => Event::End,
                };
            }
            if left.is_zero() {
                return Event::Time;
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.give_back();
    }
}
