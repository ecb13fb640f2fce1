//! What several connections carry at once, and what connections in the opposite direction leave.
//!
//! Several   compared over the system's buffers if they were measured, because programs usually have them:
//!           small buffers of the sweep would always make several streams faster than one.
//! Opposite  each cell is compared with the same one alone.

use super::findings::{Findings, unit};
use super::map::Map;
use crate::net::trial::evidence::Pattern;
use crate::net::trial::setup::opposite_words;
use crate::table::{counted, readable};
use std::collections::{BTreeMap, BTreeSet};

/// Several connections are faster than one from this factor on.
const FASTER: f64 = 1.1;

impl Findings {
    /// Returns the sentences, without capitals and full stops; none if there was one connection at a time.
    pub(super) fn at_once(&self) -> Vec<String> {
        let patterns: BTreeSet<Pattern> = self.maps.iter().map(|map| map.pattern).collect();
        let mut sentences: Vec<String> =
            patterns.into_iter().filter_map(|pattern| self.several(pattern)).collect();
        let with = self.maps.iter().filter(|map| map.opposite > 0);
        let pairs = with.filter_map(|map| {
            let title = map.title.strip_suffix(&opposite_words(map.opposite))?;
            let alone = self.maps.iter().find(|other| other.title == title)?;
            Some((map, alone))
        });
        let mut by_kind: BTreeMap<_, Vec<[f64; 2]>> = BTreeMap::new();
        for (with, alone) in pairs {
            let cells = with.iter().zip(alone.iter());
            let figures = cells.filter_map(|((.., with), (.., alone))| Some([alone.figure?, with.figure?]));
            by_kind.entry((with.pattern, with.opposite)).or_default().extend(figures);
        }
        for ((pattern, opposite), cells) in by_kind {
            let kept = |[alone, with]: &[f64; 2]| with / alone.max(1e-9);
            let Some(worst) = cells.iter().copied().min_by(|one, other| kept(one).total_cmp(&kept(other)))
            else {
                continue;
            };
            let most = cells.iter().map(kept).fold(0.0, f64::max);
            let percent = |part: f64| readable((100.0 * part).round());
            let [least, most] = [percent(kept(&worst)), percent(most)];
            let range = if least == most { most } else { format!("{least} to {most}") };
            sentences.push(format!(
                "beside {} in the opposite direction, `{}` keeps {range} % of its rate{} {} {} instead of {}",
                counted(u64::from(opposite), "connection"),
                pattern.name(),
                if cells.len() == 1 { ":" } else { ", at worst" },
                readable(worst[1]),
                unit(pattern),
                readable(worst[0])
            ));
        }
        sentences
    }

    /// Returns how the figures of a pattern depend on the number of connections; `None` if all its maps have
    /// the same number.
    fn several(&self, pattern: Pattern) -> Option<String> {
        let (_, opposite) = self.fewest();
        let alike = || self.maps.iter().filter(|map| map.pattern == pattern && map.opposite == opposite);
        let has_system =
            alike().flat_map(Map::iter).any(|(buffer, _, cell)| buffer == 0 && cell.figure.is_some());
        let mut best: BTreeMap<u32, f64> = BTreeMap::new();
        for map in alike() {
            let cells = map.iter().filter(|(buffer, ..)| !has_system || *buffer == 0);
            let figure = cells.filter_map(|(.., cell)| cell.figure).reduce(f64::max);
            let entry = best.entry(map.connections).or_insert(0.0);
            *entry = entry.max(figure.unwrap_or(0.0));
        }
        let (fewest, first) = best.first_key_value().filter(|_| best.len() > 1)?;
        let (most, fastest) = best.iter().max_by(|one, other| one.1.total_cmp(other.1))?;
        let mut first_unit = format!(" {}", unit(pattern));
        let over = |(count, figure): (&u32, &f64)| {
            format!("{}{} over {count}", readable(*figure), std::mem::take(&mut first_unit))
        };
        let list: Vec<String> = best.iter().map(over).collect();
        let factor = fastest / first.max(1e-9);
        let answer = match factor >= FASTER {
            true => format!("{most} are {} times as fast as {fewest}", readable(factor)),
            false => format!("more are no faster than {fewest}"),
        };
        let buffers = if has_system { " with the system's buffers" } else { "" };
        Some(format!(
            "several connections at once{buffers}: `{}` has {}; {answer}",
            pattern.name(),
            list.join(", ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use crate::net::diagnosis::verdict::tests::{Streamed, findings};
    use crate::net::trial::evidence::Pattern;
    use crate::net::trial::setup::opposite_words;

    /// Returns the sentences about maps of one cell: a figure, connections, and connections in the opposite
    /// direction.
    fn at_once(cells: &[(f64, u32, u32)]) -> Vec<String> {
        let ends: Vec<[Streamed; 1]> = cells.iter().map(|(mbps, ..)| [(*mbps, false, None)]).collect();
        let maps: Vec<(Pattern, &[Streamed])> = ends.iter().map(|one| (Pattern::Stream, &one[..])).collect();
        let mut found = findings(100.0, &maps);
        for (map, (_, connections, opposite)) in found.maps.iter_mut().zip(cells) {
            map.title = format!("stream, {connections}{}", opposite_words(*opposite));
            (map.connections, map.opposite) = (*connections, *opposite);
        }
        found.at_once()
    }

    #[test]
    fn several_connections_are_compared_with_one() {
        assert_eq!(
            at_once(&[(4.0, 1, 0), (12.0, 4, 0), (24.0, 16, 0)]),
            [
                "several connections at once with the system's buffers: `stream` has 4 Mbit/s over 1, 12 over 4, 24 over \
                 16; 16 are 6 times as fast as 1"
            ]
        );
        assert!(at_once(&[(96.0, 1, 0), (97.0, 4, 0)])[0].ends_with("; more are no faster than 1"));
        assert_eq!(at_once(&[(96.0, 4, 0)]), Vec::<String>::new());
    }

    #[test]
    fn each_cell_beside_the_opposite_direction_is_compared_with_itself_alone() {
        let found = at_once(&[(38.4, 1, 0), (40.0, 4, 0), (0.192, 1, 1), (38.0, 4, 1)]);
        let expected = "beside 1 connection in the opposite direction, `stream` keeps 1 to 95 % of its rate, at worst \
                        0.192 Mbit/s instead of 38.4";
        assert_eq!(found[1], expected);
        let found = at_once(&[(38.0, 1, 0), (19.0, 1, 2)]);
        let expected = "beside 2 connections in the opposite direction, `stream` keeps 50 % of its rate: 19 Mbit/s \
                        instead of 38";
        assert_eq!(found, [expected]);
    }
}
