// SPDX-License-Identifier: GPL-2.0

//! Checks whether a library can be preloaded into a program.

use std::ffi::{
    CString,
    OsStr,
    OsString, //
};
use std::fs::{
    self,
    File, //
};
use std::io::{
    self,
    Read,
    Seek,
    SeekFrom, //
};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{
    MetadataExt,
    PermissionsExt, //
};
use std::path::{
    Path,
    PathBuf, //
};

/// Maximum nesting of interpreters, as in the kernel.
const DEPTH: u32 = 4;
/// At least as long as the part of a script's first line that the kernel reads.
const HEAD_BYTES: usize = 256;

const ELFCLASS64: u8 = 2;
const ELFDATA2LSB: u8 = 1;
const EM_X86_64: u16 = 62;
const PT_INTERP: u32 = 3;
const PHDR_BYTES: usize = 56;

/// The path of a program, found as by a shell.
///
/// # Errors
///
/// `NotFound`; `PermissionDenied` for a file that is not executable.
pub(crate) fn find(name: &OsStr, path: Option<OsString>) -> io::Result<PathBuf> {
    let mut error = io::Error::from(io::ErrorKind::NotFound);
    let candidates: Vec<PathBuf> = if name.as_bytes().contains(&b'/') {
        vec![name.into()]
    } else {
        let path = path.unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
        std::env::split_paths(&path)
            .map(|folder| folder.join(name))
            .collect()
    };
    for candidate in candidates {
        match fs::metadata(&candidate) {
            Ok(found) if found.is_file() && found.permissions().mode() & 0o111 != 0 => {
                return Ok(candidate)
            }
            Ok(_) => error = io::Error::from(io::ErrorKind::PermissionDenied),
            Err(_) => {}
        }
    }
    Err(error)
}

/// Why the dynamic linker would not preload our library into the program; `None` if no obstacle is
/// known.
///
/// # Errors
///
/// Those of reading the file.
pub(crate) fn obstacle(path: &Path) -> io::Result<Option<String>> {
    through(path, DEPTH)
}

fn through(path: &Path, depth: u32) -> io::Result<Option<String>> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        // The file may still be executable; it cannot be checked.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
        Err(e) => return Err(e),
    };
    if let Some(why) = privilege(path, &file.metadata()?) {
        return Ok(Some(why));
    }
    let mut head = Vec::new();
    file.by_ref()
        .take(HEAD_BYTES as u64)
        .read_to_end(&mut head)?;
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let mut words = line
            .split(u8::is_ascii_whitespace)
            .filter(|word| !word.is_empty());
        let interpreter = words.next().unwrap_or_default();
        if depth == 0 || interpreter.is_empty() {
            return Ok(None);
        }
        let interpreter = Path::new(OsStr::from_bytes(interpreter));
        if interpreter.file_name() == Some(OsStr::new("env")) {
            let name = words.find(|word| !word.starts_with(b"-") && !word.contains(&b'='));
            let name = OsStr::from_bytes(name.unwrap_or_default());
            return match find(name, std::env::var_os("PATH")) {
                Ok(found) => through(&found, depth - 1),
                Err(_) => Ok(None),
            };
        }
        return through(interpreter, depth - 1);
    }
    linked(path, &mut file, &head)
}

/// The dynamic linker does not preload libraries into programs with more privileges than their
/// caller.
fn privilege(path: &Path, metadata: &fs::Metadata) -> Option<String> {
    // SAFETY: They have no arguments and cannot fail.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    let mode = metadata.permissions().mode();
    let shown = path.display();
    if mode & 0o4000 != 0 && metadata.uid() != uid {
        return Some(format!(
            "{shown} is set-user-ID: no library is loaded into it"
        ));
    }
    if mode & 0o2010 == 0o2010 && metadata.gid() != gid {
        return Some(format!(
            "{shown} is set-group-ID: no library is loaded into it"
        ));
    }
    let name = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: Both are C strings, and the value's size is 0.
    let capabilities = unsafe {
        libc::getxattr(
            name.as_ptr(),
            c"security.capability".as_ptr(),
            std::ptr::null_mut(),
            0,
        )
    };
    (capabilities > 0 && uid != 0)
        .then(|| format!("{shown} has capabilities of its own: no library is loaded into it"))
}

/// Whether the program uses a dynamic linker of this architecture.
fn linked(path: &Path, file: &mut File, head: &[u8]) -> io::Result<Option<String>> {
    let shown = path.display();
    let Some(elf) = head.strip_prefix(b"\x7fELF") else {
        // The kernel will report the error.
        return Ok(None);
    };
    let half = |at: usize| Some(u16::from_le_bytes(head.get(at..at + 2)?.try_into().ok()?));
    let is_ours = elf.first() == Some(&ELFCLASS64)
        && elf.get(1) == Some(&ELFDATA2LSB)
        && half(18) == Some(EM_X86_64);
    if !is_ours {
        return Ok(Some(format!(
            "{shown} is for another kind of processor than our library"
        )));
    }
    let offset = head.get(32..40).and_then(|b| b.try_into().ok());
    let (Some(offset), Some(count)) = (offset.map(u64::from_le_bytes), half(56)) else {
        return Ok(Some(format!("{shown} is cut")));
    };
    file.seek(SeekFrom::Start(offset))?;
    for _ in 0..count {
        let mut header = [0; PHDR_BYTES];
        file.read_exact(&mut header)?;
        let long = |at: usize| header[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
        let kind = header[..4].try_into().map_or(0, u32::from_le_bytes);
        if kind == PT_INTERP {
            let mut linker = Vec::new();
            file.seek(SeekFrom::Start(long(8)))?;
            file.take(long(32).min(HEAD_BYTES as u64))
                .read_to_end(&mut linker)?;
            let is_musl = String::from_utf8_lossy(&linker).contains("ld-musl");
            return Ok(is_musl.then(|| format!("{shown} uses another C library than our library")));
        }
    }
    Ok(Some(format!(
        "{shown} is statically linked: no library can be loaded into it"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A temporary file.
    struct Temporary(PathBuf);

    impl Temporary {
        fn new(name: &str, content: &[u8]) -> Self {
            let path = std::env::temp_dir().join(format!("sdpctl-{}-{name}", std::process::id()));
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            Self(path)
        }
    }

    impl Drop for Temporary {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    /// A 64-bit ELF file with one program header of this kind.
    fn elf(kind: u32, machine: u16, linker: &[u8]) -> Vec<u8> {
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.resize(64, 0);
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes[32..40].copy_from_slice(&64u64.to_le_bytes());
        bytes[56..58].copy_from_slice(&1u16.to_le_bytes());
        let mut header = [0; PHDR_BYTES];
        header[..4].copy_from_slice(&kind.to_le_bytes());
        header[8..16].copy_from_slice(&120u64.to_le_bytes());
        header[32..40].copy_from_slice(&(linker.len() as u64).to_le_bytes());
        bytes.extend(header);
        bytes.extend(linker);
        bytes
    }

    #[test]
    fn tells_static_programs_and_foreign_ones() {
        let glibc = b"/lib64/ld-linux-x86-64.so.2\0";
        for (name, content, word) in [
            ("static", elf(1, EM_X86_64, b""), Some("statically linked")),
            ("dynamic", elf(PT_INTERP, EM_X86_64, glibc), None),
            (
                "musl",
                elf(PT_INTERP, EM_X86_64, b"/lib/ld-musl-x86_64.so.1\0"),
                Some("another C library"),
            ),
            (
                "arm",
                elf(PT_INTERP, 183, glibc),
                Some("another kind of processor"),
            ),
            ("cut", elf(1, EM_X86_64, b"")[..40].to_vec(), Some("is cut")),
            ("text", b"no program".to_vec(), None),
            ("empty", Vec::new(), None),
        ] {
            let file = Temporary::new(name, &content);
            let got = obstacle(&file.0).unwrap();
            match word {
                None => assert_eq!(got, None, "{name}"),
                Some(word) => assert!(got.as_ref().unwrap().contains(word), "{name}: {got:?}"),
            }
            let script = format!("#! {} -x\n", file.0.display());
            let script = Temporary::new(&format!("{name}.script"), script.as_bytes());
            assert_eq!(obstacle(&script.0).unwrap(), got, "script of {name}");
        }
        // A file that ends inside its headers.
        let file = Temporary::new("short", &elf(1, EM_X86_64, b"")[..100]);
        assert!(obstacle(&file.0).is_err());
    }

    #[test]
    fn a_script_of_itself_has_an_end() {
        let path = std::env::temp_dir().join(format!("sdpctl-{}-self", std::process::id()));
        let script = format!("#!{}\n", path.display());
        let file = Temporary::new("self", script.as_bytes());
        assert_eq!(file.0, path);
        assert_eq!(obstacle(&file.0).unwrap(), None);
    }

    #[test]
    fn finds_programs_as_a_shell() {
        let path = Some(OsString::from("/no/such:/usr/bin:/bin"));
        let found = find(OsStr::new("sh"), path.clone()).unwrap();
        assert!(found.ends_with("sh"), "{}", found.display());
        let missing = find(OsStr::new("no such program"), path.clone()).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        for closed in ["/etc/passwd", "/etc"] {
            let error = find(OsStr::new(closed), path.clone()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{closed}");
        }
    }

    #[test]
    fn a_program_that_gets_rights_has_no_libraries_of_others() {
        let file = Temporary::new("setuid", &elf(PT_INTERP, EM_X86_64, b"/lib64/ld.so\0"));
        fs::set_permissions(&file.0, fs::Permissions::from_mode(0o4755)).unwrap();
        // Set-user-ID to our own user grants no privileges.
        assert_eq!(obstacle(&file.0).unwrap(), None);
        let metadata = fs::metadata("/proc/1/cmdline").unwrap();
        assert_eq!(privilege(Path::new("/x"), &metadata), None);
        // Only root can change a file's owner.
        if std::os::unix::fs::chown(&file.0, Some(12345), Some(12345)).is_ok() {
            for (mode, word) in [(0o4755, "set-user-ID"), (0o2755, "set-group-ID")] {
                fs::set_permissions(&file.0, fs::Permissions::from_mode(mode)).unwrap();
                let got = obstacle(&file.0).unwrap().unwrap();
                assert!(got.contains(word), "{got}");
            }
        }
    }
}
