//! Stories of the RDMA NIC in real time that need a process or a network of their own: crowds, killed peers,
//! raw frames.

mod crowds;
mod halves;
mod killed;
mod pair;
mod raw;
