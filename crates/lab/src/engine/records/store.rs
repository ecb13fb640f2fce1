//! The files of a sweep: a folder per run, and a cache that runs may share.
//!
//! Run       `run.json` contains plan, version and shard. `records.jsonl` gets one line for each trial as
//!           soon as the trial ends. If the process is killed, all complete lines remain, and the next run
//!           continues from there.
//! Broken lines  a truncated, modified or foreign line is reported by its number and skipped; its trial is
//!           repeated.
//! Refused   a folder that belongs to another plan, version or shard, or to which another process is writing.
//! Cache     one file per record, named by its key and created by renaming, so that readers never see a
//!           partial record.
//! Locks     are advisory and may be missing on network file systems; two processes in one folder are then
//!           not detected.
//! Limits    a record survives the end of the process as soon as it is written, but it survives a power
//!           failure only after the run has ended. All keys of a run are held in memory.

use crate::engine::plan::{Members, Plan, Trial};
use crate::engine::question::Time;
use crate::engine::records::key::{VERSION, key};
use crate::engine::records::record::Record;
use crate::engine::records::store_error::StoreError;
use crate::engine::shard::Shard;
use kiban_os::lock;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// The format version of `run.json` and `records.jsonl`.
const FORMAT: u32 = 1;
const RUN: &str = "run.json";
const RECORDS: &str = "records.jsonl";
/// The number of bytes at the end of the file that [`latest`] searches for records.
const LATEST_BYTES: u64 = 256 << 10;

/// The description of a run, stored in `run.json`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Manifest {
    format: u32,
    /// The version of kiban that performs the run.
    pub version: String,
    /// Whether its trials run in virtual time, where results are exact.
    pub exact: bool,
    /// The part of the plan that the run covers.
    pub shard: Shard,
    /// The plan.
    pub plan: Plan,
}

impl Manifest {
    /// Describes a run by this version of kiban. Its trials run in virtual or real time, as `time` says.
    pub fn new(time: Time, plan: Plan, shard: Shard) -> Manifest {
        let exact = time == Time::Virtual;
        Manifest { format: FORMAT, version: VERSION.to_owned(), exact, shard, plan }
    }

    /// Reads the manifest of a folder.
    ///
    /// # Errors
    /// There is no manifest, or it has another format.
    pub fn read(dir: &Path) -> Result<Manifest, StoreError> {
        let path = dir.join(RUN);
        let text = fs::read(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound if dir.join(RECORDS).exists() => no_plan(dir),
            io::ErrorKind::NotFound => StoreError::Mismatch(format!(
                "{} is not the folder of a run (it has no {RUN}): create one with 'kiban lab run PLAN --out \
                 {}'",
                dir.display(),
                dir.display()
            )),
            _ => StoreError::Read(path.clone(), error),
        })?;
        let manifest: Manifest = serde_json::from_slice(&text).map_err(|error| {
            StoreError::Mismatch(format!("cannot parse {}: {error}; use another folder", path.display()))
        })?;
        if manifest.format != FORMAT {
            let format = manifest.format;
            return Err(StoreError::Mismatch(format!(
                "{} has format version {format}, but this kiban writes version {FORMAT}: use another folder",
                path.display()
            )));
        }
        Ok(manifest)
    }

    /// Returns the key of a trial of this run.
    pub fn key(&self, trial: &Trial) -> String {
        self.key_of(&trial.point, trial.seed, trial.repetition)
    }

    fn key_of(&self, point: &crate::engine::Point, seed: u64, repetition: u32) -> String {
        let repetition = (!self.exact).then_some(repetition);
        key(&self.plan.question, &self.version, point, seed, repetition)
    }

    /// Checks that a record belongs to this run and that its key matches its contents.
    fn validate_record(&self, members: &Members<'_>, record: &Record) -> Result<(), String> {
        if record.question != self.plan.question {
            return Err(format!("belongs to question {}", record.question));
        }
        if record.version != self.version {
            return Err(format!("made by kiban {}", record.version));
        }
        if record.key != self.key_of(&record.point, record.seed, record.repetition) {
            return Err("its key does not match its point".to_owned());
        }
        if !members.contains(&record.point, record.seed, record.repetition) {
            return Err("its point is not in the plan".to_owned());
        }
        Ok(())
    }

    /// Returns an error if `dir`, whose manifest is `self`, cannot be used for `wanted`.
    fn mismatch(&self, dir: &Path, wanted: &Manifest) -> Option<StoreError> {
        let dir = dir.display();
        let what = if self.version != wanted.version {
            format!(
                "{dir} was created by kiban {}, but this is kiban {}: continue with that version, or use \
                 another folder (--out)",
                self.version, wanted.version
            )
        } else if let Some(difference) = self.plan.difference(&wanted.plan) {
            let cache =
                if self.exact { "; with --cache, trials that both plans share are not repeated" } else { "" };
            format!("{dir} belongs to another plan: {difference} differs; use another folder (--out){cache}")
        } else if self.shard != wanted.shard {
            format!(
                "{dir} contains shard {}, not {}: use a separate folder for each shard (--out)",
                self.shard, wanted.shard
            )
        } else {
            return None;
        };
        Some(StoreError::Mismatch(what))
    }
}

/// Returns the error for records without a manifest.
fn no_plan(dir: &Path) -> StoreError {
    StoreError::Mismatch(format!(
        "{} has records but no {RUN}, like a sweep of an earlier version: measure again in another folder \
         (--out)",
        dir.display()
    ))
}

/// A line of the records file that was skipped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BrokenLine {
    /// The line number, starting at 1.
    pub line: usize,
    /// The reason.
    pub why: String,
}

/// Returns the length of a folder's records file in bytes; 0 if there is no file.
///
/// # Errors
/// The file's metadata cannot be read.
pub fn recorded_bytes(dir: &Path) -> Result<u64, StoreError> {
    let path = dir.join(RECORDS);
    match fs::metadata(&path) {
        Ok(metadata) => Ok(metadata.len()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(StoreError::Read(path, error)),
    }
}

/// Returns the last `count` records of a folder, newest first. Lines that are not records are skipped.
///
/// # Errors
/// The file cannot be read.
pub fn latest(dir: &Path, count: usize) -> Result<Vec<Record>, StoreError> {
    let path = dir.join(RECORDS);
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(&path)?;
        let from = file.metadata()?.len().saturating_sub(LATEST_BYTES);
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = match read() {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(StoreError::Read(path, error)),
    };
    let lines = bytes.rsplit(|byte| *byte == b'\n');
    Ok(lines.filter_map(|line| serde_json::from_slice(line).ok()).take(count).collect())
}

/// The maximum number of broken lines that are reported individually.
const BROKEN_NAMED_MAX: usize = 10;

/// The contents of a records file.
#[derive(Clone, Debug, Default)]
pub struct Records {
    /// Valid lines by key, without line ends.
    pub lines: HashMap<String, String>,
    /// Lines that were skipped.
    pub broken: Vec<BrokenLine>,
    /// Whether the last line is terminated.
    ended: bool,
}

impl Records {
    /// Reads the records of a folder and checks them against its manifest. A missing file means no records.
    ///
    /// # Errors
    /// The file cannot be read, or is not a regular file.
    pub fn read(dir: &Path, manifest: &Manifest) -> Result<Records, StoreError> {
        let path = dir.join(RECORDS);
        // Reading a device such as /dev/zero would never end.
        if path.metadata().is_ok_and(|its| !its.is_file()) {
            return Err(StoreError::Mismatch(format!("{} is not a regular file: remove it", path.display())));
        }
        match fs::read(&path) {
            Ok(bytes) => Ok(Records::of(&bytes, manifest)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Records::of(&[], manifest)),
            Err(error) => Err(StoreError::Read(path, error)),
        }
    }

    fn of(bytes: &[u8], manifest: &Manifest) -> Records {
        let mut records = Records { ended: bytes.is_empty() || bytes.ends_with(b"\n"), ..Records::default() };
        let members = manifest.plan.members();
        let lines = bytes.split(|byte| *byte == b'\n').enumerate().filter(|(_, line)| !line.is_empty());
        let mut unnamed = 0_u64;
        for (place, line) in lines {
            if let Err(why) = records.take(line, manifest, &members) {
                if records.broken.len() < BROKEN_NAMED_MAX {
                    records.broken.push(BrokenLine { line: place + 1, why });
                } else {
                    unnamed += 1;
                }
            }
        }
        if unnamed > 0
            && let Some(last) = records.broken.last_mut()
        {
            last.why += &format!("; {unnamed} more invalid lines follow");
        }
        records
    }

    fn take(&mut self, line: &[u8], manifest: &Manifest, members: &Members<'_>) -> Result<(), String> {
        let record: Record = serde_json::from_slice(line).map_err(|error| match error.is_eof() {
            true => "truncated".to_owned(),
            false => format!("not a record: {error}"),
        })?;
        manifest.validate_record(members, &record)?;
        match self.lines.entry(record.key.clone()) {
            Entry::Vacant(free) => {
                free.insert(String::from_utf8_lossy(line).into_owned());
                Ok(())
            }
            Entry::Occupied(taken) if taken.get().as_bytes() == line => Ok(()),
            Entry::Occupied(_) => Err("conflicts with an earlier record of the same trial".to_owned()),
        }
    }

    /// Returns the records in the order of the plan.
    pub fn in_order<'a>(&'a self, manifest: &'a Manifest) -> impl Iterator<Item = Record> + 'a {
        self.ordered_lines(manifest).map(|line| serde_json::from_str(line).expect("it was read before"))
    }

    fn ordered_lines<'a>(&'a self, manifest: &'a Manifest) -> impl Iterator<Item = &'a String> + 'a {
        let plan = &manifest.plan;
        (0..plan.trials()).filter_map(|number| self.lines.get(&manifest.key(&plan.trial(number))))
    }
}

/// A file that is locked until this value is dropped.
///
/// The lock is released explicitly, because closing the file is not enough: a child process that another
/// thread has just forked shares the lock until it calls exec (flock(2)).
#[derive(Debug)]
struct LockedFile(File);

impl LockedFile {
    fn new(file: File, dir: &Path) -> Result<LockedFile, StoreError> {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => Err(StoreError::Busy(dir.to_owned())),
            // Some network file systems have no locks; users must avoid concurrent runs there themselves.
            Ok(()) | Err(TryLockError::Error(_)) => Ok(LockedFile(file)),
        }
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

/// The folder of a run, open for writing.
#[derive(Debug)]
pub struct Run {
    dir: PathBuf,
    manifest: Manifest,
    records: Records,
    file: Mutex<LockedFile>,
}

impl Run {
    /// Begins or continues a run in a folder. The folder is locked until the value is dropped.
    ///
    /// # Errors
    /// Returns [`StoreError`]; existing files are unchanged in this case.
    pub fn open(dir: &Path, manifest: Manifest) -> Result<Run, StoreError> {
        let write = |path: &Path| {
            let path = path.to_owned();
            move |error| StoreError::Write(path, error)
        };
        fs::create_dir_all(dir).map_err(write(dir))?;
        let path = dir.join(RECORDS);
        let open = OpenOptions::new().read(true).append(true).create(true).open(&path);
        let mut file = LockedFile::new(open.map_err(write(&path))?, dir)?;
        let has_records = file.0.metadata().map_err(|error| StoreError::Read(path.clone(), error))?.len() > 0;
        if !has_records {
            // There is nothing that another plan would mix with, such as after a plan of which no trial was
            // possible.
            write_atomically(&dir.join(RUN), &pretty(&manifest))?;
        } else if !dir.join(RUN).exists() {
            return Err(no_plan(dir));
        } else if let Some(error) = Manifest::read(dir)?.mismatch(dir, &manifest) {
            return Err(error);
        }
        let records = Records::read(dir, &manifest)?;
        if !records.ended {
            // Terminate a truncated line, so that the next record does not become part of it.
            file.0.write_all(b"\n").map_err(write(&path))?;
        }
        Ok(Run { dir: dir.to_owned(), manifest, records, file: Mutex::new(file) })
    }

    /// Returns the description of the run.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns the records that existed when the run was opened.
    pub fn found(&self) -> &Records {
        &self.records
    }

    /// Appends a record as one line with a single write.
    ///
    /// # Errors
    /// The file cannot be written; earlier records are not affected.
    pub fn append(&self, record: &Record) -> Result<(), StoreError> {
        let line = json_line(record) + "\n";
        let mut file = lock(&self.file);
        let length = file.0.metadata().map(|metadata| metadata.len());
        file.0.write_all(line.as_bytes()).map_err(|error| {
            // Remove a partially written line.
            if let Ok(length) = length {
                let _ = file.0.set_len(length);
            }
            StoreError::Write(self.dir.join(RECORDS), error)
        })
    }

    /// Flushes all records to the disk.
    ///
    /// # Errors
    /// The file cannot be synchronized.
    pub fn sync(&self) -> Result<(), StoreError> {
        let file = lock(&self.file);
        file.0.sync_all().map_err(|error| StoreError::Write(self.dir.join(RECORDS), error))
    }
}

/// Returns a record as a line of JSON without the line end.
pub fn json_line(record: &Record) -> String {
    serde_json::to_string(record).expect("figures are finite, names are text")
}

/// The result of a merge.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Merged {
    /// The number of trials in the plan.
    pub trials: u64,
    /// The number of trials that have a record.
    pub records: u64,
    /// The number of real-time records that exist in several folders with different results; the first
    /// folder's record is kept.
    pub twice: u64,
    /// Lines that were skipped, with their files and reasons.
    pub broken: Vec<String>,
}

/// Merges the records of several folders into `out`, in the order of the plan, so that the same records give
/// the same bytes. Records that `out` already has are kept.
///
/// # Errors
/// The folders belong to different plans or versions, virtual-time records differ, or a file cannot be read
/// or written.
pub fn merge(out: &Path, dirs: &[PathBuf]) -> Result<Merged, StoreError> {
    let first = dirs.first().map_or(out, PathBuf::as_path);
    let manifest = Manifest { shard: Shard::ALL, ..Manifest::read(first)? };
    let run = Run::open(out, manifest.clone())?;
    let mut all = run.found().clone();
    let name = |dir: &Path, broken: &BrokenLine| {
        format!("{}: line {}: {}", dir.join(RECORDS).display(), broken.line, broken.why)
    };
    let mut broken: Vec<String> = all.broken.iter().map(|broken| name(out, broken)).collect();
    let mut twice = 0;
    for dir in dirs {
        let part = Manifest::read(dir)?;
        if let Some(error) = (Manifest { shard: Shard::ALL, ..part.clone() }).mismatch(dir, &manifest) {
            return Err(error);
        }
        let records = Records::read(dir, &part)?;
        broken.extend(records.broken.iter().map(|broken| name(dir, broken)));
        for (key, line) in records.lines {
            match all.lines.entry(key) {
                Entry::Vacant(free) => {
                    free.insert(line);
                }
                Entry::Occupied(taken) if *taken.get() == line => {}
                Entry::Occupied(taken) if manifest.exact => {
                    return Err(StoreError::Mismatch(format!(
                        "{}: the results of trial {} differ from those of another run. Results in virtual time \
                         are reproducible, so the runs were made by different builds of kiban {}: repeat one of \
                         them, in a new folder",
                        dir.display(),
                        taken.key(),
                        manifest.version
                    )));
                }
                Entry::Occupied(_) => twice += 1,
            }
        }
    }
    let mut text = String::new();
    let mut records = 0;
    for line in all.ordered_lines(&manifest) {
        text += line;
        text.push('\n');
        records += 1;
    }
    write_atomically(&out.join(RECORDS), text.as_bytes())?;
    Ok(Merged { trials: manifest.plan.trials(), records, twice, broken })
}

/// A cache of virtual-time records by key, which several runs may share.
#[derive(Clone, Debug)]
pub struct Cache {
    dir: PathBuf,
}

impl Cache {
    /// Uses a folder as a cache. The folder is created when the first record is stored.
    pub fn new(dir: &Path) -> Cache {
        Cache { dir: dir.to_owned() }
    }

    /// Returns the record of a key; `None` if there is none, or if it is damaged.
    pub fn get(&self, key: &str) -> Option<Record> {
        let record: Record = serde_json::from_slice(&fs::read(self.path(key)).ok()?).ok()?;
        let made = crate::engine::records::key::key(
            &record.question,
            &record.version,
            &record.point,
            record.seed,
            None,
        );
        (record.key == key && made == key).then_some(record)
    }

    /// Stores a record.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn put(&self, record: &Record) -> Result<(), StoreError> {
        let path = self.path(&record.key);
        let folder = path.parent().expect("it has two parts");
        fs::create_dir_all(folder).map_err(|error| StoreError::Write(folder.to_owned(), error))?;
        // No sync: `get` detects a file that a power failure has truncated.
        put(&path, (json_line(record) + "\n").as_bytes(), |_| Ok(()))
    }

    fn path(&self, key: &str) -> PathBuf {
        let (folder, name) = key.split_at_checked(2).unwrap_or(("", key));
        self.dir.join(folder).join(format!("{name}.json"))
    }
}

/// Writes a file atomically: writes a temporary file, syncs it, and renames it to `path`.
///
/// # Errors
/// The file cannot be written.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    put(path, bytes, File::sync_all)
}

fn put(path: &Path, bytes: &[u8], sync: impl Fn(&File) -> io::Result<()>) -> Result<(), StoreError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let put = || {
        let mut builder = tempfile::Builder::new();
        // Use the permissions of ordinary new files; those of temporary files are stricter.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let mut file = builder.prefix(".kiban-").tempfile_in(folder)?;
        file.write_all(bytes)?;
        sync(file.as_file())?;
        file.persist(path).map(drop).map_err(|error| error.error)
    };
    put().map_err(|error| StoreError::Write(path.to_owned(), error))
}

/// Returns indented JSON with a final line end.
pub fn pretty(value: &impl Serialize) -> Vec<u8> {
    let mut text = serde_json::to_vec_pretty(value).expect("names are text");
    text.push(b'\n');
    text
}
