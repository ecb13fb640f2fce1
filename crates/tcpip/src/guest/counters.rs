//! Counters of the configuration of a guest.

use kiban_base::Malformed;

kiban_base::counters! {
    /// Counters of the configuration of a guest.
    pub struct GuestCounters {
        /// DHCP and DHCPv6 messages that were answered.
        answered,
        /// DHCP and DHCPv6 messages that need no answer: those for another server, releases and declines.
        ignored,
        /// Malformed DHCP and DHCPv6 messages, and those that only a server sends.
        malformed,
        /// Router advertisements sent.
        router_advertisements_out,
    }
}

impl GuestCounters {
    /// Counts a message by what it caused.
    pub(super) fn count<T>(&mut self, reply: &Result<Option<T>, Malformed>) {
        match reply {
            Ok(Some(_)) => self.answered += 1,
            Ok(None) => self.ignored += 1,
            Err(_) => self.malformed += 1,
        }
    }
}
