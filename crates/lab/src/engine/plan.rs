//! Plans: the question of a sweep, its parameter values, seeds and repetitions.
//!
//! Purpose   a sweep is described by one small file; all errors in it are reported, with line numbers, before
//!           anything runs.
//! Format    TOML: `question`, `repetitions`, `seed` or `seeds`, and `[parameters]`. A parameter is one
//!           value, a list, `{ from, to, step }` or `{ from, to, times }`. Missing parameters take the
//!           question's default.
//! Order     trials are numbered: repetitions vary fastest, then seeds, then the parameters in the reverse
//!           order of their names.
//! Limits    a range has at most [`VALUES_MAX`] values. A plan stores all values; trials are computed from
//!           their numbers.
//! Not implemented  adaptive sweeps, which choose points from earlier results.

use super::point::{Point, Value};
use super::question::{Failure, Parameter, Question, Time};
use crate::nearest::{all, suggest};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The maximum number of values in a range.
pub const VALUES_MAX: usize = 100_000;

/// The maximum number of invalid points that an error message lists.
const NAMED_MAX: usize = 5;

/// A plan with all ranges expanded.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The question's name.
    pub question: String,
    /// Trials per point and seed; more than one is possible only in real time.
    pub repetitions: u32,
    /// The seeds.
    pub seeds: Vec<u64>,
    /// All parameters of the question with their values.
    pub parameters: BTreeMap<String, Vec<Value>>,
}

/// One trial of a plan.
#[derive(Clone, PartialEq, Debug)]
pub struct Trial {
    /// The parameter values.
    pub point: Point,
    /// The seed.
    pub seed: u64,
    /// The number of this repetition with this seed, starting at 0.
    pub repetition: u32,
}

/// An error in a plan.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PlanError {
    /// The line number, starting at 1.
    pub line: usize,
    /// The message: what is wrong, and what to do.
    pub what: String,
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl Plan {
    /// Parses a plan for one of `questions`.
    ///
    /// # Errors
    /// Returns all errors of the plan, sorted by line.
    pub fn read(text: &str, questions: &[&dyn Question]) -> Result<Plan, Vec<PlanError>> {
        let table = DeTable::parse(text).map_err(|error| {
            let line = error.span().map_or(1, |span| line(text, span.start));
            vec![PlanError { line, what: error.message().to_owned() }]
        })?;
        let mut reader = Reader { text, mistakes: Vec::new() };
        let plan = reader.plan(table.get_ref(), questions);
        reader.mistakes.sort();
        match plan {
            Some(plan) if reader.mistakes.is_empty() => Ok(plan),
            _ => Err(reader.mistakes),
        }
    }

    /// Returns the number of points.
    pub fn points(&self) -> u64 {
        self.parameters.values().map(|values| values.len() as u64).product()
    }

    /// Returns the number of trials.
    pub fn trials(&self) -> u64 {
        self.points() * self.seeds.len() as u64 * u64::from(self.repetitions)
    }

    /// Returns the trial with the given number, which must be below [`Plan::trials`].
    pub fn trial(&self, number: u64) -> Trial {
        let mut rest = number;
        let mut digit = |base: usize| {
            let digit = rest % base as u64;
            rest /= base as u64;
            digit as usize
        };
        let repetition = digit(self.repetitions as usize) as u32;
        let seed = self.seeds[digit(self.seeds.len())];
        let last_first = self.parameters.iter().rev();
        let point = last_first.map(|(name, values)| (name.clone(), values[digit(values.len())].clone()));
        Trial { point: point.collect(), seed, repetition }
    }

    /// Returns an index for checking whether a trial belongs to the plan.
    pub fn members(&self) -> Members<'_> {
        let sorted = |(name, values): (&String, &'_ Vec<Value>)| {
            let mut values = values.clone();
            values.sort_by(Value::order);
            (name.clone(), values)
        };
        let parameters = self.parameters.iter().map(sorted).collect();
        Members { plan: self, parameters, seeds: self.seeds.iter().copied().collect() }
    }

    /// Checks that every point is valid for the question.
    ///
    /// # Errors
    /// Returns the number of invalid points, and why the first few are invalid.
    pub fn validate(&self, question: &dyn Question) -> Result<(), String> {
        let repeats = self.seeds.len() as u64 * u64::from(self.repetitions);
        let judged = (0..self.points()).filter_map(|number| {
            let point = self.trial(number * repeats).point;
            let failure = question.validate(&point).err()?;
            let (Failure::Impossible(why) | Failure::Lost(why)) = failure;
            Some(format!("  {point}: {why}"))
        });
        let (mut named, mut count) = (Vec::new(), 0_u64);
        for line in judged {
            count += 1;
            if named.len() < NAMED_MAX {
                named.push(line);
            }
        }
        if count == 0 {
            return Ok(());
        }
        let more = if count > NAMED_MAX as u64 { "\n  …" } else { "" };
        Err(format!("{count} of {} points are impossible:\n{}{more}", self.points(), named.join("\n")))
    }

    /// Returns the name of the first item that differs from another plan; `None` if the plans are equal.
    pub fn difference(&self, other: &Plan) -> Option<String> {
        let parameter = || {
            let names: BTreeSet<&String> = self.parameters.keys().chain(other.parameters.keys()).collect();
            names.into_iter().find(|name| self.parameters.get(*name) != other.parameters.get(*name))
        };
        if self.question != other.question {
            Some("the question".to_owned())
        } else if self.seeds != other.seeds {
            Some("the seeds".to_owned())
        } else if self.repetitions != other.repetitions {
            Some("the repetitions".to_owned())
        } else {
            parameter().map(|name| format!("the parameter {name}"))
        }
    }
}

/// The values of a plan, sorted for look-ups.
#[derive(Debug)]
pub struct Members<'a> {
    plan: &'a Plan,
    parameters: BTreeMap<String, Vec<Value>>,
    seeds: BTreeSet<u64>,
}

impl Members<'_> {
    /// Returns whether a trial belongs to the plan.
    pub fn contains(&self, point: &Point, seed: u64, repetition: u32) -> bool {
        let said = |(name, values): (&String, &Vec<Value>)| {
            let place =
                point.get(name).and_then(|value| values.binary_search_by(|other| other.order(value)).ok());
            place.is_some_and(|place| Some(&values[place]) == point.get(name))
        };
        repetition < self.plan.repetitions
            && self.seeds.contains(&seed)
            && point.0.len() == self.parameters.len()
            && self.parameters.iter().all(said)
    }
}

/// The type of a parameter.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Flag,
    Count,
    Figure,
    Word,
}

impl Kind {
    fn of(parameter: &Parameter) -> Kind {
        match parameter.default {
            Some(Value::Flag(_)) => Kind::Flag,
            Some(Value::Count(_)) => Kind::Count,
            Some(Value::Figure(_)) => Kind::Figure,
            Some(Value::Word(_)) | None => Kind::Word,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Kind::Flag => "true or false",
            Kind::Count => "an integer of at least 0",
            Kind::Figure => "a number",
            Kind::Word => "a string in quotes",
        }
    }
}

type Key<'a> = Spanned<toml::de::DeString<'a>>;

struct Reader<'a> {
    text: &'a str,
    mistakes: Vec<PlanError>,
}

/// The top-level keys of a plan.
const KEYS: [&str; 5] = ["question", "repetitions", "seed", "seeds", "parameters"];

impl Reader<'_> {
    fn say(&mut self, span: Range<usize>, what: String) {
        self.mistakes.push(PlanError { line: line(self.text, span.start), what });
    }

    fn unknown(&mut self, key: &Key<'_>, what: &str, known: &[&str]) {
        self.say(
            key.span(),
            format!("unknown {what} '{}'; {}", key.get_ref(), suggest(key.get_ref(), known)),
        );
    }

    fn plan(&mut self, table: &DeTable<'_>, questions: &[&dyn Question]) -> Option<Plan> {
        for key in table.keys().filter(|key| !KEYS.contains(&&**key.get_ref())) {
            self.unknown(key, "key", &KEYS);
        }
        let question = self.question(table, questions)?;
        let plan = Plan {
            question: question.name().to_owned(),
            repetitions: self.repetitions(table, question),
            seeds: self.seeds(table),
            parameters: self.parameters(table, question),
        };
        let sizes =
            plan.parameters.values().map(Vec::len).chain([plan.seeds.len(), plan.repetitions as usize]);
        if sizes.map(|size| size as u64).try_fold(1, u64::checked_mul).is_none() {
            self.say(0..0, "too many trials: use fewer values".to_owned());
        }
        Some(plan)
    }

    fn question<'q>(
        &mut self,
        table: &DeTable<'_>,
        questions: &[&'q dyn Question],
    ) -> Option<&'q dyn Question> {
        let names: Vec<&str> = questions.iter().map(|question| question.name()).collect();
        let Some((_, value)) = entry(table, "question") else {
            self.say(0..0, format!("missing key 'question'; {}", all(&names)));
            return None;
        };
        let DeValue::String(name) = value.get_ref() else {
            self.say(value.span(), "the question must be a string in quotes".to_owned());
            return None;
        };
        let found = questions.iter().find(|question| question.name() == &**name);
        if found.is_none() {
            self.say(value.span(), format!("unknown question '{name}'; {}", suggest(name, &names)));
        }
        found.copied()
    }

    fn repetitions(&mut self, table: &DeTable<'_>, question: &dyn Question) -> u32 {
        let Some((_, value)) = entry(table, "repetitions") else { return 1 };
        let count = count(value.get_ref()).and_then(|count| u32::try_from(count).ok()).unwrap_or(0);
        if count == 0 {
            self.say(value.span(), format!("repetitions must be an integer from 1 to {}", u32::MAX));
        } else if count > 1 && question.time() == Time::Virtual {
            let what = format!(
                "{} runs in virtual time, where repetitions give the same results: use several seeds",
                question.name()
            );
            self.say(value.span(), what);
        }
        count
    }

    fn seeds(&mut self, table: &DeTable<'_>) -> Vec<u64> {
        let (one, many) = (entry(table, "seed"), entry(table, "seeds"));
        if let (Some(_), Some((key, _))) = (one, many) {
            self.say(key.span(), "both 'seed' and 'seeds' are given: keep one of them".to_owned());
        }
        let Some((key, value)) = many.or(one) else { return vec![1] };
        let values = self.values(key.get_ref(), value, Kind::Count);
        values
            .into_iter()
            .filter_map(|value| if let Value::Count(seed) = value { Some(seed) } else { None })
            .collect()
    }

    fn parameters(&mut self, table: &DeTable<'_>, question: &dyn Question) -> BTreeMap<String, Vec<Value>> {
        let empty = DeTable::default();
        let said = match entry(table, "parameters") {
            None => &empty,
            Some((key, value)) => match value.get_ref() {
                DeValue::Table(said) => said,
                _ => {
                    self.say(key.span(), "parameters must be a table: [parameters]".to_owned());
                    return BTreeMap::new();
                }
            },
        };
        let names: Vec<&str> = question.parameters().iter().map(|parameter| parameter.name).collect();
        for key in said.keys().filter(|key| !names.contains(&&**key.get_ref())) {
            self.unknown(key, &format!("{} parameter", question.name()), &names);
        }
        let mut parameters = BTreeMap::new();
        for parameter in question.parameters() {
            let values = match (entry(said, parameter.name), &parameter.default) {
                (Some((_, value)), _) => self.values(parameter.name, value, Kind::of(parameter)),
                (None, Some(default)) => vec![default.clone()],
                (None, None) => {
                    let at = entry(table, "parameters").map_or(0..0, |(key, _)| key.span());
                    self.say(at, format!("missing parameter {}: {}", parameter.name, parameter.what));
                    Vec::new()
                }
            };
            parameters.insert(parameter.name.to_owned(), values);
        }
        parameters
    }

    /// Reads one value, a list, or a range.
    fn values(&mut self, name: &str, value: &Spanned<DeValue<'_>>, kind: Kind) -> Vec<Value> {
        let values = match value.get_ref() {
            DeValue::Array(list) => {
                if list.is_empty() {
                    self.say(value.span(), format!("{name} has no values: give at least one"));
                }
                list.iter().filter_map(|value| self.value(name, value, kind)).collect()
            }
            DeValue::Table(range) => self.range(name, value.span(), range, kind),
            _ => self.value(name, value, kind).into_iter().collect(),
        };
        let texts: Vec<String> = values.iter().map(Value::to_string).collect();
        let mut seen = BTreeSet::new();
        if let Some(twice) = texts.iter().find(|text| !seen.insert(*text)) {
            self.say(value.span(), format!("{name} has the value {twice} more than once"));
        }
        values
    }

    fn value(&mut self, name: &str, value: &Spanned<DeValue<'_>>, kind: Kind) -> Option<Value> {
        let found = match (kind, value.get_ref()) {
            (Kind::Flag, DeValue::Boolean(flag)) => Some(Value::Flag(*flag)),
            (Kind::Count, found) => count(found).map(Value::Count),
            (Kind::Figure, found) => figure(found).map(Value::Figure),
            (Kind::Word, DeValue::String(word)) => Some(Value::Word(word.to_string())),
            _ => None,
        };
        if found.is_none() {
            self.say(value.span(), format!("{name} must be {}", kind.words()));
        }
        found
    }

    fn range(&mut self, name: &str, span: Range<usize>, range: &DeTable<'_>, kind: Kind) -> Vec<Value> {
        const WORDS: [&str; 4] = ["from", "to", "step", "times"];
        if matches!(kind, Kind::Flag | Kind::Word) {
            self.say(
                span,
                format!(
                    "{name} must be {}, for which ranges are not supported: list the values",
                    kind.words()
                ),
            );
            return Vec::new();
        }
        for key in range.keys().filter(|key| !WORDS.contains(&&**key.get_ref())) {
            self.unknown(key, &format!("key in the range of {name}"), &WORDS);
        }
        let end = |word| entry(range, word).and_then(|(_, value)| figure(value.get_ref()));
        let values = match (end("from"), end("to"), end("step"), end("times")) {
            (Some(from), Some(to), Some(step), None) => steps(from, to, step),
            (Some(from), Some(to), None, Some(times)) => powers(from, to, times, kind),
            _ => Err("a range must be { from, to, step } or { from, to, times }, all numbers"),
        };
        let values = values.and_then(|figures| {
            let values = figures.into_iter().map(|figure| match kind {
                Kind::Count if figure < 0.0 || figure.fract() != 0.0 || figure > 2f64.powi(53) => {
                    Err("the range contains values that are not integers of at least 0")
                }
                Kind::Count => Ok(Value::Count(figure as u64)),
                _ => Ok(Value::Figure(figure)),
            });
            values.collect()
        });
        values.unwrap_or_else(|what| {
            self.say(span, format!("{name}: {what}"));
            Vec::new()
        })
    }
}

fn entry<'t, 'a>(table: &'t DeTable<'a>, name: &str) -> Option<(&'t Key<'a>, &'t Spanned<DeValue<'a>>)> {
    table.iter().find(|(key, _)| key.get_ref() == name)
}

fn count(value: &DeValue<'_>) -> Option<u64> {
    let DeValue::Integer(integer) = value else { return None };
    u64::from_str_radix(integer.as_str(), integer.radix()).ok()
}

fn figure(value: &DeValue<'_>) -> Option<f64> {
    let figure = match value {
        DeValue::Integer(integer) => i64::from_str_radix(integer.as_str(), integer.radix()).ok()? as f64,
        DeValue::Float(float) => float.as_str().parse().ok()?,
        _ => return None,
    };
    figure.is_finite().then_some(figure)
}

const TOO_MANY: &str = "the range has more than 100,000 values: use larger steps";

/// Returns the values `from`, `from + step`, … up to `to`.
fn steps(from: f64, to: f64, step: f64) -> Result<Vec<f64>, &'static str> {
    if step <= 0.0 || to < from {
        return Err("invalid range: it requires 'from' <= 'to' and 'step' > 0");
    }
    // Include the last value even if rounding puts it slightly above `to`.
    let count = ((to - from) / step + 1e-9).floor();
    if count >= VALUES_MAX as f64 {
        return Err(TOO_MANY);
    }
    Ok((0..=count as u64).map(|number| plain(from + number as f64 * step)).collect())
}

/// Returns the values `from`, `from * times`, … up to `to`; counts are rounded.
fn powers(from: f64, to: f64, times: f64, kind: Kind) -> Result<Vec<f64>, &'static str> {
    if times <= 1.0 || from <= 0.0 || to < from {
        return Err("invalid range: it requires 0 < 'from' <= 'to' and 'times' > 1");
    }
    // A factor close to 1 would give too many values.
    if (to / from).ln() / times.ln() >= VALUES_MAX as f64 {
        return Err(TOO_MANY);
    }
    let (mut values, mut exact) = (Vec::new(), from);
    while exact <= to * (1.0 + 1e-9) {
        let value = if kind == Kind::Count { exact.round() } else { plain(exact) };
        if values.last() != Some(&value) {
            values.push(value);
        }
        exact *= times;
    }
    Ok(values)
}

/// Rounds to twelve digits, for example 0.30000000000000004 to 0.3.
pub(crate) fn plain(figure: f64) -> f64 {
    format!("{figure:.11e}").parse().expect("a number was written")
}

/// Returns the line number of a byte offset, starting at 1.
fn line(text: &str, at: usize) -> usize {
    text.as_bytes()[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
}
