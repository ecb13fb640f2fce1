//! Tests of every cell of the FTAM machine's state table.

use kiban_osi::ftam::{Item, Role, State, Verdict, verdict};
use kiban_osi::wire::ftam::Kind;

/// The sender of the item: the initiator, the responder, or either side. With `Own`, the state is the
/// sender's; with `Peer`, it is the other side's.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Who {
    I,
    R,
    Own,
    Peer,
}

use Who::{I, Own, Peer, R};

/// Parses an item: `+` and `-` distinguish positive and negative responses where that matters.
fn sends(word: &str) -> Item {
    let (word, positive) =
        word.strip_suffix('-').map_or((word.trim_end_matches('+'), true), |word| (word, false));
    match word {
        "F-DATA" => Item::Data,
        "F-CHECK" => Item::Check,
        "F-CHECK response" => Item::CheckResponse,
        _ => {
            let kind = Kind::ALL.iter().find(|kind| kind.words() == word).unwrap_or_else(|| panic!("{word}"));
            Item::Pdu { kind: *kind, positive }
        }
    }
}

/// Columns: the state, the sender, the item, and the next state.
const CELLS: &[(&str, Who, &str, &str)] = &[
    ("Closed", I, "F-INITIALIZE request", "InitializePending"),
    ("InitializePending", R, "F-INITIALIZE response+", "Initialized"),
    ("InitializePending", R, "F-INITIALIZE response-", "Closed"),
    ("Initialized", I, "F-TERMINATE request", "TerminatePending"),
    ("TerminatePending", R, "F-TERMINATE response", "Closed"),
    ("Initialized", I, "F-SELECT request", "SelectPending"),
    ("SelectPending", R, "F-SELECT response+", "Selected"),
    ("SelectPending", R, "F-SELECT response-", "Initialized"),
    ("Initialized", I, "F-CREATE request", "CreatePending"),
    ("CreatePending", R, "F-CREATE response+", "Selected"),
    ("CreatePending", R, "F-CREATE response-", "Initialized"),
    ("Initialized", I, "F-RECOVER request", "RecoverPending"),
    ("RecoverPending", R, "F-RECOVER response+", "DataTransferIdle"),
    ("RecoverPending", R, "F-RECOVER response-", "Initialized"),
    ("Selected", I, "F-READ-ATTRIB request", "ReadAttributesPending"),
    ("ReadAttributesPending", R, "F-READ-ATTRIB response", "Selected"),
    ("Selected", I, "F-CHANGE-ATTRIB request", "ChangeAttributesPending"),
    ("ChangeAttributesPending", R, "F-CHANGE-ATTRIB response", "Selected"),
    ("Selected", I, "F-DESELECT request", "DeselectPending"),
    ("DeselectPending", R, "F-DESELECT response", "Initialized"),
    ("Selected", I, "F-DELETE request", "DeletePending"),
    ("DeletePending", R, "F-DELETE response", "Initialized"),
    ("Selected", I, "F-OPEN request", "OpenPending"),
    ("OpenPending", R, "F-OPEN response+", "DataTransferIdle"),
    ("OpenPending", R, "F-OPEN response-", "Selected"),
    ("DataTransferIdle", I, "F-CLOSE request", "ClosePending"),
    ("ClosePending", R, "F-CLOSE response", "Selected"),
    ("DataTransferIdle", I, "F-LOCATE request", "LocatePending"),
    ("LocatePending", R, "F-LOCATE response", "DataTransferIdle"),
    ("DataTransferIdle", I, "F-ERASE request", "ErasePending"),
    ("ErasePending", R, "F-ERASE response", "DataTransferIdle"),
    ("DataTransferIdle", I, "F-READ request", "Reading"),
    ("Reading", R, "F-DATA", "Reading"),
    ("Reading", R, "F-CHECK", "Reading"),
    ("Reading", I, "F-CHECK response", "Reading"),
    ("Reading", R, "F-DATA-END request", "ReadEnded"),
    ("ReadEnded", I, "F-CHECK response", "ReadEnded"),
    ("ReadEnded", I, "F-TRANSFER-END request", "ReadTransferEndPending"),
    ("ReadTransferEndPending", R, "F-TRANSFER-END response", "DataTransferIdle"),
    ("DataTransferIdle", I, "F-WRITE request", "Writing"),
    ("Writing", I, "F-DATA", "Writing"),
    ("Writing", I, "F-CHECK", "Writing"),
    ("Writing", R, "F-CHECK response", "Writing"),
    ("Writing", I, "F-DATA-END request", "WriteEnded"),
    ("WriteEnded", R, "F-CHECK response", "WriteEnded"),
    ("WriteEnded", I, "F-TRANSFER-END request", "WriteTransferEndPending"),
    ("WriteTransferEndPending", R, "F-CHECK response", "WriteTransferEndPending"),
    ("WriteTransferEndPending", R, "F-TRANSFER-END response", "DataTransferIdle"),
    // Cancel requests and responses.
    ("Reading", Own, "F-CANCEL request", "CancelRequested"),
    ("Reading", Peer, "F-CANCEL request", "CancelIndicated"),
    ("Writing", Own, "F-CANCEL request", "CancelRequested"),
    ("Writing", Peer, "F-CANCEL request", "CancelIndicated"),
    ("ReadEnded", Own, "F-CANCEL request", "CancelRequested"),
    ("ReadEnded", Peer, "F-CANCEL request", "CancelIndicated"),
    ("WriteEnded", Own, "F-CANCEL request", "CancelRequested"),
    ("WriteEnded", Peer, "F-CANCEL request", "CancelIndicated"),
    ("CancelRequested", Peer, "F-CANCEL response", "DataTransferIdle"),
    ("CancelIndicated", Own, "F-CANCEL response", "DataTransferIdle"),
    ("CancelCollision", Peer, "F-CANCEL response", "CancelIndicated"),
    ("CancelCollision", Own, "F-CANCEL response", "CancelRequested"),
    ("ReadRestartRequested", Peer, "F-RESTART response", "Reading"),
    ("ReadRestartIndicated", Own, "F-RESTART response", "Reading"),
    ("WriteRestartRequested", Peer, "F-RESTART response", "Writing"),
    ("WriteRestartIndicated", Own, "F-RESTART response", "Writing"),
];

/// Cells that exist only with resynchronisation, and cells of F-CANCEL that are different in that case.
const CELLS_WITH: &[(&str, Who, &str, &str)] = &[
    ("CancelRequested", Peer, "F-CANCEL request", "CancelIndicated"),
    ("ReadRestartRequested", Peer, "F-CANCEL request", "CancelIndicated"),
    ("WriteRestartRequested", Peer, "F-CANCEL request", "CancelIndicated"),
    ("Reading", Own, "F-RESTART request", "ReadRestartRequested"),
    ("Reading", Peer, "F-RESTART request", "ReadRestartIndicated"),
    ("ReadEnded", Own, "F-RESTART request", "ReadRestartRequested"),
    ("ReadEnded", Peer, "F-RESTART request", "ReadRestartIndicated"),
    ("Writing", Own, "F-RESTART request", "WriteRestartRequested"),
    ("Writing", Peer, "F-RESTART request", "WriteRestartIndicated"),
    ("WriteEnded", Own, "F-RESTART request", "WriteRestartRequested"),
    ("WriteEnded", Peer, "F-RESTART request", "WriteRestartIndicated"),
    ("ReadRestartRequested", Peer, "F-RESTART request", "ReadRestartIndicated"),
    ("WriteRestartRequested", Peer, "F-RESTART request", "WriteRestartIndicated"),
];

/// Cells that exist only without resynchronisation, where F-CANCEL is sent in a P-DATA.
const CELLS_WITHOUT: &[(&str, Who, &str, &str)] =
    &[("CancelRequested", Peer, "F-CANCEL request", "CancelCollision")];

/// Returns the next state for requests made after the request to end a transfer. The initiator, which made
/// that request, cannot take it back. Before the responder answers, it can still cancel the transfer or
/// restart a write.
fn late(role: Role, own: bool, resynchronise: bool, state: &str, word: &str) -> Option<&'static str> {
    let by_responder = (role == Role::Responder) == own;
    let pending = matches!(state, "ReadTransferEndPending" | "WriteTransferEndPending");
    match word {
        "F-CANCEL request" if pending && by_responder => {
            Some(if own { "CancelRequested" } else { "CancelIndicated" })
        }
        "F-RESTART request" if state == "WriteTransferEndPending" && by_responder && resynchronise => {
            Some(if own { "WriteRestartRequested" } else { "WriteRestartIndicated" })
        }
        "F-RESTART request" if state == "ReadTransferEndPending" && by_responder && !own && resynchronise => {
            Some("ReadRestartIndicated")
        }
        _ => None,
    }
}

fn expected(role: Role, own: bool, resynchronise: bool, state: &str, word: &str) -> Verdict {
    let named = |name: &str| {
        let found = State::ALL.iter().find(|state| format!("{state:?}") == name);
        Verdict::To(*found.unwrap_or_else(|| panic!("{name}")))
    };
    let plain = word.trim_end_matches(['+', '-']);
    if state != "Closed" && (plain == "F-U-ABORT request" || (plain == "F-P-ABORT request" && !own)) {
        return Verdict::To(State::Closed);
    }
    let crossing = [
        "F-DATA",
        "F-CHECK",
        "F-CHECK response",
        "F-DATA-END request",
        "F-TRANSFER-END request",
        "F-TRANSFER-END response",
    ];
    if state == "CancelRequested" && !own && !resynchronise && crossing.contains(&plain) {
        return Verdict::Void;
    }
    if let Some(next) = late(role, own, resynchronise, state, plain) {
        return named(next);
    }
    let sender = if (role == Role::Initiator) == own { I } else { R };
    let whose = if own { Own } else { Peer };
    let more = if resynchronise { CELLS_WITH } else { CELLS_WITHOUT };
    CELLS
        .iter()
        .chain(more)
        .find(|(in_state, who, what, _)| {
            *in_state == state && (*who == sender || *who == whose) && (*what == word || *what == plain)
        })
        .map_or(Verdict::Error, |(.., next)| named(next))
}

#[test]
fn every_cell_matches_the_services() {
    let mut words: Vec<String> = Kind::ALL
        .iter()
        .flat_map(|kind| match kind.words() {
            words if words.ends_with("response") => vec![format!("{words}+"), format!("{words}-")],
            words => vec![words.to_string()],
        })
        .collect();
    words.extend(["F-DATA", "F-CHECK", "F-CHECK response"].map(String::from));
    let (mut cells, mut filled) = (0, 0);
    for role in [Role::Initiator, Role::Responder] {
        for (own, resynchronise) in [(true, true), (true, false), (false, true), (false, false)] {
            for state in State::ALL {
                for word in &words {
                    let expected = expected(role, own, resynchronise, &format!("{state:?}"), word);
                    let found = verdict(role, own, resynchronise, state, sends(word));
                    assert_eq!(
                        found, expected,
                        "{role:?}, own {own}, resynchronise {resynchronise}: {word} in {state:?}"
                    );
                    cells += 1;
                    filled += usize::from(found != Verdict::Error);
                }
            }
        }
    }
    assert_eq!(cells, 8 * 30 * words.len());
    assert!(filled > 700, "{filled} of {cells}");
}

#[test]
fn every_pdu_that_one_end_may_send_the_other_accepts() {
    for role in [Role::Initiator, Role::Responder] {
        let peer = if role == Role::Initiator { Role::Responder } else { Role::Initiator };
        for resynchronise in [true, false] {
            for state in State::ALL {
                for kind in Kind::ALL {
                    let sends = Item::Pdu { kind: *kind, positive: true };
                    let Verdict::To(to) = verdict(role, true, resynchronise, state, sends) else { continue };
                    if to == state || matches!(state, State::CancelCollision | State::CancelRequested) {
                        continue;
                    }
                    let indications = verdict(peer, false, resynchronise, mirror(state), sends);
                    assert_eq!(indications, Verdict::To(mirror(to)), "{kind} of {role:?} in {state:?}");
                }
            }
        }
    }
}

/// Returns the state in which the other side is when no message is in transit.
pub(crate) fn mirror(state: State) -> State {
    match state {
        State::CancelRequested => State::CancelIndicated,
        State::CancelIndicated => State::CancelRequested,
        State::ReadRestartRequested => State::ReadRestartIndicated,
        State::ReadRestartIndicated => State::ReadRestartRequested,
        State::WriteRestartRequested => State::WriteRestartIndicated,
        State::WriteRestartIndicated => State::WriteRestartRequested,
        same => same,
    }
}
