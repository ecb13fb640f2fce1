//! Bit strings, character strings and dates.
//!
//! Purpose   strings are kept as received, because GraphicString and GeneralString may switch character sets
//!           inside a string, and old systems send Latin-1. Nor may a malformed date, such as one with the
//!           year 126 or the month 13, end an association.

use alloc::{borrow::Cow, string::String, vec::Vec};
use core::fmt::{self, Write};

use super::{Asn1, Builder, Element, Tag, Tagged, types::is_asn1};
use kiban_base::Malformed;

/// A BIT STRING of any length, without named bits.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BitString {
    octets: Vec<u8>,
    unused: u8,
}

impl BitString {
    /// Builds a string from all bits of `octets` except the last `unused` ones.
    ///
    /// # Panics
    /// If `unused` is above 7, or if it is above 0 and there are no octets.
    pub fn new(octets: Vec<u8>, unused: u8) -> BitString {
        assert!(
            unused < 8 && (unused == 0 || !octets.is_empty()),
            "{unused} unused bits of {} octets",
            octets.len()
        );
        BitString { octets, unused }
    }

    /// Returns the octets; bit 0 of the string is the highest bit of the first octet.
    pub fn octets(&self) -> &[u8] {
        &self.octets
    }

    /// Returns the number of unused bits in the last octet.
    pub fn unused(&self) -> u8 {
        self.unused
    }
}

impl Tagged for BitString {
    const TAG: Tag = Tag::BIT_STRING;

    fn from_contents(element: &Element<'_>) -> Result<BitString, Malformed> {
        let (octets, unused) = element.bits()?;
        Ok(BitString { octets: octets.into_owned(), unused })
    }

    fn put_as(&self, tag: Tag, builder: &mut Builder) {
        let end = builder.len();
        builder.put(&self.octets);
        builder.put(&[self.unused]);
        builder.primitive(tag, end);
    }
}

is_asn1! { BitString; }

macro_rules! texts {
    ($($name:ident, $tag:ident, $about:literal;)*) => {$(
        #[doc = $about]
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub Vec<u8>);

        impl $name {
            /// Returns the text, decoded as UTF-8 if valid, otherwise as Latin-1.
            pub fn text(&self) -> Cow<'_, str> {
                match core::str::from_utf8(&self.0) {
                    Ok(text) => Cow::Borrowed(text),
                    Err(_) => Cow::Owned(self.0.iter().map(|&octet| char::from(octet)).collect()),
                }
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> $name {
                $name(text.into())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> $name {
                $name(text.into())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.text())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.text(), f)
            }
        }

        impl Tagged for $name {
            const TAG: Tag = Tag::$tag;

            fn from_contents(element: &Element<'_>) -> Result<$name, Malformed> {
                Vec::<u8>::from_contents(element).map($name)
            }

            fn put_as(&self, tag: Tag, builder: &mut Builder) {
                builder.element(tag, &self.0);
            }
        }

        is_asn1! { $name; }
    )*};
}

texts! {
    Utf8String, UTF8_STRING, "UTF8String.";
    NumericString, NUMERIC_STRING, "NumericString.";
    PrintableString, PRINTABLE_STRING, "PrintableString.";
    TeletexString, TELETEX_STRING, "TeletexString (T61String).";
    VideotexString, VIDEOTEX_STRING, "VideotexString.";
    Ia5String, IA5_STRING, "IA5String: ASCII.";
    GraphicString, GRAPHIC_STRING, "GraphicString: graphic characters and spaces.";
    VisibleString, VISIBLE_STRING, "VisibleString (ISO646String): printable ASCII and spaces.";
    GeneralString, GENERAL_STRING, "GeneralString: graphic and control characters.";
    ObjectDescriptor, OBJECT_DESCRIPTOR, "ObjectDescriptor: a name for human readers.";
    UtcTime, UTC_TIME, "UTCTime, such as 9211221530Z; kept as it was sent.";
    GeneralizedTime, GENERALIZED_TIME, "GeneralizedTime, such as 19921122153000Z; kept as it was sent.";
}

/// Formats a number by its name, if it has one.
///
/// # Errors
/// Fails only if writing to `f` fails.
#[doc(hidden)]
pub fn fmt_number(f: &mut fmt::Formatter<'_>, number: i64, names: &[(i64, &str)]) -> fmt::Result {
    match names.iter().find(|(known, _)| *known == number) {
        Some((_, name)) => fmt_name(f, name),
        None => write!(f, "{number}"),
    }
}

/// Formats the names of the bits that are set.
///
/// # Errors
/// Fails only if writing to `f` fails.
#[doc(hidden)]
pub fn fmt_bits(f: &mut fmt::Formatter<'_>, bits: u64, names: &[(u64, &str)]) -> fmt::Result {
    let mut is_first = true;
    for place in (0..64).filter(|place| bits >> place & 1 != 0) {
        if !core::mem::take(&mut is_first) {
            f.write_str(" + ")?;
        }
        match names.iter().find(|(known, _)| *known == place) {
            Some((_, name)) => fmt_name(f, name)?,
            None => write!(f, "bit {place}")?,
        }
    }
    if is_first { f.write_str("none") } else { Ok(()) }
}

fn fmt_name(f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
    name.chars()
        .try_for_each(|letter| f.write_char(if letter == '_' { '-' } else { letter.to_ascii_lowercase() }))
}

/// Returns the named bits of an element; bits above 63 have no names and are ignored.
///
/// # Errors
/// Same as for [`Element::bits`].
#[doc(hidden)]
pub fn named_bits(element: &Element<'_>) -> Result<u64, Malformed> {
    let (octets, unused) = element.bits()?;
    let mut first = [0; 8];
    let count = octets.len().min(8);
    first[..count].copy_from_slice(&octets[..count]);
    if octets.len() <= 8 && count > 0 {
        first[count - 1] &= 0xff << unused;
    }
    Ok(u64::from_be_bytes(first).reverse_bits())
}

/// Encodes named bits up to the last one set (X.680 §22.7: trailing zeros have no meaning).
#[doc(hidden)]
pub fn put_named_bits(bits: u64, tag: Tag, builder: &mut Builder) {
    let count = 64 - bits.leading_zeros();
    let octets = bits.reverse_bits().to_be_bytes();
    let end = builder.len();
    builder.put(&octets[..count.div_ceil(8) as usize]);
    builder.put(&[(8 - count % 8) as u8 % 8]);
    builder.primitive(tag, end);
}
