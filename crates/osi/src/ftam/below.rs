//! The services below, as far as the file protocol uses them (ISO 8571-4 lists them as assumed services).
//!
//! Mapping   the wiring converts each of these to the primitive of that name in ACSE or the presentation
//!           layer, and adds what the file protocol leaves open: ACSE's own presentation context, connection
//!           references, transfer syntaxes (BER).
//! Values    an FPDU is sent as one single-ASN.1-type value in the context of "FTAM PCI"; received values may
//!           have any form.
//! Contexts  have odd identifiers from 1; the first is "FTAM PCI". ACSE's own context must have another
//!           identifier.
//! Tokens    with synchronisation, the initiator has the synchronise-minor token at first. During a transfer
//!           the sender of data has it: it is given when a read begins and given back when the read ends. A
//!           resynchronisation assigns it to the initiator after a cancel, and to the sender after a restart.

use super::Role;
use crate::Selectors;
use crate::wire::ber::Oid;
use alloc::vec::Vec;
use kiban_base::Rope;

/// A proposed presentation context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Context {
    /// The context identifier.
    pub id: i64,
    /// The abstract syntax; the transfer syntax is BER.
    pub abstract_syntax: Oid,
}

/// A presentation data value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Value {
    /// The presentation context identifier.
    pub context: i64,
    /// The value's form and bytes.
    pub form: Form,
}

/// The encoding form of a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Form {
    /// One BER element, including its header.
    Single(Rope),
    /// Consecutive BER elements.
    OctetAligned(Rope),
}

/// The kind of a resynchronisation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resynchronise {
    /// Abandon: everything in progress is void; the initiator gets the token; the session layer chooses the
    /// number.
    Abandon,
    /// Restart from this point.
    Restart {
        /// The serial number that the next synchronisation point will have.
        serial: u32,
        /// The side that gets the token: the sender of data.
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
    /// A-RELEASE response, always affirmative.
    ReleaseResponse(Value),
    /// A-ABORT request.
    Abort(Value),
    /// P-DATA request.
    Data(Vec<Value>),
    /// P-SYNC-MINOR request, explicit: a confirmation is requested.
    SyncMinor,
    /// P-SYNC-MINOR response.
    SyncMinorResponse {
        /// The serial number of the point.
        serial: u32,
    },
    /// P-RESYNCHRONIZE request.
    Resynchronise(Resynchronise, Value),
    /// P-RESYNCHRONIZE response, to the proposed serial number.
    ResynchroniseResponse(Value),
    /// P-TOKEN-GIVE request: the synchronise-minor token.
    GiveToken,
}

/// A-ASSOCIATE request and indication.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Associate {
    /// The calling selectors.
    pub calling: Selectors,
    /// The called selectors.
    pub called: Selectors,
    /// The proposed contexts. An indication may list all that were proposed, in their order.
    pub contexts: Vec<Context>,
    /// Whether minor synchronise and resynchronise are proposed in addition to kernel and duplex.
    pub synchronise: bool,
    /// The serial number of the first synchronisation point.
    pub initial_serial: u32,
    /// User information.
    pub user_information: Vec<Value>,
}

/// A-ASSOCIATE response and confirm.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AssociateResponse {
    /// Whether the association is accepted.
    pub accepted: bool,
    /// The identifiers of the accepted contexts.
    pub contexts: Vec<i64>,
    /// Whether minor synchronise and resynchronise are selected.
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
    /// A-P-ABORT indication, or the association could not be attempted.
    ProviderAbort,
    /// P-DATA indication.
    Data(Vec<Value>),
    /// P-SYNC-MINOR indication.
    SyncMinor {
        /// The serial number of the point.
        serial: u32,
    },
    /// P-SYNC-MINOR confirm.
    SyncMinorConfirm {
        /// The serial number of the point.
        serial: u32,
    },
    /// P-RESYNCHRONIZE indication. If this end had requested a resynchronisation, its request is void.
    Resynchronise {
        /// The serial number that the next point will have.
        serial: u32,
        /// User data.
        values: Vec<Value>,
    },
    /// P-RESYNCHRONIZE confirm.
    ResynchroniseConfirm {
        /// The serial number that the next point will have.
        serial: u32,
        /// User data.
        values: Vec<Value>,
    },
}
