//! Throughput over a long link that loses packets, in virtual time: 10 Gbit/s, a round trip of 10 ms, and 64
//! MiB outstanding.
//!
//! Go-back-N  after a loss, everything sent since is sent again. With w packets in flight and a loss rate p,
//!            the w packets of a round trip bring w / (1 + p*w) new ones: at most 1/p, whatever the window.
//!            With 1 % that is 100 packets of 4096 bytes in 10 ms, or 0.33 Gbit/s.

use crate::pair::{Flying, Pair, RoceTraits, parsed, traits};
use kiban_base::{Instant, SimRng};
use kiban_rdma::rnic::{Operation, Status};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

const RATE: f64 = 10e9 / 8.0;
const DELAY: Duration = Duration::from_millis(5);
const PATH_MTU: usize = 4096;
const OUTSTANDING_BYTES: usize = 64 << 20;
const WINDOW: u32 = (OUTSTANDING_BYTES / PATH_MTU) as u32;
/// The length of a Write, or a read: as long as a host's memory.
const MESSAGE_BYTES: usize = crate::pair::BYTES;
/// Around the headers and payload of a packet: its ICRC, the headers of UDP and IPv4, and Ethernet's header,
/// check sequence, preamble and gap.
const AROUND_BYTES: usize = 4 + 28 + 38;

/// Runs for a time, with 64 MiB of Writes or reads outstanding, over a link that loses `percent` of the
/// packets of both directions. Returns the payload completed in the second half, in bytes per second.
fn throughput(reads: bool, reorder_max: [u32; 2], percent: u64, time: Duration) -> f64 {
    let mut pair = Pair::new(RoceTraits {
        path_mtu: PATH_MTU,
        window: WINDOW,
        reorder_max,
        ack_timeout: Some(Duration::from_millis(67)),
        ird: 512,
        ord: 512,
        ..traits()
    });
    let mut rng = SimRng::from_seed(7);
    let (half, end) = (Instant::ZERO + time / 2, Instant::ZERO + time);
    let mut free = [Instant::ZERO; 2];
    let mut flying: BinaryHeap<Flying> = BinaryHeap::new();
    let (mut posted, mut number, mut completed) = (0, 0, 0);
    while pair.now < end {
        while posted < OUTSTANDING_BYTES / MESSAGE_BYTES {
            let (remote, sge) = (pair.at(1, 0), pair.hosts[0].element(0, MESSAGE_BYTES as u32));
            pair.hosts[0].post(
                1,
                if reads { Operation::read(remote) } else { Operation::write(remote) },
                sge,
            );
            posted += 1;
        }
        for (host, free) in free.iter_mut().enumerate() {
            if *free > pair.now {
                continue;
            }
            let nic = &mut pair.hosts[host].nic;
            let mut room = Vec::new();
            if let Some(qp) = nic.pop_packet_tx_queue()
                && nic.next_packet(qp, pair.now, &mut room)
            {
                nic.requeue(qp);
                *free =
                    pair.now + Duration::from_nanos(((room.len() + AROUND_BYTES) as f64 / RATE * 1e9) as u64);
                number += 1;
                if rng.below(100) >= percent {
                    flying.push(Reverse((*free + DELAY, number, 1 - host, room)));
                }
            }
        }
        let timers = pair.hosts.iter().filter_map(|host| host.nic.packet_deadline(host.qp));
        let arrival = flying.peek().map(|Reverse((at, ..))| *at);
        let free = free.into_iter().filter(|at| *at > pair.now);
        let next = timers.chain(arrival).chain(free).min().expect("something is under way");
        pair.now = pair.now.max(next);
        while flying.peek().is_some_and(|Reverse((at, ..))| *at <= pair.now)
            && let Some(Reverse((_, _, host, octets))) = flying.pop()
        {
            let (packet, payload) = parsed(&octets);
            pair.deliver(host, &packet, &payload);
        }
        for host in &mut pair.hosts {
            if host.nic.packet_deadline(host.qp).is_some_and(|deadline| deadline <= pair.now) {
                host.nic.on_packet_timer(host.qp, pair.now);
            }
        }
        let done = pair.hosts[0].results();
        assert!(done.iter().all(|(_, status)| *status == Status::Success));
        posted -= done.len();
        completed += if pair.now > half { done.len() } else { 0 };
    }
    (completed * MESSAGE_BYTES) as f64 / (time / 2).as_secs_f64()
}

const SELECTIVE: [u32; 2] = [WINDOW; 2];

#[test]
fn one_percent_of_loss_leaves_most_of_the_throughput_of_writes() {
    let time = Duration::from_millis(400);
    let clean = throughput(false, SELECTIVE, 0, time);
    assert!(clean > 0.9 * RATE, "{:.2} Gbit/s", clean * 8e-9);
    let lossy = throughput(false, SELECTIVE, 1, time);
    println!("Writes: {:.2} Gbit/s without loss, {:.2} with 1 %", clean * 8e-9, lossy * 8e-9);
    assert!(lossy > 0.8 * clean, "{:.2} Gbit/s", lossy * 8e-9);
}

#[test]
fn one_percent_of_loss_leaves_a_third_of_the_throughput_of_reads() {
    let time = Duration::from_millis(400);
    let clean = throughput(true, SELECTIVE, 0, time);
    assert!(clean > 0.9 * RATE, "{:.2} Gbit/s", clean * 8e-9);
    let lossy = throughput(true, SELECTIVE, 1, time);
    println!("Reads: {:.2} Gbit/s without loss, {:.2} with 1 %", clean * 8e-9, lossy * 8e-9);
    assert!(lossy > 0.3 * clean, "{:.2} Gbit/s", lossy * 8e-9);
}

#[test]
fn against_a_peer_that_goes_back_go_back_n_limits_the_throughput() {
    let limit = 100.0 * PATH_MTU as f64 / (2 * DELAY).as_secs_f64();
    let clean = throughput(false, [WINDOW, 0], 0, Duration::from_millis(200));
    assert!(clean > 0.9 * RATE, "{:.2} Gbit/s", clean * 8e-9);
    let lossy = throughput(false, [WINDOW, 0], 1, Duration::from_secs(4));
    println!("Writes, go-back-N: {:.3} Gbit/s of at most {:.3}", lossy * 8e-9, limit * 8e-9);
    assert!(lossy < limit && lossy > 0.2 * limit, "{:.3} Gbit/s", lossy * 8e-9);
}
