// SPDX-License-Identifier: GPL-2.0

//! Kernel types (BTF) and bpf(2).

use std::ffi::CString;
use std::fs;
use std::io;
use std::mem::{
    size_of,
    size_of_val, //
};
use std::os::fd::{
    AsRawFd,
    FromRawFd,
    OwnedFd, //
};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use btf_rs::{
    Btf,
    Type, //
};

use crate::fail::Fail;

const TYPES: &str = "/sys/kernel/btf/vmlinux";
const FUNCTION: &str = "update_socket_protocol";
/// `CGROUP2_SUPER_MAGIC`.
const CGROUP2: i64 = 0x6367_7270;
/// The inode of the hierarchy's root (`fs/kernfs/dir.c` of the kernel).
const ROOT: u64 = 1;

/// Commands, types and flags of bpf(2) (`include/uapi/linux/bpf.h`).
const PROG_LOAD: libc::c_int = 5;
const OBJ_PIN: libc::c_int = 6;
const RAW_TRACEPOINT_OPEN: libc::c_int = 17;
const PROG_TYPE_TRACING: u32 = 26;
const MODIFY_RETURN: u32 = 26;
/// Size of the buffer for the verifier's log.
const LOG_BYTES: usize = 64 << 10;

/// An instruction of a BPF program, or half of an instruction with a 64-bit value
/// (`struct bpf_insn`).
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Instruction {
    pub(super) opcode: u8,
    /// Destination in the lower four bits, source in the upper four.
    pub(super) registers: u8,
    pub(super) offset: i16,
    pub(super) value: i32,
}

/// A control group: its depth in the hierarchy (the root is at 0) and its id.
#[derive(Clone, Copy)]
pub(super) struct Cgroup {
    pub(super) level: i32,
    pub(super) id: u64,
}

/// The control group of a folder.
///
/// # Errors
///
/// The folder is not in the unified hierarchy (cgroup v2), or the root of the hierarchy is not
/// visible, as in a container.
pub(super) fn cgroup(folder: &str) -> Result<Cgroup, Fail> {
    let path = Path::new(folder);
    let inode = |path: &Path| match fs::metadata(path) {
        Ok(found) if found.is_dir() && is_cgroup(path) => Some(found.ino()),
        _ => None,
    };
    fs::metadata(path).map_err(|e| Fail::io(folder, &e))?;
    let id = inode(path)
        .ok_or_else(|| Fail::Other(format!("{folder} is not a control group of version 2")))?;
    let up: Vec<u64> = path.ancestors().map_while(inode).collect();
    match up.iter().position(|inode| *inode == ROOT) {
        Some(level) => Ok(Cgroup {
            level: i32::try_from(level).unwrap_or(i32::MAX),
            id,
        }),
        None => Err(Fail::Other(format!(
            "{folder}: the root of the control groups is not above it, so its place is not known; say the \
             folder as the machine itself has it"
        ))),
    }
}

/// The id of the folder's current control group; `None` if the folder does not exist.
pub(super) fn cgroup_id(folder: &str) -> Option<u64> {
    fs::metadata(folder).ok().map(|found| found.ino())
}

fn is_cgroup(path: &Path) -> bool {
    let Ok(c_path) = CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: All zeros are valid for all members.
    let mut info: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: Both pointers are valid for the call.
    let found = unsafe { libc::statfs(c_path.as_ptr(), &raw mut info) } == 0;
    found && info.f_type == CGROUP2
}

/// Offsets of members of `struct task_struct`.
pub(super) struct Task {
    pub(super) group_leader: i16,
    pub(super) comm: i32,
}

/// The function whose result the programs of rules replace.
pub(super) struct Hook {
    id: u32,
    pub(super) task: Task,
}

impl Hook {
    /// # Errors
    ///
    /// The kernel does not have the function, or no type information.
    pub(super) fn find() -> Result<Self, Fail> {
        let failed = |e: btf_rs::Error| Fail::Other(format!("{TYPES}: {e}"));
        // Check before the library does, to get the kind of the error.
        fs::metadata(TYPES).map_err(|e| Fail::io(TYPES, &e))?;
        let types = Btf::from_file(TYPES).map_err(failed)?;
        let missing = |what: &str| Fail::Other(format!("this kernel has no {what}"));
        let ids = types.resolve_ids_by_name(FUNCTION).map_err(failed)?;
        let is_function = |&id: &u32| matches!(types.resolve_type_by_id(id), Ok(Type::Func(_)));
        let id = ids.into_iter().find(is_function);
        let found = types.resolve_types_by_name("task_struct").map_err(failed)?;
        let task = found.into_iter().find_map(|found| match found {
            Type::Struct(task) => Some(task),
            _ => None,
        });
        let task = task.ok_or_else(|| missing("task_struct"))?;
        let offset = |name: &str| {
            let named = |member: &&btf_rs::Member| {
                types.resolve_name(*member).is_ok_and(|found| found == name)
            };
            let member = task.members.iter().find(named);
            member.map(|member| member.bit_offset() / 8)
        };
        let place = |name: &str| offset(name).ok_or_else(|| missing(name));
        Ok(Self {
            id: id.ok_or_else(|| missing(FUNCTION))?,
            task: Task {
                group_leader: i16::try_from(place("group_leader")?)
                    .map_err(|_| missing("group_leader at a place that BPF reaches"))?,
                comm: place("comm")? as i32,
            },
        })
    }

    /// Loads the program.
    ///
    /// # Errors
    ///
    /// Those of bpf(2), with the verifier's reason; `Permission` without CAP_BPF and CAP_PERFMON.
    pub(super) fn load(&self, program: &[Instruction]) -> Result<OwnedFd, Fail> {
        let mut log = vec![0_u8; LOG_BYTES];
        let mut attr = ProgLoad {
            kind: PROG_TYPE_TRACING,
            instruction_count: program.len() as u32,
            instructions: program.as_ptr() as u64,
            license: c"GPL".as_ptr() as u64,
            log_level: 1,
            log_bytes: log.len() as u32,
            log: log.as_mut_ptr() as u64,
            name: *b"sdpctl_steer\0\0\0\0",
            expected_attach_type: MODIFY_RETURN,
            attach_btf_id: self.id,
            ..ProgLoad::default()
        };
        owned(bpf(PROG_LOAD, &mut attr)).map_err(|e| {
            let said = log.split(|byte| *byte == 0).next().unwrap_or_default();
            let said = String::from_utf8_lossy(said);
            // Statistics follow the reason.
            let mut lines = said.trim_end().lines().rev();
            let reason = lines.find(|line| !line.starts_with("processed "));
            let reason = reason.map_or(String::new(), |reason| format!(" ({reason})"));
            let text = format!("the kernel does not take the BPF program{reason}: {e}");
            match e.raw_os_error() {
                // EACCES comes from the verifier.
                Some(libc::EPERM) => Fail::Permission(text),
                _ => Fail::Other(text),
            }
        })
    }
}

/// Attaches the program for as long as the file `path`, which is created, exists.
///
/// # Errors
///
/// Those of bpf(2).
pub(super) fn attach(program: &OwnedFd, path: &Path) -> Result<(), Fail> {
    let link = bpf(
        RAW_TRACEPOINT_OPEN,
        &mut RawTracepoint {
            name: 0,
            program: program.as_raw_fd() as u32,
            unused: 0,
        },
    );
    let link = owned(link).map_err(|e| Fail::io(format!("a link to {FUNCTION}()"), &e))?;
    let name = CString::new(path.as_os_str().as_bytes())
        .map_err(|_| Fail::Other("a path with a zero byte".into()))?;
    let pinned = bpf(
        OBJ_PIN,
        &mut Pin {
            path: name.as_ptr() as u64,
            fd: link.as_raw_fd() as u32,
            flags: 0,
        },
    );
    pinned.map_err(|e| Fail::io(path.display(), &e))?;
    Ok(())
}

/// `union bpf_attr` for `BPF_PROG_LOAD`, up to `attach_btf_id`.
#[repr(C)]
#[derive(Default)]
struct ProgLoad {
    kind: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    expected_attach_type: u32,
    btf_fd: u32,
    func_info_size: u32,
    func_info: u64,
    func_info_count: u32,
    line_info_size: u32,
    line_info: u64,
    line_info_count: u32,
    attach_btf_id: u32,
}

/// `union bpf_attr` for `BPF_RAW_TRACEPOINT_OPEN`. Without a name the program is attached to the
/// function for which it was loaded.
#[repr(C)]
struct RawTracepoint {
    name: u64,
    program: u32,
    unused: u32,
}

/// `union bpf_attr` for `BPF_OBJ_PIN`.
#[repr(C)]
struct Pin {
    path: u64,
    fd: u32,
    flags: u32,
}

/// bpf(2): its result, if it is not negative.
fn bpf<T>(command: libc::c_int, attr: &mut T) -> io::Result<i32> {
    const { assert!(size_of::<ProgLoad>() == 112) };
    // SAFETY: The attributes are initialised and those of the command; the kernel reads the given
    // number of bytes. The callers own the memory that the attributes point to until the call
    // returns.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_mut(attr),
            size_of_val(attr),
        )
    };
    i32::try_from(result)
        .ok()
        .filter(|result| *result >= 0)
        .ok_or_else(io::Error::last_os_error)
}

/// Takes ownership of a descriptor that a command has created.
fn owned(fd: io::Result<i32>) -> io::Result<OwnedFd> {
    // SAFETY: The kernel has just created it, and no other code owns it.
    fd.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}
