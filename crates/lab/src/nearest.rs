//! The known word that somebody may have meant.

/// Words are near if at least half of the longer one is the same.
const NEAR: f64 = 0.5;

/// What to say of a word that is not known: the nearest one that is, or all of them.
pub fn nearest(word: &str, known: &[&str]) -> String {
    let scores = known.iter().map(|other| (strsim::normalized_damerau_levenshtein(word, other), other));
    match scores.max_by(|one, other| one.0.total_cmp(&other.0)) {
        Some((score, other)) if score >= NEAR => format!("did you mean '{other}'?"),
        _ => all(known),
    }
}

/// What words there are.
pub fn all(known: &[&str]) -> String {
    if known.is_empty() { "there are none".to_owned() } else { format!("there are: {}", known.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_guessed_and_nonsense_is_not() {
        let known = ["message_bytes", "buffer_bytes"];
        for (word, expected) in [
            ("mesage_bytes", "did you mean 'message_bytes'?"),
            ("buffer", "did you mean 'buffer_bytes'?"),
            ("x", "there are: message_bytes, buffer_bytes"),
            ("", "there are: message_bytes, buffer_bytes"),
        ] {
            assert_eq!(nearest(word, &known), expected, "{word}");
        }
        assert_eq!(nearest("x", &[]), "there are none");
    }
}
