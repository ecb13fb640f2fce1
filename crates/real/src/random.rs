//! Random numbers of the operating system: the only place that asks for them.
//!
//! Purpose   keys of boards, NICs and endpoints that meet the world; tokens, nonces, salts and names that nobody may guess.
//! Source    getrandom(2) without flags: it waits, once after the machine has started, until the kernel has gathered enough.

use kiban_ground::RngKey;
use rustix::io::Errno;
use std::io;

/// Returns bytes that nobody can guess.
///
/// # Errors
/// The system's: a sandbox that forbids getrandom(2).
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
pub fn bytes<const BYTES: usize>() -> io::Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    let mut filled = 0;
    while filled < BYTES {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(bytes)
}

/// Returns the key of one board, NIC or endpoint. Each has its own.
///
/// # Errors
/// As [`bytes`](fn@bytes).
pub fn key() -> io::Result<RngKey> {
    bytes().map(RngKey::from_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiban_ground::SecureRng;

    #[test]
    fn the_system_gives_other_bytes_and_keys_each_time() {
        assert_ne!(bytes::<16>().expect("bytes"), bytes::<16>().expect("bytes"));
        let draw = || SecureRng::new(key().expect("a key")).draw();
        assert_ne!(draw(), draw());
    }
}
