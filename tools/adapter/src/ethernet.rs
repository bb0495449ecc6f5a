// SPDX-License-Identifier: GPL-2.0
//! A switch for the machines' network cards, which are beside the adapters.
//!
//! QEMU's network `dgram` connects two machines and no more, with a Unix datagram for each frame.
//! With three or more machines, each QEMU sends the frames to this switch instead.

use std::collections::HashMap;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;

/// QEMU's maximum for a frame, which may contain many segments of TCP.
const LARGEST: usize = 68 * 1024;
/// A frame begins with the destination's and the sender's address, and a type of 2 bytes.
const HEADER: usize = 14;
/// A machine can invent addresses, so the switch keeps at most this number of them.
const KNOWN: usize = 1024;
/// This bit of the first byte marks the address of a group of machines, or of all.
const GROUP: u8 = 1;

type Address = [u8; 6];

/// The sockets of a machine's network card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// The switch receives frames here.
    pub own: PathBuf,
    /// QEMU receives frames here.
    pub card: PathBuf,
}

impl FromStr for Names {
    type Err = &'static str;

    /// Parses `OWN=CARD`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('=') {
            Some((own, card)) if !own.is_empty() && !card.is_empty() => Ok(Self {
                own: own.into(),
                card: card.into(),
            }),
            _ => Err("two paths with = between them are needed"),
        }
    }
}

struct Port {
    socket: UnixDatagram,
    card: PathBuf,
}

impl Port {
    /// Sends a frame to the card. A frame to a machine that does not run is lost, as on a cable
    /// without a machine at its end. If the card's queue is full, this waits, as QEMU does without
    /// a switch.
    fn send(&self, frame: &[u8]) {
        let _ = self.socket.send_to(frame, &self.card);
    }
}

/// The ports, and behind which of them an address is.
struct Switch {
    ports: Vec<Port>,
    known: Mutex<HashMap<Address, usize>>,
}

impl Switch {
    /// Forwards a frame that a card has sent.
    fn forward(&self, from: usize, frame: &[u8]) {
        let Some((Some(to), Some(sender))) = frame
            .get(..HEADER)
            .map(|header| (header.first_chunk::<6>(), header[6..].first_chunk::<6>()))
        else {
            return;
        };
        // A machine that sends as a group would otherwise get what others send to the group.
        if sender[0] & GROUP != 0 {
            return;
        }
        let known = {
            let mut known = self.known.lock();
            if known.len() >= KNOWN && !known.contains_key(sender) {
                known.clear();
            }
            known.insert(*sender, from);
            known.get(to).copied()
        };
        // A group is never known, so its frames go to all.
        for (number, port) in self.ports.iter().enumerate() {
            if number != from && known.is_none_or(|to| to == number) {
                port.send(frame);
            }
        }
    }

    /// Forwards all frames of a card.
    fn run(&self, port: usize) {
        let mut frame = vec![0; LARGEST];
        while let Ok(count) = self.ports[port].socket.recv(&mut frame) {
            self.forward(port, &frame[..count]);
        }
    }
}

/// Forwards frames between the network cards, with a thread for each card.
///
/// # Errors
///
/// A path is in use, or a thread cannot be started.
pub fn start(cards: &[Names]) -> io::Result<()> {
    let ports = cards
        .iter()
        .map(|names| {
            Ok(Port {
                socket: UnixDatagram::bind(&names.own)?,
                card: names.card.clone(),
            })
        })
        .collect::<io::Result<_>>()?;
    let switch = Arc::new(Switch {
        ports,
        known: Mutex::default(),
    });
    for port in 0..cards.len() {
        let switch = Arc::clone(&switch);
        thread::Builder::new()
            .name(format!("network {}", port + 1))
            .spawn(move || switch.run(port))?;
    }
    Ok(())
}
