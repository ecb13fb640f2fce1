//! The file protocol machine: its table, and two of them over services below that are queues.

mod chance;
mod pair;
mod recovery;
mod table;
mod transfers;
