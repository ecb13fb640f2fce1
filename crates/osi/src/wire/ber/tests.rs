//! Tests with an ASN.1 module that uses every construct. They decode example encodings from the standard,
//! every encoding that the standard allows, and truncated and damaged encodings.
#![allow(unreachable_pub, dead_code)]

use alloc::{boxed::Box, string::ToString, vec, vec::Vec};

use proptest::prelude::*;

use super::*;
use crate::asn1;
use kiban_base::Malformed;

asn1! {
    /// A type with every construct.
    Everything ::= [APPLICATION 99] IMPLICIT SEQUENCE {
        flag        Boolean DEFAULT false,
        units       Units DEFAULT Units::READ,
        title       [1] IMPLICIT GraphicString OPTIONAL,
        /// An explicit tag on a CHOICE.
        choice      [2] EXPLICIT Choice,
        octets      [31] IMPLICIT OctetString OPTIONAL,
        bits        [200] IMPLICIT BitString OPTIONAL,
        numbers     [3] IMPLICIT SequenceOf<Integer> OPTIONAL,
        inner       Inner,
        date        GeneralizedTime OPTIONAL,
        reference   External OPTIONAL,
        outcome     [PRIVATE 6] EXPLICIT Outcome DEFAULT Outcome::SUCCESS,
        names       Names OPTIONAL,
        anything    [7] EXPLICIT Any OPTIONAL,
        nested      [8] IMPLICIT Box<Everything> OPTIONAL,
        last        Choice OPTIONAL,
    }

    Inner ::= SET {
        first   [0] IMPLICIT Integer,
        second  [1] IMPLICIT Null OPTIONAL,
        third   Oid,
        set     SetOf<Title> OPTIONAL,
    }

    Choice ::= CHOICE {
        Nothing  Null,
        Number   [10] IMPLICIT Integer,
        Wrapped  [4096] EXPLICIT Title,
        Empty    [11] IMPLICIT EmptySequence,
        Deeper   [12] EXPLICIT DeeperChoice,
        Plain    DeeperChoice,
    }

    DeeperChoice ::= CHOICE { Text [13] IMPLICIT Title, Wish [14] IMPLICIT Wish }

    EmptySequence ::= SEQUENCE {}
    Units   ::= [4] IMPLICIT BIT STRING { READ(0), WRITE(1), RESTART(10), FAR(63) }
    Outcome ::= [APPLICATION 5] IMPLICIT INTEGER { SUCCESS(0), FAILURE(1) }
    Colour  ::= ENUMERATED { RED(0), DARK_BLUE(1) }
    Names   ::= [5] IMPLICIT SEQUENCE OF Title;
    Group   ::= SET OF Title;
    Title   ::= [APPLICATION 14] IMPLICIT GraphicString;
    Wish    ::= [15] EXPLICIT Colour;
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(core::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

#[track_caller]
fn check<T: Asn1 + PartialEq + core::fmt::Debug>(value: T, bytes: &str) {
    assert_eq!(value.to_vec(), hex(bytes), "{value:?}");
    assert_eq!(value.to_rope().to_vec(), hex(bytes));
    assert_eq!(T::read(&hex(bytes)), Ok((value, hex(bytes).len())));
}

#[track_caller]
fn check_read<T: Asn1 + PartialEq + core::fmt::Debug>(bytes: &str, expected: Result<T, Malformed>) {
    assert_eq!(T::read(&hex(bytes)).map(|(value, _)| value), expected, "{bytes}");
}

#[test]
fn values_are_encoded_as_in_the_standard() {
    check(true, "01 01 ff");
    check(Null, "05 00");
    for (number, bytes) in [
        (0, "02 01 00"),
        (127, "02 01 7f"),
        (128, "02 02 0080"),
        (256, "02 02 0100"),
        (-1, "02 01 ff"),
        (-128, "02 01 80"),
        (-129, "02 02 ff7f"),
        (i64::MAX, "02 08 7fffffffffffffff"),
        (i64::MIN, "02 08 8000000000000000"),
    ] {
        check(number, bytes);
    }
    // Example encodings of X.690 §8.6.4.2, §8.19.5 and §8.21.5.4.
    check(BitString::new(hex("0a3b5f291cd0"), 4), "03 07 04 0a3b5f291cd0");
    check(Oid::of("2.100.3"), "06 03 813403");
    check(VisibleString::from("Jones"), "1a 05 4a6f6e6573");
    check(Oid::of("1.0.8571.2.1"), "06 05 28c27b0201");
    check(Units::NONE, "84 01 00");
    check(Units::WRITE | Units::RESTART, "84 03 05 4020");
    check(Units::FAR, "84 09 00 0000000000000001");
    check(Colour::DARK_BLUE, "0a 01 01");
    check(Group(vec![Title("a".into())]), "31 03 4e0161");
    check(Choice::Wrapped(Title("a".into())), "bfa000 03 4e0161");
    check(Choice::Deeper(DeeperChoice::Wish(Wish(Colour::RED))), "ac05 ae03 0a0100");
    check(Choice::Plain(DeeperChoice::Text(Title("a".into()))), "8d0161");
    check(vec![0u8; 200], &("04 81c8".to_string() + &"00".repeat(200)));
    check(vec![0u8; 300], &("04 82012c".to_string() + &"00".repeat(300)));
    check(
        External {
            direct_reference: Some(Oid::of("2.1.1")),
            indirect_reference: Some(3),
            data_value_descriptor: None,
            encoding: Encoding::SingleAsn1Type(Any(hex("0500"))),
        },
        "28 0b 06025101 020103 a0020500",
    );
}

#[test]
fn every_form_that_the_standard_allows_is_decoded() {
    check_read("02 02 0005", Ok(5i64));
    check_read("02 0a 00000000000000000005", Ok(5i64));
    check_read("02 0a ffffffffffffffffffff", Ok(-1i64));
    check_read("01 01 01", Ok(true));
    check_read("04 84 00000001 61", Ok(b"a".to_vec()));
    check_read("04 86 000000000001 61", Ok(b"a".to_vec()));
    check_read("24 80 040161 2480 040162 0000 0400 0000", Ok(b"ab".to_vec()));
    check_read("24 03 040161", Ok(b"a".to_vec()));
    check_read("23 80 0303000a3b 0305045f291cd0 0000", Ok(BitString::new(hex("0a3b5f291cd0"), 4)));
    check_read("bf0e 80 4e0161 0000", Err::<Choice, _>(Malformed::Alternative));
    check_read("bfa000 80 6e80 1901 61 0000 0000", Ok(Choice::Wrapped(Title("a".into()))));
    // Trailing zero bits, bits without a name, and unused bits that are set.
    check_read("84 06 07 40 00000080", Ok(Units(2 | 1 << 32)));
    check_read("84 02 06 ff", Ok(Units::READ | Units::WRITE));
    check_read("84 0a 00 00 00 00 00 00 00 00 01 ff", Ok(Units::FAR));
    // The elements of a SET may be in any order. Unknown elements are skipped, also in a SEQUENCE.
    let inner = Inner { first: 1, second: Some(Null), third: Oid::of("2.1.1"), set: None };
    check_read("31 0b 06025101 8100 8200 800101", Ok(inner));
    check_read("3080 9f6300 0000", Ok(EmptySequence {}));
    // Other encodings of tag zero and length zero are not end-of-contents octets.
    check_read("3080 3f0000 2000 008100 0000", Ok(EmptySequence {}));
    check_read("1f 10 01 00", Err::<EmptySequence, _>(Malformed::ElementForm));
    check_read("3f 10 00", Ok(EmptySequence {}));
}

#[test]
fn invalid_encodings_are_rejected() {
    use Malformed::*;
    let rows: &[(&str, Malformed)] = &[
        ("", Truncated),
        ("04", Truncated),
        ("04 02 61", Truncated),
        ("04 84 7fffffff 61", Truncated),
        ("04 84 ffffffff", Truncated),
        ("04 85 0100000000 61", ElementLength),
        ("04 ff 61", ElementLength),
        ("04 80 0000", ElementForm),
        ("24 80 040161", Truncated),
        ("24 80 040161 00", Truncated),
        ("24 80 040461 0000", Truncated),
        ("1f 80 04 00", TagNumber),
        ("1f ff ff ff ff 7f 00", TagNumber),
        ("1f 81", Truncated),
        ("05 00", Alternative),
    ];
    for &(bytes, expected) in rows {
        check_read(bytes, Err::<OctetString, _>(expected));
    }
    check_read("02 00", Err::<i64, _>(ElementValue));
    check_read("02 09 010000000000000000", Err::<i64, _>(ElementValue));
    check_read("02 09 008000000000000000", Err::<i64, _>(ElementValue));
    check_read("22 03 020100", Err::<i64, _>(ElementForm));
    check_read("01 02 0000", Err::<bool, _>(ElementValue));
    check_read("05 01 00", Err::<Null, _>(ElementValue));
    check_read("03 00", Err::<BitString, _>(ElementValue));
    check_read("03 01 01", Err::<BitString, _>(ElementValue));
    check_read("03 02 08 00", Err::<BitString, _>(ElementValue));
    check_read("23 08 030201 80 0302 0080", Err::<BitString, _>(ElementValue));
    check_read("06 00", Err::<Oid, _>(ElementValue));
    check_read("06 01 80", Err::<Oid, _>(ElementValue));
    check_read("06 02 8001", Err::<Oid, _>(ElementValue));
    check_read(&("0628".to_string() + &"01".repeat(40)), Err::<Oid, _>(ElementValue));
    check_read("10 00", Err::<EmptySequence, _>(ElementForm));
    check_read("31 03 800101", Err::<Inner, _>(ElementMissing));
    check_read("bfa000 03 040161", Err::<Choice, _>(Alternative));
    check_read("bfa000 00", Err::<Choice, _>(ElementMissing));
    check_read("30 03 040161", Err::<Names, _>(Alternative));
    check_read("a5 03 040161", Err::<Names, _>(Alternative));
}

#[test]
fn nesting_depth_is_limited() {
    let definite = |levels: usize| {
        (0..levels).fold(vec![4, 0], |inner, _| {
            let mut builder = Builder::new();
            builder.element(Tag::OCTET_STRING, &inner);
            let mut bytes = builder.into_vec();
            bytes[0] |= 0x20;
            bytes
        })
    };
    let indefinite = |levels: usize| [[0x24, 0x80].repeat(levels), [0, 0].repeat(levels)].concat();
    let most = usize::from(NESTING_MAX);
    assert_eq!(OctetString::read(&definite(most)).map(|(value, _)| value), Ok(vec![]));
    assert_eq!(OctetString::read(&definite(most + 1)), Err(Malformed::Nesting));
    assert_eq!(OctetString::read(&indefinite(most)).map(|(value, _)| value), Ok(vec![]));
    assert_eq!(OctetString::read(&indefinite(most + 1)), Err(Malformed::Nesting));
    assert_eq!(OctetString::read(&[0x24, 0x80].repeat(1_000_000)), Err(Malformed::Nesting));
}

#[test]
fn object_identifiers_convert_between_text_and_bytes() {
    for text in ["0.0", "1.0.8571.1.1", "2.1.1", "2.999.18446744073709551615", "1.39.4096", "2.25.1"] {
        let oid = Oid::parse(text).unwrap();
        assert_eq!(oid.to_string(), text);
        assert_eq!(text.parse(), Ok(oid));
        assert_eq!(Oid::from_contents(oid.contents()), Ok(oid));
    }
    for (text, error) in [
        ("", OidError::Notation),
        ("1", OidError::Notation),
        ("1.", OidError::Notation),
        ("1..2", OidError::Notation),
        ("1.a", OidError::Notation),
        ("1.2.18446744073709551616", OidError::Notation),
        ("2.18446744073709551615", OidError::Notation),
        ("3.1", OidError::Root),
        ("1.40", OidError::Root),
    ] {
        assert_eq!(Oid::parse(text), Err(error), "{text}");
    }
    assert_eq!(Oid::parse(&("1.2".to_string() + &".999".repeat(20))), Err(OidError::Length));
    assert_eq!(core::mem::size_of::<Oid>(), 40);
}

#[test]
fn named_values_are_formatted_by_name() {
    assert_eq!(Colour::DARK_BLUE.to_string(), "dark-blue");
    assert_eq!(Outcome(9).to_string(), "9");
    assert_eq!((Units::READ | Units(1 << 5)).to_string(), "read + bit 5");
    assert_eq!(Units::NONE.to_string(), "none");
    assert_eq!(GraphicString(vec![0xe9]).to_string(), "é");
    assert!((Units::READ | Units::WRITE).without(Units::READ) & Units::WRITE == Units::WRITE);
    assert!(Units::READ.with(Units::FAR).contains(Units::FAR));
}

#[test]
fn ropes_are_embedded_without_copying() {
    let page = kiban_base::Bytes::from(vec![7u8; 4096]);
    let mut builder = Builder::new();
    builder.element(Tag::NULL, &[]);
    builder.within(Tag::SEQUENCE, |builder| {
        let end = builder.len();
        builder.put_rope(page.clone().into());
        builder.primitive(Tag::OCTET_STRING, end);
        true.put(builder);
    });
    let bytes = [hex("30 821007 0101ff 04821000"), page.to_vec(), hex("0500")].concat();
    assert_eq!(builder.clone().into_vec(), bytes);
    let rope = builder.into_rope();
    assert_eq!(rope.to_vec(), bytes);
    assert!(rope.runs().any(|run| run.as_ptr() == page.as_ptr()));
}

fn title() -> impl Strategy<Value = Title> {
    "[a-zé]{0,5}".prop_map(|text| Title(text.into()))
}

fn deeper() -> impl Strategy<Value = DeeperChoice> {
    prop_oneof![
        title().prop_map(DeeperChoice::Text),
        (0..3i64).prop_map(|number| DeeperChoice::Wish(Wish(Colour(number)))),
    ]
}

fn choice() -> impl Strategy<Value = Choice> {
    prop_oneof![
        Just(Choice::Nothing(Null)),
        any::<i64>().prop_map(Choice::Number),
        title().prop_map(Choice::Wrapped),
        Just(Choice::Empty(EmptySequence {})),
        deeper().prop_map(Choice::Deeper),
        deeper().prop_map(Choice::Plain),
    ]
}

fn some<S: Strategy>(of: S) -> impl Strategy<Value = Option<S::Value>> {
    proptest::option::of(of)
}

fn bits() -> impl Strategy<Value = BitString> {
    (proptest::collection::vec(any::<u8>(), 0..40), 0..8u8).prop_map(|(octets, unused)| {
        BitString::new(octets.clone(), if octets.is_empty() { 0 } else { unused })
    })
}

fn octets() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..300)
}

fn encoding() -> impl Strategy<Value = Encoding> {
    prop_oneof![
        any::<i64>().prop_map(|number| Encoding::SingleAsn1Type(Any(number.to_vec()))),
        octets().prop_map(Encoding::OctetAligned),
        bits().prop_map(Encoding::Arbitrary),
    ]
}

fn oid() -> impl Strategy<Value = Oid> {
    proptest::collection::vec(any::<u32>(), 0..5).prop_map(|arcs| {
        let text = arcs.iter().fold("2.17".to_string(), |text, arc| text + "." + &arc.to_string());
        Oid::parse(&text).unwrap()
    })
}

fn external() -> impl Strategy<Value = External> {
    (some(oid()), some(any::<i64>()), some("[a-z]{0,5}"), encoding()).prop_map(
        |(direct, indirect, word, encoding)| External {
            direct_reference: direct,
            indirect_reference: indirect,
            data_value_descriptor: word.map(Into::into),
            encoding,
        },
    )
}

fn inner() -> impl Strategy<Value = Inner> {
    (any::<i64>(), any::<bool>(), oid(), some(proptest::collection::vec(title(), 0..3))).prop_map(
        |(first, second, third, set)| Inner {
            first,
            second: second.then_some(Null),
            third,
            set: set.map(SetOf),
        },
    )
}

fn everything() -> impl Strategy<Value = Everything> {
    let front = (
        any::<bool>(),
        any::<u64>().prop_map(Units),
        some("[a-z]{0,200}".prop_map(|text| text.as_str().into())),
        choice(),
        some(octets()),
        some(bits()),
        some(proptest::collection::vec(any::<i64>(), 0..5)),
    );
    let back = (
        inner(),
        some("[0-9]{0,15}".prop_map(|text| text.as_str().into())),
        some(external()),
        (0..3i64).prop_map(Outcome),
        some(proptest::collection::vec(title(), 0..3).prop_map(Names)),
        some(any::<i64>().prop_map(|number| Any(number.to_vec()))),
        some(choice()),
    );
    let flat = (front, back).prop_map(|(front, back)| {
        let (flag, units, title, choice, octets, bits, numbers) = front;
        let (inner, date, reference, outcome, names, anything, last) = back;
        let nested = None;
        Everything {
            flag,
            units,
            title,
            choice,
            octets,
            bits,
            numbers,
            inner,
            date,
            reference,
            outcome,
            names,
            anything,
            nested,
            last,
        }
    });
    flat.prop_recursive(3, 4, 1, |deeper| {
        (deeper.clone(), deeper)
            .prop_map(|(outer, inner)| Everything { nested: Some(Box::new(inner)), ..outer })
    })
}

/// The way in which an element is to be encoded.
#[derive(Clone, Copy, Debug)]
struct Form {
    indefinite: bool,
    zeros: u8,
    segments: bool,
    stranger: bool,
}

fn form() -> impl Strategy<Value = Form> {
    (any::<bool>(), 0..3u8, any::<bool>(), any::<bool>())
        .prop_map(|(indefinite, zeros, segments, stranger)| Form { indefinite, zeros, segments, stranger })
}

/// Re-encodes the elements of `bytes` in the given forms; the string at `[31]` and the title are segmented.
fn in_other_forms(bytes: &[u8], forms: &mut dyn Iterator<Item = Form>) -> Vec<u8> {
    let mut out = Vec::new();
    for element in Cursor::new(bytes) {
        let element = element.unwrap();
        let form = forms.next().unwrap();
        let is_anything = element.tag == Tag::context(7) || element.tag == Tag::EXTERNAL;
        if is_anything {
            // A value that is kept as received is not re-encoded.
            out.extend_from_slice(element.whole());
            continue;
        }
        let (contents, constructed) = if element.constructed {
            let mut inner = in_other_forms(element.contents(), forms);
            if form.stranger && element.tag == Tag::application(99) {
                inner.extend(hex("bf8f7f 80 0500 0000"));
            }
            (inner, true)
        } else if form.segments
            && !element.contents().is_empty()
            && [Tag::context(31), Tag::context(1), Tag::application(14)].contains(&element.tag)
        {
            let mut segments = Builder::new();
            for segment in element.contents().chunks(7).rev() {
                segments.element(Tag::OCTET_STRING, segment);
            }
            (segments.into_vec(), true)
        } else {
            (element.contents().to_vec(), false)
        };
        let length = (!constructed || !form.indefinite).then_some(contents.len());
        let mut room = [0; Header::BYTES_MAX];
        let at = Header { tag: element.tag, constructed, length: Some(0) }.write_before(&mut room);
        out.extend_from_slice(&room[at..room.len() - 1]);
        match length {
            None => out.push(0x80),
            Some(length) => {
                out.push(0x84 + form.zeros);
                out.extend(core::iter::repeat_n(0, form.zeros.into()));
                out.extend((length as u32).to_be_bytes());
            }
        }
        out.extend(&contents);
        if length.is_none() {
            out.extend([0, 0]);
        }
    }
    out
}

proptest! {
    #[test]
    fn encoding_and_decoding_agree(value in everything(), behind in octets()) {
        let bytes = value.to_vec();
        prop_assert_eq!(&value.to_rope().to_vec(), &bytes);
        let longer = [&bytes[..], &behind].concat();
        prop_assert_eq!(Everything::read(&longer), Ok((value, bytes.len())));
    }

    #[test]
    fn the_same_value_in_another_form_is_the_same_value(
        value in everything(), forms in proptest::collection::vec(form(), 1..20),
    ) {
        let bytes = in_other_forms(&value.to_vec(), &mut forms.into_iter().cycle());
        prop_assert_eq!(Everything::read(&bytes), Ok((value, bytes.len())));
    }

    #[test]
    fn cut_bytes_are_truncated_and_corrupt_ones_decoded_or_rejected(
        value in everything(), forms in proptest::collection::vec(form(), 1..20), at in any::<prop::sample::Index>(),
        octet in any::<u8>(),
    ) {
        let mut bytes = in_other_forms(&value.to_vec(), &mut forms.into_iter().cycle());
        for cut in 0..bytes.len() {
            prop_assert_eq!(Everything::read(&bytes[..cut]), Err(Malformed::Truncated));
        }
        let at = at.index(bytes.len());
        bytes[at] = octet;
        if let Ok((value, _)) = Everything::read(&bytes) {
            let again = value.to_vec();
            prop_assert_eq!(Everything::read(&again), Ok((value, again.len())));
        }
    }

    #[test]
    fn any_bytes_are_decoded_or_rejected(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Everything::read(&bytes);
        let _ = Choice::read(&bytes);
        let _ = External::read(&bytes);
        let _ = BitString::read(&bytes);
        let _ = Group::read(&bytes);
    }
}
