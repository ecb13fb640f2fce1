//! The state table of X.227 Annex A (Table A.5).
//!
//! Cells that are blank in the standard are [`Cell::Invalid`].

/// States (Table A.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum State {
    /// STA0: idle, unassociated.
    #[default]
    Sta0,
    /// STA1: awaiting AARE.
    Sta1,
    /// STA2: awaiting A-ASSOCIATE response.
    Sta2,
    /// STA3: awaiting RLRE.
    Sta3,
    /// STA4: awaiting A-RELEASE response.
    Sta4,
    /// STA5: associated.
    Sta5,
    /// STA6: release collision; the association's initiator awaits the A-RELEASE response.
    Sta6,
    /// STA7: release collision; the association's responder awaits RLRE.
    Sta7,
}

macro_rules! events {
    ($($event:ident, $name:literal;)*) => {
        /// Incoming events (Table A.1).
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
    AAscReq, "A-ASCreq"; AAscRspAccept, "A-ASCrsp+"; AAscRspReject, "A-ASCrsp-";
    Aarq, "AARQ"; AareAccept, "AARE+"; AareReject, "AARE-"; PConCnfReject, "P-CONcnf-";
    ARlsReq, "A-RLSreq"; ARlsRspAccept, "A-RLSrsp+"; ARlsRspReject, "A-RLSrsp-";
    Rlrq, "RLRQ"; RlreAccept, "RLRE+"; RlreReject, "RLRE-";
    AAbrReq, "A-ABRreq"; Abrt, "ABRT"; PPabInd, "P-PABind"; Extern1, "EXTRN-1"; Extern2, "EXTRN-2";
}

/// The contents of one cell in the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cell {
    /// A blank cell.
    Invalid,
    /// Passes the event on to the other side (user or presentation service), and enters this state.
    Go(State),
    /// For an AARQ. If p1 is true (the association can be supported), indicates it and enters STA2; otherwise
    /// answers with AARE- and stays in STA0.
    Validate,
    /// For an RLRQ that collides with this end's own RLRQ. Indicates it, and enters STA6 if p2 is true (this
    /// end initiated the association), otherwise STA7.
    Collision,
}

/// Looks up one cell.
pub const fn cell(state: State, event: Event) -> Cell {
    use Event::*;
    use State::*;
    match (state, event) {
        (Sta0, AAscReq) => Cell::Go(Sta1),
        (Sta2, AAscRspAccept) => Cell::Go(Sta5),
        (Sta2, AAscRspReject) => Cell::Go(Sta0),
        (Sta0, Aarq) => Cell::Validate,
        (Sta1, AareAccept) => Cell::Go(Sta5),
        (Sta1, AareReject) => Cell::Go(Sta0),
        (Sta1, PConCnfReject) => Cell::Go(Sta0),
        (Sta5, ARlsReq) => Cell::Go(Sta3),
        (Sta4, ARlsRspAccept) => Cell::Go(Sta0),
        (Sta6, ARlsRspAccept) => Cell::Go(Sta3),
        (Sta4, ARlsRspReject) => Cell::Go(Sta5),
        (Sta3, Rlrq) => Cell::Collision,
        (Sta5, Rlrq) => Cell::Go(Sta4),
        (Sta3, RlreAccept) => Cell::Go(Sta0),
        (Sta7, RlreAccept) => Cell::Go(Sta4),
        (Sta3, RlreReject) => Cell::Go(Sta5),
        (Sta0, AAbrReq | Abrt | PPabInd) => Cell::Invalid,
        (_, AAbrReq | Abrt | PPabInd) => Cell::Go(Sta0),
        (Sta3 | Sta5, Extern1) => Cell::Go(Sta5),
        (Sta4 | Sta5, Extern2) => Cell::Go(Sta5),
        _ => Cell::Invalid,
    }
}
