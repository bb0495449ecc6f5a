// SPDX-License-Identifier: GPL-2.0
//! The PCI function: configuration space and regions.

use vfio_bindings::bindings::vfio::{
    vfio_region_info, VFIO_IRQ_INFO_EVENTFD, VFIO_PCI_BAR0_REGION_INDEX,
    VFIO_PCI_BAR1_REGION_INDEX, VFIO_PCI_BAR2_REGION_INDEX, VFIO_PCI_CONFIG_REGION_INDEX,
    VFIO_PCI_MSIX_IRQ_INDEX, VFIO_PCI_NUM_IRQS, VFIO_PCI_NUM_REGIONS, VFIO_REGION_INFO_FLAG_READ,
    VFIO_REGION_INFO_FLAG_WRITE,
};
use vfio_user::{IrqInfo, ServerRegion};

use crate::abi::shared::limit;
use crate::abi::{vector, PAGE};

/// Size of the configuration space.
const CONFIG: usize = 256;
/// Offset of the MSI-X capability.
const MSIX: usize = 0x40;
/// Offset of the pending bits in BAR 0, after the table.
const PENDING: u32 = 0x800;

/// The configuration space. QEMU emulates the base addresses and MSI-X for the guest according to
/// these values.
pub struct Config {
    bytes: [u8; CONFIG],
}

impl Default for Config {
    fn default() -> Self {
        let mut config = Self { bytes: [0; CONFIG] };
        config.set(0x00, &0x15adu16.to_le_bytes()); // VMware
        config.set(0x02, &0x0820u16.to_le_bytes()); // paravirtual RDMA
        config.set(0x06, &0x0010u16.to_le_bytes()); // there are capabilities
        config.set(0x08, &[1, 0, 0x06, 0x0c]); // revision, InfiniBand controller
        config.set(0x18, &[0x04]); // BAR 2 has 64 bits
        config.set(0x2c, &0x15adu16.to_le_bytes());
        config.set(0x2e, &0x0820u16.to_le_bytes());
        config.set(0x34, &[MSIX as u8]);
        config.set(MSIX, &[0x11, 0]);
        config.set(MSIX + 2, &(vector::COUNT as u16 - 1).to_le_bytes());
        config.set(MSIX + 4, &0u32.to_le_bytes()); // table at the start of BAR 0
        config.set(MSIX + 8, &PENDING.to_le_bytes());
        config
    }
}

impl Config {
    fn set(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Reads; returns zeros beyond the end.
    pub fn read(&self, offset: u64, data: &mut [u8]) {
        for (n, byte) in data.iter_mut().enumerate() {
            let at = usize::try_from(offset)
                .ok()
                .and_then(|at| at.checked_add(n));
            *byte = at.and_then(|at| self.bytes.get(at)).copied().unwrap_or(0);
        }
    }

    /// Writes the command register and the MSI-X control; all other bytes are read-only.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        for (n, byte) in data.iter().enumerate() {
            let at = offset.saturating_add(n as u64);
            let kept = match at {
                0x04 | 0x05 => 0xff,
                // Writable bits: enable and function mask.
                0x43 => 0xc0,
                _ => continue,
            };
            let place = &mut self.bytes[at as usize];
            *place = (*place & !kept) | (byte & kept);
        }
    }
}

/// The regions in vfio's numbering.
pub fn regions() -> Vec<ServerRegion> {
    let size = |index| match index {
        VFIO_PCI_BAR0_REGION_INDEX | VFIO_PCI_BAR1_REGION_INDEX => PAGE,
        VFIO_PCI_BAR2_REGION_INDEX => PAGE * u64::from(limit::UARS),
        VFIO_PCI_CONFIG_REGION_INDEX => CONFIG as u64,
        _ => 0,
    };
    let region = |index| {
        let size = size(index);
        let flags = if size > 0 {
            VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE
        } else {
            0
        };
        let argsz = size_of::<vfio_region_info>() as u32;
        ServerRegion {
            region_info: vfio_region_info {
                argsz,
                index,
                size,
                flags,
                ..Default::default()
            },
            sparse_areas: Vec::new(),
            mmap_fd: None,
        }
    };
    (0..VFIO_PCI_NUM_REGIONS).map(region).collect()
}

/// The interrupts in vfio's numbering: only MSI-X.
pub fn interrupts() -> Vec<IrqInfo> {
    (0..VFIO_PCI_NUM_IRQS)
        .map(|index| match index {
            VFIO_PCI_MSIX_IRQ_INDEX => IrqInfo {
                index,
                flags: VFIO_IRQ_INFO_EVENTFD,
                count: vector::COUNT as u32,
            },
            _ => IrqInfo {
                index,
                flags: 0,
                count: 0,
            },
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_some_bits_change() {
        let mut config = Config::default();
        config.write(0, &[0xff; CONFIG]);
        config.write(u64::MAX, &[0xff]);
        let mut bytes = [0; CONFIG];
        config.read(0, &mut bytes);
        assert_eq!(&bytes[..8], &[0xad, 0x15, 0x20, 0x08, 0xff, 0xff, 0x10, 0]);
        assert_eq!(&bytes[MSIX..MSIX + 4], &[0x11, 0, 2, 0xc0]);
        let mut outside = [1; 4];
        config.read(254, &mut outside);
        assert_eq!(outside, [0; 4]);
    }
}
