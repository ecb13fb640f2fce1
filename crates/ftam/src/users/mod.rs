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
//! Hashes           Argon2id (RFC 9106), compared in constant time. An unknown name takes as long as a known
//!                  one, because a hash that no password fits is verified instead.
//! Delays           after failures, per user and per address: [`Attempts`];
//!                  [`AuthService`](super::authentication::AuthService) combines all of this for a responder.
//! Errors           state the file, the line, the key, and what to write there.
//! Limits           [`USERS_MAX`], [`FILE_BYTES_MAX`], [`PASSWORD_BYTES_MAX`], [`MEMORY_KIB_MAX`],
//!                  [`PASSES_MAX`].
//! Not implemented  groups of users; passwords of single files.

mod attempts;
mod file;
#[cfg(test)]
mod tests;

pub use attempts::{Attempts, BackoffConfig};
pub use file::{UsersError, set_password, write_password};

use argon2::password_hash::phc::{Output, PasswordHash};
use argon2::{Algorithm, Argon2, Block, Params, PasswordHasher, Version};
use kiban_os::random;
use kiban_osi::ftam::filestore::{Actions, Admission, AuthRefusal, Credentials, Path};
use std::collections::BTreeMap;
use std::io;

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

/// The users of a filestore.
#[derive(Clone, Debug)]
pub struct Users {
    users: BTreeMap<String, User>,
    /// The hash that is verified for an unknown name.
    nobody: PasswordHash,
}

#[derive(Clone, Debug)]
struct User {
    password: PasswordHash,
    rights: Actions,
    home: Path,
    accounts: Option<Vec<String>>,
}

/// A hash that no known password has, because salt and output are zeros.
const NOBODY: &str =
    "$argon2id$v=19$m=8,t=1,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

impl Users {
    /// Returns the number of users.
    pub fn count(&self) -> usize {
        self.users.len()
    }

    /// Verifies a user's password and account. Takes the time of a password verification even if the user is
    /// unknown, so call it on a thread that may block.
    ///
    /// # Errors
    /// Why the user is refused.
    pub fn verify(&self, credentials: &Credentials) -> Result<Admission, AuthRefusal> {
        self.verify_in(credentials, &mut Memory::default())
    }

    /// As [`Users::verify`], using the caller's memory.
    ///
    /// # Errors
    /// Why the user is refused.
    pub fn verify_in(
        &self,
        credentials: &Credentials,
        memory: &mut Memory,
    ) -> Result<Admission, AuthRefusal> {
        let name = credentials.user.as_deref().unwrap_or_default();
        let password = credentials.password.as_deref().unwrap_or_default();
        let user = self.users.get(name);
        let hash = user.map_or(&self.nobody, |user| &user.password);
        let limited = &password[..password.len().min(PASSWORD_BYTES_MAX)];
        if !memory.is_enough(hash) {
            return Err(AuthRefusal::Later);
        }
        let fits = memory.fits(limited, hash);
        let Some(user) = user.filter(|_| fits && limited.len() == password.len()) else {
            return Err(AuthRefusal::Password);
        };
        if let Some(accounts) = &user.accounts
            && !credentials.account.as_ref().is_some_and(|account| accounts.contains(account))
        {
            return Err(AuthRefusal::Account);
        }
        Ok(Admission { user: name.into(), rights: user.rights, home: user.home.clone() })
    }

    fn new(users: BTreeMap<String, User>) -> Users {
        // The dummy hash costs as much as the most expensive user's hash, so that unknown names do not fail
        // faster.
        let cost = |hash: &PasswordHash| Params::try_from(hash).ok();
        let dearest = users.values().filter_map(|user| cost(&user.password));
        let dearest = dearest.max_by_key(|params| u64::from(params.m_cost()) * u64::from(params.t_cost()));
        let mut nobody = PasswordHash::new(NOBODY).expect("a valid hash");
        let params = dearest.unwrap_or_default();
        nobody.params = (&params).try_into().expect("parameters can be written");
        Users { users, nobody }
    }
}

/// Working memory for password verification, many MiB. It is kept instead of freed each time, because an
/// allocator would cache such a block per thread.
#[derive(Debug, Default)]
pub struct Memory(Vec<Block>);

impl Memory {
    /// Reserves the memory for verifying this hash; returns false if it is not available, so that an
    /// unauthenticated login cannot end the process.
    fn is_enough(&mut self, hash: &PasswordHash) -> bool {
        let blocks = Params::try_from(hash).map_or(0, |params| params.block_count());
        let more = blocks.saturating_sub(self.0.len());
        self.0.try_reserve_exact(more).is_ok()
    }

    /// Returns whether a password matches a hash, comparing in constant time.
    fn fits(&mut self, password: &[u8], hash: &PasswordHash) -> bool {
        let (Some(salt), Some(expected)) = (&hash.salt, &hash.hash) else { return false };
        let (Ok(algorithm), Ok(params)) =
            (Algorithm::try_from(hash.algorithm.as_str()), Params::try_from(hash))
        else {
            return false;
        };
        let Ok(version) = hash.version.map(Version::try_from).transpose() else { return false };
        let blocks = params.block_count();
        if self.0.len() < blocks {
            self.0.resize(blocks, Block::new());
        }
        let mut output = [0; Output::MAX_LENGTH];
        let output = &mut output[..expected.len()];
        let argon2 = Argon2::new(algorithm, version.unwrap_or_default(), params);
        let done = argon2.hash_password_into_with_memory(password, salt, output, &mut self.0[..blocks]);
        done.is_ok() && Output::new(output).is_ok_and(|computed| computed == *expected)
    }
}

/// Hashes a password and returns the form that is written to the file.
///
/// # Errors
/// The password is too long, or the system provides no random numbers.
pub fn hash(password: &[u8]) -> io::Result<String> {
    hash_with(password, Params::default())
}

fn hash_with(password: &[u8], params: Params) -> io::Result<String> {
    if password.is_empty() || password.len() > PASSWORD_BYTES_MAX {
        let message = format!("a password has 1 to {PASSWORD_BYTES_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let salt: [u8; 16] = random::bytes()?;
    let hash = hasher(params).hash_password_with_salt(password, &salt);
    Ok(hash.map_err(|error| io::Error::other(error.to_string()))?.to_string())
}

fn hasher(params: Params) -> Argon2<'static> {
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
}
