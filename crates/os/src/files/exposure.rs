//! Keeps a server's own files out of the directory that it serves.
//!
//! Purpose          users with read access to a served directory must not be able to fetch password hashes or
//!                  private keys from it. Users with write access must not be able to replace files that the
//!                  server trusts.
//! Method           a path is resolved one component at a time. Neither the file nor any symbolic link on the
//!                  way may be below the directory, because a user who can replace such a link can choose the
//!                  file.
//! Below            a path is below the directory if the directory is among its ancestors, by device and
//!                  inode, or if both are on one file system and its path there is within the directory's.
//!                  The second rule covers bind mounts, which show a directory in a second place (mountinfo,
//!                  proc_pid_mountinfo(5)).
//! Hard links       the other names of a file with several hard links cannot be found quickly, so such a file
//!                  is rejected if it is on one of the directory's file systems.
//! Limits           the check runs when a server starts and when it rereads the files. The filestore
//!                  (`Protected`, in `kiban-ftam`) must reject a file that is moved into the directory in
//!                  between. The layers of an overlay are not examined.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Maximum number of symbolic links followed to resolve one path; Linux has the same limit.
const LINKS_MAX: usize = 40;

/// A file or directory that must not be served.
#[derive(Clone, Copy, Debug)]
pub struct Private<'a> {
    /// The name of the file in messages, such as "the users file".
    pub what: &'a str,
    /// Its path.
    pub path: &'a Path,
}

/// The reason why a directory must not be served.
#[derive(Debug)]
#[non_exhaustive]
pub enum ExposureError {
    /// A private file, or a link on the way to it, is below the directory.
    Inside {
        /// The name of the file, from [`Private::what`].
        what: String,
        /// The file's path, as given by the caller.
        path: PathBuf,
        /// The location of the file or link.
        place: PathBuf,
        /// The served directory.
        root: PathBuf,
    },
    /// A private file has other names (hard links), which may be below the directory.
    Linked {
        /// The name of the file, from [`Private::what`].
        what: String,
        /// The file's path, as given by the caller.
        path: PathBuf,
        /// The number of the file's hard links.
        names: u64,
        /// The served directory.
        root: PathBuf,
    },
    /// A path cannot be examined.
    Unreadable {
        /// The path.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

impl fmt::Display for ExposureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExposureError::Inside { what, path, place, root } => {
                write!(f, "{what} {} is inside the served directory {}", path.display(), root.display())?;
                // Omit the location if it is only the absolute form of the path.
                if std::path::absolute(path).is_ok_and(|path| path != *place) {
                    write!(f, " (as {})", place.display())?;
                }
                f.write_str(
                    ", where users could fetch or replace it; move it out, or serve another directory",
                )
            }
            ExposureError::Linked { what, path, names, root } => write!(
                f,
                "{what} {} has {names} names (hard links), and one may be inside the served directory {}; \
                 replace it with a copy (cp, then mv)",
                path.display(),
                root.display()
            ),
            ExposureError::Unreadable { path, error } => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for ExposureError {}

/// Checks that no private file or directory can be reached through the served directory `root`. A private
/// path that does not exist is checked at the location where it would be.
///
/// # Errors
/// A private path can be reached, or a path cannot be examined.
pub fn check(root: &Path, private: &[Private<'_>]) -> Result<(), ExposureError> {
    let unreadable = |path: &Path| {
        let path = path.to_owned();
        move |error| ExposureError::Unreadable { path, error }
    };
    let served = Served::new(root).map_err(unreadable(root))?;
    for Private { what, path } in private {
        let places = places(path).map_err(unreadable(path))?;
        for place in &places {
            if served.contains(place).map_err(unreadable(place))? {
                let (path, place) = (path.to_path_buf(), place.clone());
                return Err(ExposureError::Inside { what: (*what).into(), path, place, root: root.into() });
            }
        }
        let about = places.last().and_then(|place| fs::symlink_metadata(place).ok());
        let Some(about) = about.filter(Metadata::is_file) else { continue };
        if about.nlink() > 1 && served.devices.contains(&about.dev()) {
            let (path, names) = (path.to_path_buf(), about.nlink());
            return Err(ExposureError::Linked { what: (*what).into(), path, names, root: root.into() });
        }
    }
    Ok(())
}

/// A directory that is served, with the mounts below it.
struct Served {
    /// Device and inode of the directory and of the mounts below it.
    tops: Vec<(u64, u64)>,
    /// The same directories, each as a file system and a path within it.
    sources: Vec<(OsString, PathBuf)>,
    /// File systems on which a hard link could be made below the directory.
    devices: Vec<u64>,
    mounts: Vec<Mount>,
}

impl Served {
    fn new(root: &Path) -> io::Result<Served> {
        let root = root.canonicalize()?;
        let about = fs::metadata(&root)?;
        // Without /proc, only the ancestors are checked.
        let mounts =
            fs::read("/proc/thread-self/mountinfo").map_or_else(|_| Vec::new(), |text| mounts(&text));
        let mut tops = vec![(about.dev(), about.ino())];
        let mut sources = Vec::from_iter(source(&mounts, &root));
        for mount in mounts.iter().filter(|mount| mount.point.starts_with(&root)) {
            sources.push((mount.file_system.clone(), mount.root.clone()));
            // A mount that this process may not examine cannot be served either.
            tops.extend(fs::metadata(&mount.point).ok().map(|about| (about.dev(), about.ino())));
        }
        let devices = tops.iter().map(|(device, _)| *device).collect();
        Ok(Served { tops, sources, devices, mounts })
    }

    /// Returns whether a path can be reached through the directory. The path has no symbolic links, except
    /// that its last component may be one.
    fn contains(&self, place: &Path) -> io::Result<bool> {
        for ancestor in place.ancestors() {
            match fs::symlink_metadata(ancestor) {
                Ok(about) if self.tops.contains(&(about.dev(), about.ino())) => return Ok(true),
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(source(&self.mounts, place).is_some_and(|(file_system, within)| {
            self.sources.iter().any(|(its, top)| *its == file_system && within.starts_with(top))
        }))
    }
}

/// Returns every location that determines which file a path refers to: each symbolic link on the way, and
/// finally the file itself. The directory part of each location contains no symbolic links.
fn places(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut places = Vec::new();
    let mut at = std::env::current_dir()?.canonicalize()?;
    // The remaining components of the path, in reverse order.
    let mut left: Vec<OsString> = Vec::new();
    let push = |left: &mut Vec<OsString>, path: &Path| {
        left.extend(path.components().rev().map(|component| component.as_os_str().to_owned()));
    };
    push(&mut left, path);
    while let Some(component) = left.pop() {
        match Path::new(&component).components().next() {
            Some(Component::RootDir) => at = "/".into(),
            Some(Component::ParentDir) => _ = at.pop(),
            Some(Component::Normal(name)) => {
                at.push(name);
                match fs::read_link(&at) {
                    Ok(target) => {
                        places.push(at.clone());
                        if places.len() > LINKS_MAX {
                            return Err(rustix::io::Errno::LOOP.into());
                        }
                        at.pop();
                        push(&mut left, &target);
                    }
                    // The component is not a link, or does not exist yet.
                    Err(error)
                        if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::NotFound) => {}
                    Err(error) => return Err(error),
                }
            }
            _ => {}
        }
    }
    places.push(at);
    Ok(places)
}

/// One line of mountinfo.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    /// The file system's device, `major:minor`.
    file_system: OsString,
    /// The directory within the file system that is mounted.
    root: PathBuf,
    /// The mount point.
    point: PathBuf,
}

fn mounts(text: &[u8]) -> Vec<Mount> {
    let mount = |line: &[u8]| {
        let mut words = line.split(|byte| *byte == b' ').skip(2);
        let file_system = OsStr::from_bytes(words.next()?).to_owned();
        Some(Mount { file_system, root: unescaped(words.next()?), point: unescaped(words.next()?) })
    };
    text.split(|byte| *byte == b'\n').filter_map(mount).collect()
}

/// Decodes the octal escapes of blanks and backslashes.
fn unescaped(word: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((first, more)) = rest.split_first() {
        let octal = more
            .get(..3)
            .filter(|_| *first == b'\\')
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(octal.unwrap_or(*first));
        rest = if octal.is_some() { &more[3..] } else { more };
    }
    OsString::from_vec(bytes).into()
}

/// Returns the file system that a path without links is on, and the path within it. If several file systems
/// are mounted at one mount point, the last of them is visible.
fn source(mounts: &[Mount], path: &Path) -> Option<(OsString, PathBuf)> {
    let over = mounts.iter().filter(|mount| path.starts_with(&mount.point));
    let mount = over.max_by_key(|mount| mount.point.components().count())?;
    let within = path.strip_prefix(&mount.point).ok()?;
    Some((mount.file_system.clone(), mount.root.join(within)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn mountinfo_is_read_with_its_escapes() {
        let text = b"36 35 98:0 /mnt1 /mnt/a\\040b rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n\
            37 35 0:4 net:[4026531840] /run/netns/x rw - nsfs nsfs rw\n";
        let mounts = mounts(text);
        assert_eq!(mounts[0].point, Path::new("/mnt/a b"));
        assert_eq!(source(&mounts, Path::new("/mnt/a b/c")), Some(("98:0".into(), "/mnt1/c".into())));
        assert_eq!(source(&mounts, Path::new("/mnt/a")), None);
        assert_eq!(mounts.len(), 2);
    }

    #[test]
    fn every_symbolic_link_on_a_path_is_checked() {
        let folder = std::env::temp_dir().join(format!("kiban-exposure-{}", std::process::id()));
        fs::create_dir_all(folder.join("a/b")).expect("there is room");
        let folder = folder.canonicalize().expect("it is there");
        symlink("../c", folder.join("a/up")).expect("there is room");
        symlink("a/b", folder.join("c")).expect("there is room");
        symlink("loop", folder.join("loop")).expect("there is room");
        let found = places(&folder.join("a/b/../up/./file")).expect("a path");
        assert_eq!(found, ["a/up", "c", "a/b/file"].map(|place| folder.join(place)));
        assert!(places(&folder.join("loop")).is_err());
        fs::remove_dir_all(&folder).expect("it is there");
    }
}
