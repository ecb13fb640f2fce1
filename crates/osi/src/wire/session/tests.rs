use super::items::{
    Enclosure, RefuseReason, Resynchronisation, TokenSetting, TokenSettings, Tokens, Units, Versions,
};
use super::read::Tsdu;
use super::spdu::{Abort, Accept, Connect, Enclosed, Identifier, OverflowAccept, Refuse, Spdu, TsduSizes};
use super::write::{data, with_give_tokens};
use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use kiban_base::{Bytes, Malformed, Rope};
use proptest::prelude::*;

/// Parses hexadecimal digits; `__` stands for the number of bytes that follow it.
fn hex(text: &str) -> Vec<u8> {
    if let Some((front, behind)) = text.split_once("__") {
        let behind = hex(behind);
        return [hex(front), vec![behind.len() as u8], behind].concat();
    }
    let digits: Vec<u8> =
        text.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_digit(16).expect("a digit") as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn rope(text: &str) -> Rope {
    hex(text).into()
}

fn read(text: &str) -> Result<Tsdu, Malformed> {
    Tsdu::read(rope(text))
}

fn alone(text: &str) -> Spdu {
    let read = read(text).expect(text);
    assert_eq!(read.then, None);
    read.first
}

fn connect() -> Connect {
    Connect {
        identifier: Identifier::default(),
        extended_concatenation: false,
        tsdu_sizes: TsduSizes::default(),
        versions: Versions::V2,
        initial_serial: None,
        tokens: TokenSettings::default(),
        units: Units::DUPLEX,
        calling: vec![],
        called: vec![],
        overflow: false,
        user_data: Rope::new(),
    }
}

fn accept() -> Accept {
    Accept {
        identifier: Identifier::default(),
        extended_concatenation: false,
        tsdu_sizes: TsduSizes::default(),
        versions: Versions::V2,
        initial_serial: None,
        tokens: TokenSettings::default(),
        please: Tokens::NONE,
        units: Units::DUPLEX,
        calling: vec![],
        responding: vec![],
        data: Enclosed::default(),
    }
}

fn whole(text: &str) -> Enclosed {
    Enclosed::whole(rope(text))
}

/// Returns SPDUs captured from ISODE, libiec61850 and josistack; user data is truncated.
fn captured() -> Vec<(&'static str, &'static str, Spdu)> {
    vec![
        (
            "ISODE connects, in the year 126",
            "0d __ 0118 0a04 1402766d 0b10 170e 313236313132303130303333305a 0506 130100 160102 1402 0002 c107 3180a003800101",
            Spdu::Connect(Box::new(Connect {
                identifier: Identifier {
                    user_reference: hex("1402766d"),
                    common_reference: hex("170e 313236313132303130303333305a"),
                    additional: vec![],
                },
                user_data: rope("3180a003800101"),
                ..connect()
            })),
        ),
        (
            "libiec61850 connects",
            "0d __ 0506 130100 160102 1402 0002 3302 0001 3402 0001 c103 318199",
            Spdu::Connect(Box::new(Connect {
                calling: vec![0, 1],
                called: vec![0, 1],
                user_data: rope("318199"),
                ..connect()
            })),
        ),
        (
            "ISODE accepts",
            "0e __ 0118 0904 1402766d 0b10 170e 313236313132303130303333305a 0506 130100 160102 1402 0002 c107 3180a003800101",
            Spdu::Accept(Box::new(Accept {
                identifier: Identifier {
                    user_reference: hex("1402766d"),
                    common_reference: hex("170e 313236313132303130303333305a"),
                    additional: vec![],
                },
                data: whole("3180a003800101"),
                ..accept()
            })),
        ),
        (
            "libiec61850 accepts",
            "0e __ 0506 130100 160102 1402 0002 3402 0001 c103 3172a0",
            Spdu::Accept(Box::new(Accept { responding: vec![0, 1], data: whole("3172a0"), ..accept() })),
        ),
        (
            "ISODE releases",
            "09 1e 1101 01 c1 19 6117301502010ba010620e800100be092807020101a002a200",
            Spdu::Finish { keep: false, data: whole("6117301502010ba010620e800100be092807020101a002a200") },
        ),
        (
            "ISODE has released",
            "0a 1b c1 19 6117301502010ba010630e800100be092807020101a002a300",
            Spdu::Disconnect(whole("6117301502010ba010630e800100be092807020101a002a300")),
        ),
        (
            "libiec61850 aborts",
            "19 15 1101 0b c1 10 a00e610c300a020101a0056403800100",
            Spdu::Abort(Abort {
                user: true,
                no_reason: true,
                data: whole("a00e610c300a020101a0056403800100"),
                ..Abort::default()
            }),
        ),
        ("data", "0100 0100 610a3008", Spdu::Data(whole("610a3008"))),
    ]
}

#[test]
fn captured_spdus_survive_a_round_trip() {
    for (who, bytes, expected) in captured() {
        assert_eq!(alone(bytes), expected, "{who}");
        let mut again = expected.clone().into_rope();
        if expected.needs_give_tokens() {
            again = with_give_tokens(again);
        }
        assert_eq!(again.to_vec(), hex(bytes), "{who}");
    }
}

#[test]
fn encodings_match_captures() {
    let first = Enclosure { begins: true, ends: false };
    let last = Enclosure { begins: false, ends: true };
    let minor = TokenSettings { minor: TokenSetting::AcceptorChooses, ..TokenSettings::default() };
    let rows = [
        (
            Spdu::Connect(Box::new(Connect {
                tsdu_sizes: TsduSizes { initiator_bytes_max: 1024, responder_bytes_max: 2048 },
                versions: Versions::V1 | Versions::V2,
                initial_serial: Some(1),
                tokens: minor,
                units: Units::DUPLEX | Units::MINOR_SYNCHRONISE | Units::RESYNCHRONISE | Units::TYPED_DATA,
                overflow: true,
                ..connect()
            })),
            "0d __ 0512 130100 1504 04000800 160103 1701 31 1a01 08 1402 042a 3c01 01",
        ),
        (
            Spdu::OverflowAccept(OverflowAccept { tsdu_sizes: TsduSizes::default(), versions: Versions::V2 }),
            "10 03 160102",
        ),
        (
            Spdu::ConnectDataOverflow(Enclosed { enclosure: Some(last), data: rope("aabb") }),
            "0f 07 190102 c102 aabb",
        ),
        (
            Spdu::Refuse(Box::new(Refuse {
                identifier: Identifier::default(),
                keep: false,
                units: None,
                versions: Versions::V2,
                reason: Some(RefuseReason::SelectorUnknown),
                data: Enclosed::default(),
            })),
            "0c __ 110101 160102 3201 81",
        ),
        (
            Spdu::Refuse(Box::new(Refuse {
                identifier: Identifier::default(),
                keep: false,
                units: Some(Units::DUPLEX),
                versions: Versions::V2,
                reason: Some(RefuseReason::UserData),
                data: Enclosed { enclosure: Some(first), data: rope("aabb") },
            })),
            "0c __ 110101 1402 0002 160102 190101 3203 02aabb",
        ),
        (Spdu::Finish { keep: false, data: Enclosed::default() }, "09 03 110101"),
        (Spdu::Disconnect(Enclosed::default()), "0a 00"),
        (Spdu::NotFinished(whole("aa")), "08 03 c101aa"),
        (
            Spdu::Abort(Abort { protocol_error: true, reflect: vec![7], ..Abort::default() }),
            "19 06 110105 310107",
        ),
        (Spdu::AbortAccept, "1a 00"),
        (Spdu::TypedData(whole("aabb")), "21 00 aabb"),
        (Spdu::TypedData(Enclosed { enclosure: Some(first), data: rope("aabb") }), "21 03 190101 aabb"),
        (Spdu::GiveTokens { tokens: Some(Tokens::MINOR), data: Enclosed::default() }, "01 03 100104"),
        (Spdu::PleaseTokens { tokens: Some(Tokens::MINOR), data: whole("aa") }, "02 06 100104 c101aa"),
    ];
    for (spdu, expected) in rows {
        assert_eq!(spdu.clone().into_rope().to_vec(), hex(expected), "{spdu:?}");
        assert_eq!(alone(expected), spdu);
    }
    let rows = [
        (Spdu::Data(Enclosed { enclosure: Some(first), data: rope("aabb") }), "01 03 190101 aabb"),
        (Spdu::SyncMinor { explicit: true, serial: Some(0), data: Enclosed::default() }, "31 03 2a01 30"),
        (
            Spdu::SyncMinor { explicit: false, serial: Some(999_999), data: whole("aa") },
            "31 __ 0f0101 2a06 393939393939 c101aa",
        ),
        (Spdu::SyncMinorAck { serial: Some(12), data: Enclosed::default() }, "32 04 2a02 3132"),
        (
            Spdu::Resynchronise {
                tokens: minor,
                kind: Some(Resynchronisation::Abandon),
                serial: Some(5),
                data: Enclosed { enclosure: Some(first), data: rope("aa") },
            },
            "35 __ 190101 1a0108 1b0101 2a0135 c101aa",
        ),
        (
            Spdu::Resynchronise {
                tokens: TokenSettings::default(),
                kind: None,
                serial: None,
                data: Enclosed { enclosure: Some(last), data: Rope::new() },
            },
            "35 03 190102",
        ),
        (
            Spdu::ResynchroniseAck { tokens: minor, serial: Some(10), data: Enclosed::default() },
            "22 __ 1a0108 2a023130",
        ),
    ];
    for (spdu, expected) in rows {
        assert!(spdu.needs_give_tokens());
        let tsdu = with_give_tokens(spdu.clone().into_rope());
        assert_eq!(tsdu.to_vec()[2..], hex(expected), "{spdu:?}");
        assert_eq!(Tsdu::read(tsdu), Ok(Tsdu { first: spdu, then: None }));
    }
}

#[test]
fn long_lengths_have_the_extended_form() {
    for length in [253, 254, 255, 512, 513, 10240] {
        let spdu = Spdu::Connect(Box::new(Connect { user_data: vec![7; length].into(), ..connect() }));
        let bytes = spdu.clone().into_rope();
        let code = if length > 512 { 194 } else { 193 };
        let at = if length > 240 { 4 } else { 2 } + 8 + 4;
        assert_eq!(bytes.to_vec()[at], code, "{length}");
        assert_eq!(Tsdu::read(bytes), Ok(Tsdu { first: spdu, then: None }));
    }
    // A length field of three octets is valid even if one octet would be enough.
    assert_eq!(alone("0a ff0004 c1ff0000"), Spdu::Disconnect(Enclosed::default()));
    assert_eq!(alone("0a ff0005 c1ff0001 aa"), Spdu::Disconnect(whole("aa")));
}

#[test]
fn a_token_unit_that_names_tokens_comes_second() {
    let both = read("01 03 100104 31 03 2a0135").expect("basic concatenation");
    assert_eq!(both.first, Spdu::SyncMinor { explicit: true, serial: Some(5), data: Enclosed::default() });
    assert_eq!(both.then, Some(Spdu::GiveTokens { tokens: Some(Tokens::MINOR), data: Enclosed::default() }));
    let both = read("02 00 01 00 aabb").expect("basic concatenation");
    assert_eq!(both, Tsdu { first: Spdu::Data(whole("aabb")), then: None });
}

#[test]
fn permitted_variations_are_accepted() {
    // This CONNECT has unknown parameters, reserved bits, parameters outside their groups, parameters out of
    // order, repeated parameters, and empty ones.
    let expected = Connect {
        versions: Versions::V2,
        units: Units::DUPLEX,
        calling: vec![1],
        user_data: rope("aa"),
        ..connect()
    };
    let bytes =
        "0d __ c101aa 1402 e002 0503 1601fe 3301 07 3301 01 1a00 7f02 0102 d300 1301 00 0a00 3400 3c00";
    assert_eq!(alone(bytes), Spdu::Connect(Box::new(expected)));
    // Absent parameters have their defaults.
    let Spdu::Connect(empty) = alone("0d 00") else { panic!("a CONNECT") };
    assert_eq!((empty.versions, empty.units), (Versions::V1, Units::DEFAULT));
    let Spdu::Refuse(empty) = alone("0c 00") else { panic!("a REFUSE") };
    assert_eq!((empty.keep, empty.reason), (false, Some(RefuseReason::User)));
    let Spdu::Abort(empty) = alone("19 00") else { panic!("an ABORT") };
    assert!(!empty.keep && !empty.user);
    assert_eq!(alone("09 00"), Spdu::Finish { keep: false, data: Enclosed::default() });
    assert_eq!(alone("09 03 110100"), Spdu::Finish { keep: true, data: Enclosed::default() });
}

#[test]
fn other_functional_units_are_recognised() {
    for si in [0, 5, 7, 21, 22, 48, 61, 62, 99] {
        assert_eq!(
            Tsdu::read(Rope::copied(&[si, 0, 1, 2, 3])),
            Ok(Tsdu { first: Spdu::Other(si), then: None })
        );
    }
    // ACTIVITY INTERRUPT and ABORT have the same SI, and so do MAJOR SYNC POINT and ACTIVITY END; All SPDUs
    // in this list follow a token SPDU.
    for si in [25, 26, 29, 41, 42, 45, 57, 58] {
        assert_eq!(Tsdu::read(Rope::copied(&[1, 0, si, 0])), Ok(Tsdu { first: Spdu::Other(si), then: None }));
    }
}

#[test]
fn errors_name_the_broken_rule() {
    let rows = [
        ("", Malformed::Truncated),
        ("0d", Malformed::Truncated),
        ("0d ff 00", Malformed::Truncated),
        ("0d 01", Malformed::Truncated),
        ("0d ff ffff 00", Malformed::Truncated),
        ("0a 00 00", Malformed::TotalLength),
        ("01 00", Malformed::Concatenation),
        ("02 00", Malformed::Concatenation),
        ("01 00 0d 00", Malformed::Concatenation),
        ("01 00 02 00", Malformed::Concatenation),
        ("01 00 21 00", Malformed::Concatenation),
        ("02 03 c101aa 01 00 aa", Malformed::Concatenation),
        ("01 00 32 03 2a0131 01 00 aa", Malformed::Concatenation),
        ("01 00 31 00", Malformed::ParameterMissing),
        ("01 00 32 00", Malformed::ParameterMissing),
        ("01 00 35 03 1b0100", Malformed::ParameterMissing),
        ("01 00 35 03 2a0131", Malformed::ParameterMissing),
        ("01 00 22 00", Malformed::ParameterMissing),
        ("10 00", Malformed::ParameterMissing),
        ("01 00 31 03 2a0141", Malformed::ParameterValue),
        ("01 00 31 09 2a07 30303030303031", Malformed::ParameterLength),
        ("01 00 35 06 2a0131 1b0103", Malformed::ParameterValue),
        ("0d 03 c102aa", Malformed::ParameterLength),
        ("0d 03 05020a", Malformed::ParameterLength),
        ("0d 04 1302 0000", Malformed::ParameterLength),
        ("0d 03 1401 02", Malformed::ParameterLength),
        ("0d 13 3311 0000000000000000000000000000000000", Malformed::ParameterLength),
        ("0d 14 0500 0500 0500 0500 0500 0500 0500 0500 0500 0500", Malformed::ParameterLength),
    ];
    for (bytes, rule) in rows {
        assert_eq!(read(bytes), Err(rule), "{bytes}");
    }
    // These groups are deeply nested.
    let mut deep = Rope::new();
    for _ in 0..1000 {
        let length = deep.len() as u16;
        deep.prepend(&[5, 0xff, (length >> 8) as u8, length as u8]);
    }
    let length = deep.len() as u16;
    deep.prepend(&[0x0d, 0xff, (length >> 8) as u8, length as u8]);
    assert_eq!(Tsdu::read(deep), Err(Malformed::ParameterLength));
}

#[test]
fn payload_is_not_copied() {
    let page = Bytes::from(vec![7; 5000]);
    let sent = data(page.clone().into(), None);
    assert_eq!(sent.runs().next(), Some(&[1, 0, 1, 0][..]));
    let Ok(Tsdu { first: Spdu::Data(received), then: None }) = Tsdu::read(sent) else { panic!("data") };
    assert_eq!(received.data.into_bytes().as_ptr(), page.as_ptr());
    let spdu = Spdu::Connect(Box::new(Connect { user_data: page.clone().into(), ..connect() }));
    let Ok(Tsdu { first: Spdu::Connect(received), .. }) = Tsdu::read(spdu.into_rope()) else {
        panic!("connect")
    };
    assert_eq!(received.user_data.into_bytes().as_ptr(), page.as_ptr());
}

#[test]
fn sets_format_their_members() {
    assert_eq!(alloc::format!("{:?}", Units::DUPLEX | Units::TYPED_DATA), "[duplex, typed data]");
    assert!(!Malformed::Concatenation.to_string().is_empty());
    for code in 0..=255 {
        assert_eq!(RefuseReason::of_code(code).code(), code);
        if code & code >> 1 & 0x55 == 0 {
            assert_eq!(TokenSettings::of_octet(code).octet(), code);
        }
    }
}

proptest! {
    #[test]
    fn decoded_units_survive_a_round_trip(
        si in prop::sample::select(vec![1u8, 2, 8, 9, 10, 12, 13, 14, 15, 16, 25, 26, 33, 34, 49, 50, 53, 99]),
        joined in any::<bool>(),
        parameters in proptest::collection::vec(
            (prop::sample::select(vec![1u8, 5, 9, 10, 11, 12, 15, 16, 17, 19, 20, 21, 22, 23, 25, 26, 27, 42, 49, 50, 51, 52, 57, 60, 193, 194, 77]),
             proptest::collection::vec(prop_oneof![Just(b'1'), any::<u8>()], 0..5)), 0..8),
        cut in 0..40usize,
    ) {
        let body: Vec<u8> = parameters.into_iter()
            .flat_map(|(code, value)| [vec![code, value.len() as u8], value].concat())
            .collect();
        let mut bytes = if joined { vec![1, 0] } else { vec![] };
        bytes.extend([si, body.len() as u8]);
        bytes.extend(body);
        // The result is the same for a rope of two pieces, wherever it is cut.
        let cut = cut.min(bytes.len());
        let mut rope = Rope::from(bytes[..cut].to_vec());
        rope.append(bytes[cut..].to_vec().into());
        let read = Tsdu::read(rope);
        prop_assert_eq!(&read, &Tsdu::read(bytes.clone().into()));
        if let Ok(Tsdu { first, then: None }) = read {
            let mut again = first.clone().into_rope();
            if joined || first.needs_give_tokens() {
                again = with_give_tokens(again);
            }
            prop_assert_eq!(Tsdu::read(again), Ok(Tsdu { first, then: None }));
        }
    }
}

#[test]
fn a_later_segment_is_user_data_and_nothing_else() {
    // The second of two segments of a REFUSE has a Connection Identifier; only its user data is decoded.
    let bytes = vec![12, 11, 9, 1, b'1', 25, 1, 2, 50, 3, 7, 8, 9];
    let Ok(Tsdu { first: Spdu::Refuse(refuse), .. }) = Tsdu::read(bytes.into()) else { panic!("refuse") };
    assert_eq!(refuse.reason, None);
    assert_eq!(refuse.identifier, Identifier::default());
    assert_eq!(refuse.data.data, Rope::copied(&[7, 8, 9]));
}
