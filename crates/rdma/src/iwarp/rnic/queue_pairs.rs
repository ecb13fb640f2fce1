//! The NIC's registers and doorbells for queue pairs: their life cycle, and posting work.

use super::config::Config;
use super::control::completion;
use super::control::datagram::DatagramState;
use super::control::qp::Qp;
use super::control::state::{Post, QpAttributes, QpState, StreamTraits, StreamWish};
use super::device::Rnic;
use super::event::Event;
use super::refusal::Refusal;
use super::work::{Access, Data, Kind, ReceiveWork, SendWork, Status};
use crate::wire::datagram::QP_MAX;

impl Rnic {
    /// Creates a queue pair for a stream.
    pub fn create_qp(&mut self, attributes: QpAttributes) -> Result<u32, Refusal> {
        let QpAttributes { pd, send_cq, receive_cq, srq, .. } = attributes;
        let Config { work_max, sges_max, inline_bytes_max, .. } = self.config;
        let work = attributes.send_work_max.max(attributes.receive_work_max);
        let sges = attributes.send_sges_max.max(attributes.receive_sges_max);
        if work > work_max || sges > sges_max || attributes.inline_bytes_max > inline_bytes_max {
            return Err(Refusal::TooMany);
        }
        if self.desk.cqs.get(send_cq).is_none() || self.desk.cqs.get(receive_cq).is_none() {
            return Err(Refusal::UnknownCq);
        }
        match srq.map(|srq| self.srqs.get(srq)) {
            Some(None) => return Err(Refusal::UnknownSrq),
            // Receives of the shared queue name memory of its own domain.
            Some(Some(srq)) if srq.pd != pd => return Err(Refusal::OtherPd),
            _ => {}
        }
        self.smt.hold_pd(pd)?;
        let Some(number) = self.qps.insert(Qp::new(0, attributes)) else {
            self.smt.release_pd(pd);
            return Err(Refusal::TooMany);
        };
        if let Some(qp) = self.qps.get_mut(number) {
            (qp.number, qp.name) = (number, number);
        }
        for cq in [send_cq, receive_cq] {
            if let Some(cq) = self.desk.cqs.get_mut(cq) {
                cq.users += 1;
            }
        }
        if let Some(srq) = srq.and_then(|srq| self.srqs.get_mut(srq)) {
            srq.users += 1;
        }
        Ok(number)
    }

    /// Creates a datagram queue pair. It neither receives nor sends until [`Rnic::set_datagram_state`].
    /// Incoming datagrams never wait for receives.
    pub fn create_datagram_qp(&mut self, attributes: QpAttributes) -> Result<u32, Refusal> {
        let number = self.create_qp(attributes)?;
        if let Some(qp) = self.qps.get_mut(number) {
            qp.datagram = Some(DatagramState::default());
        }
        Ok(number)
    }

    /// Sets whether a datagram queue pair receives and sends, and its Q_Key; clears the stop after a send
    /// error. Its name must fit in 24 bits ([`Rnic::set_name`]) before it may receive or send. Posted work
    /// stays queued and is sent when allowed.
    pub fn set_datagram_state(
        &mut self,
        qp: u32,
        receives: bool,
        sends: bool,
        qkey: u32,
    ) -> Result<(), Refusal> {
        let (qp, desk) = self.qp(qp)?;
        match (&mut qp.datagram, qp.state) {
            (None, _) => Err(Refusal::OtherKind),
            (Some(_), QpState::Idle) if (receives || sends) && qp.name > QP_MAX => Err(Refusal::BadNumber),
            (Some(state), QpState::Idle) => {
                *state = DatagramState { receives, sends, stopped: false, qkey };
                qp.want_service(desk);
                Ok(())
            }
            (Some(_), state) => Err(Refusal::BadState(state)),
        }
    }

    /// Returns the state of a datagram queue pair.
    pub fn datagram_state(&self, qp: u32) -> Result<DatagramState, Refusal> {
        self.qps.get(qp).ok_or(Refusal::UnknownQp)?.datagram.ok_or(Refusal::OtherKind)
    }

    /// Destroys a queue pair. Its work is dropped without completions; existing completions stay. The caller
    /// must end its stream, if it has one.
    pub fn destroy_qp(&mut self, qp: u32) -> Result<(), Refusal> {
        let gone = self.qps.remove(qp).ok_or(Refusal::UnknownQp)?;
        gone.release(&mut self.smt, &mut self.srqs, &mut self.desk);
        if let Some(srq) = gone.attributes.srq.and_then(|srq| self.srqs.get_mut(srq)) {
            srq.waiters.retain(|&waits| waits != qp);
        }
        self.desk.leave_line(qp);
        Ok(())
    }

    /// Returns a queue pair's creation attributes, its state, and the traits agreed with the peer.
    pub fn query_qp(&self, qp: u32) -> Result<(QpAttributes, QpState, StreamTraits), Refusal> {
        self.qps.get(qp).ok_or(Refusal::UnknownQp).map(|qp| (qp.attributes, qp.state, qp.traits))
    }

    /// Sets the number reported in a queue pair's completions, for a host with numbers of its own. It
    /// survives a reset. Events still report the NIC's number. Datagrams use the name as their source and
    /// destination.
    pub fn set_name(&mut self, qp: u32, name: u32) -> Result<(), Refusal> {
        let (qp, _) = self.qp(qp)?;
        if qp.datagram.is_some() && name > QP_MAX {
            return Err(Refusal::BadNumber);
        }
        qp.name = name;
        Ok(())
    }

    /// Attaches an established stream: the queue pair becomes ready to send.
    pub fn connect(&mut self, qp: u32, traits: StreamTraits) -> Result<(), Refusal> {
        let traits = self.bounded(traits);
        let (qp, desk) = self.qp(qp)?;
        if qp.datagram.is_some() {
            return Err(Refusal::OtherKind);
        }
        if qp.state != QpState::Idle {
            return Err(Refusal::BadState(qp.state));
        }
        qp.state = QpState::Rts;
        qp.traits = StreamTraits { kiban: traits.kiban || qp.is_among_own, ..traits };
        qp.is_expecting = false;
        qp.want_service(desk);
        Ok(())
    }

    fn bounded(&self, traits: StreamTraits) -> StreamTraits {
        let Config { ird_max, ord_max, .. } = self.config;
        StreamTraits { ird: traits.ird.min(ird_max), ord: traits.ord.min(ord_max), ..traits }
    }

    /// Declares that the queue pair's peer is kiban's, known by other means: kiban's own messages may be sent
    /// and are accepted, until the queue pair is reset. Both ends must declare it before the first such
    /// message arrives, preferably before they connect.
    pub fn agree_on_own(&mut self, qp: u32) -> Result<(), Refusal> {
        let (qp, _) = self.qp(qp)?;
        qp.is_among_own = true;
        qp.traits.kiban = true;
        Ok(())
    }

    /// Declares that a stream is being set up. Sends may now be posted, checked against `traits`, and wait
    /// for the stream. [`Rnic::connect`] starts them; a send that the final traits do not allow ends with
    /// [`Status::LocalOperation`] in its turn and fails the queue pair. [`Rnic::give_up`] and [`Rnic::reset`]
    /// end the wait.
    pub fn expect(&mut self, qp: u32, traits: StreamTraits) -> Result<(), Refusal> {
        let traits = self.bounded(traits);
        let (qp, _) = self.qp(qp)?;
        if qp.datagram.is_some() {
            return Err(Refusal::OtherKind);
        }
        if qp.state != QpState::Idle {
            return Err(Refusal::BadState(qp.state));
        }
        qp.traits = StreamTraits { kiban: traits.kiban || qp.is_among_own, ..traits };
        qp.is_expecting = true;
        Ok(())
    }

    /// Gives up the expected stream, or a peer that has gone: the oldest work request ends as
    /// [`Status::Lost`], all others as flushed.
    pub fn give_up(&mut self, qp: u32) -> Result<(), Refusal> {
        let (qp, desk) = self.qp(qp)?;
        if !qp.is_expecting && !qp.is_alone {
            return Err(Refusal::BadState(qp.state));
        }
        qp.give_up(desk);
        if qp.attributes.srq.is_some() {
            desk.event(Event::LastReceive { qp: qp.number });
        }
        self.fail_overrun();
        Ok(())
    }

    /// Keeps a connected queue pair when the peer closes its stream in order and no message is incomplete, as
    /// in InfiniBand, which has no such close: receives stay posted, and the next send ends as lost.
    pub fn stay(&mut self, qp: u32) -> Result<(), Refusal> {
        self.qp(qp).map(|(qp, _)| qp.stays = true)
    }

    /// Announces to a peer that receives acknowledgements that this end is leaving. Without it, the end of
    /// the stream looks to the peer like a killed process.
    pub fn part(&mut self, qp: u32) -> Result<(), Refusal> {
        let (qp, desk) = self.qp(qp)?;
        if qp.acknowledges && qp.is_up() {
            qp.parts = true;
            qp.want_service(desk);
        }
        Ok(())
    }

    /// Completes a Write, a Send or immediate data only when the peer has acknowledged its arrival, as in
    /// InfiniBand; acknowledges the peer's in turn. Both ends must be kiban's and enable this before the
    /// first message.
    pub fn acknowledge(&mut self, qp: u32) -> Result<(), Refusal> {
        self.qp(qp).map(|(qp, _)| qp.acknowledges = true)
    }

    /// Returns whether [`Rnic::acknowledge`] was called.
    pub fn acknowledges(&self, qp: u32) -> bool {
        self.qps.get(qp).is_some_and(|qp| qp.acknowledges)
    }

    /// Sets what peers may do with memory through this queue pair, in addition to the restrictions of its
    /// tags. Default: everything.
    pub fn set_remote_access(&mut self, qp: u32, access: Access) -> Result<(), Refusal> {
        self.qp(qp).map(|(qp, _)| qp.allows = access)
    }

    /// Discards a queue pair's completions that have not been polled.
    pub fn forget_completions(&mut self, qp: u32) {
        let Ok((qp, desk)) = self.qp(qp) else { return };
        for cq in [qp.attributes.send_cq, qp.attributes.receive_cq] {
            if let Some(cq) = desk.cqs.get_mut(cq) {
                cq.entries.retain(|completion| completion.qp != qp.name);
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
    pub fn is_alone(&self, qp: u32) -> bool {
        self.qps.get(qp).is_some_and(|qp| qp.is_alone)
    }

    /// Allows sending: the peer is ready (a responder must wait for the initiator's first message).
    pub fn may_send(&mut self, qp: u32) {
        if let Ok((qp, desk)) = self.qp(qp) {
            qp.traits.may_send = true;
            qp.want_service(desk);
        }
    }

    /// Begins an orderly close: posted work is still sent, then the stream ends.
    pub fn disconnect(&mut self, qp: u32) -> Result<(), Refusal> {
        let (qp, desk) = self.qp(qp)?;
        match qp.state {
            QpState::Rts => {
                qp.state = QpState::Closing;
                qp.sq.close();
                qp.sweep(desk);
                self.fail_overrun();
                Ok(())
            }
            QpState::Closing => Ok(()),
            state => Err(Refusal::BadState(state)),
        }
    }

    /// Aborts: work is flushed and the stream is cut, as after an error.
    pub fn abort(&mut self, qp: u32) -> Result<(), Refusal> {
        let (qp, desk) = self.qp(qp)?;
        qp.state = QpState::Error;
        qp.is_expecting = false;
        qp.terminate = None;
        qp.wish = StreamWish::Abort;
        qp.flush(desk);
        qp.want_service(desk);
        self.fail_overrun();
        Ok(())
    }

    /// Resets a queue pair that has ended or was never connected to its initial state. Posted receives are
    /// dropped.
    pub fn reset(&mut self, qp: u32) -> Result<(), Refusal> {
        let (qp, desk) = self.qp(qp)?;
        if !matches!(qp.state, QpState::Idle | QpState::Error) {
            return Err(Refusal::BadState(qp.state));
        }
        let datagram = qp.datagram.map(|_| DatagramState::default());
        *qp = Qp { name: qp.name, datagram, ..Qp::new(qp.number, qp.attributes) };
        let number = qp.number;
        desk.leave_line(number);
        self.smt.release_windows(number);
        Ok(())
    }

    /// Posts a work request on the send queue. If the queue pair is closing or in error, the request ends as
    /// flushed; if a stream is being set up, it waits for the stream.
    #[inline]
    pub fn post_send(&mut self, qp: u32, work: SendWork) -> Result<(), Refusal> {
        let (qp, desk) = self.qp(qp)?;
        if qp.sq.is_full() {
            return Err(Refusal::Full);
        }
        match &work.data {
            Data::Elements(sges) if sges.len() > qp.attributes.send_sges_max => {
                return Err(Refusal::TooManyElements);
            }
            Data::Inline(bytes)
                if bytes.len() > qp.attributes.inline_bytes_max || !work.operation.takes_inline() =>
            {
                return Err(Refusal::TooMuchInline);
            }
            _ => {}
        }
        match qp.judge_post(&work.operation)? {
            Post::Waits => qp.sq.push(work),
            Post::Goes => {
                let is_first = qp.sq.is_empty();
                qp.sq.push(work);
                if !qp.is_alone {
                    qp.want_service(desk);
                } else if is_first {
                    desk.event(Event::Abandoned { qp: qp.number });
                }
            }
            Post::Late => {
                qp.sq.push(work);
                qp.sweep(desk);
                self.fail_overrun();
            }
            Post::Flushed => {
                let told = completion::of_send(qp.name, &work, Status::Flushed, 0);
                desk.complete(qp.attributes.send_cq, told, false);
                self.fail_overrun();
            }
        }
        Ok(())
    }

    /// Posts the NIC's own first work request, before any of the host's.
    pub(in crate::iwarp) fn post_quietly(&mut self, qp: u32, work: SendWork) -> Result<(), Refusal> {
        let (qp, desk) = self.qp(qp)?;
        match qp.state {
            QpState::Rts => {
                qp.sq.push_quietly(work);
                qp.want_service(desk);
                Ok(())
            }
            state => Err(Refusal::BadState(state)),
        }
    }

    /// Posts a receive. If the queue pair is in error, the receive ends as flushed.
    #[inline]
    pub fn post_receive(&mut self, qp: u32, work: ReceiveWork) -> Result<(), Refusal> {
        let (qp, desk) = self.qp(qp)?;
        if qp.attributes.srq.is_some() || qp.rq.wqes.len() >= qp.rq.most {
            return Err(Refusal::Full);
        }
        if work.sges.len() > qp.attributes.receive_sges_max {
            return Err(Refusal::TooManyElements);
        }
        if matches!(qp.state, QpState::Terminate | QpState::Error) {
            let told = completion::of_receive(qp.name, work.id, Status::Flushed, Kind::Receive, 0);
            desk.complete(qp.attributes.receive_cq, told, true);
            self.fail_overrun();
            return Ok(());
        }
        qp.rq.wqes.push_back(work);
        if core::mem::take(&mut qp.rq.is_dry) {
            desk.resumed.push(qp.number);
        }
        Ok(())
    }
}
