//! The connection manager's side of the engine: listen, connect, answer, end.
//!
//! Goal      each connection, from its request on, has one who is told of it ([`Listens`]).
//! Order     who is told is told while the NIC is locked: it notes, and calls the engine later.

use super::Engine;
use super::board::Board;
use crate::rdma::core::Way;
use kiban_ground::Instant;
use kiban_stack::iwarp::mpa;
use kiban_stack::iwarp::nic::{ConnectError, OpenError};
use std::collections::HashMap;
use std::io;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// A request to connect.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Whom it came to.
    pub listener: u32,
    /// The end that answers it.
    pub end: u32,
    /// The address that it came to.
    pub local: SocketAddr,
    /// Where it came from.
    pub peer: SocketAddr,
    /// What the peer says.
    pub private_data: Vec<u8>,
    /// Reads that the peer wants under way, and takes: the most that can be agreed on (`ird`, `ord` of ours).
    pub depths: (u16, u16),
}

/// What became of a connection.
#[derive(Clone, Debug)]
pub enum Told {
    /// Somebody asks.
    Asked(Asked),
    /// It stands.
    Connected {
        /// Which end.
        end: u32,
        /// What the peer answered, on the side that asked.
        private_data: Vec<u8>,
        /// Reads of the peer's and of ours under way, as agreed.
        depths: (u16, u16),
    },
    /// It did not come to be.
    Failed {
        /// Which end.
        end: u32,
        /// Why.
        error: ConnectError,
    },
    /// A peer that refused the stream, or ended it without an answer, is asked again from another end; at last in the standard's
    /// words, if it was offered kiban's own operations and may not bear that, though it should not look at the bit (RFC 5044
    /// §7.1.1).
    Moved {
        /// Which end it was.
        end: u32,
        /// Which it is.
        to: u32,
        /// Where it comes from now.
        local: Option<SocketAddr>,
    },
    /// It is over, or a request has been withdrawn.
    Gone {
        /// Which end.
        end: u32,
    },
}

/// Who is told of connections. It is called while the NIC is locked, and must not call the engine.
pub trait Listens: Send + Sync {
    /// Hears. For [`Told::Asked`], whoever is told of that connection from now on; `None` refuses the request.
    fn told(&self, told: Told) -> Option<Arc<dyn Listens>>;
}

/// What an end is for.
pub(super) enum EndUse {
    /// The connection manager's; and, of those who ask, how to ask again.
    Manager(Arc<dyn Listens>, Option<Box<Again>>),
    /// A meeting's, of a queue pair.
    Meeting(u32),
    /// A caller that waits.
    Held,
    /// Somebody who was refused, and hears why.
    Refused,
}

/// Pauses, in milliseconds, before somebody is asked again at whose port nobody listened: programs (qperf, perftest) tell peers of a port a
/// moment before they listen there, which a kernel does faster than peers can come. Where something between forwards streams (QEMU's
/// network, docker-proxy, ssh -L), nobody is refused: a stream ends before there is an answer.
const PAUSES_MS: [u64; 4] = [5, 10, 20, 40];

/// What was asked for.
#[derive(Clone)]
pub(super) struct Again {
    /// kiban's own operations were offered: a peer that still has not answered is asked in the standard's words, once.
    offers: bool,
    /// How many of the pauses are over.
    refused: usize,
    /// In a pause: nothing is told.
    pauses: bool,
    qp: u32,
    way: Way,
    depths: (u16, u16),
    private_data: Vec<u8>,
}

/// The ends that there are.
#[derive(Default)]
pub(super) struct Ends {
    pub(super) of: HashMap<u32, EndUse>,
}

/// Who listens.
#[derive(Default)]
pub(super) struct Listeners {
    pub(super) of: HashMap<u32, Arc<dyn Listens>>,
}

/// What connections of the connection manager begin with: siw's way, and kiban's own operations if they are to be offered.
fn manager_config(extensions: bool) -> mpa::Config {
    mpa::Config { extensions, ..mpa::Config::default() }
}

impl Engine {
    /// Listens on an address, which may be unspecified; port 0: one is chosen. The listener's number and address.
    ///
    /// # Errors
    /// Somebody else listens there, or the address is not this host's.
    pub fn listen(
        &self,
        at: SocketAddr,
        backlog: u32,
        listens: Arc<dyn Listens>,
    ) -> io::Result<(u32, SocketAddr)> {
        self.turn.work(|board, _| {
            let (listener, address) = board.core.listen(at.into(), manager_config(board.offers), backlog)?;
            board.listeners.of.insert(listener, listens);
            match address {
                Some(crate::rdma::Address::Ip(address)) => Ok((listener, address)),
                _ => Err(io::ErrorKind::InvalidInput.into()),
            }
        })
    }

    /// Listens no more. Requests that nobody has answered are refused.
    pub fn unlisten(&self, listener: u32) {
        self.turn.work(|board, now| {
            board.core.unlisten(listener, now);
            board.listeners.of.remove(&listener);
        });
    }

    /// Begins to connect a queue pair: the end. `from`: the address of the device.
    ///
    /// # Errors
    /// There is no way to the address; the queue pair is connected already; the private data is too long.
    pub fn connect(
        &self,
        qp: u32,
        from: Option<IpAddr>,
        to: SocketAddr,
        depths: (u16, u16),
        private_data: &[u8],
        listens: Arc<dyn Listens>,
    ) -> io::Result<Result<u32, OpenError>> {
        self.turn.work(|board, now| {
            let config = manager_config(board.offers);
            let way = Way { to: to.into(), from };
            let opened = board.core.connect(way, &config, qp, depths, private_data, now)?;
            if let Ok(end) = opened {
                let private_data = private_data.to_vec();
                let again =
                    Again { offers: board.offers, refused: 0, pauses: false, qp, way, depths, private_data };
                board.ends.of.insert(end, EndUse::Manager(listens, Some(Box::new(again))));
            }
            Ok(opened)
        })
    }

    /// Accepts a request for a queue pair that is not connected.
    ///
    /// # Errors
    /// The request has gone; the queue pair is connected already; the private data is too long.
    pub fn accept(
        &self,
        end: u32,
        qp: u32,
        depths: (u16, u16),
        private_data: &[u8],
    ) -> Result<(), OpenError> {
        self.turn.work(|board, now| board.core.accept(end, qp, depths, private_data, now))
    }

    /// Refuses a request, with something to say. Its end is no more.
    ///
    /// # Errors
    /// The request has gone; the private data is too long.
    pub fn reject(&self, end: u32, private_data: &[u8]) -> Result<(), OpenError> {
        self.turn.work(|board, now| board.refuse_request(end, private_data, now))
    }

    /// No more is posted: what is there still goes, then the connection ends.
    pub fn disconnect(&self, end: u32) {
        self.turn.work(|board, _| {
            let Some(qp) = board.core.nic.qp_of(end) else { return };
            // One that is over needs no end; nor does anybody wait for what is left of a peer that has gone.
            let _ = match board.core.has_left(end) {
                true => board.core.nic.core.abort(qp),
                false => board.core.nic.core.disconnect(qp),
            };
        });
    }

    /// Nobody asks for an end any more: it ends, if it has not, after what was posted has left.
    pub fn release(&self, end: u32) {
        self.turn.work(|board, now| {
            if matches!(board.ends.of.get(&end), Some(EndUse::Manager(..))) {
                board.ends.of.remove(&end);
                board.core.release(end, now);
            }
        });
    }

    /// Where an end comes from: known before the peer has answered.
    pub fn local_address(&self, end: u32) -> Option<SocketAddr> {
        self.turn.read(|board| board.core.local_address(end))
    }

    /// The addresses of an end that is connected, ours first.
    pub fn addresses(&self, end: u32) -> Option<(SocketAddr, SocketAddr)> {
        self.turn.read(|board| board.core.addresses(end))
    }
}

impl Board {
    fn refuse_request(&mut self, end: u32, private_data: &[u8], now: Instant) -> Result<(), OpenError> {
        self.core.reject(end, private_data, now)?;
        self.ends.of.insert(end, EndUse::Refused);
        Ok(())
    }

    /// Tells of connections: whether there was something to tell.
    pub(super) fn hear_connections(&mut self, now: Instant) -> bool {
        let mut heard = false;
        while let Some(request) = self.core.next_request() {
            self.news = true;
            heard = true;
            let end = request.end;
            let Some(listens) = self.listeners.of.get(&request.listener).cloned() else {
                self.on_caller(end, request.listener, &request.private_data, now);
                continue;
            };
            let Some((local, peer)) = self.core.addresses(end) else {
                self.core.forget(end, now);
                continue;
            };
            let asked = Asked {
                listener: request.listener,
                end,
                local,
                peer,
                private_data: request.private_data,
                depths: request.depths,
            };
            match listens.told(Told::Asked(asked)) {
                Some(listens) => drop(self.ends.of.insert(end, EndUse::Manager(listens, None))),
                // A peer that has gone needs no answer.
                None => drop(self.refuse_request(end, &[], now)),
            }
        }
        while let Some(end) = self.core.changed() {
            self.news = true;
            heard = true;
            let Some(story) = self.core.stories.get_mut(&end) else { continue };
            let (gone, left) = (story.gone, mem::take(&mut story.left));
            let (connected, failed) = (story.connected.take(), story.failed.take());
            match self.ends.of.get_mut(&end) {
                Some(EndUse::Manager(listens, again)) => {
                    let listens = listens.clone();
                    match (&failed, again) {
                        (Some(ConnectError::Unreachable | ConnectError::Lost), Some(again))
                            if again.refused < PAUSES_MS.len() =>
                        {
                            again.pauses = true;
                            let at = now + Duration::from_millis(PAUSES_MS[again.refused]);
                            self.ask_at(at, end);
                            continue;
                        }
                        (Some(ConnectError::Lost), Some(again)) if again.offers => {
                            let again = Again { offers: false, ..(**again).clone() };
                            self.ask_again(end, listens, again, now);
                            continue;
                        }
                        (_, Some(again)) if again.pauses => continue,
                        _ => {}
                    }
                    self.tell_manager(&*listens, end, connected, failed, gone || left);
                }
                Some(&mut EndUse::Meeting(qp)) => {
                    if let Some(answer) = connected.filter(|answer| !answer.is_empty()) {
                        self.on_met(qp, end, &answer, now);
                    }
                    if failed.is_some() || gone {
                        self.ends.of.remove(&end);
                        self.on_parted(qp, end, now);
                    }
                }
                Some(EndUse::Held) if gone => {
                    self.ends.of.remove(&end);
                    self.forget_held(end);
                    self.core.forget(end, now);
                }
                Some(EndUse::Refused) | None if gone => {
                    self.ends.of.remove(&end);
                    self.core.forget(end, now);
                }
                _ => {}
            }
        }
        heard
    }

    /// A pause is over.
    pub(super) fn after_pause(&mut self, end: u32, now: Instant) {
        if let Some(EndUse::Manager(listens, Some(again))) = self.ends.of.get(&end)
            && again.pauses
        {
            let again = Again { refused: again.refused + 1, pauses: false, ..(**again).clone() };
            self.ask_again(end, listens.clone(), again, now);
            self.news = true;
        }
    }

    fn ask_again(&mut self, end: u32, listens: Arc<dyn Listens>, again: Again, now: Instant) {
        self.ends.of.remove(&end);
        self.core.forget(end, now);
        let config = manager_config(again.offers);
        match self.core.connect(again.way, &config, again.qp, again.depths, &again.private_data, now) {
            Ok(Ok(to)) => {
                let local = self.core.local_address(to);
                listens.told(Told::Moved { end, to, local });
                self.ends.of.insert(to, EndUse::Manager(listens, Some(Box::new(again))));
            }
            _ => drop(listens.told(Told::Failed { end, error: ConnectError::Lost })),
        }
    }

    fn tell_manager(
        &mut self,
        listens: &dyn Listens,
        end: u32,
        connected: Option<Vec<u8>>,
        failed: Option<ConnectError>,
        gone: bool,
    ) {
        if let Some(private_data) = connected {
            let qp = self.core.nic.qp_of(end);
            let traits = qp.and_then(|qp| self.core.nic.core.query_qp(qp).ok()).map(|(.., traits)| traits);
            let depths = traits.map_or((0, 0), |traits| (traits.ird, traits.ord));
            listens.told(Told::Connected { end, private_data, depths });
        }
        if let Some(error) = failed {
            listens.told(Told::Failed { end, error });
        } else if gone {
            listens.told(Told::Gone { end });
        }
    }

    /// The queue pair of a connection is destroyed: its manager hears that it is over.
    pub(super) fn end_without_qp(&mut self, end: u32, now: Instant) {
        self.core.part(end, now);
        if let Some(EndUse::Manager(listens, _)) = self.ends.of.remove(&end) {
            listens.told(Told::Gone { end });
            self.news = true;
        }
    }
}
