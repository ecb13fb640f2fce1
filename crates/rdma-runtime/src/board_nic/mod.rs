//! The NIC of a running board, used by this program through shared memory ([`kiban_rdma::hif`]).
//!
//! Purpose  provides the same operations as a NIC of this process's own ([`crate::linked_nic`]). The NIC runs
//!          in the board's process; here are only the program's ends of the rings.
//! Calls    a request that creates, changes or destroys an object waits for the board's reply. Posting work
//!          and polling a queue are accesses to shared memory; a system call is needed only to wake a board
//!          that sleeps.
//! Queues   the program counts the work that it has posted and not seen completed, so that a full queue is
//!          reported at once. Unsignalled sends are counted until a later signalled send has completed, as on
//!          other RNICs; other errors of posted work arrive as completions.
//! Failure  when the board ends, connections end and incomplete work is flushed, as when a network card is
//!          removed. Another board needs a new context.
//! Limits   the board's NIC decides on CRCs and MPA settings, and announces RFC 7306. A notification for
//!          solicited completions is raised by any completion. The NIC's counters are the board's
//!          (`kiban status`).

mod door;
mod machine;
mod queues;

pub(crate) use door::Door;
pub(crate) use machine::BoardNic;
