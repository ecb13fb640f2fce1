//! Limits of a users file.

/// Maximum number of users in a file.
pub const USERS_MAX: usize = 10_000;
/// Maximum length of a users file in bytes.
pub const FILE_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Maximum length of a password in bytes. A longer one would not slow the verification, but needs more
/// memory.
pub const PASSWORD_BYTES_MAX: usize = 256;
/// Maximum length of a user name in bytes.
pub const NAME_BYTES_MAX: usize = 64;
/// Maximum memory that verifying one password may take, in KiB.
pub const MEMORY_KIB_MAX: u32 = 256 * 1024;
/// Maximum number of passes over that memory.
pub const PASSES_MAX: u32 = 16;
