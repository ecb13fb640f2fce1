//! Remote directories: listing them, walking through trees, and expanding patterns.

use super::address::Remote;
use super::arguments::Descent;
use super::attributes::FileAttributes;
use super::glob::{is_pattern, matches, plain};
use super::kinds::DEPTH_MAX;
use super::link::PersistentClient;
use kiban_os::text::printable;
use kiban_osi::ftam::filestore::Path as Name;
use kiban_osi::ftam::initiator::{Job, Outcome};

/// A remote file or directory.
#[derive(Clone)]
pub(super) struct RemoteFile {
    pub(super) remote: Remote,
    /// The path below the root of the tree that was walked, with `/` between its components.
    pub(super) name: String,
    pub(super) attributes: FileAttributes,
}

impl Descent {
    /// Checks that another directory may be listed, and counts it.
    pub(super) fn check(&self, remote: &Remote, depth: usize, listed: &mut usize) -> Result<(), String> {
        *listed += 1;
        if *listed > self.directories_max {
            let most = self.directories_max;
            return Err(format!(
                "{remote}: more than {most} directories; name fewer, or raise --directories-max"
            ));
        }
        match depth {
            0..DEPTH_MAX => Ok(()),
            _ => Err(format!("{remote}: more than {DEPTH_MAX} nested directories")),
        }
    }
}

pub(super) fn last_component(name: &str) -> &str {
    // Some peers mark directories with a slash at the end.
    name.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
}

/// Lists a directory.
pub(super) async fn entries(
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

/// Returns the attributes of a file that was named in place of a directory.
///
/// # Errors
/// It is no file; then the error is `failure`, that of listing it.
pub(super) async fn file_instead(
    link: &mut PersistentClient,
    remote: &Remote,
    retries: &mut u32,
    failure: String,
) -> Result<FileAttributes, String> {
    if remote.path.is_empty() || remote.path.ends_with('/') {
        return Err(failure);
    }
    match stat(link, remote, retries).await {
        Ok(told) if told.is_directory == Some(false) => {
            Ok(FileAttributes { name: remote.name().to_owned(), ..told })
        }
        _ => Err(failure),
    }
}

/// Reads the attributes of a file.
pub(super) async fn stat(
    link: &mut PersistentClient,
    remote: &Remote,
    retries: &mut u32,
) -> Result<FileAttributes, String> {
    let job = Job::Stat { remote: remote.path.clone() };
    match link.run_with_retry(job, &remote.to_string(), retries).await? {
        Outcome::Attributes(attributes) => Ok(FileAttributes::of(&attributes)),
        _ => Err(format!("{remote}: the responder returned no attributes")),
    }
}

/// Returns the files and directories below a directory, in sorted order, and failures to list some of them.
/// Each directory stands before its contents. Names that would lead out of a local directory are failures.
pub(super) async fn tree(
    link: &mut PersistentClient,
    root: &Remote,
    descent: &Descent,
    retries: &mut u32,
    is_wanted: &(dyn Fn(&str, bool) -> bool + Sync),
) -> (Vec<RemoteFile>, Vec<String>) {
    let (mut all, mut failures, mut listed) = (Vec::new(), Vec::new(), 0);
    let mut waiting = vec![(root.clone(), String::new(), 0)];
    while let Some((remote, name, depth)) = waiting.pop() {
        let checked = descent.check(&remote, depth, &mut listed);
        let found = match checked {
            Ok(()) => entries(link, &remote, retries).await,
            Err(failure) => Err(failure),
        };
        let found = match found {
            Ok(found) => found,
            Err(failure) => {
                failures.push(failure);
                if listed > descent.directories_max {
                    break;
                }
                continue;
            }
        };
        for attributes in found {
            let last = last_component(&attributes.name);
            let above = if name.is_empty() { Ok(Name::root()) } else { Name::read(&name) };
            let inside = match above.and_then(|above| above.join(last)) {
                Ok(inside) => inside.as_str().to_owned(),
                Err(wrong) => {
                    failures.push(format!("{remote}: {}: {wrong}", printable(last)));
                    continue;
                }
            };
            let (is_directory, below) = (attributes.is_directory == Some(true), remote.below(last));
            if !is_wanted(&inside, is_directory) {
                continue;
            }
            if is_directory {
                waiting.push((below.clone(), inside.clone(), depth + 1));
            }
            all.push(RemoteFile { remote: below, name: inside, attributes });
        }
    }
    all.sort_by(|one, other| one.name.split('/').cmp(other.name.split('/')));
    (all, failures)
}

/// Like [`matching`], for a name that must match something.
///
/// # Errors
/// A directory cannot be listed, or nothing matches.
pub(super) async fn expand(
    link: &mut PersistentClient,
    remote: &Remote,
    descent: &Descent,
    retries: &mut u32,
) -> Result<Vec<RemoteFile>, String> {
    let files = matching(link, remote, descent, retries).await?;
    if files.is_empty() { Err(format!("{remote}: no file matches")) } else { Ok(files) }
}

/// Returns the files and directories that a name with wildcards matches, in sorted order.
///
/// # Errors
/// A directory cannot be listed.
pub(super) async fn matching(
    link: &mut PersistentClient,
    remote: &Remote,
    descent: &Descent,
    retries: &mut u32,
) -> Result<Vec<RemoteFile>, String> {
    let mut listed = 0;
    let pattern = remote.pattern.as_deref().unwrap_or_default();
    let parts: Vec<&str> = pattern.split('/').filter(|part| !part.is_empty()).collect();
    let root = if pattern.starts_with('/') { "/" } else { "" };
    let mut found = vec![remote.with_path(root.into())];
    let mut files = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        let is_last = at + 1 == parts.len();
        if !is_pattern(part) && !is_last {
            found = found.iter().map(|directory| directory.below(&plain(part))).collect();
            continue;
        }
        let mut next = Vec::new();
        for directory in &found {
            descent.check(directory, at, &mut listed)?;
            for attributes in entries(link, directory, retries).await? {
                let name = last_component(&attributes.name).to_owned();
                if !matches(part, &name) {
                    continue;
                }
                if is_last {
                    files.push(RemoteFile { remote: directory.below(&name), name, attributes });
                } else if attributes.is_directory == Some(true) {
                    next.push(directory.below(&name));
                }
            }
        }
        found = next;
    }
    files.sort_by(|one, other| one.remote.path.cmp(&other.remote.path));
    Ok(files)
}
