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
use crate::rdma::host::{self, Host, QPS, SHARED};
use kiban_base::SharedBytes;
use kiban_rdma::rnic::{
    Access, Binding, Data, Notify, Operation, Payload, PlacementBuffers, QpState, Sge, StreamAction,
    StreamTraits, ToLlp, Validation,
};
use kiban_rdma::wire::ddp::{Header, Placing};
use kiban_rdma::wire::rdmap::{
    Atomic, AtomicRequest, AtomicResponse, Opcode, ReadRequest, Reason, TaggedAddress, Terminate,
};
use std::collections::VecDeque;

const AREA_BYTES: u64 = 0x200;
const OPEN: usize = 0;
const OTHERS: usize = 1;
const HOST: usize = 2;
const WINDOWED: usize = 3;
const CLOSED: usize = 4;
const PRIVATE: usize = 5;
const STEPS_MAX: usize = 250;
const SEGMENT_BYTES: usize = 300;
const SEGMENTS_MAX: usize = 4000;

const fn address(area: usize) -> u64 {
    host::address(AREA_BYTES, area)
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

/// The state of one connection and its peer.
struct End {
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
    host: Host,
    windows: [u32; 2],
    spare: u32,
    ends: Vec<End>,
}

impl Stand {
    fn new(waits: bool) -> Stand {
        let windowed = Access { bind: true, ..Access::LOCAL };
        let areas = [
            (0, Access::ALL),
            (1, Access::ALL),
            (0, Access::LOCAL),
            (0, windowed),
            (0, Access::NONE),
            (2, Access::ALL),
        ];
        let mut host = Host::new(AREA_BYTES, &areas, CLOSED);
        let pd = host.pds[0];
        let windows = [false, true].map(|type_2| host.nic.allocate_window(pd, type_2).expect("room"));
        let spare = host.nic.allocate(pd, 4).expect("room");
        for n in 0..QPS {
            host.create_queues(usize::from(n == 2), waits);
        }
        let mut stand = Stand { host, windows, spare, ends: Vec::new() };
        stand.ends.resize_with(QPS, End::new);
        (0..QPS).for_each(|n| stand.connect(n));
        stand
    }

    fn connect(&mut self, n: usize) {
        let traits = StreamTraits { ird: 4, ord: 3, extensions: n != 2, kiban: n != 2, may_send: n != 0 };
        self.host.nic.connect(self.host.queues[n].qp, traits).expect("idle");
        self.ends[n] = End { armed: self.ends[n].armed, ..End::new() };
    }

    /// Returns a tag that usually exists, and an address that is usually near the tag's memory.
    fn place(&self, input: &mut Input<'_>) -> TaggedAddress {
        let choice = usize::from(input.byte());
        let (stag, area) = match choice % 12 {
            n @ 0..6 => (self.host.stags[n], n),
            6 => (self.windows[0], WINDOWED),
            7 => (self.windows[1], WINDOWED),
            8 => (self.spare, OPEN),
            9 => (input.long(), PRIVATE),
            _ => (self.host.stags[OPEN], OPEN),
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
        self.host.sge(area, offset, u32::from(input.short() % 280))
    }

    fn post_receive(&mut self, input: &mut Input<'_>, n: usize) {
        let count = usize::from(input.byte() % 4);
        let sges = (0..count).map(|_| self.sge(input, n)).collect();
        self.host.post_receive(input, n, sges);
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
                let blocks = self.host.guard.part(at, usize::from(input.byte())).into_iter().collect();
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
        self.host.post_send(n, operation, data, flags);
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
            _ => (Opcode::Write, true, tagged(self.host.stags[OPEN], address(OPEN))),
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
        host::avoid_canary(&mut segment);
        segment
    }

    /// Delivers a segment in the manner `how`; the host may act in the middle of it.
    fn arrive(&mut self, n: usize, segment: Vec<u8>, how: u8) {
        let qp = self.host.queues[n].qp;
        let crumb = if how & 3 == 0 { segment.len().max(1) } else { usize::from(how >> 2) + 1 };
        let mut here = if how & 3 == 0 { segment.len() } else { 0 };
        let mut placement = loop {
            match self.host.nic.validate(qp, &segment[..here], segment.len()) {
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
                if self.host.nic.placement_buffers(qp, &placement, &mut places).is_err() {
                    return;
                }
                let place = places.first().expect("payload has a place");
                let count = place.len().min(now.len());
                place.write(place.address(), SharedBytes::from(&now[..count])).expect("within");
                self.host.nic.on_placed(qp, &mut placement, count);
                count
            } else {
                if self.host.nic.place(qp, &mut placement, SharedBytes::from(now)).is_err() {
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
        let _ = self.host.nic.deliver(qp, &placement);
    }

    /// The host deregisters memory and registers it again.
    fn take_back(&mut self, which: u8) {
        let (area, pd, access) = match which % 3 {
            0 => (OPEN, 0, Access::ALL),
            1 => (HOST, 0, Access::LOCAL),
            _ => (OTHERS, 1, Access::ALL),
        };
        if let Ok(blocks) = self.host.nic.deregister(self.host.stags[area]) {
            let _ = blocks;
            let part = self.host.guard.part(address(area), AREA_BYTES as usize).expect("within");
            self.host.stags[area] = self.host.nic.register(self.host.pds[pd], part, access).expect("room");
        }
    }

    /// Takes everything that can be sent, and checks it.
    fn pump(&mut self, confirms: bool, features: &mut Features<'_>) {
        let mut made = 0;
        while let Some(qp) = self.host.nic.pop_tx_queue() {
            let mut out = Out::default();
            while self.host.nic.next_segment(qp, &mut out) {
                made += 1;
                assert!(made < SEGMENTS_MAX, "a NIC sends without end");
            }
            let n = self.host.queues.iter().position(|queues| queues.qp == qp).expect("one of ours");
            out.0.iter().for_each(|segment| self.ends[n].hear(segment, features));
            if confirms {
                self.host.nic.confirm(qp, self.host.nic.segments_made(qp));
            }
            let wish = self.host.nic.stream_action(qp);
            if wish != StreamAction::Open {
                self.host.nic.confirm(qp, self.host.nic.segments_made(qp));
                self.host.nic.on_stream_closed(qp, wish == StreamAction::Finish);
            }
        }
        while let Some(qp) = self.host.nic.next_resumable() {
            if let Some(n) = self.host.queues.iter().position(|queues| queues.qp == qp)
                && let Some((segment, how)) = self.ends[n].stalled.take()
            {
                self.arrive(n, segment, how);
            }
        }
        self.host.check(features);
        while let Some(cq) = self.host.nic.cq_event() {
            let n = self.host.queues.iter().position(|queues| queues.cq == cq).expect("one of ours");
            assert!(std::mem::take(&mut self.ends[n].armed), "a notification without a request");
        }
    }

    /// Checks a queue pair that has ended: all posted work has completed.
    fn end(&mut self, n: usize, features: &mut Features<'_>) {
        self.host.nic.abort(self.host.queues[n].qp).expect("there");
        self.pump(true, features);
        self.host.check_ended(n);
    }

    /// Ends everything. First, a well-behaved peer uses up the shared receive queue, which shows that no
    /// receive was lost.
    fn finish(mut self, features: &mut Features<'_>) {
        (0..QPS).for_each(|n| self.end(n, features));
        self.host.nic.reset(self.host.queues[SHARED].qp).expect("over");
        self.connect(SHARED);
        while !self.host.queues[SHARED].shared.is_empty() {
            let left = self.host.queues[SHARED].shared.len();
            let placing =
                Placing::Untagged { ulp: 0, queue: 0, sequence: self.ends[SHARED].numbers[0], offset: 0 };
            let mut segment = [0; 18];
            Header { last: true, ulp: Opcode::Send.octet(), placing }.write(&mut segment);
            self.ends[SHARED].numbers[0] += 1;
            self.arrive(SHARED, segment.to_vec(), 0);
            self.host.complete(features);
            assert_eq!(self.host.queues[SHARED].shared.len(), left - 1, "a shared receive was lost");
        }
        self.host.destroy_queues();
        let nic = &mut self.host.nic;
        for window in self.windows {
            nic.deregister(window).expect("allocated");
        }
        // The region's key may have changed, so try both keys that were issued.
        nic.deregister(self.spare).or_else(|_| nic.deregister(self.spare ^ 0x11)).expect("allocated");
        self.host.destroy(features);
    }
}

impl End {
    fn new() -> End {
        End {
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
        host::check_leak(payload);
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
        let qp = stand.host.queues[n].qp;
        match step % 16 {
            0 | 1 => stand.post_receive(&mut input, n),
            2..=4 => stand.post_send(&mut input, n),
            5 => {
                let which = input.byte();
                match which % 8 {
                    0 => drop(stand.host.nic.disconnect(qp)),
                    1 => stand.end(n, features),
                    2 => stand.host.nic.on_stream_closed(qp, which & 8 != 0),
                    3 => stand.host.nic.stream_fault(qp, Reason::MPA_CRC),
                    4 => stand.take_back(which >> 3),
                    5 => {
                        let srq = stand.host.queues[SHARED].srq.expect("it has one");
                        stand.host.nic.set_srq_limit(srq, usize::from(which >> 3)).expect("there");
                    }
                    _ => {
                        let notify = if which & 8 != 0 { Notify::Any } else { Notify::Solicited };
                        stand.host.nic.arm(stand.host.queues[n].cq, notify).expect("there");
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
        let state = stand.host.nic.query_qp(qp).expect("there").1;
        features.show((5, state as u8));
        if state == QpState::Error {
            // All work completes before the queue pair restarts.
            stand.end(n, features);
            stand.host.nic.reset(qp).expect("over");
            stand.connect(n);
        }
    }
    stand.finish(features);
}
