//! Suggestions for misspelled names.

/// The minimum normalized Damerau-Levenshtein similarity for a suggestion.
const NEAR: f64 = 0.5;

/// Returns a hint for an unknown word: the most similar known word, or a list of all of them.
pub fn suggest(word: &str, known: &[&str]) -> String {
    let scores = known.iter().map(|other| (strsim::normalized_damerau_levenshtein(word, other), other));
    match scores.max_by(|one, other| one.0.total_cmp(&other.0)) {
        Some((score, other)) if score >= NEAR => format!("did you mean '{other}'?"),
        _ => all(known),
    }
}

/// Returns a hint that lists all known words.
pub fn all(known: &[&str]) -> String {
    if known.is_empty() { "none exist".to_owned() } else { format!("expected one of: {}", known.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_gets_a_suggestion_and_nonsense_does_not() {
        let known = ["message_bytes", "buffer_bytes"];
        for (word, expected) in [
            ("mesage_bytes", "did you mean 'message_bytes'?"),
            ("buffer", "did you mean 'buffer_bytes'?"),
            ("x", "expected one of: message_bytes, buffer_bytes"),
            ("", "expected one of: message_bytes, buffer_bytes"),
        ] {
            assert_eq!(suggest(word, &known), expected, "{word}");
        }
        assert_eq!(suggest("x", &[]), "none exist");
    }
}
