//! Authentication of initiators: admission, user name and rights.
//!
//! Purpose    the owner of the user database verifies passwords ([`Authenticator`]); a responder uses only
//!            the result.
//! Waiting    verifying a password is slow on purpose, and slower after failures. So an authenticator may
//!            return [`AuthResult::Wait`], and the responder calls it again later. No call blocks.

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
    /// The user name, which is stored with files as creator, reader or modifier.
    pub user: String,
    /// The permitted actions.
    pub rights: Actions,
    /// The user's home directory, relative to the filestore's root, and the root that the user sees.
    pub home: Path,
}

/// Why an initiator is refused. An unknown user and a wrong password have the same refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuthRefusal {
    /// No user has this name and password.
    Password,
    /// The user may not use this account.
    Account,
    /// There were too many failures, or resources are missing; a later attempt may succeed.
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
