//! IPv4 groups: the host's part of IGMP (RFC 3376, RFC 2236), and joining and leaving for both families.
//!
//! Purpose          report to multicast routers and snooping switches which groups the link listens to. The
//!                  rules are those of MLD (`mld`), and `listener` has the state of both.
//! Older queriers   a query of version 1 or 2 makes the link speak version 2 until the querier has been
//!                  silent for a while (RFC 3376 §7.2.1).
//! Receive path     messages must have a TTL of 1, because others may come from beyond the link. The source
//!                  may be 0.0.0.0, which snooping switches without an address use (RFC 4541 §2.1.1).
//! Not reported     the all-hosts group, which IP accepts by itself (RFC 3376 §6).
//! Not implemented  source filters, as with MLD; reports of version 1 (a querier of version 1 gets those of
//!                  version 2).

use super::link::{Link, Output, group_mac4};
use crate::ip::HeaderInfo;
use crate::wire::discovery::ALL_NODES;
use crate::wire::igmp::{
    ALL_HOSTS, ALL_ROUTERS, ALL_V3_ROUTERS, Message, RECORD_BYTES, Record, Records, TIME_TO_LIVE,
    max_response_time, query_interval, record, verify,
};
use crate::wire::ipv4;
use crate::wire::ipv4_options::ROUTER_ALERT;
use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;
use kiban_base::numbers::protocol;
use kiban_base::{Context, Instant};

/// Maximum number of records in one report; it then fits a packet of 576 bytes.
const RECORDS_MAX: usize = 64;
/// Maximum response time of a querier of version 1 (RFC 2236 §4).
const RESPONSE_TIME_V1: Duration = Duration::from_secs(10);
/// The router alert option (RFC 2113).
const ALERT: [u8; 4] = [ROUTER_ALERT, 4, 0, 0];
/// Internetwork control (RFC 3376 §4: type of service 0xc0).
const TRAFFIC_CLASS: u8 = 0xc0;

impl Link {
    /// Joins a group; the join is reported at `at`.
    pub fn join(&mut self, group: IpAddr, at: Instant) {
        let is_first = match group {
            IpAddr::V4(group) => group != ALL_HOSTS && self.igmp.join(group, at),
            IpAddr::V6(group) => group != ALL_NODES && self.mld.join(group, at),
        };
        if is_first {
            self.due.push_back(Output::Group(group, true));
        }
    }

    /// Leaves a group.
    pub fn leave(&mut self, group: IpAddr, now: Instant) {
        let was_last = match group {
            IpAddr::V4(group) => self.igmp.leave(group, now),
            IpAddr::V6(group) => self.mld.leave(group, now),
        };
        if was_last {
            self.due.push_back(Output::Group(group, false));
        }
    }

    /// Processes a message.
    pub(super) fn on_igmp(&mut self, bytes: &[u8], brief: HeaderInfo, cx: &mut Context<'_>) {
        let is_good = brief.hop_limit == TIME_TO_LIVE && !brief.in_fragments && verify(bytes).is_ok();
        let (Ok((message, _)), true) = (Message::read(bytes), is_good) else {
            self.counters.igmp_malformed += 1;
            return;
        };
        let (group, delay) = match message {
            Message::OldQuery { max_response_code, group } => {
                let delay = match max_response_code {
                    0 => RESPONSE_TIME_V1,
                    tenths => Duration::from_millis(u64::from(tenths) * 100),
                };
                self.igmp.on_older_querier(delay, cx.now);
                (group, delay)
            }
            Message::Query { max_response_code, group, robustness, interval_code, .. } => {
                self.igmp.on_querier(robustness, query_interval(interval_code));
                (group, max_response_time(max_response_code))
            }
            Message::ReportV1 { group } | Message::ReportV2 { group } if self.igmp.older_until.is_some() => {
                self.igmp.on_report(group);
                return;
            }
            _ => {
                self.counters.igmp_ignored += 1;
                return;
            }
        };
        self.counters.igmp_queries_in += 1;
        let queried = self.igmp.on_query((!group.is_unspecified()).then_some(group), delay, cx);
        self.counters.igmp_rate_limited += u64::from(queried.is_limited);
        self.counters.igmp_ignored += u64::from(!queried.is_known);
    }

    /// Sends the reports that are due.
    pub(super) fn settle_igmp(&mut self, cx: &mut Context<'_>) {
        if self.igmp.deadline() > cx.now {
            return;
        }
        self.igmp.expire(cx.now);
        let changes = self.igmp.take_changes(cx);
        self.report4(&changes, cx);
        let responses = self.igmp.take_responses(cx);
        self.report4(&responses, cx);
    }

    /// Sends records in the version of the querier.
    fn report4(&mut self, records: &[(u8, Ipv4Addr)], cx: &mut Context<'_>) {
        if self.igmp.older_until.is_some() {
            for &(kind, group) in records {
                match kind {
                    record::TO_INCLUDE => self.send_igmp(ALL_ROUTERS, Message::Leave { group }, cx),
                    _ => self.send_igmp(group, Message::ReportV2 { group }, cx),
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
            self.send_igmp(ALL_V3_ROUTERS, Message::Report(records), cx);
        }
    }

    /// Sends a message with a TTL of 1 and a router alert option (RFC 3376 §4).
    fn send_igmp(&mut self, target: Ipv4Addr, message: Message<'_>, cx: &mut Context<'_>) {
        // RFC 3376 §4.2.13: 0.0.0.0 before there is an address.
        let source = self.own4.first().map_or(Ipv4Addr::UNSPECIFIED, |(address, _)| *address);
        let mut bytes = alloc::vec![0; message.length()];
        message.write(&mut bytes);
        let Some(mut pdu) = self.pdu_of(&bytes, cx) else { return };
        let header = ipv4::Header {
            traffic_class: TRAFFIC_CLASS,
            total_bytes: (ipv4::HEADER_BYTES + ALERT.len() + bytes.len()) as u16,
            identification: 0,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset_bytes: 0,
            time_to_live: TIME_TO_LIVE,
            protocol: protocol::IGMP,
            source,
            target,
            options: &ALERT,
        };
        header.write(pdu.push_head(header.length()));
        self.counters.igmp_reports_out += 1;
        self.due.push_back(Output::Packet { mac: group_mac4(target), pdu });
    }
}
