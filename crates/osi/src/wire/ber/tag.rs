//! Tags and headers of BER elements (X.690 §8.1.2 and §8.1.3).

use kiban_base::Malformed;

/// The four classes of tags.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Class {
    /// Types defined by ASN.1 itself.
    Universal = 0,
    /// Types of one application.
    Application = 1,
    /// The class of types whose meaning depends on the enclosing type.
    Context = 2,
    /// Types of one organisation.
    Private = 3,
}

/// A tag, which identifies the type of an element.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tag {
    /// The class of the tag.
    pub class: Class,
    /// The number within the class.
    pub number: u32,
}

macro_rules! universal {
    ($($name:ident = $number:literal;)*) => {
        $(#[doc = concat!("UNIVERSAL ", stringify!($number), ".")] pub const $name: Tag = Tag::universal($number);)*
    };
}

#[allow(missing_docs)]
impl Tag {
    universal! {
        END_OF_CONTENTS = 0; BOOLEAN = 1; INTEGER = 2; BIT_STRING = 3; OCTET_STRING = 4; NULL = 5;
        OBJECT_IDENTIFIER = 6; OBJECT_DESCRIPTOR = 7; EXTERNAL = 8; ENUMERATED = 10; UTF8_STRING = 12; SEQUENCE = 16;
        SET = 17; NUMERIC_STRING = 18; PRINTABLE_STRING = 19; TELETEX_STRING = 20; VIDEOTEX_STRING = 21;
        IA5_STRING = 22; UTC_TIME = 23; GENERALIZED_TIME = 24; GRAPHIC_STRING = 25; VISIBLE_STRING = 26;
        GENERAL_STRING = 27;
    }
}

impl Tag {
    /// Returns the tag of a type that ASN.1 itself defines.
    pub const fn universal(number: u32) -> Tag {
        Tag { class: Class::Universal, number }
    }

    /// Returns `[APPLICATION number]`.
    pub const fn application(number: u32) -> Tag {
        Tag { class: Class::Application, number }
    }

    /// Returns `[number]`.
    pub const fn context(number: u32) -> Tag {
        Tag { class: Class::Context, number }
    }

    /// Returns `[PRIVATE number]`.
    pub const fn private(number: u32) -> Tag {
        Tag { class: Class::Private, number }
    }
}

const CONSTRUCTED: u8 = 0x20;
const NUMBER: u8 = 0x1f;
const MORE: u8 = 0x80;

/// The header in front of an element's contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The tag.
    pub tag: Tag,
    /// Whether the contents are elements.
    pub constructed: bool,
    /// Length of the contents in bytes; `None` if it is indefinite (§8.1.3.6).
    pub length: Option<usize>,
}

impl Header {
    /// Maximum number of bytes that [`Header::write_before`] can write.
    pub const BYTES_MAX: usize = 1 + 5 + 1 + 8;

    /// Reads a header; the contents need not be present.
    ///
    /// # Errors
    /// `Truncated`; `TagNumber`; `ElementLength`; `ElementForm` for an indefinite length of a primitive
    /// element.
    pub fn read(bytes: &[u8]) -> Result<(Header, usize), Malformed> {
        let (&first, mut rest) = bytes.split_first().ok_or(Malformed::Truncated)?;
        let class = match first >> 6 {
            0 => Class::Universal,
            1 => Class::Application,
            2 => Class::Context,
            _ => Class::Private,
        };
        let constructed = first & CONSTRUCTED != 0;
        let mut number = u32::from(first & NUMBER);
        if first & NUMBER == NUMBER {
            number = 0;
            loop {
                let (&octet, behind) = rest.split_first().ok_or(Malformed::Truncated)?;
                rest = behind;
                // §8.1.2.4.2 c: in the first octet of a tag number, the bits of the number must not all be
                // zero.
                if number > u32::MAX >> 7 || (number == 0 && octet == MORE) {
                    return Err(Malformed::TagNumber);
                }
                number = number << 7 | u32::from(octet & !MORE);
                if octet & MORE == 0 {
                    break;
                }
            }
        }
        let (&first, mut rest) = rest.split_first().ok_or(Malformed::Truncated)?;
        let length = match first {
            0..MORE => Some(usize::from(first)),
            MORE if constructed => None,
            MORE => return Err(Malformed::ElementForm),
            // §8.1.3.5 c: this length octet is reserved.
            0xff => return Err(Malformed::ElementLength),
            _ => {
                let count = usize::from(first & !MORE);
                let (octets, behind) = rest.split_at_checked(count).ok_or(Malformed::Truncated)?;
                rest = behind;
                let zeros = octets.iter().take_while(|&&octet| octet == 0).count();
                if count - zeros > 4 {
                    return Err(Malformed::ElementLength);
                }
                let length = octets[zeros..].iter().fold(0u32, |sum, &octet| sum << 8 | u32::from(octet));
                Some(usize::try_from(length).map_err(|_| Malformed::ElementLength)?)
            }
        };
        Ok((Header { tag: Tag { class, number }, constructed, length }, bytes.len() - rest.len()))
    }

    /// Returns whether this header of `header_bytes` is end-of-contents, which has exactly two zero octets. A
    /// longer encoding of the same tag and length is not (§8.1.5).
    pub fn is_end_of_contents(&self, header_bytes: usize) -> bool {
        const END: Header = Header { tag: Tag::END_OF_CONTENTS, constructed: false, length: Some(0) };
        *self == END && header_bytes == 2
    }

    /// Writes the header at the end of `room`, directly before the contents; returns the offset where it
    /// begins. An indefinite length is encoded as such.
    ///
    /// # Panics
    /// If `room` is smaller than the header; [`Header::BYTES_MAX`] is always enough.
    pub fn write_before(&self, room: &mut [u8]) -> usize {
        let mut at = room.len();
        let mut put = |octet: u8| {
            at -= 1;
            room[at] = octet;
        };
        match self.length {
            None => put(MORE),
            Some(length @ 0..0x80) => put(length as u8),
            Some(mut length) => {
                let mut count = 0;
                while length > 0 {
                    put(length as u8);
                    length >>= 8;
                    count += 1;
                }
                put(MORE | count);
            }
        }
        let leading = (self.tag.class as u8) << 6 | if self.constructed { CONSTRUCTED } else { 0 };
        let mut number = self.tag.number;
        if number < u32::from(NUMBER) {
            put(leading | number as u8);
        } else {
            put(number as u8 & !MORE);
            number >>= 7;
            while number > 0 {
                put(number as u8 | MORE);
                number >>= 7;
            }
            put(leading | NUMBER);
        }
        at
    }
}
