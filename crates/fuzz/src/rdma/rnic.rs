//! An RDMA NIC with hostile peers. An input is a sequence of segments, calls from the host, and events of the
//! streams below.
//!
//! Set-up    one NIC has three queue pairs in two domains; one of the queue pairs is on a shared receive
//!           queue. There is memory open to peers, memory only for the host, a region with windows, and
//!           *canary* memory: the gaps between these, a region without access rights, and a region in a
//!           domain without queue pairs.
//! Peer      the peer knows every tag, keeps its message numbers correct, answers requests, and then sends
//!           arbitrary segments. Segments arrive whole, in small pieces, or directly in memory.
//! Checks    no byte of the canary memory is written, and no run of it is sent. Every segment sent can be
//!           parsed. Each work request completes at most once, in queue order, and by the end exactly once,
//!           unless it was unsignalled and succeeded. One notification request yields one notification. At
//!           the end, everything can be destroyed, and no state is left.

use crate::features::Features;
use crate::input::Input;
use kiban_base::{Region, SharedBytes};
use kiban_rdma::rnic::{
    Access, Binding, Config, Data, Notify, Operation, Payload, PlacementBuffers, QpAttributes, QpState,
    ReceiveWork, Rnic, SendWork, Sge, Status, StreamAction, StreamTraits, ToLlp, Validation,
};
use kiban_rdma::wire::ddp::{Header, Placing};
use kiban_rdma::wire::rdmap::{
    Atomic, AtomicRequest, AtomicResponse, Opcode, ReadRequest, Reason, TaggedAddress, Terminate,
};
use std::collections::{BTreeSet, VecDeque};

const BASE: u64 = 0x10_0000;
const AREA_BYTES: u64 = 0x200;
/// Areas are separated by gaps. Each gap is as long as the area after it.
const AREAS: u64 = 6;
const OPEN: usize = 0;
const OTHERS: usize = 1;
const HOST: usize = 2;
const WINDOWED: usize = 3;
const CLOSED: usize = 4;
const PRIVATE: usize = 5;
const CANARY: u8 = 0xc7;
const STEPS_MAX: usize = 250;
const SEGMENT_BYTES: usize = 300;
const SEGMENTS_MAX: usize = 4000;
const QPS: usize = 3;

const fn address(area: usize) -> u64 {
    BASE + (2 * area as u64 + 1) * AREA_BYTES
}

/// Collects sent bytes.
#[derive(Default)]
struct Out(Vec<Vec<u8>>);

impl ToLlp for Out {
    fn segment_bytes(&self) -> usize {
        SEGMENT_BYTES
    }
    fn segment(&mut self, header: &[u8], payload: Payload<'_>) {
        let mut segment = header.to_vec();
        payload.append_to(&mut segment);
        assert!(segment.len() <= SEGMENT_BYTES, "a segment is too long");
        self.0.push(segment);
    }
}

/// One connection: the work that the host has posted, and the state of the peer.
struct End {
    qp: u32,
    cq: u32,
    pd: u32,
    sends: VecDeque<(u64, bool)>,
    receives: VecDeque<u64>,
    /// The peer's next message number on each queue, and the offset within the message on the first queue.
    numbers: [u32; 4],
    offset: u32,
    /// The NIC's outstanding requests: reads, each with the number of bytes answered so far, and atomics.
    read_requests: VecDeque<(ReadRequest, u32)>,
    atomics: VecDeque<u32>,
    /// A segment that waits until a receive is posted.
    stalled: Option<(Vec<u8>, u8)>,
    armed: bool,
}

struct Stand {
    nic: Rnic,
    pds: [u32; 3],
    guard: Region,
    stags: [u32; AREAS as usize],
    windows: [u32; 2],
    spare: u32,
    srq: u32,
    ends: Vec<End>,
    shared: BTreeSet<u64>,
    next_id: u64,
}

impl Stand {
    fn new(waits: bool) -> Stand {
        let mut nic = Rnic::new(Config { events_max: 64, ..Config::default() }, crate::key::key(9));
        let pds = [(); 3].map(|()| nic.create_pd().expect("room"));
        let guard = Region::new(BASE, ((2 * AREAS + 1) * AREA_BYTES) as usize);
        guard.write(BASE, SharedBytes::from(&vec![CANARY; guard.len()][..])).expect("within");
        for area in [OPEN, OTHERS, HOST, WINDOWED] {
            guard.write(address(area), SharedBytes::from(&[0; AREA_BYTES as usize][..])).expect("within");
        }
        let windowed = Access { bind: true, ..Access::LOCAL };
        let kinds = [
            (0, Access::ALL),
            (1, Access::ALL),
            (0, Access::LOCAL),
            (0, windowed),
            (0, Access::NONE),
            (2, Access::ALL),
        ];
        let mut area = 0;
        let stags = kinds.map(|(pd, access)| {
            let part = guard.part(address(area), AREA_BYTES as usize).expect("within");
            area += 1;
            nic.register(pds[pd], part, access).expect("room")
        });
        let windows = [false, true].map(|type_2| nic.allocate_window(pds[0], type_2).expect("room"));
        let spare = nic.allocate(pds[0], 4).expect("room");
        let srq = nic.create_srq(pds[0], 16, 2).expect("room");
        let ends = (0..QPS)
            .map(|n| {
                let pd = pds[usize::from(n == 2)];
                let cq = nic.create_cq(2000).expect("room");
                let attributes = QpAttributes {
                    pd,
                    send_cq: cq,
                    receive_cq: cq,
                    srq: (n == 1).then_some(srq),
                    send_work_max: 16,
                    receive_work_max: 16,
                    send_sges_max: 4,
                    receive_sges_max: 4,
                    inline_bytes_max: 64,
                    signal_all: false,
                    waits_for_receives: waits,
                };
                let qp = nic.create_qp(attributes).expect("room");
                End::new(qp, cq, pd)
            })
            .collect();
        let mut stand =
            Stand { nic, pds, guard, stags, windows, spare, srq, ends, shared: BTreeSet::new(), next_id: 0 };
        (0..QPS).for_each(|n| stand.connect(n));
        stand
    }

    fn connect(&mut self, n: usize) {
        let traits = StreamTraits { ird: 4, ord: 3, extensions: n != 2, kiban: n != 2, may_send: n != 0 };
        self.nic.connect(self.ends[n].qp, traits).expect("idle");
        let End { qp, cq, pd, armed, .. } = self.ends[n];
        self.ends[n] = End { armed, ..End::new(qp, cq, pd) };
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Returns a tag that usually exists, and an address that is usually near the tag's memory.
    fn place(&self, input: &mut Input<'_>) -> TaggedAddress {
        let choice = usize::from(input.byte());
        let (stag, area) = match choice % 12 {
            n @ 0..6 => (self.stags[n], n),
            6 => (self.windows[0], WINDOWED),
            7 => (self.windows[1], WINDOWED),
            8 => (self.spare, OPEN),
            9 => (input.long(), PRIVATE),
            _ => (self.stags[OPEN], OPEN),
        };
        let near = match input.byte() % 8 {
            0 => u64::from(input.distance()),
            1 => AREA_BYTES - u64::from(input.byte() % 16),
            2 => u64::MAX - u64::from(input.byte()) - address(area),
            3 => 0u64.wrapping_sub(u64::from(input.byte())),
            _ => u64::from(input.byte()) & !7,
        };
        TaggedAddress { stag, offset: address(area).wrapping_add(near) }
    }

    /// Returns a scatter-gather element of the host's own memory, possibly invalid, but never one that could
    /// expose the canary memory to a peer.
    fn sge(&self, input: &mut Input<'_>, n: usize) -> Sge {
        let own = if n == 2 { OTHERS } else { HOST };
        let area = match input.byte() % 16 {
            0 => PRIVATE,
            1 => OPEN,
            _ => own,
        };
        let offset = u64::from(input.byte());
        let length = u32::from(input.short() % 280);
        Sge { stag: self.stags[area], address: address(area) + offset, length }
    }

    fn post_receive(&mut self, input: &mut Input<'_>, n: usize) {
        let count = usize::from(input.byte() % 4);
        let mut sges: Vec<Sge> = (0..count).map(|_| self.sge(input, n)).collect();
        // Memory to which even the host has no write access.
        if input.byte().is_multiple_of(16) {
            sges.push(Sge { stag: self.stags[CLOSED], address: address(CLOSED), length: 64 });
        }
        let id = self.id();
        let work = ReceiveWork { id, sges: sges.into_iter().collect() };
        if n == 1 {
            if self.nic.post_srq_receive(self.srq, work).is_ok() {
                self.shared.insert(id);
            }
        } else if self.nic.post_receive(self.ends[n].qp, work).is_ok() {
            self.ends[n].receives.push_back(id);
        }
    }

    fn post_send(&mut self, input: &mut Input<'_>, n: usize) {
        let count = usize::from(input.byte() % 4);
        let mut data = Data::Elements((0..count).map(|_| self.sge(input, n)).collect());
        let flags = input.byte();
        let there = TaggedAddress { stag: input.long(), offset: u64::from(input.long()) };
        let here = self.place(input).stag;
        let operation = match input.byte() % 12 {
            0 => Operation::Send { invalidate: Some(there.stag) },
            1 => {
                data = Data::Inline((0..input.byte() % 64).collect());
                Operation::SEND
            }
            2 if flags & 8 != 0 => Operation::SendImmediate { data: 9 },
            2 => Operation::Immediate { data: 7 },
            3 => Operation::Write { remote: there, immediate: (flags & 8 != 0).then_some(8) },
            4..=6 => Operation::Read { remote: there, invalidate: flags & 8 != 0 },
            7 => Operation::Atomic { remote: there, atomic: Atomic::FetchAdd { add: 1, mask: 0 } },
            8 => Operation::LocalInvalidate { stag: here },
            9 => {
                let at = address(OPEN) + u64::from(input.byte());
                let blocks = self.guard.part(at, usize::from(input.byte())).into_iter().collect();
                let key = if flags & 8 != 0 { 0x11 } else { 0 };
                let stag = self.spare ^ key;
                Operation::Register { stag, address: at, blocks, access: Access::ALL }
            }
            10 => {
                let from = self.place(input);
                let access = Access { remote_read: true, remote_write: flags & 8 != 0, ..Access::NONE };
                let length = u64::from(input.short());
                let binding = Binding { region: from.stag, address: from.offset, length, access };
                let window = self.windows[usize::from(flags & 16 != 0)];
                Operation::Bind { window, binding: (flags & 32 == 0).then_some(binding) }
            }
            _ => Operation::SEND,
        };
        let id = self.id();
        let signalled = flags & 1 == 0;
        let work = SendWork {
            id,
            operation,
            data,
            signalled,
            solicited: flags & 2 != 0,
            fence: flags & 4 != 0,
            local_fence: flags & 0xc0 == 0xc0,
        };
        if self.nic.post_send(self.ends[n].qp, work).is_ok() {
            self.ends[n].sends.push_back((id, signalled));
        }
    }

    /// Returns a segment chosen by the input.
    fn craft(&mut self, input: &mut Input<'_>, n: usize) -> Vec<u8> {
        let place = self.place(input);
        let length = u32::from(input.short() % 300);
        let last = !input.byte().is_multiple_of(4);
        let end = &mut self.ends[n];
        let kind = input.byte();
        let mut payload = vec![0xee; length as usize];
        let tagged = |stag, offset| Placing::Tagged { stag, offset };
        let untagged = |end: &End, queue: u32, ulp, offset| {
            let sequence = end.numbers[queue as usize];
            Placing::Untagged { ulp, queue, sequence, offset }
        };
        let (opcode, last, placing) = match kind % 13 {
            0 => (Opcode::Write, last, tagged(place.stag, place.offset)),
            1..=3 => {
                let opcode = match (kind / 13) % 8 {
                    0 => Opcode::SendInvalidate,
                    1 => Opcode::SendSolicited,
                    2 => Opcode::SendSolicitedInvalidate,
                    3 => Opcode::SendImmediate,
                    4 => Opcode::SendSolicitedImmediate,
                    _ => Opcode::Send,
                };
                let placing = untagged(end, 0, place.stag, end.offset);
                end.offset = if last { 0 } else { end.offset.wrapping_add(length) };
                (opcode, last, placing)
            }
            4 | 5 => {
                let sink = TaggedAddress { stag: 0x99, offset: u64::from(input.distance()) };
                payload = ReadRequest { sink, length, source: place }.bytes().to_vec();
                (Opcode::ReadRequest, true, untagged(end, 1, 0, 0))
            }
            6 => {
                let atomic = Atomic::CompareSwap { swap: 1, swap_mask: 1, compare: 0, compare_mask: 1 };
                payload = AtomicRequest { identifier: 1, target: place, atomic }.bytes().to_vec();
                (Opcode::AtomicRequest, true, untagged(end, 1, 0, 0))
            }
            7 | 8 => {
                // Answer the pending request, or a similar one.
                let (request, here) = end.read_requests.front().copied().unwrap_or_default();
                let count = if last { request.length - here } else { length.min(request.length - here) };
                payload.resize(count as usize, 0xee);
                if last {
                    end.read_requests.pop_front();
                } else if let Some((_, here)) = end.read_requests.front_mut() {
                    *here += count;
                }
                let offset = request.sink.offset.wrapping_add(u64::from(here));
                (
                    Opcode::ReadResponse,
                    last || here + count == request.length,
                    tagged(request.sink.stag, offset),
                )
            }
            9 => {
                let identifier = end.atomics.pop_front().unwrap_or_default();
                payload = AtomicResponse { identifier, original: 5 }.bytes().to_vec();
                (Opcode::AtomicResponse, true, untagged(end, 3, 0, 0))
            }
            10 => {
                payload.truncate(8);
                (Opcode::Immediate, true, untagged(end, 0, 0, 0))
            }
            11 if kind < 64 => {
                let reason = Reason::ALL[usize::from(input.byte()) % Reason::ALL.len()].0;
                let read_request = end.read_requests.front().map(|(request, _)| *request);
                payload =
                    Terminate { reason, segment: Some((20, [0; 14].into_iter().collect())), read_request }
                        .bytes()
                        .to_vec();
                (Opcode::Terminate, true, untagged(end, 2, 0, 0))
            }
            _ => (Opcode::Write, true, tagged(self.stags[OPEN], address(OPEN))),
        };
        if let Placing::Untagged { queue, .. } = placing
            && last
        {
            end.numbers[queue as usize] = end.numbers[queue as usize].wrapping_add(1);
        }
        let header = Header { last, ulp: opcode.octet(), placing };
        let mut segment = vec![0; header.length()];
        header.write(&mut segment);
        segment.extend(payload);
        match input.byte() {
            0..16 => {
                let at = usize::from(input.short()) % segment.len();
                segment[at] ^= input.byte();
            }
            16..20 => segment.truncate(usize::from(input.byte()) % (segment.len() + 1)),
            20..24 => segment = input.take(64).to_vec(),
            _ => {}
        }
        // If the peer sent bytes equal to the canary's, the check for leaked canary bytes would raise a false
        // alarm.
        segment.iter_mut().filter(|byte| **byte == CANARY).for_each(|byte| *byte = 0xee);
        segment
    }

    /// Delivers a segment in the manner `how`; the host may act in the middle of it.
    fn arrive(&mut self, n: usize, segment: Vec<u8>, how: u8) {
        let qp = self.ends[n].qp;
        let crumb = if how & 3 == 0 { segment.len().max(1) } else { usize::from(how >> 2) + 1 };
        let mut here = if how & 3 == 0 { segment.len() } else { 0 };
        let mut placement = loop {
            match self.nic.validate(qp, &segment[..here], segment.len()) {
                Ok(Validation::NeedMore(more)) => {
                    assert!(more > here && more <= segment.len(), "it wants what is not there");
                    here = more;
                }
                Ok(Validation::Place(placement)) => break placement,
                Ok(Validation::Done) | Err(_) => return,
                Ok(Validation::Dry) => {
                    self.ends[n].stalled = Some((segment, how));
                    return;
                }
            }
        };
        let mut rest = &segment[placement.header_bytes()..];
        let mut places = PlacementBuffers::new();
        while !rest.is_empty() {
            let now = &rest[..crumb.min(rest.len())];
            let count = if how & 3 == 3 {
                if self.nic.placement_buffers(qp, &placement, &mut places).is_err() {
                    return;
                }
                let place = places.first().expect("payload has a place");
                let count = place.len().min(now.len());
                place.write(place.address(), SharedBytes::from(&now[..count])).expect("within");
                self.nic.on_placed(qp, &mut placement, count);
                count
            } else {
                if self.nic.place(qp, &mut placement, SharedBytes::from(now)).is_err() {
                    return;
                }
                now.len()
            };
            rest = &rest[count..];
            if how & 0xc0 == 0xc0 && !rest.is_empty() {
                self.take_back(how);
            }
        }
        assert_eq!(placement.missing(), 0);
        let _ = self.nic.deliver(qp, &placement);
    }

    /// The host deregisters memory and registers it again.
    fn take_back(&mut self, which: u8) {
        let (area, pd, access) = match which % 3 {
            0 => (OPEN, 0, Access::ALL),
            1 => (HOST, 0, Access::LOCAL),
            _ => (OTHERS, 1, Access::ALL),
        };
        if let Ok(blocks) = self.nic.deregister(self.stags[area]) {
            let _ = blocks;
            let part = self.guard.part(address(area), AREA_BYTES as usize).expect("within");
            self.stags[area] = self.nic.register(self.pds[pd], part, access).expect("room");
        }
    }

    /// Takes everything that can be sent, and checks it.
    fn pump(&mut self, confirms: bool, features: &mut Features<'_>) {
        let mut made = 0;
        while let Some(qp) = self.nic.pop_tx_queue() {
            let mut out = Out::default();
            while self.nic.next_segment(qp, &mut out) {
                made += 1;
                assert!(made < SEGMENTS_MAX, "a NIC sends without end");
            }
            let n = self.ends.iter().position(|end| end.qp == qp).expect("one of ours");
            out.0.iter().for_each(|segment| self.ends[n].hear(segment, features));
            if confirms {
                self.nic.confirm(qp, self.nic.segments_made(qp));
            }
            let wish = self.nic.stream_action(qp);
            if wish != StreamAction::Open {
                self.nic.confirm(qp, self.nic.segments_made(qp));
                self.nic.on_stream_closed(qp, wish == StreamAction::Finish);
            }
        }
        while let Some(qp) = self.nic.next_resumable() {
            if let Some(n) = self.ends.iter().position(|end| end.qp == qp)
                && let Some((segment, how)) = self.ends[n].stalled.take()
            {
                self.arrive(n, segment, how);
            }
        }
        self.complete(features);
        while let Some(event) = self.nic.event() {
            features.show(std::mem::discriminant(&event));
        }
        while let Some(cq) = self.nic.cq_event() {
            let end = self.ends.iter_mut().find(|end| end.cq == cq).expect("one of ours");
            assert!(std::mem::take(&mut end.armed), "a notification without a request");
        }
        let now = self.guard.read(BASE, self.guard.len()).expect("within");
        for (n, area) in now.chunks(AREA_BYTES as usize).enumerate() {
            let is_canary = n % 2 == 0 || n / 2 >= CLOSED;
            assert!(!is_canary || area.iter().all(|&byte| byte == CANARY), "the canary was touched");
        }
    }

    fn complete(&mut self, features: &mut Features<'_>) {
        for n in 0..self.ends.len() {
            while let Some(done) = self.nic.poll(self.ends[n].cq).expect("there") {
                features.show((done.kind as u8, done.status as u8, n));
                let end = &mut self.ends[n];
                assert_eq!(done.qp, end.qp);
                if self.shared.remove(&done.id) {
                    assert_eq!(n, 1, "only the shared queue's user takes from it");
                    continue;
                }
                if end.receives.front() == Some(&done.id) {
                    end.receives.pop_front();
                    continue;
                }
                loop {
                    let (id, signalled) =
                        end.sends.pop_front().expect("it was not posted, or it completed twice");
                    if id == done.id {
                        assert!(
                            signalled || done.status != Status::Success,
                            "completed, though not signalled"
                        );
                        break;
                    }
                    assert!(!signalled, "out of order, or left out");
                }
            }
        }
    }

    /// Checks a queue pair that has ended: all posted work has completed.
    fn end(&mut self, n: usize, features: &mut Features<'_>) {
        let qp = self.ends[n].qp;
        self.nic.abort(qp).expect("there");
        self.pump(true, features);
        assert!(self.ends[n].receives.is_empty(), "a receive never completed");
        assert!(self.ends[n].sends.iter().all(|(_, signalled)| !signalled), "work never completed");
    }

    /// Ends everything. First, a well-behaved peer uses up the shared receive queue, which shows that no
    /// receive was lost.
    fn finish(mut self, features: &mut Features<'_>) {
        (0..QPS).for_each(|n| self.end(n, features));
        self.nic.reset(self.ends[1].qp).expect("over");
        self.connect(1);
        while !self.shared.is_empty() {
            let left = self.shared.len();
            let placing =
                Placing::Untagged { ulp: 0, queue: 0, sequence: self.ends[1].numbers[0], offset: 0 };
            let mut segment = [0; 18];
            Header { last: true, ulp: Opcode::Send.octet(), placing }.write(&mut segment);
            self.ends[1].numbers[0] += 1;
            self.arrive(1, segment.to_vec(), 0);
            self.complete(features);
            assert_eq!(self.shared.len(), left - 1, "a shared receive was lost");
        }
        for End { qp, cq, .. } in self.ends {
            self.nic.destroy_qp(qp).expect("there");
            self.nic.destroy_cq(cq).expect("it is unused");
        }
        self.nic.destroy_srq(self.srq).expect("it is unused");
        for window in self.windows {
            self.nic.deregister(window).expect("allocated");
        }
        for stag in self.stags {
            self.nic.deregister(stag).expect("no window refers to it");
        }
        // The region's key may have changed, so try both keys that were issued.
        self.nic
            .deregister(self.spare)
            .or_else(|_| self.nic.deregister(self.spare ^ 0x11))
            .expect("allocated");
        for pd in self.pds {
            self.nic.destroy_pd(pd).expect("nobody is in it");
        }
        assert_eq!(self.nic.in_use(), (0, 0));
        self.nic.counters().each(&mut |name, value| features.show((name, value.min(4))));
    }
}

impl End {
    fn new(qp: u32, cq: u32, pd: u32) -> End {
        End {
            qp,
            cq,
            pd,
            sends: VecDeque::new(),
            receives: VecDeque::new(),
            numbers: [1; 4],
            offset: 0,
            read_requests: VecDeque::new(),
            atomics: VecDeque::new(),
            stalled: None,
            armed: false,
        }
    }

    /// Lets the peer receive a segment.
    fn hear(&mut self, segment: &[u8], features: &mut Features<'_>) {
        let (header, used) = Header::read(segment).expect("sent packets can be parsed");
        let opcode = Opcode::read(header.ulp).expect("sent segments have an opcode");
        features.show((3, opcode as u8, header.last));
        let payload = &segment[used..];
        let leaks = payload.windows(16).any(|run| run.iter().all(|&byte| byte == CANARY));
        assert!(!leaks, "the canary has left");
        match opcode {
            Opcode::ReadRequest => {
                self.read_requests.push_back((ReadRequest::read(payload).expect("a request"), 0));
            }
            Opcode::AtomicRequest => {
                self.atomics.push_back(AtomicRequest::read(payload).expect("a request").identifier);
            }
            Opcode::Terminate => {
                let reason = Terminate::read(payload).expect("a last word").reason;
                features.show((4, reason));
            }
            _ => {}
        }
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    vec![vec![0; 60], vec![1; 80], (0..250).collect(), (0..250u8).map(|n| n.wrapping_mul(7)).collect()]
}

pub(crate) fn run(bytes: &[u8], features: &mut Features<'_>) {
    let mut input = Input::new(bytes);
    let mut stand = Stand::new(input.byte().is_multiple_of(2));
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        let step = input.byte();
        let n = usize::from(step >> 6) % QPS;
        let qp = stand.ends[n].qp;
        match step % 16 {
            0 | 1 => stand.post_receive(&mut input, n),
            2..=4 => stand.post_send(&mut input, n),
            5 => {
                let which = input.byte();
                match which % 8 {
                    0 => drop(stand.nic.disconnect(qp)),
                    1 => stand.end(n, features),
                    2 => stand.nic.on_stream_closed(qp, which & 8 != 0),
                    3 => stand.nic.stream_fault(qp, Reason::MPA_CRC),
                    4 => stand.take_back(which >> 3),
                    5 => drop(stand.nic.set_srq_limit(stand.srq, usize::from(which >> 3))),
                    _ => {
                        let notify = if which & 8 != 0 { Notify::Any } else { Notify::Solicited };
                        stand.nic.arm(stand.ends[n].cq, notify).expect("there");
                        stand.ends[n].armed = true;
                    }
                }
            }
            _ => {
                let segment = stand.craft(&mut input, n);
                let how = input.byte();
                if stand.ends[n].stalled.is_none() {
                    stand.arrive(n, segment, how);
                }
            }
        }
        stand.pump(step & 0x20 == 0, features);
        let state = stand.nic.query_qp(qp).expect("there").1;
        features.show((5, state as u8));
        if state == QpState::Error {
            // All work completes before the queue pair restarts.
            stand.end(n, features);
            stand.nic.reset(qp).expect("over");
            stand.connect(n);
        }
    }
    stand.finish(features);
}
