//! Timers of a connection: retransmission, probes, timeouts.

use crate::config::Config;
use crate::traits::Reliability;
use crate::transfer::outputs::Outputs;
use crate::vi::Vi;
use crate::wire::fault;
use kiban_base::Instant;

impl Vi {
    /// Handles the expired timers of a connection.
    pub(crate) fn advance_connection(
        &mut self,
        number: u32,
        config: &Config,
        outputs: &mut Outputs,
        now: Instant,
    ) {
        let reliability = self.attributes.reliability;
        let Some(connection) = &mut self.connection else { return };
        if let Some(since) = connection.peer_queue_empty_since {
            if reliability == Reliability::Delivery && now >= since + config.dry_patience {
                return self.fail_connection(number, fault::NO_RECEIVE_DESCRIPTOR, true, outputs);
            }
            if now >= connection.rto_deadline {
                // Send one packet as a probe, to find out whether a receive descriptor is available.
                connection.rto_deadline = now + config.dry_retry;
                connection.go_back(outputs);
                connection.ack_request_due = true;
                outputs.ready.push(number);
            }
            outputs.due_at(connection.rto_deadline);
            if reliability == Reliability::Delivery {
                outputs.due_at(since + config.dry_patience);
            }
        }
        if connection.traits.lossless {
            return;
        }
        if connection.peer_queue_empty_since.is_none() && now >= connection.rto_deadline {
            if connection.snd_max == connection.acknowledged || reliability == Reliability::Unreliable {
                connection.rto_deadline = Instant::NEVER;
            } else if connection.retransmits >= config.resends_max {
                return self.fail_connection(number, fault::TRANSPORT, true, outputs);
            } else {
                connection.retransmits += 1;
                connection.halve_window();
                connection.go_back(outputs);
                let after = connection.rto * (1 << connection.retransmits.min(6));
                connection.rto_deadline = now + after.min(config.probe_after);
                outputs.ready.push(number);
            }
        }
        // A single probe may be lost, so probe more often after the first unanswered probe.
        if now >= connection.probe_at {
            if connection.probes >= config.probes_max {
                return self.fail_connection(number, fault::TRANSPORT, true, outputs);
            }
            connection.probes += 1;
            connection.probe_at = now + config.probe_after / 4;
            connection.ack_now = true;
            connection.ack_request_due = true;
            outputs.ready.push(number);
        }
        outputs.due_at(connection.rto_deadline);
        outputs.due_at(connection.probe_at);
    }

    /// Starts the timers of a new connection.
    pub(crate) fn start_timers(&mut self, outputs: &mut Outputs) {
        if let Some(connection) = &self.connection
            && !connection.traits.lossless
        {
            outputs.due_at(connection.probe_at);
        }
    }

    /// Handles an empty receive queue at the peer: the refused packets must wait. With reliable delivery,
    /// they wait at most [`Config::dry_patience`].
    pub(crate) fn on_peer_queue_empty(
        &mut self,
        number: u32,
        config: &Config,
        outputs: &mut Outputs,
        now: Instant,
    ) {
        if self.attributes.reliability == Reliability::Delivery && config.dry_patience.is_zero() {
            return self.fail_connection(number, fault::NO_RECEIVE_DESCRIPTOR, true, outputs);
        }
        let Some(connection) = &mut self.connection else { return };
        connection.go_back(outputs);
        connection.ack_request_due = false;
        connection.peer_queue_empty_since.get_or_insert(now);
        connection.rto_deadline = now + config.dry_retry;
        outputs.due_at(connection.rto_deadline);
        if self.attributes.reliability == Reliability::Delivery {
            outputs.due_at(now + config.dry_patience);
        }
    }
}
