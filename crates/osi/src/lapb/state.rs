//! The state table of LAPB (X.25 §2.4.4 to §2.4.7, ISO 7776).
//!
//! Rows are events, columns are states; each cell contains an action and the next state. The table does not
//! check sequence numbers: [`Act::Transfer`] continues with the rules of information transfer (§2.4.5).

/// The state of a link.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// Disconnected phase (§2.4.4.4).
    Disconnected,
    /// SABM was sent; the link awaits UA (§2.4.4.1).
    SettingUp,
    /// Information transfer (§2.4.4.2).
    Connected,
    /// A frame was rejected (§2.4.7.3).
    Rejecting,
    /// DISC was sent; the link awaits UA (§2.4.4.3).
    Disconnecting,
}

impl State {
    /// All states, in the order of the table's columns.
    pub const ALL: [State; 5] =
        [State::Disconnected, State::SettingUp, State::Connected, State::Rejecting, State::Disconnecting];
}

/// An event: the kind of a received frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// SABM or SABME, whichever matches the numbering for which this link is configured.
    Set,
    /// SABM or SABME, whichever does not match the configured numbering.
    OtherSet,
    /// DISC.
    Disc,
    /// I, RR, RNR or REJ as a command with P = 1.
    PollCommand,
    /// I, RR, RNR or REJ as a command with P = 0.
    Command,
    /// RR, RNR or REJ as a response.
    Response,
    /// UA with F = 1.
    UaFinal,
    /// UA with F = 0.
    Ua,
    /// DM with F = 1.
    DmFinal,
    /// DM with F = 0.
    Dm,
    /// FRMR.
    Frmr,
    /// A frame that must be rejected, because it is undefined or has a field that it must not have
    /// (§2.4.6.3).
    Invalid,
}

impl Event {
    /// All events, in the order of the table's rows.
    pub const ALL: [Event; 12] = [
        Event::Set,
        Event::OtherSet,
        Event::Disc,
        Event::PollCommand,
        Event::Command,
        Event::Response,
        Event::UaFinal,
        Event::Ua,
        Event::DmFinal,
        Event::Dm,
        Event::Frmr,
        Event::Invalid,
    ];
}

/// An action.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Act {
    /// Does nothing.
    Ignore,
    /// Sends UA, and resets sequence numbers.
    Ua,
    /// Sends DM.
    Dm,
    /// Sends UA if the link may be set up; otherwise sends DM and keeps the state.
    UaOrDm,
    /// Sends SABM or SABME.
    Set,
    /// Sends SABM or SABME if the host wants the link; otherwise keeps the state.
    SetIfWanted,
    /// The peer has accepted the set-up; resets sequence numbers.
    Agreed,
    /// The peer has refused the link, or disconnected it.
    Gone,
    /// Continues with the rules of information transfer.
    Transfer,
    /// Sends FRMR.
    Reject,
    /// Retransmits the FRMR.
    RejectAgain,
}

/// Returns the table's cell for an event in a state.
pub fn cell(state: State, event: Event) -> (Act, State) {
    use Act::*;
    use State::*;
    let row = match event {
        // §2.4.4.5: if both ends have sent the same command, each answers with UA; if the commands differ,
        // both ends answer with DM and are disconnected.
        Event::Set => {
            [(UaOrDm, Connected), (Ua, Connected), (Ua, Connected), (Ua, Connected), (Dm, Disconnected)]
        }
        Event::OtherSet => [
            (Dm, Disconnected),
            (Dm, Disconnected),
            (Reject, Rejecting),
            (RejectAgain, Rejecting),
            (Dm, Disconnected),
        ],
        Event::Disc => [
            (Dm, Disconnected),
            (Dm, Disconnected),
            (Ua, Disconnected),
            (Ua, Disconnected),
            (Ua, Disconnected),
        ],
        // §2.4.4.4.2: a command with P = 1 is answered with DM; other commands are ignored.
        Event::PollCommand => [
            (Dm, Disconnected),
            (Ignore, SettingUp),
            (Transfer, Connected),
            (RejectAgain, Rejecting),
            (Ignore, Disconnecting),
        ],
        Event::Command => [
            (Ignore, Disconnected),
            (Ignore, SettingUp),
            (Transfer, Connected),
            (RejectAgain, Rejecting),
            (Ignore, Disconnecting),
        ],
        Event::Response => [
            (Ignore, Disconnected),
            (Ignore, SettingUp),
            (Transfer, Connected),
            (Ignore, Rejecting),
            (Ignore, Disconnecting),
        ],
        // A second UA in information transfer answers a retransmitted SABM.
        Event::UaFinal => [
            (Ignore, Disconnected),
            (Agreed, Connected),
            (Ignore, Connected),
            (Ignore, Rejecting),
            (Gone, Disconnected),
        ],
        Event::Ua => [
            (Ignore, Disconnected),
            (Ignore, SettingUp),
            (Ignore, Connected),
            (Ignore, Rejecting),
            (Ignore, Disconnecting),
        ],
        Event::DmFinal => [
            (Ignore, Disconnected),
            (Gone, Disconnected),
            (Set, SettingUp),
            (Set, SettingUp),
            (Gone, Disconnected),
        ],
        // §2.4.4.4.1: DM with F = 0 asks for a link set-up; §2.4.4.6: if it collides with a command from this
        // end, it is ignored.
        Event::Dm => [
            (SetIfWanted, SettingUp),
            (Ignore, SettingUp),
            (Set, SettingUp),
            (Set, SettingUp),
            (Ignore, Disconnecting),
        ],
        Event::Frmr => [
            (Ignore, Disconnected),
            (Ignore, SettingUp),
            (Set, SettingUp),
            (Set, SettingUp),
            (Ignore, Disconnecting),
        ],
        Event::Invalid => [
            (Ignore, Disconnected),
            (Ignore, SettingUp),
            (Reject, Rejecting),
            (RejectAgain, Rejecting),
            (Ignore, Disconnecting),
        ],
    };
    row[state as usize]
}
