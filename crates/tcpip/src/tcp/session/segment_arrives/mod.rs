//! SEGMENT ARRIVES (RFC 9293 §3.10.7): the checks, in the standard's order, and the effects of each field of
//! a segment.

mod acknowledge;
mod arrive;
mod data;
mod options;
mod urgent;

pub(super) use options::STAMPS_BYTES;
