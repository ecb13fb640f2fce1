//! The client's part of a mix: sends the flows that start at one site of a plan, and combines the results of
//! both ends into one outcome.
//!
//! Sites     this host is one site of the plan, and the server represents all other sites. All flows of this
//!           site go to the server, each policed by its path's contract. Flows of other sites are not run;
//!           the outcome lists them.
//! Pace      one thread sends datagrams when they are due, by the monotonic clock. How late they are sent is
//!           reported, but is not part of any delay, because a datagram carries its sending time.
//! Loss      the number of datagrams sent that the server has not received. Datagrams that this host's own
//!           queue rejected are also reported.
//! End       a run ends at the plan's end, when `stop` returns true, or when the peer is gone. The outcome
//!           covers the time until then.

use super::super::outcome::{FlowOutcome, Medium, Network, Outcome, Real, Sample};
use super::super::plan::{Kind, Plan, Word};
use super::super::traffic::PICTURE;
use super::bulk::{self, Outgoing, SendStats};
use super::delays::Delays;
use super::edge::{Edge, Offered};
use super::messages::*;
use super::receive::line_mbps;
use super::wire::{self, COOKIE_OCTETS};
use crate::engine::Failure;
use crate::remote::admission::hex;
use crate::remote::client::{Client, TIMEOUT};
use crate::remote::protocol::{
    COOKIE_TRIES_MAX, Lines, REPLY_BYTES_MAX, Reply, Request, read_message_until, write_message,
};
use kiban_base::Instant;
use kiban_measure::Settings;
use kiban_measure::pause::pace;
use kiban_os::Clock;
use kiban_os::random;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// How far ahead of time cells are generated.
const AHEAD: Duration = Duration::from_millis(20);
/// How long a unit that has begun may still take after the run ends: as long as in the virtual network.
const TAIL: Duration = Duration::from_secs(1);
/// How long a shaped path may keep sending queued cells after the run ends; the server waits somewhat longer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest time for which a thread sleeps before it checks whether to stop.
const TURN: Duration = Duration::from_millis(5);
/// The socket's send buffer, bytes. Queueing in this buffer counts as network delay.
const BUFFER_BYTES: usize = 4 << 20;
/// How long the server may take to send its last message.
const LAST_WORD: Duration = Duration::from_secs(30);
/// How long to wait for a cookie before retransmitting it.
const COOKIE_TIME: Duration = Duration::from_millis(200);
/// The header octets of a datagram: UDP, and IPv4 or IPv6.
const UDP_OCTETS: u64 = 8;

/// The flows to be sent.
pub(super) struct Chosen {
    /// The flows, by their numbers in the plan.
    flows: Vec<usize>,
    left_out: Vec<String>,
    pub(super) request: MixRequest,
}

impl Plan {
    /// Returns the flows that leave a site.
    pub(super) fn leaving(&self, from: &str) -> Result<Chosen, Failure> {
        let impossible = |why: String| Err(Failure::Impossible(why));
        if self.site(&Word::from(from)).is_none() {
            let names: Vec<&str> = self.sites.iter().map(|site| site.name.text.as_str()).collect();
            return impossible(format!("the plan has no site '{from}': its sites are {}", names.join(", ")));
        }
        let leaves = |flow: usize| self.flows[flow].from.text == from && !Plan::is_local(&self.flows[flow]);
        let (flows, others): (Vec<usize>, Vec<usize>) = (0..self.flows.len()).partition(|flow| leaves(*flow));
        if flows.is_empty() {
            return impossible(format!("no flow of the plan leaves '{from}'"));
        }
        if !SAMPLE_MILLIS.contains(&self.sample_ms) {
            return impossible(format!(
                "sample_ms is {}: over a real network, choose {SAMPLE_MILLIS:?}",
                self.sample_ms
            ));
        }
        let paths: Vec<usize> = (0..self.pvcs.len()).filter(|path| self.pvcs[*path].police).collect();
        let policed = |path: &usize| {
            let pvc = &self.pvcs[*path];
            Policed { mbps: pvc.mbps, cdvt_us: pvc.cdvt_us, tag: pvc.tag }
        };
        let incoming = |number: &usize| {
            let flow = &self.flows[*number];
            let path = self.path(flow).expect("the plan is valid");
            Incoming {
                kind: flow.kind,
                copies: flow.copies as u32,
                path: paths.iter().position(|policed| *policed == path).map(|place| place as u32),
                mbps: flow.mbps,
                fec: flow.fec,
                block_octets: flow.block_octets.map(|octets| octets as u32),
                stamps: flow.stamps,
                clock_ppm: flow.clock_ppm,
                frame_octets: flow.frame_octets as u32,
                window_kib: flow.window_kib,
            }
        };
        let request = MixRequest {
            millis: (self.seconds * 1e3).ceil().min(f64::from(u32::MAX)) as u32,
            sample_ms: self.sample_ms as u32,
            flows: flows.iter().map(incoming).collect(),
            paths: paths.iter().map(policed).collect(),
        };
        let left_out = others.iter().map(|flow| self.flows[*flow].name.clone()).collect();
        Ok(Chosen { flows, left_out, request })
    }
}

/// The results known at this end.
#[derive(Default)]
struct Near {
    /// For each sample, the statistics of each flow.
    offered: Vec<Vec<Offered>>,
    /// For each sample, the TCP octets of each flow.
    written: Vec<Vec<u64>>,
    late: Delays,
    datagrams: u64,
    octets: u64,
    refused: u64,
    dropped: u64,
    outgoing: Vec<(usize, Outgoing)>,
    seconds: f64,
    ended_early: Option<String>,
}

/// Sends the flows of a site of a plan to a server; calls `done` with the progress, 0 to 1.
///
/// # Errors
/// Returns an error if the mix cannot start. Later errors are part of the outcome ([`Real::ended_early`]).
pub fn run(
    plan: &Plan,
    from: &str,
    client: &mut Client,
    done: &mut dyn FnMut(f64),
    stop: &dyn Fn() -> bool,
) -> Result<Outcome, Failure> {
    let chosen = plan.leaving(from)?;
    let peer = client.peer();
    let ready = client.request(|nonce| Request::Mix { nonce, request: Box::new(chosen.request.clone()) })?;
    let nonce = ready.nonce;
    let here = |error: io::Error| Failure::Lost(format!("a socket of this host failed: {error}"));
    let socket = open(SocketAddr::new(peer.ip(), ready.datagrams)).map_err(here)?;

    let circuits: Vec<(usize, u16)> = chosen
        .flows
        .iter()
        .enumerate()
        .flat_map(|(local, flow)| std::iter::repeat_n(local, plan.flows[*flow].copies))
        .enumerate()
        .map(|(number, local)| (local, number as u16))
        .collect();
    if chosen.flows.iter().any(|flow| plan.flows[*flow].kind != Kind::Bulk) {
        prove(&socket, &nonce.greeting(), client.lines().0)?;
    }
    let mut connections = Vec::new();
    for (local, number) in &circuits {
        let flow = &plan.flows[chosen.flows[*local]];
        if flow.kind != Kind::Bulk {
            continue;
        }
        let window = Some(flow.window_kib << 10);
        let settings =
            Settings { send_bytes: window, receive_bytes: window, no_delay: true, ..Settings::default() };
        let greeting = bulk::greeting(&nonce, *number);
        let stream = client.connect_data(&settings, ready.streams, &greeting)?;
        stream.set_write_timeout(Some(bulk::LOOK)).map_err(here)?;
        connections.push((*local, stream));
    }
    let (reader, writer) = client.lines();
    write_message(writer, &Request::Go)
        .map_err(|error| Failure::Lost(format!("the server at {peer} is gone: {error}")))?;

    let clock = Clock::new();
    let edge = Edge::new(plan, &chosen.flows, nonce.prefix());
    let (sender, messages) = sync_channel(16);
    let sent: Vec<SendStats> = connections.iter().map(|_| SendStats::default()).collect();
    let halt = AtomicBool::new(false);
    let (near, samples, total) = std::thread::scope(|scope| {
        scope.spawn(|| listen(reader, sender));
        let end = Instant::ZERO + Duration::from_secs_f64(plan.seconds);
        let locals: Vec<usize> = connections.iter().map(|(local, _)| *local).collect();
        let threads: Vec<_> = connections
            .into_iter()
            .zip(&sent)
            .map(|((local, stream), sent)| {
                let flow = &plan.flows[chosen.flows[local]];
                let span = (Instant::ZERO + Duration::from_secs_f64(flow.begin_s), end);
                let (shape, halt) = (flow.shape_mbps, &halt);
                (local, scope.spawn(move || bulk::send(stream, clock, span, shape, sent, halt)))
            })
            .collect();
        let mut sender = Sending {
            plan,
            flows: chosen.flows.len(),
            socket: &socket,
            clock,
            edge,
            messages: &messages,
            near: Near::default(),
            samples: Vec::new(),
            total: None,
            sent: &sent,
            locals: &locals,
            seen: vec![0; sent.len()],
            headers: UDP_OCTETS + if peer.is_ipv4() { 20 } else { 40 },
        };
        sender.send(done, stop);
        halt.store(true, Ordering::Release);
        let outgoing: Vec<(usize, Outgoing)> = threads
            .into_iter()
            .map(|(local, thread)| (local, thread.join().expect("a sender does not panic")))
            .collect();
        sender.near.outgoing = outgoing;
        sender.write_down();
        let ended = Request::Ended(sender.edge.datagrams(circuits.len()));
        if sender.total.is_none() && write_message(writer, &ended).is_ok() {
            sender.await_total();
        }
        // If the server's last message has not arrived, the listening thread is still waiting for it: close
        // the connection to end the thread.
        if sender.total.is_none() {
            let _ = writer.shutdown(std::net::Shutdown::Both);
        }
        (sender.near, sender.samples, sender.total)
    });
    let peer = peer.to_string();
    Ok(outcome(plan, &chosen, peer, near, &samples, total))
}

/// Sends a cookie to a UDP port until the server returns it over the control connection, which proves that
/// the port is the server's.
fn prove(socket: &UdpSocket, greeting: &[u8], reader: &mut Lines) -> Result<(), Failure> {
    let lost = |error: io::Error| Failure::Lost(format!("the server is gone: {error}"));
    let cookie = random::bytes::<COOKIE_OCTETS>().map_err(lost)?;
    for _ in 0..COOKIE_TRIES_MAX {
        // An error, for example from a firewall, counts as a lost datagram.
        let _ = socket.send(&wire::write_cookie(greeting, &cookie));
        if reader.buffer().is_empty() && !reader.get_ref().readable(COOKIE_TIME).map_err(lost)? {
            continue;
        }
        match read_message_until(reader, REPLY_BYTES_MAX, TIMEOUT).map_err(lost)? {
            Reply::Heard(said) if said == hex(&cookie) => return Ok(()),
            _ => {
                return Err(Failure::Lost(
                    "the UDP port that the server named is not its own: it did not return the cookie sent to \
                     that port".into(),
                ));
            }
        }
    }
    let peer = socket.peer_addr().map_err(lost)?;
    Err(Failure::Lost(format!("no datagram reaches the server at {peer}; is there a firewall in between?")))
}

fn open(peer: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr =
        if peer.is_ipv4() { (Ipv4Addr::UNSPECIFIED, 0).into() } else { (Ipv6Addr::UNSPECIFIED, 0).into() };
    let socket = UdpSocket::bind(any)?;
    socket.connect(peer)?;
    socket.set_nonblocking(true)?;
    kiban_measure::socket::send_buffer(&socket, BUFFER_BYTES as u32)?;
    Ok(socket)
}

/// Forwards the server's messages until the last one has arrived, or until the server is gone.
fn listen(reader: &mut Lines, sender: SyncSender<io::Result<Reply>>) {
    loop {
        let message = read_message_until(reader, REPLY_BYTES_MAX, TIMEOUT);
        let is_last = !matches!(message, Ok(Reply::Sample(_) | Reply::Heard(_)));
        if sender.send(message).is_err() || is_last {
            return;
        }
    }
}

struct Sending<'a> {
    plan: &'a Plan,
    flows: usize,
    socket: &'a UdpSocket,
    clock: Clock,
    edge: Edge,
    messages: &'a Receiver<io::Result<Reply>>,
    near: Near,
    samples: Vec<Vec<FlowSample>>,
    total: Option<MixTotal>,
    sent: &'a [SendStats],
    /// The number of the flow to which each TCP circuit belongs.
    locals: &'a [usize],
    /// The octets that each TCP circuit had sent at the previous sample.
    seen: Vec<u64>,
    headers: u64,
}

impl Sending<'_> {
    fn send(&mut self, done: &mut dyn FnMut(f64), stop: &dyn Fn() -> bool) {
        let mut end = Instant::ZERO + Duration::from_secs_f64(self.plan.seconds);
        let sample = Duration::from_millis(self.plan.sample_ms);
        let (mut made, mut sample_end) = (Instant::ZERO, Instant::ZERO + sample);
        let mut written = Instant::ZERO + sample;
        loop {
            let now = self.clock.now();
            while made < end && made < now + AHEAD {
                let until = (now + 2 * AHEAD).min(sample_end).min(end);
                self.edge.make(until);
                made = until;
                if made >= end {
                    // The cells of the last unit may be due after the source has stopped.
                    self.edge.make(end + TAIL);
                    self.edge.end();
                }
                if made >= sample_end || made >= end {
                    self.near.offered.push(self.edge.offered());
                    sample_end += sample;
                }
            }
            while now >= written && written < end {
                self.write_down();
                written += sample;
            }
            while let Some((due, datagram)) = self.edge.take(self.clock.now()) {
                self.put(due, datagram);
            }
            done((now.as_secs_f64() / self.plan.seconds).min(1.0));
            if self.receive_messages() {
                break;
            }
            if self.near.ended_early.is_none() && stop() {
                self.near.ended_early = Some("interrupted by the user".into());
                // Send everything that has been generated; otherwise it would count as lost.
                end = made;
                self.edge.end();
            }
            let now = self.clock.now();
            let next = self.edge.next();
            if made >= end && now >= end && (next.is_none() || now >= end + PATIENCE) {
                break;
            }
            let until = next.unwrap_or(now + TURN).min(now + TURN);
            if until > now {
                pace(until.since(now));
            }
        }
        self.near.seconds = self.clock.now().as_secs_f64().min(self.plan.seconds);
        let left = if self.near.ended_early.is_none() { self.edge.left() } else { 0 };
        self.near.dropped = self.edge.dropped() + left;
        if self.near.ended_early.is_some() {
            self.near.offered.push(self.edge.offered());
        }
    }

    fn put(&mut self, due: Instant, mut datagram: Vec<u8>) {
        let now = self.clock.now();
        wire::stamp(&mut datagram, now.as_nanos());
        self.near.late.push(now.since(due).as_nanos() as i64);
        self.near.datagrams += 1;
        self.near.octets += datagram.len() as u64 + self.headers;
        // If the peer is gone (port unreachable), the control connection reports the error.
        if self.socket.send(&datagram).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            self.near.refused += 1;
        }
    }

    /// Records how many octets TCP has written in this sample.
    fn write_down(&mut self) {
        let mut row = vec![0; self.flows];
        for ((sent, local), seen) in self.sent.iter().zip(self.locals).zip(&mut self.seen) {
            let octets = sent.octets.load(Ordering::Acquire);
            row[*local] += octets - std::mem::replace(seen, octets);
        }
        self.near.written.push(row);
    }

    /// Returns whether the server's last message has arrived.
    fn receive_messages(&mut self) -> bool {
        while let Ok(message) = self.messages.try_recv() {
            if self.on_message(message) {
                return true;
            }
        }
        false
    }

    fn on_message(&mut self, message: io::Result<Reply>) -> bool {
        match message {
            Ok(Reply::Sample(sample))
                if sample.len() == self.flows && self.samples.len() < self.samples_max() =>
            {
                self.samples.push(sample);
            }
            Ok(Reply::Total(total)) if total.flows.len() == self.flows => {
                self.total = Some(*total);
                return true;
            }
            // The server's reply to a retransmitted cookie.
            Ok(Reply::Heard(_)) => {}
            Ok(_) => return self.gone("unexpected reply".into()),
            Err(error) => return self.gone(error.to_string()),
        }
        false
    }

    /// Returns the maximum number of samples in a run of a plan, including the time for traffic in transit.
    fn samples_max(&self) -> usize {
        (self.plan.seconds * 1e3 / self.plan.sample_ms as f64) as usize + 100
    }

    fn gone(&mut self, why: String) -> bool {
        self.near.ended_early = Some(format!("the server is gone: {why}"));
        true
    }

    fn await_total(&mut self) {
        let deadline = self.clock.now() + LAST_WORD;
        while self.total.is_none() {
            let left = deadline.since(self.clock.now());
            match self.messages.recv_timeout(left) {
                Ok(message) => {
                    if self.on_message(message) {
                        return;
                    }
                }
                Err(_) => {
                    self.gone("no report of what arrived".into());
                    return;
                }
            }
        }
    }
}

/// Combines the results of both ends.
fn outcome(
    plan: &Plan,
    chosen: &Chosen,
    peer: String,
    mut near: Near,
    samples: &[Vec<FlowSample>],
    total: Option<MixTotal>,
) -> Outcome {
    let is_whole = total.is_some();
    // If the peer is gone, use its samples so far.
    let total = total.unwrap_or_else(|| partial(chosen.flows.len(), samples));
    let error = near.outgoing.iter().find_map(|(_, outgoing)| outgoing.error.clone());
    near.ended_early = near.ended_early.or(error);
    let mut network = Network { kind: Medium::Real, cells_dropped_full: near.dropped, ..Network::default() };
    let flow = |(local, number): (usize, &usize)| {
        let (said, came) = (&plan.flows[*number], &total.flows[local]);
        let seconds = near.seconds;
        let mut flow = FlowOutcome {
            name: said.name.clone(),
            kind: Some(said.kind),
            from: said.from.text.clone(),
            to: said.to.text.clone(),
            copies: said.copies,
            cells_strange: came.strange,
            cells_policed: Some(came.policed),
            datagrams_reordered: came.reordered,
            variation_us_p50: came.variation_us[0],
            variation_us_p99: came.variation_us[1],
            unit_ms_p50: came.unit_ms[0],
            unit_ms_p99: came.unit_ms[1],
            matrices: came.matrices,
            matrices_corrected: came.matrices_corrected,
            matrices_uncorrectable: came.matrices_uncorrectable,
            sequence_losses: came.sequence_losses,
            clock_ppm: came.clock_ppm,
            recovered_ppm: came.recovered_ppm,
            buffer_below_ms: came.buffer_below_ms,
            buffer_above_ms: came.buffer_above_ms,
            slips: came.slips,
            octets: came.octets,
            ..FlowOutcome::default()
        };
        let count = near.offered.len().max(near.written.len().min(samples.len())).max(1);
        let sample_s = plan.sample_ms as f64 / 1e3;
        let mut sent = Offered::default();
        let mut written = 0;
        for number in 0..count {
            let at_s = sample_start_s(number, plan.sample_ms);
            let length = (seconds - at_s).min(sample_s);
            if length <= 1e-3 {
                break;
            }
            let offered = near.offered.get(number).map_or(Offered::default(), |row| row[local]);
            let octets = near.written.get(number).map_or(0, |row| row[local]);
            let seen = samples.get(number).map(|row| row[local].clone()).unwrap_or_default();
            let is_tcp = said.kind == Kind::Bulk;
            let rate = |cells, octets: u64| {
                if is_tcp { octets as f64 * 8e-6 / length } else { line_mbps(cells, length) }
            };
            let periods = (length / PICTURE.as_secs_f64()).round() as u64 * said.copies as u64;
            sent.cells += offered.cells;
            sent.units += offered.units;
            written += octets;
            flow.samples.push(Sample {
                at_s,
                offered_mbps: rate(offered.cells, octets),
                carried_mbps: rate(seen.cells, seen.octets),
                cells_lost: seen.cells_lost,
                units: if said.kind.is_stream() { periods } else { offered.units },
                units_lost: seen.units_lost,
                variation_us_p50: seen.variation_us[0],
                variation_us_p99: seen.variation_us[1],
            });
        }
        let sends = (said.end_s.unwrap_or(seconds).min(seconds) - said.begin_s).max(0.0);
        flow.cells = sent.cells;
        flow.cells_lost = if is_whole {
            sent.cells.saturating_sub(came.cells)
        } else {
            flow.samples.iter().map(|sample| sample.cells_lost).sum()
        };
        flow.offered_mbps = line_mbps(sent.cells, seconds);
        flow.carried_mbps = line_mbps(came.cells, seconds);
        match said.kind {
            Kind::Bulk => {
                let mbps = |octets: u64| octets as f64 * 8e-6 / seconds.max(1e-3);
                (flow.offered_mbps, flow.carried_mbps) = (mbps(written), mbps(came.octets));
                flow.goodput_mbps = Some(came.octets as f64 * 8e-6 / sends.max(1e-3));
                let mine = || near.outgoing.iter().filter(|(of, _)| *of == local);
                flow.retransmissions = mine().map(|(_, outgoing)| outgoing.retransmissions).sum();
                if let Some((_, first)) = mine().next() {
                    [flow.round_us_p50, flow.round_us_p99] = first.round_us.above_us(0);
                }
            }
            kind if kind.is_stream() => {
                flow.units = (sends / PICTURE.as_secs_f64()).round() as u64 * said.copies as u64;
                flow.units_lost = came.damaged.min(flow.units);
            }
            _ => {
                flow.units = sent.units;
                flow.units_lost = if is_whole { sent.units.saturating_sub(came.whole) } else { came.damaged };
            }
        }
        flow
    };
    let flows: Vec<FlowOutcome> = chosen.flows.iter().enumerate().map(flow).collect();
    network.cells_policed = total.flows.iter().map(|flow| flow.policed).sum();
    network.cells_tagged = total.flows.iter().map(|flow| flow.tagged).sum();
    network.cells_in = total.flows.iter().map(|flow| flow.cells + flow.policed).sum();
    let real = Real {
        peer,
        datagrams: near.datagrams,
        datagrams_lost: is_whole
            .then(|| near.datagrams.saturating_sub(total.flows.iter().map(|flow| flow.datagrams).sum())),
        octets: near.octets,
        refused_here: near.refused,
        refused_there: total.refused,
        dropped_there: total.dropped_here,
        late_us_p99: near.late.above_us(0)[1],
        late_us_max: near.late.greatest_us(0),
        drift_us: total.drift_us,
        left_out: chosen.left_out.clone(),
        ended_early: near.ended_early,
    };
    Outcome {
        title: plan.title.clone(),
        seed: plan.seed,
        seconds: near.seconds,
        flows,
        network,
        real: Some(real),
    }
}

/// Computes totals from samples, without the server's own totals.
fn partial(flows: usize, samples: &[Vec<FlowSample>]) -> MixTotal {
    let flow = |local: usize| {
        let rows = || samples.iter().map(move |row| &row[local]);
        FlowTotal {
            cells: rows().map(|row| row.cells).sum(),
            octets: rows().map(|row| row.octets).sum(),
            damaged: rows().map(|row| row.units_lost).sum(),
            ..FlowTotal::default()
        }
    };
    MixTotal { flows: (0..flows).map(flow).collect(), ..MixTotal::default() }
}

/// Returns when a sample begins, in seconds. Multiplies milliseconds, because 3 * 0.1 is 0.30000000000000004.
fn sample_start_s(number: usize, sample_ms: u64) -> f64 {
    (number as u64 * sample_ms) as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_begin_at_times_without_digits_from_rounding() {
        for (number, sample_ms, expected) in [(3, 100, "0.3"), (300, 100, "30"), (7, 250, "1.75")] {
            assert_eq!(sample_start_s(number, sample_ms).to_string(), expected);
        }
    }
}
