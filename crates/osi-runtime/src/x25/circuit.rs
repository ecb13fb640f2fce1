//! One end of a call, on a stream in the format of XOT.
//!
//! Purpose    a program's end of a circuit: it requests and hears what the packet layer does
//!            ([`kiban_osi::x25::Request`] and [`kiban_osi::x25::Indication`]), and never sees packets.
//! Progress   bytes move only while [`Circuit::next`] is pending, so a program waits for it together with its
//!            own events.
//! Limits     at most [`WAITING_BYTES_MAX`] bytes wait for the stream, besides the packet layer's own queue.

use super::BoxedStream;
use crate::ropes::poll_write;
use bytes::BytesMut;
use kiban_base::{Instant, Rope, RopeQueue};
use kiban_os::Clock;
use kiban_osi::x25::xot::{CHANNEL, Xot};
use kiban_osi::x25::{Config, Indication, Misuse, Request};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

/// Maximum number of bytes of packets that wait for the stream.
const WAITING_BYTES_MAX: usize = 64 << 10;
/// Size of a read in bytes.
pub(super) const READ_BYTES: usize = 16 << 10;
/// How long [`Circuit::finish`] waits for a peer that does not read.
const FINISH_TIMEOUT: Duration = Duration::from_secs(10);

/// One end of a call.
pub struct Circuit {
    xot: Xot,
    stream: BoxedStream,
    buffer: BytesMut,
    packets: RopeQueue,
    clock: Clock,
    is_closed: bool,
}

/// What happened to the stream.
enum Step {
    Written,
    Read,
    Closed,
}

impl Circuit {
    /// Creates the end that calls, with [`Request::Call`].
    pub fn calling(stream: BoxedStream, config: Config) -> Circuit {
        Circuit::new(stream, Xot::calling(config))
    }

    /// Creates the end that is called.
    pub fn called(stream: BoxedStream, config: Config) -> Circuit {
        Circuit::new(stream, Xot::called(config))
    }

    fn new(stream: BoxedStream, xot: Xot) -> Circuit {
        let (buffer, packets) = (BytesMut::new(), RopeQueue::new());
        Circuit { xot, stream, buffer, packets, clock: Clock::new(), is_closed: false }
    }

    /// Makes a request; its channel is [`CHANNEL`].
    ///
    /// # Errors
    /// Same as for [`Xot::request`].
    pub fn request(&mut self, request: Request) -> Result<(), Misuse> {
        self.xot.request(request, self.clock.now())
    }

    /// Returns the number of bytes for which there is room, or 0 while no data can be sent.
    pub fn room(&self) -> usize {
        self.xot.packet_layer().room(CHANNEL)
    }

    /// Returns whether everything sent is acknowledged.
    pub fn is_quiet(&self) -> bool {
        self.packets.is_empty() && self.xot.packet_layer().is_quiet(CHANNEL)
    }

    /// Returns the packet size in the direction of the peer, once the call is established.
    pub fn packet_bytes(&self) -> Option<usize> {
        self.xot.packet_layer().sizes(CHANNEL).map(|sizes| usize::from(sizes.packet_bytes_out))
    }

    /// Waits for the next indication. After the stream has ended, returns [`Indication::Down`]. Cancel-safe:
    /// nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> Indication {
        loop {
            if let Some(indication) = self.advance().await {
                return indication;
            }
        }
    }

    /// Moves bytes until something has changed; returns an indication if there is one. Cancel-safe.
    pub async fn advance(&mut self) -> Option<Indication> {
        self.advance_holding(false).await
    }

    /// Same as [`Circuit::advance`]; if `holds_data`, leaves data in the packet layer, whose window then
    /// stops the peer. Once the end or the reset of the circuit is queued, data is returned in any case.
    pub async fn advance_holding(&mut self, holds_data: bool) -> Option<Indication> {
        let is_held = |indication: &Indication| holds_data && matches!(indication, Indication::Data { .. });
        if let Some(place) = self.xot.packet_layer().next_up(is_held) {
            return self.xot.poll_up_at(place);
        }
        if self.is_closed {
            return Some(Indication::Down);
        }
        while self.packets.len() < WAITING_BYTES_MAX {
            let Some(packet) = self.xot.poll_down() else { break };
            self.packets.push(packet);
        }
        if self.xot.is_broken() || (self.xot.refusal().is_some() && self.packets.is_empty()) {
            self.close();
            return None;
        }
        let deadline = self.xot.deadline();
        let patience = deadline.since(self.clock.now());
        let step = tokio::select! {
            step = self.step() => Some(step),
            () = tokio::time::sleep(patience), if deadline != Instant::NEVER => None,
        };
        let now = self.clock.now();
        match step {
            Some(Step::Written) => {}
            Some(Step::Read) => {
                let arrived = received(&mut self.buffer);
                self.xot.arrive(arrived, now);
            }
            Some(Step::Closed) => self.close(),
            None => self.xot.settle(now),
        }
        None
    }

    /// Ends the stream after everything has been written, such as the confirmation of a clear. A peer that
    /// does not read is given up after ten seconds.
    pub async fn finish(self) {
        // The rest is lost.
        let _ = tokio::time::timeout(FINISH_TIMEOUT, self.write_rest()).await;
    }

    async fn write_rest(mut self) {
        use tokio::io::AsyncWriteExt;
        while let Some(packet) = self.xot.poll_down() {
            self.packets.push(packet);
        }
        while let Some(packet) = self.packets.pop() {
            if self.stream.write_all(&packet.to_vec()).await.is_err() {
                return;
            }
        }
        // The peer may have closed the stream first.
        let _ = self.stream.shutdown().await;
    }

    async fn step(&mut self) -> Step {
        let (stream, packets, buffer) = (&mut self.stream, &mut self.packets, &mut self.buffer);
        poll_fn(|cx| {
            if !packets.is_empty()
                && let Poll::Ready(written) = poll_write(cx, stream, packets)
            {
                return Poll::Ready(if written.is_ok() { Step::Written } else { Step::Closed });
            }
            buffer.reserve(READ_BYTES);
            tokio_util::io::poll_read_buf(Pin::new(&mut *stream), cx, buffer).map(|read| match read {
                Ok(count) if count > 0 => Step::Read,
                _ => Step::Closed,
            })
        })
        .await
    }

    fn close(&mut self) {
        self.is_closed = true;
        self.xot.closed(self.clock.now());
        self.packets.clear();
    }
}

/// Takes what was read into a buffer of [`READ_BYTES`]. A short read is copied, because the packet layer
/// keeps incomplete units by reference, and each would keep its whole buffer.
pub(super) fn received(buffer: &mut BytesMut) -> Rope {
    if buffer.len() < READ_BYTES / 4 {
        let copied = Rope::copied(buffer);
        buffer.clear();
        copied
    } else {
        buffer.split().freeze().into()
    }
}
