//! Validation of FPDUs sent and received: determines the effect of each, without applying it.

use super::change::{Change, is_positive};
use super::group::{self, GROUP_MAX, Group, is_groupable};
use super::protocol::Machine;
use super::state::{Item, State, Verdict, verdict};
use crate::ftam::{RequestError, Role};
use crate::wire::ftam::{ActionResult, FunctionalUnits, Kind, Pdu};
use alloc::vec::Vec;

impl Machine {
    /// Returns the effect of an FPDU that this end (`own`) or the peer has sent.
    pub(super) fn check_fpdu(&self, own: bool, pdu: &Pdu) -> Result<Change, RequestError> {
        let kind = pdu.kind();
        if matches!(kind, Kind::UserAbort | Kind::ProviderAbort) {
            return self.plain(own, pdu);
        }
        self.has_unit(group::units_of(kind))?;
        let by_initiator = (self.role == Role::Initiator) == own;
        match &self.group {
            Group::None => match kind {
                Kind::BeginGroupRequest if by_initiator => match self.state {
                    State::Initialized | State::Selected | State::DataTransferIdle => {
                        Ok(Change::To(self.state, Group::Requests { kinds: Vec::new(), regime: self.state }))
                    }
                    _ => Err(RequestError::State),
                },
                _ if group::must_be_grouped(self.class, kind) => Err(RequestError::Group),
                _ => self.plain(own, pdu),
            },
            Group::Requests { kinds, .. } if kind == Kind::EndGroupRequest && by_initiator => {
                if !group::is_sequence(self.class, self.state, kinds) {
                    return Err(RequestError::Group);
                }
                let left = kinds.iter().copied().collect();
                Ok(Change::To(self.state, Group::Responses { left, has_begun: false, has_failed: false }))
            }
            Group::Requests { kinds, regime } if by_initiator && is_groupable(kind) => {
                let response = kind.response().expect("every request in a group has a response");
                let regime = self
                    .then(own, *regime, kind, true)
                    .and_then(|pending| self.then(!own, pending, response, true));
                if kinds.len() == GROUP_MAX {
                    return Err(RequestError::Group);
                }
                let kinds = kinds.iter().copied().chain([kind]).collect();
                Ok(Change::To(
                    self.state,
                    Group::Requests { kinds, regime: regime.ok_or(RequestError::State)? },
                ))
            }
            Group::Responses { left, has_begun: false, .. }
                if kind == Kind::BeginGroupResponse && !by_initiator =>
            {
                let left = left.clone();
                Ok(Change::To(self.state, Group::Responses { left, has_begun: true, has_failed: false }))
            }
            Group::Responses { left, has_begun: true, has_failed } if !by_initiator => match left.front() {
                None if kind == Kind::EndGroupResponse => Ok(Change::To(self.state, Group::None)),
                // ISODE does not answer the requests that follow a failed one.
                Some(_) if kind == Kind::EndGroupResponse && *has_failed && !own => {
                    Ok(Change::To(self.state, Group::None))
                }
                Some(request) if request.response() == Some(kind) => {
                    let mut left = left.clone();
                    left.pop_front();
                    let fails = pdu.action_result().is_some_and(|result| result != ActionResult::SUCCESS);
                    let has_failed = *has_failed || fails || !is_positive(pdu);
                    let group = Group::Responses { left, has_begun: true, has_failed };
                    let pending = self.then(!own, self.state, *request, true);
                    match pending.and_then(|pending| self.then(own, pending, kind, is_positive(pdu))) {
                        Some(state) => Ok(Change::To(state, group)),
                        // An earlier request in the group failed, so this one cannot have succeeded.
                        None if is_positive(pdu) && pdu.action_result() == Some(ActionResult::SUCCESS) => {
                            Err(RequestError::Value)
                        }
                        None => Ok(Change::To(self.state, group)),
                    }
                }
                _ => Err(RequestError::Group),
            },
            _ => Err(RequestError::Group),
        }
    }

    /// Like [`Machine::check_fpdu`], but for an FPDU outside a group.
    fn plain(&self, own: bool, pdu: &Pdu) -> Result<Change, RequestError> {
        let sends = Item::Pdu { kind: pdu.kind(), positive: is_positive(pdu) };
        match verdict(self.role, own, self.synchronise, self.state, sends) {
            Verdict::To(State::Closed) => Ok(Change::To(State::Closed, Group::None)),
            Verdict::To(state) => Ok(Change::To(state, self.group.clone())),
            Verdict::Void => Ok(Change::Void),
            Verdict::Error => Err(RequestError::State),
        }
    }

    fn then(&self, own: bool, state: State, kind: Kind, positive: bool) -> Option<State> {
        match verdict(self.role, own, self.synchronise, state, Item::Pdu { kind, positive }) {
            Verdict::To(state) => Some(state),
            _ => None,
        }
    }

    /// Checks that at least one of these functional units was negotiated.
    pub(super) fn has_unit(&self, one_of: FunctionalUnits) -> Result<(), RequestError> {
        if one_of == FunctionalUnits::NONE || (self.units & one_of) != FunctionalUnits::NONE {
            Ok(())
        } else {
            Err(RequestError::Unit)
        }
    }
}
