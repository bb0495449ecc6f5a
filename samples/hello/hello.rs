// SPDX-License-Identifier: GPL-2.0

//! A text to a server and back, over SDP:
//!
//! ```text
//! hello-rust serve 192.0.2.1 7000        answers one client
//! hello-rust ask 192.0.2.1 7000 TEXT     prints what the server answers
//! ```
//!
//! Built and run by `cargo run --manifest-path samples/hello/Cargo.toml -- serve 192.0.2.1 7000`. The crate
//! socket2 opens sockets of any family. Connected, such a socket serves as the standard library's
//! `TcpStream`: its addresses are those of AF_INET or AF_INET6.

use std::env;
use std::error::Error;
use std::io::{
    Read,
    Write, //
};
use std::net::{
    IpAddr,
    Shutdown,
    SocketAddr,
    TcpListener,
    TcpStream, //
};
use std::process::ExitCode;

use socket2::{
    Domain,
    Socket,
    Type, //
};

const AF_INET_SDP: i32 = 27;
const AF_INET6_SDP: i32 = 28;

fn open(address: &SocketAddr) -> Result<Socket, Box<dyn Error>> {
    let family = match address {
        SocketAddr::V4(_) => AF_INET_SDP,
        SocketAddr::V6(_) => AF_INET6_SDP,
    };
    Socket::new(Domain::from(family), Type::STREAM, None)
        .map_err(|e| format!("socket (is the module ib_sdp installed?): {e}").into())
}

/// Sends a text and ends this half of the stream.
fn reply(mut stream: &TcpStream, text: &[u8]) -> Result<(), Box<dyn Error>> {
    stream.write_all(text)?;
    Ok(stream.shutdown(Shutdown::Write)?)
}

/// All that the peer sends until it ends its half of the stream.
fn receive(mut stream: &TcpStream) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut text = Vec::new();
    stream.read_to_end(&mut text)?;
    Ok(text)
}

fn serve(address: SocketAddr) -> Result<(), Box<dyn Error>> {
    let socket = open(&address)?;
    socket.bind(&address.into())?;
    socket.listen(1)?;
    let (stream, _) = TcpListener::from(socket).accept()?;
    reply(&stream, &receive(&stream)?)
}

fn ask(address: SocketAddr, text: &str) -> Result<(), Box<dyn Error>> {
    let socket = open(&address)?;
    socket.connect(&address.into())?;
    let stream = TcpStream::from(socket);
    reply(&stream, text.as_bytes())?;
    println!("{}", String::from_utf8_lossy(&receive(&stream)?));
    Ok(())
}

fn address(ip: &str, port: &str) -> Result<SocketAddr, Box<dyn Error>> {
    Ok((ip.parse::<IpAddr>()?, port.parse::<u16>()?).into())
}

fn run(words: &[&str]) -> Result<(), Box<dyn Error>> {
    match *words {
        ["serve", ip, port] => serve(address(ip, port)?),
        ["ask", ip, port, text] => ask(address(ip, port)?, text),
        _ => Err("usage: hello-rust serve ADDRESS PORT | hello-rust ask ADDRESS PORT TEXT".into()),
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("hello-rust: {e}");
            ExitCode::FAILURE
        }
    }
}
