//! Call requests from the host, and the negotiation of packet and window sizes.

use super::machine::Layer;
use crate::wire::x25::{CALL_USER_DATA_BYTES_MAX, FAST_SELECT_BYTES_MAX, Kind};
use crate::x25::call::{is_allowed, is_between, nearer};
use crate::x25::channel::Channel;
use crate::x25::state::Call as CallState;
use crate::x25::{
    Both, Call, Cause, Facilities, FastSelect, Misuse, PACKET_BYTES_DEFAULT, Role, Sizes, WINDOW_DEFAULT,
};
use alloc::vec::Vec;
use kiban_base::Instant;

impl Layer {
    pub(super) fn open(&mut self, channel: u16) -> Result<&mut Channel, Misuse> {
        let channel = self.channels.get_mut(&channel).ok_or(Misuse::Channel)?;
        if channel.is_open() { Ok(channel) } else { Err(Misuse::State) }
    }

    pub(super) fn call(&mut self, number: u16, mut call: Call, now: Instant) -> Result<(), Misuse> {
        if self.may_call(number, self.config.role) != Some(true) {
            return Err(Misuse::Channel);
        }
        if self.channels.contains_key(&number) {
            return Err(Misuse::State);
        }
        self.fill_sizes(&mut call.facilities);
        if !is_allowed(&call.facilities, self.config.window_max) {
            return Err(Misuse::Facilities);
        }
        if call.user_data.len() > user_data_max(call.facilities.fast_select) {
            return Err(Misuse::TooLong);
        }
        let bytes = call.bytes().ok_or(Misuse::Facilities)?;
        let mut channel = self.channel(number);
        channel.call = CallState::Own;
        channel.fast_select = call.facilities.fast_select;
        channel.due = now + self.config.timers.call;
        channel.asked = call.facilities;
        channel.is_known = true;
        self.arm(channel.due);
        self.channels.insert(number, channel);
        self.send_call(number, Kind::CallRequest, call.addresses.is_extended(), &bytes);
        Ok(())
    }

    pub(super) fn accept(&mut self, number: u16, mut call: Call) -> Result<(), Misuse> {
        let channel = self.channels.get(&number).ok_or(Misuse::Channel)?;
        let is_called = match channel.call {
            CallState::Peer => true,
            CallState::Collision => self.config.role == Role::Dce,
            _ => false,
        };
        if !is_called || channel.fast_select == FastSelect::Restricted {
            return Err(Misuse::State);
        }
        let is_fast = channel.fast_select != FastSelect::No;
        if call.user_data.len() > if is_fast { FAST_SELECT_BYTES_MAX } else { 0 } {
            return Err(Misuse::TooLong);
        }
        let asked = self.sizes_asked(&channel.asked);
        let packet_max = self.config.packet_bytes_max;
        let packet =
            call.facilities.packet_bytes.unwrap_or(nearer(asked.0, packet_max, PACKET_BYTES_DEFAULT));
        let window =
            call.facilities.window.unwrap_or(nearer(asked.1, self.config.window_max, WINDOW_DEFAULT));
        let fits =
            is_between(packet, asked.0, PACKET_BYTES_DEFAULT) && is_between(window, asked.1, WINDOW_DEFAULT);
        // The answer contains sizes if the call proposed them, or if they differ from the default.
        if channel.asked.packet_bytes.is_some() || packet != asked.0 || self.config.states_sizes {
            call.facilities.packet_bytes = Some(packet);
        }
        if channel.asked.window.is_some() || window != asked.1 || self.config.states_sizes {
            call.facilities.window = Some(window);
        }
        if !fits || !is_allowed(&call.facilities, self.config.window_max) {
            return Err(Misuse::Facilities);
        }
        let bytes = call.bytes().ok_or(Misuse::Facilities)?;
        let channel = self.channels.get_mut(&number).expect("it was looked up");
        channel.sizes = Sizes::of(packet, window, false);
        channel.call = CallState::Transfer;
        self.send_call(number, Kind::CallAccepted, call.addresses.is_extended(), &bytes);
        Ok(())
    }

    pub(super) fn clear(
        &mut self,
        number: u16,
        code: Cause,
        user_data: Vec<u8>,
        now: Instant,
    ) -> Result<(), Misuse> {
        let channel = self.channels.get(&number).ok_or(Misuse::Channel)?;
        if channel.is_permanent {
            return Err(Misuse::Channel);
        }
        if matches!(channel.call, CallState::Ready | CallState::OwnClear | CallState::PeerClear) {
            return Err(Misuse::State);
        }
        let is_fast = channel.fast_select != FastSelect::No;
        if user_data.len() > if is_fast { FAST_SELECT_BYTES_MAX } else { 0 } {
            return Err(Misuse::TooLong);
        }
        self.channels.get_mut(&number).expect("it was looked up").tries = 0;
        self.send_clear(number, code, &user_data, now);
        Ok(())
    }

    pub(super) fn fill_sizes(&self, facilities: &mut Facilities) {
        if self.config.states_sizes {
            let asked = sizes_asked(facilities, self.config.default);
            facilities.packet_bytes = Some(asked.0);
            facilities.window = Some(asked.1);
        }
    }

    pub(super) fn sizes_asked(&self, facilities: &Facilities) -> (Both<u16>, Both<u8>) {
        sizes_asked(facilities, self.config.default)
    }
}

pub(super) fn user_data_max(fast_select: FastSelect) -> usize {
    if fast_select == FastSelect::No { CALL_USER_DATA_BYTES_MAX } else { FAST_SELECT_BYTES_MAX }
}

/// Returns the sizes that a call proposes; sizes that it does not state are the defaults.
pub(super) fn sizes_asked(facilities: &Facilities, default: Sizes) -> (Both<u16>, Both<u8>) {
    (
        facilities.packet_bytes.unwrap_or(Both::same(default.packet_bytes_out)),
        facilities.window.unwrap_or(Both::same(default.window_out)),
    )
}
