//! Limits of a users file.

/// Maximum number of users in a file.
pub const USERS_MAX: usize = 10_000;
/// Maximum length of a users file in bytes.
pub const FILE_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Maximum length of a password in bytes. A longer password would not slow down the verification, but would
/// need more memory.
pub const PASSWORD_BYTES_MAX: usize = 256;
/// Maximum length of a user name in bytes.
pub const NAME_BYTES_MAX: usize = 64;
/// Maximum memory in KiB that the verification of one password may use.
pub const MEMORY_KIB_MAX: u32 = 256 * 1024;
/// Maximum number of passes over that memory in one verification.
pub const PASSES_MAX: u32 = 16;
