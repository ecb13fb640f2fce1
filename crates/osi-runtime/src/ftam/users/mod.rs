//! Users of a filestore: a TOML file with names, hashed passwords, rights and home directories.
//!
//! ```toml
//! [users.collector]
//! password = "$argon2id$v=19$m=19456,t=2,p=1$…"     # written by `kiban ftam passwd`
//! rights = ["read", "read-attribute", "delete"]     # or "all"
//! home = "calls/today"                              # below the filestore's root; the root if missing
//! accounts = ["billing"]                            # if missing, any account or none is accepted
//! ```
//!
//! Purpose          stealing the file does not reveal the passwords; a remote attacker learns neither which
//!                  users exist nor, in reasonable time, their passwords.
//! Hashes           Argon2id (RFC 9106), compared in constant time. Checking an unknown name takes as long as
//!                  checking a known one, because a hash that no password matches is verified instead.
//! Delays           [`Attempts`] computes the delays after failures, per user and per address.
//!                  [`AuthService`](super::authentication::AuthService) combines all of this for a responder.
//! Errors           each error states the file, the line, the key, and what to write there.
//! Limits           [`USERS_MAX`], [`FILE_BYTES_MAX`], [`PASSWORD_BYTES_MAX`], [`MEMORY_KIB_MAX`],
//!                  [`PASSES_MAX`].
//! Not implemented  groups of users; passwords for individual files.

mod accounts;
mod attempts;
mod file;
mod hash;
mod limits;
#[cfg(test)]
mod tests;

pub use accounts::Users;
pub use attempts::{Attempts, BackoffConfig};
pub use file::{Grants, UsersError, set_user, write_user};
pub use hash::{Memory, hash};
pub use limits::{FILE_BYTES_MAX, MEMORY_KIB_MAX, NAME_BYTES_MAX, PASSES_MAX, PASSWORD_BYTES_MAX, USERS_MAX};
