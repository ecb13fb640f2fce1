//! Bytes from standards and from captures of real peers.

use std::net::{Ipv4Addr, Ipv6Addr};

use kiban_atm::wire::{
    aal5,
    atm::{self, HecCheck, Interface, Vc},
    atmarp, llc_snap, oam,
};
use kiban_base::Sum;
use kiban_base::{
    Malformed, checksum,
    crc::{self, Crc32Aal5, Crc32Ethernet, Crc32c},
    numbers::{ether_type, protocol},
};
use kiban_capture as capture;
use kiban_tcpip::wire::{icmp, icmpv6, ipv4, ipv6, tcp, udp};

const CLIP: &[u8] = include_bytes!("data/linux-clip-ping.pcap");
const SIW: &[u8] = include_bytes!("data/siw-rping.pcap");
const XOT: &[u8] = include_bytes!("data/xot-mod8.pcap");

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}

#[test]
fn every_rule_has_its_own_stable_name_and_its_place_in_the_list() {
    let names: std::collections::BTreeSet<_> = Malformed::ALL.iter().map(|rule| rule.name()).collect();
    assert_eq!(names.len(), Malformed::ALL.len());
    for (position, rule) in Malformed::ALL.iter().enumerate() {
        assert_eq!(*rule as usize, position);
        assert!(!rule.to_string().is_empty());
    }
}

// Checks and sums

#[test]
fn the_check_values_of_the_catalogue_hold() {
    assert_eq!(Crc32Aal5::of(b"123456789"), 0xfc89_1918);
    assert_eq!(Crc32c::of(b"123456789"), 0xe306_9283);
    let mut ethernet = Crc32Ethernet::new();
    b"123456789".chunks(4).for_each(|run| ethernet.update(run));
    assert_eq!(ethernet.value(), 0xcbf4_3926);
    assert_eq!(crc::crc10(b"123456789"), 0x199);
}

#[test]
fn the_fcs_does_not_depend_on_how_a_run_is_cut() {
    let bytes: Vec<u8> = (0..400_u32).map(|at| (at * 7 / 3) as u8).collect();
    let bit = |register: u32| (register >> 1) ^ ((register & 1) * 0xedb8_8320);
    let byte =
        |register: u32, byte: &u8| (0..8).fold(register ^ u32::from(*byte), |register, _| bit(register));
    for length in 0..bytes.len() {
        let expected = !bytes[..length].iter().fold(!0, byte);
        for cut in [0, 1, 3, 16, 127, 128, length] {
            let mut crc = Crc32Ethernet::new();
            let (first, rest) = bytes[..length].split_at(cut.min(length));
            crc.update(first);
            crc.update(rest);
            assert_eq!(crc.value(), expected, "{length} bytes, cut at {cut}");
        }
    }
}

#[test]
fn the_examples_of_rfc_3720_appendix_b_4_hold() {
    let counting: Vec<u8> = (0..32).collect();
    let falling: Vec<u8> = (0..32).rev().collect();
    for (bytes, sent) in [
        (vec![0; 32], "aa36918a"),
        (vec![0xff; 32], "43aba862"),
        (counting, "4e79dd46"),
        (falling, "5cdb3f11"),
    ] {
        assert_eq!(Crc32c::of(&bytes).to_le_bytes(), hex(sent)[..], "{bytes:02x?}");
    }
}

#[test]
fn the_examples_of_i_363_5_hold() {
    let counting: Vec<u8> = (1..=40).collect();
    for (payload, expected) in
        [(vec![0; 40], 0x864d_7f99), (vec![0xff; 40], 0xc55e_457a), (counting, 0xbf67_1ed0)]
    {
        let mut crc = Crc32Aal5::new();
        crc.update(&payload);
        let mut tail = [0xee; aal5::TAIL_BYTES_MAX];
        let tail_bytes = aal5::write_tail(40, 0, crc, &mut tail);
        let pdu = [&payload[..], &tail[..tail_bytes]].concat();
        assert_eq!(pdu.len(), 48);
        let (trailer, opened) = aal5::open(&pdu).expect("our own frame");
        assert_eq!((trailer.crc, opened), (expected, &payload[..]));
        let mut whole = Crc32Aal5::new();
        whole.update(&pdu);
        assert!(whole.is_intact());
    }
}

#[test]
fn the_header_of_an_idle_cell_has_hec_52_and_of_an_unassigned_one_55() {
    assert_eq!(atm::header_bytes(atm::IDLE_WORD), [0, 0, 0, 1, 0x52]);
    assert_eq!(atm::header_bytes(atm::UNASSIGNED_WORD), [0, 0, 0, 0, 0x55]);
    assert!(atm::is_physical(atm::IDLE_WORD) && !atm::is_unassigned(Interface::Uni, atm::IDLE_WORD));
    assert!(atm::is_unassigned(Interface::Nni, 0) && !atm::is_physical(0));
    assert!(
        atm::is_unassigned(Interface::Uni, 0xf000_000e) && !atm::is_unassigned(Interface::Nni, 0xf000_000e)
    );
}

#[test]
fn a_pseudo_header_is_the_sum_of_its_written_bytes() {
    let (source, target) = (Ipv4Addr::new(192, 168, 0, 1), Ipv4Addr::new(255, 255, 0, 199));
    let mut written = [source.octets(), target.octets()].concat();
    written.extend([0, 17, 0x12, 0x34]);
    assert_eq!(checksum::pseudo_ipv4(source, target, 17, 0x1234), Sum::of(&written));
    assert_eq!(
        checksum::pseudo_ipv4(source, target, 17, 0).plus(checksum::length(0x1234)),
        Sum::of(&written)
    );
    assert_eq!(checksum::pseudo(source.into(), target.into(), 17, 0x1234), Sum::of(&written));

    let (source, target) = (Ipv6Addr::from(u128::MAX - 7), Ipv6Addr::LOCALHOST);
    let mut written = [source.octets(), target.octets()].concat();
    written.extend([0, 1, 0x23, 0x45, 0, 0, 0, 6]);
    assert_eq!(checksum::pseudo_ipv6(source, target, 6, 0x1_2345), Sum::of(&written));
    assert_eq!(checksum::pseudo(source.into(), target.into(), 6, 0x1_2345), Sum::of(&written));
    assert_eq!(checksum::of_header(&written[..33]), Sum::of(&written[..33]));
}

// ATM

#[test]
fn a_cell_header_is_read_as_uni_or_nni() {
    let word = 0x1230_0645;
    let uni = atm::Header::from_word(Interface::Uni, word);
    assert_eq!((uni.gfc, uni.vc, uni.pti, uni.clp), (1, Vc::new(0x23, 100), 0b010, true));
    assert!(uni.is_user() && uni.is_congested() && !uni.is_last() && !uni.is_oam());
    let nni = atm::Header::from_word(Interface::Nni, word);
    assert_eq!((nni.gfc, nni.vc), (0, Vc::new(0x123, 100)));
    assert_eq!((uni.to_word(Interface::Uni), nni.to_word(Interface::Nni)), (word, word));
    assert!(atm::Header { pti: atm::PTI_OAM_END_TO_END, ..uni }.is_oam());
    assert!(!atm::Header { pti: atm::PTI_OAM_END_TO_END, ..uni }.is_last());
    assert!(atm::Header::user(Vc::new(5, atm::VCI_F4_SEGMENT), false).is_oam());
    assert!(atm::Header::user(Vc::new(5, 100), true).is_last());
}

#[test]
fn a_circuit_is_written_as_path_and_channel() {
    assert_eq!(Vc::new(0, 100).to_string(), "0.100");
    for (text, expected) in [
        ("0.100", Some(Vc::new(0, 100))),
        ("4095.65535", Some(Vc::new(4095, 65535))),
        ("4096.1", None),
        ("1.65536", None),
        ("1", None),
        ("1.2.3", None),
        ("-1.2", None),
        ("", None),
    ] {
        assert_eq!(text.parse::<Vc>().ok(), expected, "{text}");
    }
    assert!("x".parse::<Vc>().unwrap_err().to_string().contains("vpi.vci"));
}

#[test]
fn a_cell_passes_with_and_without_its_hec() {
    let payload: [u8; 48] = std::array::from_fn(|n| n as u8);
    let word = atm::Header::user(Vc::new(3, 77), true).to_word(Interface::Uni);
    let mut cell = [0; atm::CELL_BYTES];
    atm::pack(word, &payload, &mut cell);
    assert_eq!(atm::unpack(&cell), (HecCheck::Intact(word), &payload));
    cell[2] ^= 0x10;
    assert_eq!(atm::unpack(&cell), (HecCheck::Corrected(word), &payload));
    cell[4] ^= 0x01;
    assert_eq!(atm::unpack(&cell).0.word(), None);
    let mut short = [0; atm::CELL_BYTES_WITHOUT_HEC];
    atm::pack_without_hec(word, &payload, &mut short);
    assert_eq!(atm::unpack_without_hec(&short), (word, &payload));
}

#[test]
fn frames_take_the_cells_that_the_tables_of_classical_ip_say() {
    // Columns: payload bytes, cells, pad. A TCP segment of 8192 bytes, with 40 bytes of headers and 8 of
    // LLC/SNAP, needs 8 bytes of padding.
    for (payload, cells, pad) in [
        (1, 1, 39),
        (40, 1, 0),
        (41, 2, 47),
        (8192 + 48, 172, 8),
        (8192 + 60, 173, 44),
        (9188, 192, 20),
        (65535, 1366, 25),
    ] {
        assert_eq!((aal5::cells(payload), aal5::pad_bytes(payload)), (cells, pad), "{payload}");
        assert_eq!(aal5::pdu_bytes(payload), cells * 48);
    }
    assert_eq!(aal5::PDU_BYTES_MAX, 1366 * 48);
}

#[test]
fn an_invalid_trailer_is_rejected_with_the_reason() {
    let mut crc = Crc32Aal5::new();
    crc.update(&[7; 50]);
    let mut tail = [0; aal5::TAIL_BYTES_MAX];
    let tail_bytes = aal5::write_tail(50, 9, crc, &mut tail);
    let good = [&[7; 50][..], &tail[..tail_bytes]].concat();
    assert_eq!(
        aal5::open(&good).map(|(trailer, payload)| (trailer.user_to_user, payload.len())),
        Ok((9, 50))
    );
    let with = |at: usize, value: u8| {
        let mut bad = good.clone();
        bad[at] = value;
        bad
    };
    for (pdu, rule) in [
        (good[..7].to_vec(), Malformed::Truncated),
        (with(89, 1), Malformed::CommonPartIndicator),
        (with(91, 0), Malformed::Aborted),
        (with(91, 40), Malformed::PadLength),
        (with(91, 89), Malformed::PadLength),
        (good[48..].to_vec(), Malformed::PadLength),
        (good[1..].to_vec(), Malformed::PadLength),
        (with(91, 51), Malformed::Crc),
        (with(0, 8), Malformed::Crc),
        (with(60, 1), Malformed::Crc),
        (with(95, !good[95]), Malformed::Crc),
    ] {
        assert_eq!(aal5::open(&pdu), Err(rule));
    }
}

#[test]
fn the_headers_of_rfc_2684_are_recognised() {
    for (bytes, expected) in [
        ("aaaa03 000000 0800", Ok((llc_snap::Header::Routed { ether_type: ether_type::IPV4 }, 8))),
        ("aaaa03 000000 86dd 60", Ok((llc_snap::Header::Routed { ether_type: ether_type::IPV6 }, 8))),
        ("aaaa03 0080c2 0007 0000", Ok((llc_snap::Header::Bridged { with_fcs: false }, 10))),
        ("aaaa03 0080c2 0001 beef", Ok((llc_snap::Header::Bridged { with_fcs: true }, 10))),
        ("aaaa03 0080c2 0007 00", Err(Malformed::Truncated)),
        ("aaaa03 0080c2 000e 0000", Err(Malformed::Encapsulation)),
        ("aaaa03 00a03e 0800 0000", Err(Malformed::Encapsulation)),
        ("fefe03 cc 45000054", Err(Malformed::Encapsulation)),
        ("45000054 d4094000", Err(Malformed::Encapsulation)),
        ("aaaa03 000000 08", Err(Malformed::Truncated)),
    ] {
        assert_eq!(llc_snap::Header::read(&hex(bytes)), expected, "{bytes}");
    }
    let mut target = [0xee; 12];
    assert_eq!(llc_snap::Header::Bridged { with_fcs: false }.write(&mut target), 10);
    assert_eq!(target[..], hex("aaaa03 0080c2 0007 0000 eeee")[..]);
}

#[test]
fn inatmarp_packets_of_linux_are_read() {
    let here = Ipv4Addr::new(192, 168, 99, 1);
    let there = Ipv4Addr::new(192, 168, 99, 2);
    // This packet was sent by Linux 5.10 on a permanent circuit; its LLC/SNAP header is omitted.
    let asked = hex("0013 0800 00 00 0008 04 00 00 00 c0a86301");
    let request = atmarp::Packet {
        operation: atmarp::Operation::InverseRequest,
        source: atmarp::Party::permanent(Some(here)),
        target: atmarp::Party::permanent(None),
    };
    let answered = hex("0013 0800 00 00 0009 04 00 00 04 c0a86302 c0a86301");
    let reply = atmarp::Packet {
        operation: atmarp::Operation::InverseReply,
        source: atmarp::Party::permanent(Some(there)),
        target: atmarp::Party::permanent(Some(here)),
    };
    for (bytes, packet) in [(asked, request), (answered, reply)] {
        assert_eq!(atmarp::Packet::read(&bytes), Ok((packet, bytes.len())));
        let mut written = vec![0; packet.length()];
        assert_eq!(packet.write(&mut written), bytes.len());
        assert_eq!(written, bytes);
    }
}

#[test]
fn an_invalid_atmarp_packet_is_rejected_with_the_reason() {
    for (bytes, rule) in [
        ("0013 0800 00 00 0008 04 00 00", Malformed::Truncated),
        ("0001 0800 00 00 0008 04 00 00 00 c0a86301", Malformed::HardwareType),
        ("0013 86dd 00 00 0008 04 00 00 00 c0a86301", Malformed::ProtocolType),
        ("0013 0800 00 00 0003 04 00 00 00 c0a86301", Malformed::Operation),
        ("0013 0800 00 00 0008 05 00 00 00 c0a8630100", Malformed::AddressLength),
        ("0013 0800 15 00 0008 04 00 00 00 c0a86301", Malformed::AddressLength),
        ("0013 0800 80 00 0008 04 00 00 00 c0a86301", Malformed::AddressLength),
        ("0013 0800 00 00 0008 04 00 00 04 c0a86301", Malformed::Truncated),
        ("0013 0800 14 00 0008 04 00 00 04 c0a86301", Malformed::Truncated),
    ] {
        assert_eq!(atmarp::Packet::read(&hex(bytes)), Err(rule), "{bytes}");
    }
}

#[test]
fn a_loopback_cell_is_answered_with_the_same_cell_marked_as_looped() {
    let request = oam::Loopback::request(0x0102_0304);
    let mut payload = [0; 48];
    oam::Payload::Loopback(request).write(&mut payload);
    // I.610 §10.2.3. Fields: type and function, indication, tag, 16 bytes of location, 16 bytes of source, 8
    // unused bytes, CRC.
    let expected = hex(&format!("18 01 01020304 {} {}", "ff".repeat(32), "6a".repeat(8)));
    assert_eq!(payload[..46], expected[..]);
    assert_eq!(u16::from_be_bytes([payload[46], payload[47]]), crc10_bit_by_bit(&payload));
    assert_eq!(oam::Payload::read(&payload), Ok((oam::Payload::Loopback(request), 48)));

    oam::Payload::Loopback(request.answer()).write(&mut payload);
    assert_eq!(payload[1], 0);
    assert_eq!(payload[2..46], expected[2..]);
    payload[5] ^= 0x80;
    assert_eq!(oam::Payload::read(&payload), Err(Malformed::Crc));
    payload[46] |= 0xfc;
    oam::fill(&mut payload);
    assert_eq!(u16::from_be_bytes([payload[46] & 0x03, payload[47]]), crc10_bit_by_bit(&payload));
    assert_eq!(oam::verify(&payload), Ok(()));
}

/// Computes the CRC of the first 374 bits, bit by bit from the polynomial.
fn crc10_bit_by_bit(payload: &[u8; 48]) -> u16 {
    let mut register = 0u16;
    for position in 0..374 {
        let bit = u16::from(payload[position / 8] >> (7 - position % 8) & 1);
        let carry = (register >> 9) ^ bit;
        register = (register << 1) & 0x3ff;
        if carry == 1 {
            register ^= 0x233;
        }
    }
    register
}

#[test]
fn oam_functions_that_are_not_decoded_are_recognised() {
    let mut payload = [0; 48];
    for value in [
        oam::Payload::Continuity,
        oam::Payload::Alarm(oam::Defect { kind: oam::UNUSED, location: [oam::UNUSED; 16] }),
        oam::Payload::RemoteDefect(oam::Defect { kind: 1, location: [2; 16] }),
        oam::Payload::Other { type_and_function: 0x20 },
        oam::Payload::Other { type_and_function: 0x81 },
    ] {
        value.write(&mut payload);
        assert_eq!(oam::Payload::read(&payload), Ok((value, 48)));
    }
    assert_eq!(oam::Payload::read(&payload[..47]), Err(Malformed::Truncated));
}

// IP and the protocols above it

#[test]
fn an_ipv4_header_from_the_textbook_is_read_and_written_alike() {
    let bytes = hex("4500 0073 0000 4000 4011 b861 c0a8 0001 c0a8 00c7");
    let packet = [&bytes[..], &[0; 95]].concat();
    let (header, header_bytes) = ipv4::Header::read(&packet).expect("a good header");
    assert_eq!((header_bytes, header.payload_bytes(), header.protocol), (20, 95, protocol::UDP));
    assert!(header.dont_fragment && !header.is_fragment());
    assert_eq!(ipv4::verify(&bytes), Ok(()));
    let mut written = [0xee; 20];
    header.write(&mut written);
    assert_eq!(written[..], bytes[..]);
    written[8] -= 1;
    assert_eq!(ipv4::verify(&written), Err(Malformed::Checksum));
    ipv4::fill(&mut written);
    assert_eq!(ipv4::verify(&written), Ok(()));
}

#[test]
fn an_invalid_ip_header_is_rejected_with_the_reason() {
    let v4 = |bytes: &str| ipv4::Header::read(&hex(bytes)).map(|(_, header_bytes)| header_bytes);
    for (bytes, expected) in [
        ("4500 0014 0000 4000 4011 b861 c0a8 0001 c0a8 00", Err(Malformed::Truncated)),
        ("6500 0014 0000 4000 4011 b861 c0a8 0001 c0a8 00c7", Err(Malformed::Version)),
        ("4400 0014 0000 4000 4011 b861 c0a8 0001 c0a8 00c7", Err(Malformed::HeaderLength)),
        ("4600 0018 0000 4000 4011 b861 c0a8 0001 c0a8 00c7", Err(Malformed::Truncated)),
        ("4600 0014 0000 4000 4011 b861 c0a8 0001 c0a8 00c7 01010101", Err(Malformed::TotalLength)),
        ("4600 0018 0000 4000 4011 b861 c0a8 0001 c0a8 00c7 01010101", Ok(24)),
        ("4500 0013 0000 4000 4011 b861 c0a8 0001 c0a8 00c7", Err(Malformed::TotalLength)),
        ("4500 0015 0000 4000 4011 b861 c0a8 0001 c0a8 00c7", Err(Malformed::TotalLength)),
        ("4500 0014 0000 4000 4011 b861 c0a8 0001 c0a8 00c7 ffff", Ok(20)),
        ("4500 0014 0000 1fff 4011 b861 c0a8 0001 c0a8 00c7", Err(Malformed::FragmentRange)),
        ("4500 0014 0000 1ffd 4011 b861 c0a8 0001 c0a8 00c7", Ok(20)),
    ] {
        assert_eq!(v4(bytes), expected, "{bytes}");
    }
    let quoted = hex("4500 05dc 0000 4000 4006 b861 c0a8 0001 c0a8 00c7 1234 5678 fffffff0");
    assert_eq!(ipv4::Header::read(&quoted), Err(Malformed::TotalLength));
    let (header, header_bytes) = ipv4::Header::read_quoted(&quoted).expect("the beginning is there");
    assert_eq!(header.total_bytes, 1500);
    let segment = tcp::Quoted::read(&quoted[header_bytes..]).expect("eight bytes are quoted");
    assert_eq!((segment.source_port, segment.target_port, segment.sequence.0), (0x1234, 0x5678, 0xffff_fff0));

    let v6 = |bytes: Vec<u8>| ipv6::Header::read(&bytes).map(|(header, _)| header.payload_bytes);
    let addresses = "00".repeat(32);
    assert_eq!(v6(hex(&format!("60000000 0001 3b40 {addresses} 00"))), Ok(1));
    assert_eq!(v6(hex(&format!("60000000 0002 3b40 {addresses} 00"))), Err(Malformed::TotalLength));
    assert_eq!(v6(hex(&format!("40000000 0001 3b40 {addresses} 00"))), Err(Malformed::Version));
    assert_eq!(v6(hex("60000000 0001 3b40")), Err(Malformed::Truncated));
}

#[test]
fn a_udp_datagram_without_a_checksum_is_right_over_ipv4_only() {
    let bytes = hex("0035 1234 000c 0000 01020304");
    let (header, header_bytes) = udp::Header::read(&bytes).expect("a good header");
    assert_eq!((header.payload_bytes(), header_bytes), (4, 8));
    let rest =
        checksum::pseudo_ipv4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, 17, 12).plus(Sum::of(&bytes[8..]));
    assert_eq!(udp::verify_over_ipv4(&bytes, rest), Ok(()));
    assert_eq!(udp::verify_over_ipv6(&bytes, rest), Err(Malformed::Checksum));
    let mut filled = bytes.clone();
    udp::fill(&mut filled, rest);
    assert_eq!(udp::verify_over_ipv6(&filled, rest), Ok(()));
    assert_eq!(udp::verify_over_ipv4(&filled, rest.plus(Sum::from_word(1))), Err(Malformed::Checksum));
    // A checksum of zero would mean "none", so RFC 768 sends all ones instead.
    let awkward = Sum::from_word(0xffff).minus(checksum::of_header(&bytes[..8]));
    udp::fill(&mut filled, awkward);
    assert_eq!(filled[6..8], [0xff, 0xff]);
    assert_eq!(udp::verify_over_ipv6(&filled, awkward), Ok(()));
    assert_eq!(udp::Header::read(&hex("0035 1234 0007 0000")), Err(Malformed::TotalLength));
    assert_eq!(udp::Header::read(&hex("0035 1234 0009 0000")), Err(Malformed::TotalLength));
    assert_eq!(udp::Header::read(&hex("0035 1234 0009 00")), Err(Malformed::Truncated));
}

#[test]
fn icmp_errors_carry_their_quotation_and_mtu() {
    for (bytes, header, is_error) in [
        ("0304 0000 0000 05dc", icmp::Header::Unreachable { code: 4, next_hop_mtu: 1500 }, true),
        ("0b01 0000 0000 0000", icmp::Header::TimeExceeded { code: 1 }, true),
        ("0c00 0000 1400 0000", icmp::Header::ParameterProblem { code: 0, pointer: 20 }, true),
        ("0800 0000 1234 0005", icmp::Header::EchoRequest { identifier: 0x1234, sequence: 5 }, false),
        ("0000 0000 1234 0005", icmp::Header::EchoReply { identifier: 0x1234, sequence: 5 }, false),
        ("0501 0000 c0a8 0001", icmp::Header::Other { kind: 5, code: 1, rest: [192, 168, 0, 1] }, true),
        ("0d00 0000 0000 0000", icmp::Header::Other { kind: 13, code: 0, rest: [0; 4] }, false),
    ] {
        let bytes = hex(bytes);
        assert_eq!(icmp::Header::read(&bytes), Ok((header, 8)));
        assert_eq!(header.is_error(), is_error);
        let mut written = [0xee; 8];
        header.write(&mut written);
        assert_eq!(written[..], bytes[..]);
    }
    for (bytes, header, is_error) in [
        ("0104 0000 0000 0000", icmpv6::Header::Unreachable { code: 4 }, true),
        ("0200 0000 0000 0500", icmpv6::Header::TooLong { mtu: 1280 }, true),
        ("0300 0000 0000 0000", icmpv6::Header::TimeExceeded { code: 0 }, true),
        ("0401 0000 0000 0028", icmpv6::Header::ParameterProblem { code: 1, pointer: 40 }, true),
        ("8000 0000 1234 0005", icmpv6::Header::EchoRequest { identifier: 0x1234, sequence: 5 }, false),
        ("8100 0000 1234 0005", icmpv6::Header::EchoReply { identifier: 0x1234, sequence: 5 }, false),
        ("8700 0000 0000 0000", icmpv6::Header::Other { kind: 135, code: 0, rest: [0; 4] }, false),
        ("6400 0000 0000 0000", icmpv6::Header::Other { kind: 100, code: 0, rest: [0; 4] }, true),
    ] {
        let bytes = hex(bytes);
        assert_eq!(icmpv6::Header::read(&bytes), Ok((header, 8)));
        assert_eq!(header.is_error(), is_error);
        let mut written = [0xee; 8];
        header.write(&mut written);
        assert_eq!(written[..], bytes[..]);
    }
}

#[test]
fn tcp_options_are_parsed_leniently_except_for_lengths() {
    let none = tcp::Options::NONE;
    let stamps = Some(tcp::Timestamps { value: 1, echo: 2 });
    let mut one_block = tcp::SackBlocks::new();
    one_block.push(tcp::SackBlock { left: tcp::Sequence(0x10), right: tcp::Sequence(0x20) });
    for (bytes, expected) in [
        ("", Ok(none)),
        ("0101080a 00000001 00000002", Ok(tcp::Options { timestamps: stamps, ..none })),
        ("080a 00000001 00000002 0000", Ok(tcp::Options { timestamps: stamps, ..none })),
        ("080a 00000001 00000002 0101", Ok(tcp::Options { timestamps: stamps, ..none })),
        ("020405b4", Ok(tcp::Options { mss: Some(1460), ..none })),
        ("04020303 0e000000", Ok(tcp::Options { sack_permitted: true, window_shift: Some(14), ..none })),
        ("0101050a 00000010 00000020", Ok(tcp::Options { sack: one_block, ..none })),
        ("fd06aabb ccdd0204 05b40000", Ok(tcp::Options { mss: Some(1460), ..none })),
        ("1302aabb", Err(Malformed::OptionLength)),
        ("00ffffff", Ok(none)),
        ("02030101", Err(Malformed::OptionLength)),
        ("02050101 01010101", Err(Malformed::OptionLength)),
        ("03020101", Err(Malformed::OptionLength)),
        ("04030101", Err(Malformed::OptionLength)),
        ("08090000 00000000 00000000", Err(Malformed::OptionLength)),
        ("05020000", Err(Malformed::OptionLength)),
        ("05090000 00000000 00000000", Err(Malformed::OptionLength)),
        ("01010101 0101080a 00000001", Err(Malformed::OptionLength)),
        ("01010102", Err(Malformed::OptionLength)),
        ("fd000000", Err(Malformed::OptionLength)),
        ("fd010000", Err(Malformed::OptionLength)),
    ] {
        assert_eq!(tcp::Options::read(&hex(bytes)), expected, "{bytes}");
    }
    let fixed = |words: u8| {
        let mut bytes = vec![0; 20];
        bytes[12] = words << 4;
        bytes
    };
    assert_eq!(tcp::Header::read(&fixed(4)), Err(Malformed::HeaderLength));
    assert_eq!(tcp::Header::read(&fixed(6)), Err(Malformed::HeaderLength));
    assert_eq!(tcp::Header::read(&fixed(5)[..19]), Err(Malformed::Truncated));
    assert!(tcp::Header::read(&fixed(5)).is_ok());
}

#[test]
fn options_are_written_in_the_order_of_linux() {
    let stamps = Some(tcp::Timestamps { value: 1, echo: 2 });
    let mut four_blocks = tcp::SackBlocks::new();
    for number in 0..5 {
        let block = tcp::SackBlock { left: tcp::Sequence(number), right: tcp::Sequence(number) };
        assert_eq!(four_blocks.push(block), number < 4);
    }
    let none = tcp::Options::NONE;
    let syn = tcp::Options {
        mss: Some(65495),
        window_shift: Some(7),
        sack_permitted: true,
        timestamps: stamps,
        ..none
    };
    let block = |number: u32| format!("{number:08x}{number:08x}");
    let [b0, b1, b2, b3] = [block(0), block(1), block(2), block(3)];
    for (options, expected) in [
        (none, String::new()),
        (syn, "0204ffd7 0402080a 00000001 00000002 01030307".into()),
        (tcp::Options { timestamps: None, ..syn }, "0204ffd7 01010402 01030307".into()),
        // Padding follows the Fast Open option.
        (
            tcp::Options { timestamps: None, fast_open: tcp::FastOpenCookie::new(&[1, 2, 3, 4]), ..syn },
            "0204ffd7 01010402 01030307 2206 01020304 0101".into(),
        ),
        (tcp::Options { timestamps: stamps, ..none }, "0101080a 00000001 00000002".into()),
        (tcp::Options { sack: four_blocks, ..none }, format!("01010522 {b0}{b1}{b2}{b3}")),
        (
            tcp::Options { sack: four_blocks, timestamps: stamps, ..none },
            format!("0101080a 00000001 00000002 0101051a {b0}{b1}{b2}"),
        ),
    ] {
        let header = tcp::Header {
            source_port: 1,
            target_port: 2,
            sequence: tcp::Sequence(3),
            acknowledgment: tcp::Sequence(4),
            flags: tcp::Flags::SYN | tcp::Flags::ACK,
            window: 5,
            urgent: 0,
            options,
        };
        let mut written = [0xee; 60];
        let header_bytes = header.write(&mut written);
        assert_eq!(header_bytes, header.length());
        assert_eq!(written[20..header_bytes], hex(&expected)[..], "{options:?}");
        assert_eq!(written[13], 0x12);
    }
    assert_eq!((tcp::Flags::SYN | tcp::Flags::ACK).to_string(), "SYN ACK");
}

#[test]
fn sequence_number_comparison_wraps() {
    let (before, after) = (tcp::Sequence(0xffff_fff0), tcp::Sequence(0x10));
    assert!(before.lt(after) && before.le(after) && after.gt(before) && after.ge(before));
    assert!(before.le(before) && before.ge(before) && !before.lt(before) && !before.gt(before));
    assert_eq!(before.distance(after), 0x20);
    assert_eq!((before + 0x20, after - 0x20), (after, before));
    assert_eq!((before.max(after), before.min(after)), (after, before));
    let syn = tcp::Flags::SYN | tcp::Flags::FIN;
    assert!(syn.has(tcp::Flags::FIN) && !syn.has(tcp::Flags::FIN | tcp::Flags::ACK));
    assert!(syn.has_any(tcp::Flags::FIN | tcp::Flags::ACK) && syn.without(syn) == tcp::Flags::NONE);
}

// Captures

fn records(bytes: &'static [u8], link_type: u32) -> Vec<(capture::RecordHeader, &'static [u8])> {
    let (file, header_bytes) = capture::FileHeader::read(bytes).expect("a capture");
    assert_eq!(
        (header_bytes, file.link_type, file.nanoseconds),
        (capture::FILE_HEADER_BYTES, link_type, false)
    );
    file.records(bytes).map(|record| record.expect("a whole record")).collect()
}

#[test]
fn every_ping_of_linux_classical_ip_is_decoded_and_verified() {
    let mut pings = std::collections::BTreeMap::new();
    let packets = records(CLIP, capture::LINK_TYPE_SUNATM);
    assert_eq!(packets.len(), 18);
    for (record, data) in packets {
        assert_eq!(record.captured_bytes, record.original_bytes);
        let (sun, sun_bytes) = capture::SunAtm::read(data).expect("a SUNATM header");
        assert_eq!((sun.kind, sun.vc), (2, Vc::new(0, 100)));
        let frame = &data[sun_bytes..];
        let (llc, llc_bytes) = llc_snap::Header::read(frame).expect("an LLC/SNAP header");
        assert_eq!(llc, llc_snap::Header::Routed { ether_type: ether_type::IPV4 });
        let packet = &frame[llc_bytes..];
        let (ip, ip_bytes) = ipv4::Header::read(packet).expect("an IPv4 header");
        assert_eq!(ipv4::verify(&packet[..ip_bytes]), Ok(()));
        assert_eq!((ip.protocol, usize::from(ip.total_bytes)), (protocol::ICMP, packet.len()));
        let message = &packet[ip_bytes..];
        let (header, message_bytes) = icmp::Header::read(message).expect("an ICMP header");
        assert_eq!(icmp::verify(message, Sum::of(&message[message_bytes..])), Ok(()));
        let (identifier, sequence) = match (header, sun.is_sent) {
            (icmp::Header::EchoRequest { identifier, sequence }, false) => (identifier, sequence),
            (icmp::Header::EchoReply { identifier, sequence }, true) => (identifier, sequence),
            other => panic!("{other:?} goes the wrong way"),
        };
        pings.entry((identifier, sequence)).or_insert_with(Vec::new).push(message[message_bytes..].to_vec());

        // In the other direction, encode the same packet from its decoded form.
        let mut again = vec![0; frame.len()];
        let llc_bytes = llc.write(&mut again);
        let ip_bytes = ip.write(&mut again[llc_bytes..]);
        let message = &mut again[llc_bytes + ip_bytes..];
        let message_bytes = header.write(message);
        message[message_bytes..].copy_from_slice(&frame[llc_bytes + ip_bytes + message_bytes..]);
        let rest = Sum::of(&message[message_bytes..]);
        icmp::fill(message, rest);
        assert_eq!(again, frame);
    }
    assert_eq!(pings.len(), 9);
    assert!(
        pings.values().all(|both| both.len() == 2 && both[0] == both[1]),
        "every echo brings its data back"
    );
    assert!(pings.values().any(|both| both[0].len() == 9152), "the longest fills the MTU of 9180");
}

#[test]
fn segments_of_linux_round_trip_byte_for_byte() {
    let mut kinds = std::collections::BTreeSet::new();
    for (_, frame) in
        [records(SIW, capture::LINK_TYPE_ETHERNET), records(XOT, capture::LINK_TYPE_ETHERNET)].concat()
    {
        let (ethernet, ethernet_bytes) =
            kiban_base::ethernet::Header::read(frame).expect("an Ethernet header");
        assert_eq!(ethernet.ether_type, ether_type::IPV4);
        let packet = &frame[ethernet_bytes..];
        let (ip, ip_bytes) = ipv4::Header::read(packet).expect("an IPv4 header");
        let segment = &packet[ip_bytes..usize::from(ip.total_bytes)];
        let (header, header_bytes) = tcp::Header::read(segment).expect("a TCP header");
        let pseudo = checksum::pseudo_ipv4(ip.source, ip.target, ip.protocol, segment.len());

        // The loopback device leaves the rest of the checksum to a NIC that does not exist. So, except on
        // resets, the field holds only the sum of the pseudo-header.
        let field = u16::from_be_bytes([segment[16], segment[17]]);
        let offloaded = field == pseudo.word();
        let rest = pseudo.plus(Sum::of(&segment[header_bytes..]));
        assert!(offloaded || tcp::verify(&segment[..header_bytes], rest).is_ok());

        let mut again = vec![0xee; ip_bytes + header_bytes];
        ip.write(&mut again);
        header.write(&mut again[ip_bytes..]);
        if offloaded {
            again[ip_bytes + 16..ip_bytes + 18].copy_from_slice(&field.to_be_bytes());
        } else {
            tcp::fill(&mut again[ip_bytes..], rest);
        }
        assert_eq!(again, packet[..ip_bytes + header_bytes]);
        kinds.insert((header_bytes, header.flags.to_string()));
    }
    let syn = (40, "SYN".to_string());
    let reset = (20, "RST ACK".to_string());
    assert!(kinds.contains(&syn) && kinds.contains(&reset), "{kinds:?}");
}

#[test]
fn a_linux_segment_with_timestamps_and_sack_round_trips() {
    let bytes = hex(
        "27 76 e178 5ee18a40 e2dc9ddf b010006d fe340000 0101080a fe8fef9c 1431f061 0101050a e2dc9dde e2dc9ddf",
    );
    let (header, header_bytes) = tcp::Header::read(&bytes).expect("a TCP header");
    assert_eq!((header_bytes, header.options.sack.as_slice().len()), (44, 1));
    assert_eq!(header.options.sack.as_slice()[0].left.distance(header.acknowledgment), 1);
    let mut again = [0; 60];
    header.write(&mut again);
    again[16..18].copy_from_slice(&bytes[16..18]);
    assert_eq!(again[..44], bytes[..]);
}

#[test]
fn an_aal5_frame_in_a_capture_file_has_the_bytes_that_wireshark_reads() {
    let mut crc = Crc32Aal5::new();
    crc.update(&[0; 40]);
    let mut tail = [0; aal5::TAIL_BYTES_MAX];
    let tail_bytes = aal5::write_tail(40, 0, crc, &mut tail);
    let frame = [&[0; 40][..], &tail[..tail_bytes]].concat();
    let word = atm::Header::user(Vc::new(1, 100), true).to_word(Interface::Uni);

    let mut bytes = Vec::new();
    capture::FileHeader::new(capture::LINK_TYPE_ERF).write(&mut bytes);
    capture::write_aal5(3_500_000_001, 1, word, &frame, &mut bytes);
    let expected = hex("4d3cb2a1 0200 0400 00000000 00000000 00000400 c5000000
         03000000 0165cd1d 44000000 44000000
         04000080 03000000 04 05 0044 0000 0034 00100642");
    assert_eq!(bytes[..expected.len()], expected[..]);
    assert_eq!(bytes[expected.len()..], frame[..]);

    let (file, _) = capture::FileHeader::read(&bytes).expect("our own file");
    let (record, data) = file.records(&bytes).next().expect("one record").expect("a whole one");
    assert_eq!(record.nanoseconds, 3_500_000_001);
    let (erf, erf_bytes) = capture::Erf::read(data).expect("our own record");
    assert_eq!((erf.nanoseconds, erf.interface, erf.word), (3_500_000_001, 1, word));
    assert_eq!((erf.captured_bytes, erf.original_bytes), (48, 48));
    assert!(aal5::open(&data[erf_bytes..]).is_ok());
}

#[test]
fn a_frame_too_long_for_an_erf_record_is_truncated() {
    let frame = vec![7; aal5::PDU_BYTES_MAX];
    let mut bytes = Vec::new();
    capture::FileHeader::new(capture::LINK_TYPE_ERF).write(&mut bytes);
    capture::write_aal5(0, 0, 0, &frame, &mut bytes);
    let (file, _) = capture::FileHeader::read(&bytes).expect("our own file");
    let records: Vec<_> = file.records(&bytes).collect();
    let [Ok((record, data))] = records[..] else { panic!("one record: {}", records.len()) };
    assert_eq!((record.captured_bytes, record.original_bytes as usize), (65535, 20 + aal5::PDU_BYTES_MAX));
    let (erf, erf_bytes) = capture::Erf::read(data).expect("our own record");
    assert_eq!(usize::from(erf.captured_bytes), data.len() - erf_bytes);
}

#[test]
fn an_invalid_capture_is_rejected_with_the_reason() {
    assert_eq!(capture::FileHeader::read(&CLIP[..23]), Err(Malformed::Truncated));
    assert_eq!(capture::FileHeader::read(&[0x0a; 24]), Err(Malformed::Magic));
    let mut newer = CLIP[..24].to_vec();
    newer[4] = 3;
    assert_eq!(capture::FileHeader::read(&newer), Err(Malformed::Version));
    let (file, _) = capture::FileHeader::read(CLIP).expect("a capture");
    for (cut, rule) in [(24 + 15, Malformed::Truncated), (24 + 17, Malformed::RecordLength)] {
        assert_eq!(file.records(&CLIP[..cut]).collect::<Vec<_>>(), [Err(rule)]);
    }
    let erf = |text: &str| capture::Erf::read(&hex(text)).map(|(erf, _)| erf.captured_bytes);
    let time = "00".repeat(8);
    assert_eq!(erf(&format!("{time} 04 04 0014 0000 0004 00000000")), Ok(0));
    assert_eq!(erf(&format!("{time} 03 04 0014 0000 0004 00000000")), Err(Malformed::RecordType));
    assert_eq!(erf(&format!("{time} 84 04 0014 0000 0004 00000000")), Err(Malformed::RecordType));
    assert_eq!(erf(&format!("{time} 04 04 0013 0000 0004 00000000")), Err(Malformed::RecordLength));
    assert_eq!(erf(&format!("{time} 04 04 0015 0000 0004 00000000")), Err(Malformed::RecordLength));
}
