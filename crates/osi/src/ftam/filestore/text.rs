//! Conversion between a host's text files and the strings of FTAM-1 and FTAM-2.
//!
//! Purpose    text that is stored and fetched back is unchanged, byte for byte.
//! Host       a text file consists of bytes, with LF at line ends. The bytes are not interpreted otherwise,
//!            so any character set can be used.
//! CR LF      in string classes with format effectors (such as IA5String and GeneralString) CR LF ends a
//!            line, regardless of where strings are cut. When text is sent, every LF becomes CR LF; when it
//!            is received, every CR LF becomes LF. A single CR is kept.
//! Strings    in string classes without format effectors (GraphicString, VisibleString), and in records of
//!            FTAM-2, the end of a string ends a line. If the last line has no LF, it gains one when it is
//!            fetched back.
//! Limits     a string has at most `string_bytes_max`. If each string is a line, a longer line cannot be
//!            sent, and a line is buffered until its end.
//! Not implemented  conversion between character sets.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use kiban_base::{Bytes, Rope};

/// How line ends are represented in the strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lines {
    /// At CR LF inside strings.
    Within,
    /// Each string ends a line.
    Strings,
}

/// Text that cannot be converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TextError {
    /// A line of the host's text is longer than the maximum string length.
    LongLine,
    /// A string that should be one line contains a line end.
    LineEnd,
}

/// Converts a host's text to strings.
#[derive(Clone, Debug)]
pub struct TextToStrings {
    lines: Lines,
    string_bytes_max: usize,
    begun: Vec<u8>,
    ready: VecDeque<Rope>,
}

impl TextToStrings {
    /// Creates a converter that returns strings of at most this many bytes.
    ///
    /// # Panics
    /// If the maximum is less than two, the length of CR LF.
    pub fn new(lines: Lines, string_bytes_max: usize) -> TextToStrings {
        assert!(string_bytes_max >= 2, "a string holds at least CR LF");
        TextToStrings { lines, string_bytes_max, begun: Vec::new(), ready: VecDeque::new() }
    }

    /// Adds the next bytes of the host's text.
    ///
    /// # Errors
    /// The text cannot be sent.
    pub fn push(&mut self, piece: Bytes) -> Result<(), TextError> {
        match self.lines {
            Lines::Within => self.cut(with_returns(piece)),
            Lines::Strings => self.part(&piece)?,
        }
        Ok(())
    }

    /// Ends the host's text.
    pub fn end(&mut self) {
        if !self.begun.is_empty() {
            self.ready.push_back(core::mem::take(&mut self.begun).into());
        }
    }

    /// Returns the next string.
    pub fn pop(&mut self) -> Option<Rope> {
        self.ready.pop_front()
    }

    /// Returns how many of the host's bytes have not yet been returned in a string.
    pub fn held_bytes(&self) -> usize {
        self.begun.len()
    }

    fn cut(&mut self, mut text: Rope) {
        while text.len() > self.string_bytes_max {
            self.ready.push_back(text.split_to(self.string_bytes_max));
        }
        if !text.is_empty() {
            self.ready.push_back(text);
        }
    }

    fn part(&mut self, piece: &Bytes) -> Result<(), TextError> {
        let mut rest = 0;
        for end in ends(piece) {
            let line = piece.slice(rest..end);
            rest = end + 1;
            if self.begun.len() + line.len() > self.string_bytes_max {
                return Err(TextError::LongLine);
            }
            let mut string = Rope::from(core::mem::take(&mut self.begun));
            string.push(line);
            self.ready.push_back(string);
        }
        if self.begun.len() + (piece.len() - rest) > self.string_bytes_max {
            return Err(TextError::LongLine);
        }
        self.begun.extend_from_slice(&piece[rest..]);
        Ok(())
    }
}

/// Converts strings to a host's text.
#[derive(Clone, Debug)]
pub struct StringsToText {
    lines: Lines,
    /// Whether a CR is held back, because LF may follow it.
    held: bool,
}

impl StringsToText {
    /// Creates a converter. At the start of a text, `held` is false; at a later point, it is the value that
    /// [`StringsToText::is_holding`] returned there.
    pub fn new(lines: Lines, held: bool) -> StringsToText {
        StringsToText { lines, held: held && lines == Lines::Within }
    }

    /// Returns whether the last byte was a CR that is held back.
    pub fn is_holding(&self) -> bool {
        self.held
    }

    /// Converts a string to the host's bytes.
    ///
    /// # Errors
    /// The string is not valid in this text.
    pub fn push(&mut self, string: Rope) -> Result<Rope, TextError> {
        match self.lines {
            Lines::Within => Ok(self.without_returns(string)),
            Lines::Strings => {
                if string.runs().any(|run| run.contains(&b'\n')) {
                    return Err(TextError::LineEnd);
                }
                let mut line = string;
                line.push(Bytes::from_static(b"\n"));
                Ok(line)
            }
        }
    }

    /// Ends the text and returns the remaining bytes.
    pub fn end(&mut self) -> Rope {
        if core::mem::take(&mut self.held) { Rope::from(Bytes::from_static(b"\r")) } else { Rope::new() }
    }

    fn without_returns(&mut self, string: Rope) -> Rope {
        if string.is_empty() {
            return string;
        }
        let plain = !self.held && string.runs().all(|run| !run.contains(&b'\r'));
        if plain {
            return string;
        }
        let mut text = Vec::with_capacity(string.len() + 1);
        for run in string.runs() {
            let mut rest = run;
            if self.held {
                if rest[0] != b'\n' {
                    text.push(b'\r');
                }
                self.held = false;
            }
            while let Some(at) = rest.iter().position(|byte| *byte == b'\r') {
                text.extend_from_slice(&rest[..at]);
                rest = &rest[at + 1..];
                match rest.first() {
                    None => self.held = true,
                    Some(b'\n') => {}
                    Some(_) => text.push(b'\r'),
                }
            }
            text.extend_from_slice(rest);
        }
        text.into()
    }
}

fn ends(piece: &[u8]) -> impl Iterator<Item = usize> + '_ {
    piece.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at)
}

fn with_returns(piece: Bytes) -> Rope {
    let count = ends(&piece).count();
    if count == 0 {
        return Rope::from(piece);
    }
    let mut text = Vec::with_capacity(piece.len() + count);
    for line in piece.split_inclusive(|byte| *byte == b'\n') {
        match line.strip_suffix(b"\n") {
            Some(line) => {
                text.extend_from_slice(line);
                text.extend_from_slice(b"\r\n");
            }
            None => text.extend_from_slice(line),
        }
    }
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn strings(lines: Lines, string_bytes_max: usize, pieces: &[&[u8]]) -> Result<Vec<Vec<u8>>, TextError> {
        let mut outward = TextToStrings::new(lines, string_bytes_max);
        for piece in pieces {
            outward.push(Bytes::copy_from_slice(piece))?;
        }
        outward.end();
        Ok(core::iter::from_fn(|| outward.pop()).map(|string| string.to_vec()).collect())
    }

    fn text(lines: Lines, strings: &[Vec<u8>]) -> Result<Vec<u8>, TextError> {
        let mut inward = StringsToText::new(lines, false);
        let mut text = Vec::new();
        for string in strings {
            text.extend(inward.push(Rope::copied(string))?.to_vec());
            // Continues with a new converter, as after a restart from a checkpoint.
            inward = StringsToText::new(lines, inward.is_holding());
        }
        text.extend(inward.end().to_vec());
        Ok(text)
    }

    #[test]
    fn texts_match_their_strings() {
        type Row<'a> = (Lines, usize, &'a [&'a [u8]], &'a [&'a [u8]]);
        let rows: &[Row<'_>] = &[
            (Lines::Within, 100, &[b"one\ntwo\n"], &[b"one\r\ntwo\r\n"]),
            (Lines::Within, 4, &[b"one\ntwo"], &[b"one\r", b"\ntwo"]),
            (Lines::Within, 100, &[b"on", b"e\n"], &[b"on", b"e\r\n"]),
            (Lines::Within, 100, &[b"dos\r\n"], &[b"dos\r\r\n"]),
            (Lines::Within, 100, &[b""], &[]),
            (Lines::Strings, 100, &[b"one\n\ntw", b"o"], &[b"one", b"", b"two"]),
            (Lines::Strings, 3, &[b"one\ntwo\n"], &[b"one", b"two"]),
        ];
        for (lines, most, given, expected) in rows {
            assert_eq!(strings(*lines, *most, given).unwrap(), *expected, "{given:?}");
        }
    }

    #[test]
    fn unrepresentable_text_is_rejected() {
        assert_eq!(strings(Lines::Strings, 3, &[b"four\n"]), Err(TextError::LongLine));
        assert_eq!(strings(Lines::Strings, 3, &[b"fo", b"ur"]), Err(TextError::LongLine));
        assert_eq!(text(Lines::Strings, &[b"a\nb".to_vec()]), Err(TextError::LineEnd));
    }

    #[test]
    fn a_cr_at_the_end_of_a_string_waits_for_the_next_byte() {
        let rows: &[(&[&[u8]], &[u8])] = &[
            (&[b"a\r", b"\nb"], b"a\nb"),
            (&[b"a\r", b"b"], b"a\rb"),
            (&[b"a\r", b"\r", b"\n"], b"a\r\n"),
            (&[b"a\r", b"", b"\n"], b"a\n"),
            (&[b"a\r"], b"a\r"),
            (&[b"a\nb"], b"a\nb"),
        ];
        for (given, expected) in rows {
            let given: Vec<Vec<u8>> = given.iter().map(|string| string.to_vec()).collect();
            assert_eq!(text(Lines::Within, &given).unwrap(), *expected, "{given:?}");
        }
    }

    proptest! {
        #[test]
        fn text_survives_a_round_trip(
            pieces in proptest::collection::vec("[ab\r\n]{0,12}", 0..6), most in 2..20usize,
        ) {
            let pieces: Vec<&[u8]> = pieces.iter().map(|piece| piece.as_bytes()).collect();
            let strings = strings(Lines::Within, most, &pieces).unwrap();
            prop_assert!(strings.iter().all(|string| string.len() <= most));
            prop_assert_eq!(text(Lines::Within, &strings).unwrap(), pieces.concat());
        }

        #[test]
        fn lines_survive_a_round_trip(pieces in proptest::collection::vec("[ab\r\n]{0,12}", 0..6)) {
            let pieces: Vec<&[u8]> = pieces.iter().map(|piece| piece.as_bytes()).collect();
            let strings = strings(Lines::Strings, 100, &pieces).unwrap();
            let mut expected = pieces.concat();
            if !expected.is_empty() && !expected.ends_with(b"\n") {
                expected.push(b'\n');
            }
            prop_assert_eq!(text(Lines::Strings, &strings).unwrap(), expected);
        }
    }
}
