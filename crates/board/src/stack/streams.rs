//! Calls on TCP streams, for the layers above the edge: programs (through [`Host`](crate::Host)) and the RDMA
//! NIC.

use super::machine::Stack;
use crate::edge::{Edge, StreamId, Upper};
use crate::error::HostError;
use alloc::vec::Vec;
use core::net::SocketAddr;
use kiban_base::{Page, SharedBytes, Slice};
use kiban_tcpip::tcp;

impl Stack {
    /// Listens on `local` for `upper`. Returns the listener's number.
    pub(crate) fn listen(
        &mut self,
        upper: Upper,
        owner: tcp::Owner,
        local: SocketAddr,
        v6_only: bool,
    ) -> Result<u32, HostError> {
        let listener = self.ip.tcp.listen_for(owner, local, v6_only)?;
        self.edge.listeners.insert(listener, upper);
        Ok(listener)
    }

    /// Stops listening. Streams that the listener accepted stay open.
    pub(crate) fn unlisten(&mut self, listener: u32) -> Result<(), HostError> {
        self.edge.listeners.remove(&listener);
        if self.edge.interceptor == Some(listener) {
            self.edge.interceptor = None;
            self.edge.intercepted.clear();
            self.ip.ip.intercept(false);
        }
        let known = self.with_context(|ip, cx| ip.tcp.unlisten(listener, cx, &mut ip.from_tcp));
        if known { Ok(()) } else { Err(HostError::UnknownListener) }
    }

    /// Opens a stream for `upper`. Without a local address, or with an unspecified one, the route to `remote`
    /// determines it; port 0 means any port (RFC 9293 §3.9.1.1, MUST-43).
    pub(crate) fn open(
        &mut self,
        upper: Upper,
        owner: tcp::Owner,
        local: Option<SocketAddr>,
        remote: SocketAddr,
    ) -> Result<StreamId, HostError> {
        let ip = &self.ip.ip;
        let mut local = local.unwrap_or(SocketAddr::from(([0; 4], 0)));
        if local.ip().is_unspecified() {
            local.set_ip(ip.source_for(remote.ip()).ok_or(HostError::NoRoute)?);
        }
        let is_ours = ip.addresses().any(|address| address == local.ip());
        if !(is_ours || self.edge.is_interceptor(upper)) || ip.is_for_many(remote.ip()) {
            return Err(tcp::Refusal::BadAddress.into());
        }
        let tx_queue = self.tx_queue_to(remote.ip());
        let session = self.with_context(|ip, cx| ip.tcp.open_for(owner, local, remote, tx_queue, cx))?;
        Ok(self.edge.add(upper, session, false))
    }

    /// Opens a stream with TCP Fast Open (RFC 7413). Returns whether the server has granted a cookie before;
    /// then the SYN waits for the first write.
    pub(crate) fn open_fast(
        &mut self,
        upper: Upper,
        owner: tcp::Owner,
        local: Option<SocketAddr>,
        remote: SocketAddr,
    ) -> Result<(StreamId, bool), HostError> {
        let id = self.open(upper, owner, local, remote)?;
        let (session, now) = (self.session(id)?, self.now);
        Ok((id, self.ip.tcp.offer_fast_open(session, now)))
    }

    /// Opens a stream whose first data is `bytes`, which leaves in the SYN if the server has granted a Fast
    /// Open cookie (RFC 7413). Returns how much of `bytes` was taken.
    pub(crate) fn open_with_data(
        &mut self,
        upper: Upper,
        local: Option<SocketAddr>,
        remote: SocketAddr,
        bytes: &[u8],
    ) -> Result<(StreamId, usize), HostError> {
        let (id, _) = self.open_fast(upper, tcp::Owner::BOARD, local, remote)?;
        Ok((id, self.write_before_syn(id, bytes)?))
    }

    /// Writes the data that a SYN may carry, as much as fits, and lets the SYN leave.
    fn write_before_syn(&mut self, id: StreamId, bytes: &[u8]) -> Result<usize, HostError> {
        let written = self.write_by(id, bytes.len(), usize::MAX, |page, from, count| {
            page.append(&bytes[from..from + count]).expect("the page has room")
        })?;
        if written == 0 {
            let session = self.session(id)?;
            self.ip.tcp.release_syn(session);
            self.unsettled = true;
        }
        Ok(written)
    }

    /// Returns an error if the host may not write to a stream.
    #[inline]
    fn check_writable(&mut self, id: StreamId) -> Result<(), HostError> {
        let stream = self.edge.stream(id).ok_or(HostError::UnknownStream)?;
        if !stream.open || stream.ended {
            return Err(HostError::NotOpen);
        }
        if stream.finished {
            return Err(HostError::Tcp(tcp::Refusal::Finished));
        }
        Ok(())
    }

    /// Writes as much of `bytes` as fits, and returns how much. After a partial write, a completion reports
    /// when there is room.
    #[inline]
    pub(crate) fn write(&mut self, id: StreamId, bytes: &[u8]) -> Result<usize, HostError> {
        if let Some(stream) = self.edge.stream(id).filter(|stream| !stream.open)
            && self.ip.tcp.syn_waits(stream.session)
        {
            return self.write_before_syn(id, bytes);
        }
        let Some(chunk) = self.ip.tcp.config().copy_chunk_bytes else {
            return self.write_up_to(id, bytes, usize::MAX);
        };
        // Write piece by piece, so that TCP can send each piece before the next one is copied.
        let mut written = 0;
        loop {
            let taken = self.write_up_to(id, &bytes[written..], chunk.max(1) as usize)?;
            written += taken;
            if taken == 0 || written == bytes.len() {
                return Ok(written);
            }
            self.settle();
            // Set this again after `settle`, because the NICs have not been settled yet.
            self.unsettled = true;
        }
    }

    /// Writes bytes that another process may change concurrently: each is read once.
    pub(crate) fn write_shared(&mut self, id: StreamId, bytes: SharedBytes<'_>) -> Result<usize, HostError> {
        if self.ip.tcp.config().copy_chunk_bytes.is_some() {
            let mut own = Vec::new();
            bytes.append_to(&mut own);
            return self.write(id, &own);
        }
        self.check_writable(id)?;
        self.write_by(id, bytes.len(), usize::MAX, |page, from, count| {
            page.append_shared(bytes.part(from, count)).expect("the page has room")
        })
    }

    /// Writes at most `most` bytes from the front of `bytes`.
    fn write_up_to(&mut self, id: StreamId, bytes: &[u8], most: usize) -> Result<usize, HostError> {
        self.check_writable(id)?;
        self.write_by(id, bytes.len(), most, |page, from, count| {
            page.append(&bytes[from..from + count]).expect("the page has room")
        })
    }

    /// Writes at most `most` bytes; `put` copies as many bytes into a page as fit.
    #[inline]
    fn write_by(
        &mut self,
        id: StreamId,
        length: usize,
        most: usize,
        put: impl Fn(&mut Page, usize, usize) -> Slice,
    ) -> Result<usize, HostError> {
        let Stack { edge, memory, copies, ip, unsettled, .. } = self;
        let (others_wait, is_line_empty) = (edge.page_line.wants_pages(), edge.page_line.is_empty());
        let stream = edge.stream(id).ok_or(HostError::UnknownStream)?;
        // A writer that was given a page has waited in the queue already, so it need not yield again.
        let yields = stream.page.is_none() && !is_line_empty && ip.tcp.must_wait_for_share(stream.session);
        let mut writer = ip.tcp.writer(stream.session)?;
        let room = if yields { 0 } else { writer.room_for(length).min(most) };
        let grain = writer.grain();
        let mut written = 0;
        let mut out_of_pages = false;
        while written < room {
            if stream.page.as_ref().is_none_or(|page| page.room() == 0) {
                // Queued writers come before a new one: when memory is short, pages are given out one by one
                // in turn.
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
        copies.host_in_bytes += written as u64;
        // A full page is freed together with the last of its slices.
        if stream.page.as_ref().is_some_and(|page| page.room() == 0) {
            stream.page = None;
        }
        if written < length.min(most) {
            wait_for_room(edge, &mut writer, id, out_of_pages, written);
        }
        *unsettled |= written > 0 || out_of_pages;
        Ok(written)
    }

    /// Writes at most `most` bytes, which `source` puts into the front of these parts of pages. Returns
    /// `None`, without calling `source`, if there is no room; a completion reports when there is.
    pub(crate) fn write_from<E>(
        &mut self,
        id: StreamId,
        most: usize,
        source: impl FnOnce(&mut [&mut [u8]]) -> Result<usize, E>,
    ) -> Result<Option<Result<usize, E>>, HostError> {
        self.check_writable(id)?;
        let Stack { edge, memory, copies, ip, unsettled, .. } = self;
        let (others_wait, is_line_empty) = (edge.page_line.wants_pages(), edge.page_line.is_empty());
        let stream = edge.stream(id).ok_or(HostError::UnknownStream)?;
        let yields = stream.page.is_none() && !is_line_empty && ip.tcp.must_wait_for_share(stream.session);
        let mut writer = ip.tcp.writer(stream.session)?;
        let room = if yields { 0 } else { writer.room_for(most).min(most) };
        let mut pages: Vec<Page> = Vec::new();
        let mut space = 0;
        while space < room {
            let page = stream.page.take().or_else(|| if others_wait { None } else { memory.transmit.take() });
            let Some(page) = page else { break };
            space += page.room();
            pages.push(page);
        }
        if pages.is_empty() {
            let out_of_pages = room > 0;
            wait_for_room(edge, &mut writer, id, out_of_pages, 0);
            *unsettled |= out_of_pages;
            return Ok(None);
        }
        let mut left = room;
        let mut parts: Vec<&mut [u8]> = Vec::with_capacity(pages.len());
        for page in &mut pages {
            let part = left.min(page.room());
            left -= part;
            parts.push(&mut page.unwritten()[..part]);
        }
        let count = match source(&mut parts) {
            Ok(count) => count,
            Err(error) => {
                // Keep the page that has been begun.
                stream.page = pages.into_iter().next().filter(|page| page.filled() > 0);
                return Ok(Some(Err(error)));
            }
        };
        let (grain, mut left) = (writer.grain(), count.min(room));
        for mut page in pages {
            while left > 0 && page.room() > 0 {
                if stream.grain_filled >= grain {
                    stream.grain_filled = 0;
                }
                let mut slice = page.commit(left.min(page.room()).min(grain - stream.grain_filled));
                slice.recompute_sum();
                left -= slice.len();
                stream.grain_filled += slice.len();
                writer.push(slice).expect("no more is written than there is room for");
            }
            // Pages without any of the data go back to the pool; a full one, with the last of its slices.
            if page.filled() > 0 && page.room() > 0 {
                stream.page = Some(page);
            }
        }
        copies.host_in_bytes += count as u64;
        *unsettled |= count > 0;
        Ok(Some(Ok(count)))
    }

    /// Copies received bytes into `target` and returns how many; zero if there are none now.
    pub(crate) fn read(&mut self, id: StreamId, target: &mut [u8]) -> Result<usize, HostError> {
        let mut count = 0;
        for slice in self.received(id)? {
            if count == target.len() {
                break;
            }
            let part = slice.len().min(target.len() - count);
            target[count..count + part].copy_from_slice(&slice.bytes()[..part]);
            count += part;
        }
        self.copies.host_out_bytes += count as u64;
        self.consume_received(id, count)?;
        Ok(count)
    }

    /// Returns the received bytes that have not been consumed.
    pub(crate) fn received(&mut self, id: StreamId) -> Result<impl Iterator<Item = &Slice>, HostError> {
        Ok(self.edge.stream(id).ok_or(HostError::UnknownStream)?.received.iter())
    }

    /// Consumes received bytes, at most as many as there are.
    pub(crate) fn consume_received(&mut self, id: StreamId, count: usize) -> Result<(), HostError> {
        let Stack { edge, memory, .. } = self;
        let stream = edge.stream(id).ok_or(HostError::UnknownStream)?;
        let mut left = count;
        while let Some(front) = stream.received.front_mut().filter(|_| left > 0) {
            let part = front.len().min(left);
            left -= part;
            if part == front.len() {
                stream.received.pop_front().into_iter().for_each(|slice| memory.receive.give(slice));
                stream.dense = stream.dense.saturating_sub(1);
            } else {
                front.skip(part);
            }
        }
        self.taken(id, count - left);
        Ok(())
    }

    /// Returns the next received bytes as a slice of the board's page; dropping the slice frees it.
    pub(crate) fn take(&mut self, id: StreamId) -> Result<Option<Slice>, HostError> {
        let stream = self.edge.stream(id).ok_or(HostError::UnknownStream)?;
        let slice = stream.received.pop_front();
        stream.dense = stream.dense.saturating_sub(1);
        self.taken(id, slice.as_ref().map_or(0, Slice::len));
        Ok(slice)
    }

    /// Records that the host has consumed bytes; the window may open.
    fn taken(&mut self, id: StreamId, count: usize) {
        if count == 0 {
            return;
        }
        let Some(stream) = self.edge.stream(id) else { return };
        stream.received_bytes -= count;
        stream.urgent_ahead = stream.urgent_ahead.saturating_sub(count);
        if stream.received.is_empty() {
            stream.crumbs = None;
        }
        let session = stream.session;
        self.consume(session, count as u32);
    }

    /// Sends a FIN after the data written so far; reading continues.
    pub(crate) fn finish(&mut self, id: StreamId) -> Result<(), HostError> {
        let stream = self.edge.stream(id).ok_or(HostError::UnknownStream)?;
        stream.page = None;
        stream.finished = true;
        if stream.ended {
            return Ok(());
        }
        let session = stream.session;
        self.unsettled = true;
        Ok(self.ip.tcp.finish(session)?)
    }

    /// Closes a stream, and frees its number. Written data is still sent, and data that arrives afterwards
    /// causes a reset. If the stream is not open yet, or received data has not been read, it is aborted.
    pub(crate) fn close(&mut self, id: StreamId) -> Result<(), HostError> {
        let stream = self.edge.stream(id).ok_or(HostError::UnknownStream)?;
        let (session, ended) = (stream.session, stream.ended);
        stream.received.clear();
        stream.crumbs = None;
        stream.page = None;
        stream.closed = true;
        if ended {
            self.edge.remove(id);
            return Ok(());
        }
        Ok(self.with_context(|ip, cx| ip.tcp.close(session, cx, &mut ip.from_tcp))?)
    }

    /// Aborts a stream, which resets the peer.
    pub(crate) fn abort_stream(&mut self, id: StreamId) -> Result<(), HostError> {
        let stream = self.edge.stream(id).ok_or(HostError::UnknownStream)?;
        let (session, ended) = (stream.session, stream.ended);
        // Remove the stream now, because the session's number may be reused before the session's end is
        // reported.
        self.edge.remove(id);
        if !ended {
            self.abort(session);
        }
        Ok(())
    }

    /// Returns the session of a stream.
    pub(crate) fn session(&mut self, id: StreamId) -> Result<tcp::SessionId, HostError> {
        Ok(self.edge.stream(id).ok_or(HostError::UnknownStream)?.session)
    }
}

/// Lets the writer of a stream wait for room after `written` bytes, or for a page.
#[inline]
fn wait_for_room(
    edge: &mut Edge,
    writer: &mut tcp::Writer<'_>,
    id: StreamId,
    out_of_pages: bool,
    written: usize,
) {
    writer.wait_for_room();
    let Some(stream) = edge.stream(id).filter(|stream| !stream.waits_for_page) else { return };
    if out_of_pages {
        stream.waits_for_page = true;
        edge.page_line.push_for_page(id);
    } else if written == 0 && writer.is_empty() {
        // Nothing is in flight, so only memory that others release can wake this writer.
        stream.waits_for_page = true;
        edge.page_line.push(id);
    }
}
