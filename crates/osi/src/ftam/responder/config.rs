//! Configuration of a responder.

use crate::wire::ftam::{AttributeGroups, BinaryParameters, Document, FunctionalUnits, QualityOfService};

/// Configuration of a responder: the services that it offers, and its limits.
#[derive(Clone, Debug)]
pub struct Config {
    /// The functional units.
    pub units: FunctionalUnits,
    /// The attribute groups to offer in addition to the kernel group.
    pub groups: AttributeGroups,
    /// The highest FTAM quality of service to offer.
    pub quality: QualityOfService,
    /// The document type for files without a stored contents type.
    pub document: Document,
    /// Maximum number of unanswered checkpoints.
    pub window: i64,
    /// Length of a data element in octets.
    pub fdata_bytes: usize,
    /// Octets of contents between checkpoints.
    pub checkpoint_bytes: u64,
    /// Maximum length of a received file in octets.
    pub file_bytes_max: u64,
    /// Maximum number of names in the listing of a directory.
    pub names_max: usize,
    /// Maximum number of dockets, that is, of recoverable transfers that are in progress or interrupted.
    pub dockets_max: usize,
    /// Maximum number of dockets of one user.
    pub user_dockets_max: usize,
    /// How long an interrupted transfer can be recovered, in seconds.
    pub docket_seconds_max: i64,
}

impl Default for Config {
    fn default() -> Config {
        use FunctionalUnits as U;
        Config {
            units: U::READ
                | U::WRITE
                | U::LIMITED_FILE_MANAGEMENT
                | U::ENHANCED_FILE_MANAGEMENT
                | U::GROUPING
                | U::RECOVERY
                | U::RESTART_DATA_TRANSFER,
            groups: AttributeGroups::STORAGE | AttributeGroups::SECURITY | AttributeGroups::PRIVATE,
            quality: QualityOfService::CLASS_3_RECOVERY,
            document: Document::UnstructuredBinary(BinaryParameters::NONE),
            window: 3,
            fdata_bytes: 16 * 1024,
            checkpoint_bytes: 4 * 1024 * 1024,
            file_bytes_max: 1 << 40,
            names_max: 65_536,
            dockets_max: 8000,
            user_dockets_max: 4096,
            docket_seconds_max: 7 * 24 * 3600,
        }
    }
}
