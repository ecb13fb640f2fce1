//! LAPB: one data link between a DTE and a DCE (X.25 §2, ISO 7776).
//!
//! Goal      frames arrive once and in order, at the rate of the line while nothing is lost.
//! Down      [`Request::Data`] waits in a queue, of which the front is sent and kept until it is acknowledged; payload is
//!           referred to, so that sending again costs a header. Who drives the link fetches a frame ([`Link::poll_down`])
//!           whenever the line has room: T1 starts then, not before.
//! Up        in sequence frames, when the host takes them; while it does not, the link is busy (RNR).
//! Numbers   `v_a` is the oldest number that is not acknowledged; the others are distances from it.
//! Recovery  REJ (§2.4.5.6); T1, after which the peer is asked for its state by a command with P = 1, and what it has not got is
//!           sent again when it answers (§2.4.5.9); after N2 attempts the link is set up anew, which loses what was under way:
//!           [`Indication::Reset`] says so.
//! T2        how long an acknowledgement may wait for an I frame to ride on; half a window is acknowledged at once.
//! T3        a virtual line has no idle state; T3 is the time without frames after which the peer is asked for its state.
//! Limits    `queue_frames_max` frames wait or are kept, `up_frames_max` wait for the host, [`OWED_FRAMES_MAX`] answers are owed.
//! Left out  X.32 identification (XID), multilink procedures, selective reject; the FCS, which is the line's (`wire::lapb`).

mod frames;
mod link;
mod set_up;
mod state;
#[cfg(test)]
mod tests;
mod transfer;

pub use kiban_wire::lapb::Modulo;
pub use link::Link;
pub use state::{Act, Event, State, cell};

use core::time::Duration;

use kiban_ground::{Rope, counters};

/// Unnumbered answers that wait for the line at most: a peer that sends more commands loses the oldest.
pub const OWED_FRAMES_MAX: usize = 8;

/// Which end of the line.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// Terminal: address A.
    Dte,
    /// Network, or the other end of a back-to-back line: address B.
    Dce,
}

/// The parameters of a link (§2.4.8).
#[derive(Clone, Debug)]
pub struct Config {
    /// Which end this is.
    pub role: Role,
    /// Basic or extended numbering; both ends have to agree beforehand.
    pub modulo: Modulo,
    /// k: frames that may wait for their acknowledgement, 1 to 7 or 127.
    pub window: u8,
    /// N1 without address, control field and FCS: the longest information, in bytes.
    pub information_bytes_max: usize,
    /// T1: how long a reply may take.
    pub reply_timeout: Duration,
    /// T2: how long an acknowledgement may wait.
    pub acknowledge_delay: Duration,
    /// T3: how long the line may be silent.
    pub idle_timeout: Duration,
    /// N2: how often a frame is sent.
    pub attempts_max: u32,
    /// Frames that wait or are kept for sending.
    pub queue_frames_max: usize,
    /// Frames that wait for the host.
    pub up_frames_max: usize,
    /// Whether a peer may set the link up without a [`Request::Connect`] here.
    pub listens: bool,
}

impl Config {
    /// Usual values: modulo 8, k = 7, T1 3 s, T2 20 ms, T3 30 s, N2 = 10.
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

/// What the layer above asks for.
#[derive(Clone, Debug)]
pub enum Request {
    /// Sets the link up.
    Connect,
    /// Takes it down.
    Disconnect,
    /// Sends a packet.
    Data(Rope),
    /// Stops the peer's frames, or lets them come again.
    Busy(bool),
}

/// What the layer above is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Indication {
    /// The link is up.
    Connected,
    /// A packet.
    Data(Rope),
    /// The link was set up anew: packets may have been lost in both directions.
    Reset,
    /// The link is down.
    Disconnected(Reason),
}

/// Why a link is down.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reason {
    /// The host has asked for it.
    Requested,
    /// The peer has.
    ByPeer,
    /// The peer does not want the link.
    Refused,
    /// The peer does not answer.
    NoAnswer,
}

/// Why a request was not taken; nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Misuse {
    /// The link is not in a state for it.
    State,
    /// The queue is full: wait until [`Link::room`] is not 0.
    Full,
    /// The packet is longer than N1 allows.
    TooLong,
}

counters! {
    /// What a link saw.
    pub struct Counters {
        /// Frames that were fetched for the line.
        frames_out,
        /// Frames that came.
        frames_in,
        /// I frames that were sent a second time, or more often.
        resent,
        /// I frames that were not the next.
        out_of_sequence,
        /// I frames that came while the link was busy.
        while_busy,
        /// Frames too short, or to an address that is not the link's (§2.3.5.3).
        invalid,
        /// Frames that were rejected (FRMR).
        rejected,
        /// FRMR of the peer.
        rejected_by_peer,
        /// Responses with F = 1 that nobody had asked for.
        unsolicited_finals,
        /// T1 ran out.
        timeouts,
        /// The link was set up anew.
        resets,
        /// Answers that were given up because the line did not take them.
        answers_lost,
    }
}
