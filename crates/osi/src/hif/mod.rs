//! The host interface of an OSI board (paper \[5\]): the user of the file service runs on the host, and the
//! protocol machines of all seven layers run on the board.
//!
//! ```text
//!   host     initiator or responder, with its disk
//!            UserSide      state of the service; messages                    user.rs
//!   ───────  a byte stream in each direction (shared memory); wire::hif
//!   board    BoardSide     FTAM, ACSE, presentation, session, transport      board.rs
//!            a TCP stream
//! ```
//!
//! Messages      each message is one service primitive, such as an F-DATA with its contents. PDUs of the
//!               lower layers never cross the interface.
//! Flow control  each side stops reading when the other side, or the network, accepts no more.
//! Trust         the board checks every message and every request; a message that it cannot decode ends the
//!               association. The user's side checks the board's messages in the same way.

mod board;
mod user;

#[cfg(test)]
mod tests;

pub use board::{BoardSide, REQUEST_BYTES_MAX};
pub use user::UserSide;
