//! EFE-like frames straight in Ethernet frames: 14 bytes in front, padding behind.
//!
//! Type      88B5, IEEE's EtherType for experiments within one network.
//! Left out  VLAN tags; group addresses are not answered.

use super::{Endpoint, Peer};
use kiban_ground::Instant;
use kiban_wire::ethernet::{HEADER_BYTES, Header, Mac};
use kiban_wire::numbers::ether_type;

/// Bytes of the shortest frame, without its FCS (IEEE 802.3 §4A.4.2).
pub const FRAME_BYTES_MIN: usize = 60;

impl From<Mac> for Peer {
    fn from(mac: Mac) -> Peer {
        let [a, b, c, d, e, f] = mac.0;
        Peer(u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
    }
}

impl From<Peer> for Mac {
    /// The address of a peer that was made from one.
    fn from(peer: Peer) -> Mac {
        let [_, _, a, b, c, d, e, f] = peer.0.to_be_bytes();
        Mac([a, b, c, d, e, f])
    }
}

/// The next frame of an endpoint on an Ethernet port with the address `own`: its length in `room`, FCS not counted.
///
/// # Panics
/// When `room` is shorter than 14 bytes and [`Endpoint::frame_bytes_max`].
pub fn fetch(endpoint: &mut Endpoint, own: Mac, room: &mut [u8], now: Instant) -> Option<usize> {
    let (peer, length) = endpoint.fetch(&mut room[HEADER_BYTES..], now)?;
    let header = Header { target: peer.into(), source: own, ether_type: ether_type::EXPERIMENTAL };
    header.write(room);
    let length = HEADER_BYTES + length;
    if length < FRAME_BYTES_MIN {
        room[length..FRAME_BYTES_MIN].fill(0);
    }
    Some(length.max(FRAME_BYTES_MIN))
}

/// A frame has arrived at that port; its FCS was right. Whether it was for the endpoint.
pub fn arrive(endpoint: &mut Endpoint, own: Mac, frame: &[u8], now: Instant) -> bool {
    match Header::read(frame) {
        Ok((header, length)) if header.ether_type == ether_type::EXPERIMENTAL && header.target == own => {
            endpoint.arrive(header.source.into(), &frame[length..], now);
            true
        }
        _ => false,
    }
}
