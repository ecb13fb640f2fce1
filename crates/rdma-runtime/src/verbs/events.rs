//! Options for opening an engine, and asynchronous events of its objects.

use super::channel::Channel;
use std::sync::Arc;

/// Whether a NIC uses kiban's own features with kiban peers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Features {
    /// Whether the connection manager offers and accepts kiban's extensions (immediate data, atomics). If
    /// not, it follows the plain standard.
    pub extensions: bool,
    /// Whether streams to processes of the same user on the same host use shared memory.
    pub shared_memory: bool,
    /// The protocols of queue pairs.
    pub wire: Wire,
}

/// The protocols of queue pairs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wire {
    /// iWARP over TCP. Queue pairs that are connected out of band, and datagram queue pairs, use kiban's own
    /// protocols over TCP and UDP.
    Tcp,
    /// RoCEv2.
    Roce,
    /// RDMAP and DDP over EFE. It has no datagrams.
    Efe,
}

/// An asynchronous event of one of the program's objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AsyncEvent {
    /// The program's identifier for the object.
    pub cookie: u64,
    /// The event.
    pub kind: AsyncEventKind,
}

/// The kind of an asynchronous event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AsyncEventKind {
    /// A queue pair failed because of a local error.
    QpFatal,
    /// A queue pair failed because of an invalid request by the peer.
    QpRequestError,
    /// A queue pair failed because the peer's memory access was denied.
    QpAccessError,
    /// A queue pair will take no further receives from its shared receive queue.
    QpLastReceive,
    /// The first message arrived before the program made the queue pair ready to send.
    QpEstablished,
    /// A completion queue overran and lost completions.
    CqError,
    /// A shared receive queue holds fewer receives than its limit.
    SrqLimit,
}

/// The destinations of a completion queue's events.
#[derive(Clone)]
pub struct CqChannels {
    /// The channel for completion notifications, which are sent when the queue is armed.
    pub completions: Option<Arc<Channel<u64>>>,
    /// For overruns.
    pub async_events: Arc<Channel<AsyncEvent>>,
    /// The program's identifier for the queue.
    pub cookie: u64,
}
