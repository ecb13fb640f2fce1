//! A plan: sites, paths between them with their contracts, and flows. TOML.
//!
//! Errors    an error gives the line, says what is wrong and what to do, and suggests the nearest known key
//!           for an unknown one.
//! Rates     the rates of contracts and pictures are line rates, cell headers included; the rate of a
//!           constant flow is the rate of its payload.

use crate::nearest::suggest;
use kiban_atm::{Category, Service, WEIGHT_MAX};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::ops::Range;
use toml::Spanned;

/// A plan: sites, paths and flows.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The title of the plan.
    #[serde(default)]
    pub title: String,
    /// Seed of all random numbers.
    #[serde(default = "one")]
    pub seed: u64,
    /// Virtual seconds during which sources send.
    pub seconds: f64,
    /// The sample interval in milliseconds.
    #[serde(default = "second")]
    pub sample_ms: u64,
    /// The network's own settings.
    #[serde(default)]
    pub network: Network,
    /// The sites.
    #[serde(default, rename = "site")]
    pub sites: Vec<Site>,
    /// Permanent paths, one per direction.
    #[serde(default, rename = "pvc")]
    pub pvcs: Vec<Pvc>,
    /// The flows.
    #[serde(default, rename = "flow")]
    pub flows: Vec<Flow>,
}

/// The network's own settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Network {
    /// The rate at which every line carries cells, Mbit/s.
    pub line_mbps: f64,
    /// Capacity of an output queue, cells.
    pub queue_cells: usize,
    /// The maximum number of cells in a datagram, over a real network.
    pub datagram_cells: usize,
}

impl Default for Network {
    fn default() -> Network {
        Network { line_mbps: 149.76, queue_cells: 8192, datagram_cells: 25 }
    }
}

/// A site.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Site {
    /// The name of the site.
    pub name: Word,
    /// Kilometres of fibre to the network's switch.
    #[serde(default = "kilometres")]
    pub km: f64,
}

/// A permanent virtual path from one site to another, in one direction.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pvc {
    /// The source site.
    pub from: Word,
    /// The destination site.
    pub to: Word,
    /// Distinguishes several paths from one site to another.
    pub name: Option<String>,
    /// The path's peak cell rate, as a rate on the line.
    pub mbps: f64,
    /// Cell delay variation tolerance of the policer, microseconds.
    #[serde(default = "tolerance")]
    pub cdvt_us: f64,
    /// Whether the network polices the path.
    #[serde(default = "yes")]
    pub police: bool,
    /// Whether cells that exceed the contract are tagged as low priority instead of dropped.
    #[serde(default)]
    pub tag: bool,
    /// Whether the site shapes the whole path to its contract.
    #[serde(default)]
    pub shape: bool,
    /// The queues in which cells wait for a shaped path.
    #[serde(default)]
    pub queues: Queues,
}

/// The queues in which cells wait for a shaped path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Queues {
    /// One queue for the path.
    #[default]
    Path,
    /// A queue for each circuit, served by category and weight.
    Circuits,
}

/// A flow from one site to another.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flow {
    /// The name of the flow.
    pub name: String,
    /// The kind of flow.
    pub kind: Kind,
    /// The source site.
    pub from: Word,
    /// The destination site.
    pub to: Word,
    /// The name of the path, if there are several from the source to the destination.
    pub path: Option<String>,
    /// The service category of the flow's circuits: cbr, vbr or ubr.
    #[serde(default, deserialize_with = "category")]
    pub category: Category,
    /// The weight of each circuit within its category.
    #[serde(default = "weight")]
    pub weight: u16,
    /// Capacity of each circuit's queue at the source's site, cells; the network's `queue_cells` if absent.
    pub queue_cells: Option<usize>,
    /// The contract to which each circuit is policed at the site's switch: peak rate on the line, Mbit/s.
    pub police_mbps: Option<f64>,
    /// The tolerance of this contract, microseconds.
    #[serde(default = "tolerance")]
    pub police_cdvt_us: f64,
    /// How many copies of this flow run.
    #[serde(default = "one_copy")]
    pub copies: usize,
    /// When the flow starts, seconds.
    #[serde(default)]
    pub begin_s: f64,
    /// When the flow ends, seconds; the default is the end of the plan.
    pub end_s: Option<f64>,
    /// The payload rate of a constant-rate, MPEG-2 or audio flow, Mbit/s.
    pub mbps: Option<f64>,
    /// The range of a scene's picture rate, Mbit/s on the line.
    #[serde(default)]
    pub ranges: Vec<[f64; 2]>,
    /// The flows whose pictures the source shows side by side in some scenes, as a conference server does.
    #[serde(default)]
    pub composes: Vec<String>,
    /// Pictures per second.
    #[serde(default = "thirty")]
    pub pictures_per_second: u32,
    /// The average length of a scene, seconds.
    #[serde(default = "ten")]
    pub scene_s: f64,
    /// By how much a picture may differ from the average of its scene, as a fraction.
    #[serde(default = "spread")]
    pub spread: f64,
    /// AAL1: check octets.
    #[serde(default)]
    pub fec: Fec,
    /// AAL1: octets of a block, if the stream is structured.
    pub block_octets: Option<usize>,
    /// AAL1: whether the source transmits its clock as synchronous residual time stamps (SRTS).
    #[serde(default)]
    pub stamps: bool,
    /// By how much the source's clock is faster than nominal, parts per million (constant, mpeg2).
    #[serde(default)]
    pub clock_ppm: f64,
    /// AAL5: the largest frame, octets.
    #[serde(default = "mtu")]
    pub frame_octets: usize,
    /// The rate to which the source shapes its cells, Mbit/s on the line.
    pub shape_mbps: Option<f64>,
    /// TCP's window, KiB.
    #[serde(default = "window")]
    pub window_kib: u32,
}

/// The kind of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A constant rate over AAL1.
    Constant,
    /// MPEG-2 over AAL1.
    Mpeg2,
    /// Motion-JPEG over AAL5.
    Jpeg,
    /// Audio over AAL5, silence included.
    Audio,
    /// Control data of a lecture, over AAL5.
    Data,
    /// TCP that sends as much as it can.
    Bulk,
}

impl Kind {
    /// All variants.
    pub const ALL: [Kind; 6] = [Kind::Constant, Kind::Mpeg2, Kind::Jpeg, Kind::Audio, Kind::Data, Kind::Bulk];

    /// Returns the word for this kind in plans.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Constant => "constant",
            Kind::Mpeg2 => "mpeg2",
            Kind::Jpeg => "jpeg",
            Kind::Audio => "audio",
            Kind::Data => "data",
            Kind::Bulk => "bulk",
        }
    }

    /// Returns the unit in which loss of this kind of flow is reported.
    pub fn unit(self) -> &'static str {
        match self {
            Kind::Constant => "1/30 s",
            Kind::Mpeg2 | Kind::Jpeg => "picture",
            Kind::Audio => "20 ms",
            Kind::Data => "message",
            Kind::Bulk => "-",
        }
    }

    /// Returns whether this kind of flow uses AAL1.
    pub fn is_stream(self) -> bool {
        matches!(self, Kind::Constant | Kind::Mpeg2)
    }
}

/// AAL1's check octets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Fec {
    /// No check octets.
    #[default]
    None,
    /// RS(94, 88) over 16 cells.
    Short,
    /// RS(128, 124) over 128 cells.
    Long,
}

/// A word with its position in the text.
#[derive(Clone, Debug)]
pub struct Word {
    /// The word.
    pub text: String,
    at: usize,
}

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Word, D::Error> {
        let word = Spanned::<String>::deserialize(from)?;
        let at = word.span().start;
        Ok(Word { text: word.into_inner(), at })
    }
}

impl From<&str> for Word {
    fn from(text: &str) -> Word {
        Word { text: text.to_owned(), at: 0 }
    }
}

/// An error in a plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanError {
    /// The line number, starting at 1; 0 if the error has no line.
    pub line: usize,
    /// A description of what is wrong.
    pub wrong: String,
    /// A description of what to do; empty if that is obvious.
    pub remedy: String,
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}: ", self.line)?;
        }
        f.write_str(&self.wrong)?;
        if self.remedy.is_empty() { Ok(()) } else { write!(f, ": {}", self.remedy) }
    }
}

impl std::error::Error for PlanError {}

fn category<'de, D: Deserializer<'de>>(from: D) -> Result<Category, D::Error> {
    let word = String::deserialize(from)?;
    Category::of(&word).ok_or_else(|| {
        let known = Category::ALL.map(Category::word);
        serde::de::Error::custom(format!("category `{word}` is unknown: {}", suggest(&word, &known)))
    })
}
fn weight() -> u16 {
    1
}
fn one() -> u64 {
    1
}
fn one_copy() -> usize {
    1
}
fn second() -> u64 {
    1000
}
fn kilometres() -> f64 {
    20.0
}
fn tolerance() -> f64 {
    100.0
}
fn yes() -> bool {
    true
}
fn thirty() -> u32 {
    30
}
fn ten() -> f64 {
    10.0
}
fn spread() -> f64 {
    0.15
}
fn mtu() -> usize {
    9180
}
fn window() -> u32 {
    256
}

/// Limits that bound the memory of a run and keep VPIs within 8 bits.
const PVCS_MAX: usize = 255;
const CIRCUITS_MAX: usize = 4096;
/// The largest clock offset: SRTS and adaptive clock recovery could not follow a larger one.
const CLOCK_PPM_MAX: f64 = 500.0;

impl Pvc {
    fn joins(&self, from: &Word, to: &Word) -> bool {
        self.from.text == from.text && self.to.text == to.text
    }
}

impl Plan {
    /// Parses and validates a plan.
    ///
    /// # Errors
    /// Returns the first error that is found.
    pub fn read(text: &str) -> Result<Plan, PlanError> {
        let plan: Plan = toml::from_str(text).map_err(|error| of_toml(text, &error))?;
        plan.validate(text)?;
        Ok(plan)
    }

    /// Returns the index of a site.
    pub fn site(&self, name: &Word) -> Option<usize> {
        self.sites.iter().position(|site| site.name.text == name.text)
    }

    /// Returns the index of a flow's path. If it has a name, it is the path of that name.
    pub fn path(&self, flow: &Flow) -> Option<usize> {
        self.pvcs.iter().position(|pvc| {
            pvc.joins(&flow.from, &flow.to)
                && flow.path.as_ref().is_none_or(|name| pvc.name.as_ref() == Some(name))
        })
    }

    /// Returns the index of the path in the opposite direction of a flow's: the one with the same name, or
    /// the first.
    pub fn path_back(&self, flow: &Flow) -> Option<usize> {
        let back = || self.pvcs.iter().enumerate().filter(|(_, pvc)| pvc.joins(&flow.to, &flow.from));
        let namesake = back().find(|(_, pvc)| pvc.name == flow.path);
        namesake.or_else(|| back().next()).map(|(number, _)| number)
    }

    /// Returns whether a flow stays within its site.
    pub fn is_local(flow: &Flow) -> bool {
        flow.from.text == flow.to.text
    }

    fn validate(&self, text: &str) -> Result<(), PlanError> {
        let error_at = |at: usize, wrong: String, remedy: &str| PlanError {
            line: line_of(text, at),
            wrong,
            remedy: remedy.to_owned(),
        };
        let positive = |what: &str, value: f64, at: usize| {
            let good = value.is_finite() && value > 0.0;
            if good {
                Ok(())
            } else {
                Err(error_at(at, format!("{what} is {value}"), "it must be greater than 0"))
            }
        };
        positive("seconds", self.seconds, 0)?;
        positive("line_mbps", self.network.line_mbps, 0)?;
        positive("sample_ms", self.sample_ms as f64, 0)?;
        if !(1..=25).contains(&self.network.datagram_cells) {
            let wrong = format!("datagram_cells is {}", self.network.datagram_cells);
            return Err(error_at(0, wrong, "choose 1 to 25"));
        }
        for (number, site) in self.sites.iter().enumerate() {
            if self.site(&site.name) != Some(number) {
                let wrong = format!("there are two sites `{}`", site.name.text);
                return Err(error_at(site.name.at, wrong, "names must be unique"));
            }
            if !(0.0..=40_000.0).contains(&site.km) {
                return Err(error_at(site.name.at, format!("km is {}", site.km), "choose 0 to 40000"));
            }
        }
        let known = |name: &Word| {
            if self.site(name).is_some() {
                return Ok(());
            }
            let names: Vec<&str> = self.sites.iter().map(|site| site.name.text.as_str()).collect();
            Err(error_at(name.at, format!("there is no site `{}`", name.text), &suggest(&name.text, &names)))
        };
        if self.pvcs.len() > PVCS_MAX {
            return Err(error_at(0, format!("{} paths", self.pvcs.len()), "at most 255 are allowed"));
        }
        for (number, pvc) in self.pvcs.iter().enumerate() {
            known(&pvc.from)?;
            known(&pvc.to)?;
            if pvc.from.text == pvc.to.text {
                return Err(error_at(
                    pvc.to.at,
                    "a path ends at the site where it starts".into(),
                    "choose another site",
                ));
            }
            let twin = |other: &Pvc| other.joins(&pvc.from, &pvc.to) && other.name == pvc.name;
            if self.pvcs.iter().position(twin) != Some(number) {
                let wrong = format!("there are two paths from {} to {}", pvc.from.text, pvc.to.text);
                return Err(error_at(pvc.from.at, wrong, "give each a name"));
            }
            if pvc.queues == Queues::Circuits && !pvc.shape {
                let wrong = "queues = \"circuits\" without shape".to_owned();
                return Err(error_at(
                    pvc.from.at,
                    wrong,
                    "set shape = true: cells wait only for a shaped path",
                ));
            }
            positive("mbps", pvc.mbps, pvc.from.at)?;
            positive("cdvt_us", pvc.cdvt_us, pvc.from.at)?;
        }
        let mut circuits = 0;
        for flow in &self.flows {
            known(&flow.from)?;
            known(&flow.to)?;
            let at = flow.from.at;
            let (from, to) = (&flow.from.text, &flow.to.text);
            let no_path = |from: &str, to: &str| {
                let name = flow.path.as_ref().map_or(String::new(), |name| format!(" `{name}`"));
                let wrong = format!("flow `{}` has no path{name} from {from} to {to}", flow.name);
                Err(error_at(at, wrong, "add a [[pvc]]"))
            };
            match flow.kind {
                Kind::Bulk if Plan::is_local(flow) => {
                    let wrong = format!("flow `{}` is TCP within one site", flow.name);
                    return Err(error_at(at, wrong, "choose another destination"));
                }
                Kind::Bulk if self.path_back(flow).is_none() => return no_path(to, from),
                _ if !Plan::is_local(flow) && self.path(flow).is_none() => return no_path(from, to),
                _ => {}
            }
            for name in &flow.composes {
                let part = self.flows.iter().find(|other| other.name == *name);
                let is_one = |part: &&Flow| part.kind == Kind::Jpeg && part.composes.is_empty();
                if part.filter(is_one).is_none_or(|part| part.to.text != *from || part.copies != flow.copies)
                {
                    let wrong = format!("flow `{}` composes `{name}`", flow.name);
                    let remedy = "name jpeg flows to this site that have as many copies and compose nothing";
                    return Err(error_at(at, wrong, remedy));
                }
            }
            flow.validate()
                .map_err(|(wrong, remedy)| error_at(at, format!("flow `{}`: {wrong}", flow.name), &remedy))?;
            circuits += flow.copies;
        }
        if circuits > CIRCUITS_MAX {
            return Err(error_at(0, format!("{circuits} circuits"), "at most 4096 are possible"));
        }
        Ok(())
    }
}

impl Flow {
    /// Creates a flow with all other keys at their defaults.
    pub fn new(name: &str, kind: Kind, from: &str, to: &str) -> Flow {
        Flow {
            name: name.to_owned(),
            kind,
            from: from.into(),
            to: to.into(),
            path: None,
            category: Category::Ubr,
            weight: weight(),
            queue_cells: None,
            police_mbps: None,
            police_cdvt_us: tolerance(),
            copies: 1,
            begin_s: 0.0,
            end_s: None,
            mbps: None,
            ranges: Vec::new(),
            composes: Vec::new(),
            pictures_per_second: thirty(),
            scene_s: ten(),
            spread: spread(),
            fec: Fec::None,
            block_octets: None,
            stamps: false,
            clock_ppm: 0.0,
            frame_octets: mtu(),
            shape_mbps: None,
            window_kib: window(),
        }
    }

    /// Returns how the flow's circuits are served.
    pub fn service(&self) -> Service {
        Service { category: self.category, weight: self.weight }
    }

    pub(super) fn validate(&self) -> Result<(), (String, String)> {
        let wrong = |wrong: String, remedy: &str| Err((wrong, remedy.to_owned()));
        match self.kind {
            Kind::Constant if self.mbps.is_none() => {
                return wrong("it is constant but has no rate".into(), "set mbps");
            }
            Kind::Jpeg if self.ranges.is_empty() && self.composes.is_empty() => {
                return wrong("its pictures have no rate".into(), "set ranges = [[2.1, 5.5]]");
            }
            Kind::Bulk if self.end_s.is_some() => {
                return wrong("end_s is set for TCP".into(), "TCP ends with the plan: remove end_s");
            }
            Kind::Jpeg => {}
            _ if !self.composes.is_empty() => {
                return wrong("it composes pictures".into(), "only jpeg can: remove composes");
            }
            _ => {}
        }
        if !(1..=WEIGHT_MAX).contains(&self.weight) {
            return wrong(format!("weight is {}", self.weight), &format!("choose 1 to {WEIGHT_MAX}"));
        }
        if !(self.police_cdvt_us.is_finite() && self.police_cdvt_us > 0.0) {
            let what = format!("police_cdvt_us is {}", self.police_cdvt_us);
            return wrong(what, "it must be greater than 0");
        }
        let rates = self
            .mbps
            .iter()
            .chain(&self.shape_mbps)
            .chain(&self.police_mbps)
            .chain(self.ranges.iter().flatten());
        for rate in rates {
            if !(*rate > 0.0 && *rate <= 10_000.0) {
                return wrong(
                    format!("a rate of {rate} Mbit/s"),
                    "it must be greater than 0 and at most 10000",
                );
            }
        }
        if self.ranges.iter().any(|[low, high]| low > high) {
            return wrong("one of its ranges ends below its start".into(), "put the lower rate first");
        }
        if self.fec != Fec::None && self.block_octets.is_some() {
            return wrong(
                "both fec and block_octets are set".into(),
                "remove one: AAL1 uses one or the other",
            );
        }
        if self.block_octets == Some(0) {
            return wrong("blocks of 0 octets".into(), "set block_octets to at least 1, or remove it");
        }
        if !(-CLOCK_PPM_MAX..=CLOCK_PPM_MAX).contains(&self.clock_ppm) {
            return wrong(format!("clock_ppm is {}", self.clock_ppm), "choose -500 to 500");
        }
        if self.clock_ppm != 0.0 && !self.kind.is_stream() {
            return wrong(
                "clock_ppm is set".into(),
                "only constant and mpeg2 have a clock of their own: remove it",
            );
        }
        if !(64..=65_535).contains(&self.frame_octets) {
            return wrong(format!("frame_octets is {}", self.frame_octets), "choose 64 to 65535");
        }
        if !(1..=1000).contains(&self.pictures_per_second) {
            let what = format!("{} pictures per second", self.pictures_per_second);
            return wrong(what, "choose 1 to 1000");
        }
        if !(self.scene_s > 0.0 && (0.0..=1.0).contains(&self.spread)) {
            return wrong(
                "invalid scene_s or spread".into(),
                "scene_s must be greater than 0, and spread 0 to 1",
            );
        }
        if !(1..=16_384).contains(&self.window_kib) {
            return wrong(format!("window_kib is {}", self.window_kib), "choose 1 to 16384");
        }
        if !(self.begin_s >= 0.0 && self.end_s.is_none_or(|end| end > self.begin_s)) {
            return wrong("it ends before it starts".into(), "begin_s must be less than end_s");
        }
        Ok(())
    }
}

/// Converts an error of TOML or serde, with the nearest known key for an unknown one.
fn of_toml(text: &str, error: &toml::de::Error) -> PlanError {
    let line = error.span().map_or(0, |Range { start, .. }| line_of(text, start));
    let message = error.message().trim();
    let words: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    match (message.starts_with("unknown field") || message.starts_with("unknown variant"), &words[..]) {
        (true, [word, known @ ..]) => {
            PlanError { line, wrong: format!("`{word}` is unknown"), remedy: suggest(word, known) }
        }
        _ => PlanError { line, wrong: message.to_owned(), remedy: String::new() },
    }
}

fn line_of(text: &str, at: usize) -> usize {
    if text.is_empty() {
        0
    } else {
        1 + text.as_bytes()[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "seconds = 1\n[[site]]\nname = \"a\"\n[[site]]\nname = \"b\"\n\
        [[pvc]]\nfrom = \"a\"\nto = \"b\"\n\
        mbps = 10\n[[flow]]\nname = \"f\"\nkind = \"audio\"\nfrom = \"a\"\nto = \"b\"\n";

    #[test]
    fn plan_errors_have_a_line_and_a_remedy() {
        let plan = Plan::read(GOOD).expect("a good plan");
        assert_eq!((plan.sites.len(), plan.pvcs.len(), plan.flows[0].kind), (2, 1, Kind::Audio));
        for (from, to, expected) in [
            ("seconds = 1", "secnds = 1", "line 1: `secnds` is unknown: did you mean 'seconds'?"),
            ("mbps = 10", "mbsp = 10", "line 9: `mbsp` is unknown: did you mean 'mbps'?"),
            ("\"audio\"", "\"adio\"", "line 12: `adio` is unknown: did you mean 'audio'?"),
            (
                "kind = \"audio\"\nfrom = \"a\"",
                "kind = \"audio\"\nfrom = \"c\"",
                "line 13: there is no site `c`: expected one of: a, b",
            ),
            (
                "\"audio\"\nfrom = \"a\"\nto = \"b\"",
                "\"audio\"\nfrom = \"b\"\nto = \"a\"",
                "line 13: flow `f` has no path from b to a: add a [[pvc]]",
            ),
            ("\"audio\"", "\"bulk\"", "line 13: flow `f` has no path from b to a: add a [[pvc]]"),
            (
                "\"audio\"",
                "\"jpeg\"",
                "line 13: flow `f`: its pictures have no rate: set ranges = [[2.1, 5.5]]",
            ),
            ("\"audio\"", "\"constant\"", "line 13: flow `f`: it is constant but has no rate: set mbps"),
            (
                "\"audio\"",
                "\"audio\"\nclock_ppm = 5",
                "line 14: flow `f`: clock_ppm is set: only constant and mpeg2 have a clock of their own: \
                 remove it",
            ),
            (
                "mbps = 10\n",
                "mbps = 10\n[[pvc]]\nfrom = \"a\"\nto = \"b\"\nmbps = 5\n",
                "line 11: there are two paths from a to b: give each a name",
            ),
            (
                "mbps = 10\n",
                "mbps = 10\nqueues = \"circuits\"\n",
                "line 7: queues = \"circuits\" without shape: set shape = true: cells wait only for a shaped path",
            ),
            (
                "\"audio\"",
                "\"audio\"\npath = \"second\"",
                "line 14: flow `f` has no path `second` from a to b: add a [[pvc]]",
            ),
            (
                "\"audio\"",
                "\"audio\"\ncategory = \"cbt\"",
                "line 13: category `cbt` is unknown: did you mean 'cbr'?",
            ),
            ("\"audio\"", "\"audio\"\nweight = 0", "line 14: flow `f`: weight is 0: choose 1 to 1000"),
            (
                "\"audio\"",
                "\"jpeg\"\ncomposes = [\"g\"]",
                "line 14: flow `f` composes `g`: name jpeg flows to this site that have as many copies and \
                 compose nothing",
            ),
            ("name = \"b\"", "name = \"a\"", "line 5: there are two sites `a`: names must be unique"),
            ("mbps = 10", "mbps = 0", "line 7: mbps is 0: it must be greater than 0"),
            ("mbps = 10", "mbps = \"x\"", "line 9: invalid type: string \"x\", expected f64"),
        ] {
            let text = GOOD.replacen(from, to, 1);
            assert_ne!(text, GOOD, "{from}");
            let error = Plan::read(&text).expect_err(to).to_string();
            assert_eq!(error, expected);
        }
    }
}
