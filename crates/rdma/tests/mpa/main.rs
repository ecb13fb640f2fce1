//! MPA: vectors from RFC 5044, replays of siw captures, all kinds of setup, markers, and random input.

mod captures;
mod framing;
mod setup;

/// Decodes hexadecimal digits; blanks are ignored.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}
