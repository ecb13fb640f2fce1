//! The decoders of the upper OSI layers. Every decoded value can be encoded, and then decodes to the same
//! value.

use crate::features::Features;
use crate::target::Target;
use kiban_base::Malformed;
use kiban_base::{Bytes, Rope};
use kiban_osi::asn1;
use kiban_osi::wire::acse::Apdu;
use kiban_osi::wire::ber::{
    Any, Asn1, BitString, Boolean, Cursor, Element, External, GeneralizedTime, GraphicString, Integer, Null,
    OctetString, Oid, SequenceOf, SetOf,
};
use kiban_osi::wire::presentation::{Abort, Cp, Cpa, Cpr, Pdv, Resynchronise, UserData};

/// One decoder for each file in `osi/src/wire`.
pub(crate) const TARGETS: &[Target] = &[
    Target { name: "ber", run: ber, seeds: ber_seeds },
    Target { name: "presentation", run: presentation, seeds: presentation_seeds },
    Target { name: "acse", run: acse, seeds: acse_seeds },
];

asn1! {
    /// Runs all decoders.
    Everything ::= [APPLICATION 1] IMPLICIT SEQUENCE {
        flag       Boolean DEFAULT false,
        units      [40] IMPLICIT Units DEFAULT Units::READ,
        title      [1] IMPLICIT GraphicString OPTIONAL,
        choice     [2] EXPLICIT Choice OPTIONAL,
        octets     [3] IMPLICIT OctetString OPTIONAL,
        bits       [4] IMPLICIT BitString OPTIONAL,
        numbers    [5] IMPLICIT SequenceOf<Integer> OPTIONAL,
        inner      Inner OPTIONAL,
        date       GeneralizedTime OPTIONAL,
        reference  External OPTIONAL,
        colour     [6] EXPLICIT Colour DEFAULT Colour::RED,
        nested     [7] IMPLICIT Box<Everything> OPTIONAL,
        last       Any OPTIONAL,
    }

    Inner  ::= SET { number [0] IMPLICIT Integer, name Oid OPTIONAL, titles SetOf<GraphicString> OPTIONAL }
    Choice ::= CHOICE { Nothing Null, Number [300] IMPLICIT Integer, Wrapped [10] EXPLICIT Oid }
    Units  ::= BIT STRING { READ(0), FAR(63) }
    Colour ::= ENUMERATED { RED(0), BLUE(1) }
}

/// Checks that a value decoded from `bytes` lies within them, can be encoded, and decodes to the same value.
fn comes_back<T: Asn1 + PartialEq + core::fmt::Debug>(
    bytes: &[u8],
    features: &mut Features<'_>,
) -> Option<T> {
    match T::read(bytes) {
        Ok((value, used)) => {
            assert!(used <= bytes.len(), "{value:?} takes more than there is");
            let again = value.to_vec();
            assert_eq!(value.to_rope().to_vec(), again);
            let count = again.len();
            assert_eq!(T::read(&again).as_ref(), Ok(&(value, count)));
            features.show((core::any::type_name::<T>(), used.ilog2()));
            T::read(&again).ok().map(|(value, _)| value)
        }
        Err(rule) => {
            features.show((core::any::type_name::<T>(), rule.name()));
            None
        }
    }
}

/// Visits all nested elements, with every accessor.
fn walk(cursor: Cursor<'_>, depth: u32, features: &mut Features<'_>) {
    for element in cursor {
        let element = match element {
            Ok(element) => element,
            Err(rule) => return features.show((depth.min(2), rule.name())),
        };
        assert!(element.contents().len() < element.whole().len());
        let again = Element::read(element.whole()).map(|(element, count)| (element.tag, count));
        // Inner elements may be nested too deeply to be decoded; their bytes must be equal nevertheless.
        assert_eq!(again, Ok((element.tag, element.whole().len())));
        features.show((depth.min(2), element.tag.class, element.tag.number > 30, element.constructed));
        if let Ok(octets) = element.octets() {
            assert!(octets.len() <= element.contents().len());
        }
        if let Ok((octets, unused)) = element.bits() {
            assert!(octets.len() < element.contents().len().max(1) && unused < 8 || octets.is_empty());
        }
        match element.elements() {
            Ok(inner) => walk(inner, depth + 1, features),
            Err(rule) => assert!([Malformed::ElementForm, Malformed::Nesting].contains(&rule)),
        }
    }
}

fn ber(bytes: &[u8], features: &mut Features<'_>) {
    walk(Cursor::new(bytes), 0, features);
    comes_back::<Everything>(bytes, features);
    if let Some(oid) = comes_back::<Oid>(bytes, features) {
        // Numbers above 64 bits have no text form that can be parsed.
        let text = oid.to_string();
        assert!(
            text.parse::<Oid>().is_ok_and(|again| again == oid)
                || oid.arcs().any(|arc| arc > u128::from(u64::MAX) - 80)
        );
    }
    comes_back::<External>(bytes, features);
}

fn presentation(bytes: &[u8], features: &mut Features<'_>) {
    comes_back::<Cp>(bytes, features);
    comes_back::<Cpa>(bytes, features);
    comes_back::<Cpr>(bytes, features);
    comes_back::<Abort>(bytes, features);
    comes_back::<Resynchronise>(bytes, features);
    // The result is the same for a rope, however the bytes are split.
    let whole = UserData::from_rope(Rope::from(bytes.to_vec()));
    for size in [1, 3, 17] {
        let mut pieces = Rope::new();
        bytes.chunks(size).for_each(|piece| pieces.push(Bytes::copy_from_slice(piece)));
        assert_eq!(UserData::from_rope(pieces), whole);
    }
    match whole {
        Ok(data) => {
            features.show(match &data {
                UserData::Simple(_) => 0,
                UserData::Full(values) => values.len().min(4),
            });
            if let UserData::Full(values) = &data {
                values.iter().for_each(|pdv| {
                    let mut pdv = pdv.clone();
                    pdv.context = pdv.context.max(1);
                    if let kiban_osi::wire::presentation::PdvValue::Single(rope) = &pdv.value
                        && Any::read(&rope.to_vec()).map(|(_, count)| count) != Ok(rope.len())
                    {
                        return;
                    }
                    assert_eq!(Pdv::from(External::from(&pdv)), pdv);
                });
            }
            assert_eq!(UserData::from_rope(data.clone().into_rope()), Ok(data));
        }
        Err(rule) => features.show(rule.name()),
    }
}

fn acse(bytes: &[u8], features: &mut Features<'_>) {
    if let Some(apdu) = comes_back::<Apdu>(bytes, features) {
        features.show(core::mem::discriminant(&apdu));
    }
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|letter| letter.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

fn ber_seeds() -> Vec<Vec<u8>> {
    let everything = Everything {
        flag: true,
        units: Units::FAR,
        title: Some("a title".into()),
        choice: Some(Choice::Wrapped(Oid::of("1.0.8571.2.1"))),
        octets: Some(vec![1; 130]),
        bits: Some(BitString::new(vec![0xf0], 4)),
        numbers: Some(vec![1, -1, i64::MAX]),
        inner: Some(Inner { number: 3, name: Some(Oid::of("2.1.1")), titles: Some(SetOf(vec!["x".into()])) }),
        date: Some("19921122153000Z".into()),
        reference: None,
        colour: Colour::BLUE,
        nested: None,
        last: Some(Any(hex("3080 0500 0000"))),
    };
    let nested = Everything { nested: Some(Box::new(everything.clone())), ..everything.clone() };
    vec![
        everything.to_vec(),
        nested.to_vec(),
        hex("6180 a3802480 040161 040162 0000 0000 bf8f7f 80 0500 0000 0000"),
        hex("2808 020103 a003 020107"),
        hex("06052 8c27b0201"),
    ]
}

/// Returns presentation PDUs as sent by ISODE, libiec61850 and josistack.
fn presentation_seeds() -> Vec<Vec<u8>> {
    [
        "3180a003800101a280a416301402010 1060528c27b0201300406025101300006 6168306602010ba0026000 00000000",
        "318199a003800101a28191810400000001820400000001a423300f0201010604520100013004060251013010020103060528ca2202013004
         06025101615e305c020101a0576055a107060528ca220203a20706052901876701a30302010ca606060429018767a70302010cbe2f282d02
         0103a028a826800300fde881010582010583010aa416800101810305f100820c03ee1c00000408000079ef18",
        "3172a003800101a26b830400000001a512300780010081025101300780010081025101614f304d020101a0486146a107060528ca220203a2
         03020100a305a103020100be2f282d020103a028a926800300fde881010582010583010aa416800101810305f100820c03ee1c0000000200
         0040ed18",
        "30038a0103",
        "a00e610c300a020101a0056403800100",
        "3006800102810107",
        "612d302b020101a1260405b603800103040da60b7305a00319012e430202040406ae04800205a00402a8000402b800",
        "6180308002010 1a0803080020101000000000000000000",
        "6112300706025101020103 8100 3007 020103 82020780",
        "6003020107",
    ]
    .map(hex)
    .into()
}

/// Returns ACSE PDUs as sent by josistack and ISODE, and an abort.
fn acse_seeds() -> Vec<Vec<u8>> {
    [
        "604ca107060528ca220203a206060429876701a30302010ca606060429876702a70302010d8a0207808b03520301ac09800769676e6f7265
         64be13281106025101020103a008a80680010180010a",
        "612aa107060528ca220203a203020100a305a103020100be13281106025101020103a008a80680010180010a",
        "620e800100be092807020101a002a200",
        "630e800100be092807020101a002a300",
        "6406800101810102",
    ]
    .map(hex)
    .into()
}
