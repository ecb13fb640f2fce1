//! Replays captures of siw in Linux 6.1: our encoder must produce the same start frames, and our deframer
//! must find all FPDUs.

use kiban_base::ethernet;
use kiban_capture as capture;
use kiban_rdma::iwarp::mpa::{
    Answer, Config, Deframer, Front, Initiator, Responder, begin, end, fpdu_bytes, front,
};
use kiban_rdma::wire::mpa::{START_BYTES, Setup};
use kiban_tcpip::wire::{ipv4, tcp};
use std::collections::BTreeMap;

/// One direction of a TCP connection: source port and target port.
type Direction = (u16, u16);

/// Returns the two byte streams of every connection in a capture, the connecting side's first.
fn streams(file: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (header, _) = capture::FileHeader::read(file).expect("a capture");
    let mut openings: Vec<Direction> = Vec::new();
    let mut first: BTreeMap<Direction, u32> = BTreeMap::new();
    let mut bytes: BTreeMap<Direction, Vec<u8>> = BTreeMap::new();
    for record in header.records(file) {
        let (_, frame) = record.expect("whole records");
        let (_, ethernet_bytes) = ethernet::Header::read(frame).expect("an Ethernet frame");
        let packet = &frame[ethernet_bytes..];
        let (ip, ip_bytes) = ipv4::Header::read(packet).expect("an IPv4 packet");
        let segment = &packet[ip_bytes..usize::from(ip.total_bytes)];
        let (header, header_bytes) = tcp::Header::read(segment).expect("a TCP segment");
        let direction = (header.source_port, header.target_port);
        let flags = header.flags.to_string();
        if flags.contains("SYN") {
            first.insert(direction, header.sequence.0.wrapping_add(1));
            if !flags.contains("ACK") {
                openings.push(direction);
            }
        } else {
            // Retransmitted and reordered segments are put into their places.
            let at = header.sequence.0.wrapping_sub(first[&direction]) as usize;
            let payload = &segment[header_bytes..];
            let stream = bytes.entry(direction).or_default();
            if !payload.is_empty() {
                stream.resize(stream.len().max(at + payload.len()), 0);
                stream[at..at + payload.len()].copy_from_slice(payload);
            }
        }
    }
    openings
        .into_iter()
        .map(|direction| {
            let back = (direction.1, direction.0);
            (bytes.remove(&direction).unwrap_or_default(), bytes.remove(&back).unwrap_or_default())
        })
        .collect()
}

/// Returns the ULPDUs of a stream after its start frame; every byte must belong to one.
fn ulpdus(stream: &[u8]) -> Vec<Vec<u8>> {
    let (mut deframer, mut at, mut ulpdus) = (Deframer::new(false, false), 0, Vec::new());
    while at < stream.len() {
        match deframer.front(&stream[at..]).expect("siw keeps the rules") {
            Front::Whole { ulpdu, taken } => {
                ulpdus.push(ulpdu.to_vec());
                at += taken;
            }
            other => panic!("{other:?} at {at} of {}", stream.len()),
        }
    }
    ulpdus
}

const READ_LAT: &[u8] = include_bytes!("../data/siw-ib-read-lat.pcap");
const WRITE_LAT: &[u8] = include_bytes!("../data/siw-ib-write-lat.pcap");
const SERVER: &[u8] = include_bytes!("../data/siw-rdma-server.pcap");
const RPING: &[u8] = include_bytes!("../data/siw-rping.pcap");
const UCMATOSE: &[u8] = include_bytes!("../data/siw-ucmatose.pcap");

/// A capture file, and for each connection the bytes and FPDUs of the initiator and of the responder, as
/// counted by Wireshark.
type Row = (&'static str, &'static [u8], &'static [[(usize, usize); 2]]);

const ROWS: [Row; 5] = [
    ("ib_read_lat", READ_LAT, &[[(708, 11), (708, 11)], [(2624, 50), (1224, 50)]]),
    ("ib_write_lat", WRITE_LAT, &[[(628, 10), (628, 10)], [(1224, 50), (1224, 50)]]),
    ("rdma_server", SERVER, &[[(64, 1), (64, 1)]]),
    ("rping", RPING, &[[(516, 9), (672, 12)]]),
    ("ucmatose", UCMATOSE, &[[(520, 4), (520, 4)]]),
];

#[test]
fn every_fpdu_of_siw_is_deframed_and_reframed_byte_for_byte() {
    let mut stale_pads = 0;
    for (name, file, expected) in ROWS {
        let streams = streams(file);
        assert_eq!(streams.len(), expected.len(), "{name}");
        for ((initiator, responder), expected) in streams.iter().zip(expected) {
            for (stream, &(bytes, fpdus)) in [initiator, responder].into_iter().zip(expected) {
                assert_eq!(stream.len(), bytes, "{name}");
                let mut rest = stream[START_BYTES + 4..].to_vec();
                let ulpdus = ulpdus(&rest);
                assert_eq!(ulpdus.len(), fpdus, "{name}");
                assert_eq!(ulpdus.iter().map(|ulpdu| fpdu_bytes(ulpdu.len())).sum::<usize>(), rest.len());
                // siw leaves stale memory contents in the pad. The RFC requires zeros, but no receiver
                // checks the pad.
                let (mut at, mut again) = (0, Vec::new());
                for ulpdu in &ulpdus {
                    let pad = &mut rest[at + 2 + ulpdu.len()..at + fpdu_bytes(ulpdu.len()) - 4];
                    stale_pads += usize::from(pad.iter().any(|&byte| byte != 0));
                    pad.fill(0);
                    at += fpdu_bytes(ulpdu.len());
                    let start = begin(&mut again, ulpdu.len());
                    again.extend_from_slice(ulpdu);
                    end(&mut again, start, false);
                }
                assert_eq!(again, rest, "{name}");
            }
        }
    }
    assert!(stale_pads > 0, "the pads were looked at");
}

#[test]
fn the_start_frames_of_siw_equal_those_written_here() {
    for (name, file, _) in ROWS {
        for (initiator, responder) in streams(file) {
            let (asked, _) = Setup::read(&initiator[START_BYTES..]).expect("siw sends the set-up word");
            let mut ours = Initiator::new(&Config::default(), asked.ird, asked.ord, &[]).unwrap();
            assert_eq!(ours.request(), &initiator[..START_BYTES + 4], "{name}");
            // The reply arrives together with everything that siw sent after it.
            let Ok(Answer::Agreed(agreed)) = ours.take(&responder) else { panic!("{name}") };
            assert_eq!((agreed.consumed, agreed.revision, agreed.enhanced), (START_BYTES + 4, 2, true));
            assert_eq!((agreed.crc, agreed.markers_in, agreed.markers_out), (false, false, false));
            assert_eq!((agreed.ird, agreed.ord, agreed.rtr), (asked.ird, asked.ord, None));

            let mut theirs = Responder::new(&Config::default());
            let offered = theirs.take(&initiator[..START_BYTES + 4]).unwrap().expect("a whole request");
            let (reply, mirrored) = theirs.accept(&[], offered.ird, offered.ord).unwrap();
            assert_eq!(reply, responder[..START_BYTES + 4], "{name}");
            assert_eq!((mirrored.ird, mirrored.ord), (agreed.ord, agreed.ird));
        }
    }
}

#[test]
fn the_front_of_a_partial_stream_is_reported_correctly() {
    let (_, responder) = streams(RPING).remove(0);
    let rest = &responder[START_BYTES + 4..];
    let mut at = 0;
    for ulpdu in ulpdus(rest) {
        let whole = fpdu_bytes(ulpdu.len());
        for come in 0..whole {
            let bytes = &rest[at..at + come];
            let expected = match come {
                0 | 1 => Front::NeedMore(2),
                _ => Front::Part { ulpdu: &ulpdu[..ulpdu.len().min(come - 2)], length: ulpdu.len() },
            };
            assert_eq!(front(false, bytes), Ok(expected));
            let expected = if come < 2 { 2 } else { whole };
            assert_eq!(front(true, bytes), Ok(Front::NeedMore(expected)));
        }
        at += whole;
    }
}
