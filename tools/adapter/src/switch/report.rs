// SPDX-License-Identifier: GPL-2.0
//! Counters, for people and for scripts.

use serde::Serialize;

use super::Switch;
use crate::qp::Counters;

/// What all machines' adapters have done, since they were there.
#[derive(Debug, Serialize)]
pub struct Report {
    /// By machine, the first one first.
    pub machines: Vec<MachineReport>,
}

/// What one machine's adapter has done.
#[derive(Debug, Serialize)]
pub struct MachineReport {
    /// Whether its driver has activated it.
    pub active: bool,
    /// Whether its link is up.
    pub link_up: bool,
    /// Pieces, requests and answers that it has sent and that were lost on the wire.
    pub lost: u64,
    /// Doorbells that its guest rang, without those of looks at completion queues.
    pub doorbells: u64,
    /// Interrupts that it raised.
    pub interrupts: u64,
    /// Regions of memory that have a key.
    pub keys: u64,
    /// Completion queues.
    pub completion_queues: u32,
    /// What all its queue pairs have done, with those that are gone.
    pub total: Counters,
    /// What the queue pairs that are there have done.
    pub queue_pairs: Vec<QpReport>,
}

/// What a queue pair has done.
#[derive(Debug, Serialize)]
pub struct QpReport {
    /// Its number.
    pub number: u32,
    /// Its state.
    pub state: String,
    /// Requests that have not ended.
    pub pending: usize,
    /// What it has done.
    #[serde(flatten)]
    pub counters: Counters,
}

impl Counters {
    /// Adds those of another one.
    pub fn add(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.sends += other.sends;
        self.receives += other.receives;
        self.errors += other.errors;
        self.rnr += other.rnr;
        self.retries += other.retries;
    }
}

impl Switch {
    /// The counters of all machines.
    pub fn report(&self) -> Report {
        let machine = |(number, device): (usize, &crate::device::Device)| {
            let link_up = !self.is_down(number);
            let lost = self.lost(number);
            let mut total = device.counters;
            let mut queue_pairs = Vec::new();
            for (number, qp) in device.qps.iter() {
                total.add(&qp.counters);
                queue_pairs.push(QpReport {
                    number,
                    state: format!("{:?}", qp.state).to_lowercase(),
                    pending: qp.requester.pending.len(),
                    counters: qp.counters,
                });
            }
            MachineReport {
                active: device.active,
                link_up,
                lost,
                doorbells: device.doorbells,
                interrupts: device.interrupts,
                keys: device.keys.count(),
                completion_queues: device.cqs.len(),
                total,
                queue_pairs,
            }
        };
        Report {
            machines: self.devices.iter().enumerate().map(machine).collect(),
        }
    }
}
