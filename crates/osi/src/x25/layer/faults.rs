//! Protocol errors and the packets that answer them: restart, clear, reset or diagnostic.

use super::machine::Layer;
use crate::wire::x25::{Clear, Kind, cause};
use crate::x25::state::{Call as CallState, Reset as ResetState, Restart};
use crate::x25::{Cause, Indication, Role};
use alloc::vec::Vec;
use kiban_base::Instant;

impl Layer {
    /// Returns the cause to send, which is always zero if this end is a DTE.
    pub(super) fn by_us(&self, cause: u8) -> u8 {
        if self.config.role == Role::Dte { cause::DTE_ORIGINATED } else { cause }
    }

    pub(super) fn diagnose(&mut self, code: u8, bytes: &[u8]) {
        self.counters.diagnostics += 1;
        if self.config.role == Role::Dce && self.config.restarts {
            // §5.6.1: the diagnostic explanation is the packet's first three octets.
            let explained: Vec<u8> = core::iter::once(code).chain(bytes.iter().copied().take(3)).collect();
            self.send(0, Kind::Diagnostic, &explained);
        }
    }

    pub(super) fn restart_for(&mut self, code: u8, now: Instant) {
        self.counters.restarts_for_errors += 1;
        let cause = self.by_us(cause::RESTART_LOCAL_ERROR);
        self.begin_restart(Cause { cause, diagnostic: Some(code) }, now);
    }

    pub(super) fn clear_for(&mut self, number: u16, code: u8, now: Instant) {
        self.counters.clears_for_errors += 1;
        let cause = Cause { cause: self.by_us(cause::CLEAR_LOCAL_ERROR), diagnostic: Some(code) };
        let is_known = self.channels.get(&number).is_some_and(|channel| channel.call != CallState::OwnClear);
        if is_known {
            let cleared =
                Indication::Cleared { channel: number, by_peer: false, cause, user_data: Vec::new() };
            self.indicate(cleared, 0);
        } else {
            let channel = self.channel(number);
            self.channels.entry(number).or_insert(channel);
        }
        self.channels.get_mut(&number).expect("the channel exists").tries = 0;
        self.send_clear(number, cause, &[], now);
    }

    pub(super) fn reset_for(&mut self, number: u16, code: u8, now: Instant) {
        self.counters.resets_for_errors += 1;
        let cause = Cause { cause: self.by_us(cause::RESET_LOCAL_ERROR), diagnostic: Some(code) };
        self.begin_reset(number, cause, now);
        let Some(channel) = self.channels.get_mut(&number) else { return };
        if !core::mem::replace(&mut channel.reset_is_told, true) {
            self.indicate(Indication::Reset { channel: number, by_peer: false, cause }, 0);
        } else {
            self.forget_units(number);
        }
    }

    pub(super) fn begin_restart(&mut self, code: Cause, now: Instant) {
        if self.restart == Restart::Ready {
            self.end_all(code, false);
        }
        self.control.clear();
        self.restart = Restart::Own;
        self.restart_cause = code;
        self.restart_due = now + self.config.timers.restart;
        self.arm(self.restart_due);
        self.send_cause(0, Kind::RestartRequest, code);
    }

    pub(super) fn begin_reset(&mut self, number: u16, code: Cause, now: Instant) {
        let due = now + self.config.timers.reset;
        let Some(channel) = self.channels.get_mut(&number) else { return };
        channel.flush();
        channel.reset = ResetState::Own;
        channel.due = due;
        channel.tries = 1;
        self.arm(due);
        self.send_cause(number, Kind::ResetRequest, code);
    }

    pub(super) fn send_clear(&mut self, number: u16, code: Cause, user_data: &[u8], now: Instant) {
        let due = now + self.config.timers.clear;
        let Some(channel) = self.channels.get_mut(&number) else { return };
        channel.flush();
        channel.call = CallState::OwnClear;
        channel.reset = ResetState::Ready;
        channel.due = due;
        channel.tries += 1;
        self.arm(due);
        let more =
            (!user_data.is_empty()).then_some(crate::wire::x25::Call { user_data, ..Default::default() });
        let clear = Clear { cause: code, more };
        let mut bytes = alloc::vec![0; clear.length()];
        clear.write(&mut bytes);
        self.send(number, Kind::ClearRequest, &bytes);
    }

    /// Ends all circuits: virtual calls are cleared, permanent circuits are reset.
    pub(super) fn end_all(&mut self, code: Cause, by_peer: bool) {
        let numbers: Vec<u16> = self.channels.keys().copied().collect();
        for number in numbers {
            let channel = self.channels.get_mut(&number).expect("a key of the map");
            if channel.is_permanent {
                channel.flush();
                channel.reset = ResetState::Ready;
                channel.due = Instant::NEVER;
                if !core::mem::replace(&mut channel.reset_is_told, true) {
                    self.indicate(Indication::Reset { channel: number, by_peer, cause: code }, 0);
                }
                continue;
            }
            if channel.call == CallState::OwnClear {
                self.tell_free(number);
                continue;
            }
            self.channels.remove(&number);
            self.indicate(
                Indication::Cleared { channel: number, by_peer, cause: code, user_data: Vec::new() },
                0,
            );
        }
        self.listed.clear();
        self.channels.values_mut().for_each(|channel| channel.is_listed = false);
    }
}
