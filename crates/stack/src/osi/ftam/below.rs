//! The services below, as far as the file protocol uses them (ISO 8571-4: services assumed).
//!
//! Shape     whoever wires the tower carries each of these into ACSE's or presentation's primitive of that name, and adds
//!           what files do not decide: ACSE's own presentation context, connection references, transfer syntaxes (BER).
//! Values    an FPDU goes down as one single-ASN.1-type value in the context of "FTAM PCI"; what comes up may be in any form.
//! Contexts  have odd numbers from 1, the first is "FTAM PCI"; ACSE's must be another.
//! Tokens    with synchronisation, the token for minor points is the initiator's at first, and is wherever data is sent
//!           from: it is given when a read begins and given back when it ends. Resynchronisation says where it is to be: after a
//!           cancel with the initiator, after a restart with the sender.

use super::Role;
use crate::osi::Selectors;
use alloc::vec::Vec;
use kiban_ground::Rope;
use kiban_wire::ber::Oid;

/// A presentation context that is proposed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Context {
    /// Its number.
    pub id: i64,
    /// What is said in it; by BER.
    pub abstract_syntax: Oid,
}

/// A presentation data value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Value {
    /// The presentation context.
    pub context: i64,
    /// The value's form and bytes.
    pub form: Form,
}

/// A value's form.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Form {
    /// One element of BER, header included.
    Single(Rope),
    /// Elements of BER, one behind the other.
    OctetAligned(Rope),
}

/// How to resynchronise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resynchronise {
    /// Whatever was under way is void; the token goes to the initiator; the session chooses the number.
    Abandon,
    /// Go on from where this point was next.
    Restart {
        /// The number that the next point will have.
        serial: u32,
        /// Who gets the token: whoever sends data.
        token: Role,
    },
}

/// Requests and responses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// A-ASSOCIATE request, with the application context of ISO 8571.
    Associate(Associate),
    /// A-ASSOCIATE response.
    AssociateResponse(AssociateResponse),
    /// A-RELEASE request.
    Release(Value),
    /// A-RELEASE response: affirmative.
    ReleaseResponse(Value),
    /// A-ABORT request.
    Abort(Value),
    /// P-DATA request.
    Data(Vec<Value>),
    /// P-SYNC-MINOR request, explicit: a confirmation is wanted.
    SyncMinor,
    /// P-SYNC-MINOR response.
    SyncMinorResponse {
        /// The point.
        serial: u32,
    },
    /// P-RESYNCHRONIZE request.
    Resynchronise(Resynchronise, Value),
    /// P-RESYNCHRONIZE response, to where the peer proposed.
    ResynchroniseResponse(Value),
    /// P-TOKEN-GIVE request: the token for minor synchronisation.
    GiveToken,
}

/// A-ASSOCIATE request and indication.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Associate {
    /// Who calls.
    pub calling: Selectors,
    /// Who is called.
    pub called: Selectors,
    /// Contexts; to the indication, all that are proposed may be given, in their order.
    pub contexts: Vec<Context>,
    /// Whether session's units minor synchronise and resynchronise are wanted beside kernel and duplex.
    pub synchronise: bool,
    /// The number of the first synchronisation point.
    pub initial_serial: u32,
    /// User information.
    pub user_information: Vec<Value>,
}

/// A-ASSOCIATE response and confirm.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AssociateResponse {
    /// Whether there is an association.
    pub accepted: bool,
    /// The numbers of the contexts that are accepted.
    pub contexts: Vec<i64>,
    /// Whether both session units are selected.
    pub synchronise: bool,
    /// User information.
    pub user_information: Vec<Value>,
}

/// Indications and confirms.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Indication {
    /// A-ASSOCIATE indication.
    Associate(Associate),
    /// A-ASSOCIATE confirm.
    AssociateConfirm(AssociateResponse),
    /// A-RELEASE indication.
    Release(Vec<Value>),
    /// A-RELEASE confirm.
    ReleaseConfirm(Vec<Value>),
    /// A-ABORT indication.
    Abort(Vec<Value>),
    /// A-P-ABORT indication, or the association could not be tried.
    ProviderAbort,
    /// P-DATA indication.
    Data(Vec<Value>),
    /// P-SYNC-MINOR indication.
    SyncMinor {
        /// The point.
        serial: u32,
    },
    /// P-SYNC-MINOR confirm.
    SyncMinorConfirm {
        /// The point.
        serial: u32,
    },
    /// P-RESYNCHRONIZE indication: a request of the own that was under way is void.
    Resynchronise {
        /// The number that the next point will have.
        serial: u32,
        /// User data.
        values: Vec<Value>,
    },
    /// P-RESYNCHRONIZE confirm.
    ResynchroniseConfirm {
        /// The number that the next point will have.
        serial: u32,
        /// User data.
        values: Vec<Value>,
    },
}
