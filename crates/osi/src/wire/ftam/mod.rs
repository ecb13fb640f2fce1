//! FTAM: FPDUs, and the contents of files in transfer (ISO 8571-4; attributes and contents: ISO 8571-2).
//!
//! Purpose          represents every FPDU of the file protocol as a struct of typed parameters, and handles a
//!                  file's contents without copying.
//! FPDUs            [`Pdu`]: the FTAM regime (`regime`), file selection and file open (`file`), data transfer
//!                  (`bulk`); parameters common to many of them are in `common`, a file's attributes in
//!                  `attributes`.
//! Contents         data elements are in separate presentation contexts: `contents`. Their meaning depends on
//!                  the document type: `documents`.
//! Numbers          error identifiers with the standard's wording: [`ErrorIdentifier`]. Object identifiers:
//!                  [`oids`].
//! Decoding         decoding is as tolerant as in [`crate::wire::ber`]: fields of later amendments are
//!                  skipped or kept, dates are kept as received, unassigned bits are ignored.
//! Editions         the first (1988), with the fields that the amendments on overlapped access and filestore
//!                  management add to its FPDUs. All of these are optional, even those that an amendment made
//!                  mandatory (F-CANCEL's request type, F-RESTART's transfer number), because the first
//!                  edition lacks them.
//! Not implemented  the FPDUs that only filestore management has (tags 41 to 72).

pub mod attributes;
pub mod bulk;
pub mod common;
pub mod contents;
mod diagnostics;
pub mod documents;
pub mod file;
pub mod oids;
mod pdu;
pub mod regime;

pub use attributes::*;
pub use bulk::*;
pub use common::*;
pub use contents::{DataElement, DirectoryEntry, NodeDescriptor, NodeName, Structuring};
pub use diagnostics::ErrorIdentifier;
pub use documents::{BinaryParameters, DirectoryParameters, Document, StringSignificance, TextParameters};
pub use file::*;
pub use pdu::{Kind, Pdu};
pub use regime::*;
