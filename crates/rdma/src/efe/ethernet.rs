//! EFE-like frames carried directly in Ethernet frames, with a 14-byte header before and padding after.
//!
//! Type             88B5, IEEE's EtherType for local experiments.
//! Not implemented  VLAN tags; frames to group addresses are ignored.

use super::{Endpoint, Peer};
use kiban_base::Instant;
use kiban_base::ethernet::{HEADER_BYTES, Header, Mac};
use kiban_base::numbers::ether_type;

/// Minimum frame length in bytes, without the FCS (IEEE 802.3 §4A.4.2).
pub const FRAME_BYTES_MIN: usize = 60;

impl From<Mac> for Peer {
    fn from(mac: Mac) -> Peer {
        let [a, b, c, d, e, f] = mac.0;
        Peer(u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
    }
}

impl From<Peer> for Mac {
    /// Returns the MAC address that a peer was made from.
    fn from(peer: Peer) -> Mac {
        let [_, _, a, b, c, d, e, f] = peer.0.to_be_bytes();
        Mac([a, b, c, d, e, f])
    }
}

/// Writes the next frame of an endpoint on an Ethernet port with the address `own` into `room`. Returns its
/// length without the FCS.
///
/// # Panics
/// If `room` is shorter than [`Endpoint::frame_bytes_max`] plus 14 bytes.
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

/// Takes a frame that arrived at the endpoint's Ethernet port with a correct FCS. Returns whether it was
/// for the endpoint.
pub fn arrive(endpoint: &mut Endpoint, own: Mac, frame: &[u8], now: Instant) -> bool {
    match Header::read(frame) {
        Ok((header, length)) if header.ether_type == ether_type::EXPERIMENTAL && header.target == own => {
            endpoint.arrive(header.source.into(), &frame[length..], now);
            true
        }
        _ => false,
    }
}
