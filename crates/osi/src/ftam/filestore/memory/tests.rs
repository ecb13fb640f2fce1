//! Tests of features that only the disk in memory has. The tests of the directory disk cover what all disks
//! share.

use super::disk::{Call, MemoryDisk};
use crate::ftam::filestore::{Disk, DiskError, Path, WriteMode};
use kiban_base::Rope;

fn path(text: &str) -> Path {
    Path::read(text).unwrap()
}

fn put(disk: &mut MemoryDisk, name: &str, write_mode: WriteMode, pieces: &[&str]) -> Result<(), DiskError> {
    let begun = disk.begin(&path(name), write_mode)?;
    let mut at = 0;
    for piece in pieces {
        if let Err(disk_error) = disk.write(begun.handle, at, Rope::copied(piece.as_bytes())) {
            disk.abandon(begun.handle);
            return Err(disk_error);
        }
        at += piece.len() as u64;
    }
    disk.finish(begun.handle, &[])
}

#[test]
fn a_failed_put_leaves_the_old_file() {
    let mut disk = MemoryDisk::with_capacity(10);
    put(&mut disk, "a", WriteMode::New, &["old"]).unwrap();
    for write_mode in [WriteMode::Replace, WriteMode::Extend] {
        assert_eq!(put(&mut disk, "a", write_mode, &["1234", "5678"]), Err(DiskError::Full));
        assert_eq!(disk.contents(&path("a")), Some(&b"old"[..]));
    }
    disk.fail_after(Call::Finish, 0, DiskError::Failed);
    assert_eq!(put(&mut disk, "a", WriteMode::Replace, &["1"]), Err(DiskError::Failed));
    assert_eq!(disk.contents(&path("a")), Some(&b"old"[..]));
    put(&mut disk, "a", WriteMode::Extend, &["er"]).unwrap();
    assert_eq!(disk.contents(&path("a")), Some(&b"older"[..]));
    assert_eq!(disk.loose_ends(), (0, 0));
}

#[test]
fn a_change_during_a_read_is_reported() {
    let mut disk = MemoryDisk::new();
    disk.put(&path("a"), b"contents");
    let (reader, _) = disk.open(&path("a")).unwrap();
    assert_eq!(disk.read(reader, 0, 3).unwrap(), "con");
    disk.put(&path("a"), b"contentS");
    assert_eq!(disk.read(reader, 3, 3), Err(DiskError::Changed));
}

#[test]
fn synced_data_outlives_the_process() {
    let mut disk = MemoryDisk::new();
    let begun = disk.begin(&path("a"), WriteMode::New).unwrap();
    disk.write(begun.handle, 0, Rope::copied(b"settled")).unwrap();
    disk.sync(begun.handle).unwrap();
    disk.write(begun.handle, 7, Rope::copied(b"lost")).unwrap();
    disk.keep("docket-1", b"record").unwrap();
    assert_eq!(disk.resume(&path("a"), WriteMode::New, &begun.token, 7), Err(DiskError::Busy));
    disk.crash();
    assert_eq!(disk.write(begun.handle, 7, Rope::new()), Err(DiskError::Unable));
    assert_eq!(disk.resume(&path("a"), WriteMode::New, &begun.token, 8), Err(DiskError::Changed));
    assert_eq!(disk.resume(&path("b"), WriteMode::New, &begun.token, 7), Err(DiskError::Changed));
    let again = disk.resume(&path("a"), WriteMode::New, &begun.token, 7).unwrap();
    disk.write(again.handle, 7, Rope::copied(b"!")).unwrap();
    disk.finish(again.handle, &[]).unwrap();
    assert_eq!(disk.contents(&path("a")), Some(&b"settled!"[..]));
    assert_eq!(disk.fetch("docket-1").unwrap(), b"record");
}

#[test]
fn a_denied_file_exists_but_cannot_be_opened() {
    let mut disk = MemoryDisk::new();
    disk.put(&path("secret"), b"x");
    disk.deny(&path("secret"));
    assert_eq!(disk.stat(&path("secret")).err(), Some(DiskError::Denied));
    assert_eq!(disk.list(&path("."), 3).unwrap(), ["secret"]);
}

#[test]
fn every_call_can_fail_at_will() {
    let mut disk = MemoryDisk::new();
    disk.put(&path("a"), b"x");
    disk.fail_after(Call::Look, 2, DiskError::Failed);
    let looks = [0; 4].map(|_| disk.stat(&path("a")).err());
    assert_eq!(looks, [None, None, Some(DiskError::Failed), None]);
}
