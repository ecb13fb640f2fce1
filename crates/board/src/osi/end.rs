//! One end of an association for files: the tower, the file protocol and what they stand on, as a driver holds them.
//!
//! Goal      a driver knows bytes or frames, time and when to close; the user of the file service knows the machine. This is
//!           between, whatever the network is ([`Below`]).
//! Turn      something comes ([`End::receive`]); the user works with [`End::machine`], within [`End::room`]; then
//!           [`End::settle`] carries what it asked down, where the driver fetches it.
//! Steps     [`End::rise`] takes one unit and no more, for a driver whose processor is shared or modelled.
//! Limits    [`OUTGOING_BYTES_MAX`] is what the user is given room for; a data element may exceed it by its own length.

use super::below::Below;
use super::files::Files;
use super::line::Line;
use super::meter::{Meter, Task};
use super::stream::{Stream, Wish};
use super::tower::TowerConfig;
use kiban_ground::{Bytes, Instant, Rope, RopeQueue};
use kiban_stack::osi::ftam::Machine;
use kiban_stack::osi::network::{self, Origin};
use kiban_wire::{Malformed, tpkt};

/// How many bytes may wait to be sent before the user gets no more room.
pub const OUTGOING_BYTES_MAX: usize = 256 << 10;

/// One end of an association.
#[derive(Debug)]
pub struct End<B = Stream> {
    files: Files,
    below: B,
}

impl<B: Below> End<B> {
    /// Without an association; whoever asks for one says so to the machine.
    pub fn over(below: B, machine: Machine, tower: &TowerConfig) -> End<B> {
        End { files: Files::new(machine, tower), below }
    }

    /// The file protocol's machine, for its user. What is asked of it leaves with [`End::settle`].
    pub fn machine(&mut self) -> &mut Machine {
        self.files.machine()
    }

    /// How many bytes of contents the user may ask to be sent now.
    pub fn room(&self) -> usize {
        OUTGOING_BYTES_MAX.saturating_sub(self.below.waiting_bytes())
    }

    /// Takes one unit of what the network has, if it has one, to the machine. True if there was one.
    pub fn rise(&mut self, now: Instant, meter: &mut impl Meter) -> bool {
        let Some(indication) = self.below.poll(now) else { return false };
        let bytes = if let network::Indication::Data(unit) = &indication { unit.len() } else { 0 };
        meter.turn_to(Task::Lower, bytes);
        self.raise(indication, now, meter);
        true
    }

    /// Carries what was asked of the machine down. True if anything has moved.
    pub fn settle(&mut self, now: Instant, meter: &mut impl Meter) -> bool {
        let mut moved = false;
        self.files.settle(now, meter);
        while let Some(request) = self.files.poll_network() {
            let bytes = if let network::Request::Data(unit) = &request { unit.len() } else { 0 };
            meter.turn_to(Task::Lower, bytes);
            self.below.request(request, now);
            moved = true;
        }
        moved |= self.below.push(now);
        meter.turn_to(Task::Host, 0);
        moved
    }

    /// The longest TSDU that is taken from now on.
    pub fn set_tsdu_bytes_max(&mut self, bytes: usize) {
        self.files.set_tsdu_bytes_max(bytes);
    }

    /// Time has passed.
    pub fn timeout(&mut self, now: Instant, meter: &mut impl Meter) {
        self.below.timeout(now);
        self.files.timeout(now, meter);
        self.settle(now, meter);
    }

    /// When there is something to do though nothing comes.
    pub fn deadline(&self) -> Option<Instant> {
        [self.files.deadline(), self.below.deadline()].into_iter().flatten().min()
    }

    /// The layers, to look at.
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// What it stands on.
    pub fn below(&self) -> &B {
        &self.below
    }

    /// What it stands on, for the driver.
    pub fn below_mut(&mut self) -> &mut B {
        &mut self.below
    }

    fn rise_all(&mut self, now: Instant, meter: &mut impl Meter) {
        while let Some(indication) = self.below.poll(now) {
            self.files.network(indication, now, meter);
        }
        self.settle(now, meter);
    }

    fn raise(&mut self, indication: network::Indication, now: Instant, meter: &mut impl Meter) {
        self.files.network(indication, now, meter);
        self.settle(now, meter);
    }
}

impl End<Stream> {
    /// Over a byte stream, without an association; whoever asks for one says so to the machine.
    pub fn new(machine: Machine, tower: &TowerConfig) -> End {
        // Whether a TPDU is longer than was agreed on is transport's to judge.
        End::over(Stream::new(tpkt::TPDU_BYTES_MAX), machine, tower)
    }

    /// The connection below is there.
    pub fn connected(&mut self, now: Instant, meter: &mut impl Meter) {
        let indication = self.below.connected();
        self.raise(indication, now, meter);
    }

    /// Bytes have come.
    pub fn receive(&mut self, bytes: Bytes, now: Instant, meter: &mut impl Meter) {
        meter.turn_to(Task::Lower, bytes.len());
        self.below.receive(bytes);
        self.rise_all(now, meter);
    }

    /// The connection below has ended.
    pub fn ended(&mut self, origin: Origin, now: Instant, meter: &mut impl Meter) {
        if let Some(indication) = self.below.ended(origin) {
            self.raise(indication, now, meter);
        }
    }

    /// What is to be sent; the driver takes from its front.
    pub fn outgoing(&mut self) -> &mut RopeQueue {
        self.below.outgoing()
    }

    /// What is to be done with the connection.
    pub fn wish(&self) -> Wish {
        self.below.wish()
    }

    /// The rule of TPKT's that the peer broke, if it did.
    pub fn broken(&self) -> Option<Malformed> {
        self.below.broken()
    }
}

impl End<Line> {
    /// A frame has come, without flags and FCS.
    pub fn receive_frame(&mut self, frame: Rope, now: Instant, meter: &mut impl Meter) {
        meter.turn_to(Task::Lower, frame.len());
        self.below.receive(frame, now);
        self.rise_all(now, meter);
    }

    /// The next frame for the line, which has room for it now.
    pub fn poll_frame(&mut self, now: Instant) -> Option<Rope> {
        self.below.push(now);
        self.below.poll_frame(now)
    }
}
