//! Tests of the directory disk. Tests of behaviour that the memory disk shares run on both disks ([`each`]).

pub(super) use super::directory::{DirectoryDisk, OPEN_MAX};
use super::protected::{self, Protected};
use super::settings::{Durability, Settings};
use kiban_base::{Bytes, Rope};
use kiban_osi::ftam::filestore::memory::MemoryDisk;
use kiban_osi::ftam::filestore::{Disk, DiskError, Handle, Mark, Path, RECORD_BYTES_MAX, WriteMode};
use rustix::fs::{FileType, Mode, RenameFlags};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// A directory on this host. `root` is the filestore; `secret` is a file outside it.
struct Fixture(PathBuf);

impl Fixture {
    fn new() -> Fixture {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("kiban-disk-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let fixture = Fixture(std::env::temp_dir().join(name));
        fs::create_dir_all(fixture.root()).unwrap();
        fs::create_dir(fixture.0.join("outside")).unwrap();
        fs::write(fixture.0.join("outside/secret"), "secret").unwrap();
        fixture
    }

    fn root(&self) -> PathBuf {
        self.0.join("root")
    }

    fn disk(&self) -> DirectoryDisk {
        self.disk_with(Settings::default())
    }

    fn disk_with(&self, settings: Settings) -> DirectoryDisk {
        DirectoryDisk::open(&self.root(), settings).unwrap()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn path(text: &str) -> Path {
    Path::read(text).unwrap()
}

/// Runs a test on both kinds of disk, and checks that nothing is left open on the memory disk.
fn each(case: impl Fn(&mut dyn Disk)) {
    case(&mut Fixture::new().disk());
    let mut memory = MemoryDisk::new();
    case(&mut memory);
    assert_eq!(memory.loose_ends(), (0, 0));
}

fn put(disk: &mut dyn Disk, name: &str, write_mode: WriteMode, contents: &[u8]) -> Result<(), DiskError> {
    let begun = disk.begin(&path(name), write_mode)?;
    disk.write(begun.handle, 0, Rope::copied(contents))?;
    disk.finish(begun.handle, &[])
}

fn get(disk: &mut dyn Disk, name: &str) -> Result<Vec<u8>, DiskError> {
    let (handle, entry) = disk.open(&path(name))?;
    let read = disk.read(handle, 0, entry.bytes as usize).map(|bytes| bytes.to_vec());
    disk.leave(handle);
    read
}

#[test]
fn a_protected_file_is_refused_under_any_name() {
    let fixture = Fixture::new();
    let (users, root) = (fixture.0.join("users"), fixture.root());
    fs::write(&users, "hashes").unwrap();
    let protected = Protected::default();
    protected.add(&users);
    let mut disk = fixture.disk().protecting(protected.clone());
    put(&mut disk, "mine", WriteMode::New, b"mine").unwrap();
    fs::create_dir(root.join("home")).unwrap();
    fs::hard_link(&users, root.join("home/hard")).unwrap();
    fs::create_dir_all(root.join(".kiban-ftam/new")).unwrap();
    fs::hard_link(&users, root.join(".kiban-ftam/new/token")).unwrap();
    fs::rename(&users, root.join("moved")).unwrap();
    let mut home = disk.below(&path("home")).unwrap();
    for (disk, name) in [(&mut disk, "moved"), (&mut home, "hard")] {
        assert_eq!(get(disk, name), Err(DiskError::Denied));
        assert_eq!(disk.stat(&path(name)).map(|entry| entry.bytes), Err(DiskError::Denied));
        for write_mode in [WriteMode::Replace, WriteMode::Extend] {
            assert_eq!(put(disk, name, write_mode, b"x"), Err(DiskError::Denied), "{write_mode:?}");
        }
        assert_eq!(disk.rename(&path(name), &path("other")), Err(DiskError::Denied));
        assert_eq!(disk.remove(&path(name)), Err(DiskError::Denied));
        assert_eq!(disk.mark(&path(name), &[]), Err(DiskError::Denied));
    }
    let resumed = disk.resume(&path("new"), WriteMode::New, "token", 0).map(|begun| begun.token);
    assert_eq!(resumed, Err(DiskError::Denied));
    // A protected file is moved into place while a put is in progress.
    for write_mode in [WriteMode::Replace, WriteMode::Extend] {
        let begun = disk.begin(&path("mine"), write_mode).unwrap();
        disk.write(begun.handle, 0, Rope::copied(b"x")).unwrap();
        fs::rename(root.join("mine"), root.join("aside")).unwrap();
        fs::hard_link(root.join("moved"), root.join("mine")).unwrap();
        assert_eq!(disk.finish(begun.handle, &[]), Err(DiskError::Denied), "{write_mode:?}");
        fs::rename(root.join("aside"), root.join("mine")).unwrap();
    }
    assert_eq!(fs::read(root.join("moved")).unwrap(), b"hashes");
    // Replacements are protected as well. The old file stays protected until its last name is removed; then
    // its inode number may be reused.
    fs::write(&users, "new").unwrap();
    protected.add(&users);
    fs::hard_link(&users, root.join("new")).unwrap();
    assert_eq!(
        (get(&mut disk, "moved"), get(&mut disk, "new")),
        (Err(DiskError::Denied), Err(DiskError::Denied))
    );
    for name in ["moved", "home/hard", ".kiban-ftam/new/token"] {
        fs::remove_file(root.join(name)).unwrap();
    }
    fs::write(root.join("free"), "free").unwrap();
    assert_eq!(get(&mut disk, "free").unwrap(), b"free");
}

#[test]
fn a_replacement_of_a_protected_file_is_protected() {
    let fixture = Fixture::new();
    let (keys, root) = (fixture.0.join("keys"), fixture.root());
    let (users, key) = (keys.join("users"), keys.join("key"));
    fs::create_dir(&keys).unwrap();
    fs::write(&users, "hashes").unwrap();
    let protected = Protected::default();
    protected.add(&key);
    protected.add_opened(&users, &fs::File::open(&users).unwrap()).unwrap();
    let mut disk = fixture.disk().protecting(protected.clone());
    let replace = |path: &PathBuf, name: &str| {
        fs::write(fixture.0.join("new"), name).unwrap();
        fs::hard_link(fixture.0.join("new"), root.join(name)).unwrap();
        fs::rename(fixture.0.join("new"), path).unwrap();
    };
    // There are many more replacements than are remembered, and each file is accessed while it is in place.
    // One file is put at a path where none existed before.
    for number in 0..3 * protected::EARLIER_MAX {
        let name = format!("users-{number}");
        replace(&users, &name);
        assert_eq!(get(&mut disk, &name), Err(DiskError::Denied));
        if number == 0 {
            replace(&key, "key");
        }
        let oldest = format!("users-{}", number.saturating_sub(protected::EARLIER_MAX));
        for name in ["key", &oldest] {
            assert_eq!(get(&mut disk, name), Err(DiskError::Denied), "{name} after {number}");
        }
    }
    // The path first leads to no file, then through a symbolic link.
    fs::remove_file(&key).unwrap();
    assert_eq!(get(&mut disk, "key"), Err(DiskError::Denied));
    fs::write(root.join("linked"), "key").unwrap();
    symlink(root.join("linked"), &key).unwrap();
    assert_eq!(get(&mut disk, "linked"), Err(DiskError::Denied));
    // The file that the server is reading is pinned, although its path now leads to another file.
    fs::write(&users, "read").unwrap();
    let read = fs::File::open(&users).unwrap();
    fs::hard_link(&users, root.join("read")).unwrap();
    replace(&users, "not-read");
    protected.add_opened(&users, &read).unwrap();
    for name in ["read", "not-read"] {
        assert_eq!(get(&mut disk, name), Err(DiskError::Denied), "{name}");
    }
    put(&mut disk, "free", WriteMode::New, b"free").unwrap();
    assert_eq!(get(&mut disk, "free").unwrap(), b"free");
}

/// Requires an empty disk.
fn a_put_is_seen_when_it_is_whole(disk: &mut dyn Disk) {
    put(disk, "a", WriteMode::New, b"old").unwrap();
    let begun = disk.begin(&path("a"), WriteMode::Replace).unwrap();
    let mut pieces = Rope::copied(b"n");
    (0..1000).for_each(|_| pieces.push(Bytes::from_static(b"ew")));
    disk.write(begun.handle, 0, pieces.clone()).unwrap();
    disk.sync(begun.handle).unwrap();
    let (reader, entry) = disk.open(&path("a")).unwrap();
    assert_eq!(get(disk, "a").unwrap(), b"old");
    assert_eq!(disk.list(&Path::root(), 10).unwrap(), ["a"]);
    disk.finish(begun.handle, &[]).unwrap();
    assert_eq!(get(disk, "a").unwrap(), pieces.to_vec());
    assert_ne!(disk.stat(&path("a")).unwrap().stamp, entry.stamp);
    // A reader keeps reading the version that it opened.
    assert_eq!(disk.read(reader, 0, 100).unwrap(), "old");
    disk.leave(reader);
    put(disk, "a", WriteMode::Extend, b"!").unwrap();
    assert_eq!(get(disk, "a").unwrap().last(), Some(&b'!'));
}

#[test]
fn a_put_is_visible_only_when_complete_under_any_policy() {
    each(a_put_is_seen_when_it_is_whole);
    for durability in [Durability::Never, Durability::AtEnd, Durability::AtCheckpoints] {
        let fixture = Fixture::new();
        a_put_is_seen_when_it_is_whole(
            &mut fixture.disk_with(Settings { durability, ..Settings::default() }),
        );
        assert_eq!(fs::read_dir(fixture.root().join(".kiban-ftam/new")).unwrap().count(), 0);
    }
}

#[test]
fn no_name_and_no_link_leads_out_of_the_root() {
    let fixture = Fixture::new();
    let root = fixture.root();
    fs::create_dir(root.join("d")).unwrap();
    fs::write(root.join("d/f"), "x").unwrap();
    let outside = fixture.0.join("outside");
    symlink(&outside, root.join("link")).unwrap();
    symlink(&outside, root.join("d/link")).unwrap();
    symlink(outside.join("secret"), root.join("file-link")).unwrap();
    symlink("d", root.join("inner-link")).unwrap();
    symlink("../..", root.join("d/up")).unwrap();
    symlink("loop", root.join("loop")).unwrap();
    symlink("/proc/self/root", root.join("magic")).unwrap();
    let mut disk = fixture.disk();
    let refused = [
        ("link", DiskError::Outside),
        ("link/secret", DiskError::Outside),
        ("d/link/secret", DiskError::Outside),
        ("file-link", DiskError::Outside),
        ("inner-link/f", DiskError::Outside),
        ("d/up/outside/secret", DiskError::Outside),
        ("loop", DiskError::Outside),
        ("magic/etc/passwd", DiskError::Outside),
        ("/etc/passwd", DiskError::NotThere),
        ("outside/secret", DiskError::NotThere),
        ("d/f/g", DiskError::NotADirectory),
    ];
    for (name, error) in refused {
        assert_eq!(disk.stat(&path(name)).err(), Some(error), "look {name}");
        assert_eq!(disk.open(&path(name)).err(), Some(error), "open {name}");
        assert_eq!(disk.remove(&path(name)).err(), Some(error), "remove {name}");
        assert_eq!(disk.rename(&path(name), &path("taken")).err(), Some(error), "rename {name}");
        assert_eq!(disk.begin(&path(name), WriteMode::Extend).err(), Some(error), "extend {name}");
        assert!(disk.list(&path(name), 10).is_err(), "list {name}");
        assert!(disk.mark(&path(name), &[(Mark::Account, b"x".to_vec())]).is_err(), "mark {name}");
        if error == DiskError::Outside {
            assert!(put(&mut disk, name, WriteMode::Replace, b"x").is_err(), "put {name}");
            assert!(put(&mut disk, name, WriteMode::New, b"x").is_err(), "put {name}");
            assert!(disk.make_directory(&path(name)).is_err(), "make {name}");
        }
    }
    assert_eq!(put(&mut disk, "link/new", WriteMode::New, b"x"), Err(DiskError::Outside));
    assert_eq!(disk.rename(&path("d/f"), &path("link/f")), Err(DiskError::Outside));
    assert_eq!(disk.make_directory(&path("link/d")), Err(DiskError::Outside));
    assert_eq!(disk.below(&path("link")).err(), Some(DiskError::Outside));
    assert_eq!(disk.list(&Path::root(), 10).unwrap(), ["d"], "links are not told of");
    assert_eq!(fs::read(outside.join("secret")).unwrap(), b"secret");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
}

#[test]
fn a_link_in_place_of_an_internal_directory_is_not_followed() {
    let fixture = Fixture::new();
    symlink(fixture.0.join("outside"), fixture.root().join(".kiban-ftam")).unwrap();
    let mut disk = fixture.disk();
    assert_eq!(put(&mut disk, "a", WriteMode::New, b"x"), Err(DiskError::Outside));
    assert_eq!(disk.keep("docket", b"x"), Err(DiskError::Outside));
    assert_eq!(fs::read_dir(fixture.0.join("outside")).unwrap().count(), 1);
}

#[test]
fn links_swapped_in_a_race_lead_nowhere_else() {
    let fixture = Fixture::new();
    let root = fixture.root();
    fs::create_dir(root.join("d")).unwrap();
    fs::write(root.join("d/secret"), "public").unwrap();
    symlink(fixture.0.join("outside"), root.join("link")).unwrap();
    let mut disk = fixture.disk_with(Settings { durability: Durability::Never, ..Settings::default() });
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                // A directory and a symbolic link to another directory are exchanged atomically.
                let (d, link) = (root.join("d"), root.join("link"));
                let _ = rustix::fs::renameat_with(
                    rustix::fs::CWD,
                    &d,
                    rustix::fs::CWD,
                    &link,
                    RenameFlags::EXCHANGE,
                );
            }
        });
        let (mut seen, mut refused) = (0, 0);
        for _ in 0..3000 {
            match get(&mut disk, "d/secret") {
                Ok(contents) => {
                    assert_eq!(contents, b"public");
                    seen += 1;
                }
                Err(_) => refused += 1,
            }
            let _ = put(&mut disk, "d/new", WriteMode::Replace, b"x");
            let _ = disk.remove(&path("d/new"));
            let _ = disk.make_directory(&path("d/made"));
            let _ = disk.remove(&path("d/made"));
        }
        stop.store(true, Relaxed);
        assert!(seen + refused == 3000);
    });
    let mut outside: Vec<_> =
        fs::read_dir(fixture.0.join("outside")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    outside.sort();
    assert_eq!(outside, ["secret"]);
    assert_eq!(fs::read(fixture.0.join("outside/secret")).unwrap(), b"secret");
}

#[test]
fn long_and_unusual_names_work_up_to_the_limit() {
    let fixture = Fixture::new();
    let mut disk = fixture.disk();
    let long = "x".repeat(255);
    for name in
        [long.as_str(), " ", "-rf", "*", "a b", "%2e%2e", "..\\..", "~", "CON", "Grüße", "...", "'\"$(x)"]
    {
        put(&mut disk, name, WriteMode::New, name.as_bytes())
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        disk.mark(&path(name), &[(Mark::Account, b"x".to_vec())]).unwrap();
        assert_eq!(get(&mut disk, name).unwrap(), name.as_bytes());
        assert_eq!(disk.stat(&path(name)).unwrap().marks.text(Mark::Account), Some("x"));
        assert_eq!(disk.list(&Path::root(), 10).unwrap(), [name]);
        disk.remove(&path(name)).unwrap();
    }
    // Names that a peer cannot express, and special files, are not listed.
    fs::write(fixture.root().join("a\nb"), "").unwrap();
    let pipe = fixture.root().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    assert_eq!(disk.list(&Path::root(), 10).unwrap(), Vec::<String>::new());
    assert_eq!(disk.open(&path("pipe")).err(), Some(DiskError::NotAFile));
    assert_eq!(disk.begin(&path("pipe"), WriteMode::Replace).err(), Some(DiskError::NotAFile));
}

#[test]
fn an_interrupted_transfer_is_resumed_by_only_one_writer() {
    each(|disk| {
        put(disk, "a", WriteMode::New, b"old").unwrap();
        let begun = disk.begin(&path("a"), WriteMode::Extend).unwrap();
        disk.write(begun.handle, 0, Rope::copied(b"settled and more")).unwrap();
        assert_eq!(disk.resume(&path("a"), WriteMode::Extend, &begun.token, 7).err(), Some(DiskError::Busy));
        disk.leave(begun.handle);
        assert_eq!(
            disk.resume(&path("a"), WriteMode::Extend, &begun.token, 99).err(),
            Some(DiskError::Changed)
        );
        assert_eq!(disk.resume(&path("a"), WriteMode::Extend, "no-such", 1).err(), Some(DiskError::NotThere));
        assert_eq!(
            disk.resume(&path("a"), WriteMode::Extend, "../dockets", 1).err(),
            Some(DiskError::NotThere)
        );
        let again = disk.resume(&path("a"), WriteMode::Extend, &begun.token, 7).unwrap();
        disk.write(again.handle, 7, Rope::copied(b"!")).unwrap();
        disk.finish(again.handle, &[]).unwrap();
        assert_eq!(get(disk, "a").unwrap(), b"oldsettled!");
        let begun = disk.begin(&path("b"), WriteMode::New).unwrap();
        disk.leave(begun.handle);
        disk.discard(&path("b"), &begun.token);
        disk.discard(&path("b"), &begun.token);
        assert_eq!(disk.resume(&path("b"), WriteMode::New, &begun.token, 0).err(), Some(DiskError::NotThere));
    });
    // Two disks share one directory, as if they were in two processes.
    let fixture = Fixture::new();
    let (mut disk, mut other) = (fixture.disk(), fixture.disk());
    let begun = disk.begin(&path("a"), WriteMode::New).unwrap();
    assert_eq!(other.resume(&path("a"), WriteMode::New, &begun.token, 0).err(), Some(DiskError::Busy));
    drop(disk);
    let again = other.resume(&path("a"), WriteMode::New, &begun.token, 0).unwrap();
    other.discard(&path("a"), &again.token);
    other.leave(again.handle);
    other.discard(&path("a"), &again.token);
    assert_eq!(other.resume(&path("a"), WriteMode::New, &begun.token, 0).err(), Some(DiskError::NotThere));
}

#[test]
fn after_a_reboot_only_synced_transfers_are_resumed() {
    for (durability, expected) in [
        (Durability::Never, Some(DiskError::Changed)),
        (Durability::AtEnd, Some(DiskError::Changed)),
        (Durability::AtCheckpoints, None),
    ] {
        let fixture = Fixture::new();
        let mut disk = fixture.disk_with(Settings { durability, ..Settings::default() });
        let begun = disk.begin(&path("a"), WriteMode::New).unwrap();
        disk.write(begun.handle, 0, Rope::copied(b"contents")).unwrap();
        disk.sync(begun.handle).unwrap();
        disk.leave(begun.handle);
        let left = fixture.root().join(".kiban-ftam/new").join(&begun.token);
        fs::File::options().write(true).open(left).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
        assert_eq!(
            disk.resume(&path("a"), WriteMode::New, &begun.token, 8).err(),
            expected,
            "{durability:?}"
        );
    }
}

#[test]
fn unresumed_transfers_expire_and_their_number_is_limited() {
    let fixture = Fixture::new();
    let settings = Settings { left_max: 20, ..Settings::default() };
    let mut disk = fixture.disk_with(settings);
    let first = disk.begin(&path("a"), WriteMode::New).unwrap();
    disk.leave(first.handle);
    for _ in 1..settings.left_max {
        let begun = disk.begin(&path("a"), WriteMode::New).unwrap();
        disk.leave(begun.handle);
    }
    assert_eq!(disk.begin(&path("a"), WriteMode::New).err(), Some(DiskError::TooMany));
    let new = fixture.root().join(".kiban-ftam/new");
    let old = fs::File::options().write(true).open(new.join(&first.token)).unwrap();
    old.set_modified(std::time::UNIX_EPOCH).unwrap();
    let begun = disk.begin(&path("a"), WriteMode::New).unwrap();
    disk.finish(begun.handle, &[]).unwrap();
    assert!(!new.join(&first.token).exists());
}

#[test]
fn a_change_during_a_read_is_reported() {
    let fixture = Fixture::new();
    let mut disk = fixture.disk();
    fs::write(fixture.root().join("a"), "contents").unwrap();
    for change in ["contents and more", "con", ""] {
        let (reader, _) = disk.open(&path("a")).unwrap();
        assert!(disk.read(reader, 0, 100).is_ok());
        fs::write(fixture.root().join("a"), change).unwrap();
        assert_eq!(disk.read(reader, 0, 100), Err(DiskError::Changed), "{change}");
        disk.leave(reader);
    }
}

#[test]
fn a_failed_put_leaves_the_old_file() {
    each(|disk| {
        put(disk, "a", WriteMode::New, b"old").unwrap();
        for write_mode in [WriteMode::Replace, WriteMode::Extend] {
            let begun = disk.begin(&path("a"), write_mode).unwrap();
            disk.write(begun.handle, 0, Rope::copied(b"new")).unwrap();
            assert_eq!(disk.write(begun.handle, 4, Rope::copied(b"gap")), Err(DiskError::Unable));
            disk.abandon(begun.handle);
            assert_eq!(get(disk, "a").unwrap(), b"old");
        }
    });
    // Another writer created the file first.
    let fixture = Fixture::new();
    let mut disk = fixture.disk();
    let begun = disk.begin(&path("b"), WriteMode::New).unwrap();
    fs::write(fixture.root().join("b"), "faster").unwrap();
    assert_eq!(disk.finish(begun.handle, &[]), Err(DiskError::Exists));
    let begun = disk.begin(&path("c"), WriteMode::Replace).unwrap();
    fs::create_dir(fixture.root().join("c")).unwrap();
    assert_eq!(disk.finish(begun.handle, &[]), Err(DiskError::NotAFile));
    let begun = disk.begin(&path("b"), WriteMode::Extend).unwrap();
    fs::remove_file(fixture.root().join("b")).unwrap();
    symlink(fixture.0.join("outside/secret"), fixture.root().join("b")).unwrap();
    assert_eq!(disk.finish(begun.handle, &[]), Err(DiskError::Outside));
    assert_eq!(fs::read_dir(fixture.root().join(".kiban-ftam/new")).unwrap().count(), 0);
}

#[test]
fn a_full_disk_is_reported_and_changes_nothing() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let fixture = Fixture::new();
    let small = fixture.root().join("small");
    fs::create_dir(&small).unwrap();
    let flags = rustix::mount::MountFlags::empty();
    // Without root privileges, nothing can be mounted, so the test ends here.
    let Ok(()) = rustix::mount::mount("tmpfs", &small, "tmpfs", flags, Some(c"size=256k")) else { return };
    let tried = std::panic::catch_unwind(|| {
        let mut disk = DirectoryDisk::open(&small, Settings::default()).unwrap();
        put(&mut disk, "a", WriteMode::New, b"old").unwrap();
        for write_mode in [WriteMode::Replace, WriteMode::Extend] {
            let begun = disk.begin(&path("a"), write_mode).unwrap();
            assert_eq!(disk.write(begun.handle, 0, vec![7; 512 * 1024].into()), Err(DiskError::Full));
            disk.abandon(begun.handle);
            assert_eq!(get(&mut disk, "a").unwrap(), b"old");
        }
        // The data fits on the disk once, but not a second time after the existing contents.
        let begun = disk.begin(&path("a"), WriteMode::Extend).unwrap();
        disk.write(begun.handle, 0, vec![7; 150 * 1024].into()).unwrap();
        assert_eq!(disk.finish(begun.handle, &[]), Err(DiskError::Full));
        assert_eq!(get(&mut disk, "a").unwrap(), b"old");
        put(&mut disk, "b", WriteMode::New, &[7; 100 * 1024]).unwrap();
    });
    rustix::mount::unmount(&small, rustix::mount::UnmountFlags::DETACH).unwrap();
    tried.unwrap();
}

#[test]
fn marks_stay_with_a_file_with_and_without_extended_attributes() {
    // Each file system may behave differently: older kernels do not support user attributes on memory file
    // systems.
    for root in ["/dev/shm", "/var/tmp"] {
        let root = PathBuf::from(root).join(format!("kiban-marks-{}", std::process::id()));
        if fs::create_dir(&root).is_err() {
            continue;
        }
        let mut disk = DirectoryDisk::open(&root, Settings::default()).unwrap();
        disk.make_directory(&path("d")).unwrap();
        put(&mut disk, "d/f", WriteMode::New, b"x").unwrap();
        let long = vec![7; kiban_osi::ftam::filestore::MARK_BYTES_MAX];
        disk.mark(&path("d/f"), &[(Mark::Account, b"sales".to_vec()), (Mark::Legal, long.clone())]).unwrap();
        fs::set_permissions(root.join("d/f"), fs::Permissions::from_mode(0o4640)).unwrap();
        let begun = disk.begin(&path("d/f"), WriteMode::Replace).unwrap();
        disk.finish(begun.handle, &[(Mark::Creator, b"me".to_vec())]).unwrap();
        disk.rename(&path("d/f"), &path("g")).unwrap();
        let marks = disk.stat(&path("g")).unwrap().marks;
        assert_eq!((marks.text(Mark::Account), marks.text(Mark::Creator)), (Some("sales"), Some("me")));
        assert_eq!(marks.get(Mark::Legal), Some(&long[..]));
        assert_eq!(fs::metadata(root.join("g")).unwrap().permissions().mode() & 0o7777, 0o640);
        disk.mark(&path("g"), &[(Mark::Account, vec![])]).unwrap();
        assert_eq!(disk.stat(&path("g")).unwrap().marks.text(Mark::Account), None);
        assert_eq!(disk.mark(&path("g"), &[(Mark::Legal, vec![0; 600])]), Err(DiskError::Long));
        // A later file with the same name does not inherit the marks.
        disk.remove(&path("g")).unwrap();
        put(&mut disk, "g", WriteMode::New, b"x").unwrap();
        assert!(disk.stat(&path("g")).unwrap().marks.is_empty());
        disk.mark(&path("d"), &[(Mark::Account, b"x".to_vec())]).unwrap();
        disk.remove(&path("d")).unwrap();
        assert_eq!(disk.list(&Path::root(), 10).unwrap(), ["g"]);
        fs::remove_dir_all(&root).unwrap();
    }
}

#[test]
fn a_directory_moves_with_its_contents_and_files_keep_their_marks() {
    each(|disk| {
        disk.make_directory(&path("d")).unwrap();
        put(disk, "d/f", WriteMode::New, b"x").unwrap();
        let marks = [(Mark::Account, b"sales".to_vec()), (Mark::Legal, b"none".to_vec())];
        disk.mark(&path("d/f"), &marks).unwrap();
        disk.rename(&path("d"), &path("e")).unwrap();
        let begun = disk.begin(&path("e/f"), WriteMode::Replace).unwrap();
        disk.finish(begun.handle, &[(Mark::Legal, vec![])]).unwrap();
        let marks = disk.stat(&path("e/f")).unwrap().marks;
        assert_eq!((marks.text(Mark::Account), marks.text(Mark::Legal)), (Some("sales"), None));
        assert_eq!(disk.stat(&path("d")).err(), Some(DiskError::NotThere));
    });
}

#[test]
fn records_are_kept_by_their_keys_and_outlive_the_process() {
    each(|disk| {
        assert_eq!(disk.kept(), Vec::<String>::new());
        disk.keep("docket-2", b"two").unwrap();
        disk.keep("docket-1", b"one").unwrap();
        disk.keep("docket-1", b"one again").unwrap();
        assert_eq!(disk.kept(), ["docket-1", "docket-2"]);
        assert_eq!(disk.fetch("docket-1").unwrap(), b"one again");
        disk.forget("docket-1");
        disk.forget("docket-1");
        for key in ["docket-1", "../new/x"] {
            assert_eq!(disk.fetch(key), Err(DiskError::NotThere));
        }
        for key in ["../x", "Key", ""] {
            assert_eq!(disk.keep(key, b""), Err(DiskError::Long));
        }
        assert_eq!(disk.keep("x", &[0; RECORD_BYTES_MAX + 1]), Err(DiskError::Long));
    });
    let fixture = Fixture::new();
    fixture.disk().keep("docket-1", b"one").unwrap();
    assert_eq!(fixture.disk().fetch("docket-1").unwrap(), b"one");
}

#[test]
fn directory_operations_and_their_errors() {
    each(|disk| {
        disk.make_directory(&path("d")).unwrap();
        put(disk, "d/f", WriteMode::New, b"x").unwrap();
        put(disk, "f", WriteMode::New, b"x").unwrap();
        let rows = [
            (disk.stat(&path("g")).err(), DiskError::NotThere),
            (disk.stat(&path("f/g")).err(), DiskError::NotADirectory),
            (disk.open(&path("d")).err(), DiskError::NotAFile),
            (disk.open(&path(".")).err(), DiskError::NotAFile),
            (disk.list(&path("f"), 10).err(), DiskError::NotADirectory),
            (disk.list(&path("."), 1).err(), DiskError::TooMany),
            (disk.begin(&path("f"), WriteMode::New).err(), DiskError::Exists),
            (disk.begin(&path("g"), WriteMode::Extend).err(), DiskError::NotThere),
            (disk.begin(&path("d"), WriteMode::Replace).err(), DiskError::NotAFile),
            (disk.begin(&path("."), WriteMode::Replace).err(), DiskError::NotAFile),
            (disk.begin(&path("."), WriteMode::New).err(), DiskError::NotAFile),
            (disk.begin(&path("g/h"), WriteMode::New).err(), DiskError::NotThere),
            (disk.begin(&path("f/h"), WriteMode::New).err(), DiskError::NotADirectory),
            (disk.rename(&path("f"), &path("d/f")).err(), DiskError::Exists),
            (disk.rename(&path("d"), &path("d/e")).err(), DiskError::Unable),
            (disk.rename(&path("g"), &path("h")).err(), DiskError::NotThere),
            (disk.remove(&path("d")).err(), DiskError::NotEmpty),
            (disk.remove(&path(".")).err(), DiskError::Denied),
            (disk.make_directory(&path("d")).err(), DiskError::Exists),
            (disk.make_directory(&path(".")).err(), DiskError::Exists),
            (disk.read(Handle(99), 0, 1).err(), DiskError::Unable),
        ];
        for (at, (given, expected)) in rows.into_iter().enumerate() {
            assert_eq!(given, Some(expected), "row {at}");
        }
        assert_eq!(disk.list(&path("."), 2).unwrap(), ["d", "f"]);
        assert_eq!(disk.list(&path("d"), 3).unwrap(), ["f"]);
        disk.remove(&path("d/f")).unwrap();
        disk.remove(&path("d")).unwrap();
    });
    let fixture = Fixture::new();
    let mut disk = fixture.disk();
    disk.make_directory(&path("d")).unwrap();
    put(&mut disk, "d/f", WriteMode::New, b"x").unwrap();
    let mut below = disk.below(&path("d")).unwrap();
    assert_eq!(below.list(&Path::root(), 9).unwrap(), ["f"]);
    assert_eq!(below.stat(&path("f")).unwrap().bytes, 1);
    disk.remove(&path("d/f")).unwrap();
    // A directory is not empty if it has unfinished contents, since they may be resumed.
    let begun = disk.begin(&path("d/g"), WriteMode::New).unwrap();
    assert_eq!(disk.remove(&path("d")).err(), Some(DiskError::NotEmpty));
    disk.abandon(begun.handle);
    disk.remove(&path("d")).unwrap();
    put(&mut disk, "f", WriteMode::New, b"x").unwrap();
    let opened: Vec<_> = (0..OPEN_MAX).map(|_| disk.open(&path("f")).unwrap().0).collect();
    assert_eq!(disk.open(&path("f")).err(), Some(DiskError::TooMany));
    opened.into_iter().for_each(|handle| disk.leave(handle));
}

/// Each client removes the disk's own directories after its transfer, while others use them.
#[test]
fn the_disks_own_directories_may_disappear_at_any_time() {
    let fixture = Fixture::new();
    std::thread::scope(|scope| {
        let clients = ["one", "other", "third", "fourth"].map(|name| {
            let root = fixture.root();
            let mut disk =
                fixture.disk_with(Settings { durability: Durability::Never, ..Settings::default() });
            scope.spawn(move || {
                for round in 0..500_u32 {
                    put(&mut disk, name, WriteMode::Replace, &round.to_be_bytes())?;
                    disk.keep(name, b"record")?;
                    disk.fetch(name)?;
                    disk.forget(name);
                    super::remove_empty_state(&root);
                }
                Ok::<(), DiskError>(())
            })
        });
        for client in clients {
            assert_eq!(client.join().expect("it does not panic"), Ok(()));
        }
    });
}
