//! FTAM: files of others, over an association of two (ISO 8571).
//!
//! Goal      the file service of ISO 8571-3 by the file protocol of ISO 8571-4, for whoever asks (the initiator) and whoever
//!           has the files (the responder).
//!
//! ```text
//!   regime of     begun by            ended by               within it
//!   FTAM          F-INITIALIZE        F-TERMINATE            -
//!   selection     F-SELECT, F-CREATE  F-DESELECT, F-DELETE   F-READ-ATTRIB, F-CHANGE-ATTRIB
//!   open          F-OPEN, F-RECOVER   F-CLOSE                F-LOCATE, F-ERASE
//!   transfer      F-READ, F-WRITE     F-TRANSFER-END         F-DATA, F-DATA-END, F-CHECK, F-RESTART; F-CANCEL ends it
//! ```
//!
//! Machine   [`Machine`]: one association, either role, in states and groups; keeps no file and knows no disk.
//! Above     [`Request`] and [`Indication`]: the service's primitives; those that are FPDUs carry the wire's structs.
//! Below     [`below`]: what the machine asks of ACSE and presentation, no more of them than files need.
//! Recovery  a [`Docket`] says what must be known to go on with a transfer after the association is lost. Whoever uses the
//!           machine keeps it, and asks for F-RECOVER.

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
    Config, Counters, FPDUS_MAX, GROUP_MAX, Machine, Sends, State, Verdict, WINDOW_MAX, verdict,
};
pub use primitive::{Docket, Indication, Initialize, Misuse, Request, Role, Transfer};

use kiban_wire::ber::Oid;
use kiban_wire::ftam::oids;

/// What the contents of all document types are encoded in: what an end has contexts for.
pub const ABSTRACT_SYNTAXES: [Oid; 5] = [
    oids::UNSTRUCTURED_BINARY,
    oids::UNSTRUCTURED_TEXT,
    oids::FADU,
    oids::NBS_DIRECTORY_ENTRY,
    oids::NBS_DIRECTORY_ENTRY_OLD,
];
