//! Unix sockets with untrusted peers.
//!
//! Threat           a peer may send open files with its bytes (SCM_RIGHTS, unix(7)). The thread that drops
//!                  the last reference to such a file closes it, which may block for as long as the sender
//!                  chose ([`closing`]). Files are dropped by recv(2) if it has no room for them, by recv(2)
//!                  of data that follows out-of-band data, by close(2) of a socket in which they wait, and by
//!                  close(2) of a listener with connections in which they wait.
//! Receive          [`Peer`] peeks before it receives. MSG_PEEK adds references and never drops the last one.
//!                  If the peek finds an unwanted file, nothing is received and the call fails. SO_OOBINLINE
//!                  makes out-of-band data visible, too.
//! Close            before a socket is closed, it is shut down, so that nothing more arrives, and drained in
//!                  the same way. If a file still waits in it, the socket is passed to [`closing`]. So no
//!                  call here blocks on a peer, and honest peers cost no thread.
//! Refuse           if no file is wanted, the system is asked not to admit any (SO_PASSRIGHTS, Linux 6.16);
//!                  sendmsg(2) then fails at the peer.
//! Memory           memfds of shmem ([`is_plain_memory`]) are the only files accepted, and only by callers.
//! Names            paths in directories of one user ([`names`]); a listener holds a lock file beside its
//!                  path. The first listener of a process at a shared-memory name removes the files that
//!                  ended processes have left there.
//! Access           the user of this process, and root (SO_PEERCRED).
//! Limits           before Linux 6.10, if sockets were sent over each other in a cycle, the next thread that
//!                  closes any socket also closes their files.

pub mod closing;
mod listener;
pub mod names;
mod pass;
mod peer;
mod socket_path;

#[cfg(test)]
mod tests;

pub use listener::Listener;
pub use pass::{close_inherited_files, inherited_file, receive_file, send_file};
pub use peer::{Peer, is_at_mark, is_plain_memory, set_token};
pub(crate) use socket_path::remove_stale;
pub use socket_path::{SocketPath, remove_abandoned};
