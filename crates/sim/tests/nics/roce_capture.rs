//! RoCEv2 on the line of simulated boards, as others read it: every frame has the right ICRC, and tshark
//! finds the packets.

use crate::rdma::{Over, boards, config, meet};
use kiban_sim::{ImpairmentConfig, Tap};
use std::cell::RefCell;
use std::rc::Rc;

const PCAP_HEADER_BYTES: usize = 24;
const RECORD_HEADER_BYTES: usize = 16;
const IPV4_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
const ICRC_BYTES: usize = 4;

/// CRC-32 of Ethernet, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    let mut register = u32::MAX;
    for byte in bytes {
        register ^= u32::from(*byte);
        for _ in 0..8 {
            register = register >> 1 ^ if register & 1 == 1 { 0xedb8_8320 } else { 0 };
        }
    }
    !register
}

/// Returns the ICRC of an IPv4 packet, computed from the packet as it was on the line (IBTA volume 1 §7.8.1,
/// §A17.3.2).
fn icrc(packet: &[u8]) -> [u8; ICRC_BYTES] {
    let mut masked = [&[0xff; 8], &packet[..packet.len() - ICRC_BYTES]].concat();
    let (ip, udp, bth) = (8, 8 + IPV4_BYTES, 8 + IPV4_BYTES + UDP_BYTES);
    // Type of service, TTL, header checksum; UDP's checksum; FECN, BECN and the reserved bits beside them.
    for at in [ip + 1, ip + 8, ip + 10, ip + 11, udp + 6, udp + 7, bth + 4] {
        masked[at] = 0xff;
    }
    crc32(&masked).to_le_bytes()
}

/// Returns the records of a capture file.
fn records(file: &[u8]) -> Vec<&[u8]> {
    let mut rest = &file[PCAP_HEADER_BYTES..];
    let mut records = Vec::new();
    while let Some((header, after)) = rest.split_first_chunk::<RECORD_HEADER_BYTES>() {
        let length = u32::from_le_bytes(header[8..12].try_into().expect("four octets")) as usize;
        records.push(&after[..length]);
        rest = &after[length..];
    }
    records
}

/// Captures what both boards receive while they perform all operations on each other.
fn capture(bytes: usize) -> Vec<u8> {
    let (mut world, one, two, meeting) = boards(Over::Roce, &config(), ImpairmentConfig::NONE, 1);
    let cables: Vec<_> = world.cables().collect();
    let files: Vec<Rc<RefCell<Vec<u8>>>> = cables.iter().map(|_| Rc::default()).collect();
    for (cable, file) in cables.into_iter().zip(&files) {
        let file = file.clone();
        let sink = Box::new(move |bytes: &[u8]| file.borrow_mut().extend_from_slice(bytes));
        world.cable(cable).set_tap(Tap::new(0, sink));
    }
    meet(&mut world, [one, two], meeting, bytes, "capture");
    // One file: the header of the first, and the records of both.
    [&files[0].borrow()[..], &files[1].borrow()[PCAP_HEADER_BYTES..]].concat()
}

#[test]
fn every_packet_on_the_line_has_the_right_icrc() {
    let file = capture(5000);
    let packets = records(&file);
    assert!(packets.len() > 60, "{} packets", packets.len());
    for packet in packets {
        assert_eq!((packet[0], packet[9]), (0x45, 17), "IPv4 and UDP");
        assert_eq!(packet[4..8], [0, 0, 0x40, 0], "identification 0 and DF");
        assert_eq!(packet[22..24], 4791u16.to_be_bytes());
        // Only packets of connected queue pairs have a sender that reacts to marks. MADs go to queue pair 1.
        let ect0 = if packet[33..36] == [0, 0, 1] { 0 } else { 2 };
        assert_eq!(packet[1], 26 << 2 | ect0, "DSCP 26 and ECT(0)");
        assert_eq!(packet[packet.len() - ICRC_BYTES..], icrc(packet));
    }
}

/// Runs tshark on a capture and returns its output lines.
#[expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the other decoder is a program that reads files"
)]
fn tshark(file: &[u8], arguments: &[&str]) -> Vec<String> {
    let folder = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let path = folder.join(format!("roce-{}.pcap", std::process::id()));
    std::fs::write(&path, file).expect("a capture can be written");
    let output = std::process::Command::new("tshark")
        .args(["-o", "udp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE", "-r"])
        .arg(&path)
        .args(arguments)
        .output()
        .expect("tshark reads the captures: apt-get install tshark, or run make test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::remove_file(&path).expect("it was written");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn tshark_finds_the_packets_of_every_operation_and_of_the_connection_manager() {
    let lines = tshark(&capture(5000), &["-T", "fields", "-e", "infiniband.bth.opcode"]);
    let count = |opcode: u8| lines.iter().filter(|line| **line == opcode.to_string()).count();
    // Send First and Last, Write First, Middle and Last, Write Last with Immediate, Read Request, the first
    // and last packet of a response, Acknowledge, the acknowledgement of an atomic operation, FetchAdd.
    for (opcode, least) in [
        (0, 4),
        (2, 4),
        (6, 4),
        (7, 12),
        (8, 2),
        (9, 2),
        (12, 2),
        (13, 2),
        (15, 2),
        (17, 6),
        (18, 2),
        (20, 2),
    ] {
        assert!(count(opcode) >= least, "opcode {opcode}: {} of {least} packets", count(opcode));
    }
    assert_eq!(count(100), 5, "REQ, REP, RTU, DREQ and DREP in datagrams");
    assert!(lines.iter().all(|line| !line.is_empty()), "every packet is one of RoCEv2");
    let wrong = tshark(&capture(5000), &["-Y", "_ws.malformed || _ws.expert.severity == error"]);
    assert_eq!(wrong, [""; 0]);
}
