//! Fast Open state of one session.

use crate::wire::tcp::{FastOpenCookie, Sequence};

/// The role of Fast Open in the handshake of a session (RFC 7413).
#[derive(Clone, Copy, Debug)]
pub(in crate::tcp::session) enum FastOpen {
    /// None, or the handshake is complete.
    None,
    /// Our SYN shows this cookie, or asks for one.
    Offer {
        cookie: FastOpenCookie,
        /// The server's MSS when it granted the cookie.
        mss: u16,
        /// Bytes of data in the SYN.
        sent: u32,
        /// Whether the SYN waits for the host's first data.
        waits: bool,
    },
    /// Our SYN-ACK carries this cookie.
    Grant(FastOpenCookie),
    /// The data of the peer's SYN was accepted; our SYN-ACK is not acknowledged yet.
    Pending {
        /// The sequence number of the peer's SYN.
        syn: Sequence,
        listener: u32,
        /// Whether the SYN-ACK is to be sent, and whether it has been sent before.
        due: bool,
        is_sent: bool,
    },
    /// A RST has ended the session before our SYN-ACK was acknowledged.
    Reset { listener: u32 },
}
