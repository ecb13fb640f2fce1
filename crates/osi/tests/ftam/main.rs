//! The file protocol machine: its state table, and two machines joined by queues in place of the services
//! below.

mod pair;
mod random;
mod recovery;
mod table;
mod transfers;
