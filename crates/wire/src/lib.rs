//! Formats: a checked view and a plain representation of every header.
