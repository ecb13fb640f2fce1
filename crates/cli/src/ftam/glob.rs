//! Patterns for names: `*`, `?` and `[a-z]` match as in a shell, within one component of a path.
//!
//! Purpose          `get 'exchange:calls/*.cdr' .`, and --include and --exclude of `mirror`.
//! Operation        a `\` makes the next character ordinary. `*` and `?` do not match a dot at the beginning
//!                  of a name.
//! Not implemented  `**` and `{a,b}`.

/// Returns whether a text contains a pattern.
pub(super) fn is_pattern(text: &str) -> bool {
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '*' | '?' | '[' => return true,
            '\\' => drop(letters.next()),
            _ => {}
        }
    }
    false
}

/// Makes every character of a text ordinary.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len());
    for letter in text.chars() {
        if matches!(letter, '*' | '?' | '[' | '\\') {
            quoted.push('\\');
        }
        quoted.push(letter);
    }
    quoted
}

/// Returns the text that a pattern without `*`, `?` and `[` matches.
pub(super) fn plain(pattern: &str) -> String {
    let mut plain = String::with_capacity(pattern.len());
    let mut letters = pattern.chars();
    while let Some(letter) = letters.next() {
        plain.extend(if letter == '\\' { letters.next() } else { Some(letter) });
    }
    plain
}

/// Returns whether a pattern matches one component of a path.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    if name.first() == Some(&'.') && matches!(pattern.first(), Some('*' | '?' | '[')) {
        return false;
    }
    // If a later part fails, the last `*` takes one more character; earlier ones need not be tried again.
    let (mut at, mut from, mut star) = (0, 0, None);
    while from < name.len() {
        if pattern.get(at) == Some(&'*') {
            star = Some((at, from));
            at += 1;
        } else if let Some(length) = one(&pattern[at..], name[from]) {
            (at, from) = (at + length, from + 1);
        } else if let Some((before, taken)) = star {
            star = Some((before, taken + 1));
            (at, from) = (before + 1, taken + 1);
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(|letter| *letter == '*')
}

/// Returns the length of the pattern's first element if it matches a character.
fn one(pattern: &[char], letter: char) -> Option<usize> {
    match pattern {
        ['?', ..] => Some(1),
        ['\\', escaped, ..] => (*escaped == letter).then_some(2),
        ['[', class @ ..] => {
            let not = matches!(class.first(), Some('!' | '^'));
            let first = usize::from(not);
            // A `]` at the beginning is an ordinary character of the class.
            let end = class.iter().skip(first + 1).position(|c| *c == ']').map(|at| at + first + 1);
            let Some(end) = end else { return (letter == '[').then_some(1) };
            let (mut at, mut found) = (first, false);
            while at < end {
                if at + 2 < end && class[at + 1] == '-' {
                    found |= (class[at]..=class[at + 2]).contains(&letter);
                    at += 3;
                } else {
                    found |= class[at] == letter;
                    at += 1;
                }
            }
            (found != not).then_some(end + 2)
        }
        [plain, ..] => (*plain == letter).then_some(1),
        [] => None,
    }
}

/// Which files of a tree are meant.
#[derive(Clone, Default)]
pub(super) struct Filter {
    pub(super) include: Vec<String>,
    pub(super) exclude: Vec<String>,
}

impl Filter {
    /// Returns whether a file or directory is included. A pattern with a slash is compared with the whole
    /// path, and a pattern without one with the last component.
    pub(super) fn has(&self, path: &str, is_directory: bool) -> bool {
        let is_excluded = self.exclude.iter().any(|pattern| meets(pattern, path));
        // A directory is entered whatever its name, because included files may be below it.
        let is_included = is_directory
            || self.include.is_empty()
            || self.include.iter().any(|pattern| meets(pattern, path));
        is_included && !is_excluded
    }
}

fn meets(pattern: &str, path: &str) -> bool {
    let pattern = pattern.trim_matches('/');
    if !pattern.contains('/') {
        return matches(pattern, path.rsplit('/').next().unwrap_or_default());
    }
    let (mut parts, mut names) = (pattern.split('/'), path.split('/'));
    loop {
        match (parts.next(), names.next()) {
            (None, None) => return true,
            (Some(part), Some(name)) if matches(part, name) => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_as_in_a_shell() {
        for (pattern, yes, no) in [
            ("*.cdr", &["a.cdr", "a.b.cdr"][..], &["a.cdr2", ".cdr", "cdr", ".x.cdr"][..]),
            ("a?c", &["abc", "a€c"], &["ac", "abbc"]),
            ("[a-c]*[!0-9]", &["bx", "a1x"], &["dx", "a1", "a"]),
            ("[]x]", &["]", "x"], &["[", "y"]),
            ("a*b*c", &["abc", "aXbYbZc"], &["ab", "acb"]),
            ("a\\*", &["a*"], &["ab"]),
            ("[x", &["[x"], &["x"]),
            (".*", &[".x"], &["x"]),
            ("", &[""], &["x"]),
        ] {
            for name in yes {
                assert!(matches(pattern, name), "{pattern} {name}");
            }
            for name in no {
                assert!(!matches(pattern, name), "{pattern} {name}");
            }
        }
        let evil = "a*".repeat(30) + "b";
        assert!(!matches(&evil, &"a".repeat(2000)), "it is not exponential");
    }

    #[test]
    fn quoted_text_is_no_pattern_and_matches_itself() {
        for text in ["a*b", "[x]", "?", "a\\b", "plain"] {
            let quoted = quoted(text);
            assert!(!is_pattern(&quoted) && matches(&quoted, text), "{quoted}");
            assert_eq!(plain(&quoted), text);
        }
        assert!(is_pattern("a*") && is_pattern("\\*?") && !is_pattern("\\*"));
    }

    #[test]
    fn a_filter_excludes_before_it_includes() {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let filter = Filter { include: words(&["*.cdr"]), exclude: words(&["old", "x/*.cdr"]) };
        for (path, is_directory, expected) in [
            ("a.cdr", false, true),
            ("y/a.cdr", false, true),
            ("x/a.cdr", false, false),
            ("a.txt", false, false),
            ("x", true, true),
            ("old", true, false),
            ("y/old", true, false),
        ] {
            assert_eq!(filter.has(path, is_directory), expected, "{path}");
        }
        assert!(Filter::default().has("any", false));
    }
}
