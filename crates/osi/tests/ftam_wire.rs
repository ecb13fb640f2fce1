//! Tests with FPDUs captured from real peers, and with FPDUs of every kind.

#[path = "common/ftam.rs"]
mod samples;

use kiban_base::Malformed;
use kiban_base::Rope;
use kiban_osi::wire::ber::{Asn1, Element, Tag};
use kiban_osi::wire::ftam::{DataElement, Kind, Pdu};

/// The presentation data values sent by ISODE's initiator and responder in one session, one per line.
const SESSION: &str = include_str!("data/isode-ftam-session.fpdus.txt");

fn values() -> impl Iterator<Item = (u32, Vec<u8>)> {
    SESSION.lines().filter_map(|line| {
        let (_, value) = line.split_once(" ctx ")?;
        let mut words = value.split(' ');
        let context = words.next()?.parse().expect("a context is a number");
        let bytes = words.nth(1).expect("a value has bytes");
        let byte = |at: usize| u8::from_str_radix(&bytes[at..at + 2], 16).expect("a byte");
        Some((context, (0..bytes.len()).step_by(2).map(byte).collect()))
    })
}

/// Returns whether any element in the encoding has an indefinite length.
fn is_indefinite(element: &Element<'_>) -> bool {
    let bytes = element.whole();
    let header = kiban_osi::wire::ber::Header::read(bytes).expect("it was read").0;
    header.length.is_none()
        || (element.constructed
            && element
                .elements()
                .expect("it is constructed")
                .any(|inner| is_indefinite(&inner.expect("it was read"))))
}

#[test]
fn every_fpdu_of_an_isode_session_survives_a_round_trip() {
    let (mut definite, mut indefinite) = (0, 0);
    for (_, bytes) in values().filter(|(context, _)| *context == 1) {
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (element, count) = Element::read(rest).expect("an element");
            let (pdu, read) = Pdu::read(rest).unwrap_or_else(|rule| panic!("{:x?}: {rule}", element.whole()));
            assert_eq!(read, count);
            rest = &rest[count..];
            let ours = pdu.to_vec();
            assert_eq!(Pdu::read(&ours), Ok((pdu.clone(), ours.len())), "what we say is what was said");
            if is_indefinite(&element) {
                indefinite += 1;
            } else {
                assert_eq!(ours, element.whole(), "{pdu:?}");
                definite += 1;
            }
        }
    }
    // Only F-READ-ATTRIB responses contain indefinite lengths.
    assert_eq!((definite, indefinite), (378, 5));
}

#[test]
fn every_data_element_of_an_isode_session_survives_a_round_trip() {
    let (mut strings, mut entries) = (0, 0);
    for (context, bytes) in values().filter(|(context, _)| *context != 1) {
        let mut rope = Rope::from(bytes.clone());
        let mut ours = Rope::new();
        while !rope.is_empty() {
            let element = DataElement::read(&mut rope).expect("a data element");
            match &element {
                DataElement::Value { tag, .. } => {
                    assert_eq!(*tag, if context == 3 { Tag::OCTET_STRING } else { Tag::GENERAL_STRING });
                    strings += 1;
                }
                DataElement::DirectoryEntry(entry) => {
                    assert!(entry.pathname.is_some() && entry.object_size.is_some());
                    entries += 1;
                }
                DataElement::Structuring(structuring) => {
                    panic!("{structuring:?} in a file without structure")
                }
            }
            ours.append(element.into_rope());
        }
        if context != 7 {
            assert_eq!(ours.to_vec(), bytes);
        }
    }
    assert_eq!((strings, entries), (9, 14));
}

#[test]
fn every_kind_of_fpdu_survives_a_round_trip() {
    let samples = samples::samples();
    for kind in Kind::ALL {
        assert!(samples.iter().any(|pdu| pdu.kind() == *kind), "there is no sample of {kind}");
    }
    for pdu in samples {
        let bytes = pdu.to_vec();
        assert_eq!(Pdu::read(&bytes), Ok((pdu.clone(), bytes.len())), "{bytes:x?}");
        for short in 0..bytes.len() {
            assert!(Pdu::read(&bytes[..short]).is_err(), "{} of {}", short, pdu.kind());
        }
    }
}

#[test]
fn kinds_match_their_tags_and_responses_follow_requests() {
    for (tag, kind) in Kind::ALL.iter().enumerate() {
        assert_eq!(*kind as usize, tag);
        assert_eq!(Kind::of(Tag::context(tag as u32)), Some(*kind));
        if let Some(response) = kind.response() {
            assert_eq!(response as usize, tag + 1);
            assert_eq!(response.response(), None);
        }
    }
    assert_eq!(Kind::of(Tag::context(41)), None);
    assert_eq!(Kind::of(Tag::universal(4)), None);
}

#[test]
fn concatenated_fpdus_are_decoded_up_to_a_limit() {
    let group: Vec<u8> = [&[0xb6, 3, 0x80, 1, 2][..], &[0xb4, 0], &[0xa8, 0], &[0xb8, 0]].concat();
    let read = |most| {
        let mut kinds = Vec::new();
        Pdu::read_all(&group, most, &mut |pdu| kinds.push(pdu.kind())).map(|()| kinds)
    };
    use Kind::{BeginGroupRequest, CloseRequest, DeselectRequest, EndGroupRequest};
    assert_eq!(read(4), Ok(vec![BeginGroupRequest, CloseRequest, DeselectRequest, EndGroupRequest]));
    assert_eq!(read(3), Err(Malformed::Alternative));
    assert_eq!(Pdu::read(&[0xbf, 41, 0]), Err(Malformed::Alternative), "F-CHANGE-PREFIX is left out");
}

mod data {
    use kiban_base::Malformed;
    use kiban_base::Rope;
    use kiban_osi::wire::ber::Tag;
    use kiban_osi::wire::ftam::{DataElement, Structuring};
    use proptest::prelude::*;

    /// Returns one string in every encoding that BER allows.
    fn forms(contents: &[u8]) -> Vec<Vec<u8>> {
        let primitive = |bytes: &[u8]| DataElement::octets(Rope::copied(bytes)).into_rope().to_vec();
        let (front, back) = contents.split_at(contents.len() / 2);
        let segments = [primitive(front), primitive(back)].concat();
        let deep = [&[0x24, 0x80][..], &primitive(back), &[0, 0]].concat();
        let long = |length: usize| [&[0x86, 0, 0][..], &(length as u32).to_be_bytes()].concat();
        vec![
            primitive(contents),
            [&[4][..], &long(contents.len()), contents].concat(),
            [&[0x24][..], &long(segments.len()), &segments].concat(),
            [&[0x24, 0x80][..], &segments, &[0, 0]].concat(),
            [&[0x24, 0x80][..], &primitive(front), &deep, &[0, 0]].concat(),
        ]
    }

    proptest! {
        #[test]
        fn a_string_is_decoded_in_every_form_and_segmentation(
            contents in proptest::collection::vec(any::<u8>(), 0..400),
            cuts in proptest::collection::vec(1..40usize, 1..8),
        ) {
            for form in forms(&contents) {
                let mut rope = Rope::new();
                let (mut rest, mut cuts) = (&form[..], cuts.iter().cycle());
                while !rest.is_empty() {
                    let (piece, behind) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
                    rope.push(piece.to_vec().into());
                    rest = behind;
                }
                rope.push(b"next".to_vec().into());
                let element = DataElement::read(&mut rope).unwrap();
                prop_assert_eq!(element.len(), contents.len());
                prop_assert_eq!(element, DataElement::octets(Rope::from(contents.clone())));
                prop_assert_eq!(rope.to_vec(), b"next");
            }
        }

        #[test]
        fn any_input_is_decoded_or_rejected(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let mut rope = Rope::from(bytes);
            while !rope.is_empty() && DataElement::read(&mut rope).is_ok() {}
        }
    }

    #[test]
    fn contents_are_not_copied() {
        let page = vec![7; 4096];
        let at = page.as_ptr();
        let mut rope = DataElement::octets(Rope::from(page)).into_rope();
        assert_eq!(rope.first_run(), [4, 0x82, 0x10, 0]);
        let DataElement::Value { contents, .. } = DataElement::read(&mut rope).unwrap() else { panic!() };
        assert_eq!(contents.into_bytes().as_ptr(), at);
    }

    #[test]
    fn records_are_encoded_with_their_structure() {
        let record = |text: &str| DataElement::Value {
            tag: Tag::VISIBLE_STRING,
            contents: Rope::copied(text.as_bytes()),
        };
        let file = [
            DataElement::Structuring(Structuring::ROOT),
            DataElement::Structuring(Structuring::ENTER),
            DataElement::Structuring(Structuring::RECORD),
            record("one"),
            DataElement::Structuring(Structuring::RECORD),
            record("two"),
            DataElement::Structuring(Structuring::EXIT),
        ];
        let mut rope = Rope::new();
        file.iter().for_each(|element| rope.append(element.clone().into_rope()));
        assert_eq!(
            rope.to_vec(),
            b"\x60\x03\x82\x01\x00\x41\x00\x60\x00\x1a\x03one\x60\x00\x1a\x03two\x42\x00",
        );
        for element in file {
            assert_eq!(DataElement::read(&mut rope), Ok(element));
        }
        assert!(rope.is_empty());
    }

    #[test]
    fn invalid_data_elements_are_rejected() {
        for (bytes, rule) in [
            (&b""[..], Malformed::Truncated),
            (b"\x04\x05abcd", Malformed::Truncated),
            (b"\x04\x84\xff\xff\xff\xff", Malformed::Truncated),
            (b"\x24\x80\x04\x01a", Malformed::Truncated),
            (b"\x24\x80\x02\x01a\x00\x00", Malformed::Alternative),
            (b"\x24\x80\x04\x01a\x20\x00", Malformed::ElementLength),
            (b"\x24\x80\x04\x01a\x00\x81\x00", Malformed::ElementLength),
            (b"\x02\x01\x05", Malformed::Alternative),
            (b"\x24\x80\x24\x80\x24\x80\x24\x80\x24\x80\x24\x80\x24\x80\x24\x80\x24\x80", Malformed::Nesting),
            (b"\x60\x84\x7f\xff\xff\xff", Malformed::ElementLength),
            (b"\x60\x05\x82\x01\x00", Malformed::Truncated),
        ] {
            let mut rope = Rope::copied(bytes);
            assert_eq!(DataElement::read(&mut rope), Err(rule), "{bytes:x?}");
        }
    }
}

/// Runs an independent codec on these lines, and returns its output.
#[expect(clippy::disallowed_types, reason = "the other codec is a program")]
fn other_codec(lines: &[String]) -> Vec<String> {
    use std::io::Write;
    let mut codec =
        std::process::Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/ftam/codec"))
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("scripts/ftam/codec");
    let mut stdin = codec.stdin.take().expect("it is piped");
    stdin.write_all((lines.join("\n") + "\n").as_bytes()).expect("it reads its input");
    drop(stdin);
    let output = codec.wait_with_output().expect("it ends");
    assert!(output.status.success(), "the codec cannot be had: scripts/ftam/codec says why");
    let said: Vec<_> = String::from_utf8(output.stdout).expect("hex").lines().map(String::from).collect();
    assert_eq!(said.len(), lines.len());
    said
}

#[test]
fn an_independent_codec_encodes_every_kind_to_the_same_bytes() {
    use kiban_osi::wire::ftam::{CheckRequest, CheckResponse};
    let hex = |bytes: Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let pdus = samples::common_samples();
    assert!(Kind::ALL.iter().all(|kind| pdus.iter().any(|pdu| pdu.kind() == *kind)));
    let mut lines: Vec<_> = pdus.iter().map(|pdu| hex(pdu.to_vec())).collect();
    let check = CheckRequest { checkpoint_identifier: 70_000, transfer_number: 1 };
    lines.push(format!("F-CHECK-request {}", hex(check.to_vec())));
    let check = CheckResponse { checkpoint_identifier: 70_000, transfer_number: 1 };
    lines.push(format!("F-CHECK-response {}", hex(check.to_vec())));
    let said = other_codec(&lines);
    let differ: Vec<_> = lines
        .iter()
        .zip(&said)
        .filter(|(line, said)| line.rsplit(' ').next().expect("a line has bytes") != *said)
        .collect();
    assert!(differ.is_empty(), "{} of {}: {differ:#?}", differ.len(), lines.len());
}
