//! A board behind the device, with an application that reads or writes.

use super::device::{BEHIND, BUFFER_BYTES, Device, Direction, SINK, SOURCE, Taken};
use kiban_base::{Instant, Wait};
use kiban_board::{
    Board, BoardConfig, Completion, Host, IpPortConfig, MemoryConfig, PortConfig, Program, StreamId,
};
use kiban_link::Driver;
use kiban_link::frames::tun::TunLink;
use kiban_os::Clock;
use kiban_os::random;
use kiban_tcpip::tcp;
use std::any::Any;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

pub(super) struct Application {
    direction: Direction,
    clock: Clock,
    length: Duration,
    until: Instant,
    stream: Option<StreamId>,
    buffer: Vec<u8>,
    pub(super) taken: Taken,
    is_done: bool,
}

impl Application {
    pub(super) fn new(direction: Direction, clock: Clock, length: Duration) -> Application {
        Application {
            direction,
            clock,
            length,
            until: Instant::NEVER,
            stream: None,
            buffer: crate::noise::noise(2, BUFFER_BYTES),
            taken: Taken::default(),
            is_done: false,
        }
    }

    fn write(&mut self, host: &mut Host<'_>) {
        let Some(stream) = self.stream.filter(|_| self.direction == Direction::Sends && !self.is_done) else {
            return;
        };
        while self.clock.now() < self.until {
            if host.write(stream, &self.buffer).unwrap_or(0) < self.buffer.len() {
                return;
            }
        }
        self.is_done = true;
        let _ = host.finish(stream);
    }
}

impl Program for Application {
    fn start(&mut self, host: &mut Host<'_>, _: Instant) {
        let port = if self.direction == Direction::Receives { SINK } else { SOURCE };
        host.listen(SocketAddr::from(([0; 4], port))).expect("the port is free");
    }

    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, now: Instant) {
        match completion {
            Completion::Accepted { stream, .. } => {
                self.stream = Some(stream);
                self.until = now + self.length;
                self.write(host);
            }
            Completion::Writable { .. } => self.write(host),
            Completion::Readable { stream } => {
                while let Ok(count @ 1..) = host.read(stream, &mut self.buffer) {
                    self.taken.take(count, now);
                }
            }
            Completion::PeerFinished { stream } | Completion::Ended { stream, .. } => {
                let _ = host.close(stream);
            }
            _ => {}
        }
    }

    fn is_done(&self) -> bool {
        self.is_done
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

pub(super) fn config(device: Device) -> BoardConfig {
    let mss = device.mss() as u16;
    BoardConfig {
        memory: MemoryConfig {
            // A whole segment occupies four or five pages. The larger the pages, the fewer pieces the system
            // has to gather and scatter.
            page_bytes: 16 << 10,
            transmit_bytes: 16 << 20,
            receive_bytes: 32 << 20,
            pdus: 8192,
        },
        tcp: tcp::Config {
            mss,
            segment_bytes_max: if device.whole { 65_000 } else { u32::from(mss) },
            send_buffer_bytes: 1 << 20,
            receive_buffer_bytes: 1 << 20,
            ..tcp::Config::default()
        },
        ports: vec![PortConfig::Ip(IpPortConfig {
            address: IpAddr::from(BEHIND),
            prefix: "10.9.0.0/24".parse().expect("a prefix"),
            mtu_bytes: device.mtu_bytes,
            packets_max: 256,
            cuts: false,
            merges: !device.whole,
            believe_sums: true,
        })],
        ..BoardConfig::default()
    }
}

pub(super) fn run(
    link: TunLink,
    direction: Direction,
    device: Device,
    clock: Clock,
    length: Duration,
    over: impl Fn() -> bool,
) -> Taken {
    let mut driver = Driver::new(
        Board::new(&config(device), random::key().expect("the system has random numbers")),
        clock,
    )
    .expect("files can be opened");
    driver.attach_packets(0, Box::new(link));
    let number = driver.add(Box::new(Application::new(direction, clock, length)));
    let mut waiting = driver.waiting(Wait::Poll);
    // The driver is not woken when the kernel's side ends, so check for this every few milliseconds.
    while !over() {
        let soon = clock.now() + Duration::from_millis(5);
        driver.run(&mut waiting, soon, |_| over());
    }
    driver.program::<Application>(number).expect("it is there").taken
}
