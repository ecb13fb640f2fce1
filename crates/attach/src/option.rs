//! Options that a program sets on its sockets with setsockopt(2) (`kiban run`).
//!
//! Purpose    the board keeps the options of a stream, so that they can be read after exec, and by a process
//!            to which the descriptor has been passed.
//! Values     the value of every option is a number, with the meaning that Linux gives it (tcp(7),
//!            socket(7)).

/// An option of a stream. Entries and the preloaded library (`preload/board`) use the same numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum StreamOption {
    /// `TCP_NODELAY`.
    NoDelay = 1,
    /// `SO_KEEPALIVE`.
    KeepAlive = 2,
    /// `TCP_KEEPIDLE`, seconds.
    KeepIdle = 3,
    /// `TCP_KEEPINTVL`, seconds.
    KeepInterval = 4,
    /// `TCP_KEEPCNT`.
    KeepCount = 5,
    /// `TCP_USER_TIMEOUT`, milliseconds.
    UserTimeout = 6,
    /// `IP_TOS` or `IPV6_TCLASS`.
    TrafficClass = 7,
    /// `SO_LINGER`: zero if it is off, otherwise one more than the seconds.
    Linger = 8,
    /// `TCP_CORK`.
    Cork = 9,
    /// `TCP_QUICKACK`.
    QuickAck = 10,
    /// `TCP_NOTSENT_LOWAT`, bytes.
    NotSentLowWater = 11,
    /// `TCP_DEFER_ACCEPT`, seconds.
    DeferAccept = 12,
    /// `TCP_LINGER2`, seconds.
    Linger2 = 13,
    /// `TCP_SYNCNT`.
    SynCount = 14,
    /// `TCP_WINDOW_CLAMP`, bytes.
    WindowClamp = 15,
    /// Whether the last write had `MSG_MORE`, so that more data follows.
    More = 16,
    /// `SO_REUSEADDR`.
    ReuseAddress = 17,
    /// `SO_REUSEPORT`.
    ReusePort = 18,
    /// `TCP_FASTOPEN`: how many connections of a listener may be pending.
    FastOpen = 19,
    /// `TCP_FASTOPEN_CONNECT`.
    FastOpenConnect = 20,
    /// `IPV6_V6ONLY`, which [`Request::Listen`](crate::Request::Listen) has, too.
    V6Only = 21,
    /// `SO_TIMESTAMP`.
    Timestamp = 22,
    /// `SO_TIMESTAMPNS`.
    TimestampNs = 23,
    /// `SO_MAX_PACING_RATE`, bytes per second; `u32::MAX` if there is no limit.
    MaxPacingRate = 24,
    /// `TCP_CONGESTION`, which cannot be changed: 0 is `cubic`, 1 is `reno`.
    Congestion = 25,
}

impl StreamOption {
    /// All options, by number.
    pub const ALL: [StreamOption; 25] = [
        StreamOption::NoDelay,
        StreamOption::KeepAlive,
        StreamOption::KeepIdle,
        StreamOption::KeepInterval,
        StreamOption::KeepCount,
        StreamOption::UserTimeout,
        StreamOption::TrafficClass,
        StreamOption::Linger,
        StreamOption::Cork,
        StreamOption::QuickAck,
        StreamOption::NotSentLowWater,
        StreamOption::DeferAccept,
        StreamOption::Linger2,
        StreamOption::SynCount,
        StreamOption::WindowClamp,
        StreamOption::More,
        StreamOption::ReuseAddress,
        StreamOption::ReusePort,
        StreamOption::FastOpen,
        StreamOption::FastOpenConnect,
        StreamOption::V6Only,
        StreamOption::Timestamp,
        StreamOption::TimestampNs,
        StreamOption::MaxPacingRate,
        StreamOption::Congestion,
    ];

    pub(crate) fn of(code: u8) -> Option<StreamOption> {
        StreamOption::ALL.into_iter().find(|option| *option as u8 == code)
    }

    /// Returns the value that a new socket has on Linux.
    pub const fn usual(self) -> u32 {
        match self {
            StreamOption::KeepIdle => 7200,
            StreamOption::KeepInterval => 75,
            StreamOption::KeepCount => 9,
            StreamOption::QuickAck => 1,
            StreamOption::Linger2 => 60,
            StreamOption::SynCount => 6,
            StreamOption::MaxPacingRate => u32::MAX,
            _ => 0,
        }
    }
}
