//! Records of a sweep, a line each, in a folder: what was measured is not measured again.
//!
//! Death     a record is one write of one line. A line that was cut off, by a crash or a full disk, is dropped when the folder is
//!           opened again, and its point measured again.
//! One       sweep a folder: the file is locked while it is open.

use crate::engine::Record;
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// The file in the folder.
pub const FILE: &str = "records.jsonl";

/// A folder with records.
pub struct Store {
    file: File,
    path: PathBuf,
    records: HashMap<String, Record>,
}

impl Store {
    /// Opens a folder, or makes it.
    ///
    /// # Errors
    /// It cannot be read or written, or is in use: what to do.
    pub fn open(folder: &Path) -> Result<Store, String> {
        let path = folder.join(FILE);
        let say = |error: std::io::Error| format!("{} cannot be used: {error}", path.display());
        fs::create_dir_all(folder).map_err(say)?;
        let mut options = OpenOptions::new();
        let mut file = options.read(true).append(true).create(true).open(&path).map_err(say)?;
        file.try_lock().map_err(|_| {
            format!("{} is in use by another sweep: wait for it, or name another folder", path.display())
        })?;
        let is_file = file.metadata().map_err(say)?.is_file();
        let mut text = Vec::new();
        if is_file {
            file.read_to_end(&mut text).map_err(say)?;
        }
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        if whole < text.len() {
            file.set_len(whole as u64).map_err(say)?;
        }
        let mut records = HashMap::new();
        for (number, line) in text[..whole].split(|byte| *byte == b'\n').enumerate() {
            if line.is_empty() {
                continue;
            }
            let record: Record = serde_json::from_slice(line).map_err(|error| {
                format!("{} line {} is no record ({error}): remove it", path.display(), number + 1)
            })?;
            records.insert(record.key.clone(), record);
        }
        Ok(Store { file, path, records })
    }

    /// A record by its key.
    pub fn get(&self, key: &str) -> Option<&Record> {
        self.records.get(key)
    }

    /// Records kept.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Keeps a record.
    ///
    /// # Errors
    /// The disk does not take it: what to do. What was kept before stays.
    pub fn add(&mut self, record: Record) -> Result<(), String> {
        let mut line = serde_json::to_vec(&record).expect("plain values");
        line.push(b'\n');
        self.file.write_all(&line).map_err(|error| {
            format!(
                "{} takes no more ({error}): make room and run the same command again; {} points are kept",
                self.path.display(),
                self.records.len()
            )
        })?;
        self.records.insert(record.key.clone(), record);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::key::{VERSION, key};
    use crate::engine::{Point, Value};

    fn record(count: u64) -> Record {
        let point: Point = [("message_bytes", Value::Count(count))].into_iter().collect();
        Record {
            key: key("q", VERSION, &point, 0, Some(0)),
            question: "q".into(),
            point,
            repetition: 0,
            seed: 0,
            version: "0".into(),
            environment: None,
            metrics: [("mbps".to_owned(), count as f64)].into(),
            evidence: serde_json::Value::Null,
            foreign_cores: None,
        }
    }

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("kiban-store-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        folder
    }

    #[test]
    fn a_line_that_was_cut_off_is_dropped_and_all_others_stay() {
        let folder = folder("cut");
        let mut store = Store::open(&folder).expect("a folder");
        for count in 1..=3 {
            store.add(record(count)).expect("there is room");
        }
        assert!(Store::open(&folder).err().expect("it is locked").contains("another sweep"));
        drop(store);
        let path = folder.join(FILE);
        let text = fs::read(&path).expect("written");
        fs::write(&path, &text[..text.len() - 5]).expect("there is room");
        let mut store = Store::open(&folder).expect("a folder");
        assert_eq!(store.len(), 2);
        assert_eq!(store.get(&record(2).key), Some(&record(2)));
        assert_eq!(store.get(&record(3).key), None);
        store.add(record(3)).expect("there is room");
        drop(store);
        assert_eq!(fs::read(&path).expect("written"), text);
        fs::remove_dir_all(&folder).expect("ours");
    }

    #[test]
    fn a_full_disk_is_told() {
        let folder = folder("full");
        fs::create_dir_all(&folder).expect("a folder");
        std::os::unix::fs::symlink("/dev/full", folder.join(FILE)).expect("a link");
        let mut store = Store::open(&folder).expect("a folder");
        let error = store.add(record(1)).expect_err("no room");
        assert!(error.contains("make room") && error.contains("0 points are kept"), "{error}");
        assert!(store.is_empty());
        fs::remove_dir_all(&folder).expect("ours");
    }
}
