// SPDX-License-Identifier: GPL-2.0

//! A bounded run of the fuzz targets: random bytes, and good messages with a
//! few bytes changed. The long runs are those of `fuzz/`.

use crate::message::{
    body,
    wire, //
};
use proptest::{
    prelude::*,
    sample::Index, //
};
use proto_host::{
    fuzz::TARGETS,
    proto::{
        hello::{
            Features,
            Hello,
            HelloAck,
            Refusal, //
        },
        message::Body,
    },
};

fn all_targets(data: &[u8]) {
    for (_, target) in TARGETS {
        target(data);
    }
}

/// The bytes of something good, for a parser that is chosen at random.
fn good() -> impl Strategy<Value = Vec<u8>> {
    let hello = Hello {
        features: Features::ALL,
        max_adverts: 4,
        bufs: 16,
        rcv_size: 4096,
        ipv6: false,
        src_port: 1000,
        nonce: 0,
    };
    let ack = HelloAck {
        features: Features::ORDERED,
        max_adverts: 4,
        bufs: 16,
        rcv_size: 4096,
    };
    let message = |body: Body| {
        let (hdr, rest) = wire(body, &[]);
        [hdr, rest].concat()
    };
    prop_oneof![
        Just([&hello.encode()[..], &[0; 12]].concat()),
        Just([&ack.encode()[..], &[0; 164]].concat()),
        Just(Refusal::NoMemory.encode().to_vec()),
        body().prop_map(message),
        // Several messages as the stream target reads them.
        (any::<u8>(), prop::collection::vec(body(), 1..6)).prop_map(move |(first, bodies)| {
            let mut all = vec![first];
            for bytes in bodies.into_iter().map(message) {
                all.push(bytes.len() as u8);
                all.extend(bytes);
            }
            all
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn random_bytes(data in prop::collection::vec(any::<u8>(), 0..260)) {
        all_targets(&data);
    }

    #[test]
    fn good_bytes_changed(
        mut data in good(),
        changes in prop::collection::vec((any::<Index>(), any::<u8>()), 0..4),
        cut in any::<Option<Index>>(),
    ) {
        for (at, byte) in changes {
            let at = at.index(data.len());
            data[at] = byte;
        }
        if let Some(cut) = cut {
            data.truncate(cut.index(data.len()));
        }
        all_targets(&data);
    }
}
