//! Configuration of a link.

use crate::wire::lapb::Modulo;
use core::time::Duration;

/// Maximum number of unnumbered responses that wait for the line; the oldest is dropped to make room for
/// another.
pub const PENDING_FRAMES_MAX: usize = 8;

/// The role of one end of the line.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// DTE, the terminal: address A.
    Dte,
    /// The DCE, which is the network or the other end of a back-to-back line: address B.
    Dce,
}

/// The parameters of a link (§2.4.8).
#[derive(Clone, Debug)]
pub struct Config {
    /// The role of this end.
    pub role: Role,
    /// Basic or extended sequence numbering; both ends must be configured alike.
    pub modulo: Modulo,
    /// k: maximum number of unacknowledged frames, 1 to 7 or 127.
    pub window: u8,
    /// Maximum length of the information field in bytes: N1, less the address, control field and FCS.
    pub information_bytes_max: usize,
    /// T1: time limit for a response.
    pub reply_timeout: Duration,
    /// T2: maximum delay of an acknowledgement.
    pub acknowledge_delay: Duration,
    /// T3: maximum time without frames.
    pub idle_timeout: Duration,
    /// N2: maximum number of times a frame is sent.
    pub attempts_max: u32,
    /// Maximum number of frames queued or unacknowledged.
    pub queue_frames_max: usize,
    /// Maximum number of received frames that wait for the host.
    pub up_frames_max: usize,
    /// Whether a peer may set the link up without a `Request::Connect` at this end.
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
