//! Password authentication for a filestore server, with delays after failures.
//!
//! Purpose    a wrong password delays only the peer that sent it; verifying passwords does not block
//!            transfers.
//! Operation  after the delay computed by [`Attempts`], verification runs on a thread that may block; then
//!            the association is notified. The time that verification takes does not reveal whether the user
//!            exists.
//! Floods     sending many guesses at once does not get them verified faster. The delay is computed again
//!            when a guess's turn comes, and includes the failures of earlier guesses. Addresses are grouped
//!            as in [`origin_of`].
//! Limits     [`VERIFICATIONS_MAX`] verifications at a time, since each needs as much memory as its hash
//!            specifies.

use super::users::{Attempts, Memory, NAME_BYTES_MAX, Users};
use kiban_os::Clock;
use kiban_os::lines::LogLimiter;
use kiban_os::origin::origin_of;
use kiban_os::{ignore_poison, lock};
use kiban_osi::ftam::filestore::{AuthRefusal, AuthResult, Authenticator, Credentials};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, oneshot};

/// Maximum number of passwords that are verified at a time.
pub const VERIFICATIONS_MAX: usize = 4;
/// The longest delay before a verification. If the delay would be longer, the login is refused at once, and
/// the password is not verified.
pub const WAIT_MAX: Duration = Duration::from_secs(4);

/// The authentication state that all associations of a filestore share.
#[derive(Debug)]
pub struct AuthService {
    users: RwLock<Arc<Users>>,
    attempts: Mutex<Attempts>,
    permits: Semaphore,
    /// Working memory for verifications: one for each verification that runs at the same time.
    memories: Mutex<Vec<Memory>>,
    /// Rate limit for log lines about logins that were refused without verification.
    lines: Mutex<LogLimiter>,
    clock: Clock,
}

impl AuthService {
    /// Creates the service for these users.
    pub fn new(users: Users, attempts: Attempts) -> AuthService {
        let clock = Clock::new();
        AuthService {
            users: RwLock::new(Arc::new(users)),
            attempts: Mutex::new(attempts),
            permits: Semaphore::new(VERIFICATIONS_MAX),
            memories: Mutex::default(),
            lines: Mutex::new(LogLimiter::new(clock.now())),
            clock,
        }
    }

    /// Replaces the users; users who are already logged in stay logged in.
    pub fn set_users(&self, users: Users) {
        *ignore_poison(self.users.write()) = Arc::new(users);
    }

    async fn verify(&self, credentials: Credentials) -> AuthResult {
        // A name that is too long to be a user's is counted as the empty name, so that long names do not fill
        // the memory.
        let user = credentials.user.clone().filter(|name| name.len() <= NAME_BYTES_MAX).unwrap_or_default();
        let address =
            credentials.address.parse().map_or(credentials.address.clone(), |ip| origin_of(ip).to_string());
        let attempts = || lock(&self.attempts);
        let came = self.clock.now();
        let permit = loop {
            let now = self.clock.now();
            let not_before = attempts().not_before(&user, &address, now);
            if not_before.since(came) > WAIT_MAX {
                if let Some(untold) = lock(&self.lines).try_take(now) {
                    tracing::warn!(user, address, untold, "too many failed logins: password not verified");
                }
                return AuthResult::Refused(AuthRefusal::Later);
            }
            if not_before > now {
                tokio::time::sleep(not_before.since(now)).await;
                continue;
            }
            let permit = self.permits.acquire().await.expect("it is never closed");
            // Earlier passwords may have failed while this verification waited, so compute the delay again.
            let now = self.clock.now();
            if attempts().not_before(&user, &address, now) <= now {
                break permit;
            }
        };
        let users = ignore_poison(self.users.read()).clone();
        // Each holder of a permit takes free working memory or creates some, so there is at most one per
        // permit.
        let memories = || lock(&self.memories);
        let mut memory = memories().pop().unwrap_or_default();
        // tokio's `spawn_blocking` would panic if the system could not create a thread.
        let verified = kiban_tokio::runtime::blocking(c"kiban-auth", move || {
            let verified = users.verify_in(&credentials, &mut memory);
            (verified, memory)
        });
        let verified = match verified {
            Ok(verified) => verified.await.map_err(|_| "the verification did not finish".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        let verified = verified.map(|(verified, memory)| {
            memories().push(memory);
            verified
        });
        drop(permit);
        match verified {
            Ok(Ok(admission)) => {
                attempts().succeeded(&user);
                AuthResult::Admitted(admission)
            }
            // There was not enough memory to verify the password.
            Ok(Err(AuthRefusal::Later)) => AuthResult::Refused(AuthRefusal::Later),
            Ok(Err(refusal)) => {
                attempts().failed(&user, &address, self.clock.now());
                tracing::warn!(user, address, ?refusal, "login refused");
                AuthResult::Refused(refusal)
            }
            Err(why) => {
                tracing::warn!(user, address, why, "cannot start a thread to verify a password");
                AuthResult::Refused(AuthRefusal::Later)
            }
        }
    }
}

/// The authentication of one association.
#[derive(Debug)]
pub struct PasswordAuthenticator {
    auth: Arc<AuthService>,
    bell: Arc<Notify>,
    pending: Option<oneshot::Receiver<AuthResult>>,
}

impl PasswordAuthenticator {
    /// Creates the authenticator of one association; `bell` is notified when a verification is done.
    pub fn new(auth: Arc<AuthService>, bell: Arc<Notify>) -> PasswordAuthenticator {
        PasswordAuthenticator { auth, bell, pending: None }
    }
}

impl Authenticator for PasswordAuthenticator {
    fn authenticate(&mut self, credentials: &Credentials) -> AuthResult {
        let Some(pending) = &mut self.pending else {
            let (sender, receiver) = oneshot::channel();
            self.pending = Some(receiver);
            let (auth, bell, credentials) = (self.auth.clone(), self.bell.clone(), credentials.clone());
            tokio::spawn(async move {
                // The receiver may have been dropped.
                let _ = sender.send(auth.verify(credentials).await);
                bell.notify_one();
            });
            return AuthResult::Wait;
        };
        match pending.try_recv() {
            Ok(result) => {
                self.pending = None;
                result
            }
            Err(oneshot::error::TryRecvError::Empty) => AuthResult::Wait,
            Err(oneshot::error::TryRecvError::Closed) => AuthResult::Refused(AuthRefusal::Later),
        }
    }
}
