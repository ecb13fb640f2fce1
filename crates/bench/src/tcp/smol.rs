//! smoltcp's side of the comparison: two interfaces connected by rings of preallocated frames.

use super::joined::{Application, Joined, Setting};
use kiban_os::clock::Clock;
use smoltcp::iface::{Config, Interface, PollIngressSingleResult, PollResult, SocketHandle, SocketSet};
use smoltcp::phy::{Checksum, ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{CongestionControl, Socket, SocketBuffer, State};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};

const PORT: u16 = 80;

/// A bounded queue of frames in reused memory.
struct Rail {
    frames: Vec<(usize, Box<[u8]>)>,
    first: usize,
    count: usize,
}

impl Rail {
    fn new(frames: usize, mtu_bytes: usize) -> Rail {
        let frame = |_| (0, vec![0; mtu_bytes].into_boxed_slice());
        Rail { frames: (0..frames).map(frame).collect(), first: 0, count: 0 }
    }
}

/// One end of two queues: smoltcp's device.
struct Plug<'a> {
    arriving: &'a mut Rail,
    leaving: &'a mut Rail,
    mtu_bytes: usize,
}

struct Arrived<'a>(&'a mut Rail);
struct Free<'a>(&'a mut Rail);

impl RxToken for Arrived<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, work: F) -> R {
        let rail = self.0;
        let (length, bytes) = &rail.frames[rail.first];
        let result = work(&bytes[..*length]);
        rail.first = if rail.first + 1 == rail.frames.len() { 0 } else { rail.first + 1 };
        rail.count -= 1;
        result
    }
}

impl TxToken for Free<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, work: F) -> R {
        let rail = self.0;
        let behind = rail.first + rail.count;
        let place = if behind < rail.frames.len() { behind } else { behind - rail.frames.len() };
        let frame = &mut rail.frames[place];
        frame.0 = length;
        let result = work(&mut frame.1[..length]);
        rail.count += 1;
        result
    }
}

impl Device for Plug<'_> {
    type RxToken<'t>
        = Arrived<'t>
    where
        Self: 't;
    type TxToken<'t>
        = Free<'t>
    where
        Self: 't;

    fn receive(&mut self, _now: Instant) -> Option<(Arrived<'_>, Free<'_>)> {
        let ready = self.arriving.count > 0 && self.leaving.count < self.leaving.frames.len();
        if ready { Some((Arrived(self.arriving), Free(self.leaving))) } else { None }
    }

    fn transmit(&mut self, _now: Instant) -> Option<Free<'_>> {
        if self.leaving.count < self.leaving.frames.len() { Some(Free(self.leaving)) } else { None }
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = self.mtu_bytes;
        capabilities.max_burst_size = None;
        capabilities.checksum = ChecksumCapabilities::default();
        capabilities
    }
}

struct End {
    interface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
}

pub(super) struct Ends {
    ends: [End; 2],
    rails: [Rail; 2],
    mtu_bytes: usize,
}

fn address(side: usize) -> IpAddress {
    IpAddress::v4(10, 0, 0, 1 + side as u8)
}

impl Ends {
    pub(super) fn new(setting: Setting, mtu_bytes: usize) -> Ends {
        let capabilities = ChecksumCapabilities::default();
        assert!(matches!((capabilities.ipv4, capabilities.tcp), (Checksum::Both, Checksum::Both)));
        let mut rails = [0, 1].map(|_| Rail::new(setting.packets, mtu_bytes));
        let ends = [0, 1].map(|side| {
            let [leaving, arriving] = &mut rails;
            let mut plug = Plug { arriving, leaving, mtu_bytes };
            let mut interface = Interface::new(Config::new(HardwareAddress::Ip), &mut plug, Instant::ZERO);
            interface.update_ip_addrs(|addresses| {
                addresses.push(IpCidr::new(address(side), 24)).expect("there is room for one address");
            });
            let buffer = || SocketBuffer::new(vec![0; setting.window_bytes]);
            let mut socket = Socket::new(buffer(), buffer());
            socket.set_congestion_control(CongestionControl::None);
            socket.set_nagle_enabled(true);
            socket.set_ack_delay(setting.delayed_ack.then(|| Duration::from_millis(10)));
            match side {
                0 => socket.connect(interface.context(), (address(1), PORT), 49_152).expect("it may connect"),
                _ => socket.listen(PORT).expect("it may listen"),
            }
            let mut sockets = SocketSet::new(Vec::with_capacity(1));
            let handle = sockets.add(socket);
            End { interface, sockets, handle }
        });
        Ends { ends, rails, mtu_bytes }
    }

    /// Passes arrivals to the stack, lets the application work, and takes the stack's output.
    fn work(&mut self, side: usize, now: Instant, application: &mut Application) {
        let [zero, one] = &mut self.rails;
        let (leaving, arriving) = if side == 0 { (zero, one) } else { (one, zero) };
        let mut plug = Plug { arriving, leaving, mtu_bytes: self.mtu_bytes };
        let End { interface, sockets, handle } = &mut self.ends[side];
        loop {
            let progress = interface.poll_ingress_single(now, &mut plug, sockets);
            if progress == PollIngressSingleResult::None {
                break;
            }
        }
        let socket = sockets.get_mut::<Socket<'_>>(*handle);
        if socket.state() == State::Established {
            match side {
                0 => application.write(|bytes| socket.send_slice(bytes).expect("the socket is open")),
                _ => application.read(|buffer| socket.recv_slice(buffer).expect("the socket is open")),
            }
        }
        while interface.poll_egress(now, &mut plug, sockets) != PollResult::None {}
    }
}

impl Joined for Ends {
    fn turn(&mut self, clock: &Clock, application: &mut Application) {
        let now = Instant::from_micros((clock.now().as_nanos() / 1000) as i64);
        self.work(0, now, application);
        self.work(1, now, application);
    }

    fn check(&self) {
        for End { sockets, handle, .. } in &self.ends {
            assert_eq!(sockets.get::<Socket<'_>>(*handle).state(), State::Established);
        }
    }
}
