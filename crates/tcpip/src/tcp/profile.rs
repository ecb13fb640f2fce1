//! Profiles: settings that make TCP behave like a system that was measured.
//!
//! Goal      figures of old papers can be met by rule instead of by accident, and anybody can see what a rule
//!           costs.
//! How       a profile is a value of [`Config`]; each rule is a setting of its own, so that one can be turned
//!           at a time.
//! Sources   a setting's comment names its clause or system; here stands what a profile chooses and why.
//!           *Fitted* means chosen so that a published figure comes out: it explains the figure, it does not
//!           reproduce it.
//! Left out  sizes (MSS, buffers): they belong to the experiment, not to the system.

use super::CongestionControl;
use super::config::{AckUnit, Config, LossDetection, Nagle, Offer};
use core::time::Duration;

/// The names of the profiles, for [`Config::profile`].
pub const PROFILES: [&str; 3] = ["modern", "bsd43", "solaris23"];

impl Config {
    /// The profile of that name; none if there is none.
    pub fn profile(name: &str) -> Option<Config> {
        match name {
            "modern" => Some(Config::modern()),
            "bsd43" => Some(Config::bsd43()),
            "solaris23" => Some(Config::solaris23()),
            _ => None,
        }
    }

    /// The defaults.
    pub fn modern() -> Config {
        Config::default()
    }

    /// 4.3BSD with window scaling, as paper \[1\]'s board had it: no timestamps, no selective
    /// acknowledgements.
    ///
    /// Left out: the small mbufs of writes below 512 bytes, and the 500 ms grain of the retransmission timer,
    /// of which only the least timeout is kept.
    pub fn bsd43() -> Config {
        Config {
            // `tcp_mss`: rounded down to a cluster; `sosend` copies one cluster (MCLBYTES) a turn.
            mss_round_bytes: Some(1024),
            copy_chunk_bytes: Some(1024),
            // `sbreserve`: 2048, or all of a smaller buffer.
            send_low_water_bytes: Some(2048),
            // `tcp_fasttimo` looks every 200 ms; `tcp_input` itself makes no acknowledgement of data due.
            delayed_ack: Duration::from_millis(200),
            ack_tick: Duration::from_millis(200),
            ack_segments: 0,
            // `tcp_output`: two segments, or 35 % of the buffer.
            ack_unit: AckUnit::Mss,
            update_segments: 2,
            update_percent: 35,
            offer: Offer::Room,
            nagle: Nagle::Classic,
            silly_window_percent: 50,
            // Slow start begins with one segment (Jacobson 1988).
            initial_window_segments: 1,
            // TCPTV_SRTTDFLT 3 s, twice; TCPTV_MIN 1 s; TCPTV_REXMTMAX 64 s; TCP_MAXRXTSHIFT 12.
            rto_initial: Duration::from_secs(6),
            rto_min: Duration::from_secs(1),
            rto_max: Duration::from_secs(64),
            retries: 12,
            ..Config::of_1990()
        }
    }

    /// Solaris 2.3 as paper \[2\] saw it. Its source is not public: what tuning guides of later versions
    /// document is named; what was inferred from the paper's figure 7 and from the region of its text is
    /// marked *fitted*, with the values that would do as well.
    pub fn solaris23() -> Config {
        Config {
            // Window scaling and timestamps came with Solaris 2.6, selective acknowledgements with 7.
            window_scaling: false,
            // Documented: the window is a multiple of the MSS, at least `tcp_recv_hiwat_minmss`, 4.
            window_round_to_mss: true,
            window_segments_min: 4,
            // System V: TCP puts what arrives into the stream, and the window stays.
            offer: Offer::Whole,
            // Fitted: with a buffer of 9500 five writes of 4400 bytes go between two stalls: the mark lies in
            // 17,601 .. 22,000, and two segments of 9140 are 18,280.
            send_round_to_mss: true,
            // System V: `strwrite` puts a write whole while `canput` says yes.
            write_beyond_bytes: 64 << 10,
            // Fitted: 5101 .. 5500. With a buffer of 9500 a writer stays blocked by 4400 bytes, with one of
            // 10,000 it does not by 4500.
            send_low_water_bytes: Some(5120),
            // Documented (for directly connected hosts: `tcp_local_dack_interval`): 50 ms. The clock ticks
            // every 10 ms, so that 40 to 50 ms pass.
            delayed_ack: Duration::from_millis(50),
            ack_tick: Duration::from_millis(10),
            // Fitted: 4601 .. 4650. All acknowledgements of figure 7 that do not wait come after 4650 bytes
            // or more, and none after 4600.
            ack_segments: 0,
            ack_bytes: Some(4620),
            // Fitted: 3001 .. 3500, by the region of the text. (Later versions: `tcp_naglim_def`, 4095.)
            nagle: Nagle::Limit,
            nagle_limit_bytes: 3200,
            // Documented: `tcp_slow_start_initial`, 1.
            initial_window_segments: 1,
            ..Config::of_1990()
        }
    }

    /// What no system of those years had: everything about loss that came after Reno (4.3BSD-Reno, 1990).
    fn of_1990() -> Config {
        Config {
            congestion: CongestionControl::Reno,
            loss_detection: LossDetection::NewReno,
            rate_reduction: false,
            limited_transmit: false,
            tail_probe: false,
            pacing: false,
            sack: false,
            timestamps: false,
            ..Config::default()
        }
    }
}
