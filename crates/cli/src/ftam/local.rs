//! Local files: paths, trees, patterns, and directories that are safe on the disk.

use super::glob::{is_pattern, matches, plain};
use super::kinds::DEPTH_MAX;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

/// The directory in which `collect` keeps its journal, fetched files and interrupted transfers.
pub(super) const STATE: &str = ".kiban-collect";

/// Returns the error of a call, with the path before it.
pub(super) fn at(path: &Path) -> impl Fn(io::Error) -> String {
    move |error| format!("{}: {error}", path.display())
}

pub(super) fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.into(),
        _ => ".".into(),
    }
}

pub(super) fn absolute(path: &Path) -> Result<PathBuf, String> {
    path.canonicalize().or_else(|_| std::path::absolute(path)).map_err(at(path))
}

pub(super) fn file_name(path: &Path) -> Result<String, String> {
    let name = path.file_name().and_then(|name| name.to_str());
    name.map(String::from)
        .ok_or_else(|| format!("{} does not end in a file name, or the name is not UTF-8", path.display()))
}

/// Creates a directory and those above it. What has been created is on the disk afterwards.
pub(super) fn create_directories(path: &Path) -> Result<(), String> {
    if path.is_dir() {
        return Ok(());
    }
    let above = parent(path);
    create_directories(&above)?;
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made.and_then(|()| sync_directory(&above)).map_err(at(path)),
    }
}

/// Waits until the entries of a directory are on the disk.
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    match File::open(path)?.sync_all() {
        // Some file systems cannot sync a directory.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        synced => synced,
    }
}

/// A file or directory of a local tree.
pub(super) struct LocalFile {
    /// The path below the tree's root, with `/` between its components.
    pub(super) name: String,
    pub(super) is_directory: bool,
    pub(super) bytes: u64,
    /// Seconds since 1970.
    pub(super) modified: i64,
}

/// Returns the files and directories below `root`, in sorted order; each directory stands before its
/// contents. The state of collections and of interrupted transfers is left out, and so are symbolic links and
/// special files, whose names are returned as well.
pub(super) fn tree(
    root: &Path,
    is_wanted: &dyn Fn(&str, bool) -> bool,
) -> Result<(Vec<LocalFile>, Vec<String>), String> {
    let (mut all, mut others) = (Vec::new(), Vec::new());
    let mut waiting = vec![(String::new(), 0)];
    while let Some((name, depth)) = waiting.pop() {
        let here = root.join(&name);
        if depth == DEPTH_MAX {
            return Err(format!("{}: more than {DEPTH_MAX} nested directories", here.display()));
        }
        for entry in fs::read_dir(&here).map_err(at(&here))? {
            let entry = entry.map_err(at(&here))?;
            let path = entry.path();
            let last = file_name(&path)?;
            if last == kiban_osi::ftam::filestore::RESERVED || last == STATE {
                continue;
            }
            let found = entry.metadata().map_err(at(&path))?;
            let name = if name.is_empty() { last } else { format!("{name}/{last}") };
            let is_directory = found.is_dir();
            if !(is_directory || found.is_file()) {
                others.push(name);
                continue;
            }
            if !is_wanted(&name, is_directory) {
                continue;
            }
            if is_directory {
                waiting.push((name.clone(), depth + 1));
            }
            all.push(LocalFile { name, is_directory, bytes: found.len(), modified: found.mtime() });
        }
    }
    all.sort_by(|one, other| one.name.split('/').cmp(other.name.split('/')));
    Ok((all, others))
}

/// Returns a file of kiban in a directory of the XDG Base Directory Specification; `None` without a home.
pub(super) fn xdg_file(variable: &str, in_home: &str, name: &str) -> Option<PathBuf> {
    let given = std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let above = given.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(in_home)));
    Some(above?.join("kiban").join(name))
}

/// Returns the paths that a pattern matches, in sorted order; a path without wildcards is returned as it is.
///
/// # Errors
/// Nothing matches.
pub(super) fn expand(pattern: &Path) -> Result<Vec<PathBuf>, String> {
    // The shell has already expanded patterns outside quotes, so an existing file may have such a name.
    let text = pattern.to_str().filter(|text| is_pattern(text));
    let Some(text) = text.filter(|_| pattern.symlink_metadata().is_err()) else {
        return Ok(vec![pattern.into()]);
    };
    let mut found = vec![PathBuf::new()];
    for component in Path::new(text).components() {
        let Component::Normal(part) = component else {
            found.iter_mut().for_each(|path| path.push(component));
            continue;
        };
        let part = part.to_str().expect("a part of text");
        if !is_pattern(part) {
            found.iter_mut().for_each(|path| path.push(plain(part)));
            continue;
        }
        let mut next = Vec::new();
        for path in found {
            let listed = if path.as_os_str().is_empty() { Path::new(".") } else { &path };
            // A path before it may be a file.
            let Ok(entries) = fs::read_dir(listed) else { continue };
            let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
            let mut names: Vec<String> = names.filter(|name| matches(part, name)).collect();
            names.sort();
            next.extend(names.into_iter().map(|name| path.join(name)));
        }
        found = next;
    }
    found.retain(|path| path.symlink_metadata().is_ok());
    if found.is_empty() { Err(format!("{text}: no file matches")) } else { Ok(found) }
}

/// A private directory for the contents of standard input or output, removed when it is dropped.
pub(super) struct Spool(pub(super) PathBuf);

impl Spool {
    pub(super) fn new() -> Result<Spool, String> {
        let key: [u8; 8] = kiban_os::random::bytes().map_err(|error| format!("no random bytes: {error}"))?;
        let path = std::env::temp_dir().join(format!("kiban-ftam-{:016x}", u64::from_ne_bytes(key)));
        fs::DirBuilder::new().mode(0o700).create(&path).map_err(at(&path))?;
        Ok(Spool(path.canonicalize().map_err(at(&path))?))
    }

    /// The file in the directory.
    pub(super) fn file(&self) -> PathBuf {
        self.0.join(Spool::NAME)
    }

    pub(super) const NAME: &str = "contents";
}

impl Drop for Spool {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Sets the time at which a file was last modified, in seconds since 1970.
pub(super) fn set_modified(path: &Path, seconds: i64) -> io::Result<()> {
    let since = std::time::Duration::from_secs(seconds.unsigned_abs());
    let time = match seconds {
        0.. => SystemTime::UNIX_EPOCH.checked_add(since),
        _ => SystemTime::UNIX_EPOCH.checked_sub(since),
    };
    File::open(path)?.set_modified(time.ok_or(io::ErrorKind::InvalidInput)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_expand_to_sorted_paths() {
        let spool = Spool::new().expect("a directory");
        let root = spool.0.clone();
        for name in ["b.cdr", "a.cdr", "x.txt", ".c.cdr"] {
            fs::write(root.join(name), name).expect("written");
        }
        fs::create_dir(root.join("sub")).expect("made");
        fs::write(root.join("sub/d.cdr"), "d").expect("written");
        let expand = |pattern: &str| expand(&root.join(pattern));
        assert_eq!(expand("*.cdr"), Ok(vec![root.join("a.cdr"), root.join("b.cdr")]));
        assert_eq!(expand("s*/*.cdr"), Ok(vec![root.join("sub/d.cdr")]));
        assert_eq!(expand("plain"), Ok(vec![root.join("plain")]));
        assert!(expand("*.none").is_err());
        fs::write(root.join("*.none"), "x").expect("written");
        assert_eq!(expand("*.none"), Ok(vec![root.join("*.none")]), "a file with that name");
    }

    #[test]
    fn a_tree_is_listed_without_links_and_state() {
        let spool = Spool::new().expect("a directory");
        let root = &spool.0;
        create_directories(&root.join("a/b")).expect("made");
        create_directories(&root.join(".kiban-ftam/new")).expect("made");
        create_directories(&root.join(STATE)).expect("made");
        for name in ["a/b/c", "a-", "z"] {
            fs::write(root.join(name), name).expect("written");
        }
        std::os::unix::fs::symlink("z", root.join("link")).expect("linked");
        let names = |wanted: &dyn Fn(&str, bool) -> bool| -> Vec<String> {
            tree(root, wanted).expect("listed").0.into_iter().map(|file| file.name).collect()
        };
        assert_eq!(names(&|_, _| true), ["a", "a/b", "a/b/c", "a-", "z"]);
        assert_eq!(names(&|name, _| name != "a"), ["a-", "z"]);
        assert_eq!(tree(root, &|_, _| true).expect("listed").1, ["link"]);
    }
}
