//! Receive path: decodes SPDUs, reassembles them from segments, and validates them.

use super::cause::Cause;
use super::config::{OFFERED, TSDU_BYTES_MIN};
use super::machine::Session;
use super::primitives::{AbortReason, Indication};
use super::state::{self, Action, Event, Given, State, Verdict};
use crate::Selector;
use crate::wire::session as wire;
use crate::wire::session::{Enclosed, RefuseReason, Resynchronisation, Spdu, Tsdu, Units, Versions};
use kiban_base::{Instant, Rope};

impl Session {
    #[inline]
    pub(super) fn on_tsdu(&mut self, tsdu: Rope, now: Instant) {
        self.counters.tsdus_in += 1;
        match Tsdu::read(tsdu) {
            Ok(Tsdu { first: Spdu::Data(data), then: None }) => self.on_data(data, false, now),
            Ok(Tsdu { first, then }) => {
                self.on_spdu(first, now);
                if let Some(then) = then {
                    self.on_spdu(then, now);
                }
            }
            Err(_) => {
                self.counters.tsdus_malformed += 1;
                self.on_event(Event::Other, Cause::default(), Given::default(), now);
            }
        }
    }

    #[inline]
    fn on_data(&mut self, data: Enclosed, typed: bool, now: Instant) {
        let event = if typed { Event::Td } else { Event::Dt };
        // Segments of one service data unit must follow each other without other SPDUs between them (§7.37).
        if self.partial.is_some() {
            return self.protocol_error(now);
        }
        match state::verdict(self.state, event, &self.variables, &Given::default()) {
            Verdict::Go([Action::SDtInd | Action::STdInd], _) => self.assemble(data, typed, now),
            Verdict::Go(actions, next) => self.act(actions, next, Cause::default(), now),
            Verdict::Invalid => self.protocol_error(now),
        }
    }

    #[inline]
    fn assemble(&mut self, part: Enclosed, typed: bool, now: Instant) {
        let (begins, ends) = (part.begins(), part.ends());
        let mut ssdu = match (self.ssdu.take(), begins) {
            (None, true) => Rope::new(),
            (Some((kind, ssdu)), false) if kind == typed => ssdu,
            _ => return self.protocol_error(now),
        };
        if ssdu.len() + part.data.len() > self.config.ssdu_bytes_max {
            self.counters.ssdus_oversized += 1;
            return self.abort(AbortReason::Restriction, now);
        }
        ssdu.append(part.data);
        if !ends {
            self.ssdu = Some((typed, ssdu));
        } else if typed {
            self.up.push_back(Indication::TypedData(ssdu));
        } else {
            self.up.push_back(Indication::Data(ssdu));
        }
    }

    fn on_spdu(&mut self, spdu: Spdu, now: Instant) {
        let mut spdu = match spdu {
            Spdu::Data(data) => return self.on_data(data, false, now),
            Spdu::TypedData(data) => return self.on_data(data, true, now),
            spdu => spdu,
        };
        if let Some(data) = enclosed(&mut spdu) {
            let part = core::mem::take(data);
            match self.join(spdu, part, now) {
                Some(whole) => spdu = whole,
                None => return,
            }
        } else {
            self.partial = None;
        }
        // §7.11.3: any other SPDU between segments of data is an error, or makes this end discard the
        // segments.
        if self.ssdu.is_some()
            && !matches!(spdu, Spdu::Resynchronise { .. } | Spdu::Abort(_))
            && matches!(self.state, State::Sta713 | State::Sta03)
        {
            return self.protocol_error(now);
        }
        let (event, given) = self.event(&mut spdu);
        let cause =
            Cause { serial: given.serial, tokens: given.tokens, spdu: Some(spdu), ..Cause::default() };
        self.on_event(event, cause, given, now);
    }

    /// Reassembles an SPDU from its segments (§7.37), and returns it once it is complete.
    fn join(&mut self, mut spdu: Spdu, part: Enclosed, now: Instant) -> Option<Spdu> {
        let (begins, ends) = (part.begins(), part.ends());
        let abort = matches!(spdu, Spdu::Abort(_));
        let (mut first, mut user_data) = match self.partial.take() {
            Some((first, user_data)) if !begins && same_kind(&first, &spdu) => (first, user_data),
            None if begins => (spdu, Rope::new()),
            // An ABORT may come at any time.
            Some(_) if begins && abort => (spdu, Rope::new()),
            _ => {
                self.protocol_error(now);
                return None;
            }
        };
        if user_data.len() + part.data.len() > self.config.user_data_bytes_max {
            self.counters.ssdus_oversized += 1;
            match self.state {
                State::Sta16 => {}
                _ if state::in_connection(self.state) => self.abort(AbortReason::Restriction, now),
                _ => self.on_event(Event::Other, Cause::default(), Given::default(), now),
            }
            return None;
        }
        user_data.append(part.data);
        if !ends {
            self.partial = Some((first, user_data));
            return None;
        }
        if let Some(data) = enclosed(&mut first) {
            *data = Enclosed::whole(user_data);
        }
        spdu = first;
        Some(spdu)
    }

    /// Returns the state table event that corresponds to an SPDU, and the values on which the predicates
    /// depend.
    fn event(&mut self, spdu: &mut Spdu) -> (Event, Given) {
        let mut given = Given::default();
        let event = match spdu {
            Spdu::Connect(connect) => {
                given.unacceptable = self.refusal_reason(connect).is_some();
                given.overflow = connect.overflow;
                Event::Cn
            }
            Spdu::OverflowAccept(accept) => {
                if !accept.versions.has(Versions::V2) || self.tsdu_out(accept.tsdu_sizes).is_none() {
                    return (Event::Other, given);
                }
                Event::Oa
            }
            Spdu::ConnectDataOverflow(data) => {
                given.end = data.ends();
                let had = self.connect.as_ref().map_or(0, |connect| connect.user_data.len());
                if had + data.data.len() > self.config.user_data_bytes_max {
                    self.counters.ssdus_oversized += 1;
                    return (Event::Other, given);
                }
                Event::Cdo
            }
            Spdu::Accept(accept) => {
                if self.state == State::Sta02A && !self.is_possible(accept) {
                    return (Event::Other, given);
                }
                Event::Ac
            }
            Spdu::Refuse(refuse) if refuse.keep => Event::RfR,
            Spdu::Refuse(_) => Event::RfNr,
            Spdu::Finish { keep, .. } => {
                if *keep {
                    Event::FnR
                } else {
                    Event::FnNr
                }
            }
            Spdu::Disconnect(_) => Event::Dn,
            Spdu::NotFinished(_) => Event::Nf,
            Spdu::Abort(abort) if abort.keep => Event::AbR,
            Spdu::Abort(_) => Event::AbNr,
            Spdu::AbortAccept => Event::Aa,
            Spdu::GiveTokens { tokens: Some(tokens), .. } => {
                given.tokens = *tokens;
                Event::Gt
            }
            Spdu::PleaseTokens { tokens: Some(tokens), .. } => {
                given.tokens = *tokens;
                Event::Pt
            }
            Spdu::SyncMinor { serial: Some(serial), .. } => {
                given.serial = *serial;
                Event::Mip
            }
            Spdu::SyncMinorAck { serial: Some(serial), .. } => {
                given.serial = *serial;
                Event::Mia
            }
            Spdu::Resynchronise { kind: Some(kind), serial: Some(serial), .. } => {
                (given.kind, given.serial) = (*kind, *serial);
                Event::Rs
            }
            Spdu::ResynchroniseAck { serial: Some(serial), .. } => {
                given.serial = *serial;
                Event::Ra
            }
            _ => Event::Other,
        };
        (event, given)
    }

    fn on_event(&mut self, event: Event, cause: Cause, given: Given, now: Instant) {
        match state::verdict(self.state, event, &self.variables, &given) {
            Verdict::Go(actions, next) => self.act(actions, next, cause, now),
            Verdict::Invalid => self.protocol_error(now),
        }
    }

    /// Handles a protocol error (§A.4.1.2) if there is a connection that has not already been aborted.
    fn protocol_error(&mut self, now: Instant) {
        // After an abort, everything else is discarded, including further segments (§7.9.2, §7.37.3 c).
        if self.state == State::Sta16 {
            return;
        }
        self.counters.spdus_unexpected += 1;
        if state::in_connection(self.state) {
            self.abort(AbortReason::ProtocolError, now);
        } else if matches!(self.state, State::Sta01C | State::Sta01D) {
            self.disconnect();
            self.become_state(State::Sta01, now);
        }
    }

    /// p76: returns the reason to refuse a CONNECT, if there is one (§8.3.5.10).
    pub(super) fn refusal_reason(&self, connect: &wire::Connect) -> Option<RefuseReason> {
        let versions = connect.versions.and(self.config.versions);
        let sizes = connect.tsdu_sizes;
        let too_small = |bytes_max| bytes_max != 0 && bytes_max < TSDU_BYTES_MIN;
        if versions.is_empty() || connect.overflow && !versions.has(Versions::V2) {
            Some(RefuseReason::Version)
        } else if !self.config.attached.has(&Selector::from(&connect.called[..])) {
            Some(RefuseReason::SelectorUnknown)
        } else if !connect.units.has(Units::DUPLEX)
            || too_small(sizes.initiator_bytes_max)
            || too_small(sizes.responder_bytes_max)
            || connect.user_data.len() > self.config.user_data_bytes_max
        {
            Some(RefuseReason::ProviderRestriction)
        } else {
            None
        }
    }

    /// Returns whether an ACCEPT is a valid answer to the CONNECT that this end sent.
    fn is_possible(&self, accept: &wire::Accept) -> bool {
        let Some(connect) = &self.connect else { return false };
        let units = connect.units.and(accept.units).and(OFFERED);
        !connect.versions.and(accept.versions).is_empty()
            && units.has(Units::DUPLEX)
            // Exactly one of half-duplex and duplex is selected (§8.3.4.17).
            && !accept.units.has(Units::HALF_DUPLEX)
            && self.tsdu_out(accept.tsdu_sizes).is_some()
    }

    /// Returns the maximum size of a TSDU that this end, the initiator, may send, given the responder's
    /// sizes. `None` if that size is too small.
    pub(super) fn tsdu_out(&self, sizes: wire::TsduSizes) -> Option<usize> {
        let own = super::send::wanted(self.config.tsdu_out_bytes_max);
        let bytes = smaller(own, sizes.initiator_bytes_max);
        (bytes == 0 || bytes >= TSDU_BYTES_MIN).then_some(bytes.into())
    }
}

/// Returns the smaller of two limits; 0 means unlimited.
pub(super) fn smaller(one: u16, other: u16) -> u16 {
    match (one, other) {
        (0, bytes) | (bytes, 0) => bytes,
        (one, other) => one.min(other),
    }
}

/// Returns the SPDU's user data, if it may be segmented; CONNECT DATA OVERFLOW is handled elsewhere.
fn enclosed(spdu: &mut Spdu) -> Option<&mut Enclosed> {
    match spdu {
        Spdu::Accept(accept) => Some(&mut accept.data),
        Spdu::Refuse(refuse) => Some(&mut refuse.data),
        Spdu::Abort(abort) => Some(&mut abort.data),
        Spdu::Finish { data, .. }
        | Spdu::Disconnect(data)
        | Spdu::NotFinished(data)
        | Spdu::GiveTokens { data, .. }
        | Spdu::PleaseTokens { data, .. }
        | Spdu::SyncMinor { data, .. }
        | Spdu::SyncMinorAck { data, .. }
        | Spdu::Resynchronise { data, .. }
        | Spdu::ResynchroniseAck { data, .. } => Some(data),
        _ => None,
    }
}

fn same_kind(one: &Spdu, other: &Spdu) -> bool {
    core::mem::discriminant(one) == core::mem::discriminant(other)
}

/// Returns the serial number of a resynchronisation for which the user has not chosen one.
pub(super) fn proposal(kind: Resynchronisation, serial: u32, next: u32) -> u32 {
    match kind {
        Resynchronisation::Abandon => next,
        Resynchronisation::Restart | Resynchronisation::Set => serial,
    }
}
