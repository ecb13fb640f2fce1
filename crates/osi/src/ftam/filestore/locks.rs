//! Concurrency control (ISO 8571-2), which decides which actions on a file may run at the same time.
//!
//! Purpose   for every action, each activity states whether it performs the action, and whether others may;
//!           conflicting activities do not run at the same time.
//! Rule      two locks on the same action are compatible unless one activity performs it and the other
//!           forbids it:
//!
//! ```text
//!                performs   others may   compatible: not-required  shared  exclusive  no-access
//! not-required    no         yes                        yes          yes      yes        yes
//! shared          yes        yes                        yes          yes      no         no
//! exclusive       yes        no                         yes          no       no         no
//! no-access       no         no                         yes          no       no         yes
//! ```
//!
//! Limits    [`Locks`] limits the number of lock holders; one table serves all associations of a filestore.
//! Not implemented  waiting: a lock that is not available is refused at once, as in the standard.

use super::{Action, Actions, Path};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// The lock that an activity requests for one action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Lock {
    /// The activity does not perform the action; others may.
    #[default]
    NotRequired,
    /// The activity performs the action; others may, too.
    Shared,
    /// The activity performs the action; others may not.
    Exclusive,
    /// The activity does not perform the action, and others may not either.
    NoAccess,
}

impl Lock {
    fn acts(self) -> bool {
        matches!(self, Lock::Shared | Lock::Exclusive)
    }

    fn alone(self) -> bool {
        matches!(self, Lock::Exclusive | Lock::NoAccess)
    }

    /// Returns whether two activities may hold these locks at the same time.
    pub fn agrees(self, other: Lock) -> bool {
        !(self.acts() && other.alone() || other.acts() && self.alone())
    }
}

/// One lock for each action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Control([Lock; 8]);

impl Control {
    /// Returns the lock for an action.
    pub fn lock(&self, action: Action) -> Lock {
        self.0[action as usize]
    }

    /// Returns these locks with the lock for one action replaced.
    #[must_use]
    pub fn with(mut self, action: Action, lock: Lock) -> Control {
        self.0[action as usize] = lock;
        self
    }

    /// Returns the default locks for a set of actions; the standard leaves them to the filestore.
    ///
    /// Readers share a file with other readers, and prevent changes to its contents. They allow the contents
    /// to be replaced, since new contents are stored beside the old until they are complete. Writers and
    /// deleters have exclusive access.
    pub fn usual(actions: Actions) -> Control {
        let mut control = Control::default();
        for action in actions.each() {
            let alone = Actions::WRITING.has(action) || action == Action::Delete;
            control.0[action as usize] = if alone { Lock::Exclusive } else { Lock::Shared };
        }
        let changes = [Action::Insert, Action::Replace, Action::Extend, Action::Erase];
        if actions.has_any(Actions::WRITING) {
            // A writer excludes every kind of writing, including kinds that it does not perform itself.
            for action in changes {
                control.0[action as usize] = match actions.has(action) {
                    true => Lock::Exclusive,
                    false => Lock::NoAccess,
                };
            }
        } else if actions.has(Action::Read) {
            for action in [Action::Insert, Action::Extend, Action::Erase] {
                control.0[action as usize] = Lock::NoAccess;
            }
        }
        control
    }

    /// Returns whether these locks let their holder perform all requested actions.
    pub fn serves(&self, actions: Actions) -> bool {
        actions.each().all(|action| self.lock(action) != Lock::NoAccess)
    }

    /// Returns whether two activities may hold these locks at the same time.
    pub fn agrees(&self, other: &Control) -> bool {
        Action::ALL.into_iter().all(|action| self.lock(action).agrees(other.lock(action)))
    }
}

/// Identifies a holder's entry in a lock table.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hold(u64);

/// The reason why locks were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LockError {
    /// Another holder has a conflicting lock.
    Conflict,
    /// The table is full.
    TooMany,
}

/// A lock table, shared by the users of a filestore.
pub trait Concurrency {
    /// Acquires locks on a file.
    ///
    /// # Errors
    /// The locks cannot be granted now.
    fn take(&mut self, path: &Path, control: Control) -> Result<Hold, LockError>;

    /// Changes the locks of a holder. If the change is refused, the old locks are kept.
    ///
    /// # Errors
    /// The change is not possible now.
    fn change(&mut self, hold: &Hold, control: Control) -> Result<(), LockError>;

    /// Releases locks.
    fn give(&mut self, hold: Hold);
}

/// A table of locks in memory.
#[derive(Debug)]
pub struct Locks {
    holders: BTreeMap<u64, (Path, Control)>,
    by_path: BTreeMap<Path, Vec<u64>>,
    next: u64,
    holders_max: usize,
}

impl Locks {
    /// Creates a table for at most this many lock holders.
    pub fn new(holders_max: usize) -> Locks {
        Locks { holders: BTreeMap::new(), by_path: BTreeMap::new(), next: 0, holders_max }
    }

    /// Returns the number of holders.
    pub fn holders(&self) -> usize {
        self.holders.len()
    }

    fn agree(&self, path: &Path, control: &Control, but: Option<u64>) -> bool {
        let others = self.by_path.get(path).into_iter().flatten().filter(|holder| Some(**holder) != but);
        others.into_iter().all(|holder| self.holders[holder].1.agrees(control))
    }
}

impl Concurrency for Locks {
    fn take(&mut self, path: &Path, control: Control) -> Result<Hold, LockError> {
        if !self.agree(path, &control, None) {
            return Err(LockError::Conflict);
        }
        if self.holders.len() >= self.holders_max {
            return Err(LockError::TooMany);
        }
        let holder = self.next;
        self.next += 1;
        self.holders.insert(holder, (path.clone(), control));
        self.by_path.entry(path.clone()).or_default().push(holder);
        Ok(Hold(holder))
    }

    fn change(&mut self, hold: &Hold, control: Control) -> Result<(), LockError> {
        let Some((path, _)) = self.holders.get(&hold.0) else { return Err(LockError::Conflict) };
        if !self.agree(path, &control, Some(hold.0)) {
            return Err(LockError::Conflict);
        }
        self.holders.get_mut(&hold.0).expect("it was found").1 = control;
        Ok(())
    }

    fn give(&mut self, hold: Hold) {
        let Some((path, _)) = self.holders.remove(&hold.0) else { return };
        if let Some(holders) = self.by_path.get_mut(&path) {
            holders.retain(|holder| *holder != hold.0);
            if holders.is_empty() {
                self.by_path.remove(&path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compatible_locks_are_granted() {
        use Lock::{Exclusive, NoAccess, NotRequired, Shared};
        let rows = [
            (NotRequired, [true, true, true, true]),
            (Shared, [true, true, false, false]),
            (Exclusive, [true, false, false, false]),
            (NoAccess, [true, false, false, true]),
        ];
        for (mine, expected) in rows {
            for (other, expected) in [NotRequired, Shared, Exclusive, NoAccess].into_iter().zip(expected) {
                assert_eq!(mine.agrees(other), expected, "{mine:?} beside {other:?}");
                assert_eq!(other.agrees(mine), expected, "{other:?} beside {mine:?}");
            }
        }
    }

    #[test]
    fn default_locks_decide_which_actions_may_coincide() {
        let one = |action| Actions::NONE.with(action);
        let rows = [
            (one(Action::Read), one(Action::Read), true),
            (one(Action::Read), one(Action::Replace), true),
            (one(Action::Read), one(Action::Extend), false),
            (one(Action::Read), one(Action::ReadAttribute), true),
            (one(Action::Replace), one(Action::Replace), false),
            (one(Action::Replace), one(Action::Extend), false),
            (one(Action::Delete), one(Action::Delete), false),
            (one(Action::ReadAttribute), one(Action::Delete), true),
            (Actions::ALL, one(Action::ReadAttribute), true),
            (Actions::ALL, one(Action::Replace), false),
        ];
        for (mine, other, expected) in rows {
            assert_eq!(Control::usual(mine).agrees(&Control::usual(other)), expected, "{mine:?} {other:?}");
            assert!(Control::usual(mine).serves(mine));
        }
    }

    #[test]
    fn locks_are_taken_changed_and_released() {
        let (a, b) = (Path::read("a").unwrap(), Path::read("b").unwrap());
        let exclusive = Control::default().with(Action::Read, Lock::Exclusive);
        let shared = Control::default().with(Action::Read, Lock::Shared);
        let mut locks = Locks::new(2);
        let first = locks.take(&a, shared).unwrap();
        let second = locks.take(&a, shared).unwrap();
        assert_eq!(locks.change(&first, exclusive), Err(LockError::Conflict));
        assert_eq!(locks.take(&b, shared), Err(LockError::TooMany));
        locks.give(second);
        assert_eq!(locks.change(&first, exclusive), Ok(()));
        assert_eq!(locks.take(&a, shared), Err(LockError::Conflict));
        let other = locks.take(&b, exclusive).unwrap();
        locks.give(other);
        locks.give(first);
        assert_eq!(locks.holders(), 0);
        assert!(locks.by_path.is_empty());
    }
}
