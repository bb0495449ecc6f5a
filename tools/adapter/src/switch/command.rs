// SPDX-License-Identifier: GPL-2.0
//! Commands of the driver.

use std::net::Ipv6Addr;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Machine, Switch};
use crate::abi::command::{
    code, CreateBind, CreateCq, CreateMr, CreateQp, CreateSrq, DestroyBind, Header, ModifyQp,
    ModifySrq, One, Port, ResponseHeader, SrqAttrs, Two, LARGEST,
};
use crate::abi::shared::limit;
use crate::abi::{event, vector};
use crate::error::{Error, Refused};
use crate::keys::Keys;
use crate::qp::State;

/// Result of a command: the bytes after the response's header, or none for commands whose response
/// the driver does not wait for.
pub(super) type Outcome = Result<Option<Vec<u8>>, Refused>;

/// Size of the largest command without its header.
const BODY: usize = LARGEST - size_of::<Header>();

/// A response with a structure.
pub(super) fn answer<T: IntoBytes + Immutable>(value: &T) -> Outcome {
    Ok(Some(value.as_bytes().to_vec()))
}

/// A response with one number.
pub(super) fn number(value: u32) -> Outcome {
    answer(&One { value, reserved: 0 })
}

/// The refusal of a handle.
pub(super) fn no_such(what: &str, handle: u32) -> Refused {
    Error::NoSuch.of(format_args!("{what} {handle}"))
}

/// The structure at the start of a command, behind its header.
fn body<T: FromBytes + KnownLayout + Immutable>(bytes: &[u8]) -> Result<T, Refused> {
    T::read_from_prefix(bytes)
        .map(|(value, _)| value)
        .map_err(|_| Error::Invalid.of("the size"))
}

impl Switch {
    /// Executes the command in the machine's command slot and writes the response.
    pub fn command(&mut self, machine: Machine) {
        let mut name = "command";
        let done = self.in_slot(machine).and_then(|(header, rest)| {
            name = code::name(header.command).unwrap_or(name);
            self.run(machine, &header, name, &rest)
        });
        let device = &mut self.devices[machine];
        device.error = 0;
        if let Err(refused) = done {
            device.error = refused.error as u32;
            device.log.complain(name, refused);
        }
    }

    /// The command in the command slot: its header, and the bytes behind it.
    fn in_slot(&self, machine: Machine) -> Result<(Header, [u8; BODY]), Refused> {
        let device = &self.devices[machine];
        let shared = device.shared.as_ref();
        let slot = shared.ok_or_else(|| Error::NoSuch.of("the shared region"))?;
        let slot = slot.commands;
        let read: [u8; LARGEST] = device
            .memory
            .read(slot)
            .map_err(|_| Error::Fault.of(format_args!("the command slot at {slot:#x}")))?;
        let bytes = &read;
        Ok((body(bytes)?, body(&bytes[size_of::<Header>()..])?))
    }

    /// Executes a command and writes the response.
    fn run(
        &mut self,
        machine: Machine,
        header: &Header,
        name: &'static str,
        bytes: &[u8],
    ) -> Result<(), Refused> {
        let outcome = self.execute(machine, header.command, bytes);
        let mut response = ResponseHeader {
            response: header.response,
            ack: header.command | code::RESPONSE,
            ..ResponseHeader::default()
        };
        let body = match outcome {
            Ok(Some(body)) => body,
            Ok(None) => return Ok(()),
            // For a modification, the driver reads the error only from the response.
            Err(refused) if header.command == code::MODIFY_QP => {
                response.err = refused.error as u8;
                self.devices[machine].log.complain(name, refused);
                Vec::new()
            }
            Err(refused) => return Err(refused),
        };
        let device = &mut self.devices[machine];
        // `in_slot()` has found the shared region, and no command removes it.
        let to = device.shared.as_ref().map_or(0, |shared| shared.responses);
        let bytes = [response.as_bytes(), &body].concat();
        device
            .memory
            .write_bytes(to, &bytes)
            .map_err(|_| Error::Fault.of(format_args!("the response slot at {to:#x}")))?;
        device.interrupt(vector::RESPONSE);
        Ok(())
    }

    fn execute(&mut self, machine: Machine, command: u32, bytes: &[u8]) -> Outcome {
        match command {
            code::QUERY_PORT => answer(&self.port(machine)),
            // Only the default partition exists.
            code::QUERY_PKEY => number(0xffff),
            code::CREATE_PD => number(
                self.devices[machine]
                    .pds
                    .insert(|_| Some(()))
                    .ok_or_else(|| Error::NoRoom.of("one more protection domain"))?,
            ),
            code::DESTROY_PD => {
                let handle = body::<One>(bytes)?.value;
                self.devices[machine]
                    .pds
                    .remove(handle)
                    .ok_or_else(|| no_such("protection domain", handle))?;
                Ok(None)
            }
            code::CREATE_UC => number(
                self.devices[machine]
                    .contexts
                    .insert(|_| Some(()))
                    .ok_or_else(|| Error::NoRoom.of("one more user context"))?,
            ),
            code::DESTROY_UC => {
                let handle = body::<One>(bytes)?.value;
                self.devices[machine]
                    .contexts
                    .remove(handle)
                    .ok_or_else(|| no_such("user context", handle))?;
                Ok(None)
            }
            code::CREATE_MR => self.create_mr(machine, &body::<CreateMr>(bytes)?),
            code::DESTROY_MR => {
                let keys: &mut Keys = &mut self.devices[machine].keys;
                let handle = body::<One>(bytes)?.value;
                keys.remove(handle)
                    .map_err(|_| no_such("memory region", handle))?;
                Ok(None)
            }
            code::CREATE_CQ => self.create_cq(machine, &body::<CreateCq>(bytes)?),
            code::DESTROY_CQ => self.destroy_cq(machine, body::<One>(bytes)?.value),
            code::CREATE_SRQ => self.create_srq(machine, &body::<CreateSrq>(bytes)?),
            code::MODIFY_SRQ => self.modify_srq(machine, &body::<ModifySrq>(bytes)?),
            code::QUERY_SRQ => self.query_srq(machine, body::<One>(bytes)?.value),
            code::DESTROY_SRQ => self.destroy_srq(machine, body::<One>(bytes)?.value),
            code::CREATE_QP => self.create_qp(machine, &body::<CreateQp>(bytes)?),
            code::MODIFY_QP => self.modify_qp(machine, &body::<ModifyQp>(bytes)?),
            code::QUERY_QP => self.query_qp(machine, body::<Two>(bytes)?.handle),
            code::DESTROY_QP => self.destroy_qp(machine, body::<One>(bytes)?.value),
            code::CREATE_BIND => self.create_bind(machine, &body::<CreateBind>(bytes)?),
            code::DESTROY_BIND => self.destroy_bind(machine, &body::<DestroyBind>(bytes)?),
            // The driver never resizes a completion queue.
            _ => Err(Error::Invalid.of(format_args!("the command number {command}"))),
        }
    }

    fn port(&self, machine: Machine) -> Port {
        const ACTIVE: u32 = 4;
        const DOWN: u32 = 1;
        const MTU_4096: u32 = 5;
        const IP_GIDS: u32 = 1 << 26;
        const CM: u32 = 1 << 16;
        let up = self.devices[machine].active && !self.is_down(machine);
        Port {
            state: if up { ACTIVE } else { DOWN },
            max_mtu: MTU_4096,
            active_mtu: MTU_4096,
            gid_tbl_len: limit::GIDS,
            port_cap_flags: IP_GIDS | CM,
            max_msg_sz: limit::MESSAGE,
            pkey_tbl_len: 1,
            max_vl_num: 1,
            // 4 lanes of 25.78 Gb/s: the fastest link that the interface can describe.
            active_width: 2,
            active_speed: 32,
            // Link up, or polling.
            phys_state: if up { 5 } else { 2 },
            ..Port::default()
        }
    }

    fn modify_qp(&mut self, machine: Machine, from: &ModifyQp) -> Outcome {
        let unknown = || no_such("queue pair", from.handle);
        let who = self.address(machine, from.handle).ok_or_else(unknown)?;
        let uid = self.unique();
        let qp = self.qp_mut(who).ok_or_else(unknown)?;
        let before = qp.state;
        let next = qp.modify(from.mask, &from.attrs)?;
        match next {
            // Messages in flight are not for the reset queue pair.
            State::Reset => qp.uid = uid,
            State::Err if before != State::Err => {
                let shared = qp.srq.is_some();
                self.flush(who);
                if shared {
                    self.devices[machine].event(event::QP_LAST_WQE_REACHED, from.handle);
                }
            }
            State::Rts => self.ready(who),
            State::Sqd => {
                qp.attrs.draining = from.attrs.sqd_notify;
                self.drained(who);
            }
            _ => {}
        }
        Ok(Some(Vec::new()))
    }

    fn query_qp(&mut self, machine: Machine, handle: u32) -> Outcome {
        let qp = self.devices[machine].qps.get(handle);
        answer(&qp.ok_or_else(|| no_such("queue pair", handle))?.attrs)
    }

    fn destroy_qp(&mut self, machine: Machine, handle: u32) -> Outcome {
        let device = &mut self.devices[machine];
        let qp = device.qps.remove(handle);
        let qp = qp.ok_or_else(|| no_such("queue pair", handle))?;
        device.counters.add(&qp.counters);
        Ok(None)
    }

    fn modify_srq(&mut self, machine: Machine, from: &ModifySrq) -> Outcome {
        const LIMIT: u32 = 1 << 1;
        let srq = self.devices[machine]
            .srqs
            .get_mut(from.handle)
            .ok_or_else(|| no_such("shared receive queue", from.handle))?;
        if from.mask != LIMIT {
            return Err(Error::Invalid.of(format_args!("the mask {:#x}", from.mask)));
        }
        if from.attrs.limit > srq.size {
            return Err(Error::Invalid.of(format_args!("the limit {}", from.attrs.limit)));
        }
        srq.limit = from.attrs.limit;
        Ok(None)
    }

    fn query_srq(&mut self, machine: Machine, handle: u32) -> Outcome {
        let srq = self.devices[machine]
            .srqs
            .get(handle)
            .ok_or_else(|| no_such("shared receive queue", handle))?;
        answer(&SrqAttrs {
            max_wr: srq.size,
            max_sge: srq.most,
            limit: srq.limit,
            reserved: 0,
        })
    }

    fn destroy_srq(&mut self, machine: Machine, handle: u32) -> Outcome {
        let device = &mut self.devices[machine];
        if device.qps.iter().any(|(_, qp)| qp.srq == Some(handle)) {
            return Err(Error::Busy.of(format_args!("shared receive queue {handle}")));
        }
        let srq = device.srqs.remove(handle);
        srq.ok_or_else(|| no_such("shared receive queue", handle))?;
        Ok(None)
    }

    fn destroy_cq(&mut self, machine: Machine, handle: u32) -> Outcome {
        let device = &mut self.devices[machine];
        if device
            .qps
            .iter()
            .any(|(_, qp)| qp.send_cq == handle || qp.recv_cq == handle)
        {
            return Err(Error::Busy.of(format_args!("completion queue {handle}")));
        }
        let cq = device.cqs.remove(handle);
        cq.ok_or_else(|| no_such("completion queue", handle))?;
        Ok(None)
    }

    fn create_bind(&mut self, machine: Machine, from: &CreateBind) -> Outcome {
        let place = self.devices[machine]
            .gids
            .get_mut(from.index as usize)
            .ok_or_else(|| Error::Invalid.of(format_args!("the index {}", from.index)))?;
        // An address belongs to the first machine that has assigned it.
        if *self.gids.entry(from.gid).or_insert(machine) != machine {
            let address = Ipv6Addr::from(from.gid);
            return Err(Error::Busy.of(format_args!("the address {address}")));
        }
        if let Some(before) = place.replace(from.gid) {
            self.release_gid(machine, before);
        }
        Ok(None)
    }

    fn destroy_bind(&mut self, machine: Machine, from: &DestroyBind) -> Outcome {
        let gid = self.devices[machine]
            .gids
            .get_mut(from.index as usize)
            .and_then(Option::take)
            .ok_or_else(|| no_such("the address at index", from.index))?;
        self.release_gid(machine, gid);
        Ok(None)
    }

    /// Lets other machines assign an address that a machine has removed from an index.
    fn release_gid(&mut self, machine: Machine, gid: [u8; 16]) {
        // The same address may exist twice, for two versions of RoCE.
        if !self.devices[machine].gids.contains(&Some(gid)) {
            self.gids.remove(&gid);
        }
    }

    /// Destroys all objects of a machine whose driver resets the device or is gone.
    pub fn forget(&mut self, machine: Machine) {
        self.gids.retain(|_, owner| *owner != machine);
        let device = &mut self.devices[machine];
        let mut counters = device.counters;
        for (_, qp) in device.qps.iter() {
            counters.add(&qp.counters);
        }
        device.counters = counters;
        device.forget();
        self.ports[machine].work.clear();
        self.low_halves[machine] = 0;
    }
}
