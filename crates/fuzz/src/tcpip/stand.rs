//! A board under test: the test delivers packets and cells, checks the board's output, and controls the time.

use crate::features::Features;
use kiban_atm::TimedCell;
use kiban_base::checksum;
use kiban_base::numbers::protocol;
use kiban_base::{Instant, Pdu, RngKey, Sum};
use kiban_board::{Board, BoardConfig, Completion, Input, MemoryConfig, Output};
use kiban_tcpip::wire::{icmp, icmpv6, ipv4, ipv6, tcp, udp};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// The board's address.
pub(crate) const BOARD: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// The hostile peer's address.
pub(crate) const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// The same addresses for IPv6.
pub(crate) const BOARD6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
pub(crate) const PEER6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);

/// Maximum number of outputs per burst. A board that emits more is assumed to loop forever.
const OUTPUTS_MAX: usize = 10_000;
/// Number of times that the board may be called at one deadline before it returns a later one; also the
/// maximum number of deadlines within one `pass`.
const EARLY_MAX: usize = 64;

/// The memory is small, so that an input can exhaust it.
pub(crate) fn memory() -> MemoryConfig {
    MemoryConfig { page_bytes: 2048, transmit_bytes: 64 << 10, receive_bytes: 64 << 10, pdus: 64 }
}

/// A board under test.
pub(crate) struct Stand {
    pub(crate) board: Board,
    pub(crate) now: Instant,
    pub(crate) deadline: Instant,
    /// Packets that were sent since the last take.
    pub(crate) sent: VecDeque<Vec<u8>>,
    pub(crate) completions: VecDeque<Completion>,
    home: [usize; 3],
}

impl Stand {
    pub(crate) fn new(config: &BoardConfig) -> Stand {
        Stand::with_key(config, crate::key::key(1))
    }

    pub(crate) fn with_key(config: &BoardConfig, key: RngKey) -> Stand {
        let mut stand = Stand {
            board: Board::new(config, key),
            now: Instant::from_nanos(1_000_000_000),
            deadline: Instant::NEVER,
            sent: VecDeque::new(),
            completions: VecDeque::new(),
            home: [0; 3],
        };
        stand.home = stand.at_home();
        stand.drain();
        stand
    }

    fn at_home(&mut self) -> [usize; 3] {
        let memory = self.board.memory_mut();
        [memory.transmit.available(), memory.receive.available(), memory.pdus.available()]
    }

    /// Delivers a packet, split between head and pages in a way that depends on its length. Returns false if
    /// there was no memory for it.
    pub(crate) fn packet(&mut self, bytes: &[u8]) -> bool {
        let Some(pdu) = self.pdu(bytes) else { return false };
        let mut packets = VecDeque::from([pdu]);
        self.board.handle(Input::Packets { port: 0, packets: &mut packets }, self.now);
        self.drain();
        true
    }

    /// Delivers packets in one burst.
    #[cfg(test)]
    pub(crate) fn burst(&mut self, packets: &[Vec<u8>]) {
        let mut packets: VecDeque<_> = packets.iter().filter_map(|packet| self.pdu(packet)).collect();
        self.board.handle(Input::Packets { port: 0, packets: &mut packets }, self.now);
        self.drain();
    }

    fn pdu(&mut self, bytes: &[u8]) -> Option<Pdu> {
        let memory = self.board.memory_mut();
        let mut pdu = memory.pdus.take()?;
        let head = match bytes.len() {
            short @ ..=64 => short * (short % 2),
            length => 40 * (length % 2),
        };
        let (first, mut rest) = bytes.split_at(head);
        pdu.extend_head(first);
        while !rest.is_empty() {
            let slice = memory.receive.take()?.append(rest)?;
            rest = &rest[slice.len()..];
            pdu.push_body(slice).ok()?;
        }
        Some(pdu)
    }

    pub(crate) fn cells(&mut self, cells: &[TimedCell]) {
        self.board.handle(Input::Cells { port: 0, cells }, self.now);
        self.drain();
    }

    /// Advances the time; calls the board at its deadlines.
    pub(crate) fn pass(&mut self, length: Duration) {
        let until = self.now + length;
        for _ in 0..EARLY_MAX {
            if self.deadline > until {
                break;
            }
            self.tick();
        }
        self.now = until;
        self.board.handle(Input::Timeout, self.now);
        self.drain();
    }

    /// Advances the time to the board's deadline and calls the board, until it returns a later deadline.
    pub(crate) fn tick(&mut self) {
        if self.deadline == Instant::NEVER {
            return;
        }
        self.now = self.now.max(self.deadline);
        for _ in 0..EARLY_MAX {
            self.board.handle(Input::Timeout, self.now);
            self.drain();
            if self.deadline > self.now {
                return;
            }
        }
        panic!("the deadline stands still at {:?}", self.deadline);
    }

    /// Closes the listener and every accepted stream.
    pub(crate) fn give_up(&mut self, listener: u32) {
        let accepted = self.completions.iter().filter_map(|completion| match completion {
            Completion::Accepted { stream, .. } => Some(*stream),
            _ => None,
        });
        let mut host = self.board.host();
        host.unlisten(listener).expect("it listens");
        for stream in accepted {
            host.abort(stream).expect("a stream stays until it is closed");
        }
        self.drain();
    }

    /// Polls until the board is idle.
    pub(crate) fn drain(&mut self) {
        for _ in 0..OUTPUTS_MAX {
            match self.board.poll() {
                Output::Transmit { pdu, .. } => {
                    let mut packet = Vec::new();
                    pdu.runs().for_each(|run| packet.extend_from_slice(run));
                    self.sent.push_back(packet);
                }
                Output::Completions => {
                    let mut host = self.board.host();
                    while let Some(completion) = host.completion() {
                        self.completions.push_back(completion);
                    }
                }
                Output::Idle { deadline } => {
                    self.deadline = deadline;
                    return;
                }
            }
        }
        panic!("the board never comes to rest");
    }

    /// Reports the board's counters as features.
    pub(crate) fn show(&self, features: &mut Features<'_>) {
        self.board.counters(&mut |family, name, value| {
            if value > 0 {
                features.show((family, name, value.ilog2()));
            }
        });
    }

    /// Lets all timers expire, then checks that no session is left and all memory is free.
    pub(crate) fn finish(&mut self) {
        for _ in 0..2000 {
            if self.board.sessions() == 0 && self.deadline == Instant::NEVER {
                break;
            }
            self.tick();
            self.sent.clear();
        }
        self.completions.clear();
        assert_eq!(self.board.sessions(), 0, "sessions are left at {:?}", self.now);
        assert_eq!(self.at_home(), self.home, "memory that has not come home");
    }
}

impl Stand {
    /// Lets an ATM port become idle: waiting cells are sent, and time passes. The time does not advance to
    /// the last deadline, because InATMARP repeats its requests forever.
    pub(crate) fn rest(&mut self) {
        let mut cells = Vec::new();
        for _ in 0..200 {
            self.pass(Duration::from_secs(1));
            self.board.cells(0, self.now, &mut cells);
            self.board.handle(Input::Room, self.now);
            self.drain();
            cells.clear();
        }
        assert_eq!(self.board.sessions(), 0, "sessions are left at {:?}", self.now);
        let away: Vec<_> = self.at_home().iter().zip(self.home).map(|(now, then)| then - now).collect();
        assert_eq!(away, [0; 3], "memory that has not come home");
    }
}

/// A packet that the board has sent, decoded up to IP.
pub(crate) struct Sent {
    pub(crate) source: IpAddr,
    pub(crate) target: IpAddr,
    /// The IP protocol; `None` for a fragment that does not contain the upper-layer header.
    pub(crate) protocol: Option<u8>,
}

/// Checks the lengths and checksums of a packet that a board has sent. Returns its protocol and its payload
/// after IP.
pub(crate) fn check_sent(packet: &[u8]) -> (Sent, &[u8]) {
    let (sent, load, longest) = if packet[0] >> 4 == 6 { read6(packet) } else { read4(packet) };
    let pseudo = |protocol: u8| checksum::pseudo(sent.source, sent.target, protocol, load.len());
    match sent.protocol {
        Some(protocol::TCP) => {
            let (_, head) = tcp::Header::read(load).expect("a board's segment");
            let rest = pseudo(protocol::TCP).plus(Sum::of(&load[head..]));
            assert_eq!(tcp::verify(&load[..head], rest), Ok(()));
        }
        Some(protocol::UDP) => {
            let (_, head) = udp::Header::read(load).expect("a board's datagram");
            assert!(pseudo(protocol::UDP).plus(Sum::of(load)).is_intact() || load[6..8] == [0, 0], "{head}");
        }
        Some(protocol::ICMP) => {
            let (header, head) = icmp::Header::read(load).expect("a board's message");
            assert_eq!(icmp::verify(&load[..head], Sum::of(&load[head..])), Ok(()));
            // RFC 1122 §3.2.2, RFC 1812 §4.3.2.3: an error quotes the header and at least 8 bytes of payload,
            // and has a maximum length.
            assert!(!header.is_error() || packet.len() <= longest);
        }
        Some(protocol::ICMPV6) => {
            let (header, _) = icmpv6::Header::read(load).expect("a board's message");
            assert!(pseudo(protocol::ICMPV6).plus(Sum::of(load)).is_intact());
            assert!(!header.is_error() || packet.len() <= longest);
        }
        _ => {}
    }
    (sent, load)
}

fn read4(packet: &[u8]) -> (Sent, &[u8], usize) {
    let (ip, used) = ipv4::Header::read(packet).expect("a board sends packets that can be read");
    assert_eq!(ipv4::verify(&packet[..used]), Ok(()));
    assert_eq!(usize::from(ip.total_bytes), packet.len());
    let protocol = (!ip.is_fragment()).then_some(ip.protocol);
    (Sent { source: ip.source.into(), target: ip.target.into(), protocol }, &packet[used..], 576)
}

fn read6(packet: &[u8]) -> (Sent, &[u8], usize) {
    let (ip, used) = ipv6::Header::read(packet).expect("a board sends packets that can be read");
    assert_eq!(used + usize::from(ip.payload_bytes), packet.len());
    let protocol = (ip.next_header != protocol::FRAGMENT).then_some(ip.next_header);
    // RFC 4443 §2.4(c): an ICMPv6 error is no longer than the minimum MTU.
    (Sent { source: ip.source.into(), target: ip.target.into(), protocol }, &packet[used..], 1280)
}
