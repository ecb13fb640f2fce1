//! Negotiation of the TPDU size: the two parameters, and the size that results (X.224 §6.5.4 j, k; RFC 1006
//! §6).

use super::config::{Config, Network, TPDU_BYTES_MIN};
use crate::wire::cotp::{self, PREFERRED_UNIT_BYTES};
use crate::wire::tpkt;

/// The code for 8192 octets, the largest size that X.224 defines.
const CODE_STANDARD_MAX: u8 = 13;

/// The two TPDU size parameters of a CR or CC.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Sizes {
    pub(super) code: Option<u8>,
    pub(super) preferred: Option<u32>,
}

/// Returns the size in bytes that applies if both parameters are absent.
const fn default_bytes(network: Network) -> usize {
    match network {
        Network::Tpkt => tpkt::TPDU_BYTES_MAX,
        Network::X25 => TPDU_BYTES_MIN,
    }
}

/// Returns the code for the largest size that does not exceed `bytes`.
fn code_below(bytes: usize) -> u8 {
    (bytes.ilog2() as u8).clamp(cotp::SIZE_CODE_MIN, CODE_STANDARD_MAX)
}

impl Sizes {
    /// Returns the parameters that a CR proposes for the configured size.
    pub(super) fn proposal(config: &Config) -> Sizes {
        let bytes = config.bytes_max();
        if config.network == Network::Tpkt && bytes == tpkt::TPDU_BYTES_MAX {
            return Sizes::default();
        }
        let code = code_below(bytes);
        let units = bytes as u32 / PREFERRED_UNIT_BYTES;
        let exact = 1 << code == units * PREFERRED_UNIT_BYTES;
        Sizes { code: Some(code), preferred: (!exact).then_some(units) }
    }

    /// Returns the size in bytes that the parameters encode, or `None` if they are invalid.
    pub(super) fn bytes(self, network: Network) -> Option<usize> {
        match (self.preferred, self.code) {
            // X.224 §6.5.4 k: a receiver that supports the preferred size ignores the other parameter.
            (Some(0), _) => None,
            (Some(units), _) => {
                Some((u64::from(units) * u64::from(PREFERRED_UNIT_BYTES)).min(1 << 20) as usize)
            }
            (None, Some(code)) => cotp::size_bytes(code).map(|bytes| bytes as usize),
            (None, None) => Some(default_bytes(network)),
        }
    }

    /// Answers a CR's proposal: returns the parameters of the CC, and the size in bytes.
    pub(super) fn answer(self, config: &Config) -> Option<(Sizes, usize)> {
        let (proposed, own) = (self.bytes(config.network)?, config.bytes_max());
        let answer = if self.preferred.is_some() {
            let units = (own.min(proposed) as u32 / PREFERRED_UNIT_BYTES).max(1);
            Sizes { code: None, preferred: Some(units) }
        } else if proposed <= own || own == tpkt::TPDU_BYTES_MAX {
            self
        } else {
            Sizes { code: Some(code_below(own)), preferred: None }
        };
        Some((answer, answer.bytes(config.network)?.min(own)))
    }

    /// Returns the size in bytes that a CC selects; at most the proposed size, even if the CC selects more.
    pub(super) fn selected(self, config: &Config) -> Option<usize> {
        let bytes = match self {
            // Both parameters are absent, so the network's default applies; over RFC 1006 it is at least the
            // proposal.
            Sizes { code: None, preferred: None } => default_bytes(config.network),
            sizes => sizes.bytes(config.network)?,
        };
        Some(bytes.min(config.bytes_max()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(network: Network, tpdu_bytes_max: usize) -> Config {
        Config { network, tpdu_bytes_max, ..Config::default() }
    }

    const fn sizes(code: Option<u8>, preferred: Option<u32>) -> Sizes {
        Sizes { code, preferred }
    }

    #[test]
    fn proposals() {
        for (network, bytes, expected) in [
            (Network::Tpkt, 65531, sizes(None, None)),
            (Network::Tpkt, 1 << 20, sizes(None, None)),
            (Network::Tpkt, 65530, sizes(Some(13), Some(511))),
            (Network::Tpkt, 16384, sizes(Some(13), Some(128))),
            (Network::Tpkt, 8192, sizes(Some(13), None)),
            (Network::Tpkt, 2048, sizes(Some(11), None)),
            (Network::Tpkt, 2100, sizes(Some(11), None)),
            (Network::Tpkt, 2304, sizes(Some(11), Some(18))),
            (Network::Tpkt, 1, sizes(Some(7), None)),
            (Network::X25, 65531, sizes(Some(11), None)),
            (Network::X25, 128, sizes(Some(7), None)),
        ] {
            assert_eq!(Sizes::proposal(&config(network, bytes)), expected, "{network:?} {bytes}");
        }
    }

    #[test]
    fn answers() {
        for (network, own, proposal, expected) in [
            (Network::Tpkt, 65531, sizes(None, None), Some((sizes(None, None), 65531))),
            (Network::Tpkt, 65531, sizes(Some(11), None), Some((sizes(Some(11), None), 2048))),
            (Network::Tpkt, 65531, sizes(Some(16), None), Some((sizes(Some(16), None), 65531))),
            (Network::Tpkt, 65531, sizes(Some(11), Some(511)), Some((sizes(None, Some(511)), 65408))),
            (Network::Tpkt, 65531, sizes(None, Some(9000)), Some((sizes(None, Some(511)), 65408))),
            (Network::Tpkt, 2048, sizes(None, None), Some((sizes(Some(11), None), 2048))),
            (Network::Tpkt, 2048, sizes(Some(13), None), Some((sizes(Some(11), None), 2048))),
            (Network::Tpkt, 3000, sizes(Some(13), None), Some((sizes(Some(11), None), 2048))),
            (Network::Tpkt, 3000, sizes(Some(13), Some(100)), Some((sizes(None, Some(23)), 2944))),
            (Network::Tpkt, 2048, sizes(Some(7), None), Some((sizes(Some(7), None), 128))),
            (Network::Tpkt, 2048, sizes(Some(6), None), None),
            (Network::Tpkt, 2048, sizes(Some(17), None), None),
            (Network::Tpkt, 2048, sizes(None, Some(0)), None),
            (Network::X25, 2048, sizes(None, None), Some((sizes(None, None), 128))),
            (Network::X25, 65531, sizes(Some(13), None), Some((sizes(Some(11), None), 2048))),
        ] {
            assert_eq!(proposal.answer(&config(network, own)), expected, "{network:?} {own} {proposal:?}");
        }
    }

    #[test]
    fn selections() {
        for (network, own, answer, expected) in [
            (Network::Tpkt, 8192, sizes(None, None), Some(8192)),
            (Network::Tpkt, 8192, sizes(Some(11), None), Some(2048)),
            (Network::Tpkt, 2048, sizes(Some(13), None), Some(2048)),
            (Network::Tpkt, 65530, sizes(None, Some(100)), Some(12800)),
            (Network::Tpkt, 2048, sizes(Some(3), None), None),
            (Network::X25, 2048, sizes(None, None), Some(128)),
            (Network::X25, 2048, sizes(Some(10), None), Some(1024)),
        ] {
            assert_eq!(answer.selected(&config(network, own)), expected, "{network:?} {own} {answer:?}");
        }
    }
}
