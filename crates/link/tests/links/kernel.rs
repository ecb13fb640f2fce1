//! Links to the kernel's interfaces (TUN, packet sockets and AF_XDP), and changes to those interfaces.

use super::*;

/// Builds an IPv4 packet with a UDP datagram without a checksum.
fn datagram(payload: &[u8]) -> Vec<u8> {
    let total = (28 + payload.len()) as u16;
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 9, 0, 2, 10, 9, 0, 1];
    packet[2..4].copy_from_slice(&total.to_be_bytes());
    let sum = kiban_base::Sum::of(&packet).checksum();
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend([0, 7, 0, 9]);
    packet.extend((total - 20).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(payload);
    packet
}

#[test]
fn packets_travel_through_a_tun_device_to_the_kernel_and_back() {
    if !net::enter() {
        return;
    }
    hush();
    for address in ["tun:kiban0", "tun:kiban0,offload=off", "tun:kiban0,delay=1ms"] {
        let mut end = End::with(address);
        interface::set_mtu("kiban0", 9000).expect("an MTU");
        interface::set_address("kiban0", [10, 9, 0, 1].into(), 24).expect("an address");
        interface::set_up("kiban0").expect("up");
        let socket = UdpSocket::bind("10.9.0.1:9").expect("the kernel has the address");
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
        for length in [1, 2, 12, 13, 500, 1472, 8972] {
            let payload: Vec<u8> = (0..length).map(|place| (place * 3 + length) as u8).collect();
            end.send(&datagram(&payload)).expect("the link is up");
            let sent = end.counters().units_out;
            end.take_until(|end| end.deadline() == Instant::NEVER).expect("the link is up");
            let mut room = vec![0; 10_000];
            let (count, from) = socket.recv_from(&mut room).expect("it comes");
            assert_eq!(
                (&room[..count], from),
                (&payload[..], SocketAddr::from(([10, 9, 0, 2], 7))),
                "{address}"
            );
            assert!(sent > 0);
            socket.send_to(&payload, "10.9.0.2:7").expect("there is a route");
            end.take_until(|end| !end.came.is_empty()).expect("the link is up");
            let packet = end.came.remove(0);
            assert_eq!((&packet[28..], packet.len()), (&payload[..], 28 + length), "{address}");
        }
        // Invalid packets are refused and counted; those that follow are sent.
        let before = end.counters();
        end.send(&[0xff; 60]).expect("the link is up");
        end.send(&datagram(b"after")).expect("the link is up");
        end.take_until(|end| end.deadline() == Instant::NEVER).expect("the link is up");
        let mut room = [0; 16];
        assert_eq!(socket.recv(&mut room).expect("it comes"), 5, "{address}");
        assert_eq!(end.counters().send_errors - before.send_errors, 1, "{address}");
    }
}

#[test]
fn each_frame_arrives_at_one_of_several_queues() {
    if !net::enter() {
        return;
    }
    hush();
    let queues = "numtxqueues 2 numrxqueues 2";
    ip(&format!("link add lab0 {queues} type veth peer name lab1 {queues}"));
    interface::set_up("lab0").expect("up");
    interface::set_up("lab1").expect("up");
    let mac = interface::mac("lab0").expect("the interface exists");
    for address in ["packet:lab0", "packet:lab0,offload=off", "xdp:lab0"] {
        let mut peer = End::with("packet:lab1");
        let parsed: Address = address.parse().expect("an address");
        let links = parsed.open_queues(2).unwrap_or_else(|error| panic!("{address}: {error}"));
        let mut ends: Vec<End> = links.into_iter().map(End::of).collect();
        // The frames of 64 flows to this station, and of as many to all stations.
        for n in 0..128 {
            let target = if n < 64 { mac.0 } else { [0xff; 6] };
            let mut packet = datagram(&[n; 20]);
            packet[21] = n;
            peer.send(&[&target[..], &[2, 0, 0, 0, 0, 1, 8, 0], &packet].concat()).expect("the link is up");
        }
        let clock = Clock::new();
        let mut came: Vec<Vec<u8>> = vec![Vec::new(); 2];
        while came.iter().map(Vec::len).sum::<usize>() < 128 {
            assert!(clock.now() < Instant::ZERO + Duration::from_secs(60), "{address}: {came:?}");
            for (end, came) in ends.iter_mut().zip(&mut came) {
                end.pull().expect("the link is up");
                came.extend(end.came.drain(..).map(|frame| frame[42]));
            }
        }
        assert!(came.iter().all(|came| !came.is_empty()), "{address}: both queues are used: {came:?}");
        let mut all = came.concat();
        all.sort_unstable();
        assert_eq!(all, (0..128).collect::<Vec<u8>>(), "{address}: each frame has arrived once");
        // Frames that leave through one queue do not arrive at the other.
        let own = [&[2, 0, 0, 0, 0, 1][..], &mac.0, &[8, 0], &datagram(b"own")].concat();
        ends[0].send(&own).expect("the link is up");
        peer.take_until(|end| !end.came.is_empty()).expect("the link is up");
        ends.iter_mut().for_each(|end| end.pull().expect("the link is up"));
        assert!(ends.iter().all(|end| end.came.is_empty()), "{address}");
    }
}

#[test]
fn checksums_left_to_the_card_are_computed_for_single_packets() {
    if !net::enter() {
        return;
    }
    hush();
    ip("link add lab0 type veth peer name lab1");
    interface::set_up("lab0").expect("up");
    interface::set_up("lab1").expect("up");
    interface::set_address("lab1", [10, 9, 0, 1].into(), 24).expect("an address");
    let mac = interface::mac("lab0").expect("the interface exists");
    ip(&format!("neigh add 10.9.0.2 lladdr {mac} dev lab1"));
    for address in ["packet:lab0,offload=off", "xdp:lab0"] {
        let mut end = End::with(address);
        let socket = UdpSocket::bind("10.9.0.1:9").expect("the kernel has the address");
        for length in [0, 1, 2, 3, 18, 19, 500, 1471, 1472] {
            let payload: Vec<u8> = (0..length).map(|place| (place * 3 + length) as u8).collect();
            socket.send_to(&payload, "10.9.0.2:7").expect("a route exists");
            let is_it = |frame: &Vec<u8>| frame.get(12..14) == Some(&[8, 0]) && frame[23] == 17;
            end.take_until(|end| end.came.iter().any(is_it)).expect("the link is up");
            let frame = end.came.iter().find(|frame| is_it(frame)).expect("it has come").clone();
            end.came.clear();
            let datagram = &frame[34..42 + length];
            assert_eq!(datagram[8..], payload, "{address}");
            let of = |from: usize| std::net::Ipv4Addr::from(*frame[from..].first_chunk::<4>().expect("four"));
            let pseudo = kiban_base::checksum::pseudo_ipv4(of(26), of(30), 17, datagram.len());
            let sum = pseudo.plus(kiban_base::Sum::of(datagram));
            assert!(datagram[6..8] != [0, 0] && sum.is_intact(), "{address}, {length} bytes");
        }
    }
}

#[test]
fn an_af_xdp_link_takes_a_queue_from_the_kernel_and_returns_it() {
    if !net::enter() {
        return;
    }
    hush();
    let (mut first, mut second) = open("xdp:lab0", "xdp:lab1");
    // A packet socket on the same interface receives only what the AF_XDP socket does not take.
    let mut kernel = End::with("packet:lab0");
    let frame = item(&second, 200, 1);
    second.send(&frame).expect("the link is up");
    first.take_until(|end| !end.came.is_empty()).expect("the link is up");
    kernel.pull().expect("the link is up");
    assert_eq!((first.items(), kernel.items()), (vec![frame.clone()], vec![]));
    let error = End::open("xdp:lab0").err().expect("the queue is taken").to_string();
    assert!(error.contains("a queue can have one AF_XDP socket"), "{error}");
    drop(first);
    second.send(&frame).expect("the link is up");
    kernel.take_until(|end| !end.came.is_empty()).expect("the link is up");
    assert_eq!(kernel.items(), vec![frame]);
    // Another link can be opened once the kernel has released the queue.
    let until = second.clock.now() + Duration::from_secs(10);
    while let Err(error) = End::open("xdp:lab0") {
        assert!(second.clock.now() < until && error.to_string().contains("busy"), "{error}");
    }
    for (address, says) in [("xdp:lab9", "no such interface"), ("xdp:lab0,queue=7", "ethtool -l lab0")] {
        let error = End::open(address).err().expect(address).to_string();
        assert!(error.contains(says), "{error}");
    }
    // Close the link at the other interface, because its XDP program limits this interface's MTU too.
    drop((second, kernel));
    ip("link set lab0 mtu 9000");
    let error = End::open("xdp:lab0").err().expect("too long").to_string();
    assert!(error.contains("ip link set lab0 mtu 3822"), "{error}");
}

#[test]
fn an_interface_goes_down_up_and_is_removed() {
    if !net::enter() {
        return;
    }
    hush();
    for (one, name) in
        [("packet:lab0", "lab0"), ("xdp:lab0", "lab0"), ("tap:tap0", "tap0"), ("tun:tun0", "tun0")]
    {
        let mut end = if is_veth(one) {
            open(one, "packet:lab1").0
        } else {
            let end = End::with(one);
            interface::set_up(name).expect("up");
            end
        };
        let bytes = if one.starts_with("tun:") { datagram(b"here") } else { item(&end, 64, 1) };
        end.send(&bytes).expect("the link is up");
        let up = end.counters();
        assert_eq!((up.units_out, up.send_errors), (1, 0), "{one}");
        for _ in 0..2 {
            interface::set_down(name).expect("down");
            let before = end.counters();
            end.send(&bytes).expect("it is down, not gone");
            end.pull().expect("it is down, not gone");
            let after = end.counters();
            assert_eq!(
                (after.units_out, after.send_errors),
                (before.units_out, before.send_errors + 1),
                "{one}"
            );
            interface::set_up(name).expect("up");
            end.pull().expect("it is up");
            end.send(&bytes).expect("it is up");
            assert_eq!(end.counters().units_out, before.units_out + 1, "{one}");
        }
        ip(&format!("link del {name}"));
        let error = end.end();
        assert!(error.contains(name), "{error}");
    }
}

#[test]
fn a_missing_privilege_is_named_with_an_alternative() {
    if !net::enter() {
        return;
    }
    ip("link add lab0 type veth peer name lab1");
    // Only this thread loses its capabilities, and it ends with the test.
    let none = rustix::thread::CapabilitySet::empty();
    let sets = rustix::thread::CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets).expect("less is always allowed");
    for (address, says) in [
        ("tun:kiban0", "CAP_NET_ADMIN"),
        ("tap:kiban0", "CAP_NET_ADMIN"),
        ("packet:lab0", "CAP_NET_RAW"),
        ("packet:lab7", "no such interface"),
    ] {
        let error = End::open(address).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(says), "{error}");
        assert!(error.contains("udp-packets:") || says.contains("no such"), "{error}");
    }
    let open = End::open("udp-cells:127.0.0.1:0-127.0.0.1:7000");
    assert!(open.is_ok(), "{:?}", open.err());
}

#[test]
fn packets_beyond_the_interfaces_queue_are_refused_and_counted() {
    if !net::enter() {
        return;
    }
    hush();
    let (mut first, mut second) = open("packet:lab0,offload=off", "packet:lab1,offload=off");
    // The bucket's queue holds six frames; the kernel drops the rest (ENOBUFS).
    if !bucket("lab0", "8mbit", "6kb") {
        return;
    }
    let frame = item(&first, 1000, 1);
    for _ in 0..200 {
        first.send(&frame).expect("the queue is full, and the link is there");
    }
    let counters = first.counters();
    assert_eq!(counters.units_out + counters.send_errors, 200, "{counters:?}");
    assert!(counters.send_errors > 150 && counters.units_out > 0, "{counters:?}");
    let wanted = counters.units_out as usize;
    let is_it = |came: &&Vec<u8>| **came == frame;
    second.take_until(|end| end.came.iter().filter(is_it).count() == wanted).expect("the link is up");
}
