// SPDX-License-Identifier: GPL-2.0

//! `sdpctl conn`: all information about a connection.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;

use crate::cli::{
    Cli,
    ConnArgs, //
};
use crate::fail::Fail;
use crate::meaning;
use crate::model::Socket;
use crate::netlink::{
    Message,
    Module, //
};
use crate::out::{
    self,
    Color, //
};
use crate::owners;
use crate::ss;
use crate::units;
use uapi::nl;

/// The module's debugfs folder, with a folder for each connection, named by its cookie.
pub(crate) const DEBUGFS: &str = "/sys/kernel/debug/ib_sdp";
/// Maximum number of bytes shown of a file.
const MOST_BYTES: usize = 64 << 10;

/// An attribute unknown to this program.
#[derive(Debug, Serialize, PartialEq, Eq)]
struct Other {
    number: u16,
    /// As hexadecimal digits.
    bytes: String,
}

#[derive(Debug, Serialize)]
struct Connection {
    socket: Socket,
    others: Vec<Other>,
    /// Debugfs files by name; only root can read them.
    files: BTreeMap<String, String>,
}

#[derive(Serialize)]
struct Report {
    format: u32,
    connections: Vec<Connection>,
}

pub(crate) fn run(cli: &Cli, args: &ConnArgs) -> Result<ExitCode, Fail> {
    let mut module = Module::open(&cli.messages)?;
    let mut connections = Vec::new();
    for message in &ss::all_messages(&mut module)? {
        connections.push(Connection {
            socket: Socket::try_from(message)?,
            others: others(message),
            files: BTreeMap::new(),
        });
    }
    let mut connections = chosen(connections, args.number);
    if connections.is_empty() {
        return Err(Fail::Other(format!(
            "no socket has {} as its cookie, its inode or its port: `sdpctl ss -ae` lists them",
            args.number
        )));
    }
    let owners = owners::all();
    for connection in &mut connections {
        let socket = &mut connection.socket;
        socket.processes = Some(owners.get(&socket.inode).cloned().unwrap_or_default());
        // A replayed record may be from another machine.
        if let (Some(cookie), false) = (socket.cookie, cli.messages.are_replayed()) {
            connection.files = files(&Path::new(DEBUGFS).join(cookie.to_string()));
        }
    }
    if cli.json {
        let format = out::FORMAT;
        out::json(&Report {
            format,
            connections,
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    for (i, connection) in connections.iter().enumerate() {
        if i > 0 {
            out::line("")?;
        }
        print(cli, connection)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The connection with this cookie; otherwise the ones with this inode or local port.
fn chosen(connections: Vec<Connection>, number: u64) -> Vec<Connection> {
    let kinds: [fn(&Socket, u64) -> bool; 3] = [
        |s, n| s.cookie == Some(n),
        |s, n| s.inode == n && n != 0,
        |s, n| u64::from(s.local.port) == n,
    ];
    let has_any =
        |is: &&fn(&Socket, u64) -> bool| connections.iter().any(|c| is(&c.socket, number));
    match kinds.iter().find(has_any) {
        Some(is) => connections
            .into_iter()
            .filter(|c| is(&c.socket, number))
            .collect(),
        None => Vec::new(),
    }
}

/// Attributes of a newer module.
fn others(message: &Message) -> Vec<Other> {
    let unknown = message.beyond(nl::sock::PACE).into_iter();
    let other = |(number, bytes): (u16, Vec<u8>)| {
        let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Other {
            number,
            bytes: digits.concat(),
        }
    };
    unknown.map(other).collect()
}

/// The readable files of a folder; none if the user cannot read debugfs.
fn files(folder: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        let text = fs::read(entry.path());
        if let (true, Ok(mut bytes), Ok(name)) = (is_file, text, entry.file_name().into_string()) {
            bytes.truncate(MOST_BYTES);
            found.insert(name, String::from_utf8_lossy(&bytes).into_owned());
        }
    }
    found
}

fn print(cli: &Cli, connection: &Connection) -> Result<(), Fail> {
    let s = &connection.socket;
    let (local, peer) = (s.local.show(), s.peer.show());
    let title = format!("{local} -> {peer}  {}", s.shown_state());
    out::line(out::paint(&title, Color::Bold, out::is_coloured(cli.color)))?;
    let mut lines = sections(s);
    for other in &connection.others {
        lines.push((
            "of a newer module",
            format!("attribute {}: {}", other.number, other.bytes),
        ));
    }
    let mut last = "";
    for (name, text) in &lines {
        let shown = if *name == last { "" } else { *name };
        last = name;
        out::line(format_args!("  {shown:<17}  {text}").to_string().trim_end())?;
    }
    for (name, text) in &connection.files {
        out::line(format_args!("  {name}:"))?;
        for line in text.lines() {
            out::line(format_args!("    {line}"))?;
        }
    }
    Ok(())
}

/// The sections of the output, each with its title.
fn sections(s: &Socket) -> Vec<(&'static str, String)> {
    let b = units::bytes;
    let list = |names: &[&str]| match names.is_empty() {
        true => "none".to_string(),
        false => names.join(", "),
    };
    let mut lines = Vec::new();
    let processes: Vec<String> = s
        .processes
        .iter()
        .flatten()
        .map(|o| format!("{} (pid {}, fd {})", o.name, o.pid, o.fd))
        .collect();
    lines.push((
        "processes",
        match (processes.is_empty(), s.inode) {
            (false, _) => processes.join(", "),
            (true, 0) => "none has it open".into(),
            (true, _) => "none that this user may see".into(),
        },
    ));
    let mut owner = format!(
        "uid {}, inode {}, namespace {}",
        s.uid, s.inode, s.netns_cookie
    );
    if let Some(cookie) = s.cookie {
        owner += &format!(", cookie {cookie}");
    }
    if s.interface != 0 {
        owner += &format!(", interface {}", s.interface);
    }
    lines.push(("owner", owner));
    if s.is_tcp() {
        // The other figures are those of SDP.
        lines.push(("options", list(&s.options)));
        let error = s.sdp_error();
        lines.extend(error.map(|error| ("error of SDP", error.to_string())));
        return lines;
    }
    match s.state {
        "Listen" => lines.push((
            "queue",
            format!("{} connections wait, {} may", s.recv_queue, s.send_queue),
        )),
        _ => lines.push((
            "queues",
            format!(
                "{} bytes not read, {} bytes not taken by the peer",
                s.recv_queue, s.send_queue
            ),
        )),
    }
    let from = match s.zcopy_threshold {
        0 => "never without a copy in auto".into(),
        bytes => format!("without a copy from {} in auto", b(bytes)),
    };
    lines.push(("way of sends", format!("{}, {from}", s.mode)));
    lines.push((
        "credits",
        format!("the peer has room for {} messages", s.credits),
    ));
    lines.push((
        "receives",
        format!(
            "{} posted of {}; the peer's are of {}",
            s.receives_posted,
            b(s.receive_bytes),
            b(s.peer_receive_bytes)
        ),
    ));
    lines.push(("sends", format!("{} at the adapter", s.sends_posted)));
    lines.push((
        "memory",
        format!(
            "{} of {} for sends, {} of {} for receives",
            b(s.send_memory),
            b(s.send_buffer),
            b(s.receive_memory),
            b(s.receive_buffer)
        ),
    ));
    lines.push(("features", list(&s.features)));
    lines.push(("options", list(&s.options)));
    let user = match s.user_timeout_ms {
        0 => "none".into(),
        ms => format!("{ms} ms"),
    };
    lines.push((
        "times",
        format!(
            "keepalive after {} s, then {} times every {} s; time-out of sends {user}",
            s.keepalive_idle_s, s.keepalive_count, s.keepalive_interval_s
        ),
    ));
    if let Some(pace) = &s.pace {
        lines.push(("pace", ss::how_it_goes(pace, false)));
    }
    for (name, n) in &s.counters {
        let why = match name.starts_with("by_copy_") {
            true => meaning::of(name),
            false => None,
        };
        let why = why.map_or_else(String::new, |why| format!(": {why}"));
        lines.push(("counters", format!("{name} {n}{why}")));
    }
    lines
}
