// SPDX-License-Identifier: GPL-2.0
//! The vfio-user server for one machine: requests of QEMU on behalf of the guest.

use std::fs::File;
use std::io;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_PCI_BAR1_REGION_INDEX, VFIO_PCI_BAR2_REGION_INDEX,
    VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_MSIX_IRQ_INDEX,
};
use vfio_user::{DmaMapFlags, DmaUnmapFlags, ServerBackend};

use crate::abi::uar;
use crate::pci::Config;
use crate::switch::{Machine, Switch};

/// The switch, and the condition that wakes its thread.
pub struct Running {
    /// The switch.
    pub switch: Mutex<Switch>,
    /// Signalled when the switch has work.
    pub asked: Condvar,
}

/// The server for one machine.
pub struct Backend {
    machine: Machine,
    running: Arc<Running>,
    config: Config,
}

impl Backend {
    /// The server for this machine.
    pub fn new(machine: Machine, running: Arc<Running>) -> Self {
        Self {
            machine,
            running,
            config: Config::default(),
        }
    }

    fn is_removed(&self) -> bool {
        self.running.switch.lock().is_removed(self.machine)
    }

    /// QEMU has disconnected; the machine no longer exists.
    pub fn gone(&mut self) {
        self.config = Config::default();
        let mut switch = self.running.switch.lock();
        switch.forget(self.machine);
        let device = switch.device(self.machine);
        device.memory.clear();
        device.vectors = Default::default();
        device.log.another_machine();
    }
}

impl ServerBackend for Backend {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        data.fill(0);
        match region {
            VFIO_PCI_CONFIG_REGION_INDEX if self.is_removed() => data.fill(0xff),
            VFIO_PCI_CONFIG_REGION_INDEX => self.config.read(offset, data),
            VFIO_PCI_BAR1_REGION_INDEX if data.len() <= 4 => {
                let value = self
                    .running
                    .switch
                    .lock()
                    .read_register(self.machine, offset);
                let len = data.len();
                data.copy_from_slice(&value.to_le_bytes()[..len]);
            }
            // Reads of doorbells and of the MSI-X table, which QEMU emulates, return zeros.
            _ => {}
        }
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        let value = data.try_into().map(u32::from_le_bytes);
        let len = data.len();
        match (region, value) {
            (VFIO_PCI_CONFIG_REGION_INDEX, _) => self.config.write(offset, data),
            (VFIO_PCI_BAR1_REGION_INDEX, Ok(value)) => {
                self.running
                    .switch
                    .lock()
                    .write_register(self.machine, offset, value);
                self.running.asked.notify_one();
            }
            // The driver rings at each poll of an empty queue. The device needs no action.
            (VFIO_PCI_BAR2_REGION_INDEX, Ok(value)) if uar::is_look(offset, value) => {}
            (VFIO_PCI_BAR2_REGION_INDEX, Ok(value)) => {
                let has_work = self.running.switch.lock().ring(self.machine, offset, value);
                if has_work {
                    self.running.asked.notify_one();
                }
            }
            (VFIO_PCI_BAR1_REGION_INDEX | VFIO_PCI_BAR2_REGION_INDEX, Err(_)) => {
                let mut switch = self.running.switch.lock();
                switch.device(self.machine).log.complain(
                    "access",
                    format_args!("a write of {len} bytes at {offset:#x} of BAR {region}"),
                );
            }
            // QEMU emulates the MSI-X table.
            _ => {}
        }
        Ok(())
    }

    fn dma_map(
        &mut self,
        _: DmaMapFlags,
        offset: u64,
        address: u64,
        size: u64,
        fd: Option<File>,
    ) -> io::Result<()> {
        // Memory without a file belongs to the firmware; drivers do not use it for DMA.
        let Some(file) = fd else { return Ok(()) };
        let mut switch = self.running.switch.lock();
        let device = switch.device(self.machine);
        let mapped = device.memory.map(address, size, file, offset);
        if let Err(error) = &mapped {
            device.log.complain(
                "memory",
                format_args!("{size:#x} bytes at {address:#x}: {error}"),
            );
        }
        mapped
    }

    fn dma_unmap(&mut self, flags: DmaUnmapFlags, address: u64, size: u64) -> io::Result<()> {
        let mut switch = self.running.switch.lock();
        let memory = &mut switch.device(self.machine).memory;
        if flags.contains(DmaUnmapFlags::UNMAP_ALL) {
            memory.clear();
        } else {
            memory.unmap(address, size);
        }
        Ok(())
    }

    fn reset(&mut self) -> io::Result<()> {
        self.config = Config::default();
        self.running.switch.lock().forget(self.machine);
        Ok(())
    }

    fn set_irqs(
        &mut self,
        index: u32,
        flags: u32,
        start: u32,
        count: u32,
        fds: Vec<File>,
    ) -> io::Result<()> {
        if index != VFIO_PCI_MSIX_IRQ_INDEX || flags & VFIO_IRQ_SET_ACTION_TRIGGER == 0 {
            return Ok(());
        }
        let mut switch = self.running.switch.lock();
        let vectors = &mut switch.device(self.machine).vectors;
        // A count of 0 means all vectors; a missing descriptor disables a vector.
        let (start, count) = if count == 0 {
            (0, vectors.len())
        } else {
            (start as usize, count as usize)
        };
        let mut fds = fds.into_iter();
        for vector in vectors.iter_mut().skip(start).take(count) {
            *vector = fds.next();
        }
        Ok(())
    }
}
