// SPDX-License-Identifier: GPL-2.0
//! Processes, signals and limits.

use super::checked;
use std::io;
use std::os::fd::RawFd;

/// The side of fork() on which a process is.
pub(crate) enum Fork {
    Child,
    Parent(i32),
}

/// fork(). The caller must have only one thread; otherwise the child may do no more than a signal
/// handler may do.
pub(crate) fn fork() -> io::Result<Fork> {
    // SAFETY: the harness and the server fork before they start threads; tests that fork do so from
    // their only thread.
    match checked(unsafe { libc::fork() })? {
        0 => Ok(Fork::Child),
        pid => Ok(Fork::Parent(pid)),
    }
}

/// fork() without the handlers that the C library calls; the child ends at once. Returns whether
/// there was a child.
pub(crate) fn fork_without_handlers() -> bool {
    let signal = libc::c_long::from(libc::SIGCHLD);
    // SAFETY: clone() with no flags but the signal is fork(), and the child touches nothing.
    let pid = unsafe { libc::syscall(libc::SYS_clone, signal, 0, 0, 0, 0) };
    if pid == 0 {
        exit_now(0);
    }
    pid > 0
}

/// Starts a process that shares the memory of this process, runs `work`, and ends. The new process
/// also uses the thread-local variables of the calling thread, so `work` may only make system
/// calls.
pub(crate) fn clone_with_memory(work: extern "C" fn(*mut libc::c_void) -> i32) -> io::Result<i32> {
    const STACK: usize = 1 << 16;
    let stack = Box::leak(vec![0_u128; STACK / 16].into_boxed_slice());
    let top = stack.as_mut_ptr_range().end.cast();
    let flags = libc::CLONE_VM | libc::SIGCHLD;
    // SAFETY: the stack is never freed, and no other thread uses it; `work` ignores its argument.
    checked(unsafe { libc::clone(work, top, flags, std::ptr::null_mut()) })
}

/// Ends this process at once, without unwinding or exit handlers.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: the call does not return.
    unsafe { libc::_exit(code) }
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Running,
    Exit(i32),
    Signal(i32),
}

/// The state of a child. If `wait` is set, first waits until the child has ended.
pub(crate) fn wait_child(pid: i32, wait: bool) -> io::Result<Ended> {
    let mut status = 0;
    let flags = if wait { 0 } else { libc::WNOHANG };
    // SAFETY: `status` lives across the call.
    if checked(unsafe { libc::waitpid(pid, &mut status, flags) })? == 0 {
        return Ok(Ended::Running);
    }
    if libc::WIFSIGNALED(status) {
        Ok(Ended::Signal(libc::WTERMSIG(status)))
    } else {
        Ok(Ended::Exit(libc::WEXITSTATUS(status)))
    }
}

/// kill(); a negative pid is a process group.
pub(crate) fn kill(pid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: plain numbers.
    checked(unsafe { libc::kill(pid, signal) })?;
    Ok(())
}

/// Makes this process the leader of its own process group.
pub(crate) fn own_group() -> io::Result<()> {
    // SAFETY: plain numbers.
    checked(unsafe { libc::setpgid(0, 0) })?;
    Ok(())
}

/// Has the kernel kill this process when its parent ends.
pub(crate) fn die_with_parent() -> io::Result<()> {
    // SAFETY: plain numbers.
    checked(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) })?;
    Ok(())
}

pub(crate) fn pid() -> i32 {
    // SAFETY: no arguments.
    unsafe { libc::getpid() }
}

pub(crate) fn thread_id() -> i32 {
    // SAFETY: no arguments.
    unsafe { libc::gettid() }
}

/// Whether a thread of this process sleeps.
pub(crate) fn is_asleep(thread: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
    let stat = stat.unwrap_or_default();
    // The state follows the name, which is in parentheses.
    let state = stat.rsplit(')').next().unwrap_or_default();
    state.trim_start().starts_with(['S', 'D'])
}

pub(crate) fn is_root() -> bool {
    // SAFETY: no arguments.
    unsafe { libc::geteuid() == 0 }
}

/// Has the kernel reap children when they end.
pub(crate) fn reap_automatically() {
    // SAFETY: SIG_IGN for SIGCHLD runs no code of ours.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
}

/// Ignores a signal.
pub(crate) fn ignore_signal(signal: i32) {
    // SAFETY: SIG_IGN runs no code of ours.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

/// Restores a signal's default action (Rust programs start with SIGPIPE off).
pub(crate) fn default_action(signal: i32) {
    // SAFETY: SIG_DFL runs no code of ours.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

/// Sets a handler that only records the signal; `restart` is SA_RESTART.
pub(crate) fn install_handler(
    signal: i32,
    handler: extern "C" fn(libc::c_int),
    restart: bool,
) -> io::Result<()> {
    // SAFETY: zeros are an empty mask and no flags.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = if restart { libc::SA_RESTART } else { 0 };
    // SAFETY: `action` is initialised; the callers' handlers only store to
    // atomics, which is async-signal-safe.
    checked(unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) })?;
    Ok(())
}

/// Blocks a signal in this thread, so that another thread receives it.
pub(crate) fn block_signal(signal: i32) -> io::Result<()> {
    change_mask(libc::SIG_BLOCK, signal)
}

/// Waits for a blocked signal of a descriptor; returns its `si_code` and `si_fd`, or `None` if there
/// is none in time.
pub(crate) fn wait_signal(signal: i32, timeout_ms: i64) -> io::Result<Option<(i32, RawFd)>> {
    // The place of `si_fd` in a `siginfo_t` of SIGPOLL, in integers: behind `si_signo`, `si_errno`,
    // `si_code`, padding and the long `si_band`.
    const SI_FD: usize = 6;
    let limit = libc::timespec {
        tv_sec: timeout_ms / 1000,
        tv_nsec: timeout_ms % 1000 * 1_000_000,
    };
    // SAFETY: an all-zero set is empty and valid, and so is `info`; all live across the calls. `info`
    // has 32 integers.
    let got = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        checked(libc::sigaddset(&mut set, signal))?;
        let mut info: libc::siginfo_t = std::mem::zeroed();
        checked(libc::sigtimedwait(&set, &mut info, &limit)).map(|_| {
            (
                info.si_code,
                (&raw const info).cast::<i32>().add(SI_FD).read(),
            )
        })
    };
    match got {
        Ok(told) => Ok(Some(told)),
        Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Calls `f` with the signal blocked in this thread.
pub(crate) fn without_signal<T>(signal: i32, f: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    change_mask(libc::SIG_BLOCK, signal)?;
    let result = f();
    change_mask(libc::SIG_UNBLOCK, signal)?;
    result
}

fn change_mask(how: i32, signal: i32) -> io::Result<()> {
    // SAFETY: an all-zero set is empty and valid; the calls fill it in.
    let ret = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal);
        libc::pthread_sigmask(how, &set, std::ptr::null_mut())
    };
    match ret {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Sends SIGALRM to this process every `ms` milliseconds, for the first time after `ms`
/// milliseconds (0 stops the timer).
pub(crate) fn alarm_every(ms: i64) -> io::Result<()> {
    let time = libc::timeval {
        tv_sec: ms / 1000,
        tv_usec: ms % 1000 * 1000,
    };
    let timer = libc::itimerval {
        it_interval: time,
        it_value: time,
    };
    // SAFETY: `timer` lives across the call.
    checked(unsafe { libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut()) })?;
    Ok(())
}

/// Raises the limit of open files to its maximum; returns the new limit.
pub(crate) fn raise_file_limit() -> io::Result<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` lives across the calls.
    unsafe {
        checked(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit))?;
        limit.rlim_cur = limit.rlim_max;
        checked(libc::setrlimit(libc::RLIMIT_NOFILE, &limit))?;
    }
    Ok(limit.rlim_cur)
}

/// Moves this process into a new, empty network namespace.
pub(crate) fn new_netns() -> io::Result<()> {
    // SAFETY: plain numbers.
    checked(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
    Ok(())
}

/// Moves this process into new namespaces of users and networks, of which it is the administrator.
pub(crate) fn new_user_and_netns() -> io::Result<()> {
    // SAFETY: plain numbers.
    checked(unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET) })?;
    Ok(())
}

const NOBODY: u32 = 65534;

/// Calls `work` with the user nobody as the owner of the files and sockets that this thread
/// creates.
pub(crate) fn as_nobodys<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: the call only changes the owner of new files of this thread, which is root again
    // afterwards.
    unsafe { libc::setfsuid(NOBODY) };
    let result = work();
    // SAFETY: as above.
    unsafe { libc::setfsuid(0) };
    result
}

/// Changes from root to the user nobody for the rest of the process's life.
pub(crate) fn become_nobody() -> io::Result<()> {
    // SAFETY: plain numbers, and an empty list of groups.
    unsafe {
        checked(libc::setgroups(0, std::ptr::null()))?;
        checked(libc::setresgid(NOBODY, NOBODY, NOBODY))?;
        checked(libc::setresuid(NOBODY, NOBODY, NOBODY))?;
    }
    Ok(())
}

/// Takes CAP_IPC_LOCK from this thread, so that the limit of locked memory has an effect on root.
pub(crate) fn lose_ipc_lock() -> io::Result<()> {
    // linux/capability.h
    const VERSION_3: u32 = 0x2008_0522;
    const CAP_IPC_LOCK: u32 = 14;
    let mut header = [VERSION_3, 0];
    // The effective, permitted and inheritable capabilities, twice 32 bits of each.
    let mut sets = [0u32; 6];
    // SAFETY: the header and the sets have the sizes of this version.
    unsafe {
        checked(libc::syscall(libc::SYS_capget, &raw mut header, &raw mut sets) as i32)?;
        sets[0] &= !(1 << CAP_IPC_LOCK);
        checked(libc::syscall(libc::SYS_capset, &raw mut header, &raw const sets) as i32)?;
    }
    Ok(())
}

/// Limits the memory that this process may lock. The limit has no effect on root.
pub(crate) fn limit_locked_memory(bytes: u64) -> io::Result<()> {
    let limit = libc::rlimit {
        rlim_cur: bytes,
        rlim_max: bytes,
    };
    // SAFETY: the limit is only read during the call.
    checked(unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) })?;
    Ok(())
}

/// The number of times that this thread has slept.
pub(crate) fn times_slept() -> io::Result<i64> {
    // SAFETY: zeros are a valid rusage, which the call fills in.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        checked(libc::getrusage(libc::RUSAGE_THREAD, &mut usage))?;
        usage
    };
    Ok(usage.ru_nvcsw)
}
