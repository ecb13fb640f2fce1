//! A VI NIC with a hostile peer. An input is a sequence of packets, calls from the host, and time steps.
//!
//! Set-up    a NIC with two paths. One leads to a *peer* that connects correctly, knows the connection's
//!           number and key, and then sends arbitrary packets. The other leads to a correct NIC, the
//!           *canary*, with its own connection.
//! Checks    only posted receive memory and memory open to peers is written. Every sent packet can be parsed,
//!           and one packet causes few packets. Descriptors complete once, in the order of posting. At the
//!           end, the canary's messages have arrived, everything can be destroyed, and no state is left.

use crate::features::Features;
use crate::input::Input;
use kiban_base::{Instant, Region, SharedBytes, SharedRoom};
use kiban_vi::wire::{HEADER_BYTES, Header, Kind, RemoteRange, SETUP_PACKET_BYTES_MAX, Setup, flag};
use kiban_vi::{
    AddressSegment, Config, DataSegment, MemoryAttributes, Nic, PathTraits, Reliability, ViAttributes, Work,
};
use std::time::Duration;

const PACKET_BYTES: usize = 512;
/// Memory for the host only, memory that peers may access, and the memory of receive descriptors.
const AREAS: [u64; 3] = [0x1000, 0x2000, 0x3000];
const AREA_BYTES: usize = 0x1000;
const STEPS_MAX: usize = 300;
/// Maximum number of packets that one step may cause: a window of packets, and answers.
const PACKETS_MAX: usize = 600;
const PEER_KEY: u32 = 0x5eed;
const PEER_VI: u32 = 77;
const MESSAGE: [u8; 8] = *b"canary!!";

/// A NIC and its host's objects.
struct Side {
    nic: Nic,
    paths: Vec<u32>,
    tag: u32,
    handles: Vec<u32>,
    areas: Vec<Region>,
}

impl Side {
    fn new(seed: u64, traits: &[PathTraits]) -> Side {
        let mut nic = Nic::new(Config { descriptors_max: 64, ..Config::default() }, crate::key::key(seed));
        let paths = traits.iter().map(|traits| nic.open_path(*traits).expect("room")).collect();
        let tag = nic.create_tag().expect("room");
        let areas: Vec<Region> = AREAS.map(|address| Region::new(address, AREA_BYTES)).into();
        let handles = areas
            .iter()
            .enumerate()
            .map(|(n, area)| {
                let open = n == 1;
                let attributes = MemoryAttributes { tag, rdma_write: open, rdma_read: open };
                nic.register(area.clone(), attributes).expect("room")
            })
            .collect();
        Side { nic, paths, tag, handles, areas }
    }

    fn vi(&mut self, level: Reliability) -> u32 {
        let rdma_read = level != Reliability::Unreliable;
        let attributes = ViAttributes {
            reliability: level,
            transfer_bytes_max: 2000,
            qos: 0,
            tag: self.tag,
            rdma_write: true,
            rdma_read,
        };
        self.nic.create_vi(attributes, None, None).expect("room")
    }

    fn segment(&self, area: usize, offset: u64, length: u32) -> DataSegment {
        DataSegment { address: AREAS[area] + offset, handle: self.handles[area], length }
    }

    /// Returns the packets of a path, each checked.
    fn packets(&mut self, path: usize, now: Instant) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        let mut room = [0; PACKET_BYTES];
        while let Some(length) = self.nic.fetch(self.paths[path], &mut SharedRoom::from(&mut room[..]), now) {
            assert!(Header::read(&room, length).is_ok(), "sent packets can be parsed");
            packets.push(room[..length].to_vec());
            assert!(packets.len() < PACKETS_MAX, "a NIC sends without end");
        }
        packets
    }

    fn arrive(&mut self, path: usize, bytes: &[u8], now: Instant) {
        self.nic.arrive(self.paths[path], SharedBytes::from(bytes), now);
    }
}

/// The hostile peer, and the numbers that it has learned from the NIC's packets.
#[derive(Default)]
struct Peer {
    vi: u32,
    key: u32,
    /// The next sequence number that the NIC expects from the peer, and the last one received from it.
    next: u32,
    seen: u32,
}

impl Peer {
    fn request(level: Reliability) -> Vec<u8> {
        let setup = Setup {
            vi: PEER_VI,
            key: PEER_KEY,
            transfer_bytes_max: 2000,
            qos: 0,
            reliability: level as u8,
            rdma: 3,
            local: b"x",
            remote: b"peer",
        };
        let mut bytes = [0; SETUP_PACKET_BYTES_MAX];
        let header = header(Kind::ConnectRequest, 0, setup.length());
        header.write(&mut bytes);
        let length = HEADER_BYTES + setup.write(&mut bytes[HEADER_BYTES..]);
        bytes[..length].to_vec()
    }

    fn hear(&mut self, packet: &[u8], features: &mut Features<'_>) {
        let (header, _) = Header::read(packet, packet.len()).expect("it was judged");
        features.show((header.kind as u8, header.flags, header.immediate.min(16)));
        if header.kind == Kind::Accept
            && let Ok((setup, _)) = Setup::read(&packet[HEADER_BYTES..])
        {
            (self.vi, self.key) = (setup.vi, setup.key);
        }
        if header.kind.is_sequenced() {
            self.seen = header.sequence.wrapping_add(1);
        }
        self.next = header.acknowledged;
    }

    /// Builds a packet from the input.
    fn craft(&self, input: &mut Input<'_>, open: u32, closed: u32) -> Vec<u8> {
        let kind = Kind::ALL[usize::from(input.byte()) % Kind::ALL.len()];
        let flags = input.byte();
        let mut payload = Vec::new();
        match (kind, input.byte() % 8) {
            (Kind::Write | Kind::ReadRequest, odd) => {
                let handle = if odd == 0 { closed } else { open };
                let address = AREAS[1].wrapping_add(u64::from(input.distance()));
                let place = RemoteRange { address, handle, length: u32::from(input.short() % 3000) };
                payload.resize(16, 0);
                place.write(&mut payload);
                payload.resize(16 + usize::from(input.byte()), 0xee);
            }
            (Kind::ConnectRequest | Kind::PeerRequest | Kind::Accept, 0..=6) => {
                payload = Peer::request(Reliability::Delivery)[HEADER_BYTES..].to_vec();
                let at = usize::from(input.byte()) % payload.len();
                payload[at] ^= input.byte();
            }
            (_, 7) => payload = input.take(64).to_vec(),
            _ => payload.resize(usize::from(input.byte()), 0xee),
        }
        let header = Header {
            vi: if input.byte().is_multiple_of(16) { input.long() } else { self.vi },
            key: if input.byte().is_multiple_of(16) { input.long() } else { self.key },
            sequence: self.next.wrapping_add(input.distance()),
            acknowledged: self.seen.wrapping_add(input.distance()),
            offset: if input.byte().is_multiple_of(4) { input.distance() } else { 0 },
            immediate: u32::from(input.byte() % 12),
            ..header(kind, flags, payload.len())
        };
        let mut packet = vec![0; HEADER_BYTES];
        header.write(&mut packet);
        packet.extend_from_slice(&payload);
        if input.byte().is_multiple_of(32) {
            packet.truncate(usize::from(input.byte()));
        }
        packet
    }
}

fn header(kind: Kind, flags: u8, payload: usize) -> Header {
    Header {
        kind,
        flags: flags & !flag::CHECKED,
        payload_bytes: payload as u16,
        vi: 0,
        key: 0,
        sequence: 0,
        acknowledged: 0,
        offset: 0,
        immediate: 0,
    }
}

/// Exchanges packets between the NIC and the canary.
fn exchange(side: &mut Side, good: &mut Side, now: Instant) {
    for _ in 0..4 {
        for packet in side.packets(1, now) {
            good.arrive(0, &packet, now);
        }
        for packet in good.packets(0, now) {
            side.arrive(1, &packet, now);
        }
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    vec![vec![0; 40], vec![1; 60], (0..200).collect(), (0..200u8).map(|n| n.wrapping_mul(7)).collect()]
}

pub(crate) fn run(bytes: &[u8], features: &mut Features<'_>) {
    let mut input = Input::new(bytes);
    let level = [Reliability::Unreliable, Reliability::Delivery, Reliability::Reception]
        [usize::from(input.byte()) % 3];
    let loses_nothing = input.byte().is_multiple_of(2);
    let traits = PathTraits { packet_bytes: PACKET_BYTES, lossless: loses_nothing, checked: false };
    let sure = PathTraits { lossless: true, ..traits };
    let (mut side, mut good) = (Side::new(1, &[traits, sure]), Side::new(2, &[sure]));
    let mut now = Instant::ZERO;

    // The canary connects.
    let (canary, its) = (side.vi(Reliability::Reception), good.vi(Reliability::Reception));
    side.nic.listen(b"canary").expect("room");
    good.nic.request(its, good.paths[0], (b"", b"canary"), false, now, Instant::NEVER).expect("idle");
    exchange(&mut side, &mut good, now);
    let request = side.nic.request_at(b"canary").expect("the canary asks");
    side.nic.accept(request.number, canary, now).expect("alike");
    exchange(&mut side, &mut good, now);

    // The peer connects correctly.
    let vi = side.vi(level);
    side.nic.listen(b"peer").expect("room");
    let mut peer = Peer::default();
    side.arrive(0, &Peer::request(level), now);
    let request = side.nic.request_at(b"peer").expect("the peer asks");
    side.nic.accept(request.number, vi, now).expect("alike");
    side.packets(0, now).iter().for_each(|packet| peer.hear(packet, features));

    let (mut posted, mut dequeued) = ([0u64; 2], [0u64; 2]);
    let (open, closed) = (side.handles[1], side.handles[0]);
    let mut canaries = 0;
    for step in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        match input.byte() % 16 {
            0 => {
                let to = side.segment(2, u64::from(input.byte()), u32::from(input.short() % 1500));
                posted[0] += u64::from(side.nic.post_receive(vi, posted[0], &[to]).is_ok());
            }
            1 => {
                let from = [side.segment(2, 0, u32::from(input.short() % 2100))];
                let there = AddressSegment { address: u64::from(input.long()), handle: input.long() };
                let work = match input.byte() % 3 {
                    0 => Work::send(posted[1], &from),
                    1 => Work::write(posted[1], &from, there),
                    _ => Work::read(posted[1], &from, there),
                };
                posted[1] += u64::from(side.nic.post_send(vi, work).is_ok());
            }
            2 => now += Duration::from_millis(u64::from(input.byte())),
            3 => {
                let from = good.segment(2, 0, MESSAGE.len() as u32);
                good.areas[2].write(AREAS[2], SharedBytes::from(&MESSAGE[..])).expect("within");
                let to = side.segment(0, 0, MESSAGE.len() as u32);
                side.nic.post_receive(canary, step as u64, &[to]).expect("room");
                good.nic.post_send(its, Work::send(0, &[from])).expect("the canary is connected");
                exchange(&mut side, &mut good, now);
                let done = side.nic.receive_done(canary).expect("it is there").expect("the message arrived");
                assert!(done.status.is_ok() && done.length == 8);
                assert_eq!(side.areas[0].read(AREAS[0], 8).expect("within"), MESSAGE);
                while good.nic.send_done(its).expect("it is there").is_some() {}
                canaries += 1;
            }
            4 => {
                let _ = side.nic.disconnect(vi);
                side.arrive(0, &Peer::request(level), now);
                if let Some(request) = side.nic.request_at(b"peer") {
                    let _ = side.nic.accept(request.number, vi, now);
                }
            }
            _ => {
                let packet = peer.craft(&mut input, open, closed);
                side.arrive(0, &packet, now);
            }
        }
        side.nic.settle(now);
        side.packets(0, now).iter().for_each(|packet| peer.hear(packet, features));
        exchange(&mut side, &mut good, now);
        while let Some(done) = side.nic.receive_done(vi).expect("it is there") {
            assert_eq!(done.cookie, dequeued[0], "in the order of posting");
            dequeued[0] += 1;
            features.show((1, done.status.0, done.kind as u8));
        }
        while let Some(done) = side.nic.send_done(vi).expect("it is there") {
            assert_eq!(done.cookie, dequeued[1], "in the order of posting");
            dequeued[1] += 1;
            features.show((2, done.status.0, done.kind as u8));
        }
        while let Some(event) = side.nic.event() {
            features.show(std::mem::discriminant(&event));
        }
        features.show((side.nic.vi(vi).expect("it is there").0 as u8, level as u8));
        // The host's own memory holds the canary's message at its beginning, and is otherwise unchanged.
        let kept = side.areas[0].read(AREAS[0], AREA_BYTES).expect("within");
        let front = if canaries > 0 { MESSAGE } else { [0; 8] };
        assert!(kept[..8] == front && kept[8..].iter().all(|byte| *byte == 0), "closed memory was touched");
    }
    for number in [vi, canary] {
        side.nic.disconnect(number).expect("it is there");
        while side.nic.send_done(number).expect("it is there").is_some()
            || side.nic.receive_done(number).expect("it is there").is_some()
        {}
        side.nic.destroy_vi(number).expect("idle and empty");
    }
    for handle in side.handles {
        side.nic.deregister(handle).expect("registered");
    }
    side.nic.destroy_tag(side.tag).expect("nobody has it any more");
    assert_eq!(side.nic.in_use(), (0, 0));
}
