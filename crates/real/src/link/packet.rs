//! Raw Ethernet frames on an interface (AF_PACKET): one EtherType.
//!
//! Goal      frames straight on an Ethernet, real or virtual (a veth), for a protocol that is not IP.
//! Limits    needs CAP_NET_RAW; never blocks: what the interface cannot take now is dropped, as a wire would.
//! Left out  rings shared with the kernel, offloads.

use super::interface::{Asked, asked, told_of};
use kiban_wire::ethernet::Mac;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A socket on an interface.
#[derive(Debug)]
pub struct PacketLink {
    socket: OwnedFd,
    mac: Mac,
}

impl PacketLink {
    /// A socket for the frames of one EtherType on an interface, by its name.
    ///
    /// # Errors
    /// There is no such interface, or this program may not use it.
    pub fn open(interface: &str, ether_type: u16) -> io::Result<PacketLink> {
        let told = |what: &str, error: io::Error| told_of(interface, what, "CAP_NET_RAW", error);
        let index = asked(interface, Asked::Index)?.index();
        let mac = asked(interface, Asked::Mac)?.mac();
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: it makes a file or fails.
        // No protocol yet: until it is bound it would hear of every interface.
        let file = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        if file < 0 {
            return Err(told("open raw frames on", io::Error::last_os_error()));
        }
        // SAFETY: the file was just made, and is nobody else's.
        let socket = unsafe { OwnedFd::from_raw_fd(file) };
        // SAFETY: all of its fields may be zero.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = ether_type.to_be();
        address.sll_ifindex = index;
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the address is a whole `sockaddr_ll`.
        let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
        if bound < 0 {
            return Err(told("bind to", io::Error::last_os_error()));
        }
        Ok(PacketLink { socket, mac })
    }

    /// The interface's Ethernet address.
    pub fn mac(&self) -> Mac {
        self.mac
    }

    /// Sends a frame, its FCS not counted. False: it is lost here.
    pub fn send(&self, frame: &[u8]) -> bool {
        rustix::net::send(&self.socket, frame, rustix::net::SendFlags::DONTWAIT).is_ok()
    }

    /// The next frame that is here, our own on their way out left out.
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
