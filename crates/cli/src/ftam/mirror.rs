//! `kiban ftam mirror`: makes a directory the same as another one, in either direction.
//!
//! Plan              both trees are listed, and a file is transferred if the target lacks it, if the source
//!                   is newer, or if the sizes of binary files differ. Dates have a resolution of one second.
//! Dates             a fetched file gets the date of its source. A file that was put has the date of its
//!                   arrival, because FTAM cannot set it, and so is newer than its source.
//! Deletion          happens after the transfers, and only if all of the source could be listed and no
//!                   transfer has failed. Files that the filter leaves out are not deleted.
//! Not implemented   symbolic links, empty remote directories of peers that list no directories, and renames.

use super::address::Remote;
use super::arguments::{DIRECTORIES_MAX, Descent, Parallel, Transfer};
use super::glob::Filter;
use super::jobs::make_directory;
use super::kinds::Kind;
use super::link::PersistentClient;
use super::listing::{RemoteFile, entries, tree};
use super::local::{self, LocalFile, absolute, create_directories};
use super::report::Report;
use super::task::{IfExists, Task, Way};
use super::transfers::{self, root_of};
use clap::Args;
use kiban_osi::ftam::initiator::Job;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Args)]
pub(super) struct Mirror {
    #[command(flatten)]
    transfer: Transfer,
    #[command(flatten)]
    parallel: Parallel,
    /// Maximum number of remote directories to list, because a peer's tree may be endless.
    #[arg(long, value_name = "NUMBER", default_value_t = DIRECTORIES_MAX)]
    directories_max: usize,
    /// Delete files in the target that the source does not have.
    #[arg(long)]
    delete: bool,
    /// Print what would be done, and do nothing.
    #[arg(long)]
    dry_run: bool,
    /// Transfer only files that match; a pattern with a slash is compared with the path below SOURCE.
    #[arg(long, value_name = "PATTERN")]
    include: Vec<String>,
    /// Leave out files and directories that match.
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// Source: a remote or a local directory.
    #[arg(value_name = "SOURCE")]
    source: String,
    /// Target: a local or a remote directory.
    #[arg(value_name = "TARGET")]
    target: String,
}

/// A file or directory of either side, as far as it matters for the comparison.
struct Side {
    is_directory: bool,
    bytes: Option<u64>,
    modified: Option<i64>,
    /// Whether the peer stores the bytes as they are.
    is_binary: bool,
}

/// Files and directories by their paths. Since `/` sorts before most letters, a directory stands before its
/// contents.
type Tree = BTreeMap<String, Side>;

fn remote_tree(files: Vec<RemoteFile>) -> Tree {
    let side = |file: RemoteFile| {
        let attributes = &file.attributes;
        let side = Side {
            is_directory: attributes.is_directory == Some(true),
            bytes: attributes.bytes.and_then(|bytes| u64::try_from(bytes).ok()),
            modified: attributes.modified_at.map(|date| date.0),
            is_binary: attributes.is_binary(),
        };
        (file.name, side)
    };
    files.into_iter().map(side).collect()
}

fn local_tree(files: Vec<LocalFile>) -> Tree {
    let side = |file: LocalFile| {
        let (bytes, modified) = (Some(file.bytes), Some(file.modified));
        (file.name, Side { is_directory: file.is_directory, bytes, modified, is_binary: true })
    };
    files.into_iter().map(side).collect()
}

/// What has to be done so that the target becomes the same as the source.
#[derive(Default, PartialEq, Eq, Debug)]
struct Plan {
    /// Directories to create, each before those below it.
    directories: Vec<String>,
    files: Vec<String>,
    /// Files and directories to delete, each directory after its contents.
    deletions: Vec<String>,
    failures: Vec<String>,
}

fn plan(source: &Tree, target: &Tree, compares_sizes: bool) -> Plan {
    let mut plan = Plan::default();
    for (name, file) in source {
        match target.get(name) {
            None if file.is_directory => plan.directories.push(name.clone()),
            None => plan.files.push(name.clone()),
            Some(there) if there.is_directory != file.is_directory => {
                plan.failures.push(format!("{name}: a file on one side, a directory on the other"));
            }
            Some(_) if file.is_directory => {}
            Some(there) => {
                let is_newer = file.modified.zip(there.modified).is_some_and(|(here, there)| here > there);
                let sizes = file.bytes.zip(there.bytes);
                let compares = compares_sizes && file.is_binary && there.is_binary;
                let is_other = compares && sizes.is_some_and(|(here, there)| here != there);
                // Without a size and a date, nothing says that the file is the same.
                let is_unknown = sizes.is_none() && file.modified.zip(there.modified).is_none();
                if is_newer || is_other || is_unknown {
                    plan.files.push(name.clone());
                }
            }
        }
    }
    plan.deletions = target.keys().rev().filter(|name| !source.contains_key(*name)).cloned().collect();
    plan
}

impl Mirror {
    pub(super) async fn run(mut self) -> Result<ExitCode, String> {
        let filter =
            Filter { include: std::mem::take(&mut self.include), exclude: std::mem::take(&mut self.exclude) };
        match (Remote::is_meant_by(&self.source), Remote::is_meant_by(&self.target)) {
            (true, false) => {
                let (remote, local) = (self.source.parse()?, PathBuf::from(&self.target));
                self.mirror(Way::Get, remote, local, filter).await
            }
            (false, true) => {
                let (remote, local) = (self.target.parse()?, PathBuf::from(&self.source));
                self.mirror(Way::Put, remote, local, filter).await
            }
            _ => Err("one of SOURCE and TARGET must be remote: ftam://user@host/path or NAME:path".into()),
        }
    }

    pub(super) fn is_parallel(&self) -> bool {
        self.parallel.jobs > 1
    }

    async fn mirror(
        &self,
        way: Way,
        mut remote: Remote,
        local: PathBuf,
        filter: Filter,
    ) -> Result<ExitCode, String> {
        let association = &self.transfer.association;
        let peer = association.peer(&mut [&mut remote])?;
        if remote.pattern.is_some() {
            return Err(format!("{remote}: name a directory, and use --include for patterns"));
        }
        let root = match way {
            Way::Get if !self.dry_run => root_of(&local)?,
            _ => absolute(&local)?,
        };
        if way == Way::Put && !root.is_dir() {
            return Err(format!("{}: not a directory", local.display()));
        }
        let mut report = Report::new(association);
        // With --dry-run, the local directory may be missing; no file is opened there.
        let mut link = PersistentClient::new(&peer, if root.is_dir() { &root } else { Path::new(".") });
        let wanted = |name: &str, is_directory| filter.has(name, is_directory);
        let descent = Descent { recursive: true, directories_max: self.directories_max };
        let retries = &mut self.transfer.retries.clone();
        // The home directory exists, and has no name.
        if way == Way::Put && !self.dry_run && !remote.path.trim_matches('/').is_empty() {
            make_directory(&mut link, &remote).await?;
        }
        let (there, failures) = tree(&mut link, &remote, &descent, retries, &wanted).await;
        let is_complete = failures.is_empty();
        // A target that is not there yet is empty.
        if !(way == Way::Put && self.dry_run) {
            failures.into_iter().for_each(|failure| report.failed(failure));
        }
        let there = remote_tree(there);
        let (here, others) = if root.is_dir() { local::tree(&root, &wanted)? } else { Default::default() };
        let here = local_tree(here);
        let kind = self.transfer.kind.or(peer.kind);
        let compares_sizes = kind.is_none_or(|kind| kind == Kind::Binary);
        let (source, target) = if way == Way::Get { (&there, &here) } else { (&here, &there) };
        let mut plan = plan(source, target, compares_sizes);
        report.failures.append(&mut plan.failures);
        if !self.delete || !is_complete {
            plan.deletions.clear();
        }
        if way == Way::Put {
            // The source has these names, although they cannot be transferred.
            plan.deletions.retain(|name| !others.iter().any(|other| Path::new(name).starts_with(other)));
        }
        let shown = |name: &str| match way {
            Way::Get => local.join(name).display().to_string(),
            _ => remote.below(name).to_string(),
        };
        if self.dry_run {
            let acts = [("mkdir", &plan.directories), (verb(way), &plan.files), ("rm", &plan.deletions)];
            for (verb, names) in acts {
                names.iter().for_each(|name| report.acted(verb, shown(name), true));
            }
            link.close().await;
            return report.finish();
        }
        for name in &plan.directories {
            let made = match way {
                Way::Get => create_directories(&root.join(name)),
                _ => make_directory(&mut link, &remote.below(name)).await,
            };
            match made {
                Ok(()) => report.acted("mkdir", shown(name), false),
                Err(failure) => report.failed(failure),
            }
        }
        let task = |name: &String| Task {
            way,
            remote: remote.below(name),
            root: root.clone(),
            name: name.clone(),
            shown: local.join(name).display().to_string(),
            // The dates are known from the listing.
            known: there.get(name).filter(|_| way == Way::Get).map(|file| known(file.modified)),
            argument: String::new(),
        };
        let tasks: Vec<Task> = plan.files.iter().map(task).collect();
        let mut policy = self.transfer.policy(peer.kind);
        policy.if_exists = IfExists::Overwrite;
        let jobs = self.parallel.jobs.into();
        let mut report = transfers::run(&peer, Some(link), tasks, policy, None, jobs, report).await;
        if !plan.deletions.is_empty() && !report.failures.is_empty() {
            report.failed("nothing was deleted, because of these failures".into());
            plan.deletions.clear();
        }
        let mut link = PersistentClient::new(&peer, &root);
        for name in &plan.deletions {
            let is_directory = target.get(name).is_some_and(|file| file.is_directory);
            let removed = match way {
                Way::Get => {
                    let path = root.join(name);
                    let remove = if is_directory { std::fs::remove_dir } else { std::fs::remove_file };
                    remove(&path).map_err(local::at(&path))
                }
                _ => {
                    let remote = remote.below(name);
                    let job = Job::Remove { remote: remote.path.clone() };
                    link.ask(job, &remote.to_string()).await.map(drop)
                }
            };
            match removed {
                Ok(()) => report.acted("rm", shown(name), true),
                Err(failure) => {
                    // A directory may hold files that the filter leaves out.
                    let holds_files = is_directory
                        && match way {
                            Way::Get => {
                                root.join(name).read_dir().is_ok_and(|mut entries| entries.next().is_some())
                            }
                            _ => entries(&mut link, &remote.below(name), retries)
                                .await
                                .is_ok_and(|all| !all.is_empty()),
                        };
                    if !holds_files {
                        report.failed(failure);
                    }
                }
            }
        }
        link.close().await;
        report.finish()
    }
}

fn known(modified: Option<i64>) -> super::attributes::FileAttributes {
    let modified_at = modified.map(kiban_osi::ftam::filestore::Date);
    super::attributes::FileAttributes { modified_at, ..Default::default() }
}

fn verb(way: Way) -> &'static str {
    if way == Way::Get { "get" } else { "put" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, Option<u64>, Option<i64>)]) -> Tree {
        let side = |(name, bytes, modified): &(&str, Option<u64>, Option<i64>)| {
            let is_directory = name.ends_with('/');
            let side = Side { is_directory, bytes: *bytes, modified: *modified, is_binary: true };
            (name.trim_end_matches('/').to_owned(), side)
        };
        files.iter().map(side).collect()
    }

    #[test]
    fn missing_newer_and_other_files_are_transferred() {
        let source = tree(&[
            ("d/", None, None),
            ("d/missing", Some(1), Some(5)),
            ("newer", Some(1), Some(5)),
            ("older", Some(1), Some(5)),
            ("other", Some(2), Some(5)),
            ("same", Some(1), Some(5)),
            ("undated", Some(1), None),
            ("unknown", None, None),
            ("both", Some(1), Some(1)),
        ]);
        let target = tree(&[
            ("newer", Some(1), Some(4)),
            ("older", Some(1), Some(6)),
            ("other", Some(1), Some(6)),
            ("same", Some(1), Some(5)),
            ("undated", Some(1), Some(9)),
            ("unknown", Some(1), Some(9)),
            ("both/", None, None),
            ("old/", None, None),
            ("old/file", Some(1), Some(1)),
        ]);
        let found = plan(&source, &target, true);
        assert_eq!(found.directories, ["d"]);
        assert_eq!(found.files, ["d/missing", "newer", "other", "unknown"]);
        assert_eq!(found.deletions, ["old/file", "old"]);
        assert_eq!(found.failures.len(), 1, "{:?}", found.failures);
        assert_eq!(plan(&source, &target, false).files, ["d/missing", "newer", "unknown"]);
    }
}
