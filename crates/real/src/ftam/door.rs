//! The door of a filestore in real time: users, their passwords, and patience with who does not know them.
//!
//! Goal      a wrong password costs its sender time and nobody else any; a right one is judged where that disturbs no transfer.
//! How       a judgement is asked for on a thread that may block, after the wait that [`Attempts`] says; the association's bell
//!           is rung when it is there. Nothing of its duration tells whether the user exists.
//! Crowds    who sends many guesses at once gains nothing: each is looked at again when its turn comes, and by then the failures of
//!           those before it count. Addresses count as `origin_of` has them.
//! Limits    [`JUDGED_AT_A_TIME`]: each takes the memory that its hash asks for.

use super::lines::Lines;
use super::strangers::origin_of;
use super::users::{Attempts, Memory, NAME_BYTES_MAX, Users};
use crate::Clock;
use kiban_stack::osi::ftam::filestore::{Doorkeeper, Judgement, Refusal, Visitor};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, oneshot};

/// How many passwords are verified at a time.
pub const JUDGED_AT_A_TIME: usize = 4;
/// The longest wait at the door: who would have to wait for longer is refused, and nothing is verified for him.
pub const WAIT_MAX: Duration = Duration::from_secs(4);

/// What all associations of a filestore share of the door.
#[derive(Debug)]
pub struct Gate {
    users: RwLock<Arc<Users>>,
    attempts: Mutex<Attempts>,
    permits: Semaphore,
    /// What judging works in, for as many as are judged at a time.
    memories: Mutex<Vec<Memory>>,
    /// Lines about who is not even judged.
    lines: Mutex<Lines>,
    clock: Clock,
}

impl Gate {
    /// A gate for these users.
    pub fn new(users: Users, attempts: Attempts) -> Gate {
        let clock = Clock::new();
        Gate {
            users: RwLock::new(Arc::new(users)),
            attempts: Mutex::new(attempts),
            permits: Semaphore::new(JUDGED_AT_A_TIME),
            memories: Mutex::default(),
            lines: Mutex::new(Lines::new(clock.now())),
            clock,
        }
    }

    /// Other users from now on; who is in stays in.
    pub fn set_users(&self, users: Users) {
        *self.users.write().expect("nobody panics while he holds it") = Arc::new(users);
    }

    async fn judge(&self, visitor: Visitor) -> Judgement {
        // A name that no user can have is counted as one, so that it does not fill the memory.
        let user = visitor.user.clone().filter(|name| name.len() <= NAME_BYTES_MAX).unwrap_or_default();
        let address = visitor.address.parse().map_or(visitor.address.clone(), |ip| origin_of(ip).to_string());
        let attempts = || self.attempts.lock().expect("nobody panics while he holds it");
        let came = self.clock.now();
        let permit = loop {
            let now = self.clock.now();
            let not_before = attempts().not_before(&user, &address, now);
            if not_before.since(came) > WAIT_MAX {
                if let Some(untold) = self.lines.lock().expect("nobody panics while he holds it").may(now) {
                    tracing::warn!(user, address, untold, "too many failures: not judged");
                }
                return Judgement::Refused(Refusal::Later);
            }
            if not_before > now {
                tokio::time::sleep(not_before.since(now)).await;
                continue;
            }
            let permit = self.permits.acquire().await.expect("it is never closed");
            // Those who were judged meanwhile may have failed.
            let now = self.clock.now();
            if attempts().not_before(&user, &address, now) <= now {
                break permit;
            }
        };
        let users = self.users.read().expect("nobody panics while he holds it").clone();
        // Who has a permit finds a memory, or makes one: there are never more than permits.
        let memories = || self.memories.lock().expect("nobody panics while he holds it");
        let mut memory = memories().pop().unwrap_or_default();
        // Not tokio's `spawn_blocking`, which panics where the system gives no thread.
        let verified = crate::runtime::blocking("kiban-door", move || {
            let verified = users.verify_in(&visitor, &mut memory);
            (verified, memory)
        });
        let verified = match verified {
            Ok(verified) => verified.await.map_err(|_| "it was not judged".to_owned()),
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
                Judgement::Admitted(admission)
            }
            // There was no memory to judge it in.
            Ok(Err(Refusal::Later)) => Judgement::Refused(Refusal::Later),
            Ok(Err(refusal)) => {
                attempts().failed(&user, &address, self.clock.now());
                tracing::warn!(user, address, ?refusal, "not let in");
                Judgement::Refused(refusal)
            }
            Err(why) => {
                tracing::warn!(user, address, why, "no thread for judging a password");
                Judgement::Refused(Refusal::Later)
            }
        }
    }
}

/// The door of one association.
#[derive(Debug)]
pub struct Door {
    gate: Arc<Gate>,
    bell: Arc<Notify>,
    asked: Option<oneshot::Receiver<Judgement>>,
}

impl Door {
    /// A door in this gate, which rings the bell when it has judged.
    pub fn new(gate: Arc<Gate>, bell: Arc<Notify>) -> Door {
        Door { gate, bell, asked: None }
    }
}

impl Doorkeeper for Door {
    fn judge(&mut self, visitor: &Visitor) -> Judgement {
        let Some(asked) = &mut self.asked else {
            let (tell, asked) = oneshot::channel();
            self.asked = Some(asked);
            let (gate, bell, visitor) = (self.gate.clone(), self.bell.clone(), visitor.clone());
            tokio::spawn(async move {
                // Whoever asked may be gone.
                let _ = tell.send(gate.judge(visitor).await);
                bell.notify_one();
            });
            return Judgement::Wait;
        };
        match asked.try_recv() {
            Ok(judgement) => {
                self.asked = None;
                judgement
            }
            Err(oneshot::error::TryRecvError::Empty) => Judgement::Wait,
            Err(oneshot::error::TryRecvError::Closed) => Judgement::Refused(Refusal::Later),
        }
    }
}
