//! Datagrams between queue pairs: over UDP, from port to port.
//!
//! Goal      any queue pair may write to any other whose GID, number and Q_Key it knows.
//! Port      a queue pair's number names its port ([`super::ports`]); the number in the datagram says which of its 256.
//! GRH       receives find, in front of the payload, the 40 bytes of a global route header as IPv6's: the GIDs of both ends.
//! Limits    what the network loses is lost. Q_Keys travel in the clear, as they do everywhere.

use super::board::{Board, watch};
use super::ports::{Port, port_of};
use kiban_wire::datagram::Header;
use rustix::event::epoll;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

/// Datagrams that one port takes before the next has its turn.
const TURN_DATAGRAMS: usize = 64;
/// What may wait at a port while nobody drives, the system's own overhead with it: some thousands of datagrams.
const QUEUE_BYTES: usize = 8 << 20;
/// Room for the longest datagram.
const ROOM_BYTES: usize = 8192;

/// Ports with datagram queue pairs.
pub(super) struct Datagrams {
    epoll: OwnedFd,
    /// How many queue pairs each has.
    open: BTreeMap<(IpAddr, u16), u32>,
    room: Vec<u8>,
    leaving: Vec<u8>,
    more: bool,
}

impl Datagrams {
    pub(super) fn open(outer: &OwnedFd) -> io::Result<Datagrams> {
        Ok(Datagrams {
            epoll: outer.try_clone()?,
            open: BTreeMap::new(),
            room: vec![0; ROOM_BYTES],
            leaving: Vec::new(),
            more: false,
        })
    }

    /// One more queue pair at a port takes datagrams.
    pub(super) fn open_port(&mut self, port: &Port) -> io::Result<()> {
        let place = (port.address, port.udp.local().port());
        if !self.open.contains_key(&place) {
            port.udp.ask_for_room(QUEUE_BYTES);
            watch(&self.epoll, &port.udp)?;
        }
        *self.open.entry(place).or_insert(0) += 1;
        Ok(())
    }

    /// One less: whether the port takes none any more.
    fn close_port(&mut self, place: (IpAddr, u16)) -> bool {
        let Some(count) = self.open.get_mut(&place) else { return false };
        *count -= 1;
        let is_last = *count == 0;
        if is_last {
            self.open.remove(&place);
        }
        is_last
    }

    pub(super) fn has_more(&self) -> bool {
        self.more
    }
}

/// A GID: an address, IPv4 as IPv6 has it (RFC 4291 §2.5.5.2).
pub fn gid(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// A global route header (IBTA 8.3): version 6, the length of what follows, no next header of ours, a hop.
fn route_header(from: IpAddr, to: IpAddr, payload_bytes: usize) -> [u8; 40] {
    let mut header = [0; 40];
    header[0] = 6 << 4;
    header[4..6].copy_from_slice(&(payload_bytes as u16).to_be_bytes());
    header[6] = 0x1b;
    header[7] = 1;
    header[8..24].copy_from_slice(&gid(from));
    header[24..40].copy_from_slice(&gid(to));
    header
}

impl Board {
    /// A datagram queue pair leaves its port.
    pub(super) fn close_datagrams(&mut self, address: IpAddr, qpn: u32) {
        if self.datagrams.close_port((address, port_of(qpn)))
            && let Some(port) = self.ports.port(address, qpn)
        {
            // It is watched until now.
            let _ = epoll::delete(&self.datagrams.epoll, &port.udp);
        }
    }

    pub(super) fn take_datagrams(&mut self) {
        self.datagrams.more = false;
        let Board { core, qps, ports, datagrams, .. } = self;
        for &(address, number) in datagrams.open.keys() {
            let Some(port) = ports.port(address, u32::from(number) << 8) else { continue };
            for turn in 0.. {
                if turn == TURN_DATAGRAMS {
                    datagrams.more = true;
                    break;
                }
                let Some((length, from)) = port.udp.receive(&mut datagrams.room) else { break };
                // Whatever it is that is no datagram of ours is nobody's.
                let Ok((header, at)) = Header::read(&datagrams.room[..length]) else { continue };
                // A queue pair is where its number says.
                if port_of(header.source) != from.port() {
                    continue;
                }
                if let Some(qp) = qps.named(address, header.destination) {
                    let payload = &datagrams.room[at..length];
                    let route = route_header(from.ip().to_canonical(), address, payload.len());
                    core.nic.core.datagram(qp, &route, &header, payload);
                }
            }
        }
    }

    pub(super) fn send_datagrams(&mut self) {
        let Board { core, qps, ports, datagrams, .. } = self;
        while let Some(outgoing) = core.nic.core.next_datagram(&mut datagrams.leaving) {
            let Some(entry) = qps.get(outgoing.from) else { continue };
            let Some(port) = ports.port(entry.address, entry.qpn) else { continue };
            let Ok((header, _)) = Header::read(&datagrams.leaving) else { continue };
            let to = Ipv6Addr::from(outgoing.gid).to_canonical();
            // What the socket cannot take is lost, as on any network.
            port.udp.send(&datagrams.leaving, SocketAddr::new(to, port_of(header.destination)));
        }
    }
}
