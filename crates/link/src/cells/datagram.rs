//! UDP datagrams between this host and one peer, many per system call.
//!
//! Purpose          a train of datagrams of equal length is sent and received with one system call
//!                  ([`kiban_os::udp`]).
//! Peer             the socket is not connected: datagrams from other senders can be counted, and an ICMP
//!                  error does not end the link.
//! Loss             datagrams lost because the socket's queue was full are reported with the next one
//!                  (SO_RXQ_OVFL, socket(7)), and counted.
//! Limits           calls never block and move at most 64 KB. The system refuses a datagram that is longer
//!                  than the path's packets.

use crate::{BURST, LinkCounters};
use kiban_os::udp::{BpfInstruction, Train, UdpLink};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

pub(crate) use kiban_os::udp::{SendResult, TRAIN_BYTES_MAX, TRAIN_MAX};

/// Receive buffer, in bytes, for a tenth of a second of an OC-3c with each cell in its own datagram,
/// including the system's overhead.
const QUEUE_BYTES: usize = 32 << 20;
/// The result of one receive call.
enum ReceiveResult<'a> {
    /// Nothing has arrived.
    Nothing,
    /// A datagram from another sender.
    UnknownSender,
    /// Datagrams of the given length; the last may be shorter.
    Datagrams(&'a [u8], usize),
}

/// A UDP socket with one peer.
pub(crate) struct Datagrams {
    socket: UdpLink,
    peer: SocketAddr,
    /// Whether the peer may send from any of its ports.
    any_port: bool,
    /// Number of datagrams reported as lost because the socket's queue was full.
    overrun: u64,
    buffer: Box<[u8]>,
}

impl Datagrams {
    /// Binds a socket to `local`, for datagrams to and from `peer`.
    pub(crate) fn open(local: SocketAddr, peer: SocketAddr, any_port: bool) -> io::Result<Datagrams> {
        let mut one = Datagrams::open_group(local, peer, any_port, 1)?;
        Ok(one.remove(0))
    }

    /// Binds `count` sockets to `local`, for datagrams to and from `peer`.
    pub(crate) fn open_group(
        local: SocketAddr,
        peer: SocketAddr,
        any_port: bool,
        count: usize,
    ) -> io::Result<Vec<Datagrams>> {
        if local.is_ipv4() != peer.is_ipv4() {
            let message = format!(
                "{local} and {peer} have different address families: write two IPv4 or two IPv6 addresses"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let sockets =
            if count == 1 { vec![UdpLink::bind(local)?] } else { UdpLink::bind_group(local, count)? };
        let open = |socket: UdpLink| {
            socket.request_receive_buffer(QUEUE_BYTES);
            socket.request_trains();
            Datagrams { socket, peer, any_port, overrun: 0, buffer: vec![0; 1 << 16].into_boxed_slice() }
        };
        Ok(sockets.into_iter().map(open).collect())
    }

    /// Installs a program that chooses the socket of a group ([`UdpLink::choose_socket`]). Without it, the
    /// system gives all datagrams of the peer to one socket.
    pub(crate) fn choose_socket(&self, program: &[BpfInstruction]) {
        let _ = self.socket.choose_socket(program);
    }

    /// Returns the local address.
    pub(crate) fn local(&self) -> SocketAddr {
        self.socket.local()
    }

    /// Receives datagrams until `into` has [`BURST`] more units; `take` turns one datagram into units.
    /// Datagrams from other senders and empty ones are counted.
    pub(crate) fn each<U>(
        &mut self,
        into: &mut VecDeque<U>,
        counters: &mut LinkCounters,
        mut take: impl FnMut(&[u8], &mut LinkCounters, &mut VecDeque<U>),
    ) -> io::Result<()> {
        let enough = into.len() + BURST;
        for _ in 0..BURST {
            if into.len() >= enough {
                break;
            }
            match self.receive()? {
                ReceiveResult::Nothing => break,
                ReceiveResult::UnknownSender => counters.wrong_sender += 1,
                ReceiveResult::Datagrams([], _) => counters.malformed += 1,
                ReceiveResult::Datagrams(bytes, each) => {
                    bytes.chunks(each).for_each(|datagram| take(datagram, counters, into));
                }
            }
        }
        counters.overrun = self.overrun;
        Ok(())
    }

    /// Makes one receive call.
    fn receive(&mut self) -> io::Result<ReceiveResult<'_>> {
        let Some(Train { bytes, each, from, overrun, .. }) = self.socket.receive_train(&mut self.buffer)?
        else {
            return Ok(ReceiveResult::Nothing);
        };
        self.overrun = overrun.map_or(self.overrun, u64::from);
        let is_peer = from.ip() == self.peer.ip() && (self.any_port || from.port() == self.peer.port());
        Ok(if is_peer {
            ReceiveResult::Datagrams(&self.buffer[..bytes], each)
        } else {
            ReceiveResult::UnknownSender
        })
    }

    /// Sends a train of datagrams of `each` bytes (the last may be shorter): at most [`TRAIN_MAX`] datagrams
    /// and [`TRAIN_BYTES_MAX`].
    pub(crate) fn send(&mut self, bytes: &[u8], each: usize) -> SendResult {
        self.socket.send_train(bytes, each, self.peer)
    }
}

impl AsFd for Datagrams {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
