//! Explicit congestion notification at a queue (RFC 3168): marks packets instead of dropping them.
//!
//! Marking   as RED does: never up to `kmin_frames` waiting frames, with a probability that grows linearly to
//!           `pmax` at `kmax_frames`, and always above. Equal thresholds make a step, as DCTCP uses it.
//! Limits    the queue's length counts, not its average. Packets that are not capable of ECN are not marked
//!           and not dropped.

use kiban_base::SimRng;
use kiban_base::ethernet::{HEADER_BYTES, Header};
use kiban_base::numbers::ether_type;

/// When a queue marks packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EcnConfig {
    /// Up to this number of waiting frames, none is marked.
    pub kmin_frames: usize,
    /// Above this number of waiting frames, all are marked.
    pub kmax_frames: usize,
    /// The probability of a mark at `kmax_frames`.
    pub pmax: f64,
}

impl EcnConfig {
    /// Returns a step: all packets that find more than `frames` waiting are marked.
    pub fn step(frames: usize) -> EcnConfig {
        EcnConfig { kmin_frames: frames, kmax_frames: frames, pmax: 1.0 }
    }

    /// Decides whether a packet that finds `waiting` frames is marked.
    pub(super) fn marks(&self, waiting: usize, rng: &mut SimRng) -> bool {
        let EcnConfig { kmin_frames, kmax_frames, pmax } = *self;
        if waiting <= kmin_frames {
            return false;
        }
        waiting > kmax_frames
            || rng.happens(pmax * (waiting - kmin_frames) as f64 / (kmax_frames - kmin_frames) as f64)
    }
}

/// Returns the traffic class of the IP packet in a frame, if there is one.
pub(super) fn traffic_class(frame: &[u8]) -> Option<u8> {
    let (header, _) = Header::read(frame).ok()?;
    match (header.ether_type, frame.get(HEADER_BYTES..)?) {
        (ether_type::IPV4, [_, class, ..]) => Some(*class),
        (ether_type::IPV6, [first, second, ..]) => Some(first << 4 | second >> 4),
        _ => None,
    }
}

/// Marks the packet in a frame, if it is capable of ECN. Returns whether it is.
pub(super) fn mark(frame: &mut [u8]) -> bool {
    let Some(class) = traffic_class(frame) else { return false };
    mark_packet(&mut frame[HEADER_BYTES..], class)
}

/// Marks an IP packet without a frame, if it is capable of ECN. Returns whether it is.
pub(super) fn mark_bare(packet: &mut [u8]) -> bool {
    let class = match *packet {
        [first, second, ..] if first >> 4 == 6 => first << 4 | second >> 4,
        [first, class, ..] if first >> 4 == 4 => class,
        _ => return false,
    };
    mark_packet(packet, class)
}

fn mark_packet(packet: &mut [u8], class: u8) -> bool {
    let is_capable = class & 0b11 != 0;
    if is_capable && packet[0] >> 4 == 6 {
        packet[1] |= 0b11 << 4;
    } else if is_capable && packet.len() >= 12 {
        let word = |packet: &[u8], at: usize| u32::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
        let before = word(packet, 0);
        packet[1] |= 0b11;
        // RFC 1624 §3: the new checksum from the old one and the word that has changed.
        let sum = (!word(packet, 10) & 0xffff) + (!before & 0xffff) + word(packet, 0);
        let folded = (sum & 0xffff) + (sum >> 16);
        let folded = (folded & 0xffff) + (folded >> 16);
        packet[10..12].copy_from_slice(&(!folded as u16).to_be_bytes());
    }
    is_capable
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiban_base::ethernet::Mac;
    use kiban_tcpip::wire::{ipv4, ipv6};

    fn frame(ether_type: u16, write: impl FnOnce(&mut [u8]) -> usize) -> Vec<u8> {
        let mut frame = vec![0; 60];
        Header { target: Mac([2; 6]), source: Mac([4; 6]), ether_type }.write(&mut frame);
        write(&mut frame[HEADER_BYTES..]);
        frame
    }

    #[test]
    fn a_mark_changes_the_code_point_and_keeps_the_checksum_right() {
        for class in 0..=255u8 {
            let header = ipv4::Header {
                traffic_class: class,
                total_bytes: 46,
                identification: class.into(),
                dont_fragment: true,
                more_fragments: false,
                fragment_offset_bytes: 0,
                time_to_live: 64,
                protocol: 17,
                source: [10, 0, 0, class].into(),
                target: [10, 0, 0, 2].into(),
                options: &[],
            };
            let mut four = frame(ether_type::IPV4, |bytes| header.write(bytes));
            let header = ipv6::Header {
                traffic_class: class,
                flow_label: 0xabcde,
                payload_bytes: 6,
                next_header: 17,
                hop_limit: 1,
                source: [7; 16].into(),
                target: [9; 16].into(),
            };
            let mut six = frame(ether_type::IPV6, |bytes| header.write(bytes));
            let is_capable = class & 3 != 0;
            let expected = if is_capable { class | 3 } else { class };
            assert_eq!((mark(&mut four), mark(&mut six)), (is_capable, is_capable));
            let (four, six) = (&four[HEADER_BYTES..], &six[HEADER_BYTES..]);
            assert_eq!(ipv4::Header::read(four).expect("valid").0.traffic_class, expected);
            assert!(ipv4::verify(&four[..20]).is_ok(), "class {class}");
            let (read, _) = ipv6::Header::read(six).expect("valid");
            assert_eq!((read.traffic_class, read.flow_label), (expected, 0xabcde));
        }
    }

    #[test]
    fn the_probability_grows_between_the_thresholds() {
        let red = EcnConfig { kmin_frames: 10, kmax_frames: 20, pmax: 0.5 };
        let mut rng = SimRng::from_seed(1);
        let mut rate = |waiting| (0..10_000).filter(|_| red.marks(waiting, &mut rng)).count();
        assert_eq!((rate(0), rate(10), rate(21)), (0, 0, 10_000));
        assert!((2300..2700).contains(&rate(15)) && (4800..5200).contains(&rate(20)));
        let step = EcnConfig::step(5);
        assert_eq!((step.marks(5, &mut rng), step.marks(6, &mut rng)), (false, true));
    }
}
