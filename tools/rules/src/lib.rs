// SPDX-License-Identifier: GPL-2.0

//! Rules that decide which sockets use SDP, as in OFED's libsdp.conf.
//!
//! A rule is a line `use sdp|tcp|both server|client|* PROGRAM ADDRESS:PORT`. The first matching
//! rule decides; a socket that matches no rule uses TCP. `libsdp.so` obeys the rules, and `sdpctl run`
//! checks them before it starts a program.

pub mod environment;

use std::fmt;
use std::net::IpAddr;

/// The protocol of a socket.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// SDP only.
    Sdp,
    /// TCP only.
    Tcp,
    /// For a client SDP, and TCP if the SDP connection fails; for a server SDP and TCP at a time.
    Both,
}

/// The role of a socket.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// It listens.
    Server,
    /// It connects.
    Client,
}

/// A network; without an address, all addresses.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Network(Option<(IpAddr, u8)>);

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    transport: Transport,
    /// `None` for both roles.
    role: Option<Role>,
    program: String,
    network: Network,
    ports: (u16, u16),
}

/// The rules in order. Without rules all sockets use TCP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules(Vec<Rule>);

/// An invalid line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Line number, from 1 on.
    pub line: usize,
    /// What is wrong.
    pub text: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.text)
    }
}

impl Rules {
    /// The rule for SDP everywhere.
    pub const ALL_SDP: &'static str = "use sdp * * *:*";

    /// Parses rules; `#` starts a comment.
    ///
    /// # Errors
    ///
    /// The first invalid line.
    pub fn parse(text: &str) -> Result<Self, Mistake> {
        let mut rules = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let words: Vec<&str> = line
                .split('#')
                .next()
                .unwrap_or_default()
                .split_ascii_whitespace()
                .collect();
            if !words.is_empty() {
                let line = index + 1;
                rules.push(rule(&words).map_err(|text| Mistake { line, text })?);
            }
        }
        Ok(Self(rules))
    }

    /// The decision of the first matching rule; TCP if no rule matches.
    pub fn decide(&self, role: Role, program: &str, ip: IpAddr, port: u16) -> Transport {
        let ip = ip.to_canonical();
        let fits = |rule: &&Rule| {
            rule.role.is_none_or(|r| r == role)
                && (rule.ports.0..=rule.ports.1).contains(&port)
                && rule.network.has(ip)
                && matches(&rule.program, program)
        };
        self.0
            .iter()
            .find(fits)
            .map_or(Transport::Tcp, |rule| rule.transport)
    }
}

fn rule(words: &[&str]) -> Result<Rule, String> {
    if words[0] == "log" {
        return Err("`log` is not used here: remove it; `sdpctl run -v` says what is done".into());
    }
    let ["use", transport, role, program, target] = words else {
        return Err("it is not `use sdp|tcp|both server|client|* PROGRAM ADDRESS:PORT`".into());
    };
    let transport = match *transport {
        "sdp" => Transport::Sdp,
        "tcp" => Transport::Tcp,
        "both" => Transport::Both,
        other => return Err(format!("`{other}` is none of sdp, tcp, both")),
    };
    let role = match *role {
        "server" | "listen" => Some(Role::Server),
        "client" | "connect" => Some(Role::Client),
        "*" => None,
        other => return Err(format!("`{other}` is none of server, client, *")),
    };
    let (address, ports) = target
        .rsplit_once(':')
        .ok_or_else(|| format!("`{target}` is not ADDRESS:PORT"))?;
    Ok(Rule {
        transport,
        role,
        program: (*program).into(),
        network: network(address)?,
        ports: range(ports)?,
    })
}

/// Parses `*`, an address, or a network with its prefix length. IPv6 addresses may be in brackets.
fn network(text: &str) -> Result<Network, String> {
    if text == "*" {
        return Ok(Network(None));
    }
    let bad = || format!("`{text}` is no address, nor one with /BITS, nor *");
    let bare: String = text.chars().filter(|c| !"[]".contains(*c)).collect();
    let (address, bits) = match bare.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (bare.as_str(), None),
    };
    let address: IpAddr = address.parse().map_err(|_| bad())?;
    let most: u8 = if address.is_ipv4() { 32 } else { 128 };
    let bits = match bits {
        None => most,
        Some(bits) => bits.parse().map_err(|_| bad())?,
    };
    let mapped = address.is_ipv6() && address.to_canonical().is_ipv4();
    match bits <= most {
        // Programs' IPv4-mapped addresses are compared as IPv4 addresses.
        true if mapped && bits >= 96 => Ok(Network(Some((address.to_canonical(), bits - 96)))),
        true => Ok(Network(Some((address, bits)))),
        false => Err(bad()),
    }
}

/// Parses `*`, a port, or a range of ports.
fn range(text: &str) -> Result<(u16, u16), String> {
    if text == "*" {
        return Ok((0, u16::MAX));
    }
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if first <= last => Ok((first, last)),
        _ => Err(format!("`{text}` is no port, nor FIRST-LAST, nor *")),
    }
}

impl Network {
    fn has(self, ip: IpAddr) -> bool {
        let Some((network, bits)) = self.0 else {
            return true;
        };
        let same = |a: u128, b: u128, width: u32| {
            let unused = width - u32::from(bits);
            unused == width || a >> unused == b >> unused
        };
        match (network, ip) {
            (IpAddr::V4(a), IpAddr::V4(b)) => same(a.to_bits().into(), b.to_bits().into(), 32),
            (IpAddr::V6(a), IpAddr::V6(b)) => same(a.to_bits(), b.to_bits(), 128),
            _ => false,
        }
    }
}

/// Whether a name matches a pattern with `*` for any characters and `?` for one.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    // The position after the last star, and the end of the text that it matches so far.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == b'?' || *c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match star {
                Some((at, reach)) => {
                    star = Some((at, reach + 1));
                    p = at + 1;
                    n = reach + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decide(rules: &str, role: Role, program: &str, ip: &str, port: u16) -> Transport {
        let rules = Rules::parse(rules).unwrap();
        rules.decide(role, program, ip.parse().unwrap(), port)
    }

    #[test]
    fn the_first_that_fits_decides() {
        let rules = "# a comment\n\
                     use tcp server sshd *:*   # another\n\
                     \n\
                     use tcp * * *:22\n\
                     use both client net* 10.0.0.0/8:5000-5999\n\
                     use both server nc 10.28.0.1:5000\n\
                     use both * nc 10.28.0.1:5001\n\
                     use sdp client * [fd27::]/16:*\n\
                     use sdp * * 10.27.0.0/16:*\n";
        for (role, program, ip, port, expected) in [
            (Role::Server, "sshd", "10.27.0.1", 7000, Transport::Tcp),
            (Role::Client, "sshd", "10.27.0.1", 7000, Transport::Sdp),
            (Role::Client, "ssh", "10.27.0.1", 22, Transport::Tcp),
            (Role::Client, "netperf", "10.1.2.3", 5000, Transport::Both),
            (Role::Client, "netperf", "10.1.2.3", 5999, Transport::Both),
            (Role::Client, "netperf", "10.1.2.3", 6000, Transport::Tcp),
            (Role::Client, "net", "10.1.2.3", 5000, Transport::Both),
            (Role::Client, "nc", "10.1.2.3", 5000, Transport::Tcp),
            (Role::Server, "netserver", "10.27.9.9", 5000, Transport::Sdp),
            (Role::Server, "nc", "10.28.0.1", 5000, Transport::Both),
            (Role::Client, "nc", "10.28.0.1", 5000, Transport::Tcp),
            (Role::Server, "nc", "10.28.0.1", 5001, Transport::Both),
            (Role::Client, "nc", "10.28.0.1", 5001, Transport::Both),
            (Role::Client, "nc", "fd27::2", 1, Transport::Sdp),
            (Role::Server, "nc", "fd27::2", 1, Transport::Tcp),
            (Role::Client, "nc", "fd28::2", 1, Transport::Tcp),
            // IPv4-mapped.
            (Role::Client, "nc", "::ffff:10.27.0.2", 1, Transport::Sdp),
        ] {
            let got = decide(rules, role, program, ip, port);
            assert_eq!(got, expected, "{role:?} {program} {ip} {port}");
        }
        assert_eq!(
            decide("", Role::Client, "nc", "10.27.0.1", 1),
            Transport::Tcp
        );
        for role in [Role::Client, Role::Server] {
            let all = decide(Rules::ALL_SDP, role, "nc", "::1", 1);
            assert_eq!(all, Transport::Sdp);
        }
    }

    #[test]
    fn bits_count_from_the_front() {
        for (network, ip, fits) in [
            ("0.0.0.0/0", "255.1.2.3", true),
            ("10.0.0.1", "10.0.0.1", true),
            ("[::ffff:10.0.0.1]", "10.0.0.1", true),
            ("::ffff:10.0.0.0/104", "10.9.9.9", true),
            ("::ffff:10.0.0.0/104", "11.9.9.9", false),
            ("10.0.0.1/32", "10.0.0.0", false),
            ("10.0.0.0/31", "10.0.0.1", true),
            ("10.0.0.0/31", "10.0.0.2", false),
            ("::/0", "::1", true),
            ("::/0", "1.2.3.4", false),
            ("[::1]", "::1", true),
        ] {
            let rules = format!("use sdp * * {network}:*");
            let got = decide(&rules, Role::Client, "x", ip, 1);
            assert_eq!(got == Transport::Sdp, fits, "{network} {ip}");
        }
    }

    #[test]
    fn patterns() {
        for (pattern, name, fits) in [
            ("*", "", true),
            ("*", "x", true),
            ("", "", true),
            ("", "x", false),
            ("net*", "netperf", true),
            ("net*", "ne", false),
            ("*perf", "netperf", true),
            ("*e*e*", "netserver", true),
            ("*e*e*", "netperf", true),
            ("*e*e*", "sshd", false),
            ("n?t", "net", true),
            ("n?t", "nt", false),
            ("a*b?d", "abcbcd", true),
            ("a*bb", "abab", false),
        ] {
            assert_eq!(matches(pattern, name), fits, "{pattern} {name}");
        }
    }

    #[test]
    fn mistakes_have_their_line() {
        for (text, line, word) in [
            ("use sdp client * *:*\nuse", 2, "it is not"),
            ("use udp client * *:*", 1, "`udp`"),
            ("use sdp peer * *:*", 1, "`peer`"),
            ("\n#\nuse any server * *:*", 3, "`any`"),
            ("use sdp client * *", 1, "ADDRESS:PORT"),
            ("use sdp client * host:5", 1, "`host`"),
            ("use sdp client * 10.0.0.0/33:5", 1, "`10.0.0.0/33`"),
            ("use sdp client * ::/129:5", 1, "`::/129`"),
            ("use sdp client * 10.0.0.0/x:5", 1, "`10.0.0.0/x`"),
            ("use sdp client * *:5-4", 1, "`5-4`"),
            ("use sdp client * *:65536", 1, "`65536`"),
            ("use sdp client * *:-1", 1, "`-1`"),
            ("use sdp client * *:", 1, "``"),
            ("log min-level 9 destination stderr", 1, "`log`"),
            ("use sdp client * *:* more", 1, "it is not"),
        ] {
            let mistake = Rules::parse(text).unwrap_err();
            assert_eq!(mistake.line, line, "{text}");
            assert!(mistake.text.contains(word), "{text}: {mistake}");
        }
    }
}
