//! The remote lecture of paper \[2\], §4, as a plan: four sites connected in a star with Waseda at the
//! centre, and any number of simultaneous lectures.
//!
//! Sourced   from the paper: the kinds of flows and their rates; the path's 67.815 Mbit/s; which sites send
//!           and receive which flows.
//! Server    a terminal at each of the four sites sends its picture to the server at Waseda. The server sends
//!           each terminal one full picture, or the four pictures in one, each reduced to a quarter. The
//!           pictures of a site are 0.1 to 2.0 Mbit/s: figure 11's sums less its audio.
//! Assumed   how the sources vary within their rates ([`kiban_sim::traffic::JpegConfig`]); distances other
//!           than those of table 1; the CDV tolerance.
//! MPEG-2    5.5 Mbit/s of video and 0.38 of audio are sent as 7.1 Mbit/s *with interleaving and cells*:
//!           RS(94, 88) as in AAL1 gives 5.88 · 94/88 · 53/47 = 7.083. [`mpeg2`] computes the alternatives.

use super::plan::{Fec, Flow, Kind, Plan, Pvc, Queues, Site};
use crate::table::counted;
use kiban_atm::Category;

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

/// The rate of a terminal's own picture, Mbit/s on the line: figure 11's 0.4 to 2.3 less 0.3 of audio.
pub const TERMINAL_MBPS: [f64; 2] = [0.1, 2.0];
/// The rates of the server's pictures, Mbit/s on the line: one full picture, and four in one (§4.3).
const ONE_MBPS: [f64; 2] = [2.1, 5.5];
const FOUR_MBPS: [f64; 2] = [0.4, 1.7];

/// The queue of a medium's circuit if it has its own, cells: two of the largest pictures. More would only
/// delay pictures that are late already.
const MEDIUM_CELLS: usize = 1024;

/// How the circuits of a path that is shaped at the site's edge share it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Multiplexing {
    /// In one queue, in order of arrival.
    Shared,
    /// A queue for each circuit, with equal weights.
    Fair,
    /// A queue for each circuit, with weights in proportion to what its medium needs at most.
    Weighted,
    /// A queue for each circuit: MPEG-2 and audio as CBR, pictures as VBR, data and TCP as UBR.
    Priority,
}

impl Multiplexing {
    /// All variants.
    pub const ALL: [Multiplexing; 4] =
        [Multiplexing::Shared, Multiplexing::Fair, Multiplexing::Weighted, Multiplexing::Priority];

    /// Returns the word for this variant in plans.
    pub fn word(self) -> &'static str {
        match self {
            Multiplexing::Shared => "shared",
            Multiplexing::Fair => "fair",
            Multiplexing::Weighted => "weighted",
            Multiplexing::Priority => "priority",
        }
    }

    /// Parses the word that [`Multiplexing::word`] returns.
    pub fn of(word: &str) -> Option<Multiplexing> {
        Multiplexing::ALL.into_iter().find(|method| method.word() == word)
    }

    /// Sets how the circuits of a flow are served.
    fn apply(self, flow: &mut Flow) {
        if flow.kind != Kind::Bulk {
            flow.queue_cells = Some(MEDIUM_CELLS);
        }
        match self {
            Multiplexing::Shared | Multiplexing::Fair => {}
            // In tenths of a Mbit/s. The audio has more than it needs, so that it does not wait for pictures.
            Multiplexing::Weighted => {
                flow.weight = match flow.kind {
                    Kind::Mpeg2 | Kind::Constant => 80,
                    Kind::Jpeg => 80,
                    Kind::Audio => 10,
                    Kind::Data | Kind::Bulk => 1,
                }
            }
            Multiplexing::Priority => {
                flow.category = match flow.kind {
                    Kind::Mpeg2 | Kind::Constant | Kind::Audio => Category::Cbr,
                    Kind::Jpeg => Category::Vbr,
                    Kind::Data | Kind::Bulk => Category::Ubr,
                }
            }
        }
    }
}

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
    /// How circuits share a path that is shaped at the edge.
    pub multiplexing: Multiplexing,
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
        multiplexing: Multiplexing::Shared,
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
        let has_queues = shape && self.multiplexing != Multiplexing::Shared;
        let queues = if has_queues { Queues::Circuits } else { Queues::Path };
        let pvc = |from: &str, to: &str| Pvc {
            from: from.into(),
            to: to.into(),
            name: None,
            mbps: self.policed_mbps,
            cdvt_us: self.cdvt_us,
            police: true,
            tag: false,
            shape,
            queues,
        };
        let mut plan = Plan {
            title: format!("{} of paper [2]", counted(self.lectures as u64, "lecture")),
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
        // The flows of Waseda's own terminal, which stay at Waseda, come last.
        let terminals = places[1..].iter().chain(&places[..1]).map(|(site, _)| *site);
        let terminals: Vec<&str> = terminals.take(if self.all_sites { 4 } else { 1 }).collect();
        let name = |kind: &str, site: &str, is_back: bool| {
            let site = if site == "musashino" { String::new() } else { format!("-{site}") };
            format!("{kind}{site}{}", if is_back { "-back" } else { "" })
        };
        for site in &terminals {
            // Without the other sites, the server has not the pictures to compose, only their rate.
            let (ranges, composes) = match self.all_sites {
                true => (vec![ONE_MBPS], terminals.iter().map(|site| name("jpeg", site, true)).collect()),
                false => (vec![ONE_MBPS, FOUR_MBPS], Vec::new()),
            };
            for is_back in [false, true] {
                let (from, to) = if is_back { (*site, "waseda") } else { ("waseda", *site) };
                let jpeg = flow(name("jpeg", site, is_back), Kind::Jpeg, from, to);
                plan.flows.push(match is_back {
                    true => Flow { ranges: vec![TERMINAL_MBPS], ..jpeg },
                    false => Flow { ranges: ranges.clone(), composes: Clone::clone(&composes), ..jpeg },
                });
                plan.flows.push(flow(name("audio", site, is_back), Kind::Audio, from, to));
                plan.flows.push(flow(name("data", site, is_back), Kind::Data, from, to));
            }
        }
        if self.bulk > 0 {
            let bulk = flow("bulk".into(), Kind::Bulk, "waseda", "musashino");
            plan.flows.push(Flow { copies: self.bulk, ..bulk });
        }
        if has_queues {
            plan.flows.iter_mut().for_each(|flow| self.multiplexing.apply(flow));
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
