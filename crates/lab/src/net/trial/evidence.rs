//! Evidence: the observations of both ends in a trial.
//!
//! Ends      the sender is the end that writes messages: the client, or the server if the pattern
//!           [is back](Pattern::is_back).
//! Kept      the evidence is stored in the record, so that a cause can be determined or questioned later,
//!           without access to the network.

use super::digest::Digest;
use super::path::Path;
pub use crate::remote::exchanges::Exchanges;
use crate::remote::protocol::{Outcome, Welcome};
pub use crate::remote::windows::Windows;
use kiban_measure::socket::Given;
use kiban_measure::{Counters, Settings, TcpInfo};
use serde::{Deserialize, Serialize};

/// How messages are written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// A header and a body in two writes, then wait for the reply.
    WriteWriteRead,
    /// Header and body in one write, then wait for the reply.
    WriteRead,
    /// Like `WriteWriteRead`, but the server sends the messages and the client replies.
    WriteWriteReadBack,
    /// Like `WriteRead`, but the server sends the messages and the client replies.
    WriteReadBack,
    /// Messages without replies.
    Stream,
    /// Messages without replies, from the server to the client.
    StreamBack,
}

impl Pattern {
    /// All patterns, with their names.
    pub const ALL: [(Pattern, &'static str); 6] = [
        (Pattern::WriteWriteRead, "write-write-read"),
        (Pattern::WriteRead, "write-read"),
        (Pattern::WriteWriteReadBack, "write-write-read-back"),
        (Pattern::WriteReadBack, "write-read-back"),
        (Pattern::Stream, "stream"),
        (Pattern::StreamBack, "stream-back"),
    ];

    /// Returns whether messages have no replies.
    pub fn is_stream(self) -> bool {
        matches!(self, Pattern::Stream | Pattern::StreamBack)
    }

    /// Returns the direction of the messages in words.
    pub(in crate::net) fn way(self) -> &'static str {
        if self.is_back() { "from the server" } else { "to the server" }
    }

    /// Returns whether the server sends the messages.
    pub fn is_back(self) -> bool {
        matches!(self, Pattern::WriteWriteReadBack | Pattern::WriteReadBack | Pattern::StreamBack)
    }

    /// Returns whether a message is written in two pieces.
    pub fn is_in_two_writes(self) -> bool {
        matches!(self, Pattern::WriteWriteRead | Pattern::WriteWriteReadBack)
    }

    /// Returns the pattern that writes each message in one piece, in the same direction.
    pub fn in_one_write(self) -> Pattern {
        match self {
            Pattern::WriteWriteRead => Pattern::WriteRead,
            Pattern::WriteWriteReadBack => Pattern::WriteReadBack,
            other => other,
        }
    }

    /// Returns the same pattern in the other direction.
    pub fn reversed(self) -> Pattern {
        match self {
            Pattern::WriteWriteRead => Pattern::WriteWriteReadBack,
            Pattern::WriteWriteReadBack => Pattern::WriteWriteRead,
            Pattern::WriteRead => Pattern::WriteReadBack,
            Pattern::WriteReadBack => Pattern::WriteRead,
            Pattern::Stream => Pattern::StreamBack,
            Pattern::StreamBack => Pattern::Stream,
        }
    }

    /// Returns the name of the pattern.
    pub fn name(self) -> &'static str {
        Pattern::ALL.iter().find(|(pattern, _)| *pattern == self).expect("all are listed").1
    }

    /// Returns the metric that a cell of a map shows.
    pub(in crate::net) fn metric(self) -> &'static str {
        if self.is_stream() { "mbps" } else { "transactions_per_second" }
    }

    /// Parses a name.
    pub fn of(name: &str) -> Option<Pattern> {
        Pattern::ALL.iter().find(|(_, known)| *known == name).map(|(pattern, _)| *pattern)
    }
}

/// One trial.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Evidence {
    /// How messages were written.
    pub pattern: Pattern,
    /// Bytes of a message.
    pub message_bytes: u32,
    /// Bytes of its last write: the body.
    pub last_write_bytes: u32,
    /// The socket settings that were requested.
    pub settings: Settings,
    /// The measured time, s.
    pub seconds: f64,
    /// The path, as measured at the start of the session.
    pub path: Path,
    /// The board whose TCP the client uses; `None` for the host's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub board: Option<String>,
    /// The server's description of itself.
    pub peer: Welcome,
    /// The socket options that the sender's kernel applied.
    pub given: Given,
    /// The state of the connection in the sender's kernel at the start of the measurement.
    pub info_before: TcpInfo,
    /// The state of the same connection at the end of the measurement.
    pub info: TcpInfo,
    /// The counters of the sender's host.
    pub counters: Counters,
    /// The receiver's results.
    pub receiver: Outcome,
    /// Exchanges, if there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exchanges: Option<Exchanges>,
    /// The digest of a short capture, if the case was slow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capture: Option<Digest>,
    /// The receiver's window in the course of a stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub windows: Option<Windows>,
    /// The connections that ran at the same time, if there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<Beside>,
}

/// The connections of a trial besides the measured one.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Beside {
    /// The others in the same direction.
    pub same: Vec<Carried>,
    /// The connections in the opposite direction.
    pub opposite: Vec<Carried>,
}

/// What a connection carried.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Carried {
    /// Bytes of payload.
    pub bytes: f64,
    /// The time from the first to the last, s.
    pub seconds: f64,
}

impl Carried {
    /// Returns the goodput, Mbit/s.
    pub fn mbps(self) -> f64 {
        if self.seconds > 0.0 { self.bytes * 8e-6 / self.seconds } else { 0.0 }
    }
}

/// Returns the goodput of connections that began at the same time, Mbit/s: their sum over the longest time.
/// The sum of their rates would be more than the path carries, because some end when others still send.
pub fn sum_mbps(all: &[Carried]) -> f64 {
    let seconds = all.iter().map(|one| one.seconds).fold(0.0, f64::max);
    Carried { bytes: all.iter().map(|one| one.bytes).sum(), seconds }.mbps()
}

/// The fractions of time for which a connection was limited by each cause, 0 to 1; `None` if the kernel does
/// not report it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Shares {
    /// Data was waiting or unacknowledged.
    pub busy: f64,
    /// The peer's window was full.
    pub window: f64,
    /// The send buffer was too small.
    pub send_buffer: f64,
}

impl Evidence {
    /// Returns what each connection in the direction of the measured one carried, which is the first.
    pub fn same(&self) -> Vec<Carried> {
        let others = self.beside.iter().flat_map(|beside| &beside.same);
        std::iter::once(self.carried()).chain(others.copied()).collect()
    }

    /// Returns the goodput of all connections in the direction of the measured one, Mbit/s.
    pub fn total_mbps(&self) -> f64 {
        sum_mbps(&self.same())
    }

    /// Returns the goodput of the connections in the opposite direction, Mbit/s; `None` without any.
    pub fn opposite_mbps(&self) -> Option<f64> {
        let opposite = self.beside.as_ref().map(|beside| &beside.opposite).filter(|all| !all.is_empty());
        opposite.map(|all| sum_mbps(all))
    }

    /// Returns the goodput of the slowest of several connections, Mbit/s; `None` if there is only one.
    pub fn slowest_mbps(&self) -> Option<f64> {
        let same = self.same();
        let seconds = same.iter().map(|one| one.seconds).fold(0.0, f64::max);
        let rates = same.iter().map(|one| Carried { seconds, ..*one }.mbps());
        if same.len() > 1 { rates.reduce(f64::min) } else { None }
    }

    /// Returns the number of connections in both directions.
    pub fn connections(&self) -> u64 {
        let others = |beside: &Beside| beside.same.len() + beside.opposite.len();
        1 + self.beside.as_ref().map_or(0, others) as u64
    }

    /// Returns the goodput of the measured connection, Mbit/s.
    pub fn mbps(&self) -> f64 {
        self.carried().mbps()
    }

    /// Returns what the measured connection carried.
    pub fn carried(&self) -> Carried {
        match &self.exchanges {
            Some(exchanges) => {
                let bytes = exchanges.count as f64 * f64::from(self.message_bytes);
                Carried { bytes, seconds: self.seconds }
            }
            None => Carried { bytes: self.receiver.bytes as f64, seconds: self.receiver.seconds },
        }
    }

    /// Returns the number of segments that the sender retransmitted.
    pub fn retransmits(&self) -> u64 {
        u64::from(self.info.total_retrans.saturating_sub(self.info_before.total_retrans))
    }

    /// Returns the number of segments with data that the sender sent.
    pub fn segments(&self) -> Option<u64> {
        let before = self.info_before.data_segs_out?;
        Some(u64::from(self.info.data_segs_out?.saturating_sub(before)))
    }

    /// Returns how the sender's time was spent.
    pub fn shares(&self) -> Option<Shares> {
        let part = |now: Option<u64>, before: Option<u64>| {
            Some(now?.saturating_sub(before?) as f64 * 1e-6 / self.seconds.max(1e-6))
        };
        Some(Shares {
            busy: part(self.info.busy_us, self.info_before.busy_us)?,
            window: part(self.info.rwnd_limited_us, self.info_before.rwnd_limited_us)?,
            send_buffer: part(self.info.sndbuf_limited_us, self.info_before.sndbuf_limited_us)?,
        })
    }
}
