//! A running board gets its key from the operating system, so two boards with the same configuration have
//! different secrets.

use kiban_base::Sum;
use kiban_base::checksum;
use kiban_base::numbers::protocol;
use kiban_service::{Plan, Running};
use kiban_tcpip::wire::ipv4;
use kiban_tcpip::wire::tcp::{Flags, Header as Segment, Options, Sequence};
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

const BOARD: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
/// The peer's ports. A SYN is sent from each of them to each board.
const PORTS: std::ops::Range<u16> = 2000..2008;

/// Returns a SYN for the board's echo service.
fn syn(port: u16) -> Vec<u8> {
    let segment = Segment {
        source_port: port,
        target_port: 7,
        sequence: Sequence(0),
        acknowledgment: Sequence(0),
        flags: Flags::SYN,
        window: 8192,
        urgent: 0,
        options: Options { mss: Some(1400), ..Options::NONE },
    };
    let header = ipv4::Header {
        traffic_class: 0,
        total_bytes: (ipv4::HEADER_BYTES + segment.length()) as u16,
        identification: 0,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset_bytes: 0,
        time_to_live: 64,
        protocol: protocol::TCP,
        source: PEER,
        target: BOARD,
        options: &[],
    };
    let mut packet = vec![0; header.total_bytes.into()];
    header.write(&mut packet);
    let transport = &mut packet[ipv4::HEADER_BYTES..];
    segment.write(transport);
    let sum = checksum::pseudo_ipv4(PEER, BOARD, protocol::TCP, transport.len()).plus(Sum::of(transport));
    transport[16..18].copy_from_slice(&sum.checksum().to_be_bytes());
    packet
}

/// Starts a new board, and returns the initial sequence numbers of its SYN/ACKs.
fn answers() -> Vec<u32> {
    let peer = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("the loopback");
    peer.set_read_timeout(Some(Duration::from_millis(200))).expect("a socket can wait");
    let own =
        UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|own| own.local_addr()).expect("a free port");
    let there = peer.local_addr().expect("bound");
    let text = format!(
        "[[port]]\nname = \"line\"\nlink = \"udp-packets:{own}-{there}\"\naddress = \"{BOARD}/24\"\n\n\
         [[service]]\nkind = \"echo\"\nlisten = \"{BOARD}:7\"\n"
    );
    let plan = Plan::read(&text, "test").unwrap_or_else(|error| panic!("{error}"));
    // The board runs until the process exits.
    std::thread::spawn(move || Running::start(plan, None).expect("the port is free again").run());
    let mut room = [0; 2048];
    PORTS
        .map(|port| {
            for _ in 0..100 {
                // The board may not be listening yet.
                if peer.send_to(&syn(port), own).is_err() {
                    continue;
                }
                while let Ok(length) = peer.recv(&mut room) {
                    let Ok((answer, _)) = Segment::read(&room[ipv4::HEADER_BYTES..length]) else { continue };
                    if answer.flags.has(Flags::SYN | Flags::ACK) && answer.target_port == port {
                        return answer.sequence.0;
                    }
                }
            }
            panic!("no answer within 20 s");
        })
        .collect()
}

#[test]
fn boards_with_the_same_configuration_use_different_sequence_numbers() {
    let (one, other) = (answers(), answers());
    // With the same key, the clock alone would make the initial sequence numbers differ (RFC 6528 §3), by
    // 250,000 per second and equally for all ports.
    let by: Vec<u32> = one.iter().zip(&other).map(|(one, other)| other.wrapping_sub(*one)).collect();
    let near = by.iter().filter(|by| (**by).min(by.wrapping_neg()) < 600 * 250_000).count();
    assert!(near < by.len(), "the same key: {by:?}");
}
