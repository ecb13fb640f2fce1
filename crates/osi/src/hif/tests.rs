//! Two boards, each with its user behind a byte stream: whole transfers, crossing requests, hostile users.

use super::{BoardSide, REQUEST_BYTES_MAX, UserSide};
use crate::Selector;
use crate::ftam::filestore::memory::MemoryDisk;
use crate::ftam::filestore::{Actions, Admission, AuthResult, Authenticator, Credentials, Locks, Path};
use crate::ftam::initiator::{self, Event, Initiator, Job, Outcome};
use crate::ftam::responder::{self, Responder, Store};
use crate::ftam::{ABSTRACT_SYNTAXES, Config, Machine, Request, Role, State};
use crate::network::Origin;
use crate::wire::ftam::{BinaryParameters, DataElement, Document};
use crate::wire::hif::{Open, ToBoard};
use alloc::vec;
use alloc::vec::Vec;
use kiban_base::{Instant, Malformed, Rope, RopeQueue, SimRng};

const NOW: Instant = Instant::ZERO;
const BINARY: Document = Document::UnstructuredBinary(BinaryParameters::NONE);

struct Everyone;

impl Authenticator for Everyone {
    fn authenticate(&mut self, _: &Credentials) -> AuthResult {
        AuthResult::Admitted(Admission { user: "ann".into(), rights: Actions::ALL, home: Path::root() })
    }
}

fn open(role: Role) -> Open {
    let (called, calling) = (Selector::from("called"), Selector::NONE);
    Open { role, tpdu_bytes_max: 2048, tsdu_bytes_max: 1 << 20, called, calling }
}

fn side(role: Role) -> UserSide {
    let abstract_syntaxes = ABSTRACT_SYNTAXES.to_vec();
    UserSide::new(Machine::user_side(Config { role, abstract_syntaxes }), open(role))
}

/// Moves a random number of bytes from the front of a queue.
fn some(queue: &mut RopeQueue, rng: &mut SimRng) -> Vec<u8> {
    let most = rng.below(20_000) as usize;
    let bytes: Vec<u8> = queue.runs().flatten().copied().take(most).collect();
    queue.skip(bytes.len());
    bytes
}

/// An initiator and a responder, their boards, and the four byte streams.
struct World {
    initiator: Initiator,
    responder: Responder,
    users: [UserSide; 2],
    boards: [BoardSide; 2],
    disks: [MemoryDisk; 2],
    locks: Locks,
    rng: SimRng,
    events: Vec<Event>,
}

impl World {
    fn new(seed: u64) -> World {
        World::with_checkpoints(seed, 20_000)
    }

    fn with_checkpoints(seed: u64, checkpoint_bytes: u64) -> World {
        let config = initiator::Config { fdata_bytes: 3000, checkpoint_bytes, ..Default::default() };
        let mut world = World {
            initiator: Initiator::new(config),
            responder: Responder::new(
                responder::Config { fdata_bytes: 2500, checkpoint_bytes: 15_000, ..Default::default() },
                "10.0.0.1",
            ),
            users: [side(Role::Initiator), side(Role::Responder)],
            boards: [BoardSide::new(), BoardSide::new()],
            disks: [MemoryDisk::new(), MemoryDisk::new()],
            locks: Locks::new(4),
            rng: SimRng::from_seed(seed),
            events: Vec::new(),
        };
        world.initiator.connect(world.users[0].machine()).expect("it has no association");
        world
    }

    fn round(&mut self) {
        let World { initiator, responder, users, boards, disks, locks, rng, events } = self;
        for (user, board) in users.iter_mut().zip(boards.iter_mut()) {
            let bytes = some(user.outgoing(), rng);
            board.from_user(bytes.into());
            board.work(NOW).expect("the user sends valid messages");
            let bytes = some(board.to_user(), rng);
            user.arrive(bytes.into());
        }
        for (from, to) in [(0, 1), (1, 0)] {
            if boards[to].wants_network() {
                let bytes = some(boards[from].to_network(), rng);
                boards[to].from_network(bytes.into(), NOW);
            }
        }
        let room = users[0].room();
        initiator.work(users[0].machine(), &mut disks[0], room);
        events.extend(core::iter::from_fn(|| initiator.event()));
        let mut store = Store { disk: &mut disks[1], locks, authenticator: &mut Everyone };
        let room = users[1].room();
        responder.work(users[1].machine(), &mut store, room);
        for user in users {
            user.settle();
        }
    }

    fn run(&mut self) -> Event {
        for _ in 0..100_000 {
            if !self.events.is_empty() {
                return self.events.remove(0);
            }
            self.round();
        }
        panic!("no further progress");
    }

    fn job(&mut self, job: Job) -> Event {
        self.initiator.start(job, self.users[0].machine(), &mut self.disks[0]).expect("it is idle");
        self.run()
    }
}

fn contents(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 31 / 7) as u8).collect()
}

#[test]
fn files_cross_two_boards_in_both_directions_whatever_the_pieces() {
    for seed in 1..=20 {
        let (mut world, file) = (World::new(seed), contents(200_000));
        let [here, there] = ["here", "there"].map(|name| Path::read(name).expect("a name"));
        world.disks[0].put(&here, &file);
        assert_eq!(world.run(), Event::Connected);
        let put = Job::Put { local: here, remote: "there".into(), document: BINARY };
        assert_eq!(world.job(put), Event::Ended(Ok(Outcome::Done)));
        assert!(world.disks[1].contents(&there) == Some(&file[..]));
        let back = Path::read("back").expect("a name");
        let get = Job::Get { remote: "there".into(), local: back.clone(), document: None };
        assert_eq!(world.job(get), Event::Ended(Ok(Outcome::Done)));
        assert!(world.disks[0].contents(&back) == Some(&file[..]));
        world.initiator.terminate(world.users[0].machine()).expect("it is idle");
        assert_eq!(world.run(), Event::Closed);
        assert!(world.users[0].is_over() && world.boards[0].is_over());
        assert_eq!(world.boards.each_ref().map(BoardSide::dropped), [0, 0]);
        let tsdus =
            world.boards[0].end().map_or(0, |end| end.files().stack().layers().1.counters().tsdus_out);
        assert!(tsdus > 66, "one TSDU for each F-DATA at least, on the board: {tsdus}");
    }
}

#[test]
fn a_cancelled_transfer_drops_the_requests_that_cross_and_the_next_one_works() {
    let mut crossed = 0;
    for seed in 1..=20 {
        let (mut world, file) = (World::new(seed), contents(300_000));
        let here = Path::read("here").expect("a name");
        world.disks[0].put(&here, &file);
        assert_eq!(world.run(), Event::Connected);
        let put = || Job::Put { local: here.clone(), remote: "there".into(), document: BINARY };
        world.initiator.start(put(), world.users[0].machine(), &mut world.disks[0]).expect("it is idle");
        while world.initiator.progress().0 < 20_000 + 5000 * seed {
            world.round();
        }
        world.initiator.cancel(world.users[0].machine(), &mut world.disks[0]).expect("it transfers");
        assert!(matches!(world.run(), Event::Ended(Err(failure)) if failure.cancelled), "{seed}");
        assert_eq!(world.job(put()), Event::Ended(Ok(Outcome::Done)), "{seed}");
        crossed += world.boards.iter().map(BoardSide::dropped).sum::<u64>();
    }
    assert!(crossed > 0, "the responder's answers to checkpoints cross with the cancel");
}

#[test]
fn the_end_of_a_user_or_of_the_network_ends_the_association_at_the_other_end() {
    for by_user in [true, false] {
        let mut world = World::new(3);
        assert_eq!(world.run(), Event::Connected);
        match by_user {
            true => world.boards[1].user_ended(NOW),
            false => world.boards[0].network_ended(Origin::Provider, NOW),
        }
        assert_eq!(world.run(), Event::Lost);
        assert_eq!(world.users[0].machine().state(), State::Closed);
        assert!(world.users[0].is_over());
    }
}

#[test]
fn a_hostile_user_is_refused() {
    let data = |bytes: usize| {
        let contents = Rope::from(vec![0; bytes]);
        ToBoard::Request(Request::Data(DataElement::octets(contents))).into_rope().to_vec()
    };
    let open = ToBoard::Open(open(Role::Initiator)).into_rope().to_vec();
    for (about, bytes, rule) in [
        ("a request before the first message", data(1), Malformed::Operation),
        ("a second first message", [&open[..], &open[..]].concat(), Malformed::Operation),
        (
            "an F-DATA that is too long",
            [&open[..], &data(REQUEST_BYTES_MAX)[..100]].concat(),
            Malformed::TotalLength,
        ),
        ("an unknown kind", vec![99, 0, 0, 0, 0], Malformed::Operation),
        (
            "an unknown role",
            {
                let mut open = open.clone();
                open[5] = 2;
                open
            },
            Malformed::ParameterValue,
        ),
        ("an invalid F-DATA", vec![6, 0, 0, 0, 2, 0x30, 0], Malformed::Alternative),
    ] {
        let mut board = BoardSide::new();
        board.from_user(bytes.into());
        assert_eq!(board.work(NOW), Err(rule), "{about}");
    }
    // A request that the state does not allow does nothing.
    let mut board = BoardSide::new();
    board.from_user([open, data(1000)].concat().into());
    assert_eq!((board.work(NOW), board.dropped()), (Ok(()), 1));
    assert!(board.to_network().is_empty() && board.to_user().is_empty());
}

#[test]
fn a_user_that_sends_faster_than_the_network_is_held_back() {
    let mut world = World::with_checkpoints(1, 1 << 30);
    let here = Path::read("here").expect("a name");
    world.disks[0].put(&here, &contents(4 << 20));
    assert_eq!(world.run(), Event::Connected);
    let put = Job::Put { local: here, remote: "there".into(), document: BINARY };
    world.initiator.start(put, world.users[0].machine(), &mut world.disks[0]).expect("it is idle");
    (0..60).for_each(|_| world.round());
    // The network accepts no more data.
    let World { initiator, users, boards, disks, .. } = &mut world;
    for _ in 0..1000 {
        let room = users[0].room();
        initiator.work(users[0].machine(), &mut disks[0], room);
        users[0].settle();
        if boards[0].user_room() > 0 {
            let bytes: Vec<u8> = users[0].outgoing().runs().flatten().copied().collect();
            users[0].outgoing().clear();
            boards[0].from_user(bytes.into());
            boards[0].work(NOW).expect("the user sends valid messages");
        }
    }
    let limit = crate::stack::end::OUTGOING_BYTES_MAX;
    assert_eq!(boards[0].user_room(), 0);
    assert!((limit..2 * limit).contains(&boards[0].to_network().len()), "{}", boards[0].to_network().len());
    assert!(users[0].room() == 0 && users[0].outgoing().len() < 2 * limit);
}
