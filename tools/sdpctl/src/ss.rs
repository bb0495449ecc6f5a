// SPDX-License-Identifier: GPL-2.0

//! `sdpctl ss`: the sockets.

use std::collections::BTreeMap;
use std::process::ExitCode;

use netlink_packet_core::DefaultNla;
use serde::Serialize;

use crate::cli::{
    Cli,
    SsArgs, //
};
use crate::expression::Filter;
use crate::fail::Fail;
use crate::filter::StateSet;
use crate::model::{
    Pace,
    Socket,
    LISTEN_TCP,
    TCP, //
};
use crate::netlink::{
    Message,
    Module, //
};
use crate::out;
use crate::owners::{
    self,
    Owner, //
};
use crate::units;
use uapi::nl;
use uapi::nl::sock as a;

/// The messages of all sockets that have a port, also of the TCP sockets that programs use instead.
pub(crate) fn all_messages(module: &mut Module) -> Result<Vec<Message>, Fail> {
    let states = DefaultNla::new(a::STATES, StateSet::ALL.bits().to_ne_bytes().to_vec());
    dump(module, vec![states])
}

/// As [`all_messages`].
pub(crate) fn all(module: &mut Module) -> Result<Vec<Socket>, Fail> {
    all_messages(module)?.iter().map(Socket::try_from).collect()
}

/// The messages of the sockets that match the filter.
fn dump(module: &mut Module, filter: Vec<DefaultNla>) -> Result<Vec<Message>, Fail> {
    let mut messages = module.dump(nl::CMD_SOCK_GET, filter.clone())?;
    messages.extend(module.dump_newer(nl::CMD_TCP_GET, filter)?);
    Ok(messages)
}

/// The filter for the module.
fn filter(args: &SsArgs, states: Option<StateSet>) -> Vec<DefaultNla> {
    let states = match args.state.or(states) {
        Some(states) => states,
        None if args.all => StateSet::ALL,
        None if args.listening => StateSet::LISTENING,
        None if args.summary => StateSet::ALL,
        None => StateSet::CONNECTED,
    };
    let mut attrs = vec![DefaultNla::new(
        a::STATES,
        states.bits().to_ne_bytes().to_vec(),
    )];
    let family = match (args.ipv4, args.ipv6) {
        (true, _) => Some(libc::AF_INET as u16),
        (_, true) => Some(libc::AF_INET6 as u16),
        _ => None,
    };
    let numbers = [
        (a::FAMILY, family),
        (a::LOCAL_PORT, args.sport),
        (a::PEER_PORT, args.dport),
    ];
    for (number, value) in numbers {
        attrs.extend(value.map(|n| DefaultNla::new(number, n.to_ne_bytes().to_vec())));
    }
    if let Some(network) = &args.src {
        attrs.extend(network.attrs(a::LOCAL_ADDR, a::LOCAL_PREFIX));
    }
    if let Some(network) = &args.dst {
        attrs.extend(network.attrs(a::PEER_ADDR, a::PEER_PREFIX));
    }
    attrs
}

#[derive(Serialize)]
struct Report {
    format: u32,
    sockets: Vec<Socket>,
}

pub(crate) fn run(cli: &Cli, args: &SsArgs) -> Result<ExitCode, Fail> {
    let words = Filter::parse(&args.filter).map_err(Fail::Usage)?;
    if args.state.is_some() && words.states.is_some() {
        return Err(Fail::Usage(
            "states are said twice: by --state and by words".into(),
        ));
    }
    let mut module = Module::open(&cli.messages)?;
    let messages = dump(&mut module, filter(args, words.states))?;
    let mut sockets: Vec<Socket> = messages
        .iter()
        .map(Socket::try_from)
        .collect::<Result<_, _>>()?;
    sockets.retain(|socket| words.matches(socket));
    if args.processes || args.process.is_some() {
        let owners = owners::all();
        for socket in &mut sockets {
            // An orphan has no inode and no process.
            socket.processes = Some(owners.get(&socket.inode).cloned().unwrap_or_default());
        }
    }
    if let Some(wanted) = &args.process {
        let is_wanted = |o: &Owner| o.name == *wanted || o.pid.to_string() == *wanted;
        sockets.retain(|s| s.processes.iter().flatten().any(is_wanted));
    }
    if args.summary {
        summarize(cli, &sockets)?;
    } else if cli.json {
        let format = out::FORMAT;
        out::json(&Report { format, sockets })?;
    } else {
        print(cli, args, &sockets)?;
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Serialize)]
struct Summary {
    format: u32,
    total: usize,
    /// Number of sockets by state, for states with sockets.
    states: BTreeMap<&'static str, usize>,
}

fn summarize(cli: &Cli, sockets: &[Socket]) -> Result<(), Fail> {
    let mut states = BTreeMap::new();
    for socket in sockets {
        *states.entry(socket.shown_state()).or_insert(0) += 1;
    }
    if cli.json {
        return out::json(&Summary {
            format: out::FORMAT,
            total: sockets.len(),
            states,
        });
    }
    let known = nl::STATES
        .iter()
        .chain([&TCP])
        .filter_map(|name| states.get_key_value(name));
    let counts: Vec<String> = known
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    match counts.is_empty() {
        true => out::line("Total: 0"),
        false => out::line(format_args!(
            "Total: {} ({})",
            sockets.len(),
            counts.join(", ")
        )),
    }
}

fn print(cli: &Cli, args: &SsArgs, sockets: &[Socket]) -> Result<(), Fail> {
    let mut headline = vec![
        "State",
        "Recv-Q",
        "Send-Q",
        "Local Address:Port",
        "Peer Address:Port",
    ];
    if args.processes {
        headline.push("Process");
    }
    let mut lines = vec![headline.into_iter().map(String::from).collect()];
    for socket in sockets {
        let mut line = vec![
            state(socket),
            socket.recv_queue.to_string(),
            socket.send_queue.to_string(),
            socket.local.show(),
            socket.peer.show(),
        ];
        if args.processes {
            line.push(processes(socket));
        }
        lines.push(line);
    }
    let mut lines = out::table(&lines, &[1, 2]).into_iter();
    let headline = lines.next().unwrap_or_default();
    if !args.no_header {
        out::line(out::paint(
            &headline,
            out::Color::Bold,
            out::is_coloured(cli.color),
        ))?;
    }
    for (line, socket) in lines.zip(sockets) {
        out::line(line)?;
        if args.extended {
            out::line(format_args!("    {}", extended(socket)))?;
        }
        if args.info {
            out::line(format_args!("    {}", info(socket, args.bytes)))?;
            if let Some(pace) = &socket.pace {
                out::line(format_args!("    {}", how_it_goes(pace, args.bytes)))?;
            }
            if !socket.counters.is_empty() {
                out::line(format_args!("    {}", counters(socket, args.bytes)))?;
            }
        }
    }
    Ok(())
}

/// The state, and whether a listener also accepts TCP connections.
fn state(socket: &Socket) -> String {
    let state = socket.shown_state();
    match !socket.is_tcp() && socket.options.contains(&LISTEN_TCP) {
        true => format!("{state}+TCP"),
        false => state.into(),
    }
}

fn processes(socket: &Socket) -> String {
    let one = |o: &Owner| format!("(\"{}\",pid={},fd={})", o.name, o.pid, o.fd);
    let all: Vec<String> = socket.processes.iter().flatten().map(one).collect();
    match all.is_empty() {
        true => String::new(),
        false => format!("users:({})", all.join(",")),
    }
}

fn extended(s: &Socket) -> String {
    let mut text = format!("uid:{} ino:{} netns:{}", s.uid, s.inode, s.netns_cookie);
    if let Some(cookie) = s.cookie {
        text += &format!(" cookie:{cookie}");
    }
    if s.interface != 0 {
        text += &format!(" interface:{}", s.interface);
    }
    if !s.options.is_empty() {
        text += &format!(" options:{}", s.options.join(","));
    }
    if s.options.contains(&"keepalive") {
        let (idle, interval) = (s.keepalive_idle_s, s.keepalive_interval_s);
        text += &format!(" keepalive:{idle}s/{interval}s/{}", s.keepalive_count);
    }
    if let Some(error) = s.sdp_error() {
        text += &format!(" sdp-error:{error}");
    }
    if s.user_timeout_ms != 0 {
        text += &format!(" user-timeout:{}ms", s.user_timeout_ms);
    }
    text
}

fn info(s: &Socket, exact: bool) -> String {
    let b = |n: u64| match exact {
        true => n.to_string(),
        false => units::bytes(n),
    };
    let mut text = format!(
        "mode:{} zcopy-from:{}",
        s.mode,
        threshold(s.zcopy_threshold, &b)
    );
    text += &format!(
        " credits:{} receives:{}x{} peer-receives:{} sends:{}",
        s.credits,
        s.receives_posted,
        b(s.receive_bytes),
        b(s.peer_receive_bytes),
        s.sends_posted
    );
    text += &format!(
        " snd-mem:{}/{} rcv-mem:{}/{}",
        b(s.send_memory),
        b(s.send_buffer),
        b(s.receive_memory),
        b(s.receive_buffer)
    );
    if !s.features.is_empty() {
        text += &format!(" features:{}", s.features.join(","));
    }
    text
}

/// Figures of the transfer, in the words of ss.
pub(crate) fn how_it_goes(p: &Pace, exact: bool) -> String {
    let b = |n: u64| match exact {
        true => n.to_string(),
        false => units::bytes(n),
    };
    let ms = |us: u64| format!("{}.{:03}", us / 1000, us % 1000);
    let mut text = Vec::new();
    if p.rtt_us != 0 {
        text.push(format!("rtt:{}/{}", ms(p.rtt_us), ms(p.rtt_var_us)));
        text.push(format!("minrtt:{}", ms(p.min_rtt_us)));
    }
    for (name, bytes) in [
        ("bytes_sent", p.bytes_sent),
        ("bytes_acked", p.bytes_acked),
        ("bytes_received", p.bytes_received),
    ] {
        if bytes != 0 {
            text.push(format!("{name}:{}", b(bytes)));
        }
    }
    for (name, since) in [
        ("lastsnd", p.last_sent_ms),
        ("lastrcv", p.last_received_ms),
        ("lastack", p.last_heard_ms),
    ] {
        text.push(format!("{name}:{since}ms"));
    }
    if p.delivery_rate != 0 {
        text.push(format!("delivery_rate:{}B/s", b(p.delivery_rate)));
    }
    for (name, us) in [
        ("busy", p.busy_us),
        ("rwnd_limited", p.peer_limited_us),
        ("sndbuf_limited", p.buffer_limited_us),
    ] {
        if us != 0 {
            text.push(format!("{name}:{}ms", us / 1000));
        }
    }
    if p.unacked != 0 {
        text.push(format!("unacked:{}", p.unacked));
    }
    if p.notsent_bytes != 0 {
        text.push(format!("notsent:{}", b(p.notsent_bytes)));
    }
    text.join(" ")
}

/// The connection's counters.
fn counters(s: &Socket, exact: bool) -> String {
    let one = |(name, n): &(String, u64)| match name.ends_with("_bytes") && !exact {
        true => format!("{name}:{}", units::bytes(*n)),
        false => format!("{name}:{n}"),
    };
    let all: Vec<String> = s.counters.iter().map(one).collect();
    all.join(" ")
}

fn threshold(bytes: u64, show: &impl Fn(u64) -> String) -> String {
    match bytes {
        0 => "never".into(),
        bytes => show(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_how_it_goes_in_the_words_of_ss() {
        let mut pace = Pace {
            rtt_us: 1234,
            rtt_var_us: 56,
            min_rtt_us: 900,
            delivery_rate: 3 << 20,
            bytes_sent: 2 << 20,
            bytes_acked: 1 << 20,
            bytes_received: 0,
            unacked: 3,
            notsent_bytes: 4096,
            busy_us: 5_999,
            peer_limited_us: 0,
            buffer_limited_us: 0,
            last_sent_ms: 1,
            last_received_ms: 2,
            last_heard_ms: 0,
        };
        assert_eq!(
            how_it_goes(&pace, false),
            "rtt:1.234/0.056 minrtt:0.900 bytes_sent:2M bytes_acked:1M lastsnd:1ms lastrcv:2ms \
             lastack:0ms delivery_rate:3MB/s busy:5ms unacked:3 notsent:4K"
        );
        pace.rtt_us = 0;
        let exact = how_it_goes(&pace, true);
        assert!(exact.starts_with("bytes_sent:2097152 "), "{exact}");
    }
}
