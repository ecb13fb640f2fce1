//! A client and simulated servers, in virtual time.

use super::*;
use crate::wire::dhcp::MESSAGE_BYTES_MIN;
use kiban_base::RngKey;
use proptest::prelude::*;

const OURS: Mac = Mac([2, 0, 0, 0, 0, 1]);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 50);
const LEASE_SECONDS: u32 = 3600;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A message that the client sent, as servers see it.
#[derive(Clone, Debug)]
struct Sent {
    kind: Kind,
    header: Header,
    source: Ipv4Addr,
    target: Destination,
    requested: Option<Ipv4Addr>,
    server: Option<Ipv4Addr>,
}

struct Stand {
    client: Client,
    rng: SecureRng,
    now: Instant,
    sent: Vec<(Instant, Sent)>,
    probes: usize,
    /// The configuration of the port.
    bound: Option<Lease>,
}

impl Stand {
    fn new(seed: u64) -> Stand {
        let mut rng = SecureRng::new(RngKey::for_simulation(seed));
        let client = Client::new(Config::new(OURS, 1500), &mut rng);
        Stand { client, rng, now: Instant::ZERO, sent: Vec::new(), probes: 0, bound: None }
    }

    /// Returns a stand whose client has a lease.
    fn bound() -> Stand {
        let mut stand = Stand::new(1);
        stand.pass(secs(1));
        let offer = stand.reply(Kind::Offer, SERVER, ADDRESS);
        stand.arrive(&offer);
        let ack = stand.reply(Kind::Ack, SERVER, ADDRESS);
        stand.arrive(&ack);
        stand.pass(secs(1));
        assert_eq!((stand.client.state(), stand.probes), (State::Bound, 3));
        stand.sent.clear();
        stand
    }

    fn poll(&mut self) {
        while let Some(output) = self.client.poll() {
            match output {
                Output::Send { source, target, message } => {
                    assert!(message.len() >= MESSAGE_BYTES_MIN);
                    let (header, _) = Header::read(&message).expect("a client's message");
                    let options = Options::read(&message).expect("a client's options");
                    let sent = Sent {
                        kind: options.kind().expect("a type"),
                        header,
                        source,
                        target,
                        requested: options.address(option::REQUESTED_ADDRESS),
                        server: options.address(option::SERVER),
                    };
                    assert_eq!(options.get(option::CLIENT), Some(identifier(OURS).to_vec()));
                    assert_eq!((header.is_reply, header.mac), (false, OURS));
                    self.sent.push((self.now, sent));
                }
                Output::Probe(address) => {
                    assert_eq!(self.client.probed(), Some(address));
                    self.probes += 1;
                }
                Output::Bound(lease) => assert_eq!(self.bound.replace(lease), None),
                Output::Unbound(lease) => {
                    let old = self.bound.take().expect("it was bound");
                    assert_eq!(old.address, lease.address);
                }
            }
        }
    }

    /// Lets time pass, from deadline to deadline.
    fn pass(&mut self, length: Duration) {
        let until = self.now + length;
        for _ in 0..10_000 {
            self.poll();
            let next = self.client.deadline();
            if next > until {
                self.now = until;
                return;
            }
            self.now = self.now.max(next);
            self.client.settle(self.now, &mut self.rng);
        }
        panic!("the client is never idle");
    }

    /// Returns a server's reply to the last message.
    fn reply(&self, kind: Kind, server: Ipv4Addr, yours: Ipv4Addr) -> Vec<u8> {
        let xid = self.client.xid;
        reply(kind, server, yours, xid, OURS, LEASE_SECONDS)
    }

    fn arrive(&mut self, message: &[u8]) {
        self.client.arrive(message, Mac([2, 0, 0, 0, 0, 9]), self.now, &mut self.rng);
        self.poll();
    }

    fn kinds(&mut self) -> Vec<Kind> {
        self.sent.drain(..).map(|(_, sent)| sent.kind).collect()
    }
}

fn reply(kind: Kind, server: Ipv4Addr, yours: Ipv4Addr, xid: u32, mac: Mac, seconds: u32) -> Vec<u8> {
    let none = Ipv4Addr::UNSPECIFIED;
    let header = Header {
        is_reply: true,
        xid,
        seconds: 0,
        broadcast: false,
        client: none,
        yours,
        next_server: none,
        relay: none,
        mac,
    };
    let mut bytes = alloc::vec![0; HEADER_BYTES];
    header.write(&mut bytes);
    push_option(&mut bytes, option::KIND, &[kind as u8]);
    push_option(&mut bytes, option::SERVER, &server.octets());
    if kind != Kind::Nak {
        push_option(&mut bytes, option::LEASE, &seconds.to_be_bytes());
        push_option(&mut bytes, option::MASK, &[255, 255, 255, 0]);
        push_option(&mut bytes, option::ROUTERS, &[10, 0, 0, 254]);
        push_option(&mut bytes, option::NAME_SERVERS, &[10, 0, 0, 53]);
    }
    end(&mut bytes);
    bytes
}

#[test]
fn an_address_is_discovered_requested_probed_and_used() {
    let mut stand = Stand::new(1);
    stand.pass(secs(1));
    let (_, discover) = stand.sent.pop().unwrap();
    assert_eq!((discover.kind, discover.target), (Kind::Discover, Destination::Broadcast));
    assert_eq!((discover.source, discover.header.client), (Ipv4Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED));
    let offer = stand.reply(Kind::Offer, SERVER, ADDRESS);
    stand.arrive(&offer);
    let (_, request) = stand.sent.pop().unwrap();
    assert_eq!(
        (request.kind, request.requested, request.server),
        (Kind::Request, Some(ADDRESS), Some(SERVER))
    );
    assert_eq!(request.header.client, Ipv4Addr::UNSPECIFIED);
    let ack = stand.reply(Kind::Ack, SERVER, ADDRESS);
    stand.arrive(&ack);
    assert_eq!((stand.client.state(), stand.client.lease()), (State::Probing, None));
    stand.pass(secs(1));
    let lease = stand.bound.clone().unwrap();
    assert_eq!(stand.client.lease(), Some(&lease));
    assert_eq!((lease.address, lease.server, lease.router), (ADDRESS, SERVER, Some([10, 0, 0, 254].into())));
    assert_eq!((stand.probes, stand.sent.len()), (3, 0));
}

#[test]
fn a_discover_is_retransmitted_with_exponential_delay_and_then_with_the_broadcast_flag() {
    let mut stand = Stand::new(1);
    stand.pass(secs(400));
    let gaps = stand.sent.windows(2).map(|pair| pair[1].0.since(pair[0].0).as_secs_f64());
    for (gap, wanted) in gaps.zip([4.0, 8.0, 16.0, 32.0, 64.0, 64.0, 64.0]) {
        assert!((gap - wanted).abs() <= 1.0, "{gap} s instead of {wanted} s");
    }
    let flags: Vec<bool> = stand.sent.iter().map(|(_, sent)| sent.header.broadcast).collect();
    assert!(!flags[0] && flags[1..].iter().all(|flag| *flag), "{flags:?}");
    assert!(stand.sent[3].1.header.seconds >= 25, "the time since the client began");
    assert!((7..=10).contains(&stand.sent.len()));
}

#[test]
fn a_reply_that_is_not_for_this_client_is_ignored() {
    let mut stand = Stand::new(1);
    stand.pass(secs(1));
    let xid = stand.client.xid;
    let other = Mac([2, 0, 0, 0, 0, 2]);
    let mut request = reply(Kind::Offer, SERVER, ADDRESS, xid, OURS, LEASE_SECONDS);
    request[0] = 1;
    let all = [
        reply(Kind::Offer, SERVER, ADDRESS, xid ^ 1, OURS, LEASE_SECONDS),
        reply(Kind::Offer, SERVER, ADDRESS, xid, other, LEASE_SECONDS),
        reply(Kind::Ack, SERVER, ADDRESS, xid, OURS, LEASE_SECONDS),
        reply(Kind::Nak, SERVER, ADDRESS, xid, OURS, LEASE_SECONDS),
        request,
    ];
    all.iter().for_each(|message| stand.arrive(message));
    assert_eq!((stand.client.state(), stand.client.counters().ignored), (State::Selecting, 5));
    // An implausible offer; another server's plausible one is still accepted.
    stand.arrive(&reply(Kind::Offer, SERVER, Ipv4Addr::BROADCAST, xid, OURS, LEASE_SECONDS));
    assert_eq!(stand.client.counters().rejected, 1);
    stand.arrive(&reply(Kind::Offer, OTHER, ADDRESS, xid, OURS, LEASE_SECONDS));
    assert_eq!(stand.client.state(), State::Requesting);
    // Only the chosen server's ACK of the offered address counts.
    stand.arrive(&reply(Kind::Ack, SERVER, ADDRESS, xid, OURS, LEASE_SECONDS));
    stand.arrive(&reply(Kind::Ack, OTHER, [10, 0, 0, 51].into(), xid, OURS, LEASE_SECONDS));
    stand.arrive(&reply(Kind::Nak, SERVER, ADDRESS, xid, OURS, LEASE_SECONDS));
    assert_eq!((stand.client.state(), stand.client.counters().ignored), (State::Requesting, 8));
    stand.arrive(&reply(Kind::Ack, OTHER, ADDRESS, xid, OURS, LEASE_SECONDS));
    assert_eq!(stand.client.state(), State::Probing);
}

#[test]
fn a_lease_is_renewed_at_its_server_then_rebound_at_any_and_expires() {
    let mut stand = Stand::bound();
    // T1 is 1800 s, less up to 5 % of jitter.
    stand.pass(secs(1700));
    assert!(stand.sent.is_empty());
    stand.pass(secs(101));
    let (_, renewal) = stand.sent[0].clone();
    assert_eq!((renewal.kind, renewal.target), (Kind::Request, Destination::Server(SERVER)));
    assert_eq!((renewal.source, renewal.header.client), (ADDRESS, ADDRESS));
    assert_eq!((renewal.requested, renewal.server, renewal.header.broadcast), (None, None, false));
    // Before T2, an ACK of another server is ignored.
    let ack = stand.reply(Kind::Ack, OTHER, ADDRESS);
    stand.arrive(&ack);
    assert_eq!(stand.client.state(), State::Renewing);
    stand.pass(secs(1347));
    assert!(stand.sent.iter().all(|(_, sent)| sent.target == Destination::Server(SERVER)));
    assert!((3..=8).contains(&stand.sent.len()), "{} renewals", stand.sent.len());
    stand.sent.clear();
    stand.pass(secs(2));
    let (_, rebinding) = stand.sent.pop().unwrap();
    assert_eq!((rebinding.target, rebinding.source), (Destination::Broadcast, ADDRESS));
    assert_eq!(stand.client.state(), State::Rebinding);
    // After T2, another server may extend the lease, but not change the address.
    let ack = stand.reply(Kind::Ack, OTHER, [10, 0, 0, 51].into());
    stand.arrive(&ack);
    assert_eq!(stand.client.state(), State::Rebinding);
    let ack = stand.reply(Kind::Ack, OTHER, ADDRESS);
    stand.arrive(&ack);
    assert_eq!((stand.client.state(), stand.client.lease().unwrap().server), (State::Bound, OTHER));
    assert!(stand.bound.is_some(), "the address stays");
    stand.sent.clear();
    // Nobody answers: the address is removed when the lease expires, and the client begins again.
    stand.pass(secs(3590));
    assert!(stand.bound.is_some());
    stand.pass(secs(20));
    assert_eq!((&stand.bound, stand.client.counters().expired), (&None, 1));
    assert_eq!(stand.sent.last().unwrap().1.kind, Kind::Discover);
}

#[test]
fn a_nak_removes_the_address_and_repeated_ones_slow_the_client_down() {
    let mut stand = Stand::bound();
    stand.pass(secs(1801));
    let nak = stand.reply(Kind::Nak, OTHER, ADDRESS);
    stand.arrive(&nak);
    assert!(stand.bound.is_some(), "another server's");
    let nak = stand.reply(Kind::Nak, SERVER, ADDRESS);
    stand.arrive(&nak);
    assert_eq!((&stand.bound, stand.client.state()), (&None, State::Init));
    stand.kinds();
    // A server that offers and then refuses, for an hour.
    for _ in 0..36_000 {
        stand.pass(Duration::from_millis(100));
        let kind = match stand.client.state() {
            State::Selecting => Kind::Offer,
            State::Requesting => Kind::Nak,
            _ => continue,
        };
        let message = stand.reply(kind, SERVER, ADDRESS);
        stand.arrive(&message);
    }
    assert!((50..=70).contains(&stand.client.counters().naks_in), "{:?}", stand.client.counters().naks_in);
}

#[test]
fn an_address_that_another_station_has_is_declined_at_most_once_in_ten_seconds() {
    let mut stand = Stand::new(1);
    let mut declined = Vec::new();
    for _ in 0..600 {
        stand.pass(Duration::from_millis(100));
        let kind = match stand.client.state() {
            State::Selecting => Kind::Offer,
            State::Requesting => Kind::Ack,
            State::Probing => {
                let (now, Stand { client, rng, .. }) = (stand.now, &mut stand);
                client.on_conflict(OTHER, now, rng);
                client.on_conflict(ADDRESS, now, rng);
                stand.poll();
                let (at, decline) = stand.sent.last().unwrap().clone();
                assert_eq!((decline.kind, decline.target), (Kind::Decline, Destination::Broadcast));
                assert_eq!((decline.requested, decline.server), (Some(ADDRESS), Some(SERVER)));
                assert_eq!((decline.source, decline.header.client), ([0; 4].into(), [0; 4].into()));
                declined.push(at);
                continue;
            }
            _ => continue,
        };
        let message = stand.reply(kind, SERVER, ADDRESS);
        stand.arrive(&message);
    }
    assert!(declined.len() >= 3 && stand.bound.is_none());
    assert!(declined.windows(2).all(|pair| pair[1].since(pair[0]) >= secs(10)), "{declined:?}");
}

#[test]
fn a_lease_is_released_at_its_server_without_arp() {
    let mut stand = Stand::bound();
    stand.client.release(stand.now);
    stand.poll();
    let (_, release) = stand.sent.pop().unwrap();
    let target = Destination::ServerAtOnce(SERVER, Mac([2, 0, 0, 0, 0, 9]));
    assert_eq!((release.kind, release.target), (Kind::Release, target));
    assert_eq!((release.header.client, release.server, release.requested), (ADDRESS, Some(SERVER), None));
    stand.pass(secs(10_000));
    assert!(stand.sent.is_empty() && stand.bound.is_some());
    // Without a lease, there is nothing to release.
    let mut stand = Stand::new(1);
    stand.client.release(stand.now);
    stand.pass(secs(100));
    assert!(stand.sent.is_empty());
}

#[test]
fn a_lease_is_verified_when_the_link_works_again() {
    for kind in [Kind::Ack, Kind::Nak] {
        let mut stand = Stand::bound();
        stand.pass(secs(10));
        stand.client.on_link_up(stand.now);
        stand.pass(Duration::ZERO);
        let (_, request) = stand.sent.pop().unwrap();
        assert_eq!((request.kind, request.target), (Kind::Request, Destination::Broadcast));
        assert_eq!((request.header.client, stand.client.state()), (ADDRESS, State::Rebinding));
        assert!(stand.bound.is_some(), "the address stays in use until it is refused");
        let reply = stand.reply(kind, OTHER, ADDRESS);
        stand.arrive(&reply);
        assert_eq!(stand.bound.is_some(), kind == Kind::Ack);
    }
    // A search does not wait for its next retransmission.
    let mut stand = Stand::new(1);
    stand.pass(secs(70));
    stand.kinds();
    stand.client.on_link_up(stand.now);
    stand.pass(secs(10));
    assert_eq!(stand.kinds(), [Kind::Discover, Kind::Discover]);
}

#[test]
fn a_changed_router_is_configured_at_the_renewal_and_an_unchanged_lease_changes_nothing() {
    let mut stand = Stand::bound();
    stand.pass(secs(1801));
    let before = stand.bound.clone();
    let ack = stand.reply(Kind::Ack, SERVER, ADDRESS);
    stand.arrive(&ack);
    assert_eq!(stand.bound, before);
    assert!(stand.client.lease().unwrap().expires_at > before.unwrap().expires_at);
    stand.pass(secs(1801));
    let mut ack = stand.reply(Kind::Ack, SERVER, ADDRESS);
    let router = ack.windows(6).position(|bytes| bytes == [3, 4, 10, 0, 0, 254]).unwrap();
    ack[router + 5] = 253;
    stand.arrive(&ack);
    assert_eq!(stand.bound.as_ref().unwrap().router, Some([10, 0, 0, 253].into()));
}

/// A server: it offers one address, and acknowledges requests for it.
fn serve(sent: &Sent, server: Ipv4Addr, seconds: u32) -> Option<Vec<u8>> {
    let is_for_us = sent.server.is_none_or(|chosen| chosen == server);
    let kind = match sent.kind {
        Kind::Discover => Kind::Offer,
        Kind::Request if is_for_us => {
            let wanted = sent.requested.unwrap_or(sent.header.client);
            if wanted == ADDRESS { Kind::Ack } else { Kind::Nak }
        }
        _ => return None,
    };
    Some(reply(kind, server, ADDRESS, sent.header.xid, sent.header.mac, seconds))
}

proptest! {
    /// Two servers on a link that loses, duplicates and delays: a client whose messages get through now and
    /// then always obtains an address, never keeps one beyond its lease, and sends a bounded number of
    /// messages.
    #[test]
    fn a_client_on_a_lossy_link_gets_a_lease_and_keeps_no_expired_one(
        seed in any::<u64>(),
        loss in 0_u64..60,
        seconds in 30_u32..2000,
    ) {
        let mut stand = Stand::new(seed);
        let mut rng = SecureRng::new(RngKey::for_simulation(seed ^ 1));
        let mut wire: Vec<(Instant, Vec<u8>)> = Vec::new();
        let mut was_bound = false;
        let mut messages = 0;
        for _ in 0..12_000 {
            stand.pass(Duration::from_millis(500));
            for (at, sent) in core::mem::take(&mut stand.sent) {
                messages += 1;
                for server in [SERVER, OTHER] {
                    for _ in 0..1 + u8::from(rng.below(100) < 10) {
                        if rng.below(100) >= loss && let Some(message) = serve(&sent, server, seconds) {
                            wire.push((at + Duration::from_millis(rng.below(3000)), message));
                        }
                    }
                }
            }
            let now = stand.now;
            let (due, later) = wire.into_iter().partition(|(at, _)| *at <= now);
            wire = later;
            let due: Vec<(Instant, Vec<u8>)> = due;
            due.iter().for_each(|(_, message)| stand.arrive(message));
            was_bound |= stand.bound.is_some();
            if let Some(lease) = stand.client.lease() {
                prop_assert!(lease.expires_at >= stand.now);
                prop_assert_eq!(lease.address, ADDRESS);
            }
            prop_assert_eq!(stand.bound.is_some(), stand.client.lease().is_some());
        }
        prop_assert!(was_bound);
        // 6000 s: at most one message in 4 s on average, even with leases of 30 s.
        prop_assert!(messages < 1500, "{} messages", messages);
    }

    /// Whatever arrives, nothing panics, and no address other than a plausible one is used.
    #[test]
    fn arbitrary_replies_yield_only_plausible_addresses(
        seed in any::<u64>(),
        replies in prop::collection::vec((0_u8..8, any::<[u8; 4]>(), any::<[u8; 4]>(), any::<u32>()), 1..200),
    ) {
        let mut stand = Stand::new(seed);
        for (kind, server, yours, seconds) in replies {
            let Some(kind) = Kind::of(kind) else { continue };
            stand.pass(Duration::from_millis(u64::from(seconds % 1000)));
            let xid = stand.client.xid;
            stand.arrive(&reply(kind, server.into(), yours.into(), xid, OURS, seconds));
            if let Some(lease) = &stand.bound {
                prop_assert!(!lease.address.is_loopback() && !lease.address.is_multicast());
                prop_assert!(lease.address.octets()[0] != 0 && lease.address.octets()[0] < 240);
            }
        }
    }
}
