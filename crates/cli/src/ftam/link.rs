//! An association that is established when first needed and re-established when lost. It shows the progress
//! of its transfers.

use super::address::Remote;
use super::kinds::{Kind, Progress};
use crate::output::{note, print};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use kiban_os::text::printable;
use kiban_os::{Clock, lock};
use kiban_osi::ftam::filestore::DiskError;
use kiban_osi::ftam::initiator::{Config, Failure, Job, Outcome, docket_of};
use kiban_osi::wire::ftam::{Document, ErrorIdentifier, FunctionalUnits, QualityOfService};
use kiban_osi_runtime::ftam::client::{Client, ClientConfig, ConnectError, FailureLine, has_docket};
use kiban_osi_runtime::ftam::disk;
use kiban_osi_runtime::ftam::timing::Stopwatch;
use sha2::{Digest, Sha256};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Pause before the first attempt to reconnect; it doubles before each further attempt.
const PAUSE: Duration = Duration::from_millis(500);

/// Minimum time between two lines of JSON about the progress of a transfer.
const JSON_INTERVAL: Duration = Duration::from_millis(100);

/// The default of --min-age.
const MIN_AGE: Duration = Duration::from_secs(60);

/// Hint printed for a failed transfer that can be resumed.
const GOES_ON: &str = "; use --resume to continue";

/// A host and the settings of the associations with it.
pub(super) struct Peer {
    config: ClientConfig,
    /// The host, for error messages.
    host: String,
    has_user: bool,
    quiet: bool,
    progress: Progress,
    /// The progress bars of all associations.
    bars: MultiProgress,
    /// The default document type.
    pub(super) kind: Option<Kind>,
    min_age: Option<Duration>,
    /// An association that a shell keeps for its next command, and the directory of its local files.
    idle: Mutex<Option<(PathBuf, Client)>>,
    keeps: bool,
    /// The error of a login that was refused. It is not tried again, because the peer may lock the user out.
    refusal: Mutex<Option<String>>,
}

impl Peer {
    /// Returns the peer of `remote`, whose host has been looked up.
    pub(super) fn new(
        remote: &Remote,
        config: ClientConfig,
        quiet: bool,
        progress: Progress,
        kind: Option<Kind>,
        min_age: Option<Duration>,
    ) -> Peer {
        let is_shown = !quiet && progress != Progress::Json;
        let target = if is_shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        Peer {
            config,
            host: remote.endpoint(),
            has_user: remote.user.is_some(),
            quiet,
            progress,
            bars: MultiProgress::with_draw_target(target),
            kind,
            min_age,
            idle: Mutex::default(),
            keeps: false,
            refusal: Mutex::default(),
        }
    }

    /// Returns how long a file must not have changed before it is deleted; `given` is the command's option.
    pub(super) fn min_age(&self, given: Option<Duration>) -> Duration {
        given.or(self.min_age).unwrap_or(MIN_AGE)
    }

    /// Keeps an association when a command ends, for the next one.
    pub(super) fn keeping(self) -> Peer {
        Peer { keeps: true, ..self }
    }

    /// Returns whether a remote name has this host and user.
    pub(super) fn is_of(&self, remote: &Remote) -> bool {
        let ClientConfig { host, port, initiator, .. } = &self.config;
        (host, *port, &initiator.user) == (&remote.host, remote.port, &remote.user)
    }

    /// Lets a new round log in again after a refusal.
    pub(super) fn forget_refusal(&self) {
        *lock(&self.refusal) = None;
    }

    /// Returns whether an association is kept.
    pub(super) fn is_connected(&self) -> bool {
        lock(&self.idle).is_some()
    }

    /// Releases the association that was kept.
    pub(super) async fn close(&self) {
        let idle = lock(&self.idle).take();
        if let Some((_, client)) = idle {
            client.close().await;
        }
    }

    /// Prints a line on standard error without disturbing the progress bars, unless --quiet was given.
    pub(super) fn note(&self, line: &str) {
        if !self.quiet {
            self.bars.suspend(|| note!("{line}"));
        }
    }

    /// Prints a line without disturbing the progress bars.
    pub(super) fn print(&self, text: &str) -> Result<(), String> {
        self.bars.suspend(|| print(text))
    }

    /// Returns the kept association for files below this directory, if it is still usable.
    async fn take_idle(&self, local: &Path) -> Option<Client> {
        let (path, client) = lock(&self.idle).take()?;
        if path == local && !client.is_finished() {
            return Some(client);
        }
        client.close().await;
        None
    }
}

/// Lets an association propose no recovery.
pub(super) fn omit_recovery(initiator: &mut Config) {
    let recovery = FunctionalUnits::RECOVERY | FunctionalUnits::RESTART_DATA_TRANSFER;
    initiator.units = initiator.units.without(recovery);
    initiator.quality = QualityOfService::NO_RECOVERY;
}

/// An association with one host, for local files below one directory.
pub(super) struct PersistentClient {
    peer: Arc<Peer>,
    config: ClientConfig,
    client: Option<Client>,
}

/// Whether to resume an earlier transfer, and how often to reconnect.
#[derive(Clone, Copy)]
pub(super) struct RetryPolicy {
    pub(super) resume: bool,
    pub(super) retries: u32,
}

impl PersistentClient {
    /// Returns a client for a peer and for files below `local`. It connects on first use.
    pub(super) fn new(peer: &Arc<Peer>, local: &Path) -> PersistentClient {
        let config = ClientConfig { local: local.into(), ..peer.config.clone() };
        PersistentClient { peer: peer.clone(), config, client: None }
    }

    /// Returns whether a file of this length may have a checkpoint.
    pub(super) fn has_checkpoints(&self, bytes: u64) -> bool {
        bytes >= self.config.initiator.checkpoint_bytes
    }

    /// Returns the directory of local files.
    pub(super) fn local(&self) -> &Path {
        &self.config.local
    }

    async fn connect(&mut self) -> Result<&mut Client, ConnectError> {
        // The peer may have ended the association while it was idle.
        drop(self.client.take_if(|client| client.is_finished()));
        if self.client.is_none() {
            self.client = self.peer.take_idle(&self.config.local).await;
        }
        if self.client.is_none() {
            self.client = Some(Client::connect(&self.config).await?);
        }
        Ok(self.client.as_mut().expect("it has just been made"))
    }

    async fn client(&mut self) -> Result<&mut Client, String> {
        if self.client.is_none()
            && let Some(refusal) = &*lock(&self.peer.refusal)
        {
            return Err(refusal.clone());
        }
        let peer = self.peer.clone();
        let host = &peer.host;
        self.connect().await.map_err(|error| match &error {
            ConnectError::Refused(failure) if says(failure, ErrorIdentifier::FILESTORE_PASSWORD) => {
                let hint = match peer.has_user {
                    true => String::new(),
                    false => format!("; the address names no user: write ftam://USER@{host}/"),
                };
                let refusal = format!("{host}: {error}{hint}");
                // In a shell, the next command may succeed.
                *lock(&peer.refusal) = (!peer.keeps).then(|| refusal.clone());
                refusal
            }
            _ => format!("{host}: {error}"),
        })
    }

    /// Establishes the association, if there is none.
    pub(super) async fn begin(&mut self) -> Result<(), String> {
        self.client().await.map(drop)
    }

    /// Runs a job that transfers no file contents.
    pub(super) async fn ask(&mut self, job: Job, about: &str) -> Result<Outcome, String> {
        let result = self.client().await?.run(job, None).await;
        result.map_err(|failure| format!("{about}: {}", FailureLine(&failure)))
    }

    /// Runs a job that changes nothing. If the association is lost, reconnects and repeats the job, up to
    /// `retries` times.
    pub(super) async fn run_with_retry(
        &mut self,
        job: Job,
        about: &str,
        retries: &mut u32,
    ) -> Result<Outcome, String> {
        self.repeat(job, about, retries).await.map_err(|(_, error)| error)
    }

    /// Like [`PersistentClient::run_with_retry`]; returns `None` if the file does not exist.
    pub(super) async fn run_if_exists(
        &mut self,
        job: Job,
        about: &str,
        retries: &mut u32,
    ) -> Result<Option<Outcome>, String> {
        match self.repeat(job, about, retries).await {
            Err((true, _)) => Ok(None),
            result => result.map(Some).map_err(|(_, error)| error),
        }
    }

    /// Runs a job until the association is not lost; an error says whether the file does not exist.
    async fn repeat(&mut self, job: Job, about: &str, retries: &mut u32) -> Result<Outcome, (bool, String)> {
        let mut pause = PAUSE;
        // If the first connection fails, return the error at once.
        self.client().await.map_err(|error| (false, error))?;
        loop {
            let mut is_missing = false;
            let (may_pass, error) = match self.connect().await {
                Ok(client) => match client.run(job.clone(), None).await {
                    Ok(outcome) => return Ok(outcome),
                    Err(failure) => {
                        let is_lost = self.is_lost(&failure) && says_lost(&failure);
                        let lost = self.client.take_if(|_| is_lost);
                        is_missing = says(&failure, ErrorIdentifier::FILE_NON_EXISTENT);
                        (is_lost, format!("{about}: {}", why(lost.as_ref(), &failure)))
                    }
                },
                Err(error) => (is_transient(&error), format!("{}: {error}", self.peer.host)),
            };
            if !may_pass || *retries == 0 {
                return Err((is_missing, error));
            }
            *retries -= 1;
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
    }

    /// Returns whether the record of an interrupted transfer exists.
    pub(super) fn can_resume(&self, remote: &Remote, local: &Path) -> Result<bool, String> {
        let docket = docket_of(activity(remote, local));
        has_docket(&self.config.local, &docket)
            .map_err(|error| format!("{}: {error}", self.config.local.display()))
    }

    /// Runs a transfer. If the association is lost, reconnects and resumes, or starts again if the file
    /// `is_small`: without a checkpoint, a recovery would start at the beginning as well, and its records on
    /// both hosts cost a third of the time.
    pub(super) async fn transfer(
        &mut self,
        job: Job,
        remote: &Remote,
        local: &Path,
        persistence: RetryPolicy,
        is_small: bool,
    ) -> Result<(u64, f64, bool), String> {
        let number = activity(remote, local);
        let docket = docket_of(number);
        let mut resumed = persistence.resume && self.can_resume(remote, local)?;
        let began_resumed = resumed;
        let (mut retries, mut pause) = (persistence.retries, PAUSE);
        let how = self.peer.progress;
        let bar = bar(&self.peer.bars, &printable(remote.name()));
        let mut has_lost = false;
        // Connect first, so that the connection time does not count as transfer time.
        self.client().await?;
        let clock = Clock::new();
        loop {
            let client = match self.connect().await {
                Ok(client) => client,
                // A restarted server may not be listening yet.
                Err(error) if is_transient(&error) && retries > 0 => {
                    retries -= 1;
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                    continue;
                }
                Err(error) => {
                    bar.finish_and_clear();
                    return Err(format!("{}: {error}{GOES_ON}", self.peer.host));
                }
            };
            let progress = client.progress();
            let watch = show(how, bar.clone(), progress.clone());
            let outcome = tokio::select! {
                outcome = async {
                    match (resumed, is_small) {
                        (true, _) => client.recover(docket.clone()).await,
                        (false, true) => client.run_unrecorded(job.clone()).await,
                        (false, false) => client.run(job.clone(), Some(number)).await,
                    }
                } => outcome,
                never = watch => never,
            };
            let (bytes, total) = *progress.borrow();
            match outcome {
                Ok(_) => {
                    if how == Progress::Json {
                        note_progress(&bar, bytes, total);
                    }
                    bar.finish_and_clear();
                    return Ok((bytes, clock.now().as_secs_f64(), began_resumed));
                }
                // Without recovery, the transfer is repeated from the beginning, if that has the same result.
                Err(failure)
                    if retries > 0
                        && self.is_lost(&failure)
                        && (failure.docket.is_some() || (says_lost(&failure) && is_repeatable(&job))) =>
                {
                    let why = self.client.take().and_then(|client| client.take_error());
                    let why = why.map(|error| format!(" ({error})")).unwrap_or_default();
                    self.note(
                        &bar,
                        &format!("kiban: {remote}: association lost after {bytes} bytes{why}; reconnecting"),
                    );
                    has_lost = true;
                    (resumed, retries) = (failure.docket.is_some(), retries - 1);
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
                // The responder has not noticed yet that the earlier association was lost.
                Err(failure)
                    if retries > 0
                        && has_lost
                        && says(&failure, ErrorIdentifier::FILE_BUSY)
                        && (failure.docket.is_some() || is_repeatable(&job)) =>
                {
                    (resumed, retries) = (failure.docket.is_some(), retries - 1);
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
                Err(failure) => {
                    bar.finish_and_clear();
                    let hint = match failure {
                        Failure { docket: Some(_), .. } => GOES_ON,
                        Failure { local: Some(DiskError::NotAFile), .. }
                            if matches!(job, Job::Get { .. }) =>
                        {
                            "; use --recursive to download directories"
                        }
                        _ => "",
                    };
                    return Err(format!("{remote}: {}{hint}", why(self.client.as_ref(), &failure)));
                }
            }
        }
    }

    fn is_lost(&self, failure: &Failure) -> bool {
        // The responder's disk is full; it has kept the transfer, but needs time to get room.
        let full = ErrorIdentifier::LOCAL_FAILURE_SPACE;
        let is_refused = failure.cancelled || failure.misuse.is_some() || says(failure, full);
        failure.local.is_none() && !is_refused
    }

    /// Prints a line on standard error, above the progress bars.
    fn note(&self, bar: &ProgressBar, line: &str) {
        if bar.is_hidden() {
            if !self.peer.quiet {
                note!("{line}");
            }
        } else {
            bar.println(line);
        }
    }

    /// Releases the association, or keeps it for a shell's next command. If there was one, returns the time
    /// spent in each layer.
    pub(super) async fn close(mut self) -> Option<Stopwatch> {
        if let Some(client) = self.client.take_if(|_| self.peer.keeps) {
            let replaced = lock(&self.peer.idle).replace((self.config.local.clone(), client));
            if let Some((_, client)) = replaced {
                client.close().await;
            }
        }
        disk::remove_empty_state(&self.config.local);
        let client = self.client.take()?;
        Some(client.close().await)
    }
}

/// Returns the activity number that identifies a transfer on both sides. It is computed from the names, so
/// that a repeated command finds the interrupted transfer.
fn activity(remote: &Remote, local: &Path) -> i64 {
    let digest = Sha256::digest(format!("{remote}\n{}", local.display()));
    let bytes: [u8; 8] = digest[..8].try_into().expect("eight of thirty-two");
    // A positive number that is small enough to be incremented without overflow.
    (i64::from_be_bytes(bytes) & (i64::MAX >> 1)) | 2
}

fn says(failure: &Failure, error: ErrorIdentifier) -> bool {
    failure.diagnostics.iter().any(|item| item.error() == error)
}

/// Returns why a job failed: that the responder fell silent, or the failure.
fn why(client: Option<&Client>, failure: &Failure) -> String {
    match client.and_then(Client::take_error) {
        Some(error) if error.kind() == ErrorKind::TimedOut => error.to_string(),
        _ => FailureLine(failure).to_string(),
    }
}

/// Returns whether the failure is a lost association rather than a response from the peer.
fn says_lost(failure: &Failure) -> bool {
    failure.diagnostics.is_empty() || says(failure, ErrorIdentifier::LOWER_LAYER_FAILURE)
}

/// Returns whether a later connection attempt may succeed.
fn is_transient(error: &ConnectError) -> bool {
    matches!(error, ConnectError::Socket(_) | ConnectError::Lost | ConnectError::Timeout(_))
}

/// Returns whether a transfer that was begun has the same result if it is carried out again.
fn is_repeatable(job: &Job) -> bool {
    // FTAM-2 records are inserted, not replaced.
    match job {
        Job::Get { .. } => true,
        Job::Put { document, .. } => !matches!(document, Document::SequentialText(_)),
        _ => false,
    }
}

fn bar(bars: &MultiProgress, name: &str) -> ProgressBar {
    let style = "{msg:20!} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    let style = ProgressStyle::with_template(style).expect("the template is well formed");
    let hidden = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
    bars.add(hidden.with_style(style).with_message(name.to_owned()))
}

/// Prints a line of JSON.
fn note_progress(bar: &ProgressBar, bytes: u64, total: Option<u64>) {
    note!("{}", serde_json::json!({ "file": bar.message(), "bytes": bytes, "of": total }));
}

/// Shows the progress for as long as it is polled.
async fn show(
    how: Progress,
    bar: ProgressBar,
    mut progress: tokio::sync::watch::Receiver<(u64, Option<u64>)>,
) -> Result<Outcome, Failure> {
    while progress.changed().await.is_ok() {
        let (bytes, total) = *progress.borrow_and_update();
        if how == Progress::Json {
            note_progress(&bar, bytes, total);
            tokio::time::sleep(JSON_INTERVAL).await;
        }
        if let Some(total) = total {
            bar.set_length(total);
        }
        bar.set_position(bytes);
    }
    std::future::pending().await
}
