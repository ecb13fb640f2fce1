//! Priority-based flow control at an Ethernet port: the other end may pause priorities (IEEE 802.1Q §36).
//!
//! Priority         from the DSCP of an IP packet; frames without one have priority 0.
//! Receive path     a pause lasts until its time is over, or until another one ends or replaces it.
//! Not implemented  asking the other end to pause: the board takes whatever arrives. VLAN tags.

use alloc::collections::VecDeque;
use core::time::Duration;
use kiban_base::ethernet::{HEADER_BYTES, Header};
use kiban_base::numbers::ether_type;
use kiban_base::{Instant, Pdu};
use kiban_tcpip::wire::pfc::{self, GROUP, PRIORITIES, QUANTUM_BITS};

/// Bytes of a MAC control frame; the rest of it has no meaning (IEEE 802.3 §31.4).
const FRAME_BYTES: usize = 60;

/// The pauses of a port.
pub(super) struct Pauses {
    bits_per_second: u64,
    /// When each priority may send again.
    until: [Instant; PRIORITIES],
    /// When the first paused frame may be sent, if only such frames wait.
    resumes_at: Instant,
}

impl Pauses {
    /// Creates the state of a port on a link of this rate.
    pub(super) fn new(bits_per_second: u64) -> Pauses {
        Pauses {
            bits_per_second: bits_per_second.max(1),
            until: [Instant::ZERO; PRIORITIES],
            resumes_at: Instant::NEVER,
        }
    }

    /// Consumes a frame if it is a MAC control frame. Returns whether it is one.
    pub(super) fn take(&mut self, frame: &Pdu, now: Instant) -> bool {
        let mut bytes = [0; FRAME_BYTES];
        let mut filled = 0;
        for run in frame.runs() {
            let count = run.len().min(FRAME_BYTES - filled);
            bytes[filled..filled + count].copy_from_slice(&run[..count]);
            filled += count;
        }
        let Ok((header, _)) = Header::read(&bytes) else { return false };
        if (header.ether_type, header.target) != (ether_type::MAC_CONTROL, GROUP) {
            return false;
        }
        if let Ok((pause, _)) = pfc::Pause::read(&bytes[HEADER_BYTES..]) {
            for (until, quanta) in self.until.iter_mut().zip(pause.quanta) {
                if let Some(quanta) = quanta {
                    let bits = u128::from(quanta) * u128::from(QUANTUM_BITS);
                    let nanos = bits * 1_000_000_000 / u128::from(self.bits_per_second);
                    *until = now + Duration::from_nanos(nanos as u64);
                }
            }
        }
        true
    }

    /// Returns the index of the first frame that may be sent now.
    pub(super) fn first_free(&mut self, queue: &VecDeque<Pdu>, now: Instant) -> Option<usize> {
        let times = || queue.iter().map(|frame| self.until[priority(frame.head())]);
        let free = times().position(|until| until <= now);
        self.resumes_at = match free {
            Some(_) => Instant::NEVER,
            None => times().min().unwrap_or(Instant::NEVER),
        };
        free
    }

    /// Returns when a paused frame may be sent, if only such frames waited at the last
    /// [`Pauses::first_free`].
    pub(super) fn resumes_at(&self) -> Instant {
        self.resumes_at
    }
}

/// Returns the priority of a frame, whose headers are in its head.
fn priority(head: &[u8]) -> usize {
    let class = match (Header::read(head), head.get(HEADER_BYTES..)) {
        (Ok((Header { ether_type: ether_type::IPV4, .. }, _)), Some(&[_, class, ..])) => class,
        (Ok((Header { ether_type: ether_type::IPV6, .. }, _)), Some(&[first, second, ..])) => {
            first << 4 | second >> 4
        }
        _ => 0,
    };
    pfc::priority(class)
}
