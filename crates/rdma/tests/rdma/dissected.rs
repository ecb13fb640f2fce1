//! Decodes our iWARP frames with Wireshark: an independent decoder must find every operation and nothing
//! malformed.
//!
//! Frames    are split at arbitrary positions into TCP segments over Ethernet, which the test builds and
//!           writes to a capture.
//! Limits    tshark 4.0 decodes only revision 1 of MPA. It treats the setup word of RFC 6581 as private data
//!           and its bits as reserved. It has no names for immediate data (opcodes 8 and 9), nor for atomics
//!           other than FetchAdd and CmpSwap. It tries to decode the payload of Sends as upper-layer
//!           protocols, and reports Sends of 4 bytes as malformed, even siw's.

use crate::fixture::station::{Host, fill};
use kiban_base::Sum;
use kiban_base::numbers::{ether_type, protocol};
use kiban_base::{checksum, ethernet};
use kiban_capture as capture;
use kiban_rdma::iwarp::mpa::{Config, CrcUse};
use kiban_rdma::nic::CmEvent;
use kiban_rdma::rnic::{Data, Operation, SendWork, Sge, Status, TaggedAddress};
use kiban_rdma::wire::rdmap::Atomic;
use kiban_tcpip::wire::tcp::{Flags, Options, Sequence};
use kiban_tcpip::wire::{ipv4, tcp};
use std::net::Ipv4Addr;
use std::path::PathBuf;

/// Maximum payload of a TCP segment. FPDUs may begin anywhere in a segment.
const MSS: usize = 1448;

/// A capture file of connections.
struct Tape {
    header: capture::FileHeader,
    file: Vec<u8>,
    microseconds: u64,
    /// The connecting side's port, and the number of bytes sent in each direction.
    port: u16,
    said: [u32; 2],
}

impl Tape {
    fn new() -> Tape {
        let (header, mut file) = (capture::FileHeader::new(capture::LINK_TYPE_ETHERNET), Vec::new());
        header.write(&mut file);
        Tape { header, file, microseconds: 0, port: 40_000, said: [0; 2] }
    }

    fn segment(&mut self, direction: usize, flags: Flags, payload: &[u8]) {
        let (ports, addresses) = ([self.port, 7471], [1, 2].map(|host| Ipv4Addr::new(192, 0, 2, host)));
        let header = tcp::Header {
            source_port: ports[direction],
            target_port: ports[1 - direction],
            sequence: Sequence(self.said[direction]),
            acknowledgment: Sequence(if flags.has(Flags::ACK) { self.said[1 - direction] } else { 0 }),
            flags,
            window: u16::MAX,
            urgent: 0,
            options: Options::default(),
        };
        let mut segment = vec![0; header.length()];
        header.write(&mut segment);
        let whole = segment.len() + payload.len();
        let pseudo =
            checksum::pseudo_ipv4(addresses[direction], addresses[1 - direction], protocol::TCP, whole);
        tcp::fill(&mut segment, pseudo.plus(Sum::of(payload)));
        segment.extend_from_slice(payload);
        self.said[direction] = self.said[direction].wrapping_add(header.sequence_bytes(payload.len()));
        let ip = ipv4::Header {
            traffic_class: 0,
            total_bytes: (ipv4::HEADER_BYTES + segment.len()) as u16,
            identification: 0,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset_bytes: 0,
            time_to_live: 64,
            protocol: protocol::TCP,
            source: addresses[direction],
            target: addresses[1 - direction],
            options: &[],
        };
        let macs = [1, 2].map(|host| ethernet::Mac([2, 0, 0, 0, 0, host]));
        let below = ethernet::Header {
            target: macs[1 - direction],
            source: macs[direction],
            ether_type: ether_type::IPV4,
        };
        let mut frame = vec![0; below.length() + ip.length()];
        let at = below.write(&mut frame);
        ip.write(&mut frame[at..]);
        frame.extend_from_slice(&segment);
        self.microseconds += 10;
        let length = frame.len() as u32;
        let record = capture::RecordHeader {
            nanoseconds: self.microseconds * 1000,
            captured_bytes: length,
            original_bytes: length,
        };
        record.write(&self.header, &mut self.file);
        self.file.extend_from_slice(&frame);
    }

    /// Begins the next connection.
    fn open(&mut self) {
        self.port += 1;
        self.said = [0x1000_0000, 0x2000_0000];
        self.segment(0, Flags::SYN, &[]);
        self.segment(1, Flags::SYN.with(Flags::ACK), &[]);
        self.segment(0, Flags::ACK, &[]);
    }

    fn say(&mut self, direction: usize, bytes: &[u8]) {
        for payload in bytes.chunks(MSS) {
            self.segment(direction, Flags::ACK.with(Flags::PSH), payload);
        }
    }

    fn close(&mut self) {
        self.segment(0, Flags::FIN.with(Flags::ACK), &[]);
        self.segment(1, Flags::FIN.with(Flags::ACK), &[]);
        self.segment(0, Flags::ACK, &[]);
    }
}

/// Two hosts whose frames are captured.
struct Taped {
    one: Host,
    two: Host,
}

impl Taped {
    fn connect(tape: &mut Tape, config: &Config) -> Taped {
        tape.open();
        let one = Host::initiator(1, config, (4, 4), b"ask");
        let two = Host::responder(2, config);
        let mut taped = Taped { one, two };
        taped.run(tape);
        taped.two.asked();
        taped.two.accept((4, 4), b"answer");
        taped.run(tape);
        for host in [&mut taped.one, &mut taped.two] {
            assert!(matches!(host.nic.poll(), Some(CmEvent::Connected { .. })));
        }
        // A short message from the initiator allows the responder to send.
        let (room, stag) = taped.two.memory(0x1000, 16);
        taped.two.receive(0, Some(Sge { stag, address: room.address(), length: 16 }));
        taped.one.send(0, Operation::SEND, Data::Inline((0..16).collect()));
        taped.two.nic.core.may_send(taped.two.qp);
        taped
    }

    fn run(&mut self, tape: &mut Tape) {
        loop {
            let mut moved = false;
            for direction in 0..2 {
                let (from, to) = match direction {
                    0 => (&mut self.one, &mut self.two),
                    _ => (&mut self.two, &mut self.one),
                };
                let bytes = from.pull();
                tape.say(direction, &bytes);
                to.push(&bytes);
                moved |= !bytes.is_empty();
            }
            if !moved {
                return;
            }
        }
    }
}

/// Runs tshark on a capture and returns its output lines.
#[expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the other decoder is a program that reads files"
)]
fn tshark(name: &str, tape: &Tape, arguments: &[&str]) -> Vec<String> {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let path = folder.join(format!("{name}-{}.pcap", std::process::id()));
    std::fs::write(&path, &tape.file).expect("a capture can be written");
    let output = std::process::Command::new("tshark")
        .args(["--enable-heuristic", "iwarp_mpa_tcp", "-o", "tcp.check_checksum:TRUE"])
        .args(["-o", "ip.check_checksum:TRUE", "-r"])
        .arg(&path)
        .args(arguments)
        .output()
        .expect("tshark reads the captures: apt-get install tshark, or run make test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::remove_file(&path).expect("it was written");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn wireshark_finds_every_operation_with_and_without_crc_and_nothing_malformed() {
    let mut tape = Tape::new();
    for crc in [CrcUse::Off, CrcUse::Wanted] {
        let config = Config { extensions: true, crc, ..Config::default() };
        let Taped { mut one, mut two } = Taped::connect(&mut tape, &config);
        let (source, lkey) = one.memory(0x10_0000, 10_000);
        let (target, rkey) = two.memory(0x55_0000_0000, 10_000);
        let (_, spare) = two.memory(0x66_0000_0000, 100);
        let (_, another) = two.memory(0x77_0000_0000, 100);
        fill(&source, &(0..10_000).map(|at| (at * 3) as u8).collect::<Vec<u8>>());
        let (here, there) = (
            Sge { stag: lkey, address: source.address(), length: 10_000 },
            Sge { stag: rkey, address: target.address(), length: 10_000 },
        );
        let remote = TaggedAddress { stag: rkey, offset: target.address() };
        let word = Sge { length: 8, ..here };
        let whole = Data::one(here);
        (1..=8).for_each(|id| two.receive(id, Some(there)));
        for host in [&mut one, &mut two] {
            host.nic.core.set_peer_is_kiban(host.qp).expect("there");
        }
        one.send(1, Operation::write(remote), whole.clone());
        one.send(2, Operation::read(remote), whole.clone());
        one.send(3, Operation::SEND, whole.clone());
        one.send(4, Operation::Send { invalidate: Some(spare) }, whole.clone());
        let mut taped = Taped { one, two };
        taped.run(&mut tape);
        let Taped { one, .. } = &mut taped;
        for (id, invalidate) in [(5, None), (6, Some(another))] {
            let work = SendWork::new(id, Operation::Send { invalidate }, whole.clone());
            let work = SendWork { solicited: true, ..work };
            one.nic.core.post_send(one.qp, work).expect("posted");
        }
        let atomics = [
            Atomic::FetchAdd { add: 5, mask: 0 },
            Atomic::CompareSwap { swap: 1, swap_mask: u64::MAX, compare: 2, compare_mask: u64::MAX },
        ];
        for (id, atomic) in (7..).zip(atomics) {
            one.send(id, Operation::Atomic { remote, atomic }, Data::one(word));
        }
        one.send(9, Operation::Immediate { data: 7 }, Data::none());
        let work = SendWork::new(10, Operation::Immediate { data: 7 }, Data::none());
        one.nic.core.post_send(one.qp, SendWork { solicited: true, ..work }).expect("posted");
        // No standard defines these two operations, so Wireshark has no names for them; their frames must
        // still be well-formed.
        one.send(11, Operation::SendImmediate { data: 8 }, Data::one(word));
        let work = SendWork::new(12, Operation::SendImmediate { data: 8 }, Data::one(word));
        one.nic.core.post_send(one.qp, SendWork { solicited: true, ..work }).expect("posted");
        taped.run(&mut tape);
        for (host, expected) in [(&mut taped.one, 13), (&mut taped.two, 9)] {
            let done = host.completions();
            assert!(done.iter().all(|done| done.status == Status::Success), "{done:?}");
            assert_eq!(done.len(), expected);
        }
        tape.close();
    }
    let lines = tshark("operations", &tape, &["-V"]);
    for (name, count) in [
        ("Write (0x0)", 2),
        ("Read Request (0x1)", 2),
        ("Read Response (0x2)", 2),
        // Includes the message that allows the responder to send.
        ("Send (0x3)", 4),
        ("Send with Invalidate (0x4)", 2),
        ("Send with SE (0x5)", 2),
        ("Send with SE and Invalidate (0x6)", 2),
        ("Unknown (0x8)", 2),
        ("Unknown (0x9)", 2),
        ("Atomic Request (0xa)", 4),
        ("Atomic Response (0xb)", 4),
        ("Unknown (0xc)", 2),
        ("Unknown (0xd)", 2),
        ("FetchAdd (0)", 2),
        ("CmpSwap (2)", 2),
    ] {
        assert_eq!(count_of(&lines, &format!("OpCode: {name}")), count, "{name}");
    }
    // Each row has two frame counts: one for the connection with CRCs, and one for the connection without.
    assert_eq!(count_of(&lines, "(Good CRC32)"), 16);
    assert_eq!(count_of(&lines, "CRC: 0x00000000"), 16);
    assert_eq!(tshark("operations", &tape, &["-Y", "iwarp_mpa.req || iwarp_mpa.rep"]).len(), 4);
    assert_eq!(tshark("operations", &tape, &["-Y", BAD]), [""; 0]);
}

/// A display filter for errors, which must match none of our frames.
const BAD: &str = "_ws.malformed || _ws.expert.severity == error || _ws.expert.severity == warning \
    || iwarp_mpa.bad_length || ip.checksum.status == 0 || tcp.checksum.status == 0 \
    || tcp.analysis.retransmission || tcp.analysis.lost_segment";

fn count_of(lines: &[String], what: &str) -> usize {
    lines.iter().filter(|line| line.contains(what)).count()
}

/// An error made by the initiator. The function gets the address of the responder's memory; if it returns
/// bytes, they are delivered to the responder directly.
type Wrong = fn(&mut Host, TaggedAddress) -> Option<Vec<u8>>;

fn post(one: &mut Host, operation: Operation, bytes: usize) -> Option<Vec<u8>> {
    one.send(1, operation, Data::Inline((0..bytes).map(|at| at as u8).collect()));
    None
}

fn nowhere(place: TaggedAddress) -> TaggedAddress {
    TaggedAddress { stag: place.stag ^ 0xffff_0000, ..place }
}

fn beyond(place: TaggedAddress) -> TaggedAddress {
    TaggedAddress { offset: place.offset + 90, ..place }
}

fn read(one: &mut Host, place: TaggedAddress) -> Option<Vec<u8>> {
    let (here, stag) = one.memory(0x9000, 64);
    let sink = Data::one(Sge { stag, address: here.address(), length: 64 });
    one.send(1, Operation::read(place), sink);
    None
}

#[test]
fn wireshark_decodes_the_reason_of_every_terminate() {
    let rows: [(&str, CrcUse, Wrong, [&str; 3]); 9] = [
        (
            "a Write to a tag that names nothing",
            CrcUse::Off,
            |one, place| post(one, Operation::write(nowhere(place)), 20),
            ["DDP (0x1)", "Tagged Buffer Error (0x1)", "Invalid STag (0x00)"],
        ),
        (
            "a Write beyond the memory",
            CrcUse::Wanted,
            |one, place| post(one, Operation::write(beyond(place)), 20),
            ["DDP (0x1)", "Tagged Buffer Error (0x1)", "Base or bounds violation (0x01)"],
        ),
        (
            "a Read of a tag that names nothing",
            CrcUse::Off,
            |one, place| read(one, nowhere(place)),
            ["RDMA (0x0)", "Remote Protection Error (0x1)", "Invalid STag (0x00)"],
        ),
        (
            "a Read beyond the memory",
            CrcUse::Wanted,
            |one, place| read(one, beyond(place)),
            ["RDMA (0x0)", "Remote Protection Error (0x1)", "Base or bounds violation (0x01)"],
        ),
        (
            "a Send to a tag that cannot be invalidated",
            CrcUse::Off,
            |one, place| post(one, Operation::Send { invalidate: Some(nowhere(place).stag) }, 16),
            ["RDMA (0x0)", "Remote Protection Error (0x1)", "STag cannot be Invalidated (0x09)"],
        ),
        (
            "a Send that is longer than its receive",
            CrcUse::Off,
            |one, _| post(one, Operation::SEND, 200),
            ["DDP (0x1)", "Untagged Buffer Error (0x2)", "DDP Message too long for available buffer (0x05)"],
        ),
        (
            "two Sends for one receive",
            CrcUse::Wanted,
            |one, _| {
                post(one, Operation::SEND, 16);
                post(one, Operation::SEND, 16)
            },
            ["DDP (0x1)", "Untagged Buffer Error (0x2)", "Invalid MSN - no buffer available (0x02)"],
        ),
        (
            "a bit that flips on its way",
            CrcUse::Wanted,
            |one, place| {
                post(one, Operation::write(place), 20);
                let mut bytes = one.pull();
                bytes[20] ^= 1;
                Some(bytes)
            },
            ["LLP (0x2)", "MPA Error (0x0)", "MPA CRC Error (0x02)"],
        ),
        (
            "an operation that does not exist",
            CrcUse::Off,
            |one, _| {
                post(one, Operation::SEND, 20);
                let mut bytes = one.pull();
                // The octet after the length field and DDP's control octet.
                bytes[3] |= 0x0f;
                Some(bytes)
            },
            ["RDMA (0x0)", "Remote Operation Error (0x2)", "Unexpected OpCode (0x06)"],
        ),
    ];
    let mut tape = Tape::new();
    for (name, crc, wrong, _) in rows {
        let config = Config { crc, ..Config::default() };
        let mut taped = Taped::connect(&mut tape, &config);
        let (memory, stag) = taped.two.memory(0x55_0000_0000, 100);
        let place = TaggedAddress { stag, offset: memory.address() };
        taped.run(&mut tape);
        taped.two.receive(1, Some(Sge { stag, address: memory.address(), length: 100 }));
        if let Some(bytes) = wrong(&mut taped.one, place) {
            // This frame is not captured: tshark sees only the response to it.
            taped.two.push(&bytes);
        }
        taped.run(&mut tape);
        assert_eq!(taped.one.nic.core.counters().terminates_in, 1, "{name}");
        assert!(!taped.two.is_open() && !taped.one.is_open(), "{name}");
        tape.close();
    }
    let lines = tshark("terminates", &tape, &["-V", "-Y", "iwarp_rdma.opcode == 7"]);
    let mut frames = lines.split(|line| line.is_empty()).filter(|frame| !frame.is_empty());
    for (name, crc, _, events) in rows {
        let frame = frames.next().expect(name);
        for what in events.into_iter().chain(["OpCode: Terminate (0x7)"]) {
            assert_eq!(count_of(frame, what), 1, "{name}: {what}\n{}", frame.join("\n"));
        }
        assert_eq!(count_of(frame, "(Good CRC32)"), usize::from(crc == CrcUse::Wanted), "{name}");
    }
    assert_eq!(frames.next(), None);
    assert_eq!(tshark("terminates", &tape, &["-Y", BAD]), [""; 0]);
}
