//! The `asn1!` notation: a type that is declared as in a standard becomes a Rust type that can be decoded and
//! encoded.
//!
//! Each definition becomes a public type with its doc comment and an implementation of [`Asn1`](super::Asn1).
//! All types except CHOICE also implement [`Tagged`](super::Tagged).
//!
//! ```text
//! Name ::= [tag] IMPLICIT SEQUENCE { field Type, … }         struct with public fields; SET likewise
//! Name ::= CHOICE { Alternative Type, … }                    enum
//! Name ::= [tag] IMPLICIT INTEGER { NAME(0), … }             struct Name(pub i64) with constants;
//!                                                            ENUMERATED likewise
//! Name ::= [tag] IMPLICIT BIT STRING { NAME(0), … }          struct Name(pub u64) with constants, `|`, `contains`
//! Name ::= [tag] IMPLICIT SEQUENCE OF Type;                  struct Name(pub Vec<Type>); SET OF likewise
//! Name ::= [tag] IMPLICIT Type;  … [tag] EXPLICIT Type;      struct Name(pub Type)
//! ```
//!
//! Tags      `[1]`, `[APPLICATION 1]`, `[PRIVATE 1]`, `[UNIVERSAL 1]`, always with IMPLICIT or EXPLICIT. A
//!           definition may have no tag, and a CHOICE never has one. A field or an alternative needs no tag
//!           if its type has one.
//! Fields    `field [tag] MODE Type`, then nothing, `OPTIONAL` (an `Option`) or `DEFAULT value`. `Type` is
//!           one word, which may be followed by a type in `<>`: `SequenceOf<T>`, `SetOf<T>`, `Box<T>`. Types
//!           that are anonymous in a standard get a name.
//! Limits    about a hundred definitions in one `asn1!` call.

/// Declares ASN.1 types in a notation close to the standard's: see [`ber`](crate::wire::ber).
#[macro_export]
macro_rules! asn1 {
    () => {};

    ($(#[$about:meta])* $name:ident ::= $([$($tag:tt)+] IMPLICIT)? SEQUENCE { $($fields:tt)* } $($rest:tt)*) => {
        $crate::asn1!(@fields in_order, $(#[$about])* $name, $crate::asn1!(@tag SEQUENCE $(, $($tag)+)?), $($fields)*);
        $crate::asn1!($($rest)*);
    };

    ($(#[$about:meta])* $name:ident ::= $([$($tag:tt)+] IMPLICIT)? SET { $($fields:tt)* } $($rest:tt)*) => {
        $crate::asn1!(@fields any_order, $(#[$about])* $name, $crate::asn1!(@tag SET $(, $($tag)+)?), $($fields)*);
        $crate::asn1!($($rest)*);
    };

    (@fields $order:ident, $(#[$about:meta])* $name:ident, $own:expr, $(
        $(#[$field_about:meta])*
        $field:ident $([$($tag:tt)+] $mode:ident)? $type:ident $(<$inner:ty>)?
        $($optional:ident $($default:expr)?)?
    ),* $(,)?) => {
        $(#[$about])*
        #[doc = ""]
        #[doc = concat!("ASN.1: ", stringify!($name), ".")]
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct $name {$(
            $(#[$field_about])*
            #[doc = ""]
            #[doc = concat!(
                "`", stringify!($field $([$($tag)+] $mode)? $type $(<$inner>)? $($optional $($default)?)?), "`"
            )]
            pub $field: $crate::asn1!(@field_type $type $(<$inner>)? $(, $optional)?),
        )*}

        impl $crate::wire::ber::Tagged for $name {
            const TAG: $crate::wire::ber::Tag = $own;

            #[allow(unused_mut, unused_variables, unused_assignments)]
            fn from_contents(element: &$crate::wire::ber::Element<'_>) -> Result<Self, $crate::Malformed> {
                $(let mut $field: Option<$type $(<$inner>)?> = None;)*
                let mut next = 0u32;
                for element in element.elements()? {
                    let element = element?;
                    let mut place = 0u32;
                    $(
                        if $crate::asn1!(@may_be $order, place, next, $field)
                            && $crate::asn1!(@begins element.tag, $type $(<$inner>)? $(, $mode $($tag)+)?)
                        {
                            $field = Some($crate::asn1!(@read element, $type $(<$inner>)? $(, $mode $($tag)+)?));
                            next = place + 1;
                            continue;
                        }
                        place += 1;
                    )*
                }
                Ok($name { $($field: $crate::asn1!(@settle $field $(, $optional $($default)?)?)),* })
            }

            #[allow(unused_variables)]
            fn put_as(&self, tag: $crate::wire::ber::Tag, builder: &mut $crate::wire::ber::Builder) {
                builder.within(tag, |builder| builder.in_order(&[$(&|builder: &mut $crate::wire::ber::Builder| {
                    if let Some(value) = $crate::asn1!(@given self.$field $(, $optional $($default)?)?) {
                        $crate::asn1!(@put value, builder $(, $mode $($tag)+)?);
                    }
                }),*]));
            }
        }

        $crate::asn1!(@tagged $name);
    };

    ($(#[$about:meta])* $name:ident ::= CHOICE {$(
        $(#[$alternative_about:meta])*
        $alternative:ident $([$($tag:tt)+] $mode:ident)? $type:ident $(<$inner:ty>)?
    ),* $(,)?} $($rest:tt)*) => {
        $(#[$about])*
        #[doc = ""]
        #[doc = concat!("ASN.1: ", stringify!($name), ", a CHOICE.")]
        #[derive(Clone, PartialEq, Eq, Debug)]
        #[allow(clippy::large_enum_variant)]
        pub enum $name {$(
            $(#[$alternative_about])*
            #[doc = ""]
            #[doc = concat!("`", stringify!($alternative $([$($tag)+] $mode)? $type $(<$inner>)?), "`")]
            $alternative($type $(<$inner>)?),
        )*}

        impl $crate::wire::ber::Asn1 for $name {
            fn begins(tag: $crate::wire::ber::Tag) -> bool {
                $($crate::asn1!(@begins tag, $type $(<$inner>)? $(, $mode $($tag)+)?))||*
            }

            fn from_element(element: &$crate::wire::ber::Element<'_>) -> Result<Self, $crate::Malformed> {
                $(
                    if $crate::asn1!(@begins element.tag, $type $(<$inner>)? $(, $mode $($tag)+)?) {
                        let value = $crate::asn1!(@read element, $type $(<$inner>)? $(, $mode $($tag)+)?);
                        return Ok($name::$alternative(value));
                    }
                )*
                Err($crate::Malformed::Alternative)
            }

            fn put(&self, builder: &mut $crate::wire::ber::Builder) {
                match self {
                    $($name::$alternative(value) => $crate::asn1!(@put value, builder $(, $mode $($tag)+)?),)*
                }
            }
        }

        $crate::asn1!($($rest)*);
    };

    ($(#[$about:meta])* $name:ident ::= $([$($tag:tt)+] IMPLICIT)? INTEGER { $($numbers:tt)* } $($rest:tt)*) => {
        $crate::asn1!(@numbers $(#[$about])* $name, $crate::asn1!(@tag INTEGER $(, $($tag)+)?), $($numbers)*);
        $crate::asn1!($($rest)*);
    };

    ($(#[$about:meta])* $name:ident ::= $([$($tag:tt)+] IMPLICIT)? ENUMERATED { $($numbers:tt)* } $($rest:tt)*) => {
        $crate::asn1!(@numbers $(#[$about])* $name, $crate::asn1!(@tag ENUMERATED $(, $($tag)+)?), $($numbers)*);
        $crate::asn1!($($rest)*);
    };

    (@numbers $(#[$about:meta])* $name:ident, $own:expr, $($(#[$word_about:meta])* $word:ident($number:literal)),* $(,)?) => {
        $(#[$about])*
        #[doc = ""]
        #[doc = concat!("ASN.1: ", stringify!($name), ", a number with named values. Values without a name are kept.")]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub i64);

        impl $name {$(
            $(#[$word_about])*
            #[doc = ""]
            #[doc = concat!("`", stringify!($word), "(", stringify!($number), ")`")]
            pub const $word: $name = $name($number);
        )*}

        impl ::core::fmt::Display for $name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                $crate::wire::ber::fmt_number(f, self.0, &[$(($number, stringify!($word))),*])
            }
        }

        $crate::asn1!(@shown $name);

        impl $crate::wire::ber::Tagged for $name {
            const TAG: $crate::wire::ber::Tag = $own;

            fn from_contents(element: &$crate::wire::ber::Element<'_>) -> Result<Self, $crate::Malformed> {
                <i64 as $crate::wire::ber::Tagged>::from_contents(element).map($name)
            }

            fn put_as(&self, tag: $crate::wire::ber::Tag, builder: &mut $crate::wire::ber::Builder) {
                $crate::wire::ber::Tagged::put_as(&self.0, tag, builder);
            }
        }

        $crate::asn1!(@tagged $name);
    };

    ($(#[$about:meta])* $name:ident ::= $([$($tag:tt)+] IMPLICIT)? BIT STRING {
        $($(#[$word_about:meta])* $word:ident($number:literal)),* $(,)?
    } $($rest:tt)*) => {
        $(#[$about])*
        #[doc = ""]
        #[doc = concat!("ASN.1: ", stringify!($name), ", a set of named bits. Bit 0 is the least significant bit.")]
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $name(pub u64);

        impl $name {
            /// The empty set.
            pub const NONE: $name = $name(0);
            $(
                $(#[$word_about])*
                #[doc = ""]
                #[doc = concat!("`", stringify!($word), "(", stringify!($number), ")`")]
                pub const $word: $name = $name(1 << $number);
            )*

            /// Returns whether all bits of `those` are set in this value.
            pub const fn contains(self, those: $name) -> bool {
                self.0 & those.0 == those.0
            }

            /// Returns the union of both sets of bits.
            pub const fn with(self, those: $name) -> $name {
                $name(self.0 | those.0)
            }

            /// Returns these bits without the bits of `those`.
            pub const fn without(self, those: $name) -> $name {
                $name(self.0 & !those.0)
            }
        }

        impl ::core::ops::BitOr for $name {
            type Output = $name;

            fn bitor(self, those: $name) -> $name {
                $name(self.0 | those.0)
            }
        }

        impl ::core::ops::BitAnd for $name {
            type Output = $name;

            fn bitand(self, those: $name) -> $name {
                $name(self.0 & those.0)
            }
        }

        impl ::core::fmt::Display for $name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                $crate::wire::ber::fmt_bits(f, self.0, &[$(($number, stringify!($word))),*])
            }
        }

        $crate::asn1!(@shown $name);

        impl $crate::wire::ber::Tagged for $name {
            const TAG: $crate::wire::ber::Tag = $crate::asn1!(@tag BIT_STRING $(, $($tag)+)?);

            fn from_contents(element: &$crate::wire::ber::Element<'_>) -> Result<Self, $crate::Malformed> {
                $crate::wire::ber::named_bits(element).map($name)
            }

            fn put_as(&self, tag: $crate::wire::ber::Tag, builder: &mut $crate::wire::ber::Builder) {
                $crate::wire::ber::put_named_bits(self.0, tag, builder);
            }
        }

        $crate::asn1!(@tagged $name);
        $crate::asn1!($($rest)*);
    };

    ($(#[$about:meta])* $name:ident ::= $([$($tag:tt)+] IMPLICIT)? SEQUENCE OF $type:ident $(<$inner:ty>)?; $($rest:tt)*) => {
        $crate::asn1!(@wrapper $(#[$about])* $name, SequenceOf<$type $(<$inner>)?>, $crate::asn1!(@tag SEQUENCE $(, $($tag)+)?));
        $crate::asn1!($($rest)*);
    };

    ($(#[$about:meta])* $name:ident ::= $([$($tag:tt)+] IMPLICIT)? SET OF $type:ident $(<$inner:ty>)?; $($rest:tt)*) => {
        $crate::asn1!(@wrapper $(#[$about])* $name, SequenceOf<$type $(<$inner>)?>, $crate::asn1!(@tag SET $(, $($tag)+)?));
        $crate::asn1!($($rest)*);
    };

    (@wrapper $(#[$about:meta])* $name:ident, SequenceOf<$type:ty>, $own:expr) => {
        $(#[$about])*
        #[doc = ""]
        #[doc = concat!("ASN.1: ", stringify!($name), ", a list of ", stringify!($type), ".")]
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct $name(pub $crate::wire::ber::SequenceOf<$type>);

        impl $crate::wire::ber::Tagged for $name {
            const TAG: $crate::wire::ber::Tag = $own;

            fn from_contents(element: &$crate::wire::ber::Element<'_>) -> Result<Self, $crate::Malformed> {
                $crate::wire::ber::Tagged::from_contents(element).map($name)
            }

            fn put_as(&self, tag: $crate::wire::ber::Tag, builder: &mut $crate::wire::ber::Builder) {
                $crate::wire::ber::Tagged::put_as(&self.0, tag, builder);
            }
        }

        $crate::asn1!(@tagged $name);
    };

    ($(#[$about:meta])* $name:ident ::= [$($tag:tt)+] $mode:ident $type:ident $(<$inner:ty>)?; $($rest:tt)*) => {
        $(#[$about])*
        #[doc = ""]
        #[doc = concat!("ASN.1: ", stringify!($name), ", `", stringify!([$($tag)+] $mode $type $(<$inner>)?), "`.")]
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct $name(pub $type $(<$inner>)?);

        impl $crate::wire::ber::Tagged for $name {
            const TAG: $crate::wire::ber::Tag = $crate::asn1!(@tag ANY, $($tag)+);

            fn from_contents(element: &$crate::wire::ber::Element<'_>) -> Result<Self, $crate::Malformed> {
                Ok($name($crate::asn1!(@read element, $type $(<$inner>)?, $mode)))
            }

            fn put_as(&self, tag: $crate::wire::ber::Tag, builder: &mut $crate::wire::ber::Builder) {
                $crate::asn1!(@put_tagged (&self.0), builder, $mode, tag);
            }
        }

        $crate::asn1!(@tagged $name);
        $crate::asn1!($($rest)*);
    };

    (@tagged $name:ident) => {
        impl $crate::wire::ber::Asn1 for $name {
            fn begins(tag: $crate::wire::ber::Tag) -> bool {
                tag == <$name as $crate::wire::ber::Tagged>::TAG
            }

            fn from_element(element: &$crate::wire::ber::Element<'_>) -> Result<Self, $crate::Malformed> {
                <$name as $crate::wire::ber::Tagged>::from_contents(element)
            }

            fn put(&self, builder: &mut $crate::wire::ber::Builder) {
                $crate::wire::ber::Tagged::put_as(self, <$name as $crate::wire::ber::Tagged>::TAG, builder);
            }
        }
    };

    (@shown $name:ident) => {
        impl ::core::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                ::core::fmt::Display::fmt(self, f)
            }
        }
    };

    // A definition's tag: the declared one, or else the universal tag.
    (@tag $own:ident) => { $crate::wire::ber::Tag::$own };
    (@tag $own:ident, APPLICATION $number:literal) => { $crate::wire::ber::Tag::application($number) };
    (@tag $own:ident, PRIVATE $number:literal) => { $crate::wire::ber::Tag::private($number) };
    (@tag $own:ident, UNIVERSAL $number:literal) => { $crate::wire::ber::Tag::universal($number) };
    (@tag $own:ident, $number:literal) => { $crate::wire::ber::Tag::context($number) };

    // The Rust type of a field.
    (@field_type $type:ident $(<$inner:ty>)?, OPTIONAL) => { Option<$type $(<$inner>)?> };
    (@field_type $type:ident $(<$inner:ty>)? $(, DEFAULT)?) => { $type $(<$inner>)? };

    // Whether this field may come next. In a SEQUENCE, it must come after the last field that was read; in a
    // SET, it must not be present yet.
    (@may_be in_order, $place:ident, $next:ident, $field:ident) => { $place >= $next };
    (@may_be any_order, $place:ident, $next:ident, $field:ident) => { $field.is_none() };

    // Whether an element's tag matches the type of a field or of a CHOICE alternative.
    (@begins $element:expr, $type:ty) => { <$type as $crate::wire::ber::Asn1>::begins($element) };
    (@begins $element:expr, $type:ty, $mode:ident $($tag:tt)+) => { $element == $crate::asn1!(@tag ANY, $($tag)+) };

    (@read $element:ident, $type:ty) => { <$type as $crate::wire::ber::Asn1>::from_element(&$element)? };
    (@read $element:ident, $type:ty, IMPLICIT $($tag:tt)*) => {
        <$type as $crate::wire::ber::Tagged>::from_contents(&$element)?
    };
    (@read $element:ident, $type:ty, EXPLICIT $($tag:tt)*) => {{
        let inner = $element.inner()?;
        if !<$type as $crate::wire::ber::Asn1>::begins(inner.tag) {
            return Err($crate::Malformed::Alternative);
        }
        <$type as $crate::wire::ber::Asn1>::from_element(&inner)?
    }};

    // The value of a field after all elements have been read.
    (@settle $field:ident) => { $field.ok_or($crate::Malformed::ElementMissing)? };
    (@settle $field:ident, OPTIONAL) => { $field };
    (@settle $field:ident, DEFAULT $default:expr) => { $field.unwrap_or_else(|| $default) };

    // The value of a field as it is encoded; `None` if it is left out.
    (@given $field:expr) => { Some(&$field) };
    (@given $field:expr, OPTIONAL) => { $field.as_ref() };
    (@given $field:expr, DEFAULT $default:expr) => { Some(&$field).filter(|value| **value != $default) };

    (@put $value:ident, $builder:ident) => { $crate::wire::ber::Asn1::put($value, $builder) };
    (@put $value:ident, $builder:ident, $mode:ident $($tag:tt)+) => {
        $crate::asn1!(@put_tagged $value, $builder, $mode, $crate::asn1!(@tag ANY, $($tag)+))
    };
    (@put_tagged $value:tt, $builder:ident, IMPLICIT, $tag:expr) => {
        $crate::wire::ber::Tagged::put_as($value, $tag, $builder)
    };
    (@put_tagged $value:tt, $builder:ident, EXPLICIT, $tag:expr) => {
        $builder.within($tag, |builder| $crate::wire::ber::Asn1::put($value, builder))
    };
}
