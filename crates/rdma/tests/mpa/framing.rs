//! FPDUs with CRCs and markers: the examples in the RFC, and random frames.

use super::hex;
use kiban_base::SimRng;
use kiban_rdma::iwarp::mpa::{
    Answer, Config, Deframer, Fault, Front, Initiator, MarkerInserter, Responder, Trailer, begin, end, front,
    length_field,
};
use proptest::prelude::*;

/// Builds a complete FPDU.
fn framed(ulpdu: &[u8], crc: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    let start = begin(&mut bytes, ulpdu.len());
    bytes.extend_from_slice(ulpdu);
    end(&mut bytes, start, crc);
    bytes
}

/// An untagged Send of 24 zero bytes, as in the annotated dumps of RFC 5044.
fn send(msn: u8) -> Vec<u8> {
    [hex("4143 00000000 00000000 000000"), vec![msn], vec![0; 4 + 24]].concat()
}

#[test]
fn the_annotated_dumps_of_rfc_5044_are_written_byte_for_byte() {
    let (mut weaver, mut stream) = (MarkerInserter::new(), Vec::new());
    weaver.insert_markers(&framed(&send(1), true), true, &mut stream);
    let first = [hex("00000000 002a"), send(1), hex("52239983")].concat();
    assert_eq!(stream, first);

    // The RFC's second example begins at octet 1EC of the stream, so that it contains a marker.
    let (mut weaver, mut stream) = (MarkerInserter::new(), Vec::new());
    weaver.insert_markers(&framed(&[7; 482], true), true, &mut stream);
    assert_eq!(stream.len(), 0x1ec);
    weaver.insert_markers(&framed(&send(2), true), true, &mut stream);
    let second = [
        &hex("002a 4143 00000000 00000000 00000002 00000000")[..],
        &hex("0000 0014"),
        &[0; 24],
        &hex("84925898"),
    ]
    .concat();
    assert_eq!(stream[0x1ec..], second);

    let mut deframer = Deframer::new(true, true);
    let Ok(Front::Whole { taken: 0x1ec, .. }) = deframer.front(&stream) else { panic!("the first") };
    let Ok(Front::Whole { ulpdu, taken }) = deframer.front(&stream[0x1ec..]) else { panic!("the second") };
    assert_eq!((ulpdu, taken), (&send(2)[..], second.len()));
}

#[test]
fn an_fpdu_without_markers_has_a_crc_over_length_ulpdu_and_pad() {
    // Expected CRC, computed bit by bit from the polynomial in RFC 3720.
    for (ulpdu, fpdu) in
        [(send(1), [hex("002a"), send(1), hex("b7243ec3")].concat()), (vec![], hex("0000 0000 c74b6748"))]
    {
        assert_eq!(framed(&ulpdu, true), fpdu);
        assert_eq!(front(true, &fpdu), Ok(Front::Whole { ulpdu: &ulpdu, taken: fpdu.len() }));
    }
}

#[test]
fn a_frame_sent_in_place_has_the_same_bytes() {
    for bytes in 0..70 {
        let ulpdu: Vec<u8> = (0..bytes).collect();
        for crc in [false, true] {
            let pieces = [&ulpdu[..ulpdu.len() / 3], &ulpdu[ulpdu.len() / 3..]];
            let trailer =
                if crc { Trailer::with_crc(pieces.into_iter()) } else { Trailer::plain(ulpdu.len()) };
            let gathered =
                [&length_field(ulpdu.len())[..], pieces[0], pieces[1], trailer.as_slice()].concat();
            assert_eq!(gathered, framed(&ulpdu, crc));
        }
    }
}

#[test]
fn a_frame_with_a_flipped_bit_is_rejected() {
    for markers in [false, true] {
        for ulpdu in [&[][..], &[9; 33], &[0; 600]] {
            let mut bytes = framed(ulpdu, true);
            if markers {
                let mut woven = Vec::new();
                MarkerInserter::new().insert_markers(&bytes, true, &mut woven);
                bytes = woven;
            }
            for bit in 0..8 * bytes.len() {
                bytes[bit / 8] ^= 1 << (bit % 8);
                let mut deframer = Deframer::new(true, markers);
                // If the corruption has increased the length, more bytes are needed, and the error is
                // detected when they arrive.
                let verdict = deframer.front(&bytes).map(|front| matches!(front, Front::NeedMore(_)));
                assert!(matches!(verdict, Err(Fault::Crc) | Ok(true)), "bit {bit}: {verdict:?}");
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            assert!(matches!(Deframer::new(true, markers).front(&bytes), Ok(Front::Whole { .. })));
        }
    }
}

#[test]
fn a_corrupted_length_is_detected_when_its_bytes_have_arrived() {
    let mut bytes = framed(&[9; 33], true);
    bytes[0] ^= 0x80;
    let mut deframer = Deframer::new(true, false);
    let Ok(Front::NeedMore(wanted)) = deframer.front(&bytes) else { panic!("it grew") };
    bytes.resize(wanted, 9);
    assert_eq!(deframer.front(&bytes), Err(Fault::Crc));
}

#[test]
fn without_crcs_the_field_is_ignored() {
    let mut bytes = framed(b"anything", false);
    *bytes.last_mut().unwrap() = 0x55;
    assert_eq!(front(false, &bytes), Ok(Front::Whole { ulpdu: b"anything", taken: 16 }));
    assert_eq!(front(true, &bytes), Err(Fault::Crc));
}

#[test]
fn a_wrong_marker_is_a_fault_and_its_reserved_bits_are_ignored() {
    let mut woven = Vec::new();
    MarkerInserter::new().insert_markers(&framed(&[1; 1500], false), false, &mut woven);
    // Markers are at positions 0, 512 and 1024; the length field is at 4.
    let rows = [
        (2, 0x01, Err(Fault::Marker)),
        (3, 0x04, Err(Fault::Marker)),
        (512 + 3, 0x08, Err(Fault::Marker)),
        (1024 + 2, 0x80, Err(Fault::Marker)),
        // RFC 5044 §4.3: the two lowest bits are taken as zero, and the reserved half is ignored.
        (512 + 3, 0x03, Ok(true)),
        (512, 0xff, Ok(true)),
        (1024 + 1, 0xff, Ok(true)),
    ];
    assert_eq!(woven[512..516], [0, 0, 0x01, 0xfc]);
    assert_eq!(woven[1024..1028], [0, 0, 0x03, 0xfc]);
    for (at, flip, expected) in rows {
        let mut bytes = woven.clone();
        bytes[at] ^= flip;
        let mut deframer = Deframer::new(false, true);
        let verdict = deframer
            .front(&bytes)
            .map(|front| front == Front::Whole { ulpdu: &[1; 1500], taken: bytes.len() });
        assert_eq!(verdict, expected, "byte {at}");
    }
}

fn ulpdus() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let length = prop_oneof![8 => 0usize..80, 4 => 400usize..1600, 1 => 60000usize..=65535];
    prop::collection::vec(
        (length, any::<u8>())
            .prop_map(|(bytes, first)| (0..bytes).map(|at| first.wrapping_add(at as u8)).collect()),
        1..40,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn framing_round_trips_however_the_stream_is_cut(
        ulpdus in ulpdus(), crc: bool, markers: bool, seed: u64,
    ) {
        let mut weaver = MarkerInserter::new();
        let mut stream = Vec::new();
        for ulpdu in &ulpdus {
            let fpdu = framed(ulpdu, crc);
            match markers {
                true => weaver.insert_markers(&fpdu, crc, &mut stream),
                false => stream.extend(fpdu),
            }
        }
        if markers {
            // Every marker is at its position, and the bytes between the markers are the frames.
            let plain: Vec<u8> = stream.chunks(512).flat_map(|run| &run[4..]).copied().collect();
            let unwoven: Vec<u8> = ulpdus.iter().flat_map(|ulpdu| framed(ulpdu, false)).collect();
            prop_assert_eq!(plain.len(), unwoven.len());
        }
        let (mut deframer, mut rng) = (Deframer::new(crc, markers), SimRng::from_seed(seed));
        let (mut from, mut come, mut out) = (0, 0, Vec::new());
        while from < stream.len() {
            let bytes = &stream[from..come];
            match deframer.front(bytes).expect("nothing was harmed") {
                Front::Whole { ulpdu, taken } => {
                    out.push(ulpdu.to_vec());
                    from += taken;
                }
                Front::Part { ulpdu, length } => {
                    prop_assert!(!crc && !markers);
                    prop_assert_eq!(ulpdu, &ulpdus[out.len()][..ulpdu.len()]);
                    prop_assert_eq!(length, ulpdus[out.len()].len());
                    come += 1 + rng.below(1500) as usize;
                }
                Front::NeedMore(wanted) => {
                    prop_assert!(wanted > bytes.len() && from + wanted <= stream.len());
                    come += 1 + rng.below(1500) as usize;
                }
            }
            come = come.min(stream.len());
        }
        prop_assert_eq!(from, stream.len());
        prop_assert_eq!(out, ulpdus);
    }
}

/// Random input: nothing panics, and the deframer requests more bytes only when it needs them.
#[test]
fn random_bytes_give_a_verdict() {
    let mut rng = SimRng::from_seed(5044);
    let mut verdicts = [0u32; 4];
    for round in 0..20_000 {
        let mut bytes: Vec<u8> = (0..rng.below(900)).map(|_| rng.draw() as u8).collect();
        // Short lengths, so that several frames fit.
        if round % 2 == 0 {
            (0..bytes.len()).step_by(16).for_each(|at| bytes[at] = 0);
        }
        for (crc, markers) in [(false, false), (false, true), (true, false), (true, true)] {
            let (mut deframer, mut at) = (Deframer::new(crc, markers), 0);
            loop {
                match deframer.front(&bytes[at..]) {
                    Ok(Front::Whole { taken, .. }) => {
                        verdicts[0] += 1;
                        at += taken;
                    }
                    Ok(Front::Part { ulpdu, length }) => {
                        verdicts[1] += 1;
                        assert!(ulpdu.len() <= length);
                        break;
                    }
                    Ok(Front::NeedMore(wanted)) => {
                        verdicts[2] += 1;
                        assert!(wanted > bytes.len() - at);
                        break;
                    }
                    Err(_) => {
                        verdicts[3] += 1;
                        break;
                    }
                }
            }
        }
        let key: &[u8] = if round % 3 == 0 { b"MPA ID Req Frame" } else { b"MPA ID Rep Frame" };
        let tail = [rng.draw() as u8, rng.below(4) as u8, rng.below(3) as u8, rng.draw() as u8];
        let start = [key, &tail, &bytes].concat();
        let config = Config { peer_to_peer: round % 5 == 0, ..Config::default() };
        let (mut initiator, mut responder) =
            (Initiator::new(&config, 4, 4, &[]).unwrap(), Responder::new(&config));
        for run in start.chunks(1 + rng.below(60) as usize) {
            if !matches!(initiator.take(run), Ok(Answer::NeedMore)) {
                break;
            }
        }
        for run in start.chunks(1 + rng.below(60) as usize) {
            match responder.take(run) {
                Ok(None) => {}
                Ok(Some(asked)) => {
                    responder.accept(&[], asked.ird, asked.ord).unwrap();
                    responder.reject(b"no").unwrap();
                    break;
                }
                Err(_) => break,
            }
        }
    }
    assert!(verdicts.iter().all(|&count| count > 1000), "{verdicts:?}");
}
