//! Tests of X.25 over LAPB and over TCP (XOT): against captures of another implementation, and with Wireshark
//! as an independent decoder.

mod captures;
mod dissected;
mod line;
mod station;
