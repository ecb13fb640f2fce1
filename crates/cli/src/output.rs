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

/// Quotes a text for sh(1).
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Returns whether text for this stream may have colours: it is a terminal, and the user has not set NO_COLOR
/// (<https://no-color.org>).
pub(crate) fn has_colours(stream: &impl std::io::IsTerminal) -> bool {
    let is_set = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    stream.is_terminal() && !is_set
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
    ($($text:tt)*) => { $crate::output::write_line(&mut std::io::stderr(), format_args!($($text)*)) };
}
pub(crate) use note;

/// Writes a line with one call of `write`: standard error is not buffered, and another thread or process
/// could otherwise write into the middle of the line. Ignores errors.
pub(crate) fn write_line(to: &mut impl std::io::Write, text: std::fmt::Arguments<'_>) {
    let _ = to.write_all(format!("{text}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_written_in_one_piece() {
        struct Pieces(Vec<Vec<u8>>);
        impl std::io::Write for Pieces {
            fn write(&mut self, piece: &[u8]) -> std::io::Result<usize> {
                self.0.push(piece.to_vec());
                Ok(piece.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let mut pieces = Pieces(Vec::new());
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 4791));
        write_line(&mut pieces, format_args!("serving at {address} over {}", "TCP"));
        assert_eq!(pieces.0, [b"serving at 127.0.0.1:4791 over TCP\n"]);
    }
}
