//! Authentication: who is admitted, as which user, and with which rights.
//!
//! Purpose    passwords are verified by whoever manages the users; a responder asks, and uses the answer.
//! Waiting    verifying a password is slow on purpose, and slower after failures: a doorkeeper may return
//!            [`AuthResult::Wait`], and is asked again. No call blocks.

use super::{Actions, Path};
use alloc::string::String;

/// The parameters of F-INITIALIZE that identify an initiator.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Credentials {
    /// The initiator identity.
    pub user: Option<String>,
    /// The account to charge.
    pub account: Option<String>,
    /// The filestore password.
    pub password: Option<alloc::vec::Vec<u8>>,
    /// The peer's network address.
    pub address: String,
}

/// The rights of an admitted initiator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// The user name that files are marked with.
    pub user: String,
    /// The permitted actions.
    pub rights: Actions,
    /// The user's root, relative to the filestore's.
    pub home: Path,
}

/// Why an initiator is refused. An unknown user is not distinguished from a wrong password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuthRefusal {
    /// No user has this name and password.
    Password,
    /// The user may not use this account.
    Account,
    /// Too many failures, or no resources: a later attempt may succeed.
    Later,
}

/// A doorkeeper's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthResult {
    /// The initiator is admitted.
    Admitted(Admission),
    /// The initiator is refused.
    Refused(AuthRefusal),
    /// Not decided yet: ask again.
    Wait,
}

/// Verifies initiators.
pub trait Authenticator {
    /// Verifies a visitor; called again with the same visitor after [`AuthResult::Wait`].
    fn authenticate(&mut self, visitor: &Credentials) -> AuthResult;
}
