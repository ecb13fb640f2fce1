//! Connections that are not set up, or not answered.
//!
//! Purpose          find a SYN that is refused, not answered or answered late, and a request that the server
//!                  acknowledges and never answers.
//! Limits           a program that sends one message and wants no answer, over a connection that it leaves
//!                  open, looks like one that waits for an answer.

use super::connection::{Connection, Packet};
use super::verdict::Direction;
use crate::cause::Cause;
use crate::figures::MILLISECOND;
use crate::figures::{millis, plural, seconds, time, times};
use crate::finding::{Evidence, Finding};
use kiban_tcpip::wire::tcp::Flags;

/// The shortest wait for an answer to a SYN that a timer ended. RFC 6298 §2.1: a second.
const SYN_WAIT_MIN: u64 = 500 * MILLISECOND;
/// An answer that takes longer is missed.
const RESPONSE_WAIT_MIN: u64 = 1000 * MILLISECOND;

/// Returns what went wrong with the handshake.
pub(crate) fn find(connection: &Connection) -> Option<Finding> {
    let packets = &connection.packets;
    let begin = packets.first()?.at;
    let whole = packets.last()?.at - begin;
    let syns =
        |end: usize| packets.iter().filter(move |packet| packet.end == end && packet.flags.has(Flags::SYN));
    let others =
        |end: usize| packets.iter().filter(move |packet| packet.end == end && !packet.flags.has(Flags::SYN));
    let (first, last) = (syns(0).next()?, syns(0).next_back()?);
    let lost = last.at - first.at;
    let finding = |cause: Cause, lost: u64, because: String, evidence: Vec<&Packet>, what: &str| Finding {
        cause,
        sender: 0,
        lost_ms: millis(lost),
        lost_percent: (lost as f64 * 1000.0 / whole.max(1) as f64).round() / 10.0,
        because,
        advice: cause.advice(),
        evidence: vec![Evidence {
            packets: evidence.iter().map(|packet| packet.number).take(4).collect(),
            at_s: seconds(evidence[0].at - begin),
            lost_ms: millis(lost),
            what: what.to_owned(),
        }],
    };
    let tries = syns(0).count();
    if syns(1).next().is_none() {
        if let Some(reset) = others(1).find(|packet| packet.flags.has(Flags::RST)) {
            let after = time(reset.at.saturating_sub(last.at));
            let because =
                format!("The server, or a firewall, answered the SYN with a reset (RST) after {after}.");
            return Some(finding(Cause::Refused, whole, because, vec![last, reset], "the SYN and the reset"));
        }
        let is_unanswered = tries >= 2 && lost >= SYN_WAIT_MIN && others(0).chain(others(1)).next().is_none();
        let because =
            format!("The client sent its SYN {} in {}, and nothing answered.", times(tries), time(lost));
        return is_unanswered
            .then(|| finding(Cause::NoHandshake, whole, because, syns(0).collect(), "the SYNs"));
    }
    let answers = syns(1).count();
    if answers >= 2 && others(0).next().is_none() {
        let because = format!(
            "The server answered the SYN with {}, and the client never acknowledged.",
            plural(answers, "SYN-ACK")
        );
        let shown = syns(0).take(1).chain(syns(1)).collect();
        return Some(finding(Cause::NoHandshake, whole, because, shown, "the SYN and its answers"));
    }
    // SYNs are retransmitted after a second.
    if tries < 2 || lost < SYN_WAIT_MIN || lost * 10 < whole {
        return None;
    }
    let because = format!("The client sent its SYN {} before the connection was set up.", times(tries));
    let mut late = finding(Cause::RetransmissionTimeout, lost, because, syns(0).collect(), "the SYNs");
    late.advice = "Find what drops the first SYNs: a full listen queue at the server (nstat TcpExtListenOverflows, \
                   TcpExtListenDrops), or the path.";
    Some(late)
}

/// Returns a request that the server acknowledged but did not answer until the end of the connection.
pub(crate) fn no_response(connection: &Connection, directions: &[Direction; 2]) -> Option<Finding> {
    let [request, answer] = directions;
    let (first, last) = (request.timeline.sends.first()?, request.timeline.sends.last()?);
    let ack = request.timeline.acks.iter().find(|ack| ack.acknowledged >= last.end)?;
    // Several messages without any answer need none.
    let is_one = request.timeline.sends.windows(2).all(|pair| pair[1].at - pair[0].at < RESPONSE_WAIT_MIN);
    if connection.syn[0].is_none() || !answer.timeline.sends.is_empty() || !is_one {
        return None;
    }
    let is_end = |packet: &&Packet| packet.at >= last.at && packet.flags.has_any(Flags::FIN.with(Flags::RST));
    let end = connection.packets.iter().find(is_end);
    let (until, how) = match end {
        None => (connection.packets.last()?, "when the capture ended"),
        Some(packet) => {
            (packet, ["when the client closed the connection", "when it closed the connection"][packet.end])
        }
    };
    let lost = until.at.saturating_sub(last.at);
    let begin = connection.packets.first()?.at;
    let whole = until.at - begin;
    let cause = Cause::NoResponse;
    (lost >= RESPONSE_WAIT_MIN && lost * 2 >= whole).then(|| Finding {
        cause,
        sender: 1,
        lost_ms: millis(lost),
        lost_percent: (lost as f64 * 1000.0 / whole.max(1) as f64).round() / 10.0,
        because: format!(
            "The server acknowledged the request of {} and had sent no data {} later, {how}.",
            plural((last.end - first.start) as usize, "byte"),
            time(lost)
        ),
        advice: cause.advice(),
        evidence: vec![Evidence {
            packets: vec![last.number, ack.number, until.number],
            at_s: seconds(last.at - begin),
            lost_ms: millis(lost),
            what: format!("the request, its acknowledgement, and {} without data", time(lost)),
        }],
    })
}
