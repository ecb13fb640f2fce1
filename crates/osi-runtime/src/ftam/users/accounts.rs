//! The users, and the verification of their passwords.

use super::hash::Memory;
use super::limits::PASSWORD_BYTES_MAX;
use argon2::Params;
use argon2::password_hash::phc::PasswordHash;
use kiban_osi::ftam::filestore::{Actions, Admission, AuthRefusal, Credentials, Path};
use std::collections::BTreeMap;

/// The users of a filestore.
#[derive(Clone, Debug)]
pub struct Users {
    pub(super) users: BTreeMap<String, User>,
    /// The hash that is verified for an unknown name.
    pub(super) nobody: PasswordHash,
}

#[derive(Clone, Debug)]
pub(super) struct User {
    pub(super) password: PasswordHash,
    pub(super) rights: Actions,
    pub(super) home: Path,
    pub(super) accounts: Option<Vec<String>>,
}

/// A hash that matches no known password, because its salt and output are zeros.
const NOBODY: &str =
    "$argon2id$v=19$m=8,t=1,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

impl Users {
    /// Returns the number of users.
    pub fn count(&self) -> usize {
        self.users.len()
    }

    /// Returns each user's name and home directory.
    pub fn homes(&self) -> impl Iterator<Item = (&str, &Path)> {
        self.users.iter().map(|(name, user)| (name.as_str(), &user.home))
    }

    /// Verifies a user's password and account. This takes as long as a password verification even if the user
    /// is unknown, so call it on a thread that may block.
    ///
    /// # Errors
    /// Returns the reason why the user is refused.
    pub fn verify(&self, credentials: &Credentials) -> Result<Admission, AuthRefusal> {
        self.verify_in(credentials, &mut Memory::default())
    }

    /// Like [`Users::verify`], but uses the caller's working memory.
    ///
    /// # Errors
    /// Returns the reason why the user is refused.
    pub fn verify_in(
        &self,
        credentials: &Credentials,
        memory: &mut Memory,
    ) -> Result<Admission, AuthRefusal> {
        let name = credentials.user.as_deref().unwrap_or_default();
        let password = credentials.password.as_deref().unwrap_or_default();
        let user = self.users.get(name);
        let hash = user.map_or(&self.nobody, |user| &user.password);
        let limited = &password[..password.len().min(PASSWORD_BYTES_MAX)];
        if !memory.is_enough(hash) {
            return Err(AuthRefusal::Later);
        }
        let fits = memory.fits(limited, hash);
        let Some(user) = user.filter(|_| fits && limited.len() == password.len()) else {
            return Err(AuthRefusal::Password);
        };
        if let Some(accounts) = &user.accounts
            && !credentials.account.as_ref().is_some_and(|account| accounts.contains(account))
        {
            return Err(AuthRefusal::Account);
        }
        Ok(Admission { user: name.into(), rights: user.rights, home: user.home.clone() })
    }

    pub(super) fn new(users: BTreeMap<String, User>) -> Users {
        // The dummy hash costs as much as the most expensive user's hash, so that unknown names do not fail
        // faster.
        let cost = |hash: &PasswordHash| Params::try_from(hash).ok();
        let dearest = users.values().filter_map(|user| cost(&user.password));
        let dearest = dearest.max_by_key(|params| u64::from(params.m_cost()) * u64::from(params.t_cost()));
        let mut nobody = PasswordHash::new(NOBODY).expect("a valid hash");
        let params = dearest.unwrap_or_default();
        nobody.params = (&params).try_into().expect("parameters can be written");
        Users { users, nobody }
    }
}
