//! Two sides of a connection: one that requests, one that responds.

use kiban_base::{Instant, Region, SimRng};
use kiban_board::{Completion, Host, Program};
use kiban_rdma::nic::CmEvent;
use kiban_rdma::rnic::{
    self, Access, Data, Kind, Operation, QpAttributes, ReceiveWork, SendWork, Sge, Status, TaggedAddress,
};
use kiban_rdma::wire::rdmap::Atomic;
use std::any::Any;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

pub(crate) const SERVICE: u16 = 7471;
const BASE: u64 = 0x1000;

/// What a requester does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verb {
    Write,
    Send,
    Read,
    Add,
}

#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) verb: Verb,
    pub(crate) bytes: usize,
    pub(crate) count: usize,
    /// Messages that are posted at a time.
    pub(crate) depth: usize,
    /// After so many messages, a pause, up to half as long again.
    pub(crate) pause: Option<(usize, Duration)>,
    /// This message names memory that the peer does not have.
    pub(crate) wrong: Option<usize>,
    /// The peer answers each message with one of so many bytes, and the next one waits for it.
    pub(crate) answer: Option<usize>,
    /// How many receives the peer has, and how long it takes to post one again.
    pub(crate) receives: usize,
    pub(crate) repost: Duration,
}

impl Job {
    pub(crate) fn new(verb: Verb, bytes: usize, count: usize, depth: usize) -> Job {
        let (pause, wrong, answer) = (None, None, None);
        Job { verb, bytes, count, depth, pause, wrong, answer, receives: 64, repost: Duration::ZERO }
    }

    fn memory_bytes(&self) -> usize {
        self.bytes.max(self.answer.unwrap_or(0)).max(8)
    }
}

/// One side; the requester or the responder, and the one that connects or listens.
pub(crate) struct Side {
    pub(crate) requests: bool,
    remote: Option<SocketAddr>,
    job: Job,
    rng: SimRng,
    memory: Region,
    stag: u32,
    qp: u32,
    cq: u32,
    peer: u32,
    posted: usize,
    done: usize,
    answers: usize,
    resume_at: Instant,
    reposts: VecDeque<Instant>,
    connected: bool,
    closing: bool,
    gone: bool,
}

impl Side {
    pub(crate) fn new(requests: bool, remote: Option<SocketAddr>, job: Job, rng: SimRng) -> Side {
        Side {
            requests,
            remote,
            memory: Region::new(BASE, job.memory_bytes()),
            job,
            rng,
            stag: 0,
            qp: 0,
            cq: 0,
            peer: 0,
            posted: 0,
            done: 0,
            answers: 0,
            resume_at: Instant::NEVER,
            reposts: VecDeque::new(),
            connected: false,
            closing: false,
            gone: false,
        }
    }

    fn sge(&self, bytes: usize) -> Sge {
        Sge { stag: self.stag, address: BASE, length: bytes as u32 }
    }

    fn post_receive(&mut self, host: &mut Host<'_>) {
        let sges = [self.sge(self.job.memory_bytes())].into_iter().collect();
        let mut rdma = host.rdma().expect("a NIC");
        // It fails once the queue pair has.
        let _ = rdma.nic().core.post_receive(self.qp, ReceiveWork { id: 0, sges });
    }

    fn post(&mut self, host: &mut Host<'_>, operation: Operation, bytes: usize) {
        let work = SendWork::new(0, operation, Data::one(self.sge(bytes)));
        let mut rdma = host.rdma().expect("a NIC");
        let _ = rdma.nic().core.post_send(self.qp, work);
    }

    /// Posts as many messages as the job allows.
    fn pump(&mut self, host: &mut Host<'_>, now: Instant) {
        if !self.requests || !self.connected {
            return;
        }
        let ready = if self.job.answer.is_some() { self.answers } else { self.done };
        while self.posted < self.job.count && self.posted < ready + self.job.depth {
            if let Some((every, pause)) = self.job.pause
                && self.posted > 0
                && self.posted.is_multiple_of(every)
            {
                if ready < self.posted {
                    return;
                }
                if self.resume_at == Instant::NEVER {
                    self.resume_at = now + pause.mul_f64(1.0 + self.rng.unit() / 2.0);
                }
                if self.resume_at > now {
                    return;
                }
            }
            self.resume_at = Instant::NEVER;
            let is_wrong = self.job.wrong == Some(self.posted);
            let remote = TaggedAddress { stag: self.peer ^ u32::from(is_wrong) << 9, offset: BASE };
            let (operation, bytes) = match self.job.verb {
                Verb::Write => (Operation::write(remote), self.job.bytes),
                Verb::Send => (Operation::SEND, self.job.bytes),
                Verb::Read => (Operation::read(remote), self.job.bytes),
                Verb::Add => (Operation::Atomic { remote, atomic: Atomic::FetchAdd { add: 1, mask: 0 } }, 8),
            };
            self.post(host, operation, bytes);
            self.posted += 1;
        }
        if ready >= self.job.count && !self.closing {
            self.closing = true;
            let _ = host.rdma().expect("a NIC").nic().core.disconnect(self.qp);
        }
    }

    fn on_done(&mut self, done: &rnic::Completion, host: &mut Host<'_>, now: Instant) {
        if done.status != Status::Success {
            return;
        }
        if !matches!(done.kind, Kind::Receive | Kind::ReceiveImmediate) {
            self.done += usize::from(self.requests);
            return;
        }
        self.answers += 1;
        if self.job.repost == Duration::ZERO {
            self.post_receive(host);
        } else {
            // One at a time, as an application that works on each message.
            let last = self.reposts.back().copied().unwrap_or(now).max(now);
            self.reposts.push_back(last + self.job.repost);
        }
        if let Some(bytes) = self.job.answer.filter(|_| !self.requests) {
            self.post(host, Operation::SEND, bytes);
        }
    }
}

fn stag(private_data: &[u8]) -> u32 {
    private_data.first_chunk().map_or(0, |octets| u32::from_be_bytes(*octets))
}

impl Program for Side {
    fn start(&mut self, host: &mut Host<'_>, _: Instant) {
        let mut rdma = host.rdma().expect("a NIC");
        let core = &mut rdma.nic().core;
        let (pd, cq) = (core.create_pd().expect("room"), core.create_cq(256).expect("room"));
        let attributes = QpAttributes {
            pd,
            send_cq: cq,
            receive_cq: cq,
            srq: None,
            send_work_max: 128,
            receive_work_max: 128,
            send_sges_max: 1,
            receive_sges_max: 1,
            inline_bytes_max: 0,
            signal_all: true,
            waits_for_receives: false,
        };
        (self.cq, self.qp) = (cq, core.create_qp(attributes).expect("room"));
        self.stag = core.register(pd, self.memory.clone(), Access::ALL).expect("room");
        let receives = if self.requests { 64 } else { self.job.receives };
        (0..receives).for_each(|_| self.post_receive(host));
        let mut rdma = host.rdma().expect("a NIC");
        match self.remote {
            Some(remote) => {
                rdma.connect_roce(remote, self.qp, (16, 16), &self.stag.to_be_bytes()).expect("a route");
            }
            None => rdma.listen_roce(SERVICE).expect("free"),
        }
    }

    fn on_completion(&mut self, _: Completion, host: &mut Host<'_>, now: Instant) {
        loop {
            let mut rdma = host.rdma().expect("a NIC");
            match rdma.nic().poll() {
                Some(CmEvent::ConnectRequest(request)) => {
                    self.peer = stag(&request.private_data);
                    let own = self.stag.to_be_bytes();
                    rdma.accept(request.end, self.qp, request.depths, &own).expect("it waits");
                }
                Some(CmEvent::Connected { private_data, .. }) => {
                    if self.remote.is_some() {
                        self.peer = stag(&private_data);
                    }
                    self.connected = true;
                    self.pump(host, now);
                }
                Some(CmEvent::Gone { .. } | CmEvent::Failed { .. }) => self.gone = true,
                Some(CmEvent::Withdrawn { .. }) => {}
                None => break,
            }
        }
        loop {
            let polled = host.rdma().expect("a NIC").nic().core.poll(self.cq);
            let Ok(Some(done)) = polled else { break };
            self.on_done(&done, host, now);
        }
        self.pump(host, now);
    }

    fn on_timeout(&mut self, host: &mut Host<'_>, now: Instant) {
        while self.reposts.front().is_some_and(|at| *at <= now) {
            self.reposts.pop_front();
            self.post_receive(host);
        }
        self.pump(host, now);
    }

    fn deadline(&self) -> Instant {
        self.reposts.front().copied().unwrap_or(Instant::NEVER).min(self.resume_at)
    }

    fn is_done(&self) -> bool {
        self.gone
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
