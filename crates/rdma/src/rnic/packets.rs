//! The NIC's lower interface for RoCEv2: packets of connected queue pairs.

use super::control::dcqcn::Pacer;
use super::control::roce::{Recovery, Roce, RoceSending, RoceTraits, WINDOW_MAX};
use super::control::state::{QpState, StreamTraits};
use super::device::Rnic;
use super::error::RequestError;
use super::executor::receive::Tables;
use super::executor::roce::{requester, responder};
use crate::wire::roce::{Opcode, PSN_MASK, Packet, QPN_MASK, Service};
use alloc::boxed::Box;
use alloc::vec::Vec;
use kiban_base::Instant;

impl Rnic {
    /// Makes a queue pair speak RoCEv2 with its peer: it receives from now on (`IBV_QPS_RTR`). Its number
    /// ([`Rnic::set_qpn`]) must fit in 24 bits.
    ///
    /// # Errors
    /// [`RequestError::UnknownQp`]; [`RequestError::OtherKind`] if the queue pair cannot have this service;
    /// [`RequestError::BadState`] unless the queue pair is idle; [`RequestError::BadNumber`] if a queue pair
    /// number or PSN exceeds 24 bits, or the path MTU is not a power of two from 256 to 4096.
    pub fn connect_roce(&mut self, qp: u32, traits: RoceTraits) -> Result<(), RequestError> {
        let ird = traits.ird.min(self.config.ird_max);
        let (qp, _) = self.qp(qp)?;
        let is_target = qp.xrc_domain.is_some();
        if qp.datagram.is_some()
            || traits.service == Service::Ud
            || is_target && traits.service != Service::Xrc
        {
            return Err(RequestError::OtherKind);
        }
        if qp.state != QpState::Idle {
            return Err(RequestError::BadState(qp.state));
        }
        let has_valid_numbers = traits.peer <= QPN_MASK
            && qp.qpn <= QPN_MASK
            && traits.first_psn <= PSN_MASK
            && matches!(traits.path_mtu, 256 | 512 | 1024 | 2048 | 4096);
        if !has_valid_numbers {
            return Err(RequestError::BadNumber);
        }
        qp.state = QpState::Rts;
        qp.traits = StreamTraits { ird, ord: 0, extensions: true, kiban: true, may_send: false };
        qp.roce = Some(Box::new(Roce::new(RoceTraits { ird, ..traits })));
        Ok(())
    }

    /// Lets a queue pair that speaks RoCEv2 send (`IBV_QPS_RTS`).
    ///
    /// # Errors
    /// [`RequestError::UnknownQp`]; [`RequestError::BadState`] unless the queue pair receives and does not
    /// send yet; [`RequestError::BadNumber`] if the PSN exceeds 24 bits.
    pub fn start_roce(&mut self, qp: u32, sending: RoceSending) -> Result<(), RequestError> {
        let ord = sending.ord.min(self.config.ord_max);
        let (qp, outputs) = self.qp(qp)?;
        if sending.first_psn > PSN_MASK {
            return Err(RequestError::BadNumber);
        }
        match &mut qp.roce {
            Some(roce) if qp.state == QpState::Rts && !qp.traits.may_send => {
                let window = sending.window.clamp(1, WINDOW_MAX);
                roce.sending = RoceSending { ord, window, ..sending };
                roce.requester.window = window;
                if roce.traits.is_reliable() && roce.traits.reorder_max > 0 {
                    roce.requester.recovery = Recovery::Offered;
                }
                (qp.traits.ord, qp.traits.may_send) = (ord, true);
                qp.schedule(outputs);
                Ok(())
            }
            _ => Err(RequestError::BadState(qp.state)),
        }
    }

    /// Returns what a queue pair that speaks RoCEv2 knows of its peer.
    pub fn roce_traits(&self, qp: u32) -> Option<RoceTraits> {
        Some(self.qps.get(qp)?.roce.as_ref()?.traits)
    }

    /// Removes and returns the first queue pair that may have a packet to send. Call [`Rnic::next_packet`]
    /// until it returns false, or requeue the pair ([`Rnic::requeue`]).
    #[inline]
    pub fn pop_packet_tx_queue(&mut self) -> Option<u32> {
        let number = self.outputs.packet_tx_queue.pop_front()?;
        if let Some(qp) = self.qps.get_mut(number) {
            qp.in_tx_queue = false;
        }
        Some(number)
    }

    /// Appends a queue pair's next packet to `room`: headers, payload and pad, without the ICRC. Returns
    /// whether there was one. Responses and requests take turns.
    pub fn next_packet(&mut self, qp: u32, now: Instant, room: &mut Vec<u8>) -> bool {
        let Rnic { qps, smt, outputs, .. } = self;
        let Some(qp) = qps.get_mut(qp) else { return false };
        let responds = responder::has_packet(qp, now);
        let requests = requester::has_packet(qp, now);
        let Some(roce) = &mut qp.roce else { return false };
        let is_request = requests && (roce.requester_turn || !responds);
        roce.requester_turn = !is_request;
        let made = match is_request {
            true => requester::next_packet(qp, smt, outputs, now, room),
            false => false,
        };
        // A request that failed its queue pair leaves none.
        let made = made || responder::next_packet(qp, smt, outputs, now, room);
        self.fail_overrun();
        made
    }

    /// Takes a packet that arrived for a queue pair, with a valid ICRC. A packet that breaks a rule for which
    /// there is no NAK is dropped and counted.
    pub fn packet(&mut self, qp: u32, packet: &Packet, payload: &[u8], now: Instant) {
        let Rnic { qps, smt, srqs, outputs, .. } = self;
        let Some(qp) = qps.get_mut(qp) else { return };
        let service = qp.roce.as_ref().map(|roce| roce.traits.service);
        // The highest bit of a partition key is the membership type, which does not count here.
        let is_same_partition =
            qp.roce.as_ref().is_some_and(|roce| (roce.traits.pkey ^ packet.bth.pkey) << 1 == 0);
        match packet.bth.opcode {
            Opcode::Transport(of, operation) if Some(of) == service && is_same_partition => {
                let tables = &mut Tables { smt, srqs, outputs };
                if operation.is_response() {
                    requester::take(qp, tables, operation, packet, payload, now);
                } else if of != Service::Xrc || qp.xrc_domain.is_some() {
                    responder::take(qp, tables, operation, packet, payload);
                } else {
                    // An initiator has no responder.
                    tables.outputs.counters.packets_malformed += 1;
                }
            }
            Opcode::SelectiveAck if service.is_some_and(|of| of != Service::Uc) && is_same_partition => {
                requester::take_selective_ack(qp, outputs, packet, now);
            }
            _ => outputs.counters.packets_malformed += 1,
        }
        self.fail_overrun();
    }

    /// Takes a congestion notification from the peer: the queue pair sends more slowly for a while.
    pub fn on_congestion(&mut self, qp: u32, now: Instant) {
        if let Some(roce) = self.qps.get_mut(qp).and_then(|qp| qp.roce.as_mut()) {
            match &mut roce.pacer {
                Some(pacer) => pacer.on_notification(now),
                none => *none = Some(Box::new(Pacer::new(now))),
            }
        }
    }

    /// Returns when [`Rnic::on_packet_timer`] is to be called next for a queue pair. The time changes with
    /// every packet.
    pub fn packet_deadline(&self, qp: u32) -> Option<Instant> {
        self.qps.get(qp)?.roce.as_ref()?.deadline()
    }

    /// Handles the expiry of a queue pair's timer.
    pub fn on_packet_timer(&mut self, qp: u32, now: Instant) {
        if let Ok((qp, outputs)) = self.qp(qp) {
            let pacer = qp.roce.as_mut().and_then(|roce| roce.pacer.as_mut());
            if pacer.is_some_and(|pacer| pacer.on_timer(now)) {
                qp.schedule(outputs);
            }
            requester::on_timer(qp, now, outputs);
        }
        self.fail_overrun();
    }
}
