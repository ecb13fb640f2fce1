//! Escaping of text for HTML, SVG and CSV.
//!
//! Purpose   one function for HTML and SVG, for elements and quoted attributes alike, so that callers cannot
//!           choose the wrong one.
//! Characters  printable characters are kept. Two kinds of characters become U+FFFD: control characters,
//!             which XML forbids, and bidirectional controls, with which a label could change the appearance
//!             of its neighbours.
//! Not implemented  escaping for scripts and styles: no external text is inserted there.

/// Escapes text for HTML or SVG, for use in an element or in a quoted attribute.
pub fn text(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\n' | '\t' => safe.push(character),
            // XML 1.0 §2.2 excludes these two characters and most control characters.
            '\u{fffe}' | '\u{ffff}' => safe.push('\u{fffd}'),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => safe.push('\u{fffd}'),
            _ if character.is_control() => safe.push('\u{fffd}'),
            _ => safe.push(character),
        }
    }
    safe
}

/// Escapes words for HTML, in which commands stand between backquotes, as in the terminal.
pub fn words(words: &str) -> String {
    let mut html = String::with_capacity(words.len());
    let mut rest = words;
    while let Some((before, (command, after))) =
        rest.split_once('`').and_then(|(before, more)| Some((before, more.split_once('`')?)))
    {
        html += &format!("{}<code>{}</code>", text(before), text(command));
        rest = after;
    }
    html + &text(rest)
}

/// Escapes a field of comma-separated values (RFC 4180). Text that a spreadsheet would take for a formula is
/// quoted as text.
pub fn field(text: &str) -> String {
    let formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let text = if formula { format!("'{text}") } else { text.to_owned() };
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

/// Returns a name that is valid in `id` and in a link: letters, digits and dashes.
pub fn slug(text: &str) -> String {
    let mut slug = String::new();
    for character in text.chars() {
        match character {
            _ if character.is_ascii_alphanumeric() => slug.push(character.to_ascii_lowercase()),
            _ if slug.is_empty() || slug.ends_with('-') => {}
            _ => slug.push('-'),
        }
    }
    slug.trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_stays_text() {
        for (given, expected) in [
            ("plain µs – ok", "plain µs – ok"),
            ("</script><script>alert(1)</script>", "&lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt;"),
            ("\" onload='x'", "&quot; onload=&#39;x&#39;"),
            ("a & b &amp; c", "a &amp; b &amp;amp; c"),
            ("]]><!--", "]]&gt;&lt;!--"),
            (
                "bell\u{7} nul\0 esc\u{1b}[31m del\u{7f} c1\u{85}",
                "bell\u{fffd} nul\u{fffd} esc\u{fffd}[31m del\u{fffd} c1\u{fffd}",
            ),
            ("two\nlines\tand tab", "two\nlines\tand tab"),
            ("\u{202e}gnp.exe", "\u{fffd}gnp.exe"),
            ("\u{ffff}", "\u{fffd}"),
        ] {
            assert_eq!(text(given), expected, "{given:?}");
        }
    }

    #[test]
    fn commands_between_backquotes_are_marked() {
        for (given, expected) in [
            ("run `kiban top`, or `ss -ti`.", "run <code>kiban top</code>, or <code>ss -ti</code>."),
            ("`<b>` & one ` alone", "<code>&lt;b&gt;</code> &amp; one ` alone"),
        ] {
            assert_eq!(words(given), expected, "{given}");
        }
    }

    #[test]
    fn fields_are_quoted_and_formulas_are_text() {
        for (given, expected) in [
            ("16 KB", "16 KB"),
            ("a, b", "\"a, b\""),
            ("say \"x\"", "\"say \"\"x\"\"\""),
            ("=1+1", "'=1+1"),
            ("@SUM(A1,B1)", "\"'@SUM(A1,B1)\""),
        ] {
            assert_eq!(field(given), expected);
        }
    }

    #[test]
    fn slugs_are_safe_names() {
        for (given, expected) in [("Fig. 7", "fig-7"), ("§3.2, §3.3", "3-2-3-3"), ("<b>", "b"), ("", "")] {
            assert_eq!(slug(given), expected);
        }
    }
}
