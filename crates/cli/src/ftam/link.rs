//! An association that is established when first needed and re-established when lost. It shows the progress
//! of its transfers.

use super::address::Remote;
use super::options::{Association, Progress, activity};
use crate::output::note;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kiban_os::Clock;
use kiban_osi::ftam::filestore::DiskError;
use kiban_osi::ftam::initiator::{Failure, Job, Outcome, docket_of};
use kiban_osi::wire::ftam::ErrorIdentifier;
use kiban_osi_runtime::ftam::client::{Client, ClientConfig, ConnectError, FailureLine, has_docket};
use kiban_osi_runtime::ftam::disk;
use kiban_osi_runtime::ftam::timing::Stopwatch;
use serde::Serialize;
use std::path::Path;
use std::time::Duration;

/// Pause before the first attempt to reconnect; it doubles before each further attempt.
const PAUSE: Duration = Duration::from_millis(500);

/// Minimum time between two lines of JSON about the progress of a transfer.
const JSON_INTERVAL: Duration = Duration::from_millis(100);

/// Hint printed for a failed transfer that can be resumed.
const GOES_ON: &str = "; use --resume to continue";

/// An association with one host.
pub(super) struct PersistentClient {
    config: ClientConfig,
    /// The host, for error messages.
    host: String,
    has_user: bool,
    quiet: bool,
    progress: Progress,
    client: Option<Client>,
    stopwatch: Option<Stopwatch>,
}

/// A completed transfer.
#[derive(Clone, Debug, Serialize)]
pub(super) struct TransferResult {
    /// Source.
    pub(super) from: String,
    /// Destination.
    pub(super) to: String,
    /// The number of content bytes, including those transferred in earlier attempts.
    pub(super) bytes: u64,
    /// Duration in seconds, excluding the time to connect.
    pub(super) seconds: f64,
    /// Whether the transfer resumed an earlier attempt.
    pub(super) resumed: bool,
}

/// Whether to resume an earlier transfer, and how often to reconnect.
#[derive(Clone, Copy)]
pub(super) struct RetryPolicy {
    pub(super) resume: bool,
    pub(super) retries: u32,
}

impl PersistentClient {
    /// Returns a client for the host in `remote` and files below `local`. It connects on first use.
    pub(super) fn new(
        association: &Association,
        remote: &Remote,
        local: &Path,
    ) -> Result<PersistentClient, String> {
        Ok(PersistentClient {
            config: association.config(remote, local)?,
            host: remote.endpoint(),
            has_user: remote.user.is_some(),
            quiet: association.quiet,
            progress: association.progress,
            client: None,
            stopwatch: None,
        })
    }

    async fn connect(&mut self) -> Result<&mut Client, ConnectError> {
        if self.client.is_none() {
            self.client = Some(Client::connect(&self.config).await?);
        }
        Ok(self.client.as_mut().expect("it has just been made"))
    }

    async fn client(&mut self) -> Result<&mut Client, String> {
        let (host, has_user) = (self.host.clone(), self.has_user);
        self.connect().await.map_err(|error| match &error {
            ConnectError::Refused(failure) if !has_user && is_of_password(failure) => {
                format!("{host}: {error}; the address names no user: write ftam://USER@{host}/")
            }
            _ => format!("{host}: {error}"),
        })
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
        let mut pause = PAUSE;
        // If the first connection fails, return the error at once.
        self.client().await?;
        loop {
            let (may_pass, error) = match self.connect().await {
                Ok(client) => match client.run(job.clone(), None).await {
                    Ok(outcome) => return Ok(outcome),
                    Err(failure) => {
                        let is_lost = self.is_lost(&failure) && says_lost(&failure);
                        if is_lost {
                            self.client = None;
                        }
                        (is_lost, format!("{about}: {}", FailureLine(&failure)))
                    }
                },
                Err(error) => (is_transient(&error), format!("{}: {error}", self.host)),
            };
            if !may_pass || *retries == 0 {
                return Err(error);
            }
            *retries -= 1;
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
    }

    /// Runs a transfer. If the association is lost, reconnects and resumes.
    pub(super) async fn transfer(
        &mut self,
        job: Job,
        remote: &Remote,
        local: &Path,
        persistence: RetryPolicy,
    ) -> Result<(u64, f64, bool), String> {
        let number = activity(remote, local);
        let docket = docket_of(number);
        let mut resumed = persistence.resume
            && has_docket(&self.config.local, &docket)
                .map_err(|error| format!("{}: {error}", self.config.local.display()))?;
        let began_resumed = resumed;
        let (mut retries, mut pause) = (persistence.retries, PAUSE);
        let how = self.progress;
        let bar = bar(self.quiet || how == Progress::Json, remote.name());
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
                    return Err(format!("{}: {error}{GOES_ON}", self.host));
                }
            };
            let progress = client.progress();
            let watch = show(how, bar.clone(), progress.clone());
            let outcome = tokio::select! {
                outcome = async {
                    if resumed { client.recover(docket.clone()).await } else { client.run(job.clone(), Some(number)).await }
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
                    local.parent().into_iter().for_each(disk::remove_empty_state);
                    return Ok((bytes, clock.now().as_secs_f64(), began_resumed));
                }
                Err(failure) if self.is_lost(&failure) && failure.docket.is_some() && retries > 0 => {
                    bar.println(format!(
                        "kiban: {remote}: association lost after {bytes} bytes; reconnecting"
                    ));
                    self.client = None;
                    (resumed, retries) = (true, retries - 1);
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
                    return Err(format!("{remote}: {}{hint}", FailureLine(&failure)));
                }
            }
        }
    }

    fn is_lost(&self, failure: &Failure) -> bool {
        failure.local.is_none() && !failure.cancelled && failure.misuse.is_none()
    }

    /// Releases the association. If there was one, returns the time spent in each layer.
    pub(super) async fn close(mut self) -> Option<Stopwatch> {
        if let Some(client) = self.client.take() {
            self.stopwatch = Some(client.close().await);
        }
        self.stopwatch
    }
}

/// Returns whether the failure is a lost association rather than a response from the peer.
fn says_lost(failure: &Failure) -> bool {
    let mut said = failure.diagnostics.iter();
    failure.diagnostics.is_empty() || said.any(|item| item.error() == ErrorIdentifier::LOWER_LAYER_FAILURE)
}

fn is_of_password(failure: &Failure) -> bool {
    failure.diagnostics.iter().any(|item| item.error() == ErrorIdentifier::FILESTORE_PASSWORD)
}

/// Returns whether a later connection attempt may succeed.
fn is_transient(error: &ConnectError) -> bool {
    matches!(error, ConnectError::Socket(_) | ConnectError::Lost | ConnectError::Timeout(_))
}

fn bar(quiet: bool, name: &str) -> ProgressBar {
    let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let style = "{msg:20!} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    let style = ProgressStyle::with_template(style).expect("the template is well formed");
    ProgressBar::with_draw_target(None, target).with_style(style).with_message(name.to_owned())
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
