//! Object identifiers (X.690 §8.19).

use core::{fmt, str::FromStr};

use kiban_base::Malformed;

/// Maximum length of an encoded object identifier in octets.
pub const OID_BYTES_MAX: usize = 39;

/// An object identifier in its encoded form. It is comparable, and needs no heap memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Oid {
    octets: [u8; OID_BYTES_MAX],
    length: u8,
}

/// The reason why a text is not a valid object identifier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum OidError {
    /// The text does not consist of at least two numbers of up to 64 bits, separated by dots.
    Notation,
    /// The first number is above 2, or it is 0 or 1 and the second number is above 39.
    Root,
    /// The encoding has more than [`OID_BYTES_MAX`] octets.
    Length,
}

impl OidError {
    const fn text(self) -> &'static str {
        match self {
            OidError::Notation => {
                "write an object identifier as numbers separated by dots, such as 1.0.8571.1.1"
            }
            OidError::Root => {
                "an object identifier starts with 0, 1 or 2; after 0 or 1 the second number is at most 39"
            }
            OidError::Length => "the object identifier is too long",
        }
    }
}

impl fmt::Display for OidError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl core::error::Error for OidError {}

impl Oid {
    /// Parses an object identifier at compile time.
    ///
    /// # Panics
    /// If the text is not a valid object identifier.
    pub const fn of(text: &str) -> Oid {
        match Oid::parse(text) {
            Ok(oid) => oid,
            Err(error) => panic!("{}", error.text()),
        }
    }

    /// Parses a text such as `1.0.8571.1.1`.
    ///
    /// # Errors
    /// [`OidError`].
    pub const fn parse(text: &str) -> Result<Oid, OidError> {
        let text = text.as_bytes();
        let mut oid = Oid { octets: [0; OID_BYTES_MAX], length: 0 };
        let (mut at, mut arcs, mut root) = (0, 0, 0);
        while at <= text.len() {
            let begin = at;
            let mut arc: u64 = 0;
            while at < text.len() && text[at] != b'.' {
                if !text[at].is_ascii_digit() {
                    return Err(OidError::Notation);
                }
                arc = match arc.checked_mul(10) {
                    Some(tens) => match tens.checked_add((text[at] - b'0') as u64) {
                        Some(arc) => arc,
                        None => return Err(OidError::Notation),
                    },
                    None => return Err(OidError::Notation),
                };
                at += 1;
            }
            if at == begin {
                return Err(OidError::Notation);
            }
            match arcs {
                0 if arc > 2 => return Err(OidError::Root),
                0 => root = arc,
                1 if root < 2 && arc > 39 => return Err(OidError::Root),
                // §8.19.4: the first two numbers share one subidentifier.
                1 if arc > u64::MAX - 80 => return Err(OidError::Notation),
                1 => {
                    if let Err(error) = oid.push(root * 40 + arc) {
                        return Err(error);
                    }
                }
                _ => {
                    if let Err(error) = oid.push(arc) {
                        return Err(error);
                    }
                }
            }
            arcs += 1;
            at += 1;
        }
        if arcs < 2 { Err(OidError::Notation) } else { Ok(oid) }
    }

    const fn push(&mut self, arc: u64) -> Result<(), OidError> {
        let mut count = 1;
        while count < 10 && arc >> (7 * count) != 0 {
            count += 1;
        }
        while count > 0 {
            count -= 1;
            if self.length as usize == OID_BYTES_MAX {
                return Err(OidError::Length);
            }
            let more = if count > 0 { 0x80 } else { 0 };
            self.octets[self.length as usize] = (arc >> (7 * count)) as u8 & 0x7f | more;
            self.length += 1;
        }
        Ok(())
    }

    /// Decodes the contents octets of an element.
    ///
    /// # Errors
    /// `ElementValue` if the contents are empty, end within a number, contain a number with leading zeros or
    /// of more than 126 bits, or are longer than [`OID_BYTES_MAX`].
    pub fn from_contents(contents: &[u8]) -> Result<Oid, Malformed> {
        let mut octets = [0; OID_BYTES_MAX];
        let room = octets.get_mut(..contents.len()).ok_or(Malformed::ElementValue)?;
        room.copy_from_slice(contents);
        if contents.last().is_none_or(|last| last & 0x80 != 0) {
            return Err(Malformed::ElementValue);
        }
        let mut numbers = contents.split_inclusive(|octet| octet & 0x80 == 0);
        if numbers.any(|number| number[0] == 0x80 || number.len() > 18) {
            return Err(Malformed::ElementValue);
        }
        Ok(Oid { octets, length: contents.len() as u8 })
    }

    /// Returns the contents octets of the element.
    pub fn contents(&self) -> &[u8] {
        &self.octets[..usize::from(self.length)]
    }

    /// Returns the numbers of the object identifier.
    pub fn arcs(&self) -> impl Iterator<Item = u128> {
        let numbers = self.contents().split_inclusive(|octet| octet & 0x80 == 0);
        let mut numbers = numbers
            .map(|number| number.iter().fold(0u128, |sum, &octet| sum << 7 | u128::from(octet & 0x7f)));
        let first = numbers.next().expect("an identifier has at least one subidentifier");
        let root = (first / 40).min(2);
        [root, first - root * 40].into_iter().chain(numbers)
    }
}

impl FromStr for Oid {
    type Err = OidError;

    fn from_str(text: &str) -> Result<Oid, OidError> {
        Oid::parse(text)
    }
}

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.arcs().enumerate().try_for_each(|(place, arc)| {
            if place > 0 {
                f.write_str(".")?;
            }
            write!(f, "{arc}")
        })
    }
}

impl fmt::Debug for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
