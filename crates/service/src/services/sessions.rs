//! The sessions of a service that listens at one address: admitted, ended and cut in one place.

use super::counters::ServiceCounters;
use super::slots::{SessionSlot, SessionSlots};
use kiban_base::Instant;
use kiban_board::{Host, Reason, StreamId};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// The sessions of a service, and its listener.
pub(super) struct Sessions<S> {
    local: SocketAddr,
    listener: Option<u32>,
    slots: SessionSlots,
    pub(super) open: BTreeMap<StreamId, S>,
}

impl<S> Sessions<S> {
    /// Returns the sessions of a service that will listen on `local`, at most `most` at a time.
    pub(super) fn new(local: SocketAddr, most: usize) -> Sessions<S> {
        Sessions { local, listener: None, slots: SessionSlots::new(most), open: BTreeMap::new() }
    }

    /// Starts to listen. Returns the address and the reason if the board refuses.
    pub(super) fn listen(&mut self, host: &mut Host<'_>) -> Result<(), String> {
        let listener = host.listen(self.local).map_err(|refused| format!("{}: {refused}", self.local))?;
        self.listener = Some(listener);
        Ok(())
    }

    /// Returns whether a number is that of the listener.
    pub(super) fn is_listener(&self, listener: u32) -> bool {
        self.listener == Some(listener)
    }

    /// Stops listening.
    pub(super) fn unlisten(&mut self, host: &mut Host<'_>) {
        if let Some(listener) = self.listener.take() {
            let _ = host.unlisten(listener);
        }
    }

    /// Sets the current time, which accounts record when sessions begin and end.
    pub(super) fn set_now(&self, now: Instant) {
        self.slots.set_now(now);
    }

    /// Takes a slot for a stream that a peer opened, and cuts the session that has to give it up, if any.
    /// Without a slot, resets the stream and returns `None`. `of` returns a session's slot, and the time at
    /// which data was last transferred.
    pub(super) fn admit(
        &mut self,
        stream: StreamId,
        remote: SocketAddr,
        of: impl Fn(&S) -> (&SessionSlot, Instant),
        counters: &mut ServiceCounters,
        host: &mut Host<'_>,
    ) -> Option<SessionSlot> {
        let sessions = self.open.iter().map(|(id, session)| {
            let (slot, moved_at) = of(session);
            (*id, slot, moved_at)
        });
        let Some((slot, displaced)) = self.slots.take(Some(remote.ip().into()), 0, sessions, host) else {
            counters.refused += 1;
            let _ = host.abort(stream);
            return None;
        };
        if let Some(displaced) = displaced {
            self.open.remove(&displaced);
            counters.aborted += 1;
            counters.displaced += 1;
            let _ = host.abort(displaced);
        }
        counters.accepted += 1;
        Some(slot)
    }

    /// Removes the session of a stream that has ended.
    pub(super) fn on_ended(
        &mut self,
        stream: StreamId,
        reason: Reason,
        counters: &mut ServiceCounters,
        host: &mut Host<'_>,
    ) {
        if self.open.remove(&stream).is_none() {
            return;
        }
        match reason {
            Reason::Closed => counters.ended += 1,
            _ => counters.aborted += 1,
        }
        let _ = host.close(stream);
    }

    /// Resets all streams.
    pub(super) fn cut(&mut self, counters: &mut ServiceCounters, host: &mut Host<'_>) {
        for stream in std::mem::take(&mut self.open).into_keys() {
            counters.aborted += 1;
            let _ = host.abort(stream);
        }
    }
}
