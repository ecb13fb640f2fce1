//! The state of an interception.
//!
//! Requests         wait for their decision in the board; an admitted one waits here for the end of its
//!                  handshake. A peer that resets its request and repeats it changes neither.
//! Flows            are identified by both addresses.
//! Limits           requests: [`tcp::Config::backlog`](crate::tcp::Config::backlog); flows:
//!                  [`Config::flows_max`](crate::Config::flows_max), each with
//!                  [`Config::datagrams_max`](crate::Config::datagrams_max) datagrams; pings: [`PINGS_MAX`].

use crate::waiters::Waiters;
use kiban_base::Instant;
use kiban_board::{Host, Intercepted, InterceptedKind, StreamId};
use std::collections::{HashMap, HashSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::task::Waker;
use std::time::Duration;

/// Maximum number of pings that wait for the program; later ones are dropped.
const PINGS_MAX: usize = 64;
/// How often the handshakes of admitted connections are checked. The board does not report those that fail.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The destination, and the peer.
pub(crate) type Addresses = (SocketAddr, SocketAddr);

/// What waits for the program's next [`Interceptor::accept`].
pub(crate) enum Waiting {
    Request(Addresses),
    Flow(Addresses),
    Ping(PingInfo),
}

pub(crate) struct PingInfo {
    pub(crate) local: IpAddr,
    pub(crate) remote: IpAddr,
    pub(crate) identifier: u16,
    pub(crate) sequence: u16,
    pub(crate) payload: Vec<u8>,
}

/// The handshake of an admitted connection.
pub(crate) enum Handshake {
    Pending(Option<Waker>),
    Done(StreamId),
    Failed,
}

#[derive(Default)]
pub(crate) struct FlowState {
    pub(crate) datagrams: VecDeque<Vec<u8>>,
    pub(crate) waiters: Waiters,
}

/// The state of an interception.
pub(crate) struct Interception {
    /// When handshakes are checked.
    pub(crate) deadline: Instant,
    pub(crate) waiting: VecDeque<Waiting>,
    pub(crate) pings: usize,
    pub(crate) waiters: Waiters,
    /// Requests that the program has not decided.
    pub(crate) undecided: HashSet<Addresses>,
    pub(crate) handshakes: HashMap<Addresses, Handshake>,
    pub(crate) flows: HashMap<Addresses, FlowState>,
    limits: Limits,
}

/// Limits of an interception.
#[derive(Clone, Copy, Default)]
pub(crate) struct Limits {
    pub(crate) requests_max: usize,
    pub(crate) flows_max: usize,
    pub(crate) datagrams_max: usize,
}

impl Interception {
    pub(crate) fn new(limits: Limits) -> Interception {
        Interception {
            deadline: Instant::NEVER,
            waiting: VecDeque::new(),
            pings: 0,
            waiters: Waiters::default(),
            undecided: HashSet::new(),
            handshakes: HashMap::new(),
            flows: HashMap::new(),
            limits,
        }
    }

    pub(crate) fn on_requested(&mut self, addresses: Addresses, host: &mut Host<'_>, woken: &mut Vec<Waker>) {
        let is_known = self.undecided.contains(&addresses);
        let is_full = !is_known && self.undecided.len() >= self.limits.requests_max;
        // The program has not collected an earlier handshake of these addresses, or it is behind: the peer
        // repeats its SYN.
        if is_full || self.handshakes.contains_key(&addresses) {
            host.ignore(addresses.0, addresses.1);
        } else if self.undecided.insert(addresses) {
            self.waiting.push_back(Waiting::Request(addresses));
            self.waiters.wake(woken);
        }
    }

    pub(crate) fn on_packet(&mut self, packet: &Intercepted, woken: &mut Vec<Waker>) {
        match packet.kind() {
            InterceptedKind::Datagram { local, remote } => self.on_datagram((local, remote), packet, woken),
            InterceptedKind::Echo { local, remote, identifier, sequence } if self.pings < PINGS_MAX => {
                let ping = PingInfo { local, remote, identifier, sequence, payload: payload_of(packet) };
                self.waiting.push_back(Waiting::Ping(ping));
                self.pings += 1;
                self.waiters.wake(woken);
            }
            InterceptedKind::Echo { .. } => {}
        }
    }

    fn on_datagram(&mut self, addresses: Addresses, packet: &Intercepted, woken: &mut Vec<Waker>) {
        if !self.flows.contains_key(&addresses) {
            if self.flows.len() >= self.limits.flows_max {
                return;
            }
            self.flows.insert(addresses, FlowState::default());
            self.waiting.push_back(Waiting::Flow(addresses));
            self.waiters.wake(woken);
        }
        let flow = self.flows.get_mut(&addresses).expect("inserted above");
        if flow.datagrams.len() < self.limits.datagrams_max {
            flow.datagrams.push_back(payload_of(packet));
            flow.waiters.wake(woken);
        }
    }

    /// Handles a connection whose handshake is complete. Returns false if the program no longer waits for it.
    pub(crate) fn on_accepted(
        &mut self,
        addresses: Addresses,
        stream: StreamId,
        woken: &mut Vec<Waker>,
    ) -> bool {
        let Some(handshake) = self.handshakes.get_mut(&addresses) else { return false };
        if let Handshake::Pending(waker) = std::mem::replace(handshake, Handshake::Done(stream)) {
            woken.extend(waker);
        }
        true
    }

    /// Fails the handshakes that the peer has reset or not completed.
    pub(crate) fn on_timeout(&mut self, host: &mut Host<'_>, now: Instant, woken: &mut Vec<Waker>) {
        if now < self.deadline {
            return;
        }
        self.deadline = Instant::NEVER;
        for (&(local, remote), handshake) in &mut self.handshakes {
            let Handshake::Pending(waker) = handshake else { continue };
            if host.has_connection(local, remote) {
                self.deadline = now + CHECK_INTERVAL;
            } else {
                woken.extend(waker.take());
                *handshake = Handshake::Failed;
            }
        }
    }

    pub(crate) fn wake_all(&mut self, woken: &mut Vec<Waker>) {
        self.waiters.wake(woken);
        self.flows.values_mut().for_each(|flow| flow.waiters.wake(woken));
        for handshake in self.handshakes.values_mut() {
            if let Handshake::Pending(waker) = handshake {
                woken.extend(waker.take());
            }
        }
    }
}

fn payload_of(packet: &Intercepted) -> Vec<u8> {
    let mut payload = Vec::new();
    packet.copy_payload(&mut payload);
    payload
}
