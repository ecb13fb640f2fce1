//! A star: EFE-like endpoints around one switch, in virtual time.
//!
//! Goal      show the transport's performance on an Ethernet: rates, queues, fairness, losses. The same seed
//!           gives exactly the same run.
//! Hosts     each host is an endpoint behind a port, which fetches a frame when the line is free, as a NIC
//!           does. The traffic consists of streams: segments with known contents from one host to another,
//!           checked by the target.
//! Queue     the queue to host 0: its length in frames is sampled whenever a frame is added to it.
//! Limits    the receiving host of a stream reads either everything at once or at a fixed rate.

use crate::network::cable::{Cable, CableConfig};
use crate::network::switch::Switch;
use kiban_base::ethernet::Mac;
use kiban_base::{Instant, RngKey, SimRng};
use kiban_capture as capture;
use kiban_rdma::efe::{Config, EndReason, Endpoint, Event, FlowNumber, ethernet};
use std::time::Duration;

/// The service that streams use.
const SERVICE: u16 = 7;

/// Configuration of a star: hosts, lines and the switch.
#[derive(Clone, Debug)]
pub struct StarConfig {
    /// Hosts.
    pub hosts: usize,
    /// The lines from hosts to the switch.
    pub up: CableConfig,
    /// The lines from the switch to hosts, and the queues in front of them.
    pub down: CableConfig,
    /// The endpoints' settings.
    pub endpoint: Config,
    /// Seed of all random numbers.
    pub seed: u64,
}

impl StarConfig {
    /// Returns a star of 10 Gbit/s lines, queues of 64 frames, and 10 µs for a full frame and its
    /// acknowledgement.
    pub fn ten_gigabit(hosts: usize) -> StarConfig {
        let line = CableConfig::ethernet(10_000_000_000, Duration::from_nanos(1850));
        StarConfig {
            hosts,
            up: CableConfig { packets_max: 1, ..line },
            down: CableConfig { packets_max: 64, ..line },
            endpoint: Config::default(),
            seed: 1,
        }
    }
}

/// Segments from one host to another.
#[derive(Clone, Debug)]
pub struct Stream {
    /// The sending host and the receiving host.
    pub hosts: (usize, usize),
    /// When it connects.
    pub begin: Instant,
    /// Number of segments to send before the stream finishes.
    pub segments: u64,
    /// Length of each segment, bytes. With 0, each has the greatest length that the flow allows.
    pub segment_bytes: usize,
    /// Interval at which the target reads one segment. With zero, the target reads everything at once.
    pub read_every: Duration,
    /// Number of segments that the target has read correctly and in order.
    pub read: u64,
    /// The bytes of those segments.
    pub read_bytes: u64,
    /// Segments with wrong contents.
    pub wrong: u64,
    /// When the target read the last segment.
    pub read_at: Instant,
    /// How the flow ended at its source and at its target.
    pub ended: (Option<EndReason>, Option<EndReason>),
    sent: u64,
    flows: (Option<FlowNumber>, Option<FlowNumber>),
    read_next: Instant,
}

impl Stream {
    /// Creates a stream of full segments.
    pub fn new(from: usize, to: usize, segments: u64) -> Stream {
        Stream {
            hosts: (from, to),
            begin: Instant::ZERO,
            segments,
            segment_bytes: 0,
            read_every: Duration::ZERO,
            read: 0,
            read_bytes: 0,
            wrong: 0,
            read_at: Instant::ZERO,
            ended: (None, None),
            sent: 0,
            flows: (None, None),
            read_next: Instant::ZERO,
        }
    }

    /// Returns whether everything arrived correctly and both ends have finished.
    pub fn is_done(&self) -> bool {
        self.read == self.segments
            && self.wrong == 0
            && self.ended == (Some(EndReason::Finished), Some(EndReason::Finished))
    }

    /// Returns the average rate at which user data has been read since the stream began, Gbit/s.
    pub fn gigabits(&self, until: Instant) -> f64 {
        self.read_bytes as f64 * 8.0 / until.since(self.begin).as_nanos() as f64
    }
}

#[derive(Debug)]
struct Host {
    mac: Mac,
    endpoint: Endpoint,
    up: Cable,
    /// The time at which the line will be free, if there is more to send.
    room_at: Instant,
    /// When the host acts next.
    acts_at: Instant,
}

/// The world.
#[derive(Debug)]
pub struct Star {
    /// The switch through which all frames go.
    pub switch: Switch,
    /// The streams.
    pub streams: Vec<Stream>,
    hosts: Vec<Host>,
    now: Instant,
    room: Vec<u8>,
    segment: Vec<u8>,
    /// Statistics of the queue to host 0.
    queue: QueueWatch,
}

/// The average and the maximum length of a queue over some time.
#[derive(Clone, Debug, Default)]
pub struct QueueWatch {
    since: Instant,
    /// The queue length integrated over time, in frames times nanoseconds; and the duration of the
    /// measurement, nanoseconds.
    area: u128,
    nanos: u64,
    /// The maximum number of frames in the queue.
    pub most: usize,
}

impl QueueWatch {
    fn see(&mut self, frames: usize, now: Instant) {
        let nanos = now.since(self.since).as_nanos() as u64;
        (self.area, self.nanos) = (self.area + frames as u128 * u128::from(nanos), self.nanos + nanos);
        self.most = self.most.max(frames);
        self.since = now;
    }

    /// Returns the average number of frames in the queue, over time.
    pub fn mean(&self) -> f64 {
        self.area as f64 / self.nanos.max(1) as f64
    }
}

/// Returns the byte at position `at` in segment `index` of a stream.
fn content(stream: usize, index: u64, at: usize) -> u8 {
    (index.wrapping_mul(31).wrapping_add(stream as u64 * 7 + at as u64) ^ (index >> 8)) as u8
}

impl Star {
    /// Creates hosts around a switch, which send `streams`.
    pub fn new(config: &StarConfig, streams: Vec<Stream>) -> Star {
        let rng = SimRng::from_seed(config.seed);
        let host = |number: usize| {
            let mut rng = rng.fork(number as u64);
            let mut endpoint = Endpoint::new(config.endpoint.clone(), RngKey::for_simulation(rng.draw()));
            endpoint.listen(SERVICE);
            Host {
                mac: Mac([2, 0, 0, 0, 0, number as u8]),
                endpoint,
                up: Cable::new(config.up, capture::LINK_TYPE_ETHERNET, rng),
                room_at: Instant::NEVER,
                acts_at: Instant::NEVER,
            }
        };
        let hosts: Vec<Host> = (0..config.hosts).map(host).collect();
        let room = ethernet::FRAME_BYTES_MIN + hosts[0].endpoint.frame_bytes_max();
        Star {
            switch: Switch::new(&vec![config.down; config.hosts], rng.fork(u64::MAX).draw()),
            streams,
            hosts,
            now: Instant::ZERO,
            room: vec![0; room],
            segment: Vec::new(),
            queue: QueueWatch::default(),
        }
    }

    /// Returns the virtual time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Returns a host's endpoint.
    pub fn endpoint(&self, host: usize) -> &Endpoint {
        &self.hosts[host].endpoint
    }

    /// Returns the line from a host to the switch, to be changed.
    pub fn up_mut(&mut self, host: usize) -> &mut Cable {
        &mut self.hosts[host].up
    }

    /// Returns the window of a stream's source in frames, and its estimate of the shortest round-trip time in
    /// nanoseconds.
    pub fn window(&self, stream: usize) -> Option<(f64, Option<u64>)> {
        let Stream { hosts, flows, .. } = &self.streams[stream];
        self.hosts[hosts.0].endpoint.window(flows.0?)
    }

    /// Returns the statistics of the queue to host 0 since the last call, and starts a new measurement.
    pub fn take_queue_watch(&mut self) -> QueueWatch {
        let fresh = QueueWatch { since: self.now, ..QueueWatch::default() };
        std::mem::replace(&mut self.queue, fresh)
    }

    /// Advances the time to `until`, or until all streams are done. Returns whether they are.
    pub fn run(&mut self, until: Instant) -> bool {
        loop {
            for host in 0..self.hosts.len() {
                self.turn(host);
            }
            if self.streams.iter().all(Stream::is_done) {
                return true;
            }
            let next = self.next();
            if next > until {
                self.now = until;
                return false;
            }
            self.queue.see(self.switch.port_mut(0).waiting(self.now), next);
            self.now = self.now.max(next);
            for host in 0..self.hosts.len() {
                while let Some(frame) = self.hosts[host].up.arrive_bytes(self.now) {
                    self.switch.arrive(host, frame, self.now);
                }
            }
            while let Some((port, frame)) = self.switch.leave(self.now) {
                let Host { endpoint, mac, acts_at, .. } = &mut self.hosts[port];
                ethernet::arrive(endpoint, *mac, &frame, self.now);
                *acts_at = self.now;
            }
        }
    }

    fn next(&self) -> Instant {
        let of_host = |host: &Host| {
            let acts = host.up.next_arrival().min(host.endpoint.deadline());
            acts.min(host.room_at).min(host.acts_at)
        };
        let hosts = self.hosts.iter().map(of_host).min().unwrap_or(Instant::NEVER);
        hosts.min(self.switch.next_arrival())
    }

    /// Does everything that is due at a host.
    fn turn(&mut self, number: usize) {
        let now = self.now;
        let host = &self.hosts[number];
        if host.acts_at > now && host.endpoint.deadline() > now && host.room_at > now && now != Instant::ZERO
        {
            return;
        }
        self.hosts[number].acts_at = Instant::NEVER;
        while let Some(event) = self.hosts[number].endpoint.poll() {
            self.on_event(number, event);
        }
        for stream in 0..self.streams.len() {
            self.work(number, stream);
        }
        let Host { endpoint, mac, up, room_at, .. } = &mut self.hosts[number];
        endpoint.settle(now);
        *room_at = Instant::NEVER;
        loop {
            let free_at = up.room_at(now);
            if free_at > now {
                *room_at = free_at;
                break;
            }
            let Some(length) = ethernet::fetch(endpoint, *mac, &mut self.room, now) else { break };
            let _ = up.send_bytes(self.room[..length].to_vec(), now);
        }
    }

    fn on_event(&mut self, number: usize, event: Event) {
        let endpoint = &mut self.hosts[number].endpoint;
        match event {
            Event::ConnectRequest { flow, greeting, .. } => {
                let named = greeting.first_chunk::<8>().map(|bytes| u64::from_be_bytes(*bytes) as usize);
                let Some(stream) = named.and_then(|stream| self.streams.get_mut(stream)) else { return };
                // A retransmitted connection request must not open a second flow.
                if stream.flows.1.is_none() && endpoint.accept(flow, &[], self.now).is_ok() {
                    stream.flows.1 = Some(flow);
                }
            }
            Event::Finished { flow } => {
                let _ = endpoint.finish(flow);
            }
            Event::Ended { flow, why } => {
                for stream in &mut self.streams {
                    if stream.hosts.0 == number && stream.flows.0 == Some(flow) {
                        stream.ended.0 = Some(why);
                    }
                    if stream.hosts.1 == number && stream.flows.1 == Some(flow) {
                        stream.ended.1 = Some(why);
                    }
                }
            }
            _ => {}
        }
    }

    /// Lets a host read and write as much as a stream allows.
    fn work(&mut self, number: usize, which: usize) {
        let now = self.now;
        let Star { hosts, streams, segment, .. } = self;
        let (host, stream) = (&mut hosts[number], &mut streams[which]);
        if stream.hosts.1 == number {
            Self::read(host, stream, which, segment, now);
        }
        if stream.hosts.0 != number {
            return;
        }
        let target = Mac([2, 0, 0, 0, 0, stream.hosts.1 as u8]);
        let Some(flow) = stream.flows.0 else {
            if now >= stream.begin {
                let greeting = (which as u64).to_be_bytes();
                stream.flows.0 = host.endpoint.connect(target.into(), SERVICE, &greeting, now).ok();
            } else {
                host.acts_at = host.acts_at.min(stream.begin);
            }
            return;
        };
        let Some(most) = host.endpoint.segment_bytes(flow) else { return };
        let length = if stream.segment_bytes == 0 { most } else { stream.segment_bytes.min(most) };
        while stream.sent < stream.segments && host.endpoint.room(flow) > 0 {
            segment.clear();
            segment.extend((0..length).map(|at| content(which, stream.sent, at)));
            if host.endpoint.send(flow, segment, now).is_err() {
                break;
            }
            stream.sent += 1;
            if stream.sent == stream.segments {
                let _ = host.endpoint.finish(flow);
            }
        }
    }

    fn read(host: &mut Host, stream: &mut Stream, which: usize, segment: &mut Vec<u8>, now: Instant) {
        let Some(flow) = stream.flows.1 else { return };
        loop {
            if now < stream.read_next {
                host.acts_at = host.acts_at.min(stream.read_next);
                return;
            }
            if !host.endpoint.receive(flow, segment, now) {
                return;
            }
            let index = stream.read;
            let is_right = !segment.is_empty()
                && segment.iter().enumerate().all(|(at, byte)| *byte == content(which, index, at));
            stream.wrong += u64::from(!is_right);
            stream.read += 1;
            stream.read_bytes += segment.len() as u64;
            stream.read_at = now;
            if !stream.read_every.is_zero() {
                stream.read_next = now + stream.read_every;
            }
        }
    }
}
