//! Proof that a client has a descriptor of a program's socket.
//!
//! Problem   requests about a socket name it by its addresses. A connection over a channel has the rights of
//!           the user that opened the channel (root), although its client has given them up: it must not
//!           reach the sockets of other programs.
//! Token     each socket of a program has a random number in SO_MAX_PACING_RATE, which has no effect on Unix
//!           sockets. The option belongs to the socket and not to the descriptor, so every process that has a
//!           descriptor can read the token, also after fork, exec or SCM_RIGHTS. The socket's name is in
//!           /proc/net/unix; the token is in no such list. The token follows the request.
//! Limits    requires a 64-bit system, and Linux 4.20. On others, connections over channels reach no sockets.
//!           A connection by path needs no token.

use kiban_os::unix::{Peer, set_token};
use std::os::fd::AsFd;

/// A socket's token; 0 if it has none.
pub(super) type Token = u64;

/// The sockets that a client's request may name.
#[derive(Clone, Copy)]
pub(super) enum Access {
    All,
    /// Those with this token.
    With(Token),
}

impl Access {
    /// Returns the access of a client; `data` follows its request.
    pub(super) fn of(socket: &Peer, data: &[u8]) -> Access {
        if socket.is_over_another() { Access::With(read(data)) } else { Access::All }
    }

    pub(super) fn includes(self, token: Token) -> bool {
        match self {
            Access::All => true,
            Access::With(its) => its != 0 && its == token,
        }
    }
}

/// Returns the token that follows a request.
pub(super) fn read(data: &[u8]) -> Token {
    data.try_into().map_or(0, Token::from_ne_bytes)
}

/// Gives the program's end of a new pair a token.
pub(super) fn give(theirs: impl AsFd) -> Token {
    let random = kiban_os::random::bytes().map_or(0, Token::from_ne_bytes);
    if set_token(theirs.as_fd(), random).is_ok() { random } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    #[test]
    fn a_client_over_a_channel_reaches_only_sockets_whose_token_it_has() {
        let (theirs, _) = UnixStream::pair().expect("two sockets");
        let (token, other) = (give(&theirs), give(&theirs));
        assert!(token != other && token != 0, "{token} {other}");
        let peer = || Peer::new(UnixStream::pair().expect("two sockets").0.into()).expect("a socket");
        let over = Peer::over(Arc::new(peer()), UnixStream::pair().expect("two sockets").0.into());
        let over = over.expect("a socket");
        let reaches = |data: &[u8], token| Access::of(&over, data).includes(token);
        assert!(reaches(&token.to_ne_bytes(), token) && !reaches(&token.to_ne_bytes(), other));
        assert!(!reaches(&[], token) && !reaches(&[], 0) && !reaches(&[0; 8], 0));
        assert!(Access::of(&peer(), &[]).includes(token));
    }
}
