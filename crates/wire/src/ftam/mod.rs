//! FTAM: files of others, and what of them is transferred (ISO 8571-4; attributes and contents: ISO 8571-2).
//!
//! Goal      every FPDU of the file protocol as a struct of typed parameters, and a file's contents without a copy.
//! FPDUs     [`Pdu`]: the FTAM regime (`regime`), file selection and file open (`file`), data transfer (`bulk`); parameters
//!           that many of them have are in `common`, a file's attributes in `attributes`.
//! Contents  data elements stand in presentation contexts of their own: `contents`. What they mean is the document type's:
//!           `documents`.
//! Numbers   of what can go wrong, with the standard's words: [`ErrorIdentifier`]. Object identifiers: [`oids`].
//! Up        liberal, as [`crate::ber`] is: fields of later amendments are passed over or kept, dates are kept as they came,
//!           unused bits of named bits say nothing.
//! Editions  the first (1988) with what the amendments on overlapped access and filestore management add to its FPDUs, all of
//!           it optional; where an amendment made a field mandatory that the first edition has not (F-CANCEL's request type,
//!           F-RESTART's transfer number), it is optional here.
//! Left out  the FPDUs of filestore management alone (tags 41 to 72).

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
