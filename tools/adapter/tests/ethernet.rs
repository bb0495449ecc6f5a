// SPDX-License-Identifier: GPL-2.0
//! The switch of the network cards, with sockets in place of QEMU's.

mod folder;

use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

use adapter::ethernet::{start, Names};
use folder::Folder;

const ALL: u8 = 0xff;

fn names(folder: &Path, number: usize) -> Names {
    Names {
        own: folder.join(format!("switch{number}")),
        card: folder.join(format!("card{number}")),
    }
}

/// Three cards on a switch.
fn cards(folder: &Path) -> Vec<UnixDatagram> {
    let all: Vec<_> = (0..3).map(|number| names(folder, number)).collect();
    let cards = all
        .iter()
        .map(|names| UnixDatagram::bind(&names.card).expect("a card"))
        .collect();
    start(&all).expect("a switch");
    for (card, names) in std::iter::zip::<&Vec<_>, _>(&cards, &all) {
        card.connect(&names.own).expect("the switch");
    }
    cards
}

/// A frame to the address with this last byte.
fn frame(to: u8, from: u8, size: usize) -> Vec<u8> {
    let mut frame = vec![from; size];
    let first = if to == ALL { ALL } else { 0x52 };
    frame[..6].copy_from_slice(&[first, ALL, ALL, ALL, ALL, to]);
    frame[6..12].copy_from_slice(&[0x52, ALL, ALL, ALL, ALL, from]);
    frame
}

fn receives(card: &UnixDatagram, frame: &[u8]) {
    card.set_read_timeout(Some(Duration::from_secs(20)))
        .expect("a limit");
    let mut got = vec![0; 100_000];
    let count = card.recv(&mut got).expect("a frame");
    assert_eq!(&got[..count], frame);
}

fn receives_nothing(card: &UnixDatagram) {
    card.set_read_timeout(Some(Duration::from_millis(50)))
        .expect("a limit");
    let error = card.recv(&mut [0; 2000]).expect_err("no frame");
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
}

#[test]
fn frames_go_to_their_machine() {
    let folder = Folder::new("frames");
    let cards = cards(&folder.0);
    // Nobody knows where the second card is: the frame goes to all others.
    let first = frame(1, 0, 60);
    cards[0].send(&first).expect("sent");
    receives(&cards[1], &first);
    receives(&cards[2], &first);
    // The answer goes to the first card only, and a large frame then goes to the second only.
    let answer = frame(0, 1, 60);
    cards[1].send(&answer).expect("sent");
    receives(&cards[0], &answer);
    let large = frame(1, 0, 65_550);
    cards[0].send(&large).expect("sent");
    receives(&cards[1], &large);
    let to_all = frame(ALL, 1, 60);
    cards[1].send(&to_all).expect("sent");
    receives(&cards[0], &to_all);
    // Neither the answer nor the large frame has come to the third card.
    receives(&cards[2], &to_all);
    receives_nothing(&cards[2]);
}

#[test]
fn nobody_gets_the_frames_of_a_group_alone() {
    let folder = Folder::new("group");
    let cards = cards(&folder.0);
    // As if all machines were behind the third card.
    let mut claim = frame(0, 2, 60);
    claim[6..12].fill(ALL);
    cards[2].send(&claim).expect("sent");
    // The frames of one card arrive in order: this one shows that the switch has seen the claim.
    let next = frame(0, 2, 61);
    cards[2].send(&next).expect("sent");
    receives(&cards[0], &next);
    receives(&cards[1], &next);
    let to_all = frame(ALL, 0, 60);
    cards[0].send(&to_all).expect("sent");
    receives(&cards[1], &to_all);
    receives(&cards[2], &to_all);
}

#[test]
fn bad_frames_and_machines_that_are_gone_stop_nothing() {
    let folder = Folder::new("bad");
    let mut cards = cards(&folder.0);
    for size in 0..14 {
        cards[0].send(&vec![7; size]).expect("sent");
    }
    // More invented addresses than the switch keeps. Each frame is read before the next one is sent,
    // so the switch never has to drop one.
    for number in 0..5000_u16 {
        let mut invented = frame(0, 0, 60);
        invented[7..9].copy_from_slice(&number.to_be_bytes());
        cards[0].send(&invented).expect("sent");
        for card in &cards[1..] {
            receives(card, &invented);
        }
    }
    // A card whose machine ended.
    drop(cards.pop());
    let to_all = frame(ALL, 0, 60);
    cards[0].send(&to_all).expect("sent");
    receives(&cards[1], &to_all);
}

#[test]
fn a_card_that_does_not_read_stops_nothing() {
    let folder = Folder::new("full");
    let cards = cards(&folder.0);
    // The switch learns where the second and the third card are. Nobody knows the first one yet, so
    // these frames go to all.
    for (number, other) in [(1, 2), (2, 1)] {
        let first = frame(0, number, 60);
        cards[usize::from(number)].send(&first).expect("sent");
        receives(&cards[0], &first);
        receives(&cards[other], &first);
    }
    // Far more than a socket and the switch keep.
    cards[0]
        .set_write_timeout(Some(Duration::from_secs(20)))
        .expect("a limit");
    for size in 60..1560 {
        cards[0].send(&frame(2, 0, size)).expect("the switch reads");
    }
    let other = frame(1, 0, 60);
    cards[0].send(&other).expect("the switch reads");
    receives(&cards[1], &other);
    // The frames that were not dropped come in order when the card reads, and so do later ones.
    for size in 60..260 {
        receives(&cards[2], &frame(2, 0, size));
    }
    let mut last = 0;
    cards[2]
        .set_read_timeout(Some(Duration::from_millis(200)))
        .expect("a limit");
    while let Ok(size) = cards[2].recv(&mut [0; 2000]) {
        last = size;
    }
    assert!(last < 1559, "nothing was dropped");
    let next = frame(2, 0, 1560);
    cards[0].send(&next).expect("sent");
    receives(&cards[2], &next);
}

#[test]
fn paths_that_are_wrong_or_in_use_are_errors() {
    for text in ["", "=", "a=", "=b", "a"] {
        assert!(text.parse::<Names>().is_err(), "{text}");
    }
    let folder = Folder::new("paths");
    let one = names(&folder.0, 0);
    let text = format!("{}={}", one.own.display(), one.card.display());
    assert_eq!(text.parse(), Ok(one.clone()));
    std::fs::write(&one.own, "").expect("a file");
    let path = one.own.display().to_string();
    let error = start(&[one]).expect_err("the path is in use");
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    assert!(error.to_string().contains(&path), "{error}");
}
