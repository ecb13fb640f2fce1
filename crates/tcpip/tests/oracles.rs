//! Cross-checks against independent implementations: etherparse and smoltcp must decode what we encode, and
//! we must decode what they encode.

use std::net::{Ipv4Addr, Ipv6Addr};

use kiban_base::Sum;
use kiban_base::{checksum, numbers::protocol};
use kiban_tcpip::wire::{icmp, icmpv6, ipv4, ipv6, tcp, udp};
use proptest::{collection::vec, option, prelude::*};
use smoltcp::{
    phy::ChecksumCapabilities,
    wire::{
        Icmpv4Packet, Icmpv4Repr, IpAddress, Ipv4Packet, Ipv4Repr, Ipv6Packet, TcpPacket, TcpRepr, UdpPacket,
    },
};

type Ends = (u32, u32, u16, u16);

/// Returns a whole IPv4 packet around `payload`, with the transport header that `write` puts in front of it.
fn packet(
    ends: Ends,
    protocol: u8,
    header_bytes: usize,
    payload: &[u8],
    write: impl Fn(&mut [u8], Sum),
) -> Vec<u8> {
    let (source, target) = (Ipv4Addr::from(ends.0), Ipv4Addr::from(ends.1));
    let transport_bytes = header_bytes + payload.len();
    let ip = ipv4::Header {
        traffic_class: 0,
        total_bytes: (ipv4::HEADER_BYTES + transport_bytes) as u16,
        identification: 7,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset_bytes: 0,
        time_to_live: 64,
        protocol,
        source,
        target,
        options: &[],
    };
    let mut bytes = vec![0; ipv4::HEADER_BYTES + transport_bytes];
    let ip_bytes = ip.write(&mut bytes);
    bytes[ip_bytes + header_bytes..].copy_from_slice(payload);
    let pseudo = match protocol {
        protocol::ICMP => Sum::ZERO,
        _ => checksum::pseudo_ipv4(source, target, protocol, transport_bytes),
    };
    write(&mut bytes[ip_bytes..ip_bytes + header_bytes], pseudo.plus(Sum::of(payload)));
    bytes
}

fn ends() -> impl Strategy<Value = Ends> {
    // smoltcp rejects addresses that are not unicast, and ports of zero.
    (0x0a00_0001..0x0aff_fffeu32, 0x0a00_0001..0x0aff_fffeu32, 1..=u16::MAX, 1..=u16::MAX)
}

prop_compose! {
    fn tcp_header()(ends in ends(), places in any::<(u32, u32)>(),
                    flags in prop::sample::select(vec![0x10u8, 0x18, 0x11, 0x02, 0x12, 0x14, 0x04]),
                    window in any::<u16>(), mss in option::of(1..=u16::MAX), shift in option::of(0..=14u8),
                    sack_permitted in any::<bool>(), stamps in option::of(any::<(u32, u32)>()),
                    blocks in vec(any::<(u32, u32)>(), 0..=2)) -> (Ends, tcp::Header) {
        let mut options = tcp::Options {
            mss, window_shift: shift, sack_permitted,
            timestamps: stamps.map(|(value, echo)| tcp::Timestamps { value, echo }),
            ..tcp::Options::NONE
        };
        for (left, right) in blocks {
            options.sack.push(tcp::SackBlock { left: tcp::Sequence(left), right: tcp::Sequence(right) });
        }
        let flags = tcp::Flags(flags);
        let acknowledgment = tcp::Sequence(if flags.has(tcp::Flags::ACK) { places.1 } else { 0 });
        (ends, tcp::Header {
            source_port: ends.2, target_port: ends.3, sequence: tcp::Sequence(places.0), acknowledgment,
            flags, window, urgent: 0, options,
        })
    }
}

proptest! {
    #[test]
    fn etherparse_reads_our_segments((ends, header) in tcp_header(), payload in vec(any::<u8>(), 0..99)) {
        let bytes = packet(ends, protocol::TCP, header.length(), &payload, |target, rest| {
            header.write(target);
            tcp::fill(target, rest);
        });
        let read = etherparse::PacketHeaders::from_ip_slice(&bytes).expect("a good packet");
        let Some(etherparse::NetHeaders::Ipv4(ip, _)) = read.net else { panic!("not IPv4") };
        prop_assert_eq!(ip.header_checksum, ip.calc_header_checksum());
        prop_assert_eq!((ip.source, ip.destination), (ends.0.to_be_bytes(), ends.1.to_be_bytes()));
        let Some(etherparse::TransportHeader::Tcp(tcp)) = read.transport else { panic!("not TCP") };
        prop_assert_eq!(Ok(tcp.checksum), tcp.calc_checksum_ipv4(&ip, &payload));
        prop_assert_eq!((tcp.source_port, tcp.destination_port), (ends.2, ends.3));
        prop_assert_eq!((tcp.sequence_number, tcp.window_size), (header.sequence.0, header.window));
        prop_assert_eq!((tcp.syn, tcp.ack, tcp.fin), (
            header.flags.has(tcp::Flags::SYN), header.flags.has(tcp::Flags::ACK), header.flags.has(tcp::Flags::FIN),
        ));
        let mut seen = tcp::Options::NONE;
        for option in tcp.options_iterator() {
            use etherparse::TcpOptionElement as Element;
            match option.expect("a good option") {
                Element::Noop => {}
                Element::MaximumSegmentSize(mss) => seen.mss = Some(mss),
                Element::WindowScale(shift) => seen.window_shift = Some(shift),
                Element::SelectiveAcknowledgementPermitted => seen.sack_permitted = true,
                Element::SelectiveAcknowledgement(first, more) => {
                    for (left, right) in [Some(first)].into_iter().chain(more).flatten() {
                        seen.sack.push(tcp::SackBlock { left: tcp::Sequence(left), right: tcp::Sequence(right) });
                    }
                }
                Element::Timestamp(value, echo) => seen.timestamps = Some(tcp::Timestamps { value, echo }),
            }
        }
        prop_assert_eq!(seen, header.options);
    }

    #[test]
    fn smoltcp_reads_our_segments((ends, header) in tcp_header(), payload in vec(any::<u8>(), 0..99)) {
        let bytes = packet(ends, protocol::TCP, header.length(), &payload, |target, rest| {
            header.write(target);
            tcp::fill(target, rest);
        });
        let ip = Ipv4Packet::new_checked(&bytes[..]).expect("a good packet");
        prop_assert!(ip.verify_checksum());
        let caps = ChecksumCapabilities::default();
        let repr = Ipv4Repr::parse(&ip, &caps).expect("a good header");
        let (source, target) = (IpAddress::Ipv4(repr.src_addr), IpAddress::Ipv4(repr.dst_addr));
        let tcp = TcpPacket::new_checked(ip.payload()).expect("a good segment");
        prop_assert!(tcp.verify_checksum(&source, &target));
        let read = TcpRepr::parse(&tcp, &source, &target, &caps).expect("a good header");
        prop_assert_eq!(read.payload, &payload[..]);
        prop_assert_eq!(read.seq_number.0 as u32, header.sequence.0);
        let options = &header.options;
        prop_assert_eq!((read.max_seg_size, read.sack_permitted), (options.mss, options.sack_permitted));
        prop_assert_eq!(read.window_scale, options.window_shift);
        let stamps = read.timestamp.map(|stamps| tcp::Timestamps { value: stamps.tsval, echo: stamps.tsecr });
        prop_assert_eq!(stamps, options.timestamps);
        let blocks: Vec<_> = read.sack_ranges.into_iter().flatten().collect();
        let ours: Vec<_> = options.sack.as_slice().iter().map(|block| (block.left.0, block.right.0)).collect();
        prop_assert_eq!(blocks, ours);
    }

    #[test]
    fn we_read_the_segments_of_etherparse(
        ends in ends(), places in any::<(u32, u32)>(), window in any::<u16>(), payload in vec(any::<u8>(), 0..99),
        mss in any::<u16>(), stamps in any::<(u32, u32)>(), block in any::<(u32, u32)>(), second in any::<(u32, u32)>(),
    ) {
        use etherparse::TcpOptionElement as Element;
        let mut bytes = Vec::new();
        etherparse::PacketBuilder::ipv4(ends.0.to_be_bytes(), ends.1.to_be_bytes(), 33)
            .tcp(ends.2, ends.3, places.0, window)
            .ack(places.1)
            .psh()
            .options(&[
                Element::Timestamp(stamps.0, stamps.1),
                Element::MaximumSegmentSize(mss),
                Element::SelectiveAcknowledgement(block, [Some(second), None, None]),
            ])
            .expect("options that fit")
            .write(&mut bytes, &payload)
            .expect("a Vec takes everything");
        let (ip, ip_bytes) = ipv4::Header::read(&bytes).expect("a good packet");
        prop_assert_eq!(ipv4::verify(&bytes[..ip_bytes]), Ok(()));
        prop_assert_eq!((ip.time_to_live, ip.protocol), (33, protocol::TCP));
        let segment = &bytes[ip_bytes..];
        let (header, header_bytes) = tcp::Header::read(segment).expect("a good segment");
        let pseudo = checksum::pseudo_ipv4(ip.source, ip.target, ip.protocol, segment.len());
        let rest = pseudo.plus(Sum::of(&segment[header_bytes..]));
        prop_assert_eq!(tcp::verify(&segment[..header_bytes], rest), Ok(()));
        prop_assert_eq!(&segment[header_bytes..], &payload[..]);
        prop_assert_eq!((header.sequence.0, header.acknowledgment.0), places);
        prop_assert_eq!((header.flags, header.window), (tcp::Flags::ACK | tcp::Flags::PSH, window));
        prop_assert_eq!(header.options.mss, Some(mss));
        prop_assert_eq!(header.options.timestamps, Some(tcp::Timestamps { value: stamps.0, echo: stamps.1 }));
        let blocks: Vec<_> = header.options.sack.as_slice().iter().map(|b| (b.left.0, b.right.0)).collect();
        prop_assert_eq!(blocks, vec![block, second]);
    }

    #[test]
    fn both_read_our_datagrams(ends in ends(), payload in vec(any::<u8>(), 0..99)) {
        let total_bytes = (udp::HEADER_BYTES + payload.len()) as u16;
        let header = udp::Header { source_port: ends.2, target_port: ends.3, total_bytes };
        let bytes = packet(ends, protocol::UDP, header.length(), &payload, |target, rest| {
            header.write(target);
            udp::fill(target, rest);
        });
        let read = etherparse::PacketHeaders::from_ip_slice(&bytes).expect("a good packet");
        let Some(etherparse::NetHeaders::Ipv4(ip, _)) = read.net else { panic!("not IPv4") };
        let Some(etherparse::TransportHeader::Udp(udp)) = read.transport else { panic!("not UDP") };
        prop_assert_eq!(Ok(udp.checksum), udp.calc_checksum_ipv4(&ip, &payload));
        let (source, target) = (Ipv4Addr::from(ends.0).into(), Ipv4Addr::from(ends.1).into());
        let packet = UdpPacket::new_checked(&bytes[20..]).expect("a good datagram");
        prop_assert!(packet.verify_checksum(&source, &target));
        prop_assert_eq!(packet.payload(), &payload[..]);
    }

    #[test]
    fn both_read_our_pings(ends in ends(), data in vec(any::<u8>(), 0..99)) {
        let header = icmp::Header::EchoRequest { identifier: ends.2, sequence: ends.3 };
        let bytes = packet(ends, protocol::ICMP, header.length(), &data, |target, rest| {
            header.write(target);
            icmp::fill(target, rest);
        });
        let message = Icmpv4Packet::new_checked(&bytes[20..]).expect("a good message");
        let read = Icmpv4Repr::parse(&message, &ChecksumCapabilities::default());
        prop_assert_eq!(read, Ok(Icmpv4Repr::EchoRequest { ident: ends.2, seq_no: ends.3, data: &data }));
        let (read, _) = etherparse::Icmpv4Header::from_slice(&bytes[20..]).expect("a good message");
        let written = etherparse::Icmpv4Header::with_checksum(read.icmp_type, &data);
        prop_assert_eq!(read.checksum, written.checksum);
    }

    #[test]
    fn both_agree_on_ipv6(
        addresses in any::<(u128, u128)>(), class in any::<u8>(), flow_label in 0..1u32 << 20, hop_limit in any::<u8>(),
        data in vec(any::<u8>(), 0..99), places in any::<(u16, u16)>(),
    ) {
        let (source, target) = (Ipv6Addr::from(addresses.0), Ipv6Addr::from(addresses.1));
        let message = icmpv6::Header::EchoRequest { identifier: places.0, sequence: places.1 };
        let payload_bytes = icmpv6::HEADER_BYTES + data.len();
        let header = ipv6::Header {
            traffic_class: class, flow_label, payload_bytes: payload_bytes as u16, next_header: protocol::ICMPV6,
            hop_limit, source, target,
        };
        let mut bytes = vec![0; ipv6::HEADER_BYTES + payload_bytes];
        header.write(&mut bytes);
        message.write(&mut bytes[40..]);
        bytes[48..].copy_from_slice(&data);
        let pseudo = checksum::pseudo_ipv6(source, target, protocol::ICMPV6, payload_bytes);
        icmpv6::fill(&mut bytes[40..], pseudo.plus(Sum::of(&data)));

        let read = etherparse::PacketHeaders::from_ip_slice(&bytes).expect("a good packet");
        let Some(etherparse::NetHeaders::Ipv6(ip, _)) = read.net else { panic!("not IPv6") };
        prop_assert_eq!((ip.traffic_class, ip.flow_label.value(), ip.hop_limit), (class, flow_label, hop_limit));
        let Some(etherparse::TransportHeader::Icmpv6(icmp)) = read.transport else { panic!("not ICMPv6") };
        let again = etherparse::Icmpv6Header::with_checksum(icmp.icmp_type, ip.source, ip.destination, &data);
        prop_assert_eq!(again.map(|header| header.checksum).ok(), Some(icmp.checksum));
        let packet = Ipv6Packet::new_checked(&bytes[..]).expect("a good packet");
        prop_assert_eq!((packet.src_addr(), packet.dst_addr()), (source, target));
        prop_assert_eq!((packet.traffic_class(), packet.flow_label()), (class, flow_label));
    }

    #[test]
    fn options_that_smoltcp_accepts_are_accepted(words in vec(any::<u32>(), 0..=10), kind in 0..9u8) {
        let mut options: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        if let Some(first) = options.first_mut() {
            *first = kind;
        }
        let mut segment = vec![0; 20];
        segment[..4].copy_from_slice(&[0, 1, 0, 2]);
        segment[12] = (((20 + options.len()) / 4) << 4) as u8;
        segment.extend(&options);
        let any = IpAddress::Ipv4(Ipv4Addr::UNSPECIFIED);
        let packet = TcpPacket::new_checked(&segment[..]).expect("a good length");
        let theirs = TcpRepr::parse(&packet, &any, &any, &ChecksumCapabilities::ignored());
        let ours = tcp::Header::read(&segment);
        // We are stricter: smoltcp accepts a SACK option without a whole block.
        if let (Ok(theirs), Ok((ours, _))) = (theirs, ours) {
            prop_assert_eq!(theirs.max_seg_size, ours.options.mss);
            prop_assert_eq!(theirs.sack_permitted, ours.options.sack_permitted);
        }
    }
}
