//! A disk in memory.

use crate::ftam::filestore::disk::{KEY_BYTES_MAX, RECORD_BYTES_MAX, is_key};
use crate::ftam::filestore::{
    Date, Disk, DiskError, Entry, Handle, Kind, Mark, Marks, OpenedContents, Path, Stamp, WriteMode,
};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use kiban_base::{Bytes, Rope};

/// Maximum number of open handles.
pub const OPEN_MAX: usize = 4096;
/// Maximum number of unfinished contents.
pub const BEGUN_MAX: usize = 1024;
/// Maximum number of records.
pub const RECORDS_MAX: usize = 1024;

/// A kind of call, for which errors can be injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of the calls")]
pub enum Call {
    Look,
    List,
    Open,
    Read,
    Begin,
    Resume,
    Write,
    Settle,
    Finish,
    Rename,
    Remove,
    MakeDirectory,
    Mark,
    Keep,
    Fetch,
}

/// A disk in memory.
#[derive(Debug, Default)]
pub struct MemoryDisk {
    names: BTreeMap<Path, u64>,
    nodes: BTreeMap<u64, Node>,
    begun: BTreeMap<String, Unfinished>,
    records: BTreeMap<String, Vec<u8>>,
    open: BTreeMap<Handle, Open>,
    denied: BTreeSet<Path>,
    faults: Vec<(Call, u64, DiskError)>,
    capacity_bytes: Option<u64>,
    next: u64,
    date: Date,
}

#[derive(Clone, Debug)]
struct Node {
    kind: Kind,
    contents: Vec<u8>,
    marks: Marks,
    created: Date,
    modified: Date,
    version: u64,
}

#[derive(Debug)]
struct Unfinished {
    path: Path,
    write_mode: WriteMode,
    contents: Vec<u8>,
    settled: usize,
    open: bool,
}

#[derive(Debug)]
enum Open {
    Reader { node: u64, version: u64 },
    Writer { token: String },
}

impl MemoryDisk {
    /// Creates an empty disk with unlimited capacity.
    pub fn new() -> MemoryDisk {
        MemoryDisk::default()
    }

    /// Creates an empty disk that can hold this many bytes of contents.
    pub fn with_capacity(bytes: u64) -> MemoryDisk {
        MemoryDisk { capacity_bytes: Some(bytes), ..MemoryDisk::default() }
    }

    /// Sets the disk's current date.
    pub fn set_date(&mut self, date: Date) {
        self.date = date;
    }

    /// Sets the capacity in bytes.
    pub fn set_capacity(&mut self, bytes: Option<u64>) {
        self.capacity_bytes = bytes;
    }

    /// Denies access to `path` and everything below it.
    pub fn deny(&mut self, path: &Path) {
        self.denied.insert(path.clone());
    }

    /// Makes one call of this kind fail, after `calls` successful calls.
    pub fn fail_after(&mut self, call: Call, calls: u64, disk_error: DiskError) {
        self.faults.push((call, calls, disk_error));
    }

    /// Writes a file in place, as another program on the host might, even while the file is being read.
    ///
    /// # Panics
    /// If `path` is a directory, or its parent directory does not exist.
    pub fn put(&mut self, path: &Path, contents: &[u8]) {
        assert!(self.is_directory(&path.parent().expect("the root is no file")), "no directory for {path}");
        let date = self.date;
        match self.names.get(path) {
            Some(node) => {
                let node = self.nodes.get_mut(node).expect("names lead to nodes");
                assert_eq!(node.kind, Kind::File, "{path} is a directory");
                node.contents = contents.into();
                node.modified = date;
                node.version += 1;
            }
            None => {
                let node = self.add(Kind::File, contents.into(), Marks::default());
                self.names.insert(path.clone(), node);
            }
        }
    }

    /// Returns the contents of a file, as another program on the host would see them.
    pub fn contents(&self, path: &Path) -> Option<&[u8]> {
        let node = &self.nodes[self.names.get(path)?];
        (node.kind == Kind::File).then_some(&node.contents)
    }

    /// Returns all files (with contents) and directories, sorted.
    pub fn tree(&self) -> impl Iterator<Item = (&Path, Option<&[u8]>)> {
        self.names.keys().map(|path| (path, self.contents(path)))
    }

    /// Returns the numbers of open handles and of unfinished contents. Both are 0 once the user of the disk
    /// has cleaned up.
    pub fn loose_ends(&self) -> (usize, usize) {
        (self.open.len(), self.begun.len())
    }

    /// Simulates a crash of the process: closes everything, and loses all data that was written but not
    /// synced.
    pub fn crash(&mut self) {
        self.open.clear();
        for unfinished in self.begun.values_mut() {
            unfinished.contents.truncate(unfinished.settled);
            unfinished.open = false;
        }
        self.sweep();
    }

    fn call(&mut self, call: Call, path: Option<&Path>) -> Result<(), DiskError> {
        if let Some(path) = path
            && self.denied.iter().any(|denied| path.is_within(denied))
        {
            return Err(DiskError::Denied);
        }
        let mut disk_error = None;
        self.faults.retain_mut(|(of, calls, what)| {
            if *of != call || disk_error.is_some() {
                return true;
            }
            let now = *calls == 0;
            *calls = calls.saturating_sub(1);
            disk_error = now.then_some(*what);
            !now
        });
        disk_error.map_or(Ok(()), Err)
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn add(&mut self, kind: Kind, contents: Vec<u8>, marks: Marks) -> u64 {
        let (number, date) = (self.number(), self.date);
        self.nodes.insert(number, Node { kind, contents, marks, created: date, modified: date, version: 0 });
        number
    }

    fn node(&self, path: &Path) -> Result<u64, DiskError> {
        match self.names.get(path) {
            Some(node) => Ok(*node),
            None if path.is_root() => Err(DiskError::NotAFile),
            None => {
                // Like a host's file system, reports an error if an ancestor of the path is not a directory.
                let mut above = path.parent();
                while let Some(path) = above {
                    if self.names.get(&path).is_some_and(|node| self.nodes[node].kind == Kind::File) {
                        return Err(DiskError::NotADirectory);
                    }
                    above = path.parent();
                }
                Err(DiskError::NotThere)
            }
        }
    }

    fn file(&self, path: &Path) -> Result<u64, DiskError> {
        let node = self.node(path)?;
        if self.nodes[&node].kind == Kind::File { Ok(node) } else { Err(DiskError::NotAFile) }
    }

    fn is_directory(&self, path: &Path) -> bool {
        path.is_root() || self.names.get(path).is_some_and(|node| self.nodes[node].kind == Kind::Directory)
    }

    fn directory_above(&self, path: &Path) -> Result<(), DiskError> {
        let above = path.parent().ok_or(DiskError::Exists)?;
        if self.is_directory(&above) {
            return Ok(());
        }
        self.node(&above)?;
        Err(DiskError::NotADirectory)
    }

    fn entry(&self, number: u64) -> Entry {
        let node = &self.nodes[&number];
        Entry {
            kind: node.kind,
            bytes: node.contents.len() as u64,
            created: Some(node.created),
            modified: Some(node.modified),
            read: None,
            marks: node.marks.clone(),
            stamp: Stamp([number, node.version, node.contents.len() as u64, 0]),
        }
    }

    fn used_bytes(&self) -> u64 {
        let nodes = self.nodes.values().map(|node| node.contents.len() as u64);
        nodes.chain(self.begun.values().map(|begun| begun.contents.len() as u64)).sum()
    }

    fn opened(&mut self, open: Open) -> Handle {
        let handle = Handle(self.number());
        self.open.insert(handle, open);
        handle
    }

    fn writer(&mut self, handle: Handle) -> Result<&mut Unfinished, DiskError> {
        match self.open.get(&handle) {
            Some(Open::Writer { token }) => Ok(self.begun.get_mut(token).expect("writers have contents")),
            _ => Err(DiskError::Unable),
        }
    }

    /// Removes nodes that have no name and no reader.
    fn sweep(&mut self) {
        let named: BTreeSet<u64> = self.names.values().copied().collect();
        let read: BTreeSet<u64> = self
            .open
            .values()
            .filter_map(|open| if let Open::Reader { node, .. } = open { Some(*node) } else { None })
            .collect();
        self.nodes.retain(|number, _| named.contains(number) || read.contains(number));
    }

    fn place(&mut self, unfinished: Unfinished, changes: &[(Mark, Vec<u8>)]) -> Result<(), DiskError> {
        let path = &unfinished.path;
        self.directory_above(path)?;
        let (old, date) = (self.names.get(path).copied(), self.date);
        match unfinished.write_mode {
            WriteMode::New if old.is_some() => return Err(DiskError::Exists),
            WriteMode::Extend => {
                let node = self.file(path)?;
                let node = self.nodes.get_mut(&node).expect("names lead to nodes");
                node.contents.extend_from_slice(&unfinished.contents);
                node.marks.change(changes);
                node.modified = date;
                node.version += 1;
            }
            WriteMode::New | WriteMode::Replace => {
                if old.is_some() {
                    self.file(path)?;
                }
                let mut marks = old.map(|old| self.nodes[&old].marks.clone()).unwrap_or_default();
                marks.change(changes);
                let created = old.map_or(date, |old| self.nodes[&old].created);
                let node = self.add(Kind::File, unfinished.contents, marks);
                self.nodes.get_mut(&node).expect("it was added").created = created;
                self.names.insert(unfinished.path, node);
            }
        }
        Ok(())
    }
}

impl Disk for MemoryDisk {
    fn stat(&mut self, path: &Path) -> Result<Entry, DiskError> {
        self.call(Call::Look, Some(path))?;
        if path.is_root() {
            let root = Entry {
                kind: Kind::Directory,
                bytes: 0,
                created: None,
                modified: None,
                read: None,
                marks: Marks::default(),
                stamp: Stamp::default(),
            };
            return Ok(root);
        }
        Ok(self.entry(self.node(path)?))
    }

    fn list(&mut self, path: &Path, names_max: usize) -> Result<Vec<String>, DiskError> {
        self.call(Call::List, Some(path))?;
        if !self.is_directory(path) {
            self.node(path)?;
            return Err(DiskError::NotADirectory);
        }
        let below = self.names.keys().filter(|name| name.parent().as_ref() == Some(path));
        let names: Vec<String> =
            below.filter_map(|path| Some(path.name()?.into())).take(names_max + 1).collect();
        if names.len() > names_max { Err(DiskError::TooMany) } else { Ok(names) }
    }

    fn open(&mut self, path: &Path) -> Result<(Handle, Entry), DiskError> {
        self.call(Call::Open, Some(path))?;
        let node = self.file(path)?;
        if self.open.len() >= OPEN_MAX {
            return Err(DiskError::TooMany);
        }
        let entry = self.entry(node);
        let version = self.nodes[&node].version;
        Ok((self.opened(Open::Reader { node, version }), entry))
    }

    fn read(&mut self, handle: Handle, at: u64, bytes_max: usize) -> Result<Bytes, DiskError> {
        self.call(Call::Read, None)?;
        let Some(Open::Reader { node, version }) = self.open.get(&handle) else {
            return Err(DiskError::Unable);
        };
        let node = &self.nodes[node];
        if node.version != *version {
            return Err(DiskError::Changed);
        }
        let at = usize::try_from(at).unwrap_or(usize::MAX).min(node.contents.len());
        let end = at.saturating_add(bytes_max).min(node.contents.len());
        Ok(Bytes::copy_from_slice(&node.contents[at..end]))
    }

    fn begin(&mut self, path: &Path, write_mode: WriteMode) -> Result<OpenedContents, DiskError> {
        self.call(Call::Begin, Some(path))?;
        if path.is_root() {
            return Err(DiskError::NotAFile);
        }
        self.directory_above(path)?;
        match (write_mode, self.names.contains_key(path)) {
            (WriteMode::New, true) => return Err(DiskError::Exists),
            (WriteMode::Extend, _) | (WriteMode::Replace, true) => drop(self.file(path)?),
            (WriteMode::New | WriteMode::Replace, false) => {}
        }
        if self.open.len() >= OPEN_MAX || self.begun.len() >= BEGUN_MAX {
            return Err(DiskError::TooMany);
        }
        let token = format!("begun-{}", self.number());
        let path = path.clone();
        let unfinished = Unfinished { path, write_mode, contents: Vec::new(), settled: 0, open: true };
        self.begun.insert(token.clone(), unfinished);
        Ok(OpenedContents { handle: self.opened(Open::Writer { token: token.clone() }), token })
    }

    fn resume(
        &mut self,
        path: &Path,
        write_mode: WriteMode,
        token: &str,
        bytes: u64,
    ) -> Result<OpenedContents, DiskError> {
        self.call(Call::Resume, Some(path))?;
        let unfinished = self.begun.get_mut(token).ok_or(DiskError::NotThere)?;
        if unfinished.open {
            return Err(DiskError::Busy);
        }
        if unfinished.path != *path
            || unfinished.write_mode != write_mode
            || bytes > unfinished.contents.len() as u64
        {
            return Err(DiskError::Changed);
        }
        unfinished.contents.truncate(bytes as usize);
        unfinished.settled = unfinished.settled.min(bytes as usize);
        unfinished.open = true;
        Ok(OpenedContents { handle: self.opened(Open::Writer { token: token.into() }), token: token.into() })
    }

    fn write(&mut self, handle: Handle, at: u64, bytes: Rope) -> Result<(), DiskError> {
        self.call(Call::Write, None)?;
        let used = self.used_bytes();
        let capacity = self.capacity_bytes;
        let contents = &mut self.writer(handle)?.contents;
        let at = usize::try_from(at).ok().filter(|at| *at <= contents.len()).ok_or(DiskError::Unable)?;
        let more = (at + bytes.len()).saturating_sub(contents.len());
        if capacity.is_some_and(|capacity| used + more as u64 > capacity) {
            return Err(DiskError::Full);
        }
        contents.resize(contents.len() + more, 0);
        bytes.copy_to(0, &mut contents[at..at + bytes.len()]);
        Ok(())
    }

    fn sync(&mut self, handle: Handle) -> Result<(), DiskError> {
        self.call(Call::Settle, None)?;
        let unfinished = self.writer(handle)?;
        unfinished.settled = unfinished.contents.len();
        Ok(())
    }

    fn finish(&mut self, handle: Handle, marks: &[(Mark, Vec<u8>)]) -> Result<(), DiskError> {
        let disk_error = self.call(Call::Finish, None);
        let Some(Open::Writer { token }) = self.open.get(&handle) else { return Err(DiskError::Unable) };
        let unfinished = self.begun.remove(token).expect("writers have contents");
        self.open.remove(&handle);
        disk_error?;
        let placed = self.place(unfinished, marks);
        self.sweep();
        placed
    }

    fn leave(&mut self, handle: Handle) {
        if let Ok(unfinished) = self.writer(handle) {
            unfinished.open = false;
        }
        self.open.remove(&handle);
        self.sweep();
    }

    fn abandon(&mut self, handle: Handle) {
        if let Some(Open::Writer { token }) = self.open.remove(&handle) {
            self.begun.remove(&token);
        }
        self.sweep();
    }

    fn discard(&mut self, path: &Path, token: &str) {
        if self.begun.get(token).is_some_and(|unfinished| !unfinished.open && unfinished.path == *path) {
            self.begun.remove(token);
        }
    }

    fn rename(&mut self, from: &Path, to: &Path) -> Result<(), DiskError> {
        self.call(Call::Rename, Some(from))?;
        self.node(from)?;
        self.directory_above(to)?;
        if self.names.contains_key(to) {
            return Err(DiskError::Exists);
        }
        if to.is_within(from) {
            return Err(DiskError::Unable);
        }
        let moved: Vec<Path> = self.names.keys().filter(|path| path.is_within(from)).cloned().collect();
        for path in moved {
            let mut rest = path.components().skip(from.components().count());
            let new = rest.try_fold(to.clone(), |path, name| path.join(name)).map_err(|_| DiskError::Long)?;
            let node = self.names.remove(&path).expect("it was listed");
            self.names.insert(new, node);
        }
        Ok(())
    }

    fn remove(&mut self, path: &Path) -> Result<(), DiskError> {
        self.call(Call::Remove, Some(path))?;
        if path.is_root() {
            return Err(DiskError::Denied);
        }
        self.node(path)?;
        if self.names.keys().any(|below| below != path && below.is_within(path)) {
            return Err(DiskError::NotEmpty);
        }
        self.names.remove(path);
        self.sweep();
        Ok(())
    }

    fn make_directory(&mut self, path: &Path) -> Result<(), DiskError> {
        self.call(Call::MakeDirectory, Some(path))?;
        self.directory_above(path)?;
        if self.names.contains_key(path) {
            return Err(DiskError::Exists);
        }
        let node = self.add(Kind::Directory, Vec::new(), Marks::default());
        self.names.insert(path.clone(), node);
        Ok(())
    }

    fn mark(&mut self, path: &Path, changes: &[(Mark, Vec<u8>)]) -> Result<(), DiskError> {
        self.call(Call::Mark, Some(path))?;
        let node = self.node(path)?;
        self.nodes.get_mut(&node).expect("names lead to nodes").marks.change(changes);
        Ok(())
    }

    fn keep(&mut self, key: &str, record: &[u8]) -> Result<(), DiskError> {
        self.call(Call::Keep, None)?;
        debug_assert!(key.len() <= KEY_BYTES_MAX);
        if !is_key(key) || record.len() > RECORD_BYTES_MAX {
            return Err(DiskError::Long);
        }
        if self.records.len() >= RECORDS_MAX && !self.records.contains_key(key) {
            return Err(DiskError::TooMany);
        }
        self.records.insert(key.into(), record.into());
        Ok(())
    }

    fn fetch(&mut self, key: &str) -> Result<Vec<u8>, DiskError> {
        self.call(Call::Fetch, None)?;
        self.records.get(key).cloned().ok_or(DiskError::NotThere)
    }

    fn forget(&mut self, key: &str) {
        self.records.remove(key);
    }

    fn kept(&mut self) -> Vec<String> {
        self.records.keys().cloned().collect()
    }

    fn date(&mut self) -> Date {
        self.date
    }
}
