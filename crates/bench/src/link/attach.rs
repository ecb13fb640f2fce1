//! Measures a program that is attached to the board through shared memory, instead of the board's own
//! application.
//!
//! Echo      64 bytes go to the board's own echo service and back, one message at a time. The program polls
//!           until the reply arrives, and so does the board.
//! Transfer  the same kernel peer, board and device as in the other rows, but the attached program reads and
//!           writes. It shares the kernel peer's CPU. With whole segments, three CPUs would be needed for
//!           peer, board and program, but there are only two. With single packets, the board's CPU is the
//!           bottleneck.
//! Thread    the program is a thread of this process, but it and the board map the shared memory separately,
//!           as two processes would.

use super::board::{Application, config};
use super::device::{BEHIND, BUFFER_BYTES, Device, Direction, SINK, SOURCE, Taken, in_a_namespace, open};
use super::peer;
use kiban_base::{Instant, Wait};
use kiban_board::Board;
use kiban_link::Driver;
use kiban_os::Clock;
use kiban_os::clock::pin_thread;
use kiban_os::random;
use kiban_service::config::{Endpoint, Kind, ServicePlan};
use kiban_service::services::{Services, make};
use kiban_streams::Settings;
use kiban_tokio::Attachment;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The port of the echo service.
const ECHO: u16 = 7;
const MESSAGE_BYTES: usize = 64;
/// The number of echoes before the measurement.
const WARM_UP: u32 = 1000;
/// The size of a pipe between board and program. It is large, so that a CPU shared by both switches between
/// them less often.
const ROOM_BYTES: usize = 4 << 20;
/// How long board and program poll before they sleep.
const SPIN: Duration = Duration::from_micros(50);

/// The program that reads or writes: the board's own application, or the attached program.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
    Own,
    Attached,
}

fn place() -> PathBuf {
    std::env::temp_dir().join(format!("kiban-bench-{}.streams", std::process::id()))
}

fn services(door: &Path) -> Services {
    let mut services = Services::new().expect("files can be opened");
    let plan = |name: &str, listen, kind| ServicePlan {
        name: name.into(),
        listen,
        sessions_max: 64,
        idle: None,
        kind,
    };
    let echo = plan("echo", Endpoint::Board(SocketAddr::from((BEHIND, ECHO))), Kind::Echo);
    let attach = plan("attach", Endpoint::UnixSocket("attach"), Kind::Attach { path: door.to_owned() });
    for plan in [echo, attach] {
        let service = make(&plan, services.chime()).expect("the services can be created");
        services.put(plan, service);
    }
    services
}

/// Runs a board with its services until `work` returns. Optionally also runs an application whose bytes are
/// counted.
fn with_board<T: Send>(
    device: Device,
    own: Option<Application>,
    wait: Wait,
    cpus: [usize; 2],
    beside: impl FnOnce(&Path) -> T + Send,
) -> (T, Option<Taken>) {
    let done = in_a_namespace(|| {
        let link = open(device).map_err(|error| error.to_string())?;
        pin_thread(cpus[0]).map_err(|error| error.to_string())?;
        let clock = Clock::new();
        let door = place();
        let mut driver = Driver::new(
            Board::new(&config(device), random::key().expect("the system has random numbers")),
            clock,
        )
        .map_err(|error| error.to_string())?;
        driver.attach_packets(0, Box::new(link));
        driver.add_fd_program(Box::new(services(&door)));
        let own = own.map(|own| driver.add(Box::new(own)));
        // The attach socket exists only after the driver's first turn.
        driver.turn();
        let (waker, over) = (driver.waker(), AtomicBool::new(false));
        let result = std::thread::scope(|scope| {
            let beside = scope.spawn(|| {
                pin_thread(cpus[1]).expect("this CPU was allowed");
                let result = beside(&door);
                over.store(true, Ordering::Release);
                waker.wake();
                result
            });
            let mut waiting = driver.waiting(wait);
            driver.run(&mut waiting, Instant::NEVER, |_| over.load(Ordering::Acquire));
            beside.join().expect("the board's thread succeeds")
        });
        let taken = own.and_then(|number| driver.program::<Application>(number)).map(|own| own.taken);
        Ok((result, taken))
    });
    done.expect("it worked before")
}

/// Runs the runtime of an attached program on the CPU of the current thread.
fn attached<T>(door: &Path, work: impl AsyncFnOnce(Attachment) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let settings = Settings { room_bytes: ROOM_BYTES, spin: SPIN, ..Settings::default() };
        work(Attachment::attach_at(door, settings).await.expect("the board takes it")).await
    })
}

/// Returns the round-trip time of an echo, microseconds.
pub(super) fn echo(cpus: [usize; 2], rounds: u32) -> f64 {
    let device = Device { mtu_bytes: 1500, whole: true };
    with_board(device, None, Wait::Hybrid { spin: SPIN }, cpus, |door| {
        attached(door, async |board| {
            let mut stream = board.connect(SocketAddr::from((BEHIND, ECHO))).await.expect("it listens");
            stream.set_nodelay(true);
            let mut message = [7; MESSAGE_BYTES];
            let clock = Clock::new();
            let mut began = clock.now();
            for round in 0..WARM_UP + rounds {
                if round == WARM_UP {
                    began = clock.now();
                }
                stream.write_all(&message).await.expect("it is open");
                stream.read_exact(&mut message).await.expect("it comes back");
            }
            assert_eq!(message, [7; MESSAGE_BYTES]);
            clock.now().since(began).as_secs_f64() * 1e6 / f64::from(rounds)
        })
    })
    .0
}

/// Runs one connection between the kernel and the board; returns Gbit/s at the receiver.
pub(super) fn transfer(
    who: Who,
    direction: Direction,
    device: Device,
    cpus: [usize; 2],
    length: Duration,
) -> f64 {
    let clock = Clock::new();
    let own = (who == Who::Own).then(|| Application::new(direction, clock, length));
    let ((far, near), own) = with_board(device, own, Wait::Poll, cpus, |door| {
        std::thread::scope(|scope| {
            // Listen before the kernel connects.
            let (listens, called) = std::sync::mpsc::channel();
            let near = (who == Who::Attached).then(|| {
                scope.spawn(move || {
                    attached(door, async |board| near(&board, direction, clock, length, listens).await)
                })
            });
            if near.is_some() {
                called.recv().expect("it listens");
            }
            let to = |port| SocketAddr::from((BEHIND, port));
            let far = match direction {
                Direction::Receives => peer::send(&peer::connect(to(SINK)), clock, length),
                Direction::Sends => peer::receive(&peer::connect(to(SOURCE)), clock),
            };
            (far, near.map(|near| near.join().expect("the program succeeds")))
        })
    });
    let taken =
        if direction == Direction::Receives { near.or(own).expect("one of the two receives") } else { far };
    taken.gbit_per_second()
}

/// Runs the attached program's side.
async fn near(
    board: &Attachment,
    direction: Direction,
    clock: Clock,
    length: Duration,
    listens: std::sync::mpsc::Sender<()>,
) -> Taken {
    let port = if direction == Direction::Receives { SINK } else { SOURCE };
    let listener = board.listen(SocketAddr::from((BEHIND, port))).await.expect("the port is free");
    listens.send(()).expect("the other thread waits");
    let (mut stream, _) = listener.accept().await.expect("the kernel connects");
    let mut buffer = crate::noise::noise(1, BUFFER_BYTES);
    let mut taken = Taken::default();
    let until = clock.now() + length;
    if direction == Direction::Sends {
        while clock.now() < until {
            stream.write_all(&buffer).await.expect("the peer reads");
        }
        stream.shutdown().await.expect("it is open");
        let _ = stream.read(&mut buffer).await;
    } else {
        while let count @ 1.. = stream.read(&mut buffer).await.expect("the peer sends") {
            taken.take(count, clock.now());
        }
    }
    taken
}
