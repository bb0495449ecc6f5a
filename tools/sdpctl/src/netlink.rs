// SPDX-License-Identifier: GPL-2.0

//! Requests to the module's netlink family, and replies.

use std::fs::{
    self,
    OpenOptions, //
};
use std::io::{
    self,
    Write, //
};
use std::path::{
    Path,
    PathBuf, //
};

use clap::Args;
use netlink_packet_core::{
    DecodeError,
    DefaultNla,
    Emitable,
    ErrorMessage,
    NetlinkMessage,
    NetlinkPayload,
    Nla,
    NlasIterator,
    Parseable,
    ParseableParametrized,
    NLA_TYPE_MASK,
    NLM_F_ACK,
    NLM_F_DUMP,
    NLM_F_REQUEST, //
};
use netlink_packet_generic::ctrl::nlas::{
    GenlCtrlAttrs,
    McastGrpAttrs, //
};
use netlink_packet_generic::ctrl::{
    GenlCtrl,
    GenlCtrlCmd, //
};
use netlink_packet_generic::{
    GenlFamily,
    GenlHeader,
    GenlMessage, //
};
use netlink_sys::protocols::NETLINK_GENERIC;
use netlink_sys::{
    Socket,
    SocketAddr, //
};

use crate::fail::Fail;
use uapi::nl;

/// Receive buffer for events that arrive while the program is busy; the kernel may grant less.
const EVENT_ROOM_BYTES: libc::c_int = 1 << 20;

/// linux/genetlink.h: the control family, whose group for events ("notify") has the same number.
const CONTROL: u16 = libc::GENL_ID_CTRL as u16;

/// Marks a line of a record as an errno instead of a datagram.
const ERRNO: char = '!';

/// The attributes of one message of the family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) cmd: u8,
    pub(crate) attrs: Vec<DefaultNla>,
}

impl GenlFamily for Message {
    fn family_name() -> &'static str {
        name()
    }

    fn command(&self) -> u8 {
        self.cmd
    }

    fn version(&self) -> u8 {
        nl::VERSION
    }
}

impl Emitable for Message {
    fn buffer_len(&self) -> usize {
        self.attrs.as_slice().buffer_len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        self.attrs.as_slice().emit(buffer);
    }
}

impl ParseableParametrized<[u8], GenlHeader> for Message {
    fn parse_with_param(buffer: &[u8], header: GenlHeader) -> Result<Self, DecodeError> {
        let attrs = NlasIterator::new(buffer)
            .map(|nla| DefaultNla::parse(&nla?))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            cmd: header.cmd,
            attrs,
        })
    }
}

fn value_of(nla: &DefaultNla) -> Vec<u8> {
    let mut value = vec![0; nla.value_len()];
    nla.emit_value(&mut value);
    value
}

impl Message {
    fn value(&self, number: u16) -> Option<Vec<u8>> {
        let nla = self.attrs.iter().find(|nla| nla.kind() == number)?;
        Some(value_of(nla))
    }

    /// The attributes with numbers above `number`, as sent by a newer module.
    pub(crate) fn beyond(&self, number: u16) -> Vec<(u16, Vec<u8>)> {
        // The upper bits are flags for the encoding of the value.
        let kind = |nla: &DefaultNla| nla.kind() & NLA_TYPE_MASK;
        let newer = self.attrs.iter().filter(|nla| kind(nla) > number);
        newer.map(|nla| (kind(nla), value_of(nla))).collect()
    }

    /// All nested attributes with this number, each as a message.
    ///
    /// # Errors
    ///
    /// The contents are not attributes.
    pub(crate) fn nests(&self, number: u16) -> Result<Vec<Self>, Fail> {
        let is_one = |nla: &&DefaultNla| nla.kind() & NLA_TYPE_MASK == number;
        let nests = self.attrs.iter().filter(is_one);
        let inside = |nla: &DefaultNla| {
            let value = value_of(nla);
            let attrs = NlasIterator::new(&value[..])
                .map(|nla| DefaultNla::parse(&nla?))
                .collect::<Result<_, DecodeError>>();
            let attrs = attrs.map_err(|e| Fail::Other(format!("netlink: {e}")))?;
            let cmd = self.cmd;
            Ok(Self { cmd, attrs })
        };
        nests.map(inside).collect()
    }

    /// An unsigned integer of any size that netlink has.
    pub(crate) fn number(&self, number: u16) -> Option<u64> {
        let value = self.value(number)?;
        Some(match value.len() {
            1 => u8::from_ne_bytes(value.try_into().ok()?).into(),
            2 => u16::from_ne_bytes(value.try_into().ok()?).into(),
            4 => u32::from_ne_bytes(value.try_into().ok()?).into(),
            8 => u64::from_ne_bytes(value.try_into().ok()?),
            _ => return None,
        })
    }

    pub(crate) fn bytes(&self, number: u16) -> Option<Vec<u8>> {
        self.value(number)
    }

    pub(crate) fn string(&self, number: u16) -> Option<String> {
        let value = self.value(number)?;
        let text = value.strip_suffix(&[0]).unwrap_or(&value);
        String::from_utf8(text.to_vec()).ok()
    }
}

fn name() -> &'static str {
    nl::FAMILY.to_str().unwrap_or_default()
}

/// The receiver of a request, which decides the meaning of ENOENT.
#[derive(Copy, Clone)]
enum Asked {
    /// The control family, which knows all families.
    Control,
    /// The module's family, which existed earlier.
    Module,
}

/// A datagram, or an errno.
type Received = Result<Vec<u8>, i32>;

/// Source of the replies.
enum Source {
    Kernel(Socket),
    /// A record, in reverse order.
    File(Vec<Received>),
}

/// Options to record and replay netlink messages.
#[derive(Args)]
pub(crate) struct Messages {
    /// Append what the kernel answers to a file
    #[arg(long, global = true, hide = true, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Take the kernel's answers from such a file
    #[arg(long, global = true, hide = true, value_name = "FILE")]
    replay: Option<PathBuf>,
}

impl Messages {
    /// Whether replies come from a file.
    pub(crate) fn are_replayed(&self) -> bool {
        self.replay.is_some()
    }
}

/// A netlink socket connected to the module's family.
pub(crate) struct Module {
    source: Source,
    record: Option<fs::File>,
    family: u16,
    /// The multicast group for events.
    group: Option<u32>,
}

impl Module {
    /// Finds the module's family.
    pub(crate) fn open(messages: &Messages) -> Result<Self, Fail> {
        let failed = |e: io::Error| Fail::io("netlink", &e);
        let source = match &messages.replay {
            Some(path) => Source::File(read_record(path)?),
            None => {
                let mut socket = Socket::new(NETLINK_GENERIC).map_err(failed)?;
                socket.bind_auto().map_err(failed)?;
                socket.connect(&SocketAddr::new(0, 0)).map_err(failed)?;
                // Older kernels do not support extended errors; ignore the failure.
                let _ = socket.set_ext_ack(true);
                Source::Kernel(socket)
            }
        };
        let record = match &messages.record {
            Some(path) => {
                let file = OpenOptions::new().create(true).append(true).open(path);
                Some(file.map_err(|e| Fail::io(path.display(), &e))?)
            }
            None => None,
        };
        let mut module = Self {
            source,
            record,
            family: 0,
            group: None,
        };
        let ask = GenlCtrl {
            cmd: GenlCtrlCmd::GetFamily,
            nlas: vec![GenlCtrlAttrs::FamilyName(name().into())],
        };
        let answers =
            module.ask::<GenlCtrl>(Asked::Control, GenlMessage::from_payload(ask), NLM_F_ACK)?;
        for attr in answers.into_iter().flat_map(|answer| answer.nlas) {
            match attr {
                GenlCtrlAttrs::FamilyId(id) => module.family = id,
                GenlCtrlAttrs::McastGroups(groups) => {
                    module.group = groups.iter().find_map(|group| group_id(group));
                }
                _ => {}
            }
        }
        if module.family == 0 {
            return Err(Fail::Other("netlink: a family without a number".into()));
        }
        Ok(module)
    }

    /// The only reply to a command.
    pub(crate) fn get(&mut self, cmd: u8) -> Result<Message, Fail> {
        let answers = self.send(cmd, Vec::new(), NLM_F_ACK)?;
        let first = answers.into_iter().next();
        first.ok_or_else(|| Fail::Other("netlink: no answer".into()))
    }

    /// All replies to a command.
    pub(crate) fn dump(&mut self, cmd: u8, attrs: Vec<DefaultNla>) -> Result<Vec<Message>, Fail> {
        self.send(cmd, attrs, NLM_F_DUMP)
    }

    /// All replies to a command that older modules, and the records of their answers, do not have:
    /// they give none.
    pub(crate) fn dump_newer(
        &mut self,
        cmd: u8,
        attrs: Vec<DefaultNla>,
    ) -> Result<Vec<Message>, Fail> {
        if let Source::File(recorded) = &self.source {
            if recorded.is_empty() {
                return Ok(Vec::new());
            }
        }
        match self.dump(cmd, attrs) {
            Err(Fail::TooOld) => Ok(Vec::new()),
            answers => answers,
        }
    }

    /// Subscribes to events; receive them by [`Module::events`].
    pub(crate) fn listen(&self) -> Result<(), Fail> {
        let group = self.group.ok_or(Fail::TooOld)?;
        match &self.source {
            Source::Kernel(socket) => {
                let widened = socket.set_rx_buf_sz(EVENT_ROOM_BYTES);
                // The control family first: otherwise the module could be unloaded in between.
                let joined = widened
                    .and_then(|()| socket.add_membership(CONTROL.into()))
                    .and_then(|()| socket.add_membership(group));
                joined.map_err(|e| failure(Asked::Module, &e, None))
            }
            Source::File(_) => Ok(()),
        }
    }

    /// Waits for events; there may be none. After [`Fail::Lost`] further events can be received.
    ///
    /// # Errors
    ///
    /// [`Fail::Unloaded`] if the family was removed: the kernel would send no more events.
    pub(crate) fn events(&mut self) -> Result<Vec<Message>, Fail> {
        let datagram = self.receive()?;
        let mut events: Vec<Message> = Vec::new();
        read_datagram(Asked::Module, &datagram, &mut events)?;
        // The type of the first message. A datagram has the messages of one family.
        if datagram.get(4..6) != Some(&CONTROL.to_ne_bytes()) {
            return Ok(events);
        }
        let is_removal = |m: &Message| {
            i32::from(m.cmd) == libc::CTRL_CMD_DELFAMILY
                && m.number(libc::CTRL_ATTR_FAMILY_ID as u16) == Some(self.family.into())
        };
        match events.iter().any(is_removal) {
            true => Err(Fail::Unloaded),
            false => Ok(Vec::new()),
        }
    }

    /// Sends a request with these attributes and flags; returns all replies.
    pub(crate) fn send(
        &mut self,
        cmd: u8,
        attrs: Vec<DefaultNla>,
        flags: u16,
    ) -> Result<Vec<Message>, Fail> {
        let mut message = GenlMessage::from_payload(Message { cmd, attrs });
        message.set_resolved_family_id(self.family);
        self.ask::<Message>(Asked::Module, message, flags)
    }

    fn ask<T>(&mut self, asked: Asked, message: GenlMessage<T>, flags: u16) -> Result<Vec<T>, Fail>
    where
        T: GenlFamily + Emitable + ParseableParametrized<[u8], GenlHeader> + std::fmt::Debug,
    {
        let mut request = NetlinkMessage::from(message);
        request.header.flags = NLM_F_REQUEST | flags;
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        if let Source::Kernel(socket) = &self.source {
            let sent = socket.send(&bytes, 0);
            sent.map_err(|e| Fail::io("netlink", &e))?;
        }
        let mut answers = Vec::new();
        loop {
            let datagram = self.receive()?;
            if read_datagram(asked, &datagram, &mut answers)? {
                return Ok(answers);
            }
        }
    }

    fn receive(&mut self) -> Result<Vec<u8>, Fail> {
        let received: Received = match &mut self.source {
            Source::Kernel(socket) => match socket.recv_from_full() {
                Ok((datagram, _)) => Ok(datagram),
                Err(e) => Err(e.raw_os_error().unwrap_or(libc::EIO)),
            },
            Source::File(recorded) => {
                let next = recorded.pop();
                next.ok_or_else(|| Fail::Other("the record ends too early".into()))?
            }
        };
        if let Some(file) = &mut self.record {
            writeln!(file, "{}", record_line(&received)).map_err(|e| Fail::io("the record", &e))?;
        }
        received.map_err(|errno| match errno {
            libc::ENOBUFS => Fail::Lost,
            errno => Fail::io("netlink", &io::Error::from_raw_os_error(errno)),
        })
    }
}

/// The number of the multicast group, if it is the group for events.
fn group_id(attrs: &[McastGrpAttrs]) -> Option<u32> {
    let is_ours = |attr: &McastGrpAttrs| match attr {
        McastGrpAttrs::Name(name) => Ok(name.as_str()) == nl::EVENTS.to_str(),
        McastGrpAttrs::Id(_) => false,
    };
    let id = |attr: &McastGrpAttrs| match attr {
        McastGrpAttrs::Id(id) => Some(*id),
        McastGrpAttrs::Name(_) => None,
    };
    attrs
        .iter()
        .any(is_ours)
        .then(|| attrs.iter().find_map(id))?
}

/// Parses the messages of a datagram; `true` if it contains the last one.
fn read_datagram<T>(asked: Asked, datagram: &[u8], answers: &mut Vec<T>) -> Result<bool, Fail>
where
    T: ParseableParametrized<[u8], GenlHeader> + std::fmt::Debug,
{
    let garbled = |e: &dyn std::fmt::Display| Fail::Other(format!("netlink: {e}"));
    let mut rest = datagram;
    while !rest.is_empty() {
        let message =
            NetlinkMessage::<GenlMessage<T>>::deserialize(rest).map_err(|e| garbled(&e))?;
        match message.payload {
            NetlinkPayload::InnerMessage(message) => answers.push(message.into_parts().1),
            NetlinkPayload::Error(error) => return ended(asked, &error).map(|()| true),
            NetlinkPayload::Done(done) if done.code == 0 => return Ok(true),
            NetlinkPayload::Done(done) => {
                return Err(failure(
                    asked,
                    &io::Error::from_raw_os_error(-done.code),
                    None,
                ))
            }
            NetlinkPayload::Overrun(_) => return Err(Fail::Other("netlink: overrun".into())),
            _ => {}
        }
        let len = message.header.length as usize;
        let padded = len.div_ceil(4) * 4;
        rest = rest.get(padded.max(1)..).unwrap_or_default();
    }
    Ok(false)
}

fn ended(asked: Asked, error: &ErrorMessage) -> Result<(), Fail> {
    match error.code {
        None => Ok(()),
        Some(_) => Err(failure(asked, &error.to_io(), words(error))),
    }
}

/// The kernel's error text: NLMSGERR_ATTR_MSG after the header of the request.
fn words(error: &ErrorMessage) -> Option<String> {
    const NLMSGERR_ATTR_MSG: u16 = 1;
    const HEADER_LEN: usize = 16;
    let of = |attrs: &[u8]| {
        let nlas = NlasIterator::new(attrs).flatten();
        let found = nlas
            .into_iter()
            .find(|nla| nla.kind() == NLMSGERR_ATTR_MSG)?;
        let text = found.value().strip_suffix(&[0])?;
        String::from_utf8(text.to_vec()).ok()
    };
    // The attributes follow the request's header and, unless the reply was capped, its body.
    let length = error.header.get(..4)?.try_into().ok()?;
    let length = (u32::from_ne_bytes(length) as usize).max(HEADER_LEN);
    error
        .header
        .get(length.div_ceil(4) * 4..)
        .and_then(of)
        .or_else(|| error.header.get(HEADER_LEN..).and_then(of))
}

fn failure(asked: Asked, e: &io::Error, words: Option<String>) -> Fail {
    match (e.raw_os_error(), asked) {
        // The family does not exist.
        (Some(libc::ENOENT), Asked::Module) => Fail::Unloaded,
        (Some(libc::ENOENT), Asked::Control) if is_loaded() => Fail::TooOld,
        (Some(libc::ENOENT), Asked::Control) => Fail::NotLoaded,
        (Some(libc::EOPNOTSUPP), _) => Fail::TooOld,
        _ => match words {
            Some(words) => Fail::Other(format!("the module refuses the request: {words}")),
            None => Fail::io("netlink", e),
        },
    }
}

/// Whether the module is loaded, perhaps a version without a netlink family.
pub(crate) fn is_loaded() -> bool {
    Path::new("/proc/net/sdpstats").exists()
}

/// Parses an attribute from the command line.
pub(crate) fn raw_attr(text: &str) -> Result<(u16, Vec<u8>), String> {
    let read = || {
        let (number, bytes) = text.split_once('=')?;
        Some((number.parse().ok()?, read_hex(bytes)?))
    };
    read().ok_or_else(|| "NUMBER=BYTES, the bytes as hexadecimal digits".into())
}

fn read_hex(text: &str) -> Option<Vec<u8>> {
    let byte = |pair: &[u8]| {
        let digits = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(digits, 16).ok()
    };
    text.as_bytes().chunks(2).map(byte).collect()
}

fn record_line(received: &Received) -> String {
    match received {
        Err(errno) => format!("{ERRNO}{errno}"),
        Ok(datagram) => {
            let digits = datagram.iter().flat_map(|byte| [byte >> 4, byte & 15]);
            let digit = |d: u8| char::from(b"0123456789abcdef"[usize::from(d)]);
            digits.map(digit).collect()
        }
    }
}

fn read_record_line(line: &str) -> Option<Received> {
    match line.strip_prefix(ERRNO) {
        Some(errno) => Some(Err(errno.parse().ok()?)),
        None => read_hex(line).map(Ok),
    }
}

/// Reads a record: datagrams as hexadecimal digits, one per line; returned in reverse order.
fn read_record(path: &Path) -> Result<Vec<Received>, Fail> {
    let text = fs::read_to_string(path).map_err(|e| Fail::io(path.display(), &e))?;
    let bad = || Fail::Other(format!("{} is no record", path.display()));
    let datagrams: Option<Vec<_>> = text.lines().rev().map(read_record_line).collect();
    datagrams.ok_or_else(bad)
}

/// The replies in a record of `ss`.
#[cfg(test)]
pub(crate) fn recorded(text: &str) -> Vec<Message> {
    let mut messages: Vec<Message> = Vec::new();
    // The first two lines are the lookup of the family.
    for line in text.lines().skip(2) {
        let datagram = read_hex(line).expect("a record");
        read_datagram(Asked::Module, &datagram, &mut messages).expect("a record");
    }
    messages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_any_length() {
        let attrs = vec![
            DefaultNla::new(1, vec![7]),
            DefaultNla::new(2, 0x0102u16.to_ne_bytes().to_vec()),
            DefaultNla::new(3, 70_000u32.to_ne_bytes().to_vec()),
            DefaultNla::new(4, (1u64 << 40).to_ne_bytes().to_vec()),
            DefaultNla::new(5, vec![1, 2, 3]),
            DefaultNla::new(6, b"abc\0".to_vec()),
        ];
        let message = Message { cmd: 1, attrs };
        let numbers: Vec<_> = (1..=7).map(|n| message.number(n)).collect();
        assert_eq!(
            numbers,
            [
                Some(7),
                Some(0x0102),
                Some(70_000),
                Some(1 << 40),
                None,
                // Four arbitrary bytes.
                Some(u32::from_ne_bytes(*b"abc\0").into()),
                None
            ]
        );
        assert_eq!(message.string(6).as_deref(), Some("abc"));
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        for received in [Ok(vec![]), Ok(vec![0, 0x9a, 0xff]), Err(libc::ENOBUFS)] {
            let line = record_line(&received);
            assert_eq!(read_record_line(&line), Some(received), "{line}");
        }
        for bad in ["!", "!x", "0g", "é"] {
            assert_eq!(read_record_line(bad), None, "{bad}");
        }
    }

    #[test]
    fn there_is_room_for_many_events() {
        let mut socket = Socket::new(NETLINK_GENERIC).unwrap();
        socket.bind_auto().unwrap();
        let module = Module {
            source: Source::Kernel(socket),
            record: None,
            family: 0,
            // Any user may subscribe to events of the control family.
            group: Some(CONTROL.into()),
        };
        module.listen().unwrap();
        let most = fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap();
        let most: usize = most.trim().parse().unwrap();
        let Source::Kernel(socket) = &module.source else {
            unreachable!()
        };
        // The kernel reports twice the size, for its own overhead.
        assert_eq!(socket.get_rx_buf_sz().unwrap(), 2 * most.min(1 << 20));
    }

    #[test]
    fn events_end_with_the_family() {
        let of_control = |cmd: i32, family: u16| {
            let mut message = GenlMessage::from_payload(Message {
                cmd: cmd as u8,
                attrs: vec![DefaultNla::new(
                    libc::CTRL_ATTR_FAMILY_ID as u16,
                    family.to_ne_bytes().to_vec(),
                )],
            });
            message.set_resolved_family_id(CONTROL);
            let mut message = NetlinkMessage::from(message);
            message.finalize();
            let mut bytes = vec![0; message.buffer_len()];
            message.serialize(&mut bytes);
            bytes
        };
        let (ours, other) = (27, 28);
        let recorded = [
            of_control(libc::CTRL_CMD_DELFAMILY, other),
            of_control(libc::CTRL_CMD_DELMCAST_GRP, ours),
            of_control(libc::CTRL_CMD_DELFAMILY, ours),
        ];
        let mut module = Module {
            source: Source::File(recorded.into_iter().rev().map(Ok).collect()),
            record: None,
            family: ours,
            group: None,
        };
        for _ in 0..2 {
            assert_eq!(module.events().unwrap(), []);
        }
        assert!(matches!(module.events(), Err(Fail::Unloaded)));
    }

    #[test]
    fn survives_garbage() {
        for len in 0..64 {
            for byte in [0, 1, 16, 255] {
                let mut answers: Vec<Message> = Vec::new();
                // It must return, with any result.
                let _ = read_datagram(Asked::Module, &vec![byte; len], &mut answers);
            }
        }
    }
}
