//! The client's state machine.

use super::lease::Lease;
use crate::ip::Prefix;
use crate::wire::dhcp::{HEADER_BYTES, Header, Kind, Options, end, option, push_option};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;
use core::net::Ipv4Addr;
use core::time::Duration;
use kiban_base::ethernet::Mac;
use kiban_base::{Instant, SecureRng};

/// Delay before the first retransmission; it doubles each time (RFC 2131 §4.1).
const RETRANSMIT: Duration = Duration::from_secs(4);
/// Number of times that the delay doubles: up to 64 s.
const DOUBLINGS_MAX: u8 = 4;
/// Number of REQUESTs for one offer.
const REQUESTS_MAX: u8 = 4;
/// Minimum delay between REQUESTs that extend a lease (RFC 2131 §4.4.5).
const EXTEND_MIN: Duration = Duration::from_secs(60);
/// Minimum delay after a DECLINE (RFC 2131 §3.1, step 5).
const DECLINE_MIN: Duration = Duration::from_secs(10);
/// Longest delay before a client that failed begins again.
const RESTART_MAX: u64 = 64;

kiban_base::counters! {
    /// DHCP counters of one port.
    pub struct DhcpCounters {
        /// DISCOVER messages sent.
        discovers_out,
        /// REQUEST messages sent.
        requests_out,
        /// DECLINE messages sent, because another station has the address.
        declines_out,
        /// RELEASE messages sent.
        releases_out,
        /// OFFER messages accepted.
        offers_in,
        /// ACK messages accepted.
        acks_in,
        /// NAK messages accepted.
        naks_in,
        /// Malformed messages.
        malformed,
        /// Messages that answer no request of this port, or come from another server than the chosen one.
        ignored,
        /// Offers and ACKs of an implausible lease: its address, mask or time, or the net of another port.
        rejected,
        /// Implausible routers, MTUs and name servers, which are ignored.
        options_invalid,
        /// Leases that expired.
        expired,
    }
}

/// Settings of a client.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Our hardware address.
    pub mac: Mac,
    /// MTU of the link, bytes.
    pub mtu_bytes: usize,
    /// Number of ARP probes for the address before it is used; 0 disables them.
    pub probes: u8,
    /// Time between probes, and after the last one. RFC 5227 §1.1 takes 1 to 2 s; the default of 0.3 s makes
    /// the address usable within a second, like other clients.
    pub probe_interval: Duration,
}

impl Config {
    /// Creates settings with three probes.
    pub fn new(mac: Mac, mtu_bytes: usize) -> Config {
        Config { mac, mtu_bytes, probes: 3, probe_interval: Duration::from_millis(300) }
    }
}

/// The state of a client (RFC 2131 §4.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Waiting to begin.
    Init,
    /// Waiting for an offer.
    Selecting,
    /// Waiting for the server to confirm its offer.
    Requesting,
    /// Checking that no other station has the address.
    Probing,
    /// The address is in use.
    Bound,
    /// The server has been requested to extend the lease.
    Renewing,
    /// All servers have been requested to extend the lease.
    Rebinding,
    /// The lease was released.
    Released,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Init => "init",
            State::Selecting => "selecting",
            State::Requesting => "requesting",
            State::Probing => "probing",
            State::Bound => "bound",
            State::Renewing => "renewing",
            State::Rebinding => "rebinding",
            State::Released => "released",
        })
    }
}

/// Where a message goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destination {
    /// To all stations of the link.
    Broadcast,
    /// To the server, through ARP and the router if it is not on the link.
    Server(Ipv4Addr),
    /// To the server, through the station from which its last message arrived. A board that stops
    /// does not wait for ARP.
    ServerAtOnce(Ipv4Addr, Mac),
}

/// An output of the client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Send a message from [`CLIENT_PORT`](crate::wire::dhcp::CLIENT_PORT) to
    /// [`SERVER_PORT`](crate::wire::dhcp::SERVER_PORT).
    Send {
        /// Our address; unspecified if there is none.
        source: Ipv4Addr,
        /// Where to.
        target: Destination,
        /// The message.
        message: Vec<u8>,
    },
    /// Send an ARP probe for an address (RFC 5227 §2.1.1).
    Probe(Ipv4Addr),
    /// Configure the port with a lease.
    Bound(Lease),
    /// Remove the configuration of a lease.
    Unbound(Lease),
}

/// A DHCP client.
pub struct Client {
    config: Config,
    state: State,
    /// The offer, or the lease.
    lease: Option<Lease>,
    xid: u32,
    /// When the exchange began.
    began: Instant,
    /// When the REQUEST was sent; the lease counts from then (RFC 2131 §4.4.1).
    requested_at: Instant,
    /// When something is due.
    at: Instant,
    /// Number of retransmissions of a message, or of probes.
    attempts: u8,
    /// Number of exchanges in a row that failed.
    failures: u8,
    broadcast: bool,
    /// Whether all servers are asked for the next extension, because the link may lead to another network.
    verifies: bool,
    /// The station from which the last offer or ACK came.
    server_mac: Mac,
    /// Nets of the other ports.
    others: Vec<Prefix>,
    outputs: VecDeque<Output>,
    counters: DhcpCounters,
}

impl Client {
    /// Creates a client. It begins after a random delay of up to a second (RFC 2131 §4.4.1 suggests up to
    /// 10 s; the delay spreads clients that start together).
    pub fn new(config: Config, rng: &mut SecureRng) -> Client {
        Client {
            config,
            state: State::Init,
            lease: None,
            xid: 0,
            began: Instant::ZERO,
            requested_at: Instant::ZERO,
            at: Instant::ZERO + Duration::from_nanos(rng.below(1_000_000_000)),
            attempts: 0,
            failures: 0,
            broadcast: false,
            verifies: false,
            server_mac: Mac::BROADCAST,
            others: Vec::new(),
            outputs: VecDeque::new(),
            counters: DhcpCounters::default(),
        }
    }

    /// Returns the counters.
    pub fn counters(&self) -> &DhcpCounters {
        &self.counters
    }

    /// Returns the state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Returns the lease whose address is in use.
    pub fn lease(&self) -> Option<&Lease> {
        let is_used = matches!(self.state, State::Bound | State::Renewing | State::Rebinding);
        self.lease.as_ref().filter(|_| is_used)
    }

    /// Returns the address that is being probed.
    pub fn probed(&self) -> Option<Ipv4Addr> {
        self.lease.as_ref().filter(|_| self.state == State::Probing).map(|lease| lease.address)
    }

    /// Sets the nets of the other ports, which a lease must not overlap.
    pub fn set_others(&mut self, others: Vec<Prefix>) {
        self.others = others;
    }

    /// Processes a message from a server: the payload of a datagram to port 68, in a frame from `mac`.
    pub fn arrive(&mut self, message: &[u8], mac: Mac, now: Instant, rng: &mut SecureRng) {
        let (Ok((header, _)), Ok(options)) = (Header::read(message), Options::read(message)) else {
            self.counters.malformed += 1;
            return;
        };
        let is_ours = header.is_reply && header.xid == self.xid && header.mac == self.config.mac;
        let (Some(kind), Some(server), true) = (options.kind(), options.address(option::SERVER), is_ours)
        else {
            self.counters.ignored += 1;
            return;
        };
        let is_chosen = self.lease.as_ref().is_some_and(|lease| lease.server == server);
        let is_same = self.lease.as_ref().is_some_and(|lease| lease.address == header.yours);
        let from = if kind == Kind::Offer { now } else { self.requested_at };
        let mut lease = || {
            let about = (server, from, self.config.mtu_bytes);
            let lease = Lease::of(&header, &options, about, &self.others, rng);
            match &lease {
                Some((_, ignored)) => self.counters.options_invalid += ignored,
                None => self.counters.rejected += 1,
            }
            lease.map(|(lease, _)| lease)
        };
        match (kind, self.state) {
            (Kind::Offer, State::Selecting) => {
                if let Some(lease) = lease() {
                    self.counters.offers_in += 1;
                    (self.lease, self.server_mac) = (Some(lease), mac);
                    (self.state, self.attempts) = (State::Requesting, 0);
                    self.request(now, rng);
                }
            }
            (Kind::Ack, State::Requesting) if is_chosen && is_same => {
                if let Some(lease) = lease() {
                    self.counters.acks_in += 1;
                    (self.lease, self.server_mac) = (Some(lease), mac);
                    (self.state, self.attempts, self.at) = (State::Probing, 0, now);
                }
            }
            // Before T2 only the server of the lease may extend it (RFC 2131 §4.4.5).
            (Kind::Ack, State::Renewing | State::Rebinding)
                if is_same && (is_chosen || self.state == State::Rebinding) =>
            {
                if let Some(lease) = lease() {
                    self.counters.acks_in += 1;
                    self.server_mac = mac;
                    self.extend(lease);
                }
            }
            (Kind::Nak, State::Requesting | State::Renewing) if is_chosen => self.on_nak(now, rng),
            (Kind::Nak, State::Rebinding) => self.on_nak(now, rng),
            _ => self.counters.ignored += 1,
        }
    }

    /// The link works again, perhaps in another network: a search starts again at once, and a lease is
    /// verified by a REQUEST to all servers, which is refused in another network (RFC 2131 §4.4.5, §4.3.2).
    pub fn on_link_up(&mut self, now: Instant) {
        match self.state {
            State::Selecting => (self.state, self.at) = (State::Init, now),
            State::Bound | State::Renewing | State::Rebinding => (self.verifies, self.at) = (true, now),
            State::Init | State::Requesting | State::Probing | State::Released => {}
        }
    }

    fn extend(&mut self, lease: Lease) {
        self.verifies = false;
        self.at = lease.renew_at;
        self.state = State::Bound;
        if let Some(old) = self.lease.replace(lease.clone())
            && !old.is_like(&lease)
        {
            self.outputs.push_back(Output::Unbound(old));
            self.outputs.push_back(Output::Bound(lease));
        }
    }

    fn on_nak(&mut self, now: Instant, rng: &mut SecureRng) {
        self.counters.naks_in += 1;
        self.restart(Duration::ZERO, now, rng);
    }

    /// Another station has an address. If it is the one that was leased to us, it is declined.
    pub fn on_conflict(&mut self, address: Ipv4Addr, now: Instant, rng: &mut SecureRng) {
        if self.probed() != Some(address) {
            return;
        }
        self.counters.declines_out += 1;
        self.send(Kind::Decline, Destination::Broadcast, now);
        self.restart(DECLINE_MIN, now, rng);
    }

    /// Gives the lease back, because the board stops. The address remains in use until then.
    pub fn release(&mut self, now: Instant) {
        if let Some(server) = self.lease().map(|lease| lease.server) {
            self.counters.releases_out += 1;
            self.send(Kind::Release, Destination::ServerAtOnce(server, self.server_mac), now);
        }
        (self.state, self.at) = (State::Released, Instant::NEVER);
    }

    /// Drops the lease, and begins again after at least `least`.
    fn restart(&mut self, least: Duration, now: Instant, rng: &mut SecureRng) {
        if self.lease().is_some() {
            self.outputs.extend(self.lease.take().map(Output::Unbound));
        }
        (self.lease, self.verifies) = (None, false);
        let delay = Duration::from_secs((1 << self.failures.min(6)).min(RESTART_MAX)).max(least);
        self.failures = self.failures.saturating_add(1);
        self.state = State::Init;
        self.at = now + delay + Duration::from_nanos(rng.below(1_000_000_000));
    }

    /// Fires the timers that are due.
    pub fn settle(&mut self, now: Instant, rng: &mut SecureRng) {
        if now < self.at {
            return;
        }
        match self.state {
            State::Init => {
                self.xid = rng.draw_u32();
                (self.state, self.began, self.attempts) = (State::Selecting, now, 0);
                self.discover(now, rng);
            }
            State::Selecting => {
                self.attempts = self.attempts.saturating_add(1);
                self.discover(now, rng);
            }
            State::Requesting if self.attempts + 1 >= REQUESTS_MAX => {
                self.restart(Duration::ZERO, now, rng);
            }
            State::Requesting => {
                self.attempts += 1;
                self.request(now, rng);
            }
            State::Probing => self.probe(now),
            State::Bound | State::Renewing | State::Rebinding => self.keep(now, rng),
            State::Released => self.at = Instant::NEVER,
        }
    }

    fn discover(&mut self, now: Instant, rng: &mut SecureRng) {
        self.counters.discovers_out += 1;
        self.broadcast = self.attempts > 0;
        self.at = now + backoff(self.attempts, rng);
        self.send(Kind::Discover, Destination::Broadcast, now);
    }

    fn request(&mut self, now: Instant, rng: &mut SecureRng) {
        self.counters.requests_out += 1;
        self.broadcast |= self.attempts > 0;
        self.at = now + backoff(self.attempts, rng);
        if self.attempts == 0 {
            self.requested_at = now;
        }
        self.send(Kind::Request, Destination::Broadcast, now);
    }

    /// Probes the address, or begins to use it if no other station has defended it.
    fn probe(&mut self, now: Instant) {
        let Some(lease) = &self.lease else { return };
        if self.attempts < self.config.probes {
            self.outputs.push_back(Output::Probe(lease.address));
            self.attempts += 1;
            self.at = now + self.config.probe_interval;
            return;
        }
        self.outputs.push_back(Output::Bound(lease.clone()));
        (self.state, self.at, self.failures) = (State::Bound, lease.renew_at, 0);
    }

    /// Requests an extension of the lease, or drops it if it has expired.
    fn keep(&mut self, now: Instant, rng: &mut SecureRng) {
        let Some(lease) = &self.lease else { return };
        if now >= lease.expires_at {
            self.counters.expired += 1;
            self.failures = 0;
            return self.restart(Duration::ZERO, now, rng);
        }
        let (state, until, target) = match now < lease.rebind_at && !self.verifies {
            true => (State::Renewing, lease.rebind_at, Destination::Server(lease.server)),
            false => (State::Rebinding, lease.expires_at, Destination::Broadcast),
        };
        if self.state == State::Bound {
            (self.xid, self.began) = (rng.draw_u32(), now);
        }
        self.state = state;
        self.counters.requests_out += 1;
        self.at = until.min(now + (until.since(now) / 2).max(EXTEND_MIN));
        self.requested_at = now;
        self.send(Kind::Request, target, now);
    }

    /// Returns the next output.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns when [`settle`](Self::settle) is due.
    pub fn deadline(&self) -> Instant {
        if self.outputs.is_empty() { self.at } else { Instant::ZERO }
    }

    fn send(&mut self, kind: Kind, target: Destination, now: Instant) {
        // RFC 2131 §4.4.1, table 5: the address is in `ciaddr` once it is in use, and in an option before.
        let used = self.lease().map_or(Ipv4Addr::UNSPECIFIED, |lease| lease.address);
        let header = Header {
            is_reply: false,
            xid: self.xid,
            seconds: u16::try_from(now.since(self.began).as_secs()).unwrap_or(u16::MAX),
            broadcast: self.broadcast && used.is_unspecified(),
            client: used,
            yours: Ipv4Addr::UNSPECIFIED,
            next_server: Ipv4Addr::UNSPECIFIED,
            relay: Ipv4Addr::UNSPECIFIED,
            mac: self.config.mac,
        };
        let mut message = alloc::vec![0; HEADER_BYTES];
        header.write(&mut message);
        push_option(&mut message, option::KIND, &[kind as u8]);
        push_option(&mut message, option::CLIENT, &identifier(self.config.mac));
        if let Some(lease) = &self.lease {
            let is_unused = used.is_unspecified();
            if is_unused {
                push_option(&mut message, option::REQUESTED_ADDRESS, &lease.address.octets());
            }
            if is_unused || kind == Kind::Release {
                push_option(&mut message, option::SERVER, &lease.server.octets());
            }
        }
        if matches!(kind, Kind::Discover | Kind::Request) {
            let longest = u16::try_from(self.config.mtu_bytes.max(576)).unwrap_or(u16::MAX);
            push_option(&mut message, option::MESSAGE_BYTES_MAX, &longest.to_be_bytes());
            push_option(&mut message, option::PARAMETERS, &PARAMETERS);
        }
        end(&mut message);
        self.outputs.push_back(Output::Send { source: used, target, message });
    }
}

/// The options that the client requests.
const PARAMETERS: [u8; 7] = [
    option::MASK,
    option::ROUTERS,
    option::NAME_SERVERS,
    option::MTU,
    option::LEASE,
    option::RENEWAL,
    option::REBINDING,
];

/// Returns the client's identifier (RFC 4361 §6.1): type 255, an IAID, and a DUID of the hardware address
/// (DUID-LL, RFC 8415 §11.4).
fn identifier(mac: Mac) -> [u8; 15] {
    let mut bytes = [255, 0, 0, 0, 0, 0, 3, 0, 1, 0, 0, 0, 0, 0, 0];
    bytes[1..5].copy_from_slice(&mac.0[2..]);
    bytes[9..].copy_from_slice(&mac.0);
    bytes
}

/// Returns the delay before a retransmission (RFC 2131 §4.1).
fn backoff(attempts: u8, rng: &mut SecureRng) -> Duration {
    let jitter = Duration::from_nanos(rng.below(2_000_000_000));
    RETRANSMIT * (1 << attempts.min(DOUBLINGS_MAX)) - Duration::from_secs(1) + jitter
}

#[cfg(test)]
mod tests;
