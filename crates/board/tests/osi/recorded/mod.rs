//! Recorded initiators of other implementations, replayed against our responders.
//!
//! Goal      check that the recorded initiator would have continued with our responder as it did with its
//!           own: each of our answers must be of the same kind as the recorded one.
//! How       a recorded connection is cut into TPKTs. The initiator's TPKTs are passed to our layers
//!           unchanged, each run after our reply to the run before. Our reply and the recorded one then go
//!           through the same [`Listener`], which knows formats but no state, and are compared.
//! Adapted   no bytes are changed. Transport references, dates and responder names differ, but no initiator
//!           repeats them: in class 0 only a DR carries the peer's reference, and it is not compared.

mod acse;
mod files;

use kiban_base::{Bytes, Rope};
use kiban_capture as capture;
use kiban_osi::wire::cotp::Tpdu;
use kiban_osi::wire::presentation::{Pdv, UserData};
use kiban_osi::wire::session::{Spdu, Tsdu};
use kiban_osi::wire::tpkt;

/// Which side sent something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Initiator,
    Responder,
}

/// One run of TPDUs from the initiator, and the reply.
#[derive(Default, Debug)]
struct Turn {
    said: Vec<Vec<u8>>,
    answered: Vec<Vec<u8>>,
}

/// Returns the connections of a capture, each as turns of TPKTs, in the order in which they started.
fn connections(pcap: &[u8]) -> Vec<Vec<Turn>> {
    let (file, _) = capture::FileHeader::read(pcap).expect("a capture");
    let mut all: Vec<Connection> = Vec::new();
    for record in file.records(pcap) {
        let segment = Segment::read(record.expect("a record").1);
        if segment.opens {
            all.push(Connection {
                caller: segment.ports[0],
                next: [0; 2],
                held: Default::default(),
                turns: vec![],
            });
        }
        let known = all.iter_mut().rfind(|connection| segment.ports.contains(&connection.caller));
        known.expect("it began with a SYN").on_segment(&segment);
    }
    all.into_iter().map(|connection| connection.turns).collect()
}

/// A TCP segment in an Ethernet frame.
struct Segment<'a> {
    ports: [u16; 2],
    sequence: u32,
    syn: bool,
    opens: bool,
    payload: &'a [u8],
}

impl Segment<'_> {
    fn read(frame: &[u8]) -> Segment<'_> {
        let two = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
        let (ip, tcp) = (14, 34);
        assert_eq!((two(12), frame[ip], frame[ip + 9]), (0x0800, 0x45, 6), "IPv4 without options, TCP");
        let flags = frame[tcp + 13];
        Segment {
            ports: [two(tcp), two(tcp + 2)],
            sequence: u32::from(two(tcp + 4)) << 16 | u32::from(two(tcp + 6)),
            syn: flags & 0x02 != 0,
            opens: flags & 0x12 == 0x02,
            payload: &frame[tcp + usize::from(frame[tcp + 12] >> 4) * 4..ip + usize::from(two(ip + 2))],
        }
    }
}

/// A connection that is being read.
struct Connection {
    caller: u16,
    next: [u32; 2],
    held: [Vec<u8>; 2],
    turns: Vec<Turn>,
}

impl Connection {
    fn on_segment(&mut self, segment: &Segment<'_>) {
        let from = if segment.ports[0] == self.caller { End::Initiator } else { End::Responder };
        let next = &mut self.next[from as usize];
        if segment.syn {
            *next = segment.sequence.wrapping_add(1);
        }
        if segment.payload.is_empty() {
            return;
        }
        assert_eq!(segment.sequence, *next, "nothing is missing and nothing was sent again");
        *next = next.wrapping_add(segment.payload.len() as u32);
        self.held[from as usize].extend_from_slice(segment.payload);
        while let Ok((header, used)) = tpkt::Header::read(&self.held[from as usize]) {
            let end = used + usize::from(header.payload_bytes);
            if self.held[from as usize].len() < end {
                break;
            }
            let unit = self.held[from as usize].drain(..end).collect();
            self.on_unit(from, unit);
        }
    }

    fn on_unit(&mut self, from: End, unit: Vec<u8>) {
        let begins = from == End::Initiator && self.turns.last().is_none_or(|turn| !turn.answered.is_empty());
        if begins {
            self.turns.push(Turn::default());
        }
        let turn = self.turns.last_mut().expect("the initiator speaks first");
        match from {
            End::Initiator => turn.said.push(unit),
            End::Responder => turn.answered.push(unit),
        }
    }
}

/// A unit decoded from TPKTs.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Heard {
    /// Any TPDU but DT.
    Tpdu(Tpdu),
    /// The user data of DTs.
    Spdu(Spdu),
}

/// Reassembles service data units from DTs, without any other state.
#[derive(Default)]
struct Listener {
    held: Vec<u8>,
}

impl Listener {
    /// Decodes the TPKTs of one side.
    fn hear(&mut self, units: &[Vec<u8>]) -> Vec<Heard> {
        units.iter().filter_map(|unit| self.on_unit(unit)).collect()
    }

    fn on_unit(&mut self, unit: &[u8]) -> Option<Heard> {
        let nsdu = &unit[tpkt::HEADER_BYTES..];
        let (tpdu, used) = Tpdu::read(nsdu).expect("a TPDU");
        let Tpdu::Data { end } = tpdu else { return Some(Heard::Tpdu(tpdu)) };
        self.held.extend_from_slice(&nsdu[used..]);
        if !end {
            return None;
        }
        let Tsdu { first, then } = Tsdu::read(Rope::from(std::mem::take(&mut self.held))).expect("an SPDU");
        assert_eq!(then, None, "tokens are not given with data");
        Some(Heard::Spdu(first))
    }
}

/// Returns the presentation data values in a DATA TRANSFER.
fn values(data: &Rope) -> Vec<Pdv> {
    match UserData::from_rope(data.clone()).expect("presentation's user data") {
        UserData::Full(values) => values,
        UserData::Simple(_) => panic!("with several contexts values name theirs"),
    }
}

/// Splits bytes into TPKTs.
fn units(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut units = Vec::new();
    while !bytes.is_empty() {
        let (header, used) = tpkt::Header::read(bytes).expect("a TPKT");
        let (unit, rest) = bytes.split_at(used + usize::from(header.payload_bytes));
        units.push(unit.to_vec());
        bytes = rest;
    }
    units
}

/// Returns the TPKTs as a reader gets them: all at once, or each in two parts.
fn reads(units: &[Vec<u8>], in_two: bool) -> Vec<Bytes> {
    if in_two {
        let halves = units.iter().flat_map(|unit| {
            let (front, back) = unit.split_at(unit.len() / 2);
            [front, back]
        });
        halves.map(Bytes::copy_from_slice).collect()
    } else {
        vec![units.concat().into()]
    }
}
