//! Remote names: `ftam://user@host:port/path`.

use kiban_osi::wire::tpkt::PORT;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode_byte, utf8_percent_encode};
use std::str::FromStr;
use url::{Host, Url};

/// Characters that must be percent-encoded in a path and in a user name.
const PATH: &AsciiSet = &CONTROLS.add(b'%').add(b'?').add(b'#');
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
}

impl Remote {
    /// Returns whether an argument has the form of a remote name.
    pub(crate) fn is_meant_by(text: &str) -> bool {
        text.starts_with("ftam://")
    }

    /// Returns the same user, host and port with another path.
    pub(crate) fn with_path(&self, path: String) -> Remote {
        Remote { path, ..self.clone() }
    }

    /// Returns the path's last component.
    pub(crate) fn name(&self) -> &str {
        self.path.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
    }

    /// Returns the host and port, as `host:port` or `[address]:port`.
    pub(crate) fn endpoint(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl FromStr for Remote {
    type Err = String;

    fn from_str(text: &str) -> Result<Remote, String> {
        let wrong =
            |why: &str| format!("{why}; write ftam://user@host:port/path (user and port are optional)");
        if !Remote::is_meant_by(text) {
            return Err(wrong("not a remote name"));
        }
        // The URL parser would remove `..` together with the component before it, and so name another file.
        if text.split('/').any(|name| name == "..") {
            return Err(wrong("a path cannot contain '..'"));
        }
        let url = Url::parse(text).map_err(|error| wrong(&error.to_string()))?;
        if url.password().is_some() {
            return Err("other users can see a password on the command line: use KIBAN_FTAM_PASSWORD, \
                --password-file or the prompt"
                .into());
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(wrong("write '?' and '#' in a path as %3F and %23"));
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
        Ok(Remote {
            user: (!user.is_empty()).then_some(user),
            host,
            port: url.port().unwrap_or(PORT),
            path: decode(url.path().strip_prefix('/').unwrap_or_default())?,
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
        f.write_str("ftam://")?;
        if let Some(user) = &self.user {
            write!(f, "{}@", encode(user, USER))?;
        }
        let endpoint = self.endpoint();
        let host = match self.port {
            PORT => endpoint.strip_suffix(&format!(":{PORT}")).unwrap_or(&endpoint),
            _ => &endpoint,
        };
        write!(f, "{host}/{}", encode(&self.path, PATH))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(user: Option<&str>, host: &str, port: u16, path: &str) -> Remote {
        Remote { user: user.map(String::from), host: host.into(), port, path: path.into() }
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
        for text in ["ftam://h/a/../b", "ftam://h/../x", "ftam://h/a/.."] {
            let error = text.parse::<Remote>().expect_err(text);
            assert!(error.contains("'..'"), "{text}: {error}");
        }
        assert_eq!("ftam://h/a..b/..c".parse(), Ok(remote(None, "h", 102, "a..b/..c")));
    }
}
