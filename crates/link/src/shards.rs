//! The rings between the shards of a board, each driven by a thread of its own.
//!
//! Ring             each shard has one, a bounded queue of the standard library: the others add parcels and
//!                  the shard's driver takes them, without a lock.
//! Wake-up          a driver that has passed on parcels wakes the shard that gets them, which costs a system
//!                  call only if that shard sleeps.
//! Full ring        parcels are dropped and counted, as in a full port queue. Only changes of addresses and
//!                  routes, which are few, and packets for ATM ports, which have credits, wait and are
//!                  offered again.

use kiban_board::Parcel;
use kiban_os::{WaitSet, Waker};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

/// Number of parcels that a ring holds.
const RING_PARCELS: usize = 1024;
/// Number of parcels that a driver takes in one turn.
const PARCELS_PER_TURN: usize = 2 * crate::BURST;
/// When changes that found a full ring are offered again.
pub(crate) const RETRY: Duration = Duration::from_millis(1);

/// One shard's side of the rings. [`Driver::of_shard`](crate::Driver::of_shard) takes it.
pub struct ShardRings {
    pub(crate) wait_set: Arc<WaitSet>,
    inbox: Receiver<Parcel>,
    /// The sending sides of the shards' rings; `None` at the shard's own number.
    outboxes: Vec<Option<Outbox>>,
    arrived: VecDeque<Parcel>,
    dropped: u64,
}

/// The sending side of a ring; a bounded queue of the standard library.
struct Outbox {
    ring: SyncSender<Parcel>,
    waker: Waker,
    /// Parcels that must arrive and found a full ring.
    waiting: VecDeque<Parcel>,
    /// Whether parcels were added since the shard was last woken.
    is_new: bool,
}

impl ShardRings {
    /// Returns the sides of the rings between `shards` shards.
    ///
    /// # Errors
    /// The process has too many open files.
    pub fn between(shards: usize) -> io::Result<Vec<ShardRings>> {
        let sets: Vec<Arc<WaitSet>> = (0..shards).map(|_| WaitSet::new()).collect::<io::Result<_>>()?;
        let (rings, inboxes): (Vec<SyncSender<Parcel>>, Vec<Receiver<Parcel>>) =
            (0..shards).map(|_| sync_channel(RING_PARCELS)).unzip();
        let way = |own: usize, to: usize| {
            (own != to).then(|| Outbox {
                ring: rings[to].clone(),
                waker: WaitSet::waker(&sets[to]),
                waiting: VecDeque::new(),
                is_new: false,
            })
        };
        let side = |(own, inbox): (usize, Receiver<Parcel>)| ShardRings {
            wait_set: sets[own].clone(),
            inbox,
            outboxes: (0..shards).map(|to| way(own, to)).collect(),
            arrived: VecDeque::new(),
            dropped: 0,
        };
        Ok(inboxes.into_iter().enumerate().map(side).collect())
    }

    /// Returns a handle that wakes the shard's driver.
    pub fn waker(&self) -> Waker {
        WaitSet::waker(&self.wait_set)
    }

    /// Takes the parcels that have arrived.
    pub(crate) fn take(&mut self) -> &mut VecDeque<Parcel> {
        self.arrived.extend(self.inbox.try_iter().take(PARCELS_PER_TURN));
        &mut self.arrived
    }

    /// Passes a parcel to another shard; call [`ShardRings::wake`] after the last one.
    pub(crate) fn pass(&mut self, to: usize, parcel: Parcel) {
        let Some(Some(outbox)) = self.outboxes.get_mut(to) else { return };
        outbox.is_new = true;
        if parcel.must_arrive() && !outbox.waiting.is_empty() {
            return outbox.waiting.push_back(parcel);
        }
        match outbox.ring.try_send(parcel) {
            Ok(()) => {}
            Err(TrySendError::Full(parcel)) if parcel.must_arrive() => outbox.waiting.push_back(parcel),
            // A shard that has ended takes nothing.
            Err(_) => self.dropped += 1,
        }
    }

    /// Offers parcels that found a full ring again, and wakes the shards that have got parcels.
    pub(crate) fn wake(&mut self) {
        for outbox in self.outboxes.iter_mut().flatten() {
            while let Some(parcel) = outbox.waiting.pop_front() {
                outbox.is_new = true;
                if let Err(TrySendError::Full(parcel)) = outbox.ring.try_send(parcel) {
                    outbox.waiting.push_front(parcel);
                    break;
                }
            }
            if std::mem::take(&mut outbox.is_new) {
                outbox.waker.wake();
            }
        }
    }

    /// Returns whether parcels wait for room in a ring.
    pub(crate) fn has_waiting(&self) -> bool {
        self.outboxes.iter().flatten().any(|outbox| !outbox.waiting.is_empty())
    }

    /// Returns the number of packets and messages dropped because a ring was full.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiban_base::Instant;
    use kiban_base::ethernet::Mac;
    use kiban_board::{
        Board, BoardConfig, EthernetPortConfig, Input, Output, PortConfig, ShardConfig, Steering,
    };
    use kiban_os::random;
    use kiban_tcpip::ethernet::LinkConfig;
    use kiban_tcpip::ip::Prefix;
    use std::net::{IpAddr, SocketAddr};

    /// Returns questions of shard 1 to shard 0, each about another neighbour.
    fn questions(count: usize) -> Vec<Parcel> {
        let mut link = LinkConfig::new(Mac([2, 0, 0, 0, 0, 1]));
        let own = IpAddr::from([10, 0, 0, 1]);
        link.addresses = vec![(own, Prefix::new(own, 8))];
        let shard = ShardConfig { number: 1, steering: Steering::new(2, random::key().expect("a key")) };
        let ports = vec![PortConfig::Ethernet(EthernetPortConfig::on(link))];
        let config = BoardConfig { ports, shard: Some(shard), ..BoardConfig::default() };
        let mut board = Board::new(&config, random::key().expect("a key"));
        for n in 0..count {
            let remote = SocketAddr::from(([10, 1, (n / 200) as u8, 1 + (n % 200) as u8], 80));
            board.host().open(remote).expect("there is a route");
            board.handle(Input::Timeout, Instant::ZERO);
            while !matches!(board.poll(), Output::Idle { .. }) {}
        }
        std::iter::from_fn(|| board.parcel()).map(|(_, parcel)| parcel).collect()
    }

    #[test]
    fn questions_that_find_a_full_ring_are_dropped_and_counted() {
        let mut rings = ShardRings::between(2).expect("files");
        let questions = questions(RING_PARCELS + 10);
        assert_eq!(questions.len(), RING_PARCELS + 10);
        for parcel in questions {
            rings[1].pass(0, parcel);
        }
        rings[1].wake();
        assert!(!rings[1].has_waiting());
        assert_eq!(rings[1].dropped(), 10);
    }
}
