//! A learning bridge: records which member port leads to each station (IEEE 802.1D §7.7 to §7.9).
//!
//! Purpose          forward a frame to the member where its destination was last seen; flood frames to group
//!                  addresses and to unknown stations.
//! Learning         the source of every frame is remembered for [`STATION_TIMEOUT`]. A station that has moved
//!                  is learned from its next frame.
//! Filtering        drop frames whose destination is on the side they came from, and frames for the bridge
//!                  itself (01-80-C2-00-00-01 to -0F, §7.12.6).
//! Limits           the table holds [`STATIONS_MAX`] stations; frames for any others are flooded.
//! Not implemented  the spanning tree; its frames (01-80-C2-00-00-00) are flooded, so that neighbouring
//!                  bridges detect loops.

use alloc::collections::BTreeMap;
use core::time::Duration;
use kiban_base::Instant;
use kiban_base::ethernet::Mac;

/// Ageing time: how long an entry lives after the station's last frame (IEEE 802.1D table 7-5).
pub const STATION_TIMEOUT: Duration = Duration::from_secs(300);
/// Maximum number of stations in the table.
pub const STATIONS_MAX: usize = 4096;

/// Where to forward a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forward {
    /// To one member.
    To(usize),
    /// Forward to all members except the one from which the frame came.
    All,
    /// To no member.
    Nowhere,
}

/// The station table of a bridge. Members are identified by number.
#[derive(Debug, Default)]
pub struct Bridge {
    stations: BTreeMap<[u8; 6], (usize, Instant)>,
}

impl Bridge {
    /// Creates a bridge with an empty table.
    pub fn new() -> Bridge {
        Bridge::default()
    }

    /// Processes a frame from member `from`, and returns where to forward it.
    pub fn on_frame(&mut self, from: usize, source: Mac, target: Mac, now: Instant) -> Forward {
        if !source.is_group() {
            self.learn(source, from, now);
        }
        if let Mac([0x01, 0x80, 0xc2, 0, 0, 1..=0x0f]) = target {
            return Forward::Nowhere;
        }
        if target.is_group() {
            return Forward::All;
        }
        // IEEE 802.1D §7.9.2: an aged entry neither forwards nor filters. It is removed when its slot is
        // needed.
        match self.stations.get(&target.0).filter(|(_, seen)| now.since(*seen) < STATION_TIMEOUT) {
            Some((member, _)) if *member == from => Forward::Nowhere,
            Some((member, _)) => Forward::To(*member),
            None => Forward::All,
        }
    }

    fn learn(&mut self, station: Mac, member: usize, now: Instant) {
        if self.stations.len() >= STATIONS_MAX && !self.stations.contains_key(&station.0) {
            self.stations.retain(|_, (_, seen)| now.since(*seen) < STATION_TIMEOUT);
            if self.stations.len() >= STATIONS_MAX {
                return;
            }
        }
        self.stations.insert(station.0, (member, now));
    }

    /// Returns the number of stations in the table.
    pub fn stations(&self) -> usize {
        self.stations.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mac(last: u8) -> Mac {
        Mac([2, 0, 0, 0, 0, last])
    }

    #[test]
    fn frames_are_forwarded_to_the_port_of_their_target() {
        let mut bridge = Bridge::new();
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let pause = Mac([0x01, 0x80, 0xc2, 0, 0, 1]);
        let spanning_tree = Mac([0x01, 0x80, 0xc2, 0, 0, 0]);
        // Columns: time, member, source, destination, expected decision.
        let talk = [
            (0, 0, mac(1), mac(2), Forward::All),
            (1, 1, mac(2), mac(1), Forward::To(0)),
            (2, 0, mac(1), mac(2), Forward::To(1)),
            (3, 0, mac(3), mac(1), Forward::Nowhere),
            (4, 2, mac(1), Mac::BROADCAST, Forward::All),
            // The station has moved.
            (5, 1, mac(2), mac(1), Forward::To(2)),
            (6, 0, mac(3), pause, Forward::Nowhere),
            (7, 0, mac(3), spanning_tree, Forward::All),
            (304, 0, mac(3), mac(2), Forward::To(1)),
            (305, 0, mac(3), mac(2), Forward::All),
            // A group address is never learned as a station.
            (306, 0, Mac::BROADCAST, mac(3), Forward::Nowhere),
        ];
        for (seconds, from, source, target, expected) in talk {
            assert_eq!(bridge.on_frame(from, source, target, at(seconds)), expected, "at {seconds} s");
        }
        assert_eq!(bridge.stations(), 3);
    }

    #[test]
    fn an_aged_entry_neither_forwards_nor_filters() {
        let mut bridge = Bridge::new();
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        bridge.on_frame(1, mac(2), Mac::BROADCAST, at(0));
        assert_eq!(bridge.on_frame(1, mac(3), mac(2), at(299)), Forward::Nowhere, "its own side");
        // The station has moved and has sent nothing since, so a frame from its old side must still reach it.
        assert_eq!(bridge.on_frame(1, mac(3), mac(2), at(300)), Forward::All);
        assert_eq!(bridge.on_frame(2, mac(2), mac(3), at(301)), Forward::To(1));
        assert_eq!(bridge.on_frame(1, mac(3), mac(2), at(302)), Forward::To(2));
    }

    #[test]
    fn the_station_table_is_bounded_and_reuses_aged_entries() {
        let mut bridge = Bridge::new();
        let station = |number: u32| {
            let [_, b, c, d] = number.to_be_bytes();
            Mac([2, 0, 0, b, c, d])
        };
        for number in 0..10_000 {
            bridge.on_frame(0, station(number), Mac::BROADCAST, Instant::ZERO);
        }
        assert_eq!(bridge.stations(), STATIONS_MAX);
        let later = Instant::ZERO + STATION_TIMEOUT;
        bridge.on_frame(1, station(20_000), Mac::BROADCAST, later);
        assert_eq!(bridge.stations(), 1);
        assert_eq!(bridge.on_frame(0, station(1), station(20_000), later), Forward::To(1));
    }
}
