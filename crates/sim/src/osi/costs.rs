//! The cost of processing on the OSI board of paper \[5\]: one set of constants, and the record of the time
//! spent.
//!
//! Upper     one processor runs all tasks above the lower module. A task that receives a unit is charged for
//!           a turn: scheduling, the primitive, the header. FTAM and presentation are also charged for ASN.1,
//!           and the host interface for each byte that crosses the host's bus. There are no other per-byte
//!           costs, because the board copies no data.
//! Without   the paper's three mechanisms can be switched off one by one ([`Mechanisms`]); then a task also
//!           pays for the copies, or for the encoded primitive, that the mechanism avoids.
//! Polls     while the lower module has no room, the task above it polls (the paper's explanation of figure
//!           3), and is charged for all time in which no other task works.
//! Lower     the lower module has its own processor (on the X.25 board that the paper reused). Each frame
//!           with a data packet costs a fixed time, as the paper says. It processes one frame while the line
//!           sends another. Acknowledgements are free.

use crate::models::cost::Origin;
use kiban_osi::stack::meter::{Meter, Task};
use std::time::Duration;

/// The mechanisms of paper \[5\], §1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mechanism {
    /// A task builds and parses PDUs without copying user data (①). Without it, each of the four tasks that
    /// add or remove a header copies the unit once.
    NoCopy,
    /// Service primitives are structures with pointers (②). Without it, each task that receives a unit
    /// decodes the primitive from a flat message, which the task before it has encoded.
    Primitives,
    /// The board's operating system passes shared buffers between tasks (③). Without it, each message is
    /// copied into the operating system and out of it.
    SharedBuffers,
}

impl Mechanism {
    /// All three mechanisms, in the order of the paper.
    pub const ALL: [Mechanism; 3] = [Mechanism::NoCopy, Mechanism::Primitives, Mechanism::SharedBuffers];

    /// Returns the mechanism's name.
    pub const fn name(self) -> &'static str {
        match self {
            Mechanism::NoCopy => "no-copy",
            Mechanism::Primitives => "primitives",
            Mechanism::SharedBuffers => "shared-buffers",
        }
    }

    /// Returns how often this task copies each byte of a unit if the board lacks the mechanism.
    pub const fn copies(self, task: Task) -> u32 {
        match (self, task) {
            (Mechanism::NoCopy, Task::Ftam | Task::Presentation | Task::Session | Task::Transport) => 1,
            (Mechanism::SharedBuffers, _) => 2,
            _ => 0,
        }
    }
}

/// Which of the mechanisms a board has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mechanisms([bool; Mechanism::ALL.len()]);

impl Mechanisms {
    /// The board of the paper.
    pub const ALL: Mechanisms = Mechanisms([true; Mechanism::ALL.len()]);

    /// Returns all mechanisms but one.
    pub const fn without(mechanism: Mechanism) -> Mechanisms {
        let mut rest = Mechanisms::ALL;
        rest.0[mechanism as usize] = false;
        rest
    }

    fn missing(self) -> impl Iterator<Item = Mechanism> {
        Mechanism::ALL.into_iter().filter(move |mechanism| !self.0[*mechanism as usize])
    }
}

/// The costs of processing on a board.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Costs {
    /// Which of the paper's mechanisms the board has.
    pub mechanisms: Mechanisms,
    /// Passing a unit to a task.
    pub turn: Duration,
    /// Encoding one data unit in FTAM or presentation, in addition to the cost of the turn.
    pub encoding: Duration,
    /// Decoding one, likewise.
    pub decoding: Duration,
    /// Moving a byte between host and board, in picoseconds.
    pub host_byte_ps: u64,
    /// Copying a byte within the board's memory, in picoseconds; charged only without a mechanism.
    pub copy_byte_ps: u64,
    /// Encoding and decoding a primitive as a flat message; charged only without structured primitives.
    pub primitive: Duration,
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
    mechanisms: Mechanisms::ALL,
    turn: Duration::from_micros(400),
    encoding: Duration::from_micros(3000),
    decoding: Duration::from_micros(6000),
    host_byte_ps: 250_000,
    copy_byte_ps: 125_000,
    primitive: Duration::from_micros(400),
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
pub const CONSTANTS: [Constant; 9] = [
    Constant {
        name: "turn",
        value: |costs| micros(costs.turn),
        origin: Origin::Fitted(
            "to 2.5 Mbit/s in loopback with TPDUs of 512 octets, given 4 Mbit/s with 2048: the cost of a TPDU",
        ),
    },
    Constant {
        name: "encoding, decoding",
        value: |costs| format!("{}, {}", micros(costs.encoding), micros(costs.decoding)),
        origin: Origin::Fitted(
            "the sum to 4 Mbit/s in loopback with TPDUs of 2048 octets and F-DATA of 8000; the difference to \
             figure 3, where the sender waits with F-DATA of 2000, too",
        ),
    },
    Constant {
        name: "host_byte",
        value: |costs| format!("{} ns", costs.host_byte_ps as f64 / 1e3),
        origin: Origin::Assumed(
            "4 MB/s, as on a PC's 16-bit bus; only the sum with encoding and decoding is fitted",
        ),
    },
    Constant {
        name: "copy_byte",
        value: |costs| format!("{} ns", costs.copy_byte_ps as f64 / 1e3),
        origin: Origin::Assumed("8 MB/s, a loop of 32-bit moves; used only without a mechanism"),
    },
    Constant {
        name: "primitive",
        value: |costs| micros(costs.primitive),
        origin: Origin::Assumed("as much as a turn; used only without structured primitives"),
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
    fn of(&self, task: Task, bytes: usize, direction: Direction) -> Duration {
        if bytes == 0 {
            return Duration::ZERO;
        }
        let beside = match task {
            Task::Ftam | Task::Presentation if direction == Direction::Up => self.decoding,
            Task::Ftam | Task::Presentation => self.encoding,
            Task::Host => Duration::from_nanos(self.host_byte_ps * bytes as u64 / 1000),
            Task::Session | Task::Transport | Task::Lower => Duration::ZERO,
        };
        self.turn + beside + self.of_missing(task, bytes)
    }

    /// Returns a unit's additional costs for a task, due to the mechanisms that the board lacks.
    fn of_missing(&self, task: Task, bytes: usize) -> Duration {
        let cost = |mechanism: Mechanism| {
            let copied = u64::from(mechanism.copies(task)) * bytes as u64;
            let copies = Duration::from_nanos(self.copy_byte_ps * copied / 1000);
            copies + if mechanism == Mechanism::Primitives { self.primitive } else { Duration::ZERO }
        };
        self.mechanisms.missing().map(cost).sum()
    }

    /// Returns what a frame of `bytes` bytes costs the lower module.
    pub(super) fn of_frame(&self, bytes: usize) -> Duration {
        // A frame of at most 8 octets has only an address, control field and packet header: it is an
        // acknowledgement, or part of call set-up or clearing.
        if bytes > 8 { self.block } else { Duration::ZERO }
    }
}

/// Where a unit goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    /// To the user.
    Up,
    /// To the network.
    Down,
}

/// How long each task has worked, in the order of [`Task::ALL`]: according to a model or a tick source, or
/// not measured.
#[derive(Clone, Debug)]
pub(super) struct Account {
    pub(super) costs: Option<Costs>,
    /// Where the units go that the tasks report now.
    pub(super) direction: Direction,
    /// Counts ticks of a clock; the time since `turned_at` belongs to the current task.
    pub(super) ticks: Option<fn() -> u64>,
    /// The mechanism whose copies are made on the real machine, and the buffers between which bytes are
    /// copied.
    copies: Option<(Mechanism, [Vec<u8>; 2])>,
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
    pub(super) fn new(
        costs: Option<Costs>,
        ticks: Option<fn() -> u64>,
        copies: Option<Mechanism>,
    ) -> Account {
        Account {
            costs,
            direction: Direction::Down,
            ticks,
            copies: copies.map(|mechanism| (mechanism, [Vec::new(), Vec::new()])),
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
            self.charge(task, costs.of(task, bytes, self.direction));
        }
        if let Some((mechanism, buffers)) = &mut self.copies {
            copy(buffers, bytes, mechanism.copies(task));
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

/// Copies as many bytes from one buffer to the other as a unit has, `times` times.
fn copy([source, target]: &mut [Vec<u8>; 2], bytes: usize, times: u32) {
    if source.len() < bytes {
        source.resize(bytes, 0x5a);
        target.resize(bytes, 0);
    }
    for _ in 0..times {
        target[..bytes].copy_from_slice(&source[..bytes]);
        // Nothing reads the copy, so prevent the compiler from removing it.
        std::hint::black_box(&mut *target);
    }
}
