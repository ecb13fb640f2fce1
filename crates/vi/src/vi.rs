//! A VI: two work queues, a state, and the connection if there is one.

use crate::connection::request::{Outcome, Setup};
use crate::connection::state::Connection;
use crate::traits::{Reliability, ViAttributes, ViState};
use crate::transfer::work::WorkQueue;

/// State kept after a connection has broken: enough to notify a peer that has not noticed the break yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct BrokenConnection {
    pub path: u32,
    pub key: u32,
    pub peer_vi: u32,
    pub peer_key: u32,
    pub fault: u32,
}

#[derive(Debug)]
pub(super) struct Vi {
    pub attributes: ViAttributes,
    pub state: ViState,
    pub send: WorkQueue,
    pub receive: WorkQueue,
    pub send_queue: Option<u32>,
    pub receive_queue: Option<u32>,
    pub connection: Option<Connection>,
    pub setup: Option<Setup>,
    /// The result of the host's last request. It is kept until the host fetches it.
    pub outcome: Option<Outcome>,
    pub broken: Option<BrokenConnection>,
    /// Set while the VI is in its path's ready queue.
    pub queued: bool,
    /// Set while the VI is in the list of pending acknowledgements in `Outputs`.
    pub in_ack_list: bool,
}

impl Vi {
    pub(super) fn new(attributes: ViAttributes, send_queue: Option<u32>, receive_queue: Option<u32>) -> Vi {
        Vi {
            attributes,
            state: ViState::Idle,
            send: WorkQueue::default(),
            receive: WorkQueue::default(),
            send_queue,
            receive_queue,
            connection: None,
            setup: None,
            outcome: None,
            broken: None,
            queued: false,
            in_ack_list: false,
        }
    }

    pub(super) fn is_reliable(&self) -> bool {
        self.attributes.reliability != Reliability::Unreliable
    }

    /// Returns the path and the number of receive descriptors if messages are lost when there are none left.
    pub(super) fn descriptors_at_risk(&self) -> Option<(u32, usize)> {
        (!self.is_reliable()).then(|| Some((self.path()?, self.receive.len())))?
    }

    /// Returns the path of the connection.
    pub(super) fn path(&self) -> Option<u32> {
        self.connection.as_ref().map(|connection| connection.path)
    }

    pub(super) fn uses(&self, path: u32) -> bool {
        self.path() == Some(path) || self.setup.as_ref().is_some_and(|setup| setup.path == path)
    }
}
