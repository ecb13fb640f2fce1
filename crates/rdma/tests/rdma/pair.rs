//! Two NICs with one queue pair each, joined by a stream that carries segments in order.

use kiban_base::{Region, RngKey, SharedBytes};
use kiban_rdma::rnic::{
    Access, Completion, Config, Data, Operation, Payload, PlacementBuffers, QpAttributes, ReceiveWork, Rnic,
    SendWork, Sge, StreamAction, StreamTraits, ToLlp, Validation,
};
use std::collections::VecDeque;

/// The lower layer's queue of segments.
pub(crate) struct Wire {
    pub(crate) segment_bytes: usize,
    pub(crate) segments: VecDeque<Vec<u8>>,
}

impl ToLlp for Wire {
    fn segment_bytes(&self) -> usize {
        self.segment_bytes
    }
    fn segment(&mut self, header: &[u8], payload: Payload<'_>) {
        let mut segment = header.to_vec();
        payload.append_to(&mut segment);
        assert!(segment.len() <= self.segment_bytes, "a segment of {} bytes", segment.len());
        self.segments.push_back(segment);
    }
}

/// How payload is placed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Landing {
    /// Complete segments are copied.
    Whole,
    /// The header arrives first, then this many bytes at a time.
    Crumbs(usize),
    /// The lower layer stores the payload itself, this many bytes at a time.
    Direct(usize),
}

/// One side.
pub(crate) struct Side {
    pub(crate) nic: Rnic,
    pub(crate) pd: u32,
    pub(crate) cq: u32,
    pub(crate) qp: u32,
    pub(crate) out: Wire,
    /// A segment that waits for a receive.
    pub(crate) stalled: bool,
}

/// Memory with its steering tag.
pub(crate) struct Memory {
    pub(crate) region: Region,
    pub(crate) stag: u32,
}

impl Memory {
    pub(crate) fn sge(&self, at: u64, length: u32) -> Sge {
        Sge { stag: self.stag, address: self.region.address() + at, length }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.region.read(self.region.address(), self.region.len()).expect("within")
    }

    pub(crate) fn fill(&self, bytes: &[u8]) {
        self.region.write(self.region.address(), SharedBytes::from(bytes)).expect("within");
    }
}

pub(crate) const TRAITS: StreamTraits =
    StreamTraits { ird: 4, ord: 4, extensions: true, kiban: false, may_send: true };

pub(crate) fn attributes(pd: u32, cq: u32) -> QpAttributes {
    QpAttributes {
        pd,
        send_cq: cq,
        receive_cq: cq,
        srq: None,
        send_work_max: 64,
        receive_work_max: 64,
        send_sges_max: 8,
        receive_sges_max: 8,
        inline_bytes_max: 256,
        signal_all: false,
        waits_for_receives: false,
    }
}

impl Side {
    pub(crate) fn new(seed: u64, segment_bytes: usize) -> Side {
        let mut nic = Rnic::new(Config::default(), RngKey::for_simulation(seed));
        let pd = nic.create_pd().expect("room");
        let cq = nic.create_cq(256).expect("room");
        let qp = nic.create_qp(attributes(pd, cq)).expect("room");
        let out = Wire { segment_bytes, segments: VecDeque::new() };
        Side { nic, pd, cq, qp, out, stalled: false }
    }

    pub(crate) fn memory(&mut self, bytes: usize, access: Access) -> Memory {
        let region = Region::new(0x10_0000, bytes);
        let stag = self.nic.register(self.pd, region.clone(), access).expect("room");
        Memory { region, stag }
    }

    /// Registers memory filled with a pattern.
    pub(crate) fn pattern(&mut self, bytes: usize, access: Access) -> Memory {
        let memory = self.memory(bytes, access);
        memory.fill(&(0..bytes).map(|at| (at * 7 + at / 251) as u8).collect::<Vec<u8>>());
        memory
    }

    pub(crate) fn send(&mut self, id: u64, operation: Operation, data: Data) {
        self.nic.post_send(self.qp, SendWork::new(id, operation, data)).expect("posted");
    }

    pub(crate) fn receive(&mut self, id: u64, sges: &[Sge]) {
        let work = ReceiveWork { id, sges: sges.iter().copied().collect() };
        self.nic.post_receive(self.qp, work).expect("posted");
    }

    pub(crate) fn completions(&mut self) -> Vec<Completion> {
        std::iter::from_fn(|| self.nic.poll(self.cq).expect("a queue")).collect()
    }

    /// Makes all segments that can be made now.
    pub(crate) fn make(&mut self) {
        while let Some(qp) = self.nic.pop_tx_queue() {
            while self.nic.next_segment(qp, &mut self.out) {}
            self.nic.confirm(qp, self.nic.segments_made(qp));
        }
    }

    /// Receives one segment. Returns whether it was accepted; if not, the queue pair has failed.
    pub(crate) fn take(&mut self, segment: &[u8], landing: Landing) -> bool {
        let mut here = match landing {
            Landing::Whole => segment.len(),
            Landing::Crumbs(_) | Landing::Direct(_) => 0,
        };
        let mut placement = loop {
            match self.nic.validate(self.qp, &segment[..here], segment.len()) {
                Ok(Validation::NeedMore(more)) => {
                    assert!(more > here && more <= segment.len(), "wants {more} of {}", segment.len());
                    here = more;
                }
                Ok(Validation::Place(placement)) => break placement,
                Ok(Validation::Done) | Err(_) => return true,
                Ok(Validation::Dry) => return false,
            }
        };
        let mut rest = &segment[placement.header_bytes()..];
        let mut places = PlacementBuffers::new();
        loop {
            let count = match landing {
                Landing::Whole => rest.len(),
                Landing::Crumbs(count) | Landing::Direct(count) => count.min(rest.len()),
            };
            let (now, later) = rest.split_at(count);
            if let Landing::Direct(_) = landing {
                if self.nic.placement_buffers(self.qp, &placement, &mut places).is_err() {
                    return true;
                }
                let mut left = now;
                for place in &places {
                    let (front, back) = left.split_at(left.len().min(place.len()));
                    place.write(place.address(), SharedBytes::from(front)).expect("within");
                    left = back;
                }
                self.nic.on_placed(self.qp, &mut placement, now.len() - left.len());
                rest = &rest[now.len() - left.len()..];
            } else {
                if self.nic.place(self.qp, &mut placement, SharedBytes::from(now)).is_err() {
                    return true;
                }
                rest = later;
            }
            if rest.is_empty() {
                break;
            }
        }
        assert_eq!(placement.missing(), 0);
        let _ = self.nic.deliver(self.qp, &placement);
        true
    }
}

/// Both sides.
pub(crate) struct Pair {
    pub(crate) one: Side,
    pub(crate) two: Side,
    pub(crate) landing: Landing,
}

impl Pair {
    pub(crate) fn new(segment_bytes: usize, landing: Landing) -> Pair {
        let mut pair = Pair::apart(segment_bytes, landing);
        pair.one.nic.connect(pair.one.qp, TRAITS).expect("idle");
        pair.two.nic.connect(pair.two.qp, TRAITS).expect("idle");
        pair
    }

    pub(crate) fn apart(segment_bytes: usize, landing: Landing) -> Pair {
        Pair { one: Side::new(1, segment_bytes), two: Side::new(2, segment_bytes), landing }
    }

    /// Carries segments until there are no more. If a side requests the end or the abort of its stream, the
    /// stream ends on both sides.
    pub(crate) fn run(&mut self) {
        loop {
            self.one.make();
            self.two.make();
            let mut moved = false;
            moved |= carry(&mut self.one, &mut self.two, self.landing);
            moved |= carry(&mut self.two, &mut self.one, self.landing);
            if !moved && self.one.out.segments.len() + self.two.out.segments.len() == 0 {
                let wishes =
                    [self.one.nic.stream_action(self.one.qp), self.two.nic.stream_action(self.two.qp)];
                if wishes.iter().any(|&wish| wish != StreamAction::Open) {
                    let in_order = !wishes.contains(&StreamAction::Abort);
                    self.one.nic.on_stream_closed(self.one.qp, in_order);
                    self.two.nic.on_stream_closed(self.two.qp, in_order);
                }
            }
            if !moved {
                return;
            }
        }
    }
}

fn carry(from: &mut Side, to: &mut Side, landing: Landing) -> bool {
    let mut moved = false;
    while let Some(segment) = from.out.segments.front() {
        if !to.take(segment, landing) {
            to.stalled = true;
            break;
        }
        from.out.segments.pop_front();
        moved = true;
    }
    moved
}
