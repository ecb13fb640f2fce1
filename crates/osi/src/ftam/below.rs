//! The services of the lower layers that the file protocol uses (the "assumed services" of ISO 8571-4).
//!
//! Mapping   the wiring converts each of these to the primitive of the same name in ACSE or the presentation
//!           layer, and adds the parameters that the file protocol leaves open: ACSE's own presentation
//!           context, connection references, transfer syntaxes (BER).
//! Values    an FPDU is sent as one single-ASN.1-type value in the context of "FTAM PCI"; received values may
//!           have any form.
//! Contexts  have odd identifiers, starting with 1 for "FTAM PCI". ACSE's own context must have a different
//!           identifier.
//! Tokens    if synchronisation was negotiated, the initiator holds the synchronise-minor token at first.
//!           During a transfer, the sender of the data holds it: the initiator gives it away when a read
//!           begins and gets it back when the read ends. A resynchronisation assigns it to the initiator
//!           after a cancel, and to the sender after a restart.

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
    /// The abstract syntax; the transfer syntax is always BER.
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
    /// Abandon: everything in progress is void, the initiator gets the token, and the session layer chooses
    /// the serial number.
    Abandon,
    /// Restart from this point.
    Restart {
        /// The serial number that the next synchronisation point will have.
        serial: u32,
        /// The side that gets the token: the sender of the data.
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
    /// P-SYNC-MINOR request of the explicit type, which asks for a confirmation.
    SyncMinor,
    /// P-SYNC-MINOR response.
    SyncMinorResponse {
        /// The serial number of the synchronisation point.
        serial: u32,
    },
    /// P-RESYNCHRONIZE request.
    Resynchronise(Resynchronise, Value),
    /// P-RESYNCHRONIZE response. Accepts the proposed serial number.
    ResynchroniseResponse(Value),
    /// P-TOKEN-GIVE request for the synchronise-minor token.
    GiveToken,
}

/// A-ASSOCIATE request and indication.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Associate {
    /// The calling selectors.
    pub calling: Selectors,
    /// The called selectors.
    pub called: Selectors,
    /// The proposed contexts. An indication may list all contexts that were proposed, in the order of the
    /// proposal.
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
    /// A-P-ABORT indication, or notice that the association could not be attempted.
    ProviderAbort,
    /// P-DATA indication.
    Data(Vec<Value>),
    /// P-SYNC-MINOR indication.
    SyncMinor {
        /// The serial number of the synchronisation point.
        serial: u32,
    },
    /// P-SYNC-MINOR confirm.
    SyncMinorConfirm {
        /// The serial number of the synchronisation point.
        serial: u32,
    },
    /// P-RESYNCHRONIZE indication. It cancels any resynchronisation that this end had requested.
    Resynchronise {
        /// The serial number that the next synchronisation point will have.
        serial: u32,
        /// User data.
        values: Vec<Value>,
    },
    /// P-RESYNCHRONIZE confirm.
    ResynchroniseConfirm {
        /// The serial number that the next synchronisation point will have.
        serial: u32,
        /// User data.
        values: Vec<Value>,
    },
}
