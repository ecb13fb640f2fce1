//! MPA: vectors of RFC 5044, replays of siw, set-ups of every kind, markers, and strangers.

mod captures;
mod framing;
mod setup;

/// The bytes that hexadecimal digits stand for; blanks are left out.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}
