//! Link addresses, as operators write them: `KIND:TARGET`, then options.
//!
//! ```text
//! tun:kiban0    tap:kiban0    packet:eth1    xdp:eth1
//! udp-packets:LOCAL-PEER      udp-frames:LOCAL-PEER      udp-cells:LOCAL-PEER       pseudowire:LOCAL-PEER,label=1000
//! tcp-packets:HOST:PORT       tcp-frames:HOST:PORT       tcp-cells:HOST:PORT        atmtcp:HOST:PORT
//! tcp-frames:listen:HOST:PORT                                                       atmtcp:listen:HOST:PORT
//! unix-frames:PATH            unix-frames:listen:PATH    unix-datagrams:PATH:PEER-PATH                      pcap:FILE
//! ```
//!
//! Ends             LOCAL is an IP address of this host and a port, and PEER is a host and a port:
//!                  `0.0.0.0:7000-192.0.2.1:7000`, `[::]:7000-[2001:db8::1]:7000`. A numeric address contains
//!                  no '-', so the first '-' separates the two.
//! Options          each option is written `,key=value`; `?key=value&key=value` means the same.
//!                  `tun:kiban0,loss=1%,delay=5ms` needs no shell quoting. In a file name `%2C` is a comma,
//!                  `%3F` a question mark, `%25` a percent sign; in the path of a Unix socket `%3A` is a
//!                  colon.
//! Errors           messages say what is wrong and how to correct it.
//! Display          an address is displayed as it would be typed, with only the options that differ from the
//!                  default.

mod format;
mod open;
mod parse;
mod types;

pub use types::{Address, AddressError, AnyLink, Ends, Host, Options, Transport};

#[cfg(test)]
mod tests;
