//! A host with an RDMA NIC and one connection over a byte stream, whose bytes the tests carry.

use kiban_base::{Instant, Region, RngKey, SharedBytes};
use kiban_rdma::iwarp::mpa;
use kiban_rdma::iwarp::stream::Chunk;
use kiban_rdma::nic::{CmEvent, Nic, Request};
use kiban_rdma::rnic::{
    Access, Completion, Config, Data, Operation, ReceiveWork, SendWork, Sge, StreamAction,
};

/// The time of all calls: these tests involve no delays.
pub(crate) const NOW: Instant = Instant::ZERO;

pub(crate) struct Host {
    pub(crate) nic: Nic,
    pub(crate) pd: u32,
    pub(crate) cq: u32,
    pub(crate) qp: u32,
    pub(crate) end: u32,
}

impl Host {
    fn new(seed: u64) -> Host {
        let mut nic = Nic::new(Config::default(), RngKey::for_simulation(seed));
        let pd = nic.core.create_pd().expect("room");
        let cq = nic.core.create_cq(256).expect("room");
        let qp = nic.core.create_qp(crate::pair::attributes(pd, cq)).expect("room");
        Host { nic, pd, cq, qp, end: 0 }
    }

    /// Creates the connecting side.
    pub(crate) fn initiator(seed: u64, config: &mpa::Config, depths: (u16, u16), words: &[u8]) -> Host {
        let mut host = Host::new(seed);
        host.end = host.nic.open(config, host.qp, depths, words, NOW).expect("room");
        host
    }

    /// Creates the accepting side.
    pub(crate) fn responder(seed: u64, config: &mpa::Config) -> Host {
        let mut host = Host::new(seed);
        host.end = host.nic.incoming(config, 1, NOW).expect("room");
        host
    }

    /// Returns the connection request that has arrived.
    pub(crate) fn asked(&mut self) -> Request {
        match self.nic.poll() {
            Some(CmEvent::ConnectRequest(request)) => request,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn accept(&mut self, depths: (u16, u16), words: &[u8]) {
        self.nic.accept(None, self.end, self.qp, depths, words, NOW).expect("it waits");
    }

    /// Registers memory at `address`. Returns the memory and its steering tag.
    pub(crate) fn memory(&mut self, address: u64, bytes: usize) -> (Region, u32) {
        let region = Region::new(address, bytes);
        let stag = self.nic.core.register(self.pd, region.clone(), Access::ALL).expect("room");
        (region, stag)
    }

    pub(crate) fn send(&mut self, id: u64, operation: Operation, data: Data) {
        self.nic.core.post_send(self.qp, SendWork::new(id, operation, data)).expect("posted");
    }

    pub(crate) fn receive(&mut self, id: u64, sge: Option<Sge>) {
        let work = ReceiveWork { id, sges: sge.into_iter().collect() };
        self.nic.core.post_receive(self.qp, work).expect("posted");
    }

    pub(crate) fn completions(&mut self) -> Vec<Completion> {
        std::iter::from_fn(|| self.nic.core.poll(self.cq).expect("a queue")).collect()
    }

    /// Returns all bytes that the stream can send now.
    pub(crate) fn pull(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while let Some(end) = self.nic.next_to_serve() {
            while let Some((stream, core)) = self.nic.stream(end)
                && stream.fill(core)
            {
                for chunk in stream.chunks() {
                    match chunk {
                        Chunk::Own(own) => bytes.extend_from_slice(own),
                        Chunk::Memory(region) => {
                            bytes.extend(region.read(region.address(), region.len()).expect("within"));
                        }
                    }
                }
                stream.advance(core, stream.unsent_bytes());
            }
        }
        bytes
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.nic.arrive(self.end, bytes, NOW);
    }

    /// Returns whether the stream continues.
    pub(crate) fn is_open(&self) -> bool {
        self.nic.stream_action(self.end) == StreamAction::Open
    }
}

pub(crate) fn fill(region: &Region, bytes: &[u8]) {
    region.write(region.address(), SharedBytes::from(bytes)).expect("within");
}
