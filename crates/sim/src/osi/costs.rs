//! The cost of processing on the OSI board of paper \[5\]: one set of constants, and the record of the time
//! spent.
//!
//! Upper     one processor runs all tasks above the lower module. A task that receives a unit is charged for
//!           a turn: scheduling, the primitive, the header. FTAM and presentation are also charged for ASN.1,
//!           and the host interface for each byte that crosses the host's bus. There are no other per-byte
//!           costs, because the board copies no data.
//! Polls     while the lower module has no room, the task above it polls (the paper's explanation of figure
//!           3), and is charged for all time in which no other task works.
//! Lower     the lower module has its own processor (on the X.25 board that the paper reused). Each frame
//!           with a data packet costs a fixed time, as the paper says. It processes one frame while the line
//!           sends another. Acknowledgements are free.

use crate::models::cost::Origin;
use kiban_osi::stack::meter::{Meter, Task};
use std::time::Duration;

/// The costs of processing on a board.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Costs {
    /// Passing a unit to a task.
    pub turn: Duration,
    /// Encoding or decoding one data unit in FTAM or presentation, in addition to the cost of the turn.
    pub coding: Duration,
    /// Moving a byte between host and board, in picoseconds.
    pub host_byte_ps: u64,
    /// One poll of the lower module for room, by the task above it.
    pub poll: Duration,
    /// Sending or receiving a frame with data in the lower module.
    pub block: Duration,
    /// Bytes that the lower module can hold for sending.
    pub module_bytes: usize,
    /// Bytes that may wait for the lower module; beyond that, the host interface accepts no more.
    pub upper_bytes: usize,
}

/// The board of paper \[5\].
pub const OSI_BOARD_1992: Costs = Costs {
    turn: Duration::from_micros(400),
    coding: Duration::from_micros(4500),
    host_byte_ps: 250_000,
    poll: Duration::from_micros(100),
    block: Duration::from_micros(10_600),
    module_bytes: 7 * 2048,
    upper_bytes: 16_000,
};

/// One constant, for tables.
#[derive(Clone, Copy, Debug)]
pub struct Constant {
    /// Its name.
    pub name: &'static str,
    /// Its value, with its unit.
    pub value: fn(&Costs) -> String,
    /// Its source.
    pub origin: Origin,
}

fn micros(time: Duration) -> String {
    format!("{:.1} us", time.as_nanos() as f64 / 1e3)
}

/// All constants, with their origins.
pub const CONSTANTS: [Constant; 7] = [
    Constant {
        name: "turn",
        value: |costs| micros(costs.turn),
        origin: Origin::Fitted(
            "to 2.5 Mbit/s in loopback with TPDUs of 512 octets, given 4 Mbit/s with 2048: the cost of a TPDU",
        ),
    },
    Constant {
        name: "coding",
        value: |costs| micros(costs.coding),
        origin: Origin::Fitted("to 4 Mbit/s in loopback with TPDUs of 2048 octets and F-DATA of 8000"),
    },
    Constant {
        name: "host_byte",
        value: |costs| format!("{} ns", costs.host_byte_ps as f64 / 1e3),
        origin: Origin::Assumed("4 MB/s, as on a PC's 16-bit bus; only the sum with coding is fitted"),
    },
    Constant {
        name: "poll",
        value: |costs| micros(costs.poll),
        origin: Origin::Assumed("chosen to be short; polls fill all idle time, however long each one is"),
    },
    Constant {
        name: "block",
        value: |costs| micros(costs.block),
        origin: Origin::Fitted(
            "to 1.5 Mbit/s on the line with TPDUs of 2048 octets and F-DATA of 8000; there is no per-byte cost, \
             because figure 2(b) falls linearly",
        ),
    },
    Constant {
        name: "module_bytes",
        value: |costs| format!("{} B", costs.module_bytes),
        origin: Origin::Assumed("a window of 7 packets of 2048 octets"),
    },
    Constant {
        name: "upper_bytes",
        value: |costs| format!("{} B", costs.upper_bytes),
        origin: Origin::Assumed("two F-DATA of 8000 octets: one being processed, one waiting"),
    },
];

impl Costs {
    /// Returns what it costs a task to handle a unit of `bytes` bytes; a call without bytes costs nothing.
    fn of(&self, task: Task, bytes: usize) -> Duration {
        if bytes == 0 {
            return Duration::ZERO;
        }
        let beside = match task {
            Task::Ftam | Task::Presentation => self.coding,
            Task::Host => Duration::from_nanos(self.host_byte_ps * bytes as u64 / 1000),
            Task::Session | Task::Transport | Task::Lower => Duration::ZERO,
        };
        self.turn + beside
    }

    /// Returns what a frame of `bytes` bytes costs the lower module.
    pub(super) fn of_frame(&self, bytes: usize) -> Duration {
        // A frame of at most 8 octets has only an address, control field and packet header: it is an
        // acknowledgement, or part of call set-up or clearing.
        if bytes > 8 { self.block } else { Duration::ZERO }
    }
}

/// How long each task has worked, in the order of [`Task::ALL`]: according to a model or a tick source, or
/// not measured.
#[derive(Clone, Debug)]
pub(super) struct Account {
    pub(super) costs: Option<Costs>,
    /// Counts ticks of a clock; the time since `turned_at` belongs to the current task.
    pub(super) ticks: Option<fn() -> u64>,
    turned_at: u64,
    task: Option<Task>,
    /// Time worked according to the cost model.
    pub(super) spent: [Duration; Task::ALL.len()],
    /// Time worked according to the clock, in its ticks.
    pub(super) spent_ticks: [u64; Task::ALL.len()],
    /// Time spent since the last call of `take_debt`.
    debt: Duration,
}

impl Account {
    pub(super) fn new(costs: Option<Costs>, ticks: Option<fn() -> u64>) -> Account {
        Account {
            costs,
            ticks,
            turned_at: 0,
            task: None,
            spent: [Duration::ZERO; Task::ALL.len()],
            spent_ticks: [0; Task::ALL.len()],
            debt: Duration::ZERO,
        }
    }

    pub(super) fn charge(&mut self, task: Task, time: Duration) {
        self.spent[task as usize] += time;
        self.debt += time;
    }

    /// Returns the time to be charged now.
    pub(super) fn take_debt(&mut self) -> Duration {
        std::mem::take(&mut self.debt)
    }
}

impl Meter for Account {
    fn turn_to(&mut self, task: Task, bytes: usize) {
        if let Some(costs) = self.costs {
            self.charge(task, costs.of(task, bytes));
        }
        if let Some(ticks) = self.ticks {
            let now = ticks();
            if let Some(before) = self.task.replace(task) {
                self.spent_ticks[before as usize] += now - self.turned_at;
            }
            self.turned_at = now;
        }
    }

    fn rest(&mut self) {
        if let (Some(ticks), Some(before)) = (self.ticks, self.task.take()) {
            self.spent_ticks[before as usize] += ticks() - self.turned_at;
        }
    }
}
