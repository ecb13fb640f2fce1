//! Settings of a directory disk.

/// Maximum number of files that one disk has open at a time.
pub const OPEN_MAX: usize = 64;
/// Default maximum number of unfinished contents in one directory.
pub const LEFT_MAX: usize = 4096;
/// Maximum number of records.
pub const RECORDS_MAX: usize = 8192;

/// When data must be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability {
    /// Never sync. This is fastest, but acknowledged files may be lost if the host crashes.
    Never,
    /// Sync before confirming the end of a transfer.
    #[default]
    AtEnd,
    /// Sync before confirming a checkpoint, too, so that a transfer can be resumed after the host crashes.
    AtCheckpoints,
}

/// Settings of a disk.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// When data must be durable.
    pub durability: Durability,
    /// Whether the entry of a finished file in its directory is made durable together with its contents. If
    /// not, the caller syncs the directory, once for many files.
    pub syncs_names: bool,
    /// How long unfinished contents are kept so that they can be resumed, in seconds.
    pub left_seconds_max: u64,
    /// Maximum number of unfinished contents in one directory. They are counted once a second, so that
    /// associations that create files at the same moment can exceed it.
    pub left_max: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            durability: Durability::default(),
            syncs_names: true,
            left_seconds_max: 7 * 24 * 3600,
            left_max: LEFT_MAX,
        }
    }
}
