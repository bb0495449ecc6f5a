// SPDX-License-Identifier: GPL-2.0
//! Commands of the driver.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Machine, Switch};
use crate::abi::command::{
    code, CreateBind, CreateCq, CreateMr, CreateQp, CreateSrq, DestroyBind, Header, ModifyQp,
    ModifySrq, One, Port, ResponseHeader, SrqAttrs, Two, LARGEST,
};
use crate::abi::shared::limit;
use crate::abi::{event, vector};
use crate::device::Error;
use crate::keys::Keys;
use crate::qp::State;

/// Result of a command: the bytes after the response's header, or none for commands whose response
/// the driver does not wait for.
pub(super) type Outcome = Result<Option<Vec<u8>>, Error>;

/// A response with a structure.
pub(super) fn answer<T: IntoBytes + Immutable>(value: &T) -> Outcome {
    Ok(Some(value.as_bytes().to_vec()))
}

/// A response with one number.
pub(super) fn number(value: u32) -> Outcome {
    answer(&One { value, reserved: 0 })
}

fn body<T: FromBytes + KnownLayout + Immutable>(bytes: &[u8]) -> Result<T, Error> {
    T::read_from_prefix(bytes)
        .map(|(value, _)| value)
        .map_err(|_| Error::Invalid)
}

impl Switch {
    /// Executes the command in the machine's command slot and writes the response.
    pub fn command(&mut self, machine: Machine) {
        let done = self.run(machine);
        let device = &mut self.devices[machine];
        device.error = 0;
        if let Err(error) = done {
            device.error = error as u32;
            device.complain(&format!("a command is refused: {error:?}"));
        }
    }

    fn run(&mut self, machine: Machine) -> Result<(), Error> {
        let device = &self.devices[machine];
        let shared = device.shared.as_ref().ok_or(Error::Invalid)?;
        let (slot, to) = (shared.commands, shared.responses);
        let bytes: [u8; LARGEST] = device.memory.read(slot)?;
        let (header, rest) = Header::read_from_prefix(&bytes).map_err(|_| Error::Invalid)?;
        let outcome = self.execute(machine, header.command, rest);
        let mut response = ResponseHeader {
            response: header.response,
            ack: header.command | code::RESPONSE,
            ..ResponseHeader::default()
        };
        let body = match outcome {
            Ok(Some(body)) => body,
            Ok(None) => return Ok(()),
            // For a modification, the driver reads the error only from the response.
            Err(error) if header.command == code::MODIFY_QP => {
                response.err = error as u8;
                Vec::new()
            }
            Err(error) => return Err(error),
        };
        let device = &mut self.devices[machine];
        device.memory.write(to, &response)?;
        let at = to
            .checked_add(size_of::<ResponseHeader>() as u64)
            .ok_or(Error::Fault)?;
        device.memory.write_bytes(at, &body)?;
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
                    .ok_or(Error::NoRoom)?,
            ),
            code::DESTROY_PD => {
                self.devices[machine]
                    .pds
                    .remove(body::<One>(bytes)?.value)
                    .ok_or(Error::NoSuch)?;
                Ok(None)
            }
            code::CREATE_UC => number(
                self.devices[machine]
                    .contexts
                    .insert(|_| Some(()))
                    .ok_or(Error::NoRoom)?,
            ),
            code::DESTROY_UC => {
                self.devices[machine]
                    .contexts
                    .remove(body::<One>(bytes)?.value)
                    .ok_or(Error::NoSuch)?;
                Ok(None)
            }
            code::CREATE_MR => self.create_mr(machine, &body::<CreateMr>(bytes)?),
            code::DESTROY_MR => {
                let keys: &mut Keys = &mut self.devices[machine].keys;
                keys.remove(body::<One>(bytes)?.value)
                    .map_err(|_| Error::NoSuch)?;
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
            _ => Err(Error::Invalid),
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
        let who = self.address(machine, from.handle).ok_or(Error::NoSuch)?;
        let uid = self.unique();
        let qp = self.qp_mut(who).ok_or(Error::NoSuch)?;
        let before = qp.state;
        let next = qp.modify(from.mask, &from.attrs).ok_or(Error::Invalid)?;
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
        let qp = self.devices[machine].qps.get(handle).ok_or(Error::NoSuch)?;
        answer(&qp.attrs)
    }

    fn destroy_qp(&mut self, machine: Machine, handle: u32) -> Outcome {
        let device = &mut self.devices[machine];
        let qp = device.qps.remove(handle).ok_or(Error::NoSuch)?;
        device.counters.add(&qp.counters);
        Ok(None)
    }

    fn modify_srq(&mut self, machine: Machine, from: &ModifySrq) -> Outcome {
        const LIMIT: u32 = 1 << 1;
        let srq = self.devices[machine]
            .srqs
            .get_mut(from.handle)
            .ok_or(Error::NoSuch)?;
        if from.mask != LIMIT || from.attrs.limit > srq.size {
            return Err(Error::Invalid);
        }
        srq.limit = from.attrs.limit;
        Ok(None)
    }

    fn query_srq(&mut self, machine: Machine, handle: u32) -> Outcome {
        let srq = self.devices[machine]
            .srqs
            .get(handle)
            .ok_or(Error::NoSuch)?;
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
            return Err(Error::Busy);
        }
        device.srqs.remove(handle).ok_or(Error::NoSuch)?;
        Ok(None)
    }

    fn destroy_cq(&mut self, machine: Machine, handle: u32) -> Outcome {
        let device = &mut self.devices[machine];
        if device
            .qps
            .iter()
            .any(|(_, qp)| qp.send_cq == handle || qp.recv_cq == handle)
        {
            return Err(Error::Busy);
        }
        device.cqs.remove(handle).ok_or(Error::NoSuch)?;
        Ok(None)
    }

    fn create_bind(&mut self, machine: Machine, from: &CreateBind) -> Outcome {
        let place = self.devices[machine]
            .gids
            .get_mut(from.index as usize)
            .ok_or(Error::Invalid)?;
        // An address belongs to the first machine that has assigned it.
        if *self.gids.entry(from.gid).or_insert(machine) != machine {
            return Err(Error::Busy);
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
            .ok_or(Error::NoSuch)?;
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
