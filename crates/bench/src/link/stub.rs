//! A stub of a TCP endpoint: it answers a handshake, then only acknowledges, or sends what the window allows.

use super::device::{BUFFER_BYTES, Device, Direction, Taken};
use kiban_base::checksum;
use kiban_base::numbers::protocol;
use kiban_base::{Sum, copy_and_sum};
use kiban_link::Link;
use kiban_link::frames::tun::TunLink;
use kiban_os::Clock;
use kiban_tcpip::wire::ipv4::{self, Header as Ipv4};
use kiban_tcpip::wire::tcp::{self, Flags, Header, Options, Sequence};
use std::fs::File;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::Ipv4Addr;
use std::time::Duration;

/// The window that the stub advertises, and the maximum number of bytes that it has in flight: both equal the
/// capacity of the device's queue.
const WINDOW_BYTES: u32 = 1 << 20;
const WINDOW_SHIFT: u8 = 7;
/// Bytes of the virtio-net header in front of each packet of a device that passes whole segments.
const FRONT: usize = 10;
/// The number of packets that are read before one acknowledgement is sent.
const BATCH: usize = 64;

struct Stub {
    device: File,
    whole: bool,
    mss: usize,
    ours: Ipv4Addr,
    theirs: Ipv4Addr,
    port: u16,
    peer_port: u16,
    next_in: u32,
    next_out: u32,
    acknowledged: u32,
    window: u32,
    shift: u8,
    identification: u16,
    packet: Vec<u8>,
}

impl Stub {
    /// Sends a packet: headers, then payload; computes its checksums unless the device does.
    fn send(&mut self, flags: Flags, options: Options, payload: &[u8]) {
        let mut front = [0; FRONT];
        let mut head = [0; ipv4::HEADER_BYTES + tcp::HEADER_BYTES_MAX];
        let header = Header {
            source_port: self.port,
            target_port: self.peer_port,
            sequence: Sequence(self.next_out),
            acknowledgment: Sequence(self.next_in),
            flags,
            window: (WINDOW_BYTES >> WINDOW_SHIFT) as u16,
            urgent: 0,
            options,
        };
        let tcp_bytes = header.write(&mut head[ipv4::HEADER_BYTES..]);
        let total = ipv4::HEADER_BYTES + tcp_bytes + payload.len();
        self.identification = self.identification.wrapping_add(1);
        let network = Ipv4 {
            traffic_class: 0,
            total_bytes: total as u16,
            identification: self.identification,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset_bytes: 0,
            time_to_live: 64,
            protocol: protocol::TCP,
            source: self.ours,
            target: self.theirs,
            options: &[],
        };
        network.write(&mut head);
        let pseudo = checksum::pseudo_ipv4(self.ours, self.theirs, protocol::TCP, total - ipv4::HEADER_BYTES);
        let head = &mut head[..ipv4::HEADER_BYTES + tcp_bytes];
        // The payload is copied once, as an application's data would be.
        self.packet.resize(payload.len(), 0);
        if self.whole && !payload.is_empty() {
            self.packet.copy_from_slice(payload);
            head[ipv4::HEADER_BYTES + 16..][..2].copy_from_slice(&(!pseudo.checksum()).to_be_bytes());
            front[0] = 1; // NEEDS_CSUM
            front[2..4].copy_from_slice(&(head.len() as u16).to_ne_bytes());
            front[6..8].copy_from_slice(&(ipv4::HEADER_BYTES as u16).to_ne_bytes());
            front[8..10].copy_from_slice(&16u16.to_ne_bytes());
            if payload.len() > self.mss {
                front[1] = 1; // GSO_TCPV4
                front[4..6].copy_from_slice(&(self.mss as u16).to_ne_bytes());
            }
        } else {
            let sum = copy_and_sum(&mut self.packet, payload);
            tcp::fill(&mut head[ipv4::HEADER_BYTES..], pseudo.plus(sum));
        }
        let parts = [IoSlice::new(&front), IoSlice::new(head), IoSlice::new(&self.packet)];
        let written = self.device.write_vectored(&parts[usize::from(!self.whole)..]);
        written.expect("the device is up");
        let bytes = payload.len() as u32 + u32::from(flags.has(Flags::SYN) || flags.has(Flags::FIN));
        self.next_out = self.next_out.wrapping_add(bytes);
    }
}

pub(super) fn run(
    link: &TunLink,
    direction: Direction,
    device: Device,
    clock: Clock,
    length: Duration,
    over: impl Fn() -> bool,
) -> Taken {
    let file = link.file().expect("a device is a file").try_clone_to_owned().expect("files can be opened");
    let mut stub = Stub {
        device: File::from(file),
        whole: device.whole,
        mss: device.mss(),
        ours: Ipv4Addr::UNSPECIFIED,
        theirs: Ipv4Addr::UNSPECIFIED,
        port: 0,
        peer_port: 0,
        next_in: 0,
        next_out: 1,
        acknowledged: 1,
        window: 0,
        shift: 0,
        identification: 0,
        packet: Vec::new(),
    };
    let front = if device.whole { FRONT } else { 0 };
    let whole_bytes = if device.whole { 65_000 / device.mss() * device.mss() } else { device.mss() };
    let source = crate::noise::noise(3, BUFFER_BYTES + whole_bytes);
    let (mut room, mut application, mut at) = (vec![0; 70_000], vec![0; BUFFER_BYTES], 0);
    let mut taken = Taken::default();
    let (mut until, mut finished) = (None, false);
    while !over() {
        let mut owes = false;
        for _ in 0..BATCH {
            let count = match stub.device.read(&mut room) {
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("reading from the device failed: {error}"),
            };
            let packet = &room[front..count];
            let Ok((network, ip_bytes)) = Ipv4::read(packet) else { continue };
            if network.protocol != protocol::TCP {
                continue;
            }
            let segment = &packet[ip_bytes..];
            let Ok((header, tcp_bytes)) = Header::read(segment) else { continue };
            let payload = &segment[tcp_bytes..];
            if header.flags.has(Flags::SYN) {
                (stub.ours, stub.theirs) = (network.target, network.source);
                (stub.port, stub.peer_port) = (header.target_port, header.source_port);
                stub.next_in = header.sequence.0.wrapping_add(1);
                (stub.next_out, stub.acknowledged) = (1, 1);
                stub.shift = header.options.window_shift.unwrap_or(0);
                let options = Options {
                    mss: Some(stub.mss as u16),
                    window_shift: Some(WINDOW_SHIFT),
                    ..Options::default()
                };
                stub.send(Flags::SYN | Flags::ACK, options, &[]);
                continue;
            }
            stub.window = u32::from(header.window) << stub.shift;
            stub.acknowledged = header.acknowledgment.0;
            if direction == Direction::Sends && until.is_none() {
                until = Some(clock.now() + length);
            }
            if header.sequence.0 == stub.next_in && !payload.is_empty() {
                if at + payload.len() > application.len() {
                    at = 0;
                }
                let place = &mut application[at..at + payload.len()];
                if device.whole {
                    place.copy_from_slice(payload);
                } else {
                    let pseudo =
                        checksum::pseudo_ipv4(network.source, network.target, protocol::TCP, segment.len());
                    let sum = copy_and_sum(place, payload);
                    let whole: Sum = pseudo.plus(checksum::of_header(&segment[..tcp_bytes])).plus(sum);
                    assert!(whole.is_intact(), "the kernel's checksums are right");
                }
                at += payload.len();
                taken.take(payload.len(), clock.now());
                stub.next_in = stub.next_in.wrapping_add(payload.len() as u32);
                owes = true;
            }
            if header.flags.has(Flags::FIN) && !finished {
                stub.next_in = stub.next_in.wrapping_add(1);
                stub.send(Flags::FIN | Flags::ACK, Options::default(), &[]);
                finished = true;
            }
        }
        if owes && !finished {
            stub.send(Flags::ACK, Options::default(), &[]);
        }
        let Some(until) = until else { continue };
        while !finished {
            let under_way = stub.next_out.wrapping_sub(stub.acknowledged) as usize;
            if under_way + whole_bytes > (stub.window.min(WINDOW_BYTES)) as usize {
                break;
            }
            if clock.now() >= until {
                stub.send(Flags::FIN | Flags::ACK, Options::default(), &[]);
                finished = true;
                break;
            }
            let from = stub.next_out as usize % BUFFER_BYTES;
            stub.send(Flags::ACK, Options::default(), &source[from..from + whole_bytes]);
        }
    }
    taken
}
