//! The journal of `kiban ftam collect`: which files were fetched and not yet deleted at the peer.
//!
//! Format   one JSON object per line: a file was fetched, or it was deleted. A line is on the disk before the
//!          next step of the collection. The last line may be incomplete after a crash, and is then void.
//! Size     when a collection begins, the journal is replaced by one with the files that are still of
//!          interest.
//! Lock     one collection at a time uses a directory; the kernel releases the lock when the process ends.

use super::local::{at, create_directories, sync_directory};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The directory below the local one that holds the journal, fetched files and interrupted transfers.
pub(super) const STATE: &str = ".kiban-collect";

/// A file that was fetched.
#[derive(Clone, Serialize, Deserialize, PartialEq, Eq, Debug)]
pub(super) struct Fetched {
    /// The remote name, for the reader of the journal.
    pub(super) remote: String,
    /// The name in the local directory.
    pub(super) to: String,
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
        let new = state.join("journal.new");
        let mut file = File::create(&new).map_err(at(&new))?;
        for (version, fetched) in &files {
            let line = Line::Fetched { version: version.clone(), file: fetched.clone() };
            write(&mut file, &line).map_err(at(&new))?;
        }
        let replaced = file.sync_all().and_then(|()| fs::rename(&new, &path));
        replaced.and_then(|()| sync_directory(&state)).map_err(at(&path))?;
        Ok(Journal { path, file, files, _lock: lock })
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
        write(&mut self.file, line).and_then(|()| self.file.sync_data()).map_err(at(&self.path))
    }
}

fn write(file: &mut File, line: &Line) -> std::io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    file.write_all(&text)
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
        Fetched { remote: format!("exchange:{name}"), to: name.into() }
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
