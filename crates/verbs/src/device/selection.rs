//! What the environment selects: how devices present themselves (`KIBAN_TRANSPORT`), whose NIC they use
//! (`KIBAN_BOARD`), and whether all are listed (`KIBAN_DEVICES`).

use std::io::{Write, stderr};
use std::sync::OnceLock;

/// How devices present themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Transport {
    /// A channel adapter, over kiban's own protocols.
    Ib,
    /// A channel adapter that speaks RoCEv2.
    Roce,
    /// A device of no standard kind: iWARP's messages over EFE.
    Efe,
    /// An RNIC.
    Iwarp,
}

impl Transport {
    /// Returns its name in `KIBAN_TRANSPORT`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Transport::Ib => "ib",
            Transport::Roce => "roce",
            Transport::Efe => "efe",
            Transport::Iwarp => "iwarp",
        }
    }

    /// Returns whether it has datagrams between queue pairs (UD).
    pub(crate) fn has_datagrams(self) -> bool {
        matches!(self, Transport::Ib | Transport::Roce)
    }
}

/// Returns the transport that the environment selects: `roce`, `efe`, `iwarp`, or else `ib`.
pub(crate) fn transport() -> Transport {
    static TRANSPORT: OnceLock<Transport> = OnceLock::new();
    *TRANSPORT.get_or_init(|| {
        let value = std::env::var_os("KIBAN_TRANSPORT").unwrap_or_default();
        named(&value.to_string_lossy()).unwrap_or_else(|| {
            // Warn, because a typing error would otherwise be hard to notice. If the warning cannot be
            // written, continue.
            let value = value.display();
            let _ = writeln!(
                stderr(),
                "kiban: invalid KIBAN_TRANSPORT '{value}': use ib, roce, efe or iwarp; continuing with ib"
            );
            Transport::Ib
        })
    })
}

/// Returns the name of the running board whose NIC the programs use, if the environment selects one.
pub(crate) fn board() -> Option<&'static str> {
    static BOARD: OnceLock<Option<String>> = OnceLock::new();
    let name = BOARD.get_or_init(|| std::env::var("KIBAN_BOARD").ok().filter(|name| !name.is_empty()));
    name.as_deref()
}

/// Returns whether programs see the devices of all addresses, or only those that other hosts reach.
pub(crate) fn lists_all() -> bool {
    static ALL: OnceLock<bool> = OnceLock::new();
    *ALL.get_or_init(|| std::env::var_os("KIBAN_DEVICES").is_some_and(|devices| devices == "all"))
}

/// Parses the transport; an empty string means `ib`.
fn named(word: &str) -> Option<Transport> {
    use Transport::{Efe, Ib, Iwarp, Roce};
    let is = |transport: &Transport| word.eq_ignore_ascii_case(transport.name());
    if word.is_empty() { Some(Ib) } else { [Ib, Roce, Efe, Iwarp].into_iter().find(is) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transport_is_ib_roce_efe_or_iwarp() {
        assert_eq!(["", "ib", "IB"].map(named), [Some(Transport::Ib); 3]);
        assert_eq!(["iwarp", "iWARP"].map(named), [Some(Transport::Iwarp); 2]);
        assert_eq!(["roce", "RoCE"].map(named), [Some(Transport::Roce); 2]);
        assert_eq!(["efe", "EFE"].map(named), [Some(Transport::Efe); 2]);
        assert_eq!(["rocev2", "iwarp ", "0"].map(named), [None; 3]);
    }
}
