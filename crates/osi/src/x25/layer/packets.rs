//! Processes received packets: finds each packet's channel, and follows the state tables.

use super::machine::Layer;
use super::requests::{sizes_asked, user_data_max};
use crate::wire::x25::{
    CONTROL_BYTES_MAX, Clear, FAST_SELECT_BYTES_MAX, Front, HEADER_BYTES_MAX, Header, INTERRUPT_BYTES_MAX,
    Kind, cause, diagnostic,
};
use crate::x25::call::{is_allowed, is_between};
use crate::x25::state::{
    self, Call as CallState, Event, Reset as ResetState, Restart, RestartEvent, Verdict,
};
use crate::x25::{
    CONTROL_PACKETS_MAX, Call, Cause, FastSelect, Indication, PACKET_BYTES_DEFAULT, Role, Sizes,
    WINDOW_DEFAULT,
};
use alloc::vec::Vec;
use kiban_base::{Instant, Malformed, Rope};

impl Layer {
    pub(super) fn on_packet(&mut self, packet: Rope, now: Instant) {
        self.counters.packets_in += 1;
        let mut bytes = [0; HEADER_BYTES_MAX];
        let count = packet.copy_to(0, &mut bytes);
        let front = match Front::read(&bytes[..count]) {
            Ok((front, _)) if front.modulo == self.config.modulo => front,
            Ok(_) | Err(Malformed::GeneralFormat) => {
                return self.diagnose(diagnostic::GENERAL_FORMAT, &bytes);
            }
            Err(_) => return self.diagnose(diagnostic::TOO_SHORT, &bytes[..count]),
        };
        let header = Header::read(&bytes[..count]);
        if front.channel == 0 {
            return self.on_channel_zero(header, packet, &bytes, now);
        }
        match state::restart(self.config.role, self.restart, RestartEvent::OnChannel) {
            Verdict::NextTable => self.on_channel(front, header, packet, &bytes, now),
            Verdict::Error(code) => self.restart_for(code, now),
            Verdict::Normal(_) | Verdict::Discard | Verdict::Diagnostic(_) => self.counters.discarded += 1,
        }
    }

    pub(super) fn on_channel_zero(
        &mut self,
        header: Result<(Header, usize), Malformed>,
        packet: Rope,
        bytes: &[u8; 4],
        now: Instant,
    ) {
        let kind = header.map(|(header, _)| header.kind);
        let event = match kind {
            Ok(Kind::RestartRequest) => RestartEvent::Restart,
            Ok(Kind::RestartConfirmation) => RestartEvent::Confirmation,
            Ok(Kind::Diagnostic) if self.config.role == Role::Dte => {
                let octets = packet.to_vec();
                if let Some((code, explained)) = octets.get(3..).and_then(<[u8]>::split_first) {
                    self.counters.diagnostics += 1;
                    if self.up.len() < CONTROL_PACKETS_MAX {
                        self.indicate(
                            Indication::Diagnostic(*code, explained.iter().copied().take(32).collect()),
                            0,
                        );
                    }
                }
                return;
            }
            Ok(Kind::RegistrationRequest | Kind::RegistrationConfirmation) => {
                self.counters.registrations += 1;
                return;
            }
            _ => RestartEvent::OnChannelZero,
        };
        let cause = match fixed(&packet, 3, if event == RestartEvent::Restart { 1..=2 } else { 0..=0 }) {
            // Annex C: a restart of the wrong length is answered only with a diagnostic packet.
            Err(code) if event != RestartEvent::OnChannelZero => return self.diagnose(code, bytes),
            Err(_) => Cause::default(),
            Ok(rest) => rest,
        };
        match state::restart(self.config.role, self.restart, event) {
            Verdict::Normal(Restart::Peer) => {
                self.end_all(cause, true);
                self.tell_once(Indication::Restarted(cause));
                self.send(0, Kind::RestartConfirmation, &[]);
            }
            Verdict::Normal(_) => {
                self.restart = Restart::Ready;
                self.restart_due = Instant::NEVER;
                self.tell_once(Indication::Ready);
            }
            Verdict::Error(code) => self.restart_for(code, now),
            Verdict::Diagnostic(code) => self.diagnose(code, bytes),
            Verdict::Discard | Verdict::NextTable => self.counters.discarded += 1,
        }
    }

    pub(super) fn on_channel(
        &mut self,
        front: Front,
        header: Result<(Header, usize), Malformed>,
        packet: Rope,
        bytes: &[u8; 4],
        now: Instant,
    ) {
        let number = front.channel;
        let used = self.channels.get(&number);
        if used.is_none() && self.may_call(number, self.config.role).is_none() {
            return self.diagnose(diagnostic::UNASSIGNED_CHANNEL, bytes);
        }
        let event = match header.map(|(header, _)| header.kind) {
            Ok(kind) => event(kind),
            Err(_) => Event::Short,
        };
        let role = self.config.role;
        let call = used.map_or(CallState::Ready, |channel| channel.call);
        let verdict = match used {
            Some(channel) if channel.is_permanent => Verdict::NextTable,
            _ => state::call(role, call, event),
        };
        match verdict {
            Verdict::Normal(next) => match self.on_call_packet(front, event, next, packet) {
                Ok(()) => {}
                Err(code) => self.clear_for(number, code, now),
            },
            Verdict::Error(code) => self.clear_for(number, code, now),
            Verdict::Discard | Verdict::Diagnostic(_) => self.counters.discarded += 1,
            Verdict::NextTable => {
                let reset = used.map_or(ResetState::Ready, |channel| channel.reset);
                match state::reset(role, reset, event) {
                    Verdict::Normal(next) => {
                        let Ok((header, used)) = header else { return };
                        if let Err(code) = self.on_data_packet(header, used, next, packet) {
                            self.reset_for(number, code, now);
                        }
                    }
                    Verdict::Error(code) => self.reset_for(number, code, now),
                    Verdict::Discard | Verdict::Diagnostic(_) | Verdict::NextTable => {
                        self.counters.discarded += 1
                    }
                }
            }
        }
    }

    /// Processes a packet of call set-up or clearing as the table allows; returns a diagnostic if it is
    /// invalid.
    pub(super) fn on_call_packet(
        &mut self,
        front: Front,
        event: Event,
        next: CallState,
        packet: Rope,
    ) -> Result<(), u8> {
        let number = front.channel;
        if packet.len() > CONTROL_BYTES_MAX {
            return Err(diagnostic::TOO_LONG);
        }
        let bytes = packet.into_bytes();
        let rest = &bytes[3..];
        match event {
            Event::Call => {
                let peer = if self.config.role == Role::Dte { Role::Dce } else { Role::Dte };
                if self.may_call(number, peer) != Some(true) {
                    return Err(diagnostic::ONE_WAY_CHANNEL);
                }
                if next == CallState::Collision && self.config.role == Role::Dte {
                    // §4.1.6: on a call collision the DCE proceeds with this end's call and cancels its own.
                    self.channels.get_mut(&number).expect("it calls").call = next;
                    return Ok(());
                }
                let call = Call::read(rest, front.qualifier).map_err(fault)?;
                self.on_incoming(number, next, call)
            }
            Event::Accepted => self.on_accepted(number, Call::read(rest, front.qualifier).map_err(fault)?),
            // Clear collision: the peer's clear counts as the confirmation.
            _ if event == Event::ClearConfirmation || next == CallState::Ready => {
                self.tell_free(number);
                Ok(())
            }
            _ => {
                let (clear, _) = Clear::read(rest, front.qualifier).map_err(fault)?;
                let user_data = clear.more.map_or(&[][..], |more| more.user_data);
                if user_data.len() > FAST_SELECT_BYTES_MAX {
                    return Err(diagnostic::TOO_LONG);
                }
                if self.channels.remove(&number).is_some() {
                    let user_data = user_data.into();
                    self.indicate(
                        Indication::Cleared { channel: number, by_peer: true, cause: clear.cause, user_data },
                        0,
                    );
                }
                self.send(number, Kind::ClearConfirmation, &[]);
                Ok(())
            }
        }
    }

    pub(super) fn on_incoming(&mut self, number: u16, next: CallState, call: Call) -> Result<(), u8> {
        if call.user_data.len() > user_data_max(call.facilities.fast_select) {
            return Err(diagnostic::TOO_LONG);
        }
        if !is_allowed(&call.facilities, self.config.modulo.mask()) {
            return Err(diagnostic::FACILITY_PARAMETER);
        }
        if self.calls_up >= self.config.calls_max {
            self.counters.calls_refused += 1;
            return Err(diagnostic::NO_CHANNEL);
        }
        if next == CallState::Collision {
            // This end is the DCE, so its own call has lost the call collision.
            let code = Cause { cause: cause::CLEAR_NUMBER_BUSY, diagnostic: Some(diagnostic::COLLISION) };
            let lost =
                Indication::Cleared { channel: number, by_peer: true, cause: code, user_data: Vec::new() };
            self.indicate(lost, 0);
        }
        let mut channel = self.channel(number);
        channel.call = next;
        channel.fast_select = call.facilities.fast_select;
        channel.asked = call.facilities.clone();
        channel.is_known = true;
        self.channels.insert(number, channel);
        self.calls_up += 1;
        self.indicate(Indication::Incoming { channel: number, call }, 0);
        Ok(())
    }

    pub(super) fn on_accepted(&mut self, number: u16, call: Call) -> Result<(), u8> {
        let channel = self.channels.get_mut(&number).expect("it calls");
        match channel.fast_select {
            FastSelect::Restricted => return Err(diagnostic::NOT_COMPATIBLE),
            FastSelect::No if !call.user_data.is_empty() => return Err(diagnostic::TOO_LONG),
            FastSelect::No | FastSelect::Unrestricted if call.user_data.len() > FAST_SELECT_BYTES_MAX => {
                return Err(diagnostic::TOO_LONG);
            }
            FastSelect::No | FastSelect::Unrestricted => {}
        }
        let asked = sizes_asked(&channel.asked, self.config.default);
        let packet = call.facilities.packet_bytes.unwrap_or(asked.0);
        let window = call.facilities.window.unwrap_or(asked.1);
        let fits = is_between(packet, asked.0, PACKET_BYTES_DEFAULT)
            && is_between(window, asked.1, WINDOW_DEFAULT)
            && is_allowed(&call.facilities, self.config.modulo.mask());
        if !fits {
            return Err(diagnostic::FACILITY_PARAMETER);
        }
        channel.call = CallState::Transfer;
        channel.due = Instant::NEVER;
        channel.sizes = Sizes::of(packet, window, true);
        let sizes = channel.sizes;
        self.indicate(Indication::Accepted { channel: number, sizes, call }, 0);
        Ok(())
    }

    /// Processes a packet of the data transfer phase as the table allows; returns a diagnostic if it is
    /// invalid.
    pub(super) fn on_data_packet(
        &mut self,
        header: Header,
        used: usize,
        next: ResetState,
        mut packet: Rope,
    ) -> Result<(), u8> {
        let number = header.front.channel;
        let (modulo, unit_max) = (self.config.modulo, self.config.unit_bytes_max);
        let channel = self.channels.get_mut(&number).expect("a circuit in data transfer is there");
        let generation = channel.generation;
        match header.kind {
            Kind::Data { p_s, p_r, more } => {
                packet.skip(used);
                let delivered = channel.on_acknowledged(p_r, modulo)?;
                let arrived = channel.on_data(p_s, more, header.front, packet, unit_max)?;
                self.tell_delivered(number, delivered);
                if let Some(unit) = arrived {
                    let indication = Indication::Data {
                        channel: number,
                        data: unit.data,
                        qualifier: unit.qualifier,
                        delivery: unit.delivery,
                    };
                    self.indicate(indication, generation);
                }
            }
            Kind::ReceiveReady(p_r) | Kind::ReceiveNotReady(p_r) => {
                fixed(&packet, used, 0..=0)?;
                let delivered = channel.on_acknowledged(p_r, modulo)?;
                channel.on_peer_ready(matches!(header.kind, Kind::ReceiveReady(_)));
                self.tell_delivered(number, delivered);
            }
            Kind::Reject(_) => return Err(diagnostic::REJECT_NOT_SUBSCRIBED),
            Kind::Interrupt => {
                let length = packet.len() - used;
                if length == 0 {
                    return Err(diagnostic::TOO_SHORT);
                }
                if length > INTERRUPT_BYTES_MAX {
                    return Err(diagnostic::TOO_LONG);
                }
                if core::mem::replace(&mut channel.interrupt_in, true) {
                    return Err(diagnostic::UNAUTHORIZED_INTERRUPT);
                }
                packet.skip(used);
                self.indicate(Indication::Interrupt { channel: number, data: packet.to_vec() }, generation);
            }
            Kind::InterruptConfirmation => {
                fixed(&packet, used, 0..=0)?;
                if !core::mem::take(&mut channel.interrupt_out) {
                    return Err(diagnostic::UNAUTHORIZED_CONFIRMATION);
                }
                channel.interrupt_due = Instant::NEVER;
                self.indicate(Indication::InterruptConfirmed { channel: number }, 0);
            }
            Kind::ResetRequest if next == ResetState::Peer => {
                let code = fixed(&packet, used, 1..=2)?;
                channel.flush();
                let is_news = !core::mem::replace(&mut channel.reset_is_told, true);
                self.send(number, Kind::ResetConfirmation, &[]);
                if is_news {
                    self.indicate(Indication::Reset { channel: number, by_peer: true, cause: code }, 0);
                } else {
                    self.forget_units(number);
                }
            }
            // A reset confirmation, or a reset collision.
            _ => {
                channel.reset = ResetState::Ready;
                channel.due = Instant::NEVER;
                channel.tries = 0;
                self.tell_once(Indication::ResetConfirmed { channel: number });
            }
        }
        self.list(number);
        Ok(())
    }

    pub(super) fn tell_delivered(&mut self, channel: u16, count: usize) {
        (0..count).for_each(|_| self.indicate(Indication::Delivered { channel }, 0));
    }
}

fn event(kind: Kind) -> Event {
    match kind {
        Kind::Data { .. } | Kind::ReceiveReady(_) | Kind::ReceiveNotReady(_) | Kind::Reject(_) => Event::Flow,
        Kind::CallRequest => Event::Call,
        Kind::CallAccepted => Event::Accepted,
        Kind::ClearRequest => Event::Clear,
        Kind::ClearConfirmation => Event::ClearConfirmation,
        Kind::Interrupt | Kind::InterruptConfirmation => Event::Interrupt,
        Kind::ResetRequest => Event::Reset,
        Kind::ResetConfirmation => Event::ResetConfirmation,
        Kind::RestartRequest
        | Kind::RestartConfirmation
        | Kind::RegistrationRequest
        | Kind::RegistrationConfirmation => Event::Restart,
        Kind::Diagnostic | Kind::Unknown(_) => Event::Unknown,
    }
}

/// Returns the diagnostic for a decoding error.
fn fault(rule: Malformed) -> u8 {
    match rule {
        Malformed::FacilityLength => diagnostic::FACILITY_LENGTH,
        Malformed::AddressDigits => diagnostic::CALLED_ADDRESS,
        _ => diagnostic::TOO_SHORT,
    }
}

/// Checks the number of octets after the header; returns the first two as cause and diagnostic, if present.
fn fixed(packet: &Rope, used: usize, lengths: core::ops::RangeInclusive<usize>) -> Result<Cause, u8> {
    let length = packet.len().saturating_sub(used);
    if length < *lengths.start() {
        return Err(diagnostic::TOO_SHORT);
    }
    if length > *lengths.end() {
        return Err(diagnostic::TOO_LONG);
    }
    let mut octets = [0; 2];
    let count = packet.copy_to(used, &mut octets);
    Ok(Cause { cause: octets[0], diagnostic: (count > 1).then_some(octets[1]) })
}
