//! What the flows to one peer have in flight together.
//!
//! Purpose   many flows between two hosts share one path. A flow that begins takes its share of the initial
//!           window, and flows whose windows are below one frame take turns within the sum of the windows.
//!           Pacing each by itself would put a frame of every flow on the path at once.
//! Turns     a flow that must wait is queued, and is scheduled once the path has room.
//! Limits    a path to a peer ends with its last flow; its state is not kept for the next one.

use super::host::Peer;
use alloc::collections::{BTreeMap, VecDeque};
use core::time::Duration;
use kiban_base::Slab;

/// What a path carries: the number of its flows, their frames in flight, and the sum of their windows.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct PathLoad {
    pub(super) flows: u32,
    pub(super) in_flight: u32,
    pub(super) window: f64,
    /// The shortest round trip of a connection request.
    pub(super) short_trip: Option<Duration>,
}

#[derive(Debug)]
struct Path {
    peer: Peer,
    load: PathLoad,
    /// Flows that wait for room.
    blocked: VecDeque<u32>,
}

/// The paths of an endpoint.
#[derive(Debug)]
pub(super) struct Paths {
    of_peer: BTreeMap<Peer, u32>,
    paths: Slab<Path>,
}

impl Paths {
    /// Creates paths for at most `flows_max` flows. `seed` varies their numbers.
    pub(super) fn new(flows_max: usize, seed: u32) -> Paths {
        Paths { of_peer: BTreeMap::new(), paths: Slab::new(flows_max, seed) }
    }

    /// Adds a flow to the path to `peer`. Returns the path's number.
    pub(super) fn join(&mut self, peer: Peer) -> Option<u32> {
        let number = match self.of_peer.get(&peer) {
            Some(&number) => number,
            None => {
                let path = Path { peer, load: PathLoad::default(), blocked: VecDeque::new() };
                let number = self.paths.insert(path)?;
                self.of_peer.insert(peer, number);
                number
            }
        };
        self.paths.get_mut(number)?.load.flows += 1;
        Some(number)
    }

    /// Removes a flow, after its load has been set to zero.
    pub(super) fn leave(&mut self, number: u32) {
        let Some(path) = self.paths.get_mut(number) else { return };
        path.load.flows -= 1;
        if path.load.flows == 0 {
            self.of_peer.remove(&path.peer);
            self.paths.remove(number);
        }
    }

    #[inline]
    pub(super) fn load(&self, number: u32) -> PathLoad {
        self.paths.get(number).map_or(PathLoad::default(), |path| path.load)
    }

    /// Replaces what one flow contributes to a path: its frames in flight, and its window.
    #[inline]
    pub(super) fn update(&mut self, number: u32, before: (u32, f64), after: (u32, f64)) {
        let Some(path) = self.paths.get_mut(number) else { return };
        path.load.in_flight = path.load.in_flight + after.0 - before.0;
        path.load.window += after.1 - before.1;
    }

    /// Records the round trip of a connection request.
    pub(super) fn on_short_trip(&mut self, number: u32, trip: Duration) {
        if let Some(path) = self.paths.get_mut(number) {
            path.load.short_trip = Some(path.load.short_trip.map_or(trip, |known| known.min(trip)));
        }
    }

    /// Queues a flow that waits for room.
    pub(super) fn block(&mut self, number: u32, flow: u32) {
        if let Some(path) = self.paths.get_mut(number) {
            path.blocked.push_back(flow);
        }
    }

    /// Returns the next flow that has waited for room, if there is room now.
    #[inline]
    pub(super) fn next_unblocked(&mut self, number: u32) -> Option<u32> {
        let path = self.paths.get_mut(number)?;
        if path.blocked.is_empty() || !path.load.has_room() {
            return None;
        }
        path.blocked.pop_front()
    }
}

impl PathLoad {
    /// Returns whether flows with windows below one frame take turns.
    #[inline]
    pub(super) fn is_shared(&self) -> bool {
        self.flows > 1 && self.window >= 1.0
    }

    /// Returns whether one more frame is within the sum of the windows. A path with a smaller sum is paced
    /// flow by flow.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        !self.is_shared() || f64::from(self.in_flight) + 1.0 <= self.window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_lasts_as_long_as_its_flows_and_lets_them_take_turns() {
        let mut paths = Paths::new(8, 1);
        let path = paths.join(Peer(1)).expect("room");
        assert_eq!(paths.join(Peer(1)), Some(path));
        assert_ne!(paths.join(Peer(2)), Some(path));
        paths.update(path, (0, 0.0), (1, 0.75));
        assert!(!paths.load(path).is_shared(), "less than one frame in all");
        paths.update(path, (0, 0.0), (0, 0.75));
        assert_eq!(paths.load(path), PathLoad { flows: 2, in_flight: 1, window: 1.5, short_trip: None });
        paths.block(path, 77);
        assert_eq!(paths.next_unblocked(path), None, "one frame of 1.5 is in flight");
        paths.update(path, (1, 0.75), (0, 0.75));
        assert_eq!((paths.next_unblocked(path), paths.next_unblocked(path)), (Some(77), None));
        paths.update(path, (0, 0.75), (0, 0.0));
        paths.leave(path);
        paths.leave(path);
        assert_eq!(paths.load(path), PathLoad::default());
        assert_ne!(paths.join(Peer(1)), Some(path), "it is a new path");
    }
}
