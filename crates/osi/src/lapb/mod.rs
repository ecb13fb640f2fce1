//! LAPB: one data link between a DTE and a DCE (X.25 §2, ISO 7776).
//!
//! Purpose          delivers frames once and in order, at line rate while no frame is lost.
//! Transmit path    [`Request::Data`] enters a queue; frames at its front are sent and kept until they are
//!                  acknowledged. Payload is shared, so that a retransmission costs only a header. The driver
//!                  fetches a frame ([`Link::poll_down`]) whenever the line has room; only then does T1
//!                  start.
//! Receive path     in-sequence frames, when the host takes them; while it does not, the link is busy (RNR).
//! Numbers          `v_a` is the oldest unacknowledged number; the other variables are distances from it.
//! Recovery         by REJ (§2.4.5.6). When T1 expires, a command with P = 1 asks for the peer's state; after
//!                  its answer, frames that it has not received are retransmitted (§2.4.5.9). After N2
//!                  attempts the link is reset, which loses data in transit and is reported by
//!                  [`Indication::Reset`].
//! T2               how long an acknowledgement may wait for an I frame that carries it. When half a window
//!                  is unacknowledged, an acknowledgement is sent at once.
//! T3               a virtual line has no idle state, so T3 is the time without frames after which a command
//!                  with P = 1 asks for the peer's state.
//! Limits           `queue_frames_max` frames queued or unacknowledged, `up_frames_max` waiting for the host,
//!                  [`PENDING_FRAMES_MAX`] pending unnumbered responses.
//! Not implemented  X.32 identification (XID), multilink procedures, selective reject. The FCS is computed
//!                  with the line (`wire::lapb`).

mod frames;
mod link;
mod set_up;
mod state;
#[cfg(test)]
mod tests;
mod transfer;

pub use crate::wire::lapb::Modulo;
pub use link::Link;
pub use state::{Act, Event, State, cell};

use core::time::Duration;

use kiban_base::{Rope, counters};

/// Maximum number of unnumbered responses that wait for the line; if there are more, the oldest is dropped.
pub const PENDING_FRAMES_MAX: usize = 8;

/// The role of one end of the line.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// DTE, the terminal: address A.
    Dte,
    /// DCE, the network or the other end of a back-to-back line: address B.
    Dce,
}

/// The parameters of a link (§2.4.8).
#[derive(Clone, Debug)]
pub struct Config {
    /// The role of this end.
    pub role: Role,
    /// Basic or extended numbering; both ends must be configured alike.
    pub modulo: Modulo,
    /// k: maximum number of unacknowledged frames, 1 to 7 or 127.
    pub window: u8,
    /// N1 without address, control field and FCS: maximum length of the information field in bytes.
    pub information_bytes_max: usize,
    /// T1: time limit for a response.
    pub reply_timeout: Duration,
    /// T2: maximum delay of an acknowledgement.
    pub acknowledge_delay: Duration,
    /// T3: maximum time without frames.
    pub idle_timeout: Duration,
    /// N2: how many times a frame is sent.
    pub attempts_max: u32,
    /// Maximum number of frames queued or unacknowledged.
    pub queue_frames_max: usize,
    /// Maximum number of frames that wait for the host.
    pub up_frames_max: usize,
    /// Whether a peer may set the link up without a [`Request::Connect`] at this end.
    pub listens: bool,
}

impl Config {
    /// Returns common values: modulo 8, k = 7, T1 3 s, T2 20 ms, T3 30 s, N2 = 10.
    pub fn new(role: Role) -> Config {
        Config {
            role,
            modulo: Modulo::Eight,
            window: 7,
            information_bytes_max: 4096 + 4,
            reply_timeout: Duration::from_secs(3),
            acknowledge_delay: Duration::from_millis(20),
            idle_timeout: Duration::from_secs(30),
            attempts_max: 10,
            queue_frames_max: 256,
            up_frames_max: 64,
            listens: true,
        }
    }
}

/// Requests of the layer above.
#[derive(Clone, Debug)]
pub enum Request {
    /// Sets the link up.
    Connect,
    /// Takes the link down.
    Disconnect,
    /// Sends a packet.
    Data(Rope),
    /// Stops the peer's frames (RNR), or lets them continue.
    Busy(bool),
}

/// Indications to the layer above.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Indication {
    /// The link is up.
    Connected,
    /// A packet.
    Data(Rope),
    /// The link was reset: packets may have been lost in both directions.
    Reset,
    /// The link is down, for this reason.
    Disconnected(Reason),
}

/// Why a link is down.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reason {
    /// This end's host has requested it.
    Requested,
    /// The peer has disconnected it.
    ByPeer,
    /// The peer refuses the link.
    Refused,
    /// The peer does not answer.
    NoAnswer,
}

/// Why a request was rejected; a rejected request changes nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Misuse {
    /// The state of the link does not allow the request.
    State,
    /// The queue is full: wait until [`Link::room`] is not 0.
    Full,
    /// The packet is longer than N1 allows.
    TooLong,
}

counters! {
    /// Counters of a link.
    pub struct Counters {
        /// Frames sent.
        frames_out,
        /// Frames received.
        frames_in,
        /// I frames retransmitted.
        retransmits,
        /// I frames received out of sequence.
        out_of_sequence,
        /// I frames received while this end was busy.
        dropped_while_busy,
        /// Frames too short, or not addressed to this link (§2.3.5.3).
        invalid,
        /// Frames rejected (FRMR).
        rejected,
        /// FRMR received.
        rejected_by_peer,
        /// Unsolicited responses with F = 1.
        unsolicited_finals,
        /// Expirations of T1.
        timeouts,
        /// Link resets.
        resets,
        /// Responses dropped because the line did not take them.
        answers_lost,
    }
}
