// SPDX-License-Identifier: GPL-2.0
//! Datagrams, including the connection manager's messages.

use std::sync::Arc;
use std::time::Instant;

use super::{Address, Switch};
use crate::abi::access;
use crate::abi::queue::{wc, Cqe, Datagram, Status};
use crate::memory::{gather, scatter};
use crate::qp::Kind;
use crate::request::{Action, Progress, Recv, Send};

/// Size of the route header before a datagram.
const ROUTE: u64 = 40;
/// Maximum size of a datagram: the path's MTU.
const MOST: u64 = 4096;
/// Bytes between the IP header and the message: UDP, transport headers, checksum.
const BETWEEN: u16 = 8 + 20 + 4;

impl Switch {
    /// A datagram arrives or is dropped; the sender does not learn which.
    pub(super) fn deliver(&mut self, from: Address, number: u64, now: Instant) {
        let Some(send) = self
            .qp(from)
            .and_then(|qp| qp.requester.get(number))
            .map(|p| Arc::clone(&p.send))
        else {
            return;
        };
        let Some(Action::Datagram(to)) = send.action else {
            return;
        };
        match self.carry_datagram(from, &send, &to) {
            Err(status) => self.refused(from, number, status, now),
            Ok(()) => self.datagram_is_gone(from, number, now),
        }
    }

    /// A datagram has been sent: complete its request.
    pub(super) fn datagram_is_gone(&mut self, from: Address, number: u64, now: Instant) {
        if let Some(sent) = self
            .qp_mut(from)
            .and_then(|qp| qp.requester.get_mut(number))
        {
            sent.progress = Progress::Done;
        }
        self.retire(from, now);
        self.ready(from);
    }

    /// Copies a datagram to a receive of the destination queue pair, if there is one.
    fn carry_datagram(&mut self, from: Address, send: &Send, to: &Datagram) -> Result<(), Status> {
        let total = send.ranges.total();
        if total > MOST {
            return Err(Status::LocalLength);
        }
        let source = &self.devices[from.machine];
        let sgid = source
            .gids
            .get(usize::from(to.gid_index))
            .copied()
            .flatten();
        let sgid = sgid.ok_or(Status::LocalOperation)?;
        let Some(sender) = self.qp(from) else {
            return Ok(());
        };
        let read = send.ranges.spans(&source.keys, sender.pd, 0, 0, total);
        let read = read.map_err(|_| Status::LocalProtection)?;
        // Read the message before a receive is taken: a sender without the memory that it names
        // must not use up receives of others.
        let message = gather((&source.memory, &read)).map_err(|_| Status::LocalProtection)?;
        let Some(machine) = self.gids.get(&to.dgid).copied() else {
            return Ok(());
        };
        if self.is_down(machine) {
            return Ok(());
        }
        let Some(peer) = self.address(machine, to.qpn) else {
            return Ok(());
        };
        let takes = |qp: &&crate::qp::Qp| {
            qp.kind != Kind::Rc && qp.state.receives() && qp.attrs.qkey == to.qkey
        };
        let Some((pd, cq)) = self.qp(peer).filter(takes).map(|qp| (qp.pd, qp.recv_cq)) else {
            return Ok(());
        };
        let receive = match self.devices[machine].take_receive(peer.handle) {
            Ok(Some(receive)) => receive,
            Ok(None) => return Ok(()),
            Err(why) => {
                self.broken(peer, why);
                return Ok(());
            }
        };
        let route = route(&sgid, to, total as u16);
        if let Some(status) = self.fill(machine, pd, &receive, &route, &message) {
            self.devices[machine].complete_receive(peer.handle, receive.wr_id, status);
            return Ok(());
        }
        let (flags, ex) = send.told();
        let ipv4 = is_ipv4(&to.dgid);
        let cqe = Cqe {
            wr_id: receive.wr_id,
            qp: u64::from(peer.handle),
            opcode: wc::RECV,
            byte_len: (ROUTE + total) as u32,
            ex,
            src_qp: from.handle,
            flags: flags | wc::WITH_GRH | wc::WITH_NETWORK,
            network: if ipv4 {
                wc::NETWORK_IPV4
            } else {
                wc::NETWORK_IPV6
            },
            port: 1,
            ..Cqe::default()
        };
        if let Some(qp) = self.qp_mut(peer) {
            qp.counters.receives += 1;
        }
        self.devices[machine].complete(cq, &cqe, send.is_solicited());
        Ok(())
    }

    /// Writes the route header and the message to a receive; returns the receive's status if that
    /// fails.
    fn fill(
        &self,
        machine: usize,
        pd: u32,
        receive: &Recv,
        route: &[u8; ROUTE as usize],
        message: &[u8],
    ) -> Option<Status> {
        let Some(ranges) = &receive.ranges else {
            return Some(Status::LocalOperation);
        };
        let total = message.len() as u64;
        if ranges.total() < ROUTE + total {
            return Some(Status::LocalLength);
        }
        let device = &self.devices[machine];
        let write = |offset, len| {
            ranges
                .spans(&device.keys, pd, access::LOCAL_WRITE, offset, len)
                .ok()
        };
        let done = write(0, ROUTE)
            .and_then(|spans| scatter(route, (&device.memory, &spans)).ok())
            .and_then(|()| write(ROUTE, total))
            .and_then(|spans| scatter(message, (&device.memory, &spans)).ok());
        done.is_none().then_some(Status::LocalProtection)
    }
}

/// Whether the address is an IPv4 address.
fn is_ipv4(gid: &[u8; 16]) -> bool {
    gid[..10] == [0; 10] && gid[10..12] == [0xff; 2]
}

/// The 40 bytes before a datagram: an IPv6 header, or 20 bytes and an IPv4 header.
fn route(sgid: &[u8; 16], to: &Datagram, total: u16) -> [u8; ROUTE as usize] {
    const UDP: u8 = 17;
    let mut route = [0; ROUTE as usize];
    let class = (to.class_label >> 20) as u8;
    if is_ipv4(&to.dgid) {
        let header = &mut route[20..];
        header[0] = 0x45;
        header[1] = class;
        header[2..4].copy_from_slice(&(20 + BETWEEN + total).to_be_bytes());
        header[6] = 0x40;
        header[8] = to.hop_limit;
        header[9] = UDP;
        header[12..16].copy_from_slice(&sgid[12..]);
        header[16..20].copy_from_slice(&to.dgid[12..]);
        let sum: u32 = header
            .chunks(2)
            .map(|pair| (u32::from(pair[0]) << 8) | u32::from(pair[1]))
            .sum();
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    } else {
        let first = (6 << 28) | (u32::from(class) << 20) | (to.class_label & 0xf_ffff);
        route[..4].copy_from_slice(&first.to_be_bytes());
        route[4..6].copy_from_slice(&(BETWEEN + total).to_be_bytes());
        route[6] = UDP;
        route[7] = to.hop_limit;
        route[8..24].copy_from_slice(sgid);
        route[24..40].copy_from_slice(&to.dgid);
    }
    route
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_of_both_families() {
        let mut sgid = [0; 16];
        sgid[10..].copy_from_slice(&[0xff, 0xff, 10, 27, 1, 1]);
        let mut to = Datagram {
            dgid: sgid,
            hop_limit: 64,
            class_label: (0x123 << 20) | 5,
            ..Datagram::default()
        };
        let found = route(&sgid, &to, 256);
        assert_eq!(found[20], 0x45);
        let sum: u32 = found[20..]
            .chunks(2)
            .map(|pair| (u32::from(pair[0]) << 8) | u32::from(pair[1]))
            .sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
        assert_eq!(&found[32..36], &[10, 27, 1, 1]);
        to.dgid[0] = 0xfd;
        let found = route(&sgid, &to, 256);
        assert_eq!(found[0] >> 4, 6);
        assert_eq!(found[24], 0xfd);
    }
}
