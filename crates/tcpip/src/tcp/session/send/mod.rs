//! Decides what is sent and when: builds segments, applies Nagle and silly-window avoidance, and decides when
//! an acknowledgement is due (RFC 9293 §3.8.6).

mod ack_rule;
mod output;
mod send_rule;
