//! The file protocol machine: its state table, and two machines joined by queues in place of the services
//! below.

mod chance;
mod pair;
mod recovery;
mod table;
mod transfers;
