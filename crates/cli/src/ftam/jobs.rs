//! The FTAM client commands.

use super::address::Remote;
use super::arguments::{Append, Chattr, Descent, Get, Ls, Mkdir, Mv, Put, Rm, Stat, Transfer, When};
use super::attributes::{FileAttributes, list};
use super::kinds::Kind;
use super::link::{PersistentClient, RetryPolicy};
use super::listing::{RemoteFile, entries, expand, file_instead, last_component, stat, tree};
use super::local::{self, Spool, absolute, create_directories, file_name, parent};
use super::options::Association;
use super::report::Report;
use super::task::{IfExists, Policy, Task, Way};
use super::transfers::{self, root_of};
use crate::output::print;
use kiban_osi::ftam::filestore::Path as Name;
use kiban_osi::ftam::initiator::Job;
use kiban_osi::wire::ftam::{
    Account, AccountAttribute, Availability, AvailabilityAttribute, ChangeAttributes,
    LegalQualificationAttribute, SizeAttribute,
};
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use tokio::time::Instant;

/// The argument that means standard input or output.
const STANDARD: &str = "-";

impl Transfer {
    /// Returns the settings of the command's transfers; `kind` is the default document type of the peer.
    pub(super) fn policy(&self, kind: Option<Kind>) -> Policy {
        Policy {
            kind: self.kind.or(kind),
            retry: RetryPolicy { resume: self.resume, retries: self.retries },
            if_exists: IfExists::Fail,
            then_delete: None,
            listed_at: Instant::now(),
            unsynced: Arc::default(),
        }
    }
}

impl Get {
    pub(super) async fn run(mut self) -> Result<ExitCode, String> {
        if self.local.as_os_str() == STANDARD {
            return self.print().await;
        }
        let several = self.remotes.len() > 1 || self.remotes.iter().any(|remote| remote.pattern.is_some());
        // A slash at the end means a directory, which is created if necessary.
        let is_directory = self.local.is_dir() || self.local.as_os_str().as_bytes().ends_with(b"/");
        let is_into = is_directory || several || self.descent.recursive;
        let association = &self.transfer.association;
        let peer = association.peer(&mut self.remotes.iter_mut().collect::<Vec<_>>())?;
        let root = if is_into { self.local.clone() } else { parent(&self.local) };
        let root = root_of(&root)?;
        let mut report = Report::new(association);
        let mut link = PersistentClient::new(&peer, &root);
        let mut tasks = Vec::new();
        for remote in &self.remotes {
            match self.files(&mut link, remote, &mut report).await {
                Ok(files) => tasks.extend(files.into_iter().map(|file| self.task(file, &root, is_into))),
                Err(failure) => report.failed(failure),
            }
        }
        if !is_into {
            tasks.iter_mut().try_for_each(|task| file_name(&self.local).map(|name| task.name = name))?;
        }
        // Two remote files with one local name: with --overwrite, the second would replace the first.
        let mut names = HashSet::new();
        tasks.retain(|task| {
            let is_new = names.insert(task.name.clone());
            if !is_new {
                report
                    .failed(format!("{}: another file of this command has the same local name", task.remote));
            }
            is_new
        });
        let mut policy = self.transfer.policy(peer.kind);
        policy.then_delete = self.then_delete.then(|| peer.min_age(self.min_age));
        policy.if_exists = match (self.existing.overwrite, self.existing.skip_existing) {
            (true, _) => IfExists::Overwrite,
            (_, true) => IfExists::Skip,
            _ => IfExists::Fail,
        };
        transfers::run(&peer, Some(link), tasks, policy, None, self.parallel.jobs.into(), report)
            .await
            .finish()
    }

    /// Returns the files that an argument means, each with its path below the local directory. Creates the
    /// directories of a tree.
    async fn files(
        &self,
        link: &mut PersistentClient,
        remote: &Remote,
        report: &mut Report,
    ) -> Result<Vec<RemoteFile>, String> {
        let retries = &mut self.transfer.retries.clone();
        let found = match &remote.pattern {
            Some(_) => expand(link, remote, &self.descent, retries).await?,
            None => {
                // So all files of a command are old enough for their deletion at the same time. A failure is
                // reported with the transfer.
                let attributes = match self.then_delete {
                    true => stat(link, remote, retries).await.unwrap_or_default(),
                    false => FileAttributes::default(),
                };
                vec![RemoteFile { remote: remote.clone(), name: remote.name().to_owned(), attributes }]
            }
        };
        let mut files = Vec::new();
        for file in found {
            // A pattern matches whatever names the peer lists.
            if remote.pattern.is_some()
                && let Err(wrong) = Name::root().join(&file.name)
            {
                report.failed(format!("{}: {wrong}", file.remote));
                continue;
            }
            let is_directory = match file.attributes.is_directory {
                _ if file.remote.path.is_empty() || file.remote.path.ends_with('/') => true,
                Some(is_directory) => is_directory,
                None if self.descent.recursive => {
                    let told = stat(link, &file.remote, retries).await;
                    told.is_ok_and(|told| told.is_directory == Some(true))
                }
                None => false,
            };
            match (is_directory, self.descent.recursive, &remote.pattern) {
                (false, ..) => files.push(file),
                (true, true, _) => {
                    let wanted = |_: &str, _| true;
                    let (below, failures) = tree(link, &file.remote, &self.descent, retries, &wanted).await;
                    failures.into_iter().for_each(|failure| report.failed(failure));
                    create_directories(&link.local().join(&file.name))?;
                    for mut found in below {
                        if !file.name.is_empty() {
                            found.name = format!("{}/{}", file.name, found.name);
                        }
                        match found.attributes.is_directory {
                            Some(true) => create_directories(&link.local().join(&found.name))?,
                            _ => files.push(found),
                        }
                    }
                }
                // As in a shell, where `cp *` leaves directories out.
                (true, false, Some(_)) => {}
                (true, false, None) => {
                    return Err(format!("{remote}: is a directory; use --recursive to download it"));
                }
            }
        }
        Ok(files)
    }

    fn task(&self, file: RemoteFile, root: &Path, is_into: bool) -> Task {
        let shown = if is_into { self.local.join(&file.name) } else { self.local.clone() };
        // The attributes are unknown if the file was named, not found in a listing.
        let known = file.attributes.is_directory.is_some().then_some(file.attributes);
        let (root, shown) = (root.into(), shown.display().to_string());
        Task {
            way: Way::Get,
            remote: file.remote,
            root,
            name: file.name,
            shown,
            known,
            argument: String::new(),
        }
    }

    /// Fetches one file to standard output. It is spooled on the disk, because a transfer that is restarted
    /// goes back to its last checkpoint.
    async fn print(mut self) -> Result<ExitCode, String> {
        let association = &self.transfer.association;
        let peer = association.peer(&mut self.remotes.iter_mut().collect::<Vec<_>>())?;
        let [remote] = &self.remotes[..] else { return Err("only one file can be written to -".into()) };
        if self.descent.recursive || self.then_delete || self.transfer.resume || remote.pattern.is_some() {
            return Err("- cannot be combined with wildcards, --recursive, --then-delete and --resume".into());
        }
        if association.json {
            return Err("--json would be mixed with the contents: name a local file".into());
        }
        let spool = Spool::new()?;
        let name = Spool::NAME.to_owned();
        let (root, known) = (spool.0.clone(), Some(FileAttributes::default()));
        let task = Task {
            way: Way::Get,
            remote: remote.clone(),
            root,
            name,
            shown: STANDARD.into(),
            known,
            argument: String::new(),
        };
        let mut report = Report::new(association);
        report.silence();
        let policy = self.transfer.policy(peer.kind);
        let report = transfers::run(&peer, None, vec![task], policy, None, 1, report).await;
        if report.failures.is_empty() {
            let mut file = File::open(spool.file()).map_err(local::at(&spool.file()))?;
            match io::copy(&mut file, &mut io::stdout().lock()) {
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                    return Err(format!("cannot write to standard output: {error}"));
                }
                _ => {}
            }
        }
        report.finish()
    }
}

impl Put {
    pub(super) async fn run(mut self) -> Result<ExitCode, String> {
        let association = &self.transfer.association;
        let peer = association.peer(&mut [&mut self.remote])?;
        let mut report = Report::new(association);
        let mut locals = Vec::new();
        for local in &self.locals {
            match local::expand(local) {
                Ok(found) => locals.extend(found),
                Err(failure) => report.failed(failure),
            }
        }
        let path = &self.remote.path;
        let is_into = path.is_empty() || path.ends_with('/') || locals.len() > 1 || self.locals.len() > 1;
        let mut link = None;
        let (mut tasks, mut spools) = (Vec::new(), Vec::new());
        for local in &locals {
            let remote = |name: &str| if is_into { self.remote.below(name) } else { self.remote.clone() };
            if local.as_os_str() == STANDARD {
                if is_into || self.transfer.resume {
                    return Err("standard input needs a remote file name, and cannot be resumed".into());
                }
                let (spool, task) = spooled(remote(""), Way::Put)?;
                spools.push(spool);
                tasks.push(task);
                continue;
            }
            let remote = remote(&file_name(local)?);
            if !local.is_dir() {
                tasks.push(task_of(local, remote, Way::Put)?);
                continue;
            }
            if !self.recursive {
                report.failed(format!("{}: is a directory; use --recursive to upload it", local.display()));
                continue;
            }
            let here = here()?;
            let link = link.get_or_insert_with(|| PersistentClient::new(&peer, &here));
            match upload_tree(link, local, &remote).await {
                Ok(found) => tasks.extend(found),
                Err(failure) => report.failed(failure),
            }
        }
        if let Some(link) = link {
            link.close().await;
        }
        let policy = self.transfer.policy(peer.kind);
        transfers::run(&peer, None, tasks, policy, None, self.parallel.jobs.into(), report).await.finish()
    }
}

impl Append {
    pub(super) async fn run(mut self) -> Result<ExitCode, String> {
        let association = &self.transfer.association;
        let peer = association.peer(&mut [&mut self.remote])?;
        let (_spool, task) = match self.local.as_os_str() == STANDARD {
            true => {
                let (spool, task) = spooled(self.remote.clone(), Way::Append)?;
                (Some(spool), task)
            }
            false => (None, task_of(&self.local, self.remote.clone(), Way::Append)?),
        };
        let (policy, report) = (self.transfer.policy(peer.kind), Report::new(association));
        transfers::run(&peer, None, vec![task], policy, None, 1, report).await.finish()
    }
}

fn task_of(local: &Path, remote: Remote, way: Way) -> Result<Task, String> {
    let shown = local.display().to_string();
    Ok(Task {
        way,
        remote,
        root: absolute(&parent(local))?,
        name: file_name(local)?,
        shown,
        known: None,
        argument: String::new(),
    })
}

/// Copies standard input to a file, because a transfer that is restarted reads it again.
fn spooled(remote: Remote, way: Way) -> Result<(Spool, Task), String> {
    let spool = Spool::new()?;
    let copied = File::create(spool.file()).and_then(|mut file| io::copy(&mut io::stdin().lock(), &mut file));
    copied.map_err(|error| format!("cannot copy standard input to {}: {error}", spool.file().display()))?;
    let (root, name) = (spool.0.clone(), Spool::NAME.to_owned());
    Ok((
        spool,
        Task { way, remote, root, name, shown: STANDARD.into(), known: None, argument: String::new() },
    ))
}

/// Creates the directories of a local tree at the peer, and returns the files to upload.
async fn upload_tree(
    link: &mut PersistentClient,
    local: &Path,
    remote: &Remote,
) -> Result<Vec<Task>, String> {
    let root = absolute(local)?;
    make_directory(link, remote).await?;
    let mut tasks = Vec::new();
    for file in local::tree(&root, &|_, _| true)?.0 {
        let remote = remote.below(&file.name);
        if file.is_directory {
            make_directory(link, &remote).await?;
            continue;
        }
        let shown = local.join(&file.name).display().to_string();
        tasks.push(Task {
            way: Way::Put,
            remote,
            root: root.clone(),
            name: file.name,
            shown,
            known: None,
            argument: String::new(),
        });
    }
    Ok(tasks)
}

/// Creates a remote directory unless it exists.
pub(super) async fn make_directory(link: &mut PersistentClient, remote: &Remote) -> Result<(), String> {
    let about = remote.to_string();
    // The creation fails if the directory already exists. The error is reported only if the directory does
    // not exist afterwards.
    let made = link.ask(Job::MakeDirectory { remote: remote.path.clone() }, &about).await;
    match made {
        Err(failure) if link.ask(Job::Stat { remote: remote.path.clone() }, &about).await.is_err() => {
            Err(failure)
        }
        _ => Ok(()),
    }
}

impl Ls {
    pub(super) async fn run(mut self) -> Result<ExitCode, String> {
        let peer = self.association.peer(&mut [&mut self.remote])?;
        let mut link = PersistentClient::new(&peer, &here()?);
        let mut report = Report::new(&self.association);
        let mut all = Vec::new();
        let mut waiting = vec![(self.remote.clone(), String::new(), 0)];
        let (mut retries, mut listed) = (self.retries, 0);
        if self.remote.pattern.is_some() {
            waiting.clear();
            let found = expand(&mut link, &self.remote, &self.descent, &mut retries).await?;
            let named = |file: RemoteFile| FileAttributes { name: file.remote.path, ..file.attributes };
            all = found.into_iter().map(named).collect();
            for entry in all.iter().rev().filter(|entry| entry.is_directory == Some(true)) {
                if self.descent.recursive {
                    let path = entry.name.clone();
                    waiting.push((self.remote.with_path(path.clone()), format!("{path}/"), 1));
                }
            }
            if !self.association.json {
                print(&list(String::new(), &all).to_string())?;
            }
        }
        while let Some((remote, prefix, depth)) = waiting.pop() {
            let found = match self.descent.check(&remote, depth, &mut listed) {
                Ok(()) => match entries(&mut link, &remote, &mut retries).await {
                    Err(failure) if depth == 0 => {
                        file_instead(&mut link, &remote, &mut retries, failure).await.map(|file| vec![file])
                    }
                    found => found,
                },
                Err(failure) => Err(failure),
            };
            let mut found = match found {
                Ok(found) => found,
                Err(failure) => {
                    report.failed(failure);
                    if listed > self.descent.directories_max {
                        break;
                    }
                    continue;
                }
            };
            found.sort_by(|one, other| one.name.cmp(&other.name));
            for entry in &mut found {
                entry.name = format!("{prefix}{}", last_component(&entry.name));
            }
            for entry in found.iter().rev() {
                if self.descent.recursive && entry.is_directory == Some(true) {
                    let below = remote.below(last_component(&entry.name));
                    waiting.push((below, format!("{}/", entry.name), depth + 1));
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
        report.timed(link.close().await);
        report.finish()
    }
}

impl Stat {
    pub(super) async fn run(mut self) -> Result<ExitCode, String> {
        let peer = self.association.peer(&mut [&mut self.remote])?;
        let mut link = PersistentClient::new(&peer, &here()?);
        let mut report = Report::new(&self.association);
        match stat(&mut link, &self.remote, &mut self.retries).await {
            Ok(attributes) => report.attributes = Some(attributes),
            Err(failure) => report.failed(failure),
        }
        report.timed(link.close().await);
        report.finish()
    }
}

impl Mkdir {
    pub(super) async fn make_directory(self) -> Result<ExitCode, String> {
        let job = Job::MakeDirectory { remote: self.remote.path.trim_end_matches('/').to_owned() };
        plain(&self.association, "mkdir", vec![(job, self.remote)], None).await
    }
}

impl Rm {
    pub(super) async fn remove(self) -> Result<ExitCode, String> {
        let job = |remote: Remote| (Job::Remove { remote: remote.path.clone() }, remote);
        let descent = self.descent.recursive.then_some(&self.descent);
        plain(&self.association, "rm", self.remotes.into_iter().map(job).collect(), descent).await
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
        plain(&self.association, "mv", vec![(job, self.remote)], None).await
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
        plain(&self.association, "chattr", vec![(job, self.remote)], None).await
    }
}

/// Runs jobs that return no result, using one association per user and host. For `rm`, wildcards are
/// expanded, and with `descent`, directories are removed with what is below them.
async fn plain(
    association: &Association,
    verb: &'static str,
    jobs: Vec<(Job, Remote)>,
    descent: Option<&Descent>,
) -> Result<ExitCode, String> {
    let mut report = Report::new(association);
    let mut link: Option<(Remote, PersistentClient)> = None;
    for (job, mut remote) in jobs {
        let given = remote.with_path(String::new());
        let mut used = match link.take() {
            Some((at, link)) if at == given => link,
            other => {
                if let Some((_, link)) = other {
                    report.timed(link.close().await);
                }
                PersistentClient::new(&association.peer(&mut [&mut remote])?, &here()?)
            }
        };
        let jobs = if verb == "rm" && remote.pattern.is_some() {
            let found = expand(&mut used, &remote, &Descent::default(), &mut 0).await;
            let found = found.unwrap_or_else(|failure| {
                report.failed(failure);
                Vec::new()
            });
            let job = |remote: Remote| (Job::Remove { remote: remote.path.clone() }, remote);
            found.into_iter().map(|file| job(file.remote)).collect()
        } else {
            vec![(job, remote)]
        };
        let mut all = Vec::new();
        for (job, remote) in jobs {
            if let Some(descent) = descent
                && stat(&mut used, &remote, &mut 0).await.is_ok_and(|told| told.is_directory == Some(true))
            {
                // A directory stands before its contents.
                let (below, failures) = tree(&mut used, &remote, descent, &mut 0, &|_, _| true).await;
                if !failures.is_empty() {
                    failures.into_iter().for_each(|failure| report.failed(failure));
                    continue;
                }
                let job = |file: RemoteFile| (Job::Remove { remote: file.remote.path.clone() }, file.remote);
                all.extend(below.into_iter().rev().map(job));
            }
            all.push((job, remote));
        }
        for (job, remote) in all {
            match used.ask(job, &remote.to_string()).await {
                Ok(_) => report.acted(verb, remote.to_string(), false),
                Err(failure) => report.failed(failure),
            }
        }
        link = Some((given, used));
    }
    let (_, link) = link.ok_or("nothing to do")?;
    report.timed(link.close().await);
    report.finish()
}

/// Returns the directory of an association that uses no local files.
fn here() -> Result<PathBuf, String> {
    absolute(Path::new("."))
}
