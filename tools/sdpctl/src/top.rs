// SPDX-License-Identifier: GPL-2.0

//! `sdpctl top`: live view of connections and their rates.

use std::collections::BTreeMap;
use std::io;
use std::process::ExitCode;
use std::time::{
    Duration,
    Instant, //
};

use crate::cli::{
    Cli,
    Sort,
    TopArgs, //
};
use crate::fail::Fail;
use crate::model::{
    self,
    Socket, //
};
use crate::netlink::Module;
use crate::out::{
    self,
    Color, //
};
use crate::ss;
use crate::term::{
    Event,
    Terminal, //
};
use crate::units;

const CTRL_C: u8 = 3;
const HELP: &str = "q quit  t sent  r received  m memory  a address";

/// The module's data at a point in time.
struct Look {
    at: Instant,
    sockets: Vec<Socket>,
    counters: BTreeMap<String, u64>,
}

/// A line of the view.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    local: String,
    peer: String,
    state: &'static str,
    mode: &'static str,
    /// Bytes per second, if the module has counters per connection.
    sent: Option<f64>,
    received: Option<f64>,
    recv_queue: u64,
    send_queue: u64,
    memory: u64,
}

/// The contents of the view.
#[derive(Clone, Debug, PartialEq)]
struct View {
    seconds: f64,
    connections: usize,
    listeners: usize,
    sent: f64,
    received: f64,
    /// For the namespace, per second: messages, and sends that fell back to a copy.
    messages: f64,
    by_copy: f64,
    rows: Vec<Row>,
}

fn look(module: &mut Module) -> Result<Look, Fail> {
    let sockets = ss::all(module)?;
    let counters = model::counters(module)?.into_iter().collect();
    let at = Instant::now();
    Ok(Look {
        at,
        sockets,
        counters,
    })
}

/// Identifies a socket in successive refreshes. The inode changes at accept() and close(), so it is
/// used only without a cookie.
fn key(s: &Socket) -> (u64, u64, u16) {
    match s.cookie {
        Some(cookie) => (cookie, 0, 0),
        None => (0, s.inode, s.local.port),
    }
}

/// Counters of sent bytes: handed to the adapter, and read by the peer from programs' memory.
const SENT: &[&str] = &["tx_bytes", "tx_zcopy_bytes"];
/// Counters of received bytes.
const RECEIVED: &[&str] = &["rx_bytes"];

fn count(s: &Socket, names: &[&str]) -> u64 {
    let found = s
        .counters
        .iter()
        .filter(|(n, _)| names.contains(&n.as_str()));
    found.map(|(_, n)| n).sum()
}

fn view(before: &Look, now: &Look) -> View {
    let seconds = now.at.duration_since(before.at).as_secs_f64().max(1e-3);
    let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
    let old: BTreeMap<_, &Socket> = before.sockets.iter().map(|s| (key(s), s)).collect();
    let total = |is: &dyn Fn(&str) -> bool| {
        let deltas = now.counters.iter().filter(|(name, _)| is(name));
        let deltas =
            deltas.map(|(name, n)| rate(*n, before.counters.get(name).copied().unwrap_or(0)));
        deltas.sum()
    };
    let row = |s: &Socket| {
        let of = |names: &[&str]| {
            // A module without cookies has no counters per socket, nor has a TCP socket.
            s.cookie.filter(|_| !s.is_tcp())?;
            let was = old.get(&key(s)).map_or(0, |s| count(s, names));
            Some(rate(count(s, names), was))
        };
        Row {
            local: s.local.show(),
            peer: s.peer.show(),
            state: s.shown_state(),
            mode: s.mode,
            sent: of(SENT),
            received: of(RECEIVED),
            recv_queue: s.recv_queue,
            send_queue: s.send_queue,
            memory: s.send_memory + s.receive_memory,
        }
    };
    let is_listener = |s: &&Socket| s.state == "Listen";
    let listeners = now.sockets.iter().filter(is_listener).count();
    let rows: Vec<Row> = now
        .sockets
        .iter()
        .filter(|s| s.state != "Listen" && s.state != "Closed")
        .map(row)
        .collect();
    View {
        seconds,
        connections: rows.len(),
        listeners,
        sent: total(&|name| SENT.contains(&name)),
        received: total(&|name| RECEIVED.contains(&name)),
        messages: total(&|name| name.starts_with("sent_")),
        by_copy: total(&|name| name.starts_with("by_copy_")),
        rows,
    }
}

impl View {
    /// Sorts in descending order of the key; equal lines by address.
    fn sort(&mut self, by: Sort) {
        let rank = |row: &Row| match by {
            Sort::Sent => row.sent.unwrap_or(0.0),
            Sort::Received => row.received.unwrap_or(0.0),
            Sort::Memory => row.memory as f64,
            Sort::Address => 0.0,
        };
        self.rows.sort_by(|a, b| {
            let address = || (&a.local, &a.peer).cmp(&(&b.local, &b.peer));
            rank(b).total_cmp(&rank(a)).then_with(address)
        });
    }

    /// The lines of the view, cut to the size of the screen.
    fn lines(&self, by: Sort, (columns, height): (usize, usize), colour: bool) -> Vec<String> {
        let head = format!(
            "{}, {}   sent {}  received {}  messages {:.0}/s  by copy instead {:.0}/s",
            several(self.connections, "connection"),
            several(self.listeners, "listener"),
            speed(Some(self.sent)),
            speed(Some(self.received)),
            self.messages,
            self.by_copy
        );
        let titles = [
            "State",
            "Mode",
            "Sent",
            "Received",
            "Recv-Q",
            "Send-Q",
            "Memory",
            "Local Address:Port",
            "Peer Address:Port",
        ];
        let mut table = vec![titles.map(String::from).to_vec()];
        for row in &self.rows {
            table.push(vec![
                row.state.into(),
                row.mode.into(),
                speed(row.sent),
                speed(row.received),
                units::bytes(row.recv_queue),
                units::bytes(row.send_queue),
                units::bytes(row.memory),
                row.local.clone(),
                row.peer.clone(),
            ]);
        }
        let cut = |line: &str| line.chars().take(columns).collect::<String>();
        let status = format!(
            "{HELP}   sorted by {}, every {:.1} s",
            by.name(),
            self.seconds
        );
        let mut lines = vec![cut(&head), cut(&status)];
        for (i, line) in out::table(&table, &[2, 3, 4, 5, 6]).iter().enumerate() {
            let line = cut(line);
            lines.push(match i {
                0 => out::paint(&line, Color::Bold, colour),
                _ => line,
            });
        }
        lines.truncate(height);
        lines
    }
}

fn several(n: usize, what: &str) -> String {
    match n {
        1 => format!("1 {what}"),
        n => format!("{n} {what}s"),
    }
}

/// A rate in bytes, with units of 1024.
fn speed(rate: Option<f64>) -> String {
    match rate {
        Some(rate) => format!("{}/s", units::bytes(rate as u64)),
        None => "-".into(),
    }
}

pub(crate) fn run(cli: &Cli, args: &TopArgs) -> Result<ExitCode, Fail> {
    if cli.json {
        return Err(Fail::Usage(
            "`top` is for eyes: `sdpctl --json stat watch` and `sdpctl --json ss -i` are for programs".into(),
        ));
    }
    let mut module = Module::open(&cli.messages)?;
    let mut before = look(&mut module)?;
    let terminal = Terminal::enter().map_err(|e| match e.kind() {
        io::ErrorKind::Unsupported => Fail::Other(
            "`top` needs a terminal for its input and its output: `sdpctl stat watch` can do without".into(),
        ),
        _ => Fail::io("the terminal", &e),
    })?;
    let mut sort = args.sort;
    let interval = Duration::from_secs_f64(args.interval);
    let mut left = args.count;
    // The first refresh comes soon, with rates of a short time.
    let mut until = Instant::now() + interval.min(Duration::from_millis(300));
    let mut shown: Option<View> = None;
    loop {
        match terminal.wait(until) {
            Event::End | Event::Key(b'q' | CTRL_C) => break,
            Event::Stale => {}
            Event::Key(key) => {
                sort = Sort::of_key(key).unwrap_or(sort);
            }
            Event::Time => {
                let now = look(&mut module)?;
                shown = Some(view(&before, &now));
                before = now;
                until = Instant::now() + interval;
                left = left.map(|n| n.saturating_sub(1));
            }
        }
        if let Some(view) = &mut shown {
            view.sort(sort);
            let lines = view.lines(sort, Terminal::size(), out::is_coloured(cli.color));
            terminal.show(&lines).map_err(|e| Fail::io("output", &e))?;
        }
        if left == Some(0) {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(local: &str, sent: f64, received: f64, memory: u64) -> Row {
        Row {
            local: local.into(),
            peer: "10.27.0.2:7000".into(),
            state: "Established",
            mode: "auto",
            sent: Some(sent),
            received: Some(received),
            recv_queue: 0,
            send_queue: 0,
            memory,
        }
    }

    fn view() -> View {
        View {
            seconds: 1.0,
            connections: 3,
            listeners: 1,
            sent: 3072.0,
            received: 0.0,
            messages: 7.0,
            by_copy: 2.0,
            rows: vec![
                row("10.27.0.1:2", 1024.0, 9.0, 5),
                row("10.27.0.1:1", 2048.0, 3.0, 5),
                row("10.27.0.1:3", 0.0, 6.0, 7),
            ],
        }
    }

    #[test]
    fn sorts_by_what_is_asked_for() {
        for (by, order) in [
            (Sort::Sent, [1, 2, 3]),
            (Sort::Received, [2, 3, 1]),
            (Sort::Memory, [3, 1, 2]),
            (Sort::Address, [1, 2, 3]),
        ] {
            let mut view = view();
            view.sort(by);
            let ports: Vec<String> = order.iter().map(|n| format!("10.27.0.1:{n}")).collect();
            let got: Vec<String> = view.rows.into_iter().map(|r| r.local).collect();
            assert_eq!(got, ports, "{by:?}");
        }
    }

    #[test]
    fn keys_choose_the_order() {
        for (key, sort) in [
            (b't', Some(Sort::Sent)),
            (b'r', Some(Sort::Received)),
            (b'm', Some(Sort::Memory)),
            (b'a', Some(Sort::Address)),
            (b'x', None),
        ] {
            assert_eq!(Sort::of_key(key), sort);
        }
    }

    #[test]
    fn fits_every_screen() {
        for size in [(1, 1), (10, 3), (80, 24), (300, 4)] {
            let lines = view().lines(Sort::Sent, size, false);
            assert!(lines.len() <= size.1, "{size:?}");
            assert!(
                lines.iter().all(|l| l.chars().count() <= size.0),
                "{size:?}"
            );
        }
        let lines = view().lines(Sort::Sent, (200, 24), false);
        assert_eq!(lines.len(), 2 + 1 + 3);
        assert!(lines[0]
            .starts_with("3 connections, 1 listener   sent 3K/s  received 0/s  messages 7/s"));
        assert!(
            lines[3].contains("1K/s") && lines[3].contains("10.27.0.1:2"),
            "{}",
            lines[3]
        );
    }

    #[test]
    fn rates_are_of_each_connection() {
        let socket = |cookie: u64, sent: u64| {
            let text = include_str!("../tests/data/ss.hex");
            let mut socket = model::recorded_sockets(text).remove(0);
            socket.cookie = Some(cookie);
            let ways = [
                ("tx_bytes", sent / 2),
                ("tx_zcopy_bytes", sent - sent / 2),
                ("rx_bytes", 5),
            ];
            socket.counters = ways.map(|(name, n)| (name.to_string(), n)).into();
            socket
        };
        let at = Instant::now();
        let look = |seconds, sockets, n| Look {
            at: at + Duration::from_secs(seconds),
            sockets,
            counters: [("tx_bytes".to_string(), n), ("sent_Data".to_string(), n)].into(),
        };
        let before = look(0, vec![socket(1, 100)], 1000);
        let now = look(2, vec![socket(1, 300), socket(2, 50)], 1010);
        let view = super::view(&before, &now);
        // The second socket is new: its counters are all of this interval.
        let rates: Vec<_> = view.rows.iter().map(|r| (r.sent, r.received)).collect();
        assert_eq!(rates, [(Some(100.0), Some(0.0)), (Some(25.0), Some(2.5))]);
        assert_eq!((view.sent, view.messages, view.connections), (5.0, 5.0, 2));
    }
}
