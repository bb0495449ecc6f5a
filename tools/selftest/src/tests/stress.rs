// SPDX-License-Identifier: GPL-2.0
//! Many connections, much data, both ways.

use crate::flow::{self, Exchange};
use crate::harness::{expect_eq, failed, tests, Env, Outcome};
use crate::peer::Work;
use std::sync::Arc;

tests!("stress";
    streams_on_1_connection,
    streams_on_8_connections,
    streams_on_200_connections,
);

/// Bytes each way that a stream test moves in all, at scale 1.
const TOTAL: u64 = 3 << 20;

fn streams_on_1_connection(env: &Env) -> Outcome {
    streams(env, 1)
}

fn streams_on_8_connections(env: &Env) -> Outcome {
    streams(env, 8)
}

fn streams_on_200_connections(env: &Env) -> Outcome {
    streams(env, 200)
}

fn streams(env: &Env, count: u64) -> Outcome {
    let (listener, addr) = env.remote_listener(count as i32)?;
    let mut jobs = Vec::new();
    let mut threads = Vec::new();
    for i in 0..count {
        let sock = Arc::new(env.socket()?);
        sock.connect(&addr)?;
        let (remote, _) = listener.accept()?;
        let exchange = Exchange {
            send_seed: env.seed + 2 * i,
            recv_seed: env.seed + 2 * i + 1,
            bytes: env.scaled(TOTAL / count) | 1,
            max: 256 << 10,
        };
        jobs.push(remote.start(Work::Exchange(exchange.mirrored()))?);
        threads.push((i, exchange, flow::spawn(move || exchange.run(&sock))?));
    }
    for (i, exchange, thread) in threads {
        let Ok(got) = thread.join() else {
            return failed(format!("connection {i}: panic"));
        };
        if let Some(text) = exchange.complaint(&got?) {
            return failed(format!("connection {i}: {text}"));
        }
    }
    for (i, job) in jobs.into_iter().enumerate() {
        let bytes = env.scaled(TOTAL / count) | 1;
        expect_eq(
            job.join()?,
            bytes.to_string(),
            format!("the peer's connection {i}"),
        )?;
    }
    Ok(())
}
