// SPDX-License-Identifier: GPL-2.0
//! Several clients at a time, each a process of its own.

use crate::sock::Peer;
use std::io;
use std::process::{self, Child, Command, Stdio};

/// The connections that begin together.
#[derive(Clone, Copy)]
pub(crate) struct Group {
    pub(crate) id: u32,
    /// How many they are; 1 if nobody is waited for.
    pub(crate) members: u16,
}

/// Runs `count` clients with these arguments; prints their figures as one.
pub(crate) fn run(peer: Peer, count: u16, arguments: &[String]) -> io::Result<()> {
    let clients = (0..count)
        .map(|_| start(peer, count, arguments))
        .collect::<io::Result<Vec<_>>>()?;
    let figures = clients
        .into_iter()
        .map(figure)
        .collect::<io::Result<Vec<_>>>()?;
    let sum: f64 = figures.iter().sum();
    match arguments.first().map(String::as_str) {
        Some("bw") => println!("bw {sum:.3} MB/s"),
        _ => println!("lat {:.3} us", sum / f64::from(count)),
    }
    Ok(())
}

fn start(peer: Peer, count: u16, arguments: &[String]) -> io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--family", &peer.family.to_string()]);
    if let Some(mode) = peer.mode {
        command.args(["--mode", &mode.to_string()]);
    }
    if peer.zerocopy {
        command.arg("--zerocopy");
    }
    command
        .args(["--group", &process::id().to_string()])
        .args(["--members", &count.to_string()])
        .arg(peer.address.to_string())
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
}

/// What a client prints: the second word of its line.
fn figure(client: Child) -> io::Result<f64> {
    let output = client.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let figure = text.split_whitespace().nth(1).and_then(|w| w.parse().ok());
    match figure {
        Some(figure) if output.status.success() => Ok(figure),
        _ => Err(io::Error::other(format!(
            "a client ended with {}: {text}",
            output.status
        ))),
    }
}
