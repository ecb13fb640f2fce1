//! The actions on a file (ISO 8571-2, permitted actions and access control): rights are sets of them.

use core::fmt;

/// An action on a file, in the order of the standard's bit strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// Reading contents.
    Read,
    /// Inserting data units between those that are there.
    Insert,
    /// Replacing contents.
    Replace,
    /// Adding to contents.
    Extend,
    /// Erasing contents.
    Erase,
    /// Reading attributes.
    ReadAttribute,
    /// Changing attributes, the name among them.
    ChangeAttribute,
    /// Deleting the file.
    Delete,
}

impl Action {
    /// All of them; the place of one is the number of its bit.
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

    /// The word for it in settings and messages.
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
    /// None.
    pub const NONE: Actions = Actions(0);
    /// All.
    pub const ALL: Actions = Actions(0xff);
    /// Those that make contents other than they were.
    pub const WRITING: Actions =
        Actions::NONE.with(Action::Insert).with(Action::Replace).with(Action::Extend).with(Action::Erase);

    /// The set of a bit string whose bit 0 is the lowest; bits without an action are left out.
    pub const fn from_bits(bits: u64) -> Actions {
        Actions(bits as u8)
    }

    /// The bits.
    pub const fn bits(self) -> u64 {
        self.0 as u64
    }

    /// The set with this one too.
    #[must_use]
    pub const fn with(self, action: Action) -> Actions {
        Actions(self.0 | 1 << action as u8)
    }

    /// Whether this one is in it.
    pub const fn has(self, action: Action) -> bool {
        self.0 & (1 << action as u8) != 0
    }

    /// Whether all of `others` are in it.
    pub const fn has_all(self, others: Actions) -> bool {
        self.0 & others.0 == others.0
    }

    /// Whether any of `others` is in it.
    pub const fn has_any(self, others: Actions) -> bool {
        self.0 & others.0 != 0
    }

    /// What is in both.
    #[must_use]
    pub const fn and(self, others: Actions) -> Actions {
        Actions(self.0 & others.0)
    }

    /// Those in it.
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
