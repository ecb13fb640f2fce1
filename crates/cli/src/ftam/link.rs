//! An association that is made when it is needed and made again when it is lost, and the bar above its
//! transfers.

use super::address::Remote;
use super::options::{Association, activity};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kiban_ftam::client::{Client, ClientConfig, ConnectError, FailureLine, has_docket};
use kiban_ftam::timing::Stopwatch;
use kiban_os::Clock;
use kiban_osi::ftam::filestore::DiskError;
use kiban_osi::ftam::filestore::RESERVED;
use kiban_osi::ftam::initiator::{Failure, Job, Outcome, docket_of};
use kiban_osi::wire::ftam::ErrorIdentifier;
use serde::Serialize;
use std::path::Path;
use std::time::Duration;

/// Before the first attempt to connect again; each later one waits twice as long.
const PAUSE: Duration = Duration::from_millis(500);

/// What is said of a transfer of which a note is kept.
const GOES_ON: &str = "; use --resume to continue";

/// An association with one host.
pub(super) struct Link {
    config: ClientConfig,
    host: String,
    quiet: bool,
    client: Option<Client>,
    stopwatch: Option<Stopwatch>,
}

/// A transfer that ended well.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Moved {
    /// From where.
    pub(super) from: String,
    /// To where.
    pub(super) to: String,
    /// Bytes of contents, those of earlier attempts included.
    pub(super) bytes: u64,
    /// Seconds, connecting excluded.
    pub(super) seconds: f64,
    /// Whether it went on with an earlier attempt.
    pub(super) resumed: bool,
}

/// How a transfer may be gone on with.
#[derive(Clone, Copy)]
pub(super) struct Persistence {
    pub(super) resume: bool,
    pub(super) retries: u32,
}

impl Link {
    /// A link to the host of `remote`, for files below `local`.
    pub(super) fn new(association: &Association, remote: &Remote, local: &Path) -> Result<Link, String> {
        Ok(Link {
            config: association.config(remote, local)?,
            host: remote.endpoint(),
            quiet: association.quiet,
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
        let host = self.host.clone();
        self.connect().await.map_err(|error| format!("{host}: {error}"))
    }

    /// A job without contents.
    pub(super) async fn ask(&mut self, job: Job, about: &str) -> Result<Outcome, String> {
        let asked = self.client().await?.run(job, None).await;
        asked.map_err(|failure| format!("{about}: {}", FailureLine(&failure)))
    }

    /// A job that changes nothing: it is asked again when the association is lost, `retries` times in all.
    pub(super) async fn look(&mut self, job: Job, about: &str, retries: &mut u32) -> Result<Outcome, String> {
        let mut pause = PAUSE;
        // Who connects for the first time is told at once what is wrong.
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
                Err(error) => (may_pass(&error), format!("{}: {error}", self.host)),
            };
            if !may_pass || *retries == 0 {
                return Err(error);
            }
            *retries -= 1;
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
    }

    /// A transfer, which is gone on with when the association is lost.
    pub(super) async fn transfer(
        &mut self,
        job: Job,
        remote: &Remote,
        local: &Path,
        persistence: Persistence,
    ) -> Result<(u64, f64, bool), String> {
        let number = activity(remote, local);
        let docket = docket_of(number);
        let mut resumed = persistence.resume
            && has_docket(&self.config.local, &docket)
                .map_err(|error| format!("{}: {error}", self.config.local.display()))?;
        let began_resumed = resumed;
        let (mut retries, mut pause) = (persistence.retries, PAUSE);
        let bar = bar(self.quiet, remote.name());
        // Who connects for the first time waits for it, and the transfer is not the slower for that.
        self.client().await?;
        let clock = Clock::new();
        loop {
            let client = match self.connect().await {
                Ok(client) => client,
                // A server that was restarted may need a moment until it listens.
                Err(error) if may_pass(&error) && retries > 0 => {
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
            let watch = show(bar.clone(), progress.clone());
            let outcome = tokio::select! {
                outcome = async {
                    if resumed { client.recover(docket.clone()).await } else { client.run(job.clone(), Some(number)).await }
                } => outcome,
                never = watch => never,
            };
            let bytes = progress.borrow().0;
            match outcome {
                Ok(_) => {
                    bar.finish_and_clear();
                    tidy(local);
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
                        Failure { local: Some(DiskError::NotAFile), .. } if matches!(job, Job::Get { .. }) => {
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

    /// Ends the association in order.
    pub(super) async fn close(mut self) -> Option<Stopwatch> {
        if let Some(client) = self.client.take() {
            self.stopwatch = Some(client.close().await);
        }
        self.stopwatch
    }
}

/// Whether a failure is that of the association, and not the responder's answer.
fn says_lost(failure: &Failure) -> bool {
    let mut said = failure.diagnostics.iter();
    failure.diagnostics.is_empty() || said.any(|item| item.error() == ErrorIdentifier::LOWER_LAYER_FAILURE)
}

/// Whether connecting may succeed a moment later.
fn may_pass(error: &ConnectError) -> bool {
    matches!(error, ConnectError::Socket(_) | ConnectError::Lost | ConnectError::Timeout(_))
}

/// Nothing is left beside a local file, but what others may still want: only empty directories go.
fn tidy(local: &Path) {
    let Some(reserved) = local.parent().map(|directory| directory.join(RESERVED)) else { return };
    for directory in ["new", "dockets", "attributes"] {
        let _ = std::fs::remove_dir(reserved.join(directory));
    }
    let _ = std::fs::remove_dir(reserved);
}

fn bar(quiet: bool, name: &str) -> ProgressBar {
    let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let style = "{msg:20!} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    let style = ProgressStyle::with_template(style).expect("the template is well formed");
    ProgressBar::with_draw_target(None, target).with_style(style).with_message(name.to_owned())
}

/// Moves the bar for as long as it is polled.
async fn show(
    bar: ProgressBar,
    mut progress: tokio::sync::watch::Receiver<(u64, Option<u64>)>,
) -> Result<Outcome, Failure> {
    while progress.changed().await.is_ok() {
        let (bytes, total) = *progress.borrow_and_update();
        if let Some(total) = total {
            bar.set_length(total);
        }
        bar.set_position(bytes);
    }
    std::future::pending().await
}
