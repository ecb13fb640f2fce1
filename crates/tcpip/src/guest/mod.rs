//! Configures the one guest of an Ethernet link: DHCP (RFC 2131), router advertisements (RFC 4861 §6.2, RFC
//! 8106) and DHCPv6 (RFC 8415).
//!
//! Purpose          give the guest its addresses, its gateway, the MTU and name servers, by each of the three
//!                  protocols.
//! Lease            one address of each family. Every client gets it, because there is one guest: a virtual
//!                  machine that restarts with another MAC or identifier gets its address again. So a reply
//!                  depends only on the configuration and the request. No state is kept for a client, and a
//!                  flood of requests cannot fill a table.
//! Reply            only to a well-formed request, to the station that sent it, and one for each request.
//! Decline          ignored: there is no other address. A guest that finds its address in use has two
//!                  stations on its link.
//! Files            `dhcp`, `dhcpv6`: replies to messages; `state`: when to advertise. The module `ethernet`
//!                  carries the messages and sends the advertisements.
//! Not implemented  relays; delegated prefixes; options for boot; an advertisement of lifetime zero at the
//!                  end.

mod config;
mod counters;
mod dhcp;
mod dhcpv6;
mod state;

pub use config::{GuestConfig, LEASE_SECONDS, NAMES_MAX};
pub use counters::GuestCounters;
pub use dhcp::{Reply, Target};
pub(crate) use state::Guest;

use alloc::vec::Vec;
use kiban_base::ethernet::Mac;

impl GuestConfig {
    /// Returns the reply to a DHCP message.
    pub fn answer(&self, message: &[u8], mtu_bytes: usize, counters: &mut GuestCounters) -> Option<Reply> {
        let reply = dhcp::answer(self, message, mtu_bytes);
        counters.count(&reply);
        reply.ok()?
    }

    /// Returns the reply to a DHCPv6 message. `server` is our MAC, of which our DUID is made.
    pub fn answer6(&self, message: &[u8], server: Mac, counters: &mut GuestCounters) -> Option<Vec<u8>> {
        let reply = dhcpv6::answer(self, message, server);
        counters.count(&reply);
        reply.ok()?
    }
}
