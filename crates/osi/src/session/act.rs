//! The actions in the state tables: outgoing events, and the specific actions of Table A.6.

use super::cause::{Accepted, Cause};
use super::config::OFFERED;
use super::machine::Session;
use super::primitives::{
    AbortReason, Accept, Answer, Connect, ConnectionId, Indication, Refuse, Request, SERIAL_MAX,
};
use super::receive::{proposal, smaller};
use super::send::{identifier, owned_tokens, settled, wanted};
use super::state::{Action, State, Variables};
use crate::wire::session as wire;
use crate::wire::session::{
    Enclosed, RefuseReason, Resynchronisation, Spdu, TokenSetting, TokenSettings, Tokens, Units, Versions,
};
use crate::{Selector, transport};
use alloc::boxed::Box;
use kiban_base::{Instant, Rope};

impl Session {
    /// Executes a cell's actions and enters the next state.
    pub(super) fn act(&mut self, actions: &[Action], next: State, mut cause: Cause, now: Instant) {
        for action in actions {
            self.do_one(*action, &mut cause);
        }
        self.become_state(next, now);
    }

    fn do_one(&mut self, action: Action, cause: &mut Cause) {
        let v = &mut self.variables;
        match action {
            // Transport.
            Action::TConReq => {
                let Some(Request::Connect(connect)) = cause.request.take() else { return };
                self.prepare_connect(*connect);
                self.down.push_back(transport::Request::Connect {
                    calling: self.config.transport_calling.clone(),
                    called: self.config.transport_called.clone(),
                });
            }
            Action::TConRsp => {
                self.down.push_back(transport::Request::Respond { responding: Selector::NONE });
            }
            Action::TDisReq => self.disconnect(),
            Action::Acceptor => *v = Variables { initiator: false, ..Variables::default() },
            Action::Initiator => *v = Variables { initiator: true, ..Variables::default() },
            // TIM is started and stopped on state changes: see `become_state`.
            Action::StartTim | Action::StopTim => {}

            // Connection.
            Action::Cn => self.send_connect(cause),
            Action::Oa => {
                let Some(Spdu::Connect(connect)) = &cause.spdu else { return };
                let tsdu_sizes = self.answered_sizes(connect.tsdu_sizes);
                self.tsdu_sizes = tsdu_sizes;
                self.send(Spdu::OverflowAccept(wire::OverflowAccept { tsdu_sizes, versions: Versions::V2 }));
            }
            Action::Preserve => match cause.spdu.take() {
                Some(Spdu::Connect(connect)) => self.connect = Some(connect),
                Some(Spdu::ConnectDataOverflow(data)) => self.preserve(data),
                _ => {}
            },
            Action::Cdo => {
                if let Some(Spdu::OverflowAccept(accept)) = &cause.spdu {
                    self.tsdu_bytes_max = self.tsdu_out(accept.tsdu_sizes).unwrap_or(0);
                }
                self.send_overflow();
            }
            Action::SConInd => self.indicate_connect(cause),
            Action::Ac => self.send_accept(cause),
            Action::SConCnfAccept => self.confirm_accept(cause),
            Action::Rf => self.send_refuse(cause),
            Action::SConCnfRefuse => self.confirm_refuse(cause),
            Action::SetUp => {
                let Some(accepted) = &cause.accepted else { return };
                *v = Variables {
                    units: accepted.units,
                    initiator: v.initiator,
                    va: accepted.serial,
                    vm: accepted.serial,
                    ..Variables::default()
                };
            }
            Action::UpdateTokens => self.update_tokens(cause),

            // Data is the most frequent case, so it is handled on a separate path.
            Action::Dt | Action::Td | Action::SDtInd | Action::STdInd => {}

            // Synchronisation.
            Action::Mip => {
                let Some(Request::SyncMinor { explicit, user_data }) = cause.request.take() else { return };
                let serial = v.vm;
                self.send_enclosed(user_data, &mut |data, first| Spdu::SyncMinor {
                    explicit,
                    serial: first.then_some(serial),
                    data,
                });
            }
            Action::PointOut => {
                if v.vsc {
                    v.va = v.vm;
                }
                v.vsc = false;
                v.vm += 1;
            }
            Action::SSynInd => {
                let Some(Spdu::SyncMinor { explicit, data, .. }) = cause.spdu.take() else { return };
                self.up.push_back(Indication::SyncMinor {
                    explicit,
                    serial: cause.serial,
                    user_data: data.data,
                });
            }
            Action::PointIn => {
                if !v.vsc {
                    v.va = v.vm;
                }
                v.vsc = true;
                v.vm += 1;
            }
            Action::Mia => {
                let Some(Request::SyncMinorResponse { serial, user_data }) = cause.request.take() else {
                    return;
                };
                self.send_enclosed(user_data, &mut |data, first| Spdu::SyncMinorAck {
                    serial: first.then_some(serial),
                    data,
                });
            }
            Action::SSynCnf => {
                let Some(Spdu::SyncMinorAck { data, .. }) = cause.spdu.take() else { return };
                self.up
                    .push_back(Indication::SyncMinorConfirm { serial: cause.serial, user_data: data.data });
            }
            Action::Confirmed => v.va = cause.serial + 1,

            // Resynchronisation.
            Action::Rs => {
                let Some(Request::Resynchronise { kind, tokens, user_data, .. }) = cause.request.take()
                else {
                    return;
                };
                (self.resync_own, self.resync_tokens, self.resync_serial) = (true, tokens, cause.serial);
                v.vrsp = Some(kind);
                let serial = cause.serial;
                self.send_enclosed(user_data, &mut |data, first| Spdu::Resynchronise {
                    tokens,
                    kind: first.then_some(kind),
                    serial: first.then_some(serial),
                    data,
                });
            }
            Action::RaiseNext => v.vm = v.vm.max(cause.serial).min(SERIAL_MAX),
            Action::SRsynInd => {
                let Some(Spdu::Resynchronise { tokens, kind: Some(kind), data, .. }) = cause.spdu.take()
                else {
                    return;
                };
                let serial = proposal(kind, cause.serial, v.vm);
                (self.resync_own, self.resync_tokens, self.resync_serial) = (false, tokens, serial);
                v.vrsp = Some(kind);
                self.up.push_back(Indication::Resynchronise { kind, serial, tokens, user_data: data.data });
            }
            Action::BeginResync => {
                if v.vrsp == Some(Resynchronisation::Restart) {
                    v.vrspnb = cause.serial;
                }
                v.discard = true;
            }
            Action::Ra => {
                let Some(Request::ResynchroniseResponse { tokens, user_data, .. }) = cause.request.take()
                else {
                    return;
                };
                let tokens = settled(self.resync_tokens, tokens);
                cause.settled = Some(tokens);
                let serial = cause.serial;
                self.send_enclosed(user_data, &mut |data, first| Spdu::ResynchroniseAck {
                    tokens,
                    serial: first.then_some(serial),
                    data,
                });
            }
            Action::SRsynCnf => {
                let Some(Spdu::ResynchroniseAck { tokens, data, .. }) = cause.spdu.take() else { return };
                let tokens = settled(self.resync_tokens, tokens);
                cause.settled = Some(tokens);
                self.up.push_back(Indication::ResynchroniseConfirm {
                    serial: cause.serial,
                    tokens,
                    user_data: data.data,
                });
            }
            Action::EndResync => {
                (v.va, v.vm) = (cause.serial, cause.serial);
                if v.vrsp != Some(Resynchronisation::Restart) {
                    v.vr = 0;
                }
                (v.vrsp, v.discard) = (None, false);
            }

            // Tokens.
            Action::Gt => {
                let Some(Request::GiveTokens { tokens, user_data }) = cause.request.take() else { return };
                self.send_enclosed(user_data, &mut |data, first| Spdu::GiveTokens {
                    tokens: first.then_some(tokens),
                    data,
                });
            }
            Action::SGtInd => {
                let Some(Spdu::GiveTokens { data, .. }) = cause.spdu.take() else { return };
                self.up.push_back(Indication::GiveTokens { tokens: cause.tokens, user_data: data.data });
            }
            Action::Pt => {
                let Some(Request::PleaseTokens { tokens, user_data }) = cause.request.take() else { return };
                self.send_enclosed(user_data, &mut |data, first| Spdu::PleaseTokens {
                    tokens: first.then_some(tokens),
                    data,
                });
            }
            Action::SPtInd => {
                let Some(Spdu::PleaseTokens { data, .. }) = cause.spdu.take() else { return };
                self.up.push_back(Indication::PleaseTokens { tokens: cause.tokens, user_data: data.data });
            }

            // Release.
            Action::Fn => {
                let Some(Request::Release { user_data }) = cause.request.take() else { return };
                self.send_enclosed(user_data, &mut |data, _| Spdu::Finish { keep: false, data });
            }
            Action::SRelInd => {
                let Some(Spdu::Finish { data, .. }) = cause.spdu.take() else { return };
                self.up.push_back(Indication::Release { user_data: data.data });
            }
            Action::SetCollision => v.vcoll = true,
            Action::Dn => {
                let Some(Request::ReleaseResponse { user_data, .. }) = cause.request.take() else { return };
                self.send_enclosed(user_data, &mut |data, _| Spdu::Disconnect(data));
            }
            Action::DisconnectIn => v.vdnr = true,
            Action::SRelCnf => {
                let Some(Spdu::Disconnect(data)) = cause.spdu.take() else { return };
                self.up.push_back(Indication::ReleaseConfirm { accepted: true, user_data: data.data });
            }

            // Abort.
            Action::Ab => {
                let Some(Request::Abort { user_data }) = cause.request.take() else { return };
                self.counters.aborts_out += 1;
                self.send_enclosed(user_data, &mut |data, _| {
                    Spdu::Abort(wire::Abort { user: true, data, ..wire::Abort::default() })
                });
            }
            Action::SxabInd => {
                let Some(Spdu::Abort(abort)) = cause.spdu.take() else { return };
                self.counters.aborts_in += 1;
                self.up.push_back(match abort.user {
                    true => Indication::UAbort { user_data: abort.data.data },
                    false if abort.protocol_error => {
                        Indication::PAbort { reason: AbortReason::ProtocolError }
                    }
                    false if abort.restriction => Indication::PAbort { reason: AbortReason::Restriction },
                    false => Indication::PAbort { reason: AbortReason::Undefined },
                });
            }
            Action::SPabInd => {
                self.up.push_back(Indication::PAbort { reason: AbortReason::TransportDisconnect });
            }
        }
    }

    fn send_connect(&mut self, cause: &mut Cause) {
        if let Some(Request::Connect(connect)) = cause.request.take() {
            self.prepare_connect(*connect);
        }
        let Some(connect) = &mut self.connect else { return };
        let user_data = core::mem::take(&mut connect.user_data);
        let spdu = wire::Connect { user_data, ..(**connect).clone() };
        self.send(Spdu::Connect(spdu.into()));
    }

    fn preserve(&mut self, data: Enclosed) {
        if let Some(connect) = &mut self.connect {
            connect.user_data.append(data.data);
        }
    }

    fn indicate_connect(&mut self, cause: &mut Cause) {
        match cause.spdu.take() {
            Some(Spdu::Connect(connect)) => {
                self.tsdu_sizes = self.answered_sizes(connect.tsdu_sizes);
                self.connect = Some(connect);
            }
            Some(Spdu::ConnectDataOverflow(data)) => self.preserve(data),
            _ => {}
        }
        let Some(connect) = &mut self.connect else { return };
        let overflowed = connect.overflow;
        let user_data = core::mem::take(&mut connect.user_data);
        self.up.push_back(Indication::Connect(Box::new(Connect {
            id: id(&connect.identifier),
            calling: connect.calling[..].into(),
            called: connect.called[..].into(),
            // Functional units that are not supported are not indicated to the user.
            units: connect.units.and(OFFERED),
            initial_serial: connect.initial_serial,
            tokens: connect.tokens,
            user_data,
        })));
        // After an OVERFLOW ACCEPT, version 2 is selected (§8.3.4.9); otherwise, the highest version that
        // both ends support.
        self.version_2 = overflowed || connect.versions.and(self.config.versions).has(Versions::V2);
        self.tsdu_bytes_max = self.tsdu_sizes.responder_bytes_max.into();
    }

    /// Returns the responder's TSDU sizes: for each direction, the smaller of the two ends' sizes.
    fn answered_sizes(&self, proposal: wire::TsduSizes) -> wire::TsduSizes {
        wire::TsduSizes {
            initiator_bytes_max: smaller(proposal.initiator_bytes_max, wanted(self.config.tsdu_in_bytes_max)),
            responder_bytes_max: smaller(
                proposal.responder_bytes_max,
                wanted(self.config.tsdu_out_bytes_max),
            ),
        }
    }

    fn version(&self) -> Versions {
        if self.version_2 { Versions::V2 } else { Versions::V1 }
    }

    fn send_accept(&mut self, cause: &mut Cause) {
        let Some(Request::ConnectResponse(Answer::Accepted(accept))) = cause.request.take() else { return };
        let Some(connect) = self.connect.take() else { return };
        let units = accept.units.and(connect.units);
        let points = units.has_any(Units::SYNCHRONISE);
        let serial = accept.initial_serial.or(connect.initial_serial).unwrap_or(1);
        let tokens = settled(connect.tokens, accept.tokens);
        cause.accepted = Some(Accepted { units, serial, tokens });
        let spdu = wire::Accept {
            identifier: identifier(accept.id),
            extended_concatenation: false,
            tsdu_sizes: self.tsdu_sizes,
            versions: self.version(),
            initial_serial: points.then_some(serial),
            tokens: if units.has(Units::MINOR_SYNCHRONISE) { tokens } else { TokenSettings::default() },
            please: Tokens::NONE,
            units,
            calling: alloc::vec::Vec::new(),
            responding: accept.responding.bytes().to_vec(),
            data: Enclosed::default(),
        };
        self.send_enclosed(accept.user_data, &mut |data, _| {
            Spdu::Accept(wire::Accept { data, ..spdu.clone() }.into())
        });
    }

    fn confirm_accept(&mut self, cause: &mut Cause) {
        let (Some(Spdu::Accept(accept)), Some(connect)) = (cause.spdu.take(), self.connect.take()) else {
            return;
        };
        let units = connect.units.and(accept.units);
        let serial = accept.initial_serial.or(connect.initial_serial).unwrap_or(1);
        let tokens = settled(connect.tokens, accept.tokens);
        cause.accepted = Some(Accepted { units, serial, tokens });
        self.version_2 = connect.versions.and(accept.versions).has(Versions::V2);
        self.tsdu_bytes_max = self.tsdu_out(accept.tsdu_sizes).unwrap_or(0);
        let points = units.has_any(Units::SYNCHRONISE);
        self.up.push_back(Indication::ConnectConfirm(Answer::Accepted(Box::new(Accept {
            id: id(&accept.identifier),
            responding: accept.responding[..].into(),
            units,
            initial_serial: points.then_some(serial),
            tokens,
            user_data: accept.data.data,
        }))));
        // X.225 Table A.1, note 1: a token request in an ACCEPT is handled as if a PLEASE TOKENS followed it.
        let please = accept.please.and(Tokens::MINOR);
        if units.has(Units::MINOR_SYNCHRONISE) && !please.is_empty() {
            self.up.push_back(Indication::PleaseTokens { tokens: please, user_data: Rope::new() });
        }
    }

    fn send_refuse(&mut self, cause: &mut Cause) {
        let (id, reason, user_data) = match (cause.request.take(), &cause.spdu) {
            (Some(Request::ConnectResponse(Answer::Refused(refuse))), _) => {
                (refuse.id, refuse.reason, refuse.user_data)
            }
            (_, Some(Spdu::Connect(connect))) => {
                self.counters.connects_refused += 1;
                let reason = self.refusal_reason(connect).unwrap_or(RefuseReason::Provider);
                let common = connect.versions.and(self.config.versions);
                self.version_2 = common.has(Versions::V2);
                (ConnectionId::default(), reason, Rope::new())
            }
            _ => return,
        };
        let spdu = wire::Refuse {
            identifier: identifier(id),
            keep: false,
            units: (reason == RefuseReason::UserData).then_some(OFFERED),
            versions: self.version(),
            reason: Some(reason),
            data: Enclosed::default(),
        };
        self.send_enclosed(user_data, &mut |data, first| {
            let reason = first.then_some(reason);
            Spdu::Refuse(wire::Refuse { data, reason, ..spdu.clone() }.into())
        });
    }

    fn confirm_refuse(&mut self, cause: &mut Cause) {
        let Some(Spdu::Refuse(refuse)) = cause.spdu.take() else { return };
        self.up.push_back(Indication::ConnectConfirm(Answer::Refused(Box::new(Refuse {
            id: id(&refuse.identifier),
            reason: refuse.reason.unwrap_or(RefuseReason::User),
            user_data: refuse.data.data,
        }))));
    }

    /// Updates the tokens after an ACCEPT, RESYNCHRONIZE ACK or GIVE TOKENS was sent or received (action
    /// \[11\]).
    fn update_tokens(&mut self, cause: &mut Cause) {
        let v = &mut self.variables;
        if let Some(accepted) = cause.accepted.take() {
            v.owns_minor = (accepted.tokens.minor == TokenSetting::Requestor) == v.initiator;
        } else if let Some(settled) = cause.settled.take() {
            v.owns_minor = (settled.minor == TokenSetting::Requestor) == self.resync_own;
        } else if owned_tokens(cause.tokens) {
            v.owns_minor = !v.owns_minor;
        }
    }
}

fn id(identifier: &wire::Identifier) -> ConnectionId {
    ConnectionId {
        user_reference: identifier.user_reference.clone(),
        common_reference: identifier.common_reference.clone(),
        additional: identifier.additional.clone(),
    }
}
