//! Remote names: `ftam://user@host:port/path`, or `NAME:path` with the name of a host in the hosts file.

use super::glob::{is_pattern, plain, quoted};
use super::hosts::{HostEntry, Hosts, endpoint, is_name};
use kiban_os::text::printable;
use kiban_osi::wire::tpkt::PORT;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode_byte, utf8_percent_encode};
use std::cell::RefCell;
use std::str::FromStr;
use url::{Host, Url};

/// Characters that must be percent-encoded in a path and in a user name.
const PATTERN: &AsciiSet = &CONTROLS.add(b'%').add(b'?').add(b'#');
const PATH: &AsciiSet = &PATTERN.add(b'*').add(b'[');
const QUOTED: &AsciiSet = &PATH.add(b'\\');
const USER: &AsciiSet = &PATH.add(b'@').add(b'/').add(b':');

/// A file or directory on a responder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Remote {
    /// Initiator identity.
    pub(crate) user: Option<String>,
    /// Name or address, without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The filename, without the slash after the port; empty if it is the responder's root directory.
    pub(crate) path: String,
    /// The path with its wildcards, and with `\` before ordinary characters that would be wildcards. `None`
    /// if there are no wildcards.
    pub(crate) pattern: Option<String>,
    /// The name of a host in the hosts file.
    pub(crate) alias: Option<String>,
}

impl Remote {
    /// Returns whether an argument has the form of a remote name.
    pub(crate) fn is_meant_by(text: &str) -> bool {
        text.starts_with("ftam://") || alias_of(text).is_some()
    }

    /// Looks the host up in the hosts file, and returns its entry if it has one.
    ///
    /// # Errors
    /// The name has the form `NAME:path`, and the file has no such host.
    pub(crate) fn resolve<'a>(&mut self, hosts: &'a Hosts) -> Result<Option<&'a HostEntry>, String> {
        let name = self.alias.clone().unwrap_or_else(|| self.host.clone());
        let Some(entry) = hosts.get(&name) else {
            return if self.alias.is_some() { Err(hosts.unknown(&name)) } else { Ok(None) };
        };
        // In ftam://user@NAME:port/, the user and the port take precedence.
        if self.alias.is_some() || self.port == PORT {
            self.port = entry.port;
        }
        self.host = entry.host.clone();
        self.user = self.user.take().or_else(|| entry.user.clone());
        Ok(Some(entry))
    }

    /// Returns the same user, host and port with another path.
    pub(crate) fn with_path(&self, path: String) -> Remote {
        Remote { path, pattern: None, ..self.clone() }
    }

    /// Returns the same user, host and port with the name of a file in this directory.
    pub(crate) fn below(&self, name: &str) -> Remote {
        let path = self.path.trim_end_matches('/');
        self.with_path(if self.path.is_empty() { name.to_owned() } else { format!("{path}/{name}") })
    }

    /// Returns the path's last component.
    pub(crate) fn name(&self) -> &str {
        self.path.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
    }

    /// Returns the host and port, as `host:port` or `[address]:port`.
    pub(crate) fn endpoint(&self) -> String {
        endpoint(&self.host, self.port)
    }

    /// Returns the same file with the address of the host in place of its name in the hosts file.
    pub(crate) fn without_alias(&self) -> Remote {
        Remote { alias: None, ..self.clone() }
    }
}

thread_local! {
    /// The current remote directory of a shell.
    static BASE: RefCell<Option<Remote>> = const { RefCell::new(None) };
}

/// Does work during which names without a host are relative to a directory.
pub(crate) fn with_base<T>(base: &Remote, work: impl FnOnce() -> T) -> T {
    BASE.set(Some(base.clone()));
    let done = work();
    BASE.set(None);
    done
}

/// Returns a path that is relative to the current remote directory of a shell, if there is one.
pub(crate) fn path_in_base(text: &str) -> Result<String, String> {
    let base = BASE.with_borrow(Clone::clone).filter(|_| !Remote::is_meant_by(text));
    Ok(base.map_or_else(|| text.to_owned(), |base| base.join(text).path))
}

impl Remote {
    /// Returns the file with a name that is relative to this directory. `/` is the user's home directory.
    fn join(&self, name: &str) -> Remote {
        let mut parts: Vec<String> = Vec::new();
        if !name.starts_with('/') {
            parts.extend(self.path.split('/').filter(|part| !part.is_empty()).map(quoted));
        }
        for part in name.split('/') {
            match part {
                "" | "." => {}
                ".." => drop(parts.pop()),
                part => parts.push(part.to_owned()),
            }
        }
        let is_directory = name.ends_with('/') && !parts.is_empty();
        let (path, pattern) = path_of(parts.join("/") + if is_directory { "/" } else { "" });
        Remote { path, pattern, ..self.clone() }
    }
}

/// Splits `NAME:path`.
fn alias_of(text: &str) -> Option<(&str, &str)> {
    text.split_once(':').filter(|(name, path)| is_name(name) && !path.starts_with("//"))
}

/// Returns the path that a pattern means if it has no wildcards, and the pattern if it has some.
fn path_of(pattern: String) -> (String, Option<String>) {
    let path = plain(&pattern);
    (path, is_pattern(&pattern).then_some(pattern))
}

impl FromStr for Remote {
    type Err = String;

    fn from_str(text: &str) -> Result<Remote, String> {
        let wrong = |why: &str| {
            format!(
                "{why}; write ftam://user@host:port/path (user and port are optional), or NAME:path with a name of the hosts file"
            )
        };
        if let (false, Some(base)) = (Remote::is_meant_by(text), BASE.with_borrow(Clone::clone)) {
            return Ok(base.join(text));
        }
        if !Remote::is_meant_by(text) {
            return Err(wrong("not a remote name"));
        }
        let has_no_dot_dot = |path: &str| match path.split('/').any(|name| name == "..") {
            true => Err(wrong("a path cannot contain '..'")),
            false => Ok(()),
        };
        if let Some((name, path)) = alias_of(text) {
            has_no_dot_dot(path)?;
            let (path, pattern) = path_of(path.trim_start_matches('/').to_owned());
            let (alias, host) = (Some(name.to_owned()), name.to_owned());
            return Ok(Remote { user: None, host, port: PORT, path, pattern, alias });
        }
        if text.contains(['?', '#']) {
            return Err(wrong("write '?' and '#' in a path as %3F and %23"));
        }
        // The URL parser would change the path: it removes `..`, `%2e%2e` and the component before them, and
        // blanks at the end.
        let rest = text.strip_prefix("ftam://").unwrap_or_default();
        let (authority, rest) = rest.split_once('/').unwrap_or((rest, ""));
        has_no_dot_dot(rest)?;
        let url = Url::parse(&format!("ftam://{authority}/")).map_err(|error| wrong(&error.to_string()))?;
        if url.password().is_some() {
            return Err("other users can see a password on the command line: use KIBAN_FTAM_PASSWORD, \
                --password-file or the prompt"
                .into());
        }
        let decode = |part: &str| {
            let bytes = percent_decode_str(part).decode_utf8();
            bytes.map(String::from).map_err(|_| wrong("the percent-encoding is not valid UTF-8"))
        };
        let host = match url.host() {
            None => return Err(wrong("the host is missing")),
            Some(Host::Domain(name)) => decode(name)?,
            Some(Host::Ipv4(address)) => address.to_string(),
            Some(Host::Ipv6(address)) => address.to_string(),
        };
        let user = decode(url.username())?;
        // Percent-encoded characters are never wildcards.
        let mut pattern = String::new();
        let rest = rest.split('/').filter(|name| *name != ".").collect::<Vec<_>>().join("/");
        let mut rest = rest.as_str();
        while let Some(at) = rest.find(['*', '[', ']']) {
            pattern += &quoted(&decode(&rest[..at])?);
            pattern += &rest[at..=at];
            rest = &rest[at + 1..];
        }
        pattern += &quoted(&decode(rest)?);
        let (path, pattern) = path_of(pattern);
        Ok(Remote {
            user: (!user.is_empty()).then_some(user),
            host,
            port: url.port().unwrap_or(PORT),
            path,
            pattern,
            alias: None,
        })
    }
}

/// Percent-encodes these ASCII characters and control characters; other letters stay readable.
fn encode(text: &str, set: &'static AsciiSet) -> String {
    let mut encoded = String::new();
    for letter in text.chars() {
        match letter.is_ascii() {
            true => encoded.extend(utf8_percent_encode(letter.encode_utf8(&mut [0; 4]), set)),
            false if letter.is_control() => {
                encoded.extend(letter.encode_utf8(&mut [0; 4]).bytes().map(percent_encode_byte));
            }
            false => encoded.push(letter),
        }
    }
    encoded
}

impl std::fmt::Display for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(alias) = &self.alias {
            let path = self.pattern.clone().unwrap_or_else(|| quoted(&self.path));
            return write!(f, "{alias}:{}", printable(&path));
        }
        f.write_str("ftam://")?;
        if let Some(user) = &self.user {
            write!(f, "{}@", encode(user, USER))?;
        }
        let endpoint = self.endpoint();
        let host = match self.port {
            PORT => endpoint.strip_suffix(&format!(":{PORT}")).unwrap_or(&endpoint),
            _ => &endpoint,
        };
        // A printed name is no pattern, unless it was given as one.
        let Some(pattern) = &self.pattern else { return write!(f, "{host}/{}", encode(&self.path, PATH)) };
        write!(f, "{host}/")?;
        let mut letters = pattern.chars();
        while let Some(letter) = letters.next() {
            let (letter, set) =
                if letter == '\\' { (letters.next().unwrap_or(letter), QUOTED) } else { (letter, PATTERN) };
            f.write_str(&encode(letter.encode_utf8(&mut [0; 4]), set))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(user: Option<&str>, host: &str, port: u16, path: &str) -> Remote {
        let user = user.map(String::from);
        Remote { user, host: host.into(), port, path: path.into(), pattern: None, alias: None }
    }

    #[test]
    fn wildcards_are_kept_unless_they_are_encoded() {
        for (text, path, pattern) in [
            ("ftam://h/a/*.cdr", "a/*.cdr", Some("a/*.cdr")),
            ("ftam://h/%2A[ab]%5B", "*[ab][", Some("\\*[ab]\\[")),
            ("ftam://h/%2A", "*", None),
            ("switch:/calls/a?", "calls/a?", Some("calls/a?")),
            ("switch:a\\*", "a*", None),
        ] {
            let remote: Remote = text.parse().expect(text);
            assert_eq!((remote.path.as_str(), remote.pattern.as_deref()), (path, pattern), "{text}");
            assert_eq!(remote.to_string().parse(), Ok(remote), "{text}");
        }
    }

    #[test]
    fn names_in_a_shell_are_relative_to_its_directory() {
        let base: Remote = "switch:calls/today".parse().expect("valid");
        for (name, path, is_pattern) in [
            ("a.cdr", "calls/today/a.cdr", false),
            ("../*.cdr", "calls/*.cdr", true),
            ("/", "", false),
            ("/old/x", "old/x", false),
            ("../../..", "", false),
            ("./", "calls/today/", false),
            ("switch:x", "x", false),
        ] {
            let remote = with_base(&base, || name.parse::<Remote>()).expect(name);
            assert_eq!((remote.path.as_str(), remote.pattern.is_some()), (path, is_pattern), "{name}");
        }
        assert!("a.cdr".parse::<Remote>().is_err());
    }

    #[test]
    fn a_name_of_the_hosts_file_is_followed_by_a_colon() {
        let remote: Remote = "switch-1:calls/today".parse().expect("valid");
        assert_eq!((remote.alias.as_deref(), remote.path.as_str()), (Some("switch-1"), "calls/today"));
        assert_eq!(remote.to_string(), "switch-1:calls/today");
        for text in ["./a:b", "a/b:c", "http://x/", "-a:b", ":b", "plain"] {
            assert!(!Remote::is_meant_by(text), "{text}");
        }
    }

    #[test]
    fn remote_names_are_parsed() {
        let rows = [
            ("ftam://eve@switch.example/cdr/today", remote(Some("eve"), "switch.example", 102, "cdr/today")),
            ("ftam://10.0.0.7:4102/a%20b", remote(None, "10.0.0.7", 4102, "a b")),
            ("ftam://[2001:db8::7]/", remote(None, "2001:db8::7", 102, "")),
            ("ftam://host", remote(None, "host", 102, "")),
            ("ftam://op%40site@host/x", remote(Some("op@site"), "host", 102, "x")),
        ];
        for (text, expected) in rows {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_printed_remote_name_parses_to_the_same_name() {
        for text in [
            "ftam://eve@switch.example/cdr/today",
            "ftam://10.0.0.7:4102/a b",
            "ftam://[2001:db8::7]/x",
            "ftam://[2001:db8::7]:4102/x",
            "ftam://op%40site@host/50%25 of it%3F%23.txt",
            "ftam://zoë@host/naïve/%C2%85",
        ] {
            assert_eq!(text.parse().map(|remote: Remote| remote.to_string()), Ok(text.into()));
        }
    }

    #[test]
    fn an_invalid_remote_name_error_shows_the_syntax() {
        for (text, word) in [
            ("/etc/passwd", "ftam://user@host"),
            ("ftam://", "ftam://user@host"),
            ("ftam://host:x/a", "ftam://user@host"),
            ("ftam://eve:secret@host/a", "KIBAN_FTAM_PASSWORD"),
            ("ftam://host/a?b", "%3F"),
            ("ftam://host/%ff", "UTF-8"),
        ] {
            let error = text.parse::<Remote>().expect_err(text);
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn dot_dot_is_rejected_and_never_folded() {
        for text in ["ftam://h/a/../b", "ftam://h/../x", "ftam://h/a/..", "h:a/../b"] {
            let error = text.parse::<Remote>().expect_err(text);
            assert!(error.contains("'..'"), "{text}: {error}");
        }
        for (text, path) in [
            ("ftam://h/a..b/..c", "a..b/..c"),
            ("ftam://h/./a/./b", "a/b"),
            // The responder decides about these.
            ("ftam://h/a/%2e%2e/b", "a/../b"),
            ("ftam://h/a/.%2E", "a/.."),
            ("ftam://h/a/..%2fb", "a/../b"),
            ("ftam://h/a /b ", "a /b "),
            ("ftam://h/a\tb\nc", "a\tb\nc"),
            ("ftam://h/a\\b", "a\\b"),
        ] {
            assert_eq!(text.parse(), Ok(remote(None, "h", 102, path)), "{text:?}");
        }
    }
}
