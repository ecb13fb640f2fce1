//! Communication management for RoCEv2 (IBTA volume 1 chapter 12): sets up and ends connections by MADs.
//!
//! Purpose          find out which queue pairs are connected, and with which parameters, before any of their
//!                  packets is sent. [`Cm`] is a value without sockets and without a clock.
//! Interface        the caller passes received MADs to [`Cm::take`]. [`Cm::poll_transmit`] returns the MADs
//!                  to be sent and [`Cm::poll_event`] the events, until `None`. [`Cm::advance`] is due at
//!                  [`Cm::deadline`].
//! Carried          by the caller: each MAD travels in a UD Send from queue pair 1 to queue pair 1
//!                  ([`GSI_QKEY`](crate::wire::roce::GSI_QKEY)).
//! State            of a connection, or of a service id resolution (SIDR):
//!
//! ```text
//! state             entered by        retransmits  answers a duplicate  left on
//! ReqSent           connect           REQ                               REP; REJ or no answer: forgotten
//! RepReceived       REP                            REP with MRA         confirm; reject, REJ, DREQ
//! ReqReceived       REQ                            REQ with MRA         accept; reject, REJ
//! RepSent           accept            REP          REQ with REP         RTU or data; REJ, DREQ, no answer
//! Established       confirm; RTU                   REP with RTU         disconnect; DREQ, REJ
//! DreqSent          disconnect        DREQ                              DREP, DREQ, REJ, no answer
//! TimeWait          (end of others)                as it ended          time
//! SidrReqSent       resolve           SIDR_REQ                          SIDR_REP or no answer: forgotten
//! SidrReqReceived   SIDR_REQ                                            resolved, refuse
//! ```
//!
//! Retransmission   the sender of a REQ chooses how long either side waits and how often it retransmits. An
//!                  MRA extends the wait once per message, for at most `timeout_max`.
//! Refusal          a request without a listener (REJ with "invalid service id", SIDR_REP with "not
//!                  supported", or an ICMP error, [`Cm::on_port_unreachable`]) is repeated after 5, 10, 20
//!                  and 40 ms before the refusal is reported: the program may be about to listen.
//! TimeWait         twice the ACK timeout: late packets and duplicates are not taken for those of a new
//!                  connection. A REQ is answered with the REJ that ended the connection, or with "stale
//!                  connection"; a DREQ is answered with DREP.
//! Stale            a REQ or REP from a queue pair that is connected already: the peer has forgotten the old
//!                  connection. The new one is rejected, and the old one is ended (§12.9.8.3.1).
//! Unknown          a REP for no connection is answered with a REJ, a DREQ with a DREP; others are ignored.
//!                  One MAD causes at most one MAD to a sender without a connection.
//! Validation       a MAD belongs to a connection only if it comes from its peer's address and names both
//!                  communication ids. These are random, so senders that see no traffic cannot guess them.
//!                  As everywhere in RoCE, nothing protects against senders that see it. Also, a sender that
//!                  forges the peer's address and guesses its GUID and queue pair can end a connection: its
//!                  REQ makes the connection stale.
//! Limits           [`CmConfig`]: connections, requests that are not established (in total and per peer
//!                  address), services, queued MADs and events. Above these limits, requests are dropped
//!                  without an answer, and the peer retransmits them.
//! XRC              the active side is an initiator, the passive side a target (Annex A14).
//! Not implemented  path migration (LAP, APR), redirection, reliable datagrams, private data in DREP.

mod config;
mod connection;
mod counters;
mod interface;
mod machine;
mod receive;
mod requests;

pub use config::CmConfig;
pub use counters::CmCounters;
pub use interface::{Accept, CmError, CmEvent, Connect, ConnectionId, Transmit};
pub use machine::Cm;
