//! Congestion: marks and notifications (CNPs), and the rate of a queue pair that gets them.

use crate::pair::{Pair, RoceTraits, traits};
use kiban_base::Instant;
use kiban_rdma::rnic::{CNP_INTERVAL, Operation, Status};
use kiban_rdma::roce::{Departure, Endpoint, Path};
use kiban_rdma::wire::roce::{BTH_BYTES, CNP_RESERVED_BYTES, ICRC_BYTES, PORT};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// The octets of headers around a datagram: Ethernet's, with preamble and gap, IPv4's and UDP's.
const AROUND_BYTES: usize = 38 + 20 + 8;
const WRITE_BYTES: u32 = 1 << 17;

/// A datagram on the wire: its arrival time, its octets, and whether it is marked.
type Flying = (Instant, Vec<u8>, bool);

/// A pair with endpoints.
struct Ends {
    pair: Pair,
    endpoints: [Endpoint; 2],
    now: Instant,
}

impl Ends {
    fn new(traits: RoceTraits) -> Ends {
        let pair = Pair::new(traits);
        let mut endpoints = [Endpoint::default(), Endpoint::default()];
        for (index, endpoint) in endpoints.iter_mut().enumerate() {
            endpoint.attach(pair.hosts[index].qp, Ends::path(index));
        }
        Ends { pair, endpoints, now: Instant::ZERO }
    }

    fn path(host: usize) -> Path {
        let end = |host| SocketAddr::from((Ipv4Addr::new(192, 0, 2, host as u8), PORT));
        Path { local: end(host), remote: end(1 - host) }
    }

    /// Returns the next datagram of a host.
    fn next(&mut self, host: usize) -> Option<(Departure, Vec<u8>)> {
        let mut train = Vec::new();
        let nic = &mut self.pair.hosts[host].nic;
        let departure = self.endpoints[host].next_train(nic, self.now, (1, 1 << 16), &mut train)?;
        Some((departure, train))
    }

    fn take(&mut self, host: usize, datagram: &[u8], is_marked: bool) {
        let qp = self.pair.hosts[host].qp;
        let nic = &mut self.pair.hosts[host].nic;
        self.endpoints[host].take(nic, |_| Some(qp), Ends::path(host), datagram, is_marked, self.now);
    }

    fn write(&mut self, id: u64) {
        let (remote, sge) = (self.pair.at(1, 0), self.pair.hosts[0].element(0, WRITE_BYTES));
        self.pair.hosts[0].post(id, Operation::write(remote), sge);
    }
}

#[test]
fn marked_datagrams_are_answered_with_one_notification_per_interval() {
    let mut ends = Ends::new(traits());
    ends.write(1);
    for (after, expected) in [(Duration::ZERO, 1), (CNP_INTERVAL - Duration::from_nanos(1), 0)]
        .into_iter()
        .chain([(Duration::from_nanos(1), 1)])
    {
        ends.now += after;
        for _ in 0..3 {
            let (departure, datagram) = ends.next(0).expect("the window is open");
            assert!(departure.is_ecn_capable);
            ends.take(1, &datagram, true);
        }
        let mut notifications = 0;
        while let Some((departure, datagram)) = ends.next(1) {
            if datagram[0] != 0x81 {
                continue;
            }
            notifications += 1;
            assert!(!departure.is_ecn_capable, "a notification must not cause one");
            // IBTA §A17.9.3: opcode, flags and version, P_Key, BECN, destination, PSN 0.
            let head = [0x81, 0, 0xff, 0xff, 0x40, 0, 0x10, 0, 0, 0, 0, 0];
            let (front, rest) = datagram.split_at(BTH_BYTES);
            assert_eq!(front, head);
            assert_eq!(rest[..CNP_RESERVED_BYTES], [0; CNP_RESERVED_BYTES]);
            assert_eq!(rest.len(), CNP_RESERVED_BYTES + ICRC_BYTES);
            ends.take(0, &datagram, false);
        }
        assert_eq!(notifications, expected, "after {after:?}");
    }
    let [sender, receiver] = &ends.endpoints;
    assert_eq!(sender.counters().congestion_notifications, 2);
    assert_eq!(receiver.counters().congestion_marks, 9);
    assert_eq!(receiver.counters().congestion_notifications_out, 2);
}

#[test]
fn notifications_that_cannot_leave_do_not_pile_up() {
    let mut ends = Ends::new(traits());
    ends.write(1);
    let (_, datagram) = ends.next(0).expect("a packet");
    for _ in 0..100 {
        ends.take(1, &datagram, true);
        ends.now += CNP_INTERVAL;
    }
    let left = std::iter::from_fn(|| ends.next(1)).filter(|(_, datagram)| datagram[0] == 0x81).count();
    assert_eq!(left, 1);
}

#[test]
fn a_notification_from_a_stranger_is_dropped() {
    let mut ends = Ends::new(traits());
    ends.write(1);
    let (_, datagram) = ends.next(0).expect("a packet");
    ends.take(1, &datagram, true);
    let (_, notification) = ends.next(1).expect("a notification");
    let mut path = Ends::path(0);
    path.remote.set_ip(Ipv4Addr::new(192, 0, 2, 77).into());
    let (qp, nic) = (ends.pair.hosts[0].qp, &mut ends.pair.hosts[0].nic);
    ends.endpoints[0].take(nic, |_| Some(qp), path, &notification, false, ends.now);
    assert_eq!(ends.endpoints[0].counters().congestion_notifications, 0);
}

/// What a bottleneck saw.
struct Bottleneck {
    /// Delivered in the second half of the time, as a part of what it can carry.
    utilization: f64,
    /// The longest queue in the second half.
    queue_bytes_max: usize,
    notifications: u64,
}

/// Sends Writes for 100 ms through a port of 10 Gbit/s and a switch whose next port has 1 Gbit/s; the switch
/// marks what finds more than `mark_above` bytes in its queue.
fn run_bottleneck(mark_above: usize) -> Bottleneck {
    const PORT_RATE: f64 = 10e9 / 8.0;
    const BOTTLENECK_RATE: f64 = 1e9 / 8.0;
    const DELAY: Duration = Duration::from_micros(10);
    let half = Instant::ZERO + Duration::from_millis(50);
    let end = Instant::ZERO + Duration::from_millis(100);
    let mut ends = Ends::new(RoceTraits {
        window: 2048,
        path_mtu: 4096,
        ack_timeout: Some(Duration::from_millis(500)),
        ..traits()
    });
    let lasting = |bytes: usize, rate: f64| Duration::from_nanos((bytes as f64 / rate * 1e9) as u64);
    let (mut port_free, mut bottleneck_free) = (Instant::ZERO, Instant::ZERO);
    let mut flying: [VecDeque<Flying>; 2] = Default::default();
    let (mut id, mut delivered, mut queue_bytes_max) = (0, 0, 0);
    while ends.now < end {
        while id < 64 {
            ends.write(id);
            id += 1;
        }
        if port_free <= ends.now
            && let Some((departure, datagram)) = ends.next(0)
        {
            let bytes = datagram.len() + AROUND_BYTES;
            port_free = ends.now + lasting(bytes, PORT_RATE);
            // The switch: what its next port has not sent yet is in its queue.
            let enters = port_free + DELAY;
            let queue_bytes = (bottleneck_free.since(enters).as_secs_f64() * BOTTLENECK_RATE) as usize;
            if ends.now > half {
                queue_bytes_max = queue_bytes_max.max(queue_bytes);
            }
            bottleneck_free = bottleneck_free.max(enters) + lasting(bytes, BOTTLENECK_RATE);
            let is_marked = departure.is_ecn_capable && queue_bytes > mark_above;
            flying[1].push_back((bottleneck_free, datagram, is_marked));
        }
        while let Some((_, datagram)) = ends.next(1) {
            flying[0].push_back((ends.now + DELAY, datagram, false));
        }
        let next = [flying[0].front(), flying[1].front()].into_iter().flatten().map(|(at, ..)| *at);
        let timers = ends.endpoints.iter().map(|endpoint| endpoint.deadline());
        let free = Some(port_free).filter(|at| *at > ends.now);
        let next = next.chain(timers).chain(free).min().expect("timers run");
        ends.now = ends.now.max(next);
        for (host, flying) in flying.iter_mut().enumerate() {
            while flying.front().is_some_and(|(at, ..)| *at <= ends.now)
                && let Some((_, datagram, is_marked)) = flying.pop_front()
            {
                if host == 1 && ends.now > half {
                    delivered += datagram.len() + AROUND_BYTES;
                }
                ends.take(host, &datagram, is_marked);
            }
            let nic = &mut ends.pair.hosts[host].nic;
            ends.endpoints[host].advance(nic, ends.now);
        }
        let done = ends.pair.hosts[0].results();
        assert!(done.iter().all(|(_, status)| *status == Status::Success));
        id -= done.len() as u64;
    }
    Bottleneck {
        utilization: delivered as f64 / (BOTTLENECK_RATE * end.since(half).as_secs_f64()),
        queue_bytes_max,
        notifications: ends.endpoints[0].counters().congestion_notifications,
    }
}

#[test]
fn notifications_keep_the_queue_short_and_the_bottleneck_busy() {
    // Without marks, the whole window is in the queue.
    let unmarked = run_bottleneck(usize::MAX);
    assert_eq!(unmarked.notifications, 0);
    assert!(unmarked.utilization > 0.99, "{}", unmarked.utilization);
    assert!(unmarked.queue_bytes_max > 7 << 20, "{} bytes", unmarked.queue_bytes_max);
    let marked = run_bottleneck(50_000);
    assert!(marked.notifications > 10);
    assert!(marked.utilization > 0.8, "{}", marked.utilization);
    assert!(marked.queue_bytes_max < 1 << 20, "{} bytes", marked.queue_bytes_max);
}
