//! The traits of ASN.1 types, and the types that need no declaration in `asn1!`.

use alloc::{boxed::Box, vec::Vec};
use kiban_base::Rope;

use super::{Builder, Element, Oid, Tag};
use kiban_base::Malformed;

/// A type defined in ASN.1.
pub trait Asn1: Sized {
    /// Returns whether a value of this type can begin with this tag.
    fn begins(tag: Tag) -> bool;

    /// Decodes a value from an element.
    ///
    /// # Errors
    /// Returns the rule that the element or its contents break.
    fn from_element(element: &Element<'_>) -> Result<Self, Malformed>;

    /// Prepends the value's element to the builder.
    fn put(&self, builder: &mut Builder);

    /// Reads a value from the front of `bytes`; returns it and the number of bytes that it occupies.
    ///
    /// # Errors
    /// Returns the rule that the bytes break, or `Alternative` if the value is not of this type.
    fn read(bytes: &[u8]) -> Result<(Self, usize), Malformed> {
        let (element, count) = Element::read(bytes)?;
        if !Self::begins(element.tag) {
            return Err(Malformed::Alternative);
        }
        Ok((Self::from_element(&element)?, count))
    }

    /// Encodes the value as bytes.
    fn to_vec(&self) -> Vec<u8> {
        let mut builder = Builder::new();
        self.put(&mut builder);
        builder.into_vec()
    }

    /// Encodes the value as a rope.
    fn to_rope(&self) -> Rope {
        let mut builder = Builder::new();
        self.put(&mut builder);
        builder.into_rope()
    }
}

/// A type with a single tag, which implicit tagging can replace.
pub trait Tagged: Asn1 {
    /// The type's own tag.
    const TAG: Tag;

    /// Decodes a value from an element's contents, whatever its tag.
    ///
    /// # Errors
    /// Returns the rule that the contents break.
    fn from_contents(element: &Element<'_>) -> Result<Self, Malformed>;

    /// Prepends the value's element with a different tag.
    fn put_as(&self, tag: Tag, builder: &mut Builder);
}

/// Implements [`Asn1`] for a tagged type.
macro_rules! is_asn1 {
    ($($name:ty $(, $generic:ident: $bound:ident)?;)*) => {$(
        impl $(<$generic: $bound>)? Asn1 for $name {
            fn begins(tag: Tag) -> bool {
                tag == <Self as Tagged>::TAG
            }

            fn from_element(element: &Element<'_>) -> Result<Self, Malformed> {
                <Self as Tagged>::from_contents(element)
            }

            fn put(&self, builder: &mut Builder) {
                Tagged::put_as(self, <Self as Tagged>::TAG, builder);
            }
        }
    )*};
}
pub(super) use is_asn1;

/// BOOLEAN.
pub type Boolean = bool;
/// INTEGER, of up to 64 bits.
pub type Integer = i64;
/// OCTET STRING.
pub type OctetString = Vec<u8>;
/// SEQUENCE OF.
pub type SequenceOf<T> = Vec<T>;

/// NULL.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Null;

/// SET OF. The order is kept, but has no meaning.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SetOf<T>(pub Vec<T>);

/// ANY: an element of any type as received, including its header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Any(pub Vec<u8>);

is_asn1! {
    bool; i64; Vec<u8>; Oid; Null;
    Vec<T>, T: Asn1;
    SetOf<T>, T: Asn1;
}

impl Tagged for bool {
    const TAG: Tag = Tag::BOOLEAN;

    fn from_contents(element: &Element<'_>) -> Result<bool, Malformed> {
        match element.primitive()? {
            [octet] => Ok(*octet != 0),
            _ => Err(Malformed::ElementValue),
        }
    }

    fn put_as(&self, tag: Tag, builder: &mut Builder) {
        builder.element(tag, &[if *self { 0xff } else { 0 }]);
    }
}

impl Tagged for i64 {
    const TAG: Tag = Tag::INTEGER;

    fn from_contents(element: &Element<'_>) -> Result<i64, Malformed> {
        let octets = element.primitive()?;
        let (&first, _) = octets.split_first().ok_or(Malformed::ElementValue)?;
        let sign = if first & 0x80 != 0 { 0xff } else { 0 };
        // Redundant leading octets are accepted although §8.3.2 forbids them.
        let needless = octets.len().saturating_sub(8);
        if octets[..needless].iter().any(|&octet| octet != sign)
            || (needless > 0 && (octets[needless] ^ sign) & 0x80 != 0)
        {
            return Err(Malformed::ElementValue);
        }
        let start = if sign == 0 { 0 } else { -1 };
        Ok(octets[needless..].iter().fold(start, |sum: i64, &octet| sum << 8 | i64::from(octet)))
    }

    fn put_as(&self, tag: Tag, builder: &mut Builder) {
        let octets = self.to_be_bytes();
        // The number of equal leading bits gives the number of redundant octets; one sign bit must stay.
        let alike = if *self < 0 { self.leading_ones() } else { self.leading_zeros() };
        builder.element(tag, &octets[(alike as usize - 1) / 8..]);
    }
}

impl Tagged for Vec<u8> {
    const TAG: Tag = Tag::OCTET_STRING;

    fn from_contents(element: &Element<'_>) -> Result<Vec<u8>, Malformed> {
        Ok(element.octets()?.into_owned())
    }

    fn put_as(&self, tag: Tag, builder: &mut Builder) {
        builder.element(tag, self);
    }
}

impl Tagged for Oid {
    const TAG: Tag = Tag::OBJECT_IDENTIFIER;

    fn from_contents(element: &Element<'_>) -> Result<Oid, Malformed> {
        Oid::from_contents(element.primitive()?)
    }

    fn put_as(&self, tag: Tag, builder: &mut Builder) {
        builder.element(tag, self.contents());
    }
}

impl Tagged for Null {
    const TAG: Tag = Tag::NULL;

    fn from_contents(element: &Element<'_>) -> Result<Null, Malformed> {
        if element.primitive()?.is_empty() { Ok(Null) } else { Err(Malformed::ElementValue) }
    }

    fn put_as(&self, tag: Tag, builder: &mut Builder) {
        builder.element(tag, &[]);
    }
}

impl<T: Asn1> Tagged for Vec<T> {
    const TAG: Tag = Tag::SEQUENCE;

    fn from_contents(element: &Element<'_>) -> Result<Vec<T>, Malformed> {
        let mut all = Vec::new();
        for element in element.elements()? {
            let element = element?;
            if !T::begins(element.tag) {
                return Err(Malformed::Alternative);
            }
            all.push(T::from_element(&element)?);
        }
        Ok(all)
    }

    fn put_as(&self, tag: Tag, builder: &mut Builder) {
        builder.within(tag, |builder| self.iter().rev().for_each(|value| value.put(builder)));
    }
}

impl<T: Asn1> Tagged for SetOf<T> {
    const TAG: Tag = Tag::SET;

    fn from_contents(element: &Element<'_>) -> Result<SetOf<T>, Malformed> {
        Vec::from_contents(element).map(SetOf)
    }

    fn put_as(&self, tag: Tag, builder: &mut Builder) {
        self.0.put_as(tag, builder);
    }
}

impl Asn1 for Any {
    fn begins(_tag: Tag) -> bool {
        true
    }

    fn from_element(element: &Element<'_>) -> Result<Any, Malformed> {
        Ok(Any(element.whole().to_vec()))
    }

    fn put(&self, builder: &mut Builder) {
        builder.put(&self.0);
    }
}

impl<T: Asn1> Asn1 for Box<T> {
    fn begins(tag: Tag) -> bool {
        T::begins(tag)
    }

    fn from_element(element: &Element<'_>) -> Result<Box<T>, Malformed> {
        T::from_element(element).map(Box::new)
    }

    fn put(&self, builder: &mut Builder) {
        T::put(self, builder);
    }
}

impl<T: Tagged> Tagged for Box<T> {
    const TAG: Tag = T::TAG;

    fn from_contents(element: &Element<'_>) -> Result<Box<T>, Malformed> {
        T::from_contents(element).map(Box::new)
    }

    fn put_as(&self, tag: Tag, builder: &mut Builder) {
        T::put_as(self, tag, builder);
    }
}
