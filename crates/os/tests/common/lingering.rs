//! A socket whose close takes as long as its owner chose (SO_LINGER). Tests in other crates use it, too.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Creates a socket whose close(2) blocks for up to an hour because its peer reads nothing. Returns it with
/// the peer, whose reads time out after `patience`.
///
/// If a process is forked in the meantime, the child may hold the last reference, and then blocks in its
/// exec.
pub(crate) fn lingering(patience: Duration) -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback is there");
    // Limits the buffers, so that hundreds of these sockets need little memory.
    rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 256 << 10).expect("an option");
    let mut near = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
    let (far, _) = listener.accept().expect("it called");
    rustix::net::sockopt::set_socket_send_buffer_size(&near, 256 << 10).expect("an option");
    near.set_nonblocking(true).expect("a socket");
    while near.write(&[7; 65536]).is_ok() {}
    let hour = Duration::from_secs(3600);
    rustix::net::sockopt::set_socket_linger(&near, Some(hour)).expect("an option");
    far.set_read_timeout(Some(patience)).expect("a socket");
    (near.into(), far)
}
