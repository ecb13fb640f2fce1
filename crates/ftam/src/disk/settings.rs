//! Settings of a directory disk.

/// Maximum number of files that one disk has open at a time.
pub const OPEN_MAX: usize = 64;
/// Default maximum number of unfinished contents in one directory.
pub const LEFT_MAX: usize = 4096;
/// Maximum number of records.
pub const RECORDS_MAX: usize = 8192;

/// When data must have reached the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability {
    /// No sync. Fastest, but a crash of the host may lose files that were acknowledged.
    Never,
    /// Sync before the end of a transfer is confirmed.
    #[default]
    AtEnd,
    /// Sync before a checkpoint is confirmed, too: a transfer can be resumed after a crash of the host.
    AtCheckpoints,
}

/// Settings of a disk.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// When data must have reached the disk.
    pub durability: Durability,
    /// Seconds for which unfinished contents are kept so that they can be resumed.
    pub left_seconds_max: u64,
    /// Maximum number of unfinished contents in one directory.
    pub left_max: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { durability: Durability::default(), left_seconds_max: 7 * 24 * 3600, left_max: LEFT_MAX }
    }
}
