//! Tests with PPDUs from captures of ISODE, libiec61850 and josistack, and with user data in every encoding,
//! on ropes that are cut at every position.

use super::ppdu::{
    Abort, AbortReason, Arp, BER, ContextResult, Cp, Cpa, Cpr, Event, ModeSelector, ProviderReason,
    Resynchronise, Version,
};
use super::user_data::{PDVS_MAX, Pdv, PdvValue, UserData};
use crate::wire::acse::{
    self, AbortSource, Apdu, AssociateDiagnostic, AssociateResult, AuthenticationValue, UserDiagnostic,
};
use crate::wire::ber::{Asn1, Cursor, Element, Header, Integer, Oid};
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use kiban_base::{Bytes, Malformed, Rope};
use proptest::prelude::*;

const ISODE_CP: &str = "3180a003800101a280a46c3010020101060528c27b02013004060251013010020103060528c27b0204300406025101
    3010020105060528c27b0203300406025101301002010706052b0e050202300406025101301102010906062bce0f010202300406025101300f
    02010b0604520100013004060251016168306602010ba061605fa107060528c27b0101a206060439040010be4c284a06025101020101a041a0
    3f830204708402003785020780860100a71d4e0528c27b05034e0528c27b05014e052b0e0505094e062bce0f01050956056674616d75710804
    0673656372657400000000";
const ISODE_CPA: &str = "3180a003800101a280a5323007800100810251013007800100810251013007800100810251013007800100810251013
    0038001013007800100810251016153305102010ba04c614aa107060528c27b0101a203020100a305a103020100be33283106025101020101a0
    28a126830204108402003785020780860100a7154e0528c27b05034e0528c27b05014e052b0e05050900000000";
/// A group of FPDUs sent by ISODE as a segmented octet string.
const ISODE_TD: &str =
    "612d302b020101a1260405b603800103040da60b7305a00319012e430202040406ae04800205a00402a8000402b800";
const ISODE_RELEASE: &str = "6117301502010ba010620e800100be092807020101a002a200";
const ISODE_RELEASED: &str = "6117301502010ba010630e800100be092807020101a002a300";
const MMS_CP: &str = "318199a003800101a28191810400000001820400000001a423300f0201010604520100013004060251013010020103060
    528ca220201300406025101615e305c020101a0576055a107060528ca220203a20706052901876701a30302010ca606060429018767a7030201
    0cbe2f282d020103a028a826800300fde881010582010583010aa416800101810305f100820c03ee1c00000408000079ef18";
const MMS_CPA: &str = "3172a003800101a26b830400000001a512300780010081025101300780010081025101614f304d020101a0486146a1070
    60528ca220203a203020100a305a103020100be2f282d020103a028a926800300fde881010582010583010aa416800101810305f100820c03ee
    1c00000002000040ed18";
const MMS_ABORT: &str = "a00e610c300a020101a0056403800100";
const JOSISTACK_CP: &str = "318190a003800101a28188810400000001820400000001a423300f0201010604520100013004060251013010020
    103060528ca22020130040602510161553053020101a04e604ca107060528ca220203a206060429876701a30302010ca606060429876702a703
    02010d8a0207808b03520301ac09800769676e6f726564be13281106025101020103a008a80680010180010a";
const JOSISTACK_TD: &str = "6111300f020103a00a04000000000000000000";

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(core::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// Decodes all of the bytes. Checks that the value, when encoded and decoded again, is unchanged.
#[track_caller]
fn read<T: Asn1 + PartialEq + core::fmt::Debug>(text: &str) -> T {
    let bytes = hex(text);
    let (value, count) = T::read(&bytes).unwrap();
    assert_eq!(count, bytes.len());
    let again = value.to_vec();
    assert_eq!(T::read(&again).as_ref().map(|(value, _)| value), Ok(&value));
    value
}

#[track_caller]
fn apdu_of(data: Option<UserData>) -> (i64, Apdu) {
    let Some(UserData::Full(values)) = data else { panic!("no values") };
    let bytes = values[0].octets().to_vec();
    let (apdu, count) = Apdu::read(&bytes).unwrap();
    assert_eq!((values.len(), count), (1, bytes.len()));
    assert_eq!(apdu.to_vec(), bytes, "what others sent in definite lengths, we write just so");
    (values[0].context, apdu)
}

#[test]
fn an_ftam_association_of_isode_is_decoded() {
    let cp = read::<Cp>(ISODE_CP);
    assert_eq!(cp.mode, ModeSelector::NORMAL);
    let parameters = cp.parameters.unwrap();
    let contexts = parameters.contexts.unwrap();
    let known: Vec<_> =
        contexts.iter().map(|context| (context.id, context.abstract_syntax.to_string())).collect();
    let expected = [
        (1, "1.0.8571.2.1"),
        (3, "1.0.8571.2.4"),
        (5, "1.0.8571.2.3"),
        (7, "1.3.14.5.2.2"),
        (9, "1.3.9999.1.2.2"),
        (11, "2.2.1.0.1"),
    ];
    assert_eq!(known, expected.map(|(id, name)| (id, name.to_string())));
    assert!(contexts.iter().all(|context| context.transfer_syntaxes == [BER]));
    let (context, Apdu::Aarq(aarq)) = apdu_of(parameters.user_data) else { panic!("no AARQ") };
    assert_eq!(context, 11);
    assert_eq!(aarq.application_context, Oid::of("1.0.8571.1.1"));
    assert_eq!(aarq.called_ap_title, Some(acse::ApTitle::Form2(Oid::of("1.17.4.0.16"))));
    let information: Vec<Pdv> = aarq.user_information.unwrap().into_iter().map(Pdv::from).collect();
    assert_eq!((information[0].context, information[0].transfer_syntax), (1, Some(BER)));
    let initialize = information[0].octets().to_vec();
    assert_eq!(Element::read(&initialize).unwrap().0.tag, crate::wire::ber::Tag::context(0));

    let parameters = read::<Cpa>(ISODE_CPA).parameters.unwrap();
    let results = parameters.results.unwrap();
    let rejected = ContextResult::USER_REJECTION;
    let accepted = ContextResult::accepted(BER);
    assert_eq!(results, [&accepted, &accepted, &accepted, &accepted, &rejected, &accepted].map(Clone::clone));
    let (11, Apdu::Aare(aare)) = apdu_of(parameters.user_data) else { panic!("no AARE") };
    assert_eq!(aare.result, AssociateResult::ACCEPTED);
    assert_eq!(aare.diagnostic, AssociateDiagnostic::ServiceUser(UserDiagnostic::NULL));

    let released = |text| apdu_of(Some(UserData::from_rope(hex(text).into()).unwrap())).1;
    let Apdu::Rlrq(rlrq) = released(ISODE_RELEASE) else { panic!("no RLRQ") };
    assert_eq!(rlrq.reason, Some(acse::ReleaseRequestReason::NORMAL));
    let Apdu::Rlre(rlre) = released(ISODE_RELEASED) else { panic!("no RLRE") };
    assert_eq!(rlre.reason, Some(acse::ReleaseResponseReason::NORMAL));

    let group = hex("b603800103 a60b7305a00319012e43020204 ae04800205a0 a800 b800");
    let data = UserData::from_rope(hex(ISODE_TD).into());
    assert_eq!(data, Ok(UserData::Full(vec![Pdv::octet_aligned(1, group)])));
}

#[test]
fn associations_of_iec_61850_and_josistack_are_decoded() {
    let cp = read::<Cp>(MMS_CP);
    assert_eq!(cp.to_vec(), hex(MMS_CP));
    let parameters = cp.parameters.unwrap();
    assert_eq!(parameters.calling_selector, Some(vec![0, 0, 0, 1]));
    let (1, Apdu::Aarq(aarq)) = apdu_of(parameters.user_data) else { panic!("no AARQ") };
    assert_eq!(aarq.called_ae_qualifier, Some(acse::AeQualifier::Form2(12)));
    let cpa = read::<Cpa>(MMS_CPA);
    assert_eq!(cpa.to_vec(), hex(MMS_CPA));
    assert_eq!(cpa.parameters.unwrap().responding_selector, Some(vec![0, 0, 0, 1]));

    let Abort::User(aru) = read::<Abort>(MMS_ABORT) else { panic!("no ARU") };
    assert_eq!(aru.contexts, None);
    let (1, Apdu::Abrt(abrt)) = apdu_of(aru.user_data) else { panic!("no ABRT") };
    assert_eq!(abrt.source, AbortSource::SERVICE_USER);

    let cp = read::<Cp>(JOSISTACK_CP);
    assert_eq!(cp.to_vec(), hex(JOSISTACK_CP));
    let (1, Apdu::Aarq(aarq)) = apdu_of(cp.parameters.unwrap().user_data) else { panic!("no AARQ") };
    assert_eq!(aarq.requirements, Some(acse::Requirements::AUTHENTICATION));
    assert_eq!(aarq.mechanism, Some(acse::PASSWORD_MECHANISM));
    assert_eq!(aarq.authentication, Some(AuthenticationValue::Charstring("ignored".into())));
    let data = UserData::from_rope(hex(JOSISTACK_TD).into()).unwrap();
    assert_eq!(data, UserData::Full(vec![Pdv::single(3, hex("04000000000000000000")[..10].to_vec())]));
    assert_eq!(data.into_rope().to_vec(), hex(JOSISTACK_TD));
}

#[test]
fn refusals_and_aborts_of_the_provider_are_short() {
    let cpr = Cpr {
        version: Version::VERSION_1,
        responding_selector: None,
        results: None,
        default_result: None,
        reason: Some(ProviderReason::CALLED_ADDRESS_UNKNOWN),
        user_data: None,
    };
    assert_eq!(cpr.to_vec(), hex("30 03 8a0103"));
    let arp = Abort::Provider(Arp { reason: Some(AbortReason::UNEXPECTED_PPDU), event: Some(Event::TD) });
    assert_eq!(arp.to_vec(), hex("30 06 800102 810107"));
    assert_eq!(Abort::read(&arp.to_vec()).unwrap().0, arp);
    // Session version 1 carries nine octets with an abort (X.225), and this ARP fits.
    assert!(arp.to_vec().len() <= 9);
    assert_eq!(Abort::read(&hex("3100")), Err(Malformed::Alternative));
}

#[test]
fn values_are_not_copied() {
    let page = Bytes::from(vec![7u8; 100_000]);
    let mut value = Rope::from(page.clone());
    value.prepend(&hex("048400 0186a0"));
    let sent = UserData::Full(vec![Pdv::single(3, value)]).into_rope();
    assert_eq!(sent.to_vec()[..22], hex("61 8301 86b3 30 8301 86ae 020103 a0 8301 86a6 048400 01")[..]);
    let pieces = sent.clone().into_pieces();
    let mut arrived = Rope::new();
    pieces.for_each(|piece| piece.chunks(2045).for_each(|part| arrived.push(page_part(&piece, part))));
    let Ok(UserData::Full(values)) = UserData::from_rope(arrived) else { panic!("not read") };
    let lies = |run: &[u8]| page.as_ptr_range().contains(&run.as_ptr());
    assert_eq!(values[0].octets().runs().filter(|run| lies(run)).map(<[u8]>::len).sum::<usize>(), page.len());
}

/// Returns `part` as a slice that shares the memory of `piece`.
fn page_part(piece: &Bytes, part: &[u8]) -> Bytes {
    piece.slice_ref(part)
}

#[test]
fn invalid_user_data_is_rejected() {
    let rows: &[(&str, Malformed)] = &[
        ("", Malformed::Truncated),
        ("61 00", Malformed::ElementMissing),
        ("61 80 0000", Malformed::ElementMissing),
        ("62 00", Malformed::Alternative),
        ("61 02 0500", Malformed::Alternative),
        ("61 04 3002 0500", Malformed::ElementMissing),
        ("61 07 3005 020103 0500", Malformed::ElementMissing),
        ("61 09 3007 020103 a0 030500", Malformed::Truncated),
        ("61 09 3007 020103 80 020500", Malformed::ElementForm),
        ("61 09 3007 020103 a1 020404", Malformed::Truncated),
        ("61 09 3007 020103 82 020800", Malformed::ElementValue),
        ("61 80 3080 020103 a0020500", Malformed::Truncated),
        ("61 08 3084 7fffffff 0201", Malformed::Truncated),
        // Other encodings of tag zero and length zero are not end-of-contents octets.
        ("6180 3080 020103 a080 0500 0000 0000 3f0000", Malformed::Alternative),
        ("6180 3080 020103 a080 3f0000 0000 0000 008100", Malformed::Alternative),
        ("41 00", Malformed::ElementForm),
    ];
    for &(bytes, expected) in rows {
        assert_eq!(UserData::from_rope(hex(bytes).into()), Err(expected), "{bytes}");
    }
    let many = |count: usize| UserData::Full(vec![Pdv::single(1, hex("0500")); count]).into_rope();
    assert!(UserData::from_rope(many(PDVS_MAX)).is_ok());
    assert_eq!(UserData::from_rope(many(PDVS_MAX + 1)), Err(Malformed::TooMany));
    let deep = [hex("61803080020103"), [0xa1, 0x80].repeat(1_000_000)].concat();
    assert_eq!(UserData::from_rope(deep.into()), Err(Malformed::Nesting));
    let deep = [hex("61803080020103a080"), [0x30, 0x80].repeat(1_000_000)].concat();
    assert_eq!(UserData::from_rope(deep.into()), Err(Malformed::Nesting));
}

fn octets() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..300)
}

fn pdv() -> impl Strategy<Value = Pdv> {
    let value = prop_oneof![
        octets().prop_map(|octets| PdvValue::Single(octets.to_vec().to_rope())),
        octets().prop_map(|octets| PdvValue::OctetAligned(octets.into())),
        (octets(), 0..8u8).prop_map(|(octets, unused)| PdvValue::Arbitrary {
            unused: if octets.is_empty() { 0 } else { unused },
            octets: octets.into(),
        }),
    ];
    (any::<i64>(), any::<bool>(), value).prop_map(|(context, named, value)| Pdv {
        context,
        transfer_syntax: named.then_some(BER),
        value,
    })
}

fn user_data() -> impl Strategy<Value = UserData> {
    prop_oneof![
        octets().prop_map(|octets| UserData::Simple(octets.into())),
        proptest::collection::vec(pdv(), 1..5).prop_map(UserData::Full),
    ]
}

/// Re-encodes presentation elements with indefinite or long lengths, and octet-aligned values in segments.
fn in_other_forms(bytes: &[u8], forms: &mut dyn Iterator<Item = (bool, u8)>) -> Vec<u8> {
    let mut out = Vec::new();
    for element in Cursor::new(bytes) {
        let element = element.unwrap();
        let (indefinite, zeros) = forms.next().unwrap();
        let segmented = [Tag::context(1), Tag::context(2)].contains(&element.tag) && zeros == 1;
        let contents = if segmented && element.tag == Tag::context(1) {
            element.contents().chunks(7).flat_map(|segment| segment.to_vec().to_vec()).collect()
        } else if segmented {
            crate::wire::ber::BitString::from_element(&element).unwrap().to_vec()
        } else if element.constructed {
            in_other_forms(element.contents(), forms)
        } else {
            element.contents().to_vec()
        };
        let constructed = element.constructed || segmented;
        if element.tag == Tag::OCTET_STRING {
            // An element inside a single value is kept unchanged.
            out.extend_from_slice(element.whole());
            continue;
        }
        let header = Header { tag: element.tag, constructed, length: Some(0) };
        let mut room = [0; Header::BYTES_MAX];
        let at = header.write_before(&mut room);
        out.extend_from_slice(&room[at..room.len() - 1]);
        let indefinite = indefinite && constructed;
        if indefinite {
            out.push(0x80);
        } else {
            out.push(0x84 + zeros);
            out.extend(core::iter::repeat_n(0, zeros.into()));
            out.extend((contents.len() as u32).to_be_bytes());
        }
        out.extend(&contents);
        if indefinite {
            out.extend([0, 0]);
        }
    }
    out
}

use crate::wire::ber::Tag;

fn in_pieces(bytes: &[u8], sizes: &[usize]) -> Rope {
    let mut rest = Bytes::copy_from_slice(bytes);
    let mut rope = Rope::new();
    for size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        rope.push(rest.split_to((*size).min(rest.len())));
    }
    rope
}

proptest! {
    #[test]
    fn user_data_is_decoded_in_any_pieces_and_forms(
        data in user_data(), forms in proptest::collection::vec((any::<bool>(), 0..60u8), 1..20),
        sizes in proptest::collection::vec(1..100usize, 1..5), behind in octets(),
    ) {
        let bytes = data.clone().into_rope().to_vec();
        prop_assert_eq!(UserData::from_rope(in_pieces(&bytes, &sizes)), Ok(data.clone()));
        prop_assert_eq!(UserData::read(&bytes), Ok((data.clone(), bytes.len())));
        let forms = &mut forms.into_iter().map(|(indefinite, zeros)| (indefinite, zeros % 7)).cycle();
        let other = [in_other_forms(&bytes, forms), behind].concat();
        prop_assert_eq!(UserData::from_rope(in_pieces(&other, &sizes)), Ok(data));
    }

    #[test]
    fn cut_user_data_is_truncated_and_corrupt_is_decoded_or_rejected(
        data in user_data(), sizes in proptest::collection::vec(1..100usize, 1..5), at in any::<prop::sample::Index>(),
        octet in any::<u8>(),
    ) {
        let mut bytes = data.into_rope().to_vec();
        for cut in 0..bytes.len() {
            prop_assert_eq!(UserData::from_rope(in_pieces(&bytes[..cut], &sizes)), Err(Malformed::Truncated));
        }
        let at = at.index(bytes.len());
        bytes[at] = octet;
        let whole = UserData::from_rope(bytes.clone().into());
        prop_assert_eq!(UserData::from_rope(in_pieces(&bytes, &sizes)), whole);
    }

    #[test]
    fn any_bytes_are_decoded_or_rejected(bytes in octets(), start in 0..6usize) {
        let bytes = [&hex(["", "31", "30", "61", "60", "a0"][start])[..], &bytes].concat();
        let _ = Cp::read(&bytes);
        let _ = Cpa::read(&bytes);
        let _ = Cpr::read(&bytes);
        let _ = Abort::read(&bytes);
        let _ = Resynchronise::read(&bytes);
        let _ = Apdu::read(&bytes);
        let _ = UserData::from_rope(bytes.into());
    }
}

#[test]
fn an_external_equals_its_pdv() {
    let all = [
        Pdv::single(3, 7i64.to_vec()),
        Pdv { transfer_syntax: Some(BER), ..Pdv::octet_aligned(Pdv::NO_CONTEXT, vec![1, 2]) },
        Pdv { value: PdvValue::Arbitrary { octets: vec![0x80].into(), unused: 7 }, ..Pdv::single(5, vec![]) },
    ];
    for pdv in all {
        let external = crate::wire::ber::External::from(&pdv);
        assert_eq!(Pdv::from(external), pdv);
    }
    assert_eq!(Integer::read(&7i64.to_vec()), Ok((7, 3)));
}
