//! Random numbers from the operating system. No other module requests them.
//!
//! Purpose          keys of boards, NICs and endpoints that talk to real peers; tokens, nonces, salts and
//!                  names that must be unpredictable.
//! Source           getrandom(2) without flags: it blocks only early after boot, until the kernel has
//!                  gathered enough entropy.

use kiban_base::RngKey;
use rustix::io::Errno;
use std::io;

/// Returns unpredictable bytes.
///
/// # Errors
/// The system call failed, for example in a sandbox that forbids getrandom(2).
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

/// Returns a new random key for one board, NIC or endpoint.
///
/// # Errors
/// Same as for [`bytes`](fn@bytes).
pub fn key() -> io::Result<RngKey> {
    bytes().map(RngKey::from_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiban_base::SecureRng;

    #[test]
    fn random_bytes_and_keys_differ_each_time() {
        assert_ne!(bytes::<16>().expect("bytes"), bytes::<16>().expect("bytes"));
        let draw = || SecureRng::new(key().expect("a key")).draw();
        assert_ne!(draw(), draw());
    }
}
