// SPDX-License-Identifier: GPL-2.0

//! The folder of a connection in debugfs, named by the socket's cookie.
//!
//! The socket's worker creates the folder when the connection is established, and removes it when
//! all other parts are released; it holds no lock then. So the files can refer to the socket
//! without a reference ([`crate::kern::debugfs`]).

use core::ffi::c_void;

use kernel::bindings as kb;
use kernel::seq_file::SeqFile;
use kernel::seq_print;

use crate::kern::debugfs::{
    file_ops,
    File,
    FileOps,
    HasFolder,
    READ_ONLY,
    READ_WRITE, //
};
use crate::proto::choice::Wanted;
use crate::sdp::conn::count;
use crate::sdp::conn::sock::SdpSock;
use crate::sdp::info::conn_info::{
    conn_info,
    ConnInfo, //
};
use crate::stats::histogram::{
    Log2,
    Messages,
    Noted, //
};
use crate::uapi::nl;

static STATE: FileOps = file_ops(open_state, None);
static MESSAGES: FileOps = file_ops(open_messages, Some(write_messages));

static FILES: [File; 2] = [
    File {
        name: c"state",
        mode: READ_ONLY,
        ops: &STATE,
    },
    File {
        name: c"messages",
        mode: READ_WRITE,
        ops: &MESSAGES,
    },
];

// SAFETY: Each operation takes the file's data as a socket, and reads it under the socket lock.
unsafe impl HasFolder for SdpSock {
    fn files() -> &'static [File] {
        &FILES
    }
}

fn mode_name(wanted: Wanted) -> &'static str {
    let number = usize::try_from(wanted.number()).unwrap_or(usize::MAX);
    nl::MODES.get(number).copied().unwrap_or("unknown")
}

/// # Safety
///
/// Called only by the core, with which it was registered, with valid arguments.
unsafe extern "C" fn open_state(inode: *mut kb::inode, file: *mut kb::file) -> i32 {
    // SAFETY: The core passes a file of this folder.
    unsafe { kb::single_open(file, Some(show_state), (*inode).i_private) }
}

/// # Safety
///
/// As [`open_state`].
unsafe extern "C" fn open_messages(inode: *mut kb::inode, file: *mut kb::file) -> i32 {
    // SAFETY: As above.
    unsafe { kb::single_open(file, Some(show_messages), (*inode).i_private) }
}

/// The socket of an open file.
///
/// # Safety
///
/// `m` is the argument of a running operation of a file of this folder: debugfs removes the file
/// only after the operation, and the worker gives up the socket after that.
unsafe fn sock_of<'a>(m: *mut kb::seq_file) -> &'a SdpSock {
    // SAFETY: `Folder::new()` gave the files their socket.
    unsafe { &*(*m).private.cast::<SdpSock>() }
}

/// # Safety
///
/// Called only by the core, with which it was registered, with valid arguments.
unsafe extern "C" fn show_state(m: *mut kb::seq_file, _v: *mut c_void) -> i32 {
    // SAFETY: The core passes a valid file of ours.
    let (out, sock) = unsafe { (SeqFile::from_raw(m), sock_of(m)) };
    match conn_info(sock) {
        Ok(info) => {
            print_state(out, &info);
            0
        }
        Err(e) => e.to_errno(),
    }
}

fn print_state(out: &SeqFile, info: &ConnInfo) {
    let s = &info.sock;
    let options = &s.options;
    seq_print!(out, "state {}\n", s.state.name());
    seq_print!(out, "local {}\npeer {}\n", s.name.local, s.name.peer);
    seq_print!(out, "netns {}\n", info.netns);
    seq_print!(out, "inode {}\n", s.name.inode);
    seq_print!(out, "mode {}\n", mode_name(options.wanted));
    seq_print!(out, "zcopy_thresh {}\n", s.threshold_bytes);
    let (sends, receives) = (info.async_sends, info.async_receives);
    seq_print!(
        out,
        "async_sends {}\n",
        if sends { "yes" } else { "paused" }
    );
    seq_print!(
        out,
        "async_receives {}\n",
        if receives { "yes" } else { "paused" }
    );
    if let Some(why) = info.last_by_copy {
        seq_print!(out, "last_by_copy {}\n", why.name());
    }
    seq_print!(out, "credits {}\n", s.room.credits);
    seq_print!(out, "peer_credits {}\n", info.peer_credits);
    seq_print!(
        out,
        "receives_posted {}x{}\n",
        s.room.receives_posted,
        s.room.receive_bytes
    );
    seq_print!(out, "sends_posted {}\n", s.room.sends_posted);
    seq_print!(out, "reads_posted {}\n", info.reads_posted);
    seq_print!(out, "tx_queue {}\n", s.tx_queue);
    seq_print!(out, "tx_waiting {}\n", info.tx_waiting);
    seq_print!(out, "rx_queue {}\n", s.rx_queue);
    seq_print!(out, "rx_behind_adverts {}\n", info.held);
    seq_print!(out, "peer_advert_unread {}\n", info.peer_unread);
    seq_print!(
        out,
        "wmem {}/{}\nrmem {}/{}\n",
        s.buffers.sends_charged,
        s.buffers.send,
        s.buffers.receives_charged,
        s.buffers.receive
    );
    for advert in &info.adverts {
        seq_print!(
            out,
            "advert {} len={} read={} age_us={}\n",
            advert.kind,
            advert.len,
            advert.read,
            advert.age_us
        );
    }
    s.tally.for_each(|group, name, n| {
        if n != 0 {
            seq_print!(out, "{group}{name} {n}\n");
        }
    });
    print_histogram(out, "send_bytes", &info.histograms.send_bytes);
    print_histogram(out, "advert_us", &info.histograms.advert_us);
}

fn print_histogram(out: &SeqFile, name: &str, histogram: &Log2) {
    histogram.for_each(|least, n| seq_print!(out, "histogram {name} {least} {n}\n"));
}

/// # Safety
///
/// Called only by the core, with which it was registered, with valid arguments.
unsafe extern "C" fn show_messages(m: *mut kb::seq_file, _v: *mut c_void) -> i32 {
    // SAFETY: The core passes a valid file of ours.
    let (out, sock) = unsafe { (SeqFile::from_raw(m), sock_of(m)) };
    match count::messages(sock) {
        Ok(None) => {
            seq_print!(out, "off\n");
            0
        }
        Ok(Some(messages)) => {
            messages
                .iter()
                .for_each(|message| print_message(out, message));
            0
        }
        Err(e) => e.to_errno(),
    }
}

fn print_message(out: &SeqFile, m: &Noted) {
    let (s, us) = (m.time_ns / 1_000_000_000, m.time_ns % 1_000_000_000 / 1000);
    let way = if m.is_sent { "sent" } else { "received" };
    seq_print!(
        out,
        "{s}.{us:06} {way} {} mseq={} mseq_ack={} bufs={} payload={} credits={}\n",
        m.mid.name(),
        m.mseq,
        m.mseq_ack,
        m.bufs,
        m.payload,
        m.credits
    );
}

/// 1 begins to keep messages, 0 discards them.
///
/// # Safety
///
/// Called only by the core, with which it was registered, with valid arguments.
unsafe extern "C" fn write_messages(
    file: *mut kb::file,
    from: *const kernel::ffi::c_char,
    len: usize,
    _pos: *mut kb::loff_t,
) -> isize {
    let mut on = false;
    // SAFETY: The core passes the user's buffer, and a file of this folder that `single_open` has
    // opened.
    let (result, sock) = unsafe {
        (
            kernel::error::to_result(kb::kstrtobool_from_user(from, len, &raw mut on)),
            sock_of((*file).private_data.cast()),
        )
    };
    let new = match (result, on) {
        (Err(e), _) => Err(e),
        (Ok(()), true) => Messages::new().map(Some),
        (Ok(()), false) => Ok(None),
    };
    match new {
        Ok(new) => {
            count::set_messages(sock, new);
            len as isize
        }
        Err(e) => e.to_errno() as isize,
    }
}
