//! The state table of X.226 Annex A without context management: STAac0, STAac1 and STAac2 cannot be reached,
//! and predicates p11 and p17 are false.
//!
//! Cells that are blank in the standard are [`Cell::Invalid`]. A cell with a predicate about presentation
//! data values names the contexts in which the values must be; if they are in others, the cell counts as
//! blank (§A.4.2.2).

/// States (Table A.17).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// STAI0: idle, no connection.
    I0,
    /// STAI1: await CPA.
    I1,
    /// STAI2: await P-CONNECT response.
    I2,
    /// STAt0: connected, data transfer.
    T0,
}

macro_rules! events {
    ($($event:ident, $name:literal;)*) => {
        /// Incoming events (Table A.16), with the standard's names: `req` and `rsp` come from the user above,
        /// `ind` and `cnf` from the session service; the others are PPDUs.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Event { $(#[doc = $name] $event,)* }

        impl Event {
            /// All events.
            pub const ALL: &[Event] = &[$(Event::$event),*];

            /// Returns the standard's abbreviated name.
            pub const fn name(self) -> &'static str {
                match self { $(Event::$event => $name,)* }
            }
        }
    };
}

events! {
    PConReq, "P-CONreq"; Cp, "CP"; PConRspAccept, "P-CONrsp+"; Cpa, "CPA"; PConRspReject, "P-CONrsp-"; Cpr, "CPR";
    SConCnfReject, "S-CONcnf-";
    PRelReq, "P-RELreq"; SRelInd, "S-RELind"; PRelRspAccept, "P-RELrsp+"; SRelCnfAccept, "S-RELcnf+";
    PRelRspReject, "P-RELrsp-"; SRelCnfReject, "S-RELcnf-";
    PUabReq, "P-UABreq"; Aru, "ARU"; Arp, "ARP"; SPabInd, "S-PABind";
    Ac, "AC"; Aca, "ACA";
    PDtReq, "P-DTreq"; Td, "TD"; PTdReq, "P-TDreq"; Ttd, "TTD";
    PGtReq, "P-GTreq"; SGtInd, "S-GTind"; PPtReq, "P-PTreq"; SPtInd, "S-PTind";
    PSynMinorReq, "P-SYNmreq"; SSynMinorInd, "S-SYNmind"; PSynMinorRsp, "P-SYNmrsp"; SSynMinorCnf, "S-SYNmcnf";
    PRsynReq, "P-RSYNreq"; Rs, "RS"; PRsynRsp, "P-RSYNrsp"; Rsa, "RSA";
}

/// The contexts in which user data must be (Table A.20).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contexts {
    /// No predicate about contexts.
    Unasked,
    /// p03: the contexts proposed in CP.
    Proposed,
    /// p04: the contexts being accepted.
    Accepted,
    /// p05 (and p06, p07, which are the same without context management): the defined context set.
    Defined,
}

/// The contents of one cell in the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cell {
    /// A blank cell.
    Invalid,
    /// Passes the event on to the other side (user or session service), and enters this state.
    Go(Contexts, State),
    /// For a CP. If p01 & p02 & p22 holds, indicates it and enters STAI2; otherwise answers with CPR and
    /// stays in STAI0.
    Validate,
    /// For an accepted release. If p08 is false (no collision), enters STAI0; otherwise clears the collision
    /// and enters STAt0.
    Released,
}

/// Returns the cell for an event in a state (Tables A.21 to A.29).
pub const fn cell(state: State, event: Event) -> Cell {
    use Contexts::{Accepted, Defined, Proposed, Unasked};
    use Event::*;
    use State::{I0, I1, I2, T0};
    match (state, event) {
        // Table A.21: connection establishment.
        (I0, PConReq) => Cell::Go(Proposed, I1),
        (I0, Cp) => Cell::Validate,
        (I2, PConRspAccept) => Cell::Go(Accepted, T0),
        (I1, Cpa) => Cell::Go(Accepted, T0),
        (I2, PConRspReject) => Cell::Go(Accepted, I0),
        (I1, Cpr) => Cell::Go(Accepted, I0),
        (I1, SConCnfReject) => Cell::Go(Unasked, I0),
        // Table A.22: normal release.
        (T0, PRelReq | SRelInd) => Cell::Go(Defined, T0),
        (T0, PRelRspAccept | SRelCnfAccept) => Cell::Released,
        (T0, PRelRspReject | SRelCnfReject) => Cell::Go(Defined, T0),
        // Table A.23: abort.
        (I1 | I2, PUabReq | Aru) => Cell::Go(Proposed, I0),
        (T0, PUabReq | Aru) => Cell::Go(Defined, I0),
        (I1 | I2 | T0, Arp | SPabInd) => Cell::Go(Unasked, I0),
        // Table A.24: context management, blank because p11 is false.
        (_, Ac | Aca) => Cell::Invalid,
        // Tables A.25 to A.27 and A.29.
        (T0, PDtReq | Td | PTdReq | Ttd | PGtReq | SGtInd | PPtReq | SPtInd) => Cell::Go(Defined, T0),
        (T0, PSynMinorReq | SSynMinorInd | PSynMinorRsp | SSynMinorCnf) => Cell::Go(Defined, T0),
        (T0, PRsynReq | Rs | PRsynRsp | Rsa) => Cell::Go(Defined, T0),
        _ => Cell::Invalid,
    }
}
