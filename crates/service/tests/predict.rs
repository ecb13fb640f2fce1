//! The random numbers that NICs, pings and servers choose in real time are unpredictable: each instance gets
//! its own key from the operating system, so two instances choose different numbers.

use kiban_atm::wire::atm::{CELL_BYTES, Interface, Vc};
use kiban_atm::wire::oam;
use kiban_link::address::{Address as LinkAddress, AnyLink};
use kiban_link::atm::ping::{Flow, Pinger};
use kiban_os::random;
use kiban_rdma::wire::efe;
use kiban_rdma_runtime as rdma;
use kiban_rdma_runtime::{Connect, Context, Lower, QpOptions};
use kiban_sim::predict::predicted;
use kiban_vi::wire::{HEADER_BYTES, Header, Kind, Setup};
use kiban_vi::{Reliability, ViAttributes};
use kiban_vi_runtime::{Address, HostAddress, Nic};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

const COUNT: usize = 1500;
const PATIENCE: Duration = Duration::from_secs(60);

fn socket(host: u8) -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::new(127, 0, 0, host), 0)).expect("the loopback");
    socket.set_read_timeout(Some(PATIENCE)).expect("a socket can wait");
    socket
}

/// Returns the keys in the connection requests of a VI NIC whose peer does not answer.
fn vi_keys(count: usize) -> Vec<u64> {
    let peer = socket(1);
    let nic = Nic::open(&"udp:127.0.0.1:0".parse().expect("a device")).expect("it opens");
    let tag = nic.create_tag().expect("room");
    let like = ViAttributes {
        reliability: Reliability::Delivery,
        transfer_bytes_max: 1000,
        qos: 0,
        tag,
        rdma_write: false,
        rdma_read: false,
    };
    let vi = nic.create_vi(like, None, None).expect("room");
    let host = HostAddress::Udp(peer.local_addr().expect("bound"));
    let remote = Address { host, discriminator: b"port".to_vec() };
    let mut keys: Vec<u64> = Vec::new();
    let mut room = [0; 2048];
    for _ in 0..count {
        nic.connect_peer(vi, b"mine", &remote, PATIENCE).expect("the VI is idle");
        loop {
            let length = peer.recv(&mut room).expect("the request comes");
            let Ok((header, _)) = Header::read(&room[..length], length) else { continue };
            let payload = &room[HEADER_BYTES..][..usize::from(header.payload_bytes)];
            let Ok((setup, _)) = Setup::read(payload) else { continue };
            // A retransmitted request counts once.
            if header.kind == Kind::PeerRequest && keys.last() != Some(&u64::from(setup.key)) {
                keys.push(setup.key.into());
                break;
            }
        }
        nic.disconnect(vi).expect("the VI exists");
    }
    keys
}

/// Returns the correlation tags in the cells of `kiban atm ping`.
fn ping_tags(count: usize) -> Vec<u64> {
    let peer = socket(1);
    let own = socket(1).local_addr().expect("bound");
    let address = format!("udp-cells:{own}-{}", peer.local_addr().expect("bound"));
    let address: LinkAddress = address.parse().expect("an address");
    let AnyLink::Cells(link) = address.open().expect("the port is free again") else { panic!("cells") };
    let flow = Flow::Circuit(Vc::new(0, 100));
    let mut pinger = Pinger::new(link, flow, false, Interface::Uni).expect("files");
    let mut room = [0; 2048];
    (0..count)
        .map(|_| {
            pinger.send().expect("the link is there");
            let length = peer.recv(&mut room).expect("the cell comes");
            assert_eq!(length, CELL_BYTES);
            let payload = room[5..CELL_BYTES].try_into().expect("48 octets");
            match oam::Payload::read(payload) {
                Ok((oam::Payload::Loopback(loopback), _)) => loopback.correlation_tag.into(),
                other => panic!("{other:?}"),
            }
        })
        .collect()
}

/// Returns the key in the first packet that an RDMA NIC using EFE sends to its peer.
fn efe_key() -> u32 {
    let peer = socket(2);
    let port = peer.local_addr().expect("bound").port();
    let at = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
    let context = Context::open(&Lower::EfeUdp { at }).expect("the port is free here, too");
    let pd = context.alloc_pd().expect("room");
    let cq = context.create_cq(8).expect("room");
    let qp = pd.create_qp(&cq, &cq, QpOptions::default()).expect("room");
    let to = rdma::Address::Ip(SocketAddr::new(Ipv4Addr::new(127, 0, 0, 2).into(), 7));
    let nobody = qp.connect(to, &Connect::default(), Duration::from_millis(100));
    assert!(nobody.is_err(), "the peer does not answer");
    let mut room = [0; 2048];
    let length = peer.recv(&mut room).expect("the question comes");
    let (_, front) = efe::Header::read(&room[..length]).expect("well formed");
    u32::from_be_bytes(room[front + 4..front + 8].try_into().expect("four bytes"))
}

#[test]
fn numbers_of_nics_and_pings_are_unpredictable() {
    let halves = |_| {
        let bytes: [u8; 16] = random::bytes().expect("bytes");
        [0, 8].map(|at| u64::from_le_bytes(*bytes[at..].first_chunk().expect("8 of 16")))
    };
    let system = (0..COUNT).flat_map(halves).collect();
    let rows: [(&str, u32, Vec<u64>); 3] = [
        ("VI over UDP: keys of requests", 32, vi_keys(COUNT)),
        ("atm ping: correlation tags", 32, ping_tags(COUNT)),
        ("the operating system's numbers, used for salts and names", 64, system),
    ];
    for (name, bits, outputs) in rows {
        assert_eq!(predicted(&outputs, bits), None, "{name}");
    }
}

#[test]
fn two_instances_have_different_keys() {
    assert_ne!(vi_keys(2), vi_keys(2));
    assert_ne!(ping_tags(2), ping_tags(2));
    assert_ne!(efe_key(), efe_key());
}
