//! The hosts file: settings of the peers that a user knows by name.
//!
//! Purpose     `kiban ftam ls exchange:calls` replaces an address, selectors and options on each command.
//! Location    the file given by --hosts; otherwise `kiban/ftam.toml` in `$XDG_CONFIG_HOME` or `~/.config`.
//!             Only the default file may be missing or inaccessible.
//! Precedence  options on the command line, then the host's entry, then the defaults.
//! Safety      a file that belongs to another user (except root), or that others can write, is refused,
//!             because it may contain commands.
//! Errors      name the file, the line, the key and the remedy.

use super::kinds::Kind;
use super::local::xdg_file;
use crate::board::control::time_or_seconds;
use crate::osi::peer::{Host, PeerArgs, selector};
use crate::output::{json, print};
use clap::{Args, ValueEnum};
use kiban_lab::table::Table;
use kiban_osi::session::Versions;
use kiban_osi::wire::tpkt::PORT;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;
use toml::Spanned;

/// Maximum length of a hosts file.
const FILE_BYTES_MAX: usize = 1 << 20;

/// The keys of a host, for error messages.
const KEYS: &str = "a host is a table [hosts.NAME] with the key address and, optionally, user, account, \
    password-command, password-file, type, tsel, ssel, psel, tls, tls-ca, tls-cert, tls-key, recovery, \
    session-version, tpdu-bytes, fdata-bytes, checkpoint-bytes, timeout and min-age";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WholeFile {
    #[serde(default)]
    hosts: BTreeMap<Spanned<String>, HostTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct HostTable {
    address: Spanned<String>,
    user: Option<String>,
    account: Option<String>,
    password_command: Option<Spanned<String>>,
    password_file: Option<PathBuf>,
    #[serde(rename = "type")]
    kind: Option<Spanned<String>>,
    tsel: Option<Spanned<String>>,
    ssel: Option<Spanned<String>>,
    psel: Option<Spanned<String>>,
    #[serde(default)]
    tls: bool,
    tls_ca: Option<PathBuf>,
    tls_cert: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    recovery: Option<bool>,
    session_version: Option<Spanned<u64>>,
    tpdu_bytes: Option<Spanned<u64>>,
    fdata_bytes: Option<Spanned<u64>>,
    checkpoint_bytes: Option<Spanned<u64>>,
    timeout: Option<Spanned<u64>>,
    min_age: Option<Spanned<String>>,
}

/// A host of the file.
#[derive(Clone)]
pub(super) struct HostEntry {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) user: Option<String>,
    pub(super) account: Option<String>,
    pub(super) password_command: Option<String>,
    pub(super) password_file: Option<PathBuf>,
    pub(super) kind: Option<Kind>,
    pub(super) peer: PeerArgs,
    pub(super) no_recovery: bool,
    pub(super) session_version: Option<Versions>,
    pub(super) tpdu_bytes: Option<u32>,
    pub(super) fdata_bytes: Option<u32>,
    pub(super) checkpoint_bytes: Option<u64>,
    pub(super) timeout: Option<u64>,
    pub(super) min_age: Option<Duration>,
}

/// The hosts of a file.
#[derive(Default)]
pub(super) struct Hosts {
    file: PathBuf,
    hosts: BTreeMap<String, HostEntry>,
}

impl Hosts {
    /// Reads the hosts file.
    ///
    /// # Errors
    /// The file is invalid, or `given` names a file that does not exist.
    pub(super) fn read(given: Option<&Path>) -> Result<Hosts, String> {
        let Some(file) = given.map(PathBuf::from).or_else(default_file) else { return Ok(Hosts::default()) };
        let text = (|| {
            let opened = kiban_os::regular::open(&file)?;
            let about = opened.metadata()?;
            Ok((about, kiban_os::regular::text(opened, FILE_BYTES_MAX)?))
        })();
        let (about, text) = match text {
            Ok(read) => read,
            Err(error) => {
                use std::io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
                let error: std::io::Error = error;
                // A service may have a home directory that it cannot enter, or none.
                let is_absent = matches!(error.kind(), NotFound | NotADirectory | PermissionDenied);
                if given.is_none() && is_absent {
                    return Ok(Hosts { file, hosts: BTreeMap::new() });
                }
                return Err(format!("cannot read the hosts file {}: {error}", file.display()));
            }
        };
        let own = rustix::process::geteuid().as_raw();
        if let Some(why) = why_unsafe(about.uid(), about.mode(), own) {
            let file = file.display();
            return Err(format!("{file}: {why}, who could make you run commands; run `chmod 600 {file}`"));
        }
        Hosts::parse(&text, &file)
    }

    fn parse(text: &str, file: &Path) -> Result<Hosts, String> {
        let error = |at: usize, wrong: &str| {
            let line =
                text.as_bytes()[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1;
            format!("{}:{line}: {wrong}", file.display())
        };
        let whole: WholeFile = toml::from_str(text).map_err(|wrong| {
            let at = wrong.span().map_or(0, |span| span.start);
            error(at, &format!("{}; {KEYS}", wrong.message().replace('\n', " ")))
        })?;
        let folder = file.parent().unwrap_or(Path::new(""));
        let mut hosts = BTreeMap::new();
        for (name, table) in whole.hosts {
            let (at, name) = (name.span().start, name.into_inner());
            if !is_name(&name) {
                let wrong = "invalid host name: use letters, digits, '-', '_' and '.'";
                return Err(error(at, &format!("hosts.{name}: {wrong}")));
            }
            let entry = table
                .entry(folder)
                .map_err(|(at, key, wrong)| error(at, &format!("hosts.{name}.{key}: {wrong}")))?;
            hosts.insert(name, entry);
        }
        Ok(Hosts { file: file.into(), hosts })
    }

    pub(super) fn get(&self, name: &str) -> Option<&HostEntry> {
        self.hosts.get(name)
    }

    /// Returns the error for a name that the file does not contain.
    pub(super) fn unknown(&self, name: &str) -> String {
        let known: Vec<&str> = self.hosts.keys().map(String::as_str).collect();
        let (file, known) = (self.file.display(), known.join(", "));
        let known = if known.is_empty() { "none".into() } else { known };
        format!(
            "unknown host '{name}': {file} has {known}; add [hosts.{name}] with an address, or write \
            ftam://user@host:port/path"
        )
    }
}

/// Returns why users other than root and `own` could change a file.
fn why_unsafe(owner: u32, mode: u32, own: u32) -> Option<String> {
    match mode & 0o777 {
        _ if owner != 0 && owner != own => Some("belongs to another user".into()),
        mode if mode & 0o022 != 0 => Some(format!("is writable by group or others (mode {mode:03o})")),
        _ => None,
    }
}

/// Formats a host and port, with brackets around an IPv6 address.
pub(super) fn endpoint(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Returns whether a text has the form of a host's name in a hosts file.
pub(super) fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !text.is_empty() && !text.starts_with('-') && text.chars().all(plain)
}

fn default_file() -> Option<PathBuf> {
    xdg_file("XDG_CONFIG_HOME", ".config", "ftam.toml")
}

impl HostTable {
    /// Returns the entry; an error is the position, the key and what is wrong. Relative paths of files begin
    /// at `folder`.
    fn entry(self, folder: &Path) -> Result<HostEntry, (usize, &'static str, String)> {
        let address: Host =
            self.address.get_ref().parse().map_err(|wrong| (self.address.span().start, "address", wrong))?;
        let selector = |key: &'static str, text: &Option<Spanned<String>>| {
            let Some(text) = text else { return Ok(None) };
            selector(text.get_ref()).map(Some).map_err(|wrong| (text.span().start, key, wrong))
        };
        let kind = match &self.kind {
            None => None,
            Some(word) => Some(Kind::from_str(word.get_ref(), false).map_err(|_| {
                let wrong = format!("unknown type '{}': use binary, text or sequential", word.get_ref());
                (word.span().start, "type", wrong)
            })?),
        };
        let number = |key: &'static str, value: &Option<Spanned<u64>>, allowed: RangeInclusive<u64>| {
            let Some(value) = value else { return Ok(None) };
            match allowed.contains(value.get_ref()) {
                true => Ok(Some(*value.get_ref())),
                false => {
                    let wrong = format!("must be {} to {}", allowed.start(), allowed.end());
                    Err((value.span().start, key, wrong))
                }
            }
        };
        let min_age = match &self.min_age {
            None => None,
            Some(time) => {
                Some(time_or_seconds(time.get_ref()).map_err(|wrong| (time.span().start, "min-age", wrong))?)
            }
        };
        if let (Some(command), Some(_)) = (&self.password_command, &self.password_file) {
            let wrong = "the host also has a password-file: keep one of them".into();
            return Err((command.span().start, "password-command", wrong));
        }
        let version = number("session-version", &self.session_version, 1..=2)?;
        let within = |path: Option<PathBuf>| path.map(|path| folder.join(path));
        let peer = PeerArgs::new(
            [selector("tsel", &self.tsel)?, selector("ssel", &self.ssel)?, selector("psel", &self.psel)?],
            self.tls,
            within(self.tls_ca),
            within(self.tls_cert),
            within(self.tls_key),
        );
        Ok(HostEntry {
            host: address.name,
            port: address.port.unwrap_or(PORT),
            user: self.user,
            account: self.account,
            password_command: self.password_command.map(Spanned::into_inner),
            password_file: within(self.password_file),
            kind,
            peer,
            no_recovery: self.recovery == Some(false),
            session_version: version.map(|version| if version == 1 { Versions::V1 } else { Versions::V2 }),
            tpdu_bytes: number("tpdu-bytes", &self.tpdu_bytes, 128..=65531)?.map(|bytes| bytes as u32),
            fdata_bytes: number("fdata-bytes", &self.fdata_bytes, 1..=1 << 20)?.map(|bytes| bytes as u32),
            checkpoint_bytes: number("checkpoint-bytes", &self.checkpoint_bytes, 1..=1 << 40)?,
            timeout: number("timeout", &self.timeout, 1..=3600)?,
            min_age,
        })
    }
}

/// Runs a password command, and returns the first line that it prints.
pub(super) fn password_of(command: &str) -> Result<String, String> {
    let run = Command::new("/bin/sh").args(["-c", command]).stderr(Stdio::inherit()).output();
    let output = run.map_err(|error| format!("password command '{command}': {error}"))?;
    if !output.status.success() {
        return Err(format!("password command '{command}' failed: {}", output.status));
    }
    let text = String::from_utf8(output.stdout);
    let line = text.ok().and_then(|text| text.lines().next().map(String::from));
    line.filter(|line| !line.is_empty()).ok_or(format!("password command '{command}' printed no password"))
}

/// Lists the hosts of the hosts file.
#[derive(Args)]
pub(super) struct ListHosts {
    /// Hosts file [default: ~/.config/kiban/ftam.toml].
    #[arg(long, value_name = "FILE")]
    hosts: Option<PathBuf>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
    /// Print only the names, one per line, as completion scripts need them.
    #[arg(long, hide = true)]
    names: bool,
}

#[derive(Serialize)]
struct HostLine<'a> {
    name: &'a str,
    address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
}

impl ListHosts {
    pub(super) fn run(self) -> Result<ExitCode, String> {
        let hosts = Hosts::read(self.hosts.as_deref())?;
        let lines: Vec<HostLine<'_>> = hosts
            .hosts
            .iter()
            .map(|(name, entry)| HostLine {
                name,
                address: endpoint(&entry.host, entry.port),
                user: entry.user.as_deref(),
            })
            .collect();
        if self.names {
            print(&lines.iter().map(|line| format!("{}:\n", line.name)).collect::<String>())?;
        } else if self.json {
            print(&json(&serde_json::json!({ "file": hosts.file, "hosts": lines }))?)?;
        } else {
            let mut table = Table::new(hosts.file.display().to_string());
            table = table.text_column("name").text_column("address").text_column("user");
            for line in lines {
                table.row([line.name.into(), line.address, line.user.unwrap_or_default().into()]);
            }
            print(&table.to_string())?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Hosts, String> {
        Hosts::parse(text, Path::new("/etc/kiban/ftam.toml"))
    }

    #[test]
    fn a_host_has_an_address_and_settings() {
        let hosts = parse(
            "[hosts.exchange]\naddress = \"10.0.0.7:4102\"\nuser = \"eve\"\ntsel = \"0x0103\"\n\
            tls-ca = \"ca.pem\"\nrecovery = false\ntype = \"text\"\nmin-age = \"15m\"\n[hosts.b-2]\naddress = \"[::1]\"\n",
        )
        .expect("valid");
        let entry = hosts.get("exchange").expect("there");
        assert_eq!((entry.host.as_str(), entry.port, entry.user.as_deref()), ("10.0.0.7", 4102, Some("eve")));
        assert_eq!((entry.no_recovery, entry.kind), (true, Some(Kind::Text)));
        assert_eq!(entry.peer.called().transport, vec![1, 3].into());
        assert_eq!(entry.min_age, Some(Duration::from_secs(900)));
        let entry = hosts.get("b-2").expect("there");
        assert_eq!((entry.host.as_str(), entry.port, entry.no_recovery), ("::1", 102, false));
    }

    #[test]
    fn only_root_and_the_user_may_own_the_file() {
        for (owner, mode, word) in [
            (7, 0o600, None),
            (0, 0o644, None),
            (8, 0o600, Some("another user")),
            (7, 0o620, Some("mode 620")),
        ] {
            let why = why_unsafe(owner, 0o100000 | mode, 7);
            assert_eq!(why.is_some(), word.is_some(), "{owner} {mode:o}");
            assert!(why.unwrap_or_default().contains(word.unwrap_or_default()), "{owner} {mode:o}");
        }
        assert_eq!([endpoint("::1", 102), endpoint("h", 102)], ["[::1]:102", "h:102"]);
    }

    #[test]
    fn an_error_names_the_file_and_the_line() {
        for (text, line, words) in [
            ("[hosts.a]\nuser = \"eve\"\n", 1, "address"),
            ("\n[hosts.a]\naddress = \"h\"\ntsell = \"1\"\n", 4, "tsell"),
            ("[hosts.a]\naddress = \"h\"\ntsel = \"0x1\"\n", 3, "hosts.a.tsel: '0x1' is not a selector"),
            ("[hosts.a]\naddress = \"h:x\"\n", 2, "hosts.a.address: 'x' is not a port"),
            ("[hosts.a]\naddress = \"h\"\ntype = \"word\"\n", 3, "use binary, text or sequential"),
            ("[hosts.a]\naddress = \"h\"\ntpdu-bytes = 5\n", 3, "must be 128 to 65531"),
            ("[hosts.a]\naddress = \"h\"\nmin-age = \"soon\"\n", 3, "hosts.a.min-age: write a time such as"),
            (
                "[hosts.a]\naddress = \"h\"\npassword-command = \"c\"\npassword-file = \"f\"\n",
                3,
                "also has a password-file",
            ),
            ("[hosts.\"a/b\"]\naddress = \"h\"\n", 1, "invalid host name"),
            ("[host.a]\n", 1, "host"),
        ] {
            let error = parse(text).err().unwrap_or_else(|| panic!("{text}"));
            let begins = format!("/etc/kiban/ftam.toml:{line}: ");
            assert!(error.starts_with(&begins) && error.contains(words), "{text}: {error}");
        }
    }
}
