// SPDX-License-Identifier: GPL-2.0
//! Accesses to registers and doorbells.

use super::{Machine, Switch};
use crate::abi::{ctl, reg, uar, PAGE, VERSION};
use crate::cq::Armed;
use crate::error::Error;
use crate::qp::State;

impl Switch {
    /// Reads a register of BAR 1.
    pub fn read_register(&mut self, machine: Machine, offset: u64) -> u32 {
        if self.is_removed(machine) {
            return u32::MAX;
        }
        let device = &self.devices[machine];
        match offset {
            reg::VERSION => VERSION,
            reg::ERR => device.error,
            reg::IMR => device.masked,
            // The cause register is not used with MSI-X.
            _ => 0,
        }
    }

    /// Writes a register of BAR 1.
    pub fn write_register(&mut self, machine: Machine, offset: u64, value: u32) {
        if self.is_removed(machine) {
            return;
        }
        match offset {
            reg::DSR_LOW => self.low_halves[machine] = value,
            reg::DSR_HIGH => {
                let address = (u64::from(value) << 32) | u64::from(self.low_halves[machine]);
                self.forget(machine);
                let device = &mut self.devices[machine];
                device.error = 0;
                if let Err(refused) = device.share(address) {
                    device.error = refused.error as u32;
                    device.log.complain("shared region", refused);
                }
            }
            reg::CTL => self.control(machine, value),
            reg::REQUEST => self.command(machine),
            reg::IMR => self.devices[machine].masked = value,
            _ => {
                self.devices[machine].log.complain(
                    "register",
                    format_args!(
                        "a write of {value:#x} at {offset:#x}, where no register can be written"
                    ),
                );
            }
        }
    }

    fn control(&mut self, machine: Machine, value: u32) {
        if value == ctl::RESET {
            self.forget(machine);
            return;
        }
        let device = &mut self.devices[machine];
        let refused = if !matches!(value, ctl::ACTIVATE | ctl::UNQUIESCE) {
            Some(Error::Invalid.of(format_args!("the value {value:#x}")))
        } else if device.shared.is_none() {
            Some(Error::NoSuch.of("the shared region"))
        } else {
            None
        };
        device.error = refused.as_ref().map_or(0, |refused| refused.error as u32);
        match refused {
            Some(refused) => device.log.complain("CTL", refused),
            None => device.active = true,
        }
    }

    /// Logs that a guest has rung for an object that does not exist. The error register does not
    /// change: a program can ring at any time, while the driver reads the error of its command.
    fn unknown(&mut self, machine: Machine, doorbell: &'static str, handle: u32) {
        let log = &mut self.devices[machine].log;
        log.complain(doorbell, format_args!("there is no {handle}"));
    }

    /// Rings a doorbell in BAR 2. Returns whether the switch has work now.
    pub fn ring(&mut self, machine: Machine, offset: u64, value: u32) -> bool {
        let device = &mut self.devices[machine];
        device.doorbells += 1;
        let handle = value & uar::HANDLE;
        match offset % PAGE {
            uar::QP if value & (uar::QP_SEND | uar::QP_RECV) == 0 => {
                device.log.complain(
                    "doorbell of queue pairs",
                    format_args!("the value {value:#x} means neither a send nor a receive"),
                );
            }
            uar::QP => {
                let Some(who) = self.address(machine, handle) else {
                    self.unknown(machine, "doorbell of queue pairs", handle);
                    return false;
                };
                let failed = self.qp(who).is_some_and(|qp| qp.state == State::Err);
                // Receives of a failed queue pair are flushed as well.
                if value & uar::QP_SEND != 0 || value & uar::QP_RECV != 0 && failed {
                    self.ready(who);
                    return true;
                }
            }
            uar::CQ if uar::is_look(offset, value) => {}
            uar::CQ if device.cqs.get(handle).is_none() => {
                self.unknown(machine, "doorbell of completion queues", handle);
            }
            uar::CQ => {
                let any = value & uar::CQ_ARM != 0;
                let armed = if any { Armed::Any } else { Armed::Solicited };
                device.arm(handle, armed);
            }
            // The device reads a shared receive queue when it needs a receive.
            uar::SRQ if device.srqs.get(handle).is_some() => {}
            uar::SRQ => self.unknown(machine, "doorbell of shared receive queues", handle),
            offset => {
                device.log.complain(
                    "doorbell",
                    format_args!(
                        "a write of {value:#x} at {offset:#x} of a page, where no doorbell is"
                    ),
                );
            }
        }
        false
    }
}
