// SPDX-License-Identifier: GPL-2.0
//! The lines of the log about one machine: each is a complaint about a value of its guest.
//!
//! A guest must not fill the log, and many complaints of one kind must not hide the first one of
//! another kind. So each kind has a limit, which applies again after each reset of the device. A
//! guest can also reset its device without end, so there is a limit for all lines together, which
//! applies until QEMU ends.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{self, Write};

/// Maximum number of lines of one kind between two resets.
pub const MOST_OF_A_KIND: u64 = 10;
/// Maximum number of lines about one QEMU process.
pub const MOST: u64 = 2000;

/// The log of one machine.
pub struct Log {
    machine: usize,
    out: Box<dyn Write + Send>,
    /// Number of complaints of each kind since the device's last reset.
    recent: BTreeMap<&'static str, u64>,
    /// Number of complaints of each kind since the process began.
    counts: BTreeMap<&'static str, u64>,
    /// Number of complaints that were written about this QEMU process.
    written: u64,
}

impl Log {
    /// The log of machine `machine`, counted from 1. Lines go to the standard error.
    pub fn new(machine: usize) -> Self {
        Self {
            machine,
            out: Box::new(io::stderr()),
            recent: BTreeMap::new(),
            counts: BTreeMap::new(),
            written: 0,
        }
    }

    /// Writes later lines to `out`.
    pub fn redirect(&mut self, out: impl Write + Send + 'static) {
        self.out = Box::new(out);
    }

    /// Counts a complaint, and writes it unless a limit is reached. `kind` is the first part of the
    /// line: a command, a register, or another place where the guest has written the value.
    pub fn complain(&mut self, kind: &'static str, what: impl Display) {
        *self.counts.entry(kind).or_default() += 1;
        let recent = self.recent.entry(kind).or_default();
        *recent += 1;
        let is_last_of_kind = *recent == MOST_OF_A_KIND;
        if *recent > MOST_OF_A_KIND || self.written >= MOST {
            return;
        }
        self.written += 1;
        let is_last = self.written == MOST;
        self.line(kind, what);
        if is_last_of_kind {
            self.line(kind, "no more lines of this kind until the device is reset");
        }
        if is_last {
            self.line("log", "no more lines until this QEMU process has ended");
        }
    }

    fn line(&mut self, kind: &str, what: impl Display) {
        let line = format!("adapter: machine {}: {kind}: {what}\n", self.machine);
        // If the log cannot be written, there is no place to report this.
        let _ = self.out.write_all(line.as_bytes());
    }

    /// The device was reset: the limit of each kind applies again.
    pub fn reset(&mut self) {
        self.recent.clear();
    }

    /// QEMU has ended: all limits apply again.
    pub fn another_machine(&mut self) {
        self.reset();
        self.written = 0;
    }

    /// Number of complaints of each kind since the process began, including those that were not
    /// written.
    pub fn counts(&self) -> &BTreeMap<&'static str, u64> {
        &self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{channel, Receiver, Sender};

    /// Sends each line to a test.
    struct Out(Sender<String>);

    impl Write for Out {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let line = String::from_utf8_lossy(bytes).into_owned();
            self.0.send(line).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn log() -> (Log, Receiver<String>) {
        let (sender, lines) = channel();
        let mut log = Log::new(2);
        log.redirect(Out(sender));
        (log, lines)
    }

    #[test]
    fn each_kind_has_its_own_limit_between_resets() {
        let (mut log, lines) = log();
        for _ in 0..2 {
            for number in 0..MOST_OF_A_KIND {
                log.complain("CTL", number);
                let expected = format!("adapter: machine 2: CTL: {number}\n");
                assert_eq!(lines.try_recv(), Ok(expected));
            }
            let last = lines.try_recv().unwrap();
            assert!(last.contains("CTL: no more lines of this kind"), "{last}");
            log.complain("CTL", "one more");
            assert!(lines.try_recv().is_err());
            log.complain("register", "another kind");
            let other = lines.try_recv().unwrap();
            assert!(other.ends_with("register: another kind\n"), "{other}");
            log.reset();
        }
        assert_eq!(log.counts()["CTL"], 2 * MOST_OF_A_KIND + 2);
        assert_eq!(log.counts()["register"], 2);
    }

    #[test]
    fn resets_do_not_fill_the_log() {
        let (mut log, lines) = log();
        for _ in 0..2 {
            for _ in 0..2 * MOST {
                log.complain("CTL", "nonsense");
                log.reset();
            }
            let written: Vec<_> = lines.try_iter().collect();
            assert_eq!(written.len() as u64, MOST + 1);
            assert!(written[written.len() - 1].contains("until this QEMU process has ended"));
            log.another_machine();
        }
        assert_eq!(log.counts()["CTL"], 4 * MOST);
    }
}
