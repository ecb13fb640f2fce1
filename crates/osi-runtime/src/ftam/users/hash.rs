//! Hashes of passwords (Argon2id).

use super::limits::PASSWORD_BYTES_MAX;
use argon2::password_hash::phc::{Output, PasswordHash};
use argon2::{Algorithm, Argon2, Block, Params, PasswordHasher, Version};
use kiban_os::random;
use std::io;

/// Working memory for password verification, which takes many MiB. It is kept, not freed each time, because
/// the allocator would cache such a block for every thread.
#[derive(Debug, Default)]
pub struct Memory(Vec<Block>);

impl Memory {
    /// Reserves the memory for verifying this hash. Returns false if it is not available, so that an
    /// unauthenticated login cannot crash the process.
    pub(super) fn is_enough(&mut self, hash: &PasswordHash) -> bool {
        let blocks = Params::try_from(hash).map_or(0, |params| params.block_count());
        let more = blocks.saturating_sub(self.0.len());
        self.0.try_reserve_exact(more).is_ok()
    }

    /// Returns whether a password matches a hash, comparing in constant time.
    pub(super) fn fits(&mut self, password: &[u8], hash: &PasswordHash) -> bool {
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

pub(super) fn hash_with(password: &[u8], params: Params) -> io::Result<String> {
    if password.is_empty() || password.len() > PASSWORD_BYTES_MAX {
        let message = format!("a password must be 1 to {PASSWORD_BYTES_MAX} bytes long");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let salt: [u8; 16] = random::bytes()?;
    let hash = hasher(params).hash_password_with_salt(password, &salt);
    Ok(hash.map_err(|error| io::Error::other(error.to_string()))?.to_string())
}

fn hasher(params: Params) -> Argon2<'static> {
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
}
