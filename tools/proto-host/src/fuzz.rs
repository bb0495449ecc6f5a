// SPDX-License-Identifier: GPL-2.0

//! One function for each parser: it takes any bytes and panics only if the
//! parser breaks a promise.
//!
//! The fuzz targets in `fuzz/` and the smoke test call these same functions.

use crate::proto::{
    bsdh::{
        Bsdh,
        Class,
        BSDH_LEN, //
    },
    credits::{
        Credits,
        Stamp, //
    },
    hello::{
        Features,
        Hello,
        HelloAck,
        Refusal,
        BUFS_MIN,
        HELLO_ACK_LEN,
        HELLO_LEN,
        RCV_SIZE_MAX,
        RCV_SIZE_MIN,
        REFUSAL_LEN, //
    },
    message::{
        Body,
        Message,
        MAX_BODY, //
    },
    sink::SinkAdverts,
    sink_writer::{
        PayloadEvents,
        SinkWriter, //
    },
    source::{
        Kind,
        Progress,
        SourceAdverts, //
    },
    source_reader::{
        Answer,
        Destination,
        SourceReader, //
    },
    state::{
        Event,
        State, //
    },
};

/// A function that takes any bytes.
pub type Target = fn(&[u8]);

/// All targets, with the names of their programs in `fuzz/fuzz_targets`.
pub const TARGETS: [(&str, Target); 8] = [
    ("bsdh", fuzz_bsdh),
    ("message", fuzz_message),
    ("hello", fuzz_hello),
    ("hello_ack", fuzz_hello_ack),
    ("refusal", fuzz_refusal),
    ("credits", fuzz_credits),
    ("stream", fuzz_stream),
    ("adverts", fuzz_adverts),
];

/// A header that is read says what its bytes say, all of them.
pub fn fuzz_bsdh(data: &[u8]) {
    match Bsdh::decode(data) {
        Ok(hdr) => assert_eq!(Some(&hdr.encode()[..]), data.get(..BSDH_LEN)),
        Err(why) => assert!(!why.name().is_empty()),
    }
}

/// A message that is read comes out the same when it is written again, and its
/// payload lies within what was received.
pub fn fuzz_message(data: &[u8]) {
    let (hdr, rest) = data.split_at(data.len().min(BSDH_LEN));
    // What was received, and what the header claims was received: only the
    // first can be a good message, but neither may harm.
    let arrived = u32::try_from(data.len()).unwrap_or(u32::MAX);
    let claimed = Bsdh::decode(hdr).map_or(0, |h| h.len);
    for byte_len in [arrived, claimed] {
        if let Ok(msg) = Message::decode(hdr, rest, byte_len) {
            check_message(&msg, hdr, rest, byte_len);
        }
    }
}

fn check_message(msg: &Message, hdr: &[u8], rest: &[u8], byte_len: u32) {
    let mut body = [0; MAX_BODY];
    let len = msg.body.encode(&mut body);
    assert_eq!(len, msg.body.len());
    assert_eq!(&msg.hdr.encode()[..], hdr);
    assert_eq!(&body[..len], &rest[..len]);
    assert_eq!(body[len..], [0; MAX_BODY][len..]);
    assert_eq!(len, msg.payload_offset as usize);
    assert_eq!(
        Some(byte_len),
        msg.payload_offset
            .checked_add(msg.payload_len)
            .and_then(|n| n.checked_add(16))
    );
    assert!(msg.payload_len == 0 || msg.hdr.is_payload());
    assert_eq!(msg.body.class(msg.payload_len), msg.hdr.class());
    let stamp = Stamp {
        mseq: msg.hdr.mseq,
        mseq_ack: msg.hdr.mseq_ack,
        bufs: msg.hdr.bufs,
    };
    let again = msg.body.header(msg.hdr.flags, msg.payload_len, stamp);
    assert_eq!(again, Some(msg.hdr));
}

/// A Hello that is read keeps its promises and comes out the same when it is
/// written again, features that we do not know apart.
pub fn fuzz_hello(data: &[u8]) {
    if let Ok(hello) = Hello::decode(data) {
        check_set_up(hello.max_adverts, hello.bufs, hello.rcv_size);
        assert_ne!(hello.src_port, 0);
        let again = hello.encode();
        assert_eq!(Hello::decode(&again), Ok(hello));
        check_same_but_features(&again, &data[..HELLO_LEN]);
    }
}

/// The same for a HelloAck.
pub fn fuzz_hello_ack(data: &[u8]) {
    if let Ok(ack) = HelloAck::decode(data) {
        check_set_up(ack.max_adverts, ack.bufs, ack.rcv_size);
        let again = ack.encode();
        assert_eq!(HelloAck::decode(&again), Ok(ack));
        check_same_but_features(&again, &data[..HELLO_ACK_LEN]);
    }
}

fn check_set_up(max_adverts: u8, bufs: u16, rcv_size: u32) {
    assert!(max_adverts > 0);
    assert!(bufs >= BUFS_MIN);
    assert!((RCV_SIZE_MIN..=RCV_SIZE_MAX).contains(&rcv_size));
}

fn check_same_but_features(again: &[u8], data: &[u8]) {
    assert_eq!(again.len(), data.len());
    for (at, (a, b)) in again.iter().zip(data).enumerate() {
        assert!(a == b || (24..28).contains(&at), "byte {at}: {a} and {b}");
    }
}

/// A refusal that is read is one that we could have written.
pub fn fuzz_refusal(data: &[u8]) {
    if let Some(refusal) = Refusal::decode(data) {
        let again: [u8; REFUSAL_LEN] = refusal.encode();
        assert_eq!(Refusal::decode(&again), Some(refusal));
        assert_eq!((&again[..4], again[5]), (&data[..4], data[5]));
    }
}

/// Makes a header from `chunk`, with numbers close to what is expected, so that
/// many of them are good.
fn header_near(next: u32, sent: u32, chunk: [u8; 4]) -> [u8; BSDH_LEN] {
    let [mid, mseq, ack, bufs] = chunk;
    let stamp = Stamp {
        mseq: next.wrapping_add(u32::from(mseq >> 5)),
        mseq_ack: sent.wrapping_sub(u32::from(ack >> 4)),
        bufs: u16::from(bufs),
    };
    let mut hdr = Body::Data
        .header(0, u32::from(ack & 1), stamp)
        .map_or([0; BSDH_LEN], |hdr| hdr.encode());
    hdr[0] = mid;
    hdr
}

/// Whatever headers arrive: the counters stay within what was posted and sent.
pub fn fuzz_credits(data: &[u8]) {
    let mut credits = Credits::new();
    credits.posted(8);
    assert_eq!(credits.announce(), 8);
    credits.set_peer_limit(8);
    let (mut posted, mut taken, mut sent) = (8_u64, 0_u64, 0_u64);
    for chunk in data.chunks_exact(5) {
        let [op, a, b, c, d] = [chunk[0], chunk[1], chunk[2], chunk[3], chunk[4]];
        match op % 4 {
            0 => {
                let n = u16::from_be_bytes([a, b]);
                credits.posted(u32::from(n));
                posted += u64::from(n);
            }
            1 => {
                let class = Class::ALL[usize::from(a) % 3];
                let had = credits.available();
                match credits.stamp(class) {
                    Some(stamp) => {
                        sent += 1;
                        assert!(had >= class.min_credits());
                        assert_eq!(u64::from(stamp.mseq), sent);
                        assert_eq!(u64::from(stamp.mseq_ack), taken);
                    }
                    None => assert!(had < class.min_credits()),
                }
            }
            _ => {
                let next = (taken as u32).wrapping_add(1);
                let before = credits;
                let header = header_near(next, sent as u32, [a, b, c, d]);
                let Ok(hdr) = Bsdh::decode(&header) else {
                    continue;
                };
                match credits.received(&hdr) {
                    Ok(()) => {
                        taken += 1;
                        assert_eq!(hdr.mseq, next);
                        assert!(credits.available() >= before.available());
                        assert!(credits.unacked() <= before.unacked());
                    }
                    Err(_) => assert_eq!(credits, before),
                }
            }
        }
        assert!(taken <= posted);
        assert_eq!(u64::from(credits.outstanding()), posted - taken);
        assert!(credits.peer_has_left() <= credits.outstanding());
        assert!(credits.available() <= u32::from(u16::MAX));
        assert!(u64::from(credits.unacked()) <= sent);
    }
}

/// Whatever messages arrive: those that a state admits it can also handle, and
/// after the peer's half is shut no payload comes through.
pub fn fuzz_stream(data: &[u8]) {
    let Some((&first, mut data)) = data.split_first() else {
        return;
    };
    let features = Features::from_bits(u32::from(first >> 4));
    let mut state = State::ALL[usize::from(first & 0xf) % State::COUNT];
    let mut shut = !state.can_receive();
    while let Some((&len, tail)) = data.split_first() {
        let (piece, tail) = tail.split_at(tail.len().min(usize::from(len)));
        data = tail;
        let (hdr, rest) = piece.split_at(piece.len().min(BSDH_LEN));
        let Ok(msg) = Message::decode(hdr, rest, piece.len() as u32) else {
            continue;
        };
        if features.permit(msg.hdr.mid).is_err() || state.admits(&msg.hdr).is_err() {
            continue;
        }
        assert!(!shut || msg.payload_len == 0);
        let event = match msg.body {
            Body::DisConn => Event::DisConnReceived,
            Body::AbortConn => Event::AbortReceived,
            _ => continue,
        };
        state = state.on(event).expect("an admitted message has a place");
        shut |= !state.can_receive();
        assert!(!(shut && state.can_receive()));
    }
}

/// For what may be refused or not.
fn either<T>(_: T) {}

/// Whatever a peer says about its adverts and ours: what was posted comes back
/// once, what was read is reported once, and each advert has one answer.
pub fn fuzz_adverts(data: &[u8]) {
    let (mut source, mut sink, mut ended_count) = (0, 0, 0);
    let none = PayloadEvents::new();
    let mut adverts = SourceAdverts::<usize, 4>::new(4, Features::ALL);
    let mut reader = SourceReader::<4, 4>::new(4, Features::ALL);
    let mut buffers = SinkAdverts::<usize, 4>::new(4, Features::ALL, none);
    let mut writer = SinkWriter::<4>::new(4, Features::ALL, none);
    for chunk in data.chunks_exact(3) {
        let op = chunk[0] % 12;
        let [a, b] = [chunk[1], chunk[2]].map(u32::from);
        // What the peer does wrong is refused; that must harm nothing.
        match op {
            0 => {
                let kind = [Kind::Synchronous, Kind::Asynchronous][usize::from(a > 127)];
                source += usize::from(adverts.post(kind, 0, b, source).is_ok());
            }
            1 => match adverts.on_read_completion(a) {
                Ok(Progress::Consumed(ended)) => {
                    assert_eq!((ended.read, ended.owner), (ended.len, ended_count));
                    ended_count += 1;
                }
                Ok(Progress::Partly { left, .. }) => assert!(left > 0),
                Err(_) => {}
            },
            2 if a < 64 => either(adverts.cancel()),
            2 if a < 128 => adverts.cancel_sent(),
            2 => either(adverts.on_send_sm(|ended| {
                assert_eq!(ended.owner, ended_count);
                ended_count += 1;
            })),
            3 => either(reader.on_data(a)),
            4 => either(reader.on_advert(a & 1, b, a, u64::MAX - u64::from(a))),
            5 => either(reader.on_cancel()),
            6 => {
                let before = reader.untaken_bytes();
                let destination = [Destination::Kernel, Destination::Program][usize::from(b > 127)];
                let len = reader.take(a, destination).map_or(0, |read| read.len);
                assert_eq!(reader.untaken_bytes() + u64::from(len), before);
            }
            7 if a < 128 => either(reader.on_read_done()),
            7 => match reader.next_answer(b > 127) {
                Some(Answer::ReadCompletion { bytes, .. }) => assert!(bytes > 0),
                Some(Answer::SendSm) => assert!(reader.is_idle()),
                None => assert!(!reader.has_answer(b > 127)),
            },
            8 => sink += usize::from(buffers.post(true, a, sink).is_ok()),
            9 if a == 0 => buffers.on_payload(|returned| assert!(returned.owner < sink)),
            9 => either(buffers.on_write_completion(b, |returned| assert!(returned.owner < sink))),
            10 => either(writer.on_advert(a, b, 0, b % 4)),
            _ if a < 64 => {
                let room = writer.room();
                assert!(writer.write(b).is_none_or(|write| write.len <= room.min(b)));
            }
            _ if a < 128 => either(writer.on_cancel()),
            _ if a < 192 => assert_eq!(writer.has_answer(), writer.next_answer().is_some()),
            _ => assert_eq!(writer.is_idle(), writer.note_payload()),
        }
        assert_eq!(adverts.iter().count(), source - ended_count);
        assert!(buffers.unanswered() <= 4);
    }
    adverts.abort(|_| ended_count += 1);
    assert_eq!(source, ended_count);
}
