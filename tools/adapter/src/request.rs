// SPDX-License-Identifier: GPL-2.0
//! Work requests as read from the guest's queues.

use zerocopy::{FromBytes, IntoBytes};

use crate::abi::queue::{
    flag, op, wc, Atomic, Datagram, FastReg, Rdma, RecvHeader, SendHeader, Sge, Status,
};
use crate::abi::shared::limit;
use crate::keys::{Denied, Keys};
use crate::memory::{Memory, Span, Unmapped};

/// Memory ranges of a request.
#[derive(Clone, Debug, Default)]
pub struct Ranges {
    sges: Vec<Sge>,
    total: u64,
}

impl Ranges {
    /// Reads `count` ranges at `addr`. The result contains `None` if there are more than `most` or
    /// too many bytes.
    fn read(memory: &Memory, addr: u64, count: u32, most: u32) -> Result<Option<Self>, Unmapped> {
        if count > most {
            return Ok(None);
        }
        let mut ranges = Self::default();
        for n in 0..u64::from(count) {
            let sge: Sge = memory.read(addr.wrapping_add(n * size_of::<Sge>() as u64))?;
            ranges.total += u64::from(sge.length);
            ranges.sges.push(sge);
        }
        Ok((ranges.total <= u64::from(limit::MESSAGE)).then_some(ranges))
    }

    /// Sum of the ranges' lengths.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The guest addresses of `len` bytes at `offset`, up to the end of the ranges.
    ///
    /// # Errors
    ///
    /// A key does not permit the access.
    pub fn spans(
        &self,
        keys: &Keys,
        pd: u32,
        rights: u32,
        mut offset: u64,
        mut len: u64,
    ) -> Result<Vec<Span>, Denied> {
        let mut spans = Vec::new();
        for sge in &self.sges {
            let length = u64::from(sge.length);
            if offset >= length {
                offset -= length;
                continue;
            }
            let part = (length - offset).min(len);
            if part == 0 {
                break;
            }
            keys.spans(
                sge.lkey,
                pd,
                rights,
                sge.addr.checked_add(offset).ok_or(Denied)?,
                part,
                &mut spans,
            )?;
            len -= part;
            offset = 0;
        }
        Ok(spans)
    }
}

/// Action of a send request.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    /// Sends a message to a receive of the peer.
    Send,
    /// Sends a message from a queue pair without a connection.
    Datagram(Datagram),
    /// Writes to the peer's memory.
    Write {
        /// Address and key at the peer.
        to: Rdma,
        /// Whether it has immediate data and consumes a receive.
        receive: bool,
    },
    /// Reads from the peer's memory.
    Read(Rdma),
    /// Compare and swap, or fetch and add.
    Atomic {
        /// Address and operands.
        what: Atomic,
        /// Whether it is fetch and add.
        adds: bool,
    },
    /// Invalidates a key.
    Invalidate,
    /// Registers pages.
    Register(FastReg),
}

impl Action {
    /// Whether the peer responds with data. A fence waits for such requests.
    pub fn is_read(&self) -> bool {
        matches!(self, Self::Read(_) | Self::Atomic { .. })
    }

    /// Whether the request is local: no message is sent to the peer.
    pub fn is_local(&self) -> bool {
        matches!(self, Self::Invalidate | Self::Register(_))
    }
}

/// A send request.
#[derive(Clone, Debug)]
pub struct Send {
    /// Cookie of the poster.
    pub wr_id: u64,
    /// The action; `None` if the queue pair does not support it.
    pub action: Option<Action>,
    /// One of [`op`].
    pub opcode: u32,
    /// Flags of [`flag`].
    pub flags: u32,
    /// Immediate data, or a key.
    pub ex: u32,
    /// The memory.
    pub ranges: Ranges,
}

impl Send {
    /// Reads the request at `addr`. `datagrams`: the queue pair has no connection.
    ///
    /// # Errors
    ///
    /// The queue's memory is not accessible.
    pub fn read(memory: &Memory, addr: u64, most: u32, datagrams: bool) -> Result<Self, Unmapped> {
        let header: SendHeader = memory.read(addr)?;
        let ranges = Ranges::read(
            memory,
            addr + size_of::<SendHeader>() as u64,
            header.num_sge,
            most,
        )?;
        Ok(Self {
            wr_id: header.wr_id,
            action: ranges
                .as_ref()
                .and_then(|_| Self::action(&header, datagrams)),
            opcode: header.opcode,
            flags: header.flags,
            ex: header.ex,
            ranges: ranges.unwrap_or_default(),
        })
    }

    fn action(header: &SendHeader, datagrams: bool) -> Option<Action> {
        fn body<T: FromBytes>(header: &SendHeader) -> Option<T> {
            T::read_from_prefix(header.body.as_bytes())
                .ok()
                .map(|(value, _)| value)
        }
        Some(match (header.opcode, datagrams) {
            (op::SEND | op::SEND_IMM, true) => Action::Datagram(body(header)?),
            (_, true) => return None,
            (op::SEND | op::SEND_IMM | op::SEND_INV, _) => Action::Send,
            (op::RDMA_WRITE, _) => Action::Write {
                to: body(header)?,
                receive: false,
            },
            (op::RDMA_WRITE_IMM, _) => Action::Write {
                to: body(header)?,
                receive: true,
            },
            (op::RDMA_READ, _) => Action::Read(body(header)?),
            (op::ATOMIC_SWAP, _) => Action::Atomic {
                what: body(header)?,
                adds: false,
            },
            (op::ATOMIC_ADD, _) => Action::Atomic {
                what: body(header)?,
                adds: true,
            },
            (op::LOCAL_INV, _) => Action::Invalidate,
            (op::FAST_REG, _) => Action::Register(body(header)?),
            _ => return None,
        })
    }

    /// The opcode of its completion.
    pub fn completion(&self) -> u32 {
        match self.opcode {
            op::RDMA_WRITE | op::RDMA_WRITE_IMM => wc::RDMA_WRITE,
            op::RDMA_READ => wc::RDMA_READ,
            op::ATOMIC_SWAP => wc::COMP_SWAP,
            op::ATOMIC_ADD => wc::FETCH_ADD,
            op::LOCAL_INV => wc::LOCAL_INV,
            op::FAST_REG => wc::FAST_REG,
            _ => wc::SEND,
        }
    }

    /// The flags of [`wc`] of the receiver's completion, and the number that belongs to them.
    pub fn told(&self) -> (u32, u32) {
        match self.opcode {
            op::SEND_IMM | op::RDMA_WRITE_IMM => (wc::WITH_IMM, self.ex),
            op::SEND_INV => (wc::WITH_INVALIDATE, self.ex),
            _ => (0, 0),
        }
    }

    /// The receiver's key that it invalidates.
    pub fn invalidates(&self) -> Option<u32> {
        (self.opcode == op::SEND_INV).then_some(self.ex)
    }

    /// Whether the flag is set.
    pub fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Whether it wakes a receiver that waits for solicited completions.
    pub fn is_solicited(&self) -> bool {
        self.has(flag::SOLICITED)
    }
}

/// A receive request.
#[derive(Clone, Debug)]
pub struct Recv {
    /// Cookie of the poster.
    pub wr_id: u64,
    /// The memory; `None` if the ranges are too many or too long.
    pub ranges: Option<Ranges>,
}

impl Recv {
    /// Reads the request at `addr`.
    ///
    /// # Errors
    ///
    /// The queue's memory is not accessible.
    pub fn read(memory: &Memory, addr: u64, most: u32) -> Result<Self, Unmapped> {
        let header: RecvHeader = memory.read(addr)?;
        let ranges = Ranges::read(
            memory,
            addr + size_of::<RecvHeader>() as u64,
            header.num_sge,
            most,
        )?;
        Ok(Self {
            wr_id: header.wr_id,
            ranges,
        })
    }
}

/// Progress of a send request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Not sent completely.
    Waiting,
    /// Sent completely.
    Sent,
    /// Acknowledged.
    Done,
    /// Fails with this status when all earlier requests have completed.
    Failed(Status),
}
