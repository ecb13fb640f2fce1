//! Remedies in plain words, and the settings with which a second measurement tests them.
//!
//! Rule      a remedy counts only if it works on this network: each one is tried on the worst case of the
//!           cause that it addresses, and is called proved only if that case, which is slow whenever it is
//!           repeated without the remedy, is not slow with it (`repeat.rs`).

use super::boundary::buffer_bytes_max;
use super::cause::{Cause, window_rtt_us};
use crate::net::trial::evidence::Evidence;
use crate::net::trial::setup::{HEADER_BYTES, Setup};
use serde::{Deserialize, Serialize};

/// What helps if the path is full.
pub(super) const FULL_ADVICE: &str = "a faster link, less other traffic on it, or a higher rate of a shaper (`tc qdisc` \
                                      shows those of a host) helps; `kiban lab latency` shows whether the load delays \
                                      other traffic";

/// The least buffers with which a limit of the system is tried, bytes. The rate of the path shows only
/// without the limit. This is enough for 100 Mbit/s over a third of a second.
const AMPLE_BYTES: u32 = 4 << 20;

/// A remedy.
#[derive(Clone, PartialEq, Debug)]
pub struct Advice {
    /// The remedy in words.
    pub words: String,
    /// The case with the remedy applied; `None` if it cannot be tried from here.
    pub setup: Option<Setup>,
}

/// A remedy that was tried.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Proof {
    /// The remedy.
    pub advice: String,
    /// The case, in words.
    pub case: String,
    /// The result without the remedy: exchanges per second, or Mbit/s.
    pub before: f64,
    /// The result with the remedy; `None` if that could not be measured.
    pub after: Option<f64>,
    /// The unit of both results.
    pub unit: String,
    /// Whether the case is no longer slow.
    pub removed: bool,
    /// How often the case was measured without the remedy and then with it; the results are medians.
    #[serde(default)]
    pub rounds: usize,
    /// A further remark.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// Rounds a buffer size up to a multiple of 4096 bytes.
fn round_up(bytes: f64) -> u32 {
    const STEP: f64 = 4096.0;
    ((bytes / STEP).ceil() * STEP).clamp(STEP, f64::from(1u32 << 30)) as u32
}

/// Returns the remedies for a cause, starting with the best one. `best_mbps` is the best known rate of the
/// path, and `congestion` the algorithms that both ends have.
pub fn against(
    cause: Cause,
    setup: &Setup,
    evidence: &Evidence,
    best_mbps: f64,
    congestion: &[String],
) -> Vec<Advice> {
    let advice = |words: String, setup: Setup| Advice { words, setup: Some(setup) };
    let words = |words: &str| Advice { words: words.into(), setup: None };
    match cause {
        Cause::NagleDelayedAck => {
            let mut list = vec![advice(
                "set TCP_NODELAY on the sender".into(),
                Setup { no_delay: true, ..setup.clone() },
            )];
            if setup.pattern.is_in_two_writes() {
                list.push(advice(
                    "write header and body with one call (write or writev)".into(),
                    Setup { pattern: setup.pattern.in_one_write(), ..setup.clone() },
                ));
                if let Some(bytes) = buffer_bytes_max(setup) {
                    list.push(advice(
                        format!(
                            "if the program cannot be changed, set socket buffers of at most {bytes} bytes \
                             for messages of {} (twice the body), which keeps segments no longer than the \
                             body",
                            setup.message_bytes
                        ),
                        Setup { buffer_bytes: Some(bytes), ..setup.clone() },
                    ));
                } else if let Some(bytes) = short_segments(setup) {
                    list.push(advice(
                        format!(
                            "if the program cannot be changed, set an MSS of {bytes} bytes (TCP_MAXSEG, or \
                             the route's advmss)"
                        ),
                        Setup { mss_bytes: Some(bytes), ..setup.clone() },
                    ));
                }
            }
            list
        }
        Cause::SillyWindow => {
            let segment = evidence.info.snd_mss.max(evidence.receiver.info.rcv_mss);
            let bytes = round_up(f64::from(segment) * 8.0);
            vec![advice(
                format!("set socket buffers of at least {bytes} bytes (eight segments of {segment})"),
                Setup { buffer_bytes: Some(bytes), ..setup.clone() },
            )]
        }
        Cause::WindowScaling => vec![words(
            "set net.ipv4.tcp_window_scaling to 1 at both ends; if it is, a device on the path removes the option from \
             SYNs: compare captures of a handshake at both ends",
        )],
        Cause::PathFull => vec![words(&format!("the path carries no more: {FULL_ADVICE}"))],
        // A board has the buffers of its configuration, whatever a program asks for.
        Cause::ReceiveBuffer | Cause::SendBuffer if evidence.board.is_some() => {
            vec![words("use larger TCP buffers in the board's configuration ([tcp])")]
        }
        Cause::ReceiveBuffer | Cause::SendBuffer => {
            let buffer = match cause {
                Cause::SendBuffer => evidence.given.send_bytes,
                _ => evidence.receiver.given.receive_bytes,
            };
            let round_trip_us = evidence.path.round_trip_us.max(window_rtt_us(buffer / 2, evidence).min(1e6));
            let bytes = round_up(2.0 * best_mbps * round_trip_us / 8.0);
            let product = format!("twice {best_mbps:.1} Mbit/s times {:.2} ms", round_trip_us * 1e-3);
            let larger =
                |words: String, bytes| advice(words, Setup { buffer_bytes: Some(bytes), ..setup.clone() });
            if setup.buffer_bytes.is_some() {
                return vec![
                    larger(format!("set socket buffers of at least {bytes} bytes ({product})"), bytes),
                    advice(
                        "do not set SO_SNDBUF and SO_RCVBUF, so that Linux grows the buffers automatically"
                            .into(),
                        Setup { buffer_bytes: None, ..setup.clone() },
                    ),
                ];
            }
            // The system chose the buffer, so the program is not to blame for it.
            let is_sender = cause == Cause::SendBuffer;
            let (setting, end) = if is_sender { ("tcp_wmem", "sender") } else { ("tcp_rmem", "receiver") };
            let host = if is_sender == setup.pattern.is_back() { "the server" } else { "this host" };
            let words = format!(
                "raise the third value of net.ipv4.{setting} on the {end}, {host}, to at least {} bytes ({product}, and \
                 as much again for the system's overhead); tried with SO_SNDBUF and SO_RCVBUF",
                2 * u64::from(bytes)
            );
            vec![larger(words, bytes.max(AMPLE_BYTES).min(evidence.peer.buffer_bytes_max))]
        }
        Cause::Sender => {
            let bytes = setup.message_bytes.saturating_mul(16).min(1 << 20);
            vec![advice(
                format!("write more per call: {bytes} bytes"),
                Setup { message_bytes: bytes, ..setup.clone() },
            )]
        }
        Cause::AcknowledgementQueue => {
            let way = setup.pattern.reversed().way();
            vec![words(&format!(
                "shorten the queue {way}: fq_codel or cake where it forms, or a shaper just below the rate of that link; \
                 `kiban lab latency` shows how much it delays"
            ))]
        }
        Cause::Loss | Cause::CongestionWindow => {
            let now = &evidence.given.congestion;
            let other = ["bbr", "cubic"]
                .into_iter()
                .find(|name| name != now && congestion.iter().any(|known| known == name));
            // Where packets are lost, CUBIC is slower than BBR.
            let other = other.filter(|name| cause == Cause::CongestionWindow || *name == "bbr");
            let instead = other.map(|name| {
                advice(
                    format!("use congestion control {name} instead of {now}"),
                    Setup { congestion: Some(name.into()), ..setup.clone() },
                )
            });
            let first = match cause {
                Cause::Loss => "find where packets are lost: link errors, full queues, a policer",
                _ => {
                    "find what keeps the congestion window small: losses, or a cwnd of the route (ip route get)"
                }
            };
            std::iter::once(words(first)).chain(instead).collect()
        }
        Cause::Receiver => {
            let mut list =
                vec![words("make the receiving program read more often, or give it more CPU time")];
            if setup.buffer_bytes.is_some() {
                list.push(advice(
                    "use larger receive buffers, if the receiving program only pauses for a while".into(),
                    Setup { buffer_bytes: None, ..setup.clone() },
                ));
            }
            list
        }
        Cause::ServerLimit => vec![words("start `kiban lab serve` with a larger --rate, if that is allowed")],
        // A trace is one of the kernel's TCP.
        Cause::NotExplained if evidence.board.is_some() => {
            vec![words("repeat the sweep without --board, to see whether the board or the path is slow")]
        }
        Cause::NotExplained => vec![words("inspect this case with `kiban lab trace`")],
    }
}

/// Returns an MSS below the body's length, if TCP allows one.
fn short_segments(setup: &Setup) -> Option<u32> {
    let body = setup.message_bytes.checked_sub(HEADER_BYTES)?;
    // Linux accepts an MSS of at least 88 bytes (TCP_MIN_MSS); timestamps take 12 bytes of a segment.
    (88..=32_767).contains(&body).then_some(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::diagnosis::cause::tests::{stalled, stream};
    use crate::net::trial::evidence::Pattern;

    fn setup(pattern: Pattern, message_bytes: u32) -> Setup {
        Setup { buffer_bytes: Some(16_000), ..Setup::new(pattern, message_bytes) }
    }

    #[test]
    fn a_remedy_changes_only_the_setting_that_it_names() {
        let case = setup(Pattern::WriteWriteRead, 4540);
        let list = against(Cause::NagleDelayedAck, &case, &stalled(), 0.0, &[]);
        let setups: Vec<_> = list.into_iter().map(|advice| advice.setup.expect("to be tried")).collect();
        assert_eq!(
            setups,
            [
                Setup { no_delay: true, ..case.clone() },
                Setup { pattern: Pattern::WriteRead, ..case.clone() },
                Setup { buffer_bytes: Some(9000), ..case.clone() },
            ]
        );
        // A buffer of 1000 bytes is below Linux's minimum, so a short MSS is the remedy.
        let small = setup(Pattern::WriteWriteRead, 540);
        let list = against(Cause::NagleDelayedAck, &small, &stalled(), 0.0, &[]);
        assert_eq!(list[2].setup, Some(Setup { mss_bytes: Some(500), ..small }));
    }

    #[test]
    fn buffer_sizes_follow_from_bandwidth_and_delay() {
        let case = setup(Pattern::Stream, 6000);
        let list = against(Cause::ReceiveBuffer, &case, &stream(), 100.0, &[]);
        // Twice the product of 100 Mbit/s and 10 ms is 250,000 bytes.
        assert_eq!(list[0].setup.as_ref().and_then(|setup| setup.buffer_bytes), Some(253_952));
        assert_eq!(list[1].setup.as_ref().expect("to be tried").buffer_bytes, None);
    }

    #[test]
    fn a_limit_of_the_system_is_not_blamed_on_the_program() {
        let case = Setup { buffer_bytes: None, ..setup(Pattern::Stream, 6000) };
        let words = |cause, pattern| {
            let case = Setup { pattern, ..case.clone() };
            let list = against(cause, &case, &stream(), 100.0, &[]);
            // A remedy that changes nothing cannot be tried.
            assert!(list.iter().all(|advice| advice.setup.as_ref() != Some(&case)), "{list:?}");
            list.into_iter().map(|advice| advice.words).collect::<Vec<_>>().join("\n")
        };
        for (cause, pattern, expected) in [
            (
                Cause::ReceiveBuffer,
                Pattern::Stream,
                "net.ipv4.tcp_rmem on the receiver, the server, to at least 507904",
            ),
            (Cause::ReceiveBuffer, Pattern::StreamBack, "net.ipv4.tcp_rmem on the receiver, this host"),
            (Cause::SendBuffer, Pattern::Stream, "net.ipv4.tcp_wmem on the sender, this host"),
            (Cause::SendBuffer, Pattern::StreamBack, "net.ipv4.tcp_wmem on the sender, the server"),
            (Cause::WindowScaling, Pattern::Stream, "net.ipv4.tcp_window_scaling to 1 at both ends"),
        ] {
            let words = words(cause, pattern);
            assert!(words.contains(expected) && !words.contains("program"), "{cause:?}: {words}");
        }
    }

    #[test]
    fn a_limit_of_the_system_is_tried_with_ample_buffers_and_advised_for_the_rate_that_shows() {
        let case = Setup { buffer_bytes: None, ..setup(Pattern::Stream, 6000) };
        let of = |best_mbps| against(Cause::ReceiveBuffer, &case, &stream(), best_mbps, &[]).remove(0);
        let (before, after) = (of(3.5), of(95.0));
        // The trial stays the same when its rate is known.
        assert_eq!(before.setup, after.setup);
        assert_eq!(before.setup.and_then(|setup| setup.buffer_bytes), Some(AMPLE_BYTES));
        // Twice 95 Mbit/s times 10 ms is 237,500 bytes, in steps of 4096 and as much again.
        assert!(after.words.contains("to at least 475136 bytes"), "{}", after.words);
    }

    #[test]
    fn another_congestion_control_is_suggested_if_both_ends_have_it() {
        let case = setup(Pattern::Stream, 6000);
        let of = |known: &[&str]| {
            let known: Vec<String> = known.iter().map(|name| (*name).to_owned()).collect();
            let list = against(Cause::Loss, &case, &stream(), 100.0, &known);
            assert!(list[0].words.starts_with("find where packets are lost") && list[0].setup.is_none());
            list.into_iter().find_map(|advice| advice.setup)
        };
        assert_eq!(of(&["cubic"]), None);
        assert_eq!(of(&["cubic", "bbr"]).and_then(|setup| setup.congestion).as_deref(), Some("bbr"));
    }

    #[test]
    fn every_cause_has_a_remedy() {
        for (cause, ..) in Cause::ALL {
            let list = against(cause, &setup(Pattern::Stream, 100), &stream(), 100.0, &[]);
            assert!(list.iter().all(|advice| !advice.words.is_empty()) && !list.is_empty(), "{cause:?}");
        }
    }
}
