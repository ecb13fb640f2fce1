//! Cross-checks of internet-layer packets (ARP, neighbour discovery, errors, fragments) against independent
//! implementations. They decode what we encode, and we decode what they encode.

use std::net::{Ipv4Addr, Ipv6Addr};

use kiban_base::Sum;
use kiban_base::checksum;
use kiban_base::ethernet::Mac;
use kiban_base::numbers::protocol;
use kiban_tcpip::wire::arp::{self, Operation};
use kiban_tcpip::wire::discovery::{Item, Message};
use kiban_tcpip::wire::{icmp, icmpv6, ipv4, ipv4_options, ipv6, ipv6_extension};
use proptest::{collection::vec, option, prelude::*};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::time::Duration;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, Icmpv4Packet, Icmpv4Repr, Icmpv6Packet,
    Icmpv6ParamProblem, Icmpv6Repr, Ipv6FragmentHeader, Ipv6FragmentRepr, NdiscNeighborFlags,
    NdiscPrefixInfoFlags, NdiscPrefixInformation, NdiscRepr, NdiscRouterFlags, RawHardwareAddress,
};

fn mac() -> impl Strategy<Value = Mac> {
    any::<[u8; 6]>().prop_map(|mut octets| {
        octets[0] &= 0xfe;
        Mac(octets)
    })
}

fn raw(mac: Mac) -> RawHardwareAddress {
    RawHardwareAddress::from(EthernetAddress(mac.0))
}

/// Returns a neighbour discovery message as we encode it.
fn written(source: Ipv6Addr, target: Ipv6Addr, message: Message, options: &[Item<'_>]) -> Vec<u8> {
    let mut bytes = vec![0xaa; 512];
    let mut length = message.write(&mut bytes);
    for option in options {
        length += option.write(&mut bytes[length..]);
    }
    bytes.truncate(length);
    let pseudo = checksum::pseudo_ipv6(source, target, protocol::ICMPV6, length);
    let rest = pseudo.plus(Sum::of(&bytes[8..]));
    icmpv6::fill(&mut bytes, rest);
    bytes
}

/// Returns the same message as smoltcp decodes and encodes it.
fn agreed(
    source: Ipv6Addr,
    target: Ipv6Addr,
    bytes: &[u8],
    expected: NdiscRepr<'_>,
) -> Result<(), TestCaseError> {
    let caps = ChecksumCapabilities::default();
    let packet = Icmpv6Packet::new_checked(bytes).expect("a good message");
    let read = Icmpv6Repr::parse(&source, &target, &packet, &caps).expect("a good message");
    prop_assert_eq!(read, Icmpv6Repr::Ndisc(expected));
    let theirs = Icmpv6Repr::Ndisc(expected);
    let mut again = vec![0; theirs.buffer_len()];
    theirs.emit(&source, &target, &mut Icmpv6Packet::new_unchecked(&mut again[..]), &caps);
    let (ours, our_options) = Message::read(bytes).expect("our own");
    let (message, options) = Message::read(&again).expect("theirs");
    prop_assert_eq!(message, ours);
    // smoltcp emits options in its own order.
    let sorted = |options: kiban_tcpip::wire::discovery::Options<'_>| {
        let mut texts: Vec<_> = options.map(|option| format!("{option:?}")).collect();
        texts.sort();
        texts
    };
    prop_assert_eq!(sorted(options), sorted(our_options));
    let pseudo = checksum::pseudo_ipv6(source, target, protocol::ICMPV6, again.len());
    prop_assert_eq!(icmpv6::verify(&again, pseudo.plus(Sum::of(&again[8..]))), Ok(()));
    Ok(())
}

proptest! {
    #[test]
    fn arp_packets(request in any::<bool>(), macs in (mac(), mac()), places in any::<(u32, u32)>()) {
        let packet = arp::Packet {
            operation: if request { Operation::Request } else { Operation::Reply },
            sender_mac: macs.0, sender: Ipv4Addr::from(places.0),
            target_mac: macs.1, target: Ipv4Addr::from(places.1),
        };
        let mut bytes = [0; arp::PACKET_BYTES];
        packet.write(&mut bytes);
        let read = ArpRepr::parse(&ArpPacket::new_checked(&bytes[..]).expect("a good length")).expect("a good packet");
        let expected = ArpRepr::EthernetIpv4 {
            operation: if request { ArpOperation::Request } else { ArpOperation::Reply },
            source_hardware_addr: EthernetAddress(macs.0.0), source_protocol_addr: packet.sender,
            target_hardware_addr: EthernetAddress(macs.1.0), target_protocol_addr: packet.target,
        };
        prop_assert_eq!(read, expected);
        let mut theirs = [0; arp::PACKET_BYTES];
        expected.emit(&mut ArpPacket::new_unchecked(&mut theirs[..]));
        prop_assert_eq!(theirs, bytes);
        prop_assert_eq!(arp::Packet::read(&theirs), Ok((packet, arp::PACKET_BYTES)));
        let (ours, _) = etherparse::ArpPacketSlice::from_slice(&bytes).map(|arp| (arp.operation().0, ())).expect("good");
        prop_assert_eq!(ours, if request { 1 } else { 2 });
    }

    #[test]
    fn solicitations_and_advertisements_of_neighbours(
        ends in any::<(u128, u128, u128)>(), link in option::of(mac()), flags in any::<(bool, bool, bool)>(),
    ) {
        let [source, target, who] = [ends.0, ends.1, ends.2 & !(0xff << 120)].map(Ipv6Addr::from);
        let option: Vec<_> = link.into_iter().map(Item::SourceLink).collect();
        let bytes = written(source, target, Message::NeighbourSolicitation { target: who }, &option);
        agreed(source, target, &bytes, NdiscRepr::NeighborSolicit { target_addr: who, lladdr: link.map(raw) })?;
        let (router, solicited, overrides) = flags;
        let message = Message::NeighbourAdvertisement { router, solicited, overrides, target: who };
        let option: Vec<_> = link.into_iter().map(Item::TargetLink).collect();
        let bytes = written(source, target, message, &option);
        let mut their_flags = NdiscNeighborFlags::empty();
        their_flags.set(NdiscNeighborFlags::ROUTER, router);
        their_flags.set(NdiscNeighborFlags::SOLICITED, solicited);
        their_flags.set(NdiscNeighborFlags::OVERRIDE, overrides);
        let expected = NdiscRepr::NeighborAdvert { flags: their_flags, target_addr: who, lladdr: link.map(raw) };
        agreed(source, target, &bytes, expected)?;
    }

    #[test]
    fn solicitations_and_advertisements_of_routers(
        ends in any::<(u128, u128)>(), link in option::of(mac()), mtu in option::of(any::<u32>()),
        flags in any::<(bool, bool)>(), lifetime_seconds in any::<u16>(), times in any::<(u32, u32)>(),
        hop_limit in any::<u8>(), prefix in option::of((0..=128u8, any::<(bool, bool)>(), any::<(u32, u32)>(), any::<u128>())),
    ) {
        let [source, target] = [ends.0, ends.1].map(Ipv6Addr::from);
        let mut options: Vec<_> = link.into_iter().map(Item::SourceLink).collect();
        let bytes = written(source, target, Message::RouterSolicitation, &options);
        agreed(source, target, &bytes, NdiscRepr::RouterSolicit { lladdr: link.map(raw) })?;
        options.extend(mtu.map(Item::Mtu));
        options.extend(prefix.map(|(bits, (on_link, autonomous), (valid, preferred), prefix)| Item::Prefix {
            bits, on_link, autonomous, valid_seconds: valid, preferred_seconds: preferred, prefix: prefix.into(),
        }));
        let message = Message::RouterAdvertisement {
            hop_limit, managed: flags.0, other: flags.1, lifetime_seconds,
            reachable_ms: times.0, retransmit_ms: times.1,
        };
        let bytes = written(source, target, message, &options);
        let mut their_flags = NdiscRouterFlags::empty();
        their_flags.set(NdiscRouterFlags::MANAGED, flags.0);
        their_flags.set(NdiscRouterFlags::OTHER, flags.1);
        let expected = NdiscRepr::RouterAdvert {
            hop_limit, flags: their_flags,
            router_lifetime: Duration::from_secs(lifetime_seconds.into()),
            reachable_time: Duration::from_millis(times.0.into()),
            retrans_time: Duration::from_millis(times.1.into()),
            lladdr: link.map(raw), mtu,
            prefix_info: prefix.map(|(prefix_len, (on_link, autonomous), (valid, preferred), prefix)| {
                let mut flags = NdiscPrefixInfoFlags::empty();
                flags.set(NdiscPrefixInfoFlags::ON_LINK, on_link);
                flags.set(NdiscPrefixInfoFlags::ADDRCONF, autonomous);
                NdiscPrefixInformation {
                    prefix_len, flags, prefix: prefix.into(),
                    valid_lifetime: Duration::from_secs(valid.into()),
                    preferred_lifetime: Duration::from_secs(preferred.into()),
                }
            }),
        };
        agreed(source, target, &bytes, expected)?;
    }

    #[test]
    fn errors_of_icmp(places in (1..u32::MAX, 1..u32::MAX), data in vec(any::<u8>(), 8..60), which in 0..4u8) {
        // The quoted packet is truncated to its first bytes.
        let quoted = ipv4::Header {
            traffic_class: 0, total_bytes: 20 + data.len() as u16, identification: 1, dont_fragment: true,
            more_fragments: false, fragment_offset_bytes: 0, time_to_live: 9, protocol: protocol::UDP,
            source: places.0.into(), target: places.1.into(), options: &[],
        };
        let mut bytes = vec![0; 28];
        quoted.write(&mut bytes[8..]);
        bytes.extend(&data);
        let header = match which {
            0 => icmp::Header::Unreachable { code: icmp::UNREACHABLE_PORT, next_hop_mtu: 0 },
            1 => icmp::Header::Unreachable { code: icmp::UNREACHABLE_PROTOCOL, next_hop_mtu: 0 },
            2 => icmp::Header::TimeExceeded { code: 1 },
            _ => icmp::Header::Unreachable { code: icmp::UNREACHABLE_TOO_LONG, next_hop_mtu: 1300 },
        };
        header.write(&mut bytes);
        let rest = Sum::of(&bytes[8..]);
        icmp::fill(&mut bytes, rest);
        let packet = Icmpv4Packet::new_checked(&bytes[..]).expect("a good length");
        let read = Icmpv4Repr::parse(&packet, &ChecksumCapabilities::default()).expect("a good message");
        let seen = match read {
            Icmpv4Repr::DstUnreachable { reason, header, data } => (u8::from(reason), header.src_addr, data),
            Icmpv4Repr::TimeExceeded { reason, header, data } => (u8::from(reason), header.src_addr, data),
            other => panic!("{other:?}"),
        };
        prop_assert_eq!(seen, ([3, 2, 1, 4][usize::from(which)], quoted.source, &data[..]));
        let (theirs, _) = etherparse::Icmpv4Header::from_slice(&bytes).expect("a good message");
        prop_assert_eq!(theirs.checksum, etherparse::Icmpv4Header::with_checksum(theirs.icmp_type.clone(), &bytes[8..]).checksum);
        if which == 3 {
            use etherparse::icmpv4::DestUnreachableHeader::FragmentationNeeded;
            let kind = etherparse::Icmpv4Type::DestinationUnreachable(FragmentationNeeded { next_hop_mtu: 1300 });
            prop_assert_eq!(theirs.icmp_type, kind);
        }
    }

    #[test]
    fn errors_of_icmpv6(ends in any::<(u128, u128)>(), data in vec(any::<u8>(), 8..60), mtu in any::<u32>(), which in 0..4u8) {
        let [source, target] = [ends.0, ends.1].map(Ipv6Addr::from);
        let quoted = ipv6::Header {
            traffic_class: 0, flow_label: 0, payload_bytes: data.len() as u16, next_header: protocol::UDP,
            hop_limit: 9, source: target, target: source,
        };
        let mut bytes = vec![0; 48];
        quoted.write(&mut bytes[8..]);
        bytes.extend(&data);
        let header = match which {
            0 => icmpv6::Header::Unreachable { code: 4 },
            1 => icmpv6::Header::TooLong { mtu },
            2 => icmpv6::Header::TimeExceeded { code: 1 },
            _ => icmpv6::Header::ParameterProblem { code: 1, pointer: 40 },
        };
        header.write(&mut bytes);
        let pseudo = checksum::pseudo_ipv6(source, target, protocol::ICMPV6, bytes.len());
        let rest = pseudo.plus(Sum::of(&bytes[8..]));
        icmpv6::fill(&mut bytes, rest);
        let packet = Icmpv6Packet::new_checked(&bytes[..]).expect("a good length");
        let caps = ChecksumCapabilities::default();
        let read = Icmpv6Repr::parse(&source, &target, &packet, &caps).expect("a good message");
        let (said, seen) = match read {
            Icmpv6Repr::DstUnreachable { reason, data, .. } => (u32::from(u8::from(reason)), data),
            Icmpv6Repr::PktTooBig { mtu, data, .. } => (mtu, data),
            Icmpv6Repr::TimeExceeded { reason, data, .. } => (u32::from(u8::from(reason)), data),
            Icmpv6Repr::ParamProblem { reason, pointer, data, .. } => {
                prop_assert_eq!(reason, Icmpv6ParamProblem::UnrecognizedNxtHdr);
                (pointer, data)
            }
            other => panic!("{other:?}"),
        };
        prop_assert_eq!((said, seen), ([4, mtu, 1, 40][usize::from(which)], &data[..]));
    }

    #[test]
    fn fragments(
        offset in 0..8000u16, more in any::<bool>(), identification in any::<u32>(), data in vec(any::<u8>(), 8..40),
    ) {
        // For IPv6, both other implementations decode our fragment header, and we decode theirs.
        let header = ipv6_extension::Fragment {
            next_header: protocol::UDP, offset_bytes: offset * 8, more_fragments: more, identification,
        };
        let mut bytes = [0; 8];
        header.write(&mut bytes);
        let (theirs, _) = etherparse::Ipv6FragmentHeader::from_slice(&bytes).expect("good");
        prop_assert_eq!((theirs.fragment_offset.value(), theirs.more_fragments), (offset, more));
        prop_assert_eq!((theirs.identification, theirs.next_header.0), (identification, protocol::UDP));
        prop_assert_eq!(ipv6_extension::Fragment::read(&theirs.to_bytes()), Ok((header, 8)));
        let mut theirs = [protocol::UDP, 0, 0, 0, 0, 0, 0, 0];
        let repr = Ipv6FragmentRepr { frag_offset: offset, more_frags: more, ident: identification };
        repr.emit(&mut Ipv6FragmentHeader::new_unchecked(&mut theirs[2..]));
        prop_assert_eq!(theirs, bytes);
        // IPv4.
        let header = ipv4::Header {
            traffic_class: 0, total_bytes: 20 + data.len() as u16, identification: identification as u16,
            dont_fragment: false, more_fragments: more, fragment_offset_bytes: offset * 8, time_to_live: 64,
            protocol: protocol::UDP, source: Ipv4Addr::LOCALHOST, target: Ipv4Addr::LOCALHOST, options: &[],
        };
        let mut bytes = vec![0; 20];
        header.write(&mut bytes);
        bytes.extend(&data);
        let (theirs, _) = etherparse::Ipv4Header::from_slice(&bytes).expect("good");
        prop_assert_eq!((theirs.fragment_offset.value(), theirs.more_fragments), (offset, more));
        let mut again = Vec::new();
        theirs.write(&mut again).expect("a Vec takes everything");
        prop_assert_eq!(&again[..], &bytes[..20]);
        prop_assert_eq!(ipv4::Header::read(&[&again[..], &data[..]].concat()).map(|read| read.0.is_fragment()), Ok(more || offset > 0));
    }

    #[test]
    fn chains_of_extension_headers(options in vec((0..0x40u8, vec(any::<u8>(), 0..6)), 0..4), last in any::<u8>()) {
        // For options padded to 8 bytes, we and etherparse find the same lengths.
        let mut bytes = vec![last, 0];
        for (kind, data) in &options {
            if *kind == 0 {
                bytes.push(0);
            } else {
                bytes.extend([*kind, data.len() as u8]);
                bytes.extend(data);
            }
        }
        while !bytes.len().is_multiple_of(8) {
            bytes.push(0);
        }
        bytes[1] = (bytes.len() / 8 - 1) as u8;
        prop_assert_eq!(ipv6_extension::length(&bytes), Ok(bytes.len()));
        let (theirs, rest) = etherparse::Ipv6RawExtHeader::from_slice(&bytes).expect("good");
        prop_assert_eq!((theirs.next_header.0, theirs.header_len(), rest.len()), (last, bytes.len(), 0));
        let walked: Result<Vec<_>, _> = ipv6_extension::Walk::new(&bytes).collect();
        let expected: Vec<_> = options.iter().filter(|(kind, _)| *kind > 0).map(|(kind, data)| (*kind, &data[..])).collect();
        prop_assert_eq!(walked.expect("good").iter().map(|item| (item.kind, item.data)).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn arbitrary_bytes_are_read_within_bounds(bytes in vec(any::<u8>(), 0..120)) {
        // Decoders terminate, and do not read beyond the bytes.
        let mut walk = ipv4_options::Walk::new(&bytes[..bytes.len().min(40)]);
        prop_assert!(walk.by_ref().count() <= 40 && walk.at() <= 40);
        prop_assert!(ipv6_extension::Walk::new(&bytes).count() <= 120);
        if let Ok((message, options)) = Message::read(&bytes) {
            let total: usize = options.map(|option| option.length()).sum();
            prop_assert!(message.length() + total <= bytes.len() + 8 * options.count());
        }
        let _ = (arp::Packet::read(&bytes), ipv6_extension::Fragment::read(&bytes));
    }
}
