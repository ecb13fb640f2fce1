//! The board's side of the host interface: the complete protocol stack of one association. A byte stream
//! connects it to its user.
//!
//! Operation the driver passes bytes from the user ([`BoardSide::from_user`]) and from the network
//!           ([`BoardSide::from_network`]), calls [`BoardSide::work`], and then removes the bytes for both
//!           from the front of their queues.
//! Limits    a message from the user has at most [`REQUEST_BYTES_MAX`]. While [`OUTGOING_BYTES_MAX`] or more
//!           wait for the user, the driver does not read from the network. One data element may exceed this
//!           limit.

use crate::ftam::{self, Indication, Machine, Request, State};
use crate::network::Origin;
use crate::stack::end::{End, OUTGOING_BYTES_MAX};
use crate::stack::layers::StackConfig;
use crate::stack::stream::ConnectionAction;
use crate::transport::TPDU_BYTES_MIN;
use crate::wire::ftam::{ActionResult, Pdu, UserAbort};
use crate::wire::hif::{Open, ToBoard, ToHost};
use crate::wire::tpkt;
use alloc::boxed::Box;
use kiban_base::{Bytes, Instant, Malformed, Rope, RopeQueue};

/// Maximum length of the body of a user's message: an F-DATA of 1 MiB, with its header.
pub const REQUEST_BYTES_MAX: usize = (1 << 20) + 64;

/// A piece of a message that is shorter than this is appended to the piece before it, so that a message that
/// arrives byte by byte takes little more memory than its length.
const GATHER_BYTES: usize = 512;

/// Maximum length of a caller's user data in an SPDU other than DATA TRANSFER.
const USER_DATA_BYTES_MAX: usize = 128 << 10;

/// The board's side of one association.
#[derive(Debug)]
pub struct BoardSide {
    /// The stack; `None` until the user's first message, which configures it.
    end: Option<Box<End>>,
    requests: Rope,
    to_user: RopeQueue,
    to_network_before_open: RopeQueue,
    /// Who ended the network connection, if it ended before the user's first message.
    ended: Option<Origin>,
    is_disconnect_reported: bool,
    dropped: u64,
}

impl Default for BoardSide {
    fn default() -> BoardSide {
        BoardSide::new()
    }
}

impl BoardSide {
    /// Creates the board's side for a user that has not sent anything yet, over a connected network.
    pub fn new() -> BoardSide {
        BoardSide {
            end: None,
            requests: Rope::new(),
            to_user: RopeQueue::new(),
            to_network_before_open: RopeQueue::new(),
            ended: None,
            is_disconnect_reported: false,
            dropped: 0,
        }
    }

    /// Returns how many bytes the user may send now.
    pub fn user_room(&self) -> usize {
        match self.end.as_ref().map(|end| end.room()) {
            Some(0) => 0,
            _ => OUTGOING_BYTES_MAX,
        }
    }

    /// Returns whether bytes may be read from the network.
    pub fn wants_network(&self) -> bool {
        self.to_user.len() < OUTGOING_BYTES_MAX && self.end.as_ref().is_some_and(|end| end.room() > 0)
    }

    /// Accepts bytes from the user; [`BoardSide::work`] handles them.
    pub fn from_user(&mut self, bytes: Bytes) {
        match self.requests.is_empty() || bytes.len() >= GATHER_BYTES {
            true => self.requests.push(bytes),
            false => self.requests.push_short(&bytes),
        }
    }

    /// Handles bytes from the network.
    pub fn from_network(&mut self, bytes: Bytes, now: Instant) {
        if let Some(end) = &mut self.end {
            end.arrive(bytes, now, &mut ());
        }
    }

    /// Reports that the network connection has ended.
    pub fn network_ended(&mut self, origin: Origin, now: Instant) {
        match &mut self.end {
            Some(end) => end.ended(origin, now, &mut ()),
            None => self.ended = Some(origin),
        }
    }

    /// Aborts the association, if there is one, because the user has disconnected.
    pub fn user_ended(&mut self, now: Instant) {
        let Some(end) = &mut self.end else { return };
        if end.machine().state() != State::Closed {
            let abort = UserAbort { action_result: ActionResult::PERMANENT_ERROR, diagnostic: None };
            let _ = end.machine().request(Request::Pdu(Pdu::UserAbort(Box::new(abort))));
        }
        end.settle(now, &mut ());
    }

    /// Does all that can be done now: handles the user's messages and expired timers, and queues messages for
    /// the user.
    ///
    /// # Errors
    /// The rule that a message of the user breaks.
    pub fn work(&mut self, now: Instant) -> Result<(), Malformed> {
        loop {
            let mut moved = false;
            while self.user_room() > 0
                && let Some(message) = ToBoard::read(&mut self.requests, REQUEST_BYTES_MAX)?
            {
                self.on_message(message, now)?;
                moved = true;
            }
            let Some(end) = &mut self.end else { return Ok(()) };
            moved |= end.settle(now, &mut ());
            // The TCP session is established already, so report the connection at once.
            if end.connection_action() == ConnectionAction::Connect {
                end.connected(now, &mut ());
                moved = true;
            }
            moved |= self.raise();
            if !moved {
                return Ok(());
            }
        }
    }

    fn on_message(&mut self, message: ToBoard, now: Instant) -> Result<(), Malformed> {
        match (message, &mut self.end) {
            (ToBoard::Open(open), None) => self.open(open, now),
            (ToBoard::TsduBytesMax(bytes), Some(end)) => end.set_tsdu_bytes_max(tsdu_bytes(bytes)),
            (ToBoard::Request(request), Some(end)) => {
                // The user sent such a request before it saw an indication that crossed it, or ignores the
                // rules; drop the request.
                self.dropped += u64::from(end.machine().request(request).is_err());
                end.settle(now, &mut ());
            }
            _ => return Err(Malformed::Operation),
        }
        Ok(())
    }

    fn open(&mut self, open: Open, now: Instant) {
        let mut stack = StackConfig::default();
        let tpdu_bytes = open.tpdu_bytes_max as usize;
        stack.transport.tpdu_bytes_max = tpdu_bytes.clamp(TPDU_BYTES_MIN, tpkt::TPDU_BYTES_MAX);
        stack.transport.tsdu_bytes_max = tsdu_bytes(open.tsdu_bytes_max);
        (stack.session.transport_called, stack.session.transport_calling) = (open.called, open.calling);
        let abstract_syntaxes = ftam::ABSTRACT_SYNTAXES.to_vec();
        let machine = Machine::new(ftam::Config { role: open.role, abstract_syntaxes });
        if open.role == ftam::Role::Responder {
            // The peer may send user data before it is authenticated. No FTAM PDU except data is longer.
            stack.session.user_data_bytes_max = USER_DATA_BYTES_MAX;
        }
        let mut end = Box::new(End::new(machine, &stack));
        if open.role == ftam::Role::Responder {
            end.connected(now, &mut ());
        }
        if let Some(origin) = self.ended.take() {
            end.ended(origin, now, &mut ());
        }
        self.end = Some(end);
    }

    /// Queues indications for the user. Returns whether there were any.
    fn raise(&mut self) -> bool {
        let BoardSide { end: Some(end), to_user, is_disconnect_reported, .. } = self else { return false };
        let mut moved = false;
        if let (Some(why), false) = (end.files().stack().disconnected(), *is_disconnect_reported) {
            to_user.push(ToHost::Disconnected(why.clone()).into_rope());
            *is_disconnect_reported = true;
            moved = true;
        }
        while to_user.len() < OUTGOING_BYTES_MAX
            && let Some(indication) = end.machine().poll_up()
        {
            let begins =
                matches!(indication, Indication::Initialize(_) | Indication::Pdu(Pdu::InitializeResponse(_)));
            if begins {
                let (contexts, synchronise) = end.machine().negotiated();
                to_user.push(ToHost::Negotiated { contexts: contexts.to_vec(), synchronise }.into_rope());
            }
            to_user.push(ToHost::Indication(indication).into_rope());
            moved = true;
        }
        moved
    }

    /// Returns the bytes for the user; the driver takes them from the front.
    pub fn to_user(&mut self) -> &mut RopeQueue {
        &mut self.to_user
    }

    /// Returns the bytes for the network; the driver takes them from the front.
    pub fn to_network(&mut self) -> &mut RopeQueue {
        match &mut self.end {
            Some(end) => end.outgoing(),
            None => &mut self.to_network_before_open,
        }
    }

    /// Returns whether the network connection is to be closed once everything has been sent.
    pub fn is_over(&self) -> bool {
        self.end.as_ref().is_some_and(|end| end.connection_action() == ConnectionAction::Close)
    }

    /// Returns when [`BoardSide::work`] must be called even if no input arrives.
    pub fn deadline(&self) -> Instant {
        self.end.as_ref().map_or(Instant::NEVER, |end| end.deadline())
    }

    /// Returns how many requests of the user were dropped, because they crossed with an indication or were
    /// not allowed.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Returns the stack, for inspection.
    pub fn end(&self) -> Option<&End> {
        self.end.as_deref()
    }
}

/// Clamps the limit that a user requests for received TSDUs to the limit of the stack.
fn tsdu_bytes(asked: u32) -> usize {
    (asked as usize).min(StackConfig::default().transport.tsdu_bytes_max)
}
