//! Errors of calls to a board.

use core::fmt;
use kiban_tcpip::{tcp, udp};

/// Why the board refused a call from the host. A refused call changes nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum HostError {
    /// There is no such stream: it was never opened, or it has been closed.
    UnknownStream,
    /// The stream is not open yet, or has ended.
    NotOpen,
    /// No such listener.
    UnknownListener,
    /// There is no route to that address.
    NoRoute,
    /// The payload exceeds the maximum packet size.
    TooLong,
    /// No memory is free. Retry after a completion.
    NoMemory,
    /// There is no such circuit, or its port is not an ATM port.
    NoCircuit,
    /// The same request is already in progress. Wait for its completion.
    Busy,
    /// TCP's reason.
    Tcp(tcp::Refusal),
    /// UDP's reason.
    Udp(udp::Refusal),
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostError::UnknownStream => f.write_str("no such stream: it was not opened, or has been closed"),
            HostError::NotOpen => {
                f.write_str("the stream is not open: wait for its open completion, or open another")
            }
            HostError::UnknownListener => {
                f.write_str("no such listener: it was not created, or has been closed")
            }
            HostError::NoRoute => f.write_str("no route to that address: add one to the board"),
            HostError::TooLong => {
                f.write_str("the payload exceeds the maximum packet size: send less at a time")
            }
            HostError::NoMemory => f.write_str("out of packet memory: try again after the next completion"),
            HostError::NoCircuit => {
                f.write_str("no such circuit: give an ATM port and the number of one of its circuits")
            }
            HostError::Busy => {
                f.write_str("a loopback is in progress on that circuit: wait for its completion")
            }
            HostError::Tcp(refusal) => refusal.fmt(f),
            HostError::Udp(refusal) => refusal.fmt(f),
        }
    }
}

impl core::error::Error for HostError {}

impl From<tcp::Refusal> for HostError {
    fn from(refusal: tcp::Refusal) -> HostError {
        HostError::Tcp(refusal)
    }
}

impl From<udp::Refusal> for HostError {
    fn from(refusal: udp::Refusal) -> HostError {
        HostError::Udp(refusal)
    }
}
