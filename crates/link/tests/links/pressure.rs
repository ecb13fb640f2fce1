//! Links under pressure: slow readers, full queues, and the CPU time that a second of traffic takes.

use super::*;
use std::io::Read;

#[test]
fn a_peer_that_reads_nothing_blocks_no_other() {
    if !net::enter() {
        return;
    }
    for address in ["atmtcp", "tcp-frames"] {
        let mut end = End::with(&format!("{address}:listen:127.0.0.1:7040"));
        let mut peer = TcpStream::connect("127.0.0.1:7040").expect("it listens");
        end.pull().expect("the link is up");
        let frame = item(&end, 9000, 3);
        let count = 2000;
        for _ in 0..count {
            end.send(&frame).expect("the link is up");
            // Packets that the link does not accept stay with the caller.
            if !end.packets.is_empty() {
                break;
            }
        }
        let counters = end.counters();
        let cells = address == "atmtcp";
        assert_eq!(counters.send_errors > 0, cells, "{counters:?}");
        assert_eq!(end.packets.is_empty(), cells, "{counters:?}");
        // Once the peer reads, the link sends the rest, in complete messages only.
        let each = if cells { 8 + 9000 } else { 4 + 9000 };
        let waiting = end.packets.len() as u64;
        let wanted = if cells { counters.bytes_out } else { (counters.units_out + waiting) * each };
        let reader = std::thread::spawn(move || {
            let mut room = vec![0; wanted as usize];
            peer.read_exact(&mut room).expect("it comes");
            (room, peer)
        });
        while !reader.is_finished() {
            end.push().expect("the link is up");
            end.pull().expect("the link is up");
            end.wait();
        }
        let (room, _peer) = reader.join().expect("it has read");
        for message in room.chunks(each as usize) {
            assert_eq!(&message[each as usize - 9000..], frame);
        }
    }
}

#[test]
fn a_second_of_an_oc3c_both_ways_costs_less_than_a_second_of_one_core() {
    if !net::enter() {
        return;
    }
    for (name, packed) in [("a datagram each", ""), ("packed", ",packed")] {
        let mut first = End::with(&format!("udp-cells:127.0.0.1:7000-127.0.0.1:7001{packed}"));
        let mut second = End::with(&format!("udp-cells:127.0.0.1:7001-127.0.0.1:7000{packed}"));
        let cell = TimedCell::new(Instant::ZERO, 0x640, [7; 48]);
        let before = kiban_os::clock::thread_cpu_nanos();
        // Each round transfers the cells of one millisecond, as for a driver that polls every millisecond.
        for _ in 0..1000 {
            for end in [&mut first, &mut second] {
                end.cells.extend([cell; 353]);
                end.push().expect("the link is up");
            }
            for end in [&mut first, &mut second] {
                let goal = end.counters().units_out;
                let mut came = VecDeque::new();
                while end.counters().units_in < goal {
                    let lent = &mut LinkContext { now: Instant::ZERO, memory: &mut end.memory };
                    let AnyLink::Cells(link) = &mut end.link else { panic!("it carries cells") };
                    link.receive(lent, &mut came).expect("the link is up");
                }
                assert!(came.len() == 353 && came.iter().all(|came| *came == cell));
            }
        }
        // This thread ran both ends, so each end used half of the thread's CPU time.
        let nanos = (kiban_os::clock::thread_cpu_nanos() - before) / 2;
        println!("353,000 cells each way, {name}: {:.3} s of a core at each end", nanos as f64 * 1e-9);
        assert!(nanos < 1_000_000_000, "{name}: {nanos} ns");
    }
}

#[test]
fn a_slow_reader_stops_the_sender_and_loses_nothing() {
    if !net::enter() {
        return;
    }
    hush();
    let (mut first, mut second) = open("packet:lab0,offload=off", "packet:lab1,offload=off");
    // The queue is longer than the socket's send buffer, which therefore fills first (EAGAIN).
    if !bucket("lab0", "1mbit", "256mb") {
        return;
    }
    let frames: Vec<Vec<u8>> = (0..256).map(|seed| item(&first, 1400, seed)).collect();
    let mut sent = 0;
    while first.packets.is_empty() {
        first.send(&frames[sent % 256]).expect("the link is up");
        sent += 1;
        assert!(sent < 50_000, "nothing has to wait");
    }
    // Frames that are not accepted stay with the caller, and are sent when there is room.
    assert_eq!(first.counters().units_out + 1, sent as u64);
    first.push().expect("the link is up");
    assert_eq!(first.packets.len(), 1);
    let faster = [
        "qdisc", "change", "dev", "lab0", "root", "tbf", "rate", "100mbit", "burst", "100kb", "limit",
        "256mb",
    ];
    assert!(Command::new("tc").args(faster).status().expect("iproute2 is there").success());
    let mut came = 0;
    let until = first.clock.now() + Duration::from_secs(30);
    while came < sent {
        first.push().expect("the link is up");
        second.pull().expect("the link is up");
        for item in second.items() {
            assert!(item == frames[came % 256], "{came} is another");
            came += 1;
        }
        assert!(
            first.clock.now() < until,
            "{came} of {sent}: {:?} {:?}",
            first.counters(),
            second.counters()
        );
        if came < sent {
            second.wait();
        }
    }
    let counters = first.counters();
    assert_eq!((counters.units_out, counters.send_errors), (sent as u64, 0), "{counters:?}");
}

#[test]
fn receive_queue_overruns_are_counted() {
    if !net::enter() {
        return;
    }
    hush();
    for (one, other, bytes) in [
        ("packet:lab0,offload=off", "packet:lab1,offload=off", 1514),
        ("udp-packets:127.0.0.1:7000-127.0.0.1:7001", "udp-packets:127.0.0.1:7001-127.0.0.1:7000", 60_000),
    ] {
        let (mut first, mut second) = open(one, other);
        let frame = item(&first, bytes, 1);
        // Send more than the socket's receive queue holds.
        let count = 100_000_000 / bytes as u64;
        let thrown = thrown_away();
        let mut pages = 0;
        while first.counters().units_out + first.counters().send_errors < count {
            first.send(&frame).expect("the link is up");
            pages += 1;
        }
        assert!(pages >= count);
        let whole = |end: &mut End| end.items().iter().filter(|came| **came == frame).count() as u64;
        let mut came = 0;
        while {
            second.pull().expect("the link is up");
            let more = whole(&mut second);
            came += more;
            more > 0
        } {}
        assert!((1..count).contains(&came), "{one}: {came} of {count}");
        // The system reports the losses with the next datagram.
        first.send(&frame).expect("the link is up");
        second.take_until(|end| end.came.contains(&frame)).expect("the link is up");
        let (sent, counters) = (first.counters(), second.counters());
        let lost = sent.units_out - 1 - came - counters.overrun;
        assert!(lost <= thrown_away() - thrown, "{one}: {lost} of {sent:?} {counters:?}");
        assert!(counters.overrun > lost, "{one}: {lost} of {sent:?} {counters:?}");
        close(one, (first, second));
    }
}
