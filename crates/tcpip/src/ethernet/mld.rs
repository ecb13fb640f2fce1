//! Multicast listener discovery: the listener's part (RFC 3810, RFC 2710, RFC 3590).
//!
//! Purpose          report to multicast routers and snooping switches which groups the link listens to.
//! Joins, leaves    the first join of a group and the last leave are reported at once, and again until
//!                  `robustness` reports have been sent. All of them are reported again when the link-local
//!                  address becomes usable, because switches may ignore reports from `::` (RFC 3590 §4).
//! Queries          a query is answered after a random delay. One report answers all queries that are due.
//! Version 1        a query of version 1 makes the link speak version 1 until the querier has been silent for
//!                  `older_querier_timeout`. A change of version cancels pending responses and
//!                  retransmissions (RFC 3810 §8.2.1).
//! Limits           at most one response per [`RESPONSE_INTERVAL`], even if queries allow no delay: a flood
//!                  of queries must not become a flood of reports. The groups are those of our addresses,
//!                  whose number is bounded.
//! Not reported     the all-nodes group, which IP accepts by itself (RFC 3810 §6).
//! Not implemented  source filters: every listener accepts all sources, so a query for some sources is
//!                  answered like one for the group. Groups of sockets: a board has none.

use super::addresses::AddressState;
use super::link::{Link, Output, group_mac6};
use super::listener::ROBUSTNESS;
use crate::ip::HeaderInfo;
use crate::wire::discovery::ALL_ROUTERS;
use crate::wire::ipv6_extension::{self, PAD_MORE, ROUTER_ALERT};
use crate::wire::mld::{
    ALL_V2_ROUTERS, HOP_LIMIT, Message, RECORD_BYTES, Record, Records, max_response_delay, query_interval,
    record,
};
use crate::wire::{icmpv6, ipv6};
use alloc::vec::Vec;
use core::net::Ipv6Addr;
use core::time::Duration;
use kiban_base::numbers::protocol;
use kiban_base::{Context, Instant, Sum, checksum};

/// Minimum time between two responses to queries; less than a router waits for the response to its last
/// query for a group (RFC 3810 §9.10: 2 s).
const RESPONSE_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum time between the reports of one change (RFC 3810 §9.11), also in version 1 (RFC 2710 §7.10).
const UNSOLICITED_INTERVAL: Duration = Duration::from_secs(1);
const UNSOLICITED_INTERVAL_V1: Duration = Duration::from_secs(10);
/// Maximum number of records in one report; it then fits the smallest MTU.
const RECORDS_MAX: usize = 56;

/// Returns a random time of at most `longest`.
fn random(longest: Duration, cx: &mut Context<'_>) -> Duration {
    Duration::from_nanos(cx.rng.below(longest.as_nanos() as u64 + 1))
}

impl Link {
    /// Joins a group; the join is reported at `at`.
    pub(super) fn join(&mut self, group: Ipv6Addr, at: Instant) {
        if self.mld.join(group, at) {
            self.due.push_back(Output::Group(group, true));
        }
    }

    /// Leaves a group.
    pub(super) fn leave(&mut self, group: Ipv6Addr, now: Instant) {
        if self.mld.leave(group, now) {
            self.due.push_back(Output::Group(group, false));
        }
    }

    /// Processes a message whose checksum is correct.
    pub(super) fn on_mld(&mut self, bytes: &[u8], source: Ipv6Addr, brief: HeaderInfo, cx: &mut Context<'_>) {
        // RFC 3810 §6.2: other messages may come from beyond the link.
        let is_of_link = source.is_unicast_link_local() && brief.hop_limit == HOP_LIMIT && brief.router_alert;
        let (message, true, false) = (Message::read(bytes), is_of_link, brief.in_fragments) else {
            self.counters.mld_malformed += 1;
            return;
        };
        let (group, delay) = match message {
            Ok((Message::QueryV1 { max_response_ms, group }, _)) => {
                let delay = Duration::from_millis(max_response_ms.into());
                if self.mld.v1_until.is_none() {
                    self.mld.cancel();
                }
                self.mld.v1_until = Some(cx.now + self.mld.older_querier_timeout(delay));
                (group, delay)
            }
            Ok((Message::Query { max_response_code, group, robustness, interval_code, .. }, _)) => {
                self.mld.robustness = if robustness == 0 { ROBUSTNESS } else { robustness };
                self.mld.query_interval = query_interval(interval_code).max(Duration::from_secs(1));
                (group, max_response_delay(max_response_code))
            }
            // RFC 2710 §4: another listener has reported the group.
            Ok((Message::ReportV1 { group }, _)) if self.mld.v1_until.is_some() => {
                if let Some(known) = self.mld.groups.iter_mut().find(|known| known.group == group) {
                    (known.changes_left, known.response_at) = (0, Instant::NEVER);
                }
                return;
            }
            Ok(_) => {
                self.counters.mld_ignored += 1;
                return;
            }
            Err(_) => {
                self.counters.mld_malformed += 1;
                return;
            }
        };
        self.counters.mld_queries_in += 1;
        let is_v1 = self.mld.v1_until.is_some();
        let at = cx.now + random(delay, cx);
        if at < self.mld.respond_from {
            self.counters.mld_rate_limited += 1;
        }
        if group.is_unspecified() && !is_v1 {
            // RFC 3810 §6.2, rules 1 and 2.
            self.mld.general_at = self.mld.general_at.min(at);
            return;
        }
        let mut is_known = false;
        for known in self.mld.groups.iter_mut().filter(|known| known.joins > 0) {
            if group.is_unspecified() {
                // RFC 2710 §4: each group has a timer of its own.
                known.response_at = known.response_at.min(cx.now + random(delay, cx));
            } else if known.group == group && self.mld.general_at > at {
                known.response_at = known.response_at.min(at);
            }
            is_known |= group.is_unspecified() || known.group == group;
        }
        if !is_known {
            self.counters.mld_ignored += 1;
        }
    }

    /// Sends the reports that are due.
    pub(super) fn settle_mld(&mut self, cx: &mut Context<'_>) {
        if self.mld.deadline() > cx.now {
            return;
        }
        if self.mld.v1_until.is_some_and(|until| until <= cx.now) {
            self.mld.v1_until = None;
            self.mld.cancel();
        }
        if self.mld.change_at <= cx.now {
            self.report_changes(cx);
        }
        if self.mld.response_at().max(self.mld.respond_from) <= cx.now {
            self.respond(cx);
        }
    }

    fn report_changes(&mut self, cx: &mut Context<'_>) {
        let is_v1 = self.mld.v1_until.is_some();
        let mut changes = Vec::new();
        for known in self.mld.groups.iter_mut().filter(|known| known.changes_left > 0) {
            known.changes_left -= 1;
            let kind = if known.joins > 0 { record::TO_EXCLUDE } else { record::TO_INCLUDE };
            if is_v1 && known.joins == 0 {
                // RFC 2710 §4: a done message is sent once.
                known.changes_left = 0;
            }
            changes.push((kind, known.group));
        }
        self.mld.groups.retain(|known| known.joins > 0 || known.changes_left > 0);
        self.mld.change_at = match self.mld.groups.iter().any(|known| known.changes_left > 0) {
            true => cx.now + random(if is_v1 { UNSOLICITED_INTERVAL_V1 } else { UNSOLICITED_INTERVAL }, cx),
            false => Instant::NEVER,
        };
        self.send_reports(&changes, cx);
    }

    fn respond(&mut self, cx: &mut Context<'_>) {
        let all = self.mld.general_at <= cx.now;
        let mut current = Vec::new();
        for known in self.mld.groups.iter_mut().filter(|known| known.joins > 0) {
            if all || known.response_at <= cx.now {
                known.response_at = Instant::NEVER;
                current.push((record::IS_EXCLUDE, known.group));
            }
        }
        if all {
            self.mld.general_at = Instant::NEVER;
        }
        self.mld.respond_from = cx.now + RESPONSE_INTERVAL;
        self.send_reports(&current, cx);
    }

    /// Sends records in the version of the querier.
    fn send_reports(&mut self, records: &[(u8, Ipv6Addr)], cx: &mut Context<'_>) {
        if self.mld.v1_until.is_some() {
            for &(kind, group) in records {
                match kind {
                    record::TO_INCLUDE => self.send_mld(ALL_ROUTERS, Message::Done { group }, cx),
                    _ => self.send_mld(group, Message::ReportV1 { group }, cx),
                }
            }
            return;
        }
        for part in records.chunks(RECORDS_MAX) {
            let mut bytes = [0; RECORDS_MAX * RECORD_BYTES];
            let mut length = 0;
            for &(kind, group) in part {
                length += Record { kind, group, sources: &[] }.write(&mut bytes[length..]);
            }
            let records = Records::new(&bytes[..length], part.len() as u16);
            self.send_mld(ALL_V2_ROUTERS, Message::Report(records), cx);
        }
    }

    /// Sends a message with a hop limit of 1 and a router alert option (RFC 3810 §5).
    fn send_mld(&mut self, target: Ipv6Addr, message: Message<'_>, cx: &mut Context<'_>) {
        // RFC 3810 §5.2.13, RFC 3590 §4: the link-local address, or `::` before there is one.
        let own = self.autoconf.own.iter().filter(|own| own.standing == AddressState::Ready);
        let source = own.map(|own| own.address).find(Ipv6Addr::is_unicast_link_local);
        let source = source.unwrap_or(Ipv6Addr::UNSPECIFIED);
        let length = message.length();
        let mut bytes = alloc::vec![0; length];
        message.write(&mut bytes);
        let rest = checksum::pseudo_ipv6(source, target, protocol::ICMPV6, length)
            .plus(Sum::of(&bytes[icmpv6::HEADER_BYTES..]));
        icmpv6::fill(&mut bytes, rest);
        let Some(mut pdu) = self.pdu_of(&bytes, cx) else { return };
        let [next, alert, pad] = [protocol::ICMPV6, ROUTER_ALERT, PAD_MORE];
        pdu.push_head(ipv6_extension::HEADER_BYTES).copy_from_slice(&[next, 0, alert, 2, 0, 0, pad, 0]);
        let header = ipv6::Header {
            traffic_class: 0,
            flow_label: 0,
            payload_bytes: (length + ipv6_extension::HEADER_BYTES) as u16,
            next_header: protocol::HOP_BY_HOP,
            hop_limit: HOP_LIMIT,
            source,
            target,
        };
        header.write(pdu.push_head(ipv6::HEADER_BYTES));
        self.counters.mld_reports_out += 1;
        self.due.push_back(Output::Packet { mac: group_mac6(target), pdu });
    }
}
