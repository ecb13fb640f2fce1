//! Two workstations of 1995 and the ATM line between them, in virtual time.
//!
//! Goal      what an application sees of a stream when every call and every segment costs processor time.
//! Boards    those that we ship, one in each workstation; only *when* they are called is decided here.
//! Processor one a host, one thing at a time, to its end: what has arrived first, then time, then the
//! process. What a
//!           task sends leaves segment by segment, each when it has been paid for.
//! Line      frames take their cells' time on an OC-3c line, one after the other, and then the way.
//! Process   the writer writes messages of one length as long as it is allowed to; the reader reads what
//!           there is (netperf, a stream one way).
//! Limits    no other load, no clock interrupts, no paging, no loss.

use kiban_atm::OC3C_BITS_PER_SECOND;
use kiban_atm::wire::atm::CELL_BYTES;
use kiban_atm::wire::{aal5, llc_snap};
use kiban_base::{Instant, Pdu, RngKey};
use kiban_board::{
    Board, BoardConfig, Completion, Input, IpPortConfig, MemoryConfig, Output, PortConfig, StreamId,
};
use kiban_tcpip::tcp;
use kiban_tcpip::wire::ipv4;
use kiban_tcpip::wire::tcp::{Header, Sequence};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// What a host's processor spends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostCosts {
    /// A write or read by the process: system call, stream head.
    pub call: Duration,
    /// Copying a byte between process and kernel, picoseconds.
    pub copy_byte_ps: u64,
    /// A segment with payload that is sent: TCP, IP, driver.
    pub segment_out: Duration,
    /// A byte of it: checksum and the way over the bus, picoseconds.
    pub byte_out_ps: u64,
    /// A segment with payload that arrives: interruption, driver, IP, TCP.
    pub segment_in: Duration,
    /// A byte of it, picoseconds.
    pub byte_in_ps: u64,
    /// A segment without payload, sent or received.
    pub acknowledgment: Duration,
    /// Waking a process that waits.
    pub wake: Duration,
}

/// A workstation of paper \[2\] (SPARCstation 20 and the like). That receiving costs more than sending lets a
/// writer fill its buffer before it is answered.
pub const WORKSTATION_1995: HostCosts = HostCosts {
    call: Duration::from_micros(60),
    copy_byte_ps: 20_000,
    segment_out: Duration::from_micros(60),
    byte_out_ps: 20_000,
    segment_in: Duration::from_micros(250),
    byte_in_ps: 60_000,
    acknowledgment: Duration::from_micros(150),
    wake: Duration::from_micros(50),
};

/// The way through a switch in the same room, besides the cells' time.
pub const SWITCH_DELAY: Duration = Duration::from_micros(20);

/// One measurement.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// TCP's settings on both hosts.
    pub tcp: tcp::Config,
    /// Longest IP packet, bytes.
    pub mtu_bytes: usize,
    /// Length of every write, bytes.
    pub message_bytes: usize,
    /// Both socket buffers of both hosts, bytes.
    pub buffer_bytes: u32,
    /// What the hosts spend.
    pub costs: HostCosts,
    /// The way from port to port, besides the cells' time on the line.
    pub delay: Duration,
}

/// What a capture at the writer's host shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// A segment leaves: its first byte and the one behind its last.
    Data(u32, u32),
    /// An acknowledgement comes.
    Ack(u32),
}

/// What came of a measurement.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Bytes that the reader read in the interval, Mbit/s.
    pub mbps: f64,
    /// Acknowledgements that the reader's host owed until its clock sent them, in the interval.
    pub waits: u64,
    /// What was seen at the writer's host from the beginning of the interval on, as many as were asked for.
    pub capture: Vec<(Instant, Seen)>,
}

enum Work {
    Packet(Pdu),
    Time,
    Process,
}

struct Site {
    board: Board,
    stream: Option<StreamId>,
    inbox: VecDeque<Pdu>,
    free_at: Instant,
    deadline: Instant,
    /// Whether the process has something to do, and whether it slept before.
    runs: bool,
    slept: bool,
    /// Bytes of the message that is being written and that are still to be taken.
    left: usize,
    /// What is on the line from here: when it arrives.
    flying: VecDeque<(Instant, Pdu)>,
    line_free_at: Instant,
}

/// Two hosts: the writer is 0, the reader 1.
struct Hosts<'a> {
    experiment: &'a Experiment,
    sites: [Site; 2],
    message: Vec<u8>,
    read: u64,
    buffer: Vec<u8>,
    capture: Vec<(Instant, Seen)>,
    capture_from: Instant,
    capture_max: usize,
    initial: Option<Sequence>,
}

const PORT: u16 = 12_865;
/// Time passes before the interval, for slow start and the like.
const SETTLE: Duration = Duration::from_millis(500);

impl Experiment {
    /// Runs for `interval` of virtual time after a beginning, keeping at most `capture_max` events.
    pub fn run(&self, interval: Duration, capture_max: usize) -> Outcome {
        let begin = Instant::ZERO + SETTLE;
        let mut hosts = Hosts::new(self);
        (hosts.capture_max, hosts.capture_from) = (capture_max, begin);
        hosts.run(begin);
        let waits = |hosts: &Hosts<'_>| hosts.sites[1].board.counter("tcp", "delayed_acks");
        let before = (hosts.read, waits(&hosts));
        hosts.run(begin + interval);
        let mbps = (hosts.read - before.0) as f64 * 8e-6 / interval.as_secs_f64();
        Outcome { mbps, waits: waits(&hosts) - before.1, capture: hosts.capture }
    }

    #[expect(clippy::disallowed_methods, reason = "virtual time")]
    fn board(&self, side: u8) -> Board {
        let port = IpPortConfig {
            address: address(side),
            prefix: "10.0.0.0/24".parse().expect("a prefix"),
            mtu_bytes: self.mtu_bytes,
            packets_max: 64,
            cuts: false,
            merges: false,
            believe_sums: true,
        };
        let mss = self.mtu_bytes - ipv4::HEADER_BYTES - kiban_tcpip::wire::tcp::HEADER_BYTES;
        let config = BoardConfig {
            tcp: tcp::Config {
                mss: mss as u16,
                segment_bytes_max: mss as u32,
                send_buffer_bytes: self.buffer_bytes,
                receive_buffer_bytes: self.buffer_bytes,
                ..self.tcp.clone()
            },
            memory: MemoryConfig {
                transmit_bytes: 1 << 20,
                receive_bytes: 1 << 20,
                ..MemoryConfig::default()
            },
            ports: vec![PortConfig::Ip(port)],
            ..BoardConfig::default()
        };
        Board::new(&config, RngKey::for_simulation(side.into()))
    }
}

fn address(side: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, 1 + side])
}

fn of_bytes(bytes: usize, picoseconds: u64) -> Duration {
    Duration::from_nanos(bytes as u64 * picoseconds / 1000)
}

impl<'a> Hosts<'a> {
    fn new(experiment: &'a Experiment) -> Hosts<'a> {
        let site = |side| Site {
            board: experiment.board(side),
            stream: None,
            inbox: VecDeque::new(),
            free_at: Instant::ZERO,
            deadline: Instant::NEVER,
            runs: false,
            slept: true,
            left: 0,
            flying: VecDeque::new(),
            line_free_at: Instant::ZERO,
        };
        let mut hosts = Hosts {
            experiment,
            sites: [site(0), site(1)],
            message: vec![0x5a; experiment.message_bytes],
            read: 0,
            buffer: vec![0; (experiment.buffer_bytes as usize).max(1)],
            capture: Vec::new(),
            capture_from: Instant::ZERO,
            capture_max: 0,
            initial: None,
        };
        let remote = SocketAddr::new(address(1), PORT);
        hosts.sites[1].board.host().listen(remote).expect("nobody listens yet");
        hosts.sites[0].stream = hosts.sites[0].board.host().open(remote).ok();
        (0..2).for_each(|side| hosts.drain(side, Instant::ZERO));
        hosts
    }

    /// Lets everything happen up to `until`.
    fn run(&mut self, until: Instant) {
        loop {
            let arrival = |side: usize| {
                self.sites[1 - side].flying.front().map_or(Instant::NEVER, |(moment, _)| *moment)
            };
            let turn = |side: usize| self.sites[side].next_turn();
            let (now, side, arrives) =
                [(arrival(0), 0, true), (arrival(1), 1, true), (turn(0), 0, false), (turn(1), 1, false)]
                    .into_iter()
                    .min_by_key(|(moment, _, _)| *moment)
                    .expect("there are four");
            if now > until {
                return;
            }
            if arrives {
                let (_, pdu) = self.sites[1 - side].flying.pop_front().expect("it was in front");
                self.sites[side].inbox.push_back(pdu);
                let site = &mut self.sites[side];
                site.free_at = site.free_at.max(now);
            } else {
                self.take_turn(side, now);
            }
        }
    }

    /// A free processor turns to what is first in line.
    fn take_turn(&mut self, side: usize, now: Instant) {
        let work = self.sites[side].next_work(now);
        let costs = &self.experiment.costs;
        match work {
            Some(Work::Packet(pdu)) => {
                let payload = payload_bytes(&pdu);
                self.see(side, now, &pdu, true);
                let cost = match payload {
                    0 => costs.acknowledgment,
                    bytes => costs.segment_in + of_bytes(bytes, costs.byte_in_ps),
                };
                self.sites[side]
                    .board
                    .handle(Input::Packets { port: 0, packets: &mut VecDeque::from([pdu]) }, now + cost);
                self.drain(side, now + cost);
            }
            Some(Work::Time) => {
                self.sites[side].board.handle(Input::Timeout, now);
                self.drain(side, now);
            }
            Some(Work::Process) => {
                let wake = if self.sites[side].slept { costs.wake } else { Duration::ZERO };
                self.sites[side].slept = false;
                let now = if side == 0 { self.write(now + wake) } else { self.read(now + wake) };
                self.drain(side, now);
            }
            None => {}
        }
    }

    /// The writer calls: one message, or what is left of one. When it is done.
    fn write(&mut self, now: Instant) -> Instant {
        let costs = self.experiment.costs;
        let site = &mut self.sites[0];
        let stream = site.stream.expect("the writer has a stream");
        if site.left == 0 {
            site.left = self.message.len();
        }
        // What the call costs depends on what it may copy; the board is asked when that has been paid for.
        let may = site.board.host().room(stream).unwrap_or(0).min(site.left);
        let done = now + costs.call + of_bytes(may, costs.copy_byte_ps);
        site.board.handle(Input::Timeout, done);
        let from = self.message.len() - site.left;
        let taken = site.board.host().write(stream, &self.message[from..]).unwrap_or(0);
        site.left -= taken;
        if site.left > 0 {
            (site.runs, site.slept) = (false, true);
        }
        done
    }

    /// The reader calls: what there is, up to the length of its buffer. When it is done.
    fn read(&mut self, now: Instant) -> Instant {
        let costs = self.experiment.costs;
        let site = &mut self.sites[1];
        let stream = site.stream.expect("the reader has a stream");
        let there = site.board.host().readable(stream).unwrap_or(0).min(self.buffer.len());
        let done = now + costs.call + of_bytes(there, costs.copy_byte_ps);
        site.board.handle(Input::Timeout, done);
        let taken = site.board.host().read(stream, &mut self.buffer).unwrap_or(0);
        self.read += taken as u64;
        if site.board.host().readable(stream).unwrap_or(0) == 0 {
            (site.runs, site.slept) = (false, true);
        }
        done
    }

    /// What the board has to say and to send since it was called at `now`: what leaves is paid for piece by
    /// piece.
    fn drain(&mut self, side: usize, mut now: Instant) {
        loop {
            match self.sites[side].board.poll() {
                Output::Completions => {
                    let site = &mut self.sites[side];
                    while let Some(completion) = site.board.host().completion() {
                        match completion {
                            Completion::Opened { .. } | Completion::Writable { .. } => site.runs = true,
                            Completion::Accepted { stream, .. } => site.stream = Some(stream),
                            Completion::Readable { .. } => site.runs = true,
                            _ => {}
                        }
                    }
                }
                Output::Transmit { pdu, .. } => {
                    let costs = &self.experiment.costs;
                    now += match payload_bytes(&pdu) {
                        0 => costs.acknowledgment,
                        bytes => costs.segment_out + of_bytes(bytes, costs.byte_out_ps),
                    };
                    self.see(side, now, &pdu, false);
                    let site = &mut self.sites[side];
                    site.line_free_at = site.line_free_at.max(now) + cells_time(pdu.len());
                    site.flying.push_back((site.line_free_at + self.experiment.delay, pdu));
                }
                Output::Idle { deadline } => {
                    let site = &mut self.sites[side];
                    site.deadline = deadline;
                    site.free_at = site.free_at.max(now);
                    return;
                }
            }
        }
    }

    /// The capture at the writer's host.
    fn see(&mut self, side: usize, now: Instant, pdu: &Pdu, arrives: bool) {
        if side != 0 {
            return;
        }
        let header = tcp_header(pdu);
        let Some(header) = header else { return };
        if !arrives {
            self.initial.get_or_insert(header.sequence);
        }
        let Some(initial) = self.initial else { return };
        if now < self.capture_from || self.capture.len() >= self.capture_max {
            return;
        }
        self.capture.push((
            now,
            if arrives {
                Seen::Ack(initial.distance(header.acknowledgment))
            } else {
                let first = initial.distance(header.sequence);
                Seen::Data(first, first + payload_bytes(pdu) as u32)
            },
        ));
    }
}

impl Site {
    /// When the processor turns to something next.
    fn next_turn(&self) -> Instant {
        if !self.inbox.is_empty() || self.runs { self.free_at } else { self.deadline.max(self.free_at) }
    }

    fn next_work(&mut self, now: Instant) -> Option<Work> {
        if let Some(pdu) = self.inbox.pop_front() {
            Some(Work::Packet(pdu))
        } else if self.deadline <= now {
            Some(Work::Time)
        } else {
            self.runs.then_some(Work::Process)
        }
    }
}

/// The time that the cells of a packet take on the line.
fn cells_time(packet_bytes: usize) -> Duration {
    let bits = aal5::cells(llc_snap::ROUTED_BYTES + packet_bytes) * CELL_BYTES * 8;
    Duration::from_nanos(bits as u64 * 1_000_000_000 / OC3C_BITS_PER_SECOND)
}

fn tcp_header(pdu: &Pdu) -> Option<Header> {
    let bytes: Vec<u8> = pdu.runs().flatten().take(ipv4::HEADER_BYTES + 60).copied().collect();
    Header::read(bytes.get(ipv4::HEADER_BYTES..)?).ok().map(|(header, _)| header)
}

fn payload_bytes(pdu: &Pdu) -> usize {
    pdu.body_len()
}
