//! Authentication of initiators: whether they are admitted, and their user names and rights.
//!
//! Purpose    the owner of the user database verifies passwords ([`Authenticator`]); a responder uses only
//!            the result.
//! Waiting    verifying a password is deliberately slow, and even slower after failed attempts. An
//!            authenticator may therefore return [`AuthResult::Wait`], and the responder calls it again
//!            later. No call blocks.

use super::{Actions, Path};
use alloc::string::String;

/// The F-INITIALIZE parameters that identify an initiator.
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
    /// The user name, which is stored with files as the creator, reader or modifier.
    pub user: String,
    /// The permitted actions.
    pub rights: Actions,
    /// The user's home directory, relative to the filestore's root. The user sees it as the root.
    pub home: Path,
}

/// The reason why an initiator is refused. An unknown user name and a wrong password lead to the same
/// refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuthRefusal {
    /// There is no user with this name and password.
    Password,
    /// The user may not use this account.
    Account,
    /// There were too many failed attempts, or resources are exhausted; a later attempt may succeed.
    Later,
}

/// The result of an authentication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthResult {
    /// The initiator is admitted.
    Admitted(Admission),
    /// The initiator is refused.
    Refused(AuthRefusal),
    /// The decision is pending: call again later.
    Wait,
}

/// Verifies the credentials of initiators.
pub trait Authenticator {
    /// Verifies an initiator; called again with the same credentials after [`AuthResult::Wait`].
    fn authenticate(&mut self, credentials: &Credentials) -> AuthResult;
}
