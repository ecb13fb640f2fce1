//! `kiban ftam collect`: moves files from a peer to a local directory, once or on a schedule.
//!
//! Rounds         each round lists the remote directories, and collects their files ([`Collection`]). If some
//!                may still be written, it waits for --min-age, and lists them a second time. With --every, a
//!                failed round is reported, and the next one tries again.
//! Signals        SIGINT and SIGTERM let the current files finish; a second signal ends the program at once.
//! Not recursive  subdirectories are left out.

use super::address::Remote;
use super::arguments::{Descent, Parallel, Transfer};
use super::attributes::FileAttributes;
use super::collection::{Collection, token};
use super::link::{Peer, PersistentClient};
use super::listing::{RemoteFile, entries, file_instead, last_component, matching};
use super::local::STATE;
use super::report::{Report, whole_seconds};
use super::task::{Task, Way};
use super::transfers::{self, root_of};
use crate::board::control::time_or_seconds;
use clap::Args;
use std::collections::HashSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

#[derive(Args)]
pub(super) struct Collect {
    #[command(flatten)]
    transfer: Transfer,
    #[command(flatten)]
    parallel: Parallel,
    /// Repeat at this interval: 30 (seconds), 5m, 1h, 1d.
    #[arg(long, value_name = "TIME", value_parser = interval)]
    every: Option<Duration>,
    /// Collect once (the default).
    #[arg(long, conflicts_with = "every")]
    once: bool,
    /// Collect a file only after its size and dates have not changed for this time, because it may still be
    /// written: 0 (do not wait), 30 (seconds), 15m, 1h [default: 60].
    #[arg(long, value_name = "TIME", value_parser = time_or_seconds)]
    min_age: Option<Duration>,
    /// Remote directories, files, or names with wildcards; subdirectories are left out.
    #[arg(required = true, value_name = "REMOTE")]
    remotes: Vec<Remote>,
    /// Local directory; it is created if it does not exist.
    #[arg(value_name = "LOCAL")]
    local: PathBuf,
}

/// Parses the time between two rounds.
fn interval(text: &str) -> Result<Duration, String> {
    let time = time_or_seconds(text)?;
    if time < Duration::from_secs(1) { Err("must be at least 1 s".into()) } else { Ok(time) }
}

impl Collect {
    pub(super) fn is_parallel(&self) -> bool {
        self.parallel.jobs > 1
    }

    pub(super) async fn run(mut self) -> Result<ExitCode, String> {
        let association = &self.transfer.association;
        let peer = association.peer(&mut self.remotes.iter_mut().collect::<Vec<_>>())?;
        let collection = Arc::new(Collection::open(root_of(&self.local)?)?);
        let failed = |error: std::io::Error| format!("cannot handle signals: {error}");
        let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
        let stopping = collection.clone();
        let (stopped, mut stops) = tokio::sync::watch::channel(false);
        tokio::spawn(async move {
            tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
            stopping.stop();
            stopped.send_replace(true);
            // A second signal does not wait for the current files; they will be resumed.
            tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
            std::process::exit(1);
        });
        let min_age = peer.min_age(self.min_age);
        let mut next = Instant::now();
        loop {
            next += self.every.unwrap_or_default();
            let (mut report, mut young) =
                self.look(&peer, &collection, min_age, Report::new(association)).await;
            let again = young.iter().map(|(_, due)| *due).max();
            if let Some(again) = again.filter(|again| self.every.is_none() || *again < next) {
                if self.every.is_none() {
                    let (count, seconds) = (young.len(), whole_seconds(again - Instant::now()));
                    peer.note(&format!(
                        "kiban: files that may still be written: {count}; waiting {seconds} s for changes (--min-age)"
                    ));
                }
                tokio::select! {
                    () = tokio::time::sleep_until(again) => {
                        (report, young) = self.look(&peer, &collection, min_age, report).await;
                    }
                    _ = stops.wait_for(|stops| *stops) => {}
                }
            }
            for (name, _) in young {
                if self.every.is_none() {
                    let seconds = whole_seconds(min_age);
                    peer.note(&format!(
                        "kiban: {name}: not seen unchanged for {seconds} s: left for a later run"
                    ));
                }
                report.left.push(name);
            }
            let is_quiet = report.is_empty() && self.every.is_some();
            let code = if is_quiet { ExitCode::SUCCESS } else { report.finish()? };
            if self.every.is_none() {
                return Ok(code);
            }
            // A round that takes longer than the interval is followed by the next one at once.
            next = next.max(Instant::now());
            tokio::select! {
                () = tokio::time::sleep_until(next) => {}
                _ = stops.wait_for(|stops| *stops) => return Ok(ExitCode::SUCCESS),
            }
        }
    }

    /// Lists the files, and collects those that have not changed for long enough. Returns the others, and
    /// when they may be collected if they do not change.
    async fn look(
        &self,
        peer: &Arc<Peer>,
        collection: &Arc<Collection>,
        min_age: Duration,
        mut report: Report,
    ) -> (Report, Vec<(String, Instant)>) {
        collection.place_all(&mut report);
        peer.forget_refusal();
        let mut link = PersistentClient::new(peer, &collection.directory.join(STATE));
        let (mut tasks, mut listed, mut unmatched) = (Vec::new(), Vec::new(), Vec::new());
        let begun = Instant::now();
        for remote in &self.remotes {
            let argument = remote.without_alias().to_string();
            match list(&mut link, remote, self.transfer.retries).await {
                Ok(found) => {
                    unmatched
                        .extend((remote.pattern.is_some() && found.is_empty()).then(|| argument.clone()));
                    tasks.extend(found.into_iter().map(|file| self.task(file, &argument, collection)));
                    listed.push(argument);
                }
                Err(failure) => report.failed(failure),
            }
        }
        // Two arguments may mean the same file, which two workers must not fetch at the same time.
        let mut tokens = HashSet::new();
        tasks.retain(|task| tokens.insert(task.name.clone()));
        collection.forget_deleted(&listed, &tokens, &mut report);
        let is_complete = listed.len() == self.remotes.len();
        let young = collection.young(&tokens, begun, min_age, is_complete);
        let mut waiting = Vec::new();
        tasks.retain(|task| {
            let due = young.get(&task.name);
            waiting.extend(due.map(|due| (task.remote.to_string(), *due)));
            due.is_none()
        });
        // This look is the last one. A quiet night is no failure, but the pattern may be wrong.
        if waiting.is_empty() && self.every.is_none() {
            unmatched.iter().for_each(|argument| peer.note(&format!("kiban: {argument}: no file matches")));
        }
        let mut policy = self.transfer.policy(peer.kind);
        policy.retry.resume = true;
        let (collection, jobs) = (Some(collection.clone()), self.parallel.jobs.into());
        (transfers::run(peer, Some(link), tasks, policy, collection, jobs, report).await, waiting)
    }

    fn task(&self, file: RemoteFile, argument: &str, collection: &Collection) -> Task {
        Task {
            way: Way::Get,
            name: token(&file.remote, &file.attributes),
            remote: file.remote,
            root: collection.directory.join(STATE),
            shown: self.local.join(&file.name).display().to_string(),
            known: Some(file.attributes),
            argument: argument.to_owned(),
        }
    }
}

/// Returns the files of a directory, those that a pattern matches, or one that was named.
async fn list(
    link: &mut PersistentClient,
    remote: &Remote,
    mut retries: u32,
) -> Result<Vec<RemoteFile>, String> {
    let mut found = match &remote.pattern {
        // Usually there is nothing to collect.
        Some(_) => matching(link, remote, &Descent::default(), &mut retries).await?,
        None => match entries(link, remote, &mut retries).await {
            Ok(found) => {
                let file = |attributes: FileAttributes| {
                    let name = last_component(&attributes.name).to_owned();
                    RemoteFile { remote: remote.below(&name), name, attributes }
                };
                found.into_iter().map(file).collect()
            }
            Err(failure) => {
                let attributes = file_instead(link, remote, &mut retries, failure).await?;
                vec![RemoteFile { remote: remote.clone(), name: attributes.name.clone(), attributes }]
            }
        },
    };
    found.retain(|file| file.attributes.is_directory != Some(true));
    found.sort_by(|one, other| one.remote.path.cmp(&other.remote.path));
    Ok(found)
}
