//! The place of a capture.

/// Where a capture was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// At the client, or near it.
    Client,
    /// Between the two.
    Middle,
    /// At the server, or near it.
    Server,
    /// Neither the handshake nor timestamps tell it.
    Unknown,
}

impl Place {
    /// Returns the place of a capture from the round trips to the sender and to the receiver.
    pub(crate) fn of(near: u64, far: u64, sender: usize) -> Place {
        let [here, there] =
            if sender == 0 { [Place::Client, Place::Server] } else { [Place::Server, Place::Client] };
        match near + far {
            0 => Place::Unknown,
            whole if far * 5 < whole => here,
            whole if near * 5 < whole => there,
            _ => Place::Middle,
        }
    }
}
