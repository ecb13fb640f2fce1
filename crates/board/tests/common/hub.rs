//! Boards on one Ethernet. Every frame that a board sends is copied as bytes to all others, to the test, and
//! to the test's router, if there is one.

use kiban_base::checksum;
use kiban_base::ethernet::{HEADER_BYTES, Header, Mac};
use kiban_base::numbers::{ether_type, protocol};
use kiban_base::{Instant, Memory, PagePool, Pdu, PduPool, Sum};
use kiban_board::{
    Board, BoardConfig, Completion, EthernetPortConfig, Input, MemoryConfig, Output, PortConfig,
};
use kiban_tcpip::ethernet::LinkConfig;
use kiban_tcpip::wire::discovery::{ALL_NODES, Item, Message};
use kiban_tcpip::wire::{icmpv6, ipv6};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// The MAC address of a station that is not a board: an attacker or a router.
pub(crate) const STRANGER: Mac = Mac([2, 0, 0, 0, 0, 0x99]);

pub(crate) fn mac(side: usize) -> Mac {
    Mac([2, 0, 0, 0, 0, 1 + side as u8])
}

pub(crate) fn ip4(side: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, 1 + side as u8).into()
}

/// Returns the link-local address derived from the MAC address.
pub(crate) fn local6(side: usize) -> Ipv6Addr {
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0xff, 0xfe00, 1 + side as u16)
}

pub(crate) fn six(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

pub(crate) fn link(side: usize) -> LinkConfig {
    let addresses = vec![(ip4(side), "10.0.0.0/24".parse().unwrap())];
    LinkConfig { addresses, ..LinkConfig::new(mac(side)) }
}

pub(crate) fn config(link: LinkConfig) -> BoardConfig {
    let memory =
        MemoryConfig { page_bytes: 4096, transmit_bytes: 2 << 20, receive_bytes: 2 << 20, pdus: 1024 };
    let port = EthernetPortConfig::on(link);
    BoardConfig { memory, ports: vec![PortConfig::Ethernet(port)], ..BoardConfig::default() }
}

/// The advertisement that a test router sends, also when it is solicited.
#[derive(Clone)]
pub(crate) struct Router {
    pub(crate) lifetime_seconds: u16,
    pub(crate) options: Vec<Item<'static>>,
}

pub(crate) const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0x99);

pub(crate) fn prefix(text: &str, valid: u32, preferred: u32) -> Item<'static> {
    Item::Prefix {
        bits: 64,
        on_link: true,
        autonomous: true,
        valid_seconds: valid,
        preferred_seconds: preferred,
        prefix: six(text),
    }
}

/// Returns a frame with an ICMPv6 neighbour discovery message.
pub(crate) fn discovery(
    target_mac: Mac,
    (source, target): (Ipv6Addr, Ipv6Addr),
    hop_limit: u8,
    message: Message,
    options: &[Item<'_>],
) -> Vec<u8> {
    let length = message.length() + options.iter().map(Item::length).sum::<usize>();
    let mut bytes = vec![0; HEADER_BYTES + ipv6::HEADER_BYTES + length];
    let header = Header { target: target_mac, source: STRANGER, ether_type: ether_type::IPV6 };
    header.write(&mut bytes);
    ipv6::Header {
        traffic_class: 0,
        flow_label: 0,
        payload_bytes: length as u16,
        next_header: protocol::ICMPV6,
        hop_limit,
        source,
        target,
    }
    .write(&mut bytes[HEADER_BYTES..]);
    let body = &mut bytes[HEADER_BYTES + ipv6::HEADER_BYTES..];
    let mut at = message.write(body);
    for option in options {
        at += option.write(&mut body[at..]);
    }
    let rest = Sum::of(&body[8..]);
    icmpv6::fill(body, checksum::pseudo_ipv6(source, target, protocol::ICMPV6, length).plus(rest));
    bytes
}

pub(crate) struct Hub {
    pub(crate) boards: Vec<Board>,
    pub(crate) completions: Vec<Vec<Completion>>,
    pub(crate) now: Instant,
    pub(crate) router: Option<Router>,
    /// All frames that boards have sent since the test last took them.
    pub(crate) seen: Vec<Vec<u8>>,
    /// Boards that are disconnected from the hub.
    pub(crate) unplugged: Vec<bool>,
    /// Longer frames are lost, as on a path with a smaller MTU.
    pub(crate) longest: usize,
    pub(crate) wires: Vec<VecDeque<Pdu>>,
    memory: Memory,
}

impl Hub {
    pub(crate) fn of(configs: &[BoardConfig]) -> Hub {
        Hub {
            boards: configs.iter().enumerate().map(|(side, config)| super::board(side, config)).collect(),
            completions: vec![Vec::new(); configs.len()],
            now: Instant::ZERO,
            router: None,
            seen: Vec::new(),
            unplugged: vec![false; configs.len()],
            longest: usize::MAX,
            wires: configs.iter().map(|_| VecDeque::new()).collect(),
            memory: Memory {
                transmit: PagePool::new(1, 4096),
                receive: PagePool::new(4096, 4096),
                pdus: PduPool::new(4096),
            },
        }
    }

    /// Returns two boards with default links, once address configuration is complete.
    pub(crate) fn pair() -> Hub {
        let mut hub = Hub::of(&[config(link(0)), config(link(1))]);
        hub.pass(Duration::from_secs(15));
        hub.seen.clear();
        hub
    }

    /// Delivers a frame to a board, as if from the line.
    pub(crate) fn inject(&mut self, side: usize, bytes: &[u8]) {
        let mut pdu = self.memory.pdus.take().expect("a block");
        for part in bytes.chunks(4096) {
            let slice = self.memory.receive.take().expect("a page").append(part).expect("it fits");
            pdu.push_body(slice).expect("there is room");
        }
        self.wires[side].push_back(pdu);
    }

    fn carry(&mut self, from: usize, bytes: Vec<u8>) {
        if bytes.len() <= self.longest && !self.unplugged[from] {
            for side in 0..self.boards.len() {
                if side != from && !self.unplugged[side] {
                    self.inject(side, &bytes);
                }
            }
            if let Some(router) = self.router.clone()
                && bytes.get(HEADER_BYTES + ipv6::HEADER_BYTES) == Some(&133)
            {
                self.advertise(&router);
            }
        }
        self.seen.push(bytes);
    }

    /// Sends a router advertisement to all nodes.
    pub(crate) fn advertise(&mut self, router: &Router) {
        let message = Message::RouterAdvertisement {
            hop_limit: 33,
            managed: false,
            other: false,
            lifetime_seconds: router.lifetime_seconds,
            reachable_ms: 0,
            retransmit_ms: 0,
        };
        let group = Mac([0x33, 0x33, 0, 0, 0, 1]);
        let frame = discovery(group, (ROUTER, ALL_NODES), 255, message, &router.options);
        (0..self.boards.len()).for_each(|side| self.inject(side, &frame));
    }

    pub(crate) fn run(&mut self) {
        loop {
            let mut busy = false;
            for side in 0..self.boards.len() {
                let arrived = &mut self.wires[side];
                busy |= !arrived.is_empty();
                self.boards[side].handle(Input::Packets { port: 0, packets: arrived }, self.now);
                loop {
                    match self.boards[side].poll() {
                        Output::Transmit { pdu, .. } => {
                            busy = true;
                            let bytes = pdu.runs().flatten().copied().collect();
                            drop(pdu);
                            self.carry(side, bytes);
                        }
                        Output::Completions => {
                            let mut host = self.boards[side].host();
                            self.completions[side].extend(std::iter::from_fn(|| host.completion()));
                        }
                        Output::Idle { .. } => break,
                    }
                }
            }
            if !busy {
                return;
            }
        }
    }

    /// Advances the time from deadline to deadline.
    pub(crate) fn pass(&mut self, length: Duration) {
        let until = self.now + length;
        loop {
            self.run();
            let deadline = |board: &mut Board| match board.poll() {
                Output::Idle { deadline } => deadline,
                other => panic!("a quiet board is idle, not {other:?}"),
            };
            let next = self.boards.iter_mut().map(deadline).min().expect("a board");
            if next > until {
                self.now = until;
                return;
            }
            self.now = self.now.max(next);
            self.boards.iter_mut().for_each(|board| board.handle(Input::Timeout, self.now));
        }
    }

    pub(crate) fn take_completions(&mut self, side: usize) -> Vec<Completion> {
        std::mem::take(&mut self.completions[side])
    }

    pub(crate) fn count(&self, side: usize, family: &str, name: &str) -> u64 {
        self.boards[side].counter(family, name)
    }

    /// Checks that all memory of the boards has been freed.
    pub(crate) fn check_home(&mut self) {
        for board in &mut self.boards {
            assert!(board.memory_mut().is_all_free(), "{board:?}");
        }
        assert!(self.memory.is_all_free());
    }
}
