//! The state table: actions and the next state for each state and event.

use super::event::Event;
use super::event::State::{
    self, Sta01, Sta01B, Sta01C, Sta01D, Sta02A, Sta02B, Sta03, Sta05A, Sta08, Sta09, Sta11A, Sta16, Sta713,
};
use super::variables::{Given, Variables};
use crate::session::{Resynchronisation, SERIAL_MAX, Units};

/// Outgoing events of Table A.3, and specific actions of Table A.6.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::session) enum Action {
    SConInd,
    SConCnfAccept,
    SConCnfRefuse,
    SDtInd,
    STdInd,
    SGtInd,
    SPtInd,
    SSynInd,
    SSynCnf,
    SRsynInd,
    SRsynCnf,
    SRelInd,
    SRelCnf,
    SPabInd,
    SxabInd,
    TConReq,
    TConRsp,
    TDisReq,
    Ac,
    Ab,
    Cdo,
    Cn,
    Dn,
    Dt,
    Fn,
    Gt,
    Mia,
    Mip,
    Oa,
    Pt,
    Ra,
    Rf,
    Rs,
    Td,
    /// \[1\] Vtca = true.
    Acceptor,
    /// \[2\] Vtca = false.
    Initiator,
    /// \[3\]
    StopTim,
    /// \[4\]
    StartTim,
    /// \[5\] Sets the variables of a new connection.
    SetUp,
    /// \[11\]
    UpdateTokens,
    /// \[16\] Sets Vrsp and Vrspnb; received data is discarded from now on.
    BeginResync,
    /// \[18\]
    SetCollision,
    /// \[19\] Raises V(M).
    RaiseNext,
    /// \[23\] A synchronisation point was received.
    PointIn,
    /// \[24\] A synchronisation point was sent.
    PointOut,
    /// \[25\]
    Confirmed,
    /// \[28\]
    EndResync,
    /// \[32\]
    DisconnectIn,
    /// \[50\] Preserves user data.
    Preserve,
}

/// The contents of one cell in the tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::session) enum Verdict {
    /// The actions to take, and the next state.
    Go(&'static [Action], State),
    /// The cell is empty, or no predicate holds: the local user made an invalid request, or the peer violated
    /// the protocol (§A.4.1).
    Invalid,
}

/// Looks up one cell.
pub(in crate::session) fn verdict(state: State, event: Event, v: &Variables, given: &Given) -> Verdict {
    use Action::*;
    use Resynchronisation::{Abandon, Restart};
    use Verdict::{Go, Invalid};
    const ABORTED: Verdict = Go(&[SxabInd, TDisReq], Sta01);
    match (event, state) {
        // Table A.9: data.
        (Event::SDtReq, Sta713) => Go(&[Dt], Sta713),
        (Event::Dt, Sta713) => Go(&[SDtInd], Sta713),
        (Event::SDtReq, Sta09) if !v.vcoll => Go(&[Dt], Sta09),
        (Event::Dt, Sta03) if !v.vcoll => Go(&[SDtInd], Sta03),
        (Event::Dt, Sta05A) if v.discard => Go(&[], Sta05A),
        (Event::Dt, Sta05A | Sta11A) if !v.discard => Go(&[SDtInd], state),
        (Event::STdReq | Event::Td, _) if in_connection(state) && !v.has(Units::TYPED_DATA) => Invalid,
        (Event::STdReq, Sta713) => Go(&[Td], Sta713),
        (Event::STdReq, Sta09) if !v.vcoll => Go(&[Td], Sta09),
        (Event::Td, Sta713) => Go(&[STdInd], Sta713),
        (Event::Td, Sta03) if !v.vcoll => Go(&[STdInd], Sta03),
        (Event::Td, Sta05A) if v.discard => Go(&[], Sta05A),
        (Event::Td, Sta05A) => Go(&[STdInd], Sta05A),

        // Table A.8: establishment.
        (Event::SConReq, Sta01) => Go(&[TConReq, Initiator], Sta01B),
        (Event::TConInd, Sta01) => Go(&[TConRsp, Acceptor], Sta01C),
        (Event::TConCnf, Sta01B) if given.overflow => Go(&[Cn], Sta02B),
        (Event::TConCnf, Sta01B) => Go(&[Cn], Sta02A),
        (Event::SConReq, Sta01C) if v.initiator && given.overflow => Go(&[Cn], Sta02B),
        (Event::SConReq, Sta01C) if v.initiator => Go(&[Cn], Sta02A),
        (Event::Cn, Sta01C) if v.initiator => Go(&[TDisReq], Sta01),
        (Event::Cn, Sta01C) if given.unacceptable => Go(&[Rf, StartTim], Sta16),
        (Event::Cn, Sta01C) if given.overflow => Go(&[Oa, Preserve], Sta01D),
        (Event::Cn, Sta01C) => Go(&[SConInd], Sta08),
        (Event::Cn, Sta16) => Go(&[TDisReq, StopTim], Sta01),
        (Event::Cdo, Sta01D) if given.end => Go(&[SConInd], Sta08),
        (Event::Cdo, Sta01D) => Go(&[Preserve], Sta01D),
        (Event::Oa, Sta02B) => Go(&[Cdo], Sta02A),
        (Event::Ac, Sta02A) => Go(&[SConCnfAccept, SetUp, UpdateTokens], Sta713),
        (Event::RfNr | Event::RfR, Sta02A | Sta02B) => Go(&[SConCnfRefuse, TDisReq], Sta01),
        (Event::SConRspAccept, Sta08) => Go(&[Action::Ac, SetUp, UpdateTokens], Sta713),
        (Event::SConRspRefuse, Sta08) => Go(&[Rf, StartTim], Sta16),

        // Table A.10: synchronisation.
        (Event::SSynReq, Sta713) if v.has_minor() && v.owns_minor => Go(&[Action::Mip, PointOut], Sta713),
        (Event::SSynRsp, Sta713 | Sta09) if v.has_minor() && v.vsc && v.is_outstanding(given.serial) => {
            Go(&[Action::Mia, Confirmed], state)
        }
        (Event::Mip, Sta713) if v.has_minor() && !v.owns_minor && given.serial == v.vm => {
            Go(&[SSynInd, PointIn], Sta713)
        }
        (Event::Mip, Sta05A) if !v.discard => Go(&[SSynInd, PointIn], Sta05A),
        (Event::Mip, Sta05A) if v.has_minor() && !v.owns_minor => Go(&[], Sta05A),
        (Event::Mia, Sta713 | Sta03) if v.has_minor() && !v.vsc && v.is_outstanding(given.serial) => {
            Go(&[SSynCnf, Confirmed], state)
        }
        (Event::Mia, Sta05A) if v.has_minor() && !v.vsc => Go(&[], Sta05A),

        // Table A.11: resynchronisation.
        (Event::SRsynReq, Sta713 | Sta09 | Sta11A) => {
            let allowed = match state {
                Sta11A => !v.wins(given, v.initiator),
                _ if state == Sta09 && v.vcoll => false,
                _ if given.kind == Abandon => v.has(Units::RESYNCHRONISE),
                _ => v.may_name_points(),
            };
            let in_range = given.kind != Restart || v.vm >= given.serial && given.serial >= v.vr;
            if allowed && in_range { Go(&[Action::Rs, BeginResync], Sta05A) } else { Invalid }
        }
        (Event::SRsynRsp, Sta11A) if accepts(v, given, |next| given.serial == next) => {
            Go(&[Action::Ra, EndResync, UpdateTokens], Sta713)
        }
        (Event::Rs, Sta713 | Sta03 | Sta05A) => {
            let in_range = given.kind != Restart || given.serial >= v.vr;
            if !v.has(Units::RESYNCHRONISE) || !in_range || state == Sta03 && v.vcoll {
                Invalid
            } else if state == Sta05A && v.wins(given, !v.initiator) {
                Go(&[], Sta05A)
            } else if given.kind == Abandon {
                Go(&[RaiseNext, SRsynInd, BeginResync], Sta11A)
            } else {
                Go(&[SRsynInd, BeginResync], Sta11A)
            }
        }
        (Event::Ra, Sta05A)
            if v.has(Units::RESYNCHRONISE) && accepts(v, given, |next| given.serial >= next) =>
        {
            Go(&[SRsynCnf, EndResync, UpdateTokens], Sta713)
        }

        // Table A.14: tokens.
        (Event::SGtReq, Sta713)
            if given.tokens.is_empty() || v.all_available(given.tokens) && v.owns_minor =>
        {
            Go(&[Action::Gt, UpdateTokens], Sta713)
        }
        (Event::SPtReq, Sta713 | Sta09) if v.all_available(given.tokens) => Go(&[Action::Pt], state),
        (Event::Gt, Sta713 | Sta05A)
            if given.tokens.is_empty() || v.all_available(given.tokens) && !v.owns_minor =>
        {
            if state == Sta05A && v.discard { Go(&[], Sta05A) } else { Go(&[SGtInd, UpdateTokens], state) }
        }
        (Event::Pt, Sta713 | Sta05A | Sta03) if v.all_available(given.tokens) => {
            if state == Sta05A && v.discard { Go(&[], Sta05A) } else { Go(&[SPtInd], state) }
        }

        // Table A.15: release.
        (Event::SRelReq, Sta713) if v.may_release() => Go(&[Action::Fn], Sta03),
        (Event::SRelReq, Sta09) if !v.has_minor() => Go(&[Action::Fn, SetCollision], Sta09),
        (Event::SRelRspAccept, Sta09) if !v.vcoll || v.vdnr => Go(&[Action::Dn, StartTim], Sta16),
        (Event::SRelRspAccept, Sta09) if v.initiator => Go(&[Action::Dn], Sta03),
        (Event::FnR, Sta713 | Sta03 | Sta05A) if v.initiator => Invalid,
        (Event::FnNr | Event::FnR, Sta713) if v.peer_may_release() => Go(&[SRelInd], Sta09),
        (Event::FnNr | Event::FnR, Sta03) if !v.has_minor() => Go(&[SRelInd, SetCollision], Sta09),
        (Event::FnNr | Event::FnR, Sta05A) if v.peer_may_release() => Go(&[], Sta05A),
        (Event::Dn, Sta03) => Go(&[SRelCnf, TDisReq], Sta01),
        (Event::Dn, Sta09) if v.vcoll && !v.initiator => Go(&[SRelCnf, DisconnectIn], Sta09),

        // Table A.16: abort.
        (Event::SUabReq, Sta01B) => Go(&[TDisReq], Sta01),
        (Event::SUabReq, _) if in_connection(state) => Go(&[Ab, StartTim], Sta16),
        (Event::AbNr | Event::AbR, _) if in_connection(state) => ABORTED,
        (Event::Aa | Event::AbNr | Event::AbR, Sta16) => Go(&[StopTim, TDisReq], Sta01),
        (Event::TDisInd, Sta01C | Sta01D) => Go(&[], Sta01),
        (Event::TDisInd, Sta16) => Go(&[StopTim], Sta01),
        (Event::TDisInd, Sta01) => Invalid,
        (Event::TDisInd, _) => Go(&[SPabInd], Sta01),
        (Event::Tim, Sta16) => Go(&[TDisReq], Sta01),

        // The columns in which nearly all SPDUs have the same cell.
        (_, Sta01C | Sta01D)
            if is_spdu(event)
                && !(state == Sta01D
                    && matches!(event, Event::Cn | Event::Ac | Event::Oa | Event::RfNr | Event::RfR)) =>
        {
            Go(&[TDisReq], Sta01)
        }
        (Event::Cdo | Event::Oa, Sta16) => Invalid,
        (_, Sta16) if is_spdu(event) => Go(&[], Sta16),
        _ => Invalid,
    }
}

/// p43 and p49: returns whether a response has the required serial number.
fn accepts(v: &Variables, given: &Given, abandoned: impl FnOnce(u32) -> bool) -> bool {
    match v.vrsp {
        Some(Resynchronisation::Restart) => given.serial == v.vrspnb,
        Some(Resynchronisation::Abandon) => abandoned(v.vm),
        Some(Resynchronisation::Set) => given.serial <= SERIAL_MAX,
        None => false,
    }
}

/// Returns whether the user has been notified of a connection, so that it can abort it.
pub(in crate::session) fn in_connection(state: State) -> bool {
    matches!(state, Sta02A | Sta02B | Sta03 | Sta05A | Sta08 | Sta09 | Sta11A | Sta713)
}

fn is_spdu(event: Event) -> bool {
    event as u8 >= Event::Ac as u8
}
