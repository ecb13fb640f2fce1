//! Names of files, checked before any disk sees them.
//!
//! Goal      whatever a peer calls a file, what is asked of a disk is a plain way down from its root.
//! Name      ISO 8571-2 has a filename of several strings; peers differ in how many of them they use: a whole path in
//!           one, or a string a level. Both come to the same here: strings are joined by `/` and parted at `/`.
//! Rules     no component is empty, `.` or `..`, holds a control character, is longer than a host's name may be, or is
//!           one that the disk keeps for itself. One `/` in front is the root of what the user may see, as in a jail;
//!           one behind is a habit with directories. `.` alone is the root, and `/.` behind a name adds nothing: they are what
//!           ISODE's `ls` asks for.
//! Limits    [`COMPONENTS_MAX`], [`COMPONENT_BYTES_MAX`], [`PATH_BYTES_MAX`].
//! Left out  names of a host that are no UTF-8 cannot be said.

use alloc::string::String;
use core::fmt;

/// Most levels of a path.
pub const COMPONENTS_MAX: usize = 32;
/// Bytes of the longest component.
pub const COMPONENT_BYTES_MAX: usize = 255;
/// Bytes of the longest path.
pub const PATH_BYTES_MAX: usize = 1024;
/// The name that a disk keeps for itself, in every directory.
pub const RESERVED: &str = ".kiban-ftam";

/// A way down from the root of a filestore.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Path(String);

/// What is wrong with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadName {
    /// No string at all.
    Missing,
    /// A component without a character.
    Empty,
    /// `..` as a component, or `.` as any but the last.
    Dots,
    /// A control character, NUL among them.
    Control,
    /// A component, the path, or the number of components is too long.
    Long,
    /// A name that the disk keeps for itself.
    Reserved,
}

impl Path {
    /// The root.
    pub fn root() -> Path {
        Path::default()
    }

    /// The path that a filename of these strings stands for.
    ///
    /// # Errors
    /// The first rule that it breaks.
    pub fn from_filename<'a>(strings: impl IntoIterator<Item = &'a str>) -> Result<Path, BadName> {
        let mut joined = String::new();
        for (at, string) in strings.into_iter().enumerate() {
            if joined.len() + string.len() > PATH_BYTES_MAX {
                return Err(BadName::Long);
            }
            if at > 0 {
                joined.push('/');
            } else if string.is_empty() {
                return Err(BadName::Missing);
            }
            joined.push_str(string);
        }
        Path::read(&joined)
    }

    /// The path written with `/` between its components.
    ///
    /// # Errors
    /// The first rule that it breaks.
    pub fn read(text: &str) -> Result<Path, BadName> {
        if text.is_empty() {
            return Err(BadName::Missing);
        }
        let inner = text.strip_prefix('/').unwrap_or(text);
        if inner.is_empty() || inner == "." {
            return Ok(Path::root());
        }
        let plain = inner.strip_suffix("/.").or_else(|| inner.strip_suffix('/')).unwrap_or(inner);
        plain.split('/').try_fold(Path::root(), |path, name| path.join(name))
    }

    /// This path and one component more.
    ///
    /// # Errors
    /// The first rule that it breaks.
    pub fn join(&self, name: &str) -> Result<Path, BadName> {
        match name {
            "" => return Err(BadName::Empty),
            "." | ".." => return Err(BadName::Dots),
            _ if name.contains('/') => return Err(BadName::Empty),
            // GraphicString has none, and logs are read by people.
            _ if name.chars().any(char::is_control) => return Err(BadName::Control),
            // Some hosts do not tell capital letters from small ones.
            _ if name.eq_ignore_ascii_case(RESERVED) => return Err(BadName::Reserved),
            _ if name.len() > COMPONENT_BYTES_MAX => return Err(BadName::Long),
            _ if self.0.len() + 1 + name.len() > PATH_BYTES_MAX => return Err(BadName::Long),
            _ if self.components().count() == COMPONENTS_MAX => return Err(BadName::Long),
            _ => {}
        }
        let mut path = self.clone();
        if !path.0.is_empty() {
            path.0.push('/');
        }
        path.0.push_str(name);
        Ok(path)
    }

    /// Whether it is the root.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Its components, from the root down.
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('/').filter(|name| !name.is_empty())
    }

    /// The last component; the root has none.
    pub fn name(&self) -> Option<&str> {
        self.components().next_back()
    }

    /// The directory that it is in; the root is in none.
    pub fn parent(&self) -> Option<Path> {
        match self.0.rfind('/') {
            _ if self.is_root() => None,
            Some(at) => Some(Path(self.0[..at].into())),
            None => Some(Path::root()),
        }
    }

    /// Whether it is `above` or somewhere below that.
    pub fn is_within(&self, above: &Path) -> bool {
        above.is_root()
            || self
                .0
                .strip_prefix(above.0.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// With `/` between its components; empty for the root.
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

impl fmt::Display for BadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BadName::Missing => "there is no name",
            BadName::Empty => "a component of the name is empty",
            BadName::Dots => "`.` and `..` are no components of a name here",
            BadName::Control => "the name has control characters",
            BadName::Long => "the name is too long",
            BadName::Reserved => "the name is kept for the filestore itself",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn spellings_and_what_they_come_to() {
        let long = "x".repeat(COMPONENT_BYTES_MAX + 1);
        let deep = "d/".repeat(COMPONENTS_MAX + 1);
        let wide = ["y".repeat(COMPONENT_BYTES_MAX).as_str(); 5].join("/");
        let rows: &[(&[&str], Result<&str, BadName>)] = &[
            (&["a"], Ok("a")),
            (&["a", "b"], Ok("a/b")),
            (&["a/b", "c"], Ok("a/b/c")),
            (&["/etc/passwd"], Ok("etc/passwd")),
            (&["d/"], Ok("d")),
            (&["d/."], Ok("d")),
            (&["d", "."], Ok("d")),
            (&["d/./"], Err(BadName::Dots)),
            (&["./."], Err(BadName::Dots)),
            (&["//."], Err(BadName::Empty)),
            (&["."], Ok("")),
            (&["/"], Ok("")),
            (&["/."], Ok("")),
            (&["..."], Ok("...")),
            (&["Grüße"], Ok("Grüße")),
            (&[], Err(BadName::Missing)),
            (&[""], Err(BadName::Missing)),
            (&["", "a"], Err(BadName::Missing)),
            (&["a", ""], Ok("a")),
            (&["a", "", "b"], Err(BadName::Empty)),
            (&["a//b"], Err(BadName::Empty)),
            (&["//a"], Err(BadName::Empty)),
            (&["a", "/b"], Err(BadName::Empty)),
            (&[".."], Err(BadName::Dots)),
            (&["a", ".."], Err(BadName::Dots)),
            (&["a/../b"], Err(BadName::Dots)),
            (&["a", ".", "b"], Err(BadName::Dots)),
            (&["a", "../../etc"], Err(BadName::Dots)),
            (&["./a"], Err(BadName::Dots)),
            (&["a\0b"], Err(BadName::Control)),
            (&["a\nb"], Err(BadName::Control)),
            (&["a\u{7f}"], Err(BadName::Control)),
            (&["a\u{85}"], Err(BadName::Control)),
            (&[RESERVED], Err(BadName::Reserved)),
            (&["a", ".Kiban-FTAM", "b"], Err(BadName::Reserved)),
            (&[&long], Err(BadName::Long)),
            (&[&deep], Err(BadName::Long)),
            (&[&wide], Err(BadName::Long)),
        ];
        for (given, expected) in rows {
            let path = Path::from_filename(given.iter().copied());
            assert_eq!(path.as_ref().map(Path::as_str), expected.as_ref().copied(), "{given:?}");
        }
    }

    #[test]
    fn a_path_knows_its_place() {
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
        fn no_spelling_leads_up(strings in proptest::collection::vec("[a./\\\\\0 ]{0,6}", 0..5)) {
            if let Ok(path) = Path::from_filename(strings.iter().map(|string| string.as_str())) {
                let components: Vec<&str> = path.components().collect();
                prop_assert!(components.iter().all(|name| !["", ".", ".."].contains(name) && !name.contains('\0')));
                prop_assert_eq!(components.join("/"), path.as_str());
                prop_assert!(!path.as_str().starts_with('/'));
            }
        }
    }
}
