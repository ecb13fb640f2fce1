//! Settings of an EFE-like endpoint.

use core::time::Duration;
use kiban_wire::efe::{CHECK_BYTES, HEADER_BYTES, SEGMENT_BYTES_MAX};

kiban_ground::settings! {
    /// How an endpoint behaves. Defaults are for 10 Gbit/s Ethernet within a building: see
    /// [`Config::ethernet`] for other rates, and [`Config::udp`] for hosts that answer when their operating system lets them.
    pub struct Config {
        /// Bytes of the longest segment, 1472 at most; a flow takes the lesser of its two ends'.
        segment_bytes: usize = 1472,
        /// Whether frames carry a CRC-32C, and those without are dropped. Off where an FCS covers the way.
        checked: bool = false,
        /// Frames in flight or waiting of one flow, and segments that wait for its host, at most: a power of two up to 64.
        window_frames: u32 = 64,
        /// Flows at most, those that are being set up or remembered for a while among them.
        flows_max: usize = 4096,
        /// Requests of peers that are not answered or not confirmed yet, at most.
        asked_max: usize = 64,
        /// How long such a request is kept.
        asked_for: Duration = Duration::from_secs(5),
        /// Frames that a flow tries to keep in the queues of its path. More: less idle time; fewer: shorter queues.
        backlog_frames: u32 = 3,
        /// The queueing delay at which it tries to keep none: many flows share queues no longer than this.
        queue_delay_max: Duration = Duration::from_micros(50),
        /// How often everybody who sends to this endpoint is asked to pause for a moment, so that all see an empty queue: at
        /// least 100 times `queue_delay_max`.
        breath_every: Duration = Duration::from_millis(25),
        /// The same after a flow has begun: it may have seen full queues only.
        breath_after_join: Duration = Duration::from_millis(1),
        /// How long the shortest round trip is believed: once to twice this.
        base_period: Duration = Duration::from_secs(10),
        /// Frames that were sent later and came, after which one that has not is taken for lost (RFC 9002 §6.1.1 has 3).
        reorder_frames: u32 = 3,
        /// The longest time that an acknowledgement waits for a second frame.
        ack_after: Duration = Duration::from_micros(10),
        /// How long an acknowledgement is awaited before there is a measured round trip.
        resend_after: Duration = Duration::from_millis(1),
        /// The shortest such time.
        resend_after_min: Duration = Duration::from_micros(100),
        /// The longest such time: it doubles while nothing comes back.
        resend_after_max: Duration = Duration::from_millis(200),
        /// How often something is sent in vain before the peer is given up.
        resends_max: u32 = 16,
        /// After so much silence the peer is asked for a sign of life, and then every quarter of it; zero: never.
        probe_after: Duration = Duration::from_secs(1),
        /// How often it is asked in vain before it is given up.
        probes_max: u32 = 8,
        /// How long a flow that has ended is remembered, to answer a peer that has missed the end.
        linger: Duration = Duration::from_millis(500),
    }
}

impl Config {
    /// For Ethernet of a rate: below 10 Gbit/s frames take longer, and so do queues of as many frames.
    pub fn ethernet(bits_per_second: u64) -> Config {
        let settings = Config::default();
        let slower = (10_000_000_000 / bits_per_second.max(1)).clamp(1, 1000) as u32;
        Config {
            queue_delay_max: settings.queue_delay_max * slower,
            breath_every: settings.breath_every * slower,
            breath_after_join: settings.breath_after_join * slower,
            ack_after: settings.ack_after * slower,
            resend_after_min: settings.resend_after_min * slower,
            resend_after: settings.resend_after * slower,
            resend_after_max: settings.resend_after_max.max(settings.resend_after * slower),
            ..settings
        }
    }

    /// For UDP over IPv4 or IPv6 in packets of 1500 bytes: a check, and times of operating systems.
    pub fn udp() -> Config {
        Config {
            // 1500 less IPv6's 40, UDP's 8, our header and our check.
            segment_bytes: 1500 - 48 - HEADER_BYTES - CHECK_BYTES,
            checked: true,
            queue_delay_max: Duration::from_millis(2),
            breath_every: Duration::from_secs(1),
            breath_after_join: Duration::from_millis(40),
            ack_after: Duration::from_micros(100),
            resend_after: Duration::from_millis(30),
            resend_after_min: Duration::from_millis(5),
            resend_after_max: Duration::from_millis(500),
            ..Config::default()
        }
    }

    /// The same settings within the bounds that the format sets.
    pub(super) fn bounded(mut self) -> Config {
        self.segment_bytes = self.segment_bytes.clamp(1, SEGMENT_BYTES_MAX);
        let window = self.window_frames.clamp(2, 64);
        self.window_frames = 1 << window.ilog2();
        self.backlog_frames = self.backlog_frames.max(1);
        self.reorder_frames = self.reorder_frames.max(1);
        let least = Duration::from_nanos(1000);
        self.queue_delay_max = self.queue_delay_max.max(least);
        self.breath_every = self.breath_every.max(self.queue_delay_max.saturating_mul(100));
        self.resend_after_min = self.resend_after_min.max(least);
        self.resend_after_max = self.resend_after_max.max(self.resend_after_min);
        self
    }
}
