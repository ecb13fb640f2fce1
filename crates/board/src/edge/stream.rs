//! The host's side of streams and sockets.

use super::completion::{Consumer, Upper};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use kiban_base::{Copies, Page, PagePool, Pdu, Slice};
use kiban_tcpip::tcp::SessionId;
use kiban_tcpip::udp::SocketId;

/// The host's side of one stream.
pub(crate) struct Stream {
    pub(crate) upper: Upper,
    pub(crate) session: SessionId,
    pub(crate) received: VecDeque<Slice>,
    pub(crate) received_bytes: usize,
    pub(crate) crumbs: Option<Page>,
    /// The number of received slices that have been compacted already.
    pub(crate) dense: usize,
    /// Whether the stream is in the list of streams to be compacted.
    pub(crate) is_loose: bool,
    pub(crate) page: Option<Page>,
    /// Bytes written since the last segment boundary.
    pub(crate) grain_filled: usize,
    /// The urgent mark to be reported to the host. It is reported in one completion, however often the peer
    /// moves it.
    pub(crate) urgent: Option<u32>,
    /// Number of bytes from the next one that the host reads up to and including the last urgent one; zero if
    /// there is none ahead.
    pub(crate) urgent_ahead: usize,
    pub(crate) waits_for_page: bool,
    pub(crate) open: bool,
    /// Whether the host has finished writing.
    pub(crate) finished: bool,
    pub(crate) ended: bool,
    /// Whether the host has closed the stream; data received later is dropped.
    pub(crate) closed: bool,
}

/// The addresses and header fields of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DatagramInfo {
    /// The remote address and port.
    pub remote: SocketAddr,
    /// The address of the board.
    pub local: IpAddr,
    /// DSCP and ECN (RFC 2474 §3, RFC 3168 §5).
    pub traffic_class: u8,
    /// The hop limit (TTL).
    pub hop_limit: u8,
}

impl DatagramInfo {
    /// Returns the fields of a datagram to `remote` for which the program has no wishes.
    pub const fn to(remote: SocketAddr) -> DatagramInfo {
        let local = match remote {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        DatagramInfo { remote, local, traffic_class: 0, hop_limit: 0 }
    }
}

pub(crate) struct Inbox {
    pub(crate) consumer: Consumer,
    pub(crate) socket: SocketId,
    pub(crate) datagrams: VecDeque<(DatagramInfo, Pdu)>,
}

/// A received datagram for the RDMA NIC.
pub(crate) struct NicDatagram {
    pub(crate) socket: SocketId,
    pub(crate) remote: SocketAddr,
    /// The address to which it was sent.
    pub(crate) local: IpAddr,
    /// DSCP and ECN.
    pub(crate) traffic_class: u8,
    pub(crate) pdu: Pdu,
}

impl NicDatagram {
    /// Returns the bytes. If they lie in several pages, joins them in `joined`.
    pub(crate) fn bytes<'a>(&'a self, joined: &'a mut Vec<u8>, copies: &mut Copies) -> &'a [u8] {
        let mut runs = self.pdu.runs().filter(|run| !run.is_empty());
        if let (Some(whole), None) = (runs.next(), runs.next()) {
            return whole;
        }
        joined.clear();
        self.pdu.runs().for_each(|run| joined.extend_from_slice(run));
        copies.host_out_bytes += joined.len() as u64;
        joined
    }
}

impl Stream {
    /// Returns whether the host may still write.
    pub(super) fn may_write(&self) -> bool {
        self.open && !self.finished && !self.ended && !self.closed
    }

    /// Appends a short slice to the page that collects short slices. If there is no page, keeps the slice
    /// unchanged.
    pub(super) fn append_small(&mut self, slice: Slice, pool: &mut PagePool, copies: &mut Copies) {
        if self.crumbs.as_ref().is_none_or(|page| page.room() < slice.len()) {
            self.crumbs = pool.take();
        }
        let moved = self.crumbs.as_mut().filter(|page| page.room() >= slice.len());
        let Some(moved) = moved.and_then(|page| page.append(slice.bytes())) else {
            self.received.push_back(slice);
            return;
        };
        copies.gather_bytes += moved.len() as u64;
        let apart = match self.received.back_mut() {
            Some(last) => last.join(moved).err(),
            None => Some(moved),
        };
        self.received.extend(apart);
    }
}
