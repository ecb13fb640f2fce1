//! Timers of a connection: retransmission, probes, timeouts.

use crate::config::Config;
use crate::desk::Desk;
use crate::traits::Reliability;
use crate::vi::Vi;
use crate::wire::fault;
use kiban_base::Instant;

impl Vi {
    /// Handles the expired timers of a connection.
    pub(super) fn advance_connection(&mut self, number: u32, config: &Config, desk: &mut Desk, now: Instant) {
        let reliability = self.attributes.reliability;
        let Some(connection) = &mut self.connection else { return };
        if let Some(since) = connection.held_since {
            if reliability == Reliability::Delivery && now >= since + config.dry_patience {
                return self.break_off(number, fault::DRY, true, desk);
            }
            if now >= connection.resend_at {
                // Probe with one packet whether a receive descriptor is available.
                connection.resend_at = now + config.dry_retry;
                connection.go_back(desk);
                connection.asks = true;
                desk.ready.push(number);
            }
            desk.due_at(connection.resend_at);
            if reliability == Reliability::Delivery {
                desk.due_at(since + config.dry_patience);
            }
        }
        if connection.traits.loses_nothing {
            return;
        }
        if connection.held_since.is_none() && now >= connection.resend_at {
            if connection.emitted == connection.acknowledged || reliability == Reliability::Unreliable {
                connection.resend_at = Instant::NEVER;
            } else if connection.resends >= config.resends_max {
                return self.break_off(number, fault::TRANSPORT, true, desk);
            } else {
                connection.resends += 1;
                connection.halve_window();
                connection.go_back(desk);
                let after = connection.resend_after * (1 << connection.resends.min(6));
                connection.resend_at = now + after.min(config.probe_after);
                desk.ready.push(number);
            }
        }
        // A single probe may be lost: after the first unanswered one, probe more often.
        if now >= connection.probe_at {
            if connection.probes >= config.probes_max {
                return self.break_off(number, fault::TRANSPORT, true, desk);
            }
            connection.probes += 1;
            connection.probe_at = now + config.probe_after / 4;
            connection.owes_now = true;
            connection.asks = true;
            desk.ready.push(number);
        }
        desk.due_at(connection.resend_at);
        desk.due_at(connection.probe_at);
    }

    /// Starts the timers of a new connection.
    pub(super) fn start_clock(&mut self, desk: &mut Desk) {
        if let Some(connection) = &self.connection
            && !connection.traits.loses_nothing
        {
            desk.due_at(connection.probe_at);
        }
    }

    /// Handles an empty receive queue at the peer: the refused packets wait; with reliable delivery, for at
    /// most [`Config::dry_patience`].
    pub(super) fn on_peer_dry(&mut self, number: u32, config: &Config, desk: &mut Desk, now: Instant) {
        if self.attributes.reliability == Reliability::Delivery && config.dry_patience.is_zero() {
            return self.break_off(number, fault::DRY, true, desk);
        }
        let Some(connection) = &mut self.connection else { return };
        connection.go_back(desk);
        connection.asks = false;
        connection.held_since.get_or_insert(now);
        connection.resend_at = now + config.dry_retry;
        desk.due_at(connection.resend_at);
        if self.attributes.reliability == Reliability::Delivery {
            desk.due_at(now + config.dry_patience);
        }
    }
}
