//! The journal of `kiban ftam collect`: files that were fetched but not yet deleted at the peer.
//!
//! Format   one JSON object per line: a file was fetched, or it was deleted. A line is on the disk before the
//!          next step of the collection. The last line may be incomplete after a crash, and is then ignored.
//! Size     when a collection begins, and in a later round once the file has more than [`DEAD_LINES_MAX`]
//!          lines about deleted files, the journal is replaced by one with only the files not yet deleted.
//! Lock     one collection at a time uses a directory; the kernel releases the lock when the process ends.

use super::local::{STATE, at, create_directories, parent, sync_directory};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Maximum number of lines about deleted files when a round begins.
const DEAD_LINES_MAX: usize = 1000;

/// A file that was fetched.
#[derive(Clone, Serialize, Deserialize, PartialEq, Eq, Debug)]
pub(super) struct Fetched {
    /// The remote name, for the reader of the journal.
    pub(super) remote: String,
    /// The name in the local directory.
    pub(super) to: String,
    /// The argument of the command that found the file.
    #[serde(default)]
    pub(super) argument: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Line {
    Fetched {
        version: String,
        #[serde(flatten)]
        file: Fetched,
    },
    Deleted {
        version: String,
    },
}

pub(super) struct Journal {
    path: PathBuf,
    file: File,
    /// The length of the complete lines; a failed write may have left a part of a line after them.
    bytes: u64,
    lines: usize,
    /// Files that were fetched and are not known to be deleted at the peer, by the names of their versions.
    files: BTreeMap<String, Fetched>,
    _lock: File,
}

impl Journal {
    /// Opens the journal of a local directory, and creates it if necessary.
    ///
    /// # Errors
    /// Another collection uses the directory, or the journal is damaged.
    pub(super) fn open(directory: &Path) -> Result<Journal, String> {
        let state = directory.join(STATE);
        create_directories(&state)?;
        let locked = state.join("lock");
        let lock =
            File::options().create(true).truncate(false).write(true).open(&locked).map_err(at(&locked))?;
        lock.try_lock().map_err(|error| match error {
            fs::TryLockError::WouldBlock => {
                format!("{}: another collect is running for this directory", directory.display())
            }
            fs::TryLockError::Error(error) => format!("{}: {error}", locked.display()),
        })?;
        let path = state.join("journal");
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            text => text.map_err(at(&path))?,
        };
        let files = parse(&text).map_err(|line| {
            let path = path.display();
            format!("{path}:{line}: damaged; files that were fetched may be fetched again if you remove it")
        })?;
        let (file, bytes) = replace(&path, &files)?;
        Ok(Journal { path, file, bytes, lines: files.len(), files, _lock: lock })
    }

    /// Removes the lines about deleted files if there are many.
    pub(super) fn compact(&mut self) -> Result<(), String> {
        if self.lines - self.files.len() > DEAD_LINES_MAX {
            (self.file, self.bytes) = replace(&self.path, &self.files)?;
            self.lines = self.files.len();
        }
        Ok(())
    }

    /// Returns the files that were fetched and are not known to be deleted.
    pub(super) fn fetched(&self) -> Vec<(String, Fetched)> {
        self.files.iter().map(|(version, file)| (version.clone(), file.clone())).collect()
    }

    pub(super) fn get(&self, version: &str) -> Option<Fetched> {
        self.files.get(version).cloned()
    }

    pub(super) fn has(&self, version: &str) -> bool {
        self.files.contains_key(version)
    }

    /// Records that a file was fetched.
    pub(super) fn fetched_now(&mut self, version: &str, file: Fetched) -> Result<(), String> {
        self.add(&Line::Fetched { version: version.into(), file: file.clone() })?;
        self.files.insert(version.into(), file);
        Ok(())
    }

    /// Records that a fetched file was deleted at the peer.
    pub(super) fn deleted(&mut self, version: &str) -> Result<(), String> {
        self.add(&Line::Deleted { version: version.into() })?;
        self.files.remove(version);
        Ok(())
    }

    fn add(&mut self, line: &Line) -> Result<(), String> {
        // A line that follows a part of another one would be damaged.
        let end = self.file.set_len(self.bytes).and_then(|()| self.file.seek(SeekFrom::Start(self.bytes)));
        let written = end.and_then(|_| write(&mut self.file, line));
        self.bytes += written
            .and_then(|bytes| self.file.sync_data().map(|()| bytes))
            .inspect_err(|_| drop(self.file.set_len(self.bytes)))
            .map_err(at(&self.path))?;
        self.lines += 1;
        Ok(())
    }
}

/// Writes a line, and returns its length.
fn write(file: &mut File, line: &Line) -> std::io::Result<u64> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    file.write_all(&text)?;
    Ok(text.len() as u64)
}

/// Replaces the journal by one with these files, and returns it and its length.
fn replace(path: &Path, files: &BTreeMap<String, Fetched>) -> Result<(File, u64), String> {
    let new = path.with_extension("new");
    let mut file = File::create(&new).map_err(at(&new))?;
    let mut bytes = 0;
    for (version, fetched) in files {
        let line = Line::Fetched { version: version.clone(), file: fetched.clone() };
        bytes += write(&mut file, &line).map_err(at(&new))?;
    }
    let replaced = file.sync_all().and_then(|()| fs::rename(&new, path));
    replaced.and_then(|()| sync_directory(&parent(path))).map_err(at(path))?;
    Ok((file, bytes))
}

/// Returns the files that were fetched and not deleted; an error is the number of a damaged line.
fn parse(text: &str) -> Result<BTreeMap<String, Fetched>, usize> {
    let mut files = BTreeMap::new();
    for (at, line) in text.split_inclusive('\n').enumerate() {
        // The write of the last line was interrupted, so nothing depends on it.
        let Some(line) = line.strip_suffix('\n') else { break };
        match serde_json::from_str(line).map_err(|_| at + 1)? {
            Line::Fetched { version, file } => drop(files.insert(version, file)),
            Line::Deleted { version } => drop(files.remove(&version)),
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::super::local::Spool;
    use super::*;

    fn file(name: &str) -> Fetched {
        Fetched { remote: format!("exchange:{name}"), to: name.into(), argument: "exchange:".into() }
    }

    #[test]
    fn a_line_after_a_failed_write_is_not_damaged() {
        let spool = Spool::new().expect("a directory");
        let mut journal = Journal::open(&spool.0).expect("new");
        journal.fetched_now("1", file("a")).expect("written");
        // As a full disk leaves it.
        journal
            .file
            .write_all(b"{\"fetched\":{\"version\":\"this is longer than the next line")
            .expect("written");
        journal.deleted("1").expect("written");
        journal.fetched_now("2", file("b")).expect("written");
        drop(journal);
        let journal = Journal::open(&spool.0).expect("valid");
        assert_eq!(journal.fetched(), [("2".to_owned(), file("b"))]);
    }

    #[test]
    fn many_dead_lines_are_removed_in_a_later_round() {
        let spool = Spool::new().expect("a directory");
        let mut journal = Journal::open(&spool.0).expect("new");
        journal.fetched_now("1", file("a")).expect("written");
        journal.fetched_now("2", file("b")).expect("written");
        journal.deleted("1").expect("written");
        let lines =
            || fs::read_to_string(spool.0.join(STATE).join("journal")).expect("there").lines().count();
        journal.compact().expect("nothing to do");
        assert_eq!(lines(), 3);
        journal.lines += DEAD_LINES_MAX;
        journal.compact().expect("replaced");
        assert_eq!(lines(), 1);
        journal.fetched_now("3", file("c")).expect("written");
        assert_eq!(lines(), 2);
        drop(journal);
        assert_eq!(Journal::open(&spool.0).expect("valid").fetched().len(), 2);
    }

    #[test]
    fn a_journal_keeps_files_until_they_are_deleted() {
        let spool = Spool::new().expect("a directory");
        let mut journal = Journal::open(&spool.0).expect("new");
        assert!(Journal::open(&spool.0).err().is_some_and(|error| error.contains("another collect")));
        journal.fetched_now("1", file("a")).expect("written");
        journal.fetched_now("2", file("b")).expect("written");
        journal.deleted("1").expect("written");
        drop(journal);
        let mut journal = Journal::open(&spool.0).expect("there");
        assert_eq!(journal.fetched(), [("2".to_owned(), file("b"))]);
        journal.fetched_now("3", file("c")).expect("written");
        drop(journal);
        // A crash in the middle of a write leaves a part of a line.
        let path = spool.0.join(STATE).join("journal");
        let text = fs::read_to_string(&path).expect("there");
        for cut in 0..text.len() {
            let parsed = parse(&text[..cut]).unwrap_or_else(|line| panic!("line {line} of {cut} bytes"));
            assert_eq!(parsed.len(), text[..cut].matches('\n').count());
        }
        fs::write(&path, format!("x\n{text}")).expect("written");
        assert!(Journal::open(&spool.0).err().is_some_and(|error| error.contains("journal:1: damaged")));
    }
}
