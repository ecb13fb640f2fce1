//! The tables of the packet layer: what a packet does in a state (X.25 Annex C, Tables C-1 to C-4; ISO 8208 for a DTE).
//!
//! States are named from this end: what the standard calls "DTE call request" (p2) is [`Call::Own`] at a DTE and
//! [`Call::Peer`] at a DCE. [`Call::number`] and the diagnostics give the standard's number back.

use kiban_wire::x25::diagnostic;

pub use crate::lapb::Role;

/// Restart states.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Restart {
    /// r1: packet layer ready.
    Ready,
    /// We have asked: r2 at a DTE, r3 at a DCE.
    Own,
    /// The peer has asked: r3 at a DTE, r2 at a DCE.
    Peer,
}

/// Call set-up and clearing states.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Call {
    /// p1: ready.
    Ready,
    /// We call: p2 at a DTE, p3 at a DCE.
    Own,
    /// The peer calls: p3 at a DTE, p2 at a DCE.
    Peer,
    /// p4: data transfer; [`Reset`] says more.
    Transfer,
    /// p5: both have called.
    Collision,
    /// We clear: p6 at a DTE, p7 at a DCE.
    OwnClear,
    /// The peer clears: p7 at a DTE, p6 at a DCE.
    PeerClear,
}

/// Reset states, within p4 or on a permanent circuit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reset {
    /// d1: flow control ready.
    Ready,
    /// We reset: d2 at a DTE, d3 at a DCE.
    Own,
    /// The peer resets: d3 at a DTE, d2 at a DCE.
    Peer,
}

impl Restart {
    /// Every state.
    pub const ALL: [Restart; 3] = [Restart::Ready, Restart::Own, Restart::Peer];

    /// The standard's number: 1 to 3.
    pub fn number(self, role: Role) -> u8 {
        match (self, role) {
            (Restart::Ready, _) => 1,
            (Restart::Own, Role::Dte) | (Restart::Peer, Role::Dce) => 2,
            (Restart::Peer, Role::Dte) | (Restart::Own, Role::Dce) => 3,
        }
    }
}

impl Call {
    /// Every state.
    pub const ALL: [Call; 7] = [
        Call::Ready,
        Call::Own,
        Call::Peer,
        Call::Transfer,
        Call::Collision,
        Call::OwnClear,
        Call::PeerClear,
    ];

    /// The standard's number: 1 to 7.
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
    /// Every state.
    pub const ALL: [Reset; 3] = [Reset::Ready, Reset::Own, Reset::Peer];

    /// The standard's number: 1 to 3.
    pub fn number(self, role: Role) -> u8 {
        match (self, role) {
            (Reset::Ready, _) => 1,
            (Reset::Own, Role::Dte) | (Reset::Peer, Role::Dce) => 2,
            (Reset::Peer, Role::Dte) | (Reset::Own, Role::Dce) => 3,
        }
    }
}

/// What is done with a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Verdict<S> {
    /// It is as it should be; the state that follows.
    Normal(S),
    /// It is discarded.
    Discard,
    /// It is discarded, and the rule that it broke is said: by a restart, a clear or a reset, as the table is.
    Error(u8),
    /// It is discarded, and a DCE says so in a diagnostic packet.
    Diagnostic(u8),
    /// The next table decides.
    Below,
}

/// What the restart table tells apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RestartEvent {
    /// Restart request or indication on channel 0.
    Restart,
    /// Its confirmation.
    Confirmation,
    /// Channel 0 and any other type.
    OnChannelZero,
    /// Any packet on another channel.
    OnChannel,
}

impl RestartEvent {
    /// Every event.
    pub const ALL: [RestartEvent; 4] = [
        RestartEvent::Restart,
        RestartEvent::Confirmation,
        RestartEvent::OnChannelZero,
        RestartEvent::OnChannel,
    ];
}

/// Table C-2.
pub fn restart(role: Role, state: Restart, event: RestartEvent) -> Verdict<Restart> {
    let invalid = Verdict::Error(diagnostic::STATE_R1 - 1 + state.number(role));
    match (event, state) {
        (RestartEvent::Restart, Restart::Ready) => Verdict::Normal(Restart::Peer),
        // Both restart: that is a confirmation.
        (RestartEvent::Restart | RestartEvent::Confirmation, Restart::Own) => Verdict::Normal(Restart::Ready),
        (RestartEvent::Restart, Restart::Peer) => Verdict::Discard,
        (RestartEvent::Confirmation, Restart::Ready | Restart::Peer) => invalid,
        (RestartEvent::OnChannelZero, Restart::Ready) => Verdict::Diagnostic(diagnostic::UNASSIGNED_CHANNEL),
        (RestartEvent::OnChannel, Restart::Ready) => Verdict::Below,
        (RestartEvent::OnChannelZero | RestartEvent::OnChannel, Restart::Own) => Verdict::Discard,
        (RestartEvent::OnChannelZero | RestartEvent::OnChannel, Restart::Peer) => invalid,
    }
}

/// What the tables of a channel tell apart.
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
    /// A restart, which belongs to channel 0.
    Restart,
    /// A type that is none.
    Unknown,
    /// Too short to have a type.
    Short,
}

impl Event {
    /// Every event.
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

    /// What is wrong with it wherever it comes.
    fn fault(self) -> Option<u8> {
        match self {
            Event::Restart => Some(diagnostic::RESTART_ON_CHANNEL),
            Event::Unknown => Some(diagnostic::UNIDENTIFIABLE),
            Event::Short => Some(diagnostic::TOO_SHORT),
            _ => None,
        }
    }
}

/// Table C-3: a switched circuit. An error is answered by a clear.
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
        return Verdict::Below;
    }
    if let Some(fault) = event.fault() {
        return Verdict::Error(fault);
    }
    match (event, state) {
        (Event::Call, Call::Ready) => Verdict::Normal(Call::Peer),
        (Event::Call, Call::Own) => Verdict::Normal(Call::Collision),
        (Event::Accepted, Call::Own) => Verdict::Normal(Call::Transfer),
        // §4.1.6: the DCE goes on with the DTE's call, so it is a DTE alone that is answered.
        (Event::Accepted, Call::Collision) if role == Role::Dte => Verdict::Normal(Call::Transfer),
        (Event::Clear, Call::PeerClear) => Verdict::Discard,
        (Event::Clear, _) => Verdict::Normal(Call::PeerClear),
        _ => Verdict::Error(diagnostic::STATE_P1 - 1 + state.number(role)),
    }
}

/// Table C-4: data transfer, or a permanent circuit. An error is answered by a reset.
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
            Verdict::Below => "below".into(),
        }
    }

    /// Rows as in the standard: a name, then the states 1 to n.
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
    fn every_cell_of_the_dce_is_the_one_of_annex_c() {
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
    fn every_cell_of_the_dte_is_the_one_of_iso_8208() {
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
