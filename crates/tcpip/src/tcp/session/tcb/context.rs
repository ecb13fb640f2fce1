//! The context of a session's methods.

use crate::tcp::config::Config;
use crate::tcp::counters::TcpCounters;
use crate::tcp::fairness::share::Share;
use crate::tcp::interface::indication::Indication;
use crate::tcp::listen::fast_open::FastOpenCache;
use crate::tcp::segment::Segment;
use crate::tcp::throttle::Throttle;
use alloc::collections::VecDeque;
use kiban_base::Context;

/// The parts of the machine that a session may use during one call: settings, outboxes, shares, counters.
pub(in crate::tcp) struct SessionContext<'a, 'b> {
    pub(in crate::tcp) config: &'a Config,
    pub(in crate::tcp) cx: &'a mut Context<'b>,
    pub(in crate::tcp) up: &'a mut VecDeque<Indication>,
    pub(in crate::tcp) down: &'a mut VecDeque<Segment>,
    pub(in crate::tcp) receive_share: &'a mut Share,
    pub(in crate::tcp) send_share: &'a mut Share,
    pub(in crate::tcp) challenges: &'a mut Throttle,
    pub(in crate::tcp) fast_open: &'a mut FastOpenCache,
    pub(in crate::tcp) counters: &'a mut TcpCounters,
}

/// The result of one turn of `output`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::tcp) enum Progress {
    /// Nothing more may be sent now.
    Done,
    /// The quantum is used up, and there is more to send.
    More,
    /// No memory was free for a PDU.
    Starved,
}
