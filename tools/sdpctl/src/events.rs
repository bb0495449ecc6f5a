// SPDX-License-Identifier: GPL-2.0

//! `sdpctl events`: connections that are established, closed or fail.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{
    Duration,
    Instant, //
};

use serde::Serialize;

use crate::cli::{
    Cli,
    EventsArgs, //
};
use crate::dev;
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
use crate::sdp;
use crate::tcp;
use uapi::nl;
use uapi::nl::sock as a;

/// The cause of the end of a connection that could not be made.
const NOT_MADE: &str = "ConnectRefused";
/// How long the answer of a TCP port is used again: a client may try again many times a second.
const ANSWER_LASTS: Duration = Duration::from_secs(10);

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
    /// Whether the socket of a connection that failed has become a TCP socket.
    tcp_fallback: Option<bool>,
    /// The answer of the peer's TCP port, if it was asked and if there is one.
    tcp_port: Option<tcp::Answer>,
}

/// Asks TCP ports, each of them not more often than the answers last.
#[derive(Default)]
struct Probes(HashMap<SocketAddr, (Instant, Option<tcp::Answer>)>);

impl Probes {
    fn answer(&mut self, event: &Event, now: Instant) -> Option<tcp::Answer> {
        let peer = event.peer.as_ref()?;
        if event.cause.as_deref() != Some(NOT_MADE) {
            return None;
        }
        self.0
            .retain(|_, (asked, _)| now.duration_since(*asked) < ANSWER_LASTS);
        let addr = sdp::canonical(SocketAddr::from((peer.address, peer.port)));
        let ask = || (now, tcp::probe(&addr, &dev::here()));
        self.0.entry(addr).or_insert_with(ask).1
    }
}

pub(crate) fn run(cli: &Cli, args: &EventsArgs) -> Result<ExitCode, Fail> {
    let mut module = Module::open(&cli.messages)?;
    module.listen()?;
    // Tells users and scripts that events are reported from now on.
    out::say("listening");
    let mut shown = 0;
    let mut probes = args.probe_tcp.then(Probes::default);
    while args.count.is_none_or(|count| shown < count) {
        let messages = match module.events() {
            // Events were lost because the buffer was full; later events are reported.
            Err(Fail::Lost) => {
                lost(cli)?;
                continue;
            }
            other => other?,
        };
        for mut event in messages.iter().filter_map(read) {
            if let Some(probes) = &mut probes {
                event.tcp_port = probes.answer(&event, Instant::now());
            }
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
        tcp_fallback: None,
        tcp_port: None,
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
    let options = message.number(a::OPTIONS).unwrap_or(0);
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
        tcp_fallback: Some(options & u64::from(nl::option::TCP_FALLBACK) != 0),
        tcp_port: None,
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
    if event.tcp_fallback == Some(true) {
        line += "  goes on with TCP";
    }
    if let Some(answer) = event.tcp_port {
        line += &format!("  {}", answer.show());
    }
    out::line(line)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn event(cause: &str, peer: SocketAddr) -> Event {
        Event {
            format: out::FORMAT,
            event: "failed",
            local: None,
            peer: Some(End {
                address: peer.ip(),
                port: peer.port(),
            }),
            inode: None,
            netns_cookie: None,
            cookie: None,
            error: None,
            cause: Some(cause.into()),
            refusal: None,
            tcp_fallback: None,
            tcp_port: None,
        }
    }

    #[test]
    fn a_port_is_asked_once_in_a_while() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        let mut probes = Probes::default();
        let now = Instant::now();
        // A connection that was established is no reason to ask.
        assert_eq!(probes.answer(&event("CmDisconnected", peer), now), None);
        assert!(listener.accept().is_err(), "a connection");
        let accepts = Some(tcp::Answer::Accepts);
        assert_eq!(probes.answer(&event(NOT_MADE, peer), now), accepts);
        assert_eq!(probes.answer(&event(NOT_MADE, peer), now), accepts);
        listener.accept().expect("a connection");
        assert!(listener.accept().is_err(), "two connections");
        let later = now + ANSWER_LASTS;
        assert_eq!(probes.answer(&event(NOT_MADE, peer), later), accepts);
        listener.accept().expect("another connection");
    }
}
