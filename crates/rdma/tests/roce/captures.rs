//! Captures of Linux's rdma_rxe, and damaged packets.

use kiban_base::ethernet;
use kiban_capture as capture;
use kiban_rdma::wire::roce::icrc::{Icrc, Identifications};
use kiban_rdma::wire::roce::{Bth, ICRC_BYTES, Opcode, Operation, PORT, Packet, Service};
use kiban_tcpip::wire::{ipv4, udp};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// A packet of a capture: addresses, IPv4 identification, UDP payload.
pub(crate) struct Captured {
    pub(crate) source: SocketAddr,
    target: SocketAddr,
    identification: u16,
    pub(crate) bytes: Vec<u8>,
}

/// Returns the RoCEv2 packets of a capture.
pub(crate) fn packets(file: &[u8]) -> Vec<Captured> {
    let (header, _) = capture::FileHeader::read(file).expect("a capture");
    let mut packets = Vec::new();
    for record in header.records(file) {
        let (_, frame) = record.expect("whole records");
        let (_, ethernet_bytes) = ethernet::Header::read(frame).expect("an Ethernet frame");
        let Ok((ip, ip_bytes)) = ipv4::Header::read(&frame[ethernet_bytes..]) else { continue };
        if ip.protocol != kiban_base::numbers::protocol::UDP {
            continue;
        }
        let datagram = &frame[ethernet_bytes + ip_bytes..ethernet_bytes + usize::from(ip.total_bytes)];
        let (header, header_bytes) = udp::Header::read(datagram).expect("a UDP datagram");
        if header.target_port == PORT {
            packets.push(Captured {
                source: (ip.source, header.source_port).into(),
                target: (ip.target, header.target_port).into(),
                identification: ip.identification,
                bytes: datagram[header_bytes..].to_vec(),
            });
        }
    }
    packets
}

fn icrc(packet: &Captured, header_bytes: usize, identification: u16) -> [u8; 4] {
    let mut icrc = Icrc::new(packet.source, packet.target, packet.bytes.len(), identification);
    let (headers, rest) = packet.bytes.split_at(header_bytes);
    icrc.headers(headers);
    icrc.payload(&rest[..rest.len() - ICRC_BYTES]);
    icrc.octets()
}

/// A capture, and how many packets of each opcode Wireshark finds in it.
type Row = (&'static str, &'static [u8], &'static [(u8, usize)]);

macro_rules! capture {
    ($name:literal, $counts:expr) => {
        ($name, include_bytes!(concat!("../data/rxe-", $name, ".pcap")), &$counts)
    };
}

const ROWS: [Row; 10] = [
    capture!("atomic", [(0x12, 5), (0x14, 5)]),
    capture!("mckey", [(0x65, 4)]),
    capture!("rc-pingpong", [(0x00, 8), (0x01, 16), (0x02, 8), (0x11, 8)]),
    capture!("read", [(0x0c, 5), (0x0d, 5), (0x0e, 30), (0x0f, 5)]),
    capture!(
        "rping",
        [
            (0x04, 12),
            (0x06, 3),
            (0x07, 3),
            (0x08, 3),
            (0x0c, 3),
            (0x0d, 3),
            (0x0e, 3),
            (0x0f, 3),
            (0x11, 15),
            (0x64, 5)
        ]
    ),
    capture!("uc-pingpong", [(0x20, 8), (0x21, 16), (0x22, 8)]),
    capture!("ucmatose", [(0x00, 16), (0x02, 16), (0x11, 16), (0x64, 10)]),
    capture!("ud-pingpong", [(0x64, 8)]),
    capture!("udaddy", [(0x64, 2), (0x65, 8)]),
    capture!("write", [(0x06, 5), (0x07, 30), (0x08, 5), (0x11, 5)]),
];

#[test]
fn every_packet_of_rxe_is_read_and_written_byte_for_byte() {
    for (name, file, expected) in ROWS {
        let mut counts = BTreeMap::new();
        for captured in packets(file) {
            let bytes = &captured.bytes;
            let (packet, payload) = Packet::read(bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(packet.length(), payload.start, "{name}");
            let mut written = vec![0; packet.length()];
            assert_eq!(packet.write(&mut written), written.len(), "{name}");
            assert_eq!(written, bytes[..payload.start], "{name}: {packet:?}");
            assert_eq!(payload.end + usize::from(packet.bth.pad) + ICRC_BYTES, bytes.len(), "{name}");
            *counts.entry(packet.bth.opcode.octet()).or_default() += 1;
        }
        assert_eq!(counts, expected.iter().copied().collect::<BTreeMap<u8, usize>>(), "{name}");
    }
}

#[test]
fn icrcs_of_rxe_verify_with_and_without_the_identification() {
    let mut identifications = Identifications::default();
    for (name, file, _) in ROWS {
        for captured in packets(file) {
            let (_, payload) = Packet::read(&captured.bytes).expect("read above");
            let received = *captured.bytes.last_chunk().expect("four octets");
            assert_eq!(icrc(&captured, payload.start, captured.identification), received, "{name}");
            let computed = icrc(&captured, payload.start, 0);
            let solved = identifications.solve(received, computed, captured.bytes.len());
            assert_eq!(solved, Some(captured.identification), "{name}");
        }
    }
}

/// Flips every bit of one packet. The ICRC does not cover the octet with FECN, BECN and reserved bits.
#[test]
fn a_flipped_bit_is_found_unless_a_router_may_have_changed_it() {
    let mut captured = packets(ROWS[0].1).swap_remove(0);
    let (_, payload) = Packet::read(&captured.bytes).expect("a packet");
    let covered = captured.bytes.len() - ICRC_BYTES;
    let received = *captured.bytes.last_chunk().expect("four octets");
    for bit in 0..covered * 8 {
        captured.bytes[bit / 8] ^= 0x80 >> (bit % 8);
        let is_intact = icrc(&captured, payload.start, captured.identification) == received;
        assert_eq!(is_intact, bit / 8 == 4, "bit {bit}");
        captured.bytes[bit / 8] ^= 0x80 >> (bit % 8);
    }
}

#[test]
fn malformed_packets_are_refused() {
    use kiban_base::Malformed;
    let bth = Bth {
        opcode: Opcode::Transport(Service::Rc, Operation::Acknowledge),
        solicited: false,
        migrated: true,
        pad: 0,
        pkey: 0xffff,
        fecn: false,
        becn: false,
        destination: 0x12_3456,
        ack_request: false,
        selective: false,
        psn: 0xff_ffff,
    };
    let read = |opcode: u8, second: u8, length: usize| {
        let mut bytes = vec![0; length.max(12)];
        bth.write(&mut bytes);
        (bytes[0], bytes[1]) = (opcode, second);
        bytes.truncate(length);
        Packet::read(&bytes).map(|(_, payload)| payload)
    };
    assert_eq!(read(0x04, 0, 16), Ok(12..12));
    assert_eq!(read(0x04, 0x30, 20), Ok(12..13));
    assert_eq!(read(0x04, 0, 11), Err(Malformed::Truncated));
    assert_eq!(read(0x04, 0, 15), Err(Malformed::Truncated));
    assert_eq!(read(0x04, 1, 16), Err(Malformed::Version));
    assert_eq!(read(0x15, 0, 16), Err(Malformed::Operation));
    assert_eq!(read(0x04, 0x10, 16), Err(Malformed::PadLength));
    assert_eq!(read(0x04, 0, 17), Err(Malformed::PadLength));
    assert_eq!(read(0x06, 0, 28), Err(Malformed::Truncated));
    assert_eq!(read(0x11, 0, 20), Ok(16..16));
    assert_eq!(read(0x11, 0, 24), Err(Malformed::TotalLength));
    assert_eq!(read(0x81, 0, 32), Ok(28..28));
    assert_eq!(read(0x81, 0, 28), Err(Malformed::Truncated));
}

proptest! {
    /// What is accepted can be written again, and nothing panics.
    #[test]
    fn accepted_packets_are_written_as_they_were_read(mut bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        // Most random opcodes are reserved.
        if let Some(version) = bytes.get_mut(1) {
            *version &= 0xf0;
        }
        if let Ok((packet, payload)) = Packet::read(&bytes) {
            let mut written = vec![0; packet.length()];
            prop_assert_eq!(packet.write(&mut written), payload.start);
            let (again, _) = Packet::read(&[&written[..], &bytes[payload.start..]].concat()).expect("written");
            prop_assert_eq!(again, packet);
        }
    }

    #[test]
    fn an_identification_is_solved_for_any_length_and_family(
        identification: u16,
        payload in prop::collection::vec(any::<u8>(), 0..5000),
        wrong in 1..=u32::MAX,
    ) {
        let end = |octet: u8| SocketAddr::from((Ipv4Addr::new(192, 0, 2, octet), 50_000));
        let value = |identification: u16| {
            let mut icrc = Icrc::new(end(1), end(2), 12 + payload.len() + 4, identification);
            icrc.headers(&[7; 12]);
            icrc.payload(&payload);
            icrc.octets()
        };
        let mut identifications = Identifications::default();
        let bytes = 12 + payload.len() + 4;
        prop_assert_eq!(identifications.solve(value(identification), value(0), bytes), Some(identification));
        // Of other differences, one in 65,536 has a solution; and then it is the right one for that ICRC.
        let damaged = (u32::from_le_bytes(value(0)) ^ wrong).to_le_bytes();
        if let Some(found) = identifications.solve(damaged, value(0), bytes) {
            prop_assert_eq!(value(found), damaged);
        }
    }
}

/// IBTA §A17.3.2: in IPv6, only the traffic class, the flow label and the hop limit are not covered.
#[test]
fn an_ipv6_icrc_covers_addresses_ports_and_length() {
    let end = |last: u16, port| SocketAddr::from((Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, last), port));
    let value = |source, target, bytes| {
        let mut icrc = Icrc::new(source, target, bytes, 0);
        icrc.headers(&[0; 12]);
        icrc.octets()
    };
    let values = [
        value(end(1, 50_000), end(2, PORT), 16),
        value(end(3, 50_000), end(2, PORT), 16),
        value(end(1, 50_000), end(4, PORT), 16),
        value(end(1, 50_001), end(2, PORT), 16),
        value(end(1, 50_000), end(2, PORT), 20),
    ];
    for (at, one) in values.iter().enumerate() {
        assert!(values[..at].iter().all(|other| other != one));
    }
}
