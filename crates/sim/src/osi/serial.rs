//! One direction of a synchronous serial line: frames in transit, as HDLC transmits them.
//!
//! Length    a frame takes its octets, two octets of FCS, one flag (which ends it and starts the next), and
//!           every bit that zero insertion adds, computed from the frame's bits (ISO/IEC 13239 §4.3). While
//!           idle, the line sends flags; a new frame does not wait for these, but it does wait for the
//!           previous frame to end.
//! Errors    impairments apply to the frame including its FCS, so that the receiver's FCS check discards
//!           damaged frames. A serial line has loss and bit errors, but neither duplication nor reordering.

use kiban_base::{Instant, SimRng};
use kiban_board::impairment::{Impairment, ImpairmentConfig, ImpairmentCounters};
use kiban_osi::wire::lapb;
use std::collections::VecDeque;
use std::time::Duration;

kiban_base::counters! {
    /// Counters of one direction of a line.
    pub struct SerialCounters {
        /// Frames that were sent.
        frames,
        /// Octets of these frames, without FCS and flags.
        bytes,
        /// Bits added by zero insertion.
        stuffed_bits,
        /// Frames with a wrong FCS.
        invalid_frames,
    }
}

/// One direction of a line.
#[derive(Debug)]
pub struct Serial {
    bits_per_second: u64,
    delay: Duration,
    /// When the line will have sent its queue, with the remaining fraction of a nanosecond in parts of the
    /// rate.
    free_at: Instant,
    rest: u128,
    /// When transmission of the last queued frame starts. By then, the sender has the next frame ready.
    begins_at: Instant,
    under_way: VecDeque<(Instant, Vec<u8>)>,
    impairment: Impairment,
    counters: SerialCounters,
}

impl Serial {
    pub(super) fn new(
        bits_per_second: u64,
        delay: Duration,
        impairment: ImpairmentConfig,
        rng: SimRng,
    ) -> Serial {
        assert!(bits_per_second > 0, "a line has a rate");
        Serial {
            bits_per_second,
            delay,
            free_at: Instant::ZERO,
            rest: 0,
            begins_at: Instant::ZERO,
            under_way: VecDeque::new(),
            impairment: Impairment::new(impairment, rng),
            counters: SerialCounters::default(),
        }
    }

    /// Returns the counters.
    pub fn counters(&self) -> &SerialCounters {
        &self.counters
    }

    /// Returns the counters of impairments.
    pub fn impairment_counters(&self) -> &ImpairmentCounters {
        self.impairment.counters()
    }

    /// Returns when the line accepts another frame: it sends one and holds one ready.
    pub(super) fn takes_at(&self) -> Instant {
        self.begins_at
    }

    /// Queues a frame that is ready at `at`.
    pub(super) fn send(&mut self, mut frame: Vec<u8>, at: Instant) {
        self.counters.frames += 1;
        self.counters.bytes += frame.len() as u64;
        let fcs = lapb::seal(&frame);
        let bits = lapb::line_bits(frame.len()) as u64;
        frame.extend_from_slice(&fcs);
        let stuffed = stuffed_bits(&frame);
        self.counters.stuffed_bits += stuffed;
        if at > self.free_at {
            (self.free_at, self.rest) = (at, 0);
        }
        self.begins_at = self.free_at;
        let parts = u128::from(bits + stuffed) * 1_000_000_000 + self.rest;
        let rate = u128::from(self.bits_per_second);
        self.free_at += Duration::from_nanos((parts / rate) as u64);
        self.rest = parts % rate;
        let under_way = &mut self.under_way;
        self.impairment.apply_to_packet(self.free_at + self.delay, frame, &mut |at, frame| {
            under_way.push_back((at, frame))
        });
    }

    /// Returns when the next frame arrives.
    pub(super) fn arrives_at(&self) -> Option<Instant> {
        self.under_way.front().map(|(at, _)| *at)
    }

    /// Returns the next frame that has arrived completely by `now`, without its FCS.
    pub(super) fn receive(&mut self, now: Instant) -> Option<Vec<u8>> {
        while self.arrives_at().is_some_and(|at| at <= now) {
            let (_, mut frame) = self.under_way.pop_front()?;
            if lapb::open(&frame).is_ok() {
                frame.truncate(frame.len() - lapb::FCS_BYTES);
                return Some(frame);
            }
            self.counters.invalid_frames += 1;
        }
        None
    }
}

/// Returns the number of zeros inserted after five ones, least significant bit first.
fn stuffed_bits(frame: &[u8]) -> u64 {
    let (mut ones, mut stuffed) = (0, 0);
    for byte in frame {
        let [zeros, next] = STUFFING[ones][usize::from(*byte)];
        stuffed += u64::from(zeros);
        ones = usize::from(next);
    }
    stuffed
}

/// The number of zeros inserted in an octet, and the octet's number of trailing ones. The table is indexed by
/// the number of ones before the octet, and by the octet.
static STUFFING: [[[u8; 2]; 256]; 5] = {
    let mut table = [[[0; 2]; 256]; 5];
    let mut at = 0;
    while at < 5 * 256 {
        let (before, octet) = (at / 256, at % 256);
        let (mut ones, mut zeros, mut bit) = (before, 0, 0);
        while bit < 8 {
            ones = if octet >> bit & 1 == 0 { 0 } else { ones + 1 };
            if ones == 5 {
                (ones, zeros) = (0, zeros + 1);
            }
            bit += 1;
        }
        table[before][octet] = [zeros, ones as u8];
        at += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zero_is_stuffed_after_five_ones() {
        for (frame, zeros) in [
            (&[][..], 0),
            (&[0x0f, 0x0f], 0),
            (&[0x1f], 1),
            (&[0xff], 1),
            // Ten ones in a row: eight are in the first octet, two in the second.
            (&[0xff, 0x03], 2),
            (&[0xff; 5], 8),
            (&[0xf8, 0x1f, 0x00], 2),
        ] {
            assert_eq!(stuffed_bits(frame), zeros, "{frame:02x?}");
        }
    }

    #[test]
    fn a_frame_takes_its_transmission_time_and_the_next_one_waits() {
        let mut line =
            Serial::new(2_000_000, Duration::from_micros(5), ImpairmentConfig::NONE, SimRng::from_seed(1));
        let frame = vec![0; 97];
        let stuffed = stuffed_bits(&lapb::seal(&frame));
        let took = Duration::from_nanos((800 + stuffed) * 500);
        line.send(frame.clone(), Instant::ZERO);
        assert_eq!(line.takes_at(), Instant::ZERO);
        line.send(frame.clone(), Instant::ZERO);
        assert_eq!(line.takes_at(), Instant::ZERO + took);
        let at = Instant::ZERO + took + Duration::from_micros(5);
        assert_eq!(line.arrives_at(), Some(at));
        assert_eq!(line.receive(Instant::from_nanos(at.as_nanos() - 1)), None);
        assert_eq!(line.receive(at), Some(frame));
    }
}
