//! Validation of filenames before they reach a disk.
//!
//! Purpose    whatever filename a peer sends, the disk receives only a plain path below its root.
//! Format     in ISO 8571-2, a filename may consist of several strings. Some peers send a whole path in one
//!            string, others send one string per level. Both are equivalent here: strings are joined by `/`
//!            and split at `/`.
//! Rules      a component must not be empty, be `.` or `..`, contain a control character, be longer than a
//!            host's limit, or be the name that the disk reserves for itself. A leading `/` stands for the
//!            root that the user sees, as in a chroot jail. A trailing `/`, common for directories, is
//!            ignored. `.` alone is the root, and a trailing `/.` is ignored, because ISODE's `ls` sends
//!            these.
//! Limits     [`COMPONENTS_MAX`], [`COMPONENT_BYTES_MAX`], [`PATH_BYTES_MAX`].
//! Not implemented  file names that are not UTF-8.

use alloc::string::String;
use core::fmt;

/// Maximum number of components of a path.
pub const COMPONENTS_MAX: usize = 32;
/// Maximum length of a component in bytes.
pub const COMPONENT_BYTES_MAX: usize = 255;
/// Maximum length of a path in bytes.
pub const PATH_BYTES_MAX: usize = 1024;
/// The name that a disk reserves for itself, in every directory.
pub const RESERVED: &str = ".kiban-ftam";

/// A path below the root of a filestore.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Path(String);

/// The reason why a name is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathError {
    /// The filename contains no strings.
    Missing,
    /// A component is empty.
    Empty,
    /// A component is `..`, or a component other than the last is `.`.
    Dots,
    /// A component contains a control character, such as NUL.
    Control,
    /// A component or the path is too long, or there are too many components.
    Long,
    /// A component is the name that the disk reserves for itself.
    Reserved,
}

impl Path {
    /// Returns the root.
    pub fn root() -> Path {
        Path::default()
    }

    /// Parses a filename that consists of these strings.
    ///
    /// # Errors
    /// Returns the first rule that the filename breaks.
    pub fn from_filename<'a>(strings: impl IntoIterator<Item = &'a str>) -> Result<Path, PathError> {
        let mut joined = String::new();
        for (at, string) in strings.into_iter().enumerate() {
            if joined.len() + string.len() > PATH_BYTES_MAX {
                return Err(PathError::Long);
            }
            if at > 0 {
                joined.push('/');
            } else if string.is_empty() {
                return Err(PathError::Missing);
            }
            joined.push_str(string);
        }
        Path::read(&joined)
    }

    /// Parses a path with `/` between its components.
    ///
    /// # Errors
    /// Returns the first rule that the path breaks.
    pub fn read(text: &str) -> Result<Path, PathError> {
        if text.is_empty() {
            return Err(PathError::Missing);
        }
        let inner = text.strip_prefix('/').unwrap_or(text);
        if inner.is_empty() || inner == "." {
            return Ok(Path::root());
        }
        let plain = inner.strip_suffix("/.").or_else(|| inner.strip_suffix('/')).unwrap_or(inner);
        plain.split('/').try_fold(Path::root(), |path, name| path.join(name))
    }

    /// Returns this path with one component appended.
    ///
    /// # Errors
    /// Returns the first rule that the new path breaks.
    pub fn join(&self, name: &str) -> Result<Path, PathError> {
        match name {
            "" => return Err(PathError::Empty),
            "." | ".." => return Err(PathError::Dots),
            _ if name.contains('/') => return Err(PathError::Empty),
            // GraphicString has no control characters, and they would garble logs.
            _ if name.chars().any(char::is_control) => return Err(PathError::Control),
            // The comparison is case-insensitive, because some file systems are.
            _ if name.eq_ignore_ascii_case(RESERVED) => return Err(PathError::Reserved),
            _ if name.len() > COMPONENT_BYTES_MAX => return Err(PathError::Long),
            _ if self.0.len() + 1 + name.len() > PATH_BYTES_MAX => return Err(PathError::Long),
            _ if self.components().count() == COMPONENTS_MAX => return Err(PathError::Long),
            _ => {}
        }
        let mut path = self.clone();
        if !path.0.is_empty() {
            path.0.push('/');
        }
        path.0.push_str(name);
        Ok(path)
    }

    /// Returns whether the path is the root.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the path's components, from the root down.
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('/').filter(|name| !name.is_empty())
    }

    /// Returns the last component; the root has none.
    pub fn name(&self) -> Option<&str> {
        self.components().next_back()
    }

    /// Returns the parent directory; the root has none.
    pub fn parent(&self) -> Option<Path> {
        match self.0.rfind('/') {
            _ if self.is_root() => None,
            Some(at) => Some(Path(self.0[..at].into())),
            None => Some(Path::root()),
        }
    }

    /// Returns whether the path equals `above` or is below it.
    pub fn is_within(&self, above: &Path) -> bool {
        above.is_root()
            || self
                .0
                .strip_prefix(above.0.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Returns the path with `/` between its components; empty for the root.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}", self.0)
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PathError::Missing => "the name is missing",
            PathError::Empty => "the name has an empty component",
            PathError::Dots => "`.` and `..` are not allowed as components of a name",
            PathError::Control => "the name contains control characters",
            PathError::Long => "the name is too long",
            PathError::Reserved => "the name is reserved for the filestore's own use",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn paths_are_normalised() {
        let long = "x".repeat(COMPONENT_BYTES_MAX + 1);
        let deep = "d/".repeat(COMPONENTS_MAX + 1);
        let wide = ["y".repeat(COMPONENT_BYTES_MAX).as_str(); 5].join("/");
        let rows: &[(&[&str], Result<&str, PathError>)] = &[
            (&["a"], Ok("a")),
            (&["a", "b"], Ok("a/b")),
            (&["a/b", "c"], Ok("a/b/c")),
            (&["/etc/passwd"], Ok("etc/passwd")),
            (&["d/"], Ok("d")),
            (&["d/."], Ok("d")),
            (&["d", "."], Ok("d")),
            (&["d/./"], Err(PathError::Dots)),
            (&["./."], Err(PathError::Dots)),
            (&["//."], Err(PathError::Empty)),
            (&["."], Ok("")),
            (&["/"], Ok("")),
            (&["/."], Ok("")),
            (&["..."], Ok("...")),
            (&["Grüße"], Ok("Grüße")),
            (&[], Err(PathError::Missing)),
            (&[""], Err(PathError::Missing)),
            (&["", "a"], Err(PathError::Missing)),
            (&["a", ""], Ok("a")),
            (&["a", "", "b"], Err(PathError::Empty)),
            (&["a//b"], Err(PathError::Empty)),
            (&["//a"], Err(PathError::Empty)),
            (&["a", "/b"], Err(PathError::Empty)),
            (&[".."], Err(PathError::Dots)),
            (&["a", ".."], Err(PathError::Dots)),
            (&["a/../b"], Err(PathError::Dots)),
            (&["a", ".", "b"], Err(PathError::Dots)),
            (&["a", "../../etc"], Err(PathError::Dots)),
            (&["./a"], Err(PathError::Dots)),
            (&["a\0b"], Err(PathError::Control)),
            (&["a\nb"], Err(PathError::Control)),
            (&["a\u{7f}"], Err(PathError::Control)),
            (&["a\u{85}"], Err(PathError::Control)),
            (&[RESERVED], Err(PathError::Reserved)),
            (&["a", ".Kiban-FTAM", "b"], Err(PathError::Reserved)),
            (&[&long], Err(PathError::Long)),
            (&[&deep], Err(PathError::Long)),
            (&[&wide], Err(PathError::Long)),
        ];
        for (given, expected) in rows {
            let path = Path::from_filename(given.iter().copied());
            assert_eq!(path.as_ref().map(Path::as_str), expected.as_ref().copied(), "{given:?}");
        }
    }

    #[test]
    fn a_path_knows_its_parent_and_name() {
        let path = Path::read("a/b/c").unwrap();
        assert_eq!(path.name(), Some("c"));
        assert_eq!(path.parent(), Path::read("a/b").ok());
        assert_eq!(Path::read("a").unwrap().parent(), Some(Path::root()));
        assert_eq!((Path::root().parent(), Path::root().name()), (None, None));
        assert!(path.is_within(&Path::read("a").unwrap()) && path.is_within(&path));
        assert!(!Path::read("ab").unwrap().is_within(&Path::read("a").unwrap()));
    }

    proptest! {
        #[test]
        fn no_path_leads_above_the_root(strings in proptest::collection::vec("[a./\\\\\0 ]{0,6}", 0..5)) {
            if let Ok(path) = Path::from_filename(strings.iter().map(|string| string.as_str())) {
                let components: Vec<&str> = path.components().collect();
                prop_assert!(components.iter().all(|name| !["", ".", ".."].contains(name) && !name.contains('\0')));
                prop_assert_eq!(components.join("/"), path.as_str());
                prop_assert!(!path.as_str().starts_with('/'));
            }
        }
    }
}
