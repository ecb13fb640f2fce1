//! RoCEv2 for a NIC with an address of its own: one UDP socket at port 4791.
//!
//! ICRC       a socket that is not connected and never fragments sends IPv4 packets with identification 0,
//!            and trains with 0, 1, 2 and so on; the ICRC covers it ([`kiban_rdma::roce`]).
//! Path MTU   4096 bytes between loopback addresses, otherwise 1024, which fit an Ethernet frame.
//! Limits     one NIC for each address: the port is not shared, unlike that of the verbs library
//!            ([`crate::verbs`]). Zones of link-local IPv6 addresses are not kept.

use crate::link::Lower;
use kiban_base::{Instant, RngKey};
use kiban_os::udp::{SendResult, TRAIN_BYTES_MAX, TRAIN_MAX, UdpLink};
use kiban_rdma::nic::{Nic, RoceConfig, RocePort};
use kiban_rdma::roce::{Departure, Path};
use kiban_rdma::wire::roce::PORT;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

/// Requested size of the receive buffer in bytes. Without privileges, the system grants less.
const QUEUE_BYTES: usize = 8 << 20;
/// Maximum number of trains received per call.
const TURN_TRAINS: usize = 64;
/// Path MTUs in bytes.
const PATH_MTU: usize = 1024;
const LOOPBACK_PATH_MTU: usize = 4096;

/// The RoCEv2 port of a NIC, and its socket.
pub(super) struct RoceLink {
    pub(super) port: RocePort,
    socket: UdpLink,
    room: Box<[u8]>,
    train: Vec<u8>,
    /// A train that the socket had no room for.
    unsent: Option<Departure>,
}

impl RoceLink {
    /// Opens the link for a lower layer. Returns `None` if the lower layer needs none.
    pub(super) fn open(lower: &Lower, key: RngKey) -> io::Result<Option<RoceLink>> {
        let Lower::Roce { at } = lower else { return Ok(None) };
        let Some(at) = *at else {
            let text = "RoCEv2 needs an address of this host: use roce:ADDRESS";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        };
        let socket = UdpLink::bind(SocketAddr::new(at, PORT)).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => {
                let text = format!(
                    "UDP port {PORT} of {at} is in use, by another program that speaks RoCEv2 or by the \
                     kernel's rdma_rxe: use another address of this host (roce:ADDRESS), or another network \
                     namespace"
                );
                io::Error::new(io::ErrorKind::AddrInUse, text)
            }
            _ => error,
        })?;
        socket.request_receive_buffer(QUEUE_BYTES);
        socket.request_trains();
        socket.request_marks();
        socket.forbid_fragments();
        socket.allow_missing_checksums();
        let path_mtu = if at.is_loopback() { LOOPBACK_PATH_MTU } else { PATH_MTU };
        let config = RoceConfig { path_mtu, ..RoceConfig::default() };
        Ok(Some(RoceLink {
            port: RocePort::new(config, key),
            socket,
            room: vec![0; 1 << 16].into(),
            train: Vec::new(),
            unsent: None,
        }))
    }

    /// Returns the local address.
    pub(super) fn address(&self) -> IpAddr {
        self.socket.local().ip()
    }

    /// Starts listening at a port of RDMA-CM. Port 0 selects a free one. Returns the port.
    pub(super) fn listen(&mut self, at: SocketAddr) -> io::Result<u16> {
        let own = self.address();
        if !at.ip().is_unspecified() && at.ip() != own {
            let text = format!("this NIC has the address {own}, not {}: listen at {own}", at.ip());
            return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, text));
        }
        match at.port() {
            0 => {
                let free = (49152..=u16::MAX).find(|&port| self.port.listen(port).is_ok());
                free.ok_or_else(|| io::ErrorKind::AddrInUse.into())
            }
            port => self.port.listen(port).map(|()| port).map_err(io::Error::other),
        }
    }

    /// Receives datagrams. Returns whether there may be more.
    pub(super) fn take(&mut self, nic: &mut Nic, now: Instant) -> bool {
        let RoceLink { port, socket, room, .. } = self;
        let local = socket.local();
        for _ in 0..TURN_TRAINS {
            // An error of the socket is reported again, or the packets are lost as on any network.
            let Ok(Some(train)) = socket.receive_train(room) else { return false };
            let remote = SocketAddr::new(train.from.ip().to_canonical(), train.from.port());
            for datagram in room[..train.bytes].chunks(train.each) {
                nic.take_roce(port, Path { local, remote }, datagram, train.is_marked, now);
            }
        }
        true
    }

    /// Runs timers, and sends what the NIC has to send.
    pub(super) fn pump(&mut self, nic: &mut Nic, now: Instant) {
        nic.pump_roce(&mut self.port, now);
        // No end has a byte stream, so none of these has anything to send or to resume.
        while nic.next_to_serve().is_some() || nic.next_resumed().is_some() {}
        loop {
            let departure = self.unsent.take().or_else(|| {
                nic.next_roce(&mut self.port, now, (TRAIN_MAX, TRAIN_BYTES_MAX), &mut self.train)
            });
            let Some(departure) = departure else { return };
            let (each, to) = (departure.each, departure.path.remote);
            let sent = match departure.is_ecn_capable {
                true => self.socket.send_ecn_capable_train(&self.train, each, to),
                false => self.socket.send_train(&self.train, each, to),
            };
            match sent {
                // Whatever the system rejects is lost, as on any network.
                SendResult::All | SendResult::None => {}
                SendResult::Some(sent) => {
                    self.train.drain(..sent * departure.each);
                    self.unsent = Some(departure);
                    return;
                }
            }
        }
    }

    pub(super) fn deadline(&self) -> Instant {
        self.port.deadline()
    }
}

impl AsFd for RoceLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
