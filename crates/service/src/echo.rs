//! Pending ICMP pings, and the clients that wait for their results.
//!
//! Purpose    `kiban ping`: one echo request for each request of a client, answered by the reply, an ICMP
//!            error or a timeout.
//! Matching   all requests have the board's identifier for pings, chosen at random; the sequence number
//!            identifies the ping. A reply must also come from the target. An error need not: routers send
//!            them.
//! Limits     at most [`PINGS_MAX`] pings are pending; a ping waits at most [`WAIT_MAX`].

use crate::pings::Pings;
use crate::requests::{Answer, Echo, EchoResult, WAIT_MAX};
use kiban_base::Instant;
use kiban_board::{Completion, Host, Program};
use kiban_tcpip::ip::IcmpErrorKind;
use std::any::Any;
use std::net::IpAddr;
use tokio::sync::oneshot;

/// Limit of pending pings.
const PINGS_MAX: usize = 64;

struct Ping {
    target: IpAddr,
    sequence: u16,
    sent_at: Instant,
}

/// Sends pings and receives their answers.
pub(crate) struct Echoes {
    identifier: u16,
    sequence: u16,
    pings: Pings<Ping>,
}

impl Echoes {
    pub(crate) fn new(identifier: u16) -> Echoes {
        Echoes { identifier, sequence: 0, pings: Pings::default() }
    }

    /// Sends a ping. The result goes to `sender`, immediately if the ping cannot be sent.
    pub(crate) fn ask(
        &mut self,
        echo: Echo,
        sender: oneshot::Sender<Answer>,
        host: &mut Host<'_>,
        now: Instant,
    ) {
        let Echo { target, bytes, wait } = echo;
        self.sequence = self.sequence.wrapping_add(1);
        let payload: Vec<u8> = (0..bytes).map(|at| at as u8).collect();
        let sent = match self.pings.len() < PINGS_MAX {
            true => {
                host.ping(target, self.identifier, self.sequence, &payload).map_err(|why| why.to_string())
            }
            false => Err(format!("too many pings are pending: the limit is {PINGS_MAX}")),
        };
        match sent {
            Ok(()) => {
                let until = now + wait.min(WAIT_MAX);
                self.pings.add(Ping { target, sequence: self.sequence, sent_at: now }, until, sender);
            }
            // The client may have disconnected.
            Err(why) => drop(sender.send(Answer::Refused(format!("cannot ping {target}: {why}")))),
        }
    }
}

impl Program for Echoes {
    fn start(&mut self, _: &mut Host<'_>, _: Instant) {}

    fn on_completion(&mut self, completion: Completion, _: &mut Host<'_>, now: Instant) {
        match completion {
            Completion::EchoReply { source, identifier, sequence, bytes }
                if identifier == self.identifier =>
            {
                self.pings.answer(
                    |ping| (ping.target, ping.sequence) == (source, sequence),
                    |ping| {
                        let round_trip_us = now.since(ping.sent_at).as_nanos() as f64 / 1e3;
                        Answer::Echo(EchoResult::Reply { bytes: bytes as u64, round_trip_us })
                    },
                );
            }
            Completion::EchoError { reporter, target, identifier, sequence, kind }
                if identifier == self.identifier =>
            {
                let error = describe(kind, target.is_ipv4());
                self.pings.answer(
                    |ping| (ping.target, ping.sequence) == (target, sequence),
                    |_| Answer::Echo(EchoResult::Error { from: reporter, error }),
                );
            }
            _ => {}
        }
    }

    fn deadline(&self) -> Instant {
        self.pings.deadline()
    }

    fn on_timeout(&mut self, _: &mut Host<'_>, now: Instant) {
        self.pings.expire(now, |_| Answer::Echo(EchoResult::Timeout {}));
    }

    fn is_done(&self) -> bool {
        self.pings.is_empty()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Describes an ICMP error in the words of ping(8).
fn describe(kind: IcmpErrorKind, is_ipv4: bool) -> String {
    match (kind, is_ipv4) {
        (IcmpErrorKind::Unreachable { code: 0 }, true) => "destination network unreachable".into(),
        (IcmpErrorKind::Unreachable { code: 1 }, true) => "destination host unreachable".into(),
        (IcmpErrorKind::Unreachable { code: 2 }, true) => "destination protocol unreachable".into(),
        (IcmpErrorKind::Unreachable { code: 9 | 10 | 13 }, true)
        | (IcmpErrorKind::Unreachable { code: 1 }, false) => "destination administratively prohibited".into(),
        (IcmpErrorKind::Unreachable { code: 0 }, false) => "no route to destination".into(),
        (IcmpErrorKind::Unreachable { code: 3 }, false) => "address unreachable".into(),
        (IcmpErrorKind::Unreachable { code }, _) => format!("destination unreachable, code {code}"),
        (IcmpErrorKind::FragmentationNeeded { mtu }, true) => format!("fragmentation needed, MTU {mtu}"),
        (IcmpErrorKind::FragmentationNeeded { mtu }, false) => format!("packet too big, MTU {mtu}"),
        (IcmpErrorKind::TimeExceeded { code: 0 }, true) => "time to live exceeded".into(),
        (IcmpErrorKind::TimeExceeded { code: 0 }, false) => "hop limit exceeded".into(),
        (IcmpErrorKind::TimeExceeded { .. }, _) => "fragment reassembly time exceeded".into(),
        (IcmpErrorKind::ParameterProblem { pointer, .. }, _) => {
            format!("parameter problem at byte {pointer}")
        }
    }
}
