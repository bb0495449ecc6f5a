// SPDX-License-Identifier: GPL-2.0

//! Whether a server takes TCP connections at the port at which SDP was tried. Only a connection
//! shows this, so the server sees a TCP connection that is closed at once.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use serde::Serialize;

use crate::dev;
use crate::sdp;

/// How long to wait for the answer, in seconds: TCP repeats a lost SYN after one second.
const WAIT_S: f64 = 2.0;

/// The answer of a TCP port.
#[derive(Copy, Clone, Debug, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Answer {
    /// It takes connections.
    Accepts,
    /// Nobody listens, or a firewall rejects the connection.
    Refuses,
}

impl Answer {
    pub(crate) fn show(self) -> &'static str {
        match self {
            Self::Accepts => "its TCP port takes connections",
            Self::Refuses => "its TCP port refuses connections",
        }
    }
}

/// The answer of the TCP port. `None` if there is no answer in time, if this machine cannot ask by
/// TCP, or if SDP shares its ports with TCP over one of `devices`, because the answer may then be
/// that of an SDP server.
pub(crate) fn probe(addr: &SocketAddr, devices: &[dev::Device]) -> Option<Answer> {
    if devices.iter().any(dev::Device::shares_ports) {
        return None;
    }
    answer(&connect(addr))
}

fn connect(addr: &SocketAddr) -> io::Result<()> {
    let family = match addr {
        SocketAddr::V4(_) => libc::AF_INET,
        SocketAddr::V6(_) => libc::AF_INET6,
    };
    let socket = sdp::open(family, libc::IPPROTO_TCP)?;
    // A rule of `sdpctl steer` may have made it an SDP socket.
    if sdp::option(socket.as_raw_fd(), libc::SO_PROTOCOL)? != libc::IPPROTO_TCP {
        return Err(io::ErrorKind::Unsupported.into());
    }
    sdp::connect_socket(&socket, addr, WAIT_S)
}

fn answer(connected: &io::Result<()>) -> Option<Answer> {
    match connected {
        Ok(()) => Some(Answer::Accepts),
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => Some(Answer::Refuses),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_port_with_and_without_a_listener() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        assert_eq!(probe(&addr, &[]), Some(Answer::Accepts));
        let rnic = dev::Device {
            name: "siw0".into(),
            node_type: "RNIC".into(),
            ports: vec![dev::Port {
                number: 1,
                state: "ACTIVE".into(),
                link_layer: "Ethernet".into(),
                rate: String::new(),
                netdev: None,
                gids: Vec::new(),
                usable: true,
                roce: false,
                reason: None,
            }],
        };
        assert_eq!(probe(&addr, &[rnic]), None);
        // Nobody listens at port 1.
        let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
        assert_eq!(probe(&nobody, &[]), Some(Answer::Refuses));
    }

    #[test]
    fn other_errors_are_no_answer() {
        for errno in [libc::ETIMEDOUT, libc::EACCES, libc::ENETUNREACH] {
            assert_eq!(answer(&Err(io::Error::from_raw_os_error(errno))), None);
        }
    }
}
