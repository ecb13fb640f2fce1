//! Escapes untrusted text for output on a terminal.
//!
//! Threat           control characters in untrusted text can move the cursor, hide or forge lines, or make
//!                  the terminal send input on behalf of its user.
//! Rule             control characters (C0, DEL, C1) and invisible characters that reorder or join adjacent
//!                  text are shown as escapes: `\n`, `\u{1b}`. All other characters are unchanged, including
//!                  quotes and backslashes.

use std::borrow::Cow;

/// Returns the text on one line, with control and invisible characters escaped.
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, is_plain)
}

/// Returns the text with control and invisible characters escaped, except line feeds and tabs.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |character| matches!(character, '\n' | '\t') || is_plain(character))
}

fn escaped(text: &str, is_plain: impl Fn(char) -> bool) -> Cow<'_, str> {
    if text.chars().all(&is_plain) {
        return text.into();
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match is_plain(character) {
            true => escaped.push(character),
            false => escaped.extend(character.escape_debug()),
        }
    }
    escaped.into()
}

/// Returns whether a terminal shows the character in place. It does not for control characters, directional
/// marks, embeddings and isolates (UAX #9), line and paragraph separators, and zero-width characters.
fn is_plain(character: char) -> bool {
    let is_invisible = matches!(character, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(character, '\u{2060}'..='\u{206f}' | '\u{feff}')
        || matches!(character, '\u{ad}' | '\u{180e}' | '\u{fe00}'..='\u{fe0f}' | '\u{fff9}'..='\u{fffb}')
        || matches!(character, '\u{115f}' | '\u{3164}' | '\u{ffa0}' | '\u{e0000}'..='\u{e01ef}');
    !character.is_control() && !is_invisible
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_terminal_control_characters_are_escaped() {
        for (text, shown) in [
            ("", ""),
            ("lab: 10.0.0.1/24 «é» \"C:\\x\" 日本", "lab: 10.0.0.1/24 «é» \"C:\\x\" 日本"),
            ("\x1b[2J\x07", "\\u{1b}[2J\\u{7}"),
            ("one\r\ntwo\t\0", "one\\r\\ntwo\\t\\0"),
            ("\u{7f}\u{9b}31m", "\\u{7f}\\u{9b}31m"),
            ("a\u{e0041}b\u{ad}", "a\\u{e0041}b\\u{ad}"),
            ("a\u{202e}b\u{2066}c\u{200b}d\u{feff}", "a\\u{202e}b\\u{2066}c\\u{200b}d\\u{feff}"),
        ] {
            assert_eq!(printable(text), shown);
        }
        assert_eq!(printable_lines("line 3:\n\tone\r\n\x1b"), "line 3:\n\tone\\r\n\\u{1b}");
    }
}
