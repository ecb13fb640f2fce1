//! Tests of the RDMA NIC in real time that need their own process or network: many connections, killed peers,
//! raw frames.

mod crowds;
mod halves;
mod killed;
mod pair;
mod raw;
