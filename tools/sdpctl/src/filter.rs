// SPDX-License-Identifier: GPL-2.0

//! Filters by state and address.

use std::net::IpAddr;
use std::str::FromStr;

use netlink_packet_core::DefaultNla;

use uapi::nl;

/// A set of states as a bit mask.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct StateSet(u32);

const CLOSED: u32 = 1 << 0;
const LISTEN: u32 = 1 << 1;
const SYN: u32 = (1 << 2) | (1 << 3) | (1 << 4);
const DEAD: u32 = 1 << 12;

impl StateSet {
    pub(crate) const ALL: Self = Self((1 << nl::STATES.len()) - 1);
    /// Default of `ss`.
    pub(crate) const CONNECTED: Self = Self(Self::ALL.0 & !(CLOSED | LISTEN | DEAD));
    pub(crate) const LISTENING: Self = Self(LISTEN);

    pub(crate) const NONE: Self = Self(0);

    pub(crate) fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    pub(crate) fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// A bit for each state.
    pub(crate) fn bits(self) -> u32 {
        self.0
    }
}

impl FromStr for StateSet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut set = 0;
        for name in text.split(',') {
            // Like `ss`: hello-sent and HelloSent are equal.
            let name: String = name.chars().filter(|c| !"-_".contains(*c)).collect();
            let is_name = |state: &str| state.eq_ignore_ascii_case(&name);
            let index = nl::STATES.iter().position(|state| is_name(state));
            set |= match (index, name.to_ascii_lowercase().as_str()) {
                (Some(index), _) => 1 << index,
                // Like `ss`.
                (_, "listening") => LISTEN,
                (_, "all") => Self::ALL.0,
                (_, "connected") => Self::CONNECTED.0,
                (_, "synchronized") => Self::CONNECTED.0 & !SYN,
                _ => {
                    return Err(format!(
                        "there are {}, all, connected, synchronized",
                        nl::STATES.join(", ")
                    ))
                }
            };
        }
        Ok(Self(set))
    }
}

/// An address or a network.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    address: IpAddr,
    bits: u8,
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address = address.trim_start_matches('[').trim_end_matches(']');
        let address: IpAddr = address
            .parse()
            .map_err(|_| format!("`{address}` is no address"))?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => most,
            Some(bits) => match bits.parse() {
                Ok(bits) if bits <= most => bits,
                _ => return Err(format!("from 0 to {most} bits")),
            },
        };
        Ok(Self { address, bits })
    }
}

impl Network {
    /// Whether the network contains the address. An IPv4 address and its IPv4-mapped IPv6 address
    /// are equal, as in the module.
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        let same = |one: u128, other: u128, width: u32| {
            let rest = width - u32::from(self.bits);
            (one ^ other).checked_shr(rest).unwrap_or(0) == 0
        };
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(one), IpAddr::V4(other)) => {
                same(one.to_bits().into(), other.to_bits().into(), 32)
            }
            (IpAddr::V4(_), IpAddr::V6(_)) => false,
            (IpAddr::V6(one), IpAddr::V4(other)) => {
                same(one.to_bits(), other.to_ipv6_mapped().to_bits(), 128)
            }
            (IpAddr::V6(one), IpAddr::V6(other)) => same(one.to_bits(), other.to_bits(), 128),
        }
    }

    /// Its netlink attributes; `addr` and `prefix` are the numbers of the attributes for the
    /// address and the prefix length.
    pub(crate) fn attrs(&self, addr: u16, prefix: u16) -> [DefaultNla; 2] {
        let bytes = match self.address {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        [
            DefaultNla::new(addr, bytes),
            DefaultNla::new(prefix, vec![self.bits]),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ESTABLISHED: u32 = 1 << 5;

    #[test]
    fn reads_states() {
        assert_eq!("established".parse(), Ok(StateSet(ESTABLISHED)));
        assert_eq!("Listen,dead".parse(), Ok(StateSet(LISTEN | DEAD)));
        assert_eq!("fin-wait-1".parse(), Ok(StateSet(1 << 6)));
        assert_eq!("all".parse(), Ok(StateSet::ALL));
        assert_eq!(
            "synchronized,hellosent".parse(),
            Ok(StateSet(0b1111_1110_1000))
        );
        for bad in ["", "x", "listen,", "listen established"] {
            assert!(bad.parse::<StateSet>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_states_have_their_places() {
        for (name, bits) in [
            ("Closed", CLOSED),
            ("Listen", LISTEN),
            ("Resolving", 1 << 2),
            ("HelloSent", 1 << 3),
            ("HelloReceived", 1 << 4),
            ("Established", ESTABLISHED),
            ("Dead", DEAD),
        ] {
            assert_eq!(nl::STATES[bits.trailing_zeros() as usize], name);
        }
    }

    #[test]
    fn reads_networks() {
        let network = |text: &str| {
            text.parse::<Network>()
                .map(|n| (n.address.to_string(), n.bits))
        };
        assert_eq!(network("10.0.0.0/8"), Ok(("10.0.0.0".into(), 8)));
        assert_eq!(network("10.0.0.1"), Ok(("10.0.0.1".into(), 32)));
        assert_eq!(network("[fd27::1]"), Ok(("fd27::1".into(), 128)));
        assert_eq!(network("::/0"), Ok(("::".into(), 0)));
        for bad in [
            "",
            "10",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/",
            "10.0.0.0/-1",
            "localhost",
        ] {
            assert!(network(bad).is_err(), "{bad}");
        }
    }
}
