//! A directory as a disk.

use super::contents::Contents;
use super::files::{append, aside, is_of_another_life, kind, let_go, lock, rename_new, stamp};
use super::marks;
use super::paths::{self, DirectoryEntry, above, directory, disk_error, enter, open_at, real};
use super::protected::{Inode, Protected, inode};
pub(super) use super::settings::{Durability, OPEN_MAX, RECORDS_MAX, Settings};
use super::syncs::Syncs;
use crate::buffers::Buffer;
use kiban_base::{Bytes, Rope};
use kiban_osi::ftam::filestore::{
    Date, Disk, DiskError, Entry, Handle, Kind, Mark, OpenedContents, Path, RECORD_BYTES_MAX, Stamp,
    WriteMode, is_key,
};
use rustix::fs::{AtFlags, Mode, OFlags, Stat, StatxFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Prefix of the names of contents that are synced at every checkpoint.
const SETTLED: &str = "settled-";

/// A directory and everything below it, used as a filestore's disk.
#[derive(Debug)]
pub struct DirectoryDisk {
    root: OwnedFd,
    protected: Protected,
    syncs: Syncs,
    settings: Settings,
    readers: BTreeMap<Handle, Reader>,
    writers: BTreeMap<Handle, Writer>,
    swept: Option<Sweep>,
    next: u64,
}

/// What the last look at a directory of unfinished contents has found.
#[derive(Debug)]
struct Sweep {
    of: Inode,
    date: i64,
    /// How many contents remained, or have been created since.
    left: usize,
}

#[derive(Debug)]
struct Reader {
    file: OwnedFd,
    stamp: Stamp,
}

#[derive(Debug)]
struct Writer {
    contents: Contents,
    /// The directory and name under which the finished file will appear.
    entry: DirectoryEntry,
    new: OwnedFd,
    token: String,
    write_mode: WriteMode,
}

impl DirectoryDisk {
    /// Opens the directory at `root`, a path on this host.
    ///
    /// # Errors
    /// The directory cannot be opened, or the system lacks openat2, which confines peers to the directory.
    pub fn open(root: &std::path::Path, settings: Settings) -> io::Result<DirectoryDisk> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(root, flags, Mode::empty())?;
        let disk = DirectoryDisk::new(root, settings, Protected::default(), Syncs::default());
        match enter(disk.root.as_fd(), ".", OFlags::PATH | OFlags::DIRECTORY) {
            Err(Errno::NOSYS) => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this system lacks openat2, which confines peers to the directory: use Linux 5.6 or later",
            )),
            Err(errno) => Err(errno.into()),
            Ok(_) => Ok(disk),
        }
    }

    /// Refuses access to these files, whatever names they have.
    #[must_use]
    pub fn protecting(self, protected: Protected) -> DirectoryDisk {
        DirectoryDisk { protected, ..self }
    }

    /// Syncs files and directories together with the other disks that have the same `syncs`.
    #[must_use]
    pub fn sharing(self, syncs: Syncs) -> DirectoryDisk {
        DirectoryDisk { syncs, ..self }
    }

    fn new(root: OwnedFd, settings: Settings, protected: Protected, syncs: Syncs) -> DirectoryDisk {
        let (readers, writers) = (BTreeMap::new(), BTreeMap::new());
        DirectoryDisk { root, protected, syncs, settings, readers, writers, swept: None, next: 0 }
    }

    /// Returns the kind of a file, or an error if peers may not access it.
    fn kind(&self, stat: &Stat) -> Result<Kind, DiskError> {
        if self.protected.has(stat) { Err(DiskError::Denied) } else { kind(stat) }
    }

    /// Opens a subdirectory as a separate disk, for a user's home directory.
    ///
    /// # Errors
    /// There is no such directory, or its path contains a symbolic link.
    pub fn below(&self, home: &Path) -> Result<DirectoryDisk, DiskError> {
        let root = directory(self.root.as_fd(), home)?;
        Ok(DirectoryDisk::new(root, self.settings, self.protected.clone(), self.syncs.clone()))
    }

    /// Writes out buffered contents; the pump calls this before it waits for more data.
    pub fn write_out(&mut self) {
        self.writers.values_mut().for_each(|writer| writer.contents.write_out());
    }

    fn handle(&mut self) -> Handle {
        self.next += 1;
        Handle(self.next)
    }

    fn is_full(&self) -> bool {
        self.readers.len() + self.writers.len() >= OPEN_MAX
    }

    /// Opens a file or directory and returns its status. Other kinds of files are not opened, because opening
    /// a device may have side effects, and opening a pipe may block.
    fn reach(&self, path: &Path, flags: OFlags) -> Result<(OwnedFd, Stat), DiskError> {
        let relative = if path.is_root() { "." } else { path.as_str() };
        let seen = real(enter(self.root.as_fd(), relative, OFlags::PATH | OFlags::NOFOLLOW))?;
        let stat = real(rustix::fs::fstat(&seen))?;
        self.kind(&stat)?;
        if flags == OFlags::PATH {
            return Ok((seen, stat));
        }
        let file = real(enter(self.root.as_fd(), relative, flags | OFlags::NONBLOCK | OFlags::NOCTTY))?;
        let stat = real(rustix::fs::fstat(&file))?;
        self.kind(&stat)?;
        Ok((file, stat))
    }

    fn entry(
        &self,
        path: &Path,
        file: Option<&OwnedFd>,
        seen: &OwnedFd,
        stat: &Stat,
    ) -> Result<Entry, DiskError> {
        let entry = above(self.root.as_fd(), path).ok();
        let date = |seconds: i64| Some(Date(seconds));
        let born = rustix::fs::statx(seen, "", AtFlags::EMPTY_PATH, StatxFlags::BTIME)
            .ok()
            .filter(|stat| stat.stx_mask & StatxFlags::BTIME.bits() != 0)
            .map(|stat| Date(stat.stx_btime.tv_sec));
        Ok(Entry {
            kind: kind(stat)?,
            bytes: stat.st_size as u64,
            created: born,
            modified: date(stat.st_mtime),
            read: date(stat.st_atime),
            marks: marks::read(file, entry.as_ref())?,
            stamp: stamp(stat),
        })
    }

    fn writer(&mut self, handle: Handle) -> Result<&mut Writer, DiskError> {
        self.writers.get_mut(&handle).ok_or(DiskError::Unable)
    }

    /// Removes contents in `new` that were not resumed in time; returns how many remain.
    fn sweep(&self, new: &OwnedFd) -> Result<usize, DiskError> {
        let now = kiban_os::clock::unix_seconds() as i64;
        let mut left = 0;
        for name in paths::names(new.as_fd(), usize::MAX)? {
            let Ok(stat) = rustix::fs::statat(new, name.as_str(), AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            left += 1;
            if now.saturating_sub(stat.st_mtime) <= self.settings.left_seconds_max as i64 {
                continue;
            }
            let Ok(contents) = open_at(new.as_fd(), &name, OFlags::RDONLY) else { continue };
            if lock(&contents).is_ok() && rustix::fs::unlinkat(new, name.as_str(), AtFlags::empty()).is_ok() {
                left -= 1;
            }
        }
        Ok(left)
    }

    fn place(&self, writer: &mut Writer, marks: &[(Mark, Vec<u8>)]) -> Result<(), DiskError> {
        let bytes = writer.contents.bytes();
        let contents = writer.contents.whole()?;
        let DirectoryEntry { directory, name } = &writer.entry;
        let last = self.settings.durability != Durability::Never;
        if writer.write_mode == WriteMode::Extend {
            let file =
                real(enter(directory.as_fd(), name, OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY))?;
            let stat = real(rustix::fs::fstat(&file))?;
            if self.kind(&stat)? != Kind::File {
                return Err(DiskError::NotAFile);
            }
            let old_bytes = stat.st_size as u64;
            let extended = append(contents, &file, bytes, old_bytes)
                .and_then(|()| if last { real(rustix::fs::fsync(&file)) } else { Ok(()) });
            if let Err(error) = extended {
                // If truncating fails as well, the caller still gets the first error.
                let _ = rustix::fs::ftruncate(&file, old_bytes);
                return Err(error);
            }
            // The contents are complete, so a failure to store attributes is not reported.
            let _ = marks::change(&file, &writer.entry, marks);
            return real(rustix::fs::unlinkat(&writer.new, writer.token.as_str(), AtFlags::empty()));
        }
        let old = enter(directory.as_fd(), name, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY);
        match &old {
            Ok(old) => {
                let stat = real(rustix::fs::fstat(old))?;
                match self.kind(&stat)? {
                    _ if writer.write_mode == WriteMode::New => return Err(DiskError::Exists),
                    Kind::Directory => return Err(DiskError::NotAFile),
                    Kind::File => {}
                }
                real(rustix::fs::fchmod(contents, Mode::from_raw_mode(stat.st_mode & 0o777)))?;
                marks::carry(old, contents)?;
            }
            Err(Errno::NOENT) => marks::forget(&writer.entry),
            // The old file can be replaced but not read, so its marks are lost.
            Err(Errno::ACCESS) => {}
            Err(errno) => return Err(disk_error(*errno)),
        }
        // Marks are stored first where possible, so that the file appears with all of its attributes.
        marks::change(contents, &writer.entry, marks)?;
        if last {
            self.syncs.contents(contents, bytes, self.settings.syncs_names)?;
        }
        if writer.write_mode == WriteMode::New {
            rename_new(&writer.new, &writer.token, directory, name)?;
        } else {
            real(rustix::fs::renameat(&writer.new, writer.token.as_str(), directory, name.as_str()))?;
            if let Ok(old) = old {
                let_go(old);
            }
        }
        if last && self.settings.syncs_names { self.syncs.names(directory.as_fd()) } else { Ok(()) }
    }

    fn dockets(&self) -> Option<OwnedFd> {
        paths::state_if_there(self.root.as_fd(), "dockets")
    }

    /// Counts another file of unfinished contents in `new`, if there may be one. The directory is searched
    /// once a second, and when there may be too many; other associations' contents are seen then.
    fn count_left(&mut self, new: &OwnedFd) -> Result<(), DiskError> {
        let of = inode(&real(rustix::fs::fstat(new))?);
        let (most, now) = (self.settings.left_max, kiban_os::clock::unix_seconds() as i64);
        let known = self.swept.take_if(|swept| swept.of == of && swept.date == now && swept.left < most);
        let left = match known {
            Some(swept) => swept.left,
            None => aside(|| self.sweep(new))?,
        };
        if left >= most {
            return Err(DiskError::TooMany);
        }
        self.swept = Some(Sweep { of, date: now, left: left + 1 });
        Ok(())
    }

    /// Creates locked contents in a directory; returns them with their token.
    fn create(&mut self, new: &OwnedFd) -> Result<(OwnedFd, String), DiskError> {
        self.count_left(new)?;
        let settled = if self.settings.durability == Durability::AtCheckpoints { SETTLED } else { "" };
        let token = format!("{settled}{}", paths::token()?);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let contents = real(paths::create(new.as_fd(), &token, flags))?;
        if let Err(error) = lock(&contents) {
            // These contents can never be resumed, because their token was not returned.
            let _ = rustix::fs::unlinkat(new, token.as_str(), AtFlags::empty());
            return Err(error);
        }
        Ok((contents, token))
    }
}

impl Disk for DirectoryDisk {
    fn stat(&mut self, path: &Path) -> Result<Entry, DiskError> {
        match self.reach(path, OFlags::RDONLY) {
            Ok((file, stat)) => self.entry(path, Some(&file), &file, &stat),
            // The file exists, but neither the file nor its marks can be read.
            Err(DiskError::Denied) => {
                let (seen, stat) = self.reach(path, OFlags::PATH)?;
                self.entry(path, None, &seen, &stat)
            }
            Err(error) => Err(error),
        }
    }

    fn list(&mut self, path: &Path, names_max: usize) -> Result<Vec<String>, DiskError> {
        let mut names = aside(|| {
            let listed = directory(self.root.as_fd(), path)?;
            paths::names(listed.as_fd(), names_max)
        })?;
        // Names that a peer cannot express are not listed.
        names.retain(|name| path.join(name).is_ok());
        names.sort_unstable();
        Ok(names)
    }

    fn open(&mut self, path: &Path) -> Result<(Handle, Entry), DiskError> {
        if self.is_full() {
            return Err(DiskError::TooMany);
        }
        let (file, stat) = self.reach(path, OFlags::RDONLY)?;
        let entry = self.entry(path, Some(&file), &file, &stat)?;
        if entry.kind != Kind::File {
            return Err(DiskError::NotAFile);
        }
        let handle = self.handle();
        self.readers.insert(handle, Reader { file, stamp: entry.stamp });
        Ok((handle, entry))
    }

    fn read(&mut self, handle: Handle, at: u64, bytes_max: usize) -> Result<Bytes, DiskError> {
        let reader = self.readers.get(&handle).ok_or(DiskError::Unable)?;
        let rest = reader.stamp.0[1].saturating_sub(at);
        let wanted = usize::try_from(rest).unwrap_or(usize::MAX).min(bytes_max);
        let mut bytes = Buffer::take(wanted);
        while bytes.len() < wanted {
            let from = at + bytes.len() as u64;
            match rustix::io::pread(&reader.file, rustix::buffer::spare_capacity(bytes.filling()), from) {
                Ok(0) => return Err(DiskError::Changed),
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(disk_error(errno)),
            }
        }
        // The version is checked after reading, so that the returned data certainly comes from the version
        // that was opened.
        if stamp(&real(rustix::fs::fstat(&reader.file))?) != reader.stamp {
            return Err(DiskError::Changed);
        }
        Ok(bytes.hand_on().slice(..wanted))
    }

    fn begin(&mut self, path: &Path, write_mode: WriteMode) -> Result<OpenedContents, DiskError> {
        if self.is_full() {
            return Err(DiskError::TooMany);
        }
        let entry = above(self.root.as_fd(), path)?;
        match self.reach(path, OFlags::PATH).and_then(|(_, stat)| kind(&stat)) {
            Ok(_) if write_mode == WriteMode::New => return Err(DiskError::Exists),
            Ok(Kind::File) => {}
            Ok(Kind::Directory) => return Err(DiskError::NotAFile),
            Err(DiskError::NotThere) if write_mode != WriteMode::Extend => {}
            Err(error) => return Err(error),
        }
        let made = paths::in_state(entry.directory.as_fd(), "new", |new| {
            let (contents, token) = self.create(new)?;
            Ok((real(rustix::io::dup(new))?, contents, token))
        });
        let (new, contents, token) = made?;
        let handle = self.handle();
        let contents = Contents::new(contents, 0);
        let writer = Writer { contents, entry, new, token: token.clone(), write_mode };
        self.writers.insert(handle, writer);
        Ok(OpenedContents { handle, token })
    }

    fn resume(
        &mut self,
        path: &Path,
        write_mode: WriteMode,
        token: &str,
        bytes: u64,
    ) -> Result<OpenedContents, DiskError> {
        if self.is_full() {
            return Err(DiskError::TooMany);
        }
        if !is_key(token) {
            return Err(DiskError::NotThere);
        }
        let entry = above(self.root.as_fd(), path)?;
        let new = paths::state_if_there(entry.directory.as_fd(), "new").ok_or(DiskError::NotThere)?;
        let contents = open_at(new.as_fd(), token, OFlags::RDWR)?;
        lock(&contents)?;
        let stat = real(rustix::fs::fstat(&contents))?;
        self.kind(&stat)?;
        let may_lack = !token.starts_with(SETTLED) && is_of_another_life(&stat);
        if may_lack || (stat.st_size as u64) < bytes {
            return Err(DiskError::Changed);
        }
        real(rustix::fs::ftruncate(&contents, bytes))?;
        let handle = self.handle();
        let token = String::from(token);
        let contents = Contents::new(contents, bytes);
        let writer = Writer { contents, entry, new, token: token.clone(), write_mode };
        self.writers.insert(handle, writer);
        Ok(OpenedContents { handle, token })
    }

    fn write(&mut self, handle: Handle, at: u64, bytes: Rope) -> Result<(), DiskError> {
        self.writer(handle)?.contents.write(at, bytes)
    }

    fn sync(&mut self, handle: Handle) -> Result<(), DiskError> {
        let last = self.settings.durability == Durability::AtCheckpoints;
        let contents = self.writer(handle)?.contents.whole()?;
        if last { aside(|| real(rustix::fs::fdatasync(contents))) } else { Ok(()) }
    }

    fn finish(&mut self, handle: Handle, marks: &[(Mark, Vec<u8>)]) -> Result<(), DiskError> {
        let mut writer = self.writers.remove(&handle).ok_or(DiskError::Unable)?;
        let placed = aside(|| self.place(&mut writer, marks));
        if placed.is_err() {
            let _ = rustix::fs::unlinkat(&writer.new, writer.token.as_str(), AtFlags::empty());
        }
        placed
    }

    fn leave(&mut self, handle: Handle) {
        self.readers.remove(&handle);
        self.writers.remove(&handle);
    }

    fn abandon(&mut self, handle: Handle) {
        self.readers.remove(&handle);
        if let Some(writer) = self.writers.remove(&handle) {
            let _ = rustix::fs::unlinkat(&writer.new, writer.token.as_str(), AtFlags::empty());
        }
    }

    fn discard(&mut self, path: &Path, token: &str) {
        let Ok(entry) = above(self.root.as_fd(), path) else { return };
        let Some(new) = paths::state_if_there(entry.directory.as_fd(), "new") else { return };
        if is_key(token)
            && let Ok(contents) = open_at(new.as_fd(), token, OFlags::RDONLY)
            && lock(&contents).is_ok()
        {
            let _ = rustix::fs::unlinkat(&new, token, AtFlags::empty());
        }
    }

    fn rename(&mut self, from: &Path, to: &Path) -> Result<(), DiskError> {
        self.reach(from, OFlags::PATH)?;
        let (from, to) = (above(self.root.as_fd(), from)?, above(self.root.as_fd(), to)?);
        rename_new(&from.directory, &from.name, &to.directory, &to.name)?;
        marks::follow(&from, &to);
        if self.settings.durability != Durability::Never {
            aside(|| {
                self.syncs.names(from.directory.as_fd())?;
                self.syncs.names(to.directory.as_fd())
            })?;
        }
        Ok(())
    }

    fn remove(&mut self, path: &Path) -> Result<(), DiskError> {
        if path.is_root() {
            return Err(DiskError::Denied);
        }
        let (_, stat) = self.reach(path, OFlags::PATH)?;
        let entry = above(self.root.as_fd(), path)?;
        match kind(&stat)? {
            Kind::File => {
                real(rustix::fs::unlinkat(&entry.directory, entry.name.as_str(), AtFlags::empty()))?
            }
            Kind::Directory => paths::remove_directory(&entry)?,
        }
        marks::forget(&entry);
        if self.settings.durability != Durability::Never {
            aside(|| self.syncs.names(entry.directory.as_fd()))?;
        }
        Ok(())
    }

    fn make_directory(&mut self, path: &Path) -> Result<(), DiskError> {
        let entry = above(self.root.as_fd(), path).map_err(|error| match path.is_root() {
            true => DiskError::Exists,
            false => error,
        })?;
        real(rustix::fs::mkdirat(&entry.directory, entry.name.as_str(), Mode::from_raw_mode(0o777)))?;
        marks::forget(&entry);
        Ok(())
    }

    fn mark(&mut self, path: &Path, changes: &[(Mark, Vec<u8>)]) -> Result<(), DiskError> {
        let (file, _) = self.reach(path, OFlags::RDONLY)?;
        let entry = above(self.root.as_fd(), path)?;
        marks::change(&file, &entry, changes)
    }

    fn keep(&mut self, key: &str, record: &[u8]) -> Result<(), DiskError> {
        if !is_key(key) || record.len() > RECORD_BYTES_MAX {
            return Err(DiskError::Long);
        }
        let is_there = |dockets| rustix::fs::statat(dockets, key, AtFlags::SYMLINK_NOFOLLOW).is_ok();
        let is_new = !self.dockets().is_some_and(is_there);
        if is_new && self.kept().len() >= RECORDS_MAX {
            return Err(DiskError::TooMany);
        }
        // The record is synced only if the data that it describes is synced at checkpoints.
        let last = self.settings.durability == Durability::AtCheckpoints;
        aside(|| {
            paths::in_state(self.root.as_fd(), "dockets", |dockets| {
                paths::replace(dockets.as_fd(), key, record, last)
            })
        })
    }

    fn fetch(&mut self, key: &str) -> Result<Vec<u8>, DiskError> {
        if !is_key(key) {
            return Err(DiskError::NotThere);
        }
        let dockets = self.dockets().ok_or(DiskError::NotThere)?;
        paths::whole(dockets.as_fd(), key, RECORD_BYTES_MAX)
    }

    fn forget(&mut self, key: &str) {
        if let (true, Some(dockets)) = (is_key(key), self.dockets()) {
            let _ = rustix::fs::unlinkat(&dockets, key, AtFlags::empty());
        }
    }

    fn kept(&mut self) -> Vec<String> {
        let names = self.dockets().map(|dockets| paths::names(dockets.as_fd(), 2 * RECORDS_MAX));
        let mut keys: Vec<String> =
            names.and_then(Result::ok).unwrap_or_default().into_iter().filter(|name| is_key(name)).collect();
        keys.sort_unstable();
        keys
    }

    fn date(&mut self) -> Date {
        Date(kiban_os::clock::unix_seconds() as i64)
    }
}
