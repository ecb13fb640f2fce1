//! Actions on a file (ISO 8571-2, permitted actions and access control), and sets of actions that serve as
//! access rights.

use core::fmt;

/// The actions on a file, in the order of the standard's bit strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// Read contents.
    Read,
    /// Insert data units between existing ones.
    Insert,
    /// Replace contents.
    Replace,
    /// Append to contents.
    Extend,
    /// Erase contents.
    Erase,
    /// Read attributes.
    ReadAttribute,
    /// Change attributes, including the name.
    ChangeAttribute,
    /// Delete the file.
    Delete,
}

impl Action {
    /// All actions; the index of an action is its bit number.
    pub const ALL: [Action; 8] = [
        Action::Read,
        Action::Insert,
        Action::Replace,
        Action::Extend,
        Action::Erase,
        Action::ReadAttribute,
        Action::ChangeAttribute,
        Action::Delete,
    ];

    /// Returns the action with this word.
    pub fn of_word(word: &str) -> Option<Action> {
        Action::ALL.into_iter().find(|action| action.word() == word)
    }

    /// Returns the word that stands for the action in settings and messages.
    pub const fn word(self) -> &'static str {
        match self {
            Action::Read => "read",
            Action::Insert => "insert",
            Action::Replace => "replace",
            Action::Extend => "extend",
            Action::Erase => "erase",
            Action::ReadAttribute => "read-attribute",
            Action::ChangeAttribute => "change-attribute",
            Action::Delete => "delete",
        }
    }
}

/// A set of actions.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Actions(u8);

impl Actions {
    /// The empty set.
    pub const NONE: Actions = Actions(0);
    /// The set of all actions.
    pub const ALL: Actions = Actions(0xff);
    /// The actions that change contents.
    pub const WRITING: Actions =
        Actions::NONE.with(Action::Insert).with(Action::Replace).with(Action::Extend).with(Action::Erase);

    /// Converts a bit string, with bit 0 lowest, to a set; ignores unknown bits.
    pub const fn from_bits(bits: u64) -> Actions {
        Actions(bits as u8)
    }

    /// Returns the bits.
    pub const fn bits(self) -> u64 {
        self.0 as u64
    }

    /// Returns the set with one action added.
    #[must_use]
    pub const fn with(self, action: Action) -> Actions {
        Actions(self.0 | 1 << action as u8)
    }

    /// Returns whether an action is in the set.
    pub const fn has(self, action: Action) -> bool {
        self.0 & (1 << action as u8) != 0
    }

    /// Returns whether all of `others` are in the set.
    pub const fn has_all(self, others: Actions) -> bool {
        self.0 & others.0 == others.0
    }

    /// Returns whether any of `others` is in the set.
    pub const fn has_any(self, others: Actions) -> bool {
        self.0 & others.0 != 0
    }

    /// Returns the intersection.
    #[must_use]
    pub const fn and(self, others: Actions) -> Actions {
        Actions(self.0 & others.0)
    }

    /// Returns the actions in the set.
    pub fn each(self) -> impl Iterator<Item = Action> {
        Action::ALL.into_iter().filter(move |action| self.has(*action))
    }
}

impl FromIterator<Action> for Actions {
    fn from_iter<I: IntoIterator<Item = Action>>(actions: I) -> Actions {
        actions.into_iter().fold(Actions::NONE, Actions::with)
    }
}

impl fmt::Debug for Actions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.each()).finish()
    }
}
