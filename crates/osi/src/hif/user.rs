//! The user's side of the host interface: the state of the file service, for an initiator or responder whose
//! protocol machines run on a board.
//!
//! Interface the same as that of [`End`](crate::stack::end::End), which contains the layers. Here, the byte
//!           stream goes to the board instead of the peer.
//! Limits    [`UserSide::room`] lets the user queue up to [`OUTGOING_BYTES_MAX`]; the last data element may
//!           exceed this limit.

use crate::ftam::{Machine, State};
use crate::stack::end::OUTGOING_BYTES_MAX;
use crate::transport::Disconnected;
use crate::wire::hif::{Open, ToBoard, ToHost};
use kiban_base::{Bytes, Malformed, Rope, RopeQueue};

/// The user's side of one association.
#[derive(Debug)]
pub struct UserSide {
    machine: Machine,
    received: Rope,
    outgoing: RopeQueue,
    /// Whether the association has begun; from then on, [`State::Closed`] means that it has ended.
    has_begun: bool,
    has_ended: bool,
    disconnected: Option<Disconnected>,
    broken: Option<Malformed>,
}

impl UserSide {
    /// Creates the user's side with a machine from [`Machine::user_side`]; `open` configures the board's
    /// stack.
    pub fn new(machine: Machine, open: Open) -> UserSide {
        let mut outgoing = RopeQueue::new();
        outgoing.push(ToBoard::Open(open).into_rope());
        UserSide {
            machine,
            received: Rope::new(),
            outgoing,
            has_begun: false,
            has_ended: false,
            disconnected: None,
            broken: None,
        }
    }

    /// Returns the machine, which accepts the user's requests; [`UserSide::settle`] sends them to the board.
    pub fn machine(&mut self) -> &mut Machine {
        &mut self.machine
    }

    /// Returns how many bytes of contents the user may send now.
    pub fn room(&self) -> usize {
        OUTGOING_BYTES_MAX.saturating_sub(self.outgoing.len())
    }

    /// Handles bytes from the board.
    pub fn arrive(&mut self, bytes: Bytes) {
        self.received.push(bytes);
        while self.broken.is_none() {
            match ToHost::read(&mut self.received) {
                Ok(None) => return,
                Ok(Some(message)) => self.on_message(message),
                Err(rule) => {
                    self.broken = Some(rule);
                    self.ended();
                }
            }
        }
    }

    fn on_message(&mut self, message: ToHost) {
        match message {
            ToHost::Negotiated { contexts, synchronise } => {
                self.machine.set_negotiated(contexts, synchronise);
            }
            ToHost::Disconnected(why) => self.disconnected = Some(why),
            ToHost::Indication(indication) => {
                self.has_begun = true;
                self.machine.indicate(indication);
            }
        }
    }

    /// Queues the user's requests for the board. Returns whether there were any.
    pub fn settle(&mut self) -> bool {
        let mut moved = false;
        while let Some(request) = self.machine.poll_request() {
            self.outgoing.push(ToBoard::Request(request).into_rope());
            moved = true;
        }
        self.has_begun |= moved;
        moved
    }

    /// Asks the board to accept TSDUs of up to this many bytes.
    pub fn set_tsdu_bytes_max(&mut self, bytes: u32) {
        self.outgoing.push(ToBoard::TsduBytesMax(bytes).into_rope());
    }

    /// Reports that the stream has ended.
    pub fn ended(&mut self) {
        self.has_ended = true;
        self.outgoing.clear();
    }

    /// Returns the bytes for the board; the driver takes them from the front.
    pub fn outgoing(&mut self) -> &mut RopeQueue {
        &mut self.outgoing
    }

    /// Returns whether the association has ended.
    pub fn is_over(&self) -> bool {
        self.has_ended || (self.has_begun && self.machine.state() == State::Closed)
    }

    /// Returns why the transport connection was refused or ended.
    pub fn disconnected(&self) -> Option<&Disconnected> {
        self.disconnected.as_ref()
    }

    /// Returns the rule that the board broke, if any.
    pub fn broken(&self) -> Option<Malformed> {
        self.broken
    }
}
