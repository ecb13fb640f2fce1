//! The results, their tables beside the paper's values, and the recommended setting.

use super::plan::{Cell, Link, Pattern};
use super::receiver::Received;
use crate::Table;
use crate::environment::Environment;
use serde::Serialize;
use std::fmt;

/// The size around which the paper's system sends (§4.3), bytes.
const TYPICAL_BYTES: u32 = 50_000;
/// Polling time, loss in percent with 7, 10 and 15 MB, and CPU use in percent at 50 KB (table 3, figure 2).
const PAPER: [(&str, &str, &str); 3] = [
    ("hybrid:100us", "0.2, 0.0001, none", "25"),
    ("hybrid:140us", "0.00025, none, none", "31"),
    ("hybrid:300us", "none, none, none", "50"),
];

/// The result of one cell.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// The cell.
    #[serde(flatten)]
    pub cell: Cell,
    /// Messages that did not arrive.
    pub lost: u64,
    /// CPU use of the receiving thread, percent.
    pub receiver_cpu_percent: f64,
    /// CPU time that the sending thread used to send, percent of the time.
    pub sender_cpu_percent: f64,
    /// CPU use of the computing thread, percent.
    pub computing_percent: f64,
    /// Throughput of the messages that arrived, 10^6 bytes per second.
    pub mbytes_per_second: f64,
}

impl Measured {
    pub(super) fn of(cell: &Cell, sent_nanos: u64, sender_cpu_nanos: u64, received: &Received) -> Measured {
        let percent = |part: u64, whole: u64| part as f64 / whole.max(1) as f64 * 100.0;
        Measured {
            cell: cell.clone(),
            lost: cell.messages.saturating_sub(received.messages),
            receiver_cpu_percent: percent(received.cpu_nanos, received.nanos),
            sender_cpu_percent: percent(sender_cpu_nanos, sent_nanos),
            computing_percent: percent(received.computed_nanos, received.nanos),
            mbytes_per_second: received.messages as f64 * f64::from(cell.bytes) * 1e3
                / sent_nanos.max(received.nanos).max(1) as f64,
        }
    }

    fn loss_percent(&self) -> f64 {
        self.lost as f64 / self.cell.messages as f64 * 100.0
    }
}

/// The setting that loses least on a link at the lowest CPU use.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recommended {
    /// The link.
    pub link: Link,
    /// The receiver's wait policy.
    pub wait: String,
    /// Receive descriptors.
    pub descriptors: u32,
    /// Messages lost with this setting, over all sizes and both patterns, percent.
    pub loss_percent: f64,
    /// CPU use of the receiving thread with paced messages of the size closest to 50 KB, percent.
    pub receiver_cpu_percent: f64,
}

/// All results.
#[derive(Clone, Debug, Serialize)]
pub struct Tune {
    /// The machine.
    pub environment: Environment,
    /// Whether sender and receiver had a processor each.
    pub apart: bool,
    /// Whether a computing thread shared the receiver's processor.
    pub workload: bool,
    /// CPU cores that other processes used during the run; `None` if it cannot be read.
    pub foreign_cores: Option<f64>,
    /// The recommended setting for each link.
    pub recommended: Vec<Recommended>,
    /// All cells.
    pub cells: Vec<Measured>,
}

/// Lists the different values in the order in which they first occur.
fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut distinct = Vec::new();
    for value in values {
        if !distinct.contains(&value) {
            distinct.push(value);
        }
    }
    distinct
}

/// Returns the size closest to the paper's typical one.
fn typical(cells: &[Measured]) -> u32 {
    let sizes = cells.iter().map(|cell| cell.cell.bytes);
    sizes.min_by_key(|bytes| bytes.abs_diff(TYPICAL_BYTES)).unwrap_or(TYPICAL_BYTES)
}

/// Returns the recommended setting of each link: of those with the fewest losses, the one with the lowest CPU
/// use of the receiver, in whole percent; then the shortest buffer.
pub fn recommend(cells: &[Measured]) -> Vec<Recommended> {
    let bytes = typical(cells);
    let of_link = |link: Link| {
        let settings = distinct(
            cells
                .iter()
                .filter(|cell| cell.cell.link == link)
                .map(|cell| (cell.cell.wait.clone(), cell.cell.descriptors)),
        );
        let judged = settings.into_iter().map(|(wait, descriptors)| {
            let its = |cell: &&Measured| {
                (cell.cell.link, &cell.cell.wait, cell.cell.descriptors) == (link, &wait, descriptors)
            };
            let (lost, sent) = cells
                .iter()
                .filter(its)
                .fold((0, 0), |(lost, sent), cell| (lost + cell.lost, sent + cell.cell.messages));
            let paced = |cell: &&Measured| cell.cell.pattern == Pattern::Paced && cell.cell.bytes == bytes;
            let cpu = cells.iter().filter(its).find(paced).map_or(100.0, |cell| cell.receiver_cpu_percent);
            let loss_percent = lost as f64 / sent.max(1) as f64 * 100.0;
            (lost, Recommended { link, wait, descriptors, loss_percent, receiver_cpu_percent: cpu })
        });
        judged.min_by_key(|(lost, one)| (*lost, one.receiver_cpu_percent.round() as u64, one.descriptors))
    };
    let links = distinct(cells.iter().map(|cell| cell.cell.link));
    links.into_iter().filter_map(of_link).map(|(_, best)| best).collect()
}

/// Formats a loss in percent.
fn loss(percent: f64) -> String {
    match percent {
        0.0 => "none".to_owned(),
        0.1.. => format!("{percent:.1}"),
        _ => format!("{percent:.3}"),
    }
}

impl Tune {
    /// Returns, for each link, the table of losses and the table of CPU use.
    pub fn tables(&self) -> Vec<Table> {
        let links = distinct(self.cells.iter().map(|cell| cell.cell.link));
        let mut tables: Vec<Table> =
            links.iter().flat_map(|&link| [self.loss_table(link), self.cpu_table(link)]).collect();
        if let Some(last) = tables.last_mut() {
            if let Some(cores) = self.foreign_cores {
                last.remark(format!(
                    "Other processes used {cores:.2} cores during the run; with more than about 0.1, repeat it."
                ));
            }
            if !self.apart {
                last.remark("Both processes share ONE PROCESSOR, so a polling receiver keeps the sender from running.");
            }
            last.remark(self.environment.line());
        }
        tables
    }

    fn of_link(&self, link: Link) -> impl Iterator<Item = &Measured> {
        self.cells.iter().filter(move |cell| cell.cell.link == link)
    }

    fn loss_table(&self, link: Link) -> Table {
        let buffers = distinct(self.of_link(link).map(|cell| cell.cell.descriptors));
        let mut table = Table::new(format!(
            "Loss over {link} by receive descriptors, % (size in KB and pattern with the highest loss)"
        ))
        .text_column("receiver");
        for buffer in &buffers {
            table = table.text_column(&buffer.to_string());
        }
        table = table.text_column("paper: 7, 10, 15 MB");
        for wait in distinct(self.of_link(link).map(|cell| &cell.cell.wait)) {
            let worst = |&buffer: &u32| {
                let cells = self.of_link(link);
                let its = cells.filter(|cell| (&cell.cell.wait, cell.cell.descriptors) == (wait, buffer));
                let worst = its.max_by(|one, other| one.loss_percent().total_cmp(&other.loss_percent()));
                worst.filter(|cell| cell.lost > 0).map_or("none".to_owned(), |cell| {
                    let pattern = if cell.cell.pattern == Pattern::Paced { "paced" } else { "bursts" };
                    format!("{} ({} {pattern})", loss(cell.loss_percent()), cell.cell.bytes / 1000)
                })
            };
            let paper = PAPER.iter().find(|(name, ..)| name == wait).map_or("", |(_, losses, _)| losses);
            let cells = buffers.iter().map(worst);
            table.row(std::iter::once(wait.clone()).chain(cells).chain([paper.to_owned()]));
        }
        for best in self.recommended.iter().filter(|best| best.link == link) {
            let lost = match best.loss_percent {
                0.0 => "nothing lost".to_owned(),
                percent => format!("loss {} %", loss(percent)),
            };
            table.remark(format!(
                "Recommended over {link}: {} with {} descriptors: {lost}, receiver's CPU {:.0} %.",
                best.wait, best.descriptors, best.receiver_cpu_percent
            ));
        }
        table.remark("In the paper, 7, 10 and 15 MB are 106, 152 and 228 descriptors of 64 KiB.");
        table
    }

    fn cpu_table(&self, link: Link) -> Table {
        // A buffer as long as the paper's, if there is one: waiting does not depend on longer ones.
        let buffers = distinct(self.of_link(link).map(|cell| cell.cell.descriptors));
        let buffer = *buffers.iter().min_by_key(|buffer| buffer.abs_diff(106)).unwrap_or(&106);
        let typical = typical(&self.cells);
        let paced = |cell: &&Measured| cell.cell.descriptors == buffer && cell.cell.pattern == Pattern::Paced;
        let sizes = distinct(self.of_link(link).map(|cell| cell.cell.bytes));
        let mut table = Table::new(format!(
            "CPU over {link}, paced, {buffer} descriptors: receiver by message size in KB, then computing thread \
            and sender at {} KB, %",
            typical / 1000
        ))
        .text_column("receiver");
        for bytes in &sizes {
            table = table.number_column(&(bytes / 1000).to_string());
        }
        table = table.number_column("computing").number_column("sender").number_column("paper, 50 KB");
        for wait in distinct(self.of_link(link).map(|cell| &cell.cell.wait)) {
            let its: Vec<&Measured> =
                self.of_link(link).filter(paced).filter(|cell| cell.cell.wait == *wait).collect();
            let at = |bytes: u32| its.iter().find(|cell| cell.cell.bytes == bytes);
            let show = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1}"));
            let cpu = sizes.iter().map(|&bytes| show(at(bytes).map(|cell| cell.receiver_cpu_percent)));
            let paper = PAPER.iter().find(|(name, ..)| name == wait).map_or("", |(.., cpu)| cpu);
            let rest = [
                show(at(typical).map(|cell| cell.computing_percent)),
                show(at(typical).map(|cell| cell.sender_cpu_percent)),
                paper.to_owned(),
            ];
            table.row(std::iter::once(wait.clone()).chain(cpu).chain(rest));
        }
        if self.workload {
            table.remark("A computing thread shares the receiver's processor.");
        }
        table
    }
}

impl fmt::Display for Tune {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tables = self.tables();
        for (at, table) in tables.iter().enumerate() {
            write!(f, "{}{table}", if at == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::Plan;

    /// Returns results of the quick plan: losses and CPU use by policy and buffer.
    fn results(of: impl Fn(&Cell) -> (u64, f64)) -> Vec<Measured> {
        let measured = |cell: Cell| {
            let (lost, receiver_cpu_percent) = of(&cell);
            Measured {
                cell,
                lost,
                receiver_cpu_percent,
                sender_cpu_percent: 1.0,
                computing_percent: 50.0,
                mbytes_per_second: 60.0,
            }
        };
        Plan::quick().cells().into_iter().map(measured).collect()
    }

    #[test]
    fn the_cheapest_setting_without_loss_is_recommended_with_its_shortest_buffer() {
        let cells = results(|cell| match (cell.wait.as_str(), cell.descriptors) {
            ("interrupt", _) => (u64::from(cell.pattern == Pattern::Bursts), 5.0),
            (_, 4) => (3, 5.0),
            ("adaptive", _) => (0, 20.2),
            _ => (0, 40.0),
        });
        let best = recommend(&cells);
        let best: Vec<_> = best.iter().map(|one| (one.link, one.wait.as_str(), one.descriptors)).collect();
        assert_eq!(best, [(Link::Shm, "adaptive", 106), (Link::Udp, "adaptive", 106)]);
    }

    #[test]
    fn if_every_setting_loses_the_one_that_loses_least_is_recommended() {
        let cells = results(|cell| (if cell.wait == "hybrid:100us" { 1 } else { 2 }, 10.0));
        let best = &recommend(&cells)[0];
        assert_eq!((best.wait.as_str(), best.descriptors), ("hybrid:100us", 4));
        assert!(best.loss_percent > 0.0);
    }

    #[test]
    fn the_tables_show_the_worst_loss_beside_the_papers_values() {
        let cells = results(|cell| {
            let worst = cell.bytes == 15_000 && cell.pattern == Pattern::Bursts && cell.descriptors == 4;
            (if worst { cell.messages / 2 } else { 0 }, 25.0)
        });
        let recommended = recommend(&cells);
        let environment = Environment::read();
        let tune =
            Tune { environment, apart: true, workload: true, foreign_cores: Some(0.0), recommended, cells };
        let text = tune.to_string();
        for expected in ["50.0 (15 bursts)", "0.2, 0.0001, none", "Recommended over UDP: interrupt with 106"]
        {
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }
}
