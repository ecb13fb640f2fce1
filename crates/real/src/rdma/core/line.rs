//! A line: an end's carrier, and where it is in its life; and the doors by which lines come in.

use super::carrier::Carrier;
use crate::link::channel::{Door as SharedDoor, Half};
use crate::link::shared::SharedLink;
use crate::link::tcp::TcpDoor;
use crate::streams::nonblocking::Listener;
use kiban_ground::Instant;
use kiban_stack::iwarp::mpa;
use rustix::event::epoll::EventFlags;
use std::io;

/// Shared memory that may take the place of an end's socket: from the start frames on, if both ends have it by then.
pub(super) enum Offer {
    None,
    /// We connected: the peer may call.
    Open(SharedDoor),
    /// It has called, and has not said all.
    Called(Half),
    /// We were connected to, and have not heard anything: then there is a door, if there will be one.
    Awaited,
    /// We were connected to and have called: nothing is read until the answer is here.
    Calling(Half),
    Ready(SharedLink),
}

/// An end's stream.
pub(super) struct Line {
    pub(super) carrier: Carrier,
    pub(super) offer: Offer,
    pub(super) connected: bool,
    /// The carrier takes nothing now: a socket's event says when.
    pub(super) blocked: bool,
    /// Our half has ended.
    pub(super) finished: bool,
    /// The peer's half has ended behind a message that waits for a receive.
    pub(super) left: bool,
    /// It is over.
    pub(super) leaving: bool,
    /// So long it has to say why, and to hear the peer's end. An alarm alone does not tell whose it is: in five seconds a
    /// program can connect so often that the number of an end that has gone is given again.
    pub(super) farewell: Option<Instant>,
    /// What a socket's events are.
    pub(super) interest: EventFlags,
    /// Tries in a row that found nothing.
    pub(super) tries: u32,
    /// It is not tried.
    pub(super) quiet: bool,
}

impl Line {
    pub(super) fn new(carrier: Carrier, connected: bool, offer: Offer) -> Line {
        Line {
            carrier,
            offer,
            connected,
            blocked: !connected,
            finished: false,
            left: false,
            leaving: false,
            farewell: None,
            interest: if connected { EventFlags::IN } else { EventFlags::OUT },
            tries: 0,
            quiet: false,
        }
    }
}

/// Where connections come in.
pub(super) enum Entrance {
    Socket(TcpDoor),
    /// On a board.
    Board(Listener),
}

impl Entrance {
    /// The next connection, if there is one.
    pub(super) fn accept(&self) -> io::Result<Option<Carrier>> {
        Ok(match self {
            Entrance::Socket(door) => door.accept()?.map(|(link, _)| Carrier::from(link)),
            Entrance::Board(listener) => listener.accept()?.map(Carrier::Board),
        })
    }
}

/// An entrance, and what is agreed there.
pub(super) struct Door {
    pub(super) entrance: Entrance,
    pub(super) config: mpa::Config,
}
