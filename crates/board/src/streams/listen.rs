//! Listeners and datagram sockets on a given port, or on a dynamic one.

use crate::Host;
use core::net::SocketAddr;
use kiban_attach::EndReason;
use kiban_tcpip::tcp::Owner;
use kiban_tcpip::udp::SocketId;
use kiban_tcpip::wire::DYNAMIC_PORTS;

/// Listens for a program of `owner`, as its operating system would. Without `v6_only`, `::` covers both
/// address families. Port 0 means a random port, or the next free one after it (RFC 6056 §3.3.1). Returns the
/// listener's number and address.
///
/// # Errors
/// The address is not one of the board's, or is in use.
pub fn listen(
    host: &mut Host<'_>,
    owner: Owner,
    local: SocketAddr,
    v6_only: bool,
) -> Result<(u32, SocketAddr), EndReason> {
    choose(host, local, |host, local| Ok(host.listen_for(owner, local, v6_only)?))
}

/// Opens a datagram socket for a program. Without `v6_only`, `::` covers both address families. Port 0 means
/// a random port, or the next free one after it. An address for which `is_free` returns false is in use.
/// Returns the socket and its address.
///
/// # Errors
/// The address is not one of the board's, or is in use; there are too many sockets.
pub fn bind(
    host: &mut Host<'_>,
    local: SocketAddr,
    v6_only: bool,
    is_free: impl Fn(SocketAddr) -> bool,
) -> Result<(SocketId, SocketAddr), EndReason> {
    choose(host, local, |host, local| match is_free(local) {
        true => Ok(host.bind_with(local, v6_only)?),
        false => Err(EndReason::InUse),
    })
}

/// Listens by `listen` on the port of `local` or, for port 0, on a dynamic one.
pub(crate) fn choose<T>(
    host: &mut Host<'_>,
    local: SocketAddr,
    mut listen: impl FnMut(&mut Host<'_>, SocketAddr) -> Result<T, EndReason>,
) -> Result<(T, SocketAddr), EndReason> {
    if !local.ip().is_unspecified() && !host.is_own(local.ip()) {
        return Err(EndReason::BadAddress);
    }
    if local.port() != 0 {
        return Ok((listen(host, local)?, local));
    }
    let count = DYNAMIC_PORTS.len();
    let first = host.board.stack.rng.below(count as u64) as usize;
    for step in first..first + count {
        let chosen = SocketAddr::new(local.ip(), DYNAMIC_PORTS.start() + (step % count) as u16);
        match listen(host, chosen) {
            Ok(number) => return Ok((number, chosen)),
            Err(EndReason::InUse) => {}
            Err(why) => return Err(why),
        }
    }
    Err(EndReason::TooMany)
}
