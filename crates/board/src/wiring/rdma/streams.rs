//! The NIC on streams of the board: events, reading, writing.

use super::nic::RdmaWiring;
use crate::edge::{Completion, StreamId};
use crate::stack::Stack;
use kiban_rdma::iwarp::stream::Chunk;
use kiban_rdma::nic::ConnectError;
use kiban_rdma::rnic::StreamAction;
use kiban_tcpip::tcp::Reason;

/// Returns why a stream could not be opened, if its end says so.
const fn why(reason: Reason) -> Option<ConnectError> {
    match reason {
        Reason::Refused | Reason::Unreachable => Some(ConnectError::Unreachable),
        Reason::TimedOut => Some(ConnectError::Timeout),
        Reason::Closed | Reason::Reset | Reason::Aborted => None,
    }
}

impl RdmaWiring {
    /// Handles the events of the NIC's streams, then reads and writes. Returns whether the NIC has events for
    /// its users.
    pub(crate) fn work(&mut self, stack: &mut Stack) -> bool {
        while let Some(event) = stack.edge.rdma_event() {
            self.on_event(event, stack);
        }
        self.pump(stack);
        self.has_events()
    }

    fn on_event(&mut self, event: Completion, stack: &mut Stack) {
        let (Completion::Accepted { stream, .. }
        | Completion::Opened { stream }
        | Completion::Writable { stream }
        | Completion::Readable { stream }
        | Completion::PeerFinished { stream }
        | Completion::Ended { stream, .. }) = event
        else {
            return;
        };
        if let Completion::Accepted { listener, .. } = event {
            match self.nic.incoming(&self.config, listener, stack.now) {
                Some(end) => self.add(end, stream),
                None => self.release_stream(stream, stack, false),
            }
        }
        // The event may have been queued before the NIC released the stream.
        let Some(&end) = self.ends.get(&stream) else { return };
        match event {
            Completion::Opened { .. } | Completion::Writable { .. } => self.nic.schedule(end),
            Completion::PeerFinished { .. } => {
                self.read(end, stream, stack);
                match self.nic.stream(end).is_some_and(|(stream, _)| stream.wants_bytes()) {
                    true => self.gone(end, stream, stack, true),
                    // Received data is not lost when the peer finishes.
                    false => drop(self.ended.insert(end)),
                }
            }
            Completion::Ended { reason, .. } => {
                self.read(end, stream, stack);
                if let (Some(error), false) = (why(reason), self.nic.is_established(end)) {
                    self.nic.fail(end, error);
                }
                self.gone(end, stream, stack, reason == Reason::Closed);
            }
            _ => self.read(end, stream, stack),
        }
    }

    /// Passes the received bytes of a stream to the NIC.
    fn read(&mut self, end: u32, stream: StreamId, stack: &mut Stack) {
        loop {
            if !self.nic.stream(end).is_some_and(|(stream, _)| stream.wants_bytes()) {
                return;
            }
            match stack.take(stream) {
                Ok(Some(slice)) => self.nic.arrive(end, slice.bytes(), stack.now),
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// Writes an endpoint's pending bytes, as far as its stream has room.
    fn write(&mut self, end: u32, stream: StreamId, stack: &mut Stack) {
        loop {
            let Some((mpa, core)) = self.nic.stream(end) else { return };
            if !mpa.fill(core) {
                break;
            }
            let (mut written, whole) = (0, mpa.unsent_bytes());
            for chunk in mpa.chunks() {
                let (taken, length) = match chunk {
                    Chunk::Own(bytes) => (stack.write(stream, bytes), bytes.len()),
                    Chunk::Memory(region) => {
                        let all = region.bytes(region.address(), region.len());
                        let taken = all.map_or(Ok(0), |bytes| stack.write_shared(stream, bytes));
                        (taken, region.len())
                    }
                };
                let taken = taken.unwrap_or(0);
                written += taken;
                if taken < length {
                    break;
                }
            }
            mpa.advance(core, written);
            if written < whole {
                // A completion reports when there is room again, or that the stream has ended.
                return;
            }
        }
        match self.nic.stream_action(end) {
            StreamAction::Open => {}
            StreamAction::Finish => {
                // This fails if the stream was finished before.
                let _ = stack.finish(stream);
            }
            StreamAction::Abort => {
                self.nic.on_stream_closed(end, false);
                self.forget_stream(end, stream);
                self.release_stream(stream, stack, false);
            }
        }
    }

    /// Handles the peer's FIN (`in_order`) or the loss of the connection.
    fn gone(&mut self, end: u32, stream: StreamId, stack: &mut Stack, in_order: bool) {
        self.nic.on_stream_closed(end, in_order);
        self.forget_stream(end, stream);
        self.release_stream(stream, stack, in_order);
    }

    /// Sends what an established end has to send, as far as its stream has room, and closes the stream. If a
    /// frame was sent only partly, the stream stays, and is aborted with its end.
    pub(super) fn close(&mut self, end: u32, stream: StreamId, stack: &mut Stack) {
        self.write(end, stream, stack);
        let is_whole = self.nic.stream(end).is_some_and(|(mpa, _)| mpa.unsent_bytes() == 0);
        if is_whole && self.streams.contains_key(&end) {
            // With unread data, closing would reset the connection (RFC 9293 §3.6.1, SHLD-3).
            while let Ok(Some(_)) = stack.take(stream) {}
            self.forget_stream(end, stream);
            self.release_stream(stream, stack, true);
        }
    }

    fn release_stream(&mut self, stream: StreamId, stack: &mut Stack, in_order: bool) {
        // This also frees a stream that has ended already.
        let _ = match in_order {
            true => stack.close(stream),
            false => stack.abort_stream(stream),
        };
    }

    /// Moves as many bytes as possible.
    fn pump(&mut self, stack: &mut Stack) {
        let now = stack.now;
        while let Some(datagram) = stack.edge.nic_datagram() {
            if let Some(roce) = &mut self.roce {
                roce.take(&datagram, &mut self.nic, stack);
            }
            if let Some(efe) = &mut self.efe {
                efe.take(&datagram, &mut self.nic, stack);
            }
        }
        if let Some(efe) = &mut self.efe {
            self.nic.pump(&mut efe.endpoint, &self.config, now);
        }
        if let Some(roce) = &mut self.roce {
            self.nic.pump_roce(&mut roce.port, now);
        }
        while let Some(end) = self.nic.next_resumed() {
            if let Some(&stream) = self.streams.get(&end) {
                self.read(end, stream, stack);
                self.nic.schedule(end);
                if self.ended.contains(&end)
                    && self.nic.stream(end).is_some_and(|(stream, _)| stream.wants_bytes())
                {
                    self.gone(end, stream, stack, true);
                }
            }
        }
        while let Some(end) = self.nic.next_to_serve() {
            if let Some(&stream) = self.streams.get(&end) {
                self.write(end, stream, stack);
            }
        }
        stack.datagram_waits = self.roce.as_mut().is_some_and(|roce| roce.send(&mut self.nic, stack));
        stack.datagram_waits |= self.efe.as_mut().is_some_and(|efe| efe.send(stack));
        self.nic.release_invalidated();
    }
}
