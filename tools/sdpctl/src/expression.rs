// SPDX-License-Identifier: GPL-2.0

//! Filters in the syntax of `ss` (`man 8 ss`): `state established sport = :80 or dst 10.0.0.0/8`.

use std::cmp::Ordering;
use std::iter::Peekable;
use std::net::IpAddr;
use std::vec::IntoIter;

use crate::filter::{
    Network,
    StateSet, //
};
use crate::model::{
    End,
    Socket, //
};

/// A parsed filter.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Filter {
    /// `None` if the filter has no condition on states.
    pub(crate) states: Option<StateSet>,
    condition: Option<Condition>,
}

#[derive(Debug, PartialEq, Eq)]
enum Condition {
    Any(Vec<Condition>),
    All(Vec<Condition>),
    Not(Box<Condition>),
    Port(Side, Comparison, u16),
    Network(Side, Network),
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Side {
    Local,
    Peer,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    Greater,
    AtMost,
    AtLeast,
}

impl Comparison {
    fn read(word: &str) -> Option<Self> {
        Some(match word {
            "=" | "==" | "eq" => Self::Equal,
            "!=" | "ne" | "neq" => Self::NotEqual,
            "<" | "lt" => Self::Less,
            ">" | "gt" => Self::Greater,
            "<=" | "le" | "leq" => Self::AtMost,
            ">=" | "ge" | "geq" => Self::AtLeast,
            _ => return None,
        })
    }

    fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::Greater => order.is_gt(),
            Self::AtMost => order.is_le(),
            Self::AtLeast => order.is_ge(),
        }
    }
}

impl Filter {
    /// Parses the words; one argument may contain several words.
    ///
    /// # Errors
    ///
    /// A message for the user.
    pub(crate) fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut words = Words(tokens(arguments).into_iter().peekable());
        let mut states = None;
        while let Some(word) = words.take_one_of(&["state", "exclude"]) {
            let named: StateSet = words.next("a state")?.parse()?;
            let before = states.unwrap_or(StateSet::NONE);
            states = Some(match word.as_str() {
                "state" => before.with(named),
                _ => states.unwrap_or(StateSet::ALL).without(named),
            });
        }
        let condition = match words.is_empty() {
            true => None,
            false => Some(words.any()?),
        };
        match words.0.next() {
            None => Ok(Self { states, condition }),
            Some(word) => Err(format!("`{word}` is one word too many")),
        }
    }

    pub(crate) fn matches(&self, socket: &Socket) -> bool {
        self.condition
            .as_ref()
            .is_none_or(|condition| condition.holds(&socket.local, &socket.peer))
    }
}

impl Condition {
    fn holds(&self, local: &End, peer: &End) -> bool {
        let end = |side: Side| match side {
            Side::Local => local,
            Side::Peer => peer,
        };
        match self {
            Self::Any(all) => all.iter().any(|one| one.holds(local, peer)),
            Self::All(all) => all.iter().all(|one| one.holds(local, peer)),
            Self::Not(one) => !one.holds(local, peer),
            Self::Port(side, comparison, port) => comparison.holds(end(*side).port.cmp(port)),
            Self::Network(side, network) => network.has(end(*side).address),
        }
    }
}

/// Splits arguments; parentheses and operators need no spaces around them.
fn tokens(arguments: &[String]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for word in arguments.iter().flat_map(|text| text.split_whitespace()) {
        let mut glued = false;
        for c in word.chars() {
            let is_sign = |c: char| "=<>!&|".contains(c);
            match all.last_mut() {
                Some(last)
                    if glued
                        && !"()".contains(c)
                        && last != "("
                        && last != ")"
                        && last.ends_with(is_sign) == is_sign(c) =>
                {
                    last.push(c);
                }
                _ => all.push(c.into()),
            }
            glued = true;
        }
    }
    all
}

struct Words(Peekable<IntoIter<String>>);

impl Words {
    fn is_empty(&mut self) -> bool {
        self.0.peek().is_none()
    }

    fn next(&mut self, what: &str) -> Result<String, String> {
        self.0.next().ok_or_else(|| format!("{what} is missing"))
    }

    fn take_one_of(&mut self, wanted: &[&str]) -> Option<String> {
        self.0.next_if(|word| wanted.contains(&word.as_str()))
    }

    fn any(&mut self) -> Result<Condition, String> {
        let mut all = vec![self.all()?];
        while self.take_one_of(&["or", "|", "||"]).is_some() {
            all.push(self.all()?);
        }
        Ok(Condition::Any(all))
    }

    fn all(&mut self) -> Result<Condition, String> {
        let mut all = vec![self.one()?];
        loop {
            let and = self.take_one_of(&["and", "&", "&&"]).is_some();
            let ends = |word: &String| [")", "or", "|", "||"].contains(&word.as_str());
            if !and && self.0.peek().is_none_or(ends) {
                return Ok(Condition::All(all));
            }
            all.push(self.one()?);
        }
    }

    fn one(&mut self) -> Result<Condition, String> {
        let word = self.next("a condition")?;
        match word.as_str() {
            "not" | "!" => Ok(Condition::Not(Box::new(self.one()?))),
            "(" => {
                let inside = self.any()?;
                match self.next("`)`")?.as_str() {
                    ")" => Ok(inside),
                    other => Err(format!("`{other}` stands where `)` belongs")),
                }
            }
            "src" => self.end(Side::Local),
            "dst" => self.end(Side::Peer),
            "sport" => self.port(Side::Local),
            "dport" => self.port(Side::Peer),
            other => Err(format!(
                "`{other}` is no condition: there are src, dst, sport, dport, not, and, or, parentheses; and \
                 before them, state and exclude"
            )),
        }
    }

    fn comparison(&mut self) -> Option<Comparison> {
        let word = self.0.next_if(|word| Comparison::read(word).is_some());
        word.and_then(|word| Comparison::read(&word))
    }

    /// `sport = :80`; the colon is optional.
    fn port(&mut self, side: Side) -> Result<Condition, String> {
        let comparison = self.comparison().unwrap_or(Comparison::Equal);
        let word = self.next("a port")?;
        let number = word.trim_start_matches('*').trim_start_matches(':');
        Ok(Condition::Port(side, comparison, port(number)?))
    }

    /// `dst 10.0.0.0/8`, `dst = [fd27::1]:80`, `dst :80`.
    fn end(&mut self, side: Side) -> Result<Condition, String> {
        let comparison = self.comparison().unwrap_or(Comparison::Equal);
        let word = self.next("an address")?;
        // An IPv6 address without brackets has no port.
        let is_v6 = word
            .split('/')
            .next()
            .is_some_and(|ip| ip.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv6()));
        let (address, number) = match word.rsplit_once(':') {
            Some((address, number)) if !is_v6 && !number.contains(']') => (address, Some(number)),
            _ => (word.as_str(), None),
        };
        let mut both = Vec::new();
        if !["", "*"].contains(&address) {
            both.push(Condition::Network(side, address.parse()?));
        }
        if let Some(number) = number.filter(|number| *number != "*") {
            both.push(Condition::Port(side, Comparison::Equal, port(number)?));
        }
        match comparison {
            Comparison::Equal => Ok(Condition::All(both)),
            Comparison::NotEqual => Ok(Condition::Not(Box::new(Condition::All(both)))),
            _ => Err("an address is compared by `=` and `!=` only".into()),
        }
    }
}

fn port(number: &str) -> Result<u16, String> {
    number
        .parse()
        .map_err(|_| format!("`{number}` is no port (ports are numbers up to 65535)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Filter, String> {
        Filter::parse(&[text.into()])
    }

    fn end(text: &str) -> End {
        let (address, port) = text.rsplit_once(' ').expect("an address and a port");
        End {
            address: address.parse().expect("an address"),
            port: port.parse().expect("a port"),
        }
    }

    fn holds(text: &str, local: &str, peer: &str) -> bool {
        let filter = parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        let condition = filter.condition.as_ref();
        condition.is_none_or(|condition| condition.holds(&end(local), &end(peer)))
    }

    #[test]
    fn conditions_are_those_of_ss() {
        let (local, peer) = ("10.0.0.1 80", "10.1.0.2 5000");
        for yes in [
            "",
            "sport = :80",
            "sport :80",
            "sport=80",
            "sport eq *:80",
            "( sport = :80 )",
            "(sport=:80)",
            "dport > :4999 and dport < :5001",
            "dport >= 5000 dport <= 5000",
            "dport ge 5000 && dport le 5000",
            "sport != :81",
            "not sport = :81",
            "!sport=:81",
            "sport = :81 or dport = :5000",
            "( sport = :81 || sport = :80 ) && dst 10.1.0.0/16",
            "dst 10.1.0.2",
            "dst = 10.1.0.2:5000",
            "dst 10.1.0.0/16:5000",
            "dst :5000",
            "dst 10.1.0.2:*",
            "src *:80",
            "dst != 10.0.0.0/16",
            "src 10.0.0.1 or sport = :1 and dport = :1",
        ] {
            assert!(holds(yes, local, peer), "{yes}");
        }
        for no in [
            "sport = :81",
            "sport neq 80",
            "dport lt 5000",
            "dport gt 5000",
            "dst 10.1.0.2:5001",
            "dst 10.1.0.3",
            "dst fd27::/16",
            "( src 10.0.0.1 or sport = :1 ) and dport = :1",
            "not ( sport = :80 and dport = :5000 )",
        ] {
            assert!(!holds(no, local, peer), "{no}");
        }
        let (local, peer) = ("fd27::1 80", "fd27::2 5000");
        for yes in [
            "dst fd27::2",
            "dst [fd27::2]",
            "dst [fd27::2]:5000",
            "src fd27::/64",
            "src ::/0",
            "src [fd27::]/64:80",
        ] {
            assert!(holds(yes, local, peer), "{yes}");
        }
        assert!(holds(
            "dst 10.1.0.0/16",
            "::ffff:10.0.0.1 80",
            "::ffff:10.1.0.2 5000"
        ));
        assert!(holds("dst ::/0", "10.0.0.1 80", "10.1.0.2 5000"));
        assert!(holds("dst ::ffff:10.1.0.2", "10.0.0.1 80", "10.1.0.2 5000"));
        for no in ["dst [fd27::2]:80", "dst 0.0.0.0/0", "src fd28::/16"] {
            assert!(!holds(no, local, peer), "{no}");
        }
    }

    #[test]
    fn states_come_first() {
        let states = |text: &str| parse(text).map(|filter| filter.states);
        let set = |text: &str| text.parse::<StateSet>().map(Some);
        assert_eq!(states("sport = :80"), Ok(None));
        assert_eq!(states("state listen"), set("listen"));
        assert_eq!(
            states("state listen state dead sport = :80"),
            set("listen,dead")
        );
        assert_eq!(
            states("exclude listen exclude dead"),
            set("closed,connected")
        );
        assert_eq!(
            states("state synchronized exclude established"),
            set("fin-wait-1,fin-wait-2,close-wait,last-ack,closing,draining")
        );
    }

    #[test]
    fn mistakes_are_named() {
        for (text, words) in [
            ("port = :80", "`port` is no condition"),
            ("sport = :http", "`http` is no port"),
            ("sport = :65536", "is no port"),
            ("sport =", "a port is missing"),
            ("dst > 10.0.0.1", "compared by"),
            ("dst host", "`host` is no address"),
            ("( sport = :80", "`)` is missing"),
            ("sport = :80 )", "one word too many"),
            ("sport = :80 and", "a condition is missing"),
            ("state", "a state is missing"),
            ("state x", "there are"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
