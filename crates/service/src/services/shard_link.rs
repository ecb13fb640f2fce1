//! How the parts of one service on the shards of a board pass work to each other.
//!
//! Queue    each part has one, without a lock (a channel of the standard library). The sender wakes the
//!          driver of the other shard, which costs a system call only if that sleeps. Work that one part
//!          sends to several others directly or through others arrives everywhere in the order of causes.
//! Limits   the queue itself has none, because work that changes the state of all parts must not be lost. A
//!          part that passes on what clients request first checks [`ShardLink::has_room`].

use kiban_board::Steering;
use kiban_os::Waker;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

/// Requests of clients are passed on while fewer items than this wait in a queue.
const WAITING_MAX: usize = 1024;
/// The maximum number of items taken in one turn.
pub(super) const ITEMS_PER_TURN: usize = 64;

/// One part's side: its own queue, and ways into those of the others.
pub(super) struct ShardLink<T> {
    number: usize,
    steering: Steering,
    inbox: Receiver<T>,
    outboxes: Vec<Outbox<T>>,
}

/// The way into the queue of one part.
struct Outbox<T> {
    queue: Sender<T>,
    /// The number of items in the queue.
    waiting: Arc<AtomicUsize>,
    /// Wakes the driver of the part's shard.
    waker: Waker,
}

impl<T> ShardLink<T> {
    /// Returns the links of the parts of a service; `wakers` are those of the shards' drivers.
    pub(super) fn between(steering: Steering, wakers: &[Waker]) -> Vec<ShardLink<T>> {
        let (queues, inboxes): (Vec<Sender<T>>, Vec<Receiver<T>>) = wakers.iter().map(|_| channel()).unzip();
        let waiting: Vec<Arc<AtomicUsize>> = wakers.iter().map(|_| Arc::default()).collect();
        let outboxes = || {
            let ways = queues.iter().zip(&waiting).zip(wakers);
            ways.map(|((queue, waiting), waker)| Outbox {
                queue: queue.clone(),
                waiting: waiting.clone(),
                waker: waker.clone(),
            })
        };
        let link = |(number, inbox)| ShardLink { number, steering, inbox, outboxes: outboxes().collect() };
        inboxes.into_iter().enumerate().map(link).collect()
    }

    /// Returns the number of the part's shard.
    pub(super) fn number(&self) -> usize {
        self.number
    }

    /// Returns the number of parts.
    pub(super) fn parts(&self) -> usize {
        self.outboxes.len()
    }

    /// Returns how flows find their shards.
    pub(super) fn steering(&self) -> &Steering {
        &self.steering
    }

    /// Returns whether a part's queue takes another request of a client.
    pub(super) fn has_room(&self, part: usize) -> bool {
        self.outboxes[part].waiting.load(Ordering::Relaxed) < WAITING_MAX
    }

    /// Passes an item to another part. Drops it if that part has ended.
    pub(super) fn pass(&self, part: usize, item: T) {
        let Outbox { queue, waiting, waker } = &self.outboxes[part];
        waiting.fetch_add(1, Ordering::Release);
        if queue.send(item).is_ok() {
            waker.wake();
        }
    }

    /// Passes an item to all other parts.
    pub(super) fn pass_to_all(&self, make: impl Fn() -> T) {
        (0..self.parts()).filter(|part| *part != self.number).for_each(|part| self.pass(part, make()));
    }

    /// Returns whether items wait for this part.
    pub(super) fn has_waiting(&self) -> bool {
        self.outboxes[self.number].waiting.load(Ordering::Acquire) > 0
    }

    /// Takes the next item.
    pub(super) fn take(&self) -> Option<T> {
        let item = self.inbox.try_recv().ok()?;
        self.outboxes[self.number].waiting.fetch_sub(1, Ordering::Relaxed);
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiban_base::RngKey;
    use kiban_os::WaitSet;

    #[expect(clippy::disallowed_methods, reason = "no packet is steered")]
    fn links(parts: usize) -> Vec<ShardLink<u32>> {
        let sets: Vec<_> = (0..parts).map(|_| WaitSet::new().expect("a file")).collect();
        let wakers: Vec<Waker> = sets.iter().map(WaitSet::waker).collect();
        ShardLink::between(Steering::new(parts, RngKey::for_simulation(1)), &wakers)
    }

    #[test]
    fn items_arrive_in_the_order_of_causes() {
        let links = links(3);
        links[0].pass_to_all(|| 1);
        // What part 1 passes on, it got later.
        links[0].pass(1, 2);
        assert!(!links[0].has_waiting() && links[1].has_waiting() && links[2].has_waiting());
        assert_eq!(links[1].take(), Some(1));
        links[1].pass(2, links[1].take().expect("the second"));
        assert_eq!([links[2].take(), links[2].take(), links[2].take()], [Some(1), Some(2), None]);
        assert!(!links[1].has_waiting() && !links[2].has_waiting());
    }

    #[test]
    fn requests_are_limited_and_other_items_are_not() {
        let links = links(2);
        (0..WAITING_MAX as u32).for_each(|n| links[0].pass(1, n));
        assert!(!links[0].has_room(1) && links[0].has_room(0));
        links[0].pass(1, u32::MAX);
        assert_eq!(links[1].take(), Some(0));
        assert!(!links[0].has_room(1), "one too many");
        assert_eq!(links[1].take(), Some(1));
        assert!(links[0].has_room(1));
    }

    #[test]
    fn items_for_a_part_that_has_ended_are_dropped() {
        let mut links = links(2);
        drop(links.pop());
        links[0].pass(1, 1);
        assert!(!links[0].has_waiting());
    }
}
