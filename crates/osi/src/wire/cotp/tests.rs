use super::tpdu::{Connect, RejectCause, Tpdu, code, data_end};
use alloc::vec;
use alloc::vec::Vec;
use kiban_base::Malformed;
use proptest::prelude::*;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_digit(16).expect("a digit") as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn request(connect: Connect) -> Tpdu {
    Tpdu::ConnectRequest(connect)
}

/// Returns TPDUs captured from three implementations, without their TPKT headers.
fn captured() -> Vec<(&'static str, &'static str, Tpdu)> {
    let isode = Connect { source: 0x7a21, tpdu_size: Some(11), ..Connect::default() };
    let mms = Connect {
        source: 1,
        tpdu_size: Some(13),
        called: Some(vec![0, 1]),
        calling: Some(vec![0, 1]),
        ..Connect::default()
    };
    let java = Connect { tpdu_size: Some(16), calling: Some(vec![0, 0]), ..mms.clone() };
    vec![
        (
            "ISODE calls",
            "0d e0 0000 7a21 00 c2 02 0103 c0 01 0b",
            request(Connect { called: Some(vec![1, 3]), ..isode.clone() }),
        ),
        (
            "ISODE answers",
            "09 d0 7a21 7a22 00 c0 01 0b",
            Tpdu::ConnectConfirm(Connect { destination: 0x7a21, source: 0x7a22, ..isode }),
        ),
        ("libiec61850 calls", "11 e0 0000 0001 00 c0 01 0d c2 02 0001 c1 02 0001", request(mms.clone())),
        (
            "libiec61850 answers",
            "11 d0 0001 0001 00 c0 01 0d c2 02 0001 c1 02 0001",
            Tpdu::ConnectConfirm(Connect { destination: 1, ..mms }),
        ),
        ("josistack calls", "11 e0 0000 0001 00 c0 01 10 c2 02 0001 c1 02 0000", request(java.clone())),
        (
            "josistack answers",
            "11 d0 0001 0002 00 c2 02 0001 c1 02 0000 c0 01 10",
            Tpdu::ConnectConfirm(Connect { destination: 1, source: 2, ..java }),
        ),
        (
            "ISODE ends",
            "06 80 7a22 7a21 80",
            Tpdu::DisconnectRequest { destination: 0x7a22, source: 0x7a21, reason: 0x80, additional: vec![] },
        ),
        (
            "ISODE refuses class 4",
            "04 70 0000 00",
            Tpdu::Error { destination: 0, cause: RejectCause::NotSpecified, invalid: vec![] },
        ),
        ("data", "02 f0 80", Tpdu::Data { end: true }),
        ("data that goes on", "02 f0 00", Tpdu::Data { end: false }),
    ]
}

#[test]
fn captured_tpdus_are_decoded() {
    for (who, bytes, expected) in captured() {
        let mut bytes = hex(bytes);
        let length = bytes.len();
        bytes.extend_from_slice(b"user data");
        assert_eq!(Tpdu::read(&bytes), Ok((expected, length)), "{who}");
    }
}

#[test]
fn encodings_match_captures() {
    let rows = [
        (
            request(Connect {
                source: 0x7a21,
                called: Some(vec![1, 3]),
                tpdu_size: Some(11),
                ..Connect::default()
            }),
            "0d e0 0000 7a21 00 c2 02 0103 c0 01 0b",
        ),
        (
            request(Connect { source: 1, preferred: Some(511), tpdu_size: Some(7), ..Connect::default() }),
            "0d e0 0000 0001 00 c0 01 07 f0 02 01ff",
        ),
        (
            request(Connect { source: 1, preferred: Some(0), ..Connect::default() }),
            "09 e0 0000 0001 00 f0 01 00",
        ),
        (
            request(Connect {
                class: 4,
                options: 2,
                version: Some(1),
                additional_options: Some(1),
                alternatives: vec![0x20, 0x00],
                ..Connect::default()
            }),
            "10 e0 0000 0000 42 c4 01 01 c6 01 01 c7 02 2000",
        ),
        (
            Tpdu::DisconnectRequest { destination: 1, source: 0, reason: 3, additional: b"who?".to_vec() },
            "0c 80 0001 0000 03 e0 04 77686f3f",
        ),
        (
            Tpdu::Error { destination: 9, cause: RejectCause::Type, invalid: vec![2, 0x10] },
            "08 70 0009 02 c1 02 0210",
        ),
        (Tpdu::Data { end: true }, "02 f0 80"),
    ];
    for (tpdu, expected) in rows {
        let expected = hex(expected);
        let mut bytes = vec![0xa5; tpdu.length()];
        assert_eq!(tpdu.write(&mut bytes), expected.len());
        assert_eq!(bytes, expected, "{tpdu:?}");
        assert_eq!(Tpdu::read(&bytes), Ok((tpdu, expected.len())));
    }
}

#[test]
fn errors_name_the_broken_rule() {
    let rows = [
        ("", Malformed::Truncated),
        ("00", Malformed::HeaderLength),
        ("ff e0 0000", Malformed::HeaderLength),
        ("06 e0 0000 0001", Malformed::Truncated),
        ("05 e0 0000 0001", Malformed::HeaderLength),
        ("05 80 0000 0001", Malformed::HeaderLength),
        ("01 f0", Malformed::HeaderLength),
        ("04 f0 00 00 80", Malformed::HeaderLength),
        ("03 70 0000", Malformed::HeaderLength),
        ("02 30 00", Malformed::Operation),
        ("07 e0 0000 0001 00 c0", Malformed::OptionLength),
        ("08 e0 0000 0001 00 c0 01", Malformed::OptionLength),
        ("0a e0 0000 0001 00 c0 02 0b0b", Malformed::OptionLength),
        ("08 e0 0000 0001 00 f0 00", Malformed::OptionLength),
        ("0d e0 0000 0001 00 f0 05 0000000001", Malformed::OptionLength),
    ];
    for (bytes, rule) in rows {
        assert_eq!(Tpdu::read(&hex(bytes)), Err(rule), "{bytes}");
    }
}

#[test]
fn unknown_parameters_are_skipped() {
    // This CR has a checksum, a throughput parameter, an unknown parameter, and two TPDU sizes.
    let bytes = hex("19 e0 0000 0001 40 c3 02 beef 89 01 00 aa 00 c0 01 0a c0 01 09 99 02 0102");
    let expected = Connect { source: 1, class: 4, tpdu_size: Some(9), ..Connect::default() };
    assert_eq!(Tpdu::read(&bytes), Ok((request(expected), bytes.len())));
    for (code, octet) in [(0xc0, 0xc0), (0x10, 0x10), (0x60, 0x6f), (0x20, 0x20), (0x50, 0x53)] {
        assert_eq!(Tpdu::read(&[3, octet, 0, 1]), Ok((Tpdu::Other(code), 4)));
    }
}

#[test]
fn class_0_as_an_alternative_is_decoded() {
    for (class, alternatives, offered) in [
        (0, vec![], true),
        (1, vec![], true),
        (2, vec![], false),
        (4, vec![], false),
        (4, vec![0x20], false),
        (4, vec![0x20, 0x00], true),
        (3, vec![0x10], true),
    ] {
        let connect = Connect { class, alternatives, ..Connect::default() };
        assert_eq!(connect.offers_class_0(), offered, "{connect:?}");
    }
}

proptest! {
    #[test]
    fn decoded_units_survive_a_round_trip(bytes in proptest::collection::vec(any::<u8>(), 0..60), kind in 0..6usize) {
        let mut bytes = bytes;
        if let [length, code, ..] = &mut bytes[..] {
            *length = (*length).min(59);
            *code = [*code, 0xe0, 0xd0, 0x80, 0x70, 0xf0][kind];
        }
        if let Ok((tpdu, used)) = Tpdu::read(&bytes) {
            prop_assert!(used <= bytes.len());
            let mut again = vec![0; tpdu.length()];
            prop_assert_eq!(tpdu.write(&mut again), again.len());
            prop_assert_eq!(Tpdu::read(&again), Ok((tpdu.clone(), again.len())));
            if let Tpdu::Data { end } = tpdu {
                prop_assert_eq!(data_end(&bytes), (bytes[1] == code::DT).then_some(end));
            }
        }
    }
}
