//! One endpoint of an FTAM association, as a driver sees it: the OSI stack, the file protocol machine and the
//! network service.
//!
//! Purpose    the driver handles bytes or frames, time, and closing; the user of the file service deals with
//!            the machine. This type connects the two over any network ([`NetworkService`]).
//! Operation  the driver passes input to [`End::arrive`]. The user works with [`End::machine`], within
//!            [`End::room`]. Then [`End::settle`] carries the user's requests down, and the driver fetches
//!            the output. `settle` contains the only loop that runs until no layer has output; the layers
//!            below run in steps.
//! Steps      [`End::step_up`] handles only one unit, for a driver whose processor is shared or modelled.
//! Limits     [`End::room`] lets the user queue up to [`OUTGOING_BYTES_MAX`], which only the last data
//!            element may exceed.

use super::below::NetworkService;
use super::files::Files;
use super::layers::StackConfig;
use super::line::Line;
use super::meter::{Meter, Task};
use super::stream::{ConnectionAction, Stream};
use crate::ftam::Machine;
use crate::network;
use crate::network::Origin;
use crate::wire::tpkt;
use kiban_base::Malformed;
use kiban_base::{Bytes, Instant, Rope, RopeQueue};

/// Maximum number of bytes waiting to be sent; above it, [`End::room`] returns 0.
pub const OUTGOING_BYTES_MAX: usize = 256 << 10;

/// One endpoint of an association.
#[derive(Debug)]
pub struct End<B = Stream> {
    files: Files,
    below: B,
}

impl<B: NetworkService> End<B> {
    /// Creates an endpoint without an association; use [`End::machine`] to establish one.
    pub fn over(below: B, machine: Machine, stack: &StackConfig) -> End<B> {
        End { files: Files::new(machine, stack), below }
    }

    /// Returns the file protocol machine, for its user. [`End::settle`] sends the user's requests.
    pub fn machine(&mut self) -> &mut Machine {
        self.files.machine()
    }

    /// Returns how many bytes of contents the user may send now.
    pub fn room(&self) -> usize {
        OUTGOING_BYTES_MAX.saturating_sub(self.below.waiting_bytes())
    }

    /// Passes one unit from the network, if there is one, up to the machine. Returns true if there was one.
    pub fn step_up(&mut self, now: Instant, meter: &mut impl Meter) -> bool {
        let Some(indication) = self.below.poll(now) else { return false };
        let bytes = if let network::Indication::Data(unit) = &indication { unit.len() } else { 0 };
        meter.turn_to(Task::Lower, bytes);
        self.raise(indication, now, meter);
        true
    }

    /// Handles expired timers, and carries the machine's requests down. Returns true if any output has
    /// reached the network service.
    pub fn settle(&mut self, now: Instant, meter: &mut impl Meter) -> bool {
        if self.deadline() <= now {
            self.below.settle(now);
            self.files.expire(now);
        }
        let mut moved = false;
        loop {
            if self.files.step(now, meter) {
                continue;
            }
            let Some(request) = self.files.poll_network() else { break };
            let bytes = if let network::Request::Data(unit) = &request { unit.len() } else { 0 };
            meter.turn_to(Task::Lower, bytes);
            self.below.request(request, now);
            moved = true;
        }
        moved |= self.below.push(now);
        meter.turn_to(Task::Host, 0);
        moved
    }

    /// Sets the maximum length of a received TSDU in bytes.
    pub fn set_tsdu_bytes_max(&mut self, bytes: usize) {
        self.files.set_tsdu_bytes_max(bytes);
    }

    /// Returns when [`End::settle`] must be called even if no input arrives.
    pub fn deadline(&self) -> Instant {
        self.files.deadline().min(self.below.deadline())
    }

    /// Returns the layers, for inspection.
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// Returns the network service.
    pub fn below(&self) -> &B {
        &self.below
    }

    /// Returns the network service, for the driver.
    pub fn below_mut(&mut self) -> &mut B {
        &mut self.below
    }

    fn rise_all(&mut self, now: Instant, meter: &mut impl Meter) {
        while let Some(indication) = self.below.poll(now) {
            self.files.arrive(indication, now, meter);
            while self.files.step(now, meter) {}
        }
        self.settle(now, meter);
    }

    fn raise(&mut self, indication: network::Indication, now: Instant, meter: &mut impl Meter) {
        self.files.arrive(indication, now, meter);
        self.settle(now, meter);
    }
}

impl End<Stream> {
    /// Creates an endpoint over a byte stream, without an association; use [`End::machine`] to establish one.
    pub fn new(machine: Machine, stack: &StackConfig) -> End {
        // TPKT accepts TPDUs of any length; the transport layer checks them against the negotiated size.
        End::over(Stream::new(tpkt::TPDU_BYTES_MAX), machine, stack)
    }

    /// Reports that the connection below is established.
    pub fn connected(&mut self, now: Instant, meter: &mut impl Meter) {
        let indication = self.below.connected();
        self.raise(indication, now, meter);
    }

    /// Handles received bytes.
    pub fn arrive(&mut self, bytes: Bytes, now: Instant, meter: &mut impl Meter) {
        meter.turn_to(Task::Lower, bytes.len());
        self.below.arrive(bytes);
        self.rise_all(now, meter);
    }

    /// Reports that the connection below has ended.
    pub fn ended(&mut self, origin: Origin, now: Instant, meter: &mut impl Meter) {
        if let Some(indication) = self.below.ended(origin) {
            self.raise(indication, now, meter);
        }
    }

    /// Returns the bytes to be sent; the driver takes them from the front.
    pub fn outgoing(&mut self) -> &mut RopeQueue {
        self.below.outgoing()
    }

    /// Returns what the driver must do with the connection.
    pub fn connection_action(&self) -> ConnectionAction {
        self.below.connection_action()
    }

    /// Returns the TPKT rule that the peer broke, if any.
    pub fn broken(&self) -> Option<Malformed> {
        self.below.broken()
    }
}

impl End<Line> {
    /// Handles a received frame, without flags and FCS.
    pub fn arrive_frame(&mut self, frame: Rope, now: Instant, meter: &mut impl Meter) {
        meter.turn_to(Task::Lower, frame.len());
        self.below.arrive(frame, now);
        self.rise_all(now, meter);
    }

    /// Returns the next frame to send; call it when the line has room for one.
    pub fn poll_frame(&mut self, now: Instant) -> Option<Rope> {
        self.below.push(now);
        self.below.poll_frame(now)
    }
}
