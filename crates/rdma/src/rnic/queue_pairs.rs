//! Operations on queue pairs: their life cycle, and posting work.

use super::config::Config;
use super::control::completion;
use super::control::datagram::DatagramState;
use super::control::qp::Qp;
use super::control::state::{Post, QpAttributes, QpState, StreamAction, StreamTraits};
use super::device::Rnic;
use super::error::RequestError;
use super::event::Event;
use super::work::{Access, Data, Kind, ReceiveWork, SendWork, Status};
use crate::wire::datagram::QP_MAX;

impl Rnic {
    /// Creates a queue pair for a stream.
    ///
    /// # Errors
    /// [`RequestError::TooMany`] for attributes beyond the limits in [`Config`], or if there are
    /// [`Config::qps_max`] queue pairs; [`RequestError::UnknownPd`]; [`RequestError::UnknownCq`];
    /// [`RequestError::UnknownSrq`]; [`RequestError::OtherKind`] for an XRC shared receive queue;
    /// [`RequestError::OtherPd`].
    pub fn create_qp(&mut self, attributes: QpAttributes) -> Result<u32, RequestError> {
        let QpAttributes { pd, send_cq, receive_cq, srq, .. } = attributes;
        let Config { work_max, sges_max, inline_bytes_max, .. } = self.config;
        let work = attributes.send_work_max.max(attributes.receive_work_max);
        let sges = attributes.send_sges_max.max(attributes.receive_sges_max);
        if work > work_max || sges > sges_max || attributes.inline_bytes_max > inline_bytes_max {
            return Err(RequestError::TooMany);
        }
        if self.outputs.cqs.get(send_cq).is_none() || self.outputs.cqs.get(receive_cq).is_none() {
            return Err(RequestError::UnknownCq);
        }
        match srq.map(|srq| self.srqs.get(srq)) {
            Some(None) => return Err(RequestError::UnknownSrq),
            Some(Some(srq)) if srq.xrc.is_some() => return Err(RequestError::OtherKind),
            // The receives in a shared receive queue refer to memory in that queue's protection domain.
            Some(Some(srq)) if srq.pd != pd => return Err(RequestError::OtherPd),
            _ => {}
        }
        self.smt.hold_pd(pd)?;
        let number = self.add_qp(Qp::new(0, attributes)).inspect_err(|_| self.smt.release_pd(pd))?;
        for cq in [send_cq, receive_cq] {
            if let Some(cq) = self.outputs.cqs.get_mut(cq) {
                cq.users += 1;
            }
        }
        if let Some(srq) = srq.and_then(|srq| self.srqs.get_mut(srq)) {
            srq.users += 1;
        }
        Ok(number)
    }

    /// Adds a queue pair, which gets its number.
    pub(super) fn add_qp(&mut self, qp: Qp) -> Result<u32, RequestError> {
        let number = self.qps.insert(qp).ok_or(RequestError::TooMany)?;
        if let Some(qp) = self.qps.get_mut(number) {
            (qp.number, qp.qpn) = (number, number);
        }
        Ok(number)
    }

    /// Creates a datagram queue pair. It neither receives nor sends until [`Rnic::set_datagram_state`]
    /// allows it. Incoming datagrams never wait for receives.
    ///
    /// # Errors
    /// Same as for [`Rnic::create_qp`].
    pub fn create_datagram_qp(&mut self, attributes: QpAttributes) -> Result<u32, RequestError> {
        let number = self.create_qp(attributes)?;
        if let Some(qp) = self.qps.get_mut(number) {
            qp.datagram = Some(DatagramState::default());
        }
        Ok(number)
    }

    /// Sets whether a datagram queue pair receives and sends, and its Q_Key. Also restarts a send queue that
    /// a send error stopped. Its number ([`Rnic::set_qpn`]) must fit in 24 bits before it may receive or
    /// send. Posted work stays queued and is sent when allowed.
    ///
    /// # Errors
    /// [`RequestError::UnknownQp`]; [`RequestError::OtherKind`] for a stream's queue pair;
    /// [`RequestError::BadNumber`] if the number exceeds 24 bits; [`RequestError::BadState`] if the queue
    /// pair has ended.
    pub fn set_datagram_state(
        &mut self,
        qp: u32,
        receives: bool,
        sends: bool,
        qkey: u32,
    ) -> Result<(), RequestError> {
        let (qp, outputs) = self.qp(qp)?;
        match (&mut qp.datagram, qp.state) {
            (None, _) => Err(RequestError::OtherKind),
            (Some(_), QpState::Idle) if (receives || sends) && qp.qpn > QP_MAX => {
                Err(RequestError::BadNumber)
            }
            (Some(state), QpState::Idle) => {
                *state = DatagramState { receives, sends, stopped: false, qkey };
                qp.schedule(outputs);
                Ok(())
            }
            (Some(_), state) => Err(RequestError::BadState(state)),
        }
    }

    /// Returns the state of a datagram queue pair.
    ///
    /// # Errors
    /// [`RequestError::UnknownQp`]; [`RequestError::OtherKind`] for a stream's queue pair.
    pub fn datagram_state(&self, qp: u32) -> Result<DatagramState, RequestError> {
        self.qps.get(qp).ok_or(RequestError::UnknownQp)?.datagram.ok_or(RequestError::OtherKind)
    }

    /// Destroys a queue pair. Its work is dropped without completions, but completions already queued stay.
    /// The caller must end its stream, if it has one.
    ///
    /// # Errors
    /// [`RequestError::UnknownQp`].
    pub fn destroy_qp(&mut self, qp: u32) -> Result<(), RequestError> {
        let gone = self.qps.remove(qp).ok_or(RequestError::UnknownQp)?;
        gone.release(&mut self.smt, &mut self.srqs, &mut self.outputs);
        if let Some(domain) = gone.xrc_domain.and_then(|domain| self.xrc_domains.get_mut(domain)) {
            domain.users -= 1;
        }
        if let Some(srq) = gone.attributes.srq.and_then(|srq| self.srqs.get_mut(srq)) {
            srq.waiters.retain(|&waits| waits != qp);
        }
        self.outputs.remove_from_tx_queue(qp);
        Ok(())
    }

    /// Returns a queue pair's creation attributes, its state, and the traits agreed on with the peer.
    ///
    /// # Errors
    /// [`RequestError::UnknownQp`].
    pub fn query_qp(&self, qp: u32) -> Result<(QpAttributes, QpState, StreamTraits), RequestError> {
        self.qps.get(qp).ok_or(RequestError::UnknownQp).map(|qp| (qp.attributes, qp.state, qp.traits))
    }

    /// Sets the number reported in a queue pair's completions, for a host that assigns its own numbers. It
    /// survives a reset. Events still report the NIC's number. Datagrams carry this number as their source
    /// and destination.
    ///
    /// # Errors
    /// [`RequestError::UnknownQp`]; [`RequestError::BadNumber`] if a datagram queue pair's number exceeds 24
    /// bits.
    pub fn set_qpn(&mut self, qp: u32, name: u32) -> Result<(), RequestError> {
        let (qp, _) = self.qp(qp)?;
        if qp.datagram.is_some() && name > QP_MAX {
            return Err(RequestError::BadNumber);
        }
        qp.qpn = name;
        Ok(())
    }

    /// Attaches an established stream: the queue pair becomes ready to send.
    ///
    /// # Errors
    /// [`RequestError::UnknownQp`]; [`RequestError::OtherKind`] for a datagram queue pair;
    /// [`RequestError::BadState`] unless the queue pair is idle.
    pub fn connect(&mut self, qp: u32, traits: StreamTraits) -> Result<(), RequestError> {
        let traits = self.bounded(traits);
        let (qp, outputs) = self.qp(qp)?;
        if qp.datagram.is_some() {
            return Err(RequestError::OtherKind);
        }
        if qp.state != QpState::Idle {
            return Err(RequestError::BadState(qp.state));
        }
        qp.state = QpState::Rts;
        qp.traits = StreamTraits { kiban: traits.kiban || qp.peer_is_kiban, ..traits };
        qp.is_expecting = false;
        qp.schedule(outputs);
        Ok(())
    }

    fn bounded(&self, traits: StreamTraits) -> StreamTraits {
        let Config { ird_max, ord_max, .. } = self.config;
        StreamTraits { ird: traits.ird.min(ird_max), ord: traits.ord.min(ord_max), ..traits }
    }

    /// Declares that the queue pair's peer is a kiban NIC, which the caller knows by other means. Until the
    /// queue pair is reset, kiban's own messages may be sent and are accepted. Both ends must declare it
    /// before the first such message arrives, preferably before they connect.
    ///
    /// # Errors
    /// [`RequestError::UnknownQp`].
    pub fn set_peer_is_kiban(&mut self, qp: u32) -> Result<(), RequestError> {
        let (qp, _) = self.qp(qp)?;
        qp.peer_is_kiban = true;
        qp.traits.kiban = true;
        Ok(())
    }

    /// Declares that a stream is being set up. Sends may now be posted; they are checked against `traits`
    /// and wait for the stream. [`Rnic::connect`] starts them. If the final traits do not allow a send, it
    /// ends with [`Status::LocalOperation`] when its turn comes, and the queue pair fails. [`Rnic::give_up`]
    /// and [`Rnic::reset`] end the wait.
    ///
    /// # Errors
    /// Same as for [`Rnic::connect`].
    pub fn expect_stream(&mut self, qp: u32, traits: StreamTraits) -> Result<(), RequestError> {
        let traits = self.bounded(traits);
        let (qp, _) = self.qp(qp)?;
        if qp.datagram.is_some() {
            return Err(RequestError::OtherKind);
        }
        if qp.state != QpState::Idle {
            return Err(RequestError::BadState(qp.state));
        }
        qp.traits = StreamTraits { kiban: traits.kiban || qp.peer_is_kiban, ..traits };
        qp.is_expecting = true;
        Ok(())
    }

    /// Gives up the expected stream, or a peer that has left. The oldest work request ends as
    /// [`Status::Lost`], and all others are flushed.
    ///
    /// # Errors
    /// [`RequestError::UnknownQp`]; [`RequestError::BadState`] if no stream is expected and the peer has not
    /// left.
    pub fn give_up(&mut self, qp: u32) -> Result<(), RequestError> {
        let (qp, outputs) = self.qp(qp)?;
        if !qp.is_expecting && !qp.has_outlived_peer {
            return Err(RequestError::BadState(qp.state));
        }
        qp.give_up(outputs);
        qp.report_last_receive(outputs);
        self.fail_overrun();
        Ok(())
    }

    /// Keeps a connected queue pair alive if the peer closes its stream gracefully while no message is
    /// incomplete. Receives stay posted, and the next send ends as lost. This imitates InfiniBand, where a
    /// peer cannot close a queue pair.
    ///
    /// # Errors
    /// [`RequestError::UnknownQp`].
    pub fn outlive_peer_close(&mut self, qp: u32) -> Result<(), RequestError> {
        self.qp(qp).map(|(qp, _)| qp.outlives_peer_close = true)
    }

    /// Announces that this end is leaving, if the peer uses acknowledgements. Without the announcement, the
    /// peer cannot distinguish the end of the stream from the death of this process.
    ///
    /// # Errors
    /// [`RequestError::UnknownQp`].
    pub fn announce_leave(&mut self, qp: u32) -> Result<(), RequestError> {
        let (qp, outputs) = self.qp(qp)?;
        if qp.acknowledges && qp.is_up() {
            qp.leave_pending = true;
            qp.schedule(outputs);
        }
        Ok(())
    }

    /// Completes a Write, a Send or immediate data only when the peer has acknowledged its arrival, as in
    /// InfiniBand, and acknowledges the peer's messages in turn. Both ends must be kiban NICs and must
    /// enable this before the first message.
    ///
    /// # Errors
    /// [`RequestError::UnknownQp`].
    pub fn acknowledge(&mut self, qp: u32) -> Result<(), RequestError> {
        self.qp(qp).map(|(qp, _)| qp.acknowledges = true)
    }

    /// Returns whether [`Rnic::acknowledge`] was called.
    pub fn acknowledges(&self, qp: u32) -> bool {
        self.qps.get(qp).is_some_and(|qp| qp.acknowledges)
    }

    /// Restricts peers' access to memory through this queue pair, in addition to the restrictions of the
    /// steering tags. By default, all access is allowed.
    ///
    /// # Errors
    /// [`RequestError::UnknownQp`].
    pub fn set_remote_access(&mut self, qp: u32, access: Access) -> Result<(), RequestError> {
        self.qp(qp).map(|(qp, _)| qp.allows = access)
    }

    /// Discards a queue pair's completions that have not been polled.
    pub fn forget_completions(&mut self, qp: u32) {
        let Ok((qp, outputs)) = self.qp(qp) else { return };
        for cq in [qp.attributes.send_cq, qp.attributes.receive_cq] {
            if let Some(cq) = outputs.cqs.get_mut(cq) {
                cq.entries.retain(|completion| completion.qp != qp.qpn);
            }
        }
    }

    /// Returns how many more sends may be posted.
    pub fn room_for_sends(&self, qp: u32) -> usize {
        self.qps.get(qp).map_or(0, |qp| qp.sq.room())
    }

    /// Returns whether posted sends are incomplete.
    pub fn has_sends(&self, qp: u32) -> bool {
        self.qps.get(qp).is_some_and(|qp| !qp.sq.is_empty())
    }

    /// Returns whether the queue pair outlived its peer's orderly close.
    pub fn has_outlived_peer(&self, qp: u32) -> bool {
        self.qps.get(qp).is_some_and(|qp| qp.has_outlived_peer)
    }

    /// Allows sending, because the peer is ready. (A responder must wait for the initiator's first message.)
    pub fn may_send(&mut self, qp: u32) {
        if let Ok((qp, outputs)) = self.qp(qp) {
            qp.traits.may_send = true;
            qp.schedule(outputs);
        }
    }

    /// Begins an orderly close: posted work is still sent, then the stream ends.
    ///
    /// # Errors
    /// [`RequestError::UnknownQp`]; [`RequestError::BadState`] unless the queue pair is connected or closing.
    pub fn disconnect(&mut self, qp: u32) -> Result<(), RequestError> {
        let (qp, outputs) = self.qp(qp)?;
        match qp.state {
            QpState::Rts => {
                qp.state = QpState::Closing;
                qp.sq.close();
                qp.complete_finished(outputs);
                self.fail_overrun();
                Ok(())
            }
            QpState::Closing => Ok(()),
            state => Err(RequestError::BadState(state)),
        }
    }

    /// Aborts the connection: work is flushed and the stream is cut, as after an error.
    ///
    /// # Errors
    /// [`RequestError::UnknownQp`].
    pub fn abort(&mut self, qp: u32) -> Result<(), RequestError> {
        let (qp, outputs) = self.qp(qp)?;
        qp.state = QpState::Error;
        qp.is_expecting = false;
        qp.terminate = None;
        qp.stream_action = StreamAction::Abort;
        qp.flush(outputs);
        qp.schedule(outputs);
        self.fail_overrun();
        Ok(())
    }

    /// Returns a queue pair that has ended, or that was never connected, to its initial state. Posted
    /// receives are dropped.
    ///
    /// # Errors
    /// [`RequestError::UnknownQp`]; [`RequestError::BadState`] unless the queue pair is idle or in error.
    pub fn reset(&mut self, qp: u32) -> Result<(), RequestError> {
        let (qp, outputs) = self.qp(qp)?;
        if !matches!(qp.state, QpState::Idle | QpState::Error) {
            return Err(RequestError::BadState(qp.state));
        }
        let datagram = qp.datagram.map(|_| DatagramState::default());
        let Qp { number, qpn, attributes, xrc_domain, .. } = *qp;
        *qp = Qp { qpn, datagram, xrc_domain, ..Qp::new(number, attributes) };
        outputs.remove_from_tx_queue(number);
        self.smt.release_windows(number);
        Ok(())
    }

    /// Posts a work request on the send queue. If the queue pair is closing or in error, the request is
    /// flushed; if a stream is being set up, it waits for the stream.
    ///
    /// # Errors
    /// [`RequestError::UnknownQp`]; [`RequestError::Full`]; [`RequestError::TooManyElements`];
    /// [`RequestError::TooMuchInline`]; [`RequestError::OtherKind`]; [`RequestError::BadState`] before the
    /// queue pair may send; [`RequestError::NotAgreed`]; [`RequestError::BadNumber`] if a datagram's
    /// destination exceeds 24 bits.
    #[inline]
    pub fn post_send(&mut self, qp: u32, work: SendWork) -> Result<(), RequestError> {
        let (qp, outputs) = self.qp(qp)?;
        if qp.sq.is_full() {
            return Err(RequestError::Full);
        }
        match &work.data {
            Data::Elements(sges) if sges.len() > qp.attributes.send_sges_max => {
                return Err(RequestError::TooManyElements);
            }
            Data::Inline(bytes)
                if bytes.len() > qp.attributes.inline_bytes_max || !work.operation.takes_inline() =>
            {
                return Err(RequestError::TooMuchInline);
            }
            _ => {}
        }
        match qp.validate_post(&work.operation)? {
            Post::AwaitsStream => qp.sq.push(work),
            Post::Queued => {
                let is_first = qp.sq.is_empty();
                qp.sq.push(work);
                if !qp.has_outlived_peer {
                    qp.schedule(outputs);
                } else if is_first {
                    outputs.event(Event::Abandoned { qp: qp.number });
                }
            }
            Post::FlushedInOrder => {
                qp.sq.push(work);
                qp.complete_finished(outputs);
                self.fail_overrun();
            }
            Post::Flushed => {
                let done = completion::of_send(qp.qpn, &work, Status::Flushed, 0);
                outputs.complete(qp.attributes.send_cq, done, false);
                self.fail_overrun();
            }
        }
        Ok(())
    }

    /// Posts a work request of the NIC's own, before any of the host's.
    pub(crate) fn post_quietly(&mut self, qp: u32, work: SendWork) -> Result<(), RequestError> {
        let (qp, outputs) = self.qp(qp)?;
        match qp.state {
            QpState::Rts => {
                qp.sq.push_quietly(work);
                qp.schedule(outputs);
                Ok(())
            }
            state => Err(RequestError::BadState(state)),
        }
    }

    /// Posts a receive. If the queue pair is in error, the receive is flushed.
    ///
    /// # Errors
    /// [`RequestError::UnknownQp`]; [`RequestError::Full`], also if the queue pair uses a shared receive
    /// queue; [`RequestError::TooManyElements`].
    #[inline]
    pub fn post_receive(&mut self, qp: u32, work: ReceiveWork) -> Result<(), RequestError> {
        let (qp, outputs) = self.qp(qp)?;
        if qp.attributes.srq.is_some() || qp.rq.wqes.len() >= qp.rq.most {
            return Err(RequestError::Full);
        }
        if work.sges.len() > qp.attributes.receive_sges_max {
            return Err(RequestError::TooManyElements);
        }
        if matches!(qp.state, QpState::Terminate | QpState::Error) {
            let done = completion::of_receive(qp.qpn, work.id, Status::Flushed, Kind::Receive, 0);
            outputs.complete(qp.attributes.receive_cq, done, true);
            self.fail_overrun();
            return Ok(());
        }
        qp.rq.wqes.push_back(work);
        if core::mem::take(&mut qp.rq.awaits_receive) {
            outputs.resumed.push(qp.number);
        }
        Ok(())
    }

    /// Completes a work request that [`Rnic::post_send`] refused, with [`Status::LocalOperation`]. This is
    /// for a host that learns of refusals only through completions.
    ///
    /// # Errors
    /// [`RequestError::UnknownQp`].
    pub fn complete_refused_send(&mut self, qp: u32, work: &SendWork) -> Result<(), RequestError> {
        let (qp, outputs) = self.qp(qp)?;
        let done = completion::of_send(qp.qpn, work, Status::LocalOperation, 0);
        outputs.complete(qp.attributes.send_cq, done, true);
        self.fail_overrun();
        Ok(())
    }

    /// Completes a receive that [`Rnic::post_receive`] refused, like [`Rnic::complete_refused_send`].
    ///
    /// # Errors
    /// [`RequestError::UnknownQp`].
    pub fn complete_refused_receive(&mut self, qp: u32, id: u64) -> Result<(), RequestError> {
        let (qp, outputs) = self.qp(qp)?;
        let done = completion::of_receive(qp.qpn, id, Status::LocalOperation, Kind::Receive, 0);
        outputs.complete(qp.attributes.receive_cq, done, true);
        self.fail_overrun();
        Ok(())
    }
}
