//! Standard output and standard error of commands.

/// Formats a value as indented JSON that ends with a newline.
pub(crate) fn json(object: &impl serde::Serialize) -> Result<String, String> {
    let text = serde_json::to_string_pretty(object).map_err(|error| error.to_string())?;
    Ok(text + "\n")
}

/// Formats a value as one line of JSON, for programs that read a stream of lines.
pub(crate) fn json_line(object: &impl serde::Serialize) -> Result<String, String> {
    serde_json::to_string(object).map(|text| text + "\n").map_err(|error| error.to_string())
}

/// Escapes control characters of a text from elsewhere, which could rewrite what a terminal shows.
pub(crate) fn printable(text: &str) -> String {
    let escaped = |letter: char| match letter.is_control() {
        true => letter.escape_default().to_string(),
        false => letter.to_string(),
    };
    text.chars().map(escaped).collect()
}

/// Writes to standard output. If the reader closes the pipe early, this is not an error.
pub(crate) fn print(text: &str) -> Result<(), String> {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(format!("cannot write to standard output: {error}"))
        }
        _ => Ok(()),
    }
}

/// Prints a line to standard error. Continues if nothing reads it any more: a peer can make a server print a
/// line, and `eprintln!` would end the server if the reader is gone.
macro_rules! note {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}
pub(crate) use note;
