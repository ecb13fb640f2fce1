//! Configuration of a session machine.

use crate::wire::session::{Units, Versions};
use crate::{AcceptedSelectors, Selector};
use core::time::Duration;

/// The functional units that this implementation supports.
pub const OFFERED: Units = Units::DUPLEX.or(Units::SYNCHRONISE).or(Units::TYPED_DATA);
/// The smallest TSDU size that is accepted, in bytes: SPDUs that cannot be segmented must fit.
pub const TSDU_BYTES_MIN: u16 = 1024;

/// Configuration of a session machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// The calling transport selector for connections that this end makes.
    pub transport_calling: Selector,
    /// The called transport selector for connections that this end makes.
    pub transport_called: Selector,
    /// The called session selectors that are accepted.
    pub attached: AcceptedSelectors,
    /// The protocol versions to propose and accept.
    pub versions: Versions,
    /// Maximum size of a sent TSDU in bytes; 0 means unlimited. Values below [`TSDU_BYTES_MIN`] are raised to
    /// it.
    pub tsdu_out_bytes_max: u16,
    /// Maximum size of a received TSDU in bytes, to be proposed to the peer; values have the same meaning as
    /// in `tsdu_out_bytes_max`.
    pub tsdu_in_bytes_max: u16,
    /// Maximum length of a received data or typed data SSDU in bytes.
    pub ssdu_bytes_max: usize,
    /// Maximum length of the user data of any other SPDU in bytes.
    pub user_data_bytes_max: usize,
    /// TIM: the time within which the peer must close the transport connection.
    pub abort_timeout: Duration,
    /// Time limit for establishing a connection: it applies from the transport connection to the CONNECT, and
    /// from the CONNECT to its answer.
    pub connect_timeout: Option<Duration>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            transport_calling: Selector::NONE,
            transport_called: Selector::NONE,
            attached: AcceptedSelectors::Any,
            versions: Versions::V1.or(Versions::V2),
            tsdu_out_bytes_max: 0,
            tsdu_in_bytes_max: 0,
            ssdu_bytes_max: 16 << 20,
            user_data_bytes_max: 1 << 20,
            abort_timeout: Duration::from_secs(10),
            connect_timeout: Some(Duration::from_secs(120)),
        }
    }
}
