//! Throughput over message length and socket buffers: the map of paper \[2\], figures 3 to 6 and 8.

use super::hosts::{Experiment, SWITCH_DELAY, WORKSTATION_1995};
use crate::heat::{self, Heat, Scale};
use kiban_stack::tcp;
use serde::Serialize;
use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// What came of one cell.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Cell {
    /// What the reader read, Mbit/s.
    pub mbps: f64,
    /// How often in a second the writer waited for the reader's clock.
    pub waits_per_second: f64,
}

/// A map: a cell for every buffer and message.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Map {
    /// Its name, good for a file.
    pub name: &'static str,
    /// The profile under which it was made.
    pub profile: &'static str,
    /// Message lengths, bytes.
    pub messages: Vec<usize>,
    /// Socket buffers, bytes, for sending and receiving.
    pub buffers: Vec<u32>,
    /// Rows of buffers, columns of messages.
    pub cells: Vec<Vec<Cell>>,
}

/// From where on a cell is as fast as the paper calls usual, and below which it has collapsed, Mbit/s.
pub(crate) const USUAL_MBPS: f64 = 40.0;
pub(crate) const SLOW_MBPS: f64 = 10.0;
/// Shades by rate, the fastest first.
const SHADES: [(f64, char); 5] = [(USUAL_MBPS, '█'), (20.0, '▓'), (SLOW_MBPS, '▒'), (2.6, '░'), (0.0, '·')];

/// The experiment of one cell.
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
    /// Makes a map, on as many processors as there are; `done` is called after every cell.
    pub fn make(
        name: &'static str,
        profile: &'static str,
        messages: &[usize],
        buffers: &[u32],
        interval: Duration,
        done: &(dyn Fn() + Sync),
    ) -> Map {
        let tcp = tcp::Config::profile(profile).expect("the profile has a name");
        let places: Vec<(u32, usize)> = buffers
            .iter()
            .flat_map(|buffer| messages.iter().map(move |message| (*buffer, *message)))
            .collect();
        let next = AtomicUsize::new(0);
        let work = || {
            let mut made = Vec::new();
            while let Some((buffer, message)) = places.get(next.fetch_add(1, Ordering::Relaxed)) {
                let outcome = experiment(&tcp, *buffer, *message).run(interval, 0);
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
        // Buffers and messages ascend, so the order of places is that of their names.
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

    /// All cells with their buffer and message.
    pub fn iter(&self) -> impl Iterator<Item = (u32, usize, Cell)> {
        self.buffers.iter().zip(&self.cells).flat_map(|(buffer, row)| {
            self.messages.iter().zip(row).map(|(message, cell)| (*buffer, *message, *cell))
        })
    }

    /// The rate of one cell.
    pub fn at(&self, buffer: u32, message: usize) -> Option<f64> {
        self.iter().find(|(b, m, _)| (*b, *m) == (buffer, message)).map(|(_, _, cell)| cell.mbps)
    }

    /// For a spreadsheet: a line for every cell.
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

    /// The head of the lines of [`Map::csv`].
    pub const CSV_HEAD: &str = "map,profile,buffer,message,mbps,waits_per_second\n";

    /// As a picture of the form SVG.
    pub fn svg(&self) -> String {
        self.heat()
            .svg(&format!("Mbit/s under {}: message (across) and socket buffers (down), bytes", self.profile))
    }

    fn heat(&self) -> Heat {
        Heat {
            columns: self.messages.iter().map(usize::to_string).collect(),
            rows: self.buffers.iter().map(u32::to_string).collect(),
            cells: self.cells.iter().map(|row| row.iter().map(|cell| Some(cell.mbps)).collect()).collect(),
            scale: Scale {
                dark: 0.0,
                light: 60.0,
                shades: SHADES.to_vec(),
                digits: 1,
                unit: "Mbit/s".to_owned(),
            },
        }
    }
}

/// For people: numbers with a shade before each. A map with more messages than a line is wide has them go down.
impl std::fmt::Display for Map {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (heat, places) = if self.messages.len() > heat::COLUMNS_MAX {
            (self.heat().turned(), "message down, socket buffers across")
        } else {
            (self.heat(), "socket buffers down, message across")
        };
        write!(f, "{}", heat.table(&format!("{}: Mbit/s under {}, {places}, bytes", self.name, self.profile)))
    }
}
