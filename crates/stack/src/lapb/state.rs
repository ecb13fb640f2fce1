//! The table of LAPB: what a frame does in a state (X.25 §2.4.4 to §2.4.7, ISO 7776).
//!
//! Rows are events, columns states; a cell is an action and the next state. Numbers are not looked at here: what is
//! [`Act::Transfer`] goes on in the rules of information transfer (§2.4.5).

/// Where a link is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// Disconnected phase (§2.4.4.4).
    Disconnected,
    /// Our SABM waits for its UA (§2.4.4.1).
    SettingUp,
    /// Information transfer (§2.4.4.2).
    Connected,
    /// We have rejected a frame (§2.4.7.3).
    Rejecting,
    /// Our DISC waits for its UA (§2.4.4.3).
    Disconnecting,
}

impl State {
    /// Every state, in the order of the columns.
    pub const ALL: [State; 5] =
        [State::Disconnected, State::SettingUp, State::Connected, State::Rejecting, State::Disconnecting];
}

/// What arrives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// SABM, or SABME, as this link is configured.
    Set,
    /// The other one of the two.
    OtherSet,
    /// DISC.
    Disc,
    /// I, RR, RNR or REJ as a command with P = 1.
    PollCommand,
    /// The same with P = 0.
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
    /// A frame that would be rejected: undefined, or with what it may not have (§2.4.6.3).
    Invalid,
}

impl Event {
    /// Every event, in the order of the rows.
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

/// What is done.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Act {
    /// Nothing.
    Ignore,
    /// Sends UA; numbers begin anew.
    Ua,
    /// Sends DM.
    Dm,
    /// Sends UA if the link may come up, else DM and stays.
    UaOrDm,
    /// Sends SABM or SABME.
    Set,
    /// Sends it if the link is wanted, else stays.
    SetIfWanted,
    /// The peer has agreed; numbers begin anew.
    Agreed,
    /// The peer has refused, or is gone.
    Gone,
    /// The rules of information transfer.
    Transfer,
    /// Sends FRMR.
    Reject,
    /// Sends the same FRMR again.
    RejectAgain,
}

/// The cell of an event in a state.
pub fn cell(state: State, event: Event) -> (Act, State) {
    use Act::*;
    use State::*;
    let row = match event {
        // §2.4.4.5: the same commands meet: each answers. Different ones: both are disconnected.
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
        // §2.4.4.4.2: a command with P = 1 is answered by DM, any other is ignored.
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
        // A second UA in information transfer answers a SABM that was repeated.
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
        // §2.4.4.4.1: DM with F = 0 asks for a set-up; §2.4.4.6: it may meet our command, and then says nothing.
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
