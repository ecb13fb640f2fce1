//! Profiles: sets of settings that make TCP behave like a system that was measured in a paper.
//!
//! Purpose          reproduce figures from old papers by following the rules of the systems measured, and
//!                  show what each rule costs.
//! Method           a profile is a value of [`Config`]. Each rule is a setting of its own, so that rules can
//!                  be changed one at a time.
//! Sources          the comment on a setting names the clause or system it comes from; the comments here
//!                  explain the values chosen for a profile. *Fitted* means that a value was chosen to match
//!                  a published figure: it explains the figure but is not independent evidence.
//! Not included     sizes (MSS, buffers), which belong to the experiment, not to the system.

use super::CongestionControl;
use super::config::{AckUnit, Config, Ecn, LossDetection, Nagle, Offer};
use core::time::Duration;

/// Names of the profiles, for [`Config::profile`].
pub const PROFILES: [&str; 3] = ["modern", "bsd43", "solaris23"];

impl Config {
    /// Returns the profile with this name, or `None` if there is none.
    pub fn profile(name: &str) -> Option<Config> {
        match name {
            "modern" => Some(Config::modern()),
            "bsd43" => Some(Config::bsd43()),
            "solaris23" => Some(Config::solaris23()),
            _ => None,
        }
    }

    /// Returns the default settings.
    pub fn modern() -> Config {
        Config::default()
    }

    /// Returns the settings of 4.3BSD with window scaling, as on paper \[1\]'s board: no timestamps, no
    /// selective acknowledgements.
    ///
    /// Not modelled: the small mbufs used for writes below 512 bytes, and the 500 ms tick of the
    /// retransmission timer (only its minimum timeout is kept).
    pub fn bsd43() -> Config {
        Config {
            // `tcp_mss` rounds down to a cluster; `sosend` copies one cluster (MCLBYTES) at a time.
            mss_round_bytes: Some(1024),
            copy_chunk_bytes: Some(1024),
            // `sbreserve`: 2048 bytes, or the whole buffer if it is smaller.
            send_low_water_bytes: Some(2048),
            // `tcp_fasttimo` runs every 200 ms; `tcp_input` itself never triggers an immediate
            // acknowledgement of data.
            delayed_ack: Duration::from_millis(200),
            ack_tick: Duration::from_millis(200),
            ack_segments: 0,
            // `tcp_output` sends a window update for two segments, or for 35 % of the buffer.
            ack_unit: AckUnit::Mss,
            update_segments: 2,
            update_percent: 35,
            window_advertisement: Offer::Room,
            nagle: Nagle::Classic,
            silly_window_percent: 50,
            // Slow start begins with one segment (Jacobson 1988).
            initial_window_segments: 1,
            // The values are TCPTV_SRTTDFLT (3 s) twice, TCPTV_MIN (1 s), TCPTV_REXMTMAX (64 s) and
            // TCP_MAXRXTSHIFT (12).
            rto_initial: Duration::from_secs(6),
            rto_min: Duration::from_secs(1),
            rto_max: Duration::from_secs(64),
            rto_retries: 12,
            ..Config::of_1990()
        }
    }

    /// Returns the settings of Solaris 2.3 as measured in paper \[2\]. Its source is not public. A value
    /// documented in tuning guides of later versions is marked *documented*; a value inferred from the
    /// paper's figure 7 and from the range in its text is marked *fitted*, followed by the range of values
    /// that would also fit.
    pub fn solaris23() -> Config {
        Config {
            // Window scaling and timestamps came with Solaris 2.6, selective acknowledgements with 7.
            window_scaling: false,
            // Documented: the window is a multiple of the MSS, at least `tcp_recv_hiwat_minmss`, 4.
            window_round_to_mss: true,
            window_segments_min: 4,
            // System V: TCP passes received data to the stream head at once, so the window does not shrink.
            window_advertisement: Offer::Whole,
            // Fitted: with a buffer of 9500 bytes, five writes of 4400 bytes fit between two stalls, so the
            // high-water mark is in 17,601 .. 22,000. Two segments of 9140 bytes, 18,280 bytes, lie in this
            // range.
            send_round_to_mss: true,
            // System V: `strwrite` queues a whole write if `canput` returns true.
            write_overshoot_bytes: 64 << 10,
            // Fitted: 5101 .. 5500. With a buffer of 9500 bytes, a writer is still blocked with 5100 bytes
            // free; with a buffer of 10,000 it is no longer blocked with 5500 free.
            send_low_water_bytes: Some(5120),
            // Documented (for directly connected hosts: `tcp_local_dack_interval`): 50 ms. The clock ticks
            // every 10 ms, so the delay is 40 to 50 ms.
            delayed_ack: Duration::from_millis(50),
            ack_tick: Duration::from_millis(10),
            // Fitted: 4601 .. 4650. In figure 7, every acknowledgement that is not delayed covers at least
            // 4650 bytes, and none covers 4600.
            ack_segments: 0,
            ack_bytes: Some(4620),
            // Fitted: 3001 .. 3500, from the range in the paper's text. (In later versions, `tcp_naglim_def`
            // is 4095.)
            nagle: Nagle::Limit,
            nagle_limit_bytes: 3200,
            // Documented: `tcp_slow_start_initial`, 1.
            initial_window_segments: 1,
            ..Config::of_1990()
        }
    }

    /// Returns settings without anything introduced after 4.3BSD-Reno (1990), such as later loss recovery.
    fn of_1990() -> Config {
        Config {
            congestion: CongestionControl::Reno,
            loss_detection: LossDetection::NewReno,
            proportional_rate_reduction: false,
            undo_spurious: false,
            timeout_mtu: None,
            ecn: Ecn::Off,
            limited_transmit: false,
            tail_loss_probe: false,
            pacing: false,
            sack: false,
            timestamps: false,
            ..Config::default()
        }
    }
}
