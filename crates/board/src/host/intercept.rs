//! Interception: a transparent proxy for everything that peers send to other hosts.
//!
//! Purpose          a program of the board takes connections, datagrams and echo requests to any address and
//!                  port, and answers in the name of their destinations.
//! Connections      [`Completion::Requested`](crate::Completion::Requested) reports a SYN. The program
//!                  decides with [`Host::admit`] or [`Host::refuse`]; an admitted connection is reported like
//!                  any other ([`Completion::Accepted`](crate::Completion::Accepted)). Its local address
//!                  ([`Host::info`]) is its destination. The program also opens connections to peers from
//!                  any address ([`Host::open_from`]).
//! Packets          [`Completion::Intercepted`](crate::Completion::Intercepted): the program takes them with
//!                  [`Host::intercepted`], and answers with [`Host::send_from`] and [`Host::reply_to_echo`].
//! Own ports        listeners and sockets of the board have precedence: those on one of its addresses for
//!                  that address only, those on an unspecified address for all hosts.

use super::streams::Host;
use crate::edge::{Intercepted, Upper};
use crate::error::HostError;
use core::net::{IpAddr, SocketAddr};
use kiban_base::numbers::protocol;
use kiban_tcpip::ip::{Delivery, HeaderInfo, IcmpErrorKind};
use kiban_tcpip::tcp;
use kiban_tcpip::wire::udp;

impl Host<'_> {
    /// Intercepts until [`Host::unlisten`]. Returns the number of the listener.
    ///
    /// # Errors
    /// [`HostError::Tcp`]: another program intercepts already.
    pub fn intercept(&mut self) -> Result<u32, HostError> {
        let stack = &mut self.board.stack;
        let listener = stack.ip.tcp.intercept(tcp::Owner::BOARD)?;
        stack.ip.ip.intercept(true);
        stack.edge.listeners.insert(listener, Upper::Host(self.consumer));
        stack.edge.interceptor = Some(listener);
        Ok(listener)
    }

    /// Answers the SYN of a requested connection.
    ///
    /// # Errors
    /// [`HostError::Tcp`]: no such connection is requested, or no session is free.
    pub fn admit(&mut self, local: SocketAddr, remote: SocketAddr) -> Result<(), HostError> {
        let stack = &mut self.board.stack;
        Ok(stack.with_context(|ip, cx| ip.tcp.admit(local, remote, cx, &mut ip.from_tcp))?)
    }

    /// Refuses a requested connection, which resets it.
    ///
    /// # Errors
    /// [`HostError::Tcp`]: no such connection is requested, or there is no memory for the answer.
    pub fn refuse(&mut self, local: SocketAddr, remote: SocketAddr) -> Result<(), HostError> {
        let stack = &mut self.board.stack;
        Ok(stack.with_context(|ip, cx| ip.tcp.refuse(local, remote, cx, &mut ip.from_tcp))?)
    }

    /// Forgets a requested connection without an answer, as if its SYN had been lost.
    pub fn ignore(&mut self, local: SocketAddr, remote: SocketAddr) {
        self.board.stack.ip.tcp.ignore(local, remote);
    }

    /// Returns whether a connection exists, in any state.
    pub fn has_connection(&mut self, local: SocketAddr, remote: SocketAddr) -> bool {
        self.board.stack.ip.tcp.has_connection(local, remote)
    }

    /// Returns the next intercepted packet.
    pub fn intercepted(&mut self) -> Option<Intercepted> {
        self.board.stack.edge.intercepted.pop_front()
    }

    /// Answers an intercepted datagram from `remote` with the ICMP error that its port is unreachable. The
    /// error quotes only the datagram's headers.
    ///
    /// # Errors
    /// [`HostError::NoMemory`].
    pub fn refuse_datagram(&mut self, local: SocketAddr, remote: SocketAddr) -> Result<(), HostError> {
        let stack = &mut self.board.stack;
        let mut pdu = stack.memory.pdus.take().ok_or(HostError::NoMemory)?;
        let (source_port, target_port, total_bytes) = (remote.port(), local.port(), udp::HEADER_BYTES as u16);
        udp::Header { source_port, target_port, total_bytes }.write(pdu.push_head(udp::HEADER_BYTES));
        let (source, target, brief) = (remote.ip(), local.ip(), HeaderInfo::default());
        let delivery = Delivery { source, target, protocol: protocol::UDP, pdu, brief };
        stack.ip.ip.request_error(IcmpErrorKind::port_unreachable(local.is_ipv4()), delivery);
        stack.unsettled = true;
        Ok(())
    }

    /// Sends a datagram from any address and port.
    ///
    /// # Errors
    /// As for [`send_to`](Self::send_to).
    pub fn send_from(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        bytes: &[u8],
    ) -> Result<(), HostError> {
        let pdu = self.payload(remote.ip(), bytes)?;
        let stack = &mut self.board.stack;
        let datagram = stack.ip.udp.send_from(local, remote, pdu).map_err(|(_, refusal)| refusal)?;
        stack.ip.datagrams.push_back(datagram);
        stack.unsettled = true;
        Ok(())
    }

    /// Answers an echo request from `remote` to `local`.
    ///
    /// # Errors
    /// [`HostError::TooLong`] if the packet would exceed 65,535 bytes; [`HostError::NoMemory`].
    pub fn reply_to_echo(
        &mut self,
        (local, remote): (IpAddr, IpAddr),
        identifier: u16,
        sequence: u16,
        bytes: &[u8],
    ) -> Result<(), HostError> {
        let pdu = self.payload(remote, bytes)?;
        let stack = &mut self.board.stack;
        let message = stack.ip.icmp.reply(local, remote, identifier, sequence, pdu);
        stack.ip.messages.push_back(message);
        stack.unsettled = true;
        Ok(())
    }
}
