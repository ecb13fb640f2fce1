//! Datagrams and pings for the host: UDP, ICMP, and circuits (F5 OAM).

use super::streams::Host;
use crate::edge::{DatagramInfo, Inbox};
use crate::error::HostError;
use alloc::collections::VecDeque;
use core::net::{IpAddr, SocketAddr};
use kiban_atm::wire::atm::{PTI_OAM_END_TO_END, PTI_OAM_SEGMENT};
use kiban_base::Pdu;
use kiban_tcpip::udp::{self, SocketId};

impl Host<'_> {
    /// Opens a UDP socket on `local`; an unspecified address means every address of the board.
    ///
    /// # Errors
    /// [`HostError::Udp`]: another socket has the address and port, the port is zero, or no socket can be
    /// added.
    pub fn bind(&mut self, local: SocketAddr) -> Result<SocketId, HostError> {
        self.bind_with(local, self.board.stack.v6_only)
    }

    /// Like [`bind`](Self::bind); `v6_only` sets whether the unspecified IPv6 address accepts only IPv6. IPv4
    /// peers are reported with their IPv4 address.
    ///
    /// # Errors
    /// Same as for [`bind`](Self::bind).
    pub fn bind_with(&mut self, local: SocketAddr, v6_only: bool) -> Result<SocketId, HostError> {
        let socket = self.board.stack.ip.udp.bind_with(local, v6_only)?;
        self.board.stack.edge.inboxes.push(Inbox {
            consumer: self.consumer,
            socket,
            datagrams: VecDeque::new(),
        });
        Ok(socket)
    }

    /// Closes a socket, drops the datagrams that wait in it, and leaves its groups.
    ///
    /// # Errors
    /// [`HostError::Udp`]: there is no such socket.
    pub fn unbind(&mut self, socket: SocketId) -> Result<(), HostError> {
        self.board.stack.ip.udp.close(socket)?;
        self.leave_all(socket);
        self.board.stack.edge.inboxes.retain(|inbox| inbox.socket != socket);
        Ok(())
    }

    /// Returns the source address of datagrams to `remote`, or `None` if the board has no route.
    pub fn source_for(&self, remote: IpAddr) -> Option<IpAddr> {
        self.board.stack.ip.ip.source_for(remote)
    }

    /// Sends a datagram, in fragments if it exceeds the path MTU.
    ///
    /// # Errors
    /// [`HostError::NoRoute`]; [`HostError::TooLong`] if the packet would exceed 65,535 bytes;
    /// [`HostError::NoMemory`]; [`HostError::Udp`]: there is no such socket, or `remote` is of the other
    /// family or has port zero.
    pub fn send_to(&mut self, socket: SocketId, remote: SocketAddr, bytes: &[u8]) -> Result<(), HostError> {
        self.send_datagram(socket, &DatagramInfo::to(remote), bytes)
    }

    /// Sends a datagram like [`send_to`](Self::send_to), with the traffic class in `info`. A hop limit of 0
    /// means that of the configuration. A socket on an unspecified address sends from the local address in
    /// `info`; if that is unspecified, too, the route determines it.
    ///
    /// # Errors
    /// Same as for [`send_to`](Self::send_to); [`HostError::Udp`] also if the board does not have the local
    /// address.
    pub fn send_datagram(
        &mut self,
        socket: SocketId,
        info: &DatagramInfo,
        bytes: &[u8],
    ) -> Result<(), HostError> {
        let DatagramInfo { remote, local, traffic_class, hop_limit } = *info;
        self.board.stack.ip.udp.local(socket)?;
        let mut source = self.board.stack.ip.ip.source_for(remote.ip()).ok_or(HostError::NoRoute)?;
        if !local.is_unspecified() {
            if !self.is_own(local) {
                return Err(udp::Refusal::BadAddress.into());
            }
            source = local;
        }
        let pdu = self.payload(remote.ip(), bytes)?;
        let datagram =
            self.board.stack.ip.udp.send(socket, source, remote, pdu).map_err(|(_, refusal)| refusal)?;
        let datagram = udp::Datagram { traffic_class, hop_limit, ..datagram };
        self.board.stack.ip.datagrams.push_back(datagram);
        self.board.stack.unsettled = true;
        Ok(())
    }

    /// Receives the next datagram of a socket. Returns its sender, and the number of bytes copied to `target`
    /// (the rest is dropped).
    ///
    /// # Errors
    /// [`HostError::Udp`]: there is no such socket.
    pub fn receive_from(
        &mut self,
        socket: SocketId,
        target: &mut [u8],
    ) -> Result<Option<(SocketAddr, usize)>, HostError> {
        let received = self.receive_datagram(socket, target)?;
        Ok(received.map(|(info, count)| (info.remote, count)))
    }

    /// Receives the next datagram of a socket like [`receive_from`](Self::receive_from), with its header
    /// fields.
    ///
    /// # Errors
    /// [`HostError::Udp`]: there is no such socket.
    pub fn receive_datagram(
        &mut self,
        socket: SocketId,
        target: &mut [u8],
    ) -> Result<Option<(DatagramInfo, usize)>, HostError> {
        self.board.stack.ip.udp.local(socket)?;
        let inbox = self.board.stack.edge.inboxes.iter_mut().find(|inbox| inbox.socket == socket);
        let Some((info, pdu)) = inbox.and_then(|inbox| inbox.datagrams.pop_front()) else {
            return Ok(None);
        };
        let mut count = 0;
        for run in pdu.runs() {
            let part = run.len().min(target.len() - count);
            target[count..count + part].copy_from_slice(&run[..part]);
            count += part;
        }
        self.board.stack.copies.host_out_bytes += count as u64;
        Ok(Some((info, count)))
    }

    /// Sends an ICMP echo request with `bytes` of payload. The reply is an
    /// [`EchoReply`](crate::Completion::EchoReply), an error about it an
    /// [`EchoError`](crate::Completion::EchoError).
    ///
    /// # Errors
    /// [`HostError::NoRoute`]; [`HostError::TooLong`] if the packet would exceed 65,535 bytes;
    /// [`HostError::NoMemory`].
    pub fn ping(
        &mut self,
        target: IpAddr,
        identifier: u16,
        sequence: u16,
        bytes: &[u8],
    ) -> Result<(), HostError> {
        let source = self.board.stack.ip.ip.source_for(target).ok_or(HostError::NoRoute)?;
        let pdu = self.payload(target, bytes)?;
        self.board.stack.edge.pings.insert(identifier, self.consumer);
        let message = self.board.stack.ip.icmp.ping(source, target, identifier, sequence, pdu);
        self.board.stack.ip.messages.push_back(message);
        self.board.stack.unsettled = true;
        Ok(())
    }

    /// Sends an ATM ping: an end-to-end loopback cell on a circuit of a port (F5 OAM). Returns its tag.
    ///
    /// # Errors
    /// [`HostError::NoCircuit`]; [`HostError::Busy`] while a loopback is in progress on the circuit.
    pub fn cell_loopback(&mut self, port: usize, circuit: u32) -> Result<u32, HostError> {
        self.send_cell_loopback(port, circuit, PTI_OAM_END_TO_END)
    }

    /// Sends a segment loopback cell, which is returned at the end of the circuit's first segment. Returns
    /// its tag.
    ///
    /// # Errors
    /// Same as for [`cell_loopback`](Self::cell_loopback).
    pub fn segment_loopback(&mut self, port: usize, circuit: u32) -> Result<u32, HostError> {
        self.send_cell_loopback(port, circuit, PTI_OAM_SEGMENT)
    }

    fn send_cell_loopback(&mut self, port: usize, circuit: u32, pti: u8) -> Result<u32, HostError> {
        let tag = self.board.stack.cell_loopback(port, circuit, pti);
        let tag = tag.ok_or(HostError::NoCircuit)?.ok_or(HostError::Busy)?;
        self.board.stack.edge.loopbacks.insert((port, circuit), self.consumer);
        self.board.stack.unsettled = true;
        Ok(tag)
    }

    /// Returns a PDU with `bytes` copied into content pages, if they and a header of 8 bytes (as in UDP and
    /// ICMP) do not exceed the maximum packet size. For IPv4, this size includes the IP header. For IPv6, the
    /// limit is the length field in the checksum's pseudo-header.
    pub(super) fn payload(&mut self, target: IpAddr, bytes: &[u8]) -> Result<Pdu, HostError> {
        let headers = if target.is_ipv4() { 28 } else { 8 };
        if bytes.len() + headers > usize::from(u16::MAX) {
            return Err(HostError::TooLong);
        }
        self.board.stack.payload(bytes)
    }
}
