//! The FTAM client commands.

use super::address::Remote;
use super::arguments::{Append, Chattr, Descent, Get, Ls, Mkdir, Mv, Put, Rm, Stat, Transfer, When};
use super::attributes::{FileAttributes, list};
use super::link::{PersistentClient, RetryPolicy, TransferResult};
use super::options::{Association, Kind};
use crate::output::note;
use crate::output::print;
use kiban_osi::ftam::filestore::Path as Name;
use kiban_osi::ftam::initiator::{Job, Outcome};
use kiban_osi::wire::ftam::{
    Account, AccountAttribute, Availability, AvailabilityAttribute, ChangeAttributes,
    LegalQualificationAttribute, SizeAttribute,
};
use kiban_osi_runtime::ftam::timing::Stopwatch;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Maximum depth of nested directories in recursive commands.
const DEPTH_MAX: usize = 32;

/// The result of a command.
#[derive(Default, Serialize)]
struct Report {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    transfers: Vec<TransferResult>,
    #[serde(skip_serializing_if = "Option::is_none")]
    entries: Option<Vec<FileAttributes>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attributes: Option<FileAttributes>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    failures: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    timing: Vec<Layer>,
}

/// Processing time of a layer.
#[derive(Serialize)]
struct Layer {
    task: &'static str,
    microseconds: f64,
    turns: u64,
}

impl Report {
    /// Ends the association and prints the result.
    async fn finish(mut self, association: &Association, link: PersistentClient) -> Result<ExitCode, String> {
        let stopwatch = link.close().await;
        if association.timing {
            self.timing = stopwatch.as_ref().map(layers).unwrap_or_default();
        }
        if association.json {
            let json = serde_json::to_string(&self).map_err(|error| error.to_string())?;
            print(&format!("{json}\n"))?;
        } else {
            self.print_words(association)?;
        }
        for failure in &self.failures {
            note!("kiban: {failure}");
        }
        Ok(if self.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn print_words(&self, association: &Association) -> Result<(), String> {
        for moved in self.transfers.iter().filter(|_| !association.quiet) {
            let TransferResult { from, to, bytes, seconds, resumed } = moved;
            let rate = *bytes as f64 / seconds.max(1e-9) / 1e6;
            let how = match *bytes {
                _ if *resumed => ", resumed".into(),
                // For small files, the rate would mainly reflect the protocol exchanges.
                ..1_000_000 => String::new(),
                _ => format!(", {rate:.1} MB/s"),
            };
            print(&format!("{from} -> {to}: {bytes} bytes in {seconds:.3} s{how}\n"))?;
        }
        if let Some(attributes) = &self.attributes {
            print(&attributes.table(String::new()).to_string())?;
        }
        if !self.timing.is_empty() {
            let mut table = kiban_lab::table::Table::new("Time of each task")
                .text_column("task")
                .number_column("us")
                .number_column("turns");
            for layer in &self.timing {
                table.row([layer.task.into(), format!("{:.1}", layer.microseconds), layer.turns.to_string()]);
            }
            print(&table.to_string())?;
        }
        Ok(())
    }
}

fn layers(stopwatch: &Stopwatch) -> Vec<Layer> {
    let layer = |(task, spent, turns): (kiban_osi::stack::meter::Task, std::time::Duration, u64)| Layer {
        task: task.name(),
        microseconds: spent.as_secs_f64() * 1e6,
        turns,
    };
    stopwatch.spent().map(layer).collect()
}

impl Transfer {
    fn persistence(&self) -> RetryPolicy {
        RetryPolicy { resume: self.resume, retries: self.retries }
    }
}

impl Descent {
    /// Checks that another directory may be listed, and counts it.
    fn check(&self, remote: &Remote, depth: usize, listed: &mut usize) -> Result<(), String> {
        *listed += 1;
        if *listed > self.directories_max {
            let most = self.directories_max;
            return Err(format!("{remote}: more than {most} directories; raise --directories-max"));
        }
        match depth {
            0..DEPTH_MAX => Ok(()),
            _ => Err(format!("{remote}: more than {DEPTH_MAX} nested directories")),
        }
    }
}

impl Get {
    pub(super) async fn run(self) -> Result<ExitCode, String> {
        let same_host =
            |remote: &Remote| remote.with_path(String::new()) == self.remotes[0].with_path(String::new());
        if !self.remotes.iter().all(same_host) {
            return Err("all remote names must have the same user and host".into());
        }
        let into = self.local.is_dir() || self.remotes.len() > 1 || self.descent.recursive;
        let root = if into { self.local.clone() } else { parent(&self.local) };
        if self.descent.recursive {
            std::fs::create_dir_all(&root).map_err(|error| format!("{}: {error}", root.display()))?;
        }
        let association = &self.transfer.association;
        let mut link = PersistentClient::new(association, &self.remotes[0], &absolute(&root)?)?;
        let mut report = Report::default();
        // Subdirectories that have been found but not listed yet.
        let mut waiting: Vec<(Remote, String, usize)> = Vec::new();
        let mut listed = 0;
        for remote in &self.remotes {
            let name = match into {
                true if !remote.name().is_empty() => remote.name().to_owned(),
                true => String::new(),
                false => file_name(&self.local)?,
            };
            waiting.push((remote.clone(), name, 0));
        }
        waiting.reverse();
        while let Some((remote, name, depth)) = waiting.pop() {
            let is_directory = self.descent.recursive && self.is_directory(&mut link, &remote).await;
            let done = if !self.descent.recursive && (remote.path.is_empty() || remote.path.ends_with('/')) {
                Err(format!("{remote}: is a directory; use --recursive to download it"))
            } else if is_directory {
                match self.descent.check(&remote, depth, &mut listed) {
                    Ok(()) => self.descend(&mut link, &remote, &name, depth, &root, &mut waiting).await,
                    Err(failure) => Err(failure),
                }
            } else {
                self.fetch(&mut link, &remote, &name, &root).await.map(|moved| report.transfers.push(moved))
            };
            report.failures.extend(done.err());
            if listed > self.descent.directories_max {
                break;
            }
        }
        report.finish(association, link).await
    }

    async fn is_directory(&self, link: &mut PersistentClient, remote: &Remote) -> bool {
        if remote.path.is_empty() || remote.path.ends_with('/') {
            return true;
        }
        let stat = Job::Stat { remote: remote.path.clone() };
        match link.run_with_retry(stat, "", &mut self.transfer.retries.clone()).await {
            Ok(Outcome::Attributes(attributes)) => FileAttributes::of(&attributes).is_directory == Some(true),
            _ => false,
        }
    }

    async fn descend(
        &self,
        link: &mut PersistentClient,
        remote: &Remote,
        name: &str,
        depth: usize,
        root: &Path,
        waiting: &mut Vec<(Remote, String, usize)>,
    ) -> Result<(), String> {
        let here = root.join(name);
        std::fs::create_dir_all(&here).map_err(|error| format!("{}: {error}", here.display()))?;
        for entry in entries(link, remote, &mut self.transfer.retries.clone()).await? {
            let last = last_component(&entry.name);
            // File names sent by the peer must not lead outside the target directory.
            let above = if name.is_empty() { Ok(Name::root()) } else { Name::read(name) };
            let inside = above.and_then(|above| above.join(last));
            let inside = inside.map_err(|wrong| format!("{remote}{last}: {wrong}"))?;
            let slash = if entry.is_directory == Some(true) { "/" } else { "" };
            let path = remote.path.trim_end_matches('/');
            let path = if path.is_empty() { last.to_owned() } else { format!("{path}/{last}") };
            waiting.push((remote.with_path(format!("{path}{slash}")), inside.as_str().into(), depth + 1));
        }
        Ok(())
    }

    async fn fetch(
        &self,
        link: &mut PersistentClient,
        remote: &Remote,
        name: &str,
        root: &Path,
    ) -> Result<TransferResult, String> {
        let local = Name::read(name).map_err(|wrong| format!("{name}: {wrong}"))?;
        let target = root.join(name);
        let document = self.transfer.kind.map(Kind::document);
        let job = Job::Get { remote: remote.path.clone(), local, document };
        let (bytes, seconds, resumed) =
            link.transfer(job, remote, &absolute(root)?.join(name), self.transfer.persistence()).await?;
        Ok(TransferResult {
            from: remote.to_string(),
            to: target.display().to_string(),
            bytes,
            seconds,
            resumed,
        })
    }
}

impl Put {
    pub(super) async fn run(self) -> Result<ExitCode, String> {
        let association = &self.transfer.association;
        let mut report = Report::default();
        let mut links: Option<(PathBuf, PersistentClient)> = None;
        let into = self.remote.path.is_empty() || self.remote.path.ends_with('/') || self.locals.len() > 1;
        let mut waiting: Vec<(PathBuf, String, usize)> = Vec::new();
        for local in self.locals.iter().rev() {
            let base = self.remote.path.trim_end_matches('/');
            let path = match (into, base.is_empty()) {
                (false, _) => base.to_owned(),
                (true, true) => file_name(local)?,
                (true, false) => format!("{base}/{}", file_name(local)?),
            };
            waiting.push((local.clone(), path, 0));
        }
        while let Some((local, path, depth)) = waiting.pop() {
            let root = absolute(&parent(&local))?;
            // The state of an interrupted transfer is kept in the local file's directory, so each local
            // directory needs its own association.
            let mut link = match links.take() {
                Some((at, link)) if at == root => link,
                other => {
                    if let Some((_, link)) = other {
                        link.close().await;
                    }
                    PersistentClient::new(association, &self.remote, &root)?
                }
            };
            let remote = self.remote.with_path(path);
            let done = if local.is_dir() && !self.recursive {
                Err(format!("{}: is a directory; use --recursive to upload it", local.display()))
            } else if local.is_dir() {
                descend_local(&mut link, &local, &remote, depth, &mut waiting).await
            } else {
                let done = put(&mut link, &self.transfer, &local, &remote, false).await;
                done.map(|moved| report.transfers.push(moved))
            };
            report.failures.extend(done.err());
            links = Some((root, link));
        }
        let (_, link) = links.ok_or("nothing to put")?;
        report.finish(association, link).await
    }
}

impl Append {
    pub(super) async fn run(self) -> Result<ExitCode, String> {
        let association = &self.transfer.association;
        let mut link = PersistentClient::new(association, &self.remote, &absolute(&parent(&self.local))?)?;
        let mut report = Report::default();
        match put(&mut link, &self.transfer, &self.local, &self.remote, true).await {
            Ok(moved) => report.transfers.push(moved),
            Err(failure) => report.failures.push(failure),
        }
        report.finish(association, link).await
    }
}

async fn put(
    link: &mut PersistentClient,
    transfer: &Transfer,
    local: &Path,
    remote: &Remote,
    behind: bool,
) -> Result<TransferResult, String> {
    std::fs::metadata(local).map_err(|error| format!("{}: {error}", local.display()))?;
    let name = Name::read(&file_name(local)?).map_err(|wrong| format!("{}: {wrong}", local.display()))?;
    let document = transfer.kind.unwrap_or(Kind::Binary).document();
    let path = remote.path.clone();
    let job = if behind {
        Job::Append { local: name, remote: path, document }
    } else {
        Job::Put { local: name, remote: path, document }
    };
    let (bytes, seconds, resumed) =
        link.transfer(job, remote, &absolute(local)?, transfer.persistence()).await?;
    Ok(TransferResult { from: local.display().to_string(), to: remote.to_string(), bytes, seconds, resumed })
}

async fn descend_local(
    link: &mut PersistentClient,
    local: &Path,
    remote: &Remote,
    depth: usize,
    waiting: &mut Vec<(PathBuf, String, usize)>,
) -> Result<(), String> {
    if depth == DEPTH_MAX {
        return Err(format!("{}: more than {DEPTH_MAX} nested directories", local.display()));
    }
    let about = remote.to_string();
    // The creation fails if the directory already exists. The error is reported only if the directory does
    // not exist afterwards.
    let made = link.ask(Job::MakeDirectory { remote: remote.path.clone() }, &about).await;
    let listed = std::fs::read_dir(local).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let mut listed = listed.map_err(|error| format!("{}: {error}", local.display()))?;
    if let Err(failure) = made
        && link.ask(Job::Stat { remote: remote.path.clone() }, &about).await.is_err()
    {
        return Err(failure);
    }
    listed.sort_by_key(std::fs::DirEntry::file_name);
    for entry in listed.into_iter().rev() {
        let name = file_name(&entry.path())?;
        let kind = entry.file_type().map_err(|error| format!("{}: {error}", entry.path().display()))?;
        if kind.is_symlink() || name == kiban_osi::ftam::filestore::RESERVED {
            continue;
        }
        waiting.push((entry.path(), format!("{}/{name}", remote.path), depth + 1));
    }
    Ok(())
}

impl Ls {
    pub(super) async fn run(self) -> Result<ExitCode, String> {
        let mut link = here(&self.association, &self.remote)?;
        let mut report = Report::default();
        let mut all = Vec::new();
        let mut waiting = vec![(self.remote.clone(), String::new(), 0)];
        let (mut retries, mut listed) = (self.retries, 0);
        while let Some((remote, prefix, depth)) = waiting.pop() {
            let found = match self.descent.check(&remote, depth, &mut listed) {
                Ok(()) => entries(&mut link, &remote, &mut retries).await,
                Err(failure) => Err(failure),
            };
            let mut found = match found {
                Ok(found) => found,
                Err(failure) => {
                    report.failures.push(failure);
                    if listed > self.descent.directories_max {
                        break;
                    }
                    continue;
                }
            };
            found.sort_by(|one, other| one.name.cmp(&other.name));
            let base = remote.path.trim_end_matches('/');
            for entry in &mut found {
                entry.name = format!("{prefix}{}", last_component(&entry.name));
            }
            for entry in found.iter().rev() {
                if self.descent.recursive && entry.is_directory == Some(true) {
                    let last = last_component(&entry.name);
                    let path = if base.is_empty() { last.to_owned() } else { format!("{base}/{last}") };
                    waiting.push((remote.with_path(path), format!("{}/", entry.name), depth + 1));
                }
            }
            if self.association.json {
                all.append(&mut found);
            } else if !found.is_empty() || prefix.is_empty() {
                // Each directory is printed at once, because a large tree takes long.
                print(&list(String::new(), &found).to_string())?;
            }
        }
        all.sort_by(|one, other| one.name.cmp(&other.name));
        let is_wanted = self.association.json && (report.failures.is_empty() || !all.is_empty());
        report.entries = is_wanted.then_some(all);
        report.finish(&self.association, link).await
    }
}

fn last_component(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or_default()
}

/// Lists a directory.
async fn entries(
    link: &mut PersistentClient,
    remote: &Remote,
    retries: &mut u32,
) -> Result<Vec<FileAttributes>, String> {
    // ISODE uses "." as the name of the user's home directory.
    let path = remote.path.trim_end_matches('/');
    let list = Job::List { remote: if path.is_empty() { "." } else { path }.to_owned() };
    match link.run_with_retry(list, &remote.to_string(), retries).await? {
        // ISODE lists `.` and `..`, which would lead a recursive command in circles and out of the directory.
        Outcome::Entries(entries) => Ok(entries
            .iter()
            .map(FileAttributes::of)
            .filter(|entry| !matches!(last_component(&entry.name), "" | "." | ".."))
            .collect()),
        _ => Ok(Vec::new()),
    }
}

impl Stat {
    pub(super) async fn run(mut self) -> Result<ExitCode, String> {
        let mut link = here(&self.association, &self.remote)?;
        let mut report = Report::default();
        let stat = Job::Stat { remote: self.remote.path.clone() };
        match link.run_with_retry(stat, &self.remote.to_string(), &mut self.retries).await {
            Ok(Outcome::Attributes(attributes)) => report.attributes = Some(FileAttributes::of(&attributes)),
            Ok(_) => report.failures.push(format!("{}: the responder returned no attributes", self.remote)),
            Err(failure) => report.failures.push(failure),
        }
        report.finish(&self.association, link).await
    }
}

impl Mkdir {
    pub(super) async fn make_directory(self) -> Result<ExitCode, String> {
        let job = Job::MakeDirectory { remote: self.remote.path.trim_end_matches('/').to_owned() };
        plain(&self.association, vec![(job, self.remote)]).await
    }
}

impl Rm {
    pub(super) async fn remove(self) -> Result<ExitCode, String> {
        let job = |remote: Remote| (Job::Remove { remote: remote.path.clone() }, remote);
        plain(&self.association, self.remotes.into_iter().map(job).collect()).await
    }
}

impl Mv {
    pub(super) async fn run(self) -> Result<ExitCode, String> {
        if Remote::is_meant_by(&self.to) {
            return Err(
                "write the new name without ftam:// and host: files cannot be moved between hosts".into()
            );
        }
        let job = Job::Rename { remote: self.remote.path.clone(), to: self.to };
        plain(&self.association, vec![(job, self.remote)]).await
    }
}

impl Chattr {
    pub(super) async fn run(self) -> Result<ExitCode, String> {
        let attributes = ChangeAttributes {
            storage_account: self
                .storage_account
                .map(|account| AccountAttribute::Actual(Account(account.as_str().into()))),
            object_availability: self.availability.map(|when| {
                AvailabilityAttribute::Actual(match when {
                    When::Immediate => Availability::IMMEDIATE,
                    When::Deferred => Availability::DEFERRED,
                })
            }),
            future_object_size: self.future_size.map(SizeAttribute::Actual),
            legal_qualification: self
                .legal
                .map(|legal| LegalQualificationAttribute::Actual(legal.as_str().into())),
            ..ChangeAttributes::NONE
        };
        if attributes == ChangeAttributes::NONE {
            return Err(
                "nothing to change: use --storage-account, --future-size, --availability or --legal".into()
            );
        }
        let job = Job::Change { remote: self.remote.path.clone(), attributes: Box::new(attributes) };
        plain(&self.association, vec![(job, self.remote)]).await
    }
}

/// Runs jobs that return no result, using one association per user and host.
async fn plain(association: &Association, jobs: Vec<(Job, Remote)>) -> Result<ExitCode, String> {
    let mut report = Report::default();
    let mut link: Option<(Remote, PersistentClient)> = None;
    for (job, remote) in jobs {
        let host = remote.with_path(String::new());
        let mut used = match link.take() {
            Some((at, link)) if at == host => link,
            other => {
                if let Some((_, link)) = other {
                    link.close().await;
                }
                here(association, &remote)?
            }
        };
        report.failures.extend(used.ask(job, &remote.to_string()).await.err());
        link = Some((host, used));
    }
    let (_, link) = link.ok_or("nothing to do")?;
    report.finish(association, link).await
}

/// Returns a client for jobs that use no local files.
fn here(association: &Association, remote: &Remote) -> Result<PersistentClient, String> {
    PersistentClient::new(association, remote, &absolute(Path::new("."))?)
}

fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.into(),
        _ => ".".into(),
    }
}

fn absolute(path: &Path) -> Result<PathBuf, String> {
    path.canonicalize()
        .or_else(|_| std::path::absolute(path))
        .map_err(|error| format!("{}: {error}", path.display()))
}

fn file_name(path: &Path) -> Result<String, String> {
    let name = path.file_name().and_then(|name| name.to_str());
    name.map(String::from)
        .ok_or_else(|| format!("{} does not end in a file name, or the name is not UTF-8", path.display()))
}
