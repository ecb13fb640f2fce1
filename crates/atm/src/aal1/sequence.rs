//! Detection of lost and misinserted cells: the robust algorithm for sequence counts (I.363.1, annex).
//!
//! Purpose   a lost cell leaves a gap of its length, a misinserted cell leaves none, and a single wrong count
//!           is mistaken for neither.
//! Method    a cell is held until the next has arrived. The cell after an out-of-sequence one decides whether
//!           cells were lost, a cell was misinserted, or a count was wrong.
//!
//! ```text
//! e is the expected count, n the count received instead (held), c the next
//!
//! c = e        the held cell was misinserted            drop it
//! c = n + 1    n - e cells were lost before it          insert as many dummies, then it
//! c = e + 1    the held cell is the right one           keep it: its count was wrong
//! otherwise    the sequence is lost                     drop it, start again
//!
//! the held cell's header was invalid
//! c = e        it was misinserted                       drop it
//! c = e + 1    it was the right one                     keep it
//! c = e + 2    it or an adjacent cell was lost          insert a dummy, then it
//! otherwise    the sequence is lost                     drop it, start again
//! ```
//!
//! Start     the cell with which a sequence begins is kept once the next has confirmed it.
//! Limits    counts are modulo eight, so the loss of seven cells looks like a duplicate, and the loss of
//!           eight goes unnoticed.

use crate::wire::aal1::COUNTS;

/// What to do with the held cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Held {
    /// The held cell is in sequence: deliver it.
    Keep,
    /// It was misinserted: drop it.
    Misinserted,
    /// The held cell's position is unknown: drop it.
    Drop,
}

/// The decision when a cell arrives. The new cell is now held unless `hold` is false.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// What to do with the previously held cell. Meaningless if there was none.
    pub held: Held,
    /// Number of cells lost before the held one.
    pub lost: u8,
    /// Whether the cell that arrived is held.
    pub hold: bool,
    /// Whether this cell caused a loss of sequence synchronisation.
    pub broken: bool,
}

impl Step {
    const fn of(held: Held) -> Step {
        Step { held, lost: 0, hold: true, broken: false }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// No cell is held.
    Start,
    /// One cell with a valid count is held.
    First { count: u8 },
    /// The held cell is in sequence.
    Sync { count: u8 },
    /// The held cell is out of sequence.
    Odd { expected: u8, count: u8 },
    /// The held cell's header is invalid.
    Invalid { expected: u8 },
}

/// The sequence state of one circuit.
#[derive(Clone, Copy, Debug)]
pub struct Sequence {
    state: State,
}

impl Default for Sequence {
    fn default() -> Sequence {
        Sequence { state: State::Start }
    }
}

const fn after(count: u8, more: u8) -> u8 {
    (count + more) % COUNTS
}

impl Sequence {
    /// Processes the count of a received cell; `None` if its header is invalid.
    pub fn on_cell(&mut self, count: Option<u8>) -> Step {
        let (state, step) = match count {
            Some(count) => self.on_valid(count),
            None => self.on_invalid(),
        };
        self.state = state;
        step
    }

    /// Returns whether the held cell is in sequence.
    pub fn is_in_sync(&self) -> bool {
        matches!(self.state, State::Sync { .. })
    }

    fn on_valid(&self, count: u8) -> (State, Step) {
        let sync = State::Sync { count };
        match self.state {
            State::Start => (State::First { count }, Step::of(Held::Drop)),
            State::First { count: held } if count == after(held, 1) => (sync, Step::of(Held::Keep)),
            State::First { .. } => (State::First { count }, Step::of(Held::Drop)),
            State::Sync { count: held } if count == after(held, 1) => (sync, Step::of(Held::Keep)),
            State::Sync { count: held } => {
                (State::Odd { expected: after(held, 1), count }, Step::of(Held::Keep))
            }
            State::Odd { expected, .. } | State::Invalid { expected } if count == expected => {
                (sync, Step::of(Held::Misinserted))
            }
            State::Odd { expected, count: held } if count == after(held, 1) => {
                let lost = (held + COUNTS - expected) % COUNTS;
                (sync, Step { lost, ..Step::of(Held::Keep) })
            }
            State::Odd { expected, .. } | State::Invalid { expected } if count == after(expected, 1) => {
                (sync, Step::of(Held::Keep))
            }
            State::Invalid { expected } if count == after(expected, 2) => {
                (sync, Step { lost: 1, ..Step::of(Held::Keep) })
            }
            State::Odd { .. } | State::Invalid { .. } => {
                (State::First { count }, Step { broken: true, ..Step::of(Held::Drop) })
            }
        }
    }

    fn on_invalid(&self) -> (State, Step) {
        match self.state {
            State::Sync { count } => (State::Invalid { expected: after(count, 1) }, Step::of(Held::Keep)),
            State::Start | State::First { .. } => {
                (State::Start, Step { hold: false, ..Step::of(Held::Drop) })
            }
            State::Odd { .. } | State::Invalid { .. } => {
                (State::Start, Step { hold: false, broken: true, ..Step::of(Held::Drop) })
            }
        }
    }
}
