//! Which cells are missing, and which do not belong here: the robust algorithm for sequence counts (I.363.1, annex).
//!
//! Goal      a lost cell leaves a gap of its length, a stray cell leaves none, and one wrong count does not look like either.
//! Way       a cell is held until the next has come: what follows an odd one decides whether it was lost cells, a misinserted
//!           cell or a wrong count.
//!
//! ```text
//! e is the count that was expected, n the one that came instead (held), c the next
//!
//! c = e        the held cell was misinserted            drop it
//! c = n + 1    n - e cells are lost before it           as many dummies, then it
//! c = e + 1    the held cell is the right one           keep it: its count was wrong
//! otherwise    the sequence is lost                     drop it, begin anew
//!
//! the held cell's header was invalid
//! c = e        it was misinserted                       drop it
//! c = e + 1    it was the right one                     keep it
//! c = e + 2    it or one beside it is lost              a dummy, then it
//! otherwise    the sequence is lost                     drop it, begin anew
//! ```
//!
//! Choice    the cell with which a sequence begins is kept once the next has confirmed it.
//! Limits    counts are modulo eight: seven lost cells look like one that came twice, eight like none.

use kiban_wire::aal1::COUNTS;

/// What becomes of the cell that is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Held {
    /// It belongs here.
    Keep,
    /// It does not belong here.
    Misinserted,
    /// Nobody knows where it belongs.
    Drop,
}

/// What a cell's arrival decides. The cell that arrived is held now, unless `hold` says no.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// What becomes of the cell that was held; meaningless if none was.
    pub held: Held,
    /// Cells that are missing before the held one.
    pub lost: u8,
    /// Whether the cell that arrived is held.
    pub hold: bool,
    /// Whether the sequence was lost just now.
    pub broken: bool,
}

impl Step {
    const fn of(held: Held) -> Step {
        Step { held, lost: 0, hold: true, broken: false }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Nothing is held.
    Start,
    /// One cell with a valid count is held.
    First { count: u8 },
    /// The held cell follows those before it.
    Sync { count: u8 },
    /// The held cell does not follow.
    Odd { expected: u8, count: u8 },
    /// The held cell's header is invalid.
    Invalid { expected: u8 },
}

/// The sequence of one circuit.
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
    /// A cell arrived with this count; none if its header is not to be believed.
    pub fn on_cell(&mut self, count: Option<u8>) -> Step {
        let (state, step) = match count {
            Some(count) => self.on_valid(count),
            None => self.on_invalid(),
        };
        self.state = state;
        step
    }

    /// Whether the held cell follows those before it.
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
