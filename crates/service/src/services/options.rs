//! Options of programs' sockets (`kiban run`).
//!
//! Purpose    the options of a stream, with the values that setsockopt(2) sets and getsockopt(2) returns.
//! Effect     `TCP_NODELAY`, `TCP_QUICKACK`, `TCP_NOTSENT_LOWAT`, keep-alive, the user timeout, the traffic
//!            class and the pacing rate act on the board's connection, and `TCP_FASTOPEN` on the board's
//!            listener. `SO_LINGER` with a time of zero makes a close reset the connection, and `TCP_CORK`
//!            and `MSG_MORE` hold short segments (relay.rs). The others are only stored and returned
//!            (docs/attach.md has the list).
//! Listeners  a connection inherits the options of its listener.

use kiban_attach::StreamOption;
use kiban_board::{Host, KeepAlive, StreamId};
use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

const OPTIONS: usize = StreamOption::ALL.len();

/// The options of a stream or a listener.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StreamOptions {
    /// The values, by option; `None` if the program has not set it.
    values: [Option<u32>; OPTIONS],
}

impl StreamOptions {
    /// Returns the value of an option.
    pub(super) fn value(&self, option: StreamOption) -> u32 {
        self.values[option as usize - 1].unwrap_or(option.usual())
    }

    /// Sets an option; [`StreamOptions::apply`] puts it into effect.
    pub(super) fn set(&mut self, option: StreamOption, value: u32) {
        self.values[option as usize - 1] = Some(value);
    }

    /// Returns whether closing the socket resets the connection (socket(7): SO_LINGER with zero).
    pub(super) fn closes_with_reset(&self) -> bool {
        self.value(StreamOption::Linger) == 1
    }

    /// Returns whether a short segment waits for more data (tcp(7): `TCP_CORK`; send(2): `MSG_MORE`).
    pub(super) fn is_corked(&self) -> bool {
        self.value(StreamOption::Cork) != 0 || self.value(StreamOption::More) != 0
    }

    /// Returns how many bytes TCP may hold unsent. That is half of the option's value (tcp(7):
    /// `TCP_NOTSENT_LOWAT`); the buffer between the program and the board has the other half
    /// (`preload/board`).
    pub(super) fn unsent_bytes_max(&self) -> Option<NonZeroU32> {
        let value = self.value(StreamOption::NotSentLowWater);
        NonZeroU32::new(value.div_ceil(2)).filter(|_| value != u32::MAX)
    }

    /// Puts all options that the program has set into effect.
    pub(super) fn apply_all(&self, stream: StreamId, host: &mut Host<'_>) {
        let set = StreamOption::ALL.into_iter().filter(|option| self.values[*option as usize - 1].is_some());
        set.for_each(|option| self.apply(option, stream, host));
    }

    /// Puts an option into effect.
    pub(super) fn apply(&self, option: StreamOption, stream: StreamId, host: &mut Host<'_>) {
        let value = self.value(option);
        // Ignore the error: the stream may have just ended.
        let _ = match option {
            StreamOption::NoDelay => host.set_no_delay(stream, value != 0),
            StreamOption::QuickAck => host.set_quick_ack(stream, value != 0),
            StreamOption::KeepAlive
            | StreamOption::KeepIdle
            | StreamOption::KeepInterval
            | StreamOption::KeepCount
            | StreamOption::UserTimeout => {
                let is_kept = self.value(StreamOption::KeepAlive) != 0;
                let seconds = |value: u32| Duration::from_secs(value.max(1).into());
                let keep = KeepAlive {
                    // Without a pause, the answer to each probe would cause the next one.
                    idle: seconds(self.value(StreamOption::KeepIdle)),
                    interval: self.values[StreamOption::KeepInterval as usize - 1].map(seconds),
                    probes: self.values[StreamOption::KeepCount as usize - 1],
                };
                let timeout = Duration::from_millis(self.value(StreamOption::UserTimeout).into());
                let timeout = Some(timeout).filter(|timeout| !timeout.is_zero());
                host.set_timeouts(stream, is_kept.then_some(keep), timeout)
            }
            StreamOption::NotSentLowWater => host.set_unsent_bytes_max(stream, self.unsent_bytes_max()),
            StreamOption::MaxPacingRate => {
                let rate = NonZeroU64::new(value.into()).filter(|_| value != u32::MAX);
                host.set_pacing_rate_max(stream, rate)
            }
            // The two low bits are ECN, which belongs to TCP.
            StreamOption::TrafficClass => host.set_dscp(stream, (value >> 2) as u8),
            _ => Ok(()),
        };
    }
}
