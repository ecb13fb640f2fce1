//! The verdict: which part of a request dominates, and why.
//!
//! Dominating  a part that takes at least half of the time of all requests on new connections; likewise on
//!             kept ones. Requests that take less than [`SHORT_MS`] are not judged.
//! Cause       named if its evidence explains at least half of that part: waits for silent name servers;
//!             connection attempts that failed; retransmitted SYNs; the processor; what the server takes
//!             beyond round trips; round trips.
//! Think time  a lost segment looks like it, so at least half of the requests must have waited without a
//!             retransmission.

use super::names::{Outcome, Query};
use super::once::Sample;
use crate::stats::median;
use crate::table::readable;
use serde::Serialize;
use std::collections::BTreeMap;

/// The share from which a part dominates, and from which evidence explains it.
const HALF: f64 = 0.5;
/// A request of this mean length has nothing to explain, ms.
const SHORT_MS: f64 = 5.0;
/// The waits that a delayed acknowledgement of this host may cause, ms: Linux delays for 40 to 200, and the
/// timer of a busy host is late.
const DELAYED_MS: std::ops::Range<f64> = 30.0..250.0;
/// Of a response that stops, this many round trips are not a pause of the server: the one that Nagle's
/// algorithm waits for, and half of one for its variation.
const HELD_TRIPS: f64 = 1.5;
/// The round trips that only a queue explains, ms: light goes around the earth in a seventh of this time.
const QUEUE_MS_MIN: f64 = 1000.0;
/// A queue also explains round trips that exceed the shortest one by this factor, and by this time, ms.
const QUEUE_GROWTH_MIN: (f64, f64) = (3.0, 50.0);
/// The longest body for which a request is repeated with immediate acknowledgements, bytes: an initial
/// window.
const HELD_BYTES_MAX: u64 = 14_600;

/// Why a request takes long.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestCause {
    /// A name server does not answer, and the next is asked after a timeout.
    NameServerSilent,
    /// A name server answers only one of the queries for IPv4 and IPv6 addresses.
    NameServerHalfSilent,
    /// Names with search domains are looked up first, and do not exist.
    SearchList,
    /// A name server fails or refuses, and the next is asked.
    NameServerFails,
    /// The name server takes long to answer.
    NameServerSlow,
    /// An address does not answer, and the next is tried.
    AddressSilent,
    /// The first segment of connections is lost.
    SynLost,
    /// The processor of this host in the TLS handshake.
    TlsProcessor,
    /// The server takes long in the TLS handshake.
    TlsServer,
    /// Round trips of the TLS handshake.
    TlsRoundTrips,
    /// Nagle's algorithm holds a part of the response back until this host's delayed acknowledgement.
    NagleDelayedAck,
    /// The server pauses within a short response.
    ServerPause,
    /// The server takes long before its first byte.
    ServerThinkTime,
    /// Packets wait in a queue on the path, which other traffic fills.
    Queue,
    /// Round trips of all steps.
    RoundTrips,
}

/// A verdict.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Verdict {
    /// The verdict in one sentence.
    pub words: String,
    /// The part that dominates.
    pub part: Option<&'static str>,
    /// The cause; `None` if the evidence shows none.
    pub cause: Option<RequestCause>,
    /// What to do.
    pub advice: String,
}

/// The names of the parts.
pub(super) const PARTS: [&str; 5] = ["DNS", "TCP connect", "TLS", "first byte", "transfer"];

/// Returns each part's share of the time of all requests.
pub(super) fn shares(samples: &[Sample]) -> [f64; 5] {
    let sum = |part: usize| samples.iter().map(|sample| sample.parts.list()[part]).sum::<f64>();
    let sums = [0, 1, 2, 3, 4].map(sum);
    let all = sums.iter().sum::<f64>().max(1e-9);
    sums.map(|sum| sum / all)
}

/// Returns the verdict on requests on new connections.
pub(super) fn verdict(samples: &[Sample]) -> Verdict {
    if is_short(samples) {
        let words = format!(
            "a request on a new connection takes {} ms: nothing to explain",
            readable(mean_ms(samples))
        );
        return Verdict { words, part: None, cause: None, advice: String::new() };
    }
    let shares = shares(samples);
    let largest = (0..5).max_by(|one, other| shares[*one].total_cmp(&shares[*other])).unwrap_or(0);
    let dominating = (shares[largest] >= HALF).then_some(largest);
    let of_part = || match dominating {
        Some(0) => dns(samples),
        Some(1) => connect(samples),
        Some(2) => tls(samples),
        Some(3) => first_byte(samples),
        _ => None,
    };
    // A queue makes every part long, so it is the cause of what the parts show.
    let found = match round_trips(samples, dominating) {
        Some(queue @ (RequestCause::Queue, ..)) => Some(queue),
        found => of_part().or(found),
    };
    let head = dominating.map_or_else(
        || "no part of a request on a new connection dominates".to_owned(),
        |part| {
            let percent = 100.0 * shares[part];
            format!("{} takes {} % of a request on a new connection", PARTS[part], readable(percent))
        },
    );
    let part = dominating.map(|part| PARTS[part]);
    match found {
        Some((RequestCause::Queue, why, advice)) => {
            Verdict { words: format!("{why}; {head}"), part, cause: Some(RequestCause::Queue), advice }
        }
        Some((cause, why, advice)) => {
            Verdict { words: format!("{head}: {why}"), part, cause: Some(cause), advice }
        }
        None if dominating == Some(4) => Verdict {
            words: format!("{head}: {}", transfer(samples)),
            part,
            cause: None,
            advice: "`kiban lab explain` of a capture of this transfer, or `kiban lab sweep` between the hosts, says \
                     what limits it"
                .to_owned(),
        },
        None => Verdict { words: format!("{head}; the evidence shows no cause"), part, cause: None, advice: String::new() },
    }
}

fn mean_ms(samples: &[Sample]) -> f64 {
    sum(samples, |sample| sample.parts.list().iter().sum()) / samples.len().max(1) as f64
}

fn is_short(samples: &[Sample]) -> bool {
    mean_ms(samples) < SHORT_MS
}

/// Returns whether a response stopped for a time that a delayed acknowledgement may take.
pub(super) fn may_be_held(sample: &Sample) -> bool {
    DELAYED_MS.contains(&sample.parts.transfer) && sample.bytes <= HELD_BYTES_MAX
}

/// Returns the verdict on requests on kept connections; `None` if no cause is found.
pub(super) fn kept_verdict(samples: &[Sample]) -> Option<Verdict> {
    if samples.is_empty() || is_short(samples) {
        return None;
    }
    let shares = shares(samples);
    let (part, found) = if shares[4] >= HALF {
        (4, held(samples))
    } else if shares[3] >= HALF {
        (3, first_byte(samples))
    } else {
        return None;
    };
    let (cause, why, advice) = found?;
    let percent = readable(100.0 * shares[part]);
    let words = format!("{} takes {percent} % of a request on a kept connection: {why}", PARTS[part]);
    Some(Verdict { words, part: Some(PARTS[part]), cause: Some(cause), advice })
}

/// Finds why short responses on kept connections stop, from the repeats with immediate acknowledgements.
fn held(samples: &[Sample]) -> Found {
    let all = sum(samples, |sample| sample.parts.transfer);
    let tried: Vec<(f64, f64)> =
        samples.iter().filter_map(|sample| Some((sample.parts.transfer, sample.quick_ack_ms?))).collect();
    let saved = tried.iter().map(|(delayed, quick)| (delayed - quick).max(0.0)).sum::<f64>();
    let [delayed, quick] = [|pair: &(f64, f64)| pair.0, |pair: &(f64, f64)| pair.1]
        .map(|of| median(&tried.iter().map(of).collect::<Vec<_>>()));
    let (delayed, quick) = (delayed?, quick?);
    if saved >= HALF * all {
        return Some((
            RequestCause::NagleDelayedAck,
            format!(
                "the server writes its response in more than one piece, and Nagle's algorithm holds the rest back \
                 until this host's delayed acknowledgement, {} ms; with immediate acknowledgements (TCP_QUICKACK), \
                 the transfer takes {} ms",
                readable(delayed),
                readable(quick)
            ),
            "set TCP_NODELAY on the server's connections, or write header and body with one call; neither the path \
             nor the server's speed is the cause"
                .to_owned(),
        ));
    }
    let rtt = median(&samples.iter().filter_map(|sample| sample.rtt_ms).collect::<Vec<_>>())?;
    let paused = tried.iter().map(|(_, quick)| (quick - HELD_TRIPS * rtt).max(0.0)).sum::<f64>();
    (paused >= HALF * all).then(|| {
        (
            RequestCause::ServerPause,
            format!(
                "the server pauses within its response of {} bytes, {} ms, also if this host acknowledges at once",
                readable(samples.iter().map(|sample| sample.bytes).max().unwrap_or(0) as f64),
                readable(quick)
            ),
            "look at what the program on the server waits for between the pieces of its response".to_owned(),
        )
    })
}

type Found = Option<(RequestCause, String, String)>;

fn sum(samples: &[Sample], of: impl Fn(&Sample) -> f64) -> f64 {
    samples.iter().map(of).sum()
}

fn dns(samples: &[Sample]) -> Found {
    let all = sum(samples, |sample| sample.parts.dns);
    let queries = || samples.iter().flat_map(|sample| &sample.queries);
    let time =
        |of: &dyn Fn(&Query) -> bool| queries().filter(|query| of(query)).map(|query| query.ms).sum::<f64>();
    let explains = |of: &dyn Fn(&Query) -> bool| time(of) >= HALF * all;
    // The server with the most time for these outcomes, the number of them, and of all its queries.
    let worst = |of: &dyn Fn(&Query) -> bool| {
        let mut by_server: BTreeMap<&str, (f64, usize)> = BTreeMap::new();
        for query in queries().filter(|query| of(query)) {
            let entry = by_server.entry(&query.server).or_default();
            *entry = (entry.0 + query.ms, entry.1 + 1);
        }
        let (server, (ms, count)) =
            by_server.into_iter().max_by(|one, other| one.1.0.total_cmp(&other.1.0))?;
        Some((server, ms, count, queries().filter(|query| query.server == server).count()))
    };
    let is = |outcome: Outcome| move |query: &Query| query.outcome == outcome;
    if explains(&is(Outcome::Silent)) {
        let (server, ms, count, of) = worst(&is(Outcome::Silent))?;
        return Some((
            RequestCause::NameServerSilent,
            format!(
                "name server {server} did not answer {count} of {of} queries, and the resolver waits {} s before it \
                 asks the next",
                readable(ms / count as f64 * 1e-3)
            ),
            format!(
                "remove {server} from resolv.conf, or repair it; `options timeout:1` in resolv.conf shortens the wait"
            ),
        ));
    }
    if explains(&is(Outcome::HalfSilent)) {
        let (server, _, count, of) = worst(&is(Outcome::HalfSilent))?;
        return Some((
            RequestCause::NameServerHalfSilent,
            format!(
                "name server {server} answered only one of the queries for IPv4 and IPv6 addresses, {count} of {of} \
                 times"
            ),
            "a firewall or a name server drops one of two queries from the same port: repair it, or set `options \
             single-request-reopen` in resolv.conf"
                .to_owned(),
        ));
    }
    if explains(&is(Outcome::NoName)) {
        let names = queries().filter(|query| query.outcome == Outcome::NoName).count();
        let example = queries().find(|query| query.outcome == Outcome::NoName)?;
        return Some((
            RequestCause::SearchList,
            format!(
                "{names} queries were for names of the search list that do not exist, such as {}",
                example.name
            ),
            "write the name with a dot at its end, or lower ndots in resolv.conf".to_owned(),
        ));
    }
    if explains(&|query| matches!(query.outcome, Outcome::Failed | Outcome::Unreachable)) {
        let (server, _, count, of) =
            worst(&|query| matches!(query.outcome, Outcome::Failed | Outcome::Unreachable))?;
        return Some((
            RequestCause::NameServerFails,
            format!("name server {server} failed or was unreachable for {count} of {of} queries"),
            format!("remove {server} from resolv.conf, or repair it"),
        ));
    }
    if explains(&is(Outcome::Answered)) {
        let (server, ms, count, _) = worst(&is(Outcome::Answered))?;
        return Some((
            RequestCause::NameServerSlow,
            format!("name server {server} takes {} ms to answer", readable(ms / count as f64)),
            "use a name server that is nearer or has a cache, or a cache on this host (systemd-resolved, dnsmasq)"
                .to_owned(),
        ));
    }
    None
}

fn connect(samples: &[Sample]) -> Found {
    let all = sum(samples, |sample| sample.parts.connect);
    let failed = sum(samples, |sample| sample.failed_connects.iter().map(|one| one.ms).sum());
    if failed >= HALF * all {
        let tries = || samples.iter().flat_map(|sample| &sample.failed_connects);
        let worst = tries().max_by(|one, other| one.ms.total_cmp(&other.ms))?;
        let count = tries().filter(|one| one.address == worst.address).count();
        return Some((
            RequestCause::AddressSilent,
            format!(
                "{} did not accept {count} of {} connections ({}), and the next address was tried after {} ms",
                worst.address,
                samples.len(),
                worst.error,
                readable(worst.ms)
            ),
            "remove the address from DNS, or repair the path to it (for IPv6, the route)".to_owned(),
        ));
    }
    // A SYN whose answer takes longer than its timer is retransmitted, too, but is not lost.
    let is_late = |sample: &Sample| sample.late_rtt_ms.is_some_and(|rtt| rtt >= HALF * sample.parts.connect);
    let is_lost = |sample: &Sample| sample.retransmits[0] > 0 && !is_late(sample);
    let with_loss = sum(samples, |sample| if is_lost(sample) { sample.parts.connect } else { 0.0 });
    if with_loss >= HALF * all {
        let count = samples.iter().filter(|sample| is_lost(sample)).count();
        return Some((
            RequestCause::SynLost,
            format!("the first segment of {count} of {} connections was lost and retransmitted", samples.len()),
            "look for losses on the path, for a full listen queue (nstat -az TcpExtListenOverflows on the server), \
             and for limits of a firewall"
                .to_owned(),
        ));
    }
    None
}

fn tls(samples: &[Sample]) -> Found {
    let all = sum(samples, |sample| sample.parts.tls);
    let cpu = sum(samples, |sample| sample.tls_cpu_ms);
    let count = samples.len().max(1) as f64;
    let version = samples.iter().find_map(|sample| sample.tls_version).unwrap_or("TLS");
    if cpu >= HALF * all {
        return Some((
            RequestCause::TlsProcessor,
            format!("this host's processor needs {} ms for the handshake ({version})", readable(cpu / count)),
            "keep connections open; use ECDSA certificates and fewer of them in the chain".to_owned(),
        ));
    }
    let trips = |sample: &Sample| f64::from(sample.tls_waits.0) * sample.rtt_ms.unwrap_or(0.0);
    let known = samples.iter().all(|sample| sample.rtt_ms.is_some());
    let beyond = sum(samples, |sample| (sample.tls_waits.1 - trips(sample)).max(0.0));
    if known && beyond >= HALF * all {
        return Some((
            RequestCause::TlsServer,
            format!(
                "the server takes {} ms for the handshake ({version}) beyond its round trips of {} ms",
                readable(beyond / count),
                readable(sum(samples, trips) / count)
            ),
            "look at the processors of the server, at the key length of its certificate, and at the device that \
             ends TLS for it"
                .to_owned(),
        ));
    }
    if sum(samples, trips) >= HALF * all {
        let each: Vec<f64> = samples.iter().map(|sample| f64::from(sample.tls_waits.0)).collect();
        let rtt: Vec<f64> = samples.iter().filter_map(|sample| sample.rtt_ms).collect();
        return Some((
            RequestCause::TlsRoundTrips,
            format!(
                "{version} needs {} round trips of {} ms",
                readable(median(&each)?),
                readable(median(&rtt)?)
            ),
            "keep connections open, allow TLS 1.3 and session resumption, or serve from a nearer place"
                .to_owned(),
        ));
    }
    None
}

fn first_byte(samples: &[Sample]) -> Found {
    let beyond = |sample: &Sample| sample.parts.first_byte - sample.rtt_ms.unwrap_or(f64::INFINITY);
    let waited: Vec<&Sample> = samples
        .iter()
        .filter(|sample| beyond(sample) >= HALF * sample.parts.first_byte && sample.retransmits == [0; 2])
        .collect();
    if (waited.len() as f64) < (samples.len() as f64 * HALF).max(1.0) {
        return None;
    }
    let times: Vec<f64> = waited.iter().map(|sample| beyond(sample)).collect();
    let rtts: Vec<f64> = waited.iter().filter_map(|sample| sample.rtt_ms).collect();
    Some((
        RequestCause::ServerThinkTime,
        format!(
            "the server takes {} ms before its first byte, beyond a round trip of {} ms",
            readable(median(&times)?),
            readable(median(&rtts)?)
        ),
        "the network is not the cause: look at the program on the server, and at what it waits for"
            .to_owned(),
    ))
}

/// Finds whether round trips explain the dominating part or, without one, the whole request.
fn round_trips(samples: &[Sample], dominating: Option<usize>) -> Found {
    let rtts: Vec<f64> = samples.iter().filter_map(|sample| sample.rtt_ms.or(sample.late_rtt_ms)).collect();
    let rtt = median(&rtts)?;
    let least = rtts.iter().copied().fold(f64::INFINITY, f64::min);
    let tls = |sample: &Sample| f64::from(sample.tls_waits.0);
    let (all, trips) = match dominating {
        Some(1) => (sum(samples, |sample| sample.parts.connect), samples.len() as f64),
        Some(3) => (sum(samples, |sample| sample.parts.first_byte), samples.len() as f64),
        None => (
            sum(samples, |sample| sample.parts.list().iter().sum()),
            sum(samples, |sample| 2.0 + tls(sample)),
        ),
        _ => return None,
    };
    (trips * rtt >= HALF * all).then(|| {
        let each = sum(samples, |sample| 2.0 + tls(sample)) / samples.len() as f64;
        let grows = rtt >= (QUEUE_GROWTH_MIN.0 * least).max(least + QUEUE_GROWTH_MIN.1);
        if rtt >= QUEUE_MS_MIN || grows {
            return (
                RequestCause::Queue,
                format!(
                    "packets wait in a queue on the path, which other traffic fills: a new connection needs {} round trips \
                     of {} ms, and the shortest took {} ms",
                    readable(each),
                    readable(rtt),
                    readable(least)
                ),
                "run `kiban lab latency HOST` to a host on the other side, where `kiban lab serve` runs: it says in which \
                 direction the queue is, and how to shorten it; until then, end or limit the transfer that fills the path"
                    .to_owned(),
            );
        }
        (
            RequestCause::RoundTrips,
            format!("a new connection needs {} round trips of {} ms", readable(each), readable(rtt)),
            "keep connections open, and send requests on them; `kiban lab latency` says whether a queue on the path \
             makes round trips long, `kiban lab delay` whether the distance does"
                .to_owned(),
        )
    })
}

fn transfer(samples: &[Sample]) -> String {
    let bytes = sum(samples, |sample| sample.bytes as f64) / samples.len().max(1) as f64;
    let rate = sum(samples, |sample| sample.bytes as f64) * 8e-3
        / sum(samples, |sample| sample.parts.transfer).max(1e-9);
    format!(
        "{} bytes arrive at {} Mbit/s; the path or the server limits that",
        readable(bytes),
        readable(rate)
    )
}

#[cfg(test)]
mod tests {
    use super::super::once::{FailedConnect, Parts};
    use super::*;

    /// A request over a path with an RTT of 10 ms on which nothing dominates.
    fn usual() -> Sample {
        Sample {
            parts: Parts { dns: 12.0, connect: 10.0, tls: 14.0, first_byte: 12.0, transfer: 1.0 },
            queries: vec![ask("192.0.2.1:53", "www.example", 12.0, Outcome::Answered)],
            rtt_ms: Some(10.0),
            tls_waits: (1, 12.0),
            tls_cpu_ms: 1.0,
            tls_version: Some("TLS 1.3"),
            ..Sample::default()
        }
    }

    fn ask(server: &str, name: &str, ms: f64, outcome: Outcome) -> Query {
        Query { server: server.to_owned(), name: name.to_owned(), ms, outcome }
    }

    fn with(change: impl FnOnce(&mut Sample)) -> Sample {
        let mut sample = usual();
        change(&mut sample);
        sample
    }

    #[test]
    fn a_cause_is_named_only_with_its_evidence() {
        let slow = |sample: &mut Sample, ms: f64, queries: Vec<Query>| {
            sample.parts.dns = ms;
            sample.queries = queries;
        };
        let answered = || ask("192.0.2.2:53", "www.example", 1.0, Outcome::Answered);
        let first = |ms, outcome| ask("192.0.2.1:53", "www.example.lab", ms, outcome);
        use RequestCause::*;
        for (what, sample, expected) in [
            ("usual", usual(), Some(RoundTrips)),
            (
                "a silent first server",
                with(|it| slow(it, 5001.0, vec![first(5000.0, Outcome::Silent), answered()])),
                Some(NameServerSilent),
            ),
            (
                "one of two queries without a reply",
                with(|it| slow(it, 5000.0, vec![first(5000.0, Outcome::HalfSilent)])),
                Some(NameServerHalfSilent),
            ),
            (
                "names that do not exist",
                with(|it| slow(it, 241.0, vec![first(80.0, Outcome::NoName); 3])),
                Some(SearchList),
            ),
            (
                "a server that fails slowly",
                with(|it| slow(it, 301.0, vec![first(300.0, Outcome::Failed), answered()])),
                Some(NameServerFails),
            ),
            (
                "a slow answer is not a silent server",
                with(|it| slow(it, 300.0, vec![first(300.0, Outcome::Answered)])),
                Some(NameServerSlow),
            ),
            ("time without a query", with(|it| slow(it, 300.0, vec![])), None),
            (
                "an address that does not answer",
                with(|it| {
                    let address = "[2001:db8::1]:443".parse().expect("an address");
                    it.failed_connects =
                        vec![FailedConnect { address, ms: 3000.0, error: "timed out".to_owned() }];
                    it.parts.connect = 3010.0;
                }),
                Some(AddressSilent),
            ),
            (
                "a lost SYN",
                with(|it| {
                    (it.parts.connect, it.retransmits, it.rtt_ms) = (1010.0, [1, 1], None);
                }),
                Some(SynLost),
            ),
            (
                "a long path",
                with(|it| (it.parts.connect, it.rtt_ms) = (100.0, Some(100.0))),
                Some(RoundTrips),
            ),
            (
                "a queue that an upload fills",
                with(|it| {
                    (it.parts.connect, it.parts.first_byte, it.parts.dns) = (2118.0, 2080.0, 0.0);
                    (it.retransmits, it.rtt_ms, it.late_rtt_ms) = ([1, 1], None, Some(2050.0));
                }),
                Some(Queue),
            ),
            (
                "a lost SYN on a path of 10 ms",
                with(|it| {
                    (it.parts.connect, it.retransmits) = (1010.0, [1, 1]);
                    (it.rtt_ms, it.late_rtt_ms) = (None, Some(10.2));
                }),
                Some(SynLost),
            ),
            ("a slow connect that is neither", with(|it| it.parts.connect = 1010.0), None),
            ("a processor", with(|it| (it.parts.tls, it.tls_cpu_ms) = (100.0, 80.0)), Some(TlsProcessor)),
            (
                "a slow server in the handshake",
                with(|it| (it.parts.tls, it.tls_waits) = (200.0, (1, 195.0))),
                Some(TlsServer),
            ),
            (
                "two round trips",
                with(|it| {
                    it.tls_version = Some("TLS 1.2");
                    (it.parts.tls, it.tls_waits, it.rtt_ms) = (204.0, (2, 202.0), Some(100.0));
                }),
                Some(TlsRoundTrips),
            ),
            ("think time", with(|it| it.parts.first_byte = 300.0), Some(ServerThinkTime)),
            (
                "a lost request looks like think time",
                with(|it| (it.parts.first_byte, it.retransmits) = (300.0, [0, 1])),
                None,
            ),
            (
                "the first byte over a long path",
                with(|it| (it.parts.first_byte, it.rtt_ms) = (300.0, Some(290.0))),
                Some(RoundTrips),
            ),
            ("a transfer", with(|it| (it.parts.transfer, it.bytes) = (900.0, 1_000_000)), None),
        ] {
            let verdict = verdict(&vec![sample; 3]);
            assert_eq!(verdict.cause, expected, "{what}: {}", verdict.words);
        }
    }

    #[test]
    fn a_response_that_waits_for_a_delayed_acknowledgement_is_told_from_a_pause() {
        let kept = |transfer: f64, quick: Option<f64>| Sample {
            parts: Parts { first_byte: 0.4, transfer, ..Parts::default() },
            bytes: 200,
            rtt_ms: Some(0.04),
            quick_ack_ms: quick,
            ..Sample::default()
        };
        let cause = |samples: &[Sample]| kept_verdict(samples).and_then(|verdict| verdict.cause);
        let of = |transfer, quick| cause(&vec![kept(transfer, quick); 3]);
        assert_eq!(of(42.3, Some(0.1)), Some(RequestCause::NagleDelayedAck));
        assert_eq!(of(42.3, Some(42.1)), Some(RequestCause::ServerPause));
        assert_eq!(of(42.3, None), None, "it was not tried");
        // On a path of 10 ms, the first byte takes a fifth of the time.
        let far = Parts { first_byte: 10.4, transfer: 45.1, ..Parts::default() };
        let far = Sample { parts: far, rtt_ms: Some(10.1), ..kept(45.1, Some(45.2)) };
        assert_eq!(cause(&vec![far; 3]), Some(RequestCause::ServerPause));
        assert_eq!(of(1.0, None), None, "a short request");
        // On a path of 80 ms, most of the transfer is the round trip that Nagle's algorithm waits for anyway.
        let long = Sample { rtt_ms: Some(80.0), ..kept(120.0, Some(80.0)) };
        assert_eq!(cause(&vec![long; 3]), None);
        let words = kept_verdict(&vec![kept(42.3, Some(0.1)); 3]).expect("a cause").words;
        assert!(
            words.starts_with("transfer takes 99.1 % of a request on a kept connection: the server writes"),
            "{words}"
        );
        let thinks = Sample {
            parts: Parts { first_byte: 300.0, ..Parts::default() },
            rtt_ms: Some(1.0),
            ..kept(0.1, None)
        };
        assert_eq!(cause(&vec![thinks; 3]), Some(RequestCause::ServerThinkTime));
        assert!(may_be_held(&kept(42.3, None)) && !may_be_held(&kept(2.0, None)));
        assert!(!may_be_held(&Sample { bytes: 2_000_000, ..kept(42.3, None) }));
    }

    #[test]
    fn a_request_of_two_milliseconds_is_nobodys_fault() {
        let short = Sample {
            parts: Parts { connect: 0.6, first_byte: 1.3, ..Parts::default() },
            rtt_ms: Some(0.04),
            ..Sample::default()
        };
        let verdict = verdict(&vec![short; 3]);
        assert_eq!((verdict.cause, verdict.part), (None, None), "{}", verdict.words);
        assert_eq!(verdict.words, "a request on a new connection takes 1.9 ms: nothing to explain");
    }

    #[test]
    fn round_trips_that_grow_are_a_queue() {
        let at = |rtt: f64| Sample {
            parts: Parts { connect: rtt, first_byte: rtt, ..Parts::default() },
            rtt_ms: Some(rtt),
            ..Sample::default()
        };
        let of = |rtts: &[f64]| verdict(&rtts.iter().map(|rtt| at(*rtt)).collect::<Vec<_>>());
        let queue = of(&[21.0, 180.0, 240.0, 310.0]);
        assert_eq!(queue.cause, Some(RequestCause::Queue), "{}", queue.words);
        assert!(
            queue.words.starts_with("packets wait in a queue on the path, which other traffic fills")
                && queue.words.contains("the shortest took 21 ms")
                && queue.advice.starts_with("run `kiban lab latency HOST`"),
            "{queue:?}"
        );
        // The queue grew while the server's answer waited in it, which looks like a slow server.
        let later = |rtt: f64| Sample {
            parts: Parts { connect: rtt, first_byte: 2.0 * rtt, ..Parts::default() },
            rtt_ms: Some(rtt),
            ..Sample::default()
        };
        let queue = verdict(&[21.0, 180.0, 240.0, 310.0].map(later));
        assert_eq!(queue.cause, Some(RequestCause::Queue), "{}", queue.words);
        assert_eq!(of(&[280.0, 300.0, 310.0]).cause, Some(RequestCause::RoundTrips));
    }

    #[test]
    fn one_slow_request_of_many_is_not_think_time() {
        let mut samples = vec![usual(); 9];
        samples.push(with(|it| it.parts.first_byte = 5000.0));
        let verdict = verdict(&samples);
        assert_eq!((verdict.part, verdict.cause), (Some("first byte"), None), "{}", verdict.words);
        assert_eq!(super::verdict(&[]).cause, None);
    }

    #[test]
    fn verdicts_have_figures() {
        let silent = with(|it| {
            it.parts.dns = 5001.0;
            it.queries = vec![
                ask("192.0.2.1:53", "www.example", 5000.0, Outcome::Silent),
                ask("192.0.2.2:53", "www.example", 1.0, Outcome::Answered),
            ];
        });
        let words = verdict(&vec![silent; 4]).words;
        assert!(
            words.ends_with(
                "name server 192.0.2.1:53 did not answer 4 of 4 queries, and the resolver waits 5 s before it asks \
                 the next"
            ),
            "{words}"
        );
        let words = verdict(&[with(|it| (it.parts.transfer, it.bytes) = (800.0, 1_000_000))]).words;
        assert!(words.contains("1 M bytes arrive at 10 Mbit/s"), "{words}");
    }
}
