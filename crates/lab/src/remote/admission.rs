//! Access control: the token, and the addresses that may connect.
//!
//! Token     128 random bits unless the operator supplies one; compared in constant time. Neither the token
//!           nor a failed attempt is ever logged.
//! Addresses  a list of networks; an empty list admits every address. IPv4-mapped IPv6 addresses count as
//!           IPv4.

use ipnet::{IpNet, Ipv4Net};
use kiban_os::random;
use sha2::{Digest, Sha256};
use std::fmt;
use std::io;
use std::net::IpAddr;
use subtle::ConstantTimeEq;

/// The minimum length of a token that is read from a file, bytes.
const TOKEN_BYTES_MIN: usize = 16;

/// The secret that a client must know. Its `Debug` output does not show it.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// Generates a random token.
    ///
    /// # Errors
    /// The system cannot provide random numbers.
    pub fn random() -> io::Result<Token> {
        Ok(Token(hex(&random::bytes::<16>()?)))
    }

    /// Reads a token from the first line of a text.
    ///
    /// # Errors
    /// Returns a message with the remedy if the token is too short.
    pub fn of_text(text: &str) -> Result<Token, String> {
        let token = text.lines().next().unwrap_or_default().trim();
        if token.len() < TOKEN_BYTES_MIN {
            return Err(format!(
                "a token has at least {TOKEN_BYTES_MIN} characters; `openssl rand -hex 16` makes one"
            ));
        }
        Ok(Token(token.to_owned()))
    }

    /// Returns the secret, to be shown once to an authorised user, or to be sent.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Returns whether `said` is the token.
    pub fn is(&self, said: &str) -> bool {
        is_same(self.0.as_bytes(), said.as_bytes())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Compares two secrets in constant time.
pub fn is_same(one: &[u8], other: &[u8]) -> bool {
    // Compare digests, because a comparison of the slices would reveal by its duration whether the lengths
    // differ.
    Sha256::digest(one).ct_eq(&Sha256::digest(other)).into()
}

/// Formats octets as hexadecimal digits.
pub fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

/// Returns whether an address may connect.
pub fn may_connect(allowed: &[IpNet], address: IpAddr) -> bool {
    let address = address.to_canonical();
    allowed.is_empty() || allowed.iter().any(|network| network.contains(&address))
}

/// Parses a network or a single address.
///
/// # Errors
/// Returns a message if the text is neither.
pub fn network(text: &str) -> Result<IpNet, String> {
    let net = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    net.map(|net| match net {
        // IPv4-mapped addresses are compared as IPv4 (RFC 4291 §2.5.5.2).
        IpNet::V6(six) if six.prefix_len() >= 96 => match six.addr().to_ipv4_mapped() {
            Some(four) => Ipv4Net::new(four, six.prefix_len() - 96).map_or(net, IpNet::V4),
            None => net,
        },
        other => other,
    })
    .map_err(|_| {
        format!("'{text}' is not a network or an address: write for example 192.0.2.0/24 or 2001:db8::7")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_token_matches_and_debug_hides_it() {
        let token = Token::random().expect("random bytes");
        assert!(token.is(token.reveal()) && token.reveal().len() == 32);
        for said in ["", &token.reveal()[1..], &format!("{}0", token.reveal())] {
            assert!(!token.is(said), "{said}");
        }
        assert!(!format!("{token:?}").contains(token.reveal()));
        assert!(Token::of_text("0123456789abcdef\nnot this\n").expect("long enough").is("0123456789abcdef"));
        assert!(Token::of_text("short\n0123456789abcdef").is_err());
    }

    #[test]
    fn addresses_are_admitted_by_network() {
        let allowed: Vec<IpNet> = ["192.0.2.0/24", "2001:db8::/32", "198.51.100.7", "::ffff:203.0.113.0/120"]
            .iter()
            .map(|text| network(text).expect("a network"))
            .collect();
        for (address, expected) in [
            ("192.0.2.200", true),
            ("::ffff:192.0.2.1", true),
            ("192.0.3.1", false),
            ("198.51.100.7", true),
            ("198.51.100.8", false),
            ("2001:db8:1::1", true),
            ("2001:db9::1", false),
            ("203.0.113.9", true),
            ("203.0.114.9", false),
        ] {
            let address = address.parse().expect("an address");
            assert_eq!(may_connect(&allowed, address), expected, "{address}");
            assert!(may_connect(&[], address));
        }
        assert!(network("192.0.2.0/40").is_err() && network("host").is_err());
    }
}
