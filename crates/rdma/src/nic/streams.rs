//! Connections over byte streams: opening, arriving, serving and closing.

use super::connection::{CmEvent, ConnectError, OpenError, Request};
use super::device::Nic;
use super::end::Transport;
use crate::iwarp::mpa::{self};
use crate::iwarp::stream::{self, Stream};
use crate::rnic::{Rnic, StreamAction};
use alloc::boxed::Box;
use core::cmp::Reverse;
use kiban_base::Instant;

impl Nic {
    /// Begins to connect a queue pair over a byte stream, and returns the connection's end. The request is
    /// queued in the stream.
    ///
    /// # Errors
    /// The queue pair cannot be connected; the private data is too long; there are too many ends.
    pub fn open(
        &mut self,
        config: &mpa::Config,
        qp: u32,
        depths: (u16, u16),
        private_data: &[u8],
        now: Instant,
    ) -> Result<u32, OpenError> {
        self.check_free(qp)?;
        let stream = Stream::initiate(config, qp, depths, private_data).map_err(OpenError::PrivateData)?;
        let end =
            self.add(Transport::Stream(Box::new(stream)), Some(qp), None, now).ok_or(OpenError::TooMany)?;
        self.schedule(end);
        Ok(end)
    }

    /// Creates an end for a byte stream accepted by a listener. Returns `None` if there are too many.
    pub fn incoming(&mut self, config: &mpa::Config, listener: u32, now: Instant) -> Option<u32> {
        self.make_room();
        let end =
            self.add(Transport::Stream(Box::new(Stream::respond(config))), None, Some(listener), now)?;
        self.waiting.silent.push_back(end);
        Some(end)
    }

    /// Drops waiting ends, oldest first, until there is room for another.
    pub(super) fn make_room(&mut self) {
        while self.waiting.len() >= self.waiting_max.max(1) && self.evict_oldest() {}
    }

    /// Gives up one waiting end because another resource is scarce. Returns whether there was one.
    pub fn evict_oldest(&mut self) -> bool {
        while let Some(oldest) = self.waiting.oldest() {
            if self.ends.get(oldest).is_some_and(|end| !end.is_established && end.qp.is_none()) {
                self.fail(oldest, ConnectError::Timeout);
                return true;
            }
        }
        false
    }

    /// Returns an end's stream and the core, which a driver needs to move bytes.
    #[inline]
    pub fn stream(&mut self, end: u32) -> Option<(&mut Stream, &mut Rnic)> {
        match &mut self.ends.get_mut(end)?.below {
            Transport::Stream(stream) => Some((stream, &mut self.core)),
            _ => None,
        }
    }

    /// Processes bytes received for an end.
    pub fn arrive(&mut self, end: u32, bytes: &[u8], now: Instant) {
        let Some((stream, core)) = self.stream(end) else { return };
        stream.arrive(core, bytes);
        if let Some(event) = stream.poll() {
            self.on_stream_event(end, event, now);
        }
    }

    pub(super) fn on_stream_event(&mut self, number: u32, event: stream::StreamEvent, now: Instant) {
        let Some(end) = self.ends.get_mut(number) else { return };
        match event {
            stream::StreamEvent::Asked { private_data, depths, extensions } => {
                end.until = now + self.answer_timeout;
                self.waiting.ask(number);
                self.timers.push(Reverse((end.until, number)));
                let listener = end.listener.unwrap_or(0);
                let requested = Request { end: number, listener, private_data, depths, extensions };
                self.events.push_back(CmEvent::ConnectRequest(requested));
            }
            stream::StreamEvent::Connected { private_data } => {
                end.is_established = true;
                self.events.push_back(CmEvent::Connected { end: number, private_data });
            }
            stream::StreamEvent::Rejected { private_data } => {
                self.fail(number, ConnectError::Rejected(private_data))
            }
            stream::StreamEvent::Failed(fault) => self.fail(number, ConnectError::Fault(fault)),
            stream::StreamEvent::Lost => self.fail(number, ConnectError::Lost),
        }
    }

    /// Fails a connection that is not established: the host gets one event, and the transport ends after its
    /// last message, if there is one.
    pub fn fail(&mut self, number: u32, error: ConnectError) {
        let Some(end) = self.ends.get_mut(number) else { return };
        if !core::mem::replace(&mut end.failed, true) {
            self.events.push_back(match end.listener {
                None => CmEvent::Failed { end: number, error },
                Some(_) => CmEvent::Withdrawn { end: number },
            });
        }
        if let Transport::Stream(stream) = &mut end.below {
            stream.give_up();
        }
        self.schedule(number);
    }

    /// Handles the close of an end's byte stream. `in_order` says whether the close was orderly.
    pub fn on_stream_closed(&mut self, number: u32, in_order: bool) {
        let Some(end) = self.ends.get_mut(number) else { return };
        let stood = end.is_established;
        if let Transport::Stream(stream) = &mut end.below {
            stream.on_closed(&mut self.core, in_order);
        }
        if !matches!(core::mem::replace(&mut end.below, Transport::Nothing), Transport::Nothing) {
            match stood {
                true => self.events.push_back(CmEvent::Gone { end: number }),
                false => self.fail(number, ConnectError::Lost),
            }
        }
    }

    /// Returns the next end that may have something to send.
    #[inline]
    pub fn next_to_serve(&mut self) -> Option<u32> {
        if let Some(end) = self.tx_queue.pop_front() {
            if let Some(end) = self.ends.get_mut(end) {
                end.is_scheduled = false;
            }
            return Some(end);
        }
        while let Some(qp) = self.core.pop_tx_queue() {
            if let Some(&end) = self.of_qp.get(&qp) {
                return Some(end);
            }
        }
        None
    }

    /// Returns the next end whose stream had stopped for lack of a posted receive and can now continue.
    #[inline]
    pub fn next_resumed(&mut self) -> Option<u32> {
        if let Some(end) = self.resumable.pop() {
            return Some(end);
        }
        while let Some(qp) = self.core.next_resumable() {
            let Some(&end) = self.of_qp.get(&qp) else { continue };
            if let Some((stream, core)) = self.stream(end) {
                stream.resume(core);
            }
            return Some(end);
        }
        None
    }

    /// Queues an end for service.
    pub fn schedule(&mut self, number: u32) {
        if let Some(end) = self.ends.get_mut(number)
            && !end.is_scheduled
        {
            end.is_scheduled = true;
            self.tx_queue.push_back(number);
        }
    }

    /// Returns what the byte stream must do after the current burst has been sent.
    #[inline]
    pub fn stream_action(&self, end: u32) -> StreamAction {
        match self.ends.get(end).map(|end| &end.below) {
            Some(Transport::Stream(stream)) => stream.action(&self.core),
            _ => StreamAction::Abort,
        }
    }
}
