//! FTAM: access to remote files over an association (ISO 8571).
//!
//! Purpose   provides the file service of ISO 8571-3 through the file protocol of ISO 8571-4, for the
//!           initiator, which requests files, and the responder, which stores them.
//!
//! ```text
//!   regime of     begun by            ended by               within it
//!   FTAM          F-INITIALIZE        F-TERMINATE            -
//!   selection     F-SELECT, F-CREATE  F-DESELECT, F-DELETE   F-READ-ATTRIB, F-CHANGE-ATTRIB
//!   open          F-OPEN, F-RECOVER   F-CLOSE                F-LOCATE, F-ERASE
//!   transfer      F-READ, F-WRITE     F-TRANSFER-END,        F-DATA, F-DATA-END, F-CHECK, F-RESTART
//!                                     F-CANCEL
//! ```
//!
//! Machine   [`Machine`] runs one association in either role: it keeps the state and handles groups. It
//!           stores no files and uses no disk.
//! Above     [`Request`] and [`Indication`] are the service's primitives; those that correspond to an FPDU
//!           contain its wire format struct.
//! Below     [`below`] contains the ACSE and presentation primitives that the machine uses.
//! Recovery  a [`Docket`] contains the information needed to resume a transfer after the association is lost.
//!           The user of the machine stores it, and requests F-RECOVER.

mod attributes;
#[cfg(test)]
mod back_to_back;
pub mod below;
mod contents;
pub mod filestore;
pub mod initiator;
mod machine;
mod primitive;
mod record;
pub mod responder;

pub use machine::{
    Config, Counters, FPDUS_MAX, GROUP_MAX, Item, Machine, State, Verdict, WINDOW_MAX, verdict,
};
pub use primitive::{Docket, Indication, Initialize, Request, RequestError, Role, Transfer};

use crate::wire::ber::Oid;
use crate::wire::ftam::oids;

/// The abstract syntaxes of all supported document types' contents; presentation contexts are proposed or
/// accepted for them.
pub const ABSTRACT_SYNTAXES: [Oid; 5] = [
    oids::UNSTRUCTURED_BINARY,
    oids::UNSTRUCTURED_TEXT,
    oids::FADU,
    oids::NBS_DIRECTORY_ENTRY,
    oids::NBS_DIRECTORY_ENTRY_OLD,
];
