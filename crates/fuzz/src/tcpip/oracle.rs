//! One packet, three parsers: etherparse and smoltcp must parse the same values as our parser, and our parser
//! must accept every packet that it should.

use crate::features::Features;
use crate::tcpip::craft;
use kiban_base::Sum;
use kiban_base::checksum;
use kiban_base::numbers::protocol;
use kiban_tcpip::wire::{ipv4, tcp, udp};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{IpAddress, Ipv4Packet, TcpPacket, TcpRepr, UdpPacket};
use std::net::SocketAddr;

pub(crate) fn run(bytes: &[u8], features: &mut Features<'_>) {
    // The first byte says whether checksums are corrected.
    let Some((mend, bytes)) = bytes.split_first() else { return };
    let mut bytes = bytes.to_vec();
    if mend & 1 == 1 {
        craft::mend(&mut bytes);
    }
    let Ok((ip, ip_bytes)) = ipv4::Header::read(&bytes) else { return };
    if ip.is_fragment() {
        return;
    }
    let load = &bytes[ip_bytes..usize::from(ip.total_bytes)];
    let theirs = Ipv4Packet::new_checked(&bytes[..]).expect("what we read as IPv4 is IPv4");
    assert_eq!(theirs.verify_checksum(), ipv4::verify(&bytes[..ip_bytes]).is_ok());
    assert_eq!(theirs.payload(), load);
    let pseudo = checksum::pseudo_ipv4(ip.source, ip.target, ip.protocol, load.len());
    let ends = (IpAddress::Ipv4(ip.source), IpAddress::Ipv4(ip.target));
    match ip.protocol {
        protocol::TCP => tcp(load, pseudo, ends, features),
        protocol::UDP => udp(load, ip.source.octets(), ip.target.octets(), ends, features),
        _ => {}
    }
}

fn tcp(load: &[u8], pseudo: Sum, ends: (IpAddress, IpAddress), features: &mut Features<'_>) {
    let ours = tcp::Header::read(load);
    let plain = etherparse::TcpSlice::from_slice(load);
    let theirs = TcpPacket::new_checked(load);
    let (ours, used) = match ours {
        Ok(read) => read,
        Err(rule) => {
            // Lengths must agree, but parsers may differ in how strictly they check options.
            if rule != kiban_base::Malformed::OptionLength {
                assert!(plain.is_err(), "etherparse takes what breaks {}", rule.name());
            }
            features.show(("TCP", rule.name()));
            return;
        }
    };
    let plain = plain.expect("etherparse takes what we take");
    assert_eq!(plain.header_slice().len(), used);
    assert_eq!((plain.source_port(), plain.destination_port()), (ours.source_port, ours.target_port));
    assert_eq!(plain.sequence_number(), ours.sequence.0);
    assert_eq!(plain.acknowledgment_number(), ours.acknowledgment.0);
    assert_eq!((plain.window_size(), plain.urgent_pointer()), (ours.window, ours.urgent));
    let flags = [plain.fin(), plain.syn(), plain.rst(), plain.psh(), plain.ack(), plain.urg()];
    let read = (0..6).map(|bit| ours.flags.0 >> bit & 1 == 1).collect::<Vec<_>>();
    assert_eq!(flags[..], read);
    assert_eq!(plain.payload(), &load[used..]);
    let intact = tcp::verify(&load[..used], pseudo.plus(Sum::of(&load[used..]))).is_ok();
    let Ok(theirs) = theirs else { panic!("smoltcp takes the lengths that we take") };
    assert_eq!(theirs.verify_checksum(&ends.0, &ends.1), intact);
    features.show(("TCP", intact));
    let unchecked = ChecksumCapabilities::ignored();
    if let Ok(theirs) = TcpRepr::parse(&theirs, &ends.0, &ends.1, &unchecked) {
        assert_eq!(theirs.max_seg_size, ours.options.mss);
        assert_eq!(theirs.sack_permitted, ours.options.sack_permitted);
        let stamps = theirs.timestamp.map(|stamps| (stamps.tsval, stamps.tsecr));
        assert_eq!(stamps, ours.options.timestamps.map(|stamps| (stamps.value, stamps.echo)));
        // smoltcp clamps the shift to the standard's maximum.
        assert_eq!(theirs.window_scale, ours.options.window_shift.map(|shift| shift.min(14)));
        assert_eq!(theirs.payload, &load[used..]);
        features.show(("options", ours.options.length()));
    }
}

fn udp(
    load: &[u8],
    source: [u8; 4],
    target: [u8; 4],
    ends: (IpAddress, IpAddress),
    features: &mut Features<'_>,
) {
    let ours = udp::Header::read(load);
    let theirs = UdpPacket::new_checked(load);
    let Ok((ours, used)) = ours else {
        features.show("UDP not read");
        return;
    };
    let whole = usize::from(ours.total_bytes);
    let payload = &load[used..whole];
    let theirs = theirs.expect("smoltcp takes the lengths that we take");
    assert_eq!((theirs.src_port(), theirs.dst_port()), (ours.source_port, ours.target_port));
    assert_eq!(theirs.payload(), payload);
    let pseudo = checksum::pseudo_ipv4(source.into(), target.into(), protocol::UDP, whole);
    let intact = udp::verify_over_ipv4(&load[..used], pseudo.plus(Sum::of(payload))).is_ok();
    assert_eq!(theirs.verify_checksum(&ends.0, &ends.1), intact);
    let plain = etherparse::UdpHeader::with_ipv4_checksum(
        ours.source_port,
        ours.target_port,
        &etherparse::Ipv4Header::new(payload.len() as u16 + 8, 64, etherparse::IpNumber::UDP, source, target)
            .expect("a payload that came in a packet"),
        payload,
    )
    .expect("a payload that came in a datagram");
    let sum = u16::from_be_bytes([load[6], load[7]]);
    if sum != 0 {
        assert_eq!(plain.checksum == sum, intact);
    }
    features.show(("UDP", intact, sum == 0));
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let ends = (SocketAddr::from(([10, 0, 0, 1], 1000)), SocketAddr::from(([10, 0, 0, 2], 80)));
    let header = tcp::Header {
        source_port: 1000,
        target_port: 80,
        sequence: tcp::Sequence(1),
        acknowledgment: tcp::Sequence(2),
        flags: tcp::Flags::ACK,
        window: 3,
        urgent: 0,
        options: tcp::Options { mss: Some(1460), window_shift: Some(3), ..tcp::Options::NONE },
    };
    let packets =
        [craft::tcp(ends, &header, &[5, 10, 0, 0, 0, 1, 0, 0, 0, 9], b"abc"), craft::udp(ends, b"xyz")];
    packets.iter().flat_map(|packet| [0, 1].map(|mend| [&[mend][..], packet].concat())).collect()
}
