//! Links that carry Ethernet frames or IP packets through this host's interfaces: TUN, TAP, packet sockets,
//! AF_XDP.

pub mod ethernet;
mod landing;
pub mod tun;
mod virtio;
pub mod xdp;
mod xsk;
