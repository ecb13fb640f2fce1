//! Code shared by the OSI commands: the peer's host and selectors, TLS, passwords, the async runtime, and
//! errors from listening.

use clap::Args;
use kiban_osi::session::Versions;
use kiban_osi::{Selector, Selectors};
use kiban_osi_runtime::association::Tls;
use kiban_osi_runtime::secure;
use kiban_osi_runtime::secure::{Identity, TlsAcceptor, TlsConnector};
use std::fmt::{self, Display};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Environment variable that may contain the password.
pub(crate) const PASSWORD_VARIABLE: &str = "KIBAN_FTAM_PASSWORD";

/// Parses the number of a session version.
fn version(text: &str) -> Result<Versions, String> {
    match text {
        "1" => Ok(Versions::V1),
        "2" => Ok(Versions::V2),
        _ => Err("the session versions are 1 and 2".into()),
    }
}

/// The session version to propose to a peer.
#[derive(Args, Clone)]
pub(crate) struct VersionArgs {
    /// Propose only this session version, 1 or 2, because some peers refuse a proposal of both.
    #[arg(long, value_name = "VERSION", value_parser = version)]
    pub(crate) session_version: Option<Versions>,
}

/// Selectors and TLS settings of a peer.
#[derive(Args, Clone)]
pub(crate) struct PeerArgs {
    /// Called transport selector: text, or 0x and hexadecimal digits; ISODE's FTAM is 0x0103.
    #[arg(long, value_name = "SELECTOR", value_parser = selector)]
    tsel: Option<Selector>,
    /// Called session selector, in the same notation.
    #[arg(long, value_name = "SELECTOR", value_parser = selector)]
    ssel: Option<Selector>,
    /// Called presentation selector, in the same notation.
    #[arg(long, value_name = "SELECTOR", value_parser = selector)]
    psel: Option<Selector>,
    /// Use TLS (IEC 62351).
    #[arg(long)]
    tls: bool,
    /// Trust the certificate authorities in this file (PEM) instead of the system's.
    #[arg(long, alias = "authorities", value_name = "FILE", requires = "tls")]
    tls_ca: Option<PathBuf>,
    /// Present this certificate (PEM).
    #[arg(long, alias = "certificate", value_name = "FILE", requires = "tls", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM).
    #[arg(long, alias = "key", value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

impl PeerArgs {
    /// Returns settings with these transport, session and presentation selectors.
    pub(crate) fn new(
        [tsel, ssel, psel]: [Option<Selector>; 3],
        tls: bool,
        tls_ca: Option<PathBuf>,
        tls_cert: Option<PathBuf>,
        tls_key: Option<PathBuf>,
    ) -> PeerArgs {
        PeerArgs { tsel, ssel, psel, tls, tls_ca, tls_cert, tls_key }
    }

    /// Takes the settings that are missing here from `other`.
    pub(crate) fn complete(&mut self, other: &PeerArgs) {
        fn fill<T: Clone>(missing: &mut Option<T>, other: &Option<T>) {
            *missing = missing.take().or_else(|| other.clone());
        }
        fill(&mut self.tsel, &other.tsel);
        fill(&mut self.ssel, &other.ssel);
        fill(&mut self.psel, &other.psel);
        self.tls |= other.tls;
        fill(&mut self.tls_ca, &other.tls_ca);
        fill(&mut self.tls_cert, &other.tls_cert);
        fill(&mut self.tls_key, &other.tls_key);
    }

    /// Returns the called selectors; a selector that is not given is empty.
    pub(crate) fn called(&self) -> Selectors {
        let or_none = |selector: &Option<Selector>| selector.clone().unwrap_or_default();
        Selectors {
            presentation: or_none(&self.psel),
            session: or_none(&self.ssel),
            transport: or_none(&self.tsel),
        }
    }

    fn identity(&self) -> Option<Identity> {
        let (certificate, key) = (self.tls_cert.clone()?, self.tls_key.clone()?);
        Some(Identity { certificate, key })
    }

    /// Returns the TLS settings for a client; `None` without --tls.
    pub(crate) fn connector(&self) -> Result<Option<TlsConnector>, String> {
        if !self.tls {
            return Ok(None);
        }
        let made = secure::connector(self.tls_ca.as_deref(), self.identity().as_ref());
        made.map(Some).map_err(|error| error.to_string())
    }

    /// Returns the TLS settings for a client that connects to `host`; `None` without --tls.
    pub(crate) fn tls(&self, host: &str) -> Result<Option<Tls>, String> {
        let Some(connector) = self.connector()? else { return Ok(None) };
        let name = secure::server_name(host).map_err(|error| error.to_string())?;
        Ok(Some(Tls { connector, name }))
    }

    /// Returns the TLS settings for a server; `None` without --tls.
    pub(crate) fn acceptor(&self) -> Result<Option<TlsAcceptor>, String> {
        if !self.tls {
            return Ok(None);
        }
        let identity = self.identity().ok_or("a server needs --tls-cert and --tls-key to speak TLS")?;
        let made = secure::acceptor(&identity, self.tls_ca.as_deref());
        made.map(Some).map_err(|error| error.to_string())
    }
}

/// A host and a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) port: Option<u16>,
}

/// Writes what [`Host::from_str`] reads.
impl Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) if self.name.contains(':') => write!(f, "[{}]:{port}", self.name),
            Some(port) => write!(f, "{}:{port}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

impl FromStr for Host {
    type Err = String;

    fn from_str(text: &str) -> Result<Host, String> {
        let (name, port) = match (text.strip_prefix('['), text.rsplit_once(':')) {
            (Some(rest), _) => {
                let (name, rest) = rest.split_once(']').ok_or("missing ] after the IPv6 address")?;
                (name, rest.strip_prefix(':'))
            }
            // An IPv6 address without brackets contains several colons and has no port.
            (None, Some((name, port))) if !name.contains(':') => (name, Some(port)),
            (None, _) => (text, None),
        };
        if name.is_empty() {
            return Err("write HOST or HOST:PORT".into());
        }
        let port =
            port.map(|port| port.parse().map_err(|_| format!("'{port}' is not a port: use 1 to 65535")));
        Ok(Host { name: name.into(), port: port.transpose()? })
    }
}

/// Returns a user's password: from the file if one is given, otherwise from the environment if it is set
/// there, otherwise from a prompt. If no user is given, there is no prompt.
pub(crate) fn password(
    file: Option<&Path>,
    user: Option<&str>,
    host: &str,
) -> Result<Option<String>, String> {
    if let Some(path) = file {
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        let line = text.lines().next().filter(|line| !line.is_empty());
        return line
            .map(|line| Some(line.into()))
            .ok_or(format!("{}: the first line is empty", path.display()));
    }
    if let Ok(password) = std::env::var(PASSWORD_VARIABLE) {
        return Ok(Some(password));
    }
    let Some(user) = user else { return Ok(None) };
    let prompt = format!("Password of {user} at {host}: ");
    rpassword::prompt_password(prompt).map(Some).map_err(|error| {
        format!(
            "cannot prompt for the password ({error}): set {PASSWORD_VARIABLE}, or name a file with \
            --password-file"
        )
    })
}

/// Parses a selector: text, or 0x and hexadecimal digits.
pub(crate) fn selector(text: &str) -> Result<Selector, String> {
    let Some(digits) = text.strip_prefix("0x") else { return Ok(text.into()) };
    octets(digits)
        .map(Selector::from)
        .ok_or(format!("'{text}' is not a selector: write text, or 0x and pairs of digits"))
}

/// Parses pairs of hexadecimal digits.
pub(crate) fn octets(digits: &str) -> Option<Vec<u8>> {
    if !digits.is_ascii() || !digits.len().is_multiple_of(2) {
        return None;
    }
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok()).collect()
}

/// Returns a tokio runtime: multi-threaded for servers, single-threaded for clients.
pub(crate) fn runtime(threads: bool) -> Result<tokio::runtime::Runtime, String> {
    let mut builder = if threads {
        tokio::runtime::Builder::new_multi_thread()
    } else {
        tokio::runtime::Builder::new_current_thread()
    };
    kiban_tokio::runtime::build(builder.enable_all())
        .map_err(|error| format!("cannot start threads or event polling: {error}"))
}

/// Returns the error for an address on which a server cannot listen, with advice on what to do.
pub(crate) fn cannot_listen(address: impl Display, error: &std::io::Error) -> String {
    let remedy = match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            ": ports below 1024 need CAP_NET_BIND_SERVICE: use a higher port, or grant it to the program"
        }
        std::io::ErrorKind::AddrInUse => ": another program uses the port: use another",
        std::io::ErrorKind::InvalidInput => ": write ADDRESS:PORT; 0.0.0.0 or [::] means all addresses",
        std::io::ErrorKind::AddrNotAvailable => {
            ": this host does not have the address; 0.0.0.0 or [::] means all addresses"
        }
        _ => "",
    };
    format!("cannot listen on {address} ({error}){remedy}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_selectors_are_parsed() {
        for (text, name, port) in [
            ("plc", "plc", None),
            ("plc:1102", "plc", Some(1102)),
            ("::1", "::1", None),
            ("[::1]:7", "::1", Some(7)),
            ("[fe80::1]", "fe80::1", None),
        ] {
            assert_eq!(text.parse(), Ok(Host { name: name.into(), port }), "{text}");
        }
        for text in ["", ":102", "plc:port", "plc:70000", "[::1"] {
            assert!(text.parse::<Host>().is_err(), "{text}");
        }
        assert_eq!(selector("0x0001"), Ok(vec![0, 1].into()));
        assert_eq!(selector("FTAM"), Ok("FTAM".into()));
        assert!(selector("0x001").is_err() && selector("0xzz").is_err());
    }
}
