//! Infers a standing queue behind which a capture was made, if no timestamps show how long packets waited. It
//! is not a verdict, only a note that the capture cannot show the queue.
//!
//! Method           behind a queue, segments come at the rate of its link whether it holds one packet or a
//!                  thousand. But as long as they come at this rate without a break, nothing comes faster,
//!                  and none is lost, the sender enlarges its congestion window, by a segment per round trip
//!                  at least (RFC 5681 §3.1, RFC 9438 §4.3), and all that exceeds the path is in the queue:
//!
//! ```text
//! dq/dt = packet_time / (shortest + q)        q(t) = sqrt(shortest^2 + 2 * packet_time * t) - shortest
//! ```
//!
//! Bounds           that is the least delay; slow start fills the queue much sooner. The most is the receive
//!                  window divided by the rate.
//! Look-alikes      a sender that paces itself sends its first flight faster than the rest; one whose
//!                  Ethernet port is the narrowest link sends faster than [`PACKET_TIME_MIN`].
//! Limits           a sender that keeps queues short by itself (BBR, LEDBAT), or whose send buffer is little
//!                  larger than the path, is taken for one that does not.

use super::timeline::Timeline;
use super::waits::Account;
use crate::figures::MILLISECOND;

/// The time of a full segment on a link that no Ethernet port is slow enough for: 48 Mbit/s.
const PACKET_TIME_MIN: u64 = MILLISECOND / 4;
/// The number of segments in which a break shows, and how much longer than at the rate of the link they take.
const RUN: usize = 20;
const BREAK_PERCENT: u64 = 115;
/// How much faster than at the rate of the link segments come at times, because captures are not exact.
const FASTER_PERCENT: u64 = 95;
/// The first flight of most senders (RFC 6928).
const FIRST_FLIGHT: usize = 10;

/// Returns the least delay, ns, of the queue before the place of the capture, if the sender's window grows as
/// assumed.
pub(crate) fn find(timeline: &Timeline, account: &Account) -> Option<u64> {
    // Until the first loss.
    let end = account.losses.iter().map(|loss| loss.send).min();
    let sends = &timeline.sends[..end.unwrap_or(timeline.sends.len())];
    let packet_time = timeline.packet_time(50);
    if timeline.knows_load() || packet_time < PACKET_TIME_MIN || sends.len() < RUN {
        return None;
    }
    // Not an exchange of messages, which follow each other at a steady pace as well.
    let full = sends.iter().filter(|send| send.bytes() >= timeline.mss).count();
    if full * 10 < sends.len() * 9 {
        return None;
    }
    let at_rate = |from: usize, to: usize| {
        (sends[to].end - sends[from].end).max(0) as u64 * packet_time / timeline.mss as u64
    };
    let first = at_rate(0, FIRST_FLIGHT);
    if (sends[FIRST_FLIGHT].at - sends[0].at) * 100 < first * FASTER_PERCENT
        || timeline.packet_time(5) * 100 < packet_time * FASTER_PERCENT
    {
        return None;
    }
    // The longest time without a break.
    let (mut begin, mut busy) = (0, 0);
    for to in RUN..sends.len() {
        let from = to - RUN;
        let limit = at_rate(from, to) * BREAK_PERCENT / 100 + 2 * MILLISECOND;
        if sends[to].at - sends[from].at > limit {
            begin = to;
        }
        busy = busy.max(sends[to].at - sends[begin].at);
    }
    let shortest = timeline.shortest_round_trip();
    let (trip, pace) = (shortest as f64, packet_time as f64);
    let grown = (trip * trip + 2.0 * pace * busy as f64).sqrt() - trip;
    let most = (account.window_max as f64 / timeline.mss as f64 * pace - trip).max(0.0);
    Some(grown.min(most) as u64)
}
