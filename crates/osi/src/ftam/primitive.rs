//! The file service's primitives (ISO 8571-3).
//!
//! Mapping   a primitive with an FPDU is represented by that FPDU, a variant of [`Pdu`]: requests and
//!           responses go down, indications and confirms come up. F-DATA and F-CHECK have no FPDU.
//! Groups    F-BEGIN-GROUP, the group's primitives and F-END-GROUP are requested one by one, and indicated
//!           one by one.

use crate::Selectors;
use crate::wire::ber::Oid;
use crate::wire::ftam::{
    AccessRequest, ContentsType, DataElement, InitializeRequest, Pdu, RecoveryMode, SelectAttributes,
};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

/// The role of one side of the association.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// Requests files.
    Initiator,
    /// Stores files.
    Responder,
}

/// F-INITIALIZE request and indication, with the addresses of the association.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Initialize {
    /// The calling selectors.
    pub calling: Selectors,
    /// The called selectors.
    pub called: Selectors,
    /// In a request: abstract syntaxes of contents to propose, in addition to those in the contents type
    /// list. In an indication: the abstract syntaxes for which there is a presentation context.
    pub abstract_syntaxes: Vec<Oid>,
    /// The FPDU.
    pub request: InitializeRequest,
}

/// Requests and responses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// F-INITIALIZE request.
    Initialize(Box<Initialize>),
    /// Any other request or response with an FPDU. Only the machine sends F-P-ABORT.
    Pdu(Pdu),
    /// F-DATA request: one data element.
    Data(DataElement),
    /// F-CHECK request: sets a checkpoint after the data sent so far. Its number is one more than the last
    /// checkpoint's.
    Check,
    /// F-CHECK response: this checkpoint and all earlier ones are secured.
    CheckResponse {
        /// The checkpoint number.
        checkpoint: i64,
    },
}

/// Indications and confirms.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Indication {
    /// F-INITIALIZE indication.
    Initialize(Box<Initialize>),
    /// Any other indication or confirm with an FPDU. This includes the F-P-ABORT indication, which says that
    /// the peer's machine, this machine or the lower layers have ended the association.
    Pdu(Pdu),
    /// F-DATA indication: one data element, with its contents as received.
    Data(DataElement),
    /// F-CHECK indication.
    Check {
        /// The checkpoint number.
        checkpoint: i64,
    },
    /// F-CHECK confirm: the peer has secured this checkpoint and all earlier ones.
    CheckConfirm {
        /// The checkpoint number.
        checkpoint: i64,
    },
}

/// The information needed to resume a lost open regime (ISO 8571-4, error recovery protocol).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Docket {
    /// The activity identifier from F-OPEN; without one, recovery is not possible.
    pub activity: Option<i64>,
    /// The file, as named in the response to F-SELECT or F-CREATE.
    pub file: Option<SelectAttributes>,
    /// The requested actions.
    pub access: AccessRequest,
    /// The contents type.
    pub contents_type: ContentsType,
    /// The points from which a transfer can be recovered.
    pub recovery_mode: RecoveryMode,
    /// The number of the current or last bulk transfer, counted from 1 in each open regime; 0 before the
    /// first.
    pub bulk_transfer_number: i64,
    /// The transfer in progress, if any.
    pub transfer: Option<Transfer>,
}

/// A bulk transfer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transfer {
    /// The F-READ or F-WRITE request.
    pub request: Pdu,
    /// The last checkpoint sent or received; 0 is the beginning.
    pub checkpoint_last: i64,
    /// The last checkpoint that was answered, or from which both ends restarted.
    pub checkpoint_answered: i64,
}

/// The reason why a request is not allowed. The error is the caller's, and the request changes nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RequestError {
    /// The request is not allowed in this state or in this role.
    State,
    /// The request needs a functional unit or service class that was not negotiated.
    Unit,
    /// The request is not allowed at this point of a group, or is only allowed in a group.
    Group,
    /// A parameter does not match the values that were requested or negotiated.
    Value,
    /// The contents' abstract syntax has no presentation context.
    Context,
    /// The checkpoint does not exist, was already answered, or is beyond the window.
    Checkpoint,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RequestError::State => {
                "the request is not valid in this state: handle the pending indications first"
            }
            RequestError::Unit => {
                "the request needs a functional unit or service class that was not negotiated"
            }
            RequestError::Group => {
                "the request is not allowed at this point of a group, or only within a group"
            }
            RequestError::Value => "a parameter does not match the request or the negotiated values",
            RequestError::Context => "no presentation context was negotiated for contents of this type",
            RequestError::Checkpoint => {
                "the checkpoint is unknown or already acknowledged, or the window is full"
            }
        })
    }
}

impl core::error::Error for RequestError {}
