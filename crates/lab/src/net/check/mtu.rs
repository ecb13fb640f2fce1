//! Path MTU in both directions, and whether somebody reports it.
//!
//! Method    unfragmented datagrams of decreasing length to the host, with short replies; then of the lengths
//!           that arrive, with replies of the same length. The longest of which one of [`COUNT`] arrives is
//!           the path MTU.
//! Fault     a black hole: longer packets vanish, and the kernel of their sender has not learned a smaller
//!           path MTU, so no ICMP message "fragmentation needed" or "packet too big" came (RFC 2923 §2.1).
//! Innocent  a smaller path MTU that is reported; losses that do not depend on the length (then a probe of
//!           the boundary's length is lost, too).
//! Limits    replies are tested up to the path MTU to the host, because they are never longer than probes.

use super::finding::{Cause, Finding};
use super::probe::probe;
use crate::engine::Failure;
use crate::net::latency::Prober;
use crate::remote::client::Client;
use crate::remote::probes::PROBE_OCTETS;
use kiban_os::Clock;
use serde::Serialize;
use std::time::Duration;

/// The number of probes of each length.
const COUNT: usize = 3;
/// The number of probes that confirm the boundary on both sides.
const CONFIRM: usize = 6;
/// The octets of the headers of TCP with timestamps, which a segment adds to its data and the IP header.
const TCP_OCTETS: u32 = 32;

/// The path MTU of one direction.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct MtuReport {
    /// The longest IP packet that arrives, bytes.
    pub mtu_bytes: u32,
    /// The longest that was tried, bytes: the sender's interface, or the path MTU to the host.
    pub tried_bytes: u32,
    /// The path MTU that the sender's kernel knows.
    pub known_bytes: Option<u32>,
    /// Of packets of `mtu_bytes`, the number that arrived and that were sent.
    pub arrived: [usize; 2],
    /// The same of the next longer packets, and their length.
    pub beyond: Option<(u32, [usize; 2])>,
}

impl MtuReport {
    /// Returns the finding, if packets vanish without a message.
    pub(super) fn finding(&self, direction: &'static str, mss_bytes: u32, headers: u32) -> Option<Finding> {
        let (bytes, [passed, sent]) = self.beyond?;
        let is_reported = self.known_bytes.is_some_and(|known| known < bytes);
        // Losses that do not depend on the length hit the shorter packets as well.
        let is_clear = passed == 0 && sent >= CONFIRM && self.arrived[0] == self.arrived[1];
        if is_reported || !is_clear {
            return None;
        }
        let segment = mss_bytes + TCP_OCTETS + (headers - 8);
        let tcp = if segment <= self.mtu_bytes {
            format!("TCP is not affected, because its MSS is {mss_bytes}")
        } else {
            format!("TCP segments of {segment} bytes vanish as well, so that bulk data stalls")
        };
        Some(Finding {
            cause: Cause::MtuBlackHole,
            direction,
            because: format!(
                "packets above {} bytes {direction} vanish without an ICMP message: {passed} of {sent} of {bytes} \
                 bytes arrived, {} of {} of {} bytes; the sender's kernel knows a path MTU of {} bytes; {tcp}",
                self.mtu_bytes,
                self.arrived[0],
                self.arrived[1],
                self.mtu_bytes,
                self.known_bytes.map_or("unknown".to_owned(), |known| known.to_string()),
            ),
            advice: "let ICMP \"fragmentation needed\" (IPv4) and \"packet too big\" (IPv6) through, or clamp the \
                     MSS at the router (nft: tcp option maxseg size set rt mtu), or lower the MTU at the hosts",
        })
    }
}

/// Measures the path MTU to the host and from it.
pub(super) fn check(
    client: &mut Client,
    clock: Clock,
    timeout: Duration,
    mss_bytes: u32,
) -> Result<([MtuReport; 2], Vec<Finding>), Failure> {
    let peer = client.peer();
    let headers: u32 = if peer.ip().to_canonical().is_ipv4() { 28 } else { 48 };
    let (mut reports, outcome) =
        probe(client, clock, u16::MAX as usize - headers as usize, None, |prober, socket| {
            // Any port will do for a question to the kernel about the path.
            socket.connect(prober.to()).map_err(|error| super::here(&error))?;
            let interface = socket.known_mtu().map_err(|error| super::here(&error))?.min(u16::MAX.into());
            let mut up = search(prober, interface, headers, true, timeout);
            up.known_bytes = socket.known_mtu().ok();
            let down = search(prober, up.mtu_bytes, headers, false, timeout);
            Ok([up, down])
        })?;
    reports[1].known_bytes = outcome.known_mtu;
    let directions = ["to the host", "from the host"];
    let findings = reports.iter().zip(directions);
    let findings = findings.filter_map(|(report, way)| report.finding(way, mss_bytes, headers)).collect();
    Ok((reports, findings))
}

/// Searches for the longest packet that passes, up to `most` bytes.
fn search(
    prober: &mut Prober<'_>,
    most: u32,
    headers: u32,
    is_short_reply: bool,
    timeout: Duration,
) -> MtuReport {
    let mut count = |bytes: u32, count: usize| {
        prober.ask(count, (bytes - headers) as usize, is_short_reply, timeout).len()
    };
    let report = |mtu_bytes: u32, arrived: [usize; 2], beyond: Option<(u32, [usize; 2])>| MtuReport {
        mtu_bytes,
        tried_bytes: most,
        known_bytes: None,
        arrived,
        beyond,
    };
    let passed = count(most, COUNT);
    if passed > 0 {
        return report(most, [passed, COUNT], None);
    }
    let (mut passes, mut fails) = (PROBE_OCTETS as u32 + headers, most);
    while fails - passes > 1 {
        let middle = passes.midpoint(fails);
        if count(middle, COUNT) > 0 { passes = middle } else { fails = middle }
    }
    let arrived = count(passes, CONFIRM);
    report(passes, [arrived, CONFIRM], Some((fails, [count(fails, CONFIRM), CONFIRM])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_black_hole_needs_all_of_its_evidence() {
        let hole = MtuReport {
            mtu_bytes: 1300,
            tried_bytes: 1500,
            known_bytes: Some(1500),
            arrived: [6, 6],
            beyond: Some((1301, [0, 6])),
        };
        let found = |report: &MtuReport| report.finding("to the host", 1448, 28);
        let finding = found(&hole).expect("a black hole");
        assert!(finding.because.contains("TCP segments of 1500 bytes vanish as well"), "{}", finding.because);
        let clamped = hole.finding("to the host", 1248, 28).expect("a black hole");
        assert!(clamped.because.contains("TCP is not affected"), "{}", clamped.because);
        // A small path MTU that is reported, losses of all lengths, and a path without a boundary.
        assert_eq!(found(&MtuReport { known_bytes: Some(1300), ..hole.clone() }), None);
        assert_eq!(found(&MtuReport { arrived: [4, 6], ..hole.clone() }), None);
        assert_eq!(found(&MtuReport { beyond: Some((1301, [1, 6])), ..hole.clone() }), None);
        assert_eq!(found(&MtuReport { beyond: None, ..hole }), None);
    }
}
