//! The remote lecture of paper \[2\], §4, as a plan: four sites connected in a star with Waseda at the
//! centre, and any number of simultaneous lectures.
//!
//! Sourced   from the paper: the kinds of flows and their rates; the path's 67.815 Mbit/s; which sites send
//!           and receive which flows.
//! Assumed   how the sources vary within their rates ([`kiban_sim::traffic::JpegConfig`]); distances other
//!           than those of table 1; the CDV tolerance.
//! MPEG-2    5.5 Mbit/s of video and 0.38 of audio are sent as 7.1 Mbit/s *with interleaving and cells*:
//!           RS(94, 88) as in AAL1 gives 5.88 · 94/88 · 53/47 = 7.083. [`mpeg2`] computes the alternatives.

use super::plan::{Fec, Flow, Kind, Plan, Pvc, Site};

/// MPEG-2 video of the lecture, bit/s.
pub const MPEG2_VIDEO_BPS: f64 = 5.5e6;
/// Audio of the lecture, bit/s.
pub const MPEG2_AUDIO_BPS: f64 = 0.38e6;

/// Returns the line rate of MPEG-2's video and audio, bit/s, with or without an MPEG-2 transport stream (188
/// bytes for 184 bytes of payload), and with the check octets of `fec`.
pub fn mpeg2(transport_stream: bool, fec: Fec) -> f64 {
    let framed = if transport_stream { 188.0 / 184.0 } else { 1.0 };
    let checked = match fec {
        Fec::None => 1.0,
        Fec::Short => 94.0 / 88.0,
        Fec::Long => 128.0 / 124.0,
    };
    (MPEG2_VIDEO_BPS + MPEG2_AUDIO_BPS) * framed * checked * 53.0 / 47.0
}

/// The rate to which each source is shaped if sources are shaped separately, in Mbit/s on the line. At this
/// rate, the largest picture takes 23 ms of the 33 ms between pictures.
pub const SOURCE_MBPS: f64 = 8.0;

/// Where cells are shaped to their contract.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shaping {
    /// Nowhere: pictures are sent at the line rate.
    None,
    /// At each source, to the rate of the path's contract.
    Contract,
    /// At each source, to a little more than it needs ([`SOURCE_MBPS`]).
    Source,
    /// At the site's edge, all flows of a path together.
    Edge,
}

impl Shaping {
    /// All variants.
    pub const ALL: [Shaping; 4] = [Shaping::None, Shaping::Contract, Shaping::Source, Shaping::Edge];

    /// Returns the word for this variant in plans.
    pub fn word(self) -> &'static str {
        match self {
            Shaping::None => "none",
            Shaping::Contract => "contract",
            Shaping::Source => "source",
            Shaping::Edge => "edge",
        }
    }

    /// Parses the word that [`Shaping::word`] returns.
    pub fn of(word: &str) -> Option<Shaping> {
        Shaping::ALL.into_iter().find(|shaping| shaping.word() == word)
    }
}

/// A lecture, or several at the same time.
#[derive(Clone, Copy, Debug)]
pub struct Lecture {
    /// Seed of all random numbers.
    pub seed: u64,
    /// Virtual seconds.
    pub seconds: f64,
    /// The number of lectures.
    pub lectures: usize,
    /// The peak cell rate to which paths are policed, Mbit/s.
    pub policed_mbps: f64,
    /// The policer's tolerance, microseconds.
    pub cdvt_us: f64,
    /// Where cells are shaped.
    pub shaping: Shaping,
    /// Whether all four sites take part, or only Waseda and Musashino.
    pub all_sites: bool,
    /// Check octets of MPEG-2.
    pub fec: Fec,
    /// TCP flows alongside the lectures, from Waseda to Musashino.
    pub bulk: usize,
}

impl Lecture {
    /// The lecture that the paper describes.
    pub const PAPER: Lecture = Lecture {
        seed: 1,
        seconds: 60.0,
        lectures: 1,
        policed_mbps: 67.815,
        cdvt_us: 100.0,
        shaping: Shaping::Source,
        all_sites: true,
        fec: Fec::Short,
        bulk: 0,
    };

    /// Returns the plan.
    pub fn plan(&self) -> Plan {
        // Table 1 gives 1 ms of delay to the NTT laboratories: 210 km of fibre.
        let places: &[(&str, f64)] =
            &[("waseda", 10.0), ("musashino", 200.0), ("kyoto", 7000.0), ("osaka", 7760.0)];
        let places = &places[..if self.all_sites { 4 } else { 2 }];
        let shape = self.shaping == Shaping::Edge;
        let pvc = |from: &str, to: &str| Pvc {
            from: from.into(),
            to: to.into(),
            mbps: self.policed_mbps,
            cdvt_us: self.cdvt_us,
            police: true,
            tag: false,
            shape,
        };
        let mut plan = Plan {
            title: format!("{} lecture(s) of paper [2]", self.lectures),
            seed: self.seed,
            seconds: self.seconds,
            sample_ms: 1000,
            network: Default::default(),
            sites: places.iter().map(|(name, km)| Site { name: (*name).into(), km: *km }).collect(),
            pvcs: Vec::new(),
            flows: Vec::new(),
        };
        for (site, _) in &places[1..] {
            plan.pvcs.extend([pvc("waseda", site), pvc(site, "waseda")]);
        }
        let flow = |name: String, kind, from: &str, to: &str| {
            let shape_mbps = match (self.shaping, kind) {
                (Shaping::None | Shaping::Edge, _) => None,
                (Shaping::Contract, _) => Some(self.policed_mbps),
                // Give TCP half of the path's rate.
                (Shaping::Source, Kind::Bulk) => Some(self.policed_mbps / 2.0),
                (Shaping::Source, _) => Some(SOURCE_MBPS.min(self.policed_mbps)),
            };
            Flow { copies: self.lectures, shape_mbps, ..Flow::new(&name, kind, from, to) }
        };
        let mpeg2 = flow("mpeg2".into(), Kind::Mpeg2, "waseda", "musashino");
        plan.flows.push(Flow { fec: self.fec, ..mpeg2 });
        // Waseda sends one full picture, and four small pictures combined into one. Each of the other sites
        // returns a combined picture.
        let (one, four) = ([2.1, 5.5], [0.4, 1.7]);
        for (site, _) in &places[1..] {
            let sends = [("waseda", *site, vec![one, four]), (*site, "waseda", vec![four])];
            for (from, to, ranges) in sends {
                let name = |kind: &str| match (from == "waseda", *site == "musashino") {
                    (true, true) => kind.to_owned(),
                    (false, true) => format!("{kind}-back"),
                    (true, false) => format!("{kind}-{site}"),
                    (false, false) => format!("{kind}-{site}-back"),
                };
                plan.flows.push(Flow { ranges, ..flow(name("jpeg"), Kind::Jpeg, from, to) });
                plan.flows.push(flow(name("audio"), Kind::Audio, from, to));
                plan.flows.push(flow(name("data"), Kind::Data, from, to));
            }
        }
        if self.bulk > 0 {
            let bulk = flow("bulk".into(), Kind::Bulk, "waseda", "musashino");
            plan.flows.push(Flow { copies: self.bulk, ..bulk });
        }
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arithmetic_of_mpeg2_over_aal1() {
        for (transport_stream, fec, expected) in [
            (false, Fec::None, 6.631),
            (false, Fec::Long, 6.845),
            (false, Fec::Short, 7.083),
            (true, Fec::None, 6.775),
            (true, Fec::Long, 6.993),
            (true, Fec::Short, 7.237),
        ] {
            let mbps = mpeg2(transport_stream, fec) * 1e-6;
            assert!((mbps - expected).abs() < 5e-4, "{transport_stream} {fec:?}: {mbps}");
        }
        let flow = Lecture::PAPER.plan().flows[0].clone();
        assert!((flow.stream(60.0).line_bits_per_second() - mpeg2(false, Fec::Short)).abs() < 1.0);
    }
}
