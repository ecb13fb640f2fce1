//! The NIC, its streams by number, its EFE endpoint and its RoCEv2 port.

use super::efe::{Efe, EfeLink};
use super::roce::RoceWiring;
use crate::config::{EfePortConfig, RdmaConfig, RoceConfig};
use crate::edge::StreamId;
use crate::stack::Stack;
use alloc::collections::{BTreeMap, BTreeSet};
use kiban_base::{Instant, RngKey, SharedBytes, SharedRoom};
use kiban_rdma::efe::{self, ethernet};
use kiban_rdma::iwarp::mpa;
use kiban_rdma::nic::Nic;
use kiban_tcpip::udp::SocketId;

/// The NIC and its transports.
pub(crate) struct RdmaWiring {
    pub(crate) nic: Nic,
    pub(super) config: mpa::Config,
    pub(super) streams: BTreeMap<u32, StreamId>,
    pub(super) ends: BTreeMap<StreamId, u32>,
    /// Streams whose peer has sent its FIN while one of its messages waits for a posted receive.
    pub(super) ended: BTreeSet<u32>,
    pub(super) efe: Option<Efe>,
    pub(super) roce: Option<RoceWiring>,
    pub(super) completions_seen: u64,
}

impl RdmaWiring {
    pub(crate) fn new(config: &RdmaConfig, key: RngKey) -> RdmaWiring {
        RdmaWiring {
            nic: Nic::new(config.nic.clone(), key),
            config: config.mpa.clone(),
            streams: BTreeMap::new(),
            ends: BTreeMap::new(),
            ended: BTreeSet::new(),
            efe: None,
            roce: None,
            completions_seen: 0,
        }
    }

    /// Adds the board's EFE port.
    ///
    /// # Panics
    /// If there is one already.
    pub(crate) fn add_port(&mut self, port: &EfePortConfig, key: RngKey) {
        assert!(self.efe.is_none(), "a board has one port for EFE at most");
        self.efe = Some(Efe::at_port(port.mac, &port.endpoint, key));
    }

    /// Adds EFE over a socket of the board's UDP.
    ///
    /// # Panics
    /// If the board has a port for EFE.
    pub(crate) fn add_efe(&mut self, config: &efe::Config, socket: SocketId, key: RngKey) {
        assert!(self.efe.is_none(), "a board's NIC has EFE either in UDP or at a port");
        self.efe = Some(Efe::over_udp(socket, config, key));
    }

    /// Adds RoCEv2 over a socket of the board's UDP.
    pub(crate) fn add_roce(&mut self, config: &RoceConfig, socket: SocketId, key: RngKey) {
        self.roce = Some(RoceWiring::new(config, socket, key));
    }

    /// Handles a frame from the EFE port.
    pub(crate) fn on_frame(&mut self, frame: SharedBytes<'_>, now: Instant) {
        let Some(Efe { endpoint, below: EfeLink::Port(mac), .. }) = &mut self.efe else { return };
        match frame.private() {
            Some(frame) => ethernet::arrive(endpoint, *mac, frame, now),
            None => {
                // Another process may change the frame in the meantime, so validate a copy.
                let mut copy = alloc::vec![0; frame.len()];
                frame.copy_to(0, &mut copy);
                ethernet::arrive(endpoint, *mac, &copy, now)
            }
        };
    }

    /// Writes the next frame for the EFE port into `room`.
    pub(crate) fn fetch(&mut self, room: &mut SharedRoom<'_>, now: Instant) -> Option<usize> {
        let Some(Efe { endpoint, below: EfeLink::Port(mac), .. }) = &mut self.efe else { return None };
        let most = room.len();
        match room.private(most) {
            Some(room) => ethernet::fetch(endpoint, *mac, room, now),
            None => {
                let mut copy = alloc::vec![0; most];
                let length = ethernet::fetch(endpoint, *mac, &mut copy, now)?;
                room.write(0, SharedBytes::from(&copy[..length]));
                Some(length)
            }
        }
    }

    /// Handles timeouts and sends pending data, after the host has handled its completions.
    pub(crate) fn settle(&mut self, stack: &mut Stack) {
        self.nic.settle(stack.now);
        if let Some(efe) = &mut self.efe {
            efe.settle(stack.now);
            // Acknowledgements and retransmissions.
            stack.datagram_waits |= efe.send(stack);
        }
    }

    pub(crate) fn deadline(&self) -> Instant {
        let efe = self.efe.as_ref().map_or(Instant::NEVER, Efe::deadline);
        let roce = self.roce.as_ref().map_or(Instant::NEVER, RoceWiring::deadline);
        self.nic.deadline().min(efe).min(roce)
    }

    pub(crate) fn counters(&self, see: &mut dyn FnMut(&'static str, &'static str, u64)) {
        self.nic.core.counters().each(&mut |name, value| see("rdma", name, value));
        if let Some(efe) = &self.efe {
            efe.counters(see);
        }
        if let Some(roce) = &self.roce {
            roce.counters(see);
        }
    }

    /// Returns whether there are events for the host.
    pub(super) fn has_events(&mut self) -> bool {
        let completions = self.nic.core.counters().completions;
        let more = core::mem::replace(&mut self.completions_seen, completions) != completions;
        more || self.nic.has_event()
    }

    pub(super) fn add(&mut self, end: u32, stream: StreamId) {
        self.streams.insert(end, stream);
        self.ends.insert(stream, end);
    }

    pub(super) fn forget_stream(&mut self, end: u32, stream: StreamId) {
        self.streams.remove(&end);
        self.ends.remove(&stream);
        self.ended.remove(&end);
    }
}
