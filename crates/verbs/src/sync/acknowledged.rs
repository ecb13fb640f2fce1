//! Counts the events that have been delivered to the program but not acknowledged.
//!
//! Purpose   an object's destruction waits until all its events are acknowledged (ibv_destroy_cq(3),
//!           ibv_ack_cq_events(3)).
//! Ordering  an event is counted while its channel is locked, so that at any time it is either in the
//!           channel or counted.

use core::ffi::c_uint;
use kiban_os::lock;
use std::sync::{Condvar, Mutex};

/// The events of one object.
#[derive(Default)]
pub(crate) struct Acknowledged {
    open: Mutex<i64>,
    all: Condvar,
}

impl Acknowledged {
    /// Counts an event delivered to the program.
    pub(crate) fn deliver(&self) {
        *lock(&self.open) += 1;
    }

    /// Counts events that the program has acknowledged.
    pub(crate) fn acknowledge(&self, count: c_uint) {
        *lock(&self.open) -= i64::from(count);
        self.all.notify_all();
    }

    /// Waits until all delivered events are acknowledged.
    pub(crate) fn wait(&self) {
        let open = lock(&self.open);
        drop(self.all.wait_while(open, |open| *open > 0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc::{TryRecvError, channel};

    #[test]
    fn wait_returns_when_all_events_are_acknowledged() {
        let events = Arc::new(Acknowledged::default());
        events.wait();
        events.deliver();
        events.deliver();
        let (sender, done) = channel();
        let waiter = {
            let events = events.clone();
            std::thread::spawn(move || {
                events.wait();
                sender.send(()).expect("the receiver exists");
            })
        };
        events.acknowledge(1);
        assert_eq!(done.try_recv(), Err(TryRecvError::Empty));
        events.acknowledge(1);
        done.recv().expect("wait returns");
        waiter.join().expect("no panic");
    }
}
