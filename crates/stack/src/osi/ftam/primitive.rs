//! The file service's primitives (ISO 8571-3).
//!
//! Shape     a primitive that has an FPDU is that FPDU: a request or response that goes down, or an indication or confirm
//!           that comes up, by [`Pdu`]'s variants. Data and checkpoints have none.
//! Groups    F-BEGIN-GROUP, the group's primitives and F-END-GROUP are asked for one by one, and indicated one by one.

use crate::osi::Selectors;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use kiban_wire::ber::Oid;
use kiban_wire::ftam::{
    AccessRequest, ContentsType, DataElement, InitializeRequest, Pdu, RecoveryMode, SelectAttributes,
};

/// Which end of the association.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// Asks for files.
    Initiator,
    /// Has files.
    Responder,
}

/// F-INITIALIZE request and indication: with the addresses, which are the association's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Initialize {
    /// Who calls.
    pub calling: Selectors,
    /// Who is called.
    pub called: Selectors,
    /// Abstract syntaxes of contents that are wanted beside those of the contents type list; as indication: those that the
    /// association has.
    pub abstract_syntaxes: Vec<Oid>,
    /// The FPDU.
    pub request: InitializeRequest,
}

/// Requests and responses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// F-INITIALIZE request.
    Initialize(Box<Initialize>),
    /// Any other that has an FPDU. F-P-ABORT is the machine's own.
    Pdu(Pdu),
    /// F-DATA request: one data element.
    Data(DataElement),
    /// F-CHECK request: a checkpoint behind what has been sent. Its number is one above the last.
    Check,
    /// F-CHECK response: this checkpoint and all before it are secured.
    CheckResponse {
        /// The checkpoint.
        checkpoint: i64,
    },
}

/// Indications and confirms.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Indication {
    /// F-INITIALIZE indication.
    Initialize(Box<Initialize>),
    /// Any other that has an FPDU, and F-P-ABORT indication: the peer's machine, ours or the services below ended it.
    Pdu(Pdu),
    /// F-DATA indication: one data element, contents as they came.
    Data(DataElement),
    /// F-CHECK indication.
    Check {
        /// The checkpoint.
        checkpoint: i64,
    },
    /// F-CHECK confirm: the peer has secured this checkpoint and all before it.
    CheckConfirm {
        /// The checkpoint.
        checkpoint: i64,
    },
}

/// What must be known to go on with an open regime that was lost (ISO 8571-4, error recovery protocol).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Docket {
    /// The activity that F-OPEN gave a name; without one there is no recovery.
    pub activity: Option<i64>,
    /// The file, as F-SELECT or F-CREATE was answered.
    pub file: Option<SelectAttributes>,
    /// The actions that were asked for.
    pub access: AccessRequest,
    /// What the contents are.
    pub contents_type: ContentsType,
    /// From where a transfer can be recovered.
    pub recovery_mode: RecoveryMode,
    /// The bulk transfer that is, or was last: they are counted from 1 in an open regime. 0: there was none.
    pub bulk_transfer_number: i64,
    /// The transfer, unless it has ended.
    pub transfer: Option<Transfer>,
}

/// A bulk transfer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transfer {
    /// The F-READ or F-WRITE request.
    pub request: Pdu,
    /// The last checkpoint that was sent or came; 0 is the beginning.
    pub checkpoint_last: i64,
    /// The last that was answered, or that both have gone back to.
    pub checkpoint_answered: i64,
}

/// A request that cannot be: the caller's fault, and nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Misuse {
    /// Not in this state, or not by this end.
    State,
    /// A functional unit or service class that was not negotiated.
    Unit,
    /// Not at this place of a group, or it must be in one.
    Group,
    /// A parameter that does not fit with what was asked or negotiated.
    Value,
    /// The contents' abstract syntax has no presentation context.
    Context,
    /// A checkpoint that is not there or already answered, or more than the window has room for.
    Checkpoint,
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Misuse::State => "the file service is in no state for this: look at the indications first",
            Misuse::Unit => "this needs a functional unit or a service class that was not negotiated",
            Misuse::Group => "this cannot stand here in a group, or must stand in one",
            Misuse::Value => "a parameter does not fit with what was asked or negotiated",
            Misuse::Context => "there is no presentation context for contents of this type",
            Misuse::Checkpoint => "the checkpoint is unknown or answered, or the window is full",
        })
    }
}

impl core::error::Error for Misuse {}
