// SPDX-License-Identifier: GPL-2.0

//! `sdpctl events`: connections that are established, closed or fail.

use std::io;
use std::process::ExitCode;

use serde::Serialize;

use crate::cli::{
    Cli,
    EventsArgs, //
};
use crate::fail::Fail;
use crate::model::{
    self,
    End, //
};
use crate::netlink::{
    Message,
    Module, //
};
use crate::out;
use uapi::nl;
use uapi::nl::sock as a;

#[derive(Serialize)]
struct Event {
    format: u32,
    event: &'static str,
    /// This and all later fields are empty if events were lost.
    local: Option<End>,
    peer: Option<End>,
    inode: Option<u64>,
    netns_cookie: Option<u64>,
    /// `None` also from a module of version 1.
    cookie: Option<u64>,
    /// The errno of a connection that failed.
    error: Option<u64>,
    cause: Option<String>,
    /// The reason of the peer's module for a refusal.
    refusal: Option<String>,
}

pub(crate) fn run(cli: &Cli, args: &EventsArgs) -> Result<ExitCode, Fail> {
    let mut module = Module::open(&cli.messages)?;
    module.listen()?;
    // Tells users and scripts that events are reported from now on.
    out::say("listening");
    let mut shown = 0;
    while args.count.is_none_or(|count| shown < count) {
        let messages = match module.events() {
            // Events were lost because the buffer was full; later events are reported.
            Err(Fail::Lost) => {
                lost(cli)?;
                continue;
            }
            other => other?,
        };
        for event in messages.iter().filter_map(read) {
            show(cli, &event)?;
            shown += 1;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn lost(cli: &Cli) -> Result<(), Fail> {
    if !cli.json {
        out::say("events were lost");
        return Ok(());
    }
    out::json_line(&Event {
        format: out::FORMAT,
        event: "lost",
        local: None,
        peer: None,
        inode: None,
        netns_cookie: None,
        cookie: None,
        error: None,
        cause: None,
        refusal: None,
    })
}

/// `None` for events of a newer module and for events without addresses.
fn read(message: &Message) -> Option<Event> {
    let event = match message.cmd {
        nl::CMD_ESTABLISHED_NTF => "established",
        nl::CMD_CLOSED_NTF => "closed",
        nl::CMD_FAILED_NTF => "failed",
        _ => return None,
    };
    Some(Event {
        format: out::FORMAT,
        event,
        local: Some(model::end_of(message, a::LOCAL_ADDR, a::LOCAL_PORT).ok()?),
        peer: Some(model::end_of(message, a::PEER_ADDR, a::PEER_PORT).ok()?),
        inode: Some(message.number(a::INODE).unwrap_or(0)),
        netns_cookie: Some(message.number(a::NETNS_COOKIE).unwrap_or(0)),
        cookie: message.number(a::COOKIE),
        error: message.number(a::ERROR),
        cause: message.string(a::CAUSE),
        refusal: message.string(a::REFUSAL),
    })
}

fn show(cli: &Cli, event: &Event) -> Result<(), Fail> {
    if cli.json {
        return out::json_line(event);
    }
    let end = |end: &Option<End>| end.as_ref().map_or_else(String::new, End::show);
    let (local, peer) = (end(&event.local), end(&event.peer));
    let mut line = format!("{:<11}  {local}  {peer}", event.event);
    if let Some(error) = event.error.and_then(|error| i32::try_from(error).ok()) {
        line += &format!("  {}", io::Error::from_raw_os_error(error));
    }
    match (&event.cause, &event.refusal) {
        (Some(cause), Some(refusal)) => line += &format!("  ({cause}: {refusal})"),
        (Some(cause), None) => line += &format!("  ({cause})"),
        (None, _) => {}
    }
    out::line(line)
}
