//! Tests of the FTAM machine: its state table, and two machines joined by queues that stand in for the lower
//! layers.

mod pair;
mod random;
mod recovery;
mod table;
mod transfers;
