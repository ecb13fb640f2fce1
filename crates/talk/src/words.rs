//! The words of a line, and errors with the position of a word.

use crate::script::{Number, ParseError};
use std::time::Duration;

/// The maximum number of bytes in a run of data.
const RUN_BYTES_MAX: i64 = 1 << 30;

#[derive(Clone, Debug)]
pub(crate) enum Token {
    Word(String),
    Text(Vec<u8>),
}

pub(crate) struct Words<'a> {
    pub(crate) file: &'a str,
    pub(crate) number: usize,
    pub(crate) text: &'a str,
    pub(crate) tokens: Vec<(usize, Token)>,
    pub(crate) at: usize,
}

impl<'a> Words<'a> {
    pub(crate) fn of(file: &'a str, number: usize, text: &'a str) -> Result<Words<'a>, ParseError> {
        let mut words = Words { file, number, text, tokens: Vec::new(), at: 0 };
        let mut letters = text.chars().enumerate().peekable();
        while let Some(&(column, letter)) = letters.peek() {
            match letter {
                '#' => break,
                letter if letter.is_whitespace() || letter == ',' => {
                    letters.next();
                }
                '"' => {
                    letters.next();
                    let mut bytes = Vec::new();
                    loop {
                        match letters.next() {
                            Some((_, '"')) => break,
                            Some((_, '\\')) => match letters.next() {
                                Some((_, 'n')) => bytes.push(b'\n'),
                                Some((_, 'r')) => bytes.push(b'\r'),
                                Some((_, other)) => bytes.extend(other.to_string().bytes()),
                                None => {}
                            },
                            Some((_, other)) => bytes.extend(other.to_string().bytes()),
                            None => return Err(words.error_at(column, "unterminated string", None)),
                        }
                    }
                    words.tokens.push((column, Token::Text(bytes)));
                }
                _ => {
                    let mut word = String::new();
                    while let Some(&(_, letter)) = letters.peek() {
                        if letter.is_whitespace() || matches!(letter, ',' | '"' | '#') {
                            break;
                        }
                        word.push(letter);
                        letters.next();
                    }
                    words.tokens.push((column, Token::Word(word)));
                }
            }
        }
        Ok(words)
    }

    pub(crate) fn peek(&self) -> Option<&str> {
        match self.tokens.get(self.at) {
            Some((_, Token::Word(word))) => Some(word),
            _ => None,
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.at == self.tokens.len()
    }

    pub(crate) fn next(&mut self) -> Option<String> {
        let word = self.peek().map(str::to_string);
        self.at += usize::from(word.is_some());
        word
    }

    /// Takes the next word if it is `word`; returns whether it did.
    pub(crate) fn takes(&mut self, word: &str) -> bool {
        let is = self.peek() == Some(word);
        self.at += usize::from(is);
        is
    }

    pub(crate) fn rest(&mut self) -> String {
        let mut words = Vec::new();
        while let Some(word) = self.next() {
            words.push(word);
        }
        words.join(" ")
    }

    pub(crate) fn word(&mut self, what: &str) -> Result<String, ParseError> {
        match self.next() {
            Some(word) => Ok(word),
            None => Err(self.error_here(&format!("{what} is missing here"), None)),
        }
    }

    pub(crate) fn text_or_word(&mut self, what: &str) -> Result<String, ParseError> {
        match self.literal() {
            Some(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            None => self.word(what),
        }
    }

    pub(crate) fn literal(&mut self) -> Option<Vec<u8>> {
        match self.tokens.get(self.at) {
            Some((_, Token::Text(bytes))) => {
                let bytes = bytes.clone();
                self.at += 1;
                Some(bytes)
            }
            _ => None,
        }
    }

    pub(crate) fn end(&self) -> Result<(), ParseError> {
        if self.is_done() { Ok(()) } else { Err(self.error_here("unexpected word", None)) }
    }

    pub(crate) fn number<T: TryFrom<i64>>(&mut self, what: &str) -> Result<T, ParseError> {
        let word = self.word(what)?;
        plain(&word)
            .and_then(|number| T::try_from(number).ok())
            .ok_or_else(|| self.error_before(&format!("`{word}` is not {what}"), None))
    }

    pub(crate) fn asked(&mut self, what: &str) -> Result<Number, ParseError> {
        if self.takes("any") { Ok(Number::Any) } else { Ok(Number::Is(self.number(what)?)) }
    }

    pub(crate) fn range(&mut self, what: &str) -> Result<(i64, i64), ParseError> {
        let word = self.word(what)?;
        let (begin, end) = word.split_once(':').unwrap_or((&word, &word));
        match (plain(begin), plain(end)) {
            (Some(begin), Some(end)) if begin <= end && end - begin <= RUN_BYTES_MAX => Ok((begin, end)),
            _ => Err(self.error_before(
                &format!("`{word}` is not {what}"),
                Some("write FIRST:END, where END is the number after the last byte".into()),
            )),
        }
    }

    /// Parses the edges of a SACK block; a peer may send them in the wrong order.
    pub(crate) fn block(&mut self) -> Result<(i64, i64), ParseError> {
        let word = self.word("a block")?;
        let edges = word.split_once(':').and_then(|(left, right)| Some((plain(left)?, plain(right)?)));
        edges.ok_or_else(|| {
            self.error_before(&format!("`{word}` is not a block"), Some("write LEFT:RIGHT".into()))
        })
    }

    pub(crate) fn length(&mut self, what: &str) -> Result<Duration, ParseError> {
        let word = self.word(what)?;
        duration(&word).ok_or_else(|| {
            let hint = "write a number and a unit: 40ms, 1.5s, 10us, 2min";
            self.error_before(&format!("`{word}` is not a duration"), Some(hint.into()))
        })
    }

    pub(crate) fn hex(&mut self) -> Result<Vec<u8>, ParseError> {
        let mut digits = String::new();
        while let Some(word) = self.peek() {
            if !word.chars().all(|digit| digit.is_ascii_hexdigit()) {
                break;
            }
            digits += word;
            self.at += 1;
        }
        let bytes: Option<Vec<u8>> = (0..digits.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok())
            .collect();
        bytes
            .filter(|bytes| !bytes.is_empty())
            .ok_or_else(|| self.error_here("expected bytes in hex", Some("two digits per byte".into())))
    }

    pub(crate) fn error_at(&self, column: usize, message: &str, hint: Option<String>) -> ParseError {
        ParseError {
            file: self.file.into(),
            line: self.number,
            column: column + 1,
            text: self.text.into(),
            message: message.into(),
            hint,
        }
    }

    pub(crate) fn error_here(&self, message: &str, hint: Option<String>) -> ParseError {
        let column =
            self.tokens.get(self.at).map_or(self.text.trim_end().chars().count(), |(column, _)| *column);
        self.error_at(column, message, hint)
    }

    pub(crate) fn error_before(&self, message: &str, hint: Option<String>) -> ParseError {
        let column = self.tokens.get(self.at.saturating_sub(1)).map_or(0, |(column, _)| *column);
        self.error_at(column, message, hint)
    }

    /// Returns the error that says that the previous word is not one of `known`.
    pub(crate) fn unknown(&self, what: &str, known: &[&str]) -> ParseError {
        let word = match self.tokens.get(self.at.saturating_sub(1)) {
            Some((_, Token::Word(word))) => word.clone(),
            _ => String::new(),
        };
        let hint = hint(&word, known).unwrap_or_else(|| format!("known are {}", known.join(", ")));
        self.error_before(&format!("`{word}` is not {what}"), Some(hint))
    }
}

/// Suggests the most similar known word, if one is similar enough.
pub(crate) fn hint(word: &str, known: &[&str]) -> Option<String> {
    let close =
        known.iter().filter(|other| edits(word, other) <= 2).min_by_key(|other| edits(word, other))?;
    Some(format!("did you mean `{close}`?"))
}

fn plain(word: &str) -> Option<i64> {
    let word = word.replace('_', "");
    match word.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
    .filter(|number: &i64| number.abs() <= i64::from(u32::MAX))
}

/// Parses a duration such as `40ms` or `1.5s`.
pub(crate) fn duration(word: &str) -> Option<Duration> {
    let split = word.find(|letter: char| letter.is_ascii_alphabetic())?;
    let (number, unit) = word.split_at(split);
    let nanos: u64 = match unit {
        "ns" => 1,
        "us" => 1000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let mut total = whole.parse::<u64>().ok()?.checked_mul(nanos)?;
    let mut unit = nanos;
    for digit in fraction.chars() {
        unit /= 10;
        total = total.checked_add(u64::from(digit.to_digit(10)?) * unit)?;
    }
    Some(Duration::from_nanos(total))
}

/// Returns the edit distance of two words.
fn edits(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut before = row[0];
        row[0] = i + 1;
        for (j, b) in other.iter().enumerate() {
            let change = before + usize::from(a != *b);
            before = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(before + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_exact() {
        for (text, nanos) in
            [("40ms", 40_000_000), ("1.5s", 1_500_000_000), ("0.25us", 250), ("2min", 120_000_000_000)]
        {
            assert_eq!(duration(text), Some(Duration::from_nanos(nanos)), "{text}");
        }
        for (nanos, text) in [
            (0, "0ms"),
            (40_000_000, "40ms"),
            (1_500_000_000, "1500ms"),
            (2_000_000_000, "2s"),
            (1_000_500, "1.0005ms"),
            (999, "999ns"),
        ] {
            assert_eq!(crate::script::length_of(Duration::from_nanos(nanos)), text);
        }
    }
}
