//! The decoder of RoCEv2 packets: any packet that is read can be written, and an ICRC has at most one
//! identification.

use crate::features::Features;
use kiban_rdma::wire::roce::icrc::{Icrc, Identifications};
use kiban_rdma::wire::roce::{BTH_BYTES, Bth, ICRC_BYTES, Opcode, PORT, Packet};
use std::net::{Ipv4Addr, SocketAddr};

pub(crate) fn packet(bytes: &[u8], features: &mut Features<'_>) {
    match Packet::read(bytes) {
        Err(rule) => features.show(rule.name()),
        Ok((packet, payload)) => {
            let mut again = vec![0xa5; packet.length()];
            assert_eq!((packet.write(&mut again), packet.length()), (payload.start, payload.start));
            let rest = &bytes[payload.start..];
            assert_eq!(Packet::read(&[&again[..], rest].concat()), Ok((packet, payload.clone())));
            assert_eq!(payload.end + usize::from(packet.bth.pad) + ICRC_BYTES, bytes.len());
            features.show((
                packet.bth.opcode.octet(),
                packet.bth.pad,
                packet.aeth.map(|aeth| std::mem::discriminant(&aeth.syndrome)),
            ));
            identify(bytes, payload.start);
        }
    }
}

/// Solves the identification from the packet's last four octets, and checks that it explains them.
fn identify(bytes: &[u8], header_bytes: usize) {
    let end = |octet| SocketAddr::from((Ipv4Addr::new(192, 0, 2, octet), PORT));
    let icrc = |identification| {
        let mut icrc = Icrc::new(end(1), end(2), bytes.len(), identification);
        let (headers, rest) = bytes.split_at(header_bytes);
        icrc.headers(headers);
        icrc.payload(&rest[..rest.len() - ICRC_BYTES]);
        icrc.octets()
    };
    let received = *bytes.last_chunk().expect("a packet ends with an ICRC");
    if let Some(found) = Identifications::default().solve(received, icrc(0), bytes.len()) {
        assert_eq!(icrc(found), received);
    }
}

/// Returns a packet of each opcode, with four octets of payload and without.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let opcodes = (0..=255).filter_map(|octet| Opcode::read(octet).ok());
    opcodes
        .flat_map(|opcode| {
            let mut head = [0; BTH_BYTES];
            let bth = Bth {
                opcode,
                solicited: false,
                migrated: true,
                pad: 0,
                pkey: 0xffff,
                fecn: false,
                becn: false,
                destination: 17,
                ack_request: true,
                selective: false,
                psn: 5,
            };
            bth.write(&mut head);
            let headers = Packet::new(bth).length() - BTH_BYTES;
            [0, 4].map(|payload| [&head[..], &vec![0; headers + payload + ICRC_BYTES]].concat())
        })
        .collect()
}
