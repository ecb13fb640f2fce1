//! The door: who is let in, as whom, and what he may do.
//!
//! Goal      passwords are a matter of whoever keeps users; a responder asks, and takes the answer.
//! Waiting   judging a password is slow on purpose, and slower after failures: a doorkeeper may say that it is not done,
//!           and is asked again. Nobody waits within.

use super::{Actions, Path};
use alloc::string::String;

/// Who wants to be let in, as F-INITIALIZE says.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Visitor {
    /// The initiator's identity.
    pub user: Option<String>,
    /// The account that will be charged.
    pub account: Option<String>,
    /// The filestore's password.
    pub password: Option<alloc::vec::Vec<u8>>,
    /// From where, as the network says.
    pub address: String,
}

/// As whom somebody is let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// The name that files are marked with.
    pub user: String,
    /// What he may do at all.
    pub rights: Actions,
    /// His root, from the filestore's.
    pub home: Path,
}

/// Why somebody is not let in. That a user is unknown is not told apart from a wrong password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No user of that name with that password.
    Password,
    /// Not on this account.
    Account,
    /// Too many failures: later perhaps.
    Later,
}

/// What a doorkeeper says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// Come in.
    Admitted(Admission),
    /// Stay out.
    Refused(Refusal),
    /// Not judged yet: ask again.
    Wait,
}

/// Who judges.
pub trait Doorkeeper {
    /// Judges; asked again with the same visitor after [`Judgement::Wait`].
    fn judge(&mut self, visitor: &Visitor) -> Judgement;
}
