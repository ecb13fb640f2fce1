//! A model of two workstations of 1995 and the ATM line between them, in virtual time.
//!
//! Purpose   compute the throughput that an application sees if every call and every segment costs CPU time.
//! Boards    one unmodified kiban board per workstation; this module only decides when they are called.
//! Processor  one per host, without preemption. Received packets have priority, then timers, then the
//!           process. A task's segments leave one by one, each after its CPU time has passed.
//! Line      a frame occupies the OC-3c line for the time of its cells, then takes the propagation delay.
//! Process   the writer writes messages of one length without pause; the reader reads whatever has arrived
//!           (netperf, one-way stream).
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

/// The CPU costs of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostCosts {
    /// CPU time per write or read call of the process: system call, stream head.
    pub call: Duration,
    /// CPU time per byte copied between process and kernel, picoseconds.
    pub copy_byte_ps: u64,
    /// CPU time per sent segment with payload: TCP, IP, driver.
    pub segment_out: Duration,
    /// CPU time per byte of a sent segment: checksum and bus transfer, picoseconds.
    pub byte_out_ps: u64,
    /// CPU time per received segment with payload: interrupt, driver, IP, TCP.
    pub segment_in: Duration,
    /// CPU time per byte of a received segment, picoseconds.
    pub byte_in_ps: u64,
    /// CPU time per segment without payload, sent or received.
    pub acknowledgment: Duration,
    /// CPU time per wake-up of a waiting process.
    pub wake: Duration,
}

/// A workstation of paper \[2\] (SPARCstation 20 and similar). Receiving costs more than sending, so a writer
/// fills its buffer before the first acknowledgement arrives.
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

/// The delay of a switch in the same room, without the transmission time of the cells.
pub const SWITCH_DELAY: Duration = Duration::from_micros(20);

/// One measurement.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// The TCP settings of both hosts.
    pub tcp: tcp::Config,
    /// Longest IP packet, bytes.
    pub mtu_bytes: usize,
    /// Length of every write, bytes.
    pub message_bytes: usize,
    /// Size of the send and receive buffers of both hosts, bytes.
    pub buffer_bytes: u32,
    /// The CPU costs of the hosts.
    pub costs: HostCosts,
    /// The delay from port to port, without the transmission time of the cells.
    pub delay: Duration,
}

/// A packet captured at the writer's host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CapturedSegment {
    /// A sent segment: the sequence numbers of its first byte and of the byte after its last.
    Data(u32, u32),
    /// A received acknowledgement, with its acknowledgement number.
    Ack(u32),
}

/// The result of a measurement.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Goodput in the interval, Mbit/s.
    pub mbps: f64,
    /// Acknowledgements that the reader's host sent by the delayed-ACK timer in the interval.
    pub waits: u64,
    /// The first packets at the writer's host in the interval, as many as requested.
    pub capture: Vec<(Instant, CapturedSegment)>,
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
    /// Whether the process is runnable.
    runs: bool,
    /// Whether the process has to be woken up first.
    slept: bool,
    /// Bytes of the current message that TCP has not yet accepted.
    left: usize,
    /// Packets on the line from this host, with their arrival times.
    flying: VecDeque<(Instant, Pdu)>,
    line_free_at: Instant,
}

/// The two hosts: 0 is the writer, 1 the reader.
struct Hosts<'a> {
    experiment: &'a Experiment,
    sites: [Site; 2],
    message: Vec<u8>,
    read: u64,
    buffer: Vec<u8>,
    capture: Vec<(Instant, CapturedSegment)>,
    capture_from: Instant,
    capture_max: usize,
    initial: Option<Sequence>,
}

const PORT: u16 = 12_865;
/// Time before the measured interval, for connection set-up and slow start.
const SETTLE: Duration = Duration::from_millis(500);

impl Experiment {
    /// Measures for `interval` of virtual time after a settling time, and captures at most `capture_max`
    /// packets.
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
        hosts.sites[1].board.host().listen(remote).expect("the port is free");
        hosts.sites[0].stream = hosts.sites[0].board.host().open(remote).ok();
        (0..2).for_each(|side| hosts.drain(side, Instant::ZERO));
        hosts
    }

    /// Processes all events up to `until`.
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

    /// Runs the task of highest priority on an idle processor.
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

    /// Writes one message, or the rest of one; returns the time at which the call ends.
    fn write(&mut self, now: Instant) -> Instant {
        let costs = self.experiment.costs;
        let site = &mut self.sites[0];
        let stream = site.stream.expect("the writer has a stream");
        if site.left == 0 {
            site.left = self.message.len();
        }
        // The cost depends on the number of bytes copied; the board is called at the time at which the copy
        // is done.
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

    /// Reads what is available, up to the length of the buffer; returns the time at which the call ends.
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

    /// Handles the completions and output of a board after a call at `now`; each segment leaves after its CPU
    /// time.
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

    /// Captures a packet at the writer's host.
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
                CapturedSegment::Ack(initial.distance(header.acknowledgment))
            } else {
                let first = initial.distance(header.sequence);
                CapturedSegment::Data(first, first + payload_bytes(pdu) as u32)
            },
        ));
    }
}

impl Site {
    /// Returns the time at which the processor runs its next task.
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

/// Returns the transmission time of a packet's cells on the line.
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
