//! File attributes ("marks") on a host: extended attributes or, if the file system has none, a side file.

use super::paths::{self, DirectoryEntry, disk_error, real};
use kiban_osi::ftam::filestore::{DiskError, MARK_BYTES_MAX, Mark, Marks};
use rustix::fs::{AtFlags, XattrFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};

/// Maximum length of a side file: two hex digits per byte, one keyword and two delimiters per mark.
const FILE_BYTES_MAX: usize = Mark::ALL.len() * (2 * MARK_BYTES_MAX + 32);

/// Maximum length of a list of attribute names that is searched for marks.
const NAMES_BYTES_MAX: usize = 1024;

fn attribute(mark: Mark) -> String {
    format!("user.ftam.{}", mark.word())
}

fn cannot(errno: Errno) -> bool {
    matches!(errno, Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS)
}

/// Reads a file's marks: its extended attributes, if `file` could be opened, and the side file of `entry`.
pub(super) fn read(file: Option<&OwnedFd>, entry: Option<&DirectoryEntry>) -> Result<Marks, DiskError> {
    let mut marks = beside(entry);
    let Some(file) = file else { return Ok(marks) };
    // One call shows which marks a file has; most have none, or few.
    let mut names = [0; NAMES_BYTES_MAX];
    let names = match rustix::fs::flistxattr(file, &mut names) {
        Ok(bytes) => Some(&names[..bytes]),
        Err(errno) if cannot(errno) => return Ok(marks),
        // RANGE: there are many attributes of other programs, so each mark is looked for.
        Err(_) => None,
    };
    let is_there = |mark: &Mark| {
        let name = attribute(*mark);
        names.is_none_or(|names| names.split(|byte| *byte == 0).any(|other| other == name.as_bytes()))
    };
    for mark in Mark::ALL.into_iter().filter(is_there) {
        let mut value = [0; MARK_BYTES_MAX];
        match rustix::fs::fgetxattr(file, attribute(mark), &mut value) {
            Ok(bytes) => drop(marks.set(mark, &value[..bytes])),
            // RANGE: the value is longer than any mark that this server sets.
            Err(Errno::NODATA | Errno::RANGE) => {}
            Err(errno) => return Err(disk_error(errno)),
        }
    }
    Ok(marks)
}

/// Changes the marks of a file that is, or will be, located at `entry`.
pub(super) fn change(
    file: &OwnedFd,
    entry: &DirectoryEntry,
    changes: &[(Mark, Vec<u8>)],
) -> Result<(), DiskError> {
    for (at, (mark, value)) in changes.iter().enumerate() {
        if value.len() > MARK_BYTES_MAX {
            return Err(DiskError::Long);
        }
        let result = match value.is_empty() {
            true => rustix::fs::fremovexattr(file, attribute(*mark)),
            false => rustix::fs::fsetxattr(file, attribute(*mark), value, XattrFlags::empty()),
        };
        match result {
            Ok(()) | Err(Errno::NODATA) => {}
            Err(Errno::OPNOTSUPP) => return change_beside(entry, &changes[at..]),
            Err(errno) => return Err(disk_error(errno)),
        }
    }
    Ok(())
}

/// Copies a file's marks to the file that replaces it.
pub(super) fn carry(old: &OwnedFd, new: &OwnedFd) -> Result<(), DiskError> {
    for (mark, value) in read(Some(old), None)?.each() {
        real(rustix::fs::fsetxattr(new, attribute(mark), value, XattrFlags::empty()))?;
    }
    Ok(())
}

/// Renames a file's side file after the file was renamed.
pub(super) fn follow(from: &DirectoryEntry, to: &DirectoryEntry) {
    forget(to);
    if let Some(old) = paths::state_if_there(from.directory.as_fd(), "attributes")
        && rustix::fs::statat(&old, from.name.as_str(), AtFlags::SYMLINK_NOFOLLOW).is_ok()
    {
        let _ = paths::in_state(to.directory.as_fd(), "attributes", |new| {
            real(rustix::fs::renameat(&old, from.name.as_str(), new, to.name.as_str()))
        });
    }
}

/// Removes the side file of a file that was deleted.
pub(super) fn forget(entry: &DirectoryEntry) {
    if let Some(attributes) = paths::state_if_there(entry.directory.as_fd(), "attributes") {
        let _ = rustix::fs::unlinkat(&attributes, entry.name.as_str(), AtFlags::empty());
    }
}

fn beside(entry: Option<&DirectoryEntry>) -> Marks {
    let mut marks = Marks::default();
    let text = entry.and_then(|entry| {
        let attributes = paths::state_if_there(entry.directory.as_fd(), "attributes")?;
        String::from_utf8(paths::whole(attributes.as_fd(), &entry.name, FILE_BYTES_MAX).ok()?).ok()
    });
    for line in text.iter().flat_map(|text| text.lines()) {
        if let Some((word, digits)) = line.split_once(' ')
            && let (Some(mark), Some(value)) = (Mark::of_word(word), bytes_of(digits))
        {
            let _ = marks.set(mark, &value);
        }
    }
    marks
}

fn change_beside(entry: &DirectoryEntry, changes: &[(Mark, Vec<u8>)]) -> Result<(), DiskError> {
    let mut marks = beside(Some(entry));
    marks.change(changes);
    if marks.is_empty() {
        forget(entry);
        return Ok(());
    }
    let lines: String = marks
        .each()
        .map(|(mark, value)| {
            let digits: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{} {digits}\n", mark.word())
        })
        .collect();
    paths::in_state(entry.directory.as_fd(), "attributes", |attributes| {
        paths::replace(attributes.as_fd(), &entry.name, lines.as_bytes(), false)
    })
}

fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}
