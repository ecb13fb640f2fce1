//! Object identifiers of FTAM (ISO 8571; NBS-9 is defined in the agreements of the OIW).

use crate::wire::ber::Oid;

/// The application context of an FTAM association (ISO 8571-4).
pub const APPLICATION_CONTEXT: Oid = Oid::of("1.0.8571.1.1");

/// The abstract syntax of FPDUs: "FTAM PCI".
pub const PCI: Oid = Oid::of("1.0.8571.2.1");
/// The abstract syntax of structuring data elements, "FTAM FADU" (ISO 8571-2).
pub const FADU: Oid = Oid::of("1.0.8571.2.2");
/// The abstract syntax of data elements of FTAM-1 and FTAM-2.
pub const UNSTRUCTURED_TEXT: Oid = Oid::of("1.0.8571.2.3");
/// The abstract syntax of data elements of FTAM-3.
pub const UNSTRUCTURED_BINARY: Oid = Oid::of("1.0.8571.2.4");
/// The abstract syntax of directory entries in NBS-9.
pub const NBS_DIRECTORY_ENTRY: Oid = Oid::of("1.3.14.5.2.2");
/// The older identifier of the same abstract syntax, used before the OIW had a number; old systems propose
/// both.
pub const NBS_DIRECTORY_ENTRY_OLD: Oid = Oid::of("1.3.9999.1.2.2");

/// The hierarchical file model (ISO 8571-2).
pub const HIERARCHICAL_MODEL: Oid = Oid::of("1.0.8571.3.1");
/// The constraint set of files without structure.
pub const UNSTRUCTURED_CONSTRAINTS: Oid = Oid::of("1.0.8571.4.1");
/// The constraint set of flat, sequential files.
pub const SEQUENTIAL_FLAT_CONSTRAINTS: Oid = Oid::of("1.0.8571.4.2");

/// FTAM-1: unstructured text.
pub const FTAM_1: Oid = Oid::of("1.0.8571.5.1");
/// FTAM-2: sequential text.
pub const FTAM_2: Oid = Oid::of("1.0.8571.5.2");
/// FTAM-3: unstructured binary.
pub const FTAM_3: Oid = Oid::of("1.0.8571.5.3");
/// NBS-9: a file directory.
pub const NBS_9: Oid = Oid::of("1.3.14.5.5.9");
/// The older identifier of NBS-9, used before the OIW had a number.
pub const NBS_9_OLD: Oid = Oid::of("1.3.9999.1.5.9");
