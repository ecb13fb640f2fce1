//! Queue pairs of the board's NIC: their states, and their connections out of band.

use super::super::ends::{CmEvent, EndUse};
use super::super::engine_state::EngineState;
use super::super::pairs::{Entry, OobConnection, Peer, QueuePair, Sending, Service, State, Timer};
use super::super::queue_pairs::ONLY_RECEIVES;
use super::state::{INDICES, OobPort};
use kiban_base::Instant;
use kiban_rdma::hif::Request;
use kiban_rdma::rnic::RequestError;
use kiban_rdma::wire::oob_setup::OobSetup;
use std::cmp::Reverse;
use std::net::{IpAddr, SocketAddr};

impl EngineState {
    /// Records the port at which the board listens for out-of-band connections to an address.
    pub(super) fn add_oob_port(&mut self, address: IpAddr, listener: u32, port: u16) {
        let Some(board) = &mut self.board else { return };
        board.ports.entry(address).or_insert(OobPort { listener, port, next: 0, used: [false; INDICES] });
    }

    pub(super) fn has_oob_port(&self, address: IpAddr) -> bool {
        self.board.as_ref().is_some_and(|board| board.ports.contains_key(&address))
    }

    /// Returns a free number for a queue pair. Numbers are reused as late as possible.
    fn take_board_number(&mut self, address: IpAddr, qp: u32) -> Option<u32> {
        let board = self.board.as_mut()?;
        let Some(port) = board.ports.get_mut(&address) else {
            // No connections out of band: any number will do.
            return Some(qp & 0xff_ffff);
        };
        let index = (port.next..INDICES).chain(0..port.next).find(|&index| !port.used[index])?;
        port.used[index] = true;
        port.next = (index + 1) % INDICES;
        Some(u32::from(port.port) << 8 | index as u32)
    }

    /// Names a queue pair that the board has created. Returns its number, or `None` if there are too many.
    pub(super) fn add_board_qp(&mut self, qp: u32, made: QueuePair) -> Option<u32> {
        let QueuePair { address, service, attributes, async_events: events, cookie } = made;
        let qpn = self.take_board_number(address, qp)?;
        self.qps.names.insert((address, qpn), qp);
        let state = State::Reset;
        let entry =
            Entry { qpn, address, service, events, cookie, state, oob: None, end: None, qkey: 0, attributes };
        self.qps.entries.insert(qp, entry);
        if let Some(board) = &mut self.board {
            board.nic.add_qp(qp, attributes);
        }
        Some(qpn)
    }

    /// Forgets a queue pair that is being destroyed. Its connection ends in order.
    pub(super) fn remove_board_qp(&mut self, qp: u32) -> Result<(), RequestError> {
        let entry = self.qps.entries.remove(&qp).ok_or(RequestError::UnknownQp)?;
        self.qps.names.remove(&(entry.address, entry.qpn));
        let Some(board) = &mut self.board else { return Ok(()) };
        if let Some(port) = board.ports.get_mut(&entry.address)
            && entry.qpn >> 8 == u32::from(port.port)
        {
            port.used[entry.qpn as usize % INDICES] = false;
        }
        board.connected.remove(&qp);
        board.failed.remove(&qp);
        board.nic.remove_qp(qp);
        // The connection manager's identifier may still refer to the connection.
        let ends: Vec<u32> =
            board.qp_of_end.iter().filter(|(_, of)| **of == qp).map(|(&end, _)| end).collect();
        for end in ends {
            board.qp_of_end.remove(&end);
            board.nic.forget_end(end);
            if let Some(EndUse::Manager(listens, _)) = self.ends.of.remove(&end) {
                listens.on_event(CmEvent::Disconnected { end });
                self.has_events = true;
            }
        }
        if let Some(end) = entry.end {
            board.nic.forget_end(end);
            self.ends.of.remove(&end);
        }
        Ok(())
    }

    /// Returns the state of a queue pair of the board's NIC.
    pub(in super::super) fn board_state(&self, qp: u32) -> Result<State, RequestError> {
        let entry = self.qps.entries.get(&qp).ok_or(RequestError::UnknownQp)?;
        let Some(board) = &self.board else { return Ok(entry.state) };
        Ok(match (board.failed.contains(&qp) || board.nic.has_gone, &entry.oob) {
            (true, _) => State::Error,
            (false, None) if board.connected.contains(&qp) => State::Rts,
            _ => entry.state,
        })
    }

    /// Records that a queue pair has failed or its connection has ended.
    pub(in super::super) fn board_qp_failed(&mut self, qp: u32) {
        if let Some(board) = &mut self.board {
            board.failed.insert(qp);
        }
    }

    pub(super) fn ready_to_receive_on_board(
        &mut self,
        qp: u32,
        peer: Option<Peer>,
        now: Instant,
    ) -> Result<(), RequestError> {
        let entry = self.entry(qp, State::Init)?;
        let Some(peer) = peer else { return Err(RequestError::BadAddress) };
        let calls = (entry.address, entry.qpn) > (peer.address, peer.qpn);
        entry.state = State::Rtr;
        entry.oob = Some(OobConnection {
            peer,
            ours: None,
            connect_timeout: None,
            calls,
            pause: super::super::oob::PAUSE.0,
            theirs: None,
        });
        let acknowledges = entry.service == Service::Connected;
        if let Some(board) = &mut self.board {
            board.nic.tell(&Request::Prepare { qp, acknowledges, depths: None });
        }
        if calls {
            self.qps.timers.push(Reverse((now + ONLY_RECEIVES, Timer::ConnectRetry(qp))));
        } else {
            self.retry_pending(qp, now);
        }
        Ok(())
    }

    pub(super) fn ready_to_send_on_board(
        &mut self,
        qp: u32,
        sending: Sending,
        now: Instant,
    ) -> Result<(), RequestError> {
        let Sending { initial_psn: begins, reads, connect_timeout: patience, .. } = sending;
        let entry = self.entry(qp, State::Rtr)?;
        entry.state = State::Rts;
        let acknowledges = entry.service == Service::Connected;
        let Some(seat) = &mut entry.oob else { return Ok(()) };
        seat.ours = Some((begins, reads));
        seat.connect_timeout = patience;
        let (peer, calls) = (seat.peer, seat.calls);
        match seat.theirs {
            // The two queue pairs are already connected; only now check that the peer expects our initial
            // PSN.
            Some(theirs) if theirs.expects == begins => return Ok(()),
            Some(_) => return self.set_error_on_board(qp),
            None => {}
        }
        if let Some(board) = &mut self.board {
            let depths = Some((peer.reads, reads));
            board.nic.tell(&Request::Prepare { qp, acknowledges, depths });
        }
        if let Some(patience) = patience {
            self.qps.timers.push(Reverse((now + patience, Timer::ConnectTimeout(qp))));
        }
        match calls {
            true => self.call(qp, now),
            false => self.retry_pending(qp, now),
        }
        Ok(())
    }

    /// Connects to the peer of a queue pair out of band.
    pub(in super::super) fn call_from_board(&mut self, qp: u32, to: SocketAddr, setup: &OobSetup) {
        let Some(seat) = self.qps.entries.get(&qp).and_then(|entry| entry.oob.as_ref()) else { return };
        let depths = (seat.peer.reads, seat.ours.map_or(0, |(_, ours)| ours));
        let private_data = setup.bytes().to_vec();
        let Some(board) = &mut self.board else { return };
        let transport = board.nic.transport();
        let request = Request::Connect { transport, remote: to, qp, depths, private_data };
        let is_calling = |of: &EndUse| matches!(of, EndUse::Meeting(other) if *other == qp);
        if !board.connecting.values().any(is_calling)
            && let Ok(number) = board.nic.ask(&request)
        {
            board.connecting.insert(number, EndUse::Meeting(qp));
        }
    }

    /// Moves a queue pair to Error: work is flushed and its connection is cut.
    pub(in super::super) fn set_error_on_board(&mut self, qp: u32) -> Result<(), RequestError> {
        let entry = self.qps.entries.get_mut(&qp).ok_or(RequestError::UnknownQp)?;
        entry.state = State::Error;
        entry.oob = None;
        let end = entry.end.take();
        let Some(board) = &mut self.board else { return Ok(()) };
        board.failed.insert(qp);
        board.nic.tell(&Request::AbortQp { qp });
        if let Some(end) = end {
            self.ends.of.remove(&end);
            board.nic.release(end);
        }
        Ok(())
    }

    /// Returns a queue pair that the board has reset to its initial state.
    pub(super) fn reset_on_board(&mut self, qp: u32) {
        let Some(entry) = self.qps.entries.get_mut(&qp) else { return };
        entry.state = State::Reset;
        if let Some(board) = &mut self.board {
            board.failed.remove(&qp);
            board.connected.remove(&qp);
            board.nic.reset_qp(qp);
        }
    }

    /// Gives up a queue pair whose peer does not connect, or has left.
    pub(in super::super) fn give_up(&mut self, qp: u32) {
        match &mut self.board {
            Some(board) => {
                board.failed.insert(qp);
                board.nic.tell(&Request::GiveUp { qp });
            }
            // This fails if the queue pair no longer expects anything.
            None => drop(self.core.nic.core.give_up(qp)),
        }
    }
}
