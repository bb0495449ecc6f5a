// SPDX-License-Identifier: GPL-2.0
//! Counters for users and scripts.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Switch;
use crate::qp::Counters;

/// Counters of all machines' adapters since the start.
#[derive(Debug, Serialize)]
pub struct Report {
    /// By machine, in order.
    pub machines: Vec<MachineReport>,
}

/// Counters of one machine's adapter.
#[derive(Debug, Serialize)]
pub struct MachineReport {
    /// Whether its driver has activated it.
    pub active: bool,
    /// Whether its link is up.
    pub link_up: bool,
    /// Pieces, requests and answers that it has sent and that were lost on the wire.
    pub lost: u64,
    /// Doorbells rung by the guest, except polls of completion queues.
    pub doorbells: u64,
    /// Interrupts raised.
    pub interrupts: u64,
    /// Memory regions with a key.
    pub keys: u64,
    /// Completion queues.
    pub completion_queues: u32,
    /// The error register: 0, or the error of the last command or of the last write to CTL.
    pub error: u32,
    /// Number of refused values of the guest, by the place where the guest has written them.
    pub complaints: BTreeMap<&'static str, u64>,
    /// Sums over all queue pairs, including destroyed ones.
    pub total: Counters,
    /// Counters of existing queue pairs.
    pub queue_pairs: Vec<QpReport>,
}

/// Counters of a queue pair.
#[derive(Debug, Serialize)]
pub struct QpReport {
    /// Its number.
    pub number: u32,
    /// Its state.
    pub state: String,
    /// Requests that have not completed.
    pub pending: usize,
    /// Its counters.
    #[serde(flatten)]
    pub counters: Counters,
}

impl Counters {
    /// Adds the counters of `other`.
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
                error: device.error,
                complaints: device.log.counts().clone(),
                total,
                queue_pairs,
            }
        };
        Report {
            machines: self.devices.iter().enumerate().map(machine).collect(),
        }
    }
}
