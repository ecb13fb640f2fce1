//! Reads the users file, with errors that say how to correct it, and replaces the file atomically.

use super::accounts::{User, Users};
use super::hash::hash;
use super::limits::{FILE_BYTES_MAX, MEMORY_KIB_MAX, NAME_BYTES_MAX, PASSES_MAX, USERS_MAX};
use argon2::Params;
use argon2::password_hash::phc::PasswordHash;
use kiban_os::random;
use kiban_osi::ftam::filestore::{Action, Actions, Path};
use rustix::fs::{Gid, Uid};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use toml::Spanned;
use toml_edit::{Array, DocumentMut, Item, Table, TableLike, Value};

/// An error in a users file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsersError {
    /// The name of the file.
    pub file: String,
    /// The line number, counted from 1; 0 if the error concerns the whole file.
    pub line: usize,
    /// The key, if there is one.
    pub key: String,
    /// A description of the error.
    pub wrong: String,
    /// How to correct it.
    pub remedy: String,
}

impl fmt::Display for UsersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}; {}", self.wrong, self.remedy)
    }
}

impl std::error::Error for UsersError {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WholeFile {
    #[serde(default)]
    users: BTreeMap<Spanned<String>, UserTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UserTable {
    password: Spanned<String>,
    rights: Spanned<Rights>,
    home: Option<Spanned<String>>,
    accounts: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Rights {
    Word(String),
    Words(Vec<String>),
}

impl Users {
    /// Reads a users file. Rejects a file that users other than its owner can write, because they could add
    /// themselves.
    ///
    /// # Errors
    /// The file cannot be read, or its contents are invalid.
    pub fn read(path: &std::path::Path) -> Result<Users, UsersError> {
        Users::read_with(path, kiban_os::regular::open)
    }

    /// Like [`Users::read`], but opens the file with `open`.
    ///
    /// # Errors
    /// The same as for [`Users::read`].
    pub fn read_with(
        path: &std::path::Path,
        open: impl FnOnce(&std::path::Path) -> io::Result<std::fs::File>,
    ) -> Result<Users, UsersError> {
        let file = path.display().to_string();
        let error = |wrong: String, remedy: &str| UsersError {
            file: file.clone(),
            line: 0,
            key: String::new(),
            wrong,
            remedy: remedy.into(),
        };
        let text = (|| {
            let mut opened = open(path)?;
            let mode = opened.metadata()?.permissions().mode();
            let mut text = String::new();
            Read::by_ref(&mut opened).take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
            Ok((mode, text))
        })();
        let (mode, text) = text.map_err(|failed: io::Error| {
            error(
                format!("cannot read it: {failed}"),
                "create one with `kiban ftam passwd`, or give another file",
            )
        })?;
        if mode & 0o022 != 0 {
            let wrong = format!("users other than its owner can write to it (mode {:03o})", mode & 0o777);
            return Err(error(wrong, &format!("run `chmod 600 {file}`")));
        }
        if text.len() as u64 > FILE_BYTES_MAX {
            let wrong = format!("it is longer than {FILE_BYTES_MAX} bytes");
            return Err(error(wrong, "keep fewer users in one file"));
        }
        Users::parse(&text, &file)
    }

    /// Parses the text of a users file; `file` is its name in messages.
    ///
    /// # Errors
    /// The text is invalid.
    pub fn parse(text: &str, file: &str) -> Result<Users, UsersError> {
        let line = |at: usize| {
            text.as_bytes()[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
        };
        let error = |at: usize, key: String, wrong: String, remedy: String| UsersError {
            file: file.into(),
            line: line(at),
            key,
            wrong,
            remedy,
        };
        let whole: WholeFile = toml::from_str(text).map_err(|wrong| {
            let remedy = "a user is a table [users.NAME] with the keys password, rights and, optionally, home and accounts";
            let at = wrong.span().map_or(0, |span| span.start);
            error(at, String::new(), wrong.message().replace('\n', " "), remedy.into())
        })?;
        if whole.users.len() > USERS_MAX {
            let wrong = format!("there are {} users, more than {USERS_MAX}", whole.users.len());
            return Err(error(0, "users".into(), wrong, "keep fewer users in one file".into()));
        }
        let mut users = BTreeMap::new();
        for (name, table) in whole.users {
            let (at, name) = (name.span().start, name.into_inner());
            let key = |key: &str| format!("users.{name}{key}");
            if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
                let remedy = format!(
                    "a user name must be 1 to {NAME_BYTES_MAX} bytes long, without control characters"
                );
                return Err(error(at, key(""), "invalid user name".into(), remedy));
            }
            let password = password(table.password.get_ref()).map_err(|wrong| {
                let remedy = format!("run `kiban ftam passwd {name}` to set it");
                error(table.password.span().start, key(".password"), wrong, remedy)
            })?;
            let rights = rights(table.rights.get_ref()).map_err(|word| {
                let words: Vec<&str> = Action::ALL.into_iter().map(Action::word).collect();
                let remedy = format!("write \"all\", or a list of {}", words.join(", "));
                error(table.rights.span().start, key(".rights"), format!("unknown right \"{word}\""), remedy)
            })?;
            let home = match &table.home {
                None => Path::root(),
                Some(home) => Path::read(home.get_ref()).map_err(|wrong| {
                    let remedy = "write a path below the filestore's root, such as \"calls/today\"".into();
                    error(home.span().start, key(".home"), wrong.to_string(), remedy)
                })?,
            };
            users.insert(name, User { password, rights, home, accounts: table.accounts });
        }
        Ok(Users::new(users))
    }
}

fn password(text: &str) -> Result<PasswordHash, String> {
    let hash = PasswordHash::new(text).map_err(|_| "not a password hash".to_string())?;
    if hash.algorithm.as_str() != "argon2id" || hash.salt.is_none() || hash.hash.is_none() {
        return Err("not an Argon2id password hash".into());
    }
    let params =
        Params::try_from(&hash).map_err(|_| "the password hash has invalid parameters".to_string())?;
    if params.m_cost() > MEMORY_KIB_MAX || params.t_cost() > PASSES_MAX || params.p_cost() > 16 {
        return Err("the password hash is too expensive to verify on a server".into());
    }
    Ok(hash)
}

fn rights(rights: &Rights) -> Result<Actions, String> {
    match rights {
        Rights::Word(word) if word == "all" => Ok(Actions::ALL),
        Rights::Word(word) => Err(word.clone()),
        Rights::Words(words) => {
            words.iter().map(|word| Action::of_word(word).ok_or_else(|| word.clone())).collect()
        }
    }
}

/// What a user may do, and where. `None` leaves an existing user's entry as it is; a new user may read files
/// and their attributes, in the whole filestore.
#[derive(Clone, Debug, Default)]
pub struct Grants {
    /// The user's rights.
    pub rights: Option<Actions>,
    /// The user's home directory.
    pub home: Option<Path>,
}

/// Returns the text of a users file with a new hash and grants for this user; everything else, including
/// comments, is unchanged. If the user is not in the file, adds the user.
///
/// # Errors
/// The text is invalid, or the new text would be.
pub fn set_user(
    text: &str,
    file: &str,
    user: &str,
    hash: &str,
    grants: &Grants,
) -> Result<String, UsersError> {
    Users::parse(text, file)?;
    // `parse` has accepted the text, so it is valid TOML.
    let mut document: DocumentMut = text.parse().unwrap_or_default();
    let users = document.entry("users").or_insert(implicit_table());
    // Users may also be inline tables or dotted keys, which `TableLike` covers.
    if let Some(users) = users.as_table_like_mut() {
        let is_new = !users.contains_key(user);
        let entry = users.entry(user).or_insert_with(|| Item::Table(Table::new()));
        if let Some(entry) = entry.as_table_like_mut() {
            set(entry, "password", hash.into());
            let first = Actions::NONE.with(Action::Read).with(Action::ReadAttribute);
            if let Some(rights) = grants.rights.or(is_new.then_some(first)) {
                set(entry, "rights", rights_value(rights));
            }
            if let Some(home) = &grants.home {
                set(entry, "home", home.to_string().into());
            }
        }
    }
    let new = document.to_string();
    Users::parse(&new, file)?;
    Ok(new)
}

/// A table without a header of its own.
fn implicit_table() -> Item {
    let mut table = Table::new();
    table.set_implicit(true);
    Item::Table(table)
}

/// Sets a value, and keeps the spaces and the comment around an existing one.
fn set(entry: &mut dyn TableLike, key: &str, mut value: Value) {
    if let Some(old) = entry.get(key).and_then(Item::as_value) {
        *value.decor_mut() = old.decor().clone();
    }
    entry.insert(key, Item::Value(value));
}

fn rights_value(rights: Actions) -> Value {
    match rights {
        Actions::ALL => "all".into(),
        _ => Array::from_iter(rights.each().map(Action::word)).into(),
    }
}

/// Sets a user's password and grants in the file. The file is replaced atomically, and keeps its owner and
/// mode. A new file is accessible only to its owner.
///
/// # Errors
/// The file is invalid, or the system reports an error.
pub fn write_user(path: &std::path::Path, user: &str, password: &[u8], grants: &Grants) -> io::Result<()> {
    let old = match std::fs::read_to_string(path) {
        Ok(text) => Some((text, std::fs::metadata(path)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let text = old.as_ref().map_or("", |(text, _)| text);
    let new = set_user(text, &path.display().to_string(), user, &hash(password)?, grants);
    let new = new.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or(std::path::Path::new("."));
    let beside = directory.join(format!(".kiban-users-{:016x}", u64::from_ne_bytes(random::bytes()?)));
    let written = (|| {
        let mut file = std::fs::File::options().write(true).create_new(true).mode(0o600).open(&beside)?;
        if let Some((_, old)) = &old {
            let same = file.metadata().is_ok_and(|new| (new.uid(), new.gid()) == (old.uid(), old.gid()));
            if !same {
                rustix::fs::fchown(&file, Some(Uid::from_raw(old.uid())), Some(Gid::from_raw(old.gid())))?;
            }
            file.set_permissions(std::fs::Permissions::from_mode(old.mode() & 0o777))?;
        }
        file.write_all(new.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&beside, path)?;
        std::fs::File::open(directory)?.sync_all()
    })();
    if written.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    written
}
