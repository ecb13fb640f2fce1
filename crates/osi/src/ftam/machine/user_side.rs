//! The user's side of a file protocol machine that runs on a board (paper \[5\]; [`crate::hif`]).
//!
//! Purpose   an initiator or responder that runs in another process than the protocol machine knows the state
//!           of the service, and learns at once whether a request is allowed.
//! Operation this side checks requests and indications against the same state table as the protocol machine,
//!           and keeps the same negotiated values and checkpoints. It encodes nothing for the lower layers.
//!           The requests that it accepts are queued for the board.
//! Crossing  a request and an indication may cross between the two sides, as they may between two peers. The
//!           board drops a request that its state no longer allows. If the two states can no longer agree,
//!           this side reports the loss of the association.

use super::Config;
use super::change::Change;
use super::protocol::{Machine, Up};
use super::state::{Item, State, Verdict, verdict};
use crate::ftam::below::Context;
use crate::ftam::{Indication, Request, Role};
use crate::wire::ftam::{ErrorIdentifier, Pdu, oids};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

impl Machine {
    /// Creates the user's side of a machine on a board, without an association.
    pub fn user_side(config: Config) -> Machine {
        let mut machine = Machine::new(config);
        machine.requests = Some(VecDeque::new());
        machine
    }

    /// Returns the next accepted request for the board; `None` if this is not a user's side.
    pub fn poll_request(&mut self) -> Option<Request> {
        self.requests.as_mut()?.pop_front()
    }

    /// Returns the presentation contexts, and whether the session layer provides synchronisation.
    pub fn negotiated(&self) -> (&[Context], bool) {
        (&self.contexts, self.synchronise)
    }

    /// On the user's side, stores the values that the board's side has negotiated.
    pub fn set_negotiated(&mut self, contexts: Vec<Context>, synchronise: bool) {
        (self.contexts, self.synchronise) = (contexts, synchronise);
        self.pci = self.context_of(oids::PCI).unwrap_or(self.pci);
    }

    /// On the user's side, handles an indication or confirm of the board's side.
    pub fn indicate(&mut self, indication: Indication) {
        if self.follow(&indication) {
            self.up.push_back(Up::Indication(indication));
        }
    }

    /// Applies an indication from the board's side to the state. Returns whether to pass it to the user.
    fn follow(&mut self, indication: &Indication) -> bool {
        match indication {
            Indication::Initialize(initialize) => {
                let is_expected = self.role == Role::Responder && self.state == State::Closed;
                if is_expected {
                    self.state = State::InitializePending;
                    self.proposal = Some(initialize.request.clone());
                    (self.docket, self.contents_context) = (None, None);
                }
                is_expected
            }
            _ if self.state == State::Closed => false,
            Indication::Pdu(Pdu::UserAbort(_) | Pdu::ProviderAbort(_)) => {
                self.close();
                true
            }
            Indication::Pdu(pdu) => match self.check_fpdu(false, pdu) {
                Ok(Change::To(state, group)) if self.fits(false, pdu).is_ok() => {
                    (self.state, self.group) = (state, group);
                    self.effect(pdu);
                    true
                }
                Ok(Change::Void) => false,
                _ => self.disagree(),
            },
            Indication::Data(_) => {
                match verdict(self.role, false, self.synchronise, self.state, Item::Data) {
                    Verdict::To(_) => true,
                    Verdict::Void => false,
                    Verdict::Error => self.disagree(),
                }
            }
            Indication::Check { checkpoint } => self.follow_checkpoint(Item::Check, *checkpoint),
            Indication::CheckConfirm { checkpoint } => {
                self.follow_checkpoint(Item::CheckResponse, *checkpoint)
            }
        }
    }

    fn follow_checkpoint(&mut self, item: Item, checkpoint: i64) -> bool {
        // A cancel or restart by this user voids a checkpoint, or its confirm, that crosses it.
        let allowed = self.may(false, item).and_then(|()| self.may_check()).is_ok();
        let Some(transfer) = self.transfer().filter(|_| allowed) else { return false };
        match item {
            Item::Check => transfer.checkpoint_last = checkpoint,
            _ => transfer.checkpoint_answered = checkpoint,
        }
        true
    }

    /// Ends the association because the two sides disagree about its state.
    fn disagree(&mut self) -> bool {
        self.on_lost(ErrorIdentifier::LOWER_LAYER_FAILURE);
        false
    }
}
