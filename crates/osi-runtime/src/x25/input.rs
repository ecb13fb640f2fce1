//! What the tasks of lines and connections send to their node, and the limits that all of its ports share.

use super::{BoxedStream, Origin};
use kiban_base::Rope;
use kiban_osi::x25::switch::{CircuitId, PortId};
use kiban_osi::x25::{Call, Config, Role};
use tokio::sync::{mpsc, oneshot};

/// What lines and connections bring.
pub(super) enum Input {
    LineOpen(PortId, mpsc::Sender<Rope>),
    LineGone(PortId, String),
    Arrived(PortId, Rope),
    /// An XOT connection has ended.
    Closed(PortId),
    /// A stream on which the peer makes a call, and its name.
    Accepted(BoxedStream, Origin, String),
    /// A stream on which the switch makes a circuit's call, or the reason why there is none.
    Connected(CircuitId, Result<BoxedStream, String>, Call),
    /// The time limit for the call on an XOT connection.
    CallDue(PortId),
    /// A request to take all links down, and to answer when they are.
    Close(oneshot::Sender<()>),
}

/// Returns the packet layer's limits on every port of a node.
pub(super) fn layer(role: Role, unit_bytes_max: usize) -> Config {
    // The switch passes a unit on when there is room for the longest, so two fit.
    let outgoing_bytes_max = unit_bytes_max * 2;
    Config { unit_bytes_max, outgoing_bytes_max, ..Config::new(role) }
}
