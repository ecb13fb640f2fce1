//! Replays captures of siw in Linux 6.1. A NIC plays each end of every recorded connection once, against the
//! recorded frames of the other end.
//!
//! Rule      the work requests that siw's program posted are derived from siw's FPDUs. For each Send, Write
//!           or Read that siw sent, the test posts one with the same bytes and the same remote address. A
//!           Read Response is not posted, because the NIC sends it on its own. The output must equal siw's
//!           byte for byte.
//! Tags      a NIC chooses its own steering tags, so the test translates the tags of the end that it plays.
//!           In received frames, it replaces the recorded tags in Writes, in Read Responses and in the
//!           sources of Read Requests. In sent frames, it changes the tags in the sinks of Read Requests
//!           back to the recorded ones. Addresses are the recorded ones.
//! Pads      siw leaves stale memory contents in its pads; here they are zero, as the RFC requires.

use crate::fixture::station::{Host, fill};
use kiban_base::ethernet;
use kiban_base::{Region, SimRng};
use kiban_capture as capture;
use kiban_rdma::iwarp::mpa::{self, Config, Deframer, Front};
use kiban_rdma::nic::CmEvent;
use kiban_rdma::rnic::{Completion, Data, Kind, Operation, Sge, Status, TaggedAddress};
use kiban_rdma::wire::ddp;
use kiban_rdma::wire::mpa::{START_BYTES, Setup};
use kiban_rdma::wire::rdmap::{Opcode, READ_REQUEST_BYTES, ReadRequest};
use kiban_tcpip::wire::{ipv4, tcp};
use std::collections::BTreeMap;

/// One end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Who {
    Initiator,
    Responder,
}

/// One unit sent by one end: a start frame, or the ULPDU of an FPDU.
#[derive(Clone, Debug)]
struct Word {
    who: Who,
    bytes: Vec<u8>,
}

/// Length of the start frames in these captures: a header and a setup word.
const START_AND_SETUP_BYTES: usize = START_BYTES + 4;

/// The part of one direction of a connection that has been reassembled so far.
#[derive(Default)]
struct Direction {
    /// Sequence number of its first byte.
    first: u32,
    /// The bytes received in order, and how many of them have been split into units.
    stream: Vec<u8>,
    worded: usize,
}

/// Returns the connections in a capture, each as its units in the order in which they were sent.
fn conversations(file: &[u8]) -> Vec<Vec<Word>> {
    let (header, _) = capture::FileHeader::read(file).expect("a capture");
    let mut openings: Vec<(u16, u16)> = Vec::new();
    let mut directions: BTreeMap<(u16, u16), Direction> = BTreeMap::new();
    let mut talks: Vec<Vec<Word>> = Vec::new();
    for record in header.records(file) {
        let (_, frame) = record.expect("whole records");
        let (_, ethernet_bytes) = ethernet::Header::read(frame).expect("an Ethernet frame");
        let packet = &frame[ethernet_bytes..];
        let (ip, ip_bytes) = ipv4::Header::read(packet).expect("an IPv4 packet");
        let segment = &packet[ip_bytes..usize::from(ip.total_bytes)];
        let (header, header_bytes) = tcp::Header::read(segment).expect("a TCP segment");
        let ports = (header.source_port, header.target_port);
        if header.flags.has(tcp::Flags::SYN) {
            let first = header.sequence.0.wrapping_add(1);
            directions.insert(ports, Direction { first, ..Direction::default() });
            if !header.flags.has(tcp::Flags::ACK) {
                openings.push(ports);
                talks.push(Vec::new());
            }
            continue;
        }
        let Some(direction) = directions.get_mut(&ports) else { panic!("a segment before its SYN") };
        let at = header.sequence.0.wrapping_sub(direction.first) as usize;
        let payload = &segment[header_bytes..];
        // A retransmission, or a segment without data.
        if payload.is_empty() || at + payload.len() <= direction.stream.len() {
            continue;
        }
        assert!(at <= direction.stream.len(), "the captures have no holes");
        direction.stream.truncate(at);
        direction.stream.extend_from_slice(payload);
        let (talk, who) = match openings.iter().position(|&opening| opening == ports) {
            Some(talk) => (talk, Who::Initiator),
            None => {
                let back = (ports.1, ports.0);
                let talk = openings.iter().position(|&opening| opening == back);
                (talk.expect("somebody connected"), Who::Responder)
            }
        };
        while direction.worded < direction.stream.len() {
            let rest = &direction.stream[direction.worded..];
            let (bytes, taken) = if direction.worded == 0 {
                (rest[..START_AND_SETUP_BYTES].to_vec(), START_AND_SETUP_BYTES)
            } else {
                match Deframer::new(false, false).front(rest).expect("siw keeps the rules") {
                    Front::Whole { ulpdu, taken } => (ulpdu.to_vec(), taken),
                    _ => break,
                }
            };
            direction.worded += taken;
            talks[talk].push(Word { who, bytes });
        }
    }
    assert!(
        directions.values().all(|direction| direction.worded == direction.stream.len()),
        "every byte belongs to a word"
    );
    talks
}

/// The parts of a DDP segment that matter to a host.
struct Segment<'a> {
    opcode: Opcode,
    tagged: Option<TaggedAddress>,
    payload: &'a [u8],
}

impl Segment<'_> {
    fn read(ulpdu: &[u8]) -> Segment<'_> {
        let (header, length) = ddp::Header::read(ulpdu).expect("a DDP segment");
        assert!(header.last, "every message of the captures is one segment");
        let tagged = match header.placing {
            ddp::Placing::Tagged { stag, offset } => Some(TaggedAddress { stag, offset }),
            _ => None,
        };
        Segment {
            opcode: Opcode::read(header.ulp).expect("an RDMAP message"),
            tagged,
            payload: &ulpdu[length..],
        }
    }

    fn read_request(&self) -> Option<ReadRequest> {
        (self.opcode == Opcode::ReadRequest)
            .then(|| ReadRequest::read(&self.payload[..READ_REQUEST_BYTES]).expect("a read request"))
    }
}

/// Returns the offsets of the tags in a ULPDU: the offset of a tagged segment's tag, or those of the sink
/// and source tags in a Read Request.
const TAGGED_AT: usize = 2;
const SINK_AT: usize = 18;
const SOURCE_AT: usize = 34;

/// The memory of the end that is played here: the address and our tag, indexed by the recorded tag.
struct Memories(BTreeMap<u32, (Region, u32)>);

impl Memories {
    /// Registers all memory of one end that the connection refers to.
    fn register(host: &mut Host, player: Who, talk: &[Word]) -> Memories {
        let mut extents: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for word in &talk[2..] {
            let segment = Segment::read(&word.bytes);
            let (place, length) = match (segment.read_request(), segment.tagged) {
                (Some(request), _) if word.who == player => (request.sink, request.length as usize),
                (Some(request), _) => (request.source, request.length as usize),
                (None, Some(place)) if word.who != player => (place, segment.payload.len()),
                _ => continue,
            };
            let end = place.offset + length as u64;
            let extent = extents.entry(place.stag).or_insert((place.offset, end));
            *extent = (extent.0.min(place.offset), extent.1.max(end));
        }
        let register =
            |(stag, (start, end)): (u32, (u64, u64))| (stag, host.memory(start, (end - start) as usize));
        Memories(extents.into_iter().map(register).collect())
    }

    fn sge(&self, place: TaggedAddress, length: u32) -> Sge {
        Sge { stag: self.0[&place.stag].1, address: place.offset, length }
    }

    fn part(&self, place: TaggedAddress, length: usize) -> Region {
        self.0[&place.stag].0.part(place.offset, length).expect("within what was registered")
    }

    /// Replaces recorded tags by ours in a received ULPDU.
    fn ours(&self, ulpdu: &[u8]) -> Vec<u8> {
        let segment = Segment::read(ulpdu);
        let mut ulpdu = ulpdu.to_vec();
        let (at, stag) = match (segment.read_request(), segment.tagged) {
            (Some(request), _) => (SOURCE_AT, request.source.stag),
            (None, Some(place)) => (TAGGED_AT, place.stag),
            (None, None) => return ulpdu,
        };
        ulpdu[at..at + 4].copy_from_slice(&self.0[&stag].1.to_be_bytes());
        ulpdu
    }

    /// Replaces our tags by the recorded ones in a sent ULPDU.
    fn theirs(&self, mut ulpdu: Vec<u8>) -> Vec<u8> {
        if let Some(request) = Segment::read(&ulpdu).read_request() {
            let known = self.0.iter().find(|(_, (_, ours))| *ours == request.sink.stag);
            let (stag, _) = known.expect("a tag that this end registered");
            ulpdu[SINK_AT..SINK_AT + 4].copy_from_slice(&stag.to_be_bytes());
        }
        ulpdu
    }
}

/// Builds an FPDU without a CRC from a ULPDU.
fn framed(ulpdu: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let start = mpa::begin(&mut frame, ulpdu.len());
    frame.extend_from_slice(ulpdu);
    mpa::end(&mut frame, start, false);
    frame
}

/// The data that the end played here sent and received.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Seen {
    sends_out: u64,
    sends_in: u64,
    writes_out: u64,
    writes_in: u64,
    reads_out: u64,
    reads_in: u64,
}

/// Delivers bytes, split at arbitrary positions.
fn push_cut(host: &mut Host, rng: &mut SimRng, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let (now, later) = bytes.split_at(1 + rng.below(bytes.len() as u64) as usize);
        host.push(now);
        bytes = later;
    }
}

/// Plays one end of a connection.
fn play(name: &str, player: Who, talk: &[Word], seed: u64) -> Seen {
    let mut rng = SimRng::from_seed(seed);
    let [request, reply] = [&talk[0], &talk[1]].map(|word| {
        let (setup, _) = Setup::read(&word.bytes[START_BYTES..]).expect("a set-up word");
        (word, (setup.ird, setup.ord))
    });
    assert_eq!((request.0.who, reply.0.who), (Who::Initiator, Who::Responder), "{name}");
    let mut host = match player {
        Who::Initiator => {
            let mut host = Host::initiator(seed, &Config::default(), request.1, &[]);
            assert_eq!(host.pull(), request.0.bytes, "{name}: the request");
            push_cut(&mut host, &mut rng, &reply.0.bytes);
            host
        }
        Who::Responder => {
            let mut host = Host::responder(seed, &Config::default());
            push_cut(&mut host, &mut rng, &request.0.bytes);
            let asked = host.asked();
            assert_eq!((asked.depths, &asked.private_data[..]), (request.1, &[][..]), "{name}");
            host.accept(asked.depths, &[]);
            assert_eq!(host.pull(), reply.0.bytes, "{name}: the reply");
            // The initiator sends nothing after the reply; siw's responder sends at once.
            host.nic.core.may_send(host.qp);
            host
        }
    };
    let connected = host.nic.poll();
    assert!(matches!(connected, Some(CmEvent::Connected { .. })), "{name}: {connected:?}");

    let memories = Memories::register(&mut host, player, talk);
    let sends: Vec<&[u8]> = talk[2..]
        .iter()
        .filter(|word| word.who != player)
        .map(|word| Segment::read(&word.bytes))
        .filter(|segment| segment.opcode.is_send())
        .map(|segment| segment.payload)
        .collect();
    let (landing, landing_stag) = host.memory(0x1000, 1024);
    let mut seen = Seen::default();
    let mut done: Vec<Completion> = Vec::new();
    for (at, word) in talk.iter().enumerate().skip(2) {
        let Segment { opcode, tagged, payload } = Segment::read(&word.bytes);
        let read_request = Segment::read(&word.bytes).read_request();
        if word.who == player {
            let inline = Data::Inline(payload.into());
            match opcode {
                Opcode::Send => {
                    host.send(at as u64, Operation::SEND, inline);
                    seen.sends_out += 1;
                }
                Opcode::Write => {
                    host.send(at as u64, Operation::write(tagged.expect("a Write is tagged")), inline);
                    seen.writes_out += 1;
                }
                Opcode::ReadRequest => {
                    let request = read_request.expect("it is one");
                    let sink = Data::one(memories.sge(request.sink, request.length));
                    host.send(at as u64, Operation::read(request.source), sink);
                    seen.reads_out += 1;
                }
                // The NIC sent the response when it received the request: see below.
                Opcode::ReadResponse => continue,
                other => panic!("{name}: {other:?} is not in the captures"),
            }
            let left = host.pull();
            assert_eq!(without_tags(&memories, &left), framed(&word.bytes), "{name}: word {at}");
        } else {
            let answer = read_request.map(|_| next_response(player, &talk[at..], seen.reads_in, talk));
            match opcode {
                Opcode::Send => {
                    let sge = Sge { stag: landing_stag, address: landing.address(), length: 1024 };
                    host.receive(1000 + seen.sends_in, Some(sge));
                }
                Opcode::ReadRequest => {
                    let (request, answer) = (read_request.expect("it is one"), answer.expect("answered"));
                    let response = Segment::read(answer);
                    fill(&memories.part(request.source, response.payload.len()), response.payload);
                }
                _ => {}
            }
            push_cut(&mut host, &mut rng, &framed(&memories.ours(&word.bytes)));
            match opcode {
                Opcode::Send => {
                    let here = landing.read(landing.address(), payload.len()).expect("within");
                    assert_eq!(here, sends[seen.sends_in as usize], "{name}: word {at}");
                    seen.sends_in += 1;
                }
                Opcode::Write | Opcode::ReadResponse => {
                    let region = memories.part(tagged.expect("it is tagged"), payload.len());
                    assert_eq!(region.read(region.address(), region.len()).as_deref(), Some(payload));
                    seen.writes_in += u64::from(opcode == Opcode::Write);
                }
                _ => {}
            }
            let left = host.pull();
            seen.reads_in += u64::from(opcode == Opcode::ReadRequest);
            assert_eq!(left, answer.map(framed).unwrap_or_default(), "{name}: word {at}");
        }
        done.extend(host.completions());
    }
    let counters = *host.nic.core.counters();
    assert_eq!((counters.terminates_in, counters.terminates_out), (0, 0), "{name}");
    assert_eq!((counters.writes_in, counters.reads_in), (seen.writes_in, seen.reads_in), "{name}");
    assert_eq!(counters.messages_in, seen.sends_in, "{name}");
    assert!(host.is_open(), "{name}: the connection stands");
    assert!(done.iter().all(|done| done.status == Status::Success), "{name}: {done:?}");
    let count = |kind| done.iter().filter(|done| done.kind == kind).count() as u64;
    assert_eq!(
        [Kind::Send, Kind::Write, Kind::Read, Kind::Receive].map(count),
        [seen.sends_out, seen.writes_out, seen.reads_out, seen.sends_in],
        "{name}: all work is complete"
    );
    host.nic.on_stream_closed(host.end, true);
    assert_eq!(host.completions(), [], "{name}: nothing was left");
    seen
}

/// Returns one end's frames, with the recorded tags.
fn without_tags(memories: &Memories, mut bytes: &[u8]) -> Vec<u8> {
    let (mut deframer, mut again) = (Deframer::new(false, false), Vec::new());
    while !bytes.is_empty() {
        let Ok(Front::Whole { ulpdu, taken }) = deframer.front(bytes) else { panic!("whole frames leave") };
        again.extend(framed(&memories.theirs(ulpdu.to_vec())));
        bytes = &bytes[taken..];
    }
    again
}

/// Returns the Read Response to the n-th Read Request that one end sent. The response follows its request.
fn next_response<'a>(player: Who, later: &[Word], nth: u64, talk: &'a [Word]) -> &'a [u8] {
    let is_response =
        |word: &&Word| word.who == player && Segment::read(&word.bytes).opcode == Opcode::ReadResponse;
    let answer = talk[2..].iter().filter(is_response).nth(nth as usize).expect("every read is answered");
    assert!(later.iter().any(|word| word.bytes == answer.bytes));
    &answer.bytes
}

const fn seen(sends: (u64, u64), writes: (u64, u64), reads: (u64, u64)) -> Seen {
    Seen {
        sends_out: sends.0,
        sends_in: sends.1,
        writes_out: writes.0,
        writes_in: writes.1,
        reads_out: reads.0,
        reads_in: reads.1,
    }
}

/// A capture file, and the operations that the initiator of each connection sends and receives.
type Row = (&'static str, &'static [u8], &'static [Seen]);

const ROWS: [Row; 5] = [
    (
        "ib_read_lat",
        include_bytes!("../data/siw-ib-read-lat.pcap"),
        &[seen((11, 11), (0, 0), (0, 0)), seen((0, 0), (0, 0), (50, 0))],
    ),
    (
        "ib_write_lat",
        include_bytes!("../data/siw-ib-write-lat.pcap"),
        &[seen((10, 10), (0, 0), (0, 0)), seen((0, 0), (50, 50), (0, 0))],
    ),
    ("rdma_server", include_bytes!("../data/siw-rdma-server.pcap"), &[seen((1, 1), (0, 0), (0, 0))]),
    ("rping", include_bytes!("../data/siw-rping.pcap"), &[seen((6, 6), (0, 3), (0, 3))]),
    ("ucmatose", include_bytes!("../data/siw-ucmatose.pcap"), &[seen((4, 4), (0, 0), (0, 0))]),
];

fn replay(player: Who) {
    for (name, file, expected) in ROWS {
        let talks = conversations(file);
        assert_eq!(talks.len(), expected.len(), "{name}");
        for (talk, &expected) in talks.iter().zip(expected) {
            for seed in 1..=4 {
                let Seen { sends_out, sends_in, writes_out, writes_in, reads_out, reads_in } =
                    play(name, player, talk, seed);
                let found = match player {
                    Who::Initiator => {
                        seen((sends_out, sends_in), (writes_out, writes_in), (reads_out, reads_in))
                    }
                    Who::Responder => {
                        seen((sends_in, sends_out), (writes_in, writes_out), (reads_in, reads_out))
                    }
                };
                assert_eq!(found, expected, "{name}");
            }
        }
    }
}

#[test]
fn this_initiator_sends_what_siws_initiator_sends() {
    replay(Who::Initiator);
}

#[test]
fn this_responder_sends_what_siws_responder_sends() {
    replay(Who::Responder);
}
