//! The host edge: what an application asks of the board.
//!
//! Goal      streams, datagrams and pings for whoever stands above the board, one copy of the payload at the most.
//! Down      `write` copies into content pages and forms the sum on the way (paper \[1\]: during the DMA from the
//!           host); slices end where segments will end. It takes what there is room for and says how much.
//! Up        `read` copies out of the pages that cells were gathered into; `take` hands a page's slice over as it is.
//!           Taking is what opens the window.
//! Refused   every call on something that is not there, or not any more, says why ([`Refused`]), and changes nothing.

use crate::board::Board;
use crate::edge::{Completion, Inbox, StreamId};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;
use kiban_ground::{Instant, Page, Pdu, SharedBytes, Slice};
use kiban_stack::tcp;
use kiban_stack::udp::{self, SocketId};
use kiban_stack::vi;
use kiban_wire::atm::{PTI_OAM_END_TO_END, PTI_OAM_SEGMENT};

/// Why the board did not do what the host asked. Nothing has changed then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// No such stream: never opened, or closed.
    UnknownStream,
    /// The stream is not open yet, or has ended.
    NotOpen,
    /// No such listener.
    UnknownListener,
    /// There is no route to that address.
    NoRoute,
    /// The payload does not fit the longest packet.
    TooLong,
    /// There is no memory now: try again after a completion.
    NoMemory,
    /// There is no such circuit, or its port has no cells.
    NoCircuit,
    /// What was asked for is under way already: wait for its completion.
    Busy,
    /// TCP refused, and why.
    Tcp(tcp::Refusal),
    /// UDP refused, and why.
    Udp(udp::Refusal),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::UnknownStream => f.write_str("no such stream: it was never opened, or has been closed"),
            Refused::NotOpen => {
                f.write_str("the stream is not open: wait for its completion, or open another")
            }
            Refused::UnknownListener => {
                f.write_str("no such listener: it was never made, or has been closed")
            }
            Refused::NoRoute => f.write_str("there is no route to that address: add one to the board"),
            Refused::TooLong => {
                f.write_str("the payload does not fit the longest packet there is: send less at once")
            }
            Refused::NoMemory => {
                f.write_str("no packet memory is free now: try again after the next completion")
            }
            Refused::NoCircuit => {
                f.write_str("no such circuit: give an ATM port and the number of its circuit")
            }
            Refused::Busy => {
                f.write_str("a loopback is under way on that circuit: wait until it has come back")
            }
            Refused::Tcp(refusal) => refusal.fmt(f),
            Refused::Udp(refusal) => refusal.fmt(f),
        }
    }
}

impl core::error::Error for Refused {}

impl From<tcp::Refusal> for Refused {
    fn from(refusal: tcp::Refusal) -> Refused {
        Refused::Tcp(refusal)
    }
}

impl From<udp::Refusal> for Refused {
    fn from(refusal: udp::Refusal) -> Refused {
        Refused::Udp(refusal)
    }
}

/// The board as its host sees it, at one moment.
pub struct Host<'a> {
    board: &'a mut Board,
}

impl<'a> Host<'a> {
    /// The view of those within the board.
    pub(crate) fn of(board: &'a mut Board) -> Host<'a> {
        Host { board }
    }

    pub(crate) fn board(&mut self) -> &mut Board {
        self.board
    }
}

impl Board {
    /// The host's view of the board, at the moment of the last input. Follow it with [`Board::poll`].
    pub fn host(&mut self) -> Host<'_> {
        self.told = false;
        Host { board: self }
    }
}

impl Host<'_> {
    /// The next thing that has happened.
    pub fn completion(&mut self) -> Option<Completion> {
        self.board.edge.completion()
    }

    /// The board's VI NIC; none without a port for it. Its calls are at the moment of the last input ([`Host::now`]).
    pub fn vi(&mut self) -> Option<&mut vi::Nic> {
        self.board.unsettled = true;
        self.board.vi.as_deref_mut()
    }

    /// The moment of the last input.
    pub fn now(&self) -> Instant {
        self.board.now
    }

    /// Whether the board is known as `address`.
    pub fn is_own(&self, address: IpAddr) -> bool {
        self.board.ip.ip.is_ours(address)
    }

    /// Listens on `local`; an unspecified address stands for every address of the board. The listener's number.
    pub fn listen(&mut self, local: SocketAddr) -> Result<u32, Refused> {
        self.listen_with(local, self.board.v6_only)
    }

    /// The same; `v6_only` says whether the unspecified IPv6 address stands for IPv6 alone. Peers have their true address.
    pub fn listen_with(&mut self, local: SocketAddr, v6_only: bool) -> Result<u32, Refused> {
        self.listen_for(tcp::Owner::BOARD, local, v6_only)
    }

    /// The same for an owner whose streams share memory and session numbers among themselves.
    pub fn listen_for(
        &mut self,
        owner: tcp::Owner,
        local: SocketAddr,
        v6_only: bool,
    ) -> Result<u32, Refused> {
        Ok(self.board.ip.tcp.listen_for(owner, local, v6_only)?)
    }

    /// An owner for a client that has come: no other has it.
    pub fn new_owner(&mut self) -> tcp::Owner {
        self.board.owners += 1;
        tcp::Owner::client(self.board.owners)
    }

    /// Listens no more. Streams that the listener made stay.
    pub fn unlisten(&mut self, listener: u32) -> Result<(), Refused> {
        let known = self.board.with_context(|ip, cx| ip.tcp.unlisten(listener, cx, &mut ip.from_tcp));
        if known { Ok(()) } else { Err(Refused::UnknownListener) }
    }

    /// Opens a stream to `remote`. [`Completion::Opened`] or [`Completion::Ended`] tells how it went.
    pub fn open(&mut self, remote: SocketAddr) -> Result<StreamId, Refused> {
        let source = self.board.ip.ip.source_for(remote.ip()).ok_or(Refused::NoRoute)?;
        self.open_from(SocketAddr::new(source, 0), remote)
    }

    /// The same for an owner whose streams share memory and session numbers among themselves; `local` as for
    /// [`open_from`](Self::open_from).
    pub fn open_for(
        &mut self,
        owner: tcp::Owner,
        local: Option<SocketAddr>,
        remote: SocketAddr,
    ) -> Result<StreamId, Refused> {
        let any =
            if remote.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { Ipv6Addr::UNSPECIFIED.into() };
        self.open_stream(owner, local.unwrap_or(SocketAddr::new(any, 0)), remote)
    }

    /// The same from an address of this board's and a port; an unspecified address: the one that leads there; port 0: one is chosen
    /// (RFC 9293 §3.9.1.1, MUST-43).
    pub fn open_from(&mut self, local: SocketAddr, remote: SocketAddr) -> Result<StreamId, Refused> {
        self.open_stream(tcp::Owner::BOARD, local, remote)
    }

    fn open_stream(
        &mut self,
        owner: tcp::Owner,
        mut local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<StreamId, Refused> {
        let ip = &self.board.ip.ip;
        if local.ip().is_unspecified() {
            local.set_ip(ip.source_for(remote.ip()).ok_or(Refused::NoRoute)?);
        }
        let is_ours = ip.addresses().any(|address| address == local.ip());
        if !is_ours || ip.is_for_many(remote.ip()) {
            return Err(tcp::Refusal::BadAddress.into());
        }
        let lane = self.board.lane_to(remote.ip());
        let session = self.board.with_context(|ip, cx| ip.tcp.open_for(owner, local, remote, lane, cx))?;
        Ok(self.board.edge.add(session, false))
    }

    /// Writes as much of `bytes` as there is room for: how many. After fewer than all, [`Completion::Writable`] comes.
    pub fn write(&mut self, id: StreamId, bytes: &[u8]) -> Result<usize, Refused> {
        let Some(chunk) = self.board.ip.tcp.config().copy_chunk_bytes else {
            return self.write_up_to(id, bytes, usize::MAX);
        };
        // TCP looks at every piece before the next one is there.
        let mut written = 0;
        loop {
            let taken = self.write_up_to(id, &bytes[written..], chunk.max(1) as usize)?;
            written += taken;
            if taken == 0 || written == bytes.len() {
                return Ok(written);
            }
            self.board.settle();
        }
    }

    /// The same of bytes that somebody else may change meanwhile: each is read once.
    pub fn write_shared(&mut self, id: StreamId, bytes: SharedBytes<'_>) -> Result<usize, Refused> {
        if self.board.ip.tcp.config().copy_chunk_bytes.is_some() {
            let mut own = Vec::new();
            bytes.append_to(&mut own);
            return self.write(id, &own);
        }
        self.write_by(id, bytes.len(), usize::MAX, |page, from, count| {
            page.append_shared(bytes.part(from, count)).expect("the page has room")
        })
    }

    /// Writes at most `most` bytes of the front of `bytes`.
    fn write_up_to(&mut self, id: StreamId, bytes: &[u8], most: usize) -> Result<usize, Refused> {
        self.write_by(id, bytes.len(), most, |page, from, count| {
            page.append(&bytes[from..from + count]).expect("the page has room")
        })
    }

    /// Writes at most `most` bytes of so many; `put` copies a run of them into a page that has room, as far as it has.
    #[inline]
    fn write_by(
        &mut self,
        id: StreamId,
        length: usize,
        most: usize,
        put: impl Fn(&mut Page, usize, usize) -> Slice,
    ) -> Result<usize, Refused> {
        let Board { edge, memory, copies, ip, unsettled, .. } = &mut *self.board;
        let (others_wait, is_line_empty) = (edge.page_line.wants_pages(), edge.page_line.is_empty());
        let stream = edge.stream(id).ok_or(Refused::UnknownStream)?;
        if !stream.open || stream.ended {
            return Err(Refused::NotOpen);
        }
        if stream.finished {
            return Err(Refused::Tcp(tcp::Refusal::Finished));
        }
        // Whoever was handed a page has had its turn in the line.
        let yields = stream.page.is_none() && !is_line_empty && ip.tcp.yields(stream.session);
        let mut writer = ip.tcp.writer(stream.session)?;
        let room = if yields { 0 } else { writer.room_for(length).min(most) };
        let grain = writer.grain();
        let mut written = 0;
        let mut out_of_pages = false;
        while written < room {
            if stream.page.as_ref().is_none_or(|page| page.room() == 0) {
                // Who waits for a page goes before who comes by: under pressure pages go round one by one.
                stream.page = if others_wait { None } else { memory.transmit.take() };
            }
            let Some(page) = stream.page.as_mut() else {
                out_of_pages = true;
                break;
            };
            if stream.grain_filled >= grain {
                stream.grain_filled = 0;
            }
            let count = (room - written).min(grain - stream.grain_filled);
            let slice = put(page, written, count);
            written += slice.len();
            stream.grain_filled += slice.len();
            writer.push(slice).expect("no more is written than there is room for");
        }
        let is_empty = writer.is_empty();
        copies.host_in_bytes += written as u64;
        // A full page goes home with the last of its slices.
        if stream.page.as_ref().is_some_and(|page| page.room() == 0) {
            stream.page = None;
        }
        if written < length.min(most) {
            stream.wants_room = true;
            if out_of_pages && !stream.waits_for_page {
                stream.waits_for_page = true;
                edge.page_line.push_for_page(id);
            } else if written == 0 && !stream.waits_for_page && is_empty {
                // Nothing is under way: only memory that others let go can wake it.
                stream.waits_for_page = true;
                edge.page_line.push(id);
            }
        }
        *unsettled |= written > 0 || out_of_pages;
        Ok(written)
    }

    /// Bytes that a `write` would take now, if pages are free.
    pub fn room(&mut self, id: StreamId) -> Result<usize, Refused> {
        let session = self.session(id)?;
        Ok(self.board.ip.tcp.room(session))
    }

    /// Bytes that wait to be read.
    pub fn readable(&mut self, id: StreamId) -> Result<usize, Refused> {
        Ok(self.board.edge.stream(id).ok_or(Refused::UnknownStream)?.received_bytes)
    }

    /// Copies received bytes into `target`: how many. Zero: nothing is here now.
    pub fn read(&mut self, id: StreamId, target: &mut [u8]) -> Result<usize, Refused> {
        let Board { edge, memory, .. } = &mut *self.board;
        let stream = edge.stream(id).ok_or(Refused::UnknownStream)?;
        let mut count = 0;
        while count < target.len() {
            let Some(front) = stream.received.front_mut() else { break };
            let part = front.len().min(target.len() - count);
            target[count..count + part].copy_from_slice(&front.bytes()[..part]);
            count += part;
            if part == front.len() {
                stream.received.pop_front().into_iter().for_each(|slice| memory.receive.give(slice));
                stream.dense = stream.dense.saturating_sub(1);
            } else {
                front.skip(part);
            }
        }
        self.board.copies.host_out_bytes += count as u64;
        self.taken(id, count);
        Ok(count)
    }

    /// Hands over the next received bytes as they lie in the board's pages; dropping the slice gives them back.
    pub fn take(&mut self, id: StreamId) -> Result<Option<Slice>, Refused> {
        let stream = self.board.edge.stream(id).ok_or(Refused::UnknownStream)?;
        let slice = stream.received.pop_front();
        stream.dense = stream.dense.saturating_sub(1);
        self.taken(id, slice.as_ref().map_or(0, Slice::len));
        Ok(slice)
    }

    /// Bytes left the stream: the window may open.
    fn taken(&mut self, id: StreamId, count: usize) {
        if count == 0 {
            return;
        }
        let Some(stream) = self.board.edge.stream(id) else { return };
        stream.received_bytes -= count;
        if stream.received.is_empty() {
            stream.crumbs = None;
        }
        let session = stream.session;
        self.board.consume(session, count as u32);
    }

    /// Everything that was written is urgent: segments say so until it is acknowledged (RFC 9293 §3.8.5).
    pub fn send_urgent(&mut self, id: StreamId) -> Result<(), Refused> {
        let session = self.session(id)?;
        self.board.unsettled = true;
        Ok(self.board.ip.tcp.send_urgent(session)?)
    }

    /// Sends no more on this stream; reading goes on.
    pub fn finish(&mut self, id: StreamId) -> Result<(), Refused> {
        let stream = self.board.edge.stream(id).ok_or(Refused::UnknownStream)?;
        stream.page = None;
        stream.finished = true;
        if stream.ended {
            return Ok(());
        }
        let session = stream.session;
        self.board.unsettled = true;
        Ok(self.board.ip.tcp.finish(session)?)
    }

    /// Closes a stream: what is written is still sent, what still comes resets it, the number is forgotten.
    pub fn close(&mut self, id: StreamId) -> Result<(), Refused> {
        let stream = self.board.edge.stream(id).ok_or(Refused::UnknownStream)?;
        let (session, ended, held) = (stream.session, stream.ended, stream.received_bytes);
        stream.received.clear();
        stream.crumbs = None;
        stream.page = None;
        stream.closed = true;
        if ended {
            self.board.edge.remove(id);
            return Ok(());
        }
        self.board.consume(session, held as u32);
        Ok(self.board.with_context(|ip, cx| ip.tcp.close(session, cx, &mut ip.from_tcp))?)
    }

    /// Ends a stream at once: the peer is reset.
    pub fn abort(&mut self, id: StreamId) -> Result<(), Refused> {
        let stream = self.board.edge.stream(id).ok_or(Refused::UnknownStream)?;
        let (session, ended) = (stream.session, stream.ended);
        // At once: the session's number may be given to another before its end is told.
        self.board.edge.remove(id);
        if !ended {
            self.board.abort(session);
        }
        Ok(())
    }

    /// How patient a stream is: after so much silence the peer is asked whether it lives (RFC 9293 §3.8.4), and for so
    /// long bytes may wait for their acknowledgement (§3.8.3); none: not at all, and as long as TCP's settings say.
    pub fn set_patience(
        &mut self,
        id: StreamId,
        keep_alive: Option<Duration>,
        user_timeout: Option<Duration>,
    ) -> Result<(), Refused> {
        let session = self.session(id)?;
        self.board.unsettled = true;
        Ok(self.board.ip.tcp.set_patience(session, keep_alive, user_timeout)?)
    }

    /// Which short segments of a stream wait, whatever TCP's settings say (RFC 9293 §3.7.4).
    pub fn set_nagle(&mut self, id: StreamId, nagle: tcp::Nagle) -> Result<(), Refused> {
        let session = self.session(id)?;
        self.board.unsettled = true;
        Ok(self.board.ip.tcp.set_nagle(session, nagle)?)
    }

    /// The differentiated services codepoint of a stream's packets from now on: six bits, more are left out (RFC 9293
    /// §3.9.2, RFC 2474 §3).
    pub fn set_dscp(&mut self, id: StreamId, dscp: u8) -> Result<(), Refused> {
        let session = self.session(id)?;
        Ok(self.board.ip.tcp.set_dscp(session, dscp)?)
    }

    /// What TCP knows about a stream at the moment of the last input, while it lives.
    pub fn info(&mut self, id: StreamId) -> Result<tcp::Info, Refused> {
        let session = self.session(id)?;
        let now = self.board.now;
        self.board.ip.tcp.info(session).map(|info| info.until(now)).ok_or(Refused::NotOpen)
    }

    // ---- Datagrams and pings ----------------------------------------------------------------------------------

    /// A UDP socket on `local`; an unspecified address stands for every address of the board.
    pub fn bind(&mut self, local: SocketAddr) -> Result<SocketId, Refused> {
        self.bind_with(local, self.board.v6_only)
    }

    /// The same; `v6_only` says whether the unspecified IPv6 address stands for IPv6 alone. Peers have their true address.
    pub fn bind_with(&mut self, local: SocketAddr, v6_only: bool) -> Result<SocketId, Refused> {
        let socket = self.board.ip.udp.bind_with(local, v6_only)?;
        self.board.edge.inboxes.push(Inbox { socket, datagrams: VecDeque::new() });
        Ok(socket)
    }

    /// Closes a socket; what waits in it is dropped.
    pub fn unbind(&mut self, socket: SocketId) -> Result<(), Refused> {
        self.board.ip.udp.close(socket)?;
        self.board.edge.inboxes.retain(|inbox| inbox.socket != socket);
        Ok(())
    }

    /// Sends a datagram. One that is longer than the way leaves in fragments.
    pub fn send_to(&mut self, socket: SocketId, remote: SocketAddr, bytes: &[u8]) -> Result<(), Refused> {
        self.board.ip.udp.local(socket)?;
        let source = self.board.ip.ip.source_for(remote.ip()).ok_or(Refused::NoRoute)?;
        let pdu = self.payload(remote.ip(), bytes)?;
        let datagram = self.board.ip.udp.send(socket, source, remote, pdu).map_err(|(_, refusal)| refusal)?;
        self.board.ip.datagrams.push_back(datagram);
        self.board.unsettled = true;
        Ok(())
    }

    /// Takes the next datagram of a socket: its sender, and how many bytes went into `target` (the rest is dropped).
    pub fn receive_from(
        &mut self,
        socket: SocketId,
        target: &mut [u8],
    ) -> Result<Option<(SocketAddr, usize)>, Refused> {
        self.board.ip.udp.local(socket)?;
        let inbox = self.board.edge.inboxes.iter_mut().find(|inbox| inbox.socket == socket);
        let Some((remote, pdu)) = inbox.and_then(|inbox| inbox.datagrams.pop_front()) else {
            return Ok(None);
        };
        let mut count = 0;
        for run in pdu.runs() {
            let part = run.len().min(target.len() - count);
            target[count..count + part].copy_from_slice(&run[..part]);
            count += part;
        }
        self.board.copies.host_out_bytes += count as u64;
        Ok(Some((remote, count)))
    }

    /// Sends an ICMP echo request with `bytes` of payload. [`Completion::EchoReply`] tells of the answer.
    pub fn ping(
        &mut self,
        target: IpAddr,
        identifier: u16,
        sequence: u16,
        bytes: &[u8],
    ) -> Result<(), Refused> {
        let source = self.board.ip.ip.source_for(target).ok_or(Refused::NoRoute)?;
        let pdu = self.payload(target, bytes)?;
        let message = self.board.ip.icmp.ping(source, target, identifier, sequence, pdu);
        self.board.ip.messages.push_back(message);
        self.board.unsettled = true;
        Ok(())
    }

    /// Sends an ATM ping: a loopback cell on a circuit of a port (F5 OAM, end to end). Its tag.
    pub fn cell_loopback(&mut self, port: usize, circuit: u32) -> Result<u32, Refused> {
        self.send_cell_loopback(port, circuit, PTI_OAM_END_TO_END)
    }

    /// The same of the circuit's first segment: the next point that ends one answers.
    pub fn segment_loopback(&mut self, port: usize, circuit: u32) -> Result<u32, Refused> {
        self.send_cell_loopback(port, circuit, PTI_OAM_SEGMENT)
    }

    fn send_cell_loopback(&mut self, port: usize, circuit: u32, pti: u8) -> Result<u32, Refused> {
        let tag = self.board.cell_loopback(port, circuit, pti);
        let tag = tag.ok_or(Refused::NoCircuit)?.ok_or(Refused::Busy)?;
        self.board.unsettled = true;
        Ok(tag)
    }

    /// The session of a stream.
    fn session(&mut self, id: StreamId) -> Result<tcp::SessionId, Refused> {
        Ok(self.board.edge.stream(id).ok_or(Refused::UnknownStream)?.session)
    }

    /// A PDU with `bytes` copied into content pages, if the longest packet holds them behind a header of 8 bytes (UDP and
    /// ICMP have such). IPv4 counts its own header, too; with IPv6 the checksum's length field is the bound.
    fn payload(&mut self, target: IpAddr, bytes: &[u8]) -> Result<Pdu, Refused> {
        let headers = if target.is_ipv4() { 28 } else { 8 };
        if bytes.len() + headers > usize::from(u16::MAX) {
            return Err(Refused::TooLong);
        }
        let Board { memory, copies, .. } = &mut *self.board;
        let mut pdu = memory.blocks.take().ok_or(Refused::NoMemory)?;
        let mut rest = bytes;
        while !rest.is_empty() {
            let slice =
                memory.transmit.take().and_then(|mut page| page.append(rest)).ok_or(Refused::NoMemory)?;
            rest = &rest[slice.len()..];
            pdu.push_body(slice).map_err(|_| Refused::TooLong)?;
        }
        copies.host_in_bytes += bytes.len() as u64;
        Ok(pdu)
    }
}

impl fmt::Debug for Host<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Host")
    }
}
