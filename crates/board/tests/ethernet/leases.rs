//! IPv4 addresses that are leased by DHCP.

use crate::common::hub::*;
use crate::helpers::*;
use kiban_base::ethernet::{HEADER_BYTES, Header, Mac};
use kiban_base::numbers::{ether_type, protocol};
use kiban_base::{Sum, checksum};
use kiban_board::{BoardConfig, EthernetPortConfig, IpPortConfig, PortConfig};
use kiban_tcpip::dhcp::State;
use kiban_tcpip::ethernet::LinkConfig;
use kiban_tcpip::wire::arp::{self, Operation};
use kiban_tcpip::wire::dhcp::{self, Kind, Options, option};
use kiban_tcpip::wire::{ipv4, udp};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 1);
const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 254);
const LEASED: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 50);

fn leased() -> LinkConfig {
    LinkConfig { dhcp: true, ..LinkConfig::new(mac(0)) }
}

/// A datagram in a frame.
struct Datagram {
    header: Header,
    source: Ipv4Addr,
    target: Ipv4Addr,
    ports: (u16, u16),
    payload: Vec<u8>,
}

impl Datagram {
    fn read(frame: &[u8]) -> Option<Datagram> {
        let (header, at) = Header::read(frame).unwrap();
        if header.ether_type != ether_type::IPV4 {
            return None;
        }
        let (ip, length) = ipv4::Header::read(&frame[at..]).unwrap();
        ipv4::verify(&frame[at..at + length]).unwrap();
        if ip.protocol != protocol::UDP {
            return None;
        }
        let datagram = &frame[at + length..at + usize::from(ip.total_bytes)];
        let (about, length) = udp::Header::read(datagram).unwrap();
        let pseudo = checksum::pseudo(ip.source.into(), ip.target.into(), protocol::UDP, datagram.len());
        udp::verify_over_ipv4(&datagram[..length], pseudo.plus(Sum::of(&datagram[length..]))).unwrap();
        let ports = (about.source_port, about.target_port);
        let payload = datagram[length..].to_vec();
        Some(Datagram { header, source: ip.source, target: ip.target, ports, payload })
    }

    /// Returns the frame; `fragment` is an offset and whether more fragments follow.
    fn frame(&self, (offset, more): (u16, bool)) -> Vec<u8> {
        let total = udp::HEADER_BYTES + self.payload.len();
        let at = HEADER_BYTES + ipv4::HEADER_BYTES;
        let mut bytes = vec![0; at + udp::HEADER_BYTES];
        self.header.write(&mut bytes);
        let (source, target) = (self.source, self.target);
        ipv4::Header {
            traffic_class: 0,
            total_bytes: (ipv4::HEADER_BYTES + total) as u16,
            identification: 7,
            dont_fragment: false,
            more_fragments: more,
            fragment_offset_bytes: offset,
            time_to_live: 64,
            protocol: protocol::UDP,
            source,
            target,
            options: &[],
        }
        .write(&mut bytes[HEADER_BYTES..]);
        let (source_port, target_port) = self.ports;
        udp::Header { source_port, target_port, total_bytes: total as u16 }.write(&mut bytes[at..]);
        let pseudo = checksum::pseudo(source.into(), target.into(), protocol::UDP, total);
        udp::fill(&mut bytes[at..], pseudo.plus(Sum::of(&self.payload)));
        bytes.extend_from_slice(&self.payload);
        bytes
    }
}

/// A server that answers what the board has sent since it was last called. Returns what that was.
struct Server {
    seconds: u32,
    yours: Ipv4Addr,
    /// Whether another station answers ARP probes for the address.
    is_taken: bool,
}

impl Server {
    fn new() -> Server {
        Server { seconds: 3600, yours: LEASED, is_taken: false }
    }

    fn reply(&self, request: &Datagram, kind: Kind) -> Vec<u8> {
        let (asked, _) = dhcp::Header::read(&request.payload).unwrap();
        let mut payload = vec![0; dhcp::HEADER_BYTES];
        dhcp::Header { is_reply: true, yours: self.yours, ..asked }.write(&mut payload);
        dhcp::push_option(&mut payload, option::KIND, &[kind as u8]);
        dhcp::push_option(&mut payload, option::SERVER, &SERVER.octets());
        dhcp::push_option(&mut payload, option::LEASE, &self.seconds.to_be_bytes());
        dhcp::push_option(&mut payload, option::MASK, &[255, 255, 255, 0]);
        dhcp::push_option(&mut payload, option::ROUTERS, &ROUTER.octets());
        dhcp::push_option(&mut payload, option::NAME_SERVERS, &[10, 7, 0, 53]);
        dhcp::end(&mut payload);
        // Without the broadcast flag, the reply goes to an address that the board does not have yet.
        let (target_mac, target) = match asked.broadcast {
            true => (Mac::BROADCAST, Ipv4Addr::BROADCAST),
            false => (mac(0), self.yours),
        };
        let header = Header { target: target_mac, source: STRANGER, ether_type: ether_type::IPV4 };
        let ports = (dhcp::SERVER_PORT, dhcp::CLIENT_PORT);
        Datagram { header, source: SERVER, target, ports, payload }.frame((0, false))
    }

    fn serve(&self, hub: &mut Hub, sent: &mut Vec<(Kind, Datagram)>) {
        for frame in std::mem::take(&mut hub.seen) {
            for (_, packet) in arps(std::slice::from_ref(&frame)) {
                let is_server = packet.target == SERVER || packet.target == ROUTER;
                if packet.target == self.yours && self.is_taken || is_server && packet.sender == LEASED {
                    let answer = arp::Packet {
                        operation: Operation::Reply,
                        sender_mac: STRANGER,
                        sender: packet.target,
                        target_mac: packet.sender_mac,
                        target: packet.sender,
                    };
                    hub.inject(0, &arp_frame(packet.sender_mac, answer));
                }
            }
            let Some(request) = Datagram::read(&frame) else { continue };
            if request.ports != (dhcp::CLIENT_PORT, dhcp::SERVER_PORT) {
                continue;
            }
            let kind = Options::read(&request.payload).unwrap().kind().unwrap();
            match kind {
                Kind::Discover => hub.inject(0, &self.reply(&request, Kind::Offer)),
                Kind::Request => hub.inject(0, &self.reply(&request, Kind::Ack)),
                _ => {}
            }
            sent.push((kind, request));
        }
    }

    /// Lets time pass in small steps. Returns the messages that the board sent.
    fn pass(&self, hub: &mut Hub, length: Duration) -> Vec<(Kind, Datagram)> {
        let (until, mut sent) = (hub.now + length, Vec::new());
        while hub.now < until {
            hub.pass(Duration::from_millis(100));
            self.serve(hub, &mut sent);
            hub.run();
        }
        sent
    }
}

fn kinds(sent: &[(Kind, Datagram)]) -> Vec<Kind> {
    sent.iter().map(|(kind, _)| *kind).collect()
}

fn state(hub: &Hub) -> State {
    hub.boards[0].dhcp(0).expect("the port has a client").state()
}

fn has(hub: &Hub, address: Ipv4Addr) -> bool {
    hub.boards[0].addresses().any(|own| own == IpAddr::from(address))
}

#[test]
fn a_board_leases_an_address_keeps_it_and_gives_it_back() {
    let mut hub = Hub::of(&[config(leased())]);
    // Without a lease there is no address, but services can listen.
    let listener = hub.boards[0].host().listen("0.0.0.0:80".parse().unwrap());
    assert!(listener.is_ok() && hub.boards[0].host().ping(SERVER.into(), 1, 1, b"x").is_err());
    let server = Server::new();
    let sent = server.pass(&mut hub, second(4));
    assert_eq!(kinds(&sent), [Kind::Discover, Kind::Request]);
    for (_, request) in &sent {
        assert_eq!((request.source, request.target), (Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST));
        assert_eq!(request.header.target, Mac::BROADCAST);
    }
    assert!(has(&hub, LEASED) && state(&hub) == State::Bound);
    assert_eq!(hub.count(0, "ethernet", "arp_announced"), 2, "RFC 5227 §2.3");
    // The default route leads to the leased router.
    hub.seen.clear();
    hub.boards[0].host().ping([192, 0, 2, 1].into(), 1, 1, b"x").unwrap();
    hub.run();
    let asked: Vec<_> = arps(&hub.seen).iter().map(|(_, packet)| (packet.sender, packet.target)).collect();
    assert_eq!(asked, [(LEASED, ROUTER)]);
    // The renewal goes to the server, by unicast.
    let sent = server.pass(&mut hub, second(1810));
    assert_eq!(kinds(&sent), [Kind::Request]);
    let (_, renewal) = &sent[0];
    assert_eq!((renewal.source, renewal.target, renewal.header.target), (LEASED, SERVER, STRANGER));
    // The release does not wait for ARP.
    hub.pass(second(100));
    hub.seen.clear();
    hub.boards[0].release_leases();
    hub.run();
    let sent: Vec<_> = hub.seen.iter().filter_map(|frame| Datagram::read(frame)).collect();
    assert_eq!(Options::read(&sent[0].payload).unwrap().kind(), Some(Kind::Release));
    assert_eq!((sent.len(), sent[0].target, sent[0].header.target), (1, SERVER, STRANGER));
    hub.check_home();
}

#[test]
fn an_expired_address_is_removed_with_its_routes() {
    let mut hub = Hub::of(&[config(leased())]);
    Server::new().pass(&mut hub, second(4));
    assert!(has(&hub, LEASED));
    hub.pass(second(3600));
    assert!(!has(&hub, LEASED));
    assert!(hub.boards[0].host().ping([192, 0, 2, 1].into(), 1, 1, b"x").is_err(), "no route");
    assert!(hub.boards[0].host().ping(SERVER.into(), 1, 1, b"x").is_err(), "no route");
    assert_eq!(hub.count(0, "dhcp", "expired"), 1);
    // A server that answers again leases the address again.
    Server::new().pass(&mut hub, second(70));
    assert!(has(&hub, LEASED));
    hub.check_home();
}

#[test]
fn an_address_that_another_station_has_is_declined() {
    let mut hub = Hub::of(&[config(leased())]);
    let mut server = Server { is_taken: true, ..Server::new() };
    let sent = server.pass(&mut hub, second(4));
    assert_eq!(kinds(&sent), [Kind::Discover, Kind::Request, Kind::Decline]);
    assert!(!has(&hub, LEASED));
    server = Server { yours: [10, 7, 0, 51].into(), ..Server::new() };
    server.pass(&mut hub, second(15));
    assert!(has(&hub, server.yours));
}

#[test]
fn what_merely_looks_like_dhcp_goes_to_ip() {
    let mut hub = Hub::of(&[config(leased())]);
    Server::new().pass(&mut hub, second(4));
    let header = Header { target: mac(0), source: STRANGER, ether_type: ether_type::IPV4 };
    let datagram = |source, target, payload: &[u8]| Datagram {
        header,
        source,
        target,
        ports: (dhcp::SERVER_PORT, dhcp::CLIENT_PORT),
        payload: payload.to_vec(),
    };
    let one = datagram(SERVER, LEASED, &[0; 240]);
    let before = hub.count(0, "dhcp", "malformed");
    // A first fragment with port 68, and a later one whose data has the same bytes.
    hub.inject(0, &one.frame((0, true)));
    hub.inject(0, &one.frame((1480, false)));
    hub.run();
    assert_eq!(hub.count(0, "ip", "fragments_in"), 2);
    // A wrong checksum.
    let mut frame = one.frame((0, false));
    *frame.last_mut().unwrap() ^= 1;
    hub.inject(0, &frame);
    hub.run();
    assert_eq!(hub.count(0, "udp", "checksum_errors"), 1);
    assert_eq!(hub.count(0, "dhcp", "malformed"), before);
    hub.inject(0, &one.frame((0, false)));
    hub.run();
    assert_eq!(hub.count(0, "dhcp", "malformed"), before + 1);
    // Without a client, port 68 is a port like any other.
    let mut hub = Hub::of(&[config(link(0))]);
    hub.pass(second(1));
    let socket = hub.boards[0].host().bind("0.0.0.0:68".parse().unwrap()).unwrap();
    hub.inject(0, &datagram([10, 0, 0, 9].into(), [10, 0, 0, 1].into(), b"hello").frame((0, false)));
    hub.run();
    let got = hub.boards[0].host().receive_from(socket, &mut [0; 9]).unwrap();
    assert_eq!(got, Some((SocketAddr::new([10, 0, 0, 9].into(), 67), 5)));
}

#[test]
fn a_lease_takes_no_net_from_another_port() {
    let other = |prefix: &str| {
        let port = IpPortConfig {
            address: prefix.split('/').next().unwrap().parse().unwrap(),
            prefix: prefix.parse().unwrap(),
            mtu_bytes: 1500,
            packets_max: 64,
            cuts: false,
            merges: false,
            believe_sums: false,
        };
        let ethernet = PortConfig::Ethernet(EthernetPortConfig::on(leased()));
        BoardConfig { ports: vec![ethernet, PortConfig::Ip(port)], ..config(leased()) }
    };
    for prefix in ["10.7.0.9/24", "10.0.0.1/8", "10.7.0.50/32"] {
        let mut hub = Hub::of(&[other(prefix)]);
        let sent = Server::new().pass(&mut hub, second(20));
        assert!(kinds(&sent).iter().all(|kind| *kind == Kind::Discover), "{prefix}");
        assert!(hub.count(0, "dhcp", "rejected") >= 2, "{prefix}");
        assert_eq!(state(&hub), State::Selecting, "{prefix}");
    }
    let mut hub = Hub::of(&[other("10.8.0.9/24")]);
    Server::new().pass(&mut hub, second(4));
    assert!(has(&hub, LEASED));
}

const NEAR: Ipv4Addr = Ipv4Addr::new(10, 8, 0, 1);

/// Returns a board with a leased address on port 0, [`NEAR`] on port 1, and a default route.
fn with_default_route(port: usize, gateway: Ipv4Addr, source: Ipv4Addr) -> Hub {
    let mut configuration = config(leased());
    let near = IpPortConfig {
        address: NEAR.into(),
        prefix: "10.8.0.0/24".parse().unwrap(),
        mtu_bytes: 1500,
        packets_max: 64,
        cuts: false,
        merges: false,
        believe_sums: false,
    };
    configuration.ports.push(PortConfig::Ip(near));
    configuration.routes.push(kiban_tcpip::ip::Route {
        prefix: "0.0.0.0/0".parse().unwrap(),
        port,
        gateway: Some(gateway.into()),
        source: source.into(),
        mtu_bytes: 1500,
    });
    Hub::of(&[configuration])
}

#[test]
fn a_configured_route_to_the_leased_router_outlives_the_lease() {
    let mut hub = with_default_route(0, ROUTER, Ipv4Addr::UNSPECIFIED);
    Server::new().pass(&mut hub, second(4));
    assert_eq!(hub.boards[0].host().source_for([192, 0, 2, 1].into()), Some(LEASED.into()));
    hub.pass(second(3600));
    assert!(!has(&hub, LEASED));
    assert_eq!(hub.boards[0].host().source_for([192, 0, 2, 1].into()), Some(NEAR.into()));
}

#[test]
fn a_configured_default_route_takes_precedence() {
    let near: IpAddr = NEAR.into();
    let mut hub = with_default_route(1, Ipv4Addr::new(10, 8, 0, 254), NEAR);
    Server::new().pass(&mut hub, second(4));
    assert!(has(&hub, LEASED));
    assert_eq!(hub.boards[0].host().source_for([192, 0, 2, 1].into()), Some(near));
    hub.pass(second(3600));
    assert_eq!(hub.boards[0].host().source_for([192, 0, 2, 1].into()), Some(near));
}
