//! Priority-based flow control of a switch (IEEE 802.1Q §36): asks senders to pause before its buffers
//! overflow.
//!
//! Accounting  each frame counts at the port through which it came, for its priority, until its transmission
//!             has ended. Above `xoff_bytes` the sender is paused, below `xon_bytes` it may go on.
//! Renewal     a pause is asked for again after half of its time.
//! Headroom    frames arrive after a pause was asked for: those on the line, and those that the sender has
//!             begun. The queues must have room for them.

use kiban_base::Instant;
use kiban_base::ethernet::{Header, Mac};
use kiban_base::numbers::ether_type;
use kiban_tcpip::wire::pfc::{GROUP, PRIORITIES, Pause, QUANTUM_BITS};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// The time of a pause: as long as possible.
const QUANTA: u16 = u16::MAX;
/// The source of the switch's own frames.
const MAC: Mac = Mac([0x02, 0, 0, 0, 0xff, 0xfe]);
/// Bytes of a frame without its FCS, at least.
const FRAME_BYTES: usize = 60;

/// When a switch asks senders to pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PfcConfig {
    /// The priorities that are paused, as a bit for each.
    pub priorities: u8,
    /// Bytes from one port and of one priority above which the sender is paused.
    pub xoff_bytes: usize,
    /// Bytes below which it may go on.
    pub xon_bytes: usize,
}

/// The frames of one port and one priority.
#[derive(Clone, Copy, Debug, Default)]
struct Buffered {
    bytes: usize,
    /// When the pause is renewed, if the sender is paused.
    renew_at: Option<Instant>,
}

/// A request to a port's sender.
pub(super) struct Request {
    pub(super) port: usize,
    pub(super) frame: Vec<u8>,
    pub(super) pauses: bool,
}

/// The flow control of a switch.
#[derive(Debug)]
pub(super) struct Pfc {
    config: PfcConfig,
    /// Half of the time of a pause at each port.
    renewals: Vec<Duration>,
    buffered: Vec<[Buffered; PRIORITIES]>,
    /// When frames will have left: the time, the port through which they came, priority, bytes.
    leaving: BinaryHeap<Reverse<(Instant, usize, usize, usize)>>,
}

impl Pfc {
    /// Returns the flow control of a switch whose ports have these rates in bit/s.
    pub(super) fn new(config: PfcConfig, rates: impl Iterator<Item = u64>) -> Pfc {
        let nanos = |rate: u64| {
            u128::from(QUANTA) * u128::from(QUANTUM_BITS) * 1_000_000_000 / 2 / u128::from(rate.max(1))
        };
        let renewals: Vec<Duration> = rates.map(|rate| Duration::from_nanos(nanos(rate) as u64)).collect();
        let buffered = vec![[Buffered::default(); PRIORITIES]; renewals.len()];
        Pfc { config, renewals, buffered, leaving: BinaryHeap::new() }
    }

    /// Counts a frame that came through a port and will have left at `left`.
    pub(super) fn add(&mut self, port: usize, priority: usize, bytes: usize, left: Instant) {
        self.buffered[port][priority].bytes += bytes;
        self.leaving.push(Reverse((left, port, priority, bytes)));
    }

    /// Returns when [`Pfc::advance`] is due.
    pub(super) fn deadline(&self) -> Instant {
        let leaves = self.leaving.peek().map_or(Instant::NEVER, |Reverse((at, ..))| *at);
        let renewals = self.buffered.iter().flatten().filter_map(|buffered| buffered.renew_at);
        renewals.min().unwrap_or(Instant::NEVER).min(leaves)
    }

    /// Returns the requests that are due.
    pub(super) fn advance(&mut self, now: Instant) -> Vec<Request> {
        while let Some(&Reverse((at, port, priority, bytes))) = self.leaving.peek()
            && at <= now
        {
            self.leaving.pop();
            self.buffered[port][priority].bytes -= bytes;
        }
        let Pfc { config, renewals, buffered, .. } = self;
        let mut requests = Vec::new();
        for (port, of_port) in buffered.iter_mut().enumerate() {
            let mut quanta = [None; PRIORITIES];
            for (priority, buffered) in of_port.iter_mut().enumerate() {
                if config.priorities >> priority & 1 == 0 {
                    continue;
                }
                match buffered.renew_at {
                    None if buffered.bytes > config.xoff_bytes => {
                        buffered.renew_at = Some(now + renewals[port]);
                        quanta[priority] = Some(QUANTA);
                    }
                    Some(_) if buffered.bytes < config.xon_bytes => {
                        buffered.renew_at = None;
                        quanta[priority] = Some(0);
                    }
                    Some(at) if at <= now => {
                        buffered.renew_at = Some(now + renewals[port]);
                        quanta[priority] = Some(QUANTA);
                    }
                    _ => {}
                }
            }
            if quanta.iter().any(Option::is_some) {
                let pauses = quanta.contains(&Some(QUANTA));
                requests.push(Request { port, frame: frame(&Pause { quanta }), pauses });
            }
        }
        requests
    }
}

fn frame(pause: &Pause) -> Vec<u8> {
    let mut frame = vec![0; FRAME_BYTES];
    let header = Header { target: GROUP, source: MAC, ether_type: ether_type::MAC_CONTROL }.write(&mut frame);
    pause.write(&mut frame[header..]);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiban_base::ethernet::HEADER_BYTES;

    #[test]
    fn a_sender_is_paused_renewed_and_resumed() {
        let config = PfcConfig { priorities: 1 << 3, xoff_bytes: 2000, xon_bytes: 1000 };
        let mut pfc = Pfc::new(config, [10_000_000_000, 10_000_000_000].into_iter());
        let at = Instant::from_nanos;
        let quanta = |pfc: &mut Pfc, now| -> Vec<(usize, Option<u16>)> {
            let requests = pfc.advance(now);
            let read =
                |request: &Request| Pause::read(&request.frame[HEADER_BYTES..]).expect("valid").0.quanta[3];
            requests.iter().map(|request| (request.port, read(request))).collect()
        };
        // Another priority is not paused.
        pfc.add(0, 0, 5000, at(50_000_000));
        pfc.add(1, 3, 1500, at(10_000_000));
        assert_eq!(quanta(&mut pfc, at(0)), []);
        pfc.add(1, 3, 1500, at(20_000_000));
        assert_eq!(quanta(&mut pfc, at(1000)), [(1, Some(QUANTA))]);
        // 65,535 quanta at 10 Gbit/s are 3.36 ms.
        assert_eq!(pfc.deadline(), at(1000 + 1_677_696));
        assert_eq!(quanta(&mut pfc, at(1000 + 1_677_696)), [(1, Some(QUANTA))]);
        assert_eq!(quanta(&mut pfc, at(3_000_000)), []);
        // 1500 bytes are left, which is between the thresholds: the pause is renewed.
        assert_eq!(quanta(&mut pfc, at(10_000_000)), [(1, Some(QUANTA))]);
        assert_eq!(quanta(&mut pfc, at(20_000_000)), [(1, Some(0))]);
        assert_eq!(quanta(&mut pfc, at(50_000_000)), []);
        assert_eq!(pfc.deadline(), Instant::NEVER);
    }
}
