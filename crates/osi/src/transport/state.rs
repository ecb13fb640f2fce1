//! Class 0's state table (X.224 Annex A, Table A.6): a pure function of state and event.
//!
//! Cells     the columns (WBCL, CLOSING) and rows (EA, ED with credit) for class 2 are left out. In class 0,
//!           an N-RESET ends the network connection (action \[5\]) and is reported as its end. Action \[1\]
//!           allows the machine to end a network connection that no other transport connection uses; here it
//!           always does, because class 0 does not share network connections.

use State::{Closed, Open, Wfcc, Wfnc, Wftresp};

/// The states of Table A.2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// Waits for the network connection.
    Wfnc,
    /// Waits for the CC TPDU.
    Wfcc,
    /// The transport connection is open.
    Open,
    /// Waits for the T-CONNECT response.
    Wftresp,
    /// No transport connection.
    Closed,
}

/// The incoming events of Table A.1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Event {
    TConReq,
    TConResp,
    TDtReq,
    TDisReq,
    NConConf,
    NDisInd,
    Cr,
    Dr,
    Cc,
    Dt,
    Er,
    /// DC, AK, EA, ED, RJ: TPDUs that do not exist in class 0.
    Other,
}

/// The predicates of Table A.4 that are needed for class 0 over one network connection.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Predicates {
    /// P1: unacceptable CR TPDU.
    pub(super) cr_unacceptable: bool,
    /// P3: the network connection is available and open. P4 is the next field; P2 means that both are false.
    pub(super) network_open: bool,
    pub(super) network_opening: bool,
    /// P8: acceptable CC.
    pub(super) cc_acceptable: bool,
    /// P9: the CR proposes class 4.
    pub(super) cr_class_4: bool,
}

/// Outgoing events and specific actions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    TConInd,
    TConConf,
    TDisInd,
    NConReq,
    NDisReq,
    Cr,
    Cc,
    /// Refuses the connection with a DR TPDU, or with an ER TPDU if the CR is malformed.
    Dr,
    /// \[3\]: transfers the data.
    Data,
}

/// The contents of one cell in the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// The actions to take, and the next state.
    Go(&'static [Action], State),
    /// The cell is empty: the local user made an invalid request, or the peer violated the protocol (X.224
    /// §6.22).
    Invalid,
}

/// Looks up one cell.
pub(super) fn verdict(state: State, event: Event, p: Predicates) -> Verdict {
    use Action::{Cc, Cr, Data, Dr, NConReq, NDisReq, TConConf, TConInd, TDisInd};
    use Verdict::{Go, Invalid};
    match (event, state) {
        (Event::TConReq, Closed) if p.network_open => Go(&[Cr], Wfcc),
        (Event::TConReq, Closed) if p.network_opening => Go(&[], Wfnc),
        (Event::TConReq, Closed) => Go(&[NConReq], Wfnc),
        (Event::TConResp, Wftresp) => Go(&[Cc], Open),
        (Event::TDtReq, Open) => Go(&[Data], Open),
        (Event::TDisReq, Wfnc | Wfcc | Open) => Go(&[NDisReq], Closed),
        (Event::TDisReq, Wftresp) => Go(&[Dr], Closed),

        (Event::NConConf, Wfnc) => Go(&[Cr], Wfcc),
        (Event::NDisInd, Wfnc | Wfcc | Open | Wftresp) => Go(&[TDisInd], Closed),

        (Event::Cr, Closed) if p.cr_unacceptable => Go(&[Dr], Closed),
        (Event::Cr, Closed) => Go(&[TConInd], Wftresp),
        (Event::Cr, Open | Wftresp) if p.cr_class_4 => Go(&[], state),
        (Event::Cc, Wfcc) if p.cc_acceptable => Go(&[TConConf], Open),
        (Event::Cc, Wfcc) => Go(&[TDisInd, NDisReq], Closed),
        (Event::Cc, Closed) => Go(&[Dr], Closed),
        (Event::Dr, Wfcc) => Go(&[TDisInd, NDisReq], Closed),
        // Note (2): a DR in this state is a protocol error, and closes the network connection. Many peers end
        // a connection this way, so the peer's reason is passed to the user.
        (Event::Dr, Open) => Go(&[TDisInd, NDisReq], Closed),
        (Event::Dt, Open) => Go(&[Data], Open),
        (Event::Er, Wfcc | Open) => Go(&[TDisInd, NDisReq], Closed),
        (Event::Dr | Event::Dt | Event::Er | Event::Other, Closed) => Go(&[], Closed),
        _ => Invalid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::evaluate;
    use alloc::format;
    use alloc::string::{String, ToString};
    use alloc::vec::Vec;

    /// Table A.6 for class 0 (P5 true, P7 and P10 false), with action \[1\] as NDISreq. Each row has the
    /// cells of one event for WFNC, WFCC, OPEN, WFTRESP and CLOSED. Where the standard refers to note (2),
    /// the cell contains the actions of §6.22.1.3 b).
    const TABLE: &[(Event, [&str; 5])] = &[
        (Event::TConReq, ["", "", "", "", "P2: NCONreq WFNC; P3: CR WFCC; P4: WFNC"]),
        (Event::TConResp, ["", "", "", "CC OPEN", ""]),
        (Event::TDtReq, ["", "", "[3] OPEN", "", ""]),
        (Event::TDisReq, ["NDISreq CLOSED", "NDISreq CLOSED", "NDISreq CLOSED", "DR CLOSED", ""]),
        (Event::NConConf, ["CR WFCC", "", "", "", ""]),
        (Event::NDisInd, ["TDISind CLOSED", "TDISind CLOSED", "TDISind CLOSED", "TDISind CLOSED", ""]),
        (Event::Cr, ["", "", "P9: OPEN", "P9: WFTRESP", "P1: DR CLOSED; !P1: TCONind WFTRESP"]),
        (Event::Dr, ["", "TDISind NDISreq CLOSED", "TDISind NDISreq CLOSED", "", "CLOSED"]),
        (Event::Cc, ["", "P8: TCONconf OPEN; !P8: TDISind NDISreq CLOSED", "", "", "DR CLOSED"]),
        (Event::Dt, ["", "", "[3] OPEN", "", "CLOSED"]),
        (Event::Er, ["", "TDISind NDISreq CLOSED", "TDISind NDISreq CLOSED", "", "CLOSED"]),
        (Event::Other, ["", "", "", "", "CLOSED"]),
    ];
    const STATES: [(State, &str); 5] =
        [(Wfnc, "WFNC"), (Wfcc, "WFCC"), (Open, "OPEN"), (Wftresp, "WFTRESP"), (Closed, "CLOSED")];

    fn name(action: Action) -> String {
        match action {
            Action::Data => "[3]".to_string(),
            Action::TConInd => "TCONind".to_string(),
            Action::TConConf => "TCONconf".to_string(),
            Action::TDisInd => "TDISind".to_string(),
            Action::NConReq => "NCONreq".to_string(),
            Action::NDisReq => "NDISreq".to_string(),
            pdu => format!("{pdu:?}").to_uppercase(),
        }
    }

    #[test]
    fn every_cell_matches_the_standard() {
        let mut walked = 0;
        for (event, cells) in TABLE {
            for ((state, state_name), cell) in STATES.iter().zip(cells) {
                for bits in 0..32u8 {
                    let p = Predicates {
                        cr_unacceptable: bits & 1 != 0,
                        network_open: bits & 2 != 0,
                        network_opening: bits & 6 == 4,
                        cc_acceptable: bits & 8 != 0,
                        cr_class_4: bits & 16 != 0,
                    };
                    let expected = evaluate(cell, &mut |predicate| match predicate {
                        "P1" => p.cr_unacceptable,
                        "P2" => !p.network_open && !p.network_opening,
                        "P3" => p.network_open,
                        "P4" => p.network_opening,
                        "P8" => p.cc_acceptable,
                        "P9" => p.cr_class_4,
                        other => panic!("{other}"),
                    });
                    let found = match verdict(*state, *event, p) {
                        Verdict::Invalid => None,
                        Verdict::Go(actions, next) => {
                            let next = STATES.iter().find(|(state, _)| *state == next).expect("a state").1;
                            Some((
                                actions.iter().map(|action| name(*action)).collect::<Vec<_>>(),
                                next.to_string(),
                            ))
                        }
                    };
                    assert_eq!(found, expected, "{event:?} in {state_name}, {p:?}");
                    walked += 1;
                }
            }
        }
        assert_eq!(walked, 12 * 5 * 32);
    }
}
