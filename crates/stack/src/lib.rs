//! Protocols as state machines without I/O.
