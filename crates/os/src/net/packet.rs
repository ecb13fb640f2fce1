//! Raw Ethernet frames of one EtherType on an interface (AF_PACKET).
//!
//! Purpose          send and receive frames on an Ethernet, real or virtual (veth), for a protocol that does
//!                  not run over IP.
//! Limits           the socket needs CAP_NET_RAW. It never blocks: a frame that the interface cannot take now
//!                  is dropped, as on a wire.
//! Not implemented  rings shared with the kernel; offloads.

use super::interface::{Property, explain_error_with, query};
use kiban_base::ethernet::Mac;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A packet socket bound to one interface.
#[derive(Debug)]
pub struct PacketLink {
    socket: OwnedFd,
    mac: Mac,
}

impl PacketLink {
    /// Opens a socket for frames of one EtherType on the named interface.
    ///
    /// # Errors
    /// The interface does not exist, or the process lacks CAP_NET_RAW.
    pub fn open(interface: &str, ether_type: u16) -> io::Result<PacketLink> {
        let explain =
            |what: &str, error: io::Error| explain_error_with(interface, what, "CAP_NET_RAW", error);
        let index = query(interface, Property::Index)?.index();
        let mac = query(interface, Property::Mac)?.mac();
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: socket(2) takes no pointers.
        // The protocol is 0 for now: with a protocol, an unbound socket would receive frames from every
        // interface.
        let file = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        if file < 0 {
            return Err(explain("open raw frames on", io::Error::last_os_error()));
        }
        // SAFETY: the descriptor was just created, and nothing else owns it.
        let socket = unsafe { OwnedFd::from_raw_fd(file) };
        // SAFETY: all-zero bytes are a valid `sockaddr_ll`.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = ether_type.to_be();
        address.sll_ifindex = index;
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the address is a complete `sockaddr_ll` and outlives the call.
        let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
        if bound < 0 {
            return Err(explain("bind to", io::Error::last_os_error()));
        }
        Ok(PacketLink { socket, mac })
    }

    /// Returns the interface's MAC address.
    pub fn mac(&self) -> Mac {
        self.mac
    }

    /// Sends a frame, which is given without its FCS. Returns false if the interface cannot take the frame,
    /// which is then lost.
    pub fn send(&self, frame: &[u8]) -> bool {
        rustix::net::send(&self.socket, frame, rustix::net::SendFlags::DONTWAIT).is_ok()
    }

    /// Receives the next frame, if one has arrived. Frames that this host sends are not returned.
    pub fn receive(&self, room: &mut [u8]) -> Option<usize> {
        loop {
            match rustix::net::recv(&self.socket, &mut *room, rustix::net::RecvFlags::DONTWAIT) {
                Ok((length, _)) => return Some(length),
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return None,
            }
        }
    }
}

impl AsFd for PacketLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
