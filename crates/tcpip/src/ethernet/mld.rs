//! Multicast listener discovery: the listener's part (RFC 3810, RFC 2710, RFC 3590).
//!
//! Purpose          report to multicast routers and snooping switches which groups the link listens to.
//! Joins, leaves    the first join of a group and the last leave are reported at once, and again until
//!                  `robustness` reports have been sent. All of them are reported again when the link-local
//!                  address becomes usable, because switches may ignore reports from `::` (RFC 3590 §4).
//! Queries          a query is answered after a random delay. One report answers all queries that are due.
//! Version 1        a query of version 1 makes the link speak version 1 until the querier has been silent for
//!                  a while (§9.12). A change of version cancels pending responses and retransmissions (RFC
//!                  3810 §8.2.1).
//! Limits           at most one response per second, even if queries allow no delay: a flood of queries must
//!                  not become a flood of reports. The groups are those of our addresses and of sockets,
//!                  whose number is bounded.
//! Not reported     the all-nodes group, which IP accepts by itself, and groups of scopes 0 and 1, which the
//!                  board does not join here (RFC 3810 §6).
//! Not implemented  source filters: every listener accepts all sources, so a query for some sources is
//!                  answered like one for the group.

use super::addresses::AddressState;
use super::link::{Link, Output, group_mac6};
use crate::ip::HeaderInfo;
use crate::wire::discovery::ALL_ROUTERS;
use crate::wire::ipv6_extension::{self, PAD_MORE, ROUTER_ALERT};
use crate::wire::mld::{
    ALL_V2_ROUTERS, HOP_LIMIT, Message, RECORD_BYTES, Record, Records, max_response_delay, query_interval,
    record,
};
use crate::wire::{icmpv6, ipv6};
use core::net::Ipv6Addr;
use core::time::Duration;
use kiban_base::numbers::protocol;
use kiban_base::{Context, Sum, checksum};

/// Maximum number of records in one report; it then fits the smallest MTU.
const RECORDS_MAX: usize = 56;

impl Link {
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
                self.mld.on_older_querier(delay, cx.now);
                (group, delay)
            }
            Ok((Message::Query { max_response_code, group, robustness, interval_code, .. }, _)) => {
                self.mld.on_querier(robustness, query_interval(interval_code));
                (group, max_response_delay(max_response_code))
            }
            Ok((Message::ReportV1 { group }, _)) if self.mld.older_until.is_some() => {
                self.mld.on_report(group);
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
        let queried = self.mld.on_query((!group.is_unspecified()).then_some(group), delay, cx);
        self.counters.mld_rate_limited += u64::from(queried.is_limited);
        self.counters.mld_ignored += u64::from(!queried.is_known);
    }

    /// Sends the reports that are due.
    pub(super) fn settle_mld(&mut self, cx: &mut Context<'_>) {
        if self.mld.deadline() > cx.now {
            return;
        }
        self.mld.expire(cx.now);
        let changes = self.mld.take_changes(cx);
        self.send_reports(&changes, cx);
        let responses = self.mld.take_responses(cx);
        self.send_reports(&responses, cx);
    }

    /// Sends records in the version of the querier.
    fn send_reports(&mut self, records: &[(u8, Ipv6Addr)], cx: &mut Context<'_>) {
        if self.mld.older_until.is_some() {
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
