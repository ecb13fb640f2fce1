//! Tests of X.25 over LAPB and over TCP (XOT), against captures of a recorded peer, and with Wireshark as an
//! independent decoder.

mod captures;
mod dissected;
mod line;
mod station;
