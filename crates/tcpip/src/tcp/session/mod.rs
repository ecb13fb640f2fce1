//! One TCP connection: its transmission control block (TCB), and its handlers for segments, requests and
//! timers (RFC 9293 §3.10).
//!
//! Transmit path    `append`, `finish` and `abort` change the send queue or state; `output` sends what
//!                  windows and Nagle allow.
//! Receive path     `on_segment` follows the standard's order of checks. Data in order is delivered at once;
//!                  out-of-order data is queued.
//! ACKs             an arriving segment only schedules an acknowledgement. `output` sends it after the burst,
//!                  so there is one acknowledgement decision per burst (the pipeline rescheduling of paper
//!                  \[1\]). If there is data to send, it carries the acknowledgement.
//! Memory           if no PDU block is free, `output` returns `Starved` and is called again later.

mod autotune;
mod cookie;
mod ecn;
mod end;
mod fast_open;
mod icmp;
mod info;
mod recovery;
mod requests;
mod segment_arrives;
mod send;
mod tcb;
mod time;
mod watch;
#[cfg(test)]
mod wraps;

pub(super) use tcb::{Progress, Session, SessionContext, period_of};
