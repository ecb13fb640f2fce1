//! Errors in a configuration: the line, the key, what is wrong, and what to do.

use std::fmt;

/// An error in a configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError {
    /// The line number, counted from 1. It is 0 if the error concerns the whole file.
    pub line: usize,
    /// The key; empty if the error does not concern a key.
    pub key: String,
    /// What is wrong.
    pub wrong: String,
    /// What to do; empty if that is obvious.
    pub remedy: String,
}

impl ConfigError {
    /// Returns an error at a byte offset in the text, with the key on that line.
    pub(super) fn at(
        text: &str,
        at: usize,
        wrong: impl Into<String>,
        remedy: impl Into<String>,
    ) -> ConfigError {
        ConfigError {
            line: line_of(text, at),
            key: key_of(text, at),
            wrong: wrong.into(),
            remedy: remedy.into(),
        }
    }

    /// Converts an error from TOML or serde; for an unknown key, suggests the closest known one.
    pub(super) fn of_toml(text: &str, error: &toml::de::Error) -> ConfigError {
        let at = error.span().map_or(0, |span| span.start);
        let message = error.message().trim();
        let words: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
        let is_unknown = message.starts_with("unknown field") || message.starts_with("unknown variant");
        let mut converted = match &words[..] {
            [word, known @ ..] if is_unknown => {
                let is_key = message.starts_with("unknown field");
                let what = if is_key { "key" } else { "value" };
                let mut unknown =
                    ConfigError::at(text, at, format!("unknown {what} `{word}`"), hint(word, known));
                if is_key {
                    unknown.key.clear();
                }
                unknown
            }
            [word] if message.starts_with("missing field") => {
                let mut missing = ConfigError::at(text, at, format!("`{word}` is missing"), example(word));
                missing.key.clear();
                missing
            }
            _ => match of_type(message) {
                Some((wrong, remedy)) => ConfigError::at(text, at, wrong, remedy),
                None => ConfigError::at(text, at, message, ""),
            },
        };
        if error.span().is_none() {
            converted.line = 0;
        }
        converted
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}: ", self.line)?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.wrong)?;
        if self.remedy.is_empty() { Ok(()) } else { write!(f, ": {}", self.remedy) }
    }
}

impl std::error::Error for ConfigError {}

/// Returns a hint that names the known word closest to `word`, or all known words if none is close.
pub(super) fn hint(word: &str, known: &[&str]) -> String {
    let near = |other: &&&str| strsim::damerau_levenshtein(word, other);
    match known.iter().min_by_key(near).filter(|other| near(other) <= 3) {
        Some(other) => format!("did you mean `{other}`?"),
        None if known.is_empty() => "none are allowed here".to_owned(),
        None => format!("expected one of {}", known.join(", ")),
    }
}

/// Returns an example line that sets a missing key.
fn example(key: &str) -> String {
    let value = match key {
        "name" => "lan",
        "link" => "tap:kiban0",
        "vc" => "0.100",
        "to" => "0.0.0.0/0",
        "via" => "10.0.0.254",
        "kind" => "echo",
        "listen" => "127.0.0.1:9464",
        "from" => "a:0.100",
        _ => return "add it".into(),
    };
    format!("add it, for example {key} = \"{value}\"")
}

/// Parses serde's message about a value of the wrong type, such as ``invalid type: integer `100`, expected a
/// string``.
fn of_type(message: &str) -> Option<(String, String)> {
    let rest = message.strip_prefix("invalid type: ").or_else(|| message.strip_prefix("invalid value: "))?;
    let (found, expected) = rest.split_once(", expected ")?;
    let (kind, value) = match found.split_once(['`', '"']) {
        Some((kind, value)) => (kind.trim(), value.trim_end_matches(['`', '"'])),
        None => (found, ""),
    };
    let wrong = match kind {
        "string" => format!("`\"{value}\"` is a string"),
        "integer" | "floating point" => format!("`{value}` is a number"),
        "boolean" => format!("`{value}` is a boolean"),
        "map" => "this is a table".to_owned(),
        "sequence" => "this is a list".to_owned(),
        other => format!("this is a {other}"),
    };
    let remedy = match expected {
        "a string" if !value.is_empty() => {
            format!("write it in quotes, with its unit if it has one: \"{value}\"")
        }
        "a string" => "write a string in quotes".to_owned(),
        "a boolean" => "write true or false".to_owned(),
        "f64" => "write a number without quotes or unit, such as 10000".to_owned(),
        "u8" | "u16" | "u32" | "u64" | "usize" => {
            "write a non-negative integer without quotes or unit".to_owned()
        }
        "a sequence" => "write its name in [[ ]], once for each entry".to_owned(),
        other if other.starts_with("struct ") || other == "a map" => "write its name in [ ]".to_owned(),
        other => format!("write {other}"),
    };
    Some((wrong, remedy))
}

fn line_of(text: &str, at: usize) -> usize {
    1 + text.as_bytes()[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count()
}

/// Returns the text before `=` on the line that contains a byte offset.
fn key_of(text: &str, at: usize) -> String {
    let line = text.lines().nth(line_of(text, at) - 1).unwrap_or_default();
    match line.split_once('=') {
        Some((key, _)) if !line.trim_start().starts_with(['#', '[']) => key.trim().to_owned(),
        _ => String::new(),
    }
}
