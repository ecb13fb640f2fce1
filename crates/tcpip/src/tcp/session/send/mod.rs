//! What is sent and when: the segment, the rules of Nagle and silly windows, and when an acknowledgement is
//! due (RFC 9293 §3.8.6).

mod ack_rule;
mod output;
mod send_rule;
