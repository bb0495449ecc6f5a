// SPDX-License-Identifier: GPL-2.0

//! The server of `sdpctl bench`.

use std::io::{
    self,
    Read,
    Write, //
};
use std::net::{
    Ipv4Addr,
    Ipv6Addr,
    TcpStream, //
};
use std::process::ExitCode;
use std::thread;

use super::wire::{
    What,
    Wish,
    HEADER_BYTES, //
};
use super::{
    failed,
    prepare,
    resolve,
    Buffer,
    PORT, //
};
use crate::cli::BenchArgs;
use crate::fail::Fail;
use crate::out;
use crate::sdp;

/// Maximum number of simultaneous clients.
const MOST_CLIENTS: usize = 16;

/// Serves clients.
pub(super) fn serve(args: &BenchArgs, at: Option<&str>) -> Result<ExitCode, Fail> {
    let listener = match at {
        Some(at) => {
            let addrs = resolve(at)?;
            sdp::listen(&addrs[0]).map_err(|e| failed(addrs[0], &e))?
        }
        // All addresses of both families; without IPv6, all IPv4 addresses.
        None => sdp::listen(&(Ipv6Addr::UNSPECIFIED, PORT).into())
            .or_else(|_| sdp::listen(&(Ipv4Addr::UNSPECIFIED, PORT).into()))
            .map_err(|e| failed(format_args!("port {PORT}"), &e))?,
    };
    let at = listener.local_addr().map_err(|e| failed("listen", &e))?;
    out::say(format_args!("listening at {at}"));
    let mut clients: Vec<thread::JoinHandle<()>> = Vec::new();
    let mut left = args.count;
    while left != Some(0) {
        let (socket, peer) = listener.accept().map_err(|e| failed("accept", &e))?;
        clients.retain(|client| !client.is_finished());
        if clients.len() >= MOST_CLIENTS {
            out::say(format_args!(
                "{peer}: {MOST_CLIENTS} others are being served"
            ));
            continue;
        }
        left = left.map(|n| n - 1);
        clients.push(thread::spawn(move || {
            if let Err(e) = attend(socket) {
                out::say(format_args!("{peer}: {e}"));
            }
        }));
    }
    for client in clients {
        let _ = client.join();
    }
    Ok(ExitCode::SUCCESS)
}

/// Serves a client until it disconnects.
fn attend(mut socket: TcpStream) -> io::Result<()> {
    prepare(&socket)?;
    loop {
        let mut header = [0; HEADER_BYTES];
        match socket.read_exact(&mut header) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            read => read?,
        }
        let wish = Wish::from_bytes(&header)
            .ok_or_else(|| io::Error::other("not what `sdpctl bench` of this version sends"))?;
        sdp::choose_mode(&socket, wish.mode)?;
        let mut buffer = Buffer::new(wish.bytes as usize);
        for _ in 0..wish.count {
            socket.read_exact(buffer.as_mut())?;
            if wish.what == What::Latency {
                socket.write_all(buffer.as_mut())?;
            }
        }
        if wish.what == What::Throughput {
            socket.write_all(&[1])?;
        }
    }
}
