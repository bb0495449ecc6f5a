// SPDX-License-Identifier: GPL-2.0
//! The format of the control channel: one line for each call, with words that blanks separate, and
//! one line for each answer, `ok WORDS...` or `err ERRNO TEXT...`.

use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;
use std::str::FromStr;

/// One end of a control connection.
pub(crate) struct Channel {
    reader: BufReader<TcpStream>,
}

impl Channel {
    pub(crate) fn new(stream: TcpStream) -> io::Result<Channel> {
        stream.set_nodelay(true)?;
        Ok(Channel {
            reader: BufReader::new(stream),
        })
    }

    pub(crate) fn write_line(&mut self, line: &str) -> io::Result<()> {
        self.reader
            .get_mut()
            .write_all(format!("{line}\n").as_bytes())
    }

    /// The next line, or `None` if the other side has closed the connection.
    pub(crate) fn read_line(&mut self) -> io::Result<Option<String>> {
        let mut line = String::new();
        match self.reader.read_line(&mut line)? {
            0 => Ok(None),
            _ => Ok(Some(line.trim_end().to_owned())),
        }
    }
}

/// The words of a call or an answer, which are taken one by one.
pub(crate) struct Words<'a>(std::str::SplitWhitespace<'a>);

impl<'a> Words<'a> {
    pub(crate) fn new(line: &'a str) -> Words<'a> {
        Words(line.split_whitespace())
    }

    pub(crate) fn word(&mut self) -> io::Result<&'a str> {
        self.0
            .next()
            .ok_or_else(|| io::Error::other("a word is missing"))
    }

    pub(crate) fn get<T: FromStr>(&mut self) -> io::Result<T> {
        let word = self.word()?;
        word.parse()
            .map_err(|_| io::Error::other(format!("bad word: {word}")))
    }

    pub(crate) fn rest(self) -> String {
        self.0.collect::<Vec<_>>().join(" ")
    }
}

/// Bytes as one word, with two hexadecimal digits for each byte.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |d: u8| char::from(DIGITS[usize::from(d)]);
    bytes
        .iter()
        .flat_map(|&b| [digit(b >> 4), digit(b & 15)])
        .collect()
}

/// The bytes of a word that [`to_hex`] has made.
pub(crate) fn from_hex(word: &str) -> io::Result<Vec<u8>> {
    let pairs = word.as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap_or(""), 16);
    pairs
        .map(|pair| byte(pair).map_err(io::Error::other))
        .collect()
}

/// The answer line for a call's result.
pub(crate) fn answer(result: &io::Result<String>) -> String {
    match result {
        Ok(words) => format!("ok {words}"),
        Err(e) => format!("err {} {e}", e.raw_os_error().unwrap_or(0)),
    }
}

/// The result in an answer line; errors keep their errno.
pub(crate) fn result(line: &str) -> io::Result<String> {
    let mut words = Words::new(line);
    match words.word()? {
        "ok" => Ok(words.rest()),
        "err" => match words.get()? {
            0 => Err(io::Error::other(format!("peer: {}", words.rest()))),
            errno => Err(io::Error::from_raw_os_error(errno)),
        },
        _ => Err(io::Error::other(format!("bad answer: {line}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_the_round_trip() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(from_hex(&to_hex(&bytes)).unwrap(), bytes);
        assert!(from_hex("0g").is_err());
    }

    #[test]
    fn results_survive_the_round_trip() {
        let ok = Ok("3 127.0.0.1:80".to_owned());
        assert_eq!(result(&answer(&ok)).unwrap(), "3 127.0.0.1:80");
        let err = Err(io::Error::from_raw_os_error(libc::ECONNRESET));
        let back = result(&answer(&err)).unwrap_err();
        assert_eq!(back.raw_os_error(), Some(libc::ECONNRESET));
        let text = result(&answer(&Err(io::Error::other("no such socket")))).unwrap_err();
        assert!(text.raw_os_error().is_none() && text.to_string().contains("no such socket"));
    }
}
