//! SEGMENT ARRIVES (RFC 9293 §3.10.7): the order of checks, then what a segment's fields change.

mod acknowledge;
mod arrive;
mod data;
mod options;
mod urgent;

pub(super) use options::STAMPS_BYTES;
