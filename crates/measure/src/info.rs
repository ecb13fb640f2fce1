//! TCP_INFO: the kernel's data about a connection.
//!
//! Layout           `struct tcp_info` of Linux's `include/uapi/linux/tcp.h`. It has only ever been extended
//!                  at its end, so it is read by length: fields that an older kernel lacks are `None`.
//! Units            times are in microseconds, including `ato` and `rto`; sizes are in bytes.

use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Buffer size, with room for future fields.
const ROOM_BYTES: usize = 512;

/// The fields of `tcp_info` that are used. A number in parentheses is the first version of Linux that has the
/// field.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TcpInfo {
    /// Retransmission timeout, us.
    pub rto_us: u32,
    /// Delayed-ACK timeout of this end, us; zero if no ACK has been delayed yet.
    pub ato_us: u32,
    /// The current MSS for sending, bytes. Linux limits it to half of the largest window seen.
    pub snd_mss: u32,
    /// Estimated MSS of the peer's segments, bytes.
    pub rcv_mss: u32,
    /// Segments in flight: sent, and not acknowledged.
    #[serde(default)]
    pub unacked: u32,
    /// The path's MTU, bytes.
    pub pmtu: u32,
    /// Smoothed RTT, us.
    pub rtt_us: u32,
    /// Congestion window, segments.
    pub snd_cwnd: u32,
    /// The MSS advertised to the peer, bytes.
    pub advmss: u32,
    /// Total retransmitted segments.
    pub total_retrans: u32,
    /// Segments sent (4.2).
    pub segs_out: Option<u32>,
    /// Segments received (4.2).
    pub segs_in: Option<u32>,
    /// Bytes not sent yet (4.6).
    pub notsent_bytes: Option<u32>,
    /// The minimum RTT seen, us (4.6).
    pub min_rtt_us: Option<u32>,
    /// Segments with data sent (4.6).
    pub data_segs_out: Option<u32>,
    /// Time with unsent or unacknowledged data, us (4.10).
    pub busy_us: Option<u64>,
    /// The part of `busy_us` during which the peer's window was full, us (4.10).
    pub rwnd_limited_us: Option<u64>,
    /// The part of `busy_us` during which the send buffer was too small, us (4.10).
    pub sndbuf_limited_us: Option<u64>,
    /// The peer's window, bytes (5.4).
    pub snd_wnd: Option<u32>,
    /// Whether both ends offered to scale windows in their SYNs (RFC 7323 §2); without it, no window exceeds
    /// 65,535 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_scaling: Option<bool>,
}

/// `TCPI_OPT_WSCALE`, a bit of `tcpi_options`.
const WINDOW_SCALE: u8 = 4;

impl TcpInfo {
    /// Reads the data of a TCP socket.
    ///
    /// # Errors
    /// A system call failed; for example, the socket is not a TCP socket.
    pub fn of(socket: &impl AsFd) -> io::Result<TcpInfo> {
        let mut room = [0u8; ROOM_BYTES];
        let mut length = ROOM_BYTES as libc::socklen_t;
        let file = socket.as_fd().as_raw_fd();
        // SAFETY: the kernel writes at most `length` bytes, which is the size of `room`, and stores the
        // number of bytes written; the descriptor is borrowed, so it is open.
        let answer = unsafe {
            libc::getsockopt(
                file,
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                room.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        if answer < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(TcpInfo::read(&room[..(length as usize).min(ROOM_BYTES)]))
    }

    /// Parses the structure, whatever its length.
    pub fn read(bytes: &[u8]) -> TcpInfo {
        let word = |at: usize| {
            let word = bytes.get(at..at + 4)?.first_chunk()?;
            Some(u32::from_ne_bytes(*word))
        };
        let long = |at: usize| {
            let long = bytes.get(at..at + 8)?.first_chunk()?;
            Some(u64::from_ne_bytes(*long))
        };
        let old = |at: usize| word(at).unwrap_or(0);
        TcpInfo {
            rto_us: old(8),
            ato_us: old(12),
            snd_mss: old(16),
            rcv_mss: old(20),
            unacked: old(24),
            pmtu: old(60),
            rtt_us: old(68),
            snd_cwnd: old(80),
            advmss: old(84),
            total_retrans: old(100),
            segs_out: word(136),
            segs_in: word(140),
            notsent_bytes: word(144),
            min_rtt_us: word(148),
            data_segs_out: word(156),
            busy_us: long(168),
            rwnd_limited_us: long(176),
            sndbuf_limited_us: long(184),
            snd_wnd: word(228),
            window_scaling: bytes.get(5).map(|options| options & WINDOW_SCALE != 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn fields_of_newer_kernels_are_none_on_older_ones() {
        let mut bytes = [0u8; 232];
        for (at, value) in [(16usize, 1448u32), (100, 7), (148, 25), (228, 65_535)] {
            bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        bytes[168..176].copy_from_slice(&5_000_000_000u64.to_ne_bytes());
        let whole = TcpInfo::read(&bytes);
        assert_eq!((whole.snd_mss, whole.total_retrans), (1448, 7));
        assert_eq!((whole.min_rtt_us, whole.busy_us), (Some(25), Some(5_000_000_000)));
        assert_eq!((whole.snd_wnd, whole.window_scaling), (Some(65_535), Some(false)));
        bytes[5] = 7;
        assert_eq!(TcpInfo::read(&bytes).window_scaling, Some(true));
        let old = TcpInfo::read(&bytes[..104]);
        assert_eq!((old.snd_mss, old.total_retrans), (1448, 7));
        assert_eq!((old.min_rtt_us, old.busy_us, old.snd_wnd), (None, None, None));
        let cut = TcpInfo::read(&bytes[..172]);
        assert_eq!((cut.min_rtt_us, cut.busy_us), (Some(25), None));
        assert_eq!(TcpInfo::read(&[]), TcpInfo::default());
    }

    #[test]
    fn tcp_info_of_a_connection_can_be_read() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let mut caller = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let (mut called, _) = listener.accept().expect("a peer has connected");
        caller.write_all(&[7; 100]).expect("a connection");
        called.read_exact(&mut [0; 100]).expect("a connection");
        let info = TcpInfo::of(&caller).expect("a connection");
        assert!(info.snd_mss > 500 && info.advmss > 500 && info.pmtu > 500, "{info:?}");
        assert!(info.data_segs_out.is_none_or(|count| count == 1), "{info:?}");
    }
}
