//! The lag: the time from the place of the capture to the sender and back.
//!
//! Method           the handshake shows the shortest one: from the SYN-ACK to the ACK, or from the SYN to the
//!                  SYN-ACK. While it varies, because packets wait in a queue, timestamps tell it: a segment
//!                  echoes the timestamp of the newest acknowledgement that its sender had received (RFC 7323
//!                  §4).

use super::connection::{Connection, Packet};
use crate::figures::MILLISECOND;
use kiban_tcpip::wire::tcp::{Flags, Sequence};

/// How many measurements of the lag around an acknowledgement count. The shortest is taken, because others
/// include the time until the sender had something to send.
const LAG_NEIGHBOURS: usize = 8;

/// Returns the shortest times to the server and back, and to the client and back, as the handshake shows
/// them.
pub(super) fn handshake(connection: &Connection) -> Option<(u64, u64)> {
    let (mut syn, mut answer) = (None, None);
    for packet in connection.packets.iter().take(20) {
        match (packet.end, packet.flags.has(Flags::SYN)) {
            // After a retransmission it is not known which of the two was answered.
            (0, true) if syn.is_some() => return None,
            (0, true) => syn = Some(packet.at),
            (1, true) if answer.is_some() => return None,
            (1, true) => answer = Some(packet.at),
            (0, false) => return Some((answer?.checked_sub(syn?)?, packet.at.checked_sub(answer?)?)),
            _ => {}
        }
    }
    None
}

/// Returns measurements of the lag by timestamps: the time of an acknowledgement, and the time from it to the
/// first segment that echoes it.
pub(super) fn samples(packets: &[Packet], sender: usize) -> Vec<(u64, u64)> {
    let mut samples: Vec<(u64, u64)> = Vec::new();
    // The first packet of each timestamp of the receiver that has not been echoed yet.
    let mut stamps: Vec<(u32, u64)> = Vec::new();
    let mut last_sent = None;
    for packet in packets {
        let Some(stamp) = packet.timestamps else { continue };
        if packet.end != sender {
            if stamps.last().is_none_or(|(value, _)| (stamp.value.wrapping_sub(*value) as i32) > 0) {
                stamps.push((stamp.value, packet.at));
            }
            continue;
        }
        let gap = last_sent.map_or(0, |last| packet.at - last);
        last_sent = Some(packet.at);
        let Some((oldest, _)) = stamps.first().copied() else { continue };
        let age = |value: u32| value.wrapping_sub(oldest) as i32;
        let index = stamps.partition_point(|(value, _)| age(*value) < age(stamp.echo));
        let Some((_, echoed)) = stamps.get(index).copied().filter(|(value, _)| *value == stamp.echo) else {
            continue;
        };
        let lag = packet.at - echoed;
        stamps.drain(..=index);
        // A sender that had nothing to send echoes an old timestamp. While packets queue, gaps are short.
        if packet.bytes > 0 && gap <= lag / 2 + 2 * MILLISECOND {
            samples.push((echoed, lag));
        }
    }
    samples
}

/// Returns the shortest time from data of the peer to the first packet of the sender that acknowledges them,
/// which the time to the sender and back cannot exceed.
pub(super) fn answered(packets: &[Packet], sender: usize) -> Option<u64> {
    // The last data that were not repeated, and when; what was sent twice is not measured (RFC 6298 §3).
    let (mut highest, mut waiting) = (None::<Sequence>, None::<(Sequence, u64)>);
    let mut shortest = None;
    for packet in packets {
        if packet.end == sender {
            let is_for = |(end, _): &mut (Sequence, u64)| end.le(packet.acknowledgment);
            if let Some((_, at)) = waiting.take_if(is_for) {
                let time = packet.at - at;
                shortest = Some(shortest.map_or(time, |shortest: u64| shortest.min(time)));
            }
        } else if packet.bytes > 0 {
            let end = packet.sequence + packet.bytes;
            if highest.is_some_and(|highest| !highest.le(packet.sequence)) {
                waiting = None;
            } else {
                (highest, waiting) = (Some(end), Some((end, packet.at)));
            }
        }
    }
    shortest
}

/// Returns the lag at a time: the shortest of the measurements around it, at least `least`.
pub(super) fn around(samples: &[(u64, u64)], at: u64, least: u64) -> u64 {
    let place = samples.partition_point(|(echoed, _)| *echoed < at);
    let from = place.saturating_sub(LAG_NEIGHBOURS / 2);
    let to = (place + LAG_NEIGHBOURS / 2).min(samples.len());
    let around = samples[from..to].iter();
    // A measurement that is seconds away does not count.
    let close = around.filter(|(echoed, lag)| echoed.abs_diff(at) <= 2 * lag + 100 * MILLISECOND);
    close.map(|(_, lag)| *lag).min().map_or(least, |lag| lag.max(least))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiban_tcpip::wire::tcp::{SackBlocks, Timestamps};

    /// Returns a packet of an end: its time, ms, its payload, and its timestamps.
    fn packet(end: usize, at: u64, bytes: u32, value: u32, echo: u32) -> Packet {
        Packet {
            number: 1,
            at: at * MILLISECOND,
            end,
            sequence: Sequence(1),
            acknowledgment: Sequence(1),
            flags: Flags::ACK,
            window: 1000,
            bytes,
            timestamps: Some(Timestamps { value, echo }),
            sack: SackBlocks::new(),
            identification: 0,
        }
    }

    /// RFC 7323 §4: a server that answers after four seconds echoes the timestamp of the request.
    #[test]
    fn the_time_to_answer_is_no_time_on_the_path() {
        let handshake = [packet(0, 0, 0, 100, 0), packet(1, 20, 0, 500, 100), packet(0, 20, 100, 101, 500)];
        let acknowledged = packet(1, 40, 0, 501, 101);
        let answer = [packet(1, 4040, 1448, 4500, 101), packet(1, 4041, 1448, 4500, 101)];
        // With an acknowledgement of the request before the answer, and without one.
        for before in [&[acknowledged][..], &[]] {
            let packets = [&handshake[..], before, &answer].concat();
            assert_eq!(samples(&packets, 1), [], "{before:?}");
        }
        // The acknowledgement of the first segments releases others at once, which measure the path.
        let more = [packet(0, 4041, 0, 4121, 4500), packet(1, 4052, 1448, 4512, 101)];
        let released = packet(1, 4061, 1448, 4520, 4121);
        let packets = [&handshake[..], &[acknowledged], &answer, &more, &[released]].concat();
        assert_eq!(samples(&packets, 1), [(4041 * MILLISECOND, 20 * MILLISECOND)]);
    }
}
