//! Start frames: those that siw in Linux 6.1 was observed to send, and all combinations of settings at two
//! ends of our own.

use super::hex;
use kiban_rdma::iwarp::mpa::{
    Agreed, Answer, Config, CrcUse, Initiator, PeerRequest, PrivateDataTooLong, Responder, Rtr, SetupFault,
};
use proptest::prelude::*;

/// Creates a responder with siw's limits.
fn siw() -> Config {
    Config { markers_out: false, private_data_bytes_max: 256, ..Config::default() }
}

/// Builds a request from the bytes after its key.
fn request(rest: &str) -> Vec<u8> {
    [b"MPA ID Req Frame", &hex(rest)[..]].concat()
}

/// Builds a reply from the bytes after its key.
fn reply(rest: &str) -> Vec<u8> {
    [b"MPA ID Rep Frame", &hex(rest)[..]].concat()
}

fn agreed(answer: Result<Answer, SetupFault>) -> Result<Agreed, SetupFault> {
    match answer {
        Ok(Answer::Agreed(agreed)) => Ok(agreed),
        Err(fault) => Err(fault),
        Ok(other) => panic!("{other:?}"),
    }
}

#[test]
fn a_responder_answers_like_siw() {
    // The request, and the reply if the host accepts it. The depths are 128, or those in the request if they
    // are lower.
    let rows = [
        ("rping", "1002 0004 0001 0001", "1002 0004 0001 0001"),
        ("perftest, control", "1002 0004 0000 0000", "1002 0004 0000 0000"),
        ("perftest, reads", "1002 0004 0080 0080", "1002 0004 0080 0080"),
        ("unequal depths change places", "1002 0004 0003 0007", "1002 0004 0007 0003"),
        ("depths are clamped", "1002 0004 3fff 3fff", "1002 0004 0080 0080"),
        ("revision 1", "0001 0000", "0001 0000"),
        ("revision 0", "0000 0000", "0000 0000"),
        ("revision 2 without the set-up word", "0002 0000", "0002 0000"),
        ("revision 1 and a reserved bit", "1001 0000", "0001 0000"),
        ("CRCs", "4001 0000", "4001 0000"),
        ("CRCs and the set-up word", "5002 0004 0001 0001", "5002 0004 0001 0001"),
        ("every kind of RTR: write", "1002 0004 c001 c001", "1002 0004 8001 8001"),
        ("write or read: write", "1002 0004 8001 c001", "1002 0004 8001 8001"),
        ("read alone", "1002 0004 8001 4001", "1002 0004 8001 4001"),
        ("an empty FPDU alone: write", "1002 0004 c001 0001", "1002 0004 8001 8001"),
        ("no kind at all: write", "1002 0004 8001 0001", "1002 0004 8001 8001"),
        ("kinds without peer-to-peer", "1002 0004 4001 c001", "1002 0004 0001 0001"),
    ];
    for (name, asks, expected) in rows {
        let mut responder = Responder::new(&siw());
        let asked = responder.take(&request(asks)).unwrap_or_else(|refused| panic!("{name}: {refused:?}"));
        let asked = asked.expect("the request is whole");
        let (bytes, agreed) = responder.accept(&[], asked.ird, asked.ord).unwrap();
        assert_eq!(bytes, reply(expected), "{name}");
        assert_eq!(agreed.crc, expected.as_bytes()[0] & 4 != 0, "{name}");
        assert_eq!(agreed.rtr.is_some(), asked.peer_to_peer, "{name}");
    }
}

#[test]
fn a_responder_rejects_like_siw() {
    let long =
        |bytes: usize| [request("0001"), (bytes as u16).to_be_bytes().to_vec(), vec![7; bytes]].concat();
    let early = [request("1002 0004 0001 0001"), hex("0000 0000 00000000")].concat();
    let rows = [
        ("markers", request("8001 0000"), SetupFault::Markers, reply("2001 0000")),
        ("markers and CRCs", request("c001 0000"), SetupFault::Markers, reply("6001 0000")),
        (
            "markers and the set-up word",
            request("9002 0004 0001 0001"),
            SetupFault::Markers,
            reply("3002 0004 0001 0001"),
        ),
        ("no set-up word", request("1002 0000"), SetupFault::SetupLength, reply("3002 0000")),
        ("half a set-up word", request("1002 0003 000100"), SetupFault::SetupLength, reply("3002 0000")),
        ("revision 3", request("1003 0004 0001 0001"), SetupFault::Revision, vec![]),
        ("another's key", reply("0001 0000"), SetupFault::Key, vec![]),
        ("not MPA", b"GET / HTTP/1.1\r\n".to_vec(), SetupFault::Key, vec![]),
        ("private data too long", long(257), SetupFault::PrivateDataLength, vec![]),
        ("an FPDU with the request", early, SetupFault::Early, vec![]),
    ];
    for (name, bytes, fault, expected) in rows {
        let refused = Responder::new(&siw()).take(&bytes).expect_err(name);
        assert_eq!((refused.fault, refused.reply), (fault, expected), "{name}");
        // The result is the same if the bytes arrive one at a time.
        let mut responder = Responder::new(&siw());
        let refused = bytes.chunks(1).find_map(|byte| responder.take(byte).err()).expect(name);
        assert_eq!(refused.fault, fault, "{name}");
    }
    assert!(Responder::new(&siw()).take(&long(256)).unwrap().is_some());
    assert!(Responder::new(&Config::default()).take(&long(512)).unwrap().is_some());
    let refused = Responder::new(&Config::default()).take(&long(513)).unwrap_err();
    assert_eq!(refused.fault, SetupFault::PrivateDataLength);
}

#[test]
fn a_wrong_key_is_rejected_at_its_first_wrong_byte() {
    let mut responder = Responder::new(&Config::default());
    assert_eq!(responder.take(b"MPA ID Re"), Ok(None));
    assert_eq!(responder.take(b"p").unwrap_err().fault, SetupFault::Key);
}

#[test]
fn data_before_the_reply_is_a_fault() {
    let mut responder = Responder::new(&Config::default());
    responder.take(&request("1002 0004 0001 0001")).unwrap().unwrap();
    assert_eq!(responder.take(&[]), Ok(None));
    assert_eq!(responder.take(&[0]).unwrap_err().fault, SetupFault::Early);
}

/// The values that an initiator has agreed on after a reply: CRC, markers sent, IRD, ORD, RTR.
type View = (bool, bool, u16, u16, Option<Rtr>);

#[test]
fn an_initiator_accepts_valid_replies_and_rejects_others() {
    let plain = Config::default();
    let p2p = Config { peer_to_peer: true, ..Config::default() };
    let read = Config { rtr_write: false, ..p2p.clone() };
    let wanted = Config { crc: CrcUse::Wanted, ..Config::default() };
    let required = Config { crc: CrcUse::Required, ..Config::default() };
    let old = Config { revision: 1, ..Config::default() };
    let simple = Config { enhanced: false, ..Config::default() };
    use SetupFault::{Crc, Enhanced, Ird, Key, Markers, PrivateDataLength, Revision, SetupLength};
    // Every initiator requests IRD 1 and ORD 2.
    let rows: [(&str, &Config, &str, Result<View, SetupFault>); 32] = [
        ("siw's", &plain, "1002 0004 0002 0001", Ok((false, false, 1, 2, None))),
        ("CRCs unasked", &plain, "5002 0004 0002 0001", Ok((true, false, 1, 2, None))),
        ("peer-to-peer unasked", &plain, "1002 0004 8002 8001", Ok((false, false, 1, 2, None))),
        ("the peer wants more", &plain, "1002 0004 0002 0005", Ok((false, false, 5, 2, None))),
        ("the peer wants too much", &plain, "1002 0004 0002 0081", Err(Ird)),
        ("the peer has less", &plain, "1002 0004 0001 0001", Ok((false, false, 1, 1, None))),
        ("the peer has more", &plain, "1002 0004 0009 0001", Ok((false, false, 1, 2, None))),
        ("the peer has none", &plain, "1002 0004 0000 0000", Ok((false, false, 0, 0, None))),
        ("the hosts will see to it", &plain, "1002 0004 3fff 3fff", Ok((false, false, 1, 2, None))),
        ("markers", &plain, "9002 0004 0002 0001", Ok((false, true, 1, 2, None))),
        ("markers, to siw", &siw(), "9002 0004 0002 0001", Err(Markers)),
        ("revision 1", &plain, "0001 0000", Err(Revision)),
        ("revision 3", &plain, "1003 0004 0002 0001", Err(Revision)),
        ("no set-up word", &plain, "0002 0000", Err(Enhanced)),
        ("an empty set-up word", &plain, "1002 0000", Err(SetupLength)),
        ("half a set-up word", &plain, "1002 0002 0000", Err(SetupLength)),
        ("too long", &plain, "1002 0201", Err(PrivateDataLength)),
        ("too long for siw", &siw(), "1002 0101", Err(PrivateDataLength)),
        ("CRCs wanted and repeated", &wanted, "5002 0004 0002 0001", Ok((true, false, 1, 2, None))),
        ("CRCs wanted, not repeated", &wanted, "1002 0004 0002 0001", Ok((true, false, 1, 2, None))),
        ("CRCs required and repeated", &required, "5002 0004 0002 0001", Ok((true, false, 1, 2, None))),
        ("CRCs required, not repeated", &required, "1002 0004 0002 0001", Err(Crc)),
        ("write", &p2p, "1002 0004 8002 8001", Ok((false, false, 1, 2, Some(Rtr::Write)))),
        ("read", &p2p, "1002 0004 8002 4001", Ok((false, false, 1, 2, Some(Rtr::Read)))),
        ("both", &p2p, "1002 0004 8002 c001", Ok((false, false, 1, 2, Some(Rtr::Write)))),
        ("neither", &p2p, "1002 0004 8002 0001", Err(SetupFault::Rtr)),
        ("an empty FPDU, not offered", &p2p, "1002 0004 c002 0001", Err(SetupFault::Rtr)),
        ("write, not offered", &read, "1002 0004 8002 8001", Err(SetupFault::Rtr)),
        ("an old peer", &old, "0001 0000", Ok((false, false, 1, 2, None))),
        ("an old peer with a reserved bit", &old, "1001 0000", Ok((false, false, 1, 2, None))),
        ("the word unasked", &simple, "1002 0004 0002 0001", Err(Enhanced)),
        ("the word unasked, and not there", &simple, "4002 0000", Ok((true, false, 1, 2, None))),
    ];
    for (name, config, bytes, expected) in rows {
        let bytes = reply(bytes);
        let mut initiator = Initiator::new(config, 1, 2, &[]).unwrap();
        let view = agreed(initiator.take(&bytes))
            .map(|agreed| (agreed.crc, agreed.markers_out, agreed.ird, agreed.ord, agreed.rtr));
        assert_eq!(view, expected, "{name}");
        let mut initiator = Initiator::new(config, 1, 2, &[]).unwrap();
        let last = bytes
            .chunks(1)
            .map(|byte| initiator.take(byte))
            .find(|answer| !matches!(answer, Ok(Answer::NeedMore)))
            .expect("an answer");
        assert_eq!(agreed(last).map(|agreed| agreed.ird), expected.map(|view| view.2), "{name}");
    }
    let mut initiator = Initiator::new(&plain, 1, 2, &[]).unwrap();
    assert_eq!(agreed(initiator.take(&request("0001 0000"))), Err(Key));
}

#[test]
fn requests_reflect_their_configuration() {
    let plain = Config::default();
    let all = Config {
        crc: CrcUse::Required,
        markers: true,
        peer_to_peer: true,
        rtr_empty: true,
        ..Config::default()
    };
    let rows = [
        (plain.clone(), "1002 0006 0001 0002 6869"),
        (Config { revision: 1, ..plain.clone() }, "0001 0002 6869"),
        (Config { enhanced: false, ..plain.clone() }, "0002 0002 6869"),
        (Config { crc: CrcUse::Wanted, ..plain.clone() }, "5002 0006 0001 0002 6869"),
        (Config { extensions: true, ..plain.clone() }, "1102 0006 0001 0002 6869"),
        (Config { ord_max: 1, ird_max: 0, ..plain.clone() }, "1002 0006 0000 0001 6869"),
        (all.clone(), "d002 0006 c001 c002 6869"),
        (Config { rtr_write: false, rtr_empty: false, ..all }, "d002 0006 8001 4002 6869"),
    ];
    for (config, expected) in rows {
        assert_eq!(Initiator::new(&config, 1, 2, b"hi").unwrap().request(), request(expected));
    }
    let long = [0; 600];
    for (config, bytes_max) in [(plain, 508), (siw(), 252), (Config { revision: 1, ..siw() }, 256)] {
        assert!(Initiator::new(&config, 0, 0, &long[..bytes_max]).is_ok());
        let refused = Initiator::new(&config, 0, 0, &long[..bytes_max + 1]).map(|_| ());
        assert_eq!(refused, Err(PrivateDataTooLong { bytes_max }));
    }
}

#[test]
fn a_reply_that_repeats_the_request_agrees_on_no_extensions() {
    let rows = [
        ("another's", "1002 0004 0002 0001", false),
        ("siw's, which repeats every flag that it is asked with", "1102 0004 0002 0001", false),
        ("siw's, to one that also speaks of GSO", "1902 0004 0002 0001", false),
        ("kiban's", "1202 0004 0002 0001", true),
    ];
    for (name, bytes, expected) in rows {
        for asks in [false, true] {
            let config = Config { extensions: asks, ..Config::default() };
            let mut initiator = Initiator::new(&config, 1, 2, &[]).unwrap();
            let agreed = agreed(initiator.take(&reply(bytes))).unwrap();
            assert_eq!(agreed.extensions, asks && expected, "{name}, asked: {asks}");
        }
    }
    for (asks, expected, knows) in [("1102", "1202", true), ("1202", "1002", false), ("1802", "1002", false)]
    {
        let rest = " 0004 0001 0001";
        let mut responder = Responder::new(&Config::default());
        let asked = responder.take(&request(&[asks, rest].concat())).unwrap().expect("a whole request");
        let (bytes, agreed) = responder.accept(&[], asked.ird, asked.ord).unwrap();
        assert_eq!(bytes, reply(&[expected, rest].concat()), "{asks}");
        assert_eq!((asked.extensions, agreed.extensions), (knows, knows), "{asks}");
    }
}

#[test]
fn a_rejection_carries_the_hosts_private_data() {
    let mut initiator = Initiator::new(&Config::default(), 4, 4, b"let me in").unwrap();
    let mut responder = Responder::new(&Config::default());
    let asked = responder.take(initiator.request()).unwrap().unwrap();
    assert_eq!(asked.private_data, b"let me in");
    let bytes = responder.reject(b"not today").unwrap();
    assert_eq!(bytes, [reply("3002 000d 0004 0004"), b"not today".to_vec()].concat());
    let Ok(Answer::Rejected(rejected)) = initiator.take(&bytes) else { panic!("it was rejected") };
    assert_eq!(rejected.private_data, b"not today");
    // A reject is recognised in every form: with another revision, without the setup word, with markers.
    for (bytes, said) in [("3002 0000", ""), ("2001 0002 6e6f", "no"), ("a002 0002 6e6f", "no")] {
        let mut initiator = Initiator::new(&siw(), 4, 4, &[]).unwrap();
        let Ok(Answer::Rejected(rejected)) = initiator.take(&reply(bytes)) else { panic!("{bytes}") };
        assert_eq!(rejected.private_data, said.as_bytes());
    }
}

#[test]
fn a_host_may_offer_lower_depths_and_accept_higher_ones() {
    // The peer requests IRD 4 and ORD 6; the maximum is 128.
    for (given, expected) in [((6, 4), (6, 4)), ((0, 0), (6, 0)), ((10, 10), (10, 4)), ((999, 999), (128, 4))]
    {
        let mut responder = Responder::new(&Config::default());
        let asked = responder.take(&request("1002 0004 0004 0006")).unwrap().unwrap();
        assert_eq!((asked.ird, asked.ord), (6, 4));
        let (_, agreed) = responder.accept(&[], given.0, given.1).unwrap();
        assert_eq!((agreed.ird, agreed.ord), expected, "{given:?}");
    }
    // Without the setup word, the host's values are used.
    let mut responder = Responder::new(&Config::default());
    responder.take(&request("0001 0000")).unwrap().unwrap();
    let (_, agreed) = responder.accept(&[], 3, 999).unwrap();
    assert_eq!((agreed.ird, agreed.ord, agreed.enhanced), (3, 128, false));
}

#[test]
fn a_start_frame_may_be_cut_anywhere_and_leaves_what_follows() {
    let mut whole = Initiator::new(&Config::default(), 1, 2, &[5; 30]).unwrap();
    let request = whole.request().to_vec();
    let mut responder = Responder::new(&Config::default());
    let expected: PeerRequest = responder.take(&request).unwrap().unwrap();
    let (reply, _) = responder.accept(&[6; 40], 2, 1).unwrap();
    let with_fpdu = [&reply[..], &[0; 16]].concat();
    let agreed_at_once = agreed(whole.take(&with_fpdu)).unwrap();
    assert_eq!((agreed_at_once.consumed, &agreed_at_once.private_data[..]), (reply.len(), &[6; 40][..]));
    for cut in 1..request.len() {
        let mut responder = Responder::new(&Config::default());
        assert_eq!(responder.take(&request[..cut]), Ok(None));
        assert_eq!(responder.take(&request[cut..]), Ok(Some(expected.clone())));
    }
    for cut in 1..reply.len() {
        let mut initiator = Initiator::new(&Config::default(), 1, 2, &[5; 30]).unwrap();
        assert_eq!(initiator.take(&with_fpdu[..cut]), Ok(Answer::NeedMore));
        let last = agreed(initiator.take(&with_fpdu[cut..])).unwrap();
        assert_eq!(last, Agreed { consumed: reply.len() - cut, ..agreed_at_once.clone() });
    }
}

fn config() -> impl Strategy<Value = Config> {
    let crc = prop_oneof![Just(CrcUse::Off), Just(CrcUse::Wanted), Just(CrcUse::Required)];
    let flags = (any::<[bool; 7]>(), crc, 1u8..=2, 0u16..300, 0u16..300);
    flags.prop_map(
        |([enhanced, markers, markers_out, peer_to_peer, empty, write, read], crc, revision, i, o)| Config {
            revision,
            enhanced,
            extensions: markers ^ write,
            crc,
            markers,
            markers_out,
            ird_max: i,
            ord_max: o,
            peer_to_peer,
            rtr_empty: empty,
            rtr_write: write,
            rtr_read: read,
            private_data_bytes_max: 512,
        },
    )
}

proptest! {
    #[test]
    fn both_ends_agree_on_the_same_parameters(
        ours in config(), theirs in config(), ask: (u16, u16), give: (u16, u16), said in 0usize..400,
    ) {
        let private_data: Vec<u8> = (0..said).map(|at| at as u8).collect();
        let mut initiator = Initiator::new(&ours, ask.0, ask.1, &private_data).unwrap();
        let mut responder = Responder::new(&theirs);
        let asked = match responder.take(initiator.request()) {
            Ok(asked) => asked.expect("a whole request"),
            Err(refused) => {
                prop_assert!(ours.markers && !theirs.markers_out);
                prop_assert_eq!(refused.fault, SetupFault::Markers);
                prop_assert!(matches!(initiator.take(&refused.reply), Ok(Answer::Rejected(_))));
                return Ok(());
            }
        };
        prop_assert_eq!(&asked.private_data, &private_data);
        let (reply, there) = responder.accept(&private_data, give.0, give.1).unwrap();
        match agreed(initiator.take(&reply)) {
            Ok(here) => {
                prop_assert_eq!((here.revision, here.enhanced), (there.revision, there.enhanced));
                prop_assert_eq!(here.extensions, there.extensions);
                prop_assert_eq!(here.crc, there.crc);
                prop_assert_eq!(here.crc, ours.crc != CrcUse::Off || theirs.crc != CrcUse::Off);
                prop_assert_eq!((here.markers_in, here.markers_out), (there.markers_out, there.markers_in));
                prop_assert_eq!(here.rtr, there.rtr);
                prop_assert_eq!(&here.private_data, &private_data);
                if here.enhanced {
                    prop_assert_eq!(here.ird, there.ord);
                    prop_assert!(here.ord <= there.ird);
                    prop_assert!(here.ord <= ask.1 && here.ird <= ask.0);
                }
            }
            Err(SetupFault::Markers) => prop_assert!(theirs.markers && !ours.markers_out),
            Err(SetupFault::Rtr) => prop_assert!(ours.peer_to_peer),
            Err(other) => prop_assert!(false, "{:?}", other),
        }
    }
}
