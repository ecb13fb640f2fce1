//! Configuration of an initiator.

use crate::Selectors;
use crate::wire::ftam::{AttributeGroups, FunctionalUnits, QualityOfService, ServiceClass};
use alloc::string::String;

/// Configuration of an initiator.
#[derive(Clone, Debug)]
pub struct Config {
    /// The calling selectors.
    pub calling: Selectors,
    /// The called selectors.
    pub called: Selectors,
    /// The initiator identity.
    pub user: Option<String>,
    /// The account to charge.
    pub account: Option<String>,
    /// The filestore password.
    pub password: Option<String>,
    /// The service classes to propose.
    pub classes: ServiceClass,
    /// The functional units to propose.
    pub units: FunctionalUnits,
    /// The attribute groups to propose in addition to the kernel group.
    pub groups: AttributeGroups,
    /// The FTAM quality of service to propose. If it is 0, no transfer can be recovered.
    pub quality: QualityOfService,
    /// Maximum number of unanswered checkpoints.
    pub window: i64,
    /// Length of a data element in octets.
    pub fdata_bytes: usize,
    /// Octets between checkpoints.
    pub checkpoint_bytes: u64,
    /// Maximum number of entries in a directory listing.
    pub entries_max: usize,
    /// The identifier of the first activity; `Initiator::set_activity` can change it. Recoverable
    /// activities must have different identifiers.
    pub activity: i64,
}

impl Default for Config {
    fn default() -> Config {
        use FunctionalUnits as U;
        Config {
            calling: Selectors::default(),
            called: Selectors::default(),
            user: None,
            account: None,
            password: None,
            classes: ServiceClass::TRANSFER
                | ServiceClass::MANAGEMENT
                | ServiceClass::TRANSFER_AND_MANAGEMENT,
            units: U::READ
                | U::WRITE
                | U::LIMITED_FILE_MANAGEMENT
                | U::ENHANCED_FILE_MANAGEMENT
                | U::GROUPING
                | U::RECOVERY
                | U::RESTART_DATA_TRANSFER,
            groups: AttributeGroups::STORAGE | AttributeGroups::SECURITY,
            quality: QualityOfService::CLASS_1_RECOVERY,
            window: 3,
            fdata_bytes: 16 * 1024,
            checkpoint_bytes: 4 * 1024 * 1024,
            entries_max: 65_536,
            activity: 1,
        }
    }
}
