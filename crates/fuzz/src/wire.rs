//! Every decoder in the families' `wire` folders. Any value that is parsed can be written, and then parses to
//! the same value.

use crate::features::Features;
use crate::input::Input;
use crate::target::Target;
use kiban_atm::wire::{aal5, atm, atmarp, llc_snap, oam};
use kiban_base::Sum;
use kiban_base::{Instant, Malformed, checksum, crc, ethernet};
use kiban_capture as capture;
use kiban_rdma::iwarp::mpa::{
    Answer, Config as MpaConfig, Deframer, Front, Initiator, MarkerInserter, Responder, begin, end,
};
use kiban_rdma::wire::efe as efe_frame;
use kiban_rdma::wire::mpa as mpa_frames;
use kiban_tcpip::guest::{GuestConfig, GuestCounters};
use kiban_tcpip::rtp::{Config, Session};
use kiban_tcpip::wire::{
    arp, dhcp, dhcpv6, discovery, icmp, icmpv6, igmp, ip, ipv4, ipv4_options, ipv6, ipv6_extension, mld, pfc,
    rtcp, rtp, tcp, udp,
};
use kiban_vi::wire as vi_packet;
use std::time::Duration;

/// One decoder for each file of a family's `wire` folder.
pub(crate) const TARGETS: &[Target] = &[
    Target { name: "aal5", run: aal5, seeds: || vec![aal5_frame(b"a frame")] },
    Target { name: "arp", run: arp, seeds: || vec![[&[0, 1, 8, 0, 6, 4, 0, 1][..], &[9; 20]].concat()] },
    Target { name: "atm", run: atm, seeds: || vec![vec![0; 53], vec![0xff; 52]] },
    Target { name: "atmarp", run: atmarp, seeds: atmarp_seeds },
    Target { name: "capture", run: capture, seeds: capture_seeds },
    Target { name: "checksum", run: checksum, seeds: || vec![vec![1; 70]] },
    Target { name: "crc", run: crc, seeds: || vec![vec![1; 300]] },
    Target { name: "dhcp", run: dhcp, seeds: dhcp_seeds },
    Target { name: "dhcpv6", run: dhcpv6, seeds: dhcpv6_seeds },
    Target { name: "discovery", run: discovery, seeds: discovery_seeds },
    Target {
        name: "efe",
        run: efe,
        seeds: || {
            vec![[&[0x13, 64, 0, 20][..], &[0; 44]].concat(), [&[0x10, 64, 0x40, 12][..], &[0; 44]].concat()]
        },
    },
    Target { name: "ethernet", run: ethernet, seeds: || vec![vec![2; 14]] },
    Target { name: "icmp", run: icmp, seeds: || kinds(&[0, 3, 5, 8, 11, 12, 13], 8) },
    Target { name: "icmpv6", run: icmpv6, seeds: || kinds(&[1, 2, 3, 4, 128, 129, 135], 8) },
    Target { name: "ip", run: ip, seeds: || [ipv4_seeds(), vec![[&[0x60][..], &[0; 39]].concat()]].concat() },
    Target { name: "ipv4", run: ipv4, seeds: ipv4_seeds },
    Target {
        name: "ipv4_options",
        run: ipv4_options,
        seeds: || vec![vec![1, 7, 7, 4, 0, 0, 0, 0, 148, 4, 0, 0]],
    },
    Target { name: "ipv6", run: ipv6, seeds: || vec![[&[0x60][..], &[0; 39]].concat()] },
    Target {
        name: "ipv6_extension",
        run: ipv6_extension,
        seeds: || vec![vec![6, 0, 5, 2, 0, 0, 1, 0], vec![6; 24]],
    },
    Target { name: "llc_snap", run: llc_snap, seeds: llc_snap_seeds },
    Target { name: "mld", run: mld, seeds: mld_seeds },
    Target { name: "igmp", run: igmp, seeds: igmp_seeds },
    Target { name: "mpa", run: mpa, seeds: mpa_seeds },
    Target { name: "oam", run: oam, seeds: oam_seeds },
    Target { name: "pfc", run: pfc, seeds: || vec![[&[1, 1, 0, 8][..], &[9; 42]].concat()] },
    Target { name: "rtcp", run: rtcp, seeds: rtcp_seeds },
    Target { name: "rtp", run: rtp, seeds: rtp_seeds },
    Target { name: "tcp", run: tcp, seeds: tcp_seeds },
    Target { name: "udp", run: udp, seeds: || vec![vec![0, 1, 0, 2, 0, 9, 0, 0, 5]] },
    Target {
        name: "vi",
        run: vi,
        seeds: || vec![vec![0x15; 32], [&[0x10, 0, 0, 27][..], &[0; 55]].concat()],
    },
];

/// Checks that a parsed value lies within the bytes, is written with the length that it reports, and then
/// parses to the same value. Returns the value.
macro_rules! comes_back {
    ($bytes:expr, $features:expr, $type:ty) => {{
        let bytes: &[u8] = $bytes;
        match <$type>::read(bytes) {
            Ok((value, used)) => {
                assert!(used <= bytes.len(), "{value:?} takes more than there is");
                let mut again = vec![0xa5; value.length()];
                assert_eq!(value.write(&mut again), again.len());
                // A length field may count the bytes after the value, so append some.
                again.extend_from_slice(&bytes[used..]);
                assert_eq!(<$type>::read(&again).map(|(value, _)| value), Ok(value));
                Some((value, used))
            }
            Err(rule) => {
                broken($features, rule);
                None
            }
        }
    }};
}

fn broken(features: &mut Features<'_>, rule: Malformed) {
    features.show(rule.name());
}

fn kinds(kinds: &[u8], length: usize) -> Vec<Vec<u8>> {
    kinds
        .iter()
        .map(|kind| {
            let mut bytes = vec![0; length];
            bytes[0] = *kind;
            bytes
        })
        .collect()
}

pub(crate) fn aal5_frame(payload: &[u8]) -> Vec<u8> {
    let mut crc = crc::Crc32Aal5::new();
    crc.update(payload);
    let mut tail = [0; aal5::TAIL_BYTES_MAX];
    let count = aal5::write_tail(payload.len(), 0, crc, &mut tail);
    [payload, &tail[..count]].concat()
}

fn aal5(bytes: &[u8], features: &mut Features<'_>) {
    comes_back!(bytes, features, aal5::Trailer);
    // Try the bytes unchanged, and also with a correct CRC, so that the search gets past the check.
    let mut mended = bytes.to_vec();
    if let Some((front, last)) = mended.split_last_chunk_mut::<4>() {
        *last = crc::Crc32Aal5::of(front).to_be_bytes();
    }
    for pdu in [bytes, &mended] {
        match aal5::open(pdu) {
            Ok((trailer, payload)) => {
                assert_eq!(aal5::pdu_bytes(payload.len()), pdu.len());
                assert_eq!(usize::from(trailer.length), payload.len());
                features.show(("opened", payload.len().ilog2()));
            }
            Err(rule) => broken(features, rule),
        }
    }
}

fn arp(bytes: &[u8], features: &mut Features<'_>) {
    if let Some((packet, _)) = comes_back!(bytes, features, arp::Packet) {
        features.show(core::mem::discriminant(&packet.operation));
    }
}

fn pfc(bytes: &[u8], features: &mut Features<'_>) {
    if let Some((pause, _)) = comes_back!(bytes, features, pfc::Pause) {
        features.show(pause.quanta.map(|quanta| quanta.is_some()));
    }
}

fn atm(bytes: &[u8], features: &mut Features<'_>) {
    if let Some(cell) = bytes.first_chunk::<{ atm::CELL_BYTES }>() {
        let (check, payload) = atm::unpack(cell);
        features.show(match check {
            atm::HecCheck::Intact(_) => "intact",
            atm::HecCheck::Corrected(_) => "corrected",
            atm::HecCheck::Bad => "bad",
        });
        if let Some(word) = check.word() {
            let mut again = [0; atm::CELL_BYTES];
            atm::pack(word, payload, &mut again);
            let wrong: u32 = again.iter().zip(cell).map(|(one, other)| (one ^ other).count_ones()).sum();
            assert!(wrong <= 1, "at most one bit is corrected");
            for interface in [atm::Interface::Uni, atm::Interface::Nni] {
                let header = atm::Header::from_word(interface, word);
                assert_eq!(header.to_word(interface), word);
                let unassigned = atm::is_unassigned(interface, word);
                features.show((unassigned, atm::is_physical(word), header.is_oam(), header.is_user()));
            }
        }
    }
    if let Some(cell) = bytes.first_chunk::<{ atm::CELL_BYTES_WITHOUT_HEC }>() {
        let (word, payload) = atm::unpack_without_hec(cell);
        let mut again = [0; atm::CELL_BYTES_WITHOUT_HEC];
        atm::pack_without_hec(word, payload, &mut again);
        assert_eq!(again, *cell);
    }
    if let Ok(text) = core::str::from_utf8(bytes)
        && let Ok(vc) = text.parse::<atm::Vc>()
    {
        features.show("a circuit's name");
        assert_eq!(vc.to_string().parse::<atm::Vc>(), Ok(vc));
    }
}

fn atmarp(bytes: &[u8], features: &mut Features<'_>) {
    if let Some((packet, used)) = comes_back!(bytes, features, atmarp::Packet<'_>) {
        features.show((packet.operation as u8, packet.source.ip.is_some(), packet.target.ip.is_some()));
        assert!(used <= atmarp::PACKET_BYTES_MAX);
    }
}

fn atmarp_seeds() -> Vec<Vec<u8>> {
    let party = |ip: Option<[u8; 4]>| atmarp::Party::permanent(ip.map(Into::into));
    let operations = [atmarp::Operation::InverseRequest, atmarp::Operation::InverseReply];
    operations
        .map(|operation| {
            let packet =
                atmarp::Packet { operation, source: party(Some([10, 0, 0, 1])), target: party(None) };
            let mut bytes = vec![0; packet.length()];
            packet.write(&mut bytes);
            bytes
        })
        .to_vec()
}

fn capture(bytes: &[u8], features: &mut Features<'_>) {
    for packet in capture::pcapng::packets(bytes).into_iter().flatten() {
        match packet {
            Ok(packet) => features.show(("a pcapng packet", packet.link_type, packet.data.is_empty())),
            Err(rule) => broken(features, rule),
        }
    }
    match capture::FileHeader::read(bytes) {
        Ok((file, used)) => {
            assert!(used <= bytes.len());
            let mut again = Vec::new();
            file.write(&mut again);
            assert_eq!(capture::FileHeader::read(&again).map(|(file, _)| file), Ok(file));
            for record in file.records(bytes) {
                let Ok((record, data)) = record else {
                    features.show("a record is cut off");
                    break;
                };
                assert_eq!(record.captured_bytes as usize, data.len());
                if record.nanoseconds / 1_000_000_000 <= u64::from(u32::MAX) {
                    let mut again = Vec::new();
                    record.write(&file, &mut again);
                    again.extend_from_slice(data);
                    assert_eq!(
                        capture::RecordHeader::read(&file, &again).map(|(record, _)| record),
                        Ok(record)
                    );
                }
                features.show(("a record", file.big_endian, file.nanoseconds));
            }
        }
        Err(rule) => broken(features, rule),
    }
    match capture::Erf::read(bytes) {
        Ok((erf, used)) => {
            let mut again = Vec::new();
            erf.write(&mut again);
            again.extend_from_slice(&bytes[used..]);
            assert_eq!(capture::Erf::read(&again), Ok((erf, used)));
            features.show("an ERF record");
        }
        Err(rule) => broken(features, rule),
    }
    if let Ok((header, used)) = capture::SunAtm::read(bytes) {
        assert!(used <= bytes.len());
        features.show(("SUNATM", header.is_sent));
    }
}

fn capture_seeds() -> Vec<Vec<u8>> {
    let mut file = Vec::new();
    capture::FileHeader::new(capture::LINK_TYPE_ERF).write(&mut file);
    let head = file.len();
    capture::write_aal5(1_000_000_001, 1, 0x0640, &aal5_frame(b"a frame"), &mut file);
    let record = file[head + 16..].to_vec();
    // A pcapng section: its header, an Ethernet interface, a packet of two bytes, and a simple one of three.
    let words = [
        [0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28].as_slice(),
        &[1, 28, 1, 65535, 0x0001_0009, 9, 28],
        &[6, 36, 0, 0, 7, 2, 60, 0x0000_0607, 36],
        &[3, 20, 3, 0x0003_0201, 20],
    ];
    let section = words.concat().into_iter().flat_map(u32::to_le_bytes).collect();
    vec![file, record, section]
}

fn checksum(bytes: &[u8], features: &mut Features<'_>) {
    let whole = Sum::of(bytes);
    // A reference implementation with the simplest loop (RFC 1071 §4.1).
    let mut plain = 0u64;
    for pair in bytes.chunks(2) {
        plain += u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0));
    }
    while plain >> 16 != 0 {
        plain = (plain & 0xffff) + (plain >> 16);
    }
    let same =
        |one: u16, other: u16| one == other || (one.is_multiple_of(0xffff) && other.is_multiple_of(0xffff));
    assert!(same(whole.word(), plain as u16), "{:04x}, not {plain:04x}", whole.word());
    if bytes.len().is_multiple_of(4) && bytes.len() <= 60 {
        assert!(same(checksum::of_header(bytes).word(), plain as u16));
        features.show(("a header", bytes.len()));
    }
    features.show(bytes.len().checked_ilog2());
}

fn crc(bytes: &[u8], features: &mut Features<'_>) {
    let (at, bytes) = bytes.split_first().map_or((0, bytes), |(first, rest)| (usize::from(*first), rest));
    let (front, back) = bytes.split_at(at.min(bytes.len()));
    let (mut aal5, mut castagnoli) = (crc::Crc32Aal5::new(), crc::Crc32c::new());
    for part in [front, back] {
        aal5.update(part);
        castagnoli.update(part);
    }
    assert_eq!(aal5.value(), crc::Crc32Aal5::of(bytes), "cut at {at}");
    assert_eq!(castagnoli.value(), crc::Crc32c::of(bytes), "cut at {at}");
    aal5.update(&aal5.value().to_be_bytes());
    assert!(aal5.is_intact());
    features.show((front.len() >= 64, bytes.len().checked_ilog2()));
}

fn dhcp(bytes: &[u8], features: &mut Features<'_>) {
    let Some((header, used)) = comes_back!(bytes, features, dhcp::Header) else { return };
    let options = match dhcp::Options::read(bytes) {
        Ok(options) => options,
        Err(rule) => return broken(features, rule),
    };
    features.show((header.is_reply, options.kind().map(|kind| kind as u8)));
    // Written again without overload, every option has the same data.
    let mut again = bytes[..used].to_vec();
    let mut codes: Vec<u8> = options.parts().map(|part| part.0).collect();
    codes.sort_unstable();
    codes.dedup();
    for code in &codes {
        let data = options.get(*code).expect("it is among the parts");
        features.show((*code, data.len().checked_ilog2()));
        if *code != dhcp::option::OVERLOAD && !data.is_empty() {
            dhcp::push_option(&mut again, *code, &data);
        }
    }
    dhcp::end(&mut again);
    let read = dhcp::Options::read(&again).expect("the written bytes");
    for code in codes.iter().filter(|code| **code != dhcp::option::OVERLOAD) {
        assert_eq!(read.get(*code).unwrap_or_default(), options.get(*code).unwrap_or_default());
    }
    let _ = (options.seconds(dhcp::option::LEASE), options.addresses(dhcp::option::ROUTERS));
}

pub(crate) fn dhcp_seeds() -> Vec<Vec<u8>> {
    let header = dhcp::Header {
        is_reply: true,
        xid: 7,
        seconds: 0,
        broadcast: true,
        client: [0; 4].into(),
        yours: [10, 0, 0, 5].into(),
        next_server: [0; 4].into(),
        relay: [0; 4].into(),
        mac: ethernet::Mac([2, 0, 0, 0, 0, 1]),
    };
    let with = |options: &[(u8, &[u8])]| {
        let mut bytes = vec![0; dhcp::HEADER_BYTES];
        header.write(&mut bytes);
        options.iter().for_each(|(code, data)| dhcp::push_option(&mut bytes, *code, data));
        dhcp::end(&mut bytes);
        bytes
    };
    use dhcp::option::{KIND, LEASE, MASK, NAME_SERVERS, OVERLOAD, ROUTERS, SERVER};
    let plain = [(KIND, &[5][..]), (SERVER, &[10, 0, 0, 1]), (LEASE, &[0, 0, 14, 16]), (MASK, &[255; 4])];
    let long = [9; 300];
    let mut overloaded = with(&[(KIND, &[2]), (OVERLOAD, &[3]), (NAME_SERVERS, &long)]);
    overloaded[108..116].copy_from_slice(&[ROUTERS, 4, 10, 0, 0, 254, 0, 255]);
    overloaded[44..47].copy_from_slice(&[NAME_SERVERS, 0, 255]);
    let mut requests = [(1, &[][..]), (3, &[50, 4, 10, 0, 0, 1]), (8, &[])].map(|(kind, more)| {
        let mut bytes = with(&[(KIND, &[kind])]);
        bytes[0] = 1;
        bytes[dhcp::HEADER_BYTES + 3..][..more.len()].copy_from_slice(more);
        bytes
    });
    requests[2][12..16].copy_from_slice(&[10, 0, 0, 9]);
    let replies = vec![with(&plain), overloaded, with(&[(KIND, &[6])])];
    [replies, requests.to_vec()].concat()
}

fn dhcpv6(bytes: &[u8], features: &mut Features<'_>) {
    let Some((header, used)) = comes_back!(bytes, features, dhcpv6::Header) else { return };
    let options = match dhcpv6::Options::read(&bytes[used..]) {
        Ok(options) => options,
        Err(rule) => return broken(features, rule),
    };
    let mut again = bytes[..used].to_vec();
    for (code, data) in options.parts() {
        features.show((header.kind as u8, code, data.len().checked_ilog2()));
        dhcpv6::push_option(&mut again, code, data);
        match dhcpv6::Association::read(data) {
            Ok(set) => features.show((code, set.addresses().count(), set.options.parts().count())),
            Err(rule) => broken(features, rule),
        }
    }
    assert_eq!(again, bytes, "written again, the options are the same");
    let guest: std::net::Ipv6Addr = "fd00::15".parse().expect("an address");
    let ipv6 = Some((guest, kiban_tcpip::ip::Prefix::new(guest.into(), 64)));
    let config = GuestConfig { ipv4: None, ipv6, names: vec![guest.into(); 5] };
    let mut counters = GuestCounters::default();
    if let Some(reply) = config.answer6(bytes, ethernet::Mac([2, 0, 0, 0, 0, 1]), &mut counters) {
        // The reply fits into the smallest packet of IPv6, and is one of a server.
        assert!(reply.len() <= 1280 - 48, "{} bytes", reply.len());
        let (answer, used) = dhcpv6::Header::read(&reply).expect("a reply");
        assert!(matches!(answer.kind, dhcpv6::Kind::Advertise | dhcpv6::Kind::Reply));
        assert_eq!(answer.transaction, header.transaction);
        assert!(dhcpv6::Options::read(&reply[used..]).is_ok());
        features.show((header.kind as u8, answer.kind as u8, reply.len()));
    }
}

pub(crate) fn dhcpv6_seeds() -> Vec<Vec<u8>> {
    use dhcpv6::option::{ADDRESSES, CLIENT, PREFIXES, RAPID_COMMIT, SERVER};
    let mut address = Vec::new();
    dhcpv6::push_address(&mut address, std::net::Ipv6Addr::LOCALHOST, 1, 2);
    let set = [&[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0][..], &address].concat();
    let (client, server) = (&[0, 3, 0, 1, 2, 0, 0, 0, 0, 2][..], &[0, 3, 0, 1, 2, 0, 0, 0, 0, 1][..]);
    /// The type of a message, and its options.
    type Row<'a> = (u8, &'a [(u16, &'a [u8])]);
    let rows: [Row<'_>; 8] = [
        (1, &[(CLIENT, client), (ADDRESSES, &set[..12]), (RAPID_COMMIT, &[])]),
        (1, &[(CLIENT, client), (ADDRESSES, &set), (PREFIXES, &set[..12])]),
        (3, &[(CLIENT, client), (SERVER, server), (ADDRESSES, &set)]),
        (4, &[(CLIENT, client), (ADDRESSES, &set)]),
        (5, &[(CLIENT, client), (SERVER, server), (ADDRESSES, &set)]),
        (6, &[(CLIENT, client), (ADDRESSES, &set)]),
        (8, &[(CLIENT, client), (SERVER, server), (ADDRESSES, &set)]),
        (11, &[(CLIENT, client), (6, &[0, 23, 0, 24])]),
    ];
    let message = |(kind, options): &Row<'_>| {
        let mut bytes = vec![*kind, 1, 2, 3];
        options.iter().for_each(|(code, data)| dhcpv6::push_option(&mut bytes, *code, data));
        bytes
    };
    rows.iter().map(message).collect()
}

fn discovery(bytes: &[u8], features: &mut Features<'_>) {
    let (message, options) = match discovery::Message::read(bytes) {
        Ok(read) => read,
        Err(rule) => return broken(features, rule),
    };
    features.show(core::mem::discriminant(&message));
    let mut again = vec![0; message.length()];
    assert_eq!(message.write(&mut again), again.len());
    let items: Vec<_> = options.collect();
    for item in &items {
        let mut bytes = vec![0xa5; item.length()];
        assert_eq!(item.write(&mut bytes), bytes.len());
        again.extend_from_slice(&bytes);
        features.show((core::mem::discriminant(item), bytes.len().ilog2()));
    }
    // The quoted packet is read with its padding.
    let (read, options) = discovery::Message::read(&again).expect("the written bytes");
    assert_eq!(read, message);
    assert_eq!(options.count(), items.len());
}

fn discovery_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (kind, length) in [(133, 8), (134, 16), (135, 24), (136, 24), (137, 40)] {
        for option in [&[1_u8, 1, 2, 0, 0, 0, 0, 9][..], &[5, 1, 0, 0, 0, 0, 5, 0xdc], &[4, 2]] {
            let mut bytes = vec![0; length];
            bytes[0] = kind;
            bytes.extend_from_slice(option);
            bytes.resize(bytes.len().next_multiple_of(8), 0);
            seeds.push(bytes);
        }
    }
    let mut prefix = vec![134; 16];
    prefix.extend_from_slice(&[3, 4, 64, 0xc0]);
    prefix.resize(48, 1);
    seeds.push(prefix);
    seeds
}

fn mld(bytes: &[u8], features: &mut Features<'_>) {
    let (message, used) = match mld::Message::read(bytes) {
        Ok(read) => read,
        Err(rule) => return broken(features, rule),
    };
    features.show(core::mem::discriminant(&message));
    let mut again = vec![0; message.length()];
    assert_eq!(message.write(&mut again), used);
    assert_eq!(mld::Message::read(&again), Ok((message, used)));
    match message {
        mld::Message::Report(records) => {
            for record in records {
                features.show((record.kind, record.sources.len().checked_ilog2()));
            }
        }
        mld::Message::Query { max_response_code, interval_code, sources, .. } => {
            features
                .show((mld::max_response_delay(max_response_code).as_secs().checked_ilog2(), sources.len()));
            features.show(mld::query_interval(interval_code).as_secs().checked_ilog2());
        }
        _ => {}
    }
}

fn mld_seeds() -> Vec<Vec<u8>> {
    let old = [130, 131, 132].map(|kind| [&[kind][..], &[0; 23]].concat());
    let new = [0_u8, 1].map(|sources| {
        let front = [&[130, 0, 0, 0, 0x83, 0xe8][..], &[0; 18], &[2, 125, 0, sources]].concat();
        [front, vec![9; 16 * usize::from(sources)]].concat()
    });
    let record = [&[4, 0, 0, 0][..], &[0xff; 16]].concat();
    let with_more = [&[2, 1, 0, 1][..], &[0xff; 36]].concat();
    let report = [&[143, 0, 0, 0, 0, 0, 0, 2][..], &record, &with_more].concat();
    old.into_iter().chain(new).chain([report]).collect()
}

fn igmp(bytes: &[u8], features: &mut Features<'_>) {
    let (message, used) = match igmp::Message::read(bytes) {
        Ok(read) => read,
        Err(rule) => return broken(features, rule),
    };
    features.show((core::mem::discriminant(&message), igmp::verify(bytes).is_ok()));
    let mut again = vec![0; message.length()];
    assert_eq!(message.write(&mut again), used);
    assert_eq!(igmp::Message::read(&again), Ok((message, used)));
    assert_eq!(igmp::verify(&again), Ok(()));
    match message {
        igmp::Message::Report(records) => {
            for record in records {
                features.show((record.kind, record.sources.len().checked_ilog2()));
            }
        }
        igmp::Message::Query { max_response_code, sources, .. } => {
            let longest = igmp::max_response_time(max_response_code).as_millis();
            features.show((longest.checked_ilog2(), sources.len()));
        }
        _ => {}
    }
}

fn igmp_seeds() -> Vec<Vec<u8>> {
    let old = [0x11, 0x12, 0x16, 0x17].map(|kind| vec![kind, 100, 0, 0, 239, 1, 2, 3]);
    let new = [0_u8, 1].map(|sources| {
        let front = vec![0x11, 0x83, 0, 0, 0, 0, 0, 0, 2, 125, 0, sources];
        [front, vec![9; 4 * usize::from(sources)]].concat()
    });
    let record = [4, 0, 0, 0, 239, 1, 2, 3];
    let with_more = [2, 1, 0, 1, 224, 0, 0, 251, 9, 9, 9, 9, 0, 0, 0, 0];
    let report = [&[0x22, 0, 0, 0, 0, 0, 0, 2][..], &record, &with_more].concat();
    old.into_iter().chain(new).chain([report]).collect()
}

fn ethernet(bytes: &[u8], features: &mut Features<'_>) {
    if let Some((header, _)) = comes_back!(bytes, features, ethernet::Header) {
        features.show((header.target.is_group(), header.ether_type >= 0x600));
    }
}

fn icmp(bytes: &[u8], features: &mut Features<'_>) {
    if let Some((header, used)) = comes_back!(bytes, features, icmp::Header) {
        features.show((core::mem::discriminant(&header), header.is_error()));
        let mut filled = bytes.to_vec();
        let rest = Sum::of(&bytes[used..]);
        icmp::fill(&mut filled[..used], rest);
        assert_eq!(icmp::verify(&filled[..used], rest), Ok(()));
    }
}

fn icmpv6(bytes: &[u8], features: &mut Features<'_>) {
    if let Some((header, used)) = comes_back!(bytes, features, icmpv6::Header) {
        features.show((core::mem::discriminant(&header), header.is_error()));
        let mut filled = bytes.to_vec();
        let rest = Sum::of(&bytes[used..]);
        icmpv6::fill(&mut filled[..used], rest);
        assert_eq!(icmpv6::verify(&filled[..used], rest), Ok(()));
    }
}

/// Checks `ip::Front`, which reads only some fields of a packet; `ipv4` and `ipv6` check the full decoders.
fn ip(bytes: &[u8], features: &mut Features<'_>) {
    match ip::Front::read(bytes) {
        Ok(front) => {
            assert!(front.header_bytes <= bytes.len());
            assert_eq!(front.source.is_ipv4(), front.target.is_ipv4());
            features.show((front.source.is_ipv4(), front.header_bytes, front.is_fragment));
        }
        Err(rule) => {
            assert!(ipv4::Header::read_quoted(bytes).is_err() || ipv6::Header::read_quoted(bytes).is_err());
            broken(features, rule);
        }
    }
}

fn ipv4(bytes: &[u8], features: &mut Features<'_>) {
    if let Some((header, used)) = comes_back!(bytes, features, ipv4::Header<'_>) {
        assert!(used + header.payload_bytes() <= bytes.len());
        features.show((used, header.is_fragment(), ipv4::verify(&bytes[..used]).is_ok()));
    }
    if let Ok((header, used)) = ipv4::Header::read_quoted(bytes) {
        assert!(used == header.length() && used <= bytes.len());
        features.show("quoted");
    }
}

fn ipv4_seeds() -> Vec<Vec<u8>> {
    let plain = crate::tcpip::craft::ip([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 17, b"payload");
    let mut options = vec![0; 60];
    options[0] = 0x4f;
    options[3] = 60;
    vec![plain, options]
}

fn ipv4_options(bytes: &[u8], features: &mut Features<'_>) {
    let mut walk = ipv4_options::Walk::new(bytes);
    let mut from = 0;
    while let Some(found) = walk.next() {
        match found {
            Ok(item) => {
                assert!(item.at >= from && bytes[item.at] == item.kind);
                from = item.at + 2 + item.data.len();
                assert_eq!(&bytes[item.at + 2..from], item.data);
                features.show((item.kind, item.data.len().checked_ilog2()));
            }
            Err(rule) => {
                assert!(walk.at() < bytes.len() && walk.next().is_none());
                broken(features, rule);
            }
        }
    }
}

fn ipv6(bytes: &[u8], features: &mut Features<'_>) {
    if let Some((header, used)) = comes_back!(bytes, features, ipv6::Header) {
        assert!(used + usize::from(header.payload_bytes) <= bytes.len());
        features.show(header.payload_bytes.checked_ilog2());
    }
}

fn ipv6_extension(bytes: &[u8], features: &mut Features<'_>) {
    comes_back!(bytes, features, ipv6_extension::Fragment);
    let Ok(length) = ipv6_extension::length(bytes) else { return };
    let Some(header) = bytes.get(..length) else { return features.show("short") };
    let mut walk = ipv6_extension::Walk::new(header);
    let mut from = 2;
    while let Some(found) = walk.next() {
        match found {
            Ok(item) => {
                assert!(item.at >= from && header[item.at] == item.kind);
                from = item.at + 2 + item.data.len();
                assert_eq!(&header[item.at + 2..from], item.data);
                features.show((item.kind >> 6, item.data.len().checked_ilog2()));
            }
            Err(rule) => {
                assert!(walk.at() < header.len() && walk.next().is_none());
                broken(features, rule);
            }
        }
    }
}

fn llc_snap(bytes: &[u8], features: &mut Features<'_>) {
    if let Some((header, _)) = comes_back!(bytes, features, llc_snap::Header) {
        features.show(core::mem::discriminant(&header));
    }
}

fn llc_snap_seeds() -> Vec<Vec<u8>> {
    vec![vec![0xaa, 0xaa, 3, 0, 0, 0, 8, 0], vec![0xaa, 0xaa, 3, 0, 0x80, 0xc2, 0, 7, 0, 0]]
}

fn oam(bytes: &[u8], features: &mut Features<'_>) {
    comes_back!(bytes, features, oam::Payload);
    let Some(payload) = bytes.first_chunk::<{ atm::CELL_PAYLOAD_BYTES }>() else { return };
    let mut mended = *payload;
    oam::fill(&mut mended);
    let (value, _) = comes_back!(&mended, features, oam::Payload).expect("the CRC is right");
    features.show(core::mem::discriminant(&value));
}

fn oam_seeds() -> Vec<Vec<u8>> {
    let kinds = kinds(&[0x10, 0x11, 0x14, 0x18, 0x20], 48);
    let mut loopback = vec![0; 48];
    oam::Payload::Loopback(oam::Loopback::request(7)).write(&mut loopback);
    [kinds, vec![loopback]].concat()
}

fn tcp(bytes: &[u8], features: &mut Features<'_>) {
    match tcp::Header::read(bytes) {
        Ok((header, used)) => {
            assert!((tcp::HEADER_BYTES..=60).contains(&used) && used <= bytes.len());
            let mut again = vec![0xa5; header.length()];
            assert_eq!(header.write(&mut again), again.len());
            let (mut read, _) = tcp::Header::read(&again).expect("the written bytes");
            // Our options include padding that others may omit, so fewer blocks may fit.
            let (ours, theirs) = (read.options.sack, header.options.sack);
            assert_eq!(theirs.as_slice()[..ours.as_slice().len()], *ours.as_slice());
            read.options.sack = theirs;
            assert_eq!(read, header);
            let rest = Sum::of(&bytes[used..]);
            let mut filled = bytes.to_vec();
            tcp::fill(&mut filled[..used], rest);
            assert_eq!(tcp::verify(&filled[..used], rest), Ok(()));
            let options = header.options;
            features.show((used, options.mss.is_some(), options.window_shift.is_some()));
            features.show((options.sack_permitted, options.timestamps.is_some()));
            features.show(("blocks", theirs.as_slice().len()));
        }
        Err(rule) => broken(features, rule),
    }
    if let Ok(quoted) = tcp::Quoted::read(bytes) {
        features.show("quoted");
        assert_eq!(quoted.sequence.0.to_be_bytes(), bytes[4..8]);
    }
}

fn mpa(bytes: &[u8], features: &mut Features<'_>) {
    if let Some((start, used)) = comes_back!(bytes, features, mpa_frames::Start) {
        features.show((start.revision, start.enhanced, start.rejected));
        comes_back!(&bytes[used..], features, mpa_frames::Setup);
    }
    comes_back!(bytes, features, mpa_frames::Marker);

    for (crc, markers) in [(false, false), (false, true), (true, false), (true, true)] {
        let (mut deframer, mut weaver) = (Deframer::new(crc, markers), MarkerInserter::new());
        let mut rest = bytes;
        loop {
            match deframer.front(rest) {
                Ok(Front::Whole { ulpdu, taken }) => {
                    // When framed again, the data has the same length and deframes to the same bytes.
                    let mut again = Vec::new();
                    let start = begin(&mut again, ulpdu.len());
                    again.extend_from_slice(ulpdu);
                    end(&mut again, start, crc);
                    if markers {
                        weaver.insert_markers(&std::mem::take(&mut again), crc, &mut again);
                    }
                    assert_eq!(again.len(), taken);
                    features.show((crc, markers, taken.ilog2()));
                    rest = &rest[taken..];
                }
                Ok(Front::Part { ulpdu, length }) => {
                    assert!(!crc && !markers && ulpdu.len() <= length && ulpdu.len() <= rest.len());
                    break;
                }
                Ok(Front::NeedMore(wanted)) => {
                    assert!(wanted > rest.len());
                    break;
                }
                Err(fault) => {
                    features.show((crc, markers, fault.code()));
                    break;
                }
            }
        }
    }

    let config = MpaConfig { peer_to_peer: true, ..MpaConfig::default() };
    let mut initiator = Initiator::new(&config, 4, 4, &[]).expect("no private data is short enough");
    match initiator.take(bytes) {
        Ok(Answer::Agreed(agreed)) => features.show(("agreed", agreed.crc, agreed.rtr.is_some())),
        Ok(answer) => features.show(("reply", matches!(answer, Answer::NeedMore))),
        Err(fault) => features.show(("reply", fault.name())),
    }
    let mut responder = Responder::new(&config);
    match responder.take(bytes) {
        Ok(None) => features.show("request wants"),
        Ok(Some(request)) => {
            features.show(("asked", request.enhanced, request.peer_to_peer));
            let (reply, _) = responder.accept(&[], request.ird, request.ord).expect("no private data");
            assert!(mpa_frames::Start::read(&reply).is_ok());
        }
        Err(refused) => features.show(("request", refused.fault.name(), refused.reply.len())),
    }
}

fn mpa_seeds() -> Vec<Vec<u8>> {
    let start = |key: &[u8], rest: &[u8]| [key, rest].concat();
    let mut fpdus = Vec::new();
    for bytes in [0, 18, 600] {
        let begun = begin(&mut fpdus, bytes);
        fpdus.resize(fpdus.len() + bytes, 7);
        end(&mut fpdus, begun, true);
    }
    let mut woven = Vec::new();
    MarkerInserter::new().insert_markers(&fpdus, true, &mut woven);
    vec![
        start(b"MPA ID Req Frame", &[0xd0, 2, 0, 4, 0xc0, 1, 0xc0, 1]),
        start(b"MPA ID Rep Frame", &[0x10, 2, 0, 4, 0x80, 1, 0x80, 1]),
        start(b"MPA ID Req Frame", &[0x40, 1, 0, 0]),
        start(b"MPA ID Rep Frame", &[0x20, 1, 0, 2, b'n', b'o']),
        fpdus,
        woven,
    ]
}

fn tcp_seeds() -> Vec<Vec<u8>> {
    let mut input = Input::new(&[]);
    let mut options = tcp::Options {
        mss: Some(1460),
        window_shift: Some(7),
        sack_permitted: true,
        timestamps: Some(tcp::Timestamps { value: 1, echo: 2 }),
        ..tcp::Options::NONE
    };
    let mut seeds = Vec::new();
    for round in 0..3 {
        let header = tcp::Header {
            source_port: input.short(),
            target_port: 80,
            sequence: tcp::Sequence(round),
            acknowledgment: tcp::Sequence(2),
            flags: tcp::Flags::ACK,
            window: 3,
            urgent: 0,
            options,
        };
        let mut bytes = vec![0; header.length()];
        header.write(&mut bytes);
        seeds.push(bytes);
        options = tcp::Options { timestamps: options.timestamps, ..tcp::Options::NONE };
        options.sack.push(tcp::SackBlock { left: tcp::Sequence(5), right: tcp::Sequence(9) });
    }
    seeds
}

fn udp(bytes: &[u8], features: &mut Features<'_>) {
    if let Some((header, used)) = comes_back!(bytes, features, udp::Header) {
        assert!(used + header.payload_bytes() <= bytes.len());
        let rest = Sum::of(&bytes[used..used + header.payload_bytes()]);
        let mut filled = bytes[..used].to_vec();
        udp::fill(&mut filled, rest);
        assert_eq!(udp::verify_over_ipv4(&filled, rest), Ok(()));
        assert_eq!(udp::verify_over_ipv6(&filled, rest), Ok(()));
        features.show(header.payload_bytes().checked_ilog2());
    }
}

fn rtp(bytes: &[u8], features: &mut Features<'_>) {
    if let Some((header, used)) = comes_back!(bytes, features, rtp::Header<'_>) {
        let payload = header.payload(&bytes[used..]);
        assert!(used + payload.len() <= bytes.len());
        features.show((header.csrcs.len(), header.extension.is_some(), header.is_padded));
    }
}

fn rtp_seeds() -> Vec<Vec<u8>> {
    let whole = [&[0xb1, 0xe0, 0, 1][..], &[0; 8], &[0, 0, 0, 9], &[0, 1, 0, 1], &[7; 4], &[5, 0, 0, 3]];
    vec![[&[0x80, 0][..], &[1; 20]].concat(), whole.concat()]
}

/// Single packets, whole datagrams, and a session that receives them.
fn rtcp(bytes: &[u8], features: &mut Features<'_>) {
    comes_back!(bytes, features, rtcp::Packet<'_>);
    match rtcp::Compound::read(bytes) {
        Err(rule) => broken(features, rule),
        Ok(compound) => {
            for packet in compound.iter() {
                features.show(core::mem::discriminant(&packet));
                match packet {
                    rtcp::Packet::SenderReport { reports, .. }
                    | rtcp::Packet::ReceiverReport { reports, .. } => {
                        for block in reports.iter() {
                            assert_eq!(rtcp::ReportBlock::read(&block.bytes()), block);
                        }
                    }
                    rtcp::Packet::SourceDescription(chunks) => {
                        features.show(chunks.iter().filter_map(|chunk| chunk.item(rtcp::CNAME)).count());
                    }
                    rtcp::Packet::Bye(goodbye) => {
                        features.show((goodbye.ssrcs().count(), goodbye.reason().is_some()));
                    }
                    rtcp::Packet::Other { .. } => {}
                }
            }
        }
    }
    let config = Config { ssrc: 5, cname: b"a@b".to_vec(), sources_max: 3, ..Config::default() };
    let mut session = Session::new(config, 0, 0.5, Instant::ZERO);
    let now = Instant::ZERO + Duration::from_secs(1);
    let is_valid = rtcp::Compound::read(bytes).is_ok();
    assert_eq!(session.on_rtcp(bytes, now).is_ok(), is_valid);
    assert!(session.on_rtp(bytes, now).is_ok() || rtp::Header::read(bytes).is_err());
    assert!(session.sources().count() <= 3);
    // What the session sends is valid, whatever it has received.
    while let Some(report) = session.poll(|| 0.5, session.deadline()) {
        rtcp::Compound::read(&report).expect("our own report");
        if session.counters().reports_out > 2 {
            break;
        }
    }
}

fn rtcp_seeds() -> Vec<Vec<u8>> {
    let block = [&[0, 0, 0, 5][..], &[64, 0, 0, 2], &[0; 16]].concat();
    let sender = [&[0x81, 200, 0, 12, 0, 0, 0, 7][..], &[1; 20], &block].concat();
    let receiver = [&[0x81, 201, 0, 7, 0, 0, 0, 8][..], &block].concat();
    let description = [&[0x81, 202, 0, 2, 0, 0, 0, 7, 1, 1, b'a', 0][..]].concat();
    let bye = vec![0x81, 203, 0, 2, 0, 0, 0, 7, 2, b'n', b'o', 0];
    vec![[sender, description.clone()].concat(), [receiver, description, bye].concat()]
}

fn efe(bytes: &[u8], features: &mut Features<'_>) {
    let quoted = efe_frame::Quoted::read(bytes);
    assert!(quoted.is_ok() || efe_frame::Header::read(bytes).is_err(), "a whole frame can be quoted");
    match efe_frame::Header::read(bytes) {
        Err(rule) => broken(features, rule),
        Ok((header, used)) => {
            features.show((header.kind as u8, header.flags));
            let mut again = bytes.to_vec();
            assert_eq!(header.write(&mut again), used);
            assert_eq!(efe_frame::Header::read(&again), Ok((header, used)));
            let payload = header.payload(bytes);
            if efe_frame::verify(&header, bytes).is_ok() {
                features.show("intact");
            }
            let length = used + payload.len();
            again.resize(length + efe_frame::CHECK_BYTES, 0);
            assert_eq!(efe_frame::fill(&mut again, length), again.len());
            let (checked, _) = efe_frame::Header::read(&again).expect("a check is no fault");
            assert_eq!(efe_frame::verify(&checked, &again), Ok(()));
            comes_back!(payload, features, efe_frame::Setup<'_>);
        }
    }
}

fn vi(bytes: &[u8], features: &mut Features<'_>) {
    match vi_packet::Header::read(bytes, bytes.len()) {
        Err(rule) => broken(features, rule),
        Ok((header, used)) => {
            features.show((header.kind as u8, header.flags));
            let mut again = bytes.to_vec();
            assert_eq!(header.write(&mut again), used);
            assert_eq!(vi_packet::Header::read(&again, again.len()), Ok((header, used)));
            if header.has(vi_packet::flag::CHECKED) && vi_packet::verify(bytes).is_ok() {
                features.show("intact");
            }
            vi_packet::fill(&mut again);
            assert_eq!(vi_packet::verify(&again), Ok(()));
            comes_back!(&bytes[used..], features, vi_packet::Setup<'_>);
            comes_back!(&bytes[used..], features, vi_packet::RemoteRange);
        }
    }
}
