use super::address::{Address, AddressBlock, NotAnAddress};
use super::code::{clearing_cause, diagnostic_name, resetting_cause, restarting_cause};
use super::facility::{Extension, Facility, FastSelect, facilities};
use super::header::{Front, HEADER_BYTES_MAX, Header, Kind, PLAIN};
use super::packet::{Call, Cause, Clear};
use crate::wire::lapb::Modulo;
use crate::wire::xot;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use kiban_base::Malformed;
use kiban_capture as capture;
use proptest::prelude::*;

const MOD_8: &[u8] = include_bytes!("../../../tests/data/xot-mod8.pcap");
const MOD_128: &[u8] = include_bytes!("../../../tests/data/xot-mod128.pcap");

/// Returns the packets of an XOT capture in order, each with its direction (0: sent by the TCP client).
fn packets(pcap: &[u8]) -> Vec<(usize, Vec<u8>)> {
    let (file, _) = capture::FileHeader::read(pcap).expect("a capture");
    let mut streams = [Vec::new(), Vec::new()];
    let mut all = Vec::new();
    for record in file.records(pcap) {
        let (_, frame) = record.expect("a record");
        // Ethernet, IPv4 without options, TCP.
        let (ip_bytes, tcp) = (usize::from(u16::from_be_bytes([frame[16], frame[17]])), &frame[34..]);
        let payload = &frame[34 + usize::from(tcp[12] >> 4) * 4..14 + ip_bytes];
        let direction = usize::from(u16::from_be_bytes([tcp[0], tcp[1]]) == xot::PORT);
        streams[direction].extend_from_slice(payload);
        while let Ok((header, used)) = xot::Header::read(&streams[direction]) {
            let end = used + usize::from(header.packet_bytes);
            if streams[direction].len() < end {
                break;
            }
            let packet: Vec<u8> = streams[direction].drain(..end).skip(used).collect();
            all.push((direction, packet));
        }
    }
    assert!(streams.iter().all(Vec::is_empty), "the rest is not a packet");
    all
}

#[test]
fn packets_of_another_implementation_survive_a_round_trip() {
    for (pcap, modulo, expected) in [(MOD_8, Modulo::Eight, 110), (MOD_128, Modulo::OneTwentyEight, 110)] {
        let all = packets(pcap);
        let mut numbers = 0;
        for (_, packet) in &all {
            let (header, used) = Header::read(packet).expect("a packet");
            assert_eq!((header.front.modulo, header.front.channel), (modulo, 1));
            let mut again = vec![0; header.length()];
            assert_eq!(header.write(&mut again), used);
            match header.kind {
                Kind::CallRequest | Kind::CallAccepted => {
                    let (call, _) = Call::read(&packet[used..], header.front.qualifier).expect("a call");
                    again.resize(used + call.length(), 0);
                    call.write(&mut again[used..]);
                }
                Kind::ClearRequest => {
                    let (clear, _) = Clear::read(&packet[used..], header.front.qualifier).expect("a clear");
                    again.resize(used + clear.length(), 0);
                    clear.write(&mut again[used..]);
                }
                Kind::ResetRequest => {
                    let (cause, _) = Cause::read(&packet[used..]).expect("a reset");
                    again.resize(used + cause.length(), 0);
                    cause.write(&mut again[used..]);
                }
                Kind::Unknown(code) => panic!("type {code:02x}"),
                _ => again.extend_from_slice(&packet[used..]),
            }
            assert_eq!(&again, packet);
            numbers += 1;
        }
        assert_eq!(numbers, expected);
        let (_, call) = &all[0];
        let (call, _) = Call::read(&call[3..], false).expect("a call");
        assert_eq!(call.addresses.called.to_string(), "731100");
        assert_eq!(call.addresses.calling.to_string(), "737411");
        assert_eq!(call.user_data, [3, 1, 1, 0]);
    }
}

#[test]
fn facilities_are_decoded_by_class() {
    let field = [
        0x42, 7, 10, 0x43, 2, 7, 0x01, 0x81, 0x02, 0xab, 0x03, 0x12, 0x49, 1, 0x2c, 0x84, 1, 2, 3, 0xc3, 2,
        8, 9, 0, 0x0f, 0x0b, 1, 0xcb, 4, 5, 0x47, 0, 0x50, 0xc9, 2, 0x84, 0x99,
    ];
    let read: Vec<Facility<'_>> = facilities(&field).map(|facility| facility.expect("a facility")).collect();
    assert_eq!(
        read,
        [
            Facility::PacketSize { called: 7, calling: 10 },
            Facility::Window { called: 2, calling: 7 },
            Facility::Charging { fast_select: FastSelect::Unrestricted, reverse: true, other: 0 },
            Facility::Throughput { called: 10, calling: 11 },
            Facility::Other(3, &[0x12]),
            Facility::TransitDelay(300),
            Facility::Other(0x84, &[1, 2, 3]),
            Facility::Other(0xc3, &[8, 9]),
            Facility::Marker(0x0f),
            Facility::Expedited(true),
            Facility::CallingExtension(Extension { usage: 0, half_octets: 5, octets: &[0x47, 0, 0x50] }),
            // This address extension's length contradicts its digit count, so it is kept undecoded.
            Facility::Other(0xc9, &[0x84, 0x99]),
        ]
    );
    let mut again = vec![0; field.len()];
    let mut at = 0;
    for facility in read {
        at += facility.write(&mut again[at..]);
    }
    assert_eq!(again, field);
    for cut in [&field[..2], &[0xc9], &[0xc9, 9, 1], &[0x83, 1]] {
        assert_eq!(facilities(cut).last(), Some(Err(Malformed::FacilityLength)));
    }
}

#[test]
fn an_address_block_has_both_its_forms() {
    let address = |text: &str, type_and_plan| {
        let mut address: Address = text.parse().expect("digits");
        address.type_and_plan = type_and_plan;
        address
    };
    let rows: [(Address, Address, &[u8]); 5] = [
        (Address::NONE, Address::NONE, &[0]),
        (address("731100", None), address("737411", None), &[0x66, 0x73, 0x11, 0, 0x73, 0x74, 0x11]),
        (address("123", None), address("45", None), &[0x23, 0x12, 0x34, 0x50]),
        (address("12", Some((1, 2))), Address::NONE, &[4, 0, 0x12, 0x12]),
        // §5.2.1.2: an odd number of half octets is padded.
        (address("123", Some((1, 2))), address("4", Some((0, 1))), &[5, 3, 0x12, 0x12, 0x30, 0x14]),
    ];
    for (called, calling, bytes) in rows {
        let block = AddressBlock { called, calling };
        let mut written = vec![0xff; block.length()];
        assert_eq!(block.write(&mut written), bytes.len());
        assert_eq!(written, bytes);
        assert_eq!(AddressBlock::read(bytes, block.is_extended()), Ok((block, bytes.len())));
    }
    let bad: [(&[u8], bool, Malformed); 5] = [
        (&[0x01, 0xa0], false, Malformed::AddressDigits),
        (&[0x03, 0x11], false, Malformed::Truncated),
        (&[1, 0, 0x11], true, Malformed::AddressDigits),
        (&[30, 0, 0x11, 0x22, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], true, Malformed::AddressDigits),
        (&[2], true, Malformed::Truncated),
    ];
    for (bytes, extended, rule) in bad {
        assert_eq!(AddressBlock::read(bytes, extended).map(|(block, _)| block), Err(rule));
    }
    assert_eq!("12a".parse::<Address>(), Err(NotAnAddress));
    assert_eq!("1234567890123456".parse::<Address>(), Err(NotAnAddress));
}

#[test]
fn codes_have_texts() {
    assert_eq!(clearing_cause(0x13), "local procedure error");
    assert_eq!(clearing_cause(0x91), "DTE originated");
    assert_eq!(resetting_cause(0x09), "remote DTE operational");
    assert_eq!(restarting_cause(0x07), "network operational");
    let rows = [
        (1, "invalid P(S)"),
        (36, "packet on unassigned logical channel"),
        (30, "packet type invalid"),
        (99, "not assigned"),
        (150, "timer expired or retransmission count surpassed"),
        (249, "connection rejection, unrecognizable protocol identifier in user data"),
        (255, "higher layer initiated"),
    ];
    for (code, name) in rows {
        assert_eq!(diagnostic_name(code), name, "{code}");
    }
}

#[test]
fn a_permanent_circuit_is_requested() {
    let set_up = xot::PvcSetUp {
        front: Front { modulo: Modulo::Eight, qualifier: false, delivery: false, channel: 1 },
        status: xot::PvcStatus::OK,
        initiator: (b"Serial0", 7),
        responder: (b"S1", 260),
        windows: (2, 3),
        packet_sizes: (7, 8),
    };
    let bytes = [&[0x10, 1, 0xf5, 0x81, 0, 7, 0, 7, 2, 1, 4, 2, 3, 7, 8][..], b"Serial0", b"S1"].concat();
    let mut written = vec![0; set_up.length()];
    assert_eq!(set_up.write(&mut written), bytes.len());
    assert_eq!(written, bytes);
    assert_eq!(xot::PvcSetUp::read(&bytes), Ok((set_up, bytes.len())));
    assert_eq!(xot::PvcSetUp::read(&bytes[..20]), Err(Malformed::TotalLength));
    assert_eq!(xot::PvcStatus(0x18).name(), "mismatched flow control values");
    for (bytes, rule) in [
        ([0, 1, 0, 3], Malformed::Version),
        ([0, 0, 0, 2], Malformed::TotalLength),
        ([0, 0, 0x10, 5], Malformed::TotalLength),
    ] {
        assert_eq!(xot::Header::read(&bytes), Err(rule));
    }
}

fn kind() -> impl Strategy<Value = Kind> {
    let number = || 0..8u8;
    prop_oneof![
        (number(), number(), any::<bool>()).prop_map(|(p_s, p_r, more)| Kind::Data { p_s, p_r, more }),
        number().prop_map(Kind::ReceiveReady),
        number().prop_map(Kind::ReceiveNotReady),
        number().prop_map(Kind::Reject),
        (0..PLAIN.len()).prop_map(|at| PLAIN[at].0),
    ]
}

proptest! {
    #[test]
    fn a_header_survives_a_round_trip(
        kind in kind(), qualifier in any::<bool>(), delivery in any::<bool>(), extended in any::<bool>(), channel in 0..4096u16,
    ) {
        let modulo = if extended { Modulo::OneTwentyEight } else { Modulo::Eight };
        let header = Header { front: Front { modulo, qualifier, delivery, channel }, kind };
        let mut bytes = [0; HEADER_BYTES_MAX];
        let length = header.write(&mut bytes);
        prop_assert_eq!(Header::read(&bytes[..length]), Ok((header, length)));
        prop_assert_eq!(Header::read(&bytes[..length - 1]), Err(Malformed::Truncated));
    }
}
