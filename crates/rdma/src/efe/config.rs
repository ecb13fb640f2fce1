//! Settings of an EFE-like endpoint.

use super::host::Peer;
use crate::wire::efe::{CHECK_BYTES, HEADER_BYTES, SEGMENT_BYTES_MAX, WINDOW_FRAMES_MAX};
use core::time::Duration;

kiban_base::settings! {
    /// Settings of an endpoint. Defaults are for 10 Gbit/s Ethernet within a building: see
    /// [`Config::ethernet`] for other rates, and [`Config::udp`] for hosts whose response time depends on
    /// their operating system.
    pub struct Config {
        /// Maximum segment length in bytes, up to 1472; a flow uses the smaller of the values at its two
        /// ends. To peers on this host ([`Peer::LOCAL`]) it is always 1472.
        segment_bytes: usize = 1472,
        /// Whether sent frames carry a CRC-32C and received frames without one are dropped. A CRC is not
        /// needed where an Ethernet FCS covers the whole path, and not used with peers on this host.
        checked: bool = false,
        /// Maximum number of frames that a flow has in flight or queued, and maximum number of received
        /// segments that it holds until the host takes them. Must be a power of two, at most 128; a flow uses
        /// the smaller of the values at its two ends.
        window_frames: u32 = 64,
        /// Maximum number of flows, including those being set up and those lingering.
        flows_max: usize = 4096,
        /// Maximum number of incoming requests that the host has not answered or the peer has not
        /// confirmed.
        asked_max: usize = 256,
        /// How long such a request is kept.
        asked_for: Duration = Duration::from_secs(5),
        /// Target number of frames that a flow keeps in the queues on its path. A higher number reduces
        /// idle time; a lower number keeps queues shorter.
        backlog_frames: u32 = 3,
        /// Queueing delay at which a flow tries to keep no frames of its own queued. Even many flows
        /// together therefore keep the queueing delay below this value.
        queue_delay_max: Duration = Duration::from_micros(50),
        /// Interval between drain epochs, in which all senders to this endpoint pause for a moment so that
        /// each can measure an empty queue. At least 100 times `queue_delay_max`.
        breath_every: Duration = Duration::from_millis(25),
        /// Delay between the start of a flow and a drain epoch: a new flow may have seen only full queues.
        breath_after_join: Duration = Duration::from_millis(1),
        /// Period over which the minimum round-trip time is measured; a minimum stays valid for one to two
        /// periods.
        base_period: Duration = Duration::from_secs(10),
        /// How long the round-trip time that was predicted at setup counts as the minimum. It should cover
        /// the first drain epoch.
        predicted_for: Duration = Duration::from_millis(2),
        /// Number of later frames that must have arrived before a missing frame is considered lost (3 in
        /// RFC 9002 §6.1.1).
        reorder_frames: u32 = 3,
        /// Maximum delay of an acknowledgement that waits for a second frame (delayed ACK).
        ack_after: Duration = Duration::from_micros(10),
        /// Retransmission timeout of connection requests, and of frames before a round trip is measured.
        /// That of requests is shortened by up to a half at random, so that many lost ones do not meet again.
        resend_after: Duration = Duration::from_micros(250),
        /// Minimum retransmission timeout.
        resend_after_min: Duration = Duration::from_micros(100),
        /// Maximum retransmission timeout: the timeout doubles with each consecutive expiry.
        resend_after_max: Duration = Duration::from_millis(200),
        /// Maximum number of consecutive retransmissions without progress before the flow is given up.
        resends_max: u32 = 16,
        /// Time without frames from the peer after which it is probed (keep-alive). Further probes follow
        /// at a quarter of this interval. Zero disables probing.
        probe_after: Duration = Duration::from_secs(1),
        /// Maximum number of unanswered probes before the flow is given up.
        probes_max: u32 = 8,
        /// How long a flow that has ended is kept, to answer a peer that missed the end.
        linger: Duration = Duration::from_millis(500),
    }
}

impl Config {
    /// Returns settings for Ethernet at this rate. Below 10 Gbit/s, the delays are longer because a frame
    /// takes longer to transmit.
    pub fn ethernet(bits_per_second: u64) -> Config {
        let settings = Config::default();
        let slower = (10_000_000_000 / bits_per_second.max(1)).clamp(1, 1000) as u32;
        Config {
            queue_delay_max: settings.queue_delay_max * slower,
            breath_every: settings.breath_every * slower,
            breath_after_join: settings.breath_after_join * slower,
            predicted_for: settings.predicted_for * slower,
            ack_after: settings.ack_after * slower,
            resend_after_min: settings.resend_after_min * slower,
            resend_after: settings.resend_after * slower,
            resend_after_max: settings.resend_after_max.max(settings.resend_after * slower),
            ..settings
        }
    }

    /// Returns settings for UDP over IPv4 or IPv6 in packets of 1500 bytes: with a CRC, and with timeouts
    /// that allow for the operating system's response time. Hosts send and answer trains of frames, so round
    /// trips vary by the time of a train: a flow may keep its whole window queued while the queueing delay is
    /// short.
    pub fn udp() -> Config {
        Config {
            window_frames: WINDOW_FRAMES_MAX,
            backlog_frames: WINDOW_FRAMES_MAX,
            // 1500 minus 40 bytes of IPv6, 8 of UDP, the frame header and the CRC.
            segment_bytes: 1500 - 48 - HEADER_BYTES - CHECK_BYTES,
            checked: true,
            queue_delay_max: Duration::from_millis(2),
            breath_every: Duration::from_secs(1),
            breath_after_join: Duration::from_millis(40),
            predicted_for: Duration::from_millis(80),
            ack_after: Duration::from_micros(100),
            resend_after: Duration::from_millis(30),
            resend_after_min: Duration::from_millis(5),
            resend_after_max: Duration::from_millis(500),
            ..Config::default()
        }
    }

    /// Returns the maximum segment length in bytes to a peer.
    pub(super) fn segment_bytes_to(&self, peer: Peer) -> usize {
        if peer.is_local() { SEGMENT_BYTES_MAX } else { self.segment_bytes }
    }

    /// Returns whether frames to and from a peer carry a CRC.
    #[inline]
    pub(super) fn checks(&self, peer: Peer) -> bool {
        self.checked && !peer.is_local()
    }

    /// Clamps the settings to the limits of the frame format.
    pub(super) fn bounded(mut self) -> Config {
        self.segment_bytes = self.segment_bytes.clamp(1, SEGMENT_BYTES_MAX);
        self.window_frames = window_of(self.window_frames);
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

/// Returns the largest possible window of at most `frames` frames: a power of two.
pub(super) fn window_of(frames: u32) -> u32 {
    1 << frames.clamp(2, WINDOW_FRAMES_MAX).ilog2()
}
