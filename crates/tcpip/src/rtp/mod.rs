//! RTP and RTCP: streams with real-time data, and reports on how they arrive (RFC 3550).
//!
//! Purpose          measure a stream at its receiver (loss, reordering, jitter), and exchange reports with
//!                  the sender at the standard's rate.
//! Receive path     [`Session::on_rtp`] validates sequence numbers per source (A.1) and updates its losses
//!                  (A.3) and jitter (A.8); [`Session::on_rtcp`] keeps what the other end reports.
//! Transmit path    [`Session::stamp`] writes the header of a packet; [`Session::poll`] returns a compound
//!                  RTCP packet when one is due (§6.3).
//! State            one [`Source`] per SSRC, and the timing of RTCP ([`Interval`]). Random numbers come from
//!                  the caller.
//! Limits           [`Config::sources_max`] sources; further ones are counted and ignored.
//! Not implemented  change of the SSRC after a collision (§8.2; collisions are counted), mixers and
//!                  translators (§7), encryption (§9), SDES items other than CNAME, profiles other than the
//!                  fixed header.

mod interval;
mod session;
mod source;

pub use interval::{Interval, Members};
pub use session::{Arrival, Config, Counters, PeerReport, Session, SourceView};
pub use source::{Source, Verdict};
