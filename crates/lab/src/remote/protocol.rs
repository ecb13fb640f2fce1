//! The messages between client and server.
//!
//! ```text
//! client: Hello (the token)                 server: Welcome, or Refused and the end of the connection
//!
//! a trial of one TCP connection:
//! client: Trial (a nonce)                   server: Ready (a port), or Impossible, or Lost
//! client: a greeting, then data             (on a connection to that port)
//! client: Ended                             server: Outcome, or Lost
//!
//! a mix of flows:
//! client: Mix (a nonce)                     server: Ready (two ports), or Impossible, or Lost
//! client: a greeting, a cookie (a datagram) server: Heard (the cookie)
//! client: a greeting and a circuit, on a TCP connection for each circuit of TCP
//! client: Go, datagrams ...                 server: Sample, Sample ...
//! client: Ended (datagrams sent)            server: Total
//!
//! probes under load:
//! client: Probe (a nonce)                   server: Ready (two ports), or Impossible, or Lost
//! client: a probe (a datagram)              server: its reply (a datagram)
//! client: a greeting and a number, on each TCP connection of the load, then data in one direction
//! client: Ended                             server: Probed
//! ```
//!
//! Form      lines of JSON in both directions on the control connection. Their length and the time that they
//!           may take are limited.
//! Data      a data connection or datagram contains the nonce of the measurement, so that no other program
//!           can use the port. The first octets that a client sends to a port are a greeting
//!           ([`Nonce::greeting`]): constants, and the nonce, which the client draws. The server chooses none
//!           of them, so that it cannot make the client speak the protocol of another service.
//! Target    a client sends payload to a UDP port only after the server has returned the cookie that the
//!           client sent to that port, which proves that the port is the server's. Until then the client
//!           sends at most [`COOKIE_TRIES_MAX`] short datagrams to it. A TCP port is not proved: a hostile
//!           server can name the port of another service at its own address, to which the client then sends
//!           a greeting and the constant payload of the trial. The same holds for probes: the reply to a
//!           probe, with the nonce, takes the place of the cookie.
//! Left out  encryption: the token crosses the network in clear text, so use it only on networks that you
//!           trust.

use super::exchanges::Asked;
pub use super::lines::{
    DeadlineReader, HELLO_BYTES_MAX, LINE_BYTES_MAX, LINE_TIME, Lines, REPLY_BYTES_MAX, plain, read_message,
    read_message_until, write_message,
};
pub use super::nonce::{Nonce, VERSION};
use super::probes::{ProbeOutcome, ProbeRequest};
use super::windows::Windows;
use crate::mix::{FlowSample, MixRequest, MixTotal};
use kiban_measure::socket::Given;
use kiban_measure::{Counters, Settings, TcpInfo};
use serde::{Deserialize, Serialize};

/// The default port of the control connection.
pub const PORT: u16 = 4195;
/// The maximum number of times that a cookie is sent. It is retransmitted because any datagram may be lost.
pub const COOKIE_TRIES_MAX: usize = 25;

/// The first message of a client.
#[derive(Clone, Serialize, Deserialize)]
pub struct Hello {
    /// The version of the protocol, [`VERSION`].
    pub version: u32,
    /// The token that the server printed.
    pub token: String,
}

/// The server's reply to [`Hello`].
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Greeting {
    /// Accepted.
    Welcome(Welcome),
    /// Refused, with the reason.
    Refused(String),
}

/// The server's description of itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Welcome {
    /// The server's version of kiban.
    pub kiban: String,
    /// The server's kernel.
    pub kernel: String,
    /// The board whose TCP the server uses; `None` for the host's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub board: Option<String>,
    /// The congestion control algorithms that the server supports.
    pub congestion: Vec<String>,
    /// The longest trial, s.
    pub trial_seconds_max: u32,
    /// The largest socket buffer, bytes.
    pub buffer_bytes_max: u32,
    /// The longest message or reply, bytes.
    pub message_bytes_max: u32,
    /// The server's limit on the bytes read or written per second.
    pub bytes_per_second_max: u64,
}

/// The server's role in a trial.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Work {
    /// Reads until the client closes.
    Read,
    /// Reads messages and writes a reply to each of them.
    Reply {
        /// Bytes of a message.
        message_bytes: u32,
        /// Bytes of a reply.
        reply_bytes: u32,
    },
    /// Writes messages for the announced time, then closes its side.
    Write {
        /// Bytes of a message.
        message_bytes: u32,
    },
    /// Writes messages, each in one or two pieces, and waits for the client's reply to each, for the
    /// announced time including the warm-up; then closes its side.
    Ask {
        /// Bytes of a message's first piece.
        first_bytes: u32,
        /// Bytes of its second piece; 0 if there is none.
        rest_bytes: u32,
        /// Bytes of a reply.
        reply_bytes: u32,
        /// How long an exchange takes if nothing waits for a timer, us.
        needed_us: u64,
    },
}

/// A request of the client.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Request {
    /// A trial. The server opens a port for the data connection.
    Trial {
        /// Identifies the data connection.
        nonce: Nonce,
        /// The settings of the server's socket.
        settings: Settings,
        /// The server's role.
        work: Work,
        /// The announced length of the trial including warm-up, ms.
        millis: u32,
    },
    /// A mix of flows ([`crate::mix`]).
    Mix {
        /// Identifies the data connections and datagrams.
        nonce: Nonce,
        /// The flows.
        request: Box<MixRequest>,
    },
    /// Probes with replies, and load ([`crate::net::latency`]).
    Probe {
        /// Identifies the probes and connections.
        nonce: Nonce,
        /// Duration and connections.
        request: ProbeRequest,
    },
    /// Start the mix.
    Go,
    /// The client has closed the trial's data connection, has sent all data of a mix, or has received the
    /// last reply to a probe. For a mix, contains the number of datagrams that it sent on each circuit.
    Ended(Vec<u64>),
}

/// A reply of the server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// The client may send to these ports, at the address of the control connection.
    Ready {
        /// The port for TCP; 0 if there is none.
        streams: u16,
        /// The port for UDP; 0 if there is none.
        datagrams: u16,
    },
    /// The measurement exceeds a limit or is invalid; the text says what to change.
    Impossible(String),
    /// The measurement failed.
    Lost(String),
    /// The server's results of a trial.
    Outcome(Box<Outcome>),
    /// The cookie received in a datagram, hexadecimal.
    Heard(String),
    /// The statistics of the next sample of a mix, by flow.
    Sample(Vec<FlowSample>),
    /// The totals of a mix.
    Total(Box<MixTotal>),
    /// The server's observations of probes and load.
    Probed(Box<ProbeOutcome>),
}

/// The server's results of a trial.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// Payload that it read or wrote, bytes, without the greeting.
    pub bytes: u64,
    /// The time from the greeting, or the first byte, to the last byte, s.
    pub seconds: f64,
    /// Whether the server's rate limit slowed its reading or writing.
    pub rate_limited: bool,
    /// The state of the connection in the server's kernel.
    pub info: TcpInfo,
    /// The socket options that the server's kernel applied.
    pub given: Given,
    /// The counters of the server's host during the trial.
    pub counters: Counters,
    /// The exchanges that the server started, if it did ([`Work::Ask`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Asked>,
    /// The client's window, if the server sent a stream ([`Work::Write`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub windows: Option<Windows>,
}
