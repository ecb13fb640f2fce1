//! The MADs in captures of rdma_rxe, and malformed ones.

use crate::captures::packets;
use kiban_base::Malformed;
use kiban_rdma::wire::roce::cm::{
    Dreq, IpCm, Message, Mra, PortSpace, PrimaryPath, Rej, RejectReason, RejectedMessage, Rep, Req, Rtu,
    ServiceType, SidrRep, SidrReq, SidrStatus, gid, mtu_bytes, timeout,
};
use kiban_rdma::wire::roce::{Bth, GSI_QKEY, GSI_QPN, MAD_BYTES, Opcode, Packet, Service};
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

pub(super) const RPING: &[u8] = include_bytes!("../../data/rxe-rping.pcap");
pub(super) const UCMATOSE: &[u8] = include_bytes!("../../data/rxe-ucmatose.pcap");
pub(super) const UDADDY: &[u8] = include_bytes!("../../data/rxe-udaddy.pcap");

/// Returns the MADs of a capture with the sender's address.
pub(super) fn mads(file: &[u8]) -> Vec<(SocketAddr, Vec<u8>)> {
    let mut mads = Vec::new();
    for captured in packets(file) {
        let (packet, payload) = Packet::read(&captured.bytes).expect("a packet");
        if packet.bth.destination == GSI_QPN {
            let deth = packet.deth.expect("a datagram");
            assert_eq!((deth.qkey, deth.source), (GSI_QKEY, GSI_QPN));
            mads.push((captured.source, captured.bytes[payload].to_vec()));
        }
    }
    mads
}

pub(super) fn message(mad: &[u8]) -> Message {
    Message::read(mad).expect("a valid MAD").1
}

#[test]
fn every_mad_of_rxe_is_read_and_written_byte_for_byte() {
    for (file, expected) in [
        (RPING, &[0x10, 0x13, 0x14, 0x15, 0x16][..]),
        (UCMATOSE, &[0x10, 0x10, 0x13, 0x13, 0x14, 0x14, 0x15, 0x15, 0x16, 0x16]),
        (UDADDY, &[0x17, 0x18]),
    ] {
        let mads = mads(file);
        let attributes: Vec<u16> = mads.iter().map(|(_, mad)| message(mad).attribute()).collect();
        assert_eq!(attributes, expected);
        for (_, mad) in mads {
            let (header, message) = Message::read(&mad).expect("a valid MAD");
            assert_eq!(message.mad(header.transaction), mad[..], "{message:?}");
        }
    }
}

const ACTIVE: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 3);
const PASSIVE: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 2);

/// Each end begins with the PSN that the other end's message names.
#[test]
fn a_starting_psn_is_that_of_the_receivers_first_packet() {
    let mads = mads(RPING);
    let (Message::Req(req), Message::Rep(rep)) = (message(&mads[0].1), message(&mads[1].1)) else {
        panic!("a REQ and a REP")
    };
    let first_request_of = |host: Ipv4Addr| {
        let own = packets(RPING).into_iter().filter(|captured| captured.source.ip() == host);
        let read = own.map(|captured| Packet::read(&captured.bytes).expect("a packet").0.bth);
        let is_request = |bth: &Bth| match bth.opcode {
            Opcode::Transport(Service::Rc, operation) => !operation.is_response(),
            _ => false,
        };
        read.filter(is_request).map(|bth| bth.psn).next()
    };
    assert_eq!((first_request_of(ACTIVE), first_request_of(PASSIVE)), (Some(rep.psn), Some(req.psn)));
}

/// The values are those that tshark 4 prints for frames 1, 2, 3 and 52 of the capture, except for the flow
/// label and the packet rate: tshark takes their 26 bits from three octets.
#[test]
fn the_messages_of_rping_have_the_values_that_tshark_shows() {
    let mads = mads(RPING);
    let Message::Req(req) = message(&mads[0].1) else { panic!("a REQ") };
    let expected = Req {
        local_comm_id: 0xa81d_3be4,
        service_id: PortSpace::Tcp.service_id(0x1c06),
        ca_guid: 0x5054_00ff_fe00_0003,
        qkey: 0,
        qpn: 0x16,
        responder_resources: 1,
        initiator_depth: 1,
        remote_response_timeout: 20,
        service: ServiceType::Rc,
        flow_control: false,
        psn: 0x31_eaa8,
        local_response_timeout: 20,
        retry_count: 7,
        pkey: 0xffff,
        mtu: 3,
        rdc_exists: false,
        rnr_retry_count: 7,
        max_cm_retries: 15,
        srq: false,
        extended_type: 0,
        path: PrimaryPath {
            local_lid: 0xffff,
            remote_lid: 0xffff,
            local_gid: gid(ACTIVE.into()),
            remote_gid: gid(PASSIVE.into()),
            flow_label: 0x72bf3,
            packet_rate: 0,
            traffic_class: 0,
            hop_limit: 0x40,
            sl: 0,
            is_subnet_local: false,
            ack_timeout: 0x13,
        },
        private_data: req.private_data,
    };
    assert_eq!(req, expected);
    let (addresses, used) = IpCm::read(&req.private_data).expect("an IP CM header");
    let expected = IpCm { source_port: 0xbe73, source: ACTIVE.into(), destination: PASSIVE.into() };
    assert_eq!(addresses, expected);
    let mut written = [0xa5; IpCm::BYTES];
    assert_eq!((addresses.write(&mut written), addresses.length()), (used, used));
    assert_eq!(written, req.private_data[..used]);
    assert_eq!(req.private_data[used..], [0; 56]);

    let expected = Rep {
        local_comm_id: 0x601d_3efb,
        remote_comm_id: 0xa81d_3be4,
        qkey: 0,
        qpn: 0x16,
        ee_context: 0,
        psn: 0x64_a718,
        responder_resources: 1,
        initiator_depth: 1,
        target_ack_delay: 0x0f,
        failover: 0,
        flow_control: false,
        rnr_retry_count: 7,
        srq: false,
        ca_guid: 0x5054_00ff_fe00_0002,
        private_data: [0; Rep::PRIVATE_BYTES],
    };
    assert_eq!(message(&mads[1].1), Message::Rep(expected));
    let (local_comm_id, remote_comm_id) = (0xa81d_3be4, 0x601d_3efb);
    let rtu = Rtu { local_comm_id, remote_comm_id, private_data: [0; Rtu::PRIVATE_BYTES] };
    assert_eq!(message(&mads[2].1), Message::Rtu(rtu));
    let private_data = [0; Dreq::PRIVATE_BYTES];
    let dreq = Dreq { local_comm_id, remote_comm_id, remote_qpn: 0x16, private_data };
    assert_eq!(message(&mads[3].1), Message::Dreq(dreq));
}

/// tshark does not dissect these; the values are udaddy's (Q_Key 0x01234567 is RDMA-CM's constant).
#[test]
fn the_messages_of_udaddy_resolve_its_service() {
    let mads = mads(UDADDY);
    let Message::SidrReq(req) = message(&mads[0].1) else { panic!("a SIDR_REQ") };
    assert_eq!((req.request_id, req.pkey), (0xab1d_3be4, 0xffff));
    assert_eq!(PortSpace::of_service(req.service_id), Some((PortSpace::Udp, 0x1c06)));
    let (addresses, _) = IpCm::read(&req.private_data).expect("an IP CM header");
    let expected = IpCm { source_port: 0xdc65, source: ACTIVE.into(), destination: PASSIVE.into() };
    assert_eq!(addresses, expected);
    let expected = SidrRep {
        request_id: req.request_id,
        status: SidrStatus::VALID,
        information_bytes: 0,
        qpn: 0x19,
        service_id: req.service_id,
        qkey: 0x0123_4567,
        information: [0; 72],
        private_data: [0; SidrRep::PRIVATE_BYTES],
    };
    assert_eq!(message(&mads[1].1), Message::SidrRep(expected));
}

#[test]
fn codes_are_the_standards() {
    assert_eq!(timeout(0), Duration::from_nanos(4096));
    assert_eq!(timeout(20), Duration::from_nanos(4_294_967_296));
    assert_eq!((0..8).filter_map(mtu_bytes).collect::<Vec<_>>(), [256, 512, 1024, 2048, 4096]);
    assert_eq!(PortSpace::Tcp.service_id(7174), 0x0106_1c06);
    assert_eq!(PortSpace::of_service(0x1_0106_1c06), None);
    assert_eq!(PortSpace::of_service(PortSpace::Ib.service_id(7471)), Some((PortSpace::Ib, 7471)));
    assert_eq!(RejectReason::CONSUMER.to_string(), "rejected by the consumer");
    assert_eq!(RejectReason(999).to_string(), "reject reason 999");
}

#[test]
fn malformed_mads_are_refused() {
    let rej = Rej {
        local_comm_id: 1,
        remote_comm_id: 2,
        message: RejectedMessage::Rep,
        information_bytes: 72,
        reason: RejectReason::STALE_CONNECTION,
        information: [7; 72],
        private_data: [9; Rej::PRIVATE_BYTES],
    };
    let mra = Mra {
        local_comm_id: 1,
        remote_comm_id: 2,
        message: RejectedMessage::Other,
        service_timeout: 31,
        private_data: [3; Mra::PRIVATE_BYTES],
    };
    let service_id = PortSpace::Udp.service_id(1);
    let sidr = SidrReq { request_id: 1, pkey: 2, service_id, private_data: [4; SidrReq::PRIVATE_BYTES] };
    let [rej, mra, sidr] = [Message::Rej(rej), Message::Mra(mra), Message::SidrReq(sidr)];
    let changed = |message: &Message, at: usize, octet: u8| {
        let mut mad = message.mad(5);
        mad[at] = octet;
        Message::read(&mad).map(|(_, read)| read)
    };
    for message in [&rej, &mra, &sidr] {
        assert_eq!(Message::read(&message.mad(5)).expect("valid").1, *message);
        for (at, octet, expected) in [
            (0, 2, Malformed::Version),
            (1, 3, Malformed::Operation),
            (2, 1, Malformed::Version),
            (3, 1, Malformed::Operation),
            (17, 0x19, Malformed::Operation),
        ] {
            assert_eq!(changed(message, at, octet), Err(expected), "octet {at}");
        }
        let mad = message.mad(5);
        assert_eq!(Message::read(&mad[..MAD_BYTES - 1]), Err(Malformed::Truncated));
        assert_eq!(Message::read(&[&mad[..], &[0]].concat()), Err(Malformed::TotalLength));
    }
    assert_eq!(changed(&rej, 24 + 8, 0xc0), Err(Malformed::ParameterValue));
    assert_eq!(changed(&mra, 24 + 8, 0xc0), Err(Malformed::ParameterValue));
    assert_eq!(changed(&rej, 24 + 9, 73 << 1), Err(Malformed::ParameterLength));
    let mut header = [0; IpCm::BYTES];
    assert_eq!(IpCm::read(&header), Err(Malformed::AddressLength));
    header[1] = 0x60;
    assert_eq!(IpCm::read(&header).expect("valid").0.source, IpAddr::from([0_u16; 8]));
    assert_eq!(IpCm::read(&header[1..]), Err(Malformed::Truncated));
    header[0] = 0x10;
    assert_eq!(IpCm::read(&header), Err(Malformed::Version));
}

proptest! {
    /// What is accepted can be written again, and nothing panics.
    #[test]
    fn accepted_mads_are_written_as_they_were_read(
        attribute in 0x10..=0x18_u8,
        data in prop::collection::vec(any::<u8>(), 232),
    ) {
        let head = [1, 7, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, attribute, 0, 0, 0, 0, 0, 0];
        if let Ok((header, message)) = Message::read(&[&head[..], &data].concat()) {
            let (again, same) = Message::read(&message.mad(header.transaction)).expect("written");
            prop_assert_eq!((again.transaction, same), (9, message));
        }
    }
}
