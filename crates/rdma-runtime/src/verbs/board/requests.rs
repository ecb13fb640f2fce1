//! Calls of the engine that the board answers.

use super::super::ends::{CmEventHandler, EndUse, Retry};
use super::super::engine::Engine;
use super::super::engine_state::EngineState;
use super::super::events::{AsyncEvent, CqChannels};
use super::super::pairs::{Peer, QueuePair, Sending};
use super::super::{Channel, Features, Wire};
use super::state::{BoardAccess, BoardVerbs};
use crate::board_nic::BoardNic;
use crate::error::Error;
use crate::linked_nic::Route;
use kiban_base::Region;
use kiban_os::lock;
use kiban_os::turn::{HelperPolicy, Turn};
use kiban_rdma::hif::{Answer, CompletionRing, PIECES_MAX, Request, Transport};
use kiban_rdma::nic::OpenError;
use kiban_rdma::rnic::{Access, ReceiveWork, RequestError, SendWork};
use std::io::{self, Write, stderr};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

/// How long a board may take to reply. It replies at its next turn unless it has stopped.
const REPLY: Duration = Duration::from_secs(10);
/// The queue of threads that wait for a reply.
const REPLIES: RawFd = -1;
/// Maximum number of a board's addresses that become devices.
const ADDRESSES_MAX: u32 = 64;

/// Writes why the board refuses a call, because verbs have only an error number for it.
fn say(error: &dyn std::fmt::Display) {
    // If the line cannot be written, the program still gets the error.
    let _ = writeln!(stderr(), "kiban: the board's NIC: {error}");
}

fn request_error(error: Error) -> RequestError {
    match error {
        Error::Refused(refusal) => refusal,
        error => {
            say(&error);
            RequestError::TooMany
        }
    }
}

fn io_error(error: Error) -> io::Error {
    match error {
        Error::Os(error) => error,
        error => io::Error::other(error.to_string()),
    }
}

/// Works on the board's NIC. The engine has one.
fn on_board<T>(state: &mut EngineState, work: impl FnOnce(&mut BoardVerbs) -> T) -> T {
    work(state.board.as_mut().expect("the engine was opened on a board"))
}

impl Engine {
    /// Opens the NIC of the running board with this name, or whose socket has this path, which contains a
    /// `/`; without a name, that of the only board with such a NIC.
    ///
    /// # Errors
    /// There is no such board, or it refuses.
    pub fn open_on_board(name: Option<&str>, transport: Transport) -> io::Result<Engine> {
        let features = Features { extensions: true, shared_memory: false, wire: Wire::Tcp };
        let mut access = None;
        let turn = Turn::new("kiban-verbs", HelperPolicy::ALERT, |epoll| {
            let (nic, door) = BoardNic::attach(name, transport, epoll)?;
            access = Some(BoardAccess::new(door));
            EngineState::open(super::super::engine::config(usize::MAX), features, Some(nic), epoll)
        })?;
        Ok(Engine { turn, board: access.map(Arc::new) })
    }

    /// Returns whether the NIC is that of a board.
    pub fn is_on_board(&self) -> bool {
        self.board.is_some()
    }

    /// Returns the board's addresses.
    ///
    /// # Errors
    /// The board has ended.
    pub fn board_addresses(&self) -> io::Result<Vec<IpAddr>> {
        let mut addresses = Vec::new();
        for index in 0..ADDRESSES_MAX {
            match self.request(&Request::QueryAddress { index }) {
                Ok(Answer::Address(address)) => addresses.push(address),
                Err(error) if addresses.is_empty() => return Err(io_error(error)),
                _ => break,
            }
        }
        Ok(addresses)
    }

    /// Sends a request to the board and waits for the reply.
    fn request(&self, request: &Request) -> Result<Answer, Error> {
        let number = self.turn.work(|state, _| on_board(state, |board| board.nic.ask(request)))?;
        let look = |state: &mut EngineState| on_board(state, |board| board.nic.reply(number));
        let reply = self.turn.wait(REPLIES, None, REPLY, look);
        if reply.is_err() {
            self.turn.work(|state, _| on_board(state, |board| board.nic.forget_reply(number)));
        }
        reply?
    }

    /// Sends a request to the board. Returns the number in its reply.
    pub(in super::super) fn ask(&self, request: &Request) -> Result<u32, RequestError> {
        match self.request(request).map_err(request_error)? {
            Answer::Number(number) => Ok(number),
            _ => Err(RequestError::OtherKind),
        }
    }

    // ---- memory

    pub(in super::super) fn reg_mr_on_board(
        &self,
        access: &BoardAccess,
        pd: u32,
        memory: &Region,
        address: u64,
        rights: Access,
    ) -> Result<u32, RequestError> {
        let (base, bytes) = memory.raw();
        let start = base.as_ptr().addr();
        let mut pages = lock(&access.pages);
        let exclusive = |work: &mut dyn FnMut()| self.turn.work(|_, _| work());
        let pieces = pages.share(&access.door, &(start..start + bytes), &exclusive);
        let registered = match pieces {
            Ok(pieces) => {
                debug_assert!(pieces.len() <= PIECES_MAX, "the pages count them");
                let request = Request::Register { pd, pieces: pieces.clone(), address, access: rights };
                self.ask(&request).inspect(|&key| pages.add_region(key, &pieces))
            }
            Err(error) => {
                say(&error);
                Err(RequestError::BadAddress)
            }
        };
        self.unshare(pages.take_unused(&exclusive));
        registered
    }

    pub(in super::super) fn dereg_mr_on_board(
        &self,
        access: &BoardAccess,
        key: u32,
    ) -> Result<(), RequestError> {
        let mut pages = lock(&access.pages);
        self.ask(&Request::Deregister { stag: key, unbinds: false })?;
        let exclusive = |work: &mut dyn FnMut()| self.turn.work(|_, _| work());
        self.unshare(pages.remove_region(key, &exclusive));
        Ok(())
    }

    fn unshare(&self, memories: Vec<u32>) {
        self.turn.work(|state, _| {
            on_board(state, |board| {
                memories.into_iter().for_each(|memory| board.nic.tell(&Request::Unshare { memory }));
            });
        });
    }

    // ---- queues

    pub(in super::super) fn create_cq_on_board(
        &self,
        access: &BoardAccess,
        entries: usize,
        tells: CqChannels,
    ) -> Result<u32, RequestError> {
        if entries > self.bounds().cq_entries_max {
            return Err(RequestError::TooMany);
        }
        let ring = access.door.share(CompletionRing::new(entries).bytes());
        let (memory, ring) = ring.map_err(|error| request_error(error.into()))?;
        let cq = self.ask(&Request::CreateCq { memory, entries: entries as u32 })?;
        self.turn.work(|state, _| {
            on_board(state, |board| board.nic.add_cq(cq, ring, entries));
            state.cqs.insert(cq, tells);
        });
        Ok(cq)
    }

    pub(in super::super) fn destroy_cq_on_board(&self, cq: u32) -> Result<(), RequestError> {
        self.ask(&Request::DestroyCq { cq })?;
        self.turn.work(|state, _| {
            on_board(state, |board| board.nic.remove_cq(cq));
            state.cqs.remove(&cq);
        });
        Ok(())
    }

    pub(in super::super) fn create_srq_on_board(
        &self,
        pd: u32,
        entries: usize,
        events: Arc<Channel<AsyncEvent>>,
        cookie: u64,
    ) -> Result<u32, RequestError> {
        let srq = self.ask(&Request::CreateSrq { pd, work_max: entries.try_into().unwrap_or(u32::MAX) })?;
        self.turn.work(|state, _| {
            on_board(state, |board| board.nic.add_srq(srq, entries));
            state.srqs.insert(srq, (events, cookie));
        });
        Ok(srq)
    }

    pub(in super::super) fn set_srq_limit_on_board(
        &self,
        srq: u32,
        limit: usize,
    ) -> Result<(), RequestError> {
        self.ask(&Request::SetSrqLimit { srq, limit: limit.try_into().unwrap_or(u32::MAX) })?;
        self.turn.work(|state, _| on_board(state, |board| board.srq_limits.insert(srq, limit)));
        Ok(())
    }

    pub(in super::super) fn destroy_srq_on_board(&self, srq: u32) -> Result<(), RequestError> {
        self.ask(&Request::DestroySrq { srq })?;
        self.turn.work(|state, _| {
            on_board(state, |board| {
                board.nic.remove_srq(srq);
                board.srq_limits.remove(&srq);
            });
            state.srqs.remove(&srq);
        });
        Ok(())
    }

    // ---- queue pairs

    pub(in super::super) fn create_qp_on_board(
        &self,
        made: QueuePair,
    ) -> io::Result<Result<(u32, u32), RequestError>> {
        let address = made.address;
        let has_port = self.turn.read(|state| state.has_oob_port(address));
        let transport = self.turn.read(EngineState::board_transport);
        if !has_port && transport != Transport::Roce {
            let listen = Request::Listen { transport, local: SocketAddr::new(address, 0) };
            if let Answer::Listening { listener, local } = self.request(&listen).map_err(io_error)? {
                self.turn.work(|state, _| state.add_oob_port(address, listener, local.port()));
            }
        }
        let qp = match self.ask(&Request::CreateQp { attributes: made.attributes }) {
            Ok(qp) => qp,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let Some(qpn) = self.turn.work(|state, _| state.add_board_qp(qp, made)) else {
            let _ = self.ask(&Request::DestroyQp { qp });
            return Ok(Err(RequestError::TooMany));
        };
        Ok(Ok((qp, qpn)))
    }

    pub(in super::super) fn destroy_qp_on_board(&self, qp: u32) -> Result<(), RequestError> {
        self.turn.work(|state, _| state.remove_board_qp(qp))?;
        self.ask(&Request::DestroyQp { qp }).map(drop)
    }

    pub(in super::super) fn modify_to_rtr_on_board(
        &self,
        qp: u32,
        peer: Option<Peer>,
    ) -> Result<(), RequestError> {
        self.turn.work(|state, now| state.ready_to_receive_on_board(qp, peer, now))
    }

    pub(in super::super) fn modify_to_rts_on_board(
        &self,
        qp: u32,
        sending: Sending,
    ) -> Result<(), RequestError> {
        self.turn.work(|state, now| state.ready_to_send_on_board(qp, sending, now))
    }

    pub(in super::super) fn reset_qp_on_board(&self, qp: u32) -> Result<(), RequestError> {
        self.turn.work(|state, _| state.set_error_on_board(qp))?;
        self.ask(&Request::ResetQp { qp })?;
        self.turn.work(|state, _| state.reset_on_board(qp));
        Ok(())
    }

    pub(in super::super) fn post_sends_on_board(
        &self,
        qp: u32,
        works: impl IntoIterator<Item = SendWork>,
    ) -> Result<(), (usize, RequestError)> {
        self.turn.work(|state, _| {
            on_board(state, |board| {
                for (taken, work) in works.into_iter().enumerate() {
                    board.nic.post_send(qp, work).map_err(|error| (taken, request_error(error)))?;
                }
                Ok(())
            })
        })
    }

    pub(in super::super) fn post_sends_together_on_board(
        &self,
        qp: u32,
        works: impl ExactSizeIterator<Item = SendWork>,
    ) -> Result<(), RequestError> {
        self.turn.work(|state, _| {
            on_board(state, |board| {
                if board.nic.room_for_sends(qp) < works.len() {
                    return Err(RequestError::Full);
                }
                works.into_iter().try_for_each(|work| board.nic.post_send(qp, work).map_err(request_error))
            })
        })
    }

    /// Posts receives to a queue pair, or to a shared receive queue.
    pub(in super::super) fn post_receives_on_board(
        &self,
        (qp, srq): (u32, Option<u32>),
        works: impl IntoIterator<Item = ReceiveWork>,
    ) -> Result<(), (usize, RequestError)> {
        self.turn.work(|state, _| {
            on_board(state, |board| {
                for (taken, work) in works.into_iter().enumerate() {
                    let posted = match srq {
                        Some(srq) => board.nic.post_srq_receive(srq, work),
                        None => board.nic.post_receive(qp, work),
                    };
                    posted.map_err(|error| (taken, request_error(error)))?;
                }
                Ok(())
            })
        })
    }

    // ---- connections

    /// Listens at an address of the board for requests of the connection manager; port 0 lets the board
    /// choose. Returns the listener's number and its address.
    ///
    /// # Errors
    /// The address is in use, or is not the board's.
    pub fn listen_on_board(
        &self,
        local: SocketAddr,
        listens: Arc<dyn CmEventHandler>,
    ) -> io::Result<(u32, SocketAddr)> {
        let transport = self.turn.read(EngineState::board_transport);
        match self.request(&Request::Listen { transport, local }).map_err(io_error)? {
            Answer::Listening { listener, local } => {
                self.turn.work(|state, _| state.listeners.of.insert(listener, (listens, local.port())));
                Ok((listener, local))
            }
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    pub(in super::super) fn unlisten_on_board(&self, listener: u32) {
        self.turn.work(|state, _| {
            on_board(state, |board| board.nic.unlisten(listener));
            state.listeners.of.remove(&listener);
        });
    }

    pub(in super::super) fn connect_on_board(
        &self,
        qp: u32,
        remote: SocketAddr,
        depths: (u16, u16),
        private_data: &[u8],
        listens: Arc<dyn CmEventHandler>,
    ) -> io::Result<Result<u32, OpenError>> {
        let transport = self.turn.read(EngineState::board_transport);
        let private_data = private_data.to_vec();
        let request = Request::Connect { transport, remote, qp, depths, private_data: private_data.clone() };
        let end = match self.request(&request) {
            Ok(Answer::Number(end)) => end,
            Ok(_) => return Ok(Err(OpenError::Gone)),
            Err(Error::Open(error)) => return Ok(Err(error)),
            Err(error) => return Err(io_error(error)),
        };
        let again = Retry {
            offers: false,
            refused: 0,
            pauses: false,
            qp,
            route: Route { to: remote.into(), from: None },
            depths,
            private_data,
            before: None,
        };
        self.turn.work(|state, _| {
            state.set_board_qp(end, qp);
            state.own_board_end(end, EndUse::Manager(listens, Some(Box::new(again))));
        });
        Ok(Ok(end))
    }

    pub(in super::super) fn accept_on_board(
        &self,
        end: u32,
        qp: u32,
        depths: (u16, u16),
        private_data: &[u8],
    ) -> Result<(), OpenError> {
        self.turn.work(|state, _| state.set_board_qp(end, qp));
        let request = Request::Accept { end, qp, depths, private_data: private_data.to_vec() };
        self.request(&request).map(drop).map_err(|error| {
            say(&error);
            OpenError::Gone
        })
    }

    pub(in super::super) fn tell_board(&self, request: &Request) {
        self.turn.work(|state, _| on_board(state, |board| board.nic.tell(request)));
    }
}
