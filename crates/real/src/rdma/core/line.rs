//! A line: what carries the bytes of an end, and where it is in its life.

use crate::link::channel::{Door as SharedDoor, Half};
use crate::link::shared::SharedLink;
use crate::link::tcp::{TcpDoor, TcpLink};
use kiban_ground::Instant;
use kiban_stack::iwarp::mpa;
use kiban_stack::iwarp::rnic::Places;
use kiban_stack::iwarp::stream::Chunk;
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

/// An end's socket.
pub(super) struct Line {
    pub(super) link: TcpLink,
    /// In its place.
    pub(super) shared: Option<SharedLink>,
    pub(super) offer: Offer,
    pub(super) connected: bool,
    /// The socket takes nothing now: its event says when.
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
    /// What its events are.
    pub(super) interest: EventFlags,
    /// Tries in a row that found nothing.
    pub(super) tries: u32,
    /// It is not tried.
    pub(super) quiet: bool,
}

impl Line {
    pub(super) fn send<'a>(&mut self, chunks: impl Iterator<Item = Chunk<'a>>) -> io::Result<usize> {
        match &mut self.shared {
            Some(shared) => shared.send(chunks),
            None => self.link.send(chunks),
        }
    }

    pub(super) fn receive(&mut self, places: &Places, room: &mut [u8]) -> io::Result<Option<usize>> {
        match &mut self.shared {
            Some(shared) => shared.receive(places, room),
            None => self.link.receive(places, room),
        }
    }

    pub(super) fn receive_into(&mut self, first: &mut [u8], room: &mut [u8]) -> io::Result<Option<usize>> {
        match &mut self.shared {
            Some(shared) => shared.receive_into(first, room),
            None => self.link.receive_into(first, room),
        }
    }

    pub(super) fn finish(&mut self) {
        match &mut self.shared {
            Some(shared) => shared.finish(),
            None => self.link.finish(),
        }
    }
}

/// Where connections come in.
pub(super) struct Door {
    pub(super) door: TcpDoor,
    pub(super) config: mpa::Config,
}
