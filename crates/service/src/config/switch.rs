//! The configuration of an ATM switch: links and table entries, from TOML or from command-line arguments.
//!
//! ```text
//! NAME=ADDRESS                           a link
//! a:0.100=b:1.200,pcr=10000,police=tag   an entry for both directions: 0.100 of link a, 1.200 of link b
//! a:5=b:7,one-way                        an entry for a virtual path, from a to b only
//! ```

use super::error::{ConfigError, hint};
use super::plan::Carries;
use super::rates::{Rates, service};
use super::units::{DurationValue, Rate, Word};
use crate::link;
use kiban_atm::wire::atm::{Interface, VCI_F4_END_TO_END, Vc};
use kiban_atm::{ConnectionId, Contract, OC3C_BITS_PER_SECOND, Penalty, Service};
use kiban_streams::{NAME_BYTES_MAX, is_name};
use serde::Deserialize;
use std::time::Duration;

/// Limits of a configuration.
const LINKS_MAX: usize = 256;
const ROUTES_MAX: usize = 16_384;
/// Minimum tolerance of a policer. The process does not run all the time, so cells that arrived at different
/// times may be read together.
const TOLERANCE: Duration = Duration::from_millis(2);
/// Queue limits per link and per table entry, in cells.
const PORT_CELLS: usize = 16_384;
const ROUTE_CELLS: usize = 8192;

/// A validated configuration of a switch.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Its name.
    pub name: String,
    /// Links, which carry cells.
    pub links: Vec<LinkPlan>,
    /// Table entries, each in one direction.
    pub routes: Vec<RoutePlan>,
}

/// A link.
#[derive(Clone, Debug)]
pub struct LinkPlan {
    /// Its name.
    pub name: String,
    /// Its address.
    pub link: String,
    /// The header format.
    pub interface: Interface,
    /// The line's cell rate, bit/s.
    pub bits_per_second: u64,
    /// The maximum number of cells queued for the link.
    pub cells_max: usize,
    /// Whether segment OAM flows of circuits and paths end at this link.
    pub ends_segment: bool,
    /// Whether the switch may start even if the link cannot be opened, and then open it later.
    pub retry: bool,
}

/// A circuit or path of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkCircuit {
    /// The number of the link.
    pub link: usize,
    /// The circuit or path.
    pub name: ConnectionId,
}

/// A table entry.
#[derive(Clone, Copy, Debug)]
pub struct RoutePlan {
    /// Where its cells arrive.
    pub from: LinkCircuit,
    /// Where its cells leave.
    pub to: LinkCircuit,
    /// Cells that may wait.
    pub cells_max: usize,
    /// The contract to police, and what to do with cells that violate it.
    pub police: Option<(Contract, Penalty)>,
    /// The contract to which the entry's cells are shaped.
    pub shape: Option<Contract>,
    /// How the entry's cells are served when others of its link wait, too.
    pub service: Service,
    /// Whether congestion drops whole AAL5 frames (early and partial packet discard).
    pub frame_discard: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tables {
    name: Option<Word>,
    #[serde(default, rename = "link")]
    links: Vec<Link>,
    #[serde(default, rename = "route")]
    routes: Vec<Route>,
}

/// A link as written in TOML.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Link {
    name: Word,
    link: Word,
    interface: Option<Word>,
    rate: Option<Word>,
    queue: Option<usize>,
    #[serde(default)]
    segment_end: bool,
    #[serde(default)]
    retry: bool,
}

/// An entry as written in TOML.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Route {
    from: Word,
    to: Word,
    #[serde(default = "yes")]
    both: bool,
    pcr: Option<f64>,
    scr: Option<f64>,
    mbs: Option<u32>,
    cdvt: Option<Word>,
    police: Option<Word>,
    category: Option<Word>,
    weight: Option<u16>,
    queue: Option<usize>,
    #[serde(default)]
    frame_discard: bool,
}

fn yes() -> bool {
    true
}

/// Options for links given on the command line.
#[derive(Clone, Debug, Default)]
pub struct LinkWords {
    /// Whether cell headers are in NNI format (12-bit VPIs).
    pub nni: bool,
    /// The line's cell rate, such as `149.76Mbit`.
    pub rate: Option<String>,
    /// Links that terminate segment OAM flows.
    pub segment_ends: Vec<String>,
    /// Whether the switch may start even if some links cannot be opened.
    pub retry: bool,
}

impl Plan {
    /// Parses and validates a plan; `name` is the switch's name if the text does not set one.
    ///
    /// # Errors
    /// [`ConfigError`]: the first error in the text.
    pub fn read(text: &str, name: &str) -> Result<Plan, ConfigError> {
        let tables: Tables = toml::from_str(text).map_err(|error| ConfigError::of_toml(text, &error))?;
        let name = match &tables.name {
            Some(word) if is_name(word) => word.value.clone(),
            Some(word) => return Err(no_name(text, word)),
            None if is_name(name) => name.to_owned(),
            None => "switch".to_owned(),
        };
        let mut plan = Plan { name, links: Vec::new(), routes: Vec::new() };
        tables.links.iter().try_for_each(|link| plan.add_link(text, link))?;
        tables.routes.iter().try_for_each(|route| plan.add_route(text, route))?;
        plan.validate().map_err(|(wrong, remedy)| ConfigError {
            line: 0,
            key: String::new(),
            wrong,
            remedy,
        })?;
        Ok(plan)
    }

    /// Returns the plan described by command-line arguments.
    ///
    /// # Errors
    /// A message that names the invalid argument.
    pub fn of_words(links: &[String], routes: &[String], how: &LinkWords) -> Result<Plan, String> {
        let mut plan = Plan { name: "switch".into(), links: Vec::new(), routes: Vec::new() };
        for word in links {
            let say = |what: &str| format!("--link '{word}': {what}");
            let (name, address) = word
                .split_once('=')
                .ok_or_else(|| say("write NAME=ADDRESS, such as a=udp-cells:0.0.0.0:7000-192.0.2.1:7000"))?;
            let link = Link {
                name: Word::plain(name),
                link: Word::plain(address),
                interface: how.nni.then(|| Word::plain("nni")),
                rate: how.rate.as_deref().map(Word::plain),
                queue: None,
                segment_end: how.segment_ends.iter().any(|end| end == name),
                retry: how.retry,
            };
            plan.add_link("", &link).map_err(|error| say(&plainly(error)))?;
        }
        if let Some(unknown) = how.segment_ends.iter().find(|end| plan.link(end).is_none()) {
            return Err(format!("--segment-end '{unknown}': {}", plan.no_link()));
        }
        for word in routes {
            let say = |what: &str| format!("--route '{word}': {what}");
            let route = route_of(word).map_err(|what| say(&what))?;
            plan.add_route("", &route).map_err(|error| say(&plainly(error)))?;
        }
        plan.validate().map_err(|(wrong, remedy)| format!("{wrong}: {remedy}"))?;
        Ok(plan)
    }

    fn validate(&self) -> Result<(), (String, String)> {
        let wrong = |wrong: &str, remedy: &str| Err((wrong.to_owned(), remedy.to_owned()));
        if self.links.is_empty() {
            return wrong(
                "no link configured",
                "a switch needs two or more, each with a name and an address",
            );
        }
        if self.routes.is_empty() {
            return wrong("no route configured", "add a route, such as a:0.100 to b:1.200");
        }
        if self.links.len() > LINKS_MAX || self.routes.len() > ROUTES_MAX {
            return wrong("the switch is too large", "it can have at most 256 links and 16384 routes");
        }
        Ok(())
    }

    fn link(&self, name: &str) -> Option<usize> {
        self.links.iter().position(|link| link.name == name)
    }

    fn no_link(&self) -> String {
        let names: Vec<&str> = self.links.iter().map(|link| link.name.as_str()).collect();
        format!("unknown link; the links are {}", names.join(", "))
    }

    fn add_link(&mut self, text: &str, table: &Link) -> Result<(), ConfigError> {
        let at = |word: &Word, wrong: String, remedy: &str| ConfigError::at(text, word.at, wrong, remedy);
        if !is_name(&table.name) {
            return Err(no_name(text, &table.name));
        }
        if self.link(&table.name).is_some() {
            let wrong = format!("duplicate link name `{}`", table.name.value);
            return Err(at(&table.name, wrong, "names must be unique"));
        }
        let carries = link::carries(&table.link).map_err(|remedy| {
            at(&table.link, format!("invalid link address `{}`", table.link.value), &remedy)
        })?;
        if carries != Carries::Cells {
            let remedy =
                "a switch needs links that carry cells: udp-cells:, tcp-cells:, pseudowire:, atmtcp:";
            return Err(at(&table.link, format!("the link carries {carries}"), remedy));
        }
        let interface = match table.interface.as_ref().map(|word| (word, word.value.as_str())) {
            None | Some((_, "uni")) => Interface::Uni,
            Some((_, "nni")) => Interface::Nni,
            Some((word, other)) => {
                return Err(at(word, format!("unknown value `{other}`"), &hint(other, &["uni", "nni"])));
            }
        };
        let bits_per_second = match &table.rate {
            None => OC3C_BITS_PER_SECOND,
            Some(word) => {
                let rate = word.read::<Rate>();
                rate.map_err(|remedy| at(word, format!("invalid value `{}`", word.value), remedy))?.0
            }
        };
        self.links.push(LinkPlan {
            name: table.name.value.clone(),
            link: table.link.value.clone(),
            interface,
            bits_per_second,
            cells_max: table.queue.unwrap_or(PORT_CELLS).clamp(1, 1 << 22),
            ends_segment: table.segment_end,
            retry: table.retry,
        });
        Ok(())
    }

    fn add_route(&mut self, text: &str, table: &Route) -> Result<(), ConfigError> {
        let at = |word: &Word, wrong: String, remedy: &str| ConfigError::at(text, word.at, wrong, remedy);
        let circuit = |word: &Word| {
            self.circuit(word)
                .map_err(|remedy| at(word, format!("invalid circuit or path `{}`", word.value), &remedy))
        };
        let (from, to) = (circuit(&table.from)?, circuit(&table.to)?);
        let missing = |wrong: String, remedy: String| ConfigError {
            key: String::new(),
            ..ConfigError::at(text, table.from.at, wrong, remedy)
        };
        if std::mem::discriminant(&from.name) != std::mem::discriminant(&to.name) {
            let wrong = "a route joins two circuits or two paths".to_owned();
            return Err(missing(wrong, "write a:0.100 and b:1.200, or a:5 and b:7".into()));
        }
        if table.frame_discard && matches!(from.name, ConnectionId::Path(_)) {
            let wrong =
                "a path interleaves frames of many circuits, so frames cannot be discarded".to_owned();
            return Err(missing(wrong, "remove frame_discard".into()));
        }
        let tolerance = match &table.cdvt {
            None => None,
            Some(word) => {
                let time = word.read::<DurationValue>();
                Some(time.map_err(|remedy| at(word, format!("invalid value `{}`", word.value), remedy))?.0)
            }
        };
        let rates = Rates { pcr: table.pcr, scr: table.scr, mbs: table.mbs };
        let whose = format!("route {} to {}", table.from.value, table.to.value);
        let line = self.links[from.link].bits_per_second.max(self.links[to.link].bits_per_second);
        let contract = rates
            .contract(&whose, line, tolerance, TOLERANCE)
            .map_err(|(wrong, remedy)| missing(wrong, remedy))?;
        let (mut police, mut shape) = (None, None);
        match (contract, table.police.as_ref().map(|word| (word, word.value.as_str()))) {
            (None, None) => {}
            (Some(contract), None | Some((_, "drop"))) => police = Some((contract, Penalty::Drop)),
            (Some(contract), Some((_, "tag"))) => police = Some((contract, Penalty::Tag)),
            (Some(contract), Some((_, "shape"))) => shape = Some(contract),
            (Some(_), Some((word, other))) => {
                let known = hint(other, &["drop", "tag", "shape"]);
                return Err(at(word, format!("unknown value `{other}`"), &known));
            }
            (None, Some((word, _))) => {
                let wrong = "police needs a traffic contract".to_owned();
                return Err(at(word, wrong, "set pcr, in cells/s"));
            }
        }
        let service =
            service(table.category.as_ref(), table.weight).map_err(|(word, wrong, remedy)| match word {
                Some(word) => at(word, wrong, &remedy),
                None => missing(wrong, remedy),
            })?;
        let cells_max = table.queue.unwrap_or(ROUTE_CELLS).clamp(1, 1 << 22);
        let frame_discard = table.frame_discard;
        let there = RoutePlan { from, to, cells_max, police, shape, service, frame_discard };
        let back = RoutePlan { from: to, to: from, ..there };
        for route in [Some(there), table.both.then_some(back)].into_iter().flatten() {
            if self.routes.iter().any(|other| other.from == route.from) {
                let wrong = format!("{} already has a route", self.word(route.from));
                return Err(missing(wrong, "each incoming circuit or path has one route".into()));
            }
            self.routes.push(route);
        }
        Ok(())
    }

    /// Parses `a:0.100` or `a:5`.
    fn circuit(&self, word: &str) -> Result<LinkCircuit, String> {
        const SAY: &str = "write LINK:VPI.VCI, such as a:0.100, or LINK:VPI for a whole path";
        let (link, name) = word.rsplit_once(':').ok_or(SAY)?;
        let link = self.link(link).ok_or_else(|| self.no_link())?;
        let vpi_max = if self.links[link].interface == Interface::Uni { 255 } else { Vc::VPI_MAX };
        let name = match name.parse::<Vc>() {
            // VCIs from 5 (signalling) upwards can be switched; lower VCIs are reserved for the cells of the
            // path itself (F4).
            Ok(vc) if vc.vci <= VCI_F4_END_TO_END => {
                return Err(format!(
                    "VCIs 0 to {VCI_F4_END_TO_END} are reserved for the path's own cells (I.361 §2.2.3)"
                ));
            }
            Ok(vc) => ConnectionId::Circuit(vc),
            Err(_) => ConnectionId::Path(name.parse().map_err(|_| SAY)?),
        };
        let (ConnectionId::Circuit(Vc { vpi, .. }) | ConnectionId::Path(vpi)) = name;
        if vpi > vpi_max {
            return Err(format!("its headers allow VPIs up to {vpi_max} (with interface = \"nni\": 4095)"));
        }
        Ok(LinkCircuit { link, name })
    }

    /// Formats a circuit or path in the notation of the configuration.
    pub fn word(&self, circuit: LinkCircuit) -> String {
        let link = &self.links[circuit.link].name;
        match circuit.name {
            ConnectionId::Circuit(vc) => format!("{link}:{vc}"),
            ConnectionId::Path(vpi) => format!("{link}:{vpi}"),
        }
    }
}

fn no_name(text: &str, word: &Word) -> ConfigError {
    let remedy = format!("use 1 to {NAME_BYTES_MAX} letters, digits, - and _");
    ConfigError::at(text, word.at, format!("invalid name `{}`", word.value), remedy)
}

/// Formats an error without a line number, because arguments have none.
fn plainly(error: ConfigError) -> String {
    ConfigError { line: 0, key: String::new(), ..error }.to_string()
}

/// Parses `a:0.100=b:1.200,pcr=10000,police=tag`.
fn route_of(word: &str) -> Result<Route, String> {
    const OPTIONS: [&str; 10] =
        ["one-way", "pcr", "scr", "mbs", "cdvt", "police", "category", "weight", "queue", "frame-discard"];
    let mut parts = word.split(',');
    let ends = parts.next().unwrap_or_default();
    let (from, to) = ends.split_once('=').ok_or("write FROM=TO, such as a:0.100=b:1.200")?;
    let mut route = Route {
        from: Word::plain(from),
        to: Word::plain(to),
        both: true,
        pcr: None,
        scr: None,
        mbs: None,
        cdvt: None,
        police: None,
        category: None,
        weight: None,
        queue: None,
        frame_discard: false,
    };
    for part in parts {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        let number = |most: f64| {
            let number = value.parse::<f64>().ok().filter(|number| (0.0..=most).contains(number));
            number.ok_or_else(|| format!("{key}={value}: expected a number"))
        };
        match key {
            "one-way" => route.both = false,
            "frame-discard" => route.frame_discard = true,
            "pcr" => route.pcr = Some(number(1e9)?),
            "scr" => route.scr = Some(number(1e9)?),
            "mbs" => route.mbs = Some(number(1e9)? as u32),
            "queue" => route.queue = Some(number(1e9)? as usize),
            "cdvt" => route.cdvt = Some(Word::plain(value)),
            "category" => route.category = Some(Word::plain(value)),
            "weight" => route.weight = Some(number(f64::from(u16::MAX))? as u16),
            "police" => route.police = Some(Word::plain(value)),
            other => return Err(format!("unknown option `{other}`: {}", hint(other, &OPTIONS))),
        }
    }
    Ok(route)
}
