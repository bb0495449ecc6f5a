// SPDX-License-Identifier: GPL-2.0

//! The states against tables written down a second time, by hand: every state
//! with every event, and every state with every message.

use proto_host::proto::{
    bsdh::{
        Bsdh,
        Mid, //
    },
    state::{
        Event,
        Illegal,
        State, //
    },
    violation::Violation,
};
use std::collections::HashSet;

/// The columns of the tables.
const COLUMNS: &str = "\
    Closed Listen Resolving HelloSent HelloReceived Established FinWait1 \
    FinWait2 CloseWait LastAck Closing Draining Dead Released";

/// Rows are events. C closed, L listen, R resolving, S Hello sent, V Hello
/// received, E established, 1 and 2 FinWait, W CloseWait, A LastAck, G Closing,
/// D draining, X dead, Z released, a point illegal.
const EVENTS: &str = "
    Listen           L L . . . . . . . . . . . .
    StopListening    . C . . . . . . . . . . . .
    ConnectStart     R . . . . . . . . . . . . .
    AddressResolved  . . S . . . . . . . . . . .
    ConnectAccepted  . . . E . . . . . . . . . .
    ConnectRefused   . . X X . . . . . . . . . .
    RequestReceived  V . . . . . . . . . . . . .
    FirstReceive     . . . . E E 1 2 W A G D . .
    CmEstablished    . . . . E E 1 2 W A G D X .
    ShutdownWrite    . . . . . 1 1 2 A A G D . .
    DisConnSent      . . . . . . 2 . . D D . X .
    DisConnReceived  . . . . . W G D . . . . . .
    AbortReceived    . . . . . X X X X X X X . .
    Abort            X X X X X X X X X X X X X .
    Timeout          . . X X X X X X X X X X X .
    CmDisconnected   . . X X X X X X X X X D X .
    DeviceRemoved    C L X X X X X X X X X D X .
    Released         . . . . . . . . . . . Z Z .
    Reuse            . . . . . . . . . . . . . C
";

/// Rows are messages: y where one may arrive. Data twice, with payload and
/// without.
const MESSAGES: &str = "
    Hello            . . . . . . . . . . . . . .
    HelloAck         . . . . . . . . . . . . . .
    DisConn          . . . . . y y y . . . . . .
    AbortConn        . . . . . y y y y y y y . .
    SendSm           . . . . . y y . y y y . . .
    RdmaWrCompl      . . . . . y y y y y y y . .
    RdmaRdCompl      . . . . . y y y y y y y . .
    ModeChange       . . . . . y y y y y y y . .
    SrcAvailCancel   . . . . . y y y . . . . . .
    SinkAvailCancel  . . . . . y y y y y y y . .
    SinkCancelAck    . . . . . y y y y y y y . .
    ChRcvBuf         . . . . . y y y y y y y . .
    ChRcvBufAck      . . . . . y y y y y y y . .
    Suspend          . . . . . y y y y y y y . .
    SuspendAck       . . . . . y y y y y y y . .
    SinkAvail        . . . . . y y y y y y y . .
    SrcAvail         . . . . . y y y . . . . . .
    Data             . . . . . y y y . . . . . .
    Update           . . . . . y y y y y y y . .
";

/// The cells of a table: row, state, letter.
fn cells(table: &'static str) -> Vec<(&'static str, State, char)> {
    let columns: Vec<&str> = COLUMNS.split_whitespace().collect();
    let states: Vec<State> = State::ALL.to_vec();
    assert_eq!(columns, states.iter().map(|s| s.name()).collect::<Vec<_>>());
    let rows = table.lines().filter(|line| !line.trim().is_empty());
    rows.flat_map(|line| {
        let mut words = line.split_whitespace();
        let row = words.next().unwrap();
        let letters: Vec<char> = words.flat_map(str::chars).collect();
        assert_eq!(letters.len(), states.len(), "{row}");
        let states = states.clone().into_iter();
        states.zip(letters).map(move |(s, c)| (row, s, c))
    })
    .collect()
}

fn letter(state: State) -> char {
    "CLRSVE12WAGDXZ".chars().nth(state.index()).unwrap()
}

#[test]
fn every_event_in_every_state() {
    let cells = cells(EVENTS);
    assert_eq!(cells.len(), Event::COUNT * State::COUNT);
    for (row, state, expected) in cells {
        let event = Event::ALL.into_iter().find(|e| e.name() == row).unwrap();
        match state.on(event) {
            Ok(next) => assert_eq!(letter(next), expected, "{state:?} on {row}"),
            Err(illegal) => {
                assert_eq!(expected, '.', "{state:?} on {row}");
                assert_eq!(illegal, Illegal { state, event });
            }
        }
    }
}

#[test]
fn every_message_in_every_state() {
    let cells = cells(MESSAGES);
    assert_eq!(cells.len(), (Mid::COUNT + 1) * State::COUNT);
    for (row, state, expected) in cells {
        let update = row == "Update";
        let name = if update { "Data" } else { row };
        let mid = Mid::ALL.into_iter().find(|m| m.name() == name).unwrap();
        let hdr = Bsdh {
            mid,
            flags: 0,
            bufs: 0,
            len: if update { 16 } else { 40 },
            mseq: 0,
            mseq_ack: 0,
        };
        let good = expected == 'y';
        let got = state.admits(&hdr);
        assert_eq!(got.is_ok(), good, "{row} in {state:?}");
        assert!(good || got == Err(Violation::WrongState));
        // By kind alone, Data is never less than an update.
        if !matches!(mid, Mid::Data) || update {
            assert_eq!(state.accepts(mid), good, "{row} in {state:?}");
        }
    }
}

/// What the user may do follows from which halves are open.
#[test]
fn halves() {
    for state in State::ALL {
        let writes = matches!(state, State::Established | State::CloseWait);
        let reads = matches!(
            state,
            State::Established | State::FinWait1 | State::FinWait2
        );
        assert_eq!(state.can_send(), writes, "{state:?}");
        assert_eq!(state.can_receive(), reads, "{state:?}");
        assert!(state.is_connected() || !(writes || reads));
        // A half that is shut stays shut, until the socket is used anew.
        for event in Event::ALL {
            let Ok(next) = state.on(event) else { continue };
            if state.is_connected() {
                assert!(writes || !next.can_send(), "{state:?} on {event:?}");
                assert!(reads || !next.can_receive(), "{state:?} on {event:?}");
            }
        }
    }
}

#[test]
fn tcp_numbers() {
    let expected = [7, 10, 2, 2, 3, 1, 4, 5, 8, 9, 11, 7, 7, 7];
    assert_eq!(State::ALL.map(State::tcp_state), expected);
    // TCP_TIME_WAIT and TCP_NEW_SYN_RECV mean another kind of object.
    assert!(!expected.contains(&6) && !expected.contains(&12));
}

/// Users see no difference between the two halves of the end, and all other states as they are.
#[test]
fn shown_states() {
    for state in State::ALL {
        let shown = state.shown();
        match state {
            State::Released => assert_eq!(shown, State::Dead),
            _ => assert_eq!(shown, state),
        }
        assert_eq!(shown.tcp_state(), state.tcp_state());
        assert_eq!(shown.has_ended(), state.has_ended());
    }
}

/// What the adapter or the CM holds is released before the socket is used again, and nothing else
/// can happen in between.
#[test]
fn no_reuse_before_the_release() {
    for state in State::ALL {
        for event in Event::ALL {
            let next = state.on(event);
            match (state, event) {
                (State::Released, Event::Reuse) => assert_eq!(next, Ok(State::Closed)),
                (State::Released, _) => assert!(next.is_err(), "{event:?}"),
                (State::Closed | State::Listen, _) => {}
                (_, _) => assert_ne!(next, Ok(State::Closed), "{state:?} on {event:?}"),
            }
        }
    }
}

fn reachable(from: State) -> HashSet<State> {
    let mut seen = HashSet::from([from]);
    let mut todo = vec![from];
    while let Some(state) = todo.pop() {
        let next = Event::ALL.into_iter().filter_map(|e| state.on(e).ok());
        todo.extend(next.filter(|&n| seen.insert(n)));
    }
    seen
}

#[test]
fn every_state_can_be_reached_and_left() {
    assert_eq!(reachable(State::Closed).len(), State::COUNT);
    for state in State::ALL {
        assert!(reachable(state).contains(&State::Released), "{state:?}");
        assert!(reachable(state).contains(&State::Closed), "{state:?}");
    }
}

/// Whatever happens to the adapter or the peer, a connection ends.
#[test]
fn every_connection_can_be_lost() {
    for state in State::ALL {
        if matches!(state, State::Closed | State::Listen | State::Released) {
            continue;
        }
        for event in [
            Event::Abort,
            Event::Timeout,
            Event::CmDisconnected,
            Event::DeviceRemoved,
        ] {
            let next = state.on(event).unwrap();
            let over = matches!(next, State::Dead | State::Draining);
            assert!(over, "{state:?} on {event:?}");
            assert_eq!(next.on(Event::Released), Ok(State::Released));
        }
    }
}
