//! The state tables of the packet layer (X.25 Annex C, Tables C-1 to C-4; ISO 8208 for a DTE).
//!
//! States are named from this end's point of view: the standard's "DTE call request" (p2) is [`Call::Own`] at
//! a DTE and [`Call::Peer`] at a DCE. [`Call::number`] and the diagnostics use the standard's numbers.

use crate::wire::x25::diagnostic;

pub use crate::lapb::Role;

/// Restart states.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Restart {
    /// r1: packet layer ready.
    Ready,
    /// This end has sent a restart: r2 at a DTE, r3 at a DCE.
    Own,
    /// The peer has sent a restart: r3 at a DTE, r2 at a DCE.
    Peer,
}

/// Call set-up and clearing states.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Call {
    /// p1: ready.
    Ready,
    /// This end has called: p2 at a DTE, p3 at a DCE.
    Own,
    /// The peer has called: p3 at a DTE, p2 at a DCE.
    Peer,
    /// p4: data transfer, with the substates in [`Reset`].
    Transfer,
    /// p5: call collision.
    Collision,
    /// This end has sent a clear: p6 at a DTE, p7 at a DCE.
    OwnClear,
    /// The peer has sent a clear: p7 at a DTE, p6 at a DCE.
    PeerClear,
}

/// Reset states, within p4 or on a permanent virtual circuit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reset {
    /// d1: flow control ready.
    Ready,
    /// This end has sent a reset: d2 at a DTE, d3 at a DCE.
    Own,
    /// The peer has sent a reset: d3 at a DTE, d2 at a DCE.
    Peer,
}

impl Restart {
    /// All states.
    pub const ALL: [Restart; 3] = [Restart::Ready, Restart::Own, Restart::Peer];

    /// Returns the standard's number: 1 to 3.
    pub fn number(self, role: Role) -> u8 {
        match (self, role) {
            (Restart::Ready, _) => 1,
            (Restart::Own, Role::Dte) | (Restart::Peer, Role::Dce) => 2,
            (Restart::Peer, Role::Dte) | (Restart::Own, Role::Dce) => 3,
        }
    }
}

impl Call {
    /// All states.
    pub const ALL: [Call; 7] = [
        Call::Ready,
        Call::Own,
        Call::Peer,
        Call::Transfer,
        Call::Collision,
        Call::OwnClear,
        Call::PeerClear,
    ];

    /// Returns the standard's number: 1 to 7.
    pub fn number(self, role: Role) -> u8 {
        match (self, role) {
            (Call::Ready, _) => 1,
            (Call::Own, Role::Dte) | (Call::Peer, Role::Dce) => 2,
            (Call::Peer, Role::Dte) | (Call::Own, Role::Dce) => 3,
            (Call::Transfer, _) => 4,
            (Call::Collision, _) => 5,
            (Call::OwnClear, Role::Dte) | (Call::PeerClear, Role::Dce) => 6,
            (Call::PeerClear, Role::Dte) | (Call::OwnClear, Role::Dce) => 7,
        }
    }
}

impl Reset {
    /// All states.
    pub const ALL: [Reset; 3] = [Reset::Ready, Reset::Own, Reset::Peer];

    /// Returns the standard's number: 1 to 3.
    pub fn number(self, role: Role) -> u8 {
        match (self, role) {
            (Reset::Ready, _) => 1,
            (Reset::Own, Role::Dte) | (Reset::Peer, Role::Dce) => 2,
            (Reset::Peer, Role::Dte) | (Reset::Own, Role::Dce) => 3,
        }
    }
}

/// The contents of one cell in a state table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Verdict<S> {
    /// The packet is processed, and the channel enters this state.
    Normal(S),
    /// The packet is discarded.
    Discard,
    /// The packet is discarded. The answer is a restart, a clear or a reset, depending on the table, and
    /// carries this diagnostic.
    Error(u8),
    /// The packet is discarded, and a DCE sends a diagnostic packet.
    Diagnostic(u8),
    /// The next table decides.
    NextTable,
}

/// Events of the restart table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RestartEvent {
    /// A restart request or indication on channel 0.
    Restart,
    /// Restart confirmation.
    Confirmation,
    /// Any other type on channel 0.
    OnChannelZero,
    /// Any packet on another channel.
    OnChannel,
}

impl RestartEvent {
    /// All events.
    pub const ALL: [RestartEvent; 4] = [
        RestartEvent::Restart,
        RestartEvent::Confirmation,
        RestartEvent::OnChannelZero,
        RestartEvent::OnChannel,
    ];
}

/// Looks up Table C-2.
pub fn restart(role: Role, state: Restart, event: RestartEvent) -> Verdict<Restart> {
    let invalid = Verdict::Error(diagnostic::STATE_R1 - 1 + state.number(role));
    match (event, state) {
        (RestartEvent::Restart, Restart::Ready) => Verdict::Normal(Restart::Peer),
        // Restart collision: the peer's restart counts as the confirmation.
        (RestartEvent::Restart | RestartEvent::Confirmation, Restart::Own) => Verdict::Normal(Restart::Ready),
        (RestartEvent::Restart, Restart::Peer) => Verdict::Discard,
        (RestartEvent::Confirmation, Restart::Ready | Restart::Peer) => invalid,
        (RestartEvent::OnChannelZero, Restart::Ready) => Verdict::Diagnostic(diagnostic::UNASSIGNED_CHANNEL),
        (RestartEvent::OnChannel, Restart::Ready) => Verdict::NextTable,
        (RestartEvent::OnChannelZero | RestartEvent::OnChannel, Restart::Own) => Verdict::Discard,
        (RestartEvent::OnChannelZero | RestartEvent::OnChannel, Restart::Peer) => invalid,
    }
}

/// The events in the tables for one channel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// Call request, incoming call.
    Call,
    /// Call accepted, call connected.
    Accepted,
    /// Clear request, clear indication.
    Clear,
    /// Clear confirmation.
    ClearConfirmation,
    /// Reset request, reset indication.
    Reset,
    /// Reset confirmation.
    ResetConfirmation,
    /// Interrupt and interrupt confirmation.
    Interrupt,
    /// Data, RR, RNR, REJ.
    Flow,
    /// A restart, which is only valid on channel 0.
    Restart,
    /// An unknown type.
    Unknown,
    /// A packet too short to have a type field.
    Short,
}

impl Event {
    /// All events.
    pub const ALL: [Event; 11] = [
        Event::Call,
        Event::Accepted,
        Event::Clear,
        Event::ClearConfirmation,
        Event::Reset,
        Event::ResetConfirmation,
        Event::Interrupt,
        Event::Flow,
        Event::Restart,
        Event::Unknown,
        Event::Short,
    ];

    /// Returns the diagnostic for an event that is an error in every state.
    fn fault(self) -> Option<u8> {
        match self {
            Event::Restart => Some(diagnostic::RESTART_ON_CHANNEL),
            Event::Unknown => Some(diagnostic::UNIDENTIFIABLE),
            Event::Short => Some(diagnostic::TOO_SHORT),
            _ => None,
        }
    }
}

/// Looks up Table C-3, for virtual calls. An error is answered with a clear.
pub fn call(role: Role, state: Call, event: Event) -> Verdict<Call> {
    if state == Call::OwnClear {
        return match event {
            Event::Clear | Event::ClearConfirmation => Verdict::Normal(Call::Ready),
            _ => Verdict::Discard,
        };
    }
    if state == Call::Transfer
        && !matches!(event, Event::Call | Event::Accepted | Event::Clear | Event::ClearConfirmation)
    {
        return Verdict::NextTable;
    }
    if let Some(fault) = event.fault() {
        return Verdict::Error(fault);
    }
    match (event, state) {
        (Event::Call, Call::Ready) => Verdict::Normal(Call::Peer),
        (Event::Call, Call::Own) => Verdict::Normal(Call::Collision),
        (Event::Accepted, Call::Own) => Verdict::Normal(Call::Transfer),
        // §4.1.6: the DCE proceeds with the DTE's call, so only the DTE's own call can be accepted.
        (Event::Accepted, Call::Collision) if role == Role::Dte => Verdict::Normal(Call::Transfer),
        (Event::Clear, Call::PeerClear) => Verdict::Discard,
        (Event::Clear, _) => Verdict::Normal(Call::PeerClear),
        _ => Verdict::Error(diagnostic::STATE_P1 - 1 + state.number(role)),
    }
}

/// Looks up Table C-4, for data transfer and permanent virtual circuits. An error is answered with a reset.
pub fn reset(role: Role, state: Reset, event: Event) -> Verdict<Reset> {
    if state == Reset::Own {
        return match event {
            Event::Reset | Event::ResetConfirmation => Verdict::Normal(Reset::Ready),
            _ => Verdict::Discard,
        };
    }
    if let Some(fault) = event.fault() {
        return Verdict::Error(fault);
    }
    match (event, state) {
        (Event::Reset, Reset::Ready) => Verdict::Normal(Reset::Peer),
        (Event::Reset, _) => Verdict::Discard,
        (Event::Interrupt | Event::Flow, Reset::Ready) => Verdict::Normal(Reset::Ready),
        (Event::Call | Event::Accepted | Event::Clear | Event::ClearConfirmation, _) => {
            Verdict::Error(diagnostic::INVALID_ON_PVC)
        }
        _ => Verdict::Error(diagnostic::STATE_D1 - 1 + state.number(role)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    fn word<S: Copy>(verdict: Verdict<S>, number: impl Fn(S) -> u8) -> String {
        match verdict {
            Verdict::Normal(state) => alloc::format!("->{}", number(state)),
            Verdict::Discard => "-".into(),
            Verdict::Error(code) => alloc::format!("#{code}"),
            Verdict::Diagnostic(code) => alloc::format!("diag{code}"),
            Verdict::NextTable => "below".into(),
        }
    }

    // Rows are as in the standard: the event's name, then one cell for each state from 1 to n.
    fn walk(table: &str, rows: usize, mut cell: impl FnMut(&str, u8) -> String) {
        let lines = table.lines().filter(|line| !line.trim().is_empty());
        assert_eq!(lines.clone().count(), rows);
        for line in lines {
            let mut words = line.split_whitespace();
            let event = words.next().expect("a name");
            for (number, expected) in (1..).zip(words) {
                assert_eq!(cell(event, number), expected, "{event} in state {number}");
            }
        }
    }

    fn named<E: core::fmt::Debug + Copy>(all: &[E], name: &str) -> E {
        *all.iter().find(|event| alloc::format!("{event:?}") == name).expect("an event of that name")
    }

    #[test]
    fn every_dce_cell_matches_annex_c() {
        let role = Role::Dce;
        let table = "
            Restart        ->2    -    ->1
            Confirmation   #17    #18  ->1
            OnChannelZero  diag36 #18  -
            OnChannel      below  #18  -
        ";
        walk(table, 4, |event, at| {
            let state = Restart::ALL.into_iter().find(|state| state.number(role) == at).expect("1 to 3");
            word(restart(role, state, named(&RestartEvent::ALL, event)), |state| state.number(role))
        });
        let table = "
            Call               ->2  #21  ->5  #23   #24  #25  -
            Accepted           #20  #21  ->4  #23   #24  #25  -
            Clear              ->6  ->6  ->6  ->6   ->6  -    ->1
            ClearConfirmation  #20  #21  #22  #23   #24  #25  ->1
            Reset              #20  #21  #22  below #24  #25  -
            ResetConfirmation  #20  #21  #22  below #24  #25  -
            Interrupt          #20  #21  #22  below #24  #25  -
            Flow               #20  #21  #22  below #24  #25  -
            Restart            #41  #41  #41  below #41  #41  -
            Unknown            #33  #33  #33  below #33  #33  -
            Short              #38  #38  #38  below #38  #38  -
        ";
        walk(table, 11, |event, at| {
            let state = Call::ALL.into_iter().find(|state| state.number(role) == at).expect("1 to 7");
            word(call(role, state, named(&Event::ALL, event)), |state| state.number(role))
        });
        let table = "
            Call               #35  #35  -
            Accepted           #35  #35  -
            Clear              #35  #35  -
            ClearConfirmation  #35  #35  -
            Reset              ->2  -    ->1
            ResetConfirmation  #27  #28  ->1
            Interrupt          ->1  #28  -
            Flow               ->1  #28  -
            Restart            #41  #41  -
            Unknown            #33  #33  -
            Short              #38  #38  -
        ";
        walk(table, 11, |event, at| {
            let state = Reset::ALL.into_iter().find(|state| state.number(role) == at).expect("1 to 3");
            word(reset(role, state, named(&Event::ALL, event)), |state| state.number(role))
        });
    }

    #[test]
    fn every_dte_cell_matches_iso_8208() {
        let role = Role::Dte;
        let table = "
            Restart        ->3    ->1  -
            Confirmation   #17    ->1  #19
            OnChannelZero  diag36 -    #19
            OnChannel      below  -    #19
        ";
        walk(table, 4, |event, at| {
            let state = Restart::ALL.into_iter().find(|state| state.number(role) == at).expect("1 to 3");
            word(restart(role, state, named(&RestartEvent::ALL, event)), |state| state.number(role))
        });
        let table = "
            Call               ->3  ->5  #22  #23   #24  -    #26
            Accepted           #20  ->4  #22  #23   ->4  -    #26
            Clear              ->7  ->7  ->7  ->7   ->7  ->1  -
            ClearConfirmation  #20  #21  #22  #23   #24  ->1  #26
            Reset              #20  #21  #22  below #24  -    #26
            ResetConfirmation  #20  #21  #22  below #24  -    #26
            Interrupt          #20  #21  #22  below #24  -    #26
            Flow               #20  #21  #22  below #24  -    #26
            Restart            #41  #41  #41  below #41  -    #41
            Unknown            #33  #33  #33  below #33  -    #33
            Short              #38  #38  #38  below #38  -    #38
        ";
        walk(table, 11, |event, at| {
            let state = Call::ALL.into_iter().find(|state| state.number(role) == at).expect("1 to 7");
            word(call(role, state, named(&Event::ALL, event)), |state| state.number(role))
        });
        let table = "
            Call               #35  -    #35
            Accepted           #35  -    #35
            Clear              #35  -    #35
            ClearConfirmation  #35  -    #35
            Reset              ->3  ->1  -
            ResetConfirmation  #27  ->1  #29
            Interrupt          ->1  -    #29
            Flow               ->1  -    #29
            Restart            #41  -    #41
            Unknown            #33  -    #33
            Short              #38  -    #38
        ";
        walk(table, 11, |event, at| {
            let state = Reset::ALL.into_iter().find(|state| state.number(role) == at).expect("1 to 3");
            word(reset(role, state, named(&Event::ALL, event)), |state| state.number(role))
        });
    }
}
