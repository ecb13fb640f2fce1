//! The throughput map of paper \[2\] over message length and socket buffer size: figures 3 to 6 and 8.

use super::hosts::{Experiment, SWITCH_DELAY, WORKSTATION_1995};
use crate::heat::{self, Best, HeatMap, Shades};
use crate::report::Picture;
use crate::report::picture::{Heat, Outline};
use kiban_tcpip::tcp;
use serde::Serialize;
use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The result of one cell.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Cell {
    /// Goodput, Mbit/s.
    pub mbps: f64,
    /// Delayed acknowledgements that the reader's host sent per second.
    pub waits_per_second: f64,
}

/// A map, with a cell for every combination of buffer size and message length.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Map {
    /// The map's name, usable as a file name.
    pub name: &'static str,
    /// The TCP profile.
    pub profile: &'static str,
    /// Message lengths, bytes.
    pub messages: Vec<usize>,
    /// Socket buffer sizes, bytes, for sending and receiving.
    pub buffers: Vec<u32>,
    /// Cells, in one row per buffer size and one column per message length.
    pub cells: Vec<Vec<Cell>>,
}

/// The lowest rate that the paper calls usual, Mbit/s.
pub(crate) const USUAL_MBPS: f64 = 40.0;
/// The rate below which the throughput of a cell counts as collapsed, Mbit/s.
pub(crate) const SLOW_MBPS: f64 = 10.0;
/// Buffer sizes of the slow region in the paper's text (§3.2), bytes.
pub(crate) const REGION_BUFFERS: std::ops::RangeInclusive<u32> = 2000..=9000;
/// Message lengths of the slow region, bytes.
pub(crate) const REGION_MESSAGES: std::ops::RangeInclusive<usize> = 2000..=4500;
/// Shade characters by rate, starting with the highest rate.
const SHADES: [(f64, char); 5] = [(USUAL_MBPS, '█'), (20.0, '▓'), (SLOW_MBPS, '▒'), (2.6, '░'), (0.0, '·')];

/// Returns the experiment of one cell.
pub(crate) fn experiment(tcp: &tcp::Config, buffer_bytes: u32, message_bytes: usize) -> Experiment {
    Experiment {
        tcp: tcp.clone(),
        mtu_bytes: 9180,
        message_bytes,
        buffer_bytes,
        costs: WORKSTATION_1995,
        delay: SWITCH_DELAY,
    }
}

impl Map {
    /// Computes a map with a TCP profile, on all processors; calls `done` after every cell.
    pub fn make(
        name: &'static str,
        profile: &'static str,
        messages: &[usize],
        buffers: &[u32],
        interval: Duration,
        done: &(dyn Fn() + Sync),
    ) -> Map {
        let tcp = tcp::Config::profile(profile).expect("the profile has a name");
        Map::of(name, profile, &tcp, (messages, buffers), interval, done)
    }

    /// Computes a map with any TCP settings; `profile` is the name that is shown for them.
    pub fn of(
        name: &'static str,
        profile: &'static str,
        tcp: &tcp::Config,
        (messages, buffers): (&[usize], &[u32]),
        interval: Duration,
        done: &(dyn Fn() + Sync),
    ) -> Map {
        let places: Vec<(u32, usize)> = buffers
            .iter()
            .flat_map(|buffer| messages.iter().map(move |message| (*buffer, *message)))
            .collect();
        let next = AtomicUsize::new(0);
        let work = || {
            let mut made = Vec::new();
            while let Some((buffer, message)) = places.get(next.fetch_add(1, Ordering::Relaxed)) {
                let outcome = experiment(tcp, *buffer, *message).run(interval, 0);
                let cell = Cell {
                    mbps: outcome.mbps,
                    waits_per_second: outcome.waits as f64 / interval.as_secs_f64(),
                };
                made.push(((*buffer, *message), cell));
                done();
            }
            made
        };
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let mut made: Vec<_> = std::thread::scope(|scope| {
            let hands: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
            hands.into_iter().flat_map(|hand| hand.join().expect("a cell can be measured")).collect()
        });
        // Buffers and messages are ascending, so sorting by their values gives the order of the map.
        made.sort_by_key(|(place, _)| *place);
        let cells: Vec<Cell> = made.into_iter().map(|(_, cell)| cell).collect();
        Map {
            name,
            profile,
            messages: messages.to_vec(),
            buffers: buffers.to_vec(),
            cells: cells.chunks(messages.len().max(1)).map(<[Cell]>::to_vec).collect(),
        }
    }

    /// Returns all cells with buffer size and message length.
    pub fn iter(&self) -> impl Iterator<Item = (u32, usize, Cell)> {
        self.buffers.iter().zip(&self.cells).flat_map(|(buffer, row)| {
            self.messages.iter().zip(row).map(|(message, cell)| (*buffer, *message, *cell))
        })
    }

    /// Returns the rate of one cell.
    pub fn at(&self, buffer: u32, message: usize) -> Option<f64> {
        self.iter().find(|(b, m, _)| (*b, *m) == (buffer, message)).map(|(_, _, cell)| cell.mbps)
    }

    /// Returns comma-separated values with a line for every cell.
    pub fn csv(&self) -> String {
        let mut text = String::new();
        for (buffer, message, cell) in self.iter() {
            let Cell { mbps, waits_per_second } = cell;
            let _ = writeln!(
                text,
                "{},{},{buffer},{message},{mbps:.3},{waits_per_second:.1}",
                self.name, self.profile
            );
        }
        text
    }

    /// The heading line for [`Map::csv`].
    pub const CSV_HEAD: &str = "map,profile,buffer,message,mbps,waits_per_second\n";

    /// Returns a standalone SVG file.
    pub fn svg(&self) -> String {
        self.picture().standalone()
    }

    /// Returns the heat map, with an outline around the paper's slow region if the map contains it.
    pub fn picture(&self) -> Picture {
        let inside = |places: &[bool]| {
            let first = places.iter().position(|inside| *inside)?;
            let last = places.iter().rposition(|inside| *inside)?;
            Some(first..last + 1)
        };
        let columns = inside(
            &self.messages.iter().map(|message| REGION_MESSAGES.contains(message)).collect::<Vec<_>>(),
        );
        let rows =
            inside(&self.buffers.iter().map(|buffer| REGION_BUFFERS.contains(buffer)).collect::<Vec<_>>());
        let name = "where the paper says that throughput collapses".to_owned();
        let (slow, all) =
            (self.iter().filter(|(_, _, cell)| cell.mbps < SLOW_MBPS).count(), self.iter().count());
        let long = self.messages.len() > self.buffers.len() * 2;
        let words = |places: &[String]| places.to_vec();
        let messages: Vec<String> = self.messages.iter().map(usize::to_string).collect();
        let buffers: Vec<String> = self.buffers.iter().map(u32::to_string).collect();
        let axes = [
            ("message, bytes".to_owned(), words(&messages)),
            ("socket buffers, bytes".to_owned(), words(&buffers)),
        ];
        let rates = |row: &[Cell]| row.iter().map(|cell| Some(cell.mbps)).collect::<Vec<_>>();
        let cells: Vec<Vec<Option<f64>>> = self.cells.iter().map(|row| rates(row)).collect();
        let outline = columns.zip(rows).map(|(columns, rows)| Outline { columns, rows, name });
        // A map with many message lengths is transposed.
        let (axes, cells, outline) = if long {
            let [x, y] = axes;
            let turned =
                (0..self.messages.len()).map(|at| cells.iter().map(|row| row[at]).collect()).collect();
            let outline =
                outline.map(|Outline { columns, rows, name }| Outline { columns: rows, rows: columns, name });
            ([y, x], turned, outline)
        } else {
            (axes, cells, outline)
        };
        let [x, y] = axes;
        Heat {
            name: self.name.to_owned(),
            title: format!("TCP throughput, Mbit/s, by message and socket buffers; rules: {}", self.profile),
            description: format!(
                "A map of {all} cells. {slow} of them are slower than {SLOW_MBPS} Mbit/s, {} faster than \
                 {USUAL_MBPS} Mbit/s.",
                self.iter().filter(|(_, _, cell)| cell.mbps > USUAL_MBPS).count()
            ),
            x,
            y,
            unit: "Mbit/s".to_owned(),
            cells,
            steps: vec![0.0, 2.6, SLOW_MBPS, 20.0, 30.0, USUAL_MBPS, 50.0],
            maps: 1,
            best: Best::High,
            outlines: outline.into_iter().collect(),
            boundary: String::new(),
            notes: Vec::new(),
        }
        .picture()
    }

    fn sheet(&self) -> HeatMap {
        HeatMap {
            columns: self.messages.iter().map(usize::to_string).collect(),
            rows: self.buffers.iter().map(u32::to_string).collect(),
            cells: self.cells.iter().map(|row| row.iter().map(|cell| Some(cell.mbps)).collect()).collect(),
            shades: Shades { shades: SHADES.to_vec(), digits: 1, unit: "Mbit/s".to_owned() },
        }
    }
}

/// Prints the map as a text table with shades. A map with too many message lengths for one line is
/// transposed.
impl std::fmt::Display for Map {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (sheet, places) = if self.messages.len() > heat::COLUMNS_MAX {
            (self.sheet().transposed(), "message down, socket buffers across")
        } else {
            (self.sheet(), "socket buffers down, message across")
        };
        write!(
            f,
            "{}",
            sheet.table(&format!("{}: Mbit/s under {}, {places}, bytes", self.name, self.profile))
        )
    }
}
