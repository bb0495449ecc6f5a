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
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{sync_channel, Receiver, SyncSender, TrySendError};
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;

/// QEMU's maximum for a frame, which may contain many segments of TCP.
const LARGEST: usize = 68 * 1024;
/// A frame begins with the destination's and the sender's address, and a type of 2 bytes.
const HEADER: usize = 14;
/// A machine can invent addresses, so the switch keeps at most this number of them.
pub const KNOWN: usize = 1024;
/// Maximum number of frames that wait for a card: a Unix socket keeps only a few, fewer than TCP
/// sends at once.
const WAITING: usize = 256;
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

/// The switch's side of a card. A thread of its own writes to the card's socket, so that a card that
/// does not read stops no other one.
struct Port {
    number: usize,
    socket: UnixDatagram,
    card: PathBuf,
    queue: SyncSender<Arc<[u8]>>,
    /// Whether the log says that frames are dropped. It says this once: the card may not read for
    /// long.
    has_told: AtomicBool,
}

impl Port {
    /// Queues a frame for the card, or drops it if the queue is full, as a switch does.
    fn send(&self, frame: &Arc<[u8]>) {
        if let Err(TrySendError::Full(_)) = self.queue.try_send(Arc::clone(frame)) {
            if !self.has_told.swap(true, Ordering::Relaxed) {
                eprintln!(
                    "adapter: network {}: the card does not read fast enough, frames are dropped",
                    self.number
                );
            }
        }
    }

    /// Sends the queued frames to the card. A frame to a machine that does not run is lost, as on a
    /// cable without a machine at its end. If the socket is full, this waits for the card.
    fn run(&self, queue: &Receiver<Arc<[u8]>>) {
        for frame in queue {
            let _ = self.socket.send_to(&frame, &self.card);
        }
    }
}

/// The cards to which a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// None: the frame is invalid, or its destination is the card that has sent it.
    Drop,
    /// This one.
    To(usize),
    /// All except the card that has sent it.
    Flood,
}

/// Behind which card an address is.
#[derive(Default)]
pub struct Addresses(HashMap<Address, usize>);

impl Addresses {
    /// Learns where the sender of a frame is, and returns where the frame goes.
    pub fn route(&mut self, from: usize, frame: &[u8]) -> Route {
        let Some((Some(to), Some(sender))) = frame
            .get(..HEADER)
            .map(|header| (header.first_chunk::<6>(), header[6..].first_chunk::<6>()))
        else {
            return Route::Drop;
        };
        // A machine that sends as a group would otherwise get what others send to the group.
        if sender[0] & GROUP != 0 {
            return Route::Drop;
        }
        if self.0.len() >= KNOWN && !self.0.contains_key(sender) {
            self.0.clear();
        }
        self.0.insert(*sender, from);
        // A group is never known, so its frames go to all.
        match self.0.get(to) {
            Some(to) if *to == from => Route::Drop,
            Some(to) => Route::To(*to),
            None => Route::Flood,
        }
    }

    /// The number of addresses.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no address is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The ports, and behind which of them an address is.
struct Switch {
    ports: Vec<Port>,
    addresses: Mutex<Addresses>,
}

impl Switch {
    /// Forwards a frame that a card has sent.
    fn forward(&self, from: usize, frame: &[u8]) {
        let route = self.addresses.lock().route(from, frame);
        if route == Route::Drop {
            return;
        }
        let frame = Arc::from(frame);
        for (number, port) in self.ports.iter().enumerate() {
            if route == Route::To(number) || route == Route::Flood && number != from {
                port.send(&frame);
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

/// Forwards frames between the network cards, with two threads for each card.
///
/// # Errors
///
/// A path is in use, or a thread cannot be started.
pub fn start(cards: &[Names]) -> io::Result<()> {
    let mut queues = Vec::new();
    let mut ports = Vec::new();
    for (index, names) in cards.iter().enumerate() {
        let (sender, queue) = sync_channel(WAITING);
        queues.push(queue);
        ports.push(Port {
            number: index + 1,
            socket: UnixDatagram::bind(&names.own).map_err(|error| {
                io::Error::new(error.kind(), format!("{}: {error}", names.own.display()))
            })?,
            card: names.card.clone(),
            queue: sender,
            has_told: AtomicBool::new(false),
        });
    }
    let switch = Arc::new(Switch {
        ports,
        addresses: Mutex::default(),
    });
    for (port, queue) in queues.into_iter().enumerate() {
        let (reader, writer) = (Arc::clone(&switch), Arc::clone(&switch));
        thread::Builder::new()
            .name(format!("network {}", port + 1))
            .spawn(move || reader.run(port))?;
        thread::Builder::new()
            .name(format!("to network {}", port + 1))
            .spawn(move || writer.ports[port].run(&queue))?;
    }
    Ok(())
}
