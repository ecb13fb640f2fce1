//! The host of an RDMA NIC that is tested with hostile peers: its memory, its queues, and the work that it
//! has posted.
//!
//! Memory    areas with different access rights, separated by gaps. Each gap is as long as the area after it.
//!           The gaps and the last areas are *canary* memory: no peer may write or read it.
//! Queues    three queue pairs with a completion queue each; one of them is on a shared receive queue. Over
//!           RoCEv2 also targets of extended reliable connections, whose shared receive queue is in an XRC
//!           domain of its own.
//! Checks    no byte of the canary memory is written. Each work request completes at most once, in queue
//!           order, and by the end exactly once, unless it was unsignalled and succeeded. At the end,
//!           everything can be destroyed, and no state is left.

use crate::features::Features;
use crate::input::Input;
use kiban_base::{Region, SharedBytes};
use kiban_rdma::rnic::{
    Access, Config, Data, Operation, QpAttributes, ReceiveWork, Rnic, SendWork, Sge, Status,
};
use std::collections::{BTreeSet, VecDeque};

const BASE: u64 = 0x10_0000;
pub(crate) const CANARY: u8 = 0xc7;
/// Number of equal bytes that are taken for the canary's.
const CANARY_RUN_BYTES: usize = 16;
pub(crate) const QPS: usize = 3;
/// The queue pair on the shared receive queue.
pub(crate) const SHARED: usize = 1;

/// Returns the address of an area.
pub(crate) const fn address(area_bytes: u64, area: usize) -> u64 {
    BASE + (2 * area as u64 + 1) * area_bytes
}

/// Panics if bytes that a peer receives are from the canary memory.
pub(crate) fn check_leak(payload: &[u8]) {
    let leaks = payload.windows(CANARY_RUN_BYTES).any(|run| run.iter().all(|&byte| byte == CANARY));
    assert!(!leaks, "the canary has left");
}

/// Replaces a peer's bytes that equal the canary's, which would raise a false alarm.
pub(crate) fn avoid_canary(bytes: &mut [u8]) {
    bytes.iter_mut().filter(|byte| **byte == CANARY).for_each(|byte| *byte = 0xee);
}

/// A queue pair, its completion queue, and the work on it: receives, and sends with whether they are
/// signalled.
pub(crate) struct Queues {
    pub(crate) qp: u32,
    pub(crate) cq: u32,
    /// The number by which completions name the queue pair.
    pub(crate) qpn: u32,
    /// The shared receive queue, which no other queue pair uses, and the receives on it.
    pub(crate) srq: Option<u32>,
    pub(crate) shared: BTreeSet<u64>,
    sends: VecDeque<(u64, bool)>,
    receives: VecDeque<u64>,
}

impl Queues {
    fn new(qp: u32, cq: u32, srq: Option<u32>) -> Queues {
        let (sends, receives) = (VecDeque::new(), VecDeque::new());
        Queues { qp, cq, qpn: qp, srq, shared: BTreeSet::new(), sends, receives }
    }
}

pub(crate) struct Host {
    pub(crate) nic: Rnic,
    pub(crate) pds: Vec<u32>,
    pub(crate) guard: Region,
    pub(crate) stags: Vec<u32>,
    pub(crate) queues: Vec<Queues>,
    xrc_domains: Vec<u32>,
    /// The shared receive queue that sends name over extended reliable connections.
    pub(crate) xrc_srq: u32,
    area_bytes: u64,
    /// The first area of canary memory.
    closed: usize,
    next_id: u64,
}

impl Host {
    /// Creates a NIC with memory: each area's protection domain and access. The areas from `closed` on are
    /// canary memory.
    pub(crate) fn new(area_bytes: u64, areas: &[(usize, Access)], closed: usize) -> Host {
        let mut nic = Rnic::new(Config { events_max: 64, ..Config::default() }, crate::key::key(9));
        let domains = areas.iter().map(|(pd, _)| pd + 1).max().unwrap_or(0);
        let pds: Vec<u32> = (0..domains).map(|_| nic.create_pd().expect("room")).collect();
        let guard = Region::new(BASE, (2 * areas.len() + 1) * area_bytes as usize);
        guard.write(BASE, SharedBytes::from(&vec![CANARY; guard.len()][..])).expect("within");
        let zeros = vec![0; area_bytes as usize];
        for area in 0..closed {
            guard.write(address(area_bytes, area), SharedBytes::from(&zeros[..])).expect("within");
        }
        let register = |(area, (pd, access)): (usize, &(usize, Access))| {
            let part = guard.part(address(area_bytes, area), area_bytes as usize).expect("within");
            nic.register(pds[*pd], part, *access).expect("room")
        };
        let stags = areas.iter().enumerate().map(register).collect();
        let (queues, xrc_domains) = (Vec::new(), Vec::new());
        Host { nic, pds, guard, stags, queues, xrc_domains, xrc_srq: 0, area_bytes, closed, next_id: 0 }
    }

    /// Creates the next queue pair, in a protection domain.
    pub(crate) fn create_queues(&mut self, pd: usize, waits_for_receives: bool) -> &mut Queues {
        let cq = self.nic.create_cq(2000).expect("room");
        let is_shared = self.queues.len() == SHARED;
        let srq = is_shared.then(|| self.nic.create_srq(self.pds[0], 16, 2).expect("room"));
        let attributes = QpAttributes {
            pd: self.pds[pd],
            send_cq: cq,
            receive_cq: cq,
            srq,
            send_work_max: 16,
            receive_work_max: 16,
            send_sges_max: 4,
            receive_sges_max: 4,
            inline_bytes_max: 64,
            signal_all: false,
            waits_for_receives,
        };
        let qp = self.nic.create_qp(attributes).expect("room");
        self.queues.push(Queues::new(qp, cq, srq));
        self.queues.last_mut().expect("pushed above")
    }

    /// Creates the next queue pair as a target, in an XRC domain of its own with a shared receive queue.
    pub(crate) fn create_xrc_target(&mut self, pd: usize) -> &mut Queues {
        let cq = self.nic.create_cq(2000).expect("room");
        let domain = self.nic.open_xrc_domain().expect("room");
        let srq = self.nic.create_xrc_srq(self.pds[pd], (domain, cq), 16, 2).expect("room");
        let qp = self.nic.create_xrc_target(domain).expect("room");
        self.xrc_domains.push(domain);
        self.queues.push(Queues::new(qp, cq, Some(srq)));
        self.queues.last_mut().expect("pushed above")
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Returns a scatter-gather element in an area, possibly beyond its end.
    pub(crate) fn sge(&self, area: usize, offset: u64, length: u32) -> Sge {
        Sge { stag: self.stags[area], address: address(self.area_bytes, area) + offset, length }
    }

    pub(crate) fn post_receive(&mut self, input: &mut Input<'_>, n: usize, mut sges: Vec<Sge>) {
        // Memory to which even the host has no write access.
        if input.byte().is_multiple_of(16) {
            sges.push(self.sge(self.closed, 0, 64));
        }
        let id = self.id();
        let work = ReceiveWork { id, sges: sges.into_iter().collect() };
        let queues = &mut self.queues[n];
        if let Some(srq) = queues.srq {
            if self.nic.post_srq_receive(srq, work).is_ok() {
                queues.shared.insert(id);
            }
        } else if self.nic.post_receive(queues.qp, work).is_ok() {
            queues.receives.push_back(id);
        }
    }

    pub(crate) fn post_send(&mut self, n: usize, operation: Operation, data: Data, flags: u8) {
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
            xrc_srq: self.xrc_srq,
        };
        if self.nic.post_send(self.queues[n].qp, work).is_ok() {
            self.queues[n].sends.push_back((id, signalled));
        }
    }

    /// Takes the completions and the events, and checks them and the canary memory.
    pub(crate) fn check(&mut self, features: &mut Features<'_>) {
        self.complete(features);
        while let Some(event) = self.nic.event() {
            features.show(std::mem::discriminant(&event));
        }
        let now = self.guard.read(BASE, self.guard.len()).expect("within");
        for (n, area) in now.chunks(self.area_bytes as usize).enumerate() {
            let is_canary = n % 2 == 0 || n / 2 >= self.closed;
            assert!(!is_canary || area.iter().all(|&byte| byte == CANARY), "the canary was touched");
        }
    }

    pub(crate) fn complete(&mut self, features: &mut Features<'_>) {
        for (n, queues) in self.queues.iter_mut().enumerate() {
            while let Some(done) = self.nic.poll(queues.cq).expect("there") {
                features.show((done.kind as u8, done.status as u8, n));
                assert_eq!(done.qp, queues.qpn);
                if queues.shared.remove(&done.id) {
                    continue;
                }
                if queues.receives.front() == Some(&done.id) {
                    queues.receives.pop_front();
                    continue;
                }
                loop {
                    let (id, signalled) =
                        queues.sends.pop_front().expect("it was not posted, or it completed twice");
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

    /// Checks that all work of a queue pair that has ended has completed.
    pub(crate) fn check_ended(&mut self, n: usize) {
        let Queues { receives, sends, .. } = &mut self.queues[n];
        assert!(receives.is_empty(), "a receive never completed");
        assert!(sends.iter().all(|(_, signalled)| !signalled), "work never completed");
        sends.clear();
    }

    pub(crate) fn destroy_queues(&mut self) {
        for Queues { qp, cq, srq, .. } in self.queues.drain(..) {
            self.nic.destroy_qp(qp).expect("there");
            if let Some(srq) = srq {
                self.nic.destroy_srq(srq).expect("it is unused");
            }
            self.nic.destroy_cq(cq).expect("it is unused");
        }
        for domain in self.xrc_domains.drain(..) {
            self.nic.close_xrc_domain(domain).expect("it is empty");
        }
    }

    /// Destroys the memory and the protection domains; nothing is left then.
    pub(crate) fn destroy(mut self, features: &mut Features<'_>) {
        for stag in self.stags {
            self.nic.deregister(stag).expect("no window refers to it");
        }
        for pd in self.pds {
            self.nic.destroy_pd(pd).expect("nobody is in it");
        }
        assert_eq!(self.nic.in_use(), (0, 0));
        self.nic.counters().each(&mut |name, value| features.show((name, value.min(4))));
    }
}
