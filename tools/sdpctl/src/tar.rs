// SPDX-License-Identifier: GPL-2.0

//! POSIX archives (ustar) of regular files with short names.

use std::io::{
    self,
    Write, //
};

const BLOCK_BYTES: usize = 512;

/// Writes files to an archive.
pub(crate) struct Archive<W: Write> {
    to: W,
    /// Modification time of all files, in seconds since 1970.
    time_s: u64,
}

impl<W: Write> Archive<W> {
    pub(crate) fn new(to: W, time_s: u64) -> Self {
        Self { to, time_s }
    }

    /// Adds a file that only its owner can read.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a name of more than 100 bytes; those of writing.
    pub(crate) fn add(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        let header = header(name, content.len() as u64, self.time_s)
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        self.to.write_all(&header)?;
        self.to.write_all(content)?;
        let rest = content.len().next_multiple_of(BLOCK_BYTES) - content.len();
        self.to.write_all(&[0; BLOCK_BYTES][..rest])
    }

    /// Writes the end of the archive.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.to.write_all(&[0; 2 * BLOCK_BYTES])?;
        self.to.flush()
    }
}

fn header(name: &str, size: u64, time_s: u64) -> Option<[u8; BLOCK_BYTES]> {
    let mut header = [0; BLOCK_BYTES];
    let mut put = |at: usize, room: usize, text: &str| {
        let to = header.get_mut(at..at + room)?.get_mut(..text.len())?;
        to.copy_from_slice(text.as_bytes());
        Some(())
    };
    put(0, 100, name)?;
    put(100, 8, "0000600")?;
    put(108, 8, "0000000")?;
    put(116, 8, "0000000")?;
    put(124, 12, &format!("{size:011o}"))?;
    put(136, 12, &format!("{time_s:011o}"))?;
    // The checksum is computed with spaces in its own field.
    put(148, 8, "        ")?;
    put(156, 1, "0")?;
    put(257, 8, "ustar\x0000")?;
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    let sum = format!("{sum:06o}\0 ");
    header[148..156].copy_from_slice(sum.as_bytes());
    Some(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tar_reads_it() {
        let path = std::env::temp_dir().join(format!("sdpctl-{}.tar", std::process::id()));
        let mut archive = Archive::new(std::fs::File::create(&path).unwrap(), 1_700_000_000);
        let long = "x".repeat(1025);
        archive.add("a/empty", b"").unwrap();
        archive.add("a/long.txt", long.as_bytes()).unwrap();
        archive.add("a/block", &[7; BLOCK_BYTES]).unwrap();
        let too_long = archive.add(&"n".repeat(101), b"").unwrap_err();
        assert_eq!(too_long.kind(), io::ErrorKind::InvalidInput);
        archive.finish().unwrap();
        let tar = |arguments: &[&str]| {
            let mut command = std::process::Command::new("tar");
            let output = command
                .arg("-f")
                .arg(&path)
                .args(arguments)
                .output()
                .unwrap();
            assert!(output.status.success(), "{output:?}");
            output.stdout
        };
        assert_eq!(tar(&["-t"]), b"a/empty\na/long.txt\na/block\n");
        assert_eq!(tar(&["-xO", "a/long.txt"]), long.as_bytes());
        assert_eq!(tar(&["-xO", "a/block"]), [7; BLOCK_BYTES]);
        let listed = String::from_utf8(tar(&["-tv"])).unwrap();
        assert!(
            listed.contains("-rw-------") && listed.contains("2023-11-1"),
            "{listed}"
        );
        std::fs::remove_file(&path).unwrap();
    }
}
