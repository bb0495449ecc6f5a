// SPDX-License-Identifier: GPL-2.0
//! Accesses to registers and doorbells.

use super::{Machine, Switch};
use crate::abi::{ctl, reg, uar, PAGE, VERSION};
use crate::cq::Armed;
use crate::device::Error;
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
                if let Err(error) = device.share(address) {
                    device.error = error as u32;
                    device.complain(&format!("the shared region at {address:#x}: {error:?}"));
                }
            }
            reg::CTL => self.control(machine, value),
            reg::REQUEST => self.command(machine),
            reg::IMR => self.devices[machine].masked = value,
            _ => {}
        }
    }

    fn control(&mut self, machine: Machine, value: u32) {
        if value == ctl::RESET {
            self.forget(machine);
            return;
        }
        let device = &mut self.devices[machine];
        let known = matches!(value, ctl::ACTIVATE | ctl::UNQUIESCE);
        device.error = if known && device.shared.is_some() {
            0
        } else {
            Error::Invalid as u32
        };
        device.active |= device.error == 0;
    }

    /// Rings a doorbell in BAR 2. Returns whether the switch has work now.
    pub fn ring(&mut self, machine: Machine, offset: u64, value: u32) -> bool {
        self.devices[machine].doorbells += 1;
        let handle = value & uar::HANDLE;
        match offset % PAGE {
            uar::QP => {
                let Some(who) = self.address(machine, handle) else {
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
            uar::CQ => {
                let any = value & uar::CQ_ARM != 0;
                let armed = if any { Armed::Any } else { Armed::Solicited };
                self.devices[machine].arm(handle, armed);
            }
            // The device reads a shared receive queue when it needs a receive.
            _ => {}
        }
        false
    }
}
