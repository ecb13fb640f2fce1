//! Chooses the sockets that a poll reads.
//!
//! Purpose   a process has several sockets per address, and packets usually come through one of them. Reading
//!           an empty socket costs as much as the rest of a poll.
//! Rule      every poll reads the socket that received the last packet, and those that were not empty in one
//!           of the last [`EMPTY_MAX`] polls. The others are read now and then, and after every sleep.

use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Number of times that a socket is found empty before it is read less often.
const EMPTY_MAX: u32 = 64;

/// The recent use of sockets, by their local addresses.
#[derive(Default)]
pub(super) struct Activity {
    busiest: Option<SocketAddr>,
    /// Number of consecutive polls that found each socket empty.
    empty: BTreeMap<SocketAddr, u32>,
}

impl Activity {
    /// Returns whether to read a socket each time.
    pub(super) fn is_recent(&self, socket: SocketAddr) -> bool {
        self.busiest == Some(socket) || self.empty.get(&socket).is_none_or(|times| *times < EMPTY_MAX)
    }

    /// Records whether a socket that was read was empty.
    pub(super) fn note(&mut self, socket: SocketAddr, is_empty: bool) {
        let times = self.empty.entry(socket).or_insert(0);
        *times = if is_empty { times.saturating_add(1) } else { 0 };
        if !is_empty {
            self.busiest = Some(socket);
        }
    }

    /// Forgets a socket that is closed.
    pub(super) fn forget(&mut self, socket: SocketAddr) {
        self.empty.remove(&socket);
        self.busiest.take_if(|busiest| *busiest == socket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_socket_is_read_less_often_until_something_comes() {
        let [one, other] = [1, 2].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let mut activity = Activity::default();
        assert!(activity.is_recent(one), "a new socket");
        activity.note(one, false);
        for _ in 0..EMPTY_MAX {
            assert!(activity.is_recent(other));
            activity.note(one, true);
            activity.note(other, true);
        }
        assert!(activity.is_recent(one), "the last one that was not empty");
        assert!(!activity.is_recent(other));
        activity.note(other, false);
        assert!(activity.is_recent(other));
        assert!(!activity.is_recent(one));
        activity.forget(one);
        assert!(activity.is_recent(one), "it is new again");
    }
}
