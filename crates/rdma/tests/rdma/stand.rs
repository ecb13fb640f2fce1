//! A victim NIC with every kind of memory inside one guarded area, and a peer that sends arbitrary segments.
//!
//! Segments are built and Terminates are parsed by hand, octet by octet: the core is tested against the
//! figures of RFC 5040 and RFC 5041, not against its own code.

use crate::pair::{Landing, Pair};
use kiban_base::{Region, SharedBytes};
use kiban_rdma::rnic::{
    Access, Binding, Data, Event, Kind, Operation, QpState, RnicCounters, Sge, Status, TaggedAddress,
};
use kiban_rdma::wire::rdmap::{Atomic, AtomicRequest, ReadRequest, Reason};

pub(crate) const LANDINGS: [Landing; 4] =
    [Landing::Whole, Landing::Crumbs(1), Landing::Crumbs(7), Landing::Direct(5)];

/// The address of the guarded area, and the length of each kind of memory in it. Gaps of the same length,
/// which have no tag, separate the kinds.
pub(crate) const BASE: u64 = 0x40_0000;
pub(crate) const SLOT: u64 = 0x100;
/// The byte that fills every payload.
pub(crate) const PAYLOAD: u8 = 0xee;

// Octets of RDMAP: version 1 and the opcode.
pub(crate) const WRITE: u8 = 0x40;
pub(crate) const READ_REQUEST: u8 = 0x41;
pub(crate) const READ_RESPONSE: u8 = 0x42;
pub(crate) const SEND: u8 = 0x43;
pub(crate) const SEND_INVALIDATE: u8 = 0x44;
pub(crate) const TERMINATE: u8 = 0x47;
pub(crate) const IMMEDIATE: u8 = 0x48;
pub(crate) const ATOMIC_REQUEST: u8 = 0x4a;
pub(crate) const ATOMIC_RESPONSE: u8 = 0x4b;

/// The kinds of memory, in the order in which they appear in the guarded area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Slot {
    Open,
    ReadOnly,
    WriteOnly,
    Local,
    Foreign,
    Windowed,
    Deregistered,
    Invalidated,
    Receive,
    Constant,
}

const SLOTS: u64 = 10;

/// Returns the address of a byte in this kind of memory.
pub(crate) fn at(slot: Slot, offset: u64) -> u64 {
    BASE + (2 * slot as u64 + 1) * SLOT + offset
}

/// Builds a tagged segment with a payload of this length.
pub(crate) fn tagged(octet: u8, last: bool, stag: u32, offset: u64, payload: usize) -> Vec<u8> {
    let mut segment = vec![0x81 | u8::from(last) << 6, octet];
    segment.extend(stag.to_be_bytes());
    segment.extend(offset.to_be_bytes());
    segment.resize(14 + payload, PAYLOAD);
    segment
}

/// Message sequence number, offset, queue and RDMAP word of an untagged segment.
#[derive(Clone, Copy, Default)]
pub(crate) struct Un {
    pub(crate) ulp: u32,
    pub(crate) queue: u32,
    pub(crate) msn: u32,
    pub(crate) mo: u32,
}

/// Builds an untagged segment.
pub(crate) fn untagged(octet: u8, last: bool, words: Un, payload: &[u8]) -> Vec<u8> {
    let mut segment = vec![0x01 | u8::from(last) << 6, octet];
    for word in [words.ulp, words.queue, words.msn, words.mo] {
        segment.extend(word.to_be_bytes());
    }
    segment.extend(payload);
    segment
}

/// Builds a segment of a Send.
pub(crate) fn send(last: bool, msn: u32, mo: u32, payload: usize) -> Vec<u8> {
    untagged(SEND, last, Un { msn, mo, ..Un::default() }, &vec![PAYLOAD; payload])
}

/// Builds a Send with Invalidate, without payload.
pub(crate) fn invalidate(msn: u32, stag: u32) -> Vec<u8> {
    untagged(SEND_INVALIDATE, true, Un { ulp: stag, msn, ..Un::default() }, &[])
}

/// Builds a read request.
pub(crate) fn read(msn: u32, stag: u32, offset: u64, length: u32) -> Vec<u8> {
    read_to(msn, 0x1000, TaggedAddress { stag, offset }, length)
}

pub(crate) fn read_to(msn: u32, sink: u64, source: TaggedAddress, length: u32) -> Vec<u8> {
    let sink = TaggedAddress { stag: 0x77, offset: sink };
    let request = ReadRequest { sink, length, source };
    untagged(READ_REQUEST, true, Un { queue: 1, msn, ..Un::default() }, &request.bytes())
}

/// Builds an atomic request that adds one.
pub(crate) fn add_one(msn: u32, stag: u32, offset: u64) -> Vec<u8> {
    let atomic = Atomic::FetchAdd { add: 1, mask: 0 };
    let request = AtomicRequest { identifier: 5, target: TaggedAddress { stag, offset }, atomic };
    untagged(ATOMIC_REQUEST, true, Un { queue: 1, msn, ..Un::default() }, &request.bytes())
}

/// A connected victim and its memory.
pub(crate) struct Stand {
    pub(crate) pair: Pair,
    pub(crate) guard: Region,
    stags: Vec<u32>,
    /// A type 2 window that another queue pair of the victim has bound, and a type 1 window.
    pub(crate) others_window: u32,
    pub(crate) window: u32,
    /// The other queue pair, in the same protection domain.
    pub(crate) other_qp: u32,
}

impl Stand {
    pub(crate) fn new(landing: Landing) -> Stand {
        let mut pair = Pair::new(1458, landing);
        let guard = Region::new(BASE, ((2 * SLOTS + 1) * SLOT) as usize);
        let pattern: Vec<u8> = (0..guard.len()).map(guarded).collect();
        guard.write(BASE, SharedBytes::from(&pattern[..])).expect("within");
        let two = &mut pair.two;
        let other_pd = two.nic.create_pd().expect("room");
        let read_only = Access { local_write: true, remote_read: true, ..Access::NONE };
        let write_only = Access { local_write: true, remote_write: true, ..Access::NONE };
        let kinds = [
            (Slot::Open, Access::ALL),
            (Slot::ReadOnly, read_only),
            (Slot::WriteOnly, write_only),
            (Slot::Local, Access::LOCAL),
            (Slot::Foreign, Access::ALL),
            (Slot::Windowed, Access { bind: true, ..Access::LOCAL }),
            (Slot::Deregistered, Access::ALL),
            (Slot::Invalidated, Access::ALL),
            (Slot::Receive, Access::LOCAL),
            (Slot::Constant, Access::NONE),
        ];
        let mut stags = Vec::new();
        for (slot, access) in kinds {
            let pd = if slot == Slot::Foreign { other_pd } else { two.pd };
            let part = guard.part(at(slot, 0), SLOT as usize).expect("within");
            stags.push(two.nic.register(pd, part, access).expect("room"));
        }
        let stag = |slot: Slot| stags[slot as usize];
        two.nic.deregister(stag(Slot::Deregistered)).expect("registered");
        // The other queue pair binds one window for itself, and one for the protection domain.
        let own = two.qp;
        let other_qp = two.nic.create_qp(crate::pair::attributes(two.pd, two.cq)).expect("room");
        two.nic.connect(other_qp, crate::pair::TRAITS).expect("idle");
        let others_window = two.nic.allocate_window(two.pd, true).expect("room");
        let window = two.nic.allocate_window(two.pd, false).expect("room");
        two.qp = other_qp;
        for window in [others_window, window] {
            let access = Access { remote_read: true, remote_write: true, ..Access::NONE };
            let region = stag(Slot::Windowed);
            let binding = Binding { region, address: at(Slot::Windowed, 0x40), length: 0x80, access };
            two.send(0, Operation::Bind { window, binding: Some(binding) }, Data::none());
        }
        two.send(0, Operation::LocalInvalidate { stag: stag(Slot::Invalidated) }, Data::none());
        two.make();
        assert!(two.completions().iter().all(|done| done.status == Status::Success));
        two.qp = own;
        Stand { pair, guard, stags, others_window, window, other_qp }
    }

    pub(crate) fn stag(&self, slot: Slot) -> u32 {
        self.stags[slot as usize]
    }

    pub(crate) fn sge(&self, slot: Slot, offset: u64, length: u32) -> Sge {
        Sge { stag: self.stag(slot), address: at(slot, offset), length }
    }

    /// Posts two receives, of 60 and 40 bytes.
    pub(crate) fn post_receives(&mut self) {
        for (id, from) in [(20, 0), (21, 0x80)] {
            let sges = [self.sge(Slot::Receive, from, 60), self.sge(Slot::Receive, from + 64, 40)];
            self.pair.two.receive(id, &sges);
        }
    }

    /// Lets the victim receive a segment.
    pub(crate) fn inject(&mut self, segment: &[u8]) {
        assert!(self.pair.two.take(segment, self.pair.landing), "it need not wait");
    }

    pub(crate) fn state(&self) -> QpState {
        self.pair.two.nic.query_qp(self.pair.two.qp).expect("there").1
    }

    /// Checks that nothing in the guarded area has changed except these ranges (address and length), which
    /// must hold payload.
    pub(crate) fn assert_guard(&self, placed: &[(u64, usize)], name: &str) {
        let now = self.guard.read(BASE, self.guard.len()).expect("within");
        for (n, &byte) in now.iter().enumerate() {
            let address = BASE + n as u64;
            let is_placed =
                placed.iter().any(|&(from, count)| (from..from + count as u64).contains(&address));
            let expected = if is_placed { PAYLOAD } else { guarded(n) };
            assert_eq!(byte, expected, "{name}: the byte at {address:#x}, {:?}", self.pair.landing);
        }
    }

    /// Checks that the victim has failed for `reason`: it sends one Terminate, both hosts get an event, and
    /// no more segments are accepted.
    ///
    /// `segment` is the segment at fault. `receive` is the status of the older of the two receives, if they
    /// were posted.
    pub(crate) fn assert_terminated(
        &mut self,
        name: &str,
        segment: &[u8],
        reason: Reason,
        counter: &str,
        receive: Option<Status>,
    ) {
        let name = format!("{name}, {:?}", self.pair.landing);
        assert_eq!(self.state(), QpState::Terminate, "{name}");
        let two = &mut self.pair.two;
        let event = two.nic.event();
        assert_eq!(event, Some(Event::QpFailed { qp: two.qp, reason: Some(reason) }), "{name}");
        two.make();
        assert_eq!(two.out.segments.len(), 1, "{name}: one last word");
        let word = two.out.segments.pop_front().expect("one");
        check_last_word(&name, &word, segment, reason);
        only_fault(&name, two.nic.counters(), counter);
        let done: Vec<_> = two.completions().iter().map(|done| (done.id, done.status, done.kind)).collect();
        let expected: Vec<_> = receive.map_or(vec![], |oldest| vec![(20, oldest), (21, Status::Flushed)]);
        let expected: Vec<_> = expected.iter().map(|&(id, status)| (id, status, Kind::Receive)).collect();
        assert_eq!(done, expected, "{name}: every receive is told once, in order");
        // No more segments are accepted, valid or not.
        let stag = self.stag(Slot::Open);
        self.inject(&tagged(WRITE, true, stag, at(Slot::Open, 0), 4));
        self.pair.two.make();
        assert!(self.pair.two.out.segments.is_empty() && self.pair.two.nic.event().is_none(), "{name}");
        // The Terminate reaches the peer.
        let one = &mut self.pair.one;
        let waits = one.nic.query_qp(one.qp).expect("there").1 == QpState::Rts;
        assert!(waits && one.completions().is_empty(), "{name}: the peer's read waits");
        one.take(&word, self.pair.landing);
        assert_eq!(one.nic.event(), Some(Event::PeerTerminated { qp: one.qp, reason }), "{name}");
        let status = match (reason.layer, reason.kind) {
            (0 | 1, 1) => Status::RemoteAccess,
            (0, 0 | 2) => Status::RemoteOperation,
            _ => Status::RemoteRequest,
        };
        let done: Vec<_> = one.completions().iter().map(|done| (done.id, done.status)).collect();
        assert_eq!(done, [(1, status)], "{name}");
        one.make();
        assert!(one.out.segments.is_empty(), "{name}: a last word has no answer");
    }

    /// Makes the peer wait for a read whose request never reaches the victim.
    pub(crate) fn peer_reads(&mut self) {
        let back = self.pair.one.memory(64, Access::LOCAL);
        let source = TaggedAddress { stag: self.stag(Slot::Open), offset: at(Slot::Open, 0) };
        self.pair.one.send(1, Operation::read(source), Data::one(back.sge(0, 64)));
        self.pair.one.make();
        self.pair.one.out.segments.clear();
    }
}

/// Returns the initial contents of a byte of the guarded area.
pub(crate) fn guarded(n: usize) -> u8 {
    // The modulus ensures that the result differs from the byte that fills payloads.
    (n % 211) as u8
}

/// Checks that the Terminate carries the reason and the header of the segment at fault (RFC 5040 §4.8).
fn check_last_word(name: &str, word: &[u8], wrong: &[u8], reason: Reason) {
    assert_eq!(word[..2], [0x41, TERMINATE], "{name}: one untagged segment");
    let words: Vec<u32> =
        word[2..18].chunks(4).map(|four| u32::from_be_bytes(four.try_into().expect("four"))).collect();
    assert_eq!(words, [0, 2, 1, 0], "{name}: queue 2, the first message");
    assert_eq!([word[18] >> 4, word[18] & 15, word[19]], [reason.layer, reason.kind, reason.code], "{name}");
    assert_eq!((word[20] & 0x1f, word[21]), (0, 0), "{name}: reserved bits");
    let (has_length, has_header, has_request) =
        (word[20] & 0x80 != 0, word[20] & 0x40 != 0, word[20] & 0x20 != 0);
    let header_bytes = if wrong.first().is_some_and(|first| first & 0x80 != 0) { 14 } else { 18 };
    let mut rest = &word[22..];
    if has_length {
        assert_eq!(rest[..2], (wrong.len() as u16).to_be_bytes(), "{name}: the segment's length");
        rest = &rest[2..];
    }
    if has_header {
        assert_eq!(rest[..header_bytes], wrong[..header_bytes], "{name}: the header that was wrong");
        rest = &rest[header_bytes..];
    }
    if has_request {
        assert_eq!(wrong[1], READ_REQUEST, "{name}");
        assert_eq!(rest, &wrong[18..46], "{name}: the request that was wrong");
        rest = &[];
    }
    assert!(rest.is_empty(), "{name}: nothing more");
    // RFC 5040 §4.8: Terminates for RDMAP and DDP errors attach the segment; those for errors below DDP, and
    // for local errors, do not.
    let names_it = reason.layer < 2 && reason.kind != 0 && !is_version(reason);
    assert_eq!((has_length, has_header), (names_it, names_it), "{name}: what is attached");
}

fn is_version(reason: Reason) -> bool {
    reason == Reason::TAGGED_VERSION || reason == Reason::UNTAGGED_VERSION
}

const FAULTS: [&str; 15] = [
    "bad_stag",
    "bad_stream",
    "bad_access",
    "bad_bounds",
    "bad_wrap",
    "bad_invalidate",
    "bad_version",
    "bad_opcode",
    "bad_queue",
    "bad_sequence",
    "bad_offset",
    "no_buffer",
    "too_long",
    "bad_length",
    "bad_crc",
];

/// Checks that one fault was counted under its name, and checks the Terminate.
fn only_fault(name: &str, counters: &RnicCounters, counter: &str) {
    counters.each(&mut |counted, value| {
        if FAULTS.contains(&counted) || counted == "terminates_out" {
            let expected = u64::from(counted == counter || counted == "terminates_out");
            assert_eq!(value, expected, "{name}: {counted}");
        }
    });
}

impl Stand {
    /// Creates a victim with a new connection to a peer that does not support RFC 7306.
    pub(crate) fn without_extensions(&mut self) {
        let two = &mut self.pair.two;
        two.qp = two.nic.create_qp(crate::pair::attributes(two.pd, two.cq)).expect("room");
        let traits = kiban_rdma::rnic::StreamTraits { extensions: false, ..crate::pair::TRAITS };
        two.nic.connect(two.qp, traits).expect("idle");
    }
}
