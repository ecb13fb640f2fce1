//! Events of a relay.

use serde::Serialize;

/// An event on a circuit. It is reported when the circuit opens or is refused, and when it closes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct CircuitEvent {
    /// The number of the circuit, counted from 1.
    pub circuit: u64,
    /// The event.
    #[serde(flatten)]
    pub event: Event,
}

/// An event of a circuit.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Event {
    /// The circuit has been established.
    Open {
        /// Address of the peer that made the connection.
        from: String,
        /// The called address, if there is one.
        called: String,
        /// The target of the circuit.
        to: String,
    },
    /// The circuit was not established.
    Refused {
        /// Address of the peer that made the connection.
        from: String,
        /// The called address, if known.
        called: String,
        /// The reason.
        why: String,
    },
    /// The circuit has ended.
    Closed {
        /// Bytes of NSDUs passed from X.25 to TCP.
        bytes_to_tcp: u64,
        /// Bytes of NSDUs passed from TCP to X.25.
        bytes_to_x25: u64,
        /// The reason.
        why: String,
    },
}
